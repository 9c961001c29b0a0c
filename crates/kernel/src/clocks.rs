//! Frequencies of CPUs in a run, the governors that choose them, idle states, and the energy that both take.
//!
//! There are none of these unless the experiment's kernel has a [`Governor`]. Work is stated at the reference frequency of a CPU's kind of
//! core: cycles of a core go by the frequency, time in memory does not. `docs/models/frequency.md` says what is modelled and what differs.
//!
//! Source: Linux 7.2 `kernel/sched/cpufreq_schedutil.c` (`sugov_get_util`, `sugov_effective_cpu_perf`, `get_next_freq`, `sugov_hold_freq`,
//! `sugov_update_next_freq`), `kernel/sched/syscalls.c` (`effective_cpu_util`), `drivers/cpufreq/cpufreq.c`
//! (`cpufreq_policy_transition_delay_us`), `drivers/cpuidle/governors/menu.c` (the deepest state that is worth it).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use warmcore_memory::analytic::SPEED_ONE;
use warmcore_topology::{CoreId, CoreKind, CpuId, Machine};

use crate::clamps::Clamp;
use crate::engine::Engine;
use crate::event_queue::Class;
use crate::io_boost::IoBoost;
use crate::memory::Memory;
use crate::parameters::KernelParameters;
use crate::scheduler::Scheduler;

/// Generation of [`Class::Background`] events that put a requested frequency into force; payload is the clock.
pub(crate) const TRANSITION: u32 = 2;
/// Generation of those that ask the governor of their CPU, as soon as the scheduler's call is over.
pub(crate) const ASKED: u32 = 4;

/// Capacity of the biggest CPU, and the scale of frequencies (`SCHED_CAPACITY_SCALE`).
pub const CAPACITY_SCALE: u32 = 1024;

/// `cpufreq_policy_transition_delay_us` of a driver that states no latency.
const DEFAULT_RATE_LIMIT_NS: u64 = 1_000_000;

/// Who chooses frequencies (`scaling_governor`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Governor {
    /// None: each CPU runs at its reference frequency, and frequencies, idle states and energy are not simulated.
    #[default]
    Fixed,
    /// Always the highest, as far as turbo lets.
    Performance,
    /// Always the lowest.
    Powersave,
    /// By the scheduler's utilisation.
    Schedutil,
}

/// What a scheduler wants of a CPU's speed, on the scale of capacities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Utilisation {
    /// Utilisation, of which `schedutil` makes 1.25 times as much.
    pub used: u32,
    /// The part of it that is not for tasks that wait (`cpu_util_cfs`).
    pub running: u32,
    /// Speed that it must not go below.
    pub least: u32,
    /// A sched_ext program that has all tasks wants it: a CPU that stays busy becomes slower too (`scx_switched_all` in `sugov_hold_freq`).
    pub at_once: bool,
}

impl Utilisation {
    /// Full speed: what a sched_ext program wants that sets no target (`SCX_CPUPERF_ONE`).
    pub const FULL: Self = Self { used: CAPACITY_SCALE, running: CAPACITY_SCALE, least: 0, at_once: false };
}

/// The same with the CPU's utilisation clamps.
#[derive(Clone, Copy)]
struct Wanted {
    used: u32,
    least: u32,
    most: u32,
    /// Its tasks are held below what they would use (`uclamp_rq_is_capped`), or the wish is for at once.
    capped: bool,
}

impl Wanted {
    #[inline]
    fn new(Utilisation { used, running, least, at_once }: Utilisation, clamp: Clamp) -> Self {
        let capped = at_once || clamp.max < CAPACITY_SCALE && running >= clamp.max;
        Self { used, least: least.max(clamp.min), most: clamp.max, capped }
    }

    /// Performance to ask for on a CPU of a capacity (`sugov_effective_cpu_perf`).
    fn performance(self, boosted: u64, capacity: u64) -> u64 {
        let used = u64::from(self.used).min(capacity).max(boosted);
        let most = u64::from(self.most).min(capacity);
        (used + used / 4).min(most).max(u64::from(self.least).min(capacity))
    }
}

