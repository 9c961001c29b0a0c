//! Idle CPUs without tick: a busy CPU kicks one of them, which balances for all.

use warmcore_kernel::Core;
use warmcore_topology::{CpuId, CpuSet};

use super::{IdleType, MAX_NEXT_BALANCE_SECONDS};
use crate::fair::gathering::Gathering;
use crate::fair::{Fair, Policy};

/// Time between updates of idle CPUs' averages, in milliseconds (`LOAD_AVG_PERIOD`).
const BLOCKED_UPDATE_MS: u64 = 32;

/// What a kick asks for (`NOHZ_*_KICK`).
mod kick {
    /// Run the domains of idle CPUs that are due.
    pub(super) const BALANCE: u8 = 1 << 0;
    /// Update averages of idle CPUs.
    pub(super) const STATS: u8 = 1 << 1;
    /// Find out when the next idle CPU is due.
    pub(super) const NEXT: u8 = 1 << 2;
}

/// The idle CPUs without tick and when to care for them (`struct nohz`).
#[derive(Debug)]
pub(super) struct Nohz {
    idle_cpus: CpuSet,
    count: u32,
    /// Jiffy before which no balancing is asked for.
    next_balance: u64,
    /// Some idle CPU has averages to decay.
    has_blocked: bool,
    /// Jiffy after which they are due.
    next_blocked: u64,
    /// A CPU has joined since `next_balance` was computed.
    needs_update: bool,
    /// What each CPU was kicked for and has not yet done, and the jiffy of the kick.
    pending: Vec<(u8, u64)>,
}

