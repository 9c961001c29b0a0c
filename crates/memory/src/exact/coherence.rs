//! Lines that several cores may use, inside one domain: a directory entry per line with the cores that have copies,
//! the core that may write, and the right that the domain as a whole has.
//!
//! An access that the domain's right covers is settled here and now. Any other becomes a request; the domain goes on
//! as if it had been granted, and the home directory settles who was first (see [`super::home`]). The directory
//! forgets nothing and has room for everything: the limited directories of real machines are not modelled.
//! Source: `docs/spec/memory-model.md` sections 3.1 and 4.4.

use super::domain::{Ask, Context, Domain, Entry, NO_CORE, Right, Transaction};
use super::lanes::{DIRTY, EMPTY, Portable, WRITABLE, line_of};
use super::options::{L2Fill, LlcFill};
use super::task::{KINDS, Task};
use warmcore_trace::TimeShare;

/// Where a write finds what it needs inside the domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The core has the data and nobody else does.
    Own,
    /// The LLC has the data and no core does.
    Llc,
    /// Other cores have copies.
    Cores,
    /// Nowhere.
    Outside,
}

impl Source {
    /// A task's write gets what it needs inside the domain, which has the right to write; `held`: whether the core can read the line.
    pub(crate) fn serve(self, task: &mut Task, class: usize, held: bool, transfer_fs: u64) {
        let costs = task.costs[class];
        let counters = &mut task.counters[class];
        match self {
            Source::Own => {
                counters.l2_hits += costs.scale;
                task.stall(TimeShare::L2, costs.l2_fs);
            }
            Source::Llc => {
                counters.llc_hits += costs.scale;
                task.stall(TimeShare::Llc, costs.llc_fs);
            }
            Source::Cores | Source::Outside => {
                counters.same_llc_transfers += costs.scale;
                counters.same_llc_writes += costs.scale;
                task.wait(TimeShare::Llc, transfer_fs, if held { costs.announced } else { costs.coherent });
            }
        }
    }
}

impl Domain {
    /// A line of the directory that the L1 does not have, or has without the right to write that the touch needs.
    #[inline(never)]
    pub(crate) fn coherent_event(&mut self, context: &Context, task: &mut Task, line: u32, outcome: u8, l1_hit: bool) {
        let class = usize::from(outcome / 2) & (KINDS - 1);
        let write = outcome & 1 == 1;
        let core = usize::from(task.core);
        let held = if line < context.hot_end {
            let entry = self.directory[line as usize];
            let has = entry.sharers & self.bit(core) != 0 && (!self.shares_bit() || entry.owner as usize == core);
            has.then_some(if usize::from(entry.owner) == core { WRITABLE } else { 0 })
        } else {
            self.held_by_core(context, core, line, l1_hit)
        };
        let costs = task.costs[class];
        if let Some(state) = held
            && (!write || state & WRITABLE != 0)
        {
            // Hot lines stand for L1 hits, which are not counted.
            if line >= context.hot_end {
                task.counters[class].l1_misses += costs.scale;
                task.counters[class].l2_hits += costs.scale;
                task.stall(TimeShare::L2, costs.l2_fs);
                self.cores[core].l1.change_state(line, !0, state & WRITABLE);
            }
            return;
        }
        task.counters[class].l1_misses += costs.scale;
        if write {
            // Hot lines stand for L1 hits.
            self.take_to_write(context, task, line, class, held.map(|_| l1_hit || line < context.hot_end));
        } else {
            self.fetch_to_read(context, task, line, class);
        }
    }

    /// The state in which the core has the line; afterwards its L2 has it too, or its L1 alone if they exclude.
    fn held_by_core(&mut self, context: &Context, core: usize, line: u32, l1_hit: bool) -> Option<u32> {
        let caches = &mut self.cores[core];
        let in_l1 = if l1_hit { caches.l1.state(line).map(|state| state & WRITABLE) } else { None };
        let Some(l2) = &mut caches.l2 else { return in_l1 };
        if caches.l2_fill == L2Fill::Exclusive {
            let Some(state) = l2.remove(line) else { return in_l1 };
            if caches.l1.change_state(line, !0, state).is_none() {
                l2.touch(line, state, state);
            }
            return Some(state);
        }
        let touched = l2.touch(line, 0, 0);
        if touched.hit {
            return Some(touched.lane & WRITABLE);
        }
        if touched.lane != EMPTY {
            // SAFETY: portable code needs nothing.
            unsafe { self.left_l2::<Portable>(context, core, touched.lane) };
        }
        in_l1
    }

