//! Trials made of runs: what a place hands over becomes measures, a row for each task, and event tables if they are kept. Where the
//! run was made, this does not know.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use warmcore_options::{RunOptions, TraceLevel};
use warmcore_places::place::{self, BatchConduct, OperationUse, PlaceError, Report, Request, Run, Trouble};
use warmcore_trace::metrics::{Counters, Metrics, Start, Waits};
use warmcore_trace::schedstat::CpuCounters;
use warmcore_trace::{
    ApplicationOutcome, End, Event, Outcome, RunTables, Sink, Store, StoreError, StoreInfo, StoreOptions, TaskId,
    TaskInfo, TaskOutcome, Tee,
};

use crate::directory::{OUTPUTS, RunDirectory};
use crate::experiment::{Experiment, ExperimentRecord, TOOL_VERSION};
use crate::files::{At as _, FileError};
use crate::gathering::Gathering;
use crate::host_measures;
use crate::jobs;
use crate::measures;
use crate::observe::Observer;
use crate::results::result_lines;
use crate::role_measures;
use crate::runner::trial_name;
use crate::time_split::{self, CriticalPaths};
use crate::trial::{ApplicationRow, OperationRow, RoleRow, SCHEMA, TaskRow, Trial, TrialEnd};
use crate::units::duration;

/// Why a trial was not finished.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum TrialError {
    /// The place did not make its run.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Its trace could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory of its trace could not be made.
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "the run ended after {}, in its warm-up of {}: nothing of it counts", duration(*ended_ns as f64), duration(*warm_up_ns as f64)
    )]
    WarmUp { ended_ns: u64, warm_up_ns: u64 },
    /// Its events were not kept, and to have it again would start a program of somebody's.
    #[error("its events were not kept, and looking at a run starts no program")]
    Program,
    #[error("it ran in another place ({place}) and cannot be run again")]
    Elsewhere { place: String },
}

impl TrialError {
    /// Whether it says something of one scheduler only: trials of others can still be had.
    pub(crate) fn is_of_one_scheduler(&self) -> bool {
        matches!(self, Self::Place(error) if error.trouble == Trouble::Scheduler)
    }

    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Place(error) => error.advice,
            Self::Store(_) => "is the disk full? `--trace counters` needs no space",
            Self::File(error) => error.advice(),
            Self::WarmUp { .. } => "make the run longer, or --warm-up shorter",
            Self::Program => "run it again with `--trace full`",
            Self::Elsewhere { .. } => "start the experiment again, in another directory",
        }
    }

    /// Whether the computer is not as it was before.
    pub fn leaves_state(&self) -> bool {
        matches!(self, Self::Place(error) if error.trouble == Trouble::State)
    }

    /// Whether the caller asked to stop.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Place(error) if error.is_interruption())
    }
}

/// The run of a trial, as a place is asked for it.
pub(crate) fn request(experiment: &Experiment, scheduler: usize, number: usize) -> Request<'_> {
    let (machine, workload) = (&experiment.machine_of(scheduler).value, &experiment.workload_of(scheduler).value);
    let asked = Request::new(machine, workload, experiment.scheduler_of(scheduler), experiment.seeds[number]);
    // Columns on several machines are compared in the same work.
    let work_of = (!std::ptr::eq(machine, &experiment.machine.value)).then_some(&experiment.machine.value);
    Request { work_of, options: experiment.options, actions: &experiment.actions, ..asked }
}

