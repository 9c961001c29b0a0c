//! A real kernel, booted: the simulator against fresh and stored results of the fidelity book, and faults of a guest.
//!
//! Where there is no QEMU or no kernel can be had, these tests say so past the test runner's capture and do nothing.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn warmcore(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warmcore")).args(arguments).output().expect("the program runs")
}

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book")
}

fn experiment(name: &str) -> String {
    book().join(format!("{name}.toml")).display().to_string()
}

/// Whether a guest can be booted here; fetches a kernel if there is none.
fn can_boot(test: &str) -> bool {
    let ready = |output: &Output| output.status.success();
    if ready(&warmcore(&["vm", "doctor"])) {
        return true;
    }
    let fetched = warmcore(&["vm", "kernels", "--fetch"]);
    if ready(&fetched) {
        return true;
    }
    // Not through the macros, whose output the test runner keeps to itself.
    let reason = String::from_utf8_lossy(&fetched.stderr).into_owned();
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {test}: no guest can be booted here:\n{reason}");
    false
}

/// What the judge says of one boot beside seeds that disagree.
const BY_CHANCE: &str = "runs spread too much to say";

/// Experiment, metric, and verdict or, where that is `not_measured`, its reason.
fn comparisons(document: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |chapter: &Value| {
        let name = text(&chapter["name"]);
        let lines = chapter["lines"].as_array().cloned().unwrap_or_default();
        let said = |line: &Value| match text(&line["judgement"]["verdict"]) {
            verdict if verdict == "not_measured" => text(&line["judgement"]["reason"]),
            verdict => verdict,
        };
        lines.into_iter().map(move |line| (name.clone(), text(&line["metric"]), said(&line)))
    };
    document["experiments"].as_array().expect("a list of experiments").iter().flat_map(of).collect()
}

