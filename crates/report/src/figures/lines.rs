//! Tasks as lines over time: cumulative run time, and what the scheduler ranks them by (figures 1 to 4 of Bouron et al., USENIX
//! ATC 2018).
//!
//! Few tasks have a line each; of many, each application and role has its median as a line and its range as an area.

use warmcore_lab::scores;

use super::{Axes, Csv, Figure, PANEL, file_name, shortened_group};
use crate::colour::series;
use crate::rows::groups_at_most;
use crate::scale::{Scale, number_ticks, time_ticks};
use crate::scene::{Scene, spread};
use crate::scores::{SCORE_BINS, Sample};
use crate::svg::{Anchor, CURVE_KEY, Svg};

/// Points of a line.
const POINTS: usize = 200;
/// Groups beyond this share bands: more could not be told apart.
const MOST_BANDS: usize = 24;
/// Groups that the key names.
const MOST_KEYS: usize = 12;
const LEFT: f64 = 66.0;
/// Room at the right of a plot.
const RIGHT: f64 = 16.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = TOP + 150.0;
/// Place of the key, below the axis.
const KEY: f64 = BOTTOM + 52.0;

/// Axes and key of a plot of tasks over time.
struct Plot {
    svg: Svg,
    x: Scale,
    y: Scale,
}

impl Plot {
    /// From 0 to the end of the scene, and over a range of values; `time`: the values are times.
    fn new(scene: &Scene, axes: &Axes, low: f64, high: f64, time: bool, meaning: &str) -> Self {
        let right = axes.wide - RIGHT;
        let x = Scale::linear(0.0, axes.end_ns.max(1) as f64, LEFT, right);
        let y = Scale::linear(low, high, BOTTOM, TOP);
        let mut svg = Svg::new(axes.wide, BOTTOM + 40.0);
        for (ns, text) in time_ticks(&x, (4.0 * axes.wide / PANEL) as usize) {
            svg.line(x.at(ns), TOP, x.at(ns), BOTTOM, "grid");
            svg.text(x.at(ns), BOTTOM + 17.0, Anchor::Middle, "m", &text);
        }
        let mut ticks = if time { time_ticks(&y, 5) } else { number_ticks(&y, 5) };
        // What is no time is a place or a level: a whole number.
        ticks.retain(|(value, _)| time || value.fract() == 0.0);
        for (value, text) in ticks {
            let class = if value == 0.0 && low < 0.0 { "axis" } else { "grid" };
            svg.line(LEFT, y.at(value), right, y.at(value), class);
            svg.text(LEFT - 8.0, y.at(value) + 4.0, Anchor::End, "m", &text);
        }
        svg.line(LEFT, BOTTOM, right, BOTTOM, "axis");
        svg.line(LEFT, TOP, LEFT, BOTTOM, "axis");
        svg.text((LEFT + right) / 2.0, BOTTOM + 34.0, Anchor::Middle, "m", scene.clock);
        svg.text_upwards(14.0, (TOP + BOTTOM) / 2.0, "m", meaning);
        Self { svg, x, y }
    }

    fn at(&self, time_ns: f64, value: f64) -> (f64, f64) {
        (self.x.at(time_ns), self.y.at(value))
    }

    /// One group's place in the key.
    fn key(&mut self, at: usize, label: &str) {
        if at < MOST_KEYS {
            let (x, y) = (LEFT, KEY + 15.0 * at as f64);
            self.svg.curve_key(x, y, series(at));
            self.svg.text(x + CURVE_KEY + 6.0, y, Anchor::Start, "s", &shortened_group(label, 40));
            self.svg.height = self.svg.height.max(y + 8.0);
        }
    }

    /// The median of a group and, with an `area`, its range: points without values interrupt them.
    fn band(
        &mut self,
        at: usize,
        label: &str,
        points: &[Option<Spread>],
        time_ns: &dyn Fn(usize) -> f64,
        has_area: bool,
    ) {
        let colour = series(at);
        let mut first = 0;
        for run in points.chunk_by(|a, b| a.is_some() == b.is_some()) {
            let line = |value: &dyn Fn(&Spread) -> f64| -> Vec<(f64, f64)> {
                let points = run.iter().enumerate().filter_map(|(i, p)| Some((first + i, p.as_ref()?)));
                points.map(|(i, spread)| self.at(time_ns(i), value(spread))).collect()
            };
            let (mut area, median) = (line(&|spread| spread.least), line(&|spread| spread.median));
            area.extend(line(&|spread| spread.most).into_iter().rev());
            if has_area && median.len() > 1 {
                self.svg.polygon(&area, &format!("area c{colour}"), label);
            }
            match median.as_slice() {
                [] => {}
                [(x, y)] => self.svg.line(*x, *y, *x + 1.5, *y, &format!("k k{colour}")),
                _ => self.svg.polyline(&median, &format!("k k{colour}"), &format!("{label}, median")),
            }
            first += run.len();
        }
    }
}

/// How the values of a group's tasks lie at one time.
#[derive(Clone, Copy)]
struct Spread {
    least: f64,
    median: f64,
    most: f64,
    count: usize,
}