/// Makes the trial of a run, which depends on the experiment's record and on nothing else.
///
/// # Errors
/// When the run fails, or its trace cannot be stored.
pub(crate) fn make(
    experiment: &Experiment,
    record: &ExperimentRecord,
    (scheduler, number): (usize, usize),
    run: Run<'_>,
    directory: Option<&RunDirectory>,
) -> Result<Trial, TrialError> {
    let machine = &experiment.machine_of(scheduler).value;
    let tables = run.tables;
    let warm_up_ns = experiment.warm_up_ns(scheduler);
    let mut observer =
        (!experiment.observations.is_empty()).then(|| Observer::new(&experiment.observations, machine, warm_up_ns));
    let new_counters = || new_counters(experiment, scheduler, tables);
    let workload = &experiment.workload_of(scheduler).value;
    let gathering = Gathering::new(machine, workload, &experiment.schedulers[scheduler], tables, warm_up_ns);
    let mut followed = Tee::new(CriticalPaths::default(), gathering);
    let kept =
        directory.filter(|_| experiment.options.trace == TraceLevel::Full || starts_a_program(experiment, scheduler));
    let (report, counters) = match (experiment.options.trace, kept) {
        (TraceLevel::None, _) => {
            let sink = observer.as_mut().map(|observer| observer as &mut dyn Sink);
            (run.send(sink)?, None)
        }
        (TraceLevel::Counters | TraceLevel::Full, None) => {
            let mut sink = Tee::new(new_counters(), Tee::new(observer.as_mut(), &mut followed));
            (run.send(Some(&mut sink))?, Some(sink.first))
        }
        (trace, Some(directory)) => {
            let name = trial_name(scheduler, number);
            let path = directory.trace_directory(&name)?;
            let store = Store::create(&path, machine, tables, &store_info(&name, experiment), StoreOptions::default())?;
            let left = if trace == TraceLevel::Full { u64::MAX } else { KEPT_EVENTS };
            let store = Bounded { store: Some(store), left };
            let mut sink = Tee::new(Tee::new(new_counters(), Tee::new(observer.as_mut(), &mut followed)), store);
            let report = run.send(Some(&mut sink))?;
            match sink.second.store {
                Some(store) => store.finish(report.outcome.elapsed_ns, &task_infos(&report.outcome))?,
                None => std::fs::remove_dir_all(&path).at("remove", &path)?,
            };
            (report, Some(sink.first.first))
        }
    };
    if let (Some(directory), Some(conditions)) = (directory, &report.conditions) {
        let path = directory.path().join(conditions.directory);
        std::fs::create_dir_all(&path).at("create", &path)?;
        let file = format!("{}/{}.json", conditions.directory, trial_name(scheduler, number));
        directory.write(&file, conditions.json.as_bytes())?;
    }
    let outcome = &report.outcome;
    if warm_up_ns > 0 && outcome.window_ns() == 0 {
        return Err(TrialError::WarmUp { ended_ns: outcome.elapsed_ns, warm_up_ns });
    }
    let (tasks, elapsed_ns) = (task_infos(outcome), outcome.elapsed_ns);
    let of_run = |counters| metrics_of(experiment, scheduler, counters, tables, elapsed_ns, &tasks);
    let metrics = counters.as_ref().map(of_run);
    let observed = observer.map(|observer| observer.measures(outcome.elapsed_ns)).unwrap_or_default();
    let recorded = counters.as_ref().zip(metrics.as_ref());
    let mut trial = trial_of(experiment, record, scheduler, number, &report, recorded);
    add_followed(&mut trial, followed, outcome);
    trial.measures.extend(observed.into_iter().map(|(name, value)| (name, Some(value))));
    trial.measures.extend(report.measured.iter().map(|(name, value)| ((*name).to_owned(), Some(*value))));
    if let Some(output) = &report.output {
        // In the simulator it is a scheduler that prints, and no benchmark.
        if !experiment.place.kind().simulated {
            let (values, note) = host_measures::printed(experiment.metric.as_deref(), output);
            trial.measures.extend(values);
            trial.notes.extend(note);
        }
        keep_output(directory, &trial_name(scheduler, number), output)?;
    }
    Ok(trial)
}

/// What was counted, with the turns that the scheduler gives.
fn metrics_of(
    experiment: &Experiment,
    scheduler: usize,
    counters: &Counters,
    tables: &RunTables,
    elapsed_ns: u64,
    tasks: &[TaskInfo],
) -> Metrics {
    let turn_ns = experiment.scheduler_of(scheduler).turn_ns();
    Metrics { turn_ns, ..counters.metrics(elapsed_ns, tables, tasks) }
}

