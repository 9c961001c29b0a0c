//! Medians of resamples, and of a sample without each of its values, from one sorting of the sample.
//!
//! Which values a resample takes follows from the seed and the sizes of the samples alone: samples of the same sizes share the draws.

use std::sync::{Arc, Mutex};

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

use crate::sample::interpolate;

/// Most counts that are kept for samples of the same sizes, in bytes: 10,000 resamples of 3355 values. Beyond it each call draws again.
const MOST_KEPT: usize = 1 << 25;

/// A sample, sorted.
pub(crate) struct Ordered {
    /// Its values in ascending order.
    sorted: Vec<f64>,
    /// Where each of these lies in the sample.
    order: Vec<usize>,
}

impl Ordered {
    /// Sorts a sample.
    pub(crate) fn new(values: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
        Self { sorted: order.iter().map(|&index| values[index]).collect(), order }
    }

    fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Its median; NaN for no values.
    pub(crate) fn median(&self) -> f64 {
        middle(self.len(), |position| self.sorted[position])
    }

    /// The medians of what is left without each value, in the order of the sample; NaN where nothing is left.
    pub(crate) fn medians_without_each(&self) -> Vec<f64> {
        let mut medians = vec![f64::NAN; self.len()];
        for (left_out, &index) in self.order.iter().enumerate() {
            let rest = |position: usize| self.sorted[position + usize::from(position >= left_out)];
            medians[index] = middle(self.len() - 1, rest);
        }
        medians
    }

    /// The median of a resample of as many values that takes value `i` of the sample `counts[i]` times; NaN for no values.
    fn median_of<C: Copy + Into<u32>>(&self, counts: &[C]) -> f64 {
        if counts.is_empty() {
            return f64::NAN;
        }
        let half = (counts.len() / 2) as u32;
        let mut ranks = self.order.iter().zip(&self.sorted).map(|(&index, &value)| {
            let count: u32 = counts[index].into();
            (count, value)
        });
        // How many values of the resample are `value` or come before it.
        let (mut taken, mut value) = (0_u32, f64::NAN);
        while taken < half {
            let Some((count, next)) = ranks.next() else { break };
            (taken, value) = (taken + count, next);
        }
        let below = value;
        while taken <= half {
            let Some((count, next)) = ranks.next() else { break };
            (taken, value) = (taken + count, next);
        }
        if counts.len().is_multiple_of(2) { interpolate(below, value, 0.5) } else { value }
    }
}

/// The median of `n` values of which `at` gives that at a position in ascending order; NaN for none.
fn middle(n: usize, at: impl Fn(usize) -> f64) -> f64 {
    let half = n / 2;
    match n {
        0 => f64::NAN,
        _ if n.is_multiple_of(2) => interpolate(at(half - 1), at(half), 0.5),
        _ => at(half),
    }
}

/// The generator of resamples.
pub(crate) fn generator(seed: u64) -> Pcg64Mcg {
    // The multiplicative generator needs an odd state; its constructor makes it odd.
    Pcg64Mcg::new(u128::from(seed) << 64 | 0xcafe_f00d_d15e_a5e5)
}

/// An index below `n`.
pub(crate) fn index_below(n: usize, random: &mut Pcg64Mcg) -> usize {
    // Multiply and shift: uniform up to a bias of n / 2^64.
    ((u128::from(random.next_u64()) * n as u128) >> 64) as usize
}

/// The medians of every resample of two samples. An empty sample has NaN.
pub(crate) fn of_resamples(seed: u64, resamples: usize, samples: [&Ordered; 2]) -> Vec<[f64; 2]> {
    let sizes = samples.map(Ordered::len);
    match Draws::shared(seed, resamples, sizes) {
        Some(draws) => draws.counts.chunks_exact(sizes[0] + sizes[1]).map(|counts| medians(samples, counts)).collect(),
        None => {
            let mut each = Vec::with_capacity(resamples);
            draw(seed, resamples, sizes, |counts| {
                each.push(medians(samples, counts));
                Some(())
            });
            each
        }
    }
}

fn medians<C: Copy + Into<u32>>(samples: [&Ordered; 2], counts: &[C]) -> [f64; 2] {
    let (first, second) = counts.split_at(samples[0].len());
    [samples[0].median_of(first), samples[1].median_of(second)]
}

/// Gives `take` how often each resample takes each value: of the first sample, then of the second. Ends early where it returns `None`.
fn draw(seed: u64, resamples: usize, sizes: [usize; 2], mut take: impl FnMut(&[u32]) -> Option<()>) -> Option<()> {
    let mut random = generator(seed);
    let mut counts = vec![0_u32; sizes[0] + sizes[1]];
    for _ in 0..resamples {
        counts.fill(0);
        let (first, second) = counts.split_at_mut(sizes[0]);
        for own in [first, second] {
            for _ in 0..own.len() {
                own[index_below(own.len(), &mut random)] += 1;
            }
        }
        take(&counts)?;
    }
    Some(())
}

