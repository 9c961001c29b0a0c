//! `warmcore record`: the scheduling of a command or a process on this computer, as a run directory.
//!
//! Events come from a tracefs instance of its own, of all CPUs: a migration is often decided by somebody else's thread. They are read
//! while the command runs, by a thread that sleeps between two readings, and kept as `recording.dat`, a file of trace-cmd. What descends
//! from the command is chosen by the forks that were recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::Serialize;
use warmcore_capture::Recording;
use warmcore_capture::homes::ProcessHomes;
use warmcore_capture::trace_dat;
use warmcore_lab::directory::{RECORDING, RunDirectory};
use warmcore_lab::experiment::{Named, TOOL_VERSION};
use warmcore_lab::session::pretty;
use warmcore_places::host::kept_pages::KeptPages;
use warmcore_places::host::recorder::{self, BETWEEN_READINGS, Backend, Recorder, Stopped};
use warmcore_places::host::tracing::TRACEFS;
use warmcore_places::host::trial::{self, STOPPED_START, Watched};
use warmcore_places::recorded::notes_on_extras;
use warmcore_replay::history::histories;
use warmcore_replay::{Fidelity, Overheads, Selection};
use warmcore_topology::Machine;

use crate::args::{BUFFER_KIB, BackendName, RecordArguments};
use crate::commands::compare::directory_failure;
use crate::commands::recording::{Loaded, import};
use crate::commands::report;
use crate::console::Console;
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

#[derive(Serialize)]
struct RecordDocument {
    schema: &'static str,
    tool_version: &'static str,
    run: PathBuf,
    events: u64,
    lost: Vec<u64>,
    seconds: f64,
    /// How the command ended, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    fidelity: Fidelity,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<Overhead>,
    /// Of threads that were there at the beginning and at the end.
    threads: Vec<ThreadAccounts>,
    /// How counters and page homes were had, and what could not be.
    notes: Vec<String>,
    page_homes: Vec<ProcessHomes>,
}

/// What recording costs: elapsed times in seconds, in pairs.
#[derive(Serialize)]
struct Overhead {
    without: Vec<f64>,
    with: Vec<f64>,
    /// Median of the pairs' ratios, less 1.
    share: f64,
}

