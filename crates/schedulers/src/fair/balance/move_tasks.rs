//! Moving tasks from one queue to another: which may go, in what order, and the stopper's way of pushing a task that
//! was running. A load pass takes delayed tasks (asleep, still queued) too, which sleep on in the other queue.

use warmcore_kernel::{Core, Dequeue, Enqueue, Scheduler, State, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{MigrationKind, TaskId};

use super::IdleType;
use super::counted::{Counted, Other};
use super::pass::{NR_MIGRATE_BREAK, Pass};
use super::stats::Migration;
use crate::domains::flags;
use crate::fair::gathering::Gathering;
use crate::fair::state::NONE;
use crate::fair::{Fair, Policy};

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Takes tasks off the source queue, least recently run first, in 4.9 those first that came last, until the imbalance is gone (`detach_tasks`). Returns
    /// how many; they wait for [`Self::attach_tasks`].
    pub(super) fn detach_tasks(&mut self, core: &mut Core<'_>, pass: &mut Pass) -> u32 {
        if self.nr_running(pass.src) <= 1 {
            pass.all_pinned = false;
            return 0;
        }
        if pass.imbalance <= 0 {
            return 0;
        }
        // A new-idle pass keeps its CPU waiting, so preemptible kernels end it with the first task. The older kernels
        // meant here were built without kernel preemption.
        let one_only = pass.idle == IdleType::NewlyIdle && !self.parameters.load_only_balance;
        let mut detached = 0;
        loop {
            let entity = self.next_to_examine(pass.src);
            // Taking everything would only make the source steal it back.
            let last = pass.idle != IdleType::NotIdle && self.nr_running(pass.src) <= 1;
            if entity == NONE || last {
                break;
            }
            pass.examined += 1;
            if pass.examined > pass.examine_at_most {
                break;
            }
            if pass.examined > pass.pause_at {
                pass.pause_at += NR_MIGRATE_BREAK;
                pass.paused = true;
                break;
            }
            let task = self.entity_task(entity);
            let share =
                if self.can_migrate_task(core, pass, task) { self.share_of_imbalance(core, pass, task) } else { None };
            let Some(share) = share else {
                match self.parameters.rules_of_4_9 {
                    true => self.list_move_to_tail(pass.src, entity),
                    false => self.list_move_to_head(pass.src, entity),
                }
                continue;
            };
            pass.imbalance -= share;
            detached += 1;
            self.count_pass(core, pass, Counted::HotGained, u64::from(pass.hot));
            self.detach_task(core, pass, task, MigrationKind::Balance);
            self.tell_balance_details(core, pass, task, Some(share));
            if pass.migration == Migration::LlcTask {
                pass.pulled_util += self.entities[entity as usize].pelt.util as u64;
                self.tell_pull(core, pass, task);
            }
            self.balance.detached.push(task);
            if one_only || pass.imbalance <= 0 {
                break;
            }
        }
        self.count_pass(core, pass, Counted::Gained, u64::from(detached));
        detached
    }

    /// The task of a queue that is looked at first: the last of `cfs_tasks`, before 4.15 the first.
    fn next_to_examine(&self, cpu: CpuId) -> u32 {
        let rq = &self.rqs[cpu.index()];
        if self.parameters.rules_of_4_9 { rq.list_head } else { rq.list_tail }
    }

    /// How much of the imbalance a task's move would remove; `None` if it would move too much. Each failed pass lets a
    /// task through that is twice as big.
    fn share_of_imbalance(&self, core: &Core<'_>, pass: &Pass, task: TaskId) -> Option<i64> {
        let failed = self.domains.domain(pass.domain).nr_balance_failed;
        let shrunk = |amount: u64| amount.checked_shr(failed).unwrap_or(0) as i64;
        match pass.migration {
            Migration::Load => {
                let load = self.task_h_load(task).max(1);
                let bound = if self.parameters.load_only_balance { (load / 2) as i64 } else { shrunk(load) };
                (bound <= pass.imbalance).then_some(load as i64)
            }
            Migration::Util => {
                let util = self.task_util_est(task);
                (shrunk(util) <= pass.imbalance).then_some(util as i64)
            }
            Migration::Misfit if self.fits_cpu(self.need_of(core, task), pass.src) => None,
            Migration::Task | Migration::LlcTask | Migration::Misfit => Some(1),
        }
    }

    /// Whether a task may be moved to the destination now (`can_migrate_task`). Notes in `pass` what affinity forbids.
    pub(super) fn can_migrate_task(&mut self, core: &mut Core<'_>, pass: &mut Pass, task: TaskId) -> bool {
        let delayed = self.entities[self.task_entity(task) as usize].delayed;
        // A sleeping task that is still queued is only a load.
        if delayed && (pass.migration != Migration::Load || pass.active) {
            return false;
        }
        if self.is_throttled_on(task, pass.dst) {
            return false;
        }
        let domain = self.domains.domain(pass.domain);
        let (failed, tries) = (domain.nr_balance_failed, domain.cache_nice_tries);
        if failed == 0 && self.is_ineligible_for(pass.dst, task) {
            return false;
        }
        // A thread of one CPU is none of the tasks that affinity keeps from being balanced (`kthread_is_per_cpu`).
        if core.task(task).is_kernel_thread() && core.allowed(task).len() == 1 {
            return false;
        }
        if !core.may_run_on(task, pass.dst) {
            pass.some_pinned = true;
            if pass.idle != IdleType::NewlyIdle && pass.other_dst.is_none() && !pass.active {
                pass.other_dst = self.other_destination(core, pass, task);
            }
            return false;
        }
        (pass.all_pinned, pass.hot) = (false, false);
        if core.task(task).state() == State::Running {
            return false;
        }
        if pass.active {
            return pass.migration != Migration::LlcTask || self.prefers_dst(core, pass, task).is_ok();
        }
        let hot = match self.migrate_degrades_locality(pass, task) {
            0 if self.migrate_degrades_llc(core, pass, task) => return false,
            0 => self.task_hot(core, pass, task),
            loss => loss > 0,
        };
        pass.hot = hot && failed > tries;
        !hot || pass.hot
    }

    /// Whether a task that has had more than its share would come to a queue with others, where it would only wait
    /// (`task_is_ineligible_on_dst_cpu`).
    fn is_ineligible_for(&mut self, dst: CpuId, task: TaskId) -> bool {
        if self.parameters.load_only_balance {
            return false;
        }
        let entity = self.task_entity(task);
        let queue_at_dst = self.competes_on(entity, dst);
        self.queues[queue_at_dst as usize].nr_queued > 0 && !self.entity_eligible(entity)
    }

    /// Another CPU of the local group that a task may use.
    fn other_destination(&self, core: &Core<'_>, pass: &Pass, task: TaskId) -> Option<CpuId> {
        let domain = self.domains.domain(pass.domain);
        let mask = self.domains.balance_mask(self.domains.group(self.domains.local_group(domain)));
        let mut candidates =
            mask.iter().filter(|&&number| !self.balance.is_excluded(number)).map(|&number| CpuId(number));
        candidates.find(|&cpu| core.may_run_on(task, cpu))
    }

    /// Whether a task ran so recently that its data is likely still in the source's caches (`task_hot`).
    pub(super) fn task_hot(&self, core: &Core<'_>, pass: &Pass, task: TaskId) -> bool {
        let index = self.task_entity(task);
        let entity = &self.entities[index as usize];
        // Since 5.12 hardware threads of a core have no caches of their own to lose.
        let shares_core = self.domains.domain(pass.domain).has(flags::SHARE_CPUCAPACITY);
        if entity.idle_policy || shares_core && !self.parameters.rules_of_4_9 {
            return false;
        }
        let dst_busy = self.rqs[pass.dst.index()].nr_running > 0;
        let queue = &self.queues[self.competes_in(index) as usize];
        if dst_busy && (queue.next == index || self.parameters.rules_of_4_9 && queue.last == index) {
            return true;
        }
        core.clock_task_ns(pass.src) - entity.exec_start_ns < self.parameters.migration_cost_ns
    }

    /// Takes a task off the source queue and assigns it to the destination (`detach_task`).
    fn detach_task(&mut self, core: &mut Core<'_>, pass: &Pass, task: TaskId, kind: MigrationKind) {
        Scheduler::dequeue(self, core, pass.src, task, Dequeue::MIGRATING);
        core.set_task_cpu(task, pass.dst, kind);
    }

    /// Puts detached tasks into the destination queue, the last one first (`attach_tasks`).
    pub(super) fn attach_tasks(&mut self, core: &mut Core<'_>, pass: &Pass) {
        while let Some(task) = self.balance.detached.pop() {
            self.attach_task(core, pass.dst, task, pass.idle == IdleType::NewlyIdle);
        }
    }

    /// Queues a moved task (`attach_task`). A CPU that is about to pick needs no request to do so.
    fn attach_task(&mut self, core: &mut Core<'_>, dst: CpuId, task: TaskId, picks_anyway: bool) {
        Scheduler::enqueue(self, core, dst, task, Enqueue::MIGRATED);
        if core.task(task).state() == State::Blocked {
            core.clamp_left(task);
            self.sleep_on(dst, self.task_entity(task));
        }
        if !picks_anyway {
            Scheduler::check_preempt(self, core, dst, task, WakeFlags::default());
        }
    }

    /// A task that was delayed where it came from, and has just been queued here, sleeps on.
    fn sleep_on(&mut self, cpu: CpuId, index: u32) {
        self.rqs[cpu.index()].util_est -= self.entities[index as usize].util_est;
        self.set_delayed(index, true);
        self.count_asleep(index);
    }

    /// Runs as stopper of an overloaded CPU, whose running task was just preempted: moves one task to the CPU that asked
    /// for it, `payload` (`active_load_balance_cpu_stop`).
    pub(crate) fn active_balance_stopper(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u32) {
        if !std::mem::take(&mut self.rqs[cpu.index()].active_balance) {
            return;
        }
        let dst = CpuId(payload);
        let Some(index) = self.lowest_common_domain(dst, cpu) else {
            return;
        };
        let mut pass = Pass::new(dst, index, None, IdleType::Idle);
        pass.src = cpu;
        pass.active = true;
        pass.migration = self.noted_push(cpu);
        self.count_other(core, index, Other::ActiveCount);
        let pushed = self.first_to_push(core, &mut pass);
        self.count_other(core, index, if pushed.is_some() { Other::ActivePushed } else { Other::ActiveFailed });
        if let Some(task) = pushed {
            self.count_pass(core, &pass, Counted::Gained, 1);
            self.domains.domain_mut(index).nr_balance_failed = 0;
            pass.found = self.balance.pushes[cpu.index()];
            self.detach_task(core, &pass, task, MigrationKind::Active);
            self.tell_balance_details(core, &pass, task, None);
            if pass.migration == Migration::LlcTask {
                self.tell_pull(core, &pass, task);
            }
            self.attach_task(core, dst, task, false);
        }
    }

    /// First task of the source, in the order in which they are examined, that may be moved (`detach_one_task`).
    fn first_to_push(&mut self, core: &mut Core<'_>, pass: &mut Pass) -> Option<TaskId> {
        let mut entity = self.next_to_examine(pass.src);
        while entity != NONE {
            let task = self.entity_task(entity);
            if self.can_migrate_task(core, pass, task) {
                return Some(task);
            }
            let entity_of = &self.entities[entity as usize];
            entity = if self.parameters.rules_of_4_9 { entity_of.list_next } else { entity_of.list_prev };
        }
        None
    }

    /// Lowest domain of `dst` that includes `src`.
    fn lowest_common_domain(&self, dst: CpuId, src: CpuId) -> Option<usize> {
        self.domains.range(dst).find(|&index| self.domains.span_contains(self.domains.domain(index), src))
    }
}
