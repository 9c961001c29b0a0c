//! Scheduling domains: the hierarchy of CPU groups over which policies place and balance tasks, and the table of LLCs.
//!
//! For any policy, as in the kernel, where `sched_domain` belongs to no class. Every CPU has its own domain objects, one per level
//! and bottom up, because the balancing state (interval, failures, new-idle statistics) is per CPU; it is here because
//! `struct sched_domain` has it, and a policy that does not balance leaves it alone. Spans, groups and group rings are shared
//! between them by index. Does not balance and does not select CPUs; the fair class's `balance` and `select` do.
//!
//! Source: Linux 7.2 `kernel/sched/topology.c` and `arch/x86/kernel/smpboot.c`, as specified in
//! `docs/spec/linux-fair.md` section 3. Not modelled: `split_llc`. A CPU that
//! goes offline or comes online has all of them built anew ([`Domains::build_of`]).

mod build;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

#[cfg(doc)]
use warmcore_topology::Machine;
use warmcore_topology::{CpuId, CpuSet};

/// Properties of a domain and, as [`SchedGroup::flags`], of the child domain behind a group (`SD_*`).
pub mod flags {
    /// Members share execution units: the SMT level (`SD_SHARE_CPUCAPACITY`).
    pub(crate) const SHARE_CPUCAPACITY: u32 = 1 << 0;
    /// Members share the last-level cache (`SD_SHARE_LLC`).
    pub(crate) const SHARE_LLC: u32 = 1 << 1;
    /// Members share an L2 cache (`SD_CLUSTER`).
    pub const CLUSTER: u32 = 1 << 2;
    /// Spans several NUMA nodes (`SD_NUMA`).
    pub const NUMA: u32 = 1 << 3;
    /// One balancing pass at a time on the whole machine (`SD_SERIALIZE`).
    pub(crate) const SERIALIZE: u32 = 1 << 4;
    /// Balance when a CPU is about to become idle (`SD_BALANCE_NEWIDLE`).
    pub(crate) const BALANCE_NEWIDLE: u32 = 1 << 5;
    /// Place tasks at exec (`SD_BALANCE_EXEC`).
    pub(crate) const BALANCE_EXEC: u32 = 1 << 6;
    /// Place tasks at fork (`SD_BALANCE_FORK`).
    pub(crate) const BALANCE_FORK: u32 = 1 << 7;
    /// Consider the waker's CPU for a wakee (`SD_WAKE_AFFINE`).
    pub(crate) const WAKE_AFFINE: u32 = 1 << 8;
    /// Spread tasks over sibling domains of this one (`SD_PREFER_SIBLING`).
    pub(crate) const PREFER_SIBLING: u32 = 1 << 9;
    /// Members have unequal capacities (`SD_ASYM_CPUCAPACITY`).
    pub(crate) const ASYM_CPUCAPACITY: u32 = 1 << 10;
    /// Tasks are packed onto the members of highest priority (`SD_ASYM_PACKING`).
    pub(crate) const ASYM_PACKING: u32 = 1 << 11;
}

/// What differs between kernels in the domains they build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainParameters {
    /// `imbalance_pct` of ordinary domains, in percent: 117; 125 before 5.10.
    pub imbalance_pct: u32,
    /// `imbalance_pct` of SMT domains, in percent: 110.
    pub imbalance_pct_smt: u32,
    /// `busy_factor`: 16; 32 before 5.10.
    pub busy_factor: u32,
    /// Groups of nodes as before 4.13: those of a span are told off from its first CPU on, and are the same for all.
    pub groups_from_first_cpu: bool,
    /// Capacity of a core whose hardware threads are used together, of which each thread has an equal part (`smt_gain` before 5.0:
    /// 1178 of 1024); `None` where every thread counts as a core.
    pub smt_gain: Option<u32>,
    /// Whether the reclaim distance is the architecture's on all CPUs, as before 5.4, and not raised for some
    /// ([`Machine::reclaim_distance`]).
    pub same_reclaim_distance: bool,
    /// Whether clusters of cores are a level (`CONFIG_SCHED_CLUSTER`, since 5.16).
    pub clusters: bool,
    /// Whether levels of nodes are made of the firmware's distances on all CPUs, as before 6.18, and not of
    /// [`Machine::scheduling_distances`].
    pub firmware_distances: bool,
}

