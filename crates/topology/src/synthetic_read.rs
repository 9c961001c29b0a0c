//! Reading hwloc synthetic descriptions: `Package:2 [NUMANode] L3Cache:2(size=33554432) Core:4 PU:2`.
//!
//! Source: "Synthetic topologies" in the hwloc 2 manual, and the behaviour of `lstopo` 2.9 for the order of
//! `indexes`. Each level gives the number of its objects under each object of the level before. `[NUMANode]` attaches
//! a NUMA node to each object of the level before; `NUMANode:2` as a level is a group with a node attached. A `Group` inside of the
//! last-level caches and NUMA nodes is a cluster of cores. Levels without a type (`2 3 4`), I/O objects and tiers of memory are not read.

use std::collections::{BTreeMap, BTreeSet};

use crate::discovered::{Found, FoundCpu};
use crate::{
    Cache, CacheDescription, CacheKind, CpuSet, Error, Inclusion, Location, MAX_CPUS, Machine, NodeDescription, Result,
    Ways,
};

const FORMAT: &str = "hwloc synthetic description";

/// What a level is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LevelType {
    Package,
    Group,
    NumaNode,
    Cache(u8, CacheKind),
    Core,
    Pu,
}

/// `Type:count(attributes)`.
#[derive(Debug)]
struct ReadLevel {
    level_type: LevelType,
    /// Objects on the whole machine.
    width: usize,
    size_bytes: Option<u64>,
    indexes: Option<String>,
}

/// A NUMA node below each object of a level.
#[derive(Debug)]
struct MemoryLevel {
    /// Objects of the level it is attached to.
    width: usize,
    /// Levels outside of it.
    depth: usize,
    memory_bytes: Option<u64>,
    indexes: Option<String>,
}

/// Builds a machine from an hwloc synthetic description.
///
/// # Errors
/// [`Error::Invalid`] naming the part that cannot be read; [`Error::Impossible`] when the machine contradicts itself.
pub fn from_synthetic(text: &str) -> Result<Machine> {
    let (levels, memories, notes) = read_levels(text)?;
    let Some(pus) = levels.last().filter(|level| level.level_type == LevelType::Pu) else {
        return Err(fail("the last level must be PU", "for example `Package:2 L3Cache:1 Core:8 PU:2`"));
    };
    let os_indexes = os_indexes(&levels, pus.width, pus.indexes.as_deref(), "PU")?;
    let group = |width: usize, position: usize| (position / (pus.width / width)) as u32;
    let core_width =
        levels.iter().find(|level| level.level_type == LevelType::Core).map_or(pus.width, |level| level.width);
    let package = levels.iter().find(|level| level.level_type == LevelType::Package);
    let package_indexes = match package {
        Some(level) => os_indexes_of(&levels, level)?,
        None => vec![0],
    };

    if memories.len() > 1 {
        let hint = "machines with several kinds of memory need hwloc XML";
        return Err(fail("only one level can have NUMA nodes", hint));
    }
    let whole = MemoryLevel { width: 1, depth: 0, memory_bytes: None, indexes: None };
    let memory = memories.into_iter().next().unwrap_or(whole);
    let node_indexes = os_indexes_below(&levels, memory.width, memory.indexes.as_deref())?;
    let mut found = Found {
        nodes: node_indexes
            .iter()
            .map(|&os_index| NodeDescription { os_index, memory_bytes: memory.memory_bytes })
            .collect(),
        notes,
        ..Found::default()
    };
    for (position, &os_index) in os_indexes.iter().enumerate() {
        let cpu = FoundCpu {
            core: group(core_width, position),
            socket: package_indexes[group(package_indexes.len(), position) as usize],
            node: node_indexes[group(memory.width, position) as usize],
            capacity: crate::CAPACITY_SCALE,
        };
        found.cpus.insert(os_index, cpu);
    }
    for level in &levels {
        let LevelType::Cache(cache_level, kind) = level.level_type else { continue };
        let mut members: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (position, &os_index) in os_indexes.iter().enumerate() {
            members.entry(group(level.width, position)).or_default().insert(os_index);
        }
        let cache = Cache {
            level: cache_level,
            kind,
            size_bytes: level.size_bytes.unwrap_or_else(|| default_size(cache_level)),
            line_bytes: 64,
            ways: Ways::Unknown,
            inclusion: Inclusion::Unknown,
            latency_ps: None,
            cpus: CpuSet::new(),
        };
        found.caches.extend(members.into_values().map(|cpus| CacheDescription { cache: cache.clone(), cpus }));
    }
    if let Some(clusters) = cluster_level(&levels, memory.depth) {
        found.clusters =
            os_indexes.iter().enumerate().map(|(position, cpu)| (*cpu, group(clusters.width, position))).collect();
    }
    found.into_machine("synthetic", text.trim(), "hwloc synthetic")
}

