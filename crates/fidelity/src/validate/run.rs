//! Both places: simulations now; boots now, or their stored results.
//!
//! Experiments of one machine share boots: in each boot every experiment runs once under each of its schedulers. What is
//! stored of a boot are the metrics' values alone, in one small file for each experiment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use warmcore_options::RunOptions;
use warmcore_places::place::{self, BatchConduct, Place, PlaceError, Request};
use warmcore_places::sim::Sim;
use warmcore_trace::Event;

use super::book::{BookExperiment, Cause, Check};
use super::calls::{self, call_sequences};
use super::costs::{measured_costs, with_costs_of};
use super::judge::{Agreement, LineJudgement, judge};
use super::metric::{Measured, Metric, operations_per_s};
use super::models::{Kind, Model, models};
use super::plots::{Plots, RunOf};
use super::profile::RunProfile;
use super::stored::{StoredResult, StoredRun};
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
            Asked { experiment: experiments[experiment], scheduler, wrong: None }
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
        for ((index, _), (profile, run)) in runs.iter().zip(made) {
            let (name, label) = (&experiments[*index].name, &run.scheduler);
            plots.take(RunOf { experiment: name, place: "vm", run: boot, scheduler: label }, &profile);
            for departure in &run.departures {
                note(&format!("{name}: boot {} under {label}: not done as asked: {departure}", boot + 1));
            }
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

/// What a request is of: an experiment under one of its schedulers, or what is wrong for it.
struct Asked<'a> {
    experiment: &'a BookExperiment,
    scheduler: usize,
    wrong: Option<&'a str>,
}

