//! Placements against contention in the simulated kernel: `fewest-tasks`, `random`, `dio`, `cdf`.

use crate::support::*;
use warmcore_kernel::{READ_COUNTERS_NS, Setup};
use warmcore_memory::exact::PagingSpec;
use warmcore_memory::{Class, Profile};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::{SchedulerSpec, decisions, simulate};
use warmcore_topology::{Machine, from_toml};
use warmcore_trace::{Event, EventKind, OverheadKind};

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
    run_with_memory(scene, &machine, scheduler, MemoryChoice::Analytic)
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

/// When a fork-join workload of some threads with 50 rounds has ended, in ms. The first works 1 ms in each round, and the last 1.1: all but one are
/// off their CPUs when it lets them go, so that no wakeup is bound to a CPU that is still switching.
fn fork_join_ms(machine: &str, threads: u32, scheduler: &str) -> f64 {
    let machine = warmcore_topology::resolve(machine).unwrap();
    let workload = warmcore_workload::from_generator(&format!("forkjoin:-n{threads},-i50,-w1ms,-m10")).unwrap();
    let mut setup = Setup::new(&machine, &workload, 1).unwrap();
    setup.check_invariants = true;
    let outcome = simulate(&SchedulerSpec::parse(scheduler).unwrap(), &setup, None).unwrap();
    outcome.elapsed_ns as f64 / 1e6
}

/// The releasing thread wakes the others by interrupts. LLCs and CPUs that counted as empty until these arrive would all get none but the first.
#[test]
fn threads_let_go_by_a_barrier_are_spread_although_none_has_arrived_yet() {
    for scheduler in ["fewest-tasks", "dio"] {
        // Two for each LLC of two CPUs: 50 rounds of the longest thread's 1.1 ms. Three on one would be 2 ms.
        let ms = fork_join_ms("1s1n3l2c1t", 6, scheduler);
        assert!((55.0..57.0).contains(&ms), "{scheduler}: {ms} ms");
    }
    // Four on two CPUs: 2.1 to 2.17 ms a round. Three on one would be 3.1.
    let ms = fork_join_ms("1s1n1l2c1t", 4, "fifo");
    assert!((105.0..110.0).contains(&ms), "fifo: {ms} ms");
}

/// Two LLCs of 512 sets and eight ways for four CPUs each, and next to nothing in front of them.
fn two_small_llcs() -> Machine {
    let cache = |level: u32, kib: u32, ways: u32| {
        format!(
            "[[cache]]\nlevel = {level}\nsize = \"{kib}KiB\"\nways = {ways}\norigin = \"given\"\nlatency_ns = {level}.0\n"
        )
    };
    let caches = cache(1, 1, 4) + &cache(2, 4, 4) + &cache(3, 256, 8);
    let text = format!("name = \"small\"\n[topology]\norigin = \"given\"\nshape = \"{TWO_LLCS}\"\n{caches}");
    from_toml(&text).unwrap()
}

/// Eight tasks of 16 KiB each: 256 lines, half of an LLC's sets if sets follow addresses. Lines are given out in the order of creation, so
/// that tasks of even numbers have the lower half and odd ones the upper.
fn halves_of_sets() -> Scene {
    let mut scene = Scene::lasting(S / 50);
    scene.workload.profiles.push(Profile {
        name: "half".into(),
        summary: String::new(),
        origin: "given".into(),
        cpi0: 0.5,
        mlp: 1.0,
        ipc_ceiling: None,
        message_lines: None,
        classes: vec![Class::new("half", 16 << 10, 0.05, 0.0)],
    });
    let task = scene.task("half", spin());
    (task.instances, task.profile) = (8, Some("half".to_owned()));
    scene
}

/// Of tasks 0 to 7 how many of even number are on the first LLC at the end, and how many of odd number.
fn on_first_llc(run: &Run) -> [usize; 2] {
    let even_or_odd = |odd| (0..4).filter(|task| last_llc(run, &format!("half-{}", 2 * task + odd)) == 0).count();
    [0, 1].map(even_or_odd)
}

