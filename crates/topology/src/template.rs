//! A machine file that has been read but not yet turned into a machine: every value with its origin, ready to be
//! overlaid by another file or put on another shape.
//!
//! [`Template::realise`] fills what is not stated: distances by class, caches from "one per core" rules, missing
//! core-to-core latencies between their neighbours, costs from core-to-core latencies.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::build::{DISTANCES, PRIORITIES, PROCESSOR, STATED_RECLAIM_DISTANCE};
use crate::cache_entries::cache_entries;
use crate::discovered::take_longer_way;
use crate::fields::{Quantity, each_value};
use crate::figures::{check_figures, default_costs};
use crate::{
    Background, Basis, Cache, CacheDescription, CacheKind, CoreKind, CoreToCoreVariant, CpuDescription,
    DEFAULT_REMOTE_DISTANCE, DEFAULT_SAME_SOCKET_DISTANCE, Error, Inclusion, LOCAL_DISTANCE, LoadedLatencyCurve,
    Machine, MachineDescription, NodeDescription, Origin, Performance, Processor, Result, ShortForm, Ways,
};

/// A number with its origin.
#[derive(Clone, Debug)]
pub(crate) struct Stated {
    pub(crate) quantity: Quantity,
    pub(crate) origin: Origin,
}

crate::worded! {
    /// Which CPUs share one cache, from the smallest group to the largest.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub(crate) enum CacheScope: name {
        Core = "core",
        Cluster = "cluster",
        Llc = "llc",
        Node = "node",
        Socket = "socket",
        Machine = "machine",
        /// Exactly the CPUs that are listed.
        Cpus = "cpus",
    }
}

impl CacheScope {
    /// Key of the group of this scope that a CPU belongs to.
    fn group(self, cpu: &CpuDescription) -> u32 {
        match self {
            CacheScope::Core => cpu.core,
            CacheScope::Cluster => cpu.cluster,
            CacheScope::Llc => cpu.llc,
            CacheScope::Node => cpu.node,
            CacheScope::Socket => cpu.socket,
            CacheScope::Machine | CacheScope::Cpus => 0,
        }
    }
}

/// A kind of cache, to be instantiated once per group.
#[derive(Clone, Debug)]
pub(crate) struct CacheTemplate {
    /// Everything but the CPUs.
    pub(crate) cache: Cache,
    pub(crate) shared_by: CacheScope,
    /// The CPUs it is limited to, in the operating system's numbers.
    pub(crate) cpus: Option<BTreeSet<u32>>,
    pub(crate) origin: Origin,
    pub(crate) latency_origin: Origin,
}

impl CacheTemplate {
    /// The name under which its origin is kept: `cache.L2`, or `cache.L2[0-7]` when limited to some CPUs.
    pub(crate) fn value_name(&self) -> String {
        cache_value_name(self.cache.level, self.cache.kind, self.cpus.as_ref())
    }
}

/// See [`CacheTemplate::value_name`].
pub(crate) fn cache_value_name(level: u8, kind: CacheKind, cpus: Option<&BTreeSet<u32>>) -> String {
    let unnamed = Cache {
        level,
        kind,
        size_bytes: 0,
        line_bytes: 0,
        ways: Ways::Unknown,
        inclusion: Inclusion::Unknown,
        latency_ps: None,
        cpus: Default::default(),
    };
    let limit = cpus.map(|cpus| format!("[{}]", crate::format_cpu_list(cpus.iter().copied()))).unwrap_or_default();
    format!("cache.{}{limit}", unnamed.name())
}

/// Where CPUs are.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    /// By a short form.
    Regular { form: ShortForm, cores_per_cluster: u32 },
    /// One by one.
    Listed { cpus: Vec<CpuDescription>, nodes: Vec<NodeDescription> },
}

impl Layout {
    pub(crate) fn cpus(&self) -> Vec<CpuDescription> {
        match self {
            Layout::Regular { form, cores_per_cluster } => form.shape.cpus(form.smt_numbering, *cores_per_cluster),
            Layout::Listed { cpus, .. } => cpus.clone(),
        }
    }

    fn nodes(&self) -> Vec<NodeDescription> {
        match self {
            Layout::Regular { form, .. } => form.shape.nodes(),
            Layout::Listed { nodes, .. } => nodes.clone(),
        }
    }

    fn sockets_of_nodes(&self) -> Vec<BTreeSet<u32>> {
        sockets_of_nodes(&self.cpus(), &self.nodes())
    }
}

