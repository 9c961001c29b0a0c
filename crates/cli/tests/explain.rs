//! `warmcore explain`, `explain --events` and single figures: what they print is what the run's trial holds.

use std::fs;

use crate::common::Scratch;

fn compared() -> Scratch {
    let scratch = Scratch::new();
    let words = "compare -m 2s1n2l4c1t -w spin:-n6,-p0,-u5ms,-d60ms -s cfs,rr --trials 2 --keep run --out run";
    scratch.run(words).exits_with(0);
    scratch
}

#[test]
fn every_migration_of_the_trial_is_told_with_its_decision() {
    let scratch = compared();
    let told = scratch.run("explain run --scheduler cfs --count 1000000").exits_with(0).out;
    scratch.run("report run --events events/").exits_with(0);
    let events = fs::read_to_string(scratch.path("events/trace-cfs.txt")).unwrap();
    let moves: Vec<&str> = events.lines().filter(|line| line.contains(" sched_migrate ")).collect();
    assert!(moves.len() >= 5, "{} migrations", moves.len());
    let of = |words: &str| told.lines().filter(|line| line.starts_with(words)).count();
    assert_eq!(told.lines().filter(|line| line.contains(" moved from cpu")).count(), moves.len());
    assert_eq!([of("  decision: "), of("  by: "), of("  runnable: "), of("  idle: ")], [moves.len(); 4]);
    assert!(told.starts_with(&format!("under cfs: {0} of {0} migrations, trial ", moves.len())), "{told}");
}

#[test]
fn a_task_and_a_time_choose_the_migration() {
    let scratch = compared();
    let all = scratch.run("explain run --scheduler cfs --task spin-1 --count 100").exits_with(0).out;
    let first = all.lines().find(|line| line.contains(" moved from ")).expect("spin-1 leaves the first CPU");
    assert!(first.contains(" spin-1/"), "{first}");
    let one = scratch.run("explain run -s cfs --task spin-1 --at 1ms --count 1").exits_with(0).out;
    assert!(one.contains(first), "the earliest one is the closest to 1 ms: {one}");
    scratch.run("explain run --task nobody").exits_with(2).complains("the run has no task nobody");
    scratch.run("explain run --scheduler none").exits_with(2).complains("it has cfs, rr");
}

#[test]
fn a_balancers_move_is_told_with_the_figures_it_rests_on_and_other_moves_without() {
    let scratch = compared();
    let json = scratch.run("explain run --json --count 1000000").exits_with(0).out;
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let of = |scheduler: usize| document["schedulers"][scheduler]["migrations"].as_array().unwrap().clone();
    // One CPU has six tasks that were bound to it, the others none.
    let first = of(0).into_iter().find(|migration| migration["kind"] == "balance").expect("cfs balances");
    let detail = |name: &str| {
        let details = first["details"].as_array().unwrap();
        details.iter().find(|detail| detail["name"] == name).unwrap_or_else(|| panic!("{name}: {first}")).clone()
    };
    assert_eq!(detail("busiest_group_type")["word"], "overloaded");
    assert_eq!(detail("local_group_type")["word"], "has spare capacity");
    assert_eq!((&detail("busiest_running")["value"], &detail("local_running")["value"]), (&6.into(), &0.into()));
    assert_eq!((&detail("migration_type")["word"], &detail("task_share")["value"]), (&"tasks".into(), &1.into()));
    assert!(detail("imbalance")["value"].as_i64().unwrap() >= 1);
    for (name, value) in [("imbalance_pct", 117), ("migration_cost_ns", 500_000), ("cache_nice_tries", 1)] {
        assert_eq!(detail(name)["value"], value, "{name}");
    }
    // Round robin has one queue and no balancer.
    assert!(of(1).iter().all(|migration| migration["details"].as_array().unwrap().is_empty()));
}

