//! Tunables of `ule`: those of `kern.sched`, with FreeBSD's names, and what a simulation can choose besides.

use super::profile::Reading;
use crate::tunables::tunables;

tunables! {
    /// Tunables of `ule`. A value of 0 that is described as the profile's own follows `profile`.
    pub struct UleTunables {
        /// Whose ULE: FreeBSD 11's sources, the port to Linux that the paper measured, the paper's text, or FreeBSD 14's sources.
        profile: choice "freebsd11" of ["freebsd11", "paper-port", "paper-text", "modern"],
        /// Accounting ticks of the longest slice; 0 = the profile's own: a tenth of a second (12), 10 in the port.
        slice: count 0 "ticks" in 0..=10_000,
        /// Accounting ticks of the shortest slice; 0 = the profile's own: a sixth of a tenth of a second (2), 1 in the port. FreeBSD has no
        /// such name: its `quantum` sets `slice`, and this to a sixth of that.
        slice_min: count 0 "ticks" in 0..=10_000,
        /// Score below which a thread is interactive.
        interact: count 30 "" in 0..=100,
        /// Worst priority that preempts at once; 0 never.
        preempt_thresh: count 80 "" in 0..=255,
        /// Priority that a thread has at least when it goes to sleep, until it runs; 0 = its own, 256 = the profile's: the best batch
        /// priority. 1 is 1, as for waits of FreeBSD that name no priority.
        static_boost: count 256 "" in 0..=256,
        /// Ticks of the clock for which a thread's data is taken to stay in a cache of one level; 0 = the profile's own (1; 100 in
        /// the port).
        affinity: count 0 "ticks" in 0..=10_000,
        /// Idle CPUs take threads from others.
        steal_idle: switch on,
        /// Levels of groups in which a CPU that runs out of threads looks for one before it switches to its idle thread, in FreeBSD 14;
        /// 0 = it does not.
        trysteal_limit: count 2 "levels" in 0..=64,
        /// An idle CPU looks for a thread whenever its idle thread wakes, every half second if nothing else wakes it; otherwise at half of
        /// these wakes, as its counts of switches change. The port's idle CPUs do at every tick.
        always_steal: switch off,
        /// Turns of the loop in which an idle CPU that has switched often waits for a thread, so that none needs to interrupt it; a turn
        /// takes 20 ns (assumed). The port's idle CPUs, and hardware threads of a core, do not.
        idlespins: count 10_000 "" in 0..=1_000_000,
        /// Switches in this and the last accounting tick above which it does; 0 = FreeBSD's own (157 at 127 Hz).
        idlespinthresh: count 0 "" in 0..=1_000_000,
        /// Load from which a CPU is stolen from. Between the hardware threads of a core it is 1 in FreeBSD 11.
        steal_thresh: count 2 "threads" in 1..=1000,
        /// The periodic balancer runs. In FreeBSD 11.0 as released it never does.
        balance: switch on,
        /// Accounting ticks between passes of the periodic balancer, in the mean; 0 = the profile's own (a second; 128 in the port).
        balance_interval: count 0 "ticks" in 0..=1_000_000,
        /// Charge run time by what a thread used; otherwise who runs at the accounting tick pays the whole tick, as the original does.
        exact_charging: switch off,
        /// Time that a look at one CPU takes in a search: two lines that another CPU has written. Assumed.
        visit_ns: time 50 "ns" in 0..=100_000,
    }
}

impl UleTunables {
    pub(crate) fn profile(&self) -> Reading {
        match self.profile {
            0 => Reading::Freebsd11,
            1 => Reading::PaperPort,
            2 => Reading::PaperText,
            _ => Reading::Modern,
        }
    }
}
