//! The page a teacher projects: a few tasks, one chart per scheduler on one screen with one time axis, and folded below each, for the
//! first choices, who was chosen, instead of whom, and on what grounds.

mod chart;

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::scores;
use warmcore_topology::{CpuId, LlcId, Machine};
use warmcore_trace::{Event, EventKind, PrevState, Sink, SliceEnd, TaskId};

use crate::colour::{group, hex};
use crate::html::{policy_hash, style};
use crate::run::{ReportError, Run};
use crate::scene::Scene;
use crate::svg::escape;
use crate::units::duration;

/// Tasks that a lesson can hold.
pub(crate) const MOST_TASKS: usize = 8;
/// Choices in a table.
const MOST_CHOICES: usize = 16;
/// Time that a chart shows.
const WINDOW_NS: u64 = 120_000_000;
/// Events that are looked at.
const MOST_EVENTS: usize = 200_000;

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
struct PlacementChoice {
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
struct FirstEvents(Vec<Event>);

impl Sink for FirstEvents {
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
    let about = format!("{} tasks on {}", first.tasks.len(), cpus_in_words(machine));
    let title = answer(&run.scenes).unwrap_or_else(|| format!("{about}: who runs, and why"));
    let mut body =
        format!("<h1>{}</h1>\n<p>{}. {}</p>\n", escape(&title), escape(&about), words_of_charts(&run.scenes, machine));
    let sheet = Sheet::new(run.scenes.len(), first.tasks.len(), run.scenes.iter().map(|scene| scene.end_ns).max());
    let _ = writeln!(body, "<div class=\"{}\">", if sheet.columns > 1 { "two" } else { "whole" });
    for (index, scene) in run.scenes.iter().enumerate() {
        let spec = &run.disk.experiment.schedulers[index];
        let machine = &run.disk.experiment.machine_of(index).value;
        let events = run.events_into_with(index, Some(1), FirstEvents(Vec::new()), stop)?.0;
        let choices = choices(scene, &events);
        let chart = chart::draw(scene, machine, &events, &sheet);
        let name = format!("Who runs under {}", scene.scheduler);
        let _ = writeln!(
            body,
            "<section>\n<h2>{}</h2>\n<div class=\"drawing\">{}</div>\n<details class=\"printed\"><summary>{}</summary>\n<p>{}.</p>\n{}{}<p>{}</p>\n\
             </details></section>",
            escape(&scene.scheduler),
            chart.inline(&name),
            escape(&longest_wait(scene)),
            escape(&sentence(spec.info().summary)),
            rules(scene),
            table(scene, &choices),
            escape(&outcome(scene)),
        );
    }
    body.push_str("</div>\n");
    let style = format!("{}{STYLE}", style());
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src '{hash}'; base-uri 'none'; \
         form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"warmcore {TOOL_VERSION}\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<main id=\"main\" class=\"lesson\">\n{body}</main>\n</body>\n</html>\n",
        hash = policy_hash(&style),
        title = escape(&title),
    ))
}

/// What the page's style sheet lacks: sizes for a projector.
const STYLE: &str = "\
main.lesson{max-width:1400px;padding:0 30px;font-size:24px;line-height:1.25}.lesson h1{font-size:32px}.lesson h2{font-size:26px;margin:0}\
.lesson p,.lesson li,.lesson summary,.lesson th,.lesson td{font-size:24px;max-width:none}.lesson section{border:0;padding:0;margin:0;min-width:0}\
.lesson .t{font-size:24px}.lesson svg{max-width:none;width:100%}.two{display:grid;grid-template-columns:1fr 1fr;gap:0 24px}\
.lesson .drawing{overflow:visible}.lesson .key{width:20px;height:20px;margin:0 6px 0 14px}.waiting{fill-opacity:.3}\
.moved{stroke:var(--ink);stroke-width:3}.lesson .k{stroke-width:3}td.chosen{font-weight:700}.lesson .drawing svg{height:auto}\
@media(max-width:800px){main.lesson{padding:0 14px}.lesson h1{font-size:24px}.lesson h2{font-size:20px}.two{grid-template-columns:1fr}\
.lesson p,.lesson li,.lesson summary,.lesson th,.lesson td{font-size:17px}.lesson .drawing{overflow-x:auto}main.lesson .drawing svg[class]{min-width:900px}}\
@media print{.lesson p,.lesson li,.lesson summary,.lesson th,.lesson td{font-size:9.5pt}.lesson h1{font-size:17pt}.lesson h2{font-size:13pt}\
.lesson .drawing{overflow:visible}main.lesson .drawing svg[class]{min-width:0}.lesson td,.lesson th{overflow-wrap:normal}}";

/// Where the charts of all schedulers find room on one screen of 1400 by 900 pixels.
pub(crate) struct Sheet {
    /// Charts next to each other.
    columns: usize,
    /// Width of a chart, pixels.
    width: f64,
    /// Height of a task's row, pixels.
    row: f64,
    /// Height of the values below the rows, pixels; 0 if there is no room for them.
    values: f64,
    /// End of the time axis, which all charts share.
    end_ns: u64,
}

