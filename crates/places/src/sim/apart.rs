//! A run under a scheduler of the user's own, in a process of its own: what is sent between that process and this one.
//!
//! The process is a copy of this one, so that it is handed nothing; it sends the run's events, in order, and at the end the report or the error, and
//! they are what the run would have given here. How it is kept to itself: [`work_apart`].

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warmcore_kernel::SimulationError;
use warmcore_loader::{Limits, Outbox, WorkerError, work_apart};
use warmcore_topology::Machine;
use warmcore_trace::wire::{self, EVENT_BYTES};
use warmcore_trace::{Event, Histogram, MemoryCounters, Outcome, Sink};

use crate::place::{OperationUse, PlaceError, Report, Sequence, Trouble};

/// Kinds of messages.
const EVENTS: u8 = 1;
const RESULT: u8 = 2;
const PROGRAMS: u8 = 3;
const BEGUN: u8 = 4;

/// Events that are sent at once, in bytes.
const BATCH_BYTES: usize = 64 << 10;

/// Memory that a run may take besides what its scheduler's maps have.
const MEMORY_BYTES: u64 = 4 << 30;

/// CPU time that a run may take.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// What loading a scheduler may take until it is attached: its loader's own memory and time are not counted.
const LOADING: Limits = Limits { memory_bytes: 1 << 30, cpu: Duration::from_secs(8) };

/// A run that is to be had apart.
pub struct Apart<'a> {
    /// Where it is simulated.
    pub machine: &'a Machine,
    /// The scheduler, as messages call it.
    pub scheduler: String,
    /// Bytes of memory that its programs share.
    pub map_bytes: u64,
    /// Set by the caller to stop soon.
    pub stop: Option<&'a AtomicBool>,
}

/// What a run leaves, as it is sent.
#[derive(Serialize, Deserialize)]
struct SentResult {
    outcome: Outcome,
    /// What documents leave out of an outcome.
    recorders: Vec<Histogram>,
    recorders_since_ns: Vec<u64>,
    task_memory: Vec<Option<MemoryCounters>>,
    cpus: Vec<(Option<MemoryCounters>, f64)>,
    operations: Vec<OperationUse>,
    sequences: Vec<Sequence>,
    output: Option<String>,
}

/// An error, as it is sent.
#[derive(Serialize, Deserialize)]
struct Wrong {
    trouble: Trouble,
    code: String,
    advice: String,
    message: String,
    output: Option<String>,
}

impl Apart<'_> {
    /// Makes the run: `begin` prepares it and seals the process, and `run` makes it.
    ///
    /// # Errors
    /// Those of the run, and when its process did not come to its end.
    pub fn run<T>(
        &self,
        begin: impl FnOnce(&mut Outbox) -> Result<T, PlaceError>,
        run: impl FnOnce(T, Option<&mut dyn Sink>) -> Result<Report, PlaceError>,
        mut sink: Option<&mut dyn Sink>,
    ) -> Result<Report, PlaceError> {
        let limits = Limits { memory_bytes: MEMORY_BYTES.saturating_add(self.map_bytes), cpu: LONGEST };
        let wants_events = sink.is_some();
        let work = |outbox: &mut Outbox| {
            let report = begin(outbox).and_then(|begun| {
                outbox.send(BEGUN, &[1]).map_err(SimulationError::Sink)?;
                let mut sender = Sender { outbox, bytes: Vec::new() };
                let report = run(begun, wants_events.then_some(&mut sender as &mut dyn Sink));
                sender.flush().map_err(SimulationError::Sink)?;
                report
            });
            outbox.send(RESULT, &serde_json::to_vec(&report.map(SentResult::new).map_err(Wrong::new))?)
        };
        let (mut result, mut trouble, mut programs, mut is_loaded) = (None, None, Vec::new(), false);
        let mut events = Vec::new();
        let mut take = |kind: u8, message: &[u8]| {
            let taken = match (kind, &mut sink) {
                (EVENTS, Some(sink)) => match self.decoded(message, &mut events) {
                    Some(()) => sink.events(&events).map_err(|error| SimulationError::Sink(error).into()),
                    None => Err(failed(&self.scheduler, &WorkerError::Garbled, &[])),
                },
                (PROGRAMS, _) => {
                    programs = serde_json::from_slice(message).unwrap_or_default();
                    Ok(())
                }
                (BEGUN, _) => {
                    is_loaded = true;
                    Ok(())
                }
                (RESULT, _) => {
                    result = serde_json::from_slice::<Result<SentResult, Wrong>>(message).ok();
                    result.is_some().then_some(()).ok_or_else(|| failed(&self.scheduler, &WorkerError::Garbled, &[]))
                }
                _ => Err(failed(&self.scheduler, &WorkerError::Garbled, &[])),
            };
            trouble = taken.err();
            trouble.is_none()
        };
        let worked = work_apart(limits, self.stop, work, &mut take);
        match (trouble, worked, result) {
            (Some(error), ..) => Err(error),
            (None, Err(WorkerError::Interrupted), _) => Err(PlaceError::interrupted()),
            (None, Err(error), _) if is_loaded => Err(failed(&self.scheduler, &error, &programs)),
            (None, Err(error), _) => Err(failed_to_load(&self.scheduler, &error, &programs)),
            (None, Ok(()), Some(result)) => result.map(SentResult::report).map_err(Wrong::error),
            (None, Ok(()), None) => Err(failed(&self.scheduler, &WorkerError::Garbled, &[])),
        }
    }

    /// Reads events, and looks whether they can be of this machine.
    fn decoded(&self, message: &[u8], events: &mut Vec<Event>) -> Option<()> {
        events.clear();
        let (whole, rest) = message.as_chunks::<EVENT_BYTES>();
        for bytes in whole {
            events.push(wire::decode(bytes).filter(|event| event.cpu.index() < self.machine.cpu_count())?);
        }
        rest.is_empty().then_some(())
    }
}

