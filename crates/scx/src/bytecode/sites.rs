//! Where programs of tracing may be attached so that they are called: functions by their entry or return, and tracepoints.
//!
//! A program elsewhere is loaded and never called. Some places no task of a workload passes: its calls are others ([`Site::is_passed_by_nobody`]). Source of the arguments: the prototypes of Linux 7.2 (`kernel/futex/futex.h`, `kernel/sched/ext.h`,
//! `include/trace/events/irq.h`, `include/trace/events/sched.h`); of their form: `docs/spec/bpf-runtime.md` section 6.

use std::sync::Arc;

use warmcore_kernel::Hook;
use warmcore_topology::CpuId;
use warmcore_trace::{PrevState, TaskId};

use crate::bytecode::helpers::{EINVAL, EOPNOTSUPP, error};
use crate::bytecode::host::Host;
use crate::bytecode::operations::Bytecode;
use crate::bytecode::tracepoints::{RECORD, RECORD_BYTES, Tracepoint, Value};
use crate::events::Traced;
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;

/// How a program is attached (`enum bpf_attach_type`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum AttachType {
    /// At a tracepoint, by the name of its type.
    RawTracepoint = 23,
    /// At the entry of a function.
    Entry = 24,
    /// At the return of a function.
    Return = 25,
}

impl AttachType {
    /// By its number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::RawTracepoint, Self::Entry, Self::Return].into_iter().find(|known| *known as u32 == number)
    }
}

/// What a program at a place is called with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CalledWith {
    /// What the function or tracepoint is given, eight bytes each.
    Arguments,
    /// The tracepoint's record ([`Tracepoint`]).
    Record,
}

/// A place at which programs are called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)] // Their names are in the table.
pub enum Site {
    SchedSwitch,
    FutexWait,
    FutexWaitReturn,
    FutexWake,
    FutexWakeReturn,
    IrqHandlerEntry,
    IrqHandlerExit,
    SoftirqEntry,
    SoftirqExit,
    SchedWaking,
    SchedWakeup,
    SchedWakeupNew,
    SchedMigrateTask,
    SchedProcessFork,
    SchedProcessExit,
    /// No task passes it: a program that runs stays the same.
    SchedProcessExec,
    SchedExtDump,
    SchedExtEvent,
    Tick,
}

impl Site {
    /// How many there are.
    pub const COUNT: usize = Self::Tick as usize + 1;

