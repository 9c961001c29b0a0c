//! Where the time went: all CPU time of the machine, by what it was spent on.

use warmcore_lab::trial::Trial;

use super::{Csv, Figure, WIDTH, shortened};
use crate::colour::series;
use crate::run::Run;
use crate::scale::{Scale, time_ticks};
use crate::svg::{Anchor, Svg};
use crate::units::{duration, three_digits};

/// What CPU time is spent on: name in files, name for people, measure.
const PARTS: [(&str, &str, &str); 7] = [
    ("work", "programs' own work", "work_ns"),
    ("syscall", "system calls", "overhead_syscall_ns"),
    ("switch", "context switches", "overhead_switch_ns"),
    ("wakeup", "wakeups", "overhead_wakeup_ns"),
    ("tick", "ticks", "overhead_tick_ns"),
    ("balance", "load balancing", "overhead_balance_ns"),
    ("migration", "cold caches after migrations", "overhead_migration_ns"),
];
/// What is left.
const REST: (&str, &str) = ("idle", "idle, and what is not attributed");

/// Mean CPU time of a scheduler's trials by part; the rest last.
#[derive(Clone, Debug)]
pub struct Breakdown {
    /// Label of the scheduler.
    pub scheduler: String,
    /// Nanoseconds by part, in the order of [`names`].
    pub parts: Vec<f64>,
}

/// Names of the parts, for people.
#[must_use]
pub fn names() -> Vec<&'static str> {
    PARTS.iter().map(|part| part.1).chain([REST.1]).collect()
}

/// Where the time of each scheduler's trials went; `None` when that was not recorded.
#[must_use]
pub fn breakdowns(run: &Run) -> Option<Vec<Breakdown>> {
    let of = |trials: &Vec<Trial>| {
        let mean = |name: &str| {
            let values: Vec<f64> = trials.iter().filter_map(|trial| trial.measure(name)).collect();
            (values.len() == trials.len()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let total = mean("run_ns")? + mean("idle_ns")?;
        let mut parts: Vec<f64> = PARTS.iter().map(|(_, _, measure)| mean(measure).unwrap_or(0.0)).collect();
        parts.push((total - parts.iter().sum::<f64>()).max(0.0));
        Some(Breakdown { scheduler: trials[0].scheduler.clone(), parts })
    };
    run.disk.trials.iter().map(of).collect()
}

/// A stacked bar per scheduler.
#[must_use]
pub fn cpu_time(run: &Run) -> Figure {
    const LEFT: f64 = 190.0;
    const RIGHT: f64 = 80.0;
    const ROW: f64 = 38.0;
    const TOP: f64 = 66.0;
    let breakdowns = breakdowns(run).unwrap_or_default();
    let names = names();
    let height = TOP + ROW * breakdowns.len() as f64 + 44.0;
    let bottom = height - 44.0;
    let mut svg = Svg::new(WIDTH, height);
    let total = |b: &Breakdown| b.parts.iter().sum::<f64>();
    let most = breakdowns.iter().map(total).fold(0.0, f64::max);
    let scale = Scale::linear(0.0, most, LEFT, WIDTH - RIGHT);
    for (value, text) in time_ticks(&scale, 6) {
        let x = scale.at(value);
        svg.line(x, TOP, x, bottom, "grid");
        svg.text(x, bottom + 17.0, Anchor::Middle, "m", &text);
    }
    legend(&mut svg, &names);
    let files: Vec<String> = PARTS.iter().map(|part| part.0).chain([REST.0]).map(|name| format!("{name}_ns")).collect();
    let heading: Vec<&str> = std::iter::once("scheduler").chain(files.iter().map(String::as_str)).collect();
    let mut csv = Csv::new(&heading);
    for (row, breakdown) in breakdowns.iter().enumerate() {
        let y = TOP + ROW * row as f64 + 7.0;
        let whole = total(breakdown);
        svg.text(LEFT - 14.0, y + 16.0, Anchor::End, "b", &shortened(&breakdown.scheduler, 24));
        let mut from = 0.0;
        for (index, (part, name)) in breakdown.parts.iter().zip(&names).enumerate() {
            let (a, b) = (scale.at(from), scale.at(from + part));
            let share = if whole > 0.0 { part / whole * 100.0 } else { 0.0 };
            let hover = format!("{}: {name} {} ({} %)", breakdown.scheduler, duration(*part), three_digits(share));
            svg.rect(a, y, b - a, ROW - 14.0, &class(index, names.len()), &hover);
            from += part;
        }
        svg.text(scale.at(whole) + 8.0, y + 16.0, Anchor::Start, "m", &duration(whole));
        let cells = breakdown.parts.iter().map(|part| format!("{part:.0}"));
        csv.row(&std::iter::once(breakdown.scheduler.clone()).chain(cells).collect::<Vec<_>>());
    }
    svg.line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis");
    let label =
        if breakdowns.is_empty() { "not recorded (--trace none)" } else { "CPU time of all CPUs, mean of the trials" };
    svg.text((LEFT + WIDTH - RIGHT) / 2.0, height - 8.0, Anchor::Middle, "m", label);
    Figure {
        id: "cpu-time".into(),
        title: "Where the CPU time went".into(),
        caption:
            "All CPU time of the machine from the start to the end of the run, mean of all trials. Kernel time that \
                  fell on an idle CPU is shown with its kind."
                .into(),
        svg,
        csv: csv.finish(),
    }
}

fn class(index: usize, parts: usize) -> String {
    if index + 1 == parts { "empty".into() } else { format!("c{}", series(index)) }
}

fn legend(svg: &mut Svg, names: &[&str]) {
    for (index, name) in names.iter().enumerate() {
        let (x, y) = (12.0 + (index % 4) as f64 * 186.0, 16.0 + (index / 4) as f64 * 20.0);
        svg.rect(x, y - 9.0, 11.0, 11.0, &class(index, names.len()), "");
        svg.text(x + 17.0, y, Anchor::Start, "s", name);
    }
}
