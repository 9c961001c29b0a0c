//! The files of a run around its trials: what is written before the first one, and what after the last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use warmcore_places::sim::programs;
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_workload::{Workload, workload_name};

use crate::checksums::Summed;
use crate::column::{self, Column};
use crate::directory::{
    DirectoryError, ENVIRONMENT, EXPERIMENT, LOSSES, MACHINE, RunDirectory, TRIAL_TABLE, VERDICT, VERDICT_TEXT,
    VERSIONS, WORKLOAD, machine_of_column, program_of_column, workload_of_column,
};
use crate::environment::Environment;
use crate::experiment::{
    self, Experiment, ExperimentRecord, Named, ProgramRecord, SchedulerRecord, SubjectRecord, TOOL_VERSION,
};
pub use crate::files::pretty;
use crate::files::{At as _, FileError, sha256, sha256_of_file};
use crate::measures;
use crate::runner::trial_name;
use crate::table;
use crate::trial::{self, Trial};
use crate::verdict::{self, ComparisonDocument};

/// Why a run directory does not give its experiment back.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ResumeError {
    /// A file is not what this version writes.
    #[error("{file}: {reason}")]
    Invalid { file: String, reason: String },
    #[error("{file} has the schema {found}; this version reads {}", experiment::SCHEMA)]
    Schema { file: String, found: String },
    /// The directory was written by another version, whose results cannot be mixed with this one's.
    #[error("the run was started by version {found}, this is version {TOOL_VERSION}")]
    Version { found: String },
    /// The machine or workload in the directory is not the one the experiment was recorded with.
    #[error("{file} was changed since the run was started")]
    Changed { file: String },
    /// The program of a scheduler is not the one that the run was started with.
    #[error("`{scheduler}` is not what the run was started with: {what}")]
    Program { scheduler: String, what: String },
    #[error("the run was started by another build of this program, whose results may differ")]
    Build,
    /// A file is not what was written there.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What is looked at first: a newer format may have fields that this version does not know.
#[derive(Deserialize)]
struct SchemaOnly {
    schema: String,
}

/// Versions of the program and of the formats in a run directory.
#[derive(Serialize)]
struct Versions {
    schema: &'static str,
    warmcore: &'static str,
    program_sha256: &'static str,
    experiment: &'static str,
    trial: &'static str,
    comparison: &'static str,
}

/// What was not recorded.
#[derive(Serialize)]
struct Losses {
    schema: &'static str,
    /// Trace events that were produced and not recorded.
    events_lost: u64,
    /// Waits that had not ended with the run, over all trials.
    censored_waits: u64,
    /// The same by scheduler.
    schedulers: Vec<SchedulerLosses>,
}

#[derive(Serialize)]
struct SchedulerLosses {
    scheduler: String,
    events_lost: u64,
    censored_waits: u64,
}

/// Writes what a run directory holds before the first trial. Returns the experiment's record: of a large workload it takes as long as writing
/// that.
///
/// # Errors
/// When a file cannot be written, or the workload not be expressed in its file format.
pub fn begin(directory: &RunDirectory, experiment: &Experiment) -> Result<ExperimentRecord, SessionError> {
    let versions = Versions {
        schema: "warmcore-versions-1",
        warmcore: TOOL_VERSION,
        program_sha256: program_sha256()?,
        experiment: experiment::SCHEMA,
        trial: trial::SCHEMA,
        comparison: verdict::SCHEMA,
    };
    let (texts, record) = texts_and_record(experiment)?;
    texts.iter().try_for_each(|(name, text)| directory.write(name, text.as_bytes()))?;
    directory.write(VERSIONS, pretty(&versions).as_bytes())?;
    for index in (0..experiment.schedulers.len()).filter(|_| experiment.place.kind().simulated) {
        // It was loaded when the experiment was checked.
        let loaded = programs::known(experiment.scheduler_of(index), &experiment.machine_of(index).value);
        loaded.map_or(Ok(()), |loaded| directory.write(&program_of_column(index), &loaded.packed))?;
    }
    // Last, because it makes the directory a run directory.
    directory.write(EXPERIMENT, record.to_toml().as_bytes())?;
    Ok(record)
}