impl Spread {
    /// Nothing of nothing.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        Some(Self { least, median: values[values.len() / 2], most, count: values.len() })
    }
}

/// Run time of every task until the end of each of [`POINTS`] parts of the scene. `None` without slices.
fn run_ns_until(scene: &Scene) -> Option<Vec<u64>> {
    let slices = scene.record.slices.as_ref().filter(|slices| !slices.is_empty())?;
    let mut run_ns = vec![0_u64; scene.tasks.len() * POINTS];
    for slice in slices.iter().filter(|slice| slice.task.index() < scene.tasks.len()) {
        for (bin, ns) in spread(slice.start_ns, slice.end_ns, scene.end_ns, POINTS) {
            run_ns[slice.task.index() * POINTS + bin] += ns;
        }
    }
    for task in run_ns.chunks_mut(POINTS) {
        (1..POINTS).for_each(|bin| task[bin] += task[bin - 1]);
    }
    Some(run_ns)
}

/// Cumulative run time of each application, all its tasks together. `None` without slices.
pub fn cumulative_by_application(index: usize, scene: &Scene) -> Option<Figure> {
    let run_ns = run_ns_until(scene)?;
    let mut applications: Vec<(&str, Vec<u64>)> = Vec::new();
    for (task, run_ns) in scene.tasks.iter().zip(run_ns.chunks(POINTS)) {
        let name = task.application_name.as_str();
        let at = applications.iter().position(|(other, _)| *other == name).unwrap_or_else(|| {
            applications.push((name, vec![0; POINTS]));
            applications.len() - 1
        });
        applications[at].1.iter_mut().zip(run_ns).for_each(|(sum, ns)| *sum += ns);
    }
    let most_ns = applications.iter().filter_map(|(_, sums)| sums.last()).max().copied().unwrap_or(0);
    let mut plot = Plot::new(
        scene,
        &Axes::of(std::slice::from_ref(scene)),
        0.0,
        most_ns.max(1) as f64,
        true,
        "run time per application",
    );
    let mut csv = Csv::new(&["application", "time_ns", "run_ns"]);
    for (at, (name, sums)) in applications.iter().enumerate() {
        // The beginning, where nobody has run yet, and the ends of the parts.
        let points = std::iter::once(0).chain(sums.iter().copied()).enumerate();
        let points: Vec<(u64, u64)> = points
            .map(|(point, run_ns)| ((u128::from(scene.end_ns) * point as u128 / POINTS as u128) as u64, run_ns))
            .collect();
        for (time_ns, run_ns) in &points {
            csv.row(&[*name, &time_ns.to_string(), &run_ns.to_string()]);
        }
        let line: Vec<_> = points.iter().map(|(time_ns, run_ns)| plot.at(*time_ns as f64, *run_ns as f64)).collect();
        plot.svg.polyline(&line, &format!("k k{}", series(at)), name);
        plot.key(at, name);
    }
    Some(Figure {
        id: format!("cumulative-applications-{index}-{}", file_name(&scene.scheduler)),
        title: format!("Cumulative run time of applications under {}", scene.scheduler),
        caption: "Run time of all tasks of an application together.".into(),
        svg: plot.svg,
        csv: csv.finish(),
    })
}

/// Cumulative run time per task. `None` without slices.
pub fn cumulative(index: usize, scene: &Scene, axes: &Axes) -> Option<Figure> {
    let run_ns = run_ns_until(scene)?;
    // Point 0 is the beginning, where nobody has run yet.
    let of = |task: usize, point: usize| if point == 0 { 0 } else { run_ns[task * POINTS + point - 1] };
    let mut plot = Plot::new(scene, axes, 0.0, axes.longest_run_ns.max(1) as f64, true, "run time per task");
    let time_ns = |point: usize| scene.end_ns as f64 * point as f64 / POINTS as f64;
    let mut csv = Csv::new(&["row", "tasks", "time_ns", "least_ns", "median_ns", "most_ns"]);
    for (at, row) in groups_at_most(&scene.tasks, MOST_BANDS).iter().enumerate() {
        let values = |point: usize| row.tasks.iter().map(|task| of(*task, point) as f64).collect();
        let points: Vec<Option<Spread>> = (0..=POINTS).map(|point| Spread::of(values(point))).collect();
        for (point, spread) in points.iter().enumerate().skip(1) {
            let Some(spread) = spread else { continue };
            let cells =
                [time_ns(point), spread.least, spread.median, spread.most].map(|value| (value as u64).to_string());
            csv.row(&[&row.label, &row.tasks.len().to_string(), &cells[0], &cells[1], &cells[2], &cells[3]]);
        }
        if row.tasks.len() > 1 && scene.tasks.len() <= axes.most_lines {
            for task in &row.tasks {
                let name: &str = &scene.tasks[*task].name;
                let line: Vec<_> = (0..=POINTS).map(|point| plot.at(time_ns(point), of(*task, point) as f64)).collect();
                plot.svg.polyline(&line, &format!("k thin k{}", series(at)), name);
                for point in 1..=POINTS {
                    let run_ns = of(*task, point).to_string();
                    csv.row(&[name, "1", &(time_ns(point) as u64).to_string(), &run_ns, &run_ns, &run_ns]);
                }
            }
        }
        plot.band(at, &row.label, &points, &time_ns, row.tasks.len() > 1);
        plot.key(at, &row.label);
    }
    Some(Figure {
        id: format!("cumulative-{index}-{}", file_name(&scene.scheduler)),
        title: format!("Cumulative run time under {}", scene.scheduler),
        caption: "By application and role: the median task as a strong line, the range of all tasks as an area, single tasks \
                  as thin lines where they are few."
            .into(),
        svg: plot.svg,
        csv: csv.finish(),
    })
}

