//! The paper's machine in virtual time: virtual CPUs in groups that share an L2, one L3, pages that come with the first touch, and a
//! dispatcher (`docs/spec/cdf-dio.md` sections 1, 2 and 4).

use std::collections::VecDeque;

use warmcore_memory::Replacement;
use warmcore_memory::exact::cache::{Cache, SetIndex, Shape};
use warmcore_memory::exact::page_table::{Missing, PageTable};
use warmcore_schedulers::contention::{ContentionError, Placer, Strategy, TaskView};

use super::workload::{Accesses, Colours};

/// Sets and ways of the caches; lines have 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// In tables.
    pub name: &'static str,
    /// L1 of a virtual CPU, L2 of a group, L3 of all: sets, ways.
    pub levels: [(u32, u32); 3],
}

/// The paper's table.
pub(crate) const PAPER: Geometry = Geometry { name: "paper", levels: [(4096, 4), (16_384, 4), (65_536, 4)] };
/// The last commit of the published program.
pub(crate) const LAST_COMMIT: Geometry = Geometry { name: "last commit", levels: [(128, 8), (1024, 8), (32_768, 8)] };

/// Where in its page a task touches, unless that was recorded ([`Accesses::lines`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// At the beginning, as the published program does: only one set in 128 is ever used.
    PageAligned,
    /// In a line that differs from page to page.
    LineSpread,
}

/// How the dispatcher hands out tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dispatch {
    /// At once, into a queue for each virtual CPU.
    Queue,
    /// As the published program does: the dispatcher waits for the virtual CPU of the task at hand to end its quantum, and so does
    /// the thread that takes tasks back.
    Blocking,
}

impl Dispatch {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Blocking => "blocking",
        }
    }
}

/// What the histograms are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The index in the level that hit; of an access that reaches memory, in the L1.
    Mixed,
    /// The index in the L2.
    L2,
}

/// Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// An attempt to walk the page table.
    pub walk_ns: u64,
    /// A look into L1, L2, L3.
    pub levels_ns: [u64; 3],
    /// Memory.
    pub memory_ns: u64,
    /// What a decision costs for each thing that it looks at.
    pub step_ns: u64,
}

impl Times {
    /// The paper's table.
    pub const TABLE: Self = Self { walk_ns: 100, levels_ns: [2, 6, 20], memory_ns: 100, step_ns: 0 };
    /// What the published program's sleeps come to: 1.5 ms for each, 30 ms for memory.
    pub(crate) const SLEEPS: Self =
        Self { walk_ns: 1_500_000, levels_ns: [1_500_000; 3], memory_ns: 30_000_000, step_ns: 0 };
}

/// A machine and how it is driven.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Virtual CPUs.
    pub vcpus: usize,
    /// Of a group.
    pub per_group: usize,
    /// Caches.
    pub geometry: Geometry,
    /// Addresses.
    pub addresses: Addresses,
    /// Dispatcher.
    pub dispatch: Dispatch,
    /// Latencies.
    pub times: Times,
    /// Accesses of a quantum.
    pub quantum: usize,
    /// Recent set indexes that are kept of a task.
    pub window: usize,
    /// What they are indexes of.
    pub level: Level,
    /// Frames of the memory.
    pub frames: u64,
}

impl Setup {
    /// The paper's: 12 virtual CPUs in groups of 4, a quantum and a window of 300 accesses, 4 GiB in pages of 4 KiB.
    #[must_use]
    pub fn paper(geometry: Geometry, addresses: Addresses, dispatch: Dispatch) -> Self {
        let times = if dispatch == Dispatch::Blocking { Times::SLEEPS } else { Times::TABLE };
        Self {
            vcpus: 12,
            per_group: 4,
            geometry,
            addresses,
            dispatch,
            times,
            quantum: 300,
            window: 300,
            level: Level::Mixed,
            frames: 1 << 20,
        }
    }
}

