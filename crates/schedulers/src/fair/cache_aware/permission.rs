//! May a task move between two LLCs? The decision on utilisation snapshots alone (`can_migrate_llc`;
//! `docs/spec/linux-fair.md` section 6.7), without any state.

use crate::fair::gathering::Permission;

/// Utilisation and capacity of an LLC as a balancing pass last recorded them; all zero before the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Snapshot {
    /// Σ `cpu_util` of its CPUs.
    pub util: u64,
    /// Σ capacity of its CPUs.
    pub capacity: u64,
}

/// When an LLC counts as full and when as fuller than another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Percent of its capacity up to which an LLC takes tasks freely: `overaggr_pct`, half as much again without SMT.
    pub full_pct: u64,
    /// `imb_pct`: percent by which one LLC must exceed another to be *greater*.
    pub imb_pct: u64,
}

impl Limits {
    /// Whether a utilisation leaves room (`fits_llc_capacity`).
    pub(crate) fn fits(self, util: u64, capacity: u64) -> bool {
        util * 100 < capacity * self.full_pct
    }

    /// Whether `a` exceeds `b` by more than the tolerated imbalance (`util_greater`).
    pub(crate) fn greater(self, a: u64, b: u64) -> bool {
        a * 100 > b * (100 + self.imb_pct)
    }
}

/// Which way a move goes, seen from the LLC the task prefers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// Into it.
    Toward,
    /// Out of it.
    Away,
}

/// Whether something of utilisation `util` may move from one LLC to another (`can_migrate_llc`).
pub(crate) fn can_migrate_llc(
    limits: Limits,
    src: Snapshot,
    dst: Snapshot,
    util: u64,
    direction: Direction,
) -> Permission {
    let src_util = src.util.saturating_sub(util);
    let dst_util = dst.util + util;
    let (src_fits, dst_fits) = (limits.fits(src_util, src.capacity), limits.fits(dst_util, dst.capacity));
    if !dst_fits && !src_fits {
        return Permission::Free;
    }
    let forbidden = match direction {
        Direction::Toward => !dst_fits && limits.greater(dst_util, src_util),
        Direction::Away => src_fits || !limits.greater(src_util, dst_util),
    };
    if forbidden { Permission::Forbid } else { Permission::Pull }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(full_pct: u64, src: u64, dst: u64, direction: Direction) -> Permission {
        let percent = |util| Snapshot { util: util * 100, capacity: 10_000 };
        can_migrate_llc(Limits { full_pct, imb_pct: 20 }, percent(src), percent(dst), 0, direction)
    }

    /// The item's numbers: percent of capacity, one thread per core.
    #[test]
    fn item_41_moves_toward_and_away_from_the_preferred_llc() {
        use Direction::{Away, Toward};
        use Permission::{Forbid, Free, Pull};
        for (src, dst, expected) in [(50, 87, Forbid), (12, 62, Pull), (70, 80, Pull), (76, 80, Free)] {
            assert_eq!(ask(75, src, dst, Toward), expected, "toward, dst {dst} src {src}");
        }
        for (src, dst, expected) in [(87, 50, Pull), (70, 0, Forbid), (80, 70, Forbid)] {
            assert_eq!(ask(75, src, dst, Away), expected, "away, src {src} dst {dst}");
        }
    }

    /// `docs/spec/linux-fair.md` section 6.7, the examples with two threads per core.
    #[test]
    fn the_examples_with_two_threads_per_core() {
        use Direction::{Away, Toward};
        use Permission::{Forbid, Free, Pull};
        for (dst, src, expected) in [(45, 10, Pull), (55, 10, Forbid), (55, 48, Pull), (60, 55, Free)] {
            assert_eq!(ask(50, src, dst, Toward), expected, "toward, dst {dst} src {src}");
        }
        // Source 60 and destination 50 are both full (50 is not below 50), hence no opinion.
        for (src, dst, expected) in [(60, 30, Pull), (60, 50, Free), (45, 0, Forbid), (55, 48, Forbid)] {
            assert_eq!(ask(50, src, dst, Away), expected, "away, src {src} dst {dst}");
        }
    }

    #[test]
    fn before_anything_was_recorded_there_is_no_opinion() {
        let limits = Limits { full_pct: 50, imb_pct: 20 };
        for direction in [Direction::Toward, Direction::Away] {
            let permission = can_migrate_llc(limits, Snapshot::default(), Snapshot::default(), 0, direction);
            assert_eq!(permission, Permission::Free);
        }
    }

    #[test]
    fn the_task_counts_where_it_would_be() {
        let limits = Limits { full_pct: 75, imb_pct: 20 };
        let llc = |util| Snapshot { util, capacity: 8192 };
        // 6144 is the limit: 5120 and a task of 1000 still fit, one of 1024 does not.
        let ask = |util| can_migrate_llc(limits, llc(1024), llc(5120), util, Direction::Toward);
        assert_eq!(ask(1000), Permission::Pull);
        assert_eq!(ask(1024), Permission::Forbid);
    }
}
