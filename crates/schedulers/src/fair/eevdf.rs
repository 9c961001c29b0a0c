//! EEVDF, the policy of the fair class since Linux 6.6, as of 7.2 (`docs/spec/linux-fair.md` section 1).
//!
//! Every queued entity has a virtual runtime, a lag against the queue's weighted average, and a virtual deadline one
//! request ahead. The eligible entity (lag ≥ 0) with the earliest deadline runs.
//!
//! Deliberate differences from the kernel: a queue is a sorted array instead of an augmented tree, with the same order; virtual times do not
//! wrap, and their weighted sums do not overflow, so weights are never coarser there (`sum_shift`).

mod preemption;

use warmcore_kernel::{Boot, Core, Preempt, WakeFlags};
use warmcore_topology::CpuId;

use super::queue::Removal;
use super::state::{Entity, NONE};
use super::weights::{NICE_0_LOAD, mean, virtual_delta, weighted};
use super::{CgroupMode, Fair, FairParameters, Policy};
use crate::domains::DomainParameters;
use crate::fair::gathering::Gathering;
use crate::tunables::{TunableSet as _, tunables};

tunables! {
    /// Tunables of `eevdf`.
    pub struct EevdfTunables {
        /// Request size of a normal task; 0 = 700 000 × the factor of `tunable_scaling`.
        base_slice_ns: time 0 "ns" in 0..=100_000_000 by ratio,
        /// Factor for `base_slice_ns` by number of CPUs (at most 8): 0 none, 1 = 1 + log2, 2 linear.
        tunable_scaling: choice "log" of ["none", "log", "linear"],
        /// Window in which a task counts as cache-hot; also scales new-idle balancing.
        migration_cost_ns: time 500_000 "ns" in 0..=1_000_000_000 by ratio,
        /// Tasks examined per balance pass.
        nr_migrate: count 32 "tasks" in 1..=1024 by ratio,
        /// Each application of the workload is a group of its own (`sched_autogroup`).
        autogroup: switch on,
        /// Feature PLACE_LAG: keep lag across sleep and migration.
        place_lag: switch on,
        /// Feature PLACE_DEADLINE_INITIAL: a new task's first request is half a slice.
        place_deadline_initial: switch on,
        /// Feature PLACE_REL_DEADLINE: a moved task keeps its relative deadline.
        place_rel_deadline: switch on,
        /// Feature RUN_TO_PARITY: protect a running task up to the shortest slice queued.
        run_to_parity: switch on,
        /// Feature PREEMPT_SHORT: a task with a shorter slice may cancel that protection.
        preempt_short: switch on,
        /// Feature PICK_BUDDY: a `next` buddy goes first if eligible.
        pick_buddy: switch on,
        /// Feature NEXT_BUDDY: a woken task becomes the `next` buddy.
        next_buddy: switch off,
        /// Feature DELAY_DEQUEUE: a task that sleeps with negative lag stays queued until it has paid.
        delay_dequeue: switch on,
        /// Feature DELAY_ZERO: lag gained while so queued is cut to zero.
        delay_zero: switch on,
        /// Feature WAKEUP_PREEMPTION.
        wakeup_preemption: switch on,
        /// Feature HRTICK: end slices by a high-resolution timer.
        hrtick: switch on,
        /// Feature SIS_UTIL: limit idle CPU searches by the LLC's utilisation; 0 = search all.
        sis_util: switch on,
        /// Feature NI_RANDOM: skip new-idle passes at random when they rarely succeed.
        ni_random: switch on,
        /// Feature NI_RATE: let new-idle passes through at a minimum rate.
        ni_rate: switch on,
        /// Wakeups go where they take the least energy, on machines and with a governor for which the kernel does that.
        sched_energy_aware: switch on,
        /// Rules of which kernel: 7.3 has one run queue for all groups of a CPU, as far as patches tell.
        kernel: choice "7.2" of ["7.2", "7.3"],
        /// What a task group's weight stands for: `smp` for all CPUs together, `concur` for each of as many CPUs as it has tasks, `max` for each CPU,
        /// `up` for any CPU whatever it has there, `tasks` for each of its tasks. By default as the kernel: smp, since 7.3 concur.
        cgroup_mode: choice "default" of ["default", "up", "smp", "concur", "max", "tasks"],
    }
}

