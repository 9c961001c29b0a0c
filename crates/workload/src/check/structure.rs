//! Ids in range, loops that match, values in range.

use std::collections::BTreeMap;

use super::{CheckError, CheckProblem, MAX_TASKS};
use crate::{
    Affinity, Aggregate, Drawn, KernelStep, MAX_DURATION_NS, Program, ProgramId, ResultStyle, Step, TaskTemplateId,
    Workload, as_measure_name,
};

/// References between tables and the numbers of tasks.
pub(super) fn check_tables(workload: &Workload) -> Result<(), CheckError> {
    let of_workload = |problem| CheckError::of_workload(workload, problem);
    for process in &workload.processes {
        in_range("application", process.application as usize, workload.applications.len()).map_err(of_workload)?;
    }
    let recorders: &[_] = match &workload.style {
        ResultStyle::Schbench { wakeup, request } => &[wakeup, request],
        ResultStyle::Sysbench { transaction } => &[transaction],
        ResultStyle::Plain | ResultStyle::Hackbench { .. } => &[],
    };
    for recorder in recorders {
        in_range("recorder", recorder.index(), workload.recorders.len()).map_err(of_workload)?;
    }
    if let Some(ns) = workload.duration_ns {
        duration(ns).map_err(of_workload)?;
    }
    if let Some(problem) = workload.group_problem() {
        return Err(of_workload(problem));
    }
    measured_apart("recorders", workload.recorders.iter()).map_err(of_workload)?;
    measured_apart("applications", workload.applications.iter()).map_err(of_workload)?;
    let limited = workload.groups.iter().filter(|group| group.cpu_max.is_some()).map(|group| &group.name);
    measured_apart("task groups with a quota", limited).map_err(of_workload)?;
    match workload.initial_tasks() {
        0 => Err(of_workload(CheckProblem::NothingToRun)),
        count if count > MAX_TASKS => Err(of_workload(CheckProblem::TooManyTasks { count })),
        _ => Ok(()),
    }
}

/// Measures are named after what they are of: two of one kind must not share a name.
fn measured_apart<'a>(what: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), CheckProblem> {
    let mut known: BTreeMap<String, &String> = BTreeMap::new();
    for name in names {
        if let Some(first) = known.insert(as_measure_name(name), name) {
            return Err(CheckProblem::MeasuredAlike { what, first: first.clone(), second: name.clone() });
        }
    }
    Ok(())
}

/// What tasks refer to, and their attributes.
pub(super) fn check_tasks(workload: &Workload) -> Result<(), CheckError> {
    for (index, task) in workload.tasks.iter().enumerate() {
        let check = || {
            in_range("process", task.process.index(), workload.processes.len())?;
            in_range("program", task.program.index(), workload.programs.len())?;
            if let Some(group) = task.group {
                in_range("task group", group.index(), workload.groups.len())?;
            }
            for data in &task.data_groups {
                in_range("data group", data.index(), workload.data_groups.len())?;
            }
            nice(task.nice)?;
            task.policy.check()?;
            let forks = |step: &Step| matches!(step, Step::Fork(_));
            if task.policy.is_deadline() && workload.steps(task.program).iter().any(forks) {
                return Err(CheckProblem::DeadlineForks);
            }
            affinity(&task.affinity)?;
            duration(task.start_ns)?;
            duration(task.release_ns.unwrap_or(0))?;
            duration(task.slice_ns.unwrap_or(0))?;
            duration(task.timer_slack_ns.unwrap_or(0))
        };
        check().map_err(|problem| CheckError::of_task(workload, TaskTemplateId(index as u32), problem))?;
    }
    Ok(())
}

/// Choices of whom to keep together refer to what exists.
pub(super) fn check_aggregation(workload: &Workload) -> Result<(), CheckError> {
    let of_workload = |problem| CheckError::of_workload(workload, problem);
    let aggregation = &workload.aggregation;
    for (what, table, length) in [
        ("process", &aggregation.processes, workload.processes.len()),
        ("task group", &aggregation.task_groups, workload.groups.len()),
        ("data group", &aggregation.data_groups, workload.data_groups.len()),
    ] {
        for (&index, &choice) in table {
            in_range(what, index as usize, length).map_err(of_workload)?;
            if let Aggregate::Group(group) = choice {
                in_range("aggregation group", group as usize, aggregation.groups.len()).map_err(of_workload)?;
            }
        }
    }
    Ok(())
}

