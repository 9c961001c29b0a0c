//! The event model: what happened, on which CPU, to which task. Every place that runs an experiment produces these
//! events, and everything that measures or draws consumes them. Words are those of the kernel's `sched` tracepoints.

use serde::{Deserialize, Serialize};
use warmcore_topology::CpuId;

use crate::{BalanceDetail, PlaceReason};

/// A task of the run, dense in order of creation. Task 0 is a task like any other; idle is [`TaskId::IDLE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The idle task of whichever CPU.
    pub const IDLE: TaskId = TaskId(u32::MAX);

    /// The id as an index into per-task arrays. Meaningless for [`TaskId::IDLE`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether this is the idle task.
    #[inline]
    pub const fn is_idle(self) -> bool {
        self.0 == u32::MAX
    }
}

warmcore_topology::worded! {
    /// Why the previous task left the CPU (`prev_state` of `sched_switch`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[repr(u8)]
    pub enum PrevState: letter {
        /// Still runnable: preempted or yielded (`R+`). An involuntary switch unless it yielded.
        Runnable = "R",
        /// Asleep (`S`). A voluntary switch.
        Sleeping = "S",
        /// Dead (`X`).
        Dead = "X",
        /// The previous task was idle.
        Idle = "I",
    }
}

warmcore_topology::worded! {
    /// Why a task changed its CPU.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[repr(u8)]
    pub enum MigrationKind: name {
        /// Placed elsewhere at wakeup.
        Wakeup = "wakeup",
        /// Placed elsewhere at fork.
        Fork = "fork",
        /// Moved while queued by periodic, idle or new-idle balancing.
        Balance = "balance",
        /// Moved off the CPU it was running on by active balancing (stopper).
        Active = "active",
        /// Taken by an idle CPU outside of a balancer (work stealing).
        Steal = "steal",
        /// Affinity no longer allowed the old CPU, or that went offline.
        Affinity = "affinity",
        /// NUMA balancing.
        Numa = "numa",
        /// Placed elsewhere as it starts another program (`sched_exec`); recordings only, the simulator has no exec.
        Exec = "exec",
    }
}

/// Number of [`MigrationKind`]s.
pub const MIGRATION_KINDS: usize = MigrationKind::COUNT;

impl MigrationKind {
    /// Who decides such a move, and why, in words.
    pub const fn reason(self) -> &'static str {
        match self {
            MigrationKind::Wakeup => "placed on another CPU when it was woken",
            MigrationKind::Fork => "placed on another CPU when it was created",
            MigrationKind::Balance => "pulled from a queue by the balancer of the CPU that decided",
            MigrationKind::Active => {
                "pushed off the CPU it was running on, because no queued task could be moved instead"
            }
            MigrationKind::Steal => "taken from a queue by a CPU that had nothing to do",
            MigrationKind::Affinity => "its affinity no longer allowed the old CPU, or that went offline",
            MigrationKind::Numa => "moved towards the node that holds its memory",
            MigrationKind::Exec => "placed on another CPU as it started another program",
        }
    }
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// `sched_switch`: `cpu` goes from `prev` to `next`; either may be [`TaskId::IDLE`].
    Switch {
        /// Task that leaves.
        prev: TaskId,
        /// Why it leaves.
        prev_state: PrevState,
        /// Task that comes.
        next: TaskId,
    },
    /// `sched_waking`: `cpu` is the waker's CPU; `target_cpu` is where the task last ran, recorded before placement.
    Waking {
        /// Task being woken.
        task: TaskId,
        /// CPU it last ran on.
        target_cpu: CpuId,
        /// Task that wakes it, from a system call of its own; [`TaskId::IDLE`] if an interrupt or nobody of the run does, or if
        /// the trace does not tell.
        waker: TaskId,
    },
    /// `sched_wakeup`: the task is queued on `cpu`.
    Wakeup {
        /// Task now runnable.
        task: TaskId,
        /// Why there; `None` if nobody told, as no real kernel does.
        reason: Option<PlaceReason>,
    },
    /// `sched_migrate_task`: the task is from now on assigned to `to`. `cpu` is where the decision was made.
    Migrate {
        /// Task that moves.
        task: TaskId,
        /// Old CPU.
        from: CpuId,
        /// New CPU.
        to: CpuId,
        /// Reason.
        kind: MigrationKind,
    },
    /// `sched_process_fork`: `child` exists and is about to be placed; its first placement is not a migration.
    Fork {
        /// Creator, or [`TaskId::IDLE`] for the workload's launcher.
        parent: TaskId,
        /// New task.
        child: TaskId,
    },
    /// `sched_process_exit`.
    Exit {
        /// Task that ends.
        task: TaskId,
    },
    /// Affinity of a task changed: `restriction` is an index into the run's table of CPU sets, 0 meaning all CPUs.
    /// Sent right after `Fork` too when a task starts restricted.
    Affinity {
        /// Task concerned.
        task: TaskId,
        /// Index of the CPU set.
        restriction: u32,
    },
    /// A counter sample: meaning of `counter` from the run's table of counters.
    Counter {
        /// Index into the table of counters.
        counter: u32,
        /// Task it belongs to, or idle for a per-CPU counter.
        task: TaskId,
        /// Value since the previous sample.
        value: u64,
    },
    /// A task entered a named phase of its program.
    Phase {
        /// Task concerned.
        task: TaskId,
        /// Index into the run's table of phases.
        phase: u32,
    },
    /// A figure that the move of a task by a load balancer rested on, right after that move. Only where it is asked for, and never stored.
    BalanceDetail {
        /// Which figure.
        detail: BalanceDetail,
        /// Task that was moved.
        task: TaskId,
        /// Its value.
        value: i64,
    },
    /// A scheduler's decision: number of its [kind](crate::DecisionKind) in the run's table.
    Decision {
        /// Index into the table of decisions.
        decision: u32,
        /// Task concerned, or idle.
        task: TaskId,
        /// What it means says the kind.
        value: i64,
    },
    /// A sample of what the scheduler ranks a task by, on the CPU whose queue it is in. Sent only where samples were asked for.
    Score {
        /// Index into the table of scores.
        score: u32,
        /// Task it belongs to, running or queued.
        task: TaskId,
        /// Value at this time, in the unit that the score's name ends with.
        value: i64,
    },
    /// `cpu`, which runs no task of the run, runs another thread from now on, or really nobody: what a recorder knows of threads beside the
    /// run's. A [`Switch`](EventKind::Switch) to a task ends it. Where nobody tells, such time is idle.
    Foreign {
        /// Index into the table of foreign threads; `None`: the CPU is idle.
        thread: Option<u32>,
    },
    /// `cpu` goes offline or comes online: where it begins to take no task (`sched_cpu_deactivate`) and where it takes tasks again
    /// (`sched_cpu_activate`). A task that has migration disabled may run on until it leaves.
    Hotplug {
        /// Whether it comes online.
        online: bool,
    },
    /// A quota or a reservation keeps `task` from running from now on, or lets it run again. Meanwhile it is runnable to whoever asks but
    /// waits for no CPU; if it runs, it leaves. Real kernels have no such event.
    Throttle {
        /// Task concerned.
        task: TaskId,
        /// What keeps it; `None`: it may run again.
        throttled: Option<Throttler>,
    },
    /// Time `cpu` spent on something other than a task's own program, since the previous such event of that kind.
    Overhead {
        /// What it was spent on.
        kind: OverheadKind,
        /// How long.
        duration_ns: u64,
    },
}

