//! What can go wrong in a run.

use thiserror::Error;
use warmcore_topology::CpuId;
use warmcore_workload::Reservation;

use crate::event_queue::Class;

/// The experiment does not fit together.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SetupError {
    /// A task may use no CPU of the machine.
    #[error("task `{task}` may run on {wanted}, of which the machine has none online (its CPUs are {online})")]
    NoAllowedCpu {
        /// Name of the task.
        task: String,
        /// What was asked for.
        wanted: String,
        /// Online CPUs by the operating system's numbers.
        online: String,
    },
    /// A start CPU that does not exist or is not allowed.
    #[error("task `{task}` is to start on cpu{cpu}, which it cannot use on this machine")]
    BadStartCpu {
        /// Name of the task.
        task: String,
        /// The CPU asked for.
        cpu: u32,
    },
    /// A deadline task that may not use every CPU.
    #[error(
        "task `{task}` is of SCHED_DEADLINE and bound to some of the CPUs: the kernel would refuse that with {errno}, as its \
         reservations are of the whole machine; leave its CPUs out, or use SCHED_FIFO"
    )]
    BoundDeadline {
        /// Name of the task.
        task: String,
        /// The kernel's error: `EPERM` of a bound task that becomes one (`sched_setattr`), `EBUSY` of one that is bound later
        /// (`sched_setaffinity`).
        errno: &'static str,
    },
    /// More deadline bandwidth than there is.
    #[error(
        "tasks of SCHED_DEADLINE reserve {:.5} CPUs together, and {:.5} can be reserved here (each CPU's capacity less the fair server's 5 % of a full CPU): \
         the kernel would refuse one of them with EBUSY; reserve less, or take more CPUs",
        *.asked as f64 / Reservation::WHOLE_CPU as f64, *.admitted as f64 / Reservation::WHOLE_CPU as f64
    )]
    DeadlineBandwidth {
        /// What they ask for, in units of [`Reservation::WHOLE_CPU`].
        asked: u64,
        /// What can be had.
        admitted: u64,
    },
    /// A program, not a workload of tasks.
    #[error("`{0}` is a program, whose threads are real ones")]
    Command(String),
    /// Nothing would run.
    #[error("the workload has no task that exists at its start")]
    NoTasks,
    /// An action from outside is about tasks that there are none of.
    #[error("{action}: no task and no process of the workload is called `{name}`")]
    NobodyCalled {
        /// The action.
        action: String,
        /// The name.
        name: String,
    },
    /// A CPU cannot go offline or come online.
    #[error("{action}: {problem}")]
    Hotplug {
        /// The action.
        action: String,
        /// Why not.
        problem: HotplugProblem,
    },
    /// The workload's tables contradict each other.
    #[error("the workload is not consistent: {0}")]
    Workload(String),
}

/// Why a CPU cannot go offline or come online.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HotplugProblem {
    /// There is none of this number.
    #[error("the machine has no such CPU (its CPUs are {cpus})")]
    NoCpu {
        /// Those that there are, by the operating system's numbers.
        cpus: String,
    },
    /// It is the last one.
    #[error("it is the last CPU that is online, which the kernel refuses with EBUSY; keep one")]
    LastCpu,
    /// It is online.
    #[error("it is online already; take it offline before")]
    Online,
    /// It is offline.
    #[error("it is offline already; bring it online before")]
    Offline,
    /// Deadline tasks need it.
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
pub enum SimulationError {
    /// The scheduler is no model.
    #[error("`{scheduler}` runs on a real kernel only")]
    NotSimulated {
        /// As it was given.
        scheduler: String,
    },
    /// The scheduler compares cache sets, and the memory has none.
    #[error("`{scheduler}` compares which cache sets tasks used lately, which only exact memory records")]
    NoSets {
        /// As it was given.
        scheduler: String,
    },
    /// CPUs go offline or come online under a scheduler that cannot have that.
    #[error("under `{scheduler}` no CPU can go offline: {reason}")]
    NoHotplug {
        /// As it was given.
        scheduler: String,
        /// Why.
        reason: &'static str,
    },
    /// The kernel has a governor, and the machine no frequencies.
    #[error(
        "`{scheduler}` has a frequency governor, but machine `{machine}` states no frequencies to choose from: add `[[core_kind]]` to its file, or leave `governor` out"
    )]
    NoFrequencies {
        /// As it was given.
        scheduler: String,
        /// Its name.
        machine: String,
    },
    /// Every task that is left waits for another one.
    #[error("deadlock at {} ms: every task that is left waits for another\n{}", *.time_ns as f64 / 1e6, .waits.join("\n"))]
    Deadlock {
        /// When.
        time_ns: u64,
        /// Who waits for what, one line per task or group of tasks.
        waits: Vec<String>,
    },
    /// A program goes on without ever letting time pass.
    #[error("task `{task}` executed {steps} steps at {} ms without letting time pass: its program loops without end", *.time_ns as f64 / 1e6)]
    NoProgress {
        /// Name of the task.
        task: String,
        /// Steps executed at one instant.
        steps: u32,
        /// When.
        time_ns: u64,
    },
    /// A program did something impossible, such as unlocking a mutex it does not hold.
    #[error("task `{task}` at {} ms: {message}", *.time_ns as f64 / 1e6)]
    Program {
        /// Name of the task.
        task: String,
        /// When.
        time_ns: u64,
        /// What it did.
        message: String,
    },
    /// An action from outside depends on where tasks were, and none of them ran.
    #[error("{action}: no task of that name used a CPU in the {window_ms} ms before")]
    NobodyRan {
        /// The action.
        action: String,
        /// Length of the time that counts.
        window_ms: u64,
    },
    /// A scheduler issued a command that makes no sense, or lost a task.
    #[error("the scheduler broke a rule at {time_ns} ns on {cpu}, in the event `{event}`: {message}")]
    Scheduler {
        /// When.
        time_ns: u64,
        /// On which CPU's behalf.
        cpu: CpuId,
        /// What happened: a tick, a timer, a wakeup's interrupt.
        event: &'static str,
        /// Which rule.
        message: String,
    },
    /// A sched_ext program was ejected during the run, and the class below it scheduled the rest.
    #[error("the trial is invalid, `{program}` did not schedule to the end: {reason}")]
    Ejected {
        /// The program.
        program: String,
        /// Who ended it.
        by: EndedBy,
        /// Kind of exit, when, where, and what happened.
        reason: String,
        /// What it left: CPUs and runnable tasks, and what it said of them and printed.
        dump: String,
    },
    /// The simulator's own accounts do not add up.
    #[error("invariant broken at {time_ns} ns: {message}")]
    Invariant {
        /// When.
        time_ns: u64,
        /// Which one.
        message: String,
    },
    /// The machine's caches cannot be modelled.
    #[error(transparent)]
    Memory(#[from] warmcore_memory::HierarchyError),
    /// The exact level cannot simulate the machine or the tasks' memory.
    #[error(transparent)]
    ExactMemory(#[from] warmcore_memory::exact::ExactError),
    /// More tasks than a run can hold.
    #[error("more than {limit} tasks were created; a fork loop?")]
    TooManyTasks {
        /// The limit.
        limit: usize,
    },
    /// The trace could not be stored.
    #[error("the trace could not be stored: {0}")]
    Sink(#[from] std::io::Error),
    /// The caller asked to stop.
    #[error("interrupted at {} ms of simulated time", *.time_ns as f64 / 1e6)]
    Interrupted {
        /// When.
        time_ns: u64,
    },
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
