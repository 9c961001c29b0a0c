//! CPUs as they are before a run.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{OVERHEAD_KINDS, TaskId};

use crate::core::{Cpu, NeedResched};
use crate::parameters::{KernelParameters, Ticks};
use crate::setup::Setup;

impl Cpu {
    /// By CPU the other hardware threads of its core.
    pub fn siblings(machine: &Machine) -> Vec<Vec<CpuId>> {
        let others =
            |cpu| machine.cpus_of_core(machine.core_of(cpu)).iter().filter(move |other| *other != cpu).collect();
        machine.cpus().map(others).collect()
    }

    /// All of a machine, idle, with phases of ticks as the seed says.
    pub fn all(setup: &Setup<'_>, parameters: &KernelParameters) -> Vec<Self> {
        let mut random = Pcg64::seed_from_u64(setup.seed);
        let mut draw = move || random.next_u64() % parameters.tick_ns();
        let together = (parameters.ticks == Ticks::Together).then(&mut draw);
        setup
            .machine
            .cpus()
            .map(|cpu| Self {
                curr: TaskId::IDLE,
                need_resched: NeedResched::No,
                resched_listed: false,
                ttwu_pending: 0,
                polls_until_ns: 0,
                settled_ns: 0,
                stolen_ns: 0,
                clock_task_ns: 0,
                tick_phase_ns: together.unwrap_or_else(&mut draw),
                tick_stopped: true,
                tickless: false,
                softirq_raised: false,
                timers_deferred: false,
                stopper_ran: false,
                capacity: setup.machine.capacity(cpu),
                changed_ns: 0,
                idle_ns: 0,
                offline_ns: 0,
                idle_before_offline_ns: None,
                busy_ns: 0,
                background_ns: 0,
                overhead_ns: [0; OVERHEAD_KINDS],
                overhead_told_ns: [0; OVERHEAD_KINDS],
                overhead_told_at_ns: 0,
            })
            .collect()
    }
}
