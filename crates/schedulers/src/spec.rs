//! Schedulers by name, with settings: `eevdf:base_slice_ns=3000000,hz=1000`.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use thiserror::Error;
use warmcore_kernel::{Setup, SimulationError, run};
use warmcore_trace::{DecisionKind, DecisionTable, Outcome, RunTables, Sink};

use crate::domains::Domains;
use crate::fair::cache_aware::{CacheAware, CacheAwareTunables};
use crate::fair::cfs::{Cfs, CfsTunables};
use crate::fair::decisions::FairDecisions;
use crate::fair::eevdf::{Eevdf, EevdfTunables};
use crate::fair::gathering::{Gathering, NoGathering};
use crate::fair::numa::NumaTunables;
use crate::fair::topology_aware::{TopologyAware, TopologyAwareTunables};
use crate::fair::{Fair, Features, Policy};
use crate::rr::{RoundRobin, RoundRobinTunables};
use crate::tunables::{TunableError, TunableInfo, TunableSet, nearest, set_in};

/// What a scheduler is.
#[derive(Clone, Debug, Serialize)]
pub struct SchedulerInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where the model comes from.
    pub source: &'static str,
    /// Its tunables.
    pub tunables: Vec<TunableInfo>,
}

/// All schedulers.
pub fn list() -> Vec<SchedulerInfo> {
    vec![
        SchedulerInfo {
            name: "cache-aware",
            summary: "EEVDF with Cache Aware Scheduling: a process keeps to one LLC while it fits there",
            source: "Linux 7.2, kernel/sched/fair.c with CONFIG_SCHED_CACHE",
            tunables: [CacheAwareTunables::table(), EevdfTunables::table(), NumaTunables::table()].concat(),
        },
        SchedulerInfo {
            name: "cfs",
            summary: "Completely Fair Scheduler: smallest virtual runtime first, slices of a period",
            source: "Linux 4.9 to 6.5, kernel/sched/fair.c",
            tunables: [CfsTunables::table(), NumaTunables::table()].concat(),
        },
        SchedulerInfo {
            name: "eevdf",
            summary: "Earliest Eligible Virtual Deadline First with lag, delayed dequeue and lazy preemption",
            source: "Linux 7.2, kernel/sched/fair.c",
            tunables: [EevdfTunables::table(), NumaTunables::table()].concat(),
        },
        SchedulerInfo {
            name: "rr",
            summary: "one global queue, fixed quantum: for teaching",
            source: "textbooks",
            tunables: RoundRobinTunables::table(),
        },
        SchedulerInfo {
            name: "topology-aware",
            summary: "Cache Aware Scheduling extended: a process takes as many LLCs as it needs, the nearest first",
            source: "RFCs of June and August 2026 as far as published; the rest is this project's design",
            tunables: [
                TopologyAwareTunables::table(),
                CacheAwareTunables::table(),
                EevdfTunables::table(),
                NumaTunables::table(),
            ]
            .concat(),
        },
    ]
}

/// A scheduler with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerSpec {
    /// `cache-aware`.
    CacheAware(EevdfTunables, CacheAwareTunables, NumaTunables),
    /// `cfs`.
    Cfs(CfsTunables, NumaTunables),
    /// `eevdf`.
    Eevdf(EevdfTunables, NumaTunables),
    /// `rr`.
    RoundRobin(RoundRobinTunables),
    /// `topology-aware`.
    TopologyAware(EevdfTunables, CacheAwareTunables, TopologyAwareTunables, NumaTunables),
    /// `scx:PROGRAM ARGUMENTS`: a sched_ext scheduler, which only a real kernel can run.
    Scx(ScxProgram),
}

