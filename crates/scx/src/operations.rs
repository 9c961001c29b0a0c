//! What a sched_ext program is: a table of operations, all of which have defaults (`struct sched_ext_ops`).
//!
//! Source: `docs/spec/sched-ext.md` sections 2, 5 and 6.

use std::cell::Cell;
use std::ops::BitOr;
use std::rc::Rc;

use warmcore_kernel::{Enqueue, Hook, SchedulerThread, ThreadStep, WakeFlags};
use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::{OverheadKind, PrevState, TaskId};

use crate::entities::EntityLayout;
use crate::events::Traced;
use crate::exit::ExitInfo;
use crate::groups::GroupCall;
use crate::kfuncs::Kfuncs;

/// Slice that a task gets where nobody says another (`SCX_SLICE_DFL`), in nanoseconds.
pub const SLICE_DEFAULT_NS: u64 = 20_000_000;

/// A slice that never ends (`SCX_SLICE_INF`).
pub const SLICE_INFINITE: u64 = u64::MAX;

macro_rules! bits {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name(pub u64);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << $bit);)*

            /// Whether it has all these flags.
            #[inline]
            #[must_use]
            pub const fn has(self, flags: Self) -> bool {
                self.0 & flags.0 == flags.0
            }
        }

        impl BitOr for $name {
            type Output = Self;

            #[inline]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

bits! {
    /// What a program wants of the class (`SCX_OPS_*`), with the kernel's values.
    OperationFlags {
        /// The built-in idle masks stay although the program has `update_idle`.
        KEEP_BUILTIN_IDLE = 0;
        /// A task that would go on for lack of others is enqueued with [`EnqueueFlags::LAST`] instead.
        ENQ_LAST = 1;
        /// Tasks that are about to exit are enqueued by the program too. Without it they go to the local queue of their CPU.
        ENQ_EXITING = 2;
        /// Only tasks of the policy `SCHED_EXT` are its own, and the fair class stands above.
        SWITCH_PARTIAL = 3;
        /// Tasks that have disabled migration are enqueued by the program too. Without it they go to the local queue of their CPU.
        ENQ_MIGRATION_DISABLED = 4;
        /// Wakeups may be left to the CPU that they are for, whose interrupt calls `enqueue` then (since 6.15; before, none was).
        ALLOW_QUEUED_WAKEUP = 5;
        /// The built-in idle masks are those of nodes.
        BUILTIN_IDLE_PER_NODE = 6;
        /// Every insertion into a local queue is one with [`EnqueueFlags::IMMED`].
        ALWAYS_ENQ_IMMED = 7;
    }
}

bits! {
    /// Why and how a task is enqueued or inserted (`SCX_ENQ_*`), with the values of kernel 7.2 (those from bit 16 to 31 had others before). A kernel gives
    /// a program its own flags, too (`ENQUEUE_*` of `kernel/sched/sched.h`, unmasked by `enqueue_task_scx`).
    EnqueueFlags {
        /// It was woken.
        WAKEUP = 0;
        /// It is back after an attribute of it has changed.
        RESTORE = 1;
        /// Beside that: it need not come back to the same place.
        MOVE = 2;
        /// The kernel's clock of the run queue is up to date.
        NO_CLOCK = 3;
        /// To the head of the queue.
        HEAD = 16;
        /// It was on another CPU before.
        MIGRATED = 18;
        /// It is new.
        INITIAL = 19;
        /// The CPU was selected by `select_cpu`.
        CPU_SELECTED = 20;
        /// To the head of a local queue, and the task that runs there leaves.
        PREEMPT = 32;
        /// It runs at once on the CPU of the local queue, or is enqueued again.
        IMMED = 33;
        /// It comes back from a local queue (`reenqueue_local`).
        REENQ = 40;
        /// It is the only one on its CPU ([`OperationFlags::ENQ_LAST`]).
        LAST = 41;
    }
}

impl EnqueueFlags {
    /// Flags from this bit on are the class's own (`__SCX_ENQ_INTERNAL_MASK`), which no program may give.
    pub(crate) const INTERNAL_SHIFT: u32 = 56;

    /// Those of an enqueue by the kernel: its own, and whether `select_cpu` chose the CPU of a wakeup (`ttwu_do_activate`, `wake_up_new_task`,
    /// `activate_task`, `sched_change_end`).
    #[inline]
    pub(crate) fn of(flags: Enqueue, selected: bool) -> Self {
        let wakes = flags.has(Enqueue::WAKEUP);
        [
            (wakes, Self::WAKEUP | Self::NO_CLOCK),
            (wakes && selected, Self::CPU_SELECTED),
            (flags.has(Enqueue::INITIAL), Self::INITIAL | Self::NO_CLOCK),
            (flags.has(Enqueue::RESTORE), Self::RESTORE | Self::NO_CLOCK),
            (flags.has(Enqueue::MOVE), Self::MOVE),
            (flags.has(Enqueue::MIGRATED), Self::MIGRATED),
        ]
        .into_iter()
        .fold(Self::default(), |all, (holds, flag)| if holds { all | flag } else { all })
    }
}

bits! {
    /// Why a task leaves custody or stops being runnable (`SCX_DEQ_*`), with the kernel's values.
    DequeueFlags {
        /// It goes to sleep.
        SLEEP = 0;
        /// A property of it changes.
        SCHED_CHANGE = 33;
    }
}

/// How a CPU is kicked (`SCX_KICK_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// It reschedules.
    Plain,
    /// It reschedules if it is idle.
    Idle,
    /// The slice of what runs there ends, and it reschedules.
    Preempt,
    /// It reschedules, and the kicking CPU waits until it has.
    Wait,
    /// Both: the slice of what runs there ends, and the kicking CPU waits until it has rescheduled.
    PreemptAndWait,
}

