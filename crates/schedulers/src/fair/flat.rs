//! One run queue for the tasks of all groups of a CPU, as the fair class of Linux 7.3 has it: groups are levels of load only.
//!
//! Tasks and groups are queued level by level as before, for weights, averages, counts and quotas. What decides who runs is a further queue of each CPU,
//! its *timeline*: every task is in it with its *share*, its weight times the part that each group above has of its level. A share is computed when the task
//! is queued, begins to run, gets another weight, and at its ticks. Runs without groups have no timeline: there is but one level.
//!
//! Source: a series on the mailing list (v3 of June 2026, `20260605105513.354837583@infradead.org`) and a public port of the kernel of September 2026,
//! not the released one (`studies/kernels-after-7.2.md`): `enqueue_hierarchy`, `dequeue_hierarchy`, `__calc_prop_weight`, `reweight_eevdf`, `set_next_task_fair`.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::queue::Removal;
use super::state::NONE;
use super::weights::{MIN_SHARES, NICE_0_LOAD, virtual_delta};
use super::{Fair, Policy, new_queue};
use crate::fair::gathering::Gathering;

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Adds the timelines behind the queues of the groups, if the kernel has them and there are groups.
    pub(super) fn create_timelines(&mut self) {
        if self.parameters.flat && !self.groups.is_empty() {
            let (base, cpus) = (self.queues.len(), self.rqs.len());
            self.timelines = Some(base as u32);
            self.queues.extend((0..cpus).map(|cpu| new_queue(cpu, cpus)));
        }
    }

    /// The queue in which an entity competes: its own, or its CPU's timeline.
    #[inline]
    pub(crate) fn competes_in(&self, index: u32) -> u32 {
        let queue = self.entities[index as usize].queue;
        self.timelines.map_or(queue, |base| base + self.queues[queue as usize].cpu)
    }

    /// The queue in which a CPU's tasks compete with an entity of this one.
    pub(super) fn competes_on(&self, index: u32, cpu: CpuId) -> u32 {
        match self.timelines {
            Some(base) => base + cpu.0,
            // Queues are stored by group, then CPU; the root's come first.
            None => {
                let (queue, cpus) = (self.entities[index as usize].queue, self.rqs.len() as u32);
                queue / cpus * cpus + cpu.0
            }
        }
    }

    /// Charges what runs on the levels of an entity and above, or, without timelines, on its own.
    pub(crate) fn update_curr_of(&mut self, core: &mut Core<'_>, index: u32) {
        self.update_curr(core, self.entities[index as usize].queue);
        if self.timelines.is_some() {
            let mut entity = self.parent(index);
            while entity != NONE {
                self.update_curr(core, self.entities[entity as usize].queue);
                entity = self.parent(entity);
            }
        }
    }

    /// Charges what runs on an entity's CPU at all its levels: lags are of now (`update_curr_eevdf`).
    pub(super) fn charge_running(&mut self, core: &mut Core<'_>, index: u32) {
        let curr = self.queues[self.competes_in(index) as usize].curr;
        if curr != NONE {
            self.update_curr_of(core, curr);
        }
    }

    /// The running entity of a queue, which has just been charged: a task moves on in the timeline.
    #[cold]
    pub(super) fn charge_flat(&mut self, core: &mut Core<'_>, queue: u32, curr: u32, delta_ns: u64) {
        if self.bandwidth.is_some() {
            self.account_runtime(core, queue, delta_ns);
        }
        if self.entities[curr as usize].my_queue != NONE {
            return;
        }
        let entity = &mut self.entities[curr as usize];
        entity.vruntime += virtual_delta(delta_ns, entity.share);
        if G::GATHERS {
            self.charge_gathering(core, queue, curr, delta_ns);
        }
        P::charged(self, core, self.competes_in(curr), curr);
    }

    /// A task's part of its CPU (`__calc_prop_weight` at each level).
    fn proportional_weight(&self, index: u32) -> u32 {
        let mut share = u64::from(NICE_0_LOAD);
        let mut entity = index;
        while entity != NONE {
            let above = self.parent(entity);
            let state = &self.entities[entity as usize];
            let whole = match above {
                NONE => u64::from(NICE_0_LOAD),
                _ => self.queues[state.queue as usize].load_weight.max(1),
            };
            share = (share * u64::from(state.weight) / whole).max(MIN_SHARES.into());
            entity = above;
        }
        share.min(u32::MAX.into()) as u32
    }

    /// Brings a queued task's share up to date; its lag, and what is left of request and protection, stay what they are in real time
    /// (`reweight_eevdf`).
    #[cold]
    pub(super) fn refresh_share(&mut self, index: u32) {
        if !self.entities[index as usize].on_rq {
            // It has left because of its group's quota, and still runs.
            return;
        }
        let share = self.proportional_weight(index);
        if share == self.entities[index as usize].share {
            return;
        }
        let timeline = self.competes_in(index);
        let runs = self.queues[timeline as usize].curr == index;
        let average = P::average(self, timeline);
        P::save_lag(self, timeline, index);
        if !runs {
            self.tree_remove(timeline, index);
        }
        self.queues[timeline as usize].nr_queued -= 1;
        self.entities[index as usize].on_rq = false;
        P::rescale(self, timeline, index, share, true);
        self.entities[index as usize].share = share;
        P::rejoin(self, index, average);
        P::rescaled(self, index);
        self.entities[index as usize].on_rq = true;
        self.queues[timeline as usize].nr_queued += 1;
        if !runs {
            self.tree_insert(timeline, index);
        }
    }

    /// `reweight_entity` and `reweight_task_fair`: a weight counts for its level, and for the share of a task.
    #[cold]
    pub(super) fn reweight_level(&mut self, core: &mut Core<'_>, index: u32, weight: u32) {
        let entity = &self.entities[index as usize];
        let (queue, queued, is_task) = (entity.queue as usize, entity.on_rq, entity.my_queue == NONE);
        if queued && is_task {
            self.charge_running(core, index);
        }
        if queued || !is_task {
            self.reweight_load(core.now_ns(), index, weight);
        }
        if queued {
            let old = u64::from(self.entities[index as usize].weight);
            self.queues[queue].load_weight = self.queues[queue].load_weight - old + u64::from(weight);
        }
        self.entities[index as usize].weight = weight;
        if queued && is_task {
            self.refresh_share(index);
        }
    }

    /// `enqueue_task_fair` up to what the run queue counts, for a task that is not queued.
    #[cold]
    pub(super) fn enqueue_flat(&mut self, core: &mut Core<'_>, index: u32, initial: bool) {
        let mut counts = [1, 1, u32::from(self.entities[index as usize].idle_policy)];
        self.charge_running(core, index);
        let mut entity = index;
        while entity != NONE {
            let queue = self.entities[entity as usize].queue;
            self.update_load_avg(core.now_ns(), entity);
            if self.entities[entity as usize].on_rq {
                self.update_group_weight(core, entity);
            } else {
                if std::mem::take(&mut self.entities[entity as usize].detached) {
                    self.attach_load(entity);
                }
                self.update_group_weight(core, entity);
                self.account_enqueue(entity);
                if self.bandwidth.is_some() && self.queues[queue as usize].nr_queued == 1 {
                    self.check_enqueue_throttle(core, queue);
                }
                // The task itself when it has its place.
                self.entities[entity as usize].on_rq = entity != index;
            }
            self.count_in(entity, counts);
            entity = self.parent(entity);
            if entity != NONE {
                counts = self.counts_of_group(entity, counts);
            }
        }
        let share = self.proportional_weight(index);
        let timeline = self.competes_in(index);
        if share != self.entities[index as usize].share {
            P::rescale(self, timeline, index, share, false);
            self.entities[index as usize].share = share;
        }
        P::place(self, core, timeline, index, initial);
        self.entities[index as usize].on_rq = true;
        self.join_timeline(timeline, index, 1);
        if self.queues[timeline as usize].curr != index {
            self.tree_insert(timeline, index);
        }
    }

    /// Counts a task into its timeline, or out of it.
    fn join_timeline(&mut self, timeline: u32, index: u32, change: i32) {
        let custom = i32::from(self.entities[index as usize].custom_slice);
        let cfs = &mut self.queues[timeline as usize];
        cfs.nr_queued = cfs.nr_queued.wrapping_add_signed(change);
        cfs.custom_slices = cfs.custom_slices.wrapping_add_signed(change * custom);
    }

    /// `__dequeue_task` up to what the run queue counts: the task leaves its levels and the timeline. False if it sleeps on in both.
    #[cold]
    pub(super) fn dequeue_flat(
        &mut self,
        core: &mut Core<'_>,
        index: u32,
        removal: Removal,
        mut counts: [u32; 3],
    ) -> bool {
        let timeline = self.competes_in(index);
        self.clear_buddies(timeline, index);
        self.charge_running(core, index);
        P::save_lag(self, timeline, index);
        if removal == Removal::Sleep && P::delays_dequeue(self, timeline, index) {
            self.update_load_avg(core.now_ns(), index);
            self.set_delayed(index, true);
            return false;
        }
        if self.queues[timeline as usize].curr != index {
            self.tree_remove(timeline, index);
        }
        self.join_timeline(timeline, index, -1);
        let (mut entity, mut leaves) = (index, true);
        while entity != NONE {
            let queue = self.entities[entity as usize].queue;
            self.update_load_avg(core.now_ns(), entity);
            if leaves {
                self.account_dequeue(entity);
                self.entities[entity as usize].on_rq = false;
                if self.bandwidth.is_some() {
                    self.check_dequeue_throttle(core, queue);
                }
            }
            self.update_group_weight(core, entity);
            self.count_out(entity, counts);
            leaves &= self.queues[queue as usize].load_weight == 0;
            entity = self.parent(entity);
            if entity != NONE {
                counts = self.counts_of_group(entity, counts);
            }
        }
        P::left(self, index, removal);
        self.entities[index as usize].delayed = false;
        true
    }

    /// `put_prev_task_fair`: the levels of the running task stop running, and it goes back to the timeline.
    #[cold]
    pub(super) fn put_prev_flat(&mut self, core: &mut Core<'_>, index: u32) {
        let mut entity = index;
        while entity != NONE {
            let queue = self.entities[entity as usize].queue;
            if self.entities[entity as usize].on_rq {
                self.update_curr(core, queue);
                self.update_load_avg(core.now_ns(), entity);
            } else {
                self.update_queue_avg(core.now_ns(), queue);
            }
            if self.bandwidth.is_some() {
                self.check_runtime(core, queue);
            }
            self.queues[queue as usize].curr = NONE;
            entity = self.parent(entity);
        }
        let timeline = self.competes_in(index);
        self.queues[timeline as usize].curr = NONE;
        if self.entities[index as usize].on_rq {
            self.tree_insert(timeline, index);
        }
    }

    /// `set_next_task_fair`: a task and its levels begin to run.
    #[cold]
    pub(super) fn set_next_flat(&mut self, core: &mut Core<'_>, index: u32, first: bool) {
        let timeline = self.competes_in(index);
        self.clear_buddies(timeline, index);
        let queued = self.entities[index as usize].on_rq;
        if queued {
            self.tree_remove(timeline, index);
        }
        let mut entity = index;
        while entity != NONE {
            self.update_load_avg(core.now_ns(), entity);
            let queue = self.entities[entity as usize].queue;
            self.queues[queue as usize].curr = entity;
            self.begin_to_run(core, entity);
            entity = self.parent(entity);
        }
        self.queues[timeline as usize].curr = index;
        if queued {
            self.refresh_share(index);
            if first {
                P::switched_in(self, timeline, index);
            }
        }
    }

    /// The next task of a CPU (`pick_task_fair`); delayed ones that come up leave.
    #[cold]
    pub(super) fn pick_flat(&mut self, core: &mut Core<'_>, cpu: CpuId, timelines: u32, prev: Option<TaskId>) -> u32 {
        let timeline = timelines + cpu.0;
        loop {
            if self.queues[timeline as usize].nr_queued == 0 {
                return NONE;
            }
            let curr = self.queues[timeline as usize].curr;
            if curr != NONE {
                self.update_curr_of(core, curr);
            }
            let picked = P::pick(self, timeline);
            if picked == NONE {
                self.fail_to_pick(core, timeline);
                return NONE;
            }
            if self.entities[picked as usize].delayed {
                self.retire_delayed(core, cpu, picked);
                continue;
            }
            let mut entity = picked;
            let mut throttled = false;
            while self.bandwidth.is_some() && entity != NONE {
                throttled |= self.check_runtime(core, self.entities[entity as usize].queue);
                entity = self.parent(entity);
            }
            self.picked[cpu.index()] = picked;
            if throttled {
                let task = self.entity_task(picked);
                self.ask_to_leave(core, cpu, task, prev == Some(task));
            }
            return picked;
        }
    }
}
