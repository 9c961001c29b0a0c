//! Recordings as the commands `replay` and `group` take them: a run directory, or a file of another recorder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warmcore_capture::{PagedRecords, Recording};
use warmcore_lab::directory::{EXPERIMENT, Existing, RECORDING, RunDirectory};
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::{Experiment, ExperimentRecord, Named};
use warmcore_lab::files::source;
use warmcore_lab::runner;
use warmcore_lab::session;
use warmcore_options::{MemoryChoice, TraceLevel};
use warmcore_places::host::leftovers;
use warmcore_places::recorded::Recorded;
use warmcore_replay::history::{Histories, histories};
use warmcore_replay::{Fidelity, Overheads, Replay, Selection};
use warmcore_report::run::{ReportOptions, Run};
use warmcore_search::replayed::{self, ChosenThreads, TryError};
use warmcore_topology::Machine;
use warmcore_trace::{Event, TaskId};
use warmcore_workload::Workload;

use crate::args::{Only, RecordingArguments};
use crate::commands::compare::{directory_failure, run_failure, session_failure, unix_seconds};
use crate::commands::report::report_failure;
use crate::console::Console;
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

/// A recording and what its chosen threads did.
pub struct Loaded {
    /// The recording.
    pub recording: Recording,
    /// The chosen threads.
    pub chosen: BTreeSet<i32>,
    /// What they did.
    pub histories: Histories,
    /// What the kernel's own work took of their CPU time.
    pub overheads: Overheads,
    /// A name for what is made of it.
    pub name: String,
    /// Whether threads have the numbers that a kernel gave them: those of a simulated run are made up.
    pub numbered: bool,
    /// The machine that it was recorded on, where that is known.
    pub machine: Option<Machine>,
}

/// The scheduler that a recording is kept under, where a run has one, and that tries its replay. A recording does not tell its own, and
/// `explain` does not say that it was this one.
const KERNEL: &str = "eevdf";

/// What is being done while a recording is read.
const READING: &str = "reading the recording";

/// Reads it, and says what is to be known of it.
pub fn load(arguments: &RecordingArguments, console: &Console) -> Result<Loaded, Failure> {
    let path = run_of(&arguments.recording);
    let (recording, own, numbered, machine) = if path.is_dir() {
        let signals = Signals::listen()?;
        let OfRun { recording, own, numbered, machine } =
            of_run(path, arguments.scheduler.as_deref(), &signals, console)?;
        (recording, Some(own), numbered, Some(machine))
    } else {
        if arguments.scheduler.is_some() {
            return Err(Failure::usage("warmcore::recording", "--scheduler is about run directories")
                .help("leave it out: a file holds one recording"));
        }
        let bar = console.phase(READING);
        let recording = of_file(path);
        bar.finish_and_clear();
        let recording = recording?;
        let machine = own_machine(path, &recording, console);
        (recording, None, true, machine)
    };
    replayed::notes(&recording).iter().for_each(|note| console.warn(note));
    let mut selection = Selection::default();
    for only in &arguments.only {
        match only {
            Only::Process(pid) => selection.processes.push(*pid),
            Only::DescendantsOf(pid) => selection.descendants_of.push(*pid),
            Only::Thread(name) => selection.names.push(name.clone()),
        }
    }
    let of_recording = || {
        selection.threads(&recording).map_err(|error| {
            Failure::usage("warmcore::recording", format!("{}: {error}", path.display()))
                .help("--only chooses threads; without them all that are not the kernel's, and of a run its own")
        })
    };
    let chosen = match own {
        Some(own) if arguments.only.is_empty() && !own.is_empty() => own,
        _ => of_recording()?,
    };
    let recorded_on = arguments.recorded_on.as_deref().map(load::machine).transpose()?.map(|machine| machine.value);
    let machine = recorded_on.or(machine);
    let overheads = replayed::overheads(machine.as_ref());
    let stem = path.file_stem().map_or("recording".into(), |stem| stem.to_string_lossy().into_owned());
    let bar = console.phase(READING);
    let histories = histories(&recording, &chosen, machine.as_ref());
    bar.finish_and_clear();
    whole(recording.pages.as_ref())?;
    Ok(Loaded { histories, recording, chosen, overheads, name: stem, numbered, machine })
}

/// First byte of the mark that some editors put before UTF-8 text.
const BYTE_ORDER_MARK: u8 = 0xef;

