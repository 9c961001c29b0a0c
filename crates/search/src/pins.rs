//! Placements by name: every long-lived thread of a workload bound to CPUs, for a column of a comparison.
//!
//! `spread` and `gathered` are placements that the oracle's search begins with ([`placement`](crate::placement)): a CPU of its own for each
//! thread while there are any, from each node, LLC and core in turn, or one LLC after another, its cores before their siblings. `oracle` is
//! what the search finds. A file is an `oracle.json` of a run directory, or any JSON document with its `threads`.

use std::path::Path;

use serde::Deserialize;
use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::files::text_of_file;
use warmcore_lab::headroom::PinnedThread;
use warmcore_lab::runner::Conduct;
use warmcore_topology::{CpuSet, Machine, parse_cpu_list};
use warmcore_workload::Workload;

use crate::oracle::{self, OracleError, bound, problem};
use crate::threads::{Unrolled, unroll, why_none};

/// Placements that have a name.
const NAMED: [&str; 2] = ["spread", "gathered"];

/// Why threads cannot be bound.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum PinError {
    #[error("there is nothing to pin in workload `{workload}`: {why}")]
    NoThreads { workload: String, why: &'static str },
    #[error("pin={text}: {reason}; there are spread, gathered, oracle, and files such as an oracle.json")]
    File { text: String, reason: String },
    /// The oracle has no answer.
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

impl PinError {
    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NoThreads { .. } => "leave out pin=, or bind the whole with cpus=",
            Self::File { .. } => "`warmcore compare --headroom` writes an oracle.json into its run directory",
            Self::Oracle(error) => error.advice(),
        }
    }
}

/// A file of a placement: what else stands there says how it was found.
#[derive(Deserialize)]
struct PlacementFile {
    threads: Vec<PinnedThread>,
}

/// The workload of an experiment with its long-lived threads bound as a text says. For `oracle` trials of the experiment's kind are rehearsed.
///
/// # Errors
/// What is no placement of this workload on this machine.
pub fn pinned(experiment: &Experiment, text: &str, conduct: &Conduct<'_>) -> Result<Named<Workload>, PinError> {
    let (machine, workload) = (&experiment.machine.value, &experiment.workload);
    let value = if text == "oracle" {
        oracle::placed(experiment, conduct)?
    } else {
        let unrolled = unroll(&workload.value, machine);
        if unrolled.threads.is_empty() {
            let workload = &workload.value;
            return Err(PinError::NoThreads { workload: workload.name.clone(), why: why_none(workload) });
        }
        let pins = match NAMED.contains(&text) {
            true => named(machine, &unrolled, text),
            false => {
                of_file(machine, &unrolled, text).map_err(|reason| PinError::File { text: text.to_owned(), reason })?
            }
        };
        bound(&unrolled, machine, &pins)
    };
    Ok(Named { source: workload.source.clone(), value })
}

/// A placement of the search, a CPU for each thread.
fn named(machine: &Machine, unrolled: &Unrolled, name: &str) -> Vec<CpuSet> {
    let starts = problem(machine, unrolled).starts();
    let cpus = starts.into_iter().find(|(known, _)| *known == name).map(|(_, cpus)| cpus).unwrap_or_default();
    cpus.into_iter().map(|cpu| std::iter::once(cpu).collect()).collect()
}

/// The placement of a file: every thread must be there, on CPUs that are.
fn of_file(machine: &Machine, unrolled: &Unrolled, path: &str) -> Result<Vec<CpuSet>, String> {
    let text = text_of_file(Path::new(path)).map_err(|error| error.to_string())?;
    let PlacementFile { threads } = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let tasks = &unrolled.workload.tasks;
    if let Some(stranger) = threads.iter().find(|pinned| !tasks.iter().any(|task| task.name == pinned.task)) {
        return Err(format!("the workload has no thread `{}`", stranger.task));
    }
    let pins_of = |thread: &usize| {
        let name = &tasks[*thread].name;
        let Some(pinned) = threads.iter().find(|pinned| pinned.task == *name) else {
            return Err(format!("it does not say where `{name}` runs"));
        };
        let numbers = parse_cpu_list(&pinned.cpus).map_err(|error| error.to_string())?;
        let cpu = |number: u32| {
            machine.cpu_by_os_index(number).ok_or_else(|| format!("`{name}`: there is no CPU {number} online"))
        };
        let cpus = numbers.into_iter().map(cpu).collect::<Result<CpuSet, String>>()?;
        if cpus.is_empty() { Err(format!("`{name}` has no CPU")) } else { Ok(cpus) }
    };
    unrolled.threads.iter().map(pins_of).collect()
}
