//! In the new process, before the program: its filter, whose listener goes to who has started it.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// No new privileges, addresses that do not vary, the filter; its listener goes through a socket, so that the program has none: calls that wait
/// when nobody answers them any more would wait for ever.
pub(super) fn install(filter: &[libc::sock_filter], socket: RawFd) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: system calls whose arguments live as long as they take.
    unsafe {
        libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
            || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        {
            return Err(io::Error::last_os_error());
        }
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        ) as RawFd;
        if listener < 0 {
            return Err(io::Error::last_os_error());
        }
        send(socket, listener)?;
        libc::close(listener);
    }
    Ok(())
}

/// A message of one byte with room for one descriptor.
#[repr(C, align(8))]
struct Message {
    byte: u8,
    vector: libc::iovec,
    control: [u8; CONTROL_BYTES],
    head: libc::msghdr,
}

// SAFETY: sizes only.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;

impl Message {
    /// Written where it stays: the parts point to each other.
    fn prepare(&mut self) -> &mut libc::msghdr {
        self.vector = libc::iovec { iov_base: (&raw mut self.byte).cast(), iov_len: 1 };
        self.head.msg_iov = &raw mut self.vector;
        self.head.msg_iovlen = 1;
        self.head.msg_control = self.control.as_mut_ptr().cast();
        self.head.msg_controllen = CONTROL_BYTES;
        &mut self.head
    }
}

fn empty() -> Message {
    // SAFETY: a structure of numbers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// Sends a descriptor. Nothing but system calls.
fn send(socket: RawFd, descriptor: RawFd) -> io::Result<()> {
    let mut message = empty();
    let head = message.prepare();
    // SAFETY: the head describes room for one descriptor, which is filled here.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(head);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(control).cast::<RawFd>().write_unaligned(descriptor);
        if libc::sendmsg(socket, head, 0) != 1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes the descriptor that was sent.
pub(super) fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut message = empty();
    let head = message.prepare();
    // SAFETY: the head describes room for one descriptor; what is got is owned.
    unsafe {
        if libc::recvmsg(socket.as_raw_fd(), head, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) != 1 {
            return Err(io::Error::last_os_error());
        }
        let control = libc::CMSG_FIRSTHDR(head);
        if control.is_null() || (*control).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(control).cast::<RawFd>().read_unaligned()))
    }
}
