//! Runs the trials of an experiment: each once, skipping those that a run directory already holds.
//!
//! All that are missing go to the experiment's place as one batch. Results are put in order of scheduler and trial, so the number of
//! workers and the order in which they finish cannot show in any result.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use warmcore_places::place::{BatchConduct, PlaceError, Request, Run};

use crate::checksums::Sums;
use crate::directory::{DirectoryError, RunDirectory};
use crate::experiment::{Experiment, ExperimentRecord};
use crate::files::FileError;
use crate::making::{self, TrialError};
use crate::trial::Trial;

/// Why not all trials were finished.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum RunError {
    /// A trial failed.
    #[error("trial {trial} of {scheduler} failed: {source}")]
    Trial { scheduler: String, trial: usize, source: TrialError },
    #[error("interrupted; {finished} of {total} trials had finished")]
    Interrupted { finished: usize, total: usize },
    /// The place could not begin.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A trial in the run directory is not the one that was written there.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A file of the run could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl RunError {
    /// Whether it says something of one scheduler only: trials of others can still be had.
    fn is_of_one_scheduler(&self) -> bool {
        matches!(self, Self::Trial { source, .. } if source.is_of_one_scheduler())
    }
}

/// How to run, which changes no result.
pub struct Conduct<'a> {
    /// Number of trials at the same time.
    pub jobs: usize,
    /// Set by the caller, from a signal handler for instance, to stop soon.
    pub stop: Arc<AtomicBool>,
    /// Called after each trial, from any worker.
    pub progress: &'a (dyn Fn(&Trial) + Sync),
}

/// All trials of an experiment.
pub struct Finished {
    /// By scheduler, then by trial.
    pub trials: Vec<Vec<Trial>>,
    /// How many of them were run now.
    pub run_now: usize,
    /// Wall-clock seconds of those, summed.
    pub seconds: f64,
}

/// Runs every trial that `directory` does not hold yet.
///
/// # Errors
/// The first failure in order of scheduler and trial. Trials that finished are in the directory even then; where a scheduler of the user's own
/// failed, those are all trials of others.
pub fn run(
    experiment: &Experiment,
    directory: Option<&RunDirectory>,
    conduct: &Conduct<'_>,
) -> Result<Finished, RunError> {
    run_as(experiment, &experiment.record(), directory, conduct)
}

/// [`run`] of an experiment whose record is known.
///
/// # Errors
/// As there.
pub fn run_as(
    experiment: &Experiment,
    record: &ExperimentRecord,
    directory: Option<&RunDirectory>,
    conduct: &Conduct<'_>,
) -> Result<Finished, RunError> {
    let mut results: BTreeMap<usize, Result<Trial, RunError>> = BTreeMap::new();
    let mut keep = None;
    if let Some(directory) = directory {
        results.extend(taken_over(directory, record)?.into_iter().map(|(position, trial)| (position, Ok(trial))));
        keep = Some((directory, directory.sums_of_beginning()?));
    }
    let missing = missing(experiment, &|position| results.contains_key(&position));
    let ran = run_trials(experiment, record, &missing, keep.as_ref(), conduct)?;
    let run_now = ran.iter().filter(|(_, result, _)| result.is_ok()).count();
    let seconds = ran.iter().map(|(_, _, seconds)| seconds).sum();
    results.extend(ran.into_iter().map(|((_, position), result, _)| (position, result)));
    Ok(Finished { trials: in_order(results, experiment)?, run_now, seconds })
}

/// Runs the trials at some positions of an experiment and keeps no file. A position is that of the scheduler times the number of seeds, and
/// the trial's number.
///
/// # Errors
/// The first failure in order of position.
pub fn run_some(
    experiment: &Experiment,
    positions: &[usize],
    conduct: &Conduct<'_>,
) -> Result<BTreeMap<usize, Trial>, RunError> {
    let ran = run_trials(experiment, &experiment.record(), positions, None, conduct)?;
    let trials = ran.into_iter().map(|((_, position), result, _)| Ok((position, result?)));
    let trials = trials.collect::<Result<BTreeMap<usize, Trial>, RunError>>()?;
    if trials.len() < positions.len() {
        return Err(RunError::Interrupted { finished: trials.len(), total: positions.len() });
    }
    Ok(trials)
}