/// The EEVDF policy.
pub struct Eevdf {
    tunables: EevdfTunables,
    /// Request of a normal task on this machine.
    base_slice_ns: u64,
    tick_ns: u64,
}

/// Smallest interval the high-resolution tick is armed for (`hrtick_start`).
pub(crate) const HRTICK_MIN_NS: u64 = 10_000;

/// A high-resolution tick this close to the wanted time is left alone.
const HRTICK_SLOP_NS: u64 = 5_000;

/// Unscaled base slice (`sysctl_sched_base_slice`).
pub(crate) const BASE_SLICE_NS: u64 = 700_000;

/// Slices set by hand are clamped to this.
const CUSTOM_SLICE_NS: std::ops::RangeInclusive<u64> = 100_000..=100_000_000;

/// `get_update_sysctl_factor`: how tunables grow with the number of CPUs.
pub(crate) fn scaling_factor(tunable_scaling: u64, cpus: usize) -> u64 {
    let cpus = cpus.clamp(1, 8) as u64;
    match tunable_scaling {
        0 => 1,
        2 => cpus,
        _ => 1 + u64::from(cpus.ilog2()),
    }
}

impl Eevdf {
    /// Tunables that can change in a run.
    pub(crate) const CHANGEABLE: [&'static str; 3] = ["base_slice_ns", "migration_cost_ns", "nr_migrate"];

    /// The policy in a kernel.
    pub fn new(tunables: EevdfTunables, boot: &Boot<'_>) -> Self {
        let mut policy = Self { tunables, base_slice_ns: 0, tick_ns: boot.kernel.tick_ns() };
        policy.cpus_changed(boot.machine.cpu_count());
        policy
    }

    /// Request of a normal task on this machine.
    pub fn base_slice_ns(&self) -> u64 {
        self.base_slice_ns
    }
}

impl<G: Gathering> Fair<Eevdf, G> {
    /// Weighted average of virtual runtimes, rounded down (`avg_vruntime`); the queue's reference point moves there.
    pub(crate) fn avg_vruntime(&mut self, queue: u32) -> i64 {
        let cfs = &mut self.queues[queue as usize];
        let (mut sum, mut weight) = (cfs.sum_weighted_key, cfs.sum_weight);
        if cfs.curr != NONE {
            let curr = &self.entities[cfs.curr as usize];
            if curr.on_rq {
                sum += weighted(curr.vruntime - cfs.zero_vruntime, curr.share);
                weight += i64::from(curr.share);
            }
        }
        if weight != 0 && (sum < 0 || sum >= i128::from(weight)) {
            // Rounding down keeps an entity at exactly the average eligible.
            let delta = mean(sum, weight);
            cfs.zero_vruntime += delta;
            cfs.sum_weighted_key -= i128::from(delta) * i128::from(cfs.sum_weight);
        }
        cfs.zero_vruntime
    }

    /// The same average without moving the reference point.
    fn present_average(&self, queue: u32) -> i64 {
        let cfs = &self.queues[queue as usize];
        let (mut sum, mut weight) = (cfs.sum_weighted_key, cfs.sum_weight);
        let curr = (cfs.curr != NONE).then(|| &self.entities[cfs.curr as usize]);
        if let Some(curr) = curr.filter(|curr| curr.on_rq) {
            sum += weighted(curr.vruntime - cfs.zero_vruntime, curr.share);
            weight += i64::from(curr.share);
        }
        cfs.zero_vruntime + if weight == 0 { 0 } else { mean(sum, weight) }
    }

    /// Whether an entity has received no more than its share (`entity_eligible`).
    ///
    /// `Σ w (v_i − v0) ≥ (v − v0) Σ w` is the same as `v ≤ v0 + ⌊Σ w (v_i − v0) / Σ w⌋` for integers, so comparing with
    /// the average rounded down is exact.
    fn eligible(&mut self, queue: u32, index: u32) -> bool {
        self.entities[index as usize].vruntime <= self.avg_vruntime(queue)
    }