    fn fetch_to_read(&mut self, context: &Context, task: &mut Task, line: u32, class: usize) {
        let core = usize::from(task.core);
        let costs = task.costs[class];
        let bit = self.bit(core);
        let mut entry = self.directory[line as usize];
        if entry.owner != NO_CORE && usize::from(entry.owner) != core {
            let dirty = self.drop_write_right(usize::from(entry.owner), line);
            entry.owner = NO_CORE;
            if dirty != 0 {
                entry.right = Right::Modified;
            }
            // Before the LLC is touched: what that pushes out may concern this line's neighbours only.
            self.directory[line as usize] = entry;
            if dirty != 0 || matches!(self.llc_fill, LlcFill::Victim | LlcFill::Exclusive) {
                self.put_in_llc(context, line, dirty);
            }
            task.counters[class].same_llc_transfers += costs.scale;
            task.wait(TimeShare::Llc, self.transfer_fs, costs.coherent);
        } else if self.read_from_llc(line, core, entry) || self.only_had(entry, bit) {
            task.counters[class].llc_hits += costs.scale;
            task.stall(TimeShare::Llc, costs.llc_fs);
        } else if entry.right != Right::None {
            task.counters[class].same_llc_transfers += costs.scale;
            task.wait(TimeShare::Llc, self.transfer_fs, costs.coherent);
        } else {
            self.request(task, line, Ask::Read, class);
            self.directory[line as usize].right = Right::Shared;
            if matches!(self.llc_fill, LlcFill::Inclusive | LlcFill::FillBoth) {
                self.put_in_llc(context, line, 0);
            }
        }
        let entry = &mut self.directory[line as usize];
        entry.sharers |= bit;
        let alone = entry.sharers == bit && self.sharer_shift == 0;
        if entry.right.may_write() && alone && !(self.llc_may_be_stale() && self.llc.contains(line)) {
            self.directory[line as usize].owner = core as u16;
            self.allow_writing(core, line);
        }
    }

    /// `held`: whether the core has the line in its L1, if it has it.
    fn take_to_write(&mut self, context: &Context, task: &mut Task, line: u32, class: usize, held: Option<bool>) {
        let core = usize::from(task.core);
        let bit = self.bit(core);
        let entry = self.directory[line as usize];
        let foreign_owner = entry.owner != NO_CORE && usize::from(entry.owner) != core;
        let in_llc = self.llc.contains(line);
        let source = if foreign_owner || entry.sharers & !bit != 0 {
            Source::Cores
        } else if held.is_some() {
            Source::Own
        } else if in_llc || self.only_had(entry, bit) {
            Source::Llc
        } else if entry.right != Right::None {
            // Another core that shares this core's bit.
            Source::Cores
        } else {
            Source::Outside
        };
        self.invalidate_cores(line, entry.sharers, Some(core));
        if in_llc && self.llc_may_be_stale() {
            self.llc.remove(line);
        } else if !in_llc && matches!(self.llc_fill, LlcFill::Inclusive | LlcFill::FillBoth) {
            self.put_in_llc(context, line, 0);
        }
        if entry.right.may_write() {
            source.serve(task, class, held.is_some(), self.transfer_fs);
        } else {
            // A line that is newer than memory's (O) was shared when the core got it.
            let held = held.map(|in_l1| in_l1 && entry.right != Right::Owned);
            self.request(task, line, Ask::Own { source, held }, class);
        }
        let entry = &mut self.directory[line as usize];
        *entry = Entry { sharers: bit, owner: core as u16, right: Right::Modified, ..*entry };
        self.allow_writing(core, line);
        self.mark_written(core, line);
    }

    /// Whether the LLC's copy is out of date once a core writes, and has to go: where the LLC is filled by evictions.
    fn llc_may_be_stale(&self) -> bool {
        matches!(self.llc_fill, LlcFill::Victim | LlcFill::Exclusive)
    }

