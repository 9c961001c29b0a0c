//! Comparing a candidate with the baseline on one metric: ratio, interval, p value, verdict.
//!
//! **Ratio.** Paired trials (same seed, same block): the median of the per-pair ratios, taken on logarithms, so that
//! swapping the sides gives the reciprocal. It uses the pairing: what a seed does to both sides cancels. Unpaired
//! trials: the ratio of the two medians. Both with a BCa interval; pairs, or each side on its own, are resampled.
//!
//! **p value.** Wilcoxon's signed-rank test on the logarithms of the pairs' ratios, or Mann-Whitney.
//!
//! **Verdict.** [`judge`] corrects the p values of one table together (Holm) and calls a difference shown only if the
//! corrected p value is below 5 % *and* the interval of the ratio excludes 1. Where it is not shown, the interval is widened to 1: test and
//! interval are then one procedure, which covers the true ratio at least as often as the interval alone, and a reader of either is told
//! the same.
//!
//! The median and its interval can be where they were although many trials are elsewhere: [`trials_apart`](crate::trials_apart) finds them.
//!
//! Not here: several metrics at once, trends over a sweep, models of variance.

use serde::{Deserialize, Serialize};

use crate::StatisticsError;
use crate::bootstrap::{Bootstrap, Interval, MIN_TRIALS, median_in_place};
use crate::distributions::student_t_quantile;
use crate::rank::{mann_whitney, smallest_paired_p, smallest_unpaired_p, wilcoxon_signed_rank};
use crate::sample::Sample;

/// Probability of calling at least one difference in a table where there is none.
pub const SIGNIFICANCE: f64 = 0.05;

/// Probability with which [`Comparison::smallest_effect`] would have been shown.
pub const POWER: f64 = 0.8;

/// How much wider the median's sampling distribution is than the mean's for normal noise: √(π/2).
const MEDIAN_WIDENING: f64 = 1.253_314_137_315_500_3;

/// Which direction of a metric is an improvement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less is better: times, latencies, misses.
    Lower,
    /// More is better: throughput.
    Higher,
    /// Describes the run without being good or bad in itself: migrations, utilisation.
    Neither,
}

/// How the trials of the two sides belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// Trial i of one side and trial i of the other share a seed or a block.
    Paired,
    /// Nothing but the configuration connects trials.
    Unpaired,
    /// Trial i of every configuration was run in block i, close to the others in time and in an order of its own: compared as
    /// pairs within blocks, because what a block does to all of them cancels.
    Blocked,
}

impl Design {
    /// In a word, before "trials".
    pub const fn word(self) -> &'static str {
        match self {
            Self::Paired => "paired",
            Self::Unpaired => "unpaired",
            Self::Blocked => "blocked",
        }
    }
}

/// What a comparison shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The candidate is better than the baseline.
    Better,
    /// The candidate is worse than the baseline.
    Worse,
    /// They differ, and the metric has no better direction.
    Different,
    /// The trials were enough to judge and show no difference. Not a proof of equality: see
    /// [`Comparison::smallest_effect`].
    NoDifferenceShown,
    /// No outcome of so few trials could have shown a difference in this table.
    TooFewTrials,
}

/// Candidate against baseline on one metric.
///
/// Made by [`compare_paired`] or [`compare_unpaired`]; corrected p value and verdict are those of a table of one until
/// [`judge`] is given the whole table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// How trials belong together.
    pub design: Design,
    /// Which direction is an improvement.
    pub better: Better,
    /// Number of trials of the baseline.
    pub baseline_n: usize,
    /// Number of trials of the candidate.
    pub candidate_n: usize,
    /// Candidate over baseline: 0.9 means 10 % less. `None` without trials. May be 0 or infinite.
    #[serde(with = "crate::number::optional")]
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio; `None` below [`MIN_TRIALS`] trials of either side. It contains 1 exactly where no difference is shown.
    pub interval: Option<Interval>,
    /// Two-sided p value of no difference, on its own.
    pub p_value: Option<f64>,
    /// The p value after Holm's correction over the table.
    pub p_adjusted: Option<f64>,
    /// The smallest effect this number of trials with this noise would have shown with probability [`POWER`] when
    /// judged alone, as a ratio above 1 (1.05: a change of 5 %). Assumes about normal noise of the logarithms. `None`
    /// below [`MIN_TRIALS`] trials and with zeros or infinities among the values.
    pub smallest_effect: Option<f64>,
    /// What it shows.
    pub verdict: Verdict,
}

