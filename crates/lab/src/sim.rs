//! One trial: its events come from the simulator or from a kernel in a virtual machine ([`warmcore_places::vm`]); what is made of
//! them does not know which.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_agent::report::Hello;
use warmcore_kernel::{Setup, SetupError, SimulationError};
use warmcore_schedulers::{SchedulerSpec, run_tables, simulate};
use warmcore_topology::Machine;
use warmcore_trace::metrics::{Counters, Metrics, Start};
use warmcore_trace::{ApplicationOutcome, End, Outcome, TaskOutcome};
use warmcore_trace::{RunTables, Sink, Store, StoreError, StoreInfo, StoreOptions, TaskId, TaskInfo, Tee};

use crate::directory::{GUESTS, RunDirectory};
use crate::experiment::{Experiment, ExperimentRecord, Place, TOOL_VERSION, TraceLevel};
use crate::files::{At as _, FileError};
use crate::measures;
use crate::observe::Observer;
use crate::results::result_lines;
use crate::runner::trial_name;
use crate::time_split;
use crate::trial::{ApplicationRow, SCHEMA, TaskRow, Trial, TrialEnd};
use warmcore_places::vm::VmError;
use warmcore_places::vm::boot::Lab;
use warmcore_places::vm::record::GuestFacts;
use warmcore_places::vm::trial::{Recorded, Request, run_all};

/// Why a trial was not finished.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// Machine and workload do not fit together.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The run failed.
    #[error(transparent)]
    Simulation(SimulationError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Its trace could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory of its trace could not be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// The guest failed.
    #[error(transparent)]
    Vm(VmError),
    /// It ran in another place, which is only known by name.
    #[error("it ran in another place ({place}) and cannot be run again")]
    Elsewhere {
        /// As the run's record names it.
        place: String,
    },
}

impl SimError {
    /// What a user can try.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Setup(_) => "change the machine or the workload so that they fit together",
            Self::Simulation(SimulationError::Deadlock { .. } | SimulationError::Program { .. }) => {
                "this is a fault of the workload: look at what waits for what"
            }
            Self::Simulation(SimulationError::NoProgress { .. } | SimulationError::TooManyTasks { .. }) => {
                "a loop of the workload needs a step that takes time, or an end"
            }
            Self::Simulation(SimulationError::Scheduler { .. } | SimulationError::Invariant { .. }) => {
                "this is a fault of this program: please report it with the command line and the seed"
            }
            Self::Simulation(SimulationError::Memory(_)) => "mend the machine's caches, or use `--memory none`",
            Self::Simulation(SimulationError::Sink(_)) | Self::Store(_) => {
                "is the disk full? `--trace counters` needs no space"
            }
            Self::Simulation(SimulationError::Interrupted { .. }) | Self::Interrupted => "run it again",
            Self::Simulation(SimulationError::NotSimulated { .. }) => "run it with --on vm",
            Self::File(error) => error.advice(),
            Self::Vm(error) => error.advice(),
            Self::Elsewhere { .. } => "start the experiment anew, in another directory",
        }
    }
}

impl From<SimulationError> for SimError {
    fn from(error: SimulationError) -> Self {
        match error {
            SimulationError::Interrupted { .. } => Self::Interrupted,
            error => Self::Simulation(error),
        }
    }
}

impl From<VmError> for SimError {
    fn from(error: VmError) -> Self {
        match error {
            VmError::Interrupted => Self::Interrupted,
            error => Self::Vm(error),
        }
    }
}

/// Checks that machine and workload fit together, without running anything.
///
/// # Errors
/// When they do not.
pub fn check(experiment: &Experiment) -> Result<(), SetupError> {
    Setup::new(&experiment.machine.value, &experiment.workload.value, 0).map(|_| ())
}

