//! Making workloads in code: empty tables, `add_…` methods that return ids, and a builder whose loops always match.

use crate::{
    Affinity, Barrier, BarrierId, BarrierWait, Channel, ChannelId, ChannelKind, ConditionId, DataGroup, DataGroupId,
    Group, Latch, ListId, LockId, Policy, Process, ProcessId, Program, ProgramId, RecorderId, Semaphore, SemaphoreId,
    Step, Task, TaskTemplateId, TimerId, UtilClamp, Warning, Workload,
};

impl Workload {
    /// Whether another one has all that this one has, programs left out.
    pub(crate) fn is_equal_but_for_programs(&self, other: &Self) -> bool {
        let Self {
            name,
            applications,
            processes,
            tasks,
            programs: _,
            groups,
            data_groups,
            profiles,
            aggregation,
            locks,
            latches,
            conditions,
            barriers,
            semaphores,
            channels,
            lists,
            timers,
            recorders,
            phases,
            style,
            duration_ns,
            warm_up_ns,
            hotplug,
            isolcpus,
            nohz_full,
            command,
            notes,
            warnings,
        } = self;
        *name == other.name
            && *applications == other.applications
            && *processes == other.processes
            && *tasks == other.tasks
            && *groups == other.groups
            && *data_groups == other.data_groups
            && *profiles == other.profiles
            && *aggregation == other.aggregation
            && *locks == other.locks
            && *latches == other.latches
            && *conditions == other.conditions
            && *barriers == other.barriers
            && *semaphores == other.semaphores
            && *channels == other.channels
            && *lists == other.lists
            && *timers == other.timers
            && *recorders == other.recorders
            && *phases == other.phases
            && *style == other.style
            && *duration_ns == other.duration_ns
            && *warm_up_ns == other.warm_up_ns
            && *hotplug == other.hotplug
            && *isolcpus == other.isolcpus
            && *nohz_full == other.nohz_full
            && *command == other.command
            && *notes == other.notes
            && *warnings == other.warnings
    }

    /// Name of a running task's template: `spinner-3` is the fourth task of template `spinner`, unless it is a template of its own.
    pub fn template_name<'a>(&self, task: &'a str) -> &'a str {
        if self.tasks.iter().any(|template| template.name == task) {
            return task;
        }
        task.rsplit_once('-').map_or(task, |(name, _)| name)
    }

    /// A workload with one application, called like the workload itself, and nothing else.
    pub fn empty(name: &str) -> Self {
        Self { name: name.to_owned(), applications: vec![name.to_owned()], ..Self::default() }
    }

    /// A program of this computer with its arguments, the first word being its path or name. What its threads do is not known.
    pub fn of_command(words: Vec<String>) -> Self {
        let program = words.first().map_or("", String::as_str);
        let name = program.rsplit('/').next().unwrap_or(program).to_owned();
        let mut workload = Self { command: words, ..Self::empty(&name) };
        workload.add_process(name);
        workload
    }

    /// Whether every task has a timer of its own under this id: its name begins with `unique`, as in rt-app.
    pub fn timer_is_private(&self, timer: TimerId) -> bool {
        self.timers.get(timer.index()).is_some_and(|name| name.starts_with("unique"))
    }

    /// Number of tasks that exist at the start or as soon as their start time comes; forks are not counted.
    pub(crate) fn initial_tasks(&self) -> u64 {
        self.tasks.iter().map(|task| u64::from(task.instances)).sum()
    }

    /// Counts one more occurrence of something that is accepted but not modelled.
    pub fn warn(&mut self, what: impl Into<String>, consequence: impl Into<String>) {
        add_warning(&mut self.warnings, what.into(), consequence.into(), 1);
    }

    /// Adds an address space of the first application.
    pub fn add_process(&mut self, name: impl Into<String>) -> ProcessId {
        push(&mut self.processes, Process { name: name.into(), application: 0 }, ProcessId)
    }

    /// Adds a program.
    pub fn add_program(&mut self, program: Program) -> ProgramId {
        push(&mut self.programs, program, ProgramId)
    }

    /// Adds a task or template.
    pub fn add_task(&mut self, task: Task) -> TaskTemplateId {
        push(&mut self.tasks, task, TaskTemplateId)
    }

    /// Adds shared data.
    pub fn add_data_group(&mut self, name: impl Into<String>, bytes: u64) -> DataGroupId {
        push(&mut self.data_groups, DataGroup { name: name.into(), bytes }, DataGroupId)
    }

    /// Adds a mutex.
    pub fn add_lock(&mut self, name: impl Into<String>) -> LockId {
        push(&mut self.locks, name.into(), LockId)
    }

    /// Adds a mutex that spins before it blocks and guards data: `latch`, but for the mutex.
    pub fn add_latch(&mut self, name: impl Into<String>, latch: Latch) -> LockId {
        let lock = self.add_lock(name);
        self.latches.push(Latch { lock, ..latch });
        lock
    }

    /// Adds a condition variable.
    pub fn add_condition(&mut self, name: impl Into<String>) -> ConditionId {
        push(&mut self.conditions, name.into(), ConditionId)
    }

    /// Adds a barrier.
    pub fn add_barrier(&mut self, name: impl Into<String>, participants: u32, wait: BarrierWait) -> BarrierId {
        push(&mut self.barriers, Barrier { name: name.into(), participants, wait }, BarrierId)
    }

    /// Adds a semaphore.
    pub fn add_semaphore(&mut self, name: impl Into<String>, initial: u32) -> SemaphoreId {
        push(&mut self.semaphores, Semaphore { name: name.into(), initial }, SemaphoreId)
    }

    /// Adds a pipe or socket.
    pub fn add_channel(&mut self, name: impl Into<String>, kind: ChannelKind, capacity_bytes: u64) -> ChannelId {
        push(&mut self.channels, Channel { name: name.into(), kind, capacity_bytes }, ChannelId)
    }

    /// Adds a list on which tasks wait to be served.
    pub fn add_list(&mut self, name: impl Into<String>) -> ListId {
        push(&mut self.lists, name.into(), ListId)
    }

    /// Adds a timer.
    pub fn add_timer(&mut self, name: impl Into<String>) -> TimerId {
        push(&mut self.timers, name.into(), TimerId)
    }

    /// Adds a distribution.
    pub fn add_recorder(&mut self, name: impl Into<String>) -> RecorderId {
        push(&mut self.recorders, name.into(), RecorderId)
    }

    /// Adds a phase and returns its index for [`Step::Phase`].
    pub fn add_phase(&mut self, name: impl Into<String>) -> u32 {
        push(&mut self.phases, name.into(), |index| index)
    }
}