/// Node distances.
#[derive(Clone, Debug)]
pub(crate) enum Distances {
    /// By what two nodes share; a class that is not stated is the usual one.
    Classes { same_socket: Option<u32>, other_socket: Option<u32> },
    /// Each, in the order of the node numbers.
    Matrix(Vec<Vec<u32>>),
}

/// A machine file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Template {
    pub(crate) name: Option<String>,
    pub(crate) summary: Option<String>,
    pub(crate) aliases: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) sources: BTreeMap<String, String>,
    pub(crate) layout: Option<Layout>,
    pub(crate) layout_origin: Option<Origin>,
    pub(crate) distances: Option<Distances>,
    pub(crate) distances_origin: Option<Origin>,
    /// Groups of CPUs that stand for LLCs in scheduling domains, in the operating system's numbers.
    pub(crate) coregroups: Vec<BTreeSet<u32>>,
    /// Cores of each of them, where they are stated so: another shape has groups of as many.
    pub(crate) cores_per_coregroup: Option<u32>,
    pub(crate) processor: Option<(Processor, Origin)>,
    pub(crate) reclaim_distance: Option<(u32, Origin)>,
    pub(crate) offline: BTreeSet<u32>,
    pub(crate) capacities: Vec<(BTreeSet<u32>, u32)>,
    /// By CPU, in the operating system's numbers.
    pub(crate) priorities: BTreeMap<u32, u32>,
    pub(crate) priorities_origin: Option<Origin>,
    pub(crate) node_memory_bytes: Option<u64>,
    pub(crate) caches: Vec<CacheTemplate>,
    pub(crate) values: BTreeMap<String, Stated>,
    pub(crate) loaded_latency: Vec<LoadedLatencyCurve>,
    pub(crate) variants: Vec<CoreToCoreVariant>,
    pub(crate) variant: Option<String>,
    pub(crate) background: Option<Background>,
    pub(crate) core_kinds: Vec<CoreKind>,
}

impl Template {
    /// This file on top of `base`: what it states replaces what the base states.
    pub(crate) fn over(self, base: Template) -> Template {
        let base = if let Some(layout) = &self.layout { base.without_layout(layout) } else { base };
        let replaced: Vec<(u8, CacheKind)> = self.caches.iter().map(|new| (new.cache.level, new.cache.kind)).collect();
        let kept = base.caches.into_iter().filter(|old| !replaced.contains(&(old.cache.level, old.cache.kind)));
        // Kinds of cores are of one part, and so is what it makes of its frequencies.
        let is_of_base = self.processor.is_none() && !self.values.keys().any(|key| key.starts_with("frequency."));
        let mut values = base.values;
        values.extend(self.values);
        let mut sources = base.sources;
        sources.extend(self.sources);
        let mut variants = self.variants;
        for old in base.variants {
            if variants.iter().all(|new| new.name != old.name) {
                variants.push(old);
            }
        }
        Template {
            name: self.name.or(base.name),
            summary: self.summary.or(base.summary),
            aliases: self.aliases,
            notes: base.notes.into_iter().chain(self.notes).collect(),
            layout: self.layout.or(base.layout),
            layout_origin: self.layout_origin.or(base.layout_origin),
            distances_origin: if self.distances.is_some() { self.distances_origin } else { base.distances_origin },
            distances: self.distances.or(base.distances),
            // A distance that was stated for other CPUs says nothing of these.
            reclaim_distance: self.reclaim_distance.or(base.reclaim_distance.filter(|_| self.processor.is_none())),
            processor: self.processor.or(base.processor),
            offline: self.offline.into_iter().chain(base.offline).collect(),
            cores_per_coregroup: self
                .cores_per_coregroup
                .or(base.cores_per_coregroup.filter(|_| self.coregroups.is_empty())),
            coregroups: if self.coregroups.is_empty() { base.coregroups } else { self.coregroups },
            capacities: if self.capacities.is_empty() { base.capacities } else { self.capacities },
            priorities_origin: if self.priorities.is_empty() { base.priorities_origin } else { self.priorities_origin },
            priorities: if self.priorities.is_empty() { base.priorities } else { self.priorities },
            node_memory_bytes: self.node_memory_bytes.or(base.node_memory_bytes),
            caches: kept.chain(self.caches).collect(),
            values,
            sources,
            loaded_latency: if self.loaded_latency.is_empty() { base.loaded_latency } else { self.loaded_latency },
            variants,
            variant: self.variant.or(base.variant),
            background: self.background.or(base.background),
            core_kinds: if self.core_kinds.is_empty() && is_of_base { base.core_kinds } else { self.core_kinds },
        }
    }

