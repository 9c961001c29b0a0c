//! The domain of one last-level cache: its cores' L1 and L2, the LLC, the tasks that run there, and the loop that
//! touches lines.
//!
//! Touches are worked on in blocks of 32 of one core: all in L1 first, then the L1's misses in L2, then the L2's
//! misses in the LLC, with the sets asked for before they are used. The order is changed within a block only. Lines of
//! private classes take the path in this module, which knows no sharers; the others are in [`super::coherence`].
//!
//! A domain touches nothing outside of itself: what concerns other domains becomes a [`Transaction`] that
//! [`super::home`] answers between two quanta. Source: `docs/spec/memory-model.md` sections 3.1 to 3.3 and 3.6.

use super::block::{EVICTED, LlcWork, Scratch};
use super::cache::Cache;
use super::coherence::Source;
use super::counters::NodeTraffic;
use super::first_level::FirstLevel;
use super::history::{HistoryLevel, Served};
use super::lanes::{DIRTY, EMPTY, InstructionSet, Isa, Portable, WRITABLE, line_of};
use super::options::{L2Fill, LlcFill};
use super::stream::BLOCK;
use super::task::{KINDS, MemoryLatency, Task};
use warmcore_trace::TimeShare;

pub(crate) const NO_CORE: u16 = u16::MAX;

/// What a domain may do with a line that several domains may use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Right {
    /// It has no copy.
    #[default]
    None,
    /// Read.
    Shared,
    /// Read; its copy is newer than memory's (O).
    Owned,
    /// Read, and write without asking; equal to memory (E).
    Exclusive,
    /// Read and write; newer than memory (M).
    Modified,
}

impl Right {
    pub(crate) fn may_write(self) -> bool {
        self >= Right::Exclusive
    }
}

/// Directory entry of a line in one domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Bit per core, or per few cores in large domains, that may have a copy.
    pub(crate) sharers: u64,
    /// Time of the last request about the line; later ones are not dated before it.
    pub(crate) last_fs: u64,
    /// The core that may write its copy.
    pub(crate) owner: u16,
    /// The domain's right.
    pub(crate) right: Right,
}

impl Entry {
    pub(crate) const NONE: Entry = Entry { sharers: 0, last_fs: 0, owner: NO_CORE, right: Right::None };
}

/// What a request asks of the home directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// A copy to read.
    Read,
    /// The only copy, to write: where the domain has it, and whether the core may go on at once when the domain turns out to have it alone,
    /// if the core can read it.
    Own { source: Source, held: Option<bool> },
    /// Nothing: the domain's last copy is gone.
    Gone,
}

/// A transaction that leaves the domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transaction {
    pub(crate) time_fs: u64,
    pub(crate) line: u32,
    pub(crate) ask: Ask,
    /// Slot of the task that waits, and the class.
    pub(crate) slot: u16,
    pub(crate) class: u8,
}

/// What all domains read while they run.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Lines below this are in the directories.
    pub(crate) coherent_end: u32,
    /// Lines below this are always in caches once fetched: small shared classes in a sampled simulation.
    pub(crate) hot_end: u32,
    /// One line in 2^this is simulated.
    pub(crate) sampling_shift: u32,
    /// log2 of lines per page.
    pub(crate) page_shift: u32,
    /// Home node by page; [`NO_HOME`] before the first touch.
    pub(crate) homes: Vec<u8>,
    /// For private pages: core of their task within its domain.
    pub(crate) page_core: Vec<u16>,
    pub(crate) instruction_set: InstructionSet,
}

/// Home of a page nobody has touched.
pub(crate) const NO_HOME: u8 = u8::MAX;

impl Context {
    #[inline(always)]
    pub(crate) fn home(&self, line: u32) -> usize {
        usize::from(self.homes[(line >> self.page_shift) as usize])
    }

    /// Lines that one stands for.
    #[inline(always)]
    pub(crate) fn scale(&self, line: u32) -> u64 {
        if line < self.hot_end { 1 } else { 1 << self.sampling_shift }
    }
}

