//! What happened when: CPUs and tasks over time, tasks per CPU over time.

use std::cmp::Reverse;

use warmcore_topology::Machine;
use warmcore_trace::Slice;

use super::labels::Key;
use super::matrix::colour_bar;
use super::{Axes, Csv, Figure, NARROW, PANEL, file_name, shortened_group};
use crate::colour::{beside, group, hex};
use crate::others::{OFFLINE, Stay, with_others};
use crate::pack::Pixels;
use crate::rows::{Row, cpu_order, groups, rows};
use crate::scale::{Scale, time_ticks};
use crate::scene::{LENGTH_BINS, OVERVIEW_BINS, Scene, spread};
use crate::svg::{Anchor, Svg};
use crate::units::three_digits;

/// Columns of pixels of a timeline.
const BINS: usize = 1024;
/// Rows of a task timeline before tasks share rows.
const MOST_ROWS: usize = 64;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 24.0;
/// Upper end of the keys of timelines.
const TOP: f64 = 8.0;
/// Groups that a key names: as many as there are colours.
const MOST_KEYS: usize = 24;

/// A time axis below a plot from `top` to `bottom`.
fn time_axis(svg: &mut Svg, scene: &Scene, (top, bottom): (f64, f64), left: f64) {
    let right = svg.width - RIGHT;
    let scale = Scale::linear(0.0, scene.end_ns as f64, left, right);
    for (ns, text) in time_ticks(&scale, ((right - left) / 80.0) as usize) {
        svg.line(scale.at(ns), bottom, scale.at(ns), bottom + 4.0, "axis");
        svg.text(scale.at(ns), bottom + 17.0, Anchor::Middle, "m", &text);
    }
    svg.rect(left, top, right - left, bottom - top, "frame", "");
    svg.text((left + right) / 2.0, bottom + 34.0, Anchor::Middle, "m", scene.clock);
}

/// The task that ran most, and the share of time with any task, per column of one CPU's row.
fn dominant(slices: &[Slice], end_ns: u64) -> Vec<Option<(usize, f64)>> {
    let mut row = vec![None; BINS];
    let mut open: (usize, Vec<(usize, u64)>) = (0, Vec::new());
    let mut close = |open: &mut (usize, Vec<(usize, u64)>)| {
        if let Some((task, _)) = open.1.iter().rev().max_by_key(|(_, ns)| *ns) {
            let busy: u64 = open.1.iter().map(|(_, ns)| ns).sum();
            row[open.0] = Some((*task, busy as f64 / (end_ns as f64 / BINS as f64)));
        }
        open.1.clear();
    };
    for slice in slices {
        for (bin, ns) in spread(slice.start_ns, slice.end_ns, end_ns, BINS) {
            if bin != open.0 {
                close(&mut open);
                open.0 = bin;
            }
            match open.1.iter_mut().find(|(task, _)| *task == slice.task.index()) {
                Some((_, sum)) => *sum += ns,
                None => open.1.push((slice.task.index(), ns)),
            }
        }
    }
    close(&mut open);
    row
}

/// The same from the overview of a scene that has no slices.
fn from_overview(scene: &Scene, cpu: usize) -> Vec<Option<(usize, f64)>> {
    let Some(overview) = &scene.record.overview else { return vec![None; BINS] };
    let stretches = &overview[cpu * OVERVIEW_BINS..][..OVERVIEW_BINS];
    let column = |part: &[crate::scene::Stretch]| {
        let most = part.iter().filter(|stretch| !stretch.task.is_idle()).max_by_key(|stretch| stretch.busy)?;
        let busy: u32 = part.iter().map(|stretch| u32::from(stretch.busy)).sum();
        Some((most.task.index(), f64::from(busy) / 255.0 / part.len() as f64))
    };
    stretches.chunks(OVERVIEW_BINS / BINS).map(column).collect()
}

