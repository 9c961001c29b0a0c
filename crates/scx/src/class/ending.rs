//! How a program ends: it is told why, and says what it leaves.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use crate::class::Ext;
use crate::dump::{Dump, tasks_of};
use crate::entities::Entities;
use crate::events::{Event, Traced};
use crate::exit::{ExitInfo, ExitKind};
use crate::kfuncs::Kfuncs;
use crate::operations::Operation;
use crate::state::{Context, State, WATCHDOG};

impl Ext {
    /// Starts the watchdog's timer.
    pub(super) fn watch(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.watched = true;
        core.start_timer(cpu, self.state.timeout_ns() / 2, WATCHDOG);
    }

    /// The program is told why it ends, once, and adds to the dump.
    pub(super) fn finish(&mut self, core: &mut Core<'_>) {
        let Some(info) = self.state.exit.clone().filter(|_| !self.finished) else { return };
        self.finished = true;
        let asks_for_restart = info.asks_for_restart();
        let decisions = &self.state.decisions;
        let decision = match info.kind {
            ExitKind::Error => decisions.error,
            ExitKind::ErrorByProgram => decisions.error_by_program,
            ExitKind::Stall => decisions.stall,
            ExitKind::UnregisteredByProgram => decisions.unregistered,
            ExitKind::UnregisteredByKernel => decisions.unregistered_by_kernel,
        };
        core.decide(decision, TaskId::IDLE, i64::from(info.cpu.0));
        if info.kind.is_error() {
            let dump = self.dump(core, &info);
            if self.state.has(Operation::SchedExt) {
                dump.lines().for_each(|line| self.tell_traced(core, Traced::DumpLine(line)));
            }
            if let Some(exit) = &mut self.state.exit {
                exit.dump = dump;
            }
        }
        self.state.count(Event::BypassActivate, 1);
        self.tell_events(core);
        self.exit_groups(core);
        if self.state.has(Operation::Exit) {
            let info = self.state.exit.clone().unwrap_or(info);
            call!(self, core, Exit, Context::Other, exit(&info));
        }
        self.program.ended(&mut Kfuncs { core: &mut *core, state: &mut self.state }, asks_for_restart);
    }

    /// Why the program ended, if it has.
    pub fn exit_info(&self) -> Option<&ExitInfo> {
        self.state.exit.as_ref()
    }

    /// Whether the program was told that it has ended.
    pub fn has_ended(&self) -> bool {
        self.finished
    }

    /// Whether a program that has ended may be attached again.
    pub fn may_begin_again(&self) -> bool {
        self.finished && self.program.may_begin_again()
    }

    /// Begins with what was attached since the program ended, if anything was (`scx_enable`): its tasks are told of, and are moved into the class by
    /// whoever has asked.
    pub fn begin_again(&mut self, core: &mut Core<'_>) -> bool {
        if !self.finished || !self.program.begin_again() {
            return false;
        }
        let mut state =
            State::new(self.program.table(), core.machine(), Entities::of(&*self.program), self.program.lock_use());
        state.decisions = self.state.decisions;
        (state.locks_cost, state.counts) = (self.state.locks_cost, self.state.counts);
        (self.state, self.finished, self.gives_way) = (state, false, false);
        let tasks = (0..core.task_count()).map(|index| TaskId(index as u32));
        tasks.clone().for_each(|task| self.add_task(core, task));
        self.watch_places(core);
        self.load(core);
        for cpu in core.machine().cpus().filter(|&cpu| core.curr_is_idle(cpu)).collect::<Vec<_>>() {
            self.idle_changed(core, cpu, true);
        }
        self.state.loads = true;
        tasks.for_each(|task| self.init_task(core, task));
        self.state.loads = false;
        if !self.watched {
            self.watch(core, CpuId(0));
        }
        true
    }

    /// What the program leaves, with its own lines.
    fn dump(&mut self, core: &mut Core<'_>, info: &ExitInfo) -> String {
        self.state.dump = Some(Dump::new(self.state.table.name, info, self.state.table.exit_dump_bytes));
        if self.state.has(Operation::Dump) {
            call!(self, core, Dump, Context::Other, dump());
        }
        self.say(|dump, _| dump.cpus());
        for cpu in core.machine().cpus() {
            let is_idle = core.curr_is_idle(cpu) && self.state.runnable[cpu.index()] == 0;
            let before = self.say(|dump, _| dump.indent("      "));
            let after = self.say(|dump, state| dump.cpu(core, state, cpu));
            if self.state.has(Operation::DumpCpu) {
                call!(self, core, DumpCpu, Context::Other, dump_cpu(cpu, is_idle));
            }
            let said = self.say(|_, _| {}) > after;
            if is_idle && !said {
                self.say(|dump, _| dump.back_to(before));
            }
            for task in tasks_of(core, &self.state, cpu) {
                self.say(|dump, state| {
                    dump.task(core, state, task);
                    dump.indent("        ");
                });
                if self.state.has(Operation::DumpTask) && self.state.tasks[task.index()].initialised {
                    call!(self, core, DumpTask, Context::Other, dump_task(task));
                }
            }
        }
        self.say(|dump, state| dump.events(&state.events.counts));
        self.state.dump.take().map(Dump::finish).unwrap_or_default()
    }

    /// Adds to the dump; gives its length.
    fn say(&mut self, what: impl FnOnce(&mut Dump, &State)) -> usize {
        let Some(mut dump) = self.state.dump.take() else { return 0 };
        what(&mut dump, &self.state);
        let length = dump.len();
        self.state.dump = Some(dump);
        length
    }
}
