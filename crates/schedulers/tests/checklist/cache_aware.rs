//! Items 31 to 36, 39, 40, 42, 45 and 46: cache-aware scheduling as observed on Linux 7.2. Items 30, 37, 38 and 41 are tested
//! beside the rules (`src/spec.rs`, `src/fair/cache_aware`), 43 and 44 need NUMA balancing.

use warmcore_schedulers::{SchedulerSpec, decisions};
use warmcore_trace::{DecisionKind, EventKind};
use warmcore_workload::{Affinity, ChannelKind, Step};

use crate::support::*;

/// Two LLCs of four cores with two threads each.
const TWO_LLCS_OF_4_CORES: &str = "1s1n2l4c2t";

/// Kernels are not started together with the load: idle CPUs have not balanced for a while when it comes.
pub const START_NS: u64 = 100 * MS;

/// A group of spinners, as first tasks.
pub fn spinners(count: u32, duration_ns: u64) -> Scene {
    let mut scene = Scene::lasting(START_NS + duration_ns);
    let task = scene.task("spinner", spin());
    (task.instances, task.start_ns) = (count, START_NS);
    scene
}

/// Tasks per LLC, most first.
pub fn split(run: &Run, time_ns: u64) -> [u32; 2] {
    let counts = run.tasks_per_llc(time_ns);
    [counts[0].max(counts[1]), counts[0].min(counts[1])]
}

/// Start from which on the tasks are split so until the end, counted from the start of the load.
pub fn settled_after(run: &Run, wanted: [u32; 2]) -> Option<u64> {
    let moves = run.moves();
    let mut times =
        moves.iter().map(|a_move| a_move.time_ns).filter(|&time_ns| time_ns >= START_NS).collect::<Vec<_>>();
    times.extend([START_NS + MS, run.outcome.elapsed_ns]);
    times.sort_unstable();
    let last_other = times.iter().rposition(|&time_ns| split(run, time_ns) != wanted);
    let first = last_other.map_or(0, |position| position + 1);
    times.get(first).map(|time_ns| time_ns.saturating_sub(START_NS))
}

/// Time and value of the decisions whose name begins so.
pub fn decided(run: &Run, name: &str) -> Vec<(u64, i64)> {
    let kinds = decisions(&SchedulerSpec::parse("cache-aware").unwrap());
    let names: Vec<String> = kinds.iter().map(DecisionKind::name).collect();
    assert!(names.iter().any(|known| known.starts_with(name)), "there is no decision `{name}`");
    let of_name = |event: &warmcore_trace::Event| match event.kind {
        EventKind::Decision { decision, value, .. } if names[decision as usize].starts_with(name) => {
            Some((event.time_ns, value))
        }
        _ => None,
    };
    run.events.iter().filter_map(of_name).collect()
}

#[test]
fn item_31_four_spinners_gather_within_130_ms_and_six_within_200() {
    for seed in 1..=10 {
        for (count, limit_ns) in [(4, 130 * MS), (6, 200 * MS)] {
            let run = spinners(count, 3 * S).run_with_seed(TWO_LLCS_OF_8, "cache-aware", seed);
            let settled_ns = settled_after(&run, [count, 0]).expect("gathered at the end");
            println!("{count} spinners, seed {seed}: {} ms", settled_ns / MS);
            assert!(settled_ns <= limit_ns);
        }
        let run = spinners(4, 3 * S).run_with_seed(TWO_LLCS_OF_8, "cache-aware:enabled=0", seed);
        assert_eq!(settled_after(&run, [2, 2]).map(|time_ns| time_ns < 20 * MS), Some(true), "switched off");
    }
}

/// Three threads that only run, one in each of three LLCs: the preferred LLC is chosen, and nobody looks at the others
/// (`docs/models/cache-aware.md`). A fourth thread makes a pair, and the others follow.
#[test]
fn threads_that_run_alone_in_their_llcs_are_told_to_be_left_apart() {
    const THREE_LLCS: &str = "1s1n3l4c1t";
    for seed in 1..=4 {
        let run = spinners(3, 2 * S).run_with_seed(THREE_LLCS, "cache-aware", seed);
        assert_eq!(run.tasks_per_llc(2 * S), [1, 1, 1], "seed {seed}");
        assert!(!decided(&run, "preferred LLC chosen").is_empty(), "seed {seed}");
        assert!(decided(&run, "task pulled").is_empty(), "seed {seed}");
        let apart = decided(&run, "threads left apart").len();
        assert!(apart >= 50, "seed {seed}: told at {apart} scans of two seconds");

        let run = spinners(4, 2 * S).run_with_seed(THREE_LLCS, "cache-aware", seed);
        assert_eq!(run.tasks_per_llc(2 * S).iter().max(), Some(&4), "seed {seed}");
        let late = decided(&run, "threads left apart").iter().filter(|(time_ns, _)| *time_ns > S).count();
        assert_eq!(late, 0, "seed {seed}: they are together");
        assert!(!decided(&run, "task pulled").is_empty(), "seed {seed}");
    }
}

