//! All trials of the verdict's metric: as ratios to the baseline, and as values.

use warmcore_lab::measures::Unit;
use warmcore_lab::verdict::{Finding, decimal, ratio_with_interval};
use warmcore_statistics::{Better, Design, Interval};

use super::{Csv, Figure, RowFrame};
use crate::run::Run;
use crate::scale::{Scale, number_ticks, time_ticks};
use crate::svg::{Anchor, Svg};
use crate::text::left_out;
use crate::units::with_unit;

const LEFT: f64 = 190.0;
/// Room for the numbers of a row.
const RIGHT: f64 = 174.0;
const ROW: f64 = 42.0;
const TOP: f64 = 14.0;

/// Ratio to the baseline, with the median and its interval; every pair of trials as a point, or every trial over the baseline's
/// median where trials are no pairs.
pub fn ratios(run: &Run, wide: f64) -> Figure {
    let frame = RowFrame::new(wide, LEFT, RIGHT);
    let document = &run.disk.comparison;
    let primary = &document.primary;
    let measure = document.measures.iter().find(|measure| measure.name == *primary);
    let (title, better) = measure.map_or((primary.as_str(), Better::Neither), |m| (m.title.as_str(), m.better));
    let baseline = document.schedulers.iter().find(|scheduler| scheduler.is_baseline);
    let base: Vec<Option<f64>> =
        baseline.and_then(|s| s.measures.get(primary)).map_or(Vec::new(), |r| r.points.clone());
    let design = document.experiment.design;
    let middle_of_base = baseline.and_then(|s| s.measures.get(primary)).and_then(|result| result.summary.median);
    // Nothing has a ratio to nearly zero.
    let base_of = |trial: usize| {
        let value = match design {
            Design::Paired | Design::Blocked => base.get(trial).copied().flatten(),
            Design::Unpaired => middle_of_base,
        };
        value.filter(|value| measure.is_none_or(|measure| *value >= measure.least))
    };
    let mut csv =
        Csv::new(&["scheduler", "trial", "ratio", "median_ratio", "interval_low", "interval_high", "finding"]);
    let mut rows = Vec::new();
    let (mut low, mut high) = (0.98_f64, 1.02_f64);
    for (index, scheduler) in document.schedulers.iter().enumerate() {
        let Some(result) = scheduler.measures.get(primary) else { continue };
        let comparison = result.comparison.as_ref();
        let interval = comparison.and_then(|comparison| comparison.interval);
        let middle = if scheduler.is_baseline { Some(1.0) } else { comparison.and_then(|comparison| comparison.ratio) };
        // Where the whole has no ratio, no single trial has one either.
        let point = |(trial, value): (usize, &Option<f64>)| middle.and(ratio((*value)?, base_of(trial)?));
        let points: Vec<Option<f64>> = result.points.iter().enumerate().map(point).collect();
        let drawn = points.iter().flatten().copied().chain(middle);
        let drawn = drawn.chain(interval.iter().flat_map(|i| [i.low, i.high]));
        for value in drawn.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        let finding = result.finding;
        let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        for (trial, point) in points.iter().enumerate() {
            csv.row(&[
                scheduler.label.clone(),
                trial.to_string(),
                text(*point),
                text(middle),
                text(interval.map(|interval| interval.low)),
                text(interval.map(|interval| interval.high)),
                finding.map_or("baseline", Finding::words).to_owned(),
            ]);
        }
        let value = result.shown().zip(measure).map_or_else(String::new, |(median, m)| with_unit(median, m.unit));
        rows.push((index, scheduler.label.as_str(), points, (middle, value), interval, finding));
    }
    let margin = (high - low) * 0.05;
    let (low, high) = ((low - margin).max(0.0), high + margin);
    let height = TOP + (ROW + frame.above) * rows.len() as f64 + 46.0;
    let mut svg = Svg::new(wide, height);
    let scale = Scale::linear(low, high, frame.left, frame.right);
    let ticks: Vec<_> = scale.ticks(6).iter().map(|tick| (*tick, decimal(*tick))).collect();
    axis(&mut svg, frame, &scale, rows.len(), &ticks);
    frame.upright(&mut svg, scale.at(1.0), (TOP, rows.len(), ROW + frame.above), frame.above, "one");
    for (position, (index, label, points, (middle, value), interval, finding)) in rows.into_iter().enumerate() {
        let top = TOP + (ROW + frame.above) * position as f64 + frame.above;
        let y = top + ROW / 2.0;
        let mut words = finding.map_or("baseline", Finding::words).to_owned();
        // What has no ratio, being nearly nothing or next to it, has its value.
        let numbers = middle.map_or(value, |middle| ratio_with_interval(middle, interval));
        if middle.is_none() && matches!(finding, Some(Finding::Better | Finding::Worse | Finding::Different)) {
            words.push_str(", no ratio");
        }
        let both = format!("{numbers} {words}");
        frame.name(&mut svg, (top, ROW), "b", label, &both);
        for (trial, point) in points.iter().enumerate() {
            if let Some(point) = point {
                let hover = format!("{label}, trial {trial}: {} of the baseline", decimal(*point));
                let class = format!("dot c{}", crate::colour::series(index));
                svg.circle(scale.at(*point), y + jitter(trial), 3.2, &class, &hover);
            }
        }
        if let Some(interval) = interval {
            interval_bar(&mut svg, &scale, [low, high], interval, y);
        }
        if let Some(middle) = middle {
            svg.line(scale.at(middle), y - 11.0, scale.at(middle), y + 11.0, "median");
        }
        if frame.is_narrow() {
            svg.text(frame.right, top - 4.0, Anchor::End, "s", &both);
        } else {
            svg.text(frame.right + 16.0, y - 1.0, Anchor::Start, "b", &numbers);
            svg.text(frame.right + 16.0, y + 13.0, Anchor::Start, "m s", &words);
        }
    }
    svg.text(
        (frame.left + frame.right) / 2.0,
        height - 8.0,
        Anchor::Middle,
        "m",
        &format!("{title}, ratio to the baseline ({})", direction(better)),
    );
    Figure {
        id: "ratio".into(),
        title: format!("{title}: ratio to the baseline"),
        caption: format!(
            "Each point is {}, the bar its 95 % interval (none below 8 trials); {}.",
            match design {
                Design::Paired => "one pair of trials with the same seed; the line is the median ratio",
                Design::Blocked => "one pair of trials of the same block; the line is the median ratio",
                Design::Unpaired => "one trial over the baseline's median; the line is the ratio of the medians",
            },
            direction(better)
        ),
        svg,
        csv: csv.finish(),
    }
}