/// The innermost groups of several cores inside of the last-level caches and of the NUMA nodes, which are `memory_depth` levels in.
fn cluster_level(levels: &[ReadLevel], memory_depth: usize) -> Option<&ReadLevel> {
    let data_level = |level: &ReadLevel| match level.level_type {
        LevelType::Cache(cache_level, kind) if kind != CacheKind::Instruction => Some(cache_level),
        _ => None,
    };
    let (_, llc) = (levels.iter().enumerate())
        .filter_map(|(position, level)| Some((data_level(level)?, position)))
        .max_by_key(|(cache_level, _)| *cache_level)?;
    let inside = levels.get(memory_depth.max(llc + 1)..)?;
    inside.iter().rfind(|level| level.level_type == LevelType::Group)
}

/// hwloc's sizes for caches without `size`.
fn default_size(level: u8) -> u64 {
    match level {
        1 => 32 << 10,
        level => (1 << 20) << (2 * (u64::from(level) - 1)),
    }
}

fn fail(reason: impl Into<String>, hint: &str) -> Error {
    Error::invalid_with_hint(Location::format(FORMAT), reason, hint)
}

/// Levels, what memory they have, and what a reader must know.
fn read_levels(text: &str) -> Result<(Vec<ReadLevel>, Vec<MemoryLevel>, Vec<String>)> {
    let mut levels: Vec<ReadLevel> = Vec::new();
    let (mut memories, mut notes) = (Vec::new(), Vec::new());
    for part in parts(text)? {
        let width = levels.last().map_or(1, |level| level.width);
        if let Some(inner) = part.strip_prefix('[') {
            let inner = inner.strip_suffix(']').unwrap_or(inner);
            let (name, attributes) = split_attributes(inner)?;
            if level_type(name) != Some(LevelType::NumaNode) {
                return Err(fail(format!("`[{name}]` is not a kind of memory that is read"), "only `[NUMANode]` is"));
            }
            let attributes = read_attributes(attributes)?;
            let ObjectAttributes { memory_bytes, indexes, .. } = attributes;
            memories.push(MemoryLevel { width, depth: levels.len(), memory_bytes, indexes });
            continue;
        }
        let (head, attributes) = split_attributes(part)?;
        let Some((name, count)) = head.split_once(':') else {
            return Err(fail(format!("`{head}` is not `Type:count`"), "for example `Core:8`"));
        };
        let Some(kind) = level_type(name) else {
            let hint = "Package, Die, Group, NUMANode, L1dCache to L5Cache, Core and PU are";
            return Err(fail(format!("`{name}` is not a type that is read"), hint));
        };
        let count: usize = count
            .parse()
            .ok()
            .filter(|count| (1..=MAX_CPUS).contains(count))
            .ok_or_else(|| fail(format!("`{head}`: the count is not 1 to {MAX_CPUS}"), ""))?;
        let repeated = kind != LevelType::Group && levels.iter().any(|level| level.level_type == kind);
        if repeated || levels.last().is_some_and(|level| level.level_type == LevelType::Pu) {
            return Err(fail(format!("`{head}` is out of place"), "every type comes once, and PU last"));
        }
        let width = width * count;
        if width > MAX_CPUS {
            return Err(fail(format!("more than {MAX_CPUS} objects at `{head}`"), ""));
        }
        let ObjectAttributes { size_bytes, memory_bytes, indexes } = read_attributes(attributes)?;
        if kind == LevelType::NumaNode {
            memories.push(MemoryLevel { width, depth: levels.len() + 1, memory_bytes, indexes: indexes.clone() });
        } else if memory_bytes.is_some() {
            // So does hwloc 2, which then puts one node over everything.
            notes.push(format!(
                "the memory of `{head}` is not counted: NUMA nodes have memory, as in `{head} [NUMANode(memory=1GB)]`"
            ));
        }
        levels.push(ReadLevel { level_type: kind, width, size_bytes, indexes });
    }
    Ok((levels, memories, notes))
}

/// Splits at blanks outside parentheses and brackets.
fn parts(text: &str) -> Result<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_u32);
    for (position, character) in text.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => {
                depth =
                    depth.checked_sub(1).ok_or_else(|| fail(format!("`{character}` without its opening one"), ""))?;
            }
            _ if character.is_whitespace() && depth == 0 => {
                parts.push(&text[start..position]);
                start = position + character.len_utf8();
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(fail("a parenthesis or bracket is not closed", ""));
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.is_empty());
    Ok(parts)
}

