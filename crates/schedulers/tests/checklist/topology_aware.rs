//! Items 47 to 49: the extension of cache-aware scheduling to several LLCs, on the first RFC's machine (half of an LLC's 16 CPUs
//! count as full) and on LLCs without SMT (three quarters do). Item 50 needs NUMA balancing.

use warmcore_trace::{EventKind, PrevState};
use warmcore_workload::{Policy, Step};

use super::cache_aware::*;
use crate::support::*;

const RFC_MACHINE: &str = "hygon384";

/// Four LLCs of eight CPUs.
const FOUR_LLCS_OF_8: &str = "1s1n4l8c1t";

#[test]
fn item_47_the_scope_of_6_10_20_and_100_spinners_on_the_rfc_machine() {
    let levels =
        ["scope is one LLC", "scope is in the home node", "scope is in the home socket", "scope crosses sockets"];
    for (count, llcs, level) in [(6, 1, 0), (10, 2, 1), (20, 3, 2), (100, 13, 3)] {
        for (mode, whole) in [("prefix", llcs), ("ladder", [1, 2, 12, 24][level])] {
            let run = spinners(count, S).run(RFC_MACHINE, &format!("topology-aware:mode={mode}"));
            let sizes = decided(&run, "scope expanded");
            println!("{count} spinners, {mode}: {sizes:?}");
            assert_eq!(sizes.last().map(|(_, llcs)| *llcs), Some(whole), "{count} spinners, {mode}");
            let reached: Vec<bool> = levels.iter().map(|level| !decided(&run, level).is_empty()).collect();
            assert!(reached[level] && !reached[level + 1..].contains(&true), "{count} spinners, {mode}: {reached:?}");
            assert!(decided(&run, "scope contracted").is_empty(), "the load is constant");
        }
    }
}

/// Fourteen CPUs' worth need three LLCs of six, four CPUs' worth one.
#[test]
fn item_48_when_the_demand_falls_the_scope_shrinks_and_threads_return_home() {
    let mut scene = Scene::lasting(START_NS + 5 * S);
    for n in 0..14 {
        let busy_ns = if n % 4 == 0 { 100 * S } else { 2 * S };
        scene.task(&format!("thread {n}"), once([sleep(START_NS), run_for(busy_ns), sleep(100 * S)]));
    }
    for seed in 1..=5 {
        let run = scene.run_with_seed(FOUR_LLCS_OF_8, "topology-aware", seed);
        let fallen_ns = START_NS + 2 * S;
        let grown = decided(&run, "scope expanded");
        assert_eq!(grown.last().map(|(_, llcs)| *llcs), Some(3), "seed {seed}");
        assert!(grown.iter().all(|(time_ns, _)| *time_ns < START_NS + 500 * MS), "seed {seed}: no oscillation");
        let shrunk = decided(&run, "scope contracted");
        println!("seed {seed}: grown {grown:?}, shrunk {shrunk:?}");
        assert_eq!(shrunk.iter().map(|(_, llcs)| *llcs).collect::<Vec<_>>(), [2, 1], "seed {seed}");
        // Four scans of 8 ms at the least, and what the smoothed demand needs to fall.
        assert!(shrunk[0].0 >= fallen_ns + 32 * MS && shrunk[1].0 <= fallen_ns + 500 * MS, "seed {seed}");
        let home = decided(&run, "preferred LLC").last().expect("it has a home").1 as u32;
        let places = run.places(run.outcome.elapsed_ns);
        let busy = [0, 4, 8, 12].map(|n| places[&run.id(&format!("thread {n}"))] / 8);
        assert_eq!(busy, [home; 4], "seed {seed}");
    }
}

#[test]
fn item_49_with_one_llc_it_gathers_as_cache_awareness_does_but_never_latches() {
    for seed in 1..=5 {
        for (count, limit_ns) in [(4, 130 * MS), (6, 200 * MS)] {
            let run = spinners(count, 3 * S).run_with_seed(TWO_LLCS_OF_8, "topology-aware", seed);
            let settled_ns = settled_after(&run, [count, 0]).expect("gathered at the end");
            assert!(settled_ns <= limit_ns, "{count} spinners, seed {seed}: {} ms", settled_ns / MS);
        }
        let eight = spinners(8, 3 * S).run_with_seed(TWO_LLCS_OF_8, "topology-aware", seed);
        assert_eq!(split(&eight, 3 * S), [6, 2], "seed {seed}: home is filled to three quarters");
        let run = bursts().run_with_seed(TWO_LLCS_OF_8, "topology-aware", seed);
        let places = run.places(START_NS + 7_400 * MS);
        let at = [4, 5, 6, 7].map(|n| places[&run.id(&format!("thread {n}"))] / 8);
        assert!(at == [0; 4] || at == [1; 4], "seed {seed}: four threads after the burst are at {at:?}");
    }
}