/// What came of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Hits over accesses of L1, L2, L3.
    pub hit_rates: [f64; 3],
    /// Part of all accesses that reached memory.
    pub memory_share: f64,
    /// Mean time of an access.
    pub access_ns: f64,
    /// L2 accesses by group.
    pub group_accesses: Vec<u64>,
    /// Time that each task waited, all its waits together, ns; sorted.
    pub waits_ns: Vec<u64>,
    /// End of the last task.
    pub makespan_ns: u64,
    /// Part of the virtual CPUs' time in which they ran a task.
    pub utilisation: f64,
    /// Decisions, and what they looked at.
    pub decisions: [u64; 2],
    /// Groups of all placements, in order: what was decided.
    pub placements: Vec<u8>,
}

impl Outcome {
    /// Coefficient of variation of the groups' loads (population).
    #[must_use]
    pub(crate) fn load_variation(&self) -> f64 {
        variation(&self.group_accesses.iter().map(|&count| count as f64).collect::<Vec<_>>())
    }

    /// A percentile of the tasks' waits, between the two nearest.
    #[must_use]
    pub fn wait_ns(&self, percent: f64) -> f64 {
        let at = percent / 100.0 * (self.waits_ns.len().saturating_sub(1)) as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        let of = |index: usize| self.waits_ns.get(index).copied().unwrap_or(0) as f64;
        of(low) + (of(high) - of(low)) * at.fract()
    }
}

/// Standard deviation over the mean.
#[must_use]
pub fn variation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt() / mean
}

/// Lines of a page.
const LINES: u32 = 4096 / 32;
/// The first page of every task: its addresses begin at 1 GiB.
const FIRST_PAGE: u64 = 0x4000_0000 / 4096;
/// Where a task's root table is: outside of the memory.
const ROOT: u32 = u32::MAX;

struct Task {
    done: usize,
    /// Frame of each page; pages are ranks, from [`FIRST_PAGE`] on.
    pages: PageTable,
    window: VecDeque<u32>,
    l2_accesses: u64,
    l2_misses: u64,
    waiting_since_ns: u64,
    waited_ns: u64,
    ended_ns: u64,
}

/// A virtual CPU.
struct Vcpu {
    now_ns: u64,
    queue: VecDeque<usize>,
    /// The task that it runs and accesses left in its quantum.
    running: Option<(usize, usize)>,
    busy_ns: u64,
}

struct Machine<'a> {
    setup: &'a Setup,
    accesses: &'a Accesses,
    tasks: Vec<Task>,
    vcpus: Vec<Vcpu>,
    l1: Vec<Cache>,
    l2: Vec<Cache>,
    l3: Cache,
    frames: Frames<'a>,
    lookups: [u64; 3],
    hits: [u64; 3],
    to_memory: u64,
    access_time_ns: u64,
    group_accesses: Vec<u64>,
}

/// Hands out the frames of the memory, in order.
struct Frames<'a> {
    setup: &'a Setup,
    accesses: &'a Accesses,
    next: u64,
    /// By kind of task: pages that have a frame, where kinds have colours of their own.
    coloured: Vec<u64>,
}

impl Frames<'_> {
    fn next(&mut self) -> Result<u32, ContentionError> {
        if self.next >= self.setup.frames {
            return Err(ContentionError::MemoryFull { frames: self.setup.frames });
        }
        self.next += 1;
        Ok((self.next - 1) as u32)
    }

    /// A frame for what a task lacks; for a page of its kind's colours if it has any.
    fn take(&mut self, task: usize, missing: Missing) -> Result<u32, ContentionError> {
        let frame = self.next()?;
        let (colours, kind) = (self.accesses.colours, self.accesses.kinds[task]);
        if missing == Missing::Table || colours == Colours::Any {
            return Ok(frame);
        }
        let number = &mut self.coloured[kind as usize];
        let frame = colours.frame(kind, *number, self.setup.geometry.levels[1].0 / LINES);
        *number += 1;
        if frame < self.setup.frames {
            Ok(frame as u32)
        } else {
            Err(ContentionError::MemoryFull { frames: self.setup.frames })
        }
    }
}

