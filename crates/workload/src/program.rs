//! What tasks do: a [`Workload`] is a set of tasks, each with a program of [`Step`]s, and the objects they meet at
//! (locks, barriers, channels, …).
//!
//! A program says *what* is done, never how long the machine takes for it: the cost of a system call, of a message or
//! of a wakeup belongs to the machine. The same program is run by the simulated kernel and by real threads.

pub use crate::affinity::Affinity;
pub use crate::latch::{Latch, LatchKind};
pub use crate::objects::{Barrier, BarrierWait, Channel, ChannelKind, Semaphore};
use crate::{CpuMax, Distribution, GroupClamp, Policy, UtilClamp};

macro_rules! object_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into the workload's table of these objects.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

object_id!(
    /// Index into [`Workload::programs`].
    ProgramId
);
object_id!(
    /// Index into [`Workload::tasks`]: a task, or the template of tasks that [`Step::Fork`] creates.
    TaskTemplateId
);
object_id!(
    /// Index into [`Workload::processes`]: tasks of one process share an address space.
    ProcessId
);
object_id!(
    /// Index into [`Workload::groups`]: a task group (cgroup with the cpu controller, or an autogroup session).
    GroupId
);
object_id!(
    /// Index into [`Workload::data_groups`].
    DataGroupId
);
object_id!(
    /// A mutex.
    LockId
);
object_id!(
    /// A condition variable.
    ConditionId
);
object_id!(
    /// A barrier.
    BarrierId
);
object_id!(
    /// A counting semaphore.
    SemaphoreId
);
object_id!(
    /// A pipe or a socket pair (one direction).
    ChannelId
);
object_id!(
    /// A list on which tasks wait to be served (schbench's message thread queue).
    ListId
);
object_id!(
    /// A periodic timer: the instant of the next expiry.
    TimerId
);
object_id!(
    /// A named distribution of durations that steps record into.
    RecorderId
);