/// CPUs over time, coloured by who runs, so wide and with so much data at most (`csv_of_slices`). `None` when nothing ran.
pub fn cpus(index: usize, scene: &Scene, machine: &Machine, (wide, most): (f64, usize)) -> Option<Figure> {
    let left = if wide < NARROW { 62.0 } else { LEFT };
    if scene.record.slice_count == 0 {
        return None;
    }
    let own = scene.tasks.len();
    let scene = &*with_others(scene, machine);
    let groups = groups(&scene.tasks);
    let by_group = groups.len() > 1;
    let mut group_of = vec![0; scene.tasks.len()];
    groups.iter().for_each(|row| row.tasks.iter().for_each(|task| group_of[*task] = row.group));
    let order = cpu_order(machine);
    let mut pixels = Pixels::new(BINS, order.len());
    let mut csv = match &scene.record.slices {
        Some(slices) => csv_of_slices(slices, scene, machine, most),
        None => Csv::new(&["cpu", "start_ns", "end_ns", "task_that_ran_most", "busy_share"]),
    };
    for (row, cpu) in order.iter().enumerate() {
        let columns = match &scene.record.slices {
            Some(slices) => {
                let from = slices.partition_point(|slice| slice.cpu < *cpu);
                let to = slices.partition_point(|slice| slice.cpu <= *cpu);
                dominant(&slices[from..to], scene.end_ns)
            }
            None => from_overview(scene, cpu.index()),
        };
        for (bin, column) in columns.iter().enumerate() {
            let Some((task, busy)) = column else { continue };
            let number = if by_group { group_of.get(*task).copied().unwrap_or(0) } else { *task };
            let colour = if *task < own { group(number) } else { beside(&scene.tasks[*task].name) };
            pixels.set_with_alpha(bin, row, colour, 0.25 + 0.75 * busy);
        }
        if scene.record.slices.is_none() {
            rle(&mut csv, &machine.os_index(*cpu).to_string(), &columns, scene);
        }
    }
    let edges = (left, wide - RIGHT);
    let of_groups = if by_group { keys_of_groups(&groups, scene, own) } else { Vec::new() };
    let keys = [Key::new(of_groups, edges), Key::of_llcs(scene, machine, "stripe: ", edges)];
    let top = TOP + keys.iter().map(Key::height).sum::<f64>() + 4.0;
    let body = (order.len() as f64 * 12.0).clamp(48.0, 420.0);
    let bottom = top + body;
    let mut svg = Svg::new(wide, bottom + 46.0);
    svg.image(left, top, wide - RIGHT - left, body, &pixels.png());
    let step = body / order.len() as f64;
    for (row, cpu) in order.iter().enumerate().step_by((12.0 / step).ceil() as usize) {
        svg.text(
            left - 14.0,
            top + step * (row as f64 + 0.5) + 4.0,
            Anchor::End,
            "s",
            &machine.os_cpu(*cpu).to_string(),
        );
    }
    for (row, cpu) in order.iter().enumerate() {
        let llc = machine.llc_of(*cpu);
        let fill = format!(r#"fill="{}""#, hex(group(llc.index())));
        svg.rect_with(left - 9.0, top + step * row as f64, 5.0, step, &fill, &llc.to_string());
    }
    keys[0].draw(&mut svg, TOP);
    keys[1].draw(&mut svg, TOP + keys[0].height());
    time_axis(&mut svg, scene, (top, bottom), left);
    Some(Figure {
        id: format!("timeline-cpus-{index}-{}", file_name(&scene.scheduler)),
        title: format!("CPUs over time under {}", scene.scheduler),
        caption: format!(
            "What ran most in each of {BINS} stretches of time, paler where the CPU was partly idle; coloured by {}. The stripe \
             on the left is the LLC.",
            if by_group { "application and role" } else { "task" }
        ),
        svg,
        csv: csv.finish(),
    })
}

/// Colour and name of each group that ran, of many those that ran most, in their order. So many tasks are the run's own.
fn keys_of_groups(groups: &[Row], scene: &Scene, own: usize) -> Vec<(String, String)> {
    // Of others beside the run there are stays only.
    let mut by_task = vec![0_u64; scene.tasks.len()];
    let mut add = |task: usize, run_ns: u64| by_task.get_mut(task).into_iter().for_each(|sum| *sum += run_ns);
    match &scene.record.slices {
        Some(slices) => slices.iter().for_each(|slice| add(slice.task.index(), slice.end_ns - slice.start_ns)),
        None => scene.record.cpu_run_ns.iter().enumerate().for_each(|(task, stays)| {
            add(task, stays.iter().map(|(_, run_ns)| run_ns).sum());
        }),
    }
    let run_ns = |row: &Row| -> u64 { row.tasks.iter().map(|task| by_task[*task]).sum() };
    let mut ran: Vec<(usize, u64)> = groups.iter().map(run_ns).enumerate().filter(|(_, run_ns)| *run_ns > 0).collect();
    ran.sort_by_key(|(_, run_ns)| Reverse(*run_ns));
    ran.truncate(MOST_KEYS);
    ran.sort_unstable();
    let key = |(at, _): (usize, u64)| {
        let first = groups[at].tasks[0];
        let colour = if first < own { group(groups[at].group) } else { beside(&scene.tasks[first].name) };
        (format!(r#"fill="{}""#, hex(colour)), shortened_group(&groups[at].label, 26))
    };
    ran.into_iter().map(key).collect()
}

/// Every stay of a task on a CPU, in order of CPUs and time. It ends where it becomes longer than `most` bytes.
fn csv_of_slices(slices: &[Slice], scene: &Scene, machine: &Machine, most: usize) -> Csv {
    let mut csv = Csv::new(&["cpu", "llc", "start_ns", "end_ns", "task", "run_delay_ns"]);
    for slice in slices {
        let name = scene.tasks.get(slice.task.index()).map_or("", |task| task.name.as_str());
        csv.row(&[
            &machine.os_index(slice.cpu).to_string(),
            &machine.llc_of(slice.cpu).0.to_string(),
            &slice.start_ns.to_string(),
            &slice.end_ns.to_string(),
            name,
            &slice.run_delay_ns.map_or_else(String::new, |ns| ns.to_string()),
        ]);
        if csv.bytes() > most {
            break;
        }
    }
    csv
}

/// Columns of one row with equal contents as one line.
fn rle(csv: &mut Csv, row: &str, columns: &[Option<(usize, f64)>], scene: &Scene) {
    let edge = |bin: usize| (u128::from(scene.end_ns) * bin as u128 / columns.len() as u128) as u64;
    let mut from = 0;
    while from < columns.len() {
        let same = columns[from..].iter().take_while(|column| **column == columns[from]).count();
        if let Some((task, busy)) = columns[from] {
            let name = scene.tasks.get(task).map_or("", |task| task.name.as_str());
            csv.row(&[
                row,
                &edge(from).to_string(),
                &edge(from + same).to_string(),
                name,
                &format!("{:.4}", busy.min(1.0)),
            ]);
        }
        from += same;
    }
}

/// Tasks over time, coloured by the LLC they run on, likewise. `None` without slices.
pub fn tasks(index: usize, scene: &Scene, machine: &Machine, (wide, most): (f64, usize)) -> Option<Figure> {
    let left = if wide < NARROW { 110.0 } else { LEFT };
    let slices = scene.record.slices.as_ref().filter(|slices| !slices.is_empty())?;
    let rows = rows(&scene.tasks, MOST_ROWS);
    let llcs = machine.llc_count();
    let mut row_of = vec![usize::MAX; scene.tasks.len()];
    rows.iter().enumerate().for_each(|(at, row)| row.tasks.iter().for_each(|task| row_of[*task] = at));
    let mut sums = vec![0_f32; rows.len() * BINS * llcs];
    for slice in slices {
        let Some(row) = row_of.get(slice.task.index()).filter(|row| **row != usize::MAX) else { continue };
        let llc = machine.llc_of(slice.cpu).index();
        for (bin, ns) in spread(slice.start_ns, slice.end_ns, scene.end_ns, BINS) {
            sums[(row * BINS + bin) * llcs + llc] += ns as f32;
        }
    }
    let bin_ns = scene.end_ns as f32 / BINS as f32;
    let mut pixels = Pixels::new(BINS, rows.len());
    let csv = csv_of_slices(slices, scene, machine, most);
    for (at, row) in rows.iter().enumerate() {
        for bin in 0..BINS {
            let cell = &sums[(at * BINS + bin) * llcs..][..llcs];
            let Some((llc, most)) = cell.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)))
            else {
                continue;
            };
            if *most > 0.0 {
                let running = cell.iter().sum::<f32>() / bin_ns;
                let share = f64::from(running) / row.tasks.len() as f64;
                pixels.set_with_alpha(bin, at, group(llc), 0.25 + 0.75 * share.min(1.0));
            }
        }
    }
    let key = Key::of_llcs(scene, machine, "", (left, wide - RIGHT));
    let top = TOP + key.height() + 4.0;
    let body = (rows.len() as f64 * 12.0).clamp(24.0, 420.0);
    let bottom = top + body;
    let mut svg = Svg::new(wide, bottom + 46.0);
    svg.image(left, top, wide - RIGHT - left, body, &pixels.png());
    let step = body / rows.len() as f64;
    for (at, row) in rows.iter().enumerate().step_by((12.0 / step).ceil() as usize) {
        svg.text(
            left - 8.0,
            top + step * (at as f64 + 0.5) + 4.0,
            Anchor::End,
            "s",
            &shortened_group(&row.label, (left / 6.4) as usize),
        );
    }
    key.draw(&mut svg, TOP);
    time_axis(&mut svg, scene, (top, bottom), left);
    Some(Figure {
        id: format!("timeline-tasks-{index}-{}", file_name(&scene.scheduler)),
        title: format!("Tasks over time under {}", scene.scheduler),
        caption:
            "Coloured by the LLC in which the row's tasks ran most; paler where they waited or slept part of the time."
                .into(),
        svg,
        csv: csv.finish(),
    })
}