/// Seven spinners are let gather, until the eighth thread, a main thread that works now and then, is caught running.
#[test]
fn item_32_eight_spinners_are_refused_after_three_scans() {
    for seed in 1..=10 {
        let run = spinners(8, 3 * S).run_with_seed(TWO_LLCS_OF_8, "cache-aware", seed);
        assert_eq!(split(&run, 3 * S), [4, 4], "seed {seed}");
        let refused = decided(&run, "preferred LLC dropped: more threads than cores");
        assert_eq!(refused.len(), 1, "seed {seed}: dropped once and never chosen again");
        let after_ns = refused[0].0 - START_NS;
        println!("8 spinners, seed {seed}: refused after {} ms", after_ns / MS);
        assert!((16 * MS..=40 * MS).contains(&after_ns));

        let mut scene = spinners(7, 3 * S);
        scene.task("main", forever([run_for(MS), sleep(7 * MS)]));
        let run = scene.run_with_seed(TWO_LLCS_OF_8, "cache-aware", seed);
        assert!(!decided(&run, "aggregation refused: more threads than cores").is_empty(), "seed {seed}");
        let main = run.id("main");
        let places = run.places(2 * S).into_iter().filter(|(task, _)| *task != main);
        let on_first = places.filter(|(_, cpu)| *cpu < 8).count();
        assert!([3, 4].contains(&on_first), "seed {seed}: {on_first} of 7 on the first LLC");
    }
}

/// One process: threads 0 to 3 spin for 2 s, then all twelve for 1.5 s, then threads 4 to 7, two of them put on each LLC.
pub fn bursts() -> Scene {
    let mut scene = Scene::lasting(START_NS + 7_500 * MS);
    for n in 0..12 {
        let early = n < 4;
        let mut steps = once([sleep(START_NS + if early { 0 } else { 2 * S })]);
        steps = steps.step(run_for(if early { 3_500 * MS } else { 1_500 * MS }));
        if (4..8).contains(&n) {
            let home = on_cpus(if n % 2 == 0 { 0..8 } else { 8..16 });
            steps = steps.step(Step::SetAffinity(home)).step(run_for(20 * MS));
            steps = steps.step(Step::SetAffinity(Affinity::All)).step(run_for(4 * S));
        }
        scene.task(&format!("thread {n}"), steps.step(sleep(100 * S)));
    }
    scene
}

#[test]
fn item_33_one_burst_of_many_threads_ends_aggregation_for_good() {
    let among = |run: &Run, threads: std::ops::Range<u32>, time_ns: u64| {
        let places = run.places(time_ns);
        let first = threads.clone().filter(|n| places[&run.id(&format!("thread {n}"))] < 8).count() as u32;
        let rest = threads.len() as u32 - first;
        [first.max(rest), first.min(rest)]
    };
    for seed in 1..=5 {
        let run = bursts().run_with_seed(TWO_LLCS_OF_8, "cache-aware", seed);
        for ms in [260, 500, 1000, 1900] {
            assert_eq!(among(&run, 0..4, START_NS + ms * MS), [4, 0], "seed {seed}, {ms} ms");
        }
        assert_eq!(among(&run, 0..12, START_NS + 3_400 * MS), [6, 6], "seed {seed}: the burst");
        for ms in [3_700, 4_500, 5_500, 7_400] {
            assert_eq!(among(&run, 4..8, START_NS + ms * MS), [2, 2], "seed {seed}, {ms} ms: latched");
        }
        let run = bursts().run_with_seed(TWO_LLCS_OF_8, "cache-aware:aggr_tolerance=100", seed);
        for ms in [3_800, 5_000, 7_400] {
            assert_eq!(among(&run, 4..8, START_NS + ms * MS), [4, 0], "seed {seed}, {ms} ms: no limit, no latch");
        }
    }
}

