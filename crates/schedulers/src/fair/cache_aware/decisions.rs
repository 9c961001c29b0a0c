//! What cache-aware and topology-aware scheduling tell the trace, with the reason.

use crate::fair::cache_aware::permission::Direction;

/// A decision. The value of its event is an LLC (of the process or the destination) unless the variant says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Decision {
    Chosen,
    Changed,
    DroppedTooMany,
    DroppedTooBig,
    DroppedOneThread,
    DroppedTimeout,
    RefusedTooMany,
    RefusedTooBig,
    Pulled,
    MoveLeaves,
    MoveOverfills,
    MovePrefersAnother,
    PushLeaves,
}

/// Names of the decisions, by discriminant: subject, colon, reason.
pub(crate) const DECISIONS: [&str; 13] = [
    "preferred LLC chosen: highest occupancy",
    "preferred LLC changed: more than twice the occupancy",
    "preferred LLC dropped: more threads than cores",
    "preferred LLC dropped: footprint exceeds the LLC",
    "preferred LLC dropped: one thread left",
    "preferred LLC dropped: no scan for too long",
    "aggregation refused: more threads than cores",
    "aggregation refused: footprint exceeds the LLC",
    "task pulled: to its preferred LLC",
    "move refused: the preferred LLC would be left",
    "move refused: the preferred LLC is fuller",
    "move refused: the task prefers another LLC",
    "push refused: the tasks are on their preferred LLC",
];

impl Decision {
    /// Why a move in that direction is refused.
    pub(crate) const fn refused(direction: Direction) -> Self {
        match direction {
            Direction::Toward => Decision::MoveOverfills,
            Direction::Away => Decision::MoveLeaves,
        }
    }
}
