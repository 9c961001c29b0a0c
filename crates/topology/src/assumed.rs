//! What of a machine's figures nobody measured, and the machine with such a figure changed: for studies of what a result rests on.
//!
//! Figures that only make sense together, such as the latencies of memory by distance, are one [`Assumption`]. A figure belongs to one
//! if its origin is `assumed` or `recalled`, or if it is derived by an assumed rule, as the cost of a migration is.

use std::collections::BTreeSet;

use crate::build::DISTANCES;
use crate::cache_entries::cache_entries;
use crate::fields::{Quantity, Unit, each_value};
use crate::figures::check_figures;
use crate::{
    Basis, CacheKind, Costs, CpuSet, LOCAL_DISTANCE, MAX_DISTANCE, Machine, NodeId, Origin, Performance, Relation,
};

/// Name for people, and the names of the values that belong together; one that ends with a point stands for a table.
const GROUPS: [(&str, &[&str]); 21] = [
    ("context switch", &["costs.context_switch_ns"]),
    ("wakeup", &["costs.wakeup_ns"]),
    ("interrupt of another CPU", &["costs.ipi_ns."]),
    ("idle exit", &["costs.idle_exit_ns"]),
    ("migration", &["costs.migration_ns."]),
    ("core-to-core latency", &["core_to_core_ns.", LINE_TRANSFER]),
    ("memory latency", &["memory.local_ns", "memory.same_socket_ns", "memory.other_socket_ns", "memory.far_socket_ns"]),
    (
        "memory bandwidth",
        &[
            "memory.socket_read_gb_per_s",
            "memory.socket_mixed_gb_per_s",
            "memory.socket_link_gb_per_s",
            "memory.node_link_gb_per_s",
            "memory.llc_port_gb_per_s",
            "memory.cluster_port_gb_per_s",
            "memory.core_port_gb_per_s",
            "memory.core_llc_read_gb_per_s",
            "memory.thread_local_read_gb_per_s",
            "memory.thread_remote_read_gb_per_s",
        ],
    ),
    ("tick", &["costs.tick_ns"]),
    ("preemption timer", &["costs.hrtick_ns"]),
    ("timer interrupt", &["costs.timer_ns", "costs.timer_late_ns"]),
    ("system call", &["costs.syscall_ns", "costs.page_fault_ns"]),
    ("futex", &["costs.futex_ns"]),
    ("pipe message", &["costs.pipe_message_ns"]),
    ("socket message", &["costs.socket_message_ns"]),
    ("lines of a message or futex", &["costs.message_lines", "costs.socket_message_lines", "costs.futex_lines"]),
    ("locked part of a message", &["costs.pipe_locked_percent", "costs.socket_locked_percent"]),
    ("payload of a message", &["costs.pipe_payload_percent", "costs.socket_payload_percent"]),
    ("fork and exit", &["costs.fork_ns", "costs.exit_ns"]),
    ("load balancing", &["costs.balance_base_ns", "costs.balance_per_cpu_ns"]),
    ("busy sibling", &[SMT_SLOWDOWN]),
];

/// Name of the latencies of caches, which stand in no section of named values.
const CACHE_LATENCY: &str = "cache latency";

/// Name of the node distances, which are one table.
const NODE_DISTANCE: &str = "node distance";

/// A table that is the core-to-core latencies, and no assumption where those are none.
const LINE_TRANSFER: &str = "costs.line_transfer_ns.";

/// No assumption on a machine whose cores have one thread.
const SMT_SLOWDOWN: &str = "costs.smt_slowdown_percent";

/// The most that a share in percent can be.
const WHOLE_PERCENT: u64 = 100;

/// Figures of a machine that nobody measured, and that are changed together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assumption {
    /// For people, such as `migration`.
    pub name: &'static str,
    /// The values by their names in the TOML format, such as `costs.migration_ns.same_llc`. Not empty.
    pub values: Vec<String>,
}

