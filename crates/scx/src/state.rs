//! What the class keeps, apart from the program: tasks, queues, idle masks, and what is to be done when it is safe.

use std::rc::Rc;

use warmcore_kernel::{CAPACITY_SCALE, Core, WakeFlags};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{MigrationKind, OverheadKind, SearchStart, SearchStep, TaskId};
use warmcore_workload::Policy;

use crate::changes::Changes;
use crate::decisions::ExtDecisions;
use crate::dump::Dump;
use crate::entities::Entities;
use crate::events::{Event, Events};
use crate::exit::{ExitInfo, ExitKind};
use crate::idle::IdleMasks;
use crate::operations::{
    EnqueueFlags, Kick, LockUse, Operation, OperationFlags, OperationTable, SLICE_DEFAULT_NS, SLICE_INFINITE,
};
use crate::queues::{DsqId, QueueIndex, Queues};

/// Payload of the timer after which a program is gone.
pub(crate) const EJECT: u64 = 1 << 32;
/// Payload of the watchdog's timer.
pub(crate) const WATCHDOG: u64 = 2 << 32;

/// Where a program wants a task.
#[derive(Clone, Copy)]
pub(crate) struct Insertion {
    pub dsq: DsqId,
    pub flags: EnqueueFlags,
    pub vtime: Option<u64>,
}

/// An insertion that `dispatch` has asked for and that takes effect when it returns.
pub(crate) struct Buffered {
    pub task: TaskId,
    /// Custody of the task when it was asked for; another one now means that it was taken meanwhile.
    pub custody: u64,
    pub insertion: Insertion,
}

/// What the class knows of a task (`struct sched_ext_entity`).
#[derive(Default)]
pub(crate) struct ExtTask {
    pub weight: u32,
    /// Its task group, as far as the program was told.
    pub group: Option<u32>,
    /// Runnable in this class.
    pub queued: bool,
    /// The CPU that was selected for it, while it wakes ([`EnqueueFlags::CPU_SELECTED`]).
    pub selected: Option<CpuId>,
    /// In the program's custody, in a queue of its own or of the kernel's.
    pub in_custody: bool,
    /// Number of the last custody.
    pub custody: u64,
    /// What `select_cpu` or `enqueue` has asked for, not yet done.
    pub verdict: Option<Insertion>,
    /// Since when it has waited for a CPU.
    pub runnable_since_ns: Option<u64>,
    /// Up to when its time on the CPU is charged, while it runs.
    pub charged_ns: u64,
    /// The program knows of it: it was there when the task was created (`init_task`).
    pub initialised: bool,
    /// In the class (`enable`), not only known to it.
    pub enabled: bool,
    /// The program does not want it: it may not become one of `SCHED_EXT` (`p->scx.disallow`).
    pub disallowed: bool,
    /// It was inserted into a local queue to run at once (`SCX_TASK_IMMED`), until it is enqueued again.
    pub runs_at_once: bool,
    /// Why it is being enqueued again.
    pub reason: Again,
}

/// Why the program gets a task again (`SCX_TASK_REENQ_*`, with the kernel's values).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Again {
    #[default]
    No = 0,
    /// The program has asked for it.
    Asked = 1,
    /// It was to run at once, and cannot.
    HeldUp = 2,
    /// It was to run at once, and a class above has taken its CPU.
    Preempted = 3,
}

/// Which operation runs, for what a kfunc may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Context {
    Other,
    /// `select_cpu` or `enqueue` of a task.
    OneTask(TaskId),
    /// `dispatch` of a CPU.
    Dispatch(CpuId),
    /// A timer, or a program that user space runs: no lock of a run queue is held.
    Unlocked,
}

