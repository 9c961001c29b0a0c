//! What cache-aware scheduling tells the trace, with the reason.

use warmcore_trace::{DecisionId, decisions};

use super::permission::Direction;

decisions! {
    /// Decisions of cache-aware scheduling. The LLC is the process's or the destination.
    pub(crate) struct CacheAwareDecisions {
        chosen: "preferred LLC chosen", "highest occupancy", Llc;
        changed: "preferred LLC changed", "more than twice the occupancy", Llc;
        dropped_too_many: "preferred LLC dropped", "more threads than cores", Llc;
        dropped_too_big: "preferred LLC dropped", "footprint exceeds the LLC", Llc;
        dropped_one_thread: "preferred LLC dropped", "one thread left", Llc;
        dropped_timeout: "preferred LLC dropped", "no scan for too long", Llc;
        refused_too_many: "aggregation refused", "more threads than cores", Llc;
        refused_too_big: "aggregation refused", "footprint exceeds the LLC", Llc;
        pulled: "task pulled", "to its preferred LLC", Llc;
        move_leaves: "move refused", "the preferred LLC would be left", Llc;
        move_overfills: "move refused", "the preferred LLC is fuller", Llc;
        move_prefers_another: "move refused", "the task prefers another LLC", Llc;
        push_leaves: "push refused", "the tasks are on their preferred LLC", Llc;
    }
}

decisions! {
    /// What a scan finds of the group's threads. Numbered after the decisions of all parts, whose numbers stored traces have.
    pub(crate) struct ApartDecisions {
        left_apart: "threads left apart", "each runs alone in its LLC, from which no other CPU pulls", Llc;
    }
}

decisions! {
    /// Refusals of groups that no number of threads and no footprint decides. Numbered after the decisions of all parts.
    pub(crate) struct RefusalDecisions {
        one_thread: "aggregation refused", "one thread", Llc;
        no_tolerance: "aggregation refused", "aggr_tolerance is 0", Llc;
        dropped_no_tolerance: "preferred LLC dropped", "aggr_tolerance is 0", Llc;
    }
}

impl CacheAwareDecisions {
    /// Why a move in that direction is refused.
    pub(super) fn move_refused(&self, direction: Direction) -> DecisionId {
        match direction {
            Direction::Toward => self.move_overfills,
            Direction::Away => self.move_leaves,
        }
    }
}
