//! With which priority each thread was switched to and from.
//!
//! Source: `include/linux/sched/prio.h` (`MAX_DL_PRIO`, `MAX_RT_PRIO`, `DEFAULT_PRIO`), Linux 6.18.

use std::collections::BTreeMap;

use crate::recording::Recording;

/// The kernel's numbers: −1 of deadline tasks, 0 to 98 of real-time ones (99 less their priority), 100 to 139 of fair ones (120 and their nice
/// value).
const KNOWN: std::ops::RangeInclusive<i32> = -1..=139;

/// How often switches had each thread at each priority.
#[derive(Clone, Debug, Default)]
pub struct Priorities(BTreeMap<i32, BTreeMap<i32, u64>>);

impl Priorities {
    /// Takes what a switch says of one of its threads. The idle threads, and numbers that no kernel has, are passed over.
    pub fn take(&mut self, thread: i32, priority: i32) {
        if thread > 0 && KNOWN.contains(&priority) {
            *self.0.entry(thread).or_default().entry(priority).or_default() += 1;
        }
    }

    /// Gives a recording the one that each thread had most often: it may inherit another one for a while, and a program may set its own after
    /// it has begun. Of two that are as frequent the less urgent.
    pub(crate) fn apply(&self, recording: &mut Recording) {
        for (thread, counts) in &self.0 {
            let most = counts.iter().max_by_key(|(priority, count)| (**count, **priority));
            recording.priorities.extend(most.map(|(priority, _)| (*thread, *priority)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_priority_that_it_had_most_often() {
        let mut priorities = Priorities::default();
        let seen = [(7, 120), (7, 49), (7, 49), (8, 120), (8, 49), (9, -1), (0, 120), (10, 140), (11, -2)];
        seen.into_iter().for_each(|(thread, priority)| priorities.take(thread, priority));
        let mut recording = Recording::default();
        priorities.apply(&mut recording);
        assert_eq!(recording.priorities, BTreeMap::from([(7, 49), (8, 120), (9, -1)]));
    }
}
