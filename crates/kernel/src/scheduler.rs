//! What a scheduling policy must provide. The verbs are those of the kernel's `sched_class`; the order in which they
//! are called is the kernel's, not the policy's.
//!
//! ```text
//! fork     task_fork -> select_cpu(FORK) -> enqueue(INITIAL) -> check_preempt
//! wakeup   queued? -> enqueue(DELAYED), same CPU -> check_preempt
//!          else select_cpu(TTWU) -> [interrupt to the CPU] -> enqueue(WAKEUP, MIGRATED?) -> check_preempt
//! block    dequeue(SLEEP) -> pick_next -> put_prev(queued?) -> set_next
//! displace dequeue(MIGRATING) -> pick_next -> put_prev -> set_next -> enqueue(MIGRATED), other CPU -> check_preempt
//! preempt  pick_next -> put_prev(queued) -> set_next          (put and set only if another task was picked)
//! yield    yield_task -> as preempt
//! exit     dequeue(SLEEP, SPECIAL) -> pick_next -> put_prev -> task_dead -> set_next
//! change   dequeue(SAVE, MOVE?) -> [put_prev, if it runs] -> enqueue(RESTORE, MOVE?) -> [set_next, if it runs]
//! class    as change, with switched_from before and switched_to after the new class has it: by a composite, not by the engine
//! ```
//!
//! A change and a move between classes may concern the running task: it is dequeued and enqueued while it is on its CPU
//! ([`Core::curr`]), and must not be left among those that wait.
//!
//! `pick_next` comes before `put_prev`: at that moment the previous task is in no queue of a policy that keeps the
//! running task outside, and a policy with a `dispatch` step has it called there. This is what a layer for sched_ext
//! programs needs.

use std::ops::BitOr;

use warmcore_topology::CpuId;
use warmcore_trace::schedstat::CpuCounters;
use warmcore_trace::{PrevState, TaskId};
use warmcore_workload::Policy;

use crate::clocks::Utilisation;
use crate::core::Core;
use crate::hooks::Hook;
use crate::scheduler_threads::{SchedulerThread, ThreadStep};

/// Why a CPU is to be selected or a task is enqueued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeFlags {
    /// The waker is about to sleep (`WF_SYNC`).
    pub sync: bool,
    /// A new task (`WF_FORK`).
    pub fork: bool,
    /// The waker is a task in its own system call, not an interrupt.
    pub by_task: bool,
}

/// What a system call is to change of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Its policy.
    Policy(Policy),
    /// Its task group, by index into [`Core::task_groups`]; `None` for the root group.
    Group(Option<u32>),
}

/// Why and how a task is enqueued: the kernel's `ENQUEUE_*` flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Enqueue(u8);

impl Enqueue {
    /// Woken after it had been dequeued (`ENQUEUE_WAKEUP`).
    pub const WAKEUP: Self = Self(1 << 0);
    /// The first time (`ENQUEUE_INITIAL`).
    pub const INITIAL: Self = Self(1 << 1);
    /// Woken while the scheduler still [held](Scheduler::holds) it (`ENQUEUE_DELAYED`).
    pub const DELAYED: Self = Self(1 << 2);
    /// Back after [`Dequeue::SAVE`]: nothing but an attribute has changed (`ENQUEUE_RESTORE`).
    pub const RESTORE: Self = Self(1 << 3);
    /// Beside [`Enqueue::RESTORE`]: it need not come back to the same place in its queue, or to the same queue of its CPU (`ENQUEUE_MOVE`).
    pub const MOVE: Self = Self(1 << 4);
    /// It was on another CPU before: beside [`Enqueue::WAKEUP`], or alone for a queued task that was moved (`ENQUEUE_MIGRATED`).
    pub const MIGRATED: Self = Self(1 << 5);
}

/// Why and how a task is dequeued: the kernel's `DEQUEUE_*` flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dequeue(u8);

impl Dequeue {
    /// It blocks (`DEQUEUE_SLEEP`). The scheduler may keep it, unless [`Dequeue::SPECIAL`] says no.
    pub const SLEEP: Self = Self(1 << 0);
    /// Beside [`Dequeue::SLEEP`]: the scheduler must let go of it, as it ends (`DEQUEUE_SPECIAL`).
    pub const SPECIAL: Self = Self(1 << 1);
    /// An attribute changes, and it comes back with [`Enqueue::RESTORE`] (`DEQUEUE_SAVE`).
    pub const SAVE: Self = Self(1 << 2);
    /// Beside [`Dequeue::SAVE`]: it need not come back to the same place (`DEQUEUE_MOVE`).
    pub const MOVE: Self = Self(1 << 3);
    /// It leaves for another CPU, and comes there with [`Enqueue::MIGRATED`] (`DEQUEUE_MIGRATING`).
    pub const MIGRATING: Self = Self(1 << 4);
}

