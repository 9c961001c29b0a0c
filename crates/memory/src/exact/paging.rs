//! Virtual memory of the exact level: pages that get a frame when they are touched first, and the walks that find it.
//!
//! Lines of classes are virtual then. A touch needs the frame of its page: a translation buffer of its core has it, where there is one,
//! or the four levels of its process's page table are walked, whose entries are lines that go through the caches as others do. What a
//! walk finds missing gets a frame, tables included, and the entry is written. Frames are numbered in the order in which they are
//! given out; those of tasks that are gone are given out again. A frame is on the node that the page's class says, by default the
//! toucher's; where that node has none left, on the nearest that has.
//!
//! Not modelled: the kernel's own work in a fault, and what was in a frame before (nothing is cleared); pages that leave memory; caches of
//! upper tables; entries of tables that a processor marks as used. Domains run one after another within a quantum, so that frames are
//! given out in an order.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use warmcore_topology::settings::{number, pairs, refusal};
use warmcore_topology::{Machine, parse_size};

use super::domain::{Context, Domain, Entry, NO_CORE, NO_HOME};
use super::error::ExactError;
use super::lanes::{MAX_LINES, Portable};
use super::options::Options;
use super::page_table::{ENTRY_BYTES, LEVELS, Missing, PageTable, TABLE_ENTRIES};
use super::space::{Region, Space};
use super::stream::BLOCK;
use super::task::{TABLES, Task};
use crate::hierarchy::Hierarchy;
use warmcore_trace::TimeShare;

/// Smallest pages: a table fills one.
pub const LEAST_PAGE_BYTES: u64 = TABLE_ENTRIES * ENTRY_BYTES;
/// Most entries of a translation buffer.
pub(crate) const MOST_TLB_ENTRIES: u32 = 1 << 16;

/// How addresses are translated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PagingSpec {
    /// Bytes of a page: a power of two, at least [`LEAST_PAGE_BYTES`].
    pub page_bytes: u64,
    /// Entries of each core's translation buffer: a power of two, at most `MOST_TLB_ENTRIES`; 0 for none, so that every touch walks.
    #[serde(default)]
    pub tlb_entries: u32,
    /// Memory of each node in bytes, instead of what the machine states; where neither says anything, as much as lines can be told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_bytes: Option<u64>,
}

impl Default for PagingSpec {
    fn default() -> Self {
        Self::USUAL
    }
}

impl FromStr for PagingSpec {
    type Err = String;

    /// `page=SIZE`, `tlb=ENTRIES` and `ram=SIZE` of each node, with commas between them.
    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| parse_size(text).map_err(|error| error.to_string());
        let mut paging = Self::default();
        for (key, value) in pairs(text, &[])? {
            match (key, value) {
                ("page", Some(bytes)) => paging.page_bytes = size(bytes)?,
                ("tlb", Some(entries)) => paging.tlb_entries = number(key, entries, 0, u32::MAX)?,
                ("ram", Some(bytes)) => paging.node_bytes = Some(size(bytes)?),
                (key, value) => return Err(refusal("translation", key, value, &["page", "tlb", "ram"])),
            }
        }
        paging.check().map_err(|error| error.to_string())?;
        Ok(paging)
    }
}

impl PagingSpec {
    /// Pages of 4 KiB, no translation buffer, the machine's memory: the default.
    pub const USUAL: Self = Self { page_bytes: LEAST_PAGE_BYTES, tlb_entries: 0, node_bytes: None };

    /// Checks what can be checked without a machine's memory.
    ///
    /// # Errors
    /// A page size or a number of entries that is impossible.
    pub fn check(&self) -> Result<(), ExactError> {
        if !self.page_bytes.is_power_of_two() || self.page_bytes < LEAST_PAGE_BYTES {
            return Err(ExactError::TranslatedPage { page_bytes: self.page_bytes, least: LEAST_PAGE_BYTES });
        }
        if self.tlb_entries != 0 && (!self.tlb_entries.is_power_of_two() || self.tlb_entries > MOST_TLB_ENTRIES) {
            return Err(ExactError::TlbEntries { entries: self.tlb_entries, most: MOST_TLB_ENTRIES });
        }
        Ok(())
    }
}

/// No frame, and no page.
const NONE: u32 = u32::MAX;

/// A virtual page.
#[derive(Clone, Copy, Debug)]
struct Page {
    frame: u32,
    /// Where its frame shall be; [`NO_HOME`] for the node of who touches it first.
    home: u8,
    /// Whether the directories know its lines.
    coherent: bool,
}

const NEW_PAGE: Page = Page { frame: NONE, home: NO_HOME, coherent: false };

