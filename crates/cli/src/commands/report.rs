//! `warmcore report`: finished runs to look at, and the page that `compare` leaves in its run directory.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warmcore_lab::directory::REPORT;
use warmcore_lab::experiment::{Experiment, ExperimentRecord};
use warmcore_lab::files::{create_directory, write_atomically};
use warmcore_lab::reading::RunOnDisk;
use warmcore_report::figures::Figure;
use warmcore_report::history::Form;
use warmcore_report::lesson::{self, LessonError};
use warmcore_report::perfetto::topology_json;
use warmcore_report::run::{ReportError, ReportOptions, Run};
use warmcore_report::{figures, html, pdf, text};

use crate::args::{FigureWanted, ReportArguments};
use crate::commands::recording::Imported;
use crate::commands::{WrittenFile, check_new, print_written, write_new};
use crate::console::Console;
use crate::failure::Failure;
use crate::signals::Signals;

/// Engine events up to which `compare` simulates a trial again for its report: some seconds.
const COMPARE_RERUN_EVENTS: u64 = 10_000_000;

pub fn run(mut arguments: ReportArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    // Files of other recorders become run directories that are removed at the end.
    let mut imported: Vec<Imported> = Vec::new();
    let is_file = |path: &Path| path.exists() && !path.is_dir();
    for (number, path) in arguments.runs.iter_mut().enumerate().filter(|(_, path)| is_file(path)) {
        let made = Imported::new(path, number, &signals, console)?;
        made.path().clone_into(path);
        imported.push(made);
    }
    check_outputs(&arguments, console)?;
    let traces = [(EventsFormat::Perfetto, &arguments.perfetto), (EventsFormat::Lines, &arguments.events)];
    let traces: Vec<(EventsFormat, &Path)> =
        traces.into_iter().filter_map(|(format, path)| Some((format, path.as_deref()?))).collect();
    let figures = arguments.svg.is_some() || arguments.pdf.is_some();
    let others = figures || arguments.markdown.is_some() || arguments.lesson.is_some() || !traces.is_empty();
    let page = arguments.html.is_some() || !others;
    if page && arguments.html.is_none() && !imported.is_empty() {
        return Err(Failure::usage("warmcore::usage", "a recording's file has no directory for its page")
            .help("name the page with --html FILE"));
    }
    // The Markdown is made of the trials' numbers alone: damaged events are no reason to refuse it.
    let drawn = page || figures || arguments.lesson.is_some() || !traces.is_empty();
    let scenes = !arguments.no_timeline && drawn;
    let options = ReportOptions { scenes, ..ReportOptions::default() };
    let bar = console.progress(arguments.runs.len(), "runs loaded");
    let loaded = arguments
        .runs
        .iter()
        .map(|path| {
            let run = Run::load(path, &options, &signals.stop);
            bar.inc(1);
            run.map_err(|error| report_failure(&error, path, &signals))
        })
        .collect::<Result<Vec<_>, _>>();
    bar.finish_and_clear();
    let runs = loaded?;
    for (run, path) in runs.iter().zip(&arguments.runs) {
        for note in &run.notes {
            console.warn(&format!("{}: {note}", path.display()));
        }
    }
    let mut written = Vec::new();
    for (kind, path) in [(FigureFormat::Svg, &arguments.svg), (FigureFormat::Pdf, &arguments.pdf)] {
        let Some(path) = path else { continue };
        if let Some(FigureWanted { name, width }) = &arguments.figure {
            write_figure(&runs, name, width.as_deref(), (kind, path), console.force())?;
            console.note(&format!("figure: {}", path.display()));
            written.push(WrittenFile::new("figure", path));
        } else {
            let count = write_figures(&runs, kind, path, console.force())?;
            console.note(&format!("{count} figures: {}", path.display()));
            written.push(WrittenFile::new("figures", path));
        }
    }
    if let Some(path) = &arguments.markdown {
        let text = text::markdown(&runs);
        if path == Path::new("-") {
            console.out(&text)?;
        } else {
            write_new(path, text.as_bytes(), console.force())?;
            written.push(WrittenFile::new("markdown", path));
        }
    }
    if let Some(path) = &arguments.lesson {
        let [run] = runs.as_slice() else {
            return Err(Failure::usage("warmcore::usage", "a lesson is about one run").help("name one run directory"));
        };
        write_lesson(run, path, console.force(), &signals, console)?;
        written.push(WrittenFile::new("lesson", path));
    }
    for (format, path) in traces {
        write_traces(format, &runs, &arguments, path, &signals, console, &mut written)?;
    }
    if page {
        let bar = console.phase("drawing the page");
        let path = write_page(&arguments, &runs, console.force());
        bar.finish_and_clear();
        let path = path?;
        console.note(&format!("report: {}", path.display()));
        written.push(WrittenFile::new("page", &path));
    }
    if console.json() { print_written(&written, None, console) } else { Ok(()) }
}

