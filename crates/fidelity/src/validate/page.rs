//! The book as a page: `docs/fidelity.md`.

use std::fmt::Write as _;

use super::judge::Verdict;
use super::run::{Chapter, Line};

/// How the page is made, at its head.
const HEAD: &str = "\
# Fidelity: the simulator against a real kernel

Made by `warmcore validate --between sim,vm --stored --page docs/fidelity.md book/*.toml`; do not edit. The experiments, their bounds and what is
known about their disagreements are the files in `book/`; what the real kernel gave is in `book/results/`. `warmcore validate --between sim,vm
--virtual-time=1 --store book/*.toml` runs the kernel again. What a virtual machine can and cannot show: [vm](models/vm.md).

**inside**: the error of the simulator's median over seeds against the median over boots is within the bound. **outside**: it is not.
**not measured**: too few events, lost events, or boots that differ by more than the bound. A **control** is a deliberately wrong model: the
experiment must reject it, or its bounds say nothing.
";

/// Figures of the page that have a target.
const TARGETS: [(&str, &[&str], f64); 3] = [
    ("CPU shares", &["cpu_share"], 0.01),
    ("slices and switch counts", &["slice_mean_ns", "slices_per_s"], 0.10),
    ("time to balance and threads per LLC", &["balanced_ms", "llc_counts"], 0.20),
];

/// The page.
#[must_use]
pub fn page(chapters: &[Chapter]) -> String {
    let mut text = String::from(HEAD);
    summary(&mut text, chapters);
    let mut groups: Vec<&str> = Vec::new();
    for chapter in chapters {
        if !groups.contains(&chapter.group.as_str()) {
            groups.push(&chapter.group);
        }
    }
    for group in groups {
        let _ = write!(text, "\n## {group}\n");
        for chapter in chapters.iter().filter(|chapter| chapter.group == group) {
            describe(&mut text, chapter);
        }
    }
    text
}

fn lines(chapters: &[Chapter]) -> impl Iterator<Item = &Line> {
    chapters.iter().flat_map(|chapter| &chapter.lines)
}

/// Numbers of each verdict: inside, outside, not measured.
#[must_use]
pub fn counts(chapters: &[Chapter]) -> [usize; 3] {
    [Verdict::Inside, Verdict::Outside, Verdict::NotMeasured]
        .map(|wanted| lines(chapters).filter(|line| line.judgement.verdict == wanted).count())
}

fn summary(text: &mut String, chapters: &[Chapter]) {
    let [inside, outside, unknown] = counts(chapters);
    let _ = write!(
        text,
        "\n## Summary\n\n{} experiments, {} comparisons: {inside} inside, {outside} outside, {unknown} not measured.\n\n\
         | what | target | median error | comparisons |\n|---|---|---|---|\n",
        chapters.len(),
        inside + outside + unknown
    );
    let base = |metric: &str| metric.split(" (").next().unwrap_or_default().to_owned();
    for (what, metrics, target) in TARGETS {
        let known = lines(chapters).filter(|line| {
            metrics.contains(&base(&line.metric).as_str()) && line.judgement.verdict != Verdict::NotMeasured
        });
        let mut errors: Vec<f64> = known.filter_map(|line| line.judgement.error).collect();
        errors.sort_by(f64::total_cmp);
        let median = errors.get(errors.len() / 2).map_or_else(|| "-".into(), |error| percent(*error));
        let _ = writeln!(text, "| {what} | {} | {median} | {} |", percent(target), errors.len());
    }
    let decisions: Vec<bool> = lines(chapters)
        .filter(|line| base(&line.metric) == "gathered" && line.judgement.verdict != Verdict::NotMeasured)
        .map(|line| line.judgement.verdict == Verdict::Inside)
        .collect();
    let equal = decisions.iter().filter(|equal| **equal).count();
    if !decisions.is_empty() {
        let share = percent(equal as f64 / decisions.len() as f64);
        let _ =
            writeln!(text, "| placement decisions equal (gathered or not) | ≥ 95 % | {share} | {} |", decisions.len());
    }
    let controls: Vec<_> = chapters.iter().flat_map(|chapter| &chapter.controls).collect();
    let rejected = controls.iter().filter(|control| control.rejected).count();
    let _ = writeln!(text, "\nControls: {rejected} of {} wrong models rejected.", controls.len());
    let sources: std::collections::BTreeSet<&str> =
        chapters.iter().map(|chapter| chapter.source.as_str()).filter(|source| !source.is_empty()).collect();
    for source in sources {
        let _ = writeln!(text, "\nThe real kernel: {source}.");
    }
    let mut missed =
        lines_with_chapter(chapters).filter(|(_, line)| line.judgement.verdict == Verdict::Outside).peekable();
    if missed.peek().is_some() {
        let _ = write!(text, "\n### What is outside\n\n");
        for (chapter, line) in missed {
            let error = line.judgement.error.map_or_else(|| "-".into(), |error| shown_error(error, &line.bound));
            let _ = writeln!(
                text,
                "- {}: {} under {}: error {error}, bound {}",
                chapter.name, line.metric, line.scheduler, line.bound
            );
        }
    }
}

