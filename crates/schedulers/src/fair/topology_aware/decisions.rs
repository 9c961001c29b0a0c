//! What the topology-aware extension tells the trace, with the reason.

use warmcore_trace::decisions;

decisions! {
    /// Decisions of the extension, beside those of cache-aware scheduling. LLCs as there.
    pub(crate) struct TopologyAwareDecisions {
        grew: "scope expanded", "the demand does not fit", LlcCount;
        shrank: "scope contracted", "the demand fits in less", LlcCount;
        reaches_llc: "scope is one LLC", "the demand fits there", LlcCount;
        reaches_node: "scope is in the home node", "the demand fits there", LlcCount;
        reaches_socket: "scope is in the home socket", "the demand fits there", LlcCount;
        reaches_system: "scope crosses sockets", "the demand fits in no less", LlcCount;
        move_leaves_scope: "move refused", "the scope would be left", Llc;
        move_out_of_order: "move refused", "an earlier LLC of the scope has room", Llc;
        move_away_from_home: "move refused", "farther from home", Llc;
        hint_previous: "wakeup hinted", "to the previous LLC, in scope", Llc;
        hint_home: "wakeup hinted", "to the home LLC", Llc;
        woken_in_scope: "task woken elsewhere", "the scope has an idle CPU or core, its LLC none", Llc;
        pushed_in_scope: "task pushed", "it waits, the scope has an idle CPU", Llc;
    }
}

decisions! {
    /// What cache-aware scheduling tells in words that are not true of a scope. Numbered after the decisions of all parts.
    pub(crate) struct HomeDecisions {
        changed: "preferred LLC changed", "occupancy or memory beyond home_hyst", Llc;
        pulled: "task pulled", "nearer to its preferred LLC", Llc;
    }
}
