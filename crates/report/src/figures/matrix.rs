//! Who ran where: migrations by distance, tasks × CPUs, tasks × LLCs, and moves between LLCs.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use warmcore_lab::experiment::virtual_llc_histogram;
use warmcore_topology::{CpuId, Machine, Relation, VirtualLlcs, format_cpu_list};

use super::labels::Key;
use super::{Axes, Csv, Figure, NARROW, PANEL, RowFrame, after_warm_up, file_name, shortened, shortened_group};
use crate::colour::{group, hex, series, step};
use crate::rows::{Row, cpu_order, rows};
use crate::run::{Run, median};
use crate::scale::Scale;
use crate::scene::Scene;
use crate::svg::{Anchor, Svg, text_width};
use crate::units::{count, duration, three_digits};

/// Rows of a heatmap before tasks share rows.
const MOST_ROWS: usize = 96;
const LEFT: f64 = 176.0;

/// Migrations (ran) by what the two CPUs share: median of the trials. Where LLCs are divided, moves within one are two rows. `None` when
/// that was not recorded.
pub fn migrations(run: &Run, wide: f64) -> Option<Figure> {
    let experiment = &run.disk.experiment;
    let machines = (0..experiment.schedulers.len()).map(|scheduler| &experiment.machine_of(scheduler).value);
    let relations: BTreeSet<Relation> = machines.flat_map(Machine::relations).collect();
    let bar = |key: &str, words: &str| BarRow {
        measure: format!("migrations_ran_{key}"),
        key: key.to_owned(),
        words: words.to_owned(),
    };
    let divided = run.disk.virtual_llcs().is_some();
    let relations = relations.into_iter().filter(|relation| *relation != Relation::SameCpu);
    let bars: Vec<BarRow> = relations
        .flat_map(|relation| match relation {
            Relation::SameLlc if divided => vec![
                bar("same_virtual_llc", "same virtual LLC"),
                bar("other_virtual_llc", "other virtual LLC, same LLC"),
            ],
            _ => vec![bar(relation.name(), relation.description())],
        })
        .collect();
    let words = BarWords {
        id: "migrations",
        title: "Migrations by distance",
        caption: format!(
            "Consecutive slices of one task on different CPUs, by the closest thing the two CPUs share.{}",
            after_warm_up(run)
        ),
        heading: ["relation", "scheduler", "migrations_ran_median"],
        counted: "migrations",
        axis: "migrations (ran) per run, median of the trials",
    };
    bars_of(run, &bars, words, wide)
}

/// How many tasks moved between virtual LLCs how often: median of the trials. `None` where nobody asked for virtual LLCs.
pub fn crossings(run: &Run, wide: f64) -> Option<Figure> {
    let cores = run.disk.virtual_llc_size()?;
    let bar = |(measure, words): (String, String)| BarRow { key: words.clone(), measure, words };
    let bars: Vec<BarRow> = virtual_llc_histogram().into_iter().map(bar).collect();
    let words = BarWords {
        id: "crossings",
        title: "Transitions between virtual LLCs",
        caption: format!(
            "How many tasks ran next in another virtual LLC (LLCs divided by {cores} cores) than before, by how often they did.{}",
            after_warm_up(run)
        ),
        heading: ["transitions", "scheduler", "tasks_median"],
        counted: "tasks",
        axis: "tasks per run, median of the trials",
    };
    bars_of(run, &bars, words, wide)
}

/// A row of bars: the measure it shows, and its name in the data and in words.
struct BarRow {
    measure: String,
    key: String,
    words: String,
}

