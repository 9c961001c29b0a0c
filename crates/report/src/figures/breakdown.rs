//! Where the time went: the tasks' lifetimes by cause, what explains the difference to the baseline, and all CPU time of
//! the machine.
//!
//! Causes and gaps are the lab's ([`warmcore_lab::time_split`]); here they are drawn.

use warmcore_lab::time_split::{CAUSES, Cause, Explains, Gap, TimeSplit, cause_title};
use warmcore_lab::trial::Trial;

use super::labels::{Key, fitting};
use super::{Csv, Figure, RowFrame, after_warm_up, scheduler_name, shortened};
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
pub fn task_time(run: &Run, wide: f64) -> Option<Figure> {
    let split = run.disk.comparison.time_split.as_ref()?;
    let causes: Vec<&Cause> = CAUSES.iter().filter(|cause| split.causes.contains(cause)).collect();
    let per_work = split.schedulers.iter().all(|scheduler| scheduler.per_work.is_some());
    let share = |s: usize, cause: &Cause| split.schedulers[s].shares.get(cause.name).copied().unwrap_or(0.0);
    let whole = |s: usize| {
        let scheduler = &split.schedulers[s];
        scheduler.per_work.filter(|_| per_work).unwrap_or(scheduler.task_time_ns)
    };
    let mut csv = Csv::new(&["scheduler", "cause", "meaning", "task_time_ns", "share"]);
    for (s, scheduler) in split.schedulers.iter().enumerate() {
        for cause in &causes {
            let ns = format!("{:.0}", share(s, cause) * scheduler.task_time_ns);
            csv.row(&[&scheduler.label, cause.name, cause.title, &ns, &share(s, cause).to_string()]);
        }
    }
    let all = 0..split.schedulers.len();
    let stacked = StackedBars {
        parts: causes.iter().map(|cause| (cause.title, cause_class(cause.name))).collect(),
        bars: all.clone().map(|s| causes.iter().map(|cause| share(s, cause) * whole(s)).collect()).collect(),
        labels: split.schedulers.iter().map(|scheduler| scheduler.label.as_str()).collect(),
        wholes: all.map(whole).collect(),
        ticks: if per_work { number_ticks } else { time_ticks },
        text: if per_work { three_digits } else { duration },
        axis: format!(
            "{}{}",
            if per_work { "task time per work (ns per ns)" } else { "task time per run" },
            mean(run, "the")
        ),
    };
    Some(Figure {
        id: "task-time".into(),
        title: "Where the tasks' time went".into(),
        caption: format!(
            "From its creation to its exit a task is on a CPU, waits for one, or is blocked. All tasks together{}{}.{} Grey: what \
             follows from other tasks and the clock.{}",
            mean(run, "all"),
            if per_work { ", per work done" } else { "" },
            after_warm_up(run),
            stacked.small_in_words()
        ),
        svg: stacked.draw(wide),
        csv: csv.finish(),
    })
}

/// That a value is the mean of `which` trials, where there are several.
fn mean(run: &Run, which: &str) -> String {
    if run.disk.record.seeds.len() > 1 { format!(", mean of {which} trials") } else { String::new() }
}

/// Parts of this share of the longest bar can be seen; those that are smaller in every bar are drawn as one.
const LEAST: f64 = 0.01;

/// Width from which a part is cut off from the one before it, so that they differ without colours too.
const LEAST_CUT: f64 = 3.0;

/// A bar for each scheduler, of parts one after the other.
struct StackedBars<'a> {
    /// What each part is, and its class.
    parts: Vec<(&'a str, String)>,
    /// The sizes of the parts, by bar.
    bars: Vec<Vec<f64>>,
    /// Schedulers.
    labels: Vec<&'a str>,
    /// Sizes of the bars.
    wholes: Vec<f64>,
    ticks: fn(&Scale, usize) -> Vec<(f64, String)>,
    text: fn(f64) -> String,
    axis: String,
}