/// The class that takes a CPU from this one (`enum scx_cpu_preempt_reason`, with the kernel's values).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreemptReason {
    /// Real-time tasks.
    Realtime = 0,
    /// Deadline tasks.
    Deadline = 1,
    /// The stopper thread, which moves tasks.
    Stopper = 2,
    /// Another: the fair class, above a program of `SCHED_EXT` tasks only.
    Unknown = 3,
}

/// The operations, for counts and the list of those that a program has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)] // Each is described at the method of its name.
pub enum Operation {
    SelectCpu,
    Enqueue,
    Dequeue,
    Dispatch,
    Tick,
    Runnable,
    Running,
    Stopping,
    Quiescent,
    Yield,
    SetWeight,
    SetCpumask,
    UpdateIdle,
    InitTask,
    ExitTask,
    Enable,
    Disable,
    Init,
    Exit,
    Dump,
    DumpCpu,
    DumpTask,
    Timer,
    CgroupInit,
    CgroupExit,
    CgroupPrepMove,
    CgroupMove,
    CpuOnline,
    CpuOffline,
    CpuAcquire,
    CpuRelease,
    SchedSwitch,
    Futex,
    Interrupt,
    KernelTick,
    SchedWakeup,
    SchedMigrateTask,
    SchedProcess,
    SchedExt,
}

impl Operation {
    /// How many there are.
    pub const COUNT: usize = Operation::SchedExt as usize + 1;

    /// Whether a CPU that is in it takes interrupts: it may sleep, is a timer's callback or belongs to a system call. Others hold a run queue's or a task's lock.
    pub(crate) const fn has_interrupts_on(self) -> bool {
        use Operation::{CgroupExit, CgroupInit, CgroupPrepMove, CpuOffline, CpuOnline, Exit, Futex, Init, InitTask};
        use Operation::{SchedProcess, Timer};
        let of_groups = matches!(self, CgroupInit | CgroupExit | CgroupPrepMove);
        of_groups || matches!(self, Init | Exit | InitTask | CpuOffline | CpuOnline | Timer | Futex | SchedProcess)
    }

