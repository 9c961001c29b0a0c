//! What a pass knows of the groups of its domain, and what it concludes from that.
//!
//! Reading the run queues is separate from deciding, so that the rules can be tested on figures.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use super::IdleType;
use super::details::Found;
use super::pass::Pass;
use crate::domains::flags;
use crate::fair::gathering::Gathering;
use crate::fair::select::adjust_numa_imbalance;
use crate::fair::{Fair, Policy};

/// Capacity of one ordinary CPU (`SCHED_CAPACITY_SCALE`).
pub(crate) const SCHED_CAPACITY_SCALE: u64 = 1024;

/// The same for averages.
const CPU_SCALE: f64 = SCHED_CAPACITY_SCALE as f64;

/// How a group stands, in order of how much it needs to give tasks away (`enum group_type`).
/// The numbers are the kernel's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub(crate) enum GroupType {
    /// Could run more.
    #[default]
    HasSpare = 0,
    /// Fully used, nothing competes.
    FullyBusy = 1,
    /// A task needs a bigger CPU than the one on which it runs.
    MisfitTask = 2,
    /// A core with several busy hardware threads, while the destination is idle.
    SmtBalance = 3,
    /// The destination is idle and of higher priority than its CPUs.
    AsymPacking = 4,
    /// A pass inside the group failed because of affinity.
    Imbalanced = 5,
    /// It has tasks that prefer the destination's LLC.
    LlcBalance = 6,
    /// More tasks than it can serve.
    Overloaded = 7,
}

/// What is to be moved (`enum migration_type`); its numbers are those of `MIGRATION_TYPES`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Migration {
    /// Weighted load.
    Load,
    /// Utilisation.
    Util,
    /// A number of tasks.
    Task,
    /// A number of tasks that prefer the destination's LLC.
    LlcTask,
    /// A task that needs a bigger CPU.
    Misfit,
}

/// Sums over the CPUs of a group (`struct sg_lb_stats`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupStats {
    /// Index of the group.
    pub group: u32,
    /// Flags of the child domain.
    pub flags: u32,
    /// CPUs in the group, whether looked at or not.
    pub weight: u32,
    /// Cores in the group.
    pub cores: u32,
    /// Σ capacity.
    pub capacity: u64,
    /// Σ `cpu_load`.
    pub load: u64,
    /// Σ `cpu_util`.
    pub util: u64,
    /// Σ `cpu_runnable`.
    pub runnable: u64,
    /// Σ `nr_running`: sleeping but queued tasks included.
    pub nr_running: u32,
    /// Σ `h_nr_runnable`: only tasks that want to run.
    pub h_nr_runnable: u32,
    pub idle_cpus: u32,
    /// Load per capacity; 0 unless overloaded.
    pub avg_load: u64,
    /// Queued tasks that prefer the destination's LLC (`nr_pref_dst_llc`).
    pub nr_pref_dst_llc: u32,
    /// The largest load of a task that needs a bigger CPU (`group_misfit_task_load`).
    pub misfit_task_load: u64,
    /// Highest priority of a CPU (that of `asym_prefer_cpu`).
    pub priority: u32,
    /// Classification.
    pub group_type: GroupType,
}

impl GroupStats {
    pub(crate) fn load_per_capacity(&self) -> u64 {
        self.load * SCHED_CAPACITY_SCALE / self.capacity.max(1)
    }

    fn is_smt(&self) -> bool {
        self.flags & flags::SHARE_CPUCAPACITY != 0
    }

    /// More tasks than CPUs, and utilisation or waiting beyond the capacity (`group_is_overloaded`).
    pub(crate) fn is_overloaded(&self, imbalance_pct: u32) -> bool {
        let pct = u64::from(imbalance_pct);
        self.nr_running > self.weight
            && (self.capacity * 100 < self.util * pct || self.capacity * pct < self.runnable * 100)
    }