/// What a figure of bars is called.
struct BarWords {
    id: &'static str,
    title: &'static str,
    caption: String,
    heading: [&'static str; 3],
    counted: &'static str,
    axis: &'static str,
}

/// A bar for each scheduler in each row.
fn bars_of(run: &Run, rows: &[BarRow], words: BarWords, wide: f64) -> Option<Figure> {
    const RIGHT: f64 = 90.0;
    let frame = RowFrame::new(wide, LEFT, RIGHT);
    const BAR: f64 = 13.0;
    let value = |scheduler: usize, row: &BarRow| {
        let values: Vec<f64> =
            run.disk.trials[scheduler].iter().filter_map(|trial| trial.measure(&row.measure)).collect();
        median(&values)
    };
    let labels: Vec<&str> = run.disk.record.schedulers.iter().map(|scheduler| scheduler.label.as_str()).collect();
    let measured = |scheduler: usize| {
        run.disk.trials[scheduler].iter().any(|trial| {
            trial.measure("migrations_ran").is_some()
                && rows.iter().any(|row| trial.measures.contains_key(&row.measure))
        })
    };
    if rows.is_empty() || !(0..labels.len()).any(measured) {
        return None;
    }
    let (columns, apart) = frame.key(3);
    let top = 14.0 + 20.0 * labels.len().div_ceil(columns) as f64;
    let block = BAR * labels.len() as f64 + 12.0 + frame.above;
    let height = top + block * rows.len() as f64 + 40.0;
    let bottom = height - 40.0;
    let most = rows.iter().flat_map(|row| (0..labels.len()).filter_map(|s| value(s, row))).fold(1.0, f64::max);
    let scale = Scale::linear(0.0, most, frame.left, frame.right - if frame.is_narrow() { 40.0 } else { 0.0 });
    let mut svg = Svg::new(wide, height);
    for tick in scale.ticks(6) {
        frame.upright(&mut svg, scale.at(tick), (top, rows.len(), block), frame.above + 4.0, "grid");
        svg.text(scale.at(tick), bottom + 17.0, Anchor::Middle, "m", &count(tick));
    }
    for (index, label) in labels.iter().enumerate() {
        let (x, y) = (12.0 + (index % columns) as f64 * apart, 16.0 + (index / columns) as f64 * 20.0);
        svg.rect(x, y - 9.0, 11.0, 11.0, &format!("c{}", series(index)), "");
        svg.text(x + 17.0, y, Anchor::Start, "s", &shortened(label, 34));
    }
    let mut csv = Csv::new(&words.heading);
    for (position, row) in rows.iter().enumerate() {
        let y = top + block * position as f64 + 6.0 + frame.above;
        frame.name(&mut svg, (y, BAR * labels.len() as f64), "", &row.words, "");
        for (scheduler, label) in labels.iter().enumerate() {
            let Some(value) = value(scheduler, row) else { continue };
            csv.row(&[row.key.clone(), (*label).to_owned(), value.to_string()]);
            let at = y + BAR * scheduler as f64;
            let hover = format!("{label}: {} {}, {}", count(value), words.counted, row.words);
            svg.rect(
                frame.left,
                at,
                scale.at(value) - frame.left,
                BAR - 2.0,
                &format!("c{}", series(scheduler)),
                &hover,
            );
            svg.text(scale.at(value) + 6.0, at + 9.5, Anchor::Start, "m s", &count(value));
        }
    }
    frame.upright(&mut svg, frame.left, (top, rows.len(), block), frame.above + 4.0, "axis");
    svg.text((frame.left + frame.right) / 2.0, height - 6.0, Anchor::Middle, "m", words.axis);
    let BarWords { id, title, caption, .. } = words;
    Some(Figure { id: id.into(), title: title.into(), caption, svg, csv: csv.finish() })
}

/// Share of each row's run time per column: numbers, then a picture.
struct Heat<'a> {
    rows: &'a [Row],
    columns: usize,
    /// Nanoseconds by row, then by column.
    run_ns: Vec<u64>,
}

impl<'a> Heat<'a> {
    fn new(scene: &Scene, rows: &'a [Row], columns: usize, column_of: impl Fn(CpuId) -> usize) -> Self {
        let mut run_ns = vec![0; rows.len() * columns];
        for (position, row) in rows.iter().enumerate() {
            for task in &row.tasks {
                for (cpu, ns) in scene.record.cpu_run_ns.get(*task).map_or(&[][..], Vec::as_slice) {
                    run_ns[position * columns + column_of(CpuId(*cpu))] += ns;
                }
            }
        }
        Self { rows, columns, run_ns }
    }

