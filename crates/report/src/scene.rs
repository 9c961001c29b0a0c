//! One trial looked at closely: who ran where and when, how many tasks each CPU had, who moved between LLCs. Recorded
//! from the trial's events while they stream by.
//!
//! Up to [`MAX_SLICES`] stays on a CPU are kept one by one; beyond that only the overview (which task ran most in each
//! of [`OVERVIEW_BINS`] stretches of time, per CPU) and the sums. Marks (decisions, migrations) are kept up to
//! [`MAX_MARKS`] of each kind, and how many there were is always counted. Definitions of metrics are the trace crate's;
//! nothing is measured here.

use std::collections::BTreeSet;
use std::io;
use std::mem;

use warmcore_topology::{CpuId, LlcId, Machine, VirtualLlcs};
use warmcore_trace::metrics::Metrics;
use warmcore_trace::{
    Event, EventKind, MigrationKind, PrevState, RunTables, Sink, Slice, SliceBuilder, TaskId, TaskInfo,
};

use crate::counters::CounterSums;
use crate::others::{Others, Stay};
use crate::scores::ScoreTracks;
use crate::throttled::Throttled;

/// Stays on a CPU that are kept one by one.
pub const MAX_SLICES: usize = 5_000_000;
/// Stretches of time of the overview.
pub const OVERVIEW_BINS: usize = 8192;
/// Stretches of time in which tasks per CPU are averaged.
pub const LENGTH_BINS: usize = 600;
/// Marks of one kind that are kept.
pub const MAX_MARKS: usize = 200_000;

/// How many of everything a recorder keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// See [`MAX_SLICES`].
    pub slices: usize,
    /// See [`MAX_MARKS`].
    pub marks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { slices: MAX_SLICES, marks: MAX_MARKS }
    }
}

/// A decision of the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// When.
    pub time_ns: u64,
    /// On which CPU.
    pub cpu: CpuId,
    /// About whom, or idle.
    pub task: TaskId,
    /// Index into the run's table of decisions.
    pub decision: u32,
    /// Its value.
    pub value: i64,
}

/// A move of a task to another CPU (`sched_migrate_task`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// When.
    pub time_ns: u64,
    /// Who.
    pub task: TaskId,
    /// Old CPU.
    pub from: CpuId,
    /// New CPU.
    pub to: CpuId,
    /// Why.
    pub kind: MigrationKind,
}

/// A wakeup that a task or an interrupt caused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// When the woken task was queued.
    pub time_ns: u64,
    /// Who woke it, or idle for an interrupt.
    pub waker: TaskId,
    /// CPU of the waker.
    pub from: CpuId,
    /// Who was woken.
    pub task: TaskId,
    /// CPU on whose queue it was put.
    pub to: CpuId,
}

/// Marks of one kind: those that are kept, and how many there were.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marks<T> {
    /// The first ones.
    pub kept: Vec<T>,
    /// All of them.
    pub total: u64,
}

impl<T> Default for Marks<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), total: 0 }
    }
}

impl<T> Marks<T> {
    fn push(&mut self, mark: T, limit: usize) {
        self.total += 1;
        if self.kept.len() < limit {
            self.kept.push(mark);
        }
    }
}

/// What a CPU did in one stretch of the overview.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// The task that ran most, or idle.
    pub task: TaskId,
    /// Share of the stretch with any task on the CPU, 0..=255.
    pub busy: u8,
}

/// One trial looked at closely.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Label of the scheduler.
    pub scheduler: String,
    /// Number of the trial, from 0.
    pub trial: usize,
    /// Its seed.
    pub seed: u64,
    /// Beginning of the window in which its metrics were measured: the end of the warm-up.
    pub window_from_ns: u64,
    /// Beginning of what the verdict's measure is of, which may be later: a start signal. Where a timeline opens.
    pub measured_from_ns: u64,
    /// End of the window.
    pub end_ns: u64,
    /// What its time axis shows: simulated time, or time.
    pub clock: &'static str,
    /// Its metrics.
    pub metrics: Metrics,
    /// What indices stand for.
    pub tables: RunTables,
    /// Its tasks.
    pub tasks: Vec<TaskInfo>,
    /// What was recorded.
    pub record: Recording,
}