/// A sched_ext scheduler as a program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScxProgram {
    /// Path of the program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A scheduler was not understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    /// No such scheduler.
    #[error("there is no scheduler `{name}`{}", hint(.nearest))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The nearest name there is, if any is near.
        nearest: Option<&'static str>,
    },
    /// A setting is not `name=value`.
    #[error("`{setting}` in `{spec}` is not a setting of the form name=value")]
    Setting {
        /// The setting.
        setting: String,
        /// All that was given.
        spec: String,
    },
    /// `scx:` without a program.
    #[error("`scx:` needs the path of a program, as in `scx:/usr/bin/scx_lavd --performance`")]
    NoProgram,
    /// A tunable could not be set.
    #[error(transparent)]
    Tunable(#[from] TunableError),
}

fn hint(nearest: &Option<&'static str>) -> String {
    let known = list().iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
    match nearest {
        Some(name) => format!("; did you mean `{name}`? (there are {known})"),
        None => format!("; there are {known}"),
    }
}

impl SchedulerSpec {
    /// Whether it decides by the LLCs' sizes.
    #[must_use]
    pub const fn is_cache_aware(&self) -> bool {
        matches!(self, Self::CacheAware(..) | Self::TopologyAware(..))
    }

    /// Parses `name`, `name:tunable=value,tunable=value` or `scx:PROGRAM ARGUMENTS`.
    ///
    /// # Errors
    /// When the scheduler or a tunable is unknown, or a value is out of range.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        if let Some(command) = text.trim().strip_prefix("scx:") {
            let mut words = command.split_whitespace().map(str::to_owned);
            let program = words.next().ok_or(SpecError::NoProgram)?;
            return Ok(Self::Scx(ScxProgram { program, arguments: words.collect() }));
        }
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let numa = NumaTunables::default();
        let mut spec = match name.trim() {
            "cache-aware" => Self::CacheAware(EevdfTunables::default(), CacheAwareTunables::default(), numa),
            "cfs" => Self::Cfs(CfsTunables::default(), numa),
            "eevdf" => Self::Eevdf(EevdfTunables::default(), numa),
            "rr" => Self::RoundRobin(RoundRobinTunables::default()),
            "topology-aware" => Self::TopologyAware(
                EevdfTunables::default(),
                CacheAwareTunables::default(),
                TopologyAwareTunables::default(),
                numa,
            ),
            other => {
                let nearest = nearest(other, list().into_iter().map(|info| info.name));
                let nearest = list().into_iter().map(|info| info.name).find(|name| Some(*name) == nearest);
                return Err(SpecError::Unknown { name: other.to_owned(), nearest });
            }
        };
        for setting in settings.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(SpecError::Setting { setting: setting.to_owned(), spec: text.to_owned() });
            };
            spec.set(key.trim(), value.trim())?;
        }
        Ok(spec)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), TunableError> {
        let name = self.name();
        match self {
            Self::CacheAware(eevdf, cache, numa) => set_in(&mut [cache, eevdf, numa], name, key, value),
            Self::Cfs(cfs, numa) => set_in(&mut [cfs, numa], name, key, value),
            Self::Eevdf(eevdf, numa) => set_in(&mut [eevdf, numa], name, key, value),
            Self::RoundRobin(tunables) => tunables.set(key, value),
            Self::TopologyAware(eevdf, cache, topology, numa) => {
                set_in(&mut [topology, cache, eevdf, numa], name, key, value)
            }
            Self::Scx(_) => set_in(&mut [], name, key, value),
        }
    }

    /// Name of the scheduler.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CacheAware(..) => "cache-aware",
            Self::Cfs(..) => "cfs",
            Self::Eevdf(..) => "eevdf",
            Self::RoundRobin(_) => "rr",
            Self::TopologyAware(..) => "topology-aware",
            Self::Scx(_) => "scx",
        }
    }

    /// All tunables with the values in force.
    pub fn resolved(&self) -> Vec<(&'static str, u64)> {
        self.sets().into_iter().flat_map(TunableSet::values).collect()
    }

    /// Its sets of tunables.
    fn sets(&self) -> Vec<&dyn TunableSet> {
        match self {
            Self::CacheAware(eevdf, cache, numa) => vec![cache, eevdf, numa],
            Self::Cfs(cfs, numa) => vec![cfs, numa],
            Self::Eevdf(eevdf, numa) => vec![eevdf, numa],
            Self::RoundRobin(tunables) => vec![tunables],
            Self::TopologyAware(eevdf, cache, topology, numa) => vec![topology, cache, eevdf, numa],
            Self::Scx(_) => Vec::new(),
        }
    }

    /// Tunables that differ from their defaults.
    pub fn changed(&self) -> Vec<(&'static str, u64)> {
        let both = self.resolved().into_iter().zip(self.defaults());
        both.filter(|(now, default)| now != default).map(|(now, _)| now).collect()
    }

    fn defaults(&self) -> Vec<(&'static str, u64)> {
        Self::parse(self.name()).map(|spec| spec.resolved()).unwrap_or_default()
    }
}

