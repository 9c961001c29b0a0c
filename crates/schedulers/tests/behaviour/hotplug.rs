//! CPUs that go offline and come online: where tasks go, what becomes of masks, CPU time against hand calculations, what is refused.

use warmcore_kernel::{HotplugProblem, Setup, SetupError};
use warmcore_trace::{Counters, Event, EventKind, Metrics, RunTables, Sink, Start};
use warmcore_workload::{Hotplug, Policy, Reservation, Step};

use crate::support::*;

/// Schedulers of the fair class on a kernel, which have domains to build anew.
const FAIR: [&str; 4] = ["cache-aware", "cfs", "eevdf", "topology-aware"];
const FOUR: &str = "1s1n1l4c1t";

/// CPU time on a CPU between two times, of all tasks that are named.
fn used_on(run: &Run, names: &[String], cpu: u32, (from_ns, to_ns): (u64, u64)) -> u64 {
    let within = |stay: &Stay| stay.end_ns.min(to_ns).saturating_sub(stay.start_ns.max(from_ns));
    let stays = names.iter().flat_map(|name| run.stays(name));
    stays.filter(|stay| stay.cpu == cpu).map(|stay| within(&stay)).sum()
}

fn numbered(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{name}-{number}")).collect()
}

fn cpus_of(run: &Run, name: &str, from_ns: u64, to_ns: u64) -> Vec<u32> {
    let stays = run.stays(name);
    let within = stays.iter().filter(|stay| stay.end_ns > from_ns && stay.start_ns < to_ns && stay.length_ns() > 0);
    let mut cpus: Vec<u32> = within.map(|stay| stay.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Four CPUs for 2 s less one of them for 1 s are 7 s of CPU time, of which each of eight has 7/8 s = 875 ms. In the second without CPU 3
/// eight share three CPUs, 375 ms each; in the two half seconds with it they share four, 250 ms each.
#[test]
fn eight_spinners_have_seven_eighths_of_a_second_each_when_one_of_four_cpus_is_away_for_half_of_two_seconds() {
    for scheduler in FAIR {
        let mut scene = Scene::lasting(2 * S);
        scene.task("spinner", spin()).instances = 8;
        scene.unplug(500 * MS, 3);
        scene.plug_in(1500 * MS, 3);
        let run = scene.run(FOUR, scheduler);
        let names = numbered("spinner", 8);
        let away = (500 * MS + MS, 1500 * MS);
        assert_eq!(used_on(&run, &names, 3, away), 0, "{scheduler}");
        let total: u64 = names.iter().map(|name| run.cpu_time(name)).sum();
        assert!(total.abs_diff(7 * S) < 25 * MS, "{scheduler}: {total} ns");
        let windows = [(0, 500, 4), (500, 1500, 3), (1500, 2000, 4)];
        for (from, to, cpus) in windows {
            let used: u64 = names.iter().map(|name| run.cpu_time_between(name, from * MS, to * MS)).sum();
            assert!(used.abs_diff(cpus * (to - from) * MS) < 20 * MS, "{scheduler}: {used} ns from {from} to {to} ms");
        }
        for name in &names {
            let [before, without, after] =
                [(0, 500), (500, 1500), (1500, 2000)].map(|(from, to)| run.cpu_time_between(name, from * MS, to * MS));
            assert!(before.abs_diff(250 * MS) < 130 * MS, "{scheduler}: {name} had {before} ns before");
            assert!(without.abs_diff(375 * MS) < 130 * MS, "{scheduler}: {name} had {without} ns without the CPU");
            assert!(after.abs_diff(250 * MS) < 130 * MS, "{scheduler}: {name} had {after} ns after");
        }
        let back = used_on(&run, &names, 3, (1500 * MS, 2000 * MS));
        assert!(back > 450 * MS, "{scheduler}: the CPU is used again for {back} ns of 500 ms");
    }
}

/// One task each on four CPUs: the one of CPU 3 joins another, so that two have half a CPU for a while and nobody less. In a second with
/// three CPUs the four have three seconds.
#[test]
fn four_spinners_share_three_cpus_and_have_one_each_again() {
    for scheduler in FAIR {
        let mut scene = Scene::lasting(3 * S);
        scene.task("spinner", spin()).instances = 4;
        scene.unplug(S, 3);
        scene.plug_in(2 * S, 3);
        let run = scene.run(FOUR, scheduler);
        let names = numbered("spinner", 4);
        let between = |from_ns, to_ns| names.iter().map(|name| run.cpu_time_between(name, from_ns, to_ns)).collect();
        let without: Vec<u64> = between(S, 2 * S);
        assert!(without.iter().sum::<u64>().abs_diff(3 * S) < 5 * MS, "{scheduler}: {without:?}");
        let after: Vec<u64> = between(2 * S + 100 * MS, 3 * S);
        assert!(after.iter().all(|ns| *ns > 890 * MS), "{scheduler}: a CPU each again, {after:?}");
    }
}

/// What a run's events say of it.
fn metrics(run: &Run) -> Metrics {
    let tables = RunTables { restrictions: vec![run.machine.all_cpus().clone(); 64], ..RunTables::default() };
    let mut counters = Counters::new(&run.machine, &tables, Start::Idle { time_ns: 0 });
    let told = |event: &&Event| !matches!(event.kind, EventKind::Decision { .. });
    counters.events(&run.events.iter().filter(told).copied().collect::<Vec<_>>()).unwrap();
    counters.metrics(run.outcome.elapsed_ns, &tables, &[])
}

/// CPU 0 is busy for a second, CPU 1 of two idle for 400 ms and offline for 600 ms: 1000 of 1400 ms online are busy. The second task waits while
/// CPU 1 is offline, and no CPU is idle meanwhile.
#[test]
fn time_offline_is_neither_busy_nor_idle_and_violates_nothing() {
    for scheduler in FAIR {
        let mut scene = Scene::lasting(S);
        scene.task("spinner", spin()).affinity = on_cpu(0);
        let [from, to] = [200 * MS, 800 * MS];
        scene.task("second", once([sleep(300 * MS), run_for(10 * MS)]));
        scene.unplug(from, 1);
        scene.plug_in(to, 1);
        let run = scene.run("1s1n1l2c1t", scheduler);
        let (account, metrics) = (&run.outcome.cpus[1], metrics(&run));
        assert_eq!(account.offline_ns, to - from, "{scheduler}");
        let cpu = &metrics.cpus[1];
        assert_eq!((cpu.busy_ns, cpu.idle_ns, cpu.offline_ns), (account.busy_ns, account.idle_ns, to - from));
        assert!(cpu.idle_ns.abs_diff(400 * MS) < MS, "{scheduler}: {}", cpu.idle_ns);
        assert_eq!(metrics.totals.unexpected_events, 0, "{scheduler}");
        let busy_share = metrics.totals.busy_ns as f64 / (metrics.totals.busy_ns + metrics.totals.idle_ns) as f64;
        assert_near(scheduler, busy_share, 1000.0 / 1400.0, 0.01);
        let violation_ns = metrics.totals.work_conservation_violation_ns;
        assert!(violation_ns < 5 * MS, "{scheduler}: {violation_ns} ns");
    }
}

/// `update_sysctl`: 0.7 ms and as much for each doubling of the CPUs, of which one that goes offline is still one: 2.1 ms with four, 1.4 ms when the
/// second of them goes.
#[test]
fn slices_follow_the_number_of_cpus_that_are_online() {
    const SWITCH_NS: u64 = 1_200;
    let mut scene = Scene::lasting(S);
    let spinners = scene.task("spinner", spin());
    (spinners.instances, spinners.affinity) = (2, on_cpu(0));
    scene.unplug(300 * MS, 2);
    scene.unplug(310 * MS, 3);
    scene.plug_in(600 * MS, 2);
    scene.plug_in(610 * MS, 3);
    let run = scene.run(FOUR, "eevdf");
    for (from, to, expected) in [(100, 290, 2_100 * US), (330, 590, 1_400 * US), (630, 990, 2_100 * US)] {
        let stays = run.stays_from("spinner-0", from * MS);
        let lengths: Vec<u64> =
            stays.iter().filter(|stay| stay.end_ns < to * MS).map(|stay| stay.length_ns()).collect();
        let is_right = |length: &u64| (expected..=expected + SWITCH_NS).contains(length);
        assert!(lengths.len() > 20 && lengths.iter().all(is_right), "{from} ms: {lengths:?}");
    }
}

/// It runs until it may leave: the CPU is busy up to then, and offline for the rest.
#[test]
fn a_cpu_is_busy_as_long_as_a_task_with_migration_disabled_runs_on_it_offline() {
    let mut scene = Scene::lasting(400 * MS);
    let held = [Step::MigrateDisable, run_for(150 * MS), Step::MigrateEnable, run_for(10 * MS)];
    scene.task("held", once(held)).affinity = on_cpus([3]);
    scene.task("spinner", spin()).affinity = on_cpu(0);
    scene.unplug(100 * MS, 3);
    let run = scene.run(FOUR, "eevdf");
    let cpu = &run.outcome.cpus[3];
    assert!(cpu.busy_ns.abs_diff(150 * MS) < MS && cpu.offline_ns.abs_diff(250 * MS) < MS, "{cpu:?}");
    assert_eq!(metrics(&run).cpus[3].offline_ns, cpu.offline_ns);
}

/// `select_fallback_rq`: the first CPU of the node, busy or not; if the mask has none there, the first of the mask.
#[test]
fn a_task_that_has_to_go_goes_to_the_first_cpu_of_its_node_that_it_may_use() {
    let first_after = |affinity: Option<[u32; 2]>, away: u32| {
        let mut scene = Scene::lasting(200 * MS);
        scene.task("busy", spin()).affinity = on_cpu(4);
        let task = scene.task("goes", spin());
        task.affinity = on_cpus([away]);
        if let Some(cpus) = affinity {
            scene.bind(50 * MS, "goes", warmcore_workload::Destination::Cpus(on_cpus(cpus)));
        } else {
            scene.bind(50 * MS, "goes", warmcore_workload::Destination::Cpus(warmcore_workload::Affinity::All));
        }
        scene.unplug(100 * MS, away);
        let run = scene.run("1s2n1l4c1t", "eevdf");
        let stays = run.stays("goes");
        stays.iter().find(|stay| stay.start_ns >= 100 * MS).expect("it runs on").cpu
    };
    assert_eq!(first_after(None, 6), 4, "CPU 5 is idle, and CPU 4 comes first");
    assert_eq!(first_after(Some([6, 7]), 6), 7);
    assert_eq!(first_after(Some([2, 6]), 6), 2, "no other of its node");
}

#[test]
fn a_task_that_is_bound_to_the_cpu_gets_all_for_good_and_the_log_says_so() {
    for scheduler in FAIR {
        let mut scene = Scene::lasting(900 * MS);
        scene.task("bound", spin()).affinity = on_cpu(3);
        scene.task("other", spin()).affinity = on_cpu(3);
        scene.task("pair", spin()).affinity = on_cpus([2, 3]);
        scene.unplug(300 * MS, 3);
        scene.plug_in(600 * MS, 3);
        let run = scene.run(FOUR, scheduler);
        assert_eq!(cpus_of(&run, "bound", 0, 299 * MS), [3], "{scheduler}");
        assert!(!cpus_of(&run, "bound", 301 * MS, 900 * MS).is_empty());
        assert!(!cpus_of(&run, "bound", 301 * MS, 600 * MS).contains(&3), "{scheduler}");
        assert_eq!(cpus_of(&run, "pair", 301 * MS, 600 * MS), [2], "{scheduler}: a mask with another CPU stays");
        let [bound, other] = ["bound", "other"].map(|name| run.cpu_time_between(name, 750 * MS, 900 * MS));
        assert!(bound + other > 290 * MS, "{scheduler}: they are free to have a CPU each, {bound} and {other} ns");
        let lines = &run.outcome.kernel_log;
        assert_eq!(lines.len(), 2, "{scheduler}: {lines:?}");
        assert!(
            lines[0].contains("0.300000 s: process ") && lines[0].contains("no longer affine to cpu3"),
            "{lines:?}"
        );
    }
}

/// Its mask is looked at when it wakes (`select_task_rq`).
#[test]
fn who_sleeps_as_long_as_the_cpu_is_away_keeps_the_mask() {
    for scheduler in FAIR {
        let mut scene = Scene::lasting(900 * MS);
        scene.task("late", once([run_for(10 * MS), sleep(600 * MS), run_for(50 * MS)])).affinity = on_cpu(3);
        scene.task("early", once([run_for(10 * MS), sleep(400 * MS), run_for(50 * MS)])).affinity = on_cpu(3);
        scene.unplug(200 * MS, 3);
        scene.plug_in(550 * MS, 3);
        let run = scene.run(FOUR, scheduler);
        assert_eq!(cpus_of(&run, "late", 0, 900 * MS), [3], "{scheduler}");
        assert_ne!(cpus_of(&run, "early", 300 * MS, 550 * MS), [3], "{scheduler}");
        let lines = &run.outcome.kernel_log;
        assert!(lines.len() == 1 && lines[0].contains("(early)"), "{scheduler}: {lines:?}");
    }
}

#[test]
fn a_mask_without_an_online_cpu_is_refused_and_the_old_one_stays() {
    let mut scene = Scene::lasting(400 * MS);
    let to_the_missing = Step::SetAffinity(on_cpu(3));
    scene.task("self", once([run_for(150 * MS), to_the_missing, run_for(200 * MS)])).affinity = on_cpu(1);
    scene.task("bound", spin()).affinity = on_cpu(2);
    scene.bind(200 * MS, "bound", warmcore_workload::Destination::Cpus(on_cpu(3)));
    scene.unplug(100 * MS, 3);
    let run = scene.run(FOUR, "eevdf");
    assert_eq!(cpus_of(&run, "self", 0, 400 * MS), [1]);
    assert_eq!(cpus_of(&run, "bound", 0, 400 * MS), [2]);
    assert_eq!(run.outcome.kernel_log.iter().filter(|line| line.contains("EINVAL")).count(), 2);
}

/// A task that has disabled migration runs on there until it enables it; the CPU waits for it (`rq_has_pinned_tasks`).
#[test]
fn a_task_with_migration_disabled_leaves_when_it_may() {
    for scheduler in FAIR {
        let mut scene = Scene::lasting(400 * MS);
        let held = [run_for(50 * MS), Step::MigrateDisable, run_for(100 * MS), Step::MigrateEnable, run_for(100 * MS)];
        scene.task("held", once(held)).affinity = on_cpu(3);
        scene.task("free", spin()).affinity = on_cpus([2, 3]);
        scene.unplug(100 * MS, 3);
        let run = scene.run(FOUR, scheduler);
        let leaves_ns = run.stays("held").iter().filter(|stay| stay.cpu == 3).map(|stay| stay.end_ns).max().unwrap();
        assert!((150 * MS..200 * MS).contains(&leaves_ns), "{scheduler}: it leaves at {leaves_ns} ns");
        assert!(!cpus_of(&run, "held", 201 * MS, 400 * MS).contains(&3), "{scheduler}");
    }
}

/// 20 ms in each 100 ms, used up on one CPU. When that goes offline, who was throttled there runs elsewhere, and the quota holds on: 100 ms
/// in 500 ms.
#[test]
fn a_quota_holds_for_a_group_whose_cpu_goes_offline() {
    let mut scene = Scene::lasting(S);
    scene.workload.groups.push(warmcore_workload::Group {
        cpu_max: warmcore_workload::CpuMax::parse("20000 100000", 0).unwrap(),
        ..warmcore_workload::Group::new("/pod")
    });
    let task = scene.task("limited", spin());
    (task.group, task.affinity) = (Some(warmcore_workload::GroupId(0)), on_cpus([2, 3]));
    for at_ms in [250, 450, 650, 850] {
        let cpu = 2 + at_ms as u32 / 200 % 2;
        scene.unplug(at_ms * MS, cpu);
        scene.plug_in((at_ms + 120) * MS, cpu);
    }
    let run = scene.run(FOUR, "eevdf");
    let used = run.cpu_time_between("limited", 0, S);
    // Up to one slice of 5 ms more for each CPU that went.
    assert!(used.abs_diff(200 * MS) < 30 * MS, "{used} ns");
}

#[test]
fn cores_llcs_and_nodes_may_be_empty_for_a_while() {
    for scheduler in FAIR {
        for machine in ["1s1n2l2c2t", "2s1n1l2c1t"] {
            let mut scene = Scene::lasting(800 * MS);
            scene.task("spinner", spin()).instances = 3;
            scene.task("light", forever([run_for(200 * US), sleep(MS)])).instances = 6;
            for (step, cpu) in [(1, 2), (2, 3), (3, 1)] {
                scene.unplug(step * 100 * MS, cpu);
                scene.plug_in((step + 4) * 100 * MS, cpu);
            }
            let run = scene.run(machine, scheduler);
            let names = numbered("spinner", 3);
            for cpu in [2, 3] {
                let away = (u64::from(cpu - 1) * 100 * MS + MS, u64::from(cpu + 3) * 100 * MS);
                assert_eq!(used_on(&run, &names, cpu, away), 0, "{scheduler} on {machine}: cpu{cpu}");
            }
        }
    }
}

#[test]
fn what_the_kernel_would_refuse_is_refused_before_the_run() {
    let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
    let problem = |changes: &[(u64, u32, bool)]| {
        let mut scene = Scene::lasting(100 * MS);
        scene.task("task", spin());
        let change = |&(at_ms, cpu, online): &(u64, u32, bool)| Hotplug { time_ns: at_ms * MS, cpu, online };
        scene.workload.hotplug = changes.iter().map(change).collect();
        match Setup::new(&machine, &scene.workload, 1) {
            Err(SetupError::Hotplug { problem, .. }) => Some(problem),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        }
    };
    assert_eq!(problem(&[(10, 1, false), (20, 1, true), (30, 0, false)]), None);
    assert_eq!(problem(&[(10, 7, false)]), Some(HotplugProblem::NoCpu { cpus: "0-1".into() }));
    assert_eq!(problem(&[(10, 1, false), (20, 1, false)]), Some(HotplugProblem::Offline));
    assert_eq!(problem(&[(10, 1, true)]), Some(HotplugProblem::Online));
    assert_eq!(problem(&[(10, 1, false), (20, 0, false)]), Some(HotplugProblem::LastCpu));
}

/// `dl_bw_deactivate`: 1.5 CPUs are reserved of two, of which 95 % each can be.
#[test]
fn a_cpu_that_deadline_tasks_need_stays_online() {
    let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
    let mut scene = Scene::lasting(100 * MS);
    let task = scene.task("control", spin());
    task.instances = 2;
    task.policy = Policy::Deadline(Reservation { runtime_ns: 3 * MS, deadline_ns: 4 * MS, period_ns: 4 * MS });
    scene.workload.hotplug = vec![Hotplug { time_ns: 50 * MS, cpu: 1, online: false }];
    let Err(error) = Setup::new(&machine, &scene.workload, 1) else { panic!("1.5 CPUs do not fit one") };
    assert!(error.to_string().contains("at 50 ms: take cpu1 offline: the kernel refuses with EBUSY"), "{error}");
}
