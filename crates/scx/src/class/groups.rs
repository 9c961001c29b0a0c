//! What a program hears of task groups when it is loaded and ends, and of a task that changes its group.
//!
//! A move that the program refuses does not take place. No call says that one is cancelled, as a task moves alone.
//!
//! Source: Linux 7.2 `kernel/sched/ext.c` (`scx_cgroup_init`, `scx_cgroup_exit`, `scx_cgroup_can_attach`, `scx_cgroup_move_task`),
//! `kernel/sched/core.c` (`sched_move_task`).

use warmcore_kernel::{Core, Dequeue, Enqueue};
use warmcore_trace::TaskId;

use crate::class::Ext;
use crate::groups::{self, GroupCall, GroupLimits};
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;
use crate::state::Context;

impl Ext {
    /// The program is told of all groups, until it refuses one.
    pub(super) fn init_groups(&mut self, core: &mut Core<'_>) {
        for group in groups::all(core, false) {
            let limits = GroupLimits::of(core, group);
            tell!(self, core, CgroupInit, Context::Unlocked, cgroup(GroupCall::Init { group, limits }));
            if self.state.is_bypassed() {
                return;
            }
            self.state.groups.push(group);
        }
    }

    /// The program ends, and is told so of the groups that it did not refuse.
    pub(super) fn exit_groups(&mut self, core: &mut Core<'_>) {
        let initialised = std::mem::take(&mut self.state.groups);
        if !self.state.has(Operation::CgroupExit) {
            return;
        }
        for group in groups::all(core, true) {
            if initialised.contains(&group) {
                call!(self, core, CgroupExit, Context::Unlocked, cgroup(GroupCall::Exit { group }));
            }
        }
    }

    /// Whether the program lets a task into another group.
    pub(super) fn permits_move(&mut self, core: &mut Core<'_>, task: TaskId, to: Option<u32>) -> bool {
        let (from, is_known) = (self.state.tasks[task.index()].group, self.state.tasks[task.index()].initialised);
        if from == to || !is_known || !self.asks(Operation::CgroupPrepMove) {
            return true;
        }
        let call = GroupCall::PrepareMove { task, from, to };
        let permits = call!(self, core, CgroupPrepMove, Context::Unlocked, cgroup(call));
        if !permits {
            core.decide(self.state.decisions.refused_move, task, i64::from(core.task(task).cpu().0));
        }
        permits
    }

    /// A task is in another group than the program knows, of whatever class it is.
    pub(super) fn change_group(&mut self, core: &mut Core<'_>, task: TaskId) {
        let (from, to) = (self.state.tasks[task.index()].group, core.task(task).group());
        let is_known = self.state.tasks[task.index()].initialised;
        let was = self.take_out(core, task, Dequeue::SAVE | Dequeue::MOVE);
        self.state.tasks[task.index()].group = to;
        self.program.group_changed(task, to);
        if is_known {
            tell!(self, core, CgroupMove, cgroup(GroupCall::Move { task, from, to }));
        }
        self.put_back(core, task, was, Enqueue::RESTORE | Enqueue::MOVE);
        if was.runs {
            core.resched_full(core.task(task).cpu());
        }
    }
}
