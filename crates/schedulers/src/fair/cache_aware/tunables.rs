//! Tunables of cache-aware scheduling: the files of `/sys/kernel/debug/sched/llc_balancing/`, and where the footprint comes from.

use super::permission::Limits;
use crate::tunables::tunables;

tunables! {
    /// Tunables of cache-aware scheduling (`docs/spec/linux-fair.md` section 6.11).
    pub struct CacheAwareTunables {
        /// The user's switch. Without several LLCs in a node or machine there is nothing to switch on.
        enabled: switch on,
        /// How far a process may exceed its LLC, in threads and in bytes: 0 never aggregates, 1 up to 80 % of the
        /// LLC's cores and its size, 100 without limit. The kernel takes more than 100 for 100.
        aggr_tolerance: count 1 "" in 0..=100,
        /// Period of the scans and of the decay of occupancy; 0 = hz / 100. The kernel takes 0 for 1.
        epoch_period: count 0 "jiffies" in 0..=10_000 by ratio,
        /// Epochs without a scan after which a process has no preferred LLC any more.
        epoch_affinity_timeout: count 5 "epochs" in 0..=1_000_000 by ratio,
        /// Utilisation up to which an LLC takes tasks freely; half as much again without SMT.
        overaggr_pct: share 50 in 0..=1000,
        /// How much fuller than the other LLC the preferred one may be.
        imb_pct: share 20 in 0..=1000,
        /// A process's size, which is compared with its LLC's: the pages on which NUMA balancing sees it fault, as in 7.2, or its resident
        /// pages, as in the patch before 7.2. A kernel has no such file.
        footprint: choice "numa-faults" of ["numa-faults", "resident-pages"],
    }
}

/// From here on `aggr_tolerance` means no limit.
const UNLIMITED_TOLERANCE: u64 = 100;

impl CacheAwareTunables {
    /// Length of an epoch in jiffies.
    pub(crate) fn epoch_jiffies(&self, hz: u64) -> u64 {
        if self.epoch_period == 0 { (hz / 100).max(1) } else { self.epoch_period }
    }

    /// When an LLC counts as full on a machine with so many hardware threads per core.
    pub(crate) fn limits(&self, smt_width: usize) -> Limits {
        let full_pct = if smt_width > 1 { self.overaggr_pct } else { self.overaggr_pct * 3 / 2 };
        Limits { full_pct, imb_pct: self.imb_pct }
    }

    /// Whether the tests for threads and bytes are off.
    pub(crate) fn unlimited(&self) -> bool {
        self.aggr_tolerance >= UNLIMITED_TOLERANCE
    }

    /// Whether a process is as big as its resident pages, whatever NUMA balancing counts.
    pub(crate) fn counts_resident_pages(&self) -> bool {
        self.footprint != 0
    }

    /// Factor on an LLC's cores (`step` 1) or bytes (`step` 256) from `aggr_tolerance` (`get_sched_cache_scale`).
    pub(crate) fn scale(&self, step: u64) -> u64 {
        match self.aggr_tolerance {
            0 => 0,
            tolerance => 1 + (tolerance - 1) * step,
        }
    }
}
