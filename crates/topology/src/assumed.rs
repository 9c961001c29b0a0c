//! What of a machine's figures nobody measured, and the machine with such a figure changed: for studies of what a result rests on.
//!
//! Figures that only make sense together, such as the latencies of memory by distance, are one [`Assumption`]. A figure belongs to one
//! if its origin is `assumed` or `recalled`, or if it is derived by an assumed rule, as the cost of a migration is.

use std::collections::BTreeSet;

use crate::cache_entries::cache_entries;
use crate::fields::{Quantity, Unit, each_value};
use crate::figures::check_figures;
use crate::{Basis, CacheKind, Costs, CpuSet, Machine, Origin, Performance, Relation};

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
#[must_use]
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
    found.retain(|assumption| !assumption.values.is_empty());
    found
}

fn rests_on_nothing(origin: &Origin) -> bool {
    matches!(origin.basis, Basis::Assumed | Basis::Recalled)
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
    /// and a farther CPU is never nearer than a near one.
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
#[must_use]
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
    let known = || GROUPS.iter().map(|(name, _)| *name).chain([CACHE_LATENCY]);
    let (name, factor) =
        change.rsplit_once(" x ").ok_or_else(|| format!("`{change}` is no change; write `wakeup x 1.3`"))?;
    if !known().any(|of| of == name) {
        let near = crate::nearest(name, known()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(format!("nothing that is assumed is called `{name}`{near}"));
    }
    let factor = factor.parse().ok().filter(|factor: &f64| (0.01..=100.0).contains(factor));
    let factor = factor.ok_or_else(|| format!("`{change}`: a factor is a number from 0.01 to 100"))?;
    let found = assumptions(machine).into_iter().find(|assumption| assumption.name == name);
    found.map(|assumption| assumption.scaled(machine, factor)).transpose()
}

/// A machine with these CPUs alone online.
///
/// # Errors
/// When its description names the others beside its shape: those of listed layouts, of capacities and of background threads.
pub fn keep_cpus(machine: &Machine, cpus: &CpuSet) -> Result<Machine, String> {
    let mut file: toml::Table = crate::to_toml(machine).parse().map_err(|error: toml::de::Error| error.to_string())?;
    let left_out = machine.cpus().filter(|cpu| !cpus.contains(*cpu)).map(|cpu| machine.os_index(cpu));
    let offline: BTreeSet<u32> = left_out.chain(machine.offline_cpus().iter().copied()).collect();
    let layout = file.get_mut("topology").and_then(toml::Value::as_table_mut);
    layout.ok_or("it has no CPUs")?.insert("offline".into(), crate::format_cpu_list(offline).into());
    crate::from_toml(&file.to_string()).map_err(|error| error.to_string())
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
            [("wakeups x 2", "did you mean `wakeup`?"), ("wakeup x fast", "a factor is"), ("wakeup", "is no change")]
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