/// What keeps a runnable task from running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Throttler {
    /// The quota of a task group, until it has runtime again. It is outside of the task: the task's wait begins when it may run.
    Quota = 1,
    /// The task's own `SCHED_DEADLINE` reservation, until its next period. A task that is woken meanwhile waits since then.
    Reservation = 2,
}

impl Throttler {
    /// As files have it: 0 for a task that may run.
    pub const fn number(throttled: Option<Self>) -> u8 {
        match throttled {
            None => 0,
            Some(throttler) => throttler as u8,
        }
    }

    /// What a number in a file stands for; an unknown one is none.
    pub const fn of_number(number: usize) -> Option<Self> {
        match number {
            1 => Some(Self::Quota),
            2 => Some(Self::Reservation),
            _ => None,
        }
    }
}

warmcore_topology::worded! {
    /// What CPU time outside of tasks' programs goes to.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[repr(u8)]
    pub enum OverheadKind: name {
        /// Context switches.
        Switch = "switch",
        /// Timer ticks, ordinary and high-resolution.
        Tick = "tick",
        /// Wakeups: placement and enqueueing, interrupts between CPUs.
        Wakeup = "wakeup",
        /// Load balancing.
        Balance = "balance",
        /// First run after a migration: what cold caches cost a task without a memory model.
        Migration = "migration",
        /// System calls of the program itself: messages, locks, forks.
        Syscall = "syscall",
        /// NUMA balancing: sampling memory, hint faults, moving pages.
        Numa = "numa",
        /// Interrupts that the machine's background has: of devices, and requests of other CPUs that no scheduler makes.
        Interrupt = "interrupt",
    }
}

/// Number of [`OverheadKind`]s.
pub const OVERHEAD_KINDS: usize = OverheadKind::COUNT;

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Nanoseconds since the start of the run.
    pub time_ns: u64,
    /// CPU on which it happened.
    pub cpu: CpuId,
    /// What happened.
    pub kind: EventKind,
}

/// Receives the events of a run, in order of time, in batches.
pub trait Sink {
    /// Takes the next events. Events of one run arrive in the order in which they happened.
    ///
    /// # Errors
    /// When they cannot be stored; the run stops and what was stored so far stays valid.
    fn events(&mut self, batch: &[Event]) -> std::io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_variants_are_indexed_by_discriminant() {
        assert!(MigrationKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
        assert!(OverheadKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
        assert!(PrevState::ALL.iter().enumerate().all(|(index, state)| *state as usize == index));
    }
}
