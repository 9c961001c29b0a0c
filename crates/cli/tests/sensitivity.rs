//! `compare --sensitivity`: which assumed costs of the machine could turn the verdict.

use std::fs;

use crate::common::Scratch;
use serde_json::Value;

/// Messages between few CPUs: wakeups and pipes cost much of the time.
const MESSAGES: &str = "-w hackbench:-T,-p,-f1,-g2,-l10 -s cfs,eevdf --trials 8";

#[test]
fn a_changed_cost_gives_what_a_machine_with_that_cost_gives() {
    let scratch = Scratch::new();
    let json = scratch
        .run(&format!("compare -m 1s1n2l2c1t {MESSAGES} --keep nothing --json --sensitivity=3"))
        .exits_with(0)
        .out;
    let document: Value = serde_json::from_str(&json).unwrap();
    let variations = document["sensitivity"]["variations"].as_array().unwrap();
    let pipes = variations.iter().find(|variation| variation["cost"] == "pipe message").unwrap();
    assert_eq!((&pipes["values"][0], &pipes["factor"]), (&"costs.pipe_message_ns".into(), &3.0.into()));
    // The same by hand: 500 ns are the default.
    let machine = scratch.run("machine convert 1s1n2l2c1t").exits_with(0).out;
    assert!(!machine.contains("pipe_message_ns"));
    scratch.write("slow-pipes.toml", &format!("{machine}\n[costs]\norigin = \"given\"\npipe_message_ns = 1500\n"));
    let alone = format!("compare -m slow-pipes.toml {MESSAGES} --keep nothing --json --memory analytic");
    let alone: Value = serde_json::from_str(&scratch.run(&alone).exits_with(0).out).unwrap();
    let comparison = &alone["schedulers"][1]["measures"]["hackbench_time_ns"];
    assert_eq!(pipes["schedulers"][0]["ratio"], comparison["comparison"]["ratio"]);
    assert_eq!(pipes["schedulers"][0]["interval"], comparison["comparison"]["interval"]);
    assert_eq!(pipes["schedulers"][0]["finding"], comparison["finding"]);
    // What the workload never does has no effect, and what the user gave is not varied.
    let sockets = variations.iter().find(|variation| variation["cost"] == "socket message").unwrap();
    assert_eq!((&sockets["outcome"], &sockets["schedulers"]), (&"no_effect".into(), &Value::Array(Vec::new())));
    let given = format!("compare -m slow-pipes.toml {MESSAGES} --keep nothing --json --sensitivity=3 --jobs 1");
    let given: Value = serde_json::from_str(&scratch.run(&given).exits_with(0).out).unwrap();
    let given = given["sensitivity"]["variations"].as_array().unwrap();
    assert!(given.len() + 1 == variations.len() && given.iter().all(|variation| variation["cost"] != "pipe message"));
}

#[test]
fn what_turns_the_verdict_is_told_in_table_sentence_json_and_page() {
    let scratch = Scratch::new();
    let words = "-m 1s1n2l4c1t -w hackbench:-T,-p,-f2,-g2,-l20 -s cfs,eevdf --trials 8 --sensitivity=2";
    let ran = scratch.run(&format!("compare {words} --out run")).exits_with(0);
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let read = |name: &str| fs::read_to_string(scratch.path(name)).unwrap();
    let verdict: Value = serde_json::from_str(&read("run/verdict.json")).unwrap();
    let sensitivity = &verdict["sensitivity"];
    let sentence = sensitivity["sentence"].as_str().unwrap();
    assert!(sentence.contains("could turn the verdict") && text.contains(sentence), "{sentence}\n{}", ran.out);
    let turning = sensitivity["variations"].as_array().unwrap().iter().filter(|v| v["schedulers"][0]["turns"] == true);
    let turning: Vec<&str> = turning.map(|variation| variation["cost"].as_str().unwrap()).collect();
    assert!(!turning.is_empty() && sentence.starts_with(&format!("{} of ", turning.len())), "{turning:?}");
    for cost in &turning {
        assert!(ran.out.contains(&format!("{cost} × 2")) && sentence.contains(cost), "{cost}\n{}", ran.out);
    }
    assert_eq!(*sensitivity, serde_json::from_str::<Value>(&read("run/sensitivity.json")).unwrap());
    assert!(read("run/checksums.sha256").contains("sensitivity.json"));
    assert!(read("run/report.html").contains("could turn the verdict"));
    // Asked again with the same factors it is read back, not run.
    let again = scratch.run("compare --resume run --sensitivity=2").exits_with(0);
    assert!(!again.error.contains("comparing again") && again.out == ran.out, "{}", again.error);
}

