//! Both places: simulations now; boots now, or their stored results.
//!
//! Experiments of one machine share boots: in each boot every experiment runs once under each of its schedulers. What is
//! stored of a boot are the metrics' values alone, in one small file for each experiment.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use warmcore_options::RunOptions;
use warmcore_places::place::{BatchConduct, Place, PlaceError, Request, Run};
use warmcore_places::sim::Sim;
use warmcore_schedulers::SchedulerSpec;
use warmcore_trace::{Event, Sink};
use warmcore_workload::{Action, Workload};

use super::book::{BookExperiment, Cause, Check};
use super::calls::{self, call_sequences};
use super::costs::{measured_costs, with_costs_of};
use super::judge::{Agreement, LineJudgement, judge};
use super::metric::{Measured, Metric, operations_per_s};
use super::plots::{Plots, RunOf};
use super::profile::RunProfile;
use super::stored::{StoredResult, StoredRun};
use super::wrong::{self, WrongModel};
use warmcore_lab::experiment::trial_seeds;
use warmcore_lab::files::FileError;

/// The seed that seeds of runs are made of, in both places.
const FIRST_SEED: u64 = 1;
/// Simulated runs of each experiment. The first have the seeds of the boots, and so launchers on the same CPUs.
pub(crate) const SIM_SEEDS: u32 = 8;
/// Simulated runs of a wrong model under a program, which are stored.
const WRONG_SEEDS: u32 = 4;

/// Why the book cannot be run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ValidateError {
    /// A simulation failed.
    #[error("{experiment} under {scheduler}, simulated: {source}")]
    Sim { experiment: String, scheduler: String, source: Box<PlaceError> },
    /// The costs of a machine's kernel cannot be measured.
    #[error("the costs of {machine}: {source}")]
    Costs { machine: String, source: Box<PlaceError> },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A stored result is not what it should be.
    #[error("{path}: {reason}")]
    Stored { path: String, reason: String },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// A comparison of the book.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// Scheduler.
    pub scheduler: String,
    /// Metric.
    pub metric: String,
    /// Bound, in words.
    pub bound: String,
    /// Errors and verdict.
    pub judgement: LineJudgement,
    /// Wrong models that it rejects: it can fail.
    pub rejects: Vec<String>,
}

/// A negative control.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ControlLine {
    /// What is wrong about it.
    pub name: String,
    /// Whether at least one of its metrics was outside.
    pub rejected: bool,
    /// Whether anything could be said.
    pub measured: bool,
    /// Metrics that were outside.
    pub by: Vec<String>,
}

/// An experiment, compared.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Chapter {
    /// Name.
    pub name: String,
    /// Title.
    pub title: String,
    /// Group.
    pub group: String,
    /// Items of the checklist.
    pub checklist: Vec<u32>,
    /// Machine.
    pub machine: String,
    /// CPUs, LLCs and nodes of it.
    pub size: (usize, usize, usize),
    /// Background of its simulated runs; empty without one.
    pub background: String,
    /// What a reader of the chapter should know.
    pub note: String,
    /// Why comparisons are outside their bounds, if any is.
    pub outside: Option<Cause>,
    /// Kernel, QEMU and execution of the results; empty without any.
    pub source: String,
    /// Number of boots.
    pub boots: usize,
    /// Comparisons.
    pub lines: Vec<Line>,
    /// Controls.
    pub controls: Vec<ControlLine>,
}

