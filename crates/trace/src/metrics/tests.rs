//! The definitions on sequences made by hand, one trap at a time.

mod hotplug;
mod quotas;

use warmcore_topology::{CpuId, CpuSet, Machine, Relation};

use super::{Counters, METRICS, Metrics, Start};
use crate::{
    DecisionKind, DecisionValue, Event, EventKind, MigrationKind, OverheadKind, PrevState, RunTables, Sink, TaskId,
    TaskInfo,
};

/// Two sockets of two LLCs with two cores of two threads each: CPUs 0-15, LLC 0 is 0-1 and 8-9.
fn machine() -> Machine {
    warmcore_topology::resolve("2s1n2l2c2t").unwrap()
}

fn tables() -> RunTables {
    let set = |list: &str| CpuSet::parse_list(list).unwrap();
    RunTables { restrictions: vec![machine().all_cpus().clone(), set("0")], ..RunTables::default() }
}

/// Writes events in the order of a trace: `(time, cpu, kind)`.
struct EventScript(Vec<Event>);

impl EventScript {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn at(mut self, time_ns: u64, cpu: u32, kind: EventKind) -> Self {
        self.0.push(Event { time_ns, cpu: CpuId(cpu), kind });
        self
    }

    fn switch(self, time_ns: u64, cpu: u32, prev: Option<u32>, state: PrevState, next: Option<u32>) -> Self {
        let task = |id: Option<u32>| id.map_or(TaskId::IDLE, TaskId);
        self.at(time_ns, cpu, EventKind::Switch { prev: task(prev), prev_state: state, next: task(next) })
    }

    /// The CPU goes from idle to the task.
    fn run(self, time_ns: u64, cpu: u32, task: u32) -> Self {
        self.switch(time_ns, cpu, None, PrevState::Idle, Some(task))
    }

    /// The task falls asleep and the CPU goes idle.
    fn sleep(self, time_ns: u64, cpu: u32, task: u32) -> Self {
        self.switch(time_ns, cpu, Some(task), PrevState::Sleeping, None)
    }

    fn fork(self, time_ns: u64, cpu: u32, child: u32) -> Self {
        self.at(time_ns, cpu, EventKind::Fork { parent: TaskId::IDLE, child: TaskId(child) })
    }

    fn waking(self, time_ns: u64, cpu: u32, task: u32, target_cpu: u32) -> Self {
        self.at(
            time_ns,
            cpu,
            EventKind::Waking { task: TaskId(task), target_cpu: CpuId(target_cpu), waker: TaskId::IDLE },
        )
    }

    fn wakeup(self, time_ns: u64, cpu: u32, task: u32) -> Self {
        self.at(time_ns, cpu, EventKind::Wakeup { task: TaskId(task), reason: None })
    }

    fn migrate(self, time_ns: u64, task: u32, from: u32, to: u32, kind: MigrationKind) -> Self {
        self.at(time_ns, to, EventKind::Migrate { task: TaskId(task), from: CpuId(from), to: CpuId(to), kind })
    }

    /// A forked task runs on `cpu` from 0 to 100 and sleeps.
    fn ran_before(self, task: u32, cpu: u32) -> Self {
        self.fork(0, cpu, task).wakeup(0, cpu, task).run(0, cpu, task).sleep(100, cpu, task)
    }

    fn metrics_from(&self, start: Start, end_ns: u64) -> Metrics {
        let mut counters = Counters::new(&machine(), &tables(), start);
        counters.events(&self.0).unwrap();
        counters.metrics(end_ns, &tables(), &[])
    }

    fn metrics(&self, end_ns: u64) -> Metrics {
        let metrics = self.metrics_from(Start::Idle { time_ns: 0 }, end_ns);
        assert_eq!(metrics.totals.unexpected_events, 0);
        metrics
    }
}

#[test]
fn wakeup_latency_starts_at_waking_not_at_wakeup() {
    let metrics =
        EventScript::new().ran_before(0, 0).waking(1000, 3, 0, 0).wakeup(1400, 0, 0).run(1500, 0, 0).metrics(2000);
    let task = &metrics.tasks[0];
    assert_eq!((task.wakeup_latency.count, task.wakeup_latency.sum_ns, task.wakeup_latency.max_ns), (2, 500, 500));
    assert_eq!(metrics.totals.wakeup_latency.max_ns, Some(500));
    assert_eq!((task.preempt_wait.count, task.run_delay_ns, task.off_cpu_ns), (0, 500, 1400));
}

