//! Where CPUs are, as arrays the hot path indexes.

use warmcore_topology::{CpuId, LlcId, Machine, NodeId, Relation};

use crate::hierarchy::{CacheShape, Hierarchy};

/// No such cache.
pub(super) const NONE: u32 = u32::MAX;

/// Lines of another LLC in a node, seen from an LLC in the same or another one.
#[derive(Clone, Copy)]
pub(super) struct FromNode {
    pub node: u32,
    /// Hand-off of a modified line.
    pub transfer_ns: f64,
    /// It is in another socket.
    pub far: bool,
}

/// Caches of a core.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct CoreKind {
    pub l1: CacheShape,
    /// The L1 for instructions.
    pub l1i: Option<CacheShape>,
    /// What is behind the L1: an L2 of its own, or else the LLC.
    pub behind: CacheShape,
}

pub(super) struct Geometry {
    pub core: Vec<u32>,
    /// Private L2, or [`NONE`].
    pub l2: Vec<u32>,
    pub llc: Vec<u32>,
    pub node: Vec<u32>,
    /// Caches of the CPU's core, as an index into `core_kinds`.
    pub core_kind: Vec<u32>,
    pub core_kinds: Vec<CoreKind>,
    /// Number of ways of each LLC, as an index into `llc_ways`.
    pub llc_kind: Vec<u32>,
    pub llc_ways: Vec<u32>,
    /// Latency of the LLC and of the own node's memory when idle.
    pub llc_ns: Vec<f64>,
    pub local_ns: Vec<f64>,
    /// Clock in cycles per nanosecond.
    pub ghz: Vec<f64>,
    /// The same at the machine's nominal frequency.
    pub nominal_ghz: Vec<f64>,
    /// The other hardware threads of the CPU's core.
    pub siblings: Vec<Vec<u32>>,
    pub cpus_of_llc: Vec<Vec<u32>>,
    pub cpus_of_l2: Vec<Vec<u32>>,
    /// L2s under each LLC.
    pub l2s_of_llc: Vec<Vec<u32>>,
    pub socket_of_llc: Vec<u32>,
    pub node_of_llc: Vec<u32>,
    pub socket_of_node: Vec<u32>,
    pub sockets: usize,
    /// By node all nodes, those with the slowest hand-off first.
    pub farthest_nodes: Vec<Vec<FromNode>>,
    /// Hand-off of a modified line between two LLCs, by rows.
    transfer_ns: Vec<f64>,
}

/// Different ones among these, and the index of each among them.
fn kinds<T: PartialEq>(all: impl Iterator<Item = T>) -> (Vec<T>, Vec<u32>) {
    let mut kinds = Vec::new();
    let kind_of = |one: T| {
        let known = kinds.iter().position(|kind| *kind == one);
        known.unwrap_or_else(|| {
            kinds.push(one);
            kinds.len() - 1
        }) as u32
    };
    let of = all.map(kind_of).collect();
    (kinds, of)
}

