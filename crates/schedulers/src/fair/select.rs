//! Choosing a CPU at wakeup, fork and exec (`select_task_rq_fair`; `docs/spec/linux-fair.md` section 4).
//!
//! Not modelled: per-CPU kernel threads as wakers. Idle tasks do not count
//! wakee flips (the kernel counts those of whatever a timer interrupts, idle tasks included).

mod linux_4_9;
mod slow_path;

use warmcore_kernel::{Core, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{SearchStart, SearchStep, Side, TaskId};

pub(super) use self::slow_path::adjust_numa_imbalance;
use super::clamps::Need;
use super::state::NONE;
use super::{Fair, Policy};
use crate::domains::flags;
use crate::fair::balance::counted::Other;
use crate::fair::gathering::Gathering;

/// Wakee flips are halved when the last time lies further back.
const FLIP_DECAY_NS: u64 = 1_000_000_000;

/// A wakeup as CPU selection sees it.
#[derive(Clone, Copy)]
pub(super) struct Wakee {
    pub task: TaskId,
    entity: u32,
    idle_policy: bool,
    /// What it needs of a CPU where capacities are unequal, else nothing.
    pub need: Need,
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// `select_task_rq_fair`.
    pub(crate) fn select_task_rq(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, wake: WakeFlags) -> CpuId {
        let cpu = core.this_cpu();
        let entity = self.task_entity(task);
        let idle_policy = self.entities[entity as usize].idle_policy;
        let mut wakee = Wakee { task, entity, idle_policy, need: Need::NOTHING };
        let (mut want_affine, mut start) = (false, SearchStart::Creator);
        if !wake.fork {
            self.record_wakee(core, task);
            if self.energy_decides()
                && let Some(found) = self.find_energy_efficient_cpu(core, task, prev)
            {
                return found;
            }
            if self.asymmetric {
                self.sync_entity_load_avg(task);
                wakee.need = self.need_of(core, task);
            }
            start = self.wake_start(core, entity, task, prev);
            want_affine = !matches!(start, SearchStart::WakeWide | SearchStart::WakerForbidden);
        }
        let balance_flag = if wake.fork { flags::BALANCE_FORK } else { 0 };
        let mut target = prev;
        let mut slow_path = None;
        for index in self.domains.range(cpu) {
            let domain = self.domains.domain(index);
            if want_affine && domain.has(flags::WAKE_AFFINE) && self.domains.span_contains(domain, prev) {
                if cpu != prev {
                    start = if self.parameters.rules_of_4_9 {
                        self.wake_affine_by_load(core, index, wakee, prev, wake.sync)
                    } else {
                        self.wake_affine(core, index, wakee, prev, wake.sync)
                    };
                    if start.side() == Side::Waker {
                        target = cpu;
                        self.count_other(core, index, Other::MoveAffine);
                    }
                }
                slow_path = None;
                break;
            }
            if domain.flags & balance_flag != 0 {
                slow_path = Some(index);
            } else if !want_affine {
                break;
            }
        }
        let (found, step) = match slow_path {
            Some(domain) => self.find_idlest_cpu(core, domain, wakee, cpu, balance_flag),
            None if wake.fork => (prev, SearchStep::NoForkLevel),
            None if self.parameters.rules_of_4_9 => self.select_idle_sibling_4_9(core, wakee, prev, target),
            None => {
                (target, start) = self.gathering.wake_target(core, &self.domains, task, prev, (target, start));
                let found = self.select_idle_sibling(core, wakee, prev, target);
                G::wake_found(self, core, task, found)
            }
        };
        core.tell_place(task, start, step);
        found
    }

    /// Where the search begins if no domain is asked: at the previous CPU. One is asked unless this is [`SearchStart::WakeWide`] or
    /// [`SearchStart::WakerForbidden`], which say `want_affine = !wake_wide(p) && cpumask_test_cpu(cpu, p->cpus_ptr)`.
    fn wake_start(&self, core: &Core<'_>, entity: u32, task: TaskId, prev: CpuId) -> SearchStart {
        if self.wake_wide(core, entity) {
            SearchStart::WakeWide
        } else if !core.may_run_on(task, core.this_cpu()) {
            SearchStart::WakerForbidden
        } else if core.this_cpu() == prev {
            SearchStart::SameCpu
        } else {
            SearchStart::NoAffineDomain
        }
    }

    /// `record_wakee`: how often the running task wakes somebody else than last time.
    fn record_wakee(&mut self, core: &Core<'_>, wakee: TaskId) {
        let waker = core.curr(core.this_cpu());
        if waker.is_idle() {
            return;
        }
        let index = self.task_entity(waker);
        let waker = &mut self.entities[index as usize];
        if core.now_ns() > waker.wakee_flip_decay_ns + FLIP_DECAY_NS {
            waker.wakee_flips >>= 1;
            waker.wakee_flip_decay_ns = core.now_ns();
        }
        if waker.last_wakee != wakee.0 {
            waker.last_wakee = wakee.0;
            waker.wakee_flips += 1;
        }
    }

    /// `wake_wide`: both sides of the relation have many partners, so pulling them together would crowd an LLC.
    fn wake_wide(&self, core: &Core<'_>, wakee: u32) -> bool {
        let cpu = core.this_cpu();
        let waker = core.curr(cpu);
        let waker_flips = if waker.is_idle() { 0 } else { self.entities[self.task_entity(waker) as usize].wakee_flips };
        let wakee_flips = self.entities[wakee as usize].wakee_flips;
        let factor = self.domains.sd_llc_size(cpu);
        let (most, least) = (waker_flips.max(wakee_flips), waker_flips.min(wakee_flips));
        least >= factor && most >= least.saturating_mul(factor)
    }

    /// `wake_affine`: whether the waker's CPU or the previous one is the better start of the search.
    fn wake_affine(&self, core: &Core<'_>, domain: usize, wakee: Wakee, prev: CpuId, sync: bool) -> SearchStart {
        let this = core.this_cpu();
        // wake_affine_idle
        if self.idle[this.index()] && self.domains.cpus_share_cache(this, prev) {
            return if self.idle[prev.index()] { SearchStart::BothIdle } else { SearchStart::WakerIdle };
        }
        if sync && self.nr_not_delayed(this) == 1 {
            return SearchStart::WakerSync;
        }
        if self.idle[prev.index()] {
            return SearchStart::PreviousIdle;
        }
        lighter(self.wake_affine_weight(core, domain, wakee, prev, sync))
    }

    /// Tasks on a CPU without those that sleep in its queue.
    fn nr_not_delayed(&self, cpu: CpuId) -> u32 {
        self.queues[cpu.index()].h_nr_runnable + self.above(cpu)
    }

    fn wake_affine_weight(&self, core: &Core<'_>, domain: usize, wakee: Wakee, prev: CpuId, sync: bool) -> bool {
        let this = core.this_cpu();
        let mut this_load = self.cpu_load(this);
        if sync && !core.curr_is_idle(this) {
            let waker_load = self.task_h_load(core.curr(this));
            if waker_load > this_load {
                return true;
            }
            this_load -= waker_load;
        }
        let task_load = self.task_h_load(wakee.task);
        let bias = u64::from(100 + (self.domains.domain(domain).imbalance_pct - 100) / 2);
        let this_effective = (this_load + task_load) * 100 * u64::from(self.domains.capacity_of(prev));
        let prev_effective =
            self.cpu_load(prev).saturating_sub(task_load) * bias * u64::from(self.domains.capacity_of(this))
                + u64::from(sync);
        this_effective < prev_effective
    }

    /// Whether a CPU counts as idle for the wakee (`choose_idle_cpu`).
    #[inline]
    pub(super) fn idle_for(&self, core: &Core<'_>, cpu: CpuId, wakee: Wakee) -> bool {
        self.idle[cpu.index()] || (!wakee.idle_policy && self.sched_idle_cpu(core, cpu))
    }

    /// `select_idle_sibling`.
    fn select_idle_sibling(
        &mut self,
        core: &Core<'_>,
        wakee: Wakee,
        prev: CpuId,
        target: CpuId,
    ) -> (CpuId, SearchStep) {
        if core.may_run_on(wakee.task, target)
            && self.idle_for(core, target, wakee)
            && self.fits_cpu(wakee.need, target)
        {
            return (target, SearchStep::TargetIdle);
        }
        let clusters = self.domains.clusters_active();
        let near = |domains: &crate::domains::Domains, cpu: CpuId| {
            !clusters || domains.sd_share_id(cpu) == domains.sd_share_id(target)
        };
        let mut fallback = None;
        let usable = |fair: &Self, cpu: CpuId| {
            fair.domains.cpus_share_cache(cpu, target)
                && fair.idle_for(core, cpu, wakee)
                && core.may_run_on(wakee.task, cpu)
                && fair.fits_cpu(wakee.need, cpu)
        };
        if prev != target && usable(self, prev) {
            if near(&self.domains, prev) {
                return (prev, SearchStep::PreviousIdle);
            }
            fallback = Some((prev, SearchStep::PreviousElsewhere));
        }
        let recent = self.entities[wakee.entity as usize].recent_used_cpu;
        self.entities[wakee.entity as usize].recent_used_cpu = prev.0;
        if recent != NONE && recent != prev.0 && recent != target.0 && usable(self, CpuId(recent)) {
            if near(&self.domains, CpuId(recent)) {
                return (CpuId(recent), SearchStep::RecentIdle);
            }
            fallback = fallback.or(Some((CpuId(recent), SearchStep::RecentElsewhere)));
        }
        if self.asymmetric
            && let Some(domain) = self.domains.sd_asym_cpucapacity(target)
        {
            return self.select_idle_capacity(core, wakee, domain, target);
        }
        if self.domains.sd_llc(target).is_none() {
            return (target, SearchStep::NoSharedCache);
        }
        let llc = self.domains.sd_llc_id(target);
        let mut has_idle_core = false;
        if self.domains.smt_active() {
            has_idle_core = self.domains.shared(llc).has_idle_cores;
            if !has_idle_core
                && self.domains.cpus_share_cache(prev, target)
                && let Some(sibling) = self.select_idle_smt(core, wakee, prev)
            {
                return (sibling, SearchStep::SiblingIdle);
            }
        }
        self.select_idle_cpu(core, wakee, target, has_idle_core).unwrap_or_else(|why| fallback.unwrap_or((target, why)))
    }

    /// `select_idle_smt`: an idle sibling thread of a CPU's core.
    fn select_idle_smt(&self, core: &Core<'_>, wakee: Wakee, cpu: CpuId) -> Option<CpuId> {
        let machine = core.machine();
        machine.cpus_of_core(machine.core_of(cpu)).iter().find(|&sibling| {
            sibling != cpu && core.may_run_on(wakee.task, sibling) && self.idle_for(core, sibling, wakee)
        })
    }

    /// `select_idle_cpu`: searches the target's LLC, the target's cluster first if there are clusters. An error says why nothing was found.
    fn select_idle_cpu(
        &mut self,
        core: &Core<'_>,
        wakee: Wakee,
        target: CpuId,
        has_idle_core: bool,
    ) -> Result<(CpuId, SearchStep), SearchStep> {
        let llc = self.domains.sd_llc_id(target);
        let mut left = u32::MAX;
        if self.parameters.sis_util {
            left = self.domains.shared(llc).nr_idle_scan + 1;
            if left == 1 {
                return Err(SearchStep::NotScanned);
            }
        }
        let cluster = self.domains.clusters_active().then(|| self.domains.sd_share_id(target));
        let mut first_idle = None;
        let passes: &[Option<bool>] = if cluster.is_some() { &[Some(true), Some(false)] } else { &[None] };
        for pass in passes {
            let cpus = self.domains.llc_cpus(llc);
            let start = self.domains.llc_position(target) as usize + 1;
            for offset in 0..cpus.len() {
                let position = start + offset;
                let cpu = CpuId(cpus[if position < cpus.len() { position } else { position - cpus.len() }]);
                if pass.is_some_and(|inside| (Some(self.domains.sd_share_id(cpu)) == cluster) != inside)
                    || !core.may_run_on(wakee.task, cpu)
                {
                    continue;
                }
                if has_idle_core {
                    match self.test_idle_core(core, wakee, cpu, &mut first_idle) {
                        true => return Ok((cpu, SearchStep::CoreIdle)),
                        false => continue,
                    }
                }
                left -= 1;
                if left == 0 {
                    return Err(SearchStep::ScanEnded);
                }
                if self.idle_for(core, cpu, wakee) {
                    return Ok((cpu, SearchStep::CpuIdle));
                }
            }
        }
        if has_idle_core {
            self.domains.shared_mut(llc).has_idle_cores = false;
        }
        first_idle.map(|cpu| (cpu, SearchStep::ThreadIdle)).ok_or(SearchStep::NoneIdle)
    }

    /// `select_idle_core`: whether the CPU's whole core is idle; remembers the first thread seen that is idle for the wakee.
    fn test_idle_core(&self, core: &Core<'_>, wakee: Wakee, cpu: CpuId, first_idle: &mut Option<CpuId>) -> bool {
        if self.idle[cpu.index()] && self.is_core_idle(cpu) {
            return true;
        }
        if first_idle.is_none() {
            let machine = core.machine();
            let usable = |&sibling: &CpuId| core.may_run_on(wakee.task, sibling) && self.idle_for(core, sibling, wakee);
            *first_idle = machine.cpus_of_core(machine.core_of(cpu)).iter().find(usable);
        }
        false
    }

    /// `__update_idle_core`: a CPU went idle; if its whole core is, the LLC has an idle core.
    pub(super) fn note_idle_core(&mut self, cpu: CpuId) {
        if !self.domains.smt_active() || self.domains.of(cpu).is_empty() {
            return;
        }
        let llc = self.domains.sd_llc_id(cpu);
        if self.domains.shared(llc).has_idle_cores {
            return;
        }
        if self.is_core_idle(cpu) {
            self.domains.shared_mut(llc).has_idle_cores = true;
        }
    }
}

/// Which of the two CPUs has the smaller load.
const fn lighter(wakers: bool) -> SearchStart {
    if wakers { SearchStart::WakerLighter } else { SearchStart::PreviousLighter }
}
