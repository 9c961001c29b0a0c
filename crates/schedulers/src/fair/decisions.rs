//! What the parts of the fair class tell the trace, in the order of their numbers.

use warmcore_trace::DecisionTable;

use super::cache_aware::{ApartDecisions, CacheAwareDecisions, RefusalDecisions};
use super::numa::NumaDecisions;
use super::topology_aware::{HomeDecisions, TopologyAwareDecisions};

/// The decisions of all parts, whether they are on or not: a kind has one number under every scheduler of the class.
#[derive(Clone, Copy, Debug, Default)]
pub struct FairDecisions {
    pub(crate) cache_aware: CacheAwareDecisions,
    pub(crate) topology_aware: TopologyAwareDecisions,
    pub(crate) numa: NumaDecisions,
    pub(crate) apart: ApartDecisions,
    pub(crate) refusals: RefusalDecisions,
    pub(crate) home: HomeDecisions,
}

impl FairDecisions {
    /// Puts them into a run's table.
    pub fn register(table: &mut DecisionTable) -> Self {
        Self {
            cache_aware: CacheAwareDecisions::register(table),
            topology_aware: TopologyAwareDecisions::register(table),
            numa: NumaDecisions::register(table),
            apart: ApartDecisions::register(table),
            refusals: RefusalDecisions::register(table),
            home: HomeDecisions::register(table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored traces are read by these numbers.
    #[test]
    fn every_part_keeps_its_numbers() {
        let mut table = DecisionTable::default();
        let told = FairDecisions::register(&mut table);
        let numbers = [
            (told.cache_aware.chosen, 0, "preferred LLC chosen: highest occupancy"),
            (told.cache_aware.push_leaves, 12, "push refused: the tasks are on their preferred LLC"),
            (told.topology_aware.grew, 13, "scope expanded: the demand does not fit"),
            (told.topology_aware.pushed_in_scope, 25, "task pushed: it waits, the scope has an idle CPU"),
            (told.numa.preferred_chosen, 26, "preferred node chosen: most hint faults"),
            (told.numa.pages_moved, 34, "scan moved pages: to the node whose CPUs touch them"),
            (
                told.apart.left_apart,
                35,
                "threads left apart: each runs alone in its LLC, from which no other CPU pulls",
            ),
            (told.refusals.one_thread, 36, "aggregation refused: one thread"),
            (told.home.pulled, 40, "task pulled: nearer to its preferred LLC"),
        ];
        let kinds = table.into_kinds();
        assert_eq!(kinds.len(), 41);
        for (id, number, name) in numbers {
            assert_eq!((id.0, kinds[id.0 as usize].name().as_str()), (number, name));
        }
    }
}
