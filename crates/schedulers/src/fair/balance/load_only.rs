//! Balancing by load alone, as Linux 4.9 to 5.4 did it (`docs/spec/linux-fair.md` section 1.16): every imbalance is a
//! difference in weighted load per capacity, even when some CPUs are idle.
//!
//! Where those versions differ: tasks are examined from the least recently run on (4.15 and later), and an imbalance
//! that comes out as nothing counts as balanced (4.20 and later).

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use super::IdleType;
use super::details::{Found, FoundGroup};
use super::pass::Pass;
use super::stats::{Migration, SCHED_CAPACITY_SCALE};
use crate::domains::flags;
use crate::fair::gathering::Gathering;
use crate::fair::state::NONE;
use crate::fair::{Fair, Policy};

/// How a group stands (`enum group_type` before 5.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LoadGroupType {
    /// Nothing special.
    Other,
    /// A pass inside the group failed because of affinity.
    Imbalanced,
    /// More tasks than it can serve.
    Overloaded,
}

/// Sums over the CPUs of a group (`struct sg_lb_stats` before 5.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadStats {
    pub group: u32,
    pub weight: u32,
    pub capacity: u64,
    /// What groups are compared by: in 4.9 with averages over ticks.
    pub load: u64,
    /// Load of the tasks that are runnable now (`sum_weighted_load`), of which a task's part is taken.
    pub runnable_load: u64,
    pub util: u64,
    pub nr_running: u32,
    pub idle_cpus: u32,
    pub imbalanced: bool,
    pub no_capacity: bool,
}

impl LoadStats {
    fn avg_load(&self) -> u64 {
        self.load * SCHED_CAPACITY_SCALE / self.capacity.max(1)
    }

    fn load_per_task(&self) -> u64 {
        self.runnable_load / u64::from(self.nr_running.max(1))
    }

    fn group_type(&self) -> LoadGroupType {
        if self.no_capacity {
            LoadGroupType::Overloaded
        } else if self.imbalanced {
            LoadGroupType::Imbalanced
        } else {
            LoadGroupType::Other
        }
    }

    /// `group_has_capacity`.
    fn has_capacity(&self, imbalance_pct: u32) -> bool {
        self.nr_running < self.weight || self.capacity * 100 > self.util * u64::from(imbalance_pct)
    }

    /// `group_is_overloaded`.
    pub(crate) fn is_overloaded(&self, imbalance_pct: u32) -> bool {
        self.nr_running > self.weight && self.capacity * 100 < self.util * u64::from(imbalance_pct)
    }
}

/// Local and busiest group with the whole domain's average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadDomain {
    pub local: LoadStats,
    pub busiest: LoadStats,
    pub avg_load: u64,
}

/// Whether `candidate` is busier than the busiest group so far (`update_sd_pick_busiest`).
fn is_busier(candidate: &LoadStats, busiest: Option<&LoadStats>) -> bool {
    let (group_type, avg_load) =
        busiest.map_or((LoadGroupType::Other, 0), |busiest| (busiest.group_type(), busiest.avg_load()));
    candidate.group_type() > group_type || (candidate.group_type() == group_type && candidate.avg_load() > avg_load)
}

/// Load to move from the busiest group to the local one (`find_busiest_group` before 5.5); 0 is balanced.
pub(crate) fn find_load_imbalance(idle: IdleType, imbalance_pct: u32, domain: &LoadDomain) -> u64 {
    let LoadDomain { local, busiest, avg_load } = domain;
    if busiest.nr_running == 0 {
        return 0;
    }
    let takes_overflow = idle == IdleType::NewlyIdle && local.has_capacity(imbalance_pct) && busiest.no_capacity;
    if busiest.group_type() != LoadGroupType::Imbalanced && !takes_overflow {
        if local.avg_load() >= busiest.avg_load() || local.avg_load() >= *avg_load {
            return 0;
        }
        let balanced = if idle == IdleType::Idle {
            busiest.group_type() != LoadGroupType::Overloaded && local.idle_cpus <= busiest.idle_cpus + 1
        } else {
            100 * busiest.avg_load() <= u64::from(imbalance_pct) * local.avg_load()
        };
        if balanced {
            return 0;
        }
    }
    load_imbalance(domain)
}

