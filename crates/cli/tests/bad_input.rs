//! Bad input of every kind ends with the documented exit code and a message that says what, where and what to try.

use crate::common::{MACHINE, Scratch, WORKLOAD};

/// Runs `sim` with a machine, a workload and a scheduler, and expects exit code 2 with a text.
#[track_caller]
fn refused(scratch: &Scratch, machine: &str, workload: &str, scheduler: &str, text: &str) {
    let words = format!("sim --machine {machine} --workload {workload} --scheduler {scheduler}");
    scratch.run(&words).did_not_panic().exits_with(2).complains(text);
}

#[test]
fn a_malformed_machine_file_is_named_with_its_line() {
    let scratch = Scratch::new();
    scratch.write("bad.toml", "name = \"x\"\n[[[\n");
    refused(&scratch, "bad.toml", WORKLOAD, "rr", "bad.toml:2");
    scratch.write("bad.xml", "<topology><object type=\"Machine\">");
    refused(&scratch, "bad.xml", WORKLOAD, "rr", "bad.xml");
    scratch.write("empty.toml", "");
    refused(&scratch, "empty.toml", WORKLOAD, "rr", "empty.toml");
}

#[test]
fn what_is_not_there_is_named_with_the_nearest_name_or_the_range() {
    let scratch = Scratch::new();
    for (machine, workload, scheduler, text) in [
        ("genoa69", WORKLOAD, "rr", "genoa96"),
        ("0s1n1l1c1t", WORKLOAD, "rr", "0s1n1l1c1t"),
        (MACHINE, "missing.json", "rr", "missing.json"),
        ("missing.toml", WORKLOAD, "rr", "missing.toml"),
        (MACHINE, "hackbnech:-T", "rr", "did you mean \"hackbench\""),
        (MACHINE, "hackbench:--thread,--grups=1", "rr", "--groups"),
        (MACHINE, WORKLOAD, "eevfd", "did you mean `eevdf`"),
        (MACHINE, WORKLOAD, "eevdf:base_slice=1000000", "did you mean `base_slice_ns`"),
        (MACHINE, WORKLOAD, "eevdf:hz=1", "100 to 1000"),
    ] {
        refused(&scratch, machine, workload, scheduler, text);
    }
}

