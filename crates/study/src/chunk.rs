//! Trials of a study that run elsewhere: chunks of them as texts, and what comes back put together.
//!
//! A [`Chunk`] has everything that its trials depend on: the files of its experiment, as a run directory has them. Whoever has the same
//! version of this library can [`carry_out`] one anywhere. A [`ChunkedRun`] hands out chunks, takes what comes back in any order, and gives
//! what [`run::each`](crate::run::each) gives. It transports nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use warmcore_lab::experiment::{Experiment, TOOL_VERSION};
use warmcore_lab::gathered::{Gathered, TakeError};
use warmcore_lab::runner::{self, Conduct, RunError};
use warmcore_lab::session::{self, ResumeError, SessionError};
use warmcore_lab::trial::Trial;

use crate::file::Study;
use crate::plan::{Plan, PlannedCell, PlannedExperiment};
use crate::run::{Done, Means, StudyError, directory, firsts};

/// Trials of one experiment, with all that they depend on.
#[derive(Clone, PartialEq, Debug)]
pub struct Chunk {
    /// The experiment's files by name.
    pub files: Arc<BTreeMap<String, String>>,
    /// Positions of the trials: that of the scheduler times the number of seeds, and the trial's number.
    pub positions: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunkText<Files, Positions> {
    tool_version: String,
    files: Files,
    positions: Positions,
}

/// A chunk on its way.
#[derive(Clone, PartialEq, Debug)]
pub struct ChunkTask {
    /// What it is, in words: no other task of the gathering is called so.
    pub name: String,
    /// Index of the experiment.
    pub experiment: usize,
    /// The chunk.
    pub chunk: Chunk,
}

/// Why a chunk does not come to anything.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ChunkError {
    #[error("this is no chunk of a study: {0}")]
    Form(String),
    #[error("version {asks} asks, and this is {TOOL_VERSION}: its results may differ")]
    Version { asks: String },
    /// The experiment cannot be had from its files.
    #[error(transparent)]
    Experiment(#[from] ResumeError),
    /// A trial failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Why a gathering cannot begin, take something, or end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum GatherError {
    /// As in a run on one computer.
    #[error(transparent)]
    Study(#[from] StudyError),
    #[error("{study}: trials in the place `{place}` depend on the computer; only simulated ones can run elsewhere")]
    Place { study: String, place: String },
    /// An experiment that has no files.
    #[error("{study}: {source}")]
    Files { study: String, source: SessionError },
    #[error("{name}: {found} trials came back, not {asked}")]
    Count { name: String, found: usize, asked: usize },
    /// Not what was asked for.
    #[error("{name}: {source}")]
    Take { name: String, source: TakeError },
}

impl GatherError {
    /// What a user can try.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Place { .. } => Some("run it without a cluster"),
            Self::Files { .. } => Some("give its workload as an rt-app file"),
            Self::Count { .. } | Self::Take { .. } => Some("install the same wheel on every worker"),
            Self::Study(_) => None,
        }
    }
}

/// Most experiments that a worker keeps read.
const KEPT: usize = 8;
type Kept = Vec<(Arc<BTreeMap<String, String>>, Arc<Experiment>)>;

/// The experiment of a chunk: read once while chunks of it keep coming.
fn experiment_of(files: &Arc<BTreeMap<String, String>>) -> Result<Arc<Experiment>, ResumeError> {
    static READ: Mutex<Kept> = Mutex::new(Vec::new());
    let known = |all: &Kept| all.iter().find(|(known, _)| known == files).map(|(_, experiment)| Arc::clone(experiment));
    if let Some(experiment) = known(&READ.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(experiment);
    }
    let experiment = Arc::new(session::experiment_of_texts(files)?);
    let mut all = READ.lock().unwrap_or_else(PoisonError::into_inner);
    // A program may change while its experiment is kept.
    if experiment.kept_programs.as_ref().is_none_or(BTreeMap::is_empty) {
        all.insert(0, (Arc::clone(files), Arc::clone(&experiment)));
        all.truncate(KEPT);
    }
    Ok(experiment)
}

/// Stands between the documents of trials, where JSON has no such character.
const BETWEEN: char = '\0';

