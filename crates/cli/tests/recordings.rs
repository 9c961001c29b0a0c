//! Recordings from the command line: what is recorded can be replayed, grouped, shown and compared, and what cannot is said.

use std::process::Command;

use crate::common::{Scratch, alone, can_record, is_root};
use warmcore_testing::skip;

/// Two pairs of processes that hand messages to each other, on two LLCs.
pub(crate) fn recorded() -> Scratch {
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
    scratch.run("compare -m 2s1n1l4c1t -w replay.json -s cfs,eevdf --trials 2 --keep run").exits_with(0);
}

#[test]
fn what_runs_at_the_end_of_a_run_is_replayed_and_what_never_ran_is_left_out() {
    let scratch = Scratch::new();
    scratch.run("sim -m 1s1n1l8c1t -w spin:-n8,-d50ms --scheduler eevdf --trace full --out run").exits_with(0);
    scratch.run("replay run --out replay.json").exits_with(0).complains("8 threads, 100.0 % of the CPU time");
    let took = elapsed_ns(&scratch.run("sim -m 1s1n1l8c1t -w replay.json --scheduler eevdf --json").exits_with(0).out);
    assert!(
        (took / 50e6 - 1.0).abs() < 0.02,
        "each spins for 50 ms, and nothing happens in the last 49 of them: {took} ns"
    );
    let switch = |who: &str, at: &str, prev: &str, next: &str| {
        format!(
            "{who} [000] d..2. {at}: sched_switch: prev_comm={prev} prev_prio=120 prev_state=S ==> next_comm={next} next_prio=120\n"
        )
    };
    let text = switch("a-101", "1.000000", "a prev_pid=101", "b next_pid=102")
        + &switch("b-102", "1.010000", "b prev_pid=102", "swapper/0 next_pid=0");
    scratch.write("never-ran.txt", &format!("# tracer: nop\n#\n{text}"));
    scratch.run("replay never-ran.txt --out ran.json").exits_with(0).complains("1 threads did nothing");
    let took = elapsed_ns(&scratch.run("sim -m 1s1n1l2c1t -w ran.json --scheduler eevdf --json").exits_with(0).out);
    assert!((took / 10e6 - 1.0).abs() < 0.01, "{took} ns");
}

#[test]
fn one_disk_wait_does_not_hold_a_replay_to_the_recorded_time() {
    let scratch = Scratch::new();
    // Two threads of 100 ms of work each take turns on one CPU; one waits for a disk near the end.
    let mut text = String::from("# tracer: nop\n#\n");
    let threads = [("a", 501), ("b", 502)];
    let mut line = |at_us: u64, by: &str, flags: &str, event: &str| {
        text.push_str(&format!("{by} [000] {flags} {}.{:06}: {event}\n", at_us / 1_000_000, at_us % 1_000_000));
    };
    let switch = |from: (&str, i32), state: &str, to: (&str, i32)| {
        format!(
            "sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={state} ==> next_comm={} next_pid={} next_prio=120",
            from.0, from.1, to.0, to.1
        )
    };
    for turn in 0..50 {
        let (from, to) = (threads[turn % 2], threads[(turn + 1) % 2]);
        line(1_000_000 + 4_000 * turn as u64, &format!("{}-{}", from.0, from.1), "d..2.", &switch(from, "R", to));
    }
    line(1_198_000, "a-501", "d..2.", &switch(threads[0], "D", threads[1]));
    line(1_198_250, "b-502", "d.h2.", "sched_waking: comm=a pid=501 prio=120 target_cpu=000");
    line(1_200_000, "b-502", "d..2.", &switch(threads[1], "S", threads[0]));
    line(1_202_000, "a-501", "d..2.", &switch(threads[0], "S", ("swapper/0", 0)));
    scratch.write("disk.txt", &text);
    scratch.run("replay disk.txt --out disk.json").exits_with(0);
    let took = elapsed_ns(&scratch.run("sim -m 1s1n1l2c1t -w disk.json --scheduler eevdf --json").exits_with(0).out);
    assert!((took / 101e6 - 1.0).abs() < 0.05, "each has a CPU of its own: {took} ns");
}

