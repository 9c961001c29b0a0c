//! Distributions of latencies: the share of waits longer than a time.

use warmcore_trace::Histogram;
use warmcore_trace::metrics::Totals;

use super::{Csv, Figure, PANEL, shortened};
use crate::colour::series;
use crate::run::Run;
use crate::scale::Scale;
use crate::scene::Scene;
use crate::svg::{Anchor, CURVE_KEY, Svg};
use crate::units::{count, duration};

/// Letters of a name that has room beside its numbers.
const MOST_BESIDE: usize = 3;

/// Where a distribution is among a run's totals.
type Select = fn(&Totals) -> &Histogram;

/// File name, title, caption, where it is.
const DISTRIBUTIONS: [(&str, &str, &str, Select); 3] = [
    (
        "wakeup-latency",
        "Wakeup latency",
        "from the waking of a task, or the first wakeup of a new one, to the first time it runs",
        |totals| &totals.wakeup_latency.histogram,
    ),
    ("preempt-wait", "Preempt wait", "from leaving the CPU still runnable to running again", |totals| {
        &totals.preempt_wait.histogram
    }),
    ("slice", "Slice", "one uninterrupted stay on a CPU", |totals| &totals.slice.histogram),
];

/// Those of the distributions that hold anything, so wide.
pub fn all(run: &Run, wide: f64) -> Vec<Figure> {
    DISTRIBUTIONS
        .iter()
        .filter(|(.., select)| run.scenes.iter().any(|scene| !select(&scene.metrics.totals).is_empty()))
        .map(|&(id, title, meaning, select)| figure(&run.scenes, (id, title, meaning), select, wide))
        .collect()
}

fn figure(scenes: &[Scene], (id, title, meaning): (&str, &str, &str), select: Select, wide: f64) -> Figure {
    const LEFT: f64 = 66.0;
    const RIGHT: f64 = 16.0;
    const TOP: f64 = 10.0;
    const BOTTOM: f64 = TOP + 160.0;
    let histograms: Vec<(usize, &str, &Histogram)> =
        scenes.iter().enumerate().map(|(i, s)| (i, s.scheduler.as_str(), select(&s.metrics.totals))).collect();
    let low = axis_from(histograms.iter().map(|(.., histogram)| *histogram));
    let high = histograms.iter().filter_map(|(.., h)| h.max()).max().unwrap_or(10).max(2) as f64;
    let least = histograms.iter().map(|(.., h)| h.count()).max().unwrap_or(1).max(10) as f64;
    let x = Scale::logarithmic(low, high.max(low * 2.0), LEFT, wide - RIGHT);
    let y = Scale::logarithmic((1.0 / least).max(1e-5), 1.0, BOTTOM, TOP);
    // Long names have a line of their own.
    let line = if histograms.iter().any(|(_, label, _)| label.chars().count() > MOST_BESIDE) { 32.0 } else { 17.0 };
    let mut svg = Svg::new(wide, BOTTOM + 46.0 + line * histograms.len() as f64);
    for tick in x.ticks((5.0 * wide / PANEL) as usize) {
        svg.line(x.at(tick), TOP, x.at(tick), BOTTOM, "grid");
        svg.text(x.at(tick), BOTTOM + 17.0, Anchor::Middle, "m", &duration(tick));
    }
    for tick in y.ticks(6) {
        svg.line(LEFT, y.at(tick), wide - RIGHT, y.at(tick), "grid");
        svg.text(LEFT - 8.0, y.at(tick) + 4.0, Anchor::End, "m", &share(tick));
    }
    let mut csv = Csv::new(&["scheduler", "bucket_low_ns", "bucket_high_ns", "count", "share_above"]);
    for (row, (index, label, histogram)) in histograms.iter().enumerate() {
        let whole = histogram.count();
        let mut above = whole;
        let mut points = vec![(x.at(low), y.at(1.0))];
        for (from, to, count) in histogram.buckets() {
            let before = above as f64 / whole as f64;
            above -= count;
            let after = above as f64 / whole as f64;
            csv.row(&[(*label).to_owned(), from.to_string(), to.to_string(), count.to_string(), after.to_string()]);
            let at = x.at((to as f64).min(histogram.max().unwrap_or(to) as f64).max(low));
            points.extend([(at, y.at(before)), (at, y.at(after))]);
        }
        if whole > 0 {
            svg.polyline(&points, &format!("k k{}", series(*index)), label);
        }
        let at = BOTTOM + 52.0 + line * row as f64;
        svg.curve_key(LEFT, at, series(*index));
        svg.text(LEFT + CURVE_KEY + 6.0, at, Anchor::Start, "b", &shortened(label, 34));
        let below = at + line - 17.0;
        svg.text(wide - RIGHT - 164.0, below, Anchor::End, "m s", &format!("n {}", count(whole as f64)));
        svg.text(wide - RIGHT - 82.0, below, Anchor::End, "m s", &format!("p50 {}", quantile(histogram, 0.5)));
        svg.text(wide - RIGHT, below, Anchor::End, "m s", &format!("p99 {}", quantile(histogram, 0.99)));
    }
    svg.line(LEFT, BOTTOM, wide - RIGHT, BOTTOM, "axis");
    svg.line(LEFT, TOP, LEFT, BOTTOM, "axis");
    svg.text((LEFT + wide - RIGHT) / 2.0, BOTTOM + 34.0, Anchor::Middle, "m", &title.to_lowercase());
    svg.text_upwards(14.0, (TOP + BOTTOM) / 2.0, "m", "share longer than that");
    Figure {
        id: id.into(),
        title: title.into(),
        caption: format!(
            "Share of cases that are longer than a time: {meaning}. Both axes are logarithmic. From one trial of each \
             scheduler{}, in buckets about 1.6 % wide; n: so many cases. A p99 needs {}.",
            if scenes.iter().any(|scene| scene.window_from_ns > 0) { " after its warm-up" } else { "" },
            Histogram::fewest_for(0.99)
        ),
        svg,
        csv: csv.finish(),
    }
}

/// Where a logarithmic axis of times begins: at the decade of the smallest time above 0. Cases of 0 lie at its left end.
fn axis_from<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> f64 {
    let least =
        histograms.filter_map(|histogram| histogram.buckets().map(|(from, ..)| from).find(|from| *from > 0)).min();
    least.map_or(1.0, |ns| 10_f64.powi(ns.ilog10() as i32))
}

/// A quantile in words; `-` where it would be one of so few cases that none lies beyond it.
fn quantile(histogram: &Histogram, q: f64) -> String {
    let enough = histogram.count() >= Histogram::fewest_for(q);
    histogram.quantile(q).filter(|_| enough).map_or_else(|| "-".into(), |ns| duration(ns as f64))
}

fn share(value: f64) -> String {
    let percent = value * 100.0;
    if percent >= 1.0 { format!("{percent:.0} %") } else { format!("{percent} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_begins_at_the_decade_of_the_smallest_time_above_0() {
        let of = |values: &[u64]| {
            let mut histogram = Histogram::new();
            values.iter().for_each(|ns| histogram.record(*ns));
            axis_from([&histogram, &Histogram::new()].into_iter())
        };
        assert_eq!([of(&[0, 3_050_000, 40_000_000]), of(&[0]), of(&[]), of(&[1])], [1e6, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn a_p99_of_few_cases_is_not_told() {
        let mut histogram = Histogram::new();
        (0..99).for_each(|_| histogram.record(1000));
        assert_eq!([0.5, 0.99].map(|q| quantile(&histogram, q) == "-"), [false, true]);
        histogram.record(1000);
        assert_ne!(quantile(&histogram, 0.99), "-");
    }
}