    /// Fewer tasks than CPUs, or neither utilisation nor waiting near the capacity (`group_has_capacity`).
    pub(crate) fn has_capacity(&self, imbalance_pct: u32) -> bool {
        let pct = u64::from(imbalance_pct);
        self.nr_running < self.weight
            || (self.capacity * pct >= self.runnable * 100 && self.capacity * 100 > self.util * pct)
    }

    /// Classifies the group (`group_classify`). `imbalanced` and `smt_balance` are the special conditions; placement of
    /// new tasks passes `false` for both.
    pub(crate) fn classify(&self, imbalance_pct: u32, imbalanced: bool, smt_balance: bool) -> GroupType {
        if self.is_overloaded(imbalance_pct) {
            GroupType::Overloaded
        } else if imbalanced {
            GroupType::Imbalanced
        } else if smt_balance {
            GroupType::SmtBalance
        } else if self.misfit_task_load > 0 {
            GroupType::MisfitTask
        } else if !self.has_capacity(imbalance_pct) {
            GroupType::FullyBusy
        } else {
            GroupType::HasSpare
        }
    }
}

/// Sums over CPUs.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    load: f64,
    util: f64,
    runnable: f64,
    nr_running: u32,
    h_nr_runnable: u32,
    idle_cpus: u32,
    /// Highest `nr_running` of a CPU.
    most: u32,
}

/// A sum of averages as a whole number. It is never negative, and conversion to a signed number is cheaper.
#[inline]
fn whole(sum: f64) -> u64 {
    sum as i64 as u64
}

/// What decides beside the groups: the destination's state and the domain's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    pub idle: IdleType,
    pub flags: u32,
    pub imbalance_pct: u32,
    pub imb_numa_nr: u32,
    /// Tasks go to LLCs they prefer at any level with room.
    pub llc_forced: bool,
    /// How many of them.
    pub llc_batch: i64,
}

/// The groups of a domain (`struct sd_lb_stats`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DomainStats {
    pub local: GroupStats,
    pub busiest: GroupStats,
    pub total_load: u64,
    pub total_capacity: u64,
}

impl DomainStats {
    /// Load per capacity of the whole domain.
    pub(crate) fn avg_load(&self) -> u64 {
        self.total_load * SCHED_CAPACITY_SCALE / self.total_capacity.max(1)
    }

    /// Whether the busiest group's child domain wants its tasks spread over siblings.
    fn prefer_sibling(&self) -> bool {
        self.busiest.flags & flags::PREFER_SIBLING != 0
    }
}

/// How much of what to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Imbalance {
    pub amount: i64,
    pub migration: Migration,
}

const NOTHING: Imbalance = Imbalance { amount: 0, migration: Migration::Load };

/// Whether `candidate` is busier than the busiest group so far (`update_sd_pick_busiest`).
pub(crate) fn is_busier(candidate: &GroupStats, busiest: Option<&GroupStats>) -> bool {
    if candidate.h_nr_runnable == 0 {
        return false;
    }
    let Some(busiest) = busiest else {
        return true;
    };
    if candidate.group_type != busiest.group_type {
        return candidate.group_type > busiest.group_type;
    }
    match candidate.group_type {
        GroupType::Overloaded => candidate.avg_load > busiest.avg_load,
        GroupType::LlcBalance => candidate.nr_pref_dst_llc > busiest.nr_pref_dst_llc,
        GroupType::Imbalanced => false,
        GroupType::MisfitTask => candidate.misfit_task_load > busiest.misfit_task_load,
        GroupType::AsymPacking => candidate.priority < busiest.priority,
        GroupType::SmtBalance if candidate.idle_cpus != 0 || busiest.idle_cpus != 0 => {
            has_less_spare(candidate, busiest)
        }
        // Average loads are not computed for these; groups of hardware threads need help first.
        GroupType::SmtBalance | GroupType::FullyBusy => !busiest.is_smt(),
        // Do not empty a core of hardware threads in favour of plain CPUs.
        GroupType::HasSpare if candidate.is_smt() != busiest.is_smt() => {
            !(candidate.is_smt() && candidate.h_nr_runnable <= 1)
        }
        GroupType::HasSpare => has_less_spare(candidate, busiest),
    }
}

