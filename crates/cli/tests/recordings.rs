//! Recordings from the command line: what is recorded can be replayed, grouped, shown and compared, and what cannot is said.

mod common;

use std::path::Path;
use std::process::Command;

use common::Scratch;

/// Two pairs of processes that hand messages to each other, on two LLCs.
fn recorded() -> Scratch {
    let scratch = Scratch::new();
    let words = "sim -m 2s1n1l4c1t -w pingpong:-n2,-w40us,-l300 --scheduler eevdf --trace full --out run";
    scratch.run(words).exits_with(0);
    scratch
}

fn elapsed_ns(document: &str) -> f64 {
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    document["elapsed_ns"].as_f64().unwrap()
}

#[test]
fn a_replay_takes_the_time_that_was_recorded_and_less_on_a_machine_of_twice_the_speed() {
    let scratch = recorded();
    let said = scratch.run("replay run --out replay.json").exits_with(0);
    said.complains("100.0 % for a signal of a known thread");
    let json = |words: &str| elapsed_ns(&scratch.run(words).exits_with(0).out);
    let original = json("sim -m 2s1n1l4c1t -w pingpong:-n2,-w40us,-l300 --scheduler eevdf --json");
    let replayed = json("sim -m 2s1n1l4c1t -w replay.json --scheduler eevdf --json");
    assert!((replayed / original - 1.0).abs() < 0.05, "{replayed} ns, recorded {original} ns");
    // All four threads on one CPU: the waits follow, so it takes about as long as all their work.
    let alone = json("sim -m 1s1n1l1c1t -w replay.json --scheduler eevdf --json");
    assert!(alone > 1.6 * original, "{alone} ns on one CPU, recorded {original} ns");
    scratch.run("compare -m 2s1n1l4c1t -w replay.json -s cfs,eevdf --trials 2 --no-report").exits_with(0);
}

#[test]
fn groups_are_told_with_their_evidence_and_kept_in_a_workload() {
    let scratch = recorded();
    let told = scratch.run("group run --out groups.json").exits_with(0).out;
    assert!(told.starts_with("4 threads in 2 groups, 0 alone."), "{told}");
    for pair in ["ping-0, pong-0", "ping-1, pong-1"] {
        assert!(told.contains(pair), "{told}");
    }
    let predicted = scratch.run("group run -m 2s1n1l4c1t --trials 2 --json").exits_with(0).out;
    let document: serde_json::Value = serde_json::from_str(&predicted).unwrap();
    assert_eq!(document["groups"]["groups"].as_array().unwrap().len(), 2);
    let gains = document["gains"].as_array().unwrap();
    let spread = gains.iter().find(|gain| gain["placement"] == "spread" && gain["group"].is_null()).unwrap();
    assert!(spread["elapsed"]["ratio"].as_f64().unwrap() > 1.0, "pairs on two sockets are slower: {spread}");
    let kept = std::fs::read_to_string(scratch.path("groups.json")).unwrap();
    assert!(kept.contains("group-2") && !kept.contains("group-3"), "{kept}");
    scratch.run("sim -m 2s1n2l2c1t -w groups.json --scheduler cache-aware").exits_with(0);
}

#[test]
fn what_is_no_recording_is_an_error_that_says_what_to_do() {
    let scratch = recorded();
    scratch.write("text", "this is nothing\n");
    scratch.run("replay text").exits_with(2).complains("text");
    scratch.run("replay missing").exits_with(2).complains("check the path");
    scratch.run("group run --thread nobody").exits_with(2).complains("is called nobody; it has ping-0");
    scratch.run("group run -m 2s1n1l4c1t --profile none").exits_with(2).complains("no memory profile `none`");
    scratch.run("replay run --scheduler cfs").exits_with(2).complains("it has eevdf");
    scratch.run("report text --html page.html").exits_with(2);
}

#[test]
fn what_cannot_be_recorded_or_changed_is_said_before_anything_is_done() {
    let scratch = Scratch::new();
    scratch.run("record").exits_with(2).complains("nothing to record");
    scratch.run("record -- no-such-program").exits_with(2).complains("there is no program no-such-program");
    scratch.run("record --pid 2147483646").exits_with(2).complains("there is no process");
    let host = |words: &str| scratch.run(&format!("compare --on host --no-out {words}"));
    host("-s eevdf --cpus 9999 -- true").exits_with(2).complains("there is no CPU 9999 online");
    host("-s eevdf --set /etc/passwd=x -- true").exits_with(2).complains("is no setting of the kernel");
    host("-s eevdf,rr -- true").exits_with(2).complains("has no `rr`; there are");
    host("-s eevdf -- no-such-program").exits_with(2).complains("there is no program no-such-program");
    host("-s eevdf -m genoa96 -- true").exits_with(2).complains("is another machine than this computer");
    host("-s eevdf --metric regex:( -- true").exits_with(2).complains("is no regular expression");
    let plan = host("-s eevdf --dry-run --cpus 0 -- true").exits_with(0).out;
    assert!(plan.contains("eevdf @ cpus=0:\n  the command is bound to CPUs 0\n"), "{plan}");
    // Elsewhere a program is no workload, and there is no choice of CPUs.
    scratch.run("compare -m 1s1n1l2c1t -s eevdf --no-out -- true").exits_with(2).complains("run it with --on host");
    let elsewhere = scratch.run("compare -m 1s1n1l2c1t -s cfs,eevdf --cpus 0 -w spin:-n1,-d1ms --no-out");
    elsewhere.exits_with(2).complains("there is no choice of `cpus=0` here");
    scratch.run("compare -s eevdf --no-out -w spin:-n1,-d1ms").exits_with(2).complains("there is no machine");
    let survey = scratch.run("host doctor --json").exits_with(0).out;
    let survey: serde_json::Value = serde_json::from_str(&survey).unwrap();
    assert!(survey["interfaces"].as_array().unwrap().len() > 10);
}

