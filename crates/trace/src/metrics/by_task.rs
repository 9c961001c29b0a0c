//! Wakeup latencies and response times of each task as counts, from which percentiles over some of the tasks follow.

use crate::TaskId;
use crate::histogram::{Histogram, bucket_of, upper_edge};

/// Buckets that are kept together: those of a power of two.
const PAGE: usize = 64;

/// Most tasks whose values are kept, 1 to 5 KB each: a run may create tasks without end.
pub(super) const MOST_TASKS: usize = 4096;

/// Counts by the buckets of a [`Histogram`], of values that fill few of them.
#[derive(Clone, Debug, Default)]
struct Sparse {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
}

impl Sparse {
    #[inline]
    fn record(&mut self, value_ns: u64) {
        let bucket = bucket_of(value_ns);
        let page = bucket / PAGE;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let count = &mut self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]))[bucket % PAGE];
        *count = count.saturating_add(1);
    }

    /// Adds each value as the upper edge of its bucket.
    fn add_to(&self, histogram: &mut Histogram) {
        for (number, page) in self.pages.iter().enumerate() {
            for (place, &count) in page.iter().flat_map(|page| page.iter()).enumerate().filter(|(_, count)| **count > 0)
            {
                histogram.record_n(upper_edge(number * PAGE + place), u64::from(count));
            }
        }
    }
}

/// What a value of a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Wakeup,
    Response,
}

/// The values of all tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct ByTask {
    tasks: Vec<[Sparse; 2]>,
}

impl ByTask {
    /// Adds a value of the task of this number, but for tasks beyond [`MOST_TASKS`].
    #[inline]
    pub(super) fn record(&mut self, task: usize, of: Of, value_ns: u64) {
        if task >= self.tasks.len() {
            if task >= MOST_TASKS {
                return;
            }
            self.tasks.resize_with(task + 1, Default::default);
        }
        self.tasks[task][of as usize].record(value_ns);
    }

    pub(super) fn clear(&mut self) {
        self.tasks.clear();
    }

    /// Wakeup latencies and response times of these tasks together; `None` if one of them is beyond [`MOST_TASKS`].
    pub(super) fn together(&self, tasks: &[TaskId]) -> Option<[Histogram; 2]> {
        let mut both = [Histogram::new(), Histogram::new()];
        for task in tasks {
            if task.index() >= MOST_TASKS {
                return None;
            }
            for (of_task, histogram) in self.tasks.get(task.index()).into_iter().flatten().zip(&mut both) {
                of_task.add_to(histogram);
            }
        }
        Some(both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 99 waits of 100 ns and one of a second of one task, 100 of 5 us of another.
    #[test]
    fn percentiles_are_of_the_tasks_that_are_asked_about() {
        let mut waits = ByTask::default();
        (0..99).for_each(|_| waits.record(0, Of::Wakeup, 100));
        waits.record(0, Of::Wakeup, 1_000_000_000);
        (0..100).for_each(|_| waits.record(7, Of::Wakeup, 5_000));
        waits.record(7, Of::Response, 3);
        let p99 = |tasks: &[TaskId]| {
            let [wakeup, response] = waits.together(tasks).unwrap();
            (wakeup.count(), wakeup.quantile(0.99).unwrap(), response.count())
        };
        assert_eq!(p99(&[TaskId(0)]), (100, 100, 0));
        let (count, of_second, responses) = p99(&[TaskId(7)]);
        assert!(count == 100 && responses == 1 && (5_000..=5_000 + 5_000 / 64).contains(&of_second), "{of_second}");
        assert_eq!(p99(&[TaskId(0), TaskId(7)]).0, 200);
        assert!(waits.together(&[TaskId(3)]).unwrap()[0].is_empty());
        waits.record(MOST_TASKS, Of::Wakeup, 1);
        assert!(waits.together(&[TaskId(MOST_TASKS as u32)]).is_none(), "not kept, and so not told");
    }
}
