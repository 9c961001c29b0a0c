//! `warmcore study`: many experiments from one file, with what is expected of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::ProgressBar;
use serde::Serialize;
use warmcore_lab::environment::Environment;
use warmcore_lab::files;
use warmcore_lab::files::{create_directory, write_atomically};
use warmcore_lab::session::pretty;
use warmcore_study::choice::{self, ChoiceError};
use warmcore_study::document::{ExpectationResult, StudyDocument, StudyResult, decimal};
use warmcore_study::file::{Band, Cost, Expectation, Mark, ReadError, Study};
use warmcore_study::plan::{self, Plan, PlanError, PlannedExperiment};
use warmcore_study::run::{self, Done, Means, StudyError};
use warmcore_study::score::{Score, Values};
use warmcore_study::sensitivity::{self, SensitivityDocument};
use warmcore_study::{baseline, judge, library, page};

use crate::args::{StudyCommand, StudyRunArguments};
use crate::commands::compare::{directory_failure, resume_failure, run_failure, session_failure, unix_seconds};
use crate::commands::reproduce::Program;
use crate::commands::{as_document, dask, host, reproduce, study_drawings};
use crate::console::{Console, Table, Tone};
use crate::failure::{Class, Failure};
use crate::load::place_failure;
use crate::signals::Signals;

/// The result in a directory.
const DOCUMENT: &str = "study.json";
/// What changes of assumed costs do to it, beside it.
const SENSITIVITY: &str = "sensitivity.json";
/// The schema of what is known of studies before they run.
const PLAN: &str = "warmcore-study-plan-1";

pub fn run(command: StudyCommand, console: &Console) -> Result<(), Failure> {
    match command {
        StudyCommand::Run(arguments) => run_studies(&arguments, console),
        StudyCommand::Show { study, result, page } => match result {
            Some(result) => judge_again(&study, &result, page.as_deref(), console),
            None => show(&study, page.as_deref(), console),
        },
    }
}

/// Studies by name or file, in the order that was typed.
fn studies(names: &[String]) -> Result<Vec<Study>, Failure> {
    choice::all(names).map_err(choice_failure)
}

fn choice_failure(error: ChoiceError) -> Failure {
    if let ChoiceError::Read(ReadError::Read { path, source }) = &error {
        return Failure::cannot_read(path, source);
    }
    let advice = error.advice();
    advice.into_iter().fold(Failure::usage("warmcore::study", error), Failure::help)
}