/// Runs the trials of a chunk's text; what it gives [`ChunkedRun::take`] takes.
///
/// # Errors
/// When the chunk was made by another version, or a trial fails.
pub fn carry_out(text: &str, jobs: usize, stop: &Arc<AtomicBool>) -> Result<String, ChunkError> {
    // What is looked at first: another version may have another form.
    let of =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).ok()?["tool_version"].as_str().map(str::to_owned);
    if let Some(asks) = of(text).filter(|version| version != TOOL_VERSION) {
        return Err(ChunkError::Version { asks });
    }
    let form: Result<ChunkText<BTreeMap<String, String>, Vec<usize>>, _> = serde_json::from_str(text);
    let form = form.map_err(|error| ChunkError::Form(error.to_string()))?;
    let chunk = Chunk { files: Arc::new(form.files), positions: form.positions };
    let experiment = experiment_of(&chunk.files)?;
    if let Some(position) = chunk.positions.iter().find(|position| **position >= experiment.trial_count()) {
        return Err(ChunkError::Form(format!("it asks for trial {position} of {}", experiment.trial_count())));
    }
    let conduct = Conduct { jobs, stop: Arc::clone(stop), progress: &|_| {} };
    let mut trials = runner::run_some(&experiment, &chunk.positions, &conduct)?;
    let trials = chunk.positions.iter().filter_map(|position| trials.remove(position));
    Ok(trials.map(|trial| trial.to_json()).collect::<Vec<_>>().join(&BETWEEN.to_string()))
}

impl Chunk {
    /// Its text.
    pub fn to_json(&self) -> String {
        let form = ChunkText { tool_version: TOOL_VERSION.to_owned(), files: &*self.files, positions: &self.positions };
        // Texts and numbers can always be written.
        serde_json::to_string(&form).unwrap_or_default()
    }
}

/// Most trials of a chunk: as much as is lost with a worker.
const MOST: usize = 32;
/// So many chunks a worker at least, if there are as many trials: the last ones end at about the same time.
const A_WORKER: usize = 8;

/// How many trials a chunk has if so many are missing.
pub fn size(missing: usize, workers: usize) -> usize {
    (missing / (workers.max(1) * A_WORKER)).clamp(1, MOST)
}

/// What is known of an experiment.
enum Part {
    /// It is equal to an earlier one.
    Same(usize),
    /// Its trials.
    Own { hash: String, files: Arc<BTreeMap<String, String>>, gathered: Box<Gathered> },
}

/// Trials of experiments as they come back.
pub struct ChunkedRun {
    parts: Vec<Part>,
}

impl ChunkedRun {
    /// Begins with the trials that are in run directories in `out` already.
    ///
    /// # Errors
    /// When an experiment is not simulated or has no files, or a directory cannot be used.
    pub fn begin(
        experiments: &[PlannedExperiment],
        out: Option<&Path>,
        note: &dyn Fn(&str),
    ) -> Result<Self, GatherError> {
        let mut parts = Vec::with_capacity(experiments.len());
        for (index, (planned, first)) in experiments.iter().zip(firsts(experiments)).enumerate() {
            let PlannedExperiment { experiment, study, .. } = planned;
            let kind = experiment.place.kind();
            if !kind.simulated {
                return Err(GatherError::Place { study: study.clone(), place: kind.name.to_owned() });
            }
            parts.push(match first {
                same if same < index => Part::Same(same),
                _ => {
                    let files = session::texts(experiment)
                        .map_err(|source| GatherError::Files { study: study.clone(), source })?;
                    // Unlocked: all are begun at once, and they may be more than a process can have open.
                    let begun = out.map(|out| directory(out, planned, note)).transpose()?;
                    let directory = begun.map(|(directory, _)| directory);
                    let gathered = Gathered::begin(experiment, directory)
                        .map_err(|source| StudyError::Run { study: study.clone(), source: Box::new(source) })?;
                    let hash = experiment.record().short_hash();
                    Part::Own { hash, files: Arc::new(files), gathered: Box::new(gathered) }
                }
            });
        }
        Ok(Self { parts })
    }