impl Geometry {
    pub fn new(machine: &Machine, hierarchy: &Hierarchy) -> Self {
        let l2: Vec<u32> =
            machine.cpus().map(|cpu| hierarchy.l2_of_core[machine.core_of(cpu).index()].unwrap_or(NONE)).collect();
        let first = |llc: LlcId| machine.cpus_of_llc(llc).first().unwrap_or_default();
        let transfer = |a: LlcId, b: LlcId| {
            let relation = if a == b { Relation::SameLlc } else { machine.relation(first(a), first(b)) };
            hierarchy.transfer_ns[relation]
        };
        let l2s_of_llc = machine.llcs().map(|llc| {
            let mut list: Vec<u32> =
                machine.cpus_of_llc(llc).iter().map(|cpu| l2[cpu.index()]).filter(|l2| *l2 != NONE).collect();
            list.sort_unstable();
            list.dedup();
            list
        });
        let first_of_node = |node| machine.cpus_of_node(node).first().unwrap_or_default();
        let farthest_nodes = machine.nodes().map(|node| {
            let from = |other: NodeId| {
                let (a, b) = (first_of_node(node), first_of_node(other));
                let relation = if other == node { Relation::SameNode } else { machine.relation(a, b) };
                let far = machine.socket_of(a) != machine.socket_of(b);
                FromNode { node: other.0, transfer_ns: hierarchy.transfer_ns[relation], far }
            };
            let mut others: Vec<FromNode> = machine.nodes().map(from).collect();
            others.sort_by(|a, b| b.transfer_ns.total_cmp(&a.transfer_ns));
            others
        });
        let node_socket = |node| machine.cpus_of_node(node).first().map_or(0, |cpu: CpuId| machine.socket_of(cpu).0);
        let ghz: Vec<f64> =
            machine.cpus().map(|cpu| hierarchy.frequency_ghz * f64::from(machine.capacity(cpu)) / 1024.0).collect();
        let caches = |cpu: CpuId| {
            let behind = match l2[cpu.index()] {
                NONE => hierarchy.llc[machine.llc_of(cpu).index()],
                l2 => hierarchy.l2[l2 as usize],
            };
            let core = machine.core_of(cpu).index();
            CoreKind { l1: hierarchy.l1[core], l1i: hierarchy.l1i.get(core).copied(), behind }
        };
        let (core_kinds, core_kind) = kinds(machine.cpus().map(caches));
        let (llc_ways, llc_kind) = kinds(hierarchy.llc.iter().map(|llc| llc.ways));
        Self {
            core_kind,
            core_kinds,
            llc_kind,
            llc_ways,
            core: machine.cpus().map(|cpu| machine.core_of(cpu).0).collect(),
            llc: machine.cpus().map(|cpu| machine.llc_of(cpu).0).collect(),
            node: machine.cpus().map(|cpu| machine.node_of(cpu).0).collect(),
            llc_ns: machine.cpus().map(|cpu| hierarchy.llc[machine.llc_of(cpu).index()].latency_ns).collect(),
            local_ns: machine
                .cpus()
                .map(|cpu| machine.node_of(cpu).index())
                .map(|node| hierarchy.memory_ns[node][node])
                .collect(),
            ghz: ghz.clone(),
            nominal_ghz: ghz,
            siblings: machine
                .cpus()
                .map(|cpu| {
                    let core = machine.cpus_of_core(machine.core_of(cpu));
                    core.iter().filter(|other| *other != cpu).map(|other| other.0).collect()
                })
                .collect(),
            cpus_of_llc: machine.llcs().map(|llc| machine.cpus_of_llc(llc).iter().map(|cpu| cpu.0).collect()).collect(),
            cpus_of_l2: (0..hierarchy.l2.len() as u32)
                .map(|cache| (0..l2.len() as u32).filter(|&cpu| l2[cpu as usize] == cache).collect())
                .collect(),
            l2s_of_llc: l2s_of_llc.collect(),
            farthest_nodes: farthest_nodes.collect(),
            socket_of_llc: machine.llcs().map(|llc| machine.socket_of(first(llc)).0).collect(),
            node_of_llc: machine.llcs().map(|llc| machine.node_of(first(llc)).0).collect(),
            socket_of_node: machine.nodes().map(node_socket).collect(),
            sockets: machine.socket_count(),
            transfer_ns: machine
                .llcs()
                .flat_map(|a| machine.llcs().map(move |b| (a, b)))
                .map(|(a, b)| transfer(a, b))
                .collect(),
            l2,
        }
    }

    /// Hand-off of a modified line between cores of two LLCs.
    #[inline]
    pub fn transfer_ns(&self, from: u32, to: u32) -> f64 {
        self.transfer_ns[from as usize * self.socket_of_llc.len() + to as usize]
    }

    /// Whether two LLCs are in different sockets.
    #[inline]
    pub(crate) fn is_far(&self, a: u32, b: u32) -> bool {
        self.socket_of_llc[a as usize] != self.socket_of_llc[b as usize]
    }
}
