//! The pages of the fidelity book in the project are what the program makes of the book and of its stored results.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Scratch;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files of a directory of the project by the end of their names, sorted.
fn files(directory: &str, suffix: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = names.filter(|name| name.ends_with(suffix)).collect();
    found.sort();
    found
}

/// A copy of the book with its results, without its pages.
fn copy() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("book/results")).unwrap();
    fs::create_dir(scratch.path("docs")).unwrap();
    for (directory, suffix) in [("book", ".toml"), ("book/results", ".json")] {
        for name in files(directory, suffix) {
            fs::copy(root().join(directory).join(&name), scratch.path(directory).join(&name)).unwrap();
        }
    }
    scratch
}

fn made(scratch: &Scratch, names: &[String]) {
    let experiments: Vec<String> = names.iter().map(|name| format!("book/{name}")).collect();
    scratch
        .run(&format!("validate --between sim,vm --stored --page docs/fidelity.md {}", experiments.join(" ")))
        .exits_with(0);
}

const HELP: &str = "renew the pages: warmcore validate --between sim,vm --stored --page docs/fidelity.md book/*.toml";

#[test]
fn the_stored_pages_are_what_the_program_makes_of_the_stored_results() {
    let scratch = copy();
    made(&scratch, &files("book", ".toml"));
    let chapters = files("book", ".toml").into_iter().map(|name| name.replace(".toml", ".md")).collect::<Vec<_>>();
    assert_eq!(files("book/pages", ""), chapters, "one page for each experiment; {HELP}");
    let pages = chapters.iter().map(|name| format!("book/pages/{name}")).chain(["docs/fidelity.md".to_owned()]);
    let differing: Vec<String> =
        pages.filter(|page| fs::read(root().join(page)).ok() != Some(fs::read(scratch.path(page)).unwrap())).collect();
    assert!(differing.is_empty(), "{differing:?} are not what the program makes; {HELP}");
    let summary = fs::read_to_string(scratch.path("docs/fidelity.md")).unwrap();
    assert!(!summary.contains("** Not known.\n"), "an outlier has no [outside] in its experiment's file");
}

#[test]
fn another_result_of_the_kernel_makes_another_chapter_and_another_summary() {
    let scratch = copy();
    let names = ["yield-two.toml".to_owned(), "policy-idle.toml".to_owned()];
    let pages = ["docs/fidelity.md", "book/pages/yield-two.md", "book/pages/policy-idle.md"];
    let read = || pages.map(|page| fs::read_to_string(scratch.path(page)).unwrap());
    made(&scratch, &names);
    let before = read();
    assert!(before[0].contains("(../book/pages/yield-two.md)"), "{}", before[0]);
    assert!(!before[0].contains("## What is outside"), "{}", before[0]);
    // In all boots the tasks run three times as long at a time.
    let path = scratch.path("book/results/yield-two.json");
    let mut result: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for boot in result["boots"].as_array_mut().unwrap() {
        boot[0]["metrics"]["slice_mean_ns"]["values"][0][1] = 1_000_000.into();
    }
    fs::write(&path, result.to_string()).unwrap();
    let path = scratch.path("book/yield-two.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "\n[outside]\nwhy = \"The boots.\"\nsettle = \"Other boots.\"\n").unwrap();
    made(&scratch, &names);
    let after = read();
    for part in [
        "**What is seen.** ",
        "slice_mean_ns under eevdf: error 66",
        "**Why, as far as known.** The boots.",
        "**What would settle it.** Other boots.",
        "**Data.** ",
    ] {
        assert!(after[0].contains(part), "no {part} in {}", after[0]);
    }
    assert!(after[0].contains("(../book/results/yield-two.json)"));
    assert_ne!(before[1], after[1]);
    assert_eq!(before[2], after[2], "chapters do not depend on each other");
}
