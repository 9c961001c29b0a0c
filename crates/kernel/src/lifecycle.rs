//! Wakeups, creation, exit and displacement of tasks (`try_to_wake_up`, `kernel_clone`, `do_exit`,
//! `set_cpus_allowed`).

use warmcore_topology::CpuId;
use warmcore_trace::{EventKind, MigrationKind, OverheadKind, PlaceReason, SearchStep, TaskId};
use warmcore_workload::{Draws, TaskTemplateId, UtilClamp};

use crate::engine::{Engine, Leave};
use crate::error::SimulationError;
use crate::event_queue::Class;
use crate::hooks::Hook;
use crate::memory::Memory;
use crate::scheduler::{Dequeue, Enqueue, LeftWakeups, Scheduler, WakeFlags};
use crate::task::{State, Task, WaitReason};

/// More tasks than this are a fork loop.
const TASK_LIMIT: usize = 1_000_000;

/// Lines of a sleeping task that a wakeup reads or writes: wait queue entry, state and its lock, entity (assumed).
const TASK_LINES: u32 = 4;
/// Lines of the run queue that a waker of the same LLC adds a task to: lock, counters, tree, the running task (assumed).
const RUN_QUEUE_LINES: u32 = 5;
/// Lines of a request to another CPU to queue the task itself (assumed). What that CPU needs is in `ipi_ns`.
const REQUEST_LINES: u32 = 2;