#[test]
fn why_a_wakeup_placed_a_task_where_it_did_is_told_in_words_in_columns_and_in_the_document() {
    let scratch = Scratch::new();
    scratch
        .run("compare -m 1s1n2l4c1t -w pingpong:-n3,-w20us,-d20ms -s eevdf,rr --trials 1 --keep run --out run")
        .exits_with(0);
    let told = scratch.run("explain run -s eevdf --task ping-1 --at 10ms --count 1").exits_with(0).out;
    let place = told.lines().find(|line| line.starts_with("last placement: ")).unwrap_or_else(|| panic!("{told}"));
    assert!(place.contains(" was woken by pong-1/") && place.contains("the search"), "{place}");
    let json = scratch.run("explain run -s eevdf --task ping-1 --at 10ms --json").exits_with(0).out;
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let last = &document["schedulers"][0]["last_placement"];
    assert!(last["time_ns"].as_u64().unwrap() <= 10_000_000, "{last}");
    assert!(place.ends_with(last["reason"].as_str().unwrap()), "{place}: {last}");
    let lines = scratch.run("explain run --events -s rr").exits_with(0).out;
    assert!(lines.lines().any(|line| line.ends_with(" S     previous > previous_free")), "{lines}");
    // What is stored is what is simulated again.
    scratch.run("sim -m 1s1n2l4c1t -w pingpong:-n3,-w20us,-d20ms -s rr --seed 1 --trace full --out kept").exits_with(0);
    let kept = scratch.run("explain kept --events").exits_with(0).out;
    assert!(kept.lines().any(|line| line.ends_with(" S     previous > previous_free")), "{kept}");
}

#[test]
fn events_have_a_line_for_every_slice_and_migration() {
    let scratch = compared();
    let printed = scratch.run("explain --events run --scheduler rr").exits_with(0).out;
    assert!(
        printed
            .lines()
            .next()
            .unwrap()
            .split_whitespace()
            .eq(["time", "cpu", "task", "name", "wait", "time", "sch", "delay", "run", "time", "state", "placed"])
    );
    scratch.run("report run --events events/").exits_with(0);
    let events = fs::read_to_string(scratch.path("events/trace-rr.txt")).unwrap();
    // Every stay that began, the six that the end of the run cuts off among them.
    let stays =
        events.lines().filter(|line| line.contains(" sched_switch prev=") && !line.contains("next=idle")).count();
    let moves = events.lines().filter(|line| line.contains(" sched_migrate ")).count();
    let (entries, threads) = printed.split_once("\n\n").unwrap();
    assert_eq!(entries.lines().count(), 2 + stays + moves);
    assert!(
        threads.starts_with("thread ") && threads.lines().count() == 1 + 6,
        "a line for each of the six: {threads}"
    );
    let preempted = threads.lines().find(|line| line.starts_with("spin-0/0 ")).unwrap();
    assert!(preempted.contains("spin-"), "they take turns at first: {preempted}");
    let told = scratch.run("explain run --scheduler rr --task spin-1 --count 1").exits_with(0).out;
    assert!(told.contains("\nwaited ") && told.contains(", held by spin-"), "who had the CPU while it waited: {told}");
}

#[test]
fn one_figure_is_drawn_as_wide_as_a_column_of_a_paper() {
    let scratch = compared();
    scratch.run("report run --figure ratio:85mm --svg ratio.svg").exits_with(0);
    let svg = fs::read_to_string(scratch.path("ratio.svg")).unwrap();
    assert!(svg.contains(" width=\"85mm\" role=\"img\">") && svg.contains("viewBox=\"0 0 361.4 "), "{}", &svg[..300]);
    assert!(!scratch.path("run/report.html").exists(), "nothing else was asked for");
    scratch
        .run("report run --figure nothing --svg other.svg")
        .exits_with(2)
        .complains("its figures are ratio, values,");
    scratch.run("report run --figure ratio:85 --svg other.svg").exits_with(2).complains("such as 85mm");
    scratch.run("report run --figure ratio").exits_with(2).complains("--svg");
}