impl Scene {
    /// LLCs of a machine in which tasks of the run ran.
    pub fn used_llcs(&self, machine: &Machine) -> Vec<LlcId> {
        // Side by side there may be runs on machines with fewer CPUs.
        let is_there = |cpu: u32| (cpu as usize) < machine.cpu_count();
        let stays = self.record.cpu_run_ns.iter().flatten().filter(|(cpu, run_ns)| *run_ns > 0 && is_there(*cpu));
        let used: BTreeSet<LlcId> = stays.map(|(cpu, _)| machine.llc_of(CpuId(*cpu))).collect();
        used.into_iter().collect()
    }

    /// Name of a task, `idle` for none.
    pub fn task_name(&self, task: TaskId) -> &str {
        self.tasks.get(task.index()).map_or("idle", |task| &task.name)
    }
}

/// What a [`Recorder`] has recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Number of stays on a CPU.
    pub slice_count: u64,
    /// All of them, by CPU and time; `None` when there were too many.
    pub slices: Option<Vec<Slice>>,
    /// By CPU, then by stretch of time. Made when the slices were too many.
    pub overview: Option<Vec<Stretch>>,
    /// Runnable tasks (running and queued), time-weighted mean: by CPU, then by bin. [`LENGTH_BINS`] bins.
    pub lengths: Vec<f32>,
    /// Stays of others on CPUs, and times offline, by CPU and time, as far as events tell; up to as many as slices.
    pub others: Vec<Stay>,
    /// Run time by task: CPU and nanoseconds, in order of CPUs.
    pub cpu_run_ns: Vec<Vec<(u32, u64)>>,
    /// Migrations (ran) between LLCs: from row to column.
    pub transitions: Vec<u64>,
    /// The same between virtual LLCs, where there are some.
    pub virtual_transitions: Option<Vec<u64>>,
    /// Decisions.
    pub decisions: Marks<Decision>,
    /// Moves.
    pub moves: Marks<Move>,
    /// Wakeups.
    pub wakes: Marks<Wake>,
    /// Counters of CPUs.
    pub counters: CounterSums,
    /// What the scheduler ranked tasks by.
    pub scores: ScoreTracks,
}

/// Time by task within the present stretch of a CPU.
#[derive(Clone, Default)]
struct OpenStretch {
    index: usize,
    by_task: Vec<(TaskId, u64)>,
}

/// Number of runnable tasks of a CPU.
#[derive(Clone, Copy, Default)]
struct Length {
    now: u32,
    since_ns: u64,
}

/// Takes a trial's events and keeps what is worth looking at.
#[derive(Clone)]
pub struct Recorder {
    llc_of: Vec<LlcId>,
    llcs: usize,
    end_ns: u64,
    limits: Limits,
    builder: SliceBuilder,
    slices: Option<Vec<Slice>>,
    slice_count: u64,
    others: Others,
    stays: Vec<Stay>,
    overview: Vec<Stretch>,
    open: Vec<OpenStretch>,
    lengths: Vec<Length>,
    /// Nanoseconds times tasks.
    length_sums: Vec<f64>,
    queued_on: Vec<Option<CpuId>>,
    throttled: Throttled,
    last_cpu: Vec<Option<CpuId>>,
    cpu_run_ns: Vec<Vec<(u32, u64)>>,
    transitions: Vec<u64>,
    virtual_llcs: Option<VirtualLlcs>,
    virtual_transitions: Vec<u64>,
    decisions: Marks<Decision>,
    moves: Marks<Move>,
    wakes: Marks<Wake>,
    /// Waker and its CPU of each task that is being woken.
    waking: Vec<Option<(TaskId, CpuId)>>,
    counters: CounterSums,
    scores: ScoreTracks,
    /// Whether samples of tasks are of stays on CPUs, and so counts of these too.
    counted_per_stay: bool,
    /// Whether threads of a real kernel were recorded, and so their interrupts are shown.
    recorded: bool,
}

