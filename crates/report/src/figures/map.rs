//! The machine as a map: sockets, NUMA nodes, LLCs, cores and their threads, with load and the traffic between LLCs.

use std::collections::BTreeMap;

use warmcore_topology::{CoreId, CpuId, LlcId, Machine};

use super::{Csv, Figure, PANEL, file_name, shortened_group};
use crate::colour::{group, hex};
use crate::rows::map_rows;
use crate::scene::Scene;
use crate::svg::{Anchor, Svg, coordinate};
use crate::units::{count, three_digits};

/// CPUs up to which each has a cell; beyond, an LLC has one bar.
const MOST_CELLS: usize = 128;
/// LLCs up to which each has a colour of its own; beyond, nodes have.
const MOST_COLOURS: usize = 24;
/// LLCs up to which each pair has an edge of its own; beyond, edges between nodes are bundled.
const MOST_UNBUNDLED: usize = 8;
/// Share of the thickest edge below which an edge is not drawn.
const LEAST_EDGE: f64 = 0.05;
/// Edges that are drawn: the thickest.
const MOST_EDGES: usize = 12;
/// Height of a CPU's cell.
const CELL: f64 = 16.0;

/// Where the box of an LLC or of a node lies.
#[derive(Clone, Copy, Default)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// The colour of the LLC, or of its node where LLCs are too many for a colour each.
fn colour_of(machine: &Machine, llc: LlcId) -> String {
    let own = machine.llc_count() <= MOST_COLOURS;
    hex(group(if own { llc.index() } else { machine.node_of_llc(llc).index() }))
}

/// What is drawn largest on any of some maps that stand side by side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MapScales {
    /// Migrations along an edge, in the whole trial.
    most_moved: u64,
    /// Cache lines per second that an LLC fetched from elsewhere; 0 where none are known.
    most_fetched_per_s: f64,
}

impl MapScales {
    /// Those of scenes on their machines.
    #[must_use]
    pub fn of<'a>(maps: impl Iterator<Item = (&'a Scene, &'a Machine)>) -> Self {
        let mut scales = Self { most_moved: 0, most_fetched_per_s: 0.0 };
        for (scene, machine) in maps {
            scales.most_moved = moved(scene, machine).into_values().fold(scales.most_moved, u64::max);
            let rates = machine.llcs().map(|llc| fetched_per_s(scene, machine, llc).iter().sum::<f64>());
            scales.most_fetched_per_s = rates.fold(scales.most_fetched_per_s, f64::max);
        }
        scales
    }

    /// What the largest marks of maps stand for, with or without bars of cache lines; nothing where there are none.
    fn in_words(self, bars: bool) -> String {
        let edge = (self.most_moved > 0).then(|| format!("thickest edge: {}", migrations(self.most_moved)));
        let bar = (bars && self.most_fetched_per_s > 0.0)
            .then(|| format!("longest bar: {} cache lines/s", count(self.most_fetched_per_s)));
        edge.into_iter().chain(bar).collect::<Vec<_>>().join(", ")
    }
}

/// A number of migrations in words.
fn migrations(number: u64) -> String {
    format!("{} migration{}", count(number as f64), if number == 1 { "" } else { "s" })
}

