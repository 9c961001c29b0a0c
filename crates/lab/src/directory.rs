//! Run directories: everything that is needed to read, check, repeat or continue an experiment.
//!
//! | file | holds |
//! |---|---|
//! | `experiment.toml` | the resolved experiment: schedulers with every tunable, trials, seeds, bounds |
//! | `machine.toml` | the machine |
//! | `workload.json` | the workload in rt-app's format |
//! | `program-s*.txt.zst` | what a scheduler of the user's own loaded, its command line and the files that this names; runs do not read it |
//! | `versions.json` | versions of the program and of the formats, and the program's SHA-256 |
//! | `trials/*.json` | one finished trial each, with the hash of everything it depends on |
//! | `trials/*.sha256` | checksums of a trial, of what it left and of what it rests on, written with it |
//! | `guests/*.json` | for trials on a real kernel: the kernel, its machine and domains, settings in force, buffers |
//! | `host/*.json`, `outputs/*.txt` | for trials on this computer what else went on; what a command or a scheduler's programs printed |
//! | `recording.dat`, `recorded/*.json` | of a recording: what the kernel wrote; how counters and page homes were had |
//! | `trials.parquet` | all trials and metrics as one table |
//! | `trace/*/` | event tables, when a trace was asked for |
//! | `losses.json` | what was not recorded |
//! | `sensitivity.json` | which assumed costs could turn the verdict, when that was asked for |
//! | `oracle.json` | the best static placement that is known and what it reached, when headroom was asked for |
//! | `verdict.json`, `verdict.txt` | the comparison |
//! | `environment.json` | host, kernel, CPUs, command line, wall-clock times: differs between equal runs |
//! | `report.html` | all of the above as one page; can be made again at any time |
//! | `checksums.sha256` | of all files but itself, `environment.json` and `report.html`, as `sha256sum -c` reads it |
//!
//! A directory is never written over: it is new, or the caller replaces it on purpose, or continues it. What finished
//! stays valid whatever happens later, because each trial is a file of its own that appears whole. What lists of checksums tell is in
//! [`checksums`](crate::checksums).

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::{self, At as _, FileError, Lock};

