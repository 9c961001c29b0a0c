//! Mutexes within one program: nothing is unlocked, or waited with, that the task does not hold, and nothing is
//! locked twice.
//!
//! Programs have no branches, so following one is exact. Two passes over a loop's body show what a second iteration
//! finds.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{CheckError, CheckProblem};
use crate::{LockId, ProgramId, Step, Workload};

/// Follows the program and refuses the first wrong use of a mutex.
pub(super) fn check(workload: &Workload, program: ProgramId) -> Result<(), CheckError> {
    let steps = workload.steps(program);
    let uses_locks = steps
        .iter()
        .any(|step| matches!(step, Step::Lock(_) | Step::Unlock(_) | Step::Wait { .. } | Step::SignalAndWait { .. }));
    if !uses_locks {
        return Ok(());
    }
    let mut held = BTreeSet::new();
    follow(steps, 0..steps.len(), &mut held).map(|_| ()).map_err(|(index, misuse)| {
        let problem = match misuse {
            Misuse::NotHeld(lock) => CheckProblem::NotHeld { lock: workload.locks[lock.index()].clone() },
            Misuse::AlreadyHeld(lock) => CheckProblem::AlreadyHeld { lock: workload.locks[lock.index()].clone() },
        };
        CheckError::of_step(workload, program, index, problem)
    })
}

enum Misuse {
    NotHeld(LockId),
    AlreadyHeld(LockId),
}

/// Whether the steps after the range are reached.
#[derive(PartialEq)]
enum Flow {
    Continues,
    Ends,
}

fn follow(steps: &[Step], range: Range<usize>, held: &mut BTreeSet<LockId>) -> Result<Flow, (usize, Misuse)> {
    let mut index = range.start;
    while index < range.end {
        match &steps[index] {
            Step::Lock(lock) if !held.insert(*lock) => return Err((index, Misuse::AlreadyHeld(*lock))),
            Step::Unlock(lock) if !held.remove(lock) => return Err((index, Misuse::NotHeld(*lock))),
            Step::Wait { lock, .. } | Step::SignalAndWait { lock, .. } if !held.contains(lock) => {
                return Err((index, Misuse::NotHeld(*lock)));
            }
            Step::LoopStart { times, end } => {
                let end = *end as usize;
                for _ in 0..times.unwrap_or(2).min(2) {
                    if follow(steps, index + 1..end, held)? == Flow::Ends {
                        return Ok(Flow::Ends);
                    }
                }
                if times.is_none() {
                    return Ok(Flow::Ends);
                }
                index = end;
            }
            Step::Exit | Step::Stop => return Ok(Flow::Ends),
            _ => {}
        }
        index += 1;
    }
    Ok(Flow::Continues)
}
