//! What a study expects and what came out: a row for each expectation, on a scale of its own.

use warmcore_lab::verdict::decimals_of_small;

use super::labels::{Labels, fitting};
use super::{Csv, Figure, NARROW};
use crate::scale::Scale;
use crate::svg::{Anchor, Svg, text_width};
use crate::units::three_digits;

/// An expectation and what came out.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// What it is about.
    pub name: String,
    /// The ends of the band in which it must lie; none where that is open.
    pub band: (Option<f64>, Option<f64>),
    /// What was published, if that is a number.
    pub published: Option<f64>,
    /// What came out.
    pub value: Option<f64>,
    /// Smallest and largest of a trial.
    pub range: Option<[f64; 2]>,
    /// The judgement in words.
    pub judgement: String,
    /// Whether the value lies in the band.
    pub right: bool,
}

impl Expected {
    fn row(&self) -> [String; 8] {
        let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let (low, high) = (self.range.map(|of| of[0]), self.range.map(|of| of[1]));
        let numbers = [self.band.0, self.band.1, self.published, self.value, low, high].map(text);
        let [a, b, c, d, e, f] = numbers;
        [self.name.clone(), a, b, c, d, e, f, self.judgement.clone()]
    }

    /// What must be seen of it; open ends of the band lie beyond.
    fn scale(&self, from: f64, to: f64) -> Scale {
        let ends = self.range.map_or([None, None], |of| of.map(Some));
        let all = [self.band.0, self.band.1, self.published, self.value, ends[0], ends[1]];
        let finite = || all.into_iter().flatten().filter(|value| value.is_finite());
        let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        let beyond = if high > low { (high - low) * 0.15 } else { low.abs().max(1.0) * 0.1 };
        if low.is_finite() {
            Scale::linear(low - beyond, high + beyond, from, to)
        } else {
            Scale::linear(0.0, 1.0, from, to)
        }
    }
}

/// A number with the digits that it has in a study's tables.
fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 0.1 || size == 0.0 {
        return three_digits(value);
    }
    let decimals = if size >= 0.001 { 4 } else { decimals_of_small(size) };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The figure, so wide. `None` where nothing is expected.