/// Fewer idle CPUs, or as many and more tasks.
fn has_less_spare(candidate: &GroupStats, busiest: &GroupStats) -> bool {
    candidate.idle_cpus < busiest.idle_cpus
        || (candidate.idle_cpus == busiest.idle_cpus && candidate.nr_running > busiest.nr_running)
}

/// Difference in tasks per core between busiest and local group (`sibling_imbalance`).
pub(crate) fn sibling_imbalance(idle: IdleType, busiest: &GroupStats, local: &GroupStats) -> i64 {
    if idle == IdleType::NotIdle || busiest.nr_running == 0 {
        return 0;
    }
    let (cores_busiest, cores_local) = (i64::from(busiest.cores), i64::from(local.cores));
    let (nr_busiest, nr_local) = (i64::from(busiest.nr_running), i64::from(local.nr_running));
    if cores_busiest == cores_local {
        return (nr_busiest - nr_local).max(0);
    }
    let excess = (cores_local * nr_busiest - cores_busiest * nr_local).max(0);
    let imbalance = (2 * excess + cores_local + cores_busiest) / (cores_local + cores_busiest);
    // An empty group takes a task although the ratio would not ask for it.
    if imbalance <= 1 && nr_local == 0 && nr_busiest > 1 { 2 } else { imbalance }
}

/// Whether the busiest group is to give something to the local one, and how much (`sched_balance_find_src_group`).
/// `None` is balanced.
pub(crate) fn find_imbalance(conditions: &Conditions, stats: &mut DomainStats) -> Option<Imbalance> {
    if !imbalance_matters(conditions, stats) {
        return None;
    }
    let imbalance = calculate_imbalance(conditions, stats);
    (imbalance.amount != 0).then_some(imbalance)
}

/// The rules of `sched_balance_find_src_group` before the imbalance is computed.
fn imbalance_matters(conditions: &Conditions, stats: &DomainStats) -> bool {
    let (local, busiest) = (&stats.local, &stats.busiest);
    // Affinity makes averages meaningless, and a task that belongs on another CPU is dealt with whatever they are.
    if matches!(busiest.group_type, GroupType::Imbalanced | GroupType::AsymPacking | GroupType::MisfitTask) {
        return true;
    }
    if local.group_type > busiest.group_type {
        return false;
    }
    if local.group_type == GroupType::Overloaded {
        let within_margin = 100 * busiest.avg_load <= u64::from(conditions.imbalance_pct) * local.avg_load;
        if local.avg_load >= busiest.avg_load || local.avg_load >= stats.avg_load() || within_margin {
            return false;
        }
    }
    let for_llc = busiest.group_type == GroupType::LlcBalance;
    let evens_out = || for_llc || sibling_imbalance(conditions.idle, busiest, local) > 1;
    if local.group_type == GroupType::HasSpare
        && (for_llc && conditions.llc_forced || stats.prefer_sibling() && evens_out())
    {
        return true;
    }
    if busiest.group_type == GroupType::Overloaded {
        return true;
    }
    // A busy CPU leaves it to an idle one.
    if conditions.idle == IdleType::NotIdle {
        return false;
    }
    if busiest.group_type == GroupType::SmtBalance && local.is_smt() != busiest.is_smt() {
        return true;
    }
    let idle_evenly = busiest.weight > 1 && local.idle_cpus <= busiest.idle_cpus + 1;
    !idle_evenly && busiest.h_nr_runnable != 1
}

