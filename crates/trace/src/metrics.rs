//! Metrics of a run, computed from its events alone while they stream by, in constant memory.
//!
//! [`Counters`] is the sink; [`Metrics`] is the result; [`METRICS`] lists every figure that tables and comparisons show,
//! with unit, direction and definition. Definitions follow one rule: one place each. Metrics of one task are defined in
//! `task`, those of one CPU in `cpu`, work conservation in `work_conservation`, and what an event counts as in `counters`.
//!
//! Not here: anything that needs a memory model (stalls, misses), raw values (see the store), statistics over several
//! runs (see the statistics crate).

mod by_task;
mod counters;
mod cpu;
mod list;
mod over_time;
mod queued;
mod result;
mod task;
mod work_conservation;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use counters::{Counters, Start};
pub use list::{METRICS, MetricInfo, metric};
pub use result::{
    ApplicationMetrics, Censored, CpuMetrics, Distribution, METRICS_SCHEMA, Metrics, Migrations, PlacedCount,
    TaskMetrics, Totals,
};
pub use task::Waits;
pub use warmcore_statistics::Better;
