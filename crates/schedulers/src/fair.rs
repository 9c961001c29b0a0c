//! The fair class: what EEVDF and CFS have in common.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c`, as specified in `docs/spec/linux-fair.md`. Per-CPU picking is a [`Policy`];
//! queueing ([`queue`]), load tracking ([`pelt`]), CPU selection (`select`) and load balancing ([`balance`]) are
//! shared, with the few differences of older kernels as [`FairParameters`].
//!
//! Differs from the kernel: the stopper is a momentary interruption.

mod asymmetric;
pub mod balance;
mod bandwidth;
pub mod cache_aware;
pub mod cfs;
mod cgroup_mode;
#[cfg(test)]
mod checklist_tests;
mod clamps;
mod class;
pub(crate) mod decisions;
pub mod eevdf;
mod energy;
mod flat;
pub(crate) mod gathering;
mod groups;
mod hotplug;
mod idle;
mod list;
pub mod numa;
mod packing;
pub mod pelt;
mod pressure;
pub mod queue;
pub(crate) mod rows;
mod select;
pub mod state;
mod task_work;
pub mod topology_aware;
pub mod weights;

use warmcore_kernel::{Boot, Core, Governor, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use self::balance::BalanceState;
use self::bandwidth::Bandwidth;
pub use self::cgroup_mode::CgroupMode;
use self::energy::{EnergyAware, has_unequal_cpus};
use self::gathering::{Gathering, NoGathering};

use self::numa::{NumaBalancing, NumaTunables};
use self::pelt::Pelt;
use self::pressure::Pressure;
use self::queue::Removal;
use self::state::{CfsRq, Entity, NONE, Rq, Speed};
use self::task_work::TaskWork;
use self::weights::scale_load_down;
use crate::domains::{DomainParameters, Domains};

/// Parameters shared by the policies of the fair class; a policy's tunables are turned into these.
#[derive(Clone, Debug)]
pub struct FairParameters {
    /// `migration_cost_ns`: window in which a task counts as cache-hot; also scales new-idle balancing.
    pub migration_cost_ns: u64,
    /// `nr_migrate`: tasks examined per balance pass.
    pub nr_migrate: u32,
    /// What its scheduling domains are built with.
    pub domains: DomainParameters,
    /// Balance as Linux 4.9 to 5.4 did, by load alone (`docs/spec/linux-fair.md` section 1.16).
    pub load_only_balance: bool,
    /// Choose CPUs and average loads as Linux 4.9 did.
    pub rules_of_4_9: bool,
    /// `NI_RANDOM`: skip new-idle passes at random when they rarely succeed.
    pub newidle_random: bool,
    /// `NI_RATE`: let new-idle passes through at a minimum rate.
    pub newidle_rate: bool,
    /// Scan limit of idle CPU searches by utilisation (`SIS_UTIL`); otherwise the whole LLC is searched.
    pub sis_util: bool,
    /// Place wakeups by energy where the machine lets (`sched_energy_aware`).
    pub energy_aware: bool,
    /// Rules of 7.3: one run queue for the tasks of all groups of a CPU (`flat`), and what short requests may.
    pub flat: bool,
    /// What a group's weight stands for.
    pub cgroup_mode: CgroupMode,
}

/// What EEVDF and CFS do differently. Functions get the whole class, as they work on its queues.
pub trait Policy: Sized {
    /// Name of the scheduler.
    const NAME: &'static str;
    /// Whether queues keep the weighted average of virtual runtimes.
    const WEIGHTED_AVERAGE: bool;
    /// Names of what it ranks entities by, with unit as suffix.
    const SCORES: &'static [&'static str];

    /// Parameters of the shared parts.
    fn fair_parameters(&self) -> FairParameters;
    /// A tunable gets another value in mid-run. Whether it is one of the policy's that can.
    fn set_tunable(&mut self, _name: &str, _value: u64) -> bool {
        false
    }
    /// Times that nobody set follow the number of CPUs, a dying one included (`update_sysctl`).
    fn cpus_changed(&mut self, cpus: usize);
    /// Whether each application is a group of its own.
    fn autogroup(&self) -> bool;
    /// Order of an entity in its queue.
    fn key(entity: &Entity) -> i64;
    /// The slice request of a task changed; 0 is the default.
    fn set_slice<G: Gathering>(fair: &mut Fair<Self, G>, index: u32, slice_ns: u64);
    /// A group's entity is to have the request that its queue asks for.
    fn follow_slices<G: Gathering>(fair: &mut Fair<Self, G>, group_entity: u32, queue: u32);
    /// The running entity of a queue was charged (`update_curr`).
    fn charged<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, queue: u32, curr: u32);
    /// Places an entity that joins a queue (`place_entity`).
    fn place<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, queue: u32, index: u32, initial: bool);
    /// Weighted average of a queue's virtual runtimes, where policies have one.
    fn average<G: Gathering>(_fair: &mut Fair<Self, G>, _queue: u32) -> i64 {
        0
    }
    /// Puts an entity whose share of one run queue changed where it has the same lag against that average.
    fn rejoin<G: Gathering>(_fair: &mut Fair<Self, G>, _index: u32, _average: i64) {}
    /// Places an entity whose weight changed.
    fn replace<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, queue: u32, index: u32);
    /// Whether an entity that sleeps stays queued.
    fn delays_dequeue<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32) -> bool;
    /// Remembers what an entity that leaves is owed, while it still counts in its queue.
    fn save_lag<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32);
    /// An entity has left its tree but still has its state.
    fn left<G: Gathering>(fair: &mut Fair<Self, G>, index: u32, removal: Removal);
    /// A sleeping entity changes from one queue to another.
    fn moved_asleep<G: Gathering>(fair: &mut Fair<Self, G>, index: u32, from: u32, to: u32);
    /// Weight by which the virtual time of an entity with this weight passes (`__calc_delta`).
    #[inline]
    fn pace(&self, weight: u32) -> u32 {
        weight
    }
    /// An entity is about to get another weight.
    fn rescale<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32, weight: u32, queued: bool);
    /// It has it, and its place.
    fn rescaled<G: Gathering>(fair: &mut Fair<Self, G>, index: u32);
    /// An entity that sleeps in its queue is wanted again.
    fn requeue<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, queue: u32, index: u32);
    /// The entity to run next; may be the running one, or one that is delayed.
    fn pick<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32) -> u32;
    /// Whether the balancer may take the entity although its own queue has a claim on it (`entity_eligible`).
    fn is_eligible<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32) -> bool;
    /// An entity begins to run.
    fn switched_in<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32);
    /// A task begins to run.
    fn task_switched_in<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, cpu: CpuId, index: u32);
    /// A task was queued on the CPU.
    fn enqueued<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, cpu: CpuId);
    /// Ordinary tick, for each level, after charging.
    fn tick<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, cpu: CpuId, queue: u32, index: u32);
    /// Whether `wakee`, just queued beside the running `curr`, preempts it.
    fn wakeup_preempt<G: Gathering>(
        fair: &mut Fair<Self, G>,
        core: &mut Core<'_>,
        cpu: CpuId,
        curr: u32,
        wakee: u32,
        flags: WakeFlags,
    );
    /// Whether a wakeup may preempt a `SCHED_IDLE` task.
    fn preempts_idle_policy(&self) -> bool {
        true
    }
    /// A task that never preempts, because of its policy, has just been queued beside the running `curr`.
    fn spared<G: Gathering>(_fair: &mut Fair<Self, G>, _core: &mut Core<'_>, _curr: u32) {}
    /// `sched_yield` of the running entity.
    fn yield_entity<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, queue: u32, index: u32);
    /// What a queued entity is ranked by in its queue, in the order of [`Policy::SCORES`].
    fn score<G: Gathering>(fair: &Fair<Self, G>, index: u32, score: usize) -> i64;
    /// How one fair task preempts another: lazily or fully.
    fn resched(&self, core: &mut Core<'_>, cpu: CpuId);
}

