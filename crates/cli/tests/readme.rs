//! What `README.md` and the guide to adding a scheduler show the program print is what it prints.

mod common;

use common::Scratch;

/// The commands of the page that are shown with their output, and that output.
fn samples(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("    $ warmcore ") else { continue };
        let mut output = String::new();
        while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with("    ")) {
            output.push_str(line.strip_prefix("    ").unwrap_or_default());
            output.push('\n');
        }
        found.push((command.to_owned(), output));
    }
    found
}

/// Runs a page's samples; `about` begins the command of one that must be there.
fn check(page: &str, about: &str) {
    let samples = samples(page);
    assert!(samples.iter().any(|(command, _)| command.starts_with(about)), "`{about}` is shown");
    let scratch = Scratch::new();
    for (command, output) in samples {
        let printed = scratch.run(&command).exits_with(0).out;
        assert_eq!(output.trim_end(), printed.trim_end(), "warmcore {command}");
    }
}

#[test]
fn the_readme_s_sample_output_is_what_the_program_prints() {
    check(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")), "compare ");
}

#[test]
fn the_worked_example_of_a_scheduler_prints_what_its_page_shows() {
    check(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/adding-a-scheduler.md")), "compare ");
}

#[test]
fn the_citation_file_names_this_version() {
    let citation = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../CITATION.cff"));
    let version = citation.lines().find_map(|line| line.strip_prefix("version: "));
    assert_eq!(version, Some(env!("CARGO_PKG_VERSION")));
}
