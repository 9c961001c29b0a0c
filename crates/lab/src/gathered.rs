//! Trials of an experiment that are run elsewhere and come back as texts: the files that a run directory has.
//!
//! What comes back is checked against the experiment, so that trials of another version or of another experiment are refused. Order cannot
//! show in any result.

use std::collections::BTreeMap;

use crate::checksums::Sums;
use crate::directory::RunDirectory;
use crate::experiment::{Experiment, ExperimentRecord};
use crate::files::FileError;
use crate::runner::{self, Finished, RunError, trial_name};
use crate::trial::Trial;

/// The trials of an experiment as far as they are there.
pub struct Gathered {
    record: ExperimentRecord,
    trials: BTreeMap<usize, Trial>,
    taken_over: usize,
    keep: Option<(RunDirectory, Sums)>,
}

/// Why a text is not the trial that was asked for.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum TakeError {
    #[error("what came back for trial {number} of {scheduler} is not that trial")]
    Other { scheduler: String, number: usize },
    /// It cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Gathered {
    /// Begins with the trials that the experiment's run directory holds, if it has one.
    ///
    /// # Errors
    /// When a file in there is not what was written.
    pub fn begin(experiment: &Experiment, directory: Option<RunDirectory>) -> Result<Self, RunError> {
        let record = experiment.record();
        let trials = directory.as_ref().map(|directory| runner::taken_over(directory, &record)).transpose()?;
        let trials = trials.unwrap_or_default();
        let keep = match directory {
            Some(directory) => {
                let sums = directory.sums_of_beginning()?;
                Some((directory, sums))
            }
            None => None,
        };
        Ok(Self { record, taken_over: trials.len(), trials, keep })
    }

    /// Positions of the trials that are not there, as [`runner::run_some`] takes them.
    pub fn missing(&self, experiment: &Experiment) -> Vec<usize> {
        runner::missing(experiment, &|position| self.trials.contains_key(&position))
    }

    /// Takes the trial at a position, and keeps it in the directory.
    ///
    /// # Errors
    /// When it is another one, or cannot be kept.
    pub fn take(&mut self, position: usize, text: &str) -> Result<(), TakeError> {
        let (scheduler, number) = (position / self.record.seeds.len(), position % self.record.seeds.len());
        let is_asked_for = |trial: &Trial| {
            trial.trial == number && trial.hash == self.record.trial_hash(scheduler, self.record.seeds[number])
        };
        let trial = Trial::from_json(text)
            .filter(is_asked_for)
            .ok_or_else(|| TakeError::Other { scheduler: self.record.schedulers[scheduler].label.clone(), number })?;
        if let Some((directory, beginning)) = &self.keep {
            directory.keep_trial(&trial_name(scheduler, number), text, beginning)?;
        }
        self.trials.insert(position, trial);
        Ok(())
    }

    /// All trials by scheduler and number, and the run directory.
    ///
    /// # Errors
    /// [`RunError::Interrupted`] if some are missing.
    pub fn finish(self) -> Result<(Finished, Option<RunDirectory>), RunError> {
        let total = self.record.schedulers.len() * self.record.seeds.len();
        if self.trials.len() < total {
            return Err(RunError::Interrupted { finished: self.trials.len(), total });
        }
        let run_now = total - self.taken_over;
        let trials: Vec<Trial> = self.trials.into_values().collect();
        let trials = trials.chunks(self.record.seeds.len()).map(<[Trial]>::to_vec).collect();
        Ok((Finished { trials, run_now, seconds: 0.0 }, self.keep.map(|(directory, _)| directory)))
    }
}
