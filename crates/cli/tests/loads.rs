//! `compare --load`: the same comparison at several loads of the machine.

use std::fs;

use crate::common::Scratch;
use serde_json::Value;

/// Tasks that keep a CPU busy for a quarter of the time each, on 8 CPUs.
const QUARTERS: &str = "compare -m 1s1n2l4c1t -w periodic:-n3,-r500us,-s1500us,-o,-d100ms -s eevdf,rr --trials 2";

#[test]
fn every_level_has_its_line_its_table_its_verdict_and_its_run_directory() {
    let scratch = Scratch::new();
    let ran = scratch.run(&format!("{QUARTERS} --load 25,75,25,25.01 --out runs --keep run")).exits_with(0);
    assert_eq!(ran.error.matches("two loads are 25 %; the first is compared").count(), 1, "{}", ran.error);
    let lines: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("load ")).collect();
    assert_eq!(lines.len(), 2, "{}", ran.out);
    assert!(
        lines[0].starts_with("load 25 %: 8 tasks; 25 %") || lines[0].starts_with("load 25 %: 8 tasks; 24."),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains(" tasks; 7") && lines[1].contains("busy under eevdf (periodic:-n2"), "{}", lines[1]);
    assert_eq!(
        ran.out.lines().filter(|line| line.starts_with("scheduler ")).count(),
        2,
        "a table for each: {}",
        ran.out
    );
    for level in ["25", "75"] {
        assert!(scratch.path(&format!("runs/load-{level}/verdict.json")).exists());
    }
    // What the line says can be run by itself.
    let text = lines[1].rsplit_once('(').unwrap().1.trim_end_matches(')').to_owned();
    let alone = format!("compare -m 1s1n2l4c1t -w {text} -s eevdf,rr --trials 2 --keep nothing");
    assert!(ran.out.ends_with(&scratch.run(&alone).exits_with(0).out), "the same table");
}

#[test]
fn levels_go_on_in_their_directory_and_nothing_edited_is_taken_over() {
    let scratch = Scratch::new();
    let words = format!("{QUARTERS} --load 25,75 --out runs --keep run");
    let first = scratch.run(&words).exits_with(0).out;
    let is_trial = |name: &String| name.contains("/trials/") && name.ends_with(".json");
    let trials: Vec<String> = scratch.files("runs").into_iter().filter(is_trial).collect();
    assert_eq!(trials.len(), 8, "{trials:?}");
    let path = |trial: &String| scratch.path("runs").join(trial);
    fs::remove_file(path(&trials[0])).unwrap();
    let written = |trial: &String| fs::metadata(path(trial)).unwrap().modified().unwrap();
    let before = written(&trials[1]);
    assert_eq!(scratch.run(&words).exits_with(0).out, first);
    assert!(path(&trials[0]).is_file() && written(&trials[1]) == before, "only what was lost is run again");
    let text = fs::read_to_string(path(&trials[1])).unwrap();
    fs::write(path(&trials[1]), text.replace("\"events_lost\":0", "\"events_lost\":9")).unwrap();
    scratch.run(&words).exits_with(2).complains("does not match its checksum");
    assert_eq!(scratch.run(&format!("{words} --force")).exits_with(0).out, first);
    scratch.write("runs/notes", "");
    let refused = scratch.run(&words).exits_with(2).complains("holds something else");
    assert!(!refused.error.contains("looking for"), "nothing runs before that: {}", refused.error);
}

#[test]
fn the_utilisation_is_the_one_that_was_asked_for_and_that_the_trials_show() {
    let scratch = Scratch::new();
    let json = scratch.run(&format!("{QUARTERS} --load 25,75 --keep nothing --json")).exits_with(0).out;
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&document["scaled"], &document["baseline"]), (&"tasks".into(), &"eevdf".into()));
    for (level, asked) in document["levels"].as_array().unwrap().iter().zip([0.25, 0.75]) {
        let measured = level["utilisation"].as_f64().unwrap();
        assert!((measured - asked).abs() < 0.02, "{measured} for {asked}");
        let busy = level["comparison"]["schedulers"][0]["measures"]["busy_share"]["points"][0].as_f64().unwrap();
        assert!((measured - busy).abs() < 0.02, "{measured} where the trial says {busy}");
    }
    let again = scratch.run(&format!("{QUARTERS} --load 25,75 --keep nothing --json --jobs 1")).exits_with(0).out;
    assert_eq!(json, again, "equal input, equal bytes");
}

