//! The two streams: results on standard output, everything else on standard error; colours, progress. Tables have lines only on a
//! terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use miette::{GraphicalReportHandler, GraphicalTheme};
use warmcore_lab::directory::Existing;
use warmcore_lab::verdict::ComparisonDocument;
use warmcore_report::printable::printable;
use warmcore_report::table::RESET;
pub use warmcore_report::table::{Table, Tone};
use warmcore_report::verdict::{self, Extent, SENTENCE_COLUMNS};

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
    /// The command line.
    words: Vec<String>,
    /// The interpreter that runs this program, if one does.
    python: Option<PathBuf>,
    out_is_terminal: bool,
    error_is_terminal: bool,
    color: bool,
    error_color: bool,
    /// Characters in a line of standard output, if that is known.
    columns: Option<usize>,
    /// The same of standard error.
    error_columns: Option<usize>,
    /// Something went to standard output.
    has_printed: AtomicBool,
}

impl Console {
    /// What was asked for, by this command line.
    pub fn of(output: &OutputArguments, words: Vec<String>, python: Option<PathBuf>) -> Self {
        Self {
            words,
            python,
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
            words: Vec::new(),
            python: None,
            out_is_terminal,
            error_is_terminal,
            color: color_on(out_is_terminal),
            error_color: color_on(error_is_terminal),
            columns: columns(io::stdout()),
            error_columns: columns(io::stderr()),
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

    /// The command line, with the program's name.
    pub fn words(&self) -> Vec<String> {
        self.words.clone()
    }

    /// The interpreter that runs this program, if it is the Python package's.
    pub fn python(&self) -> Option<&Path> {
        self.python.as_deref()
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

    /// The same for words: lines that are too long for the terminal are broken between words. Documents stay as they are.
    ///
    /// # Errors
    /// When the stream is closed or full.
    pub fn out_words(&self, text: &str) -> io::Result<()> {
        match self.columns.filter(|_| !self.json) {
            Some(columns) => self.out(&broken(text, columns)),
            None => self.out(text),
        }
    }

    /// Characters in a line of standard output: the terminal's, or those of COLUMNS where it is no terminal; otherwise lines have any length.
    pub fn columns(&self) -> Option<usize> {
        self.columns
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

    /// Detail for `-v`, on lines that are short even where no terminal says how long they may be.
    pub fn info(&self, text: &str) {
        if self.verbosity >= 1 {
            self.line(&broken(&printable(text), self.error_columns.unwrap_or(SENTENCE_COLUMNS)));
        }
    }

    /// What ended the program, with its code and what to try.
    pub fn error(&self, failure: Failure) {
        let theme = if self.error_color { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
        let widest = if self.error_is_terminal { SENTENCE_COLUMNS } else { usize::MAX };
        let width = self.error_columns.map_or(widest, |columns| columns.min(SENTENCE_COLUMNS));
        let handler = GraphicalReportHandler::new_themed(theme).with_width(width);
        let mut text = String::new();
        if handler.render_report(&mut text, &failure).is_err() {
            text = failure.to_string();
        }
        to_error(text.trim_end());
    }

    fn line(&self, text: &str) {
        match self.error_columns {
            Some(columns) => to_error(&broken(text, columns)),
            None => to_error(text),
        }
    }

    /// A progress bar over `length` pieces of work: drawn where standard error is a terminal, else a line after two seconds and every ten
    /// seconds. It ends when it is dropped.
    pub fn progress(&self, length: usize, unit: &str) -> ProgressBar {
        let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{elapsed}}, {{eta}} left {{msg}}");
        self.bar(Some(length as u64), unit, &template)
    }

    /// The same for work whose length nothing says, such as one simulation: what is being done, and for how long.
    pub fn phase(&self, what: &'static str) -> ProgressBar {
        self.bar(None, what, &format!("{what}, {{elapsed}}"))
    }

    fn bar(&self, length: Option<u64>, words: &str, template: &str) -> ProgressBar {
        if self.verbosity < 0 {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let (watched, words, is_terminal) = (bar.downgrade(), words.to_owned(), self.error_is_terminal);
        if is_terminal && length.is_some() {
            draw(&bar);
            return bar;
        }
        // It ends with the bar, ten seconds later at most, or with the program.
        std::thread::spawn(move || {
            let mut pause = FIRST_LINE_AFTER;
            loop {
                std::thread::sleep(pause);
                pause = LINE_EVERY;
                let Some(bar) = watched.upgrade().filter(|bar| !bar.is_finished()) else { return };
                if is_terminal {
                    return draw(&bar);
                }
                to_error(&progress_line(&bar, &words));
            }
        });
        bar
    }

    /// Lays a table out for where it goes. On a terminal that is too narrow, columns that do not fit follow below, under the
    /// first one again.
    pub fn table(&self, table: &Table) -> String {
        table.lay_out(self.out_is_terminal, self.color, self.columns)
    }

    /// The same without lines, as a part of other words.
    pub fn plain_table(&self, table: &Table) -> String {
        table.lay_out(false, false, self.columns)
    }

    /// A comparison for standard output; `-v` adds columns and what schedulers decided.
    pub fn comparison(&self, document: &ComparisonDocument) -> String {
        let columns = self.columns.map_or(SENTENCE_COLUMNS, |columns| columns.min(SENTENCE_COLUMNS));
        let (extent, decisions) = match self.is_verbose() {
            true => (Extent::Detailed, verdict::decisions(document)),
            false => (Extent::Usual, String::new()),
        };
        verdict::text(document, |table| self.table(table), columns, extent) + &decisions
    }
}

/// Time until the first line about progress where there is no terminal to draw on.
const FIRST_LINE_AFTER: Duration = Duration::from_secs(2);
/// Time between such lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Time between drawings of a bar.
const DRAWN_EVERY: Duration = Duration::from_secs(1);

/// Draws a bar on the terminal from now on, also while nothing more is finished.
fn draw(bar: &ProgressBar) {
    bar.set_draw_target(ProgressDrawTarget::stderr());
    bar.enable_steady_tick(DRAWN_EVERY);
}

/// Writes a line to standard error.
fn to_error(text: &str) {
    // There is nowhere left to report that standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `12/40 trials, 30 s, 70 s left`, or `drawing the page, 30 s` where nothing says how much there is to do.
fn progress_line(bar: &ProgressBar, unit: &str) -> String {
    let seconds = bar.elapsed().as_secs_f64();
    let Some(all) = bar.length() else { return format!("{unit}, {seconds:.0} s") };
    let done = bar.position();
    let left = if done == 0 {
        "unknown time".to_owned()
    } else {
        format!("{:.0} s", seconds / done as f64 * all.saturating_sub(done) as f64)
    };
    format!("{done}/{all} {unit}, {seconds:.0} s, {left} left")
}

/// The text with lines of at most so many characters, words permitting; what follows a break is indented by two more than its line. A word that
/// is too long is broken before its `[` and behind its commas.
fn broken(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let words = line.trim_end_matches('\n');
        if words.chars().count() <= columns || words.contains('\u{1b}') {
            out.push_str(line);
            continue;
        }
        let indent = words.len() - words.trim_start_matches(' ').len();
        let (mut length, mut first) = (indent, true);
        out.push_str(&" ".repeat(indent));
        for word in words[indent..].split(' ') {
            for (position, piece) in pieces(word, columns.saturating_sub(indent + 2)).into_iter().enumerate() {
                let blank = if first || position > 0 { "" } else { " " };
                let more = piece.chars().count() + blank.len();
                if !first && length + more > columns {
                    out.push('\n');
                    out.push_str(&" ".repeat(indent + 2));
                    length = indent + 2 + piece.chars().count();
                } else {
                    out.push_str(blank);
                    length += more;
                }
                out.push_str(piece);
                first = false;
            }
        }
        out.push_str(&line[words.len()..]);
    }
    out
}

/// A word; the parts of one that is too long for a line and has parts that can be left out, as `name:[-a][-b]`, or a list, as `name:a=1,b=2`.
fn pieces(word: &str, room: usize) -> Vec<&str> {
    if word.chars().count() <= room {
        return vec![word];
    }
    let mut pieces = Vec::new();
    let mut begin = 0;
    for (at, mark) in word.match_indices(['[', ',']).filter(|(at, _)| *at > 0) {
        // Behind a comma, unless what can be left out begins with it.
        let at = if mark == "," { at + 1 } else { at };
        if at > begin && !word[..at].ends_with("[,") {
            pieces.push(&word[begin..at]);
            begin = at;
        }
    }
    pieces.push(&word[begin..]);
    pieces
}

/// Least characters in a line.
const LEAST_COLUMNS: usize = 20;

/// Characters in a line of a stream: those of its terminal, else those that COLUMNS says.
fn columns(stream: impl AsFd) -> Option<usize> {
    let of_terminal = rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    of_terminal.filter(|columns| *columns > 0).or_else(said).map(|columns: usize| columns.max(LEAST_COLUMNS))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words_and_keep_their_indentation() {
        let text = "short\n  a reason that is too long for the line\n";
        assert_eq!(broken(text, 20), "short\n  a reason that is\n    too long for the\n    line\n");
        assert_eq!(broken(text, 80), text);
    }

    #[test]
    fn a_usage_line_is_broken_before_what_can_be_left_out() {
        let text = "  name:-tWORKERS[,-mMESSENGERS][,-rSECONDS]\n";
        assert_eq!(broken(text, 32), "  name:-tWORKERS[,-mMESSENGERS]\n    [,-rSECONDS]\n");
        assert_eq!(broken(text, 80), text);
    }

    #[test]
    fn a_list_of_settings_is_broken_behind_its_commas() {
        let text = "scheduler eevdf:base_slice_ns=1,hz=1000,preempt=0\n";
        assert_eq!(broken(text, 40), "scheduler eevdf:base_slice_ns=1,hz=1000,\n  preempt=0\n");
        assert_eq!(broken(text, 60), text);
    }

    #[test]
    fn a_line_about_work_of_unknown_length_says_how_long_it_takes() {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        assert_eq!(progress_line(&bar, "drawing the page"), "drawing the page, 0 s");
    }

    #[test]
    fn a_line_about_progress_says_what_is_done_and_what_is_left() {
        let bar = ProgressBar::with_draw_target(Some(40), ProgressDrawTarget::hidden());
        assert_eq!(progress_line(&bar, "trials"), "0/40 trials, 0 s, unknown time left");
        bar.inc(40);
        assert_eq!(progress_line(&bar, "trials"), "40/40 trials, 0 s, 0 s left");
    }

    #[test]
    fn control_characters_from_files_do_not_reach_the_terminal() {
        let mut table = Table::new(["name"]);
        table.toned_row([("a\u{1b}]0;title\u{7}\nb".into(), Tone::Good)]);
        let text = without_orders(&table.lay_out(false, true, None), true).into_owned();
        assert_eq!(text, "name\n\u{1b}[32ma\\u{1b}]0;title\\u{7}\\u{a}b\u{1b}[0m\n");
        assert_eq!(without_orders("\u{1b}[32mx", false), "\\u{1b}[32mx");
    }
}
