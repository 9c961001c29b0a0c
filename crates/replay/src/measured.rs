//! Which of a task's four clocks measures a request that the task takes and answers itself.
//!
//! Arrivals at times of their own advance one clock, which each next arrival takes away from the request before. Others have a clock
//! each, as long as there is one. What has no clock at its answer is not measured. Requests from outside that keep the times of their arrival
//! need none: they share one, which only says until when a thread may sleep.

use std::collections::BTreeSet;

use warmcore_workload::LONGEST_NS;

use crate::arrivals::Arrived;
use crate::history::{Action, History};
use crate::sleeps::Sleeps;

/// The clock that arrivals at times of their own advance.
pub(crate) const ARRIVALS: u8 = 3;

/// The clock that requests from outside advance, counted from the run's start.
pub(crate) const REQUESTS: u8 = 2;

/// The clocks of a thread while its program is made.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// Waits that ended with a request which the thread answered, as indices of its actions.
    waits: BTreeSet<usize>,
    /// The wait whose request each clock measures at present.
    open: [Option<usize>; 4],
    /// How many measure one request each.
    own: u8,
}

impl Clocks {
    pub(crate) fn of(history: &History, span_ns: u64) -> Self {
        // No step of a clock is longer.
        let waited = |action: &Action| match action {
            Action::Answer(Arrived::With(waited)) if span_ns <= LONGEST_NS => Some(*waited),
            _ => None,
        };
        let own = if Sleeps::has_arrivals(history) { REQUESTS } else { ARRIVALS };
        Self { waits: history.actions.iter().filter_map(waited).collect(), open: [None; 4], own }
    }

    /// Whether the thread answers anything.
    pub(crate) fn measures(&self) -> bool {
        !self.waits.is_empty()
    }

    /// A wait is about to end: the clock that is to begin with it, if it ends with a request and one is free.
    pub(crate) fn begin(&mut self, wait: usize) -> Option<u8> {
        let free = self.open[..usize::from(self.own)].iter().position(Option::is_none);
        let slot = free.filter(|_| self.waits.contains(&wait))?;
        self.open[slot] = Some(wait);
        Some(slot as u8)
    }

    /// The clock of arrivals is about to advance.
    pub(crate) fn arrive(&mut self, wait: usize) {
        self.open[usize::from(ARRIVALS)] = Some(wait).filter(|wait| self.waits.contains(wait));
    }

    /// What comes next may be another task's: nothing that is open is measured.
    pub(crate) fn lose(&mut self) {
        self.open = [None; 4];
    }

    /// The clock of a request that is answered.
    pub(crate) fn end(&mut self, wait: usize) -> Option<u8> {
        let slot = self.open.iter().position(|open| *open == Some(wait))?;
        self.open[slot] = None;
        Some(slot as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks(waits: &[usize]) -> Clocks {
        let answer = |waited: &usize| Action::Answer(Arrived::With(*waited));
        Clocks::of(&History { actions: waits.iter().map(answer).collect(), ..History::default() }, 1_000)
    }

    #[test]
    fn a_request_has_a_clock_until_it_is_answered_and_the_fourth_at_a_time_has_none() {
        let mut clocks = clocks(&[0, 2, 4, 6]);
        assert_eq!([0, 1, 2, 4, 6].map(|wait| clocks.begin(wait)), [Some(0), None, Some(1), Some(2), None]);
        assert_eq!((clocks.end(2), clocks.end(2), clocks.end(6)), (Some(1), None, None));
        assert_eq!(clocks.begin(6), Some(1));
        clocks.lose();
        assert_eq!((clocks.end(0), clocks.end(6)), (None, None), "another task may answer");
    }

    #[test]
    fn the_next_arrival_takes_the_clock_of_the_one_before() {
        let mut clocks = clocks(&[3, 5]);
        clocks.arrive(3);
        clocks.arrive(4);
        assert_eq!(clocks.end(3), None);
        clocks.arrive(5);
        assert_eq!((clocks.end(5), clocks.measures()), (Some(ARRIVALS), true));
    }
}
