//! A migration as a document.

use serde::Serialize;
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{BalanceDetail, TaskId, TaskInfo};

use super::{Migration, Told};
use crate::placement::PlacementRecord;

/// A migration in a document.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MigrationRecord {
    time_ns: u64,
    task: String,
    task_id: u32,
    from: PlaceRecord,
    to: PlaceRecord,
    /// How far the two are from each other.
    relation: String,
    kind: &'static str,
    reason: &'static str,
    /// The CPU that decided, and what it ran; absent if nothing.
    decided_on: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    running_there: Option<String>,
    /// Where the one who woke or created the task ran, where that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    waker_cpu: Option<u32>,
    /// Why it was placed where it was, where somebody told.
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<PlacementRecord>,
    /// Other runnable tasks on the old and the new CPU.
    runnable_on_from: u32,
    runnable_on_to: u32,
    /// CPUs without a runnable task, and all: under the new CPU's LLC, and on the machine.
    idle_in_llc: u32,
    cpus_in_llc: u32,
    idle: u32,
    cpus: u32,
    told: Vec<ToldRecord>,
    details: Vec<DetailRecord>,
}

/// A CPU and what it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct PlaceRecord {
    cpu: u32,
    core: u32,
    llc: u32,
    node: u32,
}

/// What the scheduler said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct ToldRecord {
    cpu: u32,
    what: String,
}

/// A figure that the move rests on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct DetailRecord {
    name: &'static str,
    value: i64,
    /// What the value stands for, if it is no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    word: Option<&'static str>,
}

impl MigrationRecord {
    /// The migration with its names.
    pub fn of(migration: &Migration, machine: &Machine, tasks: &[TaskInfo]) -> Self {
        let place = |cpu: CpuId| PlaceRecord {
            cpu: machine.os_index(cpu),
            core: machine.core_of(cpu).0,
            llc: machine.llc_of(cpu).0,
            node: machine.node_os_index(machine.node_of(cpu)),
        };
        let name = |task: TaskId| tasks.get(task.index()).map(|info| info.name.clone());
        let detail = |(detail, value): &(BalanceDetail, i64)| DetailRecord {
            name: detail.name(),
            value: *value,
            word: detail.word(*value),
        };
        let told = |told: &Told| ToldRecord { cpu: machine.os_index(told.cpu), what: told.what.clone() };
        let [(idle_in_llc, cpus_in_llc), (idle, cpus)] = migration.idle;
        let [runnable_on_from, runnable_on_to] = migration.runnable;
        Self {
            time_ns: migration.time_ns,
            task: name(migration.task).unwrap_or_default(),
            task_id: migration.task.0,
            from: place(migration.from),
            to: place(migration.to),
            relation: machine.relation(migration.from, migration.to).description().to_string(),
            kind: migration.kind.name(),
            reason: migration.reason(),
            decided_on: machine.os_index(migration.decided_on),
            running_there: name(migration.running_there).or_else(|| migration.other_there.clone()),
            waker_cpu: migration.waker_cpu.map(|cpu| machine.os_index(cpu)),
            placement: migration.placement.and_then(|placement| PlacementRecord::of(&placement, machine, tasks)),
            runnable_on_from,
            runnable_on_to,
            idle_in_llc,
            cpus_in_llc,
            idle,
            cpus,
            told: migration.told.iter().map(told).collect(),
            details: migration.details.iter().map(detail).collect(),
        }
    }
}