/// Runs experiments of one machine in a place with a real kernel, all of them in each of its boots, and gives each one's result;
/// `plots` takes each run's series.
///
/// # Errors
/// When the caller asked to stop. A boot that fails is in the results.
pub fn boot_all(
    place: &dyn Place,
    experiments: &[&BookExperiment],
    boots: usize,
    plots: &mut Plots,
    stop: &Arc<AtomicBool>,
    note: &dyn Fn(&str),
) -> Result<Vec<StoredResult>, ValidateError> {
    let mut results: Vec<StoredResult> =
        experiments.iter().map(|experiment| StoredResult::new(experiment, place)).collect();
    let Some(first) = experiments.first() else { return Ok(results) };
    let costs = measured_costs(place, first, stop)?;
    results.iter_mut().for_each(|result| result.costs.clone_from(&costs));
    let runs: Vec<(usize, usize)> = (0..experiments.len())
        .flat_map(|index| (0..experiments[index].schedulers.len()).map(move |s| (index, s)))
        .collect();
    let seeds = trial_seeds(FIRST_SEED, boots as u32);
    for (boot, seed) in seeds.into_iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Err(ValidateError::Interrupted);
        }
        note(&format!("{}: boot {} of {boots}, {} runs", first.machine_text, boot + 1, runs.len()));
        let requests: Vec<Request<'_>> = runs
            .iter()
            .map(|(index, scheduler)| Request {
                shared: Some(0),
                machine: &first.machine,
                ..request(experiments[*index], *scheduler, seed)
            })
            .collect();
        let of_run = |index: usize| {
            let (experiment, scheduler) = runs[index];
            (experiments[experiment], experiments[experiment].checks_of(scheduler).collect::<Vec<_>>())
        };
        let conduct = BatchConduct { jobs: 1, stop: Arc::clone(stop) };
        let made = match made(place, &requests, &of_run, &conduct) {
            Ok(made) => made,
            Err(error) if error.is_interruption() => return Err(ValidateError::Interrupted),
            Err(error) => {
                note(&format!("{}: boot {} failed: {error}", first.machine_text, boot + 1));
                results.iter_mut().for_each(|result| result.failed.push(error.to_string()));
                continue;
            }
        };
        results.iter_mut().for_each(|result| result.boots.push(Vec::new()));
        for ((index, scheduler), made) in runs.iter().zip(made) {
            let experiment = experiments[*index];
            let label = experiment.schedulers[*scheduler].to_string();
            let of = RunOf { experiment: &experiment.name, place: "vm", run: boot, scheduler: &label };
            plots.take(of, &made.profile);
            let keys = experiment.checks_of(*scheduler).map(|check| check.key(&experiment.schedulers));
            let metrics = keys.zip(made.measured).collect();
            let (events_lost, departures) = (made.events_lost, made.departures);
            for departure in &departures {
                note(&format!("{}: boot {} under {label}: not done as asked: {departure}", experiment.name, boot + 1));
            }
            let run = StoredRun { scheduler: label, wrong: None, events_lost, departures, metrics };
            if let Some(last) = results[*index].boots.last_mut() {
                last.push(run);
            }
        }
    }
    Ok(results)
}

/// The run of an experiment under one of its schedulers.
fn request(experiment: &BookExperiment, scheduler: usize, seed: u64) -> Request<'_> {
    let options =
        RunOptions { buffer_kib: Some(experiment.buffer_kib), observe: experiment.observe(), ..RunOptions::default() };
    let asked = Request::new(&experiment.machine, &experiment.workload, &experiment.schedulers[scheduler], seed);
    Request { options, actions: &experiment.actions, ..asked }
}

/// All events of a run.
#[derive(Default)]
struct Events(Vec<Event>);

impl Sink for Events {
    fn events(&mut self, batch: &[Event]) -> std::io::Result<()> {
        self.0.extend_from_slice(batch);
        Ok(())
    }
}

/// What is kept of a run.
struct MadeRun {
    profile: RunProfile,
    /// By check of the scheduler.
    measured: Vec<Measured>,
    events_lost: u64,
    departures: Vec<String>,
}

/// The experiment that a request is of, and its checks of that request's scheduler.
type OfRequest<'a> = dyn Fn(usize) -> (&'a BookExperiment, Vec<&'a Check>) + Sync + 'a;

