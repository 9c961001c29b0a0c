//! Data of the fair class, laid out by dense index.
//!
//! Entities: group entities come first (group-major: `group * cpus + cpu`), tasks after them, so that entity
//! `group_entities + task` is the task's. Queues: the root queue of CPU `c` is `c`; the queue of group `g` on CPU `c`
//! is `cpus + g * cpus + c`. The group entity with index `e` owns queue `cpus + e`.

use super::pelt::Pelt;
use super::weights::scale_load_down;

/// No entity, no queue.
pub const NONE: u32 = u32::MAX;

/// A schedulable entity (`struct sched_entity`): a task, or a group's presence on one CPU.
#[derive(Clone, Debug)]
pub struct Entity {
    /// Virtual runtime in nanoseconds of a nice-0 task.
    pub vruntime: i64,
    /// Virtual deadline.
    pub deadline: i64,
    /// Lag in virtual time, kept while off the queue.
    pub vlag: i64,
    /// Virtual time up to which it is protected from preemption (`vprot`).
    pub vprot: i64,
    /// Request size in nanoseconds.
    pub slice_ns: u64,
    /// Last time it was charged; 0 after a migration, so that it is never cache-hot until it has run.
    pub exec_start_ns: u64,
    /// Total CPU time charged.
    pub sum_exec_ns: u64,
    /// `sum_exec_ns` when it was last switched in.
    pub prev_sum_exec_ns: u64,
    /// Weight, `NICE_0_LOAD` (2^20) at nice 0.
    pub weight: u32,
    /// Weight with which it competes: the same, or on a CPU of one run queue its part of the whole.
    pub share: u32,
    /// Queue it belongs to on its present CPU.
    pub queue: u32,
    /// Queue it owns, if it is a group's; [`NONE`] for a task.
    pub my_queue: u32,
    /// Neighbours in the CPU's `cfs_tasks` list (tasks only).
    pub list_prev: u32,
    /// See `list_prev`.
    pub list_next: u32,
    /// In a queue: waiting, running, or delayed.
    pub on_rq: bool,
    /// Sleeping but still queued (`sched_delayed`).
    pub delayed: bool,
    /// `deadline` is relative: the entity was moved, not asleep.
    pub rel_deadline: bool,
    /// The slice was set by hand.
    pub custom_slice: bool,
    /// `SCHED_IDLE`; of a group `cpu.idle` (`se_is_idle`).
    pub idle_policy: bool,
    /// `SCHED_NORMAL` or `SCHED_EXT`, the policies that preempt on wakeup.
    pub normal_policy: bool,
    /// Migrated while asleep: its averages were left behind as removed and are attached at the next enqueue.
    pub detached: bool,
    /// Load tracking; `load` is 0..=1024 and is multiplied with the weight, nice 0 being 1024.
    pub pelt: Pelt,
    /// Estimated utilisation (`util_est`).
    pub util_est: u32,
    /// CPU used before `cpu` (tasks only).
    pub recent_used_cpu: u32,
    /// Last task woken (`last_wakee`).
    pub last_wakee: u32,
    /// How often the wakee changed.
    pub wakee_flips: u32,
    /// When the flips were last halved.
    pub wakee_flip_decay_ns: u64,
}

/// A node of a queue's tree: what a pick needs, without touching the entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Sort key: virtual deadline under EEVDF, virtual runtime under CFS. Equal keys stay in insertion order.
    pub key: i64,
    /// Virtual runtime.
    pub vruntime: i64,
    /// The entity.
    pub entity: u32,
}

/// A run queue of one level (`struct cfs_rq`).
#[derive(Clone, Debug, Default)]
pub struct CfsRq {
    /// Waiting entities in order of `Node::key`; the running one is not among them.
    pub tree: Vec<Node>,
    /// Running entity, or [`NONE`].
    pub curr: u32,
    /// `next` buddy, or [`NONE`].
    pub next: u32,
    /// `last` buddy (CFS only).
    pub last: u32,
    /// `skip` buddy (CFS only).
    pub skip: u32,
    /// Entities queued here, delayed ones included, the running one too.
    pub nr_queued: u32,
    /// Tasks queued here and in the groups below, delayed ones included (`h_nr_queued`).
    pub h_nr_queued: u32,
    /// The same without delayed ones (`h_nr_runnable`).
    pub h_nr_runnable: u32,
    /// Of [`Self::h_nr_queued`] those of `SCHED_IDLE` or in a group of `cpu.idle` below (`h_nr_idle`).
    pub h_nr_idle: u32,
    /// Reference point near the weighted average of virtual runtimes (`zero_vruntime`; EEVDF only).
    pub zero_vruntime: i64,
    /// Smallest virtual runtime seen, never going back (CFS only).
    pub min_vruntime: i64,
    /// Σ weight × (vruntime − zero_vruntime) over the tree.
    pub sum_weighted_key: i128,
    /// Σ weight over the tree.
    pub sum_weight: i64,
    /// Σ weight of everything queued, the running entity included (`load.weight`).
    pub load_weight: u64,
    /// Queued entities with a custom slice: while 0, every slice is the default.
    pub custom_slices: u32,
    /// Load tracking of the queue. At the root `util` and `runnable` are those of all tasks of the CPU.
    pub pelt: Pelt,
    /// Averages of tasks that left for another CPU while asleep, to be subtracted at the next update: load,
    /// runnable, util.
    pub removed: [f64; 3],
    /// Whether `removed` holds anything.
    pub any_removed: bool,
    /// Contribution to the group's load last published (`tg_load_avg_contrib`).
    pub tg_load_contribution: f64,
    /// When it was last published.
    pub tg_load_published_ns: u64,
    /// Contribution to the group's runnable average.
    pub tg_runnable_contribution: f64,
    /// Averages of who joined less those of who left since the group's entity was last told (`prop_runnable_sum`): load of each as a
    /// share of time in 0..=1024 whatever its weight, runnable, util. Nothing at the root.
    pub pending: [f64; 3],
    /// Whether `pending` holds anything (`propagate`).
    pub any_pending: bool,
    /// Since when its averages stand still, as it is empty and throttled.
    pub frozen_since_ns: Option<u64>,
    /// Entity that stands for this queue in its parent; [`NONE`] at the root.
    pub group_entity: u32,
    /// Groups it lies in: 0 at the root.
    pub depth: u32,
    /// CPU it belongs to.
    pub cpu: u32,
}