impl Default for DomainParameters {
    /// Those of Linux 5.10 to 7.2.
    fn default() -> Self {
        Self {
            imbalance_pct: 117,
            imbalance_pct_smt: 110,
            busy_factor: 16,
            groups_from_first_cpu: false,
            smt_gain: None,
            same_reclaim_distance: false,
            clusters: true,
            firmware_distances: false,
        }
    }
}

/// Which level of the machine a domain stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Hardware threads of a core.
    Smt,
    /// Cores that share an L2 cache.
    Cls,
    /// CPUs that share the last-level cache, or what stands for it ([`Machine::coregroup`]).
    Mc,
    /// CPUs of a node, in spite of its name.
    Pkg,
    /// CPUs of a node, where a socket has several.
    Node,
    /// Nodes within some distance.
    Numa,
}

impl Level {
    /// The kernel's name, as in `/sys/kernel/debug/sched/domains`.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Smt => "SMT",
            Level::Cls => "CLS",
            Level::Mc => "MC",
            Level::Pkg => "PKG",
            Level::Node => "NODE",
            Level::Numa => "NUMA",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One level of one CPU (`struct sched_domain`).
#[derive(Clone, Debug)]
pub struct Domain {
    /// Bits of [`flags`].
    pub flags: u32,
    /// Number of CPUs in the span.
    pub span_weight: u32,
    /// Index of the span; see [`Domains::span`].
    span: u32,
    /// The shared ring of groups, and where in it the local group is.
    ring_start: u32,
    ring_len: u32,
    ring_local: u32,
    /// Level.
    pub level: Level,
    /// A group is busier than another only if by more than this, in percent.
    pub imbalance_pct: u32,
    /// Failed passes after which cache-hot tasks are moved too.
    pub cache_nice_tries: u32,
    /// Factor on the interval while the CPU is busy.
    pub busy_factor: u32,
    /// Shortest balance interval in milliseconds.
    pub min_interval_ms: u32,
    /// Longest balance interval in milliseconds.
    pub max_interval_ms: u32,
    /// Tasks up to which a NUMA imbalance is tolerated.
    pub imb_numa_nr: u32,

    /// Present balance interval in milliseconds.
    pub balance_interval_ms: u32,
    /// Passes in a row that found an imbalance and moved nothing.
    pub nr_balance_failed: u32,
    /// New-idle calls since the last halving.
    pub newidle_call: u32,
    /// Weighted new-idle successes since the last halving.
    pub newidle_success: u32,
    /// Success rate of new-idle passes, of 1024.
    pub newidle_ratio: u32,
    /// When the ratio was last computed.
    pub newidle_stamp_ns: u64,
    /// Jiffy of the last periodic pass; negative before the run.
    pub last_balance: i64,
    /// Highest cost of a new-idle pass seen lately.
    pub max_newidle_lb_cost_ns: u64,
    /// Jiffy in which that was last raised or decayed.
    pub last_decay_max_lb_cost: u64,
}

impl Domain {
    /// Whether all the given flags are set.
    #[inline]
    pub const fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }

    /// Jiffy from which on a periodic pass is due, with so many jiffies between passes.
    pub fn due(&self, interval: u64) -> u64 {
        self.last_balance.saturating_add_unsigned(interval).max(0) as u64
    }

    /// Number of groups.
    #[inline]
    pub(crate) const fn group_count(&self) -> u32 {
        self.ring_len
    }
}

