//! Whether a workload can be run at all: ids in range, loops that match, programs that let time pass, locks used in
//! order. Everything found here would otherwise hang or corrupt a run.
//!
//! It does not look for deadlocks between tasks: those depend on the machine and the scheduler, and are reported by
//! whoever runs the workload.

mod locks;
mod profiles;
mod structure;
mod time;

use crate::{MAX_DURATION_NS, MAX_GROUP_DEPTH, Program, ProgramId, Step, TaskTemplateId, Workload, format_duration};

/// Most tasks a workload may start with. More would not fit the memory of any present computer as threads.
pub const MAX_TASKS: u64 = 1_000_000;

/// Most iterations of a loop in which no time passes.
pub const MAX_INSTANT_ITERATIONS: u64 = 100_000;

/// Why a workload cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct CheckError {
    /// Where: the task, and the step in its program.
    pub place: String,
    /// The step, if it is one: program and index.
    pub step: Option<(ProgramId, usize)>,
    /// What is wrong.
    pub problem: CheckProblem,
}

/// What is wrong with a workload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum CheckProblem {
    #[error("it refers to {what} number {index}, but there are {count}")]
    UnknownId { what: &'static str, index: usize, count: usize },
    #[error(
        "the {what} \"{first}\" and \"{second}\" would be \"{}\" in the names of measures; rename one",
        crate::as_measure_name(first)
    )]
    MeasuredAlike { what: &'static str, first: String, second: String },
    /// Nothing can be drawn from a distribution.
    #[error(transparent)]
    Distribution(#[from] crate::DistributionError),
    #[error("its loop has no matching other end")]
    LoopMismatch,
    #[error("loops are nested {depth} deep, at most {max} are possible; unroll one", max = Program::MAX_LOOP_DEPTH)]
    LoopTooDeep { depth: usize },
    #[error("the loop is empty; remove it or give it something to do")]
    LoopEmpty,
    #[error("the loop never lets time pass: nothing in it runs, sleeps or blocks; add a run, sleep, timer or wait")]
    LoopNeverLetsTimePass,
    #[error("tasks create each other without end and no time passes: {}", names.join(" forks "))]
    ForkCycle {
        /// The templates on the cycle, first one repeated at the end.
        names: Vec<String>,
    },
    #[error("lock \"{lock}\" is not held here; put a lock before it")]
    NotHeld { lock: String },
    #[error(
        "lock \"{lock}\" is already held here, so the task would wait for itself; unlock it before, also in a loop"
    )]
    AlreadyHeld { lock: String },
    #[error("lock \"{lock}\" has no mode \"read\"; give it the kind \"rwsem\" under \"latches\"")]
    NotShared { lock: String },
    #[error("lock \"{lock}\" is the kernel's, which a task takes in the kernel only; put a \"kernel_enter\" before it")]
    LockedOutsideKernel { lock: String },
    #[error(
        "taking lock \"{lock}\" may sleep, which a task with preemption disabled must not; put a \"preempt_enable\" before it"
    )]
    LockedWhileAtomic { lock: String },
    #[error("lock \"{lock}\" is the kernel's and still held at the return to user mode; put an unlock before it")]
    LeavesKernelWithLock { lock: String },
    #[error("lock \"{lock}\" is the kernel's, and conditions are for mutexes of user space; name one of those")]
    WaitsWithLockOfKernel { lock: String },
    #[error("barrier \"{barrier}\" waits for {participants} tasks, but only {tasks} use it; name as many as there are")]
    BarrierNeverOpens { barrier: String, participants: u32, tasks: u64 },
    #[error("barrier \"{barrier}\" has no participants; tasks made by a fork cannot be counted, so state the number")]
    BarrierForNobody { barrier: String },
    #[error("it waits for the exit of tasks it created, but its program creates none")]
    JoinWithoutFork,
    #[error("\"join\" waits for 0 tasks; state how many of those that it created must exit")]
    JoinOfNobody,
    #[error("\"map_bytes\" maps {bytes} bytes; 1 to {most} (1 GiB) are possible", most = Step::MOST_MAPPED_BYTES)]
    MappedBytes { bytes: u64 },
    #[error("\"work\" on semaphore \"{semaphore}\" takes 0 requests; state how many all tasks together take")]
    NoRequests { semaphore: String },
    #[error("program {program} is a request and has the step \"{step}\"; requests have no loop, no work and no join")]
    NotInRequest { program: usize, step: &'static str },
    #[error(
        "semaphore \"{semaphore}\" holds requests: only \"submit\" and \"work\" may use it, and it is empty at the start; use another one"
    )]
    MixedQueue { semaphore: String },
    #[error("a message of {bytes} bytes never fits channel \"{channel}\", which holds {capacity_bytes}")]
    MessageTooBig { channel: String, bytes: u32, capacity_bytes: u64 },
    #[error("a message must have at least one byte")]
    MessageEmpty,
    #[error("there is no clock {slot}; tasks have clocks 0 to 3")]
    NoSuchClock { slot: u8 },
    #[error("nice {nice} is out of range −20..=19")]
    NiceOutOfRange { nice: i8 },
    /// A policy with parameters that no kernel accepts.
    #[error(transparent)]
    Policy(#[from] crate::PolicyError),
    #[error(
        "a SCHED_DEADLINE task may create none: its fork would fail with EAGAIN; let a task of another policy do that"
    )]
    DeadlineForks,
    #[error("migration is not disabled here; put a \"migrate_disable\" before it, in the same pass of the same loop")]
    MigrationNotDisabled,
    #[error("it ends with migration disabled; put a \"migrate_enable\" before it")]
    MigrationStaysDisabled,
    #[error("with migration disabled a task cannot change its own affinity; put a \"migrate_enable\" before it")]
    AffinityWithMigrationDisabled,
    #[error(
        "\"iowait\" says that the next step waits for I/O; put it before a sleep, timer, sem_wait or receive, not before {next}"
    )]
    NoIoWait { next: &'static str },
    #[error("the task is not in the kernel here; put a \"kernel_enter\" before it, in the same pass of the same loop")]
    NotInKernel,
    /// A second entry into the kernel, also by a fault on a page of user space.
    #[error("the task is in the kernel already; put a \"kernel_exit\" before it")]
    InKernelAlready,
    #[error("it ends in the kernel; put a \"kernel_exit\" before it")]
    StaysInKernel,
    #[error("preemption is not disabled here; put a \"preempt_disable\" before it, in the same pass of the same loop")]
    PreemptionNotDisabled,
    /// A program, a pass of a loop or a part in the kernel that leaves preemption disabled.
    #[error("it ends with preemption disabled; put a \"preempt_enable\" before it")]
    PreemptionStaysDisabled,
    #[error("the list of CPUs or nodes is empty; leave it out to allow all")]
    NoCpus,
    #[error("{ns} ns are too long; at most {MAX_DURATION_NS} ns (36 years) are possible")]
    TooLong { ns: u64 },
    #[error(
        "the warm-up of {} is not over when the run ends, after {}: nothing would be counted; \
         make the run longer or the warm-up shorter", format_duration(*warm_up_ns), format_duration(*duration_ns)
    )]
    WarmUpTooLong { warm_up_ns: u64, duration_ns: u64 },
    /// A memory profile that cannot be used.
    #[error("{message}")]
    Profile { message: String },
    #[error(
        "\"{group}\" is not a path of a task group: no part may be empty, \".\" or \"..\"; write it like \"/app/part\""
    )]
    GroupPath { group: String },
    #[error("task group \"{group}\" lies in itself, directly or by others; one of them must be at the top")]
    GroupInItself { group: String },
    #[error("the root group has no \"cpu_max\"; give one to a group below it")]
    QuotaOfRoot,
    #[error("the root group has no \"cpu_uclamp_min\" and \"cpu_uclamp_max\"; give them to a group below it")]
    ClampOfRoot,
    #[error("the root group has no \"cpu_idle\" and no \"cpuset_cpus\"; give them to a group below it")]
    FilesOfRoot,
    #[error(
        "\"cpuset_cpus\" of task group \"{group}\" is empty; name CPUs such as \"0-3\", or leave it out to have those of the group above"
    )]
    NoCpusOfGroup { group: String },
    #[error(
        "task group \"{group}\" has {what}, but no task is in it or in a group below it; name it as \"taskgroup\" of a task"
    )]
    GroupOfNobody { group: String, what: &'static str },
    #[error("task group \"{group}\" lies too deep; at most {MAX_GROUP_DEPTH} inside each other are possible")]
    GroupTooDeep { group: String },
    #[error("data group \"{group}\" has no members; name it under \"data\" of a task, or remove it")]
    DataGroupWithoutMembers { group: String },
    /// A shared class of a memory profile for a task that does not say with whom it shares.
    #[error(
        "class \"{class}\" of its memory profile is shared within a data group ({wanted}), but the task belongs to \
         {groups} others; name the group under its \"data\""
    )]
    NoDataGroup { class: String, wanted: String, groups: usize },
    /// A class of a memory profile that is larger than what it is part of.
    #[error(
        "class \"{class}\" of its memory profile has {class_bytes} bytes, data group \"{group}\" only {group_bytes}"
    )]
    ClassLargerThanData { class: String, class_bytes: u64, group: String, group_bytes: u64 },
    #[error("it has a command and tasks; a workload is one or the other")]
    CommandWithTasks,
    #[error("no task exists at the start; give at least one task an instance")]
    NothingToRun,
    #[error("{count} tasks at the start are too many; at most {MAX_TASKS} are possible")]
    TooManyTasks { count: u64 },
}

