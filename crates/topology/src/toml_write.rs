//! Writing machine files. Reading the result gives an equal machine, origins included.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::background_toml::background_table;
use crate::build::{DISTANCES, PRIORITIES, PROCESSOR, STATED_RECLAIM_DISTANCE};
use crate::cache_entries::cache_entries;
use crate::core_kinds_toml::core_kind_tables;
use crate::fields::{Quantity, Slot, Unit, VALUE_SECTIONS, each_value};
use crate::figures::default_costs;
use crate::template::{CacheScope, CacheTemplate};
use crate::units::{decimal, format_size};
use crate::{
    Basis, CacheKind, CpuSet, DEFAULT_REMOTE_DISTANCE, DEFAULT_SAME_SOCKET_DISTANCE, Inclusion, LoadedLatencyCurve,
    Machine, NodeId, Origin, Shape, SmtNumbering, Ways,
};

/// Prints a machine as a machine file. Costs that follow from other values are left out.
pub fn to_toml(machine: &Machine) -> String {
    let mut text = String::new();
    let mut line = |content: String| {
        text.push_str(&content);
        text.push('\n');
    };
    line(format!("name = {}", quote(machine.name())));
    if !machine.summary().is_empty() {
        line(format!("summary = {}", quote(machine.summary())));
    }
    if !machine.notes().is_empty() {
        line(format!("notes = {}", quote_list(machine.notes().iter().map(String::as_str))));
    }
    let curves = &machine.performance().memory.loaded_latency;
    if !curves.is_empty() {
        line(format!("loaded_latency = {}", quote_list(curves.iter().map(|curve| curve.name.as_str()))));
    }
    if !machine.sources().is_empty() {
        line("\n[sources]".to_owned());
        for (tag, source) in machine.sources() {
            line(format!("{} = {}", key(tag), quote(source)));
        }
    }
    text.push_str(&processor(machine));
    text.push_str(&topology(machine));
    for entry in cache_entries(machine) {
        text.push_str(&cache(&entry));
    }
    text.push_str(&value_sections(machine));
    for variant in &machine.performance().core_to_core_variants {
        let _ = writeln!(text, "\n[core_to_core_variants.{}]", key(&variant.name));
        push_origin(&mut text, &variant.origin);
        for (relation, latency) in variant.latency_ns.iter() {
            if let Some(latency) = latency {
                let _ = writeln!(text, "{} = {latency}", relation.name());
            }
        }
    }
    let built_in = crate::presets::built_in_curves().unwrap_or_default();
    for curve in curves.iter().filter(|curve| !built_in.contains(curve)) {
        text.push_str(&loaded_latency_curve(curve));
    }
    text.push_str(&core_kind_tables(machine.core_kinds()));
    text.push_str(&background_table(machine.background()));
    text
}

pub(crate) fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A key, quoted where TOML asks for it.
fn key(text: &str) -> String {
    let bare =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if bare { text.to_owned() } else { quote(text) }
}

fn quote_list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.map(quote).collect();
    format!("[{}]", quoted.join(", "))
}

/// An `origin` line, unless the origin is the one a reader assumes.
fn push_origin(text: &mut String, origin: &Origin) {
    if *origin != Origin::new(Basis::Given, "") {
        let _ = writeln!(text, "origin = {}", quote(&origin.to_string()));
    }
}

fn processor(machine: &Machine) -> String {
    let Some(processor) = machine.processor() else { return String::new() };
    let mut text = format!("\n[processor]\nvendor = \"{}\"\n", processor.vendor().name());
    if let Some(family) = processor.family() {
        let _ = writeln!(text, "family = {family}");
    }
    if let Some(model) = processor.model() {
        let _ = writeln!(text, "model = {model}");
    }
    if let Some(origin) = machine.origin(PROCESSOR) {
        push_origin(&mut text, origin);
    }
    text
}