    /// What the time in it counts as.
    pub(crate) const fn overhead(self) -> OverheadKind {
        match self {
            Operation::Tick | Operation::KernelTick => OverheadKind::Tick,
            Operation::SelectCpu | Operation::Enqueue | Operation::Runnable => OverheadKind::Wakeup,
            // Most moves are those of wakeups.
            Operation::SchedWakeup | Operation::SchedMigrateTask => OverheadKind::Wakeup,
            Operation::Futex | Operation::SchedProcess => OverheadKind::Syscall,
            Operation::CgroupPrepMove | Operation::CgroupMove => OverheadKind::Syscall,
            Operation::Interrupt => OverheadKind::Interrupt,
            _ => OverheadKind::Switch,
        }
    }

    /// Whether it is a member of `struct sched_ext_ops`. Timers and programs at functions and tracepoints are none.
    pub(crate) const fn is_member(self) -> bool {
        use Operation::{
            Futex, Interrupt, KernelTick, SchedExt, SchedMigrateTask, SchedProcess, SchedSwitch, SchedWakeup, Timer,
        };
        !matches!(
            self,
            Timer
                | SchedSwitch
                | Futex
                | Interrupt
                | KernelTick
                | SchedWakeup
                | SchedMigrateTask
                | SchedProcess
                | SchedExt
        )
    }

    /// All of them, with the names that members have in `struct sched_ext_ops`.
    pub const ALL: [(&'static str, Self); Self::COUNT] = [
        ("select_cpu", Self::SelectCpu),
        ("enqueue", Self::Enqueue),
        ("dequeue", Self::Dequeue),
        ("dispatch", Self::Dispatch),
        ("tick", Self::Tick),
        ("runnable", Self::Runnable),
        ("running", Self::Running),
        ("stopping", Self::Stopping),
        ("quiescent", Self::Quiescent),
        ("yield", Self::Yield),
        ("set_weight", Self::SetWeight),
        ("set_cpumask", Self::SetCpumask),
        ("update_idle", Self::UpdateIdle),
        ("init_task", Self::InitTask),
        ("exit_task", Self::ExitTask),
        ("enable", Self::Enable),
        ("disable", Self::Disable),
        ("init", Self::Init),
        ("exit", Self::Exit),
        ("dump", Self::Dump),
        ("dump_cpu", Self::DumpCpu),
        ("dump_task", Self::DumpTask),
        ("timer", Self::Timer),
        ("cgroup_init", Self::CgroupInit),
        ("cgroup_exit", Self::CgroupExit),
        ("cgroup_prep_move", Self::CgroupPrepMove),
        ("cgroup_move", Self::CgroupMove),
        ("cpu_online", Self::CpuOnline),
        ("cpu_offline", Self::CpuOffline),
        ("cpu_acquire", Self::CpuAcquire),
        ("cpu_release", Self::CpuRelease),
        ("sched_switch", Self::SchedSwitch),
        ("futex", Self::Futex),
        ("interrupt", Self::Interrupt),
        ("kernel_tick", Self::KernelTick),
        ("sched_wakeup", Self::SchedWakeup),
        ("sched_migrate_task", Self::SchedMigrateTask),
        ("sched_process", Self::SchedProcess),
        ("sched_ext", Self::SchedExt),
    ];

    /// As a bit of [`OperationTable::present`].
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// The data of a program's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationTable {
    /// Name of the program.
    pub name: &'static str,
    /// The operations it has, as [bits](Operation::bit). Another one is never called; for `select_cpu`, `enqueue`, `dispatch` and `yield`
    /// the class then does what the contract says.
    pub present: u64,
    /// What it wants.
    pub flags: OperationFlags,
    /// Longest time that a runnable task may wait for a CPU (`timeout_ms`), at most 30 000 ms.
    pub timeout_ms: u32,
    /// Most tasks that one `dispatch` may insert (`dispatch_max_batch`).
    pub dispatch_max_batch: u32,
    /// Most bytes of the dump that an error exit makes (`exit_dump_len`).
    pub exit_dump_bytes: usize,
}

impl OperationTable {
    /// A program that has nothing but its name.
    #[must_use]
    pub const fn empty(name: &'static str) -> Self {
        Self {
            name,
            present: 0,
            flags: OperationFlags(0),
            timeout_ms: 30_000,
            dispatch_max_batch: 32,
            exit_dump_bytes: 32_768,
        }
    }

