//! The page a teacher projects: a few tasks, one Gantt chart per scheduler, what the scheduler ranks them by below it, and for the
//! first choices who was chosen, instead of whom, and on what grounds.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::scores;
use warmcore_trace::{Event, EventKind, PrevState, Sink, SliceEnd, TaskId};

use crate::colour::series;
use crate::figures::{Axes, WIDTH, lines, shortened};
use crate::html::{policy_hash, style};
use crate::run::{ReportError, Run};
use crate::scale::{Scale, time_ticks};
use crate::scene::Scene;
use crate::svg::{Anchor, Svg, escape};
use crate::units::duration;

/// Tasks that a lesson can hold.
pub const MOST_TASKS: usize = 8;
/// Choices in a table.
const MOST_CHOICES: usize = 16;
/// Time that a chart shows.
const WINDOW_NS: u64 = 120_000_000;
/// Events that are looked at.
const MOST_EVENTS: usize = 200_000;
const LEFT: f64 = 130.0;
const RIGHT: f64 = WIDTH - 14.0;
const ROW: f64 = 34.0;

/// Why a run makes no lesson.
#[derive(Debug, thiserror::Error)]
pub enum LessonError {
    /// Too many tasks to follow with the eye.
    #[error("a lesson has {MOST_TASKS} tasks at most, this run has {tasks}")]
    Tasks {
        /// How many it has.
        tasks: usize,
    },
    /// There is no timeline, for the reason that the run notes.
    #[error("the run has no timeline to draw")]
    NoScenes,
    /// The trial's events cannot be had.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// One choice: a task came to a CPU.
#[derive(Clone, PartialEq, Debug)]
struct Choice {
    time_ns: u64,
    chosen: TaskId,
    before: TaskId,
    left: PrevState,
    /// Reasons that the scheduler told at that time.
    reasons: Vec<String>,
    /// Values of the runnable tasks right after it, by score: task and value.
    values: Vec<(usize, TaskId, i64)>,
}

/// Keeps the first events of a run.
struct Kept(Vec<Event>);

impl Sink for Kept {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        let room = MOST_EVENTS.saturating_sub(self.0.len());
        self.0.extend_from_slice(&batch[..batch.len().min(room)]);
        Ok(())
    }
}

/// The page of a run.
///
/// # Errors
/// When the run has too many tasks or no events.
pub fn page(run: &Run, stop: &Arc<AtomicBool>) -> Result<String, LessonError> {
    let first = run.scenes.first().ok_or(LessonError::NoScenes)?;
    if first.tasks.len() > MOST_TASKS {
        return Err(LessonError::Tasks { tasks: first.tasks.len() });
    }
    let machine = &run.disk.experiment.machine_of(0).value;
    let title = format!("{} tasks on {}: who runs, and why", first.tasks.len(), cpus_in_words(machine.cpu_count()));
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    let _ = writeln!(body, "<p>{}</p>", escape(&tasks_in_words(first)));
    let longest_ns = first.end_ns.min(WINDOW_NS);
    let axes = Axes::of(&run.scenes);
    for (index, scene) in run.scenes.iter().enumerate() {
        let spec = &run.disk.experiment.schedulers[index];
        let events = run.events_into_with(index, 1, Kept(Vec::new()), stop)?.0;
        let choices = choices(scene, &events);
        let _ = writeln!(
            body,
            "<section>\n<h2>{}</h2>\n<p>{}.</p>",
            escape(&scene.scheduler),
            escape(&sentence(spec.info().summary))
        );
        let chart = gantt(scene, longest_ns);
        let name = format!("Who runs under {}", scene.scheduler);
        let _ = writeln!(body, "<figure><div class=\"drawing\">{}</div></figure>", chart.inline(&name));
        body.push_str(&rules(scene));
        for figure in lines::scores(index, scene, &axes).into_iter().take(1) {
            let drawing = figure.svg.inline(&figure.title);
            let _ = writeln!(body, "<figure><div class=\"drawing\">{drawing}</div></figure>");
        }
        body.push_str(&table(scene, &choices));
        let _ = writeln!(body, "<p><b>{}</b></p>\n</section>", escape(&outcome(scene)));
    }
    let style = format!("{}{STYLE}", style());
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src '{hash}'; base-uri 'none'; \
         form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"warmcore {TOOL_VERSION}\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<main id=\"main\">\n{body}</main>\n</body>\n</html>\n",
        hash = policy_hash(&style),
        title = escape(&title),
    ))
}

