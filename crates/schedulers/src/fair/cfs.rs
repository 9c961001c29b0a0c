//! CFS, the policy of the fair class from Linux 2.6.23 to 6.5, as of 4.9 … 6.5 (`docs/spec/linux-fair.md` section
//! 1.16).
//!
//! The entity with the smallest virtual runtime runs; a slice is the entity's share of a period; sleepers get credit.
//! `kernel=4.9` is that kernel: it balances and places by load, with the margins of its time. Without it the rules are those of 6.5,
//! and `balance_by_load=1,imbalance_pct=125,busy_factor=32` gives the balancer of 5.0 to 5.4.
//!
//! Deliberate differences from the kernel: no `SIS_PROP` (searches are limited by utilisation or not at all);
//! `child_runs_first` is not modelled (off by default since 2.6.32); in averages of load a weight counts as 2 at least, which it does
//! since 5.7.

use warmcore_kernel::{Boot, Core, WakeFlags};
use warmcore_topology::CpuId;

use super::eevdf::scaling_factor;
use super::queue::Removal;
use super::state::{Entity, NONE};
use super::weights::{LOAD_SHIFT, virtual_delta};
use super::{CgroupMode, Fair, FairParameters, Policy};
use crate::domains::DomainParameters;
use crate::fair::gathering::Gathering;
use crate::registry::Floor;
use crate::tunables::tunables;

tunables! {
    /// Tunables of `cfs`.
    pub struct CfsTunables {
        /// Period in which every task runs once; 0 = 6 ms × the factor of `tunable_scaling`.
        sched_latency_ns: time 0 "ns" in 0..=1_000_000_000 by ratio,
        /// Shortest slice; 0 = 0.75 ms × the factor.
        sched_min_granularity_ns: time 0 "ns" in 0..=1_000_000_000 by ratio,
        /// Lead in virtual runtime a woken task needs to preempt; 0 = 1 ms × the factor.
        sched_wakeup_granularity_ns: time 0 "ns" in 0..=1_000_000_000 by ratio,
        /// Factor for the three above by number of CPUs (at most 8): 0 none, 1 = 1 + log2, 2 linear.
        tunable_scaling: choice "log" of ["none", "log", "linear"],
        /// Window in which a task counts as cache-hot; also scales new-idle balancing.
        migration_cost_ns: time 500_000 "ns" in 0..=1_000_000_000 by ratio,
        /// Tasks examined per balance pass.
        nr_migrate: count 32 "tasks" in 1..=1024 by ratio,
        /// Each application of the workload is a group of its own (`sched_autogroup`).
        autogroup: switch on,
        /// Feature GENTLE_FAIR_SLEEPERS: half the sleeper credit.
        gentle_fair_sleepers: switch on,
        /// Feature START_DEBIT: a new task starts one slice late.
        start_debit: switch on,
        /// Feature NEXT_BUDDY: a woken task that preempts is preferred.
        next_buddy: switch off,
        /// Feature LAST_BUDDY: a task preempted by a wakeup is preferred afterwards.
        last_buddy: switch on,
        /// Feature WAKEUP_PREEMPTION.
        wakeup_preemption: switch on,
        /// Feature SIS_UTIL (6.0): limit idle CPU searches by the LLC's utilisation; 0 = search all.
        sis_util: switch on,
        /// Kernel whose rules hold: 4.9 balances and places by load, and balances with `imbalance_pct` and `busy_factor` of 125 and
        /// 32; more can be set, less is refused.
        kernel: choice "6.5" of ["6.5", "4.9"],
        /// Balance by load alone, as 4.9 to 5.4 did.
        balance_by_load: switch off,
        /// A group is busier only if by more than this, in percent (125 before 5.10).
        imbalance_pct: share 117 in 101..=400,
        /// Balance intervals of busy CPUs are longer by this factor (32 before 5.10).
        busy_factor: count 16 "" in 1..=64,
    }
}

/// What the balancer of 4.9 has at least (`sd_init`).
pub(crate) static FLOORS: &[Floor] = &[
    Floor { name: "imbalance_pct", least: 125, when: ("kernel", 1) },
    Floor { name: "busy_factor", least: 32, when: ("kernel", 1) },
];

/// What a core with all of its hardware threads at work has for 1024 (`sd_init` before 5.0).
const SMT_GAIN: u32 = 1178;

/// Unscaled `sysctl_sched_latency`.
pub(crate) const LATENCY_NS: u64 = 6_000_000;
/// Unscaled `sysctl_sched_min_granularity`.
pub(crate) const MIN_GRANULARITY_NS: u64 = 750_000;
/// Unscaled `sysctl_sched_wakeup_granularity`.
pub(crate) const WAKEUP_GRANULARITY_NS: u64 = 1_000_000;