impl Recorder {
    /// A recorder for a trial on `machine` that is known to end at `end_ns`. `virtual_llcs` says how its LLCs are divided, if they are.
    pub fn new(machine: &Machine, virtual_llcs: Option<VirtualLlcs>, end_ns: u64, limits: Limits) -> Self {
        let (cpus, llcs) = (machine.cpu_count(), machine.llc_count());
        let groups = virtual_llcs.as_ref().map_or(0, VirtualLlcs::count);
        Self {
            llc_of: machine.cpus().map(|cpu| machine.llc_of(cpu)).collect(),
            llcs,
            end_ns: end_ns.max(1),
            limits,
            builder: SliceBuilder::new(),
            slices: Some(Vec::new()),
            slice_count: 0,
            others: Others::new(cpus),
            stays: Vec::new(),
            overview: vec![Stretch { task: TaskId::IDLE, busy: 0 }; cpus * OVERVIEW_BINS],
            open: vec![OpenStretch::default(); cpus],
            lengths: vec![Length::default(); cpus],
            length_sums: vec![0.0; cpus * LENGTH_BINS],
            queued_on: Vec::new(),
            throttled: Throttled::default(),
            last_cpu: Vec::new(),
            cpu_run_ns: Vec::new(),
            transitions: vec![0; llcs * llcs],
            virtual_llcs,
            virtual_transitions: vec![0; groups * groups],
            decisions: Marks::default(),
            moves: Marks::default(),
            wakes: Marks::default(),
            waking: Vec::new(),
            counters: CounterSums::new(cpus, end_ns),
            scores: ScoreTracks::new(end_ns),
            counted_per_stay: false,
            recorded: false,
        }
    }

    /// The same, for a run with these tables.
    #[must_use]
    pub fn for_tables(self, tables: &RunTables) -> Self {
        Self { counted_per_stay: tables.counted_per_stay, recorded: !tables.threads.is_empty(), ..self }
    }

