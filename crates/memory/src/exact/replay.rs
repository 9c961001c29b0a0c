//! Replays an address trace: every access in order, on the caches of the CPUs that its threads run on.
//!
//! There is no time in a trace, so nothing is said about speed; accesses of different threads happen in the trace's
//! order, and all consequences of one before the next. Pages of the trace get simulated frames in the order of their
//! first access; within a page, and within the frame size chosen, neighbouring lines stay neighbours.

use std::collections::HashMap;
use std::ops::Range;

use warmcore_topology::{CpuId, Machine};

use super::address_trace::{Access, Record};
use super::build::{Seat, add_instruction_caches, domains, home};
use super::counters::{ClassCounters, NodeTraffic};
use super::domain::{Context, Domain, Entry};
use super::error::ExactError;
use super::home::{Home, HomeEntry};
use super::lanes::{DIRTY, MAX_LINES, WRITABLE};
use super::options::Options;
use super::stream::{Stream, StreamClass};
use super::task::{ClassCosts, KINDS, Task};
use crate::hierarchy::Hierarchy;

/// Default frame size.
pub const DEFAULT_PAGE_BYTES: u64 = 4096;

/// The class of instructions; data are class 0.
const CODE: usize = 1;

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
    threads: Vec<ThreadState>,
    frames: HashMap<u64, u32>,
    line_shift: u32,
    next_frame: u32,
    records: u64,
}

struct ThreadState {
    cpu: CpuId,
    task: Option<Box<Task>>,
    /// Its slot in the domain of its CPU, for the time in which the home directory answers its requests.
    slot: usize,
    counters: ThreadCounters,
    /// Line touches of data.
    data_touches: u64,
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
        add_instruction_caches(machine, &hierarchy, &options, &seats, &mut domains)?;
        let mut placed = Vec::new();
        for cpu in cpus {
            let count = seats.len();
            placed.push(*seats.get(cpu.index()).ok_or(ExactError::NoCpu { cpu: cpu.0, count })?);
        }
        let one_core = placed.iter().all(|seat| (seat.domain, seat.core) == (placed[0].domain, placed[0].core));
        let mut threads = Vec::new();
        for (number, (cpu, seat)) in cpus.iter().zip(placed).enumerate() {
            let slots = &mut domains[seat.domain].tasks;
            slots.push(None);
            let slot = slots.len() - 1;
            let task = thread_task(number as u32, seat, slot as u16, !one_core);
            threads.push(ThreadState {
                cpu: *cpu,
                task: Some(Box::new(task)),
                slot,
                counters: ThreadCounters::default(),
                data_touches: 0,
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
        let has_l1i = self.domains[seat.domain].cores[seat.core].l1.code.is_some();
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
        let write = matches!(access, Access::Write | Access::Modify);
        let class = if access == Access::Instruction { CODE } else { 0 };
        self.touch_lines(thread, seat, class, &[(line, (2 * class) as u8 | u8::from(write))]);
        if !self.domains[seat.domain].requests.is_empty() {
            self.exchange(thread..thread + 1);
        }
    }

    /// Touches lines with outcomes of one class.
    fn touch_lines(&mut self, thread: usize, seat: Seat, class: usize, touches: &[(u32, u8)]) {
        let Some(task) = &mut self.threads[thread].task else { return };
        // Requests are ordered by time; the trace's order is the only one there is.
        task.clock_fs = self.records;
        // Without code the L1 for instructions is not looked at.
        task.code = if class == CODE { 1 << CODE } else { 0 };
        self.domains[seat.domain].touch_lines(&self.context, task, touches);
        if class != CODE {
            self.threads[thread].data_touches += touches.len() as u64;
        }
    }

    /// Answers the requests of threads.
    fn exchange(&mut self, threads: Range<usize>) {
        let domains = &mut self.domains;
        for state in &mut self.threads[threads.clone()] {
            domains[self.seats[state.cpu.index()].domain].tasks[state.slot] = state.task.take();
        }
        self.home.exchange(&mut self.context, domains);
        for state in &mut self.threads[threads] {
            state.task = domains[self.seats[state.cpu.index()].domain].tasks[state.slot].take();
        }
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
                let [data, code] = [task.counters[0], task.counters[CODE]];
                counters.instruction_misses = code.l1_misses;
                counters.events = data.plus(&code);
                counters.events.touches = state.data_touches + code.l1_misses;
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

    /// Threads touch one line within one quantum, one after the other: each a few times, to write or not.
    #[cfg(test)]
    pub(crate) fn touch_at_once(&mut self, line: u64, threads: &[(usize, &[bool])]) {
        for (thread, writes) in threads {
            let line = self.physical(*thread, line).unwrap();
            let touches: Vec<(u32, u8)> = writes.iter().map(|write| (line, u8::from(*write))).collect();
            self.records += 1;
            self.touch_lines(*thread, self.seats[self.threads[*thread].cpu.index()], 0, &touches);
        }
        self.exchange(0..self.threads.len());
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
    (fill[0], fill[1], fill[2 * CODE]) = (clean, clean | DIRTY as u8, clean);
    Task {
        core: seat.core as u16,
        slot,
        costs: [ClassCosts { scale: 1, ..ClassCosts::default() }; KINDS],
        ..Task::new(id, Stream::new(0, &[class]), fill)
    }
}
