//! What a run leaves behind, besides its trace.

use serde::Serialize;
use warmcore_memory::analytic::Counters;
use warmcore_trace::{Histogram, OVERHEAD_KINDS};

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Every task exited.
    AllExited,
    /// The workload's duration was over, or a task stopped it.
    Stopped,
    /// [`Setup::max_time_ns`](crate::Setup) was reached first.
    TimeLimit,
}

/// A task of the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TaskOutcome {
    /// Dense number, in order of creation.
    pub id: u32,
    /// Template's name and, where it has several instances, the instance's number.
    pub name: String,
    /// Role in reports.
    pub role: String,
    /// Index into the applications.
    pub application: u32,
    /// Index into the processes.
    pub process: u32,
    /// Creation.
    pub started_ns: u64,
    /// Exit, if it came to that.
    pub exited_ns: Option<u64>,
    /// Time on CPU, interrupts and switches included, as the scheduler charges it.
    pub cpu_time_ns: u64,
    /// Of that, progress of its own program: work (at nominal speed), CPU time, busy waiting.
    pub progress_ns: u64,
    /// Of that, busy waiting.
    pub spin_ns: u64,
    /// Asleep until a time came.
    pub slept_ns: u64,
    /// What its time and accesses went to, if the memory was modelled.
    #[serde(skip)]
    pub memory: Option<Counters>,
}

/// An application of the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ApplicationOutcome {
    /// Name.
    pub name: String,
    /// From the creation of its first task to the exit of its last, or to the end of the run.
    pub elapsed_ns: u64,
    /// Whether all its tasks exited.
    pub finished: bool,
    /// CPU time of its tasks.
    pub cpu_time_ns: u64,
}

/// How a CPU spent the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CpuOutcome {
    /// Idle.
    pub idle_ns: u64,
    /// With a task on it.
    pub busy_ns: u64,
    /// Kernel time by [`OverheadKind`](warmcore_trace::OverheadKind), spent on busy and idle CPUs.
    pub overhead_ns: [u64; OVERHEAD_KINDS],
    /// What its time and accesses went to, if the memory was modelled.
    #[serde(skip)]
    pub memory: Option<Counters>,
    /// Clock in cycles per nanosecond, if the memory was modelled; 1 otherwise.
    #[serde(skip)]
    pub frequency_ghz: f64,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Simulated time at the end.
    pub elapsed_ns: u64,
    /// Tasks, by id.
    pub tasks: Vec<TaskOutcome>,
    /// Applications, by index.
    pub applications: Vec<ApplicationOutcome>,
    /// CPUs, by id.
    pub cpus: Vec<CpuOutcome>,
    /// What the workload's recorders collected, by index.
    #[serde(skip)]
    pub recorders: Vec<Histogram>,
    /// Equations of loaded memory that were solved, and those among them that did not settle, where the last solution
    /// was kept.
    pub memory_solutions: (u64, u64),
    /// Events the engine processed, overtaken ones not counted.
    pub engine_events: u64,
}