#[test]
fn wakeup_latency_of_a_new_task_starts_at_its_first_wakeup() {
    let metrics = EventScript::new().fork(10, 0, 0).wakeup(30, 1, 0).run(70, 1, 0).metrics(100);
    assert_eq!(metrics.totals.wakeup_latency.max_ns, Some(40));
    assert_eq!(metrics.tasks[0].created_ns, Some(10));
    assert_eq!(metrics.totals.migrations_ran.count, 0, "a first placement is not a migration");
}

#[test]
fn a_second_waking_of_a_task_that_is_awake_changes_nothing() {
    let metrics = EventScript::new()
        .ran_before(0, 0)
        .waking(1000, 3, 0, 0)
        .waking(1100, 4, 0, 0)
        .wakeup(1200, 0, 0)
        .waking(1250, 5, 0, 0)
        .wakeup(1260, 0, 0)
        .run(1500, 0, 0)
        .waking(1600, 5, 0, 0)
        .wakeup(1600, 0, 0)
        .sleep(2000, 0, 0)
        .metrics(3000);
    assert_eq!((metrics.totals.wakeup_latency.count, metrics.totals.wakeup_latency.max_ns), (2, Some(500)));
    assert_eq!(metrics.totals.slice.max_ns, Some(500));
}

#[test]
fn target_cpu_of_waking_is_the_old_cpu_and_no_migration() {
    // Woken with target CPU 0, placed on 2 by the migration that follows.
    let metrics = EventScript::new()
        .ran_before(0, 0)
        .waking(1000, 5, 0, 0)
        .migrate(1000, 0, 0, 2, MigrationKind::Wakeup)
        .wakeup(1010, 2, 0)
        .run(1020, 2, 0)
        .metrics(1100);
    let totals = &metrics.totals;
    assert_eq!((totals.migrations_event.count, totals.migrations_ran.count), (1, 1));
    assert_eq!(totals.migrations_by_kind["wakeup"], 1);
    assert_eq!(totals.migrations_ran.by_relation[&Relation::SameNode], 1);
    assert_eq!((totals.migrations_ran.cross_llc, totals.migrations_ran.cross_node), (1, 0));
}

#[test]
fn moves_of_a_task_that_never_ran_in_between_count_as_events_only() {
    let metrics = EventScript::new()
        .ran_before(0, 0)
        .waking(1000, 0, 0, 0)
        .wakeup(1000, 0, 0)
        .migrate(1100, 0, 0, 4, MigrationKind::Balance)
        .migrate(1200, 0, 4, 0, MigrationKind::Steal)
        .run(1300, 0, 0)
        .metrics(1400);
    let totals = &metrics.totals;
    assert_eq!((totals.migrations_event.count, totals.migrations_ran.count), (2, 0));
    assert_eq!((totals.migrations_by_kind["balance"], totals.migrations_by_kind["steal"]), (1, 1));
    assert_eq!(
        (totals.migrations_event.cross_node, totals.migrations_event.by_relation[&Relation::OtherSocket]),
        (2, 2)
    );
    assert_eq!(totals.wakeup_latency.max_ns, Some(300), "moving does not restart the wait");
    assert_eq!(totals.migrations_after_preemption, 0);
}

#[test]
fn a_preempted_task_waits_and_may_be_moved_after_its_preemption() {
    let metrics = EventScript::new()
        .fork(0, 0, 0)
        .fork(0, 0, 1)
        .wakeup(0, 0, 0)
        .wakeup(0, 0, 1)
        .run(0, 0, 0)
        .switch(100, 0, Some(0), PrevState::Runnable, Some(1))
        .migrate(150, 0, 0, 8, MigrationKind::Active)
        .run(170, 8, 0)
        .metrics(200);
    let totals = &metrics.totals;
    assert_eq!((totals.preempt_wait.count, totals.preempt_wait.max_ns), (1, Some(70)));
    assert_eq!((totals.involuntary_switches, totals.voluntary_switches), (1, 0));
    assert_eq!((totals.migrations_after_preemption, totals.migrations_by_kind["active"]), (1, 1));
    assert_eq!(totals.migrations_ran.by_relation[&Relation::SmtSibling], 1);
    assert_eq!((totals.run_delay.count, totals.run_delay.sum_ns), (3, 170));
}

