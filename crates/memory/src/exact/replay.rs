//! Replays an address trace: every access in order, on the caches of the CPUs that its threads run on.
//!
//! There is no time in a trace, so nothing is said about speed; accesses of different threads happen in the trace's
//! order, and all consequences of one before the next. Pages of the trace get simulated frames in the order of their
//! first access; within a page, and within the frame size chosen, neighbouring lines stay neighbours.

use std::collections::HashMap;

use warmcore_topology::{CacheKind, CpuId, Machine, Ways};

use super::address_trace::{Access, Record};
use super::build::{INSTRUCTION_SALT, Seat, domains, home, shape};
use super::cache::{Cache, Touched};
use super::counters::{ClassCounters, NodeTraffic};
use super::domain::{Context, Domain, Entry};
use super::error::ExactError;
use super::home::{Home, HomeEntry};
use super::lanes::{DIRTY, MAX_LINES, WRITABLE};
use super::options::Options;
use super::stream::{Stream, StreamClass};
use super::task::{ClassCosts, KINDS, Task};
use crate::hierarchy::{CacheShape, Hierarchy};

/// Default frame size.
pub const DEFAULT_PAGE_BYTES: u64 = 4096;

/// What one thread did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadCounters {
    /// Data accesses as the trace has them.
    pub accesses: u64,
    /// Of those, writes and modifications.
    pub writes: u64,
    /// Accesses that lie in more than one line; each line is touched.
    pub split: u64,
    /// Instruction fetches, and those that missed the L1 for instructions.
    pub instructions: u64,
    /// Instruction lines that the L1 for instructions did not have.
    pub instruction_misses: u64,
    /// Instruction fetches that were left out, because the machine describes no L1 for instructions.
    pub instructions_ignored: u64,
    /// Line touches of data, and of instructions beyond their L1.
    pub events: ClassCounters,
}

/// A replay in progress.
pub struct Replay {
    context: Context,
    domains: Vec<Domain>,
    home: Home,
    seats: Vec<Seat>,
    /// L1 for instructions by domain and core.
    instruction_l1: Vec<Vec<Option<Cache>>>,
    threads: Vec<ThreadState>,
    frames: HashMap<u64, u32>,
    line_shift: u32,
    next_frame: u32,
    records: u64,
}

struct ThreadState {
    cpu: CpuId,
    task: Option<Box<Task>>,
    counters: ThreadCounters,
    /// Page and frame of the last access.
    last: Option<(u64, u32)>,
}

impl Replay {
    /// Cold caches, with thread `i` of the trace on `cpus[i]`.
    ///
    /// # Errors
    /// Impossible machines, CPUs that do not exist, a page size that is no power of two or smaller than a line.
    pub fn new(machine: &Machine, options: &Options, cpus: &[CpuId], page_bytes: u64) -> Result<Self, ExactError> {
        let hierarchy = Hierarchy::new(machine)?;
        let options = Options { sampling_shift: 0, ..*options };
        let line_bytes = u64::from(hierarchy.line_bytes);
        if !page_bytes.is_power_of_two() || page_bytes < line_bytes {
            return Err(ExactError::PageSize { page_bytes, line_bytes });
        }
        if cpus.is_empty() {
            return Err(ExactError::NoTasks);
        }
        let (mut domains, seats) = domains(machine, &hierarchy, &options, 0)?;
        let mut placed = Vec::new();
        for cpu in cpus {
            let count = seats.len();
            placed.push(*seats.get(cpu.index()).ok_or(ExactError::NoCpu { cpu: cpu.0, count })?);
        }
        let one_core = placed.iter().all(|seat| (seat.domain, seat.core) == (placed[0].domain, placed[0].core));
        let mut threads = Vec::new();
        for (number, (cpu, seat)) in cpus.iter().zip(placed).enumerate() {
            // The slot holds the thread while the home directory answers its requests.
            let slots = &mut domains[seat.domain].tasks;
            slots.push(None);
            let task = thread_task(number as u32, seat, slots.len() as u16 - 1, !one_core);
            threads.push(ThreadState {
                cpu: *cpu,
                task: Some(Box::new(task)),
                counters: ThreadCounters::default(),
                last: None,
            });
        }
        let context = Context {
            coherent_end: if one_core { 0 } else { u32::MAX },
            hot_end: 0,
            sampling_shift: 0,
            page_shift: (page_bytes / line_bytes).trailing_zeros(),
            homes: Vec::new(),
            page_core: Vec::new(),
            instruction_set: options.instruction_set,
        };
        Ok(Self {
            instruction_l1: instruction_caches(machine, &hierarchy, &options, &seats, &domains)?,
            home: home(machine, &hierarchy, &options),
            line_shift: line_bytes.trailing_zeros(),
            context,
            domains,
            seats,
            threads,
            frames: HashMap::new(),
            next_frame: 0,
            records: 0,
        })
    }

