//! What clusters of cores and cores can read from memory at most, where the machine states it: their latency factors, followed
//! from epoch to epoch as those of other resources. They are loaded by reads from memory, as the ports of LLCs are.

use warmcore_topology::Machine;

use super::build::Seat;
use super::domain::Domain;
use super::load::LoadFactor;
use super::task::MemoryLatency;
use crate::hierarchy::Hierarchy;

/// Ports of all cores, and of the clusters that they are in.
pub(crate) struct Ports {
    /// By domain and core.
    cores: Vec<Vec<Port>>,
    /// Load of each cluster.
    clusters: Vec<LoadFactor>,
}

#[derive(Clone, Copy)]
struct Port {
    cluster: usize,
    load: LoadFactor,
    /// Lines read from memory in this epoch.
    lines: u64,
}

impl Ports {
    /// The ports of a machine that limits them, whose domains then keep latencies of memory for each core.
    pub(crate) fn new(
        machine: &Machine,
        hierarchy: &Hierarchy,
        seats: &[Seat],
        domains: &mut [Domain],
    ) -> Option<Self> {
        if hierarchy.cluster_port.is_infinite() && hierarchy.core_port.is_infinite() {
            return None;
        }
        let nodes = machine.node_count();
        for domain in domains.iter_mut() {
            domain.memory = vec![MemoryLatency::default(); domain.cores.len() * nodes];
            domain.memory_row = nodes;
        }
        let idle = Port { cluster: 0, load: LoadFactor::IDLE, lines: 0 };
        let mut cores: Vec<Vec<Port>> = domains.iter().map(|domain| vec![idle; domain.cores.len()]).collect();
        for (cpu, seat) in machine.cpus().zip(seats) {
            cores[seat.domain][seat.core].cluster = machine.cluster_of(cpu).index();
        }
        Some(Self { cores, clusters: vec![LoadFactor::IDLE; machine.cluster_count()] })
    }

    /// A core has read so many lines from memory.
    pub(crate) fn read(&mut self, domain: usize, core: usize, lines: u64) {
        self.cores[domain][core].lines += lines;
    }

    /// Takes the reads of an epoch into account; a line in it is so many bytes per nanosecond.
    pub(crate) fn end_epoch(&mut self, hierarchy: &Hierarchy, line: f64) {
        let mut of_clusters = vec![0; self.clusters.len()];
        for port in self.cores.iter_mut().flatten() {
            let lines = std::mem::take(&mut port.lines);
            of_clusters[port.cluster] += lines;
            port.load.update(hierarchy, lines as f64 * line / hierarchy.core_port, 1.0);
        }
        for (load, lines) in self.clusters.iter_mut().zip(of_clusters) {
            load.update(hierarchy, lines as f64 * line / hierarchy.cluster_port, 1.0);
        }
    }

    /// Latency factor of memory for a core.
    pub(crate) fn factor(&self, domain: usize, core: usize) -> f64 {
        let port = &self.cores[domain][core];
        port.load.value() * self.clusters[port.cluster].value()
    }
}