    /// All of them, by how a program is attached and what to.
    pub const ALL: [(AttachType, &'static str, Self); Self::COUNT] = [
        (AttachType::RawTracepoint, "btf_trace_sched_switch", Self::SchedSwitch),
        (AttachType::Entry, "__futex_wait", Self::FutexWait),
        (AttachType::Return, "__futex_wait", Self::FutexWaitReturn),
        (AttachType::Entry, "futex_wake", Self::FutexWake),
        (AttachType::Return, "futex_wake", Self::FutexWakeReturn),
        (AttachType::RawTracepoint, "btf_trace_irq_handler_entry", Self::IrqHandlerEntry),
        (AttachType::RawTracepoint, "btf_trace_irq_handler_exit", Self::IrqHandlerExit),
        (AttachType::RawTracepoint, "btf_trace_softirq_entry", Self::SoftirqEntry),
        (AttachType::RawTracepoint, "btf_trace_softirq_exit", Self::SoftirqExit),
        (AttachType::RawTracepoint, "btf_trace_sched_waking", Self::SchedWaking),
        (AttachType::RawTracepoint, "btf_trace_sched_wakeup", Self::SchedWakeup),
        (AttachType::RawTracepoint, "btf_trace_sched_wakeup_new", Self::SchedWakeupNew),
        (AttachType::RawTracepoint, "btf_trace_sched_migrate_task", Self::SchedMigrateTask),
        (AttachType::RawTracepoint, "btf_trace_sched_process_fork", Self::SchedProcessFork),
        (AttachType::RawTracepoint, "btf_trace_sched_process_exit", Self::SchedProcessExit),
        (AttachType::RawTracepoint, "btf_trace_sched_process_exec", Self::SchedProcessExec),
        (AttachType::RawTracepoint, "btf_trace_sched_ext_dump", Self::SchedExtDump),
        (AttachType::RawTracepoint, "btf_trace_sched_ext_event", Self::SchedExtEvent),
        (AttachType::Entry, "scx_tick", Self::Tick),
    ];

    /// The place that a program is attached to, if it is one.
    #[must_use]
    pub fn find(attach_type: u32, target: &str) -> Option<Self> {
        let how = AttachType::from_number(attach_type)?;
        Self::ALL.iter().find(|(known, name, _)| *known == how && *name == target).map(|(.., site)| *site)
    }

    /// Whether a place is one that a kernel has and no task passes: no step of a workload waits for several words (`futex_waitv`), for a word that
    /// inherits priorities or with one to wake another, and tasks have their names from the beginning.
    #[must_use]
    pub fn is_passed_by_nobody(attach_type: u32, target: &str) -> bool {
        const FUNCTIONS: [&str; 5] =
            ["futex_wait_multiple", "futex_wait_requeue_pi", "futex_wake_op", "futex_lock_pi", "futex_unlock_pi"];
        match AttachType::from_number(attach_type) {
            Some(AttachType::RawTracepoint) => target == "btf_trace_task_rename",
            Some(AttachType::Entry | AttachType::Return) => FUNCTIONS.contains(&target),
            None => false,
        }
    }

    /// What calls of its programs count as.
    pub(super) const fn operation(self) -> Operation {
        match self {
            Self::SchedSwitch => Operation::SchedSwitch,
            Self::FutexWait | Self::FutexWaitReturn | Self::FutexWake | Self::FutexWakeReturn => Operation::Futex,
            Self::IrqHandlerEntry | Self::IrqHandlerExit | Self::SoftirqEntry | Self::SoftirqExit => {
                Operation::Interrupt
            }
            Self::SchedWaking | Self::SchedWakeup | Self::SchedWakeupNew => Operation::SchedWakeup,
            Self::SchedMigrateTask => Operation::SchedMigrateTask,
            Self::SchedProcessFork | Self::SchedProcessExit | Self::SchedProcessExec => Operation::SchedProcess,
            Self::SchedExtDump | Self::SchedExtEvent => Operation::SchedExt,
            Self::Tick => Operation::KernelTick,
        }
    }
}

/// What a handler gives that has found its device's interrupt.
const IRQ_HANDLED: u64 = 1;

/// What a function or tracepoint is given at a place.
struct Arguments {
    site: Site,
    values: [u64; 5],
    count: usize,
    /// What the function gives, at its return.
    result: Option<u64>,
}

impl Arguments {
    /// `FLAGS_SIZE_32`: a private word of four bytes.
    const FUTEX_FLAGS: u64 = 2;

    /// `FUTEX_BITSET_MATCH_ANY`.
    const ANY: u64 = 0xffff_ffff;

    /// `first` and `second` are the addresses of the structures that it is about ([`Bytecode::structures_of`]).
    fn of(hook: Hook, [first, second]: [u64; 2]) -> Self {
        let new = |site, values: &[u64], result: Option<u64>| {
            let mut all = [0; 5];
            all[..values.len()].copy_from_slice(values);
            Self { site, values: all, count: values.len(), result }
        };
        let wait = |word: u64, value: u32| [word, Self::FUTEX_FLAGS, value.into(), 0, Self::ANY];
        let wake = |word: u64, most: u32| [word, Self::FUTEX_FLAGS, most.into(), Self::ANY];
        match hook {
            Hook::FutexWait { word, value } => new(Site::FutexWait, &wait(word, value), None),
            Hook::FutexWaitReturn { word, value, result } => {
                new(Site::FutexWaitReturn, &wait(word, value), Some(i64::from(result) as u64))
            }
            Hook::FutexWake { word, most } => new(Site::FutexWake, &wake(word, most), None),
            Hook::FutexWakeReturn { word, most, woken } => {
                new(Site::FutexWakeReturn, &wake(word, most), Some(woken.into()))
            }
            // The interrupt's own description is not there; the handler says that it was its device's.
            Hook::IrqHandlerEntry { irq } => new(Site::IrqHandlerEntry, &[irq.into(), 0], None),
            Hook::IrqHandlerExit { irq } => new(Site::IrqHandlerExit, &[irq.into(), 0, IRQ_HANDLED], None),
            Hook::Tick => new(Site::Tick, &[first], None),
            Hook::SoftirqEntry { vector } => new(Site::SoftirqEntry, &[vector.into()], None),
            Hook::SoftirqExit { vector } => new(Site::SoftirqExit, &[vector.into()], None),
            Hook::SchedWaking { .. } => new(Site::SchedWaking, &[first], None),
            Hook::SchedWakeup { .. } => new(Site::SchedWakeup, &[first], None),
            Hook::SchedWakeupNew { .. } => new(Site::SchedWakeupNew, &[first], None),
            Hook::SchedMigrateTask { to, .. } => new(Site::SchedMigrateTask, &[first, to.0.into()], None),
            Hook::SchedProcessFork { .. } => new(Site::SchedProcessFork, &[first, second], None),
            Hook::SchedProcessExit { group_dead, .. } => new(Site::SchedProcessExit, &[first, group_dead.into()], None),
        }
    }

