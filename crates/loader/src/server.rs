//! `bpf(2)` in the kernel's place.
//!
//! This module answers a loader from its start to its end; what is behind the call is in those below.
//!
//! The commands, their structures (`union bpf_attr`) and what loaders expect of each: `docs/spec/bpf-runtime.md` section 3.

mod commands;
mod maps;
pub(crate) mod messages;
mod programs;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warmcore_bpf::btf::Btf;
use warmcore_scx::bytecode::{Host, Moment, Need, ObjectError, ProgramId, Programs};
use warmcore_topology::Machine;

use crate::capture::{Capture, LoaderError, Paths, Request};
use crate::kernel::TargetKernel;
use crate::namespace::Mounts;
use crate::paths;
use crate::process::{Call, Next, Process, SpawnError};
use crate::waits::{self, Waits};

/// `PERF_EVENT_IOC_ENABLE`, `_DISABLE` and `_SET_BPF`.
const PERF_REQUESTS: [u32; 3] = [0x2400, 0x2401, 0x4004_2408];

const BPF: i64 = libc::SYS_bpf;

/// How often a loader that calls nothing is looked at.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// How long a loader may do nothing at all before it attaches: what it waits for does not come.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// A thing behind a descriptor.
enum Thing {
    /// A map, by handle, and of a table of operations the value.
    Map { handle: u64, value: Vec<u8> },
    /// A program; `None` for one that is only probed with or never run.
    Program { name: String, kind: u32, id: Option<ProgramId> },
    /// Type information.
    Btf(Arc<Btf>),
    /// A link or a counter.
    Other,
}

/// What a command gives.
enum Reply {
    Value(i64),
    Error(i32),
    /// A descriptor for a new thing, behind this file or one of its own.
    New(Thing, Option<Arc<OwnedFd>>),
    /// The scheduler is attached.
    Attached(Box<Capture>),
}

/// The kernel's side of `bpf(2)`: what was made by it, and what its commands give.
struct Answers {
    machine: Machine,
    kernel: TargetKernel,
    programs: Programs,
    /// Things by the number of the file behind their descriptors, which is kept open so that the number stays theirs.
    things: HashMap<u64, (Thing, Arc<OwnedFd>)>,
    /// What was asked for beside calls and operations: kinds of maps, and programs that are attached elsewhere.
    needs: BTreeSet<Need>,
}

impl Answers {
    fn new(machine: &Machine, kernel: &TargetKernel) -> Self {
        Self {
            machine: machine.clone(),
            kernel: kernel.clone(),
            programs: Programs::default(),
            things: HashMap::new(),
            needs: BTreeSet::new(),
        }
    }

    /// What was asked for so far.
    fn needs(&self) -> impl Iterator<Item = &Need> {
        self.needs.iter().chain(self.programs.calls())
    }

    fn find(&self, call: &Call, descriptor: u32) -> Option<&Thing> {
        let number = call.inode(descriptor)?;
        self.things.get(&number).map(|(thing, _)| thing)
    }

    /// Remembers a thing by the file that stands for it.
    fn keep(&mut self, thing: Thing, file: Arc<OwnedFd>) -> io::Result<()> {
        let number = File::from(file.as_fd().try_clone_to_owned()?).metadata()?.ino();
        self.things.insert(number, (thing, file));
        Ok(())
    }
}

/// Who answers a loader. The kernel that it loads into is handed in with each call.
pub(crate) struct Server {
    process: Process,
    answers: Answers,
    /// What it prints.
    pub(crate) output: File,
    /// Its waits and clocks, if it is to go on in simulated time.
    waits: Option<Waits>,
    /// Whether its clock is a system call by now.
    has_no_clock: bool,
}

