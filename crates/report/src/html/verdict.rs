//! The head of a run's page: the answer, what was compared, why, and what limits it.

use std::fmt::Write as _;

use warmcore_lab::advice::Advice;
use warmcore_lab::time_split::Gap;
use warmcore_lab::verdict::{Finding, MeasureResult, decimal, trials_in_words};
use warmcore_topology::Basis;

use super::sections::{definition, number};
use crate::figures::compare::direction;
use crate::figures::scheduler_name;
use crate::run::Run;
use crate::svg::escape;
use crate::text::{BESIDE, PLACEMENTS, has_values, headline, judged, left_out, measure, value};

/// Letters beyond which a scheduler's name has several lines where the table is wider than the screen.
const LONG: usize = 24;

/// The section.
pub fn verdict(out: &mut String, index: usize, runs: usize, run: &Run) {
    let document = &run.disk.comparison;
    let record = &document.experiment;
    let which = if runs > 1 { format!("Run {} · ", index + 1) } else { String::new() };
    let _ = writeln!(
        out,
        "<section id=\"verdict-{index}\" class=\"verdict\">\n<h1>{}</h1>\n<p class=\"eyebrow\">{which}{} · {} · {} · {}</p>\n\
         <div class=\"because\"><div>",
        escape(&headline(run)),
        escape(&record.workload.source),
        escape(&record.machine.source),
        match (record.seeds.len(), document.schedulers.len()) {
            // One trial of one scheduler is a run: there is nothing that it is paired with.
            (1, 1) => "one run".to_owned(),
            (trials, _) => trials_in_words(record.design, trials),
        },
        escape(&where_it_ran(run)),
    );
    match &document.advice {
        Some(advice) => advised(out, run, advice),
        None if run.is_recording() => {}
        None => _ = writeln!(out, "<p class=\"answer\">{}</p>", escape(&with_names(run, &document.verdict.sentence))),
    }
    verdict_table(out, (index, runs), run);
    out.push_str("</div><div>\n");
    limits(out, run);
    let said = |condition: &&String| document.advice.as_ref().is_some_and(|advice| advice.says(condition));
    let conditions: Vec<String> = document
        .conditions
        .iter()
        .filter(|condition| !said(condition))
        .map(|condition| escape(&with_names(run, condition)))
        .collect();
    conditions_in(out, &conditions);
    out.push_str("</div></div>\n");
    if document.schedulers.len() == 1 {
        super::threads::tables(out, run);
    }
    out.push_str("</section>\n");
}

/// Conditions that stand open beside the answer; the others are folded, so that what was seen comes next.
const OPEN_CONDITIONS: usize = 2;

/// The conditions of an answer, escaped.
fn conditions_in(out: &mut String, conditions: &[String]) {
    let paragraphs = |out: &mut String, conditions: &[String]| {
        for condition in conditions {
            let _ = writeln!(out, "<p class=\"condition\">Condition: {condition}.</p>");
        }
    };
    let (open, folded) = conditions.split_at(conditions.len().min(OPEN_CONDITIONS));
    paragraphs(out, open);
    if !folded.is_empty() {
        let s = if folded.len() == 1 { "" } else { "s" };
        let _ = writeln!(out, "<details class=\"printed\"><summary>{} more condition{s}</summary>", folded.len());
        paragraphs(out, folded);
        out.push_str("</details>\n");
    }
}

/// Which settings help and what is typed for them.
fn advised(out: &mut String, run: &Run, advice: &Advice) {
    let document = &run.disk.comparison;
    let base = document.schedulers.iter().find(|scheduler| scheduler.is_baseline).map_or("", |base| &*base.label);
    let title = measure(run, &document.primary).map_or(&*document.primary, |measure| &*measure.title);
    let lines: Vec<String> = advice.lines(title, base).iter().map(|line| escape(line)).collect();
    let _ = writeln!(out, "<pre class=\"advice\">{}</pre>", lines.join("\n"));
}

/// A text with schedulers' names as a reader knows them.
pub(super) fn with_names(run: &Run, text: &str) -> String {
    let labels = run.disk.comparison.schedulers.iter().map(|scheduler| &*scheduler.label);
    labels.fold(text.to_owned(), |text, label| text.replace(label, &scheduler_name(label)))
}