/// One step of a program. Durations are nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Work: takes `work_ns` on a CPU of capacity 1024 at nominal speed, longer on a slower one (rt-app `run`).
    Run {
        /// Nanoseconds of work at nominal speed.
        work_ns: u64,
    },
    /// Time on CPU, whatever the CPU's speed (rt-app `runtime`).
    RunTime {
        /// Nanoseconds on CPU.
        cpu_ns: u64,
    },
    /// Sleep for a duration.
    Sleep {
        /// Nanoseconds from now.
        duration_ns: u64,
    },
    /// Sleep until the timer's next expiry; does not sleep when that has passed (rt-app `timer`). The first expiry is
    /// one period after the task that uses the timer first had a CPU first, not after that first use.
    Timer {
        /// Which timer.
        timer: TimerId,
        /// Nanoseconds between expiries.
        period_ns: u64,
        /// What the next expiry is counted from after an overrun.
        mode: TimerMode,
    },
    /// Acquire a mutex, blocking; of a reader-writer semaphore, for writing.
    Lock(LockId),
    /// Acquire a reader-writer semaphore for reading, blocking.
    LockShared(LockId),
    /// Release a mutex or semaphore.
    Unlock(LockId),
    /// Release the lock, wait for the condition, acquire the lock again.
    Wait {
        /// Condition to wait for.
        condition: ConditionId,
        /// Lock held around it.
        lock: LockId,
    },
    /// Wake one waiter of a condition.
    Signal(ConditionId),
    /// Wake all waiters of a condition.
    Broadcast(ConditionId),
    /// Signal a condition, then wait for it (rt-app `sync`).
    SignalAndWait {
        /// Condition to signal and wait for.
        condition: ConditionId,
        /// Lock held around it.
        lock: LockId,
    },
    /// Wait until all participants of the barrier have arrived.
    Barrier(BarrierId),
    /// Block until another task resumes this one (rt-app `suspend`). A resume that came before is not remembered.
    Suspend,
    /// Resume all suspended tasks created from a template (rt-app `resume`).
    Resume(TaskTemplateId),
    /// Add one to a semaphore, waking a waiter.
    SemPost(SemaphoreId),
    /// Take one from a semaphore, blocking while it is zero.
    SemWait(SemaphoreId),
    /// As [`Step::SemWait`], and a clock is set to the time at which what was taken had been added; what is added first is taken first.
    /// So a sample that begins with that clock counts the time in a queue.
    SemTake {
        /// The semaphore. What it has at the start was added then.
        semaphore: SemaphoreId,
        /// Which of the task's four clocks.
        slot: u8,
    },
    /// As [`Step::SemPost`], and what is added is a request: a program that [`Step::Work`] carries out. It has neither loops nor a step
    /// [`Step::Work`].
    Submit {
        /// The queue.
        semaphore: SemaphoreId,
        /// What is to be done.
        program: ProgramId,
    },
    /// Take requests from a semaphore, the one that was added first, and carry them out, blocking while there is none, until all tasks
    /// together have taken so many.
    Work {
        /// The queue.
        semaphore: SemaphoreId,
        /// How many requests all tasks together take.
        requests: u64,
        /// Where to write how long each took, from [`Step::Submit`] to the end of its program.
        recorder: Option<RecorderId>,
    },
    /// Write a message; blocks while the channel is full.
    Send {
        /// Where to.
        channel: ChannelId,
        /// Message size.
        bytes: u32,
    },
    /// Read a message of `bytes`; blocks while fewer bytes are there.
    Receive {
        /// Where from.
        channel: ChannelId,
        /// Message size.
        bytes: u32,
    },
    /// Put this task on a list, wake the list's server if it waits, and block until served. The time from being
    /// served to running again goes to the recorder.
    Enlist {
        /// The list.
        list: ListId,
        /// Where wakeup latency is recorded.
        recorder: Option<RecorderId>,
    },
    /// Serve a list: wake every task on it; blocks while the list is empty.
    Serve(ListId),
    /// Create one task from a template; it starts at its program's first step.
    Fork(TaskTemplateId),
    /// Block until `count` more tasks created by this task have exited.
    Join {
        /// How many exits to wait for.
        count: u32,
    },
    /// `sched_yield`.
    Yield,
    /// Change this task's affinity.
    SetAffinity(Affinity),
    /// Keep this task on its CPU until the matching [`Step::MigrateEnable`]; calls nest (`migrate_disable`, `sched_pin` of FreeBSD).
    MigrateDisable,
    /// Undo one [`Step::MigrateDisable`].
    MigrateEnable,
    /// The wait that the next step is counts as one for I/O (`in_iowait`).
    IoWait,
    /// Enter or leave the kernel, or do there what decides who may preempt it.
    Kernel(KernelStep),
    /// Change this task's nice value, −20..=19.
    SetNice(i8),
    /// Change the policy of this task.
    SetPolicy(Policy),
    /// Change this task's slice request; 0 restores the default (`sched_setattr`, Linux ≥ 6.12).
    SetSlice {
        /// Requested slice.
        slice_ns: u64,
    },
    /// Change what this task asks for of its CPU's speed; what is not named stays (`sched_setattr` with `SCHED_FLAG_UTIL_CLAMP`).
    SetUtilClamp(UtilClamp),
    /// Move this task to a task group.
    SetGroup(GroupId),
    /// Memory traffic of rt-app's `mem` and of `memrun` that reads or writes: `bytes` touched in `region_bytes` with a stride.
    Memory {
        /// Bytes touched.
        bytes: u64,
        /// Size of the region they lie in.
        region_bytes: u64,
    },
    /// A chain of loads, each of which needs the one before, as rt-app's `memrun` of type `chase`: it waits for every one.
    Chase {
        /// Loads, one cache line each.
        hops: u64,
        /// Size of the region that the chain goes through, in bytes.
        region_bytes: u64,
    },
    /// So many bytes of memory are written to for the first time, page by page of 4 KiB, and given back: a fault for each page, in kernel mode.
    FirstTouch {
        /// Bytes touched; the last page counts whole.
        bytes: u64,
    },
    /// So many bytes of memory are mapped, written to page by page of 4 KiB, and unmapped, as `malloc` and `free` do with large blocks: faults as in
    /// [`Step::FirstTouch`], and two calls that take the lock of the task's address space (`mmap_lock`).
    Map {
        /// Bytes mapped; the last page counts whole. At most [`Step::MOST_MAPPED_BYTES`].
        bytes: u64,
    },
    /// Blocking device time of rt-app's `iorun`: writes of so many bytes to a null device, so CPU work only.
    IoRun {
        /// Bytes written.
        bytes: u64,
    },
    /// Remember the present time in the task's clock `slot` (0..4). Before, a clock has the time of the workload's start.
    StartClock {
        /// Which of the task's four clocks.
        slot: u8,
    },
    /// Record the time since clock `slot` was started.
    RecordClock {
        /// Which of the task's four clocks.
        slot: u8,
        /// Distribution it goes to.
        recorder: RecorderId,
    },
    /// Record the time since an instant, however late the task came to what happened then.
    RecordSince {
        /// The instant, counted from the workload's start.
        since_ns: u64,
        /// Distribution it goes to.
        recorder: RecorderId,
    },
    /// Mark the beginning of a named phase in the trace: index into [`Workload::phases`]. What the task does to memory
    /// changes if [`Task::phase_profiles`] says so.
    Phase(u32),
    /// Repeat the steps up to the matching [`Step::LoopEnd`]: `times`, or for ever if `None`. `Some(0)` skips them.
    LoopStart {
        /// Number of iterations.
        times: Option<u64>,
        /// Index of the matching `LoopEnd` in this program.
        end: u32,
    },
    /// End of a loop.
    LoopEnd {
        /// Index of the matching `LoopStart` in this program.
        start: u32,
    },
    /// Run or sleep for a time that is drawn anew each time, from the task's own stream ([`Draws`](crate::Draws)).
    Draw {
        /// What is done for so long.
        what: Drawn,
        /// What the time is drawn from.
        from: Distribution,
    },
    /// End of the task. The end of a program is an exit too.
    Exit,
    /// End of the whole workload: every task exits.
    Stop,
}

