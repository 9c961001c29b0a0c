//! What NUMA balancing needs of the machine: nodes, distances, and how far apart they are wired.

use warmcore_topology::{CpuId, Machine, NodeId};

/// How nodes are connected (`enum numa_topology_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wiring {
    /// All nodes are equally far from each other.
    Direct,
    /// The farthest nodes reach each other through a node between them: nearness counts in proportion.
    GluelessMesh,
    /// Groups of nodes around controllers: nearness counts by group.
    Backplane,
}

/// Nodes and the distances between them.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    count: usize,
    /// By node, then node.
    distances: Vec<u32>,
    /// Distances that occur, ascending; the first is a node's to itself.
    levels: Vec<u32>,
    /// Node of each CPU.
    of_cpu: Vec<u32>,
    /// Nodes that have CPUs.
    has_cpus: Vec<bool>,
    wiring: Wiring,
}

impl Nodes {
    /// The nodes of a machine.
    pub fn new(machine: &Machine) -> Self {
        let nodes: Vec<NodeId> = machine.nodes().collect();
        let distances = nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| machine.node_distance(from, to)));
        let has_cpus = nodes.iter().map(|&node| !machine.cpus_of_node(node).is_empty()).collect();
        let of_cpu = machine.cpus().map(|cpu| machine.node_of(cpu).index() as u32).collect();
        Self::from_distances(distances.collect(), has_cpus, of_cpu)
    }

    fn from_distances(distances: Vec<u32>, has_cpus: Vec<bool>, of_cpu: Vec<u32>) -> Self {
        let mut levels = distances.clone();
        levels.sort_unstable();
        levels.dedup();
        let mut nodes = Self { count: has_cpus.len(), distances, levels, of_cpu, has_cpus, wiring: Wiring::Direct };
        nodes.wiring = nodes.find_wiring();
        nodes
    }

    /// `init_numa_topology_type`.
    fn find_wiring(&self) -> Wiring {
        if self.levels.len() <= 2 {
            return Wiring::Direct;
        }
        let farthest = self.farthest();
        let all = || (0..self.count as u32).filter(|&node| self.has_cpus[node as usize]);
        let pair = all().flat_map(|a| all().map(move |b| (a, b))).find(|&(a, b)| self.distance(a, b) >= farthest);
        let between = |(a, b)| all().any(|c| self.distance(a, c) < farthest && self.distance(b, c) < farthest);
        if pair.is_some_and(between) { Wiring::GluelessMesh } else { Wiring::Backplane }
    }

    /// Number of nodes.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Node of a CPU.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> u32 {
        self.of_cpu[cpu.index()]
    }

    /// Whether a node has CPUs.
    #[inline]
    pub(crate) fn has_cpus(&self, node: u32) -> bool {
        self.has_cpus[node as usize]
    }

    /// Distance as in the firmware's table.
    #[inline]
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        self.distances[from as usize * self.count + to as usize]
    }

    fn farthest(&self) -> u32 {
        self.levels.last().copied().unwrap_or(0)
    }

    /// How they are connected.
    #[inline]
    pub(crate) fn wiring(&self) -> Wiring {
        self.wiring
    }

    /// Faults on a node together with what those on nodes near it count (`score_nearby_nodes`); `limit` is the distance of
    /// the two nodes being compared.
    pub(crate) fn with_nearby(&self, node: u32, limit: u32, faults: impl Fn(u32) -> i64) -> i64 {
        let own = faults(node);
        if self.wiring == Wiring::Direct {
            return own;
        }
        let farthest = self.farthest();
        let near = (0..self.count as u32).filter_map(|other| {
            let distance = self.distance(node, other);
            if other == node || distance >= farthest || (self.wiring == Wiring::Backplane && distance >= limit) {
                return None;
            }
            let there = faults(other);
            Some(match self.wiring {
                Wiring::GluelessMesh => there * i64::from(farthest - distance) / i64::from(farthest - self.levels[0]),
                _ => there,
            })
        });
        own + near.sum::<i64>()
    }

    /// The node a group's tasks should be near (`preferred_group_nid`), `most` being the one with the most faults.
    pub(crate) fn preferred_of_group(&self, most: u32, faults: impl Fn(u32) -> i64 + Copy) -> u32 {
        match self.wiring {
            Wiring::Direct => most,
            Wiring::GluelessMesh => {
                let (mut best, mut best_score) = (most, 0);
                for node in (0..self.count as u32).filter(|&node| self.has_cpus[node as usize]) {
                    let score = self.with_nearby(node, self.farthest(), faults);
                    if score > best_score {
                        (best, best_score) = (node, score);
                    }
                }
                best
            }
            Wiring::Backplane => self.halve(most, faults),
        }
    }

    /// Looks for the half with the most faults, and in it again, down to a node.
    fn halve(&self, most: u32, faults: impl Fn(u32) -> i64) -> u32 {
        let mut nodes: Vec<u32> = (0..self.count as u32).filter(|&node| self.has_cpus[node as usize]).collect();
        let mut best = most;
        for &level in self.levels[1..].iter().rev() {
            let mut left = nodes.clone();
            let (mut best_faults, mut best_part) = (0, Vec::new());
            while let Some(&first) = left.first() {
                let (part, rest) = left.iter().partition::<Vec<u32>, _>(|&&node| self.distance(first, node) < level);
                let sum = part.iter().map(|&node| faults(node)).sum::<i64>();
                if sum > best_faults {
                    (best, best_faults, best_part) = (first, sum, part);
                }
                left = rest;
            }
            if best_faults == 0 {
                break;
            }
            nodes = best_part;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(rows: &[&[u32]]) -> Nodes {
        Nodes::from_distances(rows.concat(), vec![true; rows.len()], Vec::new())
    }

    fn mesh() -> Nodes {
        // A ring of four: opposite nodes reach each other through a neighbour.
        nodes(&[&[10, 16, 22, 16], &[16, 10, 16, 22], &[22, 16, 10, 16], &[16, 22, 16, 10]])
    }

    fn backplane() -> Nodes {
        nodes(&[&[10, 12, 32, 32], &[12, 10, 32, 32], &[32, 32, 10, 12], &[32, 32, 12, 10]])
    }

    #[test]
    fn wiring_follows_from_distances() {
        assert_eq!(nodes(&[&[10, 21], &[21, 10]]).wiring(), Wiring::Direct);
        assert_eq!(mesh().wiring(), Wiring::GluelessMesh);
        assert_eq!(backplane().wiring(), Wiring::Backplane);
    }

    #[test]
    fn in_a_mesh_faults_nearby_count_by_distance() {
        let faults = |node: u32| [100, 60, 1000, 0][node as usize];
        // Neighbours at 16 count (22 − 16) / (22 − 10) = 1/2, the opposite node nothing.
        assert_eq!(mesh().with_nearby(0, 22, faults), 100 + 30);
        assert_eq!(nodes(&[&[10, 21], &[21, 10]]).with_nearby(0, 21, faults), 100);
    }

    #[test]
    fn on_a_backplane_faults_of_the_same_half_count_in_full() {
        let faults = |node: u32| [100, 60, 1000, 7][node as usize];
        assert_eq!(backplane().with_nearby(0, 32, faults), 160);
        // Within a half only the nodes themselves are compared.
        assert_eq!(backplane().with_nearby(0, 12, faults), 100);
    }

    #[test]
    fn a_group_goes_to_the_best_half_before_the_best_node() {
        let faults = |node: u32| [90, 0, 60, 50][node as usize];
        assert_eq!(nodes(&[&[10, 21], &[21, 10]]).preferred_of_group(0, faults), 0);
        assert_eq!(backplane().preferred_of_group(0, faults), 2);
        // 90 + 50/2, 0 + 150/2, 60 + 50/2, 50 + 150/2.
        assert_eq!(mesh().preferred_of_group(0, faults), 3);
    }
}