fn run_studies(arguments: &StudyRunArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let mut chosen = studies(&arguments.studies)?;
    let all = chosen.len();
    chosen.retain(|study| !arguments.short || study.cost == Cost::Short);
    if chosen.len() < all {
        match all - chosen.len() {
            1 => console.note("one study that takes long is left out"),
            several => console.note(&format!("{several} studies that take long are left out")),
        }
    }
    if chosen.is_empty() {
        let words = "--short leaves nothing to run: each of these studies takes long";
        return Err(Failure::usage("warmcore::study", words).help("leave out --short"));
    }
    let unknown = |study: &&Study| study.program.as_ref().is_some_and(|program| program != reproduce::PROGRAM);
    if let Some(Study { path, program: Some(program), .. }) = chosen.iter().find(unknown) {
        let words = format!("{}: there is no program `{program}` whose figures are known", path.display());
        return Err(Failure::usage("warmcore::study", words).help(format!("there is `{}`", reproduce::PROGRAM)));
    }
    if !arguments.sensitivity.is_empty() {
        let all = chosen.len();
        chosen.retain(|study| study.program.is_none());
        if chosen.is_empty() {
            let words = "figures of a program of the paper's own have no machine whose costs could be changed";
            return Err(Failure::usage("warmcore::study", words).help("leave out --sensitivity"));
        }
        if chosen.len() < all {
            console.note("figures of programs of the papers' own are left out: they have no machine whose costs could be changed");
        }
    }
    if !arguments.only.is_empty() {
        choice::keep_only(&mut chosen, &arguments.only).map_err(choice_failure)?;
        let only_drawn = chosen.iter().all(|of| of.expectations.is_empty() && of.not_asked.is_empty());
        if only_drawn && arguments.out.is_none() && !arguments.dry_run {
            let words = "a drawing is a file, and there is no directory for it";
            return Err(Failure::usage("warmcore::study", words).help("give one with --out DIR"));
        }
    }
    if let Some(trials) = arguments.trials {
        choice::set_trials(&mut chosen, trials).map_err(choice_failure)?;
    }
    let plan = plan::plan(chosen, &host::runner()?, &|words| console.note(words)).map_err(plan_failure)?;
    plan.notes.iter().for_each(|words| console.warn(words));
    let baselines = baseline::read(&plan).map_err(|error| {
        Failure::usage("warmcore::study", error)
            .help("a baseline is the study.json that this study wrote with --out DIR, with this version")
    })?;
    let factors = &arguments.sensitivity;
    let varied = (!factors.is_empty()).then(|| under_changes(&plan, factors, console)).transpose()?;
    let all = varied.as_ref().map_or(&plan, |(_, all)| all);
    let of_programs = plan.studies.iter().filter(|study| study.program.is_some());
    let of_programs = of_programs.map(|study| Ok::<_, Failure>((study.path.clone(), Program::of(study)?)));
    let of_programs = of_programs.collect::<Result<BTreeMap<_, _>, Failure>>()?;
    if arguments.dry_run {
        return planned(&plan, all, console);
    }
    if let Some(out) = &arguments.out {
        directory(out)?;
        let lost = run::left_out(&out.join(DOCUMENT), &plan);
        if !lost.is_empty() && !console.force() {
            let words = format!("{} has the result of other studies: {}", out.display(), lost.join(", "));
            return Err(Failure::usage("warmcore::directory", words)
                .help("choose another --out, or name these studies too; --force replaces the result"));
        }
    }
    let trials = match &arguments.dask {
        None => run_plan(all, arguments.out.as_deref(), &signals, console)?,
        Some(address) => dask::gather(all, arguments.out.as_deref(), address, &signals, console)?,
    };
    let results = StudyDocument::new(all, &trials, &baselines).studies;
    let document = StudyDocument::of(results[..plan.studies.len()].to_vec());
    let document = with_programs(document, &plan, &of_programs, arguments.trials)?;
    for (index, study) in plan.studies.iter().enumerate() {
        for (figure, (fewest, needed)) in judge::few_events(all, &trials, index) {
            let few = format!("{figure} is a percentile of {fewest:.0} events in a trial, fewer than {needed:.0}");
            console.warn(&format!("{}: {few}", study.name));
        }
    }
    let heading = library::heading(&arguments.studies);
    let result = arguments.out.as_ref().map(|out| out.join(DOCUMENT));
    if let Some(result) = &result {
        write_atomically(result, pretty(&document).as_bytes())?;
        console.note(&format!("result: {}", result.display()));
    }
    if let Some(out) = &arguments.out {
        if let ([study], Some((_, program))) = (&plan.studies[..], of_programs.first_key_value())
            && !study.is_partial()
        {
            program.write(out, arguments.trials.unwrap_or(reproduce::TRIALS), console.jobs())?;
        }
        for page in study_drawings::draw(&plan, out, &signals)? {
            console.note(&format!("figures of the source: {}", out.join(page).display()));
        }
        for page in study_drawings::results(&plan, &document, &trials, out)? {
            console.note(&format!("page: {}", out.join(page).display()));
        }
    }
    if let Some((changes, _)) = &varied {
        let document = SensitivityDocument::new(&plan, factors, changes, &results);
        if let Some(out) = &arguments.out {
            write_atomically(&out.join(SENSITIVITY), pretty(&document).as_bytes())?;
        }
        // Whether the studies are as their files say is no matter here.
        return Ok(console.out(&if console.json() { pretty(&document) } else { changes_table(&document, console) })?);
    }
    if let Some(path) = &arguments.page {
        write_page(&document, heading, path, result.as_deref())?;
    }
    console.out_words(&if console.json() { pretty(&document) } else { table(&document, console) })?;
    if document.unexpected == 0 {
        return Ok(());
    }
    let words = format!("{} not as the files say: {}", document.unexpected, document.surprises().join("; "));
    let against = document.studies.iter().any(|study| study.baseline.is_some());
    let help = match against {
        true => {
            "mend the scheduler; or, if the change is meant, keep the study.json of a run with --out DIR as the baseline"
        }
        false => "mend the model; or say in the study what is outside and why, with [expect.outside]",
    };
    Err(Failure::new(Class::Check, "warmcore::study", words).help(help))
}