/// How much to move (`calculate_imbalance`).
pub(crate) fn calculate_imbalance(conditions: &Conditions, stats: &mut DomainStats) -> Imbalance {
    let busiest = stats.busiest;
    match busiest.group_type {
        GroupType::LlcBalance => {
            return Imbalance { amount: conditions.llc_batch, migration: Migration::LlcTask };
        }
        GroupType::MisfitTask if conditions.flags & flags::ASYM_CPUCAPACITY == 0 => {
            // A task on a CPU of reduced capacity.
            return Imbalance { amount: busiest.misfit_task_load as i64, migration: Migration::Load };
        }
        GroupType::MisfitTask => return Imbalance { amount: 1, migration: Migration::Misfit },
        GroupType::AsymPacking => {
            return Imbalance { amount: i64::from(busiest.h_nr_runnable), migration: Migration::Task };
        }
        GroupType::SmtBalance | GroupType::Imbalanced => return Imbalance { amount: 1, migration: Migration::Task },
        _ => {}
    }
    if stats.local.group_type == GroupType::HasSpare {
        return fill_spare(conditions, stats);
    }
    let average = stats.avg_load();
    let local = &mut stats.local;
    if local.group_type < GroupType::Overloaded {
        local.avg_load = local.load_per_capacity();
        if local.avg_load >= busiest.avg_load || local.avg_load >= average {
            return NOTHING;
        }
    }
    // Bring both to the average, and neither beyond it. A busiest group below the average (others may be loaded more
    // and classed lower) does not limit the amount.
    let excess = busiest.avg_load.checked_sub(average).map_or(u64::MAX, |excess| excess * busiest.capacity);
    let room = average.saturating_sub(local.avg_load) * local.capacity;
    Imbalance { amount: (excess.min(room) / SCHED_CAPACITY_SCALE) as i64, migration: Migration::Load }
}

/// The local group has spare capacity: use it without overloading it or emptying the busiest group.
fn fill_spare(conditions: &Conditions, stats: &DomainStats) -> Imbalance {
    let (local, busiest) = (&stats.local, &stats.busiest);
    if busiest.group_type > GroupType::FullyBusy && conditions.flags & flags::SHARE_LLC == 0 {
        let spare = local.capacity.saturating_sub(local.util);
        if spare == 0 && conditions.idle != IdleType::NotIdle {
            // Utilisation lags behind a CPU that is idle right now, and somebody is waiting.
            return Imbalance { amount: 1, migration: Migration::Task };
        }
        return Imbalance { amount: spare as i64, migration: Migration::Util };
    }
    let mut amount = if busiest.weight == 1 || stats.prefer_sibling() {
        sibling_imbalance(conditions.idle, busiest, local)
    } else {
        (i64::from(local.idle_cpus) - i64::from(busiest.idle_cpus)).max(0)
    };
    if conditions.flags & flags::NUMA != 0 {
        amount = adjust_numa_imbalance(amount, local.nr_running + 1, conditions.imb_numa_nr);
    }
    Imbalance { amount: amount >> 1, migration: Migration::Task }
}