/// Whether experiments can keep their journal.
fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

#[test]
fn a_command_on_this_computer_is_compared_in_blocks_with_the_baseline_against_itself() {
    let scratch = Scratch::new();
    if !is_root() {
        eprintln!("skipped: the journal of changes needs root");
        return;
    }
    let words = "compare --on host -s eevdf --cpus all --cpus 0 -n 2 --warm-up 0 --metric after:Time: --json --out run -- echo Time: 2.5";
    let document: serde_json::Value = serde_json::from_str(&scratch.run(words).exits_with(0).out).unwrap();
    assert_eq!((&document["experiment"]["design"], &document["primary"]), (&"blocked".into(), &"after:Time:".into()));
    let results = document["schedulers"].as_array().unwrap();
    let labels: Vec<&str> = results.iter().map(|result| result["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["eevdf", "eevdf @ cpus=0", "eevdf @ again"]);
    for result in results {
        assert_eq!(result["measures"]["after:Time:"]["points"], serde_json::json!([2.5, 2.5]));
        assert!(result["measures"]["others_cpus"]["points"][1].is_number(), "noise is told");
    }
    assert_eq!(results[2]["measures"]["elapsed_ns"]["finding"], "null");
    assert_eq!(std::fs::read_to_string(scratch.path("run/outputs/s1-t0001.txt")).unwrap(), "Time: 2.5\n");
    // What is missing is made when the run goes on, and nothing else.
    let kept = std::fs::read(scratch.path("run/trials/s0-t0000.json")).unwrap();
    std::fs::remove_file(scratch.path("run/trials/s1-t0001.json")).unwrap();
    scratch.run("compare --resume run").exits_with(0);
    assert_eq!(std::fs::read(scratch.path("run/trials/s0-t0000.json")).unwrap(), kept);
    assert!(scratch.path("run/trials/s1-t0001.json").is_file());
    scratch.run("compare --on host -s eevdf --no-out -n 1 --warm-up 0 -- false").exits_with(1).complains("exit code 1");
}

#[test]
fn a_workload_on_this_computer_runs_with_real_threads_and_tells_its_own_times() {
    let scratch = Scratch::new();
    if !is_root() {
        eprintln!("skipped: the journal of changes needs root");
        return;
    }
    let words = "compare --on host -s eevdf -n 1 --warm-up 0 --json --no-out -w hackbench:-T,-p,-f2,-g1,-l5";
    let document: serde_json::Value = serde_json::from_str(&scratch.run(words).exits_with(0).out).unwrap();
    assert_eq!(document["primary"], "hackbench_time_ns");
    assert!(document["schedulers"][0]["measures"]["hackbench_time_ns"]["points"][0].as_f64().unwrap() > 0.0);
}

/// Records on the kernel that runs the tests, where that can be done.
#[test]
fn a_command_is_recorded_with_all_its_processes() {
    let scratch = Scratch::new();
    if !is_root() || !Path::new("/sys/kernel/tracing").is_dir() {
        eprintln!("skipped: recording needs root and tracefs");
        return;
    }
    let script = "for k in 1 2 3; do sleep 0.02; echo x | cat >/dev/null; done";
    let output = scratch
        .command("record --json --out recorded --")
        .args(["sh", "-c", script])
        .output()
        .expect("the program can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(4) {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["exit_code"], 0);
    // The shell, and in each round a sleep, the one before the pipe and the one behind it.
    assert!(document["fidelity"]["threads"].as_u64().unwrap() >= 7, "{document}");
    assert!(document["fidelity"]["waits"].as_u64().unwrap() >= 3, "{document}");
    assert!(scratch.files("recorded").contains(&"recording.dat".to_owned()));
    assert!(scratch.files("recorded").contains(&"report.html".to_owned()));
    let threads = scratch.run("group recorded/recording.dat --json").exits_with(0).out;
    assert!(threads.contains("\"sleep\""), "the file names threads");
    scratch.run("events recorded").exits_with(0);
    scratch.run("replay recorded --out replay.json").exits_with(0);
    scratch.run("sim -m 1s1n1l2c1t -w replay.json --scheduler eevdf").exits_with(0);
}
