//! Records the scheduling of this computer while a command runs.
//!
//! Events come from a tracefs instance of its own, of all CPUs: a migration is often decided by somebody else's thread. They are read
//! while the command runs, by a thread that sleeps between two readings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use warmcore_agent::tracefs::{Instance, Pages};
use warmcore_capture::trace_dat::{self, Contents};
use warmcore_capture::written;
use warmcore_capture::{OpenFiles, PageHomes, Recording, Source};

use super::counters::{self, Counters, accounts};
use super::homes::Homes;
use super::kept_pages::KeptPages;
use super::leftovers::own_name;
use super::peers::Peers;
use super::probes::{self, Probes};
use super::tracing::{self, TRACEFS, Turn};
use super::trial::monotonic_ns;
use crate::files::{source_of, unnamed};
use crate::place::{PlaceError, Trouble};

/// Time between two readings of the buffers.
pub const BETWEEN_READINGS: Duration = Duration::from_millis(50);

/// Pages that a reading takes of a CPU at most: where they come faster than they are taken it would never end.
const MOST_PAGES: usize = 2048;
/// The same at the beginning, where files are looked at, and how often.
const BETWEEN_EARLY_READINGS: Duration = Duration::from_millis(4);
const EARLY_READINGS: u32 = 25;
/// Most room for samples of counters, KiB per CPU.
const MOST_COUNTER_KIB: u32 = 16_384;

const CODE: &str = "warmcore::record";

fn failed(reason: String) -> PlaceError {
    PlaceError::new(Trouble::Failed, CODE, reason, "`warmcore doctor host` says what this computer has")
}

/// A tracefs instance, removed on every way out.
#[derive(Debug)]
pub struct Recorder {
    instance: Instance,
    header_page: String,
    /// Names with their subsystems, and formats.
    events: Vec<(String, String)>,
    /// Whether tracefs was mounted for this.
    mounted: bool,
    /// The BPF recorder, if events come from it and not from the instance, which is not made then.
    probes: Option<PathBuf>,
    wanted: Wanted,
    ended: bool,
}

/// Where events come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// The kernel's own trace; BPF where that cannot be had.
    #[default]
    Auto,
    /// The kernel's own trace.
    Tracefs,
    /// BPF programs at raw tracepoints.
    Bpf,
}

/// What is recorded besides the scheduler's events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Where events come from.
    pub backend: Backend,
    /// System calls through which threads wake each other, where the kernel has events for them, and what their files are.
    pub calls: bool,
    /// What threads count.
    pub counters: Option<counters::Wanted>,
    /// Where pages live.
    pub homes: bool,
}

impl Recorder {
    /// Makes the instance, and mounts tracefs, if it is not mounted, until the last recording ends. The calling thread is the one that is to
    /// take what is recorded: its system calls are left out.
    ///
    /// # Errors
    /// When this computer, or this user, cannot.
    pub fn begin(wanted: Wanted) -> Result<Self, PlaceError> {
        match wanted.backend {
            Backend::Tracefs => Self::with_tracefs(wanted),
            Backend::Bpf => Self::with_probes(wanted),
            Backend::Auto => {
                let probes = (!wanted.calls).then(|| wanted.clone());
                Self::with_tracefs(wanted).or_else(|error| match probes {
                    Some(wanted) => Self::with_probes(wanted).map_err(|_| error),
                    None => Err(error),
                })
            }
        }
    }

    /// Events from BPF programs, which are loaded and unloaded once to see whether they can be.
    fn with_probes(wanted: Wanted) -> Result<Self, PlaceError> {
        let unable = |message: String| {
            let advice = match rustix::process::geteuid().is_root() {
                true => "--backend tracefs records without BPF",
                false => {
                    "BPF programs need CAP_BPF and CAP_PERFMON: be root, or `setcap cap_bpf,cap_perfmon+ep warmcore-recorder-bpf`"
                }
            };
            PlaceError::new(Trouble::Unable, CODE, message, advice)
        };
        if wanted.calls {
            return Err(unable("the BPF back end records no system calls".into()));
        }
        let program = probes::find();
        let program = program.ok_or_else(|| {
            unable(format!("there is no program {}, which belongs next to warmcore", probes::PROGRAM))
        })?;
        let tried = Probes::start(&program, 4, &std::env::temp_dir());
        tried.and_then(|probes| probes.finish(possible_cpus(), |_, _| Ok(()))).map_err(unable)?;
        let instance = Instance::at(TRACEFS, "none");
        let (header_page, events) = (written::HEADER_PAGE.into(), written::descriptions());
        Ok(Self { instance, header_page, events, mounted: false, probes: Some(program), wanted, ended: false })
    }

