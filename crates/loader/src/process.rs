//! A process whose system calls of some numbers come here first.

mod descriptor;
mod family;
mod filter;

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use object::{Object as _, ObjectSymbol as _};

use crate::namespace::Mounts;
use crate::output::Output;
use descriptor::install;
pub use family::end_all;
use family::{children_of, end_with_all, is_alive_with_all, threads_of};
use filter::filter;

/// Bytes of the longest piece of a process that is read at once: more than a value of a map, a program or type information has (of public schedulers the
/// longest is `scx_layered`'s data, 166 MB). A call may ask for as many as there are numbers.
const LONGEST: usize = 512 << 20;

/// A system call that waits for an answer (`struct seccomp_notif`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// Names the call in the answer.
    id: u64,
    /// The thread that makes it.
    pub thread: u32,
    flags: u32,
    /// Number of the system call.
    pub number: i32,
    architecture: u32,
    instruction: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Call {
    /// One that this process makes, and that nobody waits for.
    pub(crate) fn of_this_process() -> Self {
        Self { thread: std::process::id(), ..Self::default() }
    }

    /// Memory of the caller; none that is longer than any structure of a call is.
    pub fn read(&self, address: u64, bytes: usize) -> io::Result<Vec<u8>> {
        if bytes > LONGEST {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let mut buffer = vec![0; bytes];
        let read = transfer(self.thread, address, &mut buffer, false)?;
        if read == bytes { Ok(buffer) } else { Err(io::Error::from_raw_os_error(libc::EFAULT)) }
    }

    /// Text of the caller that ends with a zero.
    pub fn text(&self, address: u64) -> io::Result<String> {
        const PAGE: u64 = 4096;
        let mut bytes = Vec::new();
        let mut at = address;
        while bytes.len() < 4096 {
            let mut chunk = vec![0; (PAGE - at % PAGE) as usize];
            let read = transfer(self.thread, at, &mut chunk, false)?;
            let end = chunk[..read].iter().position(|&byte| byte == 0);
            bytes.extend_from_slice(&chunk[..end.unwrap_or(read)]);
            if end.is_some() {
                break;
            }
            at += read as u64;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes to memory of the caller.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut copy = bytes.to_vec();
        let written = transfer(self.thread, address, &mut copy, true)?;
        if written == bytes.len() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EFAULT)) }
    }

    /// Number of the caller's process.
    pub fn process(&self) -> io::Result<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread))?;
        let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        number.and_then(|number| number.trim().parse().ok()).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// Signals that wait for the caller.
    pub(crate) fn pending_signals(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread)).unwrap_or_default();
        let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let mask = |name| of(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        mask("SigPnd:") | mask("ShdPnd:")
    }

    /// Names the file behind a descriptor of the caller.
    pub fn inode(&self, descriptor: u32) -> Option<u64> {
        let metadata = std::fs::metadata(format!("/proc/{}/fd/{descriptor}", self.thread));
        metadata.ok().map(|metadata| metadata.ino())
    }
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

const RECEIVE: u64 = ioctl(3, 0, size_of::<Call>());
const SEND: u64 = ioctl(3, 1, size_of::<Answer>());
const IS_VALID: u64 = ioctl(1, 2, size_of::<u64>());
const ADD_DESCRIPTOR: u64 = ioctl(1, 3, size_of::<AddDescriptor>());
const CONTINUE: u32 = 1;
/// Adds the descriptor and answers with its number in one step.
const ADD_AND_SEND: u32 = 2;

/// `_IOC` of the seccomp calls.
const fn ioctl(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | 0x21 << 8 | number
}

/// What comes next of a process.
pub enum Next {
    /// A call.
    Call(Call),
    /// The process is gone.
    Ended,
    /// Nothing came in time.
    TimedOut,
    /// It prints without an end.
    Floods,
}

/// The process.
pub struct Process {
    child: Child,
    listener: OwnedFd,
    /// What it prints.
    pub output: Rc<RefCell<Output>>,
}

