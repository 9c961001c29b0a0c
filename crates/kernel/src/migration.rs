//! Tasks that stay on their CPU for a while: `migrate_disable` and `migrate_enable`.
//!
//! What a task calls changes a count. Its mask shrinks to the CPU when it is switched out for the first time after that, at the head of
//! `__schedule`, and comes back with the last `migrate_enable` (`migrate_disable_switch` and `migrate_enable` of Linux 6.18 and later). Another
//! mask that somebody gives it meanwhile holds from then on. A task that is waited for by who changes its mask is not modelled: the
//! change returns at once.

use warmcore_topology::CpuId;
use warmcore_trace::{EventKind, TaskId};

use crate::engine::{Engine, Leave};
use crate::memory::Memory;
use crate::scheduler::Scheduler;

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Another mask is asked for, of which a task gets what the cpuset of its group leaves, or all of it where those CPUs are offline.
    pub(crate) fn set_mask(&mut self, task: TaskId, asked: u32) {
        let state = &mut self.core.tasks[task.index()];
        state.asked_restriction = asked;
        let mask = self.setup.mask_in(state.group, asked);
        let is_offline = mask != asked && self.core.cpus_of_restriction(mask).is_empty();
        self.apply_mask(task, if is_offline { asked } else { mask });
    }

    /// `do_set_cpus_allowed`: another mask for a task. One that it stays on its CPU for is covered until it may leave.
    fn apply_mask(&mut self, task: TaskId, restriction: u32) {
        let state = &mut self.core.tasks[task.index()];
        match &mut state.kept_restriction {
            Some(kept) => *kept = restriction,
            None => {
                state.restriction = restriction;
                self.core.emit(EventKind::Affinity { task, restriction });
            }
        }
        self.scheduler.affinity_changed(&mut self.core, task);
    }

    /// `migrate_disable` by the running task.
    pub(crate) fn disable_migration(&mut self, task: TaskId) {
        let count = &mut self.core.tasks[task.index()].migration_disabled;
        *count = count.saturating_add(1);
    }

    /// `migrate_enable` by the running task. Whether it has to leave its CPU for a mask that it was given meanwhile.
    pub(crate) fn enable_migration(&mut self, cpu: CpuId, task: TaskId) -> Option<Leave> {
        let state = &mut self.core.tasks[task.index()];
        state.migration_disabled = state.migration_disabled.saturating_sub(1);
        if state.migration_disabled > 0 {
            return None;
        }
        let kept = state.kept_restriction.take()?;
        self.apply_mask(task, kept);
        (!self.core.may_run_on(task, cpu)).then_some(Leave::Displaced)
    }

    /// A running task that has disabled migration is about to be switched out: it may use its CPU only (`migrate_disable_switch`).
    #[cold]
    pub(crate) fn pin(&mut self, cpu: CpuId, task: TaskId) {
        let lone = self.setup.lone_cpus[cpu.index()];
        let state = &mut self.core.tasks[task.index()];
        if state.kept_restriction.is_some() {
            return;
        }
        let mask = std::mem::replace(&mut state.restriction, lone);
        state.kept_restriction = Some(mask);
        self.core.emit(EventKind::Affinity { task, restriction: lone });
        self.scheduler.affinity_changed(&mut self.core, task);
    }
}