    /// Makes one access.
    ///
    /// # Errors
    /// A thread that has no CPU, or more memory than lines can be told apart.
    pub fn access(&mut self, record: Record) -> Result<(), ExactError> {
        let thread = usize::from(record.thread);
        let known = self.threads.len();
        let Some(state) = self.threads.get_mut(thread) else {
            return Err(ExactError::NoThread { thread, known });
        };
        self.records += 1;
        let seat = self.seats[state.cpu.index()];
        let has_l1i = self.instruction_l1[seat.domain][seat.core].is_some();
        let counters = &mut state.counters;
        if record.access == Access::Instruction {
            if !has_l1i {
                counters.instructions_ignored += 1;
                return Ok(());
            }
            counters.instructions += 1;
        } else {
            counters.accesses += 1;
            counters.writes += u64::from(record.access != Access::Read);
        }
        let first = record.address >> self.line_shift;
        let last = (record.address + u64::from(record.size) - 1) >> self.line_shift;
        if last > first && record.access != Access::Instruction {
            counters.split += 1;
        }
        for line in first..=last {
            let line = self.physical(thread, line)?;
            self.touch(thread, seat, line, record.access);
        }
        Ok(())
    }

    fn touch(&mut self, thread: usize, seat: Seat, line: u32, access: Access) {
        if access == Access::Instruction
            && let Some(l1i) = &mut self.instruction_l1[seat.domain][seat.core]
        {
            let Touched { hit, .. } = l1i.touch(line, 0, 0);
            if hit {
                return;
            }
            self.threads[thread].counters.instruction_misses += 1;
        }
        let Some(mut task) = self.threads[thread].task.take() else { return };
        let domain = &mut self.domains[seat.domain];
        // Requests are ordered by time; the trace's order is the only one there is.
        task.clock_fs = self.records;
        let write = matches!(access, Access::Write | Access::Modify);
        domain.touch_lines(&self.context, &mut task, &[(line, u8::from(write))]);
        if domain.requests.is_empty() {
            self.threads[thread].task = Some(task);
            return;
        }
        let slot = usize::from(task.slot);
        domain.tasks[slot] = Some(task);
        self.home.exchange(&mut self.context, &mut self.domains);
        self.threads[thread].task = self.domains[seat.domain].tasks[slot].take();
    }

    /// The simulated line of a line of the trace.
    fn physical(&mut self, thread: usize, line: u64) -> Result<u32, ExactError> {
        let shift = self.context.page_shift;
        let page = line >> shift;
        let within = (line & ((1 << shift) - 1)) as u32;
        let state = &self.threads[thread];
        if let Some((last, frame)) = state.last
            && last == page
        {
            return Ok(frame << shift | within);
        }
        let frame = match self.frames.get(&page) {
            Some(frame) => *frame,
            None => {
                let frame = self.next_frame;
                let lines = (u64::from(frame) + 1) << shift;
                if lines > MAX_LINES {
                    return Err(ExactError::TooManyLines { lines, most: MAX_LINES });
                }
                self.next_frame += 1;
                self.frames.insert(page, frame);
                let seat = self.seats[state.cpu.index()];
                self.context.homes.push(self.domains[seat.domain].node as u8);
                self.context.page_core.push(seat.core as u16);
                if self.context.coherent_end != 0 {
                    for domain in &mut self.domains {
                        domain.directory.resize(lines as usize, Entry::NONE);
                    }
                    self.home.entries.resize(lines as usize, HomeEntry::NONE);
                }
                frame
            }
        };
        self.threads[thread].last = Some((page, frame));
        Ok(frame << shift | within)
    }

