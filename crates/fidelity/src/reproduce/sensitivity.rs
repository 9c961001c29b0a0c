//! What a conclusion rests on: the same rows again with an assumed parameter 30 % smaller and larger, and with the
//! other core-to-core tables that a machine comes with.
//!
//! Most numbers of a machine that nobody published are assumed. A reproduction is worth something if its *conclusions*
//! (inside or outside of the band; which side of 1) do not hang on one of them. Parameters that only make sense
//! together, such as the latencies to all other LLCs, are varied together.

use serde::Serialize;
use toml::{Table, Value};
use warmcore_topology::Machine;
use warmcore_workload::Workload;

use crate::reproduce::document::{CheckVerdict, ReproductionDocument};
use warmcore_lab::experiment::TOOL_VERSION;

/// Version of the document.
pub const SCHEMA: &str = "warmcore-sensitivity-1";

/// Factors that assumed parameters are multiplied by.
const FACTORS: [f64; 2] = [0.7, 1.3];

/// Parameters of machines that are varied together: name, section of the machine's file, keys.
const GROUPS: [(&str, &str, &[&str]); 9] = [
    ("core to core, inside an LLC", "core_to_core_ns", &["smt_sibling", "same_cluster", "same_llc"]),
    ("core to core, other LLCs", "core_to_core_ns", &["same_node", "same_socket", "other_socket", "far_socket"]),
    ("memory latencies", "memory", &["local_ns", "same_socket_ns", "other_socket_ns", "far_socket_ns"]),
    (
        "memory bandwidths",
        "memory",
        &[
            "socket_read_gb_per_s",
            "socket_mixed_gb_per_s",
            "socket_link_gb_per_s",
            "node_link_gb_per_s",
            "llc_port_gb_per_s",
        ],
    ),
    ("costs of messages", "costs", &["syscall_ns", "pipe_message_ns", "socket_message_ns", "futex_ns"]),
    ("lines of messages and locks", "costs", &["message_lines", "socket_message_lines", "futex_lines"]),
    ("time under locks of pipes and sockets", "costs", &["pipe_locked_percent", "socket_locked_percent"]),
    ("payload's part of messages", "costs", &["pipe_payload_percent", "socket_payload_percent"]),
    ("costs of wakeups and switches", "costs", &["wakeup_ns", "context_switch_ns", "idle_exit_ns"]),
];

/// One change of the machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Variation {
    /// What is changed, and how.
    pub name: String,
    change: Change,
}

