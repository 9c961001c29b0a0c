//! Four users, each with a question whose answer is known another way: the answer itself is asserted, not that something is printed.
//! What commands say besides is in `stories.rs`.

use std::fs;

use crate::common::{Scratch, can_record};
use serde_json::Value;
use warmcore_testing::skip;

/// A service: four pools of two workers with a queue each, and four threads that put requests there at random times, 1000 a second each.
/// It needs one and a half CPUs.
fn service() -> String {
    let (mut tasks, mut programs) = (Vec::new(), Vec::new());
    for pool in 0..4 {
        tasks.push(format!(r#""accept{pool}": {{ "instance": 0 }}, "pool{pool}": {{ "instance": 0 }}"#));
        programs.push(format!(
            r#""accept{pool}": {{ "process": "service", "instances": 1, "program": [ {{ "start_clock": 0 }}, {{ "loop": -1, "steps": [
                {{ "sleep_ns": {{ "exponential": {{ "mean_ns": 1000000 }} }}, "clock": 0 }}, {{ "sem_post": "queue{pool}" }} ] }} ] }},
            "pool{pool}": {{ "process": "service", "instances": 2, "program": [ {{ "loop": -1, "steps": [
                {{ "sem_wait": "queue{pool}", "clock": 0 }}, {{ "run_ns": {{ "log_normal": {{ "median_ns": 300000, "p99_ns": 1200000 }} }} }},
                {{ "record_clock": 0, "recorder": "request" }} ] }} ] }}"#
        ));
    }
    format!(
        r#"{{ "tasks": {{ {} }}, "warmcore": {{ "duration_ns": 500000000, "applications": [ "service" ],
            "processes": [ {{ "name": "service", "application": "service" }} ], "recorders": [ "request" ], "tasks": {{ {} }} }} }}"#,
        tasks.join(", "),
        programs.join(", ")
    )
}

/// What its threads do to memory: they work on data of the process, or each on its own.
fn profile(size: &str, touches_per_ki: u32, sharing: &str) -> String {
    format!(
        r#"[[profile]]
name = "service"
summary = "threads of a service"
origin = "assumed"
cpi0 = 0.6
mlp = 2.0
[[profile.class]]
name = "near"
size = "256KiB"
touches_per_ki = 100
write_fraction = 0.3
[[profile.class]]
name = "data"
size = "{size}"
touches_per_ki = {touches_per_ki}
write_fraction = 0.3
sharing = "{sharing}"
"#
    )
}

/// The verdict's measure of a comparison, the finding about the second scheduler, and its ratio to the first.
fn answer(json: &str) -> (String, String, Option<f64>) {
    let document: Value = serde_json::from_str(json).unwrap();
    let primary = document["primary"].as_str().unwrap();
    let of = &document["schedulers"][1]["measures"][primary];
    (primary.to_owned(), of["finding"].as_str().unwrap().to_owned(), of["comparison"]["ratio"].as_f64())
}

