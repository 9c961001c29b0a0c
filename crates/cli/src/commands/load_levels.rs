//! `warmcore compare --load`: the same comparison at several loads of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use warmcore_lab::directory::{self, RunDirectory};
use warmcore_lab::experiment::{Experiment, TOOL_VERSION};
use warmcore_lab::runner::Conduct;
use warmcore_lab::session::pretty;
use warmcore_lab::verdict::ComparisonDocument;
use warmcore_search::load::{self as search, Loaded};
use warmcore_workload::{LoadText, LoadTextError, load_text};

use crate::args::CompareArguments;
use crate::commands::compare::{
    begin, conclude, directory_failure, experiment, leave, run_failure, unix_seconds, warn,
};
use crate::console::Console;
use crate::failure::Failure;
use crate::signals::Signals;

/// Version of the document.
const SCHEMA: &str = "warmcore-loads-1";

/// The document of `compare --load --json`.
#[derive(Serialize)]
struct LoadsDocument {
    schema: &'static str,
    tool_version: &'static str,
    /// What of the workload was scaled.
    scaled: &'static str,
    /// The baseline, under which utilisation was measured.
    baseline: String,
    levels: Vec<LevelDocument>,
}

/// One level.
#[derive(Serialize)]
struct LevelDocument {
    /// The busy share asked for, 0..1.
    load: f64,
    /// How many of what is scaled.
    count: u64,
    /// The workload that this makes.
    workload: String,
    /// The busy share that was measured, in the first trial under the baseline.
    utilisation: f64,
    comparison: ComparisonDocument,
}

/// Runs the comparison at every level.
pub fn run(mut arguments: CompareArguments, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let typed = arguments.workload.clone().unwrap_or_default();
    let scale = load_text(&typed).map_err(|error| match error {
        LoadTextError::Text(_) => Failure::usage("warmcore::load", error),
        error => Failure::usage("warmcore::load", error).help(LoadTextError::advice()),
    })?;
    if !arguments.on.kind.simulated {
        let words = "the load of a workload is found in simulations, and --on names another place";
        return Err(Failure::usage("warmcore::load", words).help("leave out --on, or --load"));
    }
    let first = experiment(&arguments, console)?.experiment;
    let baseline = first.schedulers.get(first.baseline).map(ToString::to_string).unwrap_or_default();
    // All levels are found before the first comparison begins: one that cannot be reached is told at once.
    let mut found: Vec<(f64, Loaded)> = Vec::new();
    let mut known = BTreeMap::new();
    for level in arguments.load.clone() {
        // A level named twice is one.
        if found.iter().any(|(known, _)| *known == level) {
            continue;
        }
        console.note(&format!("looking for a load of {}", percent(level)));
        found.push((level, find(&mut arguments, &scale, (level, &first), &mut known, signals, console)?));
    }
    let out = arguments.out.clone();
    if let (Some(out), false) = (&out, console.force())
        && out.exists()
    {
        return Err(Failure::usage("warmcore::directory", format!("{} exists already", out.display()))
            .help("give another directory with --out, or replace its runs with --force"));
    }
    if let Some(out) = out.as_deref().filter(|out| out.exists()) {
        remove_levels(out)?;
    }
    let mut document = LoadsDocument {
        schema: SCHEMA,
        tool_version: TOOL_VERSION,
        scaled: scale.counts(),
        baseline,
        levels: Vec::new(),
    };
    for (level, loaded) in found {
        let workload = scale.with(loaded.count);
        arguments.workload = Some(workload.clone());
        if let Some(out) = &out {
            fs::create_dir_all(out)
                .map_err(|error| Failure::failed("warmcore::output", format!("{}: {error}", out.display())))?;
            arguments.out = Some(out.join(format!("load-{}", decimal_percent(level))));
        }
        let started = unix_seconds();
        let (experiment, directory) = begin(&arguments, started, console)?;
        let comparison = conclude(&arguments, &experiment, directory.as_ref(), started, signals, console)?;
        warn(&comparison, console);
        let level =
            LevelDocument { load: level, count: loaded.count, workload, utilisation: loaded.utilisation, comparison };
        if !console.json() {
            let gap = if document.levels.is_empty() { "" } else { "\n" };
            let table = console.comparison(&level.comparison);
            console.out(&format!("{gap}{}\n\n{table}", line(&level, &document)))?;
        }
        leave(&arguments, directory.as_ref(), signals, console)?;
        document.levels.push(level);
    }
    if console.json() {
        console.out(&pretty(&document))?;
    }
    Ok(())
}

/// Removes the runs of the levels that were compared before, whichever they were.
fn remove_levels(out: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::failed("warmcore::output", format!("{}: {error}", out.display()));
    for entry in fs::read_dir(out).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_level = entry.file_name().to_string_lossy().starts_with("load-");
        if is_level && RunDirectory::view(&entry.path()).is_ok() {
            directory::remove(&entry.path()).map_err(directory_failure)?;
        }
    }
    Ok(())
}

/// The number for a level.
fn find(
    arguments: &mut CompareArguments,
    scale: &LoadText,
    (level, first): (f64, &Experiment),
    known: &mut BTreeMap<u64, f64>,
    signals: &Signals,
    console: &Console,
) -> Result<Loaded, Failure> {
    let conduct = Conduct { jobs: console.jobs(), stop: Arc::clone(&signals.stop), progress: &|_| {} };
    let measure = |count: u64| {
        arguments.workload = Some(scale.with(count));
        let built = experiment(arguments, console)?;
        search::utilisation(&built.experiment, &conduct).map_err(|error| run_failure(error, None, signals))
    };
    // Tasks that never sleep need a CPU each.
    let guess = (level * first.machine.value.cpu_count() as f64).round() as u64;
    search::find(level, (scale.first(guess).max(1), scale.most()), scale.counts(), known, measure)?.map_err(|error| {
        let advice = error.advice();
        Failure::usage("warmcore::load", error).help(advice)
    })
}

/// What was scaled, and what was measured.
fn line(level: &LevelDocument, document: &LoadsDocument) -> String {
    format!(
        "load {}: {} {}; {} of the machine's CPU time is busy under {} ({})",
        percent(level.load),
        level.count,
        document.scaled,
        percent(level.utilisation),
        document.baseline,
        level.workload
    )
}

fn percent(share: f64) -> String {
    format!("{} %", decimal_percent(share))
}

/// A share in per cent, with a decimal where it has one.
fn decimal_percent(share: f64) -> String {
    let text = format!("{:.1}", share * 100.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
