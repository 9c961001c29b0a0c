//! Interrupts in kernels that account for their time (`CONFIG_IRQ_TIME_ACCOUNTING`), against calculations by hand.

use warmcore_topology::{Background, Basis, Interrupt, Machine, Origin, ThreadPlace, Wakes, resolve};
use warmcore_workload::{Affinity, CpuMax, Destination, Policy, Reservation, Step};

use crate::support::*;

/// The fair classes.
const FAIR: [&str; 4] = ["eevdf", "cfs", "cache-aware", "eevdf:kernel=7.3,cgroup_mode=smp"];

/// A machine of which interrupts have so many us of each millisecond of CPU 0.
fn interrupted(shape: &str, run_us: u64) -> Machine {
    let interrupt = Interrupt {
        name: "network".into(),
        place: ThreadPlace::Cpus([0].into()),
        arrives: Wakes::Intervals(vec![MS]),
        run_ns: vec![run_us * US],
        origin: Origin::new(Basis::Assumed, ""),
    };
    let background = Background { name: "test".into(), interrupts: vec![interrupt], ..Background::default() };
    resolve(shape).unwrap().with_background(background).unwrap()
}

fn accounts(scheduler: &str, on: bool) -> String {
    let word = if on { "on" } else { "off" };
    let separator = if scheduler.contains(':') { ',' } else { ':' };
    format!("{scheduler}{separator}irq_time_accounting={word}")
}

/// By hand: half of the time leaves a capacity of 512, and 512 · 117 is less than 1024 · 100: the task goes to the idle CPU. A tenth leaves
/// 922, with which it stays, and a kernel that does not see interrupts leaves it where it is.
#[test]
fn a_lone_task_leaves_a_cpu_that_interrupts_have_half_of() {
    for scheduler in FAIR {
        for (run_us, on, cpu) in [(500, true, 1), (100, true, 0), (500, false, 0)] {
            let mut scene = Scene::lasting(2 * S);
            scene.task("worker", spin()).affinity = on_cpu(0);
            scene.bind(S, "worker", Destination::Cpus(Affinity::All));
            let machine = interrupted("1s1n1l2c1t", run_us);
            let run = scene.try_run_on(&machine, &accounts(scheduler, on), 1).unwrap();
            assert_eq!(run.place("worker", 1900 * MS), cpu, "{scheduler}, {run_us} us, {on}");
        }
    }
}

/// By hand: of 7 equal tasks on two CPUs of capacity 1024 and 256 five or six belong on the first; a kernel that does not see interrupts
/// has three or four on each.
#[test]
fn load_is_balanced_by_what_interrupts_leave() {
    for scheduler in ["eevdf", "cfs"] {
        for (on, allowed) in [(true, 1..=2), (false, 3..=4)] {
            let mut scene = Scene::lasting(4 * S);
            scene.task("worker", spin()).instances = 7;
            let machine = interrupted("1s1n1l2c1t", 750);
            let run = scene.try_run_on(&machine, &accounts(scheduler, on), 1).unwrap();
            let on_first = run.tasks_per_cpu(3900 * MS)[0];
            assert!(allowed.contains(&on_first), "{scheduler}, {on}: {on_first}");
        }
    }
}

/// By hand: of a quota of 20 ms in 100 nothing is for interrupts where their time is accounted: with them the task has its CPU for 40 ms.
#[test]
fn a_quota_pays_for_no_interrupts_whose_time_is_accounted() {
    for scheduler in FAIR {
        for (on, expected) in [(true, 0.4), (false, 0.2)] {
            let mut scene = Scene::lasting(5 * S);
            let group = scene.workload.add_group("/pod");
            scene.workload.groups[group.index()].cpu_max = CpuMax::parse("20000 100000", 0).unwrap();
            scene.task("limited", spin()).group = Some(group);
            let machine = interrupted("1s1n1l1c1t", 500);
            let run = scene.try_run_on(&machine, &accounts(scheduler, on), 1).unwrap();
            let share = run.cpu_time_between("limited", S, 5 * S) as f64 / (4.0 * S as f64);
            assert_near(&format!("{scheduler}, {on}"), share, expected, 0.03);
        }
    }
}

/// By hand: 2 ms of a reservation in each 20 are four halves of a millisecond, with as long an interrupt between two, and one before the first
/// at most: 3.5 to 4 ms. A task that pays for them has 2 ms, and what is left of an interrupt in which they end, half a millisecond at most.
#[test]
fn a_reservation_pays_for_no_interrupts_whose_time_is_accounted() {
    for (on, expected_ms) in [(true, 345.0..410.0), (false, 195.0..250.0)] {
        let mut scene = Scene::lasting(2 * S);
        let reservation = Reservation { runtime_ns: 2 * MS, deadline_ns: 20 * MS, period_ns: 20 * MS };
        scene.task("greedy", spin()).policy = Policy::Deadline(reservation);
        let run = scene.try_run_on(&interrupted("1s1n1l1c1t", 500), &accounts("eevdf", on), 1).unwrap();
        let used_ms = run.cpu_time("greedy") as f64 / MS as f64;
        assert!(expected_ms.contains(&used_ms), "{on}: {used_ms}");
    }
}

/// Programs at random lose no task and break no account: each run is checked.
#[test]
fn random_programs_keep_their_accounts_beside_accounted_interrupts() {
    for scheduler in FAIR {
        for seed in 0..4 {
            let scene = random::Dice::new(seed).scene(4);
            let run = scene.try_run_on(&interrupted("1s1n2l2c1t", 400), &accounts(scheduler, true), seed).unwrap();
            assert_eq!(run.outcome.end, warmcore_trace::End::AllExited, "{scheduler}, {seed}");
        }
    }
}

/// Steps of CPU time go on in switches and ticks, work does not: whatever the step's length, also if it does not end, what is left of two
/// seconds is the CPU's overhead.
#[test]
fn steps_of_cpu_time_are_work_without_switches_and_interrupts() {
    for scheduler in ["eevdf:base_slice_ns=100000", "cfs", "ule", "rr:quantum_ns=100000"] {
        for step in [Step::RunTime { cpu_ns: MS }, Step::RunTime { cpu_ns: 10 * S }, run_for(10 * S)] {
            let mut scene = Scene::lasting(2 * S);
            scene.task("task", forever([step.clone()])).instances = 4;
            let run = scene.run("1s1n1l1c1t", scheduler);
            let work_ns: u64 = run.outcome.tasks.iter().map(|task| task.progress_ns).sum();
            let overhead_ns: u64 = run.outcome.cpus[0].overhead_ns.iter().sum();
            let left_ns = 2 * S - work_ns;
            assert!(
                overhead_ns > MS / 2 && left_ns.abs_diff(overhead_ns) < overhead_ns / 20,
                "{scheduler}, {step:?}: {left_ns} of {overhead_ns}"
            );
        }
    }
}
