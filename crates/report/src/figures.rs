//! The figures: each drawn as SVG without a browser, each with the numbers behind it as CSV.
//!
//! Figures of a comparison stand on all trials ([`compare`], [`breakdown`]); figures of a scene on the one trial that was
//! looked at closely. Both are functions of their data alone: equal runs give equal files.

pub mod against;
pub mod bars;
pub mod breakdown;
pub mod compare;
pub mod counters;
pub mod distribution;
pub mod expected;
pub mod gains;
mod labels;
pub mod lines;
pub mod map;
pub mod matrix;
#[cfg(test)]
mod overlap;
pub mod time;
pub mod tuning;

use std::fmt::Write as _;

use crate::pack::base64;
use crate::run::Run;
use crate::scene::Scene;
use crate::svg::{Anchor, Svg, escape, text_width};

/// Width of figures that hold all schedulers: at 180 mm, two columns of a journal, the smallest texts (10.5 units) have 7 points.
pub const WIDTH: f64 = 760.0;
/// Width of figures of one scheduler where they stand side by side: at 85 mm, one column, the smallest texts have 7 points.
pub const PANEL: f64 = 360.0;
/// Widths below which names are above their rows, not beside them.
const NARROW: f64 = 600.0;

/// How wide a figure is drawn that is to be as wide as `85mm` or another length of SVG: in so many units that no text is smaller than
/// 7 points.
pub fn width_for(length: &str) -> f64 {
    const POINTS_PER_UNIT: f64 = 7.0 / 10.5;
    crate::pdf::points(length).map_or(WIDTH, |points| (points / POINTS_PER_UNIT).clamp(PANEL, WIDTH))
}

/// Where the rows of a figure lie that holds all schedulers.
#[derive(Clone, Copy, PartialEq, Debug)]
struct RowFrame {
    /// Width of the figure.
    wide: f64,
    /// Where the plot begins and ends.
    left: f64,
    right: f64,
    /// Height of a name above a row; 0 where names stand on the left.
    above: f64,
}

impl RowFrame {
    /// `left` and `right`: room for texts at the sides, where a figure is wide enough for that.
    fn new(wide: f64, left: f64, right: f64) -> Self {
        if wide < NARROW {
            Self { wide, left: 14.0, right: wide - 14.0, above: 17.0 }
        } else {
            Self { wide, left, right: wide - right, above: 0.0 }
        }
    }

    fn is_narrow(&self) -> bool {
        self.above > 0.0
    }

    /// An upright line through rows from `top` on, each so high. Where names are above the rows it leaves those out: they are in the first
    /// part of a row, which ends at `name`.
    fn upright(&self, svg: &mut Svg, x: f64, (top, rows, each): (f64, usize, f64), name: f64, class: &str) {
        if self.is_narrow() {
            let begins = (0..rows).map(|row| top + each * row as f64);
            begins.for_each(|begin| svg.line(x, begin + name, x, begin + each, class));
        } else {
            svg.line(x, top, x, top + each * rows as f64, class);
        }
    }

    /// The name of a scheduler's row whose bars begin at `y` and are so high. Where it is above them, `end` is what stands there too, in small
    /// text at the right end.
    fn name(&self, svg: &mut Svg, (y, height): (f64, f64), class: &str, name: &str, end: &str) {
        let name = scheduler_name(name);
        if self.is_narrow() {
            let room = self.right - self.left - text_width("s", end) - 8.0;
            svg.text(self.left, y - 4.0, Anchor::Start, class, &labels::fitting(&name, class, room));
        } else {
            let name = labels::fitting(&name, class, self.left - 16.0);
            svg.text(self.left - 14.0, y + height / 2.0 + 4.0, Anchor::End, class, &name);
        }
    }

    /// What stands at the end of a bar, or above it.
    fn end(&self, svg: &mut Svg, (x, y): (f64, f64), class: &str, text: &str) {
        if self.is_narrow() {
            svg.text(self.right, y - 4.0, Anchor::End, &format!("{class} s"), text);
        } else {
            svg.text(x + 8.0, y + 16.0, Anchor::Start, class, text);
        }
    }

