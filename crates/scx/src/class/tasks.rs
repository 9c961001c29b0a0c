//! What a program hears of its tasks from the first to the last.
//!
//! Source: `docs/spec/sched-ext.md` section 3.

use warmcore_kernel::{Core, Dequeue, Enqueue, Scheduler, State};
use warmcore_trace::TaskId;
use warmcore_workload::Policy;

use crate::class::Ext;
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;
use crate::state::{Context, ExtTask};

/// Where a task was before a change.
#[derive(Clone, Copy)]
pub(super) struct Was {
    queued: bool,
    /// It has its CPU, and is queued as such.
    pub runs: bool,
}

impl Ext {
    /// `sched_weight_to_cgroup`: 100 for nice 0, 1 to 10 000.
    pub(super) fn weight(&self, core: &Core<'_>, task: TaskId) -> u32 {
        let fair = u64::from((self.weight_of)(core.task(task).policy(), core.task(task).nice()));
        ((fair * 100 + 512) / 1024).clamp(1, 10_000) as u32
    }

    /// The class knows of the next task.
    pub(super) fn add_task(&mut self, core: &mut Core<'_>, task: TaskId) {
        let weight = self.weight(core, task);
        self.state.queues.add_task();
        self.state.entities.add_task();
        self.state.tasks.push(ExtTask { weight, group: core.task(task).group(), ..ExtTask::default() });
    }

    /// The program is told of a task, if it lives (`scx_init_task`).
    pub(super) fn init_task(&mut self, core: &mut Core<'_>, task: TaskId) {
        if self.state.is_bypassed() || core.task(task).state() == State::Dead {
            return;
        }
        let refused =
            self.state.has(Operation::InitTask) && !call!(self, core, InitTask, Context::Other, init_task(task));
        self.state.tasks[task.index()].initialised = !refused;
    }

    /// A task enters the class.
    pub(super) fn enable(&mut self, core: &mut Core<'_>, task: TaskId) {
        if !self.state.tasks[task.index()].initialised {
            return;
        }
        self.state.tasks[task.index()].enabled = true;
        let weight = self.state.tasks[task.index()].weight;
        tell!(self, core, Enable, enable(task));
        tell!(self, core, SetWeight, set_weight(task, weight));
    }

    /// Whether a task may change to a policy (`scx_check_setscheduler`).
    pub(super) fn permits_policy(&self, core: &mut Core<'_>, task: TaskId, policy: Policy) -> bool {
        let becomes_ext = policy == Policy::Ext && core.task(task).policy() != Policy::Ext;
        if !becomes_ext || !self.state.tasks[task.index()].disallowed || self.state.is_bypassed() {
            return true;
        }
        core.decide(self.state.decisions.refused_policy, task, i64::from(core.task(task).cpu().0));
        false
    }

    /// A task leaves the class, if it is in it.
    pub(super) fn disable(&mut self, core: &mut Core<'_>, task: TaskId) {
        if std::mem::take(&mut self.state.tasks[task.index()].enabled) && self.state.has(Operation::Disable) {
            call!(self, core, Disable, Context::Other, disable(task));
        }
    }

    /// A task is gone, or the program is.
    pub(super) fn leave(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.disable(core, task);
        if std::mem::take(&mut self.state.tasks[task.index()].initialised) && self.state.has(Operation::ExitTask) {
            call!(self, core, ExitTask, Context::Other, exit_task(task));
        }
    }

    /// The program hears where a task of its own may run.
    pub(super) fn tell_mask(&mut self, core: &mut Core<'_>, task: TaskId) {
        if self.state.tasks[task.index()].enabled {
            let allowed = core.allowed(task);
            tell!(self, core, SetCpumask, set_cpumask(task, allowed));
        }
    }

    /// Takes a task of this class off its queue for a change (`sched_change_begin`).
    pub(super) fn take_out(&mut self, core: &mut Core<'_>, task: TaskId, flags: Dequeue) -> Was {
        let cpu = core.task(task).cpu();
        let queued = self.state.tasks[task.index()].queued;
        let runs = queued && core.curr(cpu) == task;
        if queued {
            self.dequeue(core, cpu, task, flags);
        }
        Was { queued, runs }
    }

    /// Puts it back to where it was (`sched_change_end`).
    pub(super) fn put_back(&mut self, core: &mut Core<'_>, task: TaskId, was: Was, flags: Enqueue) {
        let cpu = core.task(task).cpu();
        if was.queued {
            self.enqueue(core, cpu, task, flags);
        }
        if was.runs {
            self.set_next(core, cpu, task);
        }
        self.settle(core);
    }

    /// Whether tasks of a policy are of this class.
    pub(super) fn takes(&self, policy: Policy) -> bool {
        self.state.takes(policy)
    }
}
