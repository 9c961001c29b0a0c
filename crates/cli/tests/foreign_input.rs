//! Machines and workloads of other people: files that are longer, older, stranger or more hostile than ours.
#![allow(missing_docs, reason = "tests")]

use std::path::Path;

use crate::common::{Scratch, WORKLOAD};

fn corpus(machine: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/machines").join(machine).display().to_string()
}

#[test]
fn what_a_machine_reader_assumed_is_said_on_standard_error() {
    let scratch = Scratch::new();
    for verb in ["machine show --toml", "machine convert --to xml"] {
        let ran = scratch.run(&format!("{verb} {}", corpus("four-threads-without-packages"))).exits_with(0);
        ran.complains("warning: no package is described: each NUMA node counts as a socket");
    }
    // What a preset says about itself is no warning.
    assert_eq!(scratch.run("machine show hygon384").exits_with(0).error, "");
}

#[test]
fn a_run_says_once_what_the_reader_of_its_machine_assumed() {
    let scratch = Scratch::new();
    let machine = corpus("four-threads-without-packages");
    for words in [
        format!("sim -m {machine} -w spin:-n2,-d1ms -s eevdf"),
        format!("compare -m {machine} -w spin:-n2,-d1ms -s eevdf,rr --trials 2 --keep nothing"),
        format!("sweep -m {machine} -w spin:-n2,-d1ms -w spin:-n3,-d1ms -s eevdf,rr -n 2"),
    ] {
        let ran = scratch.run(&words).exits_with(0);
        assert_eq!(ran.error.matches("no package is described").count(), 1, "{words}: {}", ran.error);
    }
}

/// A machine with an L3 of a size that its ways do not divide by far.
const ODD_CACHE: &str =
    "[topology]\nshape = \"4c\"\n[[cache]]\nlevel = 3\nshared_by = \"llc\"\nsize = \"40KiB\"\nways = 7\n";

#[test]
fn a_machine_the_memory_model_refuses_is_simulated_without_it_unless_it_was_asked_for() {
    let scratch = Scratch::new();
    scratch.write("odd.toml", ODD_CACHE);
    let words = "sim --machine ./odd.toml --workload spin:-n2,-d10ms --scheduler eevdf";
    let ran = scratch.run(words).exits_with(0);
    ran.complains("the memory profiles have no effect, as with `--memory none`");
    let ran = scratch.run(&format!("{words} --memory analytic")).exits_with(2);
    ran.complains("not a whole number of sets").complains("`--memory none` simulates this machine");
    assert!(!scratch.run(&format!("{words} --memory none")).exits_with(0).error.contains("no effect"));
}

/// What rt-app's own code does: the name of `suspend` is a condition, on which several tasks may wait.
#[test]
fn tasks_are_suspended_and_resumed_by_any_name() {
    let scratch = Scratch::new();
    scratch.write(
        "vsync.json",
        r#"{ "tasks": { "A": { "loop": 10, "suspend": "vsync", "run": 1000 },
                        "B": { "loop": 10, "suspend": "vsync", "run": 1000 },
                        "C": { "loop": 10, "sleep": 5000, "resume": "vsync" } } }"#,
    );
    let ran = scratch.run("sim --machine 2c --workload vsync.json --scheduler eevdf --strict --json").exits_with(0);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let work = document["measures"]["work_ns"].as_f64().unwrap();
    assert_eq!(work, 20e6, "both run at each of ten resumes");
}

#[test]
fn an_endless_workload_is_refused() {
    let ran = Scratch::new().run("workload show /dev/zero").exits_with(2);
    ran.complains("it is a device, and no file");
}