impl Workload {
    /// Checks that the workload can be run. Readers and generators of this crate return only workloads that pass.
    ///
    /// # Errors
    /// The first problem found: tables before tasks, tasks before programs, programs in table order.
    pub fn check(&self) -> Result<(), CheckError> {
        if !self.command.is_empty() {
            let refused = || CheckError::of_workload(self, CheckProblem::CommandWithTasks);
            return if self.tasks.is_empty() { Ok(()) } else { Err(refused()) };
        }
        time::check_warm_up(self)?;
        structure::check_tables(self)?;
        structure::check_tasks(self)?;
        structure::check_aggregation(self)?;
        profiles::check(self)?;
        for index in 0..self.programs.len() {
            let program = ProgramId(index as u32);
            structure::check_loops(self, program)?;
            structure::check_pairs(self, program)?;
            structure::check_io_waits(self, program)?;
            structure::check_steps(self, program)?;
            time::check_loops(self, program)?;
            locks::check(self, program)?;
        }
        structure::check_queues(self)?;
        structure::check_barriers(self)?;
        time::check_forks(self)
    }

    /// The program's steps. Only for ids that were checked.
    fn steps(&self, program: ProgramId) -> &[Step] {
        &self.programs[program.index()].steps
    }
}

impl CheckError {
    fn of_workload(workload: &Workload, problem: CheckProblem) -> Self {
        Self { place: format!("workload \"{}\"", workload.name), step: None, problem }
    }

    fn of_task(workload: &Workload, task: TaskTemplateId, problem: CheckProblem) -> Self {
        Self { place: format!("task \"{}\"", workload.tasks[task.index()].name), step: None, problem }
    }

    fn of_step(workload: &Workload, program: ProgramId, index: usize, problem: CheckProblem) -> Self {
        let owner = match workload.tasks.iter().find(|task| task.program == program) {
            Some(task) => format!("task \"{}\"", task.name),
            None => format!("program {}", program.index()),
        };
        let name = workload.steps(program)[index].name();
        Self { place: format!("{owner}, step {index} ({name})"), step: Some((program, index)), problem }
    }
}

#[cfg(test)]
mod tests;
