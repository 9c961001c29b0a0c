//! Energy-aware placement of wakeups (`docs/spec/linux-fair.md` section 4.8).
//!
//! While no CPU is overutilized, a wakeup goes to the CPU that adds least to the energy of all performance domains, as far as the energy
//! model knows; otherwise CPUs are chosen as on other machines.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` (`find_energy_efficient_cpu`, `compute_energy`, `eenv_pd_busy_time`, `eenv_pd_max_util`,
//! `cpu_util`, `cpu_overutilized`, `check_update_overutilized_status`), `kernel/sched/topology.c` (`sched_is_eas_possible`,
//! `build_perf_domains`), `kernel/power/energy_model.c` (`em_init_performance`, `em_compute_costs`), `include/linux/energy_model.h`
//! (`em_cpu_energy`, `em_pd_get_efficient_state`).
//!
//! Real-time and deadline tasks take capacity, and their averages count in utilisations ([`pressure`](super::pressure)). Not modelled: interrupts and heat,
//! which take capacity too; the bandwidth of deadline tasks as a least speed, in place of which they want all.

use warmcore_kernel::{Clamp, Core, Governor, KernelParameters};
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::{SearchStart, SearchStep, TaskId};

use super::clamps::{Fit, Need};
use super::{Fair, Policy};
use crate::domains::Domains;
use crate::fair::balance::pass::Pass;
use crate::fair::gathering::Gathering;

/// Whether CPUs have different capacities, and frequencies of known power.
pub(super) fn has_unequal_cpus(machine: &Machine, kernel: &KernelParameters) -> bool {
    kernel.governor != Governor::Fixed && machine.has_energy_model() && machine.is_asymmetric()
}

/// A P-state as the energy model has it (`struct em_perf_state`).
#[derive(Clone, Copy, Debug)]
struct PerformanceState {
    /// Capacity that it offers.
    performance: u64,
    /// Power by performance, in µW × 10.
    cost: u64,
}

/// CPUs with one clock (`struct perf_domain`).
#[derive(Clone, Debug)]
struct PerformanceDomain {
    cpus: Vec<u32>,
    /// Capacity of each of them.
    capacity: u64,
    /// Ascending, without those that cost as much as a higher one or more (`EM_PERF_STATE_INEFFICIENT`).
    states: Vec<PerformanceState>,
}

impl PerformanceDomain {
    /// Of P-states as frequency and power in µW, ascending.
    fn new(cpus: Vec<u32>, capacity: u64, states: &[(u32, u64)]) -> Self {
        let highest_mhz = states.last().map_or(1, |(mhz, _)| u64::from(*mhz));
        let mut efficient: Vec<PerformanceState> = Vec::new();
        for &(mhz, power_uw) in states.iter().rev() {
            let performance = (capacity * u64::from(mhz) / highest_mhz).max(1);
            let cost = power_uw * 10 / performance;
            if efficient.last().is_none_or(|higher| cost < higher.cost) {
                efficient.push(PerformanceState { performance, cost });
            }
        }
        efficient.reverse();
        Self { cpus, capacity, states: efficient }
    }

    /// Energy of so much busy time in the P-state that serves the highest utilisation (`em_cpu_energy`).
    fn energy(&self, max_util: u64, busy_time: u64) -> u64 {
        let max_util = max_util.min(self.capacity);
        let serving = self.states.iter().find(|state| state.performance >= max_util).or(self.states.last());
        serving.map_or(0, |state| state.cost * busy_time)
    }

    /// Capacity of all its CPUs.
    fn total(&self) -> u64 {
        self.capacity * self.cpus.len() as u64
    }
}

/// Averages of a CPU's root queue.
#[derive(Clone, Copy, Debug)]
struct Averages {
    util: u64,
    runnable: u64,
    /// `util_est`.
    estimate: u64,
    /// Of its runnable tasks, and whether there are none.
    clamp: (Clamp, bool),
    above: Above,
}

/// What real-time and deadline tasks have of a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Above {
    /// Their utilisation.
    pub util: u64,
    /// Capacity that the fair class lacks for it (`capacity_of`).
    pub lost: u64,
    /// Capacity that the CPU is to have for those that run: all of it for real-time tasks, what deadline tasks have reserved.
    pub least: u64,
}

