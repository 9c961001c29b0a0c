//! `warmcore memory`: profiles and address traces on the exact level, and what is wrong with them.

use std::fs;

use crate::common::Scratch;

const TRACE: &str = "warmcore-address-trace 1\n0 W 1000 8\n1 R 1000 8 # from the other socket\n1 W 1000 8\n";

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("the output is JSON")
}

#[test]
fn a_text_trace_moves_a_line_between_sockets() {
    let scratch = Scratch::new();
    fs::write(scratch.path("trace.txt"), TRACE).unwrap();
    let ran = scratch.run("memory -m spr32 --trace trace.txt --cpus 0,40 --json").exits_with(0);
    let document = json(&ran.out);
    assert_eq!(document["schema"], "warmcore-memory-run-1");
    assert_eq!((&document["rows"][0]["dram_local"], &document["rows"][1]["cpu"]), (&1.into(), &40.into()));
    let transfers = &document["rows"][1]["transfers_by_relation"][0];
    assert_eq!(
        (&transfers["relation"], &transfers["reads"], &transfers["rfos"]),
        (&"other_socket".into(), &1.into(), &1.into())
    );
    let table = scratch.run("memory -m spr32 --trace trace.txt --cpus 0,40").exits_with(0).out;
    assert!(table.contains("lines from other LLCs: other socket, one hop: 1 read, 1 taken to write"), "{table}");
}

#[test]
fn lackeys_output_is_read_and_instructions_pass_an_l1_of_their_own() {
    let scratch = Scratch::new();
    fs::write(scratch.path("lackey"), "==1== Lackey\nI  04001090,3\n L 1ffeffe7e,8\n S 1ffeffe3e,8\n").unwrap();
    let ran = scratch.run("memory -m spr32 --trace lackey --json").exits_with(0);
    let row = &json(&ran.out)["rows"][0];
    assert_eq!((&row["accesses"], &row["touches"], &row["split_accesses"]), (&3.into(), &5.into(), &2.into()));
    assert!(!ran.error.contains("left out"), "{}", ran.error);
}

#[test]
fn profiles_run_and_the_number_of_threads_changes_nothing() {
    let scratch = Scratch::new();
    let words = "memory -m 2s1n2l2c1t --task verilator@0-7 --time 100us --warm-up 100us --json";
    let one = scratch.run(&format!("{words} --jobs 1")).exits_with(0).out;
    assert_eq!(scratch.run(&format!("{words} --jobs 2")).exits_with(0).out, one);
    let document = json(&one);
    assert_eq!(document["rows"].as_array().unwrap().len(), 8);
    assert!(document["rows"][0]["cross_llc_rfos"].as_u64().unwrap() > 0);
    assert!(scratch.run("list profiles").exits_with(0).out.contains("perlbench"));
}

#[test]
fn page_tables_are_walked_counted_and_charged_in_memory_run_and_in_whole_experiments() {
    let scratch = Scratch::new();
    let words = "memory -m 2s1n1l2c1t --task perlbench@0,1 --time 100us --warm-up 100us --pages page=4KiB,ram=4GiB";
    let row = |words: &str| json(&scratch.run(&format!("{words} --json")).exits_with(0).out)["rows"][0].clone();
    let walked = row(words);
    let tables = &walked["page_tables"];
    let count = |name: &str| tables[name].as_u64().unwrap();
    assert!(count("walks") > 1000 && count("accesses") >= 4 * count("walks"), "{tables}");
    assert!(walked["time_ns"]["page_walks"].as_f64().unwrap() > 1000.0);
    assert!(scratch.run(words).exits_with(0).out.contains("page tables of perlbench on CPU 0: "));
    let buffered = row(&format!("{words},tlb=1024"));
    assert!(buffered["page_tables"]["walks"].as_u64().unwrap() < count("walks") / 10);
    let without = row("memory -m 2s1n1l2c1t --task perlbench@0,1 --time 100us --warm-up 100us");
    assert!(without.get("page_tables").is_none() && without["time_ns"].get("page_walks").is_none());

    let compare = "compare -m 2s1n1l2c1t -w spin:-n4,-d3ms,--profile=perlbench -s eevdf,rr -n 1 --keep nothing --json";
    let split = |memory: &str| {
        let document = json(&scratch.run(&format!("{compare} --memory {memory}")).exits_with(0).out);
        let measure =
            document["measures"].as_array().unwrap().iter().any(|measure| measure["name"] == "page_walks_pki");
        (document["time_split"]["schedulers"][0]["shares"]["page_walks"].as_f64().unwrap_or(0.0), measure)
    };
    assert_eq!(split("exact"), (0.0, false));
    let (all, counted) = split("exact-paged");
    assert!(all > 0.02 && counted, "{all}");
    let (few, _) = split("exact-paged:tlb=1024,page=64KiB");
    assert!(few < all / 2.0, "{few} of {all}");
    assert!(split("exact-paged-by-address").0 > 0.02);
}

