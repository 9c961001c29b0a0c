//! Reading hwloc XML of versions 2 and 3.
//!
//! Source: "Importing and exporting topologies from/to XML files" in the hwloc 2 manual, its `hwloc2.dtd`, and files
//! written by `lstopo` 2.9. Read are packages, cores, PUs, caches, NUMA nodes, distances between NUMA nodes, CPU
//! kinds, and of groups those that are Linux's clusters (`HWLOC_GROUP_KIND_LINUX_CLUSTER` of `include/private/misc.h`). I/O devices,
//! other groups, dies and memory-side caches have no meaning here.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node, ParsingOptions};

use crate::discovered::{Found, FoundCpu};
use crate::hwloc_bitmap::parse_bitmap;
use crate::{
    Cache, CacheDescription, CacheKind, CpuSet, Error, Inclusion, Location, Machine, NodeDescription, Result, Vendor,
    Ways, parse_cpu_list,
};

pub(crate) const FORMAT: &str = "hwloc XML";

/// Our own `info` elements, for what hwloc has no words for.
pub(crate) const INFO_NAME: &str = "WarmcoreName";
/// See [`INFO_NAME`].
pub(crate) const INFO_LLC_LEVEL: &str = "WarmcoreLlcLevel";
/// See [`INFO_NAME`].
pub(crate) const INFO_EXCLUSIVE: &str = "WarmcoreExclusive";
/// See [`INFO_NAME`].
pub(crate) const INFO_RECLAIM_DISTANCE: &str = "WarmcoreReclaimDistance";
/// See [`INFO_NAME`]; lists of CPUs with blanks between them.
pub(crate) const INFO_COREGROUPS: &str = "WarmcoreCoregroups";
/// See [`INFO_NAME`].
pub(crate) const INFO_PRIORITY: &str = "WarmcorePriority";
/// hwloc's own names for the make of CPUs: of x86, and of Arm.
pub(crate) const INFO_VENDOR: &str = "CPUVendor";
/// See [`INFO_VENDOR`].
pub(crate) const INFO_FAMILY: &str = "CPUFamilyNumber";
/// See [`INFO_VENDOR`].
pub(crate) const INFO_MODEL_NUMBER: &str = "CPUModelNumber";
/// See [`INFO_VENDOR`].
pub(crate) const INFO_IMPLEMENTER: &str = "CPUImplementer";
/// See [`INFO_VENDOR`]; of POWER it begins with that word.
pub(crate) const INFO_MODEL: &str = "CPUModel";
/// hwloc's own name for the kind of a hybrid CPU's core: `IntelAtom`, `IntelCore`.
const INFO_CORE_TYPE: &str = "CoreType";
/// hwloc's own name for the highest frequency of a kind of CPUs.
const INFO_HIGHEST_FREQUENCY: &str = "FrequencyMaxMHz";
/// hwloc's own rank of a kind of CPUs, where what it runs on gives one: 0 is the slowest.
const FORCED_EFFICIENCY: &str = "forced_efficiency";
/// hwloc's own name for a CPU's capacity under Linux.
pub(crate) const INFO_CAPACITY: &str = "LinuxCapacity";
/// hwloc's own subtype of groups that are Linux's clusters.
pub(crate) const CLUSTER_SUBTYPE: &str = "Cluster";
/// See [`CLUSTER_SUBTYPE`]: their kind.
pub(crate) const CLUSTER_KIND: &str = "222";

/// Builds a machine from hwloc XML.
///
/// # Errors
/// [`Error::Invalid`] with the line for text that is not hwloc XML, [`Error::Impossible`] when the machine
/// contradicts itself.
pub fn from_hwloc_xml(text: &str) -> Result<Machine> {
    let options = ParsingOptions { allow_dtd: true, nodes_limit: 2_000_000, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        Error::invalid_with_hint(
            Location::line(FORMAT, error.pos().row as usize),
            error.to_string(),
            "`lstopo --of xml FILE` writes such files",
        )
    })?;
    let reader = HwlocReader { document: &document };
    let topology = document.root_element();
    let version = topology.attribute("version").unwrap_or("1");
    if topology.tag_name().name() != "topology" || !(version.starts_with("2.") || version.starts_with("3.")) {
        let reason = "the root element is not `topology` of version 2 or 3";
        let hint = "convert older files with `lstopo -i OLD.xml --of xml NEW.xml` of hwloc 2";
        return Err(Error::invalid_with_hint(reader.place(topology), reason, hint));
    }
    reader.machine(topology)
}

