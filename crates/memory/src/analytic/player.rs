//! Drives the model without a kernel: a schedule is played, everything that runs does so all the time.

use warmcore_topology::{CpuId, Machine};

use crate::curves::Replacement;
use crate::hierarchy::HierarchyError;
use crate::profile::Profile;

use super::{Analytic, Counters, IDLE, TaskSpec};

/// The model with a clock.
pub struct Player {
    model: Analytic,
    now_ns: u64,
    reported_ns: Vec<u64>,
    due: Vec<CpuId>,
}

impl Player {
    /// A player at time 0 with idle CPUs.
    ///
    /// # Errors
    /// See [`Analytic::new`].
    ///
    /// # Panics
    /// See [`Analytic::new`].
    pub fn new(machine: &Machine, profiles: &[Profile]) -> Result<Self, HierarchyError> {
        Self::with_replacement(machine, profiles, Replacement::Lru)
    }

    /// The same with caches that replace by another rule than LRU.
    ///
    /// # Errors
    /// See [`Analytic::new`].
    ///
    /// # Panics
    /// See [`Analytic::new`].
    pub(crate) fn with_replacement(
        machine: &Machine,
        profiles: &[Profile],
        replacement: Replacement,
    ) -> Result<Self, HierarchyError> {
        let model = Analytic::with_replacement(machine, profiles, replacement)?;
        Ok(Self { model, now_ns: 0, reported_ns: vec![0; machine.cpu_count()], due: Vec::new() })
    }

    /// The model, to read.
    pub fn model(&self) -> &Analytic {
        &self.model
    }

    /// The model, to change: page homes, profiles. Not to switch tasks.
    pub fn model_mut(&mut self) -> &mut Analytic {
        &mut self.model
    }

    /// Simulated time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Adds a task; see [`Analytic::add_task`].
    pub fn add_task(&mut self, spec: &TaskSpec<'_>) -> u32 {
        self.model.add_task(spec)
    }

    fn report(&mut self, cpu: CpuId) {
        let since = self.now_ns - std::mem::replace(&mut self.reported_ns[cpu.index()], self.now_ns);
        if self.model.cpus[cpu.index()].task != IDLE {
            self.model.ran(cpu, since);
        }
    }

    fn report_core(&mut self, cpu: CpuId) {
        self.report(cpu);
        for position in 0..self.model.geometry.siblings[cpu.index()].len() {
            let sibling = self.model.geometry.siblings[cpu.index()][position];
            self.report(CpuId(sibling));
        }
    }

    /// The task runs on the CPU from now on.
    pub fn switch_in(&mut self, cpu: CpuId, task: u32) {
        self.report_core(cpu);
        self.model.switch_in(self.now_ns, cpu, task);
        self.model.evaluate(self.now_ns, cpu, None);
    }

    /// Whatever runs on the CPU stops.
    pub fn switch_out(&mut self, cpu: CpuId) {
        self.report_core(cpu);
        self.model.switch_out(self.now_ns, cpu);
    }

    /// Lets time pass up to `until_ns`.
    pub fn advance(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            let mut next = until_ns.min(self.model.due_ns().max(self.now_ns + 1));
            for cpu in 0..self.reported_ns.len() {
                if self.model.cpus[cpu].task != IDLE {
                    next = next.min(self.model.cpus[cpu].review_ns.max(self.now_ns + 1));
                }
            }
            self.now_ns = next;
            for cpu in 0..self.reported_ns.len() {
                if self.model.cpus[cpu].task != IDLE && self.model.cpus[cpu].review_ns <= next {
                    self.report(CpuId::from_index(cpu));
                    self.model.evaluate(next, CpuId::from_index(cpu), None);
                }
            }
            if self.model.due_ns() <= next {
                let mut due = std::mem::take(&mut self.due);
                self.model.due_cpus(next, &mut due);
                for &cpu in &due {
                    self.report(cpu);
                }
                self.model.refresh(next);
                self.due = due;
            }
            while self.model.take_changed().is_some() {}
        }
        for cpu in 0..self.reported_ns.len() {
            self.report(CpuId::from_index(cpu));
        }
    }

    /// What a task's time and accesses went to so far.
    pub fn counters(&self, task: u32) -> Counters {
        self.model.counters(task)
    }
}