    fn values(&self) -> &[u64] {
        &self.values[..self.count]
    }
}

/// Where arguments of programs of tracing lie in the scratch memory: behind those of operations.
const PLACE: u64 = 1024;

/// Before them: how many there are, and whether a result follows them.
const COUNT: u64 = 8;
const HAS_RESULT: u64 = 16;

/// What a CPU passes.
#[derive(Clone, Copy)]
enum Passed<'a> {
    Switch { prev: TaskId, state: PrevState, next: TaskId },
    Hook(Hook),
    Class(Traced<'a>),
}

/// What the function or tracepoint of a place is given, and what the function gives.
type Given<'a> = (&'a [u64], Option<u64>);

impl Bytecode {
    /// The CPU switches. Whoever leaves is the current task until that is done, and the run queue has the other already (`__schedule`).
    pub(super) fn pass_switch(
        &mut self,
        kernel: &mut Kfuncs<'_, '_>,
        (prev, state): (TaskId, PrevState),
        next: TaskId,
    ) {
        self.count_switch(kernel, prev, next);
        // `TASK_RUNNING`, `TASK_INTERRUPTIBLE`, `TASK_DEAD`. Nothing preempts within the kernel here, where the first argument says so.
        let number = match state {
            PrevState::Runnable | PrevState::Idle => 0,
            PrevState::Sleeping => 1,
            PrevState::Dead => 0x80,
        };
        let [leaves, comes] = [prev, next].map(|task| self.task(kernel, task));
        let passed = Passed::Switch { prev, state, next };
        self.host.leaves = Some(prev);
        self.call_programs_at(kernel, Site::SchedSwitch, (&[0, leaves, comes, number][..], None), passed);
        self.host.leaves = None;
    }

    /// The CPU passes another place.
    pub(super) fn pass_hook(&mut self, kernel: &mut Kfuncs<'_, '_>, hook: Hook) {
        let arguments = Arguments::of(hook, self.structures_of(kernel, hook));
        self.host.write_context(kernel.this_cpu(), hook.is_in_interrupt());
        if let Hook::SchedMigrateTask { task, from, .. } = hook {
            // It has not moved yet (`set_task_cpu`).
            self.catch_up(kernel);
            self.host.write_task_cpu(task, from);
        }
        self.call_programs_at(kernel, arguments.site, (arguments.values(), arguments.result), Passed::Hook(hook));
        if let Hook::SchedMigrateTask { task, to, .. } = hook {
            self.host.write_task_cpu(task, to);
        }
        self.host.write_context(kernel.this_cpu(), false);
    }

    /// The class passes one of its own.
    pub(super) fn pass_traced(&mut self, kernel: &mut Kfuncs<'_, '_>, traced: Traced<'_>) {
        let (site, text, by) = match traced {
            Traced::Event(event, by) => (Site::SchedExtEvent, event.name(), Some(by)),
            Traced::DumpLine(line) => (Site::SchedExtDump, line, None),
        };
        // Behind where a record is written.
        let at = self.host.kept.scratch + RECORD + RECORD_BYTES;
        self.host.store_text(at, text, RECORD_BYTES);
        let arguments = [at, by.unwrap_or(0)];
        let count = 1 + usize::from(by.is_some());
        self.call_programs_at(kernel, site, (&arguments[..count], None), Passed::Class(traced));
    }

