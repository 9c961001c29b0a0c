//! What is kept per task while events stream by, and the definitions of the metrics of one task.

use warmcore_topology::Relation;

use crate::Throttler;

pub(crate) const NO_CPU: u32 = u32::MAX;

/// No instant.
pub(crate) const NEVER: u64 = u64::MAX;

/// What a task is doing, as far as events told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// No event told yet.
    Unknown,
    /// Forked, and not to be queued before its first wakeup.
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
    /// A waking, or the first wakeup of a new task.
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

/// What was going on when the window opened is in no distribution, but what of it lies in the window is in the sums of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Straddling {
    /// What of a slice lies before the window, and the LLC it was in: run time counts it.
    pub(crate) run_before_ns: u64,
    pub(crate) llc: u32,
    /// What of a wait lies in the window, once it has ended.
    pub(crate) wait_ns: u64,
    /// What of an absence from CPUs lies in the window, once it has ended.
    pub(crate) off_cpu_ns: u64,
}

/// State and sums of one task. In the order of use, so that most events touch one or two cache lines of it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct TaskState {
    pub(crate) state: State,
    pub(crate) wait: Wait,
    /// What keeps it from running.
    pub(crate) throttled: Option<Throttler>,
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
    /// Its last waking that no sleep has followed, or [`NEVER`].
    pub(crate) woken_ns: u64,

    pub(crate) involuntary: u64,
    pub(crate) migrations_ran: u64,
    pub(crate) cross_llc_ran: u64,
    pub(crate) cross_node_ran: u64,
    pub(crate) migrations_event: u64,
    pub(crate) created_ns: u64,
    pub(crate) exited_ns: u64,
    pub(crate) straddling: Straddling,
    /// Time for which it would have run or waited but for a quota or reservation, in the window, and since when one keeps it.
    pub(crate) throttled_ns: u64,
    /// What of it is wakeup latency too.
    pub(crate) throttled_wait_ns: u64,
    pub(crate) throttled_since_ns: u64,
    pub(crate) response: Waits,
}

impl Default for TaskState {
    fn default() -> Self {
        Self {
            state: State::Unknown,
            wait: Wait::Unobserved,
            throttled: None,
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
            woken_ns: NEVER,
            resident_llc: 0,
            migrations_ran: 0,
            cross_llc_ran: 0,
            cross_node_ran: 0,
            migrations_event: 0,
            created_ns: NEVER,
            exited_ns: NEVER,
            straddling: Straddling::default(),
            throttled_ns: 0,
            throttled_wait_ns: 0,
            throttled_since_ns: 0,
            response: Waits::default(),
        }
    }
}

