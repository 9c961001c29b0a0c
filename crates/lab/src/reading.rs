//! A run directory read back to be shown: what is there, and what is wrong with it.
//!
//! Reading refuses what it cannot understand (another version, a changed experiment, machine or workload) and shows the rest with its
//! faults named: a run that was cut off, files that do not match their checksums. A trial that is not what its list of checksums says is
//! left out, and events that are not are not shown. It changes nothing in the directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::checksums::{Summed, Sums, is_of_beginning};
use crate::directory::{CHECKSUMS, DirectoryError, ENVIRONMENT, GUESTS, ORACLE, RunDirectory, SENSITIVITY, TRACE};
use crate::environment::Environment;
use crate::experiment::{Experiment, ExperimentRecord};
use crate::files::{FileError, read_ordinary_text, sha256_of_file};
use crate::headroom::{self, Headroom};
use crate::observe::Observation;
use crate::runner::{Found, trial_name, trials_in};
use crate::sensitivity;
use crate::session::{ResumeError, recorded_experiment_of};
use crate::trial::Trial;
use warmcore_topology::{VirtualLlcSize, VirtualLlcs};

use crate::verdict::{ComparisonDocument, VerdictError, conclude};

/// Why a run cannot be shown.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ReadError {
    /// It is no run directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Its experiment cannot be understood.
    #[error(transparent)]
    Experiment(#[from] ResumeError),
    #[error("{path} holds no finished trial of every scheduler{}{}", left_out(*.unread), because(.changed), path = .path.display())]
    NoTrials { path: PathBuf, unread: usize, changed: Option<DirectoryError> },
    /// There is no verdict on it.
    #[error(transparent)]
    Verdict(#[from] VerdictError),
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ReadError {
    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Directory(DirectoryError::NotARun(_)) => {
                "name a directory that `warmcore compare` or `sim --out` wrote"
            }
            Self::Directory(error) => error.advice(),
            Self::Experiment(ResumeError::Version { .. } | ResumeError::Schema { .. }) => {
                "show it with the version that wrote it, or run it again"
            }
            Self::Experiment(ResumeError::Directory(error)) => error.advice(),
            Self::Experiment(ResumeError::Changed { .. }) => "the directory was changed after the run; run it again",
            Self::Experiment(_) => "the file was written by another version or changed since; run it again",
            Self::NoTrials { changed: Some(error), .. } => error.advice(),
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
    /// By scheduler and trial: the name of its directory of events, and what is wrong with them.
    events: Vec<Vec<(String, Option<String>)>>,
}

impl RunOnDisk {
    /// How many cores the virtual LLCs have into which its LLCs are divided, if they are.
    pub fn virtual_llc_size(&self) -> Option<VirtualLlcSize> {
        self.record.observations.iter().rev().find_map(|observation| match observation {
            Observation::VirtualLlcs { cores } => Some(*cores),
            _ => None,
        })
    }

    /// Its CPUs by virtual LLC, if there are some.
    pub fn virtual_llcs(&self) -> Option<VirtualLlcs> {
        self.virtual_llc_size().map(|cores| VirtualLlcs::divide(&self.experiment.machine.value, cores))
    }

    /// Reads a run directory.
    ///
    /// # Errors
    /// When it holds no run, one of another version, or not one finished trial of every scheduler.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let directory = RunDirectory::view(path)?;
        let (experiment, record) = recorded_experiment_of(&directory)?;
        Self::of(&directory, experiment, record)
    }

    /// Reads a run directory whose experiment is known, as [`session::begin`](crate::session::begin) has written it there.
    ///
    /// # Errors
    /// When not one trial of every scheduler is finished.
    pub fn of_experiment(path: &Path, experiment: Experiment, record: ExperimentRecord) -> Result<Self, ReadError> {
        Self::of(&RunDirectory::view(path)?, experiment, record)
    }

    fn of(directory: &RunDirectory, mut experiment: Experiment, record: ExperimentRecord) -> Result<Self, ReadError> {
        let path = directory.path();
        let (asked, schedulers) = (record.seeds.len(), record.schedulers.len());
        let mut lists = Lists::of(directory);
        let mut left_out = LeftOut::default();
        let mut finished: BTreeMap<usize, Trial> = BTreeMap::new();
        for (position, found) in trials_in(directory, &record, lists.run.as_ref()) {
            match found {
                Ok(Found::Finished(trial)) => {
                    lists.verify_beginning(directory, &trial_name(position / asked, position % asked))?;
                    finished.insert(position, *trial);
                }
                Ok(Found::Other) => left_out.unread += 1,
                Err(error) => left_out.changed.push(error),
            }
        }
        let whole: Vec<usize> =
            (0..asked).filter(|n| (0..schedulers).all(|s| finished.contains_key(&(s * asked + n)))).collect();
        if whole.is_empty() {
            let LeftOut { unread, changed } = left_out;
            return Err(ReadError::NoTrials { path: path.to_path_buf(), unread, changed: changed.into_iter().next() });
        }
        let trials: Vec<Vec<Trial>> =
            (0..schedulers).map(|s| whole.iter().filter_map(|n| finished.remove(&(s * asked + n))).collect()).collect();
        experiment.seeds = whole.iter().map(|n| record.seeds[*n]).collect();
        let record = ExperimentRecord { seeds: experiment.seeds.clone(), ..record };
        let mut comparison = conclude(&experiment, &record, &trials)?;
        let mut faults = lists.faults(directory);
        let events = (0..schedulers)
            .map(|s| whole.iter().map(|n| lists.events(directory, trial_name(s, *n), &mut faults)).collect())
            .collect();
        let kept = lists.trusted(directory, ORACLE).and_then(|trusted| match trusted {
            true => headroom::kept(directory),
            false => Ok(None),
        });
        match kept.and_then(|oracle| match oracle {
            Some(oracle) => Headroom::of(&comparison, &oracle).map_err(|error| error.to_string()),
            None => Ok(None),
        }) {
            Ok(headroom) => comparison.headroom = headroom,
            Err(reason) => faults.push(format!("{ORACLE} is left out: {reason}")),
        }
        let kept = lists.trusted(directory, SENSITIVITY).and_then(|trusted| match trusted {
            true => sensitivity::kept(directory),
            false => Ok(None),
        });
        match kept {
            Ok(kept) => comparison.sensitivity = kept,
            Err(reason) => faults.push(format!("{SENSITIVITY} is left out: {reason}")),
        }
        if whole.len() < asked {
            faults.insert(
                0,
                format!("the run is incomplete: {} of {asked} trials are finished under every scheduler", whole.len()),
            );
        }
        faults.extend(left_out.faults());
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
            checksum: lists.checksum,
            faults,
            events,
        })
    }

    /// A run that was kept nowhere: its directory has no name, and it has no events.
    pub fn in_memory(experiment: Experiment, trials: Vec<Vec<Trial>>, comparison: ComparisonDocument) -> Self {
        let record = experiment.record();
        let events = trials.iter().map(|trials| vec![(String::new(), None); trials.len()]).collect();
        Self {
            path: PathBuf::new(),
            trials_asked: record.seeds.len(),
            experiment,
            record,
            trials,
            comparison,
            environment: None,
            checksum: None,
            faults: Vec::new(),
            events,
        }
    }

    /// What was kept of a guest's kernel in a trial, if it ran in one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn guest(&self, scheduler: usize, trial: usize) -> Result<Option<String>, FileError> {
        let path = self.path.join(GUESTS).join(format!("{}.json", trial_name(scheduler, trial)));
        path.exists().then(|| read_ordinary_text(&path)).transpose()
    }

    /// The directory of the events of a trial, if they were kept.
    ///
    /// # Errors
    /// What is wrong with it, if it is not as it was written.
    pub fn trace(&self, scheduler: usize, trial: usize) -> Result<Option<PathBuf>, &str> {
        let (name, fault) = &self.events[scheduler][trial];
        let path = self.path.join(TRACE).join(name);
        match fault {
            _ if !path.is_dir() => Ok(None),
            Some(fault) => Err(fault),
            None => Ok(Some(path)),
        }
    }
}

