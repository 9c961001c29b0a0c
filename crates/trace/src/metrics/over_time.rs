//! How often something happened in the first and in the last quarter of a window whose end is not known while it is counted.

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
        let quarter =
            |part: usize| (2 * part as u128 + 1) * u128::from(self.stretch_ns) * 2 / u128::from(window_ns.max(1));
        let of = |wanted: u128| {
            (0..PARTS).filter(|part| quarter(*part).min(3) == wanted).map(|part| self.counts[part]).sum()
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
}
