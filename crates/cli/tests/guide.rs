//! The commands of `docs/guide.md` run as they stand there, and leave the files that it names.

use crate::common::Scratch;

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
    let (_, block) = page.split_once("For a wakeup, `explain` shows the rule").unwrap();
    let lines = block.lines().skip_while(|line| !line.starts_with("    "));
    let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    let scratch = Scratch::new();
    let commands = lines.iter().filter_map(|line| line.strip_prefix("warmcore "));
    let printed: String = commands.map(|command| scratch.run(command).exits_with(0).out).collect();
    let sentence: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("#   ")).collect();
    assert!(!sentence.is_empty() && printed.contains(&sentence.join(" ")), "{printed}");
}

/// The verdict of a column, and between what its ratio lies.
type Answer = (&'static str, [f64; 2]);

/// Comparisons of the guide and their answers, for each column but the first.
const ANSWERS: [(&str, &[Answer]); 7] = [
    ("--profile=mine --profiles mine.toml", &[("tied", [0.99, 1.01])]),
    // The public report says 0.75 to 0.84 for one chiplet against both; siblings are idle either way.
    ("-w service.json", &[("better", [0.75, 0.9]), ("tied", [0.99, 1.01])]),
    ("eevdf@pin=oracle", &[("better", [0.8, 0.99]), ("better", [0.4, 0.6]), ("better", [0.4, 0.6])]),
    ("eevdf@workload=forkjoin:-n4", &[("better", [0.85, 0.99])]),
    ("eevdf@machine=turin128", &[("tied", [0.99, 1.01])]),
    ("-w verilator:-t8,-C2000", &[("better", [0.5, 0.9]), ("better", [0.45, 0.6])]),
    ("--sensitivity=neighbours", &[("better", [0.5, 0.6])]),
];

/// What other tests ask, with the file of the test, or what is not on every computer.
const ELSEWHERE: [&str; 8] = [
    "hackbench:-T,-p,-f2,-g2,-l20 -s cfs,eevdf,rr --sensitivity", // sensitivity.rs
    "--load 30,60,90",                                            // loads.rs
    "record -o app",                                              // users.rs
    "--on vm",                                                    // real_kernel.rs
    "--machine genoa96 --workload schbench",                      // a sched_ext program: scx_bad_input.rs
    "--out unpin",                                                // the figures above
    "--out core",
    "--out share",
];

#[test]
fn the_guide_s_comparisons_have_these_answers() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md"));
    let scratch = Scratch::new();
    let study = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/answers/two-ccds.toml"));
    let service = study.split("\'\'\'").nth(1).unwrap().replace(r#", "cpus": [{cpus}]"#, "");
    scratch.write("service.json", &service);
    let points = "[[point]]\ncapacity = \"48KiB\"\nways = 12\nmpki = 25.0\n[[point]]\ncapacity = \"2MiB\"\nways = 16\nmpki = 6.1\n";
    scratch.write("counters.toml", &format!("name = \"mine\"\n{points}"));
    scratch.run("workload fit counters.toml --out mine.toml").exits_with(0);
    let mut asked = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("    warmcore ")) {
        let command = line.split(" #").next().unwrap_or(line).trim();
        if !command.contains("compare") || ELSEWHERE.iter().any(|other| command.contains(other)) {
            continue;
        }
        let answer = ANSWERS.iter().find(|(words, _)| command.contains(words));
        let (_, columns) = answer.unwrap_or_else(|| panic!("the guide's `{command}` has no answer here"));
        let ran = scratch.run(&format!("{command} --keep nothing --json")).exits_with(0);
        let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let primary = document["primary"].as_str().unwrap();
        for (index, (finding, [low, high])) in columns.iter().enumerate() {
            let result = &document["schedulers"][index + 1]["measures"][primary];
            let ratio = result["comparison"]["ratio"].as_f64().unwrap();
            assert_eq!(result["finding"], *finding, "{command}: {ratio}");
            assert!((*low..=*high).contains(&ratio), "{command}: {finding} {ratio}");
        }
        asked += 1;
    }
    assert_eq!(asked, ANSWERS.len(), "an answer of a command that the guide has not any more");
}
