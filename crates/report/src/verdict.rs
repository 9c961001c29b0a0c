//! The verdict as plain text: one line per scheduler, then the sentence and what explains it.

use warmcore_lab::advice::Advice;
use warmcore_lab::measures::{Measure, Unit};
use warmcore_lab::operations::OperationTake;
use warmcore_lab::sensitivity::Variation;
use warmcore_lab::time_split::{Gap, TimeSplit};
use warmcore_lab::verdict::{
    ComparisonDocument, Finding, MeasureResult, SchedulerResult, decimal, ratio_with_interval,
};
use warmcore_statistics::Comparison;

use crate::figures::Figure;
use crate::svg::escape;
use crate::table::{Table, Tone};
use crate::text::{BESIDE, effort, has_values, left_out};
use crate::units::with_unit;

mod labels;

/// Most characters in a line of a sentence where nothing narrower is known.
pub const SENTENCE_COLUMNS: usize = 100;

/// Which columns the table has next to the verdict's measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// At most one latency, and none where the measure is one.
    Usual,
    /// All.
    Detailed,
}

/// For a file.
pub fn plain(document: &ComparisonDocument) -> String {
    text(document, Table::aligned, SENTENCE_COLUMNS, Extent::Usual) + &decisions(document)
}

/// In sentences of at most so many columns, with tables as `show` lays them out. [`decisions`] has what the schedulers decided.
pub fn text(document: &ComparisonDocument, show: impl Fn(&Table) -> String, columns: usize, extent: Extent) -> String {
    let (document, key) = with_short_labels(document);
    let table = show(&table(&document, extent));
    let left_out = said_below(&document, extent)
        .map_or_else(String::new, |left_out| format!("{}\n", wrapped(&format!("{left_out}."), columns)));
    let said = match &document.advice {
        None => wrapped(&document.verdict.sentence, columns),
        Some(advice) => advised(advice, &document, columns),
    };
    format!(
        "{key}{table}{left_out}\n{said}\n{}{}{}{}{}",
        conditions(&document, columns),
        headroom(&document, columns),
        sensitivity(&document, &show, columns),
        time_split(&document, &show, columns),
        operations(&document, &show)
    )
}

/// As a piece of another page, such as a notebook: the table, the sentence, what it holds for, what explains the differences, and figures that
/// no style of that page reaches.
pub fn html(document: &ComparisonDocument, figures: &[Figure]) -> String {
    let (document, key) = with_short_labels(document);
    let paragraph = |text: &str| format!("<p>{}</p>\n", escape(text));
    let mut page: String = key.lines().filter(|line| !line.is_empty()).map(paragraph).collect();
    page.push_str(&table(&document, Extent::Detailed).html());
    page.extend(said_below(&document, Extent::Detailed).map(|left_out| paragraph(&format!("{left_out}."))));
    page.push_str(&format!("<p><b>{}</b></p>\n", escape(&document.verdict.sentence)));
    page.extend(document.conditions.iter().map(|condition| paragraph(&format!("Condition: {condition}."))));
    let gaps = document.time_split.iter().flat_map(|split| &split.gaps);
    page.extend(gaps.map(|gap| paragraph(&format!("{}.", gap.sentence))));
    page.extend(figures.iter().map(Figure::picture));
    page
}

