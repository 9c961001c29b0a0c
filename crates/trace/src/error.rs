//! Events that cannot be: what a sink that understands events refuses.

use std::io;

use warmcore_topology::CpuId;

use crate::{Event, TaskId};

/// An event that contradicts the machine, the run's tables or the order of time. The run that produced it is wrong as a
/// whole; nothing can be computed from the rest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum EventError {
    #[error("event out of order: {event:?} comes after an event at {previous_ns} ns; sort the trace by time first")]
    OutOfOrder { event: Event, previous_ns: u64 },
    #[error("{event:?} names {cpu}, but the machine has {cpus} CPUs; was the trace made on another machine?")]
    UnknownCpu { event: Event, cpu: CpuId, cpus: usize },
    /// The idle task where a task is needed, or a number far beyond any run's.
    #[error("{event:?} is about {task:?}, which is no task (ids are dense and below {limit})")]
    NoTask { event: Event, task: TaskId, limit: u32 },
    #[error("{event:?} refers to entry {index} of the run's {table}, which has {length}; pass the run's own tables")]
    UnknownEntry { event: Event, table: &'static str, index: u32, length: usize },
}

impl From<EventError> for io::Error {
    fn from(error: EventError) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}