    /// Whether the LLC had the line for a reader. An LLC that excludes gives it away if nobody else has it. Only the
    /// core that becomes the owner may note that the line is newer than memory; otherwise (O, or sharers that cannot
    /// be told apart) the domain's right says so.
    fn read_from_llc(&mut self, line: u32, core: usize, entry: Entry) -> bool {
        if self.llc_fill == LlcFill::Exclusive && entry.sharers & !self.bit(core) == 0 {
            let Some(state) = self.llc.remove(line) else { return false };
            if state & DIRTY != 0 && entry.right.may_write() && !self.shares_bit() {
                self.mark_dirty(core, line);
            }
            return true;
        }
        self.llc.promote(line).is_some()
    }

    fn request(&mut self, task: &Task, line: u32, ask: Ask, class: usize) {
        self.date_request(line, ask, task.clock_fs, task.slot, class as u8);
    }

    fn date_request(&mut self, line: u32, ask: Ask, time_fs: u64, slot: u16, class: u8) {
        let entry = &mut self.directory[line as usize];
        entry.last_fs = entry.last_fs.max(time_fs);
        self.requests.push(Transaction { time_fs: entry.last_fs, line, ask, slot, class });
    }

    /// The domain has lost its last copy.
    fn gone(&mut self, context: &Context, line: u32) {
        if matches!(self.directory[line as usize].right, Right::Modified | Right::Owned) {
            self.write_back(context, line);
        }
        let last_fs = self.directory[line as usize].last_fs;
        self.directory[line as usize] = Entry { last_fs, ..Entry::NONE };
        self.date_request(line, Ask::Gone, 0, 0, 0);
    }

    /// A core has lost its last copy to other lines.
    pub(crate) fn left_core(&mut self, context: &Context, core: usize, lane: u32) {
        let line = line_of(lane);
        let dirty = lane & DIRTY;
        let bit = self.bit(core);
        if self.directory[line as usize].sharers & bit == 0 {
            return;
        }
        let others_share_bit = self.shares_bit() && self.another_has(core, line);
        let entry = &mut self.directory[line as usize];
        if !others_share_bit {
            entry.sharers &= !bit;
        }
        if usize::from(entry.owner) == core {
            entry.owner = NO_CORE;
        }
        if dirty != 0 && entry.right == Right::Exclusive {
            entry.right = Right::Modified;
        }
        match self.llc_fill {
            LlcFill::Victim | LlcFill::Exclusive => self.put_in_llc(context, line, dirty),
            LlcFill::Inclusive | LlcFill::FillBoth if dirty != 0 => self.put_in_llc(context, line, dirty),
            LlcFill::Inclusive | LlcFill::FillBoth => {}
        }
        if self.directory[line as usize].sharers == 0 && !self.llc.contains(line) {
            self.gone(context, line);
        }
    }

    /// The LLC has lost a line to others.
    pub(crate) fn coherent_left_llc(&mut self, context: &Context, lane: u32) {
        let line = line_of(lane);
        let mut dirty = lane & DIRTY;
        let mut entry = self.directory[line as usize];
        if self.llc_fill == LlcFill::Inclusive {
            dirty |= self.invalidate_cores(line, entry.sharers, None);
            entry.sharers = 0;
            entry.owner = NO_CORE;
        }
        if dirty != 0 {
            self.write_back(context, line);
            if entry.owner == NO_CORE {
                entry.right = match entry.right {
                    Right::Modified => Right::Exclusive,
                    Right::Owned => Right::Shared,
                    right => right,
                };
            }
        }
        self.directory[line as usize] = entry;
        if entry.sharers == 0 {
            self.gone(context, line);
        }
    }

    /// What the home directory has decided: the domain may only read, or has to forget the line. Returns whether its
    /// copy was newer than memory's.
    pub(crate) fn reduce_right(&mut self, line: u32, right: Right, written_back: bool) -> bool {
        let entry = self.directory[line as usize];
        let mut dirty = entry.right >= Right::Owned && entry.right != Right::Exclusive;
        if right == Right::None {
            dirty |= self.invalidate_cores(line, entry.sharers, None) != 0;
            dirty |= self.llc.remove(line).unwrap_or(0) & DIRTY != 0;
            self.directory[line as usize] = Entry { last_fs: entry.last_fs, ..Entry::NONE };
            return dirty;
        }
        if entry.owner != NO_CORE {
            dirty |= self.drop_write_right(usize::from(entry.owner), line) != 0;
        }
        if written_back {
            self.llc.change_state(line, !DIRTY, 0);
        }
        let entry = &mut self.directory[line as usize];
        entry.owner = NO_CORE;
        entry.right = right;
        dirty
    }