impl FromStr for SchedulerSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for SchedulerSpec {
    /// The name and the settings that differ from the defaults; [`SchedulerSpec::parse`] reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Self::Scx(scx) = self {
            write!(f, ":{}", scx.program)?;
            return scx.arguments.iter().try_for_each(|argument| write!(f, " {argument}"));
        }
        for (index, (name, value)) in self.changed().into_iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

impl Serialize for SchedulerSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Kinds of decisions that a scheduler puts into the trace, by number.
pub fn decisions(spec: &SchedulerSpec) -> Vec<DecisionKind> {
    let mut table = DecisionTable::default();
    match spec {
        SchedulerSpec::CacheAware(..)
        | SchedulerSpec::Cfs(..)
        | SchedulerSpec::Eevdf(..)
        | SchedulerSpec::TopologyAware(..) => {
            FairDecisions::register(&mut table);
        }
        SchedulerSpec::RoundRobin(_) | SchedulerSpec::Scx(_) => {}
    }
    table.into_kinds()
}

/// Names of what a scheduler ranks tasks by, with unit as suffix; empty for one that runs in a real kernel, which does not tell.
///
/// | name | scheduler | meaning |
/// |---|---|---|
/// | `vlag_ns` | EEVDF and those built on it | average virtual runtime of the task's queue minus the task's: what it is owed, in nanoseconds of a nice-0 task; eligible from 0 on |
/// | `deadline_ns` | the same | virtual deadline minus that average: of the eligible tasks the earliest runs |
/// | `vruntime_ns` | CFS | virtual runtime minus the smallest of its queue: the smallest runs |
/// | `position` | round robin | place in the global queue, the running task having 0 |
pub fn scores(spec: &SchedulerSpec) -> &'static [&'static str] {
    match spec {
        SchedulerSpec::CacheAware(..) | SchedulerSpec::Eevdf(..) | SchedulerSpec::TopologyAware(..) => Eevdf::SCORES,
        SchedulerSpec::Cfs(..) => Cfs::SCORES,
        SchedulerSpec::RoundRobin(_) => RoundRobin::SCORES,
        SchedulerSpec::Scx(_) => &[],
    }
}

/// The tables that the events of a run under a scheduler refer to; names of scores only where they are sampled.
pub fn run_tables(spec: &SchedulerSpec, setup: &Setup<'_>) -> RunTables {
    let mut tables = setup.run_tables(decisions(spec));
    if setup.scores_every_ns.is_some() {
        tables.scores = scores(spec).iter().map(ToString::to_string).collect();
    }
    tables
}