#[derive(Clone, PartialEq, Debug)]
enum Change {
    /// Another of the machine's core-to-core tables.
    Variant(String),
    /// Numbers of a section times a factor.
    Scale { section: &'static str, keys: &'static [&'static str], factor: f64 },
    /// Latency or size of the last-level cache times a factor.
    LastLevelCache { size: bool, factor: f64 },
    /// Of the workload: looks at latches, and lines of the data behind them, times a factor.
    Latches { factor: f64 },
}

/// Why a machine cannot be varied.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot change {what} of {machine}: {reason}")]
pub struct VariationError {
    what: String,
    machine: String,
    reason: String,
}

/// All variations of a machine: its other core-to-core tables, and every group of parameters it has.
#[must_use]
pub fn variations(machine: &Machine) -> Vec<Variation> {
    let mut found: Vec<Variation> = machine
        .performance()
        .core_to_core_variants
        .iter()
        .map(|variant| Variation {
            name: format!("core-to-core table {}", variant.name),
            change: Change::Variant(variant.name.clone()),
        })
        .collect();
    for factor in FACTORS {
        for (name, section, keys) in GROUPS {
            found.push(Variation {
                name: format!("{name} x {factor}"),
                change: Change::Scale { section, keys, factor },
            });
        }
        for (name, size) in [("latency of the last-level cache", false), ("size of the last-level cache", true)] {
            found.push(Variation {
                name: format!("{name} x {factor}"),
                change: Change::LastLevelCache { size, factor },
            });
        }
        found.push(Variation {
            name: format!("looks at latches and lines behind them x {factor}"),
            change: Change::Latches { factor },
        });
    }
    found
}

impl Variation {
    /// The machine with the change.
    ///
    /// # Errors
    /// When the change makes the machine impossible, such as memory that is faster than a cache.
    pub fn apply(&self, machine: &Machine) -> Result<Machine, VariationError> {
        let error =
            |reason: String| VariationError { what: self.name.clone(), machine: machine.name().to_owned(), reason };
        let mut file: Table = warmcore_topology::to_toml(machine)
            .parse()
            .map_err(|problem: toml::de::Error| error(problem.to_string()))?;
        match &self.change {
            Change::Variant(name) => {
                let table = file.get("core_to_core_variants").and_then(|tables| tables.get(name)).cloned();
                let table = table.ok_or_else(|| error("it has no such table".into()))?;
                file.insert("core_to_core_ns".into(), table);
            }
            Change::Scale { section, keys, factor } => scale_section(&mut file, machine, section, keys, *factor),
            Change::LastLevelCache { size, factor } => scale_cache(&mut file, *size, *factor),
            Change::Latches { .. } => {}
        }
        warmcore_topology::from_toml(&file.to_string()).map_err(|problem| error(problem.to_string()))
    }
}

impl Variation {
    /// Makes the change to a workload, if it is one of workloads.
    pub fn apply_to(&self, workload: &mut Workload) {
        let Change::Latches { factor } = self.change else { return };
        let scaled = |number: u64| (number as f64 * factor).round() as u64;
        for latch in &mut workload.latches {
            (latch.spin_ns, latch.poll_ns) = (scaled(latch.spin_ns), scaled(latch.poll_ns));
            latch.lines = scaled(latch.lines.into()) as u32;
        }
    }
}

/// Multiplies numbers of a section; those the file leaves to the defaults are written down first.
fn scale_section(file: &mut Table, machine: &Machine, section: &str, keys: &[&str], factor: f64) {
    let table = file.entry(section).or_insert_with(|| Value::Table(Table::new()));
    let Value::Table(table) = table else { return };
    if section == "costs" {
        let costs = machine.costs();
        for (key, value) in [
            ("syscall_ns", costs.syscall_ns),
            ("pipe_message_ns", costs.pipe_message_ns),
            ("socket_message_ns", costs.socket_message_ns),
            ("futex_ns", costs.futex_ns),
            ("wakeup_ns", costs.wakeup_ns),
            ("context_switch_ns", costs.context_switch_ns),
            ("idle_exit_ns", costs.idle_exit_ns),
            ("message_lines", costs.message_lines.into()),
            ("socket_message_lines", costs.socket_message_lines.into()),
            ("futex_lines", costs.futex_lines.into()),
            ("pipe_locked_percent", costs.pipe_locked_percent.into()),
            ("socket_locked_percent", costs.socket_locked_percent.into()),
            ("pipe_payload_percent", costs.pipe_payload_percent.into()),
            ("socket_payload_percent", costs.socket_payload_percent.into()),
        ] {
            table.entry(key).or_insert(Value::Integer(value as i64));
        }
        table.entry("origin").or_insert(Value::String("assumed".into()));
    }
    for key in keys {
        if let Some(value) = table.get_mut(*key) {
            scale(value, factor);
        }
    }
    if section == "core_to_core_ns" {
        keep_order(table);
    }
}

/// Core-to-core latencies from near to far.
const NEAR_TO_FAR: [&str; 7] =
    ["smt_sibling", "same_cluster", "same_llc", "same_node", "same_socket", "other_socket", "far_socket"];

/// A farther CPU is never nearer: raises latencies that a change left below a nearer one's.
fn keep_order(table: &mut Table) {
    let mut least = 0.0;
    for key in NEAR_TO_FAR {
        let Some(entry) = table.get_mut(key) else { continue };
        let number = |value: &Value| value.as_float().or(value.as_integer().map(|number| number as f64));
        let Some(latency) = number(entry).or_else(|| entry.get("value").and_then(number)) else { continue };
        if latency < least {
            *entry = Value::Float(least);
        }
        least = latency.max(least);
    }
}

/// Multiplies a number, or that of `{ value, low, high }`. Times in whole nanoseconds stay whole.
fn scale(value: &mut Value, factor: f64) {
    match value {
        Value::Integer(number) => *number = (*number as f64 * factor).round() as i64,
        Value::Float(number) => *number *= factor,
        Value::Table(table) => {
            // A measured spread says nothing about a changed value.
            table.remove("low");
            table.remove("high");
            table.get_mut("value").into_iter().for_each(|value| scale(value, factor));
        }
        _ => {}
    }
}

/// Multiplies latency or size of the caches of the highest level. A size becomes a whole number of KiB in each way, so that it has
/// whole sets.
fn scale_cache(file: &mut Table, size: bool, factor: f64) {
    let Some(Value::Array(caches)) = file.get_mut("cache") else { return };
    let level = |cache: &Value| cache.get("level").and_then(Value::as_integer);
    let last = caches.iter().filter_map(level).max();
    for cache in caches.iter_mut().filter(|cache| level(cache) == last) {
        let Value::Table(cache) = cache else { continue };
        let ways = cache.get("ways").and_then(Value::as_integer).map_or(1.0, |ways| ways.max(1) as f64);
        if !size {
            cache.get_mut("latency_ns").into_iter().for_each(|value| scale(value, factor));
        } else if let Some(Value::String(text)) = cache.get_mut("size")
            && let Some(mib) = text.strip_suffix("MiB").and_then(|number| number.parse::<f64>().ok())
        {
            *text = format!("{}KiB", (mib * 1024.0 * factor / ways).round().max(1.0) * ways);
        }
    }
}

/// Conclusions under every variation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SensitivityDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub tool_version: &'static str,
    /// The reproduction.
    pub name: String,
    /// Titles of the comparisons, with their rows.
    pub comparisons: Vec<String>,
    /// Ours without a change.
    pub ours: Vec<Option<f64>>,
    /// Verdicts without a change.
    pub verdicts: Vec<CheckVerdict>,
    /// One for each change.
    pub variations: Vec<VariedResult>,
}

/// What one change does.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VariedResult {
    /// The change.
    pub variation: String,
    /// Ours with it, by comparison.
    pub ours: Vec<Option<f64>>,
    /// Verdicts with it.
    pub verdicts: Vec<CheckVerdict>,
    /// How many verdicts are others than without the change.
    pub verdicts_changed: usize,
    /// How many ratios are on the other side of 1 than without the change; those within 2 % of it do not count.
    pub directions_changed: usize,
    /// Largest change of a figure, as a fraction of it.
    pub largest_change: Option<f64>,
}

