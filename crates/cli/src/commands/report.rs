//! `warmcore report`: finished runs to look at, and the page that `compare` leaves in its run directory.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use warmcore_lab::directory::REPORT;
use warmcore_lab::files::{FileError, write_atomically};
use warmcore_report::perfetto::topology_json;
use warmcore_report::run::{Options, ReportError, Run};
use warmcore_report::{figures, html, text};

use crate::args::ReportArguments;
use crate::console::Console;
use crate::failure::Failure;
use crate::signals::Signals;

/// Engine events up to which `compare` simulates a trial again for its report: some seconds.
const COMPARE_RERUN_EVENTS: u64 = 10_000_000;

/// Runs the verb.
pub fn run(arguments: ReportArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let options = Options { scenes: !arguments.no_timeline, ..Options::default() };
    let runs = arguments
        .runs
        .iter()
        .map(|path| Run::load(path, &options, &signals.stop).map_err(|error| report_failure(&error, path, &signals)))
        .collect::<Result<Vec<_>, _>>()?;
    for (run, path) in runs.iter().zip(&arguments.runs) {
        for note in &run.notes {
            console.warn(&format!("{}: {note}", path.display()));
        }
    }
    if let Some(directory) = &arguments.svg {
        let count = write_figures(&runs, directory, arguments.force)?;
        console.note(&format!("{count} figures: {}", directory.display()));
    }
    if let Some(path) = &arguments.markdown {
        let text = text::markdown(&runs);
        if path == Path::new("-") {
            console.out(&text)?;
        } else {
            write_new(path, text.as_bytes(), arguments.force)?;
        }
    }
    if let Some(path) = &arguments.perfetto {
        for (run, directory) in runs.iter().zip(&arguments.runs) {
            write_traces(run, directory, path, runs.len() > 1, arguments.force, &signals, console)?;
        }
    }
    let others = arguments.svg.is_some() || arguments.markdown.is_some() || arguments.perfetto.is_some();
    if arguments.html.is_some() || arguments.open || !others {
        let path = write_page(&arguments, &runs)?;
        console.note(&format!("report: {}", path.display()));
        if arguments.open {
            open(&path)?;
        }
    }
    Ok(())
}

/// Writes the page; returns where it is.
fn write_page(arguments: &ReportArguments, runs: &[Run]) -> Result<PathBuf, Failure> {
    let page = html::page(runs);
    match (&arguments.html, arguments.runs.as_slice()) {
        (Some(path), _) => write_new(path, page.as_bytes(), arguments.force).map(|()| path.clone()),
        // It is made from the directory and belongs to it: an older one is replaced.
        (None, [run]) => {
            let path = run.join(REPORT);
            write_atomically(&path, page.as_bytes()).map_err(|error| file_failure(&error)).map(|()| path)
        }
        (None, _) => {
            Err(Failure::usage("warmcore::usage", "a page of several runs belongs to none of their directories")
                .help("name its file with --html FILE"))
        }
    }
}

/// Writes the page of a run that has just finished; returns where it is.
pub fn into_run_directory(directory: &Path, signals: &Signals) -> Result<PathBuf, Failure> {
    let options = Options { rerun_events: COMPARE_RERUN_EVENTS, ..Options::default() };
    let run =
        Run::load(directory, &options, &signals.stop).map_err(|error| report_failure(&error, directory, signals))?;
    let path = directory.join(REPORT);
    write_atomically(&path, html::page(&[run]).as_bytes()).map_err(|error| file_failure(&error))?;
    Ok(path)
}

