//! The machine as a map: sockets, NUMA nodes, LLCs, cores and their threads, with load and the traffic between LLCs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use warmcore_topology::{CoreId, CpuId, LlcId, Machine};

use super::labels::{LINE, lines_within};
use super::{Csv, Figure, NARROW, file_name};
use crate::colour::{group, hex};
use crate::rows::map_rows;
use crate::scene::Scene;
use crate::svg::{Anchor, Svg, coordinate, text_width};
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
/// Width of the thickest edge.
const THICKEST: f64 = 7.0;
/// Migrations up to which an edge gets no thicker than with as many units: one alone is a thin line.
const FEW: u64 = 6;
/// Height of the gutter below a row of boxes; room at the right of the boxes, and in it the width of the margin between them and the frame.
const GUTTER: f64 = 14.0;
const RIGHT: f64 = 22.0;
const MARGIN: f64 = 14.0;
/// Height of a CPU's cell.
const CELL: f64 = 16.0;

/// Where the box of an LLC or of a node lies.
#[derive(Clone, Copy, Default, Debug)]
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
    pub fn of<'a>(maps: impl Iterator<Item = (&'a Scene, &'a Machine)>) -> Self {
        let mut scales = Self { most_moved: 0, most_fetched_per_s: 0.0 };
        for (scene, machine) in maps {
            let traffic = Traffic::of(scene, machine);
            scales.most_moved =
                thickest(&traffic.all).iter().map(|(_, count)| *count).fold(scales.most_moved, u64::max);
            let rates = machine.llcs().map(|llc| fetched_per_s(scene, machine, llc).iter().sum::<f64>());
            scales.most_fetched_per_s = rates.fold(scales.most_fetched_per_s, f64::max);
        }
        scales
    }

    /// What the largest marks of maps stand for, with or without edges and bars of cache lines; nothing where there are none.
    fn in_words(self, edges: bool, bars: bool) -> String {
        let edge = (edges && self.most_moved > 0).then(|| format!("thickest edge: {}", migrations(self.most_moved)));
        let bar = (bars && self.most_fetched_per_s > 0.0)
            .then(|| format!("longest bar: {} cache lines/s", count(self.most_fetched_per_s)));
        edge.into_iter().chain(bar).collect::<Vec<_>>().join(", ")
    }
}

/// A number of migrations in words.
fn migrations(number: u64) -> String {
    format!("{} migration{}", count(number as f64), if number == 1 { "" } else { "s" })
}

