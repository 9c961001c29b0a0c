//! What cache-aware and topology-aware scheduling tell the trace, with the reason.

use crate::fair::cache_aware::permission::Direction;

/// A decision. The value of its event is an LLC (of the process or the destination); for a scope its number of LLCs.
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
    ScopeGrew,
    ScopeShrank,
    ScopeLlc,
    ScopeNode,
    ScopeSocket,
    ScopeSystem,
    MoveLeavesScope,
    MoveOutOfOrder,
    MoveAwayFromHome,
    HintPrevious,
    HintHome,
    WokenInScope,
    PushedInScope,
}

/// Names of the decisions, by discriminant: subject, colon, reason.
pub(crate) const DECISIONS: [&str; 26] = [
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
    "scope expanded: the demand does not fit",
    "scope contracted: the demand fits in less",
    "scope is one LLC: the demand fits there",
    "scope is in the home node: the demand fits there",
    "scope is in the home socket: the demand fits there",
    "scope crosses sockets: the demand fits in no less",
    "move refused: the scope would be left",
    "move refused: an earlier LLC of the scope has room",
    "move refused: farther from home",
    "wakeup hinted: to the previous LLC, in scope",
    "wakeup hinted: to the home LLC",
    "task woken elsewhere: the scope has an idle CPU or core, its LLC none",
    "task pushed: it waits, the scope has an idle CPU",
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
