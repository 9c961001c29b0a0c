//! Packing onto CPUs of high priority: idle ones take tasks that run on CPUs of lower priority (`docs/spec/linux-fair.md` section 5.9).
//!
//! Source: Linux near 7.0 `kernel/sched/fair.c` (`sched_use_asym_prio`, `sched_asym`, `sched_group_asym`, `update_sg_lb_stats`,
//! `sched_balance_find_src_rq`, `asym_active_balance`, `nohz_balancer_kick`), `kernel/sched/sched.h` (`sched_asym_prefer`); the rules are those
//! of 6.5 too.
//!
//! Not modelled: priorities that change in a run (`sched_update_asym_prefer_cpu`).

use warmcore_topology::CpuId;

use super::balance::IdleType;
use super::balance::pass::Pass;
use super::balance::stats::GroupStats;
use super::{Fair, Policy};
use crate::domains::flags;
use crate::fair::gathering::Gathering;

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Whether a pass goes by priorities (`SD_ASYM_PACKING`, which the level of hardware threads has not).
    #[inline]
    pub(super) fn is_packing_level(&self, pass: &Pass) -> bool {
        self.packing && self.domains.domain(pass.domain).has(flags::ASYM_PACKING)
    }

    /// Whether a CPU's priority counts: the other hardware threads of its core are idle (`sched_use_asym_prio`).
    fn uses_priority(&self, cpu: CpuId) -> bool {
        !self.domains.smt_active() || self.is_core_idle(cpu)
    }

    /// Whether tasks of `src` are better off on `dst` (`sched_asym`).
    pub(super) fn is_preferred(&self, dst: CpuId, src: CpuId) -> bool {
        self.uses_priority(dst) && self.domains.priority_of(dst) > self.domains.priority_of(src)
    }

    /// Whether an idle destination is to have a group's tasks: its priority is above that of all the group's CPUs (`sched_group_asym`). A core
    /// with several busy threads needs help whatever the priorities are.
    #[cold]
    pub(super) fn is_preferred_to_group(&self, pass: &Pass, stats: &GroupStats) -> bool {
        let busy_threads = stats.weight - stats.idle_cpus;
        pass.idle != IdleType::NotIdle
            && stats.h_nr_runnable > 0
            && (stats.flags & flags::SHARE_CPUCAPACITY == 0 || busy_threads == 1)
            && self.uses_priority(pass.dst)
            && self.domains.priority_of(pass.dst) > stats.priority
    }

    /// Whether a queue's only task already has a CPU of higher priority than the destination (`sched_balance_find_src_rq`).
    #[cold]
    pub(super) fn would_unpack(&self, pass: &Pass, cpu: CpuId) -> bool {
        self.queues[cpu.index()].h_nr_runnable == 1 && self.is_preferred(cpu, pass.dst)
    }

    /// Whether the source's running task is to be pushed to an idle CPU: one of higher priority, or any where it shares its core with another
    /// (`asym_active_balance`).
    pub(super) fn packs_running_task(&self, pass: &Pass) -> bool {
        pass.idle != IdleType::NotIdle
            && self.is_packing_level(pass)
            && self.uses_priority(pass.dst)
            && (self.domains.priority_of(pass.dst) > self.domains.priority_of(pass.src)
                || !self.uses_priority(pass.src))
    }
}