/// Whether what is asked for together goes together.
fn check_outputs(arguments: &ReportArguments, console: &Console) -> Result<(), Failure> {
    let figures = arguments.svg.is_some() || arguments.pdf.is_some();
    if arguments.figure.is_some() && !figures {
        return Err(Failure::usage("warmcore::usage", "--figure does not say where the figure goes")
            .help("name its file with --svg FILE or --pdf FILE"));
    }
    let others = [&arguments.markdown, &arguments.perfetto, &arguments.events];
    if console.json() && others.into_iter().flatten().any(|path| path == Path::new("-")) {
        return Err(Failure::usage("warmcore::usage", "standard output is for the document of --json")
            .help("name a file instead of `-`"));
    }
    Ok(())
}

/// Writes the page; returns where it is.
fn write_page(arguments: &ReportArguments, runs: &[Run], force: bool) -> Result<PathBuf, Failure> {
    let page = html::page(runs);
    match (&arguments.html, arguments.runs.as_slice()) {
        (Some(path), _) => write_new(path, page.as_bytes(), force).map(|()| path.clone()),
        // It is made from the directory and belongs to it: an older one is replaced.
        (None, [run]) => {
            let path = run.join(REPORT);
            write_atomically(&path, page.as_bytes()).map(|()| path).map_err(Failure::from)
        }
        (None, _) => {
            Err(Failure::usage("warmcore::usage", "a page of several runs belongs to none of their directories")
                .help("name its file with --html FILE"))
        }
    }
}

/// Writes the page of a run that has just finished; returns where it is.
pub fn into_run_directory(directory: &Path, signals: &Signals, console: &Console) -> Result<PathBuf, Failure> {
    // The timeline of each scheduler, and the page.
    let bar = console.progress(1, "parts of the page");
    let looked_at = || -> Result<Run, ReportError> {
        let mut run = Run::of(RunOnDisk::read(directory)?);
        bar.inc_length(run.disk.trials.len() as u64);
        run.look(&of_a_finished_run(), &signals.stop, &mut || bar.inc(1))?;
        Ok(run)
    };
    let page = page_into(directory, looked_at(), signals);
    bar.finish_and_clear();
    page
}

/// The same, where the experiment and its record are known.
pub fn into_run_directory_of(
    directory: &Path,
    known: (Experiment, ExperimentRecord),
    signals: &Signals,
) -> Result<PathBuf, Failure> {
    let run = Run::load_of(directory, known, &of_a_finished_run(), &signals.stop);
    page_into(directory, run, signals)
}

fn of_a_finished_run() -> ReportOptions {
    ReportOptions { rerun_events: COMPARE_RERUN_EVENTS, ..ReportOptions::default() }
}

fn page_into(directory: &Path, run: Result<Run, ReportError>, signals: &Signals) -> Result<PathBuf, Failure> {
    let run = run.map_err(|error| report_failure(&error, directory, signals))?;
    let path = directory.join(REPORT);
    write_atomically(&path, html::page(&[run]).as_bytes())?;
    Ok(path)
}

/// Writes the page for a class.
fn write_lesson(run: &Run, path: &Path, force: bool, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let bar = console.phase("drawing the lesson");
    let page = lesson::page(run, &signals.stop);
    bar.finish_and_clear();
    let page = page.map_err(|error| match error {
        LessonError::Report(error) => report_failure(&error, path, signals),
        error => Failure::usage("warmcore::lesson", error)
            .help("`-w lesson/three-tasks -m 1s1n1l1c1t` makes one; few tasks, and a run in the simulator or with `--trace full`"),
    })?;
    write_new(path, page.as_bytes(), force)?;
    console.note(&format!("lesson: {}", path.display()));
    Ok(())
}

/// How a figure is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FigureFormat {
    Svg,
    Pdf,
}

impl FigureFormat {
    const fn ending(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Pdf => "pdf",
        }
    }

    /// The figure as a file; as it is, or as wide as a length of SVG.
    fn file(self, figure: &Figure, width: Option<&str>) -> Result<Vec<u8>, Failure> {
        let svg = figure.svg.standalone_of_width(&figure.title, width);
        match self {
            Self::Svg => Ok(svg.into_bytes()),
            Self::Pdf => pdf::from_svg(&svg).map_err(|error| Failure::failed("warmcore::figure", error)),
        }
    }
}

