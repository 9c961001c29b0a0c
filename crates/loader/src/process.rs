//! A process whose system calls of some numbers come here first.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::namespace::Mounts;
use object::{Object as _, ObjectSymbol as _};

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
    pub fn of_this_process() -> Self {
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

    /// Writes to memory of the caller.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut copy = bytes.to_vec();
        let written = transfer(self.thread, address, &mut copy, true)?;
        if written == bytes.len() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EFAULT)) }
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
const ADD_DESCRIPTOR: u64 = ioctl(1, 3, size_of::<AddDescriptor>());
const CONTINUE: u32 = 1;
/// Adds the descriptor and answers with its number in one step.
const ADD_AND_SEND: u32 = 2;

/// `_IOC` of the seccomp calls.
const fn ioctl(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | 0x21 << 8 | number
}

/// Where the child keeps the listener: a number that loaders do not reach.
const LISTENER: RawFd = 1000;

/// What comes next of a process.
pub enum Next {
    /// A call.
    Call(Call),
    /// The process is gone.
    Ended,
    /// Nothing came in time.
    TimedOut,
}

/// The process.
pub struct Process {
    child: Child,
    listener: OwnedFd,
}

/// Why a process cannot be had.
pub enum SpawnError {
    /// It cannot be started.
    Start(io::Error),
    /// The system forbids to answer its calls.
    Forbidden(&'static str, io::Error),
    /// It has ended before anybody could listen: without a call that is answered.
    Ended(std::process::ExitStatus),
}

impl Process {
    /// Starts a program; its calls of these numbers wait, and of `ioctl` those with these requests. What it prints goes to a file. With
    /// mounts it has those.
    pub fn spawn(
        program: &Path,
        arguments: &[String],
        numbers: &[i64],
        requests: &[u32],
        output: File,
        mounts: Option<Mounts>,
    ) -> Result<Self, SpawnError> {
        let filter = filter(numbers, requests);
        let errors = output.try_clone().map_err(SpawnError::Start)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors);
        // SAFETY: between fork and exec only system calls are made, and memory that exists is read.
        unsafe {
            command.pre_exec(move || {
                mounts.as_ref().map_or(Ok(()), Mounts::enter)?;
                install(&filter)
            })
        };
        let mut child = command.spawn().map_err(|error| match error.raw_os_error() {
            Some(libc::EACCES | libc::ENOENT | libc::ENOEXEC) => SpawnError::Start(error),
            _ => SpawnError::Forbidden("a filter of system calls (seccomp) with a listener", error),
        })?;
        match listener_of(child.id()) {
            Ok(listener) => Ok(Self { child, listener }),
            // Its descriptors go before it does.
            Err(SpawnError::Forbidden(_, error)) if error.raw_os_error() == Some(libc::ESRCH) => {
                Err(child.wait().map_or_else(SpawnError::Start, SpawnError::Ended))
            }
            Err(error) => {
                // It waits for answers that nobody will give. It may be gone, which is what is wanted.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Waits for the next call.
    pub fn next(&self, until: Instant) -> io::Result<Next> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Ok(Next::TimedOut);
            }
            let mut poll = libc::pollfd { fd: self.listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor that is open.
            unsafe { libc::poll(&raw mut poll, 1, left.as_millis().min(1000) as i32) };
            if poll.revents & libc::POLLIN != 0 {
                let mut call = Call::default();
                // SAFETY: the kernel fills a structure of this size.
                if unsafe { libc::ioctl(self.listener.as_raw_fd(), RECEIVE, &raw mut call) } == 0 {
                    return Ok(Next::Call(call));
                }
                let error = io::Error::last_os_error();
                if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) {
                    return Err(error);
                }
            } else if poll.revents & libc::POLLHUP != 0 {
                return Ok(Next::Ended);
            }
        }
    }

    /// Answers a call with a value or an error number. The caller may be gone: then nobody is waiting.
    pub fn answer(&self, call: &Call, result: Result<i64, i32>) {
        let (value, error) = result.map_or_else(|error| (0, -error), |value| (value, 0));
        let answer = Answer { id: call.id, value, error, flags: 0 };
        // SAFETY: the kernel reads a structure of this size.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), SEND, &raw const answer) };
    }

    /// Lets a call through as it is.
    pub fn let_through(&self, call: &Call) {
        let answer = Answer { id: call.id, value: 0, error: 0, flags: CONTINUE };
        // SAFETY: as above.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), SEND, &raw const answer) };
    }

