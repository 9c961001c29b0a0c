//! Capacity that real-time and deadline tasks and interrupts leave to the fair class, and what follows for balancing (`docs/spec/linux-fair.md` section 5).
//!
//! Interrupts count in kernels with `CONFIG_IRQ_TIME_ACCOUNTING`, those of the machine's background: the clock of the fair class stands still as long.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` (`scale_rt_capacity`, `update_group_capacity`, `check_cpu_capacity`, `sched_reduced_capacity`, `need_active_balance`),
//! `kernel/sched/pelt.c` (`update_rt_rq_load_avg`, `update_dl_rq_load_avg`, `update_irq_load_avg`), `kernel/sched/core.c` (`update_rq_clock_task`).
//!
//! Not modelled: time of hypervisors; heat. Interrupts leave the clock of averages as it is. Of tasks of these classes on a CPU the one that runs counts, in
//! `nr_running` and as runnable, and those behind it or behind a fair task do not.

use warmcore_kernel::{Boot, Core};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::Policy as TaskPolicy;

use super::balance::IdleType;
use super::balance::pass::Pass;
use super::balance::stats::GroupStats;
use super::energy::Above;
use super::pelt::Pelt;
use super::state::NONE;
use super::{Fair, Policy};
use crate::domains::{Domain, Domains, flags};
use crate::fair::gathering::Gathering;

/// What the classes above and interrupts take of each CPU.
#[derive(Clone, Debug)]
pub(crate) struct Pressure {
    cpus: Vec<Taken>,
    /// By CPU: its capacity with nobody above (`arch_scale_cpu_capacity`).
    whole: Vec<u32>,
    /// By CPU: capacity per unit of its average. Averages are in units of the biggest CPU where speeds count in them, else of the CPU itself.
    unit: Vec<f64>,
    /// By group: the jiffy from which on new-idle passes bring its capacity up to date, too (`sgc->next_update`).
    next_update: Vec<u64>,
}

/// On one CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    average: Pelt,
    /// Share of the time that interrupts had (`avg_irq`); valid from the end of the last one on.
    interrupts: Pelt,
    /// A task of such a class runs at present.
    runs: bool,
    /// What it has reserved if it is a deadline task, 1024 = a whole CPU.
    reserved: Option<u32>,
}

/// What is left of a CPU's capacity (`scale_rt_capacity`): never nothing.
fn left(whole: u32, taken: f64, interrupts: f64) -> u32 {
    scale_irq_capacity(whole.saturating_sub(taken as u32), interrupts as u32, whole).max(1)
}

/// What interrupts leave of something on a CPU (`scale_irq_capacity`).
fn scale_irq_capacity(util: u32, interrupts: u32, whole: u32) -> u32 {
    util * whole.saturating_sub(interrupts) / whole
}

impl Taken {
    /// An interrupt of some length begins: it follows those before it.
    fn add_interrupt(&mut self, now_ns: u64, duration_ns: u64, running: f64) {
        let begins_ns = self.interrupts.last_update_ns.max(now_ns);
        self.interrupts.update(begins_ns, 0.0, 0.0, 0.0);
        self.interrupts.update(begins_ns + duration_ns, 0.0, 0.0, running);
    }
}

impl Pressure {
    /// Of a kernel whose workload has such tasks, or that sees interrupts; `None` elsewhere.
    /// `speeds_count`: averages go by the speed of their CPU.
    pub fn new(boot: &Boot<'_>, whole: &[u32], groups: usize, speeds_count: bool) -> Option<Box<Self>> {
        let unit = |whole: &u32| if speeds_count { 1.0 } else { f64::from(*whole) / 1024.0 };
        let interrupts = boot.kernel.irq_time_accounting && !boot.machine.background().interrupts.is_empty();
        (boot.realtime || interrupts).then(|| {
            Box::new(Self {
                cpus: vec![Taken::default(); whole.len()],
                whole: whole.to_vec(),
                unit: whole.iter().map(unit).collect(),
                next_update: vec![0; groups],
            })
        })
    }

