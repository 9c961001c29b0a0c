//! Whose threads are to be kept near a common cache: those of a process, as in Linux 7.2 (`struct mm_struct` holds the state of
//! cache-aware scheduling), or of a group that somebody has formed for it.

use warmcore_workload::{Aggregate, Aggregation, DataGroupId, GroupId, ProcessId, TaskTemplateId, Workload};

/// From tasks to cache groups: one for each process, then one for each named group.
pub(crate) struct CacheGroups<'a> {
    aggregation: &'a Aggregation,
    /// By template.
    data_groups: Vec<&'a [DataGroupId]>,
    processes: u32,
}

impl<'a> CacheGroups<'a> {
    /// The groups of a workload.
    pub fn new(workload: &'a Workload) -> Self {
        Self {
            aggregation: &workload.aggregation,
            data_groups: workload.tasks.iter().map(|task| task.data_groups.as_slice()).collect(),
            processes: workload.processes.len() as u32,
        }
    }

    /// Cache group of a task of a template, a process and, perhaps, a task group; `None` if it is kept with nobody.
    pub fn of(&self, template: TaskTemplateId, process: u32, group: Option<u32>) -> Option<u32> {
        let data = self.data_groups[template.index()];
        match self.aggregation.of(ProcessId(process), group.map(GroupId), data) {
            Aggregate::Off => None,
            Aggregate::Process => Some(process),
            Aggregate::Group(label) => Some(self.processes + label),
        }
    }
}