/// CPUs with one frequency (`struct cpufreq_policy`).
struct Clock {
    kind: usize,
    socket: u32,
    cpus: Vec<CpuId>,
    /// What the governor chose last, when, and what it had computed before it looked for a frequency that there is.
    next_mhz: u32,
    chosen_ns: u64,
    cached_raw_mhz: u64,
    /// What was chosen and has taken effect.
    requested_mhz: u32,
    /// What it runs at: that, or what turbo leaves of it.
    mhz: u32,
    /// How often its CPU had gone idle when the governor was asked last.
    seen_idle: u64,
}

/// A core's account of energy.
struct CoreEnergy {
    cpus: Vec<CpuId>,
    clock: u32,
    kind: usize,
    socket: u32,
    /// Its hardware threads that are busy.
    busy: u32,
    /// Idle state, if it is idle.
    idle_state: Option<usize>,
    since_ns: u64,
    /// µW × ns.
    used_fj: u128,
}

/// Frequencies and idle states of a machine's CPUs.
pub(crate) struct Clocks<'a> {
    governor: Governor,
    kinds: &'a [CoreKind],
    rate_limit_us: u64,
    clocks: Vec<Clock>,
    /// By CPU.
    clock: Vec<u32>,
    core: Vec<u32>,
    capacity: Vec<u32>,
    cores: Vec<CoreEnergy>,
    /// By socket: cores with a busy thread.
    active: Vec<u32>,
    /// By CPU: how often it has gone idle, and the state that it chose.
    idle_calls: Vec<u64>,
    idle_state: Vec<Option<usize>>,
    /// By CPU: whether it is offline.
    offline: Vec<bool>,
    /// By CPU: whether an event asks the governor that has not come yet.
    pub asked: Vec<bool>,
    /// By CPU: what tasks that come from I/O make of its utilisation.
    pub boosts: Vec<IoBoost>,
    tick_ns: u64,
    /// By CPU: when its timers run out.
    timers: Vec<BinaryHeap<Reverse<u64>>>,
    has_energy_model: bool,
}

impl<'a> Clocks<'a> {
    /// Those of a machine, if its kernel has a governor.
    pub fn new(machine: &'a Machine, parameters: &KernelParameters) -> Option<Self> {
        let kinds = machine.core_kinds();
        if parameters.governor == Governor::Fixed || kinds.is_empty() {
            return None;
        }
        let mut numbers = BTreeMap::new();
        let mut clocks: Vec<Clock> = Vec::new();
        let mut clock = Vec::new();
        for cpu in machine.cpus() {
            let key = machine.clock_of(cpu)?;
            let number = *numbers.entry(key).or_insert_with(|| {
                let start = match parameters.governor {
                    Governor::Performance => kinds[key.0].highest_mhz(),
                    _ => kinds[key.0].lowest_mhz(),
                };
                clocks.push(Clock {
                    kind: key.0,
                    socket: machine.socket_of(cpu).0,
                    cpus: Vec::new(),
                    next_mhz: start,
                    chosen_ns: 0,
                    cached_raw_mhz: 0,
                    requested_mhz: start,
                    mhz: start,
                    seen_idle: 0,
                });
                clocks.len() as u32 - 1
            });
            clocks[number as usize].cpus.push(cpu);
            clock.push(number);
        }
        let cores = (0..machine.core_count() as u32).map(|core| {
            let cpus: Vec<CpuId> = machine.cpus_of_core(CoreId(core)).iter().collect();
            let cpu = cpus[0];
            CoreEnergy {
                cpus,
                clock: clock[cpu.index()],
                kind: clocks[clock[cpu.index()] as usize].kind,
                socket: machine.socket_of(cpu).0,
                busy: 0,
                idle_state: None,
                since_ns: 0,
                used_fj: 0,
            }
        });
        let cpus = machine.cpu_count();
        let mut clocks = Self {
            governor: parameters.governor,
            kinds,
            rate_limit_us: parameters.rate_limit_us,
            cores: cores.collect(),
            clocks,
            clock,
            core: machine.cpus().map(|cpu| machine.core_of(cpu).0).collect(),
            capacity: machine.cpus().map(|cpu| machine.capacity(cpu)).collect(),
            active: vec![0; machine.socket_count()],
            idle_calls: vec![0; cpus],
            idle_state: vec![None; cpus],
            offline: vec![false; cpus],
            asked: vec![false; cpus],
            boosts: vec![IoBoost::default(); cpus],
            tick_ns: parameters.tick_ns(),
            timers: vec![BinaryHeap::new(); cpus],
            has_energy_model: machine.has_energy_model(),
        };
        for cpu in machine.cpus() {
            clocks.choose_idle_state(0, cpu);
        }
        Some(clocks)
    }

