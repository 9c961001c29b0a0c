//! Lists of checksums in run directories, and what they tell of the files there.
//!
//! There are two kinds, both as `sha256sum -c` reads them in the run directory:
//!
//! - of each trial, `trials/NAME.sha256`: what the experiment was, the trial itself, its event tables and what else it left. It is
//!   written before the trial's own file appears, so a trial without one is none that this program left there.
//! - of the whole run, `checksums.sha256`, written last of all. A run that was cut off has none, but what finished in it has its own.
//!
//! They tell damage, loss and edits. They are no signatures: who edits a file can write a list that fits to it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::directory::{
    CHECKSUMS, DirectoryError, ENVIRONMENT, EXPERIMENT, GUESTS, HOST, LOSSES, MACHINE, ORACLE, OUTPUTS, RECORDED,
    REPORT, RunDirectory, SENSITIVITY, TRACE, TRIAL_TABLE, TRIALS, VERDICT, VERDICT_TEXT, VERSIONS, WORKLOAD,
    is_of_a_column, is_of_a_run,
};
use crate::files::{self, At as _, FileError};

/// What is written before the first trial, and what every trial rests on.
const BEGINNING: [&str; 4] = [EXPERIMENT, MACHINE, VERSIONS, WORKLOAD];
/// Whether a file is one of these, or the machine, the workload or the loaded program of a column that has its own.
pub(crate) fn is_of_beginning(name: &str) -> bool {
    BEGINNING.contains(&name) || is_of_a_column(name)
}

/// What is made of the trials, each time anew.
const REWRITTEN: [&str; 4] = [TRIAL_TABLE, LOSSES, VERDICT, VERDICT_TEXT];
/// What else is made of the trials, and kept when a finished run is opened again.
const ASKED_FOR: [&str; 2] = [ORACLE, SENSITIVITY];
/// What stands in no list: it differs between equal runs, or is a list.
const UNLISTED: [&str; 3] = [CHECKSUMS, ENVIRONMENT, REPORT];

/// SHA-256 by file, relative to the run directory.
pub(crate) type Sums = BTreeMap<String, String>;

pub(crate) fn trial_file(trial: &str) -> String {
    format!("{TRIALS}/{trial}.json")
}

/// The list of checksums of a trial.
pub(crate) fn trial_list(trial: &str) -> String {
    format!("{TRIALS}/{trial}.sha256")
}

/// Sums of files of a directory, each made once.
#[derive(Default)]
pub(crate) struct Summed(BTreeMap<String, Option<String>>);

impl Summed {
    /// The sum of a file, if it is there.
    fn of(&mut self, directory: &RunDirectory, name: &str) -> Result<Option<&str>, FileError> {
        let sum = match self.0.entry(name.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(sum_of(directory, name)?),
        };
        Ok(sum.as_deref())
    }
}

