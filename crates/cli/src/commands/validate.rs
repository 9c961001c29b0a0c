//! `warmcore validate`: the fidelity book, in the simulator and on a real kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warmcore_fidelity::validate::book::{BookError, BookExperiment};
use warmcore_fidelity::validate::costs::{StoredCost, measured_costs};
use warmcore_fidelity::validate::judge::{Agreement, Of};
use warmcore_fidelity::validate::page::{CHAPTERS, accepted, chapter, counts, summary};
use warmcore_fidelity::validate::plots::Plots;
use warmcore_fidelity::validate::run::{self, Chapter, ValidateError};
use warmcore_fidelity::validate::stored::{self, StoredResult};
use warmcore_lab::files::{At as _, create_directory, write_atomically};
use warmcore_places::place::BatchConduct;
use warmcore_topology::NO_BACKGROUND;

use crate::args::{Renewed, ValidateArguments};
use crate::commands::{as_document, validate_memory, vm};
use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::memory_args::ValidateCommand;
use crate::signals::Signals;
use warmcore_lab::load;

/// Directory of stored results, beside an experiment's file.
const RESULTS: &str = "results";
/// The document in the directory of `--out`.
const DOCUMENT: &str = "validation.json";

pub fn run(arguments: &ValidateArguments, console: &Console) -> Result<(), Failure> {
    if let Some(ValidateCommand::Memory(memory)) = &arguments.other {
        return validate_memory::run(memory, console);
    }
    let signals = Signals::listen()?;
    let background = arguments.background.as_deref().map(load::background_called).transpose()?;
    let read = |path: &PathBuf| {
        let experiment = BookExperiment::read(path)?;
        Ok((path.clone(), background.iter().try_fold(experiment, BookExperiment::beside)?))
    };
    let experiments =
        arguments.experiments.iter().map(read).collect::<Result<Vec<(PathBuf, BookExperiment)>, BookError>>().map_err(
            |error| Failure::usage("warmcore::book", error).help("book/README.md says what an experiment's file holds"),
        )?;
    let failed = |error| validate_failure(error, &signals);
    let conduct = conduct(&signals, console);
    // Found out before anything is booted.
    let out = arguments.out.as_deref().map(new_directory).transpose()?;
    let mut plots = Plots::default();
    let mut results: Vec<Option<StoredResult>> = vec![None; experiments.len()];
    if arguments.stored {
        for ((path, experiment), result) in experiments.iter().zip(&mut results) {
            *result = stored::read(&results_directory(path), experiment).map_err(failed)?;
        }
        if arguments.renew.contains(&Renewed::Costs) {
            measure_costs(arguments, &experiments, &mut results, &signals, console)?;
        }
        for ((path, experiment), result) in experiments.iter().zip(&mut results) {
            match result {
                Some(result)
                    if arguments.renew.contains(&Renewed::Simulations)
                        && experiment.has_programs()
                        && has_all(experiment, console) =>
                {
                    console.info(&format!("simulating {} again", experiment.name));
                    run::simulate_programs(experiment, result, &conduct).map_err(failed)?;
                    keep(path, experiment, result)?;
                }
                Some(result) if result.is_beside_another(experiment) => {
                    let [stored, wanted] = [result.simulated_beside.as_deref(), experiment.background()]
                        .map(|name| name.unwrap_or(NO_BACKGROUND));
                    console.warn(&format!(
                        "{}: what is stored of its programs was simulated with --background {stored} and not {wanted}, so it is not \
                         compared; --renew simulations makes them",
                        experiment.name
                    ));
                }
                Some(_) => {}
                None => console.warn(&format!("{}: no stored result of this experiment", experiment.name)),
            }
        }
    } else {
        boot(arguments, &experiments, &mut results, &mut plots, &signals, console)?;
    }
    let mut chapters = Vec::new();
    for ((_, experiment), result) in experiments.iter().zip(&results) {
        console.info(&format!("simulating {}", experiment.name));
        chapters.push(run::compare(experiment, result.as_ref(), &mut plots, &conduct).map_err(failed)?);
    }
    if let Some(path) = &arguments.page {
        write_pages(path, &experiments, &chapters)?;
    }
    let document = as_document("warmcore-validation-1", &BTreeMap::from([("experiments", &chapters)]));
    if let Some(out) = out {
        plots.write(out)?;
        write_atomically(&out.join(DOCUMENT), document.as_bytes())?;
        console.note(&format!("figures' data: {}", out.display()));
    }
    if console.json() {
        console.out(&document)?;
    } else {
        console.out(&console.table(&table(&chapters)))?;
    }
    conclude(&chapters, arguments.fail, console)
}