    /// What is left of a machine when its CPUs are replaced by those of `new`: everything that is not tied to CPU or node
    /// numbers. A matrix of distances stays where both have the same nodes in the same sockets, and shrinks to its classes elsewhere.
    /// Groups that stand for LLCs have as many cores in another shape.
    pub(crate) fn without_layout(mut self, new: &Layout) -> Template {
        if let (Some(Distances::Matrix(rows)), Some(old)) = (&self.distances, &self.layout)
            && old.sockets_of_nodes() != new.sockets_of_nodes()
        {
            self.distances = Some(classes_of(rows, old));
        }
        self.layout = None;
        self.layout_origin = None;
        self.offline.clear();
        self.capacities.clear();
        self.priorities.clear();
        self.coregroups = match (self.cores_per_coregroup, new) {
            (Some(cores), Layout::Regular { form, .. }) => form.shape.coregroups(form.smt_numbering, cores),
            _ => Vec::new(),
        };
        // Kinds that list their CPUs say nothing of others.
        if self.core_kinds.iter().any(|kind| kind.cpus.is_some()) {
            self.core_kinds.clear();
        }
        self
    }

    /// The machine.
    pub(crate) fn realise(mut self) -> Result<Machine> {
        let (cpus, nodes) = self.cpus_and_nodes()?;
        let (mut distances, distances_origin) = self.distance_matrix(&cpus, &nodes).unzip();
        self.notes.extend(distances.as_mut().and_then(|rows| take_longer_way(rows)));
        let online = |group: &BTreeSet<u32>| group.difference(&self.offline).copied().collect::<BTreeSet<u32>>();
        let coregroups = self.coregroups.iter().map(online).filter(|group| !group.is_empty()).collect();
        let caches = instantiate(&self.caches, &cpus).map_err(|reason| self.impossible(reason, ""))?;
        let values = self.chosen_values()?;
        let mut performance = Performance {
            core_to_core_variants: self.variants.clone(),
            memory: crate::MemoryFigures { loaded_latency: self.loaded_latency.clone(), ..Default::default() },
            ..Default::default()
        };
        set_values(&mut performance, None, &values);
        let (mut costs, mut origins) = default_costs(&performance);
        set_values(&mut performance, Some(&mut costs), &values);
        origins.extend(self.origins(&values));
        origins.extend(distances_origin.map(|origin| (DISTANCES.to_owned(), origin)));
        check_figures(&performance, &costs, &self.caches).map_err(|reason| self.impossible(reason, ""))?;
        let description = MachineDescription {
            name: self.name.unwrap_or_else(|| UNNAMED.to_owned()),
            summary: self.summary.unwrap_or_default(),
            cpus,
            offline: self.offline,
            nodes,
            distances,
            coregroups,
            priorities: self.priorities,
            processor: self.processor.map(|(processor, _)| processor),
            reclaim_distance: self.reclaim_distance.map(|(distance, _)| distance),
            caches,
            performance,
            costs,
            origins,
            sources: self.sources,
            notes: self.notes,
        };
        let mut machine = description.build()?;
        adopt_cache_origins(&mut machine, &self.caches);
        machine.with_core_kinds(self.core_kinds)?.with_background(self.background.unwrap_or_default())
    }

    /// The online CPUs and the nodes.
    fn cpus_and_nodes(&self) -> Result<(Vec<CpuDescription>, Vec<NodeDescription>)> {
        let Some(layout) = &self.layout else {
            let hint = "write `[topology]` with a `shape` such as \"2s1n4l8c2t\" or with `nodes`, or name a `base`";
            return Err(self.impossible("it has no CPUs", hint));
        };
        let mut cpus: BTreeMap<u32, CpuDescription> =
            layout.cpus().into_iter().map(|cpu| (cpu.os_index, cpu)).collect();
        if let Layout::Regular { form, .. } = layout {
            for number in &self.offline {
                if cpus.remove(number).is_none() {
                    let hint = format!("{} has CPUs 0 to {}", form.shape, form.shape.cpu_count() - 1);
                    return Err(self.impossible(format!("offline CPU {number} does not exist"), hint));
                }
            }
        }
        for (members, capacity) in &self.capacities {
            for number in members {
                match cpus.get_mut(number) {
                    Some(cpu) => cpu.capacity = *capacity,
                    None => {
                        return Err(
                            self.impossible(format!("capacity given for CPU {number}, which is not online"), "")
                        );
                    }
                }
            }
        }
        let mut nodes = layout.nodes();
        for node in &mut nodes {
            node.memory_bytes = node.memory_bytes.or(self.node_memory_bytes);
        }
        Ok((cpus.into_values().collect(), nodes))
    }

