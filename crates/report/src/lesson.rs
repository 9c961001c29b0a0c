//! The page a teacher projects: a few tasks, one chart per scheduler on one screen with one time axis, and folded below each, for the
//! first choices, who was chosen, instead of whom, and on what grounds.

mod chart;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::scores;
use warmcore_lab::trial::TrialEnd;
use warmcore_topology::{CpuId, LlcId, Machine};
use warmcore_trace::{Event, EventKind, PrevState, Sink, SliceEnd, TaskId, Tee};

use crate::colour::{dashes, group, hex};
use crate::html::{policy_hash, style};
use crate::run::{ReportError, Run};
use crate::scene::Scene;
use crate::svg::escape;
use crate::units::duration;
use crate::waits::{Wait, Waits};

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
#[allow(missing_docs)] // messages have the fields
pub enum LessonError {
    #[error("a lesson has {MOST_TASKS} tasks at most, this run has {tasks}")]
    Tasks { tasks: usize },
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
    cpu: CpuId,
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

/// What a lesson shows of one scheduler.
struct Part<'a> {
    scene: &'a Scene,
    machine: &'a Machine,
    /// The first events, [`MOST_EVENTS`] of them at most.
    events: Vec<Event>,
    /// Waits for a CPU that had not ended when the run did.
    open: Vec<Wait>,
    /// Whether the run ended by itself.
    ended: bool,
}

impl<'a> Part<'a> {
    fn new(run: &'a Run, index: usize, stop: &Arc<AtomicBool>) -> Result<Self, ReportError> {
        let scene = &run.scenes[index];
        let machine = &run.disk.experiment.machine_of(index).value;
        let tasks: BTreeSet<TaskId> = (0..scene.tasks.len()).map(|task| TaskId(task as u32)).collect();
        // Of each task one wait at most is open at the end, and one may end right there: these lie closest to it.
        let most = 2 * tasks.len();
        let waits = Waits::new(machine.cpu_count()).keeping(tasks, Some(scene.end_ns), most);
        let both = run.events_into_with(index, Some(1), Tee::new(FirstEvents(Vec::new()), waits), stop)?;
        let open = both.second.finish(scene.end_ns).1.into_iter().filter(|wait| !wait.ran).collect();
        let ended = run.disk.trials[index][run.representative].end != TrialEnd::TimeLimit;
        Ok(Self { scene, machine, events: both.first.0, open, ended })
    }

    /// The longest wait of a task for a CPU. One that has not ended counts up to the end of the run. Nothing of a task that was never
    /// runnable.
    fn longest(&self, task: TaskId) -> Option<LongestWait> {
        let slices = || self.scene.record.slices.iter().flatten().filter(|slice| slice.task == task);
        let ended_ns = slices().filter_map(|slice| slice.run_delay_ns).max().unwrap_or(0);
        let open = self.open.iter().filter(|wait| wait.task == task).map(|wait| wait.to_ns - wait.from_ns).max();
        let never_ran = slices().next().is_none();
        (!never_ran || open.is_some()).then(|| LongestWait {
            never_ran,
            length_ns: ended_ns.max(open.unwrap_or(0)),
            open: open.is_some_and(|open_ns| open_ns >= ended_ns),
        })
    }
}

/// The longest wait of a task under a scheduler. In order: of two, the greater one is worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LongestWait {
    /// The task waited and never ran, which is worse than any length.
    never_ran: bool,
    length_ns: u64,
    /// The run ended before the wait did.
    open: bool,
}

impl LongestWait {
    fn in_words(self) -> String {
        let length = duration(self.length_ns as f64);
        if self.open { format!("at least {length} (not over)") } else { length }
    }