/// Everything of a machine's figures that nobody measured.
pub fn assumptions(machine: &Machine) -> Vec<Assumption> {
    let (mut performance, mut costs) = (machine.performance.clone(), machine.costs.clone());
    let mut assumed: Vec<String> = Vec::new();
    each_value(&mut performance, &mut costs, &mut |name, slot| {
        if slot.get().is_some_and(|quantity| quantity != Quantity::Number(0)) && is_assumed(machine, name) {
            assumed.push(name.to_owned());
        }
    });
    let belongs = |name: &str, key: &str| if key.ends_with('.') { name.starts_with(key) } else { name == key };
    let mut found: Vec<Assumption> = GROUPS
        .iter()
        .map(|(name, keys)| {
            let of_group = |value: &&String| keys.iter().any(|key| belongs(value, key));
            Assumption { name, values: assumed.iter().filter(of_group).cloned().collect() }
        })
        .collect();
    let latencies = cache_entries(machine).into_iter().filter(|entry| entry.cache.latency_ps.is_some());
    let of_caches = latencies.filter(|entry| rests_on_nothing(&entry.latency_origin));
    let values = of_caches.map(|entry| format!("{}.latency_ns", entry.value_name())).collect();
    found.push(Assumption { name: CACHE_LATENCY, values });
    if rests_on_distances(machine) {
        found.push(Assumption { name: NODE_DISTANCE, values: vec![DISTANCES.to_owned()] });
    }
    found.retain(|assumption| !assumption.values.is_empty());
    found
}

fn rests_on_nothing(origin: &Origin) -> bool {
    matches!(origin.basis, Basis::Assumed | Basis::Recalled)
}

/// Whether the distances between sockets were assumed, and decide something: a kernel for which no other node is near does the same at any
/// distance, and nodes of one socket are near on all machines.
fn rests_on_distances(machine: &Machine) -> bool {
    let unknown = machine.origin(DISTANCES).is_none_or(rests_on_nothing);
    unknown && machine.reclaim_distance() > LOCAL_DISTANCE && distances_between_sockets(machine).next().is_some()
}

/// The distances of nodes whose CPUs are in different sockets.
fn distances_between_sockets(machine: &Machine) -> impl Iterator<Item = u32> {
    let pairs = machine.nodes().flat_map(move |from| machine.nodes().map(move |to| (from, to)));
    let apart = move |(from, to): &(NodeId, NodeId)| {
        let cpus = (machine.cpus_of_node(*from).first(), machine.cpus_of_node(*to).first());
        matches!(cpus, (Some(from), Some(to)) if machine.socket_of(from) != machine.socket_of(to))
    };
    pairs.filter(apart).map(move |(from, to)| machine.node_distance(from, to))
}

/// Node distances times a factor, in what they exceed the local one by, and on the other side of the reclaim distance: sockets are within it
/// with a factor below 1, and beyond it with one above. A node that is farther than another stays so, as far as whole numbers allow.
fn scaled_distances(machine: &Machine, factor: f64) -> Vec<u32> {
    let local = f64::from(LOCAL_DISTANCE);
    let reclaim = f64::from(machine.reclaim_distance());
    let nearest = distances_between_sockets(machine).min().map_or(local, f64::from);
    let farthest = distances_between_sockets(machine).max().map_or(local, f64::from);
    let (factor, shift) = if factor < 1.0 {
        (factor.min((reclaim - local) / (farthest - local).max(1.0)), 0.0)
    } else {
        (factor, (reclaim + 1.0 - (local + (nearest - local) * factor)).max(0.0))
    };
    let least = f64::from(LOCAL_DISTANCE + 1);
    let changed = |distance: u32| {
        let distance = f64::from(distance);
        let shift = if distance < nearest { 0.0 } else { shift };
        (local + (distance - local) * factor + shift).round().clamp(least, f64::from(MAX_DISTANCE)) as u32
    };
    machine
        .distances
        .iter()
        .map(|&distance| if distance > LOCAL_DISTANCE { changed(distance) } else { distance })
        .collect()
}

fn is_assumed(machine: &Machine, name: &str) -> bool {
    if name == SMT_SLOWDOWN && machine.smt_width() == 1 {
        return false;
    }
    let Some(origin) = machine.origin(name) else { return false };
    // Handing a line over is the core-to-core latency itself where that is known.
    let known = name.strip_prefix(LINE_TRANSFER).and_then(|relation| {
        let stated = Relation::ALL.into_iter().find(|known| known.name() == relation)?;
        machine.performance.core_to_core_ns[stated]?;
        machine.origin(&format!("core_to_core_ns.{relation}"))
    });
    match known {
        Some(origin) if machine.origin(name).is_some_and(|own| own.basis == Basis::Derived) => rests_on_nothing(origin),
        _ => rests_on_nothing(origin) || (origin.basis == Basis::Derived && name.starts_with("costs.")),
    }
}

