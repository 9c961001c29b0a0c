//! A task that moves itself to another task group, as a thread does by a write to `cgroup.threads`.
//!
//! The call takes a mutex of the whole machine (`cgroup_mutex`) for nearly all of its time, so tasks that change groups wait for each other by
//! the rules of [`sleeping_lock`](crate::sleeping_lock). The move asks for the mover's CPU (`sched_move_task`) before the mutex is given back: where
//! the kernel is preemptible, a mover that loses its CPU there keeps the others waiting.
//!
//! Not modelled: the semaphore of thread groups (`cgroup_threadgroup_rwsem`), for which forks and exits wait and which waits for a grace
//! period of RCU where it was not taken for a while; what else takes the mutex; groups that tasks are in from their start.
//!
//! Source: Linux 7.2 `kernel/cgroup/cgroup.c` (`__cgroup_procs_write`, `cgroup_attach_task`), `kernel/sched/core.c` (`sched_move_task`).

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::GroupId;

use crate::engine::{Engine, Leave};
use crate::interpreter::Done;
use crate::memory::Memory;
use crate::scheduler::{Change, Scheduler};
use crate::task::{Activity, Stage};

/// For how long the mutex is held, as a multiple of the machine's `syscall_ns`. An assumption: about 50 us in a guest of Linux 7.2 where a call takes
/// 0.66 us (`costs.syscall_ns` of `book/results/group-changes-often.json`; there a mover's turns are 55 us longer than its program), and in the same
/// proportion elsewhere.
const HELD_CALLS: u64 = 75;

/// How far a change of a task's group has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum GroupChange {
    /// There is none.
    #[default]
    None,
    /// The call has been entered, from user mode or within the kernel.
    Entered { from_user: bool },
    /// The mutex was asked for.
    Waits { from_user: bool },
    /// The mutex is the task's.
    Holds { from_user: bool },
    /// The task is in its new group and still has the mutex.
    Changed { from_user: bool },
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// The running task moves to a group. Each part of the change is looked at in turn, with what the parts before it took in between.
    pub(super) fn group_change_step(&mut self, cpu: CpuId, id: TaskId, group: GroupId) -> Done {
        let lock = self.objects.group_lock;
        let syscall_ns = self.core.machine.costs().syscall_ns;
        let kernel = &mut self.core.tasks[id.index()].kernel;
        match kernel.group_change {
            GroupChange::None => {
                kernel.group_change = GroupChange::Entered { from_user: !kernel.within };
                kernel.within = true;
                self.pay_or_go_on(id, syscall_ns)
            }
            GroupChange::Entered { from_user } => {
                kernel.group_change = GroupChange::Waits { from_user };
                self.retry(id)
            }
            GroupChange::Waits { from_user } => match self.sleeping_lock_step(cpu, id, lock, false) {
                Done::Next => {
                    let task = &mut self.core.tasks[id.index()];
                    (task.kernel.group_change, task.stage) = (GroupChange::Holds { from_user }, Stage::Begin);
                    self.pay_or_go_on(id, syscall_ns.saturating_mul(HELD_CALLS))
                }
                waits => waits,
            },
            GroupChange::Holds { from_user } => {
                kernel.group_change = GroupChange::Changed { from_user };
                self.change_group(cpu, id, group);
                self.confine_to_group(cpu, id)
            }
            GroupChange::Changed { from_user } => {
                kernel.group_change = GroupChange::None;
                self.sleeping_unlock_step(cpu, id, lock);
                self.step_over(id);
                if from_user {
                    self.return_to_user(cpu, id);
                }
                self.give_way(cpu, from_user)
            }
        }
    }

    /// The task's mask becomes what the cpuset of its new group leaves (`cpuset_attach_task`).
    fn confine_to_group(&mut self, cpu: CpuId, id: TaskId) -> Done {
        let task = &self.core.tasks[id.index()];
        let asked = task.asked_restriction;
        if self.setup.mask_in(task.group, asked) != task.kept_restriction.unwrap_or(task.restriction) {
            self.set_mask(id, asked);
            if !self.core.may_run_on(id, cpu) {
                self.core.tasks[id.index()].activity = Activity::Advance;
                return Done::Leaves(Leave::Displaced);
            }
        }
        Done::Again
    }

    pub(super) fn pay_or_go_on(&mut self, id: TaskId, cost_ns: u64) -> Done {
        if self.pay(id, cost_ns) { Done::Busy } else { Done::Again }
    }

    /// The task is in its new group from now on, if the scheduler permits it. Who was there already is taken off no queue (`sched_move_task`).
    fn change_group(&mut self, cpu: CpuId, id: TaskId, group: GroupId) {
        let to = (!self.workload.groups[group.index()].is_root()).then_some(group.0);
        if self.core.tasks[id.index()].group == to {
            return;
        }
        self.settle(cpu);
        if self.scheduler.permits(&mut self.core, id, Change::Group(to)) {
            let task = &mut self.core.tasks[id.index()];
            task.group = to;
            task.cache_group = self.cache_groups.of(task.template, task.process, to);
            self.core.restart_tick(cpu);
            self.scheduler.attributes_changed(&mut self.core, id);
        }
    }
}