fn push<T, Id>(table: &mut Vec<T>, entry: T, id: impl Fn(u32) -> Id) -> Id {
    let index = u32::try_from(table.len()).expect("tables stay far below 2^32 entries");
    table.push(entry);
    id(index)
}

/// Adds to the count of an equal warning, or appends it.
pub fn add_warning(warnings: &mut Vec<Warning>, what: String, consequence: String, count: u32) {
    match warnings.iter_mut().find(|warning| warning.what == what && warning.consequence == consequence) {
        Some(warning) => warning.count = warning.count.saturating_add(count),
        None => warnings.push(Warning { what, consequence, count }),
    }
}

impl Group {
    /// Weight of a task group that nobody changed: that of one nice-0 task.
    pub(crate) const DEFAULT_SHARES: u32 = 1024;
    /// The least weight of a task group (`MIN_SHARES`).
    pub(crate) const LEAST_SHARES: u32 = 2;
    /// The weight of a task group of `cpu.idle` (`WEIGHT_IDLEPRIO`).
    pub const IDLE_SHARES: u32 = 3;
    /// The greatest (`MAX_SHARES`).
    pub(crate) const MOST_SHARES: u32 = 1 << 18;

    /// Whether this entry stands for the root group (a task in no group at all).
    pub fn is_root(&self) -> bool {
        self.name == "/"
    }
}

impl Task {
    /// One task at nice 0 that may run anywhere, starts at once, and has its name as its role.
    pub fn new(name: impl Into<String>, process: ProcessId, program: ProgramId) -> Self {
        let name = name.into();
        Self {
            role: name.clone(),
            name,
            process,
            program,
            instances: 1,
            nice: 0,
            policy: Policy::Normal,
            affinity: Affinity::All,
            release_ns: None,
            slice_ns: None,
            util_clamp: UtilClamp::NONE,
            timer_slack_ns: None,
            group: None,
            data_groups: Vec::new(),
            start_ns: 0,
            start_cpu: None,
            profile: None,
            phase_profiles: Vec::new(),
            comm: None,
        }
    }

    /// What its threads call themselves (`comm`), of which a kernel keeps 15 bytes.
    pub fn comm(&self) -> &str {
        self.comm.as_deref().unwrap_or(&self.name)
    }
}

/// Builds a [`Program`] step by step.
///
/// ```
/// use warmcore_workload::{ProgramBuilder, Step};
/// let program = ProgramBuilder::new()
///     .repeat(Some(3), |body| body.step(Step::Run { work_ns: 1_000 }).step(Step::Yield))
///     .finish();
/// assert_eq!(program.steps.len(), 4);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProgramBuilder {
    steps: Vec<Step>,
}

impl ProgramBuilder {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a step. Loops are made with [`ProgramBuilder::repeat`].
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Appends a loop around what `body` appends: `times` iterations, or for ever if `None`.
    #[must_use]
    pub fn repeat(mut self, times: Option<u64>, body: impl FnOnce(Self) -> Self) -> Self {
        let start = self.begin_loop(times);
        self = body(self);
        self.end_loop(start);
        self
    }

    /// The program.
    pub fn finish(self) -> Program {
        Program { steps: self.steps }
    }

    /// Number of steps so far.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Appends a step in place.
    pub(crate) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Opens a loop; the result goes to [`ProgramBuilder::end_loop`].
    pub(crate) fn begin_loop(&mut self, times: Option<u64>) -> usize {
        self.steps.push(Step::LoopStart { times, end: 0 });
        self.steps.len() - 1
    }

    /// Closes the loop that was opened at `start`.
    pub(crate) fn end_loop(&mut self, start: usize) {
        let end_index = self.steps.len() as u32;
        self.steps.push(Step::LoopEnd { start: start as u32 });
        if let Step::LoopStart { end, .. } = &mut self.steps[start] {
            *end = end_index;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_loops_point_at_each_other() {
        let program = ProgramBuilder::new()
            .repeat(None, |outer| outer.repeat(Some(2), |inner| inner.step(Step::Yield)).step(Step::Suspend))
            .finish();
        assert_eq!(
            program.steps,
            [
                Step::LoopStart { times: None, end: 5 },
                Step::LoopStart { times: Some(2), end: 3 },
                Step::Yield,
                Step::LoopEnd { start: 1 },
                Step::Suspend,
                Step::LoopEnd { start: 0 },
            ]
        );
    }

    #[test]
    fn equal_warnings_are_counted_once() {
        let mut workload = Workload::empty("w");
        workload.warn("event \"x\"", "ignored");
        workload.warn("event \"x\"", "ignored");
        workload.warn("event \"y\"", "ignored");
        assert_eq!(workload.warnings.len(), 2);
        assert_eq!(workload.warnings[0].count, 2);
    }
}
