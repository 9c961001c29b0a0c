//! Tasks on CPUs of different priority, against calculations by hand (`docs/spec/linux-fair.md` section 5.9).
//!
//! Fast CPUs have priority 67, slow ones 40; the kernel counts all as equally fast.

use warmcore_topology::{Machine, from_toml};
use warmcore_trace::MigrationKind;
use warmcore_workload::{Affinity, Step};

use crate::support::*;

/// Those with the rules.
const PACKING: [&str; 3] = ["eevdf", "cfs", "cache-aware"];

/// Two fast CPUs and two slow ones, with these priorities.
fn four(priorities: &str) -> Machine {
    from_toml(&format!("[topology]\nshape = \"1s1n1l4c1t\"\n{priorities}\n")).unwrap()
}

const FAST_AND_SLOW: &str = "priorities = [{ cpus = \"0-1\", priority = 67 }, { cpus = \"2-3\", priority = 40 }]";

/// Two fast cores of two threads, CPUs 0-1 and 2-3, and two slow ones of one.
fn hybrid() -> Machine {
    let text = "[topology]\nnodes = [{ id = 0, cpus = \"0-5\" }]\nllcs = [\"0-5\"]\ncores = [\"0-1\", \"2-3\", \"4\", \"5\"]\n\
                priorities = [{ cpus = \"0-3\", priority = 67 }, { cpus = \"4-5\", priority = 40 }]\n";
    from_toml(text).unwrap()
}

/// Has a CPU busy until 46 ms.
fn busy(scene: &mut Scene, name: &str, cpu: u32) {
    scene.task(name, once([run_for(46 * MS)])).affinity = on_cpu(cpu);
}

/// A task that only computes, bound to a CPU for 40 ms, then free.
fn hog(scene: &mut Scene, name: &str, cpu: u32) {
    let first = [run_for(40 * MS), Step::SetAffinity(Affinity::All)];
    scene.task(name, then_forever(first, [run_for(S)])).affinity = on_cpu(cpu);
}

/// By hand: both fast CPUs are idle from 46 ms on. A tick at CPU 2 of the next 4 ms, or after the 8 ms until which idle CPUs need not look, has
/// the idle ones look, of which a fast one is due after 8 ms at most: it has the task pushed within 24 ms. There no idle CPU is above it.
#[test]
fn a_task_alone_on_a_slow_cpu_is_pushed_to_a_fast_one_that_is_idle_and_stays() {
    for scheduler in PACKING {
        let mut scene = Scene::lasting(400 * MS);
        busy(&mut scene, "left", 0);
        busy(&mut scene, "right", 1);
        hog(&mut scene, "hog", 2);
        let run = scene.try_run_on(&four(FAST_AND_SLOW), scheduler, 1).unwrap();
        let moves = run.moves_of("hog");
        let [moved] = moves.as_slice() else { panic!("{scheduler}: {moves:?}") };
        assert_eq!((moved.kind, moved.from), (MigrationKind::Active, 2), "{scheduler}");
        assert!(moved.to < 2, "{scheduler}: to {}", moved.to);
        assert!((46 * MS..71 * MS).contains(&moved.time_ns), "{scheduler}: after {} us", moved.time_ns / US);
    }
}

/// Equal priorities are none, and the rules of 4.9 have none.
#[test]
fn without_a_difference_or_by_the_rules_of_4_9_nothing_moves() {
    let equal = "priorities = [{ cpus = \"0-3\", priority = 67 }]";
    for (priorities, scheduler) in [("", "eevdf"), (equal, "eevdf"), (equal, "cfs"), (FAST_AND_SLOW, "cfs:kernel=4.9")]
    {
        let mut scene = Scene::lasting(400 * MS);
        busy(&mut scene, "left", 0);
        busy(&mut scene, "right", 1);
        hog(&mut scene, "hog", 2);
        let run = scene.try_run_on(&four(priorities), scheduler, 1).unwrap();
        assert_eq!(run.moves_of("hog"), [], "{scheduler} {priorities}");
    }
}

/// Each fast CPU takes one; of two slow CPUs of equal priority the first in the order of the groups gives first.
#[test]
fn two_tasks_on_slow_cpus_have_a_fast_one_each() {
    for scheduler in PACKING {
        let mut scene = Scene::lasting(400 * MS);
        busy(&mut scene, "left", 0);
        busy(&mut scene, "right", 1);
        hog(&mut scene, "one", 2);
        hog(&mut scene, "other", 3);
        let run = scene.try_run_on(&four(FAST_AND_SLOW), scheduler, 1).unwrap();
        let mut cpus = ["one", "other"].map(|name| run.place(name, 300 * MS));
        cpus.sort_unstable();
        assert_eq!(cpus, [0, 1], "{scheduler}");
        assert!(run.moves().iter().all(|moved| moved.kind == MigrationKind::Active), "{scheduler}: {:?}", run.moves());
    }
}

/// By hand: CPU 0 is busy for good, so idle CPU 1 shares its core and its priority does not count. CPUs 2 and 3 are a core that is idle from 46 ms
/// on; CPU 2 balances for it, at least every 12 ms.
#[test]
fn only_a_core_that_is_wholly_idle_takes_a_task_from_a_slow_one() {
    for scheduler in PACKING {
        let mut scene = Scene::lasting(400 * MS);
        scene.task("forever", spin()).affinity = on_cpu(0);
        busy(&mut scene, "right", 2);
        hog(&mut scene, "hog", 4);
        let run = scene.try_run_on(&hybrid(), scheduler, 1).unwrap();
        let moves = run.moves_of("hog");
        let [moved] = moves.as_slice() else { panic!("{scheduler}: {moves:?}") };
        assert_eq!((moved.kind, moved.from, moved.to), (MigrationKind::Active, 4, 2), "{scheduler}");
        assert!((46 * MS..76 * MS).contains(&moved.time_ns), "{scheduler}: after {} us", moved.time_ns / US);
    }
}

/// Both fast cores have a busy thread and an idle one for good.
#[test]
fn the_idle_thread_of_a_busy_fast_core_takes_nothing_from_a_slow_core() {
    for scheduler in PACKING {
        let mut scene = Scene::lasting(400 * MS);
        scene.task("left", spin()).affinity = on_cpu(0);
        scene.task("right", spin()).affinity = on_cpu(2);
        hog(&mut scene, "hog", 4);
        let run = scene.try_run_on(&hybrid(), scheduler, 1).unwrap();
        assert_eq!(run.moves_of("hog"), [], "{scheduler}");
    }
}

/// Where no core has several threads, unequal capacities take the place of priorities (`hybrid_init_cpu_capacity_scaling`): a task that fits a
/// slow CPU stays there. 1 ms in each 10 ms are 17 % of capacity 600.
#[test]
fn capacities_without_hardware_threads_leave_a_small_task_on_a_slow_cpu() {
    let capacities = format!("{FAST_AND_SLOW}\ncapacities = [{{ cpus = \"2-3\", capacity = 600 }}]");
    let mut scene = Scene::lasting(400 * MS);
    let first = [run_for(MS), sleep(9 * MS), Step::SetAffinity(Affinity::All)];
    scene.task("small", then_forever(first, [run_for(MS), sleep(9 * MS)])).affinity = on_cpu(2);
    let run = scene.try_run_on(&four(&capacities), "eevdf", 1).unwrap();
    assert_eq!(run.moves_of("small"), []);
}