/// All but the program.
pub(crate) struct State {
    pub table: OperationTable,
    pub queues: Queues,
    pub idle: IdleMasks,
    /// Previous CPU, choice and step of the last built-in selection.
    pub built_in_choice: Option<(CpuId, CpuId, SearchStep)>,
    pub tasks: Vec<ExtTask>,
    pub entities: Entities,
    pub changes: Changes,
    /// By CPU: runnable tasks, the running one included.
    pub runnable: Vec<usize>,
    /// By CPU: the speed that the program wants, of 1024 (`scx_bpf_cpuperf_set`).
    pub cpuperf_target: Vec<u32>,
    /// When a tick last ended a slice, by CPU.
    pub ticked_ns: Vec<Option<u64>>,
    /// Tasks that were dispatched out of the program's custody and that it has not been told of yet.
    pub left_custody: Vec<TaskId>,
    pub counts: [u64; Operation::COUNT],
    /// Locks of shared queues take time.
    pub locks_cost: bool,
    pub context: Context,
    /// The last operation that was called.
    pub operation: Operation,
    pub buffer: Vec<Buffered>,
    /// Tasks that the present `dispatch` has moved or inserted.
    pub progress: u32,
    /// Tasks bound for the local queue of another CPU.
    pub deferred: Vec<TaskId>,
    pub kicks: Vec<(CpuId, Kick)>,
    /// Queues whose tasks are to be enqueued again.
    pub given_back: Vec<QueueIndex>,
    /// CPUs whose local queues may hold tasks that were to run at once and cannot.
    pub held_up: Vec<CpuId>,
    /// Some task was inserted to run at once ([`EnqueueFlags::IMMED`]).
    pub has_immediate: bool,
    /// The tasks of one of them, while that is done.
    pub waiting: Vec<TaskId>,
    /// By CPU: a class above has taken it, and the program was told if it wants to be.
    pub released: Vec<bool>,
    /// The program is being loaded beside tasks that are there.
    pub loads: bool,
    /// How long before the run begins it is now; timers of the program that are started before are here, by the time that is left then.
    pub before_ns: u64,
    pub early_timers: Vec<(i64, u32)>,
    /// CPU that is choosing its next task.
    pub picking: Option<CpuId>,
    pub exit: Option<ExitInfo>,
    /// Task groups that the program was told of and did not refuse.
    pub groups: Vec<Option<u32>>,
    pub events: Events,
    /// What is being said of the state that the program leaves.
    pub dump: Option<Dump>,
    pub decisions: ExtDecisions,
    /// Where passes of locks are counted, if they are.
    lock_use: Option<Rc<LockUse>>,
    cpu_count: u32,
    node_count: u32,
}

impl State {
    pub fn new(table: OperationTable, machine: &Machine, entities: Entities, lock_use: Option<Rc<LockUse>>) -> Self {
        let (cpus, nodes) = (machine.cpu_count(), machine.node_count());
        let mut queues = Queues::default();
        for id in machine.cpus().map(DsqId::local_on).chain((0..nodes).map(|_| DsqId::GLOBAL)) {
            queues.add(id);
        }
        Self {
            table,
            queues,
            idle: IdleMasks::new(machine),
            built_in_choice: None,
            tasks: Vec::new(),
            changes: Changes::new(machine, entities.are_shared()),
            entities,
            runnable: vec![0; cpus],
            cpuperf_target: vec![CAPACITY_SCALE; cpus],
            ticked_ns: vec![None; cpus],
            left_custody: Vec::new(),
            counts: [0; Operation::COUNT],
            locks_cost: true,
            context: Context::Other,
            operation: Operation::Init,
            buffer: Vec::with_capacity(table.dispatch_max_batch as usize),
            progress: 0,
            deferred: Vec::new(),
            kicks: Vec::new(),
            given_back: Vec::new(),
            held_up: Vec::new(),
            has_immediate: false,
            waiting: Vec::new(),
            released: vec![false; cpus],
            loads: false,
            before_ns: 0,
            early_timers: Vec::new(),
            picking: None,
            exit: None,
            groups: Vec::new(),
            events: Events::default(),
            dump: None,
            decisions: ExtDecisions::default(),
            lock_use,
            cpu_count: cpus as u32,
            node_count: nodes as u32,
        }
    }

    pub fn local(&self, cpu: CpuId) -> QueueIndex {
        cpu.0
    }

    pub fn global(&self, machine: &Machine, cpu: CpuId) -> QueueIndex {
        self.cpu_count + machine.node_of(cpu).index() as u32
    }

