//! What the exact level counts, per task and class.

use warmcore_topology::{PerRelation, Relation};
use warmcore_trace::TimeShare;

use crate::profile::MAX_CLASSES;

/// Events of one class of a task. With sampling, counts are already scaled up to the whole class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassCounters {
    /// Line touches. For a task with several classes the expected number, from the classes' shares.
    pub touches: u64,
    /// Touches that missed L1, or hit a line in it that had to become writable first.
    pub l1_misses: u64,
    /// Of those, served by the core's own L2.
    pub l2_hits: u64,
    /// Served by the LLC's data.
    pub llc_hits: u64,
    /// Served or allowed by another core under the same LLC: a modified line handed over, or other copies dropped.
    pub same_llc_transfers: u64,
    /// Of those, writes.
    pub same_llc_writes: u64,
    /// Reads served by another LLC's domain, by the relation of the two.
    pub remote_reads: PerRelation<u64>,
    /// Writes that took the line, or the right to write it, from other LLCs' domains, by the farthest of them.
    pub remote_rfos: PerRelation<u64>,
    /// Writes that had to be announced although no other domain had the line.
    pub upgrades: u64,
    /// Lines read from memory of the core's own node.
    pub dram_local: u64,
    /// Lines read from memory of another node.
    pub dram_remote: u64,
    /// Of the lines read from memory, those that a write asked for.
    pub dram_rfos: u64,
}

impl ClassCounters {
    /// Touches that left the core: every L1 miss but those the L2 served.
    pub fn l2_misses(&self) -> u64 {
        self.l1_misses - self.l2_hits
    }

    /// Touches that left the LLC's domain for data.
    pub(crate) fn llc_misses(&self) -> u64 {
        self.dram_local + self.dram_remote + self.cross_reads() + self.cross_rfos()
    }

    /// Reads served by other domains.
    pub fn cross_reads(&self) -> u64 {
        self.remote_reads.0.iter().sum()
    }

    /// Writes that took a line from other domains.
    pub fn cross_rfos(&self) -> u64 {
        self.remote_rfos.0.iter().sum()
    }

    /// Writes that the LLC's domain could not serve: from other domains and from memory.
    pub fn l3_rfo_misses(&self) -> u64 {
        self.cross_rfos() + self.dram_rfos
    }

    fn each(&self, other: &Self, apply: impl Fn(u64, u64) -> u64) -> Self {
        let per = |a: &PerRelation<u64>, b: &PerRelation<u64>| {
            PerRelation::from_fn(|relation: Relation| apply(a[relation], b[relation]))
        };
        Self {
            touches: apply(self.touches, other.touches),
            l1_misses: apply(self.l1_misses, other.l1_misses),
            l2_hits: apply(self.l2_hits, other.l2_hits),
            llc_hits: apply(self.llc_hits, other.llc_hits),
            same_llc_transfers: apply(self.same_llc_transfers, other.same_llc_transfers),
            same_llc_writes: apply(self.same_llc_writes, other.same_llc_writes),
            remote_reads: per(&self.remote_reads, &other.remote_reads),
            remote_rfos: per(&self.remote_rfos, &other.remote_rfos),
            upgrades: apply(self.upgrades, other.upgrades),
            dram_local: apply(self.dram_local, other.dram_local),
            dram_remote: apply(self.dram_remote, other.dram_remote),
            dram_rfos: apply(self.dram_rfos, other.dram_rfos),
        }
    }

    /// Sum with another.
    pub fn plus(&self, other: &Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    /// What was counted since `earlier`, an older state of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        self.each(earlier, |a, b| a - b)
    }
}

/// Counters of a task.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TaskCounters {
    /// Instructions executed.
    pub instructions: f64,
    /// Time on a CPU in femtoseconds.
    pub busy_fs: u64,
    /// Of that, waiting for anything beyond L1.
    pub stall_fs: u64,
    /// What the time went to, by [`TimeShare`]: together `busy_fs`. Waiting for one's turn at a line is not simulated.
    pub share_fs: [u64; TimeShare::COUNT],
    /// Events by class, in the profile's order.
    pub classes: [ClassCounters; MAX_CLASSES],
    /// Misses of the L1 for instructions; those of classes of code, which count them with the others.
    pub l1i_misses: u64,
    /// Where addresses are translated: events of the lines of page tables, which no class has.
    pub tables: ClassCounters,
    /// Walks through page tables.
    pub page_walks: u64,
    /// Of those, such that found the page, or a table on the way, missing.
    pub page_faults: u64,
}

impl TaskCounters {
    /// All classes together, without page tables.
    pub fn total(&self) -> ClassCounters {
        self.classes.iter().fold(ClassCounters::default(), |sum, class| sum.plus(class))
    }

    /// What was counted since `earlier`, an older state of the same task's counters.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut classes = self.classes;
        for (class, before) in classes.iter_mut().zip(&earlier.classes) {
            *class = class.since(before);
        }
        Self {
            instructions: self.instructions - earlier.instructions,
            busy_fs: self.busy_fs - earlier.busy_fs,
            stall_fs: self.stall_fs - earlier.stall_fs,
            share_fs: std::array::from_fn(|share| self.share_fs[share] - earlier.share_fs[share]),
            classes,
            l1i_misses: self.l1i_misses - earlier.l1i_misses,
            tables: self.tables.since(&earlier.tables),
            page_walks: self.page_walks - earlier.page_walks,
            page_faults: self.page_faults - earlier.page_faults,
        }
    }

    /// Cycles per instruction at a clock.
    pub fn cycles_per_instruction(&self, frequency_ghz: f64) -> f64 {
        self.busy_fs as f64 * 1e-6 * frequency_ghz / self.instructions
    }
}

/// Traffic of one NUMA node's memory, in lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeTraffic {
    /// Lines read.
    pub reads: u64,
    /// Lines written back.
    pub writes: u64,
}