fn lines_with_chapter(chapters: &[Chapter]) -> impl Iterator<Item = (&Chapter, &Line)> {
    chapters.iter().flat_map(|chapter| chapter.lines.iter().map(move |line| (chapter, line)))
}

fn describe(text: &mut String, chapter: &Chapter) {
    let (cpus, llcs, nodes) = chapter.size;
    let items: Vec<String> = chapter.checklist.iter().map(ToString::to_string).collect();
    let items = if items.is_empty() { String::new() } else { format!("; checklist {}", items.join(", ")) };
    let _ = write!(
        text,
        "\n### {}\n\n{}. {cpus} CPUs, {llcs} LLCs, {nodes} nodes; {} boots{items}.\n\n\
         | scheduler | metric | of | simulated | real | error | bound | verdict |\n|---|---|---|---|---|---|---|---|\n",
        chapter.name, chapter.title, chapter.boots
    );
    for line in &chapter.lines {
        let judgement = &line.judgement;
        let verdict = match judgement.reason.as_str() {
            "" => judgement.verdict.name().to_owned(),
            reason => format!("{}: {reason}", judgement.verdict.name()),
        };
        // The values that decide: all of a few, else the worst.
        let mut pairs: Vec<_> = judgement.pairs.iter().collect();
        if pairs.len() > 4 {
            pairs.sort_by(|a, b| b.error.unwrap_or(0.0).total_cmp(&a.error.unwrap_or(0.0)));
            pairs.truncate(2);
        }
        for pair in pairs {
            let error = pair.error.map_or_else(|| "-".into(), |error| shown_error(error, &line.bound));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {error} | {} | {verdict} |",
                line.scheduler,
                line.metric,
                pair.label,
                number(pair.sim),
                number(pair.vm),
                line.bound
            );
        }
        if judgement.pairs.is_empty() {
            let _ =
                writeln!(text, "| {} | {} | - | - | - | - | {} | {verdict} |", line.scheduler, line.metric, line.bound);
        }
    }
    for control in &chapter.controls {
        let result = match (control.rejected, control.measured) {
            (true, _) => format!("rejected by {}", control.by.join(", ")),
            (false, true) => "**not rejected**".into(),
            (false, false) => "not measured".into(),
        };
        let _ = writeln!(text, "\nControl “{}”: {result}.", control.name);
    }
    if !chapter.note.is_empty() {
        let _ = writeln!(text, "\n{}", chapter.note.trim());
    }
}

fn percent(value: f64) -> String {
    if value.is_finite() { format!("{:.1} %", value * 100.0) } else { "no value".into() }
}

fn shown_error(error: f64, bound: &str) -> String {
    if bound.ends_with('%') { percent(error) } else { number(Some(error)) }
}

/// Four digits.
fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if !value.is_finite() => "no value".into(),
        Some(0.0) => "0".into(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) => {
            let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
            let text = format!("{value:.digits$}");
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
        }
    }
}