/// The document with a short name for each scheduler whose text is long, and lines that say which is which.
fn with_short_labels(document: &ComparisonDocument) -> (ComparisonDocument, String) {
    let mut document = document.clone();
    if let Some(advice) = document.advice.clone() {
        document.conditions.retain(|condition| !advice.says(condition));
        keep_best(&mut document);
    }
    let long: Vec<&str> = document.schedulers.iter().map(|scheduler| scheduler.label.as_str()).collect();
    let named = long.iter().zip(labels::names(&long)).filter(|(long, name)| **long != name.as_str());
    let mut short: Vec<(String, String)> = named.map(|(long, name)| ((*long).to_owned(), name)).collect();
    let key: String = short.iter().map(|(long, short)| format!("{short} is {long}\n")).collect();
    // One text may be the beginning of another.
    short.sort_by_key(|(long, _)| std::cmp::Reverse(long.len()));
    let shorten = |text: &mut String| short.iter().for_each(|(long, short)| *text = text.replace(long, short));
    document.schedulers.iter_mut().for_each(|scheduler| shorten(&mut scheduler.label));
    shorten(&mut document.verdict.sentence);
    document.conditions.iter_mut().for_each(shorten);
    let advised = document.advice.iter_mut().flat_map(|advice| &mut advice.settings);
    advised.for_each(|setting| shorten(&mut setting.label));
    if let Some(headroom) = &mut document.headroom {
        headroom.schedulers.iter_mut().for_each(|scheduler| shorten(&mut scheduler.label));
        shorten(&mut headroom.sentence);
    }
    if let Some(sensitivity) = &mut document.sensitivity {
        let varied = sensitivity.variations.iter_mut().flat_map(|variation| &mut variation.schedulers);
        varied.for_each(|scheduler| shorten(&mut scheduler.label));
        shorten(&mut sensitivity.sentence);
    }
    if let Some(split) = &mut document.time_split {
        split.schedulers.iter_mut().for_each(|scheduler| shorten(&mut scheduler.label));
        split.gaps.iter_mut().for_each(|gap| shorten(&mut gap.sentence));
    }
    let key = if key.is_empty() { key } else { format!("{key}\n") };
    (document, key)
}

/// Leaves of what explains the columns what is about the best one and the baseline: the advice has said what the others are.
fn keep_best(document: &mut ComparisonDocument) {
    let best = document.verdict.best.clone();
    let base = document.schedulers.iter().find(|scheduler| scheduler.is_baseline).map(|base| base.label.clone());
    let kept = |label: &String| [&best, &base].into_iter().flatten().any(|kept| kept == label);
    if let Some(split) = &mut document.time_split {
        split.schedulers.retain(|scheduler| kept(&scheduler.label));
        split.gaps.retain(|gap| best.as_ref() == Some(&gap.label));
    }
}

/// Which settings help, where that was asked.
fn advised(advice: &Advice, document: &ComparisonDocument, columns: usize) -> String {
    let base = document.schedulers.iter().find(|scheduler| scheduler.is_baseline).map_or("", |base| &*base.label);
    let metric = document.measures.iter().find(|measure| measure.name == document.primary);
    let lines = advice.lines(metric.map_or(&*document.primary, |metric| &*metric.title), base);
    // What is typed must be copied in one piece.
    let shown = |line: &String| if line.starts_with(' ') { format!("{line}\n") } else { wrapped(line, columns) + "\n" };
    lines.iter().map(shown).collect()
}

/// What the verdict holds for beside what was asked.
fn conditions(document: &ComparisonDocument, columns: usize) -> String {
    let line = |condition: &String| wrapped(&format!("Condition: {condition}."), columns) + "\n";
    document.conditions.iter().map(line).collect()
}

/// How far the schedulers are from the oracle, if it was asked.
fn headroom(document: &ComparisonDocument, columns: usize) -> String {
    let sentence = document.headroom.as_ref().map(|headroom| headroom.sentence.as_str());
    sentence.map_or_else(String::new, |sentence| format!("\n{}\n", wrapped(sentence, columns).trim_end()))
}

/// Rows of changes that turn nothing.
const MOST_HARMLESS_ROWS: usize = 3;

