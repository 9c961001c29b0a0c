//! CPU schedulers for the simulated kernel, one module per policy, each opening with its source and its deliberate
//! differences.
//!
//! [`stacked`] puts one of them above another. [`domains`] is what all of them may know of a machine's CPUs. [`contention`] holds placements against
//! contention for caches, which need no kernel. [`soak`] looks for stalls and lost tasks. [`list`] names them, [`SchedulerSpec`] is a scheduler with its settings as typed by a user, [`simulate`] runs one.

mod assumed;
mod circumstances;
pub mod contention;
pub mod domains;
pub mod fair;
pub mod fifo;
mod kernel_tunables;
mod realtime;
mod registry;
pub mod rr;
pub mod scx_native;
mod scx_program;
pub mod soak;
mod spec;
pub mod stacked;
mod tunables;
pub mod ule;

pub use circumstances::{Circumstances, kernel_file};
pub use kernel_tunables::KernelTunables;
pub use registry::{LinuxScheduler, SchedulerInfo, list};
pub use scx_native::bytecode_trial;
pub use scx_program::ScxProgram;
pub use spec::{SchedulerSpec, SpecError, decisions, run_tables, scores, simulate};
pub use tunables::{Numbers, Scale, TunableError, TunableInfo, TunableKind, TunableSet};
pub use warmcore_scx::Operation;
pub use warmcore_scx::bytecode::{Bytecode, Need, NeedKind, Usage};