/// Runs the verb.
pub fn run(arguments: &RecordArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let program = arguments.command.first();
    if program.is_none() && arguments.pid.is_none() {
        return Err(Failure::usage("warmcore::usage", "there is nothing to record")
            .help("name a command after `--`, or a process with --pid"));
    }
    if let Some(program) = program {
        find(program)?;
    }
    if let Some(pid) = arguments.pid.filter(|pid| *pid <= 0 || !Path::new(&format!("/proc/{pid}")).exists()) {
        return Err(Failure::usage("warmcore::record", format!("there is no process {pid}")).help("check the number"));
    }
    let machine = Named { source: "host".into(), value: load::machine("host")?.value };
    let out = arguments.out.clone().unwrap_or_else(free_name);
    let existing = console.existing();
    let backend = match arguments.backend {
        BackendName::Auto => Backend::Auto,
        BackendName::Tracefs => Backend::Tracefs,
        BackendName::Bpf => Backend::Bpf,
    };
    let wanted = recorder::Wanted {
        backend,
        calls: arguments.calls,
        counters: arguments.counters.clone(),
        homes: arguments.page_homes,
    };
    let tracing = Recorder::begin(wanted).map_err(|error| load::place_failure(error, None))?;
    if arguments.backend == BackendName::Auto && tracing.backend() == "bpf" {
        console.note("tracefs is not available: events come from BPF programs");
    }
    if tracing.mounted() {
        console.note(&format!("tracefs is mounted at {TRACEFS} until the last recording ends"));
    }
    if arguments.calls && !tracing.has_calls() {
        console.warn("this kernel has no events for system calls (CONFIG_FTRACE_SYSCALLS): they are not recorded");
    }
    let (directory, _alone) = RunDirectory::create_alone(&out, existing).map_err(directory_failure)?;
    let measured = || {
        let overhead =
            if arguments.overhead > 0 { Some(measure(arguments, &tracing, directory.path(), &signals)?) } else { None };
        Ok((overhead, record(arguments, &tracing, directory.path(), &signals)?))
    };
    let (overhead, mut recorded) = measured().inspect_err(|_: &Failure| directory.abandon())?;
    // What was recorded is kept also where tracing leaves something.
    let ended = tracing.end().map_err(|error| load::place_failure(error, None));
    let path = directory.path().join(RECORDING);
    let kept = fs::File::create(&path).and_then(|mut file| {
        let Stopped { contents, pages, .. } = &recorded.stopped;
        pages.write(&mut file, contents)
    });
    kept.map_err(|error| Failure::failed("warmcore::record", format!("cannot write {}: {error}", path.display())))?;
    // Pages are in the file now, and let go.
    recorded.stopped.pages = KeptPages::in_memory(0);
    let recording = read_back(&path)?;
    let loaded = loaded(&recorded, recording, arguments.command.first(), &machine)?;
    let events = loaded.recording.record_count();
    let processes: Vec<ThreadAccounts> = accounts(&recorded, &loaded);
    let extras = notes_on_extras(&loaded.recording);
    let page_homes = loaded.recording.homes.processes();
    let bar = console.phase("making the run directory and its page");
    let made = import(loaded, machine, &directory, &signals, console).and_then(|(fidelity, known)| {
        Ok((fidelity, report::into_run_directory_of(directory.path(), known, &signals)?))
    });
    bar.finish_and_clear();
    let (fidelity, page) = made?;
    let lost: u64 = recorded.stopped.contents.lost.iter().sum();
    if lost > 0 {
        console.warn(&format!(
            "{lost} events were lost, {:.2} % of all: --buffer makes more room than {} KiB per CPU",
            100.0 * lost as f64 / (lost + events) as f64,
            arguments.buffer
        ));
    }
    if recorded.killed {
        console.note(&format!(
            "the command still ran after {:.2} s, when the recording ended, and was killed (SIGKILL)",
            recorded.seconds
        ));
    }
    if let Some(code) = recorded.exit_code.filter(|code| *code != 0) {
        console.warn(&format!("the command ended with exit code {code}"));
    }
    if console.json() {
        let document = RecordDocument {
            schema: "warmcore-record-1",
            tool_version: TOOL_VERSION,
            run: directory.path().to_owned(),
            events,
            lost: recorded.stopped.contents.lost,
            seconds: recorded.seconds,
            exit_code: recorded.exit_code,
            fidelity,
            overhead,
            threads: processes,
            notes: extras,
            page_homes,
        };
        console.out(&pretty(&document))?;
        return ended;
    }
    let mut text = format!("{events} events in {:.2} s, {lost} lost\n", recorded.seconds);
    extras.iter().for_each(|sentence| text.push_str(&format!("{sentence}\n")));
    fidelity.sentences().iter().for_each(|sentence| text.push_str(&format!("{sentence}\n")));
    for account in processes {
        text.push_str(&format!(
            "{} ({}): {:.3} s on CPU by the kernel's accounts, {:.3} s by the recording\n",
            account.name,
            account.thread,
            account.kernel.run_ns as f64 / 1e9,
            account.recorded_ns as f64 / 1e9
        ));
        if !account.counted.is_empty() {
            text.push_str(&account.compared());
        }
    }
    if let Some(overhead) = overhead {
        text.push_str(&format!(
            "recording makes it {:.1} % slower (median of {} pairs)\n",
            100.0 * overhead.share,
            overhead.with.len()
        ));
    }
    console.out_words(&text)?;
    console.note(&format!("run directory: {}, page: {}", directory.path().display(), page.display()));
    ended
}

/// The first `recording-N` that is not there.
fn free_name() -> PathBuf {
    let names = (1_u32..).map(|number| PathBuf::from(format!("recording-{number}")));
    names.into_iter().find(|path| !path.exists()).unwrap_or_else(|| "recording".into())
}

/// A program that does not exist would only be known to the shell that starts it.
fn find(program: &OsString) -> Result<(), Failure> {
    let path = Path::new(program);
    let exists = if path.components().count() > 1 {
        path.is_file()
    } else {
        let directories = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&directories).any(|directory| directory.join(path).is_file())
    };
    match exists {
        true => Ok(()),
        false => Err(Failure::usage("warmcore::record", format!("there is no program {}", path.display()))
            .help("check its name, or give its path")),
    }
}

