//! CPUs that go offline and come online, on sequences made by hand.

use super::*;
use crate::metrics::metric;

/// Of 16 CPUs over 1000 ns, CPU 1 runs a task from 0 to 300, goes offline at 400 and comes online at 900; CPU 0 runs another all the time.
fn one_offline() -> EventScript {
    let hotplug = |online| EventKind::Hotplug { online };
    let start =
        EventScript::new().fork(0, 0, 0).wakeup(0, 0, 0).run(0, 0, 0).fork(0, 1, 1).wakeup(0, 1, 1).run(0, 1, 1);
    start.sleep(300, 1, 1).at(400, 1, hotplug(false)).at(900, 1, hotplug(true))
}

#[test]
fn time_offline_is_neither_idle_nor_in_what_shares_divide_by() {
    let metrics = one_offline().metrics(1000);
    let cpu = &metrics.cpus[1];
    assert_eq!((cpu.busy_ns, cpu.idle_ns, cpu.offline_ns, cpu.unobserved_ns), (300, 200, 500, 0));
    // 300 ns with one task, in 500 ns online.
    assert_eq!(cpu.runqueue_length_mean, Some(0.6));
    let value = |name: &str| (metric(name).unwrap().value)(&metrics);
    assert_eq!((value("offline_ns"), value("idle_ns")), (Some(500.0), Some(14.0 * 1000.0 + 200.0)));
    // 1300 ns busy of 16,000 without 500.
    assert_eq!(value("busy_share"), Some(1300.0 / 15_500.0));
    assert_eq!(value("runqueue_length_mean"), Some(1300.0 / 15_500.0));
}

#[test]
fn time_offline_is_cut_at_the_end_of_a_warm_up_and_of_the_run() {
    let mut counters = Counters::new(&machine(), &tables(), Start::Idle { time_ns: 0 }).with_warm_up(600);
    counters.events(&one_offline().0).unwrap();
    let metrics = counters.metrics(1000, &tables(), &[]);
    assert_eq!((metrics.cpus[1].idle_ns, metrics.cpus[1].offline_ns), (100, 300));
    let never_again = EventScript::new().at(400, 1, EventKind::Hotplug { online: false }).metrics(1000);
    assert_eq!((never_again.cpus[1].idle_ns, never_again.cpus[1].offline_ns), (400, 600));
}

#[test]
fn a_task_that_may_not_leave_a_cpu_offline_keeps_it_busy() {
    let hotplug = |online| EventKind::Hotplug { online };
    let start = EventScript::new().fork(0, 1, 0).wakeup(0, 1, 0).run(0, 1, 0);
    let metrics = start.at(100, 1, hotplug(false)).sleep(250, 1, 0).at(700, 1, hotplug(true)).metrics(1000);
    let cpu = &metrics.cpus[1];
    assert_eq!((cpu.busy_ns, cpu.idle_ns, cpu.offline_ns), (250, 300, 450));
}

#[test]
fn a_cpu_offline_violates_no_work_conservation() {
    let busy = |script: EventScript, cpu: u32| script.fork(0, cpu, cpu).wakeup(0, cpu, cpu).run(0, cpu, cpu);
    let all_but_cpu_1 = (0..16).filter(|cpu| *cpu != 1).fold(EventScript::new(), busy);
    // Task 1 waits on CPU 0 from 100 on, while CPU 1 is idle but from 300 to 600.
    let hotplug = |online| EventKind::Hotplug { online };
    let waits = all_but_cpu_1.fork(100, 0, 1).wakeup(100, 0, 1);
    let metrics = waits.at(300, 1, hotplug(false)).at(600, 1, hotplug(true)).metrics(1000);
    assert_eq!(metrics.totals.work_conservation_violation_ns, 200 + 400);
    // Who was about to start on it waits from then on, and nothing else is idle.
    let starts = (2..16).fold(busy(EventScript::new(), 0), busy).fork(100, 1, 1).wakeup(100, 1, 1);
    let moved = starts.at(300, 1, hotplug(false)).migrate(300, 1, 1, 0, MigrationKind::Affinity);
    assert_eq!(moved.metrics(1000).totals.work_conservation_violation_ns, 0);
}