/// Every list of measured times in a workload file, in order.
fn measured_times(document: &serde_json::Value, found: &mut Vec<Vec<f64>>) {
    match document {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                match value.as_array().filter(|_| key == "values_ns") {
                    Some(times) => found.push(times.iter().map(|time| time.as_f64().unwrap()).collect()),
                    None => measured_times(value, found),
                }
            }
        }
        serde_json::Value::Array(array) => array.iter().for_each(|value| measured_times(value, found)),
        _ => {}
    }
}

/// Some 15,000 turns with sleeps of an exponential distribution (quantiles ln 2 and ln 100 times its mean) and work of a log-normal one, whose two
/// parameters are its quantiles. A sleep is longer than it was asked for by the timer's slack, 50 us of 5 ms.
#[test]
fn a_recording_drawn_from_has_the_distributions_that_were_recorded() {
    let scratch = Scratch::new();
    let program = r#"{ "loop": -1, "steps": [ { "sleep_ns": { "exponential": { "mean_ns": 5000000 } } },
        { "run_ns": { "log_normal": { "median_ns": 200000, "p99_ns": 1000000 } } } ] }"#;
    scratch.write(
        "service.json",
        &format!(
            r#"{{ "tasks": {{ "client": {{ "instance": 0 }} }}, "global": {{ "duration": 10 }},
                "warmcore": {{ "tasks": {{ "client": {{ "instances": 8, "program": [ {program} ] }} }} }} }}"#
        ),
    );
    scratch.run("sim -m 1s1n1l8c1t -w service.json --scheduler eevdf --trace full --out run").exits_with(0);
    let said = scratch.run("replay run --drawn --out roles.json").exits_with(0);
    said.complains("1 roles of 8 threads draw their work and their sleeps from 1");
    let text = std::fs::read_to_string(scratch.path("roles.json")).unwrap();
    let mut times = Vec::new();
    measured_times(&serde_json::from_str(&text).unwrap(), &mut times);
    let [work, sleep] = &times[..] else { panic!("{} distributions", times.len()) };
    assert_eq!((work.len(), sleep.len()), (1000, 1000));
    for (name, times, median_ns, p99_ns) in [("work", work, 200e3, 1e6), ("sleep", sleep, 3.466e6, 23.03e6)] {
        for (quantile, wanted) in [(500, median_ns), (990, p99_ns)] {
            let found = times[quantile];
            assert!(
                (found / wanted - 1.0).abs() < 0.05,
                "{name}: {found} ns at {quantile} of 1000, drawn from {wanted}"
            );
        }
    }
    let json = |words: &str| elapsed_ns(&scratch.run(words).exits_with(0).out);
    let lasts_ns = json("sim -m 1s1n1l8c1t -w roles.json --scheduler eevdf --json");
    assert!((lasts_ns / 10e9 - 1.0).abs() < 0.001, "{lasts_ns} ns, as long as the recording");
    scratch.run("compare -m 1s1n1l8c1t -w roles.json -s cfs,eevdf --trials 2 --keep run").exits_with(0);
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

/// A recording in which each thread wakes the next one of its pair, `pairs` of one process.
fn pairs_of_one_process(pairs: i32) -> String {
    let mut text = String::from("# tracer: nop\n#\n");
    let mut at_us = 1_000_000;
    let mut line = |cpu: i32, by: String, event: String| {
        at_us += 1;
        text.push_str(&format!(
            "{by} ( 700) [{cpu:03}] d..2. {}.{:06}: {event}\n",
            at_us / 1_000_000,
            at_us % 1_000_000
        ));
    };
    for round in 0..100 {
        for pair in 0..pairs {
            let (mut from, mut to) = (701 + 2 * pair, 702 + 2 * pair);
            if round % 2 == 1 {
                std::mem::swap(&mut from, &mut to);
            }
            line(pair, format!("t-{from}"), format!("sched_waking: comm=t pid={to} prio=120 target_cpu={pair:03}"));
            line(pair, format!("t-{from}"), format!("sched_wakeup: comm=t pid={to} prio=120 target_cpu={pair:03}"));
            let switch = format!(
                "prev_comm=t prev_pid={from} prev_prio=120 prev_state=S ==> next_comm=t next_pid={to} next_prio=120"
            );
            line(pair, format!("t-{from}"), format!("sched_switch: {switch}"));
        }
    }
    text
}

