//! Four users with their own files, from the first command to the sentence, figure or table they came for. The same stories go on in the
//! page in `web/test/stories.test.mjs`.

use std::fs;

use crate::common::Scratch;
use serde_json::Value;

fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A performance engineer with a Genoa server: counters of a service, and the question whether cache-aware scheduling helps it there.
#[test]
fn counters_of_a_service_become_a_profile_a_workload_and_an_answer_for_a_server() {
    let scratch = Scratch::new();
    scratch.write(
        "counters.toml",
        "name = \"service\"\n\n[[point]]\ncapacity = \"32KiB\"\nways = 8\nmpki = 22.0\n\n[[point]]\ncapacity = \"1MiB\"\nways = 8\nmpki = 9.0\n\n\
         [[point]]\ncapacity = \"32MiB\"\nways = 16\nmpki = 2.5\n",
    );
    scratch.run("workload fit counters.toml --out service.toml").exits_with(0);
    let service = r#"{ "tasks": { "worker": { "instance": 6, "loop": 40, "run": 500, "sleep": 500 } },
                       "warmcore": { "tasks": { "worker": { "profile": "service" } } } }"#;
    scratch.write("service.json", service);
    // Without the profile the file means nothing, and the error says so.
    scratch.run("workload show service.json").exits_with(2).complains("service");
    let words = "compare -m genoa96 -w service.json --profiles service.toml -s eevdf,cache-aware --trials 8 --keep run --out run";
    let ran = scratch.run(words).exits_with(0);
    let answer = words_of(&ran.out);
    let document: Value = serde_json::from_str(&fs::read_to_string(scratch.path("run/verdict.json")).unwrap()).unwrap();
    let sentence = document["verdict"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("cache-aware") && answer.contains(&words_of(sentence)), "{}", ran.out);
    // The caches of the profile are in the answer: what the memory took of the time.
    let split = &document["time_split"]["schedulers"][0]["shares"];
    assert!(split["dram_local"].as_f64().unwrap() > 0.01, "{split}");
    assert!(ran.out.contains("memory of the own node"), "{}", ran.out);
    assert!(!ran.error.contains("generic"), "the costs are those of the preset: {}", ran.error);
}

