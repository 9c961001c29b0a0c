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
use warmcore_loader::{Limits, Outbox, Sandbox, WorkerError, work_apart};
use warmcore_topology::Machine;
use warmcore_trace::wire::{self, EVENT_BYTES};
use warmcore_trace::{Event, Histogram, MemoryCounters, Outcome, Sink};

use crate::place::{OperationUse, PlaceError, Report, Sequence, Trouble};

/// Kinds of messages.
const EVENTS: u8 = 1;
const RESULT: u8 = 2;

/// Events that are sent at once, in bytes.
const BATCH_BYTES: usize = 64 << 10;

/// Memory that a run may take besides what its scheduler's maps have.
const MEMORY_BYTES: u64 = 4 << 30;

/// CPU time that a run may take.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// A run that is to be had apart.
pub struct Apart<'a> {
    /// Where it is simulated.
    pub machine: &'a Machine,
    /// The scheduler, as messages call it.
    pub scheduler: String,
    /// Bytes of memory that its programs share.
    pub map_bytes: u64,
    /// What the run needs of the system.
    pub sandbox: Sandbox,
    /// Set by the caller to stop soon.
    pub stop: Option<&'a AtomicBool>,
    /// The program whose code lies at an address, if one does.
    pub program_at: &'a dyn Fn(u64) -> Option<String>,
}

/// What a run leaves, as it is sent.
#[derive(Serialize, Deserialize)]
struct Left {
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
    /// Makes the run: `begin` prepares it, and `run` makes it once the process is sealed.
    ///
    /// # Errors
    /// Those of the run, and when its process did not come to its end.
    pub fn run<T>(
        &self,
        begin: impl FnOnce() -> Result<T, PlaceError>,
        run: impl FnOnce(T, Option<&mut dyn Sink>) -> Result<Report, PlaceError>,
        mut sink: Option<&mut dyn Sink>,
    ) -> Result<Report, PlaceError> {
        let limits = Limits { memory_bytes: MEMORY_BYTES.saturating_add(self.map_bytes), cpu: LONGEST };
        let wants_events = sink.is_some();
        let work = |outbox: &mut Outbox| {
            let result = begin().map(|begun| outbox.seal(self.sandbox).map(|()| begun));
            let report = match result {
                Ok(sealed) => {
                    let mut sender = Sender { outbox, bytes: Vec::new() };
                    let report = run(sealed?, wants_events.then_some(&mut sender as &mut dyn Sink));
                    sender.flush()?;
                    report
                }
                Err(error) => Err(error),
            };
            outbox.send(RESULT, &serde_json::to_vec(&report.map(Left::new).map_err(Wrong::new))?)
        };
        let (mut result, mut trouble) = (None, None);
        let mut events = Vec::new();
        let mut take = |kind: u8, message: &[u8]| {
            let taken = match (kind, &mut sink) {
                (EVENTS, Some(sink)) => match self.decoded(message, &mut events) {
                    Some(()) => sink.events(&events).map_err(|error| SimulationError::Sink(error).into()),
                    None => Err(self.failed(&WorkerError::Garbled)),
                },
                (RESULT, _) => {
                    result = serde_json::from_slice::<Result<Left, Wrong>>(message).ok();
                    result.is_some().then_some(()).ok_or_else(|| self.failed(&WorkerError::Garbled))
                }
                _ => Err(self.failed(&WorkerError::Garbled)),
            };
            trouble = taken.err();
            trouble.is_none()
        };
        let worked = work_apart(limits, self.stop, work, &mut take);
        match (trouble, worked, result) {
            (Some(error), ..) => Err(error),
            (None, Err(WorkerError::Interrupted), _) => Err(PlaceError::interrupted()),
            (None, Err(error), _) => Err(self.failed(&error)),
            (None, Ok(()), Some(result)) => result.map(Left::report).map_err(Wrong::error),
            (None, Ok(()), None) => Err(self.failed(&WorkerError::Garbled)),
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

    fn failed(&self, error: &WorkerError) -> PlaceError {
        let scheduler = &self.scheduler;
        let (message, advice) = match error {
            WorkerError::Crashed { at, .. } => {
                let program = (self.program_at)(*at).map_or_else(String::new, |name| format!("in program `{name}`, "));
                (format!("{scheduler}: {program}{error}"), OUR_FAULT)
            }
            WorkerError::Memory { .. } => (format!("{scheduler}: {error}"), "give it a smaller workload or machine"),
            WorkerError::Cpu { .. } => (format!("{scheduler}: {error}"), "give it a shorter workload"),
            _ => (format!("{scheduler}: {error}"), OUR_FAULT),
        };
        PlaceError::new(Trouble::Scheduler, "warmcore::scheduler", message, advice)
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

impl Left {
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