    /// Groups were built anew, with whole capacities.
    pub fn domains_rebuilt(&mut self, groups: usize) {
        self.next_update = vec![0; groups];
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// A CPU switches to a task of any class.
    #[cold]
    pub(super) fn note_switch(&mut self, core: &Core<'_>, cpu: CpuId, next: TaskId) {
        let waits = self.rqs[cpu.index()].nr_running > 0;
        self.update_pressure(core.now_ns(), cpu);
        let Some(pressure) = &mut self.pressure else { return };
        let taken = &mut pressure.cpus[cpu.index()];
        let policy = (!next.is_idle()).then(|| core.task(next).policy());
        taken.runs = policy.is_some_and(|policy| policy.is_realtime());
        taken.reserved = match policy {
            Some(TaskPolicy::Deadline(reservation)) => {
                Some((reservation.runtime_ns * 1024 / reservation.period_ns) as u32)
            }
            _ => None,
        };
        // `add_nr_running` counts tasks of all classes.
        self.overloaded |= taken.runs && waits;
    }

    /// An interrupt takes a CPU: its running task is not charged, and its capacity falls.
    #[cold]
    pub(super) fn note_interrupt(&mut self, now_ns: u64, cpu: CpuId, duration_ns: u64) {
        let mut queue = cpu.0;
        while queue != NONE && self.queues[queue as usize].curr != NONE {
            let running = &mut self.entities[self.queues[queue as usize].curr as usize];
            running.exec_start_ns += duration_ns;
            queue = running.my_queue;
        }
        if let Some(pressure) = &mut self.pressure {
            pressure.cpus[cpu.index()].add_interrupt(now_ns, duration_ns, self.speeds[cpu.index()].running);
        }
    }

    /// Utilisation of a CPU with what interrupts have of it, and that part of it (`effective_cpu_util`).
    pub(super) fn with_interrupts(&self, cpu: CpuId, util: u32) -> (u32, u32) {
        let Some(pressure) = &self.pressure else { return (util, 0) };
        let (whole, interrupts) = (pressure.whole[cpu.index()], pressure.cpus[cpu.index()].interrupts.util as u32);
        if interrupts == 0 || util >= whole {
            return (util, interrupts);
        }
        (scale_irq_capacity(util, interrupts, whole) + interrupts, interrupts)
    }

    /// Brings a CPU's averages to now.
    pub(super) fn update_pressure(&mut self, now_ns: u64, cpu: CpuId) {
        if let Some(pressure) = &mut self.pressure {
            let taken = &mut pressure.cpus[cpu.index()];
            let running = if taken.runs { self.speeds[cpu.index()].running } else { 0.0 };
            taken.average.update(now_ns, 0.0, 0.0, running);
            let at_ns = taken.interrupts.last_update_ns.max(now_ns);
            taken.interrupts.update(at_ns, 0.0, 0.0, 0.0);
        }
    }

    /// A task changes its class where it is: one that runs goes on.
    pub(super) fn note_class_change(&mut self, core: &Core<'_>, task: TaskId) {
        let cpu = core.task(task).cpu();
        if self.pressure.is_some() && core.curr(cpu) == task {
            self.note_switch(core, cpu, task);
        }
    }

    /// Capacity of a CPU with nobody above (`arch_scale_cpu_capacity`).
    pub(crate) fn whole_capacity(&self, cpu: CpuId) -> u32 {
        self.pressure.as_ref().map_or_else(|| self.domains.capacity_of(cpu), |pressure| pressure.whole[cpu.index()])
    }

    /// Tasks of the classes above that run on a CPU.
    #[inline]
    pub(crate) fn above(&self, cpu: CpuId) -> u32 {
        self.pressure.as_ref().map_or(0, |pressure| u32::from(pressure.cpus[cpu.index()].runs))
    }

    /// What classes above have of a CPU, as energy-aware placement asks. With utilisation clamps, those of real-time tasks say what speed they want.
    pub(super) fn taken_above(&self, core: &Core<'_>, cpu: CpuId) -> Above {
        match &self.pressure {
            Some(pressure) => {
                let whole = pressure.whole[cpu.index()];
                let Taken { average, runs, reserved, .. } = pressure.cpus[cpu.index()];
                let least = match reserved {
                    Some(reserved) => reserved,
                    None if runs && !core.uses_clamps() => whole,
                    None => 0,
                };
                let lost = whole.saturating_sub(self.domains.capacity_of(cpu));
                Above { util: average.util as u64, lost: lost.into(), least: least.into() }
            }
            None => Above { util: 0, lost: 0, least: 0 },
        }
    }

    /// Tasks of all classes on a CPU (`rq->nr_running`).
    #[inline]
    pub(crate) fn nr_running(&self, cpu: CpuId) -> u32 {
        self.rqs[cpu.index()].nr_running + self.above(cpu)
    }

    /// Brings the capacity of a pass's own group up to date (`update_group_capacity`): that of the CPU at the lowest level, above it the sum of what the
    /// groups of the level below say. New-idle passes do it only now and then.
    pub(super) fn update_group_capacity(&mut self, core: &Core<'_>, pass: &Pass) {
        self.update_pressure(core.now_ns(), pass.cpu);
        let Some(pressure) = &self.pressure else { return };
        let group = self.domains.local_group(self.domains.domain(pass.domain));
        if pass.idle == IdleType::NewlyIdle && core.jiffies() < pressure.next_update[group as usize] {
            return;
        }
        self.sum_capacity(core, pass.cpu, pass.domain);
    }

    /// Domains were built anew: capacities are what the averages leave of them (`init_sched_groups_capacity`).
    #[cold]
    pub(super) fn init_capacities(&mut self, core: &Core<'_>) {
        let levels = |domains: &Domains| core.active().iter().map(|cpu| domains.range(cpu).len()).max();
        for level in 0..levels(&self.domains).unwrap_or(0) {
            for cpu in core.active().iter() {
                if let Some(domain) = self.domains.range(cpu).nth(level) {
                    self.sum_capacity(core, cpu, domain);
                }
            }
        }
    }

    /// Capacity of a CPU's own group of one of its domains.
    fn sum_capacity(&mut self, core: &Core<'_>, cpu: CpuId, index: usize) {
        let Some(pressure) = &mut self.pressure else { return };
        let domain = self.domains.domain(index);
        let group = self.domains.local_group(domain);
        let hz = u64::from(core.parameters().hz);
        pressure.next_update[group as usize] =
            core.jiffies() + (u64::from(domain.balance_interval_ms) * hz).div_ceil(1000).max(1);
        let capacity = if index == self.domains.range(cpu).start {
            let whole = pressure.whole[cpu.index()];
            let (unit, taken) = (pressure.unit[cpu.index()], &pressure.cpus[cpu.index()]);
            let left = left(whole, unit * taken.average.util, unit * taken.interrupts.util);
            self.domains.set_capacity(cpu, left);
            left
        } else {
            let below = self.domains.domain(index - 1);
            match below.has(flags::NUMA) {
                // Overlapping groups would count CPUs twice.
                true => self.domains.span(below).iter().map(|cpu| self.domains.capacity_of(cpu)).sum(),
                false => self.domains.groups(below).map(|group| self.domains.group(group).capacity).sum(),
            }
        };
        self.domains.group_mut(group).capacity = capacity;
    }

    /// Whether a CPU has lost more of its capacity than a domain tolerates (`check_cpu_capacity`).
    fn has_lost_capacity(&self, cpu: CpuId, domain: &Domain) -> bool {
        self.pressure.as_ref().is_some_and(|pressure| {
            self.domains.capacity_of(cpu) * domain.imbalance_pct < pressure.whole[cpu.index()] * 100
        })
    }

    /// Whether a CPU's only fair task has a CPU of reduced capacity (`sched_reduced_capacity`).
    pub(super) fn is_reduced(&self, cpu: CpuId, pass: &Pass) -> bool {
        self.queues[cpu.index()].h_nr_runnable == 1 && self.has_lost_capacity(cpu, self.domains.domain(pass.domain))
    }

    /// Whether a tick has an idle CPU balance because of this CPU's capacity (`nohz_balancer_kick`).
    pub(super) fn kicks_for_capacity(&self, cpu: CpuId) -> bool {
        self.pressure.is_some()
            && self.queues[cpu.index()].h_nr_runnable >= 1
            && self.domains.of(cpu).first().is_some_and(|lowest| self.has_lost_capacity(cpu, lowest))
    }

    /// Counts what runs above in a group, and notes the load of a task that would be better off elsewhere: passes of idle CPUs look for one in other groups.
    /// Whether some CPU has more than one task.
    #[inline]
    pub(super) fn add_pressure(&self, pass: &Pass, is_local: bool, stats: &mut GroupStats) -> bool {
        self.pressure.is_some() && self.add_pressure_of(pass, is_local, stats)
    }

    #[cold]
    fn add_pressure_of(&self, pass: &Pass, is_local: bool, stats: &mut GroupStats) -> bool {
        let looks = !is_local && pass.idle != IdleType::NotIdle && !self.is_asymmetric_level(pass);
        let mut overloaded = false;
        for &number in self.domains.group_cpus(self.domains.group(stats.group)) {
            let cpu = CpuId(number);
            if self.balance.is_excluded(number) {
                continue;
            }
            stats.nr_running += self.above(cpu);
            overloaded |= self.nr_running(cpu) > 1;
            if looks && self.is_reduced(cpu, pass) {
                stats.misfit_task_load = stats.misfit_task_load.max(self.cpu_load(cpu));
            }
        }
        overloaded
    }

    /// Whether the source's only fair task is to be pushed to a CPU that has more capacity left (`need_active_balance`).
    pub(super) fn more_capacity_left(&self, pass: &Pass) -> bool {
        let imbalance_pct = self.domains.domain(pass.domain).imbalance_pct;
        pass.idle != IdleType::NotIdle
            && self.is_reduced(pass.src, pass)
            && self.domains.capacity_of(pass.src) * imbalance_pct < self.domains.capacity_of(pass.dst) * 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: a task that runs half of the time leaves half, one that always runs next to nothing.
    #[test]
    fn what_is_left_is_at_least_one() {
        let by_tasks = |whole, taken| left(whole, taken, 0.0);
        assert_eq!((by_tasks(1024, 512.4), by_tasks(1024, 0.0)), (512, 1024));
        assert_eq!((by_tasks(1024, 1024.0), by_tasks(446, 900.0)), (1, 1));
    }

    /// By hand: interrupts for half of the time leave half of what tasks above leave, 1024 · (1024 − 512) / 1024 and (1024 − 256) · 1/2.
    #[test]
    fn interrupts_take_their_share_of_what_is_left() {
        assert_eq!((left(1024, 0.0, 512.0), left(1024, 256.0, 512.0)), (512, 384));
        assert_eq!((left(446, 0.0, 223.0), left(1024, 0.0, 2000.0), left(1024, 1024.0, 512.0)), (223, 1, 1));
    }

    /// By hand: 0.5 ms of each millisecond is half of the time; the average swings by 0.5 ms · ln 2 / 33.6 ms · 1024 / 2 = 5 about 512.
    #[test]
    fn the_average_of_interrupts_is_their_share_of_the_time() {
        let mut taken = Taken::default();
        for ms in 0..1000 {
            taken.add_interrupt(ms * 1_000_000, 500_000, 1024.0);
        }
        assert!((512.0..518.0).contains(&taken.interrupts.util), "{}", taken.interrupts.util);
        // Two at a time follow each other.
        let mut taken = Taken::default();
        for ms in 0..1000 {
            taken.add_interrupt(ms * 1_000_000, 250_000, 1024.0);
            taken.add_interrupt(ms * 1_000_000, 250_000, 1024.0);
        }
        assert!((512.0..518.0).contains(&taken.interrupts.util), "{}", taken.interrupts.util);
    }
}