/// Under ULE every wakeup on a machine of 32 CPUs looks at many of them, at a cost that nobody measured.
#[test]
fn an_assumed_cost_of_a_scheduler_is_varied_and_the_verdict_names_it() {
    let scratch = Scratch::new();
    let words = "compare -m 1s1n4l8c1t -w periodic:-n4,-j10,-d300ms -s cfs,ule -n 8 --keep nothing --json";
    let found = |more: &str| -> Value {
        serde_json::from_str(&scratch.run(&format!("{words} {more}")).exits_with(0).out).unwrap()
    };
    let document = found("--sensitivity=0.5");
    let ule = |document: &Value, of: usize| {
        document["schedulers"][of]["measures"]["wakeup_p99_ns"]["comparison"]["ratio"].clone()
    };
    assert_eq!(document["schedulers"][1]["measures"]["wakeup_p99_ns"]["finding"], "worse");
    let variations = document["sensitivity"]["variations"].as_array().unwrap();
    let visit = variations.iter().find(|variation| variation["cost"] == "ule:visit_ns").unwrap();
    assert_eq!((&visit["factor"], &visit["schedulers"][0]["label"]), (&0.5.into(), &"ule".into()));
    let sentence = document["sensitivity"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("assumed costs of the machine and its schedulers"), "{sentence}");
    let names = |document: &Value| {
        let conditions = document["conditions"].as_array().unwrap().clone();
        conditions
            .iter()
            .any(|said| said.as_str().unwrap().starts_with("the time that ule takes to search is assumed (visit_ns=50"))
    };
    assert!(names(&document), "{}", document["conditions"]);
    let words = words.replace("cfs,ule", "cfs,ule:visit_ns=25");
    let halved: Value = serde_json::from_str(&scratch.run(&words).exits_with(0).out).unwrap();
    assert_eq!(visit["schedulers"][0]["ratio"], ule(&halved, 1));
    assert!(!names(&halved), "what the user gives is not assumed: {}", halved["conditions"]);
}

#[test]
fn a_place_that_does_not_simulate_has_no_assumed_costs_and_no_load_to_find() {
    let scratch = Scratch::new();
    let compare = "compare -m 1s1n2l2c1t -w spin:-n2,-d5ms -s cfs,eevdf --on vm --out run";
    let refused = scratch.run(&format!("{compare} --sensitivity")).exits_with(2);
    refused.complains("assumed costs are the simulator's, and `vm` does not simulate").complains("leave out --on");
    let refused = scratch.run(&format!("{compare} --load 50")).exits_with(2);
    refused.complains("is found in simulations").complains("leave out --on, or --load");
    assert!(!scratch.path("run").exists(), "nothing was booted and nothing made");
}

#[test]
fn factors_that_make_no_sense_are_refused_and_a_lone_scheduler_has_nothing_to_turn() {
    let scratch = Scratch::new();
    for (factors, words) in [("=1", "other than 1"), ("=0", "0.01 to 100"), ("=fast", "0.01 to 100")] {
        let compare = format!("compare -m 1s1n2l2c1t {MESSAGES} --keep nothing --sensitivity{factors}");
        scratch.run(&compare).exits_with(2).complains(words);
    }
    let json =
        scratch.run("compare -m 1s1n1l2c1t -w spin:-n2,-d5ms -s eevdf --trials 1 --keep nothing --sensitivity --json");
    let document: Value = serde_json::from_str(&json.exits_with(0).out).unwrap();
    assert!(document["sensitivity"]["sentence"].as_str().unwrap().starts_with("None of "));
}

