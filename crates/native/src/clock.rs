//! Clocks and sleeping, in nanoseconds.

use rustix::thread::{NanosleepRelativeResult, clock_nanosleep_absolute, clock_nanosleep_relative};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The monotonic clock.
pub(crate) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

fn nanoseconds(time: Timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// As a kernel time. Workload durations are below 2^60 ns.
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

/// What is left of a sleep that was interrupted; `None` if it is over.
pub(crate) fn sleep(ns: u64) -> Option<u64> {
    match clock_nanosleep_relative(ClockId::Monotonic, &timespec(ns)) {
        NanosleepRelativeResult::Interrupted(rest) => Some(nanoseconds(rest)),
        NanosleepRelativeResult::Ok | NanosleepRelativeResult::Err(_) => None,
    }
}

/// Sleeps until the monotonic clock shows `ns`. Returns whether it was interrupted.
pub(crate) fn sleep_until(ns: u64) -> bool {
    clock_nanosleep_absolute(ClockId::Monotonic, &timespec(ns)).is_err()
}
