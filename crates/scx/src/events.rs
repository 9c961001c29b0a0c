//! Events that the class counts for a program: what it did in the program's place. A kernel shows them in `root/events`, in the dump of an error
//! exit, by `scx_bpf_events` and at the tracepoint `sched_ext_event`.
//!
//! Loading takes no time here, so its bypass lasts 0 ns. Never counted: what only schedulers below others come to.
//!
//! Source: Linux 7.2 `struct scx_event_stats` and, in `kernel/sched/ext.c`, the places of `scx_add_event` and `__scx_add_event`.

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A task was enqueued on another CPU than `select_cpu` had chosen, which it may not use.
    SelectCpuFallback,
    /// A task for the local queue of an offline CPU went to a global one.
    DispatchLocalDsqOffline,
    /// A task whose slice was over went on, as its CPU had no other.
    DispatchKeepLast,
    /// A task that exits was not given to `enqueue`.
    EnqSkipExiting,
    /// A task that has disabled migration was not given to `enqueue`.
    EnqSkipMigrationDisabled,
    /// A task that was to run at once could not, and was enqueued again.
    ReenqImmed,
    /// That happened on a CPU once more before anything else did.
    ReenqLocalRepeat,
    /// The class gave a task the default slice.
    RefillSliceDfl,
    /// Nanoseconds for which the program was bypassed.
    BypassDuration,
    /// A task was queued while the program was bypassed.
    BypassDispatch,
    /// The program was bypassed.
    BypassActivate,
    /// A scheduler inserted a task that is another one's.
    InsertNotOwned,
    /// A CPU took a task of a bypassed scheduler below its own.
    SubBypassDispatch,
}

impl Event {
    /// How many there are.
    pub const COUNT: usize = Self::SubBypassDispatch as usize + 1;

    /// All of them in the order in which a kernel shows them, with the names that it has for them.
    pub const ALL: [(Self, &'static str); Self::COUNT] = [
        (Self::SelectCpuFallback, "SCX_EV_SELECT_CPU_FALLBACK"),
        (Self::DispatchLocalDsqOffline, "SCX_EV_DISPATCH_LOCAL_DSQ_OFFLINE"),
        (Self::DispatchKeepLast, "SCX_EV_DISPATCH_KEEP_LAST"),
        (Self::EnqSkipExiting, "SCX_EV_ENQ_SKIP_EXITING"),
        (Self::EnqSkipMigrationDisabled, "SCX_EV_ENQ_SKIP_MIGRATION_DISABLED"),
        (Self::ReenqImmed, "SCX_EV_REENQ_IMMED"),
        (Self::ReenqLocalRepeat, "SCX_EV_REENQ_LOCAL_REPEAT"),
        (Self::RefillSliceDfl, "SCX_EV_REFILL_SLICE_DFL"),
        (Self::BypassDuration, "SCX_EV_BYPASS_DURATION"),
        (Self::BypassDispatch, "SCX_EV_BYPASS_DISPATCH"),
        (Self::BypassActivate, "SCX_EV_BYPASS_ACTIVATE"),
        (Self::InsertNotOwned, "SCX_EV_INSERT_NOT_OWNED"),
        (Self::SubBypassDispatch, "SCX_EV_SUB_BYPASS_DISPATCH"),
    ];

    /// The kernel's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// How often each was counted, or for how many ns it lasted; by [`Event`] as a number.
pub type EventCounts = [u64; Event::COUNT];

/// What was counted for a program since it was attached.
#[derive(Default)]
pub(crate) struct Events {
    pub counts: EventCounts,
    /// What programs at the tracepoint have yet to be told.
    pub passed: Vec<(Event, u64)>,
}

/// What programs at the class's own tracepoints are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traced<'a> {
    /// An event, and by how much its count grew (`sched_ext_event`).
    Event(Event, u64),
    /// A line of the dump of an error exit (`sched_ext_dump`).
    DumpLine(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_the_numbers() {
        for (number, (event, name)) in Event::ALL.into_iter().enumerate() {
            assert_eq!((event as usize, event.name()), (number, name));
        }
    }
}
