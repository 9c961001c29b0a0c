//! Ring buffers that a loader waits at: whether there is something in one, which the files behind their descriptors do not tell.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use warmcore_bpf::MapKind;
use warmcore_scx::bytecode::Host;

use crate::process::{Call, Process};

/// Bytes from what its reader has read to what its writers have written.
const PAGE: u64 = 4096;

/// Whether a ring buffer holds something that its reader has not read; `None` for what is none.
pub(crate) fn holds_something(host: &Host, handle: u64) -> Option<bool> {
    let map = host.maps.get(handle).filter(|map| map.spec.kind == MapKind::RingBuffer)?;
    let memory = &host.maps.memory;
    Some(memory.load_u64(map.address) != memory.load_u64(map.address + PAGE))
}

/// Events that stand for ring buffers where a loader waits for several things at once (`epoll`).
#[derive(Default)]
pub struct Rings(Vec<(u64, OwnedFd)>);

impl Rings {
    /// Adds a ring buffer to what is waited for, by a call of `epoll_ctl` with its descriptor.
    pub fn wait(&mut self, process: &Process, call: &Call, handle: u64) -> io::Result<()> {
        if call.arguments[1] != libc::EPOLL_CTL_ADD as u64 {
            return Ok(());
        }
        let raw = call.read(call.arguments[3], 12)?;
        let mut wanted = libc::epoll_event {
            events: u32::from_le_bytes(raw[..4].try_into().expect("four bytes")),
            u64: u64::from_le_bytes(raw[4..].try_into().expect("eight bytes")),
        };
        let all = process.descriptor(call, call.arguments[0] as u32)?;
        // SAFETY: plain system calls; what is got is owned.
        let event = unsafe {
            let event = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if event < 0 {
                return Err(io::Error::last_os_error());
            }
            let event = OwnedFd::from_raw_fd(event);
            if libc::epoll_ctl(all.as_raw_fd(), libc::EPOLL_CTL_ADD, event.as_raw_fd(), &raw mut wanted) != 0 {
                return Err(io::Error::last_os_error());
            }
            event
        };
        self.0.push((handle, event));
        Ok(())
    }

    /// Has events tell what ring buffers hold by now.
    pub fn tell(&self, host: &Host) {
        for (handle, event) in &self.0 {
            let mut count = 1u64;
            // SAFETY: eight bytes of ours; neither call waits.
            unsafe {
                libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8);
                if holds_something(host, *handle) == Some(true) {
                    count = 1;
                    libc::write(event.as_raw_fd(), (&raw const count).cast(), 8);
                }
            }
        }
    }
}
