//! The verdict as text: Markdown, with the table of a kernel patch letter in it.
//!
//! Such letters give `case  load  baseline  patched  improvement`: the baseline normalised to 1.00, standard deviations in
//! per cent of the mean in brackets, and the direction of the metric stated (`docs/spec/ecosystem.md` section 4).

use std::fmt::Write as _;

use warmcore_lab::measures::{Measure, Unit, is_of_role, mean_beside};
use warmcore_lab::placement_measures;
use warmcore_lab::verdict::{
    ComparisonDocument, Finding, MeasureResult, SchedulerResult, decimal, ratio_with_interval, trials_in_words,
};
use warmcore_statistics::{Better, Sample};

use crate::figures::compare::direction;
use crate::figures::shortened_scheduler;
use crate::printable::printable;
use crate::run::Run;
use crate::units::{duration, three_digits, with_unit};

/// Measures beside the verdict's own, in its table on the page and in the terminal: name and heading.
pub(crate) const BESIDE: [(&str, &str); 5] = [
    ("wakeup_p50_ns", "wake p50"),
    ("wakeup_p99_ns", "wake p99"),
    ("migrations_ran_per_s", "migr/s"),
    ("cross_llc_ran_per_s", "x-LLC/s"),
    ("violation_ns", "violation"),
];

/// Longest name of a scheduler in a headline, in characters.
const LONGEST_NAME: usize = 36;

/// Further ones on the page, where a scheduler counts what its choices of places take.
pub(crate) const PLACEMENTS: [(&str, &str); 2] =
    [("placement_decisions", "placements"), ("placement_decision_ns", "each took")];

/// Threads of a recording that Markdown names: those with the most CPU time.
const MOST_THREADS: usize = 12;

/// Reports of several runs as Markdown.
pub fn markdown(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        match run.is_recording() {
            true => recorded(&mut text, run),
            false => one(&mut text, run),
        }
    }
    if runs.iter().any(|run| !run.is_recording()) {
        let _ = write!(text, "## As a patch letter has it\n\n```\n{}```\n", patch_letter(runs));
    }
    printable(&text).into_owned()
}

/// The question that a run answers.
pub fn question(run: &Run) -> String {
    let record = &run.disk.record;
    let labels: Vec<&str> = record.schedulers.iter().map(|scheduler| scheduler.label.as_str()).collect();
    match labels.as_slice() {
        // Whose scheduler it was, its kernel does not say.
        [_] if run.is_recording() => format!("How does {} run on {}?", record.workload.source, record.machine.source),
        [only] => format!("How does {} run on {} under {only}?", record.workload.source, record.machine.source),
        [others @ .., last] => format!(
            "Which of {} and {last} is best for {} on {}?",
            others.join(", "),
            record.workload.source,
            record.machine.source
        ),
        [] => String::new(),
    }
}