warmcore_topology::worded! {
    /// What a [`Step::Kernel`] does. From [`KernelStep::Enter`] to [`KernelStep::Exit`] a task runs in kernel mode, as in a system call or a
    /// page fault: when another task may take its CPU from it is up to the kernel's preemption model.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum KernelStep: name {
        /// Enter the kernel.
        Enter = "kernel_enter",
        /// Return to user mode.
        Exit = "kernel_exit",
        /// Nobody may preempt until the matching [`KernelStep::PreemptEnable`], as while a spinlock is held; calls nest (`preempt_disable`).
        PreemptDisable = "preempt_disable",
        /// Undo one [`KernelStep::PreemptDisable`].
        PreemptEnable = "preempt_enable",
        /// Give way if that was asked for, in kernels without full or lazy preemption (`cond_resched`).
        CondResched = "cond_resched",
        /// The same with voluntary preemption only (`might_sleep`).
        MightSleep = "might_sleep",
    }
}

/// What a [`Step::Draw`] does for the time that it draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drawn {
    /// As [`Step::Run`].
    Work,
    /// As [`Step::RunTime`].
    CpuTime,
    /// As [`Step::Sleep`].
    Sleep,
    /// Advances a clock by the time and sleeps until then; does not sleep when that has passed. So arrivals keep their rate, however
    /// late their task is woken.
    Arrival {
        /// Which of the task's four clocks.
        slot: u8,
    },
}

/// What the next expiry of a [`Step::Timer`] is counted from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerMode {
    /// After an overrun the next expiry is one period from now (rt-app default).
    Relative,
    /// Expiries stay on the grid of the first one, even after overruns.
    Absolute,
}

/// A process: an address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Name.
    pub name: String,
    /// Application it belongs to: index into [`Workload::applications`]. Each application is a session of its own
    /// (autogroup) and is reported on its own.
    pub application: u32,
}

