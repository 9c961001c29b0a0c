//! `compare` without schedulers: which of a kernel's settings help, and what is typed for them. And a recording as a workload.

use crate::common::Scratch;
use serde_json::Value;

/// Eight threads that share their data, on two sockets of one LLC each.
const SHARING: &str = "compare -m 2s1n1l12c1t@gnr72 -w verilator:-t8,-C600";

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn threads_that_share_are_told_to_stay_on_one_socket_and_how() {
    let scratch = Scratch::new();
    let told = scratch.run(&format!("{SHARING} --out run")).exits_with(0).out;
    let found = document(&std::fs::read_to_string(scratch.path("run/verdict.json")).unwrap());
    let settings = found["advice"]["settings"].as_array().unwrap();
    let label = |index: usize| settings[index]["label"].as_str().unwrap();
    assert!(["eevdf @ pin=gathered", "eevdf @ cpus=one-llc"].contains(&label(0)), "{settings:?}");
    assert!(settings[0]["ratio"].as_f64().unwrap() < 0.75, "{settings:?}");
    let how = |name: &str| {
        let setting =
            settings.iter().find(|setting| setting["label"] == name).unwrap_or_else(|| panic!("{settings:?}"));
        (setting["finding"].as_str().unwrap().to_owned(), setting["how"][0].as_str().unwrap().to_owned())
    };
    let mask = "taskset -c 0-11 COMMAND, or a cpuset with 0-11 in its cpuset.cpus";
    assert_eq!(how("eevdf @ cpus=one-llc"), ("better".into(), mask.into()));
    let file = "echo 1 > /sys/kernel/debug/sched/llc_balancing/enabled  # a kernel with CONFIG_SCHED_CACHE begins so; the other columns have 0";
    assert_eq!(how("cache-aware"), ("better".into(), file.into()));
    assert_eq!(how("eevdf:numa_balancing=0").1, "echo 0 > /proc/sys/kernel/numa_balancing");

    assert!(told.contains("\nSettings that improve elapsed time over eevdf, the best first:\n"), "{told}");
    assert!(told.contains(&format!("\n      {file}\n")), "{told}");
    let page = std::fs::read_to_string(scratch.path("run/report.html")).unwrap();
    assert!(
        page.contains("<pre class=\"advice\">Settings that improve") && page.contains("echo 1 &gt; /sys/"),
        "the page says it too"
    );
    // A run that goes on is the same question.
    let kept = std::fs::read_to_string(scratch.path("run/verdict.txt")).unwrap();
    std::fs::remove_file(scratch.path("run/trials/s0-t0000.json")).unwrap();
    scratch.run("compare --resume run").exits_with(0);
    assert_eq!(std::fs::read_to_string(scratch.path("run/verdict.txt")).unwrap(), kept);
}

#[test]
fn where_nothing_helps_nothing_is_recommended_and_what_is_not_known_is_said() {
    let scratch = Scratch::new();
    let told = scratch.run("compare -m 1s1n2l4c1t -w forkjoin:-n8,-i4,-w5ms --keep nothing").exits_with(0).out;
    let told = told.replace('\n', " ");
    assert!(told.contains("None of the settings tried is shown to improve elapsed time over eevdf."), "{told}");
    assert!(told.contains("Not answerable here: cache-aware."), "{told}");
    assert!(told.contains("Not known: what the tasks do to caches"), "{told}");
    assert!(
        !told.contains("pin=") && !told.contains("one-llc"),
        "no place is tried where it could win nothing: {told}"
    );
    let elsewhere = "compare --on host --keep nothing -w spin:-n1,-d1ms";
    scratch.run(elsewhere).exits_with(2).complains("there is no scheduler to compare");
}

#[test]
fn a_recording_is_a_workload_and_the_same_as_its_replay() {
    let scratch = Scratch::new();
    scratch
        .run("compare -m 1s1n2l2c1t -w forkjoin:-n3,-i5,-w1ms -s eevdf -n 1 --trace full --keep run --out recorded")
        .exits_with(0);
    scratch.run("replay recorded --out replayed.json").exits_with(0);
    let points = |workload: &str| {
        let words = format!("compare -m 1s1n1l2c1t -w {workload} -s eevdf,rr -n 2 --json --keep nothing");
        let found = document(&scratch.run(&words).exits_with(0).out);
        found["schedulers"][0]["measures"].clone()
    };
    assert_eq!(points("recorded"), points("replayed.json"));
    let assumed = "sim -m 1s1n1l2c1t@genoa96 -w recorded -s eevdf --assume-profile canneal --json";
    let found = document(&scratch.run(assumed).exits_with(0).out);
    assert!(found["time_ns"]["dram_local"].as_f64().is_some_and(|ns| ns > 0.0), "{}", found["time_ns"]);
    scratch.write("empty.txt", "nothing of a trace\n");
    scratch.run("sim -m 1s1n1l2c1t -w empty.txt -s eevdf").exits_with(2);
}