    /// Closes the window.
    #[must_use]
    pub fn finish(mut self) -> Recording {
        let open: Vec<Slice> = self.builder.open_slices(self.end_ns).collect();
        open.iter().for_each(|slice| self.take_slice(slice));
        for cpu in 0..self.lengths.len() {
            self.close_stretch(cpu);
            self.advance_length(cpu, self.end_ns);
        }
        let bin_ns = self.end_ns as f64 / LENGTH_BINS as f64;
        let slices = self.slices.map(|mut slices| {
            slices.sort_unstable_by_key(|slice| (slice.cpu, slice.start_ns, slice.end_ns));
            slices
        });
        let mut others = self.stays;
        others.extend(self.others.open(self.end_ns));
        others.sort_unstable_by_key(|stay| (stay.cpu, stay.start_ns, stay.end_ns));
        Recording {
            slice_count: self.slice_count,
            others,
            overview: slices.is_none().then_some(self.overview),
            slices,
            lengths: self.length_sums.iter().map(|sum| (sum / bin_ns) as f32).collect(),
            cpu_run_ns: self.cpu_run_ns,
            transitions: self.transitions,
            virtual_transitions: self.virtual_llcs.map(|_| self.virtual_transitions),
            decisions: self.decisions,
            moves: self.moves,
            wakes: self.wakes,
            counters: self.counters,
            scores: self.scores,
        }
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        if event.cpu.index() >= self.llc_of.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the machine has no {}", event.cpu)));
        }
        if let Some(slice) = self.builder.push(event)? {
            self.take_slice(&slice);
        }
        let interrupt = Stay::of_interrupt(event).filter(|_| self.recorded);
        let stay = self.others.push(event).or(interrupt);
        self.stays.extend(stay.filter(|_| self.stays.len() < self.limits.slices));
        let (time_ns, cpu) = (event.time_ns, event.cpu);
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                if !prev.is_idle() && matches!(prev_state, PrevState::Sleeping | PrevState::Dead) {
                    self.place(time_ns, prev, None);
                    self.scores.sleeps(prev);
                }
                if !next.is_idle() {
                    self.place(time_ns, next, Some(cpu));
                }
            }
            EventKind::Wakeup { task, .. } => {
                if self.queued(task).is_none() {
                    self.place(time_ns, task, Some(cpu));
                }
                if let Some((waker, from)) = self.waking.get_mut(task.index()).and_then(Option::take) {
                    self.wakes.push(Wake { time_ns, waker, from, task, to: cpu }, self.limits.marks);
                }
            }
            EventKind::Migrate { task, from, to, kind } => {
                if to.index() >= self.llc_of.len() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the machine has no {to}")));
                }
                if self.queued(task).is_some() {
                    self.place(time_ns, task, Some(to));
                }
                self.moves.push(Move { time_ns, task, from, to, kind }, self.limits.marks);
            }
            EventKind::Decision { decision, task, value } => {
                self.decisions.push(Decision { time_ns, cpu, task, decision, value }, self.limits.marks);
            }
            EventKind::Counter { counter, task, value } => {
                if task.is_idle() || self.counted_per_stay {
                    self.counters.add(time_ns, cpu.index(), counter as usize, value);
                }
            }
            EventKind::Score { score, task, value } => self.scores.add(time_ns, score as usize, task, value),
            EventKind::Waking { task, waker, .. } => {
                if task.index() >= self.waking.len() {
                    self.waking.resize(task.index() + 1, None);
                }
                self.waking[task.index()] = Some((waker, cpu));
            }
            EventKind::Fork { .. }
            | EventKind::Exit { .. }
            | EventKind::Affinity { .. }
            | EventKind::Phase { .. }
            | EventKind::BalanceDetail { .. }
            | EventKind::Foreign { .. }
            | EventKind::Hotplug { .. }
            | EventKind::Throttle { .. }
            | EventKind::Overhead { .. } => {}
        }
        let is_queued = |task: TaskId| self.queued_on.get(task.index()).is_some_and(Option::is_some);
        if let Some((task, cpu)) = self.throttled.push(event, is_queued) {
            self.place(time_ns, task, cpu);
        }
        Ok(())
    }

    fn queued(&mut self, task: TaskId) -> &mut Option<CpuId> {
        if task.index() >= self.queued_on.len() {
            self.queued_on.resize(task.index() + 1, None);
        }
        &mut self.queued_on[task.index()]
    }

    /// Says on which CPU's queue a task is from now on.
    fn place(&mut self, time_ns: u64, task: TaskId, cpu: Option<CpuId>) {
        let before = mem::replace(self.queued(task), cpu);
        if before == cpu {
            return;
        }
        for (cpu, more) in [(before, false), (cpu, true)] {
            if let Some(cpu) = cpu {
                self.advance_length(cpu.index(), time_ns);
                let now = &mut self.lengths[cpu.index()].now;
                *now = if more { *now + 1 } else { now.saturating_sub(1) };
            }
        }
    }

    /// Adds what a CPU's queue was long since its last change to the bins.
    fn advance_length(&mut self, cpu: usize, until_ns: u64) {
        let Length { now, since_ns } = self.lengths[cpu];
        let until_ns = until_ns.min(self.end_ns);
        self.lengths[cpu].since_ns = until_ns;
        if now > 0 {
            for (bin, part_ns) in spread(since_ns, until_ns, self.end_ns, LENGTH_BINS) {
                self.length_sums[cpu * LENGTH_BINS + bin] += part_ns as f64 * f64::from(now);
            }
        }
    }

    fn take_slice(&mut self, slice: &Slice) {
        self.slice_count += 1;
        let (task, cpu) = (slice.task.index(), slice.cpu.index());
        if task >= self.cpu_run_ns.len() {
            self.cpu_run_ns.resize(task + 1, Vec::new());
            self.last_cpu.resize(task + 1, None);
        }
        let run_ns = slice.end_ns - slice.start_ns;
        let runs = &mut self.cpu_run_ns[task];
        match runs.binary_search_by_key(&slice.cpu.0, |(cpu, _)| *cpu) {
            Ok(position) => runs[position].1 += run_ns,
            Err(position) => runs.insert(position, (slice.cpu.0, run_ns)),
        }
        if let Some(last) = self.last_cpu[task].replace(slice.cpu) {
            let (from, to) = (self.llc_of[last.index()], self.llc_of[cpu]);
            if from != to {
                self.transitions[from.index() * self.llcs + to.index()] += 1;
            }
            if let Some(division) = &self.virtual_llcs {
                let (from, to) = (division.of(last), division.of(slice.cpu));
                if from != to {
                    self.virtual_transitions[from * division.count() + to] += 1;
                }
            }
        }
        for (bin, part_ns) in spread(slice.start_ns, slice.end_ns, self.end_ns, OVERVIEW_BINS) {
            if bin != self.open[cpu].index {
                self.close_stretch(cpu);
                self.open[cpu].index = bin;
            }
            let by_task = &mut self.open[cpu].by_task;
            match by_task.iter_mut().find(|(known, _)| *known == slice.task) {
                Some((_, sum)) => *sum += part_ns,
                None => by_task.push((slice.task, part_ns)),
            }
        }
        if let Some(slices) = &mut self.slices {
            slices.push(*slice);
            if slices.len() > self.limits.slices {
                self.slices = None;
            }
        }
    }

    fn close_stretch(&mut self, cpu: usize) {
        let OpenStretch { index, by_task } = &mut self.open[cpu];
        // The first of equals: whoever ran first.
        let most = by_task.iter().rev().max_by_key(|(_, sum)| *sum).map(|(task, _)| *task);
        if let Some(task) = most {
            let busy_ns: u64 = by_task.iter().map(|(_, sum)| sum).sum();
            let bin_ns = self.end_ns as f64 / OVERVIEW_BINS as f64;
            let busy = (busy_ns as f64 / bin_ns * 255.0).round().clamp(1.0, 255.0) as u8;
            self.overview[cpu * OVERVIEW_BINS + *index] = Stretch { task, busy };
        }
        by_task.clear();
    }
}

