//! Mutexes: futexes, whose waiters sleep at once, and latches as database servers have them, whose waiters look for a while
//! before they sleep: until a release, or for a time, as PostgreSQL's spinlocks (`s_lock`) do, whose release is a store and wakes nobody.
//!
//! Nothing is handed over: a waiter that is woken, or sees a release, competes again. One that has lost its CPU reads the word when it runs
//! again, and a call that sleeps compares it first (`futex_wait_setup`, kernel/futex/waitwake.c): no release is lost. Those who sleep are woken
//! in the order of a futex ([`queue_in_futex`]); those who look see a release in the order in which they came.
//!
//! Where memory is modelled, taking a latch costs the transfer of its word and of the data behind it from the last owner's
//! CPU, and the queue of looks: whenever the word changes, each of those who look fetches it again, one after the other. The
//! release and the next taking wait in that queue, which is that of any hot line (`docs/spec/memory-model.md` section
//! 4.4): its members are the lookers and the new owner, their time between two uses is that between two looks, and a
//! use takes as long as a line on average takes from a looker to the new owner. So hand-offs grow with the number of
//! waiters and their distance, as measured for spin locks that do not queue (S. Boyd-Wickizer et al., "Non-scalable
//! locks are dangerous", 2012). A release is seen at the first of the lookers' next looks.
//!
//! Not modelled: looks at a word that others write too, priority inheritance, time limits, fairness of hardware between lookers.

use warmcore_memory::analytic::queue_wait_ns;
use warmcore_topology::CpuId;
use warmcore_trace::{OverheadKind, TaskId};
use warmcore_workload::LockId;

