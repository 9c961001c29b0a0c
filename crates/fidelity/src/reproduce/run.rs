//! Runs what a reproduction needs: equal machines and workloads become one experiment, whose schedulers share its
//! seeds.
//!
//! With a directory, every experiment has a run directory in it (`experiments/*`), which `warmcore report` and others
//! read like any other; what is finished there is not run again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::reproduce::check::{Check, Coverage, Run};
use crate::reproduce::document::{CheckResult, ReproductionDocument, RowResult};
use crate::reproduce::published::{PublishedFile, PublishedRow};
use crate::reproduce::sensitivity::Variation;
use crate::reproduce::{Reproduction, sensitivity};
use warmcore_lab::directory::{DirectoryError, Existing, RunDirectory};
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::{Experiment, ExperimentError, Named};
use warmcore_lab::runner::{self, Conduct, RunError};
use warmcore_lab::session::{self, SessionError};
use warmcore_lab::trial::Trial;
use warmcore_options::RunOptions;
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::Options;

/// Why a reproduction was not finished.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// A machine, workload or scheduler of a row cannot be made: of a row from a file, the row's fault.
    #[error("row {row}: {reason}")]
    Plan {
        /// Name of the row.
        row: String,
        /// Why.
        reason: String,
    },
    /// No row has a name that contains what was asked for.
    #[error("no row is called like `{wanted}`; the rows are {}", .known.join(", "))]
    NoSuchRow {
        /// What was asked for.
        wanted: String,
        /// Names of all rows.
        known: Vec<String>,
    },
    /// An experiment makes no sense.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A simulation failed or was interrupted.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Files of a run cannot be written.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A row and what stands for it.
pub struct PlannedRow {
    /// Name.
    pub id: String,
    /// As published.
    pub published: PublishedRow,
    /// What stands for it.
    pub coverage: Coverage,
}

/// The rows of a file whose names contain one of `wanted`; all if nothing is.
///
/// # Errors
/// When something wanted is in no name.
pub fn plan(
    reproduction: &Reproduction,
    file: &PublishedFile,
    wanted: &[String],
) -> Result<Vec<PlannedRow>, ReproduceError> {
    let ids = file.row_ids();
    if let Some(missed) = wanted.iter().find(|text| !ids.iter().any(|id| id.contains(text.as_str()))) {
        return Err(ReproduceError::NoSuchRow { wanted: missed.clone(), known: ids });
    }
    let chosen = |id: &String| wanted.is_empty() || wanted.iter().any(|text| id.contains(text.as_str()));
    let rows = ids.into_iter().zip(&file.rows).filter(|(id, _)| chosen(id));
    Ok(rows
        .map(|(id, row)| PlannedRow {
            id,
            published: row.clone(),
            coverage: (reproduction.cover)(file, row).if_known(),
        })
        .collect())
}

/// Every variation of the machines that the rows' simulations run on, and why some of them cannot be.
///
/// # Errors
/// When a machine cannot be made.
pub fn variations_of(rows: &[PlannedRow]) -> Result<(Vec<Variation>, Vec<String>), ReproduceError> {
    let mut found: Vec<Variation> = Vec::new();
    let mut impossible: Vec<String> = Vec::new();
    for row in rows {
        let Coverage::Checks(checks) = &row.coverage else { continue };
        for run in checks.iter().flat_map(|check| &check.runs) {
            let machine = warmcore_topology::resolve(&run.machine)
                .map_err(|error| ReproduceError::Plan { row: row.id.clone(), reason: error.to_string() })?;
            for variation in sensitivity::variations(&machine) {
                match variation.apply(&machine) {
                    Ok(_) if !found.contains(&variation) => found.push(variation),
                    Err(error) if !impossible.contains(&error.to_string()) => impossible.push(error.to_string()),
                    _ => {}
                }
            }
        }
    }
    Ok((found, impossible))
}

/// An experiment of a reproduction.
pub struct PlannedExperiment {
    /// Directory name.
    pub name: String,
    /// The experiment.
    pub experiment: Experiment,
    /// Which run each scheduler is.
    runs: Vec<Run>,
}

impl PlannedExperiment {
    /// Which of its schedulers is a scheduler's run of a workload; `None` if it has none.
    #[must_use]
    pub fn scheduler_of(&self, workload: &str, scheduler: &str) -> Option<usize> {
        self.runs.iter().position(|run| run.workload == workload && run.scheduler == scheduler)
    }
}

