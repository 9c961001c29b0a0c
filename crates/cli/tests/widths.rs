//! Lines are as short as the terminal: listings, help, what the common commands print and what they warn of.

use crate::common::{MACHINE, Scratch, WORKLOAD};

/// Fails on a line that is wider; commands that are to be typed stay in one piece.
fn check(scratch: &Scratch, words: &str, columns: usize) {
    let output = scratch.command(words).env("COLUMNS", columns.to_string()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    for stream in [output.stdout, output.stderr] {
        let text = String::from_utf8(stream).unwrap();
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > columns).collect();
        assert!(wide.is_empty(), "at {columns} columns `{words}` prints\n{}", wide.join("\n"));
    }
}

#[test]
fn listings_and_help_are_as_narrow_as_the_terminal() {
    let scratch = Scratch::new();
    let listings =
        ["machines", "workloads", "schedulers", "metrics", "profiles", "studies"].map(|of| format!("list {of}"));
    let shown =
        ["machine show genoa96", "machine show hygon384", "workload show lesson/three-tasks", "scheduler eevdf"];
    let helps = ["compare", "sim", "sweep", "report", "explain", "replay"].map(|of| format!("{of} --help"));
    for words in listings.into_iter().chain(shown.map(str::to_owned)).chain(helps) {
        [80, 120].into_iter().for_each(|columns| check(&scratch, &words, columns));
    }
}

#[test]
fn the_common_commands_are_as_narrow_as_the_terminal() {
    let scratch = Scratch::new();
    for columns in [80, 120] {
        let run = format!("run{columns}");
        let schedulers = "eevdf,eevdf:base_slice_ns=20000000,rr";
        check(&scratch, &format!("compare -m {MACHINE} -w {WORKLOAD} -s {schedulers} -n 2 --out {run}"), columns);
        let detailed = format!("compare -m {MACHINE} -w {WORKLOAD} -s {schedulers},cache-aware -n 2 -v --keep nothing");
        check(&scratch, &detailed, columns);
        for words in ["explain", "explain --events", "report --markdown new.md", "replay --out new.json", "group"] {
            let (verb, options) = words.split_once(' ').unwrap_or((words, ""));
            check(&scratch, &format!("{verb} {run} {options} --force"), columns);
        }
        check(&scratch, &format!("sim -m {MACHINE} -w schbench:-m1,-t2,-r1 -s rr"), columns);
    }
}