/// The machine with the share of time each CPU was busy, edges for migrations between LLCs, and where the tasks ran.
#[must_use]
pub fn machine(index: usize, scene: &Scene, machine: &Machine, scales: MapScales) -> Figure {
    const TOP: f64 = 4.0;
    let mut svg = Svg::new(PANEL, 0.0);
    let mut csv = Csv::new(&["cpu", "core", "llc", "node", "socket", "busy_share"]);
    let busy = |cpu: CpuId| {
        let metrics = &scene.metrics.cpus[cpu.index()];
        let observed = metrics.busy_ns + metrics.foreign_ns + metrics.idle_ns;
        if observed == 0 { 0.0 } else { metrics.busy_ns as f64 / observed as f64 }
    };
    for cpu in machine.cpus() {
        let (node, socket) = (machine.node_of(cpu), machine.socket_of(cpu));
        let (node, socket) = (machine.node_os_index(node), machine.socket_os_index(socket));
        let ids = [machine.os_index(cpu), machine.core_of(cpu).0, machine.llc_of(cpu).0, node, socket];
        let cells: Vec<String> = ids.iter().map(u32::to_string).chain([format!("{:.6}", busy(cpu))]).collect();
        csv.row(&cells);
    }
    let compact = machine.cpu_count() > MOST_CELLS;
    let mut boxes = vec![Area::default(); machine.llc_count()];
    let mut y = TOP;
    for socket in machine.sockets() {
        let nodes = machine.nodes_of_socket(socket).iter().filter(|node| !machine.cpus_of_node(**node).is_empty());
        let start = y;
        y += 24.0;
        svg.text(14.0, start + 16.0, Anchor::Start, "b", &format!("socket {}", machine.socket_os_index(socket)));
        for node in nodes {
            let llcs = machine.llcs_of_node(*node);
            svg.text(14.0, y + 12.0, Anchor::Start, "m s", &format!("node {}", machine.node_os_index(*node)));
            let per_line = if compact {
                llcs.len().clamp(1, 6)
            } else if llcs.len() > 4 {
                3
            } else {
                llcs.len().clamp(1, 2)
            };
            let width = (PANEL - 74.0) / per_line as f64;
            for line in llcs.chunks(per_line) {
                let mut tallest = 0.0_f64;
                for (column, llc) in line.iter().enumerate() {
                    let at = Area { x: 58.0 + width * column as f64, y, width: width - 6.0, height: 0.0 };
                    let height = draw_llc(&mut svg, scene, machine, *llc, (at, compact, scales), &busy);
                    boxes[llc.index()] = Area { height, ..at };
                    tallest = tallest.max(height);
                }
                y += tallest + 14.0;
            }
        }
        svg.rect(8.0, start, PANEL - 16.0, y - start, "frame", "");
        y += 8.0;
    }
    edges(&mut svg, scene, machine, &boxes, scales);
    svg.height = y;
    let fetched = |name: &str| machine.llcs().any(|llc| counted(scene, machine, llc, name) > 0);
    for (_, class, words) in SOURCES.iter().filter(|(name, ..)| !compact && fetched(name)) {
        svg.height += 15.0;
        svg.rect(14.0, svg.height - 8.0, 10.0, 10.0, class, "");
        svg.text(30.0, svg.height, Anchor::Start, "s", &format!("cache lines from {words}"));
    }
    let scale = scales.in_words(!compact);
    if !scale.is_empty() {
        svg.height += 15.0;
        svg.text(14.0, svg.height, Anchor::Start, "m s scale", &scale);
    }
    svg.height += 4.0;
    if machine.llc_count() > 1 {
        residents(&mut svg, scene, machine);
    }
    let (place, colours) = (
        if compact { "an LLC's bar" } else { "a CPU's cell" },
        if machine.llc_count() <= MOST_COLOURS { "LLC" } else { "NUMA node" },
    );
    Figure {
        id: format!("machine-{index}-{}", file_name(&scene.scheduler)),
        title: format!("{} under {}", machine.name(), scene.scheduler),
        caption: format!(
            "The filled part of {place}: its share of time with a task{}.{}",
            if scene.window_from_ns > 0 { " after the warm-up" } else { "" },
            if machine.llc_count() > 1 {
                format!(
                    " Edges: migrations between LLCs; at most {MOST_EDGES}, none below {} % of the thickest. Bars, in the colours of \
                     the {colours}s: where the tasks of each group ran, in parts of their run time.{}",
                    three_digits(LEAST_EDGE * 100.0),
                    if scale.is_empty() {
                        String::new()
                    } else {
                        format!(" All schedulers have the same scales; in the whole trial, {scale}.")
                    }
                )
            } else {
                String::new()
            }
        ),
        svg,
        csv: csv.finish(),
    }
}

