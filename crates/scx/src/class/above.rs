//! What a program hears when a class above takes a CPU, and how it gets the tasks back that wait there.
//!
//! Source: Linux 7.2, `switch_class`, `balance_one`, `rq_is_open`, `reenq_local`, `reenq_user` and `run_deferred` in `kernel/sched/ext.c`; `docs/spec/sched-ext.md`
//! section 4.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use crate::class::Ext;
use crate::events::Event;
use crate::exit::ExitKind;
use crate::kfuncs::Kfuncs;
use crate::operations::{EnqueueFlags, Operation, PreemptReason};
use crate::queues::QueueIndex;
use crate::state::{Again, Context};

/// How often queues may be given back one after the other (`SCX_REENQ_LOCAL_MAX_REPEAT`).
const MOST_ROUNDS: u32 = 256;

/// Choices of tasks at one moment after which a program is ended: far more than any machine has CPUs.
const MOST_CHOICES: u32 = 1 << 16;

impl Ext {
    /// A CPU has switched: where that leaves the class for one above, the program hears of it once, until the class picks there again.
    pub(super) fn release(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: TaskId, next: TaskId) {
        let is_own = |task: TaskId| self.takes(core.task(task).policy());
        if prev.is_idle() || next.is_idle() || !is_own(prev) || is_own(next) || self.state.released[cpu.index()] {
            return;
        }
        let policy = core.task(next).policy();
        let reason = match (policy.is_deadline(), policy.is_realtime()) {
            (true, _) => PreemptReason::Deadline,
            (_, true) => PreemptReason::Realtime,
            _ => PreemptReason::Unknown,
        };
        self.lose(core, cpu, reason, next);
    }

    /// A CPU's stopper thread has it: the program hears of it as of any class above, and of no task, as the thread is none of the run.
    pub(super) fn release_to_stopper(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: TaskId) {
        if self.takes(core.task(prev).policy()) && !self.state.released[cpu.index()] {
            self.lose(core, cpu, PreemptReason::Stopper, TaskId::IDLE);
        }
    }

    fn lose(&mut self, core: &mut Core<'_>, cpu: CpuId, reason: PreemptReason, next: TaskId) {
        self.state.released[cpu.index()] = true;
        self.state.note_held_up(cpu, 1);
        tell!(self, core, CpuRelease, cpu_release(cpu, reason, next));
    }

    /// The class picks on a CPU: if that was taken from it, it has it again.
    pub(super) fn acquire(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        if std::mem::take(&mut self.state.released[cpu.index()]) {
            tell!(self, core, CpuAcquire, cpu_acquire(cpu));
        }
    }

    /// Does what had to wait until no CPU is between two tasks.
    pub(super) fn settle(&mut self, core: &mut Core<'_>) {
        if !self.state.events.passed.is_empty() {
            self.tell_events(core);
        }
        self.state.settle(core);
        let mut rounds = 0;
        while let Some(queue) = self.state.given_back.pop() {
            rounds += 1;
            if rounds > MOST_ROUNDS {
                self.state.given_back.clear();
                let message = format!("queues were enqueued again more than {MOST_ROUNDS} times at one moment");
                self.state.fail(core, ExitKind::Error, 0, message);
                return;
            }
            self.enqueue_again(core, queue);
            self.tell_left(core);
            self.state.settle(core);
        }
    }

    /// The program gets every task of a queue again, in their order.
    fn enqueue_again(&mut self, core: &mut Core<'_>, queue: QueueIndex) {
        let mut waiting = std::mem::take(&mut self.state.waiting);
        while let Some(task) = self.state.queues.first(queue) {
            self.state.queues.remove(task);
            waiting.push(task);
        }
        for &task in &waiting {
            let cpu = core.task(task).cpu();
            core.decide(self.state.decisions.given_back, task, i64::from(cpu.0));
            self.enqueue_for(core, cpu, task, Again::Asked);
        }
        waiting.clear();
        self.state.waiting = waiting;
    }

    /// The program gets a task again, and may read why.
    pub(super) fn enqueue_for(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, reason: Again) {
        self.state.changes.note_cpu(cpu);
        self.state.changes.note_task(task);
        self.state.tasks[task.index()].reason = reason;
        self.do_enqueue(core, cpu, task, EnqueueFlags::REENQ);
        self.state.tasks[task.index()].reason = Again::No;
        self.state.changes.note_task(task);
    }

    /// The program gets the tasks again that were to run at once and wait: behind another one, or on a CPU that runs something.
    #[inline]
    pub(super) fn give_back_held_up(&mut self, core: &mut Core<'_>) {
        if !self.state.held_up.is_empty() {
            self.give_back_all_held_up(core);
        }
    }

    #[cold]
    fn give_back_all_held_up(&mut self, core: &mut Core<'_>) {
        let (mut rounds, mut last) = (0, None);
        while let Some(cpu) = self.state.held_up.pop() {
            rounds += 1;
            if last.replace(cpu) == Some(cpu) {
                self.state.count(Event::ReenqLocalRepeat, 1);
            }
            if rounds > MOST_ROUNDS {
                self.state.held_up.clear();
                let message =
                    format!("tasks for {cpu} were enqueued again more than {MOST_ROUNDS} times at one moment");
                self.state.fail(core, ExitKind::Error, 0, message);
                return;
            }
            let local = self.state.local(cpu);
            let is_open = self.state.is_open(core, cpu);
            let mut waiting = std::mem::take(&mut self.state.waiting);
            let (first, mut at) = (self.state.queues.first(local), self.state.queues.first(local));
            while let Some(task) = at {
                at = self.state.queues.after(task);
                if self.state.tasks[task.index()].runs_at_once && !(is_open && first == Some(task)) {
                    self.state.queues.remove(task);
                    waiting.push(task);
                }
            }
            for &task in &waiting {
                core.decide(self.state.decisions.held_up, task, i64::from(cpu.0));
                self.state.count(Event::ReenqImmed, 1);
                self.enqueue_for(core, cpu, task, Again::HeldUp);
            }
            waiting.clear();
            self.state.waiting = waiting;
            self.tell_left(core);
            self.settle(core);
        }
    }

    /// Ends a program that has CPUs choose again and again while no time passes. In a kernel each choice takes some.
    pub(super) fn guard_against_livelock(&mut self, core: &mut Core<'_>) {
        let (at_ns, choices) = &mut self.choices_at;
        *choices = if *at_ns == core.now_ns() { *choices + 1 } else { 0 };
        *at_ns = core.now_ns();
        if *choices == MOST_CHOICES {
            let message =
                format!("CPUs chose a task {MOST_CHOICES} times at one moment: they are kicked whenever they do");
            self.state.fail(core, ExitKind::Error, 0, message);
        }
    }
}
