//! Quotas of task groups, at any depth (`docs/spec/linux-fair.md` section 1.17).
//!
//! A group has a pool that is filled once in a period; its queue on each CPU takes slices of it. A queue that gets none is throttled: whoever
//! is picked from it, or from a queue below, leaves when it returns to user mode, and comes back when no queue above it is throttled any
//! more. Who sleeps in the kernel sleeps on.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` (`__account_cfs_rq_runtime` to `sched_cfs_period_timer`).
//!
//! Differs from the kernel: groups have existed for long when the run begins, so that their pools are full, burst included. A task that is
//! switched in returns to user mode at once, even if a system call of it was interrupted; only in what a program does in kernel mode it goes on. Averages of tasks that sleep go on decaying
//! while their queue's stand still. Timers and what they do take no CPU time. No period is lengthened because a timer cannot keep up.
//! Releases before 6.18 took a whole queue off its CPU, and those before 5.4 let slices expire: `cfs` does as 7.2 does.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;
use warmcore_kernel::{Core, TaskGroup};
use warmcore_topology::CpuId;
use warmcore_trace::{GroupCounters, TaskId, Throttler};
use warmcore_workload::CpuMax;

use super::queue::Removal;
use super::state::NONE;
use super::task_work::work;
use super::{Fair, Policy};
use crate::fair::gathering::Gathering;

/// `sched_cfs_bandwidth_slice_us`: what a queue takes from the pool at once.
const SLICE_NS: i64 = 5_000_000;
/// `min_cfs_rq_runtime`: what a queue that runs empty keeps.
const KEPT_NS: i64 = 1_000_000;
/// `cfs_bandwidth_slack_period`: how long after its return a part of the pool is given to others.
const SLACK_NS: u64 = 5_000_000;
/// `min_bandwidth_expiration`: so shortly before a period's end nothing is given any more.
const EXPIRES_NS: u64 = 2_000_000;

/// What a timer of a group or a queue is for, as its payload's upper half; 0 is a task's work.
mod timer {
    pub const PERIOD: u64 = 1 << 32;
    pub(crate) const SLACK: u64 = 2 << 32;
    pub(crate) const UNTHROTTLE: u64 = 3 << 32;
    pub const KINDS: u64 = !0 << 32;
}

/// A group's account (`struct cfs_bandwidth`).
struct Pool {
    max: CpuMax,
    /// What is left of the quota for its queues to take.
    runtime_ns: i64,
    /// Nobody took anything in this period yet.
    idle: bool,
    /// When the period ends; one in the past if no timer runs.
    ends_ns: u64,
    active: bool,
    slack_started: bool,
    /// Throttled queues, in the order in which they were.
    throttled: Vec<u32>,
    counters: GroupCounters,
}

/// A group's queue on one CPU.
#[derive(Clone, Default)]
struct Limit {
    /// Whether its own group has a quota (`runtime_enabled`).
    enabled: bool,
    /// What it may use before it takes more; less than nothing if it used too much.
    remaining_ns: i64,
    /// It has used all it gets.
    throttled: bool,
    /// How many of it and the queues above are throttled (`throttle_count`).
    depth: u32,
    /// It is about to be unthrottled by an interrupt (`throttled_csd_list`).
    unthrottling: bool,
    /// Since when a task waits for it to be unthrottled.
    waits_since_ns: Option<u64>,
    /// Tasks of it that have left (`throttled_limbo_list`), the first that did first.
    limbo: Vec<u32>,
}

/// Quotas of a run in which some group has one.
pub(crate) struct Bandwidth {
    cpus: u32,
    task_base: u32,
    /// By group.
    pools: Vec<Option<Pool>>,
    /// By group: it and all groups below it.
    below: Vec<Vec<u32>>,
    /// By queue, those of CPUs left out.
    limits: Vec<Limit>,
    /// By task: it has left because of a throttled queue (`p->throttled`).
    left: Vec<bool>,
    /// By CPU: how many have.
    in_limbo: Vec<u32>,
}