#[test]
fn advice_binds_the_groups_of_one_process_by_thread_and_says_what_gathering_the_process_would_do() {
    let scratch = Scratch::new();
    scratch.write("pairs.txt", &pairs_of_one_process(2));
    let told = scratch.run("group pairs.txt -m 1s1n2l4c1t --trials 1").exits_with(0).out;
    assert!(told.starts_with("4 threads in 2 groups"), "{told}");
    for command in [
        "for t in 701 702; do taskset -p --cpu-list 0-3 $t; done",
        "for t in 703 704; do taskset -p --cpu-list 4-7 $t; done",
        "prctl(82, 1, 701, 0, 0); for t in 702: prctl(82, 2, t, 701, 0)    group 1",
        "prctl(82, 1, 703, 0, 0); for t in 704: prctl(82, 2, t, 703, 0)    group 2",
        "schedqos",
    ] {
        assert!(told.contains(command), "{told}");
    }
    assert!(told.contains("would mix them on one LLC"), "{told}");
    let told = scratch.run("group pairs.txt -m 1s1n1l8c1t --trials 1").exits_with(0).out;
    assert!(told.contains("All CPUs of 1s1n1l8c1t share one LLC: there is nothing to choose"), "{told}");
    assert!(!told.contains("taskset") && !told.contains("mix them"), "{told}");
    let without: String = pairs_of_one_process(2)
        .lines()
        .filter(|line| !line.contains("waking"))
        .map(|line| format!("{line}\n"))
        .collect();
    scratch.write("without.txt", &without);
    let told = scratch.run("group without.txt").exits_with(0).out;
    assert!(told.contains("This recording does not show") && !told.contains("No threads belong together"), "{told}");
}

#[test]
fn what_is_no_recording_is_an_error_that_says_what_to_do() {
    let scratch = recorded();
    scratch.write("text", "this is nothing\n");
    scratch.run("replay text").exits_with(2).complains("text");
    scratch.run("replay missing").exits_with(2).complains("check the path");
    scratch.run("group run --only thread:nobody").exits_with(2).complains("is called nobody; it has ping-0");
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
    let host =
        |settings: &str, words: &str| scratch.run(&format!("compare --on host{settings} --keep nothing {words}"));
    host(":cpus=9999", "-s eevdf -- true").exits_with(2).complains("there is no CPU 9999 online");
    host(":set=/etc/passwd=x", "-s eevdf -- true").exits_with(2).complains("is not a setting of the kernel");
    host("", "-s eevdf,rr -- true").exits_with(2).complains("has no `rr`; there are");
    host("", "-s eevdf -- no-such-program").exits_with(2).complains("there is no program no-such-program");
    host("", "-s eevdf -m genoa96 -- true").exits_with(2).complains("is another machine than this computer");
    host("", "-s eevdf --metric regex:( -- true").exits_with(2).complains("is not a regular expression");
    let plan = host(":cpus=0,dry-run", "-s eevdf -- true").exits_with(0).out;
    assert!(plan.contains("eevdf @ cpus=0:\n  the command is bound to CPUs 0\n"), "{plan}");
    let plan = host(":dry-run", "-s eevdf,eevdf@set=/proc/sys/vm/swappiness=10 -- true").exits_with(0).out;
    let (_, own) = plan.split_once("eevdf @ set=/proc/sys/vm/swappiness=10:\n").unwrap_or_else(|| panic!("{plan}"));
    assert!(own.contains("/proc/sys/vm/swappiness becomes 10"), "{plan}");
    // The simulator has tunables for some files, and says which.
    for (file, tunable) in [("base_slice_ns=3000000", "base_slice_ns=3000000"), ("features=NO_HRTICK", "hrtick=0")] {
        scratch
            .run(&format!("compare -m 1s1n1l2c1t -w spin:-n1,-d1ms --keep nothing -s eevdf,eevdf@set=/sys/kernel/debug/sched/{file}"))
            .exits_with(2)
            .complains(&format!("in the simulator that is `eevdf:{tunable}`"));
    }
    // Elsewhere a program is no workload, and there is no governor.
    scratch
        .run("compare -m 1s1n1l2c1t -s eevdf --keep nothing -- true")
        .exits_with(2)
        .complains("run it with --on host");
    let mut elsewhere = scratch.command("compare -m 1s1n1l2c1t -w spin:-n1,-d1ms --keep nothing -s cfs -s");
    let elsewhere = elsewhere.arg("eevdf @ governor=performance").output().unwrap();
    let words = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert!(
        elsewhere.status.code() == Some(2) && words.contains("there is no choice of `governor=performance` here"),
        "{words}"
    );
    scratch.run("compare -s eevdf --keep nothing -w spin:-n1,-d1ms").exits_with(2).complains("there is no machine");
    let survey = scratch.run("doctor host --json").exits_with(0).out;
    let survey: serde_json::Value = serde_json::from_str(&survey).unwrap();
    assert!(survey["interfaces"].as_array().unwrap().len() > 10);
}