/// The CFS policy.
pub struct Cfs {
    tunables: CfsTunables,
    latency_ns: u64,
    min_granularity_ns: u64,
    wakeup_granularity_ns: u64,
    /// The least that a weight counts as: 2 since 5.7.
    least_weight: u64,
}

impl Cfs {
    /// The policy in a kernel.
    pub fn new(tunables: CfsTunables, boot: &Boot<'_>) -> Self {
        let mut policy = Self {
            latency_ns: 0,
            min_granularity_ns: 0,
            wakeup_granularity_ns: 0,
            least_weight: if tunables.kernel == 1 { 1 } else { 2 },
            tunables,
        };
        policy.cpus_changed(boot.machine.cpu_count());
        policy
    }

    /// A weight of entities or queues without the finer bits, which CFS leaves out of virtual times and slices (`__calc_delta`).
    fn whole(&self, weight: u64) -> u64 {
        (weight >> LOAD_SHIFT).max(self.least_weight)
    }

    /// `sched_nr_latency`: tasks that fit into a period at the shortest slice.
    fn nr_latency(&self) -> u64 {
        self.latency_ns.div_ceil(self.min_granularity_ns)
    }

    /// `__sched_period`.
    fn period_ns(&self, nr_running: u64) -> u64 {
        if nr_running > self.nr_latency() { nr_running * self.min_granularity_ns } else { self.latency_ns }
    }
}

impl<G: Gathering> Fair<Cfs, G> {
    /// `sched_slice`: the entity's share of a period, at each level. `joining` counts one that is not queued yet.
    fn sched_slice(&self, index: u32, joining: bool) -> u64 {
        let queue = self.entities[index as usize].queue;
        let nr_running = u64::from(self.queues[queue as usize].nr_queued) + u64::from(joining);
        let mut slice = u128::from(self.policy.period_ns(nr_running));
        let mut index = index;
        while index != NONE {
            let entity = &self.entities[index as usize];
            let cfs = &self.queues[entity.queue as usize];
            let weight = u64::from(entity.weight);
            let total = cfs.load_weight + if entity.on_rq { 0 } else { weight };
            slice = slice * u128::from(self.policy.whole(weight)) / u128::from(self.policy.whole(total));
            index = cfs.group_entity;
        }
        slice as u64
    }

    fn leftmost(&self, queue: u32) -> u32 {
        self.queues[queue as usize].tree.first().map_or(NONE, |node| node.entity)
    }

    /// `update_min_vruntime`: never goes back.
    fn update_min_vruntime(&mut self, queue: u32) {
        let cfs = &self.queues[queue as usize];
        let curr = (cfs.curr != NONE && self.entities[cfs.curr as usize].on_rq)
            .then(|| self.entities[cfs.curr as usize].vruntime);
        let first = cfs.tree.first().map(|node| node.vruntime);
        if let Some(least) = curr.into_iter().chain(first).min() {
            let cfs = &mut self.queues[queue as usize];
            cfs.min_vruntime = cfs.min_vruntime.max(least);
        }
    }

    /// `wakeup_preempt_entity`: 1 if `candidate` is ahead of `curr` by more than the granularity, 0 if by less, −1 if
    /// it is behind.
    fn ahead_of(&self, curr: u32, candidate: u32) -> i32 {
        let entity = &self.entities[candidate as usize];
        let lead = self.entities[curr as usize].vruntime - entity.vruntime;
        let granularity = virtual_delta(self.policy.wakeup_granularity_ns, self.policy.pace(entity.weight));
        if lead <= 0 { -1 } else { i32::from(lead > granularity) }
    }
}

