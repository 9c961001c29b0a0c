//! CPUs of `nohz_full` that go on without ticks.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use crate::core::Core;
use crate::engine::Engine;
use crate::event_queue::Slot;
use crate::memory::Memory;
use crate::scheduler::Scheduler;

/// How far apart ticks are that another CPU makes for one that goes without (`sched_tick_remote`).
pub(crate) const REMOTE_TICK_NS: u64 = 1_000_000_000;

impl Core<'_> {
    /// The next ordinary tick of a CPU that has had none.
    pub(crate) fn next_tick_ns(&self, cpu: CpuId) -> u64 {
        let phase_ns = self.cpus[cpu.index()].tick_phase_ns;
        let since_ns = (self.now_ns + self.tick_ns - phase_ns) % self.tick_ns;
        self.now_ns + self.tick_ns - since_ns
    }

    /// A CPU that went on without ticks (`nohz_full`) has them again (`tick_nohz_dep_set_cpu`).
    #[inline]
    pub(crate) fn restart_tick(&mut self, cpu: CpuId) {
        if std::mem::take(&mut self.cpus[cpu.index()].tickless) {
            let at = self.next_tick_ns(cpu);
            self.queue.set(Slot::Tick, cpu, at);
        }
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Whether a busy CPU goes on without ticks: one of `nohz_full` on which nobody waits, the running task having no quota and no reservation
    /// (`sched_can_stop_tick`).
    #[inline]
    pub(crate) fn stops_full_tick(&self, cpu: CpuId, curr: TaskId) -> bool {
        self.setup.nohz_full.contains(cpu) && !curr.is_idle() && self.is_free_runner(cpu, curr)
    }

    #[cold]
    fn is_free_runner(&self, cpu: CpuId, curr: TaskId) -> bool {
        let task = &self.core.tasks[curr.index()];
        let groups = &self.core.task_groups;
        let mut of_task = std::iter::successors(task.group, |&group| groups[group as usize].parent);
        self.scheduler.runnable_on(cpu) == 1
            && !task.policy.is_deadline()
            && !of_task.any(|group| groups[group as usize].cpu_max.is_some())
    }
}