/// What the page's style sheet lacks.
const STYLE: &str = ".waiting{fill-opacity:.22}td.chosen{font-weight:700}";

fn cpus_in_words(count: usize) -> String {
    if count == 1 { "one CPU".to_owned() } else { format!("{count} CPUs") }
}

/// The tasks by name, with the colours' order.
fn tasks_in_words(scene: &Scene) -> String {
    let names: Vec<&str> = scene.tasks.iter().map(|task| task.name.as_str()).collect();
    let window = duration(scene.end_ns.min(WINDOW_NS) as f64);
    format!(
        "The tasks are {}. A full bar: the task runs. A pale bar: it could run and waits. Nothing: it sleeps. The first {window} are shown, \
         of one simulated run.",
        names.join(", ")
    )
}

/// A summary as a sentence's words.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// One row per task.
fn gantt(scene: &Scene, end_ns: u64) -> Svg {
    let bottom = 10.0 + ROW * scene.tasks.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 40.0);
    let x = Scale::linear(0.0, end_ns as f64, LEFT, RIGHT);
    for (ns, text) in time_ticks(&x, 8) {
        svg.line(x.at(ns), 10.0, x.at(ns), bottom, "grid");
        svg.text(x.at(ns), bottom + 17.0, Anchor::Middle, "m", &text);
    }
    svg.text((LEFT + RIGHT) / 2.0, bottom + 34.0, Anchor::Middle, "m", scene.clock);
    for (task, info) in scene.tasks.iter().enumerate() {
        let y = 10.0 + ROW * task as f64;
        svg.text(LEFT - 10.0, y + ROW / 2.0 + 4.0, Anchor::End, "m", &shortened(&info.name, 16));
        let mut bar = |from_ns: u64, to_ns: u64, class: &str, what: &str| {
            let (from, to) = (x.at(from_ns as f64), x.at(to_ns.min(end_ns) as f64));
            if from_ns < end_ns && to > from {
                let hover = format!("{} {what} {} to {}", info.name, duration(from_ns as f64), duration(to_ns as f64));
                svg.rect(from, y + 5.0, to - from, ROW - 10.0, class, &hover);
            }
        };
        let colour = series(task);
        for slice in scene.record.slices.iter().flatten().filter(|slice| slice.task.index() == task) {
            if let Some(delay_ns) = slice.run_delay_ns {
                bar(slice.start_ns - delay_ns, slice.start_ns, &format!("c{colour} waiting"), "waits");
            }
            bar(slice.start_ns, slice.end_ns, &format!("c{colour}"), "runs");
        }
    }
    svg.line(LEFT, bottom, RIGHT, bottom, "axis");
    svg
}

/// What the numbers mean by which the scheduler chooses.
fn rules(scene: &Scene) -> String {
    let mut out = String::from("<ul>\n");
    for name in &scene.tables.scores {
        if let Some(info) = scores::score(name) {
            let _ = writeln!(out, "<li><b>{}</b>: {}.</li>", escape(info.title), escape(info.meaning));
        }
    }
    out.push_str("</ul>\n");
    out
}