    fn kind_of(&self, cpu: CpuId) -> &'a CoreKind {
        &self.kinds[self.clocks[self.clock[cpu.index()] as usize].kind]
    }

    /// Frequency of a CPU, 1024 = its highest (`arch_scale_freq_capacity`).
    pub fn frequency_scale(&self, cpu: CpuId) -> u32 {
        let clock = &self.clocks[self.clock[cpu.index()] as usize];
        clock.mhz * CAPACITY_SCALE / self.kinds[clock.kind].highest_mhz()
    }

    /// Speed of a CPU, 1024 = that of the biggest at its highest frequency.
    fn speed_scale(&self, cpu: CpuId) -> f64 {
        let clock = &self.clocks[self.clock[cpu.index()] as usize];
        f64::from(self.capacity[cpu.index()]) * f64::from(clock.mhz) / f64::from(self.kinds[clock.kind].highest_mhz())
    }

    /// Clock of a CPU by its reference, [`SPEED_ONE`] = 1.
    fn ratio(&self, cpu: CpuId) -> u32 {
        let clock = &self.clocks[self.clock[cpu.index()] as usize];
        let reference = u64::from(self.kinds[clock.kind].reference_mhz);
        (u64::from(clock.mhz) * u64::from(SPEED_ONE) / reference).max(1) as u32
    }

    /// A timer of a task was armed on a CPU. Those that have run out go, also where the CPU never idles.
    pub fn timer_armed(&mut self, now_ns: u64, cpu: CpuId, at_ns: u64) {
        self.next_timer_ns(now_ns, cpu);
        self.timers[cpu.index()].push(Reverse(at_ns));
    }

    /// When the CPU's next timer runs out, if it has one.
    fn next_timer_ns(&mut self, now_ns: u64, cpu: CpuId) -> Option<u64> {
        let timers = &mut self.timers[cpu.index()];
        while timers.peek().is_some_and(|Reverse(at_ns)| *at_ns <= now_ns) {
            timers.pop();
        }
        timers.peek().map(|Reverse(at_ns)| *at_ns)
    }

    /// Time to leave the idle state of a CPU, if its kind states any.
    pub fn idle_exit_ns(&self, cpu: CpuId) -> Option<u64> {
        self.idle_state[cpu.index()].map(|state| self.kind_of(cpu).idle[state].exit_ns)
    }

    /// The deepest state whose residency ends before the CPU's next timer; the shallowest if none does. Offline it is the deepest
    /// (`cpuidle_play_dead`).
    fn choose_idle_state(&mut self, now_ns: u64, cpu: CpuId) {
        let next_ns = self.next_timer_ns(now_ns, cpu).filter(|_| !self.offline[cpu.index()]);
        let sleeps_ns = next_ns.map_or(u64::MAX, |at_ns| at_ns - now_ns);
        let states = &self.kind_of(cpu).idle;
        let worth = states.iter().rposition(|state| state.residency_ns <= sleeps_ns);
        self.idle_state[cpu.index()] = worth.or((!states.is_empty()).then_some(0));
        let core = self.core[cpu.index()] as usize;
        if self.cores[core].busy == 0 {
            // Its threads idle together as deeply as the shallowest of them.
            let own = self.idle_state[cpu.index()];
            let threads = self.cores[core].cpus.iter();
            self.cores[core].idle_state = threads.filter_map(|thread| self.idle_state[thread.index()]).min().or(own);
        }
    }

    /// A CPU goes offline or comes online.
    pub fn plugged(&mut self, now_ns: u64, cpu: CpuId, online: bool) {
        self.offline[cpu.index()] = !online;
        if self.idle_state[cpu.index()].is_some() {
            self.charge(now_ns, self.core[cpu.index()] as usize);
            self.choose_idle_state(now_ns, cpu);
        }
    }

    /// Adds what a core has used since its state last changed.
    fn charge(&mut self, now_ns: u64, core: usize) {
        if !self.has_energy_model {
            return;
        }
        let used_fj = self.used_fj(now_ns, &self.cores[core]);
        let account = &mut self.cores[core];
        (account.used_fj, account.since_ns) = (used_fj, now_ns);
    }

    /// What a core has used up to now.
    fn used_fj(&self, now_ns: u64, account: &CoreEnergy) -> u128 {
        let kind = &self.kinds[account.kind];
        let power_uw = match account.idle_state {
            _ if account.busy > 0 => kind.busy_power_uw(self.clocks[account.clock as usize].mhz),
            Some(state) => kind.idle[state].power_uw.unwrap_or(0),
            None => 0,
        };
        account.used_fj + u128::from(power_uw) * u128::from(now_ns - account.since_ns)
    }

    /// Energy of all cores so far in µJ, if the machine has a model.
    pub fn energy_uj(&self, now_ns: u64) -> Option<u64> {
        if !self.has_energy_model {
            return None;
        }
        let fj: u128 = self.cores.iter().map(|account| self.used_fj(now_ns, account)).sum();
        Some((fj / 1_000_000_000) as u64)
    }

    /// A CPU goes idle or gets busy. The socket whose turbo changes with it.
    fn turned(&mut self, now_ns: u64, cpu: CpuId, busy: bool) -> Option<u32> {
        let core = self.core[cpu.index()] as usize;
        self.charge(now_ns, core);
        let account = &mut self.cores[core];
        let before = account.busy;
        account.busy = if busy { before + 1 } else { before - 1 };
        let (after, socket) = (account.busy, account.socket);
        if busy {
            self.idle_state[cpu.index()] = None;
        } else {
            self.idle_calls[cpu.index()] += 1;
            self.choose_idle_state(now_ns, cpu);
        }
        if (before == 0) == (after == 0) {
            return None;
        }
        let active = &mut self.active[socket as usize];
        let limit = |kind: &CoreKind, active: u32| kind.limit_mhz(active);
        let old = *active;
        *active = if busy { old + 1 } else { old - 1 };
        let new = *active;
        self.kinds.iter().any(|kind| limit(kind, old) != limit(kind, new)).then_some(socket)
    }

    /// What the governor wants when it is asked for a CPU. It is asked for a task that comes from I/O before it is asked for the queue.
    fn ask(&mut self, now_ns: u64, cpu: CpuId, wanted: impl Fn(CpuId) -> Wanted) -> Option<u32> {
        let boost = &mut self.boosts[cpu.index()];
        let (woken, due) = (std::mem::take(&mut boost.woken), boost.period_passed(now_ns));
        boost.ask(now_ns, self.tick_ns, woken);
        let number = self.clock[cpu.index()] as usize;
        let next_mhz = self.next_mhz(now_ns, number, woken || due, &wanted);
        if woken && due && next_mhz.is_none() { self.next_mhz(now_ns, number, true, wanted) } else { next_mhz }
    }

    /// What the governor wants now of a clock, given what the scheduler wants of its CPUs; `None` if that is what it wanted before, or if
    /// it changed its mind too lately. `due`: boosts of tasks that came from I/O take part, and wear off.
    fn next_mhz(&mut self, now_ns: u64, number: usize, due: bool, wanted: impl Fn(CpuId) -> Wanted) -> Option<u32> {
        let clock = &self.clocks[number];
        let kind = &self.kinds[clock.kind];
        let rate_limit_ns = match (self.rate_limit_us, kind.transition_ns) {
            (0, 0) => DEFAULT_RATE_LIMIT_NS,
            (0, latency_ns) => latency_ns + latency_ns / 2,
            (limit_us, _) => limit_us * 1000,
        };
        if clock.chosen_ns != 0 && now_ns - clock.chosen_ns < rate_limit_ns {
            return None;
        }
        let capacity = u64::from(self.capacity[clock.cpus[0].index()]);
        let (boosts, tick_ns) = (&mut self.boosts, self.tick_ns);
        let performance = |cpu: &CpuId| {
            let boost = &mut boosts[cpu.index()];
            let boosted = if due { boost.apply(now_ns, tick_ns, capacity) } else { boost.present(capacity) };
            wanted(*cpu).performance(boosted, capacity)
        };
        // A policy's CPUs are those that are online (`policy->cpus`).
        let online = clock.cpus.iter().filter(|cpu| !self.offline[cpu.index()]);
        let performance = online.map(performance).max()?;
        let raw_mhz = u64::from(kind.highest_mhz()) * performance / capacity;
        // One that is held below what it uses must not keep what it had.
        let only =
            (clock.cpus.len() == 1 && !wanted(clock.cpus[0]).capped).then(|| self.idle_calls[clock.cpus[0].index()]);
        let clock = &mut self.clocks[number];
        // A CPU that has not been idle since the governor was asked last keeps its frequency.
        let stays_busy = only.is_some_and(|calls| std::mem::replace(&mut clock.seen_idle, calls) == calls);
        if raw_mhz == clock.cached_raw_mhz {
            return None;
        }
        let mhz = kind.resolve_mhz(raw_mhz as u32);
        if stays_busy && mhz < clock.next_mhz {
            return None;
        }
        clock.cached_raw_mhz = raw_mhz;
        if mhz == clock.next_mhz {
            return None;
        }
        (clock.next_mhz, clock.chosen_ns) = (mhz, now_ns);
        Some(mhz)
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Puts the frequencies of the beginning into force.
    pub(crate) fn start_clocks(&mut self) {
        let count = self.core.clocks.as_ref().map_or(0, |clocks| clocks.clocks.len());
        for number in 0..count {
            self.tell_frequency(number);
        }
    }

    /// The scheduler's utilisation of a CPU may have changed (`cpufreq_update_util`).
    #[inline(always)]
    pub(crate) fn update_frequency(&mut self, cpu: CpuId) {
        if self.core.clocks.is_some() {
            self.ask_governor(cpu);
        }
    }

    #[inline(never)]
    fn ask_governor(&mut self, cpu: CpuId) {
        let Some(mut clocks) = self.core.clocks.take() else { return };
        let number = clocks.clock[cpu.index()];
        let mut requested = None;
        if clocks.governor == Governor::Schedutil {
            let (scheduler, core) = (&self.scheduler, &self.core);
            let wanted = |cpu| Wanted::new(scheduler.utilisation(core, cpu), core.cpu_clamp(cpu).0);
            requested = clocks.ask(core.now_ns, cpu, wanted);
        }
        let transition_ns = self.core.machine.core_kinds()[clocks.clocks[number as usize].kind].transition_ns;
        self.core.clocks = Some(clocks);
        match requested {
            None => {}
            Some(_) if transition_ns == 0 => self.frequency_reached(number),
            Some(_) => {
                let at_ns = self.core.now_ns + transition_ns;
                self.core.queue.push(at_ns, Class::Background, cpu, number, TRANSITION);
            }
        }
    }

    /// The scheduler wanted another speed of the CPU ([`Core::ask_governor`](crate::core::Core::ask_governor)).
    pub(crate) fn asked_for(&mut self, cpu: CpuId) {
        if let Some(clocks) = &mut self.core.clocks {
            clocks.asked[cpu.index()] = false;
            self.ask_governor(cpu);
        }
    }

    /// A clock has come to the frequency that it was asked for last.
    pub(crate) fn frequency_reached(&mut self, number: u32) {
        let Some(clocks) = &mut self.core.clocks else { return };
        let clock = &mut clocks.clocks[number as usize];
        clock.requested_mhz = clock.next_mhz;
        self.limit_frequency(number as usize);
    }

    /// A CPU goes idle, or stops being idle: at the same place where its account of idle and busy time changes.
    #[inline(always)]
    pub(crate) fn cpu_turned(&mut self, cpu: CpuId, busy: bool) {
        if self.core.clocks.is_some() {
            self.cpu_turns(cpu, busy);
        }
    }

    #[inline(never)]
    fn cpu_turns(&mut self, cpu: CpuId, busy: bool) {
        let now_ns = self.core.now_ns;
        let Some(clocks) = &mut self.core.clocks else { return };
        let Some(socket) = clocks.turned(now_ns, cpu, busy) else { return };
        for number in 0..clocks.clocks.len() {
            if self.core.clocks.as_ref().is_some_and(|clocks| clocks.clocks[number].socket == socket) {
                self.limit_frequency(number);
            }
        }
    }

    /// Puts what is requested of a clock into force, as far as turbo lets.
    fn limit_frequency(&mut self, number: usize) {
        let now_ns = self.core.now_ns;
        let Some(clocks) = &mut self.core.clocks else { return };
        let clock = &clocks.clocks[number];
        let limit_mhz = clocks.kinds[clock.kind].limit_mhz(clocks.active[clock.socket as usize].max(1));
        let mhz = clock.requested_mhz.min(limit_mhz);
        if mhz == clock.mhz {
            return;
        }
        for core in 0..clocks.cores.len() {
            if clocks.cores[core].clock as usize == number {
                clocks.charge(now_ns, core);
            }
        }
        clocks.clocks[number].mhz = mhz;
        self.tell_frequency(number);
    }

    /// The memory and the scheduler learn of a clock's frequency.
    fn tell_frequency(&mut self, number: usize) {
        let now_ns = self.core.now_ns;
        let Some(clocks) = &self.core.clocks else { return };
        let told: Vec<(CpuId, u32, f64)> =
            clocks.clocks[number].cpus.iter().map(|&cpu| (cpu, clocks.ratio(cpu), clocks.speed_scale(cpu))).collect();
        for (cpu, ratio, scale) in told {
            if self.core.readings.is_live {
                // Cycles up to now are of the clock until now.
                self.read_live_counters(cpu);
            }
            self.memory.set_clock(now_ns, cpu, ratio);
            self.scheduler.speed_changed(&mut self.core, cpu, scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, of `effective_cpu_util` and `sugov_effective_cpu_perf`: 1.25 times 400 is 500.
    #[test]
    fn clamps_bound_the_performance_after_its_margin() {
        let of = |used, min, max, capacity| {
            let utilisation = Utilisation { used, running: used, least: 0, at_once: false };
            Wanted::new(utilisation, Clamp { min, max }).performance(0, capacity)
        };
        assert_eq!(of(400, 0, 1024, 1024), 500);
        assert_eq!(of(400, 600, 1024, 1024), 600, "boosted");
        assert_eq!(of(400, 0, 300, 1024), 300, "capped");
        assert_eq!(of(400, 0, 450, 1024), 450, "the margin is capped too");
        assert_eq!(of(400, 600, 300, 1024), 600, "the lower bound wins");
        assert_eq!(of(400, 600, 1024, 462), 462, "no CPU gives more than it has");
    }

    #[test]
    fn a_cpu_is_capped_where_its_tasks_use_what_they_may() {
        let capped = |running, max| {
            let utilisation = Utilisation { used: 1024, running, least: 0, at_once: false };
            Wanted::new(utilisation, Clamp { min: 0, max }).capped
        };
        assert!(capped(300, 300) && !capped(299, 300) && !capped(1024, 1024));
    }
}
