//! What `README.md` and the guide to adding a scheduler show the program print is what it prints.

use crate::common::{Scratch, expect_file, print_what_the_page_shows, samples};

/// Runs a page's samples; `about` begins the command of one that must be there.
fn check(page: &str, about: &str) -> Scratch {
    assert!(samples(page).iter().any(|(command, _)| command.starts_with(about)), "`{about}` is shown");
    let scratch = Scratch::new();
    print_what_the_page_shows(&scratch, page);
    scratch
}

#[test]
fn the_readme_s_sample_output_is_what_the_program_prints_and_its_picture_is_drawn_of_that_run() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let read = |name: &str| std::fs::read_to_string(format!("{root}{name}")).expect("a file of the project");
    let page = read("README.md");
    assert!(page.contains("(docs/first-verdict.svg)"), "it is shown");
    let scratch = check(&page, "compare ");
    let mut runs = std::fs::read_dir(scratch.path("runs")).expect("kept where the page says");
    let run = runs.next().expect("a run").unwrap().path();
    assert!(runs.next().is_none(), "one sample is a comparison");
    scratch.run(&format!("report {} --figure ratio:640px --svg drawn.svg", run.display())).exits_with(0);
    let drawn = std::fs::read_to_string(scratch.path("drawn.svg")).expect("it was drawn");
    expect_file("docs/first-verdict.svg", &drawn);
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

#[test]
fn the_readme_has_at_most_60_lines() {
    let lines = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).lines().count();
    assert!(lines <= 60, "{lines} lines");
}

#[test]
fn the_manual_lists_every_page() {
    let docs = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).expect("a table of contents");
    for directory in ["", "how-to", "models", "reference", "sources", "spec", "tutorials"] {
        for entry in std::fs::read_dir(docs.join(directory)).expect("a directory of pages") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(docs).expect("it is in there").display().to_string();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                assert!(summary.contains(&format!("]({name})")), "docs/SUMMARY.md lacks {name}");
            }
        }
    }
}
