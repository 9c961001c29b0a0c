//! The named numbers of a machine file: one list that reading, checking, overlaying and writing share.
//!
//! A name is `section.key` or `section.table.relation`, exactly as in the TOML format. Adding a number to the format
//! means adding a field to [`Costs`] or [`Performance`] and one line here.

use crate::units::{decimal, scaled};
use crate::{Bandwidth, Costs, PerRelation, Performance, Relation};

/// What a number counts, and so how it is written and what is plausible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Integer nanoseconds, at most one second.
    Nanoseconds,
    /// Nanoseconds with decimals in the file, picoseconds inside.
    Picoseconds,
    /// Cache lines.
    Lines,
    /// Percent of a time that it grows by.
    Growth,
    /// MHz.
    Megahertz,
    /// GB/s (10^9 bytes per second) in the file, MB/s inside.
    Bandwidth,
}

/// A number of a machine file in the unit used inside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Quantity {
    Number(u64),
    /// A bandwidth that is never the limit.
    Unlimited,
}

impl Unit {
    /// The largest accepted value, in the unit used inside.
    pub(crate) const fn most(self) -> u64 {
        match self {
            Unit::Nanoseconds => 1_000_000_000,
            Unit::Picoseconds => 1_000_000,
            Unit::Lines => 100_000,
            Unit::Growth => 1_000,
            Unit::Megahertz => 20_000,
            Unit::Bandwidth => 1_000_000_000,
        }
    }

    /// Decimals of the file's unit.
    const fn places(self) -> u32 {
        match self {
            Unit::Bandwidth | Unit::Picoseconds => 3,
            _ => 0,
        }
    }

    /// What the file should hold, for messages.
    const fn expected(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "a whole number of nanoseconds, 0 to 1000000000",
            Unit::Picoseconds => "nanoseconds above 0, at most 1000 and with at most three decimals",
            Unit::Lines => "a whole number of cache lines, 0 to 100000",
            Unit::Growth => "a whole number of percent, 0 to 1000",
            Unit::Megahertz => "a whole number of MHz, 1 to 20000",
            Unit::Bandwidth => "GB/s above 0, at most 1000000 and with at most three decimals, or \"unlimited\"",
        }
    }

    /// Whether zero makes sense.
    const fn allows_zero(self) -> bool {
        matches!(self, Unit::Nanoseconds | Unit::Lines | Unit::Growth)
    }

    /// Reads a number of the file.
    pub(crate) fn read(self, number: f64) -> Result<u64, String> {
        match scaled(number, self.places()) {
            Some(value) if value <= self.most() && (value > 0 || self.allows_zero()) => Ok(value),
            _ => Err(format!("{number} is not {}", self.expected())),
        }
    }

    /// The message for a value that is not a number.
    pub(crate) fn mismatch(self) -> String {
        format!("expected {}", self.expected())
    }

    /// Writes a number as in the file.
    pub(crate) fn write(self, value: u64) -> String {
        decimal(value, self.places())
    }
}

