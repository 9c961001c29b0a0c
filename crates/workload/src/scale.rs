//! More or fewer of a workload's tasks: each kind in the same proportion, as far as they do not count each other.

use crate::{Step, Workload, WorkloadError};

/// The text and the percentage of `FILE@150%`.
pub(crate) fn scaled(spec: &str) -> Option<(&str, u32)> {
    let (text, percent) = spec.strip_suffix('%')?.rsplit_once('@')?;
    percent.parse().ok().filter(|percent| (1..=MAX_PERCENT).contains(percent)).map(|percent| (text, percent))
}

/// The largest percentage.
pub(crate) const MAX_PERCENT: u32 = 10_000_000;

/// By how much a whole number may differ from the share of instances that was asked for, without a warning.
const LARGEST_ROUNDING: f64 = 0.05;

impl Workload {
    /// The workload with so many per cent of the instances of each of its tasks, rounded, and at least one. Tasks that others create follow
    /// from these.
    ///
    /// # Errors
    /// Where tasks wait for each other, so that how many there are is a part of what they do.
    pub(crate) fn with_instances(mut self, percent: u32) -> Result<Self, WorkloadError> {
        self.check_independent()?;
        let mut other = Vec::new();
        for task in self.tasks.iter_mut().filter(|task| task.instances > 0) {
            let scaled = (u64::from(task.instances) * u64::from(percent) + 50) / 100;
            let scaled = u32::try_from(scaled).unwrap_or(u32::MAX).max(1);
            let exact = f64::from(task.instances) * f64::from(percent) / 100.0;
            if (f64::from(scaled) / exact - 1.0).abs() > LARGEST_ROUNDING {
                other.push(format!("{} {} of {}", task.name, scaled, task.instances));
            }
            task.instances = scaled;
        }
        if !other.is_empty() {
            let consequence = format!("numbers are whole: {}", other.join(", "));
            self.warn(format!("exactly {percent} % of each task's instances"), consequence);
        }
        Ok(self)
    }

    /// The workload with one more or one less of the task that it has most instances of; `None` where one less would be none.
    ///
    /// # Errors
    /// Where tasks wait for each other, so that how many there are is a part of what they do.
    pub fn with_one(mut self, more: bool) -> Result<Option<Self>, WorkloadError> {
        self.check_independent()?;
        let most = self.tasks.iter().map(|task| task.instances).max().unwrap_or(0);
        let Some(task) = self.tasks.iter_mut().find(|task| task.instances == most && most > 0) else { return Ok(None) };
        task.instances = if more { most.saturating_add(1) } else { most - 1 };
        Ok((task.instances > 0).then_some(self))
    }

    /// Refuses workloads in which how many tasks there are is a part of what they do.
    fn check_independent(&self) -> Result<(), WorkloadError> {
        for task in &self.tasks {
            let steps = &self.programs[task.program.index()].steps;
            if let Some(what) = steps.iter().find_map(counts_others) {
                return Err(WorkloadError::Fixed { task: task.name.clone(), what });
            }
        }
        Ok(())
    }
}

/// By what a step makes its task depend on a certain number of others.
fn counts_others(step: &Step) -> Option<&'static str> {
    match step {
        Step::Barrier(_) => Some("a barrier"),
        Step::Wait { .. } | Step::Signal(_) | Step::Broadcast(_) | Step::SignalAndWait { .. } => Some("a condition"),
        Step::Suspend | Step::Resume(_) => Some("suspending and resuming by name"),
        Step::SemPost(_) | Step::SemWait(_) | Step::SemTake { .. } | Step::Submit { .. } | Step::Work { .. } => {
            Some("a semaphore")
        }
        Step::Send { .. } | Step::Receive { .. } => Some("messages"),
        Step::Enlist { .. } | Step::Serve(_) => Some("a list of waiters"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, from_rtapp};

    fn workload(text: &str) -> Workload {
        from_rtapp("w", text, &Options::default()).unwrap()
    }

    #[test]
    fn every_kind_of_task_grows_in_proportion_and_none_goes() {
        let text = r#"{ "tasks": { "a": { "instance": 4, "loop": 2, "lock": "m", "run": 10, "unlock": "m" }, "b": { "loop": 2, "run": 10 } } }"#;
        let instances = |percent| {
            let scaled = workload(text).with_instances(percent).unwrap();
            scaled.tasks.iter().map(|task| task.instances).collect::<Vec<_>>()
        };
        assert_eq!([instances(100), instances(250), instances(10)], [vec![4, 1], vec![10, 3], vec![1, 1]]);
        // What cannot be in proportion is said.
        let warnings = |percent| workload(text).with_instances(percent).unwrap().warnings;
        assert!(warnings(100).is_empty() && warnings(200).is_empty());
        assert_eq!(warnings(10)[0].consequence, "numbers are whole: a 1 of 4, b 1 of 1");
        assert_eq!(warnings(250)[0].consequence, "numbers are whole: b 3 of 1");
    }

    #[test]
    fn tasks_that_wait_for_each_other_are_refused_by_name() {
        let text = r#"{ "tasks": { "a": { "instance": 2, "loop": 2, "run": 10, "barrier": "b" } } }"#;
        let error = workload(text).with_instances(200).unwrap_err().to_string();
        assert!(error.contains("task `a`") && error.contains("a barrier"), "{error}");
    }

    #[test]
    fn one_more_or_less_is_of_the_most_frequent_task() {
        let text = r#"{ "tasks": { "a": { "loop": 2, "run": 10 }, "b": { "instance": 3, "loop": 2, "run": 10 } } }"#;
        let instances = |more| {
            let beside = workload(text).with_one(more).unwrap().unwrap();
            beside.tasks.iter().map(|task| task.instances).collect::<Vec<_>>()
        };
        assert_eq!([instances(true), instances(false)], [vec![1, 4], vec![1, 2]]);
        let alone = r#"{ "tasks": { "a": { "loop": 2, "run": 10 } } }"#;
        assert_eq!(workload(alone).with_one(false).unwrap(), None);
    }

    #[test]
    fn a_percentage_stands_after_the_last_at_sign() {
        assert_eq!(scaled("a@b.json@150%"), Some(("a@b.json", 150)));
        assert_eq!((scaled("a.json"), scaled("a.json@0%"), scaled("a.json@x%")), (None, None, None));
    }
}