impl Policy for Cfs {
    const NAME: &'static str = "cfs";
    const WEIGHTED_AVERAGE: bool = false;
    const SCORES: &'static [&'static str] = &["vruntime_ns"];

    fn score<G: Gathering>(fair: &Fair<Self, G>, index: u32, _score: usize) -> i64 {
        let entity = &fair.entities[index as usize];
        entity.vruntime - fair.queues[entity.queue as usize].min_vruntime
    }

    fn fair_parameters(&self) -> FairParameters {
        let tunables = &self.tunables;
        let rules_of_4_9 = tunables.kernel == 1;
        FairParameters {
            migration_cost_ns: tunables.migration_cost_ns,
            nr_migrate: tunables.nr_migrate as u32,
            domains: DomainParameters {
                imbalance_pct: tunables.imbalance_pct as u32,
                busy_factor: tunables.busy_factor as u32,
                groups_from_first_cpu: rules_of_4_9,
                // Linux has them since 5.16.
                clusters: !rules_of_4_9,
                smt_gain: rules_of_4_9.then_some(SMT_GAIN),
                same_reclaim_distance: rules_of_4_9,
                firmware_distances: rules_of_4_9,
                ..DomainParameters::default()
            },
            load_only_balance: rules_of_4_9 || tunables.balance_by_load != 0,
            rules_of_4_9,
            newidle_random: false,
            newidle_rate: false,
            sis_util: tunables.sis_util != 0,
            energy_aware: false,
            flat: false,
            cgroup_mode: CgroupMode::Smp,
        }
    }

    fn pace(&self, weight: u32) -> u32 {
        (self.whole(u64::from(weight)) as u32) << LOAD_SHIFT
    }

    fn cpus_changed(&mut self, cpus: usize) {
        let factor = scaling_factor(self.tunables.tunable_scaling, cpus);
        let scaled = |set: u64, base: u64| if set == 0 { base * factor } else { set };
        self.latency_ns = scaled(self.tunables.sched_latency_ns, LATENCY_NS);
        self.min_granularity_ns = scaled(self.tunables.sched_min_granularity_ns, MIN_GRANULARITY_NS);
        self.wakeup_granularity_ns = scaled(self.tunables.sched_wakeup_granularity_ns, WAKEUP_GRANULARITY_NS);
    }

    fn autogroup(&self) -> bool {
        self.tunables.autogroup != 0
    }

    fn key(entity: &Entity) -> i64 {
        entity.vruntime
    }

    /// CFS has no slice requests.
    fn set_slice<G: Gathering>(_fair: &mut Fair<Self, G>, _index: u32, _slice_ns: u64) {}

    fn follow_slices<G: Gathering>(_fair: &mut Fair<Self, G>, _group_entity: u32, _queue: u32) {}

    fn charged<G: Gathering>(fair: &mut Fair<Self, G>, _core: &mut Core<'_>, queue: u32, _curr: u32) {
        fair.update_min_vruntime(queue);
    }

    /// `place_entity`: sleepers get up to half a period of credit, new tasks start a slice late. An entity that was
    /// moved keeps its distance to the smallest virtual runtime.
    fn place<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, queue: u32, index: u32, initial: bool) {
        let min_vruntime = fair.queues[queue as usize].min_vruntime;
        if std::mem::take(&mut fair.entities[index as usize].rel_deadline) {
            fair.entities[index as usize].vruntime += min_vruntime;
            return;
        }
        let mut earliest = min_vruntime;
        if initial {
            if fair.policy.tunables.start_debit != 0 {
                let slice = fair.sched_slice(index, true);
                earliest += virtual_delta(slice, fair.policy.pace(fair.entities[index as usize].weight));
            }
            let parent = fair.queues[queue as usize].curr;
            if parent != NONE
                && queue == fair.entities[parent as usize].queue
                && core.this_cpu().0 == fair.queues[queue as usize].cpu
            {
                fair.entities[index as usize].vruntime = fair.entities[parent as usize].vruntime;
            }
        } else {
            let credit = fair.policy.latency_ns >> u32::from(fair.policy.tunables.gentle_fair_sleepers != 0);
            earliest -= credit as i64;
        }
        let entity = &mut fair.entities[index as usize];
        entity.vruntime = entity.vruntime.max(earliest);
    }

    fn replace<G: Gathering>(_fair: &mut Fair<Self, G>, _core: &mut Core<'_>, _queue: u32, _index: u32) {}

    fn delays_dequeue<G: Gathering>(_fair: &mut Fair<Self, G>, _queue: u32, _index: u32) -> bool {
        false
    }

    fn save_lag<G: Gathering>(_fair: &mut Fair<Self, G>, _queue: u32, _index: u32) {}

    /// An entity that is moved takes its distance to the smallest virtual runtime along.
    fn left<G: Gathering>(fair: &mut Fair<Self, G>, index: u32, removal: Removal) {
        let queue = fair.entities[index as usize].queue;
        if removal == Removal::Save {
            let min_vruntime = fair.queues[queue as usize].min_vruntime;
            let entity = &mut fair.entities[index as usize];
            entity.vruntime -= min_vruntime;
            entity.rel_deadline = true;
        }
    }

    fn moved_asleep<G: Gathering>(fair: &mut Fair<Self, G>, index: u32, from: u32, to: u32) {
        let distance = fair.queues[to as usize].min_vruntime - fair.queues[from as usize].min_vruntime;
        fair.entities[index as usize].vruntime += distance;
    }

    fn rescale<G: Gathering>(_fair: &mut Fair<Self, G>, _queue: u32, _index: u32, _weight: u32, _queued: bool) {}

    fn rescaled<G: Gathering>(_fair: &mut Fair<Self, G>, _index: u32) {}

    fn requeue<G: Gathering>(_fair: &mut Fair<Self, G>, _core: &mut Core<'_>, _queue: u32, _index: u32) {}

    /// `pick_next_entity`: the leftmost, unless a buddy is close enough behind it.
    fn pick<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32) -> u32 {
        let cfs = &fair.queues[queue as usize];
        let (next, last, skip) = (cfs.next, cfs.last, cfs.skip);
        let curr = if cfs.curr != NONE && fair.entities[cfs.curr as usize].on_rq { cfs.curr } else { NONE };
        let first = fair.leftmost(queue);
        let before = |a: u32, b: u32| fair.entities[a as usize].vruntime < fair.entities[b as usize].vruntime;
        let left = if first == NONE || (curr != NONE && before(curr, first)) { curr } else { first };
        let mut picked = left;
        if skip == picked && skip != NONE {
            let mut second = if picked == curr { first } else { cfs.tree.get(1).map_or(NONE, |node| node.entity) };
            if picked != curr && curr != NONE && (second == NONE || before(curr, second)) {
                second = curr;
            }
            if second != NONE && fair.ahead_of(second, left) < 1 {
                picked = second;
            }
        }
        if next != NONE && fair.ahead_of(next, left) < 1 {
            return next;
        }
        if last != NONE && fair.ahead_of(last, left) < 1 {
            return last;
        }
        picked
    }

    fn is_eligible<G: Gathering>(_fair: &mut Fair<Self, G>, _queue: u32, _index: u32) -> bool {
        true
    }

    fn switched_in<G: Gathering>(_fair: &mut Fair<Self, G>, _queue: u32, _index: u32) {}

    fn task_switched_in<G: Gathering>(_fair: &mut Fair<Self, G>, _core: &mut Core<'_>, _cpu: CpuId, _index: u32) {}

    fn enqueued<G: Gathering>(_fair: &mut Fair<Self, G>, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// `check_preempt_tick`.
    fn tick<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, cpu: CpuId, queue: u32, index: u32) {
        if fair.queues[queue as usize].nr_queued < 2 {
            return;
        }
        let entity = &fair.entities[index as usize];
        let ran = entity.sum_exec_ns - entity.prev_sum_exec_ns;
        let ideal = fair.sched_slice(index, false);
        if ran > ideal {
            fair.clear_buddies(queue, index);
            core.resched_full(cpu);
            return;
        }
        if ran < fair.policy.min_granularity_ns {
            return;
        }
        let first = fair.leftmost(queue);
        if first != NONE
            && fair.entities[index as usize].vruntime - fair.entities[first as usize].vruntime > ideal as i64
        {
            core.resched_full(cpu);
        }
    }

    /// `check_preempt_wakeup`.
    fn wakeup_preempt<G: Gathering>(
        fair: &mut Fair<Self, G>,
        core: &mut Core<'_>,
        cpu: CpuId,
        curr: u32,
        wakee: u32,
        flags: WakeFlags,
    ) {
        if fair.policy.tunables.wakeup_preemption == 0 {
            return;
        }
        let queue = fair.entities[curr as usize].queue;
        fair.update_curr(core, queue);
        let crowded = u64::from(fair.queues[queue as usize].nr_queued) >= fair.policy.nr_latency();
        let preempts = fair.ahead_of(curr, wakee) == 1;
        if fair.policy.tunables.next_buddy != 0 && crowded && !flags.fork {
            fair.set_next_buddy(wakee);
        }
        if !preempts {
            return;
        }
        core.resched_full(cpu);
        if fair.policy.tunables.last_buddy != 0 && crowded && fair.entities[curr as usize].my_queue == NONE {
            fair.set_buddy(curr, |cfs| &mut cfs.last, true);
        }
    }

    /// `yield_task_fair`: the task is passed over once.
    fn yield_entity<G: Gathering>(fair: &mut Fair<Self, G>, _core: &mut Core<'_>, _queue: u32, index: u32) {
        fair.set_buddy(index, |cfs| &mut cfs.skip, false);
    }

    fn resched(&self, core: &mut Core<'_>, cpu: CpuId) {
        core.resched_full(cpu);
    }
}
