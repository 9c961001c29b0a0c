//! Figures nobody stated, and plausibility of those somebody did.
//!
//! Missing core-to-core latencies are taken from the middle of the published machines and kept between the stated
//! latencies of nearer and farther CPUs; costs follow from them ([`Costs::derived_from`]).

use std::collections::BTreeMap;

use crate::build::PROCESSOR;
use crate::fields::{Unit, each_value};
use crate::template::CacheTemplate;
use crate::units::decimal;
use crate::{Bandwidth, Basis, CacheKind, Costs, Machine, MemoryFigures, Origin, PerRelation, Performance, Relation};

/// One-way hand-off of a modified line on a machine of which nothing is known: the middle of the published server
/// machines.
const TYPICAL_CORE_TO_CORE_NS: PerRelation<u64> = PerRelation([0, 9, 30, 45, 100, 125, 160, 230]);

const TYPICAL_NOTE: &str = "typical of current server cores";
const FILLED_NOTE: &str = "from core_to_core_ns";
const SMT_SLOWDOWN: &str = "costs.smt_slowdown_percent";
const SMT_SLOWDOWN_NOTE: &str =
    "two threads of a core do 1.21 times the work of one; published are 0.9 to 1.58, 1.20 on average";

/// A complete core-to-core table: stated entries as they are, the others typical, but never nearer than a stated
/// nearer relation nor farther than a stated farther one.
pub(crate) fn filled_core_to_core(stated: &PerRelation<Option<u64>>) -> PerRelation<u64> {
    let mut filled = PerRelation::default();
    let mut lower = 0;
    for relation in Relation::ALL.into_iter().skip(1) {
        let upper = stated.iter().skip(relation as usize).find_map(|(_, value)| *value).unwrap_or(u64::MAX);
        let value = stated[relation].unwrap_or_else(|| TYPICAL_CORE_TO_CORE_NS[relation].max(lower).min(upper));
        filled[relation] = value;
        lower = lower.max(value);
    }
    filled
}

/// The costs of a machine of which only the performance figures are known, and where they come from.
pub(crate) fn default_costs(performance: &Performance) -> (Costs, BTreeMap<String, Origin>) {
    let mut costs = Costs::derived_from(&filled_core_to_core(&performance.core_to_core_ns));
    let mut origins = BTreeMap::new();
    each_value(&mut Performance::default(), &mut costs, &mut |name, slot| {
        if name.starts_with("costs.") && slot.get().is_some() {
            let depends_on_relation = name.matches('.').count() == 2;
            let origin = if name == SMT_SLOWDOWN {
                Origin::new(Basis::Assumed, SMT_SLOWDOWN_NOTE)
            } else if depends_on_relation {
                Origin::new(Basis::Derived, FILLED_NOTE)
            } else {
                Origin::new(Basis::Assumed, TYPICAL_NOTE)
            };
            origins.insert(name.to_owned(), origin);
        }
    });
    (costs, origins)
}

/// Refuses figures that contradict each other. The reason names both values.
pub(crate) fn check_figures(performance: &Performance, costs: &Costs, caches: &[CacheTemplate]) -> Result<(), String> {
    for (name, percent) in [
        ("pipe_locked_percent", costs.pipe_locked_percent),
        ("socket_locked_percent", costs.socket_locked_percent),
        ("pipe_payload_percent", costs.pipe_payload_percent),
        ("socket_payload_percent", costs.socket_payload_percent),
    ] {
        if percent > 100 {
            return Err(format!("costs.{name} is {percent}, more than 100"));
        }
    }
    let memory = &performance.memory;
    check_ascending(&[
        ("memory.local_ns", memory.local_ns),
        ("memory.same_socket_ns", memory.same_socket_ns),
        ("memory.other_socket_ns", memory.other_socket_ns),
        ("memory.far_socket_ns", memory.far_socket_ns),
    ])?;
    let relations: Vec<(&str, Option<u64>)> =
        performance.core_to_core_ns.iter().map(|(relation, latency)| (relation.name(), *latency)).collect();
    check_ascending(&relations).map_err(|reason| format!("core_to_core_ns: {reason}"))?;
    let frequency = &performance.frequency;
    check_ascending(&[
        ("frequency.base_mhz", frequency.base_mhz.map(u64::from)),
        ("frequency.max_mhz", frequency.max_mhz.map(u64::from)),
    ])?;
    let number = |bandwidth: Option<Bandwidth>| match bandwidth {
        Some(Bandwidth::MbPerS(value)) => Some(value),
        Some(Bandwidth::Unlimited) => Some(u64::MAX),
        None => None,
    };
    check_ascending(&[
        ("memory.socket_mixed_gb_per_s", number(memory.socket_mixed)),
        ("memory.socket_read_gb_per_s", number(memory.socket_read)),
    ])?;
    check_ports(memory)?;
    check_caches(caches, memory.local_ns)
}

/// What a port carries passes the port of the larger group of cores too, so that a limit above that one's would never hold.
fn check_ports(memory: &MemoryFigures) -> Result<(), String> {
    let ports = [("core", memory.core_port), ("cluster", memory.cluster_port), ("LLC", memory.llc_port)];
    let limited = ports.into_iter().filter_map(|(of, port)| match port {
        Some(Bandwidth::MbPerS(limit)) => Some((of, limit)),
        _ => None,
    });
    let limited: Vec<(&str, u64)> = limited.collect();
    match limited.windows(2).find(|pair| pair[0].1 > pair[1].1) {
        Some([(small, limit), (large, carries)]) => {
            let [limit, carries] = [limit, carries].map(|mb_per_s| decimal(*mb_per_s, 3));
            Err(format!(
                "the port of a {small} carries {limit} GB/s, more than the port of its {large} with {carries} GB/s"
            ))
        }
        _ => Ok(()),
    }
}

