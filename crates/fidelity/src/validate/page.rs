//! The book as pages: `docs/fidelity.md` with what is seen as a whole and what is outside, and a chapter for each experiment.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::judge::{Agreement, Of, Pair};
use super::run::{Chapter, Line};

/// How the pages are made, at the head of the summary.
const HEAD: &str = "\
# Fidelity: the simulator against a real kernel

Made by `warmcore validate --stored --page docs/fidelity.md book/*.toml`; do not edit. The files in `book/` have the experiments, their
bounds and the causes of what is outside. `book/results/` has what the real kernel gave, and what was simulated under sched_ext
programs, which need not be there. `book/pages/` has a chapter for each experiment. `warmcore validate --guest virtual-time=1 --store book/*.toml` runs the kernel again. What a virtual machine can and
cannot show: [vm](models/vm.md).

**inside**: the error of the simulator's median over seeds against the median over boots is within the bound. **outside**: it is not. Where half
the range of a place's runs is beyond the bound, chance decides there: the two *distributions* are compared, by the mean distance of their quantiles
and a permutation test (`crates/fidelity/src/validate/judge.rs`), and the ranges are shown. **not measured**: too few events, lost events, a run that
was not carried out as asked, or distributions that spread too much for so few runs. Seeds and boots start with programs' main threads on the same CPUs, drawn at random. A **control** is a deliberately wrong
model: the experiment must reject it. A check **without power** rejects neither a control nor one of eight models that are wrong for every experiment: its
agreement says nothing about the simulator. Four of these models are round robin, first come first served, cache-aware scheduling switched, and everything on one CPU.
The others place every wakeup on a random CPU, let tasks run longer at a time, let tasks wander between the halves of the machine, or keep templates in
different halves.
";

/// Head of a chapter, after its title.
const CHAPTER: &str = "Made by `warmcore validate --page`; do not edit. `docs/fidelity.md` says what the words mean.";

/// Directory of the chapters, beside the experiments' files.
pub const CHAPTERS: &str = "pages";

/// Figures of the page that have a target.
const TARGETS: [(&str, &[&str], f64); 3] = [
    ("CPU shares", &["cpu_share"], 0.01),
    ("slices and switch counts", &["slice_mean_ns", "slices_per_s"], 0.10),
    ("time to balance and threads per LLC", &["balanced_ms", "llc_counts"], 0.20),
];

/// The same of experiments under sched_ext programs.
const PROGRAM_TARGETS: [(&str, &[&str], f64); 3] = [
    ("CPU shares under sched_ext programs", &["cpu_share"], 0.02),
    ("slices and operations under sched_ext programs", &["slice_mean_ns", "slices_per_s", "operations_per_s"], 0.10),
    (
        "wakeups that are placed otherwise under sched_ext programs",
        &["wakeup_moved_share", "wakeup_cross_llc_share"],
        0.10,
    ),
];

/// The summary: numbers of all experiments, a table of them, and what is outside with its causes. `book` is the directory of an experiment's
/// file, which has [`CHAPTERS`] and `results` in it. Pages of the manual link to no file outside of it, so files are named.
pub fn summary(chapters: &[Chapter], book: &dyn Fn(&Chapter) -> String) -> String {
    let mut text = String::from(HEAD);
    targets(&mut text, chapters);
    power(&mut text, chapters);
    contents(&mut text, chapters);
    let missed: Vec<&Chapter> = chapters.iter().filter(|chapter| is_missed(chapter)).collect();
    if !missed.is_empty() {
        text.push_str("\n## What is outside, and why\n");
    }
    for chapter in missed {
        cause(&mut text, chapter, &book(chapter));
    }
    text
}

/// The chapter of one experiment.
pub fn chapter(chapter: &Chapter) -> String {
    let mut text = format!("# {}\n\n{CHAPTER}\n\n", chapter.name);
    describe(&mut text, chapter);
    text
}

fn lines(chapters: &[Chapter]) -> impl Iterator<Item = &Line> {
    chapters.iter().flat_map(|chapter| &chapter.lines)
}