/// The document with what programs of the papers' own compute.
fn with_programs(
    document: StudyDocument,
    plan: &Plan,
    programs: &BTreeMap<PathBuf, Program>,
    trials: Option<u32>,
) -> Result<StudyDocument, Failure> {
    if programs.is_empty() {
        return Ok(document);
    }
    let studies: Vec<Study> = plan.studies.iter().filter(|study| study.program.is_some()).cloned().collect();
    let figures_of = |program: &Program| program.figures(trials.unwrap_or(reproduce::TRIALS));
    let figures = programs.iter().map(|(path, program)| Ok::<_, Failure>((path, figures_of(program)?)));
    let figures = figures.collect::<Result<BTreeMap<_, _>, Failure>>()?;
    let computed = StudyDocument::of_values(&studies, &|study, of| judge::of_program(&figures[&study.path], study, of));
    let result =
        |study: StudyResult| computed.studies.iter().find(|of| of.name == study.name).cloned().unwrap_or(study);
    Ok(StudyDocument::of(document.studies.into_iter().map(result).collect()))
}

/// Every change of the machines, and the studies with those under each change as one plan.
fn under_changes(plan: &Plan, factors: &[f64], console: &Console) -> Result<(Vec<String>, Plan), Failure> {
    let (changes, impossible) = sensitivity::changes(plan, factors);
    impossible.iter().for_each(|reason| console.warn(&format!("left out: {reason}")));
    console.note(&format!("the same under {} changes: {}", changes.len(), changes.join(", ")));
    let all = sensitivity::under(plan, &changes, &|words| console.note(words)).map_err(plan_failure)?;
    Ok((changes, all))
}