/// A task group.
#[derive(Clone, Debug)]
pub(crate) struct GroupState {
    /// `cpu.shares`.
    pub shares: u32,
    /// How many CPUs its cpuset has, if it has one.
    pub cpus: Option<u32>,
    /// Σ of the group's load over CPUs, as published (`tg->load_avg`).
    pub load_avg: f64,
    /// Σ of its queues' runnable averages, as published: 1024 for a task that always runs or waits (`tg->runnable_avg`).
    pub runnable: f64,
}

/// Parts of the fair class beside its policy.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Name of the scheduler, if it is not the policy's.
    pub name: Option<&'static str>,
    /// NUMA balancing.
    pub numa: NumaTunables,
}

/// The fair class with a policy for its queues and a way to keep threads together.
pub struct Fair<P, G = NoGathering> {
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
    /// Task groups, then one per application if autogroup is on and there are several; all from the start of the run.
    pub(crate) groups: Vec<GroupState>,
    /// The groups, each before the one in which it lies.
    groups_inner_first: Vec<u32>,
    /// Their quotas, if one has any.
    bandwidth: Option<Box<Bandwidth>>,
    seed: u64,
    /// The first CPU's timeline among the queues, if tasks of all groups compete in one ([`flat`]).
    timelines: Option<u32>,
    /// Index of the first application's group; `None` without autogroup.
    autogroup_base: Option<u32>,
    pub(crate) domains: Domains,
    pub(crate) balance: BalanceState,
    /// Some CPU has more than one task (`rd->overloaded`).
    pub(crate) overloaded: bool,
    /// CPUs a wakeup may use: idle, nothing queued, no wakeup on its way (`available_idle_cpu`).
    pub(crate) idle: Vec<bool>,
    /// By LLC: how many of its CPUs are so.
    pub(crate) llc_idle_cpus: Vec<u32>,
    /// By CPU: 1 if it counts there, 0 if it is isolated; the same of its core.
    idle_counts: Vec<[u32; 2]>,
    /// By CPU: its core.
    core_of: Vec<u32>,
    /// By core: how many of its threads are not idle.
    busy_threads: Vec<u32>,
    /// By LLC: how many of its cores have only idle threads.
    pub(crate) llc_idle_cores: Vec<u32>,
    /// CPUs that are online.
    pub(crate) online_cpus: u64,
    /// Task that the last pick on a CPU came to, or [`NONE`]: what `put_prev` leaves running above both. Forgotten by `set_next`.
    picked: Vec<u32>,
    /// By CPU what its time counts as in load tracking.
    speeds: Vec<Speed>,
    /// CPUs have unequal capacities, which decisions heed (`sched_asym_cpucap_active`).
    asymmetric: bool,
    /// Tasks are packed onto CPUs of high priority.
    packing: bool,
    /// CPUs have different capacities and frequencies of known power: averages follow them closely enough to place by energy.
    by_energy_model: bool,
    /// Placement by energy, where the kernel has it.
    pub(crate) energy: Option<Box<EnergyAware>>,
    /// What the classes above take, where there are tasks of them.
    pressure: Option<Box<Pressure>>,
    /// What keeps threads together.
    pub(crate) gathering: G,
    /// NUMA balancing, where it is on and there are nodes to choose from; gone from the start where the kernel knows no pages.
    pub(crate) numa: Option<Box<NumaBalancing>>,
    /// What tasks have to do when they return to user mode.
    task_work: TaskWork,
}