/// Difference of both groups from the domain's average (`calculate_imbalance` before 5.5).
fn load_imbalance(domain: &LoadDomain) -> u64 {
    let LoadDomain { local, busiest, avg_load } = domain;
    let mut busiest_load_per_task = busiest.load_per_task();
    if busiest.group_type() == LoadGroupType::Imbalanced {
        busiest_load_per_task = busiest_load_per_task.min(*avg_load);
    }
    if busiest.avg_load() <= *avg_load || local.avg_load() >= *avg_load {
        return small_imbalance(domain, busiest_load_per_task, 0);
    }
    // With no idle CPU anywhere, do not create one: leave the busiest group a task per CPU.
    let mut pull = busiest.avg_load() - avg_load;
    if busiest.group_type() == LoadGroupType::Overloaded && local.group_type() == LoadGroupType::Overloaded {
        let demand = u64::from(busiest.nr_running) * SCHED_CAPACITY_SCALE;
        if demand > busiest.capacity {
            pull = pull.min((demand - busiest.capacity) * 1024 / busiest.capacity);
        }
    }
    let room = (avg_load - local.avg_load()) * local.capacity;
    let imbalance = (pull * busiest.capacity).min(room) / SCHED_CAPACITY_SCALE;
    if imbalance < busiest_load_per_task {
        small_imbalance(domain, busiest_load_per_task, imbalance)
    } else {
        imbalance
    }
}

