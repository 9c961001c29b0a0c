//! What operating systems and hwloc know about a machine, and how our groups follow from it.
//!
//! They name cores, packages, nodes and caches; clusters and last-level caches are derived here:
//!
//! - the LLC of a CPU is its highest data or unified cache, cut at borders of NUMA nodes and sockets as Linux's
//!   scheduler does with sub-NUMA clustering, into parts of whole sets; without any cache, all CPUs of a node in a socket;
//! - the cluster is the group of cores that share an L2, or that the operating system calls a cluster;
//! - a cluster that is larger than the LLCs in it stands for one in scheduling domains.
//!
//! Contradictions that leave a usable machine become notes; the others are refused by the builder.

use std::collections::{BTreeMap, BTreeSet};

use crate::build::{DISTANCES, PRIORITIES, PROCESSOR, STATED_RECLAIM_DISTANCE};
use crate::cache_entries::cache_entries;
use crate::{
    Basis, CacheDescription, CacheKind, CpuDescription, LOCAL_DISTANCE, MAX_DISTANCE, Machine, MachineDescription,
    NodeDescription, Origin, Processor, Result,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundCpu {
    /// Key of its core.
    pub(crate) core: u32,
    /// Number of its package.
    pub(crate) socket: u32,
    /// Number of its NUMA node.
    pub(crate) node: u32,
    /// Computing power as stated, in any unit.
    pub(crate) capacity: u32,
}

/// A machine as found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) cpus: BTreeMap<u32, FoundCpu>,
    pub(crate) nodes: Vec<NodeDescription>,
    pub(crate) offline: BTreeSet<u32>,
    /// Rows and columns in the order of `nodes`.
    pub(crate) distances: Option<Vec<Vec<u32>>>,
    pub(crate) caches: Vec<CacheDescription>,
    /// Key of the operating system's cluster, where it names one.
    pub(crate) clusters: BTreeMap<u32, u32>,
    /// Groups that stand for LLCs in scheduling domains, where the source states them.
    pub(crate) coregroups: Vec<BTreeSet<u32>>,
    /// Priorities of CPUs, where the kernel goes by them and the source has them.
    pub(crate) priorities: BTreeMap<u32, u32>,
    /// The make of the CPUs, where the source names one that is known.
    pub(crate) processor: Option<Processor>,
    /// A reclaim distance that the source states.
    pub(crate) reclaim_distance: Option<u32>,
    /// The level of the caches to count as LLCs; the highest level when not given.
    pub(crate) llc_level: Option<u8>,
    /// What kinds of cores the source tells of, such as `IntelAtom`, and the CPUs of each.
    pub(crate) core_types: BTreeMap<String, BTreeSet<u32>>,
    /// What the source says of each CPU's highest speed, in any unit, by the source's name for it.
    pub(crate) top_speeds: BTreeMap<&'static str, BTreeMap<u32, u64>>,
    pub(crate) notes: Vec<String>,
}

impl Found {
    /// The machine, with typical costs and no figures; `origin` says where the topology comes from.
    pub(crate) fn into_machine(mut self, name: &str, summary: &str, origin: &str) -> Result<Machine> {
        self.keep_known_cpus();
        self.note_core_types();
        self.note_unequal_cpus();
        self.keep_possible_distances();
        let llcs = self.llcs();
        if self.coregroups.is_empty() {
            self.find_coregroups(&llcs);
        }
        let clusters = self.clusters(&llcs);
        let biggest = self.cpus.values().map(|cpu| cpu.capacity).max().unwrap_or(0).max(1);
        let scale = u64::from(crate::CAPACITY_SCALE);
        let cpus = self.cpus.iter().map(|(&os_index, cpu)| CpuDescription {
            os_index,
            core: cpu.core,
            cluster: clusters[&os_index],
            llc: llcs[&os_index],
            node: cpu.node,
            socket: cpu.socket,
            capacity: (u64::from(cpu.capacity) * scale / u64::from(biggest)) as u32,
        });
        let read = Origin::new(Basis::Read, origin);
        let mut description = MachineDescription::new(name);
        description.summary = summary.to_owned();
        description.cpus = cpus.collect();
        description.origins.insert("topology".to_owned(), read.clone());
        if self.distances.is_some() {
            description.origins.insert(DISTANCES.to_owned(), read.clone());
        }
        if self.processor.is_some() {
            description.origins.insert(PROCESSOR.to_owned(), read.clone());
        }
        if self.reclaim_distance.is_some() {
            description.origins.insert(STATED_RECLAIM_DISTANCE.to_owned(), read.clone());
        }
        if !self.priorities.is_empty() {
            description.origins.insert(PRIORITIES.to_owned(), read.clone());
        }
        (description.processor, description.reclaim_distance) = (self.processor, self.reclaim_distance);
        description.offline = self.offline;
        description.nodes = self.nodes;
        description.distances = self.distances;
        description.coregroups = self.coregroups;
        description.priorities = self.priorities;
        description.caches = self.caches;
        description.notes = self.notes;
        let mut machine = description.build()?;
        for entry in cache_entries(&machine) {
            machine.origins.insert(entry.value_name(), read.clone());
        }
        Ok(machine)
    }

