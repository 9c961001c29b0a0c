//! Experiments of the book under sched_ext programs: one whose program is not there is named and not run, and what operations call is the same in
//! both places by what is stored.

use std::fs;
use std::path::Path;

use crate::common::Scratch;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

const ABSENT: &str = r#"
schema = "warmcore-book-1"
title = "Two spinners under a program of nobody's"
group = "sched_ext programs"
machine = "1s1n1l1c1t"
workload = "spin:-n2"
schedulers = ["scx:scx_of_nobody --fast"]
duration_ms = 50

[[check]]
metric = "cpu_share"
relative = 0.02
"#;

#[test]
fn an_experiment_whose_program_is_not_there_is_named_and_not_run() {
    let scratch = Scratch::new();
    fs::write(scratch.path("absent.toml"), ABSENT).unwrap();
    // No guest is booted, and so none is asked for.
    let said = "absent: not run: scx_of_nobody is neither next to this program nor in PATH";
    let ran = scratch.run("validate --json absent.toml").exits_with(0).complains(said);
    let line = &json(&ran.out)["experiments"][0]["lines"][0];
    assert_eq!(line["judgement"]["verdict"], "not_measured");
    assert_eq!(line["judgement"]["reason"], "it was not run on a real kernel");
}

/// What each of these programs calls, stored of a guest and of the simulator.
#[test]
fn operations_call_the_same_sequences_in_a_kernel_and_here() {
    let scratch = Scratch::new();
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book");
    for program in ["fifo", "fifo-llc", "vtime", "bpfland"] {
        let experiment = book.join(format!("scx-{program}-calls.toml"));
        let ran = scratch.run(&format!("validate --stored --json {}", experiment.display())).exits_with(0);
        let document = json(&ran.out);
        let lines = document["experiments"][0]["lines"].as_array().unwrap();
        let line = lines.iter().find(|line| line["metric"] == "call_sequences").unwrap();
        assert_eq!(line["judgement"]["verdict"], "inside", "{program}: {}", line["judgement"]);
        let operations: Vec<&str> =
            line["judgement"]["pairs"].as_array().unwrap().iter().filter_map(|pair| pair["label"].as_str()).collect();
        assert!(["select_cpu", "enqueue", "dispatch"].iter().all(|name| operations.contains(name)), "{operations:?}");
    }
}