/// Every trial's value of the verdict's metric.
pub fn values(run: &Run, wide: f64) -> Figure {
    let frame = RowFrame::new(wide, LEFT, RIGHT);
    let document = &run.disk.comparison;
    let primary = &document.primary;
    let measure = document.measures.iter().find(|measure| measure.name == *primary);
    let (title, unit) = measure.map_or((primary.as_str(), None), |m| (m.title.as_str(), Some(m.unit)));
    let text = |value: f64| unit.map_or_else(|| value.to_string(), |unit| with_unit(value, unit));
    let results: Vec<_> =
        document.schedulers.iter().filter_map(|s| Some((s.label.as_str(), s.measures.get(primary)?))).collect();
    let finite = || results.iter().flat_map(|(_, r)| r.points.iter().flatten().copied()).filter(|v| v.is_finite());
    let (low, high) = finite().fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
    let margin = ((high - low) * 0.06).max(high * 0.002);
    let height = TOP + (ROW + frame.above) * results.len() as f64 + 46.0;
    let scale = Scale::linear((low - margin).max(0.0), high + margin, frame.left, frame.right);
    let mut svg = Svg::new(wide, height);
    let mut csv = Csv::new(&["scheduler", "trial", "seed", primary]);
    let words: Vec<(f64, String)> = scale.ticks(5).into_iter().map(|tick| (tick, text(tick))).collect();
    let ticks = match unit {
        Some(Unit::Ns) => time_ticks(&scale, 5),
        _ if words.windows(2).any(|pair| pair[0].1 == pair[1].1) => number_ticks(&scale, 5),
        _ => words,
    };
    axis(&mut svg, frame, &scale, results.len(), &ticks);
    for (index, (label, result)) in results.iter().enumerate() {
        let top = TOP + (ROW + frame.above) * index as f64 + frame.above;
        let y = top + ROW / 2.0;
        let median = result.shown().map_or_else(String::new, &text);
        frame.name(&mut svg, (top, ROW), "b", label, &median);
        for (trial, point) in result.points.iter().enumerate() {
            let seed = run.disk.record.seeds.get(trial).copied().unwrap_or_default();
            let value = point.map_or_else(String::new, |value| value.to_string());
            csv.row(&[(*label).to_owned(), trial.to_string(), seed.to_string(), value]);
            if let Some(point) = point {
                let flagged = if result.summary.outliers.contains(&trial) { ", far from the others" } else { "" };
                let hover = format!("{label}, trial {trial} (seed {seed}): {}{flagged}", text(*point));
                let class = format!("dot c{}", crate::colour::series(index));
                svg.circle(scale.at(*point), y + jitter(trial), 3.2, &class, &hover);
            }
        }
        if let Some(middle) = result.shown() {
            svg.line(scale.at(middle), y - 11.0, scale.at(middle), y + 11.0, "median");
            if frame.is_narrow() {
                svg.text(frame.right, top - 4.0, Anchor::End, "s", &median);
            } else {
                svg.text(frame.right + 16.0, y + 4.0, Anchor::Start, "b", &median);
            }
        }
    }
    svg.text((frame.left + frame.right) / 2.0, height - 8.0, Anchor::Middle, "m", title);
    Figure {
        id: "values".into(),
        title: format!("{title}: every trial"),
        caption: format!(
            "Each point is one trial, outliers included; the line is the median. A trial that was cut off lies at the right end.{}",
            left_out(document, &[(primary.as_str(), "The line")]).map_or_else(String::new, |few| format!(" {few}."))
        ),
        svg,
        csv: csv.finish(),
    }
}

