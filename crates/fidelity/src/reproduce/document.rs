//! The result of a reproduction: every row of the source with what it says, ours, the error and the verdict.

use serde::Serialize;
use warmcore_statistics::{Interval, Sample};

use crate::reproduce::check::{Band, Check, Run, Stated};
use crate::reproduce::published::{Kind, PublishedRow};
use crate::reproduce::{CHANGE, Reproduction};
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::trial::Trial;

/// Version of the document.
pub const SCHEMA: &str = "warmcore-reproduction-1";

/// A reproduction's result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReproductionDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub tool_version: &'static str,
    /// The reproduction.
    pub name: String,
    /// Where the figures were published.
    pub source: String,
    /// Seed of each trial.
    pub seeds: Vec<u64>,
    /// Rows of the source that were asked for, in its order.
    pub rows: Vec<RowResult>,
    /// Directions of the ratios that change by more than 5 %, where a share is demanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signs: Option<Signs>,
    /// How many checks came out how.
    pub totals: Totals,
}

/// A row of the source.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RowResult {
    /// Name of the row.
    pub id: String,
    /// The row as published.
    pub published: PublishedRow,
    /// What is missing to simulate it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Comparisons with it.
    pub checks: Vec<CheckResult>,
}

/// One comparison with a row.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckResult {
    /// What is compared.
    pub title: String,
    /// How our figure is computed.
    pub definition: String,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// What the source says; `null` if that is words alone.
    pub stated: Stated,
    /// Median of our figure over the trials.
    pub ours: Option<f64>,
    /// Its 95 % interval, from 8 trials on.
    pub interval: Option<Interval>,
    /// Our figure in every trial.
    pub points: Vec<Option<f64>>,
    /// Ours over the stated one, minus 1.
    pub error: Option<f64>,
    /// Where ours must lie.
    pub band: Band,
    /// What was fitted to this figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitted: Option<&'static str>,
    /// How it came out.
    pub verdict: CheckVerdict,
    /// What was simulated.
    pub runs: Vec<Run>,
}

/// How a comparison came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// Inside its band.
    Inside,
    /// Outside its band.
    Outside,
    /// A parameter was fitted to it: not scored.
    Fitted,
    /// Our figure does not exist, in this or that trial.
    NoFigure,
}

impl CheckVerdict {
    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "OUTSIDE",
            Self::Fitted => "fitted",
            Self::NoFigure => "NO FIGURE",
        }
    }
}

/// Directions of ratios that change enough to have one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Signs {
    /// Number of published ratios that differ from 1 by more than 5 %, and are simulated.
    pub changed: usize,
    /// How many of ours are on the same side of 1, by more than 0.1 %.
    pub right: usize,
    /// Part that must be.
    pub demanded: f64,
}

impl Signs {
    /// Whether enough are right.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.right as f64 >= self.demanded * self.changed as f64
    }
}

/// Counts of comparisons and rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Totals {
    /// Rows that were asked for.
    pub rows: usize,
    /// Rows that are not simulated yet.
    pub missing_rows: usize,
    /// Comparisons inside their bands.
    pub inside: usize,
    /// Comparisons outside, or without a figure.
    pub outside: usize,
    /// Comparisons that are not scored.
    pub fitted: usize,
}

impl ReproductionDocument {
    /// The document of these rows.
    #[must_use]
    pub fn new(reproduction: &Reproduction, seeds: &[u64], rows: Vec<RowResult>) -> Self {
        let mut totals = Totals { rows: rows.len(), ..Totals::default() };
        totals.missing_rows = rows.iter().filter(|row| row.missing.is_some()).count();
        for check in rows.iter().flat_map(|row| &row.checks) {
            match check.verdict {
                CheckVerdict::Inside => totals.inside += 1,
                CheckVerdict::Outside | CheckVerdict::NoFigure => totals.outside += 1,
                CheckVerdict::Fitted => totals.fitted += 1,
            }
        }
        Self {
            schema: SCHEMA,
            tool_version: TOOL_VERSION,
            name: reproduction.name.into(),
            source: reproduction.source.into(),
            seeds: seeds.to_vec(),
            signs: reproduction.sign_share.map(|demanded| signs(&rows, demanded)).filter(|signs| signs.changed > 0),
            rows,
            totals,
        }
    }

    /// Whether everything that is scored is as demanded.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.totals.outside == 0 && self.signs.is_none_or(|signs| signs.hold())
    }
}

/// A ratio that is no farther from 1 than this shows no direction.
const NO_DIRECTION: f64 = 0.001;

fn signs(rows: &[RowResult], demanded: f64) -> Signs {
    let mut signs = Signs { changed: 0, right: 0, demanded };
    for row in rows.iter().filter(|row| row.published.kind == Kind::Ratio) {
        for check in row.checks.iter().filter(|check| check.verdict != CheckVerdict::Fitted) {
            let Stated::Value(stated) = check.stated else { continue };
            if (stated - 1.0).abs() > CHANGE {
                signs.changed += 1;
                signs.right +=
                    usize::from(check.ours.is_some_and(|ours| (ours - 1.0) * (stated - 1.0).signum() > NO_DIRECTION));
            }
        }
    }
    signs
}