/// Writes every figure, SVG with its data as CSV; returns how many.
fn write_figures(runs: &[Run], drawing: FigureFormat, directory: &Path, force: bool) -> Result<usize, Failure> {
    create_directory(directory)?;
    let mut count = 0;
    for (index, run) in runs.iter().enumerate() {
        let prefix = if runs.len() > 1 { format!("run{}-", index + 1) } else { String::new() };
        for figure in figures::all(run) {
            let path = |ending: &str| directory.join(format!("{prefix}{}.{ending}", figure.id));
            write_new(&path(drawing.ending()), &drawing.file(&figure, None)?, force)?;
            if drawing == FigureFormat::Svg {
                write_new(&path("csv"), figure.csv.as_bytes(), force)?;
            }
            count += 1;
        }
    }
    Ok(count)
}

/// Writes figures of what was computed into this directory, for a page of a paper and, as `NAME-85mm`, for a column, each as SVG and PDF
/// with its data as CSV, over those that are there; returns how many. `drawn` draws them so wide.
pub fn write_drawn(drawn: &dyn Fn(f64) -> Vec<Figure>, directory: &Path) -> Result<usize, Failure> {
    create_directory(directory)?;
    let mut count = 0;
    for (width, ending_of_name) in [("180mm", ""), ("85mm", "-85mm")] {
        let figures = drawn(figures::width_for(width));
        for figure in &figures {
            let write =
                |name: String, bytes: &[u8]| write_atomically(&directory.join(name), bytes).map_err(Failure::from);
            for drawing in [FigureFormat::Svg, FigureFormat::Pdf] {
                let name = format!("{}{ending_of_name}.{}", figure.id, drawing.ending());
                write(name, &drawing.file(figure, Some(width))?)?;
            }
            write(format!("{}.csv", figure.id), figure.csv.as_bytes())?;
        }
        count = figures.len();
    }
    Ok(count)
}

/// Writes one figure of a run as a file, with its data beside it.
fn write_figure(
    runs: &[Run],
    name: &str,
    width: Option<&str>,
    (drawing, path): (FigureFormat, &Path),
    force: bool,
) -> Result<(), Failure> {
    let [run] = runs else {
        return Err(Failure::usage("warmcore::usage", "--figure is about one run").help("name one run directory"));
    };
    let all = width.map_or_else(|| figures::all(run), |width| figures::all_as_wide(run, figures::width_for(width)));
    let Some(figure) = all.iter().find(|figure| figure.id == name) else {
        let names: Vec<&str> = all.iter().map(|figure| figure.id.as_str()).collect();
        return Err(Failure::usage("warmcore::figure", format!("the run has no figure {name}"))
            .help(format!("its figures are {}", names.join(", "))));
    };
    write_new(path, &drawing.file(figure, width)?, force)?;
    // Of the same figure at another width or in another format they are the same.
    let data = path.with_extension("csv");
    let there = std::fs::read(&data).is_ok_and(|data| data == figure.csv.as_bytes());
    if there { Ok(()) } else { write_new(&data, figure.csv.as_bytes(), force) }
}

/// How a trial's events are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventsFormat {
    Perfetto,
    Lines,
    /// In lines of at most so many characters.
    History(Form, Option<usize>),
}

impl EventsFormat {
    /// The ending of files that are not named one by one.
    fn ending(self) -> &'static str {
        match self {
            Self::Perfetto => "pftrace",
            Self::Lines | Self::History(Form::Lines, _) => "txt",
            Self::History(Form::Json, _) => "json",
        }
    }

    fn write(
        self,
        run: &Run,
        scheduler: usize,
        out: impl Write + Send,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), ReportError> {
        match self {
            Self::Perfetto => run.write_perfetto(scheduler, out, stop),
            Self::Lines => run.write_events(scheduler, out, stop),
            Self::History(form, columns) => run.write_history(scheduler, out, (form, columns), stop),
        }
    }
}

/// Writes the trial that the page looks at, of every run and scheduler, to the file or files that `path` stands for.
fn write_traces(
    format: EventsFormat,
    runs: &[Run],
    arguments: &ReportArguments,
    path: &Path,
    signals: &Signals,
    console: &Console,
    written: &mut Vec<WrittenFile>,
) -> Result<(), Failure> {
    if let Some((_, directory)) = runs.iter().zip(&arguments.runs).find(|(run, _)| run.scenes.is_empty()) {
        let message = format!("{}: there are no events of a trial to write", directory.display());
        return Err(Failure::failed("warmcore::report", message)
            .help("a run on a real kernel keeps its events with `--trace full`, the default of `compare --on vm`"));
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        create_directory(path)?;
    }
    let several = runs.iter().map(|run| run.scenes.len()).sum::<usize>() > 1;
    for (run, directory) in runs.iter().zip(&arguments.runs) {
        let of_run = if runs.len() > 1 { figures::file_name(&directory.to_string_lossy()) } else { String::new() };
        for (index, scene) in run.scenes.iter().enumerate() {
            if path == Path::new("-") {
                if several {
                    let message = "standard output holds one trace, and there is one of every run and scheduler";
                    return Err(Failure::usage("warmcore::usage", message)
                        .help("name a directory, or a file whose name every trace's own is made from"));
                }
                return to_standard_output(format, run, 0, directory, signals);
            }
            let names = [of_run.as_str(), &figures::file_name(&scene.scheduler)];
            let file = trace_file(path, format.ending(), names, several);
            if format == EventsFormat::Perfetto {
                let topology = topology_json(&run.disk.experiment.machine_of(index).value);
                write_new(&file.with_extension("topology.json"), topology.as_bytes(), console.force())?;
            }
            to_file(format, run, index, &file, console.force(), signals)?;
            let hint = match format {
                EventsFormat::Perfetto => " (open it at ui.perfetto.dev, which keeps it on this computer)",
                EventsFormat::Lines | EventsFormat::History(..) => "",
            };
            console.note(&format!("trace: {}{hint}", file.display()));
            written.push(WrittenFile::new(if format == EventsFormat::Perfetto { "perfetto" } else { "events" }, &file));
        }
    }
    Ok(())
}

