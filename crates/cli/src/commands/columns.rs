//! Inputs of columns of their own: what `machine=`, `workload=`, `pin=` and a command behind a scheduler's ` @ ` stand for.

use std::collections::BTreeMap;
use std::sync::Arc;

use warmcore_lab::builder::ExperimentBuilder;
use warmcore_lab::column::Inputs;
use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::runner::Conduct;
use warmcore_schedulers::{Circumstances, SchedulerSpec};
use warmcore_search::columns;
use warmcore_search::pins::{self, PinError};
use warmcore_topology::Machine;
use warmcore_workload::Workload;

use crate::args::ProfileArguments;
use crate::console::Console;
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

/// Stands between commands that are compared with each other.
const AGAINST: &str = "--vs";

/// How inputs are read, as for the experiment's own.
pub struct Manner<'a> {
    /// The workload as it was typed, if it was.
    pub workload: Option<&'a str>,
    /// Memory profiles.
    pub profiles: &'a ProfileArguments,
    /// Whom cache-aware schedulers keep together.
    pub aggregate: &'a [String],
    /// Kernel threads.
    pub background: Option<&'a str>,
}

/// Commands of a line, the words between `--vs` and `--vs`.
///
/// # Errors
/// When there is none before one of them, or behind.
pub fn commands(words: &[String]) -> Result<Vec<Vec<String>>, Failure> {
    let commands: Vec<Vec<String>> = words.split(|word| word == AGAINST).map(<[String]>::to_vec).collect();
    match commands.iter().any(Vec::is_empty) && !words.is_empty() {
        true => Err(Failure::usage("warmcore::usage", format!("{AGAINST} belongs between two commands"))
            .help(format!("such as: -- ./server --threads 8 {AGAINST} ./server --threads 16"))),
        false => Ok(commands),
    }
}

/// Every scheduler with every command: the first is the experiment's own.
pub fn with_commands(schedulers: &[SchedulerSpec], commands: &[Vec<String>]) -> Vec<SchedulerSpec> {
    let of = |(number, command): (usize, &Vec<String>)| {
        let command = (number > 0).then(|| command.join(" "));
        move |spec: &SchedulerSpec| match &command {
            None => spec.clone(),
            Some(_) => spec.under(Circumstances { command: command.clone(), ..spec.circumstances().clone() }),
        }
    };
    schedulers.iter().flat_map(|spec| commands.iter().enumerate().map(move |command| of(command)(spec))).collect()
}

/// Refuses what is asked of the experiment's one machine and workload where columns have others.
///
/// # Errors
/// With the first such column.
pub fn check(schedulers: &[SchedulerSpec], load: bool, headroom: bool) -> Result<(), Failure> {
    for spec in schedulers {
        let words = spec.circumstances();
        let other_workload = words.workload.is_some() || words.command.is_some();
        let why = match (load && other_workload, headroom && (other_workload || words.machine.is_some())) {
            (true, _) => "--load changes how much of one workload there is",
            (_, true) => "--headroom finds the best placement of one workload on one machine",
            _ => continue,
        };
        return Err(Failure::usage("warmcore::usage", format!("{why}, and `{spec}` has another"))
            .help("ask that on its own, without this column"));
    }
    Ok(())
}

/// What each scheduler's words stand for. `builder` makes experiments of the kind that is asked for.
///
/// # Errors
/// What cannot be read, and placements that there are none of.
pub fn inputs(
    schedulers: &[SchedulerSpec],
    subject: (&Named<Machine>, &Named<Workload>),
    commands: &[Vec<String>],
    manner: &Manner<'_>,
    builder: &dyn Fn(Named<Machine>, Named<Workload>) -> ExperimentBuilder,
    console: &Console,
) -> Result<BTreeMap<usize, Inputs>, Failure> {
    let read = |machine: &Machine, text: &str| {
        let mut own = load::workload_for(machine, text, manner.profiles, console)?;
        load::aggregate(&mut own, manner.aggregate)?;
        load::warn_unmodelled(&own.value, console);
        Ok(own)
    };
    let pin = |experiment: &Experiment, text: &str| pinned(experiment, text, console);
    let Manner { workload, background, .. } = *manner;
    columns::inputs(
        schedulers,
        subject,
        &columns::Manner { workload, background, commands, read: &read, builder, pin: &pin },
    )
}

fn pinned(experiment: &Experiment, pin: &str, console: &Console) -> Result<Named<Workload>, Failure> {
    if pin == "oracle" {
        console.note("looking for the best static placement");
    }
    let signals = Signals::listen()?;
    let conduct = Conduct { jobs: console.jobs(), stop: Arc::clone(&signals.stop), progress: &|_| {} };
    let bar = console.phase("looking for a placement");
    let pinned = pins::pinned(experiment, pin, &conduct);
    bar.finish_and_clear();
    pinned.map_err(|error| match error {
        PinError::Oracle(error) => super::compare::oracle_failure(error, None, &signals),
        error => {
            let advice = error.advice();
            Failure::usage("warmcore::pin", error).help(advice)
        }
    })
}
