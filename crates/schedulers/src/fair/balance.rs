//! The load balancer: when CPUs balance their domains, and the entry points the fair class calls.
//!
//! | module | kernel functions |
//! |---|---|
//! | here | `sched_balance_trigger`, `sched_balance_softirq`, `sched_balance_domains` |
//! | `stats` | `update_sg_lb_stats`, `update_sd_pick_busiest`, `calculate_imbalance`, `sched_balance_find_src_group` |
//! | `source` | `sched_balance_find_src_rq` |
//! | `load_only` | the same as they were from Linux 4.9 to 5.4 |
//! | `tick_loads` | `cpu_load_update_active`, `source_load`, `target_load` of 4.9 |
//! | `pass` | `should_we_balance`, `sched_balance_rq` |
//! | `counted` | the counters of `/proc/schedstat` |
//! | `details` | none: what moves rest on, for who asks |
//! | `move_tasks` | `detach_tasks`, `can_migrate_task`, `attach_tasks`, `active_load_balance_cpu_stop` |
//! | `newidle` | `sched_balance_newidle` |
//! | `nohz` | `nohz_balancer_kick`, `nohz_idle_balance` and the set of idle CPUs without tick |
//!
//! Source: Linux 7.2 `kernel/sched/fair.c`, as specified in `docs/spec/linux-fair.md` sections 1.16 and 5.
//!
//! What keeping threads together adds is asked through `gathering`, what NUMA balancing adds in [`numa`](super::numa), and what priorities of
//! CPUs add in `packing`.
//!
//! A pass takes no simulated time by itself: its cost is charged to the CPU that runs it, and the same figure is what
//! the kernel would have measured.

pub(crate) mod counted;
pub(crate) mod details;
pub(crate) mod load_only;
pub(crate) mod move_tasks;
pub(crate) mod newidle;
pub(crate) mod nohz;
pub(crate) mod pass;
mod source;
pub(crate) mod stats;
#[cfg(test)]
mod tests;
mod tick_loads;

use rand_core::Rng;
use rand_pcg::Pcg32;
use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::schedstat::DOMAIN_COUNTERS;
use warmcore_trace::{OverheadKind, TaskId};

use self::details::Found;
use self::nohz::Nohz;
use self::tick_loads::TickLoads;
use super::{Fair, Policy};
use crate::domains::Domain;
use crate::fair::gathering::Gathering;

/// Longest time between two looks at a CPU's domains, in seconds.
const MAX_NEXT_BALANCE_SECONDS: u64 = 60;

/// State of the CPU a pass balances for (`enum cpu_idle_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleType {
    /// It has work.
    NotIdle,
    Idle,
    /// It is about to become idle.
    NewlyIdle,
}

/// State of the balancer that belongs to no domain and no run queue.
pub struct BalanceState {
    /// Decides which new-idle passes are skipped.
    random: Pcg32,
    nohz: Nohz,
    /// By CPU: it was idle at its latest tick (`idle_balance`).
    idle_at_tick: Vec<bool>,
    /// Cost of the present activity so far.
    spent_ns: u64,
    /// Until when a pass over a NUMA level keeps others from beginning (`sched_balance_running`).
    serialized_until_ns: u64,
    /// CPUs the present pass does not consider, beyond those outside its domain.
    excluded: Vec<u32>,
    /// Tasks taken from their queue and not yet put into another.
    detached: Vec<TaskId>,
    /// By CPU: what the pass found that started its stopper.
    pushes: Vec<Found>,
    /// By domain, where figures of balancing are asked for.
    counters: Vec<[u64; DOMAIN_COUNTERS]>,
    /// By CPU, where the rules of 4.9 hold: averages of load.
    tick_loads: Vec<TickLoads>,
    /// By CPU, where the rules of 4.9 hold: mean cost of a search for an idle CPU (`avg_scan_cost`).
    pub(super) scan_costs_ns: Vec<u64>,
}

