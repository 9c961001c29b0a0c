//! The values of one metric over the trials of one configuration: order statistics, spread and outlier flags.
//!
//! Nothing is ever removed: outliers are flagged and stay in every figure.

use serde::{Deserialize, Serialize};

use crate::StatisticsError;
use crate::bootstrap::{Bootstrap, Interval};

/// Robust standard deviations from the median beyond which [`Sample::outliers`] flags a value. Far out on purpose: a
/// flag means that something happened in that trial, not that it was unlucky. The benchmark program `hyperfine` uses
/// the same distance.
pub const OUTLIER_ROBUST_DEVIATIONS: f64 = 10.0;

/// Median absolute deviation of a normal distribution, in standard deviations: the 75 % quantile of the standard normal.
const NORMAL_MAD: f64 = 0.674_489_750_196_081_7;

/// Mean absolute deviation of a normal distribution, in standard deviations: √(2/π).
const NORMAL_MEAN_DEVIATION: f64 = 0.797_884_560_802_865_4;

/// Values of one metric, in order of trials and sorted. Contains no NaN; may be empty.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sample {
    values: Vec<f64>,
    sorted: Vec<f64>,
}

impl Sample {
    /// A sample of these values, in order of trials.
    ///
    /// # Errors
    /// A value that is NaN.
    pub fn new(values: &[f64]) -> Result<Self, StatisticsError> {
        if let Some(index) = values.iter().position(|value| value.is_nan()) {
            return Err(StatisticsError::NotANumber { index });
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Ok(Self { values: values.to_vec(), sorted })
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values in order of trials.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The values in ascending order.
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// The smallest value; `None` for an empty sample.
    pub fn min(&self) -> Option<f64> {
        self.sorted.first().copied()
    }

    /// The largest value; `None` for an empty sample.
    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    /// The quantile of probability `p` (clamped to 0..=1) by linear interpolation between order statistics: type 7
    /// of Hyndman and Fan, the default of R and NumPy. `None` for an empty sample. See [`quantile_of_sorted`] for
    /// infinities.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        quantile_of_sorted(&self.sorted, p)
    }

    /// The middle value, or the mean of the two middle values; `None` for an empty sample.
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// The arithmetic mean. `None` for an empty sample and for one that holds both infinities.
    pub fn mean(&self) -> Option<f64> {
        let (min, max) = (self.min()?, self.max()?);
        match (min == f64::NEG_INFINITY, max == f64::INFINITY) {
            (true, true) => None,
            (true, false) => Some(min),
            (false, true) => Some(max),
            // Summing distances from the median makes the mean of equal values exact.
            (false, false) => {
                let middle = self.median()?;
                let offset: f64 = self.values.iter().map(|value| (value - middle) / self.len() as f64).sum();
                Some((middle + offset).clamp(min, max))
            }
        }
    }

    /// The standard deviation with divisor n − 1. `None` below two values and with infinities.
    pub fn standard_deviation(&self) -> Option<f64> {
        let mean = self.mean().filter(|mean| mean.is_finite())?;
        if self.len() < 2 {
            return None;
        }
        let squares: f64 = self.values.iter().map(|value| (value - mean) * (value - mean)).sum();
        let deviation = (squares / (self.len() - 1) as f64).sqrt();
        deviation.is_finite().then_some(deviation)
    }

    /// The median absolute deviation from the median, not scaled. `None` for an empty sample and when the median is
    /// infinite; infinite when at least half of the values are infinitely far from it.
    pub fn mad(&self) -> Option<f64> {
        let middle = self.median().filter(|middle| middle.is_finite())?;
        let distances: Vec<f64> = self.values.iter().map(|value| (value - middle).abs()).collect();
        Sample::new(&distances).ok()?.median()
    }

    /// Which values are suspiciously far from the median: more than [`OUTLIER_ROBUST_DEVIATIONS`] robust standard
    /// deviations (MAD / 0.6745). One flag per value, in order of trials.
    ///
    /// When the MAD is 0 because more than half of the values are equal, the mean absolute deviation takes its place
    /// (divided by √(2/π)). All values equal: no flag. Infinite median: no flag.
    pub fn outliers(&self) -> Vec<bool> {
        let none = vec![false; self.len()];
        let (Some(middle), Some(mad)) = (self.median(), self.mad()) else { return none };
        let deviation = if mad > 0.0 {
            mad / NORMAL_MAD
        } else {
            let finite = self.values.iter().map(|value| (value - middle).abs()).filter(|distance| distance.is_finite());
            finite.sum::<f64>() / self.len() as f64 / NORMAL_MEAN_DEVIATION
        };
        let limit = OUTLIER_ROBUST_DEVIATIONS * deviation;
        self.values.iter().map(|value| (value - middle).abs() > limit).collect()
    }

    /// The 95 % BCa bootstrap interval of the median with [`Bootstrap::default`]. `None` for fewer than
    /// [`MIN_TRIALS`](crate::bootstrap::MIN_TRIALS) values: there the range is all that can be said.
    pub fn median_interval(&self) -> Option<Interval> {
        Bootstrap::default().interval_of_median(&self.values)
    }

    /// Everything a table prints about the sample.
    pub fn summary(&self) -> Summary {
        let flags = self.outliers();
        Summary {
            n: self.len(),
            median: self.median(),
            mean: self.mean(),
            min: self.min(),
            max: self.max(),
            mad: self.mad(),
            interval: self.median_interval(),
            outliers: flags.iter().enumerate().filter(|(_, flag)| **flag).map(|(index, _)| index).collect(),
        }
    }
}

/// What is reported of a sample. All of it in the unit of the metric.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The number of values.
    pub n: usize,
    /// See [`Sample::median`].
    #[serde(with = "crate::number::optional")]
    pub median: Option<f64>,
    /// See [`Sample::mean`].
    #[serde(with = "crate::number::optional")]
    pub mean: Option<f64>,
    /// See [`Sample::min`].
    #[serde(with = "crate::number::optional")]
    pub min: Option<f64>,
    /// See [`Sample::max`].
    #[serde(with = "crate::number::optional")]
    pub max: Option<f64>,
    /// See [`Sample::mad`].
    #[serde(with = "crate::number::optional")]
    pub mad: Option<f64>,
    /// See [`Sample::median_interval`].
    pub interval: Option<Interval>,
    /// Positions of the values that [`Sample::outliers`] flags, from 0.
    pub outliers: Vec<usize>,
}