/// CPUs between which a domain balances (`struct sched_group` with its `sched_group_capacity`).
#[derive(Clone, Debug)]
pub struct SchedGroup {
    cpus_start: u32,
    balance_start: u32,
    balance_len: u32,
    /// Number of CPUs (`group_weight`).
    pub weight: u32,
    /// Number of cores.
    pub cores: u32,
    /// Flags of the child domain that spans the group; 0 for a single CPU.
    pub flags: u32,
    /// Sum of the CPUs' capacities, as last brought up to date.
    pub capacity: u32,
    /// Highest priority of its CPUs, that of `asym_prefer_cpu`; 0 where priorities do not count.
    pub priority: u32,
    /// A pass inside the group left an imbalance because of affinity (`sgc->imbalance`).
    pub imbalance: bool,
}

/// What the CPUs of one LLC share (`struct sched_domain_shared`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlcShared {
    /// Some core may be wholly idle. A hint: set when a core becomes idle, cleared when a search finds none.
    pub has_idle_cores: bool,
    /// CPUs that are not in the set of idle CPUs without tick.
    pub nr_busy_cpus: u32,
    /// CPUs a search for an idle one looks at (`SIS_UTIL`). Starts as on an idle LLC: all.
    pub nr_idle_scan: u32,
}

/// Where a CPU is among LLCs and domains, looked up at every wakeup.
#[derive(Clone, Copy, Debug)]
struct CpuPosition {
    llc: u32,
    position: u32,
    share_id: u32,
    /// Absolute indices of domains, or [`NO_DOMAIN`].
    sd_llc: u32,
    sd_numa: u32,
    sd_asym: u32,
}

const NO_DOMAIN: u32 = u32::MAX;

/// All domains of a machine.
#[derive(Clone, Debug)]
pub struct Domains {
    all: Vec<Domain>,
    /// By span: how many of its CPUs are crowded; see [`Self::count_crowded`].
    crowded: Vec<u32>,
    /// Domains of CPU `c`: `all[first[c]..first[c + 1]]`.
    first: Vec<u32>,
    spans: Vec<CpuSet>,
    groups: Vec<SchedGroup>,
    rings: Vec<u32>,
    /// CPU lists of groups and balance masks.
    cpu_lists: Vec<u32>,
    places: Vec<CpuPosition>,
    /// By CPU: its capacity (`rq->cpu_capacity`).
    capacities: Vec<u32>,
    /// By CPU: its priority (`arch_asym_cpu_priority`); empty where priorities do not count.
    priorities: Vec<u32>,
    /// CPUs of LLC `l`: `llc_cpus[llc_first[l]..llc_first[l + 1]]`.
    llc_cpus: Vec<u32>,
    llc_first: Vec<u32>,
    shared: Vec<LlcShared>,
    clusters_active: bool,
    smt_active: bool,
}

impl Domains {
    /// Domains that are built in a run begin at a jiffy and an instant (`sd_init`), and nobody knows of idle cores yet.
    pub fn begin_at(&mut self, jiffies: u64, now_ns: u64) {
        for domain in &mut self.all {
            (domain.last_balance, domain.last_decay_max_lb_cost) = (jiffies as i64, jiffies);
            domain.newidle_stamp_ns = now_ns;
        }
        for shared in &mut self.shared {
            (shared.has_idle_cores, shared.nr_idle_scan) = (false, 0);
        }
    }

