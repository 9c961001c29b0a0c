//! Threads of the kernel itself: when they wake, what they take, and who does not see them. The policy is `support/fifo.rs`.

use warmcore_kernel::{Setup, run};
use warmcore_topology::{Background, Basis, Interrupt, KernelThread, Machine, Origin, ThreadPlace, Wakes, resolve};
use warmcore_trace::{Event, EventKind, Outcome, OverheadKind, TaskId};
use warmcore_workload::{ProgramBuilder, Step, Task, Workload};

use crate::events::Events;
use crate::fifo::Fifo;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A thread that runs 50 µs every 10 ms.
fn thread(place: ThreadPlace) -> KernelThread {
    KernelThread {
        name: "kworker".into(),
        place,
        nice: 0,
        wakes: Wakes::Intervals(vec![10 * MS]),
        after_exit: false,
        at_tick: false,
        deferrable: false,
        run_ns: vec![50 * US],
        origin: Origin::new(Basis::Assumed, ""),
    }
}

fn machine(threads: Vec<KernelThread>) -> Machine {
    machine_with("1s1n1l4c1t", threads, Vec::new())
}

fn machine_with(shape: &str, threads: Vec<KernelThread>, interrupts: Vec<Interrupt>) -> Machine {
    let background = Background { name: "test".into(), summary: String::new(), launchers: false, threads, interrupts };
    resolve(shape).unwrap().with_background(background).unwrap()
}

/// An interrupt that takes 20 µs every millisecond.
fn interrupt(place: ThreadPlace) -> Interrupt {
    Interrupt {
        name: "disk".into(),
        place,
        arrives: Wakes::Intervals(vec![MS]),
        run_ns: vec![20 * US],
        origin: Origin::new(Basis::Assumed, ""),
    }
}

/// One task that does this so many times.
fn workload(times: u64, steps: &[Step]) -> Workload {
    let mut workload = Workload::empty("scene");
    let process = workload.add_process("process");
    let program = (0..times).flat_map(|_| steps.iter().cloned()).fold(ProgramBuilder::new(), ProgramBuilder::step);
    let program = workload.add_program(program.finish());
    workload.add_task(Task::new("task", process, program));
    workload
}

fn run_on(machine: &Machine, workload: &Workload, seed: u64) -> (Outcome, Vec<Event>) {
    let mut setup = Setup::new(machine, workload, seed).unwrap();
    setup.check_invariants = true;
    let mut events = Events::default();
    let outcome = run(&setup, Fifo::default(), Some(&mut events)).unwrap();
    (outcome, events.0)
}

fn sleeper() -> Workload {
    workload(100, &[Step::Run { work_ns: 100 * US }, Step::Sleep { duration_ns: 9 * MS }])
}

#[test]
fn kernel_threads_run_at_their_rate_beside_the_workload_and_are_accounted_apart() {
    let (outcome, _) = run_on(&machine(vec![thread(ThreadPlace::EachCpu)]), &sleeper(), 1);
    let [row] = outcome.background.as_slice() else { panic!("{:?}", outcome.background) };
    assert_eq!((row.name.as_str(), row.threads), ("kworker", 4));
    let expected = 4 * outcome.elapsed_ns / (10 * MS);
    assert!(row.wakeups.abs_diff(expected) <= 4, "{} of {expected}", row.wakeups);
    // A turn at the end may be cut, and overhead is part of a turn.
    assert!(row.cpu_time_ns.abs_diff(row.wakeups * 50 * US) <= 4 * 60 * US, "{}", row.cpu_time_ns);
    assert_eq!(outcome.cpus.iter().map(|cpu| cpu.background_ns).sum::<u64>(), row.cpu_time_ns);
    for cpu in &outcome.cpus {
        assert_eq!(cpu.idle_ns + cpu.busy_ns + cpu.background_ns, outcome.elapsed_ns);
    }
}

