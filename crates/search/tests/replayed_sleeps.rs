//! Whether the replay of a recorded sleeper sleeps as long as it did, and that of a worker works as much: what the kernel adds to a sleep and
//! the machine to a work's time is in the recording already.

mod mixes;

use warmcore_capture::{Context, Record, Recording, What};
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{BatchConduct, Request, collect};
use warmcore_places::sim::Sim;
use warmcore_replay::Overheads;
use warmcore_replay::history::histories;
use warmcore_replay::workload::replay;
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_trace::{OverheadKind, PrevState};
use warmcore_workload::{ProgramBuilder, Step, Task, Workload};

const PERIODS: u64 = 50;

/// Elapsed time, and of it what interrupts of ticks and preemption timers took.
fn run(workload: &Workload, machine: &Machine) -> (u64, u64) {
    let scheduler = SchedulerSpec::parse("eevdf").unwrap();
    let options = RunOptions { memory: MemoryChoice::None, ..RunOptions::default() };
    let request = Request { options, ..Request::new(machine, workload, &scheduler, 5) };
    let conduct = BatchConduct { jobs: 1, stop: Default::default() };
    let outcome = collect(&Sim, &[request], &conduct, &|_, run| Ok(run?.send(None)?.outcome)).unwrap().remove(0);
    let ticks_ns = outcome.cpus.iter().map(|cpu| cpu.overhead_ns[OverheadKind::Tick as usize]).sum();
    (outcome.elapsed_ns, ticks_ns)
}

fn replayed(recording: &Recording, chosen: &std::collections::BTreeSet<i32>, machine: &Machine) -> Workload {
    replay("replay", &histories(recording, chosen, Some(machine)), recording, Overheads::of(machine.costs())).workload
}

/// Thread 5 runs for so long, sleeps for so long, and is on its CPU again 2 us after the interrupt.
fn recorded_by_hand(times: impl Iterator<Item = (u64, u64)>) -> Recording {
    let record = |time_ns, by, context, what| Record { time_ns, cpu: 0, by, context, what };
    let switch = |time_ns, prev, state, next| {
        record(time_ns, prev, Context::Thread, What::Switch { prev, state, next, uninterruptible: false })
    };
    let mut now_ns = 1_000;
    let mut records = vec![switch(now_ns, 0, PrevState::Idle, 5)];
    for (run_ns, sleep_ns) in times {
        records.push(switch(now_ns + run_ns, 5, PrevState::Sleeping, 0));
        now_ns += run_ns + sleep_ns;
        records.push(record(now_ns, 0, Context::HardInterrupt, What::Waking { thread: 5, target_cpu: 0 }));
        now_ns += 2_000;
        records.push(switch(now_ns, 0, PrevState::Idle, 5));
    }
    records.push(switch(now_ns + 1_000_000, 5, PrevState::Dead, 0));
    Recording { records, ..Recording::default() }.finished()
}

/// The difference is the simulated CPU's way out of idle, which is the machine's own, for the recorded 2 us.
#[test]
fn a_periodic_sleeper_recorded_by_hand_has_the_same_period_in_its_replay() {
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let of_its_own = |number: u64| (1_000_000 + number % 7 * 300_000, 9_000_000_u64);
    let to_times = |number: u64| (1_000_000 + number % 7 * 300_000, 9_000_000 - number % 7 * 300_000);
    let shorter_than_the_slack = |number: u64| (20_000 + number % 7 * 3_000, 30_000_u64);
    for times in [&of_its_own as &dyn Fn(u64) -> (u64, u64), &to_times, &shorter_than_the_slack] {
        let recording = recorded_by_hand((0..PERIODS).map(times));
        let (start, end) = recording.span_ns();
        let (made, _) = run(&replayed(&recording, &[5].into(), &machine), &machine);
        let per_period_ns = made.abs_diff(end - start) / PERIODS;
        assert!(per_period_ns < 1_000, "{made} ns, recorded {}: {per_period_ns} ns each period", end - start);
    }
}

/// Two that compute and two that sleep take turns on one CPU: what is left is what their ticks took.
#[test]
fn sleepers_among_spinners_on_one_cpu_take_as_long_in_the_replay_of_their_simulated_run() {
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let mut workload = Workload::empty("crowd");
    let process = workload.add_process("crowd");
    for number in 0..4_u64 {
        let sleeper = |body: ProgramBuilder| {
            body.step(Step::Run { work_ns: 300_000 + number * 70_000 }).step(Step::Sleep { duration_ns: 1_100_000 })
        };
        let program = match number {
            0 | 1 => ProgramBuilder::new().step(Step::Run { work_ns: 150_000_000 }),
            _ => ProgramBuilder::new().repeat(Some(200), sleeper),
        };
        let program = workload.add_program(program.finish());
        workload.add_task(Task::new(format!("task-{number}"), process, program));
    }
    let (truth, ticks_ns) = run(&workload, &machine);
    let (recording, chosen) = mixes::recorded(&workload, &machine, 5, MemoryChoice::None);
    let (made, _) = run(&replayed(&recording, &chosen, &machine), &machine);
    let left_ns = made.abs_diff(truth).saturating_sub(ticks_ns);
    assert!(left_ns < truth / 1_000, "{made} ns, {truth} in truth, of which {ticks_ns} ns were ticks");
}

/// Threads on two cores with siblings, fewer, as many and more than CPUs, and one on a small
/// core: the replay takes as long as the run.
#[test]
fn work_that_siblings_and_small_cores_slowed_is_as_much_in_the_replay() {
    for (name, tasks, pinned) in
        [("1s1n1l2c2t", 2, None), ("1s1n1l2c2t", 4, None), ("1s1n1l2c2t", 7, None), ("hikey960", 1, Some(0))]
    {
        let machine = warmcore_topology::resolve(name).unwrap();
        let mut workload = Workload::empty("workers");
        let process = workload.add_process("workers");
        for number in 0..tasks {
            let program = ProgramBuilder::new().step(Step::Run { work_ns: 20_000_000 + number * 10_000_000 });
            let program = workload.add_program(program.finish());
            let mut task = Task::new(format!("worker-{number}"), process, program);
            task.affinity = pinned.map_or(task.affinity, |cpu| warmcore_workload::Affinity::OsCpus(vec![cpu]));
            workload.add_task(task);
        }
        let (truth, _) = run(&workload, &machine);
        let (recording, chosen) = mixes::recorded(&workload, &machine, 5, MemoryChoice::None);
        let mut made = replayed(&recording, &chosen, &machine);
        made.tasks.iter_mut().for_each(|task| task.affinity = workload.tasks[0].affinity.clone());
        let (elapsed, _) = run(&made, &machine);
        assert!(elapsed.abs_diff(truth) < truth / 200, "{tasks} on {name}: {elapsed} ns, {truth} in truth");
    }
}