/// Runs one trial. The result depends on the experiment's record and on nothing else.
///
/// # Errors
/// When machine and workload do not fit together, the run fails, or its trace cannot be stored.
pub fn run_trial(
    experiment: &Experiment,
    record: &ExperimentRecord,
    scheduler: usize,
    number: usize,
    directory: Option<&RunDirectory>,
    stop: &Arc<AtomicBool>,
) -> Result<Trial, SimError> {
    let (machine, workload) = (&experiment.machine.value, &experiment.workload.value);
    let spec = &experiment.schedulers[scheduler];
    let seed = experiment.seeds[number];
    let mut setup = Setup::new(machine, workload, seed)?;
    setup.memory = experiment.memory;
    setup.max_time_ns = experiment.max_time_ns;
    setup.scores_every_ns = experiment.scores_every_ns.filter(|_| experiment.trace == TraceLevel::Full);
    setup.stop = Some(Arc::clone(stop));
    let recorded = match &experiment.place {
        Place::Sim => None,
        Place::Vm(lab) => {
            let (hello, recorded) = run_in_guest(lab, experiment, spec, seed, stop)?;
            if let Some(directory) = directory {
                let facts = GuestFacts::new(lab, &hello, &recorded);
                let guests = directory.path().join(GUESTS);
                std::fs::create_dir_all(&guests).at("create", &guests)?;
                let file = format!("{GUESTS}/{}.json", trial_name(scheduler, number));
                directory.write(&file, crate::session::pretty(&facts).as_bytes())?;
            }
            Some(recorded)
        }
        Place::PastVm(guests) => return Err(SimError::Elsewhere { place: guests.identity() }),
    };
    let tables = if recorded.is_some() { setup.run_tables(Vec::new()) } else { run_tables(spec, &setup) };
    let recorded = recorded.as_ref();

    let mut observer =
        (!experiment.observations.is_empty()).then(|| Observer::new(&experiment.observations, llcs_of_cpus(machine)));
    let new_counters = || Counters::new(machine, &tables, Start::Idle { time_ns: 0 });
    let (outcome, counters) = match (experiment.trace, directory) {
        (TraceLevel::None, _) => {
            let sink = observer.as_mut().map(|observer| observer as &mut dyn Sink);
            (produce(recorded, spec, &setup, sink)?, None)
        }
        (TraceLevel::Counters, _) | (TraceLevel::Full, None) => {
            let mut sink = Tee::new(new_counters(), observer.as_mut());
            (produce(recorded, spec, &setup, Some(&mut sink))?, Some(sink.first))
        }
        (TraceLevel::Full, Some(directory)) => {
            let name = trial_name(scheduler, number);
            let path = directory.trace_directory(&name)?;
            let store =
                Store::create(&path, machine, &tables, &store_info(&name, experiment), StoreOptions::default())?;
            let mut sink = Tee::new(Tee::new(new_counters(), observer.as_mut()), store);
            let outcome = produce(recorded, spec, &setup, Some(&mut sink))?;
            sink.second.finish(outcome.elapsed_ns, &task_infos(&outcome))?;
            (outcome, Some(sink.first.first))
        }
    };
    let metrics = counters.map(|counters| counters.metrics(outcome.elapsed_ns, &tables, &task_infos(&outcome)));
    let observed = observer.map(|observer| observer.measures(outcome.elapsed_ns)).unwrap_or_default();
    let mut trial = trial_of(experiment, record, scheduler, number, &outcome, metrics.as_ref());
    if let Some(recorded) = recorded {
        trial.events_lost = recorded.events_lost;
        trial.notes.extend(recorded.notes(machine.cpu_count()));
    }
    trial.measures.extend(observed.into_iter().map(|(name, value)| (name, Some(value))));
    Ok(trial)
}

/// A trial that was run again to look at its events.
pub struct Rerun<S> {
    /// The trial: equal to the one that was run first, but for what was observed beside its usual measures.
    pub trial: Trial,
    /// All its metrics, histograms included.
    pub metrics: Metrics,
    /// What the indices in its events stand for.
    pub tables: RunTables,
    /// Its tasks.
    pub tasks: Vec<TaskInfo>,
    /// The sink that was given its events.
    pub sink: S,
}

/// Runs a trial once more and hands its events to a sink: a simulated trial is a function of its record, so its events
/// need not be kept to be looked at later. `sink` makes the sink for the run's tables. With `scores_every_ns` the events hold samples
/// of what the scheduler ranks tasks by, whether or not the experiment asked for them.
///
/// # Errors
/// As [`run_trial`]; a failure of the sink is a failure of the run.
pub fn rerun_trial<S: Sink>(
    experiment: &Experiment,
    record: &ExperimentRecord,
    scheduler: usize,
    number: usize,
    scores_every_ns: Option<u64>,
    stop: &Arc<AtomicBool>,
    sink: impl FnOnce(&RunTables) -> S,
) -> Result<Rerun<S>, SimError> {
    let (machine, workload) = (&experiment.machine.value, &experiment.workload.value);
    let spec = &experiment.schedulers[scheduler];
    let mut setup = Setup::new(machine, workload, experiment.seeds[number])?;
    setup.memory = experiment.memory;
    setup.max_time_ns = experiment.max_time_ns;
    setup.scores_every_ns = scores_every_ns;
    setup.stop = Some(Arc::clone(stop));
    let tables = run_tables(spec, &setup);
    let mut both = Tee::new(Counters::new(machine, &tables, Start::Idle { time_ns: 0 }), sink(&tables));
    let outcome = simulate(spec, &setup, Some(&mut both))?;
    let tasks = task_infos(&outcome);
    let metrics = both.first.metrics(outcome.elapsed_ns, &tables, &tasks);
    // What the experiment did not record is not in its trials either.
    let recorded = (experiment.trace != TraceLevel::None).then_some(&metrics);
    let trial = trial_of(experiment, record, scheduler, number, &outcome, recorded);
    Ok(Rerun { trial, metrics, tables, tasks, sink: both.second })
}

