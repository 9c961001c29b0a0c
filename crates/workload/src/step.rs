//! Facts about single steps that several parts need: their names, what they refer to, and whether they let time pass.

use crate::{Affinity, Distribution, Drawn, Step};

/// What is known of a step by its kind.
struct Facts {
    name: &'static str,
    works: bool,
    lets_time_pass: bool,
    blocks: bool,
}

impl Facts {
    /// A step that is done at once.
    const fn instant(name: &'static str) -> Self {
        Self { name, works: false, lets_time_pass: false, blocks: false }
    }

    /// A step that takes CPU time, if there is any to take.
    const fn work(name: &'static str, lets_time_pass: bool) -> Self {
        Self { name, works: true, lets_time_pass, blocks: false }
    }

    /// A step in which the task may leave its CPU and come back later.
    const fn wait(name: &'static str, lets_time_pass: bool) -> Self {
        Self { name, works: false, lets_time_pass, blocks: true }
    }

    /// A step that works and may wait on the way.
    const fn transfer(name: &'static str) -> Self {
        Self { name, works: true, lets_time_pass: true, blocks: true }
    }

    /// A step after which there is none.
    const fn end(name: &'static str) -> Self {
        Self { name, works: false, lets_time_pass: true, blocks: false }
    }
}

impl Step {
    /// Most bytes that a [`Step::Map`] has mapped at once: real threads fill them.
    pub const MOST_MAPPED_BYTES: u64 = 1 << 30;

    const fn facts(&self) -> Facts {
        match self {
            Step::Run { work_ns } => Facts::work("run", *work_ns > 0),
            Step::RunTime { cpu_ns } => Facts::work("runtime", *cpu_ns > 0),
            Step::Sleep { duration_ns } => Facts::wait("sleep", *duration_ns > 0),
            Step::Timer { period_ns, .. } => Facts::wait("timer", *period_ns > 0),
            Step::Lock(_) | Step::LockShared(_) => Facts::wait("lock", false),
            Step::Unlock(_) => Facts::instant("unlock"),
            Step::Wait { .. } => Facts::wait("wait", true),
            Step::Signal(_) => Facts::instant("signal"),
            Step::Broadcast(_) => Facts::instant("broad"),
            Step::SignalAndWait { .. } => Facts::wait("sync", true),
            Step::Barrier(_) => Facts::wait("barrier", true),
            Step::Suspend => Facts::wait("suspend", true),
            Step::Resume(_) => Facts::instant("resume"),
            Step::SemPost(_) => Facts::instant("sem_post"),
            Step::SemWait(_) | Step::SemTake { .. } => Facts::wait("sem_wait", true),
            Step::Submit { .. } => Facts::instant("submit"),
            Step::Work { .. } => Facts::transfer("work"),
            Step::Send { .. } => Facts::transfer("send"),
            Step::Receive { .. } => Facts::transfer("receive"),
            Step::Enlist { .. } => Facts::wait("enlist", true),
            Step::Serve(_) => Facts::wait("serve", true),
            Step::Fork(_) => Facts::instant("fork"),
            Step::Join { .. } => Facts::wait("join", true),
            Step::Yield => Facts::instant("yield"),
            Step::SetAffinity(_) => Facts::instant("affinity"),
            Step::MigrateDisable => Facts::instant("migrate_disable"),
            Step::MigrateEnable => Facts::instant("migrate_enable"),
            Step::IoWait => Facts::instant("iowait"),
            Step::Kernel(step) => Facts::instant(step.name()),
            Step::SetNice(_) => Facts::instant("nice"),
            Step::SetPolicy(_) => Facts::instant("policy"),
            Step::SetSlice { .. } => Facts::instant("slice"),
            Step::SetUtilClamp(_) => Facts::instant("util_min, util_max"),
            Step::SetGroup(_) => Facts::instant("taskgroup"),
            Step::Memory { .. } => Facts::work("memory", false),
            Step::Chase { hops, .. } => Facts::work("chase", *hops > 0),
            Step::FirstTouch { bytes } => Facts::work("first_touch_bytes", *bytes > 0),
            Step::Map { .. } => Facts::transfer("map_bytes"),
            Step::IoRun { bytes } => Facts::work("iorun", *bytes > 0),
            Step::StartClock { .. } => Facts::instant("start_clock"),
            Step::RecordClock { .. } => Facts::instant("record_clock"),
            Step::RecordSince { .. } => Facts::instant("record_since_ns"),
            Step::Phase(_) => Facts::instant("phase"),
            Step::LoopStart { .. } => Facts::instant("loop"),
            Step::LoopEnd { .. } => Facts::instant("end of loop"),
            Step::Draw { what, from } => {
                let takes_time = match from {
                    Distribution::Constant { ns } | Distribution::Uniform { to_ns: ns, .. } => *ns > 0,
                    _ => true,
                };
                match what {
                    Drawn::Work => Facts::work("run", takes_time),
                    Drawn::CpuTime => Facts::work("runtime", takes_time),
                    Drawn::Sleep | Drawn::Arrival { .. } => Facts::wait("sleep", takes_time),
                }
            }
            Step::Exit => Facts::end("exit"),
            Step::Stop => Facts::end("stop"),
        }
    }

    /// The step's word in messages and in step lists: rt-app's event name where there is one.
    pub const fn name(&self) -> &'static str {
        self.facts().name
    }

    /// Whether the step takes CPU time by itself, or hands a message over.
    pub const fn works(&self) -> bool {
        self.facts().works
    }

    /// Whether the step takes time of its own, may block, or ends the task. The others can follow each other without
    /// end at one instant.
    pub(crate) const fn lets_time_pass(&self) -> bool {
        self.facts().lets_time_pass
    }

    /// Whether a task may leave its CPU in the step and come back later, other than by preemption or yielding.
    pub const fn blocks(&self) -> bool {
        self.facts().blocks
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
