//! `warmcore sweep`: the same schedulers on many machines and workloads, as one table of gains.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use warmcore_lab::builder::Built;
use warmcore_lab::directory::{Existing, RunDirectory};
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::{Experiment, trial_seeds};
use warmcore_lab::files::write_atomically;
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::session::{self, pretty};
use warmcore_lab::verdict::{self, decimal};
use warmcore_search::sweep::{REGRESSION, SweepDocument, SweepMean, SweepRow};

use crate::args::SweepArguments;
use crate::commands::compare::{available_jobs, directory_failure, run_failure, session_failure, unix_seconds};
use crate::commands::reproduce::make_directory;
use crate::commands::verdict_table;
use crate::console::{Console, Table, Tone};
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

/// In `--machines`: every preset on which caches can be chosen between.
const SEVERAL_LLCS: &str = "several-llcs";

/// Runs the verb.
pub fn run(arguments: &SweepArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let experiments = experiments(arguments, console)?;
    if let Some(out) = &arguments.batch.out {
        make_directory(out)?;
    }
    let jobs = arguments.batch.jobs.map_or_else(available_jobs, usize::from);
    let total: usize = experiments.iter().map(|one| one.schedulers.len() * one.seeds.len()).sum();
    console.note(&format!("{} experiments, {total} simulations, {jobs} at a time", experiments.len()));
    let bar = console.progress(total, "simulations");
    let mut rows = Vec::new();
    for (index, experiment) in experiments.iter().enumerate() {
        let conduct = Conduct { jobs, stop: Arc::clone(&signals.stop), progress: &|_| bar.inc(1) };
        rows.push(run_one(experiment, index, arguments.batch.out.as_deref(), &conduct, &signals)?);
    }
    bar.finish_and_clear();
    let labels: Vec<String> =
        experiments.first().map(|one| one.schedulers.iter().map(ToString::to_string).collect()).unwrap_or_default();
    let baseline = labels.first().cloned().unwrap_or_default();
    let candidates = labels.into_iter().skip(1).collect();
    let document = SweepDocument::new(baseline, candidates, arguments.trials as usize, rows);
    if let Some(out) = &arguments.batch.out {
        for (name, text) in [("sweep.json", pretty(&document)), ("sweep.md", markdown(&document))] {
            write_atomically(&out.join(name), text.as_bytes()).map_err(|error| {
                let advice = error.advice();
                Failure::failed("warmcore::files", error).help(advice)
            })?;
        }
        console.note(&format!("directory: {}", out.display()));
    }
    let text = match (arguments.batch.json, arguments.batch.markdown) {
        (true, _) => pretty(&document),
        (_, true) => markdown(&document),
        _ => text(&document, console),
    };
    Ok(console.out(&text)?)
}

/// Every machine with every workload, checked before anything runs: each is what `warmcore compare` would run.
fn experiments(arguments: &SweepArguments, console: &Console) -> Result<Vec<Experiment>, Failure> {
    let workloads = workload_texts(&arguments.workloads)?;
    let mut found = Vec::new();
    let mut warnings: Vec<String> = Vec::new();
    for machine in machines(&arguments.machines)? {
        for workload in &workloads {
            let built = experiment(arguments, &machine, workload)?;
            found.push(built.experiment);
            // Those of a machine come with each of its workloads.
            let told = built.warnings.into_iter().map(|warning| format!("{machine}: {warning}"));
            told.for_each(|warning| {
                if !warnings.contains(&warning) {
                    warnings.push(warning)
                }
            });
        }
    }
    warnings.iter().for_each(|warning| console.warn(warning));
    for cell in found.iter().take(workloads.len()) {
        load::warn_unmodelled(&cell.workload.value, console);
    }
    Ok(found)
}

fn experiment(arguments: &SweepArguments, machine: &str, workload: &str) -> Result<Built, Failure> {
    let machine = load::machine(machine)?;
    let workload = load::workload_for(&machine.value, workload, false)?;
    Ok(Experiment::builder(machine, workload)
        .schedulers(load::schedulers(&arguments.schedulers)?)
        .seeds(trial_seeds(arguments.batch.seed, arguments.trials))
        .max_time_ns(arguments.max_time)
        .build()?)
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
    Ok(names)
}

/// Workloads as given; `@FILE` stands for the lines of a file.
fn workload_texts(given: &[String]) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for text in given {
        let Some(path) = text.strip_prefix('@').map(Path::new) else {
            texts.push(text.clone());
            continue;
        };
        let lines = fs::read_to_string(path).map_err(|error| Failure::cannot_read(path, &error))?;
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        texts.extend(lines.map(str::to_owned));
    }
    Ok(texts)
}