/// The files that an experiment is in, by name: its record, its machines and its workloads.
///
/// # Errors
/// When the workload cannot be expressed in its file format, or actions from outside, which have none.
pub fn texts(experiment: &Experiment) -> Result<BTreeMap<String, String>, SessionError> {
    let (mut texts, record) = texts_and_record(experiment)?;
    texts.insert(EXPERIMENT.to_owned(), record.to_toml());
    Ok(texts)
}

/// Those of machines and workloads, and the record.
fn texts_and_record(experiment: &Experiment) -> Result<(BTreeMap<String, String>, ExperimentRecord), SessionError> {
    if let Some(action) = experiment.actions.first() {
        let reason = format!("it has no place for what is done from outside: {action}");
        return Err(SessionError::Express { file: EXPERIMENT.to_owned(), reason });
    }
    let workload = |file: String, workload: &Named<Workload>| match warmcore_workload::to_rtapp(&workload.value) {
        Ok(text) => Ok((file, text)),
        Err(error) => Err(SessionError::Express { file, reason: error.to_string() }),
    };
    let machine = |file: String, machine: &Named<Machine>| (file, warmcore_topology::to_toml(&machine.value));
    let mut texts = BTreeMap::from([
        machine(MACHINE.to_owned(), &experiment.machine),
        workload(WORKLOAD.to_owned(), &experiment.workload)?,
    ]);
    for (scheduler, column) in &experiment.columns {
        texts.extend(column.machine.iter().map(|own| machine(machine_of_column(*scheduler), own)));
        if let Some(own) = &column.workload {
            texts.extend([workload(workload_of_column(*scheduler), own)?]);
        }
    }
    let record = experiment.record_with(&mut |workload, column| {
        let name = column.map_or_else(|| WORKLOAD.to_owned(), workload_of_column);
        SubjectRecord::new(&workload.source, texts.get(&name).map_or("", String::as_str))
    });
    Ok((texts, record))
}

/// Of the versions in a run directory, which build wrote it.
#[derive(Deserialize)]
struct Build {
    program_sha256: Option<String>,
}

/// SHA-256 of this program, or of the library that this code is in. What a trial gives depends on all of it, and a version has many builds.
///
/// # Errors
/// When it cannot be read.
pub fn program_sha256() -> Result<&'static str, FileError> {
    static SUM: OnceLock<String> = OnceLock::new();
    if let Some(sum) = SUM.get() {
        return Ok(sum);
    }
    let sum = sha256_of_file(&own_file())?;
    Ok(SUM.get_or_init(|| sum))
}

/// The file that this code is in: the program by the name that stays when somebody builds another one, unless another program, such as
/// Python, has loaded it.
fn own_file() -> PathBuf {
    let program = Path::new("/proc/self/exe");
    let here = own_file as fn() -> PathBuf as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_here = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        range.and_then(|(start, end)| Some((number(start)?..number(end)?).contains(&here))).unwrap_or(false)
    };
    let mapped = maps.lines().find(is_here).and_then(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    match (mapped, program.read_link()) {
        (Some(mapped), Ok(own)) if mapped != own && mapped.exists() => mapped,
        _ => program.to_owned(),
    }
}

/// Why the files of a run could not be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum SessionError {
    /// Something cannot be said in the format of its file.
    #[error("cannot write {file}: {reason}")]
    Express { file: String, reason: String },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Writes what a run directory holds after the last trial, checksums last of all.
///
/// # Errors
/// When a file cannot be written.
pub fn finish(
    directory: &RunDirectory,
    experiment: &Experiment,
    trials: &[Vec<Trial>],
    document: Option<(&ComparisonDocument, &str)>,
    environment: &Environment,
) -> Result<(), SessionError> {
    finish_as(directory, (experiment, &experiment.record()), trials, document, environment)
}