/// Caches of a core.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) l1: FirstLevel,
    pub(crate) l2: Option<Cache>,
    pub(crate) l2_fill: L2Fill,
    /// Virtual pages whose frames the core knows, where addresses are translated and it has such a buffer.
    pub(crate) tlb: Option<Cache>,
}

/// An LLC with all below it.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) cores: Vec<Core>,
    pub(crate) llc: Cache,
    pub(crate) llc_fill: LlcFill,
    pub(crate) directory: Vec<Entry>,
    /// Cores per bit of [`Entry::sharers`] as a power of two.
    pub(crate) sharer_shift: u32,
    /// Tasks by slot; empty slots are used again.
    pub(crate) tasks: Vec<Option<Box<Task>>>,
    /// Slots by core.
    pub(crate) running: Vec<Vec<u16>>,
    pub(crate) requests: Vec<Transaction>,
    /// Traffic by node.
    pub(crate) traffic: Vec<NodeTraffic>,
    /// Latency of memory by node, or where ports below the LLC are limited by core and node.
    pub(crate) memory: Vec<MemoryLatency>,
    /// Nodes where `memory` has rows for each core, else 0.
    pub(crate) memory_row: usize,
    /// Latency of a core's L1 and L2.
    pub(crate) l1_ns: Vec<f64>,
    pub(crate) l2_ns: Vec<f64>,
    pub(crate) transfer_fs: u64,
    pub(crate) node: usize,
    pub(crate) scratch: Scratch,
}

impl Domain {
    /// Latency of a node's memory for a core.
    #[inline(always)]
    pub(crate) fn memory_latency(&self, core: usize, node: usize) -> MemoryLatency {
        self.memory[core * self.memory_row + node]
    }

    /// Whether a task has touches left.
    pub(crate) fn is_busy(&self) -> bool {
        self.tasks.iter().flatten().any(|task| task.touches < task.touches_wanted)
    }

    /// Runs all tasks of the domain until their clocks reach `until_fs` or their work is done.
    pub(crate) fn run(&mut self, context: &Context, until_fs: u64) {
        match context.instruction_set {
            InstructionSet::Portable => self.run_portable(context, until_fs),
            // SAFETY: `InstructionSet` values other than portable come from what the host was found to have.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { self.run_avx2(context, until_fs) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { self.run_avx512(context, until_fs) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => self.run_portable(context, until_fs),
        }
    }

