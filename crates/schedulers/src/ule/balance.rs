//! Threads that change their CPU while they wait: idle CPUs steal one, the periodic balancer moves one from each of the most loaded.
//!
//! Source: `docs/spec/ule.md` sections 10 and 11 (`tdq_idled`, `tdq_steal`, `sched_balance`,
//! `sched_balance_group`, `sched_balance_pair`, `tdq_notify`), and 16 for FreeBSD 14 (`tdq_trysteal`, lone threads).

use warmcore_kernel::{Core, State};
use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::{MigrationKind, OverheadKind, TaskId};

use super::groups::{GroupId, ROOT, Search, Wanted};
use super::threads::{Position, should_preempt};
use super::{Asked, Ule};

/// Timer of the periodic balancer.
pub(super) const PERIODIC: u64 = 0;
/// Timer at which idle CPUs look for work.
const RETRY: u64 = 1;

/// The CPU that balances: the one that booted.
const BALANCER: CpuId = CpuId(0);

impl Ule {
    /// A thread has joined a CPU's queue: whether what runs there leaves for it (`tdq_notify`, `sched_setpreempt`).
    pub(super) fn notify(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        if core.curr_is_idle(cpu) {
            core.resched_full(cpu);
            return;
        }
        let priority = self.queues.threads[task.index()].priority;
        let running = self.running_priority(core, cpu);
        let remote = cpu != core.this_cpu();
        let threshold = self.tunables.preempt_thresh as u32;
        let left = core.curr(cpu);
        if should_preempt(&self.model, threshold, priority, running, remote) {
            core.decide(self.decisions.preempted, left, i64::from(cpu.0));
            self.ask(core, cpu, Asked::AtOnce);
        } else if !remote && self.model.deferred_switch && priority < running {
            core.decide(self.decisions.leaves_later, left, i64::from(cpu.0));
            self.ask(core, cpu, Asked::OnReturn);
        }
    }

    /// The CPU has nothing to run and takes a thread from the most loaded one near it, then farther away: from its idle thread, or before
    /// that has the CPU.
    pub(super) fn steal(&mut self, core: &mut Core<'_>, cpu: CpuId, idles: bool) {
        if self.queues.waiting == 0 || core.machine().cpu_count() == 1 {
            return;
        }
        let mut take = |ule: &mut Self, victim| ule.move_one(core, victim, cpu, MigrationKind::Steal);
        // First in the nearest levels, in FreeBSD 14, then from the idle thread in all.
        let near = if self.model.tries_before_idle && !idles { self.tunables.trysteal_limit as u32 } else { 0 };
        if !self.steal_within(cpu, near, &mut take) {
            self.steal_within(cpu, u32::MAX, &mut take);
        }
        self.charge_search(core, cpu, OverheadKind::Balance);
    }

