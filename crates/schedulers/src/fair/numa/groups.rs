//! Fault statistics: per task and per group of tasks that touch each other's pages, and the weights that are compared
//! (`struct numa_group`, `task_weight`, `group_weight`; `docs/spec/linux-fair.md` section 7.2).

use super::nodes::Nodes;
use crate::fair::state::NONE;

/// A node of which a group's CPU faults are at least 1 / this of the most used one's is active (`ACTIVE_NODE_FRACTION`).
pub(crate) const ACTIVE_NODE_FRACTION: i64 = 3;

/// Index of shared faults in pairs; private ones follow.
pub(crate) const SHARED: usize = 0;
pub(crate) const PRIVATE: usize = 1;

/// Decayed hint faults on one node, shared and private.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFaults {
    /// On pages of the node (`NUMA_MEM`).
    pub mem: [i64; 2],
    /// On CPUs of the node, weighted by how much the task runs (`NUMA_CPU`).
    pub cpu: [i64; 2],
}

impl NodeFaults {
    pub(crate) fn on_memory(&self) -> i64 {
        self.mem[SHARED] + self.mem[PRIVATE]
    }

    pub fn on_cpus(&self) -> i64 {
        self.cpu[SHARED] + self.cpu[PRIVATE]
    }

    fn add(&mut self, other: &NodeFaults, sign: i64) {
        for kind in [SHARED, PRIVATE] {
            self.mem[kind] += sign * other.mem[kind];
            self.cpu[kind] += sign * other.cpu[kind];
        }
    }
}

/// A group of tasks that touch each other's pages.
#[derive(Clone, Copy, Debug)]
struct NumaGroup {
    tasks: u32,
    total: i64,
    active_nodes: u32,
    most_on_cpus: i64,
}

/// Decayed faults of tasks and groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics {
    nodes: usize,
    /// By task, then node.
    tasks: Vec<NodeFaults>,
    totals: Vec<i64>,
    group_of: Vec<u32>,
    groups: Vec<NumaGroup>,
    /// By group, then node.
    group_faults: Vec<NodeFaults>,
}

impl Statistics {
    pub fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    pub fn task_created(&mut self) {
        self.tasks.extend(std::iter::repeat_n(NodeFaults::default(), self.nodes));
        self.totals.push(0);
        self.group_of.push(NONE);
    }

    /// Takes a task out of everything (`task_numa_free`). Returns its faults.
    pub fn task_exited(&mut self, task: usize) -> i64 {
        let group = self.group_of[task];
        if group != NONE {
            self.leave(task, group);
        }
        self.tasks[task * self.nodes..(task + 1) * self.nodes].fill(NodeFaults::default());
        std::mem::take(&mut self.totals[task])
    }

    /// A task's faults by node.
    #[inline]
    pub fn of_task(&self, task: usize) -> &[NodeFaults] {
        &self.tasks[task * self.nodes..(task + 1) * self.nodes]
    }

    /// A task's faults (`total_numa_faults`).
    #[inline]
    pub fn total(&self, task: usize) -> i64 {
        self.totals[task]
    }

    /// A task's group, or [`NONE`].
    #[inline]
    pub fn group_of(&self, task: usize) -> u32 {
        self.group_of[task]
    }

    fn of_group(&self, group: u32) -> &[NodeFaults] {
        let start = group as usize * self.nodes;
        &self.group_faults[start..start + self.nodes]
    }

    /// Adds to a task's faults on a node, and to its group's.
    pub fn change(&mut self, task: usize, node: usize, change: &NodeFaults) {
        self.tasks[task * self.nodes + node].add(change, 1);
        self.totals[task] += change.on_memory();
        if let Some(group) = self.groups.get_mut(self.group_of[task] as usize) {
            group.total += change.on_memory();
            self.group_faults[self.group_of[task] as usize * self.nodes + node].add(change, 1);
        }
    }

    /// Memory faults on a node that decide on a task's preferred node: its group's if it has one.
    pub fn deciding(&self, task: usize, node: u32) -> i64 {
        let faults = match self.group_of[task] {
            NONE => self.of_task(task),
            group => self.of_group(group),
        };
        faults[node as usize].on_memory()
    }

