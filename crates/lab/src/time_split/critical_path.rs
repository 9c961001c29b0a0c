//! What an end waited for, across threads: from the thread that ended last back to the one that woke it, from there to the one that woke
//! that, to the start of the run.
//!
//! The walk is done forwards, in constant memory: each task carries the times of the path that leads to its present moment. A task that is
//! woken by another one takes over that one's path, because it could not go on before; so does one that is created. A task that a timer or
//! an interrupt wakes has slept on its own path. What is left at the end is the path of the thread that ended last, and it has no waiting
//! for other threads in it: that is what those did meanwhile.
//!
//! Time on a CPU is not divided further, as events do not tell what it was; how much of it is the last thread's own, since the last handover, is
//! kept. A thread that waits actively is on its CPU.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};
use warmcore_trace::{Event, EventKind, Outcome, PrevState, Sink, TaskId};

/// The path to the end of the thread that ended last.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CriticalPath {
    /// How often it goes from one thread to another.
    pub handovers: u64,
    /// Nanoseconds by cause, from the start of the run to the end: `on_cpu`, `run_queue`, `throttled`, `sleeping` and
    /// `not_created`.
    pub spent_ns: BTreeMap<String, f64>,
    /// Nanoseconds of `on_cpu` after the last handover, so of the thread that ended last itself.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub own_cpu_ns: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
fn is_nothing(ns: &f64) -> bool {
    *ns == 0.0
}

/// What a path went to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PathTimes {
    on_cpu_ns: u64,
    /// Of these since the last handover.
    own_cpu_ns: u64,
    queued_ns: u64,
    throttled_ns: u64,
    slept_ns: u64,
    not_created_ns: u64,
    handovers: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PathState {
    Unborn,
    Queued,
    /// Kept from running by a quota or reservation.
    Throttled,
    Running,
    Off,
    Ended,
}

/// A task's path up to `since_ns`, and what it does from then on.
#[derive(Clone, Copy, Debug)]
struct Path {
    times: PathTimes,
    doing: PathState,
    since_ns: u64,
}

const UNBORN: Path = Path {
    times: PathTimes {
        on_cpu_ns: 0,
        own_cpu_ns: 0,
        queued_ns: 0,
        throttled_ns: 0,
        slept_ns: 0,
        not_created_ns: 0,
        handovers: 0,
    },
    doing: PathState::Unborn,
    since_ns: 0,
};

impl Path {
    /// Goes on to a time, at which the task begins something else.
    fn go_on(&mut self, now_ns: u64, doing: PathState) {
        let passed_ns = now_ns - self.since_ns.min(now_ns);
        match self.doing {
            PathState::Unborn => self.times.not_created_ns += passed_ns,
            PathState::Queued => self.times.queued_ns += passed_ns,
            PathState::Throttled => self.times.throttled_ns += passed_ns,
            PathState::Running => {
                self.times.on_cpu_ns += passed_ns;
                self.times.own_cpu_ns += passed_ns;
            }
            PathState::Off => self.times.slept_ns += passed_ns,
            PathState::Ended => return,
        }
        (self.doing, self.since_ns) = (doing, now_ns);
    }
}

/// Follows the paths of all tasks while events come.
#[derive(Debug, Default)]
pub(crate) struct CriticalPaths {
    paths: Vec<Path>,
    /// Tasks that a quota or reservation keeps from running.
    throttled: BTreeSet<TaskId>,
}

impl CriticalPaths {
    /// The path of the task that ended last; none if no task ended.
    pub(crate) fn of(&self, outcome: &Outcome) -> Option<CriticalPath> {
        let times = self.paths.get(super::ended_last(outcome)?.1)?.times;
        let spent = [
            ("on_cpu", times.on_cpu_ns),
            ("run_queue", times.queued_ns),
            ("throttled", times.throttled_ns),
            ("sleeping", times.slept_ns),
            ("not_created", times.not_created_ns),
        ];
        let spent = spent.into_iter().filter(|(_, ns)| *ns > 0);
        let spent_ns = spent.map(|(name, ns)| (name.to_owned(), ns as f64)).collect();
        Some(CriticalPath { handovers: times.handovers, spent_ns, own_cpu_ns: times.own_cpu_ns as f64 })
    }

    fn path(&mut self, task: TaskId) -> &mut Path {
        if task.index() >= self.paths.len() {
            self.paths.resize(task.index() + 1, UNBORN);
        }
        &mut self.paths[task.index()]
    }

    /// A task goes on because another one, which is on a CPU, lets it.
    fn hand_over(&mut self, from: TaskId, to: TaskId, now_ns: u64) {
        let giver = self.path(from);
        giver.go_on(now_ns, giver.doing);
        let times = PathTimes { handovers: giver.times.handovers + 1, own_cpu_ns: 0, ..giver.times };
        *self.path(to) = Path { times, doing: PathState::Queued, since_ns: now_ns };
    }