/// A task that wakes.
#[derive(Clone, Copy, Debug)]
struct Wakee {
    /// CPU that it ran on last.
    prev: u32,
    util: u64,
    /// `util_est`.
    estimate: u64,
    clamp: Clamp,
}

impl Wakee {
    /// What a CPU's utilisation would be with the task on `dst`, nowhere without (`cpu_util`). `boost`: contention counts.
    fn utilisation(&self, of: Averages, capacity: u64, cpu: u32, dst: Option<u32>, boost: bool) -> u64 {
        let mut util = if boost { of.util.max(of.runnable) } else { of.util };
        match (self.prev == cpu, dst == Some(cpu)) {
            (true, false) => util = util.saturating_sub(self.util),
            (false, true) => util += self.util,
            _ => {}
        }
        let estimate = of.estimate + if dst == Some(cpu) { self.estimate } else { 0 };
        util.max(estimate).min(capacity)
    }

    /// What `schedutil` would ask for on a CPU with the task on `dst` (`effective_cpu_util`, `sugov_effective_cpu_perf`).
    fn performance(&self, of: Averages, capacity: u64, cpu: u32, dst: Option<u32>) -> u64 {
        let util = self.utilisation(of, capacity, cpu, dst, true);
        let clamp = match of.clamp {
            (clamp, _) if dst != Some(cpu) => clamp,
            // The upper bound of a task that has left does not count.
            (clamp, true) => Clamp { max: self.clamp.max, ..clamp.aggregate(self.clamp) },
            (clamp, false) => clamp.aggregate(self.clamp),
        };
        let util = util + of.above.util;
        let least = of.above.least.max(clamp.min.into());
        (util + util / 4).min(u64::from(clamp.max)).max(least).min(capacity)
    }
}

/// Energy of a domain with the task on one of its CPUs, or nowhere (`compute_energy`).
fn compute_energy(
    domain: &PerformanceDomain,
    averages: impl Fn(u32) -> Averages,
    wakee: &Wakee,
    dst: Option<u32>,
) -> u64 {
    let (mut busy_time, mut max_util) = (0, 0);
    for &cpu in &domain.cpus {
        let of = averages(cpu);
        busy_time += (wakee.utilisation(of, domain.capacity, cpu, None, false) + of.above.util).min(domain.capacity);
        max_util = max_util.max(wakee.performance(of, domain.capacity, cpu, dst));
    }
    busy_time = busy_time.min(domain.total());
    if dst.is_some() {
        busy_time = (busy_time + wakee.util.max(wakee.estimate)).min(domain.total());
    }
    domain.energy(max_util, busy_time)
}

/// A CPU that a task may be placed on.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    cpu: u32,
    fit: Fit,
    /// Energy that the task adds there.
    added: u64,
    capacity: u64,
}

impl Candidate {
    /// Whether it is to be preferred to the previous CPU.
    fn is_better(&self, prev: &Self) -> bool {
        match self.fit {
            fit if fit > prev.fit => true,
            Fit::Yes => self.added < prev.added,
            _ => self.capacity > prev.capacity,
        }
    }
}

