//! `warmcore validate memory`: the analytic level against the exact one, demand by demand.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use rayon::prelude::*;
use serde::Serialize;
use warmcore_memory::validate::summary::{SeedOutcome, SuiteLine, lines};
use warmcore_memory::validate::{EXPERIMENTS, Effort, SuiteExperiment};

use crate::commands::{as_document, check_new, write_output};
use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::memory_args::ValidateMemoryArguments;
use crate::signals::Signals;

const CODE: &str = "warmcore::validate";

/// The document of `--json`.
#[derive(Serialize)]
struct MemoryValidationDocument<'a> {
    quick: bool,
    seeds: &'a [u64],
    inside: usize,
    outside: usize,
    lines: &'a [SuiteLine],
}

pub fn run(arguments: &ValidateMemoryArguments, console: &Console) -> Result<(), Failure> {
    let chosen = chosen(&arguments.experiments)?;
    arguments.out.as_deref().map_or(Ok(()), |path| check_new(path, console.force()))?;
    let signals = Signals::listen()?;
    let seeds: Vec<u64> = (0..u64::from(arguments.seeds)).map(|number| arguments.seed + number).collect();
    let threads = console.jobs();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| Failure::failed(CODE, format!("cannot start threads: {error}")))?;

    let (mut table, mut raw) = (Vec::new(), String::from("experiment,seed,quantity,at,exact,analytic\n"));
    for experiment in chosen {
        console.info(&format!("{}: {}", experiment.id, experiment.summary));
        let outcomes = pool.install(|| {
            seeds.par_iter().map(|seed| outcome(experiment, *seed, arguments.quick, &signals)).collect::<Vec<_>>()
        });
        let outcomes = outcomes.into_iter().collect::<Result<Vec<SeedOutcome>, Failure>>()?;
        table.extend(lines(experiment, &outcomes));
        outcomes.iter().for_each(|outcome| write_points(&mut raw, experiment, outcome));
    }
    if let Some(path) = &arguments.out {
        write_output(Some(path), &raw, console)?;
    }
    let inside = table.iter().filter(|line| line.inside).count();
    let outside = table.len() - inside;
    if console.json() {
        let quick = arguments.quick;
        let content = MemoryValidationDocument { quick, seeds: &seeds, inside, outside, lines: &table };
        console.out(&as_document("warmcore-memory-validation-1", &content))?;
    } else {
        console.out(&console.table(&text(&table)))?;
    }
    let last = arguments.seed + u64::from(arguments.seeds) - 1;
    console.note(&format!("seeds {} to {last}: {inside} demands met, {outside} not", arguments.seed));
    if outside > 0 {
        return Err(Failure::new(Class::Check, CODE, format!("{outside} of {} demands are not met", table.len()))
            .help("docs/models/memory-exact.md says where the analytic model fails, and why as far as it is known"));
    }
    Ok(())
}

/// The experiments of these names, in the suite's order.
fn chosen(names: &[String]) -> Result<Vec<&'static SuiteExperiment>, Failure> {
    let is = |experiment: &SuiteExperiment, name: &String| experiment.id.eq_ignore_ascii_case(name);
    if let Some(unknown) = names.iter().find(|name| !EXPERIMENTS.iter().any(|experiment| is(experiment, name))) {
        let known: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.id).collect();
        return Err(Failure::usage(CODE, format!("there is no experiment `{unknown}`"))
            .help(format!("the experiments are {}", known.join(", "))));
    }
    let wanted = |experiment: &&SuiteExperiment| names.is_empty() || names.iter().any(|name| is(experiment, name));
    Ok(EXPERIMENTS.iter().filter(wanted).collect())
}

fn outcome(experiment: &SuiteExperiment, seed: u64, quick: bool, signals: &Signals) -> Result<SeedOutcome, Failure> {
    if signals.stop.load(Ordering::SeqCst) {
        return Err(signals.failure("interrupted: nothing is written"));
    }
    let effort = if quick { Effort::quick(seed) } else { Effort::full(seed) };
    let outcome = experiment.run(effort);
    let outcome = outcome.map_err(|error| Failure::failed(CODE, format!("{}: {error}", experiment.id)))?;
    Ok(SeedOutcome { seed, outcome })
}

/// One row per value. Texts are quoted, since they have commas; none has quotes.
fn write_points(raw: &mut String, experiment: &SuiteExperiment, SeedOutcome { seed, outcome }: &SeedOutcome) {
    for point in &outcome.points {
        // Writing to a string cannot fail.
        let _ = writeln!(
            raw,
            "{},{seed},\"{}\",\"{}\",{},{}",
            experiment.id, point.quantity, point.at, point.exact, point.analytic
        );
    }
}

fn text(lines: &[SuiteLine]) -> Table {
    let mut table =
        Table::new(["experiment", "metric", ">bound", ">measured", ">seeds inside", "worst where", "verdict"]);
    for line in lines {
        let measured = line.measured.map_or_else(|| "nothing".to_owned(), number);
        table.row([
            line.experiment.clone(),
            line.metric.clone(),
            format!("{} {}", if line.at_least { "at least" } else { "at most" }, number(line.bound)),
            measured,
            format!("{} of {}", line.seeds_inside, line.values.len()),
            if line.at.is_empty() { String::new() } else { format!("{} (seed {})", line.at, line.worst_seed) },
            if line.inside { "inside" } else { "OUTSIDE" }.to_owned(),
        ]);
    }
    table
}

/// Three digits, and no more than the value has.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1e-3 => format!("{value:.1e}"),
        size if size < 1.0 => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').to_owned()
        }
        _ => {
            let text = format!("{value:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}