/// A service is recorded on a small computer, and its owner asks whether cache-aware scheduling would help it on a server of two LLCs. With
/// the memory that the service has, the replay's answer is that of the service itself, simulated there with its memory: better where the
/// threads share their data, worse where each has so much of its own that they do not fit under one LLC. Without it there is no answer.
#[test]
fn the_replay_of_a_service_answers_as_the_service_itself_for_shared_data_and_for_data_of_each_thread() {
    let scratch = Scratch::new();
    scratch.write("service.json", &service());
    scratch.write("shared.toml", &profile("4MiB", 6, "process"));
    scratch.write("own.toml", &profile("6MiB", 10, "private"));
    scratch.run("machine convert 1s1n2l8c1t --to xml --out server.xml").exits_with(0);
    scratch.run("sim -m 1s1n1l4c1t -w service.json --scheduler eevdf --trace full --out recorded").exits_with(0);
    let replayed = scratch.run("replay recorded --out replay.json").exits_with(0);
    let hides = |said: &str| said.contains("its threads waited for a CPU");
    assert!(!hides(&replayed.complains("12 threads, 100.0 % of the CPU time").error), "four CPUs are enough");
    scratch.run("sim -m 1s1n1l2c1t -w service.json --scheduler eevdf --trace full --out crowded").exits_with(0);
    assert!(hides(&scratch.run("replay crowded --out crowded.json").exits_with(0).error), "two are not");
    let compare = |workload: &str, profiles: &str| {
        let words = format!(
            "compare -m server.xml -w {workload}.json {profiles} -s eevdf,cache-aware --trials 8 --keep nothing --json"
        );
        scratch.run(&words).exits_with(0).out
    };
    let (_, finding, ratio) = answer(&compare("replay", ""));
    assert_eq!((finding.as_str(), ratio), ("not_answerable", None), "no number stands before that");
    for (data, wanted) in [("shared", "better"), ("own", "worse")] {
        let profiles = format!("--profiles {data}.toml --assume-profile service");
        let (measure, truth, of_truth) = answer(&compare("service", &profiles));
        assert_eq!((measure.as_str(), truth.as_str()), ("recorder_request_p99_ns", wanted), "{data}: {of_truth:?}");
        let (measure, found, of_replay) = answer(&compare("replay", &profiles));
        assert_eq!((measure.as_str(), found.as_str()), ("recorder_request_p99_ns", wanted), "{data}: {of_replay:?}");
    }
}

/// Four workers of one queue that are recorded where each has a CPU: their requests take as long in the replay there as in the recording, and on
/// two CPUs the verdict is about them, as that of the service itself is, and not about the wakeups of the thread that feeds them.
#[test]
fn the_replay_of_a_pool_is_judged_by_its_requests_which_take_as_long_as_they_did() {
    let scratch = Scratch::new();
    scratch.write(
        "pool.json",
        r#"{ "tasks": { "accept": { "instance": 0 }, "pool": { "instance": 0 } }, "warmcore": { "duration_ns": 500000000,
            "processes": [ { "name": "service" } ], "recorders": [ "request" ], "tasks": {
            "accept": { "process": "service", "instances": 1, "program": [ { "start_clock": 0 }, { "loop": -1, "steps": [
                { "sleep_ns": { "exponential": { "mean_ns": 500000 } }, "clock": 0 }, { "sem_post": "queue" } ] } ] },
            "pool": { "process": "service", "instances": 4, "program": [ { "loop": -1, "steps": [
                { "sem_wait": "queue", "clock": 0 }, { "run_ns": { "log_normal": { "median_ns": 600000, "p99_ns": 2400000 } } },
                { "record_clock": 0, "recorder": "request" } ] } ] } } } }"#,
    );
    scratch.run("sim -m 1s1n1l8c1t -w pool.json --scheduler eevdf --trace full --out recorded").exits_with(0);
    let said = scratch.run("replay recorded --out replay.json --json").exits_with(0).out;
    let pooled = serde_json::from_str::<Value>(&said).unwrap()["fidelity"]["pooled"].clone();
    let of = |side: &str, what: &str| pooled[side][what].as_f64().unwrap();
    for what in ["count", "median_ns", "p99_ns"] {
        let (recorded, replayed) = (of("recorded", what), of("replayed", what));
        assert!((replayed / recorded - 1.0).abs() < 0.01, "{what}: {recorded} recorded, {replayed} replayed");
    }
    for workload in ["pool", "replay"] {
        let words = format!("compare -m 1s1n1l2c1t -w {workload}.json -s eevdf,cfs --trials 1 --keep nothing --json");
        assert_eq!(answer(&scratch.run(&words).exits_with(0).out).0, "recorder_request_p99_ns", "{workload}");
    }
}

