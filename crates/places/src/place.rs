//! What every place is to those above it: a batch of runs is asked for, and each run's events and what it left behind are handed
//! over.
//!
//! A place takes a batch, because runs can share what is set up for them (a boot) and because on a real machine their order
//! matters. It decides the order and how many run at a time. What is made of a run is the caller's: it is handed the run's tables
//! first, and gives the sink that its events go to.
//!
//! How the trials of two schedulers belong together depends on the place, and with it the statistics ([`Place::design`]).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use warmcore_options::RunOptions;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::Design;
use warmcore_topology::{Machine, MeasuredValue};
use warmcore_trace::{Outcome, RunTables, Sink};
use warmcore_workload::{Action, Deed, Workload};

/// Room for events that wait to be taken, KiB per CPU, unless something else is asked for: some 60 000 events of a kernel.
pub const DEFAULT_BUFFER_KIB: u32 = 4096;

/// Where experiments can run.
pub trait Place: fmt::Debug + Send + Sync {
    /// What is known of all places of its kind.
    fn kind(&self) -> &'static PlaceKind;

    /// What its results depend on, in one line. It begins with the kind's name, followed by a colon if more follows.
    fn identity(&self) -> String {
        self.kind().name.into()
    }

    /// What a run directory must hold so that [`PlaceKind::past`] makes this place of it; `None` if the name is all.
    fn record(&self) -> Option<toml::Table> {
        None
    }