#[test]
fn nobody_who_looks_at_the_workload_sees_them() {
    let quiet = run_on(&machine(Vec::new()), &sleeper(), 1);
    let (outcome, events) =
        run_on(&machine(vec![thread(ThreadPlace::EachCpu), thread(ThreadPlace::AnyCpu)]), &sleeper(), 1);
    assert_eq!(outcome.tasks.len(), 1);
    assert_eq!((outcome.tasks[0].id, outcome.tasks[0].name.as_str()), (0, "task"));
    assert_eq!(outcome.applications.len(), quiet.0.applications.len());
    assert!(quiet.0.background.is_empty());
    let mut running = [TaskId::IDLE; 4];
    for event in &events {
        match event.kind {
            EventKind::Switch { prev, next, .. } => {
                let running = &mut running[event.cpu.index()];
                assert_eq!(*running, prev, "a switch is from what runs, as far as it is shown");
                assert!(prev != next && [prev, next].iter().all(|task| task.is_idle() || task.0 == 0));
                *running = next;
            }
            EventKind::Waking { task, .. } | EventKind::Wakeup { task, .. } | EventKind::Fork { child: task, .. } => {
                assert_eq!(task, TaskId(0));
            }
            _ => {}
        }
    }
}

/// A recording of a real kernel says so, and metrics of both places must mean the same.
#[test]
fn events_say_that_a_cpu_runs_a_kernel_thread_for_as_long_as_its_accounts_do() {
    let machine = machine(vec![thread(ThreadPlace::EachCpu)]);
    let workload = sleeper();
    let (outcome, events) = run_on(&machine, &workload, 1);
    let tables = Setup::new(&machine, &workload, 1).unwrap().run_tables(Vec::new());
    assert_eq!(tables.foreign.iter().filter(|thread| thread.name.starts_with("kworker/")).count(), 4);
    let mut ran_ns = vec![0; machine.cpu_count()];
    let mut since = vec![None; machine.cpu_count()];
    for event in events {
        let foreign = match event.kind {
            EventKind::Foreign { thread } => {
                assert!(thread.is_none_or(|thread| (thread as usize) < tables.foreign.len()));
                thread.is_some()
            }
            EventKind::Switch { .. } => false,
            _ => continue,
        };
        let cpu = event.cpu.index();
        ran_ns[cpu] += since[cpu].map_or(0, |since: u64| event.time_ns - since);
        since[cpu] = foreign.then_some(event.time_ns);
    }
    let at_the_end = |(ran, since): (u64, Option<u64>)| ran + since.map_or(0, |since| outcome.elapsed_ns - since);
    let shown: Vec<u64> = ran_ns.into_iter().zip(since).map(at_the_end).collect();
    let accounts: Vec<u64> = outcome.cpus.iter().map(|cpu| cpu.background_ns).collect();
    assert!(accounts.iter().all(|ns| *ns > 0) && shown == accounts, "{shown:?} {accounts:?}");
}

#[test]
fn a_run_ends_with_the_workload_and_not_with_its_kernel_threads() {
    let hog = workload(1, &[Step::Run { work_ns: 30 * MS }]);
    let (outcome, _) = run_on(&machine(vec![thread(ThreadPlace::AnyCpu)]), &hog, 1);
    assert_eq!(outcome.tasks[0].exited_ns, Some(outcome.elapsed_ns));
    assert!(outcome.elapsed_ns < 31 * MS);
}

#[test]
fn a_deferrable_timer_waits_for_a_busy_cpu() {
    let deferrable = KernelThread { deferrable: true, ..thread(ThreadPlace::EachCpu) };
    let spinner = workload(1000, &[Step::Run { work_ns: MS }, Step::Yield]);
    let (outcome, _) = run_on(&machine(vec![deferrable]), &spinner, 3);
    // One CPU of four is busy for a second; there a timer runs out every 10 ms or at the tick after that.
    let wakeups = outcome.background[0].wakeups;
    assert!((95..=103).contains(&wakeups), "{wakeups}");
    let (outcome, _) = run_on(&machine(vec![thread(ThreadPlace::EachCpu)]), &spinner, 3);
    assert!(outcome.background[0].wakeups >= 390, "{}", outcome.background[0].wakeups);
}