/// The CPU to place a task on: that of least energy among the previous one and, of each domain, the one with the most capacity to spare.
/// The previous one if none takes less. Of CPUs that are too slow for what the task asks for at least, the biggest is chosen, and only if
/// no other fits.
fn find_cpu(
    domains: &[PerformanceDomain],
    averages: impl Fn(u32) -> Averages,
    usable: impl Fn(u32) -> bool,
    wakee: &Wakee,
) -> u32 {
    let mut of_prev: Option<Candidate> = None;
    // The best so far but the previous one, and the least that it or the previous one adds.
    let (mut best, mut least): (Option<Candidate>, u64) = (None, u64::MAX);
    for domain in domains {
        // As in the kernel, a CPU without runnable tasks leaves the bounds of the CPU before it.
        let mut clamp = wakee.clamp;
        let mut prev_spare: Option<(Fit, u64)> = None;
        let mut most_spare: Option<(Fit, u64, u32)> = None;
        for &cpu in domain.cpus.iter().filter(|cpu| usable(**cpu)) {
            let of = averages(cpu);
            let util = wakee.utilisation(of, domain.capacity, cpu, Some(cpu), false);
            if let (of_cpu, false) = of.clamp {
                clamp = wakee.clamp.aggregate(of_cpu);
            }
            let left = domain.capacity.saturating_sub(of.above.lost);
            let fit = Need { util, clamp }.fit(left as u32, domain.capacity as u32);
            if fit == Fit::No {
                continue;
            }
            let spare = left.saturating_sub(util);
            if cpu == wakee.prev {
                prev_spare = Some((fit, spare));
            } else if most_spare.is_none_or(|(best, most, _)| (fit, spare) > (best, most)) {
                most_spare = Some((fit, spare, cpu));
            }
        }
        let most_spare = most_spare.filter(|(_, spare, _)| prev_spare.is_none_or(|(_, prev)| *spare > prev));
        if prev_spare.is_none() && most_spare.is_none() {
            continue;
        }
        let energy = |dst: Option<u32>| compute_energy(domain, &averages, wakee, dst);
        let base = energy(None);
        let candidate = |cpu: u32, fit: Fit| {
            let added = energy(Some(cpu)).checked_sub(base);
            added.map(|added| Candidate { cpu, fit, added, capacity: domain.capacity })
        };
        if let Some((fit, _)) = prev_spare {
            let Some(found) = candidate(wakee.prev, fit) else { return wakee.prev };
            least = least.min(found.added);
            of_prev = Some(found);
        }
        if let Some((fit, _, cpu)) = most_spare {
            // One that fits less well than the best so far is not even looked at.
            if best.is_some_and(|best| fit < best.fit || fit == Fit::TooSlow && domain.capacity <= best.capacity) {
                continue;
            }
            let Some(found) = candidate(cpu, fit) else { return wakee.prev };
            if fit == Fit::TooSlow || found.added < least || best.is_none_or(|best| best.fit < fit) {
                (best, least) = (Some(found), found.added);
            }
        }
    }
    match best {
        Some(best) if of_prev.is_none_or(|of_prev| best.is_better(&of_prev)) => best.cpu,
        _ => wakee.prev,
    }
}

/// What energy-aware placement knows of a machine.
pub(crate) struct EnergyAware {
    /// In the order in which the kernel looks at them: those of the highest CPUs first.
    domains: Vec<PerformanceDomain>,
    /// Some CPU's tasks do not fit it (`rd->overutilized`).
    overutilized: bool,
}

