//! How exact the exact level is, and what hardware leaves open.

use warmcore_topology::{CpuId, Inclusion, LlcId, Machine};

use super::cache::SetIndex;
use super::lanes::InstructionSet;
use super::paging::PagingSpec;
use crate::curves::Replacement;
use crate::hierarchy::Fill;

/// How lines get into and out of the last-level cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LlcFill {
    /// Filled together with the private caches, which lose what it evicts (Nehalem to Broadwell).
    Inclusive,
    /// Filled together with the private caches, which keep what it evicts.
    FillBoth,
    /// Filled by what the private caches evict; a line fetched back stays in it too (Skylake-SP and later).
    Victim,
    /// Filled by what the private caches evict; a line fetched back leaves it unless others have it (AMD).
    Exclusive,
}

/// Whether the L2 holds what the L1 holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L2Fill {
    /// Both are filled, neither cares what the other evicts.
    FillBoth,
    /// Both are filled; the L1 loses what the L2 evicts.
    Inclusive,
    /// Filled by what the L1 evicts; a line fetched back leaves it.
    Exclusive,
}

/// Who hands out a line that several domains share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// Memory: modified lines are written back when they become shared.
    #[default]
    Mesi,
    /// Modified lines stay with their owner, who serves readers (O).
    Moesi,
    /// The last reader serves clean lines (F).
    Mesif,
}

/// Options of the exact level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Inclusion of all LLCs; without it each has what the machine's description says of it.
    pub llc_fill: Option<LlcFill>,
    /// The same of the L2s, which may hold what the L1s hold.
    pub l2_fill: Option<L2Fill>,
    /// Protocol between domains.
    pub protocol: Protocol,
    /// Replacement in L1 and L2.
    pub private_replacement: Replacement,
    /// Replacement in the LLC.
    pub llc_replacement: Replacement,
    /// Set index of all caches.
    pub index: SetIndex,
    /// Simulate one line in 2^this; 0 is all, 4 and 6 are the specification's 1/16 and 1/64.
    pub sampling_shift: u32,
    /// Time between two exchanges of the LLC domains' transactions.
    pub quantum_ns: u64,
    /// Time between two updates of memory and link load.
    pub epoch_ns: u64,
    /// Let private classes of a task that will move between LLC domains be found by the directory: their dirty lines
    /// are fetched from the old caches, and stale ones never hit. Without it such a task must stay in its domain.
    pub follow_migrations: bool,
    /// Page tables between classes and caches; without them the lines of a class follow each other in memory.
    pub paging: Option<PagingSpec>,
    /// Seed of all tasks' touches.
    pub seed: u64,
    /// Instructions of the host. No result depends on it.
    pub instruction_set: InstructionSet,
}

/// Overlap of coherence misses on shared lines, mlp_c (`docs/spec/memory-model.md` section 4.8; assumed there).
/// Transfers of private lines, which a task left in another cache, overlap as its other misses do, and writes to copies
/// it can read wait in the store buffer: nothing depends on them.
pub(crate) const COHERENCE_OVERLAP: f64 = 1.5;
/// Part of the misses in flight that a busy sibling takes (`docs/spec/memory-model.md` section 4.5; assumed there).
pub(crate) const SMT_OVERLAP_SHARE: f64 = 0.25;
/// Shared classes of fewer lines than this are never sampled (`docs/spec/memory-model.md` section 3.5).
pub(crate) const MIN_SAMPLED_LINES: u64 = 2_000;
/// Bytes that a line's transfer between sockets takes on the link, data and protocol (`docs/spec/memory-model.md`
/// section 4.7; assumed).
pub(crate) const TRANSFER_BYTES: u64 = 88;

impl Options {
    /// Which rule an LLC has.
    pub(crate) fn llc_fill(&self, machine: &Machine, llc: LlcId) -> LlcFill {
        let described = || match machine.llc_cache(llc).map_or(Inclusion::Unknown, |cache| cache.inclusion) {
            Inclusion::Inclusive => LlcFill::Inclusive,
            Inclusion::NonInclusive => LlcFill::Victim,
            Inclusion::Exclusive | Inclusion::Unknown => LlcFill::Exclusive,
        };
        self.llc_fill.unwrap_or_else(described)
    }

    /// Which rule the L2 of a CPU's core has.
    pub(crate) fn l2_fill(&self, machine: &Machine, cpu: CpuId) -> L2Fill {
        let described = || match machine.data_cache(cpu, 2).map_or(Inclusion::Unknown, |cache| cache.inclusion) {
            Inclusion::Inclusive => L2Fill::Inclusive,
            Inclusion::Exclusive => L2Fill::Exclusive,
            Inclusion::NonInclusive | Inclusion::Unknown => L2Fill::FillBoth,
        };
        self.l2_fill.unwrap_or_else(described)
    }
}

impl Default for Options {
    /// What the machine's description says, and what is usual for the rest.
    fn default() -> Self {
        Self {
            llc_fill: None,
            l2_fill: None,
            protocol: Protocol::Mesi,
            private_replacement: Replacement::Lru,
            llc_replacement: Replacement::Lru,
            index: SetIndex::Hashed,
            sampling_shift: 0,
            quantum_ns: 1_000,
            epoch_ns: 10_000,
            follow_migrations: false,
            paging: None,
            seed: 1,
            instruction_set: InstructionSet::detect(),
        }
    }
}

impl From<Fill> for LlcFill {
    /// The analytic level does not tell the two kinds of victim caches apart; it computes the exclusive one.
    fn from(fill: Fill) -> Self {
        match fill {
            Fill::Inclusive => Self::Inclusive,
            Fill::FillBoth => Self::FillBoth,
            Fill::Victim => Self::Exclusive,
        }
    }
}
