//! Many experiments as one table: every machine × every workload, each under the same schedulers.
//!
//! A cell is a *gain*: by which factor a scheduler improves the workload's own metric over the baseline, whichever direction of
//! that metric is better; 1.1 is 10 % better, 0.9 is 10 % worse. Where that metric cannot be measured it is another one, and the row says why.
//!
//! Gains of one metric are averaged geometrically over workloads and machines; those of different metrics have no mean. The worst of those that
//! the trials show are listed, because an average hides them.
//!
//! A scheduler that leaves tasks waiting for ever that run under the baseline has no gain there, and is in no mean: its cell is a loss, the worst.
//! So is one that is worse without a ratio, as where the baseline's metric is nearly zero.

use serde::Serialize;
use warmcore_statistics::{Better, Interval, geometric_mean};

use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::headroom::LEAST_HEADROOM;
use warmcore_lab::units::with_unit;
use warmcore_lab::verdict::{ComparisonDocument, Finding, MeasureResult, Replaced};
use warmcore_memory::math::ln;

/// Version of the document.
pub const SCHEMA: &str = "warmcore-sweep-2";

/// A gain below this counts as a regression.
pub const REGRESSION: f64 = 0.98;

/// The result of a sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub tool_version: &'static str,
    /// Label of the baseline.
    pub baseline: String,
    /// Labels of the others, in the order of columns.
    pub candidates: Vec<String>,
    /// Trials of each scheduler in each cell.
    pub trials: usize,
    /// One for each machine and workload.
    pub rows: Vec<SweepRow>,
    /// Geometric means by metric.
    pub by_metric: Vec<SweepMean>,
    /// Geometric means by machine, where all rows have the same metric.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_machine: Vec<SweepMean>,
    /// Geometric means by workload.
    pub by_workload: Vec<SweepMean>,
    /// Of what the oracle wins, the part that each candidate wins, by workload, and over all of them last; empty where nobody asked the oracle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub won: Vec<SweepWon>,
    /// Losses without a gain, because tasks wait for ever or there is no ratio, then gains below [`REGRESSION`] that the trials show, worst first.
    pub regressions: Vec<Regression>,
    /// Gains below [`REGRESSION`] that the trials do not show: too few, or too different among themselves.
    pub not_shown: usize,
}

/// One machine and workload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepRow {
    /// The machine, as it was typed.
    pub machine: String,
    /// The workload, as it was typed.
    pub workload: String,
    /// The metric that is compared.
    pub metric: String,
    /// Why it is not the workload's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// Its median under the baseline, in the metric's unit.
    pub baseline: Option<f64>,
    /// That with its unit, in words; `-` where it is a percentile of few events.
    #[serde(skip)]
    pub baseline_in_words: String,
    /// By candidate.
    pub gains: Vec<Gain>,
    /// Gain of the oracle's placement; absent where it was not asked for, or there is nothing to place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oracle: Option<f64>,
}

/// A candidate against the baseline.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Gain {
    /// Factor of improvement; absent where a trial has no value, where tasks wait for ever that run under the baseline, and over nearly zero.
    pub gain: Option<f64>,
    /// Its 95 % interval, from 8 trials on.
    pub interval: Option<Interval>,
    /// What the trials show.
    pub finding: Option<Finding>,
}

/// Means over the rows of one metric, machine or workload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepMean {
    /// The metric, machine or workload.
    pub name: String,
    /// By candidate.
    pub means: Vec<Option<f64>>,
}

/// What could be won on a workload, and who wins it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepWon {
    /// The workload.
    pub name: String,
    /// Machines on which the oracle wins more than [`LEAST_HEADROOM`], of those for which it was asked.
    pub winnable: usize,
    /// Machines for which it was asked.
    pub asked: usize,
    /// Geometric mean of the oracle's gains on the former.
    pub oracle: Option<f64>,
    /// By candidate: its part of the logarithm of that mean.
    pub parts: Vec<Option<f64>>,
}

impl SweepWon {
    fn of<'a>(name: &str, candidates: usize, rows: impl Iterator<Item = &'a SweepRow>) -> Self {
        let asked: Vec<&SweepRow> = rows.filter(|row| row.oracle.is_some()).collect();
        let winnable: Vec<&SweepRow> =
            asked.iter().copied().filter(|row| row.oracle.is_some_and(|gain| gain > 1.0 + LEAST_HEADROOM)).collect();
        let oracle = geometric_mean(&winnable.iter().filter_map(|row| row.oracle).collect::<Vec<f64>>());
        let part = |index: usize| {
            let gains: Option<Vec<f64>> = winnable.iter().map(|row| row.gains.get(index)?.gain).collect();
            Some(ln(geometric_mean(&gains?)?) / ln(oracle?))
        };
        let parts = (0..candidates).map(part).collect();
        Self { name: name.into(), winnable: winnable.len(), asked: asked.len(), oracle, parts }
    }
}