fn run_one(
    experiment: &Experiment,
    index: usize,
    out: Option<&Path>,
    conduct: &Conduct<'_>,
    signals: &Signals,
) -> Result<SweepRow, Failure> {
    let mut environment = Environment::at_start(std::env::args().collect(), conduct.jobs, unix_seconds());
    let directory = match out {
        None => None,
        Some(out) => {
            let path = out.join("experiments").join(format!("{:03}-{}", index + 1, slug(&experiment.machine.source)));
            let directory = RunDirectory::create(&path, Existing::Refuse).map_err(directory_failure)?;
            session::begin(&directory, experiment).map_err(session_failure)?;
            Some(directory)
        }
    };
    let finished = runner::run(experiment, directory.as_ref(), conduct)
        .map_err(|error| run_failure(error, directory.as_ref(), signals))?;
    let document =
        verdict::conclude(&experiment.record(), &experiment.workload.value, &*experiment.place, &finished.trials)
            .map_err(|error| Failure::usage("warmcore::metric", error))?;
    if let Some(directory) = &directory {
        environment.at_end(unix_seconds(), finished.run_now, finished.seconds);
        let text = verdict_table::plain(&document);
        session::finish(directory, experiment, &finished.trials, Some((&document, &text)), &environment)
            .map_err(session_failure)?;
    }
    Ok(SweepRow::new(&document))
}

/// A machine's text as part of a file name.
fn slug(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

fn text(document: &SweepDocument, console: &Console) -> String {
    let mut table = Table::new(headings(document, ["machine", "workload"]).iter().map(String::as_str));
    for row in &document.rows {
        let mut cells = vec![(row.machine.clone(), Tone::Plain), (row.workload.clone(), Tone::Plain)];
        cells.extend(row.gains.iter().map(|gain| (factor(gain.gain), tone(gain.gain))));
        table.toned_row(cells);
    }
    let mut means = Table::new(headings(document, ["geometric mean over", ""]).iter().map(String::as_str));
    for (name, values) in all_means(document) {
        means.row([name, String::new()].into_iter().chain(values.iter().map(|value| factor(*value))));
    }
    format!("{}\n{}\n{}", console.table(&table), console.table(&means), losses(document))
}

fn markdown(document: &SweepDocument) -> String {
    let columns = document.candidates.iter().map(|name| format!(" `{name}` |")).collect::<String>();
    let rule = "--:|".repeat(document.candidates.len());
    let cells =
        |values: &[Option<f64>]| values.iter().map(|value| format!(" {} |", factor(*value))).collect::<String>();
    let mut text = format!(
        "Gain over `{}`, {} trials each; above 1 is better.\n\n| geometric mean over |{columns}\n|---|{rule}\n",
        document.baseline, document.trials
    );
    for (name, values) in all_means(document) {
        text.push_str(&format!("| {name} |{}\n", cells(&values)));
    }
    text.push_str(&format!("\n| machine | workload |{columns}\n|---|---|{rule}\n"));
    for row in &document.rows {
        let gains: Vec<Option<f64>> = row.gains.iter().map(|gain| gain.gain).collect();
        text.push_str(&format!("| {} | `{}` |{}\n", row.machine, row.workload, cells(&gains)));
    }
    format!("{text}\n{}", losses(document))
}

fn headings(document: &SweepDocument, first: [&str; 2]) -> Vec<String> {
    first.map(str::to_owned).into_iter().chain(document.candidates.iter().map(|name| format!(">{name}"))).collect()
}

fn all_means(document: &SweepDocument) -> Vec<(String, Vec<Option<f64>>)> {
    let named = |mean: &SweepMean| (mean.name.clone(), mean.means.clone());
    let all = ("everything".to_owned(), document.means.clone());
    let by = document.by_machine.iter().chain(&document.by_workload).map(named);
    std::iter::once(all).chain(by).collect()
}

/// How many losses the list shows.
const LOSSES: usize = 12;

fn losses(document: &SweepDocument) -> String {
    let share = 100.0 * (1.0 - REGRESSION);
    let count = document.regressions.len();
    let mut text = format!("{count} of {} gains are losses of more than {share:.0} %", {
        document.rows.len() * document.candidates.len()
    });
    text.push_str(if count == 0 { ".\n" } else { "; the worst:\n\n" });
    for loss in document.regressions.iter().take(LOSSES) {
        text.push_str(&format!(
            "- {} `{}` on {}: {}\n",
            loss.candidate,
            loss.workload,
            loss.machine,
            decimal(loss.gain)
        ));
    }
    text
}

fn factor(gain: Option<f64>) -> String {
    gain.map_or_else(|| "-".into(), decimal)
}

fn tone(gain: Option<f64>) -> Tone {
    match gain {
        Some(gain) if gain < REGRESSION => Tone::Bad,
        Some(gain) if gain > 1.0 / REGRESSION => Tone::Good,
        _ => Tone::Plain,
    }
}