/// The trials of an experiment that a directory holds already.
pub(crate) fn taken_over(
    directory: &RunDirectory,
    record: &ExperimentRecord,
) -> Result<BTreeMap<usize, Trial>, RunError> {
    let mut known = BTreeMap::new();
    let run = directory.run_list()?;
    for (position, found) in trials_in(directory, record, run.as_ref()) {
        // One that was made for something else is run again and replaced.
        if let Found::Finished(trial) = found? {
            known.insert(position, *trial);
        }
    }
    Ok(known)
}

/// Positions that are not known: trial by trial rather than scheduler by scheduler, so that what an interruption leaves can be compared.
pub(crate) fn missing(experiment: &Experiment, is_known: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let mut missing: Vec<usize> = (0..experiment.trial_count()).filter(|position| !is_known(*position)).collect();
    missing.sort_by_key(|position| (position % experiment.seeds.len(), position / experiment.seeds.len()));
    missing
}

/// Runs the trials at these positions of an experiment.
fn run_trials(
    experiment: &Experiment,
    record: &ExperimentRecord,
    missing: &[usize],
    keep: Option<&(&RunDirectory, Sums)>,
    conduct: &Conduct<'_>,
) -> Result<Ran<Trial, RunError>, RunError> {
    let means = BatchConduct { jobs: conduct.jobs, stop: Arc::clone(&conduct.stop) };
    let make = |(_, position): BatchPosition, run: Result<Run<'_>, PlaceError>| {
        make_and_keep(experiment, record, position, run, keep, conduct)
    };
    Ok(run_these(&[(experiment, missing)], false, &means, &make, |error| !error.is_of_one_scheduler())?)
}

/// Runs experiments of one place as one batch and makes something else of their runs than trials, which no file keeps. Runs of one number share
/// what is set up for them (a boot) where machine and kernel are the same. `make` is given the index of the experiment.
///
/// What was made comes by experiment and, in there, by position as in [`run_some`]; or the first failure of that experiment, which leaves the
/// others alone.
///
/// # Errors
/// When the place cannot begin, or the caller asked to stop.
pub fn run_together<T: Send>(
    experiments: &[&Experiment],
    conduct: &BatchConduct,
    make: &(dyn Fn(usize, Run<'_>) -> Result<T, PlaceError> + Sync),
) -> Result<Vec<Result<Vec<T>, PlaceError>>, PlaceError> {
    let all: Vec<Vec<usize>> = experiments.iter().map(|experiment| missing(experiment, &|_| false)).collect();
    let batch: Vec<_> = experiments.iter().copied().zip(all.iter().map(Vec::as_slice)).collect();
    let make = |(index, _): BatchPosition, run: Result<Run<'_>, PlaceError>| run.and_then(|run| make(index, run));
    let ran = run_these(&batch, true, conduct, &make, PlaceError::is_interruption)?;
    let interrupted = ran.iter().any(|(_, one, _)| one.as_ref().is_err_and(PlaceError::is_interruption));
    if interrupted || ran.len() < all.iter().map(Vec::len).sum() {
        return Err(PlaceError::interrupted());
    }
    let mut ran = ran.into_iter().map(|(_, one, _)| one);
    let of = all.iter().map(|positions| ran.by_ref().take(positions.len()).collect::<Vec<_>>());
    Ok(of.map(|of| of.into_iter().collect()).collect())
}

/// A run of a batch: index of the experiment, and position there.
type BatchPosition = (usize, usize);
/// Makes something of a run of a batch, or of the reason why there is none.
type MakeOf<'a, T, E> = dyn Fn(BatchPosition, Result<Run<'_>, PlaceError>) -> Result<T, E> + Sync + 'a;
/// What came of the runs of a batch, in the order of their positions, with wall-clock seconds.
type Ran<T, E> = Vec<(BatchPosition, Result<T, E>, f64)>;

/// Runs what is at these positions of experiments of one place as one batch, until an error that `stops` it. With `shared`, runs of one number
/// may share a boot.
fn run_these<T: Send, E: Send>(
    batch: &[(&Experiment, &[usize])],
    shared: bool,
    conduct: &BatchConduct,
    make: &MakeOf<'_, T, E>,
    stops: fn(&E) -> bool,
) -> Result<Ran<T, E>, PlaceError> {
    let (mut asked, mut requests) = (Vec::new(), Vec::new());
    for (index, (experiment, positions)) in batch.iter().enumerate() {
        for &position in *positions {
            let (scheduler, number) = (position / experiment.seeds.len(), position % experiment.seeds.len());
            asked.push((index, position));
            let request = making::request(experiment, scheduler, number);
            requests.push(Request { shared: shared.then_some(number as u32), ..request });
        }
    }
    let ran = Mutex::new(Vec::with_capacity(asked.len()));
    let take = |index: usize, run: Result<Run<'_>, PlaceError>| {
        let start = Instant::now();
        let before = run.as_ref().map_or(0.0, |run| run.seconds);
        let result = make(asked[index], run);
        let flow = if result.as_ref().is_err_and(stops) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let seconds = before + start.elapsed().as_secs_f64();
        ran.lock().unwrap_or_else(PoisonError::into_inner).push((asked[index], result, seconds));
        flow
    };
    if let (Some((first, _)), false) = (batch.first(), requests.is_empty()) {
        first.place.run(&requests, conduct, &take)?;
    }
    let mut ran = ran.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Nothing may depend on who finished first.
    ran.sort_by_key(|(at, ..)| *at);
    Ok(ran)
}