/// Trials of every experiment.
fn run_plan(
    plan: &Plan,
    out: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<Vec<Vec<Vec<warmcore_lab::trial::Trial>>>, Failure> {
    let many = |count: usize, one: &str, several: &str| format!("{count} {}", if count == 1 { one } else { several });
    let studies = many(plan.studies.len(), "study", "studies");
    let what = format!("{studies}, {}", many(plan.experiments.len(), "experiment", "experiments"));
    each(&what, &plan.experiments, out, signals, console, &mut |done, _| {
        done.keep(None).map_err(session_failure)?;
        Ok(done.finished.trials)
    })
}

/// Runs experiments, which are `what`, and makes something of each. What is made may run simulations of its own, `jobs` at a time.
pub fn each<T: Clone>(
    what: &str,
    experiments: &[PlannedExperiment],
    out: Option<&Path>,
    signals: &Signals,
    console: &Console,
    then: &mut dyn FnMut(Done<'_>, usize) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let simulations: usize = experiments.iter().map(|one| one.experiment.trial_count()).sum();
    let of_all = if simulations == 1 { "simulation" } else { "simulations" };
    console.note(&format!("{what}, {simulations} {of_all}, {} at a time", console.jobs()));
    let made = with_means(simulations, out, signals, console, |means, bar| {
        run::each(experiments, means, &mut |done| bar.suspend(|| then(done, means.jobs).map_err(StudyStop::Then)))
    });
    made.map_err(|error| match error {
        StudyStop::Run(error) => study_failure(error, out, signals),
        StudyStop::Then(failure) => failure,
    })
}

/// Why not all experiments were run.
enum StudyStop {
    /// One could not be.
    Run(StudyError),
    /// What follows from one.
    Then(Failure),
}

impl From<StudyError> for StudyStop {
    fn from(error: StudyError) -> Self {
        Self::Run(error)
    }
}

/// Does something with the means to run so many simulations, beside their bar.
pub fn with_means<T>(
    simulations: usize,
    out: Option<&Path>,
    signals: &Signals,
    console: &Console,
    act: impl FnOnce(&Means<'_>, &ProgressBar) -> T,
) -> T {
    let jobs = console.jobs();
    let environment = Environment::at_start(console.words(), jobs, unix_seconds());
    let bar = console.progress(simulations, "simulations");
    let means = Means {
        jobs,
        stop: Arc::clone(&signals.stop),
        progress: &|_| bar.inc(1),
        out,
        environment: &environment,
        unix_seconds,
        note: &|words| console.warn(words),
    };
    let done = act(&means, &bar);
    bar.finish_and_clear();
    done
}

/// What to say of a run of many experiments that was not finished.
pub fn study_failure(error: StudyError, out: Option<&Path>, signals: &Signals) -> Failure {
    match error {
        StudyError::Run { source, study } => {
            let failure = run_failure(*source, None, signals);
            match out {
                Some(out) => failure.help(format!("in {study}; the same command with --out {} goes on", out.display())),
                None => failure,
            }
        }
        StudyError::Directory(error) => directory_failure(error),
        StudyError::Session(error) => session_failure(error),
        StudyError::Resume(error) => resume_failure(error),
    }
}

/// A directory that is not there yet, is empty, or holds a study's runs.
pub fn directory(out: &Path) -> Result<(), Failure> {
    let occupied = out.is_dir() && std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if out.is_file() || (occupied && !out.join("experiments").is_dir()) {
        return Err(Failure::usage("warmcore::directory", format!("{} holds something else", out.display()))
            .help("choose another --out"));
    }
    Ok(create_directory(&out.join("experiments"))?)
}

fn table(document: &StudyDocument, console: &Console) -> String {
    let mut text = String::new();
    let rows = document.rows();
    if !rows.is_empty() {
        let mut table = Table::new(StudyDocument::HEADINGS);
        for row in rows {
            let tone = match row[6].as_str() {
                "right" => Tone::Good,
                words if words.ends_with("(!)") || words == "wrong" => Tone::Bad,
                _ => Tone::Plain,
            };
            table.toned_row(last_toned(row, tone));
        }
        text = format!("{}\n{}\n", console.table(&table), document.conclusion());
        let scores = Score::table(document);
        if !scores.is_empty() {
            let mut table = Table::new(Score::HEADINGS);
            scores.into_iter().for_each(|line| table.row(line));
            text.push_str(&format!("\n{}", console.table(&table)));
        }
    }
    for study in &document.studies {
        let Some(words) = study.against_the_baseline() else { continue };
        let mut table = Table::new(ExpectationResult::AGAINST_HEADINGS);
        for (row, unexpected) in study.expectations.iter().filter_map(ExpectationResult::against_row) {
            let tone = match row[5].as_str() {
                _ if unexpected => Tone::Bad,
                "better" => Tone::Good,
                _ => Tone::Plain,
            };
            table.toned_row(last_toned(row, tone));
        }
        let gap = if text.is_empty() { "" } else { "\n" };
        let table = if study.lacks_its_baseline() { String::new() } else { format!("{}\n", console.table(&table)) };
        text.push_str(&format!("{gap}{table}{words}\n"));
    }
    text
}

/// The changes that change a judgement, and how many do not.
fn changes_table(document: &SensitivityDocument, console: &Console) -> String {
    let mut table = Table::new(["change", ">judgements changed", ">directions changed", ">largest change", "of"]);
    for of in &document.changes {
        let changed = document.judgements.iter().zip(&of.judgements).zip(&document.expectations);
        let names: Vec<&str> =
            changed.filter(|((before, after), _)| before != after).map(|(_, name)| name.as_str()).collect();
        let largest = of.largest_change.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0));
        let cells = [
            of.change.clone(),
            of.judgements_changed.to_string(),
            of.directions_changed.to_string(),
            largest,
            names.join("; "),
        ];
        let tone = if names.is_empty() { Tone::Plain } else { Tone::Bad };
        table.toned_row(cells.map(|cell| (cell, tone)));
    }
    let turning = document.changes.iter().filter(|of| of.judgements_changed > 0).count();
    let all = document.changes.len();
    format!("{}\n{turning} of {all} changes of assumed costs change a judgement.\n", console.table(&table))
}

/// A row whose last cell has a tone.
fn last_toned<const COLUMNS: usize>(row: [String; COLUMNS], tone: Tone) -> impl Iterator<Item = (String, Tone)> {
    let of = move |column| if column + 1 == COLUMNS { tone } else { Tone::Plain };
    row.into_iter().enumerate().map(move |(column, cell)| (cell, of(column)))
}

/// What `list studies`, `study show` and `study run --dry-run` print with `--json`.
#[derive(Serialize)]
struct StudyPlanDocument<'a> {
    studies: Vec<StudyEntry<'a>>,
    /// Simulations of all of them; absent where nothing was planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    simulations: Option<usize>,
}