/// The same service with real threads on this computer: the recording has its threads and what they wait for, and the way to an answer is
/// the same. Which sign comes out is the computer's matter: a busy one hides waits, which the replay says.
#[test]
fn a_service_that_was_recorded_here_is_answered_with_its_memory_and_not_without() {
    skip!(unless can_record());
    let scratch = Scratch::new();
    scratch.write("service.json", &service());
    scratch.write("shared.toml", &profile("4MiB", 6, "process"));
    let program = env!("CARGO_BIN_EXE_warmcore");
    scratch.run(&format!("record --out recorded -- {program} workload run service.json")).exits_with(0);
    let said = scratch.run("replay recorded --out replay.json --json").exits_with(0).out;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert!(said["fidelity"]["threads"].as_u64().unwrap() >= 12, "{said}");
    let compare = "compare -m 1s1n2l8c1t -w replay.json -s eevdf,cache-aware --trials 2 --keep nothing";
    let without = scratch.run(compare).exits_with(0).out;
    assert!(
        without.split_whitespace().collect::<Vec<_>>().join(" ").contains("The run cannot say how cache-aware"),
        "{without}"
    );
    let with = scratch.run(&format!("{compare} --profiles shared.toml --assume-profile service")).exits_with(0).out;
    assert!(with.contains("with the profile service") && !with.contains("not answerable"), "{with}");
}

/// A kernel developer makes slices longer. Three threads on two CPUs meet after 2 ms of work each: shared evenly an iteration takes 3 ms,
/// with slices that nobody uses up 4 ms, as two threads are through before the third begins.
#[test]
fn longer_slices_cost_a_barrier_what_arithmetic_says_because_a_thread_waits_for_a_cpu() {
    let scratch = Scratch::new();
    let words = "compare -m 1s1n1l2c1t@i7-3770 -w forkjoin:-n3,-i60,-w2ms -s eevdf,eevdf:base_slice_ns=20ms --trials 8";
    let ran = scratch.run(&format!("{words} --keep run --out run")).exits_with(0);
    let (primary, finding, ratio) = answer(&fs::read_to_string(scratch.path("run/verdict.json")).unwrap());
    assert_eq!((primary.as_str(), finding.as_str()), ("elapsed_ns", "worse"));
    assert!(ratio.unwrap() > 1.05, "{ratio:?}");
    let document: Value = serde_json::from_str(&fs::read_to_string(scratch.path("run/verdict.json")).unwrap()).unwrap();
    let elapsed_ms = document["schedulers"][1]["measures"]["elapsed_ns"]["summary"]["median"].as_f64().unwrap() / 1e6;
    assert!((elapsed_ms / (60.0 * 4.0) - 1.0).abs() < 0.01, "{elapsed_ms} ms for 60 iterations of 4 ms");
    let told = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, why) = told.split_once("of the difference ").expect("it is explained");
    let share: f64 = why
        .split(['(', ' '])
        .find(|word| !word.is_empty() && why.contains(&format!("({word} %)")))
        .unwrap()
        .parse()
        .unwrap();
    assert!(share > 90.0 && why.contains("%) is waiting for a CPU"), "{why}");
}