/// Each stated value at least as large as the ones before it.
fn check_ascending(values: &[(&str, Option<u64>)]) -> Result<(), String> {
    let stated: Vec<(&str, u64)> = values.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
    match stated.windows(2).find(|pair| pair[0].1 > pair[1].1) {
        Some([(nearer, low), (farther, high)]) => Err(format!("{nearer} is {low}, more than {farther} with {high}")),
        _ => Ok(()),
    }
}

/// Larger levels are slower than smaller ones and faster than memory; lines are powers of two and fit.
fn check_caches(caches: &[CacheTemplate], memory_ns: Option<u64>) -> Result<(), String> {
    for template in caches {
        let (name, cache) = (template.value_name(), &template.cache);
        if cache.line_bytes != 0 && !cache.line_bytes.is_power_of_two() {
            return Err(format!("{name}: a line of {} bytes is not a power of two", cache.line_bytes));
        }
        if cache.size_bytes != 0
            && cache.line_bytes != 0
            && !cache.size_bytes.is_multiple_of(u64::from(cache.line_bytes))
        {
            return Err(format!("{name}: {} bytes are not whole lines of {}", cache.size_bytes, cache.line_bytes));
        }
        let Some(latency_ps) = cache.latency_ps else { continue };
        if memory_ns.is_some_and(|memory_ns| latency_ps > memory_ns * 1000) {
            return Err(format!("{name}: a latency of {latency_ps} ps is more than memory's"));
        }
        let slower = caches.iter().find(|other| {
            let same_cpus = template.cpus == other.cpus && other.cache.kind != CacheKind::Instruction;
            same_cpus
                && other.cache.level > cache.level
                && other.cache.latency_ps.is_some_and(|other| other < latency_ps)
        });
        if let Some(other) = slower {
            return Err(format!("{name} is slower than {}", other.value_name()));
        }
    }
    Ok(())
}

impl Machine {
    /// The same CPUs and caches with the figures and costs of another machine: its latencies, bandwidths, frequencies
    /// and costs, and the latency of its caches for caches of the same level. For machines read from an operating
    /// system, which knows none of these.
    #[must_use]
    pub fn with_figures_of(mut self, other: &Machine) -> Machine {
        self.performance = other.performance.clone();
        self.costs = other.costs.clone();
        for cache in &mut self.caches {
            let same = |theirs: &&crate::Cache| (theirs.level, theirs.kind) == (cache.level, cache.kind);
            if cache.latency_ps.is_none() {
                cache.latency_ps = other.caches.iter().find(same).and_then(|theirs| theirs.latency_ps);
            }
        }
        let is_figure = |name: &str| name != PROCESSOR && !name.starts_with("topology") && !name.starts_with("cache.");
        self.origins.retain(|name, _| !is_figure(name));
        let figures = other.origins.iter().filter(|(name, _)| is_figure(name));
        self.origins.extend(figures.map(|(name, origin)| (name.clone(), origin.clone())));
        let note = Origin::new(Basis::Assumed, format!("as {}", other.name));
        for template in crate::cache_entries::cache_entries(&self) {
            if template.cache.latency_ps.is_some() {
                self.origins.entry(format!("{}.latency_ns", template.value_name())).or_insert(note.clone());
            }
        }
        if let (Some(processor), Some(origin)) = (other.processor, other.origin(PROCESSOR)) {
            self.adopt_make(processor, origin.clone());
        }
        self.sources.extend(other.sources.iter().map(|(tag, text)| (tag.clone(), text.clone())));
        self
    }

    /// The same machine whose tasks are slowed so much by a busy sibling ([`Costs::smt_slowdown_percent`]), and why that is.
    ///
    /// # Errors
    /// When it is more than 1000.
    pub fn with_smt_slowdown(mut self, percent: u32, why: Origin) -> Result<Machine, String> {
        Unit::Growth.read(f64::from(percent)).map_err(|reason| format!("{SMT_SLOWDOWN}: {reason}"))?;
        self.costs.smt_slowdown_percent = percent;
        self.origins.insert(SMT_SLOWDOWN.to_owned(), why);
        Ok(self)
    }

    /// The same machine with other costs, for studies of their influence. What differs counts as given by the user.
    #[must_use]
    pub fn with_costs(mut self, mut costs: Costs) -> Machine {
        let mut before = BTreeMap::new();
        each_value(&mut Performance::default(), &mut self.costs, &mut |name, slot| {
            before.insert(name.to_owned(), slot.get());
        });
        each_value(&mut Performance::default(), &mut costs, &mut |name, slot| {
            if before.get(name) != Some(&slot.get()) {
                self.origins.insert(name.to_owned(), Origin::new(Basis::Given, ""));
            }
        });
        self.costs = costs;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_latencies_stay_between_their_stated_neighbours() {
        let mut stated = PerRelation::default();
        stated[Relation::SmtSibling] = Some(10);
        stated[Relation::SameLlc] = Some(27);
        stated[Relation::OtherSocket] = Some(110);
        let filled = filled_core_to_core(&stated);
        assert_eq!(filled, PerRelation([0, 10, 27, 27, 100, 110, 110, 230]));
        assert_eq!(filled_core_to_core(&PerRelation::default()), TYPICAL_CORE_TO_CORE_NS);
    }
}