    #[inline]
    fn extreme_slice(&self, queue: u32, better: impl Fn(u64, u64) -> u64) -> u64 {
        let cfs = &self.queues[queue as usize];
        if cfs.custom_slices == 0 {
            return self.policy.base_slice_ns;
        }
        let curr = (cfs.curr != NONE).then_some(cfs.curr).filter(|&curr| self.entities[curr as usize].on_rq);
        cfs.tree
            .iter()
            .map(|node| node.entity)
            .chain(curr)
            .map(|entity| self.entities[entity as usize].slice_ns)
            .reduce(better)
            .unwrap_or(self.policy.base_slice_ns)
    }

    /// `cfs_rq_min_slice`.
    fn min_slice(&self, queue: u32) -> u64 {
        self.extreme_slice(queue, u64::min)
    }

    /// `cfs_rq_max_slice`.
    fn max_slice(&self, queue: u32) -> u64 {
        self.extreme_slice(queue, u64::max)
    }

    /// `entity_lag`: lag of an entity, clamped.
    #[inline]
    fn entity_lag(&mut self, queue: u32, index: u32) -> i64 {
        let average = self.avg_vruntime(queue);
        let max_slice = self.max_slice(queue);
        let entity = &self.entities[index as usize];
        let limit = virtual_delta(max_slice + self.policy.tick_ns, entity.share);
        (average - entity.vruntime).clamp(-limit, limit)
    }

    fn refresh_slice(&mut self, index: u32) {
        let entity = &mut self.entities[index as usize];
        if !entity.custom_slice {
            entity.slice_ns = self.policy.base_slice_ns;
        }
    }

    /// `place_entity`: gives an entity that joins a queue its virtual runtime and deadline.
    #[inline]
    fn place_entity(&mut self, queue: u32, index: u32, initial: bool) {
        self.refresh_slice(index);
        let average = self.avg_vruntime(queue);
        let cfs = &self.queues[queue as usize];
        let entity = &self.entities[index as usize];
        let mut lag = 0;
        if self.policy.tunables.place_lag != 0 && cfs.nr_queued > 0 && entity.vlag != 0 {
            let mut load = cfs.sum_weight;
            if cfs.curr != NONE && self.entities[cfs.curr as usize].on_rq {
                load += i64::from(self.entities[cfs.curr as usize].share);
            }
            // Inflated, so that the lag against the average that includes this entity is the one it left with.
            lag =
                (i128::from(entity.vlag) * i128::from(load + i64::from(entity.share)) / i128::from(load.max(1))) as i64;
        }
        let half = initial && self.policy.tunables.place_deadline_initial != 0;
        let entity = &mut self.entities[index as usize];
        entity.vruntime = average - lag;
        if std::mem::take(&mut entity.rel_deadline) {
            entity.deadline += entity.vruntime;
            return;
        }
        let request = virtual_delta(entity.slice_ns, entity.share);
        entity.deadline = entity.vruntime + if half { request / 2 } else { request };
    }

    /// `pick_eevdf`.
    fn pick_eevdf(&mut self, queue: u32, protect: bool) -> u32 {
        let cfs = &self.queues[queue as usize];
        let curr = if cfs.curr != NONE && self.entities[cfs.curr as usize].on_rq { cfs.curr } else { NONE };
        if cfs.nr_queued == 1 {
            return if curr != NONE { curr } else { cfs.tree.first().map_or(NONE, |node| node.entity) };
        }
        let average = self.avg_vruntime(queue);
        let cfs = &self.queues[queue as usize];
        if self.policy.tunables.pick_buddy != 0
            && protect
            && cfs.next != NONE
            && self.entities[cfs.next as usize].vruntime <= average
        {
            return cfs.next;
        }
        let curr = if curr != NONE && self.entities[curr as usize].vruntime <= average { curr } else { NONE };
        if protect && curr != NONE && self.entities[curr as usize].vruntime < self.entities[curr as usize].vprot {
            return curr;
        }
        let best = cfs.tree.iter().find(|node| node.vruntime <= average);
        match best {
            Some(best) if curr == NONE || self.entities[curr as usize].deadline >= best.key => best.entity,
            _ => curr,
        }
    }