/// Starts the loader and answers it until it attaches; with `goes_on` it can be answered further, in simulated time.
pub(crate) fn begin(
    request: &Request<'_>,
    root: &Path,
    goes_on: bool,
) -> Result<(Server, Box<Host>, Stopped), LoaderError> {
    let program = request.program.display().to_string();
    let start = |source| LoaderError::Start { program: program.clone(), source };
    let object = |source: ObjectError| LoaderError::Object { program: program.clone(), source };
    let host = Host::new(request.machine, Arc::clone(&request.kernel.btf), Arc::clone(&request.kernel.layout));
    let mut host = Box::new(host.map_err(|error| object(error.into()))?);
    let mut output = tempfile::tempfile().map_err(start)?;
    let mounts = match request.paths {
        Paths::Answered => None,
        Paths::Mounted => Some(mounts_of(root, goes_on).map_err(|source| LoaderError::Forbidden {
            program: program.clone(),
            what: "mounts of its own (namespaces of users and mounts)",
            source,
        })?),
        Paths::Either => mounts_of(root, goes_on).ok(),
    };
    let time: &[i64] = if goes_on { &waits::CALLS } else { &[] };
    let numbers: Vec<i64> = [BPF, libc::SYS_perf_event_open, libc::SYS_epoll_ctl, libc::SYS_uname]
        .iter()
        .chain(if mounts.is_some() { &paths::CHANGES[..] } else { &paths::CALLS[..] })
        .chain(time)
        .copied()
        .collect();
    let copy = output.try_clone().map_err(start)?;
    let spawned = Process::spawn(request.program, request.arguments, &numbers, &PERF_REQUESTS, copy, mounts);
    let process = spawned.map_err(|error| match error {
        SpawnError::Start(source) => start(source),
        SpawnError::Forbidden(what, source) => LoaderError::Forbidden { program: program.clone(), what, source },
        SpawnError::Ended(status) => {
            let said = last_words(&mut output);
            LoaderError::Ended { program: program.clone(), status: status.to_string(), said, missing: Vec::new() }
        }
    })?;
    let mut server = Server {
        process,
        answers: Answers::new(request.machine, request.kernel),
        output,
        waits: goes_on.then(Waits::new),
        has_no_clock: !goes_on,
    };
    let began = Instant::now();
    let until = began + request.timeout;
    // Since when it waits for something that no call of its own brings.
    let mut rests_since = None;
    let stopped = loop {
        match server.process.next(until.min(Instant::now() + LOOKED_AT)) {
            Ok(Next::Call(call)) => {
                rests_since = None;
                match server.call(&mut host, &call, root) {
                    Ok(None) => {}
                    Ok(Some(capture)) => break Stopped::Attached(call, capture),
                    Err(source) => return Err(object(source)),
                }
            }
            Ok(Next::TimedOut) => {
                let now = Instant::now();
                let since = *rests_since.get_or_insert(now);
                if !server.process.rests() {
                    rests_since = None;
                } else if now - since >= request.timeout.min(LONGEST_REST) {
                    break Stopped::TimedOut(now - began);
                }
                if now >= until {
                    break Stopped::TimedOut(now - began);
                }
            }
            Ok(Next::Ended) => break Stopped::Ended,
            Err(source) => {
                return Err(LoaderError::Forbidden { program, what: "the next system call", source });
            }
        }
    };
    Ok((server, host, stopped))
}

/// The mounts that show a loader the machine, where they can be made.
fn mounts_of(root: &Path, goes_on: bool) -> io::Result<Mounts> {
    let mounts = Mounts::prepare(root, goes_on)?;
    mounts.try_out()?;
    Ok(mounts)
}

/// Why a loader is no longer answered.
pub(crate) enum Stopped {
    /// It attached its scheduler, by this call.
    Attached(Call, Box<Capture>),
    /// It took so long, which is too long.
    TimedOut(Duration),
    /// It is gone.
    Ended,
}

