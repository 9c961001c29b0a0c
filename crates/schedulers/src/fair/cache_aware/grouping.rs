//! Who is kept together: the threads of a cache group, which the kernel knows.

use warmcore_kernel::Task;
use warmcore_trace::TaskId;

use super::{CacheAware, Slot, TaskState, ThreadGroup};
use crate::fair::state::NONE;

impl CacheAware {
    /// A thread exists (`mm_init_sched`, `init_sched_mm`): it starts without preference.
    pub(super) fn add_task(&mut self, task: &Task) {
        let group = self.join(task);
        self.tasks.push(TaskState { group, preferred_llc: NONE, queued_on_preferred: false, scan_pending: false });
    }

    /// A task that is in no queue may belong to another group from now on: it starts there without preference.
    pub(super) fn regroup(&mut self, id: TaskId, task: &Task) {
        let old = self.tasks[id.index()].group;
        if old == task.cache_group().unwrap_or(NONE) {
            return;
        }
        self.leave(old);
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
        self.groups[group as usize].threads += 1;
        group
    }

    /// A group has one thread less.
    pub(super) fn leave(&mut self, group: u32) {
        if group != NONE {
            self.groups[group as usize].threads -= 1;
        }
    }
}