/// The scheduling domains of a policy's class in a kernel.
pub(crate) fn domains_of<P: Policy>(policy: &P, boot: &Boot<'_>) -> Domains {
    let mut parameters = policy.fair_parameters().domains;
    parameters.clusters &= boot.kernel.sched_cluster;
    Domains::build_of(boot.machine, &boot.machine.all_cpus().difference(&boot.isolated()), &parameters)
}

impl<P: Policy> Fair<P> {
    /// The class in a kernel, without further features.
    pub fn new(policy: P, boot: &Boot<'_>) -> Self {
        let domains = domains_of(&policy, boot);
        Self::with_features(policy, NoGathering, domains, boot, &Features::default())
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// The class in a kernel, on domains that were built with the policy's parameters.
    pub(crate) fn with_features(
        policy: P,
        gathering: G,
        domains: Domains,
        boot: &Boot<'_>,
        features: &Features,
    ) -> Self {
        let machine = boot.machine;
        let cpus = machine.cpu_count();
        let parameters = policy.fair_parameters();
        let llc_idle_cpus = (0..domains.llc_count()).map(|llc| domains.llc_cpus(llc as u32).len() as u32).collect();
        let core_of: Vec<u32> = machine.cpus().map(|cpu| machine.core_of(cpu).0).collect();
        let cores_of_llc = |llc: usize| {
            let mut cores: Vec<u32> = domains.llc_cpus(llc as u32).iter().map(|&cpu| core_of[cpu as usize]).collect();
            cores.sort_unstable();
            cores.dedup();
            cores.len() as u32
        };
        let llc_idle_cores = (0..domains.llc_count()).map(cores_of_llc).collect();
        let isolated = boot.isolated();
        let balanced = machine.all_cpus().difference(&isolated);
        let counts = |cpu| {
            let core = machine.cpus_of_core(machine.core_of(cpu));
            [u32::from(balanced.contains(cpu)), u32::from(core.intersects(&balanced))]
        };
        let idle_counts = machine.cpus().map(counts).collect();
        let hz = u64::from(boot.kernel.hz);
        let wanted = parameters.energy_aware;
        let energy = EnergyAware::new(wanted, machine, &balanced, &boot.kernel, &domains);
        let asymmetric = domains.is_asymmetric() && !parameters.load_only_balance;
        let speed = |cpu| {
            // Where frequencies are not simulated a CPU's speed is its capacity (`arch_scale_cpu_capacity`).
            let speed = if asymmetric { f64::from(domains.capacity_of(cpu)) } else { 1024.0 };
            Speed { running: speed, runnable: speed }
        };
        let speeds = machine.cpus().map(speed).collect();
        let speeds_count = asymmetric || boot.kernel.governor != Governor::Fixed;
        let mut fair = Self {
            name: features.name.unwrap_or(P::NAME),
            by_energy_model: has_unequal_cpus(machine, &boot.kernel),
            asymmetric,
            packing: domains.packs() && !parameters.load_only_balance,
            energy,
            pressure: Pressure::new(boot, domains.capacities(), domains.group_count(), speeds_count),
            gathering,
            numa: NumaBalancing::new(&features.numa, machine, hz, parameters.rules_of_4_9).map(Box::new),
            task_work: TaskWork::default(),
            parameters,
            policy,
            rqs: vec![Rq::default(); cpus],
            queues: (0..cpus).map(|index| new_queue(index, cpus)).collect(),
            entities: Vec::new(),
            task_base: 0,
            groups: Vec::new(),
            groups_inner_first: Vec::new(),
            bandwidth: None,
            seed: boot.seed,
            timelines: None,
            autogroup_base: None,
            domains,
            balance: BalanceState::new(boot.seed, cpus),
            overloaded: false,
            idle: vec![true; cpus],
            llc_idle_cpus,
            idle_counts,
            core_of,
            busy_threads: vec![0; machine.core_count()],
            llc_idle_cores,
            online_cpus: cpus as u64,
            picked: vec![NONE; cpus],
            speeds,
        };
        fair.begin_balancing(hz);
        fair
    }

    /// Queue of a task on a CPU.
    fn queue_for(&self, core: &Core<'_>, task: TaskId, cpu: CpuId) -> u32 {
        let state = core.task(task);
        // Threads of the kernel are in no session, and stay in the root group (`autogroup_task_group`).
        let autogroup = self.autogroup_base.filter(|_| !state.is_kernel_thread());
        let group = state.group().or_else(|| autogroup.map(|base| base + state.application()));
        let cpus = self.rqs.len() as u32;
        group.map_or(cpu.0, |group| cpus + group * cpus + cpu.0)
    }

    /// Load of a CPU (`cpu_load`), as last brought up to date.
    #[inline]
    pub(crate) fn cpu_load(&self, cpu: CpuId) -> u64 {
        self.queues[cpu.index()].whole_load()
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

    /// Load of a task as it counts at the root of its CPU, in whole numbers (`task_h_load`).
    pub(crate) fn task_h_load(&self, task: TaskId) -> u64 {
        self.part_of_root(self.task_entity(task))
    }

    /// What of the root's load is an entity's (`update_cfs_rq_h_load`).
    fn part_of_root(&self, index: u32) -> u64 {
        let queue = &self.queues[self.entities[index as usize].queue as usize];
        let queue_load = queue.whole_load();
        let of_root = if queue.group_entity == NONE { queue_load } else { self.part_of_root(queue.group_entity) };
        self.whole_load(index) * of_root / (queue_load + 1)
    }

    /// An entity's load as the kernel's integers have it: with updates at ticks of 250 Hz the sum of an entity that is always on its queue stays a
    /// few units below the largest one, which is some 47 000, and the quotient is rounded down (`___update_load_sum`,
    /// `___update_load_avg`). Updates each millisecond reach it half of the time; when a kernel updates is not followed so closely here.
    fn whole_load(&self, index: u32) -> u64 {
        const KEPT: f64 = 1.0 - 1.0 / 2048.0;
        (self.contribution(index)[0] * KEPT) as u64
    }

    /// `task_util_est`.
    pub(crate) fn task_util_est(&self, task: TaskId) -> u64 {
        let entity = &self.entities[self.task_entity(task) as usize];
        (entity.pelt.util as u64).max(u64::from(entity.util_est))
    }

    /// `entity_eligible` on the entity's own queue.
    pub(crate) fn entity_eligible(&mut self, index: u32) -> bool {
        P::is_eligible(self, self.competes_in(index), index)
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
                self.update_queue_avg(core.now_ns(), old);
                self.detach_load(index);
                self.propagate_up(core.now_ns(), old);
                self.entities[index as usize].detached = true;
            }
        }
        let entity = &mut self.entities[index as usize];
        entity.queue = queue;
        entity.exec_start_ns = 0;
        let [from, to] = [old, queue].map(|queue| CpuId(self.queues[queue as usize].cpu));
        self.numa_migrated(core, self.entity_task(index), from, to);
    }

