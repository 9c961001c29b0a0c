//! The commands of `docs/guide.md` run as they stand there, and leave the files that it names.

mod common;

use common::Scratch;

#[test]
fn the_guide_s_figures_of_papers_are_drawn_by_its_commands_one_after_the_other() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md"));
    let (_, block) = page.split_once("Figures of papers, as commands").unwrap();
    let lines = block.lines().skip(1).skip_while(|line| line.is_empty());
    let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    let scratch = Scratch::new();
    for command in lines.iter().filter_map(|line| line.strip_prefix("warmcore ")) {
        scratch.run(command).exits_with(0);
    }
    let words = lines.iter().filter(|line| line.starts_with('#')).flat_map(|line| line.split([' ', ',']));
    let named: Vec<&str> = words.filter(|word| word.ends_with(".svg")).collect();
    assert_eq!(named.len(), 5, "{named:?}");
    for name in named {
        let (directory, pattern) = name.rsplit_once('/').unwrap();
        let (start, end) = pattern.split_once('*').unwrap_or((pattern, ""));
        let found = scratch.files(directory);
        assert!(found.iter().any(|file| file.starts_with(start) && file.ends_with(end)), "{name}: {found:?}");
    }
}

#[test]
fn the_guide_s_sentence_about_a_wakeup_is_what_its_commands_print() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md"));
    let (_, block) = page.split_once("Of a wakeup it tells the rule").unwrap();
    let lines = block.lines().skip_while(|line| !line.starts_with("    "));
    let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    let scratch = Scratch::new();
    let commands = lines.iter().filter_map(|line| line.strip_prefix("warmcore "));
    let printed: String = commands.map(|command| scratch.run(command).exits_with(0).out).collect();
    let sentence: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("#   ")).collect();
    assert!(!sentence.is_empty() && printed.contains(&sentence.join(" ")), "{printed}");
}
