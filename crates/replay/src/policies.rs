//! What the kernel's number of a thread's priority says of its policy.
//!
//! Source: `include/linux/sched/prio.h` (`MAX_DL_PRIO`, `MAX_RT_PRIO`, `DEFAULT_PRIO`), Linux 6.18.

use serde::Serialize;
use warmcore_workload::Policy;

use crate::history::Histories;

/// Above the priorities of all real-time tasks: that of deadline tasks.
const DEADLINE: i32 = -1;

/// The kernel's number of the lowest real-time priority, which is 1.
const LEAST_REALTIME: i32 = 98;

/// The number of a fair task of nice value 0.
const NICE_ZERO: i32 = 120;

/// Policy and nice value of a task in place of a thread. Which of both real-time policies it had is not recorded, nor what a deadline task reserved:
/// that goes before all others, as `SCHED_FIFO` of the highest priority does.
pub(crate) fn of_priority(priority: Option<i32>) -> (Policy, i8) {
    match priority {
        Some(DEADLINE) => (Policy::Fifo { priority: 99 }, 0),
        Some(number @ 0..=LEAST_REALTIME) => (Policy::Fifo { priority: (LEAST_REALTIME + 1 - number) as u8 }, 0),
        Some(number @ 100..=139) => (Policy::Normal, (number - NICE_ZERO) as i8),
        _ => (Policy::Normal, 0),
    }
}

/// What tells threads of one name apart, so that those of one task have one policy and nice value; `None` of ordinary ones.
pub(crate) fn apart(priority: Option<i32>) -> Option<i32> {
    priority.filter(|number| of_priority(Some(*number)) != (Policy::Normal, 0)).map(|number| number.max(0))
}

/// Threads that were no fair tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Realtime {
    /// With a real-time priority.
    pub fixed: u32,
    /// Of `SCHED_DEADLINE`.
    pub deadline: u32,
}

impl Realtime {
    /// Those of histories that did something; `None` if there are none.
    pub(crate) fn of(histories: &Histories) -> Option<Self> {
        let active = histories.threads.values().filter(|history| history.did_something());
        let mut found = Self::default();
        for priority in active.filter_map(|history| history.priority) {
            match priority {
                DEADLINE => found.deadline += 1,
                0..=LEAST_REALTIME => found.fixed += 1,
                _ => {}
            }
        }
        (found != Self::default()).then_some(found)
    }

    pub(crate) fn sentences(self) -> impl Iterator<Item = String> {
        let fixed = (self.fixed > 0).then(|| {
            format!(
                "{} threads had a real-time priority: they are tasks of SCHED_FIFO with that priority, whether they were of SCHED_FIFO or of SCHED_RR",
                self.fixed
            )
        });
        let deadline = (self.deadline > 0).then(|| {
            format!(
                "{} threads were of SCHED_DEADLINE, and what they had reserved is not recorded: they are tasks of SCHED_FIFO with priority 99",
                self.deadline
            )
        });
        fixed.into_iter().chain(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::history::tests::run;
    use crate::overheads::Overheads;
    use warmcore_capture::Recording;

    #[test]
    fn a_kernels_number_is_a_policy_and_a_nice_value() {
        let fifo = |priority| (Policy::Fifo { priority }, 0);
        let nice = |nice| (Policy::Normal, nice);
        let numbers = [(-1, fifo(99)), (0, fifo(99)), (49, fifo(50)), (98, fifo(1)), (99, nice(0))];
        let fair = [(100, nice(-20)), (120, nice(0)), (139, nice(19)), (140, nice(0))];
        for (number, expected) in numbers.into_iter().chain(fair) {
            assert_eq!(of_priority(Some(number)), expected, "{number}");
        }
        assert_eq!(of_priority(None), nice(0));
        assert_eq!([None, Some(120), Some(-1), Some(125)].map(apart), [None, None, Some(0), Some(125)]);
    }

    #[test]
    fn a_replayed_thread_has_the_policy_and_the_nice_value_that_it_had() {
        let thread = |priority| History {
            name: "worker".into(),
            cpu_ns: 9,
            actions: vec![run(9)],
            priority,
            ..History::default()
        };
        let threads = [(1, thread(Some(49))), (2, thread(Some(125))), (3, thread(Some(-1))), (4, thread(None))];
        let histories = Histories { threads: threads.into(), span_ns: 1_000_000, ..Histories::default() };
        let made = crate::workload::replay("recorded", &histories, &Recording::default(), Overheads::default());
        let tasks: Vec<_> = made.workload.tasks.iter().map(|task| (task.policy, task.nice)).collect();
        assert_eq!(tasks, [Some(49), Some(125), Some(-1), None].map(of_priority));
        let said = made.fidelity.reservations();
        assert!(said[0].starts_with("1 threads had a real-time priority"), "{said:?}");
        assert!(said[1].starts_with("1 threads were of SCHED_DEADLINE"), "{said:?}");
        let text = warmcore_workload::to_rtapp(&made.workload).unwrap();
        let read = warmcore_workload::from_rtapp("recorded", &text, &Default::default()).unwrap();
        assert_eq!(read.tasks, made.workload.tasks, "a file holds all of it");
    }
}