#[test]
fn cdf_brings_tasks_that_use_other_sets_together_if_sets_follow_addresses() {
    let (scene, machine) = (halves_of_sets(), two_small_llcs());
    let fewest = run_with_memory(&scene, &machine, "fewest-tasks", MemoryChoice::ExactByAddress);
    assert!([[4, 0], [0, 4]].contains(&on_first_llc(&fewest)), "in turn, so that those of equal sets are together");
    for variant in ["published", "coded"] {
        let spec = format!("cdf:variant={variant},tol=0.3,window=100,slice_ns=2ms");
        let run = run_with_memory(&scene, &machine, &spec, MemoryChoice::ExactByAddress);
        let mixed = on_first_llc(&run);
        assert!(mixed[0].abs_diff(2) <= 1 && mixed[1].abs_diff(2) <= 1, "{variant}: {mixed:?}");
        assert!(times_decided(&run, &spec, "LLC chosen: its tasks used other cache sets") > 0, "{variant}");
        assert!(times_decided(&run, &spec, "task moved: its turn has ended") > 0, "{variant}");
    }
}

#[test]
fn with_hashed_sets_cdf_as_published_is_fewest_tasks() {
    let (scene, machine) = (halves_of_sets(), two_small_llcs());
    let llcs = |scheduler| {
        let run = run_with_memory(&scene, &machine, scheduler, MemoryChoice::Exact);
        (0..8).map(|task| last_llc(&run, &format!("half-{task}"))).collect::<Vec<_>>()
    };
    assert_eq!(llcs("cdf:tol=0.5,slice_ns=2ms"), llcs("fewest-tasks:slice_ns=2ms"));
}

#[test]
fn cdf_is_refused_where_no_sets_are_recorded() {
    let machine = two_small_llcs();
    for memory in [MemoryChoice::None, MemoryChoice::Analytic] {
        let scene = halves_of_sets();
        let mut setup = Setup::new(&machine, &scene.workload, 1).unwrap();
        setup.options.memory = memory;
        let error = simulate(&SchedulerSpec::parse("cdf").unwrap(), &setup, None).unwrap_err();
        assert!(error.to_string().contains("only exact memory records"), "{error}");
    }
}

#[test]
fn what_a_placement_cannot_take_is_refused_with_its_range() {
    let message = |text: &str| SchedulerSpec::parse(text).unwrap_err().to_string();
    assert!(message("dio:window=0").contains("1 to 100"));
    assert!(message("dio:variant=guessed").contains("published (0) or coded (1)"));
}

#[test]
fn decisions_are_counted_with_what_they_looked_at_and_what_that_cost() {
    let scene = intense_and_quiet();
    let effort = |scheduler: &str| {
        let run = run_with_caches(&scene, scheduler);
        let kinds = decisions(&SchedulerSpec::parse(scheduler).unwrap());
        let is_choice = |event: &&Event| matches!(event.kind, EventKind::Decision { decision, .. } if kinds[decision as usize].name().starts_with("LLC chosen"));
        let chosen = run.events.iter().filter(is_choice).count() as u64;
        (run.outcome.placement.expect("it counts them"), chosen, balance_ns(&run))
    };
    for scheduler in ["fewest-tasks:look_ns=7", "random:look_ns=7"] {
        let (effort, chosen, _) = effort(scheduler);
        assert_eq!((effort.decisions, effort.looked_at, effort.cost_ns), (chosen, 2 * chosen, 14 * chosen));
    }
    // A counter is read for each task that is placed.
    let (coded, chosen, _) = effort("dio:variant=coded,look_ns=7");
    assert_eq!((coded.decisions, coded.cost_ns), (chosen, (14 + READ_COUNTERS_NS) * chosen));
    // And of each task, four of them, at each of three deals, whose sort compares twice for each.
    let (dealt, chosen, balance_ns) = effort("dio:look_ns=7");
    assert_eq!((dealt.decisions, dealt.looked_at), (chosen + 3, 2 * chosen + 3 * 8));
    assert_eq!(dealt.cost_ns, 14 * chosen + 3 * (8 * 7 + 4 * READ_COUNTERS_NS));
    assert!(balance_ns >= 3 * 8 * 7);
    assert_eq!(run_with_caches(&scene, "eevdf").outcome.placement, None, "it does not count them");
}