    /// With these operations.
    #[must_use]
    pub const fn with(mut self, operations: &[Operation]) -> Self {
        let mut at = 0;
        while at < operations.len() {
            self.present |= operations[at].bit();
            at += 1;
        }
        self
    }
}

/// What the locks of a program's queues have taken.
#[derive(Debug, Default)]
pub struct LockUse {
    passes: Cell<u64>,
    charged_ns: Cell<u64>,
}

impl LockUse {
    /// How often one was taken, and how long that kept CPUs, in nanoseconds.
    #[must_use]
    pub fn total(&self) -> (u64, u64) {
        (self.passes.get(), self.charged_ns.get())
    }

    pub(crate) fn add(&self, charged_ns: u64) {
        self.passes.update(|passes| passes + 1);
        self.charged_ns.update(|sum| sum + charged_ns);
    }
}

/// A sched_ext program. Verbs and order are those of `struct sched_ext_ops`; what a method may call of [`Kfuncs`] stands there.
/// An operation is called only if [`Operations::table`] names it.
#[allow(unused_variables)]
pub trait Operations {
    /// Its table. Asked once.
    fn table(&self) -> OperationTable;

    /// Where slices and virtual times of tasks lie, if the program reads and writes them as memory. Asked once.
    fn entities(&self) -> Option<EntityLayout> {
        None
    }

    /// How long it has been loaded when the run begins, in ns. The machine is idle then, and the program's timers run.
    fn loaded_before_ns(&self) -> u64 {
        0
    }

    /// Where passes of the locks of its queues are counted, if somebody wants to know. Asked once.
    fn lock_use(&self) -> Option<Rc<LockUse>> {
        None
    }

    /// Loaded, before there is a task.
    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {}

    /// Unloaded, for the reason given.
    fn exit(&mut self, kernel: &mut Kfuncs<'_, '_>, info: &ExitInfo) {}

    /// After `exit`, also of a program without one: what it has outside of the kernel learns that it has ended, and may attach it again if it is
    /// asked to.
    fn ended(&mut self, kernel: &mut Kfuncs<'_, '_>, asks_for_restart: bool) {}

    /// A timer after that.
    fn timer_after_end(&mut self, kernel: &mut Kfuncs<'_, '_>, payload: u32) {}

    /// Whether it may be attached again.
    fn may_begin_again(&self) -> bool {
        false
    }

    /// Becomes what was attached since it ended; whether something was.
    fn begin_again(&mut self) -> bool {
        false
    }

    /// Threads of its own in user space, as tasks.
    fn threads(&self) -> &[SchedulerThread] {
        &[]
    }

    /// One of them has a CPU and nothing left to run, also after the program has ended: what it does next.
    fn thread_goes_on(&mut self, kernel: &mut Kfuncs<'_, '_>, thread: u32) -> ThreadStep {
        ThreadStep::Sleep
    }

    /// Chooses a CPU for a task that wakes or is new and may use more than one; may insert it.
    fn select_cpu(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        prev
    }

    /// A runnable task is the program's to queue, on the CPU it is assigned to.
    fn enqueue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {}

    /// A task leaves the program's custody, once per custody: it is dispatched to a local or global queue (no flags), goes to sleep, or a property of
    /// it changes.
    fn dequeue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: DequeueFlags) {}

    /// A CPU has nothing in its local queue. `prev` is what ran there, if it is still runnable; it is in no queue yet.
    fn dispatch(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, prev: Option<TaskId>) {}