#[derive(Serialize)]
struct StudyEntry<'a> {
    name: &'a str,
    file: String,
    title: &'a str,
    question: &'a str,
    source: &'a str,
    cost: Cost,
    cells: u64,
    expectations: Vec<ExpectationEntry<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_expressible: Option<&'a str>,
}

#[derive(Serialize)]
struct ExpectationEntry<'a> {
    name: &'a str,
    figure: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<f64>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<&'a Mark>,
}

impl<'a> StudyPlanDocument<'a> {
    fn new(studies: &'a [Study], simulations: Option<usize>) -> Self {
        let expectation = |of: &'a Expectation| ExpectationEntry {
            name: &of.name,
            figure: of.figure.to_string(),
            published: of.published,
            low: Some(of.band.low).filter(|low| low.is_finite()),
            high: Some(of.band.high).filter(|high| high.is_finite()),
            reason: &of.reason,
            mark: of.mark.as_ref(),
        };
        let entry = |study: &'a Study| StudyEntry {
            name: &study.name,
            file: study.path.display().to_string(),
            title: &study.title,
            question: &study.question,
            source: &study.source,
            cost: study.cost,
            cells: u64::try_from(plan::count(study)).unwrap_or(u64::MAX),
            expectations: study.expectations.iter().map(expectation).collect(),
            not_expressible: study.not_expressible.as_ref().map(|missing| missing.missing.as_str()),
        };
        let studies = studies.iter().map(entry).collect();
        Self { studies, simulations }
    }
}

/// Prints the studies that come with the program.
pub fn list(console: &Console) -> Result<(), Failure> {
    let all: Vec<Study> = library::STUDIES
        .iter()
        .map(|packaged| packaged.study().map_err(|error| Failure::usage("warmcore::study", error)))
        .collect::<Result<_, _>>()?;
    if console.json() {
        return Ok(console.out(&as_document(PLAN, &StudyPlanDocument::new(&all, None)))?);
    }
    let mut table = Table::new(["study", "cost", ">cells", "what it is about"]);
    for (packaged, study) in library::STUDIES.iter().zip(&all) {
        let cost = if study.cost == Cost::Long { "long" } else { "short" };
        table.row([packaged.name.to_owned(), cost.into(), plan::count(study).to_string(), study.title.clone()]);
    }
    Ok(console.out(&console.table(&table))?)
}

fn show(name: &str, page_path: Option<&Path>, console: &Console) -> Result<(), Failure> {
    if name.ends_with(".json") {
        return show_result(Path::new(name), page_path, console);
    }
    if page_path.is_some() {
        return Err(Failure::usage("warmcore::usage", "a page is made of a result, and this is a study")
            .help("`warmcore study run NAME --page FILE` runs it and makes the page"));
    }
    let mut found = studies(&[name.to_owned()])?;
    // A file that would not run is not shown as if it did. Those of the program do.
    if Path::new(name).is_file() {
        found = plan::plan(found, &host::runner()?, &|words| console.note(words)).map_err(plan_failure)?.studies;
    }
    if console.json() {
        return Ok(console.out(&as_document(PLAN, &StudyPlanDocument::new(&found, None)))?);
    }
    let texts: Vec<String> = found.iter().map(|study| describe(study, console)).collect();
    Ok(console.out_words(&texts.join("\n"))?)
}

