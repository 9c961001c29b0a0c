//! A small policy for tests of the kernel: a queue per CPU, first come first served; whoever runs stays until it blocks or yields.

use std::collections::VecDeque;

use warmcore_kernel::{Core, Dequeue, Enqueue, Scheduler, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

/// Tasks that wait on each CPU, and whether the running one gives way.
#[derive(Default)]
pub struct Fifo {
    queues: Vec<VecDeque<TaskId>>,
    yields: Vec<bool>,
    runnable: Vec<usize>,
    told: FifoDecisions,
}

warmcore_trace::decisions! {
    /// What it tells.
    struct FifoDecisions {
        ticked: "tick", "seen, with the number of tasks that run on the CPU", Count;
    }
}

impl Scheduler for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }
    fn init(&mut self, core: &mut Core<'_>) {
        self.told = FifoDecisions::register(core.decision_table());
        let cpus = core.machine().cpu_count();
        (self.queues, self.yields, self.runnable) = (vec![VecDeque::new(); cpus], vec![false; cpus], vec![0; cpus]);
    }
    fn task_fork(&mut self, _core: &mut Core<'_>, _task: TaskId, _parent: Option<TaskId>) {}
    fn task_dead(&mut self, _core: &mut Core<'_>, _task: TaskId) {}
    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, _flags: WakeFlags) -> CpuId {
        let free = |cpu: CpuId| core.may_run_on(task, cpu) && self.runnable[cpu.index()] == 0;
        if free(prev) { prev } else { core.machine().cpus().find(|&cpu| free(cpu)).unwrap_or(prev) }
    }
    fn holds(&self, _task: TaskId) -> bool {
        false
    }
    fn enqueue(&mut self, _core: &mut Core<'_>, cpu: CpuId, task: TaskId, _reason: Enqueue) {
        self.queues[cpu.index()].push_back(task);
        self.runnable[cpu.index()] += 1;
    }
    fn dequeue(&mut self, _core: &mut Core<'_>, cpu: CpuId, task: TaskId, _reason: Dequeue) {
        self.queues[cpu.index()].retain(|&waiting| waiting != task);
        self.runnable[cpu.index()] -= 1;
    }
    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, _task: TaskId, _flags: WakeFlags) {
        if core.curr_is_idle(cpu) {
            core.resched_full(cpu);
        }
    }
    fn pick_next(&mut self, _core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        let gives_way = std::mem::take(&mut self.yields[cpu.index()]);
        if prev.is_some() && !gives_way { prev } else { self.queues[cpu.index()].pop_front().or(prev) }
    }
    fn put_prev(&mut self, _core: &mut Core<'_>, cpu: CpuId, task: TaskId, runnable: bool) {
        if runnable {
            self.queues[cpu.index()].push_back(task);
        }
    }
    fn set_next(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _task: TaskId) {}
    fn tick(&mut self, core: &mut Core<'_>, _cpu: CpuId, curr: Option<TaskId>) {
        core.decide(self.told.ticked, curr.unwrap_or(TaskId::IDLE), i64::from(curr.is_some()));
    }
    fn yield_task(&mut self, _core: &mut Core<'_>, cpu: CpuId, _task: TaskId) {
        self.yields[cpu.index()] = true;
    }
    fn attributes_changed(&mut self, _core: &mut Core<'_>, _task: TaskId) {}
    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.runnable[cpu.index()]
    }
}