/// Numbers of each verdict: inside, outside, not measured.
pub fn counts(chapters: &[Chapter]) -> [usize; 3] {
    [Agreement::Inside, Agreement::Outside, Agreement::NotMeasured]
        .map(|wanted| lines(chapters).filter(|line| line.judgement.verdict == wanted).count())
}

/// Whether it has a section of its own about what is outside.
fn is_missed(chapter: &Chapter) -> bool {
    outside(chapter).next().is_some() || accepted(chapter).next().is_some()
}

fn outside(chapter: &Chapter) -> impl Iterator<Item = &Line> {
    chapter.lines.iter().filter(|line| line.judgement.verdict == Agreement::Outside)
}

/// Wrong models that the experiment could have rejected and did not.
pub fn accepted(chapter: &Chapter) -> impl Iterator<Item = &str> {
    let accepted = chapter.controls.iter().filter(|control| control.measured && !control.rejected);
    accepted.map(|control| control.name.as_str())
}

/// Chapters by group, groups in the order in which they come first.
fn grouped(chapters: &[Chapter]) -> Vec<(&str, Vec<&Chapter>)> {
    let mut groups: Vec<(&str, Vec<&Chapter>)> = Vec::new();
    for chapter in chapters {
        match groups.iter_mut().find(|(group, _)| *group == chapter.group) {
            Some((_, members)) => members.push(chapter),
            None => groups.push((&chapter.group, vec![chapter])),
        }
    }
    groups
}

/// How many checks can fail, and which cannot as far as is known.
fn power(text: &mut String, chapters: &[Chapter]) {
    let judged = |line: &&Line| line.judgement.verdict != Agreement::NotMeasured;
    let all = lines(chapters).filter(judged).count();
    let mut powerless: Vec<String> = Vec::new();
    for chapter in chapters {
        for line in chapter.lines.iter().filter(judged).filter(|line| line.rejects.is_empty()) {
            powerless.push(format!("{} in {}", line.metric, chapter.name));
        }
    }
    let _ = writeln!(text, "\nPower: {} of {all} judged checks reject a wrong model.", all - powerless.len());
    if !powerless.is_empty() {
        powerless.dedup();
        let _ = writeln!(text, "Without power: {}.", powerless.join(", "));
    }
}

fn contents(text: &mut String, chapters: &[Chapter]) {
    for (group, chapters) in grouped(chapters) {
        let _ = write!(
            text,
            "\n### {group}\n\n| experiment | what runs | inside | outside | not measured | wrong models rejected |\n\
             |---|---|--:|--:|--:|--:|\n"
        );
        for chapter in chapters {
            let [inside, outside, unknown] = counts(std::slice::from_ref(chapter));
            let rejected = chapter.controls.iter().filter(|control| control.rejected).count();
            let name = &chapter.name;
            let name = if is_missed(chapter) { format!("[{name}](#{name})") } else { name.clone() };
            let _ = writeln!(
                text,
                "| {name} | {} | {inside} | {outside} | {unknown} | {rejected} of {} |",
                chapter.title,
                chapter.controls.len()
            );
        }
    }
}

/// What is outside in one experiment, in the form that all have.
fn cause(text: &mut String, chapter: &Chapter, book: &str) {
    let name = &chapter.name;
    let _ = write!(text, "\n### {name}\n\n**What is seen.** {}:\n\n", chapter.title);
    for line in outside(chapter) {
        let error = line.judgement.error.map_or_else(|| "-".into(), |error| shown_error(error, &line.bound));
        let values = line.judgement.worst().map_or_else(String::new, |pair| {
            format!(" ({}: simulated {}, real {})", pair.label, number(pair.sim), number(pair.vm))
        });
        let _ =
            writeln!(text, "- {} under {}: error {error}, bound {}{values}", line.metric, line.scheduler, line.bound);
    }
    for control in accepted(chapter) {
        let _ = writeln!(text, "- the wrong model “{control}” is not rejected");
    }
    let unknown = "Not known.";
    let (why, settle) =
        chapter.outside.as_ref().map_or((unknown, unknown), |cause| (cause.why.trim(), cause.settle.trim()));
    let _ = write!(
        text,
        "\n**Why, as far as known.** {why}\n\n**What would settle it.** {settle}\n\n\
         **Data.** `{book}/{CHAPTERS}/{name}.md`, `{book}/{name}.toml`, `{book}/results/{name}.json`.\n"
    );
}