/// Loads a scheduler in a process of its own, and gives what is to be known of it.
///
/// # Errors
/// Those of loading it, and when its process did not come to its end.
pub fn survey<T: Serialize + for<'a> Deserialize<'a>>(
    scheduler: &str,
    load: impl FnOnce(&mut Outbox) -> Result<T, PlaceError>,
) -> Result<T, PlaceError> {
    let work = |outbox: &mut Outbox| {
        let loaded = load(outbox).map_err(Wrong::new);
        outbox.send(RESULT, &serde_json::to_vec(&loaded)?)
    };
    let mut result = None;
    let mut take = |_: u8, message: &[u8]| {
        result = serde_json::from_slice::<Result<T, Wrong>>(message).ok();
        result.is_some()
    };
    let worked = work_apart(LOADING, None, work, &mut take);
    match (worked, result) {
        (Ok(()), Some(result)) => result.map_err(Wrong::error),
        (Ok(()), None) => Err(failed(scheduler, &WorkerError::Garbled, &[])),
        (Err(error), _) => Err(failed_to_load(scheduler, &error, &[])),
    }
}

/// Tells the other process where the code of programs lies.
pub(crate) fn send_programs<'a>(
    outbox: &mut Outbox,
    places: impl Iterator<Item = (u64, &'a str)>,
) -> Result<(), PlaceError> {
    let places: Vec<_> = places.collect();
    let sent = serde_json::to_vec(&places).map_err(io::Error::from).and_then(|text| outbox.send(PROGRAMS, &text));
    Ok(sent.map_err(SimulationError::Sink)?)
}

/// The program whose code an address lies in, as far as can be told: the one that begins nearest before it.
fn program_at(programs: &[(u64, String)], address: u64) -> Option<&str> {
    /// More than the code of any program.
    const LONGEST: u64 = 16 << 20;
    let before = programs.iter().filter(|(begin, _)| *begin <= address && address - begin < LONGEST);
    before.max_by_key(|(begin, _)| begin).map(|(_, name)| name.as_str())
}

fn failed(scheduler: &str, error: &WorkerError, programs: &[(u64, String)]) -> PlaceError {
    let (message, advice) = match error {
        WorkerError::Crashed { at, .. } => {
            let program = program_at(programs, *at).map_or_else(String::new, |name| format!("in program `{name}`, "));
            (format!("{scheduler}: {program}{error}"), OUR_FAULT)
        }
        WorkerError::Memory { .. } => (format!("{scheduler}: {error}"), "give it a smaller workload or machine"),
        WorkerError::Cpu { .. } => (format!("{scheduler}: {error}"), "give it a shorter workload"),
        _ => (format!("{scheduler}: {error}"), OUR_FAULT),
    };
    PlaceError::new(Trouble::Scheduler, "warmcore::scheduler", message, advice)
}

