//! Several workloads at once, each an application of its own.
//!
//! Names that occur in several parts get a number (`main#2`). The result ends after the longest duration any part
//! states; parts that state none are then cut off, and parts with a shorter one go on until then. If no part states a
//! duration, it ends with the last exit. Result lines are printed if exactly one part has any.

use std::collections::BTreeSet;

use crate::build::add_warning;
use crate::duration::format_duration;
use crate::{
    Aggregate, BarrierId, ChannelId, ConditionId, DataGroupId, GroupId, Latch, ListId, LockId, ProcessId, ProgramId,
    RecorderId, ResultStyle, SemaphoreId, Step, TaskTemplateId, TimerId, Workload,
};

/// Puts the parts side by side. A single part keeps everything but gets the name.
pub(crate) fn combine(name: &str, mut parts: Vec<Workload>) -> Workload {
    if parts.len() == 1
        && let Some(part) = parts.pop()
    {
        return Workload { name: name.to_owned(), ..part };
    }
    let mut whole = Workload { name: name.to_owned(), applications: Vec::new(), ..Workload::empty(name) };
    let mut styles = Vec::new();
    let lasting: Vec<Option<u64>> = parts.iter().map(|part| part.duration_ns).collect();
    if let Some(longest) = lasting.iter().flatten().max()
        && lasting.iter().any(|duration| duration.as_ref() != Some(longest))
    {
        let consequence = format!(
            "all end after the longest, {}: shorter ones go on until then, and what has none is cut off",
            format_duration(*longest)
        );
        add_warning(&mut whole.warnings, "an own duration of each workload side by side".into(), consequence, 1);
    }
    for part in parts {
        if let Some(style) = append(&mut whole, part) {
            styles.push(style);
        }
    }
    if let [style] = styles.as_slice() {
        whole.style = style.clone();
    }
    whole
}

/// Lengths of the tables before a part is appended.
struct Offsets {
    tasks: u32,
    programs: u32,
    processes: u32,
    applications: u32,
    groups: u32,
    data_groups: u32,
    locks: u32,
    conditions: u32,
    barriers: u32,
    semaphores: u32,
    channels: u32,
    lists: u32,
    timers: u32,
    recorders: u32,
    phases: u32,
}

impl Offsets {
    fn of(workload: &Workload) -> Self {
        Self {
            tasks: workload.tasks.len() as u32,
            programs: workload.programs.len() as u32,
            processes: workload.processes.len() as u32,
            applications: workload.applications.len() as u32,
            groups: workload.groups.len() as u32,
            data_groups: workload.data_groups.len() as u32,
            locks: workload.locks.len() as u32,
            conditions: workload.conditions.len() as u32,
            barriers: workload.barriers.len() as u32,
            semaphores: workload.semaphores.len() as u32,
            channels: workload.channels.len() as u32,
            lists: workload.lists.len() as u32,
            timers: workload.timers.len() as u32,
            recorders: workload.recorders.len() as u32,
            phases: workload.phases.len() as u32,
        }
    }

    fn task(&self, id: TaskTemplateId) -> TaskTemplateId {
        TaskTemplateId(id.0 + self.tasks)
    }

    fn recorder(&self, id: RecorderId) -> RecorderId {
        RecorderId(id.0 + self.recorders)
    }