    /// The CPU at work takes the lock of a queue and gives it back. A local queue's is the run queue's, which whoever works on it
    /// holds anyway.
    pub fn pass_lock(&mut self, core: &mut Core<'_>, queue: QueueIndex) {
        if !self.locks_cost || queue < self.cpu_count || self.before_ns > 0 {
            return;
        }
        let cpu = core.this_cpu();
        let spent_ns = self.queues.lock(queue).pass(core, cpu);
        if let Some(lock_use) = &self.lock_use {
            lock_use.add(spent_ns);
        }
        let kind = if self.picking.is_some() { OverheadKind::Switch } else { OverheadKind::Wakeup };
        core.charge(cpu, spent_ns, kind);
    }

    /// Says why a task goes to a CPU: the built-in selection's step where it has chosen that CPU, else the program has.
    pub fn tell_place(&self, core: &mut Core<'_>, task: TaskId, prev: CpuId, cpu: CpuId) {
        match self.built_in_choice {
            Some((from, chosen, step)) if (from, chosen) == (prev, cpu) => {
                core.tell_place(task, SearchStart::Previous, step);
            }
            _ => core.tell_place(task, SearchStart::Nowhere, SearchStep::Program),
        }
    }

    /// Whether a queue belongs to the program.
    fn is_user(&self, queue: QueueIndex) -> bool {
        queue >= self.cpu_count + self.node_count
    }

    pub(crate) fn is_cpu(&self, cpu: CpuId) -> bool {
        cpu.0 < self.cpu_count
    }

    pub fn has(&self, operation: Operation) -> bool {
        self.table.present & operation.bit() != 0
    }

    /// Whether the built-in idle masks are kept: a program with `update_idle` has its own, unless it says otherwise.
    pub(crate) fn keeps_idle_masks(&self) -> bool {
        !self.has(Operation::UpdateIdle) || self.table.flags.has(OperationFlags::KEEP_BUILTIN_IDLE)
    }

    /// After an error the program is not asked any more (bypass).
    pub(crate) fn is_bypassed(&self) -> bool {
        self.exit.is_some()
    }

    /// From when on a task that a CPU takes now is charged. What a tick brings in begins when the tick is over, as a kernel reads the clock once in
    /// the tick and again to schedule: a slice of a whole number of ticks is therefore not over at its last tick, and lasts one more.
    pub(crate) fn charged_from_ns(&self, core: &Core<'_>, cpu: CpuId) -> u64 {
        let now_ns = core.now_ns();
        let is_tick = self.ticked_ns[cpu.index()] == Some(now_ns);
        if is_tick { now_ns + core.machine().costs().tick_ns } else { now_ns }
    }

    /// Charges the running task's slice with the time since the last charge.
    pub fn update_curr(&mut self, core: &Core<'_>, task: TaskId) {
        let charged_ns = &mut self.tasks[task.index()].charged_ns;
        let ran_ns = core.now_ns().saturating_sub(*charged_ns);
        *charged_ns += ran_ns;
        let slice_ns = self.entities.slice_ns(task);
        if slice_ns != SLICE_INFINITE {
            self.entities.set_slice_ns(task, slice_ns.saturating_sub(ran_ns));
        }
        self.entities.add_runtime_ns(task, ran_ns);
    }

    /// The task, if it is of this class, that runs on a CPU.
    pub fn curr(&self, core: &Core<'_>, cpu: CpuId) -> Option<TaskId> {
        let curr = core.curr(cpu);
        (!curr.is_idle() && self.tasks[curr.index()].queued).then_some(curr)
    }

