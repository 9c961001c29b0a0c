//! The machine: immutable, dense ids, constant-time questions.
//!
//! A `Machine` holds online CPUs only; offline ones are remembered by number. It does no input or output and has no
//! state: where tasks run is the kernel's business.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Background, Cache, CacheKind, ClusterId, CoreId, CoreKind, Costs, CpuId, CpuSet, LlcId, NodeId, Origin, OsCpu,
    Performance, Processor, Relation, SocketId,
};

/// Where one CPU is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CpuPlace {
    pub(crate) os_index: u32,
    pub(crate) core: CoreId,
    pub(crate) cluster: ClusterId,
    pub(crate) llc: LlcId,
    pub(crate) node: NodeId,
    pub(crate) socket: SocketId,
    pub(crate) capacity: u32,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) os_index: u32,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cpus: CpuSet,
    pub(crate) llcs: Vec<LlcId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Socket {
    pub(crate) os_index: u32,
    pub(crate) cpus: CpuSet,
    pub(crate) nodes: Vec<NodeId>,
}

/// A machine: CPUs and what they share, how far apart they are, and what things cost on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    pub(crate) name: String,
    pub(crate) summary: String,
    pub(crate) places: Vec<CpuPlace>,
    pub(crate) all: CpuSet,
    pub(crate) core_cpus: Vec<CpuSet>,
    pub(crate) cluster_cpus: Vec<CpuSet>,
    pub(crate) llc_cpus: Vec<CpuSet>,
    /// Groups of CPUs that stand for LLCs in scheduling domains, and each CPU's; empty where the LLCs do.
    pub(crate) coregroups: Vec<CpuSet>,
    pub(crate) coregroup_of: Vec<u32>,
    /// By CPU; empty where there are none.
    pub(crate) priorities: Vec<u32>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) cpu_by_os_index: BTreeMap<u32, CpuId>,
    pub(crate) offline: Vec<u32>,
    /// Node distances by rows.
    pub(crate) distances: Vec<u32>,
    /// For each pair of nodes, by rows: the relation of two of their CPUs that lie in different sockets.
    pub(crate) node_relations: Vec<Relation>,
    pub(crate) processor: Option<Processor>,
    pub(crate) reclaim_distance: u32,
    pub(crate) smt_width: usize,
    pub(crate) caches: Vec<Cache>,
    pub(crate) performance: Performance,
    pub(crate) costs: Costs,
    pub(crate) origins: BTreeMap<String, Origin>,
    pub(crate) sources: BTreeMap<String, String>,
    pub(crate) notes: Vec<String>,
    pub(crate) background: Background,
    pub(crate) core_kinds: Vec<CoreKind>,
}

impl Machine {
    /// Short name: the preset's, the short form's text, or a file's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One line for lists; may be empty.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Number of online CPUs.
    #[inline]
    pub fn cpu_count(&self) -> usize {
        self.places.len()
    }

    /// Number of cores with an online CPU.
    pub fn core_count(&self) -> usize {
        self.core_cpus.len()
    }

    /// Number of clusters.
    pub fn cluster_count(&self) -> usize {
        self.cluster_cpus.len()
    }

    /// Number of last-level caches.
    pub fn llc_count(&self) -> usize {
        self.llc_cpus.len()
    }

    /// Number of NUMA nodes, those without CPUs included.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of sockets with an online CPU.
    pub fn socket_count(&self) -> usize {
        self.sockets.len()
    }

    /// All online CPUs.
    pub fn all_cpus(&self) -> &CpuSet {
        &self.all
    }

    /// All online CPUs in ascending order.
    pub fn cpus(&self) -> impl DoubleEndedIterator<Item = CpuId> + ExactSizeIterator + use<> {
        (0..self.places.len() as u32).map(CpuId)
    }

    /// All last-level caches in ascending order.
    pub fn llcs(&self) -> impl DoubleEndedIterator<Item = LlcId> + ExactSizeIterator + use<> {
        (0..self.llc_cpus.len() as u32).map(LlcId)
    }