    /// Says so where cores are of several kinds, and nothing says how fast each kind is.
    fn note_core_types(&mut self) {
        let kinds = self.core_types.iter().filter_map(|(kind, cpus)| {
            let here: Vec<u32> = cpus.iter().copied().filter(|cpu| self.cpus.contains_key(cpu)).collect();
            (!here.is_empty()).then(|| format!("CPUs {} are {kind}", crate::format_cpu_list(here)))
        });
        let kinds: Vec<String> = kinds.collect();
        let capacities: BTreeSet<u32> = self.cpus.values().map(|cpu| cpu.capacity).collect();
        if kinds.len() > 1 && capacities.len() == 1 {
            self.notes.push(format!(
                "{}: the source does not say how fast each kind is, so all count as equally fast; `capacities` in a machine file says it",
                kinds.join(", ")
            ));
        }
    }

    /// Says so where the source shows that CPUs are unequal, but not how fast each is.
    fn note_unequal_cpus(&mut self) {
        let capacities: BTreeSet<u32> = self.cpus.values().map(|cpu| cpu.capacity).collect();
        let known_kinds = self.core_types.values().filter(|cpus| cpus.iter().any(|cpu| self.cpus.contains_key(cpu)));
        // Kinds of cores have a note of their own.
        if capacities.len() > 1 || known_kinds.count() > 1 {
            return;
        }
        let differences: Vec<String> = self.unequal_speeds().into_iter().chain(self.unequal_caches()).collect();
        if !differences.is_empty() {
            self.notes.push(format!(
                "CPUs of unequal speed are counted as equal: {}; `capacities` in a machine file says how fast each is",
                differences.join("; ")
            ));
        }
    }

