//! Papers as studies: a paper is one file, its rows are judged one by one, its figures are drawn again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::Scratch;
use serde_json::Value;

/// A paper that nobody wrote: spinners share a CPU, for each number of them what was measured. No line of Rust knows it.
fn paper(band_of_four: &str) -> String {
    format!(
        r#"schema = "warmcore-study-form-1"
title = "Shares of a CPU"
question = "What part of a CPU has one of several equal spinners?"
source = "Nobody, 2026."

[[vary]]
name = "spinners"
values = [
    {{ spinners = 2, published = 0.5, band = [0.49, 0.51] }},
    {{ spinners = 4, published = 0.25, band = {band_of_four}, reason = "a quarter" }},
]

[[cell]]
name = "one CPU"
machine = "1s1n1l1c1t"
workload = "spin:-n{{spinners}},-d80ms"
schedulers = ["rr"]
trials = 2

[[expect]]
name = "part of one of {{spinners}}"
each = ["spinners"]
figure = "cpu_time_ns[one CPU, task=spin-0] / cpu_time_ns[one CPU]"
reason = "equal parts"
"#
    )
}

#[test]
fn a_paper_is_one_file_and_a_wrong_band_in_it_is_caught() {
    let scratch = Scratch::new();
    scratch.write("all.toml", &paper("[0.24, 0.26]").replace("task=spin-0", "task=spin"));
    scratch.write("paper.toml", &paper("[0.24, 0.26]"));
    scratch.write("wrong.toml", &paper("[0.3, 0.4]"));
    scratch.write("typing.toml", &paper("[0.24, 0.26]").replace("each =", "eahc ="));
    let values = |text: &str| -> Vec<f64> {
        let document: Value = serde_json::from_str(text).unwrap();
        let rows = document["studies"][0]["expectations"].as_array().unwrap().clone();
        rows.iter().map(|row| row["value"].as_f64().unwrap()).collect()
    };
    let right = scratch.run("study run paper.toml --json").exits_with(0);
    let [half, quarter] = values(&right.out)[..] else { panic!("{}", right.out) };
    assert!((half - 0.5).abs() < 0.01 && (quarter - 0.25).abs() < 0.01, "{half} {quarter}");
    let ran = scratch.run("study run paper.toml --only of_four --json").exits_with(2);
    ran.complains("nothing is expected under a name that contains `of_four`").complains("part of one of 4");
    let wrong = scratch.run("study run wrong.toml --json").exits_with(3);
    let wrong = wrong.complains("1 not as the files say: wrong: part of one of 4: ");
    assert_eq!(values(&wrong.out).len(), 2);
    scratch
        .run("study run typing.toml")
        .exits_with(2)
        .complains("typing.toml:22:1: there is no key `eahc`")
        .complains("did you mean `each`?");
    // All of its spinners have all of the CPU.
    assert_eq!(values(&scratch.run("study run all.toml --json").exits_with(3).out), [1.0; 2]);
}

#[test]
fn a_paper_is_what_its_file_says_and_what_cannot_be_simulated_is_shown_and_not_scored() {
    let scratch = Scratch::new();
    let ran = scratch.run("study run papers/characterisation --trials 1").exits_with(0);
    for words in ["not answerable here", "not expressible", "a frequency governor"] {
        assert!(ran.out.contains(words), "{words}\n{}", ran.out);
    }
}

#[test]
fn figures_of_a_source_are_drawn_from_the_runs_of_what_was_asked_for() {
    let scratch = Scratch::new();
    scratch.run("study run papers/ule-cfs --only c-ray: --trials 1 --out kept").exits_with(0);
    let page = fs::read_to_string(scratch.path("kept/figures-ule-cfs.html")).unwrap();
    assert!(page.contains("Figure 7a: c-ray under ULE") && page.contains("Published:") && !page.contains("Figure 1a"));
    let files = scratch.files("kept");
    for name in ["figures/figure-7a.svg", "figures/figure-7a.csv", "figures/figure-7b.svg"] {
        assert!(files.iter().any(|file| file == name), "{name}: {files:?}");
    }
}