/// Frames of lines that the directories know, or of the others: they are numbered apart.
struct Pool {
    next: u32,
    end: u32,
    free: Vec<u32>,
}

/// The frames of the machine.
struct Frames {
    page_bytes: u64,
    coherent: Pool,
    private: Pool,
    /// By node: frames left.
    left: Vec<u64>,
    /// By node: all nodes, the nearest first.
    nearest: Vec<Vec<u8>>,
    /// By frame: its virtual page; [`NONE`] for tables and free ones.
    pages: Vec<u32>,
}

impl Frames {
    /// A frame on a node or the nearest that has one, for a virtual page or a table, touched from a core.
    fn take(
        &mut self,
        context: &mut Context,
        node: usize,
        coherent: bool,
        page: u32,
        core: u16,
    ) -> Result<u32, ExactError> {
        let full = ExactError::MemoryFull { nodes: self.left.len(), page_bytes: self.page_bytes };
        let found = self.nearest[node].iter().copied().find(|node| self.left[usize::from(*node)] > 0);
        let home = found.ok_or(full)?;
        let pool = if coherent { &mut self.coherent } else { &mut self.private };
        let frame = match pool.free.pop() {
            Some(frame) => frame,
            None if pool.next == pool.end => {
                let lines = u64::from(pool.end) << context.page_shift;
                return Err(ExactError::TooManyLines { lines, most: lines });
            }
            None => {
                pool.next += 1;
                pool.next - 1
            }
        };
        let (index, frames) = (frame as usize, frame as usize + 1);
        if self.pages.len() < frames {
            self.pages.resize(frames, NONE);
            context.homes.resize(frames, NO_HOME);
            context.page_core.resize(frames, NO_CORE);
        }
        self.left[usize::from(home)] -= 1;
        self.pages[index] = page;
        context.homes[index] = home;
        context.page_core[index] = core;
        Ok(frame)
    }

    fn give_back(&mut self, context: &Context, frame: u32) {
        self.left[usize::from(context.homes[frame as usize])] += 1;
        self.pages[frame as usize] = NONE;
        let pool = if frame < self.coherent.end { &mut self.coherent } else { &mut self.private };
        pool.free.push(frame);
    }
}

/// The pages of a process.
struct AddressSpace {
    process: u32,
    /// Tasks that live in it.
    tasks: u32,
    /// From the first walk on.
    table: Option<PageTable>,
}

/// Virtual memory of a simulation.
pub(crate) struct Paging {
    frames: Frames,
    /// By number of the virtual page.
    pages: Vec<Page>,
    spaces: Vec<AddressSpace>,
    /// By task: index of its space.
    of_task: Vec<u32>,
    /// log2 of the entries in a line.
    entry_shift: u32,
    /// Why no frame could be had.
    pub(crate) exhausted: Option<ExactError>,
}

/// Lines of tables that a block of touches reads and writes.
struct Walks {
    /// By level.
    reads: [[u32; BLOCK]; LEVELS],
    count: usize,
    writes: Vec<u32>,
}

impl Paging {
    /// Empty memory, in which frames of lines up to `coherent_end` are those that directories know.
    pub(crate) fn new(
        machine: &Machine,
        hierarchy: &Hierarchy,
        options: &Options,
        spec: PagingSpec,
        coherent_end: u32,
    ) -> Result<Self, ExactError> {
        spec.check()?;
        if options.sampling_shift > 0 {
            return Err(ExactError::PagedSample);
        }
        let lines_per_page = spec.page_bytes / u64::from(hierarchy.line_bytes);
        let most = (MAX_LINES / lines_per_page) as u32;
        let coherent_frames = (u64::from(coherent_end) / lines_per_page) as u32;
        let mut left = Vec::new();
        for node in machine.nodes() {
            let bytes = spec.node_bytes.or(machine.node_memory_bytes(node));
            match bytes {
                Some(memory_bytes) if memory_bytes < spec.page_bytes => {
                    return Err(ExactError::PageBeyondMemory { page_bytes: spec.page_bytes, memory_bytes });
                }
                _ => left.push(bytes.map_or(u64::from(most), |bytes| bytes / spec.page_bytes)),
            }
        }
        let nearest = hierarchy.memory_ns.iter().enumerate().map(|(here, ns)| {
            let mut nodes: Vec<u8> = (0..ns.len() as u8).collect();
            nodes.sort_by(|a, b| {
                let far = |node: u8| (usize::from(node) != here, ns[usize::from(node)]);
                far(*a).partial_cmp(&far(*b)).unwrap_or(std::cmp::Ordering::Equal)
            });
            nodes
        });
        let pool = |next, end| Pool { next, end, free: Vec::new() };
        let frames = Frames {
            page_bytes: spec.page_bytes,
            coherent: pool(0, coherent_frames),
            private: pool(coherent_frames, most),
            left,
            nearest: nearest.collect(),
            pages: Vec::new(),
        };
        let entry_shift = (u64::from(hierarchy.line_bytes) / ENTRY_BYTES).trailing_zeros();
        Ok(Self { frames, pages: Vec::new(), spaces: Vec::new(), of_task: Vec::new(), entry_shift, exhausted: None })
    }