impl EnergyAware {
    /// That of the CPUs that are active. `None` where the kernel refuses it: capacities are equal, cores have several hardware threads,
    /// a CPU is without energy model, or the governor is not `schedutil`.
    pub(super) fn new(
        wanted: bool,
        machine: &Machine,
        active: &CpuSet,
        kernel: &KernelParameters,
        domains: &Domains,
    ) -> Option<Box<Self>> {
        if !wanted
            || kernel.governor != Governor::Schedutil
            || !has_unequal_cpus(machine, kernel)
            || !domains.is_asymmetric()
        {
            return None;
        }
        let mut performance: Vec<PerformanceDomain> = Vec::new();
        let mut clocks = Vec::new();
        for cpu in active.iter() {
            let clock = machine.clock_of(cpu)?;
            match clocks.iter().position(|known| *known == clock) {
                Some(known) => performance[known].cpus.push(cpu.0),
                None => {
                    let kind = &machine.core_kinds()[clock.0];
                    let states: Vec<(u32, u64)> =
                        kind.frequencies_mhz.iter().map(|&mhz| (mhz, kind.busy_power_uw(mhz))).collect();
                    let capacity = u64::from(machine.capacity(cpu));
                    performance.push(PerformanceDomain::new(vec![cpu.0], capacity, &states));
                    clocks.push(clock);
                }
            }
        }
        performance.reverse();
        Some(Box::new(Self { domains: performance, overutilized: false }))
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Whether wakeups are placed by energy and balancing rests (`!is_rd_overutilized` where there are performance domains).
    #[inline]
    pub(super) fn energy_decides(&self) -> bool {
        self.energy.as_ref().is_some_and(|energy| !energy.overutilized)
    }

    /// `cpu_overutilized`: its tasks use more than 80 % of its capacity, and may use more than it has.
    fn is_overutilized(&self, core: &Core<'_>, cpu: CpuId) -> bool {
        let need = Need { util: self.cpu_util(cpu), clamp: core.cpu_clamp(cpu).0 };
        need.fit(self.domains.capacity_of(cpu), self.whole_capacity(cpu)) == Fit::No
    }

    /// At ticks and when a task that woke was queued (`check_update_overutilized_status`): not for a new one, whose utilisation is a guess.
    #[cold]
    pub(super) fn update_overutilized(&mut self, core: &Core<'_>, cpu: CpuId) {
        if self.energy_decides() && self.is_overutilized(core, cpu) {
            self.set_overutilized(true);
        }
    }

    fn set_overutilized(&mut self, overutilized: bool) {
        if let Some(energy) = &mut self.energy {
            energy.overutilized = overutilized;
        }
    }

    /// A balancing pass has looked at the CPUs of its domain. One that looked at all of the machine may find that none is overutilized any
    /// more (`update_sd_lb_stats`).
    #[cold]
    pub(super) fn note_overutilized(&mut self, core: &Core<'_>, pass: &Pass) {
        let looked_at = |cpu: &CpuId| !self.balance.is_excluded(cpu.0);
        let span = self.domains.span(self.domains.domain(pass.domain));
        let overutilized = span.iter().filter(looked_at).any(|cpu| self.is_overutilized(core, cpu));
        if overutilized || pass.parent.is_none() {
            self.set_overutilized(overutilized);
        }
    }

    /// Where a wakeup goes by energy; `None` if energy does not decide (`find_energy_efficient_cpu`).
    #[cold]
    pub(super) fn find_energy_efficient_cpu(
        &mut self,
        core: &mut Core<'_>,
        task: TaskId,
        prev: CpuId,
    ) -> Option<CpuId> {
        let this = core.this_cpu();
        let mut above = self.domains.sd_asym_cpucapacity(this)?..self.domains.range(this).end;
        let domain = above.find(|&index| self.domains.span_contains(self.domains.domain(index), prev))?;
        let index = self.sync_entity_load_avg(task);
        let entity = &self.entities[index as usize];
        let (util, estimate) = (entity.pelt.util as u64, u64::from(entity.util_est));
        let wakee = Wakee { prev: prev.0, util, estimate, clamp: core.task_clamp(task) };
        let mut found = prev;
        if util.max(estimate) > 0 || wakee.clamp.min > 0 {
            let span = self.domains.span(self.domains.domain(domain));
            let averages = |cpu: u32| Averages {
                util: self.queues[cpu as usize].pelt.util as u64,
                runnable: self.queues[cpu as usize].pelt.runnable as u64,
                estimate: u64::from(self.rqs[cpu as usize].util_est),
                clamp: core.cpu_clamp(CpuId(cpu)),
                above: self.taken_above(core, CpuId(cpu)),
            };
            let usable = |cpu: u32| span.contains(CpuId(cpu)) && core.may_run_on(task, CpuId(cpu));
            found = CpuId(find_cpu(&self.energy.as_ref()?.domains, averages, usable, &wakee));
        }
        let step = if found == prev { SearchStep::PreviousEnergy } else { SearchStep::LeastEnergy };
        core.tell_place(task, SearchStart::Energy, step);
        Some(found)
    }
}

/// The platform of the second example in `Documentation/scheduler/sched-energy.rst`: CPUs 0 and 1 are little, 2 and 3 big, with
/// utilisations of 400, 100, 600 and 500. A task whose utilisation of 200 is in that of CPU 0 wakes.
#[cfg(test)]
mod tests {
    use super::*;

    fn platform() -> [PerformanceDomain; 2] {
        let mw = |states: [(u32, u64); 3]| states.map(|(capacity, mw)| (capacity, mw * 1000));
        let little = PerformanceDomain::new(vec![0, 1], 512, &mw([(170, 50), (341, 150), (512, 300)]));
        let big = PerformanceDomain::new(vec![2, 3], 1024, &mw([(512, 400), (768, 800), (1024, 1700)]));
        [little, big]
    }

    fn using(util: u64) -> Averages {
        let above = Above { util: 0, lost: 0, least: 0 };
        Averages { util, runnable: 0, estimate: 0, clamp: (Clamp::NONE, true), above }
    }

    fn waking(util: u64) -> Wakee {
        Wakee { prev: 0, util, estimate: 0, clamp: Clamp::NONE }
    }

    fn averages(wakee: u64) -> impl Fn(u32) -> Averages {
        move |cpu| {
            let util = [200 + wakee, 100, 600, 500][cpu as usize];
            Averages { runnable: util, ..using(util) }
        }
    }

