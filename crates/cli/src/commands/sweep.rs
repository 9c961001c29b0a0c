//! `warmcore sweep`: the same schedulers on many machines and workloads, as one table of gains.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use warmcore_lab::builder::Built;
use warmcore_lab::directory::ORACLE;
use warmcore_lab::experiment::{Experiment, trial_seeds};
use warmcore_lab::files::{text_of_file, write_atomically};
use warmcore_lab::headroom::OracleRun;
use warmcore_lab::runner::Conduct;
use warmcore_lab::session::pretty;
use warmcore_lab::verdict::{self, Finding, decimal, ratio_with_interval};
use warmcore_report::figures::gains::{self, Gained};
use warmcore_search::oracle::{self, OracleError};
use warmcore_search::sweep::{Gain, REGRESSION, SweepDocument, SweepMean, SweepRow, SweepWon};
use warmcore_statistics::{Design, trials_needed};
use warmcore_study::plan::PlannedExperiment;
use warmcore_study::run::Done;

use crate::args::SweepArguments;
use crate::commands::columns;
use crate::commands::compare::{headroom_of, oracle_failure, session_failure};
use crate::commands::report;
use crate::commands::study;
use crate::console::{Console, Table, Tone};
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

/// In `--machines`: every preset on which caches can be chosen between.
const SEVERAL_LLCS: &str = "several-llcs";

pub fn run(arguments: &SweepArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let experiments = experiments(arguments, console)?;
    let out = arguments.out.as_deref();
    out.map(study::directory).transpose()?;
    let what = format!("{} experiments", experiments.len());
    let rows = study::each(&what, &experiments, out, &signals, console, &mut |done, jobs| {
        row(&done, arguments.headroom, jobs, &signals)
    })?;
    let labels: Vec<String> = experiments
        .first()
        .map(|one| one.experiment.schedulers.iter().map(ToString::to_string).collect())
        .unwrap_or_default();
    let baseline = labels.first().cloned().unwrap_or_default();
    let candidates = labels.into_iter().skip(1).collect();
    let document = SweepDocument::new(baseline, candidates, arguments.trials as usize, rows);
    if let Some(out) = &arguments.out {
        for (name, text) in [("sweep.json", pretty(&document)), ("sweep.md", markdown(&document))] {
            write_atomically(&out.join(name), text.as_bytes())?;
        }
        let count = draw(&document, &out.join("figures"))?;
        console.note(&format!("directory: {}, with {count} figures", out.display()));
    }
    let text = if console.json() { pretty(&document) } else { text(&document, console) };
    Ok(console.out_words(&text)?)
}

/// Draws the gains; returns how many figures.
fn draw(document: &SweepDocument, directory: &Path) -> Result<usize, Failure> {
    let gains: Vec<Gained> = document.rows.iter().flat_map(|row| gained(row, &document.candidates)).collect();
    report::write_drawn(&|wide| gains::all(&gains, &document.baseline, wide), directory)
}

/// A row as figures show it, with the names of its candidates.
pub fn gained(row: &SweepRow, candidates: &[String]) -> Vec<Gained> {
    let of = |(candidate, gain): (&String, &Gain)| Gained {
        place: row.machine.clone(),
        case: row.workload.clone(),
        candidate: candidate.clone(),
        gain: gain.gain,
        interval: gain.interval.map(|interval| (interval.low, interval.high)),
        shown: matches!(gain.finding, Some(Finding::Better | Finding::Worse | Finding::Different)),
    };
    candidates.iter().zip(&row.gains).map(of).collect()
}

