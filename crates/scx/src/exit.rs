//! Why a program ended (`struct scx_exit_info`).
//!
//! Source: `docs/spec/sched-ext.md` section 11.

use std::fmt;

use warmcore_kernel::EndedBy;
use warmcore_topology::CpuId;

/// Kind of an exit, with the kernel's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitKind {
    /// The program asked for it (`SCX_EXIT_UNREG_BPF`).
    UnregisteredByProgram = 65,
    /// The kernel ended it, which is no fault of its own (`SCX_EXIT_UNREG_KERN`).
    UnregisteredByKernel = 66,
    /// The class found a fault (`SCX_EXIT_ERROR`).
    Error = 1024,
    /// The program said it has an error (`SCX_EXIT_ERROR_BPF`).
    ErrorByProgram = 1025,
    /// A runnable task was not run in time (`SCX_EXIT_ERROR_STALL`).
    Stall = 1026,
}

/// The loader is asked to start the program again (`SCX_ECODE_ACT_RESTART`).
pub const RESTART: i64 = 1 << 48;
/// Because a CPU goes offline or comes online (`SCX_ECODE_RSN_HOTPLUG`).
pub const HOTPLUG: i64 = 1 << 32;

impl ExitKind {
    /// The kernel's words for it.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            ExitKind::UnregisteredByProgram => "unregistered from BPF",
            ExitKind::UnregisteredByKernel => "unregistered from the main kernel",
            ExitKind::Error => "runtime error",
            ExitKind::ErrorByProgram => "scx_bpf_error",
            ExitKind::Stall => "runnable task stall",
        }
    }

    /// Who ends a program so.
    #[must_use]
    pub const fn by(self) -> EndedBy {
        match self {
            ExitKind::UnregisteredByProgram => EndedBy::Itself,
            ExitKind::UnregisteredByKernel => EndedBy::Kernel,
            ExitKind::Error | ExitKind::ErrorByProgram | ExitKind::Stall => EndedBy::Fault,
        }
    }

    /// Whether it is an error.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self as u32 >= ExitKind::Error as u32
    }
}

/// Why a program ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExitInfo {
    /// What kind of end.
    pub kind: ExitKind,
    /// What the program gave as code; 0 for errors that the class found.
    pub code: i64,
    /// Where.
    pub cpu: CpuId,
    /// When, in nanoseconds of simulated time.
    pub time_ns: u64,
    /// What happened, with the names of task and CPU.
    pub message: String,
    /// State of CPUs and runnable tasks, for errors.
    pub dump: String,
}

impl ExitInfo {
    /// Whether the loader is asked to start the program again.
    #[must_use]
    pub fn asks_for_restart(&self) -> bool {
        self.code & RESTART != 0
    }
}

impl fmt::Display for ExitInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ns on {}: {}", self.kind.reason(), self.time_ns, self.cpu, self.message)?;
        match self.asks_for_restart() {
            false => Ok(()),
            true => f.write_str(" (its loader is asked to start it again, and has not)"),
        }
    }
}
