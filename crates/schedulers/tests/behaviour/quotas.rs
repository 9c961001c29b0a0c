//! Quotas of task groups, against calculations by hand (`docs/spec/linux-fair.md` section 1.17).

use warmcore_topology::from_toml;
use warmcore_trace::{Counters, EventKind, GroupCounters, Metrics, RunTables, Sink, Start};
use warmcore_workload::{Affinity, CpuMax, Destination, GroupId, Policy, ProgramBuilder, Reservation, Step};

use crate::support::*;

/// The schedulers of the fair class.
const FAIR: [&str; 6] =
    ["eevdf", "cfs", "cfs:kernel=4.9", "cache-aware", "topology-aware", "eevdf:kernel=7.3,cgroup_mode=smp"];

/// Tasks of one program in a group with a quota in us.
fn limited(path: &str, cpu_max: &str, burst_us: u64, instances: u32, program: ProgramBuilder) -> Scene {
    let mut scene = Scene::lasting(5 * S);
    let group = scene.workload.add_group(path);
    scene.workload.groups[group.index()].cpu_max = CpuMax::parse(cpu_max, burst_us).unwrap();
    let task = scene.task("limited", program);
    (task.instances, task.group) = (instances, Some(group));
    scene
}

/// CPUs that tasks of a role kept busy from the first to the last second.
fn cpus_used(run: &Run, role: &str) -> f64 {
    let names = run.outcome.tasks.iter().filter(|task| task.role == role).map(|task| &task.name);
    names.map(|name| run.cpu_time_between(name, S, 5 * S)).sum::<u64>() as f64 / (4.0 * S as f64)
}

fn counters(run: &Run, group: usize) -> GroupCounters {
    run.outcome.groups[group].counters
}

/// By hand: 20 of every 100 ms; in 5 s there are 50 periods, each of which ends throttled after some 80 ms without the CPU.
#[test]
fn a_spinner_with_a_fifth_of_a_cpu_runs_a_fifth_of_the_time() {
    for scheduler in FAIR {
        let run = limited("/pod", "20000 100000", 0, 1, spin()).run("1s1n1l4c1t", scheduler);
        assert_near(scheduler, cpus_used(&run, "limited"), 0.2, 0.01);
        let GroupCounters { periods, throttled_periods, throttled_ns } = counters(&run, 0);
        assert!(
            (49..=50).contains(&periods) && throttled_periods + 1 >= periods,
            "{scheduler}: {periods} {throttled_periods}"
        );
        assert_near(scheduler, throttled_ns as f64, 4.0 * S as f64, 0.04);
    }
}

/// By hand: two CPUs' time, whoever has it and however many CPUs there are; a single thread cannot have more than one.
#[test]
fn threads_of_a_group_share_its_quota() {
    for scheduler in FAIR {
        for (threads, expected) in [(1, 1.0), (2, 2.0), (3, 2.0), (8, 2.0), (24, 2.0)] {
            let run = limited("/pod", "200000 100000", 0, threads, spin()).run("1s1n1l8c1t", scheduler);
            assert_near(&format!("{scheduler}, {threads}"), cpus_used(&run, "limited"), expected, 0.03);
        }
    }
}

/// By hand: the smallest share on the way up counts, wherever it is, and a group without a quota lies in one that has.
#[test]
fn of_nested_quotas_the_smallest_counts() {
    for scheduler in ["eevdf", "cfs"] {
        for (outer, inner, expected) in
            [("50000", "20000", 0.2), ("20000", "50000", 0.2), ("30000", "max", 0.3), ("max", "10000", 0.1)]
        {
            let mut scene = limited("/pod/a/b", inner, 0, 2, spin());
            scene.workload.groups[0].cpu_max = CpuMax::parse(outer, 0).unwrap();
            let run = scene.run("1s1n1l4c1t", scheduler);
            assert_near(&format!("{scheduler} {outer} {inner}"), cpus_used(&run, "limited"), expected, 0.05);
        }
    }
}

/// A task that wakes while its group has nothing left is switched in only to leave. Where system calls take no time it changes its nice value at
/// that moment, in no queue and no list. By hand: the group has a fifth of a CPU.
#[test]
fn a_task_may_change_while_it_leaves_because_of_a_quota() {
    let machine = from_toml("[topology]\nshape = \"1s1n1l2c1t\"\n[costs]\nsyscall_ns = 0\n").unwrap();
    for scheduler in FAIR {
        let steps = [sleep(3 * MS), Step::SetNice(5), run_for(4 * MS), Step::SetNice(0)];
        let mut scene = limited("/pod", "20000 100000", 0, 3, forever(steps));
        scene.task("other", forever([run_for(1_500 * US), sleep(700 * US)])).instances = 3;
        let run = scene.try_run_on(&machine, scheduler, 1).unwrap();
        assert_near(scheduler, cpus_used(&run, "limited"), 0.2, 0.05);
    }
}

