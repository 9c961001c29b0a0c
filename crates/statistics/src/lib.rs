//! Statistics of trials: samples, intervals, comparison with a baseline, verdicts.
//!
//! For: few trials (typically 5 to 50) of a few configurations, whose distribution is unknown and often skewed.
//! Everything here is therefore about medians and ranks; the mean is reported, never judged by.
//! Not for: streams of events (see the histogram of the trace crate) and not for model fitting.
//!
//! The parts, each in one module:
//!
//! - [`sample`]: the values of one metric over the trials of one configuration; order statistics; outlier flags.
//! - [`bootstrap`]: bias-corrected and accelerated (BCa) intervals, seeded, the same on every machine.
//! - [`rank`]: Wilcoxon's signed-rank test (paired) and the Mann-Whitney test (unpaired), exact where feasible.
//! - [`distributions`]: the normal and Student's t distribution.
//! - [`partitions`]: how far two partitions of the same things agree.
//! - [`number`]: numbers in files, infinite ones too.
//! - [`compare`](mod@compare): ratio to the baseline with interval, p value, Holm's correction, verdict.
//!
//! Conventions: NaN is refused at the border with a [`StatisticsError`] that says where it was; infinities are legal
//! (a trial that never finished) and order statistics of them are as expected; a quantity that does not exist for the
//! data is `None`, never NaN. In JSON, infinities are the texts `"infinity"` and `"-infinity"`. Results depend on the input alone: elementary functions come from `libm`, random
//! numbers from a named generator with a fixed seed.

pub mod apart;
pub mod bootstrap;
pub mod compare;
pub mod distributions;
mod medians;
pub mod number;
pub mod partitions;
pub mod rank;
pub mod sample;

pub use apart::{TrialsApart, trials_apart};
pub use bootstrap::{Bootstrap, Interval};
pub use compare::{
    Better, Comparison, Design, Verdict, compare_paired, compare_trials, compare_unpaired, holm, judge, trials_needed,
};
pub use partitions::adjusted_rand_index;
pub use rank::{mann_whitney, wilcoxon_signed_rank};
pub use sample::{Sample, Summary, geometric_mean};

/// Input that no statistic can be computed from.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum StatisticsError {
    #[error("value {index} of the sample is not a number (NaN); drop the trial or repair the metric that produced it")]
    NotANumber { index: usize },
    #[error(
        "paired comparison needs one value of each side per pair, but there are {baseline} of the baseline and \
         {candidate} of the candidate; keep only the trials both have, or compare unpaired"
    )]
    UnequalLengths { baseline: usize, candidate: usize },
    #[error("value {index} is {value}, and ratios to a baseline are defined for values from 0 up only")]
    Negative { index: usize, value: f64 },
}