    fn run_portable(&mut self, context: &Context, until_fs: u64) {
        // SAFETY: portable code needs nothing.
        unsafe { self.run_in::<Portable>(context, until_fs) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn run_avx2(&mut self, context: &Context, until_fs: u64) {
        // SAFETY: this function has the instruction set.
        unsafe { self.run_in::<super::lanes::Avx2>(context, until_fs) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
    fn run_avx512(&mut self, context: &Context, until_fs: u64) {
        // SAFETY: this function has the instruction set.
        unsafe { self.run_in::<super::lanes::Avx512>(context, until_fs) }
    }

    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    unsafe fn run_in<I: Isa>(&mut self, context: &Context, until_fs: u64) {
        for core in 0..self.cores.len() {
            // Siblings take turns by their clocks, so that they share the caches block by block.
            while let Some(slot) = self.next_slot(core, until_fs) {
                let Some(mut task) = self.tasks[slot].take() else { break };
                let count = (task.touches_wanted - task.touches).min(BLOCK as u64) as usize;
                let Scratch { lines, outcomes, .. } = &mut self.scratch;
                // SAFETY: both are passed on to the caller.
                unsafe {
                    task.stream.next_in::<I>(count, lines, outcomes);
                    task.touch(count as u64);
                    self.run_block::<I>(context, &mut task, count);
                }
                self.tasks[slot] = Some(task);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn next_slot(&self, core: usize, until_fs: u64) -> Option<usize> {
        let mut earliest = until_fs;
        let mut found = None;
        for slot in &self.running[core] {
            if let Some(task) = &self.tasks[usize::from(*slot)]
                && task.clock_fs < earliest
                && task.touches < task.touches_wanted
            {
                earliest = task.clock_fs;
                found = Some(usize::from(*slot));
            }
        }
        found
    }

    /// Lets a task touch the given lines, at most [`BLOCK`], with the given outcomes.
    pub(crate) fn touch_lines(&mut self, context: &Context, task: &mut Task, touches: &[(u32, u8)]) {
        for (position, (line, outcome)) in touches.iter().enumerate() {
            self.scratch.lines[position] = *line;
            self.scratch.outcomes[position] = *outcome;
        }
        task.touch(touches.len() as u64);
        // SAFETY: portable code needs nothing.
        unsafe { self.run_block::<Portable>(context, task, touches.len()) }
    }

    /// Sends touches of the first `count` lines of the scratch arrays through the caches; the touches themselves are the caller's to count.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub(crate) unsafe fn run_block<I: Isa>(&mut self, context: &Context, task: &mut Task, count: usize) {
        let core = usize::from(task.core);
        let Self { scratch, cores, .. } = self;
        // SAFETY: passed on to the caller.
        let events = match &mut cores[core].l1 {
            FirstLevel { data, code: Some(code) } if task.code != 0 => unsafe {
                scratch.probe_both::<I>([data, code], task.code, context.hot_end, &task.fill, count)
            },
            // SAFETY: as above.
            l1 => unsafe { scratch.probe::<I>(&mut l1.data, context.hot_end, &task.fill, count) },
        };
        let recorded = task.history.as_ref().map(|history| history.level);
        match (recorded, &mut task.history) {
            (Some(HistoryLevel::L1), Some(history)) => history.extend(&scratch.sets[..count.min(BLOCK)]),
            (Some(HistoryLevel::Mixed), _) => scratch.found = scratch.sets,
            _ => {}
        }
        if let Some(l2) = &cores[core].l2 {
            for event in &scratch.event[..events] {
                let line = scratch.lines[usize::from(*event) & (BLOCK - 1)];
                let set = l2.set_of(line);
                scratch.sets[usize::from(*event) & (BLOCK - 1)] = set;
                // SAFETY: passed on to the caller.
                unsafe { l2.prefetch::<I>(set) };
            }
        }
        for event in 0..events {
            let position = usize::from(self.scratch.event[event]) & (BLOCK - 1);
            let line = self.scratch.lines[position];
            let outcome = self.scratch.outcomes[position];
            let (lane, hit) = (self.scratch.lane[event], self.scratch.hit[event]);
            let pushed_out = !hit && lane != EMPTY;
            let class = usize::from(outcome / 2) & (KINDS - 1);
            let before = if recorded.is_some() { Served::of(&task.counters[class]) } else { Served::default() };
            // An L2 that excludes gives the wanted line away before it takes the other one in.
            let swaps = self.cores[core].l2_fill == L2Fill::Exclusive;
            if pushed_out && !swaps {
                // SAFETY: passed on to the caller.
                unsafe { self.left_l1::<I>(context, core, lane) };
            }
            if line < context.coherent_end {
                self.coherent_event(context, task, line, outcome, hit);
            } else {
                // SAFETY: passed on to the caller.
                unsafe { self.private_miss::<I>(context, task, line, outcome, position) };
            }
            if pushed_out && swaps {
                // SAFETY: passed on to the caller.
                unsafe { self.left_l1::<I>(context, core, lane) };
            }
            if recorded.is_some() {
                self.record_event(task, class, position, hit, before);
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.work_on_llc::<I>(context, task) };
        if recorded == Some(HistoryLevel::Mixed)
            && let Some(history) = &mut task.history
        {
            history.extend(&self.scratch.found[..count.min(BLOCK)]);
        }
    }

    /// A private line that the L1 does not have: it is looked for in L2, and put there.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    unsafe fn private_miss<I: Isa>(
        &mut self,
        context: &Context,
        task: &mut Task,
        line: u32,
        outcome: u8,
        position: usize,
    ) {
        let class = usize::from(outcome / 2) & (KINDS - 1);
        let costs = task.costs[class];
        task.counters[class].l1_misses += costs.scale;
        let core = &mut self.cores[usize::from(task.core)];
        if let Some(l2) = &mut core.l2 {
            let set = self.scratch.sets[position];
            let touched = if core.l2_fill == L2Fill::Exclusive {
                // The line moves to L1, with what was known about it.
                match l2.remove(line) {
                    Some(state) => {
                        if core.l1.change_state(line, !0, state).is_none() {
                            // A later touch of the block has already pushed it out of L1.
                            l2.touch(line, state, state);
                        }
                        super::cache::Touched { hit: true, lane: EMPTY }
                    }
                    None => super::cache::Touched { hit: false, lane: EMPTY },
                }
            } else {
                // SAFETY: passed on to the caller.
                unsafe { l2.touch_in::<I>(set, line, WRITABLE, 0) }
            };
            if touched.hit {
                task.counters[class].l2_hits += costs.scale;
                task.stall(TimeShare::L2, costs.l2_fs);
                return;
            }
            if touched.lane != EMPTY {
                // SAFETY: passed on to the caller.
                unsafe { self.left_l2::<I>(context, usize::from(task.core), touched.lane) };
            }
        }
        let set = self.llc.set_of(line);
        // SAFETY: passed on to the caller.
        unsafe { self.llc.prefetch::<I>(set) };
        self.scratch.llc.push(LlcWork { set, value: line, outcome, position: position as u8 });
    }

    /// A line that had to leave an L1.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    unsafe fn left_l1<I: Isa>(&mut self, context: &Context, core: usize, lane: u32) {
        let line = line_of(lane);
        let coherent = line < context.coherent_end;
        let dirty = lane & DIRTY;
        if coherent && self.directory[line as usize].sharers & self.bit(core) == 0 {
            // Taken away while it was on its way.
            return;
        }
        let excludes = self.cores[core].l2_fill == L2Fill::Exclusive;
        if dirty == 0 && !coherent && !excludes {
            return;
        }
        let Some(l2) = &mut self.cores[core].l2 else {
            // SAFETY: passed on to the caller.
            unsafe { self.left_l2::<I>(context, core, lane) };
            return;
        };
        let set = l2.set_of(line);
        if dirty == 0 && !excludes {
            // Unless a later touch of the block has put it into L1 again.
            if coherent && !l2.contains(line) && !self.cores[core].l1.contains(line) {
                self.left_core(context, core, lane);
            }
            return;
        }
        // SAFETY: passed on to the caller.
        let touched = unsafe { l2.touch_in::<I>(set, line, lane & (WRITABLE | DIRTY), dirty) };
        if !touched.hit && touched.lane != EMPTY {
            // SAFETY: passed on to the caller.
            unsafe { self.left_l2::<I>(context, core, touched.lane) };
        }
    }

    /// A line that had to leave an L2 (or an L1 without L2).
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub(crate) unsafe fn left_l2<I: Isa>(&mut self, context: &Context, core: usize, lane: u32) {
        let line = line_of(lane);
        let mut lane = lane;
        if line < context.coherent_end {
            if self.cores[core].l2_fill == L2Fill::Inclusive {
                let state = self.cores[core].l1.remove(line).unwrap_or(0);
                self.left_core(context, core, lane | state & DIRTY);
            } else if self.cores[core].l1.contains(line) {
                // The L1 keeps it and is told what the L2 knew.
                self.cores[core].l1.change_state(line, !0, lane & (WRITABLE | DIRTY));
            } else {
                self.left_core(context, core, lane);
            }
            return;
        }
        if self.cores[core].l2_fill == L2Fill::Inclusive {
            lane |= self.cores[core].l1.remove(line).unwrap_or(0) & DIRTY;
        }
        let keeps_clean = matches!(self.llc_fill, LlcFill::Victim | LlcFill::Exclusive);
        if keeps_clean || lane & DIRTY != 0 {
            let set = self.llc.set_of(line);
            // SAFETY: passed on to the caller.
            unsafe { self.llc.prefetch::<I>(set) };
            self.scratch.llc.push(LlcWork { set, value: lane, outcome: EVICTED, position: 0 });
        }
    }

    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    unsafe fn work_on_llc<I: Isa>(&mut self, context: &Context, task: &mut Task) {
        for index in 0..self.scratch.llc.len() {
            let LlcWork { set, value, outcome, position } = self.scratch.llc[index];
            if outcome == EVICTED {
                let dirty = value & DIRTY;
                // SAFETY: passed on to the caller.
                let touched = unsafe { self.llc.touch_in::<I>(set, line_of(value), dirty, dirty) };
                if !touched.hit && touched.lane != EMPTY {
                    self.left_llc(context, touched.lane);
                }
                continue;
            }
            let line = value;
            // SAFETY: passed on to the caller.
            let hit = unsafe { self.fetch_from_llc::<I>(context, set, line, usize::from(task.core)) };
            let class = usize::from(outcome / 2) & (KINDS - 1);
            let costs = task.costs[class];
            if hit {
                if task.history.is_some() {
                    self.scratch.found[usize::from(position) & (BLOCK - 1)] = set;
                }
                task.counters[class].llc_hits += costs.scale;
                task.stall(TimeShare::Llc, costs.llc_fs);
            } else {
                let node = context.home(line);
                self.traffic[node].reads += costs.scale;
                let counters = &mut task.counters[class];
                *(if node == self.node { &mut counters.dram_local } else { &mut counters.dram_remote }) += costs.scale;
                counters.dram_rfos += u64::from(outcome & 1) * costs.scale;
                let latency = self.memory_latency(usize::from(task.core), node);
                task.wait_for_memory(latency, node == self.node, costs.exposed);
            }
        }
        self.scratch.llc.clear();
    }

    /// Whether the LLC had a private line; afterwards it has what its fill rule says.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    unsafe fn fetch_from_llc<I: Isa>(&mut self, context: &Context, set: u32, line: u32, core: usize) -> bool {
        // SAFETY: all calls are passed on to the caller.
        unsafe {
            match self.llc_fill {
                LlcFill::Inclusive | LlcFill::FillBoth => {
                    let touched = self.llc.touch_in::<I>(set, line, 0, 0);
                    if !touched.hit && touched.lane != EMPTY {
                        self.left_llc(context, touched.lane);
                    }
                    touched.hit
                }
                LlcFill::Victim => self.llc.promote_in::<I>(set, line).is_some(),
                LlcFill::Exclusive => match self.llc.remove_in::<I>(set, line) {
                    Some(state) => {
                        if state & DIRTY != 0 {
                            self.mark_dirty(core, line);
                        }
                        true
                    }
                    None => false,
                },
            }
        }
    }

    /// A dirty line moved from the LLC to a core.
    pub(crate) fn mark_dirty(&mut self, core: usize, line: u32) {
        let core = &mut self.cores[core];
        let marked = core.l2.as_mut().and_then(|l2| l2.change_state(line, !0, DIRTY));
        if marked.is_none() {
            core.l1.change_state(line, !0, DIRTY);
        }
    }

    /// A line that had to leave the LLC.
    pub(crate) fn left_llc(&mut self, context: &Context, lane: u32) {
        let line = line_of(lane);
        if line < context.coherent_end {
            self.coherent_left_llc(context, lane);
            return;
        }
        let mut dirty = lane & DIRTY;
        if self.llc_fill == LlcFill::Inclusive {
            let core = context.page_core[(line >> context.page_shift) as usize];
            if let Some(core) = self.cores.get_mut(usize::from(core)) {
                dirty |= core.l1.remove(line).unwrap_or(0) & DIRTY;
                dirty |= core.l2.as_mut().and_then(|l2| l2.remove(line)).unwrap_or(0) & DIRTY;
            }
        }
        if dirty != 0 {
            self.write_back(context, line);
        }
    }

    /// Memory gets a line back.
    pub(crate) fn write_back(&mut self, context: &Context, line: u32) {
        let node = context.home(line);
        if let Some(traffic) = self.traffic.get_mut(node) {
            traffic.writes += context.scale(line);
        }
    }
}