impl CheckResult {
    /// The result of a check from the trials of its runs: `trials[r][k]` is trial k of run r, which has seed k.
    #[must_use]
    pub fn new(check: &Check, trials: &[&[Trial]], seeds: &[u64]) -> Self {
        let count = trials.iter().map(|trials| trials.len()).min().unwrap_or(seeds.len());
        let point = |k: usize| {
            let seed = seeds.get(k).copied().unwrap_or_default();
            check.figure.of(&trials.iter().map(|trials| &trials[k]).collect::<Vec<_>>(), seed)
        };
        let points: Vec<Option<f64>> = (0..count).map(point).collect();
        let values: Option<Vec<f64>> = points.iter().copied().collect();
        // A figure is never NaN, which is all that a sample refuses.
        let sample = values.and_then(|values| Sample::new(&values).ok());
        let ours = sample.as_ref().and_then(Sample::median);
        let verdict = match ours {
            None => CheckVerdict::NoFigure,
            Some(_) if check.fitted.is_some() => CheckVerdict::Fitted,
            Some(ours) if check.band.contains(ours) => CheckVerdict::Inside,
            Some(_) => CheckVerdict::Outside,
        };
        Self {
            title: check.title.clone(),
            definition: check.figure.definition(),
            unit: check.unit,
            stated: check.stated,
            ours,
            interval: sample.as_ref().and_then(Sample::median_interval),
            points,
            error: ours.and_then(|ours| check.stated.error(ours)),
            band: check.band.clone(),
            fitted: check.fitted,
            verdict,
            runs: check.runs.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::check::Figure;
    use crate::reproduce::find;
    use crate::reproduce::published::PublishedFile;
    use crate::test_trial::trial;

    fn ratio_check(stated: f64, band: Band) -> Check {
        let run = || Run::new("m", "w", "s");
        Check::ratio("t", [run(), run()], Figure::Ratio("m"), Stated::Value(stated), band)
    }

    fn trials(values: &[f64]) -> Vec<Trial> {
        values.iter().enumerate().map(|(k, value)| trial("s", k, &[("m", Some(*value))])).collect()
    }

    #[test]
    fn a_figure_is_paired_by_trial_and_judged_by_its_median() {
        let result = CheckResult::new(
            &ratio_check(2.0, Band::within(1.9, 2.1, "")),
            &[&trials(&[1.0, 10.0, 100.0]), &trials(&[2.0, 30.0, 200.0])],
            &[],
        );
        assert_eq!(result.points, [Some(2.0), Some(3.0), Some(2.0)]);
        assert_eq!((result.ours, result.verdict, result.error), (Some(2.0), CheckVerdict::Inside, Some(0.0)));
        assert_eq!(result.interval, None, "three trials have no interval");
    }

    #[test]
    fn one_missing_point_is_no_figure_and_counts_as_outside() {
        let mut second = trials(&[2.0, 2.0]);
        second[1].measures.clear();
        let result =
            CheckResult::new(&ratio_check(2.0, Band::at_least(0.0, "")), &[&trials(&[1.0, 1.0]), &second], &[]);
        assert_eq!((result.ours, result.verdict), (None, CheckVerdict::NoFigure));
    }

    #[test]
    fn fitted_figures_are_shown_and_not_scored() {
        let check = ratio_check(2.0, Band::at_least(5.0, "")).fitted_to_it("p");
        let result = CheckResult::new(&check, &[&trials(&[1.0]), &trials(&[2.0])], &[]);
        assert_eq!((result.ours, result.verdict), (Some(2.0), CheckVerdict::Fitted));
    }

    #[test]
    fn signs_count_only_ratios_that_change_by_more_than_a_twentieth() {
        let file = "[machine]\npreset = \"p\"\n[[row]]\nkind = \"ratio\"\nmetric = \"m\"\nvalue = 1.0\n";
        let published = PublishedFile::parse(file).unwrap().rows.remove(0);
        let row = |stated: f64, ours: f64| {
            let check = ratio_check(stated, Band::at_least(0.0, ""));
            let checks = vec![CheckResult::new(&check, &[&trials(&[1.0]), &trials(&[ours])], &[])];
            RowResult { id: "r".into(), published: published.clone(), missing: None, checks }
        };
        let rows = vec![row(0.5, 0.6), row(1.5, 0.9), row(1.04, 0.9), row(0.9, 1.0), row(1.2, 1.0005)];
        assert_eq!(signs(&rows, 0.2), Signs { changed: 4, right: 1, demanded: 0.2 });
        let document = ReproductionDocument::new(find("topology-rfc").unwrap(), &[1], rows);
        assert!(!document.holds(), "one of four is less than the 80 % demanded");
    }
}