/// Which assumed costs could turn the verdict: those that do, and the largest changes of those that do not.
fn sensitivity(document: &ComparisonDocument, show: impl Fn(&Table) -> String, columns: usize) -> String {
    let Some(sensitivity) = &document.sensitivity else { return String::new() };
    let others: Vec<&SchedulerResult> = document.schedulers.iter().filter(|scheduler| !scheduler.is_baseline).collect();
    let headings: Vec<String> = others.iter().map(|scheduler| format!(">{}", scheduler.label)).collect();
    let mut table = Table::new(std::iter::once("changed").chain(headings.iter().map(String::as_str)));
    let unchanged = others.iter().map(|scheduler| {
        let result = scheduler.measures.get(&document.primary);
        varied_cell(
            result.and_then(|result| result.comparison.as_ref()?.ratio),
            result.and_then(|result| result.finding),
        )
    });
    table.row(std::iter::once("as it is".to_owned()).chain(unchanged));
    let mut harmless: Vec<(f64, &str, Option<f64>)> = Vec::new();
    for variation in sensitivity.variations.iter().filter(|variation| !variation.turns()) {
        if let Some(change) = variation.largest_change(document).filter(|change| *change > 0.0) {
            harmless.push((change, &variation.cost, variation.factor));
        }
    }
    harmless.sort_by(|a, b| b.0.total_cmp(&a.0));
    harmless.truncate(MOST_HARMLESS_ROWS);
    let shown = |variation: &&Variation| {
        variation.turns()
            || harmless.iter().any(|(_, cost, factor)| (*cost, *factor) == (&*variation.cost, variation.factor))
    };
    for variation in sensitivity.variations.iter().filter(shown) {
        let mut row = vec![(variation.title(), Tone::Plain)];
        for scheduler in &variation.schedulers {
            let tone = if scheduler.turns { Tone::Bad } else { Tone::Plain };
            row.push((varied_cell(scheduler.ratio, scheduler.finding), tone));
        }
        table.toned_row(row);
    }
    format!("\n{}\n{}\n", show(&table), wrapped(&sensitivity.sentence, columns).trim_end())
}

fn varied_cell(ratio: Option<f64>, finding: Option<Finding>) -> String {
    format!("{} {}", ratio.map_or_else(|| "-".into(), decimal), finding.map_or("", Finding::words))
}

/// Where the time went, and what explains the differences.
fn time_split(document: &ComparisonDocument, show: impl Fn(&Table) -> String, columns: usize) -> String {
    let Some(split) = &document.time_split else { return String::new() };
    let mut text = format!("\n{}", show(&time_table(split)));
    for sentence in explained(&split.gaps) {
        text.push_str(&format!("\n{}\n", wrapped(&sentence, columns).trim_end()));
    }
    text
}

/// Gaps up to which each has a sentence, also if there is nothing to explain.
const FEW_GAPS: usize = 2;

/// A sentence for each gap; of many that explain nothing there is one together.
fn explained(gaps: &[Gap]) -> Vec<String> {
    let without: Vec<&str> = gaps.iter().filter(|gap| !gap.explains()).map(|gap| gap.label.as_str()).collect();
    let is_short = without.len() <= FEW_GAPS;
    let own = gaps.iter().filter(|gap| is_short || gap.explains()).map(|gap| format!("{}.", gap.sentence));
    let together = format!("There is no difference to explain under {}.", without.join(", "));
    own.chain((!is_short).then_some(together)).collect()
}

/// Shares of the tasks' time by cause, one column per scheduler. Causes below half a percent everywhere are
/// left out.
pub(crate) fn time_table(split: &TimeSplit) -> Table {
    let headings: Vec<String> = split.schedulers.iter().map(|scheduler| format!(">{}", scheduler.label)).collect();
    let mut table = Table::new(std::iter::once("where the time went").chain(headings.iter().map(String::as_str)));
    for cause in &split.causes {
        let shares: Vec<f64> = split.schedulers.iter().map(|scheduler| scheduler.shares[cause.name]).collect();
        if shares.iter().all(|share| *share < 5e-3) {
            continue;
        }
        let shares = shares.iter().map(|share| format!("{:.1} %", share * 100.0));
        table.row(std::iter::once(cause.title.to_owned()).chain(shares));
    }
    table
}