    fn of_row(&self, row: usize) -> &[u64] {
        &self.run_ns[row * self.columns..][..self.columns]
    }

    /// Share of its row's run time.
    fn share(&self, row: usize, column: usize) -> f64 {
        let whole: u64 = self.of_row(row).iter().sum();
        if whole == 0 { 0.0 } else { self.of_row(row)[column] as f64 / whole as f64 }
    }

    fn largest_share(&self) -> f64 {
        let all = (0..self.rows.len()).flat_map(|row| (0..self.columns).map(move |column| (row, column)));
        all.map(|(row, column)| self.share(row, column)).fold(0.0, f64::max)
    }

    fn row_height(&self, whole: f64) -> f64 {
        (whole / self.rows.len().max(1) as f64).clamp(2.5, 18.0)
    }

    fn label_rows(&self, svg: &mut Svg, (left, top): (f64, f64), height: f64) {
        let every = (11.0 / height).ceil() as usize;
        for (position, row) in self.rows.iter().enumerate().step_by(every.max(1)) {
            let y = top + height * (position as f64 + 0.5) + 3.5;
            svg.text(left - 8.0, y, Anchor::End, "s", &shortened_group(&row.label, (left / 6.3) as usize));
        }
    }
}

/// Tasks × CPUs: where each spent its run time. Lines part virtual LLCs, where there are some.
pub fn thread_cpu(
    index: usize,
    scene: &Scene,
    machine: &Machine,
    virtual_llcs: Option<&VirtualLlcs>,
    wide: f64,
) -> Figure {
    const TOP: f64 = 34.0;
    let left = if wide < NARROW { 110.0 } else { LEFT };
    let rows = rows(&scene.tasks, MOST_ROWS);
    let order = cpu_order(machine);
    let mut position = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, cpu)| position[cpu.index()] = at);
    let heat = Heat::new(scene, &rows, order.len(), |cpu| position[cpu.index()]);
    let most = heat.largest_share();
    let mut csv = Csv::new(&["row", "cpu", "llc", "run_ns", "share_of_row"]);
    for (row, entry) in rows.iter().enumerate() {
        for (column, cpu) in order.iter().enumerate() {
            let (share, run_ns) = (heat.share(row, column), heat.of_row(row)[column]);
            if run_ns > 0 {
                csv.row(&[
                    entry.label.clone(),
                    machine.os_index(*cpu).to_string(),
                    machine.llc_of(*cpu).0.to_string(),
                    run_ns.to_string(),
                    format!("{share:.6}"),
                ]);
            }
        }
    }
    let each = heat.row_height(420.0);
    let body = each * rows.len() as f64;
    let height = TOP + body + 62.0;
    let width = wide - left - 24.0;
    let mut svg = Svg::new(wide, height);
    svg.magnitudes([left, TOP, width, body], (order.len(), rows.len()), |column, row| {
        (heat.of_row(row)[column] > 0).then(|| heat.share(row, column) / most.max(f64::MIN_POSITIVE))
    });
    llc_bands(&mut svg, machine, &order, (left, width), (TOP, body));
    if let Some(division) = virtual_llcs {
        virtual_llc_lines(&mut svg, division, &order, (left, width), (TOP, body));
    }
    heat.label_rows(&mut svg, (left, TOP), each);
    svg.rect(left, TOP, width, body, "frame", "");
    let cpus = match machine.has_dense_numbers() {
        true => format!("CPUs 0–{}, by LLC", order.len().saturating_sub(1)),
        false => format!("CPUs {}, by LLC", format_cpu_list(machine.cpus().map(|cpu| machine.os_index(cpu)))),
    };
    svg.text(left + width / 2.0, TOP + body + 18.0, Anchor::Middle, "m", &cpus);
    colour_bar(
        &mut svg,
        (left.min(70.0), TOP + body + 34.0),
        (0.0, "0 %"),
        &format!("{} %", three_digits(most * 100.0)),
        "of the row's run time",
    );
    Figure {
        id: format!("thread-cpu-{index}-{}", file_name(&scene.scheduler)),
        title: format!("Tasks × CPUs under {}", scene.scheduler),
        caption: format!(
            "Share of each task's run time on each CPU, one trial of {}. {}",
            duration(scene.end_ns as f64),
            shared_rows(&rows, scene)
        ),
        svg,
        csv: csv.finish(),
    }
}

