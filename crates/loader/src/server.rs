//! `bpf(2)` in the kernel's place.
//!
//! This module answers a loader from its start to its end; what is behind the call is in those below.
//!
//! The commands, their structures (`union bpf_attr`) and what loaders expect of each: `docs/spec/bpf-runtime.md` section 3.

mod commands;
mod counters;
mod maps;
pub(crate) mod messages;
mod programs;
mod things;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warmcore_kernel::SchedulerThread;
use warmcore_scx::bytecode::{CalledWith, Host, Moment, Need, Object, ObjectError, ProgramId, Programs, Site};
use warmcore_topology::{CpuId, CpuSet, Machine};

use crate::capture::{Capture, CaptureRequest, LoaderError, Paths};
use crate::files::SchedExt;
use crate::kernel::TargetKernel;
use crate::namespace::Mounts;
use crate::output::Output;
use crate::owner::{self, Owner};
use crate::paths;
use crate::process::{Call, Next, Process, SpawnError};
use crate::rings::{self, Rings};
use crate::threads::{self, Positions, Threads};
use crate::waits::{self, Waits};
use commands::Failure;
use things::{Reply, Thing};

const BPF: i64 = libc::SYS_bpf;

/// How often a loader that calls nothing is looked at.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// The same while a thread of it waits for a time to come, which it does when all wait.
const HELD_LOOKED_AT: Duration = Duration::from_millis(5);

/// How long a loader may do nothing at all before it attaches: what it waits for does not come.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// The kernel's side of `bpf(2)`: what was made by it, and what its commands give.
struct Answers {
    machine: Machine,
    kernel: TargetKernel,
    programs: Programs,
    /// Things by the number of the file behind their descriptors, which is kept open so that the number stays theirs.
    things: HashMap<u64, (Thing, Arc<OwnedFd>)>,
    /// What was asked for beside calls and operations: kinds of maps, and programs that are attached elsewhere.
    needs: BTreeSet<Need>,
    /// Programs of tracing that were attached since a scheduler was.
    at: Vec<(Site, CalledWith, ProgramId)>,
    sched_ext: SchedExt,
    /// The CPU that the thread is on whose call is answered.
    cpu: CpuId,
    /// Whether instructions, cycles and lines are counted in the run.
    counts_memory: bool,
}

