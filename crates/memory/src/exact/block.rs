//! A block of touches of one core on its way through the L1, and what it leaves for the levels behind.

use super::cache::{Cache, Touched, touch_simple};
use super::lanes::{DIRTY, EMPTY, Isa, WRITABLE};
use super::stream::BLOCK;
use super::task::KINDS;

/// Work for the LLC, gathered over a block.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LlcWork {
    pub(super) set: u32,
    /// For evicted lines the lane, for fetched ones the line.
    pub(super) value: u32,
    /// Outcome of the touch; [`EVICTED`] otherwise.
    pub(super) outcome: u8,
    /// Position of the touch in its block.
    pub(super) position: u8,
}

/// Outcome of lines that a private cache evicted.
pub(super) const EVICTED: u8 = u8::MAX;

/// Intermediate results of a block.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    pub(super) lines: [u32; BLOCK],
    pub(super) outcomes: [u8; BLOCK],
    pub(super) sets: [u32; BLOCK],
    /// The set of each touch in the cache that had its line, where somebody records that.
    pub(super) found: [u32; BLOCK],
    /// By event: position in the block, lane that left the L1, whether the L1 had the line.
    pub(super) event: [u8; BLOCK],
    pub(super) lane: [u32; BLOCK],
    pub(super) hit: [bool; BLOCK],
    pub(super) llc: Vec<LlcWork>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            lines: [0; BLOCK],
            outcomes: [0; BLOCK],
            sets: [0; BLOCK],
            found: [0; BLOCK],
            event: [0; BLOCK],
            lane: [0; BLOCK],
            hit: [false; BLOCK],
            llc: Vec::with_capacity(4 * BLOCK),
        }
    }
}

impl Scratch {
    /// Touches the first `count` lines in an L1. Returns the number of events: touches that the L1 does not settle
    /// alone, since it does not have the line, or has it without the right to write. Lines below `hot_end` are events
    /// without being looked for.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub(super) unsafe fn probe<I: Isa>(
        &mut self,
        l1: &mut Cache,
        hot_end: u32,
        fill: &[u8; 2 * KINDS],
        count: usize,
    ) -> usize {
        l1.sets_of(&self.lines, &mut self.sets);
        match l1.simple_sets() {
            // SAFETY: passed on to the caller.
            Some((sets, last)) => self.probe_with(hot_end, fill, count, |set, line, _, fill, or| unsafe {
                touch_simple::<I>(sets, last, set, line, fill, or)
            }),
            None => self.probe_with(hot_end, fill, count, |set, line, _, fill, or| unsafe {
                // SAFETY: passed on to the caller.
                l1.touch_in::<I>(set, line, fill, or)
            }),
        }
    }

    /// [`Scratch::probe`] where touches of the kinds in `code`, as bits, go to the second L1, which is for instructions.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub(super) unsafe fn probe_both<I: Isa>(
        &mut self,
        [l1, l1i]: [&mut Cache; 2],
        code: u32,
        hot_end: u32,
        fill: &[u8; 2 * KINDS],
        count: usize,
    ) -> usize {
        let is_code = |outcome: u8| code >> (outcome / 2) & 1 != 0;
        l1.sets_of(&self.lines, &mut self.sets);
        l1i.sets_of(&self.lines, &mut self.found);
        for position in (0..count.min(BLOCK)).filter(|&position| is_code(self.outcomes[position])) {
            self.sets[position] = self.found[position];
        }
        self.probe_with(hot_end, fill, count, |set, line, outcome, fill, or| {
            let cache = if is_code(outcome) { &mut *l1i } else { &mut *l1 };
            // SAFETY: passed on to the caller.
            unsafe { cache.touch_in::<I>(set, line, fill, or) }
        })
    }

    #[inline(always)]
    fn probe_with(
        &mut self,
        hot_end: u32,
        fill: &[u8; 2 * KINDS],
        count: usize,
        mut touch: impl FnMut(u32, u32, u8, u32, u32) -> Touched,
    ) -> usize {
        let mut events = 0;
        for position in 0..count.min(BLOCK) {
            let (line, outcome) = (self.lines[position], self.outcomes[position]);
            // Never more events than positions, which the compiler cannot know.
            let event = events & (BLOCK - 1);
            self.event[event] = position as u8;
            if line < hot_end {
                self.lane[event] = EMPTY;
                self.hit[event] = false;
                events += 1;
                continue;
            }
            let fill = u32::from(fill[usize::from(outcome) & (2 * KINDS - 1)]);
            let write = u32::from(outcome & 1);
            let touched = touch(self.sets[position], line, outcome, fill, write * DIRTY);
            self.lane[event] = touched.lane;
            self.hit[event] = touched.hit;
            // Written without the right to: an event as well.
            let forbidden = write & !touched.lane & WRITABLE;
            events += usize::from(!touched.hit | (forbidden != 0));
        }
        events
    }
}
