//! What tasks do: executes the steps of programs.
//!
//! A step with a cost first takes its time on the CPU ([`Stage::Begin`] → [`Stage::Effect`]), then has its effect. The
//! cost of a system call right after work is folded into that work's time, which saves an event. A step that blocks
//! goes on in [`Stage::Woken`]; what that means depends on the step: a mutex is tried again, a sleep is over.
//!
//! Serving a list wakes its tasks at one instant, after the time of all the wake calls.

mod conditions;
mod group_changes;
mod mappings;

use warmcore_memory::dependent_load::dependent_load_ps;
use warmcore_topology::CpuId;
use warmcore_trace::{EventKind, TaskId};
use warmcore_workload::{Distribution, Drawn, Draws, ListId, Step, TimerMode};

use crate::core::NeedResched;
use crate::engine::{Engine, Leave, Now};
use crate::error::SimulationError;
use crate::event_queue::Class;
use crate::memory::{self, Memory, Side};
use crate::scheduler::{Change, Scheduler, WakeFlags};
use crate::task::{Activity, Stage, WaitReason};

pub(crate) use group_changes::GroupChange;
pub(crate) use mappings::{Fault, Mapping};

/// Steps at one instant after which a program is taken to loop for ever.
const STEP_LIMIT: u32 = 1_000_000;

/// What executing a step came to.
pub(crate) enum Done {
    /// Go on with the next step.
    Next,
    /// Look at the same step again, its stage has changed.
    Again,
    /// The program counter was set by the step.
    Jumped,
    /// Time has to pass first.
    Busy,
    /// The task leaves the CPU.
    Leaves(Leave),
}

