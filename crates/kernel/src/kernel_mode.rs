//! Tasks in kernel mode, and when another one may take their CPU (`kernel/sched/core.c`, `include/linux/preempt.h`).
//!
//! A request to reschedule acts on user code at once, or when it enters the kernel. In the kernel it waits for what the model
//! ([`Preempt`]) says: the return to user mode, a `cond_resched`, the end of a part with preemption disabled. The task may also block,
//! as in user mode.
//!
//! Only what a program puts between `kernel_enter` and `kernel_exit`, faults and mappings ([`mappings`](crate::interpreter)), and changes of its task
//! group are kernel mode. Not modelled: the kernel time of other steps (system calls, messages, interrupts), during which a task is preempted as in
//! user mode; a stopper or a hotplug that has to wait for kernel code that may not be preempted; the time of a `cond_resched` that has nothing to do.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{KernelStep, LockId};

use crate::core::{Core, NeedResched};
use crate::engine::{Engine, Leave};
use crate::interpreter::{Done, Fault, GroupChange, Mapping};
use crate::memory::Memory;
use crate::parameters::Preempt;
use crate::scheduler::Scheduler;
use crate::timers::ClassPath;

/// Whether a task is in the kernel, and how often it has disabled preemption there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct KernelMode {
    pub within: bool,
    pub preempt_count: u32,
    /// How many mutexes and semaphores of the kernel it has alone, and the one for which it spins.
    pub locks: u16,
    pub spins_on: Option<LockId>,
    /// Pages that the present [`Step::FirstTouch`](warmcore_workload::Step::FirstTouch) or [`Step::Map`](warmcore_workload::Step::Map) has still to
    /// touch.
    pub pages_left: u64,
    /// How far the present fault has got.
    pub fault: Fault,
    /// How far the present [`Step::Map`](warmcore_workload::Step::Map) has got.
    pub mapping: Mapping,
    /// How far the present [`Step::SetGroup`](warmcore_workload::Step::SetGroup) has got.
    pub group_change: GroupChange,
    /// What the scheduler's timer is to be called with at the return to user mode, and which class's.
    pub work: Option<(u64, ClassPath)>,
}

impl Core<'_> {
    /// Whether the running task is in the kernel: what is to be done at its return to user mode waits until then.
    #[inline]
    pub fn in_kernel(&self, cpu: CpuId) -> bool {
        let curr = self.cpus[cpu.index()].curr;
        !curr.is_idle() && self.tasks[curr.index()].kernel.within
    }

    /// For a task in the kernel: calls [`Scheduler::timer`] with `payload` when it has returned to user mode (`task_work_add`). False if it is
    /// in user mode.
    pub fn at_return_to_user(&mut self, task: TaskId, payload: u64) -> bool {
        let class = self.class;
        let kernel = &mut self.tasks[task.index()].kernel;
        if kernel.within {
            kernel.work = Some((payload, class));
        }
        kernel.within
    }

    /// Whether a pending request to reschedule the CPU acts now on what runs there, wherever that is in its program.
    #[inline]
    pub(crate) fn may_preempt(&self, cpu: CpuId) -> bool {
        !self.in_kernel(cpu) || self.may_preempt_kernel(cpu)
    }

    /// The same where a task is in the kernel (`preempt_schedule_irq`, `preempt_schedule`).
    #[cold]
    fn may_preempt_kernel(&self, cpu: CpuId) -> bool {
        let state = &self.cpus[cpu.index()];
        let kernel = &self.tasks[state.curr.index()].kernel;
        // Who spins for a lock looks for the request itself.
        let preemptible = matches!(self.parameters.preempt, Preempt::Full | Preempt::Lazy) || kernel.spins_on.is_some();
        preemptible && state.need_resched == NeedResched::Full && kernel.preempt_count == 0
    }

    /// A tick that finds a lazy request makes it full (`sched_tick`). In user mode that request acts after the tick anyway.
    pub(crate) fn promote_lazy_request(&mut self, cpu: CpuId) {
        if self.in_kernel(cpu)
            && self.parameters.preempt == Preempt::Lazy
            && self.cpus[cpu.index()].need_resched == NeedResched::Lazy
        {
            self.resched_full(cpu);
        }
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// The running task enters or leaves the kernel, or says what may be done to it there.
    pub(crate) fn kernel_step(&mut self, cpu: CpuId, id: TaskId, step: KernelStep) -> Done {
        let kernel = &mut self.core.tasks[id.index()].kernel;
        let gives_way = match step {
            KernelStep::Enter => {
                kernel.within = true;
                return if self.pay(id, self.core.machine.costs().syscall_ns) { Done::Busy } else { Done::Next };
            }
            KernelStep::Exit => {
                self.return_to_user(cpu, id);
                true
            }
            KernelStep::PreemptDisable => {
                kernel.preempt_count = kernel.preempt_count.saturating_add(1);
                false
            }
            KernelStep::PreemptEnable => {
                kernel.preempt_count = kernel.preempt_count.saturating_sub(1);
                self.core.may_preempt(cpu)
            }
            KernelStep::CondResched => {
                matches!(self.core.parameters.preempt, Preempt::None | Preempt::Voluntary) && kernel.preempt_count == 0
            }
            KernelStep::MightSleep => self.core.parameters.preempt == Preempt::Voluntary && kernel.preempt_count == 0,
        };
        self.step_over(id);
        self.give_way(cpu, gives_way)
    }

    /// The running task leaves the kernel.
    pub(crate) fn return_to_user(&mut self, cpu: CpuId, id: TaskId) {
        let kernel = &mut self.core.tasks[id.index()].kernel;
        kernel.within = false;
        if let Some((payload, class)) = kernel.work.take() {
            // At once, as nothing of the program comes before it: not even its next entry into the kernel.
            self.core.addressed = class;
            self.scheduler.timer(&mut self.core, cpu, payload);
        }
        self.entered_kernel = true;
    }

    /// Whether a pending request to reschedule acts after a step over which the task has gone.
    pub(crate) fn give_way(&self, cpu: CpuId, gives_way: bool) -> Done {
        match gives_way && self.core.need_resched(cpu) != NeedResched::No {
            true => Done::Leaves(Leave::Preempted),
            false => Done::Jumped,
        }
    }
}