/// A gain that is a loss.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Regression {
    /// Label of the candidate.
    pub candidate: String,
    /// The machine.
    pub machine: String,
    /// The workload.
    pub workload: String,
    /// The factor; absent where tasks wait for ever that run under the baseline, and where there is no ratio.
    pub gain: Option<f64>,
    /// Whether tasks wait for ever that run under the baseline.
    pub starves: bool,
}

impl SweepRow {
    /// The row of a comparison.
    pub fn new(document: &ComparisonDocument) -> Self {
        let candidates = document.schedulers.iter().filter(|scheduler| !scheduler.is_baseline);
        let gains = candidates.map(|scheduler| {
            let result = scheduler.measures.get(&document.primary);
            let finding = result.and_then(|result| result.finding);
            let starves = finding == Some(Finding::Starves);
            let comparison = result.and_then(|result| result.comparison.as_ref()).filter(|_| !starves);
            let lower = comparison.is_some_and(|comparison| comparison.better == Better::Lower);
            let interval = comparison.and_then(|comparison| comparison.interval);
            Gain {
                gain: comparison
                    .and_then(|comparison| comparison.ratio)
                    .map(|ratio| if lower { 1.0 / ratio } else { ratio }),
                interval: interval.map(|Interval { low, high }| match lower {
                    true => Interval { low: 1.0 / high, high: 1.0 / low },
                    false => Interval { low, high },
                }),
                finding,
            }
        });
        let base = document.schedulers.iter().find(|scheduler| scheduler.is_baseline);
        let base = base.and_then(|base| base.measures.get(&document.primary));
        let baseline = base.and_then(|base| base.summary.median);
        let shown = base.and_then(MeasureResult::shown);
        let unit =
            document.measures.iter().find(|measure| measure.name == document.primary).map(|measure| measure.unit);
        Self {
            machine: document.experiment.machine.source.clone(),
            workload: document.experiment.workload.source.clone(),
            metric: document.primary.clone(),
            replaced: document.replaced.clone(),
            baseline,
            baseline_in_words: shown.zip(unit).map_or_else(|| "-".into(), |(value, unit)| with_unit(value, unit)),
            gains: gains.collect(),
            oracle: document.headroom.as_ref().and_then(|headroom| headroom.gain),
        }
    }
}

