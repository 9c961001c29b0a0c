//! One loop over all experiments of a plan, each through `lab`'s runner and so through its place; or all of them as one batch, in which they
//! share boots.
//!
//! With a directory every experiment has a run directory in it, `experiments/STUDY-HASH` if it names none, which other commands read like
//! any other. A second start in the same directory goes on: what is finished there is not run again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::directory::{DirectoryError, EXPERIMENT, Existing, RunDirectory};
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::{Experiment, ExperimentRecord};
use warmcore_lab::files::{self, Lock};
use warmcore_lab::runner::{self, Conduct, Finished, RunError};
use warmcore_lab::session::{self, ResumeError, SessionError};
use warmcore_lab::trial::Trial;
use warmcore_lab::verdict::ComparisonDocument;
use warmcore_places::place::{BatchConduct, PlaceError, Run};

use crate::document::StudyDocument;
use crate::plan::{Plan, PlannedExperiment};

/// How to run, which changes no result.
pub struct Means<'a> {
    /// Number of trials at the same time.
    pub jobs: usize,
    /// Set by the caller to stop soon.
    pub stop: Arc<AtomicBool>,
    /// Called after each trial, from any worker.
    pub progress: &'a (dyn Fn(&Trial) + Sync),
    /// Directory for the run directories.
    pub out: Option<&'a Path>,
    /// The inventory of this computer, which goes to every run directory.
    pub environment: &'a Environment,
    /// Reads the clock.
    pub unix_seconds: fn() -> u64,
    /// Told what a reader should know of a run that goes on.
    pub note: &'a dyn Fn(&str),
}

/// Why a study was not finished.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum StudyError {
    /// A trial failed, or the caller asked to stop.
    #[error("{study}: {source}")]
    Run { study: String, source: Box<RunError> },
    /// A directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A run in the directory is not the one that is planned.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// Files of a run cannot be written.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Studies of an earlier result that are none of the plan's. What cannot be read as a result has none.
pub fn left_out(result: &Path, plan: &Plan) -> Vec<String> {
    let text = files::text_of_file(result).ok();
    let before = text.and_then(|text| StudyDocument::from_json(&text).ok());
    let names = before.into_iter().flat_map(|before| before.studies).map(|study| study.name);
    names.filter(|name| plan.studies.iter().all(|study| study.name != *name)).collect()
}

/// Trials of every experiment of the plan, by scheduler.
///
/// # Errors
/// The first failure. What finished is in the directory.
pub fn run(plan: &Plan, means: &Means<'_>) -> Result<Vec<Vec<Vec<Trial>>>, StudyError> {
    each(&plan.experiments, means, &mut |done: Done<'_>| {
        done.keep(None)?;
        Ok(done.finished.trials)
    })
}

/// An experiment that was run.
pub struct Done<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Its run directory.
    pub directory: Option<RunDirectory>,
    /// Its trials.
    pub finished: Finished,
    environment: Environment,
}

impl<'a> Done<'a> {
    /// An experiment whose trials are there.
    pub(crate) fn new(
        experiment: &'a Experiment,
        directory: Option<RunDirectory>,
        finished: Finished,
        means: &Means<'_>,
    ) -> Self {
        let mut environment = means.environment.clone();
        environment.at_end((means.unix_seconds)(), finished.run_now, finished.seconds);
        Self { experiment, directory, finished, environment }
    }

    /// Writes what belongs into its directory, if it has one, besides trials.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn keep(&self, verdict: Option<(&ComparisonDocument, &str)>) -> Result<(), SessionError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        session::finish(directory, self.experiment, &self.finished.trials, verdict, &self.environment)
    }
}

/// Runs experiments one after the other, equal ones once, and makes something of each.
///
/// # Errors
/// The first failure of a run, or of `then`. What finished is in the directory.
pub fn each<T: Clone, E: From<StudyError>>(
    experiments: &[PlannedExperiment],
    means: &Means<'_>,
    then: &mut dyn FnMut(Done<'_>) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    once(&firsts(experiments), |index| {
        let (done, _alone) = run_one(&experiments[index], means)?;
        then(done)
    })
}

