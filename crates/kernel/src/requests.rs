//! Semaphores, and requests: programs that whoever takes them from a semaphore carries out.
//!
//! A task that carries one out remembers where it was and goes on there when the request's program ends. Requests are taken in the order in
//! which they were added. Waiters are woken in the order of a futex ([`queue_in_futex`]), and one that is woken competes with tasks that come by.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{ProgramId, RecorderId};

use crate::engine::Engine;
use crate::hooks::ALL;
use crate::interpreter::{BY_TASK, Done};
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::sync::queue_in_futex;
use crate::task::{Stage, WaitReason};

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    pub(crate) fn post_step(&mut self, cpu: CpuId, id: TaskId, semaphore: usize) -> Done {
        if !self.objects.semaphores[semaphore].waiters.is_empty() && self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        let now_ns = self.local_now(cpu);
        let state = &mut self.objects.semaphores[semaphore];
        state.add(now_ns);
        if let Some(waiter) = state.waiters.pop_front() {
            self.in_futex_wake(self.word_of(WaitReason::Semaphore(semaphore as u32)), 1, |engine| {
                engine.wake(waiter, BY_TASK);
                1
            });
        }
        Done::Next
    }

    pub(crate) fn sem_wait_step(&mut self, cpu: CpuId, id: TaskId, semaphore: usize, clock: Option<u8>) -> Done {
        let Some(added_ns) = self.objects.semaphores[semaphore].take() else { return self.wait_for(id, semaphore) };
        self.futex_had_changed(cpu, id, WaitReason::Semaphore(semaphore as u32));
        if let Some(slot) = clock {
            self.core.tasks[id.index()].clocks[usize::from(slot)] = added_ns;
        }
        Done::Next
    }

    /// Nothing is there to be taken.
    fn wait_for(&mut self, id: TaskId, semaphore: usize) -> Done {
        if self.stage(id) == Stage::Woken {
            return self.retry(id);
        }
        if self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        queue_in_futex(&self.core.tasks, &mut self.objects.semaphores[semaphore].waiters, id);
        self.block(id, WaitReason::Semaphore(semaphore as u32))
    }

    pub(crate) fn submit_step(&mut self, cpu: CpuId, id: TaskId, semaphore: usize, program: ProgramId) -> Done {
        let done = self.post_step(cpu, id, semaphore);
        if matches!(done, Done::Next) {
            self.objects.semaphores[semaphore].requests.push_back(program);
        }
        done
    }

    pub(crate) fn work_step(
        &mut self,
        id: TaskId,
        semaphore: usize,
        requests: u64,
        recorder: Option<RecorderId>,
    ) -> Done {
        let state = &mut self.objects.semaphores[semaphore];
        if let Some(program) = state.requests.pop_front() {
            let added_ns = state.take().unwrap_or(0);
            state.taken += 1;
            if state.taken >= requests {
                // Nothing more comes: who waits goes on.
                self.objects.to_wake.extend(state.waiters.drain(..));
                self.in_futex_wake(self.word_of(WaitReason::Semaphore(semaphore as u32)), ALL, Self::wake_collected);
            }
            let task = &mut self.core.tasks[id.index()];
            task.caller = Some((task.program, task.pc));
            task.request = recorder.map(|recorder| (recorder, added_ns));
            (task.program, task.pc, task.stage) = (program, 0, Stage::Begin);
            return Done::Jumped;
        }
        if state.taken >= requests { Done::Next } else { self.wait_for(id, semaphore) }
    }

    /// Whether the program that ended was a request: then its task goes on behind the step that took it.
    pub(crate) fn has_returned(&mut self, cpu: CpuId, id: TaskId) -> bool {
        let task = &mut self.core.tasks[id.index()];
        let caller = task.caller.take();
        if let Some((program, pc)) = caller {
            (task.program, task.pc) = (program, pc);
            if let Some((recorder, since_ns)) = task.request.take() {
                self.record(recorder.index(), (since_ns, self.local_now(cpu).saturating_sub(since_ns)));
            }
        }
        caller.is_some()
    }
}