fn sum_of(directory: &RunDirectory, name: &str) -> Result<Option<String>, FileError> {
    match files::sha256_of_file(&directory.path().join(name)) {
        Ok(sum) => Ok(Some(sum)),
        Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl RunDirectory {
    /// Writes the list of checksums of the run, last of all.
    ///
    /// # Errors
    /// When a file cannot be read or the list not be written.
    pub(crate) fn write_checksums(&self) -> Result<(), FileError> {
        let mut sums = Sums::new();
        for name in self.files()?.into_iter().filter(|name| is_listed(name)) {
            let sum = files::sha256_of_file(&self.path().join(&name))?;
            sums.insert(name, sum);
        }
        self.write(CHECKSUMS, text_of(&sums).as_bytes())
    }

    /// Sums of what every trial rests on.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn sums_of_beginning(&self) -> Result<Sums, FileError> {
        let sum = |name: &str| Ok((name.to_owned(), files::sha256_of_file(&self.path().join(name))?));
        let of_columns = self.files()?.into_iter().filter(|name| is_of_a_column(name));
        BEGINNING.map(str::to_owned).into_iter().chain(of_columns).map(|name| sum(&name)).collect()
    }

    /// Keeps a trial whose other files are there already: first its list of checksums, then the trial itself.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub(crate) fn keep_trial(&self, trial: &str, text: &str, beginning: &Sums) -> Result<(), FileError> {
        let mut sums = beginning.clone();
        sums.insert(trial_file(trial), files::sha256(text.as_bytes()));
        for name in self.other_files_of(trial)? {
            let sum = files::sha256_of_file(&self.path().join(&name))?;
            sums.insert(name, sum);
        }
        self.write(&trial_list(trial), text_of(&sums).as_bytes())?;
        self.write(&trial_file(trial), text.as_bytes())
    }

    /// What a trial left besides its own file and list, in order of name.
    fn other_files_of(&self, trial: &str) -> Result<Vec<String>, FileError> {
        let documents = [GUESTS, HOST, RECORDED].map(|directory| format!("{directory}/{trial}.json"));
        let outputs = format!("{OUTPUTS}/{trial}.txt");
        let mut names: Vec<String> = documents.into_iter().chain([outputs]).collect();
        names.retain(|name| self.path().join(name).symlink_metadata().is_ok());
        let tables = self.path().join(TRACE).join(trial);
        if tables.is_dir() {
            for entry in fs::read_dir(&tables).at("read", &tables)? {
                let name = entry.at("read", &tables)?.file_name().to_string_lossy().into_owned();
                if !name.ends_with(".partial") {
                    names.push(format!("{TRACE}/{trial}/{name}"));
                }
            }
        }
        names.sort();
        Ok(names)
    }

    /// The run's own list; `None` if the run has not finished.
    ///
    /// # Errors
    /// When it cannot be read, or names what is no file of a run.
    pub(crate) fn run_list(&self) -> Result<Option<Sums>, DirectoryError> {
        self.list(CHECKSUMS, is_of_a_run)
    }

    fn list(&self, list: &str, names: impl Fn(&str) -> bool) -> Result<Option<Sums>, DirectoryError> {
        let path = self.path().join(list);
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        let mut sums = Sums::new();
        for (number, line) in self.read(list)?.lines().enumerate() {
            let bad = || DirectoryError::ChecksumLine { path: path.clone(), line: number + 1 };
            let (sum, name) = line.split_once("  ").ok_or_else(bad)?;
            if !names(name) {
                return Err(DirectoryError::Foreign { path, line: number + 1 });
            }
            if sums.insert(name.to_owned(), sum.to_owned()).is_some() {
                return Err(bad());
            }
        }
        Ok(Some(sums))
    }

    /// The list of a trial. One that an earlier version left has none of its own, but may stand in that of its run.
    fn list_of_trial(&self, trial: &str, run: Option<&Sums>) -> Result<Sums, DirectoryError> {
        let (own, list) = (trial_file(trial), trial_list(trial));
        let is_its = |name: &str| is_of_beginning(name) || name == own || is_left_by(name, trial);
        if let Some(sums) = self.list(&list, is_its)? {
            return Ok(sums);
        }
        let of_run = run.filter(|run| run.contains_key(&own) && !run.contains_key(&list));
        let sums = of_run.ok_or_else(|| DirectoryError::NoList(self.path().join(&own)))?;
        Ok(sums.iter().filter(|(name, _)| is_its(name)).map(|(name, sum)| (name.clone(), sum.clone())).collect())
    }

    /// The text of a trial, compared with its list; `None` if there is none.
    ///
    /// # Errors
    /// When it cannot be read, has no list, or is another than its list says.
    pub(crate) fn trial_text(&self, trial: &str, run: Option<&Sums>) -> Result<Option<String>, DirectoryError> {
        let file = trial_file(trial);
        if self.path().join(&file).symlink_metadata().is_err() {
            return Ok(None);
        }
        let sums = self.list_of_trial(trial, run)?;
        let text = self.read(&file)?;
        match sums.get(&file) {
            Some(sum) if *sum == files::sha256(text.as_bytes()) => Ok(Some(text)),
            Some(_) => Err(DirectoryError::Checksum(self.path().join(file))),
            None => Err(DirectoryError::Unlisted(self.path().join(file))),
        }
    }

    /// Compares what a trial rests on, and what it left besides its own file, with its list, as far as names concern the caller.
    ///
    /// # Errors
    /// The first file that differs or is in no list; only where there is none such, the first that is missing.
    pub(crate) fn verify_trial(
        &self,
        trial: &str,
        run: Option<&Sums>,
        summed: &mut Summed,
        concerned: impl Fn(&str) -> bool,
    ) -> Result<(), DirectoryError> {
        let mut sums = self.list_of_trial(trial, run)?;
        // Its own file is compared where it is read.
        sums.remove(&trial_file(trial));
        let mut missing = Ok(());
        for (name, sum) in sums.iter().filter(|(name, _)| concerned(name)) {
            match summed.of(self, name)? {
                Some(found) if found == sum => {}
                Some(_) => return Err(DirectoryError::Checksum(self.path().join(name))),
                None => missing = missing.and_then(|()| Err(DirectoryError::Missing(self.path().join(name)))),
            }
        }
        match self.other_files_of(trial)?.into_iter().find(|name| concerned(name) && !sums.contains_key(name)) {
            Some(name) => Err(DirectoryError::Unlisted(self.path().join(name))),
            None => missing,
        }
    }

    /// Compares every file of a finished run with its list.
    ///
    /// # Errors
    /// With the first file that differs, is missing, or is in no list; or when there is no list.
    pub fn verify(&self) -> Result<(), DirectoryError> {
        let sums = self.run_list()?.ok_or_else(|| DirectoryError::NoList(self.path().to_owned()))?;
        self.verify_with(&sums, &mut Summed::default())
    }

    /// The same with a list that was read before.
    pub(crate) fn verify_with(&self, sums: &Sums, summed: &mut Summed) -> Result<(), DirectoryError> {
        for (name, sum) in sums {
            match summed.of(self, name)? {
                Some(found) if found == sum => {}
                Some(_) => return Err(DirectoryError::Checksum(self.path().join(name))),
                None => return Err(DirectoryError::Missing(self.path().join(name))),
            }
        }
        let unlisted = self.files()?.into_iter().find(|name| is_listed(name) && !sums.contains_key(name));
        unlisted.map_or(Ok(()), |name| Err(DirectoryError::Unlisted(self.path().join(name))))
    }

    /// Whether a file is what the list of its finished run says.
    ///
    /// # Errors
    /// When it is not, or the run did not finish, so that nothing says what it was.
    pub(crate) fn verify_file(&self, name: &str, run: Option<&Sums>) -> Result<(), DirectoryError> {
        let unlisted = || DirectoryError::Unlisted(self.path().join(name));
        let sum = run.and_then(|sums| sums.get(name)).ok_or_else(unlisted)?;
        match sum_of(self, name)? {
            Some(found) if found == *sum => Ok(()),
            _ => Err(DirectoryError::Checksum(self.path().join(name))),
        }
    }

    /// Makes a directory one whose run goes on, of these trials: everything that it goes on with is compared with the lists before
    /// anything is changed. Then goes what is made of the trials when they are finished, what trials left that did not finish, and
    /// trials of which tables or other files are missing. What came of an oracle or of changed costs stays where the run's list vouches
    /// for it.
    ///
    /// Returns the first missing file of each trial that has to be made again.
    ///
    /// # Errors
    /// With the first file that differs or that no list names; with the first missing one where the place cannot make a run again.
    pub(crate) fn reopen(&self, trials: &[String], repeatable: bool) -> Result<Vec<PathBuf>, DirectoryError> {
        let run = self.run_list()?;
        let mut summed = Summed::default();
        if let Some(sums) = &run {
            self.verify_kept(sums, &mut summed)?;
        }
        let (mut unfinished, mut missing) = (Vec::new(), Vec::new());
        for trial in trials {
            if self.trial_text(trial, run.as_ref())?.is_none() {
                unfinished.push(trial);
                continue;
            }
            match self.verify_trial(trial, run.as_ref(), &mut summed, |_| true) {
                Err(DirectoryError::Missing(path)) if repeatable => {
                    unfinished.push(trial);
                    missing.push(path);
                }
                verified => verified?,
            }
        }
        let is_known = |name: &str| {
            is_of_beginning(name)
                || REWRITTEN.contains(&name)
                || ASKED_FOR.contains(&name)
                || trial_of(name).is_some_and(|trial| trials.iter().any(|known| known == trial))
        };
        if let Some(name) = self.files()?.into_iter().find(|name| is_listed(name) && !is_known(name)) {
            return Err(DirectoryError::Unlisted(self.path().join(name)));
        }
        // First what makes it look finished.
        self.remove(CHECKSUMS)?;
        let made_at_the_end = REWRITTEN.iter().chain(ASKED_FOR.iter().filter(|_| run.is_none()));
        made_at_the_end.copied().try_for_each(|name| self.remove(name))?;
        for trial in unfinished {
            self.remove(&trial_file(trial))?;
            self.remove(&trial_list(trial))?;
            self.other_files_of(trial)?.iter().try_for_each(|name| self.remove(name))?;
        }
        Ok(missing)
    }

    /// Compares the files that a finished run goes on with with its list; missing ones are made again.
    fn verify_kept(&self, sums: &Sums, summed: &mut Summed) -> Result<(), DirectoryError> {
        for (name, sum) in sums.iter().filter(|(name, _)| !REWRITTEN.contains(&name.as_str())) {
            if summed.of(self, name)?.is_some_and(|found| found != sum) {
                return Err(DirectoryError::Checksum(self.path().join(name)));
            }
        }
        let unlisted = |name: &String| is_listed(name) && !sums.contains_key(name);
        // An interrupted trial leaves files in a run that goes on, and such a run has no list.
        match self.files()?.into_iter().find(unlisted) {
            Some(name) => Err(DirectoryError::Unlisted(self.path().join(name))),
            None => Ok(()),
        }
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        let path = self.path().join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).at("remove", &path),
            _ => Ok(()),
        }
    }
}

/// Whether a file of this name belongs into the run's list.
fn is_listed(name: &str) -> bool {
    is_of_a_run(name) && !UNLISTED.contains(&name)
}

/// Whether a file of this name is one that the trial left besides its own.
fn is_left_by(name: &str, trial: &str) -> bool {
    is_of_a_run(name) && !name.starts_with(&format!("{TRIALS}/")) && trial_of(name) == Some(trial)
}

/// The trial that a file is of.
fn trial_of(name: &str) -> Option<&str> {
    match name.split('/').collect::<Vec<_>>()[..] {
        [TRACE, trial, _] => Some(trial),
        [_, file] => file.split_once('.').map(|(trial, _)| trial),
        _ => None,
    }
}

fn text_of(sums: &Sums) -> String {
    sums.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect()
}

#[cfg(test)]
mod tests;