/// The experiments that the rows need, each machine and workload once; on machines with a variation if there is one.
///
/// # Errors
/// When a machine, workload or scheduler cannot be made.
pub fn experiments(
    rows: &[PlannedRow],
    seeds: &[u64],
    variation: Option<&Variation>,
) -> Result<Vec<PlannedExperiment>, ReproduceError> {
    let mut planned: Vec<PlannedExperiment> = Vec::new();
    for row in rows {
        let Coverage::Checks(checks) = &row.coverage else { continue };
        for run in checks.iter().flat_map(|check| &check.runs) {
            let plan_error = |reason: String| ReproduceError::Plan { row: row.id.clone(), reason };
            add_run(&mut planned, run, &row.id, seeds, variation).map_err(plan_error)?;
        }
    }
    Ok(planned)
}

fn add_run(
    planned: &mut Vec<PlannedExperiment>,
    run: &Run,
    row: &str,
    seeds: &[u64],
    variation: Option<&Variation>,
) -> Result<(), String> {
    let spec = SchedulerSpec::parse(&run.scheduler).map_err(|error| error.to_string())?;
    let same = |other: &Run| {
        (&other.machine, &other.workload, other.max_time_ns) == (&run.machine, &run.workload, run.max_time_ns)
            && other.observations == run.observations
    };
    if let Some(entry) = planned.iter_mut().find(|entry| same(&entry.runs[0])) {
        if !entry.runs.contains(run) {
            entry.experiment.schedulers.push(spec);
            entry.runs.push(run.clone());
        }
        return Ok(());
    }
    let machine = warmcore_topology::resolve(&run.machine).map_err(|error| error.to_string())?;
    let machine = match variation {
        None => Named { source: run.machine.clone(), value: machine },
        Some(variation) => Named {
            source: format!("{} with {}", run.machine, variation.name),
            value: variation.apply(&machine).map_err(|error| error.to_string())?,
        },
    };
    let no_files = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    let mut workload =
        warmcore_workload::resolve(&run.workload, &Options::default(), no_files).map_err(|error| error.to_string())?;
    if let Some(variation) = variation {
        variation.apply_to(&mut workload);
    }
    let workload = Named { source: run.workload.clone(), value: workload };
    let built = Experiment::builder(machine, workload)
        .schedulers(vec![spec])
        .seeds(seeds.to_vec())
        // Bands were set for whole runs.
        .options(RunOptions { max_time_ns: run.max_time_ns, warm_up_ns: Some(0), ..RunOptions::default() })
        .observations(run.observations.clone())
        .build()
        .map_err(|error| error.to_string())?;
    if let Some(warning) = built.warnings.into_iter().next() {
        return Err(warning);
    }
    let experiment = built.experiment;
    let name = format!("{:02}-{row}", planned.len() + 1);
    planned.push(PlannedExperiment { name, experiment, runs: vec![run.clone()] });
    Ok(())
}

/// How to run, which changes no result.
pub struct Means<'a> {
    /// Number of simulations at the same time.
    pub jobs: usize,
    /// Set by the caller to stop soon.
    pub stop: Arc<AtomicBool>,
    /// Called after each trial, from any worker.
    pub progress: &'a (dyn Fn(&Trial) + Sync),
    /// Directory for the run directories.
    pub out: Option<&'a Path>,
    /// The inventory of the host, which goes to every run directory.
    pub environment: &'a Environment,
}

/// Runs everything and compares.
///
/// # Errors
/// The first failure. What finished is in the directories.
pub fn run(
    reproduction: &Reproduction,
    rows: &[PlannedRow],
    experiments: &[PlannedExperiment],
    seeds: &[u64],
    means: &Means<'_>,
) -> Result<ReproductionDocument, ReproduceError> {
    let finished = experiments.iter().map(|planned| run_one(planned, means)).collect::<Result<Vec<_>, _>>()?;
    let trials_of = |run: &Run| -> &[Trial] {
        let found = experiments.iter().zip(&finished).find_map(|(planned, trials)| {
            planned.runs.iter().position(|other| other == run).map(|index| trials[index].as_slice())
        });
        found.unwrap_or_default()
    };
    let result = |check: &Check| CheckResult::new(check, &check.runs.iter().map(trials_of).collect::<Vec<_>>(), seeds);
    let rows = rows.iter().map(|row| {
        let (missing, checks) = match &row.coverage {
            Coverage::Checks(checks) => (None, checks.iter().map(result).collect()),
            Coverage::Missing(what) => (Some(what.clone()), Vec::new()),
        };
        RowResult { id: row.id.clone(), published: row.published.clone(), missing, checks }
    });
    Ok(ReproductionDocument::new(reproduction, seeds, rows.collect()))
}

