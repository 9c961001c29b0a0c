//! Tables of text, for a terminal, a file or a notebook.
//!
//! Without lines they are aligned columns separated by two or more spaces, which `cut`, `awk` and `diff` can work with.

use crate::printable::printable;
use crate::svg::escape;
use crate::verdict::wrapped;

/// Ends a colour.
pub const RESET: &str = "\u{1b}[0m";

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

    /// As HTML, without a style of its own.
    pub fn html(&self) -> String {
        let align = |column: usize| if self.right.get(column) == Some(&true) { "right" } else { "left" };
        let cell = |tag: &str, column: usize, text: &str| {
            format!("<{tag} style=\"text-align:{}\">{}</{tag}>", align(column), escape(text))
        };
        let row = |tag: &'static str, texts: Vec<&str>| -> String {
            let cells = texts.into_iter().enumerate().map(|(column, text)| cell(tag, column, text));
            format!("<tr>{}</tr>", cells.collect::<String>())
        };
        let head = row("th", self.headers.iter().map(String::as_str).collect());
        let texts = |cells: &Vec<(String, Tone)>| row("td", cells.iter().map(|(text, _)| text.as_str()).collect());
        format!(
            "<table><thead>{head}</thead><tbody>{}</tbody></table>\n",
            self.rows.iter().map(texts).collect::<String>()
        )
    }

    /// In lines of at most so many characters, if that is possible; with lines and with colours, if that is wanted. Long texts are
    /// wrapped within their columns first, then columns follow below.
    pub fn lay_out(&self, rules: bool, color: bool, columns: Option<usize>) -> String {
        let widths = self.widths();
        let Some(columns) = columns else {
            return self.lay_out_columns(&widths, &(0..widths.len()).collect::<Vec<_>>(), rules, color);
        };
        let least = self.least_widths(&widths);
        let part =
            |part: &Vec<usize>| self.lay_out_columns(&narrowed(&widths, &least, part, columns), part, rules, color);
        parts(&least, columns).iter().map(part).collect::<Vec<_>>().join("\n")
    }

    /// How narrow each column can be: numbers and short texts as wide as they are, long texts as their longest word.
    fn least_widths(&self, widths: &[usize]) -> Vec<usize> {
        let word = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|(cell, _)| cell);
            let words = cells.flat_map(|cell| cell.split(' ')).map(|word| word.chars().count());
            words.max().unwrap_or(0).max(self.headers[column].chars().count()).max(LEAST_TEXT)
        };
        let of =
            |(column, width): (usize, &usize)| if self.right[column] { *width } else { (*width).min(word(column)) };
        widths.iter().enumerate().map(of).collect()
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
            let cells: Vec<Vec<String>> = (0..self.headers.len())
                .map(|column| {
                    let cell = row.get(column).map_or("", |(cell, _)| cell);
                    let fits = cell.chars().count() <= widths[column];
                    if fits {
                        vec![cell.to_owned()]
                    } else {
                        wrapped(cell, widths[column]).lines().map(str::to_owned).collect()
                    }
                })
                .collect();
            let lines = columns.iter().map(|column| cells[*column].len()).max().unwrap_or(1);
            for line in 0..lines {
                self.lay_out_row(&mut text, widths, columns, |column| {
                    let cell = cells[column].get(line).map_or("", String::as_str);
                    let tone = row.get(column).map_or(Tone::Plain, |(_, tone)| *tone);
                    (cell, if color && !cell.is_empty() { tone.escape() } else { "" })
                });
            }
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

/// Characters that a column of long texts has at least.
const LEAST_TEXT: usize = 20;

/// The widths with which some columns fit: the widest text gives way first.
fn narrowed(widths: &[usize], least: &[usize], part: &[usize], columns: usize) -> Vec<usize> {
    let mut widths = widths.to_vec();
    let room = columns.saturating_sub(2 * part.len().saturating_sub(1));
    while part.iter().map(|column| widths[*column]).sum::<usize>() > room {
        let widest = part.iter().copied().filter(|column| widths[*column] > least[*column]);
        let Some(widest) = widest.max_by_key(|column| widths[*column]) else { break };
        widths[widest] -= 1;
    }
    widths
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
    pub fn escape(self) -> &'static str {
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
    fn what_stands_in_a_cell_is_no_markup_of_a_page() {
        let mut table = Table::new(["name", ">count"]);
        table.row(["<b>".into(), "1".into()]);
        let html = table.html();
        assert!(
            html.contains("<td style=\"text-align:left\">&lt;b&gt;</td><td style=\"text-align:right\">1</td>"),
            "{html}"
        );
    }

    #[test]
    fn a_table_without_colour_has_no_escape_sequences() {
        let mut table = Table::new(["name"]);
        table.toned_row([("x".into(), Tone::Good)]);
        assert!(!table.lay_out(true, false, None).contains('\u{1b}'));
        assert!(table.lay_out(true, true, None).contains('\u{1b}'));
    }

    #[test]
    fn long_texts_are_wrapped_within_their_column() {
        let mut table = Table::new(["metric", ">value", "meaning"]);
        table.row(["wait".into(), "12".into(), "how long a task waits for a CPU after its wakeup".into()]);
        assert_eq!(
            table.lay_out(false, false, Some(40)),
            "metric  value  meaning\nwait       12  how long a task waits for\n               a CPU after its wakeup\n"
        );
        assert_eq!(table.lay_out(false, false, None).lines().count(), 2, "a pipe gets a line for each row");
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