/// How simulations are run.
fn conduct(signals: &Signals, console: &Console) -> BatchConduct {
    BatchConduct { jobs: console.jobs(), stop: Arc::clone(&signals.stop) }
}

/// Whether all programs of an experiment are there; says which are not.
fn has_all(experiment: &BookExperiment, console: &Console) -> bool {
    let absent = experiment.absent_programs();
    if !absent.is_empty() {
        let names = absent.join(", ");
        console.warn(&format!("{}: not run: {names} is neither next to this program nor in PATH", experiment.name));
    }
    absent.is_empty()
}

/// Boots each machine once to measure its kernel's own costs, and keeps them with the stored results of that kernel.
fn measure_costs(
    arguments: &ValidateArguments,
    experiments: &[(PathBuf, BookExperiment)],
    results: &mut [Option<StoredResult>],
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let place = vm::guests(&arguments.guest.guest, &[], console)?;
    console.note(&format!("real kernel: {}", place.identity()));
    let mut measured: BTreeMap<&str, Vec<StoredCost>> = BTreeMap::new();
    for ((path, experiment), result) in experiments.iter().zip(results) {
        let Some(result) = result else { continue };
        if !result.is_from(&*place) {
            console.warn(&format!(
                "{}: its stored boots ran another kernel, QEMU or execution, so its costs stay as they are",
                experiment.name
            ));
            continue;
        }
        let machine = experiment.machine_text.as_str();
        if !measured.contains_key(machine) {
            console.note(&format!("{machine}: measuring costs"));
            let costs = measured_costs(&*place, experiment, &signals.stop);
            measured.insert(machine, costs.map_err(|error| validate_failure(error, signals))?);
        }
        result.costs.clone_from(&measured[machine]);
        keep(path, experiment, result)?;
    }
    Ok(())
}

/// Boots each machine, with all experiments that are of it and whose programs are there.
fn boot(
    arguments: &ValidateArguments,
    experiments: &[(PathBuf, BookExperiment)],
    results: &mut [Option<StoredResult>],
    plots: &mut Plots,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let present: Vec<usize> = (0..experiments.len()).filter(|index| has_all(&experiments[*index].1, console)).collect();
    if present.is_empty() {
        return Ok(());
    }
    let of = |index: &usize| &experiments[*index].1;
    let schedulers: Vec<_> = present.iter().flat_map(|index| of(index).schedulers.iter().cloned()).collect();
    let place = vm::guests(&arguments.guest.guest, &schedulers, console)?;
    console.note(&format!("real kernel: {}", place.identity()));
    let mut machines: Vec<&str> = Vec::new();
    for experiment in present.iter().map(of) {
        if !machines.contains(&experiment.machine_text.as_str()) {
            machines.push(&experiment.machine_text);
        }
    }
    for machine in machines {
        let of_machine: Vec<usize> =
            present.iter().copied().filter(|index| experiments[*index].1.machine_text == machine).collect();
        let selected: Vec<&BookExperiment> = of_machine.iter().map(|index| &experiments[*index].1).collect();
        let boots = usize::from(arguments.boots);
        let booted = run::boot_all(&place, &selected, boots, plots, &signals.stop, &|text| console.note(text))
            .map_err(|error| validate_failure(error, signals))?;
        for (index, result) in of_machine.into_iter().zip(booted) {
            let (path, experiment) = &experiments[index];
            for reason in &result.failed {
                console.warn(&format!("{}: a boot failed: {reason}", experiment.name));
            }
            let mut result = result;
            if experiment.has_programs() {
                let simulated = run::simulate_programs(experiment, &mut result, &conduct(signals, console));
                simulated.map_err(|error| validate_failure(error, signals))?;
            }
            if arguments.store && !result.boots.is_empty() {
                keep(path, experiment, &result)?;
            }
            results[index] = Some(result);
        }
    }
    Ok(())
}