/// An interval as a bar within what is drawn, `shown`; an end that nothing bounds is an arrow out of the plot.
fn interval_bar(svg: &mut Svg, scale: &Scale, shown: [f64; 2], interval: Interval, y: f64) {
    let [low, high] = [interval.low, interval.high].map(|end| scale.at(end.clamp(shown[0], shown[1])));
    svg.line(low, y, high, y, "bar");
    svg.line(low, y - 6.0, low, y + 6.0, "bar");
    if interval.high.is_finite() {
        svg.line(high, y - 6.0, high, y + 6.0, "bar");
    } else {
        svg.polyline(&[(high - 6.0, y - 5.0), (high, y), (high - 6.0, y + 5.0)], "bar", "no upper end");
    }
}

/// A ratio that can be drawn.
fn ratio(value: f64, base: f64) -> Option<f64> {
    let ratio = if value == base { 1.0 } else { value / base };
    (base > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// Points of one row lie a little apart, always in the same way.
fn jitter(trial: usize) -> f64 {
    [0.0, 5.0, -5.0, 2.5, -2.5, 7.0, -7.0][trial % 7]
}

/// An axis below so many rows, with lines up through them.
fn axis(svg: &mut Svg, frame: RowFrame, scale: &Scale, rows: usize, ticks: &[(f64, String)]) {
    let each = ROW + frame.above;
    let bottom = TOP + each * rows as f64;
    for (value, text) in ticks {
        let x = scale.at(*value);
        frame.upright(svg, x, (TOP, rows, each), frame.above, "grid");
        svg.text(x, bottom + 17.0, Anchor::Middle, "m", text);
    }
    svg.line(frame.left, bottom, frame.right, bottom, "axis");
}

/// The direction of a metric in words.
pub fn direction(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::Neither => "neither direction is better in itself",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_an_upper_end_leaves_the_plot_as_an_arrow() {
        let drawn = |high: f64| {
            let mut svg = Svg::new(300.0, 40.0);
            let scale = Scale::linear(0.9, 1.1, 0.0, 200.0);
            interval_bar(&mut svg, &scale, [0.9, 1.1], Interval { low: 0.95, high }, 20.0);
            svg.standalone("")
        };
        assert!(drawn(f64::INFINITY).contains("no upper end"));
        assert!(!drawn(1.05).contains("no upper end"));
    }
}