/// What counts the events of a run.
fn new_counters(experiment: &Experiment, scheduler: usize, tables: &RunTables) -> Counters {
    let machine = &experiment.machine_of(scheduler).value;
    let counters = Counters::new(machine, tables, Start::Idle { time_ns: 0 });
    let counters = counters.with_warm_up(experiment.warm_up_ns(scheduler));
    match role_measures::are_of(&experiment.workload_of(scheduler).value) {
        true => counters.with_latencies_by_task(),
        false => counters,
    }
}

/// Adds what was followed through the events of a trial's run.
fn add_followed(trial: &mut Trial, followed: Tee<CriticalPaths, Gathering<'_>>, outcome: &Outcome) {
    if let Some(last) = &mut trial.last_thread {
        last.path = followed.first.of(outcome);
    }
    trial.gathering = followed.second.row(outcome);
}

/// Keeps what was printed in a trial, or what one that failed has left to look at.
pub(crate) fn keep_output(directory: Option<&RunDirectory>, trial: &str, output: &str) -> Result<(), FileError> {
    let Some(directory) = directory else { return Ok(()) };
    let path = directory.path().join(OUTPUTS);
    std::fs::create_dir_all(&path).at("create", &path)?;
    directory.write(&format!("{OUTPUTS}/{trial}.txt"), output.as_bytes())
}

/// Whether a trial starts a program of somebody's: it is not made again to look at its events, so that they are kept.
fn starts_a_program(experiment: &Experiment, scheduler: usize) -> bool {
    experiment.place.kind().simulated && !experiment.is_repeatable(scheduler)
}

/// Most events that are kept of a trial where that was not asked for.
const KEPT_EVENTS: u64 = 2_000_000;

/// Events as far as they are not too many; then none.
struct Bounded {
    store: Option<Store>,
    left: u64,
}

impl Sink for Bounded {
    fn events(&mut self, batch: &[Event]) -> std::io::Result<()> {
        match self.left.checked_sub(batch.len() as u64) {
            Some(left) => self.left = left,
            None => self.store = None,
        }
        self.store.as_mut().map_or(Ok(()), |store| store.events(batch))
    }
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
    /// What the scheduler counted of its domains, where figures of balancing were asked for.
    pub domain_counters: Vec<CpuCounters>,
    /// The sink that was given its events.
    pub sink: S,
}

/// Runs a trial once more and hands its events to a sink: where runs are functions of their requests, events
/// need not be kept to be looked at later. `sink` makes the sink for the run's tables. `options` are the experiment's, but for what
/// its events are to tell besides.
///
/// # Errors
/// When the place cannot have a run again, or the run fails; a failure of the sink is a failure of the run.
pub fn rerun_trial<S: Sink + Send>(
    experiment: &Experiment,
    record: &ExperimentRecord,
    scheduler: usize,
    number: usize,
    options: RunOptions,
    stop: &Arc<AtomicBool>,
    sink: impl FnOnce(&RunTables) -> S + Send,
) -> Result<Rerun<S>, TrialError> {
    if !experiment.place.repeatable() {
        return Err(TrialError::Elsewhere { place: record.place.clone() });
    }
    if !experiment.is_repeatable(scheduler) {
        return Err(TrialError::Program);
    }
    let again = |run: Run<'_>, sink: S| -> Result<Rerun<S>, PlaceError> {
        let tables = run.tables.clone();
        let machine = &experiment.machine_of(scheduler).value;
        let counters = new_counters(experiment, scheduler, &tables);
        let warm_up_ns = experiment.warm_up_ns(scheduler);
        let workload = &experiment.workload_of(scheduler).value;
        let gathering = Gathering::new(machine, workload, &experiment.schedulers[scheduler], &tables, warm_up_ns);
        let mut both = Tee::new(Tee::new(counters, Tee::new(CriticalPaths::default(), gathering)), sink);
        let mut report = run.send(Some(&mut both))?;
        let domain_counters = std::mem::take(&mut report.outcome.domain_counters);
        let tasks = task_infos(&report.outcome);
        let Tee { first: Tee { first: counters, second: followed }, second: sink } = both;
        let elapsed_ns = report.outcome.elapsed_ns;
        let metrics = metrics_of(experiment, scheduler, &counters, &tables, elapsed_ns, &tasks);
        // What the experiment did not record is not in its trials either.
        let recorded = experiment.options.wants_events().then_some((&counters, &metrics));
        let mut trial = trial_of(experiment, record, scheduler, number, &report, recorded);
        if recorded.is_some() {
            add_followed(&mut trial, followed, &report.outcome);
        }
        Ok(Rerun { trial, metrics, tables, tasks, domain_counters, sink })
    };
    // A place calls back from its own threads, and knows nothing of what is made there.
    let sink = Mutex::new(Some(sink));
    let asked = Request { options, ..request(experiment, scheduler, number) };
    let conduct = BatchConduct { jobs: 1, stop: Arc::clone(stop) };
    let mut made = place::collect(&*experiment.place, &[asked], &conduct, &|_, run| {
        let run = run?;
        let sink = sink.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sink = sink.ok_or_else(PlaceError::interrupted)?(run.tables);
        again(run, sink)
    })?;
    Ok(made.pop().ok_or_else(PlaceError::interrupted)?)
}

