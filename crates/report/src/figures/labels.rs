//! Names that are whole: on several lines where one is too short. Names of rows are beside the rows, or above them in a column of a paper.

use warmcore_topology::{LlcId, Machine};

use super::{NARROW, shortened_within};
use crate::colour::{dashes, group, hex};
use crate::scene::Scene;
use crate::svg::{Anchor, CURVE_KEY, Svg, text_width};

/// Height of a line of small text.
pub(super) const LINE: f64 = 13.0;
/// Lines that a name has at most.
const MOST_LINES: usize = 4;
/// The class of names.
const CLASS: &str = "s";

/// A text that is at most so wide, without what is in its middle.
pub(super) fn fitting(text: &str, class: &str, width: f64) -> String {
    let mut letters = text.chars().count();
    let mut fits = text.to_owned();
    while letters > 1 && text_width(class, &fits) > width {
        letters -= 1;
        fits = shortened_within(text, letters);
    }
    fits
}

/// A text on lines that are at most so wide: broken after a sign or a blank, or where there is none anywhere. What needs too many lines is
/// shortened.
pub(super) fn lines_within(text: &str, class: &str, width: f64) -> Vec<String> {
    let mut letters = text.chars().count();
    loop {
        let lines = broken(&shortened_within(text, letters), class, width);
        if lines.len() <= MOST_LINES || letters <= 1 {
            return lines;
        }
        letters -= 1;
    }
}

fn broken(text: &str, class: &str, width: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let ends = || rest.char_indices().map(|(at, c)| (at + c.len_utf8(), c));
        let fits = |end: usize| text_width(class, rest[..end].trim_end()) <= width;
        let whole = ends().map(|(end, _)| end).take_while(|end| fits(*end)).last();
        // A letter that is too wide alone has a line of its own.
        let whole = whole.or_else(|| ends().map(|(end, _)| end).next()).unwrap_or(rest.len());
        let signs = || ends().filter(|(end, c)| *end <= whole && " ,:;/_=@…".contains(*c));
        let end = if whole == rest.len() { whole } else { signs().next_back().map_or(whole, |(end, _)| end) };
        lines.push(rest[..end].trim_end().to_owned());
        rest = rest[end..].trim_start();
    }
    lines
}

/// The names of a figure's rows.
pub(super) struct Labels {
    lines: Vec<Vec<String>>,
    /// Where the plot begins.
    pub left: f64,
    above: bool,
}

impl Labels {
    /// At the side of a figure that is wide enough, at most over so large a share of it; above a row they leave `room` at its right end.
    pub fn new(names: &[String], wide: f64, share: f64, room: f64) -> Self {
        const EDGE: f64 = 14.0;
        let above = wide < NARROW;
        let longest = names.iter().map(|name| text_width(CLASS, name)).fold(0.0, f64::max);
        let width = if above { wide - 2.0 * EDGE - room } else { longest.min(wide * share) };
        let left = if above { EDGE } else { EDGE + width + 12.0 };
        let lines = names.iter().map(|name| lines_within(name, CLASS, width + 0.1)).collect();
        Self { lines, left, above }
    }

    /// Height of a row's name above what is drawn of the row.
    fn head(&self, row: usize) -> f64 {
        if self.above { 4.0 + LINE * self.lines[row].len() as f64 } else { 0.0 }
    }

    /// Height of a row with its name, if what is drawn of it is so high at least.
    pub fn height(&self, row: usize, least: f64) -> f64 {
        let beside = if self.above { 0.0 } else { 4.0 + LINE * self.lines[row].len() as f64 };
        self.head(row) + least.max(beside)
    }

    /// Height of all rows.
    pub fn heights(&self, least: f64) -> f64 {
        (0..self.lines.len()).map(|row| self.height(row, least)).sum()
    }

    /// Writes the name of the row that begins at `top`; returns the upper end and the height of what is drawn of it.
    pub fn draw(&self, svg: &mut Svg, row: usize, top: f64, least: f64) -> (f64, f64) {
        let (begin, height) = (top + self.head(row), self.height(row, least) - self.head(row));
        let lines = &self.lines[row];
        let (x, anchor, first) = if self.above {
            (self.left, Anchor::Start, top + 3.0)
        } else {
            (self.left - 12.0, Anchor::End, begin + (height - LINE * lines.len() as f64) / 2.0)
        };
        for (at, line) in lines.iter().enumerate() {
            svg.text(x, first + LINE * at as f64 + 10.0, anchor, CLASS, line);
        }
        (begin, height)
    }
}

/// What colours stand for: a mark and words for each, one after the other on as many lines as that takes.
pub(super) struct Key {
    /// Attributes of the mark, words, left end and line.
    entries: Vec<(String, String, f64, usize)>,
    /// Whether marks are pieces of curves; else they are squares.
    curves: bool,
}

impl Key {
    /// Height of a line.
    const LINE: f64 = 16.0;

    /// Entries from one edge to the other: attributes of the square, escaped, and words.
    pub fn new(entries: impl IntoIterator<Item = (String, String)>, edges: (f64, f64)) -> Self {
        Self::with_marks(entries, edges, false)
    }

