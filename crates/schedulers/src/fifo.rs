//! First in, first out: a queue per CPU, turns in the order of arrival, no preemption, no balancing.
//!
//! The smallest scheduler that is one, and the worked example of `docs/adding-a-scheduler.md`. A task that becomes runnable goes to the
//! CPU it was on if that has nothing to do, else to the first allowed CPU that has nothing to do, else to the one with the shortest
//! queue; tasks on their way to a queue count. It runs until it blocks, yields, or its slice is over while others wait. What waits behind
//! a long task stays there: nothing moves it.
//!
//! Source: textbooks. Every policy of a kernel differs from it on purpose.

use std::collections::VecDeque;

use warmcore_kernel::{Boot, Core, Dequeue, Enqueue, Scheduler, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{SearchStart, SearchStep, TaskId};

use crate::realtime::run_boxed;
use crate::registry::SchedulerInfo;
use crate::tunables::{TunableSet, tunables};

/// The row of `fifo`.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: "fifo",
    summary: "a queue per CPU, first come first served: the worked example",
    source: "textbooks",
    sets: &[FifoTunables::TABLE],
    knows_nice: false,
    no_hotplug: None,
    simulate: Some(|spec, setup, sink| run_boxed(setup, Box::new(Fifo::new(spec.tunables(), &setup.boot())), sink)),
    ..SchedulerInfo::PLAIN
};

tunables! {
    /// Tunables of `fifo`.
    pub struct FifoTunables {
        /// Longest stay on a CPU while others wait.
        slice_ns: time 100_000_000 "ns" in 10_000..=10_000_000_000 by ratio,
    }
}

/// What a CPU has to do.
#[derive(Clone, Default)]
struct Queue {
    /// Tasks that wait, first come first served. The running task is not among them.
    waiting: VecDeque<TaskId>,
    /// All of them, the running one included.
    runnable: usize,
}

/// The policy.
pub struct Fifo {
    tunables: FifoTunables,
    queues: Vec<Queue>,
}

impl Fifo {
    /// The policy in a kernel.
    pub fn new(tunables: FifoTunables, boot: &Boot<'_>) -> Self {
        Self { tunables, queues: vec![Queue::default(); boot.machine.cpu_count()] }
    }
}

impl Scheduler for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn init(&mut self, _core: &mut Core<'_>) {}

    fn task_fork(&mut self, _core: &mut Core<'_>, _task: TaskId, _parent: Option<TaskId>) {}

    fn task_dead(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, _flags: WakeFlags) -> CpuId {
        let runnable = |cpu: CpuId| self.queues[cpu.index()].runnable + core.wakeups_on_their_way(cpu);
        let (cpu, step) = if core.may_run_on(task, prev) && runnable(prev) == 0 {
            (prev, SearchStep::PreviousFree)
        } else {
            (core.allowed(task).iter().min_by_key(|&cpu| runnable(cpu)).unwrap_or(prev), SearchStep::ShortestQueue)
        };
        core.tell_place(task, SearchStart::Previous, step);
        cpu
    }

    /// Who blocks is gone.
    fn holds(&self, _task: TaskId) -> bool {
        false
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _flags: Enqueue) {
        let queue = &mut self.queues[cpu.index()];
        queue.runnable += 1;
        if core.curr(cpu) != task {
            queue.waiting.push_back(task);
        }
    }

    fn dequeue(&mut self, _core: &mut Core<'_>, cpu: CpuId, task: TaskId, _flags: Dequeue) {
        let queue = &mut self.queues[cpu.index()];
        queue.runnable -= 1;
        queue.waiting.retain(|&waiting| waiting != task);
    }

    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, _task: TaskId, _flags: WakeFlags) {
        if core.curr_is_idle(cpu) {
            core.resched_full(cpu);
        }
    }

    /// Called when the running task leaves, yields, or its slice is over: whoever waits longest is next, else it goes on.
    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        let next = self.queues[cpu.index()].waiting.pop_front();
        if next.is_none() && prev.is_some() {
            core.start_hrtick(cpu, self.tunables.slice_ns);
        }
        next.or(prev)
    }

    fn put_prev(&mut self, _core: &mut Core<'_>, cpu: CpuId, task: TaskId, runnable: bool) {
        if runnable {
            self.queues[cpu.index()].waiting.push_back(task);
        }
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, _task: TaskId) {
        core.start_hrtick(cpu, self.tunables.slice_ns);
    }

    fn tick(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _curr: Option<TaskId>) {}

    fn hrtick(&mut self, core: &mut Core<'_>, cpu: CpuId, _curr: TaskId) {
        core.resched_full(cpu);
    }

    /// The pick that follows takes the first that waits.
    fn yield_task(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _task: TaskId) {}

    /// Nothing depends on nice values, policies, slices or groups.
    fn attributes_changed(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.queues[cpu.index()].runnable
    }
}

#[cfg(test)]
mod tests {
    use warmcore_kernel::Setup;
    use warmcore_workload::{Affinity, ProgramBuilder, Step, Task, Workload};

    use crate::SchedulerSpec;

    /// Work, in milliseconds, of tasks that arrive together on one CPU; when each has ended.
    fn ends_ms(scheduler: &str, works_ms: &[u64]) -> Vec<u64> {
        let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
        let mut workload = Workload::empty("batch");
        let process = workload.add_process("batch");
        for work_ms in works_ms {
            let program =
                workload.add_program(ProgramBuilder::new().step(Step::Run { work_ns: work_ms * 1_000_000 }).finish());
            workload.add_task(Task { affinity: Affinity::All, ..Task::new(format!("{work_ms} ms"), process, program) });
        }
        let mut setup = Setup::new(&machine, &workload, 1).unwrap();
        setup.check_invariants = true;
        let outcome = crate::simulate(&SchedulerSpec::parse(scheduler).unwrap(), &setup, None).unwrap();
        outcome.tasks.iter().map(|task| task.exited_ns.expect("all end") / 1_000_000).collect()
    }

    #[test]
    fn who_comes_first_is_served_first() {
        assert_eq!(ends_ms("fifo", &[50, 20, 5]), [50, 70, 75]);
    }

    #[test]
    fn a_slice_ends_a_turn_only_where_others_wait() {
        // Ten each in turn: the 5 ms end at 25 ms, the 19 ms at 44, and the 50 ms go on alone.
        assert_eq!(ends_ms("fifo:slice_ns=10000000", &[50, 19, 5]), [74, 44, 25]);
    }
}
