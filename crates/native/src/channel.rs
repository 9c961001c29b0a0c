//! Pipes and Unix sockets.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use warmcore_workload::generate::{DEFAULT_CHANNEL_BYTES, channel_capacity};
use warmcore_workload::{ChannelKind, Step, Warning, Workload, add_warning};

use crate::error::NativeError;
use crate::shared::{Stop, Stopped};

/// A pipe or socket pair. Both ends stay open for the whole run, so that reading never meets an end of file.
pub(crate) struct Channel {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// Why a message was not passed.
#[derive(Debug)]
pub(crate) enum Failed {
    Stopped,
    Call(&'static str, Errno),
}

impl From<Stopped> for Failed {
    fn from(_: Stopped) -> Self {
        Failed::Stopped
    }
}

impl Channel {
    /// Writes a message of zeros.
    pub(crate) fn send(&self, bytes: u32, buffer: &mut Vec<u8>, stop: &Stop) -> Result<(), Failed> {
        let message = message(buffer, bytes);
        let mut done = 0;
        while done < message.len() {
            match rustix::io::write(&self.writer, &message[done..]) {
                Ok(written) => done += written,
                Err(Errno::INTR) => stop.check()?,
                Err(error) => return Err(Failed::Call("write", error)),
            }
        }
        Ok(())
    }

    /// Reads a message.
    pub(crate) fn receive(&self, bytes: u32, buffer: &mut Vec<u8>, stop: &Stop) -> Result<(), Failed> {
        let message = message(buffer, bytes);
        let mut done = 0;
        while done < message.len() {
            match rustix::io::read(&self.reader, &mut message[done..]) {
                Ok(read) => done += read,
                Err(Errno::INTR) => stop.check()?,
                Err(error) => return Err(Failed::Call("read", error)),
            }
        }
        Ok(())
    }
}

fn message(buffer: &mut Vec<u8>, bytes: u32) -> &mut [u8] {
    if buffer.len() < bytes as usize {
        buffer.resize(bytes as usize, 0);
    }
    &mut buffer[..bytes as usize]
}

/// Creates all channels of the workload. Where the kernel's channel holds another number of bytes than the workload
/// states, that is a warning.
pub(crate) fn create_all(workload: &Workload, warnings: &mut Vec<Warning>) -> Result<Vec<Channel>, NativeError> {
    // A barrier may need two pipes.
    raise_file_limit(2 * workload.channels.len() as u64 + 4 * workload.barriers.len() as u64);
    let sizes = message_sizes(workload);
    workload
        .channels
        .iter()
        .zip(sizes)
        .map(|(channel, message)| {
            let failed = |source| NativeError::Channel { channel: channel.name.clone(), source };
            let usual = channel.capacity_bytes == channel_capacity(channel.kind, message)
                || channel.capacity_bytes == DEFAULT_CHANNEL_BYTES;
            let (reader, writer) = match channel.kind {
                ChannelKind::Pipe => pipe_with(PipeFlags::CLOEXEC).map_err(failed)?,
                ChannelKind::Socket => {
                    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
                    socketpair(family, kind, SocketFlags::CLOEXEC, None).map_err(failed)?
                }
            };
            if !usual {
                let held = match channel.kind {
                    ChannelKind::Pipe => resize(&writer, channel.capacity_bytes),
                    ChannelKind::Socket => None,
                };
                if held != Some(channel.capacity_bytes) {
                    let consequence = "pipes hold whole pages, sockets what the kernel gives them";
                    add_warning(warnings, "capacity of a channel".to_owned(), consequence.to_owned(), 1);
                }
            }
            Ok(Channel { reader, writer })
        })
        .collect()
}

/// Asks for a pipe of the size; returns its size.
fn resize(pipe: &OwnedFd, bytes: u64) -> Option<u64> {
    let _ = fcntl_setpipe_size(pipe, usize::try_from(bytes).ok()?);
    fcntl_getpipe_size(pipe).ok().map(|size| size as u64)
}

/// Size of the largest message through each channel.
fn message_sizes(workload: &Workload) -> Vec<u32> {
    let mut sizes = vec![1; workload.channels.len()];
    for step in workload.programs.iter().flat_map(|program| &program.steps) {
        if let Step::Send { channel, bytes } | Step::Receive { channel, bytes } = step {
            let size = &mut sizes[channel.index()];
            *size = (*size).max(*bytes);
        }
    }
    sizes
}

/// Raises the soft limit of open files as far as needed and allowed. What is still too low shows when a channel cannot
/// be created.
fn raise_file_limit(needed: u64) {
    // What else a program has open.
    let needed = needed + 256;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < needed) {
        let soft = limit.maximum.map_or(needed, |hard| hard.min(needed));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: limit.maximum });
    }
}