    /// Domains of a CPU, bottom up.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> &[Domain] {
        &self.all[self.range(cpu)]
    }

    /// Indices of a CPU's domains, bottom up, for [`Self::domain`] and [`Self::domain_mut`].
    #[inline]
    pub fn range(&self, cpu: CpuId) -> Range<usize> {
        self.first[cpu.index()] as usize..self.first[cpu.index() + 1] as usize
    }

    /// Capacity of a CPU as groups sum it up; 1024 is the machine's biggest core (`capacity_of`).
    #[inline]
    pub(crate) fn capacity_of(&self, cpu: CpuId) -> u32 {
        self.capacities[cpu.index()]
    }

    /// Capacities of all CPUs.
    pub(crate) fn capacities(&self) -> &[u32] {
        &self.capacities
    }

    /// Other classes leave a CPU more or less than before.
    pub(crate) fn set_capacity(&mut self, cpu: CpuId, capacity: u32) {
        self.capacities[cpu.index()] = capacity;
    }

    /// Whether tasks are packed onto CPUs of high priority.
    pub(crate) fn packs(&self) -> bool {
        !self.priorities.is_empty()
    }

    /// Priority of a CPU, by which tasks are packed; 0 where priorities do not count.
    #[inline]
    pub(crate) fn priority_of(&self, cpu: CpuId) -> u32 {
        self.priorities.get(cpu.index()).copied().unwrap_or(0)
    }

    /// Index of a CPU's highest domain in which tasks are packed (`sd_asym_packing`).
    pub(crate) fn sd_asym_packing(&self, cpu: CpuId) -> Option<usize> {
        self.range(cpu).rev().find(|&index| self.all[index].has(flags::ASYM_PACKING))
    }

    /// Number of groups of all domains together.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The domain with an index.
    #[inline]
    pub fn domain(&self, index: usize) -> &Domain {
        &self.all[index]
    }

    /// The domain with an index, to change its state.
    #[inline]
    pub fn domain_mut(&mut self, index: usize) -> &mut Domain {
        &mut self.all[index]
    }

    /// The CPUs of a domain.
    #[inline]
    pub fn span(&self, domain: &Domain) -> &CpuSet {
        &self.spans[domain.span as usize]
    }

    /// Whether a domain includes a CPU. Constant time.
    #[inline]
    pub(crate) fn span_contains(&self, domain: &Domain, cpu: CpuId) -> bool {
        self.spans[domain.span as usize].contains(cpu)
    }

    /// Notes that a CPU has just become crowded, that is got a second task, or is so no more.
    pub fn count_crowded(&mut self, cpu: CpuId, crowded: bool) {
        for index in self.range(cpu) {
            let count = &mut self.crowded[self.all[index].span as usize];
            *count = if crowded { *count + 1 } else { *count - 1 };
        }
    }

    /// Whether some CPU of a domain has two tasks or more.
    #[inline]
    pub(crate) fn has_crowded_cpu(&self, domain: &Domain) -> bool {
        self.crowded[domain.span as usize] > 0
    }

    /// Indices of a domain's groups: the local one first, then in CPU order, wrapping from the owner.
    #[inline]
    pub fn groups<'a>(&'a self, domain: &Domain) -> impl Iterator<Item = u32> + use<'a> {
        let ring = &self.rings[domain.ring_start as usize..(domain.ring_start + domain.ring_len) as usize];
        let (before, from_local) = ring.split_at(domain.ring_local as usize);
        from_local.iter().chain(before).copied()
    }

    /// Index of a domain's local group: the one with its owner.
    #[inline]
    pub(crate) fn local_group(&self, domain: &Domain) -> u32 {
        self.rings[(domain.ring_start + domain.ring_local) as usize]
    }

    /// The group with an index.
    #[inline]
    pub fn group(&self, group: u32) -> &SchedGroup {
        &self.groups[group as usize]
    }

    /// Number of groups of all domains.
    pub(crate) fn group_total(&self) -> u32 {
        self.groups.len() as u32
    }

    /// The group with an index, to change its state.
    #[inline]
    pub(crate) fn group_mut(&mut self, group: u32) -> &mut SchedGroup {
        &mut self.groups[group as usize]
    }

    /// Numbers of a group's CPUs, ascending.
    #[inline]
    pub(crate) fn group_cpus(&self, group: &SchedGroup) -> &[u32] {
        &self.cpu_lists[group.cpus_start as usize..(group.cpus_start + group.weight) as usize]
    }

    /// CPUs allowed to balance on behalf of a group, ascending (`group_balance_mask`).
    #[inline]
    pub(crate) fn balance_mask(&self, group: &SchedGroup) -> &[u32] {
        &self.cpu_lists[group.balance_start as usize..(group.balance_start + group.balance_len) as usize]
    }

    /// Number of LLCs as the scheduler sees them: an LLC that spans nodes counts once per node.
    #[inline]
    pub fn llc_count(&self) -> usize {
        self.shared.len()
    }

    /// Dense number of a CPU's LLC (`sd_llc_id`), in order of the LLCs' first CPUs.
    #[inline]
    pub fn sd_llc_id(&self, cpu: CpuId) -> u32 {
        self.places[cpu.index()].llc
    }

    /// Number of CPUs in a CPU's LLC (`sd_llc_size`).
    #[inline]
    pub fn sd_llc_size(&self, cpu: CpuId) -> u32 {
        (self.llc_cpus(self.sd_llc_id(cpu)).len() as u32).max(1)
    }

    /// The first CPU of an LLC, in domains or not.
    ///
    /// # Panics
    /// Where there is no such LLC.
    #[must_use]
    pub fn first_cpu_of_llc(&self, llc: u32) -> CpuId {
        let place = self.places.iter().position(|place| place.llc == llc);
        CpuId(place.expect("an LLC has CPUs") as u32)
    }

    /// Numbers of an LLC's CPUs, ascending.
    #[inline]
    pub fn llc_cpus(&self, llc: u32) -> &[u32] {
        &self.llc_cpus[self.llc_first[llc as usize] as usize..self.llc_first[llc as usize + 1] as usize]
    }

    /// Where a CPU stands in [`Self::llc_cpus`] of its LLC.
    #[inline]
    pub(crate) fn llc_position(&self, cpu: CpuId) -> u32 {
        self.places[cpu.index()].position
    }

    /// Whether two CPUs share their LLC (`cpus_share_cache`).
    #[inline]
    pub(crate) fn cpus_share_cache(&self, a: CpuId, b: CpuId) -> bool {
        self.sd_llc_id(a) == self.sd_llc_id(b)
    }

    /// Equal for CPUs that share a cluster, or the LLC where there are no clusters (`sd_share_id`).
    #[inline]
    pub(crate) fn sd_share_id(&self, cpu: CpuId) -> u32 {
        self.places[cpu.index()].share_id
    }

    /// Whether some CPU has a cluster domain (`sched_cluster_active`).
    #[inline]
    pub(crate) fn clusters_active(&self) -> bool {
        self.clusters_active
    }

    /// Whether some domain has CPUs of unequal capacity.
    pub(crate) fn is_asymmetric(&self) -> bool {
        self.places.iter().any(|place| place.sd_asym != NO_DOMAIN)
    }

    /// Index of a CPU's lowest domain that has CPUs of all capacities, if they are unequal (`sd_asym_cpucapacity`).
    pub(crate) fn sd_asym_cpucapacity(&self, cpu: CpuId) -> Option<usize> {
        let index = self.places[cpu.index()].sd_asym;
        (index != NO_DOMAIN).then_some(index as usize)
    }

    /// Whether some core has several CPUs (`sched_smt_active`).
    #[inline]
    pub(crate) fn smt_active(&self) -> bool {
        self.smt_active
    }

    /// Index of the highest domain whose CPUs share the LLC (`sd_llc`); `None` if the CPU has its LLC to itself.
    #[inline]
    pub(crate) fn sd_llc(&self, cpu: CpuId) -> Option<usize> {
        let index = self.places[cpu.index()].sd_llc;
        (index != NO_DOMAIN).then_some(index as usize)
    }

    /// Index of the lowest NUMA domain (`sd_numa`).
    #[inline]
    pub(crate) fn sd_numa(&self, cpu: CpuId) -> Option<usize> {
        let index = self.places[cpu.index()].sd_numa;
        (index != NO_DOMAIN).then_some(index as usize)
    }

    /// State shared by the CPUs of an LLC (`sd_llc_shared`).
    #[inline]
    pub fn shared(&self, llc: u32) -> &LlcShared {
        &self.shared[llc as usize]
    }

    /// The same, to change it.
    #[inline]
    pub(crate) fn shared_mut(&mut self, llc: u32) -> &mut LlcShared {
        &mut self.shared[llc as usize]
    }
}