impl Comparison {
    /// The smallest p value any outcome of this many trials could have had.
    pub(crate) fn smallest_p(&self) -> f64 {
        match self.design {
            Design::Paired | Design::Blocked => smallest_paired_p(self.candidate_n),
            Design::Unpaired => smallest_unpaired_p(self.baseline_n, self.candidate_n),
        }
    }
}

/// Compares trials as their design demands: those of a pair or a block only where both sides have a value, unpaired ones where
/// their own side has one.
///
/// # Errors
/// As [`compare_paired`] and [`compare_unpaired`].
pub fn compare_trials(
    design: Design,
    baseline: &[Option<f64>],
    candidate: &[Option<f64>],
    better: Better,
) -> Result<Comparison, StatisticsError> {
    if design == Design::Unpaired {
        let values = |points: &[Option<f64>]| points.iter().copied().flatten().collect::<Vec<f64>>();
        return compare_unpaired(&values(baseline), &values(candidate), better);
    }
    let both = baseline.iter().zip(candidate).filter_map(|(base, value)| Some(((*base)?, (*value)?)));
    let (base, value): (Vec<f64>, Vec<f64>) = both.unzip();
    Ok(Comparison { design, ..compare_paired(&base, &value, better)? })
}

/// Compares pairs of trials: `candidate[i]` with `baseline[i]`.
///
/// A pair of equal values (also 0 and 0, or both infinite) has ratio 1; a positive value over 0 has an infinite
/// ratio. No pairs: all figures `None`, verdict [`Verdict::TooFewTrials`].
///
/// # Errors
/// Samples of different length, NaN, negative values.
pub fn compare_paired(baseline: &[f64], candidate: &[f64], better: Better) -> Result<Comparison, StatisticsError> {
    if baseline.len() != candidate.len() {
        return Err(StatisticsError::UnequalLengths { baseline: baseline.len(), candidate: candidate.len() });
    }
    check(baseline)?;
    check(candidate)?;
    let mut logs: Vec<f64> = baseline.iter().zip(candidate).map(|(base, value)| log_ratio(*base, *value)).collect();
    let interval = Bootstrap::default().interval_of_median(&logs).map(exponential);
    let spread = Sample::new(&logs).ok().and_then(|sample| sample.standard_deviation());
    let n = logs.len();
    let p_value = wilcoxon_signed_rank(&logs);
    let error = spread.map(|deviation| deviation / (n as f64).sqrt());
    let mut comparison = Comparison {
        design: Design::Paired,
        better,
        baseline_n: n,
        candidate_n: n,
        ratio: (n > 0).then(|| libm::exp(median_in_place(&mut logs))),
        interval,
        p_value,
        p_adjusted: None,
        smallest_effect: smallest_effect(error.filter(|_| n >= MIN_TRIALS), n.saturating_sub(1)),
        verdict: Verdict::TooFewTrials,
    };
    judge(std::slice::from_mut(&mut comparison));
    Ok(comparison)
}

/// Compares two samples without pairing; they may differ in size.
///
/// The ratio is that of the medians: 1 if they are equal (also both 0 or both infinite), infinite for a positive
/// median over 0. A side without trials: all figures `None`, verdict [`Verdict::TooFewTrials`].
///
/// # Errors
/// NaN and negative values.
pub fn compare_unpaired(baseline: &[f64], candidate: &[f64], better: Better) -> Result<Comparison, StatisticsError> {
    check(baseline)?;
    check(candidate)?;
    let (n1, n2) = (baseline.len(), candidate.len());
    let log_of_medians = |base: &mut [f64], value: &mut [f64]| log_ratio(median_in_place(base), median_in_place(value));
    let enough = n1 >= MIN_TRIALS && n2 >= MIN_TRIALS;
    let interval = if enough { Bootstrap::default().interval_of_medians(baseline, candidate, log_ratio) } else { None };
    let both = n1 > 0 && n2 > 0;
    let mut comparison = Comparison {
        design: Design::Unpaired,
        better,
        baseline_n: n1,
        candidate_n: n2,
        ratio: both.then(|| libm::exp(log_of_medians(&mut baseline.to_vec(), &mut candidate.to_vec()))),
        interval: interval.map(exponential),
        p_value: mann_whitney(baseline, candidate),
        p_adjusted: None,
        smallest_effect: smallest_effect(
            pooled_error(baseline, candidate).filter(|_| enough),
            (n1 + n2).saturating_sub(2),
        ),
        verdict: Verdict::TooFewTrials,
    };
    judge(std::slice::from_mut(&mut comparison));
    Ok(comparison)
}

