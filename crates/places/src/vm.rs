//! The virtual machine as a place to run trials: a real Linux kernel on a machine of any shape.
//!
//! - [`kernel`], [`fetch`]: a kernel, checked; Debian's through the system's package manager.
//! - [`layout`]: a machine as QEMU can build it; the guest's machine compared with it.
//! - [`select`]: which QEMU, kernel and execution.
//! - [`qemu`], [`boot`], [`initramfs`], [`agent`]: a guest from start to end, watched.
//! - [`record`]: what guests were made of, to go on with a run.
//! - [`place`]: all of it as a place.
//! - [`trial`], [`settings`]: runs in a guest, and trials made of them; schedulers as settings of a kernel.
//! - [`libraries`], [`command`]: programs of the host in a guest.
//!
//! What it shows and what it cannot: `docs/models/vm.md`. The program inside the guest is crate `agent`.

mod actions;
pub mod agent;
pub mod boot;
mod calls;
pub mod command;
mod costs;
pub mod fetch;
pub mod initramfs;
pub mod kernel;
pub mod layout;
pub mod libraries;
pub mod place;
pub mod programs;
pub mod qemu;
pub mod record;
pub mod select;
pub mod settings;
pub mod trial;

use std::path::PathBuf;

use crate::files::FileError;

/// Why something with a guest failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum VmError {
    /// QEMU is not there.
    #[error("no QEMU: {reason}")]
    NoQemu { reason: String },
    #[error("this program was built without its guest agent: {reason}")]
    NoAgent { reason: String },
    #[error("no cache directory: neither XDG_CACHE_HOME nor HOME is set to an absolute path")]
    NoCache,
    /// There is no kernel.
    #[error("no kernel: {reason}")]
    NoKernel { reason: String },
    /// A kernel cannot be used.
    #[error("{path}: {reason}", path = path.display())]
    Kernel { path: PathBuf, reason: String },
    #[error("cannot fetch a kernel: {reason}")]
    Fetch { reason: String },
    #[error("machine {machine} cannot be built by QEMU: {reason}")]
    Machine { machine: String, reason: String },
    #[error("the guest is another machine than was asked for: {difference}")]
    Topology { difference: String },
    #[error("cannot start a guest: {reason}")]
    Start { reason: String },
    #[error("the host's virtualisation cannot run a guest: {reason}")]
    Acceleration { reason: String },
    #[error("the guest died: {reason}\nits last lines:\n{console}")]
    Died {
        /// The kernel's reason, if it gave one.
        reason: String,
        console: String,
    },
    #[error("the guest was not done within {seconds} s and was killed; its last lines:\n{console}")]
    Hung { seconds: u64, console: String },
    #[error("the guest sent {bytes} bytes, which no run does, and was killed")]
    Flood { bytes: u64 },
    #[error("the guest's channel: {reason}")]
    Protocol { reason: String },
    /// The guest says what went wrong.
    #[error("in the guest: {reason}")]
    Guest { reason: String },
    #[error("the trial is invalid, its scheduler did not schedule: {reason}")]
    Ejected { reason: String },
    #[error("the run cannot go on: {what}")]
    Changed {
        /// What it was and what it is.
        what: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A real kernel does not have the scheduler.
    #[error("scheduler `{scheduler}`: {reason}")]
    Scheduler { scheduler: String, reason: String },
    /// A guest cannot run the workload.
    #[error("workload {workload}: {reason}")]
    Workload { workload: String, reason: String },
    /// A program cannot be put into a guest.
    #[error("{path}: {reason}", path = path.display())]
    Program { path: PathBuf, reason: String },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl VmError {
    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NoQemu { .. } => "apt-get install qemu-system-x86; `warmcore doctor vm` checks the rest",
            Self::NoAgent { .. } => "a static C library is needed at build time (Debian: libc6-dev); then build again",
            Self::NoCache => "set HOME or XDG_CACHE_HOME",
            Self::NoKernel { .. } | Self::Fetch { .. } => {
                "`warmcore doctor vm --fetch-kernel` fetches one; `--on vm:kernel=FILE,config=FILE` uses one of your own"
            }
            Self::Kernel { .. } => {
                "choose another kernel with kernel=FILE; `warmcore list kernels` lists those in the cache"
            }
            Self::Machine { .. } => "choose another machine: `warmcore list machines`",
            Self::Topology { .. } => "this QEMU places caches differently; `warmcore doctor vm` prints its version",
            Self::Start { .. } => "`warmcore doctor vm` checks this computer",
            Self::Acceleration { .. } => "run without it: `--on vm:virtual-time`",
            Self::Died { .. } => "`warmcore vm` with the same machine shows whether it boots at all",
            Self::Hung { .. } => "a larger limit (`--on vm:boot-limit=TIME`), a shorter workload, or fewer CPUs",
            Self::Flood { .. } | Self::Protocol { .. } => "this is a fault of this program: please report it",
            Self::Guest { .. } => "see its words; `warmcore vm` prints what the kernel offers",
            Self::Scheduler { .. } => "`warmcore scheduler NAME` lists tunables; a real kernel has most of them",
            Self::Workload { .. } => "change the workload or the machine so that they fit together",
            Self::Program { .. } => "give a program built for x86-64 Linux, with its libraries installed here",
            Self::Ejected { .. } => "see the scheduler's words; run it by hand in `warmcore vm --shell`",
            Self::Changed { .. } => "start the experiment again, in another directory",
            Self::Interrupted => "run it again",
            Self::File(error) => error.advice(),
        }
    }
}
