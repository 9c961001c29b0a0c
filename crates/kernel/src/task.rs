//! The kernel's view of a task.

use warmcore_topology::CpuId;
use warmcore_trace::{PlaceReason, TaskId};
use warmcore_workload::{Draws, Policy, ProgramId, RecorderId, TaskTemplateId, UtilClamp};

use crate::kernel_mode::KernelMode;

/// Where a task is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Created, not yet placed.
    New,
    /// Woken, on its way to its CPU by an interrupt.
    Waking,
    /// In a queue, waiting for a CPU.
    Queued,
    /// On a CPU.
    Running,
    /// Waiting for something. A scheduler may still keep it in a queue (delayed dequeue).
    Blocked,
    /// Gone.
    Dead,
}

/// What a task does when it is on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// The interpreter has to look at the next step.
    Advance,
    /// Work at the CPU's speed.
    Work,
    /// Time on CPU, whatever its speed; overhead counts.
    CpuTime,
    /// Kernel work of a system call, overhead apart; its effect comes afterwards.
    Syscall,
    /// Kernel work of a message at the CPU's speed, where memory is modelled; its effect comes afterwards.
    Message,
    /// Busy-waiting at a barrier until released.
    Spin,
    /// Busy-waiting at a barrier until released or the time is up.
    SpinUntil,
}

/// How far the current step has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Not begun.
    Begin,
    /// Its cost is paid; the effect is next.
    Effect,
    /// It blocked; what happens next depends on the step.
    Woken,
    /// It has waited for a condition and found the mutex taken: the call that sleeps until a release is paid too.
    Relock,
}

/// What a blocked task waits for, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitReason {
    /// Nothing: not blocked.
    None,
    /// A sleep or timer.
    Time,
    /// A mutex, by index.
    Lock(u32),
    /// A condition variable.
    Condition(u32),
    Barrier(u32),
    /// A resume by another task.
    Resume,
    Semaphore(u32),
    ChannelSpace(u32),
    ChannelData(u32),
    /// To be served on a list.
    ListServed(u32),
    /// A task to appear on a list.
    ListEntry(u32),
    /// Tasks that begin with it.
    Line,
    /// Exits of tasks it created.
    Join,
}

/// A task.
pub struct Task {
    /// Where it is in its life.
    pub(crate) state: State,
    /// CPU it is assigned to: where it runs, is queued, or ran last.
    pub(crate) cpu: CpuId,
    /// Index into the table of CPU sets: where it may run at present (`cpus_ptr`).
    pub(crate) restriction: u32,
    /// What it asked for, of which its group's cpuset may leave less (`user_cpus_ptr`).
    pub(crate) asked_restriction: u32,
    /// How often it has disabled migration and not enabled it since (`migration_disabled`).
    pub(crate) migration_disabled: u16,
    /// It is on its way out (`PF_EXITING`).
    pub(crate) exiting: bool,
    /// While `restriction` is the CPU that it stays on for that: the one that it has otherwise (`cpus_mask`).
    pub(crate) kept_restriction: Option<u32>,
    pub(crate) kernel: KernelMode,
    pub(crate) nice: i8,
    pub(crate) policy: Policy,
    /// Slice request; 0 = the scheduler's default.
    pub(crate) slice_ns: u64,
    /// What it asks for of its CPU's speed.
    pub(crate) util_clamp: UtilClamp,
    /// How late its timers may be, if it says so itself.
    pub(crate) timer_slack_ns: Option<u64>,
    /// Address space.
    pub(crate) process: u32,
    pub(crate) application: u32,
    /// Task group, if any.
    pub(crate) group: Option<u32>,
    /// Cache group, if any.
    pub(crate) cache_group: Option<u32>,
    pub(crate) template: TaskTemplateId,
    /// A thread of the kernel itself.
    pub(crate) kernel_thread: bool,
    /// New, and waits for those that begin with it.
    pub(crate) in_line: bool,
    /// Which of its template's instances this is.
    pub(crate) instance: u32,
    pub(crate) parent: Option<TaskId>,
    /// The launcher that created it, if that exists.
    pub(crate) launcher: Option<TaskId>,

    pub(crate) program: ProgramId,
    pub(crate) pc: u32,
    pub(crate) stage: Stage,
    pub(crate) activity: Activity,
    /// Nanoseconds left of the activity, at nominal speed for work.
    pub(crate) remaining_ns: u64,
    /// Kernel time of the system call that comes after the activity, or of the present one.
    pub(crate) syscall_ns: u64,
    pub(crate) loops: [u64; warmcore_workload::Program::MAX_LOOP_DEPTH],
    pub(crate) loop_depth: u8,
    /// While it carries out a request: the program and the step to which it returns, where to record it, and since when.
    pub(crate) caller: Option<(ProgramId, u32)>,
    pub(crate) request: Option<(RecorderId, u64)>,
    /// What it draws times from, and the last one.
    pub(crate) draws: Draws,
    pub(crate) drawn_ns: u64,
    pub(crate) waiting_for: WaitReason,
    /// The futex that it sleeps in, with the value that it expected there; known where somebody watches.
    pub(crate) in_futex: Option<(u64, u32)>,
    /// It blocked last for I/O (`in_iowait`); known where there are frequencies.
    pub(crate) in_iowait: bool,
    /// Invalidates timers that are still in the event queue.
    pub(crate) timer_generation: u32,
    /// When a task on a list was served.
    pub(crate) served_ns: u64,
    pub(crate) clocks: [u64; 4],
    /// Exits of children not yet joined.
    pub(crate) exited_children: u32,
    /// Why it was placed where it is, from the choice of its CPU to the wakeup event.
    pub(crate) place_reason: Option<PlaceReason>,
    /// CPU it last ran on, to charge a migration once; `None` before the first run.
    pub(crate) last_ran: Option<CpuId>,