/// The trial that a run makes.
fn trial_of(
    experiment: &Experiment,
    record: &ExperimentRecord,
    scheduler: usize,
    number: usize,
    report: &Report,
    recorded: Option<(&Counters, &Metrics)>,
) -> Trial {
    let outcome = &report.outcome;
    let metrics = recorded.map(|(_, metrics)| metrics);
    let departures = report.departures.iter().map(|what| format!("not done as asked: {what}"));
    let workload = &experiment.workload_of(scheduler).value;
    let (seed, end) = (experiment.seeds[number], trial_end(outcome.end));
    let ended = end == TrialEnd::AllExited || jobs::elapsed_ns(workload, outcome).is_some();
    let applications: Vec<ApplicationRow> = outcome.applications.iter().map(application_row).collect();
    let roles = recorded.map_or_else(Vec::new, |recorded| role_rows(outcome, recorded));
    let mut measures = measures::of_run(workload, outcome, end, metrics);
    measures.extend(role_measures::of_rows(&roles, &applications));
    let mut trial = Trial {
        schema: SCHEMA.into(),
        hash: record.trial_hash(scheduler, seed),
        scheduler: record.schedulers[scheduler].label.clone(),
        trial: number,
        seed,
        end,
        elapsed_ns: outcome.elapsed_ns,
        warm_up_ns: outcome.warm_up_ns,
        engine_events: outcome.engine_events,
        events_lost: report.events_lost,
        censored_waits: metrics.map_or(0, censored_waits),
        measures,
        time_ns: time_split::of_run(outcome, metrics),
        last_thread: ended.then(|| time_split::last_thread(outcome, metrics)).flatten(),
        gathering: None,
        cross_llc_quarters: None,
        decisions: metrics.map(|metrics| metrics.totals.decisions.clone()).unwrap_or_default(),
        operations: report.operations.iter().map(operation_row).collect(),
        applications,
        tasks: outcome.tasks.iter().map(|task| task_row(task, metrics)).collect(),
        roles,
        background: outcome.background.clone(),
        result_lines: result_lines(workload, outcome),
        notes: departures
            .chain(report.notes.iter().cloned())
            .chain(metrics.and_then(|metrics| note_on_waiting(outcome, metrics)))
            .collect(),
    };
    let from_ns = trial.measured_from_ns(measures::HACKBENCH);
    let counters = recorded.map(|(counters, _)| counters).filter(|_| from_ns > trial.warm_up_ns);
    trial.cross_llc_quarters = counters.and_then(|counters| counters.cross_llc_quarters(from_ns, trial.elapsed_ns));
    trial
}