    /// Takes over the pages of all regions of tasks that are known beforehand.
    pub(crate) fn know(&mut self, space: &Space) {
        self.pages.extend(space.homes.iter().map(|home| Page { home: *home, ..NEW_PAGE }));
        for region in space.regions.iter().flatten() {
            self.pages[space.pages(*region)].iter_mut().for_each(|page| page.coherent = region.coherent);
        }
    }

    /// Makes room for virtual pages up to a number.
    pub(crate) fn make_room(&mut self, pages: usize) {
        self.pages.resize(pages.max(self.pages.len()), NEW_PAGE);
    }

    /// Says what a virtual page without a frame is for.
    pub(crate) fn describe(&mut self, page: usize, home: u8, coherent: bool) {
        self.pages[page] = Page { home, coherent, frame: NONE };
    }

    /// A task of a process is there; tasks are numbered in this order.
    pub(crate) fn add_task(&mut self, process: u32) {
        let known = self.spaces.iter().position(|space| space.process == process);
        let index = known.unwrap_or_else(|| {
            self.spaces.push(AddressSpace { process, tasks: 0, table: None });
            self.spaces.len() - 1
        });
        self.spaces[index].tasks += 1;
        self.of_task.push(index as u32);
    }

    /// A task is gone, and so are the private pages of these regions; with the last task of a process its tables.
    pub(crate) fn remove_task(&mut self, context: &Context, task: usize, regions: &[std::ops::Range<usize>]) {
        let Self { frames, pages, spaces, of_task, .. } = self;
        let space = &mut spaces[of_task[task] as usize];
        for page in regions.iter().cloned().flatten() {
            let frame = std::mem::replace(&mut pages[page].frame, NONE);
            if frame != NONE {
                frames.give_back(context, frame);
            }
            if let Some(table) = &mut space.table {
                table.unmap(page as u64);
            }
        }
        space.tasks -= 1;
        if space.tasks == 0
            && let Some(table) = space.table.take()
        {
            table.table_frames().for_each(|frame| frames.give_back(context, frame));
        }
    }

    /// The frame of a virtual page, if it has one.
    pub(crate) fn frame(&self, page: usize) -> Option<usize> {
        let frame = self.pages[page].frame;
        (frame != NONE).then_some(frame as usize)
    }

    /// The virtual line of a physical one; none of a table's.
    pub(crate) fn virtual_line(&self, line: u32, page_shift: u32) -> Option<u32> {
        let page = *self.frames.pages.get((line >> page_shift) as usize)?;
        (page != NONE).then(|| page << page_shift | line & ((1 << page_shift) - 1))
    }

    /// A page shall be on a node. One that has a frame goes there if the node has one to spare, and keeps its number.
    pub(crate) fn set_home(&mut self, context: &mut Context, page: usize, node: u8) {
        self.pages[page].home = node;
        let Some(frame) = self.frame(page) else { return };
        let left = &mut self.frames.left;
        let (from, to) = (usize::from(context.homes[frame]), usize::from(node));
        if from != to && left.get(to).is_some_and(|left| *left > 0) {
            left[from] += 1;
            left[to] -= 1;
            context.homes[frame] = node;
        }
    }

    /// Lines of the frames given out so far that the directories know.
    pub(crate) fn coherent_lines(&self, context: &Context) -> usize {
        (self.frames.coherent.next as usize) << context.page_shift
    }

