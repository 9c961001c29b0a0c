//! One figure for each of several candidates, by series, against a baseline of 1: dots on lines.

use super::{Csv, Figure, WIDTH, shortened};
use crate::colour::{SERIES, series};
use crate::scale::{Scale, number_ticks};
use crate::svg::{Anchor, CURVE_KEY, Svg};

/// A series: its name, and a value with half the width of its interval for each candidate.
pub type Series = (String, Vec<(f64, f64)>);

const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 174.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = TOP + 240.0;

/// The figure. Candidates are in the order of the axis.
pub fn baseline(id: &str, title: &str, meaning: &str, candidates: &[String], all: &[Series]) -> Figure {
    let values = || all.iter().flat_map(|(_, values)| values);
    let low = values().map(|(value, half)| value - half).fold(1.0, f64::min);
    let high = values().map(|(value, half)| value + half).fold(1.0, f64::max);
    let margin = ((high - low) * 0.05).max(0.01);
    let y = Scale::linear(low - margin, high + margin, BOTTOM, TOP);
    let x = |at: usize| LEFT + (RIGHT - LEFT) * (at as f64 + 0.5) / candidates.len().max(1) as f64;
    let mut svg = Svg::new(WIDTH, BOTTOM + 52.0);
    for (value, text) in number_ticks(&y, 6) {
        svg.line(LEFT, y.at(value), RIGHT, y.at(value), "grid");
        svg.text(LEFT - 8.0, y.at(value) + 4.0, Anchor::End, "m", &text);
    }
    svg.line(LEFT, y.at(1.0), RIGHT, y.at(1.0), "axis");
    svg.line(LEFT, TOP, LEFT, BOTTOM, "axis");
    svg.text_upwards(14.0, (TOP + BOTTOM) / 2.0, "m", meaning);
    for (at, name) in candidates.iter().enumerate() {
        // Names in two rows, so that neighbours do not touch.
        let down = if at % 2 == 0 { 17.0 } else { 33.0 };
        svg.text(x(at), BOTTOM + down, Anchor::Middle, "s", &shortened(name, 18));
    }
    let mut csv = Csv::new(&["series", "candidate", "value", "half_interval"]);
    for (index, (name, values)) in all.iter().enumerate() {
        let colour = series(index);
        let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(at, (value, _))| (x(at), y.at(*value))).collect();
        svg.polyline(&points, &format!("k thin k{colour}"), name);
        for (at, (value, half)) in values.iter().enumerate() {
            // An interval is whole, whatever the dashes of its curve.
            let attributes = format!(r#"class="k" stroke="{}""#, SERIES[colour]);
            svg.polyline_with(&[(x(at), y.at(value - half)), (x(at), y.at(value + half))], &attributes, "");
            let hover = format!("{name}, {}: {value:.3}", candidates[at]);
            svg.circle(x(at), y.at(*value), 3.5, &format!("c{colour}"), &hover);
            csv.row(&[name, &candidates[at], &value.to_string(), &half.to_string()]);
        }
        let key = TOP + 10.0 + 20.0 * index as f64;
        svg.curve_key(RIGHT + 14.0, key, colour);
        svg.text(RIGHT + 20.0 + CURVE_KEY, key, Anchor::Start, "s", &shortened(name, 20));
    }
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: "The line is the baseline; bars are 95 % intervals of the mean.".to_owned(),
        svg,
        csv: csv.finish(),
    }
}