/// Name of the file that makes a directory a run directory.
pub const EXPERIMENT: &str = "experiment.toml";
/// Name of the machine's file.
pub const MACHINE: &str = "machine.toml";
/// Name of the workload's file.
pub const WORKLOAD: &str = "workload.json";
/// Name of the machine's file of a column that has its own.
pub(crate) fn machine_of_column(scheduler: usize) -> String {
    format!("machine-s{scheduler}.toml")
}
/// Name of the workload's file of a column that has its own.
pub(crate) fn workload_of_column(scheduler: usize) -> String {
    format!("workload-s{scheduler}.json")
}
/// Name of the file of what a scheduler of the user's own loaded.
pub(crate) fn program_of_column(scheduler: usize) -> String {
    format!("program-s{scheduler}.txt.zst")
}
/// Whether a file is named after a column.
pub(crate) fn is_of_a_column(name: &str) -> bool {
    let parts = [("machine-s", ".toml"), ("workload-s", ".json"), ("program-s", ".txt.zst")];
    parts.iter().any(|(before, after)| {
        name.strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}
/// Name of the file with versions.
pub(crate) const VERSIONS: &str = "versions.json";
/// Name of the directory of trials.
pub const TRIALS: &str = "trials";
/// Name of the directory of what guests were like.
pub(crate) const GUESTS: &str = "guests";
/// Name of the directory of what this computer was like.
pub(crate) const HOST: &str = "host";
/// Name of the file that the kernel's events were recorded into, of a run that was made of them.
pub const RECORDING: &str = "recording.dat";
/// Directory of what recorders say of a recording that was made into a run.
pub(crate) const RECORDED: &str = "recorded";
/// Name of the directory of what commands printed.
pub(crate) const OUTPUTS: &str = "outputs";
/// Name of the table of trials.
pub(crate) const TRIAL_TABLE: &str = "trials.parquet";
/// Name of the directory of traces.
pub const TRACE: &str = "trace";
/// Name of the file of loss counts.
pub const LOSSES: &str = "losses.json";
/// Name of the file of what an oracle found.
pub const ORACLE: &str = "oracle.json";
/// Name of the file of what assumed costs do to the verdict.
pub const SENSITIVITY: &str = "sensitivity.json";
/// Name of the verdict's document.
pub(crate) const VERDICT: &str = "verdict.json";
/// Name of the verdict's text.
pub(crate) const VERDICT_TEXT: &str = "verdict.txt";
/// Name of the inventory of the host.
pub(crate) const ENVIRONMENT: &str = "environment.json";
/// Name of the report. It shows the environment, so it differs as that does.
pub const REPORT: &str = "report.html";
/// Name of the list of checksums.
pub(crate) const CHECKSUMS: &str = "checksums.sha256";

/// What every version of the experiment's schema begins with.
pub(crate) const EXPERIMENT_SCHEMA_PREFIX: &str = "warmcore-experiment-";

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum DirectoryError {
    #[error("{path} exists and is not empty", path = .0.display())]
    Exists(PathBuf),
    #[error("{path} is not a run directory: it has no {EXPERIMENT} of this program", path = .0.display())]
    NotARun(PathBuf),
    #[error("{path} does not match its checksum", path = .0.display())]
    Checksum(PathBuf),
    /// A file that has a checksum is not there.
    #[error("{path} is missing", path = .0.display())]
    Missing(PathBuf),
    /// A file has the name of one that runs write, and no list of checksums names it.
    #[error("{path} is in no list of checksums", path = .0.display())]
    Unlisted(PathBuf),
    /// A trial, or a run that is said to be finished, has no list of checksums.
    #[error("{path} has no list of checksums", path = .0.display())]
    NoList(PathBuf),
    #[error("{path}: line {line} is not `checksum  file`, or names a file for the second time", path = path.display())]
    ChecksumLine { path: PathBuf, line: usize },
    /// The list of checksums names a file that is not of its run or trial, perhaps one that is elsewhere.
    #[error("{path}: line {line} names a file of something else", path = path.display())]
    Foreign { path: PathBuf, line: usize },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DirectoryError {
    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Exists(path) | Self::NotARun(path) if is_only_begun(path).unwrap_or(false) => {
                "a run was ended there before it could be continued: let --force replace it, or choose another --out"
            }
            Self::Exists(path) if !holds_a_run(path) => "choose another --out",
            Self::Exists(_) => {
                "choose another --out, let --force replace the run in it, or continue that run with --resume"
            }
            Self::NotARun(_) => "only directories that hold a run are replaced or resumed; choose another one",
            Self::Checksum(path) | Self::Missing(path) | Self::Unlisted(path) | Self::NoList(path)
                if path.components().rev().nth(1).is_some_and(|directory| directory.as_os_str() == TRIALS) =>
            {
                "it was changed after it was written; without its file the trial is run again when the run goes on"
            }
            Self::Missing(_) => {
                "its trial cannot be repeated exactly; without the trial's file under `trials` another one is run in its place"
            }
            Self::Checksum(_)
            | Self::Unlisted(_)
            | Self::NoList(_)
            | Self::ChecksumLine { .. }
            | Self::Foreign { .. } => "the directory was changed after the run; run it again",
            Self::File(error) => error.advice(),
        }
    }
}

/// What to do when the directory is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// Refuse.
    Refuse,
    /// Replace it, if it holds a run.
    Replace,
}

