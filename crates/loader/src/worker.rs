//! Work in a process of its own, so that nothing that goes wrong in it harms this one.
//!
//! A simulation runs code that was made from a stranger's bytecode. [`work_apart`] forks for it: the new process has everything that this one has in
//! memory, at the same addresses, so nothing is handed over but what comes back, in messages through a pipe. Before it begins, the work
//! [seals](Outbox::seal) itself: no files, sockets, programs or processes from then on, and bounds of memory and CPU time. Whatever ends it,
//! this process learns how.
//!
//! Forking a program with several threads leaves locks of the others held for ever in the new process. The C library sees to those of its allocator; [`work_apart`] sees to the
//! one of programs' memory; simulations take no other, as they read no clock, file or environment and start no threads. Work that nevertheless comes to wait
//! for one takes no CPU time any more, and is ended for that.

mod sandbox;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;

use crate::process::end_all;

pub use sandbox::Sandbox;

/// What work may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Memory beyond what this process has, in bytes.
    pub memory_bytes: u64,
    /// CPU time, in whole seconds.
    pub cpu: Duration,
}

/// Why work came to no end of its own.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum WorkerError {
    /// There is no process for it.
    #[error("no process could be started for it: cannot {what}: {source}")]
    Start { what: &'static str, source: io::Error },
    /// Its code did what the processor refuses.
    #[error("its process was ended by {signal} at address 0x{at:x}{}", and_said(.said))]
    Crashed {
        signal: String,
        /// Address of the instruction, which is the same in this process.
        at: u64,
        said: String,
    },
    /// It ended otherwise.
    #[error("its process ended ({how}){}", and_said(.said))]
    Died { how: String, said: String },
    /// It took too much memory, or asked for too much.
    #[error("its process needs more than {} MiB of memory", .limit_bytes >> 20)]
    Memory { limit_bytes: u64 },
    /// It took too long.
    #[error("its process has taken {seconds} s of CPU time without coming to an end")]
    Cpu { seconds: u64 },
    /// It waits for what does not come.
    #[error("its process has taken no CPU time for {seconds} s and has not come to an end")]
    Waits { seconds: u64 },
    /// Whoever takes its messages wanted no more of them.
    #[error("its messages were not wanted")]
    Unwanted,
    /// It sent what is no message.
    #[error("its process sent what is no message")]
    Garbled,
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

fn and_said(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; it said last: {said}") }
}

/// Where work sends its messages, in its own process.
pub struct Outbox {
    pipe: File,
    errors: File,
    limits: Limits,
}

/// Kinds of messages that are not the work's: it came to its end, and an unhandled signal.
const END: u8 = 255;
const CRASH: u8 = 254;

/// Bytes before a message: its kind and its length.
const HEAD_BYTES: usize = 5;

/// Longest message.
const LONGEST: usize = 256 << 20;

/// How often is looked whether the caller wants to stop, and how much memory is taken.
const LOOKED_AT_MS: i32 = 50;

/// How long work may take no CPU time at all. A computer that is so busy would do nothing else either. Counted in looks, so that time in which this
/// process is stopped itself is no rest of the other.
const LONGEST_REST: Duration = Duration::from_secs(60);
const MOST_LOOKS: u32 = LONGEST_REST.as_millis() as u32 / LOOKED_AT_MS as u32;

/// A descriptor that the new process has its pipe at from the moment it is sealed.
const PIPE: RawFd = 3;

impl Outbox {
    /// Sends a message of a kind below 128.
    ///
    /// # Errors
    /// When nobody takes messages any more.
    pub fn send(&mut self, kind: u8, message: &[u8]) -> io::Result<()> {
        let mut head = [kind; HEAD_BYTES];
        head[1..].copy_from_slice(&(message.len() as u32).to_le_bytes());
        self.pipe.write_all(&head)?;
        self.pipe.write_all(message)
    }

    /// From now on the work has nothing but what it holds in memory, and this.
    ///
    /// # Errors
    /// When the system refuses; the work must not go on then.
    pub fn seal(&mut self, sandbox: Sandbox) -> io::Result<()> {
        sandbox::keep_descriptors(&mut self.pipe, sandbox)?;
        sandbox::limit(&self.limits)?;
        sandbox::catch_faults(self.pipe.as_raw_fd());
        sandbox::filter(sandbox)
    }
}

/// A process that is gone when this is.
struct Child {
    process: libc::pid_t,
    status: Option<i32>,
}

impl Child {
    fn end(&mut self) {
        if self.status.is_none() {
            end_all(self.process as u32);
            // SAFETY: a process of ours that nobody has waited for, so the number is still its own.
            unsafe { libc::kill(self.process, libc::SIGKILL) };
            self.wait();
        }
    }

    fn wait(&mut self) -> i32 {
        *self.status.get_or_insert_with(|| {
            let mut status = 0;
            // SAFETY: a process of ours; waiting is tried again where a signal comes between.
            while unsafe { libc::waitpid(self.process, &raw mut status, 0) } < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            status
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Does work in a process of its own, and takes its messages, kind and content, until it ends or `take` answers false.
///
/// # Errors
/// When the work did not come to its end.
pub fn work_apart(
    limits: Limits,
    stop: Option<&AtomicBool>,
    work: impl FnOnce(&mut Outbox) -> io::Result<()>,
    take: &mut dyn FnMut(u8, &[u8]) -> bool,
) -> Result<(), WorkerError> {
    let start = |what| move |source| WorkerError::Start { what, source };
    let errors = File::from(crate::memory_file(c"errors").map_err(start("make a file in memory"))?);
    let (reader, writer) = pipe().map_err(start("make a pipe"))?;
    let limits = Limits { memory_bytes: limits.memory_bytes.min(sandbox::most_memory()), ..limits };
    let own_bytes = sandbox::own_memory("self").unwrap_or(0);
    // SAFETY: the new process does the work and ends below, whatever happens; what it may not rely on says the module.
    let process = warmcore_bpf::while_unmapped(|| unsafe { libc::fork() });
    match process {
        -1 => return Err(start("fork")(io::Error::last_os_error())),
        0 => in_child(Outbox { pipe: writer, errors, limits }, work),
        _ => {}
    }
    drop(writer);
    let mut child = Child { process, status: None };
    let mut rest = Rest::default();
    let mut inbox = Inbox { reader, buffer: Vec::new(), ended: false, crash: None };
    loop {
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(WorkerError::Interrupted);
        }
        if !inbox.wait() {
            let taken = sandbox::own_memory(&process.to_string()).unwrap_or(0);
            if taken > own_bytes + limits.memory_bytes {
                return Err(WorkerError::Memory { limit_bytes: limits.memory_bytes });
            }
            if rest.is_too_long(process) {
                return Err(WorkerError::Waits { seconds: LONGEST_REST.as_secs() });
            }
            continue;
        }
        match inbox.read(take) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Err(error),
        }
    }
    let status = child.wait();
    if inbox.ended && status == 0 { Ok(()) } else { Err(how_it_ended(status, inbox.crash, &errors, limits)) }
}

/// For how many looks a process has taken no CPU time.
#[derive(Default)]
struct Rest {
    ticks: u64,
    looks: u32,
}

impl Rest {
    fn is_too_long(&mut self, process: libc::pid_t) -> bool {
        let ticks = sandbox::cpu_ticks(process).unwrap_or(0);
        if ticks != self.ticks {
            *self = Self { ticks, looks: 0 };
        }
        self.looks += 1;
        self.looks >= MOST_LOOKS
    }
}

/// The new process, from its first moment to its last.
fn in_child(mut outbox: Outbox, work: impl FnOnce(&mut Outbox) -> io::Result<()>) -> ! {
    const PANICKED: i32 = 101;
    const UNABLE: i32 = 102;
    // SAFETY: plain system calls. If the parent is gone already, nobody waits for the pipe, and the first message ends it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // What a loader has started stays below this process when the loader is gone.
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        // What it prints is kept for last words. Without that it goes where this program's goes.
        libc::dup2(outbox.errors.as_raw_fd(), 1);
        libc::dup2(outbox.errors.as_raw_fd(), 2);
    }
    let done = catch_unwind(AssertUnwindSafe(|| {
        work(&mut outbox)?;
        outbox.send(END, &[])
    }));
    let code = match done {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            say(&error.to_string());
            UNABLE
        }
        Err(payload) => {
            let words = payload.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
            say(words);
            PANICKED
        }
    };
    // SAFETY: nothing of the parent's is flushed or removed on the way out.
    unsafe { libc::_exit(code) }
}

/// The last words of work, where what it prints is kept.
fn say(words: &str) {
    // SAFETY: a plain system call on bytes of ours; there is nobody to tell if it fails.
    unsafe { libc::write(2, words.as_ptr().cast(), words.len()) };
}

/// What has come of a process.
struct Inbox {
    reader: File,
    buffer: Vec<u8>,
    ended: bool,
    crash: Option<u64>,
}

impl Inbox {
    /// Waits for something to come, for a while.
    fn wait(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that is open.
        unsafe { libc::poll(&raw mut poll, 1, LOOKED_AT_MS) > 0 }
    }

    /// Reads what has come and hands over whole messages; false at the end.
    fn read(&mut self, take: &mut dyn FnMut(u8, &[u8]) -> bool) -> Result<bool, WorkerError> {
        const CHUNK: usize = 256 << 10;
        let filled = self.buffer.len();
        self.buffer.resize(filled + CHUNK, 0);
        let count = loop {
            match self.reader.read(&mut self.buffer[filled..]) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(WorkerError::Start { what: "read its messages", source }),
            }
        };
        self.buffer.truncate(filled + count);
        let mut at = 0;
        while let Some(&[kind, a, b, c, d]) = self.buffer.get(at..at + HEAD_BYTES) {
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            if length > LONGEST {
                return Err(WorkerError::Garbled);
            }
            let Some(message) = self.buffer.get(at + HEAD_BYTES..at + HEAD_BYTES + length) else { break };
            at += HEAD_BYTES + length;
            match kind {
                END => self.ended = true,
                CRASH => self.crash = message.try_into().ok().map(u64::from_le_bytes),
                kind if !take(kind, message) => return Err(WorkerError::Unwanted),
                _ => {}
            }
        }
        self.buffer.drain(..at);
        Ok(count > 0)
    }
}