/// Keeps a result beside its experiment.
fn keep(path: &Path, experiment: &BookExperiment, result: &StoredResult) -> Result<(), Failure> {
    let directory = results_directory(path);
    create_directory(&directory)?;
    Ok(stored::write(&directory, &experiment.name, result)?)
}

/// The summary in `path`, and each chapter beside its experiment.
fn write_pages(path: &Path, experiments: &[(PathBuf, BookExperiment)], chapters: &[Chapter]) -> Result<(), Failure> {
    let directories: Vec<&Path> = experiments.iter().map(|(file, _)| file.parent().unwrap_or(Path::new(""))).collect();
    let book = |wanted: &Chapter| {
        let position = chapters.iter().position(|chapter| std::ptr::eq(chapter, wanted)).unwrap_or(0);
        directories[position].display().to_string()
    };
    for (content, directory) in chapters.iter().zip(&directories) {
        let pages = directory.join(CHAPTERS);
        create_directory(&pages)?;
        write_atomically(&pages.join(format!("{}.md", content.name)), chapter(content).as_bytes())?;
    }
    Ok(write_atomically(path, summary(chapters, &book).as_bytes())?)
}

/// A directory that is new or empty: what is there is never written over.
fn new_directory(path: &Path) -> Result<&Path, Failure> {
    create_directory(path)?;
    match std::fs::read_dir(path).at("read", path)?.next() {
        None => Ok(path),
        Some(_) => {
            let text = format!("{} exists and is not empty", path.display());
            Err(Failure::usage("warmcore::directory", text).help("choose another --out"))
        }
    }
}

fn results_directory(experiment: &Path) -> PathBuf {
    experiment.parent().unwrap_or(Path::new("")).join(RESULTS)
}

fn validate_failure(error: ValidateError, signals: &Signals) -> Failure {
    match error {
        ValidateError::Interrupted => signals.failure(error),
        error => Failure::failed("warmcore::validate", error),
    }
}

fn table(chapters: &[Chapter]) -> Table {
    let mut table =
        Table::new(["experiment", "scheduler", "metric", "of", ">simulated", ">real", ">error", ">bound", "verdict"]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.4}"));
    for chapter in chapters {
        for line in &chapter.lines {
            let worst = line.judgement.worst();
            let (sim, vm) = worst.map_or((None, None), |pair| (pair.sim, pair.vm));
            let label = match worst {
                None => "-".into(),
                // Its error is no difference of the two medians.
                Some(pair) if pair.of == Of::Distribution => format!("{} (distribution)", pair.label),
                Some(pair) => pair.label.clone(),
            };
            table.row([
                chapter.name.clone(),
                line.scheduler.clone(),
                line.metric.clone(),
                label,
                number(sim),
                number(vm),
                number(line.judgement.error),
                line.bound.clone(),
                line.judgement.words(),
            ]);
        }
        for control in &chapter.controls {
            let verdict = match (control.rejected, control.measured) {
                (true, _) => "rejected",
                (false, true) => "NOT REJECTED",
                (false, false) => "not measured",
            };
            let mut row = vec![chapter.name.clone(), "control".into(), control.name.clone()];
            row.resize(8, String::new());
            row.push(verdict.into());
            table.row(row);
        }
    }
    table
}

fn conclude(chapters: &[Chapter], fail: bool, console: &Console) -> Result<(), Failure> {
    let [inside, outside, unknown] = counts(chapters);
    let accepted: Vec<String> = chapters
        .iter()
        .flat_map(|chapter| accepted(chapter).map(move |control| format!("{control} ({})", chapter.name)))
        .collect();
    console.note(&format!("{inside} inside, {outside} outside, {unknown} {}", Agreement::NotMeasured.name()));
    for control in &accepted {
        console.warn(&format!("a wrong model was not rejected: {control}"));
    }
    if fail && (outside > 0 || !accepted.is_empty()) {
        let text =
            format!("{outside} comparisons are outside their bounds, {} controls were not rejected", accepted.len());
        return Err(Failure::new(Class::Check, "warmcore::validate", text));
    }
    Ok(())
}