    /// What its results were made with, by name, such as the release of a kernel.
    fn facts(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What a reader of any result from here must know.
    fn caveats(&self) -> Vec<String> {
        Vec::new()
    }

    /// How trials of two schedulers belong together.
    fn design(&self) -> Design;

    /// Whether a run is a function of its request: it can be had again, event by event.
    fn repeatable(&self) -> bool {
        false
    }

    /// The same place where runs can be made, if it was read from a run directory.
    ///
    /// # Errors
    /// When what it was made of is not there any more.
    fn reopen(self: Arc<Self>) -> Result<Arc<dyn Place>, PlaceError>;

    /// Checks what can be known before anything runs.
    ///
    /// # Errors
    /// The first request that cannot be met here.
    fn check(&self, requests: &[Request<'_>]) -> Result<(), PlaceError>;

    /// What the kernel's own actions cost here on that machine, measured now, by the names that they have in a machine's file; `None` where
    /// that is no question: a simulated kernel has the costs that its machine says.
    ///
    /// # Errors
    /// When they cannot be measured.
    fn costs(&self, _machine: &Machine, _stop: &AtomicBool) -> Result<Option<Vec<MeasuredValue>>, PlaceError> {
        Ok(None)
    }

    /// Makes the runs, and hands each one to `take` with its position in `requests`, or the reason why there is none. Runs that were
    /// not begun before the caller asked to stop are not handed over.
    ///
    /// # Errors
    /// What concerns no run in particular.
    fn run(&self, requests: &[Request<'_>], conduct: &BatchConduct, take: &Take<'_>) -> Result<(), PlaceError>;
}

/// Makes a place that ran from what its run directory's record says of it.
pub type Past = fn(Option<&toml::Table>) -> Result<Arc<dyn Place>, PlaceError>;

/// What is known of a kind of place without having one: a row of the registry ([`crate::PLACES`]).
#[derive(Debug)]
pub struct PlaceKind {
    /// Name on the command line and at the beginning of identities.
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// What a computer needs to have it.
    pub needs: &'static str,
    /// What time stamps of its events count: the clock's name in event tables, and in words.
    pub clock: (&'static str, &'static str),
    /// Name of the host in event tables. Nothing in them may differ between equal runs, so it is not a computer's name.
    pub host: &'static str,
    /// Whether machine and kernel are models: costs are the machine's parameters, memory is modelled or not, and policies tell what they
    /// rank tasks by.
    pub simulated: bool,
    /// Whether it keeps a run to the CPUs that its scheduler's circumstances name; elsewhere the workload's tasks are bound to them.
    pub keeps_to_cpus: bool,
    /// Whether recording events takes time from a run, so that it is done only if asked for.
    pub events_cost_time: bool,
    /// What its results say nothing about, for pages; empty if there is nothing of the kind.
    pub unmeasured: &'static str,
    /// Makes one from the options of a command line; `None` for kinds that only programs make.
    pub open: Option<Open>,
    /// One as a run directory recorded it; runs may need [`Place::reopen`] first.
    pub past: Past,
}

/// Makes a place from options, saying what it does through the second argument.
pub type Open = fn(&PlaceOptions<'_>, &dyn Fn(&str)) -> Result<Arc<dyn Place>, PlaceError>;

/// What a place can be made with. A place takes what concerns it.
#[derive(Clone, Debug, Default)]
pub struct PlaceOptions<'a> {
    /// Schedulers that will run: programs among them are part of what results depend on.
    pub schedulers: &'a [SchedulerSpec],
    /// How guests are made.
    pub guests: crate::vm::select::Choice,
    /// How runs on this computer are made.
    pub host: Option<crate::host::place::Manner>,
}

/// One run that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where it runs.
    pub machine: &'a Machine,
    /// The machine on which the work of memory profiles takes the time that the workload says, if that is another one. Where programs are
    /// real, or memory is not modelled, nothing depends on it.
    pub work_of: Option<&'a Machine>,
    /// What runs.
    pub workload: &'a Workload,
    /// Under which scheduler.
    pub scheduler: &'a SchedulerSpec,
    /// Decides what is left to chance, as far as the place can.
    pub seed: u64,
    /// What else it is asked for.
    pub options: RunOptions,
    /// Runs with the same number and machine may share what is set up for them, such as a boot; `None` shares with no other.
    pub shared: Option<u32>,
    /// What somebody outside the workload does in the run.
    pub actions: &'a [Action],
}

impl<'a> Request<'a> {
    /// A run that shares nothing with another, with default options, and with nobody outside who does anything.
    pub fn new(machine: &'a Machine, workload: &'a Workload, scheduler: &'a SchedulerSpec, seed: u64) -> Self {
        let options = RunOptions::default();
        Self { machine, work_of: None, workload, scheduler, seed, options, shared: None, actions: &[] }
    }

    /// Whether CPUs go offline or come online in the run.
    pub(crate) fn changes_cpus(&self) -> bool {
        let hotplug = |action: &Action| matches!(action.what, Deed::Hotplug { .. });
        !self.workload.hotplug.is_empty() || self.actions.iter().any(hotplug)
    }
}

/// Checks that the tunables which a run changes are ones that its scheduler lets change.
pub(crate) fn check_tunables(request: &Request<'_>) -> Result<(), PlaceError> {
    request.actions.iter().try_for_each(|action| match &action.what {
        Deed::Set { tunable, value } => request.scheduler.check_change(tunable, *value).map_err(|error| {
            let advice = "`warmcore scheduler NAME` lists tunables; give the value from the start instead";
            PlaceError::new(Trouble::Unfit, "warmcore::scheduler", format!("{action}: {error}"), advice)
        }),
        Deed::Bind { .. } | Deed::Hotplug { .. } => Ok(()),
    })
}

/// Checks that no kernel threads are asked for where a real kernel has its own.
pub(crate) fn check_background(request: &Request<'_>) -> Result<(), PlaceError> {
    if request.machine.background().is_empty() {
        return Ok(());
    }
    let name = &request.machine.background().name;
    let message = format!("the background `{name}` is simulated, and a real kernel has its own threads");
    Err(PlaceError::new(
        Trouble::Unfit,
        "warmcore::background",
        message,
        "leave out --background, or run it with --on sim",
    ))
}

/// How to run, which changes no result.
#[derive(Clone, Debug)]
pub struct BatchConduct {
    /// Number of runs at the same time, at most.
    pub jobs: usize,
    /// Set by the caller, from a signal handler for instance, to stop soon.
    pub stop: Arc<AtomicBool>,
}

/// Takes a run; may be called from several threads at once. With `Break` no further run is begun.
pub type Take<'a> = dyn Fn(usize, Result<Run<'_>, PlaceError>) -> ControlFlow<()> + Sync + 'a;

/// Makes something of a run; may be called from several threads at once.
pub type Make<'a, T> = dyn Fn(usize, Result<Run<'_>, PlaceError>) -> Result<T, PlaceError> + Sync + 'a;

/// Runs a batch and gives what `make` makes of each run, in the order of the requests. After an error no further run is begun.
///
/// # Errors
/// The first in that order; or that the caller asked to stop before all were made.
pub fn collect<T: Send>(
    place: &dyn Place,
    requests: &[Request<'_>],
    conduct: &BatchConduct,
    make: &Make<'_, T>,
) -> Result<Vec<T>, PlaceError> {
    let made: Mutex<BTreeMap<usize, Result<T, PlaceError>>> = Mutex::default();
    place.run(requests, conduct, &|index, run| {
        let one = make(index, run);
        let flow = if one.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        made.lock().unwrap_or_else(PoisonError::into_inner).insert(index, one);
        flow
    })?;
    let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    let made = made.into_values().collect::<Result<Vec<T>, PlaceError>>()?;
    if made.len() < requests.len() { Err(PlaceError::interrupted()) } else { Ok(made) }
}

/// A run whose events are about to come.
pub struct Run<'a> {
    /// What the indices in its events stand for.
    pub tables: &'a RunTables,
    /// Seconds of the host's clock that went into it before it was handed over.
    pub seconds: f64,
    produce: Box<Produce<'a>>,
}

/// Sends a run's events to a sink, if there is one.
type Produce<'a> = dyn FnOnce(Option<&mut dyn Sink>) -> Result<Report, PlaceError> + 'a;

impl<'a> Run<'a> {
    /// A run with these tables whose events `produce` sends.
    pub fn new(
        tables: &'a RunTables,
        seconds: f64,
        produce: impl FnOnce(Option<&mut dyn Sink>) -> Result<Report, PlaceError> + 'a,
    ) -> Self {
        Self { tables, seconds, produce: Box::new(produce) }
    }