/// Whether a workload that was typed is a recording: a run directory, or a file that is no document in rt-app's format.
pub fn is_one(text: &str) -> bool {
    let path = Path::new(text);
    let begins_otherwise = || {
        let mut first = [0; 64];
        let read = warmcore_lab::files::open(path).and_then(|mut file| std::io::Read::read(&mut file, &mut first));
        let first = read.ok().and_then(|read| first[..read].iter().find(|byte| !byte.is_ascii_whitespace()).copied());
        first.is_some_and(|byte| !matches!(byte, b'{' | b'/' | b'"' | b'}' | BYTE_ORDER_MARK))
    };
    path.is_dir() || path.is_file() && begins_otherwise()
}

/// The replay of a recording's threads, as `warmcore replay` writes it.
pub fn as_workload(
    text: &str,
    options: &warmcore_workload::Options<'_>,
    console: &Console,
) -> Result<Named<Workload>, Failure> {
    let recording = RecordingArguments { recording: text.into(), only: Vec::new(), scheduler: None, recorded_on: None };
    let loaded = load(&recording, console)?;
    let made = tried(&loaded, console)?;
    made.fidelity.sentences().iter().for_each(|sentence| console.note(sentence));
    let document =
        warmcore_workload::to_rtapp(&made.workload).map_err(|error| Failure::failed("warmcore::workload", error))?;
    // What is typed beside it, such as a profile, holds for it as for a file.
    let value = warmcore_workload::resolve(text, options, |_| Ok(document.clone())).map_err(|source| {
        Failure::usage("warmcore::workload", format!("the replay of {text}: {source}"))
            .help("`warmcore replay` writes the workload, and chooses threads with --only")
    })?;
    Ok(Named { source: text.to_owned(), value })
}

/// The run directory that a path is, or whose recording it is: which threads are meant, the directory says.
fn run_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|_| path.file_name().is_some_and(|name| name == RECORDING));
    directory.filter(|directory| directory.join(EXPERIMENT).is_file()).unwrap_or(path)
}

/// What a run directory holds.
struct OfRun {
    recording: Recording,
    /// Threads that were the run's tasks.
    own: BTreeSet<i32>,
    /// Whether threads have their real numbers.
    numbered: bool,
    machine: Machine,
}

fn of_run(path: &Path, scheduler: Option<&str>, signals: &Signals, console: &Console) -> Result<OfRun, Failure> {
    let bar = console.phase("loading the run");
    let run = Run::load(path, &ReportOptions::default(), &signals.stop);
    bar.finish_and_clear();
    let run = run.map_err(|error| report_failure(&error, path, signals))?;
    let index = super::explain::scene(&run, path, scheduler)?;
    let scene = &run.scenes[index];
    if scheduler.is_none() && run.scenes.len() > 1 {
        console.note(&format!("as it ran under {}; --scheduler names another one", scene.scheduler));
    }
    let machine = run.disk.experiment.machine_of(index).value.clone();
    let numbered = !scene.tables.threads.is_empty();
    // Events have no marks of softirqs, calls and files.
    let kept = path.join(RECORDING);
    if kept.is_file() && numbered {
        let own = scene.tables.threads.iter().map(|known| known.thread).collect();
        return Ok(OfRun { recording: of_file(&kept)?, own, numbered, machine });
    }
    let events: Vec<Event> =
        run.events_into(index, Vec::new(), &signals.stop).map_err(|error| report_failure(&error, path, signals))?;
    let trial = run.disk.trials.get(index).and_then(|trials| trials.iter().find(|trial| trial.trial == scene.trial));
    let lost = trial.map_or(0, |trial| trial.events_lost);
    let lost_and_end = (lost, scene.end_ns);
    let (recording, own) =
        warmcore_replay::events::recording(events, &scene.tables, &scene.tasks, &machine, lost_and_end);
    Ok(OfRun { recording, own, numbered, machine })
}

/// The replay of a recording, [tried once](replayed::tried).
pub fn tried(loaded: &Loaded, console: &Console) -> Result<Replay, Failure> {
    let signals = Signals::listen()?;
    let of = ChosenThreads {
        name: &loaded.name,
        recording: &loaded.recording,
        chosen: &loaded.chosen,
        histories: &loaded.histories,
        overheads: loaded.overheads,
        machine: loaded.machine.as_ref(),
    };
    let bar = console.phase("trying the replay");
    let made = replayed::tried(&of, &signals.stop);
    bar.finish_and_clear();
    let (made, fault) = made.map_err(|error| match error {
        TryError::Load(error) => error.into(),
        TryError::Build(error) => error.into(),
        TryError::Run(error) => run_failure(error, None, &signals),
    })?;
    fault.iter().for_each(|words| console.warn(words));
    Ok(made)
}