impl SensitivityDocument {
    /// Compares documents of the same rows.
    #[must_use]
    pub fn new(unchanged: &ReproductionDocument, varied: &[(Variation, ReproductionDocument)]) -> Self {
        let of = |document: &ReproductionDocument| -> (Vec<Option<f64>>, Vec<CheckVerdict>) {
            let checks = document.rows.iter().flat_map(|row| &row.checks);
            checks.map(|check| (check.ours, check.verdict)).unzip()
        };
        let (ours, verdicts) = of(unchanged);
        let ratios: Vec<bool> =
            unchanged.rows.iter().flat_map(|row| &row.checks).map(|check| check.unit.is_empty()).collect();
        let result = |(variation, document): &(Variation, ReproductionDocument)| {
            let (new_ours, new_verdicts) = of(document);
            let pairs: Vec<(f64, f64, bool)> = ours
                .iter()
                .zip(&new_ours)
                .zip(&ratios)
                .filter_map(|((old, new), ratio)| Some(((*old)?, (*new)?, *ratio)))
                .collect();
            let side = |figure: f64| i32::from(figure > 1.02) - i32::from(figure < 0.98);
            let turned = |(old, new, ratio): &&(f64, f64, bool)| *ratio && side(*old) * side(*new) < 0;
            let changes = pairs.iter().filter(|(old, _, _)| *old != 0.0).map(|(old, new, _)| (new / old - 1.0).abs());
            VariedResult {
                variation: variation.name.clone(),
                verdicts_changed: verdicts.iter().zip(&new_verdicts).filter(|(old, new)| old != new).count(),
                directions_changed: pairs.iter().filter(turned).count(),
                largest_change: changes.max_by(f64::total_cmp),
                ours: new_ours,
                verdicts: new_verdicts,
            }
        };
        let titled =
            unchanged.rows.iter().flat_map(|row| row.checks.iter().map(|check| format!("{}: {}", row.id, check.title)));
        Self {
            schema: SCHEMA,
            tool_version: TOOL_VERSION,
            name: unchanged.name.clone(),
            comparisons: titled.collect(),
            variations: varied.iter().map(result).collect(),
            ours,
            verdicts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_memory::Hierarchy;
    use warmcore_topology::{Relation, resolve};

    fn varied(machine: &str, name: &str) -> Machine {
        let machine = resolve(machine).unwrap();
        let all = variations(&machine);
        let wanted = all.iter().find(|variation| variation.name == name).unwrap_or_else(|| panic!("{name}: {all:?}"));
        wanted.apply(&machine).unwrap()
    }

    /// Memory that is 30 % faster would be faster than the last-level cache of some machines: these are told, not
    /// simulated.
    #[test]
    fn every_variation_of_every_preset_gives_a_machine_or_says_why_not() {
        for preset in warmcore_topology::presets() {
            let machine = resolve(&preset.name).unwrap();
            for variation in variations(&machine) {
                match variation.apply(&machine) {
                    // The memory model takes it if it takes the machine.
                    Ok(varied) => assert_eq!(
                        Hierarchy::new(&varied).err().map(|error| error.to_string()),
                        Hierarchy::new(&machine).err().map(|error| error.to_string()),
                        "{}: {}",
                        preset.name,
                        variation.name
                    ),
                    Err(error) => assert!(error.to_string().contains("is impossible"), "{error}"),
                }
            }
        }
    }

    #[test]
    fn a_variation_changes_what_it_says_and_nothing_else() {
        let before = resolve("hygon384").unwrap();
        let costs = varied("hygon384", "costs of wakeups and switches x 1.3");
        assert_eq!(costs.costs().wakeup_ns, (before.costs().wakeup_ns as f64 * 1.3).round() as u64);
        assert_eq!(costs.costs().pipe_message_ns, before.costs().pipe_message_ns);

        let lines = |machine: &Machine, relation| machine.costs().line_transfer_ns[relation];
        let near = varied("hygon384", "core to core, inside an LLC x 0.7");
        assert_eq!(lines(&near, Relation::SameLlc), 25, "70 % of 35, in whole nanoseconds");
        assert_eq!(lines(&near, Relation::OtherSocket), lines(&before, Relation::OtherSocket));
        let naples = varied("hygon384", "core-to-core table naples");
        assert_eq!(lines(&naples, Relation::OtherSocket), 368);
    }
}