/// [`finish`] of an experiment whose record is known.
///
/// # Errors
/// When a file cannot be written.
pub fn finish_as(
    directory: &RunDirectory,
    (experiment, record): (&Experiment, &ExperimentRecord),
    trials: &[Vec<Trial>],
    document: Option<(&ComparisonDocument, &str)>,
    environment: &Environment,
) -> Result<(), SessionError> {
    let asked = experiment.metric.as_deref();
    let measures = measures::of_trials(&experiment.workload.value, trials, asked.unwrap_or_default());
    let measures = measures::with_metric(measures, asked);
    let table = directory.path().join(TRIAL_TABLE);
    table::write_trials(&table, record, &measures, trials).map_err(std::io::Error::other).at("write", &table)?;
    directory.write(LOSSES, pretty(&losses(trials)).as_bytes())?;
    if let Some((document, text)) = document {
        directory.write(VERDICT, pretty(document).as_bytes())?;
        directory.write(VERDICT_TEXT, text.as_bytes())?;
    }
    directory.write(ENVIRONMENT, pretty(environment).as_bytes())?;
    directory.write_checksums()?;
    Ok(())
}

fn losses(trials: &[Vec<Trial>]) -> Losses {
    let of = |trials: &Vec<Trial>| SchedulerLosses {
        scheduler: trials.first().map(|trial| trial.scheduler.clone()).unwrap_or_default(),
        events_lost: trials.iter().map(|trial| trial.events_lost).sum(),
        censored_waits: trials.iter().map(|trial| trial.censored_waits).sum(),
    };
    let schedulers: Vec<SchedulerLosses> = trials.iter().map(of).collect();
    Losses {
        schema: "warmcore-losses-1",
        events_lost: schedulers.iter().map(|losses| losses.events_lost).sum(),
        censored_waits: schedulers.iter().map(|losses| losses.censored_waits).sum(),
        schedulers,
    }
}

/// The experiment that a run directory was started with. Its place may need
/// [`reopen`](warmcore_places::place::Place::reopen) before runs can be made there.
///
/// # Errors
/// When the directory was changed since, or written by another version.
pub fn experiment_of(directory: &RunDirectory) -> Result<Experiment, ResumeError> {
    Ok(recorded_experiment_of(directory)?.0)
}

/// The same with its record.
pub(crate) fn recorded_experiment_of(directory: &RunDirectory) -> Result<(Experiment, ExperimentRecord), ResumeError> {
    let path = |name: &str| directory.path().join(name).display().to_string();
    experiment_from(&|name| Ok(directory.read(name)?), &path)
}

/// The experiment of [`texts`], whose trials this program can run.
///
/// # Errors
/// When another version wrote them, they do not belong together, or the program of a scheduler is another one here.
pub fn experiment_of_texts(texts: &BTreeMap<String, String>) -> Result<Experiment, ResumeError> {
    let read = |name: &str| {
        let missing = || ResumeError::Invalid { file: name.to_owned(), reason: "it is missing".to_owned() };
        texts.get(name).cloned().ok_or_else(missing)
    };
    let (experiment, _) = experiment_from(&read, &str::to_owned)?;
    for (index, then) in experiment.kept_programs.iter().flatten() {
        let now = experiment.scheduler_of(*index).program().and_then(ProgramRecord::now);
        if let Some(what) = ProgramRecord::change(then, now.as_ref()) {
            return Err(ResumeError::Program { scheduler: experiment.schedulers[*index].to_string(), what });
        }
    }
    Ok(experiment)
}

