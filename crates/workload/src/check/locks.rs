//! Mutexes within one program: nothing is unlocked, or waited with, that the task does not hold, nothing is
//! locked twice, and locks of the kernel are taken and given back in the kernel, where the task may sleep.
//!
//! Programs have no branches, so following one is exact. Two passes over a loop's body show what a second iteration
//! finds.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{CheckError, CheckProblem};
use crate::{KernelStep, LatchKind, LockId, ProgramId, Step, Workload};

/// Follows the program and refuses the first wrong use of a mutex.
pub(super) fn check(workload: &Workload, program: ProgramId) -> Result<(), CheckError> {
    let steps = workload.steps(program);
    let uses_locks = steps.iter().any(|step| {
        matches!(
            step,
            Step::Lock(_) | Step::LockShared(_) | Step::Unlock(_) | Step::Wait { .. } | Step::SignalAndWait { .. }
        )
    });
    if !uses_locks {
        return Ok(());
    }
    let mut task = Follower { workload, held: BTreeSet::new(), in_kernel: false, preempt_count: 0 };
    task.follow(steps, 0..steps.len())
        .map(|_| ())
        .map_err(|(index, problem)| CheckError::of_step(workload, program, index, problem))
}

/// Whether the steps after the range are reached.
#[derive(PartialEq)]
enum Flow {
    Continues,
    Ends,
}

/// A task on its way through its program.
struct Follower<'a> {
    workload: &'a Workload,
    held: BTreeSet<LockId>,
    in_kernel: bool,
    preempt_count: u32,
}

impl Follower<'_> {
    fn follow(&mut self, steps: &[Step], range: Range<usize>) -> Result<Flow, (usize, CheckProblem)> {
        let mut index = range.start;
        while index < range.end {
            match &steps[index] {
                Step::LoopStart { times, end } => {
                    let end = *end as usize;
                    for _ in 0..times.unwrap_or(2).min(2) {
                        if self.follow(steps, index + 1..end)? == Flow::Ends {
                            return Ok(Flow::Ends);
                        }
                    }
                    if times.is_none() {
                        return Ok(Flow::Ends);
                    }
                    index = end;
                }
                Step::Exit | Step::Stop => return Ok(Flow::Ends),
                step => self.step(step).map_err(|problem| (index, problem))?,
            }
            index += 1;
        }
        Ok(Flow::Continues)
    }

    fn step(&mut self, step: &Step) -> Result<(), CheckProblem> {
        let name = |lock: LockId| self.workload.locks[lock.index()].clone();
        let kind = |lock: LockId| self.workload.latch_kind(lock);
        match *step {
            Step::LockShared(lock) if kind(lock) != LatchKind::Rwsem => {
                return Err(CheckProblem::NotShared { lock: name(lock) });
            }
            Step::Lock(lock) | Step::LockShared(lock) => {
                if kind(lock).is_of_kernel() && !self.in_kernel {
                    return Err(CheckProblem::LockedOutsideKernel { lock: name(lock) });
                }
                if kind(lock).is_of_kernel() && self.preempt_count > 0 {
                    return Err(CheckProblem::LockedWhileAtomic { lock: name(lock) });
                }
                if !self.held.insert(lock) {
                    return Err(CheckProblem::AlreadyHeld { lock: name(lock) });
                }
            }
            Step::Unlock(lock) if !self.held.remove(&lock) => return Err(CheckProblem::NotHeld { lock: name(lock) }),
            Step::Wait { lock, .. } | Step::SignalAndWait { lock, .. } => {
                if kind(lock).is_of_kernel() {
                    return Err(CheckProblem::WaitsWithLockOfKernel { lock: name(lock) });
                }
                if !self.held.contains(&lock) {
                    return Err(CheckProblem::NotHeld { lock: name(lock) });
                }
            }
            Step::Kernel(KernelStep::Enter) => self.in_kernel = true,
            Step::Kernel(KernelStep::Exit) => {
                self.in_kernel = false;
                if let Some(lock) = self.held.iter().find(|lock| kind(**lock).is_of_kernel()) {
                    return Err(CheckProblem::LeavesKernelWithLock { lock: name(*lock) });
                }
            }
            Step::Kernel(KernelStep::PreemptDisable) => self.preempt_count += 1,
            Step::Kernel(KernelStep::PreemptEnable) => self.preempt_count = self.preempt_count.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }
}
