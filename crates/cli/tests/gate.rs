//! A study with a baseline: an unchanged scheduler differs in nothing, a worse one makes the exit code 3, a better one does not, and a
//! baseline of something else is refused. `examples/ci` is such a study with its script.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Ran, Scratch};

/// Tasks that wake often beside busy ones, on two CPUs, under one scheduler.
fn study(scheduler: &str, trials: u32) -> String {
    format!(
        r#"schema = "warmcore-study-form-1"
title = "Gate"
question = "Is it worse?"
source = "Itself."
[baseline]
file = "baseline.json"
margin = 0.02
[[cell]]
name = "wakeups"
machine = "1s1n1l2c1t"
workload = "spin:-n{{n}},-d300ms+periodic:-n2,-r300us,-s3ms,-d300ms,-j10"
schedulers = ["{scheduler}"]
trials = {trials}
[[vary]]
name = "n"
values = [4, 6]
[[expect]]
name = "p99 beside {{n}}"
each = ["n"]
figure = "wakeup_p99_ns[wakeups] / 1000"
better = "lower"
"#
    )
}

/// A scratch directory with a baseline under `eevdf`.
fn with_baseline(trials: u32) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("gate.toml", &study("eevdf", trials));
    let ran = scratch.run("study run gate.toml --out kept").exits_with(3);
    ran.complains("There is no baseline baseline.json yet");
    fs::rename(scratch.path("kept/study.json"), scratch.path("baseline.json")).unwrap();
    scratch
}

/// The verdicts of a study with another scheduler.
fn verdicts(scratch: &Scratch, text: &str, code: i32) -> Vec<String> {
    scratch.write("gate.toml", text);
    let ran = scratch.run("study run gate.toml --json").exits_with(code);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let expectations = document["studies"][0]["expectations"].as_array().unwrap().iter();
    expectations.map(|of| of["against"]["finding"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_unchanged_scheduler_is_identical_a_worse_one_fails_and_a_better_one_does_not() {
    let scratch = with_baseline(12);
    assert_eq!(verdicts(&scratch, &study("eevdf", 12), 0), ["identical", "identical"]);
    assert_eq!(verdicts(&scratch, &study("eevdf:base_slice_ns=20ms", 12), 3), ["worse", "worse"]);
    let better = study("eevdf:base_slice_ns=500us", 12);
    let found = verdicts(&scratch, &better, 0);
    assert!(found.contains(&"better".to_owned()) && !found.contains(&"worse".to_owned()), "{found:?}");
    // What is better is worse the other way round.
    scratch.write("gate.toml", &better.replace("\"lower\"", "\"higher\""));
    scratch.run("study run gate.toml").exits_with(3).complains("worse, ratio 0.");
    scratch.write("gate.toml", &better.replace("\"lower\"", "\"neither\""));
    scratch.run("study run gate.toml").exits_with(3).complains("different, ratio 0.");
    // A part of the figures is compared with the same baseline.
    scratch.write("gate.toml", &study("eevdf", 12));
    let part = scratch.run("study run gate.toml --only 4").exits_with(0).out;
    assert!(part.contains("1 figure against the baseline baseline.json: 1 identical."), "{part}");
}

/// In turns of 10 s the spinners that come first keep both CPUs: all that never ran again are in no latency.
#[test]
fn what_leaves_tasks_waiting_for_ever_is_not_better() {
    let scratch = with_baseline(12);
    let starving = study("fifo:slice_ns=10s", 12);
    assert_eq!(verdicts(&scratch, &starving, 3), ["starves", "starves"]);
    let ran = scratch.run("study run gate.toml --out kept").exits_with(3);
    ran.complains("p99 beside 4: starves, ratio 0.")
        .complains("4 tasks of a cell never ran again in the middle trial")
        .complains("is a percentile of 3 events in a trial, fewer than 100");
    let document = fs::read_to_string(scratch.path("kept/study.json")).unwrap();
    assert_eq!(document.matches("\"never_ran_again\": ").count(), 2, "6 of the other, and none of the baseline");
    // Against itself it is the same.
    fs::rename(scratch.path("kept/study.json"), scratch.path("baseline.json")).unwrap();
    assert_eq!(verdicts(&scratch, &starving, 0), ["identical", "identical"]);
}

/// A third of a hundredth of the weight has a turn after a second; who waits for that is not starved, who waits as long with all of it is.
#[test]
fn a_light_task_that_waits_as_long_as_its_weight_says_is_not_starved() {
    let scratch = Scratch::new();
    let hogs = |policy: &str| {
        format!(
            r#"{{ "global": {{ "duration": 2 }}, "tasks": {{ "hi": {{ "instance": 2, "loop": -1, "run": 20000 }},
            "lo": {{ "instance": 2, "loop": -1, "policy": "{policy}", "run": 20000 }} }} }}"#
        )
    };
    let compared = |policy: &str, other: &str| {
        scratch.write("hogs.json", &hogs(policy));
        scratch
            .run(&format!("compare -m 1s1n1l2c1t -w hogs.json -s eevdf,{other} -n 8 --warm-up 667ms --keep nothing"))
            .exits_with(0)
    };
    let idle = compared("SCHED_IDLE", "cfs").complains("never ran again, which no latency shows");
    assert!(!idle.out.contains("starves"), "{}", idle.out);
    assert!(compared("SCHED_OTHER", "fifo:slice_ns=10s").out.contains("fifo:slice_ns=10000000000 starves tasks"));
}