#[test]
fn falling_asleep_is_voluntary_leaving_runnable_is_not_and_death_is_neither() {
    let script = EventScript::new()
        .ran_before(0, 0)
        .waking(200, 0, 0, 0)
        .wakeup(200, 0, 0)
        .run(200, 0, 0)
        .switch(300, 0, Some(0), PrevState::Runnable, None)
        .run(300, 0, 0)
        .at(350, 0, EventKind::Exit { task: TaskId(0) })
        .switch(360, 0, Some(0), PrevState::Dead, None);
    let metrics = script.metrics(400);
    let task = &metrics.tasks[0];
    assert_eq!((task.voluntary_switches, task.involuntary_switches, task.slices), (1, 1, 3));
    assert_eq!((task.exited_ns, task.run_ns, task.censored_wait_ns), (Some(350), 260, None));
}

#[test]
fn waits_that_do_not_end_are_censored_not_dropped() {
    let metrics = EventScript::new()
        .fork(0, 0, 0)
        .fork(0, 0, 1)
        .fork(0, 0, 2)
        .wakeup(0, 0, 0)
        .wakeup(0, 0, 1)
        .wakeup(0, 0, 2)
        .run(0, 0, 0)
        .switch(400, 0, Some(0), PrevState::Runnable, Some(1))
        .metrics(1000);
    let censored = &metrics.totals.censored;
    assert_eq!((censored.preempt.count, censored.preempt.sum_ns), (1, 600));
    assert_eq!((censored.wakeup.count, censored.wakeup.max_ns), (1, 1000));
    assert_eq!((censored.slices.count, censored.slices.sum_ns), (1, 600));
    assert_eq!(metrics.totals.preempt_wait.count, 0);
    assert_eq!((metrics.totals.slice.count, metrics.totals.run_ns), (1, 1000));
    assert_eq!(metrics.tasks[2].censored_wait_ns, Some(1000));
    let value = |name: &str| (super::metric(name).unwrap().value)(&metrics);
    // Task 1 waited for 400, and ran: 600 are not much more than that.
    assert_eq!((value("longest_wait_ns"), value("never_ran_again")), (Some(1000.0), Some(1.0)));
    // Of a scheduler with turns of a thousand and more it is too early to say so.
    let within_turns = Metrics { turn_ns: 1000, ..metrics.clone() };
    assert_eq!(within_turns.never_ran_again(|_| 1.0).count(), 0);
}

#[test]
fn a_wait_that_ends_with_the_tasks_death_is_counted_apart() {
    let script = EventScript::new().fork(0, 0, 0).wakeup(0, 0, 0).at(50, 1, EventKind::Exit { task: TaskId(0) });
    let metrics = script.metrics(100);
    assert_eq!((metrics.totals.censored.abandoned_waits, metrics.totals.censored.wakeup.count), (1, 0));
    assert_eq!(metrics.cpus[0].runqueue_length_mean, Some(0.5));
}

#[test]
fn before_its_first_event_a_cpu_of_a_recorded_trace_is_unobserved() {
    let metrics = EventScript::new()
        .switch(600, 0, Some(0), PrevState::Runnable, Some(1))
        .switch(700, 0, Some(1), PrevState::Sleeping, None)
        .metrics_from(Start::Unobserved { time_ns: 100 }, 1100);
    assert_eq!(metrics.totals.unexpected_events, 0);
    let cpu = &metrics.cpus[0];
    assert_eq!((cpu.unobserved_ns, cpu.busy_ns, cpu.idle_ns), (500, 100, 400));
    assert_eq!(metrics.cpus[1].unobserved_ns, 1000);
    assert_eq!(metrics.cpus[1].runqueue_length_mean, None);
    // Task 0 ran for an unknown time before; task 1 waited for an unknown time.
    assert_eq!((metrics.tasks[0].run_ns, metrics.totals.wakeup_latency.count, metrics.totals.slice.count), (0, 0, 1));
    assert_eq!(metrics.totals.censored.preempt.sum_ns, 500);
}

