//! Tunables of the topology-aware extension, all of them this project's design.

use crate::tunables::tunables;

tunables! {
    /// Tunables of the topology-aware extension (`docs/spec/linux-fair.md` section 8.2).
    pub struct TopologyAwareTunables {
        /// How a scope grows: LLC by LLC (as the second RFC) or to the whole node, socket, machine (as the first).
        mode: 0 "" in 0..=1 as ["prefix", "ladder"],
        /// Inside the scope: fill LLCs in order, or leave tasks spread.
        fill: 0 "" in 0..=1 as ["pack", "spread"],
        /// Utilisation at which an LLC counts as full; 0 = overaggr_pct, half as much again without SMT.
        theta: 0 "%" in 0..=100,
        /// Part of theta below which the demand must stay for the scope to shrink.
        theta_c: 80 "%" in 1..=100,
        /// Scans in a row below theta_c before the scope shrinks by one step.
        hold: 4 "scans" in 1..=10_000 by ratio,
        /// Whether a task's preferred NUMA node (N0) or its process's scope (N1) decides where it runs, or a scope that begins where
        /// the process's memory is (N2).
        numa_mode: 1 "" in 0..=2 as ["N0", "N1", "N2"],
        /// Tasks moved per pass.
        batch: 1 "tasks" in 1..=32,
        /// Occupancy of another node or LLC, in percent of the home's, beyond which it becomes the home.
        home_hyst: 200 "%" in 100..=10_000,
        /// Weight of a task in choosing where to pull from: by the distance gained, or 1024 / distance (first RFC).
        gain: 0 "" in 0..=1 as ["distance", "inverse"],
        /// Let wakeups that find no idle CPU, and ticks that find tasks waiting, use idle CPUs of the whole scope; 0 leaves
        /// that to balancing, as both RFCs do. With 2, wakeups also prefer an idle core of a scope within a socket to the
        /// sibling of a busy one.
        conserve: 1 "" in 0..=2 as ["off", "cpus", "cores"],
        /// Let wakeups prefer the previous or the home LLC to one out of the scope.
        wake_hint: 0 "" in 0..=1,
    }
}
