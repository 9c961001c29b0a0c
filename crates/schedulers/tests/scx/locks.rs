//! What the locks of dispatch queues cost: a queue that all CPUs share limits how often they can queue and pick together.

use warmcore_trace::{EventKind, OverheadKind};

use crate::support::*;

/// More short tasks than 128 CPUs under 16 LLCs can run at once: how often CPUs switch when all have been created, which takes 15 ms, and what
/// switches and wakeups take of the kernel's time by switch of the whole run.
fn switches_and_overhead(scheduler: &str) -> (usize, u64) {
    let mut scene = Scene::lasting(30 * MS);
    scene.task("short", forever([run_for(3 * US), sleep(10 * US)])).instances = 1280;
    let run = scene.run("2s1n8l8c1t", scheduler);
    let switches = || run.events.iter().filter(|event| matches!(event.kind, EventKind::Switch { .. }));
    let kinds = [OverheadKind::Switch, OverheadKind::Wakeup];
    let overhead_ns: u64 =
        run.outcome.cpus.iter().map(|cpu| kinds.iter().map(|&kind| cpu.overhead_ns[kind as usize]).sum::<u64>()).sum();
    (switches().filter(|event| event.time_ns >= 20 * MS).count(), overhead_ns / switches().count() as u64)
}

#[test]
fn one_queue_for_all_cpus_is_limited_by_its_lock_and_queues_for_each_llc_are_not() {
    let (free, _) = switches_and_overhead("scx-native:dsq_lock=0");
    let (shared, shared_ns) = switches_and_overhead("scx-native:policy=fifo");
    let (per_llc, per_llc_ns) = switches_and_overhead("scx-native:policy=fifo-llc");
    assert!(shared * 4 < free * 3, "{shared} switches, {free} if the lock were free");
    assert!(per_llc * 10 > free * 9, "{per_llc} switches with queues for each LLC, {free} if locks were free");
    assert!(shared_ns > 3 * per_llc_ns, "{shared_ns} and {per_llc_ns} ns");
}

#[test]
fn a_lock_that_stays_with_its_cpu_costs_little() {
    let mut scene = Scene::lasting(20 * MS);
    scene.task("short", forever([run_for(20 * US), sleep(10 * US)])).instances = 2;
    let [free, locked] =
        ["scx-native:dsq_lock=0", "scx-native"].map(|scheduler| scene.run("1s1n1l1c1t", scheduler).switches_on(0));
    assert!(locked * 100 >= free * 99, "{locked} switches, {free} if the lock were free");
}