    /// Sends the events to the sink, in order of time, and gives what the run left.
    ///
    /// # Errors
    /// When the run fails, or the sink does.
    pub fn send(self, sink: Option<&mut dyn Sink>) -> Result<Report, PlaceError> {
        (self.produce)(sink)
    }
}

/// What a run left.
#[derive(Clone, Debug)]
pub struct Report {
    /// What became of its tasks.
    pub outcome: Outcome,
    /// Events that were not recorded.
    pub events_lost: u64,
    /// What was not done as the request asks, one line each.
    pub departures: Vec<String>,
    /// What else a reader of its results must know.
    pub notes: Vec<String>,
    /// CPU time of threads that are not the workload's, ns.
    pub foreign_run_ns: u64,
    /// Settings in force, read back: name and value.
    pub settings: Vec<(String, String)>,
    /// Of a sched_ext scheduler what each operation that was called came to, if that was counted.
    pub operations: Vec<OperationUse>,
    /// Of its operations, which functions of the kernel a call of each called in order, and how often it was so, if that was noted.
    pub sequences: Vec<Sequence>,
    /// What the place was like during the run.
    pub conditions: Option<Conditions>,
    /// What a command printed.
    pub output: Option<String>,
    /// What else was measured, by names of optional measures.
    pub measured: Vec<(&'static str, f64)>,
}

impl Report {
    /// Of a run that was carried out as asked, with nobody else about.
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            events_lost: 0,
            departures: Vec::new(),
            notes: Vec::new(),
            foreign_run_ns: 0,
            settings: Vec::new(),
            operations: Vec::new(),
            sequences: Vec::new(),
            conditions: None,
            output: None,
            measured: Vec::new(),
        }
    }
}