fn experiment_from(
    read: &dyn Fn(&str) -> Result<String, ResumeError>,
    path: &dyn Fn(&str) -> String,
) -> Result<(Experiment, ExperimentRecord), ResumeError> {
    let invalid = |name: &str, reason: String| ResumeError::Invalid { file: path(name), reason };
    let text = read(EXPERIMENT)?;
    let schema = toml::from_str::<SchemaOnly>(&text).map_err(|error| invalid(EXPERIMENT, error.to_string()))?.schema;
    if schema != experiment::SCHEMA {
        return Err(ResumeError::Schema { file: path(EXPERIMENT), found: schema });
    }
    let record: ExperimentRecord = toml::from_str(&text).map_err(|error| invalid(EXPERIMENT, error.to_string()))?;
    if record.tool_version != TOOL_VERSION {
        return Err(ResumeError::Version { found: record.tool_version });
    }
    let place = warmcore_places::past(&record.place, record.makings.as_ref())
        .map_err(|error| invalid(EXPERIMENT, error.to_string()))?;
    let machine = |name: &str, subject: &SubjectRecord| -> Result<Named<Machine>, ResumeError> {
        let value = warmcore_topology::from_toml(&read(name)?);
        Ok(Named { source: subject.source.clone(), value: value.map_err(|error| invalid(name, error.to_string()))? })
    };
    let options = warmcore_workload::Options::default();
    // What the texts of workloads are, by name: as written now, and as they stand there.
    let mut sums: BTreeMap<String, (SubjectRecord, String)> = BTreeMap::new();
    let mut workload = |name: &str, subject: &SubjectRecord| -> Result<Named<Workload>, ResumeError> {
        let text = read(name)?;
        let value = warmcore_workload::from_rtapp(workload_name(&subject.source), &text, &options);
        let value = value.map_err(|error| invalid(name, error.to_string()))?;
        let found = Named { source: subject.source.clone(), value };
        sums.insert(name.to_owned(), (SubjectRecord::of_workload_read(&found, &text), sha256(text.as_bytes())));
        Ok(found)
    };
    let schedulers = record
        .schedulers
        .iter()
        .map(|scheduler| SchedulerSpec::parse(&scheduler.label))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| invalid(EXPERIMENT, error.to_string()))?;
    let baseline = record
        .baseline_index()
        .ok_or_else(|| invalid(EXPERIMENT, format!("baseline `{}` is not a scheduler of it", record.baseline)))?;
    let mut columns = BTreeMap::new();
    for (index, (spec, own)) in schedulers.iter().zip(&record.schedulers).enumerate() {
        let column = Column {
            machine: own.machine.as_ref().map(|own| machine(&machine_of_column(index), own)).transpose()?,
            workload: own.workload.as_ref().map(|own| workload(&workload_of_column(index), own)).transpose()?,
            scheduler: column::asked(spec, &*place),
        };
        if !spec.circumstances().is_default() {
            columns.insert(index, column);
        }
    }
    let experiment = Experiment {
        machine: machine(MACHINE, &record.machine)?,
        workload: workload(WORKLOAD, &record.workload)?,
        actions: Vec::new(),
        schedulers,
        columns,
        baseline,
        seeds: record.seeds.clone(),
        options: record.options,
        metric: record.metric.clone(),
        margin: record.margin,
        observations: record.observations.clone(),
        advised: record.advised,
        place,
        kept_programs: Some(kept_programs(&record)),
    };
    let now = experiment.record_with(&mut |workload, column| {
        let name = column.map_or_else(|| WORKLOAD.to_owned(), workload_of_column);
        sums.get(&name).map_or_else(|| SubjectRecord::new(&workload.source, ""), |(now, _)| now.clone())
    });
    for ((name, then), (_, now)) in subjects(&record).into_iter().zip(subjects(&now)) {
        let there = match sums.get(&name) {
            Some((_, there)) => there.clone(),
            None => sha256(read(&name)?.as_bytes()),
        };
        // Neither what it means, nor a byte of it.
        if then.sha256 != now.sha256 || then.sha256 != there {
            return Err(ResumeError::Changed { file: path(&name) });
        }
    }
    if record != now {
        return Err(invalid(EXPERIMENT, "it does not say what its schedulers resolve to now".into()));
    }
    experiment.check().map_err(|error| invalid(EXPERIMENT, error.to_string()))?;
    Ok((experiment, now))
}