impl Bandwidth {
    /// Quotas of the groups; `None` if there are none. When periods begin, the seed says.
    pub(super) fn new(core: &mut Core<'_>, groups: &[TaskGroup], seed: u64) -> Option<Box<Self>> {
        /// Any odd constant does: it keeps this stream apart from others with the same seed.
        const STREAM: u64 = 0x6366_735f_6277_5f71;
        if groups.iter().all(|group| group.cpu_max.is_none()) {
            return None;
        }
        for (group, _) in groups.iter().enumerate().filter(|(_, group)| group.cpu_max.is_some()) {
            core.count_group(group as u32, GroupCounters::default());
        }
        let cpus = core.machine().cpu_count() as u32;
        let mut random = Pcg32::new(seed, STREAM);
        let mut pool = |max: CpuMax| Pool {
            max,
            runtime_ns: (max.quota_ns() + max.burst_ns()) as i64,
            idle: false,
            ends_ns: random.next_u64() % max.period_ns(),
            active: false,
            slack_started: false,
            throttled: Vec::new(),
            counters: GroupCounters::default(),
        };
        let pools: Vec<Option<Pool>> = groups.iter().map(|group| group.cpu_max.map(&mut pool)).collect();
        let lies_in = |group: u32, above: u32| {
            std::iter::successors(Some(group), |&group| groups[group as usize].parent).any(|group| group == above)
        };
        let count = groups.len() as u32;
        let limit = |group: &Option<Pool>| Limit { enabled: group.is_some(), remaining_ns: 1, ..Limit::default() };
        Some(Box::new(Self {
            cpus,
            task_base: count * cpus,
            below: (0..count).map(|above| (0..count).filter(|&group| lies_in(group, above)).collect()).collect(),
            limits: pools.iter().flat_map(|pool| std::iter::repeat_n(limit(pool), cpus as usize)).collect(),
            pools,
            left: Vec::new(),
            in_limbo: vec![0; cpus as usize],
        }))
    }

    fn limit(&mut self, queue: u32) -> &mut Limit {
        &mut self.limits[(queue - self.cpus) as usize]
    }

    /// Whether a queue has no limit of its own that a pick or a charge would have to look at.
    fn is_free(&self, queue: u32) -> bool {
        queue < self.cpus || !self.limits[(queue - self.cpus) as usize].enabled
    }

    /// Whether it or a queue above it is throttled (`throttled_hierarchy`).
    fn is_throttled(&self, queue: u32) -> bool {
        queue >= self.cpus && self.limits[(queue - self.cpus) as usize].depth > 0
    }

    fn has_left(&self, index: u32) -> bool {
        self.left.get((index - self.task_base) as usize).is_some_and(|left| *left)
    }

    fn set_left(&mut self, core: &mut Core<'_>, index: u32, left: bool) {
        let task = (index - self.task_base) as usize;
        if self.left.len() <= task {
            self.left.resize(task + 1, false);
        }
        self.left[task] = left;
        core.throttle(TaskId(task as u32), left.then_some(Throttler::Quota));
    }

    fn enter_limbo(&mut self, queue: u32, index: u32) {
        self.in_limbo[(queue % self.cpus) as usize] += 1;
        self.limit(queue).limbo.push(index);
    }

    fn leave_limbo(&mut self, queue: u32, index: u32) {
        let limbo = &mut self.limit(queue).limbo;
        if let Some(at) = limbo.iter().position(|known| *known == index) {
            limbo.remove(at);
            self.in_limbo[(queue % self.cpus) as usize] -= 1;
        }
    }

    /// Gives a queue what it lacks to have `target_ns`, as far as its group has it (`__assign_cfs_rq_runtime`). Whether it may run.
    fn assign(&mut self, core: &mut Core<'_>, queue: u32, target_ns: i64) -> bool {
        let group = queue / self.cpus - 1;
        let Some(pool) = &mut self.pools[group as usize] else { return true };
        if !pool.active {
            pool.active = true;
            let (now_ns, period_ns) = (core.now_ns(), pool.max.period_ns());
            if pool.ends_ns <= now_ns {
                pool.ends_ns += ((now_ns - pool.ends_ns) / period_ns + 1) * period_ns;
            }
            start_timer(core, core.this_cpu(), pool.ends_ns - now_ns, timer::PERIOD | u64::from(group));
        }
        let limit = &mut self.limits[(queue - self.cpus) as usize];
        if pool.runtime_ns > 0 {
            let amount_ns = pool.runtime_ns.min(target_ns - limit.remaining_ns);
            pool.runtime_ns -= amount_ns;
            pool.idle = false;
            limit.remaining_ns += amount_ns;
        }
        limit.remaining_ns > 0
    }