    fn with_marks(
        entries: impl IntoIterator<Item = (String, String)>,
        (left, right): (f64, f64),
        curves: bool,
    ) -> Self {
        let (mut x, mut line) = (left, 0);
        let mark = Self::room(curves);
        let place = |(attributes, words): (String, String)| {
            let words = fitting(&words, CLASS, right - left - mark);
            let width = mark + text_width(CLASS, &words);
            if x > left && x + width > right {
                (x, line) = (left, line + 1);
            }
            let at = x;
            x += width + 14.0;
            (attributes, words, at, line)
        };
        Self { entries: entries.into_iter().map(place).collect(), curves }
    }

    /// Width of a mark with what is between it and its words.
    fn room(curves: bool) -> f64 {
        if curves { CURVE_KEY + 4.0 } else { 15.0 }
    }

    /// The LLCs where something ran, as pieces of their curves.
    pub fn of_curves_of_llcs(scene: &Scene, machine: &Machine, edges: (f64, f64)) -> Self {
        let stroke = |llc: LlcId| {
            let (colour, dashes) = (hex(group(llc.index())), dashes(llc.index()));
            format!(r#"class="k" stroke="{colour}" stroke-dasharray="{dashes}""#)
        };
        let entries = scene.used_llcs(machine).into_iter().map(|llc| (stroke(llc), llc.to_string()));
        Self::with_marks(entries, edges, true)
    }

    /// The LLCs where something ran, in their colours; what the key is of stands before the first.
    pub fn of_llcs(scene: &Scene, machine: &Machine, what: &str, edges: (f64, f64)) -> Self {
        let fill = |llc: &LlcId| format!(r#"fill="{}""#, hex(group(llc.index())));
        let used = scene.used_llcs(machine);
        let name = |(at, llc): (usize, &LlcId)| if at == 0 { format!("{what}{llc}") } else { llc.to_string() };
        Self::new(used.iter().enumerate().map(|(at, llc)| (fill(llc), name((at, llc)))), edges)
    }

    /// Height of all lines.
    pub fn height(&self) -> f64 {
        self.entries.last().map_or(0.0, |(.., line)| Self::LINE * (line + 1) as f64)
    }

    /// Draws it from `top` on.
    pub fn draw(&self, svg: &mut Svg, top: f64) {
        for (attributes, words, x, line) in &self.entries {
            let y = top + Self::LINE * *line as f64;
            if self.curves {
                svg.polyline_with(&[(*x, y + 6.0), (x + CURVE_KEY, y + 6.0)], attributes, words);
            } else {
                svg.rect_with(*x, y, 11.0, 11.0, attributes, words);
            }
            svg.text(x + Self::room(self.curves), y + 9.5, Anchor::Start, CLASS, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_everything_on_as_many_lines_as_that_takes() {
        let entries = (0..24).map(|llc| (format!(r##"fill="#{llc:06}""##), format!("llc{llc}")));
        let key = Key::new(entries, (110.0, 336.0));
        let mut svg = Svg::new(360.0, key.height());
        key.draw(&mut svg, 0.0);
        let drawn = svg.inline("");
        assert!((0..24).all(|llc| drawn.contains(&format!(">llc{llc}</text>"))), "{drawn}");
        assert!(super::super::overlap::faults(&svg).is_empty(), "{:?}", super::super::overlap::faults(&svg));
        assert_eq!(Key::new([], (0.0, 100.0)).height(), 0.0);
    }

    #[test]
    fn a_key_of_curves_has_their_dashes() {
        let entry = |at: usize| (format!(r#"class="k" stroke-dasharray="{}""#, dashes(at)), format!("llc{at}"));
        let key = Key::with_marks((0..8).map(entry), (44.0, 344.0), true);
        let mut svg = Svg::new(360.0, key.height());
        key.draw(&mut svg, 0.0);
        let drawn = svg.inline("");
        assert!((0..8).all(|at| drawn.contains(&format!(r#"stroke-dasharray="{}""#, dashes(at)))), "{drawn}");
        assert!(super::super::overlap::faults(&svg).is_empty(), "{:?}", super::super::overlap::faults(&svg));
    }

    #[test]
    fn a_name_is_broken_after_its_signs_and_no_letter_is_lost() {
        let name = "genoa96: verilator:-t8,-C10000,-s200";
        let lines = lines_within(name, CLASS, 110.0);
        assert_eq!(lines, ["genoa96: verilator:", "-t8,-C10000,-s200"]);
        assert!(lines.iter().all(|line| text_width(CLASS, line) <= 110.0));
        assert_eq!(lines_within("abcdefgh", CLASS, 26.0), ["abcd", "efgh"]);
        assert_eq!(lines_within("", CLASS, 26.0), [""; 0]);
    }

    #[test]
    fn what_needs_more_than_four_lines_loses_its_middle() {
        let lines = lines_within(&"abc,".repeat(40), CLASS, 60.0);
        assert_eq!(lines.len(), MOST_LINES);
        assert!(lines.concat().contains('…') && lines.concat().ends_with("abc,"), "{lines:?}");
        assert_eq!(fitting("eevdf:base_slice_ns=3000000", CLASS, 80.0).chars().filter(|c| *c == '…').count(), 1);
        assert_eq!(fitting("eevdf", CLASS, 80.0), "eevdf");
    }
}
