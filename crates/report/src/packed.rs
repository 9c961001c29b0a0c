//! A scene as the page's script reads it: a header in JSON, then columns of varints, all of it gzip and base64.
//!
//! | part | holds |
//! |---|---|
//! | 4 bytes | length of the header, little endian |
//! | header | scheduler, trial, end, tasks, groups, decisions' names, counts, length of each column |
//! | `cpu_counts` | slices of each CPU |
//! | `gaps` | from the end of the slice before on that CPU (0 for the first) to the start |
//! | `runs` | duration × 4 + why it ended |
//! | `tasks` | task, as the difference to the slice before on that CPU, zigzag |
//! | `origins` | LLC + 1 of the task's slice before, where that was another one; 0 otherwise |
//! | `delays` | run delay + 1, or 0 for unknown; left out above [`MAX_DELAYS`] slices |
//! | `reasons` | why the wakeup before it placed it there, as the place in the header's list + 1, or 0 for not told; left out as `delays` are, and where nobody told |
//! | `overview` | pairs of task + 1 and busy share, with the number of equal stretches before them; instead of slices |
//! | `counters` | what each place counted, by counter, place and bin, with the number of equal values before each; places are CPUs, or LLCs where that were too many |
//! | `lengths` | runnable tasks × 16, rounded, by CPU and bin, with the number of equal bins before each |
//! | `marks` | decisions: time since the one before, CPU, task + 1, decision, value (zigzag) |
//! | `moves` | migrations: time since the one before, task, from, to, kind |
//! | `wakes` | wakeups: time since the one before, waker + 1 or 0 for an interrupt, its CPU, task, the CPU it was queued on |
//!
//! The script's side is `web/src/scene.ts`.

use std::collections::BTreeMap;

use serde::Serialize;
use warmcore_topology::Machine;
use warmcore_trace::{DecisionKind, DecisionValue, MigrationKind, PlaceReason, Slice, SliceEnd, TaskId};

use crate::counters::COUNTER_BINS;
use crate::figures::scheduler_name;
use crate::others::with_others;
use crate::pack::{Column, base64, gzip};
use crate::rows::{groups, map_rows};
use crate::scene::{LENGTH_BINS, OVERVIEW_BINS, Scene};

/// Slices above which a page does not hold each one's run delay.
pub const MAX_DELAYS: u64 = 400_000;

#[derive(Serialize)]
struct PackedHeader<'a> {
    scheduler: String,
    trial: usize,
    /// As text: seeds have up to 63 bits.
    seed: String,
    /// Where the timeline opens.
    measured_from_ns: u64,
    end_ns: u64,
    slice_count: u64,
    overview_bins: usize,
    length_bins: usize,
    task_names: Vec<&'a str>,
    /// Tasks of the run itself; those after them ran beside it.
    tasks_own: usize,
    task_groups: Vec<usize>,
    task_processes: Vec<u32>,
    groups: Vec<String>,
    decisions: Vec<String>,
    /// What their values are, in words; empty for a number of what the name says.
    decision_values: Vec<&'static str>,
    decisions_total: u64,
    /// Slices as the metrics count them, and decisions that fall after the warm-up.
    slices_measured: u64,
    decisions_measured: u64,
    migrations_ran: u64,
    wakes_total: u64,
    move_kinds: Vec<&'static str>,
    move_reasons: Vec<&'static str>,
    counters: Vec<&'a str>,
    counter_bins: usize,
    /// `cpu` or `llc`.
    counter_places: &'static str,
    slice_ends: Vec<&'static str>,
    /// Why wakeups placed tasks where they did: what occurs.
    place_reasons: Vec<String>,
    /// Row of the machine's map that each task belongs to.
    task_map_rows: Vec<usize>,
    /// Name and length in bytes, in order.
    columns: Vec<(&'static str, usize)>,
}

/// Values of counters above which a page holds those of LLCs, not of CPUs.
const MAX_COUNTER_VALUES: usize = 250_000;

