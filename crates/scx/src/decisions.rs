//! What the ext class tells the trace, with the reason.

use warmcore_trace::decisions;

decisions! {
    /// Decisions of the ext class. Each is about a task that is inserted, moved or kept; CPUs are where it may run then.
    pub struct ExtDecisions {
        local: "task inserted", "into a CPU's local queue", Cpu;
        global: "task inserted", "into its node's global queue", Node;
        shared: "task inserted", "into a queue of the program's", Count;
        moved: "task moved", "from a shared queue to a CPU's local one", Cpu;
        kept: "task goes on", "its CPU has no other, and its slice is over", Cpu;
        given_back: "task enqueued again", "the program gave its queue back", Cpu;
        left_alone: "CPU stays idle", "the last task went to the program (ENQ_LAST)", Cpu;
        error: "program ejected", "the class found a fault", Cpu;
        error_by_program: "program ejected", "it said it has an error", Cpu;
        stall: "program ejected", "a runnable task was not run in time", Cpu;
        unregistered: "program ejected", "it asked for it", Cpu;
        unregistered_by_kernel: "program ejected", "a CPU went offline or came online", Cpu;
        held_up: "task enqueued again", "it was to run at once, and could not", Cpu;
        refused_move: "change refused", "the program does not let it into the group (cgroup_prep_move)", Cpu;
        refused_policy: "change refused", "the program has disallowed SCHED_EXT for it", Cpu;
    }
}
