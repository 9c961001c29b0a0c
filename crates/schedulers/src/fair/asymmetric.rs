//! CPUs of unequal capacity: which of them a task fits, and what follows for wakeups and balancing (`docs/spec/linux-fair.md` section 4.9).
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` (`util_fits_cpu`, `asym_fits_cpu`, `select_idle_capacity`, `update_misfit_status`,
//! `update_sg_lb_stats`, `update_sd_pick_busiest`, `sched_balance_find_src_rq`), `kernel/sched/topology.c` (`asym_cpu_capacity_classify`).
//!
//! Not modelled: capacity that interrupts and heat take; a new program's start (`exec`).

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::{SearchStep, TaskId};

use super::balance::pass::Pass;
use super::balance::stats::{GroupStats, GroupType};
use super::clamps::Fit;
use super::select::Wakee;
use super::{Fair, Policy};
use crate::domains::flags;
use crate::fair::gathering::Gathering;

/// `fits_capacity`: utilisation up to 80 % of a capacity.
pub(super) fn fits_capacity(util: u64, capacity: u64) -> bool {
    util * 1280 < capacity * 1024
}

/// `capacity_greater`: by more than 5 %.
fn capacity_greater(one: u32, other: u32) -> bool {
    u64::from(one) * 1024 > u64::from(other) * 1078
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Brings the averages of a task that slept to those of its queue (`sync_entity_load_avg`). Its entity.
    pub(super) fn sync_entity_load_avg(&mut self, task: TaskId) -> u32 {
        let index = self.task_entity(task);
        let updated_ns = self.queues[self.entities[index as usize].queue as usize].pelt.last_update_ns;
        if self.entities[index as usize].pelt.last_update_ns < updated_ns {
            self.update_entity_avg(updated_ns, index);
        }
        index
    }

    /// The first idle CPU from the target on that the task fits, else the idle one of most capacity, of those first that fit but for the
    /// speed that it asks for, else the target (`select_idle_capacity`).
    #[cold]
    pub(super) fn select_idle_capacity(
        &self,
        core: &Core<'_>,
        wakee: Wakee,
        domain: usize,
        target: CpuId,
    ) -> (CpuId, SearchStep) {
        let span = self.domains.span(self.domains.domain(domain));
        let from_target = span.iter().filter(|cpu| *cpu >= target).chain(span.iter().filter(|cpu| *cpu < target));
        let mut most: Option<(Fit, u32, CpuId)> = None;
        for cpu in from_target.filter(|cpu| core.may_run_on(wakee.task, *cpu) && self.idle_for(core, *cpu, wakee)) {
            let capacity = self.domains.capacity_of(cpu);
            let fit = wakee.need.fit(capacity, self.whole_capacity(cpu));
            if fit == Fit::Yes {
                return (cpu, SearchStep::CapacityFits);
            }
            if most.is_none_or(|(best, most, _)| (fit, capacity) > (best, most)) {
                most = Some((fit, capacity, cpu));
            }
        }
        most.map_or((target, SearchStep::NoneIdle), |(.., cpu)| (cpu, SearchStep::MostCapacity))
    }

    /// Ordinary tick of a running task.
    #[cold]
    pub(super) fn tick_asymmetric(&mut self, core: &Core<'_>, cpu: CpuId, task: TaskId) {
        self.update_misfit_status(core, cpu, task);
        self.update_overutilized(core, cpu);
    }

    /// Notes the load of a CPU's task that needs a bigger CPU and may use one (`update_misfit_status`).
    #[cold]
    pub(super) fn update_misfit_status(&mut self, core: &Core<'_>, cpu: CpuId, task: TaskId) {
        let capacity = self.whole_capacity(cpu);
        let misfit = !self.fits_cpu(self.need_of(core, task), cpu)
            && core.allowed(task).iter().any(|other| self.whole_capacity(other) > capacity);
        self.rqs[cpu.index()].misfit_task_load = if misfit { self.task_h_load(task).max(1) } else { 0 };
    }

    /// Whether a pass looks at CPUs of unequal capacity (`SD_ASYM_CPUCAPACITY`).
    #[inline]
    pub(super) fn is_asymmetric_level(&self, pass: &Pass) -> bool {
        self.asymmetric && self.domains.domain(pass.domain).has(flags::ASYM_CPUCAPACITY)
    }

    /// The largest load of a task in a group that does not fit its CPU; 0 where all fit.
    pub(super) fn misfit_load(&self, group: u32) -> u64 {
        let cpus = self.domains.group_cpus(self.domains.group(group)).iter().copied();
        let loads =
            cpus.filter(|&cpu| !self.balance.is_excluded(cpu)).map(|cpu| self.rqs[cpu as usize].misfit_task_load);
        loads.max().unwrap_or(0)
    }

    /// Whether a task that fits the source would not fit the destination (`task_misfits_asym_cpu`).
    pub(super) fn would_misfit(&self, core: &Core<'_>, pass: &Pass, task: TaskId) -> bool {
        self.is_asymmetric_level(pass) && {
            let [src, dst] = [pass.src, pass.dst].map(|cpu| self.fits_cpu(self.need_of(core, task), cpu));
            src && !dst
        }
    }

    /// Classifies a group in which some CPU's task does not fit it. Whether there is one.
    #[cold]
    pub(super) fn find_misfit(&self, stats: &mut GroupStats) -> bool {
        stats.misfit_task_load = self.misfit_load(stats.group);
        let found = stats.misfit_task_load > 0;
        if found && stats.group_type < GroupType::MisfitTask {
            stats.group_type = GroupType::MisfitTask;
        }
        found
    }

    /// Whether a pull from a group can help: not of a misfit task to a CPU that is no bigger or has no room, and not from bigger CPUs that
    /// have a task each (`update_sd_pick_busiest`).
    #[cold]
    pub(super) fn pull_helps(
        &self,
        pass: &Pass,
        local: &GroupStats,
        stats: &GroupStats,
        busiest: Option<&GroupStats>,
    ) -> bool {
        let dst = self.domains.capacity_of(pass.dst);
        let cpus = self.domains.group_cpus(self.domains.group(stats.group)).iter();
        let capacities = cpus.map(|&cpu| self.domains.capacity_of(CpuId(cpu)));
        if stats.group_type == GroupType::MisfitTask {
            let most = capacities.max().unwrap_or(0);
            return capacity_greater(dst, most) && local.group_type == GroupType::HasSpare;
        }
        // A higher type than that of the busiest group so far, at first the lowest, is not asked.
        let as_busy = stats.group_type == busiest.map_or(GroupType::HasSpare, |busiest| busiest.group_type);
        let least = capacities.min().unwrap_or(0);
        !(as_busy && stats.group_type <= GroupType::FullyBusy && capacity_greater(least, dst))
    }

    /// Whether a queue has but one task that would come to a CPU no bigger, which would end in pushes from big CPUs to small ones
    /// (`sched_balance_find_src_rq`).
    pub(super) fn would_push_down(&self, pass: &Pass, cpu: CpuId) -> bool {
        self.queues[cpu.index()].h_nr_runnable == 1
            && !capacity_greater(self.domains.capacity_of(pass.dst), self.domains.capacity_of(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 80 % of 462 is 369.6, of 1024 819.2; 5 % more than 1000 is some 1053.
    #[test]
    fn four_fifths_of_a_capacity_fit_and_more_than_a_twentieth_is_greater() {
        assert!(fits_capacity(369, 462) && !fits_capacity(370, 462));
        assert!(fits_capacity(819, 1024) && !fits_capacity(820, 1024));
        assert!(capacity_greater(1053, 1000) && !capacity_greater(1052, 1000));
        assert!(capacity_greater(1024, 462) && !capacity_greater(1024, 1024));
    }
}