/// The name of the CPU model in hwloc XML that can be read; `None` where nothing names it.
pub fn hwloc_cpu_model(text: &str) -> Option<String> {
    let options = ParsingOptions { allow_dtd: true, nodes_limit: 2_000_000, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).ok()?;
    let model = document.descendants().find_map(|element| info(element, INFO_MODEL))?;
    Some(model.trim().to_owned()).filter(|model| !model.is_empty())
}

struct HwlocReader<'a, 'input> {
    document: &'a Document<'input>,
}

/// A NUMA node with the CPUs near it.
struct XmlNode {
    os_index: u32,
    memory_bytes: Option<u64>,
    cpus: BTreeSet<u32>,
}

/// What encloses an object.
#[derive(Clone, Copy)]
struct Enclosing {
    core: Option<u32>,
    package: u32,
}

impl HwlocReader<'_, '_> {
    fn place(&self, node: Node<'_, '_>) -> Location {
        Location::line(FORMAT, self.document.text_pos_at(node.range().start).row as usize)
    }

    fn fail(&self, node: Node<'_, '_>, reason: impl Into<String>) -> Error {
        Error::invalid(self.place(node), reason)
    }

    fn machine(&self, topology: Node<'_, '_>) -> Result<Machine> {
        let Some(root) = topology.children().find(|child| child.has_tag_name("object")) else {
            return Err(self.fail(topology, "there is no object"));
        };
        if root.attribute("type") != Some("Machine") {
            return Err(self.fail(root, "the outermost object is not a Machine"));
        }
        let mut found = Found::default();
        let mut nodes = self.read_objects(root, &mut found)?;
        settle_memory(&mut nodes, info(root, INFO_NAME).is_some());
        self.keep_allowed(root, &mut nodes, &mut found)?;
        self.read_clusters(root, &mut found)?;
        for list in info(root, INFO_COREGROUPS).unwrap_or_default().split_whitespace() {
            found.coregroups.push(parse_cpu_list(list).map_err(|error| self.fail(root, error.to_string()))?);
        }
        self.assign_nodes(nodes, &mut found)?;
        let complete = self.cpu_set(root, "complete_cpuset")?.unwrap_or_default();
        found.offline = complete.into_iter().filter(|cpu| !found.cpus.contains_key(cpu)).collect();
        for child in topology.children() {
            match child.tag_name().name() {
                "distances2" => self.read_distances(child, &mut found)?,
                "cpukind" => self.read_cpu_kind(child, &mut found)?,
                _ => {}
            }
        }
        self.read_make(topology, &mut found);
        found.reclaim_distance = info(root, INFO_RECLAIM_DISTANCE).and_then(|distance| distance.parse().ok());
        found.llc_level = info(root, INFO_LLC_LEVEL).and_then(|level| level.parse().ok());
        let name = info(root, INFO_NAME).unwrap_or("hwloc");
        found.into_machine(name, "read from hwloc XML", FORMAT)
    }

    /// Leaves out what the process that wrote the file was not allowed to use, as hwloc does unless it is told otherwise
    /// (`HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED`, `lstopo --disallowed`).
    fn keep_allowed(&self, root: Node<'_, '_>, nodes: &mut Vec<XmlNode>, found: &mut Found) -> Result<()> {
        let allowed = self.cpu_set(root, "allowed_cpuset")?.unwrap_or_default();
        let disallowed: BTreeSet<u32> = found.cpus.keys().copied().filter(|cpu| !allowed.contains(cpu)).collect();
        // A set that allows no CPU is of a file that was made by hand.
        if disallowed.is_empty() || disallowed.len() == found.cpus.len() {
            return Ok(());
        }
        found.cpus.retain(|cpu, _| allowed.contains(cpu));
        if let Some(allowed) = self.cpu_set(root, "allowed_nodeset")? {
            nodes.retain(|node| allowed.contains(&node.os_index));
        }
        let list = crate::format_cpu_list(disallowed);
        found
            .notes
            .push(format!("CPUs {list} are not among the allowed ones (`allowed_cpuset`): left out, as hwloc does"));
        Ok(())
    }

