//! A run directory read back to be shown: what is there, and what is wrong with it.
//!
//! Reading refuses what it cannot understand (another version, a changed machine or workload) and shows the rest with its
//! faults named: a run that was cut off, files that do not match their checksums. It changes nothing in the directory.

use std::path::{Path, PathBuf};

use crate::directory::{CHECKSUMS, DirectoryError, ENVIRONMENT, ORACLE, RunDirectory, SENSITIVITY, TRACE};
use crate::environment::Environment;
use crate::experiment::{Experiment, ExperimentRecord};
use crate::files::{FileError, sha256_of_file};
use crate::headroom::{self, Headroom};
use crate::observe::Observation;
use crate::runner::{finished_trials, trial_file, trial_name};
use crate::sensitivity;
use crate::session::{ResumeError, experiment_of};
use crate::trial::Trial;
use warmcore_topology::{VirtualLlcSize, VirtualLlcs};

use crate::verdict::{ComparisonDocument, VerdictError, conclude_experiment};

/// Why a run cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is no run directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Its experiment cannot be understood.
    #[error(transparent)]
    Experiment(#[from] ResumeError),
    /// No trial number is finished under every scheduler.
    #[error("{path} holds no finished trial of every scheduler{}", left_out(*.unread), path = .path.display())]
    NoTrials {
        /// The directory.
        path: PathBuf,
        /// Trial files there that were not understood.
        unread: usize,
    },
    /// There is no verdict on it.
    #[error(transparent)]
    Verdict(#[from] VerdictError),
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ReadError {
    /// What a user can try.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Directory(DirectoryError::NotARun(_)) => {
                "name a directory that `warmcore compare` or `sim --out` wrote"
            }
            Self::Directory(error) => error.advice(),
            Self::Experiment(ResumeError::Version { .. } | ResumeError::Schema { .. }) => {
                "show it with the version that wrote it, or run it again"
            }
            Self::Experiment(ResumeError::Changed { .. }) => "the directory was changed after the run; run it again",
            Self::Experiment(_) => "the file was written by another version or changed since; run it again",
            Self::NoTrials { unread: 1.., .. } => "show it with the version that wrote it, or run it again",
            Self::NoTrials { .. } => "finish the run first: warmcore compare --resume DIR",
            Self::Verdict(_) => "run it again with a metric that it has",
            Self::File(error) => error.advice(),
        }
    }
}

/// A run as its directory holds it.
#[derive(Debug)]
pub struct RunOnDisk {
    /// The directory.
    pub path: PathBuf,
    /// The experiment, with the seeds of the trials below only.
    pub experiment: Experiment,
    /// Its record, likewise.
    pub record: ExperimentRecord,
    /// Trials the experiment asks for, of each scheduler.
    pub trials_asked: usize,
    /// By scheduler, then by trial: those that are finished under every scheduler.
    pub trials: Vec<Vec<Trial>>,
    /// The comparison, computed anew from those trials.
    pub comparison: ComparisonDocument,
    /// The host and the command line, if they can be read.
    pub environment: Option<Environment>,
    /// SHA-256 of the list of checksums, which stands for the whole directory.
    pub checksum: Option<String>,
    /// What a reader must know before trusting it.
    pub faults: Vec<String>,
    /// Names of the trials' directories of events, by scheduler and trial.
    names: Vec<Vec<String>>,
}

impl RunOnDisk {
    /// How many cores the virtual LLCs have into which its LLCs are divided, if they are.
    #[must_use]
    pub fn virtual_llc_size(&self) -> Option<VirtualLlcSize> {
        self.record.observations.iter().rev().find_map(|observation| match observation {
            Observation::VirtualLlcs { cores } => Some(*cores),
            _ => None,
        })
    }

    /// Its CPUs by virtual LLC, if there are some.
    #[must_use]
    pub fn virtual_llcs(&self) -> Option<VirtualLlcs> {
        self.virtual_llc_size().map(|cores| VirtualLlcs::divide(&self.experiment.machine.value, cores))
    }

