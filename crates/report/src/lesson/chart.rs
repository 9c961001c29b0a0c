//! The chart of a lesson: a row for each task, and below, on the same time axis, what the scheduler ranks them by or, on several LLCs,
//! the cache lines that each LLC had to fetch from elsewhere.

use warmcore_lab::scores;
use warmcore_topology::{LlcId, Machine};
use warmcore_trace::{Event, EventKind, PrevState, TaskId};

use super::{MOST_EVENTS, Part, Sheet};
use crate::colour::{dashes, group, hex, series};
use crate::counters::COUNTER_BINS;
use crate::figures::map::SOURCES;
use crate::figures::shortened;
use crate::scale::{Scale, number_ticks, time_ticks};
use crate::scene::Scene;
use crate::svg::{Anchor, CURVE_KEY, SIZE, Svg, text_width};
use crate::units::{count, duration};

/// Size of letters, pixels.
const LETTER_SIZE: f64 = 24.0;
/// Width of a letter of that size, about.
const LETTER: f64 = 14.5;
/// Letters of a name or of a value.
const LETTERS: usize = 13;
const LEFT: f64 = LETTER * LETTERS as f64 + 10.0;
const TOP: f64 = 4.0;
/// Thickness of the lines above and below what waits.
const EDGE: f64 = 3.0;

/// Times and values, in order of time: each value holds until the next one.
type Line = Vec<(u64, f64)>;

/// Values over time.
struct Steps {
    /// What they are.
    title: String,
    /// Whether they are times.
    times: bool,
    /// Whether they are whole numbers.
    whole: bool,
    /// Attributes of a stroke, and its line.
    lines: Vec<(String, Line)>,
    /// Whether each line is a task's.
    of_tasks: bool,
}

/// The chart.
pub(super) fn draw(part: &Part<'_>, sheet: &Sheet) -> Svg {
    let Part { scene, machine, events, .. } = part;
    let bottom = TOP + sheet.row * scene.tasks.len() as f64;
    let steps =
        if sheet.values > 0.0 { fetched(scene, machine, sheet).or_else(|| ranked(scene, events, sheet)) } else { None };
    let values = if steps.is_some() { sheet.values } else { 0.0 };
    let axis = bottom + values;
    let mut svg = Svg::new(sheet.width, axis + 32.0);
    let right = sheet.width - 20.0;
    let x = Scale::linear(0.0, sheet.end_ns as f64, LEFT, right);
    for (ns, text) in time_ticks(&x, if sheet.columns > 1 { 3 } else { 8 }) {
        svg.line(x.at(ns), TOP, x.at(ns), axis, "grid");
        let half = text_width("m", &text) * LETTER_SIZE / SIZE / 2.0 + 1.0;
        svg.text(x.at(ns).min(sheet.width - half), axis + 26.0, Anchor::Middle, "m", &text);
    }
    // Names show which of the lines below is a task's.
    let keyed = steps.as_ref().is_some_and(|steps| steps.of_tasks);
    rows(&mut svg, part, sheet, (&x, keyed));
    svg.line(LEFT, axis, right, axis, "axis");
    if let Some(steps) = steps {
        draw_steps(&mut svg, &steps, &x, (bottom + 12.0, axis - 4.0), right);
    }
    svg
}