#[test]
fn a_profile_is_not_assumed_where_it_would_change_nothing() {
    let scratch = Scratch::new();
    scratch.write("w.json", r#"{"tasks": {"a": {"loop": 9, "run": 1000}}}"#);
    let compare = "compare -m 1s1n2l2c1t -w w.json -s eevdf,cache-aware -n 1 --keep nothing --assume-profile canneal";
    scratch.run(compare).exits_with(0);
    scratch.run(&format!("{compare} --memory none")).exits_with(2).complains("--memory none models no memory");
    scratch.run(&format!("{compare} --on vm")).exits_with(2).complains("the memory that there is");
    scratch
        .run("sim -m 1s1n2l2c1t -w w.json -s eevdf --memory none --assume-profile canneal")
        .exits_with(2)
        .complains("has no effect");
    scratch
        .run("compare -m 1s1n2l2c1t -w w.json -s eevdf,cfs --assume-profile cannel")
        .exits_with(2)
        .complains("canneal");
    let has_its_own = "compare -m 1s1n2l2c1t -w verilator:-t2 -s eevdf,cfs --assume-profile canneal";
    scratch.run(has_its_own).exits_with(2).complains("nothing to assume");
}

#[test]
fn a_malformed_workload_file_is_named_with_its_line() {
    let scratch = Scratch::new();
    scratch.write("bad.json", "{ \"tasks\": {\n  \"a\": { \"run\" 5 } } }");
    refused(&scratch, MACHINE, "bad.json", "rr", "line 2");
    scratch.write("event.json", r#"{ "tasks": { "a": { "loop": 1, "run": "soon" } } }"#);
    refused(&scratch, MACHINE, "event.json", "rr", "tasks.a");
}

#[test]
fn a_duration_without_unit_is_refused_with_a_suggestion() {
    let scratch = Scratch::new();
    refused(&scratch, MACHINE, "spin:-n2,-d3", "rr", "unit");
    let words = format!("sim -m {MACHINE} -w {WORKLOAD} -s rr --max-time 5");
    scratch.run(&words).exits_with(2).complains("it has no unit");
}

/// What the paper's schedulers can be told: a wrong profile, kernel or tunable names what there is, and what a kernel cannot have is said.
#[test]
fn profiles_and_kernels_are_told_what_there_is() {
    let scratch = Scratch::new();
    let said = |scheduler: &str, text: &str| refused(&scratch, MACHINE, WORKLOAD, scheduler, text);
    said("ule:profile=freebsd12", "it takes freebsd11 (0) or paper-port (1)");
    said("ule:profile=", "it takes freebsd11 (0)");
    said("ule:profil=modern", "did you mean `profile`");
    said("ule:profile=modern,profile=freebsd11", "set twice");
    said("ule:slice=-1", "it takes 0 to");
    said("ule:interact=101", "it takes 0 to 100");
    said("cfs:kernel=4.8", "it takes 6.5 (0) or 4.9 (1)");
    said("cfs:kernel=4.9,imbalance_pct=110", "the least value is 125 there");
}

#[test]
fn counts_of_tasks_and_cores_are_told_their_range() {
    let scratch = Scratch::new();
    refused(&scratch, MACHINE, "spin:-n0,-d1s", "ule", "1 to 1000000");
    refused(&scratch, MACHINE, "spin:-n5000000000,-d1s", "ule", "1 to 1000000");
    refused(&scratch, MACHINE, "spin:-n600000,-d1ms+spin:-n600000,-d1ms", "ule", "at most 1000000 are possible");
    scratch.write("many.json", r#"{ "tasks": { "a": { "instance": 5000000000, "loop": 1, "run": 100 } } }"#);
    refused(&scratch, MACHINE, "many.json", "ule", "tasks.a.instance: 5000000000 is out of range");
    refused(&scratch, "1s1n1l0c1t", WORKLOAD, "ule", "every count is at least 1");
    scratch.write("none.toml", "name = \"none\"\n[topology]\nshape = \"1s1n1l0c1t\"\n");
    refused(&scratch, "none.toml", WORKLOAD, "ule", "every count is at least 1");
}

#[test]
fn nice_values_beyond_the_range_are_refused_wherever_they_stand() {
    let scratch = Scratch::new();
    refused(&scratch, MACHINE, "spin:-n2,-N-21,-d1s", "ule", "−20 to 19");
    let file = |rest: &str| format!(r#"{{ "tasks": {{ "a": {{ "loop": 1, "run": 100{rest} }} }}"#);
    scratch.write("rtapp.json", &(file(r#", "priority": 25"#) + " }"));
    refused(&scratch, MACHINE, "rtapp.json", "ule", "tasks.a.priority: 25 is out of range");
    let ours = |task: &str| file("") + r#", "warmcore": { "version": 1, "tasks": { "a": { "# + task + " } } } }";
    scratch.write("task.json", &ours(r#""nice": -21"#));
    refused(&scratch, MACHINE, "task.json", "ule", "warmcore.tasks.a.nice: -21 is out of range");
    scratch.write("step.json", &ours(r#""program": [{ "nice": 20 }, { "run_ns": 5 }]"#));
    refused(&scratch, MACHINE, "step.json", "ule", "program[0].nice: 20 is out of range");
}

#[test]
fn what_is_not_modelled_is_a_warning_and_with_strict_an_error() {
    let scratch = Scratch::new();
    let words = format!("sim -m {MACHINE} -w schbench:-m1,-t2,-r1 -s eevdf");
    scratch.run(&words).exits_with(0).complains("warning:").complains("is not modelled");
    scratch.run(&format!("{words} --strict")).exits_with(2).complains("not modelled").complains("--strict");
    // A scheduler that knows no nice values, and ones that know them.
    let compare = |schedulers: &str, nice: &str| {
        let words = format!("compare -m {MACHINE} -w spin:-n2,-N{nice},-d20ms -n 1 --keep nothing");
        scratch.run(&format!("{words} -s {schedulers} --strict"))
    };
    for other in ["fifo", "rr", "random"] {
        let refused = compare(&format!("eevdf,{other}"), "0:5").exits_with(2);
        refused.complains(&format!("of {other}, it knows neither nice values nor SCHED_IDLE"));
    }
    compare("eevdf,cfs,ule", "0:5").exits_with(0);
    compare("eevdf,rr", "0:0").exits_with(0);
    // A scheduler that knows no task groups, and one that knows them.
    let limited = r#"{ "tasks": { "a": { "instance": 0 } }, "warmcore": { "groups": [ { "name": "/g", "cpu_max": "20000" } ],
        "tasks": { "a": { "instances": 2, "taskgroup": "/g", "program": [ { "run_ns": 30000000 } ] } } } }"#;
    scratch.write("limited.json", limited);
    let sim = format!("sim -m {MACHINE} -w limited.json");
    scratch.run(&format!("{sim} -s ule")).exits_with(0).complains("warning: of ule, it knows no task groups");
    let sweep =
        format!("sweep -m {MACHINE},1s1n1l4c1t -w limited.json -w spin:-n2,-N0:5,-d20ms -s eevdf,ule,fifo -n 1");
    let said = scratch.run(&sweep).exits_with(0).error.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in
        ["limited.json: of ule, it knows no task groups", "of fifo, it knows neither nice values nor SCHED_IDLE"]
    {
        assert_eq!(said.matches(told).count(), 1, "once for all machines: {said}");
    }
    for words in [
        format!("{sim} -s ule"),
        format!("compare -m {MACHINE} -w limited.json -s eevdf,ule -n 1 --keep nothing"),
        format!("sweep -m {MACHINE} -w limited.json -s eevdf,ule -n 1"),
    ] {
        scratch
            .run(&format!("{words} --strict"))
            .exits_with(2)
            .complains("of ule, it knows no task groups")
            .complains("/g");
    }
    scratch.run(&format!("{sim} -s eevdf --strict")).exits_with(0);
}

#[test]
fn a_task_that_may_run_nowhere_is_refused_before_anything_runs() {
    let scratch = Scratch::new();
    scratch.write("pinned.json", r#"{ "tasks": { "a": { "loop": 1, "cpus": [99], "run": 10 } } }"#);
    refused(&scratch, MACHINE, "pinned.json", "rr", "99");
}

#[test]
fn memory_on_nodes_that_the_machine_lacks_is_refused_at_every_level() {
    let scratch = Scratch::new();
    scratch.write(
        "far.json",
        r#"{ "tasks": { "a": { "loop": 1, "run": 1000 } }, "warmcore": { "tasks": { "a": { "profile": "p" } }, "profiles": [
            { "name": "p", "cpi0": 1, "mlp": 1, "classes": [ { "size": "1MiB", "touches_per_ki": 20, "home": [0, 0, 0, 1] } ] } ] } }"#,
    );
    for level in ["analytic", "exact"] {
        let words = format!("sim -m 2s1n1l2c1t -w far.json -s eevdf --memory {level}");
        let ran = scratch.run(&words).did_not_panic().exits_with(2);
        ran.complains("it has home shares for 4 nodes, but the machine has 2");
    }
}

#[test]
fn a_deadlock_is_an_error_that_says_who_waits_for_what() {
    let scratch = Scratch::new();
    // Each holds one lock and wants the other.
    scratch.write(
        "deadlock.json",
        r#"{ "tasks": {
            "left":  { "loop": 1, "lock": "a", "run": 100, "sleep": 1000, "lock0": "b", "unlock": "b", "unlock0": "a" },
            "right": { "loop": 1, "lock": "b", "run": 100, "sleep": 1000, "lock0": "a", "unlock": "a", "unlock0": "b" }
        } }"#,
    );
    let ran = scratch.run(&format!("sim -m {MACHINE} -w deadlock.json -s eevdf")).did_not_panic();
    let ran = ran.exits_with(1).complains("deadlock");
    assert!(ran.error.contains("left") && ran.error.contains("right"), "{}", ran.error);
}

#[test]
fn a_workload_without_end_is_bounded_by_max_time() {
    let scratch = Scratch::new();
    scratch.write("endless.json", r#"{ "tasks": { "a": { "loop": -1, "run": 100, "sleep": 100 } } }"#);
    let ran = scratch.run(&format!("sim -m {MACHINE} -w endless.json -s eevdf --max-time 50ms --json")).exits_with(0);
    assert!(ran.out.contains("\"end\": \"time_limit\""), "{}", ran.out);
}

#[test]
fn experiments_that_make_no_sense_are_refused() {
    let scratch = Scratch::new();
    let compare = |rest: &str| scratch.run(&format!("compare -m {MACHINE} -w {WORKLOAD} --keep nothing {rest}"));
    compare("-s rr,rr").exits_with(2).complains("twice");
    compare("-s rr --dry-run").exits_with(2).complains("`--on host:dry-run` now");
    compare("-s rr,cfs --baseline eevdf").exits_with(2).complains("not among --schedulers");
    compare("-s rr,,cfs").exits_with(2).complains("there is no scheduler");
    compare("-s rr,cfs --metric speed").exits_with(2).complains("there is no metric `speed`");
    let ran = compare("-s rr,cfs --metric p99").exits_with(2).complains("wakeup_p99_ns");
    assert!(ran.error.len() < 500, "a few names that are similar, not all: {}", ran.error);
    compare("-s rr,cfs --max-time 0s").exits_with(2).complains("not longer than 0");
    scratch.run(&format!("sim -m {MACHINE} -w {WORKLOAD} -s rr --max-time 0ms")).exits_with(2);
    compare("-s rr,cfs --metric wakeup_p99_ns --trace none").exits_with(2).complains("nothing is recorded");
    compare("-s rr,cfs --trials 0").exits_with(2);
    compare("-s rr,cfs --seed -1").exits_with(2);
    compare("-s rr,cfs --jobs 0").exits_with(2);
}

#[test]
fn bad_usage_exits_with_two_and_help_with_zero() {
    let scratch = Scratch::new();
    scratch.run("").exits_with(2);
    scratch.run("conpare").exits_with(2).complains("compare");
    scratch.run("compare --machine").exits_with(2);
    scratch.run("--help").exits_with(0);
    scratch.run("compare --help").exits_with(0);
    scratch.run("--version").exits_with(0);
}

#[test]
fn a_machine_that_cannot_be_detected_is_said_so() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("empty")).unwrap();
    scratch.run("machine show empty").did_not_panic().exits_with(2).complains("empty");
    scratch.run("machine show nowhere").did_not_panic().exits_with(2).complains("nowhere");
}

#[test]
fn choices_of_whom_to_keep_together_name_what_exists() {
    let scratch = Scratch::new();
    let sim =
        |choice: &str| scratch.run(&format!("sim -m {MACHINE} -w {WORKLOAD} -s cache-aware --aggregate {choice}"));
    sim("process:hackbenhc=off").exits_with(2).complains("there is no process called");
    sim("process=off").exits_with(2).complains("process:NAME=CHOICE");
    sim("taskgroup:/none=off").exits_with(2).complains("there is no task group called");
    let text = r#"{"tasks": {"t": {"run": 1}}, "warmcore": {"processes": [{"name": "p"}],
        "aggregate": {"processes": {"p": "group:q"}}}}"#;
    scratch.write("file.json", text);
    let ran = scratch.run(&format!("sim -m {MACHINE} -w file.json -s cache-aware")).exits_with(2);
    ran.complains("warmcore.aggregate.processes.p").complains("there is no aggregation group called");
}

#[test]
fn cache_awareness_needs_to_know_the_caches() {
    let scratch = Scratch::new();
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/machines/single-cpu-without-caches");
    for scheduler in ["cache-aware", "topology-aware"] {
        refused(&scratch, machine, WORKLOAD, scheduler, "says nothing about its LLCs");
    }
}

#[test]
fn a_warm_up_that_leaves_nothing_to_count_is_refused() {
    let scratch = Scratch::new();
    let compare =
        |rest: &str| scratch.run(&format!("compare -m {MACHINE} -s rr,cfs -n 2 --keep nothing {rest}")).did_not_panic();
    // Where the end is known, before anything runs.
    compare("-w periodic:-n2,-d20ms --warm-up 20ms")
        .exits_with(2)
        .complains("the warm-up of 20 ms is not over when the run ends");
    compare("-w periodic:-n2,-d1s --max-time 5ms --warm-up 20ms").exits_with(2).complains("after 5 ms at most");
    compare("-w schbench:-t2,-L,-r10ms,-w10ms").exits_with(2).complains("shorter than the runtime");
    compare("-w periodic:-n2,-d20ms --warm-up soon").exits_with(2).complains("--warm-up");
    scratch
        .write("long.json", r#"{"tasks": {"a": {"run": 5}}, "warmcore": {"duration_ns": 1000, "warm_up_ns": 1000}}"#);
    compare("-w long.json").exits_with(2).complains("nothing would be counted");
    // Where it is not, when the run is over.
    compare("-w hackbench:-T,-p,-f2,-g1,-l1 --warm-up 10s").exits_with(1).complains("in its warm-up of 10 s");
}

#[test]
fn kernel_threads_that_cannot_be_are_named() {
    let scratch = Scratch::new();
    let refused = |background: &str, text: &str| {
        let words = format!("sim -m {MACHINE} -w {WORKLOAD} -s rr --background {background}");
        scratch.run(&words).did_not_panic().exits_with(2).complains(text);
    };
    refused("queit", "did you mean `quiet`?");
    refused("./missing.toml", "missing.toml");
    let file = |name: &str, keys: &str| {
        let text = format!("schema = \"warmcore-background-1\"\nname = \"x\"\n[[thread]]\nname = \"t\"\n{keys}\n");
        scratch.write(name, &text);
    };
    file("cpus.toml", "on = \"9\"\nrate_per_s = 1\nrun_us = [1]");
    refused("cpus.toml", "thread `t` is to run on CPU 9, which is not there");
    file("rate.toml", "on = \"any\"\nrate_per_s = -1\nrun_us = [1]");
    refused("rate.toml", "rate.toml:3 (background TOML): thread `t`: `rate_per_s = -1` is not above 0");
    file("empty.toml", "on = \"any\"\nrate_per_s = 1\nrun_us = []");
    refused("empty.toml", "its list of runs is empty");
    file("key.toml", "on = \"any\"\nrates_per_s = 1\nrun_us = [1]");
    refused("key.toml", "rates_per_s");
    let interrupt = |name: &str, keys: &str| {
        let text =
            format!("schema = \"warmcore-background-1\"\nname = \"x\"\n[[interrupt]]\nname = \"disk\"\n{keys}\n");
        scratch.write(name, &text);
    };
    interrupt("irq-cpus.toml", "on = \"9\"\nrate_per_s = 1\nrun_us = [1]");
    refused("irq-cpus.toml", "interrupt `disk` is to run on CPU 9, which is not there");
    interrupt("irq-run.toml", "on = \"any\"\nrate_per_s = 1\nrun_us = [0]");
    refused("irq-run.toml", "irq-run.toml:3 (background TOML): interrupt `disk`: a run of 0 ns is not 1 to");
    interrupt("irq-always.toml", "on = \"each-cpu\"\ninterval_us = [5]\nrun_us = [6]");
    refused("irq-always.toml", "interrupt `disk`: it runs 6000 ns every 5000 ns on average, so it would never be done");
    interrupt("irq-key.toml", "on = \"any\"\nrate_per_s = 1\nrun_us = [1]\nnice = 3");
    refused("irq-key.toml", "unknown field `nice`");
    // A real kernel has its own threads.
    let words = format!("compare --on host -m host -w {WORKLOAD} -s eevdf -n 1 --keep nothing --background quiet");
    scratch.run(&words).did_not_panic().exits_with(2).complains("a real kernel has its own threads");
}

#[test]
fn nothing_that_is_typed_is_ignored() {
    let scratch = Scratch::new();
    let sim = "sim -m host -w spin:-n1,-d1ms -s eevdf --on host:";
    for (words, complaint) in [
        (format!("{sim}cpus=9999"), "there is no CPU 9999 online"),
        (format!("{sim}cpus=all,cpus=0"), "a run has one configuration, and --on host asks for 2"),
        (format!("{sim}replace,replace"), "replace is set twice"),
        ("scheduler eevdf --machine genoa96".to_owned(), "the same on every machine"),
        ("memory -m spr32 --task spin@0 --caches sets=hashed,sets=address".to_owned(), "sets is set twice"),
        ("memory -m spr32 --task spin@0 --caches llc=lru2".to_owned(), "it is one of lru, tree-plru"),
        ("memory -m spr32 --task spin@0 --pages page=4KiB,page=8KiB".to_owned(), "page is set twice"),
        ("study run answers/cpu-quota --strict".to_owned(), "--strict"),
        ("tune form.toml --strict".to_owned(), "--strict"),
        ("list machines spin:-n1".to_owned(), "only the list of metrics takes a workload"),
        ("reference completions bash --out x".to_owned(), "--out"),
        ("doctor host --fetch-kernel".to_owned(), "--fetch-kernel"),
        ("vm -m 1s1n1l1c1t --json -- /bin/true".to_owned(), "--json"),
        ("machine show genoa96 --measure".to_owned(), "--measure"),
    ] {
        scratch.run(&words).did_not_panic().exits_with(2).complains(complaint);
    }
    let plan = scratch.run(&format!("{sim}cpus=0,dry-run")).exits_with(0).out;
    assert!(plan.contains("eevdf @ cpus=0:\n  the command is bound to CPUs 0\n"), "{plan}");
}

#[test]
fn standard_output_is_no_directory_and_no_page() {
    let scratch = Scratch::new();
    let compare = format!("compare -m {MACHINE} -w {WORKLOAD} -s cfs --trials 1");
    for words in [
        format!("{compare} --out -"),
        format!("sim -m {MACHINE} -w {WORKLOAD} -s cfs --out -"),
        format!("sweep -m {MACHINE} -w {WORKLOAD} -s cfs,rr --out -"),
        "report run --html -".to_owned(),
        "report run --svg -".to_owned(),
        "reference man --out -".to_owned(),
    ] {
        scratch.run(&words).did_not_panic().exits_with(2).complains("./-");
    }
    assert!(scratch.files(".").is_empty(), "nothing was made: {:?}", scratch.files("."));
}

#[test]
fn names_as_long_as_the_file_are_refused_in_a_few_lines() {
    let scratch = Scratch::new();
    let name = "x".repeat(400_000);
    scratch.write("key.json", &format!(r#"{{"tasks":{{"a":{{"loop":1,"{name}":1000}}}}}}"#));
    scratch.write(
        "wakes.json",
        &format!(r#"{{"tasks":{{"{name}a":{{"loop":1,"run":9}},"b":{{"loop":1,"resume":"{name}b"}}}}}}"#),
    );
    scratch.write("key.toml", &format!("{name} = 1\n"));
    for words in [
        "workload show ./wakes.json",
        "workload show ./key.json --strict",
        "machine show ./key.toml",
        "study run --dry-run ./key.toml",
        "validate --stored ./key.toml",
        "machine show 1s1n1l2c1t --background ./key.toml",
    ] {
        let ran = scratch.run(words).did_not_panic().exits_with(2);
        assert!(ran.error.len() < 30_000, "{words}: {} bytes", ran.error.len());
    }
}