impl StackedBars<'_> {
    fn longest(&self) -> f64 {
        self.wholes.iter().copied().fold(0.0, f64::max)
    }

    /// The parts that occur: those that can be seen in some bar, and the others.
    fn seen_and_small(&self) -> (Vec<usize>, Vec<usize>) {
        let most = |part: usize| self.bars.iter().map(|bar| bar[part]).fold(0.0, f64::max);
        let occur = (0..self.parts.len()).filter(|part| most(*part) > 0.0);
        occur.partition(|part| most(*part) >= LEAST * self.longest())
    }

    /// A sentence for the caption about what is too small to be seen.
    fn small_in_words(&self) -> String {
        let (_, small) = self.seen_and_small();
        let names: Vec<&str> = small.iter().map(|part| self.parts[*part].0).collect();
        if names.is_empty() { String::new() } else { format!(" White, each below 1 %: {}.", names.join(", ")) }
    }

    /// The figure.
    fn draw(&self, wide: f64) -> Svg {
        const KEY: f64 = 7.0;
        let frame = RowFrame::new(wide, LEFT, RIGHT);
        let (seen, small) = self.seen_and_small();
        let entry = |class: &str, words: &str| (format!(r#"class="{class}""#), words.to_owned());
        let mut entries: Vec<(String, String)> =
            seen.iter().map(|part| entry(self.parts[*part].1.as_str(), self.parts[*part].0)).collect();
        let together = match small.as_slice() {
            [only] => format!("{}, below 1 %", self.parts[*only].0),
            several => format!("{} others, each below 1 %", several.len()),
        };
        if !small.is_empty() {
            entries.push(entry(SMALL_CLASS, &together));
        }
        let key = Key::new(entries, (12.0, wide - 12.0));
        let top = KEY + key.height() + 17.0;
        let each = ROW + frame.above;
        let bottom = top + each * self.bars.len() as f64;
        let mut svg = Svg::new(wide, bottom + 44.0);
        let scale = Scale::linear(0.0, self.longest(), frame.left, frame.right);
        for (value, text) in (self.ticks)(&scale, 6) {
            let rows = (top, self.bars.len(), each);
            frame.upright(&mut svg, scale.at(value), rows, frame.above + 7.0, "grid");
            svg.text(scale.at(value), bottom + 17.0, Anchor::Middle, "m", &text);
        }
        key.draw(&mut svg, KEY);
        for (row, (bar, label)) in self.bars.iter().zip(&self.labels).enumerate() {
            let y = top + each * row as f64 + frame.above + 7.0;
            let whole = self.wholes[row];
            let end = (self.text)(whole);
            frame.name(&mut svg, (y, ROW - 14.0), "b", label, &end);
            let told = |part: usize| {
                let share = if whole > 0.0 { bar[part] / whole * 100.0 } else { 0.0 };
                format!("{} {} % ({})", self.parts[part].0, three_digits(share), (self.text)(bar[part]))
            };
            let mut from = 0.0;
            let mut draw = |size: f64, class: &str, words: &str| {
                let (a, b) = (scale.at(from), scale.at(from + size));
                svg.rect(a, y, b - a, ROW - 14.0, class, &format!("{label}: {words}"));
                if from > 0.0 && b - a >= LEAST_CUT {
                    svg.line(a, y, a, y + ROW - 14.0, "cut");
                }
                from += size;
            };
            for part in &seen {
                draw(bar[*part], &self.parts[*part].1, &told(*part));
            }
            if !small.is_empty() {
                let words: Vec<String> = small.iter().map(|part| told(*part)).collect();
                draw(small.iter().map(|part| bar[*part]).sum(), SMALL_CLASS, &words.join(", "));
            }
            frame.end(&mut svg, (scale.at(whole), y), "m", &end);
        }
        svg.line(frame.left, bottom, frame.right, bottom, "axis");
        svg.text((frame.left + frame.right) / 2.0, bottom + 36.0, Anchor::Middle, "m", &self.axis);
        svg
    }
}

/// The class of all parts together that are too small.
const SMALL_CLASS: &str = "hollow";

/// A line of a gap: a cause, or those together whose bars could not be seen.
struct DrawnGap {
    title: String,
    class: String,
    difference: f64,
    share: Option<f64>,
}

/// The lines of a gap, the largest first. Causes below [`LEAST`] of the largest, and those beyond [`MOST_LINES`], are one line at the end if
/// they are `shown` together; alone a cause that is not has no line, unless no other has one.
fn lines_of(mut causes: Vec<(&str, f64, Option<f64>)>, shown: impl Fn(f64) -> bool) -> Vec<DrawnGap> {
    causes.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let least = causes.first().map_or(0.0, |(_, most, _)| most.abs() * LEAST);
    let seen = causes.iter().take(MOST_LINES).take_while(|(_, of, _)| of.abs() >= least && shown(*of)).count();
    let (seen, small) = causes.split_at(seen.max(1).min(causes.len()));
    let small: Vec<_> = small.iter().filter(|(_, difference, _)| shown(*difference)).collect();
    let line = |(name, difference, share): &(&str, f64, Option<f64>)| {
        let (title, class) = (cause_title(name).to_owned(), cause_class(name));
        DrawnGap { title, class, difference: *difference, share: *share }
    };
    let mut lines: Vec<DrawnGap> = seen.iter().map(line).collect();
    if !small.is_empty() {
        let title = match small.as_slice() {
            [(only, ..)] => cause_title(only).to_owned(),
            several => format!("{} others together", several.len()),
        };
        let difference = small.iter().map(|(_, difference, _)| difference).sum();
        let share = small.iter().filter_map(|(.., share)| *share).reduce(|a, b| a + b);
        lines.push(DrawnGap { title, class: SMALL_CLASS.to_owned(), difference, share });
    }
    lines
}

/// Lines of a gap that are drawn; the table beside the figure has all.
const MOST_LINES: usize = 10;

/// What each cause contributes to the difference to the baseline, as bars to the left (less) and to the right (more).
/// `None` with one scheduler, or when that was not recorded.
pub fn gaps(run: &Run, wide: f64) -> Option<Figure> {
    const NAMES: f64 = 310.0;
    let frame = RowFrame::new(wide, NAMES, 110.0);
    let bar_height = 20.0 + frame.above;
    let split = run.disk.comparison.time_split.as_ref()?;
    let lines = |gap: &Gap| {
        let causes = gap.lines.iter().map(|line| (line.name, line.difference, line.share)).collect();
        lines_of(causes, |value| signed(split, value).chars().any(|c| matches!(c, '1'..='9')))
    };
    // What is not shown to differ has nothing to explain.
    let drawn: Vec<(&Gap, Vec<_>)> =
        split.gaps.iter().filter(|gap| gap.explains()).map(|gap| (gap, lines(gap))).collect();
    if drawn.is_empty() {
        return None;
    }
    let text = |value: f64| signed(split, value);
    let most = drawn.iter().flat_map(|(_, lines)| lines.iter().map(|line| line.difference.abs())).fold(0.0, f64::max);
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
        let name = fitting(&scheduler_name(&gap.label), "b", wide - 24.0);
        svg.text(12.0, y + 14.0, Anchor::Start, "b", &name);
        y += 26.0;
        for DrawnGap { title, class, difference, share } in lines {
            let (a, b) = (scale.at(0.0), scale.at(*difference));
            if frame.is_narrow() {
                svg.text(frame.left, y + 12.0, Anchor::Start, "s", &fitting(title, "s", wide - 12.0 - frame.left));
            } else {
                svg.text(NAMES, y + 12.0, Anchor::End, "s", &shortened(title, 52));
            }
            y += frame.above;
            // The line of zero leaves out the names, which are above the bars of a narrow figure.
            svg.line(scale.at(0.0), y, scale.at(0.0), y + bar_height - frame.above, "axis");
            let of_gap = share.map_or_else(
                || ", which explains nothing".to_owned(),
                |share| format!(", {} of the gap", share_of_gap(share)),
            );
            let hover = format!("{}: {title} {}{of_gap}", gap.label, text(*difference));
            svg.rect(a.min(b), y + 2.0, (b - a).abs().max(0.5), 14.0, class, &hover);
            let (at, anchor) = if *difference < 0.0 { (b - 5.0, Anchor::End) } else { (b + 5.0, Anchor::Start) };
            svg.text(at, y + 12.0, anchor, "m s", &text(*difference));
            if let Some(share) = share {
                svg.text(wide - 12.0, y + 12.0, Anchor::End, "s", &share_of_gap(*share));
            }
            y += bar_height - frame.above;
        }
        y += 8.0;
    }
    svg.text(scale.at(0.0), height - 8.0, Anchor::Middle, "m", &unit_of_gaps(split));
    svg.text(wide - 12.0, height - 8.0, Anchor::End, "m s", "of the gap");
    Some(Figure {
        id: "time-gap".into(),
        title: "The difference to the baseline, explained".into(),
        caption: format!(
            "To the left: less than the baseline; to the right: more. {} White: small causes together, which the table below has.",
            match split.explains {
                Explains::LastThread =>
                    "In the trial with the middle ratio: what the thread that ended last did and waited for until then.",
                Explains::CriticalPath =>
                    "The critical path of the trial with the middle ratio: what led from the start to the end of its last thread. A wait \
                     for another thread is what that thread did.",
                Explains::Work => "All threads together, in the trial with the middle ratio.",
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
pub fn unit_of_gaps(split: &TimeSplit) -> String {
    match split.explains {
        Explains::LastThread => "time of the thread that ended last",
        Explains::CriticalPath => "time along the critical path",
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
pub fn signed(split: &TimeSplit, value: f64) -> String {
    let size = value.abs();
    with_sign(value, if is_per_work(split) { three_digits(size) } else { duration(size) })
}

/// A share of a gap in per cent, with a minus where it counts against it.
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
    ("numa", "NUMA balancing", "numa", From::Measure("overhead_numa_ns")),
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
pub fn cpu_time(run: &Run, wide: f64) -> Option<Figure> {
    let bars: Vec<Vec<f64>> = run.disk.trials.iter().map(|trials| cpu_parts(trials)).collect::<Option<_>>()?;
    // The parts of the scheduler share its colour, each paler than the one before.
    let class = |name: &str, cause: &str| match cause {
        "scheduler" => format!("{} {name}", cause_class(cause)),
        _ => cause_class(cause),
    };
    let files: Vec<String> = PARTS.iter().map(|part| part.0).chain([REST.0]).map(|name| format!("{name}_ns")).collect();
    let heading: Vec<&str> = std::iter::once("scheduler").chain(files.iter().map(String::as_str)).collect();
    let labels: Vec<&str> = run.disk.record.schedulers.iter().map(|scheduler| scheduler.label.as_str()).collect();
    let mut csv = Csv::new(&heading);
    for (bar, label) in bars.iter().zip(&labels) {
        let cells = bar.iter().map(|ns| format!("{ns:.0}"));
        csv.row(&std::iter::once((*label).to_owned()).chain(cells).collect::<Vec<_>>());
    }
    let parts = PARTS.iter().map(|(name, title, cause, _)| (*title, class(name, cause)));
    let stacked = StackedBars {
        parts: parts.chain([(REST.1, "rest".to_owned())]).collect(),
        wholes: bars.iter().map(|bar| bar.iter().sum()).collect(),
        bars,
        labels,
        ticks: time_ticks,
        text: duration,
        axis: format!("CPU time of all CPUs{}", mean(run, "the")),
    };
    Some(Figure {
        id: "cpu-time".into(),
        title: "Where the machine's CPU time went".into(),
        caption: format!(
            "All CPU time of the machine until the end of the run{}.{} Kernel time that fell on an idle CPU is shown with its kind.{}",
            mean(run, "all"),
            after_warm_up(run),
            stacked.small_in_words()
        ),
        svg: stacked.draw(wide),
        csv: csv.finish(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacked(bars: &[[f64; 4]]) -> StackedBars<'static> {
        let parts = ["computing", "system calls", "cold caches", "page walks"];
        StackedBars {
            parts: parts.map(|name| (name, format!("q{}", name.len()))).into(),
            bars: bars.iter().map(|bar| bar.to_vec()).collect(),
            labels: vec!["eevdf", "cfs"],
            wholes: bars.iter().map(|bar| bar.iter().sum()).collect(),
            ticks: number_ticks,
            text: three_digits,
            axis: "time".into(),
        }
    }

    #[test]
    fn the_key_names_what_can_be_seen_and_the_rest_together() {
        // 2 % in one bar is seen; 0.9 % of the longest bar is not, though it is 1.8 % of its own bar.
        let of = stacked(&[[98.0, 0.1, 2.0, 0.0], [50.0, 0.9, 0.0, 0.0]]);
        assert_eq!(of.seen_and_small(), (vec![0, 2], vec![1]));
        let drawn = of.draw(760.0).inline("");
        assert!(drawn.contains(">system calls, below 1 %</text>") && drawn.contains(">cold caches</text>"), "{drawn}");
        assert!(!drawn.contains("page walks"), "what does not occur is nowhere");
        assert!(drawn.contains("<title>cfs: system calls 1.77 % (0.9)</title>"), "{drawn}");
        assert_eq!(of.small_in_words(), " White, each below 1 %: system calls.");
        let of = stacked(&[[99.0, 0.2, 0.3, 0.4], [99.0, 0.2, 0.3, 0.4]]);
        assert!(of.draw(760.0).inline("").contains(">3 others, each below 1 %</text>"));
        assert!(stacked(&[[1.0, 1.0, 1.0, 1.0]; 2]).small_in_words().is_empty());
    }

    #[test]
    fn causes_of_a_gap_that_cannot_be_seen_are_one_line() {
        let causes = vec![
            ("llc", 0.4, Some(0.004)),
            ("compute", -100.0, Some(1.0)),
            ("smt", 2.0, Some(-0.02)),
            ("l2", 0.3, None),
        ];
        let of = |causes| {
            lines_of(causes, |value| value != 0.0).into_iter().map(|line| (line.title, line.difference, line.share))
        };
        let found: Vec<_> = of(causes).collect();
        let title = |name: &str| cause_title(name).to_owned();
        assert_eq!(found[..2], [(title("compute"), -100.0, Some(1.0)), (title("smt"), 2.0, Some(-0.02))]);
        assert_eq!(found[2..], [("2 others together".to_owned(), 0.7, Some(0.004))]);
        assert_eq!(of(vec![("smt", 0.0, None), ("l2", 0.0, None)]).count(), 1, "no difference is one line");
        assert_eq!(of(Vec::new()).count(), 0);
    }

    #[test]
    fn no_line_of_the_axis_runs_through_a_name() {
        let long = "scx:scx_lavd --performance --per-cpu-dsq --virt-llc=4-4 --autopilot";
        for (wide, label) in [(360.0, "eevdf"), (360.0, long), (760.0, "eevdf"), (760.0, long)] {
            let mut of = stacked(&[[60.0, 20.0, 10.0, 0.1]; 2]);
            of.labels[0] = label;
            let faults = super::super::overlap::faults(&of.draw(wide));
            assert!(faults.is_empty(), "{wide}: {faults:?}");
        }
    }

    #[test]
    fn what_is_printed_as_nothing_has_no_sign() {
        assert_eq!([0.0004, -0.0004, 0.338, -0.338].map(share_of_gap), ["0.04 %", "-0.04 %", "33.8 %", "-33.8 %"]);
        assert_eq!([0.000_001, -0.000_001].map(share_of_gap), ["0 %", "0 %"]);
        assert_eq!(with_sign(1e-9, three_digits(1e-9)), "0");
        assert_eq!(with_sign(-2.5, three_digits(2.5)), "-2.5");
        assert_eq!(with_sign(1e3, duration(1e3)), "+1 us");
    }
}