    /// Which back end it is, in a word.
    pub fn backend(&self) -> &'static str {
        if self.probes.is_some() { "bpf" } else { "tracefs" }
    }

    fn with_tracefs(wanted: Wanted) -> Result<Self, PlaceError> {
        let turn = Turn::wait();
        let mounted = tracing::mount(&turn)?;
        let instance = Instance::at(TRACEFS, &own_name());
        let prepare = || {
            let formats = instance.prepare()?;
            let calls = if wanted.calls {
                instance.with_calls(rustix::thread::gettid().as_raw_nonzero().get())?
            } else {
                Vec::new()
            };
            Ok((formats, instance.with_new_threads()?, calls))
        };
        let prepared: Result<_, String> = prepare();
        match prepared {
            Ok((formats, new_threads, calls)) => {
                let mut events = formats.events;
                events.extend(new_threads.into_iter().chain(calls));
                Ok(Self {
                    instance,
                    header_page: formats.header_page,
                    events,
                    mounted,
                    probes: None,
                    wanted,
                    ended: false,
                })
            }
            Err(reason) => {
                let _ = instance.remove();
                let _ = tracing::unmount(&turn);
                let advice = match rustix::process::geteuid().is_root() {
                    true => "`warmcore doctor host` says what this computer has",
                    false => "recording needs root, or write access to /sys/kernel/tracing by its group and mode",
                };
                Err(PlaceError::new(Trouble::Unable, CODE, reason, advice))
            }
        }
    }

    /// Whether it records system calls: none where the kernel has no events for them.
    pub fn has_calls(&self) -> bool {
        self.events.iter().any(|(name, _)| name.starts_with("syscalls/"))
    }

    /// Whether tracefs was mounted for it.
    pub fn mounted(&self) -> bool {
        self.mounted
    }

    /// Records from now on a process that does not run yet, or what it does from now on. Pages are kept in a file in `directory`, or else in
    /// that for temporary files, in memory if nothing can be written there.
    ///
    /// # Errors
    /// What the kernel refuses, such as buffers that it has no memory for.
    pub fn start(&self, buffer_kib: u32, root: i32, directory: Option<&Path>) -> Result<Reading<'_>, PlaceError> {
        let instance = &self.instance;
        let count = if self.probes.is_some() { possible_cpus() } else { instance.cpus() };
        let readers: Vec<Pages> = match self.probes {
            Some(_) => Vec::new(),
            None => (0..count).map(|cpu| instance.pages(cpu)).collect::<Result<_, _>>().map_err(failed)?,
        };
        let pages = match directory {
            Some(directory) => KeptPages::in_directory(directory, count)
                .map_err(|error| failed(format!("cannot keep pages in {}: {error}", directory.display())))?,
            None => {
                KeptPages::in_directory(&std::env::temp_dir(), count).unwrap_or_else(|_| KeptPages::in_memory(count))
            }
        };
        let cpus: Vec<u32> = (0..count as u32).filter(|cpu| is_online(*cpu)).collect();
        let wanted = &self.wanted;
        let mut counters =
            wanted.counters.as_ref().map(|wanted| Counters::open(wanted, &cpus, buffer_kib.min(MOST_COUNTER_KIB)));
        let probes = match &self.probes {
            // One ring is for all CPUs.
            Some(program) => {
                let kib = buffer_kib.saturating_mul(count as u32).min(1 << 20);
                let directory = directory.map_or_else(std::env::temp_dir, Path::to_owned);
                Some(Probes::start(program, kib, &directory).map_err(failed)?)
            }
            None => {
                instance.start(buffer_kib).map_err(failed)?;
                None
            }
        };
        if let Some(counters) = &mut counters {
            counters.start().map_err(|error| failed(format!("counters cannot be started: {error}")))?;
        }
        let mut processes = BTreeMap::new();
        let before = threads_of(root, &mut processes);
        let peers = wanted.calls.then(Peers::default);
        let homes = wanted.homes.then(Homes::begin);
        Ok(Reading {
            recorder: self,
            root,
            readers,
            pages,
            processes,
            before,
            readings: 0,
            probes,
            counters,
            peers,
            homes,
        })
    }

    /// Puts everything back: tracefs that a recording mounted is unmounted by the last one.
    ///
    /// # Errors
    /// While somebody has files of the instance open, or uses tracefs that no recording needs any more. What was recorded is whole.
    pub fn end(mut self) -> Result<(), PlaceError> {
        self.ended = true;
        if self.probes.is_some() {
            return Ok(());
        }
        let turn = Turn::wait();
        let removed = self.instance.remove();
        removed.and_then(|()| tracing::unmount(&turn)).map_err(|reason| {
            let advice = "`warmcore doctor restore` removes it when no program uses it any more";
            PlaceError::new(Trouble::State, CODE, reason, advice)
        })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.ended && self.probes.is_none() {
            let _ = self.instance.stop();
            let turn = Turn::wait();
            let _ = self.instance.remove();
            let _ = tracing::unmount(&turn);
        }
    }
}