impl Answers {
    fn new(machine: &Machine, kernel: &TargetKernel, counts_memory: bool) -> Self {
        Self {
            machine: machine.clone(),
            kernel: kernel.clone(),
            programs: Programs::default(),
            things: HashMap::new(),
            needs: BTreeSet::new(),
            at: Vec::new(),
            sched_ext: SchedExt::default(),
            cpu: CpuId(0),
            counts_memory,
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

    /// Whether there is something in the ring buffer behind a descriptor; `None` if there is none behind it.
    fn ring(&self, host: &Host, call: &Call, descriptor: u32) -> Option<bool> {
        match self.find(call, descriptor)? {
            Thing::Map { handle, .. } => rings::holds_something(host, *handle),
            _ => None,
        }
    }

    /// Remembers a thing by the file that stands for it.
    fn keep(&mut self, thing: Thing, file: Arc<OwnedFd>) -> io::Result<()> {
        let number = File::from(file.as_fd().try_clone_to_owned()?).metadata()?.ino();
        self.things.insert(number, (thing, file));
        Ok(())
    }
}

/// A thread that goes on, and what was known before.
pub(crate) struct Awake {
    number: u32,
    yielded: bool,
    calls: u64,
    positions: Positions,
}

/// Who answers a loader. The kernel that it loads into is handed in with each call.
pub(crate) struct Server {
    process: Process,
    /// What the loader prints.
    pub(crate) output: Rc<RefCell<Output>>,
    answers: Answers,
    waits: Waits,
    owner: Owner,
    threads: Threads,
    rings: Rings,
    /// The machine's files, and whether they are mounted where it looks.
    root: PathBuf,
    are_mounted: bool,
    /// Of each CPU how long it has been busy and idle, in ns.
    cpu_times: Vec<(u64, u64)>,
    /// The CPUs that are online, and how often one has gone offline or come online.
    hotplug: (CpuSet, u64),
    /// The call by which it has attached another scheduler after its first one was ended.
    again: Option<(Call, Box<Capture>)>,
    /// Stands for the link of its scheduler: this end of a pipe is kept, and shows when the loader has no other end any more.
    link: Arc<OwnedFd>,
    /// What it is given of it.
    link_of_loader: Option<OwnedFd>,
    /// Whether its clock is a system call by now.
    has_no_clock: bool,
}

/// Starts the loader, has this process sealed, and answers the loader until it attaches.
pub(crate) fn begin(
    request: &CaptureRequest<'_>,
    seal: impl FnOnce() -> io::Result<()>,
) -> Result<(Server, Box<Host>, Stopped), LoaderError> {
    let program = request.program.display().to_string();
    let start = |source| LoaderError::Start { program: program.clone(), source };
    let object = |source: ObjectError| LoaderError::Object { program: program.clone(), source };
    let forbidden =
        |what| move |source| LoaderError::Forbidden { program: request.program.display().to_string(), what, source };
    let host = Host::new(request.machine, Arc::clone(&request.kernel.btf), Arc::clone(&request.kernel.layout));
    let mut host = Box::new(host.map_err(|error| object(error.into()))?);
    let mounts = match request.paths {
        Paths::Answered => None,
        Paths::Mounted => {
            let what = "mounts of its own (namespaces of users and mounts)";
            Some(mounts_of(request.files, false).map_err(forbidden(what))?)
        }
        Paths::Either => mounts_of(request.files, false).ok(),
        Paths::Confined => {
            let what = "confinement (namespaces of users, mounts and networks; Linux 5.12)";
            Some(mounts_of(request.files, true).map_err(forbidden(what))?)
        }
    };
    let numbers: Vec<i64> = [BPF, libc::SYS_perf_event_open, libc::SYS_epoll_ctl, libc::SYS_uname]
        .iter()
        .chain(if mounts.is_some() { &paths::WHERE_MOUNTED[..] } else { &paths::CALLS[..] })
        .chain(&waits::CALLS)
        .chain(&owner::CALLS)
        .copied()
        .collect();
    let are_mounted = mounts.is_some();
    let spawned = Process::spawn(
        request.program,
        request.arguments,
        &numbers,
        (&counters::REQUESTS, counters::LONGEST_READ),
        mounts,
    );
    let process = spawned.map_err(|error| match error {
        SpawnError::Start(source) => start(source),
        SpawnError::Forbidden(what, source) => forbidden(what)(source),
    })?;
    let (link, link_of_loader) = io::pipe().map_err(forbidden("a pipe"))?;
    seal().map_err(forbidden("bounds for who answers it"))?;
    let mut server = Server {
        output: Rc::clone(&process.output),
        process,
        answers: Answers::new(request.machine, request.kernel, request.counts_memory),
        waits: Waits::new(),
        owner: Owner::new(request.machine),
        threads: Threads::default(),
        rings: Rings::default(),
        root: request.files.to_owned(),
        are_mounted,
        cpu_times: vec![(0, 0); request.machine.cpu_count()],
        hotplug: (request.machine.all_cpus().clone(), 0),
        again: None,
        link: Arc::new(link.into()),
        link_of_loader: Some(link_of_loader.into()),
        has_no_clock: false,
    };
    let stopped = server.until_attached(&mut host, request.timeout).map_err(|error| match error {
        Trouble::Object(source) => object(source),
        Trouble::System(source) => forbidden("the next system call")(source),
    })?;
    Ok((server, host, stopped))
}

/// What ends the answering of calls, but the loader itself.
enum Trouble {
    Object(ObjectError),
    System(io::Error),
}

/// The mounts that show a loader the machine, where they can be made; confined or not.
fn mounts_of(root: &Path, are_confined: bool) -> io::Result<Mounts> {
    let mounts = Mounts::prepare(root, are_confined)?;
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
    /// It prints without an end.
    Floods,
}

impl Server {
    fn until_attached(&mut self, host: &mut Host, timeout: Duration) -> Result<Stopped, Trouble> {
        let began = Instant::now();
        let until = began + timeout;
        // Since when it waits for something that no call of its own brings.
        let mut rests_since = None;
        loop {
            let wait = if self.waits.are_held() { HELD_LOOKED_AT } else { LOOKED_AT };
            match self.process.next(until.min(Instant::now() + wait)) {
                Ok(Next::Call(call)) => {
                    rests_since = None;
                    if let Some(capture) = self.call(host, &call).map_err(Trouble::Object)? {
                        return Ok(Stopped::Attached(call, capture));
                    }
                }
                Ok(Next::TimedOut) => {
                    let now = Instant::now();
                    let since = *rests_since.get_or_insert(now);
                    if self.look(host) || !self.process.rests() || self.skip(host) {
                        rests_since = None;
                    } else if self.process.has_ended() {
                        // What it has started is there, and does nothing.
                        return Ok(Stopped::Ended);
                    } else if now - since >= timeout.min(LONGEST_REST) {
                        return Ok(Stopped::TimedOut(now - began));
                    }
                    if now >= until {
                        return Ok(Stopped::TimedOut(now - began));
                    }
                }
                Ok(Next::Ended) => return Ok(Stopped::Ended),
                Ok(Next::Floods) => return Ok(Stopped::Floods),
                Err(source) => return Err(Trouble::System(source)),
            }
        }
    }

    /// Why there is no scheduler, of a loader that did not attach one.
    pub(crate) fn refuse(mut self, request: &CaptureRequest<'_>, stopped: &Stopped) -> LoaderError {
        let program = request.program.display().to_string();
        let status = self.process.end();
        let said = self.output.borrow_mut().last_words();
        match stopped {
            Stopped::TimedOut(waited) => LoaderError::Hangs { program, seconds: waited.as_secs(), said },
            Stopped::Floods => LoaderError::Floods { program, said },
            _ => {
                let status = status.map_or_else(|| "in an unknown way".to_owned(), |status| status.to_string());
                let missing = self.answers.needs().filter(|need| !need.is_modelled).cloned().collect();
                LoaderError::Ended { program, status, said, missing }
            }
        }
    }

    /// Answers one call; gives the scheduler if that attached it.
    fn call(&mut self, host: &mut Host, call: &Call) -> Result<Option<Box<Capture>>, ObjectError> {
        if !self.has_no_clock {
            // Where that cannot be done, its clock is this computer's, which the first read of it would show.
            self.has_no_clock = self.process.hide_clock(call).is_ok();
        }
        let number = i64::from(call.number);
        // A call that is looked at only where nothing can be mounted costs nothing there either: results do not depend on that.
        if !paths::CALLS.contains(&number) || paths::WHERE_MOUNTED.contains(&number) {
            self.threads.called(call, if waits::READS.contains(&number) { waits::READ_NS } else { threads::CALL_NS });
        }
        if number == BPF {
            return self.bpf(host, call);
        }
        if waits::CALLS.contains(&number) {
            let rings = |call: &Call, descriptor| self.answers.ring(host, call, descriptor);
            self.waits.serve(&self.process, call, &rings, &self.threads);
            return Ok(None);
        }
        if owner::CALLS.contains(&number) {
            self.owner.serve(&self.process, call, &mut self.threads);
            return Ok(None);
        }
        let served = match number {
            libc::SYS_uname => self.uname(call).map(|()| true),
            libc::SYS_perf_event_open => self.answers.open_event(host, call, self.waits.now_ns()).map(|reply| {
                self.reply(call, reply);
                true
            }),
            libc::SYS_read => {
                let read = self.answers.read_event(host, call, self.waits.now_ns());
                read.map(|result| result.map(|result| self.process.answer(call, result)).is_some())
            }
            libc::SYS_epoll_ctl => match self.answers.find(call, call.arguments[2] as u32) {
                Some(&Thing::Map { handle, .. }) if rings::holds_something(host, handle).is_some() => {
                    self.rings.wait(&self.process, call, handle).map(|()| {
                        self.process.answer(call, Ok(0));
                        true
                    })
                }
                // What is waited for there never comes.
                _ => Ok(self.answer_if_ours(call, call.arguments[2] as u32)),
            },
            libc::SYS_ioctl => match self.answers.request(host, call, self.waits.now_ns()) {
                Ok(result) => Ok(result.map(|result| self.process.answer(call, result)).is_some()),
                Err(Failure::Memory) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
                Err(Failure::Object(error)) => return Err(error),
            },
            _ => {
                let files = paths::Files {
                    root: &self.root,
                    are_mounted: self.are_mounted,
                    cpu_times: &self.cpu_times,
                    hotplug: &self.hotplug,
                    sched_ext: &self.answers.sched_ext,
                };
                paths::serve(&self.process, call, &files)
            }
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
            Reply::Detached => {
                self.end_scheduler();
                self.process.answer(call, Ok(0));
            }
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
    /// The run has come to an instant.
    pub(crate) fn advance(&mut self, moment: &Moment) {
        self.cpu_times.clone_from(&moment.cpus);
        self.hotplug = (moment.online.clone(), moment.changes);
        self.answers.sched_ext.count(moment.events);
        self.waits.advance(moment.now_ns, moment.by_task);
    }

    /// Gives its threads their numbers.
    pub(crate) fn find_threads(&mut self) {
        self.threads.find(&self.process);
        // What it did before its tasks could run is free.
        self.threads.forgive();
    }

    /// Its threads, as they ask to be scheduled.
    pub(crate) fn scheduling(&self) -> Vec<SchedulerThread> {
        self.threads.names().map(|thread| self.owner.scheduling_of(thread, self.process.name_of(thread))).collect()
    }

    /// Numbers of threads whose tasks have something to run.
    pub(crate) fn runnable(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.waits.due().map(|thread| self.threads.number_of(thread)).collect();
        numbers.extend(self.threads.owing());
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Threads that ask to be scheduled otherwise than they did.
    pub(crate) fn take_changed(&mut self) -> Vec<(u32, SchedulerThread)> {
        let changed = self.owner.take_changed();
        let all = changed.into_iter().map(|thread| {
            let name = self.process.name_of(thread);
            (self.threads.number_of(thread), self.owner.scheduling_of(thread, name))
        });
        all.collect()
    }

    /// What the task of a thread runs now for what the thread has done.
    pub(crate) fn take_owed(&mut self, number: u32) -> Option<u64> {
        self.threads.take_owed(number)
    }

    /// The task of a thread runs: lets the thread go on if it is due.
    pub(crate) fn let_go_on(&mut self, host: &Host, number: u32) -> Option<Awake> {
        let rings = |call: &Call, descriptor| self.answers.ring(host, call, descriptor);
        let yielded = self.waits.has_yielded(|thread| self.threads.number_of(thread) == number);
        let went = self.waits.go_on(&self.process, &rings, |thread| self.threads.number_of(thread) == number);
        let calls = self.threads.calls(number);
        went.then(|| Awake { number, yielded, calls, positions: Positions::of(host) })
    }

    /// It waits again.
    pub(crate) fn has_gone_on(&mut self, host: &Host, awake: &Awake) {
        let records = awake.positions.records_since(host);
        // A turn that a thread takes itself comes with no interrupt, and it knows where it was.
        let wake_ns = if awake.yielded { 0 } else { threads::WAKE_NS };
        self.threads.was_awake(awake.number, wake_ns, records);
        if awake.yielded {
            self.threads.has_looked(awake.number, awake.calls, records);
        }
    }

    /// Whether a thread of this number has yielded, which its task does now.
    pub(crate) fn yields(&mut self, number: u32) -> bool {
        self.waits.yields(|thread| self.threads.number_of(thread) == number)
    }

    /// The call that attached is over: it gives a link.
    pub(crate) fn answer_attached(&mut self, call: &Call, object: Arc<Object>) {
        self.answers.sched_ext.attach(object);
        let Some(end) = self.link_of_loader.take().or_else(|| self.renew_link()) else {
            self.process.answer(call, Err(libc::EMFILE));
            return;
        };
        self.process.answer_with(call, end.as_fd());
        if self.answers.keep(Thing::Scheduler, Arc::clone(&self.link)).is_err() {
            self.process.answer(call, Err(libc::EMFILE));
        }
    }

    /// A link for another scheduler: what the loader is given of it.
    fn renew_link(&mut self) -> Option<OwnedFd> {
        let (link, link_of_loader) = io::pipe().ok()?;
        self.link = Arc::new(link.into());
        Some(link_of_loader.into())
    }

    /// What it has attached since its scheduler was ended, with the call that waits for its answer.
    pub(crate) fn attached_again(&mut self) -> Option<(Call, Box<Capture>)> {
        self.again.take()
    }

    /// The scheduler is attached no more.
    pub(crate) fn end_scheduler(&mut self) {
        self.answers.sched_ext.end();
    }

    /// Whether its loader has detached it, as by closing the last descriptor of its link.
    pub(crate) fn is_detached(&mut self) -> bool {
        let mut poll = libc::pollfd { fd: self.link.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that is open.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        if self.answers.sched_ext.is_attached() && poll.revents & libc::POLLHUP != 0 {
            self.end_scheduler();
        }
        self.answers.sched_ext.is_ended()
    }

    /// Answers the next call; whether anything went on.
    ///
    /// # Errors
    /// When nothing more can come of the loader, in words.
    pub(crate) fn one(&mut self, host: &mut Host, wait: Duration) -> Result<bool, String> {
        match self.process.next(Instant::now() + wait) {
            Ok(Next::Call(call)) => {
                self.is_detached();
                match self.call(host, &call) {
                    Ok(None) => Ok(true),
                    Ok(Some(capture)) => {
                        self.again = Some((call, capture));
                        Ok(true)
                    }
                    Err(error) => Err(error.to_string()),
                }
            }
            Ok(Next::TimedOut) => {
                self.rings.tell(host);
                Ok(self.look(host))
            }
            Ok(Next::Ended) => Err("it has ended, which takes its scheduler away".into()),
            Ok(Next::Floods) => Err("it prints without an end".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Lets a thread go on for which something is there; whether there was one.
    fn look(&mut self, host: &Host) -> bool {
        let rings = |call: &Call, descriptor| self.answers.ring(host, call, descriptor);
        self.waits.look(&self.process, &rings)
    }

    /// Lets a thread go on whose wait is the first to be over before the scheduler is attached; whether there was one.
    fn skip(&mut self, host: &Host) -> bool {
        let rings = |call: &Call, descriptor| self.answers.ring(host, call, descriptor);
        self.waits.skip(&self.process, &rings)
    }

    /// Whether all its threads wait, and nothing whose time has come is left: one such goes on if they do.
    pub(crate) fn rests(&mut self, host: &Host) -> bool {
        let rings = |call: &Call, descriptor| self.answers.ring(host, call, descriptor);
        self.process.rests() && !self.waits.release(&self.process, &rings)
    }

    /// The next instant at which one of them goes on by itself.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.waits.next_ns()
    }
}
