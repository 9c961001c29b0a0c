//! The chart of a lesson: a row for each task, and below, on the same time axis, what the scheduler ranks them by or, on several LLCs,
//! the cache lines that each LLC had to fetch from elsewhere.

use warmcore_lab::scores;
use warmcore_topology::Machine;
use warmcore_trace::{Event, EventKind};

use super::Sheet;
use crate::colour::{group, hex, series};
use crate::counters::COUNTER_BINS;
use crate::figures::map::SOURCES;
use crate::figures::shortened;
use crate::scale::{Scale, number_ticks, time_ticks};
use crate::scene::Scene;
use crate::svg::{Anchor, Svg};
use crate::units::{count, duration};

/// Width of a letter of 24 pixels, about.
const LETTER: f64 = 14.5;
/// Letters of a name or of a value.
const LETTERS: usize = 13;
const LEFT: f64 = LETTER * LETTERS as f64 + 10.0;
const TOP: f64 = 4.0;

/// Values over time: each a line that keeps its value until the next one.
struct Steps {
    /// What they are.
    title: String,
    /// Whether they are times.
    times: bool,
    /// By line: class of its stroke, and time and value.
    lines: Vec<(String, Vec<(u64, f64)>)>,
}

/// The chart.
pub(super) fn draw(scene: &Scene, machine: &Machine, events: &[Event], sheet: &Sheet) -> Svg {
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
        let half = LETTER * text.chars().count() as f64 / 2.0;
        svg.text(x.at(ns).min(sheet.width - half), axis + 26.0, Anchor::Middle, "m", &text);
    }
    rows(&mut svg, scene, machine, sheet, &x);
    svg.line(LEFT, axis, right, axis, "axis");
    if let Some(steps) = steps {
        draw_steps(&mut svg, &steps, &x, (bottom + 12.0, axis - 4.0), right);
    }
    svg
}

/// A row for each task: where it ran, and where it waited.
fn rows(svg: &mut Svg, scene: &Scene, machine: &Machine, sheet: &Sheet, x: &Scale) {
    let several = machine.llc_count() > 1;
    for (task, info) in scene.tasks.iter().enumerate() {
        let y = TOP + sheet.row * task as f64;
        svg.text(LEFT - 10.0, y + sheet.row / 2.0 + 8.0, Anchor::End, "", &shortened(&info.name, LETTERS));
        let mut slices: Vec<_> =
            scene.record.slices.iter().flatten().filter(|slice| slice.task.index() == task).collect();
        slices.sort_by_key(|slice| slice.start_ns);
        let mut before = None;
        for slice in slices {
            let llc = machine.llc_of(slice.cpu);
            let fill = if several {
                format!(r#"fill="{}""#, hex(group(llc.index())))
            } else {
                format!(r#"class="c{}""#, series(task))
            };
            let waiting = if several {
                format!(r#"{fill} class="waiting""#)
            } else {
                format!(r#"class="c{} waiting""#, series(task))
            };
            let mut bar = |from_ns: u64, to_ns: u64, attributes: &str, what: &str| {
                let (from, to) = (x.at(from_ns as f64), x.at(to_ns.min(sheet.end_ns) as f64));
                if from_ns < sheet.end_ns && to > from {
                    let hover =
                        format!("{} {what} {} to {}", info.name, duration(from_ns as f64), duration(to_ns as f64));
                    svg.rect_with(from, y + 4.0, to - from, sheet.row - 8.0, attributes, &hover);
                }
            };
            if let Some(delay_ns) = slice.run_delay_ns {
                bar(slice.start_ns - delay_ns, slice.start_ns, &waiting, "waits");
            }
            bar(slice.start_ns, slice.end_ns, &fill, "runs");
            if before.replace(llc).is_some_and(|before| before != llc) && slice.start_ns < sheet.end_ns {
                let at = x.at(slice.start_ns as f64);
                svg.line(at, y, at, y + sheet.row, "moved");
            }
        }
    }
}

/// What the scheduler ranks tasks by first.
fn ranked(scene: &Scene, events: &[Event], sheet: &Sheet) -> Option<Steps> {
    let info = scores::score(scene.tables.scores.first()?)?;
    let mut lines: Vec<(String, Vec<(u64, f64)>)> =
        (0..scene.tasks.len()).map(|task| (format!("k k{}", series(task)), Vec::new())).collect();
    for event in events.iter().take_while(|event| event.time_ns <= sheet.end_ns) {
        if let EventKind::Score { score: 0, task, value } = event.kind
            && let Some((_, points)) = lines.get_mut(task.index())
        {
            points.push((event.time_ns, value as f64));
        }
    }
    let times = scene.tables.scores[0].ends_with("_ns");
    lines.iter().any(|(_, points)| points.len() > 1).then(|| Steps { title: info.title.to_owned(), times, lines })
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
    let lines: Vec<(String, Vec<(u64, f64)>)> = machine
        .llcs()
        .map(|llc| {
            let cpus = || machine.cpus_of_llc(llc).iter().map(|cpu| cpu.index());
            let of = counters.iter().map(|counter| scene.record.counters.of_cpus(*counter, cpus()));
            let sums = of.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect()).unwrap_or_default();
            let rate = |sum: &u64| *sum as f64 / (stretch_ns / 1e6);
            let points = sums.iter().enumerate().map(|(bin, sum)| ((bin as f64 * stretch_ns) as u64, rate(sum)));
            (hex(group(llc.index())), points.take_while(|(at, _)| *at <= sheet.end_ns).collect())
        })
        .collect();
    let any = lines.iter().flat_map(|(_, points)| points).any(|(_, value)| *value > 0.0);
    any.then(|| Steps { title: "cache lines/ms from elsewhere".to_owned(), times: false, lines })
}

fn draw_steps(svg: &mut Svg, steps: &Steps, x: &Scale, (top, bottom): (f64, f64), right: f64) {
    let values = || steps.lines.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
    let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let y = Scale::linear(low.min(0.0), high.max(low.min(0.0) + 1.0), bottom, top + 28.0);
    let ticks = if steps.times { time_ticks(&y, 2) } else { number_ticks(&y, 2) };
    for (value, text) in ticks {
        svg.line(LEFT, y.at(value), right, y.at(value), "grid");
        let text = if steps.times { text } else { count(value) };
        svg.text(LEFT - 10.0, y.at(value) + 8.0, Anchor::End, "m", &text);
    }
    svg.text(LEFT + 6.0, top + 20.0, Anchor::Start, "b", &steps.title);
    for (stroke, points) in &steps.lines {
        let mut line: Vec<(f64, f64)> = Vec::with_capacity(2 * points.len() + 1);
        for (at, value) in points {
            let (at, value) = (x.at(*at as f64), y.at(*value));
            line.extend(line.last().map(|(_, before)| (at, *before)));
            line.push((at, value));
        }
        let attributes = if stroke.starts_with('#') {
            format!(r#"class="k" stroke="{stroke}""#)
        } else {
            format!(r#"class="{stroke}""#)
        };
        if line.len() > 1 {
            svg.polyline_with(&line, &attributes, "");
        }
    }
}
