//! From a [`MachineDescription`] to a [`Machine`]: refuses what no machine can be, then gives out dense ids.
//!
//! Ids ascend with the operating system's numbers: CPUs, nodes and sockets by their own number, cores, clusters and
//! LLCs by their lowest CPU.

use std::collections::{BTreeMap, BTreeSet};

use crate::cache_entries::cache_entries;
use crate::fields::each_value;
use crate::machine::{CpuPlace, Node, Socket};
use crate::processor::reclaim_distance;
use crate::{
    Background, Basis, Cache, CacheDescription, ClusterId, CoreId, CpuDescription, CpuId, CpuSet, Error, LlcId,
    MAX_CPU_NUMBER, Machine, MachineDescription, NodeId, Origin, Processor, Relation, Result, SocketId,
};

/// The largest number of online CPUs a machine may have.
pub const MAX_CPUS: usize = 4096;

/// The largest number of NUMA nodes (the kernel's `MAX_NUMNODES` on large configurations).
pub(crate) const MAX_NODES: usize = 1024;

/// The computing power of the biggest CPU.
pub const CAPACITY_SCALE: u32 = 1024;

/// The highest priority of a CPU: the kernel has it as a signed number.
pub const MAX_PRIORITY: u32 = i32::MAX as u32;

/// Distance of a node to itself.
pub const LOCAL_DISTANCE: u32 = 10;
/// Assumed distance of two nodes of one socket when nothing is said.
pub(crate) const DEFAULT_SAME_SOCKET_DISTANCE: u32 = 12;
/// Assumed distance of nodes of different sockets when nothing is said: the kernel's `REMOTE_DISTANCE`.
pub(crate) const DEFAULT_REMOTE_DISTANCE: u32 = 20;
/// The largest distance: "unreachable" in a SLIT.
pub const MAX_DISTANCE: u32 = 255;

impl MachineDescription {
    /// Checks the description and builds the machine.
    ///
    /// # Errors
    /// [`Error::Impossible`] for descriptions that contradict themselves.
    pub fn build(mut self) -> Result<Machine> {
        self.cpus.sort_by_key(|cpu| cpu.os_index);
        self.sort_nodes()?;
        self.check_cpus()?;
        self.check_nesting()?;
        let distances = self.flat_distances()?;
        let coregroup_keys = self.checked_coregroups()?;
        self.check_reclaim_distance()?;
        self.check_priorities()?;
        self.check_caches()?;

        let cores = GroupIds::by_lowest_cpu(&self.cpus, |cpu| cpu.core);
        let clusters = GroupIds::by_lowest_cpu(&self.cpus, |cpu| cpu.cluster);
        let llcs = GroupIds::by_lowest_cpu(&self.cpus, |cpu| cpu.llc);
        let socket_numbers: BTreeSet<u32> = self.cpus.iter().map(|cpu| cpu.socket).collect();
        let sockets = GroupIds::in_order(socket_numbers.iter().copied());
        let nodes = GroupIds::in_order(self.nodes.iter().map(|node| node.os_index));
        let places: Vec<CpuPlace> = self
            .cpus
            .iter()
            .map(|cpu| CpuPlace {
                os_index: cpu.os_index,
                core: CoreId(cores.id(cpu.core)),
                cluster: ClusterId(clusters.id(cpu.cluster)),
                llc: LlcId(llcs.id(cpu.llc)),
                node: NodeId(nodes.id(cpu.node)),
                socket: SocketId(sockets.id(cpu.socket)),
                capacity: cpu.capacity,
            })
            .collect();

        let node_cpus = members(&places, self.nodes.len(), |place| place.node.index());
        let socket_cpus = members(&places, socket_numbers.len(), |place| place.socket.index());
        let core_cpus = members(&places, cores.len(), |place| place.core.index());
        let smt_width = core_cpus.iter().map(CpuSet::len).max().unwrap_or(1);
        let node_relations = node_relations(&node_cpus.iter().collect::<Vec<_>>(), &places, &distances);
        let caches = dense_caches(self.caches, &places);
        let llc_cpus = members(&places, llcs.len(), |place| place.llc.index());
        let (coregroups, coregroup_of) = dense_coregroups(&coregroup_keys, &places, &llc_cpus);
        let distances_stated = self.distances.is_some();
        let priorities = dense_priorities(&self.priorities, &places);
        let mut machine = Machine {
            name: self.name,
            summary: self.summary,
            all: CpuSet::with_all(places.len()),
            cluster_cpus: members(&places, clusters.len(), |place| place.cluster.index()),
            llc_cpus,
            coregroups,
            coregroup_of,
            priorities,
            core_cpus,
            nodes: (self.nodes.iter().zip(node_cpus))
                .map(|(node, cpus)| Node {
                    os_index: node.os_index,
                    memory_bytes: node.memory_bytes,
                    llcs: distinct(cpus.iter().map(|cpu| places[cpu.index()].llc)),
                    cpus,
                })
                .collect(),
            sockets: (socket_numbers.into_iter().zip(socket_cpus))
                .map(|(os_index, cpus)| Socket {
                    os_index,
                    nodes: distinct(cpus.iter().map(|cpu| places[cpu.index()].node)),
                    cpus,
                })
                .collect(),
            cpu_by_os_index: places
                .iter()
                .enumerate()
                .map(|(id, place)| (place.os_index, CpuId::from_index(id)))
                .collect(),
            places,
            offline: self.offline.into_iter().collect(),
            distances,
            node_relations,
            processor: self.processor,
            reclaim_distance: self.reclaim_distance.unwrap_or(crate::RECLAIM_DISTANCE),
            smt_width,
            caches,
            performance: self.performance,
            costs: self.costs,
            origins: self.origins,
            sources: self.sources,
            notes: self.notes,
            background: Background::default(),
            core_kinds: Vec::new(),
        };
        if self.reclaim_distance.is_none() {
            machine.derive_reclaim_distance();
        }
        add_missing_origins(&mut machine, distances_stated);
        Ok(machine)
    }

