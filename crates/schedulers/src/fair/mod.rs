//! The fair class: what EEVDF and CFS have in common.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c`, as specified in `linux-fair.md`. Per-CPU picking is a [`Policy`]; queueing
//! ([`queue`]), load tracking ([`pelt`]), CPU selection (`select`) and load balancing ([`balance`]) are shared, with
//! the few differences of older kernels as [`FairParameters`].
//!
//! Differs from the kernel: tasks of one application or task group form at most one level of groups; group load
//! reaches the root by its share at the moment of attaching; no bandwidth control, no asymmetric capacity in
//! decisions, no real-time or deadline tasks (the stopper is a momentary interruption).

pub mod balance;
pub mod cache_aware;
pub mod cfs;
#[cfg(test)]
mod checklist_tests;
pub mod domains;
pub mod eevdf;
pub mod numa;
pub mod pelt;
pub mod queue;
mod select;
pub mod state;
mod task_work;
pub mod topology_aware;
pub mod weights;

use warmcore_kernel::{Core, Dequeue, Enqueue, KernelParameters, Scheduler, Setup, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use self::balance::BalanceState;
use self::cache_aware::{CacheAware, CacheAwareTunables};
use self::domains::Domains;
use self::numa::decisions::FAIR_DECISIONS;
use self::numa::{NumaBalancing, NumaTunables, STOPPER_MOVE};
use self::pelt::Pelt;
use self::queue::Removal;
use self::state::{CfsRq, Entity, NONE, Rq};
use self::task_work::TaskWork;
use self::topology_aware::TopologyAwareTunables;
use self::weights::{NICE_0_WEIGHT, weight_of};

/// Parameters shared by the policies of the fair class; a policy's tunables are turned into these.
#[derive(Clone, Debug)]
pub struct FairParameters {
    /// `migration_cost_ns`: window in which a task counts as cache-hot; also scales new-idle balancing.
    pub migration_cost_ns: u64,
    /// `nr_migrate`: tasks examined per balance pass.
    pub nr_migrate: u32,
    /// `imbalance_pct` of ordinary domains (117; 125 before 5.10).
    pub imbalance_pct: u32,
    /// `imbalance_pct` of SMT domains (110).
    pub imbalance_pct_smt: u32,
    /// `busy_factor` (16; 32 before 5.10).
    pub busy_factor: u32,
    /// Balance as Linux 4.9 to 5.4 did, by load alone (`linux-fair.md` 1.16).
    pub load_only_balance: bool,
    /// `NI_RANDOM`: skip new-idle passes at random when they rarely succeed.
    pub newidle_random: bool,
    /// `NI_RATE`: let new-idle passes through at a minimum rate.
    pub newidle_rate: bool,
    /// Scan limit of idle CPU searches by utilisation (`SIS_UTIL`); otherwise the whole LLC is searched.
    pub sis_util: bool,
}

/// What EEVDF and CFS do differently. Functions get the whole class, as they work on its queues.
pub trait Policy: Sized {
    /// Name of the scheduler.
    const NAME: &'static str;
    /// Whether queues keep the weighted average of virtual runtimes.
    const WEIGHTED_AVERAGE: bool;

    /// Parameters of the shared parts.
    fn fair_parameters(&self) -> FairParameters;
    /// Parameters of the kernel.
    fn kernel_parameters(&self) -> KernelParameters;
    /// Whether each application is a group of its own.
    fn autogroup(&self) -> bool;
    /// Order of an entity in its queue.
    fn key(entity: &Entity) -> i64;
    /// The slice request of a task changed; 0 is the default.
    fn set_slice(fair: &mut Fair<Self>, index: u32, slice_ns: u64);
    /// The running entity of a queue was charged (`update_curr`).
    fn charged(fair: &mut Fair<Self>, core: &mut Core<'_>, queue: u32, curr: u32);
    /// Places an entity that joins a queue (`place_entity`).
    fn place(fair: &mut Fair<Self>, core: &mut Core<'_>, queue: u32, index: u32, initial: bool);
    /// Places an entity whose weight changed.
    fn replace(fair: &mut Fair<Self>, core: &mut Core<'_>, queue: u32, index: u32);
    /// Whether an entity that sleeps stays queued.
    fn delays_dequeue(fair: &mut Fair<Self>, queue: u32, index: u32) -> bool;
    /// Remembers what an entity that leaves is owed, while it still counts in its queue.
    fn save_lag(fair: &mut Fair<Self>, queue: u32, index: u32);
    /// An entity has left its tree but still has its state.
    fn left(fair: &mut Fair<Self>, index: u32, removal: Removal);
    /// A sleeping entity changes from one queue to another.
    fn moved_asleep(fair: &mut Fair<Self>, index: u32, from: u32, to: u32);
    /// An entity is about to get another weight.
    fn rescale(fair: &mut Fair<Self>, queue: u32, index: u32, weight: u32, queued: bool);
    /// It has it, and its place.
    fn rescaled(fair: &mut Fair<Self>, index: u32);
    /// An entity that sleeps in its queue is wanted again.
    fn requeue(fair: &mut Fair<Self>, core: &mut Core<'_>, queue: u32, index: u32);
    /// The entity to run next; may be the running one, or one that is delayed.
    fn pick(fair: &mut Fair<Self>, queue: u32) -> u32;
    /// Whether the balancer may take the entity although its own queue has a claim on it (`entity_eligible`).
    fn is_eligible(fair: &mut Fair<Self>, queue: u32, index: u32) -> bool;
    /// An entity begins to run.
    fn switched_in(fair: &mut Fair<Self>, queue: u32, index: u32);
    /// A task begins to run.
    fn task_switched_in(fair: &mut Fair<Self>, core: &mut Core<'_>, cpu: CpuId, index: u32);
    /// A task was queued on the CPU.
    fn enqueued(fair: &mut Fair<Self>, core: &mut Core<'_>, cpu: CpuId);
    /// Ordinary tick, for each level, after charging.
    fn tick(fair: &mut Fair<Self>, core: &mut Core<'_>, cpu: CpuId, queue: u32, index: u32);
    /// Whether `wakee`, just queued beside the running `curr`, preempts it.
    fn wakeup_preempt(fair: &mut Fair<Self>, core: &mut Core<'_>, cpu: CpuId, curr: u32, wakee: u32, flags: WakeFlags);
    /// `sched_yield` of the running entity.
    fn yield_entity(fair: &mut Fair<Self>, core: &mut Core<'_>, queue: u32, index: u32);
    /// How one fair task preempts another: lazily or fully.
    fn resched(&self, core: &mut Core<'_>, cpu: CpuId);
}

/// A task group.
#[derive(Clone, Debug)]
pub(crate) struct GroupState {
    /// `cpu.shares`.
    pub shares: u32,
    /// Σ of the group's load over CPUs, as published (`tg->load_avg`).
    pub load_avg: f64,
}

/// Parts of the fair class beside its policy.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Name of the scheduler, if it is not the policy's.
    pub name: Option<&'static str>,
    /// Cache-aware scheduling.
    pub cache_aware: Option<CacheAwareTunables>,
    /// Its extension to several LLCs.
    pub topology_aware: Option<TopologyAwareTunables>,
    /// NUMA balancing.
    pub numa: NumaTunables,
}

/// The fair class with a policy for its queues.
pub struct Fair<P> {
    name: &'static str,
    pub(crate) policy: P,
    pub(crate) parameters: FairParameters,
    pub(crate) rqs: Vec<Rq>,
    /// Root queues by CPU, then group queues; see [`state`].
    pub(crate) queues: Vec<CfsRq>,
    /// Group entities, then tasks.
    pub(crate) entities: Vec<Entity>,
    /// Index of task 0 among the entities: the number of group entities.
    pub(crate) task_base: u32,
    /// Task groups of the workload, then one per application if autogroup is on and there are several.
    pub(crate) groups: Vec<GroupState>,
    /// Index of the first application's group; `None` without autogroup.
    autogroup_base: Option<u32>,
    pub(crate) domains: Domains,
    pub(crate) balance: BalanceState,
    /// Some CPU has more than one task (`rd->overloaded`).
    pub(crate) overloaded: bool,
    /// CPUs a wakeup may use: idle, nothing queued, no wakeup on its way (`available_idle_cpu`).
    pub(crate) idle: Vec<bool>,
    /// Group entity that the last pick on a CPU went through, or [`NONE`]; consumed by `put_prev` and `set_next`.
    picked_group: Vec<u32>,
    /// Cache-aware scheduling, where it is on and there are LLCs to choose from.
    pub(crate) cache_aware: Option<Box<CacheAware>>,
    /// NUMA balancing, where it is on, there are nodes to choose from, and the workload says what memory it uses.
    pub(crate) numa: Option<Box<NumaBalancing>>,
    /// What tasks have to do when they return to user mode.
    task_work: TaskWork,
}

impl<P: Policy> Fair<P> {
    /// The class on a machine, for a workload, without further features.
    pub fn new(policy: P, setup: &Setup<'_>) -> Self {
        Self::with_features(policy, setup, &Features::default())
    }

    /// The class on a machine, for a workload.
    pub fn with_features(policy: P, setup: &Setup<'_>, features: &Features) -> Self {
        let machine = setup.machine();
        let workload = setup.workload();
        let cpus = machine.cpu_count();
        let parameters = policy.fair_parameters();
        let mut groups: Vec<GroupState> =
            workload.groups.iter().map(|group| GroupState { shares: group.shares, load_avg: 0.0 }).collect();
        let autogroup_base = (policy.autogroup() && workload.applications.len() > 1).then_some(groups.len() as u32);
        if autogroup_base.is_some() {
            groups.extend(workload.applications.iter().map(|_| GroupState { shares: NICE_0_WEIGHT, load_avg: 0.0 }));
        }
        let group_entities = groups.len() * cpus;
        let queues = (0..cpus + group_entities).map(|index| new_queue(index, cpus)).collect();
        let entities = (0..group_entities)
            .map(|index| {
                let mut entity = new_entity(groups[index / cpus].shares.max(1), (index % cpus) as u32);
                entity.my_queue = (cpus + index) as u32;
                entity
            })
            .collect();
        let domains = Domains::build(machine, &parameters);
        let hz = u64::from(policy.kernel_parameters().hz);
        let cache_aware = features
            .cache_aware
            .as_ref()
            .and_then(|tunables| CacheAware::new(tunables.clone(), setup, &domains, hz))
            .map(|mut cache_aware| {
                if let Some(tunables) = &features.topology_aware {
                    cache_aware.extend(tunables.clone(), machine, &domains);
                }
                Box::new(cache_aware)
            });
        Self {
            name: features.name.unwrap_or(P::NAME),
            cache_aware,
            numa: NumaBalancing::new(&features.numa, setup, hz).map(Box::new),
            task_work: TaskWork::default(),
            parameters,
            policy,
            rqs: (0..cpus).map(|_| Rq::default()).collect(),
            queues,
            entities,
            task_base: group_entities as u32,
            groups,
            autogroup_base,
            domains,
            balance: BalanceState::new(setup.seed, cpus),
            overloaded: false,
            idle: vec![true; cpus],
            picked_group: vec![NONE; cpus],
        }
    }

    /// Group that a group queue belongs to.
    pub(crate) fn group_of_queue(&self, queue: u32) -> usize {
        queue as usize / self.rqs.len() - 1
    }

    /// Queue of a task on a CPU.
    fn queue_for(&self, core: &Core<'_>, task: TaskId, cpu: CpuId) -> u32 {
        let own = core.task(task).group();
        let group = own.or_else(|| self.autogroup_base.map(|base| base + core.task(task).application()));
        let cpus = self.rqs.len() as u32;
        group.map_or(cpu.0, |group| cpus + group * cpus + cpu.0)
    }

    /// Load of a CPU (`cpu_load`), as last brought up to date.
    #[inline]
    pub(crate) fn cpu_load(&self, cpu: CpuId) -> u64 {
        self.queues[cpu.index()].pelt.load as u64
    }

    /// `cpu_runnable`.
    #[inline]
    pub(crate) fn cpu_runnable(&self, cpu: CpuId) -> u64 {
        self.queues[cpu.index()].pelt.runnable as u64
    }

    /// `cpu_util`.
    #[inline]
    pub(crate) fn cpu_util(&self, cpu: CpuId) -> u64 {
        cpu_util(&self.queues[cpu.index()], &self.rqs[cpu.index()])
    }

    /// `cpu_util_cfs_boost`: contention counts as utilisation.
    #[inline]
    pub(crate) fn cpu_util_boost(&self, cpu: CpuId) -> u64 {
        self.cpu_util(cpu).max(self.cpu_runnable(cpu)).min(1024)
    }

    /// Load of a task as it counts at the root of its CPU (`task_h_load`).
    pub(crate) fn task_h_load(&self, task: TaskId) -> u64 {
        let index = self.task_entity(task);
        let load = self.contribution(index)[0];
        let queue = self.entities[index as usize].queue;
        let group_entity = self.queues[queue as usize].group_entity;
        if group_entity == NONE {
            return load as u64;
        }
        (load * self.contribution(group_entity)[0] / (self.queues[queue as usize].pelt.load + 1.0)) as u64
    }

    /// `task_util_est`.
    pub(crate) fn task_util_est(&self, task: TaskId) -> u64 {
        let entity = &self.entities[self.task_entity(task) as usize];
        (entity.pelt.util as u64).max(u64::from(entity.util_est))
    }

    /// `entity_eligible` on the entity's own queue.
    pub(crate) fn entity_eligible(&mut self, index: u32) -> bool {
        let queue = self.entities[index as usize].queue;
        P::is_eligible(self, queue, index)
    }

    /// Brings the averages of a CPU's queues to now (`sched_balance_update_blocked_averages`).
    pub(crate) fn update_blocked_averages(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let now_ns = core.now_ns();
        let cpus = self.rqs.len();
        for group in 0..self.groups.len() {
            let queue = (cpus + group * cpus + cpu.index()) as u32;
            if self.queues[queue as usize].pelt.load > 0.0 || self.queues[queue as usize].nr_queued > 0 {
                self.update_queue_avg(now_ns, queue);
                self.update_group_weight(core, queue);
            }
        }
        self.update_queue_avg(now_ns, cpu.0);
    }

    /// Whether the CPU runs nothing, has nothing queued, and no wakeup is on its way (`idle_cpu`).
    #[inline]
    pub(crate) fn is_idle_cpu(&self, _core: &Core<'_>, cpu: CpuId) -> bool {
        self.idle[cpu.index()]
    }

    /// Whether the CPU has nothing but `SCHED_IDLE` tasks (`sched_idle_cpu`).
    #[inline]
    pub(crate) fn sched_idle_cpu(&self, _core: &Core<'_>, cpu: CpuId) -> bool {
        let cfs = &self.queues[cpu.index()];
        cfs.h_nr_idle > 0 && cfs.h_nr_idle == self.rqs[cpu.index()].nr_running
    }

    fn refresh_idle(&mut self, core: &Core<'_>, cpu: CpuId) {
        self.idle[cpu.index()] =
            core.curr_is_idle(cpu) && self.rqs[cpu.index()].nr_running == 0 && !core.ttwu_pending(cpu);
    }

    /// Gives a task the queue of its present CPU, carrying its load over if it came from another
    /// (`migrate_task_rq_fair`).
    #[inline]
    fn move_to_queue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, asleep: bool) {
        let index = self.task_entity(task);
        let queue = self.queue_for(core, task, cpu);
        let old = self.entities[index as usize].queue;
        if old != queue {
            self.change_queue(core, index, queue, asleep);
        }
    }

    #[inline(never)]
    fn change_queue(&mut self, core: &mut Core<'_>, index: u32, queue: u32, asleep: bool) {
        let old = self.entities[index as usize].queue;
        if !self.entities[index as usize].detached {
            if asleep {
                P::moved_asleep(self, index, old, queue);
                self.remove_load(core.now_ns(), index);
            } else {
                let from = self.queues[old as usize].cpu;
                self.update_queue_avg(core.now_ns(), old);
                if from != old {
                    self.update_queue_avg(core.now_ns(), from);
                }
                self.detach_load(index);
                self.entities[index as usize].detached = true;
            }
        }
        let entity = &mut self.entities[index as usize];
        entity.queue = queue;
        entity.exec_start_ns = 0;
        let [from, to] = [old, queue].map(|queue| CpuId(self.queues[queue as usize].cpu));
        self.numa_migrated(self.entity_task(index), from, to);
    }

    /// `init_entity_runnable_average` and `post_init_entity_util_avg`.
    fn init_averages(&mut self, now_ns: u64, cpu: CpuId, index: u32) {
        self.update_queue_avg(now_ns, cpu.0);
        let root = &self.queues[cpu.index()].pelt;
        let entity = &mut self.entities[index as usize];
        let room = (1024.0 - root.util) / 2.0;
        let util = if room <= 0.0 {
            0.0
        } else if root.util < 1.0 {
            room
        } else {
            (root.util * f64::from(entity.weight) / (root.load + 1.0)).min(room)
        };
        entity.pelt = Pelt { last_update_ns: now_ns, load: 1024.0, runnable: util, util };
    }

    /// Entities of one queue that the two tasks' entities compete as (`find_matching_se`).
    fn matching(&self, mut a: u32, mut b: u32) -> (u32, u32) {
        if self.entities[a as usize].queue != self.entities[b as usize].queue {
            for side in [&mut a, &mut b] {
                let parent = self.parent(*side);
                if parent != NONE {
                    *side = parent;
                }
            }
        }
        (a, b)
    }

    #[cold]
    fn fail_to_pick(&self, core: &mut Core<'_>, queue: u32) {
        let queued = self.queues[queue as usize].nr_queued;
        core.fail(format!("{}: nothing to pick among {queued} entities", self.name));
    }

    /// The next task, down the hierarchy; delayed entities that come up leave (`pick_task_fair`).
    fn pick_task(&mut self, core: &mut Core<'_>, cpu: CpuId) -> u32 {
        'again: loop {
            let mut queue = cpu.0;
            let mut group = NONE;
            loop {
                if self.queues[queue as usize].nr_queued == 0 {
                    return NONE;
                }
                self.update_curr(core, queue);
                let picked = P::pick(self, queue);
                if picked == NONE {
                    self.fail_to_pick(core, queue);
                    return NONE;
                }
                if self.entities[picked as usize].delayed {
                    self.retire_delayed(core, cpu, picked);
                    continue 'again;
                }
                let below = self.entities[picked as usize].my_queue;
                if below == NONE {
                    self.picked_group[cpu.index()] = group;
                    return picked;
                }
                group = picked;
                queue = below;
            }
        }
    }
}

/// Utilisation of a CPU from its root queue and its estimates (`cpu_util`).
#[inline]
fn cpu_util(queue: &CfsRq, rq: &Rq) -> u64 {
    (queue.pelt.util as u64).max(u64::from(rq.util_est)).min(1024)
}

fn new_queue(index: usize, cpus: usize) -> CfsRq {
    CfsRq {
        curr: NONE,
        next: NONE,
        last: NONE,
        skip: NONE,
        group_entity: if index < cpus { NONE } else { (index - cpus) as u32 },
        cpu: (index % cpus) as u32,
        ..CfsRq::default()
    }
}

fn new_entity(weight: u32, queue: u32) -> Entity {
    Entity {
        vruntime: 0,
        deadline: 0,
        vlag: 0,
        vprot: 0,
        slice_ns: 0,
        exec_start_ns: 0,
        sum_exec_ns: 0,
        prev_sum_exec_ns: 0,
        weight,
        queue,
        my_queue: NONE,
        list_prev: NONE,
        list_next: NONE,
        on_rq: false,
        delayed: false,
        rel_deadline: false,
        custom_slice: false,
        idle_policy: false,
        normal_policy: true,
        detached: false,
        pelt: Pelt::default(),
        util_est: 0,
        recent_used_cpu: NONE,
        last_wakee: NONE,
        wakee_flips: 0,
        wakee_flip_decay_ns: 0,
    }
}

impl<P: Policy> Scheduler for Fair<P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn decisions(&self) -> &'static [&'static str] {
        &FAIR_DECISIONS
    }

    fn kernel_parameters(&self) -> KernelParameters {
        self.policy.kernel_parameters()
    }

    fn init(&mut self, _core: &mut Core<'_>) {}

    fn task_fork(&mut self, core: &mut Core<'_>, task: TaskId, parent: Option<TaskId>) {
        let state = core.task(task);
        let cpu = state.cpu();
        let mut entity = new_entity(weight_of(state.policy(), state.nice()), self.queue_for(core, task, cpu));
        entity.idle_policy = state.policy() == warmcore_workload::Policy::Idle;
        entity.normal_policy = state.policy() == warmcore_workload::Policy::Normal;
        entity.recent_used_cpu = cpu.0;
        let slice_ns = state.slice_ns();
        let index = self.entities.len() as u32;
        self.entities.push(entity);
        P::set_slice(self, index, slice_ns);
        if let Some(cache_aware) = &mut self.cache_aware {
            let group = cache_aware.grouping.of(core.task(task));
            cache_aware.task_created(group);
        }
        self.numa_task_created(core, task, parent);
    }

    fn task_dead(&mut self, core: &mut Core<'_>, task: TaskId) {
        let index = self.task_entity(task);
        self.remove_load(core.now_ns(), index);
        self.task_work.forget(task);
        self.numa_task_exited(task);
        if let Some(cache_aware) = &mut self.cache_aware {
            cache_aware.task_exited(task);
        }
    }

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        self.select_task_rq(core, task, prev, flags)
    }

    fn holds(&self, task: TaskId) -> bool {
        self.entities[self.task_entity(task) as usize].on_rq
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, reason: Enqueue) {
        let index = self.task_entity(task);
        self.idle[cpu.index()] = false;
        match reason {
            Enqueue::Delayed => {
                self.wake_delayed_task(core, cpu, index);
                return;
            }
            Enqueue::Initial => {
                self.entities[index as usize].queue = self.queue_for(core, task, cpu);
                self.init_averages(core.now_ns(), cpu, index);
                self.entities[index as usize].detached = true;
            }
            Enqueue::Wakeup | Enqueue::Restore => self.move_to_queue(core, cpu, task, reason == Enqueue::Wakeup),
        }
        self.enqueue_task(core, cpu, index, reason == Enqueue::Initial);
    }

    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, reason: Dequeue) {
        let index = self.task_entity(task);
        if reason == Dequeue::Save && self.entities[index as usize].delayed {
            self.retire_delayed(core, cpu, index);
            self.refresh_idle(core, cpu);
            return;
        }
        let removal = match reason {
            Dequeue::Sleep => Removal::Sleep,
            Dequeue::Exit => Removal::Final,
            Dequeue::Save => Removal::Save,
        };
        self.dequeue_task(core, cpu, index, removal);
        if reason == Dequeue::Sleep {
            self.update_util_est(index);
        }
        self.refresh_idle(core, cpu);
    }

    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: WakeFlags) {
        if core.curr_is_idle(cpu) {
            core.resched_full(cpu);
            return;
        }
        if core.need_resched(cpu) == warmcore_kernel::NeedResched::Full {
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
        if curr_idle && !wakee_idle {
            let entity = &mut self.entities[curr as usize];
            entity.vprot = entity.vruntime;
            self.policy.resched(core, cpu);
            return;
        }
        if wakee_idle != curr_idle || !self.entities[index as usize].normal_policy {
            return;
        }
        P::wakeup_preempt(self, core, cpu, curr, wakee, flags);
    }

    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        loop {
            let picked = self.pick_task(core, cpu);
            if picked != NONE {
                let task = self.entity_task(picked);
                if prev == Some(task) {
                    // It goes on running: no `put_prev` or `set_next` follows that would consume this.
                    self.picked_group[cpu.index()] = NONE;
                }
                return Some(task);
            }
            self.picked_group[cpu.index()] = NONE;
            // An idle CPU that finds nothing has looked around before it went idle.
            let was_idle = core.curr_is_idle(cpu) && !core.stopper_ran(cpu);
            if was_idle || !self.sched_balance_newidle(core, cpu) {
                return None;
            }
        }
    }

    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _runnable: bool) {
        let index = self.task_entity(task);
        let parent = self.parent(index);
        self.put_prev_entity(core, index);
        if parent != NONE && parent != self.picked_group[cpu.index()] {
            self.put_prev_entity(core, parent);
        }
        self.rqs[cpu.index()].curr_task = NONE;
        self.settle_numa(core, cpu, task);
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        let index = self.task_entity(task);
        let parent = self.parent(index);
        if parent != NONE && self.queues[cpu.index()].curr != parent {
            self.set_next_entity(core, parent);
        }
        self.set_next_entity(core, index);
        self.picked_group[cpu.index()] = NONE;
        self.rqs[cpu.index()].curr_task = index;
        self.list_move_to_head(cpu, index);
        P::task_switched_in(self, core, cpu, index);
        self.do_task_work(core, task);
    }

    fn enter_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.update_queue_avg(core.now_ns(), cpu.0);
        let rq = &mut self.rqs[cpu.index()];
        rq.idle_entered_ns = core.now_ns();
        if rq.idle_stamp_ns == 0 {
            rq.idle_stamp_ns = core.now_ns().max(1);
        }
        self.refresh_idle(core, cpu);
        self.note_idle_core(core, cpu);
    }

    fn exit_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.idle[cpu.index()] = false;
        let rq = &mut self.rqs[cpu.index()];
        let stamp_ns = std::mem::take(&mut rq.idle_stamp_ns);
        if stamp_ns != 0 {
            // `update_rq_avg_idle`: 1/8 of the difference, capped at twice the cost of balancing.
            // Saturating, as idleness that begins with the run is stamped a nanosecond late.
            let duration = core.now_ns().saturating_sub(stamp_ns) as i64;
            let average = rq.avg_idle_ns as i64;
            rq.avg_idle_ns = ((average + (duration - average) / 8) as u64).min(2 * rq.max_idle_balance_cost_ns);
        }
        self.update_queue_avg(core.now_ns(), cpu.0);
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
                self.update_group_weight(core, queue);
                P::tick(self, core, cpu, queue, index);
                index = self.queues[queue as usize].group_entity;
            }
            self.tick_task_work(core, cpu, task);
        }
        self.sched_balance_trigger(core, cpu, curr.is_none());
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

    fn timer(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u32) {
        if core.curr(cpu) == TaskId(payload) {
            self.do_task_work(core, TaskId(payload));
        }
    }

    fn yield_task(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        if self.rqs[cpu.index()].nr_running == 1 {
            return;
        }
        let index = self.task_entity(task);
        let queue = self.entities[index as usize].queue;
        self.clear_buddies(queue, index);
        self.update_curr(core, queue);
        P::yield_entity(self, core, queue, index);
    }

    fn attributes_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        let index = self.task_entity(task);
        let state = core.task(task);
        let (cpu, weight) = (state.cpu(), weight_of(state.policy(), state.nice()));
        let (slice_ns, policy) = (state.slice_ns(), state.policy());
        // As the kernel does: out of the queue, changed, and back in.
        let queued = self.entities[index as usize].on_rq;
        let runs = self.rqs[cpu.index()].curr_task == index;
        let group_changes = self.queue_for(core, task, cpu) != self.entities[index as usize].queue;
        let policy_changes = self.entities[index as usize].idle_policy != (policy == warmcore_workload::Policy::Idle);
        let slice_changes = self.entities[index as usize].custom_slice || slice_ns != 0;
        let requeue = queued && (group_changes || policy_changes || slice_changes);
        if requeue {
            self.dequeue(core, cpu, task, Dequeue::Save);
            if runs {
                self.put_prev(core, cpu, task, false);
            }
        }
        if weight != self.entities[index as usize].weight {
            self.reweight_entity(core, index, weight);
        }
        let entity = &mut self.entities[index as usize];
        entity.idle_policy = policy == warmcore_workload::Policy::Idle;
        entity.normal_policy = policy == warmcore_workload::Policy::Normal;
        if slice_changes {
            P::set_slice(self, index, slice_ns);
        }
        if let Some(cache_aware) = &mut self.cache_aware
            && !self.entities[index as usize].on_rq
        {
            let group = cache_aware.grouping.of(core.task(task));
            cache_aware.regroup(task, group);
        }
        if requeue {
            self.enqueue(core, cpu, task, Enqueue::Restore);
            if runs {
                self.set_next(core, cpu, task);
            }
        }
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.queues[cpu.index()].h_nr_runnable as usize
    }
}