#[test]
fn a_difference_inside_the_margin_does_not_count() {
    let scratch = with_baseline(12);
    let longer = study("eevdf:base_slice_ns=1500us", 12);
    let strict = verdicts(&scratch, &longer, 3);
    assert!(strict.contains(&"worse".to_owned()), "{strict:?}");
    let wide = longer.replace("better = \"lower\"", "better = \"lower\"\nmargin = 0.5");
    let found = verdicts(&scratch, &wide, 0);
    assert!(!found.contains(&"worse".to_owned()), "{found:?}");
}

#[test]
fn what_cannot_be_compared_counts_and_says_why() {
    let scratch = with_baseline(3);
    assert_eq!(verdicts(&scratch, &study("eevdf", 3), 0), ["identical", "identical"]);
    scratch.write("gate.toml", &study("eevdf:base_slice_ns=20ms", 3));
    scratch.run("study run gate.toml").exits_with(3).complains("3 trials are too few to judge");
    scratch.write("gate.toml", &study("scx:no_such_program", 3));
    let ran = scratch.run("study run gate.toml").exits_with(3);
    ran.complains("not measurable: here the program no_such_program is not on this computer");
}

#[test]
fn the_table_has_a_row_for_each_figure_and_marks_those_that_count() {
    let scratch = with_baseline(12);
    scratch.write("gate.toml", &study("eevdf:base_slice_ns=20ms", 12));
    scratch.run("study run gate.toml --page table.md --out kept").exits_with(3);
    let page = fs::read_to_string(scratch.path("table.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| p99 beside")).collect();
    assert_eq!(rows.len(), 2, "{page}");
    assert!(rows.iter().all(|row| row.ends_with("| 2 % | **worse** |")), "{page}");
    // The result says the same as the run did.
    let shown = scratch.run("study show kept/study.json").exits_with(0).out;
    assert!(shown.contains("2 figures against the baseline baseline.json: 2 worse."), "{shown}");
    let plan = scratch.run("study show gate.toml").exits_with(0).out;
    assert!(plan.contains("within 2 % of the baseline"), "{plan}");
}

#[test]
fn a_baseline_of_something_else_is_refused_by_name_before_anything_runs() {
    let scratch = with_baseline(3);
    let (good, baseline) = (study("eevdf", 3), fs::read_to_string(scratch.path("baseline.json")).unwrap());
    let version = format!("\"tool_version\": \"{}\"", env!("CARGO_PKG_VERSION"));
    for (from, to, words) in [
        ("{", "", "gate.toml:6:8: the baseline baseline.json: it is not a result of a study: "),
        ("warmcore-study-1", "warmcore-comparison-2", "its schema is `warmcore-comparison-2`; this version reads"),
        (version.as_str(), "\"tool_version\": \"0.0.9\"", "version 0.0.9 made it, and this is"),
        ("\"name\": \"gate\"", "\"name\": \"other\"", "it is of `other`, and this study is `gate`"),
        ("\"name\": \"p99 beside 4\"", "\"name\": \"p98\"", "it lacks the figure `p99 beside 4`"),
    ] {
        assert!(baseline.contains(from), "{from}");
        scratch.write("baseline.json", &baseline.replacen(from, to, 1));
        scratch.run("study run gate.toml").exits_with(2).complains(words);
    }
    scratch.write("baseline.json", &baseline);
    for (from, to, words) in [
        ("[4, 6]", "[4, 6, 8]", "it lacks the cell `wakeups, n=8`"),
        ("[4, 6]", "[4]", "its cell `wakeups, n=6` does not belong to the study"),
        ("1s1n1l2c1t", "1s1n1l3c1t", "its cell `wakeups, n=4` ran something else"),
        ("trials = 3", "trials = 3\nseed = 2", "its cell `wakeups, n=4` ran something else"),
        ("trials = 3", "trials = 5", "its cell `wakeups, n=4` has 3 trials, and the study's has 5"),
        ("-r300us", "-r301us", "its cell `wakeups, n=4` ran something else"),
        ("wakeup_p99_ns[wakeups] / 1000", "wakeup_p99_ns[wakeups]", "its `p99 beside 4` is `("),
    ] {
        assert!(good.contains(from), "{from}");
        scratch.write("gate.toml", &good.replace(from, to));
        scratch.run("study run gate.toml").exits_with(2).complains(words);
    }
    fs::remove_file(scratch.path("baseline.json")).unwrap();
    fs::create_dir(scratch.path("baseline.json")).unwrap();
    scratch.write("gate.toml", &good);
    scratch.run("study run gate.toml").exits_with(2).complains("the baseline baseline.json: it cannot be read");
}