/// Makes a run directory of a recording: what was recorded, on this machine, with its replay as the workload. Returns the experiment and its
/// record too.
pub fn import(
    loaded: Loaded,
    machine: Named<Machine>,
    directory: &RunDirectory,
    signals: &Signals,
    console: &Console,
) -> Result<(Fidelity, (Experiment, ExperimentRecord)), Failure> {
    let started = unix_seconds();
    let pages = loaded.recording.pages.clone();
    let made = warmcore_replay::workload::replay(&loaded.name, &loaded.histories, &loaded.recording, loaded.overheads);
    if made.workload.tasks.is_empty() {
        let message = format!("{}: none of the chosen threads ran while it was recorded", loaded.name);
        let advice = format!(
            "record longer, or choose threads that run; where {RECORDING} was written, `warmcore replay` reads all threads of it"
        );
        return Err(Failure::failed("warmcore::recording", message).help(advice));
    }
    let tasks = made.tasks.iter().map(|(thread, task)| (*thread, TaskId(task.0))).collect();
    let samples = made.workload.recorders.iter().map(|_| made.requests.clone()).collect();
    // Nothing needs them any more, and of a long recording they are large.
    drop(loaded.histories);
    let workload = Named { source: loaded.name, value: made.workload };
    let built = Experiment::builder(machine, workload)
        .place(Arc::new(Recorded::new(loaded.recording, tasks).with_samples(samples)))
        .schedulers(vec![load::scheduler(KERNEL)?])
        .seeds(vec![1])
        .memory(Some(MemoryChoice::None))
        .trace(Some(TraceLevel::Full))
        .metric(Some("elapsed_ns".into()))
        .build()?;
    let experiment = built.experiment;
    let record = session::begin(directory, &experiment).map_err(session_failure)?;
    let mut environment = Environment::at_start(console.words(), 1, started);
    let conduct = runner::Conduct { jobs: 1, stop: Arc::clone(&signals.stop), progress: &|_| {} };
    let finished = runner::run_as(&experiment, &record, Some(directory), &conduct)
        .map_err(|error| run_failure(error, Some(directory), signals))?;
    environment.at_end(unix_seconds(), finished.run_now, finished.seconds);
    whole(pages.as_ref())?;
    session::finish_as(directory, (&experiment, &record), &finished.trials, None, &environment)
        .map_err(session_failure)?;
    Ok((made.fidelity, (experiment, record)))
}

/// A run directory made of a recording's file, for as long as it is looked at.
pub struct Imported(PathBuf);

impl Imported {
    /// Makes one. Of most recordings nothing is known of the machine but how many CPUs it has.
    pub fn new(file: &Path, number: usize, signals: &Signals, console: &Console) -> Result<Self, Failure> {
        let arguments =
            RecordingArguments { recording: file.to_owned(), only: Vec::new(), scheduler: None, recorded_on: None };
        let loaded = load(&arguments, console)?;
        let machine = match &loaded.machine {
            Some(machine) => Named { source: machine.name().to_owned(), value: machine.clone() },
            None => {
                let unknown = "the machine is unknown, all CPUs are drawn as those of one LLC";
                console.warn(&format!("{}: {unknown}", file.display()));
                load::machine(&format!("1s1n1l{}c1t", loaded.recording.cpus.max(1)))?
            }
        };
        let imported = Self(leftovers::temporary(&format!("import-{number}")));
        let directory = RunDirectory::create(&imported.0, Existing::Refuse).map_err(directory_failure)?;
        let bar = console.phase("making the recording a run");
        let made = import(loaded, machine, &directory, signals, console);
        bar.finish_and_clear();
        made?;
        Ok(imported)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether all records of a recording that stays in its file could be read whenever they were needed.
pub fn whole(pages: Option<&PagedRecords>) -> Result<(), Failure> {
    match pages.and_then(PagedRecords::fault) {
        None => Ok(()),
        Some(reason) => Err(Failure::failed("warmcore::recording", format!("the recording was changed: {reason}"))
            .help("leave its file alone while it is read")),
    }
}

/// The machine that a recording describes itself, if it has all CPUs of the recording.
fn own_machine(path: &Path, recording: &Recording, console: &Console) -> Option<Machine> {
    replayed::own_machine(recording).unwrap_or_else(|reason| {
        console.warn(&format!("{}: its machine is not used: {reason}", path.display()));
        None
    })
}

fn of_file(path: &Path) -> Result<Recording, Failure> {
    let file = source(path).map_err(|error| Failure::cannot_read(path, &error.source))?;
    warmcore_capture::read::open(file)
        .map_err(|error| Failure::usage("warmcore::recording", format!("{}: {error}", path.display())))
}