/// Cache awareness without limit puts five or six of six spinners on four cores (item 35) while the other four idle. A thread more
/// than cores that was pulled home before any utilisation was known stays: without it the LLC is a hair below half full.
#[test]
fn item_49_at_most_one_thread_shares_a_core_while_cores_are_idle() {
    let mut as_many_as_cores = 0;
    for seed in 1..=20 {
        for (count, wanted) in [(3, [3, 0]), (5, [4, 1]), (6, [4, 2]), (8, [4, 4])] {
            let run = spinners(count, 3 * S).run_with_seed("1s1n2l4c2t", "topology-aware", seed);
            let found = split(&run, 3 * S);
            assert!(found == wanted || found == [5, count - 5], "{count} spinners, seed {seed}: {found:?}");
            as_many_as_cores += u32::from(found == wanted);
        }
    }
    println!("{as_many_as_cores} of 80");
    assert!(as_many_as_cores >= 50, "{as_many_as_cores} of 80");
}

/// Ten CPUs' worth need two LLCs of six. Once both are in the scope, packing still fills the first; spreading moves nobody.
#[test]
fn spreading_leaves_tasks_within_the_scope_where_they_are() {
    let pulled = |fill: &str| -> usize {
        let of_seed = |seed| {
            let run = spinners(10, 3 * S).run_with_seed(TWO_LLCS_OF_8, &format!("topology-aware:fill={fill}"), seed);
            let grown_ns = decided(&run, "scope expanded").last().expect("it grew").0;
            decided(&run, "task pulled").into_iter().filter(|(time_ns, _)| *time_ns > grown_ns).count()
        };
        (1..=5).map(of_seed).sum()
    };
    let (packed, spread) = (pulled("pack"), pulled("spread"));
    assert!(packed > 0 && spread == 0, "packed {packed}, spread {spread}");
}

#[test]
fn tolerance_0_never_gathers() {
    let run = spinners(4, S).run(TWO_LLCS_OF_8, "topology-aware:aggr_tolerance=0");
    assert!(decided(&run, "preferred LLC chosen").is_empty());
    assert!(!decided(&run, "aggregation refused: aggr_tolerance is 0").is_empty());
    assert!(decided(&run, "aggregation refused: more threads").is_empty(), "that is not why");
    assert_eq!(split(&run, S), [2, 2]);
}

/// A pair on two LLCs that wakes each other meets through the hint; without, wakeups know nothing of the scope.
#[test]
fn the_wakeup_hint_is_off_unless_asked_for() {
    let mut scene = Scene::lasting(2 * S);
    scene.task("spinner", spin()).instances = 4;
    scene.task("periodic", forever([run_for(300 * US), sleep(700 * US)])).instances = 6;
    let other = scene.application("other");
    let elsewhere = scene.task("elsewhere", forever([run_for(200 * US), sleep(300 * US)]));
    (elsewhere.process, elsewhere.instances) = (other, 12);
    let hints = |scheduler| decided(&scene.run(FOUR_LLCS_OF_8, scheduler), "wakeup hinted").len();
    assert_eq!(hints("topology-aware"), 0);
    assert!(hints("topology-aware:wake_hint=1") > 0);
}

#[test]
fn on_a_machine_with_one_llc_the_extension_changes_nothing() {
    let scene = spinners(9, S);
    let [with, without] = ["topology-aware", "eevdf"].map(|scheduler| scene.run("1s1n1l8c2t", scheduler));
    assert!(with.events == without.events);
}

/// A process's threads, woken all at once every 4 ms for `busy_ns` each.
fn waves(threads: u32, busy_ns: u64) -> Scene {
    let mut scene = Scene::lasting(START_NS + 2 * S);
    let start = scene.workload.add_barrier("start", threads + 1, warmcore_workload::BarrierWait::Block);
    scene.task("pacer", forever([sleep(4 * MS), Step::Barrier(start)])).start_ns = START_NS;
    let thread = scene.task("thread", forever([Step::Barrier(start), run_for(busy_ns)]));
    (thread.instances, thread.start_ns) = (threads, START_NS);
    scene
}

/// The longest time from `from_ns` on for which some task waited for a CPU while one of the CPUs was idle all the time.
fn longest_wait_beside_idle(run: &Run, cpus: std::ops::Range<u32>, from_ns: u64) -> u64 {
    let (mut waits, mut idles) = (Vec::new(), Vec::new());
    let mut waiting_since = std::collections::BTreeMap::new();
    let mut idle_since = std::collections::BTreeMap::new();
    for event in &run.events {
        match event.kind {
            EventKind::Wakeup { task, .. } => drop(waiting_since.insert(task, event.time_ns)),
            EventKind::Switch { prev, prev_state, next } => {
                if prev_state == PrevState::Runnable {
                    waiting_since.insert(prev, event.time_ns);
                }
                if let Some(since) = waiting_since.remove(&next) {
                    waits.push((since, event.time_ns));
                }
                if next.is_idle() {
                    idle_since.insert(event.cpu.0, event.time_ns);
                } else if let Some(since) = idle_since.remove(&event.cpu.0)
                    && cpus.contains(&event.cpu.0)
                {
                    idles.push((since, event.time_ns));
                }
            }
            _ => {}
        }
    }
    let overlap =
        |&(from, to): &(u64, u64), &(idle, busy): &(u64, u64)| to.min(busy).saturating_sub(from.max(idle).max(from_ns));
    waits.iter().flat_map(|wait| idles.iter().map(move |idle| overlap(wait, idle))).max().unwrap_or(0)
}

