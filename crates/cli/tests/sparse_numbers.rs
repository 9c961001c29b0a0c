//! On a machine whose CPUs and nodes are not numbered 0, 1, 2, … every output names them as the machine does.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::common::Scratch;

/// Three LLCs of two CPUs on nodes 40 and 70: no dense number is a number of the machine's.
const MACHINE: &str = r#"
name = "sparse"
base = "generic"
[topology]
nodes = [{ id = 40, cpus = "101,103,110-111" }, { id = 70, cpus = "120-121" }]
sockets = [{ id = 0, cpus = "101,103,110-111" }, { id = 1, cpus = "120-121" }]
llcs = ["101,103", "110-111", "120-121"]
"#;
const CPUS: [u64; 6] = [101, 103, 110, 111, 120, 121];
/// Two tasks bound to CPUs, four that go where there is room, and a CPU that is switched off.
const WORKLOAD: &str = r#"{ "tasks": {
    "bound": { "run": 5000, "loop": 3, "cpus": [120] },
    "moved": { "instance": 4, "run": 3000, "sleep": 500, "loop": 3, "cpus": [101, 110, 111] },
    "free": { "instance": 4, "run": 2000, "sleep": 300, "loop": 5 } },
    "warmcore": { "hotplug": [ { "at_ns": 4000000, "offline": 121 } ] } }"#;

fn ran() -> Scratch {
    let scratch = Scratch::new();
    fs::write(scratch.path("sparse.toml"), MACHINE).unwrap();
    fs::write(scratch.path("w.json"), WORKLOAD).unwrap();
    scratch.run("sim -m sparse.toml -w w.json -s cfs --trace full --out run").exits_with(0);
    scratch
}

fn read(scratch: &Scratch, name: &str) -> String {
    fs::read_to_string(scratch.path(name)).unwrap()
}

/// The numbers that follow a word, wherever it stands: `cpu12`, `"cpu": 12`, `target_cpu=12`.
fn numbers_after(text: &str, word: &str) -> BTreeSet<u64> {
    let after =
        text.match_indices(word).map(|(at, _)| text[at + word.len()..].trim_start_matches(['"', ':', ' ', '=']));
    let digits = after.map(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[track_caller]
fn names_only_the_machines_own(text: &str, words: &[&str]) {
    let named: BTreeSet<u64> = words.iter().flat_map(|word| numbers_after(text, word)).collect();
    let all = BTreeSet::from(CPUS);
    assert!(!named.is_empty() && named.is_subset(&all), "{words:?}: {named:?}");
}

#[test]
fn events_and_explanations_name_cpus_as_the_machine_does() {
    let scratch = ran();
    let history = scratch.run("explain run --events").exits_with(0).out;
    names_only_the_machines_own(&history, &[" cpu"]);
    let bound = history.lines().filter(|line| line.contains(" bound/")).filter(|line| line.contains(" cpu"));
    let on: BTreeSet<u64> = bound.flat_map(|line| numbers_after(line, " cpu")).collect();
    assert_eq!(on, BTreeSet::from([120]), "it may run on that CPU alone");
    names_only_the_machines_own(
        &scratch.run("explain run --events --json").exits_with(0).out,
        &["\"cpu\"", "\"from\"", "\"to\""],
    );
    let told = scratch.run("explain run --count 1000 --task free-0").exits_with(0).out;
    names_only_the_machines_own(&told, &[" cpu"]);
    assert!(numbers_after(&told, "node ").is_subset(&BTreeSet::from([40, 70])), "{told}");
    let json = scratch.run("explain run --count 1000 --task free-0 --json").exits_with(0).out;
    names_only_the_machines_own(&json, &["\"cpu\"", "\"decided_on\"", "\"waker_cpu\""]);
    assert!(numbers_after(&json, "\"node\"").is_subset(&BTreeSet::from([40, 70])));
    scratch.run("report run --events events.txt --perfetto trace.pftrace").exits_with(0);
    let events = read(&scratch, "events.txt");
    names_only_the_machines_own(&events, &[" cpu", "target_cpu=", "from_cpu=", "to_cpu="]);
    assert!(events.contains(" cpu121 hotplug online=0"));
}

#[test]
fn a_perfetto_trace_names_cpus_as_the_machine_does() {
    let scratch = ran();
    scratch.run("report run --perfetto trace.pftrace").exits_with(0);
    let trace = fs::read(scratch.path("trace.pftrace")).unwrap();
    let text = String::from_utf8_lossy(&trace);
    assert!(CPUS.iter().all(|cpu| text.contains(&format!("cpu{cpu} runnable"))) && !text.contains("cpu0 runnable"));
    assert!(text.contains("cpu121 goes offline"));
    let topology: Value = serde_json::from_str(&read(&scratch, "trace.topology.json")).unwrap();
    assert_eq!(topology["cpu"], serde_json::json!(CPUS));
    assert_eq!(topology["node"], serde_json::json!([40, 40, 40, 40, 70, 70]));
}

#[test]
fn figures_their_data_and_the_page_name_cpus_as_the_machine_does() {
    let scratch = ran();
    scratch.run("report run --svg figures --html page.html").exits_with(0);
    let mut columns = 0;
    for file in scratch.files("figures") {
        let text = read(&scratch, &format!("figures/{file}"));
        if file.ends_with(".svg") {
            let named = numbers_after(&text, ">cpu");
            assert!(named.is_subset(&BTreeSet::from(CPUS)), "{file}: {named:?}");
            continue;
        }
        let Some((heading, rows)) = text.split_once('\n').filter(|_| file.ends_with(".csv")) else { continue };
        for (column, name) in heading.trim().split(',').enumerate() {
            let allowed = match name {
                "cpu" => BTreeSet::from(CPUS),
                "node" => BTreeSet::from([40, 70]),
                _ => continue,
            };
            let cells = rows.lines().filter_map(|row| row.split(',').nth(column)?.parse().ok());
            let found: BTreeSet<u64> = cells.collect();
            assert!(!found.is_empty() && found.is_subset(&allowed), "{file}: {name}: {found:?}");
            columns += 1;
        }
    }
    assert!(columns >= 4, "{columns} columns of CPUs and nodes");
    let page = read(&scratch, "page.html");
    assert!(page.contains(r#""os":[101,103,110,111,120,121]"#) && page.contains(r#""node_os":[40,70]"#));
}