    /// Addresses of the structures that a pass is about, as its place is given them.
    fn structures_of(&mut self, kernel: &mut Kfuncs<'_, '_>, hook: Hook) -> [u64; 2] {
        match hook {
            Hook::Tick => [self.host.run_queue(kernel.this_cpu().0), 0],
            Hook::SchedWaking { task, .. }
            | Hook::SchedWakeup { task, .. }
            | Hook::SchedWakeupNew { task }
            | Hook::SchedMigrateTask { task, .. }
            | Hook::SchedProcessExit { task, .. } => [self.task(kernel, task), 0],
            Hook::SchedProcessFork { parent, child } => [parent, child].map(|task| self.task(kernel, task)),
            _ => [0; 2],
        }
    }

    /// Writes down what has changed of what programs read.
    fn catch_up(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        self.host.kernel = Some(std::ptr::from_mut(kernel).cast());
        self.host.catch_up();
        self.host.kernel = None;
    }

    fn call_programs_at(
        &mut self,
        kernel: &mut Kfuncs<'_, '_>,
        site: Site,
        (arguments, result): Given<'_>,
        passed: Passed<'_>,
    ) {
        let object = Arc::clone(&self.object);
        for &(program, with) in &object.at[site as usize] {
            let context = match (with, Tracepoint::at(site)) {
                (CalledWith::Record, Some(tracepoint)) => self.record(kernel, tracepoint, passed),
                _ => self.host.write_arguments(arguments, result),
            };
            self.enter(kernel, site.operation(), (program.0 as usize, 0), [context, 0, 0, 0, 0]);
        }
    }

    /// Writes the record that a pass leaves; gives where.
    fn record(&mut self, kernel: &mut Kfuncs<'_, '_>, tracepoint: &Tracepoint, passed: Passed<'_>) -> u64 {
        // It says of tasks what programs read of them.
        self.catch_up(kernel);
        match passed {
            Passed::Switch { prev, state, next } => {
                let state = self.host.state_in_record(prev, state);
                let [prev, next] = [prev, next].map(|task| self.host.in_record(kernel, task));
                let [prev_comm, next_comm] = [&prev, &next].map(|task| Value::Text(&task.0));
                let [prev_pid, prev_prio] = [prev.1, prev.2].map(Value::Number);
                let [next_pid, next_prio] = [next.1, next.2].map(Value::Number);
                let values = [prev_comm, prev_pid, prev_prio, Value::Number(state), next_comm, next_pid, next_prio];
                self.host.write_record(tracepoint, &values)
            }
            Passed::Hook(Hook::IrqHandlerEntry { irq }) => {
                let interrupt = kernel.machine().background().interrupts.get(irq as usize);
                let name = interrupt.map_or("", |interrupt| interrupt.name.as_str());
                self.host.write_record(tracepoint, &[Value::Number(irq.into()), Value::Text(name)])
            }
            Passed::Hook(Hook::IrqHandlerExit { irq }) => {
                self.host.write_record(tracepoint, &[Value::Number(irq.into()), Value::Number(IRQ_HANDLED)])
            }
            Passed::Hook(
                Hook::SchedWaking { task, .. } | Hook::SchedWakeup { task, .. } | Hook::SchedWakeupNew { task },
            ) => {
                let cpu = kernel.task_cpu(task).0;
                self.record_of_task(kernel, tracepoint, task, &[cpu.into()])
            }
            Passed::Hook(Hook::SchedMigrateTask { task, from, to }) => {
                self.record_of_task(kernel, tracepoint, task, &[from.0.into(), to.0.into()])
            }
            Passed::Hook(Hook::SchedProcessExit { task, group_dead }) => {
                self.record_of_task(kernel, tracepoint, task, &[group_dead.into()])
            }
            Passed::Hook(Hook::SchedProcessFork { parent, child }) => {
                let [parent, child] = [parent, child].map(|task| self.host.in_record(kernel, task));
                let [parent_comm, child_comm] = [&parent, &child].map(|task| Value::Text(&task.0));
                let [parent_pid, child_pid] = [parent.1, child.1].map(Value::Number);
                self.host.write_record(tracepoint, &[parent_comm, parent_pid, child_comm, child_pid])
            }
            Passed::Class(Traced::Event(event, by)) => {
                self.host.write_record(tracepoint, &[Value::Text(event.name()), Value::Number(by)])
            }
            Passed::Class(Traced::DumpLine(line)) => self.host.write_record(tracepoint, &[Value::Text(line)]),
            // Softirqs: what the tracepoint is given.
            Passed::Hook(hook) => {
                let arguments = Arguments::of(hook, [0; 2]);
                let values: Vec<Value<'_>> = arguments.values().iter().copied().map(Value::Number).collect();
                self.host.write_record(tracepoint, &values)
            }
        }
    }
}