#[test]
fn a_verdict_on_an_edge_is_told_by_its_neighbours() {
    let scratch = Scratch::new();
    let ratio = |threads: u32, more: &str| -> Value {
        let words = format!("compare -m 2s1n1l8c1t@gnr72 -w verilator:-t{threads},-C600 -s eevdf,cache-aware -n 8");
        let json = scratch.run(&format!("{words} --keep nothing --json {more}")).exits_with(0).out;
        serde_json::from_str(&json).unwrap()
    };
    let own = |document: &Value| document["schedulers"][1]["measures"]["elapsed_ns"]["comparison"]["ratio"].clone();
    // Seven threads fit under a cache of eight cores, and cache-aware scheduling gathers them; eight are too many for its rules.
    let found = ratio(7, "--sensitivity=neighbours");
    let sentence = found["sensitivity"]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("The verdict is on an edge: with one task more, cache-aware is "), "{sentence}");
    // Without the last core the other cache has seven cores, and seven threads are too many for that one.
    assert!(sentence.contains("; with one core less, cache-aware is "), "{sentence}");
    assert!(sentence.ends_with("the verdict is the same with one task less."), "{sentence}");
    let variations = found["sensitivity"]["variations"].as_array().unwrap();
    for (variation, threads) in variations.iter().zip([8, 6]) {
        assert_eq!(variation["schedulers"][0]["ratio"], own(&ratio(threads, "")), "{threads}");
    }
    // One core less is the machine without it, not one with an idle core.
    let crowded = |machine: &str, more: &str| -> Value {
        let words = format!("compare -m {machine} -w pingpong:-n8,-d20ms -s eevdf,scx-native:policy=fifo -n 2");
        let metric = "--metric recorder_round_trip_per_s";
        let json = scratch.run(&format!("{words} {metric} --keep nothing --json {more}")).exits_with(0).out;
        serde_json::from_str(&json).unwrap()
    };
    let smaller = crowded("1s1n1l4c1t", "");
    let varied = crowded("1s1n1l5c1t", "--sensitivity=neighbours");
    let less = varied["sensitivity"]["variations"].as_array().unwrap().last().unwrap();
    let ratio = &smaller["schedulers"][1]["measures"]["recorder_round_trip_per_s"]["comparison"]["ratio"];
    assert_eq!((less["cost"].as_str(), &less["schedulers"][0]["ratio"]), (Some("one core less"), ratio), "{less}");
    let fixed = "compare -m 1s1n1l2c1t -w hackbench:-T,-p,-f1,-g1,-l5 -s cfs,eevdf -n 1 --keep nothing --sensitivity=neighbours";
    let told = scratch.run(fixed).exits_with(0).out.replace('\n', " ");
    assert!(told.contains("one task more was not tried: task"), "{told}");
    scratch
        .run("compare -m 1s1n1l2c1t -w spin:-n1,-d1ms -s cfs,rr --sensitivity=neighbors --keep nothing")
        .exits_with(2)
        .complains("nor `neighbours`");
}

/// By hand: three reservations of 0.6 CPUs fit into 95 % of two CPUs and not of one, nor do four into two. Nobody binds such tasks.
#[test]
fn what_deadline_tasks_make_impossible_is_a_row_and_not_the_end() {
    let scratch = Scratch::new();
    let task = r#"{ "policy": "SCHED_DEADLINE", "dl-runtime": 6000, "dl-period": 10000, "instance": 3, "loop": 5, "run": 2000, "sleep": 8000 }"#;
    scratch.write("deadline.json", &format!(r#"{{ "tasks": {{ "dl": {task} }} }}"#));
    let compare = |schedulers: &str, more: &str| {
        scratch.run(&format!("compare -m 1s1n1l2c1t -w deadline.json -s {schedulers} -n 1 --keep nothing {more}"))
    };
    let told = compare("eevdf,cfs", "--sensitivity=neighbours").exits_with(0).out.replace('\n', " ");
    assert!(told.contains("one core less was not tried: refused, tasks of SCHED_DEADLINE reserve"), "{told}");
    compare("eevdf,cfs", "--headroom").exits_with(2).complains("its threads are of SCHED_DEADLINE");
    compare("eevdf,eevdf@cpus=0", "").exits_with(2).complains("task \"dl\" is of SCHED_DEADLINE");
}
