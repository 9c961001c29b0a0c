//! The ext class (sched_ext) on [`Scheduler`](warmcore_kernel::Scheduler): what stands between the kernel and a sched_ext program.
//!
//! A program is an [`Operations`]: native Rust, or [`bytecode`] behind the same trait. It sees the kernel through
//! [`Kfuncs`] only. [`Ext`] calls it in the order of the contract and keeps everything that the kernel keeps: dispatch queues, custody,
//! slices, idle masks, kicks, the watchdog, errors and the exit that follows. To be ejected it stands above another class in a composite.
//!
//! Source: `docs/spec/sched-ext.md`; what is modelled and what is not, `docs/models/scx.md`.

pub mod bytecode;
mod changes;
mod class;
mod decisions;
mod dump;
mod entities;
mod events;
mod exit;
mod groups;
mod idle;
mod kfuncs;
mod operations;
mod policies;
mod queues;
mod state;

pub use class::Ext;
pub use decisions::ExtDecisions;
pub use entities::EntityLayout;
pub use events::{Event, EventCounts, Traced};
pub use exit::{ExitInfo, ExitKind, HOTPLUG, RESTART};
pub use groups::{GroupCall, GroupLimits};
pub use idle::{IdleMasks, Smt};
pub use kfuncs::Kfuncs;
pub use operations::{
    DequeueFlags, EnqueueFlags, Kick, LockUse, Operation, OperationFlags, OperationTable, Operations, PreemptReason,
    SLICE_DEFAULT_NS, SLICE_INFINITE,
};
pub use policies::{Fifo, FifoPerLlc, Vtime};
pub use queues::DsqId;