impl Machine<'_> {
    /// One access of a task on a virtual CPU; how long it takes.
    fn access(&mut self, vcpu: usize, task: usize) -> Result<u64, ContentionError> {
        let page = self.accesses.ranks[task][self.tasks[task].done];
        let frames = &mut self.frames;
        let walk = self.tasks[task].pages.walk(FIRST_PAGE + u64::from(page), |missing| frames.take(task, missing))?;
        // Each missing level costs a frame and another attempt.
        let attempts = 1 + walk.missing as u64;
        let recorded = self.accesses.lines.get(task).map(|lines| u32::from(lines[self.tasks[task].done]));
        let line_of_page = recorded.unwrap_or_else(|| match self.setup.addresses {
            Addresses::PageAligned => 0,
            Addresses::LineSpread => scattered(task as u32, page) % LINES,
        });
        let line = walk.frame.wrapping_mul(LINES) + line_of_page;
        let (times, group) = (&self.setup.times, vcpu / self.setup.per_group);
        let mut ns = attempts * times.walk_ns + times.levels_ns[0];
        let touched = |cache: &mut Cache| cache.touch(line, 0, 0).hit;
        let indexes = [self.l1[vcpu].set_of(line), self.l2[group].set_of(line), self.l3.set_of(line)];
        self.lookups[0] += 1;
        let recorded = if touched(&mut self.l1[vcpu]) {
            self.hits[0] += 1;
            0
        } else {
            ns += times.levels_ns[1];
            self.lookups[1] += 1;
            self.group_accesses[group] += 1;
            self.tasks[task].l2_accesses += 1;
            if touched(&mut self.l2[group]) {
                self.hits[1] += 1;
                1
            } else {
                ns += times.levels_ns[2];
                self.lookups[2] += 1;
                self.tasks[task].l2_misses += 1;
                if touched(&mut self.l3) {
                    self.hits[2] += 1;
                    2
                } else {
                    ns += times.memory_ns;
                    self.to_memory += 1;
                    0
                }
            }
        };
        let index = match self.setup.level {
            Level::Mixed => indexes[recorded],
            Level::L2 => indexes[1],
        };
        let state = &mut self.tasks[task];
        if state.window.len() == self.setup.window {
            state.window.pop_front();
        }
        state.window.push_back(index);
        state.done += 1;
        self.access_time_ns += ns;
        Ok(ns)
    }
}

