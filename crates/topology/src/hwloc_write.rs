//! Writing hwloc XML 2.0.
//!
//! hwloc's tree is strict: the CPUs of two objects are disjoint, or one contains the other. Machines whose caches do
//! not nest like that cannot be written. Figures (latencies, bandwidths, costs) have no place in hwloc XML and are
//! left out; the machine's name, a level of LLCs that is not the highest cache, groups that stand for LLCs, priorities of CPUs and a
//! stated reclaim distance go into `info` elements of our own.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::hwloc_bitmap::format_bitmap;
use crate::hwloc_read::{
    CLUSTER_KIND, CLUSTER_SUBTYPE, FORMAT, INFO_CAPACITY, INFO_COREGROUPS, INFO_EXCLUSIVE, INFO_FAMILY,
    INFO_IMPLEMENTER, INFO_LLC_LEVEL, INFO_MODEL, INFO_MODEL_NUMBER, INFO_NAME, INFO_PRIORITY, INFO_RECLAIM_DISTANCE,
    INFO_VENDOR,
};
use crate::{
    Cache, CacheKind, CpuId, CpuSet, Error, Inclusion, LlcId, Machine, NodeId, Processor, Result, Vendor, Ways,
};

/// Prints a machine as hwloc XML.
///
/// # Errors
/// [`Error::Inexpressible`] when groups or caches overlap without nesting, or an LLC has no cache.
pub fn to_hwloc_xml(machine: &Machine) -> Result<String> {
    let inexpressible = |reason: String| Error::Inexpressible {
        format: FORMAT,
        machine: machine.name().to_owned(),
        reasons: vec![reason],
        hint: "machine TOML can say everything".to_owned(),
    };
    let llc_level = llc_level(machine).map_err(inexpressible)?;
    let root = tree(machine).map_err(inexpressible)?;
    let mut writer = HwlocWriter { machine, text: String::new(), next_gp_index: 1 };
    writer.text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    writer.text.push_str("<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n");
    writer.object(&root, 1, llc_level);
    writer.distances();
    writer.cpu_kinds();
    writer.text.push_str("</topology>\n");
    Ok(writer.text)
}

/// The level to name in the file, when LLCs are not simply the highest caches.
pub(crate) fn llc_level(machine: &Machine) -> Result<Option<u8>, String> {
    let data_caches = || machine.caches().iter().filter(|cache| cache.kind != CacheKind::Instruction);
    let is_highest = |llc: LlcId| {
        let cpus = machine.cpus_of_llc(llc);
        let highest = data_caches().filter(|cache| cache.cpus.intersects(cpus)).max_by_key(|cache| cache.level);
        match highest {
            Some(cache) => cache.cpus == *cpus,
            None => machine.caches().is_empty() && machine.cpus_of_node(machine.node_of_llc(llc)) == cpus,
        }
    };
    if machine.llcs().all(is_highest) {
        return Ok(None);
    }
    let levels: BTreeSet<Option<u8>> = machine
        .llcs()
        .map(|llc| data_caches().filter(|cache| cache.cpus == *machine.cpus_of_llc(llc)).map(|cache| cache.level).max())
        .collect();
    match levels.first() {
        Some(Some(level)) if levels.len() == 1 => Ok(Some(*level)),
        _ => Err("the caches do not say which CPUs share an LLC".to_owned()),
    }
}

struct HwlocObject<'a> {
    kind: ObjectKind<'a>,
    cpus: CpuSet,
    nodes: Vec<NodeId>,
    children: Vec<HwlocObject<'a>>,
}

/// Objects with equal CPUs nest in this order.
#[derive(Clone, Copy)]
enum ObjectKind<'a> {
    Machine,
    Package(u32),
    Group,
    /// Cores that the firmware groups.
    Cluster,
    Cache(&'a Cache),
    Core(u32),
    Pu(u32),
}

impl ObjectKind<'_> {
    /// Outer objects have lower ranks. Of the caches, higher levels are outer, and data caches enclose instruction
    /// caches. Clusters stand between the third level and the second.
    fn rank(self) -> (u8, u8, CacheKind) {
        match self {
            ObjectKind::Machine => (0, 0, CacheKind::Data),
            ObjectKind::Package(_) => (1, 0, CacheKind::Data),
            ObjectKind::Group => (2, 0, CacheKind::Data),
            ObjectKind::Cluster => (3, u8::MAX - 2, CacheKind::Data),
            ObjectKind::Cache(cache) => (3, u8::MAX - cache.level, cache.kind),
            ObjectKind::Core(_) => (4, 0, CacheKind::Data),
            ObjectKind::Pu(_) => (5, 0, CacheKind::Data),
        }
    }
}