    /// Charges a queue with run time (`__account_cfs_rq_runtime`). Whether it may go on.
    fn account(&mut self, core: &mut Core<'_>, queue: u32, delta_ns: u64) -> bool {
        let limit = self.limit(queue);
        limit.remaining_ns -= delta_ns as i64;
        limit.remaining_ns > 0 || limit.throttled || self.assign(core, queue, SLICE_NS)
    }

    /// A queue has run empty: what it has left goes back (`__return_cfs_rq_runtime`).
    fn give_back(&mut self, core: &mut Core<'_>, queue: u32) {
        let excess_ns = self.limit(queue).remaining_ns - KEPT_NS;
        if excess_ns <= 0 {
            return;
        }
        self.limit(queue).remaining_ns -= excess_ns;
        let group = queue / self.cpus - 1;
        let Some(pool) = &mut self.pools[group as usize] else { return };
        pool.runtime_ns += excess_ns;
        let lasts = pool.ends_ns.saturating_sub(core.now_ns()) >= SLACK_NS + EXPIRES_NS;
        if pool.runtime_ns > SLICE_NS && !pool.throttled.is_empty() && lasts && !pool.slack_started {
            pool.slack_started = true;
            start_timer(core, core.this_cpu(), SLACK_NS, timer::SLACK | u64::from(group));
        }
    }

    /// Gives throttled queues, one after the other, what they used too much (`distribute_cfs_runtime`). Those that are to be unthrottled.
    fn distribute(&mut self, group: u32) -> Vec<u32> {
        let cpus = self.cpus;
        let Some(pool) = &mut self.pools[group as usize] else { return Vec::new() };
        let mut free = Vec::new();
        for &queue in &pool.throttled {
            if pool.runtime_ns <= 0 {
                break;
            }
            let limit = &mut self.limits[(queue - cpus) as usize];
            if limit.unthrottling {
                continue;
            }
            let amount_ns = pool.runtime_ns.min(1 - limit.remaining_ns);
            pool.runtime_ns -= amount_ns;
            limit.remaining_ns += amount_ns;
            if limit.remaining_ns > 0 {
                limit.unthrottling = true;
                free.push(queue);
            }
        }
        free
    }

    /// A period ends (`do_sched_cfs_period_timer`). The queues that are to be unthrottled.
    fn end_period(&mut self, core: &mut Core<'_>, group: u32) -> Vec<u32> {
        let Some(pool) = &mut self.pools[group as usize] else { return Vec::new() };
        let (quota_ns, burst_ns) = (pool.max.quota_ns() as i64, pool.max.burst_ns() as i64);
        let throttled = !pool.throttled.is_empty();
        pool.counters.periods += 1;
        pool.runtime_ns = (pool.runtime_ns + quota_ns).min(quota_ns + burst_ns);
        if pool.idle && !throttled {
            pool.active = false;
            return Vec::new();
        }
        pool.idle = !throttled;
        pool.counters.throttled_periods += u64::from(throttled);
        pool.ends_ns += pool.max.period_ns();
        let (cpu, left_ns) = (core.this_cpu(), pool.ends_ns.saturating_sub(core.now_ns()));
        start_timer(core, cpu, left_ns, timer::PERIOD | u64::from(group));
        self.distribute(group)
    }
}