    /// `hrtick_start_fair`. An armed tick stays as it is where there is nothing to arm or next to nothing to change.
    ///
    /// `switching`: the task is being switched in, and the delay counts from the end of that (`hrtick_schedule_exit`).
    fn start_hrtick(&mut self, core: &mut Core<'_>, cpu: CpuId, index: u32, switching: bool) {
        if self.policy.tunables.hrtick == 0 || self.queues[cpu.index()].h_nr_queued <= 1 {
            return;
        }
        let entity = &self.entities[index as usize];
        let left = entity.deadline - entity.vruntime;
        if left < 0 {
            if !switching {
                core.resched_full(cpu);
            }
            return;
        }
        // The kernel rounds down, and its interrupt comes later than that: the deadline has passed when it looks. Here an
        // interrupt comes at once, so the time is rounded up.
        let real = match entity.share {
            NICE_0_LOAD => left as u64,
            share => (left as u64 * u64::from(share)).div_ceil(u64::from(NICE_0_LOAD)),
        };
        let switch_ns = if switching { core.machine().costs().context_switch_ns } else { 0 };
        // What it is charged with already is no part of the rest of its request.
        let charged_ns = core.clock_task_ns(cpu) - core.now_ns();
        let delay = charged_ns + real.max(HRTICK_MIN_NS) + switch_ns;
        let wanted = core.now_ns() + delay;
        if core.hrtick_at_ns(cpu).is_some_and(|at| at.abs_diff(wanted) <= HRTICK_SLOP_NS) {
            return;
        }
        core.start_hrtick(cpu, delay);
    }
}

impl Policy for Eevdf {
    const NAME: &'static str = "eevdf";
    const WEIGHTED_AVERAGE: bool = true;
    const SCORES: &'static [&'static str] = &["vlag_ns", "deadline_ns"];

    fn score<G: Gathering>(fair: &Fair<Self, G>, index: u32, score: usize) -> i64 {
        let entity = &fair.entities[index as usize];
        let average = fair.present_average(fair.competes_in(index));
        if score == 0 { average - entity.vruntime } else { entity.deadline - average }
    }

    fn fair_parameters(&self) -> FairParameters {
        let tunables = &self.tunables;
        FairParameters {
            migration_cost_ns: tunables.migration_cost_ns,
            nr_migrate: tunables.nr_migrate as u32,
            domains: DomainParameters::default(),
            load_only_balance: false,
            rules_of_4_9: false,
            newidle_random: tunables.ni_random != 0,
            newidle_rate: tunables.ni_rate != 0,
            sis_util: tunables.sis_util != 0,
            energy_aware: tunables.sched_energy_aware != 0,
            flat: tunables.kernel != 0,
            cgroup_mode: CgroupMode::new(tunables.cgroup_mode, tunables.kernel != 0),
        }
    }

    /// Requests and protection that have begun stay as they are (`sysctl_sched_base_slice` is read when a request is made).
    fn set_tunable(&mut self, name: &str, value: u64) -> bool {
        if !Self::CHANGEABLE.contains(&name) || !self.tunables.set(name, value) {
            return false;
        }
        if name == "base_slice_ns" {
            self.base_slice_ns = value;
        }
        true
    }

    fn cpus_changed(&mut self, cpus: usize) {
        self.base_slice_ns = match self.tunables.base_slice_ns {
            0 => BASE_SLICE_NS * scaling_factor(self.tunables.tunable_scaling, cpus),
            set => set,
        };
    }

    fn autogroup(&self) -> bool {
        self.tunables.autogroup != 0
    }

    fn key(entity: &Entity) -> i64 {
        entity.deadline
    }

    fn set_slice<G: Gathering>(fair: &mut Fair<Self, G>, index: u32, slice_ns: u64) {
        let entity = &mut fair.entities[index as usize];
        entity.custom_slice = slice_ns != 0;
        entity.slice_ns = if slice_ns == 0 {
            fair.policy.base_slice_ns
        } else {
            slice_ns.clamp(*CUSTOM_SLICE_NS.start(), *CUSTOM_SLICE_NS.end())
        };
    }