    /// The make of the CPUs, from the first object that names it.
    fn read_make(&self, topology: Node<'_, '_>, found: &mut Found) {
        let first = |name: &str| topology.descendants().find_map(|element| info(element, name));
        let power = Vendor::Power.cpuid_name();
        if let Some(vendor) = first(INFO_VENDOR) {
            found.read_processor(Some(vendor), first(INFO_FAMILY), first(INFO_MODEL_NUMBER));
        } else if first(INFO_IMPLEMENTER).is_some() {
            found.read_processor(Some(Vendor::Arm.cpuid_name()), None, None);
        } else if first(INFO_MODEL).is_some_and(|model| model.starts_with(power)) {
            found.read_processor(Some(power), None, None);
        }
    }

    /// Walks all objects with an own stack, so that deep nesting cannot overflow ours.
    fn read_objects(&self, root: Node<'_, '_>, found: &mut Found) -> Result<Vec<XmlNode>> {
        let mut nodes = Vec::new();
        let mut next_core = 0;
        let mut next_package = 0;
        let mut stack = vec![(root, Enclosing { core: None, package: 0 })];
        while let Some((object, mut inside)) = stack.pop() {
            let kind = object.attribute("type").unwrap_or_default();
            match kind {
                "Package" => {
                    inside.package = self.number(object, "os_index")?.unwrap_or(next_package);
                    next_package = next_package.max(inside.package).saturating_add(1);
                }
                "Core" => {
                    inside.core = Some(next_core);
                    next_core += 1;
                }
                "PU" => self.read_pu(object, inside, found)?,
                "NUMANode" => nodes.push(XmlNode {
                    os_index: self.number(object, "os_index")?.unwrap_or(nodes.len() as u32),
                    memory_bytes: self.number(object, "local_memory")?,
                    cpus: self.cpu_set(object, "cpuset")?.unwrap_or_default(),
                }),
                _ => {
                    if let Some((level, kind)) = cache_type(kind) {
                        // A data cache of a higher level, as on Itanium, has the name of a unified one.
                        let is_data = kind == CacheKind::Unified && object.attribute("cache_type") == Some("1");
                        let kind = if is_data { CacheKind::Data } else { kind };
                        found.caches.push(self.read_cache(object, level, kind)?);
                    }
                }
            }
            let children: Vec<_> = object.children().filter(|child| child.has_tag_name("object")).collect();
            stack.extend(children.into_iter().rev().map(|child| (child, inside)));
        }
        Ok(nodes)
    }

    /// Linux's clusters. hwloc leaves out those that another object has the CPUs of: CPUs in none are in one with those of their L2, or else
    /// with their core alone.
    fn read_clusters(&self, root: Node<'_, '_>, found: &mut Found) -> Result<()> {
        for group in root.descendants().filter(|element| is_cluster(*element)) {
            let cpus = self.cpu_set(group, "cpuset")?.unwrap_or_default();
            let Some(lowest) = cpus.first().copied() else { continue };
            let present = cpus.into_iter().filter(|cpu| found.cpus.contains_key(cpu));
            found.clusters.extend(present.map(|cpu| (cpu, lowest)));
        }
        if found.clusters.is_empty() {
            return Ok(());
        }
        let (mut lowest_of_l2, mut lowest_of_core) = (BTreeMap::new(), BTreeMap::new());
        let holds_data = |cache: &Cache| cache.level == 2 && cache.kind != CacheKind::Instruction;
        for CacheDescription { cpus, .. } in found.caches.iter().filter(|description| holds_data(&description.cache)) {
            lowest_of_l2.extend(cpus.iter().filter_map(|cpu| Some((*cpu, *cpus.first()?))));
        }
        for (cpu, place) in &found.cpus {
            let lowest = *lowest_of_core.entry(place.core).or_insert(*cpu);
            found.clusters.entry(*cpu).or_insert_with(|| lowest_of_l2.get(cpu).copied().unwrap_or(lowest));
        }
        Ok(())
    }

    fn read_pu(&self, object: Node<'_, '_>, inside: Enclosing, found: &mut Found) -> Result<()> {
        let Some(os_index) = self.number::<u32>(object, "os_index")? else {
            return Err(self.fail(object, "a PU has no os_index"));
        };
        let cpu = FoundCpu {
            // Cores have keys below 2^31; a PU outside any core is one of its own.
            core: inside.core.unwrap_or(1 << 31 | os_index),
            socket: inside.package,
            node: 0,
            capacity: crate::CAPACITY_SCALE,
        };
        match found.cpus.insert(os_index, cpu) {
            Some(_) => Err(self.fail(object, format!("PU {os_index} appears twice"))),
            None => Ok(()),
        }
    }