pub fn figure(study: &str, rows: &[Expected], wide: f64) -> Option<Figure> {
    const ROW: f64 = 26.0;
    const TOP: f64 = 30.0;
    /// For values and judgements in words.
    const ROOM: f64 = 130.0;
    if rows.is_empty() {
        return None;
    }
    let narrow = wide < NARROW;
    let shown = |row: &Expected| row.value.map_or_else(|| row.judgement.clone(), short);
    // At the right end of a row, or of its name.
    let room = rows.iter().map(|row| text_width("s b", &shown(row))).fold(0.0, f64::max).min(ROOM) + 10.0;
    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let labels = Labels::new(&names, wide, 0.42, room);
    let (left, right) = (labels.left, wide - 14.0 - if narrow { 0.0 } else { room });
    let mut svg = Svg::new(wide, TOP + labels.heights(ROW) + 6.0);
    svg.rect(12.0, 6.0, 22.0, 12.0, "rest", "");
    svg.text(40.0, 16.0, Anchor::Start, "s", "expected");
    svg.circle(112.0, 12.0, 4.5, "c0", "");
    svg.text(122.0, 16.0, Anchor::Start, "s", "as expected");
    svg.circle(206.0, 12.0, 4.5, "hollow", "");
    svg.text(216.0, 16.0, Anchor::Start, "s", "unexpected");
    svg.line(292.0, 5.0, 292.0, 19.0, "median");
    svg.text(300.0, 16.0, Anchor::Start, "s", "published");
    let mut csv = Csv::new(&["name", "low", "high", "published", "value", "smallest", "largest", "judgement"]);
    let mut top = TOP;
    for (index, row) in rows.iter().enumerate() {
        csv.row(&row.row());
        let (begin, height) = labels.draw(&mut svg, index, top, ROW);
        let middle = begin + height / 2.0;
        let words = fitting(&shown(row), "s b", room - 10.0 + 0.1);
        if narrow {
            svg.text(right, top + 13.0, Anchor::End, "s b", &words);
        } else {
            svg.text(right + 10.0, middle + 4.0, Anchor::Start, "s b", &words);
        }
        top += labels.height(index, ROW);
        let x = row.scale(left, right);
        let (low, high) = (row.band.0.map_or(left, |low| x.at(low)), row.band.1.map_or(right, |high| x.at(high)));
        svg.line(left, middle, right, middle, "grid");
        if row.band != (None, None) {
            // A band of one value is seen too.
            svg.rect(
                (low + high) / 2.0 - (high - low).max(3.0) / 2.0,
                middle - 7.0,
                (high - low).max(3.0),
                14.0,
                "rest",
                "",
            );
        }
        if let Some(published) = row.published {
            svg.line(x.at(published), middle - 9.0, x.at(published), middle + 9.0, "median");
        }
        if let Some([smallest, largest]) = row.range {
            svg.line(x.at(smallest), middle, x.at(largest), middle, "bar");
        }
        if let Some(value) = row.value.filter(|value| value.is_finite()) {
            let hover = format!("{}: {} ({})", row.name, short(value), row.judgement);
            svg.circle(x.at(value), middle, 4.5, if row.right { "c0" } else { "hollow" }, &hover);
        }
    }
    Some(Figure {
        id: "expected".into(),
        title: format!("{study}: expected and found"),
        caption: "Each row has its own scale. A point is the median of the trials, its line reaches from the smallest to the largest."
            .into(),
        svg,
        csv: csv.finish(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_its_band_exactly_where_it_does_in_the_drawing() {
        for (value, inside) in [(0.8, true), (0.95, false)] {
            let row =
                Expected { band: (Some(0.7), Some(0.9)), value: Some(value), right: inside, ..Expected::default() };
            let x = row.scale(100.0, 500.0);
            assert_eq!((x.at(0.7)..=x.at(0.9)).contains(&x.at(value)), inside);
            let drawn = figure("s", &[row], 760.0).unwrap();
            assert_eq!(drawn.svg.inline("").matches("hollow").count(), if inside { 1 } else { 2 }, "the key has one");
        }
    }

    #[test]
    fn values_have_the_digits_that_matter() {
        let all = [0.0, 0.018, 0.035_24, 0.5, 3.614, 50_868.4, -0.25, 0.000_035_2, -0.000_43];
        let said = ["0", "0.018", "0.0352", "0.5", "3.61", "50868", "-0.25", "0.000035", "-0.00043"];
        assert_eq!(all.map(short), said);
    }

    #[test]
    fn no_text_lies_on_a_mark_or_on_another_text_at_any_width_whatever_the_names() {
        for letters in [5, 20, 40, 60] {
            let name: String =
                "share of CPU time_on the WWWW-MMMM, over eevdf:base_slice_ns=3000000".chars().take(letters).collect();
            let row = |value: Option<f64>, judgement: &str| Expected {
                name: name.clone(),
                band: (Some(0.4), Some(0.95)),
                published: Some(0.8),
                value,
                range: value.map(|value| [value * 0.5, value * 1.5]),
                judgement: judgement.to_owned(),
                right: value.is_some(),
            };
            let rows = [row(Some(0.576), "right"), row(None, "not answerable here"), row(Some(1.234e-12), "wrong")];
            for wide in [360.0, 510.0, 760.0] {
                let faults = super::super::overlap::faults(&figure("s", &rows, wide).unwrap().svg);
                assert!(faults.is_empty(), "{wide} wide, names of {letters}: {}", faults.join("\n"));
            }
        }
    }

    #[test]
    fn what_has_no_value_or_an_open_band_is_drawn_and_in_the_data() {
        let rows = [
            Expected { name: "a".into(), judgement: "not answerable here".into(), ..Expected::default() },
            Expected { name: "b".into(), band: (None, Some(2.0)), value: Some(f64::INFINITY), ..Expected::default() },
        ];
        for wide in [360.0, 760.0] {
            let drawn = figure("s", &rows, wide).unwrap();
            assert!(!drawn.svg.inline("").contains("NaN") && !drawn.svg.inline("").contains("inf\""));
            assert!(
                drawn.csv.contains("a,,,,,,,not answerable here\n") && drawn.csv.contains("b,,2,,inf,,,\n"),
                "{}",
                drawn.csv
            );
        }
        assert!(figure("s", &[], 760.0).is_none());
    }
}