    /// How many entries of a key stand in a line, and how far apart.
    fn key(&self, most: usize) -> (usize, f64) {
        let columns = if self.is_narrow() { 1 } else { most };
        (columns, (self.wide - 12.0) / columns as f64)
    }
}

/// Tasks up to which each has a line of its own, if nothing else is asked for.
const MOST_LINES: usize = 64;

/// The axes that the figures of all schedulers share, as they stand side by side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Axes {
    /// End of the longest trial.
    pub end_ns: u64,
    /// The longest run time of any task.
    pub longest_run_ns: u64,
    /// The largest number of runnable tasks of any CPU.
    pub most_tasks: f32,
    /// The most moves from any LLC to another one.
    pub most_moves: u64,
    /// The most moves from any virtual LLC to another one.
    pub most_virtual_moves: u64,
    /// Width of the widest number of moves between two LLCs, and between two virtual ones, as they are written in cells.
    pub widest_moves: f64,
    /// See [`Axes::widest_moves`].
    pub widest_virtual_moves: f64,
    /// The most moves into any LLC.
    pub most_into: u64,
    /// The most moves into any virtual LLC.
    pub most_into_virtual: u64,
    /// Tasks up to which each has a line of its own.
    pub most_lines: usize,
    /// Width of a figure: [`PANEL`] to [`WIDTH`].
    pub wide: f64,
}

impl Axes {
    /// Those of scenes that stand side by side.
    pub fn of(scenes: &[Scene]) -> Self {
        let tasks = scenes.iter().flat_map(|scene| &scene.record.cpu_run_ns);
        let lengths = scenes.iter().flat_map(|scene| scene.record.lengths.iter().copied());
        let moves = || scenes.iter().map(|scene| scene.record.transitions.as_slice());
        let virtual_moves = || scenes.iter().filter_map(|scene| scene.record.virtual_transitions.as_deref());
        Self {
            end_ns: scenes.iter().map(|scene| scene.end_ns).max().unwrap_or(0),
            longest_run_ns: tasks.map(|cpus| cpus.iter().map(|(_, ns)| ns).sum()).max().unwrap_or(0),
            most_tasks: lengths.fold(1.0, f32::max),
            most_moves: moves().flatten().copied().max().unwrap_or(0).max(1),
            most_virtual_moves: virtual_moves().flatten().copied().max().unwrap_or(0).max(1),
            widest_moves: moves().flatten().map(matrix::width_in_cell).fold(0.0, f64::max),
            widest_virtual_moves: virtual_moves().flatten().map(matrix::width_in_cell).fold(0.0, f64::max),
            most_into: moves().flat_map(matrix::moves_into).max().unwrap_or(0).max(1),
            most_into_virtual: virtual_moves().flat_map(matrix::moves_into).max().unwrap_or(0).max(1),
            most_lines: MOST_LINES,
            wide: PANEL,
        }
    }
}

/// A drawing with its words and its data.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of its files.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The drawing.
    pub svg: Svg,
    /// The numbers in it.
    pub csv: String,
}

/// All figures of a run, in the order of a report.
pub fn all(run: &Run) -> Vec<Figure> {
    with_data_up_to(run, (WIDTH, PANEL), usize::MAX)
}

/// Those that compare all schedulers over all trials, so wide.
pub(crate) fn of_all_schedulers(run: &Run, wide: f64) -> Vec<Figure> {
    let mut figures = vec![compare::ratios(run, wide), compare::values(run, wide)];
    figures.extend(breakdown::task_time(run, wide));
    figures.extend(breakdown::gaps(run, wide));
    figures.extend(breakdown::cpu_time(run, wide));
    figures
}

/// The same, each laid out for such a width: [`PANEL`] to [`WIDTH`].
pub fn all_as_wide(run: &Run, wide: f64) -> Vec<Figure> {
    with_data_up_to(run, (wide, wide), usize::MAX)
}