    /// Takes a thread from a CPU in so many levels of groups around. Whether there was one.
    pub(super) fn steal_within(
        &mut self,
        cpu: CpuId,
        levels: u32,
        take: &mut impl FnMut(&mut Self, CpuId) -> bool,
    ) -> bool {
        if levels == 0 {
            return false;
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.union_with(&self.all_cpus);
        candidates.remove(cpu);
        let stolen = self.steal_from(&mut candidates, cpu, levels, take);
        self.candidates = candidates;
        stolen
    }

    fn steal_from(
        &mut self,
        candidates: &mut CpuSet,
        cpu: CpuId,
        levels: u32,
        take: &mut impl FnMut(&mut Self, CpuId) -> bool,
    ) -> bool {
        let mut around = Some(self.groups.leaf(cpu));
        let (mut level, mut of_sibling) = (1, false);
        while let Some(group) = around {
            let least = match self.groups.group(group).smt {
                true => self.model.steal_thresh_smt.unwrap_or(self.tunables.steal_thresh as u32),
                false => self.tunables.steal_thresh as u32,
            };
            while let Some(victim) = self.most_loaded(candidates, group, least, 1) {
                candidates.remove(victim);
                let taken = take(self, victim);
                // Before it switches to its idle thread a CPU tries but one: interrupts are off.
                if taken || levels < u32::MAX {
                    return taken;
                }
            }
            level += 1;
            if level > levels {
                return false;
            }
            // Where the group around has but one other, that is searched alone, then the group around both of them.
            let outer = if of_sibling { self.groups.group(group).parent } else { Some(group) };
            let sibling = outer.and_then(|outer| self.groups.sibling(outer)).filter(|_| self.model.siblings_first);
            of_sibling = sibling.is_some();
            around = sibling.or_else(|| outer.and_then(|outer| self.groups.group(outer).parent));
        }
        false
    }

    /// Moves one waiting thread that may run there; the CPUs' queues are up to date afterwards.
    fn move_one(&mut self, core: &mut Core<'_>, from: CpuId, to: CpuId, kind: MigrationKind) -> bool {
        let Some(task) = self.take_one(from, &|task| core.may_run_on(task, to)) else { return false };
        core.set_task_cpu(task, to, kind);
        let told = if kind == MigrationKind::Steal { self.decisions.stolen } else { self.decisions.moved };
        core.decide(told, task, i64::from(from.0));
        self.give_one(to, task);
        true
    }

    /// Takes a waiting thread that may move out of a CPU's queue (`tdq_steal`, `sched_rem`).
    pub(super) fn take_one(&mut self, from: CpuId, may: &impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let queue = &self.queues.cpus[from.index()];
        let task = queue.to_steal(&self.queues.links, self.model.first_stolen_last, may)?;
        self.queues.remove(from, task);
        self.queues.cpus[from.index()].load -= 1;
        Some(task)
    }

    /// Queues a thread that comes from elsewhere (`tdq_add`).
    pub(super) fn give_one(&mut self, to: CpuId, task: TaskId) {
        self.queues.cpus[to.index()].load += 1;
        self.queues.add(&self.model, to, task, Position::Tail);
    }

    fn most_loaded(&mut self, candidates: &CpuSet, group: GroupId, least: u32, transferable: u32) -> Option<CpuId> {
        let queues = &self.queues.cpus;
        let mut search = Search {
            groups: &self.groups,
            load: |cpu: CpuId| queues[cpu.index()].seen_load(),
            admits: |cpu: CpuId| {
                let queue = &queues[cpu.index()];
                candidates.contains(cpu) && queue.seen_load() >= least && queue.transferable >= transferable
            },
            preferred: None,
            running: false,
            wanted: Wanted::Most,
            rules: self.model.search,
            visited: 0,
        };
        let found = search.of(group, &mut self.chance);
        self.visited += search.visited;
        found
    }

    /// Arms the periodic balancer for the next time, half to one and a half intervals from now.
    pub(super) fn arm_balancer(&mut self, core: &mut Core<'_>, first: bool) {
        let interval = match self.tunables.balance_interval {
            0 => self.model.balance_interval_ticks,
            ticks => ticks,
        };
        let chance = self.chance.below(u32::try_from(interval).unwrap_or(u32::MAX).max(1));
        let ticks = match first && self.model.first_countdown_whole {
            true => interval.max(1),
            false => (interval / 2).max(1) + u64::from(chance),
        };
        core.start_timer(BALANCER, ticks * core.tick_ns(), PERIODIC);
    }

    /// A pass of the periodic balancer.
    pub(super) fn balance(&mut self, core: &mut Core<'_>) {
        let mut moves = 0;
        let lone = self.balance_pass(&mut |ule, giver, receiver| {
            let moved = ule.balance_pair(core, giver, receiver);
            moves += i64::from(moved);
            moved
        });
        if let Some(lone) = lone {
            self.tell_to_choose(core, lone);
        }
        core.decide(self.decisions.passed, core.curr(BALANCER), moves);
        self.charge_search(core, BALANCER, OverheadKind::Balance);
        self.arm_balancer(core, false);
    }

    /// Every CPU gives at most one thread or receives at most one. The CPU whose lone thread is to choose again, if there is one.
    pub(super) fn balance_pass(&mut self, pair: &mut impl FnMut(&mut Self, CpuId, CpuId) -> bool) -> Option<CpuId> {
        let mut givers = std::mem::take(&mut self.candidates);
        let mut receivers = std::mem::take(&mut self.receivers);
        givers.union_with(&self.all_cpus);
        let transferable = u32::from(!self.model.lone_threads_choose);
        let mut lone = None;
        while let Some(giver) = self.most_loaded(&givers, ROOT, self.model.balance_donor_load, transferable) {
            givers.remove(giver);
            receivers.clear();
            receivers.union_with(&givers);
            if receivers.is_empty() {
                break;
            }
            if self.model.lone_threads_choose && self.load(giver) == 1 {
                lone = Some(giver);
                break;
            }
            if self.model.lone_threads_choose && self.queues.cpus[giver.index()].transferable == 0 {
                continue;
            }
            let mut tried = false;
            while let Some(receiver) = self.receiver(&receivers, giver) {
                tried = true;
                if pair(self, giver, receiver) {
                    givers.remove(receiver);
                    break;
                }
                receivers.remove(receiver);
            }
            if !tried {
                break;
            }
        }
        (self.candidates, self.receivers) = (givers, receivers);
        lone
    }

    /// The thread that runs alone on a CPU is to choose another for itself, as if its caches were cold.
    fn tell_to_choose(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        if !core.curr_is_idle(cpu) && !self.queues.cpus[cpu.index()].runs_above {
            core.queue_stopper(cpu, core.curr(cpu).0);
        }
    }

    /// It has left the CPU and chooses.
    pub(super) fn choose_anew(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        if core.task(task).state() != State::Queued || core.task(task).cpu() != cpu {
            return;
        }
        self.queues.thread(task).last_ran = None;
        let to = self.pick_cpu(core, task, cpu, true);
        self.charge_search(core, cpu, OverheadKind::Balance);
        if to == cpu {
            return;
        }
        self.queues.remove(cpu, task);
        self.queues.cpus[cpu.index()].load -= 1;
        core.set_task_cpu(task, to, MigrationKind::Balance);
        core.decide(self.decisions.chose_anew, task, i64::from(cpu.0));
        self.give_one(to, task);
        self.notify(core, to, task);
    }

    /// The least loaded CPU of those left whose load is below the giver's.
    fn receiver(&mut self, receivers: &CpuSet, giver: CpuId) -> Option<CpuId> {
        let queues = &self.queues.cpus;
        let most = queues[giver.index()].seen_load().saturating_sub(1);
        let mut search = Search {
            groups: &self.groups,
            load: |cpu: CpuId| queues[cpu.index()].seen_load(),
            admits: |cpu: CpuId| receivers.contains(cpu) && queues[cpu.index()].seen_load() <= most,
            preferred: Some(giver),
            running: true,
            wanted: Wanted::Least,
            rules: self.model.search,
            visited: 0,
        };
        let found = search.of(ROOT, &mut self.chance);
        self.visited += search.visited;
        found
    }

    fn balance_pair(&mut self, core: &mut Core<'_>, giver: CpuId, receiver: CpuId) -> bool {
        if self.load(giver) <= self.load(receiver) {
            return false;
        }
        let waiting = self.lowpri(receiver);
        if !self.move_one(core, giver, receiver, MigrationKind::Balance) {
            return false;
        }
        if core.curr_is_idle(receiver) {
            core.resched_full(receiver);
            return true;
        }
        if receiver == BALANCER {
            return true;
        }
        let running = self.running_priority(core, receiver);
        let best = self.lowpri(receiver);
        // FreeBSD 11.0 always interrupts the receiver, which switches if anything better waits (docs/spec/ule.md section 11);
        // later ones by the rules of preemption for the thread that has come, which is the best unless a better one waited.
        let threshold = self.tunables.preempt_thresh as u32;
        let leaves = if self.model.balance_asks_preemption {
            best < waiting && should_preempt(&self.model, threshold, best, running, true)
        } else {
            best < running
        };
        if leaves {
            self.ask(core, receiver, Asked::AtOnce);
        }
        true
    }

    /// Where idle CPUs look for work at their ticks: makes sure that there is a next time as long as anybody waits.
    pub(super) fn arm_retry(&mut self, core: &mut Core<'_>) {
        let wanted = self.model.steal_at_ticks && self.tunables.steal_idle == 1 && self.queues.waiting > 0;
        if wanted && !self.retry_armed && core.machine().cpu_count() > 1 {
            self.retry_armed = true;
            core.start_timer(BALANCER, core.tick_ns(), RETRY);
        }
    }

    /// Every idle CPU looks for work.
    pub(super) fn retry_stealing(&mut self, core: &mut Core<'_>) {
        self.retry_armed = false;
        for cpu in core.machine().cpus() {
            if self.queues.waiting == 0 {
                return;
            }
            if core.curr_is_idle(cpu) {
                self.steal_if_idle(core, cpu);
            }
        }
        self.arm_retry(core);
    }

    /// The idle thread of a CPU looks for work, unless some is on its way, and leaves the CPU to what it finds.
    pub(super) fn steal_if_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        if self.queues.cpus[cpu.index()].load == 0 && !core.ttwu_pending(cpu) {
            self.steal(core, cpu, true);
            if self.queues.cpus[cpu.index()].load > 0 {
                core.resched_full(cpu);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use warmcore_topology::resolve;

    use super::*;
    use crate::ule::profile::Reading;
    use crate::ule::vectors::{new_thread, ule_on};

    /// Test 7 of docs/spec/ule.md section 17. A load of 1 is a thread that runs, or one that waits because its CPU has not yet switched.
    #[test]
    fn ule_17_7_a_sibling_is_stolen_from_at_a_load_of_1_if_the_thread_waits() {
        let machine = resolve("1s1n1l1c2t").unwrap();
        let taken = |profile: Reading, waits: bool| {
            let mut ule = ule_on(&machine, profile);
            if waits {
                let task = new_thread(&mut ule, 200);
                ule.give_one(CpuId(1), task);
            } else {
                ule.queues.cpus[1].load = 1;
            }
            ule.steal_within(CpuId(0), u32::MAX, &mut |ule, victim| ule.take_one(victim, &|_| true).is_some())
        };
        assert!(taken(Reading::Freebsd11, true) && !taken(Reading::Freebsd11, false));
        assert!(!taken(Reading::Modern, true), "two from 12.0 on");
    }
}