    /// Reads a run directory.
    ///
    /// # Errors
    /// When it holds no run, one of another version, or not one finished trial of every scheduler.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let directory = RunDirectory::view(path)?;
        let mut experiment = experiment_of(&directory)?;
        let record = experiment.record();
        let asked = record.seeds.len();
        let mut finished = finished_trials(&directory, &record)?;
        let schedulers = record.schedulers.len();
        let files = (0..schedulers * asked)
            .filter(|position| path.join(trial_file(position / asked, position % asked)).is_file())
            .count();
        let unread = files - finished.len();
        let whole: Vec<usize> =
            (0..asked).filter(|n| (0..schedulers).all(|s| finished.contains_key(&(s * asked + n)))).collect();
        if whole.is_empty() {
            return Err(ReadError::NoTrials { path: path.to_path_buf(), unread });
        }
        let trials: Vec<Vec<Trial>> =
            (0..schedulers).map(|s| whole.iter().filter_map(|n| finished.remove(&(s * asked + n))).collect()).collect();
        let names = (0..schedulers).map(|s| whole.iter().map(|n| trial_name(s, *n)).collect()).collect();
        experiment.seeds = whole.iter().map(|n| record.seeds[*n]).collect();
        let record = experiment.record();
        let mut comparison = conclude_experiment(&experiment, &record, &trials)?;
        let (checksum, mut faults) = integrity(&directory);
        let kept = headroom::kept(&directory).and_then(|oracle| match oracle {
            Some(oracle) => Headroom::of(&comparison, &oracle).map_err(|error| error.to_string()),
            None => Ok(None),
        });
        match kept {
            Ok(headroom) => comparison.headroom = headroom,
            Err(reason) => faults.push(format!("{ORACLE} is left out: {reason}")),
        }
        match sensitivity::kept(&directory) {
            Ok(kept) => comparison.sensitivity = kept,
            Err(reason) => faults.push(format!("{SENSITIVITY} is left out: {reason}")),
        }
        if whole.len() < asked {
            faults.insert(
                0,
                format!("the run is incomplete: {} of {asked} trials are finished under every scheduler", whole.len()),
            );
        }
        if unread > 0 {
            faults.push(left_out(unread).trim_start_matches(": ").to_owned());
        }
        let lost: u64 = trials.iter().flatten().map(|trial| trial.events_lost).sum();
        if lost > 0 {
            faults
                .push(format!("{lost} events were not recorded: counts are lower bounds, and zero does not mean none"));
        }
        let environment = directory.read(ENVIRONMENT).ok().and_then(|text| serde_json::from_str(&text).ok());
        Ok(Self {
            path: path.to_path_buf(),
            experiment,
            record,
            trials_asked: asked,
            trials,
            comparison,
            environment,
            checksum,
            faults,
            names,
        })
    }

    /// The directory of the events of a trial, if they were kept.
    #[must_use]
    pub fn trace(&self, scheduler: usize, trial: usize) -> Option<PathBuf> {
        let path = self.path.join(TRACE).join(&self.names[scheduler][trial]);
        path.is_dir().then_some(path)
    }
}

/// What is said of trial files that were not understood.
fn left_out(unread: usize) -> String {
    match unread {
        0 => String::new(),
        1 => ": 1 trial file has another schema version or belongs to another experiment, and was left out".into(),
        count => format!(
            ": {count} trial files have another schema version or belong to another experiment, and were left out"
        ),
    }
}

/// The checksum of the list of checksums, and what is wrong with the files it lists.
fn integrity(directory: &RunDirectory) -> (Option<String>, Vec<String>) {
    let list = directory.path().join(CHECKSUMS);
    let Ok(sum) = sha256_of_file(&list) else {
        return (None, vec!["the run is not finished: it has no list of checksums".into()]);
    };
    match directory.verify() {
        Ok(()) => (Some(sum), Vec::new()),
        Err(error) => (Some(sum), vec![format!("the directory was changed after the run: {error}")]),
    }
}