/// The trial that an outcome makes.
fn trial_of(
    experiment: &Experiment,
    record: &ExperimentRecord,
    scheduler: usize,
    number: usize,
    outcome: &Outcome,
    metrics: Option<&Metrics>,
) -> Trial {
    let workload = &experiment.workload.value;
    let (seed, end) = (experiment.seeds[number], trial_end(outcome.end));
    Trial {
        schema: SCHEMA.into(),
        hash: record.trial_hash(scheduler, seed),
        scheduler: record.schedulers[scheduler].label.clone(),
        trial: number,
        seed,
        end,
        elapsed_ns: outcome.elapsed_ns,
        engine_events: outcome.engine_events,
        // In a simulation every event is handed to the sink before the next one happens.
        events_lost: 0,
        censored_waits: metrics.map_or(0, censored_waits),
        measures: measures::of_run(workload, outcome, end, metrics),
        time_ns: time_split::of_run(outcome, metrics),
        decisions: metrics.map(|metrics| metrics.totals.decisions.clone()).unwrap_or_default(),
        applications: outcome.applications.iter().map(application_row).collect(),
        tasks: outcome.tasks.iter().map(task_row).collect(),
        result_lines: result_lines(workload, outcome),
        notes: notes(outcome.memory_solutions),
    }
}

/// What to know of a run before its figures are trusted, from how many equations of loaded memory were solved and how many of
/// them did not settle.
fn notes((_, unsettled): (u64, u64)) -> Vec<String> {
    let note = || "in some solutions the load of memory and links was not found, and the last one was kept".to_owned();
    (unsettled > 0).then(note).into_iter().collect()
}

/// The run of a trial in a guest.
fn run_in_guest(
    lab: &Lab,
    experiment: &Experiment,
    scheduler: &SchedulerSpec,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(Hello, Recorded), SimError> {
    let request = Request {
        workload: &experiment.workload.value,
        scheduler,
        max_time_ns: experiment.max_time_ns,
        buffer_kib: lab.buffer_kib,
        sample_ns: None,
        seed,
    };
    let (hello, mut recorded) = run_all(lab, &experiment.machine.value, &[request], stop)?;
    let recorded = recorded.pop().ok_or_else(|| VmError::Protocol { reason: "no run came back".into() })?;
    Ok((hello, recorded))
}

/// A run's events into the sink, from a simulation or from a guest that ran before.
fn produce<'a>(
    recorded: Option<&Recorded>,
    spec: &SchedulerSpec,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimError> {
    let Some(recorded) = recorded else { return Ok(simulate(spec, setup, sink)?) };
    if let Some(sink) = sink {
        recorded.replay(sink).map_err(SimulationError::Sink)?;
    }
    Ok(recorded.outcome.clone())
}

/// LLC of each CPU, as indices.
fn llcs_of_cpus(machine: &Machine) -> Vec<usize> {
    machine.cpus().map(|cpu| machine.llc_of(cpu).index()).collect()
}

/// Nothing in it may differ between equal runs, so a simulated run has no host of its own.
fn store_info(run: &str, experiment: &Experiment) -> StoreInfo {
    let (clock, host) = match experiment.place {
        Place::Sim => ("simulated", "simulator"),
        Place::Vm(_) | Place::PastVm(_) => ("mono", "guest"),
    };
    StoreInfo { tool_version: TOOL_VERSION.into(), clock: clock.into(), host_id: host.into(), run_id: run.into() }
}

fn trial_end(end: End) -> TrialEnd {
    match end {
        End::AllExited => TrialEnd::AllExited,
        End::Stopped => TrialEnd::Stopped,
        End::TimeLimit => TrialEnd::TimeLimit,
    }
}

fn censored_waits(metrics: &Metrics) -> u64 {
    metrics.totals.censored.wakeup.count + metrics.totals.censored.preempt.count
}

fn application_row(application: &ApplicationOutcome) -> ApplicationRow {
    ApplicationRow {
        name: application.name.clone(),
        elapsed_ns: application.elapsed_ns,
        finished: application.finished,
        cpu_time_ns: application.cpu_time_ns,
    }
}

fn task_row(task: &TaskOutcome) -> TaskRow {
    TaskRow {
        name: task.name.clone(),
        role: task.role.clone(),
        application: task.application,
        started_ns: task.started_ns,
        exited_ns: task.exited_ns,
        cpu_time_ns: task.cpu_time_ns,
    }
}

fn task_infos(outcome: &Outcome) -> Vec<TaskInfo> {
    let application_name = |index: u32| {
        outcome.applications.get(index as usize).map(|application| application.name.clone()).unwrap_or_default()
    };
    let info = |task: &TaskOutcome| TaskInfo {
        id: TaskId(task.id),
        name: task.name.clone(),
        role: task.role.clone(),
        application: task.application,
        application_name: application_name(task.application),
        process: task.process,
    };
    outcome.tasks.iter().map(info).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_says_that_memory_did_not_settle_and_nothing_if_it_did() {
        assert!(notes((40, 0)).is_empty());
        assert!(notes((40, 1))[0].contains("the load of memory and links was not found"));
    }
}
