//! The loader of a sched_ext scheduler, unmodified, before a kernel that is not there.
//!
//! A loader is a program of the user's own: it reads the machine from `/sys` and `/proc`, hands bytecode and maps to the kernel by the system
//! call `bpf(2)`, has some of its programs set things up, and attaches the scheduler. [`capture`] starts it with a filter that sends those
//! calls here (seccomp user notification), answers them in the kernel's place, shows it the [simulated machine](warmcore_topology::Machine)
//! instead of this one, and ends it at the moment it attaches. What it has loaded is an [`Object`](warmcore_scx::bytecode::Object).
//!
//! Neither privileges nor namespaces are needed; where namespaces are allowed they can be had ([`Paths`]). The loader runs with the user's rights and can do what the user can do; it is trusted as any
//! program one starts is. Source: `docs/spec/bpf-runtime.md` sections 3, 4 and 10.
//!
//! [`start`] keeps a loader that goes on after it has attached, as its user space is part of the policy: its clocks and waits are then those of
//! the run.
//!
//! [`work_apart`] is for what is done with the object: a simulation in a process of its own, which can harm nothing.
//!
//! Not modelled: other computers than x86-64.

mod capture;
mod files;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod live;
#[cfg(target_arch = "x86_64")]
mod namespace;
#[cfg(target_arch = "x86_64")]
mod output;
#[cfg(target_arch = "x86_64")]
mod owner;
#[cfg(target_arch = "x86_64")]
mod paths;
#[cfg(target_arch = "x86_64")]
mod process;
#[cfg(target_arch = "x86_64")]
mod rings;
#[cfg(target_arch = "x86_64")]
mod server;
#[cfg(target_arch = "x86_64")]
mod threads;
#[cfg(target_arch = "x86_64")]
mod waits;
#[cfg(target_arch = "x86_64")]
mod worker;

pub use capture::{Capture, CaptureRequest, LoaderError, Paths, capture};
pub use files::MachineFiles;
pub use kernel::{KernelError, TargetKernel};
#[cfg(target_arch = "x86_64")]
pub use live::{Attached, Live, start};
#[cfg(target_arch = "x86_64")]
pub use output::Output;
#[cfg(target_arch = "x86_64")]
pub use server::messages::Messages;
#[cfg(target_arch = "x86_64")]
pub use threads::LoaderPrices;
#[cfg(target_arch = "x86_64")]
pub use worker::{Limits, Outbox, Sandbox, WorkerError, work_apart};

/// An empty file in memory.
#[cfg(target_arch = "x86_64")]
fn memory_file(name: &std::ffi::CStr) -> std::io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd as _;
    // SAFETY: a name that ends with a zero; what is got is owned.
    unsafe {
        let descriptor = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(std::os::fd::OwnedFd::from_raw_fd(descriptor))
    }
}