/// One that becomes a real-time task at that moment goes on, and counts as throttled no longer.
#[test]
fn who_becomes_a_real_time_task_while_it_leaves_waits_for_no_quota() {
    let machine = from_toml("[topology]\nshape = \"1s1n1l1c1t\"\n[costs]\nsyscall_ns = 0\n").unwrap();
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = limited("/pod", "20000 100000", 0, 1, spin());
        let group = scene.workload.tasks[0].group;
        let fifo = Step::SetPolicy(Policy::Fifo { priority: 10 });
        let steps = [sleep(7 * MS), fifo, run_for(2 * MS), Step::SetPolicy(Policy::Normal)];
        scene.task("urgent", forever(steps)).group = group;
        let run = scene.try_run_on(&machine, scheduler, 1).unwrap();
        let urgent = run.id("urgent");
        let (mut since_ns, mut times) = (None, 0);
        for event in &run.events {
            match event.kind {
                EventKind::Throttle { task, throttled } if task == urgent => {
                    since_ns = throttled.map(|_| event.time_ns);
                    times += u32::from(throttled.is_some());
                }
                EventKind::Switch { prev, .. } if prev == urgent => {
                    let ran_ns = since_ns.map_or(0, |since_ns| event.time_ns - since_ns);
                    assert!(ran_ns < 100 * US, "{scheduler}: throttled for {ran_ns} ns while it ran");
                }
                _ => {}
            }
        }
        assert!(times > 25, "{scheduler}: {times}");
    }
}

/// Others are not concerned: by hand, what a quota leaves of a CPU is theirs.
#[test]
fn what_a_quota_leaves_is_the_others() {
    for scheduler in FAIR {
        let mut scene = limited("/pod", "30000 100000", 0, 1, spin());
        scene.task("free", spin());
        let run = scene.run("1s1n1l1c1t", scheduler);
        assert_near(scheduler, cpus_used(&run, "limited"), 0.3, 0.04);
        assert_near(scheduler, cpus_used(&run, "free"), 0.7, 0.04);
    }
}

/// By hand: 10 % of the time is less than 20 %.
#[test]
fn who_sleeps_enough_is_never_throttled() {
    for scheduler in FAIR {
        let program = forever([run_for(MS), sleep(9 * MS)]);
        let run = limited("/pod", "20000 100000", 0, 1, program).run("1s1n1l4c1t", scheduler);
        let GroupCounters { periods, throttled_periods, throttled_ns } = counters(&run, 0);
        assert_eq!((throttled_periods, throttled_ns), (0, 0), "{scheduler}");
        assert!(periods >= 49, "{scheduler}: {periods}");
    }
}

/// By hand: 45 ms of work, then rest. A task that was throttled goes on in step with the periods: 20, 20 and 5 ms in three, then the rest,
/// which is 560 ms with two throttled periods, or 18 in 5 s. With a burst 40 ms are there at once and 20 come with a period that begins
/// meanwhile, as it does once the task is in step.
#[test]
fn a_burst_carries_over_what_was_not_used() {
    for (burst_us, throttled) in [(0, 16..=20), (20_000, 0..=2)] {
        let run = limited("/pod", "20000 100000", burst_us, 1, forever([run_for(45 * MS), sleep(355 * MS)]));
        let counters = counters(&run.run("1s1n1l4c1t", "eevdf"), 0);
        assert!(throttled.contains(&counters.throttled_periods), "{burst_us}: {counters:?}");
    }
}

/// A run without quotas has nothing to tell, and a policy that keeps none neither.
#[test]
fn only_who_keeps_quotas_tells_of_them() {
    assert!(limited("/pod", "max", 0, 1, spin()).run("1s1n1l1c1t", "eevdf").outcome.groups.is_empty());
    let run = limited("/pod", "20000", 0, 1, spin()).run("1s1n1l1c1t", "rr");
    assert!(run.outcome.groups.is_empty());
    assert_near("rr", cpus_used(&run, "limited"), 1.0, 0.01);
}

