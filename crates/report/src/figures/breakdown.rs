//! Where the time went: the tasks' lifetimes by cause, what explains the difference to the baseline, and all CPU time of
//! the machine.
//!
//! Causes and gaps are the lab's ([`warmcore_lab::time_split`]); here they are drawn.

use warmcore_lab::time_split::{CAUSES, Cause, Explains, Gap, TimeSplit, cause_title};
use warmcore_lab::trial::Trial;

use super::{Csv, Figure, Frame, shortened, shortened_scheduler};
use crate::run::Run;
use crate::scale::{Scale, number_ticks, time_ticks};
use crate::svg::{Anchor, Svg};
use crate::units::{duration, three_digits};

const LEFT: f64 = 190.0;
const RIGHT: f64 = 80.0;
const ROW: f64 = 38.0;

/// The class of a cause's colour.
fn cause_class(name: &str) -> String {
    format!("q{}", CAUSES.iter().position(|cause| cause.name == name).unwrap_or(CAUSES.len() - 1))
}

/// A stacked bar of its tasks' lifetimes per scheduler. `None` when that was not recorded.
#[must_use]
pub fn task_time(run: &Run, wide: f64) -> Option<Figure> {
    let frame = Frame::new(wide, LEFT, RIGHT);
    let split = run.disk.comparison.time_split.as_ref()?;
    let causes: Vec<&Cause> = CAUSES.iter().filter(|cause| split.causes.contains(cause)).collect();
    let per_work = split.schedulers.iter().all(|scheduler| scheduler.per_work.is_some());
    let whole = |s: usize| {
        let scheduler = &split.schedulers[s];
        scheduler.per_work.filter(|_| per_work).unwrap_or(scheduler.task_time_ns)
    };
    let text = |value: f64| if per_work { three_digits(value) } else { duration(value) };
    let (columns, apart) = frame.key(2);
    let top = 24.0 + 20.0 * causes.len().div_ceil(columns) as f64;
    let bottom = top + (ROW + frame.above) * split.schedulers.len() as f64;
    let mut svg = Svg::new(wide, bottom + 44.0);
    let most = (0..split.schedulers.len()).map(whole).fold(0.0, f64::max);
    let scale = Scale::linear(0.0, most, frame.left, frame.right);
    let ticks = if per_work { number_ticks(&scale, 6) } else { time_ticks(&scale, 6) };
    for (value, text) in ticks {
        svg.line(scale.at(value), top, scale.at(value), bottom, "grid");
        svg.text(scale.at(value), bottom + 17.0, Anchor::Middle, "m", &text);
    }
    for (index, cause) in causes.iter().enumerate() {
        let (x, y) = (12.0 + (index % columns) as f64 * apart, 16.0 + (index / columns) as f64 * 20.0);
        svg.rect(x, y - 9.0, 11.0, 11.0, &cause_class(cause.name), "");
        svg.text(x + 17.0, y, Anchor::Start, "s", cause.title);
    }
    let mut csv = Csv::new(&["scheduler", "cause", "meaning", "task_time_ns", "share"]);
    for (row, scheduler) in split.schedulers.iter().enumerate() {
        let y = top + (ROW + frame.above) * row as f64 + frame.above + 7.0;
        frame.name(&mut svg, (y, ROW - 14.0), "b", &scheduler.label);
        let mut from = 0.0;
        for cause in &causes {
            let share = scheduler.shares.get(cause.name).copied().unwrap_or(0.0);
            let part = share * whole(row);
            let (a, b) = (scale.at(from), scale.at(from + part));
            let hover =
                format!("{}: {} {} % ({})", scheduler.label, cause.title, three_digits(share * 100.0), text(part));
            svg.rect(a, y, b - a, ROW - 14.0, &cause_class(cause.name), &hover);
            from += part;
            let ns = format!("{:.0}", share * scheduler.task_time_ns);
            csv.row(&[&scheduler.label, cause.name, cause.title, &ns, &share.to_string()]);
        }
        frame.end(&mut svg, (scale.at(whole(row)), y), "m", &text(whole(row)));
    }
    svg.line(frame.left, bottom, frame.right, bottom, "axis");
    let label = if per_work {
        "task time per work (ns per ns), mean of the trials"
    } else {
        "task time per run, mean of the trials"
    };
    svg.text((frame.left + frame.right) / 2.0, bottom + 36.0, Anchor::Middle, "m", label);
    Some(Figure {
        id: "task-time".into(),
        title: "Where the tasks' time went".into(),
        caption: format!(
            "From its creation to its exit a task is on a CPU, waits for one, or is blocked. All tasks together, mean of all \
             trials{}. Grey: what follows from other tasks and the clock.",
            if per_work { ", per work done" } else { "" }
        ),
        svg,
        csv: csv.finish(),
    })
}

