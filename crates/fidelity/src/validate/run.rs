//! Both places: simulations now, boots now or their stored results, both by the loop of studies ([`together`]).
//!
//! Experiments of one machine share boots: in each boot every experiment runs once under each of its schedulers. What is
//! stored of a boot are the metrics' values alone, in one small file for each experiment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::files::FileError;
use warmcore_lab::verdict::DEFAULT_MARGIN;
use warmcore_options::RunOptions;
use warmcore_places::place::{BatchConduct, Place, PlaceError, Run};
use warmcore_places::sim::Sim;
use warmcore_study::plan::PlannedExperiment;
use warmcore_study::run::together;
use warmcore_topology::Machine;
use warmcore_trace::Event;

use super::book::{BookExperiment, Cause, Check};
use super::calls::{self, call_sequences};
use super::costs::{measured_costs, with_costs_of};
use super::judge::{Agreement, LineJudgement, judge};
use super::metric::{Measured, Metric, operations_per_s};
use super::models::{Kind, Model, models, right};
use super::plots::{Plots, RunOf};
use super::profile::RunProfile;
use super::stored::{StoredResult, StoredRun};

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
    place: &Arc<dyn Place>,
    experiments: &[&BookExperiment],
    boots: usize,
    plots: &mut Plots,
    stop: &Arc<AtomicBool>,
    note: &dyn Fn(&str),
) -> Result<Vec<StoredResult>, ValidateError> {
    let mut results: Vec<StoredResult> =
        experiments.iter().map(|experiment| StoredResult::new(experiment, &**place)).collect();
    let Some(first) = experiments.first() else { return Ok(results) };
    let costs = measured_costs(&**place, first, stop)?;
    results.iter_mut().for_each(|result| result.costs.clone_from(&costs));
    let of =
        |index: usize| (0..experiments[index].schedulers.len()).map(move |of| (index, right(experiments[index], of)));
    let runs: Vec<(usize, Model)> = (0..experiments.len()).flat_map(of).collect();
    let conduct = BatchConduct { jobs: 1, stop: Arc::clone(stop) };
    for (boot, seed) in trial_seeds(FIRST_SEED, boots as u32).into_iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Err(ValidateError::Interrupted);
        }
        note(&format!("{}: boot {} of {boots}, {} runs", first.machine_text, boot + 1, runs.len()));
        let plan = |(index, model): &(usize, Model)| {
            planned(experiments[*index], model, &experiments[*index].machine, place, vec![seed])
        };
        let planned: Vec<PlannedExperiment> = runs.iter().map(plan).collect();
        let make = |at: usize, run: Run<'_>| seen(experiments[runs[at].0], &planned[at].experiment, true, run);
        let made = together(&planned, &conduct, &make);
        let made = match made.and_then(|made| made.into_iter().collect::<Result<Vec<Vec<DrawnRun>>, PlaceError>>()) {
            Ok(made) => made,
            Err(error) if error.is_interruption() => return Err(ValidateError::Interrupted),
            Err(error) => {
                note(&format!("{}: boot {} failed: {error}", first.machine_text, boot + 1));
                results.iter_mut().for_each(|result| result.failed.push(error.to_string()));
                continue;
            }
        };
        results.iter_mut().for_each(|result| result.boots.push(Vec::new()));
        for ((index, model), seen) in runs.iter().zip(made.into_iter().flatten()) {
            let (profile, run) = of_model(experiments[*index], model, seen);
            let (name, label) = (&experiments[*index].name, &run.scheduler);
            let of = RunOf { experiment: name, place: "vm", run: boot, scheduler: label };
            profile.iter().for_each(|profile| plots.take(of, profile));
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

/// A model of an experiment as the loop of studies runs it. Models of one workload have it under one name, so that equal ones run once.
fn planned(
    experiment: &BookExperiment,
    model: &Model,
    machine: &Machine,
    place: &Arc<dyn Place>,
    seeds: Vec<u64>,
) -> PlannedExperiment {
    let wrong = if model.workload == experiment.workload { "" } else { &model.name };
    let study = experiment.name.clone();
    let experiment = Experiment {
        machine: Named { source: experiment.machine_text.clone(), value: machine.clone() },
        workload: Named { source: format!("{} {wrong}", experiment.name), value: model.workload.clone() },
        actions: model.actions.clone(),
        schedulers: vec![model.scheduler.clone()],
        columns: BTreeMap::new(),
        baseline: 0,
        seeds,
        options: RunOptions {
            buffer_kib: Some(experiment.buffer_kib),
            observe: experiment.observe(),
            ..RunOptions::default()
        },
        metric: None,
        margin: DEFAULT_MARGIN,
        observations: Vec::new(),
        advised: false,
        place: Arc::clone(place),
        kept_programs: None,
    };
    PlannedExperiment { experiment, study, directory: None }
}

/// What figures are drawn from, of a run that is drawn, and what is kept.
type DrawnRun = (Option<RunProfile>, StoredRun);

/// Makes a run, with the metrics of all checks: it may stand for several models.
fn seen(experiment: &BookExperiment, of: &Experiment, is_drawn: bool, run: Run<'_>) -> Result<DrawnRun, PlaceError> {
    let mut events: Vec<Event> = Vec::new();
    let report = run.send(Some(&mut events))?;
    let (machine, workload, outcome) = (&of.machine.value, &of.workload.value, &report.outcome);
    let measure = |check: &Check| match check.metric {
        Metric::OperationsPerS => operations_per_s(&report.operations, outcome.elapsed_ns),
        Metric::CallSequences | Metric::CallFrequencies => call_sequences(&report.sequences),
        _ => check.measure(machine, &events, outcome, workload),
    };
    let metrics = experiment.checks.iter().map(|check| (check.key(&experiment.schedulers), measure(check)));
    let run = StoredRun {
        scheduler: String::new(),
        wrong: None,
        events_lost: report.events_lost,
        metrics: metrics.collect(),
        departures: report.departures,
    };
    Ok((is_drawn.then(|| experiment.view.profile(machine, &events, outcome, workload)), run))
}

/// A run as one of a model, with the metrics of its checks.
fn of_model(experiment: &BookExperiment, model: &Model, (profile, mut run): DrawnRun) -> DrawnRun {
    let wanted: Vec<String> = experiment.checks_of(model.of).map(|check| check.key(&experiment.schedulers)).collect();
    run.metrics.retain(|key, _| wanted.contains(key));
    let (scheduler, wrong) = (experiment.schedulers[model.of].to_string(), model.wrong().map(str::to_owned));
    (profile, StoredRun { scheduler, wrong, ..run })
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
    let labels: Vec<String> = experiment.schedulers.iter().map(ToString::to_string).collect();
    let real = |label: &String| boots.iter().flatten().filter(|run| run.scheduler == *label).collect::<Vec<_>>();
    let real: Vec<Vec<&StoredRun>> = labels.iter().map(real).collect();
    let mut models = models(experiment);
    // What no run of a real kernel is compared with rejects nothing.
    models.retain(|model| model.kind != Kind::Wrong || !real[model.of].is_empty());
    // A scheduler that is no model is measured and not compared.
    let is_run = |model: &Model| {
        let is_simulated = model.kind != Kind::Right || model.scheduler.is_simulated();
        model.scheduler.program().is_none() && is_simulated
    };
    let made = simulated(experiment, &models, &is_run, conduct)?;
    let mut lines: Vec<Line> = Vec::new();
    let mut controls: Vec<ControlLine> = experiment
        .controls
        .iter()
        .map(|control| ControlLine { name: control.name.clone(), rejected: false, measured: false, by: Vec::new() })
        .collect();
    for (model, made) in models.iter().zip(made) {
        let Some(made) = made else { continue };
        let (label, real) = (&labels[model.of], &real[model.of]);
        let flaw = flaw(real);
        let first = lines.iter().position(|line| line.scheduler == *label);
        let checks = experiment.checks_of(model.of).map(|check| (check, check.key(&experiment.schedulers)));
        let checks: Vec<(&Check, String)> = checks.collect();
        let wanted = |run: &&StoredRun| {
            model.scheduler.program().is_some()
                && (&run.scheduler, run.wrong.as_deref()) == (label, model.wrong())
                && checks.iter().all(|(_, key)| run.metrics.contains_key(key))
        };
        let runs: Vec<&StoredRun> = made.iter().map(|(_, run)| run).chain(kept.iter().filter(wanted)).collect();
        let drawn = made.iter().filter_map(|(profile, _)| profile.as_ref().filter(|_| model.kind == Kind::Right));
        for (run, profile) in drawn.enumerate() {
            plots.take(RunOf { experiment: &experiment.name, place: "sim", run, scheduler: label }, profile);
        }
        for (position, (check, key)) in checks.iter().enumerate() {
            let of = |runs: &[&StoredRun]| -> Vec<Measured> {
                runs.iter().filter_map(|run| run.metrics.get(key).cloned()).collect()
            };
            let (ours, theirs) = (of(&runs), of(real));
            let judgement = match check.metric {
                Metric::CallSequences | Metric::CallFrequencies => {
                    calls::judge(check.metric, check.bound, &ours, &theirs, flaw.as_deref())
                }
                _ => judge(check.bound, check.expect, &ours, &theirs, flaw.as_deref()),
            };
            if model.kind == Kind::Right {
                let (scheduler, metric, bound) = (label.clone(), key.clone(), check.bound.to_string());
                lines.push(Line { scheduler, metric, bound, judgement, rejects: Vec::new() });
                continue;
            }
            let rejected = judgement.verdict == Agreement::Outside;
            if let Some(first) = first.filter(|_| rejected) {
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
    let mut models = models(experiment);
    models.retain(|model| experiment.schedulers[model.of].program().is_some() && model.scheduler.program().is_some());
    models.sort_by_key(|model| model.of);
    let made = simulated(experiment, &models, &|_| true, conduct)?;
    result.simulated = made.into_iter().flatten().flatten().map(|(_, run)| run).collect();
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

/// Simulates those models of an experiment that are to be run, and gives the runs of each. Nothing of one that is wrong for every experiment and
/// fails: what deadlocks or cannot be when it is wrong like this says nothing.
fn simulated(
    experiment: &BookExperiment,
    models: &[Model],
    is_run: &dyn Fn(&Model) -> bool,
    conduct: &BatchConduct,
) -> Result<Vec<Option<Vec<DrawnRun>>>, ValidateError> {
    let place: Arc<dyn Place> = Arc::new(Sim);
    let plan = |model: &&Model| {
        let seeds =
            if model.kind != Kind::Right && model.scheduler.program().is_some() { WRONG_SEEDS } else { SIM_SEEDS };
        planned(experiment, model, &experiment.simulated, &place, trial_seeds(FIRST_SEED, seeds))
    };
    let run: Vec<&Model> = models.iter().filter(|model| is_run(model)).collect();
    let planned: Vec<PlannedExperiment> = run.iter().map(plan).collect();
    let make = |at: usize, one: Run<'_>| seen(experiment, &planned[at].experiment, run[at].kind == Kind::Right, one);
    let failed = |scheduler: String, source: PlaceError| match source.is_interruption() {
        true => ValidateError::Interrupted,
        false => ValidateError::Sim { experiment: experiment.name.clone(), scheduler, source: Box::new(source) },
    };
    let made = together(&planned, conduct, &make);
    let mut made = made.map_err(|source| failed("its schedulers".to_owned(), source))?.into_iter();
    let of_model = |model: &Model| match is_run(model).then(|| made.next()).flatten() {
        None => Ok(Some(Vec::new())),
        Some(Ok(runs)) => Ok(Some(runs.into_iter().map(|seen| of_model(experiment, model, seen)).collect())),
        Some(Err(_)) if model.kind == Kind::Wrong => Ok(None),
        Some(Err(source)) => Err(failed(model.scheduler.to_string(), source)),
    };
    models.iter().map(of_model).collect()
}
