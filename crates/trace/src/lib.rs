//! The trace of a run: what happened, and everything that is computed from it alone.
//!
//! - [`event`]: the event model, shared by all places that run experiments, and the [`Sink`] that takes events.
//! - [`balance_details`]: the figures that a load balancer's moves rested on, for those who ask.
//! - [`place_reason`]: why a woken or new task was placed where it was, as policies say it.
//! - [`mod@decisions`]: what schedulers say they decided, and why.
//! - [`tables`]: what the indices in events stand for; the tasks of a run.
//! - [`histogram`]: latencies in constant memory.
//! - [`outcome`]: what a run leaves behind besides its events; [`memory_counters`]: what its time and accesses went to.
//! - [`schedstat`]: the kernel's accounts by CPU and scheduling domain, read, written and compared.
//! - [`slices`]: who ran where, from when to when; shared by everything that makes or draws traces.
//! - [`metrics`]: every metric that follows from events alone, computed while they stream by.
//! - [`store`]: a run as Parquet tables, written while it happens and read back.
//! - [`sink`]: no sink, two sinks.
//! - [`wire`]: events as bytes, from one process to another.
//!
//! The crate does not know who produced a trace. It does no input or output except in the store, which writes into the
//! directory it is given.

pub mod balance_details;
pub mod decisions;
mod error;
pub mod event;
pub mod histogram;
pub mod memory_counters;
pub mod metrics;
pub mod outcome;
pub mod place_reason;
#[cfg(test)]
mod random_events;
pub mod schedstat;
pub mod sink;
pub mod slices;
#[cfg(feature = "store")]
pub mod store;
pub mod tables;
pub mod wire;

pub use balance_details::{BalanceDetail, GROUP_TYPES, MIGRATION_TYPES};
pub use decisions::{DecisionCounts, DecisionId, DecisionKind, DecisionTable, DecisionValue};
pub use error::EventError;
pub use event::*;
pub use histogram::Histogram;
pub use memory_counters::{MemoryCounters, MemoryEvent, TimeShare};
pub use metrics::{Counters, Metrics, Start};
pub use outcome::{
    ApplicationOutcome, BackgroundOutcome, CpuOutcome, End, GroupCounters, GroupOutcome, Outcome, PlacementEffort,
    TaskOutcome,
};
pub use place_reason::{PlaceReason, SearchStart, SearchStep, Side};
pub use sink::{NullSink, Tee};
pub use slices::{Slice, SliceBuilder, SliceEnd};
#[cfg(feature = "store")]
pub use store::{Store, StoreError, StoreInfo, StoreOptions, StoreReader};
pub use tables::{RecordedThread, RunTables, TaskInfo};
