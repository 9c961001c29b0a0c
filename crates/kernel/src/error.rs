//! What can go wrong in a run.

use thiserror::Error;
use warmcore_topology::CpuId;
use warmcore_workload::Reservation;

use crate::event_queue::Class;

/// The experiment does not fit together.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)] // messages have the fields
pub enum SetupError {
    #[error("task `{task}` may run on {wanted}, of which the machine has none online (its CPUs are {online})")]
    NoAllowedCpu { task: String, wanted: String, online: String },
    #[error("\"{parameter}\" has CPU {cpu}, which the machine does not have (its CPUs are {online})")]
    IsolatedCpu { parameter: &'static str, cpu: u32, online: String },
    #[error("\"{parameter}\" has all CPUs of the machine, of which the kernel keeps one; leave one out")]
    AllIsolated { parameter: &'static str },
    #[error("CPUs that go offline are not modelled beside \"isolcpus\"; leave out one of the two")]
    IsolatedHotplug,
    #[error(
        "task group `{group}` has CPU {cpu} in \"cpuset_cpus\", which the machine does not have (its CPUs are {online})"
    )]
    CpusetCpu { group: String, cpu: u32, online: String },
    #[error(
        "task `{task}` may use none of the CPUs in \"cpuset_cpus\" of its task group `{group}` or one above: the kernel would refuse its mask with \
         EINVAL; change one of the two"
    )]
    OutsideCpuset { task: String, group: String },
    #[error("task `{task}` is to start on cpu{cpu}, which it cannot use on this machine")]
    BadStartCpu { task: String, cpu: u32 },
    #[error(
        "task `{task}` is of SCHED_DEADLINE and bound to some of the CPUs: the kernel would refuse that with {errno}, as its \
         reservations are of the whole machine; leave its CPUs out, or use SCHED_FIFO"
    )]
    /// `EPERM` of a bound task that becomes one (`sched_setattr`), `EBUSY` of one that is bound later (`sched_setaffinity`).
    BoundDeadline { task: String, errno: &'static str },
    #[error(
        "tasks of SCHED_DEADLINE reserve {:.5} CPUs together, and {:.5} can be reserved here (each CPU's capacity less the fair server's 5 % of a full CPU): \
         the kernel would refuse one of them with EBUSY; reserve less, or take more CPUs",
        *.asked as f64 / Reservation::WHOLE_CPU as f64, *.admitted as f64 / Reservation::WHOLE_CPU as f64
    )]
    /// In units of [`Reservation::WHOLE_CPU`].
    DeadlineBandwidth { asked: u64, admitted: u64 },
    #[error("`{0}` is a program, whose threads are real ones")]
    Command(String),
    #[error("the workload has no task that exists at its start")]
    NoTasks,
    #[error("{action}: no task and no process of the workload is called `{name}`")]
    NobodyCalled { action: String, name: String },
    #[error("{action}: {problem}")]
    Hotplug { action: String, problem: HotplugProblem },
    #[error("the workload is not consistent: {0}")]
    Workload(String),
}

/// Why a CPU cannot go offline or come online.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)] // messages have the fields
pub enum HotplugProblem {
    #[error("the machine has no such CPU (its CPUs are {cpus})")]
    NoCpu { cpus: String },
    #[error("it is the last CPU that is online, which the kernel refuses with EBUSY; keep one")]
    LastCpu,
    #[error("it is online already; take it offline before")]
    Online,
    #[error("it is offline already; bring it online before")]
    Offline,
    #[error("the kernel refuses with EBUSY, for deadline tasks: {0}")]
    Deadlines(Box<SetupError>),
}

/// Who ended a sched_ext program, and whether for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndedBy {
    /// It has asked for it.
    Itself,
    /// The kernel, which asks its loader to start it again: a CPU went offline or came online.
    Kernel,
    /// A fault, which the kernel has found or the program has told of.
    Fault,
}

/// A run that could not be finished.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum SimulationError {
    #[error("`{scheduler}` runs on a real kernel only")]
    NotSimulated { scheduler: String },
    #[error("`{scheduler}` compares which cache sets tasks used lately, which only exact memory records")]
    NoSets { scheduler: String },
    #[error("under `{scheduler}` no CPU can go offline: {reason}")]
    NoHotplug { scheduler: String, reason: &'static str },
    #[error(
        "`{scheduler}` has a frequency governor, but machine `{machine}` states no frequencies to choose from: add `[[core_kind]]` to its file, or leave `governor` out"
    )]
    NoFrequencies { scheduler: String, machine: String },
    #[error("deadlock at {} ms: every task that is left waits for another\n{}", *.time_ns as f64 / 1e6, .waits.join("\n"))]
    Deadlock { time_ns: u64, waits: Vec<String> },
    #[error("task `{task}` executed {steps} steps at {} ms without letting time pass: its program loops without end", *.time_ns as f64 / 1e6)]
    NoProgress { task: String, steps: u32, time_ns: u64 },
    #[error("task `{task}` at {} ms: {message}", *.time_ns as f64 / 1e6)]
    Program { task: String, time_ns: u64, message: String },
    #[error("{action}: no task of that name used a CPU in the {window_ms} ms before")]
    NobodyRan { action: String, window_ms: u64 },
    #[error("the scheduler broke a rule at {time_ns} ns on {cpu}, in the event `{event}`: {message}")]
    Scheduler { time_ns: u64, cpu: CpuId, event: &'static str, message: String },
    #[error("the trial is invalid, `{program}` did not schedule to the end: {reason}")]
    /// `dump`: what it left, CPUs and runnable tasks, and what it said of them and printed.
    Ejected { program: String, by: EndedBy, reason: String, dump: String },
    #[error("invariant broken at {time_ns} ns: {message}")]
    Invariant { time_ns: u64, message: String },
    /// The machine's caches cannot be modelled.
    #[error(transparent)]
    Memory(#[from] warmcore_memory::HierarchyError),
    /// The exact level cannot simulate the machine or the tasks' memory.
    #[error(transparent)]
    ExactMemory(#[from] warmcore_memory::exact::ExactError),
    #[error("more than {limit} tasks were created; a fork loop?")]
    TooManyTasks { limit: usize },
    #[error("the trace could not be stored: {0}")]
    Sink(#[from] std::io::Error),
    #[error("interrupted at {} ms of simulated time", *.time_ns as f64 / 1e6)]
    Interrupted { time_ns: u64 },
}

impl SimulationError {
    /// The same, naming the event in which it came up.
    pub(crate) fn during(self, class: Class) -> Self {
        match self {
            Self::Scheduler { time_ns, cpu, message, .. } => {
                Self::Scheduler { time_ns, cpu, event: class.name(), message }
            }
            other => other,
        }
    }
}