/// `head(attributes)` in two.
fn split_attributes(part: &str) -> Result<(&str, &str)> {
    let Some((head, rest)) = part.split_once('(') else { return Ok((part, "")) };
    let attributes = rest.strip_suffix(')');
    attributes
        .map(|attributes| (head, attributes))
        .ok_or_else(|| fail(format!("text follows the attributes in `{part}`"), ""))
}

/// Type names in any case; packages also by their old name, all but caches also shortened to two letters or more.
fn level_type(name: &str) -> Option<LevelType> {
    let name = name.to_lowercase();
    if let Some(cache) = name.strip_prefix('l').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        let level = cache[..1].parse().ok().filter(|level| (1..=5).contains(level))?;
        let kind = match cache[1..].trim_end_matches("cache") {
            "" if level == 1 => CacheKind::Data,
            "d" => CacheKind::Data,
            "i" => CacheKind::Instruction,
            "" | "u" => CacheKind::Unified,
            _ => return None,
        };
        return Some(LevelType::Cache(level, kind));
    }
    let types = [
        ("package", LevelType::Package),
        ("socket", LevelType::Package),
        ("die", LevelType::Group),
        ("group", LevelType::Group),
        ("numanode", LevelType::NumaNode),
        ("node", LevelType::NumaNode),
        ("core", LevelType::Core),
        ("pu", LevelType::Pu),
    ];
    types.into_iter().find(|(full, _)| name.len() >= 2 && full.starts_with(&name)).map(|(_, kind)| kind)
}

#[derive(Default)]
struct ObjectAttributes {
    size_bytes: Option<u64>,
    memory_bytes: Option<u64>,
    indexes: Option<String>,
}

fn read_attributes(text: &str) -> Result<ObjectAttributes> {
    let mut attributes = ObjectAttributes::default();
    for attribute in text.split_whitespace() {
        match attribute.split_once('=') {
            Some(("size", value)) => attributes.size_bytes = Some(read_bytes(value)?),
            Some(("memory", value)) => attributes.memory_bytes = Some(read_bytes(value)?),
            Some(("indexes", value)) => attributes.indexes = Some(value.to_owned()),
            _ => {
                return Err(fail(
                    format!("unknown attribute `{attribute}`"),
                    "`size`, `memory` and `indexes` are read",
                ));
            }
        }
    }
    Ok(attributes)
}

/// Bytes; hwloc's decimal and binary units are accepted as hwloc understands them.
fn read_bytes(text: &str) -> Result<u64> {
    let units: [(&str, u64); 9] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("kiB", 1 << 10),
        ("KiB", 1 << 10),
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000),
    ];
    let (digits, scale) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale))).unwrap_or((text, 1));
    let bytes =
        digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).filter(|bytes| *bytes < 1 << 60);
    bytes.ok_or_else(|| fail(format!("`{text}` is not a number of bytes"), "write plain bytes"))
}

fn os_indexes_of(levels: &[ReadLevel], level: &ReadLevel) -> Result<Vec<u32>> {
    os_indexes_below(levels, level.width, level.indexes.as_deref())
}

fn os_indexes_below(levels: &[ReadLevel], width: usize, indexes: Option<&str>) -> Result<Vec<u32>> {
    os_indexes(levels, width, indexes, "a level")
}

/// The operating system's numbers of the `width` objects of a level in their logical order: a list of numbers, nested
/// loops `step*count:step*count`, or nested loops over types `package:core`.
fn os_indexes(levels: &[ReadLevel], width: usize, indexes: Option<&str>, what: &str) -> Result<Vec<u32>> {
    let Some(text) = indexes else { return Ok((0..width as u32).collect()) };
    let bad =
        |reason: &str| fail(format!("indexes of {what} `{}`: {reason}", text.chars().take(60).collect::<String>()), "");
    let numbers = if text.contains(',') || text.bytes().all(|byte| byte.is_ascii_digit()) {
        let numbers =
            text.split(',').map(|number| number.parse().ok().filter(|number| *number <= crate::MAX_CPU_NUMBER));
        numbers.collect::<Option<Vec<u32>>>().ok_or_else(|| bad("not a list of numbers up to 65535"))?
    } else if text.contains('*') {
        let loops = text.split(':').map(|step| {
            let (step, count) = step.split_once('*')?;
            Some((step.parse().ok()?, count.parse().ok()?))
        });
        let loops = loops.collect::<Option<Vec<(usize, usize)>>>().ok_or_else(|| bad("not loops like `2*8:1*2`"))?;
        run_loops(loops, width).ok_or_else(|| bad("the loops do not give every object one number"))?
    } else {
        let widths = text.split(':').map(|name| {
            let wanted = level_type(name)?;
            levels.iter().find(|level| level.level_type == wanted).map(|level| level.width)
        });
        let widths = widths.collect::<Option<Vec<usize>>>().ok_or_else(|| bad("not types of this description"))?;
        let loops = widths.iter().map(|&own| {
            let outer = widths.iter().filter(|&&other| other < own).max().copied().unwrap_or(1);
            (width / own.max(1), own / outer)
        });
        run_loops(loops.collect(), width).ok_or_else(|| bad("the types do not give every object one number"))?
    };
    let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
    if numbers.len() != width || distinct.len() != width {
        return Err(bad(&format!("{width} different numbers are needed")));
    }
    Ok(numbers)
}