#[test]
fn a_wakeup_whose_waking_was_not_recorded_gives_no_latency() {
    let metrics =
        EventScript::new().wakeup(500, 2, 7).run(600, 2, 7).metrics_from(Start::Unobserved { time_ns: 0 }, 700);
    assert_eq!(metrics.totals.wakeup_latency.count, 0);
    assert_eq!((metrics.tasks.len(), metrics.tasks[0].id, metrics.tasks[0].run_ns), (1, TaskId(7), 100));
}

#[test]
fn idle_in_a_simulation_lasts_from_the_start() {
    let metrics = EventScript::new().fork(400, 0, 0).wakeup(400, 0, 0).run(500, 0, 0).metrics(1000);
    assert_eq!((metrics.cpus[0].idle_ns, metrics.cpus[0].busy_ns, metrics.cpus[3].idle_ns), (500, 500, 1000));
    assert_eq!(metrics.totals.unobserved_ns, 0);
}

#[test]
fn a_cpu_is_used_if_tasks_have_it_for_a_hundredth_of_the_window() {
    let begun = (0..3).fold(EventScript::new(), |script, of| script.fork(0, of, of).wakeup(0, of, of));
    let metrics = begun.run(0, 0, 0).run(10, 1, 1).sleep(20, 1, 1).run(30, 2, 2).sleep(39, 2, 2).metrics(1000);
    assert_eq!(metrics.cpus[2].busy_ns, 9);
    assert_eq!((super::metric("cpus_used").unwrap().value)(&metrics), Some(2.0));
}

#[test]
fn the_run_queue_is_weighted_by_time_and_counts_running_and_queued() {
    // Length 0 until 100, 2 until 300 (one starting, one queued), 1 until 400.
    let script = EventScript::new()
        .fork(100, 0, 0)
        .wakeup(100, 0, 0)
        .fork(100, 0, 1)
        .wakeup(100, 0, 1)
        .run(200, 0, 0)
        .switch(300, 0, Some(0), PrevState::Sleeping, Some(1));
    let metrics = script.metrics(400);
    assert_eq!((metrics.cpus[0].runqueue_length_mean, metrics.cpus[0].runqueue_length_max), (Some(1.25), 2));
    assert_eq!((metrics.totals.runqueue_length_mean, metrics.totals.runqueue_length_max), (Some(1.25 / 16.0), 2));
}

#[test]
fn tasks_per_cpu_can_be_asked_at_any_time() {
    let mut counters = Counters::new(&machine(), &tables(), Start::Idle { time_ns: 0 });
    counters.events(&EventScript::new().fork(0, 0, 0).wakeup(0, 2, 0).fork(0, 0, 1).wakeup(0, 2, 1).0).unwrap();
    let now: Vec<u32> = counters.tasks_per_cpu().collect();
    assert_eq!((now[2], now.iter().sum::<u32>()), (2, 2));
    counters.events(&EventScript::new().run(10, 2, 0).migrate(20, 1, 2, 5, MigrationKind::Balance).0).unwrap();
    let now: Vec<u32> = counters.tasks_per_cpu().collect();
    assert_eq!((now[2], now[5]), (1, 1));
}

#[test]
fn an_idle_cpu_beside_a_waiter_is_a_violation() {
    let metrics = EventScript::new()
        .fork(0, 0, 0)
        .wakeup(0, 0, 0)
        .run(0, 0, 0)
        .fork(100, 0, 1)
        .wakeup(100, 0, 1)
        .migrate(350, 1, 0, 1, MigrationKind::Steal)
        .run(360, 1, 1)
        .metrics(1000);
    assert_eq!(metrics.totals.work_conservation_violation_ns, 250);
}

#[test]
fn a_task_on_its_way_onto_an_idle_cpu_is_no_violation() {
    let metrics = EventScript::new().fork(0, 0, 0).wakeup(0, 0, 0).run(500, 0, 0).metrics(1000);
    assert_eq!(metrics.totals.work_conservation_violation_ns, 0);
}