/// Trials that are there and are not shown.
#[derive(Default)]
struct LeftOut {
    /// Of another schema version, or of another experiment.
    unread: usize,
    /// What is wrong with those that are not what their lists of checksums say.
    changed: Vec<DirectoryError>,
}

impl LeftOut {
    fn faults(&self) -> impl Iterator<Item = String> {
        let unread = (self.unread > 0).then(|| left_out(self.unread).trim_start_matches(": ").to_owned());
        let changed = self.changed.first().map(|first| match self.changed.len() {
            1 => format!("a trial was left out: {first}"),
            count => format!("{count} trials were left out: {first}, and so on"),
        });
        unread.into_iter().chain(changed)
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

fn because(changed: &Option<DirectoryError>) -> String {
    changed.as_ref().map_or(String::new(), |error| format!(": {error}"))
}

/// The lists of checksums of a directory that is read.
struct Lists {
    /// Of the whole run, if it finished.
    run: Option<Sums>,
    /// SHA-256 of that.
    checksum: Option<String>,
    /// Why it cannot be used.
    fault: Option<String>,
    summed: Summed,
}

impl Lists {
    fn of(directory: &RunDirectory) -> Self {
        let checksum = sha256_of_file(&directory.path().join(CHECKSUMS)).ok();
        let (run, fault) = match directory.run_list() {
            Ok(run) => (run, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self { run, checksum, fault, summed: Summed::default() }
    }

    /// What every trial rests on must be what it was when the trial was made.
    fn verify_beginning(&mut self, directory: &RunDirectory, trial: &str) -> Result<(), DirectoryError> {
        directory.verify_trial(trial, self.run.as_ref(), &mut self.summed, is_of_beginning)
    }

    /// What is wrong with the directory as a whole.
    fn faults(&mut self, directory: &RunDirectory) -> Vec<String> {
        let changed = |error: &dyn std::fmt::Display| vec![format!("the directory was changed after the run: {error}")];
        match (&self.run, &self.fault) {
            (_, Some(fault)) => changed(fault),
            (None, None) => vec!["the run is not finished: it has no list of checksums".into()],
            (Some(run), None) => match directory.verify_with(run, &mut self.summed) {
                Ok(()) => Vec::new(),
                Err(error) => changed(&error),
            },
        }
    }

    /// The name of a trial's directory of events, and what is wrong with them; what is wrong with anything that the trial left becomes
    /// a fault of a run that has no list of its own.
    fn events(
        &mut self,
        directory: &RunDirectory,
        trial: String,
        faults: &mut Vec<String>,
    ) -> (String, Option<String>) {
        let is_event = |name: &str| name.starts_with(&format!("{TRACE}/"));
        let run = self.run.as_ref();
        let events = directory.verify_trial(&trial, run, &mut self.summed, is_event).err();
        let others = directory.verify_trial(&trial, run, &mut self.summed, |name| !is_event(name)).err();
        if run.is_none() {
            faults
                .extend([&events, &others].into_iter().flatten().map(|error| format!("the run was changed: {error}")));
        }
        (trial, events.map(|error| error.to_string()))
    }

    /// Whether a file that is made of the trials is there and may be shown.
    fn trusted(&self, directory: &RunDirectory, name: &str) -> Result<bool, String> {
        if directory.path().join(name).symlink_metadata().is_err() {
            return Ok(false);
        }
        if self.run.is_none() {
            return Err("the run is not finished, and nothing says what it was".into());
        }
        directory.verify_file(name, self.run.as_ref()).map(|()| true).map_err(|error| error.to_string())
    }
}
