//! Streams and signals: results on standard output alone, a closed pipe is quiet, a full disk is not, Ctrl-C leaves what
//! had finished.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{MACHINE, Scratch, WORKLOAD};
use warmcore_testing::skip;

#[test]
fn results_go_to_standard_output_and_everything_else_to_standard_error() {
    let scratch = Scratch::new();
    let ran = scratch.run(&format!("sim -m {MACHINE} -w {WORKLOAD} -s eevdf")).exits_with(0);
    assert!(ran.out.starts_with("Running in threaded mode with 2 groups using 4 file descriptors each (== 8 tasks)\n"));
    assert!(ran.out.contains("\nTime: 0.0"), "{}", ran.out);
    let ran = ran.complains("simulated numbers");
    assert!(!ran.out.contains("simulated numbers"));
}

#[test]
fn quiet_leaves_results_and_warnings() {
    let scratch = Scratch::new();
    let ran = scratch.run(&format!("--quiet sim -m {MACHINE} -w {WORKLOAD} -s eevdf")).exits_with(0);
    assert_eq!(ran.error, "");
    scratch.run(&format!("-q sim -m {MACHINE} -w schbench:-m1,-t2,-r1 -s rr")).exits_with(0).complains("warning:");
}

#[test]
fn piped_output_has_neither_lines_nor_colours_unless_asked_for() {
    let scratch = Scratch::new();
    let words = format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,rr --keep nothing");
    let ran = scratch.run(&words).exits_with(0);
    assert!(!ran.out.contains(['\u{1b}', '─', '│']) && !ran.error.contains('\u{1b}'), "{}", ran.out);
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
    let failed = scratch.command("sim -m nothing -w x -s y --color always").output().unwrap();
    assert!(String::from_utf8_lossy(&failed.stderr).contains('\u{1b}'));
    let plain = scratch.command("sim -m nothing -w x -s y").env("NO_COLOR", "1").output().unwrap();
    assert!(!String::from_utf8_lossy(&plain.stderr).contains('\u{1b}'));
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    let scratch = Scratch::new();
    let mut child = scratch
        .command("machine show syn1024 --toml")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!((child.wait().unwrap().code(), error.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_under_standard_output_is_an_error() {
    let scratch = Scratch::new();
    let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has /dev/full");
    let output = scratch.command("list machines").stdout(full).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write to standard output") && !error.contains("panicked"), "{error}");
}

/// Needs root, to mount a file system of 64 KiB.
#[test]
fn a_full_disk_under_the_run_directory_is_an_error_that_says_so() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("small")).unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(scratch.path("small"))
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        skip!("no right to mount a small file system");
    }
    let words = format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs,rr --trials 40 --out small/run");
    let ran = scratch.run(&words);
    let finished = scratch.files("small/run/trials");
    let unmounted = std::process::Command::new("umount").arg(scratch.path("small")).status();
    assert!(unmounted.is_ok_and(|status| status.success()), "the small file system is unmounted");
    let ran = ran.did_not_panic().exits_with(1).complains("No space left").complains("small/run");
    assert!(ran.error.contains("--resume"), "{}", ran.error);
    assert!(finished.iter().all(|name| !name.ends_with(".partial")), "{finished:?}");
}

#[test]
fn control_c_leaves_finished_trials_and_exits_with_130() {
    interrupted("INT", 130);
}

#[test]
fn termination_leaves_finished_trials_and_exits_with_143() {
    interrupted("TERM", 143);
}

/// The search is in the Python package, another process. An interpreter that works on, and then says so, stands for it.
#[test]
fn a_search_in_the_python_package_is_ended_at_the_first_signal() {
    let scratch = Scratch::new();
    scratch.write("python3", "#!/bin/sh\ntouch begun\nsleep 20\ntouch ended\n");
    fs::set_permissions(scratch.path("python3"), fs::Permissions::from_mode(0o755)).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tune/slices.toml");
    let path = format!("{}:{}", scratch.path("").display(), std::env::var("PATH").unwrap());
    let mut command = scratch.command("tune");
    let mut child = command.arg(example).env("PATH", path).stderr(Stdio::null()).spawn().unwrap();
    while !scratch.path("begun").exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = std::process::Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!scratch.path("ended").exists(), "it waited for the search's end");
}

/// Starts a long comparison, waits for its first trial, sends the signal, and continues the run.
fn interrupted(signal: &str, code: i32) {
    let scratch = Scratch::new();
    let words =
        format!("compare -m {MACHINE} -w hackbench:-T,-p,-f2,-g2,-l200 -s cfs,rr --trials 2000 --jobs 1 --out run");
    let mut child = scratch.command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let trials = scratch.path("run/trials");
    let is_trial = |name: &str| name.ends_with(".json");
    let finished = || {
        let names = fs::read_dir(&trials).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| is_trial(&name.to_string_lossy())).count()
    };
    let start = Instant::now();
    while finished() == 0 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let kill = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(code), "{error}");
    assert!(error.contains("of 4000 trials had finished") && error.contains("--resume"), "{error}");
    let left: Vec<String> = scratch.files("run/trials").into_iter().filter(|name| is_trial(name)).collect();
    assert!(!left.is_empty() && left.len() < 4000, "{} trials", left.len());
    for name in left {
        let text = fs::read_to_string(trials.join(&name)).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn metrics_are_listed_with_what_they_mean_and_are_those_that_verdicts_take() {
    let scratch = Scratch::new();
    let listed = scratch.run("list metrics schbench:-m1,-t2,-r1").exits_with(0).out;
    for name in ["wakeup_p99_ns", "cpu_share_deviation", "recorder_wakeup"] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
    let words =
        "compare -m 1s1n1l1c1t -w spin:-n2,-d20ms -s cfs,eevdf --trials 1 --keep nothing --metric cpu_share_deviation";
    scratch.run(words).exits_with(0);
    assert!(scratch.run("list metrics").exits_with(0).out.contains("cpu_share_deviation"));
}