#[test]
fn a_second_task_queued_on_an_idle_cpu_waits() {
    let metrics = EventScript::new()
        .fork(0, 0, 0)
        .fork(0, 0, 1)
        .wakeup(0, 0, 0)
        .wakeup(100, 0, 1)
        .run(200, 0, 1)
        .migrate(300, 0, 0, 1, MigrationKind::Balance)
        .run(400, 1, 0)
        .metrics(1000);
    // Task 1 waits from 100; at 200 it runs instead of task 0, which waits until it is moved to an idle CPU.
    assert_eq!(metrics.totals.work_conservation_violation_ns, 200);
}

#[test]
fn a_waiter_pinned_to_the_busy_cpu_is_no_violation() {
    let script = EventScript::new()
        .fork(0, 0, 0)
        .wakeup(0, 0, 0)
        .run(0, 0, 0)
        .fork(100, 0, 1)
        .at(100, 0, EventKind::Affinity { task: TaskId(1), restriction: 1 })
        .wakeup(100, 0, 1);
    assert_eq!(script.metrics(1000).totals.work_conservation_violation_ns, 0);
    let released = script.at(600, 0, EventKind::Affinity { task: TaskId(1), restriction: 0 });
    assert_eq!(released.metrics(1000).totals.work_conservation_violation_ns, 400);
}

#[test]
fn residency_follows_the_llc_of_each_slice() {
    let metrics = EventScript::new()
        .ran_before(0, 0)
        .waking(100, 0, 0, 0)
        .migrate(100, 0, 0, 6, MigrationKind::Wakeup)
        .wakeup(100, 6, 0)
        .run(100, 6, 0)
        .metrics(400);
    let task = &metrics.tasks[0];
    let llc = machine().llc_of(CpuId(6));
    assert_eq!((task.llc_run_ns.len(), task.llc_run_ns[&llc], task.node_run_ns.len()), (2, 300, 2));
    assert_eq!((task.dominant_llc, task.dominant_llc_share), (Some(llc), Some(0.75)));
    assert_eq!((task.cross_llc_ran, task.cross_node_ran, task.cpu_share), (1, 1, Some(1.0)));
}

#[test]
fn a_sleeping_task_may_be_moved_and_stays_asleep() {
    // A kernel with delayed dequeue balances sleeping tasks that are still queued.
    let metrics = EventScript::new()
        .ran_before(0, 0)
        .migrate(500, 0, 0, 1, MigrationKind::Balance)
        .waking(1000, 0, 0, 1)
        .wakeup(1000, 1, 0)
        .run(1100, 1, 0)
        .metrics(1200);
    assert_eq!((metrics.totals.migrations_event.count, metrics.totals.wakeup_latency.max_ns), (1, Some(100)));
    assert_eq!((metrics.cpus[1].runqueue_length_max, metrics.cpus[0].runqueue_length_max), (1, 1));
}

#[test]
fn overhead_counters_phases_and_decisions_are_summed_by_name() {
    let tables = RunTables {
        counters: vec!["l2_misses".to_owned()],
        phases: vec!["warm".to_owned(), "hot".to_owned()],
        decisions: vec![DecisionKind::new("stays", "near", DecisionValue::Cpu)],
        ..tables()
    };
    let mut counters = Counters::new(&machine(), &tables, Start::Idle { time_ns: 0 });
    let script = EventScript::new()
        .at(1, 0, EventKind::Counter { counter: 0, task: TaskId::IDLE, value: 40 })
        .at(2, 1, EventKind::Counter { counter: 0, task: TaskId::IDLE, value: 2 })
        .at(2, 0, EventKind::Phase { task: TaskId(0), phase: 1 })
        .at(3, 0, EventKind::Decision { decision: 0, task: TaskId(0), value: -1 })
        .at(4, 3, EventKind::Overhead { kind: OverheadKind::Tick, duration_ns: 10 })
        .at(5, 4, EventKind::Overhead { kind: OverheadKind::Tick, duration_ns: 5 });
    counters.events(&script.0).unwrap();
    let metrics = counters.metrics(10, &tables, &[]);
    let totals = &metrics.totals;
    assert_eq!((totals.counters["l2_misses"], totals.phases["hot"], totals.decisions["stays"]["near"]), (42, 1, 1));
    assert_eq!((totals.overhead_ns["tick"], metrics.cpus[3].overhead_ns["tick"]), (15, 10));
    assert!(metrics.tasks.is_empty(), "remarks do not make a task known");
}

