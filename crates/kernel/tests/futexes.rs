//! Whom the objects of user space wake first: who sleeps in a futex stands there by real-time priority. The policy is `support/fifo.rs`,
//! which gives every task a CPU of its own.

use warmcore_kernel::{Setup, run};
use warmcore_topology::resolve;
use warmcore_trace::{Event, EventKind, OverheadKind};
use warmcore_workload::{
    Affinity, BarrierWait, Latch, Policy, Program, ProgramBuilder, Reservation, Step, Task, Workload,
};

use crate::events::Events;
use crate::fifo::Fifo;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

const fn run_for(work_ns: u64) -> Step {
    Step::Run { work_ns }
}

const fn sleep(duration_ns: u64) -> Step {
    Step::Sleep { duration_ns }
}

fn program(steps: &[Step]) -> Program {
    steps.iter().cloned().fold(ProgramBuilder::new(), ProgramBuilder::step).finish()
}

fn repeated(steps: &[Step], times: usize) -> Vec<Step> {
    vec![steps; times].concat()
}

fn fifo(priority: u8) -> Policy {
    Policy::Fifo { priority }
}

/// Tasks that were woken by others, in order: those of these policies come 0.2 ms apart and wait, and a last one lets them go on.
fn woken(mut workload: Workload, policies: &[Policy], waits: &[Step], lets_go: &[Step]) -> Vec<u32> {
    let machine = resolve(&format!("1s1n1l{}c1t", policies.len() + 1)).unwrap();
    let process = workload.add_process("process");
    for (number, policy) in (0..).zip(policies) {
        let own = workload.add_program(program(&[&[sleep(200 * US * (number + 1))][..], waits].concat()));
        let bound = !policy.is_deadline();
        workload.add_task(Task {
            policy: *policy,
            affinity: if bound { Affinity::OsCpus(vec![number as u32]) } else { Affinity::All },
            ..Task::new(format!("waiter {number}"), process, own)
        });
    }
    let last = workload.add_program(program(lets_go));
    workload.add_task(Task {
        affinity: Affinity::OsCpus(vec![policies.len() as u32]),
        ..Task::new("lets go", process, last)
    });
    let mut setup = Setup::new(&machine, &workload, 1).unwrap();
    setup.check_invariants = true;
    let mut events = Events::default();
    run(&setup, Fifo::default(), Some(&mut events)).unwrap();
    let by_task = |event: &Event| match event.kind {
        EventKind::Waking { task, waker, .. } if !waker.is_idle() => Some(task.0),
        _ => None,
    };
    events.0.iter().filter_map(by_task).collect()
}

/// The order for each way to wait: semaphore, mutex, latch whose waiters spin first, condition by signals and by a broadcast, barrier.
fn orders(policies: &[Policy]) -> Vec<Vec<u32>> {
    let count = policies.len();
    let each = |step: Step| [vec![sleep(5 * MS)], repeated(&[step, run_for(MS)], count)].concat();
    let mut all = Vec::new();

    let mut workload = Workload::empty("semaphore");
    let semaphore = workload.add_semaphore("s", 0);
    all.push(woken(workload, policies, &[Step::SemWait(semaphore)], &each(Step::SemPost(semaphore))));

    for spin_ns in [0, 50 * US] {
        let mut workload = Workload::empty("mutex");
        let lock = workload.add_latch("m", Latch { spin_ns, ..Latch::default() });
        let waits = [Step::Lock(lock), run_for(MS), Step::Unlock(lock)];
        all.push(woken(workload, policies, &waits, &[Step::Lock(lock), run_for(5 * MS), Step::Unlock(lock)]));
    }

    for broadcast in [false, true] {
        let mut workload = Workload::empty("condition");
        let (lock, condition) = (workload.add_lock("m"), workload.add_condition("c"));
        let waits = [Step::Lock(lock), Step::Wait { condition, lock }, Step::Unlock(lock)];
        let wakes =
            if broadcast { vec![sleep(5 * MS), Step::Broadcast(condition)] } else { each(Step::Signal(condition)) };
        all.push(woken(workload, policies, &waits, &wakes)[..count].to_vec());
    }

    let mut workload = Workload::empty("barrier");
    let barrier = Step::Barrier(workload.add_barrier("b", count as u32 + 1, BarrierWait::Block));
    all.push(woken(workload, policies, std::slice::from_ref(&barrier), &[sleep(5 * MS), barrier.clone()]));
    all
}

#[test]
fn who_sleeps_in_a_futex_is_woken_by_real_time_priority_and_among_equals_in_turn() {
    let deadline = Policy::Deadline(Reservation { runtime_ns: MS, deadline_ns: 10 * MS, period_ns: 10 * MS });
    let turn = Policy::RoundRobin { priority: 10 };
    for (policies, order) in [
        ([Policy::Normal; 3], [0, 1, 2]),
        ([Policy::Normal, Policy::Idle, Policy::Batch], [0, 1, 2]),
        ([Policy::Normal, fifo(10), fifo(90)], [2, 1, 0]),
        ([fifo(10), turn, fifo(90)], [2, 0, 1]),
        ([fifo(99), Policy::Normal, deadline], [2, 0, 1]),
    ] {
        assert_eq!(orders(&policies), vec![order.to_vec(); 6], "{policies:?}");
    }
}

/// Every 2 ms a post for two workers of 0.5 ms: the one of the higher priority takes all, although the other one has waited for longer.
#[test]
fn a_pool_that_is_seldom_busy_works_with_its_thread_of_the_highest_priority() {
    for (first, to_second) in [(fifo(10), 5), (Policy::Normal, 5), (fifo(90), 2)] {
        let mut workload = Workload::empty("pool");
        let semaphore = workload.add_semaphore("s", 0);
        let waits = repeated(&[Step::SemWait(semaphore), run_for(500 * US)], 5);
        // As many as both take, so that the run ends.
        let posts = repeated(&[sleep(2 * MS), Step::SemPost(semaphore)], 10);
        let order = woken(workload, &[first, fifo(90)], &waits, &posts);
        let of_second = order[..5].iter().filter(|task| **task == 1).count();
        assert_eq!(of_second, to_second, "{first:?}: {order:?}");
    }
}

/// A waiter that is signalled under the mutex finds it taken, and the call in which it goes back to sleep costs as any other.
#[test]
fn a_signal_under_the_mutex_costs_its_waiter_one_more_call() {
    let machine = resolve("1s1n1l2c1t").unwrap();
    let spent_ns = |under: bool| {
        let mut workload = Workload::empty("condition");
        let (lock, condition) = (workload.add_lock("m"), workload.add_condition("c"));
        let process = workload.add_process("process");
        let waits = vec![Step::Lock(lock), Step::Wait { condition, lock }, Step::Unlock(lock)];
        let mut signals = vec![run_for(5 * MS), Step::Lock(lock), Step::Signal(condition)];
        if under {
            signals.push(run_for(MS));
        }
        signals.extend([Step::Unlock(lock), run_for(MS)]);
        for (cpu, steps) in [waits, signals].iter().enumerate() {
            let own = workload.add_program(program(steps));
            let affinity = Affinity::OsCpus(vec![cpu as u32]);
            workload.add_task(Task { affinity, ..Task::new(format!("task {cpu}"), process, own) });
        }
        let setup = Setup::new(&machine, &workload, 1).unwrap();
        run(&setup, Fifo::default(), None).unwrap().cpus[0].overhead_ns[OverheadKind::Syscall as usize]
    };
    assert_eq!(spent_ns(true) - spent_ns(false), machine.costs().futex_ns);
}
