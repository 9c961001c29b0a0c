//! Writing hwloc synthetic descriptions.
//!
//! Such a description is a tree in which all objects of a level are alike. It cannot say offline CPUs, unequal groups
//! or caches, nodes without CPUs or of different size, capacities, priorities, or which cache level is the LLC: those are errors.
//! It cannot say associativity, line sizes, node distances and figures either; they are left out, and
//! [`synthetic_losses`] names what a machine loses that way. Clusters that share no L2 are groups inside of the last-level caches, where all
//! are alike.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::{CacheKind, CpuId, CpuSet, Error, Machine, NodeId, Result, Shape, SmtNumbering, Ways};

const FORMAT: &str = "an hwloc synthetic description";

/// One level: its name with attributes, and its objects.
struct WrittenLevel {
    name: String,
    attributes: Vec<String>,
    groups: Vec<CpuSet>,
}

/// Prints a machine as an hwloc synthetic description. Sizes are plain bytes.
///
/// # Errors
/// [`Error::Inexpressible`] with everything about the machine's structure that cannot be said.
pub fn to_synthetic(machine: &Machine) -> Result<String> {
    let mut reasons = irregularities(machine);
    if crate::hwloc_write::llc_level(machine) != Ok(None) {
        reasons.push("an LLC is not the highest cache of its CPUs".to_owned());
    }
    let mut text = String::new();
    match (reasons.is_empty(), levels(machine)) {
        (true, Ok(levels)) => write_levels(machine, &levels, &mut text),
        (_, Err(reason)) => reasons.push(reason),
        (false, Ok(_)) => {}
    }
    if reasons.is_empty() {
        return Ok(text);
    }
    Err(Error::Inexpressible {
        format: FORMAT,
        machine: machine.name().to_owned(),
        reasons,
        hint: "write hwloc XML or machine TOML".to_owned(),
    })
}

/// What a machine loses in [`to_synthetic`] although its structure can be said.
pub fn synthetic_losses(machine: &Machine) -> Vec<&'static str> {
    let mut losses = Vec::new();
    if machine.node_count() > 1 {
        losses.push("node distances");
    }
    if machine.processor().is_some() || !machine.derives_reclaim_distance() {
        losses.push("the make of CPUs, with the reclaim distance");
    }
    if machine.has_coregroups() {
        losses.push("the groups that scheduling domains take for LLCs");
    }
    if clusters_of_their_own(machine).is_some() && cluster_level(machine).is_none() {
        losses.push("clusters of cores");
    }
    if machine.caches().iter().any(|cache| cache.ways != Ways::Unknown) {
        losses.push("associativity of caches");
    }
    if machine.caches().iter().any(|cache| cache.line_bytes != 64) {
        losses.push("cache line size");
    }
    losses.push("latencies, bandwidths and costs");
    losses
}

fn irregularities(machine: &Machine) -> Vec<String> {
    let mut reasons = Vec::new();
    if !machine.offline_cpus().is_empty() {
        let list = crate::format_cpu_list(machine.offline_cpus().iter().copied());
        reasons.push(format!("CPUs {list} are offline"));
    }
    if machine.is_asymmetric() {
        reasons.push("CPUs differ in capacity".to_owned());
    }
    if machine.has_priorities() {
        reasons.push("CPUs differ in priority".to_owned());
    }
    if let Some(node) = machine.nodes().find(|node| machine.cpus_of_node(*node).is_empty()) {
        reasons.push(format!("node {} has no CPUs", machine.node_os_index(node)));
    }
    let memories: BTreeSet<Option<u64>> = machine.nodes().map(|node| machine.node_memory_bytes(node)).collect();
    if memories.len() > 1 {
        reasons.push("nodes differ in memory size".to_owned());
    }
    reasons
}

