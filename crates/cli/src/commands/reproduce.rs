//! `warmcore reproduce`: published measurements, simulated and compared row by row.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use warmcore_fidelity::reproduce::check::Coverage;
use warmcore_fidelity::reproduce::document::ReproductionDocument;
use warmcore_fidelity::reproduce::figures::Drawing;
use warmcore_fidelity::reproduce::published::PublishedFile;
use warmcore_fidelity::reproduce::run::{self, Means, PlannedExperiment, PlannedRow, ReproduceError};
use warmcore_fidelity::reproduce::sensitivity::{SensitivityDocument, Variation};
use warmcore_fidelity::reproduce::{REPRODUCTIONS, Reproduction, find};
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::{TOOL_VERSION, trial_seeds};
use warmcore_lab::files::{FileError, create_directory, text_of_file, write_atomically};
use warmcore_lab::session::pretty;
use warmcore_report::figures;
use warmcore_report::gallery::{self, Exhibit};
use warmcore_report::run::{Options, Run};

use crate::args::ReproduceArguments;
use crate::commands::compare::{available_jobs, directory_failure, run_failure, session_failure, unix_seconds};
use crate::commands::report::report_failure;
use crate::commands::{reproduce_contention, reproduce_table};
use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::signals::Signals;

/// The source whose runs are not experiments.
const CONTENTION: &str = "cdf-dio";

/// The page of figures in the directory.
const GALLERY: &str = "figures.html";

/// Trials of `--quick`.
const QUICK_TRIALS: u32 = 2;

