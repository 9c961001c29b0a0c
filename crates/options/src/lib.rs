//! What a run can be asked for besides machine, workload, scheduler and seed, said once.
//!
//! An experiment holds a [`RunOptions`], its record writes it, a place's request carries it, and the simulated kernel is set up with it:
//! a new field is at hand in all of them. This crate does nothing with options; what they do stands where they are used.

mod memory;

pub use crate::memory::MemoryChoice;
use serde::{Deserialize, Serialize};

/// What a run is asked for. Fields that decide what a run gives are part of an experiment's record, in this order; one that is `None` or has
/// its default is left out, so that records without it stay what they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RunOptions {
    /// How memory is modelled, where it is a model.
    #[serde(default)]
    pub memory: MemoryChoice,
    /// End of the run even if tasks still run, ns after its start, at least 1; `None` for no end but the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time_ns: Option<u64>,
    /// How long after its start nothing of the run counts, ns; `None` for what the workload says. Places read it in the workload, which a
    /// resolved experiment gives the same value, as files of workloads have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up_ns: Option<u64>,
    /// What is recorded.
    pub trace: TraceLevel,
    /// Shortest time between two samples of what the scheduler ranks a CPU's tasks by, ns, at least 1; `None` for no samples. They are
    /// taken at ticks and switches, cost the simulated machine nothing, and are told by policies, which a real kernel's are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores_every_ns: Option<u64>,
    /// Whether load balancers tell the figures that their moves rest on, as far as the place knows them. It changes no result.
    #[serde(skip)]
    pub balance_details: bool,
    /// Room for events that wait to be taken, KiB per CPU, at least 1; `None` for the place's own choice.
    #[serde(skip)]
    pub buffer_kib: Option<u32>,
    /// What is noted of a sched_ext scheduler, where that costs something.
    #[serde(skip)]
    pub observe: Observe,
}

impl RunOptions {
    /// Whether anything is made of events. Where they are recorded from outside, recording takes time from the run.
    pub fn wants_events(&self) -> bool {
        self.trace != TraceLevel::None
    }

    /// The same without event tables and what stands in them only: for runs that are measured and not kept.
    #[must_use]
    pub fn without_tables(self) -> Self {
        Self { trace: self.trace.min(TraceLevel::Counters), scores_every_ns: None, ..self }
    }
}

/// What a run records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceLevel {
    /// Nothing but the outcome.
    None,
    /// Metrics, in constant memory.
    #[default]
    Counters,
    /// Metrics, and every event in Parquet tables.
    Full,
}

/// What is noted of a sched_ext scheduler in a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observe {
    /// Nothing.
    #[default]
    Nothing,
    /// How often its operations are called, by the kernel's count, which costs each call two looks at the clock.
    Operations,
    /// That, and which functions of the kernel they call, which costs an interruption for each.
    Calls,
}
