//! Who is kept together: the threads of a cache group, which the kernel knows.

use warmcore_kernel::Task;
use warmcore_trace::TaskId;

use super::{CacheAware, Slot, TaskState, ThreadGroup};
use crate::fair::state::NONE;

impl CacheAware {
    /// A thread exists (`mm_init_sched`, `init_sched_mm`): it starts without preference.
    pub(super) fn add_task(&mut self, task: &Task) {
        let group = self.join(task);
        self.tasks.push(TaskState {
            group,
            process: task.process(),
            preferred_llc: NONE,
            queued_on_preferred: false,
            scan_pending: false,
        });
    }

    /// A task that is in no queue may belong to another group from now on: it starts there without preference.
    pub(super) fn regroup(&mut self, id: TaskId, task: &Task) {
        let old = self.tasks[id.index()].group;
        if old == task.cache_group().unwrap_or(NONE) {
            return;
        }
        self.leave(id);
        let group = self.join(task);
        let state = &mut self.tasks[id.index()];
        (state.group, state.preferred_llc) = (group, NONE);
    }

    /// A group has one thread more: that of the task. Its number, or [`NONE`].
    fn join(&mut self, task: &Task) -> u32 {
        let Some(group) = task.cache_group() else { return NONE };
        if self.groups.len() <= group as usize {
            self.groups.resize(group as usize + 1, ThreadGroup::default());
            self.slots.resize(self.groups.len() * self.cpus.len(), Slot::default());
        }
        self.groups[group as usize].join(task.process());
        group
    }

    /// A task's group, if it is in one, has one thread less.
    pub(super) fn leave(&mut self, task: TaskId) {
        let TaskState { group, process, .. } = self.tasks[task.index()];
        if group != NONE {
            self.groups[group as usize].leave(process);
        }
    }
}

impl ThreadGroup {
    /// It has one more thread of a process.
    fn join(&mut self, process: u32) {
        self.threads += 1;
        match self.processes.iter_mut().find(|(known, _)| *known == process) {
            Some((_, threads)) => *threads += 1,
            None => self.processes.push((process, 1)),
        }
    }

    /// It has one thread of a process less.
    fn leave(&mut self, process: u32) {
        self.threads -= 1;
        if let Some(position) = self.processes.iter().position(|(known, _)| *known == process) {
            self.processes[position].1 -= 1;
            if self.processes[position].1 == 0 {
                self.processes.swap_remove(position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_each_process_once_as_long_as_it_has_threads_of_it() {
        let mut group = ThreadGroup::default();
        for process in [7, 3, 7, 7] {
            group.join(process);
        }
        assert_eq!((group.threads, group.processes.as_slice()), (4, [(7, 3), (3, 1)].as_slice()));
        for process in [7, 3, 7] {
            group.leave(process);
        }
        assert_eq!((group.threads, group.processes.as_slice()), (1, [(7, 1)].as_slice()));
        group.leave(7);
        assert_eq!((group.threads, group.processes.len()), (0, 0));
    }
}