    fn read_cache(&self, object: Node<'_, '_>, level: u8, kind: CacheKind) -> Result<CacheDescription> {
        let cpus = self.cpu_set(object, "cpuset")?.unwrap_or_default();
        let ways = match self.number::<i64>(object, "cache_associativity")? {
            Some(-1) => Ways::Full,
            Some(ways @ 1..=65_536) => Ways::Count(ways as u32),
            _ => Ways::Unknown,
        };
        let inclusion = match (info(object, INFO_EXCLUSIVE), info(object, "Inclusive")) {
            (Some("1"), _) => Inclusion::Exclusive,
            (_, Some("1")) => Inclusion::Inclusive,
            (_, Some("0")) => Inclusion::NonInclusive,
            _ => Inclusion::Unknown,
        };
        let cache = Cache {
            level,
            kind,
            size_bytes: self.number(object, "cache_size")?.unwrap_or(0),
            line_bytes: self.number(object, "cache_linesize")?.unwrap_or(0),
            ways,
            inclusion,
            latency_ps: None,
            cpus: CpuSet::new(),
        };
        Ok(CacheDescription { cache, cpus })
    }

    /// Gives every CPU its node: of several nodes near a CPU, the lowest; the others count as memory only.
    fn assign_nodes(&self, mut nodes: Vec<XmlNode>, found: &mut Found) -> Result<()> {
        nodes.sort_by_key(|node| node.os_index);
        if nodes.is_empty() {
            nodes.push(XmlNode { os_index: 0, memory_bytes: None, cpus: found.cpus.keys().copied().collect() });
        }
        let mut homeless: BTreeSet<u32> = found.cpus.keys().copied().collect();
        for node in &nodes {
            let own: Vec<u32> = node.cpus.iter().copied().filter(|cpu| homeless.remove(cpu)).collect();
            if own.is_empty() && !node.cpus.is_empty() {
                let note =
                    format!("NUMA node {} shares its CPUs with a lower node: counted as memory only", node.os_index);
                found.notes.push(note);
            }
            for cpu in own {
                if let Some(cpu) = found.cpus.get_mut(&cpu) {
                    cpu.node = node.os_index;
                }
            }
            found.nodes.push(NodeDescription { os_index: node.os_index, memory_bytes: node.memory_bytes });
        }
        if !homeless.is_empty() {
            let list = crate::format_cpu_list(homeless.iter().copied());
            let lowest = nodes[0].os_index;
            found.notes.push(format!("CPUs {list} are in no NUMA node: counted in node {lowest}"));
            for cpu in homeless {
                if let Some(cpu) = found.cpus.get_mut(&cpu) {
                    cpu.node = lowest;
                }
            }
        }
        Ok(())
    }

    /// The matrix that the operating system gives for all NUMA nodes; others are measurements or of other objects.
    fn read_distances(&self, element: Node<'_, '_>, found: &mut Found) -> Result<()> {
        let is_latency = element.attribute("name").is_none_or(|name| name == "NUMALatency");
        if element.attribute("type") != Some("NUMANode") || !is_latency || found.distances.is_some() {
            return Ok(());
        }
        let numbers = |tag: &str| -> Result<Vec<u32>> {
            let texts = element.children().filter(|child| child.has_tag_name(tag));
            let words = texts.flat_map(|child| child.text().unwrap_or_default().split_whitespace());
            words
                .map(|word| word.parse().map_err(|_| self.fail(element, format!("`{word}` is not a distance"))))
                .collect()
        };
        let (indexes, values) = (numbers("indexes")?, numbers("u64values")?);
        let count = indexes.len();
        if count.checked_mul(count) != Some(values.len()) {
            return Err(self.fail(element, format!("{} distances for {count} nodes", values.len())));
        }
        let position: BTreeMap<u32, usize> =
            indexes.iter().enumerate().map(|(position, index)| (*index, position)).collect();
        let order: Option<Vec<usize>> = found.nodes.iter().map(|node| position.get(&node.os_index).copied()).collect();
        match order {
            Some(order) if element.attribute("indexing").is_none_or(|indexing| indexing == "os") => {
                let row = |from: usize| order.iter().map(|&to| values[from * count + to]).collect();
                found.distances = Some(order.iter().map(|&from| row(from)).collect());
            }
            _ => found.notes.push("the distances do not cover all NUMA nodes and are assumed".to_owned()),
        }
        Ok(())
    }