/// A recording in progress.
pub struct Reading<'a> {
    recorder: &'a Recorder,
    root: i32,
    readers: Vec<Pages>,
    pages: KeptPages,
    processes: BTreeMap<i32, i32>,
    before: BTreeMap<i32, Accounts>,
    readings: u32,
    probes: Option<Probes>,
    counters: Option<Counters>,
    peers: Option<Peers>,
    homes: Option<Homes>,
}

/// What the kernel's accounts say of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Accounts {
    /// Time on CPUs, ns.
    pub run_ns: u64,
    /// Context switches.
    pub switches: u64,
    /// Page faults without reading.
    pub minor_faults: u64,
    /// Page faults with.
    pub major_faults: u64,
}

impl Accounts {
    fn of([run_ns, switches, minor_faults, major_faults]: [u64; 4]) -> Self {
        Self { run_ns, switches, minor_faults, major_faults }
    }

    fn since(self, before: &Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(before.run_ns),
            switches: self.switches.saturating_sub(before.switches),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
        }
    }
}

impl Reading<'_> {
    /// How long to wait before the next reading. Where files are looked at, the first ones come soon: programs open most at their beginning.
    pub fn pause(&self) -> Duration {
        let soon = self.peers.is_some() && self.readings < EARLY_READINGS;
        if soon { BETWEEN_EARLY_READINGS } else { BETWEEN_READINGS }
    }

    /// Takes what there is. To be called every [`BETWEEN_READINGS`] or so.
    ///
    /// # Errors
    /// Buffers that cannot be read.
    pub fn take(&mut self) -> Result<(), PlaceError> {
        self.readings += 1;
        threads_of(self.root, &mut self.processes);
        let now = monotonic_ns();
        if let Some(counters) = &mut self.counters {
            counters.take(now, &self.processes);
        }
        if let Some(peers) = &mut self.peers {
            peers.look(now, &self.processes);
        }
        if let Some(homes) = &mut self.homes {
            homes.look(now, &self.processes);
        }
        self.drain(MOST_PAGES)
    }

    /// Records no more.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn stop(mut self) -> Result<Stopped, PlaceError> {
        let now = monotonic_ns();
        let stopped = self.counters.take().map(|counters| counters.stop(now, &self.processes));
        let counters = stopped.transpose().map_err(|error| failed(format!("counters cannot be read: {error}")))?;
        let mut accounts = threads_of(self.root, &mut self.processes);
        let instance = &self.recorder.instance;
        let mut notes = Vec::new();
        let (lost, header_event) = match self.probes.take() {
            Some(probes) => {
                let tells_interrupts = probes.tells_interrupts();
                let pages = &mut self.pages;
                let cpus = pages.cpus();
                let kept = |cpu: usize, page: &[u8]| pages.keep(cpu, page).map_err(not_kept);
                let lost = probes.finish(cpus, kept).map_err(failed)?;
                if !tells_interrupts {
                    notes.push("events of this kernel do not distinguish interrupts from threads: wakeups by interrupts count for the thread that they interrupted".to_owned());
                }
                (vec![lost], written::HEADER_EVENT.into())
            }
            None => {
                instance.stop().map_err(failed)?;
                self.drain(usize::MAX)?;
                (instance.counts().map_err(failed)?.1, instance.header_event().map_err(failed)?)
            }
        };
        let files = self.peers.take().map_or_else(OpenFiles::default, |peers| peers.finish(now, &self.processes));
        let homes = self.homes.take().map_or_else(PageHomes::default, |homes| homes.finish(now, &self.processes));
        drop(self.readers);
        everybody(&mut self.processes);
        accounts.retain(|thread, _| self.before.contains_key(thread));
        accounts.iter_mut().for_each(|(thread, now)| *now = now.since(&self.before[thread]));
        let contents = Contents {
            header_page: self.recorder.header_page.clone(),
            header_event,
            events: self.recorder.events.clone(),
            cmdlines: names(&self.processes),
            clock: Instance::CLOCK.into(),
            processes: self.processes,
            pages: Vec::new(),
            lost,
            counters,
            files,
            homes,
            notes,
        };
        Ok(Stopped { contents, pages: self.pages, accounts })
    }

    /// Takes so many pages of each CPU at most.
    fn drain(&mut self, most: usize) -> Result<(), PlaceError> {
        for (cpu, reader) in self.readers.iter_mut().enumerate() {
            for _ in 0..most {
                let Some(page) = reader.read().map_err(failed)? else { break };
                self.pages.keep(cpu, page).map_err(|error| failed(not_kept(error)))?;
            }
        }
        Ok(())
    }
}

