//! Tunables of the topology-aware extension, all of them this project's design.

use crate::tunables::tunables;

tunables! {
    /// Tunables of the topology-aware extension (`docs/spec/linux-fair.md` section 8.2).
    pub struct TopologyAwareTunables {
        /// How a scope grows: LLC by LLC (as the second RFC) or to the whole node, socket, machine (as the first).
        mode: choice "prefix" of ["prefix", "ladder"],
        /// Inside the scope: fill LLCs in order, or leave tasks spread.
        fill: choice "pack" of ["pack", "spread"],
        /// Utilisation at which an LLC counts as full; 0 = overaggr_pct, half as much again without SMT.
        theta: share 0 in 0..=100,
        /// Part of theta below which the demand must stay for the scope to shrink.
        theta_c: share 80 in 1..=100,
        /// Scans in a row below theta_c before the scope shrinks by one step.
        hold: count 4 "scans" in 1..=10_000 by ratio,
        /// Whether a task's preferred NUMA node (N0) or its process's scope (N1) decides where it runs, or a scope that begins where
        /// the process's memory is (N2).
        numa_mode: choice "N1" of ["N0", "N1", "N2"],
        /// Tasks moved per pass.
        batch: count 1 "tasks" in 1..=32,
        /// Occupancy of another node or LLC, in percent of the home's, beyond which it becomes the home.
        home_hyst: share 200 in 100..=10_000,
        /// Weight of a task in choosing where to pull from: by the distance gained, or 1024 / distance (first RFC).
        gain: choice "distance" of ["distance", "inverse"],
        /// Let wakeups that find no idle CPU, and ticks that find tasks waiting, use idle CPUs of the whole scope; 0 leaves
        /// that to balancing, as both RFCs do. With 2, wakeups also prefer an idle core of a scope within a socket to the
        /// sibling of a busy one.
        conserve: choice "cpus" of ["off", "cpus", "cores"],
        /// Let wakeups prefer the previous or the home LLC to one out of the scope.
        wake_hint: switch off,
    }
}