    /// The node distances and what they rest on; nothing where no class that these nodes have is stated.
    fn distance_matrix(&self, cpus: &[CpuDescription], nodes: &[NodeDescription]) -> Option<(Vec<Vec<u32>>, Origin)> {
        let stated = self.distances_origin.clone().unwrap_or_else(|| Origin::new(Basis::Given, ""));
        let (same_socket, other_socket) = match self.distances.as_ref()? {
            Distances::Matrix(rows) => return Some((rows.clone(), stated)),
            Distances::Classes { same_socket, other_socket } => (*same_socket, *other_socket),
        };
        let sockets = sockets_of_nodes(cpus, nodes);
        let is_apart = |from: usize, to: usize| sockets[from].is_disjoint(&sockets[to]);
        let has_pair = |apart: bool| (0..nodes.len()).any(|from| (0..from).any(|to| is_apart(from, to) == apart));
        let origin = match ([has_pair(false), has_pair(true)], same_socket, other_socket) {
            ([true, true], Some(_), None) => {
                Origin::new(Basis::Assumed, format!("between sockets; inside one {stated}"))
            }
            ([true, true], None, Some(_)) => {
                let own = if stated.note.is_empty() { String::new() } else { format!("{}; ", stated.note) };
                Origin { note: format!("{own}inside a socket assumed"), ..stated }
            }
            ([true, _], None, _) | ([_, true], _, None) => return None,
            _ => stated,
        };
        let distance = |from: usize, to: usize| match (from == to, is_apart(from, to)) {
            (true, _) => LOCAL_DISTANCE,
            (false, false) => same_socket.unwrap_or(DEFAULT_SAME_SOCKET_DISTANCE),
            (false, true) => other_socket.unwrap_or(DEFAULT_REMOTE_DISTANCE),
        };
        let row = |from: usize| -> Vec<u32> { (0..nodes.len()).map(|to| distance(from, to)).collect() };
        Some(((0..nodes.len()).map(row).collect(), origin))
    }

    /// The stated values with the chosen core-to-core variant in place.
    pub(crate) fn chosen_values(&self) -> Result<BTreeMap<String, Stated>> {
        let mut values = self.values.clone();
        let Some(wanted) = &self.variant else { return Ok(values) };
        let Some(variant) = self.variants.iter().find(|variant| variant.name == *wanted) else {
            let known: Vec<&str> = self.variants.iter().map(|variant| variant.name.as_str()).collect();
            let hint = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
            return Err(self.impossible(format!("it has no core-to-core variant `{wanted}`"), hint));
        };
        values.retain(|name, _| !name.starts_with("core_to_core_ns."));
        for (relation, latency) in variant.latency_ns.iter() {
            if let Some(latency) = latency {
                let stated = Stated { quantity: Quantity::Number(*latency), origin: variant.origin.clone() };
                values.insert(format!("core_to_core_ns.{}", relation.name()), stated);
            }
        }
        Ok(values)
    }

    fn origins(&self, values: &BTreeMap<String, Stated>) -> BTreeMap<String, Origin> {
        let mut origins: BTreeMap<String, Origin> =
            values.iter().map(|(name, stated)| (name.clone(), stated.origin.clone())).collect();
        let given = || Origin::new(Basis::Given, "");
        origins.insert("topology".to_owned(), self.layout_origin.clone().unwrap_or_else(given));
        if let Some((_, origin)) = &self.processor {
            origins.insert(PROCESSOR.to_owned(), origin.clone());
        }
        if let Some((_, origin)) = &self.reclaim_distance {
            origins.insert(STATED_RECLAIM_DISTANCE.to_owned(), origin.clone());
        }
        origins.extend(self.priorities_origin.clone().map(|origin| (PRIORITIES.to_owned(), origin)));
        origins
    }

