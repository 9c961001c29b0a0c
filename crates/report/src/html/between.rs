//! Several runs on one page: each against the first.

use std::fmt::Write as _;

use warmcore_lab::experiment::SubjectRecord;
use warmcore_lab::verdict::ratio_with_interval;
use warmcore_statistics::{Better, Design, compare_trials};

use super::sections::{definition, number};
use crate::run::Run;
use crate::svg::escape;
use crate::text::{BESIDE, is_printed_as_nothing, left_out, measure, scheduler, value};
use crate::units::duration;

/// Schedulers that several runs have in common, side by side.
pub fn runs(out: &mut String, runs: &[Run]) {
    let first = &runs[0];
    out.push_str(
        "<section id=\"between\">\n<h2>Between the runs</h2>\n<p class=\"note\">Each run against the first one, scheduler by scheduler, \
         where both have it. Simulated trials are paired where the seeds are the same.</p>\n",
    );
    for (number, other) in (2..).zip(&runs[1..]) {
        let found = differences(first, other);
        if !found.is_empty() {
            let list = escape(&found.join("; "));
            let _ = writeln!(out, "<p class=\"warnings\">Run {number} is another experiment than run 1: {list}.</p>");
        }
    }
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" \
         aria-label=\"Between the runs\"><table class=\"sortable\"><thead><tr><th>scheduler</th><th>measure</th><th class=\"n\">run 1</th>",
    );
    for number in 2..=runs.len() {
        let _ = write!(out, "<th class=\"n\">run {number}</th><th class=\"n\">ratio [95&nbsp;%]</th>");
    }
    out.push_str("</tr></thead><tbody>");
    let names: Vec<&str> =
        std::iter::once(first.disk.comparison.primary.as_str()).chain(BESIDE.iter().map(|(name, _)| *name)).collect();
    for base in &first.disk.comparison.schedulers {
        for name in names.iter().filter(|name| base.measures.contains_key(**name)) {
            let result = &base.measures[*name];
            let title = measure(first, name).map_or("", |measure| measure.title.as_str());
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th><td title=\"{}\">{}</td><td class=\"n\" data-value=\"{}\">{}</td>",
                escape(&base.label),
                definition(first, name),
                escape(title),
                number(result.shown()),
                escape(&value(first, name, result))
            );
            for other in &runs[1..] {
                out.push_str(&against(first, other, &base.label, name));
            }
            out.push_str("</tr>");
        }
    }
    out.push_str("</tbody></table></div>\n");
    for (number, run) in (1..).zip(runs) {
        let columns: Vec<(&str, &str)> =
            names.iter().filter_map(|name| Some((*name, measure(first, name)?.title.as_str()))).collect();
        if let Some(left_out) = left_out(&run.disk.comparison, &columns) {
            let _ = writeln!(out, "<p class=\"note\">Run {number}: {}.</p>", escape(&left_out));
        }
    }
    out.push_str("</section>\n");
}

/// A run's value and its ratio to the first run's.
fn against(first: &Run, other: &Run, label: &str, name: &str) -> String {
    // A recording's scheduler has no name of its own: another run's first one stands next to it.
    let is_unnamed = first.is_recording() || other.is_recording();
    let of_other = scheduler(other, label).or_else(|| other.disk.comparison.schedulers.first().filter(|_| is_unnamed));
    let pair =
        scheduler(first, label).and_then(|s| s.measures.get(name)).zip(of_other.and_then(|s| s.measures.get(name)));
    let Some((base, result)) = pair else { return "<td class=\"n\">–</td><td class=\"n\">–</td>".into() };
    let of = measure(first, name);
    let better = of.map_or(Better::Neither, |measure| measure.better);
    // Two runs have seeds in common or nothing: blocks of one are not those of the other.
    let paired = |run: &Run| run.disk.record.design == Design::Paired;
    let seeds = |run: &Run| run.disk.record.seeds.clone();
    let design = match paired(first) && paired(other) && seeds(first) == seeds(other) {
        true => Design::Paired,
        false => Design::Unpaired,
    };
    let comparison = compare_trials(design, &base.points, &result.points, better);
    let comparison = comparison.ok();
    // Over nearly nothing, with an end that did not come, or of few events, there is no ratio.
    let least = of.map_or(f64::MIN_POSITIVE, |measure| measure.least);
    let printed = |median: f64| of.is_none_or(|measure| !is_printed_as_nothing(median, measure.unit));
    let real = base.shown().is_some_and(|median| median >= least && median.is_finite() && printed(median));
    let real = real && result.shown().is_some();
    let comparison = comparison.filter(|comparison| real && comparison.ratio.is_some_and(f64::is_finite));
    let ratio = comparison.as_ref().and_then(|comparison| comparison.ratio);
    let interval = comparison.as_ref().and_then(|comparison| comparison.interval);
    let interval = interval.filter(|interval| interval.low.is_finite() && interval.high.is_finite());
    format!(
        "<td class=\"n\" data-value=\"{}\">{}</td><td class=\"n\" data-value=\"{}\">{}</td>",
        number(result.shown()),
        escape(&value(other, name, result)),
        number(ratio),
        ratio.map_or_else(|| "–".into(), |ratio| ratio_with_interval(ratio, interval))
    )
}

/// What makes two runs different experiments, besides their schedulers and seeds.
fn differences(first: &Run, other: &Run) -> Vec<String> {
    let (a, b) = (&first.disk.record, &other.disk.record);
    let time = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |ns| duration(ns as f64));
    let warm_up = |time: Option<u64>| time.map_or_else(|| "none".to_owned(), |ns| duration(ns as f64));
    let subject = |what: &str, a: &SubjectRecord, b: &SubjectRecord| {
        (a.sha256 != b.sha256).then(|| {
            let same = if a.source == b.source { " with other contents" } else { "" };
            format!("{what} {} instead of {}{same}", b.source, a.source)
        })
    };
    let other_value = |what: &str, a: &str, b: &str| (a != b).then(|| format!("{what} {b} instead of {a}"));
    [
        subject("machine", &a.machine, &b.machine),
        subject("workload", &a.workload, &b.workload),
        other_value("memory model", a.options.memory.name(), b.options.memory.name()),
        other_value("place", &a.place, &b.place),
        other_value("longest time", &time(a.options.max_time_ns), &time(b.options.max_time_ns)),
        other_value("warm-up", &warm_up(a.options.warm_up_ns), &warm_up(b.options.warm_up_ns)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