#[test]
fn a_real_kernel_on_16_cpus_4_llcs_and_2_nodes_agrees_with_the_simulator() {
    if !can_boot("a_real_kernel_on_16_cpus_4_llcs_and_2_nodes_agrees_with_the_simulator") {
        return;
    }
    let names = ["fork-eight-two-nodes", "cas-two-nodes", "release-two-nodes"].map(experiment);
    let boot = |boots: &str, names: &[String]| {
        let mut arguments = vec!["validate", "--virtual-time=1", "--boots", boots, "--json"];
        arguments.extend(names.iter().map(String::as_str));
        let output = warmcore(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        (comparisons(&serde_json::from_slice(&output.stdout).unwrap()), errors)
    };
    // A boot can start tasks elsewhere than the others do: the median of three is judged where an answer is demanded.
    let (mut found, mut errors) = boot("3", &names[..1]);
    let (others, more_errors) = boot("1", &names[1..]);
    found.extend(others);
    errors.push_str(&more_errors);
    // What stored boots of the same kernel decided differently, one more boot cannot judge; the book says so.
    let stored = warmcore(&["validate", "--stored", "--json", &names[0], &names[1], &names[2]]);
    let stored = comparisons(&serde_json::from_slice(&stored.stdout).unwrap());
    let unsettled = |name: &str, metric: &str| {
        let found = stored.iter().find(|(other, of, _)| other == name && of == metric);
        found.is_none_or(|(_, _, verdict)| !["inside", "outside"].contains(&verdict.as_str()))
    };
    let mut exact = 0;
    for (name, metric, verdict) in &found {
        assert!(["inside", "outside", BY_CHANCE].contains(&verdict.as_str()), "{name} {metric}: {verdict}: {errors}");
        // Where eight tasks start was the same in every stored boot. Whether three gather differs between boots, and how
        // long balancing takes depends on the emulator too: one boot shows that these are measured, the book judges them.
        if name == "fork-eight-two-nodes" && !unsettled(name, metric) {
            assert_eq!(verdict, "inside", "{name} {metric}");
            exact += 1;
        }
    }
    let judged: std::collections::BTreeSet<_> = found.iter().map(|(name, _, _)| name).collect();
    assert!(judged.len() == 3 && exact >= 3, "{found:?}");
}

/// Tasks are bound to where others are and to one CPU, and a slice changes: what both places must show then is in the experiment.
#[test]
fn what_is_done_from_outside_is_done_by_a_guest_as_by_the_simulator() {
    if !can_boot("what_is_done_from_outside_is_done_by_a_guest_as_by_the_simulator") {
        return;
    }
    let experiment = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/actions.toml").display().to_string();
    let output = warmcore(&["validate", "--virtual-time=1", "--boots", "1", "--json", &experiment]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let found = comparisons(&serde_json::from_slice(&output.stdout).unwrap());
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.iter().all(|(_, _, verdict)| verdict == "inside"), "{found:?}");
}

#[test]
fn the_simulator_agrees_with_the_stored_results_of_a_real_kernel() {
    let mut files: Vec<String> = std::fs::read_dir(book())
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .filter(|path| path.ends_with(".toml"))
        .collect();
    files.sort();
    assert!(files.len() >= 24, "the book has {} experiments", files.len());
    let mut arguments = vec!["validate", "--stored", "--json"];
    arguments.extend(files.iter().map(String::as_str));
    let output = warmcore(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = comparisons(&serde_json::from_slice(&output.stdout).unwrap());
    let count = |wanted: &str| found.iter().filter(|(_, _, verdict)| verdict == wanted).count();
    let (inside, outside) = (count("inside"), count("outside"));
    assert!(inside + outside >= 50, "{inside} inside, {outside} outside");
    assert!(inside * 100 >= (inside + outside) * 80, "{inside} inside, {outside} outside: {found:?}");
    let decisions: Vec<_> = found.iter().filter(|(_, metric, _)| metric == "gathered").collect();
    assert!(decisions.len() >= 8);
    let wrong: Vec<_> = decisions.iter().filter(|(_, _, verdict)| verdict == "outside").collect();
    assert!(wrong.len() * 20 <= decisions.len(), "placement decisions differ: {wrong:?}");
}

#[test]
fn a_guest_that_panics_is_reported_with_its_last_lines() {
    if !can_boot("a_guest_that_panics_is_reported_with_its_last_lines") {
        return;
    }
    let output = warmcore(&["vm", "boot", "--real-time", "--machine", "1s1n1l1c1t", "--fault", "panic"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("the guest died"), "{message}");
    assert!(message.contains("sysrq"), "{message}");
}

#[test]
fn a_guest_compares_schedulers_on_one_socket_and_on_two_and_is_as_before() {
    if !can_boot("a guest as a computer to characterise") {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let words = "vm exec -m 2s1n1l1c1t --out OUT -- warmcore compare --on host -s eevdf,cache-aware --cpus all --cpus one-socket \
                 --set-cpus partition --trace counters --virtual-llcs 1 -n 1 --warm-up 0 --no-report -o run -w hackbench:-T,-p,-f1,-g1,-l20";
    let out_path = out.path().display().to_string();
    let words: Vec<&str> =
        words.split_whitespace().map(|word| if word == "OUT" { out_path.as_str() } else { word }).collect();
    let output = warmcore(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let verdict = std::fs::read(out.path().join("run/verdict.json")).unwrap();
    let verdict: Value = serde_json::from_slice(&verdict).unwrap();
    let results = verdict["schedulers"].as_array().unwrap();
    let labels: Vec<&str> = results.iter().map(|result| result["label"].as_str().unwrap()).collect();
    let expected =
        ["eevdf", "eevdf @ cpus=one-socket", "cache-aware", "cache-aware @ cpus=one-socket", "eevdf @ again"];
    assert_eq!(labels, expected);
    for result in results {
        let point = |name: &str| result["measures"][name]["points"][0].as_f64().unwrap();
        assert!(point("hackbench_time_ns") > 0.0);
        // One CPU leaves nowhere to move to.
        assert!(point("migrations_ran") == 0.0 || !result["label"].as_str().unwrap().contains("one-socket"));
    }
    let trial = |position: usize| {
        let path = out.path().join(format!("run/host/s{position}-t0000.json"));
        serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap()
    };
    let enabled = |position: usize| trial(position)["settings"][0][1].as_str().unwrap().to_owned();
    assert_eq!((enabled(0), enabled(2)), ("0".to_owned(), "1".to_owned()), "cache-aware scheduling off and on");
}
