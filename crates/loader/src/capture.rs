//! One loader, from its start to the moment it attaches.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
#[cfg(target_arch = "x86_64")]
use warmcore_scx::bytecode::Host;
use warmcore_scx::bytecode::{Need, NeedKind, Object, ObjectError};
use warmcore_topology::Machine;

use crate::kernel::TargetKernel;
#[cfg(target_arch = "x86_64")]
use crate::server::{Server, Stopped};

/// What to start, and before what.
#[derive(Clone, Copy, Debug)]
pub struct CaptureRequest<'a> {
    /// The loader.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
    /// The machine it is shown.
    pub machine: &'a Machine,
    /// The kernel it is shown.
    pub kernel: &'a TargetKernel,
    /// How long it may take until it attaches.
    pub timeout: Duration,
    /// The files that it reads of the machine ([`MachineFiles`](crate::MachineFiles)).
    pub files: &'a Path,
    /// How it finds them.
    pub paths: Paths,
    /// Whether the runs model the memory, so that its counters can count instructions, cycles and lines.
    pub counts_memory: bool,
}

/// How a loader finds the files of the machine. It sees the same in all ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Paths {
    /// Its system calls with a path are answered. Nothing is needed for it but what all of this needs.
    #[default]
    Answered,
    /// They are mounted where it looks, in namespaces of its own.
    Mounted,
    /// Mounted where the system allows it, answered elsewhere.
    Either,
    /// Mounted; it has no network then, and can change no file. Sockets in the file system it may still speak with, and processes it may signal.
    Confined,
}

/// What a loader has loaded.
pub struct Capture {
    /// The scheduler.
    pub object: Arc<Object>,
    /// What it needs of the kernel, by kind and name: of kinds of maps and of programs all that the loader asked for.
    pub needs: Vec<Need>,
}

impl Capture {
    /// What it needs and what is not modelled.
    pub fn missing(&self) -> impl Iterator<Item = &Need> {
        self.needs.iter().filter(|need| !need.is_modelled)
    }

    /// Without these it cannot be run at all: it has maps of kinds that are not modelled.
    pub fn missing_maps(&self) -> impl Iterator<Item = &Need> {
        self.missing().filter(|need| need.kind == NeedKind::MapKind)
    }
}

/// Why there is nothing to run.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum LoaderError {
    /// It cannot be started.
    #[error("`{program}` cannot be started: {source}")]
    Start { program: String, source: io::Error },
    /// The system forbids what is needed.
    #[error("system calls of `{program}` cannot be answered here: {what}: {source}")]
    Forbidden { program: String, what: &'static str, source: io::Error },
    /// It ended before it attached a scheduler.
    #[error(
        "`{program}` ended ({status}) before it attached a scheduler{}; it said last: {said}",
        not_modelled(missing)
    )]
    Ended {
        program: String,
        status: String,
        said: String,
        /// What it had asked for that is not modelled.
        missing: Vec<Need>,
    },
    /// It did not attach a scheduler in time.
    #[error("`{program}` has not attached a scheduler within {seconds} s; it said last: {said}")]
    Hangs { program: String, seconds: u64, said: String },
    /// It prints without an end.
    #[error("`{program}` prints without an end, and has attached no scheduler; it said last: {said}")]
    Floods { program: String, said: String },
    /// What it loads cannot be run.
    #[error("`{program}`: {source}")]
    Object { program: String, source: ObjectError },
    /// The files of the machine cannot be written.
    #[error("the files that loaders read of the machine cannot be written: {source}")]
    Files { source: io::Error },
    /// Machines whose CPUs have gaps in their numbers.
    #[error("`{program}` needs a machine whose CPUs are numbered without gaps; {machine} has others")]
    Numbers { program: String, machine: String },
    /// Only one kind of computer can do it.
    #[error("`{program}` can be run on x86-64 computers only")]
    Architecture { program: String },
}

/// In words.
fn not_modelled(missing: &[Need]) -> String {
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!(" (not modelled of what it asked for: {})", names.join(", ")) }
}

/// Runs a loader until it attaches its scheduler, in this process.
///
/// # Errors
/// When it cannot be started, ends, hangs, or loads what cannot be run.
#[cfg(target_arch = "x86_64")]
pub fn capture(request: &CaptureRequest<'_>) -> Result<Capture, LoaderError> {
    Ok(crate::start(request, || Ok(()))?.capture)
}

/// What there is of a loader when it has attached, or is no longer answered: who answers it, what it loaded into, and why.
#[cfg(target_arch = "x86_64")]
type Begun = (Server, Box<Host>, Stopped);

/// Starts a loader and answers it until it attaches.
#[cfg(target_arch = "x86_64")]
pub fn begin(request: &CaptureRequest<'_>, seal: impl FnOnce() -> io::Result<()>) -> Result<Begun, LoaderError> {
    let program = request.program.display().to_string();
    if request.machine.cpus().any(|cpu| request.machine.os_index(cpu) != cpu.0) {
        return Err(LoaderError::Numbers { program, machine: request.machine.name().to_owned() });
    }
    crate::server::begin(request, seal)
}

/// Runs a loader until it attaches its scheduler.
///
/// # Errors
/// Always: this computer is of a kind whose system calls are not known here.
#[cfg(not(target_arch = "x86_64"))]
pub fn capture(request: &CaptureRequest<'_>) -> Result<Capture, LoaderError> {
    Err(LoaderError::Architecture { program: request.program.display().to_string() })
}