    /// What each thread did so far.
    pub fn counters(&self) -> Vec<ThreadCounters> {
        let of = |state: &ThreadState| {
            let mut counters = state.counters;
            if let Some(task) = &state.task {
                counters.events = task.counters[0];
                counters.events.touches = task.touches;
            }
            counters
        };
        self.threads.iter().map(of).collect()
    }

    /// Memory traffic by node.
    pub fn node_traffic(&self) -> Vec<NodeTraffic> {
        let nodes = self.domains.first().map_or(0, |domain| domain.traffic.len());
        let sum = |node: usize| {
            self.domains.iter().map(|domain| domain.traffic[node]).fold(NodeTraffic::default(), |sum, traffic| {
                NodeTraffic { reads: sum.reads + traffic.reads, writes: sum.writes + traffic.writes }
            })
        };
        (0..nodes).map(sum).collect()
    }

    /// Pages touched.
    pub fn pages(&self) -> u64 {
        u64::from(self.next_frame)
    }

    /// Checks what must hold between the directories and the caches at any time.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let context = Context { coherent_end: self.home.entries.len() as u32, ..self.context.clone() };
        super::invariants::check(&context, &self.domains, &self.home);
    }
}

fn thread_task(id: u32, seat: Seat, slot: u16, coherent: bool) -> Task {
    // The stream is never asked; threads touch what the trace says.
    let class = StreamClass { first: 0, lines: 1, rate: 1.0, write_fraction: 0.0, scan: false };
    let mut fill = [0; 2 * KINDS];
    let clean = if coherent { 0 } else { WRITABLE as u8 };
    (fill[0], fill[1]) = (clean, clean | DIRTY as u8);
    Task {
        core: seat.core as u16,
        slot,
        costs: [ClassCosts { scale: 1, ..ClassCosts::default() }; KINDS],
        ..Task::new(id, Stream::new(0, &[class]), fill)
    }
}

fn instruction_caches(
    machine: &Machine,
    hierarchy: &Hierarchy,
    options: &Options,
    seats: &[Seat],
    domains: &[Domain],
) -> Result<Vec<Vec<Option<Cache>>>, ExactError> {
    let mut caches: Vec<Vec<Option<Cache>>> = domains.iter().map(|domain| vec![None; domain.cores.len()]).collect();
    for cache in machine.caches().iter().filter(|cache| cache.level == 1 && cache.kind == CacheKind::Instruction) {
        let fail = |reason: String| Err(ExactError::Cache { cache: "L1i".to_owned(), reason });
        let Ways::Count(ways @ 1..) = cache.ways else {
            return fail("its ways are not stated, or none".to_owned());
        };
        let set_bytes = u64::from(ways) * u64::from(hierarchy.line_bytes);
        if cache.size_bytes == 0 || cache.size_bytes % set_bytes != 0 {
            return fail(format!("{} bytes are not a whole number of sets of {set_bytes} bytes", cache.size_bytes));
        }
        let sets = cache.size_bytes / set_bytes;
        let shape_of = CacheShape { lines: sets * u64::from(ways), ways, sets, latency_ns: 0.0 };
        let shape = shape(&shape_of, "L1i", options.private_replacement, options)?;
        for cpu in cache.cpus.iter() {
            let seat = seats[cpu.index()];
            caches[seat.domain][seat.core] = Some(Cache::new(shape, INSTRUCTION_SALT));
        }
    }
    Ok(caches)
}