    /// Until when the CPU on which it blocked last is still switching away from it (`on_cpu`).
    pub(crate) on_cpu_until_ns: u64,
    /// When it was switched in, while running.
    pub(crate) switched_in_ns: u64,
    pub(crate) started_ns: u64,
    /// When it first had a CPU: its timers count from there, as a program's own do.
    pub(crate) began_ns: u64,
    pub(crate) exited_ns: Option<u64>,
    /// Time on CPU up to the last switch-out.
    pub(crate) cpu_time_ns: u64,
    /// Work and CPU time its program asked for and got.
    pub(crate) progress_ns: u64,
    /// Of that, busy waiting.
    pub(crate) spin_ns: u64,
    /// What its work took longer beside busy siblings, where memory is not modelled.
    pub(crate) smt_ns: u64,
    /// See [`TaskOutcome::pace_ns`](warmcore_trace::TaskOutcome::pace_ns).
    pub(crate) pace_ns: i64,
    /// Asleep until a time came, and since when.
    pub(crate) slept_ns: u64,
    pub(crate) slept_from_ns: u64,
}

impl Task {
    /// A task before anything has happened to it: of nice 0, no group, alone in process 0.
    pub(crate) fn new(
        template: TaskTemplateId,
        instance: u32,
        program: ProgramId,
        cpu: CpuId,
        started_ns: u64,
        draws: Draws,
    ) -> Self {
        Self {
            state: State::New,
            cpu,
            restriction: 0,
            asked_restriction: 0,
            migration_disabled: 0,
            exiting: false,
            kept_restriction: None,
            kernel: KernelMode::default(),
            nice: 0,
            policy: Policy::Normal,
            slice_ns: 0,
            util_clamp: UtilClamp::NONE,
            timer_slack_ns: None,
            process: 0,
            application: 0,
            group: None,
            cache_group: None,
            template,
            kernel_thread: false,
            in_line: false,
            instance,
            parent: None,
            launcher: None,
            program,
            pc: 0,
            stage: Stage::Begin,
            activity: Activity::Advance,
            remaining_ns: 0,
            syscall_ns: 0,
            loops: [0; warmcore_workload::Program::MAX_LOOP_DEPTH],
            loop_depth: 0,
            caller: None,
            request: None,
            draws,
            drawn_ns: 0,
            waiting_for: WaitReason::None,
            in_futex: None,
            in_iowait: false,
            timer_generation: 0,
            served_ns: 0,
            clocks: [0; 4],
            exited_children: 0,
            place_reason: None,
            last_ran: None,
            on_cpu_until_ns: 0,
            switched_in_ns: 0,
            started_ns,
            began_ns: started_ns,
            exited_ns: None,
            cpu_time_ns: 0,
            progress_ns: 0,
            spin_ns: 0,
            smt_ns: 0,
            pace_ns: 0,
            slept_ns: 0,
            slept_from_ns: 0,
        }
    }

    /// Whether it waits actively.
    pub(crate) fn is_spinning(&self) -> bool {
        matches!(self.activity, Activity::Spin | Activity::SpinUntil)
    }

    /// Where it is in its life.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it is a thread of the kernel itself (`PF_KTHREAD`), which has no address space.
    #[inline]
    pub fn is_kernel_thread(&self) -> bool {
        self.kernel_thread
    }

    /// CPU it is assigned to: where it runs, is queued, or ran last.
    #[inline]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Whether it is on its way out (`PF_EXITING`).
    #[inline]
    pub fn is_exiting(&self) -> bool {
        self.exiting
    }

    /// How often it has disabled migration and not enabled it since (`migration_disabled`); with any it stays on its CPU.
    #[inline]
    pub fn migration_disabled(&self) -> u16 {
        self.migration_disabled
    }

    /// Whether [`Core::allowed`](crate::Core::allowed) is the one CPU that it stays on with migration disabled: from its first switch on.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.kept_restriction.is_some()
    }

    /// Nice value, −20..=19.
    #[inline]
    pub fn nice(&self) -> i8 {
        self.nice
    }

    /// Scheduling policy.
    #[inline]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Requested slice in nanoseconds, or 0 for the scheduler's default.
    #[inline]
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// Task that forked it; none if the launcher did.
    #[inline]
    pub fn parent(&self) -> Option<TaskId> {
        self.parent
    }

    /// The launcher that created it, where launchers exist as tasks.
    pub fn launcher(&self) -> Option<TaskId> {
        self.launcher
    }

    /// Process it belongs to (`mm`), numbered from 0.
    #[inline]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Application it belongs to, numbered from 0: a session of its own (`setsid`).
    #[inline]
    pub fn application(&self) -> u32 {
        self.application
    }

    /// Task group it was put in (cgroup with the cpu controller), if any: index into [`Core::task_groups`](crate::Core::task_groups).
    #[inline]
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Threads with which a cache-aware policy is to keep it near a common cache, numbered densely from 0: those of its process unless
    /// somebody has formed another group; `None` if it is to be kept with nobody.
    #[inline]
    pub fn cache_group(&self) -> Option<u32> {
        self.cache_group
    }
}