/// Every machine and workload of a record, by the name of its file.
fn subjects(record: &ExperimentRecord) -> Vec<(String, &SubjectRecord)> {
    let mut all = vec![(MACHINE.to_owned(), &record.machine), (WORKLOAD.to_owned(), &record.workload)];
    for (index, scheduler) in record.schedulers.iter().enumerate() {
        all.extend(scheduler.machine.as_ref().map(|own| (machine_of_column(index), own)));
        all.extend(scheduler.workload.as_ref().map(|own| (workload_of_column(index), own)));
    }
    all
}

/// Whether a directory was begun with this experiment, and has its files as they were written then.
///
/// # Errors
/// With the first file that is another.
pub fn check_same(directory: &RunDirectory, experiment: &Experiment) -> Result<(), ResumeError> {
    let record = experiment.record();
    let of_record = sha256(record.to_toml().as_bytes());
    let files = subjects(&record).into_iter().map(|(name, subject)| (name, &subject.sha256));
    for (name, sum) in std::iter::once((EXPERIMENT.to_owned(), &of_record)).chain(files) {
        let path = directory.path().join(name);
        if sha256_of_file(&path)? != *sum {
            return Err(ResumeError::Changed { file: path.display().to_string() });
        }
    }
    Ok(())
}

/// What programs were, by index of the scheduler.
fn kept_programs(record: &ExperimentRecord) -> BTreeMap<usize, ProgramRecord> {
    let all = record.schedulers.iter().enumerate();
    let kept = |(index, scheduler): (usize, &SchedulerRecord)| {
        let (sha256, files) = (scheduler.program_sha256.clone()?, scheduler.program_files.clone());
        Some((index, ProgramRecord { sha256, files }))
    };
    all.filter_map(kept).collect()
}

/// Makes a directory one whose run goes on: it does not look finished. Nothing in it is taken over that is not what this program wrote
/// there, and nothing is changed before that is known.
///
/// Returns the first missing file of each trial that is made again because of it.
///
/// # Errors
/// When this program or a scheduler's is not the one that the run was started with, a file is not what its list of checksums says, one
/// is missing that the experiment's place cannot make again, or the directory cannot be changed.
pub fn reopen(directory: &RunDirectory, experiment: &Experiment) -> Result<Vec<PathBuf>, ResumeError> {
    let path = directory.path().join(EXPERIMENT);
    let record: ExperimentRecord = toml::from_str(&directory.read(EXPERIMENT)?)
        .map_err(|error| ResumeError::Invalid { file: path.display().to_string(), reason: error.to_string() })?;
    let versions = directory.path().join(VERSIONS);
    let build: Build = serde_json::from_str(&directory.read(VERSIONS)?)
        .map_err(|error| ResumeError::Invalid { file: versions.display().to_string(), reason: error.to_string() })?;
    if build.program_sha256.as_deref() != Some(program_sha256()?) {
        return Err(ResumeError::Build);
    }
    let trials = |scheduler| (0..record.seeds.len()).map(move |number| trial_name(scheduler, number));
    let trials: Vec<String> = (0..record.schedulers.len()).flat_map(trials).collect();
    let run = directory.run_list()?;
    let mut summed = Summed::default();
    // What is wrong otherwise is said below.
    let mut is_whole = |trial: &str| match directory.trial_text(trial, run.as_ref()) {
        Ok(Some(_)) => {
            let verified = directory.verify_trial(trial, run.as_ref(), &mut summed, |_| true);
            !matches!(verified, Err(DirectoryError::Missing(_)))
        }
        found => found.is_err(),
    };
    for (index, then) in kept_programs(&record) {
        let spec = experiment.scheduler_of(index);
        let now = spec.program().and_then(ProgramRecord::now);
        // What is finished needs no program; a trial that has lost a file is made again.
        if let Some(what) = ProgramRecord::change(&then, now.as_ref())
            && !(0..record.seeds.len()).all(|number| is_whole(&trial_name(index, number)))
        {
            return Err(ResumeError::Program { scheduler: record.schedulers[index].label.clone(), what });
        }
    }
    Ok(directory.reopen(&trials, experiment.place.repeatable())?)
}
