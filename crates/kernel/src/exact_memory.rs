//! The exact level of caches, coherence and DRAM as the kernel's memory: every line that a task touches, in quanta.
//!
//! It knows progress only afterwards. CPUs are looked at every [`QUANTUM_NS`], or when their tasks would be done at the speed that
//! they had last. Work is counted as on the analytic level, at the speed of its profile alone and warm, so that the same programs
//! have the same work on both.
//!
//! Not modelled beyond what the level itself leaves out (`docs/models/memory-exact.md`): the lines of kernel work, which takes a time and touches
//! nothing; what a message's buffer and a lock cost is the machine's line transfers, as on the analytic level.

use warmcore_memory::analytic::{Counters, SPEED_ONE};
use warmcore_memory::exact::{ExactError, HistoryLevel, HistorySpec, Live, LiveSpec, Options, Share};
use warmcore_options::MemoryChoice;
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::TaskId;
use warmcore_workload::ChannelKind;

use crate::error::SimulationError;
use crate::memory::{Allotment, Memory, Progress};
use crate::setup::Setup;
use crate::task_profiles::TaskProfiles;

/// Longest time between two looks at a CPU; all are looked at together.
const QUANTUM_NS: u64 = 10_000;

/// Slowest speed assumed when guessing the end of work.
const LEAST_SPEED: u32 = SPEED_ONE / 1024;

/// The simulation, and how fast each CPU's task was last.
pub(crate) struct ExactMemory<'a> {
    model: Live,
    machine: &'a Machine,
    profiles: TaskProfiles<'a>,
    /// By CPU.
    speeds: Vec<u32>,
    /// By CPU: who runs.
    running: Vec<Option<TaskId>>,
    /// By task: work done that did not fill a nanosecond.
    fractions: Vec<f64>,
}

impl<'a> ExactMemory<'a> {
    pub fn new(setup: &'a Setup<'a>, choice: MemoryChoice) -> Result<Self, ExactError> {
        let machine = setup.machine;
        let profiles = TaskProfiles::new(setup.workload);
        let options = Options { seed: setup.seed, ..choice.exact_options() };
        let mut model = Live::new(machine, options, &profiles.used)?;
        if let Some(machine) = setup.work_of {
            model.measure_work_on(machine, &profiles.used)?;
        }
        let cpus = machine.cpu_count();
        let (speeds, running) = (vec![SPEED_ONE; cpus], vec![None; cpus]);
        Ok(Self { model, machine, profiles, speeds, running, fractions: Vec::new() })
    }
}

