//! What is kept per task while events stream by, and the definitions of the metrics of one task.

use warmcore_topology::Relation;

/// No CPU.
pub(crate) const NO_CPU: u32 = u32::MAX;

/// No instant.
pub(crate) const NEVER: u64 = u64::MAX;

/// What a task is doing, as far as events told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// No event told yet.
    Unknown,
    /// Forked, not queued yet.
    New,
    Sleeping,
    /// Between `sched_waking` and `sched_wakeup`: woken, perhaps on its way to another CPU, not queued yet.
    Waking,
    /// Runnable on the queue of a CPU.
    Queued,
    Running,
    Dead,
}

/// What a runnable task's present wait began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// A waking or a fork.
    Wakeup,
    /// It left a CPU still runnable.
    Preempt,
    /// Its beginning was not observed, so its length is unknown.
    Unobserved,
}

/// Number, sum and maximum of waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Waits {
    #[inline]
    pub(crate) fn record(&mut self, wait_ns: u64) {
        self.count += 1;
        self.sum_ns += wait_ns;
        self.max_ns = self.max_ns.max(wait_ns);
    }

    /// Adds the waits of another record.
    pub fn merge(&mut self, other: &Waits) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// State and sums of one task. In the order of use, so that most events touch one or two cache lines of it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct TaskState {
    pub(crate) state: State,
    pub(crate) wait: Wait,
    /// CPU it runs on, is queued on, or was last assigned to.
    pub(crate) cpu: u32,
    /// CPU of its last slice, or [`NO_CPU`].
    pub(crate) last_ran: u32,
    /// Class of its set of allowed CPUs.
    pub(crate) class: u32,
    /// Beginning of the present wait (waking, new, queued) or slice (running).
    pub(crate) since_ns: u64,
    /// When it last left a CPU, or [`NEVER`].
    pub(crate) left_ns: u64,
    pub(crate) run_ns: u64,
    /// Part of the run time that its row of the table of residency does not hold yet: all of it in `resident_llc`.
    pub(crate) resident_ns: u64,
    pub(crate) resident_llc: u32,
    pub(crate) voluntary: u64,

    pub(crate) wakeup: Waits,
    pub(crate) preempt: Waits,
    pub(crate) off_cpu_ns: u64,
    pub(crate) slices: u64,

    pub(crate) involuntary: u64,
    pub(crate) migrations_ran: u64,
    pub(crate) cross_llc_ran: u64,
    pub(crate) cross_node_ran: u64,
    pub(crate) migrations_event: u64,
    pub(crate) created_ns: u64,
    pub(crate) exited_ns: u64,
}

impl Default for TaskState {
    fn default() -> Self {
        Self {
            state: State::Unknown,
            wait: Wait::Unobserved,
            cpu: NO_CPU,
            last_ran: NO_CPU,
            class: 0,
            since_ns: 0,
            left_ns: NEVER,
            run_ns: 0,
            resident_ns: 0,
            voluntary: 0,
            involuntary: 0,
            wakeup: Waits::default(),
            preempt: Waits::default(),
            off_cpu_ns: 0,
            slices: 0,
            resident_llc: 0,
            migrations_ran: 0,
            cross_llc_ran: 0,
            cross_node_ran: 0,
            migrations_event: 0,
            created_ns: NEVER,
            exited_ns: NEVER,
        }
    }
}

impl TaskState {
    /// **Wakeup latency** and **preempt wait**: the time from the beginning of a wait to the first time the task runs.
    ///
    /// A wait begins with the first `sched_waking` of a sleeping task (not with `sched_wakeup`, which may come later and
    /// from another CPU), with a fork, or when the task leaves a CPU still runnable. The first two are wakeup latency,
    /// the last is preempt wait; both together are **run delay**. Returns the length, or `None` if the beginning was
    /// not observed. The caller starts the slice.
    #[inline]
    pub(crate) fn end_wait(&mut self, now_ns: u64) -> Option<u64> {
        let waited = now_ns - self.since_ns;
        match self.wait {
            Wait::Wakeup => self.wakeup.record(waited),
            Wait::Preempt => self.preempt.record(waited),
            Wait::Unobserved => return None,
        }
        Some(waited)
    }

    /// **Off-CPU time**: from leaving a CPU to the next time on one, sleep and run delay together (`wait time` of
    /// `perf sched timehist`). `None` for the first time on a CPU.
    #[inline]
    pub(crate) fn end_off_cpu(&mut self, now_ns: u64) -> Option<u64> {
        if self.left_ns == NEVER {
            return None;
        }
        let away = now_ns - self.left_ns;
        self.off_cpu_ns += away;
        Some(away)
    }

    /// **Slice**: one uninterrupted stay on a CPU. Returns its length.
    #[inline]
    pub(crate) fn end_slice(&mut self, now_ns: u64) -> u64 {
        let ran = now_ns - self.since_ns;
        self.run_ns += ran;
        self.resident_ns += ran;
        self.slices += 1;
        ran
    }

    /// **Residency**: run time per LLC. A slice begins in `llc`; the time spent in another one before it is returned with
    /// that LLC, to be added to the table. Tasks change their LLC rarely, so the table is touched rarely.
    #[inline]
    pub(crate) fn enter_llc(&mut self, llc: u32) -> Option<(u32, u64)> {
        if self.resident_llc == llc {
            return None;
        }
        let old = std::mem::replace(&mut self.resident_llc, llc);
        Some((old, std::mem::take(&mut self.resident_ns)))
    }

    /// **Migration (ran)**: two consecutive slices on different CPUs, whatever moves of the waiting task lay between.
    /// **Cross-LLC** and **cross-node transitions** are those whose two CPUs differ in LLC, in NUMA node.
    pub(crate) fn ran_elsewhere(&mut self, relation: Relation) {
        self.migrations_ran += 1;
        self.cross_llc_ran += u64::from(crosses_llc(relation));
        self.cross_node_ran += u64::from(crosses_node(relation));
    }

    /// Whether any event was about it: ids below it may be unused in a recorded trace.
    pub(crate) fn was_named(&self) -> bool {
        self.state != State::Unknown || self.cpu != NO_CPU || self.exited_ns != NEVER
    }

    /// The unfinished wait at the end of the window: **censored**, counted apart from those that ended.
    pub(crate) fn censored_wait(&self, end_ns: u64) -> Option<u64> {
        let waiting = matches!(self.state, State::New | State::Waking | State::Queued);
        (waiting && self.wait != Wait::Unobserved).then(|| end_ns.saturating_sub(self.since_ns))
    }

    /// The unfinished slice at the end of the window: its time counts as run time, it does not count as a slice.
    pub(crate) fn censored_slice(&self, end_ns: u64) -> Option<u64> {
        (self.state == State::Running).then(|| end_ns.saturating_sub(self.since_ns))
    }
}

/// Whether a move over this distance changes the last-level cache.
pub(crate) fn crosses_llc(relation: Relation) -> bool {
    relation >= Relation::SameNode
}

/// Whether a move over this distance changes the NUMA node.
pub(crate) fn crosses_node(relation: Relation) -> bool {
    relation >= Relation::SameSocket
}