    fn placed(util: u64) -> u32 {
        let wakee = waking(util);
        let [little, big] = platform();
        let cpu = find_cpu(&[little.clone(), big.clone()], averages(util), |_| true, &wakee);
        assert_eq!(find_cpu(&[big, little], averages(util), |_| true, &wakee), cpu);
        cpu
    }

    /// Its energies, of the P-states that serve the utilisations as they are: 1364, 1485 and 1437, each a sum of four whole numbers.
    #[test]
    fn the_energies_of_the_kernels_example_come_out() {
        let [little, big] = platform();
        let cases = [((300, 500), (600, 1100), 1364), ((200, 300), (700, 1300), 1485), ((400, 500), (600, 1100), 1437)];
        for (of_little, of_big, total) in cases {
            // Costs are per 10 uW.
            let energy = little.energy(of_little.0, of_little.1) + big.energy(of_big.0, of_big.1);
            assert!((energy / 10_000).abs_diff(total) <= 3, "{energy} for {total}");
        }
    }

    /// schedutil asks for a quarter more than is used, which the example leaves out. With 200 of the task on CPU 1 it is 375 there, as on
    /// CPU 0 more than the P-state of 341 serves: the same energy, and the task stays. By hand, little domain: 5859 · 500 − 4398 · 300 on
    /// either CPU. With 150 it is 312 on CPU 1, and 437 on CPU 0: 4398 · 450 against 5859 · 450, and the task goes.
    #[test]
    fn a_task_goes_where_it_does_not_raise_the_frequency_and_stays_if_nothing_is_saved() {
        let [little, _] = platform();
        let wakee = waking(200);
        let energy = |dst| compute_energy(&little, averages(200), &wakee, dst);
        assert_eq!((energy(None), energy(Some(0)), energy(Some(1))), (4398 * 300, 5859 * 500, 5859 * 500));
        assert_eq!(placed(200), 0);
        assert_eq!(placed(150), 1);
    }

    /// By hand: 150 on CPU 1 of four fifths of 512 leaves no little CPU that fits 300 more; the task goes to the big CPU with more to spare.
    #[test]
    fn a_task_that_fits_no_little_cpu_goes_to_a_big_one() {
        let wakee = waking(420);
        let loads = |cpu: u32| using([420, 150, 300, 200][cpu as usize]);
        assert_eq!(find_cpu(&platform(), loads, |_| true, &wakee), 3);
        assert_eq!(find_cpu(&platform(), loads, |cpu| cpu != 3, &wakee), 2);
        assert_eq!(find_cpu(&platform(), loads, |cpu| cpu < 2, &wakee), 0, "no CPU fits, so it stays");
    }

    /// By hand. A task of 100 on a little CPU stays there with nothing else on the machine. Where a real-time task has left 120 of its CPU, of which four fifths
    /// are less than 100, it goes to the other little CPU. A real-time task that runs on the other raises the domain's frequency to the
    /// highest, and its utilisation is time that is used: 4398 · 100 with nothing, 5859 · (100 + 300) beside it.
    #[test]
    fn real_time_tasks_take_capacity_time_and_frequency() {
        let wakee = waking(100);
        let alone = |cpu: u32| using(if cpu == 0 { 100 } else { 0 });
        assert_eq!(find_cpu(&platform(), alone, |_| true, &wakee), 0);
        let above = |at: u32, above: Above| {
            move |cpu: u32| if cpu == at { Averages { above, ..alone(cpu) } } else { alone(cpu) }
        };
        let sleeps = Above { util: 392, lost: 392, least: 0 };
        assert_eq!(find_cpu(&platform(), above(0, sleeps), |_| true, &wakee), 1);
        let [little, _] = platform();
        let energy = |averages: &dyn Fn(u32) -> Averages, dst| compute_energy(&little, averages, &wakee, dst);
        assert_eq!((energy(&alone, None), energy(&alone, Some(0))), (0, 2941 * 100));
        let runs = Above { util: 300, lost: 300, least: 1024 };
        assert_eq!(energy(&above(1, runs), Some(0)), 5859 * 400);
        let ends = Above { least: 0, ..runs };
        assert_eq!(energy(&above(1, ends), Some(0)), 5859 * 400, "375 wanted, as much as before");
        let little_left = Above { util: 200, ..ends };
        assert_eq!(energy(&above(1, little_left), Some(0)), 4398 * 300);
        let reserves = Above { least: 400, ..little_left };
        assert_eq!(energy(&above(1, reserves), Some(0)), 5859 * 300, "a deadline task's reservation of 400");
    }

