//! Computing: a loop whose speed is measured once per run.
//!
//! As in rt-app, the fastest of many short measurements counts: it is what the CPU does when nothing disturbs it, and
//! stands for a CPU of capacity 1024. A slower CPU then takes longer for the same work.

use std::hint::black_box;

use crate::clock::{now_ns, thread_cpu_ns};
use crate::shared::{Stop, Stopped};

/// Speed of the computing loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calibration {
    /// Iterations in a millisecond of work.
    pub iterations_per_ms: u64,
}

/// Iterations of one measurement: about half a millisecond.
const SAMPLE: u64 = 200_000;
/// Measurements: about 20 ms in all, enough for a clock to rise.
const SAMPLES: u32 = 40;

/// Measures the loop on the CPU the caller runs on. Takes about 20 ms of CPU time.
pub fn calibrate() -> Calibration {
    let mut fastest_ns = u64::MAX;
    for _ in 0..SAMPLES {
        let start = thread_cpu_ns();
        compute(SAMPLE);
        fastest_ns = fastest_ns.min(thread_cpu_ns() - start);
    }
    Calibration { iterations_per_ms: SAMPLE * 1_000_000 / fastest_ns.max(1) }
}

/// How often using CPU time pauses. On a real CPU a pause is nothing; an emulator that runs all CPUs in one thread (QEMU
/// before 8.1) gives the turn to the next CPU at a pause, and otherwise after 100 ms only.
const TURN_NS: u64 = 5_000;

/// Shortest piece of computing between two looks at the clock.
const LEAST_NS: u64 = 500;

/// A chain of dependent multiplications: its speed depends on the clock of the core and on nothing else.
#[inline(never)]
fn compute(iterations: u64) {
    let mut x = black_box(1_u64);
    for _ in 0..iterations {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
}

impl Calibration {
    fn iterations(self, ns: u64) -> u64 {
        let iterations = u128::from(ns) * u128::from(self.iterations_per_ms) / 1_000_000;
        iterations.min(u64::MAX.into()) as u64
    }

    /// Does so much work, looking at the stop flag every 50 µs.
    pub(crate) fn work(self, work_ns: u64, stop: &Stop) -> Result<(), Stopped> {
        let piece = self.iterations(50_000).max(1);
        let mut left = self.iterations(work_ns);
        while left > 0 {
            let now = left.min(piece);
            compute(now);
            left -= now;
            stop.check()?;
        }
        Ok(())
    }

    /// Computes until the thread has used so much CPU time, with a call of `touch` every few microseconds.
    ///
    /// Reading the CPU clock of a running thread is a system call that has the kernel account for it (`task_sched_runtime`,
    /// `update_curr`) and act on a pending preemption on its way back: a thread that reads it often is switched at the end of
    /// its slice to the microsecond, where one that only computes waits for a tick. So it is read when the time that is left
    /// may have been used, which is not before as much time has passed; the monotonic clock is read without a system call.
    pub(crate) fn use_cpu(self, cpu_ns: u64, stop: &Stop, mut touch: impl FnMut()) -> Result<(), Stopped> {
        let end = thread_cpu_ns().saturating_add(cpu_ns);
        loop {
            let used = thread_cpu_ns();
            if used >= end {
                return Ok(());
            }
            let until = now_ns().saturating_add(end - used);
            loop {
                let now = now_ns();
                if now >= until {
                    break;
                }
                // Half of what is left, so that the end is met within about a microsecond.
                compute(self.iterations(((until - now) / 2).clamp(LEAST_NS, TURN_NS)).max(1));
                touch();
                std::hint::spin_loop();
                stop.check()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_used_in_full() {
        let calibration = calibrate();
        assert!(calibration.iterations_per_ms > 0);
        let start = thread_cpu_ns();
        calibration.use_cpu(2_000_000, &Stop::default(), || ()).unwrap();
        assert!(thread_cpu_ns() - start >= 2_000_000);
    }

    #[test]
    fn computing_ends_when_the_run_is_stopped() {
        let stop = Stop::default();
        stop.set();
        let calibration = Calibration { iterations_per_ms: 500_000 };
        assert!(calibration.work(u64::MAX >> 8, &stop).is_err());
        assert!(calibration.use_cpu(u64::MAX >> 8, &stop, || ()).is_err());
    }
}