#[test]
fn a_command_on_this_computer_is_compared_in_blocks_with_the_baseline_against_itself() {
    let scratch = Scratch::new();
    skip!(unless is_root());
    let _alone = alone();
    let words = "compare --on host:cpus=all,cpus=0,warm-up-rounds=0 -s eevdf -n 2 --metric after:Time: --json --out run -- echo Time: 2.5";
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
    // Another command is another column.
    let words = "compare --on host:warm-up-rounds=0 -s eevdf -n 1 --metric after:Time: --json --keep nothing -- echo Time: 2 --vs echo Time: 3";
    let document: serde_json::Value = serde_json::from_str(&scratch.run(words).exits_with(0).out).unwrap();
    assert_eq!(document["schedulers"][1]["label"], "eevdf @ -- echo Time: 3");
    let ratio = document["schedulers"][1]["measures"]["after:Time:"]["comparison"]["ratio"].as_f64().unwrap();
    assert!((ratio - 1.5).abs() < 1e-9, "{ratio}");
    scratch
        .run("compare --on host:warm-up-rounds=0 -s eevdf --keep nothing -n 1 -- true --vs there-is-no-such-program")
        .exits_with(2)
        .complains("there-is-no-such-program");
    scratch
        .run("compare --on host:warm-up-rounds=0 -s eevdf --keep nothing -n 1 -- false")
        .exits_with(1)
        .complains("exit code 1");
}

#[test]
fn a_workload_on_this_computer_runs_with_real_threads_and_tells_its_own_times() {
    let scratch = Scratch::new();
    skip!(unless is_root());
    let _alone = alone();
    let words = "compare --on host:warm-up-rounds=0 -s eevdf -n 1 --json --keep nothing -w hackbench:-T,-p,-f2,-g1,-l5";
    let document: serde_json::Value = serde_json::from_str(&scratch.run(words).exits_with(0).out).unwrap();
    assert_eq!(document["primary"], "hackbench_time_ns");
    assert!(document["schedulers"][0]["measures"]["hackbench_time_ns"]["points"][0].as_f64().unwrap() > 0.0);
}

