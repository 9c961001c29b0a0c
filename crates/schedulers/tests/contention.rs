//! Placements against contention in the simulated kernel: `fewest-tasks`, `random`, `dio`.

mod support;

use support::*;
use warmcore_kernel::{MemoryChoice, Setup};
use warmcore_schedulers::{SchedulerSpec, decisions, simulate};
use warmcore_trace::{Event, EventKind, OverheadKind, Sink};

/// Two LLCs of four CPUs.
const TWO_LLCS: &str = "1s1n2l4c1t";

/// Two memory-intense tasks and two quiet ones, created in turn.
fn intense_and_quiet() -> Scene {
    let mut scene = Scene::lasting(4 * S);
    for (name, profile) in
        [("intense-a", "canneal"), ("quiet-a", "perlbench"), ("intense-b", "canneal"), ("quiet-b", "perlbench")]
    {
        scene.task(name, spin()).profile = Some(profile.to_owned());
    }
    scene
}

fn run_with_caches(scene: &Scene, scheduler: &str) -> Run {
    let machine = warmcore_topology::resolve(TWO_LLCS).unwrap();
    let mut setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    setup.memory = MemoryChoice::Analytic;
    setup.check_invariants = true;
    let mut events: Vec<Event> = Vec::new();
    let sink: &mut dyn Sink = &mut events;
    let outcome = simulate(&SchedulerSpec::parse(scheduler).unwrap(), &setup, Some(sink)).unwrap();
    Run { events, outcome, machine: machine.clone() }
}

/// The LLC on which a task was last.
fn last_llc(run: &Run, name: &str) -> u32 {
    run.stays(name).last().expect("it ran").cpu / 4
}

/// How often a decision whose name begins so was taken.
fn times_decided(run: &Run, scheduler: &str, name: &str) -> usize {
    let kinds = decisions(&SchedulerSpec::parse(scheduler).unwrap());
    let id = kinds.iter().position(|kind| kind.name().starts_with(name)).expect("it is one of its decisions");
    let is_it = |event: &&Event| matches!(event.kind, EventKind::Decision { decision, .. } if decision as usize == id);
    run.events.iter().filter(is_it).count()
}

fn balance_ns(run: &Run) -> u64 {
    run.outcome.cpus.iter().map(|cpu| cpu.overhead_ns[OverheadKind::Balance as usize]).sum()
}

#[test]
fn dio_separates_intense_tasks_by_their_counters_and_pays_for_it() {
    let scene = intense_and_quiet();
    let fewest = run_with_caches(&scene, "fewest-tasks");
    assert_eq!(last_llc(&fewest, "intense-a"), last_llc(&fewest, "intense-b"), "counts alone leave them together");
    let dio = run_with_caches(&scene, "dio");
    assert_ne!(last_llc(&dio, "intense-a"), last_llc(&dio, "intense-b"));
    assert_ne!(last_llc(&dio, "quiet-a"), last_llc(&dio, "quiet-b"));
    assert!(times_decided(&dio, "dio", "task moved") >= 2);
    assert!(balance_ns(&dio) > balance_ns(&fewest));
}

#[test]
fn dio_deals_no_earlier_than_its_period() {
    let dio = run_with_caches(&intense_and_quiet(), "dio:period_ns=10000000000");
    assert_eq!(times_decided(&dio, "dio", "task moved"), 0);
}

#[test]
fn without_counters_dio_as_published_deals_nothing_and_as_coded_sends_all_to_one_llc() {
    let scene = intense_and_quiet();
    let llcs = |scheduler| {
        let run = scene.run(TWO_LLCS, scheduler);
        ["intense-a", "quiet-a", "intense-b", "quiet-b"].map(|name| last_llc(&run, name))
    };
    let published = llcs("dio");
    assert_eq!(published.iter().sum::<u32>(), 2, "two on each: {published:?}");
    let coded = llcs("dio:variant=coded");
    assert!(coded.iter().all(|llc| *llc == coded[0]), "{coded:?}");
}

#[test]
fn fewest_tasks_fills_llcs_evenly_and_random_follows_the_seed() {
    let mut scene = Scene::lasting(S / 10);
    scene.task("spin", spin()).instances = 8;
    let on_first = |scheduler: &str, seed| {
        let run = scene.run_with_seed(TWO_LLCS, scheduler, seed);
        (0..8).map(|task| last_llc(&run, &format!("spin-{task}"))).collect::<Vec<_>>()
    };
    assert_eq!(on_first("fewest-tasks", 1).iter().sum::<u32>(), 4);
    assert_eq!(on_first("random", 1), on_first("random", 1));
    let seeds: std::collections::BTreeSet<_> = (1..6).map(|seed| on_first("random", seed)).collect();
    assert!(seeds.len() > 1, "seeds differ");
}

#[test]
fn what_a_placement_cannot_take_is_refused_with_its_range() {
    let message = |text: &str| SchedulerSpec::parse(text).unwrap_err().to_string();
    assert!(message("dio:window=0").contains("1 to 100"));
    assert!(message("dio:variant=guessed").contains("published (0) or coded (1)"));
}
