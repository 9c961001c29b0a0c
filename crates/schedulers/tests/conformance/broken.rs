//! `fifo` with one fault each.

use std::sync::atomic::{AtomicU32, Ordering};

use warmcore_kernel::{Boot, Core, Dequeue, Enqueue, Scheduler, WakeFlags};
use warmcore_schedulers::SchedulerSpec;
use warmcore_schedulers::fifo::Fifo;
use warmcore_topology::CpuId;
use warmcore_trace::{MigrationKind, TaskId};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    LosesATask,
    TakesWhatMayNotRunHere,
    CountsWrongly,
    PicksWhoSleeps,
    DrawsLots,
    PreemptsNobody,
    ForgetsToWakeTheCpu,
}

/// Faults, and words of the sentence that must name each.
pub const FAULTS: [(Fault, &str); 7] = [
    (Fault::LosesATask, "lost"),
    (Fault::TakesWhatMayNotRunHere, "cannot be moved to"),
    (Fault::CountsWrongly, "the scheduler holds 1"),
    (Fault::PicksWhoSleeps, "picked"),
    (Fault::DrawsLots, "two runs with one seed differ"),
    (Fault::PreemptsNobody, "starves"),
    (Fault::ForgetsToWakeTheCpu, "lost"),
];

/// Goes on from run to run, which is what must not be.
static LOTS: AtomicU32 = AtomicU32::new(0);

pub struct Broken {
    inner: Fifo,
    fault: Fault,
    enqueued: u32,
    slept: Option<TaskId>,
    /// Counted, and in no queue.
    lost: Option<(CpuId, TaskId)>,
    /// Who waits, and where.
    waiting: Vec<(CpuId, TaskId)>,
}

impl Broken {
    pub fn new(fault: Fault, boot: &Boot<'_>) -> Self {
        let spec: SchedulerSpec = "fifo".parse().unwrap();
        Self {
            inner: Fifo::new(spec.tunables(), boot),
            fault,
            enqueued: 0,
            slept: None,
            lost: None,
            waiting: Vec::new(),
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }
}

impl Scheduler for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }
    fn init(&mut self, core: &mut Core<'_>) {
        self.inner.init(core);
    }
    fn task_fork(&mut self, core: &mut Core<'_>, task: TaskId, parent: Option<TaskId>) {
        self.inner.task_fork(core, task, parent);
    }
    fn task_dead(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.inner.task_dead(core, task);
    }
    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        let cpus = core.machine().cpu_count() as u32;
        if self.is(Fault::DrawsLots) {
            let drawn = CpuId(LOTS.fetch_add(1, Ordering::Relaxed) * 7 / 5 % cpus);
            return if core.may_run_on(task, drawn) { drawn } else { prev };
        }
        self.inner.select_cpu(core, task, prev, flags)
    }
    fn holds(&self, task: TaskId) -> bool {
        self.inner.holds(task)
    }
    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Enqueue) {
        self.enqueued += 1;
        if self.is(Fault::LosesATask) && self.enqueued == 5 {
            self.lost = Some((cpu, task));
        } else {
            self.inner.enqueue(core, cpu, task, flags);
            self.waiting.push((cpu, task));
        }
    }
    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Dequeue) {
        if self.lost.is_some_and(|(_, lost)| lost == task) {
            self.lost = None;
            return;
        }
        self.inner.dequeue(core, cpu, task, flags);
        self.waiting.retain(|(_, waiting)| *waiting != task);
        if flags.has(Dequeue::SLEEP) && !flags.has(Dequeue::SPECIAL) {
            self.slept = Some(task);
        }
    }
    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: WakeFlags) {
        if !self.is(Fault::ForgetsToWakeTheCpu) {
            self.inner.check_preempt(core, cpu, task, flags);
        }
    }
    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        match self.slept.take() {
            Some(sleeper) if self.is(Fault::PicksWhoSleeps) => return Some(sleeper),
            _ => {}
        }
        let picked = self.inner.pick_next(core, cpu, prev);
        let elsewhere = self.waiting.iter().find(|(of, task)| *of != cpu && core.curr(*of) != *task);
        match elsewhere.copied() {
            Some((from, task)) if picked.is_none() && self.is(Fault::TakesWhatMayNotRunHere) => {
                self.dequeue(core, from, task, Dequeue::MIGRATING);
                core.set_task_cpu(task, cpu, MigrationKind::Steal);
                self.enqueue(core, cpu, task, Enqueue::MIGRATED);
                self.inner.pick_next(core, cpu, None)
            }
            _ => picked,
        }
    }
    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, runnable: bool) {
        self.inner.put_prev(core, cpu, task, runnable);
    }
    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        self.inner.set_next(core, cpu, task);
    }
    fn tick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>) {
        self.inner.tick(core, cpu, curr);
    }
    fn hrtick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: TaskId) {
        if !self.is(Fault::PreemptsNobody) {
            self.inner.hrtick(core, cpu, curr);
        }
    }
    fn yield_task(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        self.inner.yield_task(core, cpu, task);
    }
    fn attributes_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.inner.attributes_changed(core, task);
    }
    fn runnable_on(&self, cpu: CpuId) -> usize {
        let lost = self.lost.is_some_and(|(of, _)| of == cpu);
        self.inner.runnable_on(cpu) + usize::from(lost) + usize::from(self.is(Fault::CountsWrongly))
    }
}