/// Makes runs and gives what is kept of them, in their order; or the first failure.
fn made(
    place: &dyn Place,
    requests: &[Request<'_>],
    of_request: &OfRequest<'_>,
    conduct: &BatchConduct,
) -> Result<Vec<MadeRun>, PlaceError> {
    let made: Mutex<BTreeMap<usize, Result<MadeRun, PlaceError>>> = Mutex::new(BTreeMap::new());
    let take = |index: usize, run: Result<Run<'_>, PlaceError>| {
        let request = &requests[index];
        let kept = run.and_then(|run| {
            let mut events = Events::default();
            let report = run.send(Some(&mut events))?;
            let (experiment, checks) = of_request(index);
            let (events, outcome) = (&events.0, &report.outcome);
            let measure = |check: &&Check| match check.metric {
                Metric::OperationsPerS => operations_per_s(&report.operations, outcome.elapsed_ns),
                Metric::CallSequences | Metric::CallFrequencies => call_sequences(&report.sequences),
                _ => check.measure(request.machine, events, outcome, request.workload),
            };
            Ok(MadeRun {
                profile: experiment.view.profile(request.machine, events, outcome, request.workload),
                measured: checks.iter().map(measure).collect(),
                events_lost: report.events_lost,
                departures: report.departures,
            })
        });
        let flow = if kept.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        made.lock().unwrap_or_else(PoisonError::into_inner).insert(index, kept);
        flow
    };
    place.run(requests, conduct, &take)?;
    let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    let found = made.into_values().collect::<Result<Vec<_>, _>>()?;
    if found.len() < requests.len() { Err(PlaceError::interrupted()) } else { Ok(found) }
}