/// Lines of a gap that are drawn; the table beside the figure has all.
const MOST_LINES: usize = 10;

/// What each cause contributes to the difference to the baseline, as bars to the left (less) and to the right (more).
/// `None` with one scheduler, or when that was not recorded.
#[must_use]
pub fn gaps(run: &Run, wide: f64) -> Option<Figure> {
    const NAMES: f64 = 310.0;
    let frame = Frame::new(wide, NAMES, 110.0);
    let bar_height = 20.0 + frame.above;
    let split = run.disk.comparison.time_split.as_ref()?;
    let lines = |gap: &Gap| -> Vec<(&'static str, f64, Option<f64>)> {
        let mut lines: Vec<_> = gap.lines.iter().map(|line| (line.name, line.difference, line.share)).collect();
        lines.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        lines.truncate(MOST_LINES);
        // A bar of no length says nothing, except that there is no difference at all.
        let visible = lines.iter().filter(|line| signed(split, line.1).chars().any(|c| matches!(c, '1'..='9'))).count();
        lines.truncate(visible.max(1));
        lines
    };
    // What is not shown to differ has nothing to explain.
    let drawn: Vec<(&Gap, Vec<_>)> =
        split.gaps.iter().filter(|gap| gap.explains()).map(|gap| (gap, lines(gap))).collect();
    if drawn.is_empty() {
        return None;
    }
    let text = |value: f64| signed(split, value);
    let most = drawn.iter().flat_map(|(_, lines)| lines.iter().map(|line| line.1.abs())).fold(0.0, f64::max);
    let scale =
        Scale::linear(-most, most, frame.left + 70.0, frame.right - if frame.is_narrow() { 116.0 } else { 0.0 });
    let height = drawn.iter().map(|(_, lines)| 34.0 + bar_height * lines.len() as f64).sum::<f64>() + 34.0;
    let mut svg = Svg::new(wide, height);
    let mut csv = Csv::new(&["scheduler", "cause", "meaning", "difference_to_baseline", "share_of_gap"]);
    for gap in &split.gaps {
        for line in &gap.lines {
            let share = line.share.map_or_else(String::new, |share| share.to_string());
            let difference = line.difference.to_string();
            csv.row(&[&gap.label, line.name, cause_title(line.name), &difference, &share]);
        }
    }
    let mut y = 8.0;
    for (gap, lines) in &drawn {
        let top = y;
        svg.text(12.0, y + 14.0, Anchor::Start, "b", &shortened_scheduler(&gap.label, 40));
        y += 26.0;
        for (name, difference, share) in lines {
            let (a, b) = (scale.at(0.0), scale.at(*difference));
            if frame.is_narrow() {
                svg.text(frame.left, y + 12.0, Anchor::Start, "s", &shortened(cause_title(name), 40));
            } else {
                svg.text(NAMES, y + 12.0, Anchor::End, "s", &shortened(cause_title(name), 52));
            }
            y += frame.above;
            let of_gap = share.map_or_else(
                || ", which explains nothing".to_owned(),
                |share| format!(", {} of the gap", share_of_gap(share)),
            );
            let hover = format!("{}: {} {}{of_gap}", gap.label, cause_title(name), text(*difference));
            svg.rect(a.min(b), y + 2.0, (b - a).abs().max(0.5), 14.0, &cause_class(name), &hover);
            let (at, anchor) = if *difference < 0.0 { (b - 5.0, Anchor::End) } else { (b + 5.0, Anchor::Start) };
            svg.text(at, y + 12.0, anchor, "m s", &text(*difference));
            if let Some(share) = share {
                svg.text(wide - 12.0, y + 12.0, Anchor::End, "s", &share_of_gap(*share));
            }
            y += bar_height - frame.above;
        }
        svg.line(scale.at(0.0), top + 22.0, scale.at(0.0), y, "axis");
        y += 8.0;
    }
    svg.text(scale.at(0.0), height - 8.0, Anchor::Middle, "m", &unit_of_gaps(split));
    svg.text(wide - 12.0, height - 8.0, Anchor::End, "m s", "of the gap");
    Some(Figure {
        id: "time-gap".into(),
        title: "The difference to the baseline, explained".into(),
        caption: format!(
            "To the left: less than the baseline; to the right: more. {} Causes that make no difference are left out; the table \
             below has them.",
            match split.explains {
                Explains::LastThread =>
                    "The thread that ended last, in the trials whose ratio is the middle one: what it did and waited for until then.",
                Explains::CriticalPath =>
                    "What the thread that ended last waited for, back to the start, in the trials whose ratio is the middle one: no \
                     waiting for other threads is in it, but what those did.",
                Explains::Work => "All threads together, in the trials whose ratio is the middle one.",
                Explains::TaskTime =>
                    "Shares of the gap count what tasks did themselves; waiting for other tasks and sleeping (grey) follow from that \
                     and explain nothing.",
            }
        ),
        svg,
        csv: csv.finish(),
    })
}