/// The same: so wide those that hold all schedulers, and those of one. Lists of all stays on CPUs end where they become longer than so many
/// bytes.
pub(crate) fn with_data_up_to(run: &Run, (wide, panel): (f64, f64), most: usize) -> Vec<Figure> {
    let mut figures = of_all_schedulers(run, wide);
    figures.extend(distribution::all(run, panel));
    figures.extend(matrix::migrations(run, wide));
    figures.extend(matrix::crossings(run, wide));
    let axes = Axes { wide: panel, ..Axes::of(&run.scenes) };
    let virtual_llcs = run.disk.virtual_llcs();
    let machine_of = |index: usize| &run.disk.experiment.machine_of(index).value;
    let scales = map::MapScales::of(run.scenes.iter().enumerate().map(|(index, scene)| (scene, machine_of(index))));
    for (index, scene) in run.scenes.iter().enumerate() {
        let machine = machine_of(index);
        figures.extend(time::cpus(index, scene, machine, (wide, most)));
        figures.extend(time::tasks(index, scene, machine, (wide, most)));
        figures.push(time::threads_per_cpu(index, scene, machine, &axes));
        figures.extend(lines::cumulative(index, scene, &axes));
        figures.extend(lines::scores(index, scene, &axes));
        figures.push(matrix::thread_cpu(index, scene, machine, virtual_llcs.as_ref(), wide));
        figures.push(matrix::residency(index, scene, machine, panel));
        figures.extend(matrix::transitions(index, scene, machine, &axes));
        figures.extend(matrix::virtual_transitions(index, scene, virtual_llcs.as_ref(), &axes));
        figures.push(map::machine(index, scene, machine, (scales, panel)));
        figures.extend(counters::over_time(index, scene, machine, panel));
    }
    figures
}

impl Figure {
    /// As a piece of another page, such as a notebook: a picture that no style of that page reaches.
    pub fn picture(&self) -> String {
        let drawn = base64(self.svg.standalone(&self.title).as_bytes());
        format!("<img alt=\"{}\" src=\"data:image/svg+xml;base64,{drawn}\">\n", escape(&self.caption))
    }

    /// The one value that its data has throughout, if it has no other: such a figure says it in a word. Always a column of its own, the
    /// last one of the data; where that is the most of something, the least and the one between them are before it.
    pub fn constant(&self) -> Option<&str> {
        let mut lines = self.csv.lines();
        let columns = if lines.next()?.ends_with(",most") { 3 } else { 1 };
        let mut values = lines.flat_map(|line| line.rsplit(',').take(columns));
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }
}

/// What captions of figures of measures say where trials have a warm-up: measures begin after it. Else nothing.
fn after_warm_up(run: &Run) -> &'static str {
    let any = run.disk.trials.iter().flatten().any(|trial| trial.warm_up_ns > 0);
    if any { " The warm-up is left out." } else { "" }
}

/// Lines of comma-separated values (RFC 4180).
#[derive(Clone, Debug, Default)]
pub struct Csv(String);

impl Csv {
    /// With its heading.
    pub fn new(heading: &[&str]) -> Self {
        let mut csv = Self::default();
        csv.row(heading);
        csv
    }

    /// Adds a line. Spreadsheets take a text that begins like a formula for one, so such a text gets a quote before it.
    pub fn row<T: AsRef<str>>(&mut self, cells: &[T]) {
        for (index, cell) in cells.iter().enumerate() {
            let cell = cell.as_ref();
            let number = cell.parse::<f64>().is_ok();
            let guard = if !number && cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
            let comma = if index > 0 { "," } else { "" };
            let _ = if cell.contains(['"', ',', '\n', '\r']) {
                write!(self.0, "{comma}\"{guard}{}\"", cell.replace('"', "\"\""))
            } else {
                write!(self.0, "{comma}{guard}{cell}")
            };
        }
        self.0.push('\n');
    }