/// How often resamples take each value of two samples.
struct Draws {
    seed: u64,
    resamples: usize,
    sizes: [usize; 2],
    /// By resample, then as [`draw`] gives them.
    counts: Vec<u8>,
}

impl Draws {
    /// Those of this seed and these sizes, which are drawn once; `None` where they are too many to keep.
    fn shared(seed: u64, resamples: usize, sizes: [usize; 2]) -> Option<Arc<Self>> {
        static KEPT: Mutex<Vec<Arc<Draws>>> = Mutex::new(Vec::new());
        let all = sizes[0].checked_add(sizes[1])?.checked_mul(resamples).filter(|all| (1..=MOST_KEPT).contains(all))?;
        let mut kept = KEPT.lock().ok()?;
        let same = |of: &&Arc<Self>| of.seed == seed && of.resamples == resamples && of.sizes == sizes;
        if let Some(known) = kept.iter().find(same) {
            return Some(Arc::clone(known));
        }
        let mut counts = Vec::with_capacity(all);
        draw(seed, resamples, sizes, |row| {
            for count in row {
                counts.push(u8::try_from(*count).ok()?);
            }
            Some(())
        })?;
        while kept.iter().map(|of| of.counts.len()).sum::<usize>() + all > MOST_KEPT {
            kept.remove(0);
        }
        let draws = Arc::new(Self { seed, resamples, sizes, counts });
        kept.push(Arc::clone(&draws));
        Some(draws)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bootstrap::{Bootstrap, median_in_place};
    use crate::compare::log_ratio;

    /// Values with ties, both zeros and infinities.
    fn values(sizes: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
        let special = prop::sample::select(vec![0.0, -0.0, 1.0, 2.0, f64::INFINITY]);
        prop::collection::vec(prop_oneof![3 => 0.0..10.0, 1 => special], sizes)
    }

    fn bits(interval: Option<crate::Interval>) -> Option<[u64; 2]> {
        interval.map(|of| [of.low.to_bits(), of.high.to_bits()])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn intervals_of_medians_are_those_of_the_median_as_any_statistic(
            first in values(0..40), second in values(0..30), seed in 0_u64..4,
        ) {
            let bootstrap = Bootstrap { resamples: 300, seed, ..Bootstrap::default() };
            prop_assert_eq!(
                bits(bootstrap.interval_of_median(&first)),
                bits(bootstrap.interval(&first, median_in_place))
            );
            let naive = bootstrap.interval_of_two(&first, &second, |a, b| log_ratio(median_in_place(a), median_in_place(b)));
            prop_assert_eq!(bits(bootstrap.interval_of_medians(&first, &second, log_ratio)), bits(naive));
        }

        #[test]
        fn a_median_without_a_value_is_that_of_the_others(sample in values(1..40)) {
            let ordered = Ordered::new(&sample);
            prop_assert_eq!(ordered.median().to_bits(), median_in_place(&mut sample.clone()).to_bits());
            for (index, median) in ordered.medians_without_each().into_iter().enumerate() {
                let mut rest = sample.clone();
                rest.remove(index);
                prop_assert_eq!(median.to_bits(), median_in_place(&mut rest).to_bits());
            }
        }

        #[test]
        fn a_resample_has_the_median_of_the_values_that_it_takes(sample in values(1..40), resamples in 1_usize..20) {
            let ordered = Ordered::new(&sample);
            let found = of_resamples(7, resamples, [&ordered, &Ordered::new(&[])]);
            prop_assert_eq!(found.len(), resamples);
            let mut random = generator(7);
            for [median, none] in found {
                let mut taken: Vec<f64> =
                    (0..sample.len()).map(|_| sample[index_below(sample.len(), &mut random)]).collect();
                prop_assert_eq!(median.to_bits(), median_in_place(&mut taken).to_bits());
                prop_assert!(none.is_nan());
            }
        }
    }

    #[test]
    fn draws_that_are_too_many_to_keep_are_the_same() {
        let sample: Vec<f64> = (0..600).map(|i| f64::from((i * 37) % 599)).collect();
        let (ordered, empty) = (Ordered::new(&sample), Ordered::new(&[]));
        let many = MOST_KEPT / sample.len() + 1;
        assert!(Draws::shared(3, many, [sample.len(), 0]).is_none());
        let (few, all) = (of_resamples(3, 50, [&ordered, &empty]), of_resamples(3, many, [&ordered, &empty]));
        assert!(few.iter().zip(&all).all(|(kept, again)| kept[0].to_bits() == again[0].to_bits()));
        assert_eq!(all.len(), many);
    }
}