#[test]
fn timers_that_count_jiffies_run_out_at_ticks_as_often_as_they_would_between_them() {
    let wakes = Wakes::Intervals(vec![12 * MS]);
    let at_tick = KernelThread { at_tick: true, wakes, ..thread(ThreadPlace::EachCpu) };
    let hog = workload(1000, &[Step::Run { work_ns: MS }, Step::Yield]);
    // Every 12 ms for a second on each of four CPUs, whichever CPUs' ticks they are.
    let (outcome, _) = run_on(&machine(vec![at_tick]), &hog, 1);
    assert!(outcome.background[0].wakeups.abs_diff(333) < 9, "{}", outcome.background[0].wakeups);
}

#[test]
fn equal_seeds_give_equal_runs_and_others_other_phases() {
    let random = KernelThread { wakes: Wakes::Random { mean_ns: 3 * MS }, ..thread(ThreadPlace::AnyCpu) };
    let machine = machine(vec![thread(ThreadPlace::EachCpu), random]);
    let spinner = workload(300, &[Step::Run { work_ns: MS }, Step::Yield]);
    let made = |seed| run_on(&machine, &spinner, seed).1;
    assert_eq!(made(1), made(1));
    assert_ne!(made(1), made(2));
}

#[test]
fn random_wakeups_have_the_mean_that_they_say() {
    let random = KernelThread { wakes: Wakes::Random { mean_ns: 2 * MS }, ..thread(ThreadPlace::AnyCpu) };
    let idle = workload(1, &[Step::Sleep { duration_ns: 4_000 * MS }]);
    let (outcome, _) = run_on(&machine(vec![random]), &idle, 1);
    // 2000 on average, with a standard deviation of 45: five of them.
    assert!(outcome.background[0].wakeups.abs_diff(2000) < 225, "{}", outcome.background[0].wakeups);
}

/// Tasks that run for so many milliseconds each, and then exit.
fn exiting_after(times_ms: &[u64]) -> Workload {
    let mut workload = Workload::empty("scene");
    let process = workload.add_process("process");
    for &ms in times_ms {
        let program = workload.add_program(ProgramBuilder::new().step(Step::Run { work_ns: ms * MS }).finish());
        workload.add_task(Task::new("task", process, program));
    }
    workload
}

#[test]
fn a_thread_that_follows_exits_wakes_at_its_intervals_after_each_and_once_more_for_those_in_the_meantime() {
    let follows = |place| KernelThread {
        after_exit: true,
        wakes: Wakes::Intervals(vec![4 * MS, 8 * MS, 8 * MS]),
        ..thread(place)
    };
    let wakeups = |place, times_ms: &[u64]| {
        let (outcome, _) = run_on(&machine(vec![follows(place)]), &exiting_after(times_ms), 1);
        outcome.background[0].wakeups
    };
    assert_eq!(wakeups(ThreadPlace::AnyCpu, &[200]), 0, "the exit that ends the run is followed by nothing");
    assert_eq!(wakeups(ThreadPlace::AnyCpu, &[10, 200]), 3);
    assert_eq!(wakeups(ThreadPlace::AnyCpu, &[10, 60, 200]), 6);
    assert_eq!(wakeups(ThreadPlace::AnyCpu, &[10, 12, 14, 200]), 6, "two in the meantime are one");
    assert_eq!(wakeups(ThreadPlace::EachCpu, &[10, 12, 14, 200]), 9, "each on a CPU of its own");
    // The run ends between the second and the third.
    assert_eq!(wakeups(ThreadPlace::AnyCpu, &[10, 25]), 2);
}

