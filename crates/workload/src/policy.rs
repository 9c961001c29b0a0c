//! Scheduling policies of tasks, with the parameters that `sched_setattr` takes.
//!
//! Ranges: Linux 7.2, `__checkparam_dl` in `kernel/sched/deadline.c` and `__sched_setscheduler` in `kernel/sched/syscalls.c`.

use std::collections::BTreeSet;

use crate::{Step, Task, Workload, format_duration};

/// Scheduling policy of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// `SCHED_OTHER` (the kernel's `SCHED_NORMAL`).
    #[default]
    Normal,
    /// `SCHED_BATCH`: never preempts on wakeup.
    Batch,
    /// `SCHED_IDLE`: weight 3, runs when nothing else does.
    Idle,
    /// `SCHED_EXT`: the one that a sched_ext program in partial mode (`SCX_OPS_SWITCH_PARTIAL`) schedules; as `SCHED_OTHER` without one.
    Ext,
    /// `SCHED_FIFO`: above all of the former, runs until it blocks, yields or a higher priority is runnable.
    Fifo {
        /// 1 (lowest) to 99.
        priority: u8,
    },
    /// `SCHED_RR`: as `SCHED_FIFO`, in turns of 100 ms with tasks of its priority.
    RoundRobin {
        /// 1 (lowest) to 99.
        priority: u8,
    },
    /// `SCHED_DEADLINE`: above all of the former, earliest deadline first, within its reservation.
    Deadline(Reservation),
}

/// CPU time that a `SCHED_DEADLINE` task is promised and limited to: so much within the deadline, once a period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reservation {
    /// CPU time of each period, in nanoseconds at the speed of a CPU of capacity 1024.
    pub runtime_ns: u64,
    /// By when it is there, counted from the beginning of a period.
    pub deadline_ns: u64,
    /// From one period to the next.
    pub period_ns: u64,
}

/// What no kernel would accept as a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum PolicyError {
    #[error("priority {priority} is out of range 1..=99 of SCHED_FIFO and SCHED_RR; 1 is the lowest, 99 the highest")]
    Priority { priority: u8 },
    #[error(
        "SCHED_DEADLINE needs runtime ≤ deadline ≤ period, not {} ≤ {} ≤ {}; without a deadline it is the period",
        format_duration(.0.runtime_ns), format_duration(.0.deadline_ns), format_duration(.0.period_ns)
    )]
    Order(Reservation),
    #[error(
        "a SCHED_DEADLINE task needs a runtime of {} ns at least, not {runtime_ns} ns; state \"dl-runtime\" in microseconds",
        Reservation::LEAST_RUNTIME_NS
    )]
    Runtime { runtime_ns: u64 },
    #[error(
        "a SCHED_DEADLINE task's period is {} to {}, not {}", format_duration(Reservation::LEAST_PERIOD_NS),
        format_duration(Reservation::LONGEST_PERIOD_NS), format_duration(*period_ns)
    )]
    Period { period_ns: u64 },
}

impl Policy {
    /// Whether it is above every fair policy: `SCHED_FIFO`, `SCHED_RR` and `SCHED_DEADLINE`.
    #[inline]
    pub const fn is_realtime(self) -> bool {
        matches!(self, Policy::Fifo { .. } | Policy::RoundRobin { .. } | Policy::Deadline(_))
    }

    /// Whether it is [`Policy::Deadline`].
    #[inline]
    pub const fn is_deadline(self) -> bool {
        matches!(self, Policy::Deadline(_))
    }

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Normal => "SCHED_OTHER",
            Policy::Batch => "SCHED_BATCH",
            Policy::Idle => "SCHED_IDLE",
            Policy::Ext => "SCHED_EXT",
            Policy::Fifo { .. } => "SCHED_FIFO",
            Policy::RoundRobin { .. } => "SCHED_RR",
            Policy::Deadline(_) => "SCHED_DEADLINE",
        }
    }

    /// Checks the parameters, as `sched_setattr` does.
    ///
    /// # Errors
    /// A priority out of range, or a reservation that no kernel accepts.
    pub fn check(self) -> Result<(), PolicyError> {
        match self {
            Policy::Fifo { priority } | Policy::RoundRobin { priority } if !(1..=99).contains(&priority) => {
                Err(PolicyError::Priority { priority })
            }
            Policy::Deadline(reservation) => reservation.check(),
            _ => Ok(()),
        }
    }
}

