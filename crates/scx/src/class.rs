//! The ext class as a scheduler: calls a program in the order of the contract.
//!
//! Source: `docs/spec/sched-ext.md` sections 3, 5 and 11. Where the order is not ours, it is the engine's: see
//! [`Scheduler`](warmcore_kernel::Scheduler).

use warmcore_kernel::{
    Change, Core, Dequeue, Enqueue, Hook, Scheduler, SchedulerThread, ThreadStep, Utilisation, WakeFlags,
};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{PrevState, SearchStart, SearchStep, TaskId};
use warmcore_workload::Policy;

use crate::decisions::ExtDecisions;
use crate::entities::Entities;
use crate::events::Event;
use crate::exit::ExitKind;
use crate::kfuncs::Kfuncs;
use crate::operations::{DequeueFlags, EnqueueFlags, Kick, Operation, OperationFlags, Operations};
use crate::queues::DsqId;
use crate::state::{Again, Context, EJECT, Insertion, State, WATCHDOG};

/// Most calls of `dispatch` before a CPU gives up for now (`SCX_DSP_MAX_LOOPS`).
const DISPATCH_LOOPS: u32 = 32;

/// The class with a program.
pub struct Ext {
    // Programs are many and an operation is long: one class for all saves building the simulator for each.
    program: Box<dyn Operations>,
    state: State,
    /// Weight of a task in the fair class's unit (`sched_prio_to_weight`).
    weight_of: fn(Policy, i8) -> u32,
    /// The last pick found nobody, so that who is put back is the only one of its CPU.
    gives_way: bool,
    /// The moment of the last choice of a task, and how many there were at it before.
    choices_at: (u64, u32),
    /// The program was told why it ended.
    finished: bool,
    /// The watchdog's timer is under way.
    watched: bool,
}

/// Calls an operation in a context.
macro_rules! call {
    ($self:ident, $core:ident, $operation:ident, $context:expr, $method:ident($($argument:expr),*)) => {{
        $self.state.counts[Operation::$operation as usize] += 1;
        ($self.state.context, $self.state.operation) = ($context, Operation::$operation);
        let mut kernel = Kfuncs { core: &mut *$core, state: &mut $self.state };
        let result = $self.program.$method(&mut kernel, $($argument),*);
        $self.state.context = Context::Other;
        result
    }};
}

/// Tells the program something, if it wants to know and is still asked.
macro_rules! tell {
    ($self:ident, $core:ident, $operation:ident, $method:ident($($argument:expr),*)) => {
        tell!($self, $core, $operation, Context::Other, $method($($argument),*))
    };
    ($self:ident, $core:ident, $operation:ident, $context:expr, $method:ident($($argument:expr),*)) => {
        if $self.asks(Operation::$operation) {
            call!($self, $core, $operation, $context, $method($($argument),*));
        }
    };
}

mod above;
mod before;
mod ending;
mod groups;
mod hooks;
mod hotplug;
mod idle;
mod tasks;

impl Ext {
    /// The class with a program on a machine. `weight_of` is the kernel's table of weights, 1024 for nice 0.
    pub fn new(program: impl Operations + 'static, machine: &Machine, weight_of: fn(Policy, i8) -> u32) -> Self {
        let state = State::new(program.table(), machine, Entities::of(&program), program.lock_use());
        Self {
            program: Box::new(program),
            state,
            weight_of,
            gives_way: false,
            choices_at: (0, 0),
            finished: false,
            watched: false,
        }
    }

    /// Whether the program wants tasks of `SCHED_EXT` only, and stands below the fair class (`SCX_OPS_SWITCH_PARTIAL`).
    pub fn is_partial(&self) -> bool {
        self.wants(OperationFlags::SWITCH_PARTIAL)
    }