impl Bytecode {
    /// Writes a record that begins with name, number and priority of a task.
    fn record_of_task(&mut self, kernel: &Kfuncs<'_, '_>, tracepoint: &Tracepoint, task: TaskId, more: &[u64]) -> u64 {
        let (comm, pid, prio) = self.host.in_record(kernel, task);
        let mut values = vec![Value::Text(&comm), Value::Number(pid), Value::Number(prio)];
        values.extend(more.iter().copied().map(Value::Number));
        self.host.write_record(tracepoint, &values)
    }
}

impl Host {
    /// Writes on which CPU a task is, for programs that read it.
    fn write_task_cpu(&mut self, task: TaskId, cpu: CpuId) {
        let at = self.task_address(task);
        self.store_member(at, self.kept.layout.task_cpu, cpu.0);
    }

    /// Name, number and priority of a task, as records have them.
    fn in_record(&self, kernel: &Kfuncs<'_, '_>, task: TaskId) -> (String, u64, u64) {
        let (at, layout) = (self.task_address(task), &self.kept.layout);
        let load = |member: u64| u64::from(self.maps.memory.load_u32(at + member));
        // Each CPU has an idle task of its own.
        let comm =
            if task.is_idle() { format!("swapper/{}", kernel.this_cpu().0) } else { kernel.core.comm(task).to_owned() };
        (comm, load(layout.pid), load(layout.prio))
    }

    /// The state in which a task leaves, as records have it (`__trace_sched_switch_state`): who is dead is `EXIT_DEAD` as a thread, and `EXIT_ZOMBIE` as
    /// a process, for which its parent waits.
    fn state_in_record(&self, task: TaskId, state: PrevState) -> u64 {
        let at = self.task_address(task);
        match state {
            PrevState::Runnable | PrevState::Idle => 0,
            PrevState::Sleeping => 1,
            PrevState::Dead if self.maps.memory.load_u64(at + self.kept.layout.group_leader) == at => 0x20,
            PrevState::Dead => 0x10,
        }
    }

    /// Writes what a program is called with; gives where.
    fn write_arguments(&mut self, arguments: &[u64], result: Option<u64>) -> u64 {
        let context = self.kept.scratch + PLACE;
        self.store_u64(context - COUNT, arguments.len() as u64);
        self.store_u64(context - HAS_RESULT, result.is_some().into());
        for (number, &value) in arguments.iter().chain(&result).enumerate() {
            self.store_u64(context + 8 * number as u64, value);
        }
        context
    }

    /// `bpf_get_func_arg`.
    pub(super) fn func_arg(&mut self, context: u64, number: u32, to: u64) -> u64 {
        if u64::from(number) >= self.func_arg_cnt(context) {
            return error(EINVAL);
        }
        let value = self.maps.memory.load_u64(context + 8 * u64::from(number));
        self.store_u64(to, value);
        0
    }

    /// `bpf_get_func_ret`: only at a return is there one.
    pub(super) fn func_ret(&mut self, context: u64, to: u64) -> u64 {
        if self.maps.memory.load_u64(context - HAS_RESULT) == 0 {
            return error(EOPNOTSUPP);
        }
        let value = self.maps.memory.load_u64(context + 8 * self.func_arg_cnt(context));
        self.store_u64(to, value);
        0
    }

    /// `bpf_get_func_arg_cnt`.
    pub(super) fn func_arg_cnt(&self, context: u64) -> u64 {
        self.maps.memory.load_u64(context - COUNT)
    }
}