/// Every machine with every workload, checked before anything runs: each is what `warmcore compare` would run.
fn experiments(arguments: &SweepArguments, console: &Console) -> Result<Vec<PlannedExperiment>, Failure> {
    let workloads = workload_texts(&arguments.workloads)?;
    let mut found = Vec::new();
    let mut warnings: Vec<String> = Vec::new();
    for machine in machines(&arguments.machines)? {
        for workload in &workloads {
            let built = experiment(arguments, (&machine, workload), console)?;
            let (experiment, number) = (built.experiment, found.len() + 1);
            let directory = Some(format!("experiments/{number:03}-{}", slug(&experiment.machine.source)).into());
            // Those of a workload come with each machine.
            let unknown = experiment.unknown().map(|(spec, what)| format!("{workload}: of {spec}, {what}"));
            let unknown: Vec<String> = unknown.collect();
            found.push(PlannedExperiment { experiment, study: format!("{machine}: {workload}"), directory });
            // Those of a machine come with each of its workloads.
            let told = built.warnings.into_iter().map(|warning| format!("{machine}: {warning}"));
            told.chain(unknown).for_each(|warning| {
                if !warnings.contains(&warning) {
                    warnings.push(warning)
                }
            });
        }
    }
    warnings.iter().for_each(|warning| console.warn(warning));
    for cell in found.iter().take(workloads.len()) {
        load::warn_unmodelled(&cell.experiment.workload.value, console);
    }
    Ok(found)
}

fn experiment(arguments: &SweepArguments, (machine, text): (&str, &str), console: &Console) -> Result<Built, Failure> {
    let machine = load::machine(machine)?;
    let workload = load::workload_for(&machine.value, text, &arguments.profiles, console)?;
    load::check_profiles(&arguments.profiles, true, arguments.memory.memory)?;
    let asked = |machine, workload| {
        Experiment::builder(machine, workload)
            .seeds(trial_seeds(arguments.seed, arguments.trials))
            .options(arguments.run.options(None))
            .memory(arguments.memory.memory)
            .smt_slowdown_percent(arguments.memory.smt_slowdown)
    };
    let manner =
        columns::Manner { workload: Some(text), profiles: &arguments.profiles, aggregate: &[], background: None };
    let schedulers = load::schedulers(&arguments.schedulers)?;
    let inputs = columns::inputs(&schedulers, (&machine, &workload), &[], &manner, &asked, console)?;
    let builder = asked(machine, workload).schedulers(schedulers).inputs(inputs).margin(arguments.margin);
    Ok(builder.strict(console.strict()).build()?)
}

fn machines(lists: &[String]) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for name in lists {
        if name != SEVERAL_LLCS {
            names.push(name.clone());
            continue;
        }
        for preset in warmcore_topology::presets() {
            if load::machine(&preset.name)?.value.llc_count() > 1 {
                names.push(preset.name.clone());
            }
        }
    }
    Ok(each_once(names))
}

/// Workloads as given; `@FILE` stands for the lines of a file.
fn workload_texts(given: &[String]) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for text in given {
        let Some(path) = text.strip_prefix('@').map(Path::new) else {
            texts.push(text.clone());
            continue;
        };
        let lines = text_of_file(path).map_err(|error| Failure::cannot_read(path, &error))?;
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        texts.extend(lines.map(str::to_owned));
    }
    Ok(each_once(texts))
}

