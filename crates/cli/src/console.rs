//! The two streams: results on standard output, everything else on standard error; tables, colours, progress.
//!
//! Tables have lines only on a terminal. Piped, they are aligned columns separated by two or more spaces, which `cut`,
//! `awk` and `diff` can work with.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use miette::{GraphicalReportHandler, GraphicalTheme};
use warmcore_lab::directory::Existing;
use warmcore_report::printable::printable;

use crate::args::OutputArguments;
use crate::failure::Failure;

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Where output goes, and how much of it.
pub struct Console {
    /// Number of `-v` minus one for `--quiet`.
    verbosity: i8,
    /// Results are documents.
    json: bool,
    /// What is not modelled is an error.
    strict: bool,
    /// What is there is written over.
    force: bool,
    /// Simulations at the same time, if that was said.
    jobs: Option<u16>,
    out_is_terminal: bool,
    error_is_terminal: bool,
    color: bool,
    error_color: bool,
    /// Characters in a line of standard output, if it is a terminal that says so.
    columns: Option<usize>,
    /// Something went to standard output.
    has_printed: AtomicBool,
}

impl Console {
    /// What was asked for.
    pub fn of(output: &OutputArguments) -> Self {
        Self {
            strict: output.strict,
            force: output.force,
            jobs: output.jobs,
            ..Self::new(output.color, output.quiet, output.verbose, output.json)
        }
    }

    /// Looks at the streams and the environment.
    pub fn new(choice: ColorChoice, quiet: bool, verbose: u8, json: bool) -> Self {
        let out_is_terminal = io::stdout().is_terminal();
        let error_is_terminal = io::stderr().is_terminal();
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let color_on = |is_terminal: bool| match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && !forbidden,
        };
        let verbosity = if quiet { -1 } else { i8::try_from(verbose).unwrap_or(i8::MAX) };
        Self {
            has_printed: AtomicBool::new(false),
            verbosity,
            json,
            strict: false,
            force: false,
            jobs: None,
            out_is_terminal,
            error_is_terminal,
            color: color_on(out_is_terminal),
            error_color: color_on(error_is_terminal),
            columns: columns().filter(|_| out_is_terminal),
        }
    }

    /// Whether the result is printed as one JSON document.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether what is accepted of a workload but not modelled is an error.
    pub fn strict(&self) -> bool {
        self.strict
    }

    /// Whether what is there is written over.
    pub fn force(&self) -> bool {
        self.force
    }

    /// What becomes of a run in a directory that is to be written.
    pub fn existing(&self) -> Existing {
        if self.force { Existing::Replace } else { Existing::Refuse }
    }

    /// Simulations at the same time: as was said, or as many as this process has CPUs.
    pub fn jobs(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(available, usize::from)
    }

    /// Writes a result to standard output. Control characters are shown as numbers, apart from the colours of tables.
    ///
    /// # Errors
    /// When the stream is closed or full.
    pub fn out(&self, text: &str) -> io::Result<()> {
        self.has_printed.store(true, Ordering::Relaxed);
        let mut out = io::stdout().lock();
        out.write_all(without_orders(text, self.color).as_bytes())?;
        out.flush()
    }

    /// Standard output is written past this: what is there is the result, however the command ends.
    pub fn hands_over_output(&self) {
        self.has_printed.store(true, Ordering::Relaxed);
    }

    /// Whether something went to standard output: a result, however the command ends.
    pub fn has_printed(&self) -> bool {
        self.has_printed.load(Ordering::Relaxed)
    }

    /// Something to check before the result is trusted; shown even with `--quiet`.
    pub fn warn(&self, text: &str) {
        self.line(&printable(&format!("warning: {text}")));
    }

    /// What is going on, one line per phase; not shown with `--quiet`.
    pub fn note(&self, text: &str) {
        if self.verbosity >= 0 {
            self.line(&printable(text));
        }
    }

    /// Whether `-v` was given.
    pub fn is_verbose(&self) -> bool {
        self.verbosity >= 1
    }

    /// Detail for `-v`.
    pub fn info(&self, text: &str) {
        if self.verbosity >= 1 {
            self.line(&printable(text));
        }
    }

    /// What ended the program, with its code and what to try.
    pub fn error(&self, failure: Failure) {
        let theme = if self.error_color { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
        let width = if self.error_is_terminal { 100 } else { usize::MAX };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(width);
        let mut text = String::new();
        if handler.render_report(&mut text, &failure).is_err() {
            text = failure.to_string();
        }
        self.line(text.trim_end());
    }

    fn line(&self, text: &str) {
        // There is nowhere left to report that standard error is closed.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// A progress bar over `length` pieces of work, drawn only when standard error is a terminal.
    pub fn progress(&self, length: usize, unit: &str) -> ProgressBar {
        if !self.error_is_terminal || self.verbosity < 0 {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::stderr());
        let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{elapsed}}, {{eta}} left {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar
    }

    /// Lays a table out for where it goes. On a terminal that is too narrow, columns that do not fit follow below, under the
    /// first one again.
    pub fn table(&self, table: &Table) -> String {
        table.lay_out(self.out_is_terminal, self.color, self.columns)
    }

    /// Most characters in a line of a sentence.
    pub fn sentence_columns(&self) -> usize {
        self.columns.map_or(SENTENCE_COLUMNS, |columns| columns.clamp(20, SENTENCE_COLUMNS))
    }
}

/// Most characters in a line of a sentence where nothing narrower is known.
pub const SENTENCE_COLUMNS: usize = 100;

/// Characters in a line of the terminal that is standard output.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The text with all control characters shown as numbers but those of the colours that [`Tone::escape`] makes.
fn without_orders(text: &str, color: bool) -> Cow<'_, str> {
    let colours = [RESET, Tone::Good.escape(), Tone::Bad.escape(), Tone::Faint.escape()];
    if !color || !colours.iter().any(|colour| text.contains(colour)) {
        return printable(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, colour)) = colours.iter().filter_map(|colour| Some((rest.find(colour)?, *colour))).min() {
        shown.push_str(&printable(&rest[..at]));
        shown.push_str(colour);
        rest = &rest[at + colour.len()..];
    }
    shown.push_str(&printable(rest));
    Cow::Owned(shown)
}

