//! A reproduction as text and as Markdown: published, ours, error, band and verdict, row by row; then what is missing.

use warmcore_fidelity::reproduce::check::{Band, Stated};
use warmcore_fidelity::reproduce::document::{CheckResult, CheckVerdict, ReproductionDocument, RowResult};
use warmcore_fidelity::reproduce::sensitivity::{SensitivityDocument, VariedResult};
use warmcore_lab::verdict::decimal;
use warmcore_statistics::Interval;

use crate::console::{Console, Table, Tone};

/// For standard output.
pub fn text(document: &ReproductionDocument, console: &Console) -> String {
    with_missing(console.table(&table(document)), document, |table| console.table(table))
}

/// For a file.
pub fn plain(document: &ReproductionDocument) -> String {
    with_missing(table(document).aligned(), document, Table::aligned)
}

fn with_missing(mut text: String, document: &ReproductionDocument, lay_out: impl Fn(&Table) -> String) -> String {
    if document.rows.iter().all(|row| row.missing.is_some()) {
        text.clear();
    }
    let mut missing = Table::new(["not simulated yet", "needs"]);
    for row in &document.rows {
        if let Some(needs) = &row.missing {
            missing.row([row.id.clone(), needs.clone()]);
        }
    }
    if document.totals.missing_rows > 0 {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&lay_out(&missing));
    }
    format!("{text}\n{}\n", conclusion(document))
}

fn table(document: &ReproductionDocument) -> Table {
    let mut table = Table::new(["row", "what is compared", ">published", ">ours [95 %]", ">error", "band", "verdict"]);
    for (row, check, first) in checks(document) {
        let tone = match check.verdict {
            CheckVerdict::Inside => Tone::Good,
            CheckVerdict::Outside | CheckVerdict::NoFigure => Tone::Bad,
            CheckVerdict::Fitted => Tone::Plain,
        };
        table.toned_row([
            (if first { row.id.clone() } else { String::new() }, Tone::Plain),
            (titled(check), Tone::Plain),
            (stated(check.stated), Tone::Plain),
            (ours(check.ours, check.interval), Tone::Plain),
            (error(check), Tone::Plain),
            (band(&check.band), Tone::Plain),
            (check.verdict.word().into(), tone),
        ]);
    }
    table
}

/// As a section of a document: no heading, table, what is missing, conclusion.
pub fn markdown(document: &ReproductionDocument) -> String {
    let mut text = format!(
        "Seeds: {} from `warmcore reproduce {}`; version {}.\n\n",
        document.seeds.len(),
        document.name,
        document.tool_version
    );
    if document.totals.missing_rows < document.totals.rows {
        text.push_str("| row | what is compared | published | ours [95 %] | error | band, and why | verdict |\n");
        text.push_str("|---|---|--:|--:|--:|---|---|\n");
    }
    for (row, check, first) in checks(document) {
        let verdict = match check.fitted {
            Some(parameter) => format!("fitted: {parameter}"),
            None => check.verdict.word().to_owned(),
        };
        let cells = [
            if first { format!("`{}`", row.id) } else { String::new() },
            titled(check),
            stated(check.stated),
            ours(check.ours, check.interval),
            error(check),
            format!("{}: {}", band(&check.band), check.band.reason),
            verdict,
        ];
        text.push_str(&format!("| {} |\n", cells.map(|cell| escaped(&cell)).join(" | ")));
    }
    if document.totals.missing_rows > 0 {
        text.push_str("\n| not simulated yet | published | needs |\n|---|---|---|\n");
        for row in &document.rows {
            if let Some(needs) = &row.missing {
                let cells = [format!("`{}`", row.id), row.published.stated(), needs.clone()];
                text.push_str(&format!("| {} |\n", cells.map(|cell| escaped(&cell)).join(" | ")));
            }
        }
    }
    format!("{text}\n{}\n", conclusion(document))
}

/// What a variation changes, for standard output.
pub fn sensitivity_text(document: &SensitivityDocument, console: &Console) -> String {
    let headings = ["variation", ">verdicts changed", ">directions changed", ">largest change", "changed verdicts"];
    let mut table = Table::new(headings);
    for varied in &document.variations {
        table.row(sensitivity_cells(document, varied));
    }
    format!("{}\n{}\n", console.table(&table), sensitivity_conclusion(document))
}