fn topology(machine: &Machine) -> String {
    let mut text = String::from("\n[topology]\n");
    let given = Origin::new(Basis::Given, "");
    let origin = machine.origin("topology").unwrap_or(&given);
    push_origin(&mut text, origin);
    match regular(machine) {
        Some((shape, numbering, cores_per_cluster)) => {
            let _ = writeln!(text, "shape = \"{shape}\"");
            if numbering == SmtNumbering::Adjacent && shape.threads_per_core > 1 {
                text.push_str("smt_numbering = \"adjacent\"\n");
            }
            if cores_per_cluster > 1 {
                let _ = writeln!(text, "cores_per_cluster = {cores_per_cluster}");
            }
            if let Some(bytes) = machine.node_memory_bytes(NodeId(0)) {
                let _ = writeln!(text, "node_memory = \"{}\"", format_size(bytes));
            }
        }
        None => text.push_str(&listed(machine)),
    }
    if machine.has_coregroups() {
        let list = |cpus: &CpuSet| quote(&crate::format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu))));
        push_list(&mut text, "coregroups", machine.coregroups.iter().map(list).collect());
    }
    text.push_str(&capacities(machine));
    text.push_str(&priorities(machine));
    if let Some(own) = machine.origin(PRIORITIES).filter(|own| *own != origin) {
        let _ = writeln!(text, "priorities_origin = {}", quote(&own.to_string()));
    }
    text.push_str(&distances(machine));
    if let Some(own) = machine.origin(DISTANCES).filter(|own| *own != origin) {
        let _ = writeln!(text, "distances_origin = {}", quote(&own.to_string()));
    }
    if !machine.derives_reclaim_distance() {
        let _ = writeln!(text, "reclaim_distance = {}", machine.reclaim_distance());
        if let Some(own) = machine.origin(STATED_RECLAIM_DISTANCE).filter(|own| *own != origin) {
            let _ = writeln!(text, "reclaim_distance_origin = {}", quote(&own.to_string()));
        }
    }
    text
}

/// The shape, numbering and cores per cluster, when they say all about the CPUs and nodes but their capacity.
fn regular(machine: &Machine) -> Option<(Shape, SmtNumbering, u32)> {
    let (shape, numbering) = Shape::of(machine)?;
    let memories: BTreeSet<Option<u64>> = machine.nodes().map(|node| machine.node_memory_bytes(node)).collect();
    if !machine.offline_cpus().is_empty() || memories.len() > 1 {
        return None;
    }
    let first_cluster = machine.cpus_of_cluster(crate::ClusterId(0));
    let cores: BTreeSet<_> = first_cluster.iter().map(|cpu| machine.core_of(cpu)).collect();
    let cores_per_cluster = cores.len() as u32;
    let mut cpus = shape.cpus(numbering, cores_per_cluster);
    cpus.sort_by_key(|cpu| cpu.os_index);
    let same = machine.cpus().zip(&cpus).all(|(id, cpu)| machine.cluster_of(id).0 == cpu.cluster);
    same.then_some((shape, numbering, cores_per_cluster))
}

fn listed(machine: &Machine) -> String {
    let mut text = String::new();
    let list = |cpus: &CpuSet| quote(&crate::format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu))));
    if !machine.offline_cpus().is_empty() {
        let offline = crate::format_cpu_list(machine.offline_cpus().iter().copied());
        let _ = writeln!(text, "offline = \"{offline}\"");
    }
    let nodes = machine.nodes.iter().map(|node| {
        let memory =
            node.memory_bytes.map(|bytes| format!(", memory = \"{}\"", format_size(bytes))).unwrap_or_default();
        format!("{{ id = {}, cpus = {}{memory} }}", node.os_index, list(&node.cpus))
    });
    push_list(&mut text, "nodes", nodes.collect());
    let sockets =
        machine.sockets.iter().map(|socket| format!("{{ id = {}, cpus = {} }}", socket.os_index, list(&socket.cpus)));
    push_list(&mut text, "sockets", sockets.collect());
    push_list(&mut text, "llcs", machine.llc_cpus.iter().map(list).collect());
    if machine.cluster_count() != machine.core_count() {
        push_list(&mut text, "clusters", machine.cluster_cpus.iter().map(list).collect());
    }
    if machine.smt_width() > 1 {
        push_list(&mut text, "cores", machine.core_cpus.iter().map(list).collect());
    }
    text
}

fn push_list(text: &mut String, name: &str, items: Vec<String>) {
    let one_line = format!("{name} = [{}]", items.join(", "));
    if one_line.len() <= 110 {
        let _ = writeln!(text, "{one_line}");
        return;
    }
    let _ = writeln!(text, "{name} = [");
    for item in items {
        let _ = writeln!(text, "    {item},");
    }
    text.push_str("]\n");
}