/// The last lines that a loader printed, in one.
pub(crate) fn last_words(output: &mut File) -> String {
    const LINES: usize = 4;
    const LONGEST: u64 = 64 << 10;
    let mut text = Vec::new();
    // Nothing that can be read is nothing that it said.
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let from = SeekFrom::Start(length.saturating_sub(LONGEST));
    let _ = output.seek(from).and_then(|_| output.by_ref().take(LONGEST).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() { "nothing".to_owned() } else { last.join(" | ") }
}

impl Server {
    /// Why there is no scheduler, of a loader that did not attach one.
    pub(crate) fn refuse(mut self, request: &Request<'_>, stopped: &Stopped) -> LoaderError {
        let program = request.program.display().to_string();
        let status = self.process.end();
        let said = last_words(&mut self.output);
        match stopped {
            Stopped::TimedOut(waited) => LoaderError::Hangs { program, seconds: waited.as_secs(), said },
            _ => {
                let status = status.map_or_else(|| "in an unknown way".to_owned(), |status| status.to_string());
                let missing = self.answers.needs().filter(|need| !need.is_modelled).cloned().collect();
                LoaderError::Ended { program, status, said, missing }
            }
        }
    }

    /// Answers one call; gives the scheduler if that attached it.
    fn call(&mut self, host: &mut Host, call: &Call, root: &Path) -> Result<Option<Box<Capture>>, ObjectError> {
        if !self.has_no_clock {
            // Where that cannot be done, its clock is this computer's, which the first read of it would show.
            self.has_no_clock = self.process.hide_clock(call).is_ok();
        }
        let number = i64::from(call.number);
        if number == BPF {
            return self.bpf(host, call);
        }
        if let Some(waits) = self.waits.as_mut().filter(|_| waits::CALLS.contains(&number)) {
            waits.serve(&self.process, call);
            return Ok(None);
        }
        let served = match number {
            libc::SYS_uname => self.uname(call).map(|()| true),
            libc::SYS_perf_event_open => {
                self.reply(call, Reply::New(Thing::Other, None));
                Ok(true)
            }
            // What is waited for there never comes.
            libc::SYS_epoll_ctl => Ok(self.answer_if_ours(call, call.arguments[2] as u32)),
            libc::SYS_ioctl => Ok(self.answer_if_ours(call, call.arguments[0] as u32)),
            _ => paths::serve(&self.process, call, root, self.waits.is_some()),
        };
        match served {
            Ok(true) => {}
            Ok(false) => self.process.let_through(call),
            Err(error) => self.process.answer(call, Err(error.raw_os_error().unwrap_or(libc::EFAULT))),
        }
        Ok(None)
    }

    fn answer_if_ours(&self, call: &Call, descriptor: u32) -> bool {
        let ours = self.answers.find(call, descriptor).is_some();
        if ours {
            self.process.answer(call, Ok(0));
        }
        ours
    }

    fn uname(&self, call: &Call) -> io::Result<()> {
        // SAFETY: the kernel fills the structure.
        let mut names: libc::utsname = unsafe {
            let mut names = std::mem::zeroed();
            libc::uname(&raw mut names);
            names
        };
        names.release.fill(0);
        let release = self.answers.kernel.release.bytes().take(names.release.len() - 1);
        for (to, from) in names.release.iter_mut().zip(release) {
            *to = from as libc::c_char;
        }
        // SAFETY: a structure of plain bytes.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(&names).cast::<u8>(), size_of_val(&names)) };
        call.write(call.arguments[0], bytes)?;
        self.process.answer(call, Ok(0));
        Ok(())
    }

    fn reply(&mut self, call: &Call, reply: Reply) -> Option<Box<Capture>> {
        match reply {
            Reply::Value(value) => self.process.answer(call, Ok(value)),
            Reply::Error(error) => self.process.answer(call, Err(error)),
            Reply::Attached(capture) => return Some(capture),
            Reply::New(thing, file) => match file.map_or_else(|| crate::memory_file(c"bpf").map(Arc::new), Ok) {
                Ok(file) => {
                    self.process.answer_with(call, file.as_fd());
                    if self.answers.keep(thing, file).is_err() {
                        self.process.answer(call, Err(libc::EMFILE));
                    }
                }
                Err(_) => self.process.answer(call, Err(libc::EMFILE)),
            },
        }
        None
    }
}

/// A loader that goes on.
impl Server {
    /// The run has come to an instant; a loader that waits until then goes on.
    pub(crate) fn advance(&mut self, moment: &Moment) {
        if let Some(waits) = &mut self.waits {
            waits.is_running = true;
            waits.advance(&self.process, moment.now_ns);
        }
    }

    /// The call that attached is over: it gives a link.
    pub(crate) fn answer_attached(&mut self, call: &Call) {
        self.reply(call, Reply::New(Thing::Other, None));
    }

    /// Answers the next call; whether anything went on.
    ///
    /// # Errors
    /// When nothing more can come of the loader, in words.
    pub(crate) fn one(&mut self, host: &mut Host, root: &Path, wait: Duration) -> Result<bool, String> {
        match self.process.next(Instant::now() + wait) {
            Ok(Next::Call(call)) => match self.call(host, &call, root) {
                Ok(None) => Ok(true),
                Ok(Some(_)) => Err("it attaches a second scheduler".into()),
                Err(error) => Err(error.to_string()),
            },
            Ok(Next::TimedOut) => Ok(self.waits.as_mut().is_some_and(|waits| waits.look(&self.process))),
            Ok(Next::Ended) => Err("it has ended, which takes its scheduler away".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether all its threads wait.
    pub(crate) fn rests(&self) -> bool {
        self.process.rests()
    }

    /// The next instant at which one of them goes on by itself.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.waits.as_ref()?.next_ns()
    }
}