/// What a CPU's time counts as in load tracking: 1024, or where frequencies are simulated its speed, 1024 being that of the biggest CPU at its
/// highest frequency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// For a task that runs.
    pub running: f64,
    /// For a task that runs or waits: none where energy decides and the CPU has yet to leave an idle state.
    pub runnable: f64,
}

impl CfsRq {
    /// Its load as the kernel's integers have it (`cfs_rq_load_avg`): the sum has the weight in it and loses next to nothing by rounding, so
    /// that a load which has come close is whole. With a tick each 4 ms and nothing else it would be one less.
    #[inline]
    pub(super) fn whole_load(&self) -> u64 {
        (self.pelt.load + 1.0 / 1024.0) as u64
    }

    /// Notes what joined or left, for the group's entity (`add_tg_cfs_propagate`).
    #[inline]
    pub(super) fn tell(&mut self, change: [f64; 3]) {
        if self.group_entity != NONE {
            self.any_pending = true;
            self.pending.iter_mut().zip(change).for_each(|(sum, amount)| *sum += amount);
        }
    }

    /// Takes off what left while asleep and brings the averages to now; `speed` is the CPU's.
    #[inline(never)]
    pub(super) fn age_avg(&mut self, now_ns: u64, speed: &Speed) {
        if std::mem::take(&mut self.any_removed) {
            let [load, runnable, util] = std::mem::take(&mut self.removed);
            self.pelt.detach(load, runnable, util);
            // As the kernel does: how long they were runnable stands for how long they were queued.
            self.tell([-runnable, -runnable, -util]);
        }
        if self.frozen_since_ns.is_some() {
            return;
        }
        let running = if self.curr == NONE { 0.0 } else { speed.running };
        // A signed conversion is one instruction, an unsigned one several.
        let weight = scale_load_down(self.load_weight) as f64;
        self.pelt.update(now_ns, weight, f64::from(self.h_nr_runnable) * speed.runnable, running);
    }
}

/// Per-CPU state of the fair class beyond its root queue (`struct rq`).
#[derive(Clone, Debug)]
pub struct Rq {
    /// Tasks here, delayed ones included (`nr_running`).
    pub nr_running: u32,
    /// Runnable task: `curr` of the whole hierarchy, as entity, or [`NONE`] when idle or about to be.
    pub curr_task: u32,
    /// `cfs_tasks`: most recently enqueued or run task.
    pub list_head: u32,
    /// `cfs_tasks`: least recently run task, where the balancer starts.
    pub list_tail: u32,
    /// Σ `util_est` of enqueued tasks that do not sleep.
    pub util_est: u32,
    /// Next time the domains are looked at, in jiffies.
    pub next_balance: u64,
    /// When the CPU last ran out of work; 0 if it is busy.
    pub idle_stamp_ns: u64,
    /// Mean idle duration.
    pub avg_idle_ns: u64,
    /// Upper bound of `avg_idle_ns` is twice this (`max_idle_balance_cost`).
    pub max_idle_balance_cost_ns: u64,
    /// Load of its running task if that needs a bigger CPU and may use one, else 0 (`misfit_task_load`).
    pub misfit_task_load: u64,
    /// An active balance away from this CPU is under way.
    pub active_balance: bool,
    /// Where it goes.
    pub push_cpu: u32,
    /// In the set of idle CPUs without tick (`nohz_tick_stopped`).
    pub nohz_tick_stopped: bool,
    /// Idle with load that is still decaying (`has_blocked_load`).
    pub has_blocked_load: bool,
    /// Jiffy of the last blocked-load update on this CPU's behalf.
    pub last_blocked_update: u64,
    /// When it entered idle last, for "most recently idled".
    pub idle_entered_ns: u64,
    /// Of CPUs that entered it at one instant, such as before the run, the one with the highest rank was last. By lot.
    pub idle_rank: u32,
}

impl Default for Rq {
    fn default() -> Self {
        Self {
            nr_running: 0,
            curr_task: NONE,
            list_head: NONE,
            list_tail: NONE,
            util_est: 0,
            next_balance: 0,
            idle_stamp_ns: 0,
            avg_idle_ns: 1_000_000,
            max_idle_balance_cost_ns: 500_000,
            misfit_task_load: 0,
            active_balance: false,
            push_cpu: 0,
            nohz_tick_stopped: false,
            has_blocked_load: false,
            last_blocked_update: 0,
            idle_entered_ns: 0,
            idle_rank: 0,
        }
    }
}
