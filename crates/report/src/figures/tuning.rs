//! What each knob of a tuning does: a panel for each, with every candidate that was tried.

use super::{Csv, Figure};
use crate::scale::Scale;
use crate::svg::{Anchor, Svg};
use crate::units::three_digits;

/// A knob with what was tried.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Its name.
    pub name: String,
    /// Whether factors of its values matter.
    pub log: bool,
    /// Value and ratio to the default of every candidate.
    pub points: Vec<(String, f64)>,
    /// The value that was confirmed.
    pub found: Option<String>,
}

/// A panel's size, with what is around it.
const WIDE: f64 = 360.0;
/// The same from top to bottom.
const HIGH: f64 = 200.0;
/// Panels in a row.
const ACROSS: usize = 2;

/// The figure.
pub fn figure(title: &str, panels: &[Panel]) -> Figure {
    let rows = panels.len().div_ceil(ACROSS);
    let mut svg = Svg::new(WIDE * ACROSS as f64, HIGH * rows as f64 + 10.0);
    for (index, panel) in panels.iter().enumerate() {
        draw(&mut svg, panel, ((index % ACROSS) as f64 * WIDE, (index / ACROSS) as f64 * HIGH));
    }
    let mut csv = Csv::new(&["knob", "value", "ratio"]);
    for panel in panels {
        panel.points.iter().for_each(|(value, ratio)| csv.row(&[&panel.name, value, &ratio.to_string()]));
    }
    Figure {
        id: "sensitivity".into(),
        title: title.to_owned(),
        caption: "A point is a candidate: its value of the knob, and the ratio of its objective to the default's. The line is the default; what is \
                  below it is better. The value that was confirmed is a full circle."
            .into(),
        svg,
        csv: csv.finish(),
    }
}

fn draw(svg: &mut Svg, panel: &Panel, (x0, y0): (f64, f64)) {
    let (left, right, top, bottom) = (x0 + 56.0, x0 + WIDE - 16.0, y0 + 30.0, y0 + HIGH - 34.0);
    svg.text(left, y0 + 18.0, Anchor::Start, "s b", &panel.name);
    let ratios = || panel.points.iter().map(|(_, ratio)| *ratio).chain([1.0]);
    let (low, high) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
    let room = ((high - low) * 0.08).max(0.01);
    let y = Scale::linear(low - room, high + room, bottom, top);
    for (value, class) in [(low, "grid"), (1.0, "median"), (high, "grid")] {
        svg.line(left, y.at(value), right, y.at(value), class);
    }
    let mut labelled = vec![1.0];
    for value in [low, high] {
        if labelled.iter().all(|known| (y.at(*known) - y.at(value)).abs() > 12.0) {
            labelled.push(value);
        }
    }
    labelled.iter().for_each(|value| svg.text(left - 6.0, y.at(*value) + 4.0, Anchor::End, "s", &three_digits(*value)));
    let numbers: Option<Vec<f64>> = panel.points.iter().map(|(value, _)| value.parse().ok()).collect();
    let mut words: Vec<&str> = panel.points.iter().map(|(value, _)| value.as_str()).collect();
    words.sort_unstable();
    words.dedup();
    let as_numbers = numbers.as_ref().is_some_and(|numbers| !numbers.is_empty());
    let along = |value: f64| if panel.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
    let place = |text: &str| match text.parse::<f64>() {
        Ok(number) if as_numbers => along(number),
        _ => words.iter().position(|word| *word == text).unwrap_or(0) as f64,
    };
    let all = || panel.points.iter().map(|(value, _)| place(value));
    let (first, last) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    if first > last {
        return;
    }
    let beyond = if last > first { (last - first) * 0.04 } else { 0.5 };
    let x = Scale::linear(first - beyond, last + beyond, left, right);
    let mut ends: Vec<(&str, f64)> = Vec::new();
    for (value, _) in &panel.points {
        let at = place(value);
        let is_end = !as_numbers || at == first || at == last;
        if is_end && ends.iter().all(|(_, known)| *known != at) {
            ends.push((value, at));
        }
    }
    for (text, at) in ends {
        svg.text(x.at(at), bottom + 16.0, Anchor::Middle, "s", text);
    }
    for (value, ratio) in &panel.points {
        let is_found = panel.found.as_deref() == Some(value.as_str());
        let hover = format!("{} {value}: {}", panel.name, three_digits(*ratio));
        svg.circle(x.at(place(value)), y.at(*ratio), 4.5, if is_found { "c0" } else { "hollow" }, &hover);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_drawn_in_each_panel_and_the_found_one_is_full() {
        let points = [("1000", 0.9), ("4000", 0.7), ("16000", 1.2)].map(|(value, ratio)| (value.to_owned(), ratio));
        let numbers = Panel { name: "slice".into(), log: true, points: points.to_vec(), found: Some("4000".into()) };
        let words = [("one", 0.9), ("two", 0.7), ("one", 1.2)].map(|(value, ratio)| (value.to_owned(), ratio));
        let words = Panel { name: "where".into(), log: false, points: words.to_vec(), found: None };
        let Figure { svg, csv, .. } = figure("t", &[numbers, words]);
        assert!(csv.starts_with("knob,value,ratio\nslice,1000,0.9\n") && csv.lines().count() == 7, "{csv}");
        let drawn = svg.standalone("t");
        assert_eq!((drawn.matches("<circle").count(), drawn.matches("class=\"c0\"").count()), (6, 1), "{drawn}");
        assert!(drawn.contains(">slice<") && drawn.contains(">16000<") && drawn.contains(">two<"), "{drawn}");
        // By factors the middle of three is in the middle.
        let x: Vec<f64> =
            drawn.split("cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
        assert!((x[1] - (x[0] + x[2]) / 2.0).abs() < 0.2, "{x:?}");
    }
}
