//! What waiting costs. Locks of dispatch queues: a queue that all CPUs share limits how often they can queue and pick together.

use warmcore_scx::{Kfuncs, Kick};
use warmcore_topology::CpuId;
use warmcore_trace::{EventKind, OverheadKind};

use super::program::Program;
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

/// One of two CPUs kicks the other. Who waits is later by the time that an interrupt takes, and so is its task; nobody waits for a CPU that is idle.
#[test]
fn who_kicks_and_waits_pays_for_that_also_where_it_preempts() {
    let done_ns = |kick: fn(&mut Kfuncs<'_, '_>), work_ns: u64| {
        let mut scene = Scene::new();
        scene.task("kicks", once([run_for(10 * MS)])).affinity = on_cpu(0);
        scene.task("kicked", once([run_for(work_ns)])).affinity = on_cpu(1);
        let mut program = Program::fifo();
        (program.timer, program.timer_at_ns) = (kick, 5 * MS);
        let result = program.run(&scene, "1s1n1l2c1t");
        assert!(result.ejected.is_none());
        result.run.stays("kicks").last().expect("it runs").end_ns
    };
    let kicks: [fn(&mut Kfuncs<'_, '_>); 4] = [
        |kernel| kernel.kick(CpuId(1), Kick::Plain),
        |kernel| kernel.kick(CpuId(1), Kick::Preempt),
        |kernel| kernel.kick(CpuId(1), Kick::Wait),
        |kernel| kernel.kick(CpuId(1), Kick::PreemptAndWait),
    ];
    let [plain, preempts, waits, both] = kicks.map(|kick| done_ns(kick, 30 * MS));
    assert!(plain == preempts && waits == both && waits > plain, "{plain} {preempts} {waits} {both}");
    let [plain, _, waits, _] = kicks.map(|kick| done_ns(kick, MS));
    assert_eq!(plain, waits);
}

#[test]
fn a_lock_that_stays_with_its_cpu_costs_little() {
    let mut scene = Scene::lasting(20 * MS);
    scene.task("short", forever([run_for(20 * US), sleep(10 * US)])).instances = 2;
    let [free, locked] =
        ["scx-native:dsq_lock=0", "scx-native"].map(|scheduler| scene.run("1s1n1l1c1t", scheduler).switches_on(0));
    assert!(locked * 100 >= free * 99, "{locked} switches, {free} if the lock were free");
}