/// How many of 12 are taken depends on how full the LLC looks (load tracking still rises) at the passes, every 32 ms here: 7+5, as
/// observed, or 8+4.
#[test]
fn item_34_without_limit_an_llc_fills_to_three_quarters() {
    for seed in 1..=10 {
        let ended = |count| {
            let run = spinners(count, 3 * S).run_with_seed(TWO_LLCS_OF_8, "cache-aware:aggr_tolerance=100", seed);
            split(&run, 3 * S)
        };
        let (eight, twelve) = (ended(8), ended(12));
        println!("seed {seed}: 8 to {eight:?}, 12 to {twelve:?}");
        assert!([[7, 1], [6, 2]].contains(&eight) && [[7, 5], [8, 4]].contains(&twelve));
    }
}

/// The last two depend on load tracking as in item 34: observed 5 or 6 of 6, and 6+2 of 8; here 5+1, and 6+2 or 5+3.
#[test]
fn item_35_with_two_threads_per_core() {
    for seed in 1..=10 {
        let ended = |count, tolerance| {
            let scheduler = format!("cache-aware:aggr_tolerance={tolerance}");
            let run = spinners(count, 3 * S).run_with_seed(TWO_LLCS_OF_4_CORES, &scheduler, seed);
            split(&run, 3 * S)
        };
        assert_eq!([ended(3, 1), ended(5, 1), ended(6, 1)], [[3, 0], [3, 2], [3, 3]], "seed {seed}");
        let (six, eight) = (ended(6, 100), ended(8, 100));
        println!("seed {seed}: 6 to {six:?}, 8 to {eight:?}");
        assert!([[5, 1], [6, 0]].contains(&six) && [[6, 2], [5, 3]].contains(&eight));
    }
}

#[test]
fn item_36_processes_of_one_thread_are_left_alone() {
    let mut scene = Scene::lasting(2 * S);
    for n in 0..16 {
        let process = scene.workload.add_process(format!("process {n}"));
        scene.task(&format!("spinner {n}"), spin()).process = process;
    }
    let run = scene.run(TWO_LLCS_OF_8, "cache-aware");
    assert_eq!(decided(&run, "").len(), decided(&run, "aggregation refused: one thread").len());
    let rest: Vec<_> = run.events.iter().filter(|event| !matches!(event.kind, EventKind::Decision { .. })).collect();
    let without = scene.run(TWO_LLCS_OF_8, "eevdf").events;
    assert_eq!(rest, without.iter().collect::<Vec<_>>(), "as if the feature were not there");
}

#[test]
fn item_39_a_preference_ends_when_nobody_scans_for_five_epochs() {
    let mut scene = Scene::lasting(S);
    let work = |rest_ns| once([run_for(200 * MS), sleep(rest_ns), run_for(300 * MS)]);
    for n in 0..3 {
        scene.task(&format!("thread {n}"), work(100 * MS + n * MS));
    }
    for seed in 1..=10 {
        let run = scene.run_with_seed(TWO_LLCS_OF_8, "cache-aware", seed);
        let woken_ns = run.wakeups("thread 0").last().expect("it woke up").running_ns;
        let dropped = decided(&run, "preferred LLC dropped: no scan for too long");
        assert_eq!(dropped.len(), 1, "seed {seed}");
        // It is charged at its first tick at the latest, and scans then.
        assert!((woken_ns..=woken_ns + 5 * MS).contains(&dropped[0].0), "seed {seed}");
        let chosen = decided(&run, "preferred LLC chosen");
        let again = chosen.iter().find(|(time_ns, _)| *time_ns >= dropped[0].0).expect("chosen again");
        assert!(again.0 <= dropped[0].0 + 12 * MS, "seed {seed}: at the next scan");
    }
}

#[test]
fn item_40_the_home_changes_for_more_than_twice_the_occupancy() {
    let mut scene = Scene::lasting(S);
    let bound = |scene: &mut Scene, count, cpus: std::ops::Range<u32>, start_ns| {
        let task = scene.task(&format!("on {}", cpus.start), spin());
        (task.instances, task.affinity, task.start_ns) = (count, on_cpus(cpus), start_ns);
    };
    bound(&mut scene, 2, 0..8, 0);
    bound(&mut scene, 4, 8..16, 200 * MS);
    let run = scene.run(TWO_LLCS_OF_8, "cache-aware");
    assert_eq!(decided(&run, "preferred LLC chosen").len(), 1);
    assert_eq!(decided(&run, "preferred LLC chosen")[0].1, 0);
    assert!(decided(&run, "preferred LLC changed").is_empty(), "4 is not more than twice 2");

    let mut scene = Scene::lasting(S);
    // A second thread, asleep, makes it a process that is kept together.
    scene.task("asleep", forever([sleep(10 * S)])).affinity = on_cpus(0..8);
    bound(&mut scene, 1, 0..8, 0);
    bound(&mut scene, 4, 8..16, 200 * MS);
    let run = scene.run(TWO_LLCS_OF_8, "cache-aware");
    assert_eq!(decided(&run, "preferred LLC chosen")[0].1, 0);
    let changed = decided(&run, "preferred LLC changed");
    println!("changed {changed:?}");
    assert_eq!((changed.len(), changed[0].1), (1, 1));
    assert!(changed[0].0 <= 220 * MS, "at the next scan");
}

