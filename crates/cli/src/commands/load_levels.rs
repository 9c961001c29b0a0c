//! `warmcore compare --load`: the same comparison at several loads of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use warmcore_lab::directory::{self, RunDirectory};
use warmcore_lab::experiment::Experiment;
use warmcore_lab::runner::Conduct;
use warmcore_lab::verdict::ComparisonDocument;
use warmcore_search::load::{self as search, Loaded};
use warmcore_study::plan::PlannedExperiment;
use warmcore_workload::{LoadText, LoadTextError, load_text};

use crate::args::{CompareArguments, Keep};
use crate::commands::as_document;
use crate::commands::compare::{RUNS, conclude, directory_failure, experiment, leave, new_id, run_failure, warn};
use crate::commands::study;
use crate::console::Console;
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

/// What names of levels' run directories begin with.
const LEVEL: &str = "load-";

/// The document of `compare --load --json`.
#[derive(Serialize)]
struct LoadsDocument {
    /// What of the workload was scaled.
    scaled: &'static str,
    /// The baseline, under which utilisation was measured.
    baseline: String,
    levels: Vec<LevelDocument>,
}

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
    let before = match arguments.out.as_deref().filter(|out| out.exists()) {
        Some(out) => levels_in(out, console.force())?,
        None => Vec::new(),
    };
    let first = experiment(&arguments, console)?.experiment;
    let baseline = first.schedulers.get(first.baseline).map(ToString::to_string).unwrap_or_default();
    // All levels are found before the first comparison begins: one that cannot be reached is reported at once.
    let mut found: Vec<(f64, Loaded)> = Vec::new();
    let mut known = BTreeMap::new();
    for level in arguments.load.clone() {
        // A level named twice is one; so are those of one name, as directories have them.
        let same = found.iter().find(|(known, _)| decimal_percent(*known) == decimal_percent(level));
        if let Some((known, _)) = same {
            if *known != level {
                console.warn(&format!("two loads are {}; the first is compared", percent(level)));
            }
            continue;
        }
        console.note(&format!("looking for a load of {}", percent(level)));
        let loaded = find(&mut arguments, &scale, (level, &first), &mut known, signals, console)?;
        warn_of_miss(level, &loaded, scale.counts(), console);
        found.push((level, loaded));
    }
    let kept = arguments.keep != Keep::Nothing;
    // Those that were compared before are made again if that is asked for, whichever levels they were.
    if console.force() {
        before.iter().try_for_each(|path| directory::remove(path)).map_err(directory_failure)?;
    }
    let mut planned = Vec::new();
    for (level, loaded) in &found {
        arguments.workload = Some(scale.with(loaded.count));
        let built = experiment(&arguments, console)?;
        built.warnings.iter().for_each(|warning| console.warn(warning));
        let experiment = built.experiment;
        let own = match arguments.out {
            Some(_) => format!("{LEVEL}{}", decimal_percent(*level)),
            None => new_id(&experiment),
        };
        let study = format!("load {}", percent(*level));
        planned.push(PlannedExperiment { experiment, study, directory: Some(own.into()) });
    }
    let out = kept.then(|| arguments.out.as_deref().unwrap_or(Path::new(RUNS)));
    let what = format!("{} loads", planned.len());
    let comparisons = study::each(&what, &planned, out, signals, console, &mut |done, _| {
        load::warn_unmodelled(&done.experiment.workload.value, console);
        let comparison = conclude(&arguments, &done, signals, console)?;
        warn(&comparison, console);
        leave(&arguments, done.directory.as_ref().map(RunDirectory::path), signals, console)?;
        Ok(comparison)
    })?;
    let level = |((load, loaded), comparison): ((f64, Loaded), ComparisonDocument)| LevelDocument {
        load,
        count: loaded.count,
        workload: scale.with(loaded.count),
        utilisation: loaded.utilisation,
        comparison,
    };
    let document = LoadsDocument {
        scaled: scale.counts(),
        baseline,
        levels: found.into_iter().zip(comparisons).map(level).collect(),
    };
    if console.json() {
        return Ok(console.out(&as_document("warmcore-loads-1", &document))?);
    }
    let text =
        |level: &LevelDocument| format!("{}\n\n{}", line(level, &document), console.comparison(&level.comparison));
    Ok(console.out_words(&document.levels.iter().map(text).collect::<Vec<_>>().join("\n"))?)
}

/// Run directories of levels in a directory, which may hold something else only if `force` is given.
fn levels_in(out: &Path, force: bool) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::failed("warmcore::output", format!("{}: {error}", out.display()));
    let mut levels = Vec::new();
    for entry in fs::read_dir(out).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(LEVEL) && RunDirectory::view(&path).is_ok() {
            levels.push(path);
        } else if !force {
            return Err(Failure::usage("warmcore::directory", format!("{} holds something else", out.display()))
                .help("choose another --out"));
        }
    }
    Ok(levels)
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
        let bar = console.phase("measuring a load");
        let measured = search::utilisation(&built.experiment, &conduct);
        bar.finish_and_clear();
        measured.map_err(|error| run_failure(error, None, signals))
    };
    // Tasks that never sleep need a CPU each.
    let guess = (level * first.machine.value.cpu_count() as f64).round() as u64;
    search::find(level, (scale.first(guess).max(1), scale.most()), scale.counts(), known, measure)?.map_err(|error| {
        let advice = error.advice();
        Failure::usage("warmcore::load", error).help(advice)
    })
}

/// Says which load was found where it is not the one asked for.
fn warn_of_miss(level: f64, loaded: &Loaded, counts: &str, console: &Console) {
    if loaded.misses(level) {
        console.warn(&format!(
            "no number makes a load of {}: the closest found, {}, keeps {} busy",
            percent(level),
            search::counted(loaded.count, counts),
            percent(loaded.utilisation)
        ));
    }
}

/// What was scaled, and what was measured.
fn line(level: &LevelDocument, document: &LoadsDocument) -> String {
    format!(
        "load {}: {}; {} of the machine's CPU time is busy under {} ({})",
        percent(level.load),
        search::counted(level.count, document.scaled),
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