/// What was recorded.
struct RecordedRun {
    stopped: Stopped,
    root: i32,
    /// Processes that descended from it already.
    processes: BTreeSet<i32>,
    seconds: f64,
    exit_code: Option<i32>,
    /// Whether the command had not ended.
    killed: bool,
}

/// What a process that runs does for some time.
pub fn of_process(pid: i32, length: Duration, machine: &Named<Machine>, signals: &Signals) -> Result<Loaded, Failure> {
    let failed = |error| load::place_failure(error, None);
    let tracing = Recorder::begin(recorder::Wanted::default()).map_err(failed)?;
    let recorded = follow(&tracing, (BUFFER_KIB, None), (pid, None), Some(length), signals)?;
    tracing.end().map_err(failed)?;
    let recording = recorder::recording(&recorded.stopped).map_err(failed)?;
    loaded(&recorded, recording, None, machine)
}

fn record(
    arguments: &RecordArguments,
    recorder: &Recorder,
    directory: &Path,
    signals: &Signals,
) -> Result<RecordedRun, Failure> {
    let child = StoppedCommand::new(&arguments.command)?;
    let root = child.as_ref().map_or(arguments.pid.unwrap_or_default(), StoppedCommand::id);
    let length = arguments.duration.map(Duration::from_nanos);
    follow(recorder, (arguments.buffer, Some(directory)), (root, child), length, signals)
}

/// Records until the process or the time is over, or a signal comes. Pages are kept in a file in a directory, if one is given.
fn follow(
    recorder: &Recorder,
    (buffer_kib, directory): (u32, Option<&Path>),
    (root, mut child): (i32, Option<StoppedCommand>),
    limit: Option<Duration>,
    signals: &Signals,
) -> Result<RecordedRun, Failure> {
    let failed = |error| load::place_failure(error, None);
    let mut reading = recorder.start(buffer_kib, root, directory).map_err(failed)?;
    let processes = recorder::descendants(root).into_values().chain([root]).collect();
    let start = Instant::now();
    if let Some(child) = &child {
        child.go()?;
    }
    let watched = Watched::new(root).map_err(watch_failed)?;
    let (exit_code, seconds) = loop {
        let pause = reading.pause();
        let rest = limit.map_or(pause, |limit| limit.saturating_sub(start.elapsed()).min(pause));
        let is_over = watched.wait(rest);
        let now = start.elapsed().as_secs_f64();
        let ended = match &mut child {
            Some(child) => child.ended()?,
            // Also one that its parent has not waited for.
            None => is_over.then_some(0),
        };
        reading.take().map_err(failed)?;
        let stopped = signals.stop.load(Ordering::Relaxed);
        if ended.is_some() || stopped || limit.is_some_and(|limit| start.elapsed() >= limit) {
            break (ended, now);
        }
    };
    let stopped = reading.stop().map_err(failed)?;
    let exit_code = exit_code.filter(|_| child.is_some());
    let killed = child.is_some() && exit_code.is_none();
    Ok(RecordedRun { stopped, root, processes, seconds, exit_code, killed })
}

/// The command, stopped before its first instruction until it may go. Killed if it is not waited for.
struct StoppedCommand {
    child: Child,
    pid: Pid,
}

impl StoppedCommand {
    fn new(command: &[OsString]) -> Result<Option<Self>, Failure> {
        if command.is_empty() {
            return Ok(None);
        }
        let failed = |error: String| Failure::failed("warmcore::record", format!("cannot start the command: {error}"));
        let spawned = Command::new("/bin/sh").args(["-c", STOPPED_START, "sh"]).args(command).spawn();
        let child = spawned.map_err(|error| failed(error.to_string()))?;
        let pid = trial::stopped(&child).map_err(failed)?;
        Ok(Some(Self { child, pid }))
    }

    fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    fn go(&self) -> Result<(), Failure> {
        trial::go_on(self.pid)
            .map_err(|error| Failure::failed("warmcore::record", format!("cannot let the command go: {error}")))
    }

    /// Its exit code, if it ended; that of a shell for a signal.
    fn ended(&mut self) -> Result<Option<i32>, Failure> {
        let status = self.child.try_wait().map_err(|error| Failure::failed("warmcore::record", error))?;
        Ok(status.map(|status| status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)))
    }
}