/// A task group (cgroup with the cpu controller). The entry named `/` is the root group, that is: no group at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Path, as in rt-app's `taskgroup`.
    pub name: String,
    /// `cpu.shares`-like weight among what lies in the same group; 1024 is one nice-0 task.
    pub shares: u32,
    /// Group in which it lies; `None` at the top.
    pub parent: Option<GroupId>,
    /// Its quota of CPU time, if it has one.
    pub cpu_max: Option<CpuMax>,
    /// Bounds of what its tasks get of what they ask for of their CPUs' speed.
    pub clamp: GroupClamp,
    /// Its tasks give way to those of other groups as `SCHED_IDLE` does (`cpu.idle`); its weight is [`Group::IDLE_SHARES`] then.
    pub idle: bool,
    /// CPUs to which it confines its tasks, by the operating system's numbers (`cpuset.cpus`), in rising order; `None` for those of the group in which it lies.
    pub cpus: Option<Vec<u32>>,
}

/// Data that several tasks work on: who shares the classes of memory profiles that say so. Not used by the
/// constant-speed memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataGroup {
    /// Name.
    pub name: String,
    /// Size of the shared data.
    pub bytes: u64,
}

/// A task, or the template that [`Step::Fork`] makes tasks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Name; instances of one template are told apart by their number.
    pub name: String,
    /// Address space.
    pub process: ProcessId,
    /// What it does.
    pub program: ProgramId,
    /// How many of them exist at the start; 0 for one that only [`Step::Fork`] creates.
    pub instances: u32,
    /// Nice value at the start, −20 (most CPU time) to 19. Has no weight under [`Policy::Idle`].
    pub nice: i8,
    /// Policy at the start.
    pub policy: Policy,
    /// Where it may run at the start.
    pub affinity: Affinity,
    /// At this instant, counted from the workload's start, its affinity becomes [`Affinity::All`], as if somebody
    /// outside the workload called `sched_setaffinity` on it: the task need not run for it, and all tasks with the
    /// same value are released at one instant. It takes precedence over a [`Step::SetAffinity`] that ran before.
    pub release_ns: Option<u64>,
    /// Slice request at the start, if any.
    pub slice_ns: Option<u64>,
    /// What it asks for of its CPU's speed at the start; what is not named is its parent's.
    pub util_clamp: UtilClamp,
    /// How late its timers may be while it is no real-time task (`PR_SET_TIMERSLACK`). `None` is its parent's value, or the kernel's
    /// default. A real kernel takes 0 for that default, so 0 is 1 ns there.
    pub timer_slack_ns: Option<u64>,
    /// Task group, if any.
    pub group: Option<GroupId>,
    /// Data groups it works on.
    pub data_groups: Vec<DataGroupId>,
    /// When it is created, counted from the workload's start. A task made by [`Step::Fork`] starts at the fork.
    pub start_ns: u64,
    /// CPU its first placement starts from (`select_cpu` gets it as the parent's CPU), by dense id.
    pub start_cpu: Option<u32>,
    /// Memory profile by name: one of the workload's own, or one that is shipped; see [`Workload::profile_of`].
    pub profile: Option<String>,
    /// Memory profiles of phases: index into [`Workload::phases`], and a name as in `profile`. A phase that is not named
    /// here has the task's own.
    pub phase_profiles: Vec<(u32, String)>,
    /// Role in reports, such as `sender`; the name by default.
    pub role: String,
    /// What its threads call themselves, where that is not its name ([`Task::comm`]): names of tasks differ, those of recorded threads need not.
    pub comm: Option<String>,
}

/// A program: steps in order. Loops nest at most [`Program::MAX_LOOP_DEPTH`] deep.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// The steps.
    pub steps: Vec<Step>,
}

impl Program {
    /// Whether no step is work, or of any concern to another task.
    pub fn is_idle(&self) -> bool {
        let is_idle = |step: &Step| {
            matches!(
                step,
                Step::Sleep { .. }
                    | Step::Draw { what: Drawn::Sleep | Drawn::Arrival { .. }, .. }
                    | Step::Timer { .. }
                    | Step::Lock(_)
                    | Step::LockShared(_)
                    | Step::Unlock(_)
                    | Step::Yield
                    | Step::SetAffinity(_)
                    | Step::MigrateDisable
                    | Step::MigrateEnable
                    | Step::IoWait
                    | Step::Kernel(_)
                    | Step::SetNice(_)
                    | Step::SetPolicy(_)
                    | Step::SetSlice { .. }
                    | Step::SetUtilClamp(_)
                    | Step::SetGroup(_)
                    | Step::Phase(_)
                    | Step::LoopStart { .. }
                    | Step::LoopEnd { .. }
                    | Step::Exit
            )
        };
        self.steps.iter().all(is_idle)
    }