/// Simulates an experiment and compares it with a result; `plots` takes each simulated run's series.
///
/// # Errors
/// When a simulation fails.
pub fn compare(
    experiment: &BookExperiment,
    result: Option<&StoredResult>,
    plots: &mut Plots,
    conduct: &BatchConduct,
) -> Result<Chapter, ValidateError> {
    let experiment = &with_costs_of(experiment, result)?;
    let boots = result.map_or(&[][..], |result| &result.boots);
    let mut lines = Vec::new();
    let mut controls: Vec<ControlLine> = experiment
        .controls
        .iter()
        .map(|control| ControlLine { name: control.name.clone(), rejected: false, measured: false, by: Vec::new() })
        .collect();
    for (index, scheduler) in experiment.schedulers.iter().enumerate() {
        let label = scheduler.to_string();
        let real: Vec<&StoredRun> = boots.iter().flatten().filter(|run| run.scheduler == label).collect();
        let flaw = flaw(&real);
        let theirs = |check: &Check| -> Vec<Measured> {
            let key = check.key(&experiment.schedulers);
            real.iter().filter_map(|run| run.metrics.get(&key).cloned()).collect()
        };
        let checks: Vec<&Check> = experiment.checks_of(index).collect();
        let judged = |runs: &[Vec<Measured>], position: usize| {
            let ours: Vec<Measured> = runs.iter().map(|run| run[position].clone()).collect();
            let (check, theirs) = (checks[position], theirs(checks[position]));
            match check.metric {
                Metric::CallSequences | Metric::CallFrequencies => {
                    calls::judge(check.metric, check.bound, &ours, &theirs, flaw.as_deref())
                }
                _ => judge(check.bound, check.expect, &ours, &theirs, flaw.as_deref()),
            }
        };
        let simulate = |instead: Instead<'_>| simulated(experiment, &checks, instead, SIM_SEEDS, conduct);
        let kept = |wrong: Option<&str>| -> Vec<Vec<Measured>> {
            let comparable = result.filter(|result| !result.is_beside_another(experiment));
            let stored = comparable.map_or(&[][..], |result| &result.simulated);
            let of_checks = |run: &StoredRun| {
                let kept = |check: &&Check| run.metrics.get(&check.key(&experiment.schedulers)).cloned();
                checks.iter().map(kept).collect::<Option<Vec<Measured>>>()
            };
            let wanted = |run: &&StoredRun| run.scheduler == label && run.wrong.as_deref() == wrong;
            stored.iter().filter(wanted).filter_map(of_checks).collect()
        };
        // What a wrong model gives. One that is of a program was simulated when that was there.
        let measured = |name: &str, instead: Instead<'_>| match instead.scheduler.program() {
            Some(_) => Ok(kept(Some(name))),
            None => simulate(instead).map(|runs| runs.into_iter().map(|run| run.measured).collect()),
        };
        let actions = &experiment.actions[..];
        // A scheduler that is no model is measured and not compared; one that is a program was simulated when it was there.
        let runs: Vec<Vec<Measured>> = if scheduler.program().is_some() {
            kept(None)
        } else if scheduler.is_simulated() {
            let runs = simulate(Instead { scheduler, workload: &experiment.workload, actions })?;
            for (run, simulated) in runs.iter().enumerate() {
                let of = RunOf { experiment: &experiment.name, place: "sim", run, scheduler: &label };
                plots.take(of, &simulated.profile);
            }
            runs.into_iter().map(|run| run.measured).collect()
        } else {
            Vec::new()
        };
        let mut rejects: Vec<Vec<String>> = vec![Vec::new(); checks.len()];
        let mut try_wrong = |name: &str, runs: &[Vec<Measured>]| -> Vec<Agreement> {
            let verdicts: Vec<Agreement> = (0..checks.len()).map(|position| judged(runs, position).verdict).collect();
            for (verdict, rejects) in verdicts.iter().zip(&mut rejects) {
                if *verdict == Agreement::Outside {
                    rejects.push(name.to_owned());
                }
            }
            verdicts
        };
        for (control, line) in experiment.controls.iter().zip(&mut controls) {
            let spec = control.scheduler.as_ref().unwrap_or(scheduler);
            let workload = control.workload.as_ref().unwrap_or(&experiment.workload);
            let runs = measured(&control.name, Instead { scheduler: spec, workload, actions })?;
            let verdicts = try_wrong(&control.name, &runs);
            for (check, verdict) in checks.iter().zip(verdicts) {
                if !control.metrics.contains(&check.metric) {
                    continue;
                }
                line.measured |= verdict != Agreement::NotMeasured;
                if verdict == Agreement::Outside {
                    line.rejected = true;
                    line.by.push(format!("{} under {label}", check.metric.name()));
                }
            }
        }
        if !real.is_empty() {
            for wrong in wrong::models(experiment, scheduler) {
                // What deadlocks or cannot be when it is wrong like this says nothing.
                let WrongModel { name, scheduler, workload, actions } = &wrong;
                if let Ok(runs) = measured(name, Instead { scheduler, workload, actions }) {
                    try_wrong(name, &runs);
                }
            }
        }
        for (position, check) in checks.iter().enumerate() {
            lines.push(Line {
                scheduler: label.clone(),
                metric: check.key(&experiment.schedulers),
                bound: match check.bound {
                    super::book::Bound::Relative(limit) => format!("{} %", limit * 100.0),
                    super::book::Bound::Absolute(limit) => format!("{limit}"),
                    super::book::Bound::Counts { limit, .. } => format!("{limit} √n"),
                },
                judgement: judged(&runs, position),
                rejects: rejects[position].clone(),
            });
        }
    }
    let machine = &experiment.machine;
    Ok(Chapter {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        group: experiment.group.clone(),
        checklist: experiment.checklist.clone(),
        machine: experiment.machine_text.clone(),
        size: (machine.cpu_count(), machine.llc_count(), machine.node_count()),
        background: experiment.background().unwrap_or_default().to_owned(),
        note: experiment.note.clone(),
        outside: experiment.outside.clone(),
        source: result.map_or_else(String::new, |result| {
            format!("kernel {}, QEMU {}, {}", result.kernel, result.qemu, result.execution)
        }),
        boots: boots.len(),
        lines,
        controls,
    })
}

