//! How interactive a thread is: the ratio of its voluntary sleep to its run time in the last seconds.
//!
//! Source: `docs/spec/ule.md` sections 1 to 4 (`sched_interact_score`, `sched_interact_update`, `sched_interact_fork`). Integers are
//! divided where the original divides them.

/// Sleep and run time are counted in units of 1/1024 tick of the sleep clock.
pub(crate) const TICK_SHIFT: u32 = 10;

/// Half of the largest score: run time and sleep are equal.
const HALF: u32 = 50;

/// The two clocks of ULE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clock {
    /// Ticks per second of the global counter, by which sleep, affinity and use of the CPU are measured.
    pub hz: u32,
    /// Accounting ticks per second, which charge run time and end slices.
    pub stathz: u32,
}

impl Clock {
    /// Value of the global counter at an instant.
    #[inline]
    pub fn ticks(self, now_ns: u64) -> u64 {
        // 2^64 ns are 584 years; at most 1000 Hz do not overflow in 128 bits.
        (u128::from(now_ns) * u128::from(self.hz) / 1_000_000_000) as u64
    }

    /// What one accounting tick charges (`tickincr`).
    #[inline]
    pub fn charge(self) -> u32 {
        (self.hz << TICK_SHIFT) / self.stathz
    }

    /// Length of the history that scores are of (`SCHED_SLP_RUN_MAX`).
    fn longest_history(self) -> u32 {
        (self.hz * 5) << TICK_SHIFT
    }

    /// Length of the history that a new thread keeps of its parent's (`SCHED_SLP_RUN_FORK`).
    fn forked_history(self) -> u32 {
        (self.hz / 2) << TICK_SHIFT
    }
}

/// Run time and voluntary sleep of a thread, in 1/1024 tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct History {
    /// `ts_runtime`.
    pub run: u32,
    /// `ts_slptime`.
    pub sleep: u32,
}

impl History {
    /// 0 for who only sleeps, 50 where sleep and run time are equal, 100 for who only runs; 50 for those too where `above_half` is
    /// false and the threshold makes scores above it meaningless (`sched_interact_score`).
    pub fn score(self, threshold: u32, above_half: bool) -> u32 {
        let Self { run, sleep } = self;
        if !above_half && threshold <= HALF && run >= sleep {
            return HALF;
        }
        if run > sleep {
            // The original's `HALF + (HALF - …)` wraps twice where the second part is negative, and comes to this.
            return 2 * HALF - sleep / (run / HALF).max(1);
        }
        if sleep > run {
            return run / (sleep / HALF).max(1);
        }
        if run > 0 { HALF } else { 0 }
    }

    /// Keeps the history within some five seconds (`sched_interact_update`). Called after every change.
    pub fn trim(&mut self, clock: Clock) {
        let longest = clock.longest_history();
        let sum = self.run.saturating_add(self.sleep);
        if sum < longest {
            return;
        }
        if sum > longest.saturating_mul(2) {
            *self =
                if self.run > self.sleep { Self { run: longest, sleep: 1 } } else { Self { run: 1, sleep: longest } };
            return;
        }
        let trimmed = |part: u32| if sum > longest / 5 * 6 { part / 2 } else { part / 5 * 4 };
        *self = Self { run: trimmed(self.run), sleep: trimmed(self.sleep) };
    }

    /// Cuts an inherited history to half a second (`sched_interact_fork`).
    pub(crate) fn cut_for_child(&mut self, clock: Clock) {
        let longest = clock.forked_history();
        let sum = self.run.saturating_add(self.sleep);
        if sum > longest && longest > 0 {
            let ratio = sum / longest;
            self.run /= ratio;
            self.sleep /= ratio;
        }
    }

    /// One accounting tick of run time.
    pub(crate) fn charge_tick(&mut self, clock: Clock) {
        self.charge(clock.charge(), clock);
    }

    /// So much run time.
    pub fn charge(&mut self, run: u32, clock: Clock) {
        self.run = self.run.saturating_add(run);
        self.trim(clock);
    }

