//! What the faces of the program have of a recording beside the recording itself: what its reader must know, its machine, and its replay, tried
//! once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_capture::Recording;
use warmcore_capture::recording::lost_in_words;
use warmcore_lab::builder::BuildError;
use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::load::{self, LoadError};
use warmcore_lab::runner::{self, Conduct, RunError};
use warmcore_options::MemoryChoice;
use warmcore_places::recorded::NO_WAKEUPS;
use warmcore_replay::history::Histories;
use warmcore_replay::service::{Latencies, RECORDER};
use warmcore_replay::{Occupied, Overheads, Replay};
use warmcore_topology::{Costs, Machine, PerRelation};

/// The scheduler that tries a replay: a recording does not tell its own.
const KERNEL: &str = "eevdf";

/// Core-to-core latencies of no machine in particular, ns: what generic costs are derived from.
const GENERIC_LATENCIES: PerRelation<u64> = PerRelation([0, 8, 30, 55, 70, 90, 125, 200]);

/// Threads that were chosen of a recording, and what they did.
#[derive(Clone, Copy, Debug)]
pub struct ChosenThreads<'a> {
    /// A name for what is made of them.
    pub name: &'a str,
    /// The recording.
    pub recording: &'a Recording,
    /// The threads.
    pub chosen: &'a BTreeSet<i32>,
    /// What they did.
    pub histories: &'a Histories,
    /// What the kernel's own work took of their CPU time.
    pub overheads: Overheads,
    /// The machine that it was recorded on, where that is known.
    pub machine: Option<&'a Machine>,
}

/// Why a replay was not tried.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// There is no machine for it.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It is no experiment.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// It was interrupted.
    #[error(transparent)]
    Run(RunError),
}

/// What the reader of any result of a recording must know, one sentence each.
pub fn notes(recording: &Recording) -> Vec<String> {
    let mut notes = recording.notes.clone();
    if !recording.has_wakers() {
        notes.push("the recording has no `sched_waking` events: who woke whom is not known".to_owned());
    }
    if !recording.has_wakeups() {
        notes.push(NO_WAKEUPS.to_owned());
    }
    let (lost, more) = recording.events_lost();
    if lost > 0 || more {
        let lost = lost_in_words(lost, more);
        notes.push(format!("the recorder lost {lost} events: results near them are wrong"));
    }
    notes
}

/// The machine that a recording describes itself, if it does.
///
/// # Errors
/// Why that machine is not used: it is damaged, or lacks CPUs of the recording.
pub fn own_machine(recording: &Recording) -> Result<Option<Machine>, String> {
    let Some(text) = &recording.machine else { return Ok(None) };
    let machine = warmcore_topology::from_toml(text).map_err(|error| error.to_string())?;
    let cpus = machine.cpus().map(|cpu| machine.os_index(cpu) + 1).max().unwrap_or(0);
    match recording.cpus <= cpus {
        true => Ok(Some(machine)),
        false => Err(format!("CPU {} is not one of its CPUs", recording.cpus - 1)),
    }
}

/// What the kernel's own work takes on a machine, or on one with generic costs where it is not known.
pub fn overheads(machine: Option<&Machine>) -> Overheads {
    machine.map_or_else(
        || Overheads::of(&Costs::derived_from(&GENERIC_LATENCIES)),
        |machine| Overheads::of(machine.costs()),
    )
}

/// The replay of a recording, tried once, alone on the machine that it was recorded on: how long it takes belongs to what is known of it.
/// Where the machine is not known, it is one whose CPUs all have one LLC. Beside it, why it does not run there, if it does not.
///
/// # Errors
/// When there is no such experiment, or `stop` is set meanwhile.
pub fn tried(of: &ChosenThreads<'_>, stop: &Arc<AtomicBool>) -> Result<(Replay, Option<String>), TryError> {
    let mut made = warmcore_replay::workload::replay(of.name, of.histories, of.recording, of.overheads);
    if made.workload.tasks.is_empty() {
        return Ok((made, None));
    }
    let machine = match of.machine {
        Some(machine) => Named { source: machine.name().to_owned(), value: machine.clone() },
        None => load::machine(&format!("1s1n1l{}c1t", of.recording.cpus.max(1)))?,
    };
    let workload = Named { source: of.name.to_owned(), value: made.workload.clone() };
    let built = Experiment::builder(machine, workload)
        .schedulers(vec![load::scheduler(KERNEL)?])
        .seeds(vec![1])
        .memory(Some(MemoryChoice::None))
        .metric(Some("elapsed_ns".into()))
        .build()?;
    let conduct = Conduct { jobs: 1, stop: Arc::clone(stop), progress: &|_| {} };
    let mut fault = None;
    match runner::run(&built.experiment, None, &conduct) {
        Ok(finished) => {
            let trial = finished.trials.iter().flatten().next();
            made.fidelity.replayed_ns = trial.map(|trial| trial.elapsed_ns);
            if made.fidelity.takes_another_time().is_some() {
                made.fidelity.occupied = Some(Occupied::of(of.recording, of.chosen));
            }
            let of = |what: &str| trial?.measure(&format!("recorder_{RECORDER}_{what}")).map(|value| value as u64);
            let replayed = || Latencies::new(of("samples").unwrap_or(0), of("p50_ns"), of("p99_ns"));
            if let Some(served) = &mut made.fidelity.service
                && served.measured > 0
            {
                served.replayed = Some(replayed());
            }
            if let Some(pooled) = &mut made.fidelity.pooled {
                pooled.replayed = Some(replayed());
            }
        }
        Err(error @ RunError::Interrupted { .. }) => return Err(TryError::Run(error)),
        Err(error) => fault = Some(format!("the replay does not run on the machine of the recording: {error}")),
    }
    made.workload.notes = made.fidelity.reservations();
    Ok((made, fault))
}
