//! The schedulers that are the fair class with one policy or feature or another, as rows of the registry.

use warmcore_kernel::{Boot, Preempt, Setup, SimulationError};
use warmcore_trace::{DecisionTable, Outcome, Sink};

use super::cache_aware::{CacheAware, CacheAwareTunables};
use super::cfs::{Cfs, CfsTunables, FLOORS};
use super::decisions::FairDecisions;
use super::eevdf::{Eevdf, EevdfTunables};
use super::gathering::{Gathering, NoGathering};
use super::numa::NumaTunables;
use super::topology_aware::{TopologyAware, TopologyAwareTunables};
use super::{Fair, Features, Policy, domains_of};
use crate::domains::Domains;
use crate::realtime::run;
use crate::registry::{LinuxScheduler, SchedulerInfo};
use crate::spec::SchedulerSpec;
use crate::tunables::TunableSet;

/// `cache-aware`.
pub(crate) static CACHE_AWARE: SchedulerInfo = SchedulerInfo {
    name: "cache-aware",
    summary: "EEVDF with Cache Aware Scheduling: a process keeps to one LLC while it fits there",
    source: "Linux 7.2, kernel/sched/fair.c with CONFIG_SCHED_CACHE",
    sets: &[CacheAwareTunables::TABLE, EevdfTunables::TABLE, NumaTunables::TABLE],
    changeable: &CACHE_AWARE_CHANGEABLE,
    is_cache_aware: true,
    linux: Some(LinuxScheduler::CacheAware),
    simulate: Some(|spec, setup, sink| {
        run_eevdf(spec, setup, sink, |boot, domains| CacheAware::new(spec.tunables(), boot, domains))
    }),
    ..FAIR_EEVDF
};

/// `cfs`.
pub static CFS: SchedulerInfo = SchedulerInfo {
    name: "cfs",
    summary: "Completely Fair Scheduler: smallest virtual runtime first, slices of a period",
    source: "Linux 4.9 to 6.5, kernel/sched/fair.c",
    sets: &[CfsTunables::TABLE, NumaTunables::TABLE],
    floors: FLOORS,
    register_decisions,
    scores: Cfs::SCORES,
    knows_groups: true,
    knows_clamps: true,
    no_hotplug: None,
    preempt: Preempt::None,
    simulate: Some(|spec, setup, sink| {
        let features = Features { numa: spec.tunables(), ..Features::default() };
        let policy = Cfs::new(spec.tunables(), &setup.boot());
        run_fair(policy, setup, &features, sink, |_, _| None::<NoGathering>)
    }),
    ..SchedulerInfo::PLAIN
};

/// `eevdf`.
pub static EEVDF: SchedulerInfo = SchedulerInfo {
    name: "eevdf",
    summary: "Earliest Eligible Virtual Deadline First with lag, delayed dequeue and lazy preemption",
    source: "Linux 7.2, kernel/sched/fair.c",
    sets: &[EevdfTunables::TABLE, NumaTunables::TABLE],
    linux: Some(LinuxScheduler::Fair),
    simulate: Some(|spec, setup, sink| run_eevdf(spec, setup, sink, |_, _| None::<NoGathering>)),
    ..FAIR_EEVDF
};

/// `topology-aware`.
pub(crate) static TOPOLOGY_AWARE: SchedulerInfo = SchedulerInfo {
    name: "topology-aware",
    summary: "Cache Aware Scheduling extended: a process takes as many LLCs as it needs, the nearest first",
    source: "RFCs of June and August 2026 as far as published; the rest is this project's design",
    sets: &[TopologyAwareTunables::TABLE, CacheAwareTunables::TABLE, EevdfTunables::TABLE, NumaTunables::TABLE],
    is_cache_aware: true,
    simulate: Some(|spec, setup, sink| {
        run_eevdf(spec, setup, sink, |boot, domains| {
            TopologyAware::new(spec.tunables(), spec.tunables(), boot, domains)
        })
    }),
    ..FAIR_EEVDF
};

/// What those with EEVDF's queues have in common.
const FAIR_EEVDF: SchedulerInfo = SchedulerInfo {
    register_decisions,
    scores: Eevdf::SCORES,
    changeable: &Eevdf::CHANGEABLE,
    knows_groups: true,
    knows_clamps: true,
    no_hotplug: None,
    ..SchedulerInfo::PLAIN
};

/// Those of cache-aware scheduling, and behind them EEVDF's.
const CACHE_AWARE_CHANGEABLE: [&str; 8] = {
    let ([a, b, c, d, e], [f, g, h]) = (CacheAware::CHANGEABLE, Eevdf::CHANGEABLE);
    [a, b, c, d, e, f, g, h]
};

fn register_decisions(table: &mut DecisionTable) {
    FairDecisions::register(table);
}

fn run_eevdf<'a, G: Gathering + 'a>(
    spec: &SchedulerSpec,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
    gathering: impl FnOnce(&Boot<'_>, &Domains) -> Option<G>,
) -> Result<Outcome, SimulationError> {
    let features = Features { name: Some(spec.name()), numa: spec.tunables() };
    run_fair(Eevdf::new(spec.tunables(), &setup.boot()), setup, &features, sink, gathering)
}

/// Runs the fair class with what gathers threads, if there is anything to gather on the machine, which `gathering` tells from
/// the machine and its scheduling domains.
fn run_fair<'a, P: Policy + 'a, G: Gathering + 'a>(
    policy: P,
    setup: &'a Setup<'a>,
    features: &Features,
    sink: Option<&'a mut dyn Sink>,
    gathering: impl FnOnce(&Boot<'_>, &Domains) -> Option<G>,
) -> Result<Outcome, SimulationError> {
    let boot = setup.boot();
    let domains = domains_of(&policy, &boot);
    match gathering(&boot, &domains) {
        Some(gathering) => run(setup, Fair::with_features(policy, gathering, domains, &boot, features), sink),
        None => run(setup, Fair::with_features(policy, NoGathering, domains, &boot, features), sink),
    }
}
