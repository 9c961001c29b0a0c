//! Conditions, for which tasks wait until they are signalled, and tasks that suspend themselves until they are resumed.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{ConditionId, LockId};

use crate::engine::Engine;
use crate::hooks::{ALL, word_of_resume};
use crate::interpreter::{BY_TASK, Done};
use crate::memory::Memory;
use crate::scheduler::Scheduler;
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
        if self.stage(id) == Stage::Woken {
            if self.try_lock(cpu, id, lock) {
                return Done::Next;
            }
            let state = &mut self.objects.locks[lock.index()];
            state.contended = true;
            state.waiters.push_back(id);
            return self.block(id, WaitReason::Lock(lock.0));
        }
        if self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        if !self.give_up_lock(cpu, id, lock) {
            return Done::Next;
        }
        let shown = self.show_release(cpu, lock) && !self.objects.locks[lock.index()].wakes_all;
        if !shown && self.calls_after_release(lock) {
            self.wake_lock_waiters(lock);
        }
        if signal && let Some(waiter) = self.objects.conditions[condition.index()].pop_front() {
            self.in_futex_wake(self.word_of(WaitReason::Condition(condition.0)), 1, |engine| {
                engine.wake(waiter, BY_TASK);
                1
            });
        }
        self.objects.conditions[condition.index()].push_back(id);
        self.block(id, WaitReason::Condition(condition.0))
    }

    pub(super) fn signal_step(&mut self, id: TaskId, condition: ConditionId, all: bool) -> Done {
        if self.objects.conditions[condition.index()].is_empty() {
            return Done::Next;
        }
        if self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        let waiters = &mut self.objects.conditions[condition.index()];
        let count = if all { waiters.len() } else { waiters.len().min(1) };
        self.objects.to_wake.extend(waiters.drain(..count));
        let word = self.word_of(WaitReason::Condition(condition.0));
        self.in_futex_wake(word, if all { ALL } else { 1 }, Self::wake_collected);
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
        self.in_futex_wake(word_of_resume(template), ALL, Self::wake_collected);
        Done::Next
    }
}