impl TaskState {
    /// Whether it is on the queue of a CPU and would run there.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.state == State::Queued && self.throttled.is_none()
    }

    /// Whether its wait counts: none of a task that is kept from running does, but that of one woken while its own reservation is used up.
    #[inline]
    pub(crate) fn wait_counts(&self) -> bool {
        match self.throttled {
            None => true,
            Some(Throttler::Quota) => false,
            Some(Throttler::Reservation) => self.wait == Wait::Wakeup,
        }
    }

    /// **Wakeup latency** and **preempt wait**: the time from the beginning of a wait to the first time the task runs.
    ///
    /// A wait begins with the first `sched_waking` of a sleeping task (not with `sched_wakeup`, which may come later and
    /// from another CPU), with the first wakeup of a new task (`sched_wakeup_new`, as `perf sched timehist` has it), or when the task leaves a CPU still runnable. The first two are wakeup latency,
    /// the last is preempt wait; both together are **run delay**. While a quota keeps a runnable task from running it waits for no CPU: its
    /// wait begins again when it may run. So it does after a reservation that was used up on the CPU; one that is used up at the waking is part of wakeup latency. Returns the length, or `None` if the beginning was
    /// not observed, or before what counts. The caller starts the slice.
    #[inline]
    pub(crate) fn end_wait(&mut self, now_ns: u64, counts_from_ns: u64) -> Option<u64> {
        let waited = now_ns - self.since_ns;
        if self.since_ns < counts_from_ns {
            self.straddling.wait_ns = if self.wait == Wait::Unobserved { 0 } else { now_ns + 1 - counts_from_ns };
            return None;
        }
        match self.wait {
            Wait::Wakeup => self.wakeup.record(waited),
            Wait::Preempt => self.preempt.record(waited),
            Wait::Unobserved => return None,
        }
        Some(waited)
    }

    /// **Off-CPU time**: from leaving a CPU to the next time on one, sleep and run delay together (`wait time` of
    /// `perf sched timehist`). `None` for the first time on a CPU, and for absences that began before what counts.
    #[inline]
    pub(crate) fn end_off_cpu(&mut self, now_ns: u64, counts_from_ns: u64) -> Option<u64> {
        if self.left_ns == NEVER {
            return None;
        }
        if self.left_ns < counts_from_ns {
            self.straddling.off_cpu_ns = now_ns + 1 - counts_from_ns;
            return None;
        }
        let away = now_ns - self.left_ns;
        self.off_cpu_ns += away;
        Some(away)
    }

    /// **Response time**: from the first `sched_waking` of a sleeping task to the next time it leaves a CPU asleep: waiting, work, and what memory makes of
    /// it. Of a task that sleeps until the next request, the time that a request takes. `None` if the beginning was not observed, or before
    /// what counts.
    #[inline]
    pub(crate) fn end_response(&mut self, now_ns: u64, counts_from_ns: u64) -> Option<u64> {
        let woken_ns = std::mem::replace(&mut self.woken_ns, NEVER);
        let took = (woken_ns != NEVER && woken_ns >= counts_from_ns).then(|| now_ns - woken_ns)?;
        self.response.record(took);
        Some(took)
    }

    /// **Slice**: one uninterrupted stay on a CPU. Returns its length if it counts.
    #[inline]
    pub(crate) fn end_slice(&mut self, now_ns: u64, counts_from_ns: u64) -> Option<u64> {
        let ran = now_ns - self.since_ns;
        self.run_ns += ran;
        self.resident_ns += ran;
        let counts = self.since_ns >= counts_from_ns;
        self.slices += u64::from(counts);
        counts.then_some(ran)
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

    /// The window begins now: sums begin at 0, the state stays.
    pub(crate) fn open_window(&mut self, now_ns: u64) {
        let run_before_ns = self.censored_slice(now_ns).unwrap_or(0);
        let straddling = Straddling { run_before_ns, llc: self.resident_llc, ..Straddling::default() };
        *self = Self {
            state: self.state,
            wait: self.wait,
            throttled: self.throttled,
            throttled_since_ns: now_ns,
            cpu: self.cpu,
            last_ran: self.last_ran,
            class: self.class,
            since_ns: self.since_ns,
            left_ns: self.left_ns,
            woken_ns: self.woken_ns,
            resident_llc: self.resident_llc,
            created_ns: self.created_ns,
            exited_ns: self.exited_ns,
            straddling,
            ..Self::default()
        };
    }

    /// **Run time** in the window up to now, the unfinished slice included.
    pub(crate) fn run_ns(&self, end_ns: u64) -> u64 {
        self.run_ns + self.censored_slice(end_ns).unwrap_or(0) - self.straddling.run_before_ns
    }

    /// **Run delay** in the window: wakeup latencies and preempt waits that have ended, and what of one lies in the window that began before.
    pub(crate) fn run_delay_ns(&self) -> u64 {
        self.wakeup.sum_ns + self.preempt.sum_ns + self.straddling.wait_ns
    }

    /// **Off-CPU time** in the window, of absences that have ended.
    pub(crate) fn off_cpu_ns(&self) -> u64 {
        self.off_cpu_ns + self.straddling.off_cpu_ns
    }

    /// **Throttled time** in the window up to now: a quota or reservation keeps it from running, and it is not asleep.
    pub(crate) fn throttled_ns(&self, now_ns: u64) -> u64 {
        let waits = matches!(self.state, State::New | State::Waking | State::Queued);
        let since_ns = self.throttled_since_ns.max(self.since_ns);
        self.throttled_ns + if self.throttled.is_some() && waits { now_ns.saturating_sub(since_ns) } else { 0 }
    }

    /// What of the throttled time is wakeup latency too.
    pub(crate) fn throttled_wait_ns(&self, now_ns: u64) -> u64 {
        let present_ns = if self.wait_counts() { self.throttled_ns(now_ns) - self.throttled_ns } else { 0 };
        self.throttled_wait_ns + present_ns
    }

    /// Whether any event was about it: ids below it may be unused in a recorded trace.
    pub(crate) fn was_named(&self) -> bool {
        self.state != State::Unknown || self.cpu != NO_CPU || self.exited_ns != NEVER
    }

    /// The unfinished wait at the end of the window: **censored**, counted apart from those that ended.
    pub(crate) fn censored_wait(&self, end_ns: u64) -> Option<u64> {
        let waiting = matches!(self.state, State::New | State::Waking | State::Queued);
        (waiting && self.wait_counts() && self.wait != Wait::Unobserved).then(|| end_ns.saturating_sub(self.since_ns))
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