#[test]
fn bad_margins_and_directions_are_told_with_their_place() {
    let scratch = Scratch::new();
    let good = study("eevdf", 3);
    for (from, to, words) in [
        ("margin = 0.02", "margin = -0.02", "gate.toml:7:10: `margin` is a fraction of 0 to 0.5"),
        ("margin = 0.02", "margin = 2.0", "not 2"),
        ("margin = 0.02", "margin = nan", "not NaN"),
        ("file = \"baseline.json\"", "", "missing field `file`"),
        ("margin = 0.02", "margins = 0.02", "did you mean `margin`?"),
        ("\"lower\"", "\"lowest\"", "unknown variant `lowest`"),
        ("better = \"lower\"\n", "band = [2, 9]\nreason = \"so\"\n", "no [[expect]] says what is `better`"),
        ("better = \"lower\"\n", "", "there is no `band` for `p99 beside 4`"),
        ("[baseline]\nfile = \"baseline.json\"\nmargin = 0.02\n", "", "are about a [baseline], and the study has none"),
    ] {
        assert!(good.contains(from), "{from}");
        scratch.write("gate.toml", &good.replace(from, to));
        scratch.run("study run --dry-run gate.toml").exits_with(2).complains(words);
    }
}

/// The script of `examples/ci` in a scratch copy of it, on some of its figures.
struct Example(Scratch);

impl Example {
    fn new() -> Self {
        let scratch = Scratch::new();
        for file in ["gate.sh", "gate.toml"] {
            let text = fs::read_to_string(root().join("examples/ci").join(file)).unwrap();
            scratch.write(file, &text);
        }
        Self(scratch)
    }

    fn run(&self, only: &str, words: &[&str]) -> Ran {
        let mut command = Command::new("sh");
        command.arg("gate.sh").args(words).current_dir(self.0.path(""));
        command.env("WARMCORE", env!("CARGO_BIN_EXE_warmcore")).env("GATE_ONLY", only);
        let output: Output = command.output().expect("a shell can be started");
        Ran::new("gate.sh", output)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_script_compares_with_the_baseline_that_it_made_and_prints_what_its_page_shows() {
    const ONLY: &str = "messages through pipes on i7-3770";
    let example = Example::new();
    example.run(ONLY, &["eevdf"]).exits_with(2).complains("gate.sh --update makes it");
    example.run(ONLY, &["--update", "scx:no_such_program"]).exits_with(3).complains("make no baseline");
    example.run(ONLY, &["--update", "eevdf"]).exits_with(0);
    let same = example.run(ONLY, &[]).exits_with(0).out;
    assert!(same.contains("1 figure against the baseline baseline.json: 1 identical."), "{same}");
    let worse = example.run(ONLY, &["eevdf:base_slice_ns=300us"]).exits_with(3).out;
    let page = fs::read_to_string(root().join("docs/ci.md")).unwrap();
    let (_, sample) = page.split_once("The last one prints\n\n").unwrap();
    let sample = sample.split("\n## A baseline").next().unwrap();
    let sample: Vec<&str> = sample.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    assert_eq!(sample.join("\n").trim(), worse.trim());
    example.run(ONLY, &["one", "two"]).exits_with(2).complains("one scheduler, in quotes");
    example.run("nothing of this name", &["eevdf"]).exits_with(2).complains("nothing is expected under a name");
    assert!(example.run(ONLY, &["--help"]).exits_with(0).out.contains("gate.sh --update [SCHEDULER]"));
}

#[test]
fn the_example_is_four_workloads_on_six_machines() {
    let example = Example::new();
    let plan = example.0.run("study run --dry-run gate.toml --json").exits_with(0).out;
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["studies"][0]["cells"], 24);
    assert_eq!(plan["studies"][0]["expectations"].as_array().unwrap().len(), 24);
}
