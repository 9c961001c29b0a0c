//! What an experiment may choose of the simulated kernel itself.

use crate::clocks::Governor;

/// When a task in the kernel may be preempted (`CONFIG_PREEMPT_DYNAMIC`, `/sys/kernel/debug/sched/preempt`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preempt {
    /// Not before it returns to user mode, blocks or calls `cond_resched`.
    None,
    /// As [`Preempt::None`], and where it might sleep.
    Voluntary,
    /// At once, unless it has disabled preemption.
    Full,
    /// As [`Preempt::Full`] by tasks of a higher class. Those of the fair class wait for its return to user mode, or until an ordinary tick
    /// finds that they wait already.
    Lazy,
}

/// When CPUs have their ticks (`tick_setup_sched_timer`, kernel/time/tick-sched.c).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ticks {
    /// All at the same instants, which the seed draws: a kernel without `skew_tick=1`.
    Together,
    /// Each at instants of its own, which the seed draws.
    Apart,
}

/// Parameters of the simulated kernel, as far as they are not the machine's. They are the experiment's, not a policy's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelParameters {
    /// Ticks per second: 100, 250, 300 or 1000.
    pub hz: u32,
    /// `TTWU_QUEUE`: remote wakeups go through an interrupt, those that the scheduler's kernel leaves to their CPU ([`LeftWakeups`](crate::LeftWakeups)).
    pub ttwu_queue: bool,
    /// How late timers of normal tasks may be (`timer_slack_ns`, 50 µs by default in Linux).
    pub timer_slack_ns: u64,
    /// 99th percentile of how much later than the machine's `timer_late_ns` timers of tasks run out, exponentially distributed; 0: never.
    pub timer_late_p99_ns: u64,
    /// `CONFIG_SCHED_CLUSTER`: domains know which cores of an LLC form a cluster.
    pub sched_cluster: bool,
    /// Who chooses the frequencies of CPUs.
    pub governor: Governor,
    /// Shortest time between two decisions of `schedutil` for a clock (`rate_limit_us`); 0: 1.5 times the machine's transition latency, or
    /// 1 ms where it has none.
    pub rate_limit_us: u64,
    /// When a task in the kernel may be preempted.
    pub preempt: Preempt,
    /// When CPUs have their ticks.
    pub ticks: Ticks,
    /// `CONFIG_IRQ_TIME_ACCOUNTING`: time of interrupts is not charged to the task that they interrupt, and policies hear of it.
    pub irq_time_accounting: bool,
    /// `CONFIG_PER_VMA_LOCK`: page faults take the lock of their mapping, not that of the address space.
    pub vma_locks: bool,
}

impl Default for KernelParameters {
    fn default() -> Self {
        Self {
            hz: 250,
            ttwu_queue: true,
            timer_slack_ns: 50_000,
            timer_late_p99_ns: 0,
            sched_cluster: true,
            governor: Governor::Fixed,
            rate_limit_us: 0,
            preempt: Preempt::Lazy,
            ticks: Ticks::Apart,
            irq_time_accounting: false,
            vma_locks: true,
        }
    }
}

impl KernelParameters {
    /// Length of a jiffy.
    pub fn tick_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.hz)
    }
}