/// Rounds an imbalance of less than a task up to one if that evens things out or raises the capacity in use
/// (`fix_small_imbalance`).
fn small_imbalance(domain: &LoadDomain, busiest_load_per_task: u64, imbalance: u64) -> u64 {
    let LoadDomain { local, busiest, .. } = domain;
    let local_load_per_task = local.load_per_task();
    let margin = if local.nr_running > 0 && busiest_load_per_task > local_load_per_task { 1 } else { 2 };
    let scaled = busiest_load_per_task * SCHED_CAPACITY_SCALE / busiest.capacity.max(1);
    if busiest.avg_load() + scaled >= local.avg_load() + scaled * margin {
        return busiest_load_per_task;
    }
    let now = busiest.capacity * busiest_load_per_task.min(busiest.avg_load())
        + local.capacity * local_load_per_task.min(local.avg_load());
    let left = busiest.avg_load().saturating_sub(scaled).min(busiest_load_per_task);
    let moved = (busiest.avg_load() * busiest.capacity).min(busiest_load_per_task * SCHED_CAPACITY_SCALE);
    let added = (local.avg_load() + moved / local.capacity.max(1)).min(local_load_per_task);
    let then = busiest.capacity * left + local.capacity * added;
    if then / SCHED_CAPACITY_SCALE > now / SCHED_CAPACITY_SCALE { busiest_load_per_task } else { imbalance }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Finds the group to pull load from, and how much, into `pass` (`find_busiest_group` before 5.5).
    pub(super) fn find_busiest_group(&mut self, core: &Core<'_>, pass: &mut Pass) -> Option<u32> {
        let domain = self.domains.domain(pass.domain);
        let imbalance_pct = domain.imbalance_pct;
        let (mut local, mut busiest) = (None::<LoadStats>, None::<LoadStats>);
        let (mut total_load, mut total_capacity, mut total_util) = (0, 0, 0);
        let mut overloaded = false;
        for (position, group) in self.domains.groups(domain).enumerate() {
            let is_local = self.is_local_group(pass, position, group);
            let (index, most) = (self.load_index_4_9(pass.domain, pass.idle), is_local);
            let mut stats = self.load_stats(core, group, imbalance_pct, (index, most), &mut overloaded);
            total_load += stats.load;
            total_capacity += stats.capacity;
            total_util += stats.util;
            if is_local {
                local = Some(stats);
                continue;
            }
            // Cores and packages want their tasks spread: a second task there is one too many.
            let spreads = self.prefers_sibling(group) && stats.nr_running > 1;
            stats.no_capacity |= spreads && local.is_some_and(|local| local.has_capacity(imbalance_pct));
            if is_busier(&stats, busiest.as_ref()) {
                busiest = Some(stats);
            }
        }
        self.leave_behind(core, pass, overloaded, total_util);
        let avg_load = total_load * SCHED_CAPACITY_SCALE / total_capacity.max(1);
        let found = LoadDomain { local: local?, busiest: busiest?, avg_load };
        let imbalance = find_load_imbalance(pass.idle, imbalance_pct, &found);
        (pass.imbalance, pass.migration) = (imbalance as i64, Migration::Load);
        pass.numa_class = self.numa_class_of_group(pass, found.busiest.group);
        let group = |stats: &LoadStats| FoundGroup {
            group_type: match stats.group_type() {
                LoadGroupType::Other => 8,
                LoadGroupType::Imbalanced => 5,
                LoadGroupType::Overloaded => 7,
            },
            nr_running: stats.nr_running,
            util: stats.util,
            load: stats.load,
            capacity: stats.capacity,
        };
        pass.found = Found {
            local: group(&found.local),
            busiest: group(&found.busiest),
            imbalance: imbalance as i64,
            failed: self.domains.domain(pass.domain).nr_balance_failed,
            migration: Some(Migration::Load),
        };
        (imbalance > 0).then_some(found.busiest.group)
    }

    /// Those kernels had `SD_PREFER_SIBLING` on SMT and package domains, not on cache domains.
    fn prefers_sibling(&self, group: u32) -> bool {
        let set = self.domains.group(group).flags;
        let smt_or_package = set & flags::SHARE_CPUCAPACITY != 0 || set & flags::SHARE_LLC == 0;
        set & flags::PREFER_SIBLING != 0 && smt_or_package
    }

    /// Sums up a group (`update_sg_lb_stats` before 5.5). In 4.9 the load is `average` of each CPU's averages or its load of now,
    /// whichever is more if the group is to be left alone, less if it is to give.
    fn load_stats(
        &self,
        core: &Core<'_>,
        index: u32,
        imbalance_pct: u32,
        (average, most): (usize, bool),
        overloaded: &mut bool,
    ) -> LoadStats {
        let group = self.domains.group(index);
        let mut stats = LoadStats {
            group: index,
            weight: group.weight,
            capacity: u64::from(group.capacity),
            load: 0,
            runnable_load: 0,
            util: 0,
            nr_running: 0,
            idle_cpus: 0,
            imbalanced: group.imbalance,
            no_capacity: false,
        };
        for &number in self.domains.group_cpus(group) {
            if self.balance.is_excluded(number) {
                continue;
            }
            let cpu = CpuId(number);
            let nr_running = self.nr_running(cpu);
            stats.load += self.biased_load(core, cpu, average, most);
            stats.runnable_load += self.balance_load(cpu);
            stats.util += self.util_by_load(cpu);
            stats.nr_running += self.rqs[cpu.index()].nr_running;
            *overloaded |= nr_running > 1;
            if nr_running == 0 && self.is_idle_cpu(core, cpu) {
                stats.idle_cpus += 1;
            }
        }
        stats.no_capacity = stats.is_overloaded(imbalance_pct);
        stats
    }

    /// `cpu_util`: in 4.9 without estimates (4.17), and no more than the CPU's capacity.
    fn util_by_load(&self, cpu: CpuId) -> u64 {
        if !self.parameters.rules_of_4_9 {
            return self.cpu_util(cpu);
        }
        (self.queues[cpu.index()].pelt.util as u64).min(u64::from(self.domains.capacity_of(cpu)))
    }

    /// `target_load` or `source_load` in 4.9, the load of now in later kernels.
    fn biased_load(&self, core: &Core<'_>, cpu: CpuId, average: usize, most: bool) -> u64 {
        let now = self.balance_load(cpu);
        if !self.parameters.rules_of_4_9 {
            return now;
        }
        let idle = self.idle[cpu.index()];
        let average = self.balance.tick_loads[cpu.index()].average(average, core.jiffies(), idle, now);
        if most { now.max(average) } else { now.min(average) }
    }

    /// Load of a CPU as the balancer compares it: with all tasks that ran there lately (`cpu_load`), or, before 5.5, of the
    /// tasks that are runnable now (`weighted_cpuload`).
    pub(in crate::fair) fn balance_load(&self, cpu: CpuId) -> u64 {
        if !self.parameters.load_only_balance {
            return self.cpu_load(cpu);
        }
        let mut load = 0;
        let mut entity = self.rqs[cpu.index()].list_head;
        while entity != NONE {
            load += self.task_h_load(self.entity_task(entity));
            entity = self.entities[entity as usize].list_next;
        }
        load
    }
}