    /// How many trials are not there.
    pub fn missing(&self, experiments: &[PlannedExperiment]) -> usize {
        let of = |(part, planned): (&Part, &PlannedExperiment)| match part {
            Part::Same(_) => 0,
            Part::Own { gathered, .. } => gathered.missing(&planned.experiment).len(),
        };
        self.parts.iter().zip(experiments).map(of).sum()
    }

    /// What is missing, at most `size` trials of one scheduler a task. `name` says what the trials of a scheduler of an experiment are for.
    pub fn tasks(
        &self,
        experiments: &[PlannedExperiment],
        size: usize,
        name: &dyn Fn(usize, usize) -> String,
    ) -> Vec<ChunkTask> {
        let mut tasks = Vec::new();
        for (index, (part, planned)) in self.parts.iter().zip(experiments).enumerate() {
            let Part::Own { hash, files, gathered } = part else { continue };
            let seeds = planned.experiment.seeds.len();
            let mut missing = gathered.missing(&planned.experiment);
            missing.sort_unstable();
            for of_scheduler in missing.chunk_by(|one, next| one / seeds == next / seeds) {
                for positions in of_scheduler.chunks(size.max(1)) {
                    let called = name(index, positions[0] / seeds);
                    let (first, last) = (positions[0] % seeds, positions[positions.len() - 1] % seeds);
                    tasks.push(ChunkTask {
                        name: format!("{called}/trials-{first}-{last}-{hash}"),
                        experiment: index,
                        chunk: Chunk { files: Arc::clone(files), positions: positions.to_vec() },
                    });
                }
            }
        }
        tasks
    }

    /// Takes what came of a task, and keeps it.
    ///
    /// # Errors
    /// When it is not what was asked for, or cannot be kept.
    pub fn take(&mut self, task: &ChunkTask, answer: &str) -> Result<(), GatherError> {
        let texts: Vec<&str> = answer.split(BETWEEN).collect();
        let (found, asked) = (texts.len(), task.chunk.positions.len());
        if found != asked {
            return Err(GatherError::Count { name: task.name.clone(), found, asked });
        }
        if let Some(Part::Own { gathered, .. }) = self.parts.get_mut(task.experiment) {
            for (position, text) in task.chunk.positions.iter().zip(texts) {
                gathered
                    .take(*position, text)
                    .map_err(|source| GatherError::Take { name: task.name.clone(), source })?;
            }
        }
        Ok(())
    }

    /// Trials of every experiment, by scheduler, as [`run::run`](crate::run::run) gives them. Run directories have all their files then.
    ///
    /// # Errors
    /// When trials are missing, or files cannot be written.
    pub fn finish(
        self,
        experiments: &[PlannedExperiment],
        means: &Means<'_>,
    ) -> Result<Vec<Vec<Vec<Trial>>>, StudyError> {
        let mut all: Vec<Vec<Vec<Trial>>> = Vec::with_capacity(experiments.len());
        for (part, planned) in self.parts.into_iter().zip(experiments) {
            let trials = match part {
                Part::Same(same) => all[same].clone(),
                Part::Own { gathered, .. } => {
                    let (finished, directory) = gathered
                        .finish()
                        .map_err(|source| StudyError::Run { study: planned.study.clone(), source: Box::new(source) })?;
                    let done = Done::new(&planned.experiment, directory, finished, means);
                    done.keep(None)?;
                    done.finished.trials
                }
            };
            all.push(trials);
        }
        Ok(all)
    }
}

impl Plan {
    /// What a scheduler's trials of an experiment are for, by index of the experiment and of the scheduler there: the study and its first cell
    /// that they belong to.
    pub fn names(&self) -> impl Fn(usize, usize) -> String {
        let mut cells: BTreeMap<(usize, usize), (&Study, &PlannedCell)> = BTreeMap::new();
        for (study, of_study) in self.studies.iter().zip(&self.cells) {
            for cell in of_study {
                if let Ok(runs) = cell.runs {
                    cells.entry(runs).or_insert((study, cell));
                }
            }
        }
        move |experiment, scheduler| match cells.get(&(experiment, scheduler)) {
            Some((study, cell)) => format!("{}/{}/{}", study.name, cell.name(study), cell.scheduler),
            None => self.experiments[experiment].study.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