fn tree(machine: &Machine) -> Result<HwlocObject<'_>, String> {
    let mut objects: Vec<(ObjectKind<'_>, CpuSet)> = Vec::new();
    for socket in machine.sockets() {
        objects.push((ObjectKind::Package(machine.socket_os_index(socket)), machine.cpus_of_socket(socket).clone()));
    }
    objects.extend(machine.caches().iter().map(|cache| (ObjectKind::Cache(cache), cache.cpus.clone())));
    objects.extend((0..).zip(&machine.core_cpus).map(|(core, cpus)| (ObjectKind::Core(core), cpus.clone())));
    for cpu in machine.cpus() {
        objects.push((ObjectKind::Pu(machine.os_index(cpu)), [cpu].into_iter().collect()));
    }
    for node in machine.nodes() {
        let cpus = machine.cpus_of_node(node);
        let has_own = *cpus == *machine.all_cpus() || cpus.is_empty() || objects.iter().any(|(_, other)| other == cpus);
        if !has_own {
            objects.push((ObjectKind::Group, cpus.clone()));
        }
    }
    objects.extend(clusters_of_their_own(machine).map(|cpus| (ObjectKind::Cluster, cpus.clone())));
    // Larger objects first, so that what encloses an object is in the tree before it.
    objects.sort_by_cached_key(|(kind, cpus)| (std::cmp::Reverse(cpus.len()), kind.rank(), cpus.first()));
    let new = |kind, cpus| HwlocObject { kind, cpus, nodes: Vec::new(), children: Vec::new() };
    let mut root = new(ObjectKind::Machine, machine.all_cpus().clone());
    for (kind, cpus) in objects {
        insert(&mut root, new(kind, cpus));
    }
    finish(&mut root)?;
    for node in machine.nodes() {
        attach(&mut root, node, machine.cpus_of_node(node));
    }
    Ok(root)
}

/// The clusters of several cores that are no shared L2, which the reader takes for one.
fn clusters_of_their_own(machine: &Machine) -> impl Iterator<Item = &CpuSet> {
    let is_l2 = move |cpus: &CpuSet| {
        let mut caches = machine.caches().iter();
        caches.any(|cache| cache.level == 2 && cache.kind != CacheKind::Instruction && cache.cpus == *cpus)
    };
    machine.cluster_cpus.iter().filter(move |cpus| !machine.core_cpus.contains(cpus) && !is_l2(cpus))
}

/// Puts an object below the innermost one that encloses it.
fn insert<'a>(outer: &mut HwlocObject<'a>, object: HwlocObject<'a>) {
    let first = object.cpus.first().unwrap_or_default();
    let enclosing = outer.children.iter_mut().find(|child| child.cpus.contains(first));
    match enclosing {
        Some(child) if object.cpus.is_subset(&child.cpus) => insert(child, object),
        _ => outer.children.push(object),
    }
}

/// Orders children by their lowest CPU and refuses overlapping ones.
fn finish(object: &mut HwlocObject<'_>) -> Result<(), String> {
    object.children.sort_by_key(|child| child.cpus.first());
    let mut covered = CpuSet::new();
    for child in &mut object.children {
        if covered.intersects(&child.cpus) {
            return Err(format!("groups or caches overlap at CPUs {} without nesting", child.cpus));
        }
        covered.union_with(&child.cpus);
        finish(child)?;
    }
    Ok(())
}

/// Hangs a NUMA node below the outermost object with its CPUs; nodes without CPUs below the machine.
fn attach(object: &mut HwlocObject<'_>, node: NodeId, cpus: &CpuSet) {
    if !cpus.is_empty()
        && object.cpus != *cpus
        && let Some(child) = object.children.iter_mut().find(|child| cpus.is_subset(&child.cpus))
    {
        return attach(child, node, cpus);
    }
    // A machine of one package has its node below the package, as hwloc writes it.
    if matches!(object.kind, ObjectKind::Machine)
        && let [only] = object.children.as_mut_slice()
        && matches!(only.kind, ObjectKind::Package(_))
        && only.cpus == *cpus
    {
        only.nodes.push(node);
        return;
    }
    object.nodes.push(node);
}

struct HwlocWriter<'a> {
    machine: &'a Machine,
    text: String,
    next_gp_index: u32,
}