#[test]
fn a_run_of_no_length_is_refused() {
    Scratch::new()
        .run("sim --machine 2c --workload spin:-d0s --scheduler eevdf")
        .exits_with(2)
        .complains("longer than 0");
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let scratch = Scratch::new();
    scratch
        .write("evil.json", r#"{ "tasks": { "a\u001b]0;title\u0007": { "loop": 1, "run": 10, "exec\u001bc": 1 } } }"#);
    scratch.write("evil.toml", "name = \"m\\u001b[2J\"\nnotes = [\"n\\u0007\"]\n[topology]\nshape = \"2c\"\n");
    let shown = [
        scratch.run("--color always workload show evil.json"),
        scratch.run("machine show ./evil.toml"),
        scratch.run("--color always workload run evil.json"),
        scratch.run("sim --machine ./evil.toml --workload evil.json --scheduler eevdf"),
    ];
    for ran in shown {
        let ran = ran.exits_with(0);
        let orders = |text: &str| text.contains(|c: char| c.is_control() && c != '\n' && c != '\t');
        assert!(!orders(&ran.out) && !orders(&ran.error), "{:?}\n{:?}", ran.out, ran.error);
    }
    assert!(scratch.run("workload show evil.json").out.contains("a\\u{1b}]0;title\\u{7}"));
}

#[test]
fn a_workload_on_this_computer_says_its_warnings_once() {
    let scratch = Scratch::new();
    let ran = scratch.run("workload run schbench:-t1,-r100ms").exits_with(0);
    assert_eq!(ran.error.matches("no spinlock is held").count(), 1, "{}", ran.error);
    ran.complains("a multiplication and addition of schbench takes");
}

#[test]
fn the_work_of_schbench_is_counted_in_the_machines_own_multiplications() {
    let scratch = Scratch::new();
    let machine = |costs: &str| format!("[topology]\nshape = \"2c\"\n{costs}");
    scratch.write("silent.toml", &machine(""));
    scratch.write("fast.toml", &machine("[costs]\norigin = \"measured\"\nmultiply_add_ns = 0.75\n"));
    scratch.write("none.toml", &machine("[costs]\nmultiply_add_ns = 0\n"));
    // 5 products of matrices of 104 by 104: 3 and 0.75 ns for each of 5.6 million multiplications.
    let request_ns = |machine: &str| {
        let words = "schbench:-t1,-r200ms,-C,-L --scheduler eevdf --memory none --json";
        let ran = scratch.run(&format!("sim --machine ./{machine}.toml --workload {words}")).exits_with(0);
        let document: serde_json::Value = serde_json::from_str(&ran.out).expect("one document");
        document["measures"]["recorder_request_latency_p50_ns"].as_f64().expect("requests")
    };
    let ratio = request_ns("silent") / request_ns("fast");
    assert!((ratio - 4.0).abs() < 0.1, "{ratio}");
    let toml = scratch.run("machine show --toml fast.toml").exits_with(0).out;
    assert!(toml.contains("multiply_add_ns") && toml.contains("0.75"), "{toml}");
    assert!(!scratch.run("machine show --toml silent.toml").exits_with(0).out.contains("multiply_add_ns"));
    scratch.run("machine show none.toml").exits_with(2).complains("nanoseconds above 0");
}

#[test]
fn counters_that_no_profile_explains_end_with_a_failed_check() {
    let scratch = Scratch::new();
    scratch.write(
        "counters.toml",
        "name = \"x\"\n[[point]]\ncapacity = \"1MiB\"\nways = 16\nmpki = 200.0\n\
         [[point]]\ncapacity = \"1040KiB\"\nways = 16\nmpki = 0.01\n\
         [[point]]\ncapacity = \"32MiB\"\nways = 16\nmpki = 0.01\n",
    );
    scratch.run("workload fit counters.toml").exits_with(3).complains("misses per 1000 instructions in a cache of");
}

#[test]
fn a_sys_tree_takes_the_costs_of_its_cpu_model_s_preset_or_the_verdict_says_that_they_are_generic() {
    let scratch = Scratch::new();
    let lay_out = |file: &str, text: &str| {
        let path = scratch.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for cpu in 0..4 {
        let topology = format!("tree/sys/devices/system/cpu/cpu{cpu}/topology");
        lay_out(&format!("{topology}/core_id"), &cpu.to_string());
        lay_out(&format!("{topology}/physical_package_id"), "0");
        lay_out(&format!("{topology}/thread_siblings_list"), &cpu.to_string());
        let cache = format!("tree/sys/devices/system/cpu/cpu{cpu}/cache/index3");
        for (file, text) in [("level", "3"), ("type", "Unified"), ("size", "32768K"), ("shared_cpu_list", "0-3")] {
            lay_out(&format!("{cache}/{file}"), text);
        }
    }
    lay_out("tree/sys/devices/system/cpu/online", "0-3");
    lay_out("tree/sys/devices/system/cpu/possible", "0-3");
    let compare = |machine: &str| {
        let words =
            format!("compare -m {machine} -w {WORKLOAD} -s cfs,eevdf --trials 1 --keep nothing --json --memory none");
        let ran = scratch.run(&words).exits_with(0);
        let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let elapsed = document["schedulers"][0]["measures"]["hackbench_time_ns"]["points"][0].as_f64().unwrap();
        (elapsed, document["warnings"].to_string(), ran)
    };
    let (generic, warnings, _) = compare("tree");
    assert!(warnings.contains("costs of tree are generic"), "{warnings}");
    lay_out(
        "tree/proc/cpuinfo",
        "processor	: 0
model name	: AMD EPYC 9354 32-Core Processor
",
    );
    let (fitting, warnings, ran) = compare("tree");
    assert!(!warnings.contains("generic"), "{warnings}");
    ran.complains("those of genoa96: the CPU model is AMD EPYC 9354");
    assert_ne!(generic, fitting);
    assert_eq!(compare("tree@genoa96").0, fitting);
    assert_ne!(compare("tree@milan64").0, fitting);
    scratch.run("machine convert tree --to snapshot --out copy").exits_with(0);
    assert_eq!(compare("copy").0, fitting, "a snapshot keeps the model's name");
    scratch
        .run(&format!("compare -m tree@nothing -w {WORKLOAD} -s cfs --keep nothing"))
        .exits_with(2)
        .complains("nothing");
}
