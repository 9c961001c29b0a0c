//! Where tasks begin: launchers that the seed puts anywhere. When they do.

use std::collections::BTreeSet;

use warmcore_workload::{Policy, Step, TimerId, TimerMode};

use crate::support::*;

const THREE_LLCS: &str = "1s1n3l4c1t";

#[test]
fn a_first_task_leaves_its_launchers_llc_to_the_next_one_and_any_may_be_that() {
    let mut scene = Scene::lasting(5 * MS);
    scene.task("spinner", spin()).instances = 4;
    let mut homes = BTreeSet::new();
    for seed in 1..=40 {
        let run = scene.run_with_seed(THREE_LLCS, "eevdf", seed);
        let llcs: Vec<u32> = (0..4).map(|n| run.stays(&format!("spinner-{n}"))[0].cpu / 4).collect();
        // The launcher's CPU is busy while it forks: its LLC has an idle CPU less than others. Of equal ones the next comes first.
        let launchers = (llcs[0] + 2) % 3;
        assert_eq!(llcs, [0, 1, 2, 0].map(|n| (launchers + 1 + n) % 3), "seed {seed}");
        homes.insert(llcs[0]);
    }
    assert_eq!(homes.len(), 3);
}

#[test]
fn of_cpus_that_were_idle_before_the_run_any_may_have_been_so_last() {
    let mut scene = Scene::lasting(5 * MS);
    scene.task("spinner", spin());
    let cpus: BTreeSet<u32> =
        (1..=60).map(|seed| scene.run_with_seed("1s1n2l4c1t", "eevdf", seed).stays("spinner")[0].cpu).collect();
    assert!(cpus.len() >= 7, "{cpus:?}");
}

#[test]
fn a_task_that_may_not_run_where_its_launcher_is_begins_where_it_may() {
    let mut scene = Scene::lasting(5 * MS);
    scene.task("bound", spin()).affinity = on_cpu(5);
    for seed in 1..=10 {
        let run = scene.run_with_seed("1s1n2l4c1t", "eevdf", seed);
        assert!(run.stays("bound").iter().all(|stay| stay.cpu == 5), "seed {seed}");
    }
}

/// As with rt-app, whose threads read the clock when they run: a task that first runs when 5 ms of another are over has its timer's first
/// expiry 10 ms later, at 15 ms.
#[test]
fn a_tasks_timers_count_from_when_it_first_runs() {
    let mut scene = Scene::new();
    let hog = scene.task("hog", once([run_for(5 * MS)]));
    (hog.policy, hog.affinity) = (Policy::Fifo { priority: 1 }, on_cpu(0));
    let timer = TimerId(0);
    let step = Step::Timer { timer, period_ns: 10 * MS, mode: TimerMode::Absolute };
    scene.task("timed", once([step, run_for(MS)])).affinity = on_cpu(0);
    scene.workload.timers.push("unique".into());
    let run = scene.run("1s1n1l1c1t", "eevdf");
    assert_near("elapsed", run.outcome.elapsed_ns as f64, 16.0 * MS as f64, 0.01);
}
