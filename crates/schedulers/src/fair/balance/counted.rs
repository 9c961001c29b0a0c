//! What passes come to, by domain, as `/proc/schedstat` has it; only where figures of balancing are asked for.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c`: `schedstat_inc` and `schedstat_add` in `sched_balance_rq`, `detach_task`, `detach_tasks`,
//! `detach_one_task`, `active_load_balance_cpu_stop`, `wake_affine`, and `update_lb_imbalance_stat`.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::schedstat::{CpuCounters, DOMAIN_COUNTERS, DomainCounters, balance_place};

use super::BalanceState;
use super::pass::Pass;
use super::stats::Migration;
use crate::fair::gathering::Gathering;
use crate::fair::{Fair, Policy};

/// What a pass counts, by place among the counters of its kind.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    /// It began.
    Count = 0,
    /// There was nothing to do.
    Balanced = 1,
    /// It moved nothing.
    Failed = 2,
    /// Tasks that it moved.
    Gained = 7,
    /// Of these, tasks that ran lately.
    HotGained = 8,
    /// No queue of the busiest group was busy enough.
    NoBusyQueue = 9,
    /// No group was.
    NoBusyGroup = 10,
}

/// Counters that belong to no kind of pass, by place behind the three kinds.
#[derive(Clone, Copy)]
pub(in crate::fair) enum Other {
    /// A stopper began to push a task.
    ActiveCount = 0,
    /// It found none.
    ActiveFailed = 1,
    /// It pushed one.
    ActivePushed = 2,
    /// A wakee was drawn to its waker's CPU.
    MoveAffine = 10,
}

impl BalanceState {
    fn add(&mut self, domain: usize, place: usize, amount: u64) {
        if domain >= self.counters.len() {
            self.counters.resize(domain + 1, [0; DOMAIN_COUNTERS]);
        }
        self.counters[domain][place] += amount;
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Counts something of a pass.
    #[inline]
    pub(super) fn count_pass(&mut self, core: &Core<'_>, pass: &Pass, what: Counted, amount: u64) {
        if core.wants_balance_details() {
            self.balance.add(pass.domain, balance_place(pass.idle as usize, what as usize), amount);
        }
    }

    /// Counts what a pass found to move (`update_lb_imbalance_stat`).
    pub(super) fn count_imbalance(&mut self, core: &Core<'_>, pass: &Pass) {
        let field = match pass.migration {
            Migration::Load => 3,
            Migration::Util => 4,
            Migration::Task => 5,
            Migration::Misfit => 6,
            Migration::LlcTask => return,
        };
        if core.wants_balance_details() {
            let place = balance_place(pass.idle as usize, field);
            self.balance.add(pass.domain, place, u64::try_from(pass.imbalance).unwrap_or(0));
        }
    }

    /// Counts something else of a domain.
    #[inline]
    pub(in crate::fair) fn count_other(&mut self, core: &Core<'_>, domain: usize, what: Other) {
        if core.wants_balance_details() {
            self.balance.add(domain, balance_place(3, what as usize), 1);
        }
    }

    /// The counters of all domains.
    pub(in crate::fair) fn counters_of_domains(&self, core: &Core<'_>) -> Vec<CpuCounters> {
        let machine = core.machine();
        let os = |cpu: CpuId| CpuId(machine.os_index(cpu));
        let domain = |index: usize| {
            let domain = self.domains.domain(index);
            let counted = self.balance.counters.get(index).copied().unwrap_or([0; DOMAIN_COUNTERS]);
            DomainCounters {
                name: domain.level.name().to_owned(),
                span: self.domains.span(domain).iter().map(os).collect(),
                values: counted.map(Some),
            }
        };
        let cpu = |cpu: CpuId| CpuCounters {
            cpu: machine.os_index(cpu),
            domains: self.domains.range(cpu).map(domain).collect(),
            ..CpuCounters::default()
        };
        if core.wants_balance_details() { core.active().iter().map(cpu).collect() } else { Vec::new() }
    }
}