/// The answer in a line: each scheduler against the baseline, the best one first.
pub fn headline(run: &Run) -> String {
    let document = &run.disk.comparison;
    let title = measure(run, &document.primary).map_or(document.primary.as_str(), |measure| measure.title.as_str());
    let of = |scheduler: &SchedulerResult| scheduler.measures.get(&document.primary).cloned();
    let base = document.schedulers.iter().find(|scheduler| scheduler.is_baseline);
    let others: Vec<&SchedulerResult> = document.schedulers.iter().filter(|scheduler| !scheduler.is_baseline).collect();
    if others.is_empty() {
        // A percentile of few events gives way to their mean.
        let few = base.and_then(of).is_some_and(|result| result.few.is_some());
        let mean = mean_beside(&document.primary).filter(|_| few).and_then(|mean| measure(run, &mean));
        let (name, title) =
            mean.map_or((document.primary.as_str(), title), |mean| (mean.name.as_str(), mean.title.as_str()));
        let result = base.and_then(|base| base.measures.get(name));
        let value = result.map_or_else(|| "-".into(), |result| value(run, name, result));
        let told = |name: &str| Some(self::value(run, name, base?.measures.get(name)?)).filter(|text| text != "-");
        let mut parts = vec![format!("{title} {value}")];
        parts.extend(told("wakeup_p99_ns").map(|value| format!("p99 wakeup latency {value}")));
        let busy = base.and_then(|base| base.measures.get("busy_share")?.summary.median);
        parts.extend(busy.map(|share| {
            let percent = three_digits(share * 100.0);
            // Who else kept the CPUs busy is not in a recording of some threads.
            if run.is_recording() {
                format!("its threads used {percent} % of all CPU time")
            } else {
                format!("CPUs busy {percent} %")
            }
        }));
        let mut of = base.map_or("", |scheduler| scheduler.label.as_str());
        if run.is_recording() {
            of = &run.disk.record.workload.source;
            parts.rotate_left(1);
        }
        return with_fixed_units(&format!("{of}: {}", parts.join(", ")));
    }
    // A name that another scheduler has too gives way to the whole text.
    let short = |scheduler: &SchedulerResult| shortened_scheduler(&scheduler.label, LONGEST_NAME);
    let name = |scheduler: &SchedulerResult| {
        let own = short(scheduler);
        let several = document.schedulers.iter().filter(|other| short(other) == own).count() > 1;
        if several { scheduler.label.clone() } else { own }
    };
    let base_label = base.map_or_else(String::new, name);
    let findings: Vec<Option<Finding>> =
        others.iter().map(|other| of(other).and_then(|result| result.finding)).collect();
    if let Some(Some(finding)) = findings.first()
        && findings.iter().all(|other| *other == Some(*finding))
    {
        let names = others.iter().map(|other| name(other)).collect::<Vec<_>>().join(", ");
        match finding {
            Finding::Tied => return format!("No difference in {title}: {names} and {base_label} are tied"),
            Finding::Unclear => return format!("Unclear in {title}: {names} against {base_label}"),
            Finding::TooFewTrials => return format!("Too few trials to judge {names} against {base_label}"),
            _ => {}
        }
    }
    let better = measure(run, &document.primary).map_or(Better::Neither, |measure| measure.better);
    let mut parts: Vec<([f64; 2], String)> = Vec::new();
    let mut without_ratio: Vec<(&str, String)> = Vec::new();
    if base.is_some() && document.verdict.best.as_deref() == base.map(|base| base.label.as_str()) {
        parts.push(([0.0; 2], format!("{base_label} is best")));
    }
    for scheduler in others {
        let Some(result) = of(scheduler) else { continue };
        let label = name(scheduler);
        let ratio =
            result.comparison.as_ref().and_then(|comparison| comparison.ratio).filter(|ratio| ratio.is_finite());
        let best = if document.verdict.best.as_deref() == Some(&scheduler.label) { " is best" } else { "" };
        if let Some(finding) = result.finding.filter(|finding| {
            best.is_empty() && !matches!(finding, Finding::Better | Finding::Worse | Finding::Different)
        }) {
            without_ratio.push((finding.words(), label));
            continue;
        }
        let (rank, words) = match (result.finding, ratio) {
            (Some(finding @ (Finding::Better | Finding::Worse | Finding::Different)), ratio) => {
                // Nearly nothing has no ratio, and is less all the same.
                let values = || {
                    let base =
                        base.and_then(of).map_or_else(|| "-".into(), |base| value(run, &document.primary, &base));
                    format!("{title} {}, not {base}", value(run, &document.primary, &result))
                };
                let words = ratio.map_or_else(values, |ratio| effect(ratio, title, &base_label));
                (if finding == Finding::Worse { 2.0 } else { 1.0 }, words)
            }
            (finding, _) => (3.0, finding.map_or("-", Finding::words).to_owned()),
        };
        let rank = if best.is_empty() { rank } else { 0.0 };
        parts.push(([rank, distance(better, result.summary.median)], format!("{label}{best}: {words}")));
    }
    // The sort is stable: equals stay in the experiment's order.
    parts.sort_by(|(a, _), (b, _)| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    let mut parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    // Of what and against which scheduler is said once.
    let same = format!(" {title} than {base_label}");
    for part in parts.iter_mut().skip_while(|part| !part.ends_with(same.as_str())).skip(1) {
        let kept = part.strip_suffix(same.as_str()).map_or(part.len(), str::len);
        part.truncate(kept);
    }
    parts.extend(said_once(&without_ratio));
    if document.advice.is_some() {
        // What the other settings do stands below, with what to type.
        parts.truncate(1);
    }
    with_fixed_units(&parts.join("; "))
}

/// What is said about each scheduler, in words that are the same for several: `cfs, rr: tied`.
fn said_once(of: &[(&str, String)]) -> Vec<String> {
    let mut said: Vec<(&str, String)> = Vec::new();
    for (words, label) in of {
        match said.iter_mut().find(|(other, _)| other == words) {
            Some((_, labels)) => *labels += &format!(", {label}"),
            None => said.push((words, label.clone())),
        }
    }
    said.into_iter().map(|(words, labels)| format!("{labels}: {words}")).collect()
}

/// A median as a distance: the less, the better. No median is the worst; where no direction is better all are equal.
fn distance(better: Better, median: Option<f64>) -> f64 {
    match (better, median) {
        (Better::Neither, _) => 0.0,
        (_, None) => f64::INFINITY,
        (Better::Lower, Some(median)) => median,
        (Better::Higher, Some(median)) => -median,
    }
}

/// A text whose lines do not end between a number and its unit: these have a no-break space between them.
fn with_fixed_units(text: &str) -> String {
    const UNITS: [&str; 6] = ["%", "ns", "us", "ms", "s", "J"];
    let mut words = text.split(' ');
    let mut before = words.next().unwrap_or_default();
    let mut out = before.to_owned();
    for word in words {
        let number = before.trim_start_matches('-').parse::<f64>().is_ok();
        let unit = UNITS.contains(&word.trim_end_matches([',', ';', ':', '.']));
        out.push(if number && unit { '\u{a0}' } else { ' ' });
        out.push_str(word);
        before = word;
    }
    out
}

/// `4 % more work done than cfs`.
fn effect(ratio: f64, title: &str, base: &str) -> String {
    if ratio >= 2.0 {
        return format!("{} times the {title} of {base}", decimal(ratio));
    }
    let change = three_digits(((ratio - 1.0) * 1000.0).round().abs() / 10.0);
    format!("{change} % {} {title} than {base}", if ratio < 1.0 { "less" } else { "more" })
}

/// The command that repeats a run, from its environment or, where that is missing, from its record.
pub fn command(run: &Run) -> String {
    let quoted = |word: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=:,./+@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    if let Some(environment) = &run.disk.environment {
        let mut words = environment.command.iter();
        let program = words.next().and_then(|program| program.rsplit('/').next()).unwrap_or("warmcore");
        return std::iter::once(quoted(program)).chain(words.map(|word| quoted(word))).collect::<Vec<_>>().join(" ");
    }
    let record = &run.disk.record;
    let schedulers: Vec<&str> = record.schedulers.iter().map(|scheduler| scheduler.label.as_str()).collect();
    format!(
        "warmcore compare --machine {} --workload {} --schedulers {} --trials {}",
        quoted(&record.machine.source),
        quoted(&record.workload.source),
        quoted(&schedulers.join(",")),
        record.seeds.len()
    )
}

/// A recording, which has nothing to compare: how long its threads waited, how busy the CPUs were, and which threads took the time.
fn recorded(text: &mut String, run: &Run) {
    let _ = writeln!(text, "# {}\n\n{}\n", markdown_text(&question(run)), markdown_text(&headline(run)));
    for condition in &run.disk.comparison.conditions {
        let _ = writeln!(text, "> Condition: {}.\n", markdown_text(condition));
    }
    for note in &run.notes {
        let _ = writeln!(text, "> Warning: {}\n", markdown_text(note));
    }
    if let Some(trial) = run.disk.trials.iter().flatten().next() {
        let mut tasks: Vec<_> = trial.tasks.iter().collect();
        tasks.sort_by_key(|task| std::cmp::Reverse(task.cpu_time_ns));
        let whole = tasks.iter().map(|task| task.cpu_time_ns).sum::<u64>().max(1) as f64;
        text.push_str("| thread | CPU time | share |\n|---|---:|---:|\n");
        for task in tasks.iter().take(MOST_THREADS) {
            let (ns, name) = (task.cpu_time_ns as f64, markdown_text(&task.name));
            let _ = writeln!(text, "| {name} | {} | {} % |", duration(ns), three_digits(100.0 * ns / whole));
        }
    }
    let _ = writeln!(text, "\nRepeat with:\n\n    {}\n", command(run));
}

fn one(text: &mut String, run: &Run) {
    let document = &run.disk.comparison;
    let _ = writeln!(text, "# {}\n\n{}\n", markdown_text(&question(run)), markdown_text(&document.verdict.sentence));
    for condition in &document.conditions {
        let _ = writeln!(text, "> Condition: {}.\n", markdown_text(condition));
    }
    for note in run.notes.iter().chain(&document.warnings) {
        let _ = writeln!(text, "> Warning: {}\n", markdown_text(note));
    }
    let title = measure(run, &document.primary).map_or("", |measure| measure.title.as_str());
    let _ = writeln!(text, "| scheduler | {} | ratio [95 %] | verdict |\n|---|---:|---:|---|", markdown_text(title));
    for scheduler in &document.schedulers {
        let Some(result) = scheduler.measures.get(&document.primary) else { continue };
        let (ratio, verdict) = judged(result);
        let label = markdown_text(&scheduler.label);
        let _ = writeln!(text, "| {label} | {} | {ratio} | {verdict} |", value(run, &document.primary, result));
    }
    if let Some(left_out) = left_out(document, &[(document.primary.as_str(), title)]) {
        let _ = writeln!(text, "\n{}.", markdown_text(&left_out));
    }
    let efforts = document.schedulers.iter().filter_map(|scheduler| Some((&scheduler.label, effort(scheduler)?)));
    for (position, (label, effort)) in efforts.enumerate() {
        let gap = if position == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{gap}- {}: {effort}", markdown_text(label));
    }
    let trials = trials_in_words(document.experiment.design, document.experiment.seeds.len());
    let _ = writeln!(text, "\n{trials}. Repeat with:\n\n    {}\n", command(run));
}

/// What a scheduler's choices of places took, if it counts them, by the medians over the trials.
pub fn effort(scheduler: &SchedulerResult) -> Option<String> {
    placement_measures::in_words(|name| scheduler.measures.get(name)?.summary.median)
}

/// The table of a patch letter: one line per run and scheduler.
pub(crate) fn patch_letter(runs: &[Run]) -> String {
    let mut rows = vec![["case", "load", "baseline", "patched", "improvement"].map(str::to_owned)];
    let mut notes = Vec::new();
    for run in runs {
        let document = &run.disk.comparison;
        let source = &document.experiment.workload.source;
        let (case, load) = source.split_once(':').map_or((source.as_str(), "-"), |(case, load)| (case, load));
        let Some(baseline) = document.schedulers.iter().find(|scheduler| scheduler.is_baseline) else { continue };
        let metric = measure(run, &document.primary);
        let better = metric.map_or(Better::Neither, |metric| metric.better);
        for scheduler in document.schedulers.iter().filter(|scheduler| !scheduler.is_baseline) {
            let pair = baseline.measures.get(&document.primary).zip(scheduler.measures.get(&document.primary));
            let Some((base, patched)) = pair else { continue };
            let Some(ratio) = patched.comparison.as_ref().and_then(|comparison| comparison.ratio) else { continue };
            let gain = match better {
                Better::Higher => ratio - 1.0,
                Better::Lower | Better::Neither => 1.0 - ratio,
            };
            let shown = patched.finding.map_or("", Finding::words);
            rows.push([
                case.to_owned(),
                load.to_owned(),
                format!("1.00 ({})", deviation(base)),
                format!("{ratio:.2} ({})", deviation(patched)),
                format!("{:+.1} % {}", gain * 100.0, if shown == "better" || shown == "worse" { "" } else { shown })
                    .trim()
                    .to_owned(),
            ]);
            notes.push(format!(
                "{case} {load}: baseline {}, patched {}; {}, {}; {} on {}",
                baseline.label,
                scheduler.label,
                metric.map_or("", |metric| &metric.title),
                direction(better),
                trials_in_words(document.experiment.design, document.experiment.seeds.len()),
                document.experiment.machine.source
            ));
        }
    }
    let mut text = aligned(&rows);
    text.push_str("\nin brackets: standard deviation in per cent of the mean\n");
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// Columns of equal width, two spaces apart.
fn aligned(rows: &[[String; 5]]) -> String {
    let widths: [usize; 5] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

/// Standard deviation in per cent of the mean.
fn deviation(result: &MeasureResult) -> String {
    let values: Vec<f64> = result.points.iter().copied().flatten().collect();
    let spread = Sample::new(&values).ok().and_then(|sample| sample.standard_deviation().zip(sample.mean()));
    match spread {
        Some((deviation, mean)) if mean > 0.0 && mean.is_finite() => format!("{:.2}", deviation / mean * 100.0),
        _ => "-".into(),
    }
}

/// A measure of a run by name.
pub fn measure<'a>(run: &'a Run, name: &str) -> Option<&'a Measure> {
    run.disk.comparison.measures.iter().find(|measure| measure.name == name)
}

/// The median of a result, in its unit; `-` where it has none, or is a percentile of few events.
pub fn value(run: &Run, name: &str, result: &MeasureResult) -> String {
    match (result.shown(), measure(run, name)) {
        (Some(median), Some(measure)) => with_unit(median, measure.unit),
        _ => "-".into(),
    }
}

/// Whether any scheduler has a value of a measure that a table shows.
pub(crate) fn has_values(document: &ComparisonDocument, name: &str) -> bool {
    let mut results = document.schedulers.iter().filter_map(|scheduler| scheduler.measures.get(name));
    results.any(|result| result.shown().is_some())
}

/// Which of a table's columns, by name and heading, lack values because they are percentiles of few events, and how few; nothing if none does.
pub(crate) fn left_out(document: &ComparisonDocument, columns: &[(&str, &str)]) -> Option<String> {
    let of = |(name, heading): &(&str, &str)| {
        let results = document.schedulers.iter().filter_map(|scheduler| scheduler.measures.get(*name));
        // Each role has the same ones.
        let few = results.filter(|result| result.summary.median.is_some() && !is_of_role(name));
        let few = few.filter_map(|result| result.few);
        few.min_by(|a, b| a.0.total_cmp(&b.0)).map(|few| ((*heading).to_owned(), few))
    };
    left_out_in_words(&columns.iter().filter_map(of).collect::<Vec<_>>())
}

/// Headings of what is left out, with the fewest events of a trial and how many it takes: those that take as many have one clause.
pub(crate) fn left_out_in_words(columns: &[(String, (f64, f64))]) -> Option<String> {
    let mut clauses: Vec<(f64, f64, Vec<&str>)> = Vec::new();
    for (heading, (fewest, needed)) in columns {
        match clauses.iter_mut().find(|(_, same, _)| same == needed) {
            Some((least, _, headings)) => {
                *least = least.min(*fewest);
                if !headings.contains(&heading.as_str()) {
                    headings.push(heading);
                }
            }
            None => clauses.push((*fewest, *needed, vec![heading.as_str()])),
        }
    }
    let in_words = |(fewest, needed, headings): &(f64, f64, Vec<&str>)| {
        let is = if headings.len() == 1 { "is" } else { "are" };
        format!(
            "{} {is} left out where a trial has fewer than {needed:.0} events ({fewest:.0} here)",
            headings.join(", ")
        )
    };
    (!clauses.is_empty()).then(|| clauses.iter().map(in_words).collect::<Vec<_>>().join("; "))
}

/// Whether a value is printed as 0: no ratio to it is shown.
pub(crate) fn is_printed_as_nothing(value: f64, unit: Unit) -> bool {
    value.is_finite() && !with_unit(value, unit).chars().any(|c| matches!(c, '1'..='9'))
}

/// Ratio with its interval, and the finding in words.
pub fn judged(result: &MeasureResult) -> (String, &'static str) {
    let Some(comparison) = &result.comparison else { return ("1".into(), "baseline") };
    let ratio = comparison.ratio.map_or_else(|| "-".into(), |ratio| ratio_with_interval(ratio, comparison.interval));
    (ratio, result.finding.map_or("", Finding::words))
}

/// The scheduler of that label.
pub fn scheduler<'a>(run: &'a Run, label: &str) -> Option<&'a SchedulerResult> {
    run.disk.comparison.schedulers.iter().find(|scheduler| scheduler.label == label)
}