    fn event(&mut self, event: &Event) {
        let now_ns = event.time_ns;
        match event.kind {
            EventKind::Fork { parent, child } if parent.is_idle() => self.path(child).go_on(now_ns, PathState::Queued),
            EventKind::Fork { parent, child } => self.hand_over(parent, child, now_ns),
            EventKind::Waking { task, waker, .. } if self.path(task).doing == PathState::Off => {
                if waker.is_idle() || waker == task {
                    self.path(task).go_on(now_ns, PathState::Queued);
                } else {
                    self.hand_over(waker, task, now_ns);
                }
            }
            // A trace without the waking before it.
            EventKind::Wakeup { task, .. } if matches!(self.path(task).doing, PathState::Off | PathState::Unborn) => {
                self.path(task).go_on(now_ns, PathState::Queued);
            }
            EventKind::Switch { prev, prev_state, next } => {
                if !prev.is_idle() {
                    let doing = match prev_state {
                        PrevState::Sleeping => PathState::Off,
                        PrevState::Dead => PathState::Ended,
                        _ if self.throttled.contains(&prev) => PathState::Throttled,
                        PrevState::Runnable | PrevState::Idle => PathState::Queued,
                    };
                    self.path(prev).go_on(now_ns, doing);
                }
                if !next.is_idle() {
                    self.path(next).go_on(now_ns, PathState::Running);
                }
            }
            EventKind::Throttle { task, throttled } => {
                if throttled.is_some() {
                    self.throttled.insert(task);
                } else {
                    self.throttled.remove(&task);
                }
                match self.path(task).doing {
                    PathState::Queued if throttled.is_some() => self.path(task).go_on(now_ns, PathState::Throttled),
                    PathState::Throttled if throttled.is_none() => self.path(task).go_on(now_ns, PathState::Queued),
                    _ => {}
                }
            }
            EventKind::Exit { task } => self.path(task).go_on(now_ns, PathState::Ended),
            _ => {}
        }
    }
}

impl Sink for CriticalPaths {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        batch.iter().for_each(|event| self.event(event));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::CpuId;
    use warmcore_trace::Throttler;

    fn switch(prev: TaskId, prev_state: PrevState, next: TaskId) -> EventKind {
        EventKind::Switch { prev, prev_state, next }
    }

    #[test]
    fn the_path_of_a_thread_is_that_of_whom_it_waited_for_and_has_no_waiting_in_it() {
        let (a, b) = (TaskId(0), TaskId(1));
        let waking = |task, waker| EventKind::Waking { task, target_cpu: CpuId(0), waker };
        let events = [
            // Both are created at 5; a runs from 5 on one CPU, b from 15 on another, and soon waits for a.
            (5, EventKind::Fork { parent: TaskId::IDLE, child: a }),
            (5, EventKind::Fork { parent: TaskId::IDLE, child: b }),
            (5, switch(TaskId::IDLE, PrevState::Idle, a)),
            (15, switch(TaskId::IDLE, PrevState::Idle, b)),
            (20, switch(b, PrevState::Sleeping, TaskId::IDLE)),
            // a sleeps from 105 to 205 by a timer, waits 10 for a CPU, and wakes b at 300.
            (105, switch(a, PrevState::Sleeping, TaskId::IDLE)),
            (205, waking(a, TaskId::IDLE)),
            (215, switch(TaskId::IDLE, PrevState::Idle, a)),
            (300, waking(b, a)),
            (330, switch(TaskId::IDLE, PrevState::Idle, b)),
            (340, EventKind::Exit { task: a }),
            (350, EventKind::Exit { task: b }),
        ];
        let mut paths = CriticalPaths::default();
        let events = events.map(|(time_ns, kind)| Event { time_ns, cpu: CpuId(0), kind });
        paths.events(&events).unwrap();
        let times = |task: TaskId| paths.paths[task.index()].times;
        let of_a = PathTimes {
            on_cpu_ns: 100 + 125,
            own_cpu_ns: 100 + 125,
            queued_ns: 10,
            slept_ns: 100,
            not_created_ns: 5,
            ..PathTimes::default()
        };
        assert_eq!(times(a), of_a);
        let of_b = PathTimes {
            on_cpu_ns: 100 + 85 + 20,
            own_cpu_ns: 20,
            queued_ns: 10 + 30,
            throttled_ns: 0,
            slept_ns: 100,
            not_created_ns: 5,
            handovers: 1,
        };
        assert_eq!(times(b), of_b, "a's path up to 300, then its own");
    }

    #[test]
    fn what_a_quota_takes_is_no_waiting_for_a_cpu() {
        let a = TaskId(0);
        let quota = |throttled: bool| EventKind::Throttle { task: a, throttled: throttled.then_some(Throttler::Quota) };
        let events = [
            (0, EventKind::Fork { parent: TaskId::IDLE, child: a }),
            (0, switch(TaskId::IDLE, PrevState::Idle, a)),
            (20, quota(true)),
            (20, switch(a, PrevState::Runnable, TaskId::IDLE)),
            (100, quota(false)),
            (103, switch(TaskId::IDLE, PrevState::Idle, a)),
            (110, EventKind::Exit { task: a }),
        ];
        let mut paths = CriticalPaths::default();
        paths.events(&events.map(|(time_ns, kind)| Event { time_ns, cpu: CpuId(0), kind })).unwrap();
        let expected =
            PathTimes { on_cpu_ns: 20 + 7, own_cpu_ns: 20 + 7, queued_ns: 3, throttled_ns: 80, ..PathTimes::default() };
        assert_eq!(paths.paths[0].times, expected);
    }
}