impl Nohz {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            idle_cpus: CpuSet::with_capacity(cpus),
            count: 0,
            next_balance: 0,
            has_blocked: false,
            next_blocked: 0,
            needs_update: false,
            pending: vec![(0, 0); cpus],
        }
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// The tick of an idle CPU was stopped (`nohz_balance_enter_idle`).
    pub(crate) fn nohz_balance_enter_idle(&mut self, _core: &mut Core<'_>, cpu: CpuId) {
        self.rqs[cpu.index()].has_blocked_load = true;
        if !self.rqs[cpu.index()].nohz_tick_stopped {
            if self.domains.of(cpu).is_empty() {
                return;
            }
            self.rqs[cpu.index()].nohz_tick_stopped = true;
            self.balance.nohz.idle_cpus.insert(cpu);
            self.balance.nohz.count += 1;
            self.balance.nohz.needs_update = true;
            self.domains.shared_mut(self.domains.sd_llc_id(cpu)).nr_busy_cpus -= 1;
        }
        self.balance.nohz.has_blocked = true;
    }

    /// The first busy tick takes a CPU out of the set (`nohz_balance_exit_idle`).
    pub(in crate::fair) fn nohz_balance_exit_idle(&mut self, cpu: CpuId) {
        if std::mem::take(&mut self.rqs[cpu.index()].nohz_tick_stopped) {
            self.balance.nohz.idle_cpus.remove(cpu);
            self.balance.nohz.count -= 1;
            self.domains.shared_mut(self.domains.sd_llc_id(cpu)).nr_busy_cpus += 1;
        }
    }

    /// At a busy CPU's tick: has an idle one balance when this CPU or its LLC has tasks to give (`nohz_balancer_kick`).
    pub(super) fn nohz_balancer_kick(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.nohz_balance_exit_idle(cpu);
        let wanted = self.nohz_kick_needed(cpu, core.jiffies());
        if wanted != 0 {
            self.kick_ilb(core, cpu, wanted);
        }
    }

    /// What there is to kick for.
    pub(super) fn nohz_kick_needed(&self, cpu: CpuId, jiffies: u64) -> u8 {
        let nohz = &self.balance.nohz;
        // 4.9 has averages of idle CPUs updated when those are due to balance, and asks for nothing else.
        let averages = !self.parameters.rules_of_4_9;
        let mut wanted = 0;
        if averages && nohz.has_blocked && jiffies > nohz.next_blocked {
            wanted = kick::STATS;
        }
        if jiffies >= nohz.next_balance {
            if nohz.count == 0 {
                return 0;
            }
            // Another busy CPU in the LLC: tasks could be spread over idle LLCs or cores. Unequal CPUs only look for tasks that do not fit.
            let llc_shared = self.domains.sd_llc(cpu).map(|_| self.domains.shared(self.domains.sd_llc_id(cpu)));
            let rq = &self.rqs[cpu.index()];
            let other_reason = match self.asymmetric {
                true => rq.misfit_task_load > 0,
                false => llc_shared.is_some_and(|shared| shared.nr_busy_cpus > 1),
            };
            if self.nr_running(cpu) >= 2
                || other_reason
                || self.kicks_for_capacity(cpu)
                || self.packing && self.kicks_for_priority(cpu)
            {
                wanted = if averages { kick::STATS | kick::BALANCE } else { kick::BALANCE };
            }
        }
        if averages && nohz.needs_update {
            wanted |= kick::NEXT;
        }
        wanted
    }

    /// Whether an idle CPU without tick is to have this one's task.
    #[cold]
    fn kicks_for_priority(&self, cpu: CpuId) -> bool {
        self.domains.sd_asym_packing(cpu).is_some_and(|index| {
            let span = self.domains.span(self.domains.domain(index));
            self.balance.nohz.idle_cpus.iter().any(|other| span.contains(other) && self.is_preferred(other, cpu))
        })
    }

    /// Sends the request to the lowest-numbered idle CPU of the set (`kick_ilb`, `find_new_ilb`). 4.9 asks the first one of the set, or
    /// nobody if that is not idle any more, and puts the next time off by a jiffy of the last.
    fn kick_ilb(&mut self, core: &mut Core<'_>, cpu: CpuId, wanted: u8) {
        let only_first = self.parameters.rules_of_4_9;
        if wanted & kick::BALANCE != 0 {
            let from = if only_first { self.balance.nohz.next_balance } else { core.jiffies() };
            self.balance.nohz.next_balance = from + 1;
        }
        let mut idle_cpus = self.balance.nohz.idle_cpus.iter().take(if only_first { 1 } else { usize::MAX });
        let Some(target) = idle_cpus.find(|&other| other != cpu && self.is_idle_cpu(core, other)) else {
            return;
        };
        // Interrupts take far less than a jiffy: an older request met a busy CPU and was dropped.
        let jiffies = core.jiffies();
        let (pending, since) = &mut self.balance.nohz.pending[target.index()];
        let on_its_way = *pending != 0 && *since == jiffies;
        *pending |= wanted;
        if !on_its_way {
            *since = jiffies;
            core.kick_nohz(target);
        }
    }

    /// The kicked CPU does what it was asked for if it is still idle (`nohz_csd_func`, `nohz_idle_balance`).
    pub(crate) fn nohz_csd(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let wanted = std::mem::take(&mut self.balance.nohz.pending[cpu.index()].0);
        let idle = self.is_idle_cpu(core, cpu);
        self.balance.idle_at_tick[cpu.index()] = idle;
        if idle && wanted != 0 {
            self.begin_activity();
            self.nohz_idle_balance(core, cpu, wanted, true);
            self.end_activity(core, cpu);
        }
    }

    /// Serves all idle CPUs of the set, beginning after this one (`_nohz_idle_balance`). `may_stop`: end early when this CPU
    /// gets work.
    #[inline(never)]
    fn nohz_idle_balance(&mut self, core: &mut Core<'_>, this_cpu: CpuId, wanted: u8, may_stop: bool) {
        let jiffies = core.jiffies();
        let stats = wanted & kick::STATS != 0;
        // What joins from now on sets these again.
        self.balance.nohz.has_blocked &= !stats;
        self.balance.nohz.needs_update &= wanted & kick::NEXT == 0;
        let far = jiffies + MAX_NEXT_BALANCE_SECONDS * u64::from(core.parameters().hz);
        let mut next_balance = far;
        let mut has_blocked = false;
        let mut stopped = false;
        let after = CpuId(this_cpu.0 + 1);
        let mut next = self.balance.nohz.idle_cpus.next_from(after);
        let mut wrapped = next.is_none();
        if wrapped {
            next = self.balance.nohz.idle_cpus.first();
        }
        while let Some(cpu) = next.filter(|cpu| !wrapped || cpu.0 <= this_cpu.0) {
            if self.is_idle_cpu(core, cpu) {
                if may_stop && !self.is_idle_cpu(core, this_cpu) {
                    stopped = true;
                    break;
                }
                has_blocked |= stats && self.update_nohz_stats(core, cpu);
                if wanted & kick::BALANCE != 0 && jiffies >= self.rqs[cpu.index()].next_balance {
                    if !stats {
                        self.refresh_blocked_averages(core, cpu);
                    }
                    self.sched_balance_domains(core, cpu, IdleType::Idle);
                }
                next_balance = next_balance.min(self.rqs[cpu.index()].next_balance);
            }
            next = self.balance.nohz.idle_cpus.next_from(CpuId(cpu.0 + 1));
            if next.is_none() && !wrapped {
                wrapped = true;
                next = self.balance.nohz.idle_cpus.first();
            }
        }
        let nohz = &mut self.balance.nohz;
        if stopped {
            has_blocked |= stats;
            nohz.needs_update |= wanted & kick::NEXT != 0;
        } else {
            if next_balance < far {
                nohz.next_balance = next_balance;
            }
            if stats {
                let period = (BLOCKED_UPDATE_MS * u64::from(core.parameters().hz)).div_ceil(1000);
                nohz.next_blocked = jiffies + period;
            }
        }
        nohz.has_blocked |= has_blocked;
    }

    /// Decays an idle CPU's averages, at most once per jiffy (`update_nohz_stats`). Returns whether something is left.
    fn update_nohz_stats(&mut self, core: &mut Core<'_>, cpu: CpuId) -> bool {
        let rq = &self.rqs[cpu.index()];
        if !rq.has_blocked_load {
            return false;
        }
        if core.jiffies() > rq.last_blocked_update {
            self.refresh_blocked_averages(core, cpu);
        }
        self.rqs[cpu.index()].has_blocked_load
    }

    /// A CPU that found no work updates idle CPUs' averages before it goes idle, if that is due and it will be idle long
    /// enough (`nohz_newidle_balance`, `nohz_run_idle_balance`).
    pub(super) fn nohz_newidle_balance(&mut self, core: &mut Core<'_>, cpu: CpuId, jiffies: u64) {
        let nohz = &self.balance.nohz;
        let due = !self.parameters.rules_of_4_9 && nohz.has_blocked && jiffies >= nohz.next_blocked;
        if due && self.rqs[cpu.index()].avg_idle_ns >= self.parameters.migration_cost_ns {
            self.nohz_idle_balance(core, cpu, kick::STATS, false);
        }
    }
}
