//! Task groups and autogroup, to any depth: what the fair class does at the levels above a task (`docs/spec/linux-fair.md` section 1.13).
//!
//! A group has an entity and a queue on each CPU; the entity lies in the queue of the group above, or in the CPU's. What happens at one
//! level is in [`super::queue`]; here is what goes from one level to the next. A task in no group never comes here.

use warmcore_kernel::{Core, TaskGroup};
use warmcore_topology::CpuId;

use super::bandwidth::Bandwidth;
use super::queue::Removal;
use super::state::{CfsRq, NONE};
use super::weights::{MIN_SHARES, scale_load, scale_load_down};
use super::{CgroupMode, Fair, GroupState, Policy, new_entity, new_queue};
use crate::fair::gathering::Gathering;

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// The run begins: queues and entities of the groups, before there is any task (`sched_create_group`, `autogroup_create`).
    pub(super) fn create_groups(&mut self, core: &mut Core<'_>) {
        let cpus = self.rqs.len();
        let mut groups = core.task_groups().to_vec();
        let applications = core.application_count();
        if self.policy.autogroup() && (applications > 1 || !groups.is_empty()) {
            self.autogroup_base = Some(groups.len() as u32);
            groups.resize(groups.len() + applications, TaskGroup::PLAIN);
        }
        let above = |group: usize| {
            std::iter::successors(groups[group].parent, |&parent| groups[parent as usize].parent).count() as u32
        };
        let depths: Vec<u32> = (0..groups.len()).map(|group| above(group) + 1).collect();
        self.groups_inner_first = (0..groups.len() as u32).collect();
        self.groups_inner_first.sort_by_key(|&group| std::cmp::Reverse(depths[group as usize]));
        self.bandwidth = Bandwidth::new(core, &groups, self.seed);
        let group_entities = groups.len() * cpus;
        self.task_base = group_entities as u32;
        self.queues.extend(
            (cpus..cpus + group_entities)
                .map(|index| CfsRq { depth: depths[index / cpus - 1], ..new_queue(index, cpus) }),
        );
        self.entities.extend((0..group_entities).map(|index| {
            let (group, cpu) = (groups[index / cpus], (index % cpus) as u32);
            let queue = group.parent.map_or(cpu, |parent| (cpus as u32) * (parent + 1) + cpu);
            let mut entity = new_entity(scale_load(group.shares.max(1)), queue);
            entity.my_queue = (cpus + index) as u32;
            entity.idle_policy = group.idle;
            entity
        }));
        let state =
            |group: &TaskGroup| GroupState { shares: group.shares, cpus: group.cpus, load_avg: 0.0, runnable: 0.0 };
        self.groups = groups.iter().map(state).collect();
        self.create_timelines();
    }

    /// Group that a group queue belongs to.
    pub(crate) fn group_of_queue(&self, queue: u32) -> usize {
        queue as usize / self.rqs.len() - 1
    }

    /// Brings the averages of a CPU's queues to now (`sched_balance_update_blocked_averages`).
    pub(crate) fn update_blocked_averages(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let now_ns = core.now_ns();
        let cpus = self.rqs.len();
        for position in 0..self.groups_inner_first.len() {
            let group = self.groups_inner_first[position] as usize;
            let queue = (cpus + group * cpus + cpu.index()) as u32;
            let cfs = &self.queues[queue as usize];
            // Also what is published of a queue that has decayed (`cfs_rq_is_decayed`).
            if cfs.pelt.load > 0.0 || cfs.nr_queued > 0 || cfs.any_pending || cfs.tg_load_contribution > 0.0 {
                let group_entity = cfs.group_entity;
                self.update_queue_avg(now_ns, queue);
                self.publish_group_load(core, queue, group);
                self.update_load_avg(now_ns, group_entity);
            }
        }
        self.update_queue_avg(now_ns, cpu.0);
    }

    /// Entities of one queue that the two tasks' entities compete as (`find_matching_se`).
    pub(super) fn matching(&self, mut a: u32, mut b: u32) -> (u32, u32) {
        if self.timelines.is_some() {
            return (a, b);
        }
        let queue = |entity: u32| self.entities[entity as usize].queue;
        let depth = |entity: u32| self.queues[queue(entity) as usize].depth;
        while queue(a) != queue(b) {
            let (of_a, of_b) = (depth(a), depth(b));
            if of_a >= of_b {
                a = self.parent(a);
            }
            if of_b >= of_a {
                b = self.parent(b);
            }
        }
        (a, b)
    }

    /// The running task's entity and those above it stop running, up to the one whose queue has the next task too: what lies above both
    /// goes on (`pick_next_task_fair`). `next` is the task to come, or [`NONE`].
    pub(super) fn put_prev_entities(&mut self, core: &mut Core<'_>, prev: u32, mut next: u32) {
        if self.timelines.is_some() {
            return self.put_prev_flat(core, prev);
        }
        let mut entity = prev;
        while entity != NONE {
            let queue = self.entities[entity as usize].queue;
            let depth = self.queues[queue as usize].depth;
            let queue_of = |fair: &Self, entity: u32| fair.entities[entity as usize].queue;
            while next != NONE && self.queues[queue_of(self, next) as usize].depth > depth {
                next = self.parent(next);
            }
            self.put_prev_entity(core, entity);
            if next != NONE && queue_of(self, next) == queue {
                return;
            }
            entity = self.parent(entity);
        }
    }

    /// `propagate_entity_load_avg`: what joined and left a group's queue counts in the queue above too, load by the group's weight there.
    #[inline(never)]
    pub(super) fn propagate_load(&mut self, group_entity: u32, below: u32) {
        let cfs = &mut self.queues[below as usize];
        cfs.any_pending = false;
        let change = std::mem::take(&mut cfs.pending);
        let [load, runnable, util] = change;
        let mean = match scale_load_down(cfs.load_weight) {
            0 => 0.0,
            weight => cfs.pelt.load * 1024.0 / weight as f64,
        };
        let entity = &mut self.entities[group_entity as usize];
        // `update_tg_cfs_load`: time on the queue is not known of a group whose tasks change, only bounds of it are.
        let queued = if load >= 0.0 { (entity.pelt.load + load).min(1024.0) } else { entity.pelt.load.min(mean) };
        let queued = queued.max(cfs.pelt.util.min(1024.0));
        let load = (queued - entity.pelt.load) * scale_load_down(u64::from(entity.weight)) as f64 / 1024.0;
        entity.pelt.load = queued;
        let above = &mut self.queues[entity.queue as usize];
        above.pelt.change(load, runnable, util);
        above.tell(change);
    }

    /// Tells the entities above a queue what joined or left it (`propagate_entity_cfs_rq`).
    pub(crate) fn propagate_up(&mut self, now_ns: u64, queue: u32) {
        let mut entity = self.queues[queue as usize].group_entity;
        while entity != NONE {
            self.update_load_avg(now_ns, entity);
            entity = self.parent(entity);
        }
    }

    /// The rest of `dequeue_entities`, after something left the queue of this group's entity: the entity leaves if nothing else is queued
    /// below it, and so on upwards; those that stay follow what is left.
    #[inline(never)]
    pub(super) fn leave_groups(
        &mut self,
        core: &mut Core<'_>,
        group_entity: u32,
        removal: Removal,
        mut counts: [u32; 3],
    ) {
        let mut entity = group_entity;
        loop {
            counts = self.counts_of_group(entity, counts);
            let below = self.entities[entity as usize].my_queue;
            if self.queues[below as usize].nr_queued > 0 {
                if removal != Removal::Save {
                    // The group keeps the CPU if it is eligible.
                    self.set_next_buddy(entity);
                }
                break;
            }
            // Whatever the task's reason, the group's entity sleeps.
            let removal = if removal == Removal::Throttle { removal } else { Removal::Sleep };
            if !self.dequeue_entity(core, entity, removal) {
                break;
            }
            self.count_out(entity, counts);
            entity = self.parent(entity);
            if entity == NONE {
                return;
            }
        }
        while entity != NONE {
            counts = self.counts_of_group(entity, counts);
            self.update_load_avg(core.now_ns(), entity);
            self.update_group_weight(core, entity);
            let below = self.entities[entity as usize].my_queue;
            P::follow_slices(self, entity, below);
            self.count_out(entity, counts);
            entity = self.parent(entity);
        }
    }

    /// The entity is to run next, and so are the groups it lies in (`set_next_buddy`).
    pub(crate) fn set_next_buddy(&mut self, index: u32) {
        self.set_buddy(index, |cfs| &mut cfs.next, true);
    }

    /// Makes an entity a buddy of its queue, and the groups it lies in those of theirs; with `queued_only` up to the first that is not
    /// queued or whose policy is `SCHED_IDLE`.
    pub(crate) fn set_buddy(&mut self, index: u32, buddy: fn(&mut CfsRq) -> &mut u32, queued_only: bool) {
        let levels = self.timelines.is_none();
        let mut entity = index;
        while entity != NONE {
            let state = &self.entities[entity as usize];
            if queued_only && (!state.on_rq || state.idle_policy) {
                return;
            }
            let queue = self.competes_in(entity);
            *buddy(&mut self.queues[queue as usize]) = entity;
            entity = if levels { self.parent(entity) } else { NONE };
        }
    }

    #[inline(never)]
    pub(super) fn forget_buddy(&mut self, index: u32) {
        let buddies: [fn(&mut CfsRq) -> &mut u32; 3] = [|cfs| &mut cfs.next, |cfs| &mut cfs.last, |cfs| &mut cfs.skip];
        for buddy in buddies {
            let mut entity = index;
            while entity != NONE {
                let queue = self.competes_in(entity);
                let known = buddy(&mut self.queues[queue as usize]);
                if *known != entity {
                    break;
                }
                *known = NONE;
                entity = if self.timelines.is_none() { self.parent(entity) } else { NONE };
            }
        }
    }

    /// `update_cfs_group`: the weight of a group's entity follows the group's load on this CPU. An empty group keeps its weight.
    #[inline]
    pub(crate) fn update_group_weight(&mut self, core: &mut Core<'_>, index: u32) {
        let below = self.entities[index as usize].my_queue;
        if below != NONE && self.queues[below as usize].load_weight > 0 {
            self.follow_group_load(core, below, index);
        }
    }

    fn follow_group_load(&mut self, core: &mut Core<'_>, queue: u32, group_entity: u32) {
        let group = self.group_of_queue(queue);
        self.publish_group_load(core, queue, group);
        let cfs = &self.queues[queue as usize];
        let GroupState { shares, cpus, runnable, .. } = self.groups[group];
        let (mode, online) = (self.parameters.cgroup_mode, self.online_cpus as u32);
        let cpus = cpus.map_or(online, |cpus| cpus.min(online));
        let (divided, most) = mode.divides(shares, (runnable / 1024.0) as u32, cpus);
        let load = scale_load_down(cfs.load_weight).max(cfs.whole_load() as i64);
        let total = (self.groups[group].load_avg - cfs.tg_load_contribution) as i64 + load;
        let divided = divided as f64;
        let weight = if total > 0 && mode != CgroupMode::Up { divided * load as f64 / total as f64 } else { divided };
        // The kernel's may be more than 32 bits hold, 4096 nice-0 tasks, where all of a big group's load is on one CPU (`concur`).
        let least = u64::from(MIN_SHARES);
        let weight = (weight as u64).clamp(least, most.max(least)).min(u64::from(u32::MAX)) as u32;
        if weight != self.entities[group_entity as usize].weight {
            self.reweight_entity(core, group_entity, weight);
        }
    }

    /// `update_tg_load_avg`: at most once per millisecond and CPU, and only for a change of more than 1/64; never of a CPU that is offline.
    pub(super) fn publish_group_load(&mut self, core: &Core<'_>, queue: u32, group: usize) {
        const PUBLISH_INTERVAL_NS: u64 = 1_000_000;
        let now_ns = core.now_ns();
        let cfs = &mut self.queues[queue as usize];
        if now_ns < cfs.tg_load_published_ns + PUBLISH_INTERVAL_NS || !core.active().contains(CpuId(cfs.cpu)) {
            return;
        }
        let change = cfs.whole_load() as f64 - cfs.tg_load_contribution;
        let waits = cfs.pelt.runnable - cfs.tg_runnable_contribution;
        let counts = matches!(self.parameters.cgroup_mode, CgroupMode::Concur | CgroupMode::Tasks)
            && waits.abs() * 64.0 > cfs.tg_runnable_contribution;
        if counts || change.abs() * 64.0 > cfs.tg_load_contribution {
            self.groups[group].load_avg = (self.groups[group].load_avg + change).max(0.0);
            self.groups[group].runnable = (self.groups[group].runnable + waits).max(0.0);
            cfs.tg_runnable_contribution = cfs.pelt.runnable;
            cfs.tg_load_contribution += change;
            cfs.tg_load_published_ns = now_ns;
        }
    }

    /// `clear_tg_offline_cfs_rqs`: groups have no load on a CPU that goes offline.
    pub(super) fn clear_group_loads(&mut self, core: &Core<'_>, cpu: CpuId) {
        for group in 0..self.groups.len() {
            let cfs = &mut self.queues[(group + 1) * self.rqs.len() + cpu.index()];
            let load = std::mem::take(&mut cfs.tg_load_contribution);
            let runnable = std::mem::take(&mut cfs.tg_runnable_contribution);
            cfs.tg_load_published_ns = core.now_ns();
            let of = &mut self.groups[group];
            (of.load_avg, of.runnable) = ((of.load_avg - load).max(0.0), (of.runnable - runnable).max(0.0));
        }
    }
}