    /// Does what a program wants with a task; `cpu` is the CPU of [`DsqId::LOCAL`].
    pub(crate) fn carry_out(&mut self, core: &mut Core<'_>, task: TaskId, cpu: CpuId, insertion: Insertion) {
        let Insertion { dsq, flags, vtime } = insertion;
        let named = dsq.named_cpu();
        if let Some(target) = named.or((dsq == DsqId::LOCAL).then_some(cpu)) {
            let queue = if named.is_some() { "SCX_DSQ_LOCAL_ON" } else { "SCX_DSQ_LOCAL" };
            if core.task(task).cpu() == target || self.may_move(core, task, target, queue) {
                self.insert_local(core, task, target, flags);
            } else {
                self.insert_global(core, task, flags);
            }
        } else if dsq == DsqId::GLOBAL {
            self.insert_global(core, task, flags);
        } else if let Some(queue) = self.queues.find(dsq) {
            self.pass_lock(core, queue);
            let inserted = match vtime {
                Some(vtime) => self.queues.insert_vtime(queue, task, vtime),
                None => self.queues.insert(queue, task, flags.has(EnqueueFlags::HEAD)),
            };
            if inserted.is_ok() {
                core.decide(self.decisions.shared, task, dsq.0 as i64);
                return;
            }
            let (now, held) = if vtime.is_some() { ("vtime", "FIFO") } else { ("FIFO", "vtime") };
            let message =
                format!("{now} insertion of {} into DSQ 0x{:x}, which holds {held} tasks", core.task_name(task), dsq.0);
            self.fail(core, ExitKind::Error, 0, message);
            self.insert_global(core, task, flags);
        } else {
            let message = format!("non-existent DSQ 0x{:x} for {}", dsq.0, core.task_name(task));
            self.fail(core, ExitKind::Error, 0, message);
            self.insert_global(core, task, flags);
        }
    }

    /// Whether the program may bring a task to another CPU's local queue (`task_can_run_on_remote_rq`). To one that the task may not use is an error, to
    /// one that is offline is none.
    fn may_move(&mut self, core: &mut Core<'_>, task: TaskId, target: CpuId, queue: &str) -> bool {
        let state = core.task(task);
        let is_held = state.migration_disabled() > 0;
        if !is_held && !core.active().contains(target) {
            self.count(Event::DispatchLocalDsqOffline, 1);
            return false;
        }
        if !is_held && core.may_run_on(task, target) {
            return true;
        }
        let name = core.task_name(task);
        let message = match is_held {
            true => format!("{queue} cannot move migration disabled {name} from {} to {target}", state.cpu()),
            false => format!("{queue} target {target} is not allowed for {name}"),
        };
        self.fail(core, ExitKind::Error, 0, message);
        false
    }

    /// A task goes to where the program has no more to do with it.
    fn leave_custody(&mut self, task: TaskId) {
        if std::mem::take(&mut self.tasks[task.index()].in_custody) && self.has(Operation::Dequeue) {
            self.left_custody.push(task);
        }
    }

    fn insert_global(&mut self, core: &mut Core<'_>, task: TaskId, flags: EnqueueFlags) {
        self.leave_custody(task);
        let cpu = core.task(task).cpu();
        let queue = self.global(core.machine(), cpu);
        self.pass_lock(core, queue);
        // A global queue never holds tasks ordered by vtime.
        let _ = self.queues.insert(queue, task, flags.has(EnqueueFlags::HEAD));
        core.decide(self.decisions.global, task, core.machine().node_of(cpu).index() as i64);
    }

    /// Puts a task into a CPU's local queue, and has that CPU look if it is idle or preempted.
    pub(crate) fn insert_local(&mut self, core: &mut Core<'_>, task: TaskId, cpu: CpuId, flags: EnqueueFlags) {
        self.leave_custody(task);
        self.bring(core, task, cpu, MigrationKind::Balance);
        let preempts = flags.has(EnqueueFlags::PREEMPT);
        // Nor does a local queue.
        let _ = self.queues.insert(self.local(cpu), task, preempts || flags.has(EnqueueFlags::HEAD));
        core.decide(self.decisions.local, task, i64::from(cpu.0));
        self.note_immediate(task, flags);
        if self.tasks[task.index()].runs_at_once
            && (self.queues.len(self.local(cpu)) > 1 || !(preempts || self.is_open(core, cpu)))
        {
            self.held_up.push(cpu);
        }
        if self.picking == Some(cpu) || self.before_ns > 0 {
            return;
        }
        if core.curr_is_idle(cpu) {
            core.resched_full(cpu);
        } else if preempts
            && let Some(curr) = self.curr(core, cpu)
            && curr != task
        {
            self.entities.set_slice_ns(curr, 0);
            core.resched_full(cpu);
        }
    }

