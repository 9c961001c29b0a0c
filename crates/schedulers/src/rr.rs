//! Global round robin, for teaching: one queue for the whole machine, a fixed quantum, no memory of where a task ran.
//!
//! A task that becomes runnable goes to the tail of the queue, an idle CPU (its old one if that is idle) is told, and
//! whichever CPU is free next takes the first task it may run. Nothing preempts a task within its quantum. What the
//! policy lacks is the point of it: weights, latency, caches. It is a yardstick: no kernel of many CPUs could afford the one queue.
//!
//! The queue has one lock. Whoever takes it fetches its lines from the CPU that had them last and waits until everybody
//! before is through: with the machine's line transfer times this limits how often all CPUs together can queue and pick.
//! A look at an empty queue takes no lock.

use std::collections::VecDeque;

use warmcore_kernel::{Boot, Core, Dequeue, Enqueue, QueueLock, Scheduler, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{MigrationKind, OverheadKind, SearchStart, SearchStep, TaskId};

use crate::realtime::run_boxed;
use crate::registry::SchedulerInfo;
use crate::tunables::{TunableSet, tunables};

tunables! {
    /// Tunables of `rr`.
    pub struct RoundRobinTunables {
        /// Longest stay on a CPU while others wait.
        quantum_ns: time 10_000_000 "ns" in 10_000..=10_000_000_000 by ratio,
        /// The queue's lock takes time and is taken by one CPU at a time; 0 = it costs nothing, which no machine offers.
        global_lock: switch on,
    }
}

/// The row of `rr`.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: "rr",
    summary: "one global queue, fixed quantum: a yardstick, for teaching",
    source: "textbooks",
    sets: &[RoundRobinTunables::TABLE],
    scores: RoundRobin::SCORES,
    knows_nice: false,
    is_yardstick: true,
    no_hotplug: None,
    simulate: Some(|spec, setup, sink| {
        run_boxed(setup, Box::new(RoundRobin::new(spec.tunables(), &setup.boot())), sink)
    }),
    ..SchedulerInfo::PLAIN
};

/// The global round robin policy.
pub struct RoundRobin {
    tunables: RoundRobinTunables,
    lock: QueueLock,
    /// By CPU: time at the lock that the task about to run there has to be charged with.
    owed_ns: Vec<u64>,
    /// Tasks that wait, first come first served.
    queue: VecDeque<TaskId>,
    /// Runnable tasks assigned to each CPU, the running one included.
    runnable: Vec<usize>,
    /// An idle CPU that was told about a task and has not picked yet must not be told about another.
    claimed: Vec<bool>,
}

impl RoundRobin {
    /// Names of its scores.
    pub const SCORES: &'static [&'static str] = &["position"];

    /// The policy in a kernel.
    pub fn new(tunables: RoundRobinTunables, boot: &Boot<'_>) -> Self {
        let cpus = boot.machine.cpu_count();
        Self {
            tunables,
            lock: QueueLock::default(),
            owed_ns: vec![0; cpus],
            queue: VecDeque::new(),
            runnable: vec![0; cpus],
            claimed: vec![false; cpus],
        }
    }

    /// Time at the queue's lock, for an operation on a CPU.
    fn lock_ns(&mut self, core: &Core<'_>, cpu: CpuId) -> u64 {
        if self.tunables.global_lock == 0 { 0 } else { self.lock.pass(core, cpu) }
    }

    fn is_free(&self, core: &Core<'_>, cpu: CpuId) -> bool {
        core.curr_is_idle(cpu) && !core.ttwu_pending(cpu) && !self.claimed[cpu.index()]
    }
}

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "rr"
    }

    fn scores(&self) -> &'static [&'static str] {
        Self::SCORES
    }

    fn score_tasks(&self, core: &Core<'_>, cpu: CpuId, tell: &mut dyn FnMut(TaskId, u32, i64)) {
        if !core.curr_is_idle(cpu) {
            tell(core.curr(cpu), 0, 0);
        }
        for (position, task) in (1..).zip(&self.queue) {
            if core.task(*task).cpu() == cpu {
                tell(*task, 0, position);
            }
        }
    }

    fn init(&mut self, _core: &mut Core<'_>) {}

    fn task_fork(&mut self, _core: &mut Core<'_>, _task: TaskId, _parent: Option<TaskId>) {}

    fn task_dead(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, _flags: WakeFlags) -> CpuId {
        let (cpu, step) = if core.may_run_on(task, prev) && self.is_free(core, prev) {
            (prev, SearchStep::PreviousFree)
        } else if let Some(free) = core.allowed(task).iter().find(|&cpu| self.is_free(core, cpu)) {
            (free, SearchStep::FirstFree)
        } else {
            (prev, SearchStep::NoneFree)
        };
        core.tell_place(task, SearchStart::Previous, step);
        cpu
    }

    fn holds(&self, _task: TaskId) -> bool {
        false
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _reason: Enqueue) {
        let this_cpu = core.this_cpu();
        let spent_ns = self.lock_ns(core, this_cpu);
        core.charge(this_cpu, spent_ns, OverheadKind::Wakeup);
        if core.curr(cpu) != task {
            self.queue.push_back(task);
        }
        self.runnable[cpu.index()] += 1;
    }

    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _reason: Dequeue) {
        self.runnable[cpu.index()] -= 1;
        if core.curr(cpu) != task {
            self.queue.retain(|&waiting| waiting != task);
        }
    }

    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, _task: TaskId, _flags: WakeFlags) {
        if core.curr_is_idle(cpu) {
            self.claimed[cpu.index()] = true;
            core.resched_full(cpu);
        }
    }

    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        self.claimed[cpu.index()] = false;
        let Some(position) = self.queue.iter().position(|&task| core.may_run_on(task, cpu)) else {
            if prev.is_some() {
                core.start_hrtick(cpu, self.tunables.quantum_ns);
            }
            return prev;
        };
        self.owed_ns[cpu.index()] += self.lock_ns(core, cpu);
        let task = self.queue.remove(position)?;
        let from = core.task(task).cpu();
        if from != cpu {
            core.set_task_cpu(task, cpu, MigrationKind::Steal);
            self.runnable[from.index()] -= 1;
            self.runnable[cpu.index()] += 1;
        }
        Some(task)
    }

    fn put_prev(&mut self, _core: &mut Core<'_>, _cpu: CpuId, task: TaskId, runnable: bool) {
        if runnable {
            self.queue.push_back(task);
        }
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, _task: TaskId) {
        let spent_ns = std::mem::take(&mut self.owed_ns[cpu.index()]);
        core.charge(cpu, spent_ns, OverheadKind::Switch);
        core.start_hrtick(cpu, self.tunables.quantum_ns);
    }

    fn tick(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _curr: Option<TaskId>) {}

    fn hrtick(&mut self, core: &mut Core<'_>, cpu: CpuId, _curr: TaskId) {
        core.resched_full(cpu);
    }

    /// The pick that follows takes the first waiting task.
    fn yield_task(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _task: TaskId) {}

    fn attributes_changed(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    /// A waiting task that may now use more CPUs may find one of them idle.
    fn affinity_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        if self.queue.contains(&task)
            && let Some(cpu) = core.allowed(task).iter().find(|&cpu| self.is_free(core, cpu))
        {
            self.claimed[cpu.index()] = true;
            core.resched_full(cpu);
        }
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.runnable[cpu.index()]
    }
}