/// The place of a run: `simulated`, or what it was with all that results depend on.
fn where_it_ran(run: &Run) -> String {
    let (kind, identity) = (run.disk.experiment.place.kind(), &run.disk.record.place);
    if kind.simulated { "simulated".to_owned() } else { format!("real kernel, {identity}") }
}

/// What explains the largest difference to the baseline that is shown; of a single scheduler also why nothing is explained.
pub(super) fn why(run: &Run) -> Option<&str> {
    let gaps: &[Gap] = &run.disk.comparison.time_split.as_ref()?.gaps;
    let explained = gaps.iter().filter(|gap| gap.explains());
    let most = explained.max_by(|a, b| a.difference.abs().total_cmp(&b.difference.abs()));
    let only = if let [only] = gaps { Some(only) } else { None };
    most.or(only).map(|gap| gap.sentence.as_str())
}

/// What to know before this is trusted: the main thing beside the answer, the others folded.
fn limits(out: &mut String, run: &Run) {
    let place = run.disk.experiment.place.kind();
    // Of a recording there is one trial, and no more are wanted.
    let few = |warning: &&String| run.is_recording() && warning.contains("gives no intervals");
    let warnings = run.disk.comparison.warnings.iter().filter(|warning| !few(warning));
    let mut limits: Vec<String> = run.notes.iter().chain(warnings).cloned().collect();
    let warned = !limits.is_empty();
    if !place.unmeasured.is_empty() {
        limits.push(format!("Not measured here: {}", place.unmeasured));
    }
    if place.simulated {
        if run.disk.record.options.memory.name() == "none" {
            limits
                .push("Memory has a constant speed here: a scheduler that keeps data close is undervalued.".to_owned());
        }
        let origins = run.disk.experiment.machine.value.origins();
        let weak =
            origins.iter().filter(|(_, origin)| matches!(origin.basis, Basis::Assumed | Basis::Recalled)).count();
        if weak > 0 {
            limits
                .push(format!("{weak} of the machine's {} costs and sizes are assumed, not measured.", origins.len()));
        }
    }
    let Some((main, others)) = limits.split_first() else { return };
    let title = if warned { "Before you trust this" } else { "Main limitation" };
    let class = if warned { "limits warnings" } else { "limits" };
    let _ = write!(out, "<div class=\"{class}\" role=\"note\"><b>{title}</b><p>{}</p>", escape(main));
    if !others.is_empty() {
        let items: String = others.iter().map(|limit| format!("<li>{}</li>", escape(limit))).collect();
        let _ = write!(
            out,
            "<details class=\"printed\"><summary>{} more</summary><ul>{items}</ul></details>",
            others.len()
        );
    }
    out.push_str("</div>\n");
}