/// The numbers that nested loops give: number `k0 + k1*count0 + ...` goes to the object at `k0*step0 + k1*step1 +
/// ...`. What the loops leave out is filled by a last loop of step 1.
fn run_loops(mut loops: Vec<(usize, usize)>, width: usize) -> Option<Vec<u32>> {
    let product = loops.iter().try_fold(1_usize, |product, (_, count)| product.checked_mul(*count))?;
    if product == 0 || !width.is_multiple_of(product) {
        return None;
    }
    if product < width {
        loops.push((1, width / product));
    }
    let mut numbers = vec![None; width];
    for number in 0..width {
        let (mut rest, mut position) = (number, 0_usize);
        for (step, count) in &loops {
            position = position.checked_add((rest % count).checked_mul(*step)?)?;
            rest /= count;
        }
        let place = numbers.get_mut(position)?;
        if place.replace(number as u32).is_some() {
            return None;
        }
    }
    numbers.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn order(text: &str) -> Vec<u32> {
        let (levels, ..) = read_levels(text).unwrap();
        let pus = levels.last().unwrap();
        os_indexes(&levels, pus.width, pus.indexes.as_deref(), "PU").unwrap()
    }

    /// Numbers printed by `lstopo` 2.9 for the same descriptions.
    #[test]
    fn loops_of_indexes_run_as_in_lstopo() {
        assert_eq!(order("Package:2 Core:2 PU:2(indexes=2*4:1*2)"), [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(order("Package:2 Core:2 PU:2(indexes=4*2:1*4)"), [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(order("Package:2 Core:2 PU:2(indexes=4*2:2*2)"), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(order("Package:2 Core:3 PU:2(indexes=package:core)"), [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]);
        assert_eq!(order("Package:2 Core:3 PU:2(indexes=core:package)"), [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]);
        assert_eq!(order("Core:2 PU:1(indexes=7,3)"), [7, 3]);
    }

    #[test]
    fn malformed_descriptions_name_the_bad_part() {
        for (text, reason) in [
            ("Package:2 Core:2", "must be PU"),
            ("Package:2 Sandwich:2 PU:1", "`Sandwich` is not a type"),
            ("Package:0 PU:1", "the count is not 1"),
            ("Package:2 (PU:1", "not closed"),
            ("PU:2(size=3QB)", "not a number of bytes"),
            ("PU:2(colour=3)", "unknown attribute `colour=3`"),
            ("PU:2(indexes=1,1)", "2 different numbers"),
            ("PU:2(indexes=9*9)", "do not give every object"),
            ("Core:4096 PU:4096", "more than 4096"),
            ("PU:2 Core:2", "out of place"),
            ("4 2", "not `Type:count`"),
            ("[Disk] PU:2", "not a kind of memory"),
            ("Package:2 [NUMANode] Core:2 [NUMANode] PU:2", "only one level"),
        ] {
            let message = from_synthetic(text).unwrap_err().to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }

    #[test]
    fn nodes_hang_below_the_level_before_them() {
        let machine = from_synthetic("Package:2 Group:3 [NUMANode(memory=1024)] L3Cache:2 Core:4 PU:2").unwrap();
        let counts = (machine.socket_count(), machine.node_count(), machine.llc_count(), machine.cpu_count());
        assert_eq!(counts, (2, 6, 12, 96));
        let nodeless = from_synthetic("Package:3(memory=1GB) Core:2 PU:1").unwrap();
        assert_eq!(
            (nodeless.socket_count(), nodeless.node_count(), nodeless.node_memory_bytes(NodeId(0))),
            (3, 1, None)
        );
        let told = "the memory of `Package:3` is not counted";
        assert!(nodeless.notes().iter().any(|note| note.starts_with(told)), "{:?}", nodeless.notes());
        let whole = from_synthetic("[NUMANode] Package:2 L2Cache:1 Core:4 PU:1").unwrap();
        assert_eq!((whole.node_count(), whole.llc_count()), (1, 2));
    }
}
