//! The sets that a task used lately, for policies that compare tasks by them.
//!
//! Of one cache level, the index of the set of every access to it: for the L1 of every touch, for the L2 of every touch that the L1 did
//! not settle, for the LLC of every touch that its core did not settle. The latest ones are kept, in a window of a given length, and
//! go with the task from CPU to CPU. Indexes of two cores' caches are comparable because all caches of a level hash alike; where
//! their numbers of sets differ, the larger one has indexes that the smaller one has not.
//!
//! Source: `docs/spec/cdf-dio.md` section 3.4. No hardware records this.

/// Which cache's sets are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistoryLevel {
    /// The core's L1.
    L1,
    /// The core's L2; where there is none the LLC.
    L2,
    /// The LLC.
    Llc,
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