macro_rules! flags {
    ($($name:ident),*) => {$(
        impl $name {
            /// Whether it has all these flags.
            #[inline]
            #[must_use]
            pub const fn has(self, flags: Self) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// These flags if the condition holds, else none.
            #[inline]
            #[must_use]
            pub const fn only_if(self, condition: bool) -> Self {
                if condition { self } else { Self(0) }
            }
        }

        impl BitOr for $name {
            type Output = Self;

            #[inline]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    )*};
}
flags!(Enqueue, Dequeue);

/// Wakeups for another CPU that the waker leaves to that CPU, which queues the task when an interrupt reaches it (feature `TTWU_QUEUE`).
/// Meanwhile the task is in no queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftWakeups {
    /// None: the waker itself adds the task, under the lock of the queue (`sched_add`, `tdq_add` of FreeBSD).
    None,
    /// Those for CPUs of other LLCs; a task that its CPU still switches away from is waited for (`ttwu_queue`, `try_to_wake_up` of Linux 4.9).
    OtherCaches,
    /// Those, and those for CPUs with nothing to run, be it that they still switch away from the task (`ttwu_queue_cond` of Linux 6.0 to 7.2).
    OtherCachesAndIdle,
}

/// A scheduling policy.
///
/// Methods are called with the clock at the present event and [`Core::this_cpu`] set to the CPU whose context it is.
pub trait Scheduler {
    /// Name, as on the command line.
    fn name(&self) -> &'static str;

    /// Names of what it ranks tasks by, with unit as suffix: what [`Scheduler::score_tasks`] tells.
    fn scores(&self) -> &'static [&'static str] {
        &[]
    }

    /// Tells what every task that is runnable on a CPU is ranked by at present: task, index into [`Scheduler::scores`], value.
    /// Called where samples are wanted, after a tick or a switch of that CPU, when the policy's accounts are up to date. It changes
    /// nothing, so that a run with samples is the run without them.
    fn score_tasks(&self, _core: &Core<'_>, _cpu: CpuId, _tell: &mut dyn FnMut(TaskId, u32, i64)) {}

    /// Whether it looks at tasks' parents: launchers exist then at least as tasks that sleep.
    fn looks_at_parents(&self) -> bool {
        false
    }

    /// Whether it reads how many pages of a process are resident ([`Core::resident_pages`]): pages are known then on a machine of one node
    /// too.
    fn reads_resident_pages(&self) -> bool {
        false
    }

    /// Threads of its own in user space, which exist as tasks that sleep when the run begins. What it says of one may change during the run
    /// ([`Core::change_thread`]), their number does not.
    fn threads(&self) -> &[SchedulerThread] {
        &[]
    }

    /// A thread of its own, by its number, has a CPU and nothing left to run: what it does next.
    fn thread_goes_on(&mut self, _core: &mut Core<'_>, _thread: u32) -> ThreadStep {
        ThreadStep::Sleep
    }

    /// Called once, before any task exists. Here it registers the kinds of decisions it puts into the trace
    /// ([`Core::decision_table`]).
    fn init(&mut self, core: &mut Core<'_>);

    /// What there is before the run is there and sleeps, and every CPU is idle: the run begins now.
    fn begin(&mut self, _core: &mut Core<'_>) {}

    /// A task was created by `parent` (or by the launcher) and is about to be placed (`task_fork`).
    fn task_fork(&mut self, core: &mut Core<'_>, task: TaskId, parent: Option<TaskId>);

    /// A task has left for good (`task_dead`).
    fn task_dead(&mut self, core: &mut Core<'_>, task: TaskId);

    /// Chooses a CPU for a waking or new task (`select_task_rq`). `prev` is the CPU it ran on, or the creator's.
    /// Called only if the task may use more than one CPU.
    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId;

    /// Whether the scheduler still holds a blocked task in the queue of its CPU (delayed dequeue).
    fn holds(&self, task: TaskId) -> bool;

    /// Queues a task on a CPU (`enqueue_task`).
    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Enqueue);

    /// Takes a task, running or queued, out of the CPU's queue (`dequeue_task`).
    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Dequeue);

    /// Decides whether a task just enqueued preempts the running one (`wakeup_preempt`).
    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: WakeFlags);

    /// Chooses the next task (`pick_next_task`), balancing if there is none. `prev` is the task that was running if it
    /// is still runnable. The result may be `prev`; `None` is idle.
    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId>;

    /// The running task stops running (`put_prev_task`); `runnable` tells whether it is still queued here.
    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, runnable: bool);

    /// A task begins to run (`set_next_task`).
    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId);

    /// The CPU goes idle: nothing was picked (`set_next_task_idle`).
    fn enter_idle(&mut self, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// Something now runs on a CPU that was idle (`put_prev_task_idle`).
    fn exit_idle(&mut self, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// A CPU has switched from one task to another, whatever classes they are of (the tracepoint `sched_switch`). `prev` is in the state given.
    fn sched_switch(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _prev: (TaskId, PrevState), _next: TaskId) {}

    /// A CPU passes a place that the policy watches ([`Core::watch`]), in the name of what runs there.
    fn hook(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _hook: Hook) {}

    /// Wakeups that this kernel leaves to the task's CPU, where it has [`KernelParameters::ttwu_queue`](crate::KernelParameters).
    fn left_wakeups(&self) -> LeftWakeups {
        LeftWakeups::OtherCachesAndIdle
    }

    /// Whether the task's class lets them be left (`scx_allow_ttwu_queue`, which asks for tasks of the class `ext` only).
    fn allows_left_wakeups(&self, _task: TaskId) -> bool {
        true
    }

    /// A queued wakeup was sent to the CPU or has arrived there: [`Core::ttwu_pending`] changed.
    fn ttwu_pending_changed(&mut self, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// A woken task is on its way to the CPU, which will queue it itself: [`Scheduler::enqueue`] is called when it does.
    fn wakeup_sent(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _task: TaskId) {}

    /// Ordinary tick (`task_tick` and `sched_balance_trigger`); `curr` is `None` where no task of this scheduler runs: on an idle CPU,
    /// and in a composite on one that runs a task of another class.
    fn tick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>);

    /// The tick of an idle CPU was stopped (`nohz_balance_enter_idle`).
    fn tick_stopped(&mut self, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// High-resolution tick (`hrtick`).
    fn hrtick(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _curr: TaskId) {}

    /// The scheduler's softirq, raised by [`Core::raise_softirq`].
    fn softirq(&mut self, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// An idle CPU was kicked by [`Core::kick_nohz`].
    fn nohz_kick(&mut self, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// The CPU's stopper thread takes it from its running task, and is about to run (`put_prev_task` for the stop class).
    fn stopper_comes(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _prev: TaskId) {}

    /// The CPU's stopper thread runs, asked for by [`Core::queue_stopper`] or, with that of another CPU,
    /// [`Core::queue_two_stoppers`]. What was running there is queued.
    fn stopper(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _payload: u32) {}

    /// A timer of the scheduler's own has run out, started by [`Core::start_timer`] and not cancelled.
    fn timer(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _payload: u64) {}

    /// `sched_yield` of the running task.
    fn yield_task(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId);

    /// Whether a task may change so, which is as it was: one that may not stays so, and its call gives an error (`scx_check_setscheduler`,
    /// `cpu_cgroup_can_attach`).
    fn permits(&mut self, _core: &mut Core<'_>, _task: TaskId, _change: Change) -> bool {
        true
    }

    /// Nice value, policy, slice or group of a task changed; [`Core::task`] has the new values.
    fn attributes_changed(&mut self, core: &mut Core<'_>, task: TaskId);

    /// The CPUs a task may use changed.
    fn affinity_changed(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    /// A tunable gets another value in mid-run, as by a write to the kernel's file; one that it does not have is ignored. What may come
    /// here was checked against the scheduler's description before the run.
    fn tunable_changed(&mut self, _core: &mut Core<'_>, _name: &str, _value: u64) {}

    /// A CPU goes offline: [`Core::active`] does not have it any more, and what runs and waits there is taken away next
    /// (`sched_set_rq_offline`, `scx_rq_deactivate`, the domains' rebuilding).
    fn cpu_offline(&mut self, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// A CPU is online again, and about to be idle (`sched_set_rq_online`, `scx_rq_activate`, the domains' rebuilding).
    fn cpu_online(&mut self, _core: &mut Core<'_>, _cpu: CpuId) {}

    /// A task that is not queued here any more belongs to another class from now on (`switched_from`); called only by a composite.
    fn switched_from(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    /// A task that is not queued yet belongs to this class from now on (`switching_to`); called only by a composite.
    fn switched_to(&mut self, _core: &mut Core<'_>, _task: TaskId) {}

    /// What it wants of a CPU's speed: `schedutil` asks when a task came to the CPU or left it, and at its ticks.
    fn utilisation(&self, _core: &Core<'_>, _cpu: CpuId) -> Utilisation {
        Utilisation::FULL
    }

    /// An interrupt has come that takes a CPU from its running task for so long, in a kernel with [`KernelParameters::irq_time_accounting`](crate::KernelParameters).
    /// The task's clock ([`Core::clock_task_ns`]) includes it by now.
    fn interrupted(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _duration_ns: u64) {}

    /// A CPU's speed changes: from now on it is `scale` of 1024, which is the biggest CPU at its highest frequency. Not called in a run
    /// without a governor, where speeds are [`Core::capacity`].
    fn speed_changed(&mut self, _core: &mut Core<'_>, _cpu: CpuId, _scale: f64) {}

    /// What it counted of its scheduling domains, by CPU, where figures of balancing are asked for ([`Core::wants_balance_details`]).
    fn domain_counters(&self, _core: &Core<'_>) -> Vec<CpuCounters> {
        Vec::new()
    }

    /// Number of runnable tasks it holds on a CPU, the running one included and sleeping ones excluded: compared with
    /// the kernel's own count when invariants are checked.
    fn runnable_on(&self, cpu: CpuId) -> usize;
}

/// Forwards a method to what the box holds.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {$(
        fn $name(&mut self, core: &mut Core<'_>, $($argument: $kind),*) $(-> $result)? {
            (**self).$name(core, $($argument),*)
        }
    )*};
}

/// A scheduler of a kind that is known only when the run begins: for composites of many kinds.
// A method that is not forwarded would be the trait's own, without a word.
#[deny(clippy::missing_trait_methods)]
impl<S: Scheduler + ?Sized> Scheduler for Box<S> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn scores(&self) -> &'static [&'static str] {
        (**self).scores()
    }

    fn score_tasks(&self, core: &Core<'_>, cpu: CpuId, tell: &mut dyn FnMut(TaskId, u32, i64)) {
        (**self).score_tasks(core, cpu, tell);
    }

    fn looks_at_parents(&self) -> bool {
        (**self).looks_at_parents()
    }

    fn reads_resident_pages(&self) -> bool {
        (**self).reads_resident_pages()
    }

    fn threads(&self) -> &[SchedulerThread] {
        (**self).threads()
    }

    fn holds(&self, task: TaskId) -> bool {
        (**self).holds(task)
    }

    fn left_wakeups(&self) -> LeftWakeups {
        (**self).left_wakeups()
    }

    fn allows_left_wakeups(&self, task: TaskId) -> bool {
        (**self).allows_left_wakeups(task)
    }

    fn utilisation(&self, core: &Core<'_>, cpu: CpuId) -> Utilisation {
        (**self).utilisation(core, cpu)
    }

    fn domain_counters(&self, core: &Core<'_>) -> Vec<CpuCounters> {
        (**self).domain_counters(core)
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        (**self).runnable_on(cpu)
    }

    forward! {
        thread_goes_on(thread: u32) -> ThreadStep;
        init();
        begin();
        task_fork(task: TaskId, parent: Option<TaskId>);
        task_dead(task: TaskId);
        select_cpu(task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId;
        enqueue(cpu: CpuId, task: TaskId, flags: Enqueue);
        dequeue(cpu: CpuId, task: TaskId, flags: Dequeue);
        check_preempt(cpu: CpuId, task: TaskId, flags: WakeFlags);
        pick_next(cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId>;
        put_prev(cpu: CpuId, task: TaskId, runnable: bool);
        set_next(cpu: CpuId, task: TaskId);
        enter_idle(cpu: CpuId);
        exit_idle(cpu: CpuId);
        sched_switch(cpu: CpuId, prev: (TaskId, PrevState), next: TaskId);
        hook(cpu: CpuId, hook: Hook);
        ttwu_pending_changed(cpu: CpuId);
        wakeup_sent(cpu: CpuId, task: TaskId);
        tick(cpu: CpuId, curr: Option<TaskId>);
        tick_stopped(cpu: CpuId);
        hrtick(cpu: CpuId, curr: TaskId);
        softirq(cpu: CpuId);
        nohz_kick(cpu: CpuId);
        stopper_comes(cpu: CpuId, prev: TaskId);
        stopper(cpu: CpuId, payload: u32);
        timer(cpu: CpuId, payload: u64);
        yield_task(cpu: CpuId, task: TaskId);
        permits(task: TaskId, change: Change) -> bool;
        attributes_changed(task: TaskId);
        affinity_changed(task: TaskId);
        tunable_changed(name: &str, value: u64);
        cpu_offline(cpu: CpuId);
        cpu_online(cpu: CpuId);
        switched_from(task: TaskId);
        switched_to(task: TaskId);
        speed_changed(cpu: CpuId, scale: f64);
        interrupted(cpu: CpuId, duration_ns: u64);
    }
}