/// Loops: both ends point at each other, nest properly, and have a body.
pub(super) fn check_loops(workload: &Workload, program: ProgramId) -> Result<(), CheckError> {
    let mut open: Vec<usize> = Vec::new();
    for (index, step) in workload.steps(program).iter().enumerate() {
        let problem = match step {
            Step::LoopStart { .. } => {
                open.push(index);
                (open.len() > Program::MAX_LOOP_DEPTH).then_some(CheckProblem::LoopTooDeep { depth: open.len() })
            }
            Step::LoopEnd { start } => {
                let opened = open.pop();
                let matching = opened.is_some_and(|opened| {
                    let end = match &workload.steps(program)[opened] {
                        Step::LoopStart { end, .. } => *end as usize,
                        _ => usize::MAX,
                    };
                    opened == *start as usize && end == index
                });
                match opened {
                    _ if !matching => Some(CheckProblem::LoopMismatch),
                    Some(opened) if opened + 1 == index => Some(CheckProblem::LoopEmpty),
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(CheckError::of_step(workload, program, index, problem));
        }
    }
    match open.last() {
        Some(&index) => Err(CheckError::of_step(workload, program, index, CheckProblem::LoopMismatch)),
        None => Ok(()),
    }
}

/// Two steps of which the first begins what the second ends, and calls of which nest.
struct Pair {
    begins: fn(&Step) -> bool,
    ends: fn(&Step) -> bool,
    not_begun: CheckProblem,
    not_ended: CheckProblem,
    /// What a step may not be so deep within, or not without.
    forbids: fn(&Step, u64) -> Option<CheckProblem>,
}

const PAIRS: [Pair; 3] = [
    Pair {
        begins: |step| matches!(step, Step::MigrateDisable),
        ends: |step| matches!(step, Step::MigrateEnable),
        not_begun: CheckProblem::MigrationNotDisabled,
        not_ended: CheckProblem::MigrationStaysDisabled,
        forbids: |step, depth| match step {
            Step::SetAffinity(_) if depth > 0 => Some(CheckProblem::AffinityWithMigrationDisabled),
            _ => None,
        },
    },
    Pair {
        begins: |step| matches!(step, Step::Kernel(KernelStep::Enter)),
        ends: |step| matches!(step, Step::Kernel(KernelStep::Exit)),
        not_begun: CheckProblem::NotInKernel,
        not_ended: CheckProblem::StaysInKernel,
        forbids: |step, depth| match step {
            Step::Kernel(KernelStep::Enter) | Step::FirstTouch { .. } | Step::Map { .. } if depth > 0 => {
                Some(CheckProblem::InKernelAlready)
            }
            Step::Kernel(KernelStep::Enter) => None,
            Step::Kernel(_) if depth == 0 => Some(CheckProblem::NotInKernel),
            _ => None,
        },
    },
    Pair {
        begins: |step| matches!(step, Step::Kernel(KernelStep::PreemptDisable)),
        ends: |step| matches!(step, Step::Kernel(KernelStep::PreemptEnable)),
        not_begun: CheckProblem::PreemptionNotDisabled,
        not_ended: CheckProblem::PreemptionStaysDisabled,
        forbids: |step, depth| match step {
            Step::Kernel(KernelStep::Exit) if depth > 0 => Some(CheckProblem::PreemptionStaysDisabled),
            _ => None,
        },
    },
];

/// A wait for I/O is a step that waits.
pub(super) fn check_io_waits(workload: &Workload, program: ProgramId) -> Result<(), CheckError> {
    let steps = workload.steps(program);
    for (index, _) in steps.iter().enumerate().filter(|(_, step)| matches!(step, Step::IoWait)) {
        let next = steps.get(index + 1);
        if !next.is_some_and(Step::may_wait_for_io) {
            let next = match next {
                Some(Step::Sleep { .. }) => "a sleep of 0 ns",
                next => next.map_or("the end", Step::name),
            };
            return Err(CheckError::of_step(workload, program, index, CheckProblem::NoIoWait { next }));
        }
    }
    Ok(())
}

/// What a program begins it ends, in each pass of a loop. Only an endless loop may lie within.
pub(super) fn check_pairs(workload: &Workload, program: ProgramId) -> Result<(), CheckError> {
    PAIRS.iter().try_for_each(|pair| check_pair(workload, program, pair))
}

fn check_pair(workload: &Workload, program: ProgramId, pair: &Pair) -> Result<(), CheckError> {
    let (mut depth, mut opened, mut ends) = (0_u64, Vec::new(), true);
    let steps = workload.steps(program);
    for (index, step) in steps.iter().enumerate() {
        let forbidden = (pair.forbids)(step, depth);
        let problem = match step {
            _ if forbidden.is_some() => forbidden,
            step if (pair.begins)(step) => {
                depth += 1;
                None
            }
            step if (pair.ends)(step) => {
                let none = depth == opened.last().map_or(0, |(before, _)| *before);
                depth = depth.saturating_sub(1);
                none.then(|| pair.not_begun.clone())
            }
            Step::Exit if depth > 0 => Some(pair.not_ended.clone()),
            Step::LoopStart { times, .. } => {
                opened.push((depth, times.is_none()));
                None
            }
            Step::LoopEnd { .. } => {
                let (before, endless) = opened.pop().unwrap_or((0, false));
                ends &= !endless;
                (depth != before).then(|| pair.not_ended.clone())
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(CheckError::of_step(workload, program, index, problem));
        }
    }
    match steps.len().checked_sub(1) {
        Some(last) if depth > 0 && ends => Err(CheckError::of_step(workload, program, last, pair.not_ended.clone())),
        _ => Ok(()),
    }
}

/// What single steps refer to, and their values.
pub(super) fn check_steps(workload: &Workload, program: ProgramId) -> Result<(), CheckError> {
    let steps = workload.steps(program);
    let forks = steps.iter().any(|step| matches!(step, Step::Fork(_)));
    for (index, step) in steps.iter().enumerate() {
        let result = match step {
            Step::Join { .. } if !forks => Err(CheckProblem::JoinWithoutFork),
            Step::Join { count: 0 } => Err(CheckProblem::JoinOfNobody),
            Step::Map { bytes } if !(1..=Step::MOST_MAPPED_BYTES).contains(bytes) => {
                Err(CheckProblem::MappedBytes { bytes: *bytes })
            }
            _ => check_step(workload, step),
        };
        result.map_err(|problem| CheckError::of_step(workload, program, index, problem))?;
    }
    Ok(())
}

fn check_step(workload: &Workload, step: &Step) -> Result<(), CheckProblem> {
    let recorder = |id: usize| in_range("recorder", id, workload.recorders.len());
    duration(step.longest_duration_ns())?;
    match step {
        Step::Timer { timer, .. } => in_range("timer", timer.index(), workload.timers.len()),
        Step::Lock(lock) | Step::LockShared(lock) | Step::Unlock(lock) => {
            in_range("lock", lock.index(), workload.locks.len())
        }
        Step::Wait { condition, lock } | Step::SignalAndWait { condition, lock } => {
            in_range("condition", condition.index(), workload.conditions.len())?;
            in_range("lock", lock.index(), workload.locks.len())
        }
        Step::Signal(condition) | Step::Broadcast(condition) => {
            in_range("condition", condition.index(), workload.conditions.len())
        }
        Step::Barrier(barrier) => in_range("barrier", barrier.index(), workload.barriers.len()),
        Step::Resume(task) | Step::Fork(task) => in_range("task", task.index(), workload.tasks.len()),
        Step::SemPost(semaphore) | Step::SemWait(semaphore) => {
            in_range("semaphore", semaphore.index(), workload.semaphores.len())
        }
        Step::Submit { semaphore, program } => {
            in_range("semaphore", semaphore.index(), workload.semaphores.len())?;
            in_range("program", program.index(), workload.programs.len())?;
            request(workload, *program)
        }
        Step::Work { semaphore, requests, recorder: to } => {
            in_range("semaphore", semaphore.index(), workload.semaphores.len())?;
            to.map_or(Ok(()), |id| recorder(id.index()))?;
            let name = || workload.semaphores[semaphore.index()].name.clone();
            if *requests == 0 { Err(CheckProblem::NoRequests { semaphore: name() }) } else { Ok(()) }
        }
        Step::SemTake { semaphore, slot } => {
            clock(*slot)?;
            in_range("semaphore", semaphore.index(), workload.semaphores.len())
        }
        Step::Send { channel, bytes } | Step::Receive { channel, bytes } => {
            in_range("channel", channel.index(), workload.channels.len())?;
            message(workload, channel.index(), *bytes)
        }
        Step::Enlist { list, recorder: id } => {
            in_range("list", list.index(), workload.lists.len())?;
            id.map_or(Ok(()), |id| recorder(id.index()))
        }
        Step::Serve(list) => in_range("list", list.index(), workload.lists.len()),
        Step::SetAffinity(to) => affinity(to),
        Step::SetNice(to) => nice(*to),
        Step::SetPolicy(to) => Ok(to.check()?),
        Step::SetGroup(group) => in_range("task group", group.index(), workload.groups.len()),
        Step::StartClock { slot } => clock(*slot),
        Step::RecordClock { slot, recorder: id } => {
            clock(*slot)?;
            recorder(id.index())
        }
        Step::RecordSince { recorder: id, .. } => recorder(id.index()),
        Step::Draw { what, from } => {
            if let Drawn::Arrival { slot } = what {
                clock(*slot)?;
            }
            Ok(from.check()?)
        }
        Step::Phase(phase) => in_range("phase", *phase as usize, workload.phases.len()),
        _ => Ok(()),
    }
}

/// A program that is carried out as a request.
fn request(workload: &Workload, program: ProgramId) -> Result<(), CheckProblem> {
    let steps = workload.steps(program);
    let refused =
        steps.iter().find(|step| matches!(step, Step::LoopStart { .. } | Step::Work { .. } | Step::Join { .. }));
    refused.map_or(Ok(()), |step| Err(CheckProblem::NotInRequest { program: program.index(), step: step.name() }))
}

/// A semaphore whose requests are carried out has nothing but requests.
pub(super) fn check_queues(workload: &Workload) -> Result<(), CheckError> {
    let steps = || {
        let programs = workload.programs.iter().enumerate();
        programs.flat_map(|(program, of)| of.steps.iter().enumerate().map(move |(index, step)| (program, index, step)))
    };
    let mut queues = vec![false; workload.semaphores.len()];
    for (_, _, step) in steps() {
        if let Step::Submit { semaphore, .. } | Step::Work { semaphore, .. } = step {
            queues[semaphore.index()] = workload.semaphores[semaphore.index()].initial == 0;
        }
    }
    for (program, index, step) in steps() {
        let (Step::SemPost(semaphore)
        | Step::SemWait(semaphore)
        | Step::SemTake { semaphore, .. }
        | Step::Submit { semaphore, .. }
        | Step::Work { semaphore, .. }) = step
        else {
            continue;
        };
        let of_queue = matches!(step, Step::Submit { .. } | Step::Work { .. });
        if of_queue != queues[semaphore.index()] {
            let problem = CheckProblem::MixedQueue { semaphore: workload.semaphores[semaphore.index()].name.clone() };
            return Err(CheckError::of_step(workload, ProgramId(program as u32), index, problem));
        }
    }
    Ok(())
}

/// Barriers that are used: somebody takes part, and enough tasks can arrive.
pub(super) fn check_barriers(workload: &Workload) -> Result<(), CheckError> {
    // Arrivals are counted per template. A template that is forked may have any number of tasks.
    let mut forked = vec![false; workload.tasks.len()];
    for step in workload.programs.iter().flat_map(|program| &program.steps) {
        if let Step::Fork(task) = step {
            forked[task.index()] = true;
        }
    }
    let mut users = vec![0_u64; workload.barriers.len()];
    let mut first_use = vec![None; workload.barriers.len()];
    for (task, forked) in workload.tasks.iter().zip(forked) {
        let mut seen = vec![false; workload.barriers.len()];
        for (index, step) in workload.steps(task.program).iter().enumerate() {
            if let Step::Barrier(barrier) = step {
                first_use[barrier.index()].get_or_insert((task.program, index));
                if !std::mem::replace(&mut seen[barrier.index()], true) {
                    let tasks = if forked { u64::from(u32::MAX) } else { u64::from(task.instances) };
                    users[barrier.index()] = users[barrier.index()].saturating_add(tasks);
                }
            }
        }
    }
    for ((barrier, tasks), first_use) in workload.barriers.iter().zip(users).zip(first_use) {
        let Some((program, index)) = first_use else { continue };
        let problem = if barrier.participants == 0 {
            CheckProblem::BarrierForNobody { barrier: barrier.name.clone() }
        } else if u64::from(barrier.participants) > tasks {
            CheckProblem::BarrierNeverOpens { barrier: barrier.name.clone(), participants: barrier.participants, tasks }
        } else {
            continue;
        };
        return Err(CheckError::of_step(workload, program, index, problem));
    }
    Ok(())
}

fn in_range(what: &'static str, index: usize, count: usize) -> Result<(), CheckProblem> {
    if index < count { Ok(()) } else { Err(CheckProblem::UnknownId { what, index, count }) }
}

fn duration(ns: u64) -> Result<(), CheckProblem> {
    if ns <= MAX_DURATION_NS { Ok(()) } else { Err(CheckProblem::TooLong { ns }) }
}

fn nice(nice: i8) -> Result<(), CheckProblem> {
    if (-20..=19).contains(&nice) { Ok(()) } else { Err(CheckProblem::NiceOutOfRange { nice }) }
}

fn affinity(affinity: &Affinity) -> Result<(), CheckProblem> {
    if affinity.is_empty() { Err(CheckProblem::NoCpus) } else { Ok(()) }
}

fn clock(slot: u8) -> Result<(), CheckProblem> {
    if slot < 4 { Ok(()) } else { Err(CheckProblem::NoSuchClock { slot }) }
}

fn message(workload: &Workload, channel: usize, bytes: u32) -> Result<(), CheckProblem> {
    let channel = &workload.channels[channel];
    if bytes == 0 {
        Err(CheckProblem::MessageEmpty)
    } else if u64::from(bytes) > channel.capacity_bytes {
        let capacity_bytes = channel.capacity_bytes;
        Err(CheckProblem::MessageTooBig { channel: channel.name.clone(), bytes, capacity_bytes })
    } else {
        Ok(())
    }
}
