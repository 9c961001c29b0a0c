//! Sleeping locks of the kernel: mutexes and reader-writer semaphores, whose waiters spin while the owner runs.
//!
//! A task that finds the lock taken spins as long as the owner is on a CPU and nobody asks for its own CPU (`need_resched`). Spinners
//! stand in a queue (`osq`) whose head takes a lock that becomes free, before any task that sleeps. A task that does not spin sleeps in
//! a list, first come, first served.
//!
//! | | mutex | reader-writer semaphore |
//! |---|---|---|
//! | a release with sleepers | wakes the first | wakes the first if it writes; gives the lock to all sleeping readers if it reads |
//! | the first sleeper, woken in vain | asks that the next release be its own, and spins | the same, once it has waited for 4 ms |
//! | spinning on readers | | writers for 10 us and half a microsecond for each reader, then none until a writer has had it |
//! | a reader | | takes what no writer has or was promised; queues behind sleepers while others read |
//!
//! Where a release meets both a spinner and sleeping readers, the spinner wins. Taking the lock costs what a latch costs
//! ([`latch`](crate::latch)); spinners do not slow the owner, as each looks at a line of its own.
//!
//! Not modelled: signals, real-time tasks that may not spin on an unknown owner, priority inheritance, the time of the list's own spinlock.
//! The 4 ms are not rounded to ticks.
//!
//! Source: Linux 6.16 `kernel/locking/mutex.c` (`__mutex_lock_common`, `mutex_optimistic_spin`, `__mutex_unlock_slowpath`),
//! `kernel/locking/rwsem.c` (`rwsem_down_read_slowpath`, `rwsem_optimistic_spin`, `rwsem_mark_wake`, `rwsem_try_write_lock`).

use std::collections::VecDeque;

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{LatchKind, LockId};

use crate::core::NeedResched;
use crate::engine::{Engine, Leave};
use crate::interpreter::{BY_TASK, Done};
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::task::{Activity, Stage, State, WaitReason};

/// How long a sleeper of a semaphore lets spinners go first (`RWSEM_WAIT_TIMEOUT`).
const HANDOFF_AFTER_NS: u64 = 4_000_000;

/// At most so many readers are woken at once (`MAX_READERS_WAKEUP`).
const READERS_AT_ONCE: usize = 256;

/// A mutex or reader-writer semaphore of the kernel; its owner is in [`Lock`](crate::sync::Lock).
pub(crate) struct SleepingLock {
    kind: LatchKind,
    /// Who has it for reading.
    readers: Vec<TaskId>,
    /// Who waits on a CPU and not yet in the list, in order.
    spinners: VecDeque<TaskId>,
    /// The list. Its first may wait on a CPU too.
    sleepers: VecDeque<Sleeper>,
    /// The next release is for the first of the list.
    handoff: bool,
    /// Writers do not spin on readers.
    nonspinnable: bool,
}

struct Sleeper {
    task: TaskId,
    reads: bool,
    since_ns: u64,
}

impl SleepingLock {
    pub fn new(kind: LatchKind) -> Self {
        Self {
            kind,
            readers: Vec::new(),
            spinners: VecDeque::new(),
            sleepers: VecDeque::new(),
            handoff: false,
            nonspinnable: false,
        }
    }

    fn is_first(&self, task: TaskId) -> bool {
        self.sleepers.front().is_some_and(|sleeper| sleeper.task == task)
    }