impl Sheet {
    fn new(schedulers: usize, tasks: usize, longest_ns: Option<u64>) -> Self {
        // What the screen leaves for charts after the heading and its two lines, and each chart's own heading, axis and last line.
        const CHARTS: f64 = 720.0;
        const AROUND: f64 = 128.0;
        let columns = if schedulers > 2 { 2 } else { 1 };
        let room = CHARTS / schedulers.div_ceil(columns).max(1) as f64 - AROUND;
        let row = (room * 0.6 / tasks.max(1) as f64).clamp(28.0, 44.0);
        let values = room - row * tasks as f64;
        Self {
            columns,
            width: if columns > 1 { 658.0 } else { 1340.0 },
            row,
            values: if values < 70.0 { 0.0 } else { values.min(170.0) },
            end_ns: longest_ns.unwrap_or(0).clamp(1, WINDOW_NS),
        }
    }
}

fn cpus_in_words(machine: &Machine) -> String {
    match (machine.cpu_count(), machine.llc_count()) {
        (1, _) => "one CPU".to_owned(),
        (cpus, 1) => format!("{cpus} CPUs"),
        (cpus, llcs) => format!("{cpus} CPUs and {llcs} LLCs"),
    }
}

/// How to read the charts, as HTML. Of the LLCs those have a key where something ran.
fn words_of_charts(scenes: &[Scene], machine: &Machine) -> String {
    let mut text = String::from("Full: runs. Pale: waits. Nothing: sleeps.");
    if machine.llc_count() > 1 {
        text.push_str(" A stroke: runs in another LLC than before, and its data have to follow.");
        let ran = |cpu: CpuId| {
            let mut stays = scenes.iter().flat_map(|scene| scene.record.cpu_run_ns.iter().flatten());
            stays.any(|(other, run_ns)| *other == cpu.0 && *run_ns > 0)
        };
        let used = |llc: &LlcId| machine.cpus_of_llc(*llc).iter().any(ran);
        for llc in machine.llcs().filter(used) {
            let _ = write!(
                text,
                "<svg class=\"key\" viewBox=\"0 0 20 20\" aria-hidden=\"true\"><rect width=\"20\" height=\"20\" fill=\"{}\"/></svg>{llc}",
                hex(group(llc.index()))
            );
        }
    } else {
        let end_ns = scenes.first().map_or(0, |scene| scene.end_ns);
        let window = duration(end_ns.min(WINDOW_NS) as f64);
        let _ = write!(text, " The first {window} of one run.");
    }
    text
}

/// A summary as a sentence's words.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
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
fn choices(scene: &Scene, events: &[Event]) -> Vec<PlacementChoice> {
    let mut found: Vec<PlacementChoice> = Vec::new();
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
                found.push(PlacementChoice {
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
fn table(scene: &Scene, choices: &[PlacementChoice]) -> String {
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

/// The task whose longest waits differ most between schedulers, with the shortest and the longest of them; nothing where no task waits
/// twice as long under one scheduler as under another.
fn answer(scenes: &[Scene]) -> Option<String> {
    let longest = |scene: &Scene, task: usize| {
        let of_task = scene.record.slices.iter().flatten().filter(|slice| slice.task.index() == task);
        of_task.filter_map(|slice| slice.run_delay_ns).max().unwrap_or(0)
    };
    let tasks = &scenes.first()?.tasks;
    let (difference_ns, task, worst, best) = (0..tasks.len())
        .filter_map(|task| {
            let waits = || scenes.iter().map(|scene| (longest(scene, task), scene.scheduler.as_str()));
            let (worst, best) = (waits().max_by_key(|wait| wait.0)?, waits().min_by_key(|wait| wait.0)?);
            (worst.0 >= 2 * best.0).then_some((worst.0 - best.0, task, worst, best))
        })
        .max_by_key(|(difference_ns, ..)| *difference_ns)?;
    let words = |(wait_ns, scheduler): (u64, &str)| format!("{} under {scheduler}", duration(wait_ns as f64));
    (difference_ns > 0).then(|| format!("{} waits up to {}, {}", tasks[task].name, words(worst), words(best)))
}

/// The longest wait for a CPU, in words.
fn longest_wait(scene: &Scene) -> String {
    let slices = scene.record.slices.iter().flatten();
    let longest =
        slices.filter_map(|slice| Some((slice.run_delay_ns?, slice.task))).max_by_key(|(delay_ns, _)| *delay_ns);
    longest.map_or_else(
        || "No task waited for a CPU".to_owned(),
        |(delay_ns, task)| format!("Longest wait: {} ({})", duration(delay_ns as f64), scene.task_name(task)),
    )
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
    format!("CPU time: {}. {preempted} times a task had to leave while it could have gone on.", parts.join(", "))
}