    /// Highest speeds that differ by more than turbo frequencies of cores of one kind do: by a quarter.
    fn unequal_speeds(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, speeds) in &self.top_speeds {
            let online: Vec<(u32, u64)> = speeds
                .iter()
                .filter(|(cpu, _)| self.cpus.contains_key(*cpu))
                .map(|(cpu, speed)| (*cpu, *speed))
                .collect();
            let highest = online.iter().map(|(_, speed)| *speed).max().unwrap_or(0);
            let is_slow = |speed: u64| u128::from(speed) * 4 < u128::from(highest) * 3;
            let slow: Vec<(u32, u64)> = online.into_iter().filter(|(_, speed)| is_slow(*speed)).collect();
            if let Some(best) = slow.iter().map(|(_, speed)| *speed).max() {
                let list = crate::format_cpu_list(slow.iter().map(|(cpu, _)| *cpu));
                found.push(format!("{name} of CPUs {list} is at most {best}, of others up to {highest}"));
            }
        }
        found
    }

    /// Sizes of the caches of cores, where they differ.
    fn unequal_caches(&self) -> Vec<String> {
        let mut sizes: BTreeMap<String, BTreeMap<u64, BTreeSet<u32>>> = BTreeMap::new();
        for CacheDescription { cache, cpus } in self.caches.iter().filter(|description| description.cache.level <= 2) {
            if cache.size_bytes > 0 {
                sizes.entry(cache.name()).or_default().entry(cache.size_bytes).or_default().extend(cpus);
            }
        }
        let each = |(size, cpus): (&u64, &BTreeSet<u32>)| {
            format!("{} on CPUs {}", crate::format_size(*size), crate::format_cpu_list(cpus.iter().copied()))
        };
        let differing = sizes.iter().filter(|(_, sizes)| sizes.len() > 1);
        differing
            .map(|(name, sizes)| format!("the {name} has {}", sizes.iter().map(each).collect::<Vec<_>>().join(", ")))
            .collect()
    }

    /// Takes the make of the CPUs as a source names it, if it names any.
    pub(crate) fn read_processor(&mut self, vendor: Option<&str>, family: Option<&str>, model: Option<&str>) {
        match vendor.map(|vendor| Processor::read(vendor, family, model)) {
            Some(Ok(processor)) => self.processor = Some(processor),
            Some(Err(note)) => self.notes.push(note),
            None => {}
        }
    }

    /// Caches list offline CPUs too in some sources; only online ones count.
    fn keep_known_cpus(&mut self) {
        for cache in &mut self.caches {
            cache.cpus.retain(|cpu| self.cpus.contains_key(cpu));
        }
        self.caches.retain(|cache| !cache.cpus.is_empty());
        self.clusters.retain(|cpu, _| self.cpus.contains_key(cpu));
        for group in &mut self.coregroups {
            group.retain(|cpu| self.cpus.contains_key(cpu));
        }
        self.coregroups.retain(|group| !group.is_empty());
        self.offline.retain(|cpu| !self.cpus.contains_key(cpu));
    }

    /// Firmware's distances may be no distances. As the kernel does (`slit_valid` in `drivers/acpi/numa/srat.c`), a
    /// table with a node that is not at 10 from itself, or with another outside 10 to 255, is not used at all. Of two
    /// directions that differ the longer one counts for both: one distance is modelled.
    fn keep_possible_distances(&mut self) {
        let Some(rows) = &mut self.distances else { return };
        let cells = rows
            .iter()
            .enumerate()
            .flat_map(|(from, row)| row.iter().enumerate().map(move |(to, &distance)| (from == to, distance)));
        let wrong = cells.into_iter().find(|&(local, distance)| match local {
            true => distance != LOCAL_DISTANCE,
            false => !(LOCAL_DISTANCE..=MAX_DISTANCE).contains(&distance),
        });
        if let Some((local, distance)) = wrong {
            let of = if local { "a node to itself" } else { "two nodes" };
            let note = format!("node distances are not used, as one of {of} is {distance}; they are assumed");
            self.notes.push(note);
            self.distances = None;
            return;
        }
        self.notes.extend(take_longer_way(rows));
    }

    /// Key of the last-level cache of each CPU.
    fn llcs(&mut self) -> BTreeMap<u32, u32> {
        let mut last: BTreeMap<u32, (u8, usize)> = BTreeMap::new();
        for (position, CacheDescription { cache, cpus }) in self.caches.iter().enumerate() {
            if cache.kind == CacheKind::Instruction || self.llc_level.is_some_and(|level| cache.level != level) {
                continue;
            }
            for &cpu in cpus {
                let known = last.entry(cpu).or_insert((cache.level, position));
                *known = (*known).max((cache.level, position));
            }
        }
        self.divide_caches_at_nodes(&last);
        let mut keys: BTreeMap<(Option<usize>, u32, u32), u32> = BTreeMap::new();
        let mut llcs = BTreeMap::new();
        for (&os_index, cpu) in &self.cpus {
            let next = keys.len() as u32;
            let cache = last.get(&os_index).map(|(_, position)| *position);
            llcs.insert(os_index, *keys.entry((cache, cpu.node, cpu.socket)).or_insert(next));
        }
        if !self.cpus.is_empty() && last.is_empty() {
            self.notes.push("no cache is described: the CPUs of each NUMA node and socket count as one LLC".to_owned());
        }
        llcs
    }

    /// Cuts last-level caches that span NUMA nodes or sockets into one cache per part, of a proportional size.
    fn divide_caches_at_nodes(&mut self, last: &BTreeMap<u32, (u8, usize)>) {
        let positions: BTreeSet<usize> = last.values().map(|(_, position)| *position).collect();
        for position in positions {
            let whole = self.caches[position].clone();
            let mut parts: BTreeMap<(u32, u32), BTreeSet<u32>> = BTreeMap::new();
            for &os_index in &whole.cpus {
                let cpu = self.cpus[&os_index];
                parts.entry((cpu.node, cpu.socket)).or_default().insert(os_index);
            }
            if parts.len() < 2 {
                continue;
            }
            self.notes.push(format!(
                "the {} of CPUs {} spans {} NUMA nodes or sockets: counted as that many LLCs of a proportional size",
                whole.cache.name(),
                crate::format_cpu_list(whole.cpus.iter().copied()),
                parts.len(),
            ));
            let mut parts = parts.into_values().map(|cpus| {
                let share = u128::from(whole.cache.size_bytes) * cpus.len() as u128 / whole.cpus.len() as u128;
                let set = whole.cache.set_bytes();
                let cache = crate::Cache { size_bytes: share as u64 / set * set, ..whole.cache.clone() };
                CacheDescription { cache, cpus }
            });
            if let Some(first) = parts.next() {
                self.caches[position] = first;
            }
            let rest: Vec<CacheDescription> = parts.collect();
            self.caches.extend(rest);
        }
    }

    /// Groups of CPUs that stand for LLCs: the operating system's clusters, where they are larger than the LLCs in them. Linux has it so where
    /// firmware describes the CPUs (`cpu_coregroup_mask` of `drivers/base/arch_topology.c`, since 5.18), and they are no clusters then
    /// (`cpu_clustergroup_mask` there, since 6.0).
    fn find_coregroups(&mut self, llcs: &BTreeMap<u32, u32>) {
        let (mut clusters, mut llc_cpus) = (BTreeMap::new(), BTreeMap::new());
        for (cpu, llc) in llcs {
            llc_cpus.entry(*llc).or_insert_with(BTreeSet::new).insert(*cpu);
            if let Some(cluster) = self.clusters.get(cpu) {
                clusters.entry(*cluster).or_insert_with(BTreeSet::new).insert(*cpu);
            }
        }
        let is_larger = |cpus: &BTreeSet<u32>| {
            let inside: BTreeSet<u32> = cpus.iter().map(|cpu| llcs[cpu]).collect();
            let places: BTreeSet<(u32, u32)> =
                cpus.iter().map(|cpu| (self.cpus[cpu].node, self.cpus[cpu].socket)).collect();
            inside.len() > 1 && places.len() == 1 && inside.iter().all(|llc| llc_cpus[llc].is_subset(cpus))
        };
        let mut groups: Vec<BTreeSet<u32>> = clusters.into_values().filter(is_larger).collect();
        if groups.is_empty() {
            return;
        }
        let covered: BTreeSet<u32> = groups.iter().flatten().copied().collect();
        groups.extend(llc_cpus.into_values().filter(|cpus| cpus.is_disjoint(&covered)));
        if covered.len() == self.cpus.len() {
            self.clusters.clear();
        } else {
            // Clusters have the numbers of CPUs as keys: those of cores are beyond them.
            self.clusters.extend(covered.iter().map(|cpu| (*cpu, 1 << 31 | self.cpus[cpu].core)));
        }
        self.notes.push("the operating system's clusters are larger than the caches that their CPUs share: scheduling domains take them for LLCs, as Linux's do".to_owned());
        self.coregroups = groups;
    }

    /// Key of the cluster of each CPU.
    fn clusters(&mut self, llcs: &BTreeMap<u32, u32>) -> BTreeMap<u32, u32> {
        let mut second_level: BTreeMap<u32, u32> = BTreeMap::new();
        for (key, CacheDescription { cache, cpus }) in (0..).zip(&self.caches) {
            if cache.level == 2 && cache.kind != CacheKind::Instruction {
                second_level.extend(cpus.iter().map(|&cpu| (cpu, key)));
            }
        }
        let by_core: BTreeMap<u32, u32> = self.cpus.iter().map(|(&os_index, cpu)| (os_index, cpu.core)).collect();
        for (name, groups) in [("operating system's clusters", &self.clusters), ("L2 caches", &second_level)] {
            let complete = self.cpus.keys().all(|cpu| groups.contains_key(cpu));
            if !complete || !is_nested(&by_core, groups) || !is_nested(groups, llcs) {
                if !groups.is_empty() {
                    let note = format!("the {name} do not fit between cores and LLCs and are not used as clusters");
                    self.notes.push(note);
                }
                continue;
            }
            if !is_nested(groups, &by_core) {
                return groups.clone();
            }
        }
        by_core
    }
}