impl Memory for ExactMemory<'_> {
    const MODELLED: bool = true;
    const AFTERWARDS: bool = true;

    /// Cold caches are simulated if the task has a profile.
    fn migration_ns(&self, task: TaskId, from: CpuId, to: CpuId) -> u64 {
        if self.model.touches_memory(task.0) {
            return 0;
        }
        self.machine.costs().migration_ns[self.machine.relation(from, to)]
    }

    fn message_transfer_ns(&self, kind: ChannelKind, task: TaskId, from: CpuId, to: CpuId) -> u64 {
        (f64::from(self.profiles.message_lines(self.machine, kind, task)) * self.model.line_ns(from, to)).round() as u64
    }

    fn handoff_ns(&self, from: CpuId, to: CpuId) -> u64 {
        self.lines_ns(from, to, self.machine.costs().futex_lines)
    }

    fn lines_ns(&self, from: CpuId, to: CpuId, lines: u32) -> u64 {
        self.model.lines_ns(from, to, lines).round() as u64
    }

    fn task_created(&mut self, template: u32) -> Result<(), SimulationError> {
        let profile = self.profiles.task_created(template);
        let others = self.profiles.of_phases(template);
        let (process, data) = (self.profiles.process(template), self.profiles.data(template));
        self.model.add_task(&LiveSpec { profile, others: &others, process, data: &data })?;
        self.fractions.push(0.0);
        Ok(())
    }

    fn begin_phase(&mut self, _now_ns: u64, task: TaskId, phase: u32) {
        self.model.set_profile(task.0, self.profiles.in_phase(self.profiles.template(task), phase));
    }

    fn task_dead(&mut self, task: TaskId) {
        self.model.remove_task(task.0);
    }

    fn allot(&mut self, cpu: CpuId, allotment: Allotment) {
        let Some(task) = self.running[cpu.index()] else { return };
        let Allotment { overhead_ns, useful_ns, work_ns } = allotment;
        let nominal = self.model.nominal_rate(self.model.profile_of(task.0));
        let instructions = match work_ns {
            u64::MAX => f64::INFINITY,
            work_ns => (work_ns as f64 - self.fractions[task.index()]).max(0.0) * nominal,
        };
        self.model.allot(cpu, Share { idle_ns: overhead_ns, useful_ns, instructions });
    }

    fn advance(&mut self, now_ns: u64) -> Result<(), SimulationError> {
        Ok(self.model.advance(now_ns)?)
    }

    fn progress(&mut self, cpu: CpuId) -> Progress {
        let Some(task) = self.running[cpu.index()] else { return Progress::default() };
        let done = self.model.done(cpu);
        let fraction = &mut self.fractions[task.index()];
        let worked_ns = done.instructions / self.model.nominal_rate(self.model.profile_of(task.0));
        if done.took_ns > 0 && worked_ns > 0.0 {
            let speed = worked_ns / done.took_ns as f64 * f64::from(SPEED_ONE);
            self.speeds[cpu.index()] = (speed as u32).clamp(LEAST_SPEED, u32::MAX / 2);
        }
        let work = worked_ns + *fraction;
        // What was asked for is whole: its end is not lost to rounding.
        let work_ns = if done.all { work.round() } else { work.floor() };
        *fraction = (work - work_ns).max(0.0);
        Progress { work_ns: work_ns as u64, took_ns: done.took_ns }
    }

    fn switch_in(&mut self, _now_ns: u64, cpu: CpuId, task: TaskId) {
        self.running[cpu.index()] = Some(task);
        self.speeds[cpu.index()] = SPEED_ONE;
        self.model.switch_in(cpu, task.0);
    }

    fn switch_out(&mut self, _now_ns: u64, cpu: CpuId) {
        self.running[cpu.index()] = None;
        self.model.switch_out(cpu);
    }

    fn set_clock(&mut self, _now_ns: u64, cpu: CpuId, ratio: u32) {
        self.model.set_clock(cpu, f64::from(ratio) / f64::from(SPEED_ONE));
    }

    fn speed(&self, cpu: CpuId) -> u32 {
        self.speeds[cpu.index()]
    }

    fn review(&mut self, now_ns: u64, _cpu: CpuId, _remaining_ns: u64) -> u64 {
        (now_ns / QUANTUM_NS + 1) * QUANTUM_NS
    }

    fn set_home(&mut self, task: TaskId, class: Option<u32>, shares: &[f64]) {
        // Pages are those of the template's profile, whatever the phase; private ones are the task's with any.
        let of_template = self.profiles.of_template(self.profiles.template(task));
        if class.is_none() || of_template == self.model.profile_of(task.0) {
            self.model.set_home(task.0, class.map(|class| class as usize), shares);
        }
    }

    fn transferred(&mut self, task: TaskId, from: CpuId, to: CpuId, ns: u64) {
        self.model.transferred(task.0, from, to, ns);
    }

    fn waited_for_line(&mut self, task: TaskId, ns: u64) {
        self.model.waited_for_line(task.0, ns);
    }

    fn task_counters(&self, task: TaskId) -> Option<Counters> {
        Some(self.model.counters(task.0))
    }

    fn cpu_counters(&self, cpu: CpuId) -> Option<Counters> {
        Some(self.model.cpu_counters(cpu))
    }

    fn recordable_sets(&self) -> Option<[u32; 3]> {
        Some([HistoryLevel::L1, HistoryLevel::L2, HistoryLevel::Llc].map(|level| self.model.sets(level)))
    }

    fn record_sets(&mut self, spec: HistorySpec) {
        self.model.record_sets(spec);
    }

    fn recent_sets(&self, task: TaskId, sets: &mut Vec<u32>) {
        self.model.recent_sets(task.0, sets);
    }

    fn frequency_ghz(&self, cpu: CpuId) -> f64 {
        self.model.hierarchy().frequency_ghz * f64::from(self.machine.capacity(cpu)) / 1024.0
    }
}