    /// The home directory has given the domain, whose request to read found no other copy, the right to write (E): the core that read has
    /// it, if it can be told and has the only copy.
    pub(crate) fn grant_exclusive(&mut self, line: u32) {
        self.directory[line as usize].right = Right::Exclusive;
        let sharers = self.directory[line as usize].sharers;
        let is_stale = self.llc_may_be_stale() && self.llc.contains(line);
        if sharers.count_ones() == 1 && !self.shares_bit() && !is_stale {
            let core = sharers.trailing_zeros() as usize;
            self.directory[line as usize].owner = core as u16;
            self.allow_writing(core, line);
        }
    }

    /// Whether the domain's copy is newer than memory's.
    pub(crate) fn has_newer(&self, line: u32) -> bool {
        let entry = self.directory[line as usize];
        if matches!(entry.right, Right::Modified | Right::Owned) {
            return true;
        }
        // A core may have written without telling.
        self.cores.get(usize::from(entry.owner)).is_some_and(|core| {
            let dirty = |state: Option<u32>| state.unwrap_or(0) & DIRTY != 0;
            dirty(core.l1.state(line)) || dirty(core.l2.as_ref().and_then(|l2| l2.state(line)))
        })
    }

    fn put_in_llc(&mut self, context: &Context, line: u32, dirty: u32) {
        if line < context.hot_end {
            return;
        }
        let touched = self.llc.touch(line, dirty, dirty);
        if !touched.hit && touched.lane != EMPTY {
            self.left_llc(context, touched.lane);
        }
    }

    /// Takes copies away from cores; says whether one was dirty.
    fn invalidate_cores(&mut self, line: u32, sharers: u64, except: Option<usize>) -> u32 {
        let mut dirty = 0;
        let mut left = sharers;
        while left != 0 {
            let first = (left.trailing_zeros() as usize) << self.sharer_shift;
            left &= left - 1;
            for core in first..(first + (1 << self.sharer_shift)).min(self.cores.len()) {
                if Some(core) != except {
                    let core = &mut self.cores[core];
                    dirty |= core.l1.remove(line).unwrap_or(0) & DIRTY;
                    dirty |= core.l2.as_mut().and_then(|l2| l2.remove(line)).unwrap_or(0) & DIRTY;
                }
            }
        }
        dirty
    }

    /// A core may only read its copy from now on; says whether it had written it.
    fn drop_write_right(&mut self, core: usize, line: u32) -> u32 {
        let core = &mut self.cores[core];
        let mut state = core.l1.change_state(line, !(WRITABLE | DIRTY), 0).unwrap_or(0);
        if let Some(l2) = &mut core.l2 {
            state |= l2.change_state(line, !(WRITABLE | DIRTY), 0).unwrap_or(0);
        }
        state & DIRTY
    }

    fn allow_writing(&mut self, core: usize, line: u32) {
        let core = &mut self.cores[core];
        core.l1.change_state(line, !0, WRITABLE);
        if let Some(l2) = &mut core.l2 {
            l2.change_state(line, !0, WRITABLE);
        }
    }

    /// The L1 notes a write when it is touched; if the line has left it meanwhile, the L2 does.
    fn mark_written(&mut self, core: usize, line: u32) {
        let core = &mut self.cores[core];
        if core.l1.change_state(line, !0, DIRTY).is_none()
            && let Some(l2) = &mut core.l2
        {
            l2.change_state(line, !0, DIRTY);
        }
    }

    pub(crate) fn bit(&self, core: usize) -> u64 {
        1 << (core >> self.sharer_shift)
    }

    fn shares_bit(&self) -> bool {
        self.sharer_shift > 0
    }

    /// Whether only the core itself has had the line, which it does not find: a later touch of the block has put the line into its L1 again before
    /// it left, and in the touches' order the LLC would have got it meanwhile.
    fn only_had(&self, entry: Entry, bit: u64) -> bool {
        entry.sharers == bit && !self.shares_bit()
    }

    fn another_has(&self, core: usize, line: u32) -> bool {
        let first = core >> self.sharer_shift << self.sharer_shift;
        let neighbours = first..(first + (1 << self.sharer_shift)).min(self.cores.len());
        neighbours.filter(|other| *other != core).any(|other| {
            let other = &self.cores[other];
            other.l1.contains(line) || other.l2.as_ref().is_some_and(|l2| l2.contains(line))
        })
    }
}