/// Files of `/sys` of a computer with an EPYC 9654 and two LLCs of two cores, as a user copies them from a server.
fn write_snapshot(scratch: &Scratch) {
    let write = |name: &str, text: &str| {
        let path = scratch.path(&format!("server/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    write("proc/cpuinfo", "processor : 0\nmodel name : AMD EPYC 9654 96-Core Processor");
    for list in ["online", "possible", "present"] {
        write(&format!("sys/devices/system/cpu/{list}"), "0-3");
    }
    for cpu in 0..4 {
        let of = |name: &str| format!("sys/devices/system/cpu/cpu{cpu}/{name}");
        let llc = if cpu < 2 { "0-1" } else { "2-3" };
        write(&of("topology/core_id"), &cpu.to_string());
        write(&of("topology/physical_package_id"), "0");
        write(&of("topology/core_cpus_list"), &cpu.to_string());
        write(&of("topology/thread_siblings_list"), &cpu.to_string());
        let own = cpu.to_string();
        let caches =
            [(1, "Data", "32K", 8, own.as_str()), (2, "Unified", "1024K", 8, &own), (3, "Unified", "32768K", 16, llc)];
        for (index, (level, kind, size, ways, shared)) in caches.into_iter().enumerate() {
            let of = |name: &str| of(&format!("cache/index{index}/{name}"));
            write(&of("level"), &level.to_string());
            write(&of("type"), kind);
            write(&of("size"), size);
            write(&of("ways_of_associativity"), &ways.to_string());
            write(&of("coherency_line_size"), "64");
            write(&of("shared_cpu_list"), shared);
        }
    }
    write("sys/devices/system/node/online", "0");
    write("sys/devices/system/node/node0/cpulist", "0-3");
    write("sys/devices/system/node/node0/distance", "10");
    write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 16777216 kB");
}

/// A kernel developer with a server's `/sys`: what a scheduler does on that machine, as a figure for a paper.
#[test]
fn a_copied_sys_tree_becomes_a_machine_with_its_models_costs_a_verdict_and_a_figure() {
    let scratch = Scratch::new();
    write_snapshot(&scratch);
    let shown: Value = serde_json::from_str(&scratch.run("machine show server --json").exits_with(0).out).unwrap();
    let llcs: Vec<u64> = shown["cpus"].as_array().unwrap().iter().map(|cpu| cpu["llc"].as_u64().unwrap()).collect();
    assert_eq!(llcs, [0, 0, 1, 1]);
    let preset: Value = serde_json::from_str(&scratch.run("machine show genoa96 --json").exits_with(0).out).unwrap();
    let cost = |machine: &Value| {
        let toml = machine["toml"].as_str().unwrap().to_owned();
        toml.lines().find(|line| line.starts_with("context_switch_ns")).map(str::to_owned)
    };
    assert_eq!(cost(&shown), cost(&preset), "the costs of the preset that fits the CPU model");
    let words = "compare -m server -w hackbench:-T,-p,-f2,-g2,-l30 -s eevdf,eevdf:base_slice_ns=400us,ule --trials 8 --keep run --out run";
    let ran = scratch.run(words).exits_with(0);
    assert!(words_of(&ran.out).contains("8 paired trials, lower is better."), "{}", ran.out);
    assert!(!ran.error.contains("generic"), "{}", ran.error);
    scratch.run("report run --figure ratio:85mm --svg ratio.svg --pdf ratio.pdf").exits_with(0);
    let svg = fs::read_to_string(scratch.path("ratio.svg")).unwrap();
    assert!(svg.contains("width=\"85mm\"") && svg.contains("ratio to the baseline"), "{}", &svg[..200]);
    let pdf = fs::read(scratch.path("ratio.pdf")).unwrap();
    let text = String::from_utf8_lossy(&pdf);
    // 85 mm in points.
    assert!(text.starts_with("%PDF-1.4") && text.contains("/MediaBox [0 0 240.9449 "), "{}", text.len());
    // The machine as a file of its own gives the same answer.
    scratch.run("machine convert server --out server.toml").exits_with(0);
    let again = scratch
        .run(&words.replace("-m server", "-m server.toml").replace("--keep run --out run", "--keep nothing"))
        .exits_with(0);
    assert_eq!(again.out, ran.out);
}

/// A researcher with an rt-app file that has a typo, and a task that does not stay where it was put.
#[test]
fn a_typo_in_a_workload_is_named_with_what_was_meant_and_the_mended_file_is_explained() {
    let scratch = Scratch::new();
    let text = |sleep: &str| {
        format!(
            r#"{{ "tasks": {{ "worker": {{ "instance": 6, "loop": 40, "run": 800, "{sleep}": 1200 }},
                              "batch": {{ "instance": 2, "loop": 20, "run": 3000 }} }} }}"#
        )
    };
    scratch.write("mine.json", &text("slepp"));
    let words = "compare -m 2s1n1l2c1t -w mine.json --strict -s cfs,eevdf --trials 8 --keep run --out run";
    let refused = scratch.run(words).exits_with(2).complains("\"slepp\"").complains("did you mean \"sleep\"?");
    assert!(!scratch.path("run").exists() && refused.out.is_empty());
    scratch.write("mine.json", &text("sleep"));
    scratch.run(words).exits_with(0);
    // Somebody of worker was moved by the balancer: the explanation has who, from where to where, and on what grounds.
    let told = scratch.run("explain run --scheduler eevdf --count 1000").exits_with(0).out;
    let moves: Vec<&str> = told.split(" moved from ").skip(1).collect();
    let pulled = moves.iter().find(|told| told.contains("decision: balance")).expect("the balancer moves somebody");
    for words in [
        "  by:       cpu",
        "  gives:    ",
        "  receives: ",
        "  imbalance: ",
        "imbalance_pct ",
        "  task:     utilisation ",
    ] {
        assert!(pulled.contains(words), "{words} is missing: {pulled}");
    }
    let json = scratch.run("explain run --scheduler eevdf --count 1000 --json").exits_with(0).out;
    let document: Value = serde_json::from_str(&json).unwrap();
    let migrations = document["schedulers"][0]["migrations"].as_array().unwrap();
    assert_eq!(migrations.len(), moves.len());
    let balanced = migrations.iter().filter(|migration| migration["kind"] == "balance");
    let names = |migration: &Value| {
        let details = migration["details"].as_array().unwrap();
        details.iter().map(|detail| detail["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for migration in balanced {
        for name in ["busiest_group_type", "local_group_type", "imbalance", "busiest_utilisation", "imbalance_pct"] {
            assert!(names(migration).iter().any(|found| found == name), "{name}: {migration}");
        }
    }
}

/// A teacher with three tasks and one core.
#[test]
fn three_tasks_become_a_page_for_a_class_with_a_chart_and_a_sentence_for_each_choice() {
    let scratch = Scratch::new();
    scratch.write(
        "three.json",
        r#"{ "tasks": { "mother": { "loop": 30, "run": 2000 }, "child": { "loop": 30, "run": 2000 },
                        "cat": { "loop": 10, "run": 500, "sleep": 6000 } } }"#,
    );
    scratch.run("compare -m 1s1n1l1c1t -w three.json -s eevdf,cfs --trials 1 --keep run --out run").exits_with(0);
    scratch.run("report run --lesson lesson.html").exits_with(0);
    let page = fs::read_to_string(scratch.path("lesson.html")).unwrap();
    assert_eq!(page.matches("<svg").count() % 2, 0, "as many charts for one scheduler as for the other");
    for word in ["mother", "child", "cat", "eevdf", "cfs"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(page.matches("<tr").count() > 8, "choices in a table");
}
