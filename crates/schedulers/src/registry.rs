//! The registry: one row per scheduler. Listing, parsing, running, documentation and tests walk it.
//!
//! A scheduler is added by a module that has a row (`pub static SCHEDULER: SchedulerInfo`) and by naming that row in [`REGISTRY`].

use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use warmcore_kernel::{Preempt, Setup, SimulationError};
use warmcore_trace::{DecisionTable, Outcome, Sink};

use crate::contention::kernel::{CDF, DIO, FEWEST_TASKS, RANDOM};
use crate::fair::rows::{CACHE_AWARE, CFS, EEVDF, TOPOLOGY_AWARE};
use crate::kernel_tunables::KernelTunables;
use crate::spec::SchedulerSpec;
use crate::tunables::{TunableInfo, TunableSet};
use crate::{fifo, rr, scx_native, ule};

/// All schedulers that can be simulated, by name.
static REGISTRY: &[&SchedulerInfo] = &[
    &CACHE_AWARE,
    &CDF,
    &CFS,
    &DIO,
    &EEVDF,
    &FEWEST_TASKS,
    &fifo::SCHEDULER,
    &RANDOM,
    &rr::SCHEDULER,
    &scx_native::SCHEDULER,
    &TOPOLOGY_AWARE,
    &ule::SCHEDULER,
];

/// Runs a setup under the scheduler that a text asked for.
pub(crate) type Simulate =
    for<'a> fn(&SchedulerSpec, &'a Setup<'a>, Option<&'a mut dyn Sink>) -> Result<Outcome, SimulationError>;

/// What a scheduler is.
pub struct SchedulerInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where the model comes from.
    pub source: &'static str,
    /// Its own sets of tunables, in the order of printing. Those of the kernel come after them, see [`SchedulerInfo::tunables`].
    pub sets: &'static [&'static [TunableInfo]],
    /// Names of the tunables that can get another value while tasks run ([`Scheduler::tunable_changed`](warmcore_kernel::Scheduler)).
    pub changeable: &'static [&'static str],
    /// Tunables that a setting of another one gives a least value to. A text that sets less is refused; one that is not set is raised.
    pub(crate) floors: &'static [Floor],
    /// Names of the tunables whose defaults are costs that nobody measured.
    pub(crate) assumed: &'static [&'static str],
    /// Registers the kinds of decisions that it puts into the trace, as its `init` does.
    pub register_decisions: fn(&mut DecisionTable),
    /// Whether it needs to know which cache sets tasks use, which only exact memory records.
    pub needs_sets: bool,
    /// Names of what it ranks tasks by, with unit as suffix; see [`scores`](crate::scores).
    pub scores: &'static [&'static str],
    /// Whether it decides by the LLCs' sizes, so that they must be known.
    pub is_cache_aware: bool,
    /// For how long a task keeps a CPU from others of equal worth by its original's rules, ns, where that is a large part of a second; otherwise 0. A wait
    /// that is shorter is none without end.
    pub(crate) turn_ns: fn(&SchedulerSpec) -> u64,
    /// Whether runnable tasks of equal worth that share a CPU all get turns, none waiting for seconds.
    pub shares_equally: bool,
    /// Whether it shares CPUs between task groups; one that does not shares them between tasks.
    pub knows_groups: bool,
    /// Whether tasks get CPU time by their nice values and policies; without, `SCHED_IDLE` is as `SCHED_OTHER`.
    pub knows_nice: bool,
    /// Whether it heeds utilisation clamps.
    pub knows_clamps: bool,
    /// Whether it is a yardstick, not a kernel's scheduler: something that no kernel could afford or know. It is compared like any other
    /// and never called the best.
    pub is_yardstick: bool,
    /// When its kernel may be preempted, if `preempt` does not say.
    pub(crate) preempt: Preempt,
    /// Why no CPU goes offline or comes online under it; `None` where CPUs may.
    pub no_hotplug: Option<&'static str>,
    /// What of a Linux kernel it is, if a present one has it.
    pub linux: Option<LinuxScheduler>,
    /// Runs it; `None` for a program of the user's own, which needs a process for that.
    pub(crate) simulate: Option<Simulate>,
}

/// The least value of a tunable while another one has a value.
pub(crate) struct Floor {
    /// The tunable.
    pub name: &'static str,
    /// Its least value.
    pub least: u64,
    /// Name and value of the other one.
    pub when: (&'static str, u64),
}

impl Floor {
    /// The other one's setting, as a text says it.
    pub fn setting(&self, row: &SchedulerInfo) -> String {
        let (name, value) = self.when;
        let text = row.tunables().find(|tunable| tunable.name == name).map(|tunable| tunable.text(value));
        format!("{name}={}", text.unwrap_or_else(|| value.to_string()))
    }
}

/// How a scheduler is had on a real kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinuxScheduler {
    /// The fair class, without cache-aware scheduling.
    Fair,
    /// The fair class with cache-aware scheduling.
    CacheAware,
}