fn capacities(machine: &Machine) -> String {
    let mut text = String::new();
    if machine.is_asymmetric() {
        let distinct: BTreeSet<u32> = machine.cpus().map(|cpu| machine.capacity(cpu)).collect();
        let smaller = distinct.into_iter().filter(|capacity| *capacity != crate::CAPACITY_SCALE);
        let items = smaller.map(|capacity| {
            let cpus = machine.cpus().filter(|cpu| machine.capacity(*cpu) == capacity).map(|cpu| machine.os_index(cpu));
            format!("{{ cpus = \"{}\", capacity = {capacity} }}", crate::format_cpu_list(cpus))
        });
        push_list(&mut text, "capacities", items.collect());
    }
    text
}

fn priorities(machine: &Machine) -> String {
    let mut text = String::new();
    let distinct: BTreeSet<u32> = machine.priorities.iter().copied().filter(|priority| *priority > 0).collect();
    let items = distinct.into_iter().map(|priority| {
        let cpus = machine.cpus().filter(|cpu| machine.priority(*cpu) == priority).map(|cpu| machine.os_index(cpu));
        format!("{{ cpus = \"{}\", priority = {priority} }}", crate::format_cpu_list(cpus))
    });
    if machine.has_priorities() {
        push_list(&mut text, "priorities", items.collect());
    }
    text
}

/// Distances by class where that says them all, otherwise the matrix; nothing when they are what a reader assumes.
fn distances(machine: &Machine) -> String {
    let mut text = String::new();
    let stated = machine.origin(DISTANCES).is_some();
    let between = |from: NodeId, to: NodeId| machine.node_distance(from, to);
    let pairs =
        || machine.nodes().flat_map(|from| machine.nodes().map(move |to| (from, to))).filter(|(from, to)| from != to);
    let sockets =
        |node: NodeId| -> BTreeSet<_> { machine.cpus_of_node(node).iter().map(|cpu| machine.socket_of(cpu)).collect() };
    let socket_sets: Vec<_> = machine.nodes().map(sockets).collect();
    let share = |(from, to): &(NodeId, NodeId)| !socket_sets[from.index()].is_disjoint(&socket_sets[to.index()]);
    let classes: [BTreeSet<u32>; 2] = [
        pairs().filter(share).map(|(from, to)| between(from, to)).collect(),
        pairs().filter(|pair| !share(pair)).map(|(from, to)| between(from, to)).collect(),
    ];
    if classes.iter().any(|class| class.len() > 1) {
        let rows = machine.nodes().map(|from| {
            let row: Vec<String> = machine.nodes().map(|to| between(from, to).to_string()).collect();
            format!("[{}]", row.join(", "))
        });
        push_list(&mut text, "distances", rows.collect());
        return text;
    }
    let same_socket = classes[0].first().copied().unwrap_or(DEFAULT_SAME_SOCKET_DISTANCE);
    let other_socket = classes[1].first().copied().unwrap_or(DEFAULT_REMOTE_DISTANCE);
    if stated || (same_socket, other_socket) != (DEFAULT_SAME_SOCKET_DISTANCE, DEFAULT_REMOTE_DISTANCE) {
        let _ = writeln!(text, "distance = {{ same_socket = {same_socket}, other_socket = {other_socket} }}");
    }
    text
}

fn cache(entry: &CacheTemplate) -> String {
    let mut text = String::from("\n[[cache]]\n");
    let cache = &entry.cache;
    let kind = match cache.kind {
        CacheKind::Data => "data",
        CacheKind::Instruction => "instruction",
        CacheKind::Unified => "unified",
    };
    let _ = writeln!(text, "level = {}\nkind = \"{kind}\"\nshared_by = \"{}\"", cache.level, entry.shared_by.name());
    if entry.cpus.is_some() || entry.shared_by == CacheScope::Cpus {
        let cpus = entry.cpus.iter().flatten().copied();
        let _ = writeln!(text, "cpus = \"{}\"", crate::format_cpu_list(cpus));
    }
    let _ = writeln!(text, "size = \"{}\"\nline = {}", format_size(cache.size_bytes), cache.line_bytes);
    let _ = match cache.ways {
        Ways::Unknown => Ok(()),
        Ways::Full => writeln!(text, "ways = \"full\""),
        Ways::Count(ways) => writeln!(text, "ways = {ways}"),
    };
    match cache.inclusion {
        Inclusion::Unknown => {}
        Inclusion::Inclusive => text.push_str("inclusion = \"inclusive\"\n"),
        Inclusion::Exclusive => text.push_str("inclusion = \"exclusive\"\n"),
        Inclusion::NonInclusive => text.push_str("inclusion = \"non-inclusive\"\n"),
    }
    push_origin(&mut text, &entry.origin);
    if let Some(latency_ps) = cache.latency_ps {
        let _ = writeln!(text, "latency_ns = {}", float(&decimal(latency_ps, 3)));
        if entry.latency_origin != entry.origin {
            let _ = writeln!(text, "latency_origin = {}", quote(&entry.latency_origin.to_string()));
        }
    }
    text
}