/// What the operations of sched_ext schedulers took, one table each.
fn operations(document: &ComparisonDocument, show: impl Fn(&Table) -> String) -> String {
    let of_programs = document.schedulers.iter().filter(|scheduler| !scheduler.operations.is_empty());
    of_programs
        .map(|scheduler| format!("\n{}", show(&operations_table(&scheduler.label, &scheduler.operations))))
        .collect()
}

/// Calls, instructions and time of each operation of a scheduler.
pub(crate) fn operations_table(scheduler: &str, operations: &[OperationTake]) -> Table {
    let first = format!("operations of {scheduler}");
    let mut table = Table::new([&*first, ">calls", ">instructions each", ">each", ">in all"]);
    for operation in operations {
        let time = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| with_unit(value, Unit::Ns));
        let instructions = operation.instructions_per_call.map_or_else(|| "-".into(), |each| format!("{each:.0}"));
        table.row([
            operation.operation.clone(),
            format!("{:.0}", operation.calls),
            instructions,
            time(operation.charged_ns_per_call),
            time(operation.charged_ns),
        ]);
    }
    table
}

/// What the schedulers say they decided, one line each, and what their choices of places took.
pub fn decisions(document: &ComparisonDocument) -> String {
    let mut text = String::new();
    for scheduler in document.schedulers.iter().filter(|scheduler| !scheduler.decisions.is_empty()) {
        text.push_str(&format!("\n{} decided (median of the trials):\n", scheduler.label));
        for decision in &scheduler.decisions {
            text.push_str(&format!("  {}\n", decision.in_words()));
        }
        if let Some(effort) = effort(scheduler) {
            text.push_str(&format!("  {effort}\n"));
        }
    }
    text
}

/// Columns of the table next to the verdict's measure: name and heading.
fn columns_beside(document: &ComparisonDocument, extent: Extent) -> Vec<(&str, &str)> {
    let second = document.secondary.as_deref().map(|name| (name, heading(document, name)));
    let results = [Some(document.primary.as_str()), document.secondary.as_deref()];
    let has_latency = results.into_iter().flatten().any(is_latency);
    let is_shown = |name: &str| {
        // Without a value the usual table does not say why, either.
        let is_usual = !has_latency && name == USUAL_LATENCY && has_values(document, name);
        let is_left_out = extent == Extent::Usual && is_latency(name) && !is_usual;
        !results.contains(&Some(name)) && !is_left_out
    };
    second.into_iter().chain(BESIDE.into_iter().filter(|(name, _)| is_shown(name))).collect()
}

/// The latency that the table shows where the verdict is about something else.
const USUAL_LATENCY: &str = "wakeup_p99_ns";

/// Whether a measure is a time that tasks or requests wait.
fn is_latency(name: &str) -> bool {
    let waits = ["wakeup_", "response_", "run_delay_", "preempt_wait_", "recorder_"];
    name.ends_with("_ns") && waits.iter().any(|wait| name.starts_with(wait))
}

/// The line below the table, where it leaves out percentiles of few events.
fn said_below(document: &ComparisonDocument, extent: Extent) -> Option<String> {
    let primary = (document.primary.as_str(), heading(document, &document.primary));
    left_out(document, &std::iter::once(primary).chain(columns_beside(document, extent)).collect::<Vec<_>>())
}

fn table(document: &ComparisonDocument, extent: Extent) -> Table {
    let primary = format!(">{}", heading(document, &document.primary));
    let beside = columns_beside(document, extent).into_iter().filter(|(name, _)| has_values(document, name));
    let columns: Vec<(&str, String)> = beside.map(|(name, heading)| (name, format!(">{heading}"))).collect();
    let headroom = document.headroom.as_ref();
    let headings =
        ["scheduler", &primary, ">ratio [95 %]", "verdict"].into_iter().chain(headroom.map(|_| ">of oracle"));
    let mut table = Table::new(headings.chain(columns.iter().map(|(_, heading)| heading.as_str())));
    for scheduler in &document.schedulers {
        let mut row = vec![(scheduler.label.clone(), Tone::Plain)];
        row.push((median(scheduler, &document.primary, &document.measures), Tone::Plain));
        row.extend(judged(scheduler, &document.primary));
        row.extend(headroom.map(|headroom| {
            let of_oracle = headroom.scheduler(&scheduler.label).and_then(|scheduler| scheduler.of_oracle);
            (of_oracle.map_or_else(|| "-".into(), decimal), Tone::Plain)
        }));
        row.extend(columns.iter().map(|(name, _)| (median(scheduler, name, &document.measures), Tone::Plain)));
        table.toned_row(row);
    }
    table
}

