//! Which memory profiles the tasks of a workload have, for memories that model them.
//!
//! Tasks that name no profile compute without touching memory.

use warmcore_memory::{Profile, library};
use warmcore_topology::Machine;
use warmcore_trace::TaskId;
use warmcore_workload::{ChannelKind, DataGroupId, Workload};

/// Profiles by task template, and the template of each task.
pub(crate) struct TaskProfiles<'a> {
    workload: &'a Workload,
    /// Profiles in use, which are numbered by their place here.
    pub used: Vec<Profile>,
    /// By template.
    profiles: Vec<usize>,
    /// Lines of a message that the template's profile states.
    message_lines: Vec<Option<u32>>,
    /// By template, and then by phase of those that have one of their own, sorted.
    phase_profiles: Vec<Vec<(u32, usize)>>,
    /// By task.
    templates: Vec<u32>,
}

impl<'a> TaskProfiles<'a> {
    /// Those of a workload; and, as the template behind its own, that of kernel threads and launchers.
    pub fn new(workload: &'a Workload) -> Self {
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
        profiles.push(index_of(default));
        message_lines.push(None);
        phase_profiles.push(Vec::new());
        let used = used.into_iter().cloned().collect();
        Self { workload, used, profiles, message_lines, phase_profiles, templates: Vec::new() }
    }

    /// The next task exists, made from a template. Its profile.
    pub fn task_created(&mut self, template: u32) -> usize {
        self.templates.push(template);
        self.profiles[template as usize]
    }

    /// The template of a task.
    pub fn template(&self, task: TaskId) -> u32 {
        self.templates[task.index()]
    }

    /// The profile of a template outside of phases that have one of their own.
    pub(crate) fn of_template(&self, template: u32) -> usize {
        self.profiles[template as usize]
    }

    /// The profile of a template in a phase.
    pub(crate) fn in_phase(&self, template: u32, phase: u32) -> usize {
        let of_phases = &self.phase_profiles[template as usize];
        let found = of_phases.binary_search_by_key(&phase, |(phase, _)| *phase);
        found.map_or(self.profiles[template as usize], |position| of_phases[position].1)
    }

    /// The profiles of a template's phases.
    pub fn of_phases(&self, template: u32) -> Vec<usize> {
        self.phase_profiles[template as usize].iter().map(|(_, profile)| *profile).collect()
    }

    /// The process of a template.
    pub fn process(&self, template: u32) -> u32 {
        let template = self.workload.tasks.get(template as usize);
        template.map_or(self.workload.processes.len() as u32, |template| template.process.0)
    }

    /// The data groups of a template: number and name.
    pub fn data(&self, template: u32) -> Vec<(u32, &'a str)> {
        let name_of = |id: &DataGroupId| (id.0, self.workload.data_groups[id.index()].name.as_str());
        let template = self.workload.tasks.get(template as usize);
        template.map_or(Vec::new(), |template| template.data_groups.iter().map(name_of).collect())
    }

    /// Lines that change hands with a message that the task gets.
    pub fn message_lines(&self, machine: &Machine, kind: ChannelKind, task: TaskId) -> u32 {
        let costs = machine.costs();
        match kind {
            ChannelKind::Pipe => {
                self.message_lines[self.templates[task.index()] as usize].unwrap_or(costs.message_lines)
            }
            ChannelKind::Socket => costs.socket_message_lines,
        }
    }
}
