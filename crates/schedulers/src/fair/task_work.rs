//! Work that a task does when it returns to user mode (`task_work_add`): scans that its tick asked for.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::{Fair, Policy};
use crate::fair::gathering::Gathering;

/// A bit per kind of work.
pub(crate) mod work {
    /// Look where the process ran (`task_cache_work`).
    pub(crate) const CACHE_SCAN: u8 = 1 << 0;
    /// Sample the process's memory (`task_numa_work`).
    pub(crate) const NUMA_SCAN: u8 = 1 << 1;
    /// Look for a CPU on the preferred node (`numa_migrate_preferred`).
    pub(crate) const NUMA_PLACE: u8 = 1 << 2;
    /// Pay for hint faults.
    pub(crate) const NUMA_FAULTS: u8 = 1 << 3;
    /// Leave, as the quota is used up (`throttle_cfs_rq_work`).
    pub(crate) const THROTTLE: u8 = 1 << 4;
}

/// Work waiting, by task.
#[derive(Debug, Default)]
pub(crate) struct TaskWork {
    pending: Vec<u8>,
    /// Tasks with work waiting.
    count: u32,
}

impl TaskWork {
    /// Adds work to a task (`task_work_add`).
    pub(super) fn add(&mut self, task: TaskId, kind: u8) {
        if self.pending.len() <= task.index() {
            self.pending.resize(task.index() + 1, 0);
        }
        let pending = &mut self.pending[task.index()];
        self.count += u32::from(*pending == 0);
        *pending |= kind;
    }

    /// Whether a task has work of one of these kinds.
    pub(super) fn has(&self, task: TaskId, kinds: u8) -> bool {
        self.count > 0 && self.pending.get(task.index()).is_some_and(|pending| pending & kinds != 0)
    }

    /// Takes a task's work (`task_work_run`).
    #[inline]
    fn take(&mut self, task: TaskId) -> u8 {
        if self.count == 0 {
            return 0;
        }
        let pending = self.pending.get_mut(task.index()).map_or(0, std::mem::take);
        self.count -= u32::from(pending != 0);
        pending
    }

    /// The task is gone.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.take(task);
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Ordinary tick of a running task: asks for work that is due. The task does it after the interrupt, when it goes on or,
    /// if the tick ends its slice, when it runs again.
    pub(super) fn tick_task_work(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        let mut due = false;
        if self.gathering.tick(cpu, task) {
            self.task_work.add(task, work::CACHE_SCAN);
            due = true;
        }
        if self.numa.is_some() {
            due |= self.tick_numa(core, cpu, task);
        }
        if due {
            core.start_timer(cpu, 0, task.0.into());
        }
    }

    /// The task returns to user mode.
    #[inline]
    pub(super) fn do_task_work(&mut self, core: &mut Core<'_>, task: TaskId) {
        let pending = self.task_work.take(task);
        if pending != 0 {
            self.run_task_work(core, task, pending);
        }
    }

    #[inline(never)]
    fn run_task_work(&mut self, core: &mut Core<'_>, task: TaskId, pending: u8) {
        if core.at_return_to_user(task, task.0.into()) {
            self.task_work.add(task, pending);
            return;
        }
        if pending & work::CACHE_SCAN != 0 {
            G::scan(self, core, task);
        }
        if pending & (work::NUMA_SCAN | work::NUMA_PLACE | work::NUMA_FAULTS) != 0 {
            self.do_numa_work(core, task, pending);
        }
        if pending & work::THROTTLE != 0 {
            self.leave_throttled(core, task);
        }
    }
}