impl SweepDocument {
    /// The document of these rows, which have the same schedulers.
    pub fn new(baseline: String, candidates: Vec<String>, trials: usize, rows: Vec<SweepRow>) -> Self {
        let means_of = |chosen: &dyn Fn(&SweepRow) -> bool| -> Vec<Option<f64>> {
            let mean = |index: usize| {
                let gains: Vec<f64> =
                    rows.iter().filter(|row| chosen(row)).filter_map(|row| row.gains.get(index)?.gain).collect();
                geometric_mean(&gains)
            };
            (0..candidates.len()).map(mean).collect()
        };
        let by = |name: fn(&SweepRow) -> &str| {
            let mut names: Vec<&str> = Vec::new();
            for row in &rows {
                if !names.contains(&name(row)) {
                    names.push(name(row));
                }
            }
            let mean = |wanted: &str| SweepMean { name: wanted.into(), means: means_of(&|row| name(row) == wanted) };
            names.into_iter().map(mean).collect::<Vec<_>>()
        };
        let by_metric = by(|row| &row.metric);
        let mut won = Vec::new();
        if rows.iter().any(|row| row.oracle.is_some()) {
            let of = |name: &str| SweepWon::of(name, candidates.len(), rows.iter().filter(|row| row.workload == name));
            won = by(|row| &row.workload).iter().map(|mean| of(&mean.name)).collect();
            won.push(SweepWon::of("everything", candidates.len(), rows.iter()));
        }
        let losses = |shown: bool| {
            rows.iter()
                .flat_map(|row| row.gains.iter().zip(&candidates).map(move |(gain, name)| (row, gain, name)))
                .filter_map(move |(row, gain, candidate)| {
                    let starves = gain.finding == Some(Finding::Starves);
                    let is_worse = starves || gain.finding == Some(Finding::Worse);
                    if gain.gain.map_or(!is_worse, |gain| !starves && gain >= REGRESSION) {
                        return None;
                    }
                    let (machine, workload) = (row.machine.clone(), row.workload.clone());
                    let candidate = candidate.clone();
                    let regression = Regression { candidate, machine, workload, gain: gain.gain, starves };
                    (is_worse == shown).then_some(regression)
                })
        };
        let mut regressions: Vec<Regression> = losses(true).collect();
        let not_shown = losses(false).count();
        let bad = |of: &Regression| of.gain.unwrap_or(0.0);
        regressions.sort_by(|a, b| bad(a).total_cmp(&bad(b)));
        Self {
            schema: SCHEMA,
            tool_version: TOOL_VERSION,
            baseline,
            trials,
            by_machine: if by_metric.len() > 1 { Vec::new() } else { by(|row| &row.machine) },
            by_workload: by(|row| &row.workload),
            by_metric,
            won,
            regressions,
            not_shown,
            candidates,
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(machine: &str, workload: &str, gains: &[f64]) -> SweepRow {
        let gain = |gain: &f64| Gain { gain: Some(*gain), interval: None, finding: Some(Finding::Worse) };
        SweepRow {
            machine: machine.into(),
            workload: workload.into(),
            metric: "m".into(),
            replaced: None,
            baseline: None,
            baseline_in_words: String::new(),
            gains: gains.iter().map(gain).collect(),
            oracle: None,
        }
    }

    #[test]
    fn parts_won_are_of_what_could_be_won() {
        let with = |row: SweepRow, oracle: Option<f64>| SweepRow { oracle, ..row };
        let rows = vec![
            with(row("a", "v", &[2.0, 1.0]), Some(4.0)),
            with(row("b", "v", &[0.5, 1.0]), Some(1.0)),
            with(row("a", "w", &[1.0, 1.1]), None),
        ];
        let document = SweepDocument::new("base".into(), vec!["x".into(), "y".into()], 3, rows);
        let names: Vec<&str> = document.won.iter().map(|won| &*won.name).collect();
        assert_eq!(names, ["v", "w", "everything"]);
        // On b nothing is to be won, so what x loses there is no part of it.
        assert_eq!((document.won[0].winnable, document.won[0].asked), (1, 2));
        assert!((document.won[0].parts[0].unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(document.won[0].parts[1], Some(0.0));
        assert_eq!((document.won[1].asked, document.won[1].oracle, document.won[1].parts[0]), (0, None, None));
    }

    #[test]
    fn gains_are_averaged_geometrically_and_losses_listed_worst_first() {
        let rows = vec![row("a", "v", &[2.0, 0.9]), row("a", "w", &[0.5, 1.0]), row("b", "v", &[1.0, 0.7])];
        let document = SweepDocument::new("base".into(), vec!["x".into(), "y".into()], 3, rows);
        assert!((document.by_metric[0].means[0].unwrap() - 1.0).abs() < 1e-12);
        let of = |means: &[SweepMean], name: &str, index: usize| {
            means.iter().find(|mean| mean.name == name).and_then(|mean| mean.means[index]).unwrap()
        };
        assert!((of(&document.by_machine, "a", 0) - 1.0).abs() < 1e-12);
        assert!((of(&document.by_workload, "v", 1) - 0.63_f64.sqrt()).abs() < 1e-12);
        let worst: Vec<(&str, f64)> =
            document.regressions.iter().map(|loss| (&*loss.candidate, loss.gain.unwrap())).collect();
        assert_eq!(worst, [("x", 0.5), ("y", 0.7), ("y", 0.9)]);
    }

    #[test]
    fn who_starves_has_no_gain_and_is_the_worst_loss() {
        let mut rows = vec![row("a", "v", &[0.5, 2.0]), row("a", "w", &[4.0, 3.0])];
        rows[1].gains[0] = Gain { gain: None, interval: None, finding: Some(Finding::Starves) };
        let document = SweepDocument::new("base".into(), vec!["x".into(), "y".into()], 3, rows);
        let losses: Vec<_> =
            document.regressions.iter().map(|loss| (&*loss.candidate, &*loss.workload, loss.gain)).collect();
        assert_eq!(losses, [("x", "w", None), ("x", "v", Some(0.5))]);
        assert_eq!(document.not_shown, 0);
        assert_eq!(document.by_metric[0].means[0], Some(0.5), "what starves is in no mean");
    }

    #[test]
    fn who_is_worse_without_a_ratio_is_a_loss_and_who_is_better_or_open_is_none() {
        let mut rows = vec![row("a", "v", &[0.5, 2.0, 1.0]), row("a", "w", &[0.9, 3.0, 1.0])];
        for (gain, finding) in rows[1].gains.iter_mut().zip([Finding::Worse, Finding::Better, Finding::NotMeasurable]) {
            *gain = Gain { gain: None, interval: None, finding: Some(finding) };
        }
        let document = SweepDocument::new("base".into(), vec!["x".into(), "y".into(), "z".into()], 8, rows);
        let losses: Vec<_> =
            document.regressions.iter().map(|loss| (&*loss.candidate, loss.gain, loss.starves)).collect();
        assert_eq!(losses, [("x", None, false), ("x", Some(0.5), false)]);
        assert_eq!(document.not_shown, 0);
    }

    #[test]
    fn what_the_trials_do_not_show_is_no_loss_and_metrics_are_not_mixed() {
        let mut rows = vec![row("a", "v", &[0.5]), row("a", "w", &[0.6])];
        rows[1].metric = "n".into();
        rows[1].gains[0].finding = Some(Finding::Unclear);
        let document = SweepDocument::new("base".into(), vec!["x".into()], 3, rows);
        assert_eq!((document.regressions.len(), document.not_shown), (1, 1));
        let means: Vec<(&str, f64)> =
            document.by_metric.iter().map(|mean| (&*mean.name, mean.means[0].unwrap())).collect();
        assert_eq!(means, [("m", 0.5), ("n", 0.6)]);
        assert!(document.by_machine.is_empty(), "a machine's rows have different metrics");
    }
}