/// Writes every figure as SVG and CSV; returns how many.
fn write_figures(runs: &[Run], directory: &Path, force: bool) -> Result<usize, Failure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::failed("warmcore::output", format!("cannot create {}: {error}", directory.display()))
    })?;
    let mut count = 0;
    for (index, run) in runs.iter().enumerate() {
        let prefix = if runs.len() > 1 { format!("run{}-", index + 1) } else { String::new() };
        for figure in figures::all(run) {
            let path = |ending: &str| directory.join(format!("{prefix}{}.{ending}", figure.id));
            write_new(&path("svg"), figure.svg.standalone(&figure.title).as_bytes(), force)?;
            write_new(&path("csv"), figure.csv.as_bytes(), force)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Writes the trial that the page looks at as Perfetto traces, and the topology beside each.
fn write_traces(
    run: &Run,
    directory: &Path,
    path: &Path,
    several_runs: bool,
    force: bool,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    if run.scenes.is_empty() {
        let message = format!("{}: there are no events of a trial to write", directory.display());
        return Err(Failure::failed("warmcore::report", message)
            .help("a run on a real kernel keeps its events with `--trace full`, the default of `compare --on vm`"));
    }
    let several = several_runs || run.scenes.len() > 1;
    let ending = path.extension().map_or_else(|| "pftrace".into(), |ending| ending.to_string_lossy());
    let stem = path.file_stem().map_or_else(|| "trace".into(), |stem| stem.to_string_lossy());
    let prefix =
        if several_runs { format!("-{}", figures::file_name(&directory.to_string_lossy())) } else { String::new() };
    for (index, scene) in run.scenes.iter().enumerate() {
        let name = format!("{stem}{prefix}-{}.{ending}", figures::file_name(&scene.scheduler));
        let file = if several { path.with_file_name(name) } else { path.to_owned() };
        write_new(
            &file.with_extension("topology.json"),
            topology_json(&run.disk.experiment.machine.value).as_bytes(),
            force,
        )?;
        if file.exists() && !force {
            return Err(exists(&file));
        }
        // Streamed under another name, so that a trace that was cut off is not taken for a whole one.
        let partial = file.with_extension("partial");
        let failed = |error: &dyn std::fmt::Display| {
            // The first error is the one to report.
            let _ = std::fs::remove_file(&partial);
            Failure::failed("warmcore::output", format!("cannot write {}: {error}", file.display()))
        };
        let out = std::fs::File::create(&partial).map_err(|error| failed(&error))?;
        let written = run.write_perfetto(index, BufWriter::new(out), &signals.stop);
        if signals.stop.load(std::sync::atomic::Ordering::Relaxed) {
            let _ = failed(&"interrupted");
            return Err(signals.failure("interrupted"));
        }
        written.map_err(|error| failed(&error))?;
        std::fs::rename(&partial, &file).map_err(|error| failed(&error))?;
        console
            .note(&format!("trace: {} (open it at ui.perfetto.dev, which keeps it on this computer)", file.display()));
    }
    Ok(())
}

fn exists(path: &Path) -> Failure {
    Failure::usage("warmcore::output", format!("{} exists already", path.display()))
        .help("name another one, or write over it with --force")
}

/// Writes a file that is not there yet, unless `force`.
fn write_new(path: &Path, bytes: &[u8], force: bool) -> Result<(), Failure> {
    if path.exists() && !force {
        return Err(exists(path));
    }
    write_atomically(path, bytes).map_err(|error| file_failure(&error))
}

fn file_failure(error: &FileError) -> Failure {
    let advice = error.advice();
    Failure::failed("warmcore::output", error).help(advice)
}

/// The failure for a run that cannot be shown.
fn report_failure(error: &ReportError, path: &Path, signals: &Signals) -> Failure {
    if signals.stop.load(std::sync::atomic::Ordering::Relaxed) {
        return signals.failure("interrupted; the run is complete, `warmcore report` makes its report later");
    }
    let (message, path) = (error.to_string(), path.display().to_string());
    let place = if message.contains(&path) { String::new() } else { format!("{path}: ") };
    let message = format!("{place}{message}");
    let failure = match error {
        ReportError::Read(_) => Failure::usage("warmcore::report", message),
        ReportError::Rerun { .. } | ReportError::Trace { .. } | ReportError::Write { .. } => {
            Failure::failed("warmcore::report", message)
        }
    };
    failure.help(error.advice())
}

/// Shows a page in the user's browser.
fn open(page: &Path) -> Result<(), Failure> {
    let viewer = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started =
        Command::new(viewer).arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    started.map(|_| ()).map_err(|error| {
        Failure::unable("warmcore::open", format!("cannot start {viewer}: {error}"))
            .help(format!("open it yourself: {}", page.display()))
    })
}
