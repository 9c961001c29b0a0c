//! What a comparison means to a reader, given how large a difference must be to matter.

use serde::{Deserialize, Serialize};
use warmcore_statistics::{Comparison, Interval, Verdict};

/// Differences up to this fraction matter to nobody, unless an experiment says otherwise: its *margin*.
pub const DEFAULT_MARGIN: f64 = 0.01;

/// What a comparison means to a reader: the statistics' verdict, in the light of the experiment's margin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Better than the baseline, by more than the margin.
    Better,
    /// Worse than the baseline, by more than the margin.
    Worse,
    /// Different by more than the margin, on a measure without a better direction.
    Different,
    /// The whole interval of the ratio lies inside the margin: if they differ, it does not matter.
    Tied,
    /// The same value in every trial.
    Identical,
    /// No difference is shown, or one that may be smaller or larger than the margin.
    Unclear,
    /// Too few trials to judge.
    TooFewTrials,
    /// The measure is zero or nearly so under the baseline: there is no ratio to it.
    NotMeasurable,
}

impl Finding {
    /// The finding of a comparison whose two sides can be told from zero.
    #[must_use]
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

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Different => "different",
            Self::Tied => "tied",
            Self::Identical => "identical",
            Self::Unclear => "unclear",
            Self::TooFewTrials => "too few",
            Self::NotMeasurable => "not measurable",
        }
    }
}

/// Whether a ratio is 1 but for the margin, in either direction.
pub(crate) fn within(ratio: f64, margin: f64) -> bool {
    (1.0 / (1.0 + margin)..=1.0 + margin).contains(&ratio)
}

fn inside(interval: Interval, margin: f64) -> bool {
    within(interval.low, margin) && within(interval.high, margin)
}