impl Reservation {
    /// Least runtime (`1 << DL_SCALE`).
    pub const LEAST_RUNTIME_NS: u64 = 1024;
    /// Least period (`sched_deadline_period_min_us`).
    pub const LEAST_PERIOD_NS: u64 = 100_000;
    /// Longest period (`sched_deadline_period_max_us`).
    pub const LONGEST_PERIOD_NS: u64 = (1 << 22) * 1_000;
    /// What a whole CPU is in [`Reservation::bandwidth`] (`BW_UNIT`).
    pub const WHOLE_CPU: u64 = 1 << 20;

    /// Share of a CPU, in units of 1/1048576 (`to_ratio`).
    pub const fn bandwidth(self) -> u64 {
        (self.runtime_ns << 20) / self.period_ns
    }

    fn check(self) -> Result<(), PolicyError> {
        let Self { runtime_ns, deadline_ns, period_ns } = self;
        if runtime_ns < Self::LEAST_RUNTIME_NS {
            return Err(PolicyError::Runtime { runtime_ns });
        }
        if runtime_ns > deadline_ns || deadline_ns > period_ns {
            return Err(PolicyError::Order(self));
        }
        if !(Self::LEAST_PERIOD_NS..=Self::LONGEST_PERIOD_NS).contains(&period_ns) {
            return Err(PolicyError::Period { period_ns });
        }
        Ok(())
    }
}

impl Workload {
    /// Policies that a template's tasks have, now or later.
    pub fn policies_of<'a>(&'a self, task: &'a Task) -> impl Iterator<Item = Policy> + 'a {
        let changes = self.programs[task.program.index()].steps.iter().filter_map(|step| match step {
            Step::SetPolicy(policy) => Some(*policy),
            _ => None,
        });
        std::iter::once(task.policy).chain(changes)
    }

    /// Whether there are tasks of `SCHED_FIFO`, `SCHED_RR` or `SCHED_DEADLINE`, now or later.
    pub fn has_realtime(&self) -> bool {
        self.tasks.iter().any(|task| self.policies_of(task).any(Policy::is_realtime))
    }

    /// Whether there are tasks that ask for more or less CPU time than others, or than they did before: of two nice values, or of `SCHED_IDLE`
    /// beside others. Real-time and deadline tasks ask otherwise.
    pub fn has_weights(&self) -> bool {
        // The nice value; none where it is no weight.
        let mut weights: BTreeSet<Option<i8>> = BTreeSet::new();
        for task in &self.tasks {
            let later = self.programs[task.program.index()].steps.iter().filter_map(|step| match step {
                Step::SetNice(nice) => Some(*nice),
                _ => None,
            });
            let values: Vec<Option<i8>> = std::iter::once(task.nice).chain(later).map(Some).collect();
            for policy in self.policies_of(task).filter(|policy| !policy.is_realtime()) {
                match policy {
                    Policy::Idle => _ = weights.insert(None),
                    _ => weights.extend(&values),
                }
            }
        }
        weights.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, from_generator, from_rtapp};

    #[test]
    fn equal_tasks_have_no_weights_and_unequal_ones_or_a_change_do() {
        let tasks = |text: &str| {
            from_rtapp("test", &format!(r#"{{ "tasks": {{ {text} }} }}"#), &Options::default()).unwrap().has_weights()
        };
        let beside = r#""b": { "loop": 1, "run": 5 }"#;
        let nice = r#""a": { "instance": 4, "priority": 5, "loop": 1, "run": 5 }"#;
        let idle = r#""a": { "instance": 4, "policy": "SCHED_IDLE", "loop": 1, "run": 5 }"#;
        for text in [beside, nice, idle] {
            assert!(!tasks(text), "{text}");
        }
        assert!(tasks(&format!("{nice}, {beside}")) && tasks(&format!("{idle}, {beside}")));
        let above = r#""a": { "policy": "SCHED_FIFO", "priority": 50, "loop": 1, "run": 5 }"#;
        assert!(!tasks(&format!("{above}, {beside}")), "it is above all weights");
        assert!(from_generator("spin:-n2,-N0:5,-d1ms").unwrap().has_weights());
        assert!(!from_generator("spin:-n2,-N5,-d1ms").unwrap().has_weights());
        let renices = |to: i8| {
            let text = format!(
                r#"{{ "tasks": {{ "a": {{ "instance": 0 }} }}, "warmcore": {{ "tasks": {{ "a": {{ "instances": 1,
                "program": [ {{ "run_ns": 5 }}, {{ "nice": {to} }}, {{ "run_ns": 5 }} ] }} }} }} }}"#
            );
            from_rtapp("test", &text, &Options::default()).unwrap().has_weights()
        };
        assert!(renices(5) && !renices(0), "to the value that it has");
    }
}
