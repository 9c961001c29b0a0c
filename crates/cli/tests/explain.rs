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
    let left =
        events.lines().filter(|line| line.contains(" sched_switch prev=") && !line.contains("prev=idle")).count();
    let moves = events.lines().filter(|line| line.contains(" sched_migrate ")).count();
    let (entries, threads) = printed.split_once("\n\n").unwrap();
    assert_eq!(entries.lines().count(), 2 + left + moves);
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