#[test]
fn several_generators_grow_in_the_proportion_in_which_they_were_typed() {
    let scratch = Scratch::new();
    let words =
        "compare -m 1s1n2l4c1t -w periodic:-n4,-r500us,-s1500us,-o,-d100ms+spin:-n1,-d100ms -s eevdf,rr --trials 2";
    let ran = scratch.run(&format!("{words} --load 50 --keep nothing")).exits_with(0);
    // Four quarters and one whole are 2 of 8 CPUs; twice of each are 4.
    let line = ran.out.lines().next().unwrap_or_default();
    assert!(line.contains("% of the numbers that were typed; ") && line.contains("(periodic:-n8,"), "{line}");
    assert!(line.contains("+spin:-n2,-d100ms)"), "{line}");
}

#[test]
fn a_files_tasks_are_as_many_as_the_load_needs_and_the_text_runs_by_itself() {
    let scratch = Scratch::new();
    let text = r#"{ "tasks": { "quarter": { "instance": 2, "loop": 50, "run": 500, "timer": { "ref": "unique", "period": 2000 } },
                               "eighth": { "loop": 50, "run": 250, "timer": { "ref": "unique", "period": 2000 } } } }"#;
    scratch.write("mine.json", text);
    let words = "compare -m 1s1n2l4c1t -s eevdf,rr --trials 2 --keep nothing --json";
    let json = scratch.run(&format!("{words} -w mine.json --load 30,60")).exits_with(0).out;
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["scaled"], "% of the file's instances");
    // Two quarters and an eighth are 5/64 of eight CPUs: 60 % are 7.7 times as many.
    for (level, (load, instances)) in document["levels"].as_array().unwrap().iter().zip([(0.3, 8..=9), (0.6, 15..=17)])
    {
        let measured = level["utilisation"].as_f64().unwrap();
        assert!((measured - load).abs() < 0.03, "{measured} for {load}");
        let text = level["workload"].as_str().unwrap();
        assert!(text.starts_with("mine.json@") && text.ends_with('%'), "{text}");
        let shown: Value =
            serde_json::from_str(&scratch.run(&format!("workload show {text} --json")).exits_with(0).out).unwrap();
        let quarter = shown["tasks"][0]["instances"].as_u64().unwrap();
        assert!(instances.contains(&quarter), "{quarter} for {load}");
        let alone: Value = serde_json::from_str(&scratch.run(&format!("{words} -w {text}")).exits_with(0).out).unwrap();
        assert_eq!(alone["schedulers"], level["comparison"]["schedulers"]);
    }
}

/// Tasks that never sleep keep one CPU of eight busy each.
#[test]
fn a_load_that_is_missed_by_more_than_a_tenth_is_told_and_one_that_is_missed_by_half_is_refused() {
    let scratch = Scratch::new();
    let at = |load: &str| {
        let words = "compare -m 1s1n2l4c1t -w spin:-n1,-d20ms -s eevdf,rr --trials 1 --keep nothing --load";
        scratch.run(&format!("{words} {load}"))
    };
    at("31").exits_with(0).complains("no number makes a load of 31 %: the closest found, 2 ");
    assert!(!at("26").exits_with(0).error.contains("no number makes"), "a twenty-fifth is near");
    at("8").exits_with(2).complains("the least there can be");
}

#[test]
fn what_cannot_be_scaled_or_reached_is_refused_with_what_can() {
    let scratch = Scratch::new();
    let refused = |workload: &str, load: &str, words: &str| {
        scratch
            .run(&format!("compare -m 1s1n2l4c1t -w {workload} -s eevdf,rr --trials 1 --load {load}"))
            .exits_with(2)
            .complains(words);
    };
    refused("hackbench:-T", "50", "schbench: requests per second (--rps) or workers");
    refused("spin:-n1,-d20ms+spin:-d20ms", "50", "does not say its number");
    refused("ule-cfs/c-ray", "50", "depends on others by a semaphore");
    refused("none.json", "50", "cannot read workload file none.json");
    refused("spin:-p0,-d20ms", "50", "more do not make it 50.0 %");
    refused("spin:-d20ms", "1", "too much for 1.0 %");
    refused("spin:-d20ms", "0", "above 0 and up to 100");
    refused("spin:-q", "50", "unknown flag");
    assert!(!scratch.path("runs").exists(), "nothing was made");
}
