//! Tasks that a quota or reservation keeps from running are in no CPU's queue.

use warmcore_topology::CpuId;
use warmcore_trace::{Event, EventKind, PrevState, TaskId};

/// Follows which runnable tasks a quota or reservation keeps out of queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttled(Vec<bool>);

impl Throttled {
    /// Takes the next event, given whether a task is in a queue or runs. A task that leaves its queue for a quota, or joins that of a CPU.
    pub(crate) fn push(
        &mut self,
        event: &Event,
        is_queued: impl Fn(TaskId) -> bool,
    ) -> Option<(TaskId, Option<CpuId>)> {
        match event.kind {
            EventKind::Throttle { task, throttled: Some(_) } if is_queued(task) => {
                if task.index() >= self.0.len() {
                    self.0.resize(task.index() + 1, false);
                }
                self.0[task.index()] = true;
                Some((task, None))
            }
            EventKind::Throttle { task, throttled: None } => self.take(task).then_some((task, Some(event.cpu))),
            EventKind::Switch { prev, prev_state, next } => {
                if matches!(prev_state, PrevState::Sleeping | PrevState::Dead) {
                    self.take(prev);
                }
                self.take(next);
                None
            }
            EventKind::Exit { task } => {
                self.take(task);
                None
            }
            _ => None,
        }
    }

    fn take(&mut self, task: TaskId) -> bool {
        self.0.get_mut(task.index()).is_some_and(std::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_trace::Throttler;

    #[test]
    fn a_task_leaves_its_queue_for_a_quota_and_joins_one_where_it_may_run_again() {
        let mut throttled = Throttled::default();
        let task = TaskId(3);
        let mut push = |kind, queued| throttled.push(&Event { time_ns: 0, cpu: CpuId(5), kind }, |_| queued);
        let quota = |throttled: bool| EventKind::Throttle { task, throttled: throttled.then_some(Throttler::Quota) };
        assert_eq!(push(quota(true), true), Some((task, None)));
        let leaves = |prev_state| EventKind::Switch { prev: task, prev_state, next: TaskId::IDLE };
        assert_eq!(push(leaves(PrevState::Runnable), false), None);
        assert_eq!(push(quota(false), false), Some((task, Some(CpuId(5)))));
        // One that sleeps joins no queue.
        assert_eq!(push(quota(true), true), Some((task, None)));
        assert_eq!(push(leaves(PrevState::Sleeping), false), None);
        assert_eq!(push(quota(false), false), None);
    }
}