fn how_it_ended(status: i32, crash: Option<u64>, errors: &File, limits: Limits) -> WorkerError {
    let said = last_words(errors);
    if libc::WIFSIGNALED(status) {
        let number = libc::WTERMSIG(status);
        let signal = sandbox::signal_name(number);
        return match (number, crash) {
            (libc::SIGXCPU, _) => WorkerError::Cpu { seconds: limits.cpu.as_secs() },
            (_, Some(at)) => WorkerError::Crashed { signal, at, said },
            // Memory that is not given ends a program so, after these words.
            (libc::SIGABRT, None) if said.contains("memory allocation of") => {
                WorkerError::Memory { limit_bytes: limits.memory_bytes }
            }
            _ => WorkerError::Died { how: signal, said },
        };
    }
    WorkerError::Died { how: format!("exit status {}", libc::WEXITSTATUS(status)), said }
}

/// The last words of a process.
fn last_words(errors: &File) -> String {
    const MOST: usize = 4096;
    let mut text = vec![0; MOST];
    // Nothing that can be read is nothing that it said.
    let count = errors.read_at(&mut text, 0).unwrap_or(0);
    let text = crate::output::plain(&String::from_utf8_lossy(&text[..count]));
    if text.trim().is_empty() { String::new() } else { crate::output::last_words(&text) }
}

fn pipe() -> io::Result<(File, File)> {
    const BYTES: i32 = 1 << 20;
    let mut ends = [0; 2];
    // SAFETY: the kernel fills two numbers, of descriptors that are owned from then on.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        // A smaller one is slower, and nothing else.
        libc::fcntl(ends[1], libc::F_SETPIPE_SZ, BYTES);
        let [reader, writer] = ends.map(|end| File::from(OwnedFd::from_raw_fd(end)));
        Ok((reader, writer))
    }
}
