//! A task at the exact level: its touches, what they cost it, and where its time went.

use warmcore_trace::TimeShare;

use super::counters::ClassCounters;
use super::domain::NO_CORE;
use super::history::History;
use super::stream::Stream;
use crate::profile::MAX_CLASSES;

/// Kinds of lines that touches are counted by: classes, then [`TABLES`]. A power of two, so that an index can be cut off.
pub(crate) const KINDS: usize = 2 * MAX_CLASSES;
/// The kind of page tables' lines.
pub(crate) const TABLES: usize = MAX_CLASSES;

/// Stall per event of a class in femtoseconds; with sampling, of all the events it stands for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassCosts {
    pub(crate) l2_fs: u64,
    pub(crate) llc_fs: u64,
    /// Part of a latency that is waited for, in 1/65536: by misses that memory serves, by transfers between caches, and by
    /// writes to a line that the core can read and only has to announce.
    pub(crate) exposed: u64,
    pub(crate) coherent: u64,
    pub(crate) announced: u64,
    /// Events that one stands for.
    pub(crate) scale: u64,
}

/// log2 of the unit of [`ClassCosts::exposed`].
pub(crate) const EXPOSED_BITS: u32 = 16;

/// Latency of a node's memory for a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MemoryLatency {
    /// Without load.
    pub(crate) idle_fs: u64,
    /// With the load of the last epoch.
    pub(crate) loaded_fs: u64,
}

/// Misses of the L1 for instructions up to the task's last change of profile, and those of L1 caches that its classes had had by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CodeMisses {
    before: u64,
    at_change: [u64; MAX_CLASSES],
}

/// A task while it has a place.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: u32,
    pub(crate) core: u16,
    pub(crate) slot: u16,
    pub(crate) stream: Stream,
    /// Classes of code, as bits.
    pub(crate) code: u32,
    pub(crate) code_misses: CodeMisses,
    /// State bits of a line that a touch puts into L1, by outcome: twice its kind, and one more for a write.
    pub(crate) fill: [u8; 2 * KINDS],
    pub(crate) costs: [ClassCosts; KINDS],
    /// Time of a touch that hits L1, everything between two touches included; and what it would be without siblings.
    pub(crate) touch_fs: u64,
    pub(crate) touch_alone_fs: u64,
    pub(crate) clock_fs: u64,
    pub(crate) stall_fs: u64,
    pub(crate) busy_fs: u64,
    /// What the time went to: together `busy_fs`.
    pub(crate) share_fs: [u64; TimeShare::COUNT],
    pub(crate) touches: u64,
    pub(crate) touches_wanted: u64,
    pub(crate) counters: [ClassCounters; KINDS],
    /// Time of an access to a table that the L1 has.
    pub(crate) table_fs: u64,
    /// Walks through page tables, and those that found something missing.
    pub(crate) page_walks: u64,
    pub(crate) page_faults: u64,
    /// Where somebody wants it.
    pub(crate) history: Option<Box<History>>,
}

impl Task {
    /// A task on no core that has done nothing yet, and whose touches cost nothing.
    pub(crate) fn new(id: u32, stream: Stream, fill: [u8; 2 * KINDS]) -> Self {
        Self {
            id,
            core: NO_CORE,
            slot: 0,
            stream,
            code: 0,
            code_misses: CodeMisses::default(),
            fill,
            costs: [ClassCosts::default(); KINDS],
            touch_fs: 0,
            touch_alone_fs: 0,
            clock_fs: 0,
            stall_fs: 0,
            busy_fs: 0,
            share_fs: [0; TimeShare::COUNT],
            touches: 0,
            touches_wanted: u64::MAX,
            counters: [ClassCounters::default(); KINDS],
            table_fs: 0,
            page_walks: 0,
            page_faults: 0,
            history: None,
        }
    }

    /// Misses of the L1 for instructions.
    pub(crate) fn l1i_misses(&self) -> u64 {
        let of_code = (0..MAX_CLASSES).filter(|class| self.code >> class & 1 != 0);
        let since = of_code.map(|class| self.counters[class].l1_misses - self.code_misses.at_change[class]);
        self.code_misses.before + since.sum::<u64>()
    }

    /// The task goes on with other classes of code.
    pub(crate) fn set_code(&mut self, code: u32) {
        self.code_misses = CodeMisses {
            before: self.l1i_misses(),
            at_change: std::array::from_fn(|class| self.counters[class].l1_misses),
        };
        self.code = code;
    }

    #[inline(always)]
    fn advance(&mut self, fs: u64) {
        self.clock_fs += fs;
        self.busy_fs += fs;
    }

    /// Touches that hit L1.
    #[inline(always)]
    pub(crate) fn touch(&mut self, count: u64) {
        self.touches += count;
        self.advance(count * self.touch_fs);
        self.share_fs[TimeShare::Compute as usize] += count * self.touch_alone_fs;
        self.share_fs[TimeShare::Smt as usize] += count * (self.touch_fs - self.touch_alone_fs);
    }

    #[inline(always)]
    pub(crate) fn stall(&mut self, share: TimeShare, fs: u64) {
        self.advance(fs);
        self.stall_fs += fs;
        self.share_fs[share as usize] += fs;
    }

    /// A latency of which a part is waited for.
    #[inline(always)]
    pub(crate) fn wait(&mut self, share: TimeShare, latency_fs: u64, exposed: u64) {
        self.stall(share, ((u128::from(latency_fs) * u128::from(exposed)) >> EXPOSED_BITS) as u64);
    }

    /// What the task has waited for since its shares of time were these was for tables of pages.
    pub(crate) fn was_walking(&mut self, before: &[u64; TimeShare::COUNT]) {
        let waited_fs = |share: &[u64; TimeShare::COUNT]| share.iter().sum::<u64>();
        let fs = waited_fs(&self.share_fs) - waited_fs(before);
        self.share_fs = *before;
        self.share_fs[TimeShare::PageWalks as usize] += fs;
    }

    /// A line from memory, of the core's own node or of another: what load adds to the idle latency is a share of its own.
    #[inline(always)]
    pub(crate) fn wait_for_memory(&mut self, latency: MemoryLatency, local: bool, exposed: u64) {
        let share = if local { TimeShare::DramLocal } else { TimeShare::DramRemote };
        let before = self.busy_fs;
        self.wait(share, latency.loaded_fs, exposed);
        let by_load = ((u128::from(latency.loaded_fs.saturating_sub(latency.idle_fs)) * u128::from(exposed))
            >> EXPOSED_BITS) as u64;
        let by_load = by_load.min(self.busy_fs - before);
        self.share_fs[share as usize] -= by_load;
        self.share_fs[TimeShare::Bandwidth as usize] += by_load;
    }
}