    /// A tick came while the task runs.
    fn tick(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {}

    /// A task becomes runnable; before `enqueue`.
    fn runnable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {}

    /// A task begins to run.
    fn running(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {}

    /// A task stops running; `runnable` says whether it will be enqueued again.
    fn stopping(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, runnable: bool) {}

    /// A task stops being runnable.
    fn quiescent(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: DequeueFlags) {}

    /// `sched_yield`; without it the slice ends.
    fn yield_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {}

    /// The weight of a task is now so, 1 to 10 000, 100 for nice 0.
    fn set_weight(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, weight: u32) {}

    /// The CPUs that a task may use are now these.
    fn set_cpumask(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, allowed: &CpuSet) {}

    /// A CPU is online again. Without it the program is ended when that happens.
    fn cpu_online(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {}

    /// A CPU goes offline; its tasks are still there. Without it the program is ended when that happens.
    fn cpu_offline(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {}

    /// The class has a CPU again that another had taken; before `dispatch`.
    fn cpu_acquire(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {}

    /// A task of a class above takes a CPU on which one of this class ran; not told again before `cpu_acquire`.
    fn cpu_release(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, reason: PreemptReason, task: TaskId) {}

    /// The CPU of the call has switched between two tasks of any class: programs at the tracepoint `sched_switch`.
    fn sched_switch(&mut self, kernel: &mut Kfuncs<'_, '_>, prev: (TaskId, PrevState), next: TaskId) {}

    /// The CPU of the call has passed another place where programs are ([`Operation::Futex`], [`Operation::Interrupt`],
    /// [`Operation::KernelTick`], [`Operation::SchedWakeup`], [`Operation::SchedMigrateTask`], [`Operation::SchedProcess`]).
    fn hook(&mut self, kernel: &mut Kfuncs<'_, '_>, hook: Hook) {}

    /// The class has counted an event or made a line of a dump: programs at its own tracepoints ([`Operation::SchedExt`]). A kernel tells them
    /// within the function that does so, this class after the operation.
    fn traced(&mut self, kernel: &mut Kfuncs<'_, '_>, traced: Traced<'_>) {}

    /// Other CPUs than before are online: called before both, whether the program has them or not.
    fn online_changed(&mut self, online: &CpuSet) {}

    /// A CPU goes idle or stops being idle.
    fn update_idle(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, idle: bool) {}

    /// A task was created. False if the program refuses it, and has said so.
    fn init_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) -> bool {
        true
    }

    /// A task is gone, or the program is. Called once for each task that `init_task` was called for and did not refuse.
    fn exit_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {}

    /// A task enters the class.
    fn enable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {}

    /// A task leaves the class.
    fn disable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {}

    /// A group is there, before there is a task, or ends, or a task moves from one to another. False if the program refuses a move that
    /// [is about to be](GroupCall::PrepareMove): it does not take place. A group that is refused ends the program, which has said so.
    fn cgroup(&mut self, kernel: &mut Kfuncs<'_, '_>, call: GroupCall) -> bool {
        true
    }

    /// The task groups of the run are there: called before `init`, whether the program has it or not.
    fn groups_made(&mut self, kernel: &mut Kfuncs<'_, '_>) {}

    /// A task is in another group: called before that is told, whether the program wants to know or not.
    fn group_changed(&mut self, task: TaskId, group: Option<u32>) {}

    /// Adds lines to the dump of an error exit with [`Kfuncs::dump`].
    fn dump(&mut self, kernel: &mut Kfuncs<'_, '_>) {}

    /// The same below the line of a CPU.
    fn dump_cpu(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, idle: bool) {}

    /// The same below the lines of a runnable task.
    fn dump_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {}

    /// A timer has run out that [`Kfuncs::start_timer`] started (`bpf_timer`).
    fn timer(&mut self, kernel: &mut Kfuncs<'_, '_>, payload: u32) {}
}