    fn read_cpu_kind(&self, element: Node<'_, '_>, found: &mut Found) -> Result<()> {
        let cpus = self.cpu_set(element, "cpuset")?.unwrap_or_default();
        if let Some(kind) = info(element, INFO_CORE_TYPE) {
            let kind = kind.chars().filter(|letter| !letter.is_control()).take(40).collect();
            found.core_types.entry(kind).or_default().extend(&cpus);
        }
        let speeds = [
            (INFO_HIGHEST_FREQUENCY, info(element, INFO_HIGHEST_FREQUENCY)),
            (FORCED_EFFICIENCY, element.attribute(FORCED_EFFICIENCY)),
        ];
        for (name, speed) in speeds {
            if let Some(speed) = speed.and_then(|speed| speed.parse::<u64>().ok()) {
                found.top_speeds.entry(name).or_default().extend(cpus.iter().map(|cpu| (*cpu, speed)));
            }
        }
        if let Some(priority) = info(element, INFO_PRIORITY) {
            let not_a_number = |_| self.fail(element, format!("`{INFO_PRIORITY}` is not a number"));
            let priority: u32 = priority.parse().map_err(not_a_number)?;
            let known = cpus.iter().filter(|cpu| found.cpus.contains_key(*cpu));
            found.priorities.extend(known.map(|cpu| (*cpu, priority)));
        }
        let Some(capacity) = info(element, INFO_CAPACITY) else { return Ok(()) };
        let Ok(capacity) = capacity.parse() else {
            return Err(self.fail(element, format!("`{INFO_CAPACITY}` is not a number")));
        };
        for cpu in cpus {
            if let Some(cpu) = found.cpus.get_mut(&cpu) {
                cpu.capacity = capacity;
            }
        }
        Ok(())
    }

    fn number<T: std::str::FromStr>(&self, object: Node<'_, '_>, name: &str) -> Result<Option<T>> {
        let Some(text) = object.attribute(name) else { return Ok(None) };
        let shown: String = text.chars().take(40).collect();
        text.parse().map(Some).map_err(|_| self.fail(object, format!("{name}=\"{shown}\" is not a possible number")))
    }

    fn cpu_set(&self, object: Node<'_, '_>, name: &str) -> Result<Option<BTreeSet<u32>>> {
        let text = object.attribute(name);
        text.map(|text| parse_bitmap(text).map_err(|reason| self.fail(object, format!("{name}: {reason}")))).transpose()
    }
}

/// Whether an element is a group of CPUs that Linux calls a cluster.
fn is_cluster(element: Node<'_, '_>) -> bool {
    let says = |name: &str, value: &str| element.attribute(name) == Some(value);
    says("type", "Group") && (says("subtype", CLUSTER_SUBTYPE) || says("kind", CLUSTER_KIND))
}

/// hwloc writes the memory of the nodes that have some: in its files the others have none, unless no node is said to have any. In our own
/// files, what is not written is not known.
fn settle_memory(nodes: &mut [XmlNode], is_ours: bool) {
    let is_known = nodes.iter().any(|node| node.memory_bytes.is_some_and(|bytes| bytes > 0));
    for node in nodes {
        node.memory_bytes = match node.memory_bytes {
            _ if !is_known => None,
            None if !is_ours => Some(0),
            stated => stated,
        };
    }
}

/// The value of an `info` element right below an element.
fn info<'a>(element: Node<'a, '_>, name: &str) -> Option<&'a str> {
    let mut infos = element.children().filter(|child| child.has_tag_name("info"));
    infos.find(|info| info.attribute("name") == Some(name)).and_then(|info| info.attribute("value"))
}

/// `L1Cache` (which in hwloc 2 is the data cache), `L2iCache`, `L3Cache`, ...
fn cache_type(name: &str) -> Option<(u8, CacheKind)> {
    let rest = name.strip_prefix('L')?.strip_suffix("Cache")?;
    let (level, instruction) = match rest.strip_suffix('i') {
        Some(level) => (level, true),
        None => (rest, false),
    };
    let level = level.parse().ok().filter(|level| (1..=5).contains(level))?;
    Some((
        level,
        if instruction {
            CacheKind::Instruction
        } else if level == 1 {
            CacheKind::Data
        } else {
            CacheKind::Unified
        },
    ))
}