    /// How often an operation was called.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.state.counts[operation as usize]
    }

    /// Whether the locks of queues that CPUs share take time, as they do unless this says otherwise.
    pub fn set_locks_cost(&mut self, cost: bool) {
        self.state.locks_cost = cost;
    }

    fn asks(&self, operation: Operation) -> bool {
        self.state.has(operation) && !self.state.is_bypassed()
    }

    fn wants(&self, flags: OperationFlags) -> bool {
        self.state.table.flags.has(flags)
    }

    /// `do_enqueue_task`: the task is runnable and on no CPU, and somebody must have it.
    fn do_enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: EnqueueFlags) {
        let index = task.index();
        self.state.tasks[index].runs_at_once = false;
        // Who exits or must stay is not asked about, unless the program wants to be.
        let is_skipped = |holds, flag| holds && self.state.tasks[index].verdict.is_none() && !self.wants(flag);
        let skipped = if self.state.is_bypassed() {
            Some(Event::BypassDispatch)
        } else if is_skipped(core.task(task).is_exiting(), OperationFlags::ENQ_EXITING) {
            Some(Event::EnqSkipExiting)
        } else if is_skipped(core.task(task).migration_disabled() > 0, OperationFlags::ENQ_MIGRATION_DISABLED) {
            Some(Event::EnqSkipMigrationDisabled)
        } else {
            None
        };
        if skipped.is_some() || !core.active().contains(cpu) {
            self.state.pass_by_program(core, (cpu, task), skipped);
            return;
        }
        if self.state.tasks[index].verdict.is_none() {
            if !self.state.has(Operation::Enqueue) {
                self.state.default_slice(task);
                let insertion = Insertion { dsq: DsqId::GLOBAL, flags: EnqueueFlags::default(), vtime: None };
                self.state.carry_out(core, task, cpu, insertion);
                return;
            }
            self.state.tasks[index].custody += 1;
            self.state.tasks[index].in_custody = true;
            call!(self, core, Enqueue, Context::OneTask(task), enqueue(task, flags));
        }
        let Some(verdict) = self.state.tasks[index].verdict else { return };
        if verdict.dsq.named_cpu().is_some_and(|target| target != cpu) {
            self.state.tasks[index].in_custody = false;
            self.state.deferred.push(task);
            return;
        }
        self.state.tasks[index].verdict = None;
        if !verdict.dsq.is_user() {
            // What is inserted directly into a local or global queue was never in custody.
            self.state.tasks[index].in_custody = false;
        } else if !self.state.tasks[index].in_custody {
            // `select_cpu` put it into a queue of the program's: its custody begins there.
            self.state.tasks[index].custody += 1;
            self.state.tasks[index].in_custody = true;
        }
        self.state.carry_out(core, task, cpu, verdict);
        self.tell_left(core);
    }

    /// Tells the program of the tasks that were dispatched out of its custody. A kernel does so within the function that moves a task, this one
    /// after the operation that called it.
    fn tell_left(&mut self, core: &mut Core<'_>) {
        while !self.state.left_custody.is_empty() {
            for task in std::mem::take(&mut self.state.left_custody) {
                tell!(self, core, Dequeue, dequeue(task, DequeueFlags::default()));
            }
        }
    }

    /// `balance_one` and `pick_task_scx`.
    fn choose(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        let bypassed = self.state.is_bypassed();
        self.acquire(core, cpu);
        if let Some(prev) = prev {
            self.state.update_curr(core, prev);
            if self.has_slice(prev) && !bypassed {
                return Some(prev);
            }
        }
        let local = self.state.local(cpu);
        let global = self.state.global(core.machine(), cpu);
        if self.state.queues.len(local) == 0
            && self.state.move_to_local(core, global, (cpu, false)).is_none()
            && self.asks(Operation::Dispatch)
            && core.active().contains(cpu)
        {
            self.dispatch(core, cpu, prev);
            if let Some(prev) = prev.filter(|&prev| self.has_slice(prev) && !self.state.is_bypassed()) {
                return Some(prev);
            }
        }
        if let Some(head) = self.state.queues.first(local) {
            self.state.refill(head);
            return Some(head);
        }
        let prev = prev?;
        if self.wants(OperationFlags::ENQ_LAST) && !self.state.is_bypassed() {
            return None;
        }
        self.state.count(Event::DispatchKeepLast, 1);
        self.state.refill(prev);
        core.decide(self.state.decisions.kept, prev, i64::from(cpu.0));
        Some(prev)
    }

    fn has_slice(&self, task: TaskId) -> bool {
        self.state.entities.slice_ns(task) > 0
    }

    /// Asks the program for tasks until there is one or it does nothing more.
    fn dispatch(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) {
        let (local, global) = (self.state.local(cpu), self.state.global(core.machine(), cpu));
        for _ in 0..DISPATCH_LOOPS {
            self.state.progress = 0;
            call!(self, core, Dispatch, Context::Dispatch(cpu), dispatch(cpu, prev));
            self.state.flush_buffer(core, cpu);
            self.tell_left(core);
            if self.state.is_bypassed()
                || prev.is_some_and(|prev| self.has_slice(prev))
                || self.state.queues.len(local) > 0
                || self.state.move_to_local(core, global, (cpu, false)).is_some()
                || self.state.progress == 0
            {
                return;
            }
        }
        self.state.kicks.push((cpu, Kick::Plain));
    }
}