    /// `init_entity_runnable_average` and `post_init_entity_util_avg`.
    fn init_averages(&mut self, now_ns: u64, index: u32) {
        let queue = self.entities[index as usize].queue;
        self.update_queue_avg(now_ns, queue);
        let capacity = if self.asymmetric || self.by_energy_model {
            f64::from(self.whole_capacity(CpuId(self.queues[queue as usize].cpu)))
        } else {
            1024.0
        };
        let of_queue = &self.queues[queue as usize].pelt;
        let entity = &mut self.entities[index as usize];
        let room = (capacity - of_queue.util) / 2.0;
        let util = if room <= 0.0 {
            0.0
        } else if of_queue.util < 1.0 {
            room
        } else {
            let weight = scale_load_down(u64::from(entity.weight)) as f64;
            (of_queue.util * weight / (of_queue.load + 1.0)).min(room)
        };
        entity.pelt = Pelt { last_update_ns: now_ns, load: 1024.0, runnable: util, util };
    }

    #[cold]
    fn fail_to_pick(&self, core: &mut Core<'_>, queue: u32) {
        let queued = self.queues[queue as usize].nr_queued;
        core.fail(format!("{}: nothing to pick among {queued} entities", self.name));
    }

    /// The next task, down the hierarchy; delayed entities that come up leave (`pick_task_fair`).
    fn pick_task(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> u32 {
        if let Some(timelines) = self.timelines {
            return self.pick_flat(core, cpu, timelines, prev);
        }
        'again: loop {
            let mut queue = cpu.0;
            let mut throttled = false;
            loop {
                if self.queues[queue as usize].nr_queued == 0 {
                    return NONE;
                }
                self.update_curr(core, queue);
                if self.bandwidth.is_some() {
                    throttled |= self.check_runtime(core, queue);
                }
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
                    self.picked[cpu.index()] = picked;
                    if throttled {
                        let task = self.entity_task(picked);
                        self.ask_to_leave(core, cpu, task, prev == Some(task));
                    }
                    return picked;
                }
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
        share: weight,
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
