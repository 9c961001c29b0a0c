//! Tables of text, for a terminal, a file or a notebook.
//!
//! Without lines they are aligned columns separated by two or more spaces, which `cut`, `awk` and `diff` can work with.

use crate::printable::printable;
use crate::svg::escape;

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
    #[must_use]
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
    #[must_use]
    pub fn aligned(&self) -> String {
        self.lay_out(false, false, None)
    }

    /// As HTML, without a style of its own.
    #[must_use]
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

    /// In lines of at most so many characters, if that is possible; with lines and with colours, if that is wanted.
    #[must_use]
    pub fn lay_out(&self, rules: bool, color: bool, columns: Option<usize>) -> String {
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
    #[must_use]
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