/// The first choices among several tasks or after a wakeup.
fn choices(scene: &Scene, events: &[Event]) -> Vec<Choice> {
    let mut found: Vec<Choice> = Vec::new();
    let mut told: (u64, Vec<String>) = (0, Vec::new());
    // Samples that a tick took just before the choice it made.
    let mut ahead: (u64, Vec<(usize, TaskId, i64)>) = (0, Vec::new());
    for event in events {
        match event.kind {
            EventKind::Decision { decision, task, .. } => {
                if told.0 != event.time_ns {
                    told = (event.time_ns, Vec::new());
                }
                let kind = scene.tables.decisions.get(decision as usize);
                let reason = kind.map_or_else(String::new, warmcore_trace::DecisionKind::name);
                told.1.push(format!("{}: {reason}", scene.task_name(task)));
            }
            EventKind::Switch { prev, prev_state, next } if !next.is_idle() => {
                if found.len() == MOST_CHOICES {
                    break;
                }
                let reasons = if told.0 == event.time_ns { std::mem::take(&mut told.1) } else { Vec::new() };
                found.push(Choice {
                    time_ns: event.time_ns,
                    chosen: next,
                    before: prev,
                    left: prev_state,
                    reasons,
                    values: if ahead.0 == event.time_ns { std::mem::take(&mut ahead.1) } else { Vec::new() },
                });
            }
            EventKind::Score { score, task, value } => {
                let score = score as usize;
                if let Some(choice) = found.last_mut().filter(|choice| choice.time_ns == event.time_ns) {
                    if !choice.values.iter().any(|(other, of, _)| (*other, *of) == (score, task)) {
                        choice.values.push((score, task, value));
                    }
                } else {
                    if ahead.0 != event.time_ns {
                        ahead = (event.time_ns, Vec::new());
                    }
                    ahead.1.push((score, task, value));
                }
            }
            _ => {}
        }
    }
    found
}

/// Who was chosen and on what grounds.
fn table(scene: &Scene, choices: &[Choice]) -> String {
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>time</th><th>chosen</th><th>before it</th>",
    );
    for name in &scene.tables.scores {
        let title = scores::score(name).map_or(name.as_str(), |info| info.title);
        let _ = write!(out, "<th>{}</th>", escape(title));
    }
    out.push_str("<th>the scheduler says</th></tr></thead><tbody>\n");
    for choice in choices {
        let before = match (choice.before.is_idle(), choice.left) {
            (true, _) => "nobody ran".to_owned(),
            (_, PrevState::Sleeping) => format!("{} went to sleep", scene.task_name(choice.before)),
            (_, PrevState::Dead) => format!("{} ended", scene.task_name(choice.before)),
            _ => format!("{} had to leave", scene.task_name(choice.before)),
        };
        let _ = write!(
            out,
            "<tr><td class=\"n\">{}</td><td class=\"chosen\">{}</td><td>{}</td>",
            escape(&duration(choice.time_ns as f64)),
            escape(scene.task_name(choice.chosen)),
            escape(&before)
        );
        for (score, name) in scene.tables.scores.iter().enumerate() {
            let mut of_score: Vec<_> = choice.values.iter().filter(|(other, ..)| *other == score).collect();
            of_score.sort_by_key(|(_, task, _)| *task != choice.chosen);
            let values: Vec<String> = of_score
                .into_iter()
                .map(|(_, task, value)| format!("{} {}", scene.task_name(*task), value_in_words(name, *value)))
                .collect();
            let _ = write!(out, "<td>{}</td>", escape(&values.join("; ")));
        }
        let _ = writeln!(out, "<td>{}</td></tr>", escape(&choice.reasons.join("; ")));
    }
    out.push_str("</tbody></table></div>\n");
    out
}

fn value_in_words(name: &str, value: i64) -> String {
    if name.ends_with("_ns") { duration(value as f64) } else { value.to_string() }
}

/// What came of it, over the whole run.
fn outcome(scene: &Scene) -> String {
    let slices = || scene.record.slices.iter().flatten();
    let part = |task: usize| {
        let run_ns: u64 =
            slices().filter(|slice| slice.task.index() == task).map(|slice| slice.end_ns - slice.start_ns).sum();
        run_ns as f64 / scene.end_ns.max(1) as f64 * 100.0
    };
    let parts: Vec<String> =
        scene.tasks.iter().enumerate().map(|(task, info)| format!("{} {:.0} %", info.name, part(task))).collect();
    let preempted = slices().filter(|slice| slice.end == SliceEnd::Runnable).count();
    let longest =
        slices().filter_map(|slice| Some((slice.run_delay_ns?, slice.task))).max_by_key(|(delay_ns, _)| *delay_ns);
    let longest = longest.map_or_else(String::new, |(delay_ns, task)| {
        format!(" The longest wait for the CPU was {}, of {}.", duration(delay_ns as f64), scene.task_name(task))
    });
    format!(
        "CPU time: {}.{longest} {preempted} times a task had to leave while it could have gone on.",
        parts.join(", ")
    )
}