/// The levels from the outside in, all regular and nested.
fn levels(machine: &Machine) -> Result<Vec<WrittenLevel>, String> {
    let mut levels = vec![WrittenLevel {
        name: "Package".to_owned(),
        attributes: index_attribute(machine.sockets().map(|socket| machine.socket_os_index(socket)).collect())
            .into_iter()
            .collect(),
        groups: machine.sockets.iter().map(|socket| socket.cpus.clone()).collect(),
    }];
    levels.extend(cache_levels(machine)?);
    levels.extend(cluster_level(machine));
    levels.push(WrittenLevel { name: "Core".to_owned(), attributes: Vec::new(), groups: machine.core_cpus.clone() });
    levels.push(WrittenLevel {
        name: "PU".to_owned(),
        attributes: Vec::new(),
        groups: machine.cpus().map(|cpu| [cpu].into_iter().collect()).collect(),
    });
    let nodes = node_groups(machine);
    if nodes.len() > 1 && !levels.iter().any(|level| same_groups(&level.groups, &nodes)) {
        levels.push(WrittenLevel { name: "Group".to_owned(), attributes: Vec::new(), groups: nodes });
    }
    levels.sort_by_key(|level| level.groups.len());
    for pair in levels.windows(2) {
        check_nested(&pair[0], &pair[1])?;
    }
    Ok(levels)
}

/// The clusters, where some have several cores and no L2 stands for them.
fn clusters_of_their_own(machine: &Machine) -> Option<&[CpuSet]> {
    let second = machine.caches().iter().filter(|cache| cache.level == 2 && cache.kind != CacheKind::Instruction);
    let second: Vec<CpuSet> = second.map(|cache| cache.cpus.clone()).collect();
    let has_own = machine.cluster_count() != machine.core_count() && !same_groups(&second, &machine.cluster_cpus);
    has_own.then_some(machine.cluster_cpus.as_slice())
}

/// The level of clusters that the reader takes for such: of equal ones, inside of caches.
fn cluster_level(machine: &Machine) -> Option<WrittenLevel> {
    let clusters = clusters_of_their_own(machine)?;
    let level = |name: &str, groups: &[CpuSet]| WrittenLevel {
        name: name.to_owned(),
        attributes: Vec::new(),
        groups: groups.to_vec(),
    };
    let own = level("Group", clusters);
    let llcs = level("LLC", &machine.llc_cpus);
    let cores = level("Core", &machine.core_cpus);
    let is_regular = check_nested(&llcs, &own).is_ok() && check_nested(&own, &cores).is_ok();
    (is_regular && !machine.caches().is_empty()).then_some(own)
}

fn node_groups(machine: &Machine) -> Vec<CpuSet> {
    machine.nodes.iter().map(|node| node.cpus.clone()).collect()
}

fn same_groups(a: &[CpuSet], b: &[CpuSet]) -> bool {
    a.len() == b.len() && a.iter().all(|group| b.contains(group))
}

/// One level per cache level and kind, higher levels first.
fn cache_levels(machine: &Machine) -> Result<Vec<WrittenLevel>, String> {
    let kinds: BTreeSet<_> =
        machine.caches().iter().map(|cache| (std::cmp::Reverse(cache.level), cache.kind)).collect();
    let mut levels = Vec::new();
    for (std::cmp::Reverse(cache_level), kind) in kinds {
        let caches = machine.caches().iter().filter(|cache| (cache.level, cache.kind) == (cache_level, kind));
        let sizes: BTreeSet<u64> = caches.clone().map(|cache| cache.size_bytes).collect();
        let covered = caches.clone().map(|cache| cache.cpus.len()).sum::<usize>();
        let suffix = match kind {
            CacheKind::Data if cache_level == 1 => "d",
            CacheKind::Data => return Err(format!("level {cache_level} has a data cache")),
            CacheKind::Instruction => "i",
            CacheKind::Unified if cache_level == 1 => return Err("level 1 has a unified cache".to_owned()),
            CacheKind::Unified => "",
        };
        let name = format!("L{cache_level}{suffix}Cache");
        match sizes.first() {
            Some(size) if sizes.len() == 1 && covered == machine.cpu_count() => levels.push(WrittenLevel {
                name,
                attributes: vec![format!("size={size}")],
                groups: caches.map(|cache| cache.cpus.clone()).collect(),
            }),
            _ => return Err(format!("{name}s are not all alike")),
        }
    }
    Ok(levels)
}