/// Two threads and one of the kernel on one CPU, µs since the first event: what each row and each wait must be was added up by hand.
#[test]
fn each_thread_of_a_recording_has_a_row_and_its_waits_name_who_had_the_cpu() {
    let scratch = Scratch::new();
    let mut text = String::from("# tracer: nop\n#\n");
    let mut line = |us: u64, by: &str, event: &str| {
        text.push_str(&format!("{by} [000] d..2. 1.{us:06}: {event}\n"));
    };
    let switch = |prev: (&str, i32), state: &str, next: (&str, i32)| {
        format!(
            "sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={state} ==> next_comm={} next_pid={} next_prio=120",
            prev.0, prev.1, next.0, next.1
        )
    };
    let wakes = |event: &str| format!("{event}: comm=b pid=102 prio=120 target_cpu=000");
    let [idle, a, b, kworker] = [("swapper/0", 0), ("a", 101), ("b", 102), ("kworker/0:1", 55)];
    line(0, "<idle>-0", &switch(idle, "R", a));
    line(100, "a-101", &wakes("sched_waking"));
    line(102, "a-101", &wakes("sched_wakeup"));
    line(400, "a-101", &switch(a, "R", b));
    line(900, "b-102", &switch(b, "S", a));
    line(1000, "a-101", &wakes("sched_waking"));
    line(1001, "a-101", &wakes("sched_wakeup"));
    line(1200, "a-101", &switch(a, "R", kworker));
    line(1250, "kworker/0:1-55", &switch(kworker, "S", b));
    line(1300, "b-102", &switch(b, "S", a));
    line(1400, "a-101", &switch(a, "S", idle));
    scratch.write("two.txt", &text);

    let told = scratch.run("explain two.txt").exits_with(0).out;
    assert!(
        told.starts_with("as recorded: 0 of 0 migrations, trial 0\n"),
        "whose scheduler it was is not known: {told}"
    );
    let json = scratch.run("explain two.txt --json").exits_with(0).out;
    assert!(json.contains("\"scheduler\": \"recorded\""), "{json}");
    let row = |name: &str| {
        let line = told.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {told}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("a-101"), ["a-101", "3", "800 us", "0 ns", "600 us", "2", "b-102 (1)", "-", "b-102, 550 us"]);
    let b = ["b-102", "2", "550 us", "550 us", "0 ns", "0", "-", "300 us at 0.000400000 s", "a-101, 500 us"];
    assert_eq!(row("b-102"), b);

    let waits = "0.000100000 b-102 waited 300 us after its wakeup\n  0.000100000 cpu0 had a-101 for 300 us\n\
                 0.001000000 b-102 waited 250 us after its wakeup\n  0.001000000 cpu0 had a-101 for 200 us\n  \
                 0.001200000 cpu0 had kworker/0:1-55 for 50 us\n";
    for name in ["b", "102", "b-102"] {
        let told = scratch.run(&format!("explain two.txt --task {name}")).exits_with(0).out;
        assert!(told.contains(waits) && !told.contains("a-101  "), "{name}: {told}");
    }
    let told = scratch.run("explain two.txt --task a --at 1250us --count 1").exits_with(0).out;
    assert!(told.contains("0.001200000 a-101 waited 100 us after its preemption\n"), "{told}");
    assert!(!told.contains("waited 500 us after"), "one wait was asked for: {told}");
    scratch.run("explain two.txt --task 103").exits_with(2).complains("the run has no task 103");
}