#[test]
fn cdf_counts_the_nodes_of_histograms_that_its_decisions_look_at() {
    let (mut scene, machine) = (halves_of_sets(), two_small_llcs());
    scene.workload.duration_ns = Some(S / 200);
    let looks = |scheduler: &str| {
        let run = run_with_memory(&scene, &machine, scheduler, MemoryChoice::ExactByAddress);
        let effort = run.outcome.placement.unwrap();
        assert_eq!(effort.cost_ns, effort.looked_at * 10);
        effort.looked_at as f64 / effort.decisions as f64
    };
    let of_window = [100, 200].map(|window| looks(&format!("cdf:slice_ns=1ms,window={window}")));
    assert!(of_window[0] > 50.0 && of_window[1] > of_window[0] * 1.3, "a longer window costs more: {of_window:?}");
}

/// Pages get frames in the order in which they are touched first, so that with page tables the tasks' sets differ as chance has it and not by
/// halves: two frames that follow each other are of different tasks.
#[test]
fn cdf_runs_with_page_tables_too() {
    let (mut scene, machine) = (halves_of_sets(), two_small_llcs());
    scene.workload.duration_ns = Some(S / 200);
    let run = || {
        let memory = MemoryChoice::ExactPagedByAddress(PagingSpec::default());
        run_with_memory(&scene, &machine, "cdf:tol=0.3,window=100,slice_ns=1ms", memory)
    };
    let paged = run();
    assert!(paged.outcome.placement.is_some_and(|effort| effort.decisions > 0));
    let counted: Vec<_> = paged.outcome.tasks.iter().filter_map(|task| task.memory).collect();
    assert_eq!(counted.len(), 8);
    // Four pages of a task; its process has the tables.
    assert!(counted.iter().all(|memory| memory.page_faults >= 4.0 && memory.page_walks > 1000.0), "{counted:?}");
    assert_eq!(paged.events, run().events, "equal seeds, equal events");
}

#[test]
fn settings_of_cdf_outside_their_ranges_are_refused_with_these() {
    for (bad, range) in [
        ("tol=1.5", "it takes 0 to 1"),
        ("tol=-0.1", "it takes 0 to 1"),
        ("percentiles=25/101", "rising whole percentages from 0 to 100"),
        ("percentiles=50/25", "rising whole percentages from 0 to 100"),
        ("percentiles=50/50", "rising whole percentages from 0 to 100"),
        ("percentiles=", "rising whole percentages from 0 to 100"),
        ("window=0", "it takes 1 to 100000"),
    ] {
        let refused = SchedulerSpec::parse(&format!("cdf:{bad}")).unwrap_err().to_string();
        assert!(refused.contains(range), "{bad}: {refused}");
    }
}

#[test]
fn cdf_takes_the_sets_of_any_level_and_of_all_mixed() {
    let (mut scene, machine) = (halves_of_sets(), two_small_llcs());
    scene.workload.duration_ns = Some(S / 200);
    let run = |level: &str| {
        let spec = format!("cdf:tol=0.3,window=100,slice_ns=1ms,level={level}");
        run_with_memory(&scene, &machine, &spec, MemoryChoice::ExactByAddress)
    };
    let mixed = run("mixed");
    assert!(times_decided(&mixed, "cdf", "LLC chosen: its tasks used other cache sets") > 0);
    assert_ne!(mixed.events, run("l1").events);
    let refused = SchedulerSpec::parse("cdf:level=l4").unwrap_err().to_string();
    assert!(refused.contains("mixed (3)"), "{refused}");
}