/// Ends a colour.
const RESET: &str = "\u{1b}[0m";

/// What a cell's content means; shown as colour where there is any, never by colour alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// Nothing in particular.
    Plain,
    /// Better than what it is compared with.
    Good,
    /// Worse than what it is compared with.
    Bad,
    /// Not shown to be anything.
    Faint,
}

/// A table of text.
pub struct Table {
    headers: Vec<String>,
    right: Vec<bool>,
    rows: Vec<Vec<(String, Tone)>>,
}

impl Table {
    /// A table with these headers; a header that begins with `>` is a column aligned to the right.
    pub fn new<'a>(headers: impl IntoIterator<Item = &'a str>) -> Self {
        let (right, headers) = headers
            .into_iter()
            .map(|header| (header.starts_with('>'), header.trim_start_matches('>').to_owned()))
            .unzip();
        Self { headers, right, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.toned_row(cells.into_iter().map(|cell| (cell, Tone::Plain)));
    }

    /// Adds a row whose cells have a meaning.
    pub fn toned_row(&mut self, cells: impl IntoIterator<Item = (String, Tone)>) {
        let in_one_line = |cell: String| printable(&cell).replace('\n', "\\u{a}");
        self.rows.push(cells.into_iter().map(|(cell, tone)| (in_one_line(cell), tone)).collect());
    }

    /// Columns separated by at least two spaces; no line ends in a space.
    pub fn aligned(&self) -> String {
        self.lay_out(false, false, None)
    }

    /// In lines of at most so many characters, if that is possible.
    fn lay_out(&self, rules: bool, color: bool, columns: Option<usize>) -> String {
        let widths = self.widths();
        let parts = parts(&widths, columns.unwrap_or(usize::MAX));
        let part = |part: &Vec<usize>| self.lay_out_columns(&widths, part, rules, color);
        parts.iter().map(part).collect::<Vec<_>>().join("\n")
    }

    fn lay_out_columns(&self, widths: &[usize], columns: &[usize], rules: bool, color: bool) -> String {
        let width = columns.iter().map(|column| widths[*column]).sum::<usize>() + 2 * columns.len().saturating_sub(1);
        let rule = "─".repeat(width);
        let mut text = String::new();
        self.lay_out_row(&mut text, widths, columns, |column| (self.headers[column].as_str(), ""));
        if rules {
            text.push_str(&format!("{rule}\n"));
        }
        for row in &self.rows {
            let cell = |column: usize| {
                row.get(column).map_or(("", ""), |(cell, tone)| (cell.as_str(), if color { tone.escape() } else { "" }))
            };
            self.lay_out_row(&mut text, widths, columns, cell);
        }
        if rules {
            text.push_str(&format!("{rule}\n"));
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headers.iter().map(|header| header.chars().count()).collect();
        for row in &self.rows {
            for (width, (cell, _)) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    fn lay_out_row<'a>(
        &self,
        text: &mut String,
        widths: &[usize],
        columns: &[usize],
        cell: impl Fn(usize) -> (&'a str, &'a str),
    ) {
        let start = text.len();
        for (position, &column) in columns.iter().enumerate() {
            let (cell, escape) = cell(column);
            let padding = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            let separator = if position == 0 { "" } else { "  " };
            let reset = if escape.is_empty() { "" } else { RESET };
            let (before, after) = if self.right[column] { (padding.as_str(), "") } else { ("", padding.as_str()) };
            text.push_str(&format!("{separator}{before}{escape}{cell}{reset}{after}"));
        }
        text.truncate(start + text[start..].trim_end_matches(' ').len());
        text.push('\n');
    }
}

/// Which columns stand beside each other: all of them if they fit, otherwise the first one with as many others as do.
fn parts(widths: &[usize], columns: usize) -> Vec<Vec<usize>> {
    let mut parts = vec![Vec::new()];
    let mut used = 0;
    for (column, width) in widths.iter().enumerate() {
        if used + 2 + width > columns && parts.last().is_some_and(|part: &Vec<usize>| part.len() > 1) {
            parts.push(vec![0]);
            used = widths[0];
        }
        if let Some(part) = parts.last_mut() {
            used += if part.is_empty() { *width } else { 2 + width };
            part.push(column);
        }
    }
    parts
}

impl Tone {
    /// The terminal's escape sequence for it.
    fn escape(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\u{1b}[32m",
            Self::Bad => "\u{1b}[31m",
            Self::Faint => "\u{1b}[2m",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piped_tables_are_aligned_and_have_no_lines() {
        let mut table = Table::new(["name", ">count"]);
        table.row(["a".into(), "1".into()]);
        table.row(["longer".into(), "12345".into()]);
        assert_eq!(table.aligned(), "name    count\na           1\nlonger  12345\n");
    }

    #[test]
    fn control_characters_from_files_do_not_reach_the_terminal() {
        let mut table = Table::new(["name"]);
        table.toned_row([("a\u{1b}]0;title\u{7}\nb".into(), Tone::Good)]);
        let text = without_orders(&table.lay_out(false, true, None), true).into_owned();
        assert_eq!(text, "name\n\u{1b}[32ma\\u{1b}]0;title\\u{7}\\u{a}b\u{1b}[0m\n");
        assert_eq!(without_orders("\u{1b}[32mx", false), "\\u{1b}[32mx");
    }

    #[test]
    fn a_table_without_colour_has_no_escape_sequences() {
        let mut table = Table::new(["name"]);
        table.toned_row([("x".into(), Tone::Good)]);
        assert!(!table.lay_out(true, false, None).contains('\u{1b}'));
        assert!(table.lay_out(true, true, None).contains('\u{1b}'));
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_under_the_first() {
        let mut table = Table::new(["name", ">count", ">time", ">x"]);
        table.row(["worker".into(), "1".into(), "250 ms".into(), "7".into()]);
        let narrow = table.lay_out(true, false, Some(16));
        assert!(narrow.lines().all(|line| line.chars().count() <= 16), "{narrow}");
        assert_eq!(
            narrow.replace('─', ""),
            "name    count\n\nworker      1\n\n\nname      time\n\nworker  250 ms\n\n\nname    x\n\nworker  7\n\n"
        );
        assert_eq!(table.lay_out(true, false, Some(24)), table.lay_out(true, false, None));
        assert_eq!(table.lay_out(true, false, Some(3)).matches("worker").count(), 3, "each column is somewhere");
    }
}