#[test]
fn threads_of_a_simulated_run_have_rows_that_add_up_and_a_number_names_a_task() {
    let scratch = compared();
    let json = scratch.run("explain run -s rr --json").exits_with(0).out;
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let threads = document["schedulers"][0]["threads"].as_array().unwrap().clone();
    let sum = |key: &str| threads.iter().map(|thread| thread[key].as_u64().unwrap()).sum::<u64>();
    // Six tasks, created 30 us apart, that spin until 60 ms are over: each runs or waits.
    let all = sum("run_ns") + sum("wakeup_wait_ns") + sum("preempt_wait_ns");
    assert_eq!((threads.len(), all), (6, 6 * 60_000_000 - 15 * 30_000));
    let told = scratch.run("explain run -s rr --task 1").exits_with(0).out;
    assert!(told.contains("\nspin-1/1 ") && !told.contains("\nspin-0/0 "), "{told}");
}

#[test]
fn what_a_run_and_a_kernel_counted_of_domains_is_shown_side_by_side() {
    let scratch = compared();
    let zeros = " 0".repeat(44);
    let kernel =
        |pulls: u32| format!("version 17\ntimestamp 9\ncpu0 0 0 7 3 0 0 5000 40 4\ndomain0 MC f {pulls}{zeros}\n");
    scratch.write("before", &kernel(2));
    scratch.write("after", &kernel(9));
    let words = "explain schedstat:run,before:after --json";
    let document: serde_json::Value = serde_json::from_str(&scratch.run(words).exits_with(0).out).unwrap();
    crate::documents::says_what_its_schema_says(&scratch, &document, "schedstat", words);
    let column = |index: usize| &document["columns"][index];
    assert_eq!((&column(0)["name"], &column(2)["name"]), (&"cfs in run".into(), &"before:after".into()));
    assert_eq!(
        (&column(2)["domains"]["MC"]["busy_lb_count"], &column(2)["cpus"]["sched_count"]),
        (&7.into(), &0.into())
    );
    let gained = |kind: &str| column(0)["domains"]["MC"][format!("{kind}_lb_gained")].as_u64().unwrap();
    assert!(["busy", "idle", "newidle"].map(gained).iter().sum::<u64>() > 0, "{document}");
    // The text is one that it reads.
    scratch.write("own", column(0)["text"].as_str().unwrap());
    let told = scratch.run("explain schedstat:own,run --scheduler cfs").exits_with(0).out;
    assert!(told.contains("idle_lb_count") && told.contains("cfs in run"), "{told}");
    // One CPU's two readings in a file of `perf sched stats record`: 104 bytes of header, two records, and the names of no domain.
    let mut words: Vec<u64> = vec![104, 136, 104, 0, 104, 144, 104, 0, 1 << 32, 0, 0, 0];
    for value in [2_u64, 9] {
        let pair = value | value << 32;
        words.extend([85 | 72 << 48, 9, 17 << 32, pair, pair, pair, value, value, value]);
    }
    words.extend([264, 8, 17 | 1 << 32]);
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    std::fs::write(scratch.path("perf.data"), bytes).unwrap();
    let words = "explain schedstat:perf.data --json";
    let document: serde_json::Value = serde_json::from_str(&scratch.run(words).exits_with(0).out).unwrap();
    assert_eq!(document["columns"][0]["cpus"]["run_delay"], 7, "{document}");
    scratch.run("explain schedstat:perf.data:after").exits_with(2).complains("has both readings");
    scratch.write("later", &kernel(9).replace("timestamp 9", "timestamp 10"));
    scratch.run("explain schedstat:before:later").exits_with(0);
    scratch.run("explain schedstat:later:before").exits_with(2).complains("name them as before:later");
    scratch.run("replay perf.data").exits_with(2).complains("schedstat:FILE");
    scratch.run("explain schedstat:none").exits_with(2).complains("none");
    scratch.run("explain schedstat:before --task x").exits_with(2).complains("has no --task");
    scratch.run("explain schedstat:before --scheduler cfs").exits_with(2).complains("none is here");
    scratch.write("wrong", "version 17\ncpu0 1\n");
    scratch.run("explain schedstat:wrong").exits_with(2).complains("line 2: a CPU has 9 counters");
}
