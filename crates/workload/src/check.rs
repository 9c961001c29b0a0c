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
pub enum CheckProblem {
    /// An id that no table has.
    #[error("it refers to {what} number {index}, but there are {count}")]
    UnknownId {
        /// Which table.
        what: &'static str,
        /// The id.
        index: usize,
        /// Length of the table.
        count: usize,
    },
    /// Two names that measures could not tell apart.
    #[error(
        "the {what} \"{first}\" and \"{second}\" would be \"{}\" in the names of measures; rename one",
        crate::as_measure_name(first)
    )]
    MeasuredAlike {
        /// Of what kind they are.
        what: &'static str,
        /// The first.
        first: String,
        /// The other.
        second: String,
    },
    /// Nothing can be drawn from a distribution.
    #[error(transparent)]
    Distribution(#[from] crate::DistributionError),
    /// Loop starts and ends do not pair.
    #[error("its loop has no matching other end")]
    LoopMismatch,
    /// Too many loops inside each other.
    #[error("loops are nested {depth} deep, at most {max} are possible; unroll one", max = Program::MAX_LOOP_DEPTH)]
    LoopTooDeep {
        /// Depth reached.
        depth: usize,
    },
    /// A loop without steps.
    #[error("the loop is empty; remove it or give it something to do")]
    LoopEmpty,
    /// A loop that repeats for ever, or nearly so, at one instant.
    #[error("the loop never lets time pass: nothing in it runs, sleeps or blocks; add a run, sleep, timer or wait")]
    LoopNeverLetsTimePass,
    /// Templates that create each other at one instant.
    #[error("tasks create each other without end and no time passes: {}", names.join(" forks "))]
    ForkCycle {
        /// The templates on the cycle, first one repeated at the end.
        names: Vec<String>,
    },
    /// Unlocking what the task does not hold.
    #[error("lock \"{lock}\" is not held here; put a lock before it")]
    NotHeld {
        /// The lock.
        lock: String,
    },
    /// Locking what the task holds already: it would wait for itself.
    #[error(
        "lock \"{lock}\" is already held here, so the task would wait for itself; unlock it before, also in a loop"
    )]
    AlreadyHeld {
        /// The lock.
        lock: String,
    },
    /// Reading what only one task may have.
    #[error("lock \"{lock}\" has no mode \"read\"; give it the kind \"rwsem\" under \"latches\"")]
    NotShared {
        /// The lock.
        lock: String,
    },
    /// A lock of the kernel in user mode.
    #[error("lock \"{lock}\" is the kernel's, which a task takes in the kernel only; put a \"kernel_enter\" before it")]
    LockedOutsideKernel {
        /// The lock.
        lock: String,
    },
    /// A lock that may sleep where the task may not.
    #[error(
        "taking lock \"{lock}\" may sleep, which a task with preemption disabled must not; put a \"preempt_enable\" before it"
    )]
    LockedWhileAtomic {
        /// The lock.
        lock: String,
    },
    /// A lock of the kernel that is kept in user mode.
    #[error("lock \"{lock}\" is the kernel's and still held at the return to user mode; put an unlock before it")]
    LeavesKernelWithLock {
        /// The lock.
        lock: String,
    },
    /// A condition with a lock of the kernel.
    #[error("lock \"{lock}\" is the kernel's, and conditions are for mutexes of user space; name one of those")]
    WaitsWithLockOfKernel {
        /// The lock.
        lock: String,
    },
    /// A barrier that cannot open.
    #[error("barrier \"{barrier}\" waits for {participants} tasks, but only {tasks} use it; name as many as there are")]
    BarrierNeverOpens {
        /// The barrier.
        barrier: String,
        /// Tasks it waits for.
        participants: u32,
        /// Tasks that use it.
        tasks: u64,
    },
    /// A barrier for nobody.
    #[error("barrier \"{barrier}\" has no participants; tasks made by a fork cannot be counted, so state the number")]
    BarrierForNobody {
        /// The barrier.
        barrier: String,
    },
    /// Waiting for children there cannot be.
    #[error("it waits for the exit of tasks it created, but its program creates none")]
    JoinWithoutFork,
    /// Waiting for no child.
    #[error("\"join\" waits for 0 tasks; state how many of those that it created must exit")]
    JoinOfNobody,
    /// Nobody ever takes a request.
    #[error("\"work\" on semaphore \"{semaphore}\" takes 0 requests; state how many all tasks together take")]
    NoRequests {
        /// The semaphore.
        semaphore: String,
    },
    /// A request that cannot be one.
    #[error("program {program} is a request and has the step \"{step}\"; requests have no loop, no work and no join")]
    NotInRequest {
        /// The program.
        program: usize,
        /// The step's word.
        step: &'static str,
    },
    /// Requests and others in one semaphore.
    #[error(
        "semaphore \"{semaphore}\" holds requests: only \"submit\" and \"work\" may use it, and it is empty at the start; use another one"
    )]
    MixedQueue {
        /// The semaphore.
        semaphore: String,
    },
    /// A message that never fits.
    #[error("a message of {bytes} bytes never fits channel \"{channel}\", which holds {capacity_bytes}")]
    MessageTooBig {
        /// The channel.
        channel: String,
        /// The message.
        bytes: u32,
        /// The channel's capacity.
        capacity_bytes: u64,
    },
    /// A message of nothing.
    #[error("a message must have at least one byte")]
    MessageEmpty,
    /// A clock that tasks do not have.
    #[error("there is no clock {slot}; tasks have clocks 0 to 3")]
    NoSuchClock {
        /// The slot.
        slot: u8,
    },
    /// Nice out of range.
    #[error("nice {nice} is out of range −20..=19")]
    NiceOutOfRange {
        /// The value.
        nice: i8,
    },
    /// A policy with parameters that no kernel accepts.
    #[error(transparent)]
    Policy(#[from] crate::PolicyError),
    /// A deadline task that creates others.
    #[error(
        "a SCHED_DEADLINE task may create none: its fork would fail with EAGAIN; let a task of another policy do that"
    )]
    DeadlineForks,
    /// `migrate_enable` of what is not disabled here.
    #[error("migration is not disabled here; put a \"migrate_disable\" before it, in the same pass of the same loop")]
    MigrationNotDisabled,
    /// A program, or a pass of a loop, that leaves migration disabled.
    #[error("it ends with migration disabled; put a \"migrate_enable\" before it")]
    MigrationStaysDisabled,
    /// A change of affinity by a task that stays on its CPU.
    #[error("with migration disabled a task cannot change its own affinity; put a \"migrate_enable\" before it")]
    AffinityWithMigrationDisabled,
    /// A wait for I/O that is no wait.
    #[error(
        "\"iowait\" says that the next step waits for I/O; put it before a sleep, timer, sem_wait or receive, not before {next}"
    )]
    NoIoWait {
        /// What comes next.
        next: &'static str,
    },
    /// A step of kernel mode in user mode.
    #[error("the task is not in the kernel here; put a \"kernel_enter\" before it, in the same pass of the same loop")]
    NotInKernel,
    /// A second entry into the kernel, also by a fault on a page of user space.
    #[error("the task is in the kernel already; put a \"kernel_exit\" before it")]
    InKernelAlready,
    /// A program, or a pass of a loop, that stays in the kernel.
    #[error("it ends in the kernel; put a \"kernel_exit\" before it")]
    StaysInKernel,
    /// `preempt_enable` of what is not disabled here.
    #[error("preemption is not disabled here; put a \"preempt_disable\" before it, in the same pass of the same loop")]
    PreemptionNotDisabled,
    /// A program, a pass of a loop or a part in the kernel that leaves preemption disabled.
    #[error("it ends with preemption disabled; put a \"preempt_enable\" before it")]
    PreemptionStaysDisabled,
    /// An affinity without CPUs.
    #[error("the list of CPUs or nodes is empty; leave it out to allow all")]
    NoCpus,
    /// A duration nobody can wait for.
    #[error("{ns} ns are too long; at most {MAX_DURATION_NS} ns (36 years) are possible")]
    TooLong {
        /// The duration.
        ns: u64,
    },
    /// A warm-up that is not over before the end.
    #[error(
        "the warm-up of {} is not over when the run ends, after {}: nothing would be counted; \
         make the run longer or the warm-up shorter", format_duration(*warm_up_ns), format_duration(*duration_ns)
    )]
    WarmUpTooLong {
        /// The warm-up.
        warm_up_ns: u64,
        /// The end.
        duration_ns: u64,
    },
    /// A memory profile that cannot be used.
    #[error("{message}")]
    Profile {
        /// What is wrong with it.
        message: String,
    },
    /// A path that names no place.
    #[error(
        "\"{group}\" is no path of a task group: no part may be empty, \".\" or \"..\"; write it like \"/app/part\""
    )]
    GroupPath {
        /// The group.
        group: String,
    },
    /// Groups that lie in each other.
    #[error("task group \"{group}\" lies in itself, directly or by others; one of them must be at the top")]
    GroupInItself {
        /// The group.
        group: String,
    },
    /// The root group with a quota.
    #[error("the root group has no \"cpu_max\"; give one to a group below it")]
    QuotaOfRoot,
    /// The root group with bounds of utilisation.
    #[error("the root group has no \"cpu_uclamp_min\" and \"cpu_uclamp_max\"; give them to a group below it")]
    ClampOfRoot,
    /// A weight, a quota or bounds of utilisation that are of nobody.
    #[error(
        "task group \"{group}\" has {what}, but no task is in it or in a group below it; name it as \"taskgroup\" of a task"
    )]
    GroupOfNobody {
        /// The group.
        group: String,
        /// What is stated.
        what: &'static str,
    },
    /// Too many groups inside each other.
    #[error("task group \"{group}\" lies too deep; at most {MAX_GROUP_DEPTH} inside each other are possible")]
    GroupTooDeep {
        /// The group.
        group: String,
    },
    /// Data that nobody works on.
    #[error("data group \"{group}\" has no members; name it under \"data\" of a task, or remove it")]
    DataGroupWithoutMembers {
        /// The group.
        group: String,
    },
    /// A shared class of a memory profile for a task that does not say with whom it shares.
    #[error(
        "class \"{class}\" of its memory profile is shared within a data group ({wanted}), but the task belongs to \
         {groups} others; name the group under its \"data\""
    )]
    NoDataGroup {
        /// The class.
        class: String,
        /// The group's name, if the class says it.
        wanted: String,
        /// Data groups of the task.
        groups: usize,
    },
    /// A class of a memory profile that is larger than what it is part of.
    #[error(
        "class \"{class}\" of its memory profile has {class_bytes} bytes, data group \"{group}\" only {group_bytes}"
    )]
    ClassLargerThanData {
        /// The class.
        class: String,
        /// Its size.
        class_bytes: u64,
        /// The group.
        group: String,
        /// Its size.
        group_bytes: u64,
    },
    /// A command and tasks.
    #[error("it has a command and tasks; a workload is one or the other")]
    CommandWithTasks,
    /// Nothing starts.
    #[error("no task exists at the start; give at least one task an instance")]
    NothingToRun,
    /// More tasks than can be started.
    #[error("{count} tasks at the start are too many; at most {MAX_TASKS} are possible")]
    TooManyTasks {
        /// Number of tasks.
        count: u64,
    },
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
