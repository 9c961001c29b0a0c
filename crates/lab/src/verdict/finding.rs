//! What a comparison means to a reader, given how large a difference must be to matter.

use serde::{Deserialize, Serialize};
use warmcore_statistics::compare::SIGNIFICANCE;
use warmcore_statistics::{Comparison, Design, Interval, TrialsApart, Verdict, trials_apart};

use crate::measures::{Measure, resolution};

/// Differences up to this fraction matter to nobody, unless an experiment says otherwise: its *margin*.
pub const DEFAULT_MARGIN: f64 = 0.01;

warmcore_topology::worded! {
    /// What a comparison means to a reader: the statistics' verdict, in the light of the experiment's margin.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Finding: words {
        /// Better than the baseline, by more than the margin; without a ratio where one of them is nearly zero and the other clearly is not.
        Better = "better",
        /// Worse than the baseline, alike.
        Worse = "worse",
        /// Different by more than the margin, on a measure without a better direction.
        Different = "different",
        /// The whole interval of the ratio lies inside the margin, and no more trials than by chance lie beyond it on one side: if they differ, it
        /// does not matter.
        Tied = "tied",
        /// The same value in every trial; of a percentile, which is an edge of a bucket, also the same mean.
        Identical = "identical",
        /// No difference is shown, or one whose ratio is within the margin while its interval is not, or while many trials are not.
        Unclear = "unclear",
        /// Too few trials to judge.
        TooFewTrials = "too few",
        /// The measure is zero or nearly so under the baseline, and not clearly above that under the other; or one of them has no value of it; or it is
        /// a percentile of few events, a rate of fewer than five samples under both, or a time until an end that came under neither.
        NotMeasurable = "not measurable",
        /// The baseline against itself: by so much others must differ at least.
        Null = "null",
        /// What one of the two schedulers acts on is not in the run.
        NotAnswerable = "not answerable",
        /// Tasks never ran again that did under the baseline.
        Starves = "starves",
    }
}

impl Finding {
    /// The finding of a comparison whose two sides can be told from zero.
    pub fn of(comparison: &Comparison, margin: f64) -> Self {
        if comparison.interval.is_some_and(|interval| inside(interval, margin)) {
            return Self::Tied;
        }
        let matters = comparison.ratio.is_some_and(|ratio| !within(ratio, margin));
        match comparison.verdict {
            Verdict::TooFewTrials => Self::TooFewTrials,
            Verdict::Better if matters => Self::Better,
            Verdict::Worse if matters => Self::Worse,
            Verdict::Different if matters => Self::Different,
            Verdict::Better | Verdict::Worse | Verdict::Different | Verdict::NoDifferenceShown => Self::Unclear,
        }
    }

    /// The same with the trials that are apart where the middle of all ties, in one of `judged` comparisons that are judged together: with none
    /// that differs, one of them at most has such in [`SIGNIFICANCE`] of all runs.
    pub fn with_apart(
        self,
        design: Design,
        [base, own]: [&[Option<f64>]; 2],
        (margin, judged): (f64, usize),
    ) -> (Self, Option<TrialsApart>) {
        if self != Self::Tied {
            return (self, None);
        }
        match trials_apart(design, base, own, margin, SIGNIFICANCE / judged.max(1) as f64) {
            Some(apart) => (Self::Unclear, Some(apart)),
            None => (self, None),
        }
    }

    /// The same where the baseline differs from itself by as much as this ratio of at least 1: less is no difference.
    #[must_use]
    pub fn beyond(self, comparison: &Comparison, spread: f64) -> Self {
        let far = comparison.ratio.map_or(f64::INFINITY, |ratio| ratio.max(1.0 / ratio));
        match self {
            Self::Better | Self::Worse | Self::Different if far <= spread => Self::Unclear,
            found => found,
        }
    }
}

/// How far from 1 a measure's ratio must be so that its values differ by more than the margin, however they lie in the buckets that they are
/// edges of; 1 for measures that are exact.
pub(super) fn least_shown(measure: &Measure, margin: f64) -> f64 {
    let resolution = resolution(&measure.name);
    if resolution > 1.0 { (1.0 + margin) * resolution } else { 1.0 }
}

/// How far from 1 a ratio may be by its interval, as a ratio of at least 1; 1 if there is none.
pub(super) fn spread(comparison: &Comparison) -> f64 {
    let bounds =
        comparison.interval.map_or([comparison.ratio.unwrap_or(1.0); 2], |interval| [interval.low, interval.high]);
    bounds.into_iter().map(|bound| bound.max(1.0 / bound)).filter(|bound| bound.is_finite()).fold(1.0, f64::max)
}

/// Whether a ratio is 1 but for the margin, in either direction.
pub(crate) fn within(ratio: f64, margin: f64) -> bool {
    (1.0 / (1.0 + margin)..=1.0 + margin).contains(&ratio)
}

fn inside(interval: Interval, margin: f64) -> bool {
    within(interval.low, margin) && within(interval.high, margin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_statistics::{Better, compare_trials, judge};

    #[test]
    fn a_difference_smaller_than_the_baselines_own_is_none() {
        let trials = |factor: f64| -> Vec<Option<f64>> {
            (0..12).map(|k| Some(factor * (1.0 + 0.001 * f64::from(k % 3)))).collect()
        };
        let mut comparison = [compare_trials(Design::Blocked, &trials(1.0), &trials(1.03), Better::Lower).unwrap()];
        judge(&mut comparison);
        let found = Finding::of(&comparison[0], 0.01);
        assert_eq!(found, Finding::Worse);
        assert_eq!(found.beyond(&comparison[0], 1.05), Finding::Unclear);
        assert_eq!(found.beyond(&comparison[0], 1.01), Finding::Worse);
        assert!(spread(&comparison[0]) > 1.029);
    }
}
