//! Counters over time: one small plot per counter, one line per LLC.

use warmcore_topology::Machine;

use super::labels::{Key, LINE, lines_within};
use super::{Csv, Figure, file_name};
use crate::colour::{dashes, group, hex};
use crate::counters::COUNTER_BINS;
use crate::scale::{Scale, time_ticks};
use crate::scene::Scene;
use crate::svg::{Anchor, Svg};
use crate::units::count;

/// Upper end of the key.
const KEY: f64 = 8.0;
/// Height of a counter's part: its title, on two lines where it is long, its plot, and its axis.
const HEIGHT: f64 = HEAD + PLOT + 34.0;
const HEAD: f64 = 30.0;
const PLOT: f64 = 60.0;
/// Width of a counter's part, at least.
const PART: f64 = 180.0;

/// What every LLC's CPUs counted, per second, over time, so wide. `None` when the trial has no counters.
pub fn over_time(index: usize, scene: &Scene, machine: &Machine, wide: f64) -> Option<Figure> {
    let sums = &scene.record.counters;
    let counters: Vec<usize> = (0..scene.tables.counters.len()).filter(|counter| sums.total(*counter) > 0).collect();
    if counters.is_empty() {
        return None;
    }
    let columns = (wide / PART) as usize;
    let each = wide / columns as f64;
    let rows = counters.len().div_ceil(columns);
    let key = Key::of_curves_of_llcs(scene, machine, (44.0, wide - 16.0));
    let plots = KEY + key.height() + 10.0;
    let mut svg = Svg::new(wide, plots + HEIGHT * rows as f64 + 10.0);
    let mut csv = Csv::new(&["counter", "llc", "start_ns", "end_ns", "counted"]);
    key.draw(&mut svg, KEY);
    for (position, counter) in counters.iter().enumerate() {
        let name = &scene.tables.counters[*counter];
        let of_llc: Vec<Vec<u64>> = machine
            .llcs()
            .map(|llc| sums.of_cpus(*counter, machine.cpus_of_llc(llc).iter().map(|cpu| cpu.index())))
            .collect();
        for (llc, values) in of_llc.iter().enumerate() {
            for (bin, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
                let (start, end) = (sums.edge_ns(bin).to_string(), sums.edge_ns(bin + 1).to_string());
                csv.row(&[name, &llc.to_string(), &start, &end, &value.to_string()]);
            }
        }
        let left = 44.0 + (position % columns) as f64 * each;
        let right = left + each - 56.0;
        let top = plots + HEIGHT * (position / columns) as f64 + HEAD;
        let bottom = top + PLOT;
        plot(&mut svg, scene, name, &of_llc, (left, right, top, bottom));
    }
    Some(Figure {
        id: format!("counters-{index}-{}", file_name(&scene.scheduler)),
        title: format!("Counters over time under {}", scene.scheduler),
        caption: "What the CPUs of each LLC counted per second of the run, in one trial. Samples are taken at ticks, or in a recording at switches, and \
                  spread over the time since the one before. Nanoseconds per second are CPUs' worth of time."
            .into(),
        svg,
        csv: csv.finish(),
    })
}

/// One counter's plot.
fn plot(
    svg: &mut Svg,
    scene: &Scene,
    name: &str,
    of_llc: &[Vec<u64>],
    (left, right, top, bottom): (f64, f64, f64, f64),
) {
    let seconds = scene.end_ns as f64 / COUNTER_BINS as f64 / 1e9;
    let rate = |value: u64| value as f64 / seconds;
    let most = of_llc.iter().flatten().copied().max().unwrap_or(0);
    let x = Scale::linear(0.0, scene.end_ns as f64, left, right);
    let y = Scale::linear(0.0, rate(most), bottom, top);
    let title = lines_within(&format!("{name} per second"), "b s", right - left + 14.0);
    for (at, line) in title.iter().rev().enumerate() {
        svg.text(left - 14.0, top - 10.0 - LINE * at as f64, Anchor::Start, "b s", line);
    }
    for tick in y.ticks(3) {
        svg.line(left, y.at(tick), right, y.at(tick), "grid");
        svg.text(left - 6.0, y.at(tick) + 4.0, Anchor::End, "m s", &count(tick));
    }
    let most_right = svg.width - 20.0;
    for (ns, text) in time_ticks(&x, 2) {
        svg.line(x.at(ns), bottom, x.at(ns), bottom + 3.0, "axis");
        svg.text(x.at(ns).min(most_right), bottom + 14.0, Anchor::Middle, "m s", &text);
    }
    svg.line(left, bottom, right, bottom, "axis");
    for (llc, values) in of_llc.iter().enumerate().filter(|(_, values)| values.iter().any(|value| *value > 0)) {
        let middle = |bin: usize| x.at(scene.end_ns as f64 * (bin as f64 + 0.5) / COUNTER_BINS as f64);
        let points: Vec<(f64, f64)> =
            values.iter().enumerate().map(|(bin, value)| (middle(bin), y.at(rate(*value)))).collect();
        let attributes = format!(r#"class="k" stroke="{}" stroke-dasharray="{}""#, hex(group(llc)), dashes(llc));
        svg.polyline_with(&points, &attributes, &format!("{name}, llc{llc}"));
    }
}