#[test]
fn interrupts_lengthen_what_they_interrupt_by_just_what_they_take() {
    let hog = workload(1, &[Step::Run { work_ns: 100 * MS }]);
    let run = |interrupts| run_on(&machine_with("1s1n1l1c1t", Vec::new(), interrupts), &hog, 1).0;
    let (alone, beside) = (run(Vec::new()), run(vec![interrupt(ThreadPlace::EachCpu)]));
    let [row] = beside.background.as_slice() else { panic!("{:?}", beside.background) };
    assert_eq!((row.name.as_str(), row.interrupt, row.threads), ("disk", true, 1));
    // By hand: 100 ms of work and n interrupts of 20 µs, one of which comes in each ms of that: n = 102.
    assert_eq!(row.wakeups, 102);
    assert_eq!(row.cpu_time_ns, 102 * 20 * US);
    // No task and no tick but those of the same work; a tick more may fit into the longer run.
    let ticks = |outcome: &Outcome| outcome.cpus[0].overhead_ns[OverheadKind::Tick as usize];
    assert_eq!(beside.elapsed_ns - alone.elapsed_ns, row.cpu_time_ns + ticks(&beside) - ticks(&alone));
    assert_eq!(beside.cpus[0].overhead_ns[OverheadKind::Interrupt as usize], row.cpu_time_ns);
    // The kernel that is modelled accounts no interrupts apart: the task pays, and nobody is switched.
    assert_eq!(beside.tasks[0].cpu_time_ns - alone.tasks[0].cpu_time_ns, beside.elapsed_ns - alone.elapsed_ns);
    assert_eq!((beside.cpus[0].background_ns, beside.tasks[0].progress_ns), (0, 100 * MS));
}

#[test]
fn an_interrupt_of_each_cpu_is_nothing_to_cpus_that_are_idle() {
    let idle = workload(1, &[Step::Sleep { duration_ns: 50 * MS }, Step::Run { work_ns: MS }]);
    let run = |interrupts| run_on(&machine_with("1s1n1l4c1t", Vec::new(), interrupts), &idle, 1).0;
    let (alone, beside) = (run(Vec::new()), run(vec![interrupt(ThreadPlace::EachCpu)]));
    assert_eq!(beside.background[0].threads, 4);
    assert!(beside.background[0].wakeups.abs_diff(4 * 51) <= 4, "{:?}", beside.background);
    // One, or none, hits the millisecond of work.
    let longer_ns = beside.elapsed_ns - alone.elapsed_ns;
    assert!([0, 20 * US, 40 * US].contains(&longer_ns), "{longer_ns}");
    for cpu in &beside.cpus {
        assert_eq!(cpu.idle_ns + cpu.busy_ns, beside.elapsed_ns);
    }
}

#[test]
fn a_device_interrupts_one_cpu_which_the_seed_or_a_list_names() {
    let hogs = |seed, place| {
        let machine = machine_with("1s1n1l4c1t", Vec::new(), vec![interrupt(place)]);
        let idle = workload(1, &[Step::Sleep { duration_ns: 100 * MS }]);
        let cpus = run_on(&machine, &idle, seed).0.cpus;
        let of = |cpu: usize| cpus[cpu].overhead_ns[OverheadKind::Interrupt as usize] / (20 * US);
        [of(0), of(1), of(2), of(3)]
    };
    let mut seen = [false; 4];
    for seed in 0..16 {
        let counts = hogs(seed, ThreadPlace::AnyCpu);
        let on: Vec<usize> = (0..4).filter(|&cpu| counts[cpu] > 0).collect();
        let [cpu] = on[..] else { panic!("{counts:?}") };
        assert!(counts[cpu].abs_diff(100) <= 1, "{counts:?}");
        seen[cpu] = true;
        let counts = hogs(seed, ThreadPlace::Cpus([1, 3].into()));
        assert_eq!((counts[0], counts[2]), (0, 0));
    }
    assert_eq!(seen, [true; 4]);
}

#[test]
fn what_an_interrupt_does_changes_no_times_of_kernel_threads() {
    let random = || KernelThread { wakes: Wakes::Random { mean_ns: 3 * MS }, ..thread(ThreadPlace::EachCpu) };
    let idle = workload(1, &[Step::Sleep { duration_ns: 500 * MS }]);
    let rows = |interrupts| {
        let machine = machine_with("1s1n1l4c1t", vec![random()], interrupts);
        run_on(&machine, &idle, 4).0.background.swap_remove(0)
    };
    assert_eq!(rows(Vec::new()).wakeups, rows(vec![interrupt(ThreadPlace::EachCpu)]).wakeups);
}