/// Every object of the inner level lies in one of the outer level, and all outer ones hold equally many.
fn check_nested(outer: &WrittenLevel, inner: &WrittenLevel) -> Result<(), String> {
    let counts: BTreeSet<usize> =
        outer.groups.iter().map(|group| inner.groups.iter().filter(|part| part.is_subset(group)).count()).collect();
    let total: usize = outer.groups.iter().map(CpuSet::len).sum::<usize>();
    let inside = counts.first().copied().unwrap_or(0) * outer.groups.len();
    let parts: usize = inner.groups.iter().map(CpuSet::len).sum();
    if counts.len() == 1 && inside == inner.groups.len() && total == parts {
        Ok(())
    } else {
        Err(format!("not every {} holds equally many {}s", outer.name, inner.name))
    }
}

fn write_levels(machine: &Machine, levels: &[WrittenLevel], text: &mut String) {
    let nodes = node_groups(machine);
    let order = tree_order(machine, levels);
    if nodes.len() == 1 && machine.socket_count() > 1 {
        let _ = write!(text, "{} ", memory(machine, &order));
    }
    let mut above = 1;
    let mut has_memory = !text.is_empty();
    for level in levels {
        let separator = if text.is_empty() || text.ends_with(' ') { "" } else { " " };
        let _ = write!(text, "{separator}{}:{}", level.name, level.groups.len() / above);
        above = level.groups.len();
        let mut attributes = level.attributes.clone();
        if level.name == "PU" {
            attributes.extend(pu_indexes(machine, &order));
        }
        if !attributes.is_empty() {
            let _ = write!(text, "({})", attributes.join(" "));
        }
        if !has_memory && same_groups(&level.groups, &nodes) {
            let _ = write!(text, " {}", memory(machine, &order));
            has_memory = true;
        }
    }
}

/// CPUs in the order of the tree: by the outermost group first, so that the CPUs of a group stay together.
fn tree_order(machine: &Machine, levels: &[WrittenLevel]) -> Vec<CpuId> {
    let mut cpus: Vec<CpuId> = machine.cpus().collect();
    let position = |level: &WrittenLevel, cpu| level.groups.iter().position(|group| group.contains(cpu));
    cpus.sort_by_cached_key(|cpu| levels.iter().map(|level| position(level, *cpu)).collect::<Vec<_>>());
    cpus
}

fn memory(machine: &Machine, order: &[CpuId]) -> String {
    let size = machine.node_memory_bytes(NodeId(0)).map(|bytes| format!("memory={bytes}"));
    let mut numbers: Vec<u32> = order.iter().map(|cpu| machine.node_os_index(machine.node_of(*cpu))).collect();
    numbers.dedup();
    let attributes: Vec<String> = size.into_iter().chain(index_attribute(numbers)).collect();
    if attributes.is_empty() { "[NUMANode]".to_owned() } else { format!("[NUMANode({})]", attributes.join(" ")) }
}

/// Numbers of objects in logical order; nothing when they are 0, 1, 2, ...
fn index_attribute(numbers: Vec<u32>) -> Option<String> {
    if numbers.iter().copied().eq(0..numbers.len() as u32) {
        return None;
    }
    let list: Vec<String> = numbers.iter().map(u32::to_string).collect();
    Some(format!("indexes={}", list.join(",")))
}

/// CPU numbers in the order of the tree: loops where all first threads come first, a list otherwise.
fn pu_indexes(machine: &Machine, order: &[CpuId]) -> Option<String> {
    if let Some((shape, SmtNumbering::Split)) = Shape::of(machine)
        && shape.threads_per_core > 1
    {
        let threads = shape.threads_per_core;
        return Some(format!("indexes={threads}*{}:1*{threads}", machine.core_count()));
    }
    index_attribute(order.iter().map(|cpu| machine.os_index(*cpu)).collect())
}