/// How many CPUs of an LLC a search for an idle one looks at (`update_idle_cpu_scan`): all when it is unused, falling with
/// the square of the utilisation to none at `100 / imbalance_pct`.
pub(crate) fn nr_idle_scan(sum_util: u64, llc_weight: u64, imbalance_pct: u32) -> u32 {
    let (util, pct) = (sum_util / llc_weight.max(1), u64::from(imbalance_pct));
    let used = (util * util * pct * pct / (10_000 * SCHED_CAPACITY_SCALE)).min(SCHED_CAPACITY_SCALE);
    ((SCHED_CAPACITY_SCALE - used) * llc_weight / SCHED_CAPACITY_SCALE) as u32
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Finds the group to pull from and what to pull, into `pass` (`sched_balance_find_src_group`).
    pub(super) fn find_src_group(&mut self, core: &Core<'_>, pass: &mut Pass) -> Option<u32> {
        self.update_group_capacity(core, pass);
        if self.parameters.load_only_balance {
            return self.find_busiest_group(core, pass);
        }
        let mut stats = self.update_sd_lb_stats(core, pass)?;
        if self.energy_decides() && stats.busiest.group_type != GroupType::MisfitTask {
            return None;
        }
        let imbalance = find_imbalance(&self.conditions(pass), &mut stats)?;
        (pass.imbalance, pass.migration) = (imbalance.amount, imbalance.migration);
        pass.found = Found {
            local: (&stats.local).into(),
            busiest: (&stats.busiest).into(),
            imbalance: imbalance.amount,
            failed: self.domains.domain(pass.domain).nr_balance_failed,
            migration: Some(imbalance.migration),
        };
        pass.numa_class = self.numa_class_of_group(pass, stats.busiest.group);
        Some(stats.busiest.group)
    }

    pub(super) fn conditions(&self, pass: &Pass) -> Conditions {
        let domain = self.domains.domain(pass.domain);
        Conditions {
            idle: pass.idle,
            flags: domain.flags,
            imbalance_pct: domain.imbalance_pct,
            imb_numa_nr: domain.imb_numa_nr,
            llc_forced: self.gathering.pulls_at_every_level(),
            llc_batch: self.gathering.batch(),
        }
    }

    /// Looks at all groups of the domain (`update_sd_lb_stats`); `None` without a busiest group. Also refreshes what
    /// passes leave behind for others: the root's overload flag and the LLC's scan limit.
    fn update_sd_lb_stats(&mut self, core: &Core<'_>, pass: &Pass) -> Option<DomainStats> {
        let (records_llc, asymmetric) = (self.records_llc(pass), self.is_asymmetric_level(pass));
        let domain = self.domains.domain(pass.domain);
        let mut local = GroupStats::default();
        // The busiest group so far and the one being looked at change places instead of being copied.
        let mut slots = [GroupStats::default(); 2];
        let mut busiest = None;
        let (mut total_load, mut total_capacity, mut total_util) = (0, 0, 0);
        let mut overloaded = false;
        for (position, group) in self.domains.groups(domain).enumerate() {
            let is_local = self.is_local_group(pass, position, group);
            let free = busiest.map_or(0, |slot: usize| 1 - slot);
            let stats = if is_local { &mut local } else { &mut slots[free] };
            overloaded |= self.update_sg_lb_stats(core, pass, group, is_local, stats);
            if asymmetric && !is_local {
                overloaded |= self.find_misfit(stats);
            }
            if records_llc {
                self.record_llc(stats);
            }
            total_load += stats.load;
            total_capacity += stats.capacity;
            total_util += stats.util;
            let so_far = busiest.map(|slot| &slots[slot]);
            if !is_local
                && is_busier(&slots[free], so_far)
                && (!asymmetric || self.pull_helps(pass, &local, &slots[free], so_far))
            {
                busiest = Some(free);
            }
        }
        self.leave_behind(core, pass, overloaded, total_util);
        Some(DomainStats { local, busiest: slots[busiest?], total_load, total_capacity })
    }

    /// Whether a group includes the destination: the first of the ring, or, where NUMA groups overlap, any.
    pub(super) fn is_local_group(&self, pass: &Pass, position: usize, group: u32) -> bool {
        let overlaps = || self.domains.domain(pass.domain).has(flags::NUMA);
        let contains_dst = || self.domains.group_cpus(self.domains.group(group)).binary_search(&pass.dst.0).is_ok();
        position == 0 || (overlaps() && contains_dst())
    }

    /// Sums up a group (`update_sg_lb_stats`). Returns whether some CPU has more than one task.
    fn update_sg_lb_stats(
        &self,
        core: &Core<'_>,
        pass: &Pass,
        index: u32,
        is_local: bool,
        stats: &mut GroupStats,
    ) -> bool {
        let group = self.domains.group(index);
        let cpus = self.domains.group_cpus(group).iter().copied();
        let sums = if self.balance.excludes_any() {
            self.sum_up(core, cpus.filter(|&cpu| !self.balance.is_excluded(cpu)))
        } else {
            self.sum_up(core, cpus)
        };
        *stats = GroupStats {
            group: index,
            flags: group.flags,
            weight: group.weight,
            cores: group.cores,
            capacity: u64::from(group.capacity),
            load: whole(sums.load),
            util: whole(sums.util),
            runnable: whole(sums.runnable),
            nr_running: sums.nr_running,
            h_nr_runnable: sums.h_nr_runnable,
            idle_cpus: sums.idle_cpus,
            avg_load: 0,
            nr_pref_dst_llc: 0,
            misfit_task_load: 0,
            priority: group.priority,
            group_type: GroupType::HasSpare,
        };
        let overloaded = self.add_pressure(pass, is_local, stats) || sums.most > 1;
        let imbalance_pct = self.domains.domain(pass.domain).imbalance_pct;
        let smt_balance = !is_local && pass.idle != IdleType::NotIdle && stats.is_smt() && stats.h_nr_runnable > 1;
        stats.group_type = stats.classify(imbalance_pct, group.imbalance, smt_balance);
        if !is_local && self.is_packing_level(pass) && self.is_preferred_to_group(pass, stats) {
            stats.group_type = stats.group_type.max(GroupType::AsymPacking);
        }
        if stats.group_type == GroupType::Overloaded {
            stats.avg_load = stats.load_per_capacity();
        } else if !is_local && G::GATHERS {
            let (count, wanted) = self.llc_balance(pass, index);
            stats.nr_pref_dst_llc = count;
            if wanted {
                stats.group_type = GroupType::LlcBalance;
            }
        }
        overloaded
    }

    /// Adds up what `cpu_load`, `cpu_util`, `cpu_runnable` and the counters say. This loop is most of the cost of balancing:
    /// sums are made whole numbers at the end, not CPU by CPU, and it is kept apart to have the registers to itself.
    #[inline(never)]
    fn sum_up(&self, core: &Core<'_>, cpus: impl Iterator<Item = u32>) -> Sums {
        let mut sums = Sums::default();
        for number in cpus {
            let (queue, rq) = (&self.queues[number as usize], &self.rqs[number as usize]);
            let estimate = f64::from(rq.util_est);
            let util = if queue.pelt.util > estimate { queue.pelt.util } else { estimate };
            sums.load += queue.pelt.load;
            sums.util += if util < CPU_SCALE { util } else { CPU_SCALE };
            sums.runnable += queue.pelt.runnable;
            sums.h_nr_runnable += queue.h_nr_runnable;
            sums.nr_running += rq.nr_running;
            sums.most = sums.most.max(rq.nr_running);
            sums.idle_cpus += u32::from(self.is_idle_cpu(core, CpuId(number)));
        }
        sums
    }

    /// What a look at all groups tells others: whether the machine is overloaded, from its topmost domain, or overutilized, and how far to
    /// search the LLC for idle CPUs (`update_idle_cpu_scan`).
    pub(super) fn leave_behind(&mut self, core: &Core<'_>, pass: &Pass, overloaded: bool, total_util: u64) {
        if pass.parent.is_none() {
            self.overloaded = overloaded;
        }
        if self.energy.is_some() {
            self.note_overutilized(core, pass);
        }
        if !self.parameters.sis_util || pass.idle == IdleType::NewlyIdle {
            return;
        }
        let domain = self.domains.domain(pass.domain);
        let llc_size = self.domains.sd_llc_size(pass.dst);
        if domain.span_weight == llc_size {
            let scan = nr_idle_scan(total_util, u64::from(llc_size), domain.imbalance_pct);
            self.domains.shared_mut(self.domains.sd_llc_id(pass.dst)).nr_idle_scan = scan;
        }
    }
}