fn shared_rows(rows: &[Row], scene: &Scene) -> String {
    if rows.len() == scene.tasks.len() {
        return String::new();
    }
    let (tasks, rows) = (scene.tasks.len(), rows.len());
    format!("{tasks} tasks share {rows} row{} by application and role.", if rows == 1 { "" } else { "s" })
}

/// Coloured bands over the columns, one per LLC, with separating lines.
fn llc_bands(svg: &mut Svg, machine: &Machine, order: &[CpuId], (left, width): (f64, f64), (top, body): (f64, f64)) {
    let step = width / order.len().max(1) as f64;
    let mut from = 0;
    while from < order.len() {
        let llc = machine.llc_of(order[from]);
        let cpus = order[from..].iter().take_while(|cpu| machine.llc_of(**cpu) == llc).count();
        let (x, w) = (left + step * from as f64, step * cpus as f64);
        let (node, socket) = (machine.node_of(order[from]), machine.socket_of(order[from]));
        let (node, socket) = (machine.node_os_index(node), machine.socket_os_index(socket));
        let place = format!("{llc}, node {node}, socket {socket}");
        let fill = format!(r#"fill="{}""#, hex(group(llc.index())));
        svg.rect_with(x + 0.5, top - 8.0, w - 1.0, 5.0, &fill, &place);
        if w > 30.0 {
            svg.text(x + w / 2.0, top - 13.0, Anchor::Middle, "m s", &llc.to_string());
        }
        if from > 0 {
            svg.line(x, top, x, top + body, "axis");
        }
        from += cpus;
    }
}

/// Thin lines between virtual LLCs.
fn virtual_llc_lines(
    svg: &mut Svg,
    division: &VirtualLlcs,
    order: &[CpuId],
    (left, width): (f64, f64),
    (top, body): (f64, f64),
) {
    let step = width / order.len().max(1) as f64;
    for (position, pair) in order.windows(2).enumerate() {
        if division.of(pair[0]) != division.of(pair[1]) {
            let x = left + step * (position + 1) as f64;
            svg.line(x, top - 3.0, x, top + body, "grid");
        }
    }
}

/// The scale of magnitude with its ends; `from`: the magnitude of the low one. Where it has no name there is one colour only.
pub(super) fn colour_bar(svg: &mut Svg, (x, y): (f64, f64), (from, low): (f64, &str), high: &str, meaning: &str) {
    const STEPS: usize = 64;
    if !low.is_empty() {
        svg.text(x - 8.0, y + 9.0, Anchor::End, "m s", low);
    }
    let magnitude = |column: usize| from + (1.0 - from) * column as f64 / (STEPS - 1) as f64;
    svg.magnitudes([x, y, 80.0, 10.0], (STEPS, 1), |column, _| Some(magnitude(column)));
    svg.text(x + 88.0, y + 9.0, Anchor::Start, "m s", format!("{high}  {meaning}").trim_end());
}

/// Tasks × LLCs as stacked bars, so wide.
pub fn residency(index: usize, scene: &Scene, machine: &Machine, wide: f64) -> Figure {
    let left = if wide < NARROW { 126.0 } else { LEFT };
    const KEY: f64 = 4.0;
    let rows = rows(&scene.tasks, MOST_ROWS);
    let llcs = machine.llc_count();
    let heat = Heat::new(scene, &rows, llcs, |cpu| machine.llc_of(cpu).index());
    let each = heat.row_height(220.0).min(11.0);
    let body = each * rows.len() as f64;
    let width = wide - left - 16.0;
    let key = Key::of_llcs(scene, machine, "", (left, left + width));
    let top = KEY + key.height() + 6.0;
    let mut svg = Svg::new(wide, top + body + 24.0);
    let mut csv = Csv::new(&["row", "llc", "run_ns", "share_of_row"]);
    key.draw(&mut svg, KEY);
    for (row, entry) in rows.iter().enumerate() {
        let y = top + each * row as f64;
        let mut from = 0.0;
        for llc in 0..llcs {
            let (share, run_ns) = (heat.share(row, llc), heat.of_row(row)[llc]);
            if run_ns == 0 {
                continue;
            }
            csv.row(&[entry.label.clone(), llc.to_string(), run_ns.to_string(), format!("{share:.6}")]);
            let hover = format!(
                "{}: {} % of its run time in llc{llc} ({})",
                entry.label,
                three_digits(share * 100.0),
                duration(run_ns as f64)
            );
            let fill = format!(r#"fill="{}""#, hex(group(llc)));
            let gap = if each >= 8.0 { 1.5 } else { 0.4 };
            svg.rect_with(left + from * width, y, share * width, each - gap, &fill, &hover);
            from += share;
        }
    }
    heat.label_rows(&mut svg, (left, top), each);
    svg.text(left + width / 2.0, top + body + 16.0, Anchor::Middle, "m", "share of the row's run time, 0 to 100 %");
    Figure {
        id: format!("residency-{index}-{}", file_name(&scene.scheduler)),
        title: format!("LLC residency under {}", scene.scheduler),
        caption: format!("Share of each task's run time in each last-level cache. {}", shared_rows(&rows, scene)),
        svg,
        csv: csv.finish(),
    }
}

/// Migrations (ran) from each LLC to each other one. `None` with one LLC.
pub fn transitions(index: usize, scene: &Scene, machine: &Machine, axes: &Axes) -> Option<Figure> {
    let groups = CpuGroups {
        count: machine.llc_count(),
        moves: &scene.record.transitions,
        most: axes.most_moves,
        widest: axes.widest_moves,
        most_into: axes.most_into,
        name: "llc",
        words: "LLC",
        id: "transitions",
    };
    (groups.count > 1).then(|| moves_between(&groups, index, scene, axes.wide))
}

/// Migrations (ran) from each virtual LLC to each other one. `None` where LLCs are not divided.
pub fn virtual_transitions(
    index: usize,
    scene: &Scene,
    virtual_llcs: Option<&VirtualLlcs>,
    axes: &Axes,
) -> Option<Figure> {
    let groups = CpuGroups {
        count: virtual_llcs?.count(),
        moves: scene.record.virtual_transitions.as_ref()?,
        most: axes.most_virtual_moves,
        widest: axes.widest_virtual_moves,
        most_into: axes.most_into_virtual,
        name: "vllc",
        words: "virtual LLC",
        id: "virtual-transitions",
    };
    (groups.count > 1).then(|| moves_between(&groups, index, scene, axes.wide))
}

/// Groups of CPUs and the migrations between them.
struct CpuGroups<'a> {
    count: usize,
    /// From row to column.
    moves: &'a [u64],
    /// The most from one to another in any figure that stands beside.
    most: u64,
    /// Width of the widest number in a cell, likewise.
    widest: f64,
    /// The most into any, likewise.
    most_into: u64,
    /// What each is called, before its number.
    name: &'a str,
    words: &'a str,
    /// Beginning of the name of the figure's files.
    id: &'a str,
}

impl CpuGroups<'_> {
    fn moved(&self, from: usize, to: usize) -> u64 {
        self.moves[from * self.count + to]
    }
}

