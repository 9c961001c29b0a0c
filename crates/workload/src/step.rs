//! Facts about single steps that several parts need: their names, what they refer to, and whether they let time pass.

use crate::{Affinity, Distribution, Drawn, KernelStep, Step};

impl Step {
    /// The step's word in messages and in step lists: rt-app's event name where there is one.
    pub const fn name(&self) -> &'static str {
        match self {
            Step::Run { .. } => "run",
            Step::RunTime { .. } => "runtime",
            Step::Sleep { .. } => "sleep",
            Step::Timer { .. } => "timer",
            Step::Lock(_) | Step::LockShared(_) => "lock",
            Step::Unlock(_) => "unlock",
            Step::Wait { .. } => "wait",
            Step::Signal(_) => "signal",
            Step::Broadcast(_) => "broad",
            Step::SignalAndWait { .. } => "sync",
            Step::Barrier(_) => "barrier",
            Step::Suspend => "suspend",
            Step::Resume(_) => "resume",
            Step::SemPost(_) => "sem_post",
            Step::SemWait(_) | Step::SemTake { .. } => "sem_wait",
            Step::Submit { .. } => "submit",
            Step::Work { .. } => "work",
            Step::Send { .. } => "send",
            Step::Receive { .. } => "receive",
            Step::Enlist { .. } => "enlist",
            Step::Serve(_) => "serve",
            Step::Fork(_) => "fork",
            Step::Join { .. } => "join",
            Step::Yield => "yield",
            Step::SetAffinity(_) => "affinity",
            Step::MigrateDisable => "migrate_disable",
            Step::MigrateEnable => "migrate_enable",
            Step::IoWait => "iowait",
            Step::Kernel(step) => step.name(),
            Step::SetNice(_) => "nice",
            Step::SetPolicy(_) => "policy",
            Step::SetSlice { .. } => "slice",
            Step::SetUtilClamp(_) => "util_min, util_max",
            Step::SetGroup(_) => "taskgroup",
            Step::Memory { .. } => "memory",
            Step::Chase { .. } => "chase",
            Step::FirstTouch { .. } => "first_touch_bytes",
            Step::IoRun { .. } => "iorun",
            Step::StartClock { .. } => "start_clock",
            Step::RecordClock { .. } => "record_clock",
            Step::RecordSince { .. } => "record_since_ns",
            Step::Phase(_) => "phase",
            Step::LoopStart { .. } => "loop",
            Step::LoopEnd { .. } => "end of loop",
            Step::Draw { what: Drawn::Work, .. } => "run",
            Step::Draw { what: Drawn::CpuTime, .. } => "runtime",
            Step::Draw { what: Drawn::Sleep | Drawn::Arrival { .. }, .. } => "sleep",
            Step::Exit => "exit",
            Step::Stop => "stop",
        }
    }

    /// Whether the step takes CPU time by itself, or hands a message over.
    #[must_use]
    pub const fn works(&self) -> bool {
        matches!(
            self,
            Step::Run { .. }
                | Step::RunTime { .. }
                | Step::Memory { .. }
                | Step::Chase { .. }
                | Step::FirstTouch { .. }
                | Step::IoRun { .. }
                | Step::Send { .. }
                | Step::Receive { .. }
                | Step::Work { .. }
                | Step::Draw { what: Drawn::Work | Drawn::CpuTime, .. }
        )
    }

    /// Whether the step takes time of its own, may block, or ends the task. The others can follow each other without
    /// end at one instant.
    pub(crate) const fn lets_time_pass(&self) -> bool {
        match self {
            Step::Run { work_ns: ns }
            | Step::RunTime { cpu_ns: ns }
            | Step::Sleep { duration_ns: ns }
            | Step::Timer { period_ns: ns, .. }
            | Step::Chase { hops: ns, .. }
            | Step::FirstTouch { bytes: ns }
            | Step::IoRun { bytes: ns }
            | Step::Draw { from: Distribution::Constant { ns } | Distribution::Uniform { to_ns: ns, .. }, .. } => {
                *ns > 0
            }
            Step::Lock(_)
            | Step::LockShared(_)
            | Step::Unlock(_)
            | Step::Signal(_)
            | Step::Broadcast(_)
            | Step::Resume(_)
            | Step::SemPost(_)
            | Step::Submit { .. }
            | Step::Fork(_)
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
            | Step::Memory { .. }
            | Step::StartClock { .. }
            | Step::RecordClock { .. }
            | Step::RecordSince { .. }
            | Step::Phase(_)
            | Step::LoopStart { .. }
            | Step::LoopEnd { .. } => false,
            Step::Wait { .. }
            | Step::SignalAndWait { .. }
            | Step::Barrier(_)
            | Step::Suspend
            | Step::SemWait(_)
            | Step::SemTake { .. }
            | Step::Work { .. }
            | Step::Send { .. }
            | Step::Receive { .. }
            | Step::Enlist { .. }
            | Step::Serve(_)
            | Step::Join { .. }
            | Step::Draw { .. }
            | Step::Exit
            | Step::Stop => true,
        }
    }

    /// Whether a task may leave its CPU in the step and come back later, other than by preemption or yielding.
    #[must_use]
    pub const fn blocks(&self) -> bool {
        match self {
            Step::Sleep { .. }
            | Step::Draw { what: Drawn::Sleep | Drawn::Arrival { .. }, .. }
            | Step::Timer { .. }
            | Step::Lock(_)
            | Step::LockShared(_)
            | Step::Wait { .. }
            | Step::SignalAndWait { .. }
            | Step::Barrier(_)
            | Step::Suspend
            | Step::SemWait(_)
            | Step::SemTake { .. }
            | Step::Work { .. }
            | Step::Send { .. }
            | Step::Receive { .. }
            | Step::Enlist { .. }
            | Step::Serve(_)
            | Step::Join { .. } => true,
            Step::Run { .. }
            | Step::RunTime { .. }
            | Step::Draw { .. }
            | Step::Unlock(_)
            | Step::Signal(_)
            | Step::Broadcast(_)
            | Step::Resume(_)
            | Step::SemPost(_)
            | Step::Submit { .. }
            | Step::Fork(_)
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
            | Step::Memory { .. }
            | Step::Chase { .. }
            | Step::FirstTouch { .. }
            | Step::IoRun { .. }
            | Step::StartClock { .. }
            | Step::RecordClock { .. }
            | Step::RecordSince { .. }
            | Step::Phase(_)
            | Step::LoopStart { .. }
            | Step::LoopEnd { .. }
            | Step::Exit
            | Step::Stop => false,
        }
    }

    /// Whether the step may be a wait for I/O: a sleep, or a wait for another task that does the device's part.
    pub(crate) const fn may_wait_for_io(&self) -> bool {
        match self {
            Step::Sleep { duration_ns } => *duration_ns > 0,
            Step::Draw { what: Drawn::Sleep | Drawn::Arrival { .. }, .. }
            | Step::Timer { .. }
            | Step::SemWait(_)
            | Step::SemTake { .. }
            | Step::Receive { .. } => true,
            _ => false,
        }
    }

    /// The durations in the step, in nanoseconds; 0 where there is none.
    pub(crate) const fn longest_duration_ns(&self) -> u64 {
        match self {
            Step::Run { work_ns: ns }
            | Step::RunTime { cpu_ns: ns }
            | Step::Sleep { duration_ns: ns }
            | Step::Timer { period_ns: ns, .. }
            | Step::SetSlice { slice_ns: ns } => *ns,
            _ => 0,
        }
    }
}

impl KernelStep {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Enter, Self::Exit, Self::PreemptDisable, Self::PreemptEnable, Self::CondResched, Self::MightSleep];

    /// Its word in step lists.
    pub const fn name(self) -> &'static str {
        match self {
            KernelStep::Enter => "kernel_enter",
            KernelStep::Exit => "kernel_exit",
            KernelStep::PreemptDisable => "preempt_disable",
            KernelStep::PreemptEnable => "preempt_enable",
            KernelStep::CondResched => "cond_resched",
            KernelStep::MightSleep => "might_sleep",
        }
    }
}

impl Affinity {
    /// Whether it names no CPU at all.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Affinity::All => false,
            Affinity::OsCpus(list) | Affinity::OsNodes(list) => list.is_empty(),
            Affinity::Cpus(set) => set.is_empty(),
        }
    }
}