/// How the note ends that a reader adds where the distances of two nodes depend on the direction.
pub const LONGER_WAY_NOTE: &str = "depend on the direction: the longer one counts";

/// Makes both directions between two nodes as far as the longer one, since one distance is modelled; says so where they differ.
pub(crate) fn take_longer_way(rows: &mut [Vec<u32>]) -> Option<String> {
    let stated = rows.to_vec();
    let mut differing = 0;
    for (from, row) in rows.iter_mut().enumerate() {
        for (to, distance) in row.iter_mut().enumerate() {
            let back = stated.get(to).and_then(|row| row.get(from)).copied().unwrap_or(*distance);
            differing += usize::from(from < to && *distance != back);
            *distance = (*distance).max(back);
        }
    }
    let pairs = if differing == 1 { "1 pair of nodes" } else { &format!("{differing} pairs of nodes") };
    (differing > 0).then(|| format!("the distances of {pairs} {LONGER_WAY_NOTE}"))
}

/// Whether every group of `inner` lies in one group of `outer`.
fn is_nested(inner: &BTreeMap<u32, u32>, outer: &BTreeMap<u32, u32>) -> bool {
    let mut outer_of: BTreeMap<u32, Option<&u32>> = BTreeMap::new();
    inner.iter().all(|(cpu, group)| *outer_of.entry(*group).or_insert(outer.get(cpu)) == outer.get(cpu))
}