/// Text that Markdown, and HTML in it, take as text.
fn markdown_text(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' => out.extend(['\\', c]),
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_headline_ends_between_a_number_and_its_unit() {
        let fixed = with_fixed_units("ule is best: wakeup latency 700 ns, not 19.9 ms; a s: 4 % more, 2 schedulers");
        assert_eq!(
            fixed,
            "ule is best: wakeup latency 700\u{a0}ns, not 19.9\u{a0}ms; a s: 4\u{a0}% more, 2 schedulers"
        );
    }

    #[test]
    fn what_is_left_out_is_said_once_for_all_that_take_as_many_events() {
        assert_eq!(left_out_in_words(&[]), None);
        let column = |heading: &str, fewest: f64, needed: f64| (heading.to_owned(), (fewest, needed));
        let columns = [column("wake p50", 1.0, 2.0), column("wake p99", 17.0, 100.0), column("p99", 13.0, 100.0)];
        let said = "wake p50 is left out where a trial has fewer than 2 events (1 here); wake p99, p99 are left out where a trial has fewer than \
                    100 events (13 here)";
        assert_eq!(left_out_in_words(&columns).as_deref(), Some(said));
    }

    #[test]
    fn schedulers_of_which_the_same_is_said_are_one_part_of_a_headline() {
        let of = [("tied", "cfs"), ("too few", "ule"), ("tied", "fifo"), ("too few", "rr"), ("unclear", "scx")];
        let said = said_once(&of.map(|(words, label)| (words, label.to_owned())));
        assert_eq!(said, ["cfs, fifo: tied", "ule, rr: too few", "scx: unclear"]);
        assert!(said_once(&[]).is_empty());
    }

    #[test]
    fn a_median_is_the_better_the_less_far_it_is() {
        assert!(distance(Better::Higher, Some(3.0)) < distance(Better::Higher, Some(2.0)));
        assert!(distance(Better::Lower, Some(2.0)) < distance(Better::Lower, Some(3.0)));
        assert!(distance(Better::Lower, Some(2.0)) < distance(Better::Lower, None));
        assert_eq!(distance(Better::Neither, Some(2.0)), distance(Better::Neither, None));
    }

    #[test]
    fn what_a_reader_sees_as_0_is_nothing() {
        let of = |values: [f64; 4], unit| values.map(|value| is_printed_as_nothing(value, unit));
        assert_eq!(of([0.0, 4e-4, 6e-4, 3.0], Unit::One), [true, true, false, false]);
        assert_eq!(of([0.0, 4e-4, 700.0, f64::INFINITY], Unit::Ns), [true, true, false, false]);
    }
}