impl BalanceState {
    /// State for a machine of `cpus` CPUs; equal seeds give equal decisions.
    pub fn new(seed: u64, cpus: usize) -> Self {
        /// Any odd constant does: it keeps this stream apart from others with the same seed.
        const STREAM: u64 = 0x6e65_7769_646c_6531;
        Self {
            random: Pcg32::new(seed, STREAM),
            nohz: Nohz::new(cpus),
            idle_at_tick: vec![false; cpus],
            spent_ns: 0,
            serialized_until_ns: 0,
            excluded: Vec::new(),
            detached: Vec::new(),
            pushes: vec![Found::default(); cpus],
            counters: Vec::new(),
            tick_loads: vec![TickLoads::default(); cpus],
            scan_costs_ns: vec![0; cpus],
        }
    }

    /// Domains were built anew: their counters begin at 0.
    pub(super) fn domains_rebuilt(&mut self) {
        self.counters.clear();
    }

    /// How long before the run a CPU looked at a domain, as a part of the domain's interval in 1/2^32: CPUs of a machine that has
    /// been up for a while are not in step.
    fn throw_phase(&mut self) -> u32 {
        self.random.next_u32()
    }

    /// A throw of the 1024-sided die of new-idle balancing (`sched_rng() % 1024`).
    fn throw(&mut self) -> u32 {
        self.random.next_u32() % 1024
    }
}

/// Interval between passes over a domain, in jiffies (`get_sd_balance_interval`).
///
/// While busy, one jiffy less keeps the intervals of two levels from being multiples of each other; kernels before
/// 5.10 did not have that.
pub(crate) fn balance_interval(domain: &Domain, busy: bool, less_one: bool, hz: u64, longest: u64) -> u64 {
    let factor = if busy { u64::from(domain.busy_factor) } else { 1 };
    let jiffies = (u64::from(domain.balance_interval_ms) * factor * hz).div_ceil(1000);
    (jiffies - u64::from(busy && less_one && jiffies > 0)).clamp(1, longest)
}

