//! Task groups as a program sees them: control groups with the cpu controller.
//!
//! A group is an index into [`Core::task_groups`], the root group `None`. Groups, weights and quotas stay as they are in a run.
//!
//! Source: Linux 7.2 `kernel/sched/ext.c` (`scx_cgroup_init`, `scx_cgroup_exit`, `tg_cgrp`), `kernel/sched/core.c` (`tg_bandwidth`).

use warmcore_kernel::Core;
use warmcore_topology::CpuSet;
use warmcore_trace::TaskId;

use crate::kfuncs::Kfuncs;

/// What a program is told of groups (`cgroup_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCall {
    /// There is a group (`cgroup_init`); the one in which it lies was told of before.
    Init {
        /// The group.
        group: Option<u32>,
        /// What it may use.
        limits: GroupLimits,
    },
    /// The program ends (`cgroup_exit`); the groups in this one were told of before.
    Exit {
        /// The group.
        group: Option<u32>,
    },
    /// A task is about to go from one group to another (`cgroup_prep_move`); it may still run or wait in the first.
    PrepareMove {
        /// The task.
        task: TaskId,
        /// Its group.
        from: Option<u32>,
        /// Another one.
        to: Option<u32>,
    },
    /// It has gone there (`cgroup_move`), and is in no queue.
    Move {
        /// The task.
        task: TaskId,
        /// The group it has left.
        from: Option<u32>,
        /// Its group.
        to: Option<u32>,
    },
}

/// What a group may use (`struct scx_cgroup_init_args`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// Weight among what lies in the same group, 1 to 10 000, 100 by default (`cpu.weight`).
    pub weight: u32,
    /// Length of a period of its quota, in us.
    pub period_us: u64,
    /// CPU time in each, in us; `u64::MAX` for a group without a quota (`RUNTIME_INF`).
    pub quota_us: u64,
    /// What may be kept of earlier periods beside that, in us.
    pub burst_us: u64,
}

impl GroupLimits {
    /// What the root group has, and a group of which nothing is said (`default_bw_period_us`).
    pub const DEFAULT: Self = Self { weight: 100, period_us: 100_000, quota_us: u64::MAX, burst_us: 0 };

    pub(crate) fn of(core: &Core<'_>, group: Option<u32>) -> Self {
        let Some(group) = group.map(|group| core.task_groups()[group as usize]) else { return Self::DEFAULT };
        // `sched_weight_to_cgroup`.
        let weight = ((u64::from(group.shares) * 100 + 512) / 1024).clamp(1, 10_000) as u32;
        let limits = Self { weight, ..Self::DEFAULT };
        group.cpu_max.map_or(limits, |max| Self {
            period_us: max.period_ns() / 1000,
            quota_us: max.quota_ns() / 1000,
            burst_us: max.burst_us(),
            ..limits
        })
    }
}

/// All groups, the root included: each before those in it, or behind them; those in one group in the order of their indices.
pub(crate) fn all(core: &Core<'_>, inner_first: bool) -> Vec<Option<u32>> {
    let mut found = Vec::new();
    add(core, None, inner_first, &mut found);
    found
}

fn add(core: &Core<'_>, group: Option<u32>, inner_first: bool, found: &mut Vec<Option<u32>>) {
    if !inner_first {
        found.push(group);
    }
    for (index, inner) in (0..).zip(core.task_groups()) {
        if inner.parent == group && !core.is_root_group(index) {
            add(core, Some(index), inner_first, found);
        }
    }
    if inner_first {
        found.push(group);
    }
}

/// The CPUs that a group has: what its list and those of the groups above leave (`compute_effective_cpumask`).
pub(crate) fn effective_cpus(core: &Core<'_>, group: Option<u32>) -> CpuSet {
    let Some(group) = group else { return core.machine().all_cpus().clone() };
    let above = effective_cpus(core, core.task_groups()[group as usize].parent);
    let left = core.group_cpus(group).map(|own| own.intersection(&above));
    left.filter(|left| !left.is_empty()).unwrap_or(above)
}

impl Kfuncs<'_, '_> {
    /// Group of a task (`scx_bpf_task_cgroup`), the old one until it has [moved](GroupCall::Move); the idle task is in the root group.
    #[must_use]
    pub fn group(&self, task: TaskId) -> Option<u32> {
        self.state.tasks.get(task.index())?.group
    }

    /// The group in which a group lies.
    #[must_use]
    pub fn group_above(&self, group: u32) -> Option<u32> {
        self.core.task_groups()[group as usize].parent
    }
}