/// A wakeup that is left to the task's CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftWakeup {
    task: TaskId,
    /// From when on that CPU can make it: it was sent, and the CPU has switched away from the task.
    sent_ns: u64,
    /// When an interrupt that is sent for it alone is answered, no earlier.
    arrives_ns: u64,
    migrated: bool,
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// `try_to_wake_up` from the present CPU. What it takes comes after the task is queued: rest of the call, return from the
    /// interrupt and way into `schedule()` are time that a preempted task still uses, beside one that is placed already. This CPU
    /// reschedules when it is over; an interrupt to another CPU is sent when what is known of it so far is.
    pub(crate) fn wake(&mut self, task: TaskId, flags: WakeFlags) {
        let this_cpu = self.core.this_cpu;
        self.core.waking_since =
            Some((this_cpu, self.core.cpus[this_cpu.index()].overhead_ns[OverheadKind::Wakeup as usize]));
        self.queue_wakee(task, flags);
        let duration_ns = self.core.wakeup_so_far_ns();
        self.core.waking_since = None;
        self.core.advance_clock_task(duration_ns);
    }

    fn queue_wakee(&mut self, task: TaskId, flags: WakeFlags) {
        let prev = self.core.tasks[task.index()].cpu;
        debug_assert_eq!(self.core.tasks[task.index()].state, State::Blocked);
        self.live += usize::from(!self.core.is_hidden(task));
        let this_cpu = self.core.this_cpu;
        let waker = if flags.by_task { self.core.cpus[this_cpu.index()].curr } else { TaskId::IDLE };
        self.core.emit(EventKind::Waking { task, target_cpu: prev, waker });
        if self.core.watched.wakeups {
            self.pass(Hook::SchedWaking { task, by_task: flags.by_task });
        }
        self.core.charge(this_cpu, self.core.machine.costs().wakeup_ns, OverheadKind::Wakeup);
        if self.scheduler.holds(task) {
            // Still queued where it slept: no CPU selection (`ttwu_runnable`).
            self.tell_place(task, SearchStep::StillQueued);
            self.activate(prev, task, Enqueue::DELAYED, flags);
            self.leave_forbidden_cpu(task);
            return;
        }
        let on_cpu_ns = self.core.tasks[task.index()].on_cpu_until_ns.saturating_sub(self.core.now_ns);
        if on_cpu_ns > 0 && prev != this_cpu {
            // Its CPU is still switching away from it (`p->on_cpu`), and queues it again (`ttwu_queue_wakelist` before
            // `select_task_rq`) or, if it shares the waker's LLC and runs another task by now, is waited for. Older kernels wait always.
            if self.scheduler.left_wakeups() == LeftWakeups::OtherCachesAndIdle && self.leaves_wakeup(task, prev) {
                self.tell_place(task, SearchStep::StillSwitching);
                let ipi_ns = self.core.machine.costs().ipi_ns[self.core.machine.relation(this_cpu, prev)];
                self.queue_by_interrupt(task, (prev, prev), ipi_ns.max(on_cpu_ns));
                return;
            }
            self.core.charge(this_cpu, on_cpu_ns, OverheadKind::Wakeup);
        }
        let cpu = self.select_cpu(task, prev, flags);
        self.core.set_task_cpu(task, cpu, MigrationKind::Wakeup);
        self.pass_moves();
        if cpu != this_cpu && self.leaves_wakeup(task, cpu) {
            self.queue_by_interrupt(task, (prev, cpu), self.core.ipi_delay(cpu));
            return;
        }
        if M::MODELLED {
            self.charge_wakeup_lines((prev, cpu), RUN_QUEUE_LINES);
        }
        self.activate(cpu, task, Enqueue::WAKEUP | Enqueue::MIGRATED.only_if(cpu != prev), flags);
    }

    /// `__ttwu_queue_wakelist`: `cpu`, which reacts so much later, is to queue the task.
    fn queue_by_interrupt(&mut self, task: TaskId, (prev, cpu): (CpuId, CpuId), delay_ns: u64) {
        if M::MODELLED {
            self.charge_wakeup_lines((prev, cpu), REQUEST_LINES);
        }
        self.core.tasks[task.index()].state = State::Waking;
        self.core.cpus[cpu.index()].ttwu_pending += 1;
        self.scheduler.ttwu_pending_changed(&mut self.core, cpu);
        self.scheduler.wakeup_sent(&mut self.core, cpu, task);
        let so_far_ns = self.core.now_ns + self.core.wakeup_so_far_ns();
        let gone_ns = if cpu == prev { self.core.tasks[task.index()].on_cpu_until_ns } else { 0 };
        let sent_ns = so_far_ns.max(gone_ns);
        let arrives_ns = sent_ns.max(so_far_ns + delay_ns);
        let list = &mut self.left_wakeups[cpu.index()];
        // An interrupt that is under way takes this one along.
        if list.is_empty() {
            self.core.queue.push(arrives_ns, Class::WakeIpi, cpu, 0, 0);
        }
        list.push_back(LeftWakeup { task, sent_ns, arrives_ns, migrated: cpu != prev });
    }

    /// `sched_ttwu_pending`: the CPU queues all tasks whose wakeup has been left to it by now, in order, and looks then whom to run.
    pub(crate) fn take_left_wakeups(&mut self, cpu: CpuId) {
        let now_ns = self.core.now_ns;
        for _ in 0..self.left_wakeups[cpu.index()].len() {
            let Some(left) = self.left_wakeups[cpu.index()].pop_front() else { break };
            if left.sent_ns > now_ns {
                self.left_wakeups[cpu.index()].push_back(left);
                continue;
            }
            self.core.cpus[cpu.index()].ttwu_pending -= 1;
            self.scheduler.ttwu_pending_changed(&mut self.core, cpu);
            let flags = Enqueue::WAKEUP | Enqueue::MIGRATED.only_if(left.migrated);
            self.activate(cpu, left.task, flags, WakeFlags::default());
            self.leave_forbidden_cpu(left.task);
        }
        if let Some(next_ns) = self.left_wakeups[cpu.index()].iter().map(|left| left.arrives_ns).min() {
            self.core.queue.push(next_ns.max(now_ns), Class::WakeIpi, cpu, 0, 0);
        }
    }

    /// Charges a waker with the lines that `try_to_wake_up` needs and others wrote last: those of the task, from where it slept,
    /// and those of the run queue that it joins. `wakeup_ns` is the time of the instructions.
    #[inline]
    fn charge_wakeup_lines(&mut self, (prev, cpu): (CpuId, CpuId), queue_lines: u32) {
        let this_cpu = self.core.this_cpu;
        let task_ns = self.memory.lines_ns(prev, this_cpu, TASK_LINES);
        let queue_ns = self.memory.lines_ns(cpu, this_cpu, queue_lines);
        self.core.charge(this_cpu, task_ns + queue_ns, OverheadKind::Wakeup);
    }

    /// `ttwu_queue_cond`: whether the waker leaves it to another CPU to queue the task, as it does if that is of another LLC or idle.
    fn leaves_wakeup(&self, task: TaskId, cpu: CpuId) -> bool {
        let machine = self.core.machine;
        let other_cache = !machine.coregroup(cpu).contains(self.core.this_cpu);
        self.core.parameters.ttwu_queue
            && self.scheduler.allows_left_wakeups(task)
            && match self.scheduler.left_wakeups() {
                LeftWakeups::None => false,
                LeftWakeups::OtherCaches => other_cache,
                LeftWakeups::OtherCachesAndIdle => other_cache || self.core.curr_is_idle(cpu),
            }
    }

    #[inline]
    fn select_cpu(&mut self, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        // `select_task_rq` asks no class where `nr_cpus_allowed` is 1, be it that the task is bound or that there is no other CPU.
        let allowed = self.core.allowed(task);
        if (self.core.is_restricted(task) || self.core.cpus.len() == 1) && allowed.len() <= 1 {
            let Some(only) = allowed.first() else {
                self.tell_place(task, SearchStep::FallbackCpu);
                return self.fallback_cpu(task, prev);
            };
            self.tell_place(task, SearchStep::OnlyCpu);
            return only;
        }
        let cpu = self.scheduler.select_cpu(&mut self.core, task, prev, flags);
        if self.core.may_run_on(task, cpu) {
            return cpu;
        }
        // The kernel falls back too (`select_fallback_rq`): a hint is not an order.
        self.tell_place(task, SearchStep::FallbackCpu);
        self.fallback_cpu(task, prev)
    }

    /// The kernel itself places a task.
    fn tell_place(&mut self, task: TaskId, step: SearchStep) {
        self.core.tasks[task.index()].place_reason = Some(PlaceReason::without_search(step));
    }

    /// First allowed CPU, searching the node of the old one first (`select_fallback_rq`). A task that has none gets other CPUs.
    pub(crate) fn fallback_cpu(&mut self, task: TaskId, prev: CpuId) -> CpuId {
        if self.core.allowed(task).is_empty() {
            self.widen(task);
        }
        let allowed = self.core.allowed(task);
        let near = allowed.intersection(self.core.machine.cpus_of_node(self.core.machine.node_of(prev)));
        near.first().or_else(|| allowed.first()).expect("some CPU is active")
    }

    /// The task becomes runnable on `cpu`.
    #[inline]
    pub(crate) fn activate(&mut self, cpu: CpuId, task: TaskId, enqueue: Enqueue, flags: WakeFlags) {
        let state = &mut self.core.tasks[task.index()];
        state.state = State::Queued;
        state.waiting_for = WaitReason::None;
        let reason = state.place_reason.take();
        self.scheduler.enqueue(&mut self.core, cpu, task, enqueue);
        self.core.restart_tick(cpu);
        self.update_frequency(cpu);
        self.core.emit_on(cpu, EventKind::Wakeup { task, reason });
        if self.core.watched.wakeups {
            let by_task = flags.by_task;
            self.pass(if flags.fork { Hook::SchedWakeupNew { task } } else { Hook::SchedWakeup { task, by_task } });
        }
        self.scheduler.check_preempt(&mut self.core, cpu, task, flags);
        self.pass_moves();
    }

    /// The launcher creates a task.
    pub(crate) fn start(&mut self, entry: u32) {
        let start = self.setup.starts[entry as usize];
        self.live -= 1;
        self.alive -= 1;
        let cpu = self.core.this_cpu;
        self.core.launcher = Some(cpu);
        self.scheduler.ttwu_pending_changed(&mut self.core, cpu);
        self.create(TaskTemplateId(start.template), start.instance, None, self.launcher_of(entry));
        self.core.launcher = None;
        self.scheduler.ttwu_pending_changed(&mut self.core, cpu);
    }

    /// Creates a task from a template and places it: one that `parent` forks, or that a launcher does, which may exist.
    pub(crate) fn create(
        &mut self,
        template: TaskTemplateId,
        instance: u32,
        parent: Option<TaskId>,
        launcher: Option<TaskId>,
    ) {
        if self.core.tasks.len() >= TASK_LIMIT {
            self.core.error.get_or_insert(SimulationError::TooManyTasks { limit: TASK_LIMIT });
            return;
        }
        let task = TaskId(self.core.tasks.len() as u32);
        let cpu = self.core.this_cpu;
        let state = Task { launcher, ..self.new_task(template, instance, parent, cpu) };
        let restriction = state.restriction;
        self.core.process_threads[state.process as usize] += 1;
        self.instances[template.index()] += 1;
        self.core.tasks.push(state);
        if let Err(error) = self.memory.task_created(template.0) {
            self.core.error.get_or_insert(error);
            return;
        }
        self.core.pages_of_new_task(task);
        let clamp = self.workload.tasks[template.index()].util_clamp;
        if !clamp.is_none() && !self.ask_for_clamp(task, clamp) {
            return;
        }
        self.alive += 1;
        self.live += 1;
        self.core.emit(EventKind::Fork { parent: parent.unwrap_or(TaskId::IDLE), child: task });
        if restriction != 0 {
            self.core.emit(EventKind::Affinity { task, restriction });
        }
        self.scheduler.task_fork(&mut self.core, task, parent);
        if self.core.watched.processes {
            let parent = parent.or(launcher).unwrap_or(TaskId::IDLE);
            self.pass(Hook::SchedProcessFork { parent, child: task });
        }
        let flags = WakeFlags { fork: true, sync: false, by_task: parent.is_some() };
        let target = self.select_cpu(task, cpu, flags);
        self.core.tasks[task.index()].cpu = target;
        self.activate(target, task, Enqueue::INITIAL, flags);
        // What a launcher that is a task has created it releases.
        if let Some(at) = self.workload.tasks[template.index()].release_ns
            && at > self.core.now_ns
            && (parent.is_some() || !self.setup.launchers_are_tasks)
        {
            self.live += 1;
            self.core.queue.push(at, Class::Release, target, task.0, 0);
        }
    }

    fn new_task(&self, template: TaskTemplateId, instance: u32, parent: Option<TaskId>, cpu: CpuId) -> Task {
        let description = &self.workload.tasks[template.index()];
        // A template that says nothing about nice and affinity inherits them, as fork does.
        let inherited = parent.map(|parent| &self.core.tasks[parent.index()]);
        let own_restriction = self.setup.template_asked[template.index()];
        let asked_restriction = match inherited {
            Some(parent) if own_restriction == self.setup.everybody => parent.asked_restriction,
            _ => own_restriction,
        };
        let process = description.process.0;
        let group = match description.group {
            Some(group) => (!self.workload.groups[group.index()].is_root()).then_some(group.0),
            None => inherited.and_then(|parent| parent.group),
        };
        let draws = Draws::new(self.setup.seed, template.0, instance);
        Task {
            restriction: self.setup.mask_in(group, asked_restriction),
            asked_restriction,
            nice: if description.nice == 0 { inherited.map_or(0, |parent| parent.nice) } else { description.nice },
            policy: description.policy,
            slice_ns: description.slice_ns.or(inherited.map(|parent| parent.slice_ns)).unwrap_or(0),
            util_clamp: inherited.map_or(UtilClamp::NONE, |parent| parent.util_clamp),
            timer_slack_ns: description.timer_slack_ns.or(inherited.and_then(|parent| parent.timer_slack_ns)),
            process,
            application: self.workload.processes[description.process.index()].application,
            group,
            cache_group: self.cache_groups.of(template, process, group),
            parent,
            ..Task::new(template, instance, description.program, cpu, self.core.now_ns, draws)
        }
    }

    /// The running task ends (`do_exit`).
    pub(crate) fn exit(&mut self, cpu: CpuId, task: TaskId) {
        if self.core.watched.processes {
            let group_dead = self.core.process_threads(self.core.tasks[task.index()].process) == 1;
            self.pass(Hook::SchedProcessExit { task, group_dead });
        }
        self.scheduler.dequeue(&mut self.core, cpu, task, Dequeue::SLEEP | Dequeue::SPECIAL);
        if M::MODELLED {
            self.sample_task(cpu, task);
        }
        self.core.emit(EventKind::Exit { task });
        self.background_follows_exit(cpu);
        self.alive -= 1;
        self.live -= 1;
        let now_ns = self.core.now_ns;
        let state = &mut self.core.tasks[task.index()];
        state.state = State::Dead;
        state.exited_ns = Some(now_ns);
        let (process, parent) = (state.process, state.parent);
        self.core.process_threads[process as usize] -= 1;
        if let Some(parent) = parent {
            let waiter = &mut self.core.tasks[parent.index()];
            waiter.exited_children += 1;
            if waiter.state == State::Blocked && waiter.waiting_for == WaitReason::Join {
                self.wake(parent, WakeFlags { by_task: true, ..WakeFlags::default() });
            }
        }
    }

    /// Somebody outside the workload allows a task every CPU.
    pub(crate) fn release(&mut self, task: TaskId) {
        self.live -= 1;
        if self.core.tasks[task.index()].state == State::Dead {
            return;
        }
        self.set_mask(task, 0);
    }

    /// The running task changes its own affinity. Whether it has to leave its CPU for that.
    pub(crate) fn set_own_affinity(&mut self, cpu: CpuId, task: TaskId, restriction: u32) -> Option<Leave> {
        if self.refuses_mask(task, restriction) {
            return None;
        }
        self.set_mask(task, restriction);
        (!self.core.may_run_on(task, cpu)).then_some(Leave::Displaced)
    }

    /// Queues a task elsewhere that had to leave its CPU because of a mask that it gave itself (`__set_cpus_allowed_ptr`, `__migrate_task` by
    /// the stopper).
    pub(crate) fn place_displaced(&mut self, task: TaskId) {
        let from = self.core.tasks[task.index()].cpu;
        let to = self.other_cpu(from, task);
        self.place_moved(task, to);
    }

    /// Queues a task that has been taken off its CPU's queue on another CPU.
    pub(crate) fn place_moved(&mut self, task: TaskId, to: CpuId) {
        self.core.tasks[task.index()].state = State::Queued;
        self.core.set_task_cpu(task, to, MigrationKind::Affinity);
        self.pass_moves();
        self.scheduler.enqueue(&mut self.core, to, task, Enqueue::MIGRATED);
        self.scheduler.check_preempt(&mut self.core, to, task, WakeFlags::default());
    }
}