/// The text that goes into the page.
pub fn scene(scene: &Scene, machine: &Machine) -> String {
    let tasks_own = scene.tasks.len();
    let scene = &*with_others(scene, machine);
    let groups = groups(&scene.tasks);
    let mut task_groups = vec![0; scene.tasks.len()];
    groups.iter().for_each(|row| row.tasks.iter().for_each(|task| task_groups[*task] = row.group));
    let mut task_map_rows = vec![0; scene.tasks.len()];
    for (row, of_row) in map_rows(&scene.tasks).iter().enumerate() {
        of_row.tasks.iter().for_each(|task| task_map_rows[*task] = row);
    }
    let mut columns = columns(scene, machine);
    let place_reasons = place_reasons(scene, &mut columns);
    let counters = counted(scene);
    let by_cpu = counters.len() * machine.cpu_count() * COUNTER_BINS <= MAX_COUNTER_VALUES;
    columns.insert("counters", counter_column(scene, machine, &counters, by_cpu));
    let header = PackedHeader {
        scheduler: scheduler_name(&scene.scheduler),
        trial: scene.trial,
        seed: scene.seed.to_string(),
        measured_from_ns: scene.measured_from_ns,
        end_ns: scene.end_ns,
        slice_count: scene.record.slice_count,
        overview_bins: OVERVIEW_BINS,
        length_bins: LENGTH_BINS,
        task_names: scene.tasks.iter().map(|task| task.name.as_str()).collect(),
        tasks_own,
        task_groups,
        task_map_rows,
        task_processes: scene.tasks.iter().map(|task| task.process).collect(),
        groups: groups.into_iter().map(|group| group.label).collect(),
        decisions: scene.tables.decisions.iter().map(DecisionKind::name).collect(),
        decision_values: scene.tables.decisions.iter().map(value_in_words).collect(),
        decisions_total: scene.record.decisions.total,
        slices_measured: scene.metrics.totals.slice.histogram.count(),
        decisions_measured: decisions_measured(scene),
        migrations_ran: scene.metrics.totals.migrations_ran.count,
        wakes_total: scene.record.wakes.total,
        move_kinds: MigrationKind::ALL.iter().map(|kind| kind.name()).collect(),
        move_reasons: MigrationKind::ALL.iter().map(|kind| kind.reason()).collect(),
        slice_ends: SliceEnd::ALL.iter().map(|end| end.name()).collect(),
        place_reasons,
        counters: counters.iter().map(|counter| scene.tables.counters[*counter].as_str()).collect(),
        counter_bins: COUNTER_BINS,
        counter_places: if by_cpu { "cpu" } else { "llc" },
        columns: columns.iter().map(|(name, column)| (*name, column.0.len())).collect(),
    };
    // Strings, numbers and lists of them can always be written.
    let header = serde_json::to_vec(&header).unwrap_or_default();
    let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
    bytes.extend(&header);
    for column in columns.values() {
        bytes.extend(&column.0);
    }
    base64(&gzip(&bytes))
}

/// Decisions after the warm-up. Those that are not kept are later than those that are.
fn decisions_measured(scene: &Scene) -> u64 {
    let decisions = &scene.record.decisions;
    let before = decisions.kept.iter().take_while(|decision| decision.time_ns < scene.window_from_ns).count();
    decisions.total - before as u64
}

fn columns(scene: &Scene, machine: &Machine) -> BTreeMap<&'static str, Column> {
    let mut columns = BTreeMap::new();
    let cpus = scene.metrics.cpus.len();
    if let Some(slices) = &scene.record.slices {
        slice_columns(slices, cpus, &mut columns);
        columns.insert("origins", origins(slices, machine));
    }
    if let Some(overview) = &scene.record.overview {
        let pairs = overview.iter().map(|stretch| (u64::from(stretch.task.0.wrapping_add(1)), u64::from(stretch.busy)));
        columns.insert("overview", repeated(pairs));
    }
    let lengths = scene.record.lengths.iter().map(|length| ((length * 16.0).round() as u64, 0));
    columns.insert("lengths", repeated(lengths));
    let mut marks = Column::default();
    let mut before = 0;
    for mark in &scene.record.decisions.kept {
        marks.push(mark.time_ns - before);
        before = mark.time_ns;
        marks.push(u64::from(mark.cpu.0));
        marks.push(task_plus_one(mark.task));
        marks.push(u64::from(mark.decision));
        let kind = scene.tables.decisions.get(mark.decision as usize);
        marks.push_signed(kind.map_or(mark.value, |kind| kind.value.for_users(mark.value, machine)));
    }
    columns.insert("marks", marks);
    let mut moves = Column::default();
    let mut before = 0;
    for change in &scene.record.moves.kept {
        moves.push(change.time_ns - before);
        before = change.time_ns;
        for value in [change.task.0, change.from.0, change.to.0, change.kind as u32] {
            moves.push(u64::from(value));
        }
    }
    columns.insert("moves", moves);
    let mut wakes = Column::default();
    let mut before = 0;
    for wake in &scene.record.wakes.kept {
        wakes.push(wake.time_ns - before);
        before = wake.time_ns;
        wakes.push(task_plus_one(wake.waker));
        for value in [wake.from.0, wake.task.0, wake.to.0] {
            wakes.push(u64::from(value));
        }
    }
    columns.insert("wakes", wakes);
    columns
}

/// Counters with samples and a name.
fn counted(scene: &Scene) -> Vec<usize> {
    let counters = scene.record.counters.len().min(scene.tables.counters.len());
    (0..counters).filter(|counter| scene.record.counters.total(*counter) > 0).collect()
}

