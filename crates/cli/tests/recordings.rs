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
    scratch.run("host compare --cpus 9999 -- true").exits_with(2).complains("there is no CPU 9999 online");
    scratch.run("host compare --set /etc/passwd=x -- true").exits_with(2).complains("is no setting of the kernel");
    scratch.run("host compare -s ule -- true").exits_with(2).complains("is none of eevdf");
    scratch.run("host compare --schedulers eevdf,rr -- true").exits_with(2).complains("`rr` is none of eevdf");
    scratch.run("host compare --dry-run --cpus 0 -- true").exits_with(0);
    let survey = scratch.run("host doctor --json").exits_with(0).out;
    let survey: serde_json::Value = serde_json::from_str(&survey).unwrap();
    assert!(survey["interfaces"].as_array().unwrap().len() > 10);
}

/// Records on the kernel that runs the tests, where that can be done.
#[test]
fn a_command_is_recorded_with_all_its_processes() {
    let scratch = Scratch::new();
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    if !root || !Path::new("/sys/kernel/tracing").is_dir() {
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
