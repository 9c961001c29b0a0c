//! What the kernel's own part of recorded times is.

use warmcore_topology::Costs;

/// What the kernel's own actions took of the times that were recorded, ns: a simulated kernel charges for them again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overheads {
    /// A context switch, at the beginning of every stay on a CPU.
    pub switch_ns: u64,
    /// A call that wakes a thread.
    pub wake_ns: u64,
    /// The wakeup of a thread by an interrupt, in the name of the one that it interrupts.
    pub interrupt_ns: u64,
    /// A call that waits for a thread.
    pub wait_ns: u64,
    /// A call that waits for a time.
    pub timer_ns: u64,
    /// Creating a thread.
    pub fork_ns: u64,
    /// A thread's end.
    pub exit_ns: u64,
    /// How late a timer's interrupt acts: part of a sleep.
    pub late_ns: u64,
}

impl Overheads {
    /// What a machine with these costs takes.
    pub fn of(costs: &Costs) -> Self {
        Self {
            switch_ns: costs.context_switch_ns,
            wake_ns: costs.futex_ns + costs.wakeup_ns,
            interrupt_ns: costs.wakeup_ns,
            wait_ns: costs.futex_ns,
            timer_ns: costs.timer_ns,
            fork_ns: costs.fork_ns,
            exit_ns: costs.exit_ns,
            late_ns: costs.timer_late_ns,
        }
    }

    /// Of a run: see [`Action::Run`].
    pub(crate) fn of_run(&self, returns: u32, wakeups: u32) -> u64 {
        u64::from(returns) * self.switch_ns + u64::from(wakeups) * self.interrupt_ns
    }
}
