//! Home and sequence by where a process's memory is (`numa_mode=N2`, `docs/spec/linux-fair.md` section 8.8: the
//! direction \[P\] from the reviews of the RFCs, the details \[O\]).
//!
//! The home node is the one with most of the process's hint faults. Nodes with more than a third as many come next, the most
//! first; then all others as in every home's sequence. The scope is a prefix of that, so it takes as few of the nodes
//! with memory as the demand needs. Tasks inside the scope's nodes are left alone by NUMA balancing; tasks outside are
//! brought by it, into the scope only.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::TopologyAware;
use super::scan::takes_over;
use crate::fair::numa::NumaBalancing;
use crate::fair::state::NONE;

/// `numa_mode` in which memory chooses the home.
const N2: u64 = 2;

/// Decayed faults of a process below which they say nothing about its memory.
const FEW_FAULTS: i64 = 128;

/// Part of the most faults of a node that makes another one a node with memory: 1 / this (as `ACTIVE_NODE_FRACTION`).
const WITH_MEMORY: i64 = 3;

/// A process's own sequence of LLCs; empty while its home's sequence is in force.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnSequence {
    order: Vec<u32>,
    /// By LLC.
    position: Vec<u32>,
}

impl TopologyAware {
    /// LLCs of a group's sequence, given its home.
    pub fn order(&self, group: u32, home: u32) -> &[u32] {
        match &self.own_sequences[group as usize].order {
            own if own.is_empty() => self.sequences.order(home),
            own => own,
        }
    }

    /// Place of an LLC in it.
    pub fn position(&self, group: u32, home: u32, llc: u32) -> u32 {
        match self.own_sequences[group as usize].position.get(llc as usize) {
            None => self.sequences.position(home, llc),
            Some(&position) => position,
        }
    }

    /// Nodes' faults if memory chooses the home and there are enough to do so.
    fn telling_faults(&self) -> Option<&[i64]> {
        (self.tunables.numa_mode == N2 && self.faults.iter().sum::<i64>() >= FEW_FAULTS).then_some(&self.faults)
    }

    /// Home node by memory of a group that has its home on `present`, if memory tells; the first of equals.
    pub(super) fn node_with_most_memory(&self, present: Option<u32>) -> Option<u32> {
        let faults = self.telling_faults()?;
        let on = |node: u32| faults[node as usize].unsigned_abs();
        let best = (0..faults.len() as u32).reduce(|best, node| if on(node) > on(best) { node } else { best })?;
        let stays = present.filter(|&node| !takes_over(on(best), on(node), self.tunables.home_hyst));
        Some(stays.unwrap_or(best))
    }

    /// Puts a group's nodes with memory first, after the home's.
    pub(super) fn order_by_memory(&mut self, group: u32, home: u32) {
        let mut own = std::mem::take(&mut self.own_sequences[group as usize]);
        own.order.clear();
        own.position.clear();
        if let Some(faults) = self.telling_faults() {
            let most = faults.iter().copied().max().unwrap_or(0);
            let home_node = self.sequences.node(home);
            own.order.extend_from_slice(self.sequences.order(home));
            // Stable: LLCs of a node, and nodes without memory, stay as they are.
            own.order.sort_by_key(|&llc| {
                let node = self.sequences.node(llc);
                match faults[node as usize] {
                    _ if node == home_node => i64::MIN,
                    there if there * WITH_MEMORY > most => -there,
                    _ => 0,
                }
            });
            own.position.resize(own.order.len(), 0);
            for (position, &llc) in own.order.iter().enumerate() {
                own.position[llc as usize] = position as u32;
            }
        }
        self.own_sequences[group as usize] = own;
    }

    /// Sums up the hint faults of a group by node, for the scan that follows.
    pub(super) fn count_memory(&mut self, group: u32, numa: Option<&NumaBalancing>) {
        if self.tunables.numa_mode != N2 {
            return;
        }
        self.faults.fill(0);
        let Some(numa) = numa else { return };
        let members = self.base.tasks.iter().enumerate().filter(|(_, state)| state.group == group);
        for (member, _) in members {
            for (sum, faults) in self.faults.iter_mut().zip(numa.faults_of(member)) {
                *sum += faults.on_memory();
            }
        }
    }

    /// Where NUMA balancing may bring a task of a process whose home is where its memory is: the place of a CPU's LLC in
    /// the scope. `None`: not there. 0 everywhere for all others.
    pub(super) fn place_near_memory(&self, task: TaskId, cpu: CpuId) -> Option<u32> {
        let Some((group, home)) = self.home_by_memory(task) else { return Some(0) };
        let position = self.position(group, home, self.base.llc_of[cpu.index()]);
        (position < self.scopes[group as usize].size).then_some(position)
    }

    /// Whether a CPU is outside of the nodes of such a process's scope.
    pub(super) fn runs_outside(&self, task: TaskId, cpu: CpuId) -> bool {
        let Some((group, home)) = self.home_by_memory(task) else { return false };
        let node = self.sequences.node(self.base.llc_of[cpu.index()]);
        self.scope(group, home).iter().all(|&llc| self.sequences.node(llc) != node)
    }

    /// Node that NUMA balancing searches first for a task: the one it prefers or, if its process has its home where its memory
    /// is and may not run there, the home's.
    pub(super) fn first_node(&self, task: TaskId, preferred: u32) -> u32 {
        let Some((group, home)) = self.home_by_memory(task) else { return preferred };
        let inside = self.scope(group, home).iter().any(|&llc| self.sequences.node(llc) == preferred);
        if inside { preferred } else { self.sequences.node(home) }
    }

    /// LLCs of a group's scope, given its home.
    pub(super) fn scope(&self, group: u32, home: u32) -> &[u32] {
        &self.order(group, home)[..self.scopes[group as usize].size as usize]
    }

    /// A task's group and its home if memory chooses homes.
    fn home_by_memory(&self, task: TaskId) -> Option<(u32, u32)> {
        let group = self.base.tasks[task.index()].group;
        if self.tunables.numa_mode != N2 || group == NONE {
            return None;
        }
        let home = self.base.preferred_llc(group);
        (home != NONE).then_some((group, home))
    }
}
