//! Counters of CPUs over time, summed in stretches of time while their samples stream by.
//!
//! A sample says what was counted since the CPU's last one; it is spread evenly over that time. Samples of tasks count whole
//! lives and say nothing about when, so they are not taken.

use std::ops::Range;

use crate::scene::spread;

/// Stretches of time in which counters are summed.
pub(crate) const COUNTER_BINS: usize = 120;

/// Sums by counter, CPU and stretch of time. Empty when the run has no counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterSums {
    cpus: usize,
    end_ns: u64,
    /// By counter; then by CPU, then by stretch. A counter that was never sampled has none.
    sums: Vec<Vec<u64>>,
    /// When each CPU was sampled last, and the time before that.
    sampled_ns: Vec<(u64, u64)>,
}

impl CounterSums {
    /// Nothing counted yet, on a machine with `cpus` CPUs, in a run that ends at `end_ns`.
    pub fn new(cpus: usize, end_ns: u64) -> Self {
        Self { cpus, end_ns: end_ns.max(1), sums: Vec::new(), sampled_ns: vec![(0, 0); cpus] }
    }

    /// Adds a sample of a CPU's counter.
    pub fn add(&mut self, time_ns: u64, cpu: usize, counter: usize, value: u64) {
        let sampled = &mut self.sampled_ns[cpu];
        if time_ns > sampled.1 {
            *sampled = (sampled.1, time_ns);
        }
        let since_ns = sampled.0.min(self.end_ns - 1);
        let until_ns = time_ns.clamp(since_ns + 1, self.end_ns);
        if counter >= self.sums.len() {
            self.sums.resize(counter + 1, Vec::new());
        }
        let sums = &mut self.sums[counter];
        sums.resize(self.cpus * COUNTER_BINS, 0);
        let (length, mut passed) = (u128::from(until_ns - since_ns), 0);
        for (bin, part_ns) in spread(since_ns, until_ns, self.end_ns, COUNTER_BINS) {
            let share = |ns: u64| (u128::from(value) * u128::from(ns) / length) as u64;
            sums[cpu * COUNTER_BINS + bin] += share(passed + part_ns) - share(passed);
            passed += part_ns;
        }
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.sums.iter().all(Vec::is_empty)
    }

    /// Number of counters, those without samples included.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// What a CPU counted, by stretch of time; nothing for a counter that was never sampled.
    pub fn of_cpu(&self, counter: usize, cpu: usize) -> &[u64] {
        let range: Range<usize> = cpu * COUNTER_BINS..(cpu + 1) * COUNTER_BINS;
        self.sums.get(counter).and_then(|sums| sums.get(range)).unwrap_or(&[])
    }

    /// The sums of several CPUs, by stretch of time.
    pub(crate) fn of_cpus(&self, counter: usize, cpus: impl Iterator<Item = usize>) -> Vec<u64> {
        let mut whole = vec![0; COUNTER_BINS];
        for cpu in cpus {
            self.of_cpu(counter, cpu).iter().zip(&mut whole).for_each(|(part, sum)| *sum += part);
        }
        whole
    }

    /// All of a counter.
    pub fn total(&self, counter: usize) -> u64 {
        self.sums.get(counter).map_or(0, |sums| sums.iter().sum())
    }

    /// When a stretch of time begins.
    pub(crate) fn edge_ns(&self, bin: usize) -> u64 {
        (u128::from(self.end_ns) * bin as u128 / COUNTER_BINS as u128) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_counted_is_lost_wherever_samples_lie() {
        let mut sums = CounterSums::new(2, 1001);
        let samples = [(0, 7), (0, 1), (13, 1000), (13, 5), (500, 999_999), (1001, 17)];
        for (time_ns, value) in samples {
            sums.add(time_ns, 1, 3, value);
        }
        assert_eq!(sums.total(3), samples.iter().map(|(_, value)| value).sum::<u64>());
        assert!(sums.of_cpu(3, 0).iter().all(|value| *value == 0) && sums.of_cpu(0, 1).is_empty());
    }

    #[test]
    fn a_sample_is_spread_over_the_time_since_the_one_before() {
        let mut sums = CounterSums::new(1, 1200);
        sums.add(600, 0, 0, 60);
        sums.add(600, 0, 1, 60);
        sums.add(900, 0, 0, 3000);
        assert_eq!(sums.of_cpu(0, 0)[..60], [1; 60]);
        assert_eq!(sums.of_cpu(1, 0)[..60], [1; 60], "another counter sampled at the same time covers the same span");
        assert_eq!(sums.of_cpu(0, 0)[60..90], [100; 30]);
        assert_eq!(sums.of_cpu(0, 0)[90..], [0; 30]);
        assert_eq!(sums.of_cpus(0, 0..1).iter().sum::<u64>(), 3060);
    }
}