    /// For how long a writer spins on readers (`rwsem_rspin_threshold`).
    fn spin_on_readers_ns(&self) -> Option<u64> {
        (!self.readers.is_empty()).then(|| (20 + self.readers.len().min(30) as u64) * 1_000 / 2)
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    fn sleeping(&mut self, lock: LockId) -> &mut SleepingLock {
        self.objects.locks[lock.index()].kernel.as_mut().expect("a lock of the kernel")
    }

    /// The running task takes the lock, waits on its CPU, or sleeps.
    pub(crate) fn sleeping_lock_step(&mut self, cpu: CpuId, id: TaskId, lock: LockId, reads: bool) -> Done {
        let stage = self.stage(id);
        let state = &self.objects.locks[lock.index()];
        let granted = match reads {
            _ if stage == Stage::Begin => false,
            true => state.kernel.as_ref().is_some_and(|kernel| kernel.readers.contains(&id)),
            false => state.owner == Some(id),
        };
        if granted || self.take(id, lock, reads) {
            self.fetch_lock(cpu, id, lock);
            return Done::Next;
        }
        let spinnable = !reads && self.spinnable(cpu, lock);
        let now_ns = self.core.now_ns;
        let kernel = self.sleeping(lock);
        if stage == Stage::Begin && spinnable {
            kernel.spinners.push_back(id);
            let longest_ns = kernel.spin_on_readers_ns().filter(|_| kernel.spinners.len() == 1);
            return self.spin_on(cpu, id, lock, longest_ns);
        }
        if stage == Stage::Woken && kernel.is_first(id) && !reads {
            kernel.handoff |=
                kernel.kind == LatchKind::Mutex || now_ns > kernel.sleepers[0].since_ns + HANDOFF_AFTER_NS;
            if kernel.handoff && spinnable && kernel.readers.is_empty() {
                return self.spin_on(cpu, id, lock, None);
            }
        }
        if !kernel.sleepers.iter().any(|sleeper| sleeper.task == id) {
            kernel.sleepers.push_back(Sleeper { task: id, reads, since_ns: now_ns });
        }
        self.block(id, WaitReason::Lock(lock.0))
    }

    /// Takes the lock if the task may.
    fn take(&mut self, id: TaskId, lock: LockId, reads: bool) -> bool {
        let state = &mut self.objects.locks[lock.index()];
        let Some(kernel) = &mut state.kernel else { return false };
        if state.owner.is_some() || kernel.handoff && (reads || !kernel.is_first(id)) {
            return false;
        }
        if reads {
            let first = kernel.readers.is_empty();
            if !first && !kernel.sleepers.is_empty() {
                return false;
            }
            kernel.readers.push(id);
            if first {
                // Who sleeps for reading comes along.
                self.admit_readers(lock);
            }
            return true;
        }
        if !kernel.readers.is_empty() {
            return false;
        }
        kernel.sleepers.retain(|sleeper| sleeper.task != id);
        kernel.handoff = false;
        self.own(id, lock);
        true
    }

    /// The lock is the task's alone.
    fn own(&mut self, id: TaskId, lock: LockId) {
        self.objects.locks[lock.index()].owner = Some(id);
        self.sleeping(lock).nonspinnable = false;
        self.core.tasks[id.index()].kernel.locks += 1;
    }

    /// Whether the task on a CPU may spin for a lock that it did not get (`mutex_can_spin_on_owner`, `rwsem_can_spin_on_owner`).
    fn spinnable(&self, cpu: CpuId, lock: LockId) -> bool {
        let state = &self.objects.locks[lock.index()];
        let readers = state.kernel.as_ref().is_some_and(|kernel| kernel.nonspinnable && !kernel.readers.is_empty());
        let off_cpu = state.owner.is_some_and(|owner| self.core.tasks[owner.index()].state != State::Running);
        self.core.need_resched(cpu) != NeedResched::Full && !readers && !off_cpu
    }

    fn spin_on(&mut self, cpu: CpuId, id: TaskId, lock: LockId, longest_ns: Option<u64>) -> Done {
        self.core.tasks[id.index()].kernel.spins_on = Some(lock);
        self.spin(cpu, id, WaitReason::Lock(lock.0), longest_ns)
    }

    /// A spinner has the lock, or has to sleep: it finds out after so long.
    fn end_spin(&mut self, id: TaskId, lock: LockId, seen_ns: u64) {
        self.sleeping(lock).spinners.retain(|spinner| *spinner != id);
        let task = &mut self.core.tasks[id.index()];
        (task.kernel.spins_on, task.stage) = (None, Stage::Effect);
        self.release_spinner(id, seen_ns);
    }

    /// What all spin on is no longer worth it: the owner has left its CPU, or readers take too long.
    fn end_spins(&mut self, from: CpuId, lock: LockId) {
        let first = self.sleeping(lock).sleepers.front().map(|sleeper| sleeper.task);
        let first = first.filter(|first| self.core.tasks[first.index()].kernel.spins_on == Some(lock));
        while let Some(id) = self.sleeping(lock).spinners.front().copied().or(first) {
            let seen_ns = self.memory.handoff_ns(from, self.core.tasks[id.index()].cpu);
            self.end_spin(id, lock, seen_ns);
            if Some(id) == first {
                return;
            }
        }
    }

    /// The head of the spinners sees that readers have the lock.
    fn limit_head(&mut self, lock: LockId) {
        let kernel = self.sleeping(lock);
        let (Some(head), Some(longest_ns)) = (kernel.spinners.front().copied(), kernel.spin_on_readers_ns()) else {
            return;
        };
        let cpu = self.core.tasks[head.index()].cpu;
        if self.core.tasks[head.index()].activity != Activity::Spin {
            return;
        }
        self.settle(cpu);
        let task = &mut self.core.tasks[head.index()];
        (task.activity, task.remaining_ns) = (Activity::SpinUntil, longest_ns);
        self.live += 1;
        self.arm_progress(cpu);
    }

    /// The running task has spun on readers for as long as it does.
    pub(crate) fn stop_spinning_on_readers(&mut self, cpu: CpuId, id: TaskId, lock: LockId) {
        let kernel = self.sleeping(lock);
        if kernel.readers.is_empty() {
            self.core.tasks[id.index()].activity = Activity::Spin;
            self.live -= 1;
            return;
        }
        kernel.nonspinnable = true;
        self.end_spins(cpu, lock);
    }

    /// Somebody asks for the CPU of a spinner: it stops. For a mutex it gives way and sleeps when it runs again, for a semaphore
    /// it sleeps at once.
    #[cold]
    pub(crate) fn interrupt_spin(&mut self, id: TaskId, lock: LockId, leave: Leave) -> Leave {
        self.end_spin(id, lock, 0);
        self.limit_head(lock);
        let now_ns = self.core.now_ns;
        let kernel = self.sleeping(lock);
        if kernel.kind == LatchKind::Mutex || leave != Leave::Preempted {
            return leave;
        }
        if !kernel.is_first(id) {
            kernel.sleepers.push_back(Sleeper { task: id, reads: false, since_ns: now_ns });
        }
        let task = &mut self.core.tasks[id.index()];
        (task.waiting_for, task.stage, task.activity) = (WaitReason::Lock(lock.0), Stage::Woken, Activity::Advance);
        Leave::Blocked
    }

    /// A task that owns locks is off its CPU: nobody spins for them.
    #[cold]
    pub(crate) fn owner_left(&mut self, cpu: CpuId, id: TaskId) {
        let workload = self.workload;
        let of_workload = workload.latches.iter().filter(|latch| latch.kind.is_of_kernel()).map(|latch| latch.lock);
        let own_space = self.objects.mmap_locks.get(self.core.tasks[id.index()].process as usize).copied();
        for lock in of_workload.chain([self.objects.group_lock]).chain(own_space) {
            if self.objects.locks[lock.index()].owner == Some(id) {
                self.end_spins(cpu, lock);
            }
        }
    }

    /// The running task gives the lock back.
    pub(crate) fn sleeping_unlock_step(&mut self, cpu: CpuId, id: TaskId, lock: LockId) -> Done {
        let state = &mut self.objects.locks[lock.index()];
        let Some(kernel) = &mut state.kernel else { return Done::Next };
        let read = kernel.readers.iter().position(|reader| *reader == id);
        if state.owner == Some(id) {
            state.owner = None;
            self.core.tasks[id.index()].kernel.locks -= 1;
        } else if let Some(position) = read {
            kernel.readers.swap_remove(position);
            if !kernel.readers.is_empty() {
                return Done::Next;
            }
            kernel.nonspinnable &= kernel.sleepers.is_empty();
        } else {
            let name = &self.workload.locks[lock.index()];
            self.program_error(id, format!("releases `{name}`, which it does not hold"));
            return Done::Next;
        }
        state.last_cpu = Some(cpu);
        self.pass_on(cpu, lock);
        Done::Next
    }

    /// The running task, which has a semaphore alone, keeps it as a reader, and readers that sleep get it too (`downgrade_write`).
    pub(crate) fn downgrade(&mut self, id: TaskId, lock: LockId) {
        self.objects.locks[lock.index()].owner = None;
        self.core.tasks[id.index()].kernel.locks -= 1;
        self.sleeping(lock).readers.push(id);
        self.admit_readers(lock);
    }

    /// Nobody has the lock: it goes to a spinner, to a sleeper that was promised it, or to whom the release wakes.
    fn pass_on(&mut self, cpu: CpuId, lock: LockId) {
        let now_ns = self.core.now_ns;
        let kernel = self.sleeping(lock);
        let (kind, handoff) = (kernel.kind, kernel.handoff);
        let first = kernel.sleepers.front().map(|sleeper| (sleeper.task, sleeper.reads, sleeper.since_ns));
        let spinner = kernel.spinners.front().copied().filter(|_| !handoff);
        if let Some(spinner) = spinner {
            self.own(spinner, lock);
            self.end_spin(spinner, lock, self.seen_ns(cpu, spinner));
        }
        let Some((first, reads, since_ns)) = first else { return };
        let spins = self.core.tasks[first.index()].kernel.spins_on == Some(lock);
        if reads && spinner.is_some() {
            self.sleeping(lock).handoff = now_ns > since_ns + HANDOFF_AFTER_NS;
        } else if reads {
            self.admit_readers(lock);
        } else if handoff && (spins || kind == LatchKind::Mutex) {
            let kernel = self.sleeping(lock);
            kernel.sleepers.pop_front();
            kernel.handoff = false;
            self.own(first, lock);
            if spins {
                self.end_spin(first, lock, self.seen_ns(cpu, first));
            } else if self.core.tasks[first.index()].state != State::Running {
                self.end_spins(cpu, lock);
            }
        }
        if !reads && self.core.tasks[first.index()].state == State::Blocked {
            self.wake(first, BY_TASK);
        }
    }

    /// Sleeping readers get the lock, past the writers between them.
    fn admit_readers(&mut self, lock: LockId) {
        let Some(kernel) = &mut self.objects.locks[lock.index()].kernel else { return };
        let mut woken = 0;
        kernel.sleepers.retain(|sleeper| {
            let admitted = sleeper.reads && woken < READERS_AT_ONCE;
            if admitted {
                woken += 1;
                kernel.readers.push(sleeper.task);
                self.objects.to_wake.push(sleeper.task);
            }
            !admitted
        });
        kernel.handoff &= woken == 0;
        self.limit_head(lock);
        self.wake_collected();
    }

    /// When a spinner on a CPU sees what another has written.
    fn seen_ns(&self, cpu: CpuId, spinner: TaskId) -> u64 {
        self.memory.lines_ns(cpu, self.core.tasks[spinner.index()].cpu, 1)
    }
}