    /// Answers a call with a descriptor of the process's own for this file.
    pub fn answer_with(&self, call: &Call, file: BorrowedFd<'_>) {
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
    pub fn add_descriptor(&self, call: &Call, file: BorrowedFd<'_>) -> Option<u32> {
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
    pub fn hide_clock(&self, call: &Call) -> io::Result<()> {
        const STANDS_FOR: [(&str, i64); 4] = [
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

    /// Whether all its threads wait and no call of one has come: looked at twice, and nobody ran in between.
    pub fn rests(&self) -> bool {
        let Some(before) = self.threads() else { return false };
        let mut poll = libc::pollfd { fd: self.listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that is open.
        let has_call = unsafe { libc::poll(&raw mut poll, 1, 0) } != 0;
        !has_call && self.threads().is_some_and(|after| before == after)
    }

    /// Of each thread how often it has given up its CPU; none if one runs.
    fn threads(&self) -> Option<Vec<(String, u64)>> {
        let directory = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let mut threads = Vec::new();
        for entry in directory {
            let entry = entry.ok()?;
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if !field("State:")?.starts_with(['S', 'D']) {
                return None;
            }
            let switches = field("voluntary_ctxt_switches:")?.parse().ok()?;
            threads.push((entry.file_name().to_string_lossy().into_owned(), switches));
        }
        threads.sort_unstable();
        Some(threads)
    }

    /// Text of the process that ends with a zero.
    pub fn text(&self, call: &Call, address: u64) -> io::Result<String> {
        const PAGE: u64 = 4096;
        let mut bytes = Vec::new();
        let mut at = address;
        while bytes.len() < 4096 {
            let mut chunk = vec![0; (PAGE - at % PAGE) as usize];
            let read = transfer(call.thread, at, &mut chunk, false)?;
            let end = chunk[..read].iter().position(|&byte| byte == 0);
            bytes.extend_from_slice(&chunk[..end.unwrap_or(read)]);
            if end.is_some() {
                break;
            }
            at += read as u64;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A descriptor of the process, as one of ours.
    pub fn descriptor(&self, descriptor: u32) -> io::Result<OwnedFd> {
        // SAFETY: plain system calls; a descriptor that is got is owned.
        unsafe {
            let pid = owned(libc::syscall(libc::SYS_pidfd_open, self.child.id(), 0))?;
            owned(libc::syscall(libc::SYS_pidfd_getfd, pid.as_raw_fd(), descriptor, 0))
        }
    }

    /// Ends the process; says how it ended if it had before.
    pub fn end(&mut self) -> Option<std::process::ExitStatus> {
        let before = self.child.try_wait().ok().flatten();
        // It may be gone, which is what is wanted.
        let _ = self.child.kill();
        let after = self.child.wait().ok();
        before.or(after)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A copy of the listener that a child has at its known number, if calls of this child can be answered.
fn listener_of(child: u32) -> Result<OwnedFd, SpawnError> {
    let forbidden = |what| move |error| SpawnError::Forbidden(what, error);
    // SAFETY: plain system calls; a descriptor that is got is owned.
    let listener = unsafe {
        let pid = owned(libc::syscall(libc::SYS_pidfd_open, child, 0))
            .map_err(forbidden("a look at the process (pidfd_open)"))?;
        owned(libc::syscall(libc::SYS_pidfd_getfd, pid.as_raw_fd(), LISTENER, 0))
            .map_err(forbidden("a copy of its listener (pidfd_getfd)"))?
    };
    // Nothing lies at 0: whoever may look gets that answer, and whoever may not another.
    match transfer(child, 0, &mut [0], false) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            Err(SpawnError::Forbidden("a look at its memory (process_vm_readv)", error))
        }
        _ => Ok(listener),
    }
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

/// A filter that sends some calls to the listener and lets all others pass.
fn filter(numbers: &[i64], requests: &[u32]) -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// Where `struct seccomp_data` has the number and the second argument's lower half.
    const NUMBER: u32 = 0;
    const SECOND_ARGUMENT: u32 = 24;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let length = 1 + numbers.len() + 2 + requests.len() + 2;
    let (pass, notify) = (length - 2, length - 1);
    let mut filter = vec![instruction(LOAD, 0, 0, NUMBER)];
    for &number in numbers {
        let distance = (notify - filter.len() - 1) as u8;
        filter.push(instruction(EQUAL, distance, 0, number as u32));
    }
    let distance = (pass - filter.len() - 1) as u8;
    filter.push(instruction(EQUAL, 0, distance, libc::SYS_ioctl as u32));
    filter.push(instruction(LOAD, 0, 0, SECOND_ARGUMENT));
    for &request in requests {
        let distance = (notify - filter.len() - 1) as u8;
        filter.push(instruction(EQUAL, distance, 0, request));
    }
    filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    filter
}

/// In the child: no new privileges, addresses that do not vary, the filter, its listener at a known number.
fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
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
        );
        if listener < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        if limit.rlim_cur <= LISTENER as u64 {
            limit.rlim_cur = limit.rlim_max.min(LISTENER as u64 + 24);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        if libc::dup2(listener as i32, LISTENER) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
