//! The analytic model of caches, coherence and DRAM as the kernel's memory.
//!
//! Work is counted at the speed of its profile alone and warm on a CPU of capacity 1024, so a lone warm task takes as long
//! as with constant speeds. Tasks that name no profile compute without touching memory; what a migration costs them is the
//! machine's constant.

use warmcore_memory::analytic::{Analytic, Counters, TaskSpec};
use warmcore_memory::{HierarchyError, Profile, library};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::TaskId;
use warmcore_workload::{ChannelKind, DataGroupId, Workload};

use crate::memory::Memory;

/// The model, and which profile each task template has in it.
pub(crate) struct AnalyticMemory<'a> {
    model: Analytic,
    machine: &'a Machine,
    workload: &'a Workload,
    /// By template.
    profiles: Vec<usize>,
    /// Lines of a message that the template's profile states.
    message_lines: Vec<Option<u32>>,
    /// By template, and then by phase of those that have one of their own, sorted.
    phase_profiles: Vec<Vec<(u32, usize)>>,
    /// By task: its template, and its profile now.
    templates: Vec<u32>,
    current: Vec<usize>,
}

impl<'a> AnalyticMemory<'a> {
    pub fn new(machine: &'a Machine, workload: &'a Workload) -> Result<Self, HierarchyError> {
        let default = library::computing();
        let mut used: Vec<&Profile> = Vec::new();
        let mut profiles = Vec::with_capacity(workload.tasks.len());
        let mut message_lines = Vec::with_capacity(workload.tasks.len());
        let mut phase_profiles = Vec::with_capacity(workload.tasks.len());
        let mut index_of = |profile: &'a Profile| {
            let known = used.iter().position(|known| std::ptr::eq(*known, profile));
            known.unwrap_or_else(|| {
                used.push(profile);
                used.len() - 1
            })
        };
        for task in &workload.tasks {
            let profile = workload.profile_of(task).unwrap_or(default);
            profiles.push(index_of(profile));
            message_lines.push(task.profile.as_ref().and(profile.message_lines));
            let named = |(phase, name): &(u32, String)| (*phase, workload.profile_called(name).unwrap_or(default));
            let of_phases = task.phase_profiles.iter().map(named);
            let mut of_phases: Vec<(u32, usize)> =
                of_phases.map(|(phase, profile)| (phase, index_of(profile))).collect();
            of_phases.sort_unstable();
            phase_profiles.push(of_phases);
        }
        let used: Vec<Profile> = used.into_iter().cloned().collect();
        let model = Analytic::new(machine, &used)?;
        let (templates, current) = (Vec::new(), Vec::new());
        Ok(Self { model, machine, workload, profiles, message_lines, phase_profiles, templates, current })
    }

    /// Makes a task of the template's process and data with a profile known to the model.
    fn with_spec<R>(
        &mut self,
        template: u32,
        profile: usize,
        act: impl FnOnce(&mut Analytic, &TaskSpec<'_>) -> R,
    ) -> R {
        let description = &self.workload.tasks[template as usize];
        let name_of = |id: &DataGroupId| (id.0, self.workload.data_groups[id.index()].name.as_str());
        let data: Vec<(u32, &str)> = description.data_groups.iter().map(name_of).collect();
        act(&mut self.model, &TaskSpec { profile, process: description.process.0, data: &data })
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
        let costs = self.machine.costs();
        let of_machine = match kind {
            ChannelKind::Pipe => costs.message_lines,
            ChannelKind::Socket => costs.socket_message_lines,
        };
        let of_profile = self.message_lines[self.templates[task.index()] as usize];
        let lines = match kind {
            ChannelKind::Pipe => of_profile.unwrap_or(of_machine),
            ChannelKind::Socket => of_machine,
        };
        // What was measured is waiting, whatever overlaps.
        (f64::from(lines) * self.model.line_ns(from, to)).round() as u64
    }

    fn handoff_ns(&self, from: CpuId, to: CpuId) -> u64 {
        self.lines_ns(from, to, self.machine.costs().futex_lines)
    }

    fn lines_ns(&self, from: CpuId, to: CpuId, lines: u32) -> u64 {
        self.model.lines_ns(from, to, lines).round() as u64
    }

    fn task_created(&mut self, template: u32) {
        let profile = self.profiles[template as usize];
        self.templates.push(template);
        self.current.push(profile);
        self.with_spec(template, profile, |model, spec| model.add_task(spec));
    }

    fn begin_phase(&mut self, now_ns: u64, task: TaskId, phase: u32) {
        let template = self.templates[task.index()];
        let of_phases = &self.phase_profiles[template as usize];
        let found = of_phases.binary_search_by_key(&phase, |(phase, _)| *phase);
        let profile = found.map_or(self.profiles[template as usize], |position| of_phases[position].1);
        if std::mem::replace(&mut self.current[task.index()], profile) != profile {
            self.with_spec(template, profile, |model, spec| model.set_profile(now_ns, task.0, spec));
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
        let profile = self.profiles[self.templates[task.index()] as usize];
        if class.is_none() || profile == self.current[task.index()] {
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
