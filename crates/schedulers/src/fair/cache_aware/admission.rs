//! Which processes are not kept together: those of one thread, those with more threads than an LLC has cores, and those whose memory does
//! not fit into it; with `aggr_tolerance=0` all.

use warmcore_kernel::{Core, PAGE_BYTES};
use warmcore_trace::DecisionId;

use super::{CacheAware, ThreadGroup};

/// Why a group is not kept together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// One thread, or none.
    OneThread,
    /// `aggr_tolerance` is 0, which allows nobody.
    NoTolerance,
    /// More threads than the LLC has cores (`invalid_llc_nr`).
    TooMany,
    /// More memory than the LLC holds (`exceed_llc_capacity`).
    TooBig,
}

/// Whether `nr_running_avg` threads are too many for an LLC of so many CPUs: 80 % of its cores times the scale.
pub(super) fn is_too_many(nr_running_avg: i64, smt_width: u64, scale: u64, size: u32) -> bool {
    nr_running_avg.max(0) as u64 * smt_width * 1280 >= scale * u64::from(size) * 1024
}

/// Whether so many pages are too big for an LLC: more than its bytes times the scale.
pub(super) fn is_too_big(pages: u64, scale: u64, llc_bytes: u64) -> bool {
    llc_bytes * scale < pages * PAGE_BYTES
}

impl CacheAware {
    /// Whether and why a group may not gather in an LLC.
    pub fn refusal(&self, core: &Core<'_>, group: u32, llc: u32) -> Option<Refusal> {
        let state = &self.groups[group as usize];
        if state.threads <= 1 {
            return Some(Refusal::OneThread);
        }
        if self.tunables.aggr_tolerance == 0 {
            return Some(Refusal::NoTolerance);
        }
        if self.tunables.unlimited() {
            return None;
        }
        let place = &self.llcs[llc as usize];
        if self.limits_threads && is_too_many(state.nr_running_avg, self.smt_width, self.tunables.scale(1), place.size)
        {
            return Some(Refusal::TooMany);
        }
        let pages = self.footprint_pages(core, state);
        let too_big = place.bytes.is_some_and(|bytes| is_too_big(pages, self.tunables.scale(256), bytes));
        too_big.then_some(Refusal::TooBig)
    }

    /// How a preference ends that is refused.
    pub(super) fn dropped(&self, why: Refusal) -> DecisionId {
        match why {
            Refusal::OneThread => self.decisions.dropped_one_thread,
            Refusal::NoTolerance => self.refusals.dropped_no_tolerance,
            Refusal::TooMany => self.decisions.dropped_too_many,
            Refusal::TooBig => self.decisions.dropped_too_big,
        }
    }

    /// What a scan says that is refused.
    pub(super) fn refused(&self, why: Refusal) -> DecisionId {
        match why {
            Refusal::OneThread => self.refusals.one_thread,
            Refusal::NoTolerance => self.refusals.no_tolerance,
            Refusal::TooMany => self.decisions.refused_too_many,
            Refusal::TooBig => self.decisions.refused_too_big,
        }
    }

    /// Pages that a group is taken to use: those of its faults, none without NUMA balancing, or, where `footprint` says so, those of its
    /// threads' processes that are resident, each process whole and once (`get_mm_counter` of anonymous and shared pages).
    fn footprint_pages(&self, core: &Core<'_>, group: &ThreadGroup) -> u64 {
        if !self.tunables.counts_resident_pages() {
            return group.footprint_pages.max(0) as u64;
        }
        group.processes.iter().map(|&(process, _)| core.resident_pages(process) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::cache_aware::CacheAwareTunables;

    /// Scans with `running` threads on CPUs until the group is refused, from an average of 0; `None` if it never is.
    fn scans_to_refusal(size: u32, smt: u64, running: i64) -> Option<u32> {
        let divisor = i64::from(size / 4).clamp(2, 8);
        let mut average = 0;
        for scans in 0..1000 {
            if is_too_many(average, smt, 1, size) {
                return Some(scans);
            }
            average += (running - average) / divisor;
        }
        None
    }

    /// The item's table: LLC CPUs, threads per core, average from which it refuses, running threads that lead there.
    #[test]
    fn item_37_the_table_of_thread_counts_that_are_refused() {
        let table = [
            (4, 1, 4, 5),
            (8, 1, 7, 8),
            (8, 2, 4, 5),
            (16, 1, 13, 16),
            (16, 2, 7, 10),
            (32, 2, 13, 20),
            (64, 2, 26, 33),
            (120, 2, 48, 55),
        ];
        for (size, smt, average, running) in table {
            assert!(is_too_many(average, smt, 1, size) && !is_too_many(average - 1, smt, 1, size), "{size}, {smt}");
            assert!(scans_to_refusal(size, smt, running).is_some(), "{size}, {smt}: {running} running");
            assert_eq!(scans_to_refusal(size, smt, running - 1), None, "{size}, {smt}: {} running", running - 1);
        }
    }

    /// Steps to refusal with as many running threads as the LLC has CPUs.
    #[test]
    fn item_37_the_scans_it_takes_to_refuse_a_full_llc() {
        for (size, smt, scans) in [(8, 1, 3), (8, 2, 1), (16, 1, 7), (16, 2, 2), (32, 2, 5)] {
            assert_eq!(scans_to_refusal(size, smt, i64::from(size)), Some(scans), "{size}, {smt}");
        }
    }

    /// 16 MiB are 4096 pages: as many fit, one more does not, and with tolerance 2 it takes more than 257 times as many.
    #[test]
    fn as_many_pages_as_the_llc_has_fit_and_one_more_does_not() {
        const LLC: u64 = 16 << 20;
        assert!(!is_too_big(4096, 1, LLC) && is_too_big(4097, 1, LLC));
        let scale = CacheAwareTunables { aggr_tolerance: 2, ..CacheAwareTunables::default() }.scale(256);
        assert!(!is_too_big(257 * 4096, scale, LLC) && is_too_big(257 * 4096 + 1, scale, LLC));
        assert!(!is_too_big(0, 0, LLC), "who has touched nothing is of no size");
    }

    #[test]
    fn tolerance_0_refuses_everything_and_more_tolerance_more_threads() {
        assert!(is_too_many(0, 1, 0, 8));
        assert!(!is_too_many(12, 1, 2, 8) && is_too_many(13, 1, 2, 8));
    }
}