    /// How long the task waits, in words.
    fn at_most(self) -> String {
        match self {
            Self { open: true, .. } => self.in_words(),
            Self { length_ns: 0, .. } => "never".to_owned(),
            _ => format!("up to {}", self.in_words()),
        }
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
    let parts = (0..run.scenes.len()).map(|index| Part::new(run, index, stop)).collect::<Result<Vec<_>, _>>()?;
    let (waits, ends) = (|| answer(&parts), || earlier_end(&parts));
    // Between LLCs the question is where tasks run, and what that wins.
    let found = if machine.llc_count() > 1 { ends().or_else(waits) } else { waits().or_else(ends) };
    let title = found.unwrap_or_else(|| without_difference(&parts));
    let words = format!("{}. {} {}", escape(&about), escape(&span(&run.scenes)), words_of_charts(&run.scenes, machine));
    let mut body = format!("<h1>{}</h1>\n<p>{words}</p>\n", escape(&title));
    let end_ns = run.scenes.iter().map(|scene| scene.end_ns).max();
    let sheet = Sheet::new(run.scenes.len(), first.tasks.len(), end_ns, height_of_words(&title, &words));
    let _ = writeln!(body, "<div class=\"{}\">", if sheet.columns > 1 { "two" } else { "whole" });
    for (index, part) in parts.iter().enumerate() {
        let (scene, spec) = (part.scene, &run.disk.experiment.schedulers[index]);
        let choices = choices(scene, &part.events);
        let chart = chart::draw(part, &sheet);
        let name = format!("Who runs under {}", scene.scheduler);
        let _ = writeln!(
            body,
            "<section>\n<h2>{}</h2>\n<div class=\"drawing\" tabindex=\"0\" role=\"group\" aria-label=\"{}\">{}</div>\n<details class=\"printed\"><summary>{}</summary>\n<p>{}.</p>\n{}{}<p>{}</p>\n\
             </details></section>",
            escape(&scene.scheduler),
            escape(&name),
            chart.inline(&name),
            escape(&longest_wait(part)),
            escape(&sentence(spec.info().summary)),
            rules(scene),
            table(part, &choices),
            escape(&outcome(part)),
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
.lesson p,.lesson li,.lesson summary,.lesson th,.lesson td{font-size:24px;max-width:none}.lesson th,.lesson td{padding:5px 12px 5px 0}\
.unbroken{white-space:nowrap}.lesson section{border:0;padding:0;margin:0;min-width:0}\
.lesson .t{font-size:24px}.lesson svg{max-width:none;width:100%}.two{display:grid;grid-template-columns:1fr 1fr;gap:0 24px}\
.lesson .drawing{overflow:visible}.lesson .key{width:48px;height:20px;margin:0 6px 0 14px}.waiting{fill-opacity:.3}\
.moved{stroke:var(--ink);stroke-width:3}.lesson .k{stroke-width:3}td.chosen{font-weight:700}.lesson .drawing svg{height:auto}\
@media(max-width:800px){main.lesson{padding:0 14px}.lesson h1{font-size:24px}.lesson h2{font-size:20px}.two{grid-template-columns:1fr}\
.lesson p,.lesson li,.lesson summary,.lesson th,.lesson td{font-size:17px}.lesson .drawing{overflow-x:auto}main.lesson .whole svg[class]{min-width:680px}main.lesson .two svg[class]{min-width:0}}\
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
    /// `words`: height of the heading and of the lines below it, pixels.
    fn new(schedulers: usize, tasks: usize, longest_ns: Option<u64>, words: f64) -> Self {
        // What the screen leaves for words and charts, and each chart's own heading, axis and last line.
        const SCREEN: f64 = 820.0;
        const AROUND: f64 = 128.0;
        let columns = if schedulers > 2 { 2 } else { 1 };
        let room = (SCREEN - words) / schedulers.div_ceil(columns).max(1) as f64 - AROUND;
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

/// Height of a title and of the words below it, HTML, each in letters of their size on lines of 1340 pixels.
fn height_of_words(title: &str, words: &str) -> f64 {
    let mut in_tag = false;
    let shown = words.chars().filter(|sign| {
        let shown = !in_tag && *sign != '<';
        in_tag = (in_tag || *sign == '<') && *sign != '>';
        shown
    });
    let lines = |letters: usize, of_line: usize| letters.div_ceil(of_line).max(1) as f64;
    40.0 * lines(title.chars().count(), 70) + 30.0 * lines(shown.count(), 95).max(2.0)
}

/// Which span the page is about.
fn span(scenes: &[Scene]) -> String {
    let ends = || scenes.iter().map(|scene| scene.end_ns);
    let (least_ns, end_ns) = (ends().min().unwrap_or(0), ends().max().unwrap_or(0));
    let warm_up_ns = scenes.iter().map(|scene| scene.window_from_ns).max().unwrap_or(0);
    let [least, most] = [least_ns, end_ns].map(|ns| duration(ns as f64));
    let mut text = if least == most { format!("One run of {most}") } else { format!("Runs of {least} to {most}") };
    if warm_up_ns > 0 {
        let _ = write!(text, " with its warm-up of {}, which the verdict leaves out", duration(warm_up_ns as f64));
    }
    if end_ns > WINDOW_NS {
        let _ = write!(text, ". Drawn: the first {}", duration(WINDOW_NS as f64));
    }
    text + "."
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
    let mut text = String::from("Full: runs. Hollow: waits. Nothing: sleeps.");
    if machine.llc_count() > 1 {
        text.push_str(" A stroke: runs in another LLC than before, and its data have to follow.");
        let used: BTreeSet<LlcId> = scenes.iter().flat_map(|scene| scene.used_llcs(machine)).collect();
        for llc in used {
            let _ = write!(
                text,
                " <span class=\"unbroken\"><svg class=\"key\" viewBox=\"0 0 48 20\" aria-hidden=\"true\"><rect width=\"20\" height=\"20\" \
                 fill=\"{colour}\"/><line x1=\"22\" y1=\"10\" x2=\"48\" y2=\"10\" class=\"k\" stroke=\"{colour}\" \
                 stroke-dasharray=\"{}\"/></svg>{llc}</span>",
                dashes(llc.index()),
                colour = hex(group(llc.index()))
            );
        }
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
                    cpu: event.cpu,
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
fn table(Part { scene, machine, .. }: &Part<'_>, choices: &[PlacementChoice]) -> String {
    let several = machine.cpu_count() > 1;
    let told = choices.iter().any(|choice| !choice.reasons.is_empty());
    let name = |task: TaskId| format!("<span class=\"unbroken\">{}</span>", escape(scene.task_name(task)));
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Choices under {}\"><table><thead><tr><th>{}</th><th>chosen</th>\
         <th>before it</th>",
        escape(&scene.scheduler),
        if several { "time, CPU" } else { "time" }
    );
    for name in &scene.tables.scores {
        let title = scores::score(name).map_or(name.as_str(), |info| info.title);
        let _ = write!(out, "<th>{}</th>", escape(title));
    }
    out.push_str(if told { "<th>the scheduler says</th></tr></thead><tbody>\n" } else { "</tr></thead><tbody>\n" });
    for choice in choices {
        let before = match (choice.before.is_idle(), choice.left) {
            (true, _) => "nobody ran".to_owned(),
            (_, PrevState::Sleeping) => format!("{} went to sleep", name(choice.before)),
            (_, PrevState::Dead) => format!("{} ended", name(choice.before)),
            _ => format!("{} had to leave", name(choice.before)),
        };
        let cpu = if several { format!(", {}", machine.os_cpu(choice.cpu)) } else { String::new() };
        let _ = write!(
            out,
            "<tr><td class=\"n\">{}{cpu}</td><td class=\"chosen\">{}</td><td>{before}</td>",
            escape(&duration(choice.time_ns as f64)),
            name(choice.chosen)
        );
        for (score, score_name) in scene.tables.scores.iter().enumerate() {
            let mut of_score: Vec<_> = choice.values.iter().filter(|(other, ..)| *other == score).collect();
            of_score.sort_by_key(|(_, task, _)| *task != choice.chosen);
            let values: Vec<String> = of_score
                .into_iter()
                .map(|(_, task, value)| format!("{} {}", name(*task), escape(&value_in_words(score_name, *value))))
                .collect();
            let _ = write!(out, "<td>{}</td>", values.join("; "));
        }
        if told {
            let _ = write!(out, "<td>{}</td>", escape(&choice.reasons.join("; ")));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

fn value_in_words(name: &str, value: i64) -> String {
    if name.ends_with("_ns") { duration(value as f64) } else { value.to_string() }
}

/// The task whose longest waits differ most between schedulers, with the shortest and the longest of them; nothing where no task waits
/// twice as long under one scheduler as under another, and a thousandth of the run longer. A task that never runs under a scheduler that
/// others run comes first.
fn answer<'a>(parts: &[Part<'a>]) -> Option<String> {
    let tasks = &parts.first()?.scene.tasks;
    let end_ns = parts.iter().map(|part| part.scene.end_ns).max().unwrap_or(0);
    let least_ns = (end_ns / 1000).max(1);
    let found = |task: usize| {
        let of = |part: &Part<'a>| Some((part.longest(TaskId(task as u32))?, part.scene.scheduler.as_str()));
        let waits = parts.iter().map(of).collect::<Option<Vec<_>>>()?;
        // Of equal ones the first.
        let worst = *waits.iter().min_by_key(|wait| Reverse(wait.0))?;
        let best = *waits.iter().min_by_key(|wait| wait.0)?;
        let starved = worst.0.never_ran && !best.0.never_ran;
        let difference_ns = worst.0.length_ns.saturating_sub(best.0.length_ns);
        let differs = difference_ns >= least_ns && worst.0.length_ns >= 2 * best.0.length_ns;
        (starved || differs).then_some(((starved, difference_ns), task, worst, best))
    };
    let (_, task, (worst, under), (best, other)) = (0..tasks.len()).filter_map(found).max_by_key(|found| found.0)?;
    let name = &tasks[task].name;
    Some(format!("{name} waits {} under {under}, {} under {other}", worst.at_most(), best.at_most()))
}

/// How much earlier a run ends under the scheduler that ends first, and who came to whom there. Nothing where all runs end within a twentieth
/// of each other.
fn earlier_end(parts: &[Part<'_>]) -> Option<String> {
    let first = parts.iter().min_by_key(|part| part.scene.end_ns)?;
    // Of equal ones the first.
    let last = parts.iter().min_by_key(|part| Reverse(part.scene.end_ns))?;
    let (end_ns, other_ns) = (first.scene.end_ns, last.scene.end_ns);
    if !first.ended || other_ns - end_ns < end_ns / 20 + 1 {
        return None;
    }
    let (done, other) = (duration(end_ns as f64), duration(other_ns as f64));
    let (name, other_name) = (&first.scene.scheduler, &last.scene.scheduler);
    let not = match (last.ended, parts.len()) {
        (true, 2) => format!("not {other}"),
        (true, _) => format!("not {other} as under {other_name}"),
        (false, _) => format!("under {other_name} not at {other}"),
    };
    Some(match last_to_join(first) {
        Some((task, llc, ns)) => {
            format!("{name}: {task} joins {llc} at {}, done at {done}, {not}", duration(ns as f64))
        }
        None => format!("{name}: all is done at {done}, {not}"),
    })
}

/// The last change of a task's LLC in a run, to one where another task is in the end: task, LLC and time.
fn last_to_join(Part { scene, machine, .. }: &Part<'_>) -> Option<(String, LlcId, u64)> {
    let mut slices: Vec<_> = scene.record.slices.iter().flatten().collect();
    slices.sort_by_key(|slice| slice.start_ns);
    let mut places: Vec<Option<LlcId>> = vec![None; scene.tasks.len()];
    let mut found = None;
    for slice in slices {
        let Some(place) = places.get_mut(slice.task.index()) else { continue };
        let llc = machine.llc_of(slice.cpu);
        if place.replace(llc).is_some_and(|before| before != llc) {
            found = Some((slice.task, llc, slice.start_ns));
        }
    }
    let (task, llc, start_ns) = found?;
    let joined = (0..places.len()).any(|other| other != task.index() && places[other] == Some(llc));
    joined.then(|| (scene.task_name(task).to_owned(), llc, start_ns))
}

/// The answer where schedulers make no difference to waits and ends, or where there is one only.
fn without_difference(parts: &[Part<'_>]) -> String {
    match parts {
        [only] => format!("{} under {}", longest_wait(only), only.scene.scheduler),
        _ => "No scheduler lets a task wait much longer than another does".to_owned(),
    }
}

/// The longest wait for a CPU, in words.
fn longest_wait(part: &Part<'_>) -> String {
    let tasks = (0..part.scene.tasks.len()).map(|task| TaskId(task as u32));
    let waits = tasks.filter_map(|task| Some((part.longest(task)?, task)));
    match waits.min_by_key(|(wait, _)| Reverse(*wait)).filter(|(wait, _)| wait.length_ns > 0) {
        None => "No task waited for a CPU".to_owned(),
        Some((wait, task)) if wait.open => format!("{} waits {}", part.scene.task_name(task), wait.in_words()),
        Some((wait, task)) => format!("Longest wait: {} ({})", wait.in_words(), part.scene.task_name(task)),
    }
}

/// What came of it, over the whole run.
fn outcome(Part { scene, machine, .. }: &Part<'_>) -> String {
    let slices = || scene.record.slices.iter().flatten();
    let part = |task: usize| {
        let run_ns: u64 =
            slices().filter(|slice| slice.task.index() == task).map(|slice| slice.end_ns - slice.start_ns).sum();
        run_ns as f64 / scene.end_ns.max(1) as f64 * 100.0
    };
    let parts: Vec<String> =
        scene.tasks.iter().enumerate().map(|(task, info)| format!("{} {:.0} %", info.name, part(task))).collect();
    let preempted = slices().filter(|slice| slice.end == SliceEnd::Runnable).count();
    let had_to_leave = match preempted {
        0 => "Never did a task have".to_owned(),
        1 => "Once a task had".to_owned(),
        times => format!("{times} times a task had"),
    };
    let whole = if machine.cpu_count() > 1 { ", 100 % being one CPU" } else { "" };
    format!("CPU time{whole}: {}. {had_to_leave} to leave while it could have gone on.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_never_ran_waits_worst_and_an_open_wait_is_named_as_one() {
        let of = |never_ran, length_ns, open| LongestWait { never_ran, length_ns, open };
        let mut waits = [of(true, 1_000_000, true), of(false, 9_000_000, true), of(false, 2_000_000, false)];
        waits.sort_unstable();
        assert_eq!(waits.map(|wait| wait.length_ns), [2_000_000, 9_000_000, 1_000_000]);
        assert_eq!(waits.map(LongestWait::in_words), ["2 ms", "at least 9 ms (not over)", "at least 1 ms (not over)"]);
        let told = [of(false, 0, false), of(false, 2_000_000, false), of(true, 1_000_000, true)];
        assert_eq!(told.map(LongestWait::at_most), ["never", "up to 2 ms", "at least 1 ms (not over)"]);
    }

    #[test]
    fn words_leave_charts_less_room_the_more_lines_they_take() {
        let of = |title: usize, words: &str| height_of_words(&"t".repeat(title), words);
        assert_eq!(of(10, "<svg class=\"key\"></svg>llc0"), 100.0, "what is no text takes no room");
        assert_eq!(of(71, &"w".repeat(191)), 170.0);
    }
}
