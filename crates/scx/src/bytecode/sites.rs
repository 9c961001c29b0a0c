//! Where programs of tracing may be attached so that they are called: functions by their entry or return, and tracepoints.
//!
//! A program elsewhere is loaded and never called. Some places no task of a workload passes: its calls are others ([`Site::is_passed_by_nobody`]). Source of the arguments: the prototypes of Linux 7.2 (`kernel/futex/futex.h`, `kernel/sched/ext.h`,
//! `include/trace/events/irq.h`); of their form: `docs/spec/bpf-runtime.md` section 6.

use std::sync::Arc;

use warmcore_kernel::Hook;

use crate::bytecode::helpers::{EINVAL, EOPNOTSUPP, error};
use crate::bytecode::host::Host;
use crate::bytecode::operations::Bytecode;
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
            Self::Tick => Operation::KernelTick,
        }
    }
}

/// What a program is called with at a place.
pub(super) struct Arguments {
    pub site: Site,
    values: [u64; 5],
    count: usize,
    /// What the function gives, at its return.
    pub result: Option<u64>,
}

impl Arguments {
    /// `FLAGS_SIZE_32`: a private word of four bytes.
    const FUTEX_FLAGS: u64 = 2;

    /// `FUTEX_BITSET_MATCH_ANY`.
    const ANY: u64 = 0xffff_ffff;

    pub fn of(hook: Hook) -> Self {
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
            // The interrupt's own description is not there; the handler says that it was its device's (`IRQ_HANDLED`).
            Hook::IrqHandlerEntry { irq } => new(Site::IrqHandlerEntry, &[irq.into(), 0], None),
            Hook::IrqHandlerExit { irq } => new(Site::IrqHandlerExit, &[irq.into(), 0, 1], None),
            // The run queue, which is known where the program is called.
            Hook::Tick => new(Site::Tick, &[0], None),
            Hook::SoftirqEntry { vector } => new(Site::SoftirqEntry, &[vector.into()], None),
            Hook::SoftirqExit { vector } => new(Site::SoftirqExit, &[vector.into()], None),
        }
    }

    /// Sets the first one.
    pub fn put(&mut self, value: u64) {
        self.values[0] = value;
    }

    pub fn values(&self) -> &[u64] {
        &self.values[..self.count]
    }
}

/// Where arguments of programs of tracing lie in the scratch memory: behind those of operations.
const PLACE: u64 = 1024;

/// Before them: how many there are, and whether a result follows them.
const COUNT: u64 = 8;
const HAS_RESULT: u64 = 16;

impl Bytecode {
    /// Calls the programs at a place, with what a function gave if they are at its return.
    pub(super) fn call_programs_at(
        &mut self,
        kernel: &mut Kfuncs<'_, '_>,
        site: Site,
        arguments: &[u64],
        result: Option<u64>,
    ) {
        let object = Arc::clone(&self.object);
        for &program in &object.at[site as usize] {
            let context = self.host.write_arguments(arguments, result);
            self.enter(kernel, site.operation(), (program.0 as usize, 0), [context, 0, 0, 0, 0]);
        }
    }
}

impl Host {
    /// Writes what a program is called with; gives where.
    pub(super) fn write_arguments(&mut self, arguments: &[u64], result: Option<u64>) -> u64 {
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