impl Assumption {
    /// The machine with these figures times a factor; the others are as they were. Whole numbers are rounded, shares are at most 100 %,
    /// and a farther CPU is never nearer than a near one. Sockets are within the reclaim distance with a factor below 1, and beyond it with
    /// one above.
    ///
    /// # Errors
    /// When the machine would be impossible, such as with memory that is faster than a cache; the reason names both figures.
    pub fn scaled(&self, machine: &Machine, factor: f64) -> Result<Machine, String> {
        let mut machine = machine.clone();
        let (mut performance, mut costs) = (machine.performance.clone(), machine.costs.clone());
        each_value(&mut performance, &mut costs, &mut |name, slot| {
            if self.values.iter().any(|value| value == name)
                && let Some(Quantity::Number(number)) = slot.get()
            {
                let is_share = name.ends_with("_percent") && slot.unit() != Unit::Growth;
                let most = if is_share { WHOLE_PERCENT } else { slot.unit().most() };
                slot.set(Quantity::Number(times(number, factor).clamp(1, most)));
            }
        });
        in_order(&mut performance, &mut costs);
        if self.name == CACHE_LATENCY {
            let entries = cache_entries(&machine);
            let assumed = |level: u8, kind: CacheKind| {
                let mut same = entries.iter().filter(|entry| (entry.cache.level, entry.cache.kind) == (level, kind));
                same.any(|entry| self.values.contains(&format!("{}.latency_ns", entry.value_name())))
            };
            for cache in machine.caches.iter_mut().filter(|cache| assumed(cache.level, cache.kind)) {
                cache.latency_ps =
                    cache.latency_ps.map(|latency| times(latency, factor).clamp(1, Unit::Picoseconds.most()));
            }
        }
        if self.name == NODE_DISTANCE {
            machine.set_distances(scaled_distances(&machine, factor));
        }
        let note = Origin::new(Basis::Given, format!("times {factor}"));
        machine.origins.extend(self.values.iter().map(|name| (name.clone(), note.clone())));
        (machine.performance, machine.costs) = (performance, costs);
        check_figures(&machine.performance, &machine.costs, &cache_entries(&machine))?;
        Ok(machine)
    }
}

/// What names another of a machine's own core-to-core tables.
const TABLE: &str = "core-to-core table ";

/// Every change of what of a machine rests on nothing, as [`changed`] reads it: its other core-to-core tables, and every assumption times
/// each factor.
pub fn changes(machine: &Machine, factors: &[f64]) -> Vec<String> {
    let tables = machine.performance.core_to_core_variants.iter().map(|variant| format!("{TABLE}{}", variant.name));
    let scaled = |factor: &f64| {
        let factor = *factor;
        assumptions(machine).into_iter().map(move |assumption| format!("{} x {factor}", assumption.name))
    };
    tables.chain(factors.iter().flat_map(scaled)).collect()
}