fn describe(study: &Study, console: &Console) -> String {
    let mut text =
        format!("{}: {}\n\nQuestion: {}\nSource: {}\n", study.name, study.title, study.question, study.source);
    if !study.note.is_empty() {
        text.push_str(&format!("{}\n", study.note));
    }
    if let Some(missing) = &study.not_expressible {
        text.push_str(&format!("\nNot expressible: {}\nWhat would settle it: {}\n", missing.missing, missing.settle));
        return text;
    }
    let mut cells = Table::new(["cell", "machine", "workload", "schedulers", ">trials"]);
    for cell in &study.cells {
        let schedulers: Vec<&str> = cell.schedulers.iter().map(|text| text.get_ref().as_str()).collect();
        cells.row([
            cell.name.clone(),
            match &cell.background {
                Some(background) => format!("{} with background {}", cell.machine.get_ref(), background.get_ref()),
                None => cell.machine.get_ref().clone(),
            },
            cell.workload.get_ref().clone(),
            schedulers.join(" "),
            cell.trials.to_string(),
        ]);
    }
    let mut axes = String::new();
    for axis in &study.axes {
        let value = |bindings: &Vec<(String, String)>| {
            bindings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        let values: Vec<String> = axis.values.iter().map(value).collect();
        axes.push_str(&format!("{}: {}\n", axis.name, values.join(", ")));
    }
    let mut expected = Table::new(["expected", "figure", ">published", "band", "not scored"]);
    for of in &study.expectations {
        let band = match of.against {
            Some((_, margin)) if of.band == Band::ANYWHERE => format!("within {} % of the baseline", margin * 100.0),
            _ => format!("{} to {}", of.band.low, of.band.high),
        };
        let mark = of.mark.as_ref().map_or(String::new(), |mark| format!("{}: {}", mark.kind.words(), mark.why));
        expected.row([of.name.clone(), of.figure.to_string(), decimal(of.published), band, mark]);
    }
    for of in &study.not_asked {
        let (name, none, missing) = (of.name.clone(), String::new, format!("missing: {}", of.missing.missing));
        expected.row([name, none(), none(), none(), missing]);
    }
    format!("{text}\n{}{axes}\n{}", console.table(&cells), console.table(&expected))
}

fn show_result(path: &Path, page_path: Option<&Path>, console: &Console) -> Result<(), Failure> {
    let text = files::text_of_file(path).map_err(|error| Failure::cannot_read(path, &error))?;
    let document = StudyDocument::from_json(&text).map_err(|reason| {
        Failure::usage("warmcore::study", format!("{}: {reason}", path.display()))
            .help("`warmcore study run NAME --out DIR` writes such a file")
    })?;
    if let Some(page_path) = page_path {
        write_page(&document, library::heading_of(&document), page_path, Some(path))?;
    }
    Ok(console.out_words(&if console.json() { pretty(&document) } else { table(&document, console) })?)
}

/// Judges values that came out earlier by studies as they are.
fn judge_again(name: &str, result: &Path, page_path: Option<&Path>, console: &Console) -> Result<(), Failure> {
    let found = studies(&[name.to_owned()])?;
    let values = Values::read(result)
        .map_err(|reason| Failure::usage("warmcore::study", format!("{}: {reason}", result.display())))?;
    let document = values.judged(&found, &format!("{} has no value of it", result.display()));
    for unknown in values.unknown(&document) {
        console.warn(&format!("{} has a value that belongs to no row: {unknown}", result.display()));
    }
    if let Some(page_path) = page_path {
        write_page(&document, library::heading(&[name.to_owned()]), page_path, Some(result))?;
    }
    Ok(console.out_words(&if console.json() { pretty(&document) } else { table(&document, console) })?)
}

fn write_page(
    document: &StudyDocument,
    (title, introduction): (&str, &str),
    path: &Path,
    result: Option<&Path>,
) -> Result<(), Failure> {
    let data = result.map(|result| result.display().to_string());
    let text = page::page(document, title, introduction, data.as_deref());
    Ok(write_atomically(path, text.as_bytes())?)
}

/// Says what would run: studies, and all that is run for them.
fn planned(plan: &Plan, all: &Plan, console: &Console) -> Result<(), Failure> {
    let simulations = all.simulations_in_all();
    if console.json() {
        return Ok(console.out(&as_document(PLAN, &StudyPlanDocument::new(&plan.studies, Some(simulations))))?);
    }
    let mut table = Table::new(["study", ">simulations", "not on this computer"]);
    for (study, cells) in plan.studies.iter().zip(&plan.cells) {
        let own: usize = cells.iter().filter(|cell| cell.runs.is_ok()).map(|cell| cell.trials).sum();
        let mut lacking: Vec<&str> =
            cells.iter().filter_map(|cell| cell.runs.as_ref().err().map(String::as_str)).collect();
        lacking.sort_unstable();
        lacking.dedup();
        table.row([study.name.clone(), own.to_string(), lacking.join("; ")]);
    }
    let total = format!("{simulations} simulations in {} experiments, equal ones once\n", all.experiments.len());
    Ok(console.out_words(&format!("{}\n{total}", console.table(&table)))?)
}

pub fn plan_failure(error: PlanError) -> Failure {
    let advice = error.advice();
    match error {
        PlanError::Place { source, .. } => place_failure(source, None),
        error => {
            let failure = Failure::usage("warmcore::study", error);
            advice.into_iter().fold(failure, Failure::help)
        }
    }
}