/// Tasks that wait for their quota change groups, affinities and nice values as others do.
#[test]
fn tasks_without_quota_left_can_be_changed() {
    for scheduler in ["eevdf", "cfs", "cache-aware"] {
        let mut scene = limited("/pod", "10000 100000", 0, 4, forever([run_for(7 * MS)]));
        let other = scene.workload.add_group("/other");
        let steps =
            [run_for(3 * MS), Step::SetGroup(other), Step::SetNice(5), run_for(3 * MS), Step::SetAffinity(on_cpu(1))];
        let back = [run_for(3 * MS), Step::SetGroup(GroupId(0)), Step::SetNice(0), Step::SetAffinity(Affinity::All)];
        let program = steps.into_iter().chain(back).fold(ProgramBuilder::new(), ProgramBuilder::step).finish();
        let whole =
            ProgramBuilder::new().repeat(None, |body| program.steps.iter().cloned().fold(body, ProgramBuilder::step));
        let task = scene.task("changes", whole);
        (task.instances, task.group) = (3, Some(GroupId(0)));
        for tenth in 1..40 {
            let to = Destination::Cpus(on_cpu(tenth % 4));
            scene.bind(u64::from(tenth) * 100 * MS + 50 * MS, "limited", to);
        }
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert!(counters(&run, 0).throttled_periods > 40, "{scheduler}");
    }
}

/// The stopper moves a task nearer to its memory at the instant at which its group's quota has made it leave. Left behind in its CPU's list of such tasks, it
/// came back there later, and the run had no end.
#[test]
fn a_task_that_has_left_for_its_quota_can_be_moved_to_its_memory() {
    let text = include_str!("quota-and-numa.json");
    let workload = warmcore_workload::from_rtapp("quota and NUMA", text, &Default::default()).unwrap();
    let scene = Scene { workload, ..Scene::new() };
    let hasty = "cache-aware:scan_delay_ms=0,scan_period_min_ms=1,scan_size_mb=1";
    let run = scene.try_run("2s2n1l2c2t", hasty, 987).unwrap();
    assert_eq!(run.outcome.end, warmcore_trace::End::AllExited);
}

/// What a run's events say of it.
pub(super) fn metrics(run: &Run) -> Metrics {
    let tables = RunTables { restrictions: vec![run.machine.all_cpus().clone(); 64], ..RunTables::default() };
    let mut counters = Counters::new(&run.machine, &tables, Start::Idle { time_ns: 0 });
    let mut events = run.events.clone();
    events.retain(|event| !matches!(event.kind, EventKind::Decision { .. }));
    counters.events(&events).unwrap();
    counters.metrics(run.outcome.elapsed_ns, &tables, &[])
}

/// By hand: alone on two CPUs with a fifth of one it never waits for a CPU. From when its quota lets it run to when it does is one way out of
/// an idle state in each of 50 periods, which is a cost of starting on an idle CPU.
#[test]
fn a_task_without_quota_left_waits_for_no_cpu() {
    for scheduler in FAIR {
        let run = limited("/pod", "20000 100000", 0, 1, spin()).run("1s1n1l2c1t", scheduler);
        let metrics = metrics(&run);
        let totals = &metrics.totals;
        assert_eq!(totals.work_conservation_violation_ns, 0, "{scheduler}");
        assert_eq!(totals.unexpected_events, 0, "{scheduler}");
        let (task, waits) = (&metrics.tasks[0], &totals.preempt_wait.histogram);
        assert!(task.run_delay_ns < 5 * MS && waits.count() >= 45, "{scheduler}: {} ns", task.run_delay_ns);
        // The task or nobody is in a queue: a fifth of a CPU in all.
        let lengths: f64 = metrics.cpus.iter().filter_map(|cpu| cpu.runqueue_length_mean).sum();
        assert_near(scheduler, lengths, 0.2, 0.05);
    }
}

/// The same of a deadline task that asks for more than its runtime of 20 ms in 100.
#[test]
fn a_deadline_task_without_runtime_left_waits_for_no_cpu() {
    let mut scene = Scene::lasting(5 * S);
    let reservation = Reservation { runtime_ns: 20 * MS, deadline_ns: 100 * MS, period_ns: 100 * MS };
    scene.task("limited", spin()).policy = Policy::Deadline(reservation);
    let run = scene.run("1s1n1l2c1t", "eevdf");
    let metrics = metrics(&run);
    assert_near("CPU time", metrics.totals.run_ns as f64, S as f64, 0.05);
    assert_eq!(metrics.totals.work_conservation_violation_ns, 0);
    assert!(metrics.tasks[0].run_delay_ns < 5 * MS, "{} ns", metrics.tasks[0].run_delay_ns);
}
