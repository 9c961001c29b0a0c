//! The analytic model of caches, coherence and DRAM as the kernel's memory.
//!
//! Work is counted at the speed of its profile alone and warm on a CPU of capacity 1024, so a lone warm task takes as long
//! as with constant speeds. Tasks that name no profile compute without touching memory; what a migration costs them is the
//! machine's constant.

use warmcore_memory::HierarchyError;
use warmcore_memory::analytic::{Analytic, Counters, SPEED_ONE, TaskSpec};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::TaskId;
use warmcore_workload::ChannelKind;

use crate::error::SimulationError;
use crate::memory::Memory;
use crate::setup::Setup;
use crate::task_profiles::TaskProfiles;

/// The model, and which profile each task has in it.
pub(crate) struct AnalyticMemory<'a> {
    model: Analytic,
    machine: &'a Machine,
    profiles: TaskProfiles<'a>,
    /// Profile of each task now.
    current: Vec<usize>,
}

impl<'a> AnalyticMemory<'a> {
    pub fn new(setup: &'a Setup<'a>) -> Result<Self, HierarchyError> {
        let machine = setup.machine;
        let profiles = TaskProfiles::new(setup.workload);
        let mut model = Analytic::new(machine, &profiles.used)?;
        if let Some(machine) = setup.work_of {
            model.measure_work_on(machine, &profiles.used)?;
        }
        Ok(Self { model, machine, profiles, current: Vec::new() })
    }
}

impl Memory for AnalyticMemory<'_> {
    const MODELLED: bool = true;

    /// Cold caches are in the task's speed if it has a profile.
    fn migration_ns(&self, task: TaskId, from: CpuId, to: CpuId) -> u64 {
        if self.model.touches_memory(task.0) {
            return 0;
        }
        self.machine.costs().migration_ns[self.machine.relation(from, to)]
    }

    fn message_transfer_ns(&self, kind: ChannelKind, task: TaskId, from: CpuId, to: CpuId) -> u64 {
        // What was measured is waiting, whatever overlaps.
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
        self.current.push(profile);
        let data = self.profiles.data(template);
        let process = self.profiles.process(template);
        self.model.add_task(&TaskSpec { profile, process, data: &data });
        Ok(())
    }

    fn begin_phase(&mut self, now_ns: u64, task: TaskId, phase: u32) {
        let template = self.profiles.template(task);
        let profile = self.profiles.in_phase(template, phase);
        if std::mem::replace(&mut self.current[task.index()], profile) != profile {
            let data = self.profiles.data(template);
            let process = self.profiles.process(template);
            self.model.set_profile(now_ns, task.0, &TaskSpec { profile, process, data: &data });
        }
    }

    fn task_dead(&mut self, task: TaskId) {
        self.model.forget_task(task.0);
    }

    #[inline]
    fn ran(&mut self, cpu: CpuId, useful_ns: u64) {
        self.model.ran(cpu, useful_ns);
    }

    fn switch_in(&mut self, now_ns: u64, cpu: CpuId, task: TaskId) {
        self.model.switch_in(now_ns, cpu, task.0);
    }

    fn switch_out(&mut self, now_ns: u64, cpu: CpuId) {
        self.model.switch_out(now_ns, cpu);
    }

    fn set_spinning(&mut self, now_ns: u64, cpu: CpuId, spinning: bool) {
        self.model.set_paused(now_ns, cpu, spinning);
    }

    fn set_clock(&mut self, _now_ns: u64, cpu: CpuId, ratio: u32) {
        self.model.set_clock(cpu, f64::from(ratio) / f64::from(SPEED_ONE));
    }

    #[inline]
    fn speed(&self, cpu: CpuId) -> u32 {
        self.model.speed(cpu)
    }

    fn review(&mut self, now_ns: u64, cpu: CpuId, remaining_ns: u64) -> u64 {
        self.model.review(now_ns, cpu, remaining_ns)
    }

    #[inline]
    fn due_ns(&self) -> u64 {
        self.model.due_ns()
    }

    fn due_cpus(&mut self, now_ns: u64, cpus: &mut Vec<CpuId>) {
        self.model.due_cpus(now_ns, cpus);
    }

    fn refresh(&mut self, now_ns: u64) {
        self.model.refresh(now_ns);
    }

    fn set_home(&mut self, task: TaskId, class: Option<u32>, shares: &[f64]) {
        // Pages are those of the template's profile, whatever the phase; private ones are the task's with any.
        if class.is_none() || self.profiles.of_template(self.profiles.template(task)) == self.current[task.index()] {
            self.model.set_home(task.0, class.map(|class| class as usize), shares);
        }
    }

    #[inline]
    fn take_changed(&mut self) -> Option<CpuId> {
        self.model.take_changed()
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

    fn frequency_ghz(&self, cpu: CpuId) -> f64 {
        self.model.frequency_ghz(cpu)
    }

    fn solutions(&self) -> (u64, u64) {
        self.model.bandwidth_solutions()
    }
}