/// A decimal as a TOML float, which always has a point.
fn float(decimal: &str) -> String {
    if decimal.contains('.') { decimal.to_owned() } else { format!("{decimal}.0") }
}

/// The sections of named numbers.
fn value_sections(machine: &Machine) -> String {
    let (mut performance, mut costs) = (machine.performance().clone(), machine.costs().clone());
    let mut implied = std::collections::BTreeMap::new();
    let (mut default, default_origins) = default_costs(&performance);
    each_value(&mut performance.clone(), &mut default, &mut |name, slot| {
        if let Some(origin) = default_origins.get(name) {
            implied.insert(name.to_owned(), (slot.get(), origin.clone()));
        }
    });
    let given = Origin::new(Basis::Given, "");
    let mut values: Vec<(String, Unit, Quantity, Origin)> = Vec::new();
    each_value(&mut performance, &mut costs, &mut |name, slot: Slot<'_>| {
        let origin = machine.origin(name).unwrap_or(&given);
        let is_implied = implied.get(name).is_some_and(|known| *known == (slot.get(), origin.clone()));
        if let Some(quantity) = slot.get().filter(|_| !is_implied) {
            values.push((name.to_owned(), slot.unit(), quantity, origin.clone()));
        }
    });
    let mut text = String::new();
    for section in VALUE_SECTIONS {
        let members: Vec<_> = values.iter().filter(|(name, ..)| name.split('.').next() == Some(section)).collect();
        let Some((_, _, _, first_origin)) = members.first() else { continue };
        let common = Origin { spread: None, ..first_origin.clone() };
        let _ = writeln!(text, "\n[{section}]");
        push_origin(&mut text, &common);
        for (name, unit, quantity, origin) in members {
            let key = &name[section.len() + 1..];
            let _ = writeln!(text, "{key} = {}", value(*unit, *quantity, origin, &common));
        }
    }
    text
}

/// A bare number where the section's origin holds, otherwise a table.
fn value(unit: Unit, quantity: Quantity, origin: &Origin, common: &Origin) -> String {
    let number = |quantity: u64| unit.write(quantity);
    let bare = match quantity {
        Quantity::Number(quantity) => number(quantity),
        Quantity::Unlimited => quote("unlimited"),
    };
    if origin == common {
        return bare;
    }
    let spread = origin.spread.map(|(low, high)| format!(", low = {}, high = {}", number(low), number(high)));
    let own = Origin { spread: None, ..origin.clone() };
    let own = if own == *common { String::new() } else { format!(", origin = {}", quote(&own.to_string())) };
    format!("{{ value = {bare}{}{own} }}", spread.unwrap_or_default())
}

fn loaded_latency_curve(curve: &LoadedLatencyCurve) -> String {
    let mut text = String::from("\n[[loaded_latency_curve]]\n");
    let _ = writeln!(text, "name = {}\nread_percent = {}", quote(&curve.name), curve.read_percent);
    let _ = writeln!(text, "max_gb_per_s = {}", float(&decimal(curve.max_mb_per_s, 3)));
    let numbers = |numbers: Vec<u32>| -> String {
        let numbers: Vec<String> = numbers.iter().map(|number| float(&decimal(u64::from(*number), 3))).collect();
        numbers.join(", ")
    };
    let _ = writeln!(
        text,
        "utilisation = [{}]",
        numbers(curve.points.iter().map(|(utilisation, _)| *utilisation).collect())
    );
    let _ = writeln!(text, "factor = [{}]", numbers(curve.points.iter().map(|(_, factor)| *factor).collect()));
    push_origin(&mut text, &curve.origin);
    text
}