/// What a gap's numbers are.
#[must_use]
pub fn unit_of_gaps(split: &TimeSplit) -> String {
    match split.explains {
        Explains::LastThread => "time of the thread that ended last",
        Explains::CriticalPath => "time along what the end waited for",
        _ if is_per_work(split) => "task time per work (ns per ns)",
        _ => "task time per run",
    }
    .into()
}

fn is_per_work(split: &TimeSplit) -> bool {
    !matches!(split.explains, Explains::LastThread | Explains::CriticalPath)
        && split.schedulers.iter().all(|scheduler| scheduler.per_work.is_some())
}

/// A gap's number with its sign.
#[must_use]
pub fn signed(split: &TimeSplit, value: f64) -> String {
    let size = value.abs();
    with_sign(value, if is_per_work(split) { three_digits(size) } else { duration(size) })
}

/// A share of a gap in per cent, with a minus where it counts against it.
#[must_use]
pub fn share_of_gap(share: f64) -> String {
    let text = with_sign(share, format!("{} %", three_digits(share.abs() * 100.0)));
    text.trim_start_matches('+').to_owned()
}

/// The sign before a size; none before what is printed as 0.
fn with_sign(value: f64, size: String) -> String {
    let zero = !size.chars().any(|c| c.is_ascii_digit() && c != '0');
    let sign = if zero || value == 0.0 {
        ""
    } else if value < 0.0 {
        "-"
    } else {
        "+"
    };
    format!("{sign}{size}")
}