    /// Deepest nesting of loops.
    pub const MAX_LOOP_DEPTH: usize = 4;
}

/// What the result lines of a workload look like, and from what they are made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ResultStyle {
    /// Nothing but the common metrics.
    #[default]
    Plain,
    /// hackbench's lines: `Running in … mode with …`, then `Time: 0.123`.
    Hackbench {
        /// What hackbench prints before its `Time:` line, lines separated by line ends, without a last one. The time is
        /// the sample of the recorder called [`HACKBENCH_TIME`](crate::HACKBENCH_TIME).
        header: String,
    },
    /// schbench's tables.
    Schbench {
        /// Recorder of wakeup latencies.
        wakeup: RecorderId,
        /// Recorder of request latencies.
        request: RecorderId,
    },
    /// sysbench's statistics.
    Sysbench {
        /// Recorder of the latencies of transactions.
        transaction: RecorderId,
    },
}

/// Something in the input that is accepted but not modelled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// What it is, such as `event "iorun"`.
    pub what: String,
    /// What that means for the result.
    pub consequence: String,
    /// How often it occurred.
    pub count: u32,
}

/// Everything that runs in one experiment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Workload {
    /// Name: the file's stem or the generator's text.
    pub name: String,
    /// Names of the applications; a single file or generator is one application.
    pub applications: Vec<String>,
    /// Address spaces.
    pub processes: Vec<Process>,
    /// Tasks and templates. Start order is table order.
    pub tasks: Vec<Task>,
    /// Programs.
    pub programs: Vec<Program>,
    /// Task groups.
    pub groups: Vec<Group>,
    /// Shared data.
    pub data_groups: Vec<DataGroup>,
    /// Memory profiles of its own, beside those that are shipped.
    pub profiles: Vec<warmcore_memory::Profile>,
    /// Which threads cache-aware schedulers are to keep together.
    pub aggregation: crate::Aggregation,
    /// Names of mutexes.
    pub locks: Vec<String>,
    /// Those that have rules of their own, each at most once.
    pub latches: Vec<Latch>,
    /// Names of condition variables.
    pub conditions: Vec<String>,
    /// Barriers.
    pub barriers: Vec<Barrier>,
    /// Semaphores.
    pub semaphores: Vec<Semaphore>,
    /// Channels.
    pub channels: Vec<Channel>,
    /// Names of lists.
    pub lists: Vec<String>,
    /// Names of timers. A timer used by several tasks is one timer, unless its name begins with `unique`: then every
    /// task has one of its own under that id (rt-app's rule; see [`Workload::timer_is_private`]).
    pub timers: Vec<String>,
    /// Names of distributions.
    pub recorders: Vec<String>,
    /// Names of phases.
    pub phases: Vec<String>,
    /// How the result is printed.
    pub style: ResultStyle,
    /// End of the workload even if tasks still run; `None` waits for the last exit.
    pub duration_ns: Option<u64>,
    /// What happens so long after the start is not counted: neither in metrics nor in recorders. 0 says that everything is; `None` leaves
    /// it to who measures.
    pub warm_up_ns: Option<u64>,
    /// CPUs that go offline and come online during the run, in the order of time.
    pub hotplug: Vec<crate::Hotplug>,
    /// CPUs that the kernel keeps out of its scheduling domains from its start on (`isolcpus`), by the operating system's numbers, in rising order.
    pub isolcpus: Vec<u32>,
    /// CPUs on which a task that is alone has no ticks (`nohz_full`), in the same form.
    pub nohz_full: Vec<u32>,
    /// A program of this computer with its arguments, in place of tasks; empty for every workload that a simulator can run.
    pub command: Vec<String>,
    /// What to know before its results are trusted, a sentence each without a full stop: each verdict on it says so.
    pub notes: Vec<String>,
    /// Accepted but not modelled.
    pub warnings: Vec<Warning>,
}