    /// A task comes into a local queue: whether it is to run at once.
    #[inline]
    pub fn note_immediate(&mut self, task: TaskId, flags: EnqueueFlags) {
        if flags.has(EnqueueFlags::IMMED) {
            self.tasks[task.index()].runs_at_once = true;
            self.has_immediate = true;
        }
    }

    /// Whether a task that is first in a CPU's local queue runs at once (`rq_is_open`): the CPU is idle, or chooses just now.
    pub fn is_open(&self, core: &Core<'_>, cpu: CpuId) -> bool {
        core.curr_is_idle(cpu) || self.picking == Some(cpu)
    }

    /// A CPU has chosen, or a class above takes it: what was to run at once behind another task is held up.
    #[inline]
    pub fn note_held_up(&mut self, cpu: CpuId, least: u32) {
        if self.has_immediate && self.queues.len(self.local(cpu)) >= least {
            self.held_up.push(cpu);
        }
    }

    fn bring(&mut self, core: &mut Core<'_>, task: TaskId, cpu: CpuId, kind: MigrationKind) {
        let from = core.task(task).cpu();
        if from != cpu {
            core.set_task_cpu(task, cpu, kind);
            self.runnable[from.index()] -= 1;
            self.runnable[cpu.index()] += 1;
            self.changes.note_task(task);
            self.changes.note_cpu(from);
        }
        self.changes.note_cpu(cpu);
    }

    /// Moves the first task that may run on `cpu` from a queue to the end of its local one, or to its beginning; gives the task. A look at an empty queue
    /// takes no lock.
    pub fn move_to_local(
        &mut self,
        core: &mut Core<'_>,
        queue: QueueIndex,
        (cpu, is_first): (CpuId, bool),
    ) -> Option<TaskId> {
        let mut at = self.queues.first(queue);
        if at.is_some() {
            self.pass_lock(core, queue);
        }
        while let Some(task) = at {
            if core.may_run_on(task, cpu) {
                self.queues.remove(task);
                self.leave_custody(task);
                self.bring(core, task, cpu, MigrationKind::Steal);
                let _ = self.queues.insert(self.local(cpu), task, is_first);
                if self.is_user(queue) {
                    core.decide(self.decisions.moved, task, i64::from(cpu.0));
                }
                return Some(task);
            }
            at = self.queues.after(task);
        }
        None
    }

    /// Does what `dispatch` has asked for.
    pub(crate) fn flush_buffer(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for Buffered { task, custody, insertion } in buffer.drain(..) {
            let state = &self.tasks[task.index()];
            let still_there = state.in_custody && state.custody == custody && self.queues.of(task).is_none();
            if still_there {
                self.carry_out(core, task, cpu, insertion);
            }
        }
        self.buffer = buffer;
    }

    /// Does what had to wait for a moment at which no CPU is between two tasks: insertions into other CPUs' local queues, and kicks.
    pub fn settle(&mut self, core: &mut Core<'_>) {
        if self.deferred.is_empty() && self.kicks.is_empty() {
            return;
        }
        let mut deferred = std::mem::take(&mut self.deferred);
        for task in deferred.drain(..) {
            if let Some(verdict) = self.tasks[task.index()].verdict.take() {
                let cpu = core.task(task).cpu();
                self.carry_out(core, task, cpu, verdict);
            }
        }
        self.deferred = deferred;
        // Before the run CPUs are not asked to look.
        if self.before_ns > 0 {
            return;
        }
        let mut kicks = std::mem::take(&mut self.kicks);
        for (cpu, kick) in kicks.drain(..) {
            self.kick(core, cpu, kick);
        }
        self.kicks = kicks;
    }

    /// Whether tasks of a policy are of this class (`task_should_scx`, which nobody asks about real-time and deadline tasks).
    pub(crate) fn takes(&self, policy: Policy) -> bool {
        !policy.is_realtime() && (!self.table.flags.has(OperationFlags::SWITCH_PARTIAL) || policy == Policy::Ext)
    }