/// Runs experiments of one place as one batch ([`runner::run_together`]), equal ones once, and makes something else of their runs than trials.
/// `make` is given the index of the experiment, of equal ones that of the first.
///
/// # Errors
/// When the place cannot begin, or the caller asked to stop.
pub fn together<T: Clone + Send>(
    experiments: &[PlannedExperiment],
    conduct: &BatchConduct,
    make: &(dyn Fn(usize, Run<'_>) -> Result<T, PlaceError> + Sync),
) -> Result<Vec<Result<Vec<T>, PlaceError>>, PlaceError> {
    let firsts = firsts(experiments);
    let own: Vec<usize> = (0..experiments.len()).filter(|index| firsts[*index] == *index).collect();
    let batch: Vec<&Experiment> = own.iter().map(|index| &experiments[*index].experiment).collect();
    let mut made = runner::run_together(&batch, conduct, &|index, run| make(own[index], run))?.into_iter();
    once(&firsts, |_| made.next().ok_or_else(PlaceError::interrupted))
}

/// For each experiment the index of the first that is equal to it: its own where there is none before.
pub(crate) fn firsts(experiments: &[PlannedExperiment]) -> Vec<usize> {
    let records: Vec<ExperimentRecord> = experiments.iter().map(|planned| planned.experiment.record()).collect();
    // Not all options of a record are in its text.
    let mut of_text: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let first = |(index, record): (usize, &ExperimentRecord)| {
        let alike = of_text.entry(record.to_toml()).or_default();
        alike.iter().copied().find(|other| records[*other] == *record).unwrap_or_else(|| {
            alike.push(index);
            index
        })
    };
    records.iter().enumerate().map(first).collect()
}

/// Makes something of every experiment that is the first of its equals, and gives it to all of these.
fn once<T: Clone, E>(firsts: &[usize], mut make: impl FnMut(usize) -> Result<T, E>) -> Result<Vec<T>, E> {
    let mut all: Vec<T> = Vec::with_capacity(firsts.len());
    for (index, first) in firsts.iter().enumerate() {
        all.push(if *first == index { make(index)? } else { all[*first].clone() });
    }
    Ok(all)
}

/// What came out, and the lock of its directory.
fn run_one<'a>(planned: &'a PlannedExperiment, means: &Means<'_>) -> Result<(Done<'a>, Option<Lock>), StudyError> {
    let (directory, alone) = means.out.map(|out| directory(out, planned, means.note)).transpose()?.unzip();
    let done = one(&planned.experiment, directory, means)
        .map_err(|source| StudyError::Run { study: planned.study.clone(), source: Box::new(source) })?;
    Ok((done, alone))
}

/// Runs an experiment whose run directory, if it has one, is begun.
///
/// # Errors
/// The first failure. What finished is in the directory.
pub fn one<'a>(
    experiment: &'a Experiment,
    directory: Option<RunDirectory>,
    means: &Means<'_>,
) -> Result<Done<'a>, RunError> {
    let conduct = Conduct { jobs: means.jobs, stop: Arc::clone(&means.stop), progress: means.progress };
    let finished = runner::run(experiment, directory.as_ref(), &conduct)?;
    Ok(Done::new(experiment, directory, finished, means))
}

impl PlannedExperiment {
    /// Its run directory in a directory of many.
    pub fn path(&self, out: &Path) -> PathBuf {
        match &self.directory {
            Some(own) => out.join(own),
            None => out.join("experiments").join(format!("{}-{}", self.study, self.experiment.record().short_hash())),
        }
    }
}

/// The run directory of an experiment: a new one, or the one in which it was begun. No other run has it until the lock is dropped.
pub(crate) fn directory(
    out: &Path,
    planned: &PlannedExperiment,
    note: &dyn Fn(&str),
) -> Result<(RunDirectory, Lock), StudyError> {
    let experiment = &planned.experiment;
    let path = planned.path(out);
    if path.join(EXPERIMENT).is_file() {
        let (directory, alone) = RunDirectory::open_alone(&path)?;
        session::check_same(&directory, experiment)?;
        for missing in session::reopen(&directory, experiment)? {
            note(&format!("{} is missing: its trial is made again", missing.display()));
        }
        return Ok((directory, alone));
    }
    let (directory, alone) = RunDirectory::create_alone(&path, Existing::Refuse)?;
    session::begin(&directory, experiment)?;
    Ok((directory, alone))
}