#[test]
fn counters_of_stays_are_joined_to_task_and_place_and_others_are_not() {
    let count = |cpu, value| (cpu, EventKind::Counter { counter: 0, task: TaskId(0), value });
    let mut script = EventScript::new().ran_before(0, 0);
    for (cpu, kind) in [count(0, 40), count(8, 2), count(2, 5)] {
        script = script.at(100, cpu, kind);
    }
    script = script.at(100, 0, EventKind::Counter { counter: 0, task: TaskId::IDLE, value: 1 });
    let metrics = |counted_per_stay| {
        let tables = RunTables { counters: vec!["l2_misses".to_owned()], counted_per_stay, ..tables() };
        let mut counters = Counters::new(&machine(), &tables, Start::Idle { time_ns: 0 });
        counters.events(&script.0).unwrap();
        counters.metrics(200, &tables, &[])
    };
    let of_stays = metrics(true);
    let placed = &of_stays.tasks[0].counters["l2_misses"];
    let by_cpu: Vec<(u32, u64)> = placed.by_cpu.iter().map(|(cpu, value)| (cpu.0, *value)).collect();
    let by_llc: Vec<(u32, u64)> = placed.by_llc.iter().map(|(llc, value)| (llc.0, *value)).collect();
    assert_eq!((placed.total, by_cpu, by_llc), (47, vec![(0, 40), (2, 5), (8, 2)], vec![(0, 42), (1, 5)]));
    assert_eq!(of_stays.totals.counters["l2_misses"], 48);
    assert!(metrics(false).tasks[0].counters.is_empty(), "a count of a whole life has no place");
}

#[test]
fn overhead_that_no_event_reports_is_unknown_not_zero() {
    let overhead = |metrics: &Metrics| super::metric("overhead_share").and_then(|metric| (metric.value)(metrics));
    let script = EventScript::new().ran_before(0, 0);
    assert_eq!(overhead(&script.metrics(200)), None);
    let reported = script.at(100, 0, EventKind::Overhead { kind: OverheadKind::Switch, duration_ns: 320 });
    assert_eq!(overhead(&reported.metrics(200)), Some(0.1));
}

#[test]
fn applications_sum_their_tasks() {
    let script = EventScript::new().ran_before(0, 0).ran_before(1, 1).ran_before(2, 2);
    let mut events = script.0;
    events.sort_by_key(|event| event.time_ns);
    let mut counters = Counters::new(&machine(), &tables(), Start::Idle { time_ns: 0 });
    counters.events(&events).unwrap();
    let info = |id: u32, application: u32| TaskInfo {
        id: TaskId(id),
        name: format!("t{id}"),
        role: String::new(),
        application,
        application_name: format!("a{application}"),
        process: 0,
    };
    let metrics = counters.metrics(200, &tables(), &[info(0, 0), info(2, 1), info(1, 0)]);
    let sums: Vec<_> = metrics.applications.iter().map(|a| (a.name.as_str(), a.tasks, a.run_ns, a.cpu_share)).collect();
    assert_eq!(sums, [("a0", 2, 200, Some(1.0)), ("a1", 1, 100, Some(0.5))]);
    assert_eq!(metrics.applications[0].dominant_llc_share, Some(1.0));
}

#[test]
fn contradictions_are_counted_and_survived() {
    let metrics = EventScript::new()
        .ran_before(0, 0)
        // It sleeps, yet it runs; it leaves another CPU than it runs on; it is forked again; its queue is wrong.
        .run(200, 1, 0)
        .switch(300, 2, Some(0), PrevState::Runnable, None)
        .fork(310, 0, 0)
        .migrate(320, 0, 7, 8, MigrationKind::Balance)
        .run(330, 3, 0)
        .switch(340, 3, Some(0), PrevState::Idle, None)
        .metrics_from(Start::Idle { time_ns: 0 }, 400);
    assert!(metrics.totals.unexpected_events >= 6, "{}", metrics.totals.unexpected_events);
}