use crate::engine::{Engine, Leave};
use crate::hooks::ALL;
use crate::interpreter::{BY_TASK, Done};
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::sync::queue_in_futex;
use crate::task::{Activity, Stage, State, WaitReason};

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Whether a task sleeps until a mutex is released. One that waits actively does not, with or without a CPU.
    fn sleeps(&self, waiter: TaskId) -> bool {
        !self.core.tasks[waiter.index()].is_spinning()
    }

    /// Whether some task sleeps until a mutex is released.
    pub(crate) fn has_sleepers(&self, lock: LockId) -> bool {
        self.objects.locks[lock.index()].waiters.iter().any(|waiter| self.sleeps(*waiter))
    }

    /// Whether a task waits actively, on a CPU.
    fn looks(&self, waiter: TaskId) -> bool {
        let task = &self.core.tasks[waiter.index()];
        task.state == State::Running && task.is_spinning()
    }

    /// Time for which a release and the taking after it, by a CPU, wait behind the looks of those who go on waiting.
    fn wait_behind_looks_ns(&self, cpu: CpuId, lock: LockId) -> u64 {
        let state = &self.objects.locks[lock.index()];
        let (mut lookers, mut transfers_ns) = (0, 0);
        for &waiter in state.waiters.iter().filter(|waiter| self.looks(**waiter)) {
            lookers += 1;
            transfers_ns += self.memory.lines_ns(self.core.tasks[waiter.index()].cpu, cpu, 1);
        }
        if lookers == 0 {
            return 0;
        }
        let transfer_ns = transfers_ns as f64 / f64::from(lookers);
        (2.0 * queue_wait_ns(f64::from(lookers + 1), state.poll_ns as f64, transfer_ns)).round() as u64
    }

    /// Takes a free mutex, paying for the transfer of its line.
    pub(crate) fn try_lock(&mut self, cpu: CpuId, id: TaskId, lock: LockId) -> bool {
        let state = &mut self.objects.locks[lock.index()];
        if state.owner.is_some() {
            return false;
        }
        state.owner = Some(id);
        self.fetch_lock(cpu, id, lock);
        true
    }

    /// A task that has got a lock pays for the lines that come with it.
    pub(crate) fn fetch_lock(&mut self, cpu: CpuId, id: TaskId, lock: LockId) {
        let state = &mut self.objects.locks[lock.index()];
        let data_lines = state.data_lines;
        if let Some(last) = state.last_cpu.replace(cpu) {
            let cost = self.memory.handoff_ns(last, cpu) + self.memory.lines_ns(last, cpu, data_lines);
            self.core.charge(cpu, cost, OverheadKind::Syscall);
            self.memory.transferred(id, last, cpu, cost);
        }
        if M::MODELLED {
            let wait_ns = self.wait_behind_looks_ns(cpu, lock);
            self.core.charge(cpu, wait_ns, OverheadKind::Syscall);
            self.memory.waited_for_line(id, wait_ns);
        }
    }

    pub(crate) fn lock_step(&mut self, cpu: CpuId, id: TaskId, lock: LockId) -> Done {
        if self.objects.locks[lock.index()].kernel.is_some() {
            return self.sleeping_lock_step(cpu, id, lock, false);
        }
        if self.objects.locks[lock.index()].owner == Some(id) {
            let name = &self.workload.locks[lock.index()];
            self.program_error(id, format!("locks `{name}`, which it holds already"));
            return Done::Next;
        }
        let straight = self.stage(id) == Stage::Begin;
        if self.try_lock(cpu, id, lock) {
            self.objects.locks[lock.index()].contended |= !straight;
            self.futex_had_changed(cpu, id, WaitReason::Lock(lock.0));
            return Done::Next;
        }
        if self.stage(id) == Stage::Woken {
            self.objects.locks[lock.index()].contended = true;
            return self.retry(id);
        }
        let spin_ns = self.objects.locks[lock.index()].spin_ns;
        if spin_ns > 0 {
            self.objects.locks[lock.index()].waiters.push_back(id);
            return self.spin(cpu, id, WaitReason::Lock(lock.0), Some(spin_ns));
        }
        self.objects.locks[lock.index()].contended = true;
        if self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        queue_in_futex(&self.core.tasks, &mut self.objects.locks[lock.index()].waiters, id);
        self.block(id, WaitReason::Lock(lock.0))
    }

    /// Releases a mutex without the wake call. False (and an error) if the task does not hold it.
    pub(crate) fn give_up_lock(&mut self, cpu: CpuId, id: TaskId, lock: LockId) -> bool {
        let state = &mut self.objects.locks[lock.index()];
        if state.owner != Some(id) {
            let name = &self.workload.locks[lock.index()];
            self.program_error(id, format!("releases `{name}`, which it does not hold"));
            return false;
        }
        state.owner = None;
        state.last_cpu = Some(cpu);
        true
    }

    /// Whether who has released a mutex makes the call that wakes one who sleeps. The word says that nobody waits, from now on.
    pub(crate) fn calls_after_release(&mut self, lock: LockId) -> bool {
        let state = &mut self.objects.locks[lock.index()];
        std::mem::take(&mut state.contended) || state.wakes_all
    }

    /// Lets one of those who look see that `cpu` has released a mutex: it tries again. False if nobody looks.
    pub(crate) fn show_release(&mut self, cpu: CpuId, lock: LockId) -> bool {
        let waiters = &self.objects.locks[lock.index()].waiters;
        let Some(position) = waiters.iter().position(|waiter| self.looks(*waiter)) else { return false };
        let mut seen_ns = 0;
        if M::MODELLED {
            let lookers = waiters.iter().filter(|waiter| self.looks(**waiter)).count() as u64;
            // The line comes to it; what taking the mutex costs comes then.
            let line_ns = self.memory.lines_ns(cpu, self.core.tasks[waiters[position].index()].cpu, 1);
            seen_ns = line_ns + self.objects.locks[lock.index()].poll_ns / (lookers + 1);
        }
        if let Some(waiter) = self.objects.locks[lock.index()].waiters.remove(position) {
            self.release_spinner(waiter, seen_ns);
        }
        true
    }

    /// Lets those who sleep try a mutex that has been released: the first in the order of the futex, or all.
    pub(crate) fn wake_lock_waiters(&mut self, lock: LockId) {
        let most = if self.objects.locks[lock.index()].wakes_all { ALL } else { 1 };
        let word = if self.has_sleepers(lock) { self.word_of(WaitReason::Lock(lock.0)) } else { 0 };
        self.in_futex_wake(word, most, |engine| engine.let_sleepers_try(lock));
    }

    /// Gives how many of them it woke.
    fn let_sleepers_try(&mut self, lock: LockId) -> u32 {
        let (mut position, mut woken) = (0, 0);
        while position < self.objects.locks[lock.index()].waiters.len() {
            let state = &mut self.objects.locks[lock.index()];
            let (waiter, wakes_all) = (state.waiters[position], state.wakes_all);
            if !self.sleeps(waiter) {
                position += 1;
                continue;
            }
            self.objects.locks[lock.index()].waiters.remove(position);
            self.wake(waiter, BY_TASK);
            woken += 1;
            if !wakes_all {
                break;
            }
        }
        woken
    }

    /// A task has a CPU again: if it waits actively for a mutex that was released meanwhile, it sees that now.
    #[inline]
    pub(crate) fn look_again(&mut self, cpu: CpuId, id: TaskId) {
        let task = &self.core.tasks[id.index()];
        if let (Activity::SpinUntil, WaitReason::Lock(lock)) = (task.activity, task.waiting_for) {
            let state = &mut self.objects.locks[lock as usize];
            if state.kernel.is_some() || state.owner.is_some() {
                return;
            }
            state.waiters.retain(|waiter| *waiter != id);
            let seen_ns = state.last_cpu.map_or(0, |last| self.memory.lines_ns(last, cpu, 1));
            self.release_spinner(id, seen_ns);
        }
    }

    /// The running task has waited actively for a mutex for as long as it does: it takes one that is free after all, or sleeps until a
    /// release or for a time.
    pub(crate) fn stop_looking(&mut self, cpu: CpuId, id: TaskId, lock: LockId) {
        let state = &mut self.objects.locks[lock.index()];
        if state.kernel.is_some() {
            return self.stop_spinning_on_readers(cpu, id, lock);
        }
        if state.owner.is_none() {
            state.waiters.retain(|waiter| *waiter != id);
            return self.release_spinner(id, 0);
        }
        if state.sleep_ns == 0 {
            state.contended = true;
            self.core.tasks[id.index()].activity = Activity::Advance;
            if self.objects.realtime {
                // Those who look have no order; those who sleep are in the futex's.
                let waiters = &mut self.objects.locks[lock.index()].waiters;
                waiters.retain(|waiter| *waiter != id);
                queue_in_futex(&self.core.tasks, waiters, id);
            }
        } else {
            let sleep_ns = state.sleep_ns;
            state.waiters.retain(|waiter| *waiter != id);
            self.sleep_until(id, self.core.now_ns + sleep_ns);
        }
        self.schedule(cpu, Leave::Blocked);
    }

    pub(crate) fn unlock_step(&mut self, cpu: CpuId, id: TaskId, lock: LockId) -> Done {
        if self.objects.locks[lock.index()].kernel.is_some() {
            return self.sleeping_unlock_step(cpu, id, lock);
        }
        if self.stage(id) == Stage::Begin {
            if !self.give_up_lock(cpu, id, lock) {
                return Done::Next;
            }
            if self.show_release(cpu, lock) && !self.objects.locks[lock.index()].wakes_all {
                return Done::Next;
            }
            if !self.calls_after_release(lock) {
                return Done::Next;
            }
        }
        if self.has_sleepers(lock) {
            if self.pay(id, self.futex_ns()) {
                return Done::Busy;
            }
            self.wake_lock_waiters(lock);
        }
        Done::Next
    }
}