    /// The shortest request of the queue; one that nobody asked for is the default, as a task's.
    fn follow_slices<G: Gathering>(fair: &mut Fair<Self, G>, group_entity: u32, queue: u32) {
        let slice_ns = fair.min_slice(queue);
        let custom = slice_ns != fair.policy.base_slice_ns;
        let entity = &mut fair.entities[group_entity as usize];
        if entity.on_rq {
            let cfs = &mut fair.queues[entity.queue as usize];
            cfs.custom_slices = cfs.custom_slices + u32::from(custom) - u32::from(entity.custom_slice);
        }
        (entity.custom_slice, entity.slice_ns) = (custom, slice_ns);
    }

    /// `update_deadline` and the end of `update_curr`.
    fn charged<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, queue: u32, curr: u32) {
        let base_slice_ns = fair.policy.base_slice_ns;
        let entity = &mut fair.entities[curr as usize];
        let expired = entity.vruntime >= entity.deadline;
        if expired {
            if !entity.custom_slice {
                entity.slice_ns = base_slice_ns;
            }
            entity.deadline = entity.vruntime + virtual_delta(entity.slice_ns, entity.share);
        }
        let unprotected = entity.vruntime >= entity.vprot;
        let cfs = &fair.queues[queue as usize];
        if cfs.nr_queued == 1 || !(expired || unprotected) {
            return;
        }
        let cpu = CpuId(cfs.cpu);
        fair.clear_buddies(queue, curr);
        fair.policy.resched(core, cpu);
    }

    fn place<G: Gathering>(fair: &mut Fair<Self, G>, _core: &mut Core<'_>, queue: u32, index: u32, initial: bool) {
        if initial {
            fair.entities[index as usize].vlag = 0;
        }
        fair.place_entity(queue, index, initial);
    }

    fn replace<G: Gathering>(fair: &mut Fair<Self, G>, _core: &mut Core<'_>, queue: u32, index: u32) {
        fair.place_entity(queue, index, false);
    }

    fn average<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32) -> i64 {
        fair.avg_vruntime(queue)
    }

    fn rejoin<G: Gathering>(fair: &mut Fair<Self, G>, index: u32, average: i64) {
        let entity = &mut fair.entities[index as usize];
        entity.vruntime = average - entity.vlag;
        entity.deadline += entity.vruntime;
        entity.rel_deadline = false;
    }

    fn delays_dequeue<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32) -> bool {
        fair.policy.tunables.delay_dequeue != 0 && !fair.eligible(queue, index)
    }

    /// `update_entity_lag`.
    fn save_lag<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32) {
        let lag = fair.entity_lag(queue, index);
        let entity = &mut fair.entities[index as usize];
        entity.vlag = if entity.delayed { lag.max(entity.vlag) } else { lag };
    }

    fn left<G: Gathering>(fair: &mut Fair<Self, G>, index: u32, removal: Removal) {
        let keep_deadline = fair.policy.tunables.place_rel_deadline != 0;
        let zero = fair.policy.tunables.delay_zero != 0;
        let entity = &mut fair.entities[index as usize];
        if removal == Removal::Save && keep_deadline && !entity.delayed {
            entity.deadline -= entity.vruntime;
            entity.rel_deadline = true;
        }
        if entity.delayed && zero {
            entity.vlag = entity.vlag.min(0);
        }
    }

    /// Lag is relative to any queue's average.
    fn moved_asleep<G: Gathering>(_fair: &mut Fair<Self, G>, _index: u32, _from: u32, _to: u32) {}

    fn rescale<G: Gathering>(fair: &mut Fair<Self, G>, _queue: u32, index: u32, weight: u32, queued: bool) {
        let entity = &mut fair.entities[index as usize];
        let scale = |value: i64| (i128::from(value) * i128::from(entity.share) / i128::from(weight.max(1))) as i64;
        if queued {
            let deadline = scale(entity.deadline - entity.vruntime);
            let protection = scale(entity.vprot - entity.vruntime);
            let vlag = scale(entity.vlag);
            entity.deadline = deadline;
            entity.rel_deadline = true;
            entity.vlag = vlag;
            // Kept relative until `replaced` gives the entity its new virtual runtime.
            entity.vprot = protection;
        } else {
            entity.vlag = scale(entity.vlag);
            if entity.rel_deadline {
                entity.deadline = scale(entity.deadline);
            }
        }
    }

    fn rescaled<G: Gathering>(fair: &mut Fair<Self, G>, index: u32) {
        let entity = &mut fair.entities[index as usize];
        entity.vprot += entity.vruntime;
    }

    /// `requeue_delayed_entity`.
    fn requeue<G: Gathering>(fair: &mut Fair<Self, G>, _core: &mut Core<'_>, queue: u32, index: u32) {
        if fair.policy.tunables.delay_zero == 0 {
            return;
        }
        Self::save_lag(fair, queue, index);
        if fair.entities[index as usize].vlag <= 0 {
            return;
        }
        let runs = fair.queues[queue as usize].curr == index;
        if !runs {
            fair.tree_remove(queue, index);
        }
        fair.queues[queue as usize].nr_queued -= 1;
        fair.entities[index as usize].on_rq = false;
        fair.entities[index as usize].vlag = 0;
        fair.place_entity(queue, index, false);
        fair.entities[index as usize].on_rq = true;
        fair.queues[queue as usize].nr_queued += 1;
        if !runs {
            fair.tree_insert(queue, index);
        }
    }

    fn pick<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32) -> u32 {
        fair.pick_eevdf(queue, true)
    }

    fn is_eligible<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32) -> bool {
        fair.eligible(queue, index)
    }

    fn switched_in<G: Gathering>(fair: &mut Fair<Self, G>, queue: u32, index: u32) {
        fair.protect_slice(queue, index);
    }

    fn task_switched_in<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, cpu: CpuId, index: u32) {
        fair.start_hrtick(core, cpu, index, true);
    }

    /// `hrtick_update`: a second task arrived and nothing is armed.
    fn enqueued<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, cpu: CpuId) {
        if fair.policy.tunables.hrtick == 0 || core.hrtick_at_ns(cpu).is_some() {
            return;
        }
        let curr = fair.rqs[cpu.index()].curr_task;
        if curr != NONE && fair.entities[curr as usize].on_rq {
            fair.start_hrtick(core, cpu, curr, false);
        }
    }

    fn tick<G: Gathering>(_fair: &mut Fair<Self, G>, _core: &mut Core<'_>, _cpu: CpuId, _queue: u32, _index: u32) {}

    fn wakeup_preempt<G: Gathering>(
        fair: &mut Fair<Self, G>,
        core: &mut Core<'_>,
        cpu: CpuId,
        curr: u32,
        wakee: u32,
        flags: WakeFlags,
    ) {
        fair.preempt_at_wakeup(core, cpu, (curr, wakee), flags);
    }

    /// The feature comes before policies (`wakeup_preempt_fair`), in CFS after that one.
    fn preempts_idle_policy(&self) -> bool {
        self.tunables.wakeup_preemption != 0
    }

    fn spared<G: Gathering>(fair: &mut Fair<Self, G>, core: &mut Core<'_>, curr: u32) {
        fair.spare_since_7_3(core, curr);
    }

    /// `yield_task_fair`: an eligible task gives up the rest of its request.
    fn yield_entity<G: Gathering>(fair: &mut Fair<Self, G>, _core: &mut Core<'_>, queue: u32, index: u32) {
        if fair.eligible(queue, index) {
            let entity = &mut fair.entities[index as usize];
            entity.vruntime = entity.deadline;
            entity.deadline += virtual_delta(entity.slice_ns, entity.share);
        }
    }

    fn resched(&self, core: &mut Core<'_>, cpu: CpuId) {
        if core.parameters().preempt == Preempt::Lazy { core.resched_lazy(cpu) } else { core.resched_full(cpu) }
    }
}
