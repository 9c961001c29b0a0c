//! Both places: simulations now; boots now, or their stored results.
//!
//! Experiments of one machine share boots: in each boot every experiment runs once under each of its schedulers. What is
//! stored of a boot are the metrics' values alone, in one small file for each experiment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use warmcore_kernel::Setup;
use warmcore_schedulers::{SchedulerSpec, simulate};
use warmcore_workload::Workload;

use super::book::{BookExperiment, Cause, Check};
use super::judge::{Judgement, Verdict, judge};
use super::metric::Measured;
use super::plots::{Plots, RunOf};
use super::profile::{Profile, Profiler};
use warmcore_lab::experiment::trial_seeds;
use warmcore_lab::files::{FileError, read_text, write_atomically};
use warmcore_lab::session::pretty;
use warmcore_lab::sim::SimError;
use warmcore_places::vm::boot::Lab;
use warmcore_places::vm::trial::{Request, run_all};

/// Version of stored results.
pub const RESULT_SCHEMA: &str = "warmcore-book-result-1";
/// Simulated runs of each experiment.
pub const SIM_SEEDS: u32 = 5;

/// Why the book cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// A simulation failed.
    #[error("{experiment} under {scheduler}, simulated: {source}")]
    Sim {
        /// The experiment.
        experiment: String,
        /// The scheduler.
        scheduler: String,
        /// Why.
        source: Box<SimError>,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A stored result is not what it should be.
    #[error("{path}: {reason}")]
    Stored {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// One run of an experiment in one boot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredRun {
    /// Scheduler.
    pub scheduler: String,
    /// Events that were not recorded.
    pub events_lost: u64,
    /// Metrics by the check's key.
    pub metrics: BTreeMap<String, Measured>,
}

/// What a real kernel gave for an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredResult {
    /// [`RESULT_SCHEMA`].
    pub schema: String,
    /// The experiment it is of: [`BookExperiment::identity`].
    pub identity: String,
    /// `uname -r`.
    pub kernel: String,
    /// Identifies the image.
    pub kernel_sha256: String,
    /// QEMU's version.
    pub qemu: String,
    /// How guests were executed.
    pub execution: String,
    /// By boot, then by run.
    pub boots: Vec<Vec<StoredRun>>,
    /// Boots that failed, with the reason.
    #[serde(default)]
    pub failed: Vec<String>,
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
    pub judgement: Judgement,
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

/// Boots experiments of one machine, and gives each one's result; `plots` takes each run's series.
///
/// # Errors
/// When the caller asked to stop. A boot that fails is in the results.
pub fn boot_all(
    lab: &Lab,
    experiments: &[&BookExperiment],
    boots: usize,
    plots: &mut Plots,
    stop: &AtomicBool,
    note: &dyn Fn(&str),
) -> Result<Vec<StoredResult>, ValidateError> {
    let mut results: Vec<StoredResult> = experiments
        .iter()
        .map(|experiment| StoredResult {
            schema: RESULT_SCHEMA.into(),
            identity: experiment.identity.clone(),
            kernel: lab.kernel.release.clone(),
            kernel_sha256: lab.kernel.sha256.clone(),
            qemu: lab.qemu.version.clone(),
            execution: lab.execution.to_string(),
            boots: Vec::new(),
            failed: Vec::new(),
        })
        .collect();
    let Some(first) = experiments.first() else { return Ok(results) };
    let runs: Vec<(usize, usize)> = (0..experiments.len())
        .flat_map(|index| (0..experiments[index].schedulers.len()).map(move |s| (index, s)))
        .collect();
    let request = |boot: u64, (index, scheduler): &(usize, usize)| Request {
        workload: &experiments[*index].workload,
        scheduler: &experiments[*index].schedulers[*scheduler],
        max_time_ns: None,
        buffer_kib: experiments[*index].buffer_kib,
        sample_ns: None,
        seed: trial_seeds(boot, 1)[0],
    };
    for boot in 0..boots {
        let requests: Vec<Request<'_>> = runs.iter().map(|run| request(boot as u64, run)).collect();
        if stop.load(Ordering::Relaxed) {
            return Err(ValidateError::Interrupted);
        }
        note(&format!("{}: boot {} of {boots}, {} runs", first.machine_text, boot + 1, requests.len()));
        let recorded = match run_all(lab, &first.machine, &requests, stop) {
            Ok((_, recorded)) => recorded,
            Err(warmcore_places::vm::VmError::Interrupted) => return Err(ValidateError::Interrupted),
            Err(error) => {
                note(&format!("{}: boot {} failed: {error}", first.machine_text, boot + 1));
                results.iter_mut().for_each(|result| result.failed.push(error.to_string()));
                continue;
            }
        };
        results.iter_mut().for_each(|result| result.boots.push(Vec::new()));
        for ((index, scheduler), recorded) in runs.iter().zip(recorded) {
            let experiment = experiments[*index];
            let mut profiler = Profiler::new(&experiment.machine, window(experiment));
            // A profiler takes every event.
            let _ = recorded.replay(&mut profiler);
            let profile = profiler.finish(&recorded.outcome, &experiment.workload);
            let label = experiment.schedulers[*scheduler].to_string();
            plots.take(RunOf { experiment: &experiment.name, place: "vm", run: boot, scheduler: &label }, &profile);
            let metrics = experiment
                .checks_of(*scheduler)
                .map(|check| (check.key(&experiment.schedulers), check.metric.of(&profile, &check.detail)));
            let run = StoredRun { scheduler: label, events_lost: recorded.events_lost, metrics: metrics.collect() };
            if let Some(last) = results[*index].boots.last_mut() {
                last.push(run);
            }
        }
    }
    Ok(results)
}

fn window(experiment: &BookExperiment) -> u64 {
    experiment.checks.first().map_or(0, |check| check.detail.from_ns)
}

/// Where an experiment's result is stored.
fn stored_path(directory: &Path, name: &str) -> std::path::PathBuf {
    directory.join(format!("{name}.json"))
}

/// Stores a result.
///
/// # Errors
/// When the file cannot be written.
pub fn store(directory: &Path, name: &str, result: &StoredResult) -> Result<(), FileError> {
    write_atomically(&stored_path(directory, name), pretty(result).as_bytes())
}

/// The stored result of an experiment, if there is one of this very experiment.
///
/// # Errors
/// When there is one that cannot be read.
pub fn stored(directory: &Path, experiment: &BookExperiment) -> Result<Option<StoredResult>, ValidateError> {
    let path = stored_path(directory, &experiment.name);
    if !path.is_file() {
        return Ok(None);
    }
    let invalid = |reason: String| ValidateError::Stored { path: path.display().to_string(), reason };
    let result: StoredResult = serde_json::from_str(&read_text(&path)?).map_err(|error| invalid(error.to_string()))?;
    if result.schema != RESULT_SCHEMA {
        return Err(invalid(format!("its schema is `{}`, not {RESULT_SCHEMA}", result.schema)));
    }
    // An experiment that was changed has no result yet.
    Ok(Some(result).filter(|result| result.identity == experiment.identity))
}

/// Simulates an experiment and compares it with a result; `plots` takes each simulated run's series.
///
/// # Errors
/// When a simulation fails.
pub fn compare(
    experiment: &BookExperiment,
    result: Option<&StoredResult>,
    plots: &mut Plots,
    stop: &Arc<AtomicBool>,
) -> Result<Chapter, ValidateError> {
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
        let lost: u64 = real.iter().map(|run| run.events_lost).sum();
        let theirs = |check: &Check| -> Vec<Measured> {
            let key = check.key(&experiment.schedulers);
            real.iter().filter_map(|run| run.metrics.get(&key).cloned()).collect()
        };
        let judged = |profiles: &[Profile], check: &Check| {
            let ours: Vec<Measured> = profiles.iter().map(|profile| check.metric.of(profile, &check.detail)).collect();
            judge(check.bound, &ours, &theirs(check), lost)
        };
        // A scheduler that is no model is measured and not compared.
        let profiles = if scheduler.is_simulated() {
            simulated(experiment, scheduler, &experiment.workload, stop)?
        } else {
            Vec::new()
        };
        for (run, profile) in profiles.iter().enumerate() {
            plots.take(RunOf { experiment: &experiment.name, place: "sim", run, scheduler: &label }, profile);
        }
        for check in experiment.checks_of(index) {
            lines.push(Line {
                scheduler: label.clone(),
                metric: check.key(&experiment.schedulers),
                bound: match check.bound {
                    super::book::Bound::Relative(limit) => format!("{} %", limit * 100.0),
                    super::book::Bound::Absolute(limit) => format!("{limit}"),
                },
                judgement: judged(&profiles, check),
            });
        }
        for (control, line) in experiment.controls.iter().zip(&mut controls) {
            let spec = control.scheduler.as_ref().unwrap_or(scheduler);
            let workload = control.workload.as_ref().unwrap_or(&experiment.workload);
            let profiles = simulated(experiment, spec, workload, stop)?;
            for check in experiment.checks_of(index).filter(|check| control.metrics.contains(&check.metric)) {
                let verdict = judged(&profiles, check).verdict;
                line.measured |= verdict != Verdict::NotMeasured;
                if verdict == Verdict::Outside {
                    line.rejected = true;
                    line.by.push(format!("{} under {label}", check.metric.name()));
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

fn simulated(
    experiment: &BookExperiment,
    scheduler: &SchedulerSpec,
    workload: &Workload,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Profile>, ValidateError> {
    let run = |seed: u64| -> Result<Profile, SimError> {
        let mut setup = Setup::new(&experiment.machine, workload, seed)?;
        setup.stop = Some(Arc::clone(stop));
        let mut profiler = Profiler::new(&experiment.machine, window(experiment));
        let outcome = simulate(scheduler, &setup, Some(&mut profiler))?;
        Ok(profiler.finish(&outcome, workload))
    };
    let failed = |source| match source {
        SimError::Interrupted => ValidateError::Interrupted,
        source => ValidateError::Sim {
            experiment: experiment.name.clone(),
            scheduler: scheduler.to_string(),
            source: Box::new(source),
        },
    };
    trial_seeds(1, SIM_SEEDS).into_iter().map(|seed| run(seed).map_err(failed)).collect()
}