#[test]
fn impossible_events_are_refused_with_a_reason() {
    let refuse = |kind: EventKind, time_ns: u64, cpu: u32| {
        let mut counters = Counters::new(&machine(), &tables(), Start::Idle { time_ns: 50 });
        let error = counters.events(&EventScript::new().at(time_ns, cpu, kind).0).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        error.to_string()
    };
    let exit = EventKind::Exit { task: TaskId(0) };
    assert!(refuse(exit, 49, 0).contains("out of order"));
    assert!(refuse(exit, 50, 16).contains("has 16 CPUs"));
    assert!(refuse(EventKind::Exit { task: TaskId::IDLE }, 50, 0).contains("no task"));
    assert!(
        refuse(EventKind::Affinity { task: TaskId(0), restriction: 2 }, 50, 0).contains("restrictions, which has 2")
    );
    assert!(refuse(EventKind::Phase { task: TaskId(0), phase: 0 }, 50, 0).contains("phases, which has 0"));
    let waking = EventKind::Waking { task: TaskId(0), target_cpu: CpuId(99), waker: TaskId::IDLE };
    assert!(refuse(waking, 50, 0).contains("cpu99"));
}

#[test]
fn a_run_without_events_has_metrics_without_values() {
    let metrics = EventScript::new().metrics(0);
    for metric in METRICS {
        let value = (metric.value)(&metrics);
        assert!(value.is_none_or(|value| value == 0.0), "{}: {value:?}", metric.name);
    }
    assert!(metrics.tasks.is_empty() && metrics.cpus.len() == 16);
}

#[test]
fn metrics_survive_json() {
    let metrics =
        EventScript::new().ran_before(0, 0).waking(1000, 3, 0, 0).wakeup(1400, 0, 0).run(1500, 0, 0).metrics(2000);
    let text = serde_json::to_string(&metrics).unwrap();
    assert_eq!(serde_json::from_str::<Metrics>(&text).unwrap(), metrics);
}

#[test]
fn behind_a_warm_up_time_is_clipped_and_what_begins_counts_whole() {
    let script = EventScript::new()
        .ran_before(0, 0)
        .waking(400, 3, 0, 0)
        .wakeup(400, 0, 0)
        .run(1_300, 0, 0)
        .sleep(1_500, 0, 0)
        .waking(1_700, 3, 0, 0)
        .wakeup(1_700, 0, 0)
        .run(1_750, 0, 0);
    let counted = |warm_up_ns| {
        let mut counters = Counters::new(&machine(), &tables(), Start::Idle { time_ns: 0 }).with_warm_up(warm_up_ns);
        counters.events(&script.0).unwrap();
        counters.metrics(2_000, &tables(), &[])
    };
    // The wait of 900 ns began in the warm-up: 300 ns of it are time of the window, and it is no wait of the window.
    let metrics = counted(1_000);
    let (task, totals) = (&metrics.tasks[0], &metrics.totals);
    assert_eq!((totals.wakeup_latency.count, totals.wakeup_latency.max_ns), (1, Some(50)));
    assert_eq!((task.run_delay_ns, task.off_cpu_ns), (300 + 50, 300 + 250));
    assert_eq!((metrics.window_ns, task.run_ns, task.slices), (1_000, 200 + 250, 1));
    // Of the slice of 200 ns 100 ns are in the window.
    let metrics = counted(1_400);
    assert_eq!((metrics.totals.slice.max_ns, metrics.tasks[0].run_ns), (None, 100 + 250));
    // What happens at the end of the warm-up is part of it; what is not over when the run ends is censored, whenever it began.
    assert_eq!((counted(1_300).tasks[0].slices, counted(1_299).tasks[0].slices), (0, 1));
    assert_eq!(counted(1_800).totals.censored.slices.max_ns, 250);
}

#[test]
fn a_run_that_ends_in_its_warm_up_has_an_empty_window() {
    let script = EventScript::new().ran_before(0, 0);
    let mut counters = Counters::new(&machine(), &tables(), Start::Idle { time_ns: 0 }).with_warm_up(1_000);
    counters.events(&script.0).unwrap();
    for end_ns in [100, 1_000] {
        let metrics = counters.metrics(end_ns, &tables(), &[]);
        assert_eq!((metrics.window_ns, metrics.totals.run_ns, metrics.totals.slice.count), (0, 0, 0));
    }
}