impl SchedulerInfo {
    /// What most schedulers are; a row says what is different.
    pub(crate) const PLAIN: Self = Self {
        name: "",
        summary: "",
        source: "",
        sets: &[],
        changeable: &[],
        floors: &[],
        assumed: &[],
        register_decisions: |_| {},
        needs_sets: false,
        scores: &[],
        is_cache_aware: false,
        turn_ns: |_| 0,
        shares_equally: true,
        knows_groups: false,
        knows_nice: true,
        knows_clamps: false,
        is_yardstick: false,
        preempt: Preempt::Lazy,
        no_hotplug: Some("its model has the same CPUs for the whole run"),
        linux: None,
        simulate: None,
    };

    /// Its tunables, and behind them the parameters of the kernel that it runs in.
    pub fn tunables(&self) -> impl Iterator<Item = &'static TunableInfo> + use<> {
        self.sets.iter().copied().chain([KernelTunables::TABLE]).flatten()
    }
}

impl SchedulerSpec {
    /// For how long the scheduler lets a task keep a CPU from others of equal worth, as its original does, ns; 0 where that is short.
    #[must_use]
    pub fn turn_ns(&self) -> u64 {
        (self.info().turn_ns)(self)
    }
}

impl fmt::Debug for SchedulerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for SchedulerInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut decisions = DecisionTable::default();
        (self.register_decisions)(&mut decisions);
        let mut row = serializer.serialize_struct("SchedulerInfo", 7)?;
        row.serialize_field("name", self.name)?;
        row.serialize_field("summary", self.summary)?;
        row.serialize_field("source", self.source)?;
        row.serialize_field("tunables", &self.tunables().collect::<Vec<_>>())?;
        row.serialize_field("decisions", &decisions.into_kinds())?;
        row.serialize_field("scores", self.scores)?;
        row.serialize_field("is_yardstick", &self.is_yardstick)?;
        row.end()
    }
}

/// All schedulers that can be simulated, by name.
pub fn list() -> &'static [&'static SchedulerInfo] {
    REGISTRY
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_are_sorted_complete_and_can_be_run() {
        assert!(REGISTRY.is_sorted_by_key(|row| row.name));
        for row in REGISTRY {
            assert!(!row.summary.is_empty() && !row.source.is_empty(), "{}", row.name);
            assert!(row.simulate.is_some(), "{}", row.name);
        }
    }

    /// In a run of a tenth of a second a task that waits behind one turn of `ule` has not been left.
    #[test]
    fn the_turn_of_ule_is_a_tenth_of_a_second_and_of_its_port_ten_ticks() {
        let turn_ms = |text: &str| SchedulerSpec::parse(text).unwrap().turn_ns() / 1_000_000;
        assert_eq!(["ule", "ule:hz=100", "ule:profile=paper-port", "eevdf", "fifo"].map(turn_ms), [100, 100, 40, 0, 0]);
    }

    #[test]
    fn what_can_change_in_a_run_is_a_tunable() {
        for row in REGISTRY {
            for name in row.changeable {
                assert!(row.tunables().any(|tunable| tunable.name == *name), "{} has no `{name}`", row.name);
            }
        }
    }

    #[test]
    fn floors_name_tunables_and_are_inside_their_ranges() {
        for row in REGISTRY {
            let tunable = |name| row.tunables().find(|tunable| tunable.name == name).expect("a tunable of the row");
            for floor in row.floors {
                assert_eq!(tunable(floor.name).parse(&floor.least.to_string()), Ok(floor.least), "{}", floor.name);
                assert_eq!(
                    tunable(floor.when.0).parse(&floor.when.1.to_string()),
                    Ok(floor.when.1),
                    "{}",
                    floor.when.0
                );
            }
        }
    }

    #[test]
    fn a_scheduler_has_no_two_tunables_of_one_name_and_every_default_is_legal() {
        for row in REGISTRY {
            let mut names = BTreeSet::new();
            for tunable in row.tunables() {
                assert!(names.insert(tunable.name), "{} has `{}` twice", row.name, tunable.name);
                assert_eq!(tunable.parse(&tunable.text(tunable.default)), Ok(tunable.default), "{}", tunable.name);
                assert!(!tunable.doc.is_empty(), "{}", tunable.name);
            }
        }
    }
}
