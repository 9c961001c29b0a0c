//! A bar chart by application: a row for each bar, all on one scale with a line at zero.

use super::labels::{Labels, fitting};
use super::{Csv, Figure, NARROW};
use crate::colour::series;
use crate::scale::{Scale, number_ticks};
use crate::svg::{Anchor, Svg, text_width};
use crate::units::three_digits;

/// A bar.
#[derive(Clone, PartialEq, Debug)]
pub struct Drawn {
    /// Of what.
    pub label: String,
    /// Which of several bars with the same label; may be empty.
    pub series: String,
    /// Its length, and the smallest and largest of a trial; or why it has none.
    pub length: Result<[f64; 3], String>,
    /// What was published, if that is a number.
    pub published: Option<f64>,
}

impl Drawn {
    fn name(&self) -> String {
        if self.series.is_empty() { self.label.clone() } else { format!("{}, {}", self.label, self.series) }
    }

    /// What must be seen of it.
    fn ends(&self) -> impl Iterator<Item = f64> {
        let length = self.length.as_ref().ok().copied();
        length.into_iter().flatten().chain(self.published).filter(|value| value.is_finite())
    }
}

/// The chart, so wide. `published`: what is to be seen in the published one. `None` without bars.
pub fn figure(id: &str, title: &str, published: &str, unit: &str, bars: &[Drawn], wide: f64) -> Option<Figure> {
    const ROW: f64 = 20.0;
    /// For values and words at the right end.
    const ROOM: f64 = 90.0;
    const NO_VALUE: &str = "no value";
    if bars.is_empty() {
        return None;
    }
    let narrow = wide < NARROW;
    let mut all_series: Vec<&str> = Vec::new();
    for bar in bars {
        if !all_series.contains(&bar.series.as_str()) {
            all_series.push(&bar.series);
        }
    }
    let colour = |bar: &Drawn| series(all_series.iter().position(|other| *other == bar.series).unwrap_or(0));
    let shown = |bar: &Drawn| bar.length.as_ref().map_or_else(|_| NO_VALUE.to_owned(), |of| three_digits(of[0]));
    let room = bars.iter().map(|bar| text_width("s b", &shown(bar))).fold(0.0, f64::max).min(ROOM) + 10.0;
    let names: Vec<String> = bars.iter().map(Drawn::name).collect();
    let labels = Labels::new(&names, wide, 0.42, room);
    let (left, right) = (labels.left, wide - 14.0 - if narrow { 0.0 } else { room });
    let ends = || bars.iter().flat_map(Drawn::ends);
    let (low, high) = (ends().fold(0.0, f64::min), ends().fold(0.0, f64::max));
    let x = Scale::linear(low, if high > low { high } else { low + 1.0 }, left, right);
    let has_published = bars.iter().any(|bar| bar.published.is_some());
    let top = if has_published { 30.0 } else { 10.0 };
    let bottom = top + labels.heights(ROW);
    let mut svg = Svg::new(wide, bottom + if unit.is_empty() { 26.0 } else { 42.0 });
    if has_published {
        svg.line(16.0, 5.0, 16.0, 19.0, "median");
        svg.text(24.0, 16.0, Anchor::Start, "s", "published");
    }
    let ticks = number_ticks(&x, if narrow { 3 } else { 6 });
    for (value, text) in &ticks {
        svg.text(x.at(*value), bottom + 16.0, Anchor::Middle, "m", text);
    }
    if !unit.is_empty() {
        svg.text((left + right) / 2.0, bottom + 33.0, Anchor::Middle, "m", &fitting(unit, "m", wide - 28.0));
    }
    let mut csv = Csv::new(&["label", "series", "value", "smallest", "largest", "published", "unit", "note"]);
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let mut y = top;
    for (row, bar) in bars.iter().enumerate() {
        let of = |index: usize| text(bar.length.as_ref().ok().map(|of| of[index]));
        let note = bar.length.as_ref().err().map_or("", String::as_str);
        csv.row(&[&bar.label, &bar.series, &of(0), &of(1), &of(2), &text(bar.published), unit, note]);
        let (begin, height) = labels.draw(&mut svg, row, y, ROW);
        let words = fitting(&shown(bar), "s b", room - 10.0 + 0.1);
        let middle = begin + height / 2.0;
        if narrow {
            svg.text(right, y + 13.0, Anchor::End, "s b", &words);
        } else {
            svg.text(right + 10.0, middle + 4.0, Anchor::Start, "s b", &words);
        }
        y += labels.height(row, ROW);
        // The axis' lines are in the row only: above it may be its name.
        for (value, _) in &ticks {
            svg.line(x.at(*value), begin, x.at(*value), begin + height, "grid");
        }
        if let Ok([value, smallest, largest]) = bar.length {
            let (from, to) = (x.at(value.min(0.0)), x.at(value.max(0.0)));
            let hover = format!("{}: {} {unit}", names[row], three_digits(value));
            svg.rect(from, middle - 6.0, to - from, 12.0, &format!("c{}", colour(bar)), &hover);
            if largest > smallest {
                svg.line(x.at(smallest), middle, x.at(largest), middle, "bar");
            }
        }
        if let Some(published) = bar.published {
            svg.line(x.at(published), middle - 9.0, x.at(published), middle + 9.0, "median");
        }
        svg.line(x.at(0.0), begin, x.at(0.0), begin + height, "one");
    }
    let published = if published.is_empty() { String::new() } else { format!(" Published: {published}") };
    Some(Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: format!(
            "A bar is the median of the trials, its line reaches from the smallest to the largest.{published}"
        ),
        svg,
        csv: csv.finish(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, length: Result<[f64; 3], String>, published: Option<f64>) -> Drawn {
        Drawn { label: label.into(), series: String::new(), length, published }
    }

    /// The left end and the width of each bar.
    fn boxes(figure: &Figure) -> Vec<(f64, f64)> {
        let text = figure.svg.standalone("t");
        let document = roxmltree::Document::parse(&text).unwrap();
        let number = |node: roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>().unwrap();
        let bars = document.descendants().filter(|node| node.attribute("class") == Some("c0"));
        bars.map(|node| (number(node, "x"), number(node, "width"))).collect()
    }

    #[test]
    fn bars_begin_at_zero_are_as_long_as_their_values_and_stand_in_the_data() {
        let bars = [
            bar("scimark", Ok([-36.0, -40.0, -30.0]), Some(-36.0)),
            bar("apache", Ok([72.0, 72.0, 72.0]), None),
            bar("nothing", Err("it divides by zero".into()), None),
        ];
        let figure = figure("figure-5", "t", "", "%", &bars, 760.0).unwrap();
        let [(left, loss), (zero, gain)] = boxes(&figure)[..] else { panic!() };
        assert!((gain / loss - 2.0).abs() < 0.02 && (left + loss - zero).abs() < 0.2, "{left} {loss} {zero} {gain}");
        assert!(figure.csv.contains("scimark,,-36,-40,-30,-36,%,\n"), "{}", figure.csv);
        assert!(figure.csv.contains("nothing,,,,,,%,it divides by zero\n"), "{}", figure.csv);
        assert!(super::figure("i", "t", "", "", &[], 760.0).is_none());
    }

    #[test]
    fn no_text_lies_on_a_mark_or_on_another_text_at_any_width() {
        for letters in [5, 20, 60] {
            let label: String =
                "streamcluster_on the WWWW-MMMM, over eevdf:base_slice_ns=3000000".chars().take(letters).collect();
            let rows = [
                bar(&label, Ok([-36.0, -40.0, -30.0]), Some(-36.0)),
                bar(&label, Ok([2.5, 2.5, 2.5]), None),
                bar(&label, Ok([1.234e3, 1e3, 2e3]), Some(3.0)),
                bar(&label, Err("no".into()), Some(1.0)),
            ];
            for wide in [360.0, 510.0, 760.0] {
                let drawn = figure("i", "t", "p", "speed of ULE against CFS, %", &rows, wide).unwrap();
                let faults = super::super::overlap::faults(&drawn.svg);
                assert!(faults.is_empty(), "{wide} wide, names of {letters}: {}", faults.join("\n"));
            }
        }
    }
}