impl Scheduler for Ext {
    fn name(&self) -> &'static str {
        self.state.table.name
    }

    /// `scx_allow_ttwu_queue`.
    fn allows_left_wakeups(&self, _task: TaskId) -> bool {
        self.wants(OperationFlags::ALLOW_QUEUED_WAKEUP)
    }

    fn init(&mut self, core: &mut Core<'_>) {
        self.state.decisions = ExtDecisions::register(core.decision_table());
        self.state.before_ns = self.program.loaded_before_ns();
        self.watch_places(core);
        self.load(core);
        self.watch(core, CpuId(0));
    }

    /// A program that is loaded before the run knows who starts the workload.
    fn looks_at_parents(&self) -> bool {
        self.program.loaded_before_ns() > 0
    }

    fn begin(&mut self, core: &mut Core<'_>) {
        if self.state.before_ns > 0 {
            self.pass_time_before(core);
        }
    }

    fn cpu_offline(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        if self.state.keeps_idle_masks() {
            self.state.idle.set(core.machine(), cpu, false);
        }
        self.handle_hotplug(core, cpu, false);
    }

    fn cpu_online(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.handle_hotplug(core, cpu, true);
    }

    fn task_fork(&mut self, core: &mut Core<'_>, task: TaskId, _parent: Option<TaskId>) {
        self.add_task(core, task);
        self.init_task(core, task);
        if !self.state.is_bypassed() && self.takes(core.task(task).policy()) {
            self.enable(core, task);
        }
    }

    fn task_dead(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.leave(core, task);
    }

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        if self.state.is_bypassed() {
            self.state.count(Event::BypassDispatch, 1);
            core.tell_place(task, SearchStart::Nowhere, SearchStep::Bypassed);
            return prev;
        }
        self.state.built_in_choice = None;
        if !self.state.has(Operation::SelectCpu) {
            let (cpu, idle) = Kfuncs { core, state: &mut self.state }.select_cpu_dfl(task, prev, flags);
            self.state.note_selected(task, cpu, flags);
            if idle {
                self.state.default_slice(task);
                self.state.tasks[task.index()].verdict =
                    Some(Insertion { dsq: DsqId::LOCAL, flags: EnqueueFlags::default(), vtime: None });
            }
            self.state.tell_place(core, task, prev, cpu);
            return cpu;
        }
        let cpu = call!(self, core, SelectCpu, Context::OneTask(task), select_cpu(task, prev, flags));
        self.state.note_selected(task, cpu, flags);
        self.state.settle(core);
        if self.state.is_cpu(cpu) {
            self.state.tell_place(core, task, prev, cpu);
            return cpu;
        }
        let message = format!("select_cpu chose {cpu} for {}, which the machine does not have", core.task_name(task));
        self.state.fail(core, ExitKind::Error, 0, message);
        core.tell_place(task, SearchStart::Nowhere, SearchStep::NoSuchCpu);
        prev
    }

    /// Who blocks is gone.
    fn holds(&self, _task: TaskId) -> bool {
        false
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Enqueue) {
        core.clamp_queued(cpu, task);
        self.state.runnable[cpu.index()] += 1;
        self.state.changes.note_task(task);
        self.state.changes.note_cpu(cpu);
        let state = &mut self.state.tasks[task.index()];
        state.queued = true;
        let selected = state.selected.take();
        let enqueue_flags = EnqueueFlags::of(flags, selected.is_some());
        // It was there before the program, and begins only now.
        let begins = flags.has(Enqueue::INITIAL) && !state.enabled;
        let runs = core.curr(cpu) == task;
        if !runs {
            state.runnable_since_ns.get_or_insert(core.now_ns());
        }
        if begins {
            self.enable(core, task);
        }
        if [Enqueue::WAKEUP, Enqueue::INITIAL, Enqueue::RESTORE].into_iter().any(|flag| flags.has(flag)) {
            tell!(self, core, Runnable, runnable(task, enqueue_flags));
        }
        if !runs {
            self.do_enqueue(core, cpu, task, enqueue_flags);
        }
        if enqueue_flags.has(EnqueueFlags::CPU_SELECTED) && selected != Some(cpu) {
            self.state.count(Event::SelectCpuFallback, 1);
        }
    }

    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Dequeue) {
        core.clamp_left(task);
        if !self.state.tasks[task.index()].queued {
            return;
        }
        let dequeue_flags = if flags.has(Dequeue::SLEEP) {
            DequeueFlags::SLEEP
        } else if flags.has(Dequeue::SAVE) {
            DequeueFlags::SCHED_CHANGE
        } else {
            DequeueFlags::default()
        };
        self.state.tasks[task.index()].verdict = None;
        if let Some(queue) = self.state.queues.of(task) {
            self.state.pass_lock(core, queue);
            self.state.queues.remove(task);
        }
        if std::mem::take(&mut self.state.tasks[task.index()].in_custody) {
            tell!(self, core, Dequeue, dequeue(task, dequeue_flags));
        }
        if core.curr(cpu) == task {
            self.state.update_curr(core, task);
            // A task that has to go elsewhere is preempted by the thread that takes it there.
            tell!(self, core, Stopping, stopping(task, flags.has(Dequeue::MIGRATING)));
        }
        if !flags.has(Dequeue::MIGRATING) {
            tell!(self, core, Quiescent, quiescent(task, dequeue_flags));
        }
        let state = &mut self.state.tasks[task.index()];
        state.queued = false;
        if flags.has(Dequeue::SLEEP) {
            state.runnable_since_ns = None;
        }
        self.state.runnable[cpu.index()] -= 1;
        self.state.changes.note_task(task);
        self.state.changes.note_cpu(cpu);
    }

    /// Nothing preempts at a wakeup; the core of the kernel wakes the CPU that was selected, if it is idle.
    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, _task: TaskId, _flags: WakeFlags) {
        self.settle(core);
        self.give_back_held_up(core);
        if core.curr_is_idle(cpu) {
            core.resched_full(cpu);
        }
    }

    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        self.settle(core);
        self.guard_against_livelock(core);
        self.state.picking = Some(cpu);
        let picked = self.choose(core, cpu, prev);
        self.state.picking = None;
        let stays_idle = picked.is_none() && core.curr_is_idle(cpu);
        if stays_idle && self.state.keeps_idle_masks() && core.active().contains(cpu) {
            self.state.idle.set(core.machine(), cpu, true);
        }
        self.state.note_held_up(cpu, 2);
        if stays_idle || (picked.is_some() && picked == prev) {
            self.settle(core);
            self.give_back_held_up(core);
        }
        self.gives_way = picked.is_none() && prev.is_some();
        picked
    }

    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, runnable: bool) {
        let gives_way = std::mem::take(&mut self.gives_way);
        self.state.changes.note_cpu(cpu);
        if !runnable || !self.state.tasks[task.index()].queued {
            return;
        }
        self.state.update_curr(core, task);
        tell!(self, core, Stopping, stopping(task, true));
        self.state.tasks[task.index()].runnable_since_ns.get_or_insert(core.now_ns());
        if self.has_slice(task) && self.state.tasks[task.index()].runs_at_once && !self.state.is_bypassed() {
            self.enqueue_for(core, cpu, task, Again::Preempted);
        } else if self.has_slice(task) && !self.state.is_bypassed() {
            self.state.insert_local(core, task, cpu, EnqueueFlags::HEAD);
        } else if gives_way {
            core.decide(self.state.decisions.left_alone, task, i64::from(cpu.0));
            self.do_enqueue(core, cpu, task, EnqueueFlags::LAST);
        } else {
            self.do_enqueue(core, cpu, task, EnqueueFlags::default());
        }
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        self.state.queues.remove(task);
        self.state.changes.note_task(task);
        self.state.changes.note_cpu(cpu);
        let charged_from_ns = self.state.charged_from_ns(core, cpu);
        let state = &mut self.state.tasks[task.index()];
        state.in_custody = false;
        state.runnable_since_ns = None;
        state.charged_ns = charged_from_ns;
        tell!(self, core, Running, running(task));
        self.settle(core);
    }

    fn enter_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.state.changes.note_cpu(cpu);
        self.idle_changed(core, cpu, true);
        self.settle(core);
        if self.state.queues.len(self.state.local(cpu)) > 0 {
            core.resched_full(cpu);
        }
    }

    fn exit_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.state.changes.note_cpu(cpu);
        self.idle_changed(core, cpu, false);
    }

    fn sched_switch(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: (TaskId, PrevState), next: TaskId) {
        // Who runs on the CPUs of a class above is told nowhere else.
        self.state.changes.note_cpu(cpu);
        self.release(core, cpu, prev.0, next);
        tell!(self, core, SchedSwitch, sched_switch(prev, next));
        self.settle(core);
        self.give_back_held_up(core);
    }

    fn hook(&mut self, core: &mut Core<'_>, _cpu: CpuId, hook: Hook) {
        self.tell_hook(core, hook);
    }

    fn tick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>) {
        let Some(task) = curr.filter(|task| self.state.tasks[task.index()].queued) else { return };
        self.state.update_curr(core, task);
        self.state.changes.note_cpu(cpu);
        if self.state.is_bypassed() {
            self.state.entities.set_slice_ns(task, 0);
        }
        tell!(self, core, Tick, tick(task));
        if !self.has_slice(task) {
            self.state.ticked_ns[cpu.index()] = Some(core.now_ns());
            // It may go on for lack of others.
            self.state.tasks[task.index()].charged_ns = self.state.charged_from_ns(core, cpu);
            core.resched_full(cpu);
        }
        self.settle(core);
        self.finish(core);
    }

    fn timer(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u64) {
        match payload {
            EJECT => {}
            WATCHDOG => {
                self.watched = false;
                self.state.check_stall(core);
                if !self.state.is_bypassed() {
                    self.watch(core, cpu);
                }
            }
            _ if self.finished => {
                self.state.context = Context::Unlocked;
                self.program.timer_after_end(&mut Kfuncs { core: &mut *core, state: &mut self.state }, payload as u32);
                self.state.context = Context::Other;
            }
            _ => tell!(self, core, Timer, Context::Unlocked, timer(payload as u32)),
        }
        self.tell_left(core);
        self.settle(core);
        self.give_back_held_up(core);
        self.finish(core);
    }

    fn stopper_comes(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: TaskId) {
        self.release_to_stopper(core, cpu, prev);
    }

    fn threads(&self) -> &[SchedulerThread] {
        self.program.threads()
    }

    fn thread_goes_on(&mut self, core: &mut Core<'_>, thread: u32) -> ThreadStep {
        self.let_thread_go_on(core, thread)
    }

    fn yield_task(&mut self, core: &mut Core<'_>, _cpu: CpuId, task: TaskId) {
        // The slice is that of the last tick: what the task ran since is taken off when it leaves.
        if self.asks(Operation::Yield) {
            call!(self, core, Yield, Context::Other, yield_task(task));
        } else {
            self.state.entities.set_slice_ns(task, 0);
        }
    }

    fn permits(&mut self, core: &mut Core<'_>, task: TaskId, change: Change) -> bool {
        match change {
            Change::Policy(policy) => self.permits_policy(core, task, policy),
            Change::Group(to) => self.permits_move(core, task, to),
        }
    }

    fn attributes_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        if self.state.tasks[task.index()].group != core.task(task).group() {
            return self.change_group(core, task);
        }
        let weight = self.weight(core, task);
        if !self.takes(core.task(task).policy()) {
            // It is of another class, or is just leaving for one.
            self.state.tasks[task.index()].weight = weight;
            return;
        }
        let was = self.take_out(core, task, Dequeue::SAVE);
        self.state.tasks[task.index()].weight = weight;
        self.state.changes.note_task(task);
        if self.state.tasks[task.index()].enabled {
            tell!(self, core, SetWeight, set_weight(task, weight));
        }
        self.put_back(core, task, was, Enqueue::RESTORE);
    }

    fn affinity_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        let was = self.take_out(core, task, Dequeue::SAVE);
        self.state.changes.note_task(task);
        self.tell_mask(core, task);
        self.put_back(core, task, was, Enqueue::RESTORE);
    }

    /// Nobody told of masks that were set while it was of another class.
    fn switched_to(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.enable(core, task);
        self.tell_mask(core, task);
    }

    fn switched_from(&mut self, core: &mut Core<'_>, task: TaskId) {
        if self.state.is_bypassed() {
            self.leave(core, task);
        } else {
            self.disable(core, task);
            // A guest of 7.2 shows one that comes back without a slice.
            self.state.entities.set_slice_ns(task, 0);
        }
    }

    /// `scx_cpuperf_target`.
    fn utilisation(&self, _core: &Core<'_>, cpu: CpuId) -> Utilisation {
        let used = self.state.cpuperf_target[cpu.index()];
        Utilisation { used, at_once: !self.is_partial(), ..Utilisation::default() }
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.state.runnable[cpu.index()]
    }
}
