//! Task groups as schedulers see them (control groups with the cpu controller): weights, and which lies in which.
//!
//! Whose groups they are and how they are written is the workload's; what they are for, a policy's.

use warmcore_topology::CpuSet;
use warmcore_workload::{Affinity, CpuMax, Group, Workload};

use crate::clamps::{Clamp, group_clamp};
use crate::clocks::CAPACITY_SCALE;
use crate::core::Core;
use crate::setup::Setup;

/// A task group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskGroup {
    /// Weight among what lies in the same group (`cpu.shares`; 1024 is one nice-0 task).
    pub shares: u32,
    /// The group in which it lies, by index; `None` in the root group. Following it upwards ends.
    pub parent: Option<u32>,
    /// Its quota of CPU time (`cpu.max`), if it has one.
    pub cpu_max: Option<CpuMax>,
    /// Bounds of its tasks' utilisation clamps, with those of the groups above (`cpu.uclamp.min`, `cpu.uclamp.max`).
    pub clamp: Clamp,
    /// Its tasks give way to others as those of `SCHED_IDLE` do (`cpu.idle`).
    pub idle: bool,
    /// How many CPUs its cpuset has, if it or one above has one.
    pub cpus: Option<u32>,
}

impl TaskGroup {
    /// One at the top of which nothing is stated.
    pub const PLAIN: Self =
        Self { shares: 1024, parent: None, cpu_max: None, clamp: Clamp::NONE, idle: false, cpus: None };

    /// A workload's groups, in its order. An entry that stands for the root group is no parent.
    pub(crate) fn all(setup: &Setup<'_>) -> Vec<Self> {
        let workload = setup.workload;
        let group = |(index, group): (usize, &Group)| Self {
            shares: group.shares,
            cpu_max: group.cpu_max,
            clamp: clamp_of(workload, group),
            parent: group.parent.filter(|parent| !workload.groups[parent.index()].is_root()).map(|parent| parent.0),
            idle: group.idle,
            cpus: setup.cpuset_len(index),
        };
        workload.groups.iter().enumerate().map(group).collect()
    }
}

impl Core<'_> {
    /// Path of a task group, by index into [`Core::task_groups`].
    #[must_use]
    pub fn group_path(&self, group: u32) -> &str {
        &self.groups[group as usize].name
    }

    /// The CPUs in a task group's own list (`cpuset.cpus`), by index into [`Core::task_groups`], if it has one.
    #[must_use]
    pub fn group_cpus(&self, group: u32) -> Option<CpuSet> {
        let list = self.groups[group as usize].cpus.as_ref()?;
        Some(Affinity::OsCpus(list.clone()).on(self.machine))
    }

    /// Whether the entry of this index stands for the root group, in which tasks of no group are.
    #[must_use]
    pub fn is_root_group(&self, group: u32) -> bool {
        self.groups[group as usize].is_root()
    }
}

/// What a group leaves of its tasks' utilisation clamps. The root group bounds nothing.
fn clamp_of(workload: &Workload, group: &Group) -> Clamp {
    let root = Clamp { min: CAPACITY_SCALE, max: CAPACITY_SCALE };
    if group.is_root() {
        return root;
    }
    let above = group.parent.map_or(root, |parent| clamp_of(workload, &workload.groups[parent.index()]));
    group_clamp(group.clamp.utilisations(), above)
}
