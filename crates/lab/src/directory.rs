//! Run directories: everything that is needed to read, check, repeat or continue an experiment.
//!
//! | file | holds |
//! |---|---|
//! | `experiment.toml` | the resolved experiment: schedulers with every tunable, trials, seeds, bounds |
//! | `machine.toml` | the machine |
//! | `workload.json` | the workload in rt-app's format |
//! | `versions.json` | versions of the program and of the formats |
//! | `trials/*.json` | one finished trial each, with the hash of everything it depends on |
//! | `guests/*.json` | for trials on a real kernel: the kernel, its machine and domains, settings in force, buffers |
//! | `trials.parquet` | all trials and metrics as one table |
//! | `trace/*/` | event tables, when a trace was asked for |
//! | `losses.json` | what was not recorded |
//! | `verdict.json`, `verdict.txt` | the comparison |
//! | `environment.json` | host, kernel, CPUs, command line, wall-clock times: differs between equal runs |
//! | `report.html` | all of the above as one page; can be made again at any time |
//! | `checksums.sha256` | of all files but itself, `environment.json` and `report.html`, as `sha256sum -c` reads it |
//!
//! A directory is never written over: it is new, or the caller replaces it on purpose, or continues it. What finished
//! stays valid whatever happens later, because each trial is a file of its own that appears whole.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::{self, At as _, FileError};

/// Name of the file that makes a directory a run directory.
pub const EXPERIMENT: &str = "experiment.toml";
/// Name of the machine's file.
pub const MACHINE: &str = "machine.toml";
/// Name of the workload's file.
pub const WORKLOAD: &str = "workload.json";
/// Name of the file with versions.
pub const VERSIONS: &str = "versions.json";
/// Name of the directory of trials.
pub const TRIALS: &str = "trials";
/// Name of the directory of what guests were like.
pub const GUESTS: &str = "guests";
/// Name of the table of trials.
pub const TRIAL_TABLE: &str = "trials.parquet";
/// Name of the directory of traces.
pub const TRACE: &str = "trace";
/// Name of the file of loss counts.
pub const LOSSES: &str = "losses.json";
/// Name of the verdict's document.
pub const VERDICT: &str = "verdict.json";
/// Name of the verdict's text.
pub const VERDICT_TEXT: &str = "verdict.txt";
/// Name of the inventory of the host.
pub const ENVIRONMENT: &str = "environment.json";
/// Name of the report. It shows the environment, so it differs as that does.
pub const REPORT: &str = "report.html";
/// Name of the list of checksums.
pub const CHECKSUMS: &str = "checksums.sha256";