/// A run directory.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Makes a new run directory, with the directories above it. Of a run that is to be replaced the files of a run are removed and
    /// nothing else; a link to its directory stays a link.
    ///
    /// # Errors
    /// When it exists and is neither empty nor to be replaced, when it is to be replaced but holds no run, or when it
    /// cannot be made.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, DirectoryError> {
        if occupied(path)? {
            match existing {
                Existing::Refuse => return Err(DirectoryError::Exists(path.to_path_buf())),
                Existing::Replace if !holds_a_run(path) && !is_only_begun(path)? => {
                    return Err(DirectoryError::NotARun(path.to_path_buf()));
                }
                Existing::Replace => remove_run(path)?,
            }
        }
        fs::create_dir_all(path).at("create", path)?;
        let trials = path.join(TRIALS);
        fs::create_dir_all(&trials).at("create", &trials)?;
        Ok(Self { path: path.to_path_buf() })
    }

    /// Makes a new run directory and keeps other runs out of it: nothing is removed that one at work has there.
    ///
    /// # Errors
    /// As [`create`](Self::create); or when another run is at work in it.
    pub fn create_alone(path: &Path, existing: Existing) -> Result<(Self, Lock), DirectoryError> {
        let there = if path.is_dir() { Some(Lock::of(path)?) } else { None };
        let directory = Self::create(path, existing)?;
        let alone = there.map_or_else(|| Lock::of(path), Ok)?;
        Ok((directory, alone))
    }

    /// Opens a directory that holds a run and keeps other runs out of it.
    ///
    /// # Errors
    /// As [`open`](Self::open); or when another run is at work in it.
    pub fn open_alone(path: &Path) -> Result<(Self, Lock), DirectoryError> {
        let directory = Self::open(path)?;
        Ok((directory, Lock::of(path)?))
    }

    /// Makes a new run directory `parent/id`, or `parent/id-2` and so on when that is there already, and keeps other runs out of it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create_numbered(parent: &Path, id: &str) -> Result<(Self, Lock), DirectoryError> {
        let mut path = parent.join(id);
        let mut number = 2;
        while occupied(&path)? {
            path = parent.join(format!("{id}-{number}"));
            number += 1;
        }
        Self::create_alone(&path, Existing::Refuse)
    }

    /// Opens a directory that holds a run.
    ///
    /// # Errors
    /// When it holds none.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        if !holds_a_run(path) {
            return Err(DirectoryError::NotARun(path.to_path_buf()));
        }
        let trials = path.join(TRIALS);
        fs::create_dir_all(&trials).at("create", &trials)?;
        Ok(Self { path: path.to_path_buf() })
    }

    /// Opens a directory that holds a run, to read it: nothing in it is changed or added.
    ///
    /// # Errors
    /// When it holds none.
    pub fn view(path: &Path) -> Result<Self, DirectoryError> {
        if !holds_a_run(path) {
            return Err(DirectoryError::NotARun(path.to_path_buf()));
        }
        Ok(Self { path: path.to_path_buf() })
    }

    /// Removes it if nothing was written: after a failure it can be made again.
    pub fn abandon(&self) {
        if is_only_begun(&self.path).unwrap_or(false) {
            let _ = fs::remove_dir(self.path.join(TRIALS)).and_then(|()| fs::remove_dir(&self.path));
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one of its files, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        debug_assert!(is_of_a_run(name), "{name} is listed, compared and replaced with the other files of a run");
        files::write_atomically(&self.path.join(name), bytes)
    }

    /// Reads one of its text files.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, name: &str) -> Result<String, FileError> {
        files::read_ordinary_text(&self.path.join(name))
    }

    /// An empty directory for the trace of one trial; what an interrupted trial left there is removed.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn trace_directory(&self, trial: &str) -> Result<PathBuf, FileError> {
        let path = self.path.join(TRACE).join(trial);
        if path.exists() {
            fs::remove_dir_all(&path).at("remove", &path)?;
        }
        fs::create_dir_all(&path).at("create", &path)?;
        Ok(path)
    }

    /// All its files, relative to it, in order of name; without partial ones.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn files(&self) -> Result<Vec<String>, FileError> {
        let mut found = Vec::new();
        collect(&self.path, "", false, &mut found)?;
        found.sort();
        Ok(found)
    }
}

/// Whether the directory holds a run of this program; a file that merely has the right name does not count, because
/// what holds a run may be removed.
fn holds_a_run(path: &Path) -> bool {
    files::read_ordinary_text(&path.join(EXPERIMENT)).is_ok_and(|text| text.contains(EXPERIMENT_SCHEMA_PREFIX))
}

