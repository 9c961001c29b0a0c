//! New-idle balancing: a CPU that runs out of tasks looks for some before it goes idle, where that has paid lately.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use super::IdleType;
use crate::domains::{Domain, flags};
use crate::fair::gathering::Gathering;
use crate::fair::{Fair, Policy};

/// Calls after which the success rate is computed and the counters are halved.
const NEWIDLE_CALLS: u32 = 1024;

/// Weight of a success when passes run with probability `(1 + ratio) / 1024`, so that skipped passes do not count as
/// failures.
pub(super) fn success_weight(ratio: u32) -> u32 {
    let chance = 1 + ratio;
    (1024 + chance / 2) / chance
}

/// Counts a call and its success (`update_newidle_stats`).
pub(super) fn update_newidle_stats(domain: &mut Domain, success: u32, now_ns: u64, rate: bool) {
    domain.newidle_call += 1;
    domain.newidle_success += success;
    if domain.newidle_call < NEWIDLE_CALLS {
        return;
    }
    // NI_RATE: calls that come seldom cost little, so let them through whatever their success.
    let elapsed = now_ns - domain.newidle_stamp_ns;
    let seldom = if rate { elapsed >> 22 } else { 0 };
    domain.newidle_stamp_ns = now_ns;
    domain.newidle_ratio = (seldom + u64::from(domain.newidle_success)).min(1024) as u32;
    domain.newidle_call /= 2;
    domain.newidle_success /= 2;
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Looks for a task to run on a CPU that has none (`sched_balance_newidle`). `true` if there is one now.
    pub(crate) fn sched_balance_newidle(&mut self, core: &mut Core<'_>, cpu: CpuId) -> bool {
        // What is on its way will be picked up when the CPU gets to idle.
        if core.ttwu_pending(cpu) {
            return false;
        }
        // Zero means busy, so idleness that begins with the run is recorded a nanosecond late.
        self.set_idle_stamp(cpu, core.now_ns().max(1));
        self.rqs[cpu.index()].misfit_task_load = 0;
        let jiffies = core.jiffies();
        let mut next_balance = jiffies + u64::from(core.parameters().hz);
        let levels = self.domains.range(cpu);
        let Some(lowest) = levels.clone().next() else {
            return false;
        };
        let found = if self.newidle_pays(cpu, lowest) {
            self.newidle_climb(core, cpu, levels, &mut next_balance)
        } else {
            next_balance = next_balance.min(self.next_idle_balance(core, lowest));
            false
        };
        let rq = &mut self.rqs[cpu.index()];
        rq.next_balance = rq.next_balance.min(next_balance);
        if found {
            self.set_idle_stamp(cpu, 0);
        } else {
            self.nohz_newidle_balance(core, cpu, jiffies);
        }
        found
    }

    /// Whether there is something to pull and time to do it: some CPU has two tasks, and idleness lasts longer on average
    /// than a look at the lowest domain takes.
    fn newidle_pays(&self, cpu: CpuId, lowest: usize) -> bool {
        let needed = if self.parameters.load_only_balance {
            self.parameters.migration_cost_ns
        } else {
            self.domains.domain(lowest).max_newidle_lb_cost_ns
        };
        self.overloaded && self.rqs[cpu.index()].avg_idle_ns >= needed
    }

    /// Goes up the domains until a task is found or time is up. Kept apart from the way into idleness, which most often
    /// does not lead here.
    #[inline(never)]
    fn newidle_climb(
        &mut self,
        core: &mut Core<'_>,
        cpu: CpuId,
        levels: std::ops::Range<usize>,
        next_balance: &mut u64,
    ) -> bool {
        self.begin_activity();
        self.refresh_blocked_averages(core, cpu);
        let avg_idle_ns = self.rqs[cpu.index()].avg_idle_ns;
        let mut spent_ns = 0;
        let mut found = false;
        for index in levels {
            *next_balance = (*next_balance).min(self.next_idle_balance(core, index));
            let domain = self.domains.domain(index);
            if avg_idle_ns < spent_ns + domain.max_newidle_lb_cost_ns {
                break;
            }
            if domain.has(flags::BALANCE_NEWIDLE) {
                let Some(weight) = self.newidle_draw(core, index) else {
                    continue;
                };
                let outcome = self.sched_balance_rq(core, cpu, index, IdleType::NewlyIdle);
                found = outcome.moved > 0;
                spent_ns += outcome.cost_ns;
                self.record_newidle(core, index, outcome.cost_ns, if found { weight } else { 0 });
            }
            if found || self.rqs[cpu.index()].nr_running > 0 || core.ttwu_pending(cpu) {
                break;
            }
        }
        self.end_activity(core, cpu);
        let rq = &mut self.rqs[cpu.index()];
        rq.max_idle_balance_cost_ns = rq.max_idle_balance_cost_ns.max(spent_ns);
        found || rq.nr_running > 0
    }

    /// Throws the dice for a level (`NI_RANDOM`): `None` to skip it, which counts as a call without success, else the
    /// weight of a success.
    fn newidle_draw(&mut self, core: &Core<'_>, index: usize) -> Option<u32> {
        let ratio = self.domains.domain(index).newidle_ratio;
        if !self.parameters.newidle_random || ratio >= 1024 {
            return Some(1);
        }
        if self.balance.throw() > 1 + ratio {
            update_newidle_stats(self.domains.domain_mut(index), 0, core.now_ns(), self.parameters.newidle_rate);
            return None;
        }
        Some(success_weight(ratio))
    }

    /// Records cost and success of a pass (`update_newidle_cost`).
    fn record_newidle(&mut self, core: &Core<'_>, index: usize, cost_ns: u64, success: u32) {
        let domain = self.domains.domain_mut(index);
        if cost_ns > 0 {
            update_newidle_stats(domain, success, core.now_ns(), self.parameters.newidle_rate);
        }
        let jiffies = core.jiffies();
        if cost_ns > domain.max_newidle_lb_cost_ns {
            domain.max_newidle_lb_cost_ns = cost_ns;
            domain.last_decay_max_lb_cost = jiffies;
        } else {
            super::decay_newidle_cost(domain, jiffies, u64::from(core.parameters().hz));
        }
    }

    /// When a domain is due if the CPU stays idle (`update_next_balance`).
    fn next_idle_balance(&self, core: &Core<'_>, index: usize) -> u64 {
        self.domains.domain(index).due(self.interval(index, false, u64::from(core.parameters().hz)))
    }
}