/// What is named twice would count twice in the means.
fn each_once(mut names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// A row of the table, of an experiment that was run.
fn row(done: &Done<'_>, headroom: bool, jobs: usize, signals: &Signals) -> Result<SweepRow, Failure> {
    let experiment = done.experiment;
    let mut document = verdict::conclude(experiment, &experiment.record(), &done.finished.trials)
        .map_err(|error| Failure::usage("warmcore::metric", error))?;
    // The bar counts the table's own simulations.
    let conduct = Conduct { jobs, stop: Arc::clone(&signals.stop), progress: &|_| {} };
    if headroom && let Some(oracle) = ask_oracle(experiment, &conduct, signals)? {
        document.headroom = headroom_of(&document, &oracle)?;
        if let Some(directory) = &done.directory {
            directory.write(ORACLE, pretty(&oracle).as_bytes()).map_err(|error| session_failure(error.into()))?;
        }
    }
    done.keep(Some((&document, &warmcore_report::verdict::plain(&document)))).map_err(session_failure)?;
    Ok(SweepRow::new(&document))
}

/// What the oracle of a cell reaches; none where nothing lives long enough to be placed.
fn ask_oracle(experiment: &Experiment, conduct: &Conduct<'_>, signals: &Signals) -> Result<Option<OracleRun>, Failure> {
    match oracle::run(experiment, conduct) {
        Ok(oracle) => Ok(Some(oracle)),
        Err(OracleError::NoThreads { .. }) => Ok(None),
        Err(error) => Err(oracle_failure(error, None, signals)),
    }
}

/// A machine's text as part of a file name.
fn slug(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

fn text(document: &SweepDocument, console: &Console) -> String {
    let mut names = headings(document, ["machine", "workload"]);
    let columns = ["metric".to_owned(), format!(">{}", document.baseline)];
    names.splice(2..2, columns);
    names.extend(asked(document).then(|| ">oracle".to_owned()));
    let mut table = Table::new(names.iter().map(String::as_str));
    for row in &document.rows {
        let mut cells: Vec<(String, Tone)> = [&row.machine, &row.workload, &row.metric, &row.baseline_in_words]
            .map(|text| (text.clone(), Tone::Plain))
            .into();
        cells.extend(row.gains.iter().map(|gain| (with_interval(gain), tone(gain))));
        cells.extend(asked(document).then(|| (factor(row.oracle), Tone::Plain)));
        table.toned_row(cells);
    }
    // One scheduler gains nothing over others.
    if document.candidates.is_empty() {
        return console.table(&table);
    }
    let mut means = Table::new(headings(document, ["geometric mean over", ""]).iter().map(String::as_str));
    for (name, values) in all_means(document) {
        means.row([name, String::new()].into_iter().chain(values.iter().map(|value| factor(*value))));
    }
    let mut won =
        Table::new(headings(document, ["of what the oracle wins over", ">oracle"]).iter().map(String::as_str));
    for of in &document.won {
        won.row([of.name.clone(), factor(of.oracle)].into_iter().chain(of.parts.iter().map(|part| share(*part))));
    }
    let won = if asked(document) { format!("{}\n", console.table(&won)) } else { String::new() };
    format!("{}\n{}\n{won}{}{}", console.table(&table), console.table(&means), replaced(document), losses(document))
}

/// Whether an oracle was asked for any cell.
fn asked(document: &SweepDocument) -> bool {
    !document.won.is_empty()
}

/// A share that may be negative or not exist.
fn share(part: Option<f64>) -> String {
    part.map_or_else(|| "-".into(), |part| format!("{:.0} %", part * 100.0))
}

/// What could be won, and who wins it, as a Markdown table.
fn won_markdown(won: &[SweepWon], columns: &str, rule: &str) -> String {
    let mut text = format!(
        "\nThe gains of the oracle where it wins more than 1 %: its mean gain there, and the part of it (of its logarithm) that each wins.\n\n\
         | workload | machines | `oracle` |{columns}\n|---|--:|--:|{rule}\n"
    );
    for of in won {
        let parts: String = of.parts.iter().map(|part| format!(" {} |", share(*part))).collect();
        text.push_str(&format!("| `{}` | {} of {} | {} |{parts}\n", of.name, of.winnable, of.asked, factor(of.oracle)));
    }
    text
}

fn markdown(document: &SweepDocument) -> String {
    let columns = document.candidates.iter().map(|name| format!(" `{name}` |")).collect::<String>();
    let rule = "--:|".repeat(document.candidates.len());
    let base = format!(" `{}` |", document.baseline);
    let cells =
        |values: &[Option<f64>]| values.iter().map(|value| format!(" {} |", factor(*value))).collect::<String>();
    let mut text = format!(
        "Gain over `{}`, {} trials each; above 1 is better.\n\n| geometric mean over |{columns}\n|---|{rule}\n",
        document.baseline, document.trials
    );
    for (name, values) in all_means(document) {
        text.push_str(&format!("| {name} |{}\n", cells(&values)));
    }
    let (oracle, oracle_rule) = if asked(document) { (" `oracle` |", "--:|") } else { ("", "") };
    if asked(document) {
        text.push_str(&won_markdown(&document.won, &columns, &rule));
    }
    text.push_str(&format!(
        "\n| machine | workload | metric |{base}{columns}{oracle}\n|---|---|---|--:|{rule}{oracle_rule}\n"
    ));
    for row in &document.rows {
        let mut gains: String = row.gains.iter().map(|gain| format!(" {} |", with_interval(gain))).collect();
        if asked(document) {
            gains.push_str(&cells(&[row.oracle]));
        }
        text.push_str(&format!(
            "| {} | `{}` | {} | {} |{gains}\n",
            row.machine, row.workload, row.metric, row.baseline_in_words
        ));
    }
    format!("{text}\n{}{}", replaced(document), losses(document))
}

/// The cells whose gains are of another metric than the workload's own, and why; nothing if there are none.
fn replaced(document: &SweepDocument) -> String {
    let cells: String = document
        .rows
        .iter()
        .filter_map(|row| {
            let reason = &row.replaced.as_ref()?.reason;
            Some(format!("- `{}` on {}: {reason}\n", row.workload, row.machine))
        })
        .collect();
    if cells.is_empty() { cells } else { format!("Gains of another metric than the workload's own:\n\n{cells}\n") }
}

fn headings(document: &SweepDocument, first: [&str; 2]) -> Vec<String> {
    first.map(str::to_owned).into_iter().chain(document.candidates.iter().map(|name| format!(">{name}"))).collect()
}

fn all_means(document: &SweepDocument) -> Vec<(String, Vec<Option<f64>>)> {
    let named = |mean: &SweepMean| (mean.name.clone(), mean.means.clone());
    document.by_metric.iter().chain(&document.by_machine).chain(&document.by_workload).map(named).collect()
}

/// How many losses the list shows.
const LOSSES: usize = 12;

fn losses(document: &SweepDocument) -> String {
    let share = 100.0 * (1.0 - REGRESSION);
    let count = document.regressions.len();
    let lost = document.regressions.iter().filter(|loss| loss.gain.is_some()).count();
    let without_gain = |starves: bool| {
        document.regressions.iter().filter(|loss| loss.gain.is_none() && loss.starves == starves).count()
    };
    // Cells without an answer have no gain.
    let gains = document.rows.iter().flat_map(|row| &row.gains).filter(|gain| gain.gain.is_some()).count();
    let mut text = format!("{lost} of {gains} gains are losses of more than {share:.0} %");
    let more =
        [(without_gain(true), "with tasks that wait without end"), (without_gain(false), "worse without a ratio")];
    for (cells, how) in more.into_iter().filter(|(cells, _)| *cells > 0) {
        text.push_str(&format!("; {cells} more cell{} {how}", if cells == 1 { "" } else { "s" }));
    }
    if document.not_shown > 0 {
        text.push_str(&format!(
            "; {} more are below {REGRESSION}, but no loss is shown: {}",
            document.not_shown,
            if document.trials < trials_needed(Design::Paired, document.candidates.len()) {
                "too few trials"
            } else {
                "trials differ as much among themselves"
            }
        ));
    }
    text.push_str(if count == 0 { ".\n" } else { "; the worst:\n\n" });
    for loss in document.regressions.iter().take(LOSSES) {
        let finding = if loss.starves { Finding::Starves } else { Finding::Worse };
        text.push_str(&format!(
            "- {} `{}` on {}: {}\n",
            loss.candidate,
            loss.workload,
            loss.machine,
            loss.gain.map_or_else(|| finding.words().to_owned(), decimal)
        ));
    }
    text
}

fn factor(gain: Option<f64>) -> String {
    gain.map_or_else(|| "-".into(), decimal)
}

/// A factor with its interval, and what it is where that is no difference.
fn with_interval(gain: &Gain) -> String {
    let finding = match gain.finding {
        Some(Finding::Better | Finding::Worse | Finding::Different) if gain.gain.is_some() => String::new(),
        Some(Finding::TooFewTrials) | None => String::new(),
        Some(finding) => format!(" {}", finding.words()),
    };
    match gain.finding {
        Some(Finding::Starves) => Finding::Starves.words().to_owned(),
        _ => format!(
            "{}{finding}",
            gain.gain.map_or_else(|| "-".into(), |factor| ratio_with_interval(factor, gain.interval))
        ),
    }
}

/// Only what the trials show is good or bad.
fn tone(gain: &Gain) -> Tone {
    match gain.finding {
        Some(Finding::Worse | Finding::Starves) => Tone::Bad,
        Some(Finding::Better) => Tone::Good,
        _ => Tone::Faint,
    }
}