/// Makes the trial at `position` of its run and keeps its files, with what it rests on in its list of checksums.
fn make_and_keep(
    experiment: &Experiment,
    record: &ExperimentRecord,
    position: usize,
    run: Result<Run<'_>, PlaceError>,
    keep: Option<&(&RunDirectory, Sums)>,
    conduct: &Conduct<'_>,
) -> Result<Trial, RunError> {
    let (scheduler, number) = (position / experiment.seeds.len(), position % experiment.seeds.len());
    let made = run.map_err(TrialError::from);
    let directory = keep.map(|(directory, _)| *directory);
    let made = made.and_then(|run| making::make(experiment, record, (scheduler, number), run, directory));
    if let Err(TrialError::Place(PlaceError { output: Some(output), .. })) = &made {
        making::keep_output(directory, &trial_name(scheduler, number), output)?;
    }
    let trial = made.map_err(|source| RunError::Trial {
        scheduler: record.schedulers[scheduler].label.clone(),
        trial: number,
        source,
    })?;
    if let Some((directory, beginning)) = keep {
        directory.keep_trial(&trial_name(scheduler, number), &trial.to_json(), beginning)?;
    }
    (conduct.progress)(&trial);
    Ok(trial)
}

/// Name of a trial in file names. Schedulers are numbered because their labels need not be file names.
pub fn trial_name(scheduler: usize, number: usize) -> String {
    format!("s{scheduler}-t{number:04}")
}

/// What a run directory has in the place of a trial.
pub(crate) enum Found {
    /// The trial that the experiment asks for.
    Finished(Box<Trial>),
    /// One of another schema version, or of another experiment.
    Other,
}

/// The trials that a directory holds, by position; of those that are not what their lists of checksums say, what is wrong.
pub(crate) fn trials_in(
    directory: &RunDirectory,
    record: &ExperimentRecord,
    run: Option<&Sums>,
) -> BTreeMap<usize, Result<Found, DirectoryError>> {
    let mut found = BTreeMap::new();
    for scheduler in 0..record.schedulers.len() {
        for (number, &seed) in record.seeds.iter().enumerate() {
            let Some(text) = directory.trial_text(&trial_name(scheduler, number), run).transpose() else { continue };
            let is_asked_for =
                |trial: &Trial| trial.trial == number && trial.hash == record.trial_hash(scheduler, seed);
            let trial = text.map(|text| match Trial::from_json(&text).filter(is_asked_for) {
                Some(trial) => Found::Finished(Box::new(trial)),
                None => Found::Other,
            });
            found.insert(scheduler * record.seeds.len() + number, trial);
        }
    }
    found
}

/// All trials by scheduler and number; or the first failure, and only if there is none the interruption.
fn in_order(
    results: BTreeMap<usize, Result<Trial, RunError>>,
    experiment: &Experiment,
) -> Result<Vec<Vec<Trial>>, RunError> {
    let total = experiment.trial_count();
    let mut trials = Vec::with_capacity(total);
    for result in results.into_values() {
        match result {
            Ok(trial) => trials.push(trial),
            Err(RunError::Trial { source, .. }) if source.is_interruption() => {}
            Err(error) => return Err(error),
        }
    }
    if trials.len() < total {
        return Err(RunError::Interrupted { finished: trials.len(), total });
    }
    Ok(trials.chunks(experiment.seeds.len()).map(<[Trial]>::to_vec).collect())
}