    /// Its length so far, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// A name as part of a file's: letters, digits and `-`.
pub fn file_name(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = words.collect::<Vec<_>>().join("-");
    name.truncate(60);
    name
}

/// A text that fits a number of characters.
pub fn shortened(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// A label of a group that fits a number of characters: of `application/role ×4` the role stays whole, because groups of one
/// application differ by it.
pub fn shortened_group(label: &str, characters: usize) -> String {
    let Some((application, role)) = label.rsplit_once('/') else { return shortened(label, characters) };
    let left = characters.saturating_sub(role.chars().count() + 1);
    if left < 3 { shortened(role, characters) } else { format!("{}/{role}", shortened(application, left)) }
}

/// A scheduler as a reader knows it: of a program the file's name, not its directories.
pub fn scheduler_name(label: &str) -> String {
    let Some((before, rest)) = label.split_once("scx:") else { return label.to_owned() };
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (path, after) = rest.split_at(end);
    format!("{before}scx:{}{after}", path.rsplit('/').next().unwrap_or(path))
}

/// A scheduler's name that fits a number of characters. Its middle goes: settings of one scheduler differ at the end.
pub fn shortened_scheduler(label: &str, characters: usize) -> String {
    shortened_within(&scheduler_name(label), characters)
}

/// A text that fits a number of characters, without what is in its middle.
pub fn shortened_within(text: &str, characters: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= characters {
        return text.to_owned();
    }
    let kept = characters.saturating_sub(1);
    let (head, tail) = (&all[..kept / 3], &all[all.len() - (kept - kept / 3)..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_schedulers_keep_what_tells_them_apart() {
        assert_eq!(scheduler_name("scx:/usr/lib/scx/vtime.bpf.o --slice 5"), "scx:vtime.bpf.o --slice 5");
        assert_eq!(scheduler_name("eevdf @ set=/proc/sys/vm/swappiness=1"), "eevdf @ set=/proc/sys/vm/swappiness=1");
        assert_eq!(shortened_scheduler("eevdf:base_slice_ns=300000", 21), "eevdf:…lice_ns=300000");
        assert_eq!(shortened_scheduler("eevdf", 21), "eevdf");
        assert_eq!(shortened_scheduler("eevdf", 0), "…");
    }

    #[test]
    fn shortened_labels_of_groups_keep_what_tells_them_apart() {
        assert_eq!(shortened_group("hackbench:-T,-p,-f4/sender ×4", 22), "hackbench:-…/sender ×4");
        assert_eq!(shortened_group("spin/spinner", 22), "spin/spinner");
        assert_eq!(shortened_group("spin/a-very-long-role-indeed", 10), "a-very-lo…");
        assert_eq!(shortened_group("one-name-only", 6), "one-n…");
    }

    #[test]
    fn a_figure_whose_values_are_all_equal_is_constant() {
        let of = |csv: &str| {
            let (svg, csv) = (Svg::new(1.0, 1.0), csv.to_owned());
            Figure { id: String::new(), title: String::new(), caption: String::new(), svg, csv }
        };
        assert_eq!(of("from,to,moves\n0,1,0\n1,0,0\n").constant(), Some("0"));
        assert_eq!(of("from,to,moves\n0,1,0\n1,0,2\n").constant(), None);
        assert_eq!(of("from,to,moves\n").constant(), None, "no data is no value");
        assert_eq!(of("row,least,last,most\na,0,0,0\nb,0,0,0\n").constant(), Some("0"));
        assert_eq!(of("row,least,last,most\na,0,0,5\nb,3,5,5\n").constant(), None);
    }

    #[test]
    fn texts_in_csv_are_data_whatever_they_hold() {
        let mut csv = Csv::new(&["name", "value"]);
        csv.row(&["=HYPERLINK(\"x\")", "-1.5"]);
        csv.row(&["a,b", "\"q\""]);
        assert_eq!(csv.finish(), "name,value\n\"'=HYPERLINK(\"\"x\"\")\",-1.5\n\"a,b\",\"\"\"q\"\"\"\n");
    }

    #[test]
    fn a_figure_of_a_column_of_a_journal_has_texts_of_seven_points() {
        for (length, points) in [("85mm", 240.94), ("180mm", 510.24), ("3.5in", 252.0)] {
            let smallest = 10.5 * points / width_for(length);
            assert!((6.99..=7.2).contains(&smallest), "{length}: {smallest} points");
        }
        assert_eq!(width_for("no length"), WIDTH);
    }

    #[test]
    fn file_names_hold_nothing_but_letters_and_digits() {
        assert_eq!(file_name("../eevdf:base_slice_ns=3000000"), "eevdf-base-slice-ns-3000000");
    }
}