/// Runs a workload on a machine under a scheduler, sending its events to `sink` if there is one.
///
/// # Errors
/// See [`SimulationError`].
pub fn simulate<'a>(
    spec: &SchedulerSpec,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let cpus = setup.machine().cpu_count();
    match spec.clone() {
        SchedulerSpec::CacheAware(eevdf, cache, numa) => {
            let (policy, features) = (Eevdf::new(eevdf, cpus), Features { name: Some(spec.name()), numa });
            run_fair(policy, setup, &features, sink, |domains, hz| CacheAware::new(cache, setup, domains, hz))
        }
        SchedulerSpec::Cfs(cfs, numa) => {
            let features = Features { numa, ..Features::default() };
            run_fair(Cfs::new(cfs, cpus), setup, &features, sink, |_, _| None::<NoGathering>)
        }
        SchedulerSpec::Eevdf(eevdf, numa) => {
            let features = Features { numa, ..Features::default() };
            run_fair(Eevdf::new(eevdf, cpus), setup, &features, sink, |_, _| None::<NoGathering>)
        }
        SchedulerSpec::RoundRobin(tunables) => run(setup, RoundRobin::new(tunables, cpus), sink),
        SchedulerSpec::TopologyAware(eevdf, cache, topology, numa) => {
            let (policy, features) = (Eevdf::new(eevdf, cpus), Features { name: Some(spec.name()), numa });
            run_fair(policy, setup, &features, sink, |domains, hz| {
                TopologyAware::new(topology, cache, setup, domains, hz)
            })
        }
        SchedulerSpec::Scx(_) => Err(SimulationError::NotSimulated { scheduler: spec.to_string() }),
    }
}

/// Runs the fair class with what gathers threads, if there is anything to gather on the machine: `gathering` is told the
/// scheduling domains and the tick rate.
fn run_fair<'a, P: Policy, G: Gathering>(
    policy: P,
    setup: &'a Setup<'a>,
    features: &Features,
    sink: Option<&'a mut dyn Sink>,
    gathering: impl FnOnce(&Domains, u64) -> Option<G>,
) -> Result<Outcome, SimulationError> {
    let domains = Domains::build(setup.machine(), &policy.fair_parameters().domains);
    match gathering(&domains, policy.kernel_parameters().hz.into()) {
        Some(gathering) => run(setup, Fair::with_features(policy, gathering, domains, setup, features), sink),
        None => run(setup, Fair::with_features(policy, NoGathering, domains, setup, features), sink),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_prints_as_it_is_read() {
        for text in [
            "cache-aware:aggr_tolerance=90,hz=1000",
            "cfs",
            "eevdf",
            "rr",
            "eevdf:base_slice_ns=3000000,hz=1000",
            "cfs:balance_by_load=1",
        ] {
            assert_eq!(SchedulerSpec::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn mistakes_are_named_with_the_nearest_right_word() {
        let message = |text: &str| SchedulerSpec::parse(text).unwrap_err().to_string();
        assert!(message("eevfd").contains("did you mean `eevdf`"));
        assert!(message("eevdf:base_slice=1").contains("did you mean `base_slice_ns`"));
        assert!(message("eevdf:hz=5").contains("100 to 1000"));
        assert!(message("eevdf:hz").contains("name=value"));
        assert!(message("cache-aware:aggr_tolerence=1").contains("`cache-aware` has no tunable"));
        assert!(message("cache-aware:aggr_tolerence=1").contains("did you mean `aggr_tolerance`"));
        assert!(message("cache-aware:base_slice=1").contains("did you mean `base_slice_ns`"));
        assert!(message("cache-aware:aggr_tolerance=101").contains("0 to 100"));
    }

    /// Names and defaults of `/sys/kernel/debug/sched/llc_balancing/`. The period's 0 is hz / 100: 2 jiffies at 250 Hz.
    #[test]
    fn item_30_cache_aware_tunables_are_the_kernels() {
        let set = CacheAwareTunables::default().values();
        let kernels = [
            ("enabled", 1),
            ("aggr_tolerance", 1),
            ("epoch_period", 0),
            ("epoch_affinity_timeout", 5),
            ("overaggr_pct", 50),
            ("imb_pct", 20),
        ];
        assert_eq!(set, kernels);
        let periods = [100, 250, 300, 1000].map(|hz| CacheAwareTunables::default().epoch_jiffies(hz));
        assert_eq!(periods, [1, 2, 3, 10]);
    }
}
