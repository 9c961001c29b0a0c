//! A histogram of latencies: constant memory, a few nanoseconds per value, percentiles within 1.6 %.
//!
//! Log-linear, as in schbench and HdrHistogram: values below 128 have a bucket each; above, every power of two is
//! divided into 64 buckets of equal width, so that a bucket is never wider than 1/64 of the values in it. Number, sum,
//! smallest and largest value are exact. Percentiles are upper edges of buckets: at least the true value and at most
//! 1/64 above it.
//!
//! Not for: values in units where 0 and negative numbers mean something special; raw values are not kept.

use serde::{Deserialize, Serialize};

/// Binary digits of a value that are told apart.
const SUB_BUCKET_BITS: u32 = 6;

/// 64 one-wide buckets for values below 64, then 64 for each of the 58 powers of two from 2^6 to 2^63.
const BUCKETS: usize = (64 - SUB_BUCKET_BITS as usize + 1) << SUB_BUCKET_BITS;

/// A histogram of `u64` nanoseconds (or of any other count). Takes 30 KB whatever is recorded.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
    buckets: Box<[u64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        // Built on the heap: 30 KB do not belong on the stack.
        let buckets: Box<[u64]> = vec![0; BUCKETS].into_boxed_slice();
        let buckets = buckets.try_into().expect("a slice of BUCKETS counts is an array of BUCKETS counts");
        Self { count: 0, sum: 0, min: u64::MAX, max: 0, buckets }
    }
}

impl Histogram {
    /// Largest error of a percentile, as a share of the value.
    pub const RELATIVE_ERROR: f64 = 1.0 / (1 << SUB_BUCKET_BITS) as f64;