/// Where a part's time is among a trial's values.
enum From {
    /// Among the times by cause.
    Cause(&'static str),
    /// Among the measures.
    Measure(&'static str),
}

/// What CPU time is spent on: name in files, name for people, the cause whose colour it has, where its time is.
const PARTS: [(&str, &str, &str, From); 21] = [
    ("compute", "computing", "compute", From::Cause("compute")),
    ("smt", "sharing the core with a sibling", "smt", From::Cause("smt")),
    ("l2", "L2 hits", "l2", From::Cause("l2")),
    ("llc", "LLC hits", "llc", From::Cause("llc")),
    ("other_llc", "cache lines from another LLC", "other_llc", From::Cause("other_llc")),
    ("other_socket", "cache lines from another socket", "other_socket", From::Cause("other_socket")),
    ("dram_local", "memory of the own node", "dram_local", From::Cause("dram_local")),
    ("dram_remote", "memory of other nodes", "dram_remote", From::Cause("dram_remote")),
    ("bandwidth", "memory under load", "bandwidth", From::Cause("bandwidth")),
    ("hot_lines", "contended cache lines", "hot_lines", From::Cause("hot_lines")),
    ("page_walks", "walking page tables", "page_walks", From::Cause("page_walks")),
    ("spinning", "waiting actively", "spinning", From::Cause("spinning")),
    ("syscall", "system calls", "syscalls", From::Cause("syscalls")),
    ("migration", "cold caches (constant cost)", "cold_caches", From::Measure("overhead_migration_ns")),
    ("switch", "context switches", "scheduler", From::Measure("overhead_switch_ns")),
    ("wakeup", "wakeups", "scheduler", From::Measure("overhead_wakeup_ns")),
    ("tick", "ticks", "scheduler", From::Measure("overhead_tick_ns")),
    ("balance", "load balancing", "scheduler", From::Measure("overhead_balance_ns")),
    ("numa", "NUMA balancing", "scheduler", From::Measure("overhead_numa_ns")),
    ("interrupt", "interrupts", "scheduler", From::Measure("overhead_interrupt_ns")),
    ("foreign", "other processes and kernel threads", "off_cpu", From::Measure("foreign_ns")),
];
/// What is left.
const REST: (&str, &str) = ("idle", "idle, and what is not attributed");

/// Mean CPU time of a scheduler's trials by part, the rest last; `None` when that was not recorded.
fn cpu_parts(trials: &[Trial]) -> Option<Vec<f64>> {
    let mean = |value: &dyn Fn(&Trial) -> Option<f64>| {
        let values: Vec<f64> = trials.iter().filter_map(value).collect();
        (values.len() == trials.len()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let foreign = mean(&|trial| trial.measure("foreign_ns")).unwrap_or(0.0);
    let total = mean(&|trial| trial.measure("run_ns"))? + foreign + mean(&|trial| trial.measure("idle_ns"))?;
    let mut parts = Vec::with_capacity(PARTS.len() + 1);
    for (.., from) in &PARTS {
        parts.push(match from {
            From::Cause(name) => mean(&|trial| trial.time_of(name))?,
            From::Measure(name) => mean(&|trial| trial.measure(name)).unwrap_or(0.0),
        });
    }
    parts.push((total - parts.iter().sum::<f64>()).max(0.0));
    Some(parts)
}

/// A stacked bar of the machine's CPU time per scheduler. `None` when that was not recorded.
#[must_use]
pub fn cpu_time(run: &Run, wide: f64) -> Option<Figure> {
    let frame = Frame::new(wide, LEFT, RIGHT);
    let bars: Vec<Vec<f64>> = run.disk.trials.iter().map(|trials| cpu_parts(trials)).collect::<Option<_>>()?;
    let names: Vec<&str> = PARTS.iter().map(|part| part.1).chain([REST.1]).collect();
    let occurs: Vec<usize> = (0..names.len()).filter(|part| bars.iter().any(|bar| bar[*part] > 0.0)).collect();
    // The parts of the scheduler share its colour, each paler than the one before.
    let class = |part: usize| match PARTS.get(part) {
        Some((name, _, "scheduler", _)) => format!("q12 {name}"),
        Some((_, _, cause, _)) => cause_class(cause),
        None => "rest".to_owned(),
    };
    let (columns, apart) = frame.key(3);
    let top = 24.0 + 20.0 * occurs.len().div_ceil(columns) as f64;
    let bottom = top + (ROW + frame.above) * bars.len() as f64;
    let mut svg = Svg::new(wide, bottom + 44.0);
    let most = bars.iter().map(|bar| bar.iter().sum::<f64>()).fold(0.0, f64::max);
    let scale = Scale::linear(0.0, most, frame.left, frame.right);
    for (value, text) in time_ticks(&scale, 6) {
        svg.line(scale.at(value), top, scale.at(value), bottom, "grid");
        svg.text(scale.at(value), bottom + 17.0, Anchor::Middle, "m", &text);
    }
    for (index, part) in occurs.iter().enumerate() {
        let (x, y) = (12.0 + (index % columns) as f64 * apart, 16.0 + (index / columns) as f64 * 20.0);
        svg.rect(x, y - 9.0, 11.0, 11.0, &class(*part), "");
        svg.text(x + 17.0, y, Anchor::Start, "s", names[*part]);
    }
    let files: Vec<String> = PARTS.iter().map(|part| part.0).chain([REST.0]).map(|name| format!("{name}_ns")).collect();
    let heading: Vec<&str> = std::iter::once("scheduler").chain(files.iter().map(String::as_str)).collect();
    let mut csv = Csv::new(&heading);
    for (row, bar) in bars.iter().enumerate() {
        let label = &run.disk.record.schedulers[row].label;
        let y = top + (ROW + frame.above) * row as f64 + frame.above + 7.0;
        let whole: f64 = bar.iter().sum();
        frame.name(&mut svg, (y, ROW - 14.0), "b", label);
        let mut from = 0.0;
        for part in &occurs {
            let ns = bar[*part];
            let (a, b) = (scale.at(from), scale.at(from + ns));
            let share = if whole > 0.0 { ns / whole * 100.0 } else { 0.0 };
            let hover = format!("{label}: {} {} ({} %)", names[*part], duration(ns), three_digits(share));
            svg.rect(a, y, b - a, ROW - 14.0, &class(*part), &hover);
            from += ns;
        }
        frame.end(&mut svg, (scale.at(whole), y), "m", &duration(whole));
        let cells = bar.iter().map(|ns| format!("{ns:.0}"));
        csv.row(&std::iter::once(label.clone()).chain(cells).collect::<Vec<_>>());
    }
    svg.line(frame.left, bottom, frame.right, bottom, "axis");
    let label = "CPU time of all CPUs, mean of the trials";
    svg.text((frame.left + frame.right) / 2.0, bottom + 36.0, Anchor::Middle, "m", label);
    Some(Figure {
        id: "cpu-time".into(),
        title: "Where the machine's CPU time went".into(),
        caption: "All CPU time of the machine from the start to the end of the run, mean of all trials. Kernel time that fell \
                  on an idle CPU is shown with its kind."
            .into(),
        svg,
        csv: csv.finish(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_as_nothing_has_no_sign() {
        assert_eq!([0.0004, -0.0004, 0.338, -0.338].map(share_of_gap), ["0.04 %", "-0.04 %", "33.8 %", "-33.8 %"]);
        assert_eq!([0.000_001, -0.000_001].map(share_of_gap), ["0 %", "0 %"]);
        assert_eq!(with_sign(1e-9, three_digits(1e-9)), "0");
        assert_eq!(with_sign(-2.5, three_digits(2.5)), "-2.5");
        assert_eq!(with_sign(1e3, duration(1e3)), "+1 us");
    }
}