    /// A sleep of so many ticks; those that begin and end in the same tick change nothing.
    pub fn slept(&mut self, ticks: u64, clock: Clock) {
        if ticks == 0 {
            return;
        }
        // Anything longer than two histories is the same to `trim`.
        let ticks = ticks.min(u64::from(clock.hz) * 10 + 1) as u32;
        self.sleep = self.sleep.saturating_add(ticks << TICK_SHIFT);
        self.trim(clock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { hz: 1000, stathz: 127 };
    const SECOND: u32 = 1000 << TICK_SHIFT;

    fn of(run_ms: u32, sleep_ms: u32) -> History {
        History { run: run_ms << TICK_SHIFT, sleep: sleep_ms << TICK_SHIFT }
    }

    /// The check values of docs/spec/ule.md section 2, test 1 of docs/spec/ule.md section 17.
    #[test]
    fn ule_17_1_scores_are_those_of_the_table() {
        let table = [
            ((1000, 2000), 25),
            ((3000, 5000), 30),
            ((2999, 5000), 29),
            ((5000, 1000), 90),
            ((0, 1), 0),
            ((1, 0), 100),
        ];
        for ((run, sleep), score) in table {
            assert_eq!(of(run, sleep).score(30, true), score, "{run} {sleep}");
        }
        assert_eq!((of(5000, 1000).score(30, false), of(1, 0).score(30, false)), (50, 50));
        assert_eq!((of(7, 7).score(30, true), of(0, 0).score(30, true)), (50, 0));
        assert_eq!(of(0, 0).score(30, false), 50, "docs/spec/ule.md section 2: the shortcut comes first");
        assert_eq!(of(0, 0).score(60, false), 0, "and is not taken with a threshold above half");
    }

    /// Division rounds run time down to a multiple of 50 units, so that a thread that has run a little longer than it slept can score
    /// far below 50 and seem interactive. By hand from the table: 100 - s / max(1, r / 50).
    #[test]
    fn ule_17_1_the_shortest_histories_score_as_the_formula_says() {
        let table =
            [((99, 98), 2), ((51, 50), 50), ((60, 55), 45), ((99, 71), 29), ((149, 148), 26), ((2499, 2498), 50)];
        for ((run, sleep), score) in table {
            assert_eq!(History { run, sleep }.score(30, true), score, "{run} {sleep}");
            assert_eq!(History { run, sleep }.score(30, false), 50, "the shortcut: {run} {sleep}");
        }
        for (run, sleep) in (0..3000).flat_map(|run| (0..200).map(move |sleep| (run, sleep))) {
            assert!(History { run, sleep }.score(30, true) <= 100, "{run} {sleep}");
        }
    }

    #[test]
    fn ule_17_1_history_is_trimmed_as_the_table_says() {
        let trimmed = |run_ms, sleep_ms| {
            let mut history = of(run_ms, sleep_ms);
            history.trim(CLOCK);
            (history.run >> TICK_SHIFT, history.sleep >> TICK_SHIFT)
        };
        assert_eq!(trimmed(1000, 3999), (1000, 3999), "short of five seconds");
        assert_eq!(trimmed(1000, 4000), (800, 3200), "four fifths");
        assert_eq!(trimmed(1000, 5000), (800, 4000), "exactly 1.2 times the length");
        assert_eq!(trimmed(1000, 5001), (500, 2500), "halved beyond that");
        assert_eq!(trimmed(4000, 6001), (0, 5000), "the larger part alone beyond twice the length");
        assert_eq!(trimmed(6001, 4000), (5000, 0));
    }

    /// Runs accounting ticks until the thread is no longer interactive. Milliseconds of CPU.
    fn ms_until_batch(mut history: History) -> f64 {
        let mut ticks = 0;
        while history.score(30, false) < 30 {
            history.charge_tick(CLOCK);
            ticks += 1;
        }
        f64::from(ticks) * 1000.0 / 127.0
    }

    #[test]
    fn ule_17_1_a_sleeper_that_spins_is_batch_after_two_seconds() {
        let ms = ms_until_batch(of(0, 4500));
        assert!((2000.0..2700.0).contains(&ms), "{ms}");
    }

    #[test]
    fn ule_17_1_a_forked_sleeper_that_spins_is_batch_after_a_third_of_a_second() {
        for parent_sleep_ms in [4000, 4500, 4999] {
            let mut child = of(0, parent_sleep_ms);
            child.cut_for_child(CLOCK);
            let ms = ms_until_batch(child);
            assert!((300.0..=346.0).contains(&ms), "{parent_sleep_ms}: {ms}");
        }
    }

    #[test]
    fn ule_17_1_a_hog_that_sleeps_long_enough_is_interactive_at_once() {
        let after = |sleep_ms| {
            let mut history = of(4500, 0);
            history.slept(sleep_ms, CLOCK);
            history.score(30, false)
        };
        assert_eq!(after(5600), 0, "the sum exceeds ten seconds");
        assert!(after(5400) >= 30, "{}", after(5400));
    }

    /// Test 2 of docs/spec/ule.md section 17: the ratio runs from 6 to 10, and less than a second is not cut.
    #[test]
    fn ule_17_2_a_child_keeps_half_a_second_of_its_parents_history() {
        let child = |run_ms, sleep_ms| {
            let mut history = of(run_ms, sleep_ms);
            history.cut_for_child(CLOCK);
            (history.run >> TICK_SHIFT, history.sleep >> TICK_SHIFT)
        };
        assert_eq!(child(0, 4000), (0, 500), "ratio 8");
        assert_eq!(child(0, 4500), (0, 500), "ratio 9");
        assert_eq!(child(0, 4499), (0, 562), "still ratio 8");
        assert_eq!(child(0, 3000), (0, 500), "ratio 6");
        let mut slept_long = History { run: 1, sleep: 5 * SECOND };
        slept_long.cut_for_child(CLOCK);
        assert_eq!(slept_long, History { run: 0, sleep: SECOND / 2 }, "ratio 10");
        assert_eq!(child(300, 600), (300, 600), "ratio 1 cuts nothing");
        assert_eq!(child(100, 400), (100, 400), "exactly half a second");
    }

    #[test]
    fn a_sleep_within_one_tick_adds_nothing() {
        let mut history = of(10, 10);
        history.slept(0, CLOCK);
        assert_eq!(history, of(10, 10));
        let mut reset = History { run: 1, sleep: 5 * SECOND };
        reset.slept(0, CLOCK);
        assert_eq!(reset, History { run: 1, sleep: 5 * SECOND }, "nor does it trim what is a unit too long");
    }

    #[test]
    fn no_length_of_sleep_overflows() {
        let mut history = of(4999, 0);
        history.slept(u64::MAX, CLOCK);
        assert_eq!(history, History { run: 1, sleep: 5 * SECOND });
    }

    #[test]
    fn a_tick_charges_eight_thousand_units_at_the_usual_clocks() {
        assert_eq!(CLOCK.charge(), 8062);
        assert_eq!(Clock { hz: 250, stathz: 250 }.charge(), 1024);
        assert_eq!(CLOCK.ticks(1_999_999_999), 1999);
    }
}