/// What ended a process before the scheduler in it was attached: the workload had no part in that.
fn failed_to_load(scheduler: &str, error: &WorkerError, programs: &[(u64, String)]) -> PlaceError {
    match error {
        WorkerError::Memory { .. } | WorkerError::Cpu { .. } => {
            let message = format!("{scheduler} cannot be loaded and translated: {error}");
            let advice = "loading may take no more than that under any workload: give it smaller programs or maps";
            PlaceError::new(Trouble::Scheduler, "warmcore::scheduler", message, advice)
        }
        _ => failed(scheduler, error, programs),
    }
}

const OUR_FAULT: &str = "this is a fault of this program: please report it with the command line and the seed";

/// Sends events.
struct Sender<'a> {
    outbox: &'a mut Outbox,
    bytes: Vec<u8>,
}

impl Sender<'_> {
    fn flush(&mut self) -> io::Result<()> {
        if !self.bytes.is_empty() {
            self.outbox.send(EVENTS, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

impl Sink for Sender<'_> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        for event in batch {
            wire::encode(event, &mut self.bytes);
            if self.bytes.len() >= BATCH_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }
}

impl SentResult {
    fn new(report: Report) -> Self {
        let Report { mut outcome, operations, sequences, output, .. } = report;
        Self {
            recorders: std::mem::take(&mut outcome.recorders),
            recorders_since_ns: std::mem::take(&mut outcome.recorders_since_ns),
            task_memory: outcome.tasks.iter_mut().map(|task| task.memory.take()).collect(),
            cpus: outcome.cpus.iter_mut().map(|cpu| (cpu.memory.take(), cpu.frequency_ghz)).collect(),
            outcome,
            operations,
            sequences,
            output,
        }
    }

    fn report(self) -> Report {
        let Self { mut outcome, recorders, recorders_since_ns, task_memory, cpus, operations, sequences, output } =
            self;
        (outcome.recorders, outcome.recorders_since_ns) = (recorders, recorders_since_ns);
        for (task, memory) in outcome.tasks.iter_mut().zip(task_memory) {
            task.memory = memory;
        }
        for (cpu, (memory, frequency_ghz)) in outcome.cpus.iter_mut().zip(cpus) {
            (cpu.memory, cpu.frequency_ghz) = (memory, frequency_ghz);
        }
        Report { operations, sequences, output, ..Report::new(outcome) }
    }
}

impl Wrong {
    fn new(error: PlaceError) -> Self {
        let message = error.to_string();
        let (code, advice) = (error.code.to_owned(), error.advice.to_owned());
        Self { trouble: error.trouble, code, advice, message, output: error.output }
    }

    fn error(self) -> PlaceError {
        let mut error = PlaceError::new(self.trouble, kept(self.code), self.message, kept(self.advice));
        error.output = self.output;
        error
    }
}

/// A text as one that lives as long as this program: codes and pieces of advice, of which there are few.
fn kept(text: String) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    match all.get(text.as_str()) {
        Some(known) => known,
        None => {
            let text = Box::leak(text.into_boxed_str());
            all.insert(text);
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_loading_is_said_to_be_one_and_not_the_workloads_fault() {
        for (error, limit) in [
            (WorkerError::Memory { limit_bytes: LOADING.memory_bytes }, "more than 1024 MiB of memory"),
            (WorkerError::Cpu { seconds: LOADING.cpu.as_secs() }, "has taken 8 s of CPU time"),
        ] {
            let loading = failed_to_load("`scx_own`", &error, &[]);
            let message = loading.to_string();
            assert!(message.starts_with("`scx_own` cannot be loaded") && message.contains(limit), "{message}");
            assert!(loading.advice.contains("under any workload"), "{}", loading.advice);
            assert!(failed("`scx_own`", &error, &[]).advice.contains("workload"), "in a run it is");
        }
    }
}
