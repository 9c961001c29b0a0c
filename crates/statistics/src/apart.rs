//! Trials that are apart from the others where the middle of all says nothing: a third at half speed leaves the median where it was.

use serde::Serialize;

use crate::bootstrap::median_in_place;
use crate::compare::{Design, log_ratio};
use crate::rank::{mann_whitney, wilcoxon_signed_rank};

/// Trials beyond a margin on the side to which the mean is beyond it, too.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TrialsApart {
    /// How many.
    pub trials: usize,
    /// Of how many.
    pub of: usize,
    /// Their middle ratio: of pairs, candidate over baseline; of trials without pairs, that to the baseline's middle. May be 0 or infinite.
    pub ratio: f64,
    /// Whether they are the baseline's own: only of trials without pairs.
    pub of_baseline: bool,
}

/// Trials apart of a comparison whose middle lies inside a margin, unless they may be chance.
///
/// Two things must hold. The geometric mean of the ratios lies outside of the margin: many trials that differ by little are within it. And the
/// rank test of the design, on the logarithms with all that is inside the margin counted as no difference, is below `level`: where nothing
/// differs, ratios are as often above 1 as below, so that this is so in no more than `level` of comparisons.
pub fn trials_apart(
    design: Design,
    baseline: &[Option<f64>],
    candidate: &[Option<f64>],
    margin: f64,
    level: f64,
) -> Option<TrialsApart> {
    let reach = libm::log1p(margin);
    let (own, base) = match design {
        Design::Paired | Design::Blocked => {
            let pairs = baseline.iter().zip(candidate).filter_map(|(base, own)| Some(log_ratio((*base)?, (*own)?)));
            (pairs.collect(), Vec::new())
        }
        Design::Unpaired => {
            let middle = median_in_place(&mut baseline.iter().copied().flatten().collect::<Vec<f64>>());
            let logs = |values: &[Option<f64>]| -> Vec<f64> {
                values.iter().flatten().map(|value| log_ratio(middle, *value)).collect()
            };
            (logs(candidate), logs(baseline))
        }
    };
    let cut =
        |logs: &[f64]| -> Vec<f64> { logs.iter().map(|log| if log.abs() <= reach { 0.0 } else { *log }).collect() };
    let mean = |logs: &[f64]| if logs.is_empty() { 0.0 } else { logs.iter().sum::<f64>() / logs.len() as f64 };
    let shift = mean(&own) - mean(&base);
    let p_value = match design {
        Design::Paired | Design::Blocked => wilcoxon_signed_rank(&cut(&own)),
        Design::Unpaired => mann_whitney(&cut(&base), &cut(&own)),
    };
    if shift.is_nan() || shift.abs() <= reach || p_value.is_none_or(|p| p >= level) {
        return None;
    }
    let far = |logs: &[f64], sign: f64| -> Vec<f64> { logs.iter().copied().filter(|log| log * sign > reach).collect() };
    let (mut apart, of, of_baseline) = match (far(&own, shift.signum()), far(&base, -shift.signum())) {
        (candidates, baselines) if candidates.len() >= baselines.len() => (candidates, own.len(), false),
        (_, baselines) => (baselines, base.len(), true),
    };
    let trials = apart.len();
    (trials > 0).then(|| TrialsApart { trials, of, ratio: libm::exp(median_in_place(&mut apart)), of_baseline })
}

#[cfg(test)]
mod tests {
    use rand_core::Rng;
    use rand_pcg::Pcg32;

    use super::*;
    use crate::compare::SIGNIFICANCE;

    const MARGIN: f64 = 0.01;

    fn apart(design: Design, base: &[f64], own: &[f64]) -> Option<TrialsApart> {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        trials_apart(design, &some(base), &some(own), MARGIN, SIGNIFICANCE)
    }

    /// `few` of `all` trials take `factor` times as long, the others as long as ever.
    fn some_slow(few: usize, all: usize, factor: f64) -> Vec<f64> {
        (0..all).map(|number| if number < few { factor * 50.0 } else { 50.0 }).collect()
    }

    #[test]
    fn a_third_of_the_trials_at_half_speed_is_found_whatever_the_design() {
        let base = vec![50.0; 100];
        let expected = TrialsApart { trials: 34, of: 100, ratio: 0.5, of_baseline: false };
        for design in [Design::Paired, Design::Blocked, Design::Unpaired] {
            let found = apart(design, &base, &some_slow(34, 100, 0.5)).unwrap();
            assert!((found.ratio - 0.5).abs() < 1e-12, "{found:?}");
            assert_eq!(TrialsApart { ratio: 0.5, ..found }, expected);
        }
        let other = apart(Design::Unpaired, &some_slow(34, 100, 0.5), &base).unwrap();
        assert!(other.of_baseline && other.trials == 34, "{other:?}");
    }

    /// Five of one sign may be chance (2 / 2^5 = 0.06), six may not (0.03); six of 100 by 5 % are 0.3 % in the mean, and half a per cent always is
    /// inside the margin.
    #[test]
    fn few_trials_and_small_differences_are_no_trials_apart() {
        let base = vec![50.0; 100];
        assert_eq!(apart(Design::Paired, &base, &some_slow(5, 100, 0.5)), None);
        assert!(apart(Design::Paired, &base, &some_slow(6, 100, 0.5)).is_some());
        assert_eq!(apart(Design::Paired, &base, &some_slow(6, 100, 0.95)), None);
        assert_eq!(apart(Design::Paired, &base, &some_slow(100, 100, 1.005)), None);
    }

    /// Both sides have a third at half speed, by chance: 5 % of 2000 comparisons are 100, and three standard deviations of that 29.
    #[test]
    fn a_scheduler_is_apart_from_itself_in_no_more_than_a_twentieth_of_comparisons() {
        let mut chance = Pcg32::new(1, 1);
        let mut side =
            || -> Vec<f64> { (0..40).map(|_| if chance.next_u32().is_multiple_of(3) { 25.0 } else { 50.0 }).collect() };
        for design in [Design::Paired, Design::Unpaired] {
            let alarms = (0..2000).filter(|_| apart(design, &side(), &side()).is_some()).count();
            assert!(alarms <= 129, "{design:?}: {alarms}");
        }
    }
}
