//! Tasks that a quota or a reservation keeps from running, on sequences made by hand.

use crate::metrics::tests::EventScript;
use crate::{EventKind, MigrationKind, PrevState, TaskId, Throttler};

/// A group's quota keeps task 0 from running, or lets it run again.
fn quota(throttled: bool) -> EventKind {
    EventKind::Throttle { task: TaskId(0), throttled: throttled.then_some(Throttler::Quota) }
}

/// A task runs from 0 to 20 and from 103 to 120; a quota keeps it from running from 20 to 100. All other CPUs are idle.
#[test]
fn a_task_that_a_quota_keeps_from_running_waits_for_no_cpu() {
    let start = EventScript::new().fork(0, 3, 0).wakeup(0, 3, 0).run(0, 3, 0);
    let script = start.at(20, 3, quota(true)).switch(20, 3, Some(0), PrevState::Runnable, None);
    let metrics = script.at(100, 3, quota(false)).run(103, 3, 0).sleep(120, 3, 0).metrics(1000);
    let totals = &metrics.totals;
    assert_eq!(totals.work_conservation_violation_ns, 0);
    assert_eq!((totals.preempt_wait.histogram.count(), totals.preempt_wait.histogram.max()), (1, Some(3)));
    assert_eq!((totals.run_ns, metrics.tasks[0].off_cpu_ns), (37, 83));
    // 20 + 17 ns on the CPU and 3 in its queue.
    assert_eq!(metrics.cpus[3].runqueue_length_mean, Some(0.04));
    assert_eq!(totals.unexpected_events, 0);
}

/// The same where it is moved meanwhile, and where the run ends meanwhile.
#[test]
fn a_throttled_task_that_moves_joins_the_queue_of_its_new_cpu_when_it_may_run() {
    let busy = EventScript::new().fork(0, 4, 1).wakeup(0, 4, 1).run(0, 4, 1);
    let start = busy.fork(0, 3, 0).wakeup(0, 3, 0).run(0, 3, 0).at(20, 3, quota(true));
    let moved = start.switch(20, 3, Some(0), PrevState::Runnable, None).migrate(50, 0, 3, 4, MigrationKind::Affinity);
    // It waits on CPU 4 from 100 on, while others are idle.
    let metrics = EventScript(moved.0.clone()).at(100, 4, quota(false)).metrics(1000);
    assert_eq!(metrics.totals.work_conservation_violation_ns, 900);
    assert_eq!((metrics.cpus[3].runqueue_length_max, metrics.cpus[4].runqueue_length_max), (1, 2));
    let never = moved.metrics(1000);
    assert_eq!((never.totals.work_conservation_violation_ns, never.totals.censored.preempt.count), (0, 0));
}

/// A task runs from 0 to 20, is woken at 50 while its reservation is used up, may run from 100 on, runs from 103 to 120, uses the reservation up
/// there, and runs again from 205 on, having been allowed to at 200.
#[test]
fn a_wakeup_without_runtime_waits_from_the_waking_and_a_task_that_uses_it_up_waits_from_its_next_period() {
    let reservation =
        |used_up: bool| EventKind::Throttle { task: TaskId(0), throttled: used_up.then_some(Throttler::Reservation) };
    let start = EventScript::new().fork(0, 3, 0).wakeup(0, 3, 0).run(0, 3, 0).sleep(20, 3, 0);
    let woken = start.waking(50, 3, 0, 3).at(50, 3, reservation(true)).wakeup(50, 3, 0).at(100, 3, reservation(false));
    let again = woken.run(103, 3, 0).at(120, 3, reservation(true)).switch(120, 3, Some(0), PrevState::Runnable, None);
    let metrics = again.at(200, 3, reservation(false)).run(205, 3, 0).metrics(300);
    let totals = &metrics.totals;
    assert_eq!((totals.wakeup_latency.count, totals.wakeup_latency.max_ns), (2, Some(53)));
    assert_eq!((totals.preempt_wait.histogram.count(), totals.preempt_wait.histogram.max()), (1, Some(5)));
    let task = &metrics.tasks[0];
    assert_eq!((task.throttled_ns, task.throttled_wait_ns, task.run_delay_ns), (50 + 80, 50, 58));
    assert_eq!((totals.work_conservation_violation_ns, totals.unexpected_events), (0, 0));
}
