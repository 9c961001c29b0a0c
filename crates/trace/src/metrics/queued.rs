//! Who is on the queue of a CPU, and who is not because of a quota or reservation, while events stream by.

use warmcore_topology::CpuId;

use super::counters::{Checked, Counters};
use super::task::State;
use crate::{Event, TaskId, Throttler};

impl Counters {
    /// Puts a task on the queue of a CPU.
    pub(super) fn enqueue(&mut self, now_ns: u64, task: TaskId, to: CpuId) {
        let state = &mut self.tasks[task.index()];
        state.state = State::Queued;
        state.cpu = to.0;
        if state.throttled.is_some() {
            return;
        }
        let cpu = &mut self.cpus[to.index()];
        cpu.settle_length(now_ns);
        if cpu.counts_as_idle() && cpu.queued == 0 {
            cpu.starting = task;
        } else {
            self.work.waiter_added(now_ns, state.class);
        }
        cpu.queued += 1;
        cpu.length_max = cpu.length_max.max(cpu.length());
        self.settle_idle(now_ns, to);
    }

    /// Takes a task off the queue it is on, if it is on one and would run.
    pub(super) fn dequeue_waiting(&mut self, now_ns: u64, task: TaskId) {
        if self.tasks[task.index()].is_waiting() {
            self.dequeue(now_ns, task);
        }
    }

    /// **Throttled**: a quota or reservation keeps the task from running, or lets it run again. Meanwhile it is in no queue, waits for no CPU, and no
    /// CPU that is idle violates work conservation because of it; its wait begins when it may run, if it does not [count](super::task::TaskState::wait_counts).
    #[cold]
    pub(super) fn throttle(&mut self, event: &Event, task: TaskId, throttled: Option<Throttler>) -> Checked<()> {
        let index = self.known_task(event, task)?;
        if self.tasks[index].throttled.is_some() == throttled.is_some() {
            return Ok(());
        }
        if throttled.is_some() {
            self.dequeue_waiting(event.time_ns, task);
        }
        let state = &mut self.tasks[index];
        state.throttled_wait_ns = state.throttled_wait_ns(event.time_ns);
        state.throttled_ns = state.throttled_ns(event.time_ns);
        state.throttled_since_ns = event.time_ns;
        let counts = state.wait_counts();
        state.throttled = throttled;
        if throttled.is_some() {
            return Ok(());
        }
        if !counts && matches!(state.state, State::New | State::Waking | State::Queued) {
            state.since_ns = event.time_ns;
        }
        if state.state == State::Queued {
            let cpu = CpuId(state.cpu);
            self.enqueue(event.time_ns, task, cpu);
        }
        Ok(())
    }

    /// Takes a task off the queue it is on, other than to run it there.
    pub(super) fn dequeue(&mut self, now_ns: u64, task: TaskId) {
        let state = &self.tasks[task.index()];
        let from = CpuId(state.cpu);
        let cpu = &mut self.cpus[from.index()];
        cpu.settle_length(now_ns);
        cpu.queued -= 1;
        if cpu.starting == task {
            cpu.starting = TaskId::IDLE;
            self.settle_idle(now_ns, from);
        } else {
            self.work.waiter_removed(now_ns, state.class);
        }
    }

    /// Tells work conservation when a CPU has become idle or busy.
    #[inline]
    pub(super) fn settle_idle(&mut self, now_ns: u64, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        let idle = state.counts_as_idle();
        if idle != state.counted_idle {
            state.counted_idle = idle;
            self.work.cpu_changed(now_ns, cpu, idle);
        }
    }
}
