//! Settings of NUMA balancing, under the kernel's names.

use crate::tunables::tunables;

tunables! {
    /// Tunables of NUMA balancing: `/proc/sys/kernel/numa_balancing` and `/sys/kernel/debug/sched/numa_balancing/`.
    pub struct NumaTunables {
        /// Sample memory accesses and move tasks and pages together. Has an effect on machines with several nodes, for workloads that say what memory they use.
        numa_balancing: switch on,
        /// Run time of a new process before its memory is first sampled.
        scan_delay_ms: time 1000 "ms" in 0..=1_000_000 by ratio,
        /// Shortest time between two samples of a process; large processes are sampled faster, down to 100 ms for 256 MB at a time.
        scan_period_min_ms: time 1000 "ms" in 1..=1_000_000 by ratio,
        /// Longest time between two samples of a process.
        scan_period_max_ms: time 60_000 "ms" in 1..=10_000_000 by ratio,
        /// Memory sampled at a time.
        scan_size_mb: count 256 "MB" in 1..=1_048_576 by ratio,
    }
}
