//! Tasks on CPUs of unequal capacity, against calculations by hand (`docs/spec/linux-fair.md` section 4.9).
//!
//! The machine is a phone: CPUs 0 to 3 have a capacity of 462, 4 to 7 one of 1024.

use warmcore_topology::resolve;
use warmcore_trace::{EventKind, MigrationKind};
use warmcore_workload::{Affinity, Step, TimerMode};

use crate::support::*;

/// Those with the rules, and governors: without frequencies, and with them by utilisation and energy.
const UNEQUAL: [&str; 4] = ["eevdf", "cfs", "eevdf:governor=schedutil", "cache-aware"];

fn run(scene: &Scene, scheduler: &str) -> Run {
    scene.try_run_on(&resolve("hikey960").unwrap(), scheduler, 1).unwrap()
}

/// A task that only computes, on a little CPU for 100 ms, then free.
fn hog() -> Scene {
    let mut scene = Scene::lasting(S);
    let first = [run_for(45 * MS), Step::SetAffinity(Affinity::All)];
    scene.task("hog", then_forever(first, [run_for(S)])).affinity = on_cpu(0);
    scene
}

/// By hand: a tick of 4 ms finds that it may use a bigger CPU and has an idle one balance for all. Idle CPU 4 is the one that balances between
/// clusters, at most every 16 ms, so after 20 ms at most and the tick after that the stopper moves it.
#[test]
fn a_task_that_only_computes_comes_from_a_little_cpu_to_a_big_one_within_24_ms() {
    for scheduler in UNEQUAL {
        let run = run(&hog(), scheduler);
        let is_free = |kind| matches!(kind, EventKind::Affinity { restriction: 0, .. });
        let free_ns = run.events.iter().rev().find(|event| is_free(event.kind)).unwrap().time_ns;
        assert!(free_ns > 90 * MS, "{scheduler}: {free_ns}");
        let moves = run.moves_of("hog");
        let [moved] = moves.as_slice() else { panic!("{scheduler}: {moves:?}") };
        assert_eq!((moved.kind, moved.from, moved.to), (MigrationKind::Active, 0, 4), "{scheduler}");
        let after_ms = (moved.time_ns - free_ns) / MS;
        assert!(after_ms <= 24, "{scheduler}: after {after_ms} ms");
    }
}

/// The rules are of Linux 4.20 and later.
#[test]
fn an_older_kernel_leaves_it_there() {
    let run = run(&hog(), "cfs:kernel=4.9");
    assert_eq!(run.moves_of("hog"), []);
}

/// It fits none of the CPUs that it may use, so no CPU is to have it.
#[test]
fn a_task_that_may_use_little_cpus_only_is_left_alone() {
    for scheduler in UNEQUAL {
        let mut scene = Scene::lasting(S);
        scene.task("hog", spin()).affinity = on_cpus([0, 1]);
        let moves = run(&scene, scheduler).moves_of("hog");
        assert!(moves.iter().all(|moved| moved.kind != MigrationKind::Active), "{scheduler}: {moves:?}");
    }
}

/// By hand: 8 ms of work in each 10 ms are 80 % of a big CPU and 17 ms of a little one, half a millisecond in 16 is 7 % of a little one. All
/// begin on little CPUs. The large one fits none of these, and its wakeups go to big ones; the small ones fit and stay.
#[test]
fn of_four_small_tasks_and_a_large_one_the_large_one_has_a_big_cpu() {
    // cache-aware may bring small ones of a process to the large one's cache.
    for scheduler in &UNEQUAL[..3] {
        let mut scene = Scene::lasting(2 * S);
        let timer = scene.workload.add_timer("grid");
        let every = |period_ns| Step::Timer { timer, period_ns, mode: TimerMode::Absolute };
        for cpu in 0..4 {
            let first = [sleep(100 * MS), Step::SetAffinity(Affinity::All)];
            let program = then_forever(first, [run_for(MS / 2), sleep(15_500 * US)]);
            scene.task(&format!("small{cpu}"), program).affinity = on_cpu(cpu);
        }
        let first = [run_for(40 * MS), Step::SetAffinity(Affinity::All)];
        scene.task("large", then_forever(first, [run_for(8 * MS), every(10 * MS)])).affinity = on_cpu(3);
        let run = run(&scene, scheduler);
        let large = run.stays_from("large", 500 * MS);
        assert!(large.len() > 100 && large.iter().all(|stay| stay.cpu >= 4), "{scheduler}: {large:?}");
        for cpu in 0..4 {
            let small = run.stays_from(&format!("small{cpu}"), 500 * MS);
            assert!(!small.is_empty() && small.iter().all(|stay| stay.cpu < 4), "{scheduler}: {small:?}");
        }
    }
}

/// Five tasks that only compute begin on little CPUs: each big CPU gets one, and the fifth has no bigger CPU with room to go to.
#[test]
fn big_cpus_have_a_large_task_each_before_a_little_one_has_any() {
    for scheduler in UNEQUAL {
        let mut scene = Scene::lasting(2 * S);
        for task in 0..5 {
            let first = [run_for(20 * MS), Step::SetAffinity(Affinity::All)];
            scene.task(&format!("hog{task}"), then_forever(first, [run_for(S)])).affinity = on_cpu(task % 4);
        }
        let run = run(&scene, scheduler);
        let mut cpus: Vec<u32> = (0..5).map(|task| run.place(&format!("hog{task}"), S)).collect();
        cpus.sort_unstable();
        assert!(cpus[0] < 4 && cpus[1..] == [4, 5, 6, 7], "{scheduler}: {cpus:?}");
    }
}

/// A wakeup says which rule chose the CPU: bound to a little CPU until it is known to be large, it goes to a big one.
#[test]
fn a_wakeup_that_does_not_fit_its_cpu_says_so() {
    let mut scene = Scene::lasting(S);
    let first = [run_for(45 * MS), Step::SetAffinity(Affinity::All), sleep(MS)];
    scene.task("large", then_forever(first, [run_for(8 * MS), sleep(2 * MS)])).affinity = on_cpu(0);
    let run = run(&scene, "eevdf");
    let placed = run.placed("large", 50 * MS);
    assert_eq!(placed.first().map(|placed| placed.words().1), Some("capacity_fits"));
}
