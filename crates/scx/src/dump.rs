//! What is left to look at when a program is ejected (`scx_dump_state`): the program's own lines, CPUs, and the tasks that are runnable there.
//!
//! Source: `docs/spec/sched-ext.md` section 11. Made in the moment that follows the error, as a kernel makes it. Idle CPUs of which the program says nothing are left
//! out; stacks and what is not modelled too.

use std::fmt::Write as _;

use warmcore_kernel::{Core, State as TaskState};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use crate::events::{Event, EventCounts};
use crate::exit::ExitInfo;
use crate::state::State;

/// The state while the program may add to it.
pub(crate) struct Dump {
    text: String,
    /// Before each line of the program's.
    indent: &'static str,
    /// Most bytes.
    room: usize,
}

impl Dump {
    /// Begins with why the program ends.
    pub fn new(name: &str, info: &ExitInfo, room: usize) -> Self {
        let text =
            format!("{name} triggered exit kind {}:\n  {} ({})\n", info.kind as u32, info.kind.reason(), info.message);
        Self { text, indent: "", room }
    }

    /// The program says something more.
    pub fn push(&mut self, text: &str) {
        for part in text.split_inclusive('\n') {
            if self.text.is_empty() || self.text.ends_with('\n') {
                self.text.push_str(self.indent);
            }
            self.text.push_str(part);
        }
        self.cut();
    }

    /// What the program says from now on stands so far to the right, in lines of its own.
    pub fn indent(&mut self, indent: &'static str) {
        self.end_line();
        self.indent = indent;
        self.cut();
    }

    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Forgets what came after so many bytes.
    pub(crate) fn back_to(&mut self, length: usize) {
        self.text.truncate(length);
    }

    pub fn finish(mut self) -> String {
        self.end_line();
        self.text
    }

    pub fn cpus(&mut self) {
        self.end_line();
        self.text.push_str("\nCPU states\n----------\n");
    }

    /// The line of a CPU.
    pub fn cpu(&mut self, core: &Core<'_>, state: &State, cpu: CpuId) {
        let (runnable, local) = (state.runnable[cpu.index()], state.queues.len(state.local(cpu)));
        self.end_line();
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{cpu}: nr_run={runnable} local={local} curr={}", core.task_name(core.curr(cpu)));
        self.cut();
    }

    /// The lines of a runnable task.
    pub fn task(&mut self, core: &Core<'_>, state: &State, id: TaskId) {
        let task = &state.tasks[id.index()];
        let runs = core.curr(core.task(id).cpu()) == id;
        let waited_ns = task.runnable_since_ns.map_or(0, |since_ns| core.now_ns() - since_ns);
        self.end_line();
        let queue = state.queues.of(id).map_or("none".into(), |queue| format!("0x{:x}", state.queues.id(queue).0));
        let _ = writeln!(
            self.text,
            "  {}{} waits {} ms\n      dsq={queue} custody={} slice={} vtime={} weight={} allowed CPUs: {}",
            if runs { '*' } else { ' ' },
            core.task_name(id),
            waited_ns / 1_000_000,
            task.in_custody,
            state.entities.slice_ns(id),
            state.entities.vtime(id),
            task.weight,
            core.allowed(id),
        );
        self.cut();
    }

    /// The events that were counted, but for those that did not happen.
    pub fn events(&mut self, counts: &EventCounts) {
        self.end_line();
        self.text.push_str("\nEvent counters\n--------------\n");
        for (event, name) in Event::ALL.into_iter().filter(|&(event, _)| counts[event as usize] > 0) {
            let _ = writeln!(self.text, "{name:>40}: {:>16}", counts[event as usize]);
        }
        self.cut();
    }

    fn end_line(&mut self) {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    fn cut(&mut self) {
        let mut end = self.room.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        self.text.truncate(end);
    }
}

/// The runnable tasks of a CPU.
pub(crate) fn tasks_of(core: &Core<'_>, state: &State, cpu: CpuId) -> Vec<TaskId> {
    let all = state.tasks.iter().zip(0..).filter(|(task, _)| task.queued).map(|(_, number)| TaskId(number));
    all.filter(|&task| core.task(task).cpu() == cpu && core.task(task).state() != TaskState::Dead).collect()
}