    /// The step with all ids moved.
    fn step(&self, step: Step) -> Step {
        let lock = |id: LockId| LockId(id.0 + self.locks);
        let condition = |id: ConditionId| ConditionId(id.0 + self.conditions);
        let semaphore = |id: SemaphoreId| SemaphoreId(id.0 + self.semaphores);
        let channel = |id: ChannelId| ChannelId(id.0 + self.channels);
        let list = |id: ListId| ListId(id.0 + self.lists);
        match step {
            Step::Timer { timer, period_ns, mode } => {
                Step::Timer { timer: TimerId(timer.0 + self.timers), period_ns, mode }
            }
            Step::Lock(id) => Step::Lock(lock(id)),
            Step::LockShared(id) => Step::LockShared(lock(id)),
            Step::Unlock(id) => Step::Unlock(lock(id)),
            Step::Wait { condition: id, lock: with } => Step::Wait { condition: condition(id), lock: lock(with) },
            Step::SignalAndWait { condition: id, lock: with } => {
                Step::SignalAndWait { condition: condition(id), lock: lock(with) }
            }
            Step::Signal(id) => Step::Signal(condition(id)),
            Step::Broadcast(id) => Step::Broadcast(condition(id)),
            Step::Barrier(id) => Step::Barrier(BarrierId(id.0 + self.barriers)),
            Step::Resume(id) => Step::Resume(self.task(id)),
            Step::Fork(id) => Step::Fork(self.task(id)),
            Step::SemPost(id) => Step::SemPost(semaphore(id)),
            Step::SemWait(id) => Step::SemWait(semaphore(id)),
            Step::SemTake { semaphore: id, slot } => Step::SemTake { semaphore: semaphore(id), slot },
            Step::Submit { semaphore: id, program } => {
                Step::Submit { semaphore: semaphore(id), program: ProgramId(program.0 + self.programs) }
            }
            Step::Work { semaphore: id, requests, recorder } => Step::Work {
                semaphore: semaphore(id),
                requests,
                recorder: recorder.map(|recorder| self.recorder(recorder)),
            },
            Step::Send { channel: id, bytes } => Step::Send { channel: channel(id), bytes },
            Step::Receive { channel: id, bytes } => Step::Receive { channel: channel(id), bytes },
            Step::Enlist { list: id, recorder } => {
                Step::Enlist { list: list(id), recorder: recorder.map(|id| self.recorder(id)) }
            }
            Step::Serve(id) => Step::Serve(list(id)),
            Step::SetGroup(id) => Step::SetGroup(GroupId(id.0 + self.groups)),
            Step::RecordClock { slot, recorder } => Step::RecordClock { slot, recorder: self.recorder(recorder) },
            Step::RecordSince { since_ns, recorder } => {
                Step::RecordSince { since_ns, recorder: self.recorder(recorder) }
            }
            Step::Phase(index) => Step::Phase(index + self.phases),
            Step::Run { .. }
            | Step::RunTime { .. }
            | Step::Sleep { .. }
            | Step::Draw { .. }
            | Step::Suspend
            | Step::Join { .. }
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
            | Step::Memory { .. }
            | Step::Chase { .. }
            | Step::FirstTouch { .. }
            | Step::Map { .. }
            | Step::IoRun { .. }
            | Step::StartClock { .. }
            | Step::LoopStart { .. }
            | Step::LoopEnd { .. }
            | Step::Exit
            | Step::Stop => step,
        }
    }
}

