//! `bpf(2)` without a loader: commands that this process makes of its own memory and descriptors, for tests of what they may be.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;

use warmcore_scx::bytecode::{Host, ObjectError};
use warmcore_topology::Machine;

use super::commands::Fields;
use super::{Answers, Reply};
use crate::kernel::TargetKernel;
use crate::process::Call;

/// The kernel's side of `bpf(2)`, for commands of this process.
pub struct Messages {
    answers: Answers,
    host: Box<Host>,
    /// What was given out, open until the end.
    descriptors: Vec<OwnedFd>,
}

impl Messages {
    /// A kernel of this type information on this machine.
    ///
    /// # Errors
    /// When there is no room for its memory.
    pub fn new(machine: &Machine, kernel: &TargetKernel) -> Result<Self, ObjectError> {
        let host = Host::new(machine, Arc::clone(&kernel.btf), Arc::clone(&kernel.layout))?;
        Ok(Self { answers: Answers::new(machine, kernel, true), host: Box::new(host), descriptors: Vec::new() })
    }

    /// What a command gives: a value or a descriptor of this process, or an error number; `None` if it attached a scheduler.
    ///
    /// # Errors
    /// When nothing can come of a loader that makes it.
    pub fn command(&mut self, number: u64, attributes: &[u8]) -> Result<Option<Result<i64, i32>>, ObjectError> {
        let call = Call::of_this_process();
        let (fields, address) = (Fields(attributes.to_vec()), attributes.as_ptr() as u64);
        let (thing, file) = match self.answers.answer(&mut self.host, &call, number, address, &fields)? {
            Reply::Value(value) => return Ok(Some(Ok(value))),
            Reply::Error(error) => return Ok(Some(Err(error))),
            Reply::Attached(_) => return Ok(None),
            Reply::Detached => return Ok(Some(Ok(0))),
            Reply::New(thing, file) => (thing, file),
        };
        let full = Ok(Some(Err(libc::EMFILE)));
        let Ok(file) = file.map_or_else(|| crate::memory_file(c"bpf").map(Arc::new), Ok) else { return full };
        let Ok(own) = file.as_fd().try_clone_to_owned() else { return full };
        if self.answers.keep(thing, file).is_err() {
            return full;
        }
        let descriptor = own.as_raw_fd();
        self.descriptors.push(own);
        Ok(Some(Ok(i64::from(descriptor))))
    }
}
