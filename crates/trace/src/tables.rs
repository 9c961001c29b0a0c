//! The tables that events refer to by index, and the list of a run's tasks.

use serde::{Deserialize, Serialize};
use warmcore_topology::CpuSet;

use crate::{DecisionKind, TaskId};

/// What the indices in events stand for. Known before the first event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RunTables {
    /// CPU sets that [`EventKind::Affinity`](crate::EventKind::Affinity) refers to. Index 0 is all CPUs of the machine.
    pub restrictions: Vec<CpuSet>,
    /// Names of counters, with unit as suffix.
    pub counters: Vec<String>,
    /// Whether a counter's sample of a task counts one stay on the CPU that it names, and not the task's whole life.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted_per_stay: bool,
    /// Names of phases.
    pub phases: Vec<String>,
    /// Kinds of decisions.
    pub decisions: Vec<DecisionKind>,
    /// Names of scores, with unit as suffix. Empty where none are sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<String>,
    /// The thread that each task was, by task, where real threads were recorded; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<RecordedThread>,
    /// Threads beside the run's tasks that CPUs ran, where a recorder tells: [`EventKind::Foreign`](crate::EventKind::Foreign) refers to
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<RecordedThread>,
    /// Whether CPUs go offline or come online in the run ([`EventKind::Hotplug`](crate::EventKind::Hotplug)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hotplug: bool,
    /// Whether quotas or reservations keep tasks from running in the run, and events tell ([`EventKind::Throttle`](crate::EventKind::Throttle)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub throttle: bool,
}

/// A thread of a real kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecordedThread {
    /// The kernel's number of it.
    pub thread: i32,
    /// Its name; empty where the recorder does not tell.
    pub name: String,
    /// Its process, where the recorder tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<i32>,
}

impl RecordedThread {
    /// Name and number, as recorders write them; the name alone of what is no thread of a kernel.
    pub fn label(&self) -> String {
        if self.thread < 0 {
            return self.name.clone();
        }
        format!("{}-{}", if self.name.is_empty() { "thread" } else { &self.name }, self.thread)
    }
}

/// What is known about a task besides its events. A run's list of tasks is ordered by id and has no gap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Dense number, in order of creation.
    pub id: TaskId,
    /// Name; of a real thread its comm.
    pub name: String,
    /// Role in reports: tasks of one role are shown together.
    pub role: String,
    /// Application it belongs to, dense from 0.
    pub application: u32,
    /// Name of that application.
    pub application_name: String,
    /// Process (address space), dense from 0; of a recorded trace the process id.
    pub process: u32,
}