/// What the calls of an operation of a sched_ext scheduler came to in a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperationUse {
    /// The operation, as `struct sched_ext_ops` names it.
    pub name: String,
    /// Calls.
    pub calls: u64,
    /// Instructions of its programs and the time that they cost the CPUs, where that is known.
    pub cost: Option<OperationCost>,
}

/// What the programs of an operation took in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperationCost {
    /// Instructions of bytecode.
    pub instructions: u64,
    /// Time charged to the CPUs, ns.
    pub charged_ns: u64,
}

/// What a call of an operation called.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Sequence {
    /// The operation, as `struct sched_ext_ops` names it.
    pub operation: String,
    /// The functions, in order.
    pub functions: Vec<String>,
    /// How often it was so.
    pub count: u64,
}

/// What the place was like during a run: a file of a run directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// Directory of such files in a run directory.
    pub directory: &'static str,
    /// The document, JSON.
    pub json: String,
}

/// What kind of thing went wrong, which is what callers must tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Trouble {
    /// What was asked for cannot be had in this place: ask for something else.
    Unfit,
    /// This computer cannot do it.
    Unable,
    /// It was tried and failed.
    Failed,
    /// A scheduler of the user's own did not come to the end of a run: the trial is invalid, and those of others are not.
    Scheduler,
    /// The caller asked to stop.
    Interrupted,
    /// This computer is not as it was before.
    State,
}

/// Why a place did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PlaceError {
    /// What kind of thing it is.
    pub trouble: Trouble,
    /// Stable name of what it is about, such as `warmcore::vm`.
    pub code: &'static str,
    /// What a user can try.
    pub advice: &'static str,
    /// What there is to look at, such as the state that a scheduler left.
    pub output: Option<String>,
    message: String,
}

impl PlaceError {
    /// An error with its words.
    pub fn new(trouble: Trouble, code: &'static str, message: impl fmt::Display, advice: &'static str) -> Self {
        Self { trouble, code, advice, output: None, message: message.to_string() }
    }

    /// With something to look at, whose beginning is told with the message.
    #[must_use]
    pub(crate) fn with_output(mut self, output: String) -> Self {
        /// Lines that are told.
        const TOLD: usize = 40;
        let lines = output.lines().count();
        for line in output.lines().take(TOLD) {
            self.message.push('\n');
            self.message.push_str(line);
        }
        if lines > TOLD {
            self.message
                .push_str(&format!("\n… and {} lines more, which a run directory keeps in `outputs`", lines - TOLD));
        }
        self.output = (lines > 0).then_some(output);
        self
    }

    /// The caller asked to stop.
    pub fn interrupted() -> Self {
        Self::new(Trouble::Interrupted, "warmcore::interrupted", "interrupted", "run it again")
    }

    /// Whether the caller asked to stop.
    pub fn is_interruption(&self) -> bool {
        self.trouble == Trouble::Interrupted
    }
}

/// Works on items in several threads, beginning none after a `Break` or after the caller asked to stop.
pub(crate) fn in_parallel<T: Sync>(
    conduct: &BatchConduct,
    items: &[T],
    work: impl Fn(&T) -> ControlFlow<()> + Sync,
) -> Result<(), PlaceError> {
    let workers = rayon::ThreadPoolBuilder::new().num_threads(conduct.jobs).build().map_err(|error| {
        let message = format!("cannot start {} workers: {error}", conduct.jobs);
        PlaceError::new(Trouble::Failed, "warmcore::workers", message, "try a smaller --jobs")
    })?;
    let broken = AtomicBool::new(false);
    let one = |item: &T| {
        if !broken.load(Ordering::Relaxed) && !conduct.stop.load(Ordering::Relaxed) && work(item).is_break() {
            broken.store(true, Ordering::Relaxed);
        }
    };
    workers.install(|| items.par_iter().with_max_len(1).for_each(one));
    Ok(())
}
