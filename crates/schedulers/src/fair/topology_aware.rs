//! The topology-aware extension of cache-aware scheduling: a process that outgrows one LLC takes the next ones in an order that
//! keeps it together, instead of spreading over the machine.
//!
//! Source: `docs/spec/linux-fair.md` section 8. Marks as there: **\[P\]** published in one of the two RFCs, **\[O\]**
//! this project's design, as their code is not public. A `TopologyAware` holds a `CacheAware`, of which everything
//! stays but what this table lists.
//!
//! | module | rule | replaces | mark |
//! |---|---|---|---|
//! | `sequence` | order in which a home takes LLCs (8.4) | one LLC | idea \[P\] v2, keys \[O\] |
//! | `scope` | demand, how many LLCs it needs (8.3, 8.5) | too many threads, the latch | smoothing \[P\] v2; growing, shrinking, ladder \[O\] |
//! | `scan` | home node, home LLC, scope, once per epoch (8.3), of the nodes in view (8.8) | highest occupancy of all LLCs | two steps \[P\] v2, demand \[O\] |
//! | `permission` | may a task move between two LLCs (8.6) | toward and away from one LLC | \[O\] |
//! | `promotion`, `gain` | where to pull from: affinity promotion (8.7) | tasks that prefer the destination | form \[P\] v1, weights \[O\]; `gain=inverse` is v1's |
//! | `answers` | what the fair class asks: forced at every level; core-aware veto; wakeup hint (8.7, 8.9) | rule of siblings, veto | no siblings \[P\] v1, rest \[O\] |
//! | `by_memory` | home node and order of nodes by the process's hint faults, with `numa_mode=N2` (8.8) | by occupancy | direction \[P\] from reviews, details \[O\] |
//! | `conserve` | wakeups and ticks use idle CPUs of the whole scope; with 2, idle cores first | nothing | \[O\] |
//!
//! Tolerance 0 still refuses everybody; other tolerances do not limit threads, as the scope grows with them. The footprint is
//! tested as in 7.2, against one LLC, however many the scope has.
//!
//! Deviations from `docs/spec/linux-fair.md` section 8: utilisations in permissions are the snapshots of 6.8, as in
//! 7.2; a batch of several tasks counts the utilisation it has moved; the wakeup hint's 16 ms count from the task's
//! last hint.

mod answers;
mod by_memory;
mod conserve;
mod decisions;
mod gain;
pub(crate) mod permission;
pub(crate) mod promotion;
mod scan;
pub(crate) mod scope;
pub(crate) mod sequence;
mod tunables;

use warmcore_kernel::Boot;
use warmcore_topology::Machine;
use warmcore_trace::TaskId;

use self::promotion::Gain;
use self::scope::{Patience, Scope};
use self::sequence::Sequences;
use super::cache_aware::{CacheAware, CacheAwareTunables};
use crate::domains::Domains;

pub(crate) use self::decisions::{HomeDecisions, TopologyAwareDecisions};
pub use self::tunables::TopologyAwareTunables;

/// Cache-aware scheduling with scopes of several LLCs.
pub(crate) struct TopologyAware {
    /// What it extends.
    pub(in crate::fair) base: CacheAware,
    pub(crate) decisions: TopologyAwareDecisions,
    home_told: HomeDecisions,
    tunables: TopologyAwareTunables,
    gain: Gain,
    patience: Patience,
    sequences: Sequences,
    /// By group of threads.
    scopes: Vec<Scope>,
    /// By group of threads: those queued and awake.
    runnable: Vec<u32>,
    /// By group of threads: its living ones.
    members: Vec<Vec<TaskId>>,
    /// By task: when a wakeup was last sent to its home.
    hinted_ns: Vec<u64>,
    /// LLCs of each of the domains' groups.
    group_llcs: Vec<Vec<u32>>,
    /// By LLC they are queued on, then LLC they prefer: queued tasks.
    counts: Vec<u32>,
    /// What the present scan found, by LLC.
    found: Vec<scan::Found>,
    /// Room in the first LLCs of the sequence, added up.
    room: Vec<u64>,
    /// By group of threads: its own sequence, if memory chooses homes.
    own_sequences: Vec<by_memory::OwnSequence>,
    /// By node: hint faults of the process that scans.
    faults: Vec<i64>,
}

impl TopologyAware {
    /// The extension in a kernel; `None` where cache-aware scheduling has nothing to do.
    pub fn new(
        tunables: TopologyAwareTunables,
        cache_aware: CacheAwareTunables,
        boot: &Boot<'_>,
        domains: &Domains,
    ) -> Option<Self> {
        let mut base = CacheAware::new(cache_aware, boot, domains)?;
        if tunables.theta != 0 {
            base.limits.full_pct = tunables.theta;
        }
        // A scope grows with its threads.
        base.limits_threads = false;
        let llcs = domains.llc_count();
        Some(Self {
            base,
            decisions: TopologyAwareDecisions::default(),
            home_told: HomeDecisions::default(),
            gain: if tunables.gain == 0 { Gain::Distance } else { Gain::Inverse },
            patience: Patience { below_pct: tunables.theta_c, hold: tunables.hold },
            sequences: Sequences::new(boot.machine, domains),
            scopes: Vec::new(),
            runnable: Vec::new(),
            members: Vec::new(),
            hinted_ns: Vec::new(),
            group_llcs: group_llcs(domains),
            counts: vec![0; llcs * llcs],
            found: vec![scan::Found::default(); llcs],
            room: Vec::with_capacity(llcs),
            own_sequences: Vec::new(),
            faults: vec![0; boot.machine.node_count()],
            tunables,
        })
    }
}

/// By LLC that a process prefers, numbered as by [`Domains::sd_llc_id`]: all LLCs in the order in which it takes them
/// (`docs/spec/linux-fair.md` section 8.4). Where memory chooses (`numa_mode=N2`) a process may have another.
pub fn llc_orders(machine: &Machine, domains: &Domains) -> Vec<Vec<u32>> {
    let sequences = Sequences::new(machine, domains);
    (0..domains.llc_count() as u32).map(|home| sequences.order(home).to_vec()).collect()
}

fn group_llcs(domains: &Domains) -> Vec<Vec<u32>> {
    let llcs = |group| {
        let cpus = domains.group_cpus(domains.group(group));
        let mut llcs: Vec<u32> = cpus.iter().map(|&cpu| domains.sd_llc_id(warmcore_topology::CpuId(cpu))).collect();
        llcs.sort_unstable();
        llcs.dedup();
        llcs
    };
    (0..domains.group_total()).map(llcs).collect()
}

/// The machine of the first RFC.
#[cfg(test)]
fn rfc_machine() -> Sequences {
    let machine = warmcore_topology::resolve("hygon384").unwrap();
    Sequences::new(&machine, &Domains::build(&machine, &crate::domains::DomainParameters::default()))
}