fn verdict_table(out: &mut String, (index, runs): (usize, usize), run: &Run) {
    let document = &run.disk.comparison;
    let which = if runs > 1 { format!(" of run {}", index + 1) } else { String::new() };
    let compared = document.schedulers.len() > 1;
    let primary = measure(run, &document.primary);
    // Who else kept the CPUs busy is not in a recording of some threads.
    let busy = if run.is_recording() { "share of CPU time" } else { "CPUs busy" };
    let mut beside: Vec<(&str, &str)> = document
        .secondary
        .as_deref()
        .and_then(|name| Some((name, measure(run, name)?.title.as_str())))
        .into_iter()
        .chain(BESIDE)
        .chain(PLACEMENTS)
        .chain((!compared).then_some(("busy_share", busy)))
        .filter(|(name, _)| *name != document.primary && measure(run, name).is_some())
        .collect();
    let of_primary = primary.map(|measure| (measure.name.as_str(), measure.title.as_str()));
    let left_out = left_out(document, &of_primary.into_iter().chain(beside.iter().copied()).collect::<Vec<_>>());
    beside.retain(|(name, _)| has_values(document, name));
    let judgement = if compared { "<th class=\"n\">ratio [95&nbsp;%]</th><th>verdict</th>" } else { "" };
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Verdict table{which}\"><table class=\"sortable\" id=\"verdict-table-{index}\">\
         <thead><tr><th>scheduler</th><th class=\"n\" title=\"{}\">{}</th>{judgement}{}",
        primary.map_or_else(String::new, |m| escape(&format!("{}; {}", m.definition, direction(m.better)))),
        primary.map_or_else(String::new, |m| escape(&m.title)),
        document.headroom.as_ref().map_or(
            "",
            |_| "<th class=\"n\" title=\"in parts of the best static placement that is known\">of oracle</th>"
        ),
    );
    for (name, heading) in &beside {
        let _ = write!(out, "<th class=\"n\" title=\"{}\">{}</th>", definition(run, name), escape(heading));
    }
    out.push_str("</tr></thead><tbody>");
    for (position, scheduler) in document.schedulers.iter().enumerate() {
        let Some(result) = scheduler.measures.get(&document.primary) else { continue };
        let (ratio, words) = judged(result);
        let tone = match result.finding {
            Some(Finding::Better) => "good",
            Some(Finding::Worse) => "bad",
            _ => "plain",
        };
        let name = scheduler_name(&scheduler.label);
        let best = if document.verdict.best.as_deref() == Some(&scheduler.label) { " best" } else { "" };
        let _ = write!(
            out,
            "<tr class=\"{tone}{best}\"><th scope=\"row\"{}><i class=\"key c{}\"></i>{}</th><td class=\"n strong\" data-value=\"{}\">{}</td>",
            if name.chars().count() > LONG { " class=\"long\"" } else { "" },
            crate::colour::series(position),
            escape(&name),
            number(result.shown()),
            value(run, &document.primary, result),
        );
        if compared {
            // On a small screen the interval has a line of its own.
            let (ratio, interval) = ratio.split_once(' ').unwrap_or((&ratio, ""));
            let _ = write!(
                out,
                "<td class=\"n\" data-value=\"{}\">{} <span class=\"interval\">{}</span></td><td><span class=\"finding\">{words}</span></td>",
                number(result.comparison.as_ref().map_or(Some(1.0), |comparison| comparison.ratio)),
                escape(ratio),
                escape(interval),
            );
        }
        if let Some(headroom) = &document.headroom {
            let part = headroom.scheduler(&scheduler.label).and_then(|scheduler| scheduler.of_oracle);
            let shown = part.map_or_else(|| "-".into(), decimal);
            let _ = write!(out, "<td class=\"n\" data-value=\"{}\">{shown}</td>", number(part));
        }
        for (name, _) in &beside {
            let result = scheduler.measures.get(*name);
            let _ = write!(
                out,
                "<td class=\"n\" data-value=\"{}\">{}</td>",
                number(result.and_then(MeasureResult::shown)),
                result.map_or_else(|| "-".into(), |result| escape(&value(run, name, result)))
            );
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    if let Some(left_out) = left_out {
        let _ = writeln!(out, "<p class=\"note\">{}.</p>", escape(&left_out));
    }
    if let Some(headroom) = &document.headroom {
        let _ = writeln!(out, "<p class=\"headroom\">{}</p>", escape(&headroom.sentence));
    }
    if let Some(sensitivity) = &document.sensitivity {
        let _ = writeln!(out, "<p class=\"sensitivity\">{}</p>", escape(&sensitivity.sentence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_conditions_stand_open_and_the_others_are_folded() {
        let of = |number: usize| {
            let mut out = String::new();
            let conditions: Vec<String> = (0..number).map(|at| format!("c{at}")).collect();
            conditions_in(&mut out, &conditions);
            let open = out.split("<details").next().unwrap_or_default().matches("Condition: ").count();
            let more = out.split("<summary>").nth(1).and_then(|rest| rest.split('<').next()).map(str::to_owned);
            (open, out.matches("Condition: ").count(), more)
        };
        assert_eq!([0, 2].map(of), [(0, 0, None), (2, 2, None)]);
        assert_eq!(of(3), (2, 3, Some("1 more condition".into())));
        assert_eq!(of(6), (2, 6, Some("4 more conditions".into())));
    }
}
