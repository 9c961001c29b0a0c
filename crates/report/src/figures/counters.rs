//! Counters over time: one small plot per counter, one line per LLC.

use warmcore_topology::Machine;

use super::{Csv, Figure, PANEL, file_name};
use crate::colour::{group, hex};
use crate::counters::COUNTER_BINS;
use crate::scale::{Scale, time_ticks};
use crate::scene::Scene;
use crate::svg::{Anchor, Svg};
use crate::units::count;

const TOP: f64 = 34.0;
const HEIGHT: f64 = 112.0;

/// What every LLC's CPUs counted, per second, over time. `None` when the trial has no counters.
#[must_use]
pub fn over_time(index: usize, scene: &Scene, machine: &Machine) -> Option<Figure> {
    let sums = &scene.record.counters;
    let counters: Vec<usize> = (0..scene.tables.counters.len()).filter(|counter| sums.total(*counter) > 0).collect();
    if counters.is_empty() {
        return None;
    }
    let llcs = machine.llc_count();
    let rows = counters.len().div_ceil(2);
    let mut svg = Svg::new(PANEL, TOP + HEIGHT * rows as f64 + 10.0);
    let mut csv = Csv::new(&["counter", "llc", "start_ns", "end_ns", "counted"]);
    let shown = llcs.min(12);
    for llc in 0..shown {
        let x = 44.0 + llc as f64 * ((PANEL - 60.0) / shown as f64).min(70.0);
        svg.rect_with(x, 8.0, 11.0, 11.0, &format!(r#"fill="{}""#, hex(group(llc))), "");
        svg.text(x + 15.0, 17.5, Anchor::Start, "s", &format!("llc{llc}"));
    }
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
        let left = 44.0 + (position % 2) as f64 * (PANEL / 2.0);
        let right = left + PANEL / 2.0 - 56.0;
        let top = TOP + HEIGHT * (position / 2) as f64 + 18.0;
        let bottom = top + HEIGHT - 52.0;
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
    svg.text(left - 14.0, top - 6.0, Anchor::Start, "b s", &format!("{name} per second"));
    for tick in y.ticks(3) {
        svg.line(left, y.at(tick), right, y.at(tick), "grid");
        svg.text(left - 6.0, y.at(tick) + 4.0, Anchor::End, "m s", &count(tick));
    }
    for (ns, text) in time_ticks(&x, 2) {
        svg.line(x.at(ns), bottom, x.at(ns), bottom + 3.0, "axis");
        svg.text(x.at(ns), bottom + 14.0, Anchor::Middle, "m s", &text);
    }
    svg.line(left, bottom, right, bottom, "axis");
    for (llc, values) in of_llc.iter().enumerate().filter(|(_, values)| values.iter().any(|value| *value > 0)) {
        let middle = |bin: usize| x.at(scene.end_ns as f64 * (bin as f64 + 0.5) / COUNTER_BINS as f64);
        let points: Vec<(f64, f64)> =
            values.iter().enumerate().map(|(bin, value)| (middle(bin), y.at(rate(*value)))).collect();
        let attributes = format!(r#"class="k" stroke="{}""#, hex(group(llc)));
        svg.polyline_with(&points, &attributes, &format!("{name}, llc{llc}"));
    }
}