/// Of moves from each of some groups to each other: how many came into each.
pub(super) fn moves_into(moves: &[u64]) -> impl Iterator<Item = u64> {
    let count = moves.len().isqrt();
    (0..count).map(move |to| (0..count).map(|from| moves[from * count + to]).sum())
}

/// Width of a number of moves on a cell; 0 of none, which is not written.
pub(super) fn width_in_cell(moves: &u64) -> f64 {
    if *moves == 0 { 0.0 } else { text_width("s b", &count(*moves as f64)) }
}

/// Bars of moves into groups: all of few groups; of many those with moves, the most of them where they are many.
fn bars_into(groups: &CpuGroups<'_>) -> Vec<(usize, u64)> {
    const FEW: usize = 12;
    const MOST: usize = 24;
    let mut bars: Vec<(usize, u64)> = moves_into(groups.moves).enumerate().collect();
    if groups.count > FEW {
        bars.retain(|(_, moves)| *moves > 0);
        bars.sort_by_key(|(_, moves)| Reverse(*moves));
        bars.truncate(MOST);
        bars.sort_unstable();
    }
    bars
}

/// Room that bars with their numbers need at least.
const LEAST_BARS: f64 = 84.0;

/// Shares of the most moves up to which a cell is so pale, on light ground, that dark numbers are read best.
const PALE: f64 = 0.13;