#[test]
fn a_workload_on_this_computer_has_a_warm_up_and_a_command_has_none() {
    let scratch = Scratch::new();
    let compare = |words: &str| {
        scratch.run(&format!("compare --on host:warm-up-rounds=0 -s eevdf -n 1 --warm-up 20ms --keep nothing {words}"))
    };
    compare("-- true").exits_with(2).complains("measured as a whole");
    compare("-w spin:-n2,-d20ms").exits_with(2).complains("nothing would count");
    skip!(unless is_root());
    let _alone = alone();
    let document: serde_json::Value =
        serde_json::from_str(&compare("--json -w spin:-n2,-d60ms").exits_with(0).out).unwrap();
    assert_eq!(document["experiment"]["warm_up_ns"], 20_000_000);
    // It ends before its warm-up does: the run is an error, as in the simulator.
    let brief = r#"{"tasks": {"brief": {"loop": 1, "run": 5}}}"#;
    scratch.write("brief.json", brief);
    scratch
        .run("compare --on host:warm-up-rounds=0 -s eevdf -n 1 --warm-up 10s --keep nothing -w brief.json")
        .exits_with(1)
        .complains("in its warm-up of 10 s");
}

/// Records on the kernel that runs the tests, where that can be done.
#[test]
fn a_command_is_recorded_with_all_its_processes() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    let script = "for k in 1 2 3; do sleep 0.02; echo x | cat >/dev/null; done";
    let output = scratch
        .command("record --json --out recorded --")
        .args(["sh", "-c", script])
        .output()
        .expect("the program can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["exit_code"], 0);
    // The shell, and in each round a sleep, the one before the pipe and the one behind it.
    assert!(document["fidelity"]["threads"].as_u64().unwrap() >= 7, "{document}");
    assert!(document["fidelity"]["waits"].as_u64().unwrap() >= 3, "{document}");
    assert!(scratch.files("recorded").contains(&"recording.dat".to_owned()));
    let page = std::fs::read_to_string(scratch.path("recorded/report.html")).unwrap();
    // Its threads are not all that kept the CPUs busy.
    assert!(page.contains("its threads used ") && !page.contains(">CPUs busy<"), "{}", &page[..page.len().min(3000)]);
    let threads = scratch.run("group recorded/recording.dat --json").exits_with(0).out;
    assert!(threads.contains("\"sleep\""), "the file names threads");
    assert_eq!(
        threads,
        scratch.run("group recorded --json").exits_with(0).out,
        "the directory has all that its recording has"
    );
    let trial = scratch.files("recorded/trials").into_iter().find(|name| name.ends_with(".json")).unwrap();
    let trial = std::fs::read_to_string(scratch.path("recorded/trials").join(trial)).unwrap();
    let trial: serde_json::Value = serde_json::from_str(&trial).unwrap();
    let ns = |name: &str| trial["measures"][name].as_f64().unwrap();
    assert!(ns("foreign_ns") > 0.0, "this program reads the trace meanwhile, and is no task: {trial}");
    let beside = trial["background"].as_array().unwrap();
    assert!(beside.iter().any(|row| row["name"] == "warmcore" && row["process"].is_i64()), "{trial}");
    scratch.run("explain --events recorded").exits_with(0);
    scratch.run("replay recorded --out replay.json").exits_with(0);
    scratch.run("sim -m 1s1n1l2c1t -w replay.json --scheduler eevdf").exits_with(0);
}

#[test]
fn a_command_that_outlasts_its_recording_is_killed_and_the_program_says_so() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    let ran = scratch.run("record -d 200ms --out cut -- sleep 1000").exits_with(0);
    assert!(ran.error.contains("and was killed (SIGKILL)"), "{}", ran.error);
    let ran = scratch.run("record -d 1000s --out whole -- true").exits_with(0);
    assert!(!ran.error.contains("killed"), "{}", ran.error);
}

