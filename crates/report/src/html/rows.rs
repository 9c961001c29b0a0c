//! Figures in rows: those that belong together side by side, those of several schedulers with one heading, one caption and shared axes.

use std::fmt::Write as _;

use crate::figures::{Figure, PANEL, scheduler_name};
use crate::run::Run;
use crate::svg::escape;

/// What the names of figures end with that are laid out for a small screen.
pub(super) const NARROW: &str = "-narrow";

/// Rows of figures that hold all schedulers, by their names, in a section with a heading.
pub(super) fn figures_named(out: &mut String, figures: &[Figure], rows: &[&[&str]]) {
    for row in rows {
        let there: Vec<&Figure> = row.iter().filter_map(|id| figures.iter().find(|figure| figure.id == *id)).collect();
        let shown: Vec<&Figure> = there.iter().copied().filter(|found| folded(found).is_none()).collect();
        let narrow = |id: &str| figures.iter().find(|figure| figure.id.strip_suffix(NARROW) == Some(id));
        if let [only] = shown.as_slice() {
            figure(out, only, narrow(&only.id), 3);
        } else if !shown.is_empty() {
            let several = if row.len() > 1 { " several" } else { "" };
            let panels = if row.len() > 2 { " panels" } else { "" };
            let _ = writeln!(out, "<div class=\"figures{several}{panels}\">");
            shown.into_iter().for_each(|found| figure(out, found, narrow(&found.id), 3));
            out.push_str("</div>\n");
        }
        for found in there {
            if let Some(value) = folded(found) {
                word(out, &found.title, value);
            }
        }
    }
}

/// Figures of single schedulers whose names begin with one of these: a row for each thing that they show.
pub(super) fn of_schedulers(out: &mut String, run: &Run, figures: &[Figure], prefixes: &[&str]) {
    for prefix in prefixes {
        let mut sets: Vec<(&str, Vec<(&str, &Figure)>)> = Vec::new();
        for found in figures.iter().filter(|figure| figure.id.starts_with(prefix)) {
            let (title, scheduler) = shared_title(run, found);
            match sets.iter_mut().find(|(other, _)| *other == title) {
                Some((_, set)) => set.push((scheduler, found)),
                None => sets.push((title, vec![(scheduler, found)])),
            }
        }
        for (title, set) in sets {
            of_one_thing(out, title, &set);
        }
    }
}

/// What a figure shows, and under which scheduler.
fn shared_title<'a>(run: &'a Run, figure: &'a Figure) -> (&'a str, &'a str) {
    let labels = run.scenes.iter().map(|scene| scene.scheduler.as_str());
    let found = labels.filter_map(|label| Some((figure.title.strip_suffix(label)?.strip_suffix(" under ")?, label)));
    // A label may end with another one.
    found.max_by_key(|(_, label)| label.len()).unwrap_or((&figure.title, ""))
}

/// What schedulers rank tasks by: each has its own scores, in one row.
pub(super) fn scores(out: &mut String, figures: &[Figure]) {
    let all = || figures.iter().filter(|figure| figure.id.starts_with("score-"));
    if all().next().is_none() {
        return;
    }
    out.push_str(
        "<div class=\"set\"><h3 class=\"title\">Scores that rank tasks</h3><p class=\"note\">Strong lines are medians of the runnable tasks of an \
         application and role, areas their ranges, thin lines single tasks where they are few. A gap has no sample of a runnable task.</p>\n<div class=\"figures several panels\">\n",
    );
    all().filter(|found| folded(found).is_none()).for_each(|found| figure(out, found, None, 4));
    out.push_str("</div></div>\n");
    all().filter_map(|found| Some((found, folded(found)?))).for_each(|(found, value)| word(out, &found.title, value));
}

fn of_one_thing(out: &mut String, title: &str, set: &[(&str, &Figure)]) {
    let values: Vec<Option<&str>> = set.iter().map(|(_, found)| folded(found)).collect();
    if let [Some(value), rest @ ..] = values.as_slice()
        && rest.iter().all(|other| *other == Some(*value))
    {
        return word(out, title, value);
    }
    let Some((_, first)) = set.first() else { return };
    let shared = set.iter().all(|(_, found)| found.caption == first.caption);
    let note = if shared { format!("<p class=\"note\">{}</p>", escape(&first.caption)) } else { String::new() };
    let _ = writeln!(
        out,
        "<div class=\"set\"><h3 class=\"title\">{}</h3>{note}\n<div class=\"figures several panels\">",
        escape(title),
    );
    for (scheduler, found) in set {
        let own = if shared { String::new() } else { format!("<p>{}</p>", escape(&found.caption)) };
        let _ = writeln!(
            out,
            "<figure id=\"figure-{id}\" data-figure=\"{id}\"><figcaption><h4 class=\"title\">{}</h4>{own}</figcaption>\n\
             {drawings}</figure>",
            escape(&scheduler_name(scheduler)),
            id = found.id,
            drawings = drawings(found, None)
        );
    }
    out.push_str("</div></div>\n");
}

/// The value that a figure's data has throughout, where that says all that the figure would.
fn folded(figure: &Figure) -> Option<&str> {
    let kinds = ["values", "migrations", "transitions", "virtual-transitions", "score", "counters"];
    figure.constant().filter(|_| kinds.iter().any(|kind| figure.id.starts_with(kind)))
}

/// A figure that is not worth drawing, in a word.
fn word(out: &mut String, title: &str, value: &str) {
    let _ = writeln!(out, "<p class=\"note folded-figure\">{}: {} throughout.</p>", escape(title), escape(value));
}

/// One figure with a heading of a level; `narrow`: the same for a small screen.
fn figure(out: &mut String, figure: &Figure, narrow: Option<&Figure>, level: u8) {
    let _ = writeln!(
        out,
        "<figure id=\"figure-{id}\" class=\"alone\" data-figure=\"{id}\"><figcaption><h{level} class=\"title\">{title}</h{level}><p>{caption}</p></figcaption>\n\
         {drawings}</figure>",
        id = figure.id,
        title = escape(&figure.title),
        caption = escape(&figure.caption),
        drawings = drawings(figure, narrow)
    );
}

/// The drawing, and the one for a small screen, of which the style sheet shows one.
pub(crate) fn drawings(figure: &Figure, narrow: Option<&Figure>) -> String {
    let drawn = |class: &str, figure: &Figure, title: &str| {
        format!("<div class=\"drawing{class}\">{}</div>", figure.svg.inline(title))
    };
    match narrow {
        // A small screen scrolls it, also by keys.
        None if figure.svg.width > PANEL => format!(
            "<div class=\"drawing\" tabindex=\"0\" role=\"group\" aria-label=\"{}\">{}</div>",
            escape(&figure.title),
            figure.svg.inline(&figure.title)
        ),
        None => drawn("", figure, &figure.title),
        Some(narrow) => {
            format!("{}\n{}", drawn(" wide", figure, &figure.title), drawn(" narrow", narrow, &figure.title))
        }
    }
}