/// A place whose filled part is a share of it: from the bottom, or from the left.
fn meter(svg: &mut Svg, at: Area, (share, upright): (f64, bool), attributes: &str, hover: &str) {
    svg.rect(at.x, at.y, at.width, at.height, "empty", "");
    let geometry = [("x", at.x), ("y", at.y), ("width", at.width), ("height", at.height)];
    let whole: String =
        geometry.iter().map(|(name, value)| format!(r#" data-{name}="{}""#, coordinate(*value))).collect();
    let filled = if upright {
        Area { y: at.y + at.height * (1.0 - share), height: at.height * share, ..at }
    } else {
        Area { width: at.width * share, ..at }
    };
    svg.rect_with(filled.x, filled.y, filled.width, filled.height, &format!("{attributes}{whole}"), hover);
}

/// Draws an LLC with its CPUs; returns the height of its box.
fn draw_llc(
    svg: &mut Svg,
    scene: &Scene,
    machine: &Machine,
    llc: LlcId,
    (at, compact, scales): (Area, bool, MapScales),
    busy: &dyn Fn(CpuId) -> f64,
) -> f64 {
    let Area { x, y, width, .. } = at;
    let colour = colour_of(machine, llc);
    let cpus: Vec<CpuId> = machine.cpus_of_llc(llc).iter().collect();
    if compact {
        let share = cpus.iter().map(|cpu| busy(*cpu)).sum::<f64>() / cpus.len().max(1) as f64;
        let numbers: Vec<String> = cpus.iter().map(|cpu| cpu.0.to_string()).collect();
        let attributes = format!(r#"fill="{colour}" class="cpu" data-cpus="{}""#, numbers.join(" "));
        let hover = format!("{llc} ({} CPUs): busy {} %", cpus.len(), three_digits(share * 100.0));
        svg.rect(x, y, width, 26.0, "box", "");
        svg.text(x + 4.0, y + 11.0, Anchor::Start, "s", &llc.to_string());
        let bar = Area { x: x + 4.0, y: y + 15.0, width: width - 8.0, height: 8.0 };
        meter(svg, bar, (share, false), &attributes, &hover);
        return 26.0;
    }
    let mut cores: Vec<CoreId> = cpus.iter().map(|cpu| machine.core_of(*cpu)).collect();
    cores.sort_unstable();
    cores.dedup();
    let per_line = cores.len().clamp(1, ((width - 10.0) / 17.0).max(1.0) as usize);
    let cell = ((width - 10.0) / per_line as f64).min(34.0);
    let lines = cores.len().div_ceil(per_line);
    let height = 24.0 + lines as f64 * (CELL + 4.0);
    svg.rect(x, y, width, height, "box", "");
    svg.rect_with(x + 5.0, y + 5.0, 10.0, 10.0, &format!(r#"fill="{colour}""#), "");
    svg.text(x + 20.0, y + 14.0, Anchor::Start, "s", &llc.to_string());
    sources(svg, scene, machine, llc, (x + 60.0, y + 6.0, width - 66.0), scales);
    for (position, core) in cores.iter().enumerate() {
        let left = x + 5.0 + cell * (position % per_line) as f64;
        let top = y + 21.0 + (CELL + 4.0) * (position / per_line) as f64;
        let siblings = machine.cpus_of_core(*core);
        let part = (cell - 3.0) / siblings.len().max(1) as f64;
        for (thread, cpu) in siblings.iter().enumerate() {
            let share = busy(cpu);
            let attributes = format!(r#"fill="{colour}" class="cpu" data-cpus="{}""#, cpu.0);
            let hover = format!("{} ({core}, {llc}): busy {} %", machine.os_cpu(cpu), three_digits(share * 100.0));
            let at = Area { x: left + part * thread as f64, y: top, width: part - 0.6, height: CELL };
            meter(svg, at, (share, true), &attributes, &hover);
        }
    }
    height
}

/// Below the map: a bar for each row of tasks, in the colours of the LLCs where they ran.
fn residents(svg: &mut Svg, scene: &Scene, machine: &Machine) {
    const BAR: f64 = 12.0;
    const LETTER: f64 = 6.3;
    let rows = map_rows(&scene.tasks);
    let longest = rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0).min(30);
    let left = 14.0 + LETTER * longest as f64 + 8.0;
    let width = PANEL - 14.0 - left;
    let mut y = svg.height + 18.0;
    svg.text(14.0, y, Anchor::Start, "b", "where each ran");
    y += 8.0;
    for (position, row) in rows.iter().enumerate() {
        svg.text(left - 8.0, y + BAR - 2.0, Anchor::End, "s", &shortened_group(&row.label, longest));
        let mut by_llc = vec![0_u64; machine.llc_count()];
        let runs = row.tasks.iter().filter_map(|task| scene.record.cpu_run_ns.get(*task)).flatten();
        runs.for_each(|(cpu, run_ns)| by_llc[machine.llc_of(CpuId(*cpu)).index()] += run_ns);
        let whole = by_llc.iter().sum::<u64>().max(1) as f64;
        svg.rect(left, y, width, BAR, "empty", "");
        let mut from = left;
        for llc in machine.llcs() {
            let share = by_llc[llc.index()] as f64 / whole;
            let attributes = format!(
                r#"fill="{}" class="resident" data-llc="{}" data-row="{position}" data-x="{}" data-width="{}""#,
                colour_of(machine, llc),
                llc.0,
                coordinate(left),
                coordinate(width)
            );
            let hover = format!("{} on {llc}: {} % of its run time", row.label, three_digits(share * 100.0));
            svg.rect_with(from, y, share * width, BAR, &attributes, &hover);
            from += share * width;
        }
        y += BAR + 5.0;
    }
    svg.height = y + 4.0;
}

/// Where cache lines that miss the L2 come from: counter, colour's class, words.
pub(crate) const SOURCES: [(&str, &str, &str); 5] = [
    ("c2c_same_llc", "q3", "another core under the LLC"),
    ("c2c_other_llc", "q4", "another LLC"),
    ("c2c_other_socket", "q5", "another socket"),
    ("dram_local", "q6", "memory of the own node"),
    ("dram_remote", "q7", "memory of other nodes"),
];

/// Cache lines that a counter saw in an LLC during the whole trial.
fn counted(scene: &Scene, machine: &Machine, llc: LlcId, name: &str) -> u64 {
    let counter = scene.tables.counters.iter().position(|other| other == name);
    let cpus = machine.cpus_of_llc(llc).iter().map(|cpu| cpu.index());
    counter.map_or(0, |counter| scene.record.counters.of_cpus(counter, cpus).iter().sum())
}

/// Cache lines per second that an LLC fetched from each of [`SOURCES`], over the whole trial.
fn fetched_per_s(scene: &Scene, machine: &Machine, llc: LlcId) -> [f64; SOURCES.len()] {
    let seconds = scene.end_ns.max(1) as f64 / 1e9;
    SOURCES.map(|(name, ..)| counted(scene, machine, llc, name) as f64 / seconds)
}

/// A bar in an LLC's box: where the cache lines came from that it fetched. That of the LLC that fetched most, under any scheduler, fills its
/// place.
fn sources(
    svg: &mut Svg,
    scene: &Scene,
    machine: &Machine,
    llc: LlcId,
    (x, y, width): (f64, f64, f64),
    scales: MapScales,
) {
    if scales.most_fetched_per_s <= 0.0 || width < 20.0 {
        return;
    }
    let mut from = x;
    for ((name, class, words), per_s) in SOURCES.iter().zip(fetched_per_s(scene, machine, llc)) {
        let part = per_s / scales.most_fetched_per_s * width;
        let hover = format!("{llc}: {} cache lines/s from {words}", count(per_s));
        let attributes = format!(
            r#"class="{class} source" data-llc="{}" data-counter="{name}" data-width="{}" data-x="{}""#,
            llc.0,
            coordinate(width),
            coordinate(x)
        );
        svg.rect_with(from, y, part, 8.0, &attributes, &hover);
        from += part;
    }
}

/// The LLCs at both ends of an edge.
type Ends = (Vec<usize>, Vec<usize>);

/// Migrations between LLCs in both directions; on machines of many LLCs those between two nodes are one.
fn moved(scene: &Scene, machine: &Machine) -> BTreeMap<Ends, u64> {
    let llcs = machine.llc_count();
    let bundled = llcs > MOST_UNBUNDLED;
    let end = |llc: usize, other: usize| -> Vec<usize> {
        let node = |llc: usize| machine.node_of_llc(LlcId(llc as u32));
        if !bundled || node(llc) == node(other) {
            return vec![llc];
        }
        machine.llcs_of_node(node(llc)).iter().map(|llc| llc.index()).collect()
    };
    let mut moved: BTreeMap<Ends, u64> = BTreeMap::new();
    for (a, b) in (0..llcs).flat_map(|a| (a + 1..llcs).map(move |b| (a, b))) {
        let count = scene.record.transitions[a * llcs + b] + scene.record.transitions[b * llcs + a];
        if count > 0 {
            *moved.entry((end(a, b), end(b, a))).or_default() += count;
        }
    }
    moved
}

/// Edges between the boxes of LLCs, as thick as they have migrations.
fn edges(svg: &mut Svg, scene: &Scene, machine: &Machine, boxes: &[Area], scales: MapScales) {
    let most = scales.most_moved.max(1) as f64;
    let mut drawn: Vec<_> =
        moved(scene, machine).into_iter().filter(|(_, count)| *count as f64 >= LEAST_EDGE * most).collect();
    drawn.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    drawn.truncate(MOST_EDGES);
    let around = |of: &[usize]| {
        let all = of.iter().map(|llc| boxes[*llc]);
        all.reduce(|a, b| {
            let (x, y) = (a.x.min(b.x), a.y.min(b.y));
            let (right, bottom) = ((a.x + a.width).max(b.x + b.width), (a.y + a.height).max(b.y + b.height));
            Area { x, y, width: right - x, height: bottom - y }
        })
    };
    let named = |of: &[usize]| match of {
        [llc] => format!("llc{llc}"),
        llcs => format!("node {}", machine.node_os_index(machine.node_of_llc(LlcId(llcs[0] as u32)))),
    };
    let numbers = |of: &[usize]| of.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    for ((a, b), count_of) in drawn.into_iter().rev() {
        let (Some(from), Some(to)) = (around(&a), around(&b)) else { continue };
        let width = 1.0 + 6.0 * count_of as f64 / most;
        let middle = |of: Area| of.x + of.width / 2.0;
        // Below the boxes, which stay readable: an arc within a row, or from the lower edge of one to the upper edge of another.
        let points = if to.y > from.y + 1.0 {
            vec![(middle(from), from.y + from.height), (middle(to), to.y)]
        } else {
            let (start, end) = (from.y + from.height, to.y + to.height);
            vec![(middle(from), start), ((middle(from) + middle(to)) / 2.0, start.max(end) + 8.0), (middle(to), end)]
        };
        let (name_a, name_b) = (named(&a), named(&b));
        let hover = format!("{name_a} and {name_b}: {}", migrations(count_of));
        let class = width.round() as u32;
        let attributes = format!(
            r#"class="traffic w{class}" data-llcs="{} {}" data-names="{name_a} and {name_b}""#,
            numbers(&a),
            numbers(&b)
        );
        svg.polyline_with(&points, &attributes, &hover);
    }
}