    /// Puts a task without group into one of its own (`task_numa_group`).
    pub(crate) fn found_group(&mut self, task: usize) {
        if self.group_of[task] != NONE {
            return;
        }
        self.group_of[task] = self.groups.len() as u32;
        // One active node, the kernel's starting value, until the first count.
        self.groups.push(NumaGroup { tasks: 1, total: self.totals[task], active_nodes: 1, most_on_cpus: 0 });
        let start = task * self.nodes;
        self.group_faults.extend_from_slice(&self.tasks[start..start + self.nodes]);
    }

    /// Has a task join the group of another that touched the same pages, if that is the bigger one (the older one, of equals).
    /// Returns whether it did.
    pub fn join(&mut self, task: usize, other: usize) -> bool {
        let (own, theirs) = (self.group_of[task], self.group_of[other]);
        if own == NONE || theirs == NONE || own == theirs {
            return false;
        }
        let (mine, other_group) = (self.groups[own as usize].tasks, self.groups[theirs as usize].tasks);
        if mine > other_group || (mine == other_group && own < theirs) {
            return false;
        }
        self.leave(task, own);
        self.group_of[task] = theirs;
        self.groups[theirs as usize].tasks += 1;
        self.groups[theirs as usize].total += self.totals[task];
        self.add_to_group(task, theirs, 1);
        true
    }

    fn leave(&mut self, task: usize, group: u32) {
        self.group_of[task] = NONE;
        self.groups[group as usize].tasks -= 1;
        self.groups[group as usize].total -= self.totals[task];
        self.add_to_group(task, group, -1);
    }

    fn add_to_group(&mut self, task: usize, group: u32, sign: i64) {
        for node in 0..self.nodes {
            let faults = self.tasks[task * self.nodes + node];
            self.group_faults[group as usize * self.nodes + node].add(&faults, sign);
        }
    }

    /// Tasks in a task's group; 0 without one.
    pub(crate) fn group_size(&self, task: usize) -> u32 {
        self.groups.get(self.group_of[task] as usize).map_or(0, |group| group.tasks)
    }

    /// Shared and private faults of a task's group.
    pub(crate) fn group_kinds(&self, task: usize) -> [i64; 2] {
        let group = self.group_of[task];
        if group == NONE {
            return [0; 2];
        }
        [SHARED, PRIVATE].map(|kind| self.of_group(group).iter().map(|faults| faults.mem[kind]).sum())
    }

    /// Counts the nodes a task's group uses (`numa_group_count_active_nodes`).
    pub(crate) fn count_active_nodes(&mut self, task: usize) {
        let group = self.group_of[task];
        if group == NONE {
            return;
        }
        let most = self.of_group(group).iter().map(NodeFaults::on_cpus).max().unwrap_or(0);
        let active = |faults: &&NodeFaults| faults.on_cpus() * ACTIVE_NODE_FRACTION > most;
        let active_nodes = self.of_group(group).iter().filter(active).count() as u32;
        let group = &mut self.groups[group as usize];
        (group.most_on_cpus, group.active_nodes) = (most, active_nodes);
    }

    /// Number of nodes a task's group uses; 0 without a group.
    pub(crate) fn active_nodes(&self, task: usize) -> u32 {
        self.groups.get(self.group_of[task] as usize).map_or(0, |group| group.active_nodes)
    }

    /// Whether a task's group uses a node.
    pub(crate) fn is_active(&self, task: usize, node: u32) -> bool {
        let group = self.group_of[task];
        group != NONE
            && self.of_group(group)[node as usize].on_cpus() * ACTIVE_NODE_FRACTION
                > self.groups[group as usize].most_on_cpus
    }

    /// Share of a task's faults on and near a node, in thousandths (`task_weight`).
    pub(crate) fn task_weight(&self, nodes: &Nodes, task: usize, node: u32, limit: u32) -> i64 {
        let faults = self.of_task(task);
        weight(self.totals[task], nodes.with_nearby(node, limit, |node| faults[node as usize].on_memory()))
    }

    /// The same of its group; 0 without one (`group_weight`).
    pub(crate) fn group_weight(&self, nodes: &Nodes, task: usize, node: u32, limit: u32) -> i64 {
        let group = self.group_of[task];
        if group == NONE {
            return 0;
        }
        let faults = self.of_group(group);
        let near = nodes.with_nearby(node, limit, |node| faults[node as usize].on_memory());
        weight(self.groups[group as usize].total, near)
    }

