//! What the time and the accesses of tasks and CPUs went to, where the memory is modelled or counted.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

warmcore_topology::worded! {
    /// What the time of running instructions goes to.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    pub enum TimeShare: name {
        /// The core itself, with everything in L1.
        Compute = "compute",
        /// The sibling hardware thread: shared issue slots and miss buffers.
        Smt = "smt",
        /// Hits in the L2.
        L2 = "l2",
        /// Hits in the last-level cache, and lines from other cores under it.
        Llc = "llc",
        /// Lines from another LLC of the same socket.
        OtherLlc = "other_llc",
        /// Lines from another socket's caches.
        OtherSocket = "other_socket",
        /// Memory of the CPU's own node, as fast as when idle.
        DramLocal = "dram_local",
        /// Memory of other nodes, as fast as when idle.
        DramRemote = "dram_remote",
        /// Memory being slower because it is loaded.
        Bandwidth = "bandwidth",
        /// Waiting for one's turn at a line that several tasks want at once.
        HotLines = "hot_lines",
        /// Walking page tables, where addresses are translated.
        PageWalks = "page_walks",
    }
}

warmcore_topology::worded! {
    /// Accesses by where they were served. Counts of lines.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    pub enum MemoryEvent: name {
        /// Misses of the L1 data cache.
        L1Miss = "l1_misses",
        /// Misses of the L2 (of the L1 where there is no L2).
        L2Miss = "l2_misses",
        /// Lines the LLC did not have: from memory or, for reads, from another LLC.
        L3Miss = "l3_misses",
        /// Writes that needed a line, or the right to write it, from another LLC.
        L3RfoOtherLlc = "l3_rfo_other_llc",
        /// Lines from the CPU's own node's memory.
        DramLocal = "dram_local",
        /// Lines from other nodes' memory.
        DramRemote = "dram_remote",
        /// Lines from another core under the same LLC.
        C2cSameLlc = "c2c_same_llc",
        /// Lines from another LLC of the socket.
        C2cOtherLlc = "c2c_other_llc",
        /// Lines from another socket's caches.
        C2cOtherSocket = "c2c_other_socket",
        /// Writes that the LLC could not serve, as `perf` counts them (Intel's `OCR.DEMAND_RFO.L3_MISS`, demand requests for
        /// ownership that no cache of the LLC's domain supplied): those of [`MemoryEvent::L3RfoOtherLlc`] and those whose line
        /// came from memory.
        L3RfoMiss = "l3_rfo_misses",
        /// Requests that an L2 got: the misses of the L1 caches in front of it. 0 where there is no L2.
        L2Access = "l2_accesses",
        /// Requests that an LLC got: the misses of the caches in front of it. Lines that are written back are no requests.
        L3Access = "l3_accesses",
        /// Lines of instructions that the L1 for instructions did not have. 0 where profiles have no code, or cores no such cache.
        L1iMiss = "l1i_misses",
    }
}

/// Sums over the instructions of a task or a CPU.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryCounters {
    /// Instructions executed.
    pub instructions: f64,
    /// Nanoseconds by [`TimeShare`]; together the time spent on the instructions and
    /// on [`MemoryCounters::transfer_ns`].
    pub time_ns: [f64; TimeShare::COUNT],
    /// Of that, time in the kernel for lines of messages and locks; it passes without instructions being counted.
    pub transfer_ns: f64,
    /// Lines by [`MemoryEvent`].
    pub events: [f64; MemoryEvent::COUNT],
    /// Walks through page tables; 0 where addresses are not translated.
    pub page_walks: f64,
    /// Of those, such that found the page, or a table on the way, missing.
    pub page_faults: f64,
}

impl MemoryCounters {
    /// All time counted.
    #[inline]
    pub fn total_ns(&self) -> f64 {
        self.time_ns.iter().sum()
    }

    /// What was counted since an earlier state of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            instructions: self.instructions - earlier.instructions,
            time_ns: std::array::from_fn(|share| self.time_ns[share] - earlier.time_ns[share]),
            transfer_ns: self.transfer_ns - earlier.transfer_ns,
            events: std::array::from_fn(|event| self.events[event] - earlier.events[event]),
            page_walks: self.page_walks - earlier.page_walks,
            page_faults: self.page_faults - earlier.page_faults,
        }
    }

    /// Lines that no cache of the LLC's domain had, reads and writes: from memory, from other LLCs and from other sockets.
    #[inline]
    pub fn l3_missed(&self) -> f64 {
        [MemoryEvent::DramLocal, MemoryEvent::DramRemote, MemoryEvent::C2cOtherLlc, MemoryEvent::C2cOtherSocket]
            .into_iter()
            .map(|event| self.events[event as usize])
            .sum()
    }

    /// Part of the requests to L2s that they served, 0 to 1; `None` without requests.
    pub fn l2_hit_rate(&self) -> Option<f64> {
        let accesses = self.events[MemoryEvent::L2Access as usize];
        (accesses > 0.0).then(|| (1.0 - self.events[MemoryEvent::L2Miss as usize] / accesses).max(0.0))
    }

    /// Part of the requests to LLCs that their domains served, 0 to 1: the LLC itself, and caches in front of it. `None`
    /// without requests.
    pub fn l3_hit_rate(&self) -> Option<f64> {
        let accesses = self.events[MemoryEvent::L3Access as usize];
        (accesses > 0.0).then(|| (1.0 - self.l3_missed() / accesses).max(0.0))
    }

    /// Events per 1000 instructions; 0 before the first.
    #[inline]
    pub fn per_kilo_instruction(&self, event: MemoryEvent) -> f64 {
        if self.instructions > 0.0 { self.events[event as usize] * 1e3 / self.instructions } else { 0.0 }
    }
}

impl AddAssign<&MemoryCounters> for MemoryCounters {
    #[inline]
    fn add_assign(&mut self, other: &MemoryCounters) {
        self.instructions += other.instructions;
        self.transfer_ns += other.transfer_ns;
        self.page_walks += other.page_walks;
        self.page_faults += other.page_faults;
        for (sum, value) in self.time_ns.iter_mut().zip(other.time_ns) {
            *sum += value;
        }
        for (sum, value) in self.events.iter_mut().zip(other.events) {
            *sum += value;
        }
    }
}