/// The machine with the share of time each CPU was busy, edges for migrations between LLCs, and where the tasks ran, so wide.
pub fn machine(index: usize, scene: &Scene, machine: &Machine, (scales, wide): (MapScales, f64)) -> Figure {
    const TOP: f64 = 4.0;
    let mut svg = Svg::new(wide, 0.0);
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
    let mut boxes = vec![(Area::default(), 0.0); machine.llc_count()];
    let mut y = TOP;
    for socket in machine.sockets() {
        let nodes = machine.nodes_of_socket(socket).iter().filter(|node| !machine.cpus_of_node(**node).is_empty());
        let start = y;
        y += 24.0;
        svg.text(14.0, start + 16.0, Anchor::Start, "b", &format!("socket {}", machine.socket_os_index(socket)));
        for node in nodes {
            let llcs = machine.llcs_of_node(*node);
            svg.text(14.0, y + 12.0, Anchor::Start, "m s", &format!("node {}", machine.node_os_index(*node)));
            let most = match (compact, llcs.len() > 4) {
                (true, _) => 6,
                (false, true) => 3,
                (false, false) => 2,
            };
            let per_line = llcs.len().clamp(1, if wide < NARROW { most } else { 2 * most });
            let width = (wide - 74.0) / per_line as f64;
            for line in llcs.chunks(per_line) {
                let mut tallest = 0.0_f64;
                for (column, llc) in line.iter().enumerate() {
                    let at = Area { x: 58.0 + width * column as f64, y, width: width - 6.0, height: 0.0 };
                    let height = draw_llc(&mut svg, scene, machine, *llc, (at, compact, scales), &busy);
                    boxes[llc.index()].0 = Area { height, ..at };
                    tallest = tallest.max(height);
                }
                line.iter().for_each(|llc| boxes[llc.index()].1 = y + tallest);
                y += tallest + GUTTER;
            }
        }
        svg.rect(8.0, start, wide - 16.0, y - start, "frame", "");
        y += 8.0;
    }
    let traffic = Traffic::of(scene, machine);
    edges(&mut svg, &traffic, machine, &boxes, scales.most_moved);
    svg.height = y;
    let not_drawn = traffic.in_words(scales.most_moved);
    if !not_drawn.is_empty() {
        svg.height += 15.0;
        svg.text(14.0, svg.height, Anchor::Start, "m s spread", &not_drawn);
    }
    let scale = scales.in_words(traffic.drawn(scales.most_moved).next().is_some(), !compact);
    // The page fills it in where the span that it shows has other edges.
    if !scales.in_words(true, !compact).is_empty() {
        svg.height += 15.0;
        svg.text(14.0, svg.height, Anchor::Start, "m s scale", &scale);
    }
    svg.height += 4.0;
    if machine.llc_count() > 1 {
        residents(&mut svg, scene, machine);
    }
    svg.end_in_pages();
    for (class, words) in sources_there(std::iter::once((scene, machine))) {
        svg.height += 15.0;
        svg.rect(14.0, svg.height - 13.0, 10.0, 10.0, class, "");
        svg.text(30.0, svg.height - 5.0, Anchor::Start, "s", &format!("cache lines from {words}"));
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
                    " Edges: migrations between LLCs, for the {MOST_EDGES} most frequent pairs of the whole trial, if these have half of all. Bars: in which {colours}s \
                     each group's tasks ran, the first on the left, in parts of their run time.{}",
                    match scales.in_words(true, !compact) {
                        scale if scale.is_empty() => String::new(),
                        scale => format!(" All schedulers have the same scales; in the whole trial, {scale}."),
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
    const LONGEST: f64 = 150.0;
    let rows = map_rows(&scene.tasks);
    let longest = rows.iter().map(|row| text_width("s", &row.label)).fold(0.0, f64::max).min(LONGEST) + 0.1;
    let left = 14.0 + longest + 8.0;
    let width = svg.width - 14.0 - left;
    let mut y = svg.height + 18.0;
    svg.text(14.0, y, Anchor::Start, "b", "where each ran");
    y += 8.0;
    for (position, row) in rows.iter().enumerate() {
        let name = lines_within(&row.label, "s", longest);
        for (at, line) in name.iter().enumerate() {
            svg.text(left - 8.0, y + BAR - 2.0 + LINE * at as f64, Anchor::End, "s", line);
        }
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
        y += BAR + 5.0 + LINE * name.len().saturating_sub(1) as f64;
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

/// The thickest of all edges, which come in this order, if they hold half of all migrations. Where migrations are spread evenly a few of many
/// would make their ends look like places that all go to.
fn thickest<E>(all: &[(E, u64)]) -> &[(E, u64)] {
    let first = &all[..all.len().min(MOST_EDGES)];
    let count = |edges: &[(E, u64)]| edges.iter().map(|(_, count)| count).sum::<u64>();
    if 2 * count(first) < count(all) { &[] } else { first }
}

/// Migrations between LLCs of a scene.
struct Traffic {
    /// All edges, the thickest first.
    all: Vec<(Ends, u64)>,
    /// Pairs of LLCs with migrations between them, and all pairs.
    pairs: (usize, usize),
}

impl Traffic {
    fn of(scene: &Scene, machine: &Machine) -> Self {
        let mut all: Vec<(Ends, u64)> = moved(scene, machine).into_iter().collect();
        all.sort_by_key(|(_, count)| Reverse(*count));
        let llcs = machine.llc_count();
        let count = |from: usize, to: usize| scene.record.transitions[from * llcs + to];
        let pairs = || (0..llcs).flat_map(move |a| (a + 1..llcs).map(move |b| (a, b)));
        let used = pairs().filter(|(a, b)| count(*a, *b) + count(*b, *a) > 0).count();
        Self { all, pairs: (used, pairs().count()) }
    }

    /// The edges that are drawn where the thickest of all maps has so many migrations.
    fn drawn(&self, most: u64) -> impl DoubleEndedIterator<Item = &(Ends, u64)> {
        thickest(&self.all).iter().filter(move |(_, count)| *count as f64 >= LEAST_EDGE * most as f64)
    }

    /// What edges do not show; nothing where they show all.
    fn in_words(&self, most: u64) -> String {
        let total: u64 = self.all.iter().map(|(_, count)| count).sum();
        let drawn: u64 = self.drawn(most).map(|(_, count)| count).sum();
        not_drawn((drawn, total), thickest(&self.all).is_empty(), self.pairs)
    }
}

/// Of migrations between LLCs, what edges do not show, in words: so many of all are drawn; they are `spread` over pairs of LLCs, those with any
/// and all that there are.
fn not_drawn((drawn, total): (u64, u64), spread: bool, (used, pairs): (usize, usize)) -> String {
    let all = migrations(total);
    if drawn == total {
        String::new()
    } else if spread {
        let over = if used == pairs { format!("all {pairs}") } else { format!("{used} of {pairs}") };
        format!("{all}, spread over {over} pairs of LLCs")
    } else {
        format!("edges: {} % of {all}", three_digits(drawn as f64 / total as f64 * 100.0))
    }
}

/// The box around some boxes, and where the row of the lowest of them ends.
fn around(boxes: &[(Area, f64)]) -> Option<(Area, f64)> {
    boxes.iter().copied().reduce(|(a, foot_a), (b, foot_b)| {
        let (x, y) = (a.x.min(b.x), a.y.min(b.y));
        let (right, bottom) = ((a.x + a.width).max(b.x + b.width), (a.y + a.height).max(b.y + b.height));
        (Area { x, y, width: right - x, height: bottom - y }, foot_a.max(foot_b))
    })
}

/// The way of an edge from a box to another one that is not above it: through the gutters below rows and at the right of all boxes, never across a
/// box. `share`, 0..1, keeps edges apart that have the same way; boxes end at `right`.
fn route((from, foot): (Area, f64), to: Area, boxes: &[(Area, f64)], (share, right): (f64, f64)) -> Vec<(f64, f64)> {
    let port = |area: Area| area.x + area.width * (0.2 + 0.6 * share);
    // In the middle of a gutter even the thickest edge touches no box.
    let within = |gutter: f64, wide: f64| gutter + THICKEST / 2.0 + (wide - THICKEST) * share;
    let lane = within(foot, GUTTER);
    let (start, end) = (port(from), port(to));
    if (to.y - from.y).abs() < 1.0 {
        return vec![(start, from.y + from.height), (start, lane), (end, lane), (end, to.y + to.height)];
    }
    let between = |area: &Area| area.y >= foot && area.y + area.height <= to.y;
    if !boxes.iter().any(|(area, _)| between(area)) {
        return vec![(start, from.y + from.height), (start, lane), (end, lane), (end, to.y)];
    }
    let aside = within(right, MARGIN);
    let above = within(to.y - GUTTER, GUTTER);
    vec![(start, from.y + from.height), (start, lane), (aside, lane), (aside, above), (end, above), (end, to.y)]
}

/// Edges between the boxes of LLCs, as thick as they have migrations. Of each box there is where its row ends.
fn edges(svg: &mut Svg, traffic: &Traffic, machine: &Machine, boxes: &[(Area, f64)], most: u64) {
    let named = |of: &[usize]| match of {
        [llc] => format!("llc{llc}"),
        llcs => format!("node {}", machine.node_os_index(machine.node_of_llc(LlcId(llcs[0] as u32)))),
    };
    let numbers = |of: &[usize]| of.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let drawn: Vec<&(Ends, u64)> = traffic.drawn(most).collect();
    for (at, ((a, b), count_of)) in drawn.iter().enumerate().rev() {
        let of = |llcs: &[usize]| around(&llcs.iter().map(|llc| boxes[*llc]).collect::<Vec<_>>());
        let (Some(one), Some(other)) = (of(a), of(b)) else { continue };
        let (from, to) = if one.0.y <= other.0.y { (one, other.0) } else { (other, one.0) };
        let points = route(from, to, boxes, ((at as f64 + 0.5) / drawn.len() as f64, svg.width - RIGHT));
        let width = 1.0 + (THICKEST - 1.0) * *count_of as f64 / most.max(FEW) as f64;
        let (name_a, name_b) = (named(a), named(b));
        let hover = format!("{name_a} and {name_b}: {}", migrations(*count_of));
        let class = width.round() as u32;
        let attributes = format!(
            r#"class="traffic w{class}" data-llcs="{} {}" data-names="{name_a} and {name_b}""#,
            numbers(a),
            numbers(b)
        );
        svg.polyline_with(&points, &attributes, &hover);
    }
}

/// Where the cache lines came from that LLCs of these maps fetched, as class and words. Large machines have no bars of them.
pub(crate) fn sources_there<'a>(
    maps: impl Iterator<Item = (&'a Scene, &'a Machine)>,
) -> Vec<(&'static str, &'static str)> {
    let maps: Vec<_> = maps.filter(|(_, machine)| machine.cpu_count() <= MOST_CELLS).collect();
    let fetched = |name: &str| {
        maps.iter().any(|(scene, machine)| machine.llcs().any(|llc| counted(scene, machine, llc, name) > 0))
    };
    SOURCES.iter().filter(|(name, ..)| fetched(name)).map(|(_, class, words)| (*class, *words)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::PANEL;

    #[test]
    fn a_few_edges_are_drawn_only_where_they_hold_half_of_all_migrations() {
        let even: Vec<((), u64)> = (0..66).map(|_| ((), 400)).collect();
        assert!(thickest(&even).is_empty(), "12 of 66 hold 18 %");
        let hubs: Vec<((), u64)> = (0..66).map(|at| ((), if at < 12 { 400 } else { 20 })).collect();
        assert_eq!(thickest(&hubs).len(), MOST_EDGES);
        assert_eq!(thickest(&even[..20]).len(), MOST_EDGES, "12 of 20 hold 60 %");
        assert!(thickest::<()>(&[]).is_empty());
    }

    #[test]
    fn a_map_says_what_its_edges_do_not_show() {
        let of = |drawn, spread, used| not_drawn((drawn, 26_311), spread, (used, 66));
        assert_eq!(of(0, true, 66), "26.3k migrations, spread over all 66 pairs of LLCs");
        assert_eq!(of(0, true, 40), "26.3k migrations, spread over 40 of 66 pairs of LLCs");
        assert_eq!(of(21_049, false, 66), "edges: 80 % of 26.3k migrations");
        assert_eq!(of(26_311, false, 66), "");
    }

    /// Two sockets of two rows of LLCs: an edge between any two runs beside all boxes, however thick it is.
    #[test]
    fn no_edge_crosses_a_box() {
        let width = (PANEL - 74.0) / 6.0;
        let boxes: Vec<(Area, f64)> = (0..24)
            .map(|llc| {
                let (column, row) = ((llc % 6) as f64, (llc / 6) as f64);
                let y = 28.0 + 40.0 * row + if llc >= 12 { 32.0 } else { 0.0 };
                // Unequal LLCs have unequal boxes.
                let height = if llc % 6 == 2 { 20.0 } else { 26.0 };
                (Area { x: 58.0 + width * column, y, width: width - 6.0, height }, y + 26.0)
            })
            .collect();
        let half = THICKEST / 2.0 - 0.01;
        for (a, b) in (0..24).flat_map(|a| (a + 1..24).map(move |b| (a, b))) {
            for share in [0.04, 0.5, 0.96] {
                let points = route(boxes[a], boxes[b].0, &boxes, (share, PANEL - RIGHT));
                for (one, other) in points.iter().zip(&points[1..]) {
                    assert!(one.0 == other.0 || one.1 == other.1, "{points:?}");
                    // Along its way an edge is as thick as it is; it ends where it meets a box.
                    let (thick_x, thick_y) = if one.0 == other.0 { (half, -0.01) } else { (-0.01, half) };
                    for (area, _) in &boxes {
                        let apart = one.0.max(other.0) + thick_x <= area.x
                            || one.0.min(other.0) - thick_x >= area.x + area.width
                            || one.1.max(other.1) + thick_y <= area.y
                            || one.1.min(other.1) - thick_y >= area.y + area.height;
                        assert!(apart, "llc{a} to llc{b}: {points:?} crosses the box at {}, {}", area.x, area.y);
                    }
                    assert!(
                        points.iter().all(|(x, _)| *x + THICKEST / 2.0 <= PANEL - 8.0),
                        "within the frame: {points:?}"
                    );
                }
            }
        }
    }
}