fn counter_column(scene: &Scene, machine: &Machine, counters: &[usize], by_cpu: bool) -> Column {
    let sums = &scene.record.counters;
    let mut values = Vec::new();
    for counter in counters {
        if by_cpu {
            machine.cpus().for_each(|cpu| values.extend(sums.of_cpu(*counter, cpu.index())));
        } else {
            for llc in machine.llcs() {
                values.extend(sums.of_cpus(*counter, machine.cpus_of_llc(llc).iter().map(|cpu| cpu.index())));
            }
        }
    }
    repeated(values.into_iter().map(|value| (value, 0)))
}

fn task_plus_one(task: TaskId) -> u64 {
    if task.is_idle() { 0 } else { u64::from(task.0) + 1 }
}

fn slice_columns(slices: &[Slice], cpus: usize, columns: &mut BTreeMap<&'static str, Column>) {
    let [mut counts, mut gaps, mut runs, mut tasks, mut delays]: [Column; 5] = Default::default();
    let mut per_cpu = vec![0_u64; cpus];
    let mut before: Option<&Slice> = None;
    for slice in slices {
        per_cpu[slice.cpu.index()] += 1;
        let same = before.filter(|before| before.cpu == slice.cpu);
        gaps.push(slice.start_ns.saturating_sub(same.map_or(0, |before| before.end_ns)));
        runs.push((slice.end_ns - slice.start_ns) << 2 | slice.end as u64);
        tasks.push_signed(i64::from(slice.task.0) - same.map_or(0, |before| i64::from(before.task.0)));
        delays.push(slice.run_delay_ns.map_or(0, |delay| delay + 1));
        before = Some(slice);
    }
    per_cpu.into_iter().for_each(|count| counts.push(count));
    columns.extend([("cpu_counts", counts), ("gaps", gaps), ("runs", runs), ("tasks", tasks)]);
    if slices.len() as u64 <= MAX_DELAYS {
        columns.insert("delays", delays);
    }
}

/// The reasons of places that occur, with the column that names one for each slice.
fn place_reasons(scene: &Scene, columns: &mut BTreeMap<&'static str, Column>) -> Vec<String> {
    let slices = scene.record.slices.as_deref().unwrap_or_default();
    if slices.len() as u64 > MAX_DELAYS || slices.iter().all(|slice| slice.placed.is_none()) {
        return Vec::new();
    }
    let (mut reasons, mut column): (Vec<PlaceReason>, _) = (Vec::new(), Column::default());
    for slice in slices {
        let number = slice.placed.map_or(0, |placed| {
            let known = reasons.iter().position(|reason| *reason == placed);
            1 + known.unwrap_or_else(|| {
                reasons.push(placed);
                reasons.len() - 1
            })
        });
        column.push(number as u64);
    }
    columns.insert("reasons", column);
    reasons.into_iter().map(PlaceReason::in_words).collect()
}

/// Of every slice: the LLC its task came from, plus 1, or 0 if it ran there before or nowhere.
fn origins(slices: &[Slice], machine: &Machine) -> Column {
    let mut by_time: Vec<u32> = (0..slices.len() as u32).collect();
    by_time.sort_unstable_by_key(|at| (slices[*at as usize].start_ns, slices[*at as usize].end_ns));
    let tasks = slices.iter().map(|slice| slice.task.index() + 1).max().unwrap_or(0);
    let (mut last, mut origin) = (vec![None; tasks], vec![0_u32; slices.len()]);
    for at in by_time {
        let slice = &slices[at as usize];
        let llc = machine.llc_of(slice.cpu);
        if let Some(before) = last[slice.task.index()].replace(llc)
            && before != llc
        {
            origin[at as usize] = before.0 + 1;
        }
    }
    let mut column = Column::default();
    origin.into_iter().for_each(|value| column.push(value.into()));
    column
}

/// Each pair with the number of times it follows itself: count, first, second.
fn repeated(pairs: impl Iterator<Item = (u64, u64)>) -> Column {
    let mut column = Column::default();
    let mut open: Option<((u64, u64), u64)> = None;
    let mut write = |((first, second), count): ((u64, u64), u64)| {
        column.push(count);
        column.push(first);
        column.push(second);
    };
    for pair in pairs {
        open = match open {
            Some((same, count)) if same == pair => Some((same, count + 1)),
            other => {
                other.into_iter().for_each(&mut write);
                Some((pair, 1))
            }
        };
    }
    open.into_iter().for_each(&mut write);
    column
}
/// What the value of a decision is; nothing for a number, which the reason explains.
fn value_in_words(kind: &DecisionKind) -> &'static str {
    if kind.value == DecisionValue::Count { "" } else { kind.value.in_words() }
}