fn moves_between(groups: &CpuGroups<'_>, index: usize, scene: &Scene, wide: f64) -> Figure {
    const TOP: f64 = 36.0;
    const LEFT: f64 = 66.0;
    let &CpuGroups { count: groups_count, most, widest, name, words, .. } = groups;
    let cell = (132.0 * wide / PANEL / groups_count as f64).clamp(3.0, 34.0);
    let side = cell * groups_count as f64;
    let bars = bars_into(groups);
    // Without numbers in the cells there is a scale of their colours.
    let numbered = cell >= 33.0 && widest <= cell - 3.0;
    let scale = TOP + side + 14.0;
    let room_of_column = if groups_count <= 10 { 14.0 } else { 28.0 };
    // Bars are beside the cells, or below where these leave no room.
    let beside = wide - (LEFT + side + 52.0) >= LEAST_BARS;
    let (bars_left, bars_top) = if beside { (LEFT + side + 52.0, TOP) } else { (LEFT, scale + 48.0) };
    let lowest = (TOP + side.max(70.0)).max(bars_top + bar_height(&bars) * bars.len() as f64) + 12.0;
    let mut svg = Svg::new(wide, lowest.max(if numbered { 0.0 } else { scale + 18.0 }));
    let mut csv = Csv::new(&[&format!("from_{name}"), &format!("to_{name}"), "migrations_ran"]);
    for from in 0..groups_count {
        let y = TOP + cell * from as f64;
        if cell >= 11.0 || from % 4 == 0 {
            svg.text(LEFT - 8.0, y + cell / 2.0 + 4.0, Anchor::End, "s", &format!("{name}{from}"));
        }
        if cell >= room_of_column || from % 4 == 0 {
            svg.text(LEFT + cell * (from as f64 + 0.5), TOP - 6.0, Anchor::Middle, "s", &format!("{from}"));
        }
        for to in 0..groups_count {
            let value = groups.moved(from, to);
            let x = LEFT + cell * to as f64;
            if from == to {
                continue;
            }
            csv.row(&[from.to_string(), to.to_string(), value.to_string()]);
            let share = value as f64 / most as f64;
            let fill = if value == 0 { r#"class="empty""#.to_owned() } else { format!(r#"class="g{}""#, step(share)) };
            let hover = format!("{name}{from} to {name}{to}: {value}");
            svg.rect_with(x + 0.5, y + 0.5, cell - 1.0, cell - 1.0, &fill, &hover);
            if numbered && value > 0 {
                let class = if share < PALE { "s on-pale" } else { "s on-cell" };
                svg.text(x + cell / 2.0, y + cell / 2.0 + 4.0, Anchor::Middle, class, &count(value as f64));
            }
        }
    }
    svg.text(LEFT + side / 2.0, TOP - 20.0, Anchor::Middle, "m", &format!("to {words}"));
    svg.text_upwards(18.0, TOP + side / 2.0, "m", &format!("from {words}"));
    if !numbered {
        let (low, meaning) = if most == 1 { ("", "migration") } else { ("1", "migrations") };
        colour_bar(&mut svg, (LEFT, scale), (1.0 / most as f64, low), &count(most as f64), meaning);
    }
    histogram(&mut svg, groups, &bars, (bars_left, bars_top));
    Figure {
        id: format!("{}-{index}-{}", groups.id, file_name(&scene.scheduler)),
        title: format!("Migrations between {words}s under {}", scene.scheduler),
        caption: format!(
            "Consecutive slices of one task in different {words}s, in one trial of {}: by pair, and by the {words} that was \
             entered, {}. The scales of all schedulers are the same.",
            duration(scene.end_ns as f64),
            which_bars(groups, bars.len())
        ),
        svg,
        csv: csv.finish(),
    }
}

/// Which groups have so many bars, in words.
fn which_bars(groups: &CpuGroups<'_>, bars: usize) -> String {
    if bars == groups.count {
        "all of them".to_owned()
    } else if moves_into(groups.moves).filter(|moves| *moves > 0).count() > bars {
        format!("the {bars} with most")
    } else {
        "those that were entered".to_owned()
    }
}

fn bar_height(bars: &[(usize, u64)]) -> f64 {
    (132.0 / bars.len().max(1) as f64).clamp(12.0, 24.0)
}

/// Migrations into groups as bars.
fn histogram(svg: &mut Svg, groups: &CpuGroups<'_>, bars: &[(usize, u64)], (left, top): (f64, f64)) {
    let &CpuGroups { most_into: most, name, .. } = groups;
    let width = svg.width - left - 44.0;
    let bar = bar_height(bars);
    for (position, (index, moves)) in bars.iter().enumerate() {
        let y = top + bar * position as f64;
        let length = *moves as f64 / most as f64 * width;
        let fill = format!(r#"fill="{}""#, hex(group(*index)));
        svg.rect_with(left, y, length, bar - 2.0, &fill, &format!("into {name}{index}: {moves}"));
        svg.text(left - 6.0, y + bar / 2.0 + 3.0, Anchor::End, "s", &format!("{name}{index}"));
        svg.text(left + length + 5.0, y + bar / 2.0 + 3.0, Anchor::Start, "m s", &count(*moves as f64));
    }
    if !bars.is_empty() {
        svg.text(left, top - 20.0, Anchor::Start, "m", &format!("into each {}", groups.words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_groups_those_that_were_entered_have_a_bar_and_of_few_all() {
        fn groups(count: usize, moves: &[u64]) -> CpuGroups<'_> {
            let (name, words, id) = ("llc", "LLC", "transitions");
            CpuGroups { count, moves, most: 9, widest: 7.0, most_into: 9, name, words, id }
        }
        let bars = |count: usize, moves: &[u64]| bars_into(&groups(count, moves));
        assert_eq!(bars(2, &[0, 3, 0, 0]), [(0, 0), (1, 3)]);
        let mut many = vec![0; 40 * 40];
        (many[7], many[80 + 7], many[39]) = (2, 4, 9);
        assert_eq!(bars(40, &many), [(7, 6), (39, 9)]);
        assert_eq!(which_bars(&groups(40, &many), 2), "those that were entered");
        many.iter_mut().for_each(|moves| *moves = 1);
        assert_eq!(bars(40, &many).len(), 24);
        assert_eq!(which_bars(&groups(40, &many), 24), "the 24 with most");
        assert_eq!(which_bars(&groups(2, &[0, 3, 0, 0]), 2), "all of them");
    }
}