/// The heading of a measure: short for the usual ones, so that a line stays below 100 characters.
fn heading<'a>(document: &'a ComparisonDocument, name: &str) -> &'a str {
    match name {
        "elapsed_ns" => "elapsed",
        "hackbench_time_ns" => "time",
        "work_ns" => "work",
        "cpu_share_deviation" => "deviation",
        _ => document.measures.iter().find(|measure| measure.name == name).map_or("", |measure| &measure.title),
    }
}

/// Ratio and verdict of the primary measure.
fn judged(scheduler: &SchedulerResult, primary: &str) -> [(String, Tone); 2] {
    let result = scheduler.measures.get(primary);
    let judged = result.and_then(|result| Some((result.comparison.as_ref()?, result.finding?)));
    let Some((comparison, finding)) = judged else {
        return [("1".into(), Tone::Plain), ("baseline".into(), Tone::Plain)];
    };
    let tone = match finding {
        Finding::Better => Tone::Good,
        Finding::Worse => Tone::Bad,
        _ => Tone::Plain,
    };
    [(ratio(comparison), tone), (finding.words().into(), tone)]
}

fn ratio(comparison: &Comparison) -> String {
    comparison.ratio.map_or_else(|| "-".into(), |ratio| ratio_with_interval(ratio, comparison.interval))
}

/// The median of a measure, in its unit; `-` where it has none, or is a percentile of few events.
fn median(scheduler: &SchedulerResult, name: &str, measures: &[Measure]) -> String {
    let value = scheduler.measures.get(name).and_then(MeasureResult::shown);
    let unit = measures.iter().find(|measure| measure.name == name).map(|measure| measure.unit);
    match (value, unit) {
        (Some(value), Some(unit)) => with_unit(value, unit),
        _ => "-".into(),
    }
}

/// Breaks a sentence into lines of at most so many characters, words permitting.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split(' ') {
        let more = word.chars().count() + 1;
        if length > 0 && length + more > columns + 1 {
            lines.push(String::new());
            length = 0;
        }
        if let Some(line) = lines.last_mut() {
            if length > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
        length += more;
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use warmcore_lab::time_split::GapLine;

    use super::*;

    #[test]
    fn of_many_schedulers_without_a_difference_one_sentence_is_said() {
        let gap = |label: &str, share: Option<f64>| Gap {
            label: label.into(),
            trials: None,
            ratio: None,
            difference: 1.0,
            lines: vec![GapLine { name: "computing", difference: 1.0, share }],
            sentence: format!("about {label}"),
        };
        let gaps = [gap("cfs", None), gap("ule", Some(1.0)), gap("rr", None), gap("fifo", None)];
        assert_eq!(explained(&gaps[..3]), ["about cfs.", "about ule.", "about rr."]);
        let together = "There is no difference to explain under cfs, rr, fifo.";
        assert_eq!(explained(&gaps), ["about ule.", together]);
    }

    #[test]
    fn times_that_tasks_or_requests_wait_are_latencies() {
        let latencies = ["wakeup_mean_ns", "wakeup_p99_ns", "response_p99_ns", "recorder_request_latency_p99_ns"];
        assert!(latencies.into_iter().all(is_latency));
        assert!(!["elapsed_ns", "work_ns", "wakeups", "recorder_request_latency_per_s"].into_iter().any(is_latency));
    }
}