/// A machine with a change: `wakeup x 1.3`, an [`Assumption`] times a factor, or `core-to-core table NAME`; nothing if that is none of this
/// machine's.
///
/// # Errors
/// When the text is no change, or the machine would be impossible.
pub fn changed(machine: &Machine, change: &str) -> Result<Option<Machine>, String> {
    if let Some(name) = change.strip_prefix(TABLE) {
        let mut file: toml::Table =
            crate::to_toml(machine).parse().map_err(|error: toml::de::Error| error.to_string())?;
        let table = file.get("core_to_core_variants").and_then(|tables| tables.get(name)).cloned();
        let Some(table) = table else { return Ok(None) };
        file.insert("core_to_core_ns".into(), table);
        return crate::from_toml(&file.to_string()).map(Some).map_err(|error| error.to_string());
    }
    let known = || GROUPS.iter().map(|(name, _)| *name).chain([CACHE_LATENCY, NODE_DISTANCE]);
    let (name, factor) =
        change.rsplit_once(" x ").ok_or_else(|| format!("`{change}` is not a change; write `wakeup x 1.3`"))?;
    if !known().any(|of| of == name) {
        let near = crate::nearest(name, known()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(format!("nothing that is assumed is called `{name}`{near}"));
    }
    let factor = factor.parse().ok().filter(|factor: &f64| (0.01..=100.0).contains(factor));
    let factor = factor.ok_or_else(|| format!("`{change}`: a factor is a number from 0.01 to 100"))?;
    let found = assumptions(machine).into_iter().find(|assumption| assumption.name == name);
    found.map(|assumption| assumption.scaled(machine, factor)).transpose()
}

/// A machine with these CPUs alone online. All nodes stay, with their memory and distances. A group, a cache, a kind of cores or a background
/// thread that has none of these CPUs goes.
///
/// # Errors
/// When there are none, or none of the biggest ones is among them.
pub fn keep_cpus(machine: &Machine, cpus: &CpuSet) -> Result<Machine, String> {
    let mut file: toml::Table = crate::to_toml(machine).parse().map_err(|error: toml::de::Error| error.to_string())?;
    let left_out = machine.cpus().filter(|cpu| !cpus.contains(*cpu)).map(|cpu| machine.os_index(cpu));
    let left_out: BTreeSet<u32> = left_out.collect();
    for name in ["cache", "core_kind"] {
        take_out(&mut file, name, "cpus", &left_out);
    }
    if let Some(background) = file.get_mut("background").and_then(toml::Value::as_table_mut) {
        for name in ["thread", "interrupt"] {
            take_out(background, name, "on", &left_out);
        }
    }
    let topology = file.get_mut("topology").and_then(toml::Value::as_table_mut).ok_or("it has no CPUs")?;
    for name in ["sockets", "llcs", "clusters", "cores", "coregroups", "capacities", "priorities"] {
        take_out(topology, name, "cpus", &left_out);
    }
    for node in topology.get_mut("nodes").and_then(toml::Value::as_array_mut).into_iter().flatten() {
        if let Some(list) = node.as_table_mut().and_then(|node| node.get_mut("cpus")) {
            has_others(list, &left_out);
        }
    }
    state_distances(machine, cpus, topology);
    let offline = left_out.iter().chain(machine.offline_cpus()).copied();
    topology.insert("offline".into(), crate::format_cpu_list(offline).into());
    crate::from_toml(&file.to_string()).map_err(|error| error.to_string())
}

/// Takes CPUs out of the entries of a list in a machine file, and entries out that are of no others. An entry is a list of CPUs, or a table
/// with one under `key`; a table without it is of all CPUs.
fn take_out(table: &mut toml::Table, name: &str, key: &str, left_out: &BTreeSet<u32>) {
    let Some(toml::Value::Array(entries)) = table.get_mut(name) else { return };
    entries.retain_mut(|entry| match entry {
        toml::Value::Table(entry) => entry.get_mut(key).is_none_or(|list| has_others(list, left_out)),
        list => has_others(list, left_out),
    });
    if entries.is_empty() {
        table.remove(name);
    }
}

/// Takes CPUs out of a text that lists some. Whether it lists others, or is no list but a word such as `each-cpu`.
fn has_others(list: &mut toml::Value, left_out: &BTreeSet<u32>) -> bool {
    let toml::Value::String(text) = list else { return true };
    let Ok(cpus) = crate::parse_cpu_list(text) else { return true };
    *text = crate::format_cpu_list(cpus.difference(left_out).copied());
    !text.is_empty()
}

/// Writes the distances of a machine out where a node loses its last CPU of a socket: nothing says that it is near the socket's others then.
fn state_distances(machine: &Machine, kept: &CpuSet, topology: &mut toml::Table) {
    let sockets = |cpus: &CpuSet| cpus.iter().map(|cpu| machine.socket_of(cpu)).collect::<BTreeSet<crate::SocketId>>();
    let is_moved = |node: NodeId| {
        let cpus = machine.cpus_of_node(node);
        sockets(cpus) != sockets(&cpus.intersection(kept))
    };
    if topology.contains_key("distances") || !machine.nodes().any(is_moved) {
        return;
    }
    let row = |from: NodeId| -> toml::Value {
        machine.nodes().map(|to| i64::from(machine.node_distance(from, to))).collect::<Vec<i64>>().into()
    };
    topology.remove("distance");
    topology.insert("distances".into(), machine.nodes().map(row).collect::<Vec<toml::Value>>().into());
    if machine.origin(DISTANCES).is_none() {
        topology.insert("distances_origin".into(), "assumed".into());
    }
}

/// A number times a factor, in whole units.
fn times(number: u64, factor: f64) -> u64 {
    (number as f64 * factor).round() as u64
}

/// A farther CPU is never nearer: raises latencies that a change left below a nearer one's.
fn in_order(performance: &mut Performance, costs: &mut Costs) {
    let (mut stated, mut lines) = (0, 0);
    for relation in Relation::ALL.into_iter().skip(1) {
        if let Some(latency) = &mut performance.core_to_core_ns[relation] {
            *latency = stated.max(*latency);
            stated = *latency;
        }
        let line = &mut costs.line_transfer_ns[relation];
        *line = lines.max(*line);
        lines = *line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{from_toml, presets, resolve, to_toml};

    fn named(machine: &Machine, name: &str) -> Option<Assumption> {
        assumptions(machine).into_iter().find(|assumption| assumption.name == name)
    }

    #[test]
    fn what_was_measured_is_no_assumption_and_what_follows_by_an_assumed_rule_is_one() {
        let genoa = resolve("genoa96").unwrap();
        // Its core-to-core table and its latencies of memory have sources; what a migration costs is computed from the table.
        let latency = named(&genoa, "core-to-core latency").unwrap();
        assert!(!latency.values.iter().any(|value| value.ends_with("same_llc")), "{latency:?}");
        assert!(named(&genoa, "memory latency").is_none() && named(&genoa, CACHE_LATENCY).is_none());
        assert_eq!(named(&genoa, "memory bandwidth").unwrap().values, ["memory.socket_link_gb_per_s"]);
        assert!(named(&genoa, "migration").unwrap().values.contains(&"costs.migration_ns.same_llc".to_owned()));
        let generic = resolve("2s1n2l4c1t").unwrap();
        for name in ["context switch", "core-to-core latency", "memory latency", "memory bandwidth", CACHE_LATENCY] {
            assert!(named(&generic, name).is_some(), "{name}");
        }
    }

    #[test]
    fn what_a_user_gives_is_no_assumption() {
        let text = to_toml(&resolve("1s1n2l4c1t").unwrap());
        let given = from_toml(&format!("{text}\n[costs]\norigin = \"given\"\nwakeup_ns = 900\n")).unwrap();
        assert!(named(&given, "wakeup").is_none() && named(&given, "context switch").is_some());
    }

    #[test]
    fn a_changed_figure_changes_alone_and_the_machine_can_be_written_and_read() {
        let before = resolve("2s1n2l4c1t").unwrap();
        let after = named(&before, "migration").unwrap().scaled(&before, 0.5).unwrap();
        let relation = Relation::OtherSocket;
        assert_eq!(after.costs().migration_ns[relation] * 2, before.costs().migration_ns[relation]);
        assert_eq!(after.costs().wakeup_ns, before.costs().wakeup_ns);
        assert_eq!(from_toml(&to_toml(&after)).unwrap(), after);
        let doubled = named(&before, "wakeup").unwrap().scaled(&before, 2.0).unwrap();
        assert_eq!(doubled.costs().wakeup_ns, 2 * before.costs().wakeup_ns);
    }

    #[test]
    fn a_change_is_named_by_a_text_and_nothing_where_a_machine_has_no_such() {
        let machine = resolve("hygon384").unwrap();
        let named_ = |change: &str| changed(&machine, change);
        assert_eq!(
            named_("wakeup x 2").unwrap(),
            Some(named(&machine, "wakeup").unwrap().scaled(&machine, 2.0).unwrap())
        );
        let naples = named_("core-to-core table naples").unwrap().unwrap();
        assert_eq!(naples.costs().line_transfer_ns[Relation::OtherSocket], 368);
        assert_eq!(named_("core-to-core table venice"), Ok(None));
        assert_eq!(changed(&resolve("genoa96").unwrap(), "cache latency x 2"), Ok(None), "it was measured");
        for (change, words) in
            [("wakeups x 2", "did you mean `wakeup`?"), ("wakeup x fast", "a factor is"), ("wakeup", "is not a change")]
        {
            assert!(named_(change).unwrap_err().contains(words), "{change}: {:?}", named_(change));
        }
        let all = changes(&machine, &[0.7, 1.3]);
        assert!(
            all.contains(&"core-to-core table naples".to_owned()) && all.contains(&"wakeup x 0.7".to_owned()),
            "{all:?}"
        );
        // Each is a machine, or says why not.
        all.iter().for_each(|change| assert!(!matches!(named_(change), Ok(None)), "{change}"));
    }

    /// Linux places tasks on another socket up to the reclaim distance only, so an assumed distance is tried on both sides of it.
    #[test]
    fn assumed_distances_between_sockets_are_tried_on_both_sides_of_the_reclaim_distance() {
        let machines = [
            resolve("hygon384").unwrap(),
            resolve("genoa96").unwrap(),
            resolve("opteron32").unwrap(),
            resolve("2s2n1l4c1t").unwrap(),
            from_toml("[topology]\nshape = \"2s1n1l2c1t\"").unwrap(),
            from_toml("base = \"genoa96\"\n[topology]\nshape = \"2s1n1l2c\"\ndistance = { other_socket = 90 }\ndistances_origin = \"assumed\"")
                .unwrap(),
        ];
        for machine in machines {
            let (name, reclaim) = (machine.name(), machine.reclaim_distance());
            let distances = named(&machine, NODE_DISTANCE).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(distances.values, [DISTANCES]);
            for factor in [0.7, 0.99, 1.0, 1.3] {
                let changed = distances.scaled(&machine, factor).unwrap();
                let far = |distance| distance > reclaim;
                assert!(distances_between_sockets(&changed).all(|d| far(d) == (factor >= 1.0)), "{name} x {factor}");
                assert!(from_toml(&to_toml(&changed)).unwrap() == changed, "{name} x {factor}");
                let mut both: Vec<(u32, u32)> =
                    machine.distances.iter().copied().zip(changed.distances.clone()).collect();
                both.sort_unstable();
                assert!(both.is_sorted_by_key(|(_, after)| *after), "{name} x {factor}: {both:?}");
            }
        }
        let change = changed(&resolve("hygon384").unwrap(), "node distance x 1.3").unwrap().unwrap();
        assert!(distances_between_sockets(&change).all(|distance| distance > 30));
        // What has a source, nodes of one socket, and POWER, for which every other node is far, are none.
        let power = format!("{}\n[processor]\nvendor = \"power\"\n", to_toml(&resolve("2s1n1l2c1t").unwrap()));
        for machine in [
            resolve("grace144").unwrap(),
            resolve("naples32").unwrap(),
            resolve("1s2n1l4c1t").unwrap(),
            from_toml(&power).unwrap(),
        ] {
            assert_eq!(named(&machine, NODE_DISTANCE), None, "{}", machine.name());
        }
    }

    #[test]
    fn every_assumption_of_every_preset_halved_and_doubled_is_a_machine_or_says_why_not() {
        for preset in presets() {
            let machine = resolve(&preset.name).unwrap();
            for assumption in assumptions(&machine) {
                for factor in [0.5, 2.0] {
                    match assumption.scaled(&machine, factor) {
                        Ok(changed) => assert_ne!(changed, machine, "{}: {assumption:?}", preset.name),
                        Err(reason) => assert!(reason.contains("more than") || reason.contains("slower"), "{reason}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_share_is_at_most_the_whole_and_a_far_cpu_no_nearer_than_a_near_one() {
        let machine = resolve("2s1n2l4c1t").unwrap();
        let locked = named(&machine, "locked part of a message").unwrap().scaled(&machine, 5.0).unwrap();
        assert_eq!(locked.costs().pipe_locked_percent, 100);
        let genoa = resolve("genoa96").unwrap();
        let near = named(&genoa, "core-to-core latency").unwrap().scaled(&genoa, 0.01).unwrap();
        assert!(near.costs().line_transfer_ns.0.is_sorted(), "{:?}", near.costs().line_transfer_ns);
    }
}
