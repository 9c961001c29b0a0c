//! The pages of the fidelity book in the project are what the program makes of the book and of its stored results, and these agree with
//! the simulator.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Scratch;
use serde_json::Value;

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

/// Makes the pages, and returns the document of the same comparison.
fn made(scratch: &Scratch, names: &[String]) -> Value {
    let experiments: Vec<String> = names.iter().map(|name| format!("book/{name}")).collect();
    let words = format!("validate --stored --json --page docs/fidelity.md {}", experiments.join(" "));
    serde_json::from_str(&scratch.run(&words).exits_with(0).out).expect("a document")
}

/// Of all comparisons, or of those of one metric: how many are inside their bounds, and how many outside.
fn judged(document: &Value, metric: Option<&str>) -> (usize, usize) {
    let chapters = document["experiments"].as_array().expect("a list of experiments");
    let lines = chapters.iter().flat_map(|chapter| chapter["lines"].as_array().into_iter().flatten());
    let verdicts: Vec<&str> = lines
        .filter(|line| metric.is_none_or(|metric| line["metric"] == metric))
        .filter_map(|line| line["judgement"]["verdict"].as_str())
        .collect();
    let count = |wanted: &str| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    (count("inside"), count("outside"))
}

const HELP: &str = "renew the pages: warmcore validate --stored --page docs/fidelity.md book/*.toml";

#[test]
fn the_stored_pages_are_what_the_program_makes_of_the_stored_results_and_most_comparisons_are_inside() {
    let scratch = copy();
    let document = made(&scratch, &files("book", ".toml"));
    let (inside, outside) = judged(&document, None);
    assert!(inside >= 350, "{inside} inside, {outside} outside");
    assert!(inside * 100 >= (inside + outside) * 80, "{inside} inside, {outside} outside");
    let (inside, outside) = judged(&document, Some("gathered"));
    assert!(inside >= 8 && outside * 20 <= inside + outside, "placement decisions: {inside} inside, {outside} outside");
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
    let _ = made(&scratch, &names);
    let before = read();
    assert!(before[0].contains("| yield-two | "), "{}", before[0]);
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
    let _ = made(&scratch, &names);
    let after = read();
    for part in [
        "**What is seen.** ",
        "slice_mean_ns under eevdf: error 70",
        "**Why, as far as known.** The boots.",
        "**What would settle it.** Other boots.",
        "**Data.** ",
    ] {
        assert!(after[0].contains(part), "no {part} in {}", after[0]);
    }
    assert!(after[0].contains("| [yield-two](#yield-two) | ") && after[0].contains("`book/results/yield-two.json`"));
    assert_ne!(before[1], after[1]);
    assert_eq!(before[2], after[2], "chapters do not depend on each other");
}