/// What every version of the experiment's schema begins with.
pub const EXPERIMENT_SCHEMA_PREFIX: &str = "warmcore-experiment-";

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It is there already.
    #[error("{path} exists and is not empty", path = .0.display())]
    Exists(PathBuf),
    /// It is there, but nothing this program wrote, so it is not replaced either.
    #[error("{path} is not a run directory: it has no {EXPERIMENT} of this program", path = .0.display())]
    NotARun(PathBuf),
    /// A file in it is not what its checksum says.
    #[error("{path} does not match its checksum", path = .0.display())]
    Checksum(PathBuf),
    /// The list of checksums cannot be read.
    #[error("{path}: line {line} is not `checksum  file`", path = path.display())]
    ChecksumLine {
        /// The list.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DirectoryError {
    /// What a user can try.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Exists(_) => {
                "choose another --out, let --force replace the run in it, or continue that run with --resume"
            }
            Self::NotARun(_) => "only directories that hold a run are replaced or resumed; choose another one",
            Self::Checksum(_) | Self::ChecksumLine { .. } => "the directory was changed after the run; run it again",
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
    /// Makes a new run directory, with the directories above it.
    ///
    /// # Errors
    /// When it exists and is neither empty nor to be replaced, when it is to be replaced but holds no run, or when it
    /// cannot be made.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, DirectoryError> {
        if occupied(path)? {
            match existing {
                Existing::Refuse => return Err(DirectoryError::Exists(path.to_path_buf())),
                Existing::Replace if !holds_a_run(path) => return Err(DirectoryError::NotARun(path.to_path_buf())),
                Existing::Replace => fs::remove_dir_all(path).at("remove", path)?,
            }
        }
        fs::create_dir_all(path).at("create", path)?;
        let trials = path.join(TRIALS);
        fs::create_dir_all(&trials).at("create", &trials)?;
        Ok(Self { path: path.to_path_buf() })
    }

    /// Makes a new run directory `parent/id`, or `parent/id-2` and so on when that is there already.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create_numbered(parent: &Path, id: &str) -> Result<Self, DirectoryError> {
        let mut path = parent.join(id);
        let mut number = 2;
        while occupied(&path)? {
            path = parent.join(format!("{id}-{number}"));
            number += 1;
        }
        Self::create(&path, Existing::Refuse)
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one of its files, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        files::write_atomically(&self.path.join(name), bytes)
    }

    /// Reads one of its text files.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, name: &str) -> Result<String, FileError> {
        files::read_text(&self.path.join(name))
    }

    /// An empty directory for the trace of one trial; what an interrupted trial left there is removed.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn trace_directory(&self, trial: &str) -> Result<PathBuf, FileError> {
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
        collect_files(&self.path, String::new(), &mut found)?;
        found.sort();
        Ok(found)
    }

    /// Writes the list of checksums, last of all.
    ///
    /// # Errors
    /// When a file cannot be read or the list not be written.
    pub fn write_checksums(&self) -> Result<(), FileError> {
        let mut list = String::new();
        let unlisted = [CHECKSUMS, ENVIRONMENT, REPORT];
        for name in self.files()?.iter().filter(|name| !unlisted.contains(&name.as_str())) {
            let sum = files::sha256_of_file(&self.path.join(name))?;
            list.push_str(&format!("{sum}  {name}\n"));
        }
        self.write(CHECKSUMS, list.as_bytes())
    }

    /// Compares every file with its checksum.
    ///
    /// # Errors
    /// With the first file that differs or is missing.
    pub fn verify(&self) -> Result<(), DirectoryError> {
        for (number, line) in self.read(CHECKSUMS)?.lines().enumerate() {
            let Some((sum, name)) = line.split_once("  ") else {
                return Err(DirectoryError::ChecksumLine { path: self.path.join(CHECKSUMS), line: number + 1 });
            };
            let path = self.path.join(name);
            if files::sha256_of_file(&path)? != sum {
                return Err(DirectoryError::Checksum(path));
            }
        }
        Ok(())
    }
}

/// Whether the directory holds a run of this program; a file that merely has the right name does not count, because
/// what holds a run may be removed.
fn holds_a_run(path: &Path) -> bool {
    fs::read_to_string(path.join(EXPERIMENT)).is_ok_and(|text| text.contains(EXPERIMENT_SCHEMA_PREFIX))
}

/// Whether there is something at `path` other than an empty directory.
fn occupied(path: &Path) -> Result<bool, FileError> {
    if !path.is_dir() {
        return Ok(path.exists());
    }
    Ok(fs::read_dir(path).at("read", path)?.next().is_some())
}

fn collect_files(directory: &Path, prefix: String, found: &mut Vec<String>) -> Result<(), FileError> {
    for entry in fs::read_dir(directory).at("read", directory)? {
        let entry = entry.at("read", directory)?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().at("read", &entry.path())?.is_dir() {
            collect_files(&entry.path(), format!("{name}/"), found)?;
        } else if !name.ends_with(".partial") {
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
        assert!(!precious.exists());
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
    fn numbered_directories_do_not_collide() {
        let parent = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..3)
            .map(|_| {
                let run = RunDirectory::create_numbered(parent.path(), "id").unwrap();
                run.write(EXPERIMENT, b"x").unwrap();
                run.path().file_name().unwrap().to_string_lossy().into_owned()
            })
            .collect();
        assert_eq!(names, ["id", "id-2", "id-3"]);
    }

    #[test]
    fn a_changed_file_fails_its_checksum_and_the_environment_has_none() {
        let parent = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(&parent.path().join("run"), Existing::Refuse).unwrap();
        run.write(EXPERIMENT, b"one").unwrap();
        run.write("trials/a.json", b"two").unwrap();
        run.write(ENVIRONMENT, b"host").unwrap();
        run.write_checksums().unwrap();
        run.verify().unwrap();

        run.write(ENVIRONMENT, b"another host").unwrap();
        run.verify().unwrap();
        run.write("trials/a.json", b"three").unwrap();
        let error = run.verify().unwrap_err();
        assert!(matches!(&error, DirectoryError::Checksum(path) if path.ends_with("trials/a.json")), "{error}");
    }

    #[test]
    fn a_directory_that_is_no_run_is_not_opened() {
        let parent = tempfile::tempdir().unwrap();
        assert!(matches!(RunDirectory::open(parent.path()), Err(DirectoryError::NotARun(_))));
    }
}