/// Runs the verb.
pub fn run(arguments: &ReproduceArguments, console: &Console) -> Result<(), Failure> {
    if arguments.name == "list" {
        return list(arguments.batch.json, console);
    }
    let reproduction = find(&arguments.name).ok_or_else(|| {
        let names: Vec<&str> = REPRODUCTIONS.iter().map(|reproduction| reproduction.name).collect();
        Failure::usage("warmcore::reproduce", format!("there is no reproduction `{}`", arguments.name))
            .help(format!("there are {}", names.join(", ")))
    })?;
    let signals = Signals::listen()?;
    let work = Work::new(reproduction, arguments, &signals)?;
    if let Some(out) = &arguments.batch.out {
        make_directory(out)?;
    }
    if arguments.sensitivity {
        return sensitivity(&work, arguments, console);
    }
    let document = work.run(None, arguments.batch.out.as_deref(), console)?;
    if let Some(out) = &arguments.batch.out {
        let count = if reproduction.name == CONTENTION {
            let (seed, trials) = (arguments.batch.seed, work.seeds.len() as u32);
            reproduce_contention::write(out, reproduction.source, seed, trials, work.jobs)?
        } else {
            draw(&work, out)?
        };
        if count > 0 {
            console.note(&format!("{count} figures of the source: {}", out.join(GALLERY).display()));
        }
        console.note(&format!("directory: {}", out.display()));
    }
    let text = match (arguments.batch.json, arguments.batch.markdown) {
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

/// What is to be simulated.
struct Work<'a> {
    reproduction: &'static Reproduction,
    rows: Vec<PlannedRow>,
    seeds: Vec<u64>,
    jobs: usize,
    signals: &'a Signals,
}

impl<'a> Work<'a> {
    fn new(
        reproduction: &'static Reproduction,
        arguments: &ReproduceArguments,
        signals: &'a Signals,
    ) -> Result<Self, Failure> {
        let file = published(reproduction, arguments.published.as_deref())?;
        let seeds = trial_seeds(arguments.batch.seed, if arguments.quick { QUICK_TRIALS } else { arguments.trials });
        let rows = run::plan(reproduction, &file, &arguments.rows).map_err(|error| failure(error, signals))?;
        let jobs = arguments.batch.jobs.map_or_else(available_jobs, usize::from);
        let work = Self { reproduction, rows, seeds, jobs, signals };
        // What cannot be made is told before anything is written.
        work.experiments(None)?;
        Ok(work)
    }

    fn experiments(&self, variation: Option<&Variation>) -> Result<Vec<PlannedExperiment>, Failure> {
        run::experiments(&self.rows, &self.seeds, variation).map_err(|error| failure(error, self.signals))
    }

    /// Simulates all rows, on machines with a variation if there is one.
    fn run(
        &self,
        variation: Option<&Variation>,
        out: Option<&Path>,
        console: &Console,
    ) -> Result<ReproductionDocument, Failure> {
        let experiments = self.experiments(variation)?;
        let total: usize = experiments.iter().map(simulations).sum();
        let what = variation.map_or(String::new(), |variation| format!(", {}", variation.name));
        let name = self.reproduction.name;
        console.note(&format!("{name}{what}: {} rows, {total} simulations, {} at a time", self.rows.len(), self.jobs));
        let mut environment = Environment::at_start(std::env::args().collect(), self.jobs, unix_seconds());
        let bar = console.progress(total, "simulations");
        let means = Means {
            jobs: self.jobs,
            stop: Arc::clone(&self.signals.stop),
            progress: &|_| bar.inc(1),
            out,
            environment: &environment,
        };
        let document = run::run(self.reproduction, &self.rows, &experiments, &self.seeds, &means);
        bar.finish_and_clear();
        let document = document.map_err(|error| failure(error, self.signals))?;
        if let Some(out) = out {
            environment.at_end(unix_seconds(), total, 0.0);
            keep(out, &document, &environment).map_err(file_failure)?;
        }
        Ok(document)
    }
}

/// The rows as they are, and with every variation of their machines.
fn sensitivity(work: &Work<'_>, arguments: &ReproduceArguments, console: &Console) -> Result<(), Failure> {
    let directory = |name: &str| arguments.batch.out.as_ref().map(|out| out.join(name));
    let unchanged = work.run(None, directory("unchanged").as_deref(), console)?;
    let mut varied = Vec::new();
    let (variations, impossible) = run::variations_of(&work.rows).map_err(|error| failure(error, work.signals))?;
    for reason in &impossible {
        console.warn(&format!("left out: {reason}"));
    }
    for variation in variations {
        let out = directory(&format!("variation-{:02}", varied.len() + 1));
        let document = work.run(Some(&variation), out.as_deref(), console)?;
        varied.push((variation, document));
    }
    let document = SensitivityDocument::new(&unchanged, &varied);
    if let Some(out) = &arguments.batch.out {
        for (name, text) in [
            ("sensitivity.json", pretty(&document)),
            ("sensitivity.md", reproduce_table::sensitivity_markdown(&document)),
        ] {
            write_atomically(&out.join(name), text.as_bytes()).map_err(file_failure)?;
        }
        console.note(&format!("directory: {}", out.display()));
    }
    let text = match (arguments.batch.json, arguments.batch.markdown) {
        (true, _) => pretty(&document),
        (_, true) => reproduce_table::sensitivity_markdown(&document),
        _ => reproduce_table::sensitivity_text(&document, console),
    };
    Ok(console.out(&text)?)
}

/// Draws the source's figures from the runs in the directory, each as SVG with its data, and all of them on a page; returns how
/// many.
fn draw(work: &Work<'_>, out: &Path) -> Result<usize, Failure> {
    let experiments = work.experiments(None)?;
    let mut loaded: Option<(&str, Run)> = None;
    let mut exhibits = Vec::new();
    for wanted in work.reproduction.figures {
        // A figure whose row was not asked for has no run.
        let found = experiments.iter().find_map(|planned| {
            Some((planned.name.as_str(), planned.scheduler_of(wanted.workload, wanted.scheduler)?))
        });
        let Some((name, scheduler)) = found else { continue };
        if loaded.as_ref().is_none_or(|(other, _)| *other != name) {
            let path = out.join("experiments").join(name);
            let run = Run::load(&path, &Options::default(), &work.signals.stop)
                .map_err(|error| report_failure(&error, &path, work.signals))?;
            loaded = Some((name, run));
        }
        let Some((_, run)) = &loaded else { continue };
        let scene = &run.scenes[scheduler];
        let axes = figures::Axes::of(&run.scenes);
        let figure = match wanted.drawing {
            Drawing::RunTimeOfApplications => figures::lines::cumulative_by_application(scheduler, scene),
            Drawing::RunTimeOfTasks => figures::lines::cumulative(scheduler, scene, &axes),
            Drawing::Score(score) => figures::lines::scores(scheduler, scene, &axes)
                .into_iter()
                .find(|figure| figure.id.ends_with(&format!("-{}", figures::file_name(score)))),
            Drawing::TasksPerCpu => {
                Some(figures::time::threads_per_cpu(scheduler, scene, &run.disk.experiment.machine.value, &axes))
            }
        };
        let figure = figure.ok_or_else(|| {
            Failure::failed("warmcore::reproduce", format!("{}: the run of {name} has nothing to draw", wanted.id))
        })?;
        let heading = format!("{}: {}", wanted.id.replace("figure-", "Figure "), wanted.title);
        exhibits.push((wanted.id, Exhibit { heading, words: wanted.published.to_owned(), figure }));
    }
    let directory = out.join("figures");
    for (id, exhibit) in &exhibits {
        create_directory(&directory).map_err(file_failure)?;
        let svg = exhibit.figure.svg.standalone(&exhibit.heading);
        write_atomically(&directory.join(format!("{id}.svg")), svg.as_bytes()).map_err(file_failure)?;
        write_atomically(&directory.join(format!("{id}.csv")), exhibit.figure.csv.as_bytes()).map_err(file_failure)?;
    }
    if !exhibits.is_empty() {
        let title = format!("{}: figures", work.reproduction.name);
        let introduction =
            format!("{}. What was published in words, and what the first trial gives.", work.reproduction.source);
        let exhibits: Vec<Exhibit> = exhibits.iter().map(|(_, exhibit)| exhibit.clone()).collect();
        let page = gallery::page(&title, &introduction, &exhibits);
        write_atomically(&out.join(GALLERY), page.as_bytes()).map_err(file_failure)?;
    }
    Ok(exhibits.len())
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
            read = text_of_file(path).map_err(|error| Failure::cannot_read(path, &error))?;
            (read.as_str(), path.display().to_string())
        }
    };
    PublishedFile::parse(text).map_err(|error| {
        Failure::usage("warmcore::published", format!("{name}: {error}"))
            .help("published/README.md explains the format")
    })
}

/// A directory that does not exist yet or is empty.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
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
    create_directory(out)?;
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
        let covered = |row| matches!((reproduction.cover)(&file, row).if_known(), Coverage::Checks(_));
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