/// Seven on each LLC are 87 %; they were bound until their load was tracked in full.
#[test]
fn item_42_where_both_llcs_are_full_nothing_is_moved() {
    let mut scene = Scene::lasting(3 * S);
    for first in [0, 8] {
        let task = scene.task(&format!("from {first}"), spin());
        (task.instances, task.affinity, task.release_ns) = (7, on_cpus(first..first + 8), Some(S));
    }
    for seed in 1..=5 {
        let run = scene.run_with_seed(TWO_LLCS_OF_8, "cache-aware:aggr_tolerance=100", seed);
        assert!(decided(&run, "task pulled").is_empty(), "seed {seed}");
        for time_ns in [1_500 * MS, 2 * S, 3 * S] {
            assert_eq!(split(&run, time_ns), [7, 7], "seed {seed}: as without cache awareness");
        }
    }
}

/// The item's mean is 10 to 30 ms where CPUs' passes have drifted apart. Here nothing but the load runs, all idle CPUs are served
/// in one jiffy, and those without a pull double their interval: every 32 ms.
#[test]
fn item_45_one_task_is_moved_per_pass() {
    for seed in 1..=10 {
        let run = spinners(6, 3 * S).run_with_seed(TWO_LLCS_OF_8, "cache-aware", seed);
        let pulled = decided(&run, "task pulled");
        assert!((1..=3).contains(&pulled.len()), "seed {seed}: {pulled:?}");
        for pair in pulled.windows(2) {
            let gap_ns = pair[1].0 - pair[0].0;
            assert!((4 * MS..=33 * MS).contains(&gap_ns), "seed {seed}: {} ms", gap_ns / MS);
        }
    }
}

/// Players end up on one LLC, with and without the feature, whether or not they begin there.
#[test]
fn item_46_the_wakeup_path_decides_where_a_ping_pong_pair_lives() {
    let scene = |apart: bool| {
        let mut scene = Scene::lasting(S);
        let channels = [0, 1].map(|_| scene.workload.add_channel("pipe", ChannelKind::Pipe, 65_536));
        for n in 0..2 {
            let send = Step::Send { channel: channels[n], bytes: 8 };
            let receive = Step::Receive { channel: channels[1 - n], bytes: 8 };
            let turn = if n == 0 { [send, receive, run_for(5 * US)] } else { [receive, send, run_for(5 * US)] };
            let task = scene.task(&format!("player {n}"), forever(turn));
            let home = if apart && n == 0 { 0..8 } else { 8..16 };
            (task.affinity, task.release_ns) = (on_cpus(home), Some(100 * MS));
        }
        scene
    };
    for seed in 1..=5 {
        let llcs = |apart, scheduler| {
            let run = scene(apart).run_with_seed(TWO_LLCS_OF_8, scheduler, seed);
            ["player 0", "player 1"].map(|name| run.place(name, S) / 8)
        };
        for scheduler in ["cache-aware", "eevdf"] {
            for apart in [true, false] {
                let [first, second] = llcs(apart, scheduler);
                assert_eq!(first, second, "{scheduler}, seed {seed}, first apart: {apart}");
            }
        }
    }
}

#[test]
fn on_a_machine_with_one_llc_cache_awareness_changes_nothing() {
    for machine in ["1s1n1l8c1t", "1s1n1l8c2t", "1s1n1l1c1t"] {
        let mut scene = spinners(9, S);
        scene.task("periodic", forever([run_for(300 * US), sleep(900 * US)])).instances = 5;
        let [with, without] = ["cache-aware", "eevdf"].map(|scheduler| scene.run(machine, scheduler));
        assert!(with.events == without.events, "{machine}");
        assert_eq!(format!("{:?}", with.outcome), format!("{:?}", without.outcome), "{machine}");
    }
}