/// Quantile (type 7) of values in ascending order, `p` clamped to 0..=1. `None` when there is no value.
///
/// Between a finite value and an infinite one the result is the infinite one; halfway between the two infinities it is
/// 0, so that the result is never NaN.
pub fn quantile_of_sorted(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    let below = (position as usize).min(last);
    let above = (below + 1).min(last);
    Some(interpolate(sorted[below], sorted[above], position - below as f64))
}

/// The point at `fraction` (0..1) of the way from `low` to `high`.
pub(crate) fn interpolate(low: f64, high: f64, fraction: f64) -> f64 {
    if fraction == 0.0 || low == high {
        low
    } else if low.is_infinite() && high.is_infinite() {
        0.0
    } else if low.is_infinite() {
        low
    } else {
        // Written so that huge finite ends do not overflow in their difference.
        (low * (1.0 - fraction) + high * fraction).clamp(low, high)
    }
}

/// The geometric mean. 0 when a value is 0 (unless another is infinite, then `None`); `None` for no values and for
/// negative ones.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| value.is_nan() || *value < 0.0) {
        return None;
    }
    let zero = values.contains(&0.0);
    let infinite = values.contains(&f64::INFINITY);
    match (zero, infinite) {
        (true, true) => None,
        (true, false) => Some(0.0),
        (false, true) => Some(f64::INFINITY),
        (false, false) => {
            let sum: f64 = values.iter().map(|value| libm::log(*value)).sum();
            Some(libm::exp(sum / values.len() as f64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values).unwrap()
    }

    #[test]
    fn an_empty_sample_has_no_statistics() {
        let empty = sample(&[]);
        assert_eq!((empty.min(), empty.max(), empty.mean(), empty.median()), (None, None, None, None));
        assert_eq!((empty.mad(), empty.standard_deviation(), empty.median_interval()), (None, None, None));
        assert!(empty.outliers().is_empty());
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn a_single_value_is_every_quantile_and_has_no_spread_estimate() {
        let one = sample(&[7.5]);
        assert_eq!(
            (one.min(), one.median(), one.quantile(0.99), one.mean()),
            (Some(7.5), Some(7.5), Some(7.5), Some(7.5))
        );
        assert_eq!((one.mad(), one.standard_deviation(), one.median_interval()), (Some(0.0), None, None));
    }

    #[test]
    fn equal_values_have_exactly_that_mean_and_no_outlier() {
        let equal = sample(&[0.1; 11]);
        assert_eq!((equal.mean(), equal.median(), equal.mad()), (Some(0.1), Some(0.1), Some(0.0)));
        assert_eq!(equal.median_interval(), Some(Interval { low: 0.1, high: 0.1 }));
        assert!(!equal.outliers().contains(&true));
    }

    #[test]
    fn infinities_order_last_and_never_become_nan() {
        let stuck = sample(&[1.0, f64::INFINITY, 2.0, f64::INFINITY]);
        assert_eq!(
            (stuck.median(), stuck.quantile(0.25), stuck.mean()),
            (Some(f64::INFINITY), Some(1.75), Some(f64::INFINITY))
        );
        assert_eq!((stuck.mad(), stuck.standard_deviation()), (None, None));
        let both = sample(&[f64::NEG_INFINITY, f64::INFINITY]);
        assert_eq!((both.median(), both.mean()), (Some(0.0), None));
        let one = sample(&[1.0, 1.1, 0.9, 1.0, 1.05, f64::INFINITY]);
        assert_eq!(one.outliers(), [false, false, false, false, false, true]);
    }

    #[test]
    fn nan_is_refused_with_its_position() {
        assert_eq!(Sample::new(&[1.0, f64::NAN]), Err(StatisticsError::NotANumber { index: 1 }));
    }

    #[test]
    fn a_far_value_is_flagged_and_kept() {
        let far = sample(&[10.0, 10.1, 9.9, 10.05, 9.95, 30.0]);
        assert_eq!(far.outliers(), [false, false, false, false, false, true]);
        assert_eq!((far.max(), far.len()), (Some(30.0), 6));
        assert_eq!(far.summary().outliers, [5]);
    }

    #[test]
    fn a_single_deviation_among_many_equal_values_is_flagged_although_the_mad_is_zero() {
        let mut values = vec![5.0; 20];
        values[3] = 6.0;
        let flags = sample(&values).outliers();
        assert_eq!(flags.iter().position(|flag| *flag), Some(3));
        assert_eq!(flags.iter().filter(|flag| **flag).count(), 1);
    }

    #[test]
    fn geometric_means_of_zeros_and_infinities_are_as_documented() {
        assert_eq!(geometric_mean(&[2.0, 0.0]), Some(0.0));
        assert_eq!(geometric_mean(&[2.0, f64::INFINITY]), Some(f64::INFINITY));
        assert_eq!(geometric_mean(&[0.0, f64::INFINITY]), None);
        assert_eq!(geometric_mean(&[-1.0, 2.0]), None);
        assert!((geometric_mean(&[2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
    }
}
