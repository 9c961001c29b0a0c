//! The sets that a task used lately, for policies that compare tasks by them.
//!
//! Of one cache level, or of whichever had the line, the index of the set of every access to it: for the L1 of every touch, for the L2 of every touch that the L1 did
//! not settle, for the LLC of every touch that its core did not settle. Mixed levels are those that answered. The latest ones are kept, in a window of a given length, and
//! go with the task from CPU to CPU. Indexes of two cores' caches are comparable because all caches of a level hash alike; where
//! their numbers of sets differ, the larger one has indexes that the smaller one has not.
//!
//! Source: `docs/spec/cdf-dio.md` section 3.4. No hardware records this.

use super::counters::ClassCounters;
use super::domain::Domain;
use super::task::Task;

/// Which cache's sets are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistoryLevel {
    /// The core's L1.
    L1,
    /// The core's L2; where there is none the LLC.
    L2,
    /// The LLC.
    Llc,
    /// That of the cache which had the line, the LLC's also where another core under it did; of what came from farther away the L1's. Indexes of
    /// levels of different size in one window, as the published program of CDF has them.
    Mixed,
}

/// What is recorded of each task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistorySpec {
    /// Of which cache.
    pub level: HistoryLevel,
    /// How many accesses, at least 1.
    pub window: u32,
}

/// The latest set indexes of a task.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) level: HistoryLevel,
    window: usize,
    /// As many as there have been, at most the window; then the oldest one is at `next`.
    sets: Vec<u32>,
    next: usize,
}

impl History {
    pub(crate) fn new(spec: HistorySpec) -> Self {
        let window = spec.window.max(1) as usize;
        Self { level: spec.level, window, sets: Vec::with_capacity(window), next: 0 }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, set: u32) {
        if self.sets.len() < self.window {
            self.sets.push(set);
        } else {
            self.sets[self.next] = set;
            self.next = if self.next + 1 == self.window { 0 } else { self.next + 1 };
        }
    }

    pub(crate) fn extend(&mut self, sets: &[u32]) {
        let last = &sets[sets.len().saturating_sub(self.window)..];
        last.iter().for_each(|set| self.push(*set));
    }

    /// The oldest first.
    pub(crate) fn copy_to(&self, sets: &mut Vec<u32>) {
        sets.clear();
        sets.extend_from_slice(&self.sets[self.next..]);
        sets.extend_from_slice(&self.sets[..self.next]);
    }
}

/// How many touches of a class were served where.
#[derive(Clone, Copy, Default)]
pub(crate) struct Served {
    by_l2: u64,
    /// By the LLC, or by another core under it.
    by_llc: u64,
    beyond_core: u64,
}

impl Served {
    pub(crate) fn of(counters: &ClassCounters) -> Self {
        Self {
            by_l2: counters.l2_hits,
            by_llc: counters.llc_hits + counters.same_llc_transfers,
            beyond_core: counters.l2_misses(),
        }
    }
}

impl Domain {
    /// Notes the set of a touch that the L1 did not settle, given what its class had been served before it.
    #[inline(never)]
    pub(super) fn record_event(
        &mut self,
        task: &mut Task,
        class: usize,
        position: usize,
        l1_hit: bool,
        before: Served,
    ) {
        let Some(history) = &mut task.history else { return };
        let now = Served::of(&task.counters[class]);
        let line = self.scratch.lines[position];
        match history.level {
            HistoryLevel::L1 => {}
            HistoryLevel::L2 => {
                let has_l2 = self.cores[usize::from(task.core)].l2.is_some();
                history.push(if has_l2 { self.scratch.sets[position] } else { self.llc.set_of(line) });
            }
            HistoryLevel::Llc if now.beyond_core > before.beyond_core => history.push(self.llc.set_of(line)),
            HistoryLevel::Llc => {}
            // What waits for the LLC is noted there.
            HistoryLevel::Mixed if now.by_l2 > before.by_l2 && !l1_hit => {
                self.scratch.found[position] = self.scratch.sets[position];
            }
            HistoryLevel::Mixed if now.by_llc > before.by_llc => self.scratch.found[position] = self.llc.set_of(line),
            HistoryLevel::Mixed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_the_latest_in_order() {
        for window in [1, 3, 7, 100] {
            let mut history = History::new(HistorySpec { level: HistoryLevel::L1, window });
            let (mut all, mut held) = (Vec::new(), Vec::new());
            for block in [1_usize, 5, 32, 3, 32] {
                let sets: Vec<u32> = (0..block as u32).map(|set| set + all.len() as u32).collect();
                history.extend(&sets);
                all.extend(sets);
                history.copy_to(&mut held);
                assert_eq!(held, all[all.len().saturating_sub(window as usize)..], "{window}");
            }
        }
    }
}