/// The file of one trace of those that `path` stands for. `names`: of the run, if there are several, and of the scheduler.
fn trace_file(path: &Path, ending: &str, names: [&str; 2], several: bool) -> PathBuf {
    let names: String = names.iter().filter(|name| !name.is_empty()).map(|name| format!("-{name}")).collect();
    if path.is_dir() {
        return path.join(format!("trace{names}.{ending}"));
    }
    if !several {
        return path.to_owned();
    }
    let ending = path.extension().map_or(ending.into(), |ending| ending.to_string_lossy());
    let stem = path.file_stem().map_or("trace".into(), |stem| stem.to_string_lossy());
    path.with_file_name(format!("{stem}{names}.{ending}"))
}

/// Streams a trace under another name first, so that one that was cut off is not taken for a whole one.
fn to_file(
    format: EventsFormat,
    run: &Run,
    scheduler: usize,
    file: &Path,
    force: bool,
    signals: &Signals,
) -> Result<(), Failure> {
    check_new(file, force)?;
    let partial = file.with_extension("partial");
    let failed = |error: &dyn std::fmt::Display| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&partial);
        Failure::failed("warmcore::output", format!("cannot write {}: {error}", file.display()))
    };
    let out = std::fs::File::create(&partial).map_err(|error| failed(&error))?;
    let written = format.write(run, scheduler, BufWriter::new(out), &signals.stop);
    if signals.stop.load(Ordering::Relaxed) {
        let _ = failed(&"interrupted");
        return Err(signals.failure("interrupted"));
    }
    written.map_err(|error| failed(&error))?;
    std::fs::rename(&partial, file).map_err(|error| failed(&error))
}

/// Writes the trial of a scheduler to standard output: a line for each slice and migration, of at most so many characters if that is given, or
/// one JSON document.
pub fn history(
    run: &Run,
    scheduler: usize,
    (form, columns): (Form, Option<usize>),
    directory: &Path,
    signals: &Signals,
) -> Result<(), Failure> {
    let format = EventsFormat::History(form, columns);
    to_standard_output(format, run, scheduler, directory, signals)
}

/// Writes one trace to standard output.
fn to_standard_output(
    format: EventsFormat,
    run: &Run,
    scheduler: usize,
    directory: &Path,
    signals: &Signals,
) -> Result<(), Failure> {
    let mut out = StandardOutput { inner: BufWriter::new(std::io::stdout()), failed: None };
    let written = format.write(run, scheduler, &mut out, &signals.stop);
    if let Some(kind) = out.failed {
        return Err(std::io::Error::from(kind).into());
    }
    written.map_err(|error| report_failure(&error, directory, signals))
}

/// Standard output that keeps why it failed: whoever closed a pipe has seen enough, whatever was being done meanwhile.
struct StandardOutput<W> {
    inner: W,
    failed: Option<std::io::ErrorKind>,
}

impl<W: Write> Write for StandardOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.inner.write(bytes).inspect_err(|error| self.failed = Some(error.kind()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush().inspect_err(|error| self.failed = Some(error.kind()))
    }
}

/// The failure for a run that cannot be shown.
pub fn report_failure(error: &ReportError, path: &Path, signals: &Signals) -> Failure {
    if signals.stop.load(Ordering::Relaxed) {
        return signals.failure("interrupted; the run is complete, `warmcore report` makes its report later");
    }
    let (message, path) = (error.to_string(), path.display().to_string());
    let place = if message.contains(&path) { String::new() } else { format!("{path}: ") };
    let message = format!("{place}{message}");
    let failure = match error {
        ReportError::Read(_) => Failure::usage("warmcore::report", message),
        ReportError::Rerun { .. }
        | ReportError::Changed { .. }
        | ReportError::Trace { .. }
        | ReportError::Write { .. } => Failure::failed("warmcore::report", message),
    };
    failure.help(error.advice())
}