impl Drop for StoppedCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The recording that was kept in a file.
fn read_back(path: &Path) -> Result<Recording, Failure> {
    let failed = |error: String| Failure::failed("warmcore::record", format!("{}: {error}", path.display()));
    let file = warmcore_lab::files::source(path).map_err(|error| failed(error.source.to_string()))?;
    trace_dat::open(file).map_err(|error| failed(error.to_string()))
}

fn loaded(
    recorded: &RecordedRun,
    recording: Recording,
    program: Option<&OsString>,
    machine: &Named<Machine>,
) -> Result<Loaded, Failure> {
    let selection = Selection { descendants_of: recorded.processes.iter().copied().collect(), ..Selection::default() };
    let chosen = selection.threads(&recording).map_err(|error| Failure::failed("warmcore::record", error))?;
    let name = match program {
        Some(program) => {
            Path::new(program).file_name().map_or("command".into(), |name| name.to_string_lossy().into_owned())
        }
        None => format!("process-{}", recorded.root),
    };
    let overheads = Overheads::of(machine.value.costs());
    Ok(Loaded {
        histories: histories(&recording, &chosen, Some(&machine.value)),
        recording,
        chosen,
        overheads,
        name,
        numbered: true,
        machine: Some(machine.value.clone()),
    })
}

fn watch_failed(reason: String) -> Failure {
    Failure::failed("warmcore::record", reason)
}

/// A thread's time and counts, as the kernel's accounts and the recording have them.
#[derive(Serialize)]
struct ThreadAccounts {
    thread: i32,
    name: String,
    kernel: recorder::Accounts,
    recorded_ns: u64,
    /// What was counted of it, by counter; empty if nothing was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    counted: BTreeMap<String, u64>,
}

impl ThreadAccounts {
    /// A line that compares the counters that both have.
    fn compared(&self) -> String {
        let pairs = [
            ("task_clock_ns", self.kernel.run_ns),
            ("context_switches", self.kernel.switches),
            ("page_faults_minor", self.kernel.minor_faults),
            ("page_faults_major", self.kernel.major_faults),
        ];
        let words: Vec<String> = pairs
            .iter()
            .map(|(name, kernel)| format!("{name} {} of {kernel}", self.counted.get(*name).copied().unwrap_or(0)))
            .collect();
        format!("  counted, of the kernel's accounts: {}\n", words.join(", "))
    }
}

/// Of the threads that were there at the beginning and at the end: the only ones whose accounts can be read.
fn accounts(recorded: &RecordedRun, loaded: &Loaded) -> Vec<ThreadAccounts> {
    let mut counted: BTreeMap<i32, BTreeMap<String, u64>> = BTreeMap::new();
    if let Some(log) = &loaded.recording.counters {
        let names = log.names();
        for value in log.estimated() {
            let of_thread = counted.entry(value.thread).or_default();
            *of_thread.entry(names[value.counter as usize].clone()).or_default() += value.value;
        }
    }
    let account = |(thread, kernel): (&i32, &recorder::Accounts)| {
        let history = loaded.histories.threads.get(thread)?;
        Some(ThreadAccounts {
            thread: *thread,
            name: history.name.clone(),
            kernel: *kernel,
            recorded_ns: history.cpu_ns,
            counted: counted.get(thread).cloned().unwrap_or_default(),
        })
    };
    recorded.stopped.accounts.iter().filter_map(account).collect()
}

/// Runs the command without and with recording in turn.
fn measure(
    arguments: &RecordArguments,
    tracing: &Recorder,
    directory: &Path,
    signals: &Signals,
) -> Result<Overhead, Failure> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..arguments.overhead {
        let mut child = StoppedCommand::new(&arguments.command)?
            .ok_or_else(|| Failure::usage("warmcore::usage", "the cost of recording is measured with a command"))?;
        let watched = Watched::new(child.id()).map_err(watch_failed)?;
        let start = Instant::now();
        child.go()?;
        while child.ended()?.is_none() {
            if signals.stop.load(Ordering::Relaxed) {
                return Err(signals.failure("interrupted"));
            }
            watched.wait(BETWEEN_READINGS);
        }
        without.push(start.elapsed().as_secs_f64());
        with.push(record(arguments, tracing, directory, signals)?.seconds);
    }
    let mut ratios: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    ratios.sort_by(f64::total_cmp);
    let share = ratios[ratios.len() / 2] - 1.0;
    Ok(Overhead { without, with, share })
}