#[test]
fn counters_and_page_homes_are_recorded_and_joined_to_places() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    let script = "for k in 1 2 3; do sleep 0.02; echo x | cat >/dev/null; done";
    let output = scratch
        .command("record --json --counters --page-homes --out counted --")
        .args(["sh", "-c", script])
        .output()
        .expect("the program can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes = document["notes"].to_string();
    assert!(notes.contains("counters: the kernel's"), "how they were counted is told: {notes}");
    let trial = scratch.files("counted").into_iter().find(|name| name.starts_with("trials/")).unwrap();
    let trial = std::fs::read_to_string(scratch.path("counted").join(trial)).unwrap();
    let trial: serde_json::Value = serde_json::from_str(&trial).unwrap();
    let tasks = trial["tasks"].as_array().unwrap();
    let sum = |name: &str| tasks.iter().filter_map(|task| task["counters"][name]["total"].as_u64()).sum::<u64>();
    assert!(sum("task_clock_ns") > 0 && sum("context_switches") >= 7 && sum("page_faults_minor") > 0, "{tasks:?}");
    for task in tasks {
        for count in task["counters"].as_object().into_iter().flatten().map(|(_, count)| count) {
            let of =
                |key: &str| count[key].as_object().unwrap().values().map(|value| value.as_u64().unwrap()).sum::<u64>();
            let total = count["total"].as_u64().unwrap();
            assert_eq!((of("by_cpu"), of("by_llc")), (total, total), "every count has a place");
        }
    }
    let page = std::fs::read_to_string(scratch.path("counted/report.html")).unwrap();
    assert!(page.contains("Counters by place") && page.contains("page_faults_minor"));
}

#[test]
fn threads_that_wake_each_other_through_a_pipe_are_told_its_name() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    // Long enough for whoever looks at its files now and then, also where this computer has other work.
    let script = "for k in $(seq 40); do echo x; sleep 0.02; done | while read line; do :; done";
    let ran = scratch.command("record --calls --out piped --").args(["bash", "-c", script]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    if String::from_utf8_lossy(&ran.stderr).contains("CONFIG_FTRACE_SYSCALLS") {
        skip!("this kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)");
    }
    let groups = scratch.run("group piped/recording.dat --json").exits_with(0).out;
    let groups: serde_json::Value = serde_json::from_str(&groups).unwrap();
    let media = groups["graph"]["media"].as_array().unwrap();
    let named = |medium: &&serde_json::Value| {
        medium["shared"] == true && medium["file"].as_str().is_some_and(|file| file.starts_with("pipe:["))
    };
    assert!(media.iter().any(|medium| named(&medium)), "{media:?}");
}

#[test]
fn the_groups_of_a_process_that_runs_are_watched_until_it_ends_or_a_signal_comes() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    let scratch = Scratch::new();
    skip!(unless can_record());
    let pairs = |time: &str| {
        let mut command = scratch.command(&format!("workload run pingpong:-n2,-w50us,-d{time}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Until its four threads are there, however busy the computer is.
        let threads = || std::fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count);
        let begun = std::time::Instant::now();
        while threads() < 5 && begun.elapsed().as_secs() < 30 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        child
    };
    let mut watched = pairs("8s");
    let words = format!("group watch:{},every=2s,for=1s", watched.id());
    let told = scratch.run(&words).exits_with(0).out;
    watched.wait().unwrap();
    let first = told.lines().next().unwrap();
    assert!(first.contains(" threads in 2 groups, "), "{told}");
    let group = told.lines().find(|line| line.starts_with("  group 1: ")).unwrap();
    assert!(group.contains("ping-") && group.contains("pong-"), "{told}");
    assert!(told.ends_with(&format!(" process {} ended\n", watched.id())), "{told}");

    let mut watched = pairs("6s");
    let words = format!("group watch:{},every=2s,for=1s --json", watched.id());
    let told = scratch.run(&words).exits_with(0).out;
    watched.wait().unwrap();
    let lines: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (began, ended) = (lines.first().unwrap(), lines.last().unwrap());
    assert_eq!((&began["event"], &ended["event"]), (&"began".into(), &"ended".into()), "{told}");
    assert_eq!(began["groups"].as_object().unwrap().len(), 2, "{told}");
    for line in &lines {
        crate::documents::says_what_its_schema_says(&scratch, line, "group-watch", &words);
    }

    let mut watched = pairs("60s");
    let mut command = scratch.command(&format!("group watch:{},every=60s,for=500ms", watched.id()));
    let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let instances = |id: u32| {
        let all = std::fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().ends_with(&format!("-{id}"))).count()
    };
    assert_eq!(
        (line.contains(" 2 groups, "), instances(watch.id())),
        (true, 0),
        "nothing is traced in between: {line}"
    );
    Command::new("kill").args(["-TERM", &watch.id().to_string()]).status().unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(143));
    watched.kill().unwrap();
    watched.wait().unwrap();

    scratch.run("group watch:2147483646").exits_with(2).complains("there is no process 2147483646");
    scratch.run("group watch:1,every=1s,for=2s").exits_with(2).complains("at most as long as `every`");
    scratch.run("group watch:1 -m genoa96").exits_with(2).complains("watch:PID has no options");
    scratch.run("group --watch 1").exits_with(2).complains("watch:PID");
}