    /// The frame of the page that a task touches; adds the lines that a walk reads and writes.
    fn translate(
        &mut self,
        context: &mut Context,
        domain: &mut Domain,
        task: &mut Task,
        page: u32,
        walks: &mut Walks,
    ) -> Result<u32, ExactError> {
        let Self { frames, pages, spaces, of_task, entry_shift, .. } = self;
        let Page { frame: known, home, coherent } = pages[page as usize];
        let (node, core) = (domain.node, task.core);
        let buffer = &mut domain.cores[usize::from(core)].tlb;
        let buffered = buffer.as_mut().is_some_and(|tlb| tlb.touch(page, 0, 0).hit);
        if buffered && known != NONE {
            return Ok(known);
        }
        task.page_walks += 1;
        let table = &mut spaces[of_task[task.id as usize] as usize].table;
        let table = match table {
            Some(table) => table,
            None => table.insert(PageTable::new(frames.take(context, node, true, NONE, core)?)),
        };
        let walk = table.walk(u64::from(page), |missing| match missing {
            Missing::Table => frames.take(context, node, true, NONE, core),
            // Another process has touched it.
            Missing::Page if known != NONE => Ok(known),
            Missing::Page => {
                let home = if home == NO_HOME { node } else { usize::from(home) };
                frames.take(context, home, coherent, page, core)
            }
        })?;
        pages[page as usize].frame = walk.frame;
        let line = |(frame, entry): (u32, u32)| frame << context.page_shift | entry >> *entry_shift;
        for (reads, entry) in walks.reads.iter_mut().zip(walk.entries) {
            reads[walks.count] = line(entry);
        }
        walks.count += 1;
        if walk.missing > 0 {
            task.page_faults += 1;
            walks.writes.extend(walk.entries[LEVELS - walk.missing..].iter().map(|entry| line(*entry)));
        }
        Ok(walk.frame)
    }
}

impl Domain {
    /// [`Domain::run`] with virtual memory. Nothing more is run once frames have run out.
    pub(crate) fn run_paged(&mut self, context: &mut Context, paging: &mut Paging, until_fs: u64) {
        for core in 0..self.cores.len() {
            while let Some(slot) = self.next_slot(core, until_fs) {
                if paging.exhausted.is_some() {
                    return;
                }
                let Some(mut task) = self.tasks[slot].take() else { break };
                let count = (task.touches_wanted - task.touches).min(BLOCK as u64) as usize;
                task.stream.next(count, &mut self.scratch.lines, &mut self.scratch.outcomes);
                match self.translate_block(context, paging, &mut task, count) {
                    Ok(walks) => {
                        self.walk_tables(context, &mut task, &walks);
                        task.touch(count as u64);
                        // SAFETY: portable code needs nothing.
                        unsafe { self.run_block::<Portable>(context, &mut task, count) };
                    }
                    Err(error) => paging.exhausted = Some(error),
                }
                self.tasks[slot] = Some(task);
            }
        }
    }

    /// Puts physical lines in the place of the block's virtual ones; the lines of tables that it takes to find them.
    fn translate_block(
        &mut self,
        context: &mut Context,
        paging: &mut Paging,
        task: &mut Task,
        count: usize,
    ) -> Result<Walks, ExactError> {
        let mut walks = Walks { reads: [[0; BLOCK]; LEVELS], count: 0, writes: Vec::new() };
        for position in 0..count.min(BLOCK) {
            let line = self.scratch.lines[position];
            let frame = paging.translate(context, self, task, line >> context.page_shift, &mut walks)?;
            self.scratch.lines[position] = frame << context.page_shift | line & ((1 << context.page_shift) - 1);
        }
        let known = paging.coherent_lines(context);
        if self.directory.len() < known {
            self.directory.resize(known, Entry::NONE);
        }
        Ok(walks)
    }

    /// The reads of a block's walks level by level, then the entries that had to be written, through the caches.
    fn walk_tables(&mut self, context: &Context, task: &mut Task, walks: &Walks) {
        if walks.count == 0 {
            return;
        }
        let (lines, outcomes) = (self.scratch.lines, self.scratch.outcomes);
        let history = task.history.take();
        let before = task.share_fs;
        let reads = walks.reads.iter().map(|reads| (&reads[..walks.count], 0));
        for (touched, write) in reads.chain(walks.writes.chunks(BLOCK).map(|writes| (writes, 1))) {
            self.scratch.lines[..touched.len()].copy_from_slice(touched);
            self.scratch.outcomes = [2 * TABLES as u8 + write; BLOCK];
            task.counters[TABLES].touches += touched.len() as u64;
            task.stall(TimeShare::PageWalks, touched.len() as u64 * task.table_fs);
            // SAFETY: portable code needs nothing.
            unsafe { self.run_block::<Portable>(context, task, touched.len()) };
        }
        task.was_walking(&before);
        task.history = history;
        (self.scratch.lines, self.scratch.outcomes) = (lines, outcomes);
    }
}

/// Pages of regions, without those that occur twice.
pub(crate) fn distinct_pages(space: &Space, regions: impl Iterator<Item = Region>) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    for region in regions {
        let pages = space.pages(region);
        if !found.contains(&pages) {
            found.push(pages);
        }
    }
    found
}