/// Makes runs and gives what is kept of them, in their order; or the first failure.
fn made<'a>(
    place: &dyn Place,
    requests: &[Request<'_>],
    of_request: &(dyn Fn(usize) -> Asked<'a> + Sync),
    conduct: &BatchConduct,
) -> Result<Vec<(RunProfile, StoredRun)>, PlaceError> {
    place::collect(place, requests, conduct, &|index, run| {
        let Request { machine, workload, .. } = requests[index];
        let mut events: Vec<Event> = Vec::new();
        let report = run?.send(Some(&mut events))?;
        let Asked { experiment, scheduler, wrong } = of_request(index);
        let outcome = &report.outcome;
        let measure = |check: &Check| match check.metric {
            Metric::OperationsPerS => operations_per_s(&report.operations, outcome.elapsed_ns),
            Metric::CallSequences | Metric::CallFrequencies => call_sequences(&report.sequences),
            _ => check.measure(machine, &events, outcome, workload),
        };
        let checks = experiment.checks_of(scheduler);
        let run = StoredRun {
            scheduler: experiment.schedulers[scheduler].to_string(),
            wrong: wrong.map(str::to_owned),
            events_lost: report.events_lost,
            metrics: checks.map(|check| (check.key(&experiment.schedulers), measure(check))).collect(),
            departures: report.departures,
        };
        Ok((experiment.view.profile(machine, &events, outcome, workload), run))
    })
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
    // Those under a program were simulated when that was there.
    let kept = result.filter(|result| !result.is_beside_another(experiment)).map_or(&[][..], |of| &of.simulated);
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
        let checks: Vec<(&Check, String)> =
            experiment.checks_of(index).map(|check| (check, check.key(&experiment.schedulers))).collect();
        let judged = |ours: &[&StoredRun], (check, key): &(&Check, String)| {
            let of = |runs: &[&StoredRun]| -> Vec<Measured> {
                runs.iter().filter_map(|run| run.metrics.get(key).cloned()).collect()
            };
            let (ours, theirs) = (of(ours), of(&real));
            match check.metric {
                Metric::CallSequences | Metric::CallFrequencies => {
                    calls::judge(check.metric, check.bound, &ours, &theirs, flaw.as_deref())
                }
                _ => judge(check.bound, check.expect, &ours, &theirs, flaw.as_deref()),
            }
        };
        let first = lines.len();
        for model in models(experiment, scheduler) {
            // What no run of a real kernel is compared with rejects nothing.
            if model.kind == Kind::Wrong && real.is_empty() {
                continue;
            }
            let is_right = model.kind == Kind::Right;
            let made = match model.scheduler.program() {
                // A scheduler that is no model is measured and not compared.
                None if !is_right || scheduler.is_simulated() => {
                    simulated(experiment, index, &model, SIM_SEEDS, conduct)?
                }
                _ => Some(Vec::new()),
            };
            let Some(made) = made else { continue };
            let wanted = |run: &&StoredRun| {
                model.scheduler.program().is_some()
                    && (&run.scheduler, run.wrong.as_deref()) == (&label, model.wrong())
                    && checks.iter().all(|(_, key)| run.metrics.contains_key(key))
            };
            let runs: Vec<&StoredRun> = made.iter().map(|(_, run)| run).chain(kept.iter().filter(wanted)).collect();
            for (run, (profile, _)) in made.iter().enumerate().filter(|_| is_right) {
                plots.take(RunOf { experiment: &experiment.name, place: "sim", run, scheduler: &label }, profile);
            }
            for (position, check) in checks.iter().enumerate() {
                let judgement = judged(&runs, check);
                let (check, key) = check;
                if is_right {
                    let (scheduler, metric, bound) = (label.clone(), key.clone(), check.bound.to_string());
                    lines.push(Line { scheduler, metric, bound, judgement, rejects: Vec::new() });
                    continue;
                }
                let rejected = judgement.verdict == Agreement::Outside;
                if rejected {
                    lines[first + position].rejects.push(model.name.clone());
                }
                if let Kind::Control(control) = model.kind
                    && experiment.controls[control].metrics.contains(&check.metric)
                {
                    let line = &mut controls[control];
                    line.measured |= judgement.verdict != Agreement::NotMeasured;
                    line.rejected |= rejected;
                    line.by.extend(rejected.then(|| format!("{} under {label}", check.metric)));
                }
            }
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
    for (index, scheduler) in experiment.schedulers.iter().enumerate().filter(|(_, of)| of.program().is_some()) {
        for model in models(experiment, scheduler).iter().filter(|model| model.scheduler.program().is_some()) {
            let seeds = if model.kind == Kind::Right { SIM_SEEDS } else { WRONG_SEEDS };
            let runs = simulated(experiment, index, model, seeds, conduct)?;
            all.extend(runs.into_iter().flatten().map(|(_, run)| run));
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

/// Simulates a model of an experiment under one of its schedulers. Nothing of one that is wrong for every experiment and fails: what
/// deadlocks or cannot be when it is wrong like this says nothing.
fn simulated(
    experiment: &BookExperiment,
    index: usize,
    model: &Model,
    seeds: u32,
    conduct: &BatchConduct,
) -> Result<Option<Vec<(RunProfile, StoredRun)>>, ValidateError> {
    let Model { scheduler, workload, actions, .. } = model;
    let seeds = trial_seeds(FIRST_SEED, seeds);
    let machine = &experiment.simulated;
    let asked = |seed: &u64| Request { machine, scheduler, workload, actions, ..request(experiment, index, *seed) };
    let requests: Vec<Request<'_>> = seeds.iter().map(asked).collect();
    let of_request = |_| Asked { experiment, scheduler: index, wrong: model.wrong() };
    match made(&Sim, &requests, &of_request, conduct) {
        Ok(runs) => Ok(Some(runs)),
        Err(source) if source.is_interruption() => Err(ValidateError::Interrupted),
        Err(_) if model.kind == Kind::Wrong => Ok(None),
        Err(source) => {
            let (experiment, scheduler) = (experiment.name.clone(), scheduler.to_string());
            Err(ValidateError::Sim { experiment, scheduler, source: Box::new(source) })
        }
    }
}
