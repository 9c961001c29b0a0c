//! Choosing a CPU as Linux 4.9 did (`select_task_rq_fair` and what it calls; `docs/spec/linux-fair.md` section 1.16): by the load
//! that is runnable now, with a search whose limit is what searches have cost.
//!
//! Difference from the kernel: there are no idle states, so of idle CPUs the one that idled last is taken.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::{SearchStart, SearchStep};

use super::{Wakee, lighter};
use crate::domains::flags;
use crate::fair::gathering::Gathering;
use crate::fair::state::NONE;
use crate::fair::weights::NICE_0_WEIGHT;
use crate::fair::{Fair, Policy};

/// What a search takes for each CPU it looks at (assumed: a line that another CPU has written).
const VISIT_NS: u64 = 50;
/// The mean idle time is cut by this before it is compared with the cost of a search: its variance is large.
const AVERAGE_IDLE_DIVISOR: u64 = 512;

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// `wake_affine`: whether the load of the waker's CPU, with the task on it, is no more than that of the previous one. A waker that
    /// is about to sleep is not counted.
    pub(super) fn wake_affine_by_load(
        &self,
        core: &Core<'_>,
        domain: usize,
        wakee: Wakee,
        prev: CpuId,
        sync: bool,
    ) -> SearchStart {
        let this = core.this_cpu();
        let (mut this_load, mut prev_load) = (self.balance_load(this) as f64, self.balance_load(prev) as f64);
        if sync && !core.curr_is_idle(this) {
            let waker = self.task_entity(core.curr(this));
            let [weight, ..] = self.contribution(waker);
            this_load += self.effective_load(waker, this, -weight, -weight);
            prev_load += self.effective_load(waker, prev, 0.0, -weight);
        }
        let bias = f64::from(100 + (self.domains.domain(domain).imbalance_pct - 100) / 2);
        let mut this_effective = 100.0 * f64::from(self.domains.capacity_of(prev));
        let mut prev_effective = bias * f64::from(self.domains.capacity_of(this));
        if this_load > 0.0 {
            let wakee = self.task_entity(wakee.task);
            let [weight, ..] = self.contribution(wakee);
            this_effective *= this_load + self.effective_load(wakee, this, weight, weight);
            prev_effective *= prev_load + self.effective_load(wakee, prev, 0.0, weight);
        }
        lighter(this_effective <= prev_effective)
    }

    /// `effective_load`: by how much a CPU's load changes if the entity's group has so much more load on it, and so much more in all.
    fn effective_load(&self, entity: u32, cpu: CpuId, more_here: f64, more_in_all: f64) -> f64 {
        let cpus = self.rqs.len();
        let queue = self.entities[entity as usize].queue;
        if self.queues[queue as usize].group_entity == NONE {
            return more_here;
        }
        let mut here = &self.queues[cpus + self.group_of_queue(queue) * cpus + cpu.index()];
        let (mut more, mut more_in_all) = (more_here, more_in_all);
        while here.group_entity != NONE {
            let group = &self.groups[here.group_entity as usize / cpus];
            let elsewhere = group.load_avg - here.tg_load_contribution;
            let [present, ..] = self.contribution(here.group_entity);
            let (load, shares) = (here.pelt.load, f64::from(group.shares));
            more = weight_of_group(shares, load + more, elsewhere + load + more_in_all) - present;
            // Groups further up have no more to do in all, it only lies elsewhere.
            more_in_all = 0.0;
            here = &self.queues[self.entities[here.group_entity as usize].queue as usize];
        }
        more
    }

    /// `select_idle_sibling`: the target, the previous CPU, an idle core, an idle CPU, an idle sibling; else the target, busy.
    pub(super) fn select_idle_sibling_4_9(
        &mut self,
        core: &Core<'_>,
        wakee: Wakee,
        prev: CpuId,
        target: CpuId,
    ) -> (CpuId, SearchStep) {
        let usable = |fair: &Self, cpu: CpuId| fair.idle[cpu.index()] && core.may_run_on(wakee.task, cpu);
        if usable(self, target) {
            return (target, SearchStep::TargetIdle);
        }
        if prev != target && self.domains.cpus_share_cache(prev, target) && usable(self, prev) {
            return (prev, SearchStep::PreviousIdle);
        }
        if self.domains.sd_llc(target).is_none() {
            return (target, SearchStep::NoSharedCache);
        }
        if let Some(cpu) = self.idle_core_4_9(core, wakee, target) {
            return (cpu, SearchStep::CoreIdle);
        }
        let found = self.idle_cpu_4_9(core, wakee, target);
        let sibling = || self.select_idle_smt(core, wakee, target).map(|cpu| (cpu, SearchStep::SiblingIdle));
        found.or_else(|why| sibling().ok_or(why)).unwrap_or_else(|why| (target, why))
    }

    /// `select_idle_core`: if the LLC is known to have one.
    fn idle_core_4_9(&mut self, core: &Core<'_>, wakee: Wakee, target: CpuId) -> Option<CpuId> {
        let llc = self.domains.sd_llc_id(target);
        if !self.domains.smt_active() || !self.domains.shared(llc).has_idle_cores {
            return None;
        }
        let cpus = self.domains.llc_cpus(llc);
        let start = self.domains.llc_position(target) as usize;
        let found = (0..cpus.len())
            .map(|offset| CpuId(cpus[(start + offset) % cpus.len()]))
            .find(|&cpu| core.may_run_on(wakee.task, cpu) && self.idle[cpu.index()] && self.is_core_idle(cpu));
        if found.is_none() {
            self.domains.shared_mut(llc).has_idle_cores = false;
        }
        found
    }

    /// `select_idle_cpu`: the whole LLC, unless searches from this CPU cost more than its idle times are worth.
    fn idle_cpu_4_9(
        &mut self,
        core: &Core<'_>,
        wakee: Wakee,
        target: CpuId,
    ) -> Result<(CpuId, SearchStep), SearchStep> {
        let this = core.this_cpu().index();
        if self.rqs[this].avg_idle_ns / AVERAGE_IDLE_DIVISOR < self.balance.scan_costs_ns[this] {
            return Err(SearchStep::NotScanned);
        }
        let cpus = self.domains.llc_cpus(self.domains.sd_llc_id(target));
        let start = self.domains.llc_position(target) as usize;
        let (mut visited, mut found) = (0, None);
        for offset in 0..cpus.len() {
            let cpu = CpuId(cpus[(start + offset) % cpus.len()]);
            if !core.may_run_on(wakee.task, cpu) {
                continue;
            }
            visited += 1;
            if self.idle[cpu.index()] {
                found = Some(cpu);
                break;
            }
        }
        let cost = &mut self.balance.scan_costs_ns[this];
        *cost = (*cost as i64 + (visited * VISIT_NS as i64 - *cost as i64) / 8) as u64;
        found.map(|cpu| (cpu, SearchStep::CpuIdle)).ok_or(SearchStep::NoneIdle)
    }

    /// `find_idlest_group`: the group with the least load per capacity, if the local one has more by half the domain's margin.
    pub(super) fn find_idlest_group_4_9(&self, core: &Core<'_>, index: usize, wakee: Wakee) -> Option<u32> {
        let domain = self.domains.domain(index);
        let local_group = self.domains.local_group(domain);
        let (mut local_load, mut idlest) = (0, None::<(u64, u32)>);
        for group in self.domains.groups(domain) {
            let description = self.domains.group(group);
            let cpus = self.domains.group_cpus(description);
            if !cpus.iter().any(|&cpu| core.may_run_on(wakee.task, CpuId(cpu))) {
                continue;
            }
            let load: u64 = cpus.iter().map(|&cpu| self.load_for_new_task(core, CpuId(cpu))).sum();
            let average = load * 1024 / u64::from(description.capacity).max(1);
            if group == local_group {
                local_load = average;
            } else if idlest.is_none_or(|(least, _)| average < least) {
                idlest = Some((average, group));
            }
        }
        let margin = u64::from(100 + (domain.imbalance_pct - 100) / 2);
        idlest.filter(|(least, _)| 100 * local_load >= margin * least).map(|(_, group)| group)
    }

    /// `find_idlest_cpu`: of idle CPUs the one that idled last, else the one with the least load, this one among equals.
    pub(super) fn find_idlest_group_cpu_4_9(
        &self,
        core: &Core<'_>,
        group: u32,
        wakee: Wakee,
        this: CpuId,
    ) -> Option<CpuId> {
        let cpus = self.domains.group_cpus(self.domains.group(group)).iter().map(|&cpu| CpuId(cpu));
        let allowed = || cpus.clone().filter(|&cpu| core.may_run_on(wakee.task, cpu));
        let idled = |cpu: CpuId| (self.rqs[cpu.index()].idle_entered_ns, self.rqs[cpu.index()].idle_rank);
        let mut newest: Option<CpuId> = None;
        for cpu in allowed().filter(|cpu| self.idle[cpu.index()]) {
            if newest.is_none_or(|best| idled(cpu) > idled(best)) {
                newest = Some(cpu);
            }
        }
        newest.or_else(|| allowed().min_by_key(|&cpu| (self.load_for_new_task(core, cpu), cpu != this)))
    }

    /// Runnable load of a CPU, with the program that starts the others where it runs.
    fn load_for_new_task(&self, core: &Core<'_>, cpu: CpuId) -> u64 {
        self.balance_load(cpu) + if core.launcher() == Some(cpu) { u64::from(NICE_0_WEIGHT) } else { 0 }
    }

    /// Which of a CPU's averages a pass over a domain compares (`get_sd_load_idx`): the longer, the farther its CPUs are from each
    /// other.
    pub(in crate::fair) fn load_index_4_9(&self, index: usize, idle: crate::fair::balance::IdleType) -> usize {
        use crate::fair::balance::IdleType;
        let domain = self.domains.domain(index);
        match idle {
            IdleType::NewlyIdle => 0,
            _ if domain.has(flags::SHARE_CPUCAPACITY) => 0,
            IdleType::NotIdle if domain.has(flags::SHARE_LLC) => 2,
            IdleType::Idle if domain.has(flags::SHARE_LLC) => 0,
            IdleType::NotIdle if domain.has(flags::NUMA) => 3,
            IdleType::Idle if domain.has(flags::NUMA) => 2,
            IdleType::NotIdle => 2,
            IdleType::Idle => 1,
        }
    }
}

/// What a group with these shares weighs on a CPU that has so much of its load in all: with more tasks it weighs no more, so what it gains
/// on one CPU it loses on the others.
fn weight_of_group(shares: f64, here: f64, in_all: f64) -> f64 {
    /// `MIN_SHARES`.
    const MIN_SHARES: f64 = 2.0;
    let weight = if in_all > 0.0 && here < in_all { here * shares / in_all } else { shares };
    weight.max(MIN_SHARES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four tasks of a group are on this CPU and one on the previous one; that one comes.
    #[test]
    fn what_a_woken_task_brings_is_what_its_group_would_weigh() {
        let weight = |here: f64, in_all: f64| weight_of_group(1024.0, here, in_all) as i64;
        // 4096 of 5120 are here, 1024 there. What is asleep still counts where it was, so it counts twice: 5120 of 6144.
        assert_eq!((weight(4096.0, 5120.0), weight(1024.0, 5120.0)), (819, 204));
        assert_eq!((weight(4096.0 + 1024.0, 6144.0), weight(1024.0, 6144.0)), (853, 170));
        // The only task of a group weighs as much as the group, whatever it is, and not less than 2.
        assert_eq!((weight(20.0, 20.0), weight(1.0, 4096.0)), (1024, 2));
    }
}