/// What the scheduler ranks tasks by, over time: a figure per score. None where nothing was sampled.
pub fn scores(index: usize, scene: &Scene, axes: &Axes) -> Vec<Figure> {
    let names = scene.tables.scores.iter().enumerate();
    names.filter_map(|(score, name)| one_score(index, scene, axes, (score, name))).collect()
}

fn one_score(index: usize, scene: &Scene, axes: &Axes, (score, name): (usize, &str)) -> Option<Figure> {
    let tracks = &scene.record.scores;
    let tasks = 0..scene.tasks.len();
    let samples = || tasks.clone().flat_map(|task| tracks.of(score, task));
    let low = samples().map(|sample| sample.least as f64).reduce(f64::min)?;
    let high = samples().map(|sample| sample.most as f64).reduce(f64::max)?;
    let info = scores::score(name);
    let (title, meaning) = info.map_or((name, "as the scheduler defines it"), |info| (info.title, info.meaning));
    let (low, high) = (low.min(0.0), high.max(0.0));
    let mut plot = Plot::new(scene, axes, low, high, name.ends_with("_ns"), &title.to_lowercase());
    let time_ns = |bin: usize| tracks.time_ns(bin) as f64;
    let each = scene.tasks.len() <= axes.most_lines;
    let mut csv = if each {
        Csv::new(&["row", "task", "name", "time_ns", "least", "last", "most"])
    } else {
        Csv::new(&["row", "runnable_tasks", "time_ns", "least", "median", "most"])
    };
    for (at, row) in groups_at_most(&scene.tasks, MOST_BANDS).iter().enumerate() {
        let colour = series(at);
        let values = |of: fn(&Sample) -> i64| -> Vec<Vec<Option<f64>>> {
            row.tasks.iter().map(|task| tracks.values_of(score, *task, of)).collect()
        };
        let kept = [values(|sample| sample.least), values(|sample| sample.value), values(|sample| sample.most)];
        let point = |bin: usize| {
            let spread = |of: &Vec<Vec<Option<f64>>>| Spread::of(of.iter().filter_map(|values| values[bin]).collect());
            let [least, last, most] = [spread(&kept[0])?, spread(&kept[1])?, spread(&kept[2])?];
            Some(Spread { least: least.least, most: most.most, ..last })
        };
        let points: Vec<Option<Spread>> = (0..SCORE_BINS).map(point).collect();
        if each {
            for task in &row.tasks {
                let text = &scene.tasks[*task].name;
                for sample in tracks.of(score, *task) {
                    let (task, time_ns) = (task.to_string(), tracks.time_ns(sample.bin.into()).to_string());
                    let [least, last, most] = [sample.least, sample.value, sample.most].map(|value| value.to_string());
                    csv.row(&[&row.label, &task, text, &time_ns, &least, &last, &most]);
                }
                if row.tasks.len() > 1 {
                    for stay in tracks.stays(score, *task) {
                        let at = |sample: &Sample| plot.at(time_ns(sample.bin.into()), sample.value as f64);
                        let line: Vec<_> = stay.iter().map(at).collect();
                        match line.as_slice() {
                            [(x, y)] => plot.svg.line(*x, *y, *x + 1.5, *y, &format!("k thin k{colour}")),
                            _ => plot.svg.polyline(&line, &format!("k thin k{colour}"), text),
                        }
                    }
                }
            }
        } else {
            for (bin, spread) in points.iter().enumerate() {
                let Some(spread) = spread else { continue };
                let numbers = [spread.least, spread.median, spread.most].map(|value| format!("{value:.0}"));
                let (count, time) = (spread.count.to_string(), tracks.time_ns(bin).to_string());
                csv.row(&[&row.label, &count, &time, &numbers[0], &numbers[1], &numbers[2]]);
            }
        }
        plot.band(at, &row.label, &points, &time_ns, true);
        plot.key(at, &row.label);
    }
    let samples = tracks.samples_of_bin();
    Some(Figure {
        id: format!("score-{index}-{}-{}", file_name(&scene.scheduler), file_name(name)),
        title: format!("{title} under {}", scene.scheduler),
        caption: format!(
            "{}{}. The area is from the least to the greatest of about {samples} sample{} in each of {SCORE_BINS} parts of the run.",
            meaning[..1].to_uppercase(),
            &meaning[1..],
            if samples == 1 { "" } else { "s" }
        ),
        svg: plot.svg,
        csv: csv.finish(),
    })
}