/// A number that follows from two others without a pattern.
fn scattered(one: u32, other: u32) -> u32 {
    let mut bits = (u64::from(one) << 32 | u64::from(other)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits ^= bits >> 32;
    (bits.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40) as u32
}

/// Runs the tasks under a strategy. Equal arguments give equal outcomes.
///
/// # Errors
/// A setup or a strategy that makes no sense; a memory that is full.
pub fn run(setup: &Setup, accesses: &Accesses, strategy: &Strategy, seed: u64) -> Result<Outcome, ContentionError> {
    if setup.window == 0 {
        return Err(ContentionError::Window);
    }
    if setup.frames == 0 {
        return Err(ContentionError::Page { page_bytes: 4096, memory_bytes: 0 });
    }
    let sets = setup.geometry.levels.iter().map(|(sets, _)| *sets as usize).max().unwrap_or(1);
    let mut placer = Placer::new(strategy.clone(), setup.vcpus, setup.per_group, sets, seed)?;
    let cache = |(sets, ways): (u32, u32), salt| {
        let shape = Shape { sets, ways, replacement: Replacement::Lru, index: SetIndex::LowBits };
        Cache::new(shape, salt)
    };
    let groups = setup.vcpus.div_ceil(setup.per_group);
    let task = |_| Task {
        done: 0,
        pages: PageTable::new(ROOT),
        window: VecDeque::with_capacity(setup.window),
        l2_accesses: 0,
        l2_misses: 0,
        waiting_since_ns: 0,
        waited_ns: 0,
        ended_ns: 0,
    };
    let vcpu = |_| Vcpu { now_ns: 0, queue: VecDeque::new(), running: None, busy_ns: 0 };
    let mut machine = Machine {
        setup,
        accesses,
        tasks: (0..accesses.ranks.len()).map(task).collect(),
        vcpus: (0..setup.vcpus).map(vcpu).collect(),
        l1: (0..setup.vcpus).map(|_| cache(setup.geometry.levels[0], 1)).collect(),
        l2: (0..groups).map(|_| cache(setup.geometry.levels[1], 2)).collect(),
        l3: cache(setup.geometry.levels[2], 3),
        frames: Frames { setup, accesses, next: 0, coloured: vec![0; accesses.colours.kinds() as usize] },
        lookups: [0; 3],
        hits: [0; 3],
        to_memory: 0,
        access_time_ns: 0,
        group_accesses: vec![0; groups],
    };
    let mut dispatcher = Dispatcher {
        ready: (0..accesses.ranks.len()).collect(),
        returning: VecDeque::new(),
        at_hand: None,
        placements: Vec::new(),
        free_ns: 0,
    };
    dispatcher.dispatch(&mut machine, &mut placer, 0);
    loop {
        // The virtual CPU that is furthest behind goes on, the lowest of equals.
        let next = (0..setup.vcpus)
            .filter(|&vcpu| machine.vcpus[vcpu].running.is_some())
            .min_by_key(|&vcpu| machine.vcpus[vcpu].now_ns);
        let Some(vcpu) = next else { break };
        let Some((task, left)) = machine.vcpus[vcpu].running else { continue };
        if left > 0 {
            let ns = machine.access(vcpu, task)?;
            let state = &mut machine.vcpus[vcpu];
            state.now_ns += ns;
            state.busy_ns += ns;
            state.running = Some((task, left - 1));
            continue;
        }
        machine.vcpus[vcpu].running = None;
        dispatcher.quantum_ended(&mut machine, &mut placer, vcpu, task);
    }
    Ok(outcome(&machine, &placer, dispatcher.placements))
}

/// Who is ready, who is on the way back, and whom the dispatcher holds while it waits.
struct Dispatcher {
    ready: VecDeque<usize>,
    /// Tasks with the virtual CPU that ran them, waiting for the thread that takes them back (blocking only).
    returning: VecDeque<(usize, usize)>,
    /// A task and the virtual CPU that it waits for (blocking only).
    at_hand: Option<(usize, usize)>,
    placements: Vec<u8>,
    /// When the dispatcher is done with its latest decision.
    free_ns: u64,
}

impl Dispatcher {
    /// Hands out ready tasks at a time, as far as it can.
    fn dispatch(&mut self, machine: &mut Machine<'_>, placer: &mut Placer, now_ns: u64) {
        loop {
            let (task, vcpu) = match self.at_hand.take() {
                Some(at_hand) => at_hand,
                None => {
                    let Some(task) = self.ready.pop_front() else { return };
                    let before = placer.looked_at();
                    let quantum = quantum_of(machine, task);
                    let vcpu = with_view(machine, task, quantum, |view| placer.place(view));
                    self.placements.push((vcpu / machine.setup.per_group) as u8);
                    self.free_ns =
                        self.free_ns.max(now_ns) + (placer.looked_at() - before) * machine.setup.times.step_ns;
                    (task, vcpu)
                }
            };
            if machine.setup.dispatch == Dispatch::Blocking && machine.vcpus[vcpu].running.is_some() {
                self.at_hand = Some((task, vcpu));
                return;
            }
            machine.vcpus[vcpu].queue.push_back(task);
            let at_ns = self.free_ns.max(now_ns);
            start(machine, vcpu, at_ns);
        }
    }

    /// A virtual CPU is done with a quantum.
    fn quantum_ended(&mut self, machine: &mut Machine<'_>, placer: &mut Placer, vcpu: usize, task: usize) {
        let now_ns = machine.vcpus[vcpu].now_ns;
        machine.tasks[task].waiting_since_ns = now_ns;
        machine.tasks[task].ended_ns = now_ns;
        if machine.setup.dispatch == Dispatch::Queue {
            self.take_back(machine, placer, task);
            start(machine, vcpu, now_ns);
            self.dispatch(machine, placer, now_ns);
            return;
        }
        // Its lock is free for an instant: whoever waits for it gets it, then it goes on with its own queue.
        self.returning.push_back((task, vcpu));
        if let Some((held, wanted)) = self.at_hand
            && wanted == vcpu
        {
            self.at_hand = None;
            machine.vcpus[vcpu].queue.push_back(held);
        }
        while let Some(&(first, of)) = self.returning.front() {
            if of != vcpu && machine.vcpus[of].running.is_some() {
                break;
            }
            self.returning.pop_front();
            self.take_back(machine, placer, first);
        }
        start(machine, vcpu, now_ns);
        self.dispatch(machine, placer, now_ns);
    }

    fn take_back(&mut self, machine: &mut Machine<'_>, placer: &mut Placer, task: usize) {
        let ran =
            machine.tasks[task].done - (machine.tasks[task].done - 1) / machine.setup.quantum * machine.setup.quantum;
        with_view(machine, task, ran, |view| placer.returned(view));
        if machine.tasks[task].done < machine.accesses.ranks[task].len() {
            self.ready.push_back(task);
        }
    }
}

fn quantum_of(machine: &Machine<'_>, task: usize) -> usize {
    (machine.accesses.ranks[task].len() - machine.tasks[task].done).min(machine.setup.quantum)
}

fn with_view<T>(machine: &mut Machine<'_>, task: usize, accesses: usize, what: impl FnOnce(&TaskView<'_>) -> T) -> T {
    let state = &mut machine.tasks[task];
    let intensity = if state.l2_accesses == 0 { 0.0 } else { state.l2_misses as f64 / state.l2_accesses as f64 };
    what(&TaskView { task, window: state.window.make_contiguous(), intensity, accesses: accesses as u64 })
}