impl HwlocWriter<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:width$}{text}", "", width = 2 * depth);
    }

    fn object(&mut self, object: &HwlocObject<'_>, depth: usize, llc_level: Option<u8>) {
        let open = self.opening(object);
        let (infos, has_children) = (self.infos(object, llc_level), !object.children.is_empty());
        if infos.is_empty() && !has_children && object.nodes.is_empty() {
            return self.line(depth, &format!("{open}/>"));
        }
        self.line(depth, &format!("{open}>"));
        for (name, value) in infos {
            self.line(depth + 1, &format!("<info name=\"{name}\" value=\"{}\"/>", escape(&value)));
        }
        for node in &object.nodes {
            self.numa_node(*node, depth + 1);
        }
        for child in &object.children {
            self.object(child, depth + 1, None);
        }
        self.line(depth, "</object>");
    }

    /// The opening tag without its end.
    fn opening(&mut self, object: &HwlocObject<'_>) -> String {
        let cpus = self.os_numbers(&object.cpus);
        let nodes: BTreeSet<u32> = (self.machine.nodes())
            .filter(|node| self.machine.cpus_of_node(*node).intersects(&object.cpus) || object.nodes.contains(node))
            .map(|node| self.machine.node_os_index(node))
            .collect();
        let (kind, os_index) = match object.kind {
            ObjectKind::Machine => ("Machine".to_owned(), Some(0)),
            ObjectKind::Package(os_index) => ("Package".to_owned(), Some(os_index)),
            ObjectKind::Group | ObjectKind::Cluster => ("Group".to_owned(), None),
            ObjectKind::Cache(cache) => {
                let suffix = if cache.kind == CacheKind::Instruction { "i" } else { "" };
                (format!("L{}{suffix}Cache", cache.level), None)
            }
            ObjectKind::Core(os_index) => ("Core".to_owned(), Some(os_index)),
            ObjectKind::Pu(os_index) => ("PU".to_owned(), Some(os_index)),
        };
        let mut text = format!("<object type=\"{kind}\"");
        if let Some(os_index) = os_index {
            let _ = write!(text, " os_index=\"{os_index}\"");
        }
        let complete: BTreeSet<u32> = match object.kind {
            ObjectKind::Machine => cpus.iter().chain(self.machine.offline_cpus()).copied().collect(),
            _ => cpus.clone(),
        };
        text.push_str(&self.sets(&cpus, &complete, &nodes, matches!(object.kind, ObjectKind::Machine)));
        if let ObjectKind::Cache(cache) = object.kind {
            let ways = match cache.ways {
                Ways::Unknown => 0,
                Ways::Full => -1,
                Ways::Count(ways) => i64::from(ways),
            };
            let kind = match cache.kind {
                CacheKind::Unified => 0,
                CacheKind::Data => 1,
                CacheKind::Instruction => 2,
            };
            let _ = write!(
                text,
                " cache_size=\"{}\" depth=\"{}\" cache_linesize=\"{}\" cache_associativity=\"{ways}\" \
                 cache_type=\"{kind}\"",
                cache.size_bytes, cache.level, cache.line_bytes
            );
        }
        match object.kind {
            // Kind 0 is a group made by the user: hwloc keeps it.
            ObjectKind::Group => text.push_str(" kind=\"0\" subkind=\"0\""),
            ObjectKind::Cluster => {
                let _ = write!(text, " subtype=\"{CLUSTER_SUBTYPE}\" kind=\"{CLUSTER_KIND}\" subkind=\"0\"");
            }
            _ => {}
        }
        text
    }

    /// The sets that every object has, and its number.
    fn sets(
        &mut self,
        cpus: &BTreeSet<u32>,
        complete: &BTreeSet<u32>,
        nodes: &BTreeSet<u32>,
        is_machine: bool,
    ) -> String {
        let (cpus, complete, nodes) = (format_bitmap(cpus), format_bitmap(complete), format_bitmap(nodes));
        let allowed =
            |set: &str, name: &str| if is_machine { format!(" allowed_{name}=\"{set}\"") } else { String::new() };
        let text = format!(
            " cpuset=\"{cpus}\" complete_cpuset=\"{complete}\"{} nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\"{} \
             gp_index=\"{}\"",
            allowed(&cpus, "cpuset"),
            allowed(&nodes, "nodeset"),
            self.next_gp_index
        );
        self.next_gp_index += 1;
        text
    }

    fn infos(&self, object: &HwlocObject<'_>, llc_level: Option<u8>) -> Vec<(&'static str, String)> {
        match object.kind {
            ObjectKind::Machine => {
                let level = llc_level.map(|level| (INFO_LLC_LEVEL, level.to_string()));
                let stated = (!self.machine.derives_reclaim_distance())
                    .then(|| (INFO_RECLAIM_DISTANCE, self.machine.reclaim_distance().to_string()));
                let groups = self.machine.has_coregroups().then(|| (INFO_COREGROUPS, self.coregroups()));
                let name = (INFO_NAME, self.machine.name().to_owned());
                [name].into_iter().chain(level).chain(stated).chain(groups).collect()
            }
            ObjectKind::Package(_) => self.machine.processor().map_or(Vec::new(), make),
            ObjectKind::Cache(cache) => match cache.inclusion {
                Inclusion::Unknown => Vec::new(),
                Inclusion::Inclusive => vec![("Inclusive", "1".to_owned())],
                Inclusion::NonInclusive => vec![("Inclusive", "0".to_owned())],
                Inclusion::Exclusive => vec![("Inclusive", "0".to_owned()), (INFO_EXCLUSIVE, "1".to_owned())],
            },
            _ => Vec::new(),
        }
    }

    fn coregroups(&self) -> String {
        let list = |cpus: &CpuSet| crate::format_cpu_list(self.os_numbers(cpus));
        self.machine.coregroups.iter().map(list).collect::<Vec<_>>().join(" ")
    }

    fn numa_node(&mut self, node: NodeId, depth: usize) {
        let cpus = self.os_numbers(self.machine.cpus_of_node(node));
        let os_index = self.machine.node_os_index(node);
        let sets = self.sets(&cpus, &cpus, &BTreeSet::from([os_index]), false);
        let memory = self.machine.node_memory_bytes(node);
        let memory = memory.map_or_else(String::new, |bytes| format!(" local_memory=\"{bytes}\""));
        self.line(depth, &format!("<object type=\"NUMANode\" os_index=\"{os_index}\"{sets}{memory}/>"));
    }

    fn distances(&mut self) {
        let machine = self.machine;
        if machine.node_count() < 2 {
            return;
        }
        let count = machine.node_count();
        let open = "<distances2 type=\"NUMANode\" nbobjs=\"";
        self.line(1, &format!("{open}{count}\" kind=\"5\" name=\"NUMALatency\" indexing=\"os\">"));
        let indexes: String = machine.nodes().map(|node| format!("{} ", machine.node_os_index(node))).collect();
        self.line(2, &format!("<indexes length=\"{}\">{indexes}</indexes>", indexes.len()));
        for from in machine.nodes() {
            let row: String = machine.nodes().map(|to| format!("{} ", machine.node_distance(from, to))).collect();
            self.line(2, &format!("<u64values length=\"{}\">{row}</u64values>", row.len()));
        }
        self.line(1, "</distances2>");
    }

    fn cpu_kinds(&mut self) {
        let machine = self.machine;
        if !machine.is_asymmetric() && !machine.has_priorities() {
            return;
        }
        let kind = |cpu: CpuId| (machine.capacity(cpu), machine.priority(cpu));
        let kinds: BTreeSet<(u32, u32)> = machine.cpus().map(kind).collect();
        for (capacity, priority) in kinds {
            let members = machine.cpus().filter(|cpu| kind(*cpu) == (capacity, priority));
            let cpus: BTreeSet<u32> = members.map(|cpu| machine.os_index(cpu)).collect();
            self.line(1, &format!("<cpukind cpuset=\"{}\">", format_bitmap(&cpus)));
            if machine.is_asymmetric() {
                self.line(2, &format!("<info name=\"{INFO_CAPACITY}\" value=\"{capacity}\"/>"));
            }
            if machine.has_priorities() {
                self.line(2, &format!("<info name=\"{INFO_PRIORITY}\" value=\"{priority}\"/>"));
            }
            self.line(1, "</cpukind>");
        }
    }

    fn os_numbers(&self, cpus: &CpuSet) -> BTreeSet<u32> {
        cpus.iter().map(|cpu| self.machine.os_index(cpu)).collect()
    }
}

/// The make of CPUs in hwloc's words.
fn make(processor: Processor) -> Vec<(&'static str, String)> {
    let vendor = processor.vendor();
    match vendor {
        Vendor::Arm => vec![(INFO_IMPLEMENTER, "0x41".to_owned())],
        Vendor::Power => vec![(INFO_MODEL, vendor.cpuid_name().to_owned())],
        Vendor::Amd | Vendor::Hygon | Vendor::Intel => {
            let family = processor.family().map(|family| (INFO_FAMILY, family.to_string()));
            let model = processor.model().map(|model| (INFO_MODEL_NUMBER, model.to_string()));
            [(INFO_VENDOR, vendor.cpuid_name().to_owned())].into_iter().chain(family).chain(model).collect()
        }
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\r' | '\t' => escaped.push(' '),
            character if character.is_control() => {}
            character => escaped.push(character),
        }
    }
    escaped
}
