//! What NUMA balancing tells the trace, with the reason.

use warmcore_trace::decisions;

decisions! {
    /// Decisions of NUMA balancing.
    pub(crate) struct NumaDecisions {
        preferred_chosen: "preferred node chosen", "most hint faults", Node;
        preferred_changed: "preferred node changed", "most hint faults", Node;
        preferred_settled: "preferred node changed", "where its group found room", Node;
        moved_to_idle: "task moves", "idle CPU on a node with more of its faults", Node;
        moved: "task moves", "a node with more of its faults has less load", Node;
        swapped: "tasks swap", "together they gain locality", Node;
        move_refused: "node move refused", "no CPU there that improves locality and load", Node;
        move_late: "node move refused", "the task or its partner has moved meanwhile", Node;
        pages_moved: "scan moved pages", "to the node whose CPUs touch them", PageCount;
    }
}
