//! What NUMA balancing tells the trace, with the reason.

use crate::fair::cache_aware::decisions::DECISIONS;

/// A decision. The value of its event is a node unless the variant says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Decision {
    PreferredChosen = DECISIONS.len() as u32,
    PreferredChanged,
    PreferredSettled,
    MovedToIdle,
    Moved,
    Swapped,
    MoveRefused,
    MoveLate,
    /// The value is a number of pages.
    PagesMoved,
}

/// Names of the decisions, in the order of the variants: subject, colon, reason.
pub(crate) const NUMA_DECISIONS: [&str; 9] = [
    "preferred node chosen: most hint faults",
    "preferred node changed: most hint faults",
    "preferred node changed: where its group found room",
    "task moves: idle CPU on a node with more of its faults",
    "task moves: a node with more of its faults has less load",
    "tasks swap: together they gain locality",
    "node move refused: no CPU there that improves locality and load",
    "node move refused: the task or its partner has moved meanwhile",
    "pages moved: to the node whose CPUs touch them",
];

/// Names of all decisions of the fair class: those of cache-aware scheduling, then these.
pub(crate) const FAIR_DECISIONS: [&str; DECISIONS.len() + NUMA_DECISIONS.len()] = {
    let mut names = [""; DECISIONS.len() + NUMA_DECISIONS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = if index < DECISIONS.len() { DECISIONS[index] } else { NUMA_DECISIONS[index - DECISIONS.len()] };
        index += 1;
    }
    names
};