/// Runnable tasks per CPU over time (running and queued), as in figures 6 and 7 of Bouron et al. (USENIX ATC 2018).
pub fn threads_per_cpu(index: usize, scene: &Scene, machine: &Machine, axes: &Axes) -> Figure {
    const LEFT: f64 = 56.0;
    const RIGHT: f64 = 16.0;
    const TOP: f64 = 6.0;
    let order = cpu_order(machine);
    let lengths = &scene.record.lengths;
    let most = axes.most_tasks;
    // Few tasks on a few CPUs are told apart linearly; where one CPU held hundreds, by logarithm.
    let logarithmic = most > 24.0;
    let share = |length: f32| {
        let (value, most) = (f64::from(length), f64::from(most));
        if logarithmic { (1.0 + value).ln() / (1.0 + most).ln() } else { value / most }
    };
    let mut csv = Csv::new(&["cpu", "start_ns", "end_ns", "runnable_tasks_mean"]);
    let edge = |bin: usize| (u128::from(scene.end_ns) * bin as u128 / LENGTH_BINS as u128) as u64;
    for cpu in &order {
        let of_cpu = &lengths[cpu.index() * LENGTH_BINS..][..LENGTH_BINS];
        let mut from = 0;
        for same in of_cpu.chunk_by(|a, b| a == b) {
            let (start, end) = (edge(from), edge(from + same.len()));
            let number = machine.os_index(*cpu).to_string();
            csv.row(&[number, start.to_string(), end.to_string(), format!("{:.4}", same[0])]);
            from += same.len();
        }
    }
    let body = (order.len() as f64 * 7.0).clamp(48.0, 200.0);
    let bottom = TOP + body;
    let mut svg = Svg::new(axes.wide, bottom + 60.0);
    let x = Scale::linear(0.0, axes.end_ns.max(1) as f64, LEFT, axes.wide - RIGHT);
    svg.magnitudes([LEFT, TOP, x.at(scene.end_ns as f64) - LEFT, body], (LENGTH_BINS, order.len()), |bin, row| {
        let length = lengths[order[row].index() * LENGTH_BINS + bin];
        (length > 0.0).then(|| share(length))
    });
    let step = body / order.len() as f64;
    let offline: Vec<&Stay> = scene.record.others.iter().filter(|stay| stay.thread == OFFLINE).collect();
    for stay in &offline {
        let row = order.iter().position(|cpu| *cpu == stay.cpu).unwrap_or(0);
        let (from, to) = (x.at(stay.start_ns as f64), x.at(stay.end_ns as f64));
        svg.rect(
            from,
            TOP + step * row as f64,
            to - from,
            step,
            "rest",
            &format!("{} offline", machine.os_cpu(stay.cpu)),
        );
    }
    for (row, cpu) in order.iter().enumerate().step_by((12.0 / step).ceil() as usize) {
        svg.text(
            LEFT - 8.0,
            TOP + step * (row as f64 + 0.5) + 4.0,
            Anchor::End,
            "s",
            &machine.os_cpu(*cpu).to_string(),
        );
    }
    for (ns, text) in time_ticks(&x, (4.0 * axes.wide / PANEL) as usize) {
        svg.line(x.at(ns), bottom, x.at(ns), bottom + 4.0, "axis");
        svg.text(x.at(ns), bottom + 17.0, Anchor::Middle, "m", &text);
    }
    svg.rect(LEFT, TOP, axes.wide - RIGHT - LEFT, body, "frame", "");
    svg.text((LEFT + axes.wide - RIGHT) / 2.0, bottom + 33.0, Anchor::Middle, "m", scene.clock);
    let meaning = if logarithmic { "runnable tasks (logarithmic)" } else { "runnable tasks" };
    colour_bar(&mut svg, (LEFT, bottom + 44.0), (0.0, "0"), &three_digits(f64::from(most)), meaning);
    Figure {
        id: format!("threads-per-cpu-{index}-{}", file_name(&scene.scheduler)),
        title: format!("Tasks per CPU over time under {}", scene.scheduler),
        caption: format!(
            "Running and queued tasks of each CPU, averaged over {LENGTH_BINS} equal parts of the trial. Blank: none.{}",
            if offline.is_empty() { "" } else { " Grey: the CPU is offline." }
        ),
        svg,
        csv: csv.finish(),
    }
}