    fn impossible(&self, reason: impl Into<String>, hint: impl Into<String>) -> Error {
        let machine = self.name.clone().unwrap_or_else(|| UNNAMED.to_owned());
        Error::Impossible { machine, reason: reason.into(), hint: hint.into() }
    }
}

/// The name of a machine whose file gives none.
const UNNAMED: &str = "unnamed";

/// Puts stated values where they belong; those of [`crate::Costs`] only when `costs` is given.
pub(crate) fn set_values(
    performance: &mut Performance,
    costs: Option<&mut crate::Costs>,
    values: &BTreeMap<String, Stated>,
) {
    let mut unused = crate::Costs::derived_from(&Default::default());
    each_value(performance, costs.unwrap_or(&mut unused), &mut |name, slot| {
        if let Some(stated) = values.get(name) {
            slot.set(stated.quantity);
        }
    });
}

/// Gives each entry of [`cache_entries`] the origins of the template it came from.
fn adopt_cache_origins(machine: &mut Machine, templates: &[CacheTemplate]) {
    for entry in cache_entries(machine) {
        let from = templates.iter().find(|template| {
            let overlap = |cpus: &BTreeSet<u32>| entry.cpus.as_ref().is_none_or(|other| !cpus.is_disjoint(other));
            template.cache == entry.cache && template.cpus.as_ref().is_none_or(overlap)
        });
        let Some(from) = from else { continue };
        machine.origins.insert(entry.value_name(), from.origin.clone());
        if entry.cache.latency_ps.is_some() {
            machine.origins.insert(format!("{}.latency_ns", entry.value_name()), from.latency_origin.clone());
        }
    }
}

/// The sockets that each node has CPUs in.
fn sockets_of_nodes(cpus: &[CpuDescription], nodes: &[NodeDescription]) -> Vec<BTreeSet<u32>> {
    let mut sockets: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for cpu in cpus {
        sockets.entry(cpu.node).or_default().insert(cpu.socket);
    }
    nodes.iter().map(|node| sockets.get(&node.os_index).cloned().unwrap_or_default()).collect()
}

/// The smallest distances inside a socket and between sockets, where there are any.
fn classes_of(rows: &[Vec<u32>], layout: &Layout) -> Distances {
    let sockets = layout.sockets_of_nodes();
    let smallest = |between_sockets: bool| {
        let pairs =
            rows.iter().enumerate().flat_map(|(from, row)| row.iter().enumerate().map(move |(to, d)| (from, to, *d)));
        let wanted = pairs.filter(|(from, to, _)| {
            let known = sockets.get(*from).zip(sockets.get(*to));
            from != to && known.is_some_and(|(from, to)| from.is_disjoint(to) == between_sockets)
        });
        wanted.map(|(_, _, distance)| distance).min()
    };
    Distances::Classes { same_socket: smallest(false), other_socket: smallest(true) }
}

/// Five levels of data and instruction caches for every CPU.
const MAX_CACHES: usize = 10 * crate::MAX_CPUS;

/// One cache per group that has CPUs. A group must not be cut in two by a list of CPUs.
fn instantiate(templates: &[CacheTemplate], cpus: &[CpuDescription]) -> Result<Vec<CacheDescription>, String> {
    let mut caches = Vec::new();
    for template in templates {
        let mut groups: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let included = |number: &u32| template.cpus.as_ref().is_none_or(|cpus| cpus.contains(number));
        for cpu in cpus.iter().filter(|cpu| included(&cpu.os_index)) {
            groups.entry(template.shared_by.group(cpu)).or_default().insert(cpu.os_index);
        }
        if let Some(missing) =
            template.cpus.iter().flatten().find(|number| !cpus.iter().any(|cpu| cpu.os_index == **number))
        {
            return Err(format!("{} lists CPU {missing}, which is not online", template.value_name()));
        }
        let cut = cpus.iter().find(|cpu| {
            template.shared_by != CacheScope::Cpus
                && !included(&cpu.os_index)
                && groups.contains_key(&template.shared_by.group(cpu))
        });
        if let Some(cpu) = cut {
            let (name, scope) = (template.value_name(), template.shared_by.name());
            return Err(format!("{name} is shared by each {scope}, but leaves out CPU {} of one", cpu.os_index));
        }
        if caches.len() + groups.len() > MAX_CACHES {
            return Err(format!("more than {MAX_CACHES} caches"));
        }
        caches.extend(groups.into_values().map(|cpus| CacheDescription { cache: template.cache.clone(), cpus }));
    }
    Ok(caches)
}