/// Which tasks never ran again, by what they are called without their numbers.
fn note_on_waiting(outcome: &Outcome, metrics: &Metrics) -> Option<String> {
    let mut of_each: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, _) in metrics.never_ran_again(|_| 1.0) {
        let name = outcome.tasks.iter().find(|task| task.id == id.0).map_or("a task", |task| task.name.as_str());
        let family = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
        *of_each.entry(family).or_default() += 1;
    }
    let tasks: Vec<String> = of_each.iter().map(|(family, count)| format!("{count} × {family}")).collect();
    (!tasks.is_empty()).then(|| {
        format!(
            "waited when the run ended and never ran again, which no latency shows (longest_wait_ns does): {}",
            tasks.join(", ")
        )
    })
}

fn operation_row(operation: &OperationUse) -> OperationRow {
    OperationRow {
        operation: operation.name.clone(),
        calls: operation.calls,
        instructions: operation.cost.map(|cost| cost.instructions),
        charged_ns: operation.cost.map(|cost| cost.charged_ns),
    }
}

/// Nothing in it may differ between equal runs, so it names no computer.
fn store_info(run: &str, experiment: &Experiment) -> StoreInfo {
    let kind = experiment.place.kind();
    StoreInfo {
        tool_version: TOOL_VERSION.into(),
        clock: kind.clock.0.into(),
        host_id: kind.host.into(),
        run_id: run.into(),
    }
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

fn task_row(task: &TaskOutcome, metrics: Option<&Metrics>) -> TaskRow {
    let of_task = metrics.and_then(|metrics| {
        let at = metrics.tasks.binary_search_by_key(&task.id, |row| row.id.0).ok()?;
        Some(metrics.tasks[at].counters.clone())
    });
    TaskRow {
        name: task.name.clone(),
        role: task.role.clone(),
        application: task.application,
        started_ns: task.started_ns,
        exited_ns: task.exited_ns,
        cpu_time_ns: task.cpu_time_ns,
        counters: of_task.unwrap_or_default(),
    }
}

/// Waits and responses by application and role; nothing of fewer than two that wake.
fn role_rows(outcome: &Outcome, (counters, metrics): (&Counters, &Metrics)) -> Vec<RoleRow> {
    let mut rows: Vec<RoleRow> = Vec::new();
    let mut tasks: Vec<Vec<TaskId>> = Vec::new();
    let mut index: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    for task in &outcome.tasks {
        let found = metrics.tasks.binary_search_by_key(&task.id, |row| row.id.0);
        let Some(of_task) = found.ok().map(|at| &metrics.tasks[at]) else { continue };
        let position = *index.entry((task.application, task.role.as_str())).or_insert_with(|| {
            let application = outcome.applications.get(task.application as usize);
            let role = match (task.role.as_str(), application) {
                ("", Some(application)) => application.name.clone(),
                (role, _) => role.to_owned(),
            };
            let (wakeup, response) = (Waits::default(), Waits::default());
            let application = task.application;
            rows.push(RoleRow { role, application, wakeup, response, wakeup_p99_ns: None, response_p99_ns: None });
            tasks.push(Vec::new());
            rows.len() - 1
        });
        tasks[position].push(of_task.id);
        rows[position].wakeup.merge(&of_task.wakeup_latency);
        rows[position].response.merge(&of_task.response);
    }
    for (row, tasks) in rows.iter_mut().zip(&tasks) {
        let Some(latencies) = counters.latencies_of(tasks) else { continue };
        // Values are upper edges of buckets, and the largest one is known.
        let [wakeup, response] = latencies.map(|histogram| histogram.quantile(0.99));
        row.wakeup_p99_ns = wakeup.map(|ns| ns.min(row.wakeup.max_ns));
        row.response_p99_ns = response.map(|ns| ns.min(row.response.max_ns));
    }
    rows.retain(|row| row.wakeup.count > 0);
    if rows.len() < 2 { Vec::new() } else { rows }
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
