//! What is kept per CPU while events stream by, and the definitions of the metrics of one CPU.

use crate::{OVERHEAD_KINDS, TaskId};

/// State and sums of one CPU. In the order of use, so that most events touch one or two cache lines of it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct CpuState {
    /// Whether its state is known: from the start in a simulation, from its first switch in a recorded trace.
    pub(crate) known: bool,
    /// Whether it runs a thread that is no task of the run.
    pub(crate) foreign: bool,
    /// Whether work conservation counts it among the idle CPUs.
    pub(crate) counted_idle: bool,
    /// Whether it is offline.
    pub(crate) offline: bool,
    /// Task on the CPU.
    pub(crate) curr: TaskId,
    /// First task queued here while the CPU was idle, or idle: see
    /// [`violation_ns`](super::work_conservation::WorkConservation::violation_ns).
    pub(crate) starting: TaskId,
    /// Tasks queued here, the running one not counted.
    pub(crate) queued: u32,
    pub(crate) length_max: u32,
    pub(crate) llc: u32,
    /// Up to when the queue length is accounted for.
    pub(crate) settled_ns: u64,
    /// Sum over time of running plus queued tasks.
    pub(crate) length_ns: u64,
    /// Since when `curr`, or the foreign thread, has been on the CPU.
    pub(crate) since_ns: u64,
    pub(crate) busy_ns: u64,
    pub(crate) foreign_ns: u64,
    pub(crate) switches: u64,

    /// Since when its state has been known.
    pub(crate) known_since_ns: u64,
    pub(crate) overhead_ns: [u64; OVERHEAD_KINDS],
    /// Time offline, up to when it came online last.
    pub(crate) offline_ns: u64,
    /// When it went offline, if it is, and for how long it had been occupied by then.
    pub(crate) offline_since_ns: u64,
    pub(crate) occupied_before_ns: u64,
}

impl CpuState {
    /// A CPU whose state is known to be idle at the start, or unknown.
    pub(crate) fn new(start_ns: u64, known: bool, llc: u32) -> Self {
        Self {
            known,
            foreign: false,
            curr: TaskId::IDLE,
            starting: TaskId::IDLE,
            counted_idle: known,
            offline: false,
            llc,
            queued: 0,
            since_ns: start_ns,
            settled_ns: start_ns,
            length_ns: 0,
            length_max: 0,
            busy_ns: 0,
            foreign_ns: 0,
            switches: 0,
            known_since_ns: start_ns,
            overhead_ns: [0; OVERHEAD_KINDS],
            offline_ns: 0,
            offline_since_ns: start_ns,
            occupied_before_ns: 0,
        }
    }

    /// **Run-queue length**: the running task plus the queued ones.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.queued + u32::from(!self.curr.is_idle())
    }

    /// Accounts for the queue length up to now; to be called before every change of it. The time-weighted mean is the
    /// sum over observed time.
    #[inline]
    pub(crate) fn settle_length(&mut self, now_ns: u64) {
        if self.known {
            self.length_ns += u64::from(self.length()) * (now_ns - self.settled_ns);
        }
        self.settled_ns = now_ns;
    }

    /// **Busy time**: with a task on the CPU. To be called at every switch, before it is applied.
    #[inline]
    pub(crate) fn settle_switch(&mut self, now_ns: u64) {
        if !self.curr.is_idle() {
            self.busy_ns += now_ns - self.since_ns;
        }
        self.settle_foreign(now_ns, false);
        self.switches += 1;
    }

    /// **Foreign time**: with a thread on the CPU that is no task of the run, as far as the trace tells. To be called before that begins
    /// or ends, with the queue length settled.
    #[inline]
    pub(crate) fn settle_foreign(&mut self, now_ns: u64, foreign: bool) {
        if self.foreign {
            self.foreign_ns += now_ns - self.since_ns;
        }
        if !self.known {
            self.known = true;
            self.known_since_ns = now_ns;
        }
        (self.foreign, self.since_ns) = (foreign, now_ns);
    }

    /// Time with a task or a foreign thread on the CPU, up to now.
    fn occupied_ns(&self, now_ns: u64) -> u64 {
        let occupied = self.foreign || !self.curr.is_idle();
        self.busy_ns + self.foreign_ns + if occupied { now_ns - self.since_ns } else { 0 }
    }

    /// The CPU goes offline or comes online. To be called with the queue length settled.
    #[cold]
    pub(crate) fn plug(&mut self, now_ns: u64, online: bool) {
        if !self.known {
            self.known = true;
            self.known_since_ns = now_ns;
            self.since_ns = now_ns;
        }
        self.offline_ns = self.offline_ns(now_ns);
        self.offline = !online;
        (self.offline_since_ns, self.occupied_before_ns) = (now_ns, self.occupied_ns(now_ns));
    }

    /// **Offline time** up to now: from when the CPU takes no task any more to when it takes tasks again, without what a task that may not
    /// leave yet, or a foreign thread that is recorded there, runs meanwhile.
    pub(crate) fn offline_ns(&self, now_ns: u64) -> u64 {
        if !self.offline {
            return self.offline_ns;
        }
        let occupied_ns = self.occupied_ns(now_ns) - self.occupied_before_ns;
        self.offline_ns + (now_ns - self.offline_since_ns) - occupied_ns
    }

    /// The window begins now: sums begin at 0, the state stays.
    pub(crate) fn open_window(&mut self, now_ns: u64) {
        self.settle_length(now_ns);
        (self.length_ns, self.busy_ns, self.foreign_ns, self.switches) = (0, 0, 0, 0);
        self.length_max = self.length();
        self.since_ns = now_ns;
        self.known_since_ns = now_ns;
        self.overhead_ns = [0; OVERHEAD_KINDS];
        (self.offline_ns, self.offline_since_ns, self.occupied_before_ns) = (0, now_ns, 0);
    }

    /// **Observed time** up to the end of the window: busy, foreign, offline or **idle**. Time before a CPU's first switch is neither (it is
    /// unobserved), unless the CPU was known to be idle at the start.
    pub(crate) fn observed_ns(&self, end_ns: u64) -> u64 {
        if self.known { end_ns - self.known_since_ns } else { 0 }
    }

    /// Whether the CPU is idle for work conservation.
    #[inline]
    pub(crate) fn counts_as_idle(&self) -> bool {
        self.known && self.curr.is_idle() && !self.foreign && !self.offline && self.starting.is_idle()
    }
}