    /// Whether memory of a task's group should move from one node to another: the destination's CPUs use it much more, or its
    /// share of the memory is behind its share of the use by more than a quarter (`should_numa_migrate_memory`, its end).
    pub(crate) fn wants_memory(&self, task: usize, from: u32, to: u32) -> bool {
        let group = self.group_of[task];
        if group == NONE {
            return true;
        }
        let (from, to) = (self.of_group(group)[from as usize], self.of_group(group)[to as usize]);
        let wide = i128::from;
        to.on_cpus() > from.on_cpus() * ACTIVE_NODE_FRACTION
            || wide(to.on_cpus()) * wide(from.on_memory()) * 3 > wide(from.on_cpus()) * wide(to.on_memory()) * 4
    }
}

/// How much more of a task's faults, and of its group's, are on one node than on another.
pub(super) fn weight_difference(
    statistics: &Statistics,
    nodes: &Nodes,
    task: usize,
    (from, to): (u32, u32),
    limit: u32,
) -> [i64; 2] {
    [
        statistics.task_weight(nodes, task, to, limit) - statistics.task_weight(nodes, task, from, limit),
        statistics.group_weight(nodes, task, to, limit) - statistics.group_weight(nodes, task, from, limit),
    ]
}

fn weight(total: i64, faults: i64) -> i64 {
    if total > 0 { 1000 * faults / total } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mem(shared: i64, private: i64) -> NodeFaults {
        NodeFaults { mem: [shared, private], cpu: [0, 0] }
    }

    fn cpu(count: i64) -> NodeFaults {
        NodeFaults { mem: [0, 0], cpu: [count, 0] }
    }

    fn tasks(count: usize) -> Statistics {
        let mut statistics = Statistics::new(2);
        (0..count).for_each(|_| statistics.task_created());
        statistics
    }

    #[test]
    fn the_smaller_group_joins_the_bigger_one_and_brings_its_faults() {
        let mut statistics = tasks(3);
        for task in 0..3 {
            statistics.change(task, task % 2, &mem(100, 10));
            statistics.found_group(task);
        }
        // Of two single ones the older stays, whoever meets whom.
        assert!(!statistics.join(0, 1));
        assert!(statistics.join(1, 0));
        assert!(!statistics.join(0, 2) && statistics.join(2, 1));
        assert_eq!((statistics.group_size(0), statistics.group_of(2)), (3, statistics.group_of(0)));
        assert_eq!([0, 1].map(|node| statistics.deciding(1, node)), [220, 110]);
        assert_eq!(statistics.group_kinds(0), [300, 30]);
        assert_eq!(statistics.task_exited(2), 110);
        assert_eq!([0, 1].map(|node| statistics.deciding(1, node)), [110, 110]);
    }

    #[test]
    fn nodes_with_more_than_a_third_of_the_most_cpu_faults_are_active() {
        let mut statistics = tasks(1);
        statistics.found_group(0);
        for (faults, active) in [(300, 1), (301, 2)] {
            let mut state = statistics.clone();
            state.change(0, 0, &cpu(900));
            state.change(0, 1, &cpu(faults));
            state.count_active_nodes(0);
            assert_eq!((state.active_nodes(0), state.is_active(0, 1)), (active, active == 2));
        }
    }

    #[test]
    fn memory_follows_a_group_that_uses_it_much_more_or_a_quarter_more_than_its_share() {
        let wants = |cpus: [i64; 2], memory: [i64; 2]| {
            let mut statistics = tasks(1);
            statistics.found_group(0);
            for node in [0, 1] {
                statistics.change(0, node, &NodeFaults { mem: [memory[node], 0], cpu: [cpus[node], 0] });
            }
            statistics.wants_memory(0, 0, 1)
        };
        // More than three times the use, however much memory is there already.
        assert!(wants([100, 301], [0, 1000]) && !wants([100, 300], [0, 1000]));
        // Equal use: the source must have more than 4/3 of the memory.
        assert!(wants([100, 100], [401, 300]) && !wants([100, 100], [400, 300]));
        // Without a group there is nothing to weigh.
        assert!(tasks(1).wants_memory(0, 0, 1));
    }
}
