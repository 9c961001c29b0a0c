//! How often something happened in the first and in the last quarter of a window, or of its later part, whose borders are not known while it
//! is counted.

/// Parts of the window that are counted apart.
const PARTS: usize = 128;

/// Counts by equal stretches of time from the window's beginning. When the stretches are used up, two become one, twice as long.
#[derive(Clone, Debug)]
pub(super) struct OverTime {
    stretch_ns: u64,
    counts: [u64; PARTS],
}

impl Default for OverTime {
    fn default() -> Self {
        Self { stretch_ns: 1, counts: [0; PARTS] }
    }
}

impl OverTime {
    /// Counts one, so long after the window's beginning.
    #[cold]
    pub(super) fn add(&mut self, after_ns: u64) {
        while after_ns / self.stretch_ns >= PARTS as u64 {
            for part in 0..PARTS / 2 {
                self.counts[part] = self.counts[2 * part] + self.counts[2 * part + 1];
            }
            self.counts[PARTS / 2..].fill(0);
            self.stretch_ns *= 2;
        }
        self.counts[(after_ns / self.stretch_ns) as usize] += 1;
    }

    /// What was counted in the first and in the last quarter of a window of this length. A stretch belongs to the quarter that its middle
    /// lies in: borders are off by a 64th of the window at most, or by more where all that was counted lies in its beginning.
    pub(super) fn quarters(&self, window_ns: u64) -> [u64; 2] {
        self.quarters_between(0, window_ns)
    }

    /// The same of what is counted between two instants after the window's beginning, the later one being its end; `None` if a quarter of it
    /// is shorter than four stretches, and the borders are off by more than an eighth of a quarter.
    pub(super) fn quarters_of(&self, from_ns: u64, end_ns: u64) -> Option<[u64; 2]> {
        let is_told = end_ns.saturating_sub(from_ns) / 4 >= self.stretch_ns.saturating_mul(4);
        is_told.then(|| self.quarters_between(from_ns, end_ns))
    }

    fn quarters_between(&self, from_ns: u64, end_ns: u64) -> [u64; 2] {
        let (from, length) = (2 * u128::from(from_ns), u128::from((end_ns - from_ns).max(1)));
        // Twice the middle of a stretch, so that it is a whole number.
        let quarter = |part: usize| {
            let middle = (2 * part as u128 + 1) * u128::from(self.stretch_ns);
            Some(middle.checked_sub(from)? * 2 / length)
        };
        let of = |wanted: u128| {
            let is_of = |part: &usize| quarter(*part).is_some_and(|quarter| quarter.min(3) == wanted);
            (0..PARTS).filter(is_of).map(|part| self.counts[part]).sum()
        };
        [of(0), of(3)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(times: impl Iterator<Item = u64>) -> OverTime {
        let mut over_time = OverTime::default();
        times.for_each(|ns| over_time.add(ns));
        over_time
    }

    #[test]
    fn quarters_have_what_happened_in_them() {
        let even = counted((0..4000).map(|k| k * 1_000_000));
        let [first, last] = even.quarters(4_000_000_000);
        assert!(first.abs_diff(1000) < 70 && last.abs_diff(1000) < 70, "{first} {last}");
        let at_first = counted((0..100).map(|k| k * 1000));
        assert_eq!(at_first.quarters(4_000_000_000), [100, 0]);
        let late = counted((0..100).map(|k| 3_900_000_000 + k * 1000));
        assert_eq!(late.quarters(4_000_000_000), [0, 100]);
        assert_eq!(OverTime::default().quarters(0), [0, 0]);
        assert_eq!(counted([0, u64::MAX].into_iter()).quarters(u64::MAX), [1, 1]);
    }

    /// A thousand in each second from the third on; before, ten thousand in the first.
    #[test]
    fn quarters_of_a_later_part_leave_out_what_was_before() {
        let counts = counted((0..10_000).map(|k| k * 100_000).chain((0..2000).map(|k| 2_000_000_000 + k * 1_000_000)));
        let [first, last] = counts.quarters_of(2_000_000_000, 4_000_000_000).unwrap();
        assert!(first.abs_diff(500) < 63 && last.abs_diff(500) < 63, "{first} {last}");
        assert_eq!(counts.quarters(4_000_000_000)[0], 10_000);
        assert_eq!(counts.quarters_of(3_990_000_000, 4_000_000_000), None, "shorter than a stretch");
    }
}