/// Simulates an experiment under those of its schedulers that are programs, which must be there, and has that in the result; and what is
/// wrong under them: the experiment's own controls and the models that are wrong for all. The machine has the costs of the result.
///
/// # Errors
/// When a simulation fails, or a program cannot be loaded.
pub fn simulate_programs(
    experiment: &BookExperiment,
    result: &mut StoredResult,
    conduct: &BatchConduct,
) -> Result<(), ValidateError> {
    let experiment = &with_costs_of(experiment, Some(result))?;
    let mut all = Vec::new();
    for (index, scheduler) in experiment.schedulers.iter().enumerate() {
        if scheduler.program().is_none() {
            continue;
        }
        let checks: Vec<&Check> = experiment.checks_of(index).collect();
        let mut store = |wrong: Option<&str>, runs: Vec<MadeRun>| {
            all.extend(runs.into_iter().map(|run| {
                let keys = checks.iter().map(|check| check.key(&experiment.schedulers));
                let metrics = keys.zip(run.measured).collect();
                let (scheduler, wrong) = (scheduler.to_string(), wrong.map(str::to_owned));
                StoredRun { scheduler, wrong, events_lost: run.events_lost, departures: run.departures, metrics }
            }));
        };
        let (workload, actions) = (&experiment.workload, &experiment.actions[..]);
        store(None, simulated(experiment, &checks, Instead { scheduler, workload, actions }, SIM_SEEDS, conduct)?);
        for control in &experiment.controls {
            let scheduler = control.scheduler.as_ref().unwrap_or(scheduler);
            let workload = control.workload.as_ref().unwrap_or(workload);
            if scheduler.program().is_some() {
                let instead = Instead { scheduler, workload, actions };
                store(Some(&control.name), simulated(experiment, &checks, instead, WRONG_SEEDS, conduct)?);
            }
        }
        for WrongModel { name, scheduler, workload, actions } in wrong::models(experiment, scheduler) {
            if scheduler.program().is_none() {
                continue;
            }
            let instead = Instead { scheduler: &scheduler, workload: &workload, actions: &actions };
            match simulated(experiment, &checks, instead, WRONG_SEEDS, conduct) {
                Ok(runs) => store(Some(name), runs),
                Err(ValidateError::Interrupted) => return Err(ValidateError::Interrupted),
                // What deadlocks or cannot be when it is wrong like this says nothing.
                Err(_) => {}
            }
        }
    }
    result.simulated = all;
    result.simulated_beside = experiment.background().map(str::to_owned);
    Ok(())
}

/// Why a kernel's runs say nothing about their experiment, if they do not.
fn flaw(runs: &[&StoredRun]) -> Option<String> {
    let lost: u64 = runs.iter().map(|run| run.events_lost).sum();
    let departed = runs.iter().find_map(|run| run.departures.first());
    let departed = departed.map(|departure| format!("not done as asked: {departure}"));
    departed.or_else(|| (lost > 0).then(|| format!("{lost} events were lost")))
}

/// What is simulated in an experiment's place: itself, a control, or a wrong model.
#[derive(Clone, Copy)]
struct Instead<'a> {
    scheduler: &'a SchedulerSpec,
    workload: &'a Workload,
    actions: &'a [Action],
}

fn simulated(
    experiment: &BookExperiment,
    checks: &[&Check],
    instead: Instead<'_>,
    seeds: u32,
    conduct: &BatchConduct,
) -> Result<Vec<MadeRun>, ValidateError> {
    let Instead { scheduler, workload, actions } = instead;
    let seeds = trial_seeds(FIRST_SEED, seeds);
    let requests: Vec<Request<'_>> = seeds
        .iter()
        .map(|seed| Request {
            machine: &experiment.simulated,
            scheduler,
            workload,
            actions,
            ..request(experiment, 0, *seed)
        })
        .collect();
    made(&Sim, &requests, &|_| (experiment, checks.to_vec()), conduct).map_err(|source| {
        match source.is_interruption() {
            true => ValidateError::Interrupted,
            false => ValidateError::Sim {
                experiment: experiment.name.clone(),
                scheduler: scheduler.to_string(),
                source: Box::new(source),
            },
        }
    })
}