pub(crate) const BY_TASK: WakeFlags = WakeFlags { sync: false, fork: false, by_task: true };

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Executes steps of the running task until one takes time or makes it leave.
    pub(crate) fn advance(&mut self, cpu: CpuId) -> Now {
        let id = self.core.curr(cpu);
        if self.core.is_hidden(id) {
            return match self.core.thread_number(id) {
                Some(number) => self.scheduler_thread_step(id, number),
                None if self.core.is_kernel_thread(id) => self.background_done(id),
                None => self.launcher_step(cpu, id),
            };
        }
        if self.core.tasks[id.index()].in_line {
            return self.wait_in_line(id);
        }
        if self.core.watched.futexes {
            self.leave_futex_wait(cpu, id);
        }
        let workload = self.workload;
        let mut steps_done = 0;
        loop {
            let task = &self.core.tasks[id.index()];
            let steps = &workload.programs[task.program.index()].steps;
            let Some(step) = steps.get(task.pc as usize) else {
                if self.has_returned(cpu, id) {
                    continue;
                }
                return match self.exit_step(id) {
                    Done::Leaves(leave) => Now::Leaves(leave),
                    _ => Now::Busy,
                };
            };
            let was = task.stage;
            match self.execute(cpu, id, step) {
                Done::Next => {
                    let task = &mut self.core.tasks[id.index()];
                    task.pc += 1;
                    task.stage = Stage::Begin;
                }
                Done::Again | Done::Jumped => {}
                Done::Busy => return Now::Busy,
                Done::Leaves(leave) => return Now::Leaves(leave),
            }
            if self.core.error.is_some() || self.ended.is_some() {
                return Now::ReschedPending;
            }
            if was != Stage::Begin {
                self.entered_kernel = true;
                if self.core.cpus[cpu.index()].need_resched != NeedResched::No && self.core.may_preempt(cpu) {
                    if !self.core.is_waking(cpu) {
                        return Now::ReschedPending;
                    }
                    self.core.resched_after_wakeups(cpu);
                }
            }
            steps_done += 1;
            if steps_done >= STEP_LIMIT {
                let (task, time_ns) = (self.core.task_name(id), self.core.now_ns);
                self.core.error.get_or_insert(SimulationError::NoProgress { task, steps: steps_done, time_ns });
            }
        }
    }

    fn execute(&mut self, cpu: CpuId, id: TaskId, step: &Step) -> Done {
        match step {
            Step::Run { work_ns } => self.busy(cpu, id, Activity::Work, *work_ns),
            Step::RunTime { cpu_ns } => self.busy(cpu, id, Activity::CpuTime, *cpu_ns),
            Step::Memory { bytes, .. } => {
                let work_ns = memory::touch_ns(*bytes);
                self.busy(cpu, id, Activity::Work, work_ns)
            }
            Step::Chase { hops, region_bytes } => {
                // It waits for memory, which capacity does not speed up, so it takes time and not work.
                let hop_ps = dependent_load_ps(self.core.machine, cpu, *region_bytes);
                self.busy(cpu, id, Activity::CpuTime, hops.saturating_mul(hop_ps).div_ceil(1_000))
            }
            Step::FirstTouch { bytes } => self.first_touch_step(cpu, id, *bytes),
            Step::Map { bytes } => self.map_step(cpu, id, *bytes),
            Step::IoRun { bytes } => {
                let work_ns = memory::null_write_ns(*bytes);
                self.busy(cpu, id, Activity::Work, work_ns)
            }
            Step::Sleep { duration_ns } => self.sleep_step(id, *duration_ns),
            Step::Draw { what, from } => {
                let task = &mut self.core.tasks[id.index()];
                if task.stage == Stage::Begin {
                    task.drawn_ns = task.draws.draw(from);
                }
                let ns = task.drawn_ns;
                match what {
                    Drawn::Work => self.busy(cpu, id, Activity::Work, ns),
                    Drawn::CpuTime => self.busy(cpu, id, Activity::CpuTime, ns),
                    Drawn::Sleep => self.sleep_step(id, ns),
                    Drawn::Arrival { slot } => self.arrival_step(id, usize::from(*slot), ns),
                }
            }
            Step::Timer { timer, period_ns, mode } => self.timer_step(id, timer.index(), *period_ns, *mode),
            Step::Lock(lock) => self.lock_step(cpu, id, *lock),
            Step::LockShared(lock) => self.sleeping_lock_step(cpu, id, *lock, true),
            Step::Unlock(lock) => self.unlock_step(cpu, id, *lock),
            Step::Wait { condition, lock } => self.wait_step(cpu, id, *condition, *lock, false),
            Step::SignalAndWait { condition, lock } => self.wait_step(cpu, id, *condition, *lock, true),
            Step::Signal(condition) => self.signal_step(id, *condition, false),
            Step::Broadcast(condition) => self.signal_step(id, *condition, true),
            Step::Barrier(barrier) => self.barrier_step(cpu, id, *barrier),
            Step::Suspend => self.suspend_step(id),
            Step::Resume(template) => self.resume_step(id, template.0),
            Step::SemPost(semaphore) => self.post_step(cpu, id, semaphore.index()),
            Step::Submit { semaphore, program } => self.submit_step(cpu, id, semaphore.index(), *program),
            Step::Work { semaphore, requests, recorder } => self.work_step(id, semaphore.index(), *requests, *recorder),
            Step::SemWait(semaphore) => self.sem_wait_step(cpu, id, semaphore.index(), None),
            Step::SemTake { semaphore, slot } => self.sem_wait_step(cpu, id, semaphore.index(), Some(*slot)),
            Step::Send { channel, bytes } => self.send_step(cpu, id, *channel, u64::from(*bytes)),
            Step::Receive { channel, bytes } => self.receive_step(cpu, id, *channel, u64::from(*bytes)),
            Step::Enlist { list, recorder } => self.enlist_step(cpu, id, *list, recorder.map(|id| id.index())),
            Step::Serve(list) => self.serve_step(id, *list),
            Step::Fork(template) => {
                if self.pay(id, self.core.machine.costs().fork_ns) {
                    return Done::Busy;
                }
                let instance = self.instances[template.index()];
                self.create(*template, instance, Some(id), None);
                Done::Next
            }
            Step::Join { count } => self.join_step(id, *count),
            _ => self.execute_own(cpu, id, step),
        }
    }

    /// Steps that concern only the task itself.
    fn execute_own(&mut self, cpu: CpuId, id: TaskId, step: &Step) -> Done {
        let costs = self.core.machine.costs();
        match step {
            Step::Yield => {
                if self.pay(id, costs.syscall_ns) {
                    return Done::Busy;
                }
                self.step_over(id);
                Done::Leaves(Leave::Yielded)
            }
            Step::SetAffinity(_) => {
                if self.pay(id, costs.syscall_ns) {
                    return Done::Busy;
                }
                let task = &self.core.tasks[id.index()];
                let restriction = self.setup.step_restrictions[task.program.index()][task.pc as usize];
                self.step_over(id);
                match self.set_own_affinity(cpu, id, restriction) {
                    Some(leave) => Done::Leaves(leave),
                    None => Done::Jumped,
                }
            }
            Step::MigrateDisable => {
                self.disable_migration(id);
                Done::Next
            }
            Step::MigrateEnable => {
                self.step_over(id);
                match self.enable_migration(cpu, id) {
                    Some(leave) => Done::Leaves(leave),
                    None => Done::Jumped,
                }
            }
            // Noted when the task blocks.
            Step::IoWait => Done::Next,
            Step::Kernel(step) => self.kernel_step(cpu, id, *step),
            Step::SetUtilClamp(clamp) => self.clamp_step(cpu, id, *clamp),
            Step::SetGroup(group) => self.group_change_step(cpu, id, *group),
            Step::SetNice(_) | Step::SetPolicy(_) | Step::SetSlice { .. } => {
                if self.pay(id, costs.syscall_ns) {
                    return Done::Busy;
                }
                if let Step::SetPolicy(policy) = step
                    && !self.scheduler.permits(&mut self.core, id, Change::Policy(*policy))
                {
                    return Done::Next;
                }
                let task = &mut self.core.tasks[id.index()];
                let before = (task.nice, task.policy, task.slice_ns);
                match step {
                    Step::SetNice(nice) => task.nice = *nice,
                    Step::SetPolicy(policy) => task.policy = *policy,
                    Step::SetSlice { slice_ns } => task.slice_ns = *slice_ns,
                    _ => {}
                }
                // What stays as it is takes nobody off its queue (`__sched_setscheduler`, `set_user_nice`).
                if before != (task.nice, task.policy, task.slice_ns) {
                    self.settle(cpu);
                    self.core.restart_tick(cpu);
                    self.scheduler.attributes_changed(&mut self.core, id);
                }
                Done::Next
            }
            Step::StartClock { slot } => {
                let now_ns = self.local_now(cpu);
                self.core.tasks[id.index()].clocks[usize::from(*slot)] = now_ns;
                Done::Next
            }
            Step::RecordClock { slot, recorder } => {
                let started_ns = self.core.tasks[id.index()].clocks[usize::from(*slot)];
                self.record(recorder.index(), (started_ns, self.local_now(cpu).saturating_sub(started_ns)));
                Done::Next
            }
            Step::RecordSince { since_ns, recorder } => {
                self.record(recorder.index(), (*since_ns, self.local_now(cpu).saturating_sub(*since_ns)));
                Done::Next
            }
            Step::Phase(phase) => {
                self.core.emit(EventKind::Phase { task: id, phase: *phase });
                if M::MODELLED {
                    self.settle(cpu);
                    self.settle_siblings(cpu);
                    self.memory.begin_phase(self.core.now_ns, id, *phase);
                }
                Done::Next
            }
            Step::LoopStart { times, end } => {
                let task = &mut self.core.tasks[id.index()];
                if *times == Some(0) {
                    task.pc = end + 1;
                } else {
                    task.loops[usize::from(task.loop_depth)] = times.unwrap_or(u64::MAX);
                    task.loop_depth += 1;
                    task.pc += 1;
                }
                Done::Jumped
            }
            Step::LoopEnd { start } => {
                let task = &mut self.core.tasks[id.index()];
                let left = &mut task.loops[usize::from(task.loop_depth) - 1];
                if *left != u64::MAX {
                    *left -= 1;
                }
                if *left == 0 {
                    task.loop_depth -= 1;
                    task.pc += 1;
                } else {
                    task.pc = start + 1;
                }
                Done::Jumped
            }
            Step::Exit => self.exit_step(id),
            Step::Stop => {
                self.ended = Some(warmcore_trace::End::Stopped);
                Done::Next
            }
            other => {
                self.program_error(id, format!("step {other:?} is not one of the task's own"));
                Done::Next
            }
        }
    }

    /// The running task exits: by a step that says so, or at the end of its program.
    fn exit_step(&mut self, id: TaskId) -> Done {
        if self.pay(id, self.core.machine.costs().exit_ns) {
            self.core.tasks[id.index()].exiting = true;
            return Done::Busy;
        }
        Done::Leaves(Leave::Exited)
    }

    /// Time as the running task sees it: kernel work that is charged but not yet done comes first.
    pub(crate) fn local_now(&self, cpu: CpuId) -> u64 {
        self.core.now_ns + self.core.cpus[cpu.index()].stolen_ns
    }

    pub(crate) fn step_over(&mut self, id: TaskId) {
        let task = &mut self.core.tasks[id.index()];
        task.pc += 1;
        task.stage = Stage::Begin;
        task.activity = Activity::Advance;
    }

    pub(crate) fn program_error(&mut self, id: TaskId, message: String) {
        let (task, time_ns) = (self.core.task_name(id), self.core.now_ns);
        self.core.error.get_or_insert(SimulationError::Program { task, time_ns, message });
    }

    /// Starts an activity that takes time; the next step begins when it is over. The cost of a system call that
    /// follows at once is added to its time.
    fn busy(&mut self, _cpu: CpuId, id: TaskId, activity: Activity, remaining_ns: u64) -> Done {
        let (program, next) = {
            let task = &self.core.tasks[id.index()];
            (task.program.index(), task.pc as usize + 1)
        };
        let syscall_ns = self.workload.programs[program].steps.get(next).map_or(0, |step| self.prepaid_cost(step));
        self.step_over(id);
        let task = &mut self.core.tasks[id.index()];
        if remaining_ns == 0 && syscall_ns == 0 {
            return Done::Jumped;
        }
        task.activity = activity;
        task.remaining_ns = remaining_ns;
        task.syscall_ns = syscall_ns;
        if syscall_ns != 0 {
            task.stage = Stage::Effect;
        }
        Done::Busy
    }

    /// Cost of a step that always pays it, whatever the state of the objects.
    fn prepaid_cost(&self, step: &Step) -> u64 {
        let costs = self.core.machine.costs();
        match step {
            Step::Sleep { .. } => costs.timer_ns,
            Step::Send { channel, bytes } if !M::MODELLED => self.message_ns(*channel, Side::Sender, u64::from(*bytes)),
            Step::Receive { channel, bytes } if !M::MODELLED => {
                self.message_ns(*channel, Side::Receiver, u64::from(*bytes))
            }
            Step::Yield => costs.syscall_ns,
            _ => 0,
        }
    }

    /// Whether the step's cost has still to be paid. From now on it counts as paid.
    pub(crate) fn owes(&mut self, id: TaskId, cost_ns: u64) -> bool {
        let task = &mut self.core.tasks[id.index()];
        if task.stage != Stage::Begin {
            return false;
        }
        task.stage = Stage::Effect;
        cost_ns != 0
    }

    /// Whether the step's cost has still to be paid; if so the task is busy with it.
    pub(crate) fn pay(&mut self, id: TaskId, cost_ns: u64) -> bool {
        let owes = self.owes(id, cost_ns);
        if owes {
            let task = &mut self.core.tasks[id.index()];
            (task.activity, task.syscall_ns) = (Activity::Syscall, cost_ns);
        }
        owes
    }

    pub(crate) fn futex_ns(&self) -> u64 {
        self.core.machine.costs().futex_ns
    }

    /// The running task blocks.
    pub(crate) fn block(&mut self, id: TaskId, reason: WaitReason) -> Done {
        let task = &mut self.core.tasks[id.index()];
        if task.kernel.preempt_count > 0 {
            let message =
                "would sleep with preemption disabled (scheduling while atomic); put a \"preempt_enable\" before";
            self.program_error(id, message.to_owned());
            return Done::Next;
        }
        task.waiting_for = reason;
        task.stage = Stage::Woken;
        task.activity = Activity::Advance;
        self.note_io_wait(id);
        Done::Leaves(Leave::Blocked)
    }

    /// Lets the step be tried from its beginning.
    pub(crate) fn retry(&mut self, id: TaskId) -> Done {
        self.core.tasks[id.index()].stage = Stage::Begin;
        Done::Again
    }

    pub(crate) fn stage(&self, id: TaskId) -> Stage {
        self.core.tasks[id.index()].stage
    }

    fn sleep_step(&mut self, id: TaskId, duration_ns: u64) -> Done {
        if self.stage(id) == Stage::Woken {
            return Done::Next;
        }
        if self.pay(id, self.core.machine.costs().timer_ns) {
            return Done::Busy;
        }
        self.sleep_until(id, self.core.now_ns + duration_ns)
    }

    pub(crate) fn sleep_until(&mut self, id: TaskId, at_ns: u64) -> Done {
        let late_ns = self.core.machine.costs().timer_late_ns + self.lateness_ns(id);
        let task = &mut self.core.tasks[id.index()];
        // Timers of real-time tasks have no slack (`hrtimer_nanosleep`).
        let slack_ns = match task.timer_slack_ns {
            _ if task.policy.is_realtime() => 0,
            own => own.unwrap_or(self.core.parameters.timer_slack_ns),
        };
        let at = at_ns + slack_ns + late_ns;
        task.timer_generation = task.timer_generation.wrapping_add(1);
        task.slept_from_ns = self.core.now_ns;
        let generation = task.timer_generation;
        self.live += 1;
        self.core.queue.push(at, Class::Timer, self.core.this_cpu, id.0, generation);
        if let Some(clocks) = &mut self.core.clocks {
            clocks.timer_armed(self.core.now_ns, self.core.this_cpu, at);
        }
        self.block(id, WaitReason::Time)
    }

    /// How much later than the machine says the next timer of a task runs out, the same under every scheduler.
    #[inline]
    fn lateness_ns(&self, id: TaskId) -> u64 {
        match self.core.parameters.timer_late_p99_ns {
            0 => 0,
            p99_ns => self.drawn_lateness_ns(id, p99_ns),
        }
    }

    #[cold]
    fn drawn_lateness_ns(&self, id: TaskId, p99_ns: u64) -> u64 {
        /// ln 100: the 99th percentile of an exponential distribution is so many means.
        const MEANS: f64 = 4.605_170;
        let task = &self.core.tasks[id.index()];
        let seed = self.setup.seed.wrapping_add((u64::from(task.timer_generation) + 1) << 32);
        let mean_ns = (p99_ns as f64 / MEANS) as u64;
        Draws::new(seed, task.template.0, task.instance).draw(&Distribution::Exponential { mean_ns })
    }

    fn arrival_step(&mut self, id: TaskId, clock: usize, drawn_ns: u64) -> Done {
        if self.stage(id) == Stage::Woken {
            return Done::Next;
        }
        if self.pay(id, self.core.machine.costs().timer_ns) {
            return Done::Busy;
        }
        let clock_ns = &mut self.core.tasks[id.index()].clocks[clock];
        *clock_ns += drawn_ns;
        let due_ns = *clock_ns;
        if due_ns > self.core.now_ns { self.sleep_until(id, due_ns) } else { Done::Next }
    }

    fn timer_step(&mut self, id: TaskId, timer: usize, period_ns: u64, mode: TimerMode) -> Done {
        if self.stage(id) == Stage::Woken {
            return Done::Next;
        }
        if self.pay(id, self.core.machine.costs().timer_ns) {
            return Done::Busy;
        }
        let now_ns = self.core.now_ns;
        let began_ns = self.core.tasks[id.index()].began_ns;
        let expiry = self.objects.timers[timer].next_of(id, began_ns);
        *expiry += period_ns;
        if *expiry > now_ns {
            let at_ns = *expiry;
            return self.sleep_until(id, at_ns);
        }
        if mode == TimerMode::Relative {
            *expiry = now_ns;
        }
        Done::Next
    }

    /// A sample of a recorder, if what it measures began in the window, as with metrics of events. One from before says that the recorder
    /// collects since then, too.
    pub(crate) fn record(&mut self, recorder: usize, (began_ns, length_ns): (u64, u64)) {
        let since_ns = &mut self.recorders_since_ns[recorder];
        *since_ns = began_ns.min(*since_ns);
        if self.workload.warm_up_ns.is_none_or(|warm_up_ns| warm_up_ns == 0 || began_ns > warm_up_ns) {
            self.recorders[recorder].record(length_ns);
        }
    }

    fn enlist_step(&mut self, cpu: CpuId, id: TaskId, list: ListId, recorder: Option<usize>) -> Done {
        if self.stage(id) == Stage::Woken {
            if let Some(recorder) = recorder {
                let served_ns = self.core.tasks[id.index()].served_ns;
                self.record(recorder, (served_ns, self.local_now(cpu) - served_ns));
            }
            return Done::Next;
        }
        if self.pay(id, self.futex_ns()) {
            return Done::Busy;
        }
        let state = &mut self.objects.lists[list.index()];
        state.entries.push(id);
        if let Some(server) = state.server.take() {
            self.wake_parked(server);
        }
        self.block(id, WaitReason::ListServed(list.0))
    }

    fn serve_step(&mut self, id: TaskId, list: ListId) -> Done {
        let count = self.objects.lists[list.index()].entries.len() as u64;
        if count == 0 {
            if self.stage(id) == Stage::Woken {
                return self.retry(id);
            }
            if self.pay(id, self.futex_ns()) {
                return Done::Busy;
            }
            self.objects.lists[list.index()].server = Some(id);
            return self.block(id, WaitReason::ListEntry(list.0));
        }
        if self.stage(id) == Stage::Woken {
            return self.retry(id);
        }
        if self.pay(id, count * self.futex_ns()) {
            return Done::Busy;
        }
        // A task that enlisted and is still on its way to sleep cannot be woken yet: serve what sleeps.
        let now_ns = self.core.now_ns;
        let mut entries = std::mem::take(&mut self.objects.lists[list.index()].entries);
        for task in entries.drain(..) {
            self.core.tasks[task.index()].served_ns = now_ns;
            self.objects.to_wake.push(task);
        }
        self.objects.lists[list.index()].entries = entries;
        self.wake_each_collected();
        Done::Next
    }

    fn join_step(&mut self, id: TaskId, count: u32) -> Done {
        let task = &mut self.core.tasks[id.index()];
        if task.exited_children >= count {
            task.exited_children -= count;
            return Done::Next;
        }
        if task.stage == Stage::Woken {
            return self.retry(id);
        }
        if self.pay(id, self.core.machine.costs().syscall_ns) {
            return Done::Busy;
        }
        self.block(id, WaitReason::Join)
    }
}
