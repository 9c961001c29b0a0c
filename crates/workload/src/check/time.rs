//! Whether time passes: loops and forks that would go on for ever at one instant.

use std::ops::Range;

use super::{CheckError, CheckProblem, MAX_INSTANT_ITERATIONS};
use crate::{ProgramId, Step, TaskTemplateId, Workload};

/// Refuses a warm-up that lasts until the end or longer, where the end is known.
pub(super) fn check_warm_up(workload: &Workload) -> Result<(), CheckError> {
    match (workload.warm_up_ns, workload.duration_ns) {
        (Some(warm_up_ns), Some(duration_ns)) if warm_up_ns > 0 && warm_up_ns >= duration_ns => {
            Err(CheckError::of_workload(workload, CheckProblem::WarmUpTooLong { warm_up_ns, duration_ns }))
        }
        _ => Ok(()),
    }
}

/// Refuses loops that repeat without end, or more than [`MAX_INSTANT_ITERATIONS`] times, at one instant.
pub(super) fn check_loops(workload: &Workload, program: ProgramId) -> Result<(), CheckError> {
    let steps = workload.steps(program);
    instant_iterations(steps, 0..steps.len())
        .map(|_| ())
        .map_err(|index| CheckError::of_step(workload, program, index, CheckProblem::LoopNeverLetsTimePass))
}

/// `None` if time passes somewhere in the range; otherwise how many loop iterations it makes at one instant. The
/// error is the index of a loop with too many.
fn instant_iterations(steps: &[Step], range: Range<usize>) -> Result<Option<u64>, usize> {
    let mut total: Option<u64> = Some(1);
    let mut index = range.start;
    while index < range.end {
        match &steps[index] {
            Step::LoopStart { times: Some(0), end } => index = *end as usize,
            Step::LoopStart { times, end } => {
                let end = *end as usize;
                match instant_iterations(steps, index + 1..end)? {
                    None => total = None,
                    Some(inside) => {
                        let iterations = times.and_then(|times| times.checked_mul(inside)).unwrap_or(u64::MAX);
                        if iterations > MAX_INSTANT_ITERATIONS {
                            return Err(index);
                        }
                        total = total.map(|total| total.saturating_add(iterations));
                    }
                }
                index = end;
            }
            step if step.lets_time_pass() => total = None,
            _ => {}
        }
        index += 1;
    }
    Ok(total)
}

/// Refuses templates that create each other, or themselves, before any time has passed.
pub(super) fn check_forks(workload: &Workload) -> Result<(), CheckError> {
    let early: Vec<Vec<TaskTemplateId>> =
        workload.tasks.iter().map(|task| early_forks(workload.steps(task.program))).collect();
    let mut done = vec![false; workload.tasks.len()];
    for first in 0..workload.tasks.len() {
        if let Some(cycle) = find_cycle(first, &early, &mut done) {
            let names = cycle.iter().map(|&index| workload.tasks[index].name.clone()).collect();
            let task = TaskTemplateId(cycle[0] as u32);
            return Err(CheckError::of_task(workload, task, CheckProblem::ForkCycle { names }));
        }
    }
    Ok(())
}

/// Templates that the program forks before time has passed for the first time.
fn early_forks(steps: &[Step]) -> Vec<TaskTemplateId> {
    let mut forks = Vec::new();
    let mut index = 0;
    while index < steps.len() {
        match &steps[index] {
            Step::LoopStart { times: Some(0), end } => index = *end as usize,
            Step::Fork(task) => forks.push(*task),
            step if step.lets_time_pass() => break,
            _ => {}
        }
        index += 1;
    }
    forks.sort_unstable();
    forks.dedup();
    forks
}

/// Depth-first search with an explicit stack, so that a long chain of templates cannot exhaust the call stack.
fn find_cycle(first: usize, edges: &[Vec<TaskTemplateId>], done: &mut [bool]) -> Option<Vec<usize>> {
    let mut path: Vec<(usize, usize)> = vec![(first, 0)];
    let mut on_path = vec![false; edges.len()];
    on_path[first] = true;
    while let Some(&mut (node, ref mut next)) = path.last_mut() {
        let target = edges[node].get(*next).map(|task| task.index());
        *next += 1;
        match target {
            Some(target) if on_path[target] => {
                let from = path.iter().position(|&(node, _)| node == target).unwrap_or(0);
                let mut cycle: Vec<usize> = path[from..].iter().map(|&(node, _)| node).collect();
                cycle.push(target);
                return Some(cycle);
            }
            Some(target) if !done[target] => {
                on_path[target] = true;
                path.push((target, 0));
            }
            Some(_) => {}
            None => {
                done[node] = true;
                on_path[node] = false;
                path.pop();
            }
        }
    }
    None
}