/// As many threads as the scope has CPUs: four LLCs of eight.
#[test]
fn no_cpu_of_the_scope_is_idle_while_a_thread_waits_for_longer_than_a_tick() {
    let mut longest_without = 0;
    for seed in 1..=3 {
        let longest = |scheduler| {
            let run = waves(32, 2_600 * US).run_with_seed(FOUR_LLCS_OF_8, scheduler, seed);
            let grown = decided(&run, "scope expanded");
            assert_eq!(grown.last().map(|(_, llcs)| *llcs), Some(4), "seed {seed}: the scope is the node");
            longest_wait_beside_idle(&run, 0..32, START_NS + S)
        };
        let (conserving, without) =
            (longest("topology-aware:mode=ladder"), longest("topology-aware:mode=ladder,conserve=0"));
        println!("seed {seed}: {} us, {} us without", conserving / US, without / US);
        longest_without = longest_without.max(without);
        assert!(conserving <= 4 * MS, "seed {seed}: {} us beside an idle CPU", conserving / US);
    }
    assert!(longest_without > 4 * MS, "balancing alone is not that fast");
}

/// Five threads of a scope of eight CPUs, and one real-time task after the other, 40 ms on each CPU: there is always an idle CPU. Who is alone
/// in a queue below a real-time task waits as anybody else.
#[test]
fn no_cpu_of_the_scope_is_idle_while_a_thread_waits_for_a_real_time_task() {
    let mut scene = Scene::lasting(800 * MS);
    scene.task("thread", spin()).instances = 5;
    let other = scene.application("other");
    for cpu in 0..8 {
        let urgent = scene.task(&format!("urgent {cpu}"), once([run_for(40 * MS)]));
        (urgent.process, urgent.affinity) = (other, on_cpu(cpu));
        (urgent.policy, urgent.start_ns) = (Policy::Fifo { priority: 10 }, 300 * MS + u64::from(cpu) * 60 * MS);
    }
    for seed in 1..=3 {
        let run = scene.run_with_seed("1s1n2l4c1t", "topology-aware", seed);
        assert_eq!(decided(&run, "scope expanded").last().map(|(_, llcs)| *llcs), Some(2), "seed {seed}");
        assert!(!decided(&run, "task pushed").is_empty(), "seed {seed}");
        let longest = longest_wait_beside_idle(&run, 0..8, 300 * MS);
        assert!(longest <= 5 * MS, "seed {seed}: {} us beside an idle CPU", longest / US);
    }
}

/// How often an idle CPU began to run a task beside a busy sibling, from a time on.
fn began_beside_a_busy_sibling(run: &Run, from_ns: u64) -> usize {
    let mut busy = vec![false; run.machine.cpu_count()];
    let mut began = 0;
    for event in &run.events {
        if let EventKind::Switch { prev, next, .. } = event.kind {
            busy[event.cpu.index()] = !next.is_idle();
            let core = run.machine.cpus_of_core(run.machine.core_of(event.cpu));
            let busy_threads = core.iter().filter(|thread| busy[thread.index()]).count();
            began += usize::from(prev.is_idle() && event.time_ns >= from_ns && busy_threads > 1);
        }
    }
    began
}

/// Seven threads and who wakes them, in a scope of two LLCs, four cores of two siblings each.
#[test]
fn a_wakeup_prefers_an_idle_core_of_the_scope_to_the_sibling_of_a_busy_one() {
    let began = |scheduler| {
        let run = waves(7, 3 * MS).run("1s1n2l4c2t", scheduler);
        assert_eq!(decided(&run, "scope expanded").last().map(|(_, llcs)| *llcs), Some(2));
        began_beside_a_busy_sibling(&run, START_NS + S)
    };
    let (conserving, without) = (began("topology-aware:conserve=cores"), began("topology-aware"));
    println!("{conserving} times beside a busy sibling, {without} without");
    assert!(conserving * 4 < without, "{conserving} of {without}");
}

/// Woken together by one, in one LLC, threads go to the other LLC of the scope as soon as theirs is full.
#[test]
fn wakeups_use_idle_cpus_of_the_whole_scope_unless_told_not_to() {
    let woken_elsewhere = |scheduler| {
        let run = waves(30, 2 * MS).run(RFC_MACHINE, scheduler);
        let found = placements(&run.events).into_iter().filter(|placed| placed.words().1.starts_with("scope_")).count();
        assert_eq!(decided(&run, "task woken elsewhere").len(), found, "each is told as the reason of its place");
        found
    };
    assert!(woken_elsewhere("topology-aware") > 0);
    assert_eq!(woken_elsewhere("topology-aware:conserve=0"), 0);
}