    /// All NUMA nodes in ascending order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// All sockets in ascending order.
    pub fn sockets(&self) -> impl DoubleEndedIterator<Item = SocketId> + ExactSizeIterator + use<> {
        (0..self.sockets.len() as u32).map(SocketId)
    }

    /// The core of a CPU.
    #[inline]
    pub fn core_of(&self, cpu: CpuId) -> CoreId {
        self.places[cpu.index()].core
    }

    /// The cluster of a CPU.
    #[inline]
    pub fn cluster_of(&self, cpu: CpuId) -> ClusterId {
        self.places[cpu.index()].cluster
    }

    /// The last-level cache of a CPU.
    #[inline]
    pub fn llc_of(&self, cpu: CpuId) -> LlcId {
        self.places[cpu.index()].llc
    }

    /// The NUMA node of a CPU.
    #[inline]
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        self.places[cpu.index()].node
    }

    /// The socket of a CPU.
    #[inline]
    pub fn socket_of(&self, cpu: CpuId) -> SocketId {
        self.places[cpu.index()].socket
    }

    /// The hardware threads of a core.
    #[inline]
    pub fn cpus_of_core(&self, core: CoreId) -> &CpuSet {
        &self.core_cpus[core.index()]
    }

    /// The CPUs of a cluster.
    #[inline]
    pub fn cpus_of_cluster(&self, cluster: ClusterId) -> &CpuSet {
        &self.cluster_cpus[cluster.index()]
    }

    /// The CPUs under a last-level cache.
    #[inline]
    pub fn cpus_of_llc(&self, llc: LlcId) -> &CpuSet {
        &self.llc_cpus[llc.index()]
    }

    /// The CPUs of a NUMA node; empty for memory-only nodes.
    #[inline]
    pub fn cpus_of_node(&self, node: NodeId) -> &CpuSet {
        &self.nodes[node.index()].cpus
    }

    /// The CPUs of a socket.
    #[inline]
    pub fn cpus_of_socket(&self, socket: SocketId) -> &CpuSet {
        &self.sockets[socket.index()].cpus
    }

    /// The last-level caches of a NUMA node, ascending.
    pub fn llcs_of_node(&self, node: NodeId) -> &[LlcId] {
        &self.nodes[node.index()].llcs
    }

    /// The NUMA nodes with CPUs of a socket, ascending.
    pub fn nodes_of_socket(&self, socket: SocketId) -> &[NodeId] {
        &self.sockets[socket.index()].nodes
    }

    /// The NUMA node of a last-level cache.
    pub fn node_of_llc(&self, llc: LlcId) -> NodeId {
        self.node_of(self.lowest_cpu(&self.llc_cpus[llc.index()]))
    }

    /// Groups other than nodes are never empty.
    fn lowest_cpu(&self, cpus: &CpuSet) -> CpuId {
        cpus.first().unwrap_or_default()
    }

    /// The operating system's number of a CPU.
    #[inline]
    pub fn os_index(&self, cpu: CpuId) -> u32 {
        self.places[cpu.index()].os_index
    }

    /// Whether the operating system numbers the online CPUs 0, 1, 2, … without a gap.
    pub fn has_dense_numbers(&self) -> bool {
        self.cpus().all(|cpu| self.os_index(cpu) == cpu.0)
    }

    /// The CPU as outputs for users name it. One that the machine does not have keeps its number: what is damaged can be shown.
    pub fn os_cpu(&self, cpu: CpuId) -> OsCpu {
        OsCpu(self.places.get(cpu.index()).map_or(cpu.0, |place| place.os_index))
    }

    /// The online CPU with the operating system's number `os_index`.
    pub fn cpu_by_os_index(&self, os_index: u32) -> Option<CpuId> {
        self.cpu_by_os_index.get(&os_index).copied()
    }

    /// The operating system's number of a NUMA node.
    pub fn node_os_index(&self, node: NodeId) -> u32 {
        self.nodes[node.index()].os_index
    }

    /// The NUMA node with the operating system's number `os_index`.
    pub fn node_by_os_index(&self, os_index: u32) -> Option<NodeId> {
        self.nodes.binary_search_by_key(&os_index, |node| node.os_index).ok().map(NodeId::from_index)
    }

    /// The operating system's number of a socket.
    pub fn socket_os_index(&self, socket: SocketId) -> u32 {
        self.sockets[socket.index()].os_index
    }

    /// The operating system's numbers of the CPUs that are present but offline, ascending.
    pub fn offline_cpus(&self) -> &[u32] {
        &self.offline
    }

    /// Memory of a node in bytes, when known.
    pub fn node_memory_bytes(&self, node: NodeId) -> Option<u64> {
        self.nodes[node.index()].memory_bytes
    }

    /// Whether pages can be on a node: everywhere but on nodes that are stated to have no memory. A description in which none has any says
    /// nothing of where it is.
    pub fn node_has_memory(&self, node: NodeId) -> bool {
        self.node_memory_bytes(node) != Some(0) || self.nodes.iter().all(|node| node.memory_bytes == Some(0))
    }

    /// The node whose memory a CPU of a node gets: its own, or the nearest that has some (`build_zonelists`).
    pub fn allocation_node(&self, node: NodeId) -> NodeId {
        let with_memory = self.nodes().filter(|other| self.node_has_memory(*other));
        let nearest = with_memory.min_by_key(|other| (*other != node, self.node_distance(node, *other), *other));
        nearest.unwrap_or(node)
    }

    /// How two CPUs stand to each other. Symmetric.
    #[inline]
    pub fn relation(&self, a: CpuId, b: CpuId) -> Relation {
        let (first, second) = (&self.places[a.index()], &self.places[b.index()]);
        if first.llc == second.llc {
            return if a == b {
                Relation::SameCpu
            } else if first.core == second.core {
                Relation::SmtSibling
            } else if first.cluster == second.cluster {
                Relation::SameCluster
            } else {
                Relation::SameLlc
            };
        }
        if first.socket != second.socket {
            self.node_relations[first.node.index() * self.nodes.len() + second.node.index()]
        } else if first.node == second.node {
            Relation::SameNode
        } else {
            Relation::SameSocket
        }
    }

    /// The relations that two CPUs of this machine can have, nearest first.
    pub fn relations(&self) -> Vec<Relation> {
        let mut found = [false; Relation::COUNT];
        found[Relation::SameCpu as usize] = true;
        found[Relation::SmtSibling as usize] = self.smt_width > 1;
        let cores_of = |cpus: &CpuSet| cpus.iter().map(|cpu| self.core_of(cpu)).collect::<BTreeSet<_>>().len();
        found[Relation::SameCluster as usize] = self.cluster_cpus.iter().any(|cpus| cores_of(cpus) > 1);
        let clusters_of = |cpus: &CpuSet| cpus.iter().map(|cpu| self.cluster_of(cpu)).collect::<BTreeSet<_>>().len();
        found[Relation::SameLlc as usize] = self.llc_cpus.iter().any(|cpus| clusters_of(cpus) > 1);
        // LLCs lie in one node and one socket, so one CPU of each stands for all.
        let first: Vec<CpuId> = self.llc_cpus.iter().filter_map(CpuSet::first).collect();
        for (position, a) in first.iter().enumerate() {
            for b in &first[..position] {
                found[self.relation(*a, *b) as usize] = true;
            }
        }
        Relation::ALL.into_iter().filter(|relation| found[*relation as usize]).collect()
    }

    /// The distance of two NUMA nodes in SLIT units: 10 is local.
    #[inline]
    pub fn node_distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.distances[from.index() * self.nodes.len() + to.index()]
    }

    /// The make of the CPUs, when known.
    pub fn processor(&self) -> Option<Processor> {
        self.processor
    }

    /// The distance, in SLIT units, beyond which Linux since 5.4 neither places tasks at fork and exec nor pulls wakees
    /// (`node_reclaim_distance`): what the machine's description states, or what the make of its CPUs decides.
    pub fn reclaim_distance(&self) -> u32 {
        self.reclaim_distance
    }

    /// Relative computing power of a CPU: 1024 for the biggest.
    #[inline]
    pub fn capacity(&self, cpu: CpuId) -> u32 {
        self.places[cpu.index()].capacity
    }

    /// Whether CPUs differ in computing power.
    pub fn is_asymmetric(&self) -> bool {
        self.places.iter().any(|place| place.capacity != self.places[0].capacity)
    }

    /// The priority of a CPU by which Linux on x86 packs tasks (ITMT, `arch_asym_cpu_priority`): the higher, the sooner it has one. 0 where CPUs
    /// have none.
    pub fn priority(&self, cpu: CpuId) -> u32 {
        self.priorities.get(cpu.index()).copied().unwrap_or(0)
    }

    /// Whether CPUs have priorities. They differ then.
    pub fn has_priorities(&self) -> bool {
        !self.priorities.is_empty()
    }

    /// The largest number of hardware threads of a core.
    pub fn smt_width(&self) -> usize {
        self.smt_width
    }

    /// What kernel actions cost on this machine.
    #[inline]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// All caches, by level, then kind, then lowest CPU.
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// The data or unified cache of a level that a CPU uses.
    pub fn data_cache(&self, cpu: CpuId, level: u8) -> Option<&Cache> {
        let holds_data = |cache: &&Cache| cache.level == level && cache.kind != CacheKind::Instruction;
        self.caches.iter().filter(holds_data).find(|cache| cache.cpus.contains(cpu))
    }

    /// The L1 for instructions that a CPU uses, where the machine's description has one.
    pub fn instruction_cache(&self, cpu: CpuId) -> Option<&Cache> {
        let holds_code = |cache: &&Cache| cache.level == 1 && cache.kind == CacheKind::Instruction;
        self.caches.iter().filter(holds_code).find(|cache| cache.cpus.contains(cpu))
    }

    /// The cache that is the LLC `llc`: the highest data or unified cache whose CPUs are the LLC's. `None` when the
    /// machine's description says nothing about it.
    pub fn llc_cache(&self, llc: LlcId) -> Option<&Cache> {
        let cpus = &self.llc_cpus[llc.index()];
        self.caches.iter().rev().find(|cache| cache.kind != CacheKind::Instruction && cache.cpus == *cpus)
    }

    /// Latencies, bandwidths and frequencies.
    pub fn performance(&self) -> &Performance {
        &self.performance
    }

    /// How large a last-level cache is: its CPUs, then its bytes (0 if they are not known).
    pub fn size_of_llc(&self, llc: LlcId) -> (usize, u64) {
        (self.cpus_of_llc(llc).len(), self.llc_cache(llc).map_or(0, |cache| cache.size_bytes))
    }

    /// The last-level cache of the most CPUs, of equal ones that of the most bytes, of equal ones the first.
    pub fn largest_llc(&self) -> Option<LlcId> {
        self.llcs().max_by_key(|llc| (self.size_of_llc(*llc), Reverse(*llc)))
    }

    /// The socket of the most CPUs, of equal ones the first.
    pub fn largest_socket(&self) -> Option<SocketId> {
        self.sockets().max_by_key(|socket| (self.cpus_of_socket(*socket).len(), Reverse(*socket)))
    }

    /// Where a value comes from, by its name in the TOML format: `costs.tick_ns`, `core_to_core_ns.same_llc`.
    pub fn origin(&self, value: &str) -> Option<&Origin> {
        self.origins.get(value)
    }

    /// All origins by name of the value.
    pub fn origins(&self) -> &BTreeMap<String, Origin> {
        &self.origins
    }

    /// What the tags in origins stand for.
    pub fn sources(&self) -> &BTreeMap<String, String> {
        &self.sources
    }

    /// What a reader found odd in the description of this machine, and how it understood it.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
