//! From when a program is loaded until the run begins: every CPU is idle, the program's timers run, and each launcher has had a turn.
//!
//! A program that starts has a parent that has run and slept: a shell, or the main thread that waits for its threads. A program may take what it
//! knows of a new task from its parent, as LAVD does. Source of the order of calls: `docs/spec/sched-ext.md` section 3.

use warmcore_kernel::{Core, Dequeue, Enqueue, Scheduler, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{MigrationKind, TaskId};

use crate::class::Ext;
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;
use crate::state::Context;

/// How long before the run each launcher has slept for the last time. Processes of a guest rest so long before they begin together.
const REST_NS: u64 = 200_000_000;

/// How long a launcher has run before that: about what it takes to start a process (assumed).
const TURN_NS: u64 = 1_000_000;

impl Ext {
    /// Lets the time pass that the program is loaded before the run. Kicks do nothing.
    pub(super) fn pass_time_before(&mut self, core: &mut Core<'_>) {
        if self.state.before_ns > REST_NS + TURN_NS {
            self.pass_until(core, REST_NS + TURN_NS);
            let of_class = core.launchers().filter(|&launcher| self.takes(core.task(launcher).policy()));
            let launchers: Vec<TaskId> = of_class.collect();
            let launchers: Vec<_> =
                launchers.into_iter().map(|launcher| (launcher, self.come(core, launcher))).collect();
            self.pass_until(core, REST_NS);
            for (launcher, cpu) in launchers {
                self.go(core, launcher, cpu);
            }
        }
        self.pass_until(core, 0);
        for (left_ns, payload) in std::mem::take(&mut self.state.early_timers) {
            core.start_timer(core.this_cpu(), left_ns.unsigned_abs(), u64::from(payload));
        }
    }

    /// Runs the timers that run out until it is so long before the run, the earliest first.
    fn pass_until(&mut self, core: &mut Core<'_>, before_ns: u64) {
        // `left_ns` is what is left until the run begins: the most is first.
        while let Some((index, &(left_ns, payload))) =
            self.state.early_timers.iter().enumerate().max_by_key(|(index, timer)| (timer.0, std::cmp::Reverse(*index)))
            && left_ns > before_ns as i64
        {
            self.state.early_timers.remove(index);
            self.state.before_ns = left_ns as u64;
            tell!(self, core, Timer, Context::Unlocked, timer(payload));
            self.state.kicks.clear();
        }
        self.state.before_ns = before_ns;
    }

    /// A task wakes on the idle machine, and runs: where it does, if the program brings it to a CPU at once.
    fn come(&mut self, core: &mut Core<'_>, task: TaskId) -> Option<CpuId> {
        let prev = core.task(task).cpu();
        let cpu = self.select_cpu(core, task, prev, WakeFlags::default());
        if cpu != prev {
            core.set_task_cpu(task, cpu, MigrationKind::Wakeup);
        }
        self.enqueue(core, cpu, task, Enqueue::WAKEUP | Enqueue::MIGRATED.only_if(cpu != prev));
        let kicked: Vec<CpuId> = self.state.kicks.drain(..).map(|(cpu, _)| cpu).collect();
        let looks = std::iter::once(core.task(task).cpu()).chain(kicked);
        looks.into_iter().find(|&cpu| {
            let picked = self.pick_next(core, cpu, None) == Some(task);
            if picked {
                self.exit_idle(core, cpu);
                self.set_next(core, cpu, task);
            }
            picked
        })
    }

    /// It goes to sleep again.
    fn go(&mut self, core: &mut Core<'_>, task: TaskId, cpu: Option<CpuId>) {
        if cpu.is_some() {
            tell!(self, core, Stopping, stopping(task, false));
        }
        self.dequeue(core, core.task(task).cpu(), task, Dequeue::SLEEP);
        if let Some(cpu) = cpu {
            self.enter_idle(core, cpu);
        }
        self.state.kicks.clear();
    }
}