/// A row for each task: where it ran, and where it waited; `keyed`: before its name is a piece of its line.
fn rows(svg: &mut Svg, part: &Part<'_>, sheet: &Sheet, (x, keyed): (&Scale, bool)) {
    let Part { scene, machine, .. } = part;
    let several = machine.llc_count() > 1;
    for (task, info) in scene.tasks.iter().enumerate() {
        let y = TOP + sheet.row * task as f64;
        let name = shortened(&info.name, if keyed { LETTERS - 3 } else { LETTERS });
        svg.text(LEFT - 10.0, y + sheet.row / 2.0 + 8.0, Anchor::End, "", &name);
        if keyed {
            let begin = LEFT - 10.0 - text_width("", &name) * LETTER_SIZE / SIZE;
            svg.curve_key((begin - CURVE_KEY - 8.0).max(0.0), y + sheet.row / 2.0 + 3.5, series(task));
        }
        let mut slices: Vec<_> =
            scene.record.slices.iter().flatten().filter(|slice| slice.task.index() == task).collect();
        slices.sort_by_key(|slice| slice.start_ns);
        let colours = |llc: LlcId| {
            if several {
                let fill = format!(r#"fill="{}""#, hex(group(llc.index())));
                (format!(r#"{fill} class="waiting""#), fill)
            } else {
                let class = format!("c{}", series(task));
                (format!(r#"class="{class} waiting""#), format!(r#"class="{class}""#))
            }
        };
        let bar = |svg: &mut Svg, from_ns: u64, to_ns: u64, attributes: &str, hover: &str| {
            let (from, to) = (x.at(from_ns as f64), x.at(to_ns.min(sheet.end_ns) as f64));
            if from_ns < sheet.end_ns && to > from {
                svg.rect_with(from, y + 4.0, to - from, sheet.row - 8.0, attributes, hover);
            }
        };
        // Pale between two lines: however narrow it is, it is not taken for running.
        let hollow = |svg: &mut Svg, from_ns: u64, to_ns: u64, (pale, full): &(String, String), hover: &str| {
            bar(svg, from_ns, to_ns, pale, hover);
            let (from, to) = (x.at(from_ns as f64), x.at(to_ns.min(sheet.end_ns) as f64));
            if from_ns < sheet.end_ns && to > from {
                for edge in [y + 4.0, y + sheet.row - 4.0 - EDGE] {
                    svg.rect_with(from, edge, to - from, EDGE, full, "");
                }
            }
        };
        let spoken = |what: &str, from_ns: u64, to_ns: u64| {
            format!("{} {what} {} to {}", info.name, duration(from_ns as f64), duration(to_ns as f64))
        };
        let mut before = None;
        for slice in slices {
            let llc = machine.llc_of(slice.cpu);
            let look = colours(llc);
            let (start_ns, end_ns) = (slice.start_ns, slice.end_ns);
            if let Some(delay_ns) = slice.run_delay_ns {
                let since_ns = start_ns - delay_ns;
                hollow(svg, since_ns, start_ns, &look, &spoken("waits", since_ns, start_ns));
            }
            bar(svg, start_ns, end_ns, &look.1, &spoken("runs", start_ns, end_ns));
            if before.replace(llc).is_some_and(|before| before != llc) && start_ns < sheet.end_ns {
                let at = x.at(start_ns as f64);
                svg.line(at, y, at, y + sheet.row, "moved");
            }
        }
        for wait in part.open.iter().filter(|wait| wait.task.index() == task) {
            let llc = wait.parts.last().map_or(LlcId(0), |part| machine.llc_of(part.cpu));
            let hover = format!("{} still waits when the run ends, since {}", info.name, duration(wait.from_ns as f64));
            hollow(svg, wait.from_ns, wait.to_ns, &colours(llc), &hover);
        }
    }
}

/// What the scheduler ranks tasks by first. Each task has a line for each time between two sleeps: from its wakeup until it sleeps.
fn ranked(scene: &Scene, events: &[Event], sheet: &Sheet) -> Option<Steps> {
    let name = scene.tables.scores.first()?;
    let info = scores::score(name)?;
    let last_ns = events.last().map_or(0, |event| event.time_ns);
    let known_ns = if events.len() < MOST_EVENTS { scene.end_ns } else { last_ns };
    let end_ns = known_ns.min(sheet.end_ns);
    let mut tracks = vec![Track::default(); scene.tasks.len()];
    for event in events.iter().take_while(|event| event.time_ns <= sheet.end_ns) {
        let now_ns = event.time_ns;
        let mut of = |task: TaskId, then: &dyn Fn(&mut Track)| tracks.get_mut(task.index()).into_iter().for_each(then);
        match event.kind {
            EventKind::Score { score: 0, task, value } => of(task, &|track| track.sample(now_ns, value as f64)),
            EventKind::Waking { task, .. } | EventKind::Wakeup { task, .. } => of(task, &|track| track.wakes(now_ns)),
            EventKind::Switch { prev, prev_state, next } => {
                if matches!(prev_state, PrevState::Sleeping | PrevState::Dead) {
                    of(prev, &|track| track.sleeps(now_ns));
                }
                of(next, &|track| track.wakes(now_ns));
            }
            EventKind::Exit { task } => of(task, &|track| track.sleeps(now_ns)),
            _ => {}
        }
    }
    let lines: Vec<(String, Line)> = tracks
        .into_iter()
        .enumerate()
        .flat_map(|(task, track)| {
            track.lines(end_ns).into_iter().map(move |line| (format!(r#"class="k k{}""#, series(task)), line))
        })
        .collect();
    let times = name.ends_with("_ns");
    lines.iter().any(|(_, line)| line.len() > 1).then(|| Steps {
        title: info.title.to_owned(),
        times,
        whole: true,
        lines,
        of_tasks: true,
    })
}

/// The values of a task while it is runnable.
#[derive(Clone, Default)]
struct Track {
    /// One for each time that the task was runnable and had a value.
    lines: Vec<Line>,
    /// Whether the last of them goes on.
    goes_on: bool,
    asleep: bool,
    /// Since when it is runnable, if that is known.
    since_ns: Option<u64>,
}

impl Track {
    fn wakes(&mut self, now_ns: u64) {
        self.asleep = false;
        self.since_ns.get_or_insert(now_ns);
    }

    fn sleeps(&mut self, now_ns: u64) {
        (self.asleep, self.since_ns) = (true, None);
        self.hold_until(now_ns);
        self.goes_on = false;
    }

    fn sample(&mut self, now_ns: u64, value: f64) {
        if self.asleep {
            return;
        }
        if !self.goes_on {
            let since_ns = self.since_ns.unwrap_or(now_ns);
            // From the wakeup on, as if sampled then.
            self.lines.push(if since_ns < now_ns { vec![(since_ns, value)] } else { Vec::new() });
            self.goes_on = true;
        }
        if let Some(line) = self.lines.last_mut() {
            line.push((now_ns, value));
        }
    }

    /// The last value holds until then.
    fn hold_until(&mut self, now_ns: u64) {
        if let Some(line) = self.lines.last_mut().filter(|_| self.goes_on)
            && let Some((at_ns, value)) = line.last().copied()
            && at_ns < now_ns
        {
            line.push((now_ns, value));
        }
    }

    fn lines(mut self, end_ns: u64) -> Vec<Line> {
        self.hold_until(end_ns);
        self.lines
    }
}

/// Cache lines that each LLC fetched from elsewhere, where the memory was modelled and there is more than one LLC.
fn fetched(scene: &Scene, machine: &Machine, sheet: &Sheet) -> Option<Steps> {
    if machine.llc_count() < 2 {
        return None;
    }
    let sources = SOURCES.iter().filter(|(name, ..)| *name != "c2c_same_llc");
    let counters: Vec<usize> =
        sources.filter_map(|(name, ..)| scene.tables.counters.iter().position(|other| other == name)).collect();
    let stretch_ns = scene.end_ns as f64 / COUNTER_BINS as f64;
    let lines: Vec<(String, Line)> = machine
        .llcs()
        .map(|llc| {
            let cpus = || machine.cpus_of_llc(llc).iter().map(|cpu| cpu.index());
            let of = counters.iter().map(|counter| scene.record.counters.of_cpus(*counter, cpus()));
            let sums = of.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect()).unwrap_or_default();
            let rate = |sum: &u64| *sum as f64 / (stretch_ns / 1e6);
            let points = sums.iter().enumerate().map(|(bin, sum)| ((bin as f64 * stretch_ns) as u64, rate(sum)));
            let (colour, dashes) = (hex(group(llc.index())), dashes(llc.index()));
            let attributes = format!(r#"class="k" stroke="{colour}" stroke-dasharray="{dashes}""#);
            (attributes, points.take_while(|(at, _)| *at <= sheet.end_ns).collect())
        })
        .collect();
    let any = lines.iter().flat_map(|(_, points)| points).any(|(_, value)| *value > 0.0);
    let title = "cache lines/ms from elsewhere".to_owned();
    any.then_some(Steps { title, times: false, whole: false, lines, of_tasks: false })
}

fn draw_steps(svg: &mut Svg, steps: &Steps, x: &Scale, (top, bottom): (f64, f64), right: f64) {
    let values = || steps.lines.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
    let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let y = Scale::linear(low.min(0.0), high.max(low.min(0.0) + 1.0), bottom, top + 28.0);
    for (value, text) in ticks(steps, &y) {
        let class = if value == 0.0 && low < 0.0 { "axis" } else { "grid" };
        svg.line(LEFT, y.at(value), right, y.at(value), class);
        let text = if steps.times { text } else { count(value) };
        svg.text(LEFT - 10.0, y.at(value) + 8.0, Anchor::End, "m", &text);
    }
    svg.text(LEFT + 6.0, top + 20.0, Anchor::Start, "b", &steps.title);
    for (attributes, points) in &steps.lines {
        let mut line: Vec<(f64, f64)> = Vec::with_capacity(2 * points.len() + 1);
        for (at, value) in points {
            let (at, value) = (x.at(*at as f64), y.at(*value));
            line.extend(line.last().map(|(_, before)| (at, *before)));
            line.push((at, value));
        }
        if line.len() > 1 {
            svg.polyline_with(&line, attributes, "");
        }
    }
}

/// Marks of the values' axis: two at least; where the numbers of neighbours would touch only 0 and the one farthest from it.
fn ticks(steps: &Steps, y: &Scale) -> Vec<(f64, String)> {
    let of = |count: usize| {
        let mut ticks = if steps.times { time_ticks(y, count) } else { number_ticks(y, count) };
        ticks.retain(|(value, _)| !steps.whole || steps.times || value.fract() == 0.0);
        ticks
    };
    let mut found = (2..=8).map(of).find(|ticks| ticks.len() > 1).unwrap_or_else(|| of(2));
    let close = |pair: &[(f64, String)]| (y.at(pair[1].0) - y.at(pair[0].0)).abs() < LETTER_SIZE;
    let farthest = found.iter().map(|(value, _)| value.abs()).fold(0.0, f64::max);
    if found.windows(2).any(close) {
        let mut kept = false;
        // Of two that are equally far the upper one, which comes last.
        found.reverse();
        found.retain(|(value, _)| *value == 0.0 || (value.abs() == farthest && !std::mem::replace(&mut kept, true)));
        found.reverse();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_begins_at_the_wakeup_and_ends_where_the_task_sleeps() {
        let mut track = Track::default();
        track.wakes(10);
        track.sample(30, 5.0);
        track.sleeps(50);
        track.sample(50, 7.0);
        track.wakes(80);
        track.wakes(85);
        track.sample(90, 6.0);
        let lines = track.lines(100);
        assert_eq!(lines, [vec![(10, 5.0), (30, 5.0), (50, 5.0)], vec![(80, 6.0), (90, 6.0), (100, 6.0)]]);
    }

    #[test]
    fn the_axis_of_values_has_two_marks_whatever_the_values_are() {
        let of = |low: f64, high: f64, times: bool| {
            let steps = Steps { title: String::new(), times, whole: true, lines: Vec::new(), of_tasks: true };
            let marks = ticks(&steps, &Scale::linear(low, high, 120.0, 0.0));
            assert!(marks.iter().any(|(value, _)| *value == 0.0), "0 is marked from {low} to {high}: {marks:?}");
            marks.len()
        };
        for (low, high) in [(-3e6, 1e6), (-4.9e6, 4.9e6), (-700.0, 0.0), (0.0, 19.0e6), (0.0, 1.0)] {
            assert!(of(low, high, true) >= 2, "{low} to {high}");
        }
        assert_eq!(of(0.0, 1.0, false), 2, "places in a queue are whole");
    }
}
