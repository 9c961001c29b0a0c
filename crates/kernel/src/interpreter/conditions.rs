//! Conditions, for which tasks wait until they are signalled, and tasks that suspend themselves until they are resumed. Those who wait
//! are woken in the order of a futex ([`queue_in_futex`]).

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{ConditionId, LockId};

use crate::engine::Engine;
use crate::hooks::{ALL, word_of_resume};
use crate::interpreter::Done;
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::sync::{futex_rank, queue_in_futex};
use crate::task::{Stage, WaitReason};

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    pub(super) fn wait_step(
        &mut self,
        cpu: CpuId,
        id: TaskId,
        condition: ConditionId,
        lock: LockId,
        signal: bool,
    ) -> Done {
        if self.stage(id) == Stage::Begin {
            if !self.give_up_lock(cpu, id, lock) {
                return Done::Next;
            }
            // The call in which it sleeps, and those in which it wakes others before.
            let mut calls = 1;
            let shown = self.show_release(cpu, lock) && !self.objects.locks[lock.index()].wakes_all;
            if !shown && self.calls_after_release(lock) {
                calls += u64::from(self.has_sleepers(lock));
                self.wake_lock_waiters(lock);
            }
            if signal && !self.objects.conditions[condition.index()].is_empty() {
                calls += 1;
                self.wake_waiters(condition, 1);
            }
            // From here on it can be signalled; the call in which it begins to sleep comes after that.
            queue_in_futex(&self.core.tasks, &mut self.objects.conditions[condition.index()], id);
            if self.pay(id, calls * self.futex_ns()) {
                return Done::Busy;
            }
        }
        // It is among the last that came, so a crowd of waiters is not looked through.
        let is_waiting = || self.objects.conditions[condition.index()].iter().rev().any(|waiter| *waiter == id);
        if self.stage(id) == Stage::Effect {
            if is_waiting() {
                return self.block(id, WaitReason::Condition(condition.0));
            }
            self.futex_had_changed(cpu, id, WaitReason::Condition(condition.0));
        }
        // Woken, or signalled before it slept: the word had another value, so the call returned at once. It takes the mutex as one who has
        // waited for it, since others may (`__pthread_mutex_cond_lock`): its release wakes them.
        self.objects.locks[lock.index()].contended = true;
        if self.try_lock(cpu, id, lock) {
            if self.stage(id) == Stage::Relock {
                self.futex_had_changed(cpu, id, WaitReason::Lock(lock.0));
            }
            return Done::Next;
        }
        if self.stage(id) != Stage::Relock {
            // Another call, in which it sleeps until a release.
            self.core.tasks[id.index()].stage = Stage::Begin;
            let busy = self.pay(id, self.futex_ns());
            self.core.tasks[id.index()].stage = Stage::Relock;
            if busy {
                return Done::Busy;
            }
        }
        queue_in_futex(&self.core.tasks, &mut self.objects.locks[lock.index()].waiters, id);
        self.block(id, WaitReason::Lock(lock.0))
    }

    /// Signals the first of those who wait, in the order of the futex, at most so many. Who does not sleep yet is not woken: it will not sleep.
    fn wake_waiters(&mut self, condition: ConditionId, most: usize) {
        let waiters = &mut self.objects.conditions[condition.index()];
        let count = waiters.len().min(most);
        let reason = WaitReason::Condition(condition.0);
        let tasks = &self.core.tasks;
        let signalled = waiters.drain(..count);
        self.objects.to_wake.extend(signalled.filter(|waiter| tasks[waiter.index()].waiting_for == reason));
        self.in_futex_wake(self.word_of(reason), if most == 1 { 1 } else { ALL }, Self::wake_collected);
    }

    pub(super) fn signal_step(&mut self, id: TaskId, condition: ConditionId, all: bool) -> Done {
        if self.objects.conditions[condition.index()].is_empty() {
            return Done::Next;
        }
        if self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        self.wake_waiters(condition, if all { usize::MAX } else { 1 });
        Done::Next
    }

    pub(super) fn suspend_step(&mut self, id: TaskId) -> Done {
        if self.stage(id) == Stage::Woken {
            return Done::Next;
        }
        if self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        self.objects.suspended.push(id);
        self.block(id, WaitReason::Resume)
    }

    pub(super) fn resume_step(&mut self, id: TaskId, template: u32) -> Done {
        let tasks = &self.core.tasks;
        if !self.objects.suspended.iter().any(|task| tasks[task.index()].template.0 == template) {
            return Done::Next;
        }
        if self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        let (tasks, to_wake) = (&self.core.tasks, &mut self.objects.to_wake);
        self.objects.suspended.retain(|task| {
            let resumed = tasks[task.index()].template.0 == template;
            if resumed {
                to_wake.push(*task);
            }
            !resumed
        });
        if self.objects.realtime {
            self.objects.to_wake.sort_by_key(|task| futex_rank(tasks[task.index()].policy));
        }
        self.in_futex_wake(word_of_resume(template), ALL, Self::wake_collected);
        Done::Next
    }
}