/// Whether a file of this name, relative to the directory, is one that runs write: one of their own names, or named after a trial.
pub(crate) fn is_of_a_run(name: &str) -> bool {
    let own = [
        EXPERIMENT,
        MACHINE,
        WORKLOAD,
        VERSIONS,
        RECORDING,
        TRIAL_TABLE,
        LOSSES,
        ORACLE,
        SENSITIVITY,
        VERDICT,
        VERDICT_TEXT,
        ENVIRONMENT,
        REPORT,
        CHECKSUMS,
    ];
    let name = name.strip_suffix(".partial").unwrap_or(name);
    match name.split('/').collect::<Vec<_>>()[..] {
        [file] => own.contains(&file) || is_of_a_column(file),
        [TRACE, trial, _] => is_trial(trial),
        [TRIALS, file] => [".json", ".sha256"].iter().any(|ending| file.strip_suffix(ending).is_some_and(is_trial)),
        [GUESTS | HOST | RECORDED, file] => file.strip_suffix(".json").is_some_and(is_trial),
        [OUTPUTS, file] => file.strip_suffix(".txt").is_some_and(is_trial),
        _ => false,
    }
}

/// Whether it is a [`trial_name`](crate::runner::trial_name).
fn is_trial(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_prefix('s').and_then(|rest| rest.split_once("-t"));
    parts.is_some_and(|(scheduler, trial)| number(scheduler) && number(trial))
}

/// Removes a run that is there, and its directory if nothing else is in it.
///
/// # Errors
/// When it holds no run of this program, or a file cannot be removed.
pub fn remove(path: &Path) -> Result<(), DirectoryError> {
    RunDirectory::view(path)?;
    remove_run(path)?;
    // It holds something else, which stays.
    let _ = fs::remove_dir(path);
    Ok(())
}

