//! Who is kept together: the threads of a process, as in the kernel, or what the workload says instead.

use warmcore_kernel::Task;
use warmcore_trace::TaskId;
use warmcore_workload::{Aggregate, Aggregation, DataGroupId, GroupId, ProcessId, Workload};

use super::CacheAware;
use crate::fair::state::NONE;

/// From tasks to groups of threads: one per process, then one per named group.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    aggregation: Aggregation,
    /// By template.
    data_groups: Vec<Vec<DataGroupId>>,
    processes: u32,
}

impl Grouping {
    /// The groups of a workload.
    pub fn new(workload: &Workload) -> Self {
        Self {
            aggregation: workload.aggregation.clone(),
            data_groups: workload.tasks.iter().map(|task| task.data_groups.clone()).collect(),
            processes: workload.processes.len() as u32,
        }
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.processes as usize + self.aggregation.groups.len()
    }

    /// Group of a task; [`NONE`] if it is kept with nobody.
    pub fn of(&self, task: &Task) -> u32 {
        let process = task.process();
        let data = &self.data_groups[task.template().index()];
        match self.aggregation.of(ProcessId(process), task.group().map(GroupId), data) {
            Aggregate::Off => NONE,
            Aggregate::Process => process,
            Aggregate::Group(label) => self.processes + label,
        }
    }
}

impl CacheAware {
    /// A task that is in no queue may belong to another group from now on: it starts there without preference.
    pub fn regroup(&mut self, task: TaskId, group: u32) {
        let state = &mut self.tasks[task.index()];
        if state.group == group {
            return;
        }
        let old = std::mem::replace(&mut state.group, group);
        state.preferred_llc = NONE;
        if old != NONE {
            self.groups[old as usize].threads -= 1;
        }
        if group != NONE {
            self.groups[group as usize].threads += 1;
        }
    }
}
