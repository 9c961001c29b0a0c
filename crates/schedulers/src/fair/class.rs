//! The fair class as the kernel calls it: the verbs of `sched_class`, each handed on to the part that does it.

use warmcore_kernel::{Core, Dequeue, Enqueue, LeftWakeups, Scheduler, Utilisation, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::schedstat::CpuCounters;
use warmcore_trace::{PrevState, TaskId};

use super::decisions::FairDecisions;
use super::numa::STOPPER_MOVE;
use super::pelt::Pelt;
use super::queue::Removal;
use super::state::NONE;
use super::weights::{scale_load, weight_of};
use super::{Fair, Policy, new_entity};
use crate::fair::gathering::Gathering;

/// Flips of wakees with which whoever starts a workload begins, and its threads with them (`dup_task_struct` copies them): in a guest of
/// Linux 7.2 the main thread that makes them has 20, one that a shell has started 30 (`results/2026-11-29-2vcpu-flips`).
const FLIPS_OF_LAUNCHERS: u32 = 20;

/// Policies that preempt at a wakeup (`normal_policy` of Linux 7.2, kernel/sched/sched.h, with `CONFIG_SCHED_CLASS_EXT`).
fn is_normal(policy: warmcore_workload::Policy) -> bool {
    use warmcore_workload::Policy::{Ext, Normal};
    matches!(policy, Normal | Ext)
}

impl<P: Policy, G: Gathering> Scheduler for Fair<P, G> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scores(&self) -> &'static [&'static str] {
        P::SCORES
    }

    /// Tasks that sleep in their queue are not runnable and have no score.
    fn score_tasks(&self, _core: &Core<'_>, cpu: CpuId, tell: &mut dyn FnMut(TaskId, u32, i64)) {
        let mut index = self.rqs[cpu.index()].list_head;
        while index != NONE {
            let entity = &self.entities[index as usize];
            if entity.on_rq && !entity.delayed {
                for score in 0..P::SCORES.len() {
                    tell(self.entity_task(index), score as u32, P::score(self, index, score));
                }
            }
            index = entity.list_next;
        }
    }

    fn tunable_changed(&mut self, _core: &mut Core<'_>, name: &str, value: u64) {
        if self.policy.set_tunable(name, value) {
            self.parameters = self.policy.fair_parameters();
        } else {
            self.gathering.set_tunable(name, value);
        }
    }

    fn domain_counters(&self, core: &Core<'_>) -> Vec<CpuCounters> {
        self.counters_of_domains(core)
    }

    fn cpu_offline(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.unplug(core, cpu);
    }

    fn cpu_online(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.plug_in(core, cpu);
    }

    fn reads_resident_pages(&self) -> bool {
        self.gathering.reads_resident_pages()
    }

    fn init(&mut self, core: &mut Core<'_>) {
        self.create_groups(core);
        let decisions = FairDecisions::register(core.decision_table());
        self.gathering.init(&decisions);
        if !core.knows_pages() {
            self.numa = None;
        }
        if let Some(numa) = &mut self.numa {
            numa.decisions = decisions.numa;
        }
    }

    fn task_fork(&mut self, core: &mut Core<'_>, task: TaskId, parent: Option<TaskId>) {
        let state = core.task(task);
        let cpu = state.cpu();
        let weight = scale_load(weight_of(state.policy(), state.nice()));
        let mut entity = new_entity(weight, self.queue_for(core, task, cpu));
        entity.idle_policy = state.policy() == warmcore_workload::Policy::Idle;
        entity.normal_policy = is_normal(state.policy());
        entity.recent_used_cpu = cpu.0;
        if let Some(parent) = parent {
            let parent = &self.entities[self.task_entity(parent) as usize];
            (entity.last_wakee, entity.wakee_flips) = (parent.last_wakee, parent.wakee_flips);
            entity.wakee_flip_decay_ns = parent.wakee_flip_decay_ns;
        } else if !core.is_kernel_thread(task) {
            (entity.wakee_flips, entity.wakee_flip_decay_ns) = (FLIPS_OF_LAUNCHERS, core.now_ns());
        }
        let slice_ns = state.slice_ns();
        let index = self.entities.len() as u32;
        self.entities.push(entity);
        P::set_slice(self, index, slice_ns);
        self.gathering.task_created(core.task(task));
        self.numa_task_created(core, task, parent);
    }

    fn task_dead(&mut self, core: &mut Core<'_>, task: TaskId) {
        let index = self.task_entity(task);
        if !self.entities[index as usize].detached {
            self.remove_load(core.now_ns(), index);
        }
        self.task_work.forget(task);
        self.numa_task_exited(task);
        self.gathering.task_exited(task);
    }

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        self.select_task_rq(core, task, prev, flags)
    }

    fn holds(&self, task: TaskId) -> bool {
        self.entities[self.task_entity(task) as usize].on_rq
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Enqueue) {
        let index = self.task_entity(task);
        self.count_clamp(core, cpu, task);
        self.set_idle(cpu, false);
        if flags.has(Enqueue::DELAYED) {
            self.wake_delayed_task(core, cpu, index);
            return;
        }
        let initial = flags.has(Enqueue::INITIAL);
        if initial {
            self.entities[index as usize].queue = self.queue_for(core, task, cpu);
            self.init_averages(core.now_ns(), index);
            self.entities[index as usize].detached = true;
        } else {
            self.move_to_queue(core, cpu, task, flags.has(Enqueue::WAKEUP));
            if self.enqueue_throttled(core, index) {
                self.refresh_idle(core, cpu);
                return;
            }
        }
        self.enqueue_task(core, cpu, index, initial);
        if flags.has(Enqueue::WAKEUP) {
            if self.asymmetric {
                self.update_overutilized(core, cpu);
            }
            core.woke(cpu, task);
        }
    }

    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Dequeue) {
        let index = self.task_entity(task);
        core.clamp_left(task);
        let sleeps = flags.has(Dequeue::SLEEP);
        if self.dequeue_throttled(core, index, sleeps) {
            return;
        }
        if !sleeps && self.entities[index as usize].delayed {
            self.retire_delayed(core, cpu, index);
            self.refresh_idle(core, cpu);
            return;
        }
        let removal = match (sleeps, flags.has(Dequeue::SPECIAL)) {
            (true, false) => Removal::Sleep,
            (true, true) => Removal::Final,
            (false, _) => Removal::Save,
        };
        self.dequeue_task(core, cpu, index, removal);
        if removal == Removal::Sleep {
            self.update_util_est(index);
        }
        self.refresh_idle(core, cpu);
    }

    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: WakeFlags) {
        if core.curr_is_idle(cpu) {
            core.resched_full(cpu);
            return;
        }
        // Since 7.3 a short request may still become the one that goes next.
        if core.need_resched(cpu) == warmcore_kernel::NeedResched::Full && !self.parameters.flat {
            return;
        }
        let curr = self.rqs[cpu.index()].curr_task;
        let index = self.task_entity(task);
        // A task that wakes its parent while it exits leaves the CPU anyway.
        if curr == NONE || curr == index || !self.entities[curr as usize].on_rq {
            return;
        }
        let (curr, wakee) = self.matching(curr, index);
        if curr == wakee {
            return;
        }
        let curr_idle = self.entities[curr as usize].idle_policy;
        let wakee_idle = self.entities[wakee as usize].idle_policy;
        if curr_idle && !wakee_idle && self.policy.preempts_idle_policy() {
            let entity = &mut self.entities[curr as usize];
            entity.vprot = entity.vruntime;
            self.policy.resched(core, cpu);
            return;
        }
        if wakee_idle != curr_idle || !self.entities[index as usize].normal_policy {
            return P::spared(self, core, curr);
        }
        P::wakeup_preempt(self, core, cpu, curr, wakee, flags);
    }

    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        loop {
            let picked = self.pick_task(core, cpu, prev);
            if picked != NONE {
                let task = self.entity_task(picked);
                if prev == Some(task) {
                    // It goes on running: no `put_prev` or `set_next` follows that would consume this.
                    self.picked[cpu.index()] = NONE;
                }
                return Some(task);
            }
            self.picked[cpu.index()] = NONE;
            // An idle CPU that finds nothing has looked around before it went idle.
            let was_idle = core.curr_is_idle(cpu) && !core.stopper_ran(cpu);
            if was_idle || !self.sched_balance_newidle(core, cpu) {
                return None;
            }
        }
    }

    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _runnable: bool) {
        let index = self.task_entity(task);
        self.put_prev_entities(core, index, self.picked[cpu.index()]);
        self.rqs[cpu.index()].curr_task = NONE;
        self.settle_numa(core, cpu, task);
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        self.set_next_task(core, cpu, task, true);
    }

    fn enter_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.update_queue_avg(core.now_ns(), cpu.0);
        let rq = &mut self.rqs[cpu.index()];
        rq.idle_entered_ns = core.now_ns();
        if rq.idle_stamp_ns == 0 {
            self.set_idle_stamp(cpu, core.now_ns().max(1));
        }
        self.refresh_idle(core, cpu);
        self.note_idle_core(cpu);
    }

    fn exit_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.set_idle(cpu, false);
        if self.by_energy_model {
            self.left_idle(core.now_ns(), cpu);
        }
        let rq = &mut self.rqs[cpu.index()];
        let stamp_ns = rq.idle_stamp_ns;
        if stamp_ns != 0 {
            // `update_rq_avg_idle`: 1/8 of the difference, capped at twice the cost of balancing.
            // Saturating, as idleness that begins with the run is stamped a nanosecond late.
            let duration = core.now_ns().saturating_sub(stamp_ns) as i64;
            let average = rq.avg_idle_ns as i64;
            rq.avg_idle_ns = ((average + (duration - average) / 8) as u64).min(2 * rq.max_idle_balance_cost_ns);
            self.set_idle_stamp(cpu, 0);
        }
        self.update_queue_avg(core.now_ns(), cpu.0);
    }

    fn sched_switch(&mut self, core: &mut Core<'_>, cpu: CpuId, _prev: (TaskId, PrevState), next: TaskId) {
        if self.pressure.is_some() {
            self.note_switch(core, cpu, next);
        }
    }

    fn left_wakeups(&self) -> LeftWakeups {
        if self.parameters.rules_of_4_9 { LeftWakeups::OtherCaches } else { LeftWakeups::OtherCachesAndIdle }
    }

    fn ttwu_pending_changed(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.refresh_idle(core, cpu);
    }

    fn tick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>) {
        if let Some(task) = curr {
            let mut index = self.task_entity(task);
            while index != NONE {
                let queue = self.entities[index as usize].queue;
                self.update_curr(core, queue);
                self.update_load_avg(core.now_ns(), index);
                self.update_group_weight(core, index);
                P::tick(self, core, cpu, queue, index);
                index = self.queues[queue as usize].group_entity;
            }
            if self.timelines.is_some() {
                self.refresh_share(self.task_entity(task));
            }
            self.tick_task_work(core, cpu, task);
            if self.asymmetric {
                self.tick_asymmetric(core, cpu, task);
            }
        }
        if self.above(cpu) > 0 {
            self.update_pressure(core.now_ns(), cpu);
        }
        G::push_waiting(self, core, cpu);
        let idle = core.curr_is_idle(cpu);
        self.sched_balance_trigger(core, cpu, idle);
    }

    fn tick_stopped(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.nohz_balance_enter_idle(core, cpu);
    }

    fn hrtick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: TaskId) {
        let mut index = self.task_entity(curr);
        while index != NONE {
            let queue = self.entities[index as usize].queue;
            self.update_curr(core, queue);
            self.update_load_avg(core.now_ns(), index);
            self.update_group_weight(core, index);
            index = self.queues[queue as usize].group_entity;
        }
        core.resched_full(cpu);
    }

    fn softirq(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.sched_balance_softirq(core, cpu);
    }

    fn nohz_kick(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.nohz_csd(core, cpu);
    }

    fn stopper(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u32) {
        if payload & STOPPER_MOVE != 0 {
            self.planned_move_stopper(core, TaskId(payload & !STOPPER_MOVE));
        } else {
            self.active_balance_stopper(core, cpu, payload);
        }
    }

    fn timer(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u64) {
        if self.bandwidth_timer(core, payload) {
            return;
        }
        let task = TaskId(payload as u32);
        if core.curr(cpu) == task {
            self.do_task_work(core, task);
        }
    }

    fn yield_task(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        if self.rqs[cpu.index()].nr_running == 1 {
            return;
        }
        let index = self.task_entity(task);
        let queue = self.competes_in(index);
        self.clear_buddies(queue, index);
        self.update_curr_of(core, index);
        P::yield_entity(self, core, queue, index);
    }

    fn attributes_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        let index = self.task_entity(task);
        let state = core.task(task);
        let (cpu, weight) = (state.cpu(), scale_load(weight_of(state.policy(), state.nice())));
        let (slice_ns, policy) = (state.slice_ns(), state.policy());
        // As the kernel does: out of the queue, changed, and back in.
        let queued = self.entities[index as usize].on_rq || self.in_limbo(index);
        let runs = self.rqs[cpu.index()].curr_task == index;
        let group_changes = self.queue_for(core, task, cpu) != self.entities[index as usize].queue;
        let policy_changes = self.entities[index as usize].idle_policy != (policy == warmcore_workload::Policy::Idle);
        let slice_changes = self.entities[index as usize].custom_slice || slice_ns != 0;
        let moves = group_changes || policy_changes;
        let old_weight = self.entities[index as usize].weight;
        let reweighted = weight != old_weight && !self.parameters.rules_of_4_9;
        let requeue = queued && (moves || slice_changes || reweighted || core.clamp_changes(task));
        if requeue {
            self.dequeue(core, cpu, task, Dequeue::SAVE | Dequeue::MOVE.only_if(moves));
            if runs {
                self.put_prev(core, cpu, task, false);
            }
        }
        if weight != self.entities[index as usize].weight {
            self.reweight_entity(core, index, weight);
        }
        let entity = &mut self.entities[index as usize];
        entity.idle_policy = policy == warmcore_workload::Policy::Idle;
        entity.normal_policy = is_normal(policy);
        if slice_changes {
            P::set_slice(self, index, slice_ns);
        }
        if !self.entities[index as usize].on_rq {
            self.gathering.task_changed(task, core.task(task));
        }
        if requeue {
            self.enqueue(core, cpu, task, Enqueue::RESTORE | Enqueue::MOVE.only_if(moves));
            if runs {
                self.set_next_task(core, cpu, task, false);
            }
        }
        // `sched_move_task`, and `prio_changed_fair` for a task that becomes nicer; later than 4.9.
        let gives_way = group_changes || reweighted && weight < old_weight && !self.is_alone_in_root(cpu);
        if runs && gives_way && !self.parameters.rules_of_4_9 {
            core.resched_full(cpu);
        }
    }

    /// Its averages leave the queue with it (`detach_task_cfs_rq`).
    fn switched_from(&mut self, core: &mut Core<'_>, task: TaskId) {
        let index = self.task_entity(task);
        if !self.entities[index as usize].detached {
            let queue = self.entities[index as usize].queue;
            self.update_queue_avg(core.now_ns(), queue);
            self.update_entity_avg(core.now_ns(), index);
            self.detach_load(index);
            self.propagate_up(core.now_ns(), queue);
        }
        self.entities[index as usize].detached = true;
        self.forget_quota(core, index);
        self.note_class_change(core, task);
    }

    /// Its averages come with it when it is queued (`attach_task_cfs_rq`); a task that was never here begins without utilisation.
    fn switched_to(&mut self, core: &mut Core<'_>, task: TaskId) {
        let queue = self.queue_for(core, task, core.task(task).cpu());
        let index = self.task_entity(task);
        let entity = &mut self.entities[index as usize];
        if entity.pelt.last_update_ns == 0 {
            entity.pelt = Pelt { last_update_ns: core.now_ns(), load: 1024.0, runnable: 0.0, util: 0.0 };
        }
        entity.detached = true;
        entity.queue = queue;
        entity.exec_start_ns = 0;
        self.note_class_change(core, task);
    }

    /// `cpu_util_cfs_boost`, and what `effective_cpu_util` adds for the classes above. `uclamp_rq_is_capped` counts real-time tasks alone of them, here
    /// deadline tasks, too.
    fn utilisation(&self, core: &Core<'_>, cpu: CpuId) -> Utilisation {
        let (queue, rq) = (&self.queues[cpu.index()], &self.rqs[cpu.index()]);
        let running = (queue.pelt.util as u32).max(rq.util_est);
        let above = self.taken_above(core, cpu).util as u32;
        let (used, least) = self.with_interrupts(cpu, running.max(queue.pelt.runnable as u32) + above);
        Utilisation { used, running: running + above, least, at_once: false }
    }

    fn interrupted(&mut self, core: &mut Core<'_>, cpu: CpuId, duration_ns: u64) {
        self.note_interrupt(core.now_ns(), cpu, duration_ns);
    }

    fn speed_changed(&mut self, core: &mut Core<'_>, cpu: CpuId, scale: f64) {
        let now_ns = core.now_ns();
        let mut queue = cpu.0;
        while queue != NONE {
            self.update_queue_avg(now_ns, queue);
            let curr = self.queues[queue as usize].curr;
            if curr == NONE {
                break;
            }
            self.update_entity_avg(now_ns, curr);
            queue = self.entities[curr as usize].my_queue;
        }
        self.update_pressure(now_ns, cpu);
        self.set_speed(cpu, scale);
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.queues[cpu.index()].h_nr_runnable as usize + self.limbo_of(cpu)
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Whether the CPU's root queue has a single entity. A single session, which autogroup would have made a group, counts as one.
    fn is_alone_in_root(&self, cpu: CpuId) -> bool {
        let one_session = self.policy.autogroup() && self.autogroup_base.is_none() && self.groups.is_empty();
        one_session || self.queues[cpu.index()].nr_queued == 1
    }

    /// `set_next_task_fair`. A task that is picked (`first`) has its slice protected and the high-resolution tick set; one that was taken out of its
    /// queue to be changed, and runs on, has what is left of both.
    fn set_next_task(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, first: bool) {
        let index = self.task_entity(task);
        if self.timelines.is_some() {
            self.set_next_flat(core, index, first);
        }
        let mut entity = index;
        while entity != NONE && self.queues[self.entities[entity as usize].queue as usize].curr != entity {
            self.set_next_entity(core, entity);
            if first {
                P::switched_in(self, self.entities[entity as usize].queue, entity);
            }
            entity = self.parent(entity);
        }
        self.picked[cpu.index()] = NONE;
        self.rqs[cpu.index()].curr_task = index;
        // Before 4.15 tasks kept the order in which they came. One that has left because of its group's quota, and still runs, is in no list.
        if !self.parameters.rules_of_4_9 && self.entities[index as usize].on_rq {
            self.list_move_to_head(cpu, index);
        }
        if self.asymmetric {
            self.update_misfit_status(core, cpu, task);
        }
        if first {
            P::task_switched_in(self, core, cpu, index);
        }
        self.do_task_work(core, task);
    }
}
