//! `schedule()`: a CPU's task leaves, the scheduler picks, the next one runs.

use warmcore_topology::CpuId;
use warmcore_trace::{EventKind, OverheadKind, PrevState, TaskId};

use crate::core::NeedResched;
use crate::engine::{Engine, Leave, Now};
use crate::event_queue::Slot;
use crate::memory::Memory;
use crate::scheduler::{Dequeue, Scheduler};
use crate::task::{Activity, State};

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// `schedule()`: the running task leaves or may be replaced, the scheduler picks, the next one runs.
    pub(crate) fn schedule(&mut self, cpu: CpuId, first: Leave) {
        let caller = self.core.this_cpu;
        self.go_to(cpu);
        let mut leave = first;
        loop {
            if self.core.error.is_some() || self.ended.is_some() {
                break;
            }
            self.switch(cpu, leave);
            if self.scores.is_some() {
                self.sample_scores(cpu);
            }
            if self.core.curr_is_idle(cpu) {
                break;
            }
            self.look_again(cpu, self.core.curr(cpu));
            if self.core.tasks[self.core.curr(cpu).index()].activity != Activity::Advance {
                self.arm_progress(cpu);
                break;
            }
            leave = match self.advance(cpu) {
                Now::Busy => {
                    self.arm_progress(cpu);
                    break;
                }
                Now::Leaves(leave) => leave,
                Now::ReschedPending => Leave::Preempted,
            };
        }
        self.core.this_cpu = caller;
    }

    fn switch(&mut self, cpu: CpuId, mut leave: Leave) {
        self.settle(cpu);
        self.core.cpus[cpu.index()].need_resched = NeedResched::No;
        self.core.queue.clear(Slot::Resched, cpu);
        let prev = self.core.curr(cpu);
        let mut prev_state = PrevState::Runnable;
        let mut runnable = !prev.is_idle();
        if prev.is_idle() {
            prev_state = PrevState::Idle;
        } else {
            if self.core.tasks[prev.index()].migration_disabled > 0 {
                self.pin(cpu, prev);
            }
            if let Some(lock) = self.core.tasks[prev.index()].kernel.spins_on {
                leave = self.interrupt_spin(prev, lock, leave);
            }
            match leave {
                Leave::Preempted => {}
                Leave::Yielded => self.scheduler.yield_task(&mut self.core, cpu, prev),
                Leave::Blocked => {
                    if self.core.watched.futexes {
                        self.enter_futex_wait(cpu, prev);
                    }
                    self.core.tasks[prev.index()].state = State::Blocked;
                    self.live -= usize::from(!self.core.is_hidden(prev));
                    prev_state = PrevState::Sleeping;
                    self.scheduler.dequeue(&mut self.core, cpu, prev, Dequeue::SLEEP);
                    runnable = false;
                }
                Leave::Exited => {
                    self.exit(cpu, prev);
                    prev_state = PrevState::Dead;
                    runnable = false;
                }
                Leave::Displaced => {
                    self.scheduler.stopper_comes(&mut self.core, cpu, prev);
                    self.scheduler.dequeue(&mut self.core, cpu, prev, Dequeue::MIGRATING);
                    runnable = false;
                }
            }
        }
        let before_ns = self.core.cpus[cpu.index()].stolen_ns;
        let next = self.scheduler.pick_next(&mut self.core, cpu, runnable.then_some(prev));
        self.pass_moves();
        if leave == Leave::Blocked {
            let picking_ns = self.core.cpus[cpu.index()].stolen_ns - before_ns;
            let switch_ns = self.core.machine.costs().context_switch_ns;
            self.core.tasks[prev.index()].on_cpu_until_ns = self.core.now_ns + picking_ns + switch_ns;
        }
        self.switch_to(cpu, prev, prev_state, runnable, next);
        if !prev.is_idle() {
            self.update_frequency(cpu);
        }
        if leave == Leave::Displaced && self.core.error.is_none() {
            self.place_displaced(prev);
        }
    }

    fn switch_to(&mut self, cpu: CpuId, prev: TaskId, prev_state: PrevState, runnable: bool, next: Option<TaskId>) {
        if let Some(next) = next
            && !self.pick_is_valid(cpu, prev, runnable, next)
        {
            return;
        }
        let next_id = next.unwrap_or(TaskId::IDLE);
        if next_id == prev {
            self.core.cpus[cpu.index()].need_resched = NeedResched::No;
            if std::mem::take(&mut self.core.cpus[cpu.index()].stopper_ran) {
                self.scheduler.enter_idle(&mut self.core, cpu);
            }
            return;
        }
        self.core.cpus[cpu.index()].stopper_ran = false;
        let now_ns = self.core.now_ns;
        if prev.is_idle() {
            self.leave_idle(cpu);
        } else {
            let queued = self.core.tasks[prev.index()].state == State::Running;
            self.switched_out(cpu, prev);
            if queued && runnable {
                self.core.tasks[prev.index()].state = State::Queued;
            }
            let stays = runnable || self.scheduler.holds(prev);
            self.scheduler.put_prev(&mut self.core, cpu, prev, stays);
            if prev_state == PrevState::Dead {
                self.memory.task_dead(prev);
                self.core.pages_of_dead_task(prev);
                self.scheduler.task_dead(&mut self.core, prev);
            }
        }
        // Charging who leaves may have asked for a reschedule: that was of this task, and is done (`__schedule`, after the pick).
        self.core.cpus[cpu.index()].need_resched = NeedResched::No;
        self.core.cpus[cpu.index()].curr = next_id;
        self.core.emit_on(cpu, EventKind::Switch { prev, prev_state, next: next_id });
        let state = &mut self.core.cpus[cpu.index()];
        match next {
            None => {
                self.core.queue.clear(Slot::Progress, cpu);
                state.busy_ns += now_ns - state.changed_ns;
                state.changed_ns = now_ns;
                state.stolen_ns = 0;
                self.core.cancel_hrtick(cpu);
                self.core.restart_tick(cpu);
                self.cpu_turned(cpu, false);
                self.scheduler.enter_idle(&mut self.core, cpu);
            }
            Some(next) => {
                state.settled_ns = now_ns;
                self.switched_in(cpu, next);
                self.scheduler.set_next(&mut self.core, cpu, next);
            }
        }
        self.scheduler.sched_switch(&mut self.core, cpu, (prev, prev_state), next_id);
        self.count_switch(cpu);
    }

    /// Ends a task's time on a CPU: its locks, counters, memory and CPU time hear of it.
    #[inline]
    pub(crate) fn switched_out(&mut self, cpu: CpuId, prev: TaskId) {
        if self.core.tasks[prev.index()].kernel.locks > 0 {
            self.owner_left(cpu, prev);
        }
        let now_ns = self.core.now_ns;
        if M::MODELLED {
            self.settle_siblings(cpu);
            self.read_counters(cpu);
        }
        if M::SPEEDS_VARY {
            self.memory.switch_out(now_ns, cpu);
        }
        let task = &mut self.core.tasks[prev.index()];
        let ran_ns = now_ns - task.switched_in_ns;
        task.cpu_time_ns += ran_ns;
        if prev.0 < self.core.hidden {
            self.core.cpus[cpu.index()].background_ns += ran_ns;
        }
    }

    fn switched_in(&mut self, cpu: CpuId, next: TaskId) {
        let now_ns = self.core.now_ns;
        let task = &mut self.core.tasks[next.index()];
        task.state = State::Running;
        task.switched_in_ns = now_ns;
        let last_ran = task.last_ran.replace(cpu);
        let has_worked = task.progress_ns > 0;
        if last_ran.is_none() {
            task.began_ns = now_ns;
        }
        let machine = self.core.machine;
        let is_first =
            last_ran.is_none_or(|from| !has_worked && from != cpu && machine.node_of(from) != machine.node_of(cpu));
        if is_first {
            self.core.touch_pages_first(last_ran, cpu, next);
        }
        self.core.charge(cpu, self.core.machine.costs().context_switch_ns, OverheadKind::Switch);
        if let Some(from) = last_ran
            && from != cpu
        {
            let cost = self.memory.migration_ns(next, from, cpu);
            self.core.charge(cpu, cost, OverheadKind::Migration);
        }
        if M::MODELLED {
            self.settle_siblings(cpu);
        }
        if M::SPEEDS_VARY {
            self.memory.switch_in(now_ns, cpu, next);
        }
        if M::MODELLED {
            if is_first {
                self.tell_homes();
            }
            if self.core.tasks[next.index()].is_spinning() {
                self.memory.set_spinning(now_ns, cpu, true);
            }
        }
    }

    /// The CPU stops being idle: accounts, tick, way out of the idle state.
    fn leave_idle(&mut self, cpu: CpuId) {
        self.scheduler.exit_idle(&mut self.core, cpu);
        let now_ns = self.core.now_ns;
        let state = &mut self.core.cpus[cpu.index()];
        state.idle_ns += now_ns - state.changed_ns;
        state.changed_ns = now_ns;
        let tick_stopped = std::mem::take(&mut state.tick_stopped);
        self.cpu_turned(cpu, true);
        if tick_stopped {
            let at = self.core.next_tick_ns(cpu);
            self.core.queue.set(Slot::Tick, cpu, at);
        }
    }

    fn pick_is_valid(&mut self, cpu: CpuId, prev: TaskId, prev_runnable: bool, next: TaskId) -> bool {
        let task = &self.core.tasks[next.index()];
        let valid = if next == prev {
            prev_runnable
        } else {
            task.state == State::Queued && task.cpu == cpu && self.core.may_run_on(next, cpu)
        };
        if !valid {
            let message = format!("picked task {} ({:?}, assigned to {}) on {cpu}", next.0, task.state, task.cpu);
            self.core.fail(message);
        }
        valid
    }
}
