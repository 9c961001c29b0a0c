//! Global round robin, for teaching: one queue for the whole machine, a fixed quantum, no memory of where a task ran.
//!
//! A task that becomes runnable goes to the tail of the queue, an idle CPU (its old one if that is idle) is told, and
//! whichever CPU is free next takes the first task it may run. Nothing preempts a task within its quantum. What the
//! policy lacks is the point of it: weights, latency, caches.

use std::collections::VecDeque;

use warmcore_kernel::{Core, Dequeue, Enqueue, KernelParameters, Scheduler, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{MigrationKind, TaskId};

use crate::tunables::tunables;

tunables! {
    /// Tunables of `rr`.
    pub struct RoundRobinTunables for "rr" {
        /// Longest stay on a CPU while others wait.
        quantum_ns: 10_000_000 "ns" in 10_000..=10_000_000_000,
        /// Ticks per second of the kernel.
        hz: 250 "Hz" in 100..=1000,
        /// How late timers of normal tasks may be.
        timer_slack_ns: 50_000 "ns" in 0..=10_000_000,
    }
}

/// The global round robin policy.
pub struct RoundRobin {
    tunables: RoundRobinTunables,
    /// Tasks that wait, first come first served.
    queue: VecDeque<TaskId>,
    /// Runnable tasks assigned to each CPU, the running one included.
    runnable: Vec<usize>,
    /// An idle CPU that was told about a task and has not picked yet must not be told about another.
    claimed: Vec<bool>,
}

impl RoundRobin {
    /// The policy on a machine with so many CPUs.
    pub fn new(tunables: RoundRobinTunables, cpus: usize) -> Self {
        Self { tunables, queue: VecDeque::new(), runnable: vec![0; cpus], claimed: vec![false; cpus] }
    }

    fn is_free(&self, core: &Core<'_>, cpu: CpuId) -> bool {
        core.curr_is_idle(cpu) && !core.ttwu_pending(cpu) && !self.claimed[cpu.index()]
    }
}

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "rr"
    }

    fn kernel_parameters(&self) -> KernelParameters {
        KernelParameters { hz: self.tunables.hz as u32, ttwu_queue: true, timer_slack_ns: self.tunables.timer_slack_ns }
    }

    fn init(&mut self, _core: &mut Core<'_>) {}

    fn task_fork(&mut self, _core: &mut Core<'_>, _task: TaskId, _parent: Option<TaskId>) {}

    fn task_dead(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, _flags: WakeFlags) -> CpuId {
        if core.may_run_on(task, prev) && self.is_free(core, prev) {
            return prev;
        }
        core.allowed(task).iter().find(|&cpu| self.is_free(core, cpu)).unwrap_or(prev)
    }

    fn holds(&self, _task: TaskId) -> bool {
        false
    }

    fn enqueue(&mut self, _core: &mut Core<'_>, cpu: CpuId, task: TaskId, _reason: Enqueue) {
        self.queue.push_back(task);
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