impl Sink for Recorder {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        batch.iter().try_for_each(|event| self.event(event))
    }
}

/// The parts of `from_ns..to_ns` in each of `bins` equal stretches of `0..end_ns`.
pub(crate) fn spread(from_ns: u64, to_ns: u64, end_ns: u64, bins: usize) -> impl Iterator<Item = (usize, u64)> {
    let edge = move |bin: usize| (u128::from(end_ns) * bin as u128 / bins as u128) as u64;
    let (from_ns, to_ns) = (from_ns.min(end_ns), to_ns.min(end_ns));
    let mut first = (u128::from(from_ns) * bins as u128 / u128::from(end_ns.max(1))) as usize;
    while first < bins && edge(first + 1) <= from_ns {
        first += 1;
    }
    (first..bins)
        .take_while(move |bin| edge(*bin) < to_ns)
        .map(move |bin| (bin, to_ns.min(edge(bin + 1)) - from_ns.max(edge(bin))))
        .filter(|(_, part_ns)| *part_ns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::resolve;

    fn event(time_ns: u64, cpu: u32, kind: EventKind) -> Event {
        Event { time_ns, cpu: CpuId(cpu), kind }
    }

    fn switch(time_ns: u64, cpu: u32, prev: u32, prev_state: PrevState, next: u32) -> Event {
        event(time_ns, cpu, EventKind::Switch { prev: TaskId(prev), prev_state, next: TaskId(next) })
    }

    const IDLE: u32 = u32::MAX;

    /// Task 0 runs on CPU 0 for 0..300, then on CPU 2 (the other LLC) for 500..1000; task 1 waits behind it on CPU 0
    /// from 100 and runs there from 300.
    fn recording(limits: Limits) -> Recording {
        let machine = resolve("1s1n2l2c1t").unwrap();
        let mut recorder = Recorder::new(&machine, None, 1000, limits);
        let events = [
            event(0, 0, EventKind::Wakeup { task: TaskId(0), reason: None }),
            switch(0, 0, IDLE, PrevState::Idle, 0),
            event(100, 0, EventKind::Wakeup { task: TaskId(1), reason: None }),
            switch(300, 0, 0, PrevState::Sleeping, 1),
            event(500, 2, EventKind::Wakeup { task: TaskId(0), reason: None }),
            switch(500, 2, IDLE, PrevState::Idle, 0),
        ];
        recorder.events(&events).unwrap();
        recorder.finish()
    }

    #[test]
    fn slices_run_times_and_transitions_are_those_of_the_events() {
        let recording = recording(Limits::default());
        assert_eq!(recording.slice_count, 3);
        let slices: Vec<_> =
            recording.slices.unwrap().iter().map(|s| (s.cpu.0, s.task.0, s.start_ns, s.end_ns)).collect();
        assert_eq!(slices, [(0, 0, 0, 300), (0, 1, 300, 1000), (2, 0, 500, 1000)]);
        assert_eq!(recording.cpu_run_ns, [vec![(0, 300), (2, 500)], vec![(0, 700)]]);
        assert_eq!(recording.transitions, [0, 1, 0, 0]);
    }

    #[test]
    fn tasks_per_cpu_are_weighted_by_time() {
        let lengths = recording(Limits::default()).lengths;
        let mean = |cpu: usize, from: usize, to: usize| {
            lengths[cpu * LENGTH_BINS..][from..to].iter().sum::<f32>() / (to - from) as f32
        };
        assert!((mean(0, 0, 60) - 1.0).abs() < 0.02, "one task until 100");
        assert!((mean(0, 60, 180) - 2.0).abs() < 0.02, "two until 300");
        assert!((mean(0, 180, 600) - 1.0).abs() < 0.02, "one until the end");
        assert!((mean(2, 300, 600) - 1.0).abs() < 0.02 && mean(2, 0, 300) == 0.0);
        assert_eq!(mean(1, 0, 600), 0.0);
    }

    #[test]
    fn too_many_slices_leave_the_overview() {
        let recording = recording(Limits { slices: 2, ..Limits::default() });
        assert!(recording.slices.is_none());
        assert_eq!(recording.slice_count, 3);
        let overview = recording.overview.unwrap();
        let at = |cpu: usize, bin: usize| overview[cpu * OVERVIEW_BINS + bin];
        // A stretch is shorter than a nanosecond here, so only every eighth has any time in it.
        assert!((0..16).any(|bin| at(0, bin).task == TaskId(0)));
        assert!((0..16).any(|bin| at(0, OVERVIEW_BINS - 1 - bin).task == TaskId(1)));
        assert_eq!(at(1, 0), Stretch { task: TaskId::IDLE, busy: 0 });
    }

    #[test]
    fn parts_of_a_span_add_up_to_it() {
        for (from, to, end, bins) in
            [(0, 1000, 1000, 7), (13, 14, 1000, 600), (999, 1000, 1000, 3), (5, 700, 1001, 600)]
        {
            let parts: Vec<_> = spread(from, to, end, bins).collect();
            assert_eq!(parts.iter().map(|(_, part)| part).sum::<u64>(), to - from);
            assert!(parts.iter().all(|(bin, _)| *bin < bins));
        }
    }

    #[test]
    fn events_of_another_machine_are_refused() {
        let machine = resolve("1s1n1l2c1t").unwrap();
        let mut recorder = Recorder::new(&machine, None, 10, Limits::default());
        recorder.events(&[event(0, 9, EventKind::Exit { task: TaskId(0) })]).unwrap_err();
    }
}