/// Trials of one experiment by scheduler, in a run directory if there is a place for it.
fn run_one(planned: &PlannedExperiment, means: &Means<'_>) -> Result<Vec<Vec<Trial>>, ReproduceError> {
    planned.experiment.check()?;
    let directory = match means.out {
        None => None,
        Some(out) => {
            let directory = RunDirectory::create(&out.join("experiments").join(&planned.name), Existing::Refuse)?;
            session::begin(&directory, &planned.experiment)?;
            Some(directory)
        }
    };
    let conduct = Conduct { jobs: means.jobs, stop: Arc::clone(&means.stop), progress: means.progress };
    let finished = runner::run(&planned.experiment, directory.as_ref(), &conduct)?;
    if let Some(directory) = &directory {
        session::finish(directory, &planned.experiment, &finished.trials, None, means.environment)?;
    }
    Ok(finished.trials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::check::{Band, Figure, Stated};
    use crate::reproduce::{REPRODUCTIONS, find};
    use warmcore_lab::experiment::trial_seeds;

    #[test]
    fn every_published_row_is_planned_and_its_experiments_can_be_made() {
        for reproduction in &REPRODUCTIONS {
            let file = PublishedFile::parse(reproduction.text).unwrap();
            let rows = plan(reproduction, &file, &[]).unwrap();
            assert_eq!(rows.len(), file.rows.len(), "{}", reproduction.name);
            experiments(&rows, &[1], None).unwrap_or_else(|error| panic!("{}: {error}", reproduction.name));
        }
    }

    #[test]
    fn rows_are_chosen_by_a_part_of_their_names() {
        let reproduction = find("topology-rfc").unwrap();
        let file = PublishedFile::parse(reproduction.text).unwrap();
        let chosen = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
            plan(reproduction, &file, &wanted).map(|rows| rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["f16"]).unwrap(), ["hackbench-pipe-f16-g1", "hackbench-pipe-f16-g2"]);
        assert_eq!(chosen(&["f2-g1", "delete-t4"]).unwrap(), ["hackbench-pipe-f2-g1", "mysql-delete-t4"]);
        let error = chosen(&["f3"]).unwrap_err().to_string();
        assert!(error.contains("`f3`") && error.contains("schbench-t2"), "{error}");
    }

    #[test]
    fn runs_that_differ_in_the_scheduler_share_an_experiment() {
        let run = |scheduler: &str| Run::new("2s1n1l2c1t", "spin:-n2,-d1ms", scheduler);
        let check = |schedulers: [&'static str; 2]| {
            Check::ratio("t", schedulers.map(run), Figure::Ratio("work_ns"), Stated::Words, Band::at_least(0.0, ""))
        };
        let file = PublishedFile::parse(find("ule-cfs").unwrap().text).unwrap();
        let row = |id: &str, checks| PlannedRow {
            id: id.into(),
            published: file.rows[0].clone(),
            coverage: Coverage::Checks(checks),
        };
        let rows = vec![row("a", vec![check(["cfs", "eevdf"])]), row("b", vec![check(["eevdf", "rr"])])];
        let seeds = trial_seeds(1, 2);
        let experiments = experiments(&rows, &seeds, None).unwrap();
        assert_eq!(experiments.len(), 1);
        assert_eq!(experiments[0].experiment.schedulers.len(), 3);

        let out = tempfile::tempdir().unwrap();
        let environment = Environment::at_start(Vec::new(), 1, 0);
        let means = Means {
            jobs: 1,
            stop: Arc::default(),
            progress: &|_| {},
            out: Some(out.path()),
            environment: &environment,
        };
        let document = super::run(find("ule-cfs").unwrap(), &rows, &experiments, &seeds, &means).unwrap();
        assert_eq!(document.totals.inside, 2);
        assert!(document.rows.iter().flat_map(|row| &row.checks).all(|check| check.points.len() == 2));
        RunDirectory::open(&out.path().join("experiments/01-a")).unwrap().verify().unwrap();
    }
}