/// A kernel puts pages where they are touched: a task that is bound by its first call has them on that node, wherever it made the call.
#[test]
fn pages_are_on_the_node_where_a_task_first_works_not_where_it_was_bound() {
    let scratch = Scratch::new();
    let bound = |where_: &str, phase: &str| {
        format!(
            r#"{{ "tasks": {{ "s": {{ "instance": 1, "loop": 1{where_}, "phases": {{ "a": {{ "loop": 1, "run": 20000{phase} }} }} }} }},
            "warmcore": {{ "profiles": [ {{ "name": "st", "cpi0": 0.5, "mlp": 2,
            "classes": [ {{ "size": "1GiB", "touches_per_ki": 20, "write_fraction": 0.3 }} ] }} ], "tasks": {{ "s": {{ "profile": "st" }} }} }} }}"#
        )
    };
    scratch.write("task.json", &bound(r#", "cpus": [0]"#, ""));
    scratch.write("phase.json", &bound("", r#", "cpus": [0]"#));
    for memory in ["analytic", "exact"] {
        for seed in 1..=3 {
            let elapsed = |file: &str| {
                let words = format!(
                    "sim -m 2s1n1l30c1t@xeon60 -w {file} -s eevdf:numa_balancing=0 --memory {memory} --seed {seed} --json"
                );
                json(&scratch.run(&words).exits_with(0).out)["elapsed_ns"].as_f64().unwrap()
            };
            let (task, phase) = (elapsed("task.json"), elapsed("phase.json"));
            assert!(
                (phase / task - 1.0).abs() < 0.02,
                "{memory}, seed {seed}: {phase} ns, bound from the start {task} ns"
            );
        }
    }
}

#[test]
fn impossible_pages_and_memory_that_is_full_are_refused_with_what_to_try() {
    let scratch = Scratch::new();
    let run = "memory -m 1s1n1l2c1t --task perlbench@0 --time 1ms";
    let compare = "compare -m 1s1n1l2c1t -w spin:-n2,-d2ms,--profile=perlbench -s eevdf,rr -n 1 --keep nothing";
    let fails = |words: &str, complaint: &str| scratch.run(words).exits_with(2).complains(complaint).did_not_panic();
    for paged in [format!("{run} --pages "), format!("{compare} --memory exact-paged:")] {
        fails(&format!("{paged}page=2GiB,ram=1GiB"), "does not fit into the 1073741824 bytes");
        fails(&format!("{paged}page=6KiB"), "write a power of two of at least 4096");
        fails(&format!("{paged}page=4KiB,tlb=100"), "a translation buffer of 100 entries is impossible");
        fails(&format!("{paged}tbl=100"), "did you mean `tlb`?");
    }
    fails(&format!("{run} --pages ram=64KiB"), "give the machine more memory or the tasks less");
    fails(&format!("{run} --pages page=4KiB --sample 16"), "simulate every line");
    fails(&format!("{compare} --memory exact:page=4KiB"), "has no settings");
    scratch
        .run(&format!("{compare} --memory exact-paged:ram=64KiB"))
        .exits_with(1)
        .complains("give the machine more memory or the tasks less")
        .did_not_panic();
}

#[test]
fn what_cannot_be_run_is_said_and_why() {
    let scratch = Scratch::new();
    fs::write(scratch.path("trace.txt"), TRACE).unwrap();
    fs::write(scratch.path("short.txt"), &TRACE[..TRACE.len() - 3]).unwrap();
    fs::write(scratch.path("odd.txt"), "warmcore-address-trace 1\n0 R 1001 8\n").unwrap();
    let fails = |words: &str, complaint: &str| scratch.run(words).exits_with(2).complains(complaint);
    fails("memory -m spr32 --trace trace.txt", "name a CPU for every thread with --cpus");
    fails("memory -m spr32 --trace short.txt --cpus 0,1", "cut short");
    fails("memory -m spr32 --trace odd.txt", "--allow-unaligned");
    scratch.run("memory -m spr32 --trace odd.txt --allow-unaligned").exits_with(0);
    fails("memory -m spr32 --trace missing.txt", "cannot read missing.txt");
    fails("memory -m spr32 --trace trace.txt --cpus 0,1 --pages page=5KiB", "write a power of two");
    fails("memory -m spr32 --task nonsense@0", "`warmcore list profiles` lists");
    fails("memory -m spr32 --task perlbench@99", "has no CPU 99");
    fails("memory -m spr32 --task perlbench@0,0", "`0,0` names CPU 0 twice");
    fails("memory -m spr32 --trace trace.txt --cpus 0-1,1", "`0-1,1` names CPU 1 twice");
    fails("memory -m spr32 --task perlbench@", "has no members");
    fails("memory -m spr32 --task perlbench", "is not PROFILE@CPUS");
    fails("memory -m spr32 --task perlbench@0 --task spin@0", "is taken by task 0");
    fails("memory -m clx26 --task perlbench@0 --caches sets=address", "cannot be chosen by address bits");
}

#[test]
fn impossible_caches_are_refused() {
    let scratch = Scratch::new();
    let machine = |cache: &str| {
        format!(
            "name = \"m\"\n[topology]\norigin = \"given\"\nshape = \"1s1n1l1c1t\"\n[[cache]]\nlevel = 1\norigin = \"given\"\n{cache}\n"
        )
    };
    for (cache, complaint) in [
        ("size = \"1KiB\"\nways = 32", "not a whole number of sets"),
        ("size = \"32000B\"\nways = 8", "32000 bytes are not a whole number of sets of 8 lines of 64 bytes"),
        ("size = \"32KiB\"\nways = 0", "ways"),
        ("size = \"32KiB\"\nways = 8\nline = 48", "power of two"),
        ("size = \"32KiB\"\nways = 64", "at most 32"),
    ] {
        fs::write(scratch.path("m.toml"), machine(cache)).unwrap();
        scratch.run("memory -m m.toml --task spin@0 --time 1us --warm-up 1us").exits_with(2).complains(complaint);
    }
}

#[test]
fn the_memory_models_are_compared_demand_by_demand() {
    let scratch = Scratch::new();
    // Bit equality holds whatever the models' physics; two seeds, one line.
    let ran = scratch.run("validate memory x13 --quick --seeds 2 --json --out raw.csv").exits_with(0);
    let document = json(&ran.out);
    assert_eq!(document["schema"], "warmcore-memory-validation-1");
    assert_eq!((&document["inside"], &document["outside"]), (&1.into(), &0.into()));
    let line = &document["lines"][0];
    assert_eq!((&line["experiment"], &line["seeds_inside"]), (&"X13".into(), &2.into()));
    assert_eq!((&line["bound"], &line["measured"]), (&0.0.into(), &0.0.into()));
    let raw = fs::read_to_string(scratch.path("raw.csv")).unwrap();
    assert!(raw.starts_with("experiment,seed,quantity,at,exact,analytic\nX13,1,\"equal\",\"1 threads"), "{raw}");
    assert!(raw.lines().any(|line| line.starts_with("X13,2,")));
    scratch.run("validate memory X13 --quick --out raw.csv").exits_with(2).complains("raw.csv exists already");
    scratch.run("validate memory X99").exits_with(2).complains("there is no experiment `X99`");
    scratch.run("validate").exits_with(2).complains("EXPERIMENT");
}

#[test]
fn the_exit_code_of_validate_memory_says_whether_every_demand_is_met() {
    let scratch = Scratch::new();
    let ran = scratch.run("validate memory X9 --quick --seeds 1 --json");
    let document = json(&ran.out);
    let outside = document["outside"].as_u64().unwrap();
    assert_eq!(ran.code, Some(if outside == 0 { 0 } else { 3 }), "{}", ran.error);
    let table = scratch.run("validate memory X9 --quick --seeds 1").out;
    assert!(table.contains("GB/s, largest relative") && table.contains("seed"), "{table}");
}

#[test]
fn a_profile_is_fitted_to_counters_and_can_be_run() {
    let scratch = Scratch::new();
    let point = |capacity: &str, ways: u32, mpki: f64| {
        format!("[[point]]\ncapacity = \"{capacity}\"\nways = {ways}\nmpki = {mpki}\n")
    };
    let points =
        point("48KiB", 12, 22.0) + &point("512KiB", 8, 9.0) + &point("2MiB", 16, 5.5) + &point("60MiB", 15, 0.4);
    fs::write(scratch.path("counters.toml"), format!("name = \"mine\"\n{points}")).unwrap();
    let ran = scratch.run("workload fit counters.toml --out mine.toml").exits_with(0);
    ran.complains("no timing: cpi0 0.6 and mlp 2 are assumed");
    let words = "memory -m spr32 --profiles mine.toml --task mine@0 --time 100us --warm-up 100us";
    assert!(scratch.run(words).exits_with(0).out.contains("mine"));
    // Whatever takes a workload takes it: a generator's tasks and a file's can name it, and the run directory keeps it.
    let spin = "-w forkjoin:-n2,-i3,-w1ms,--profile=mine";
    scratch
        .run(&format!("compare -m spr32 {spin} -s eevdf,cfs --trials 1 --keep nothing"))
        .exits_with(2)
        .complains("no memory profile called");
    scratch
        .run(&format!("compare -m spr32 {spin} -s eevdf,cfs --trials 1 --profiles mine.toml --out run"))
        .exits_with(0);
    assert!(fs::read_to_string(scratch.path("run/workload.json")).unwrap().contains("\"mine\""));
    scratch.run("report run --html page.html").exits_with(0);
    assert!(
        scratch
            .run(&format!("sim -m spr32 {spin} -s eevdf --profiles mine.toml"))
            .exits_with(0)
            .error
            .contains("analytic memory")
    );
    scratch.run(&format!("sweep -m spr32 {spin} -s eevdf,cfs -n 1 --profiles mine.toml")).exits_with(0);
    let file = r#"{"tasks": {"t": {"loop": 2, "run": 1000}}, "warmcore": {"version": 1, "tasks": {"t": {"profile": "mine"}}}}"#;
    scratch.write("own.json", file);
    let written = scratch.run("workload convert own.json --profiles mine.toml").exits_with(0).out;
    assert!(written.contains("touches_per_ki"), "the profile is written with the workload: {written}");
    scratch.run("workload show own.json").exits_with(2).complains("mine");
    let unused = scratch.run("workload convert spin:-n1,-d1ms --profiles mine.toml").exits_with(0).out;
    assert!(!unused.contains("mine"), "a profile that nobody names is not kept");
    scratch
        .run(&format!("sim -m spr32 {spin} -s eevdf --profiles counters.toml"))
        .exits_with(2)
        .complains("counters.toml");
    fs::write(scratch.path("bad.toml"), format!("name = \"x\"\n{}", point("48KiB", 12, 22.0))).unwrap();
    scratch.run("workload fit bad.toml").exits_with(2).complains("1 cache sizes are too few");
    scratch.run("workload fit missing.toml").exits_with(2).complains("cannot read missing.toml");
}

#[test]
fn exact_memory_says_which_lines_it_prices_too_cheaply_and_of_no_others() {
    let scratch = Scratch::new();
    let told = |size: &str, instances: u32, level: &str| {
        let class = format!(
            r#"{{ "name": "flag", "size": "{size}", "touches_per_ki": 20, "write_fraction": 1, "sharing": "process" }}"#
        );
        let text = format!(
            r#"{{ "tasks": {{ "a": {{ "instance": {instances}, "loop": 1, "run": 200 }} }}, "warmcore": {{ "tasks": {{ "a": {{ "profile": "p" }} }},
                "profiles": [ {{ "name": "p", "cpi0": 1, "mlp": 1, "classes": [ {class} ] }} ] }} }}"#
        );
        scratch.write("flag.json", &text);
        let words = format!("compare -m 2s1n1l2c1t -w flag.json -s eevdf,fifo -n 2 --keep nothing --memory {level}");
        scratch.run(&words).exits_with(0).out.contains("exact memory prices the")
    };
    assert!(told("64", 2, "exact"));
    assert!(!told("64", 2, "analytic") && !told("64", 1, "exact") && !told("1MiB", 2, "exact"));
}