/// Removes the files of a run, and directories that are empty then.
fn remove_run(path: &Path) -> Result<(), FileError> {
    let mut found = Vec::new();
    collect(path, "", true, &mut found)?;
    for name in found.iter().filter(|name| is_of_a_run(name)) {
        let file = path.join(name);
        fs::remove_file(&file).at("remove", &file)?;
        // Directories that hold something else stay.
        for directory in Path::new(name).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            if fs::remove_dir(path.join(directory)).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// Whether a directory is a run in which nothing was written yet.
fn is_only_begun(path: &Path) -> Result<bool, FileError> {
    let mut entries = fs::read_dir(path).at("read", path)?;
    let first = entries.next().transpose().at("read", path)?;
    Ok(first.is_some_and(|first| first.file_name() == TRIALS && entries.next().is_none())
        && !occupied(&path.join(TRIALS))?)
}

/// Whether there is something at `path` other than an empty directory.
fn occupied(path: &Path) -> Result<bool, FileError> {
    if !path.is_dir() {
        return Ok(path.exists());
    }
    Ok(fs::read_dir(path).at("read", path)?.next().is_some())
}

/// Files below a directory with their path from the top; partial ones only if asked for.
fn collect(directory: &Path, prefix: &str, partial: bool, found: &mut Vec<String>) -> Result<(), FileError> {
    for entry in fs::read_dir(directory).at("read", directory)? {
        let entry = entry.at("read", directory)?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().at("read", &entry.path())?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), partial, found)?;
        } else if partial || !name.ends_with(".partial") {
            found.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_something_in_it_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("precious"), "x").unwrap();
        let error = RunDirectory::create(parent.path(), Existing::Refuse).unwrap_err();
        assert!(matches!(error, DirectoryError::Exists(_)), "{error}");
        assert_eq!(error.advice(), "choose another --out");
        let run = RunDirectory::create(&parent.path().join("run"), Existing::Refuse).unwrap();
        run.write(EXPERIMENT, b"schema = \"warmcore-experiment-2\"").unwrap();
        let error = RunDirectory::create(run.path(), Existing::Refuse).unwrap_err();
        assert!(error.advice().contains("--force") && error.advice().contains("--resume"), "{}", error.advice());
    }

    #[test]
    fn force_replaces_only_a_directory_that_holds_a_run() {
        let parent = tempfile::tempdir().unwrap();
        let precious = parent.path().join("precious");
        fs::write(&precious, "x").unwrap();
        let error = RunDirectory::create(parent.path(), Existing::Replace).unwrap_err();
        assert!(matches!(error, DirectoryError::NotARun(_)), "{error}");
        assert!(precious.exists(), "what is not a run is never removed");

        fs::write(parent.path().join(EXPERIMENT), "name = \"of something else\"").unwrap();
        RunDirectory::create(parent.path(), Existing::Replace).unwrap_err();
        assert!(precious.exists(), "a file of the same name does not make it a run");

        fs::write(parent.path().join(EXPERIMENT), "schema = \"warmcore-experiment-2\"").unwrap();
        RunDirectory::create(parent.path(), Existing::Replace).unwrap();
        assert!(!parent.path().join(EXPERIMENT).exists());
        assert!(precious.exists(), "what a run did not write stays");
    }

    #[test]
    fn force_removes_the_files_of_a_run_and_no_others_and_leaves_a_link_a_link() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path().join("run"), &link).unwrap();
        let run = RunDirectory::create(&parent.path().join("run"), Existing::Refuse).unwrap();
        run.write(EXPERIMENT, b"schema = \"warmcore-experiment-2\"").unwrap();
        let of_the_run = [
            "verdict.json",
            "trials/s0-t0001.json",
            "trials/s1-t12345.json.partial",
            "trace/s0-t0000/events.parquet",
            "guests/s0-t0000.json",
        ];
        let of_the_user = ["notes.md", "trials/notes.md", "mine/s0-t0000.json", "trace/mine", "s0-t0000.json"];
        for name in of_the_run.iter().chain(&of_the_user) {
            let path = run.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        RunDirectory::create(&link, Existing::Replace).unwrap();
        assert!(link.is_symlink());
        let mut left = Vec::new();
        collect(&link, "", true, &mut left).unwrap();
        left.sort();
        let mut wanted = of_the_user.map(str::to_owned);
        wanted.sort();
        assert_eq!(left, wanted);
        assert!(!link.join("guests").exists() && !link.join("trace/s0-t0000").exists());
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("file");
        fs::write(&path, "x").unwrap();
        let error = RunDirectory::create(&path, Existing::Refuse).unwrap_err();
        assert!(matches!(error, DirectoryError::Exists(_)), "{error}");
    }

    #[test]
    fn a_run_that_was_only_begun_is_refused_then_replaced_and_gone_when_it_is_abandoned() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let begun = RunDirectory::create(&path, Existing::Refuse).unwrap();
        // It cannot be gone on with, so nothing says so.
        for refused in [RunDirectory::create(&path, Existing::Refuse), RunDirectory::open(&path)] {
            let advice = refused.unwrap_err().advice();
            assert!(advice.contains("--force") && !advice.contains("--resume"), "{advice}");
        }
        RunDirectory::create(&path, Existing::Replace).unwrap();
        begun.abandon();
        assert!(!path.exists());
        let written = RunDirectory::create(&path, Existing::Refuse).unwrap();
        written.write("trials/s0-t0000.json", b"x").unwrap();
        written.abandon();
        assert!(path.join("trials/s0-t0000.json").exists());
        RunDirectory::create(&path, Existing::Replace).unwrap_err();
    }

    #[test]
    fn numbered_directories_do_not_collide() {
        let parent = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..3)
            .map(|_| {
                let (run, _alone) = RunDirectory::create_numbered(parent.path(), "id").unwrap();
                run.write(EXPERIMENT, b"x").unwrap();
                run.path().file_name().unwrap().to_string_lossy().into_owned()
            })
            .collect();
        assert_eq!(names, ["id", "id-2", "id-3"]);
    }

    #[test]
    fn a_directory_that_is_no_run_is_not_opened() {
        let parent = tempfile::tempdir().unwrap();
        assert!(matches!(RunDirectory::open(parent.path()), Err(DirectoryError::NotARun(_))));
    }
}