#[test]
fn the_two_back_ends_record_the_same_of_the_same_command() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    for backend in ["tracefs", "bpf"] {
        // Three processes in each round.
        let script = "for k in 1 2 3 4 5; do sleep 0.01; echo x | cat >/dev/null; done";
        let words = format!("record --json --force --backend {backend} --out {backend} --");
        let mut lost = Some(1);
        // A computer may be too busy to read all events in time, but not each time.
        for _ in 0..5 {
            let output = scratch.command(&words).args(["sh", "-c", script]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.code() == Some(4) && backend == "bpf" {
                skip!("{said}");
            }
            assert!(output.status.success(), "{said}");
            let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            lost = document["lost"].as_array().unwrap().iter().map(serde_json::Value::as_u64).sum();
            if lost == Some(0) {
                break;
            }
        }
        assert_eq!(lost, Some(0), "{backend}");
        scratch.run(&format!("report {backend} --events {backend}.txt")).exits_with(0);
        let events = std::fs::read_to_string(scratch.path(&format!("{backend}.txt"))).unwrap();
        let count = |kind: &str| events.matches(kind).count();
        assert_eq!((count("event=fork "), count("event=exit ")), (15, 16), "{backend}: {events}");
    }
}

#[test]
fn who_may_not_record_is_told_what_to_grant() {
    use std::os::unix::process::CommandExt as _;
    skip!(unless can_record());
    // A directory and a program that everybody can reach.
    let place =
        tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let program = place.path().join("warmcore");
    std::fs::copy(env!("CARGO_BIN_EXE_warmcore"), &program).unwrap();
    let refused = |command: &mut Command, part: &str| {
        let output = command.current_dir("/tmp").output().expect("the program can be started");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains(part), "{said}");
    };
    refused(Command::new(&program).args(["record", "--", "true"]).uid(65534).gid(65534), "root");
    refused(
        Command::new(&program).args(["record", "--backend", "bpf", "--", "true"]).uid(65534).gid(65534),
        "warmcore-recorder-bpf",
    );
    // Without tracefs, and without the right to mount it.
    let script = format!(
        "mount -t tmpfs none /sys/kernel/tracing && exec setpriv --reuid 65534 --regid 65534 --clear-groups {} record -- true",
        program.display()
    );
    refused(Command::new("unshare").args(["-m", "sh", "-c", &script]), "mount -t tracefs");
}

#[test]
fn a_recorded_process_that_ends_ends_the_recording() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    // On a busy machine a short process is gone before the recording begins.
    let ended = ["0.5", "4", "32"].into_iter().any(|seconds| {
        let mut process = Command::new("sleep").arg(seconds).spawn().unwrap();
        let words = format!("record --json --pid {} --counters=software --out ended", process.id());
        let mut recording = scratch.command(&words).spawn().unwrap();
        process.wait().unwrap();
        let recorded = recording.wait().unwrap().success();
        assert!(recorded || !scratch.path("ended").exists(), "a failure leaves nothing");
        recorded
    });
    assert!(ended);
    assert!(scratch.path("ended/report.html").is_file());
    let words = format!("record --counters=nonsense --pid {}", std::process::id());
    scratch.run(&words).exits_with(2).complains("nonsense");
}