/// Corrects the p values of a table together and sets every verdict.
///
/// A difference is shown when the corrected p value is below [`SIGNIFICANCE`] and the interval excludes 1; where it is not, the interval is
/// widened to contain 1. Too few
/// trials: no interval, or even the most extreme outcome would not survive the correction for a table of this size.
pub fn judge(table: &mut [Comparison]) {
    let p_values: Vec<Option<f64>> = table.iter().map(|comparison| comparison.p_value).collect();
    let judged = p_values.iter().flatten().count() as f64;
    for (comparison, p_adjusted) in table.iter_mut().zip(holm(&p_values)) {
        comparison.p_adjusted = p_adjusted;
        let reachable = comparison.smallest_p() * judged < SIGNIFICANCE;
        comparison.verdict = match (comparison.interval, comparison.ratio, p_adjusted) {
            (Some(interval), Some(ratio), Some(p)) if reachable => {
                if p >= SIGNIFICANCE || interval.contains(1.0) {
                    comparison.interval = Some(interval.with(1.0));
                    Verdict::NoDifferenceShown
                } else {
                    direction(ratio, comparison.better)
                }
            }
            _ => Verdict::TooFewTrials,
        };
    }
}

/// How many trials show the clearest difference in a table of so many comparisons, at least: no fewer than [`MIN_TRIALS`].
pub fn trials_needed(design: Design, comparisons: usize) -> usize {
    let shows = |trials: &usize| {
        let smallest = match design {
            Design::Paired | Design::Blocked => smallest_paired_p(*trials),
            Design::Unpaired => smallest_unpaired_p(*trials, *trials),
        };
        smallest * (comparisons as f64) < SIGNIFICANCE
    };
    (MIN_TRIALS..).find(shows).unwrap_or(usize::MAX)
}