    /// An empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Adds the same value `n` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.buckets[bucket_of(value)] += n;
        self.count += n;
        self.sum = self.sum.saturating_add(value.saturating_mul(n));
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds everything another histogram holds.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The sum of all values, exact up to `u64::MAX` (584 years of nanoseconds), where it stays.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The smallest value; `None` when empty.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value; `None` when empty.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The arithmetic mean; `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The smallest bucket edge that at least the share `q` (clamped to 0..=1) of the values does not exceed: the
    /// upper edge of the bucket that holds the value of that rank, but never more than the largest value. At most
    /// [`Histogram::RELATIVE_ERROR`] above the exact quantile, never below it. `None` when empty.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(upper_edge(bucket).min(self.max));
            }
        }
        Some(self.max)
    }

    /// How many values the quantile `q` (clamped to 0..=1) must be one of so that one of them lies beyond it: 1/(1 - q), as 2 for the median
    /// and 100 for 0.99. Of fewer it is the largest value, or next to it. For 1, which is the largest of any number, it is 1.
    pub fn fewest_for(q: f64) -> u64 {
        let beyond = 1.0 - q.clamp(0.0, 1.0);
        if beyond > 0.0 { (1.0 / beyond).round() as u64 } else { 1 }
    }

    /// The buckets that hold values, ascending: lowest value, highest value, number of values.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, &count)| (lower_edge(bucket), upper_edge(bucket), count))
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .field("min", &self.min())
            .field("median", &self.quantile(0.5))
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

/// The bucket of a value. For values from 64 up, `shift` counts the binary digits beyond the first seven and the
/// shifted value lies in 64..128, which makes consecutive powers of two join without a gap.
#[inline]
pub(crate) fn bucket_of(value: u64) -> usize {
    let shift = 63 - SUB_BUCKET_BITS - (value | 1 << SUB_BUCKET_BITS).leading_zeros();
    ((shift as usize) << SUB_BUCKET_BITS) + (value >> shift) as usize
}

/// The lowest value of a bucket.
fn lower_edge(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BUCKET_BITS).saturating_sub(1);
    ((bucket - (shift << SUB_BUCKET_BITS)) as u64) << shift
}

/// The highest value of a bucket.
pub(crate) fn upper_edge(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BUCKET_BITS).saturating_sub(1);
    lower_edge(bucket) + ((1 << shift) - 1)
}

/// How a histogram stands in files: `[lowest value of the bucket, number of values]` for buckets that hold any.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistogramText {
    sub_bucket_bits: u32,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = HistogramText {
            sub_bucket_bits: SUB_BUCKET_BITS,
            count: self.count,
            sum: self.sum,
            min: self.min().unwrap_or(0),
            max: self.max,
            buckets: self.buckets().map(|(low, _, count)| (low, count)).collect(),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        let written = HistogramText::deserialize(deserializer)?;
        if written.sub_bucket_bits != SUB_BUCKET_BITS {
            let bits = written.sub_bucket_bits;
            return Err(D::Error::custom(format!(
                "histogram with {bits} sub-bucket bits; only {SUB_BUCKET_BITS} are read"
            )));
        }
        let mut histogram = Histogram::default();
        for (low, count) in written.buckets {
            let bucket = bucket_of(low);
            if lower_edge(bucket) != low || histogram.buckets[bucket] != 0 || count == 0 {
                return Err(D::Error::custom(format!(
                    "{low} is not the lowest value of a histogram bucket of its own"
                )));
            }
            histogram.buckets[bucket] = count;
            histogram.count = histogram.count.saturating_add(count);
        }
        if histogram.count != written.count || (written.count > 0 && written.min > written.max) {
            return Err(D::Error::custom(
                "histogram whose number of values is not that of its buckets, or min above max",
            ));
        }
        if written.count > 0 {
            (histogram.sum, histogram.min, histogram.max) = (written.sum, written.min, written.max);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    #[test]
    fn buckets_cover_all_values_without_gap_or_overlap() {
        assert_eq!(lower_edge(0), 0);
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(upper_edge(bucket) + 1, lower_edge(bucket + 1), "bucket {bucket}");
        }
        assert_eq!(upper_edge(BUCKETS - 1), u64::MAX);
        for value in [0, 1, 63, 64, 127, 128, 129, 1_000_000, u64::MAX - 1, u64::MAX] {
            let bucket = bucket_of(value);
            assert!(lower_edge(bucket) <= value && value <= upper_edge(bucket), "{value}");
        }
    }

    #[test]
    fn buckets_are_never_wider_than_a_64th_of_their_values() {
        for bucket in 0..BUCKETS {
            let width = upper_edge(bucket) - lower_edge(bucket);
            assert!(width as f64 <= lower_edge(bucket) as f64 / 64.0, "bucket {bucket}");
        }
    }

    #[test]
    fn an_empty_histogram_has_no_figures() {
        let empty = Histogram::new();
        assert_eq!(
            (empty.min(), empty.max(), empty.quantile(0.5), empty.count(), empty.sum()),
            (None, None, None, 0, 0)
        );
        assert_eq!(empty.mean(), None);
    }

    #[test]
    fn small_values_have_exact_quantiles() {
        let histogram = of(&[5, 1, 3, 2, 4, 100]);
        assert_eq!(histogram.quantile(0.5), Some(3));
        assert_eq!(histogram.quantile(0.0), Some(1));
        assert_eq!(histogram.quantile(1.0), Some(100));
    }

    #[test]
    fn a_quantile_is_one_of_so_many_values_that_one_lies_beyond_it() {
        let fewest = [0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0].map(Histogram::fewest_for);
        assert_eq!(fewest, [1, 2, 10, 20, 100, 1000, 1]);
    }

    #[test]
    fn the_highest_quantile_is_the_exact_maximum() {
        let histogram = of(&[1_000_001, 999_999]);
        assert_eq!((histogram.quantile(1.0), histogram.max()), (Some(1_000_001), Some(1_000_001)));
    }

    #[test]
    fn recording_zero_times_changes_nothing() {
        let mut histogram = of(&[7]);
        histogram.record_n(1_000, 0);
        assert_eq!(histogram, of(&[7]));
    }

    #[test]
    fn sums_stay_at_the_top_instead_of_wrapping() {
        let mut histogram = of(&[u64::MAX, u64::MAX]);
        histogram.record_n(u64::MAX, 3);
        assert_eq!((histogram.sum(), histogram.count()), (u64::MAX, 5));
    }

    #[test]
    fn damaged_files_are_refused() {
        let good = serde_json::to_string(&of(&[1, 1000, 1000, 5_000_000])).unwrap();
        assert!(serde_json::from_str::<Histogram>(&good).is_ok());
        for bad in [
            good.replace("\"count\":4", "\"count\":5"),
            good.replace("\"sub_bucket_bits\":6", "\"sub_bucket_bits\":5"),
            good.replace("[1,1]", "[1,1],[1,1]"),
            good.replace("[1000,2]", "[1001,2]"),
            good.replace("\"min\":1", "\"min\":6000000"),
        ] {
            assert_ne!(bad, good);
            assert!(serde_json::from_str::<Histogram>(&bad).is_err(), "{bad}");
        }
    }

    /// Values over the whole range, most of them latencies.
    fn value() -> impl Strategy<Value = u64> {
        prop_oneof![3 => 0..10_000_000_u64, 1 => any::<u64>(), 1 => 0..200_u64]
    }

    proptest! {
        #[test]
        fn quantiles_are_at_most_a_64th_above_the_exact_ones(
            mut values in prop::collection::vec(value(), 1..200),
            q in 0.0..=1.0_f64,
        ) {
            let histogram = of(&values);
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let found = histogram.quantile(q).unwrap();
            prop_assert!(found >= exact && found - exact <= exact / 64, "{} for {}", found, exact);
            prop_assert_eq!((histogram.min(), histogram.max()), (values.first().copied(), values.last().copied()));
        }

        #[test]
        fn merging_equals_recording_everything_in_one(
            a in prop::collection::vec(value(), 0..50),
            b in prop::collection::vec(value(), 0..50),
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }

        #[test]
        fn files_give_back_the_same_histogram(values in prop::collection::vec(value(), 0..50)) {
            let histogram = of(&values);
            let text = serde_json::to_string(&histogram).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        }
    }
}