/// Ages the record of what new-idle passes cost on a visit that is none (`update_newidle_cost` with cost 0): 1 % off per
/// second without a new maximum. Returns whether it did.
fn decay_newidle_cost(domain: &mut Domain, jiffies: u64, hz: u64) -> bool {
    let due = jiffies > domain.last_decay_max_lb_cost + hz;
    if due {
        domain.max_newidle_lb_cost_ns = domain.max_newidle_lb_cost_ns * 253 / 256;
        domain.last_decay_max_lb_cost = jiffies;
    }
    due
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Gives each CPU its place in the intervals of its domains at the start of the run.
    pub(super) fn begin_balancing(&mut self, hz: u64) {
        for cpu in 0..self.rqs.len() {
            let phase = u64::from(self.balance.throw_phase());
            let mut next_balance = u64::MAX;
            for index in self.domains.range(CpuId(cpu as u32)) {
                let interval = self.interval(index, false, hz);
                let domain = self.domains.domain_mut(index);
                domain.last_balance = -(((interval * phase) >> 32) as i64);
                next_balance = next_balance.min(domain.due(interval));
            }
            self.rqs[cpu].next_balance = next_balance;
        }
        for cpu in 0..self.rqs.len() {
            self.rqs[cpu].idle_rank = self.balance.throw_phase();
        }
    }

    /// At each tick: raises the softirq when the CPU's domains are due, and has idle CPUs help a busy one
    /// (`sched_balance_trigger`). `idle` tells whether the tick found the CPU idle.
    pub(crate) fn sched_balance_trigger(&mut self, core: &mut Core<'_>, cpu: CpuId, idle: bool) {
        self.balance.idle_at_tick[cpu.index()] = idle;
        if self.parameters.rules_of_4_9 {
            let load = self.balance_load(cpu);
            self.balance.tick_loads[cpu.index()].tick(core.jiffies(), load);
        }
        if self.domains.of(cpu).is_empty() {
            return;
        }
        if core.jiffies() >= self.rqs[cpu.index()].next_balance {
            core.raise_softirq(cpu);
        }
        if !idle {
            self.nohz_balancer_kick(core, cpu);
        }
    }

    /// Periodic balancing of the CPU's own domains (`sched_balance_softirq`). Requests to balance for other idle CPUs are
    /// served where they arrive, in [`Self::nohz_csd`].
    pub(crate) fn sched_balance_softirq(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let idle = if self.balance.idle_at_tick[cpu.index()] { IdleType::Idle } else { IdleType::NotIdle };
        self.begin_activity();
        self.refresh_blocked_averages(core, cpu);
        self.sched_balance_domains(core, cpu, idle);
        self.end_activity(core, cpu);
    }

    /// Runs a pass over each domain of a CPU that is due, bottom up (`sched_balance_domains`).
    pub(super) fn sched_balance_domains(&mut self, core: &mut Core<'_>, cpu: CpuId, mut idle: IdleType) {
        let jiffies = core.jiffies();
        let hz = u64::from(core.parameters().hz);
        let mut busy = self.is_busy(core, cpu, idle);
        let mut next_balance = jiffies + MAX_NEXT_BALANCE_SECONDS * hz;
        let (mut entitled, mut decayed, mut max_cost) = (true, false, 0);
        for index in self.domains.range(cpu) {
            let domain = self.domains.domain_mut(index);
            decayed = decay_newidle_cost(domain, jiffies, hz);
            max_cost += domain.max_newidle_lb_cost_ns;
            if !entitled {
                // Another CPU of the group balances the levels from here on.
                if decayed {
                    continue;
                }
                break;
            }
            let mut interval = self.interval(index, busy, hz);
            if jiffies >= self.domains.domain(index).due(interval) {
                let outcome = self.sched_balance_rq(core, cpu, index, idle);
                entitled = outcome.entitled;
                if outcome.moved > 0 {
                    idle = if self.is_idle_cpu(core, cpu) { IdleType::Idle } else { IdleType::NotIdle };
                    busy = self.is_busy(core, cpu, idle);
                }
                self.domains.domain_mut(index).last_balance = jiffies as i64;
                interval = self.interval(index, busy, hz);
            }
            next_balance = next_balance.min(self.domains.domain(index).due(interval));
        }
        let rq = &mut self.rqs[cpu.index()];
        if decayed {
            rq.max_idle_balance_cost_ns = max_cost.max(self.parameters.migration_cost_ns);
        }
        rq.next_balance = next_balance;
    }

    /// Whether a CPU balances at the long intervals of busy ones. Since 5.6 one with nothing but `SCHED_IDLE` tasks does not.
    fn is_busy(&self, core: &Core<'_>, cpu: CpuId, idle: IdleType) -> bool {
        idle != IdleType::Idle && (self.parameters.load_only_balance || !self.sched_idle_cpu(core, cpu))
    }

    /// Interval of a domain in jiffies.
    pub(super) fn interval(&self, index: usize, busy: bool, hz: u64) -> u64 {
        // `update_max_interval`: a tenth of a second per CPU.
        let longest = (hz * self.online_cpus / 10).max(1);
        balance_interval(self.domains.domain(index), busy, !self.parameters.load_only_balance, hz, longest)
    }

    /// Brings a CPU's averages up to date and notes whether there is still something to decay
    /// (`update_blocked_averages`, `update_blocked_load_status`).
    pub(super) fn refresh_blocked_averages(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.update_blocked_averages(core, cpu);
        let averages = &self.queues[cpu.index()].pelt;
        let decayed = averages.load < 1.0 && averages.util < 1.0;
        let rq = &mut self.rqs[cpu.index()];
        rq.last_blocked_update = core.jiffies();
        if decayed {
            rq.has_blocked_load = false;
        }
    }

    /// Starts to add up the cost of what a CPU does for balancing.
    fn begin_activity(&mut self) {
        self.balance.spent_ns = 0;
    }

    /// Charges the CPU that did it.
    fn end_activity(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        if self.balance.spent_ns > 0 {
            core.charge(cpu, self.balance.spent_ns, OverheadKind::Balance);
        }
    }
}