/// Spinners that are set free: one row asked for needs one cell.
#[test]
fn a_row_is_simulated_alone() {
    let scratch = Scratch::new();
    let ran = scratch.run("study run papers/ule-cfs --only left --trials 1 --json --out kept").exits_with(0);
    let document: Value = serde_json::from_str(&ran.out).expect("one document");
    let study = &document["studies"][0];
    assert_eq!((study["expectations"].as_array().unwrap().len(), study["cells"].as_array().unwrap().len()), (1, 1));
    assert_eq!(study["expectations"][0]["judgement"], "right", "380 of 512 leave core 0 within a fifth of a second");
}

#[test]
fn judgements_are_repeated_with_assumed_costs_changed() {
    let scratch = Scratch::new();
    let figure = "cpu_time_ns[one CPU, task=spin-0] / cpu_time_ns[one CPU]";
    let text = paper("[0.5, 1]").replace("[0.49, 0.51]", "[0.5, 1]");
    let text = text.replace(figure, "work_ns[one CPU] / elapsed_ns[one CPU]");
    scratch.write("paper.toml", &text);
    let ran = scratch.run("study run paper.toml --sensitivity=0.7,1.3 --json --out kept").exits_with(0);
    let document: Value = serde_json::from_str(&ran.out).expect("one document");
    assert_eq!(fs::read_to_string(scratch.path("kept/sensitivity.json")).unwrap(), ran.out);
    let changes = document["changes"].as_array().expect("changes");
    assert!(changes.len() >= 20 && changes.iter().any(|of| of["change"] == "context switch x 1.3"), "{}", ran.out);
    assert!(changes.iter().all(|of| of["values"].as_array().map(Vec::len) == Some(2)));
    let switch = changes.iter().find(|of| of["change"] == "context switch x 1.3").unwrap();
    assert_ne!(switch["values"], document["values"], "there is less work when switches cost more");
    assert!(scratch.files("kept").iter().any(|file| file.starts_with("change-01/experiments/")));
    // The same by hand, as an axis.
    let axis = "\n[[vary]]\nname = \"cost\"\nvalues = [\"\", \"context switch x 1.3\"]\n";
    let text = text.replace("trials = 2", "trials = 2\nassumed = \"{cost}\"").replace(
        "name = \"part of one of {spinners}\"\neach = [\"spinners\"]",
        "name = \"{spinners}, {cost}\"\neach = [\"spinners\", \"cost\"]",
    );
    scratch.write("axis.toml", &format!("{text}{axis}"));
    let ran = scratch.run("study run axis.toml --json").exits_with(0);
    let by_hand: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(by_hand["studies"][0]["expectations"][3]["value"], switch["values"][1], "{}", ran.out);
    scratch.write("axis.toml", &format!("{text}{}", axis.replace("switch x", "swich x")));
    scratch.run("study run --dry-run axis.toml").exits_with(2).complains("did you mean `context switch`?");
}

/// The page has a row for each of the 37 applications of the ULE paper, and the study what stands for it.
#[test]
fn the_page_and_the_study_have_the_same_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/reproductions.md")).unwrap();
    let study = fs::read_to_string(root.join("studies/papers/ule-cfs.toml")).unwrap();
    let (_, section) = page.split_once("#### The 37 applications").expect("the section is there");
    let rows: Vec<Vec<&str>> = section
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 37);
    let of_page = |column: usize| -> BTreeSet<&str> {
        rows.iter().filter_map(|row| row[column].strip_prefix('`')?.strip_suffix('`')).collect()
    };
    let of_study = |key: &str| -> BTreeSet<&str> {
        study.split(&format!(" {key} = \"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    };
    assert_eq!((of_page(1), of_page(2)), (of_study("of"), of_study("parallel")));
    let single = rows.iter().filter(|row| row[1] == "one thread").count();
    let means = format!(
        "* {single} + sum_over(single, (speed[one core, by=ULE] / speed[one core, by=CFS] - 1) * 100)) / {}",
        single + 10
    );
    assert!(study.contains(&means), "{means}");
}