/// Appends a part; returns its result style with ids of the whole, if it has one.
fn append(whole: &mut Workload, part: Workload) -> Option<ResultStyle> {
    let offsets = Offsets::of(whole);
    extend(&mut whole.applications, part.applications, |name| name);
    extend(&mut whole.processes, part.processes, |process| &mut process.name);
    for process in &mut whole.processes[offsets.processes as usize..] {
        process.application += offsets.applications;
    }
    extend(&mut whole.groups, part.groups, |group| &mut group.name);
    for group in &mut whole.groups[offsets.groups as usize..] {
        group.parent = group.parent.map(|parent| GroupId(parent.0 + offsets.groups));
    }
    extend(&mut whole.data_groups, part.data_groups, |group| &mut group.name);
    // Parts may have been offered the same ones.
    let new: Vec<_> = part.profiles.into_iter().filter(|profile| !whole.profiles.contains(profile)).collect();
    whole.profiles.extend(new);
    let labels = whole.aggregation.groups.len() as u32;
    extend(&mut whole.aggregation.groups, part.aggregation.groups, |name| name);
    let chosen = |choice| match choice {
        Aggregate::Group(label) => Aggregate::Group(label + labels),
        other => other,
    };
    for (to, from, offset) in [
        (&mut whole.aggregation.processes, part.aggregation.processes, offsets.processes),
        (&mut whole.aggregation.task_groups, part.aggregation.task_groups, offsets.groups),
        (&mut whole.aggregation.data_groups, part.aggregation.data_groups, offsets.data_groups),
    ] {
        to.extend(from.into_iter().map(|(index, choice)| (index + offset, chosen(choice))));
    }
    extend(&mut whole.barriers, part.barriers, |barrier| &mut barrier.name);
    extend(&mut whole.semaphores, part.semaphores, |semaphore| &mut semaphore.name);
    extend(&mut whole.channels, part.channels, |channel| &mut channel.name);
    extend(&mut whole.locks, part.locks, |name| name);
    let latches = part.latches.into_iter();
    whole.latches.extend(latches.map(|latch| Latch { lock: LockId(latch.lock.0 + offsets.locks), ..latch }));
    extend(&mut whole.conditions, part.conditions, |name| name);
    extend(&mut whole.lists, part.lists, |name| name);
    extend(&mut whole.timers, part.timers, |name| name);
    extend(&mut whole.recorders, part.recorders, |name| name);
    extend(&mut whole.phases, part.phases, |name| name);
    for mut program in part.programs {
        program.steps = program.steps.into_iter().map(|step| offsets.step(step)).collect();
        whole.programs.push(program);
    }
    extend(&mut whole.tasks, part.tasks, |task| &mut task.name);
    for task in &mut whole.tasks[offsets.tasks as usize..] {
        task.process = ProcessId(task.process.0 + offsets.processes);
        task.program = ProgramId(task.program.0 + offsets.programs);
        for (phase, _) in &mut task.phase_profiles {
            *phase += offsets.phases;
        }
        task.group = task.group.map(|group| GroupId(group.0 + offsets.groups));
        for data in &mut task.data_groups {
            *data = DataGroupId(data.0 + offsets.data_groups);
        }
    }
    for warning in part.warnings {
        add_warning(&mut whole.warnings, warning.what, warning.consequence, warning.count);
    }
    whole.notes.extend(part.notes);
    whole.duration_ns = whole.duration_ns.max(part.duration_ns);
    whole.warm_up_ns = whole.warm_up_ns.max(part.warm_up_ns);
    whole.hotplug.extend_from_slice(&part.hotplug);
    whole.hotplug.sort_by_key(|change| change.time_ns);
    for (list, more) in [(&mut whole.isolcpus, part.isolcpus), (&mut whole.nohz_full, part.nohz_full)] {
        list.extend(more);
        list.sort_unstable();
        list.dedup();
    }
    match part.style {
        ResultStyle::Plain => None,
        ResultStyle::Hackbench { header } => Some(ResultStyle::Hackbench { header }),
        ResultStyle::Schbench { wakeup, request } => {
            Some(ResultStyle::Schbench { wakeup: offsets.recorder(wakeup), request: offsets.recorder(request) })
        }
        ResultStyle::Sysbench { transaction } => {
            Some(ResultStyle::Sysbench { transaction: offsets.recorder(transaction) })
        }
    }
}

/// Appends entries, with a number added to names that are there already.
fn extend<T>(table: &mut Vec<T>, entries: Vec<T>, name: impl Fn(&mut T) -> &mut String) {
    let mut used: BTreeSet<String> = table.iter_mut().map(|entry| name(entry).clone()).collect();
    for mut entry in entries {
        let own = name(&mut entry);
        if used.contains(own) {
            let numbered = (2..).map(|number| format!("{own}#{number}")).find(|candidate| !used.contains(candidate));
            *own = numbered.unwrap_or_default();
        }
        used.insert(own.clone());
        table.push(entry);
    }
}
