//! Places of the kernel, other than switches, at which an object has programs of tracing; and threads of a loader, which the kernel runs as tasks.

use warmcore_kernel::{Core, Hook, ThreadStep, Watched};

use crate::class::Ext;
use crate::events::{Event, Traced};
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;
use crate::state::Context;

impl Ext {
    /// The kernel tells of those places at which the program is.
    pub(super) fn watch_places(&self, core: &mut Core<'_>) {
        let has = |operation| self.state.has(operation);
        core.watch(Watched {
            futexes: has(Operation::Futex),
            interrupts: has(Operation::Interrupt),
            ticks: has(Operation::KernelTick),
            wakeups: has(Operation::SchedWakeup),
            moves: has(Operation::SchedMigrateTask),
            processes: has(Operation::SchedProcess),
        });
    }

    /// A CPU passes one of them.
    pub(super) fn tell_hook(&mut self, core: &mut Core<'_>, hook: Hook) {
        match hook {
            _ if hook.is_of_futex() => tell!(self, core, Futex, hook(hook)),
            Hook::Tick => tell!(self, core, KernelTick, hook(hook)),
            Hook::SchedWaking { .. } | Hook::SchedWakeup { .. } | Hook::SchedWakeupNew { .. } => {
                tell!(self, core, SchedWakeup, hook(hook));
            }
            Hook::SchedMigrateTask { .. } => {
                tell!(self, core, SchedMigrateTask, hook(hook));
                // A choice of the next task may be under way, which is still in its queue.
                return;
            }
            Hook::SchedProcessFork { .. } | Hook::SchedProcessExit { .. } => {
                tell!(self, core, SchedProcess, hook(hook));
            }
            // A kernel in which all tasks are of this class does not balance (`scx_switched_all` in `sched_tick`).
            _ if hook.is_of_balancing() && !self.is_partial() => {}
            _ => tell!(self, core, Interrupt, hook(hook)),
        }
        self.settle(core);
    }

    /// The program is loaded, and bypassed for as long as that takes (`scx_root_enable_workfn`).
    pub(super) fn load(&mut self, core: &mut Core<'_>) {
        self.program.groups_made(&mut Kfuncs { core: &mut *core, state: &mut self.state });
        tell!(self, core, Init, init());
        self.state.count(Event::BypassActivate, 1);
        self.init_groups(core);
        self.state.count(Event::BypassDuration, 0);
        self.tell_events(core);
    }

    /// Programs at the tracepoint are told of the events since.
    pub(super) fn tell_events(&mut self, core: &mut Core<'_>) {
        for (event, by) in std::mem::take(&mut self.state.events.passed) {
            self.tell_traced(core, Traced::Event(event, by));
        }
    }

    /// Also when the program is not asked any more.
    pub(super) fn tell_traced(&mut self, core: &mut Core<'_>, traced: Traced<'_>) {
        call!(self, core, SchedExt, Context::Other, traced(traced));
    }

    /// The task of a thread of the program's own has a CPU.
    pub(super) fn let_thread_go_on(&mut self, core: &mut Core<'_>, thread: u32) -> ThreadStep {
        self.state.context = Context::Unlocked;
        let step = self.program.thread_goes_on(&mut Kfuncs { core: &mut *core, state: &mut self.state }, thread);
        self.state.context = Context::Other;
        self.tell_left(core);
        self.settle(core);
        self.give_back_held_up(core);
        step
    }
}
