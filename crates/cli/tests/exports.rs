//! Perfetto exports of runs, read again as recordings: they have all that the runs have.

use crate::common::Scratch;
use crate::recordings::recorded;

#[test]
fn a_perfetto_export_has_all_tasks_also_the_one_whose_thread_is_number_2() {
    let scratch = recorded();
    scratch.run("report run --perfetto run.pftrace").exits_with(0);
    let told = scratch.run("group run.pftrace").exits_with(0).out;
    assert!(told.starts_with("4 threads in 2 groups, 0 alone."), "{told}");
    assert!(told.contains("pong-0 (2)") || told.contains("ping-1 (2)"), "{told}");
}

/// All that a workload says but the numbers of threads, which an export makes up anew.
fn without_thread_numbers(document: &serde_json::Value, found: &mut Vec<String>) {
    let without = |text: &str| text.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    match document {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                found.push(without(key));
                without_thread_numbers(value, found);
            }
        }
        serde_json::Value::Array(array) => array.iter().for_each(|value| without_thread_numbers(value, found)),
        serde_json::Value::String(text) => found.push(without(text)),
        other => found.push(other.to_string()),
    }
}

#[test]
fn a_run_and_its_perfetto_export_have_the_same_replay() {
    let scratch = Scratch::new();
    let export = |workload: &str, out: &str| {
        let words = "sim -m 1s1n1l4c1t@genoa96 --scheduler eevdf --trace full --out";
        scratch.run(&format!("{words} {out} -w {workload}")).exits_with(0);
        scratch.run(&format!("report {out} --perfetto {out}.pftrace")).exits_with(0);
    };
    let replay = |of: &str| scratch.run(&format!("replay {of} --out {of}.json")).exits_with(0).error;
    // Workers wake the messenger while its CPU is busy, and timers go off while threads run.
    export("schbench:-m1,-t4,-r300ms", "run");
    let [run, exported] = ["run", "run.pftrace"].map(|of| {
        let told = replay(of);
        assert!(!told.contains("is not recorded") && !told.contains("machine is"), "{told}");
        let mut found = Vec::new();
        let text = std::fs::read_to_string(scratch.path(&format!("{of}.json"))).unwrap();
        without_thread_numbers(&serde_json::from_str(&text).unwrap(), &mut found);
        found
    });
    let differ = run.iter().zip(&exported).find(|(run, exported)| run != exported);
    assert!(run == exported, "{differ:?}");
    // Threads that run at the end are in the export until then, those that began last too.
    export("spin:-n8,-d50ms", "spins");
    for of in ["spins", "spins.pftrace"] {
        let told = replay(of);
        assert!(told.contains("8 threads, 100.0 % of the CPU time"), "{told}");
        let text = std::fs::read_to_string(scratch.path(&format!("{of}.json"))).unwrap();
        assert_eq!(text.matches("\"run\": 24130 }").count(), 2, "the last two: {text}");
    }
}
