//! What placements against contention tell the trace, with the reason.

use warmcore_trace::decisions;

decisions! {
    /// Decisions of `fewest-tasks`, `random`, `dio` and `cdf`. Each is about the task that is placed or moved; the value is its LLC from then on.
    pub(super) struct PlacementDecisions {
        fewest: "LLC chosen", "it has the fewest runnable tasks", Llc;
        drawn: "LLC chosen", "a CPU of it was drawn at random", Llc;
        smallest: "LLC chosen", "the miss rates of its tasks have the smallest sum", Llc;
        dealt: "LLC chosen", "the last deal by miss rates gave it to the task", Llc;
        moved: "task moved", "the deal by miss rates gave it another LLC", Llc;
        differs: "LLC chosen", "its tasks used other cache sets lately, and of such LLCs it has the fewest tasks", Llc;
        moved_at_turn: "task moved", "its turn has ended and another LLC was chosen", Llc;
    }
}
