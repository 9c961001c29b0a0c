//! schbench's histogram: values are exact up to 511 and then kept to 256 buckets per power of two; a percentile is the
//! middle of its bucket. The same quantisation makes our percentiles comparable with the program's.

/// Buckets per power of two.
const SUB_BUCKETS: u64 = 256;
/// log2 of [`SUB_BUCKETS`].
const SUB_BITS: u32 = 8;
/// Number of buckets: 19 groups.
const BUCKETS: usize = 19 * SUB_BUCKETS as usize;

/// A histogram of whole numbers as schbench keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    total: u64,
    min: u64,
    max: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, min: 0, max: 0 }
    }
}

impl LatencyHistogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a latency in whole microseconds, rounded down; like schbench, latencies below one are not counted.
    pub fn add_latency_ns(&mut self, ns: u64) {
        if ns >= 1_000 {
            self.add(ns / 1_000);
        }
    }

    /// Adds a latency that occurred several times, such as a bucket of another histogram.
    #[cfg(test)]
    pub(crate) fn add_latencies_ns(&mut self, ns: u64, times: u64) {
        if ns >= 1_000 {
            self.add_times(ns / 1_000, times);
        }
    }

    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    fn add_times(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.max = self.max.max(value);
        self.min = if self.min == 0 { value } else { self.min.min(value) };
        self.counts[bucket_of(value)] += times;
        self.total += times;
    }

    /// Number of values.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Smallest value, 0 if there is none.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Largest value, 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// For each percentile in tenths (ascending): its value, and how many values lie between it and the one before.
    pub fn percentiles(&self, tenths: &[u64]) -> Vec<(u64, u64)> {
        let mut result = Vec::new();
        let mut seen = 0_u64;
        let mut counted = 0_u64;
        let mut buckets = self.counts.iter().enumerate();
        let mut value = 0;
        for &tenth in tenths {
            // seen / total >= tenth / 1000, without fractions.
            while u128::from(seen) * 1_000 < u128::from(tenth) * u128::from(self.total) {
                let Some((bucket, count)) = buckets.next() else { break };
                seen += count;
                value = value_of(bucket);
            }
            result.push((value, seen - counted));
            counted = seen;
        }
        result
    }
}

fn bucket_of(value: u64) -> usize {
    if value < 2 * SUB_BUCKETS {
        return value as usize;
    }
    let dropped_bits = value.ilog2() - SUB_BITS;
    let bucket = (u64::from(dropped_bits) + 1) * SUB_BUCKETS + ((value >> dropped_bits) & (SUB_BUCKETS - 1));
    (bucket as usize).min(BUCKETS - 1)
}

fn value_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB_BUCKETS {
        return bucket;
    }
    let dropped_bits = bucket / SUB_BUCKETS - 1;
    (1 << (dropped_bits + u64::from(SUB_BITS))) + ((bucket % SUB_BUCKETS) << dropped_bits) + ((1 << dropped_bits) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_values_are_exact_and_large_ones_the_middle_of_their_bucket() {
        assert_eq!(value_of(bucket_of(511)), 511);
        assert_eq!(value_of(bucket_of(512)), 513);
        assert_eq!(value_of(bucket_of(513)), 513);
        assert_eq!(value_of(bucket_of(16_864)), 16_864, "a value seen in schbench's README");
        assert_eq!(value_of(bucket_of(3_020)), 3_020 / 8 * 8 + 4);
    }

    #[test]
    fn percentiles_count_the_values_between_them() {
        let mut histogram = LatencyHistogram::new();
        for value in 1..=100 {
            histogram.add(value);
        }
        assert_eq!(histogram.percentiles(&[500, 900, 990, 999]), [(50, 50), (90, 40), (99, 9), (100, 1)]);
        assert_eq!((histogram.min(), histogram.max(), histogram.total()), (1, 100, 100));
    }

    #[test]
    fn latencies_below_a_microsecond_are_not_counted() {
        let mut histogram = LatencyHistogram::new();
        histogram.add_latency_ns(999);
        histogram.add_latency_ns(1_999);
        histogram.add_latencies_ns(2_500, 3);
        histogram.add_latencies_ns(9_000, 0);
        assert_eq!((histogram.total(), histogram.max()), (4, 2));
    }

    #[test]
    fn an_empty_histogram_has_zero_percentiles() {
        assert_eq!(LatencyHistogram::new().percentiles(&[500, 990]), [(0, 0), (0, 0)]);
    }

    proptest! {
        #[test]
        fn a_value_is_within_half_a_bucket_of_its_bucket(value in 0_u64..1 << 26) {
            let error = value_of(bucket_of(value)).abs_diff(value);
            prop_assert!(error * 512 <= value, "{value} became {}", value_of(bucket_of(value)));
        }

        #[test]
        fn any_value_has_a_bucket(value: u64) {
            prop_assert!(bucket_of(value) < BUCKETS);
        }
    }
}