/// A build of one second runs beside a computation that never ends and has nice 5 (weight 335 for 1024): by hand it takes 1 + 335/1024 s in shares of
/// weight, and 2 s in turns of equal length. What both do together is one CPU's work under any scheduler.
#[test]
fn a_job_beside_a_hog_is_judged_by_when_it_is_done() {
    let scratch = Scratch::new();
    for (name, duration_s) in [("job", 5), ("short", 1)] {
        let text = format!(
            r#"{{ "global": {{ "duration": {duration_s} }}, "tasks": {{ "job": {{ "loop": 1, "run": 1000000 }},
                "hog": {{ "loop": -1, "run": 10000, "priority": 5 }} }} }}"#
        );
        fs::write(scratch.path(&format!("{name}.json")), text).unwrap();
    }
    let compare = |name: &str| {
        let words = format!("compare -m 1s1n1l1c1t -w {name}.json -s eevdf,rr --trials 8 --out {name}");
        let ran = scratch.run(&words).exits_with(0);
        (ran, fs::read_to_string(scratch.path(&format!("{name}/verdict.json"))).unwrap())
    };
    let (_, verdict) = compare("job");
    let (metric, finding, ratio) = answer(&verdict);
    assert_eq!((metric.as_str(), finding.as_str()), ("jobs_elapsed_ns", "worse"));
    assert!((ratio.unwrap() - 2.0 / (1.0 + 335.0 / 1024.0)).abs() < 0.01, "{ratio:?}");
    let document: Value = serde_json::from_str(&verdict).unwrap();
    let median = document["schedulers"][0]["measures"]["jobs_elapsed_ns"]["summary"]["median"].as_f64().unwrap();
    assert!((median / 1e9 - 1.327).abs() < 0.01, "{median}");
    // Nobody is done within a second.
    let (ran, verdict) = compare("short");
    let (_, finding, ratio) = answer(&verdict);
    assert_eq!((finding.as_str(), ratio), ("not_measurable", None));
    assert!(ran.error.contains("the workload's duration is too short"), "{}", ran.error);
}

/// A researcher runs studies that come with the program and puts their table into a paper: what was published, what came out here.
#[test]
fn a_packaged_study_gives_its_published_figures_again_in_a_table() {
    let scratch = Scratch::new();
    let words = "study run answers/release-512-ule answers/nice-shares --out kept --page table.md";
    scratch.run(words).exits_with(0);
    let table = fs::read_to_string(scratch.path("table.md")).unwrap();
    let row = |title: &str| {
        let row = table.lines().find(|line| line.starts_with(&format!("| [{title}]"))).expect("a row");
        row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    let released = row("512 threads set free on 32 cores under ULE");
    assert_eq!(released[2..=4], ["481", "481", "481 to 481"], "31 of 512 threads are stolen, one by each other core");
    let shares = row("Nice 0 beside nice 5");
    assert_eq!(shares[2..=3], ["0.753", "0.753"], "weights of 1024 and 335: 1024 / 1359");
}

/// A teacher shows a class one CPU with two computations and an editor: in one queue the editor waits for a quantum of both, which is 20 ms;
/// under the fair class for no longer than a slice.
#[test]
fn the_page_for_a_class_shows_the_editor_wait_for_two_quanta_or_hardly_at_all() {
    let scratch = Scratch::new();
    let words = "compare -m 1s1n1l1c1t -w lesson/three-tasks -s rr,eevdf --trials 1 --keep run --out run";
    scratch.run(words).exits_with(0);
    scratch.run("report run --lesson lesson.html").exits_with(0);
    let page = fs::read_to_string(scratch.path("lesson.html")).unwrap();
    let (one_queue, fair) = page.split_once("<h2>eevdf").expect("a part for each scheduler");
    let longest_ms = |part: &str| {
        let time_ms = |text: &str| {
            let (number, unit) = text.trim().split_once(' ').unwrap();
            number.parse::<f64>().unwrap()
                / [("ns", 1e6), ("us", 1e3), ("ms", 1.0)].iter().find(|of| of.0 == unit).unwrap().1
        };
        let waits = part.split("editor waits ").skip(1).map(|rest| rest.split('<').next().unwrap());
        // The page's first sentence has the longest, "up to".
        waits
            .filter(|wait| wait.starts_with(|first: char| first.is_ascii_digit()))
            .map(|wait| wait.split_once(" to ").unwrap())
            .map(|(from, to)| time_ms(to) - time_ms(from))
            .fold(0.0, f64::max)
    };
    let (one_queue, fair) = (longest_ms(one_queue), longest_ms(fair));
    assert!((19.0..21.0).contains(&one_queue), "{one_queue} ms in one queue");
    assert!(fair < 4.0, "{fair} ms under eevdf");
}