fn targets(text: &mut String, chapters: &[Chapter]) {
    let [inside, outside, unknown] = counts(chapters);
    let _ = write!(
        text,
        "\n## Summary\n\n{} experiments, {} comparisons: {inside} inside, {outside} outside, {unknown} not measured.\n\n\
         | what | target | median error | comparisons |\n|---|---|---|---|\n",
        chapters.len(),
        inside + outside + unknown
    );
    let base = |metric: &str| metric.split(" (").next().unwrap_or_default().to_owned();
    let targets = TARGETS.iter().map(|target| (target, false));
    for (&(what, metrics, target), of_programs) in targets.chain(PROGRAM_TARGETS.iter().map(|target| (target, true))) {
        let known = lines(chapters).filter(|line| {
            metrics.contains(&base(&line.metric).as_str())
                && line.scheduler.starts_with("scx:") == of_programs
                && line.judgement.verdict != Agreement::NotMeasured
        });
        let mut errors: Vec<f64> = known.filter_map(|line| line.judgement.error).collect();
        errors.sort_by(f64::total_cmp);
        if errors.is_empty() && of_programs {
            continue;
        }
        let median = errors.get(errors.len() / 2).map_or_else(|| "-".into(), |error| percent(*error));
        let _ = writeln!(text, "| {what} | {} | {median} | {} |", percent(target), errors.len());
    }
    let decisions: Vec<bool> = lines(chapters)
        .filter(|line| base(&line.metric) == "gathered" && line.judgement.verdict != Agreement::NotMeasured)
        .map(|line| line.judgement.verdict == Agreement::Inside)
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
    let sources: BTreeSet<&str> =
        chapters.iter().map(|chapter| chapter.source.as_str()).filter(|source| !source.is_empty()).collect();
    for source in sources {
        let _ = writeln!(text, "\nThe real kernel: {source}.");
    }
}

/// The values of a line that its table shows: all of a few, else those that decide and the furthest apart beside them.
fn shown_pairs(line: &Line) -> Vec<&Pair> {
    let mut pairs: Vec<&Pair> = line.judgement.pairs.iter().collect();
    if pairs.len() > 4 {
        let decides = |pair: &Pair| line.judgement.worst().is_some_and(|worst| std::ptr::eq(worst, pair));
        let error = |pair: &Pair| if decides(pair) { f64::INFINITY } else { pair.error.unwrap_or(0.0) };
        pairs.sort_by(|a, b| error(b).total_cmp(&error(a)));
        pairs.truncate(2);
    }
    pairs
}

fn describe(text: &mut String, chapter: &Chapter) {
    let (cpus, llcs, nodes) = chapter.size;
    let items: Vec<String> = chapter.checklist.iter().map(ToString::to_string).collect();
    let items = if items.is_empty() { String::new() } else { format!("; checklist {}", items.join(", ")) };
    let beside = match chapter.background.as_str() {
        "" => String::new(),
        name => format!("; simulated with `{name}`"),
    };
    let _ = write!(
        text,
        "{}. {cpus} CPUs, {llcs} LLCs, {nodes} nodes; {} boots{items}{beside}.\n\n\
         | scheduler | metric | of | simulated | real | error | bound | verdict |\n|---|---|---|---|---|---|---|---|\n",
        chapter.title, chapter.boots
    );
    for line in &chapter.lines {
        let judgement = &line.judgement;
        let verdict = judgement.words();
        for pair in shown_pairs(line) {
            let error = pair.error.map_or_else(|| "-".into(), |error| shown_error(error, &line.bound));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {error} | {} | {verdict} |",
                line.scheduler,
                line.metric,
                pair.label,
                shown(pair, 0),
                shown(pair, 1),
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

/// A place's value: with its range where chance decides.
fn shown(pair: &Pair, place: usize) -> String {
    let value = number([pair.sim, pair.vm][place]);
    match pair.ranges[place] {
        Some((least, most)) if pair.of == Of::Distribution => {
            format!("{value} ({} to {})", number(Some(least)), number(Some(most)))
        }
        _ => value,
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