fn not_kept(error: std::io::Error) -> String {
    format!("cannot keep a page: {error}")
}

/// What was recorded.
#[derive(Debug)]
pub struct Stopped {
    /// All but the pages.
    pub contents: Contents,
    /// The pages.
    pub pages: KeptPages,
    /// What the kernel's own accounts grew by since the beginning, of threads that were there at both.
    pub accounts: BTreeMap<i32, Accounts>,
}

/// What was recorded, as readers of files see it. Its records stay in a temporary file, or in memory if nothing can be written there.
///
/// # Errors
/// When it cannot be read.
pub fn recording(recorded: &Stopped) -> Result<Recording, PlaceError> {
    let in_file = || {
        let mut file = unnamed(&std::env::temp_dir())?;
        recorded.pages.write(&mut file, &recorded.contents)?;
        source_of(file)
    };
    let in_memory = || {
        let mut bytes = Vec::new();
        recorded.pages.write(&mut bytes, &recorded.contents)?;
        Ok(Arc::new(bytes) as Arc<dyn Source>)
    };
    let written: std::io::Result<_> = in_file().or_else(|_| in_memory());
    let written = written.map_err(|error| error.to_string());
    let read = written.and_then(|source| trace_dat::open(source).map_err(|error| error.to_string()));
    read.map_err(|reason| failed(format!("the recording cannot be read: {reason}")))
}

/// The process of each thread of a process and of what descends from it, now; this program is left out, which may descend from the process
/// that it records.
pub fn descendants(root: i32) -> BTreeMap<i32, i32> {
    let mut processes = BTreeMap::new();
    threads_of(root, &mut processes);
    processes
}

/// Accounts of the threads of a process and of what descends from it but this program, by thread, and which process they are of.
fn threads_of(root: i32, processes: &mut BTreeMap<i32, i32>) -> BTreeMap<i32, Accounts> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root];
    let own = std::process::id().cast_signed();
    while let Some(process) = waiting.pop() {
        if process == own {
            continue;
        }
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for thread in threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            processes.insert(thread, process);
            if let Some((_, now)) = accounts(process, thread) {
                found.insert(thread, Accounts::of(now));
            }
            let children = fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
            waiting.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
    }
    found
}

/// Adds the processes of all other threads that are there: what ran beside is told by process.
fn everybody(processes: &mut BTreeMap<i32, i32>) {
    let numbers = |path: &str| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).collect::<Vec<_>>()
    };
    for process in numbers("/proc") {
        for thread in numbers(&format!("/proc/{process}/task")) {
            processes.entry(thread).or_insert(process);
        }
    }
}

/// CPUs that the kernel has room for, from 0 on.
fn possible_cpus() -> usize {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    list.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok()).map_or(1, |last| last + 1)
}

/// Whether a CPU is there to be counted on; the first one always is, and has no file that says so.
fn is_online(cpu: u32) -> bool {
    fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/online")).map_or(true, |text| text.trim() == "1")
}

fn names(processes: &BTreeMap<i32, i32>) -> BTreeMap<i32, String> {
    let name = |thread: &i32, process: &i32| fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).ok();
    processes
        .iter()
        .filter_map(|(thread, process)| Some((*thread, name(thread, process)?.trim_end().to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    #[test]
    fn what_descends_from_a_process_already_belongs_to_it_and_the_program_that_records_does_not() {
        let script = "sleep 100 & echo $!; wait";
        let mut shell = Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (parent, child) = (shell.id().cast_signed(), line.trim().parse::<i32>().unwrap());
        let found: BTreeSet<i32> = descendants(parent).into_values().collect();
        for process in [child, parent] {
            kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(found, BTreeSet::from([parent, child]));
        assert!(descendants(std::process::id().cast_signed()).is_empty());
    }
}
