//! What ULE tells the trace, with the reason.

use warmcore_trace::decisions;

decisions! {
    /// Decisions of `ule`. Each is about the thread that is placed, moved or asked to leave; CPUs are where it was placed, or where a
    /// moved thread comes from.
    pub(super) struct UleDecisions {
        kept: "CPU chosen", "the last one is idle and its caches are warm", Cpu;
        near: "CPU chosen", "the least loaded of a warm cache on which it runs first", Cpu;
        first_there: "CPU chosen", "the least loaded of all on which it runs first", Cpu;
        least: "CPU chosen", "the least loaded, since it runs first on none", Cpu;
        here: "CPU chosen", "the waker's: it runs first there, and others are hardly less loaded", Cpu;
        preempted: "thread preempted", "a better one joined, and the rules allow it", Cpu;
        leaves_later: "thread leaves on its way to user mode", "a better one was woken here", Cpu;
        slice_over: "thread leaves on its way to user mode", "its slice is over", Cpu;
        stolen: "thread stolen", "a CPU has nothing to run, and it waits", Cpu;
        moved: "thread moved", "balancer pass: its CPU is among the most loaded", Cpu;
        passed: "balancer pass", "its time had come", Count;
        interactive: "thread is interactive", "its score is below the threshold", Count;
        batch: "thread is batch", "its score has reached the threshold", Count;
        chose_anew: "thread moved", "it ran alone on one of the most loaded CPUs and chose another", Cpu;
    }
}