    /// `kick_one_cpu`. Who waits does so for a task of the class on another CPU; one that a class above has is left alone.
    fn kick(&mut self, core: &mut Core<'_>, cpu: CpuId, kick: Kick) {
        let runs = core.curr(cpu);
        if !runs.is_idle() && (kick == Kick::Idle || !self.takes(core.task(runs).policy())) {
            return;
        }
        if let Some(curr) = self.curr(core, cpu) {
            if matches!(kick, Kick::Preempt | Kick::PreemptAndWait) {
                self.entities.set_slice_ns(curr, 0);
            }
            let this_cpu = core.this_cpu();
            if matches!(kick, Kick::Wait | Kick::PreemptAndWait) && this_cpu != cpu {
                let waits_ns = core.machine().costs().ipi_ns[core.relation(this_cpu, cpu)];
                core.charge(this_cpu, waits_ns, OverheadKind::Wakeup);
            }
        }
        core.resched_full(cpu);
    }

    /// The program ends: it is bypassed from now on, and at the end of this moment it is gone. The first reason stays.
    pub fn fail(&mut self, core: &mut Core<'_>, kind: ExitKind, code: i64, message: String) {
        if self.exit.is_some() {
            return;
        }
        let (cpu, time_ns) = (core.this_cpu(), core.now_ns());
        self.exit = Some(ExitInfo { kind, code, cpu, time_ns, message, dump: String::new() });
        core.start_timer(cpu, 0, EJECT);
    }

    /// A CPU was selected for a task. A kernel says so when one wakes, not when it is new.
    pub(crate) fn note_selected(&mut self, task: TaskId, cpu: CpuId, flags: WakeFlags) {
        self.tasks[task.index()].selected = (!flags.fork).then_some(cpu);
    }

    pub(crate) fn count(&mut self, event: Event, by: u64) {
        self.events.counts[event as usize] += by;
        if self.has(Operation::SchedExt) {
            self.events.passed.push((event, by));
        }
    }

    /// The default slice for a task (`refill_task_slice_dfl`).
    pub(crate) fn default_slice(&mut self, task: TaskId) {
        self.entities.set_slice_ns(task, SLICE_DEFAULT_NS);
        self.count(Event::RefillSliceDfl, 1);
    }

    /// The same for a task that has none left.
    pub(crate) fn refill(&mut self, task: TaskId) {
        if self.entities.slice_ns(task) == 0 {
            self.default_slice(task);
        }
    }

    /// A task goes to its CPU's local queue without the program, with a whole slice (`do_enqueue_task`).
    pub(crate) fn pass_by_program(
        &mut self,
        core: &mut Core<'_>,
        (cpu, task): (CpuId, TaskId),
        skipped: Option<Event>,
    ) {
        if let Some(event) = skipped.filter(|_| core.active().contains(cpu)) {
            self.count(event, 1);
        }
        self.tasks[task.index()].verdict = None;
        self.default_slice(task);
        self.insert_local(core, task, cpu, EnqueueFlags::default());
    }

    /// Ends with an error if a runnable task has waited too long.
    pub(crate) fn check_stall(&mut self, core: &mut Core<'_>) {
        let timeout_ns = self.timeout_ns();
        let waits = |task: &ExtTask| {
            task.queued && task.runnable_since_ns.is_some_and(|since| core.now_ns() - since > timeout_ns)
        };
        if let Some(task) = self.tasks.iter().position(waits) {
            let waited_ns = core.now_ns() - self.tasks[task].runnable_since_ns.unwrap_or(0);
            let (seconds, ms) = (waited_ns / 1_000_000_000, waited_ns / 1_000_000 % 1000);
            let message = format!("{} failed to run for {seconds}.{ms:03}s", core.task_name(TaskId(task as u32)));
            self.fail(core, ExitKind::Stall, 0, message);
        }
    }

    pub(crate) fn timeout_ns(&self) -> u64 {
        u64::from(self.table.timeout_ms.clamp(1, 30_000)) * 1_000_000
    }
}
