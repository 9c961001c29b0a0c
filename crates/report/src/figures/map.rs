//! The machine as a map: sockets, NUMA nodes, LLCs, cores and their threads, with load and the traffic between LLCs.

use warmcore_topology::{CoreId, CpuId, LlcId, Machine};

use super::matrix::colour_bar;
use super::{Csv, Figure, PANEL, file_name, shortened_group};
use crate::colour::{group, hex, step};
use crate::rows::{Row, map_rows};
use crate::scene::Scene;
use crate::svg::{Anchor, Svg, coordinate};
use crate::units::{count, three_digits};

/// Where an LLC's box lies.
struct Box2 {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// The machine with the share of time each CPU was busy, and lines for moves between LLCs.
#[must_use]
pub fn machine(index: usize, scene: &Scene, machine: &Machine) -> Figure {
    const TOP: f64 = 4.0;
    let mut svg = Svg::new(PANEL, 0.0);
    let mut csv = Csv::new(&["cpu", "core", "llc", "node", "socket", "busy_share"]);
    let busy = |cpu: usize| {
        let metrics = &scene.metrics.cpus[cpu];
        let observed = metrics.busy_ns + metrics.foreign_ns + metrics.idle_ns;
        if observed == 0 { 0.0 } else { metrics.busy_ns as f64 / observed as f64 }
    };
    for cpu in machine.cpus() {
        let ids =
            [cpu.0, machine.core_of(cpu).0, machine.llc_of(cpu).0, machine.node_of(cpu).0, machine.socket_of(cpu).0];
        let cells: Vec<String> = ids.iter().map(u32::to_string).chain([format!("{:.6}", busy(cpu.index()))]).collect();
        csv.row(&cells);
    }
    let residents = Residents::new(scene, machine);
    let mut boxes: Vec<Option<Box2>> = (0..machine.llc_count()).map(|_| None).collect();
    let mut y = TOP;
    for socket in machine.sockets() {
        let nodes: Vec<_> =
            machine.nodes_of_socket(socket).iter().filter(|node| !machine.cpus_of_node(**node).is_empty()).collect();
        let start = y;
        y += 24.0;
        svg.text(14.0, start + 16.0, Anchor::Start, "b", &format!("socket {}", machine.socket_os_index(socket)));
        for node in nodes {
            let llcs = machine.llcs_of_node(*node);
            svg.text(14.0, y + 12.0, Anchor::Start, "m s", &format!("node {}", machine.node_os_index(*node)));
            let per_line = if llcs.len() > 4 { 4 } else { llcs.len().clamp(1, 2) };
            let width = (PANEL - 74.0) / per_line as f64;
            for line in llcs.chunks(per_line) {
                let mut tallest = 0.0_f64;
                for (column, llc) in line.iter().enumerate() {
                    let x = 58.0 + width * column as f64;
                    let height = draw_llc(&mut svg, scene, machine, (*llc, &residents), (x, y, width - 8.0), &busy);
                    boxes[llc.index()] = Some(Box2 { x, y, width: width - 8.0, height });
                    tallest = tallest.max(height);
                }
                y += tallest + 12.0;
            }
        }
        svg.rect(8.0, start, PANEL - 16.0, y - start, "frame", "");
        y += 10.0;
    }
    traffic(&mut svg, scene, machine, &boxes);
    colour_bar(&mut svg, (50.0, y + 2.0), "0 %", "100 %", "share of time with a task on the CPU");
    svg.height = y + 24.0;
    key(&mut svg, &residents.rows);
    if SOURCES.iter().any(|(name, ..)| machine.llcs().any(|llc| counted(scene, machine, llc, name) > 0)) {
        for (position, (_, class, words)) in SOURCES.iter().enumerate() {
            let (x, y) = (14.0 + (position % 2) as f64 * 212.0, svg.height + 8.0 + (position / 2) as f64 * 17.0);
            svg.rect(x, y - 8.0, 10.0, 10.0, class, "");
            svg.text(x + 16.0, y, Anchor::Start, "s", &format!("lines from {words}"));
        }
        svg.height += 17.0 * SOURCES.len().div_ceil(2) as f64 + 4.0;
    }
    Figure {
        id: format!("machine-{index}-{}", file_name(&scene.scheduler)),
        title: format!("{} under {}", machine.name(), scene.scheduler),
        caption:
            "Each cell is a CPU, SMT siblings touching; shade is load. The bar above the cells is residency: whose run time \
                  the LLC's CPUs spent, as long as the LLC that was busiest. Lines are moves of tasks between LLCs, the \
                  thicker the more. Bars beside an LLC's name, where the memory was modelled: where the lines came from that its \
                  cores fetched, as long as the LLC that fetched most."
                .into(),
        svg,
        csv: csv.finish(),
    }
}

/// The class of a CPU that was busy for a share of the time.
fn shade(load: f64) -> String {
    if load > 0.0 { format!("g{}", step(load)) } else { "empty".to_owned() }
}

/// Draws an LLC with its cores; returns the height of its box.
fn draw_llc(
    svg: &mut Svg,
    scene: &Scene,
    machine: &Machine,
    (llc, residents): (LlcId, &Residents),
    (x, y, width): (f64, f64, f64),
    busy: &dyn Fn(usize) -> f64,
) -> f64 {
    let mut cores: Vec<CoreId> = machine.cpus_of_llc(llc).iter().map(|cpu| machine.core_of(cpu)).collect();
    cores.dedup();
    cores.sort_unstable();
    cores.dedup();
    let per_line = cores.len().clamp(1, ((width - 10.0) / 17.0).max(1.0) as usize);
    let cell = ((width - 10.0) / per_line as f64).min(34.0);
    let tall = 16.0;
    let lines = cores.len().div_ceil(per_line);
    let height = 32.0 + lines as f64 * (tall + 4.0) + 4.0;
    svg.rect(x, y, width, height, "box", "");
    svg.text(x + 6.0, y + 14.0, Anchor::Start, "s", &llc.to_string());
    sources(svg, scene, machine, llc, (x + 46.0, y + 6.0, width - 52.0));
    residents.draw(svg, machine, llc, (x + 6.0, y + 20.0, width - 12.0));
    for (position, core) in cores.iter().enumerate() {
        let at =
            (x + 5.0 + cell * (position % per_line) as f64, y + 31.0 + (tall + 4.0) * (position / per_line) as f64);
        let cpus = machine.cpus_of_core(*core);
        let part = (cell - 3.0) / cpus.len().max(1) as f64;
        for (thread, cpu) in cpus.iter().enumerate() {
            let load = busy(cpu.index());
            let attributes = format!(r#"data-cpu="{}" class="cpu {}""#, cpu.0, shade(load));
            let hover = format!("{cpu} ({core}, {llc}): busy {} %", three_digits(load * 100.0));
            svg.rect_with(at.0 + part * thread as f64, at.1, part - 0.6, tall, &attributes, &hover);
        }
    }
    height
}

/// Whose run time the CPUs of each LLC spent.
struct Residents {
    rows: Vec<Row>,
    /// Share of the time of an LLC's CPUs, by LLC and row.
    shares: Vec<f64>,
    /// That of the busiest LLC, all rows together.
    most: f64,
}

impl Residents {
    fn new(scene: &Scene, machine: &Machine) -> Self {
        let rows = map_rows(&scene.tasks);
        let mut shares = vec![0.0; machine.llc_count() * rows.len()];
        let whole = |llc: LlcId| scene.end_ns.max(1) as f64 * machine.cpus_of_llc(llc).iter().count() as f64;
        for (position, row) in rows.iter().enumerate() {
            let runs = row.tasks.iter().filter_map(|task| scene.record.cpu_run_ns.get(*task));
            for (cpu, run_ns) in runs.flatten() {
                let llc = machine.llc_of(CpuId(*cpu));
                shares[llc.index() * rows.len() + position] += *run_ns as f64 / whole(llc);
            }
        }
        let most = shares.chunks(rows.len().max(1)).map(|llc| llc.iter().sum()).fold(1e-12, f64::max);
        Self { rows, shares, most }
    }

    /// The bar of an LLC, as long as its CPUs were busy relative to those of the busiest LLC.
    fn draw(&self, svg: &mut Svg, machine: &Machine, llc: LlcId, (x, y, width): (f64, f64, f64)) {
        svg.rect(x, y, width, 7.0, "empty", "");
        let mut from = x;
        for (position, row) in self.rows.iter().enumerate() {
            let share = self.shares[llc.index() * self.rows.len() + position];
            let attributes = format!(
                r#"fill="{}" class="resident" data-llc="{}" data-row="{position}" data-x="{}" data-width="{}" data-cpus="{}""#,
                hex(group(position)),
                llc.0,
                coordinate(x),
                coordinate(width),
                machine.cpus_of_llc(llc).iter().count()
            );
            let hover = format!("{llc}: {} {} % of the CPUs' time", row.label, three_digits(share * 100.0));
            let length = share / self.most * width;
            svg.rect_with(from, y, length, 7.0, &attributes, &hover);
            from += length;
        }
    }
}

/// Which colour of the bars of residency is whose.
fn key(svg: &mut Svg, rows: &[Row]) {
    for (position, row) in rows.iter().enumerate() {
        let (x, y) = (14.0 + (position % 2) as f64 * 212.0, svg.height + 8.0 + (position / 2) as f64 * 17.0);
        svg.rect_with(x, y - 8.0, 10.0, 10.0, &format!(r#"fill="{}""#, hex(group(position))), &row.label);
        svg.text(x + 16.0, y, Anchor::Start, "s", &shortened_group(&row.label, 31));
    }
    svg.height += 20.0 + 17.0 * (rows.len().div_ceil(2).saturating_sub(1)) as f64;
}

/// Where lines that miss the L2 come from: counter, colour's class, words.
pub(crate) const SOURCES: [(&str, &str, &str); 5] = [
    ("c2c_same_llc", "q3", "another core under the LLC"),
    ("c2c_other_llc", "q4", "another LLC"),
    ("c2c_other_socket", "q5", "another socket"),
    ("dram_local", "q6", "memory of the own node"),
    ("dram_remote", "q7", "memory of other nodes"),
];

/// Lines that a counter saw in an LLC during the whole trial.
fn counted(scene: &Scene, machine: &Machine, llc: LlcId, name: &str) -> u64 {
    let counter = scene.tables.counters.iter().position(|other| other == name);
    let cpus = machine.cpus_of_llc(llc).iter().map(|cpu| cpu.index());
    counter.map_or(0, |counter| scene.record.counters.of_cpus(counter, cpus).iter().sum())
}

/// A bar in an LLC's box: where the lines came from that it fetched. As wide as the LLC that fetched most.
fn sources(svg: &mut Svg, scene: &Scene, machine: &Machine, llc: LlcId, (x, y, width): (f64, f64, f64)) {
    let of = |llc: LlcId| SOURCES.map(|(name, ..)| counted(scene, machine, llc, name));
    let most = machine.llcs().map(|llc| of(llc).iter().sum::<u64>()).max().unwrap_or(0);
    if most == 0 || width < 20.0 {
        return;
    }
    let seconds = scene.end_ns as f64 / 1e9;
    let mut from = x;
    for ((name, class, words), lines) in SOURCES.iter().zip(of(llc)) {
        let part = lines as f64 / most as f64 * width;
        let hover = format!("{llc}: {} lines/s from {words}", count(lines as f64 / seconds));
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

/// Lines between the boxes of LLCs for the moves in both directions; the busiest ones.
fn traffic(svg: &mut Svg, scene: &Scene, machine: &Machine, boxes: &[Option<Box2>]) {
    const MOST: usize = 60;
    let llcs = machine.llc_count();
    let mut pairs: Vec<(u64, usize, usize)> = (0..llcs)
        .flat_map(|a| (a + 1..llcs).map(move |b| (a, b)))
        .map(|(a, b)| (scene.record.transitions[a * llcs + b] + scene.record.transitions[b * llcs + a], a, b))
        .filter(|(moves, ..)| *moves > 0)
        .collect();
    pairs.sort_by_key(|(moves, a, b)| (std::cmp::Reverse(*moves), *a, *b));
    let most = pairs.first().map_or(1, |pair| pair.0) as f64;
    for (moves, a, b) in pairs.into_iter().take(MOST).rev() {
        let (Some(from), Some(to)) = (&boxes[a], &boxes[b]) else { continue };
        let middle = |b: &Box2| (b.x + b.width / 2.0, b.y + b.height / 2.0);
        let (from, to) = (middle(from), middle(to));
        let width = 1.0 + 6.0 * moves as f64 / most;
        // Ends a little apart, so that lines between boxes in one row do not lie on top of each other.
        let lift = 3.0 + (b - a) as f64 % 5.0 * 3.0;
        let points = [from, ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0 + lift), to];
        let hover = format!("llc{a} and llc{b}: {} moves", count(moves as f64));
        let attributes = format!(r#"class="traffic w{}" data-llcs="{a} {b}""#, width.round() as u32);
        svg.polyline_with(&points, &attributes, &hover);
    }
}