/// Where a number is kept.
pub(crate) enum Slot<'a> {
    Time(&'a mut u64),
    Count(&'a mut u32),
    Growth(&'a mut u32),
    OptionalTime(&'a mut Option<u64>),
    OptionalPicoseconds(&'a mut Option<u64>),
    OptionalMegahertz(&'a mut Option<u32>),
    OptionalBandwidth(&'a mut Option<Bandwidth>),
}

impl Slot<'_> {
    pub(crate) fn unit(&self) -> Unit {
        match self {
            Slot::Time(_) | Slot::OptionalTime(_) => Unit::Nanoseconds,
            Slot::OptionalPicoseconds(_) => Unit::Picoseconds,
            Slot::Count(_) => Unit::Lines,
            Slot::Growth(_) => Unit::Growth,
            Slot::OptionalMegahertz(_) => Unit::Megahertz,
            Slot::OptionalBandwidth(_) => Unit::Bandwidth,
        }
    }

    pub(crate) fn get(&self) -> Option<Quantity> {
        match self {
            Slot::Time(value) => Some(Quantity::Number(**value)),
            Slot::Count(value) | Slot::Growth(value) => Some(Quantity::Number(u64::from(**value))),
            Slot::OptionalTime(value) | Slot::OptionalPicoseconds(value) => value.map(Quantity::Number),
            Slot::OptionalMegahertz(value) => value.map(|value| Quantity::Number(u64::from(value))),
            Slot::OptionalBandwidth(value) => value.map(|value| match value {
                Bandwidth::Unlimited => Quantity::Unlimited,
                Bandwidth::MbPerS(value) => Quantity::Number(value),
            }),
        }
    }

    /// Stores a quantity that [`Unit::read`] accepted for this slot's unit; such numbers fit.
    pub(crate) fn set(self, quantity: Quantity) {
        let number = match quantity {
            Quantity::Number(number) => number,
            Quantity::Unlimited => u64::MAX,
        };
        let small = u32::try_from(number).unwrap_or(u32::MAX);
        match self {
            Slot::Time(value) => *value = number,
            Slot::Count(value) | Slot::Growth(value) => *value = small,
            Slot::OptionalTime(value) | Slot::OptionalPicoseconds(value) => *value = Some(number),
            Slot::OptionalMegahertz(value) => *value = Some(small),
            Slot::OptionalBandwidth(value) => {
                *value = Some(match quantity {
                    Quantity::Unlimited => Bandwidth::Unlimited,
                    Quantity::Number(number) => Bandwidth::MbPerS(number),
                });
            }
        }
    }
}

/// The sections that hold named numbers.
pub(crate) const VALUE_SECTIONS: [&str; 4] = ["frequency", "memory", "core_to_core_ns", "costs"];

/// Shows every named number of a machine to `visit`, in the order in which files list them.
pub(crate) fn each_value(performance: &mut Performance, costs: &mut Costs, visit: &mut dyn FnMut(&str, Slot<'_>)) {
    let frequency = &mut performance.frequency;
    for (key, value) in [
        ("base_mhz", &mut frequency.base_mhz),
        ("max_mhz", &mut frequency.max_mhz),
        ("nominal_mhz", &mut frequency.nominal_mhz),
    ] {
        visit(&format!("frequency.{key}"), Slot::OptionalMegahertz(value));
    }
    let memory = &mut performance.memory;
    for (key, value) in [
        ("local_ns", &mut memory.local_ns),
        ("same_socket_ns", &mut memory.same_socket_ns),
        ("other_socket_ns", &mut memory.other_socket_ns),
        ("far_socket_ns", &mut memory.far_socket_ns),
    ] {
        visit(&format!("memory.{key}"), Slot::OptionalTime(value));
    }
    for (key, value) in [
        ("socket_read_gb_per_s", &mut memory.socket_read),
        ("socket_mixed_gb_per_s", &mut memory.socket_mixed),
        ("socket_link_gb_per_s", &mut memory.socket_link),
        ("node_link_gb_per_s", &mut memory.node_link),
        ("llc_port_gb_per_s", &mut memory.llc_port),
        ("cluster_port_gb_per_s", &mut memory.cluster_port),
        ("core_port_gb_per_s", &mut memory.core_port),
        ("core_llc_read_gb_per_s", &mut memory.core_llc_read),
        ("thread_local_read_gb_per_s", &mut memory.thread_local_read),
        ("thread_remote_read_gb_per_s", &mut memory.thread_remote_read),
    ] {
        visit(&format!("memory.{key}"), Slot::OptionalBandwidth(value));
    }
    for relation in Relation::ALL.into_iter().skip(1) {
        let value = &mut performance.core_to_core_ns[relation];
        visit(&format!("core_to_core_ns.{}", relation.name()), Slot::OptionalTime(value));
    }
    each_cost(costs, visit);
}

fn each_cost(costs: &mut Costs, visit: &mut dyn FnMut(&str, Slot<'_>)) {
    for (key, value) in [
        ("context_switch_ns", &mut costs.context_switch_ns),
        ("wakeup_ns", &mut costs.wakeup_ns),
        ("idle_exit_ns", &mut costs.idle_exit_ns),
        ("tick_ns", &mut costs.tick_ns),
        ("hrtick_ns", &mut costs.hrtick_ns),
        ("syscall_ns", &mut costs.syscall_ns),
        ("page_fault_ns", &mut costs.page_fault_ns),
        ("futex_ns", &mut costs.futex_ns),
        ("pipe_message_ns", &mut costs.pipe_message_ns),
        ("socket_message_ns", &mut costs.socket_message_ns),
        ("fork_ns", &mut costs.fork_ns),
        ("exit_ns", &mut costs.exit_ns),
        ("timer_ns", &mut costs.timer_ns),
        ("timer_late_ns", &mut costs.timer_late_ns),
        ("balance_base_ns", &mut costs.balance_base_ns),
        ("balance_per_cpu_ns", &mut costs.balance_per_cpu_ns),
    ] {
        visit(&format!("costs.{key}"), Slot::Time(value));
    }
    visit("costs.multiply_add_ns", Slot::OptionalPicoseconds(&mut costs.multiply_add_ps));
    for (key, value) in [
        ("message_lines", &mut costs.message_lines),
        ("socket_message_lines", &mut costs.socket_message_lines),
        ("futex_lines", &mut costs.futex_lines),
        ("pipe_locked_percent", &mut costs.pipe_locked_percent),
        ("socket_locked_percent", &mut costs.socket_locked_percent),
        ("pipe_payload_percent", &mut costs.pipe_payload_percent),
        ("socket_payload_percent", &mut costs.socket_payload_percent),
    ] {
        visit(&format!("costs.{key}"), Slot::Count(value));
    }
    visit("costs.smt_slowdown_percent", Slot::Growth(&mut costs.smt_slowdown_percent));
    for (key, table) in [
        ("ipi_ns", &mut costs.ipi_ns),
        ("migration_ns", &mut costs.migration_ns),
        ("line_transfer_ns", &mut costs.line_transfer_ns),
    ] {
        let PerRelation(values) = table;
        for (relation, value) in Relation::ALL.into_iter().zip(values).skip(1) {
            visit(&format!("costs.{key}.{}", relation.name()), Slot::Time(value));
        }
    }
}

/// All names with their units, in file order.
pub(crate) fn known_values() -> Vec<(String, Unit)> {
    let mut names = Vec::new();
    let mut costs = Costs::derived_from(&PerRelation::default());
    each_value(&mut Performance::default(), &mut costs, &mut |name, slot| names.push((name.to_owned(), slot.unit())));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_keeps_what_is_put_in() {
        let mut performance = Performance::default();
        let mut costs = Costs::derived_from(&PerRelation::default());
        let mut next = 0;
        each_value(&mut performance, &mut costs, &mut |_, slot| {
            next += 1;
            slot.set(Quantity::Number(next));
        });
        let mut seen = Vec::new();
        each_value(&mut performance, &mut costs, &mut |_, slot| seen.push(slot.get()));
        assert_eq!(seen, (1..=next).map(|number| Some(Quantity::Number(number))).collect::<Vec<_>>());
    }

    #[test]
    fn names_are_unique_and_belong_to_a_section() {
        let names: std::collections::BTreeSet<String> = known_values().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), known_values().len());
        for name in names {
            let section = name.split('.').next().unwrap();
            assert!(VALUE_SECTIONS.contains(&section), "{name}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        assert_eq!(Unit::Bandwidth.read(38.5), Ok(38_500));
        assert!(Unit::Bandwidth.read(0.0).is_err());
        assert!(Unit::Nanoseconds.read(1.5).is_err());
        assert!(Unit::Nanoseconds.read(2e9).is_err());
        assert!(Unit::Megahertz.read(0.0).is_err());
        assert_eq!(Unit::Nanoseconds.read(0.0), Ok(0));
    }
}