    /// An estimate counts where the task is to be, and a task that has been away too long has no utilisation left on its old CPU.
    #[test]
    fn a_cpus_utilisation_is_that_with_the_task_where_it_is_to_be() {
        let wakee = Wakee { estimate: 180, ..waking(100) };
        let of = Averages { runnable: 190, estimate: 40, ..using(150) };
        let utilisation = |cpu, dst, boost| wakee.utilisation(of, 300, cpu, dst, boost);
        assert_eq!(utilisation(0, None, false), 50);
        assert_eq!(utilisation(0, Some(1), true), 90);
        assert_eq!(utilisation(0, Some(0), false), 220);
        assert_eq!(utilisation(1, None, false), 150);
        assert_eq!(utilisation(1, Some(1), false), 250);
        assert_eq!(utilisation(1, Some(1), true), 290);
    }

    /// By hand. A task of 100 with nothing else on the machine stays on a little CPU; so it does where it asks for 512 at least, which a
    /// little CPU has. From 513 on a little CPU is too slow, and a big one is chosen.
    #[test]
    fn a_task_goes_to_a_big_cpu_for_the_speed_that_it_asks_for() {
        let placed = |min| {
            let wakee = Wakee { clamp: Clamp { min, max: 1024 }, ..waking(100) };
            find_cpu(&platform(), |cpu| using(if cpu == 0 { 100 } else { 0 }), |_| true, &wakee)
        };
        assert_eq!([0, 512, 513].map(placed), [0, 0, 2]);
        let wakee = Wakee { clamp: Clamp { min: 900, max: 1024 }, ..waking(100) };
        let little = find_cpu(&platform(), |cpu| using(if cpu == 0 { 100 } else { 0 }), |cpu| cpu < 2, &wakee);
        assert_eq!(little, 0, "too slow as the others are, and no worse");
    }

    /// By hand. A task of 420 fits no little CPU, unless it may have no more than 512. Beside a task that may have all it does not.
    #[test]
    fn a_task_that_is_capped_stays_on_a_little_cpu_unless_it_shares_it() {
        let wakee = Wakee { clamp: Clamp { min: 0, max: 512 }, ..waking(420) };
        let loads = |cpu: u32| using([420, 150, 300, 200][cpu as usize]);
        assert_eq!(find_cpu(&platform(), loads, |_| true, &wakee), 0);
        let shared = |cpu: u32| Averages { clamp: (Clamp::NONE, cpu > 1), ..loads(cpu) };
        assert_eq!(find_cpu(&platform(), shared, |_| true, &wakee), 3);
    }

    /// By hand: 1.25 times 200 is 250. Bounds count where the task is to be, an upper one of a task that left nowhere.
    #[test]
    fn the_frequency_that_is_reckoned_with_heeds_the_bounds() {
        let performance = |of: (Clamp, bool), min, max, dst| {
            let wakee = Wakee { prev: 1, clamp: Clamp { min, max }, ..waking(100) };
            wakee.performance(Averages { clamp: of, ..using(100) }, 512, 0, dst)
        };
        let none = (Clamp::NONE, true);
        assert_eq!(performance(none, 0, 1024, Some(0)), 250);
        assert_eq!(performance(none, 300, 1024, Some(0)), 300);
        assert_eq!(performance(none, 300, 1024, Some(1)), 125, "it is elsewhere");
        assert_eq!(performance(none, 600, 1024, Some(0)), 512, "no more than there is");
        let idle = (Clamp { min: 0, max: 120 }, true);
        assert_eq!(performance(idle, 0, 1024, Some(0)), 250);
        assert_eq!(performance(idle, 0, 1024, None), 120, "while nothing runs there it holds");
        let busy = (Clamp { min: 0, max: 120 }, false);
        assert_eq!(performance(busy, 0, 200, Some(0)), 200);
    }

    #[test]
    fn p_states_that_cost_as_much_as_a_higher_one_are_not_used() {
        let domain = PerformanceDomain::new(vec![0], 1000, &[(100, 100), (200, 300), (300, 390), (400, 600)]);
        let performances: Vec<u64> = domain.states.iter().map(|state| state.performance).collect();
        assert_eq!(performances, [250, 750, 1000]);
    }
}