/// Why a process cannot be had.
pub enum SpawnError {
    /// It cannot be started.
    Start(io::Error),
    /// The system forbids to answer its calls.
    Forbidden(&'static str, io::Error),
}

impl Process {
    /// Starts a program; its calls of these numbers wait, of `ioctl` those with these requests, and reads of so many bytes at most. With mounts it has those.
    pub fn spawn(
        program: &Path,
        arguments: &[String],
        numbers: &[i64],
        (requests, longest_read): (&[u32], u32),
        mounts: Option<Mounts>,
    ) -> Result<Self, SpawnError> {
        let filter = filter(numbers, requests, longest_read);
        let (output, writer) = Output::new().map_err(SpawnError::Start)?;
        let errors = writer.try_clone().map_err(SpawnError::Start)?;
        let (ours, theirs) = UnixStream::pair().map_err(SpawnError::Start)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(writer).stderr(errors);
        // SAFETY: between fork and exec only system calls are made, and memory that exists is read.
        unsafe {
            command.pre_exec(move || {
                mounts.as_ref().map_or(Ok(()), Mounts::enter)?;
                install(&filter, theirs.as_raw_fd())
            })
        };
        let child = command.spawn().map_err(|error| match error.raw_os_error() {
            Some(libc::EACCES | libc::ENOENT | libc::ENOEXEC) => SpawnError::Start(error),
            _ => SpawnError::Forbidden("a filter of system calls (seccomp) with a listener", error),
        })?;
        // The child has its own ends of everything.
        drop(command);
        let received = descriptor::receive(&ours);
        // It is gone with the process if there is an error: it would wait for answers that nobody gives.
        let listener = received.map_err(|error| SpawnError::Forbidden("a listener for its calls", error));
        let process = match listener {
            Ok(listener) => Self { child, listener, output: Rc::new(RefCell::new(output)) },
            Err(error) => {
                let mut child = child;
                // It may be gone, which is what is wanted.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        // Nothing lies at 0: whoever may look gets that answer, and whoever may not another.
        match transfer(process.child.id(), 0, &mut [0], false) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                Err(SpawnError::Forbidden("a look at its memory (process_vm_readv)", error))
            }
            _ => Ok(process),
        }
    }