/// Holm's step-down correction: p values that may be compared with one level although several were computed. Entries
/// without a p value stay so and do not count. Source: S. Holm, "A simple sequentially rejective multiple test
/// procedure" (1979).
pub fn holm(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(index, p)| Some((index, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; p_values.len()];
    let mut highest: f64 = 0.0;
    for (position, &(index, p)) in order.iter().enumerate() {
        highest = highest.max((p * (order.len() - position) as f64).min(1.0));
        adjusted[index] = Some(highest);
    }
    adjusted
}

fn check(values: &[f64]) -> Result<(), StatisticsError> {
    if let Some(index) = values.iter().position(|value| value.is_nan()) {
        return Err(StatisticsError::NotANumber { index });
    }
    match values.iter().position(|value| *value < 0.0) {
        Some(index) => Err(StatisticsError::Negative { index, value: values[index] }),
        None => Ok(()),
    }
}

/// Logarithm of `value` over `base`, both at least 0; 0 for equal values whatever they are.
pub(crate) fn log_ratio(base: f64, value: f64) -> f64 {
    if base == value { 0.0 } else { libm::log(value) - libm::log(base) }
}

fn exponential(interval: Interval) -> Interval {
    Interval { low: libm::exp(interval.low), high: libm::exp(interval.high) }
}

/// Standard error of the difference of two means of logarithms with common variance.
fn pooled_error(first: &[f64], second: &[f64]) -> Option<f64> {
    let deviation = |values: &[f64]| {
        let logs: Vec<f64> = values.iter().map(|value| libm::log(*value)).collect();
        Sample::new(&logs).ok().and_then(|sample| sample.standard_deviation())
    };
    let (s1, s2) = (deviation(first)?, deviation(second)?);
    let (n1, n2) = (first.len() as f64, second.len() as f64);
    let variance = ((n1 - 1.0) * s1 * s1 + (n2 - 1.0) * s2 * s2) / (n1 + n2 - 2.0);
    Some((variance * (1.0 / n1 + 1.0 / n2)).sqrt())
}

/// The usual formula for the detectable difference of a t test, widened because medians are judged.
fn smallest_effect(standard_error: Option<f64>, degrees: usize) -> Option<f64> {
    let degrees = u32::try_from(degrees).ok()?;
    let reach = student_t_quantile(1.0 - SIGNIFICANCE / 2.0, degrees) + student_t_quantile(POWER, degrees);
    Some(libm::exp(MEDIAN_WIDENING * reach * standard_error?))
}

fn direction(ratio: f64, better: Better) -> Verdict {
    match better {
        Better::Neither => Verdict::Different,
        Better::Lower if ratio < 1.0 => Verdict::Better,
        Better::Higher if ratio > 1.0 => Verdict::Better,
        _ => Verdict::Worse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noisy(n: usize, factor: f64) -> Vec<f64> {
        (0..n).map(|i| factor * (100.0 + ((i * 37) % 11) as f64)).collect()
    }

    #[test]
    fn a_clear_paired_gain_is_better_and_its_mirror_is_worse() {
        let (baseline, faster) = (noisy(12, 1.0), noisy(12, 0.8));
        let gain = compare_paired(&baseline, &faster, Better::Lower).unwrap();
        assert_eq!(gain.verdict, Verdict::Better);
        assert!((gain.ratio.unwrap() - 0.8).abs() < 1e-12);
        let loss = compare_paired(&faster, &baseline, Better::Lower).unwrap();
        assert_eq!(loss.verdict, Verdict::Worse);
        assert!((loss.ratio.unwrap() * gain.ratio.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(compare_paired(&baseline, &faster, Better::Higher).unwrap().verdict, Verdict::Worse);
        assert_eq!(compare_paired(&baseline, &faster, Better::Neither).unwrap().verdict, Verdict::Different);
    }

    #[test]
    fn an_interval_contains_one_exactly_where_no_difference_is_shown() {
        // Five of eight pairs say less, by much, three say more: Wilcoxon does not count that, but the median's interval is below 1.
        let ratios = [0.85, 0.9, 0.87, 0.91, 0.89, 1.2, 0.98, 1.3];
        let found = compare_paired(&[1.0; 8], &ratios, Better::Lower).unwrap();
        assert!(found.p_value.unwrap() > SIGNIFICANCE && found.verdict == Verdict::NoDifferenceShown);
        assert!(found.interval.unwrap().contains(1.0), "{:?}", found.interval);
        // The same within a table: what one comparison shows, seven of them do not.
        let shown =
            compare_paired(&noisy(9, 1.0), &[95.0, 90.0, 131.0, 97.0, 99.0, 94.0, 103.0, 94.0, 93.0], Better::Lower)
                .unwrap();
        for comparisons in 1..8 {
            let mut table = vec![shown.clone(); comparisons];
            judge(&mut table);
            for row in table {
                let excluded = !row.interval.unwrap().contains(1.0);
                assert_eq!(excluded, row.verdict != Verdict::NoDifferenceShown, "{comparisons}: {row:?}");
            }
        }
    }

    #[test]
    fn pairing_cancels_what_both_sides_share() {
        // The seeds spread trials over a factor of 100; the candidate is 3 % faster on each.
        let baseline: Vec<f64> = (0..10).map(|i| libm::exp(f64::from(i) / 2.0)).collect();
        let candidate: Vec<f64> = baseline.iter().map(|value| value * 0.97).collect();
        assert_eq!(compare_paired(&baseline, &candidate, Better::Lower).unwrap().verdict, Verdict::Better);
        assert_eq!(compare_unpaired(&baseline, &candidate, Better::Lower).unwrap().verdict, Verdict::NoDifferenceShown);
    }

    #[test]
    fn a_design_decides_which_trials_are_compared() {
        // What a pair shares dwarfs the gain; the fourth trial of the candidate has no value.
        let baseline: Vec<Option<f64>> = (0..12).map(|i| Some(libm::exp(f64::from(i) / 2.0))).collect();
        let candidate: Vec<Option<f64>> =
            baseline.iter().enumerate().map(|(i, value)| value.filter(|_| i != 3).map(|value| value * 0.97)).collect();
        let of = |design| compare_trials(design, &baseline, &candidate, Better::Lower).unwrap();
        for design in [Design::Paired, Design::Blocked] {
            let found = of(design);
            assert_eq!((found.design, found.verdict), (design, Verdict::Better));
            assert_eq!((found.baseline_n, found.candidate_n), (11, 11), "only whole pairs count");
        }
        let unpaired = of(Design::Unpaired);
        assert_eq!((unpaired.design, unpaired.verdict), (Design::Unpaired, Verdict::NoDifferenceShown));
        assert_eq!((unpaired.baseline_n, unpaired.candidate_n), (12, 11), "every trial counts");
    }

    #[test]
    fn equal_samples_show_no_difference_and_have_ratio_one() {
        for values in [vec![5.0; 10], vec![0.0; 10], vec![f64::INFINITY; 10], noisy(10, 1.0)] {
            for compare in [compare_paired, compare_unpaired] {
                let same = compare(&values, &values, Better::Lower).unwrap();
                assert_eq!((same.ratio, same.verdict), (Some(1.0), Verdict::NoDifferenceShown), "{values:?}");
            }
        }
    }

    #[test]
    fn few_trials_are_said_to_be_too_few() {
        for n in 0..MIN_TRIALS {
            let few = compare_paired(&noisy(n, 1.0), &noisy(n, 0.1), Better::Lower).unwrap();
            assert_eq!((few.verdict, few.interval, few.smallest_effect), (Verdict::TooFewTrials, None, None));
            assert_eq!(few.ratio.is_some(), n > 0);
            let unpaired = compare_unpaired(&noisy(n, 1.0), &noisy(20, 0.1), Better::Lower).unwrap();
            assert_eq!((unpaired.verdict, unpaired.interval), (Verdict::TooFewTrials, None));
        }
    }

    #[test]
    fn a_table_too_wide_for_its_trials_says_too_few_trials() {
        // With 8 pairs the smallest p value is 1/128; ten comparisons push even that over 5 %.
        let one = compare_paired(&noisy(8, 1.0), &noisy(8, 0.5), Better::Lower).unwrap();
        assert_eq!(one.verdict, Verdict::Better);
        let mut table = vec![one; 10];
        judge(&mut table);
        assert!(table.iter().all(|row| row.verdict == Verdict::TooFewTrials));
        judge(&mut table[..6]);
        assert!(table[..6].iter().all(|row| row.verdict == Verdict::Better));
    }

    #[test]
    fn a_count_that_was_zero_gives_an_infinite_ratio_and_is_judged() {
        let worse = compare_paired(&[0.0; 9], &noisy(9, 1.0), Better::Lower).unwrap();
        assert_eq!((worse.ratio, worse.verdict), (Some(f64::INFINITY), Verdict::Worse));
        let better = compare_paired(&noisy(9, 1.0), &[0.0; 9], Better::Lower).unwrap();
        assert_eq!((better.ratio, better.verdict, better.smallest_effect), (Some(0.0), Verdict::Better, None));
    }

    #[test]
    fn bad_input_is_refused_with_its_position() {
        assert_eq!(
            compare_paired(&[1.0], &[1.0, 2.0], Better::Lower),
            Err(StatisticsError::UnequalLengths { baseline: 1, candidate: 2 })
        );
        assert_eq!(
            compare_unpaired(&[1.0, -2.0], &[1.0], Better::Lower),
            Err(StatisticsError::Negative { index: 1, value: -2.0 })
        );
        assert_eq!(compare_paired(&[f64::NAN], &[1.0], Better::Lower), Err(StatisticsError::NotANumber { index: 0 }));
    }

    #[test]
    fn holm_multiplies_step_by_step_and_never_decreases() {
        let adjusted = holm(&[Some(0.01), None, Some(0.04), Some(0.03), Some(0.005)]);
        let expected = [Some(0.03), None, Some(0.06), Some(0.06), Some(0.02)];
        for (a, e) in adjusted.iter().zip(expected) {
            match (a, e) {
                (Some(a), Some(e)) => assert!((a - e).abs() < 1e-15),
                (a, e) => assert_eq!(*a, e),
            }
        }
        assert_eq!(holm(&[Some(0.9), Some(0.8)]), [Some(1.0), Some(1.0)]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn the_median_of_opposite_infinite_ratios_is_one() {
        assert_eq!(crate::sample::interpolate(f64::NEG_INFINITY, f64::INFINITY, 0.5), 0.0);
        let torn = compare_paired(&[0.0, 1.0], &[1.0, 0.0], Better::Lower).unwrap();
        assert_eq!(torn.ratio, Some(1.0));
    }
}
