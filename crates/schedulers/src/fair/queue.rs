//! Queueing of entities: what EEVDF and CFS share of `enqueue_task_fair`, `dequeue_entities`, `put_prev_entity`,
//! `set_next_entity`, `update_curr` and `update_load_avg` (`docs/spec/linux-fair.md` sections 1.3, 1.8, 1.13, 1.14, 2).

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::state::{CfsRq, NONE, Node, Speed};
use super::weights::{scale_load_down, virtual_delta, weighted};
use super::{Fair, Policy};
use crate::fair::gathering::Gathering;

/// Why an entity is dequeued; a task's reason becomes its group entity's when the group's queue runs empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// It sleeps and may be kept (`DEQUEUE_SLEEP`).
    Sleep,
    /// It sleeps and must go: exits (`DEQUEUE_SLEEP | DEQUEUE_SPECIAL`).
    Final,
    /// It is taken out for a move or a change (`DEQUEUE_SAVE`).
    Save,
    /// It slept while queued and is let go now (`DEQUEUE_DELAYED`).
    Delayed,
    /// Its group's quota is used up (`DEQUEUE_SLEEP | DEQUEUE_THROTTLE`).
    Throttle,
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Puts an entity that does not run into its queue's tree (`__enqueue_entity`), behind those with an equal key.
    #[inline(always)]
    pub(crate) fn tree_insert(&mut self, queue: u32, index: u32) {
        let entity = &self.entities[index as usize];
        let cfs = &mut self.queues[queue as usize];
        if P::WEIGHTED_AVERAGE {
            cfs.sum_weighted_key += weighted(entity.vruntime - cfs.zero_vruntime, entity.share);
            cfs.sum_weight += i64::from(entity.share);
        }
        let key = P::key(entity);
        let at = cfs.tree.partition_point(|node| node.key <= key);
        cfs.tree.insert(at, Node { key, vruntime: entity.vruntime, entity: index });
    }

    /// Takes an entity out of its queue's tree (`__dequeue_entity`).
    #[inline(always)]
    pub(crate) fn tree_remove(&mut self, queue: u32, index: u32) {
        let entity = &self.entities[index as usize];
        let cfs = &mut self.queues[queue as usize];
        if P::WEIGHTED_AVERAGE {
            cfs.sum_weighted_key -= weighted(entity.vruntime - cfs.zero_vruntime, entity.share);
            cfs.sum_weight -= i64::from(entity.share);
        }
        let key = P::key(entity);
        let first = cfs.tree.partition_point(|node| node.key < key);
        let found = cfs.tree[first..].iter().position(|node| node.entity == index);
        debug_assert!(found.is_some(), "entity {index} is not in the tree");
        if let Some(offset) = found {
            cfs.tree.remove(first + offset);
        }
    }

    #[inline]
    pub(crate) fn task_entity(&self, task: TaskId) -> u32 {
        self.task_base + task.0
    }

    /// Task of an entity that is one.
    #[inline]
    pub(crate) fn entity_task(&self, entity: u32) -> TaskId {
        TaskId(entity - self.task_base)
    }

    /// Entity that stands for the entity's queue one level up, or [`NONE`].
    #[inline]
    pub(crate) fn parent(&self, entity: u32) -> u32 {
        self.queues[self.entities[entity as usize].queue as usize].group_entity
    }

    /// Charges the running entity of a queue (`update_curr`).
    #[inline(always)]
    pub(crate) fn update_curr(&mut self, core: &mut Core<'_>, queue: u32) {
        let curr = self.queues[queue as usize].curr;
        if curr == NONE {
            return;
        }
        let clock_ns = core.clock_task_ns(CpuId(self.queues[queue as usize].cpu));
        let entity = &mut self.entities[curr as usize];
        let delta = clock_ns - entity.exec_start_ns;
        if delta == 0 {
            return;
        }
        entity.exec_start_ns = clock_ns;
        entity.sum_exec_ns += delta;
        if self.timelines.is_some() {
            return self.charge_flat(core, queue, curr, delta);
        }
        entity.vruntime += virtual_delta(delta, self.policy.pace(entity.share));
        if G::GATHERS && self.entities[curr as usize].my_queue == NONE {
            self.charge_gathering(core, queue, curr, delta);
        }
        P::charged(self, core, queue, curr);
        if self.bandwidth.is_some() {
            self.account_runtime(core, queue, delta);
        }
    }

    /// Brings an entity's averages to now (`__update_load_avg_se`).
    #[inline]
    pub(crate) fn update_entity_avg(&mut self, now_ns: u64, index: u32) {
        if self.entities[index as usize].pelt.last_update_ns != now_ns {
            self.age_entity_avg(now_ns, index);
        }
    }

    #[inline(never)]
    fn age_entity_avg(&mut self, now_ns: u64, index: u32) {
        let entity = &mut self.entities[index as usize];
        let cfs = &self.queues[entity.queue as usize];
        let speed = &self.speeds[cfs.cpu as usize];
        let on = |state: bool, full: f64| if state { full } else { 0.0 };
        let runs = entity.on_rq && cfs.curr == index;
        let runnable = on(entity.on_rq && !entity.delayed, speed.runnable);
        entity.pelt.update(now_ns, on(entity.on_rq, 1024.0), runnable, on(runs && !entity.delayed, speed.running));
    }

    /// Brings a queue's averages to now, first taking off what left while asleep (`update_cfs_rq_load_avg`).
    #[inline]
    pub(crate) fn update_queue_avg(&mut self, now_ns: u64, queue: u32) {
        let cfs = &mut self.queues[queue as usize];
        if cfs.pelt.last_update_ns != now_ns || cfs.any_removed {
            cfs.age_avg(now_ns, &self.speeds[cfs.cpu as usize]);
        }
    }

    /// Since when a CPU has no work; 0 if it has.
    ///
    /// Tasks in its queue wait for it to leave an idle state. In the kernel it has left that when it queues them, so they do not count as
    /// runnable.
    #[inline]
    pub(super) fn set_idle_stamp(&mut self, cpu: CpuId, stamp_ns: u64) {
        self.rqs[cpu.index()].idle_stamp_ns = stamp_ns;
        if self.by_energy_model {
            let speed = &mut self.speeds[cpu.index()];
            speed.runnable = if stamp_ns == 0 { speed.running } else { 0.0 };
        }
    }

    /// A CPU has another speed: 1024 is that of the biggest at its highest frequency.
    pub(super) fn set_speed(&mut self, cpu: CpuId, running: f64) {
        let waits = self.by_energy_model && self.rqs[cpu.index()].idle_stamp_ns != 0;
        self.speeds[cpu.index()] = Speed { running, runnable: if waits { 0.0 } else { running } };
    }

    /// A CPU leaves its idle state: what waited for that begins to count as runnable.
    #[cold]
    pub(super) fn left_idle(&mut self, now_ns: u64, cpu: CpuId) {
        let mut index = self.rqs[cpu.index()].list_head;
        while index != NONE {
            self.update_load_avg(now_ns, index);
            index = self.entities[index as usize].list_next;
        }
    }

    /// `update_load_avg`: the entity and its queue. A group's entity first learns what joined and left below it.
    #[inline]
    pub(crate) fn update_load_avg(&mut self, now_ns: u64, index: u32) {
        self.update_entity_avg(now_ns, index);
        let entity = &self.entities[index as usize];
        let (queue, below) = (entity.queue, entity.my_queue);
        self.update_queue_avg(now_ns, queue);
        if below != NONE && self.queues[below as usize].any_pending {
            self.propagate_load(index, below);
        }
    }

    /// Averages of a task as they count on its queue: load in units of weight, runnable, utilisation.
    pub(crate) fn contribution(&self, index: u32) -> [f64; 3] {
        let entity = &self.entities[index as usize];
        let weight = scale_load_down(u64::from(entity.weight)) as f64;
        [entity.pelt.load * weight / 1024.0, entity.pelt.runnable, entity.pelt.util]
    }

    /// Adds a task's averages to its queue, which is up to date, and for those above (`attach_entity_load_avg`). The sum behind a load is
    /// made anew of its whole part: a `SCHED_IDLE` task of 2.99 goes on with 2.
    pub(crate) fn attach_load(&mut self, index: u32) {
        let [load, runnable, util] = self.contribution(index);
        let load = load.floor();
        let entity = &mut self.entities[index as usize];
        entity.pelt.load = load * 1024.0 / scale_load_down(u64::from(entity.weight)) as f64;
        let cfs = &mut self.queues[entity.queue as usize];
        cfs.pelt.change(load, runnable, util);
        cfs.tell([entity.pelt.load, runnable, util]);
    }

    /// Removes a task's averages at once (`detach_entity_load_avg`).
    pub(crate) fn detach_load(&mut self, index: u32) {
        let [load, runnable, util] = self.contribution(index);
        let entity = &self.entities[index as usize];
        let cfs = &mut self.queues[entity.queue as usize];
        cfs.pelt.detach(load, runnable, util);
        cfs.tell([-entity.pelt.load, -runnable, -util]);
    }

    /// A sleeping task leaves for another CPU: of its load the whole part stays until the old queue is updated (`remove_entity_load_avg`).
    pub(crate) fn remove_load(&mut self, now_ns: u64, index: u32) {
        let entity = &self.entities[index as usize];
        let queue = entity.queue;
        let queue_updated_ns = self.queues[queue as usize].pelt.last_update_ns;
        if entity.pelt.last_update_ns < queue_updated_ns {
            self.update_entity_avg(queue_updated_ns, index);
        }
        let mut amounts = self.contribution(index);
        amounts[0] = amounts[0].floor();
        let cfs = &mut self.queues[queue as usize];
        cfs.any_removed = true;
        cfs.removed.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += amount);
        self.update_entity_avg(now_ns, index);
        self.entities[index as usize].detached = true;
    }

    /// Counts an entity into its queue (`account_entity_enqueue`).
    pub(super) fn account_enqueue(&mut self, index: u32) {
        let entity = &self.entities[index as usize];
        let cfs = &mut self.queues[entity.queue as usize];
        cfs.load_weight += u64::from(entity.weight);
        cfs.nr_queued += 1;
        cfs.custom_slices += u32::from(entity.custom_slice);
        let cpu = cfs.cpu;
        if entity.my_queue == NONE {
            self.list_add_head(cpu, index);
            let task = TaskId(index - self.task_base);
            self.gathering.enqueued(CpuId(cpu), task, self.entities[index as usize].delayed);
            if let Some(numa) = &mut self.numa {
                numa.enqueued(CpuId(cpu), task);
            }
        }
    }

    /// Counts an entity out of its queue (`account_entity_dequeue`).
    pub(super) fn account_dequeue(&mut self, index: u32) {
        let entity = &self.entities[index as usize];
        let cfs = &mut self.queues[entity.queue as usize];
        cfs.load_weight -= u64::from(entity.weight);
        cfs.nr_queued -= 1;
        cfs.custom_slices -= u32::from(entity.custom_slice);
        let cpu = cfs.cpu;
        if entity.my_queue == NONE {
            self.list_remove(cpu, index);
            let task = TaskId(index - self.task_base);
            self.gathering.dequeued(CpuId(cpu), task, self.entities[index as usize].delayed);
            if let Some(numa) = &mut self.numa {
                numa.dequeued(CpuId(cpu), task);
            }
        }
    }

    /// `enqueue_entity`: places the entity and puts it into its queue.
    fn enqueue_entity(&mut self, core: &mut Core<'_>, index: u32, initial: bool) {
        let now_ns = core.now_ns();
        let queue = self.entities[index as usize].queue;
        self.update_curr(core, queue);
        self.update_load_avg(now_ns, index);
        if std::mem::take(&mut self.entities[index as usize].detached) {
            self.attach_load(index);
        }
        self.update_group_weight(core, index);
        P::place(self, core, queue, index, initial);
        self.account_enqueue(index);
        if self.bandwidth.is_some() && self.queues[queue as usize].nr_queued == 1 {
            self.check_enqueue_throttle(core, queue);
        }
        self.entities[index as usize].on_rq = true;
        // A group's entity still runs while its last task leaves; a task that is pulled then finds it outside the tree.
        if self.queues[queue as usize].curr != index {
            self.tree_insert(queue, index);
        }
    }

    /// Changes the counts of tasks on the entity's queue and all above it.
    fn count(&mut self, index: u32, change: impl Fn(&mut CfsRq)) {
        let mut entity = index;
        while entity != NONE {
            let queue = self.entities[entity as usize].queue;
            change(&mut self.queues[queue as usize]);
            entity = self.queues[queue as usize].group_entity;
        }
    }

    /// `enqueue_task_fair` for a task that is not queued.
    #[inline(always)]
    pub(crate) fn enqueue_task(&mut self, core: &mut Core<'_>, cpu: CpuId, index: u32, initial: bool) {
        match self.timelines {
            Some(_) => self.enqueue_flat(core, index, initial),
            None => self.enqueue_levels(core, index, initial),
        }
        let rq = &mut self.rqs[cpu.index()];
        rq.nr_running += 1;
        rq.util_est += self.entities[index as usize].util_est;
        if rq.nr_running == 2 {
            self.domains.count_crowded(cpu, true);
        }
        self.overloaded |= self.nr_running(cpu) >= 2;
        P::enqueued(self, core, cpu);
    }

    /// The levels of a task that is not queued, from its own up.
    #[inline(always)]
    fn enqueue_levels(&mut self, core: &mut Core<'_>, index: u32, initial: bool) {
        let now_ns = core.now_ns();
        let mut counts = [1, 1, u32::from(self.entities[index as usize].idle_policy)];
        let mut entity = index;
        while entity != NONE {
            let (on_rq, delayed) = {
                let state = &self.entities[entity as usize];
                (state.on_rq, state.delayed)
            };
            if on_rq {
                if delayed {
                    self.update_curr(core, self.entities[entity as usize].queue);
                    self.requeue_delayed_entity(core, entity);
                }
                self.update_load_avg(now_ns, entity);
                self.update_group_weight(core, entity);
            } else {
                self.enqueue_entity(core, entity, initial && entity == index);
            }
            let queue = self.entities[entity as usize].queue;
            self.count_in(entity, counts);
            entity = self.queues[queue as usize].group_entity;
            if entity != NONE {
                counts = self.counts_of_group(entity, counts);
                P::follow_slices(self, entity, queue);
            }
        }
    }

    /// A task that sleeps in its queue is awake again (`enqueue_task_fair` with `ENQUEUE_DELAYED`).
    pub(crate) fn wake_delayed_task(&mut self, core: &mut Core<'_>, cpu: CpuId, index: u32) {
        match self.timelines {
            Some(_) => self.charge_running(core, index),
            None => self.update_curr(core, self.entities[index as usize].queue),
        }
        self.requeue_delayed_entity(core, index);
        let now_ns = core.now_ns();
        let mut entity = index;
        while entity != NONE {
            self.update_load_avg(now_ns, entity);
            entity = self.parent(entity);
        }
        self.count(index, |cfs| cfs.h_nr_runnable += 1);
        self.rqs[cpu.index()].util_est += self.entities[index as usize].util_est;
        P::enqueued(self, core, cpu);
    }

    /// `requeue_delayed_entity`: the entity is wanted again, where it is.
    fn requeue_delayed_entity(&mut self, core: &mut Core<'_>, index: u32) {
        let queue = self.competes_in(index);
        self.update_load_avg(core.now_ns(), index);
        P::requeue(self, core, queue, index);
        self.set_delayed(index, false);
    }

    /// An entity falls asleep in its queue, or is awake again (`set_delayed`, `clear_delayed`).
    pub(super) fn set_delayed(&mut self, index: u32, delayed: bool) {
        let entity = &mut self.entities[index as usize];
        entity.delayed = delayed;
        if G::GATHERS && entity.my_queue == NONE {
            let cpu = CpuId(self.queues[entity.queue as usize].cpu);
            self.gathering.delay_changed(cpu, TaskId(index - self.task_base), delayed);
        }
    }

    /// `dequeue_entity`: false if the entity stays queued, asleep.
    #[inline(always)]
    pub(super) fn dequeue_entity(&mut self, core: &mut Core<'_>, index: u32, removal: Removal) -> bool {
        let now_ns = core.now_ns();
        let queue = self.entities[index as usize].queue;
        self.update_curr(core, queue);
        self.clear_buddies(queue, index);
        self.update_load_avg(now_ns, index);
        if removal == Removal::Sleep && P::delays_dequeue(self, queue, index) {
            P::save_lag(self, queue, index);
            self.set_delayed(index, true);
            return false;
        }
        P::save_lag(self, queue, index);
        if self.queues[queue as usize].curr != index {
            self.tree_remove(queue, index);
        }
        P::left(self, index, removal);
        self.account_dequeue(index);
        let entity = &mut self.entities[index as usize];
        entity.on_rq = false;
        entity.delayed = false;
        if self.bandwidth.is_some() {
            self.check_dequeue_throttle(core, queue);
        }
        true
    }

    /// `dequeue_task_fair`: a task, and the group entities whose queues run empty. False if the task stays queued.
    pub(crate) fn dequeue_task(&mut self, core: &mut Core<'_>, cpu: CpuId, index: u32, removal: Removal) -> bool {
        let (was_delayed, was_sched_idle) = (self.entities[index as usize].delayed, self.sched_idle_cpu(core, cpu));
        let idle_policy = u32::from(self.entities[index as usize].idle_policy);
        if !was_delayed {
            self.rqs[cpu.index()].util_est -= self.entities[index as usize].util_est;
        }
        let counts = [1, u32::from(!was_delayed), idle_policy];
        let left = match self.timelines {
            Some(_) => self.dequeue_flat(core, index, removal, counts),
            None => self.dequeue_entity(core, index, removal),
        };
        if !left {
            self.count_asleep(index);
            return false;
        }
        let rq = &mut self.rqs[cpu.index()];
        rq.nr_running -= 1;
        if rq.nr_running == 1 {
            self.domains.count_crowded(cpu, false);
        }
        if self.timelines.is_none() {
            self.count_out(index, counts);
            let group_entity = self.parent(index);
            if group_entity != NONE {
                self.leave_groups(core, group_entity, removal, counts);
            }
        }
        // "Balance early to pull high priority tasks".
        if !was_sched_idle && self.sched_idle_cpu(core, cpu) {
            self.rqs[cpu.index()].next_balance = core.jiffies();
        }
        true
    }

    /// A task sleeps in its queue: it is not counted as runnable at any level.
    pub(super) fn count_asleep(&mut self, index: u32) {
        self.count(index, |cfs| cfs.h_nr_runnable -= 1);
    }

    /// What joins or leaves below a group, as the queue of its entity counts it: all tasks of a group of `cpu.idle` are as of `SCHED_IDLE` there
    /// (`cfs_rq_is_idle`).
    #[inline]
    pub(super) fn counts_of_group(&self, group_entity: u32, [queued, runnable, idle]: [u32; 3]) -> [u32; 3] {
        [queued, runnable, if self.entities[group_entity as usize].idle_policy { queued } else { idle }]
    }

    /// Tasks join the counts of an entity's queue: queued, runnable, queued of `SCHED_IDLE`.
    #[inline]
    pub(super) fn count_in(&mut self, index: u32, [queued, runnable, idle]: [u32; 3]) {
        let queue = self.entities[index as usize].queue;
        let cfs = &mut self.queues[queue as usize];
        cfs.h_nr_queued += queued;
        cfs.h_nr_runnable += runnable;
        cfs.h_nr_idle += idle;
    }

    /// They leave them.
    #[inline]
    pub(super) fn count_out(&mut self, index: u32, [queued, runnable, idle]: [u32; 3]) {
        let queue = self.entities[index as usize].queue;
        let cfs = &mut self.queues[queue as usize];
        cfs.h_nr_queued -= queued;
        cfs.h_nr_runnable -= runnable;
        cfs.h_nr_idle -= idle;
    }

    /// A delayed entity was picked: it leaves now (`dequeue_entities` with `DEQUEUE_DELAYED`).
    pub(crate) fn retire_delayed(&mut self, core: &mut Core<'_>, cpu: CpuId, index: u32) {
        if self.entities[index as usize].my_queue == NONE {
            self.dequeue_task(core, cpu, index, Removal::Delayed);
        } else {
            self.dequeue_entity(core, index, Removal::Delayed);
            let group_entity = self.parent(index);
            if group_entity != NONE {
                self.leave_groups(core, group_entity, Removal::Delayed, [0; 3]);
            }
        }
    }

    /// `put_prev_entity`: the running entity of a queue stops running.
    #[inline(always)]
    pub(crate) fn put_prev_entity(&mut self, core: &mut Core<'_>, index: u32) {
        let queue = self.entities[index as usize].queue;
        if self.entities[index as usize].on_rq {
            self.update_curr(core, queue);
            self.update_load_avg(core.now_ns(), index);
            self.tree_insert(queue, index);
        } else {
            self.update_queue_avg(core.now_ns(), queue);
        }
        if self.bandwidth.is_some() {
            self.check_runtime(core, queue);
        }
        self.queues[queue as usize].curr = NONE;
    }

    /// `set_next_entity`: an entity of a queue begins to run.
    #[inline(always)]
    pub(crate) fn set_next_entity(&mut self, core: &mut Core<'_>, index: u32) {
        let queue = self.entities[index as usize].queue;
        self.clear_buddies(queue, index);
        self.update_load_avg(core.now_ns(), index);
        if self.entities[index as usize].on_rq {
            self.tree_remove(queue, index);
            if queue as usize >= self.rqs.len() {
                let group = self.group_of_queue(queue);
                self.publish_group_load(core, queue, group);
            }
        }
        self.queues[queue as usize].curr = index;
        self.begin_to_run(core, index);
    }

    /// An entity is charged from now on.
    #[inline(always)]
    pub(super) fn begin_to_run(&mut self, core: &Core<'_>, index: u32) {
        let entity = &mut self.entities[index as usize];
        entity.exec_start_ns = core.clock_task_ns(CpuId(self.queues[entity.queue as usize].cpu));
        entity.prev_sum_exec_ns = entity.sum_exec_ns;
    }

    /// Forgets an entity as a buddy of its queue (`clear_buddies`), and the groups above as far as they are buddies with it.
    #[inline]
    pub(crate) fn clear_buddies(&mut self, queue: u32, index: u32) {
        let cfs = &self.queues[queue as usize];
        if cfs.next == index || cfs.last == index || cfs.skip == index {
            self.forget_buddy(index);
        }
    }

    /// The load of a group's entity counts in its queue with another weight (`dequeue_load_avg`, `enqueue_load_avg`). That of a task does
    /// so by and by, where the kernel's does at once too.
    pub(super) fn reweight_load(&mut self, now_ns: u64, index: u32, weight: u32) {
        self.update_load_avg(now_ns, index);
        let entity = &self.entities[index as usize];
        if entity.my_queue != NONE {
            let [old, new] = [entity.weight, weight].map(|weight| scale_load_down(u64::from(weight)));
            let more = entity.pelt.load * (new - old) as f64 / 1024.0;
            self.queues[entity.queue as usize].pelt.change(more, 0.0, 0.0);
        }
    }

    /// `reweight_entity`: another weight, the same lag in real time.
    pub(crate) fn reweight_entity(&mut self, core: &mut Core<'_>, index: u32, weight: u32) {
        if self.timelines.is_some() {
            return self.reweight_level(core, index, weight);
        }
        let queue = self.entities[index as usize].queue;
        if !self.entities[index as usize].on_rq {
            P::rescale(self, queue, index, weight, false);
            if self.entities[index as usize].my_queue != NONE {
                self.reweight_load(core.now_ns(), index, weight);
            }
            self.set_weight(index, weight);
            return;
        }
        self.update_curr(core, queue);
        self.reweight_load(core.now_ns(), index, weight);
        let runs = self.queues[queue as usize].curr == index;
        P::save_lag(self, queue, index);
        if !runs {
            self.tree_remove(queue, index);
        }
        let old = self.entities[index as usize].weight;
        self.queues[queue as usize].load_weight -= u64::from(old);
        self.queues[queue as usize].nr_queued -= 1;
        self.entities[index as usize].on_rq = false;
        P::rescale(self, queue, index, weight, true);
        self.set_weight(index, weight);
        P::replace(self, core, queue, index);
        P::rescaled(self, index);
        self.entities[index as usize].on_rq = true;
        self.queues[queue as usize].load_weight += u64::from(weight);
        self.queues[queue as usize].nr_queued += 1;
        if !runs {
            self.tree_insert(queue, index);
        }
    }

    /// A weight that is its share too.
    fn set_weight(&mut self, index: u32, weight: u32) {
        let entity = &mut self.entities[index as usize];
        (entity.weight, entity.share) = (weight, weight);
    }

    /// `update_util_est`: what the task used in this activation becomes an estimate for the next.
    pub(crate) fn update_util_est(&mut self, index: u32) {
        /// `UTIL_EST_MARGIN`.
        const MARGIN: u32 = 10;
        let entity = &mut self.entities[index as usize];
        let util = entity.pelt.util as u32;
        let difference = entity.util_est.saturating_sub(util);
        if difference == 0 {
            entity.util_est = util;
        } else if difference >= MARGIN && util + MARGIN >= entity.pelt.runnable as u32 {
            entity.util_est -= difference / 4;
        }
    }
}