    /// Waits for the next call.
    pub fn next(&mut self, until: Instant) -> io::Result<Next> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                // Kernels before 6.11 tell the listener only when somebody has asked after the process.
                let is_over = self.has_ended() && !is_alive_with_all(&self.family());
                return Ok(if is_over { Next::Ended } else { Next::TimedOut });
            }
            let wait = libc::timespec { tv_sec: 0, tv_nsec: left.as_nanos().min(999_999_999) as i64 };
            let ready = self.ready(&wait);
            if ready.printed && self.takes_too_much() {
                return Ok(Next::Floods);
            }
            if ready.calls {
                let mut call = Call::default();
                // SAFETY: the kernel fills a structure of this size.
                if unsafe { libc::ioctl(self.listener.as_raw_fd(), RECEIVE, &raw mut call) } == 0 {
                    return Ok(Next::Call(call));
                }
                let error = io::Error::last_os_error();
                if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) {
                    return Err(error);
                }
            } else if ready.ended {
                return Ok(Next::Ended);
            }
        }
    }

    fn takes_too_much(&self) -> bool {
        let mut output = self.output.borrow_mut();
        output.take() && output.is_too_long()
    }

    /// What has come within a time.
    fn ready(&self, wait: &libc::timespec) -> Ready {
        let of = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut both = [of(self.listener.as_raw_fd()), of(self.output.borrow().descriptor())];
        // Where everybody has closed the pipe, only calls are waited for.
        let is_open = |poll: &libc::pollfd| poll.revents & libc::POLLHUP == 0;
        // SAFETY: two descriptors that are open.
        unsafe { libc::ppoll(both.as_mut_ptr(), 2, &libc::timespec { tv_sec: 0, tv_nsec: 0 }, std::ptr::null()) };
        let count = if is_open(&both[1]) { 2 } else { 1 };
        let printed = both[1].revents & libc::POLLIN != 0;
        if both[0].revents == 0 && !printed {
            // SAFETY: as above.
            unsafe { libc::ppoll(both.as_mut_ptr(), count, wait, std::ptr::null()) };
        }
        Ready {
            calls: both[0].revents & libc::POLLIN != 0,
            ended: both[0].revents & libc::POLLHUP != 0,
            printed: both[1].revents & libc::POLLIN != 0,
        }
    }

    /// Whether a call still waits for its answer: its thread may be gone, or have been told something by a signal.
    pub(crate) fn still_waits(&self, call: &Call) -> bool {
        // SAFETY: the kernel reads a number.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), IS_VALID, &raw const call.id) == 0 }
    }

    /// Answers a call with a value or an error number. The caller may be gone: then nobody is waiting.
    pub fn answer(&self, call: &Call, result: Result<i64, i32>) {
        let (value, error) = result.map_or_else(|error| (0, -error), |value| (value, 0));
        let answer = Answer { id: call.id, value, error, flags: 0 };
        // SAFETY: the kernel reads a structure of this size.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), SEND, &raw const answer) };
    }

    pub(crate) fn let_through(&self, call: &Call) {
        let answer = Answer { id: call.id, value: 0, error: 0, flags: CONTINUE };
        // SAFETY: as above.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), SEND, &raw const answer) };
    }

    /// Answers a call with a descriptor of the process's own for this file.
    pub(crate) fn answer_with(&self, call: &Call, file: BorrowedFd<'_>) {
        let add = AddDescriptor {
            id: call.id,
            flags: ADD_AND_SEND,
            source: file.as_raw_fd() as u32,
            target: 0,
            target_flags: libc::O_CLOEXEC as u32,
        };
        // SAFETY: as above.
        if unsafe { libc::ioctl(self.listener.as_raw_fd(), ADD_DESCRIPTOR, &raw const add) } < 0 {
            self.answer(call, Err(libc::EMFILE));
        }
    }

    /// Gives the process a descriptor of its own for this file, before its call is answered.
    pub(crate) fn add_descriptor(&self, call: &Call, file: BorrowedFd<'_>) -> Option<u32> {
        let add = AddDescriptor {
            id: call.id,
            flags: 0,
            source: file.as_raw_fd() as u32,
            target: 0,
            target_flags: libc::O_CLOEXEC as u32,
        };
        // SAFETY: as above.
        u32::try_from(unsafe { libc::ioctl(self.listener.as_raw_fd(), ADD_DESCRIPTOR, &raw const add) }).ok()
    }

    /// Makes reads of the clock system calls: without it a process reads the clock from memory that the kernel maps for it (the vDSO), and nobody
    /// learns of it. Its functions are replaced by the calls that they stand for.
    pub(crate) fn hide_clock(&self, call: &Call) -> io::Result<()> {
        const STANDS_FOR: [(&str, i64); 5] = [
            ("__vdso_getcpu", libc::SYS_getcpu),
            ("__vdso_clock_gettime", libc::SYS_clock_gettime),
            ("__vdso_gettimeofday", libc::SYS_gettimeofday),
            ("__vdso_time", libc::SYS_time),
            ("__vdso_clock_getres", libc::SYS_clock_getres),
        ];
        const IMAGE_BYTES: usize = 8192;
        let process = call.thread;
        let vectors = std::fs::read(format!("/proc/{process}/auxv"))?;
        let words: Vec<u64> =
            vectors.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect();
        let base = words.chunks_exact(2).find(|pair| pair[0] == libc::AT_SYSINFO_EHDR).map(|pair| pair[1]);
        // A kernel without it has nothing to hide.
        let Some(base) = base else { return Ok(()) };
        let image = call.read(base, IMAGE_BYTES).or_else(|_| call.read(base, IMAGE_BYTES / 2))?;
        let memory = std::fs::OpenOptions::new().write(true).open(format!("/proc/{process}/mem"))?;
        let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(&*image).map_err(io::Error::other)?;
        for symbol in file.dynamic_symbols() {
            let known = STANDS_FOR.iter().find(|(name, _)| symbol.name() == Ok(name));
            if let Some(&(_, number)) = known {
                // mov eax, NUMBER; syscall; ret
                let [a, b, c, d] = (number as u32).to_le_bytes();
                memory.write_all_at(&[0xb8, a, b, c, d, 0x0f, 0x05, 0xc3], base + symbol.address())?;
            }
        }
        Ok(())
    }

    /// Its threads that there are.
    pub(crate) fn threads(&self) -> Vec<u32> {
        family::threads(self.child.id()).unwrap_or_default()
    }

    /// Sends it, or a thread of it, a signal that it sends itself.
    pub(crate) fn send_signal(&self, thread: Option<u32>, signal: i32) {
        // `siginfo_t`: signal, errno, code.
        let mut info = [0u8; 128];
        info[..4].copy_from_slice(&signal.to_le_bytes());
        info[8..12].copy_from_slice(&libc::SI_QUEUE.to_le_bytes());
        let process = self.child.id();
        // SAFETY: plain system calls on a structure of ours, to a process that is ours until it is waited for.
        unsafe {
            match thread {
                Some(thread) => libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info.as_ptr()),
                None => libc::kill(process as libc::pid_t, signal).into(),
            };
        }
    }

    /// What a thread of it calls itself.
    pub(crate) fn name_of(&self, thread: u32) -> String {
        let path = format!("/proc/{}/task/{thread}/comm", self.child.id());
        std::fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
    }

    /// Its first thread, as calls name it.
    pub(crate) fn first_thread(&self) -> u32 {
        self.child.id()
    }

    /// Whether all threads of it and of what it has started wait, and neither a call of one nor anything printed has come: looked at twice,
    /// and nobody ran in between.
    pub fn rests(&self) -> bool {
        let family = self.family();
        let Some(before) = threads_of(&family) else { return false };
        let ready = self.ready(&libc::timespec { tv_sec: 0, tv_nsec: 0 });
        !ready.calls && !ready.printed && threads_of(&family).is_some_and(|after| before == after)
    }

    /// The process, and where what outlives it comes below this process, all of that.
    fn family(&self) -> Vec<u32> {
        let mut keeps = 0;
        // SAFETY: the kernel writes a number.
        unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut keeps) };
        if keeps != 0 { children_of(std::process::id()) } else { vec![self.child.id()] }
    }

    /// A descriptor of the caller's, as one of ours.
    pub fn descriptor(&self, call: &Call, descriptor: u32) -> io::Result<OwnedFd> {
        let process = call.process()?;
        // SAFETY: plain system calls; a descriptor that is got is owned.
        unsafe {
            let pid = owned(libc::syscall(libc::SYS_pidfd_open, process, 0))?;
            owned(libc::syscall(libc::SYS_pidfd_getfd, pid.as_raw_fd(), descriptor, 0))
        }
    }

    /// Whether the process itself has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Ends the process and what it has started; says how it ended if it had before.
    pub fn end(&mut self) -> Option<std::process::ExitStatus> {
        let before = self.child.try_wait().ok().flatten();
        end_all(self.child.id());
        // It may be gone, which is what is wanted.
        let _ = self.child.kill();
        let after = self.child.wait().ok();
        self.family().into_iter().filter(|other| *other != self.child.id()).for_each(end_with_all);
        before.or(after)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// What has come of a process.
struct Ready {
    calls: bool,
    ended: bool,
    printed: bool,
}

unsafe fn owned(result: i64) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller got this descriptor from the kernel just now.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

fn transfer(thread: u32, address: u64, buffer: &mut [u8], write: bool) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: the local part is the buffer; the kernel checks the remote one.
    let moved = unsafe {
        let (local, remote) = (&raw const local, &raw const remote);
        if write {
            libc::process_vm_writev(thread as i32, local, 1, remote, 1, 0)
        } else {
            libc::process_vm_readv(thread as i32, local, 1, remote, 1, 0)
        }
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}