fn start_timer(core: &mut Core<'_>, cpu: CpuId, delay_ns: u64, payload: u64) {
    let late_ns = core.machine().costs().timer_late_ns;
    core.start_timer(cpu, delay_ns + late_ns, payload);
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// The running entity of a queue was charged (`account_cfs_rq_runtime`).
    #[inline(never)]
    pub(super) fn account_runtime(&mut self, core: &mut Core<'_>, queue: u32, delta_ns: u64) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        if !bandwidth.is_free(queue) && !bandwidth.account(core, queue, delta_ns) {
            core.resched_full(CpuId(self.queues[queue as usize].cpu));
        }
    }

    /// A queue gets its first entity (`check_enqueue_throttle`): what it owes counts before anything runs.
    #[inline(never)]
    pub(super) fn check_enqueue_throttle(&mut self, core: &mut Core<'_>, queue: u32) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        let runs = self.queues[queue as usize].curr != NONE;
        if !runs && !bandwidth.is_free(queue) && !bandwidth.limit(queue).throttled && !bandwidth.account(core, queue, 0)
        {
            self.throttle(core, queue);
        }
        self.thaw(core.now_ns(), queue);
    }

    /// A queue has lost an entity (`return_cfs_rq_runtime`).
    #[inline(never)]
    pub(super) fn check_dequeue_throttle(&mut self, core: &mut Core<'_>, queue: u32) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        if self.queues[queue as usize].nr_queued > 0 || queue < bandwidth.cpus {
            return;
        }
        if !bandwidth.is_free(queue) {
            bandwidth.give_back(core, queue);
        }
        if bandwidth.is_throttled(queue) {
            self.freeze(core.now_ns(), queue);
        }
    }

    /// Whether a queue is throttled, or is now because it has used what it got (`check_cfs_rq_runtime`).
    #[inline(never)]
    pub(super) fn check_runtime(&mut self, core: &mut Core<'_>, queue: u32) -> bool {
        let Some(bandwidth) = &mut self.bandwidth else { return false };
        if bandwidth.is_free(queue) || bandwidth.limit(queue).remaining_ns > 0 {
            return false;
        }
        bandwidth.limit(queue).throttled || self.throttle(core, queue)
    }

    /// `throttle_cfs_rq`: the queue and those below it let nobody go on, unless there is something to have after all.
    fn throttle(&mut self, core: &mut Core<'_>, queue: u32) -> bool {
        let Some(bandwidth) = &mut self.bandwidth else { return false };
        if bandwidth.assign(core, queue, 1) {
            return false;
        }
        let (cpus, group) = (bandwidth.cpus, queue / bandwidth.cpus - 1);
        if let Some(pool) = &mut bandwidth.pools[group as usize] {
            pool.throttled.push(queue);
        }
        bandwidth.limit(queue).throttled = true;
        for at in 0..bandwidth.below[group as usize].len() {
            let Some(bandwidth) = &mut self.bandwidth else { break };
            let below = (bandwidth.below[group as usize][at] + 1) * cpus + queue % cpus;
            bandwidth.limit(below).depth += 1;
            if self.queues[below as usize].nr_queued == 0 {
                self.freeze(core.now_ns(), below);
            }
        }
        true
    }

    /// `unthrottle_cfs_rq`, on the queue's CPU: who had to leave comes back, unless another queue above it is throttled.
    fn unthrottle(&mut self, core: &mut Core<'_>, queue: u32) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        bandwidth.limit(queue).unthrottling = false;
        if bandwidth.limit(queue).remaining_ns <= 0 || !bandwidth.limit(queue).throttled {
            // What it got was used on the way, or its CPU is offline.
            return;
        }
        let (cpus, group) = (bandwidth.cpus, queue / bandwidth.cpus - 1);
        bandwidth.limit(queue).throttled = false;
        let since_ns = bandwidth.limit(queue).waits_since_ns.take();
        if let Some(pool) = &mut bandwidth.pools[group as usize] {
            pool.throttled.retain(|known| *known != queue);
            let waited_ns = since_ns.map_or(0, |since_ns| core.now_ns() - since_ns);
            pool.counters.throttled_ns += waited_ns;
            core.count_group(group, pool.counters);
        }
        // A group comes after those that lie in it (`walk_tg_tree_from` upwards).
        for at in 0..self.groups_inner_first.len() {
            let inner = self.groups_inner_first[at];
            let Some(bandwidth) = &mut self.bandwidth else { break };
            if bandwidth.below[group as usize].contains(&inner) {
                self.unthrottle_one(core, (inner + 1) * cpus + queue % cpus);
            }
        }
        let cpu = CpuId(queue % cpus);
        if core.curr_is_idle(cpu) && self.queues[cpu.index()].nr_queued > 0 {
            core.resched_full(cpu);
        }
    }

    /// A CPU goes offline: no quota holds there, and who had to leave comes back, to go elsewhere (`unthrottle_offline_cfs_rqs`).
    pub(super) fn unthrottle_offline(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        for group in 0..self.groups.len() as u32 {
            let Some(bandwidth) = &mut self.bandwidth else { return };
            let queue = (group + 1) * bandwidth.cpus + cpu.0;
            if !bandwidth.is_free(queue) {
                let limit = bandwidth.limit(queue);
                limit.enabled = false;
                if limit.throttled {
                    limit.remaining_ns = 1;
                    self.unthrottle(core, queue);
                }
            }
        }
    }

    /// A CPU comes online: quotas hold there again (`update_runtime_enabled`).
    pub(super) fn limit_again(&mut self, cpu: CpuId) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        for group in 0..bandwidth.pools.len() {
            let queue = (group as u32 + 1) * bandwidth.cpus + cpu.0;
            bandwidth.limit(queue).enabled = bandwidth.pools[group].is_some();
        }
    }

    /// `tg_unthrottle_up`.
    fn unthrottle_one(&mut self, core: &mut Core<'_>, queue: u32) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        let limit = bandwidth.limit(queue);
        limit.depth -= 1;
        if limit.depth > 0 {
            return;
        }
        self.thaw(core.now_ns(), queue);
        let cpu = CpuId(self.queues[queue as usize].cpu);
        while let Some(bandwidth) = &mut self.bandwidth
            && let Some(index) = bandwidth.limit(queue).limbo.pop()
        {
            bandwidth.in_limbo[cpu.index()] -= 1;
            bandwidth.set_left(core, index, false);
            self.set_idle(cpu, false);
            self.enqueue_task(core, cpu, index, false);
        }
    }

    /// A task that was picked below a throttled queue returns to user mode: it leaves (`throttle_cfs_rq_work`).
    pub(super) fn leave_throttled(&mut self, core: &mut Core<'_>, task: TaskId) {
        let (index, cpu) = (self.task_entity(task), core.task(task).cpu());
        let queue = self.entities[index as usize].queue;
        let Some(bandwidth) = &mut self.bandwidth else { return };
        if !bandwidth.is_throttled(queue) || !self.entities[index as usize].on_rq {
            return;
        }
        self.dequeue_task(core, cpu, index, Removal::Throttle);
        self.update_util_est(index);
        if let Some(bandwidth) = &mut self.bandwidth {
            bandwidth.set_left(core, index, true);
            bandwidth.enter_limbo(queue, index);
        }
        self.note_waiting(core.now_ns(), queue);
        core.resched_full(cpu);
    }

    /// Throttled time is that with a task that would run (`record_throttle_clock`).
    fn note_waiting(&mut self, now_ns: u64, queue: u32) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        let mut above = queue;
        while above >= bandwidth.cpus {
            let limit = bandwidth.limit(above);
            if limit.throttled {
                limit.waits_since_ns.get_or_insert(now_ns);
            }
            above = self.entities[self.queues[above as usize].group_entity as usize].queue;
        }
    }

    /// A task is taken out for good or for a change: whether it was in no queue but in limbo (`dequeue_throttled_task`).
    pub(super) fn dequeue_throttled(&mut self, core: &mut Core<'_>, index: u32, sleeps: bool) -> bool {
        let queue = self.entities[index as usize].queue;
        let Some(bandwidth) = self.bandwidth.as_mut().filter(|bandwidth| bandwidth.has_left(index)) else {
            return false;
        };
        bandwidth.leave_limbo(queue, index);
        if sleeps {
            bandwidth.set_left(core, index, false);
        }
        true
    }

    /// A task that had left comes to a queue, its own or another: whether it has to stay away (`enqueue_throttled_task`).
    pub(super) fn enqueue_throttled(&mut self, core: &mut Core<'_>, index: u32) -> bool {
        let queue = self.entities[index as usize].queue;
        let Some(bandwidth) = self.bandwidth.as_mut().filter(|bandwidth| bandwidth.has_left(index)) else {
            return false;
        };
        let stays = bandwidth.is_throttled(queue);
        if stays {
            bandwidth.enter_limbo(queue, index);
            self.note_waiting(core.now_ns(), queue);
        } else {
            bandwidth.set_left(core, index, false);
        }
        stays
    }

    /// A task leaves the class: no quota keeps it from running any more.
    pub(super) fn forget_quota(&mut self, core: &mut Core<'_>, index: u32) {
        if let Some(bandwidth) = self.bandwidth.as_mut().filter(|bandwidth| bandwidth.has_left(index)) {
            bandwidth.set_left(core, index, false);
        }
    }

    /// Whether a task has left because of a throttled queue.
    pub(super) fn in_limbo(&self, index: u32) -> bool {
        self.bandwidth.as_ref().is_some_and(|bandwidth| bandwidth.has_left(index))
    }

    /// Tasks of a CPU that have.
    pub(super) fn limbo_of(&self, cpu: CpuId) -> usize {
        self.bandwidth.as_ref().map_or(0, |bandwidth| bandwidth.in_limbo[cpu.index()] as usize)
    }

    /// Whether a task would come to a throttled queue.
    pub(super) fn is_throttled_on(&self, task: TaskId, cpu: CpuId) -> bool {
        let Some(bandwidth) = &self.bandwidth else { return false };
        // Queues are stored by group, then CPU; the root's come first.
        let queue = self.entities[self.task_entity(task) as usize].queue;
        bandwidth.is_throttled(queue / bandwidth.cpus * bandwidth.cpus + cpu.0)
    }

    /// The picked task is to leave when it returns to user mode (`task_throttle_setup_work`).
    pub(super) fn ask_to_leave(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, goes_on: bool) {
        if core.task(task).is_kernel_thread() {
            return;
        }
        self.task_work.add(task, work::THROTTLE);
        if goes_on {
            core.start_timer(cpu, 0, task.0.into());
        }
    }

    /// A timer that is not a task's.
    pub(super) fn bandwidth_timer(&mut self, core: &mut Core<'_>, payload: u64) -> bool {
        let Some(bandwidth) = &mut self.bandwidth else { return false };
        let number = payload as u32;
        match payload & timer::KINDS {
            timer::UNTHROTTLE => self.unthrottle(core, number),
            timer::PERIOD => {
                let free = bandwidth.end_period(core, number);
                if let Some(pool) = &bandwidth.pools[number as usize] {
                    core.count_group(number, pool.counters);
                }
                self.unthrottle_all(core, free);
            }
            timer::SLACK => {
                let Some(pool) = &mut bandwidth.pools[number as usize] else { return true };
                pool.slack_started = false;
                let lasts = pool.ends_ns.saturating_sub(core.now_ns()) >= EXPIRES_NS;
                if lasts && pool.runtime_ns > SLICE_NS {
                    let free = bandwidth.distribute(number);
                    self.unthrottle_all(core, free);
                }
            }
            _ => return false,
        }
        true
    }

    /// Each on its CPU: others by an interrupt (`__unthrottle_cfs_rq_async`), its own last.
    fn unthrottle_all(&mut self, core: &mut Core<'_>, queues: Vec<u32>) {
        let this_cpu = core.this_cpu();
        let on = |queue: u32| CpuId(queue % self.rqs.len() as u32);
        let (own, others): (Vec<u32>, Vec<u32>) = queues.into_iter().partition(|&queue| on(queue) == this_cpu);
        for queue in others {
            let (cpu, costs) = (on(queue), core.machine().costs());
            let wakes_ns = if core.curr_is_idle(cpu) { costs.idle_exit_ns } else { 0 };
            let delay_ns = costs.ipi_ns[core.relation(this_cpu, cpu)] + wakes_ns;
            core.start_timer(cpu, delay_ns, timer::UNTHROTTLE | u64::from(queue));
        }
        for queue in own {
            self.unthrottle(core, queue);
        }
    }

    /// The averages of a queue that runs empty while it is throttled stand still (`pelt_clock_throttled`).
    fn freeze(&mut self, now_ns: u64, queue: u32) {
        self.update_queue_avg(now_ns, queue);
        self.queues[queue as usize].frozen_since_ns.get_or_insert(now_ns);
    }

    /// They go on, as if no time had passed: for the tasks that wait too.
    fn thaw(&mut self, now_ns: u64, queue: u32) {
        let cfs = &mut self.queues[queue as usize];
        let Some(since_ns) = cfs.frozen_since_ns.take() else { return };
        cfs.pelt.last_update_ns += now_ns - since_ns;
        let Some(bandwidth) = &mut self.bandwidth else { return };
        for &index in &bandwidth.limit(queue).limbo {
            // One that came in the meantime was up to date then.
            let pelt = &mut self.entities[index as usize].pelt;
            pelt.last_update_ns = (pelt.last_update_ns + (now_ns - since_ns)).min(now_ns);
        }
    }
}