/// The same as a section of a document.
pub fn sensitivity_markdown(document: &SensitivityDocument) -> String {
    let mut text =
        String::from("| variation | verdicts changed | directions changed | largest change | which verdicts |\n");
    text.push_str("|---|--:|--:|--:|---|\n");
    for varied in &document.variations {
        let cells = sensitivity_cells(document, varied).map(|cell| escaped(&cell));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    format!("{text}\n{}\n", sensitivity_conclusion(document))
}

fn sensitivity_cells(document: &SensitivityDocument, varied: &VariedResult) -> [String; 5] {
    let verdicts = document.verdicts.iter().zip(&varied.verdicts).zip(&document.comparisons);
    let changed = verdicts.filter(|((old, new), _)| old != new);
    let changed: Vec<String> = changed
        .map(|((_, new), title)| format!("{}: {}", title.split(": ").next().unwrap_or(title), new.word()))
        .collect();
    [
        varied.variation.clone(),
        varied.verdicts_changed.to_string(),
        varied.directions_changed.to_string(),
        varied.largest_change.map_or_else(|| "-".into(), |change| format!("{:.0} %", 100.0 * change)),
        changed.join(", "),
    ]
}

fn sensitivity_conclusion(document: &SensitivityDocument) -> String {
    let comparisons = document.comparisons.len();
    let count = |of: fn(&VariedResult) -> usize| document.variations.iter().map(of).sum::<usize>();
    format!(
        "{comparisons} comparisons under {} variations: {} verdicts and {} directions change.",
        document.variations.len(),
        count(|varied| varied.verdicts_changed),
        count(|varied| varied.directions_changed)
    )
}

/// What came out, in a sentence or two.
pub fn conclusion(document: &ReproductionDocument) -> String {
    let totals = document.totals;
    let scored = totals.inside + totals.outside;
    let mut text = format!("{} of {scored} scored comparisons are inside their bands", totals.inside);
    if totals.fitted > 0 {
        text.push_str(&format!(", {} fitted and not scored", totals.fitted));
    }
    if totals.missing_rows > 0 {
        text.push_str(&format!("; {} of {} rows are not simulated yet", totals.missing_rows, totals.rows));
    }
    text.push('.');
    if let Some(signs) = document.signs {
        text.push_str(&format!(
            " Of {} published ratios that change by more than 5 %, {} have the right direction here ({:.0} %, demanded {:.0} %).",
            signs.changed,
            signs.right,
            100.0 * signs.right as f64 / signs.changed as f64,
            100.0 * signs.demanded
        ));
    }
    text
}

/// Every comparison with its row, and whether it is the row's first.
fn checks(document: &ReproductionDocument) -> impl Iterator<Item = (&RowResult, &CheckResult, bool)> {
    document
        .rows
        .iter()
        .flat_map(|row| row.checks.iter().enumerate().map(move |(index, check)| (row, check, index == 0)))
}

fn titled(check: &CheckResult) -> String {
    if check.unit.is_empty() { check.title.clone() } else { format!("{} ({})", check.title, check.unit) }
}

fn stated(stated: Stated) -> String {
    match stated {
        Stated::Value(value) => decimal(value),
        Stated::Range([low, high]) => format!("{} to {}", decimal(low), decimal(high)),
        Stated::Words => "in words".into(),
    }
}

fn ours(ours: Option<f64>, interval: Option<Interval>) -> String {
    match (ours, interval) {
        (None, _) => "-".into(),
        (Some(ours), None) => decimal(ours),
        // Every seed of both gave the same.
        (Some(1.0), Some(interval)) if (interval.low, interval.high) == (1.0, 1.0) => "1, identical".into(),
        (Some(ours), Some(interval)) => {
            format!("{} [{}, {}]", decimal(ours), decimal(interval.low), decimal(interval.high))
        }
    }
}

fn error(check: &CheckResult) -> String {
    check.error.map_or_else(|| "-".into(), |error| format!("{:+.1} %", 100.0 * error))
}

fn band(band: &Band) -> String {
    match (band.low, band.high) {
        (Some(low), Some(high)) => format!("{} to {}", decimal(low), decimal(high)),
        (Some(low), None) => format!("at least {}", decimal(low)),
        (None, Some(high)) => format!("at most {}", decimal(high)),
        (None, None) => "any".into(),
    }
}

/// A text as a cell of a Markdown table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_that_are_one_with_every_seed_are_identical_and_rounded_ones_are_not() {
        let shown = |low, high| ours(Some(1.0), Some(Interval { low, high }));
        assert_eq!(shown(1.0, 1.0), "1, identical");
        assert_eq!(shown(0.9999, 1.0001), "1 [1, 1]");
    }
}
