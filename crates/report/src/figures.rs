//! The figures: each drawn as SVG without a browser, each with the numbers behind it as CSV.
//!
//! Figures of a comparison stand on all trials ([`compare`], [`breakdown`]); figures of a scene on the one trial that was
//! looked at closely. Both are functions of their data alone: equal runs give equal files.

pub mod against;
pub mod breakdown;
pub mod compare;
pub mod counters;
pub mod distribution;
pub mod lines;
pub mod map;
pub mod matrix;
pub mod time;

use std::fmt::Write as _;

use crate::run::Run;
use crate::scene::Scene;
use crate::svg::Svg;

/// Width of figures that hold all schedulers.
pub const WIDTH: f64 = 760.0;
/// Width of figures of one scheduler, which stand side by side: that of a column of a paper.
pub const PANEL: f64 = 440.0;

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
    /// Tasks up to which each has a line of its own.
    pub most_lines: usize,
}

impl Axes {
    /// Those of scenes that stand side by side.
    #[must_use]
    pub fn of(scenes: &[Scene]) -> Self {
        let tasks = scenes.iter().flat_map(|scene| &scene.record.cpu_run_ns);
        let lengths = scenes.iter().flat_map(|scene| scene.record.lengths.iter().copied());
        let virtual_moves = scenes.iter().filter_map(|scene| scene.record.virtual_transitions.as_ref()).flatten();
        Self {
            end_ns: scenes.iter().map(|scene| scene.end_ns).max().unwrap_or(0),
            longest_run_ns: tasks.map(|cpus| cpus.iter().map(|(_, ns)| ns).sum()).max().unwrap_or(0),
            most_tasks: lengths.fold(1.0, f32::max),
            most_moves: scenes.iter().flat_map(|scene| &scene.record.transitions).copied().max().unwrap_or(0).max(1),
            most_virtual_moves: virtual_moves.copied().max().unwrap_or(0).max(1),
            most_lines: MOST_LINES,
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
#[must_use]
pub fn all(run: &Run) -> Vec<Figure> {
    let mut figures = vec![compare::ratios(run), compare::values(run)];
    figures.extend(breakdown::task_time(run));
    figures.extend(breakdown::gaps(run));
    figures.extend(breakdown::cpu_time(run));
    figures.extend(distribution::all(run));
    figures.extend(matrix::migrations(run));
    figures.extend(matrix::crossings(run));
    let axes = Axes::of(&run.scenes);
    let virtual_llcs = run.disk.virtual_llcs();
    for (index, scene) in run.scenes.iter().enumerate() {
        let machine = &run.disk.experiment.machine_of(index).value;
        figures.extend(time::cpus(index, scene, machine));
        figures.extend(time::tasks(index, scene, machine));
        figures.push(time::threads_per_cpu(index, scene, machine, &axes));
        figures.extend(lines::cumulative(index, scene, &axes));
        figures.extend(lines::scores(index, scene, &axes));
        figures.push(matrix::thread_cpu(index, scene, machine, virtual_llcs.as_ref()));
        figures.push(matrix::residency(index, scene, machine));
        figures.extend(matrix::transitions(index, scene, machine, &axes));
        figures.extend(matrix::virtual_transitions(index, scene, virtual_llcs.as_ref(), &axes));
        figures.push(map::machine(index, scene, machine));
        figures.extend(counters::over_time(index, scene, machine));
    }
    figures
}

impl Figure {
    /// The one value that its data has throughout, if it has no other: such a figure says it in a word. Always a column of its own, the
    /// last one of the data.
    #[must_use]
    pub fn constant(&self) -> Option<&str> {
        let mut values = self.csv.lines().skip(1).filter_map(|line| line.rsplit(',').next());
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }
}

/// Lines of comma-separated values (RFC 4180).
#[derive(Clone, Debug, Default)]
pub struct Csv(String);

impl Csv {
    /// With its heading.
    #[must_use]
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

    /// The text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

/// A name as part of a file's: letters, digits and `-`.
#[must_use]
pub fn file_name(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = words.collect::<Vec<_>>().join("-");
    name.truncate(60);
    name
}

/// A text that fits a number of characters.
#[must_use]
pub fn shortened(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// A label of a group that fits a number of characters: of `application/role ×4` the role stays whole, because groups of one
/// application differ by it.
#[must_use]
pub fn shortened_group(label: &str, characters: usize) -> String {
    let Some((application, role)) = label.rsplit_once('/') else { return shortened(label, characters) };
    let left = characters.saturating_sub(role.chars().count() + 1);
    if left < 3 { shortened(role, characters) } else { format!("{}/{role}", shortened(application, left)) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn texts_in_csv_are_data_whatever_they_hold() {
        let mut csv = Csv::new(&["name", "value"]);
        csv.row(&["=HYPERLINK(\"x\")", "-1.5"]);
        csv.row(&["a,b", "\"q\""]);
        assert_eq!(csv.finish(), "name,value\n\"'=HYPERLINK(\"\"x\"\")\",-1.5\n\"a,b\",\"\"\"q\"\"\"\n");
    }

    #[test]
    fn file_names_hold_nothing_but_letters_and_digits() {
        assert_eq!(file_name("../eevdf:base_slice_ns=3000000"), "eevdf-base-slice-ns-3000000");
    }
}