    fn impossible(&self, reason: impl Into<String>) -> Error {
        self.impossible_with_hint(reason, "")
    }

    fn impossible_with_hint(&self, reason: impl Into<String>, hint: &str) -> Error {
        Error::Impossible { machine: self.name.clone(), reason: reason.into(), hint: hint.to_owned() }
    }

    /// Sorts nodes by number and the distance matrix with them.
    fn sort_nodes(&mut self) -> Result<()> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&position| self.nodes[position].os_index);
        if let Some(rows) = &self.distances {
            if rows.len() != order.len() || rows.iter().any(|row| row.len() != order.len()) {
                let reason = format!("the distance matrix is not {0} x {0}, but there are {0} NUMA nodes", order.len());
                return Err(self.impossible(reason));
            }
            let sorted = order.iter().map(|&from| order.iter().map(|&to| rows[from][to]).collect()).collect();
            self.distances = Some(sorted);
        }
        self.nodes = order.into_iter().map(|position| self.nodes[position].clone()).collect();
        Ok(())
    }

    fn check_cpus(&self) -> Result<()> {
        if self.cpus.is_empty() {
            return Err(self.impossible_with_hint("it has no online CPU", "give at least one CPU"));
        }
        if self.cpus.len() > MAX_CPUS {
            return Err(self.impossible(format!("{} CPUs are more than the limit of {MAX_CPUS}", self.cpus.len())));
        }
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            return Err(self.impossible(format!("{} NUMA nodes (1 to {MAX_NODES} are possible)", self.nodes.len())));
        }
        for pair in self.nodes.windows(2) {
            if pair[0].os_index == pair[1].os_index {
                return Err(self.impossible(format!("NUMA node {} is described twice", pair[0].os_index)));
            }
        }
        for pair in self.cpus.windows(2) {
            if pair[0].os_index == pair[1].os_index {
                return Err(self.impossible(format!(
                    "CPU {} is described twice{}",
                    pair[0].os_index,
                    if pair[0].node == pair[1].node { "" } else { ", in two NUMA nodes" }
                )));
            }
        }
        let known: BTreeSet<u32> = self.nodes.iter().map(|node| node.os_index).collect();
        for cpu in &self.cpus {
            if cpu.os_index > MAX_CPU_NUMBER {
                return Err(self.impossible(format!("CPU number {} is larger than {MAX_CPU_NUMBER}", cpu.os_index)));
            }
            if !known.contains(&cpu.node) {
                let reason = format!("CPU {} is in NUMA node {}, which does not exist", cpu.os_index, cpu.node);
                return Err(self.impossible(reason));
            }
            if self.offline.contains(&cpu.os_index) {
                return Err(self.impossible(format!("CPU {} is both online and offline", cpu.os_index)));
            }
            if cpu.capacity == 0 || cpu.capacity > CAPACITY_SCALE {
                let reason = format!("CPU {} has capacity {}, not 1 to {CAPACITY_SCALE}", cpu.os_index, cpu.capacity);
                return Err(self.impossible(reason));
            }
        }
        if !self.cpus.iter().any(|cpu| cpu.capacity == CAPACITY_SCALE) {
            let reason = format!("no CPU has capacity {CAPACITY_SCALE}");
            return Err(self.impossible_with_hint(reason, "capacities are relative to the biggest CPU, which has 1024"));
        }
        Ok(())
    }

    /// Cores lie in one cluster, clusters in one LLC, LLCs in one node and one socket.
    fn check_nesting(&self) -> Result<()> {
        // Cores against LLCs first: a core that spans LLCs is a cluster that does, too, and the core is the better
        // reason.
        self.check_inside("a core", |cpu| cpu.core, "LLCs", |cpu| cpu.llc)?;
        self.check_inside("a core", |cpu| cpu.core, "clusters", |cpu| cpu.cluster)?;
        self.check_inside("a cluster", |cpu| cpu.cluster, "LLCs", |cpu| cpu.llc)?;
        self.check_inside("an LLC", |cpu| cpu.llc, "NUMA nodes", |cpu| cpu.node)?;
        self.check_inside("an LLC", |cpu| cpu.llc, "sockets", |cpu| cpu.socket)
    }

    fn check_inside(
        &self,
        inner_name: &str,
        inner: impl Fn(&CpuDescription) -> u32,
        outer_name: &str,
        outer: impl Fn(&CpuDescription) -> u32,
    ) -> Result<()> {
        let mut first: BTreeMap<u32, &CpuDescription> = BTreeMap::new();
        for cpu in &self.cpus {
            let other = *first.entry(inner(cpu)).or_insert(cpu);
            if outer(other) != outer(cpu) {
                let reason = format!(
                    "CPUs {} and {} share {inner_name} but lie in different {outer_name}",
                    other.os_index, cpu.os_index
                );
                let hint = format!("{inner_name} cannot span {outer_name}");
                return Err(self.impossible_with_hint(reason, &hint));
            }
        }
        Ok(())
    }

    /// The key of each CPU's group that stands for a last-level cache; empty where the LLCs do. Groups have each CPU once and whole cores,
    /// lie in one node and one socket, and contain clusters or lie in them.
    fn checked_coregroups(&self) -> Result<BTreeMap<u32, u32>> {
        let mut group_of = BTreeMap::new();
        for (group, cpus) in (0..).zip(&self.coregroups) {
            for cpu in cpus {
                if self.cpus.binary_search_by_key(cpu, |cpu| cpu.os_index).is_err() {
                    return Err(self.impossible(format!("a coregroup lists CPU {cpu}, which is not online")));
                }
                if group_of.insert(*cpu, group).is_some() {
                    return Err(self.impossible(format!("CPU {cpu} is in two coregroups")));
                }
            }
        }
        if group_of.is_empty() {
            return Ok(group_of);
        }
        if let Some(cpu) = self.cpus.iter().find(|cpu| !group_of.contains_key(&cpu.os_index)) {
            return Err(self.impossible(format!("CPU {} is in none of the coregroups", cpu.os_index)));
        }
        let group = |cpu: &CpuDescription| group_of[&cpu.os_index];
        self.check_inside("a core", |cpu| cpu.core, "coregroups", group)?;
        self.check_inside("a coregroup", group, "NUMA nodes", |cpu| cpu.node)?;
        self.check_inside("a coregroup", group, "sockets", |cpu| cpu.socket)?;
        if self.check_inside("a cluster", |cpu| cpu.cluster, "coregroups", group).is_err() {
            self.check_inside("a coregroup", group, "clusters", |cpu| cpu.cluster)?;
        }
        Ok(group_of)
    }

    /// The checked distance matrix by rows.
    fn flat_distances(&self) -> Result<Vec<u32>> {
        let count = self.nodes.len();
        let Some(rows) = &self.distances else { return Ok(self.default_distances()) };
        let os_index = |position: usize| self.nodes[position].os_index;
        for (from, row) in rows.iter().enumerate() {
            for (to, &distance) in row.iter().enumerate() {
                let pair = format!("{} to {}", os_index(from), os_index(to));
                if from == to && distance != LOCAL_DISTANCE {
                    let reason = format!("the distance of node {pair} is {distance}, not {LOCAL_DISTANCE}");
                    return Err(self.impossible_with_hint(reason, "a node is at distance 10 from itself"));
                }
                if from != to && !(LOCAL_DISTANCE..=MAX_DISTANCE).contains(&distance) {
                    let reason =
                        format!("the distance of node {pair} is {distance}, not {LOCAL_DISTANCE} to {MAX_DISTANCE}");
                    return Err(self.impossible(reason));
                }
                if distance != rows[to][from] {
                    let reason =
                        format!("the distance of node {pair} is {distance}, but {} the other way", rows[to][from]);
                    return Err(self.impossible_with_hint(reason, "distances are symmetric"));
                }
            }
        }
        let mut flat = Vec::with_capacity(count * count);
        flat.extend(rows.iter().flatten());
        Ok(flat)
    }

    fn default_distances(&self) -> Vec<u32> {
        let sockets: Vec<BTreeSet<u32>> = (self.nodes.iter())
            .map(|node| self.cpus.iter().filter(|cpu| cpu.node == node.os_index).map(|cpu| cpu.socket).collect())
            .collect();
        let distance = |from: usize, to: usize| {
            if from == to {
                LOCAL_DISTANCE
            } else if sockets[from].is_disjoint(&sockets[to]) {
                DEFAULT_REMOTE_DISTANCE
            } else {
                DEFAULT_SAME_SOCKET_DISTANCE
            }
        };
        let count = self.nodes.len();
        (0..count * count).map(|cell| distance(cell / count, cell % count)).collect()
    }

    fn check_reclaim_distance(&self) -> Result<()> {
        match self.reclaim_distance {
            Some(distance) if !(LOCAL_DISTANCE..=MAX_DISTANCE).contains(&distance) => {
                let reason = format!("the reclaim distance is {distance}, not {LOCAL_DISTANCE} to {MAX_DISTANCE}");
                Err(self.impossible_with_hint(reason, "nodes farther apart than it count as out of reach; 30 is usual"))
            }
            _ => Ok(()),
        }
    }

    fn check_priorities(&self) -> Result<()> {
        for (cpu, priority) in &self.priorities {
            if self.cpus.binary_search_by_key(cpu, |cpu| cpu.os_index).is_err() {
                return Err(self.impossible(format!("priority given for CPU {cpu}, which is not online")));
            }
            if *priority > MAX_PRIORITY {
                return Err(self.impossible(format!("CPU {cpu} has priority {priority}, not 0 to {MAX_PRIORITY}")));
            }
        }
        Ok(())
    }

    fn check_caches(&self) -> Result<()> {
        let mut taken: BTreeMap<(u8, crate::CacheKind, u32), usize> = BTreeMap::new();
        for (position, CacheDescription { cache, cpus }) in self.caches.iter().enumerate() {
            let name = cache.name();
            if !(1..=5).contains(&cache.level) {
                return Err(self.impossible(format!("cache level {} is not 1 to 5", cache.level)));
            }
            if cpus.is_empty() {
                return Err(self.impossible(format!("an {name} cache has no CPU")));
            }
            for &cpu in cpus {
                if self.cpus.binary_search_by_key(&cpu, |cpu| cpu.os_index).is_err() {
                    return Err(self.impossible(format!("an {name} cache lists CPU {cpu}, which is not online")));
                }
                for kind in overlapping_kinds(cache.kind) {
                    if taken.insert((cache.level, kind, cpu), position).is_some_and(|other| other != position) {
                        let reason = format!("CPU {cpu} has two {name} caches");
                        return Err(self.impossible_with_hint(reason, "caches of one level must not overlap"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Name of the origin of [`Machine::processor`].
pub(crate) const PROCESSOR: &str = "processor";
/// Name of the origin of [`Machine::node_distance`].
pub(crate) const DISTANCES: &str = "topology.distances";
/// Name of the origin of [`Machine::reclaim_distance`].
pub(crate) const STATED_RECLAIM_DISTANCE: &str = "topology.reclaim_distance";
/// Name of the origin of [`Machine::priority`].
pub(crate) const PRIORITIES: &str = "topology.priorities";

impl Machine {
    /// Takes other node distances, by rows; they must be possible ones.
    pub(crate) fn set_distances(&mut self, distances: Vec<u32>) {
        let node_cpus: Vec<&CpuSet> = self.nodes.iter().map(|node| &node.cpus).collect();
        self.node_relations = node_relations(&node_cpus, &self.places, &distances);
        self.distances = distances;
    }

    /// The reclaim distance that follows from the make of the CPUs.
    pub(crate) fn derive_reclaim_distance(&mut self) {
        let (distance, origin) = reclaim_distance(self.processor);
        self.reclaim_distance = distance;
        self.origins.insert(STATED_RECLAIM_DISTANCE.to_owned(), origin);
    }

    /// Takes the make of CPUs from where the figures come from, unless the machine's own is known. What was stated stays; a reclaim
    /// distance that rested on nothing follows from it.
    pub(crate) fn adopt_make(&mut self, processor: Processor, origin: Origin) {
        if self.processor.is_some() {
            return;
        }
        let derives = self.derives_reclaim_distance();
        self.processor = Some(processor);
        self.origins.insert(PROCESSOR.to_owned(), origin);
        if derives {
            self.derive_reclaim_distance();
        }
    }

    /// Whether the reclaim distance is the one that follows from the make of the CPUs.
    pub(crate) fn derives_reclaim_distance(&self) -> bool {
        let (distance, origin) = reclaim_distance(self.processor);
        self.reclaim_distance == distance && self.origin(STATED_RECLAIM_DISTANCE) == Some(&origin)
    }
}

/// Every value has an origin: what nobody explains was given by the user.
fn add_missing_origins(machine: &mut Machine, distances_stated: bool) {
    let mut names = vec!["topology".to_owned()];
    if distances_stated {
        names.push(DISTANCES.to_owned());
    }
    names.push(STATED_RECLAIM_DISTANCE.to_owned());
    if machine.has_priorities() {
        names.push(PRIORITIES.to_owned());
    } else {
        machine.origins.remove(PRIORITIES);
    }
    if machine.processor.is_some() {
        names.push(PROCESSOR.to_owned());
    }
    for entry in cache_entries(machine) {
        names.push(entry.value_name());
        if entry.cache.latency_ps.is_some() {
            names.push(format!("{}.latency_ns", entry.value_name()));
        }
    }
    let (mut performance, mut costs) = (machine.performance.clone(), machine.costs.clone());
    each_value(&mut performance, &mut costs, &mut |name, slot| {
        if slot.get().is_some() {
            names.push(name.to_owned());
        }
    });
    for name in names {
        machine.origins.entry(name).or_insert_with(|| Origin::new(Basis::Given, ""));
    }
}

/// A unified cache takes both places of its level.
fn overlapping_kinds(kind: crate::CacheKind) -> Vec<crate::CacheKind> {
    use crate::CacheKind::{Data, Instruction, Unified};
    match kind {
        Data => vec![Data],
        Instruction => vec![Instruction],
        Unified => vec![Data, Instruction],
    }
}

/// Dense ids of group keys.
struct GroupIds(BTreeMap<u32, u32>);

impl GroupIds {
    fn by_lowest_cpu(cpus: &[CpuDescription], key: impl Fn(&CpuDescription) -> u32) -> Self {
        Self::in_order(cpus.iter().map(key))
    }

    /// Ids in the order of first appearance.
    fn in_order(keys: impl Iterator<Item = u32>) -> Self {
        let mut ids = BTreeMap::new();
        for key in keys {
            let next = ids.len() as u32;
            ids.entry(key).or_insert(next);
        }
        Self(ids)
    }

    fn id(&self, key: u32) -> u32 {
        self.0[&key]
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

fn members(places: &[CpuPlace], count: usize, group: impl Fn(&CpuPlace) -> usize) -> Vec<CpuSet> {
    let mut sets = vec![CpuSet::new(); count];
    for (id, place) in places.iter().enumerate() {
        sets[group(place)].insert(CpuId::from_index(id));
    }
    sets
}

/// The groups that stand for last-level caches and each CPU's, by their lowest CPU; nothing where they are the LLCs.
fn dense_coregroups(keys: &BTreeMap<u32, u32>, places: &[CpuPlace], llc_cpus: &[CpuSet]) -> (Vec<CpuSet>, Vec<u32>) {
    let key = |place: &CpuPlace| keys.get(&place.os_index).copied().unwrap_or(0);
    let ids = GroupIds::in_order(places.iter().map(key));
    let groups = members(places, ids.len(), |place| ids.id(key(place)) as usize);
    if keys.is_empty() || groups == llc_cpus {
        return (Vec::new(), Vec::new());
    }
    (groups, places.iter().map(|place| ids.id(key(place))).collect())
}

/// The priority of each CPU; nothing where all have the same, by which nobody can go.
fn dense_priorities(stated: &BTreeMap<u32, u32>, places: &[CpuPlace]) -> Vec<u32> {
    let priority = |place: &CpuPlace| stated.get(&place.os_index).copied().unwrap_or(0);
    let priorities: Vec<u32> = places.iter().map(priority).collect();
    if priorities.iter().all(|priority| *priority == priorities[0]) { Vec::new() } else { priorities }
}

fn distinct<T: Ord>(ids: impl Iterator<Item = T>) -> Vec<T> {
    ids.collect::<BTreeSet<T>>().into_iter().collect()
}

/// For each pair of nodes how CPUs of different sockets in them stand to each other.
fn node_relations(node_cpus: &[&CpuSet], places: &[CpuPlace], distances: &[u32]) -> Vec<Relation> {
    let count = node_cpus.len();
    let sockets: Vec<BTreeSet<SocketId>> =
        node_cpus.iter().map(|cpus| cpus.iter().map(|cpu| places[cpu.index()].socket).collect()).collect();
    let crosses_sockets = |cell: usize| {
        let (from, to) = (&sockets[cell / count], &sockets[cell % count]);
        from.iter().any(|socket| to.iter().any(|other| other != socket))
    };
    let one_hop = (0..count * count).filter(|&cell| crosses_sockets(cell)).map(|cell| distances[cell]).min();
    (0..count * count)
        .map(|cell| match one_hop {
            Some(one_hop) if distances[cell] > one_hop => Relation::FarSocket,
            _ => Relation::OtherSocket,
        })
        .collect()
}

fn dense_caches(caches: Vec<CacheDescription>, places: &[CpuPlace]) -> Vec<Cache> {
    let dense =
        |os_index: &u32| places.binary_search_by_key(os_index, |place| place.os_index).ok().map(CpuId::from_index);
    let mut caches: Vec<Cache> = (caches.into_iter())
        .map(|CacheDescription { cache, cpus }| Cache { cpus: cpus.iter().filter_map(dense).collect(), ..cache })
        .collect();
    caches.sort_by_key(|cache| (cache.level, cache.kind, cache.cpus.first()));
    caches
}
