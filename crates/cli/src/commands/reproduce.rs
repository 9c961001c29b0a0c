//! `warmcore reproduce`: published measurements, simulated and compared row by row.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::{TOOL_VERSION, trial_seeds};
use warmcore_lab::files::{FileError, write_atomically};
use warmcore_lab::reproduce::check::Coverage;
use warmcore_lab::reproduce::document::ReproductionDocument;
use warmcore_lab::reproduce::published::PublishedFile;
use warmcore_lab::reproduce::run::{self, Means, PlannedExperiment, ReproduceError};
use warmcore_lab::reproduce::{REPRODUCTIONS, Reproduction, find};
use warmcore_lab::session::pretty;

use crate::args::ReproduceArguments;
use crate::commands::compare::{available_jobs, directory_failure, run_failure, session_failure, unix_seconds};
use crate::commands::reproduce_table;
use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::signals::Signals;

/// Trials of `--quick`.
const QUICK_TRIALS: u32 = 2;

/// Runs the verb.
pub fn run(arguments: &ReproduceArguments, console: &Console) -> Result<(), Failure> {
    if arguments.name == "list" {
        return list(arguments.json, console);
    }
    let reproduction = find(&arguments.name).ok_or_else(|| {
        let names: Vec<&str> = REPRODUCTIONS.iter().map(|reproduction| reproduction.name).collect();
        Failure::usage("warmcore::reproduce", format!("there is no reproduction `{}`", arguments.name))
            .help(format!("there are {}", names.join(", ")))
    })?;
    let document = reproduce(reproduction, arguments, console)?;
    let text = match (arguments.json, arguments.markdown) {
        (true, _) => pretty(&document),
        (_, true) => reproduce_table::markdown(&document),
        _ => reproduce_table::text(&document, console),
    };
    console.out(&text)?;
    if document.holds() {
        return Ok(());
    }
    let failure = Failure::new(Class::Check, "warmcore::reproduce", reproduce_table::conclusion(&document));
    Err(failure.help("docs/reproductions.md says what is known about rows outside their bands"))
}

fn reproduce(
    reproduction: &Reproduction,
    arguments: &ReproduceArguments,
    console: &Console,
) -> Result<ReproductionDocument, Failure> {
    let signals = Signals::listen()?;
    let started = unix_seconds();
    let file = published(reproduction, arguments.published.as_deref())?;
    let seeds = trial_seeds(arguments.seed, if arguments.quick { QUICK_TRIALS } else { arguments.trials });
    let rows = run::plan(reproduction, &file, &arguments.rows).map_err(|error| failure(error, &signals))?;
    let experiments = run::experiments(&rows, &seeds).map_err(|error| failure(error, &signals))?;
    if let Some(out) = &arguments.out {
        make_directory(out)?;
    }
    let jobs = arguments.jobs.map_or_else(available_jobs, usize::from);
    let total: usize = experiments.iter().map(simulations).sum();
    console.note(&format!("{}: {} rows, {total} simulations, {jobs} at a time", reproduction.name, rows.len()));

    let mut environment = Environment::at_start(std::env::args().collect(), jobs, started);
    let bar = console.progress(total, "simulations");
    let means = Means {
        jobs,
        stop: Arc::clone(&signals.stop),
        progress: &|_| bar.inc(1),
        out: arguments.out.as_deref(),
        environment: &environment,
    };
    let document = run::run(reproduction, rows, &experiments, &seeds, &means);
    bar.finish_and_clear();
    let document = document.map_err(|error| failure(error, &signals))?;
    if let Some(out) = &arguments.out {
        environment.at_end(unix_seconds(), total, 0.0);
        keep(out, &document, &environment).map_err(file_failure)?;
        console.note(&format!("directory: {}", out.display()));
    }
    Ok(document)
}

fn simulations(planned: &PlannedExperiment) -> usize {
    planned.experiment.schedulers.len() * planned.experiment.seeds.len()
}

/// The figures: the built-in ones, or those of a file in the same format.
fn published(reproduction: &Reproduction, path: Option<&Path>) -> Result<PublishedFile, Failure> {
    let read;
    let (text, name) = match path {
        None => (reproduction.text, format!("published/{}.toml", reproduction.name)),
        Some(path) => {
            read = fs::read_to_string(path).map_err(|error| Failure::cannot_read(path, &error))?;
            (read.as_str(), path.display().to_string())
        }
    };
    PublishedFile::parse(text).map_err(|error| {
        Failure::usage("warmcore::published", format!("{name}: {error}"))
            .help("published/README.md explains the format")
    })
}

/// A directory that does not exist yet or is empty.
fn make_directory(path: &Path) -> Result<(), Failure> {
    if path.exists() && !fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) {
        return Err(Failure::usage("warmcore::directory", format!("{} exists and is not empty", path.display()))
            .help("choose another --out"));
    }
    fs::create_dir_all(path).map_err(|error| {
        Failure::failed("warmcore::directory", format!("cannot create {}: {error}", path.display()))
            .help("choose a place this user may write to, with --out DIR")
    })
}

/// Writes the result in its three forms.
fn keep(out: &Path, document: &ReproductionDocument, environment: &Environment) -> Result<(), FileError> {
    for (name, text) in [
        ("reproduction.json", pretty(document)),
        ("reproduction.md", reproduce_table::markdown(document)),
        ("reproduction.txt", reproduce_table::plain(document)),
        ("environment.json", pretty(environment)),
    ] {
        write_atomically(&out.join(name), text.as_bytes())?;
    }
    Ok(())
}

fn file_failure(error: FileError) -> Failure {
    let advice = error.advice();
    Failure::failed("warmcore::files", error).help(advice)
}

fn failure(error: ReproduceError, signals: &Signals) -> Failure {
    match error {
        ReproduceError::Plan { .. } => Failure::usage("warmcore::reproduce", &error)
            .help("`warmcore machine list`, `workload list` and `schedulers list` show what there is"),
        ReproduceError::NoSuchRow { .. } => {
            Failure::usage("warmcore::reproduce", &error).help("--rows takes parts of rows' names, with commas")
        }
        ReproduceError::Experiment(_) => Failure::usage("warmcore::reproduce", &error),
        ReproduceError::Run(error) => run_failure(error, None, signals),
        ReproduceError::Directory(error) => directory_failure(error),
        ReproduceError::Session(error) => session_failure(error),
    }
}

/// A line of `list`.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    rows: usize,
    simulated: usize,
}

#[derive(Serialize)]
struct List {
    schema: &'static str,
    tool_version: &'static str,
    reproductions: Vec<Listed>,
}

fn list(json: bool, console: &Console) -> Result<(), Failure> {
    let mut reproductions = Vec::new();
    for reproduction in &REPRODUCTIONS {
        let file = published(reproduction, None)?;
        let covered = |row| matches!((reproduction.cover)(&file, row), Coverage::Checks(_));
        reproductions.push(Listed {
            name: reproduction.name,
            summary: reproduction.summary,
            source: reproduction.source,
            rows: file.rows.len(),
            simulated: file.rows.iter().filter(|row| covered(row)).count(),
        });
    }
    if json {
        let list = List { schema: "warmcore-reproductions-1", tool_version: TOOL_VERSION, reproductions };
        return Ok(console.out(&pretty(&list))?);
    }
    let mut table = Table::new(["reproduction", ">rows", ">simulated", "what it is"]);
    for listed in reproductions {
        let row = [listed.name.into(), listed.rows.to_string(), listed.simulated.to_string(), listed.summary.into()];
        table.row(row);
    }
    Ok(console.out(&console.table(&table))?)
}