/// A virtual CPU that runs nothing takes the first of its queue.
fn start(machine: &mut Machine<'_>, vcpu: usize, now_ns: u64) {
    if machine.vcpus[vcpu].running.is_some() {
        return;
    }
    let Some(task) = machine.vcpus[vcpu].queue.pop_front() else { return };
    let quantum = quantum_of(machine, task);
    let state = &mut machine.vcpus[vcpu];
    state.now_ns = state.now_ns.max(now_ns);
    state.running = Some((task, quantum));
    machine.tasks[task].waited_ns += state.now_ns - machine.tasks[task].waiting_since_ns;
}

fn outcome(machine: &Machine<'_>, placer: &Placer, placements: Vec<u8>) -> Outcome {
    let rate = |level: usize| machine.hits[level] as f64 / machine.lookups[level].max(1) as f64;
    let mut waits_ns: Vec<u64> = machine.tasks.iter().map(|task| task.waited_ns).collect();
    waits_ns.sort_unstable();
    let makespan_ns = machine.tasks.iter().map(|task| task.ended_ns).max().unwrap_or(0);
    let busy_ns: u64 = machine.vcpus.iter().map(|vcpu| vcpu.busy_ns).sum();
    Outcome {
        hit_rates: [rate(0), rate(1), rate(2)],
        memory_share: machine.to_memory as f64 / machine.lookups[0].max(1) as f64,
        access_ns: machine.access_time_ns as f64 / machine.lookups[0].max(1) as f64,
        group_accesses: machine.group_accesses.clone(),
        waits_ns,
        makespan_ns,
        utilisation: busy_ns as f64 / (makespan_ns.max(1) as f64 * machine.vcpus.len() as f64),
        decisions: [placer.decisions(), placer.looked_at()],
        placements,
    }
}
