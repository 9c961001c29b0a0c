//! What Linux's scheduler takes a machine for, where that is not what the hardware is: groups of CPUs that stand for last-level caches, and
//! node distances of some Intel processors.
//!
//! Everything else of this crate has the hardware's caches and the firmware's distances; only scheduling domains are made of these.

use crate::{CpuId, CpuSet, Machine, NodeId, Processor};

/// From so many nodes per package on the distances between packages are averaged (`arch_sched_node_distance`).
const NODES_OF_AVERAGED_PACKAGES: usize = 3;

impl Machine {
    /// The CPUs that the scheduler takes for those of a CPU's last-level cache (`cpu_coregroup_mask`). The LLC's, unless the machine's
    /// description says otherwise: where no cache is shared on the CPUs' side, they are those that the firmware calls a cluster.
    #[inline]
    pub fn coregroup(&self, cpu: CpuId) -> &CpuSet {
        match self.coregroup_of.get(cpu.index()) {
            Some(group) => &self.coregroups[*group as usize],
            None => self.cpus_of_llc(self.llc_of(cpu)),
        }
    }

    /// Whether groups of CPUs stand for last-level caches that are others.
    #[inline]
    pub fn has_coregroups(&self) -> bool {
        !self.coregroups.is_empty()
    }

    /// Node distances by rows, as scheduling domains of Linux are built from them. On Granite Rapids and Clearwater Forest with three nodes
    /// per package or more, the distances between two packages are their mean (`slit_cluster_distance` in `arch/x86/kernel/smpboot.c`, since
    /// 7.0 and in stable kernels from 6.18 on); elsewhere they are the firmware's. The kernel averages both directions, of which this crate
    /// has the longer one.
    pub fn scheduling_distances(&self) -> Vec<u32> {
        let mut distances = self.distances.clone();
        let Some(packages) = self.averaged_packages() else { return distances };
        let count = self.nodes.len();
        for (position, from) in packages.iter().enumerate() {
            for to in packages.iter().enumerate().filter(|(other, _)| *other != position).map(|(_, to)| to) {
                let cells: Vec<usize> =
                    from.iter().flat_map(|from| to.iter().map(move |to| from.index() * count + to.index())).collect();
                let sum: u64 = cells.iter().map(|cell| u64::from(self.distances[*cell])).sum();
                let mean = (sum / cells.len() as u64) as u32;
                cells.into_iter().for_each(|cell| distances[cell] = mean);
            }
        }
        distances
    }

    /// The nodes of each package whose distances to others are averaged: packages have equally many nodes, each with numbers in a row
    /// (`slit_validate`).
    fn averaged_packages(&self) -> Option<Vec<&[NodeId]>> {
        if !self.processor.is_some_and(Processor::averages_distances) || self.sockets.len() < 2 {
            return None;
        }
        let packages: Vec<&[NodeId]> = self.sockets.iter().map(|socket| socket.nodes.as_slice()).collect();
        let nodes_of_one = packages[0].len();
        let in_a_row = packages.iter().all(|nodes| {
            let first = nodes.first().map_or(0, |node| node.index());
            nodes.len() == nodes_of_one
                && first.is_multiple_of(nodes_of_one.max(1))
                && nodes.iter().enumerate().all(|(position, node)| node.index() == first + position)
        });
        let apart = packages
            .iter()
            .enumerate()
            .all(|(position, nodes)| packages[..position].iter().all(|other| other != nodes));
        (nodes_of_one >= NODES_OF_AVERAGED_PACKAGES && in_a_row && apart).then_some(packages)
    }
}

#[cfg(test)]
mod tests {
    use crate::{from_toml, to_toml};

    /// The table of two Granite Rapids with three nodes each, and what `slit_cluster_distance` makes of it, as the kernel's source has both.
    #[test]
    fn distances_between_packages_of_three_nodes_are_averaged_on_some_processors() {
        let file = |model: u32, shape: &str, rows: &str| {
            let processor = format!("[processor]\nvendor = \"intel\"\nfamily = 6\nmodel = {model}\n");
            from_toml(&format!("{processor}[topology]\nshape = \"{shape}\"\ndistances = {rows}\n")).unwrap()
        };
        let snc3 = "[[10, 15, 17, 21, 28, 26], [15, 10, 15, 23, 26, 23], [17, 15, 10, 26, 23, 21], \
                    [21, 28, 26, 10, 15, 17], [23, 26, 23, 15, 10, 15], [26, 23, 21, 17, 15, 10]]";
        for model in [0xad, 0xdd] {
            let machine = file(model, "2s3n1l2c1t", snc3);
            let near = [[10, 15, 17], [15, 10, 15], [17, 15, 10]];
            for (from, row) in machine.scheduling_distances().chunks(6).enumerate() {
                let expected: Vec<u32> = match from {
                    0..3 => near[from].into_iter().chain([24; 3]).collect(),
                    _ => [24; 3].into_iter().chain(near[from - 3]).collect(),
                };
                assert_eq!(row, expected, "{model:#x}, node {from}");
            }
            assert_eq!(from_toml(&to_toml(&machine)).unwrap().scheduling_distances(), machine.scheduling_distances());
            assert!(machine.node_distance(crate::NodeId(0), crate::NodeId(4)) == 28, "the firmware's stay");
        }
        // Sapphire Rapids, two nodes per package, one package.
        let two = "[[10, 12, 21, 23], [12, 10, 23, 25], [21, 23, 10, 12], [23, 25, 12, 10]]";
        let one = "[[10, 12, 13], [12, 10, 12], [13, 12, 10]]";
        for machine in [file(0x8f, "2s3n1l2c1t", snc3), file(0xad, "2s2n1l2c1t", two), file(0xad, "1s3n1l2c1t", one)] {
            assert_eq!(machine.scheduling_distances(), machine.distances);
        }
    }
}
