//! Computing: a loop whose speed is measured once per run.
//!
//! As in rt-app, the fastest of many short measurements counts: it is what the CPU does when nothing disturbs it, and
//! stands for a CPU of capacity 1024. A slower CPU then takes longer for the same work.

use std::hint::black_box;

use crate::clock::{now_ns, thread_cpu_ns};
use crate::preemption::Watch;
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

/// How often using CPU time pauses ([`pause`]).
const TURN_NS: u64 = 5_000;

/// Lets an emulator's other CPUs go on. On a real CPU a pause is nothing; an emulator that runs all CPUs in one thread (QEMU
/// before 8.1) gives the turn to the next CPU at a pause, and otherwise after 100 ms only. So whatever computes, or uses memory, for long pauses
/// every few microseconds.
pub(crate) fn pause() {
    std::hint::spin_loop();
}

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
    /// No system call is made where the kernel tells of switches without one ([`Watch`]): reading the CPU clock of a running thread has
    /// the kernel account for it (`task_sched_runtime`, `update_curr`) and act on a pending preemption on its way back, so that a
    /// thread that reads it at the end of what it does waits for a whole turn of another before it can sleep. The time that passes
    /// is CPU time while the thread is not switched out; of a piece in which it was, what such a piece takes otherwise counts.
    pub(crate) fn use_cpu(self, cpu_ns: u64, stop: &Stop, mut touch: impl FnMut()) -> Result<(), Stopped> {
        let Some(watch) = Watch::of_this_thread() else { return self.use_cpu_by_the_clock(cpu_ns, stop, touch) };
        let mut meter = Meter::new(watch, self.iterations_per_ms);
        let mut used = 0;
        while used < cpu_ns {
            let iterations = self.piece(cpu_ns - used);
            compute(iterations);
            touch();
            pause();
            stop.check()?;
            used += meter.lap(iterations);
        }
        Ok(())
    }

    /// The same where nothing tells of switches: the CPU clock is read when the time that is left may have been used, which is not
    /// before as much time has passed.
    fn use_cpu_by_the_clock(self, cpu_ns: u64, stop: &Stop, mut touch: impl FnMut()) -> Result<(), Stopped> {
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
                compute(self.piece(until - now));
                touch();
                pause();
                stop.check()?;
            }
        }
    }

    /// Iterations between two looks at the time: half of what is left, so that the end is met within about a microsecond.
    fn piece(self, left_ns: u64) -> u64 {
        self.iterations((left_ns / 2).clamp(LEAST_NS, TURN_NS)).max(1)
    }
}

/// CPU time of the calling thread between laps, without a system call. The monotonic clock is read without one where the kernel has it
/// in the vDSO.
pub(crate) struct Meter {
    watch: Watch,
    last_ns: u64,
    /// What laps without a switch took, and how much was done in them: what the same takes in a lap with one.
    unbroken_ns: u64,
    unbroken_work: u64,
    /// How much is done in a millisecond, as long as there was no such lap.
    guess_per_ms: u64,
}

impl Meter {
    /// From now on.
    pub(crate) fn new(watch: Watch, guess_per_ms: u64) -> Self {
        watch.begin();
        Self { watch, last_ns: now_ns(), unbroken_ns: 0, unbroken_work: 0, guess_per_ms }
    }

    /// CPU time since the last lap, in which so much was done.
    pub(crate) fn lap(&mut self, work: u64) -> u64 {
        let now_ns = now_ns();
        let passed_ns = now_ns - self.last_ns;
        if self.watch.is_unbroken() {
            self.last_ns = now_ns;
            self.unbroken_ns += passed_ns;
            self.unbroken_work += work;
            return passed_ns;
        }
        self.watch.begin();
        self.last_ns = crate::clock::now_ns();
        let (ns, done) = match self.unbroken_work {
            0 => (1_000_000, self.guess_per_ms.max(1)),
            done => (self.unbroken_ns, done),
        };
        let usual_ns = u128::from(work) * u128::from(ns) / u128::from(done);
        passed_ns.min(u64::try_from(usual_ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_used_in_full() {
        let calibration = calibrate();
        assert!(calibration.iterations_per_ms > 0);
        let used = |_| {
            let start = thread_cpu_ns();
            calibration.use_cpu(2_000_000, &Stop::default(), || ()).unwrap();
            thread_cpu_ns() - start
        };
        // What is used of a lap in which the thread was switched out is an estimate, and a hypervisor takes time that no clock here
        // tells apart. Both only take away: those that nobody disturbed have all of it, and beside much else they are few.
        let a_tenth_is_in_full = |_| {
            let mut used: Vec<u64> = (0..50).map(used).collect();
            used.sort_unstable();
            used[49] >= 2_000_000 && used[45] >= 1_800_000
        };
        assert!((0..10).any(a_tenth_is_in_full));
    }

    #[test]
    fn a_thread_that_is_switched_out_again_and_again_uses_its_cpu_time_without_reading_its_clock() {
        let calibration = calibrate();
        let only: rustix::thread::CpuSet = {
            let allowed = rustix::thread::sched_getaffinity(None).unwrap();
            let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
            let mut only = rustix::thread::CpuSet::new();
            only.set(first);
            only
        };
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let measured = scope.spawn(|| {
                rustix::thread::sched_setaffinity(None, &only).unwrap();
                let watch = Watch::of_this_thread().expect("restartable sequences");
                let (mut meter, start) = (Meter::new(watch, calibration.iterations_per_ms), thread_cpu_ns());
                let mut used = 0;
                while used < 60_000_000 {
                    compute(calibration.iterations(TURN_NS));
                    used += meter.lap(calibration.iterations(TURN_NS));
                }
                (used, thread_cpu_ns() - start, crate::sys::context_switches().1)
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    rustix::thread::sched_setaffinity(None, &only).unwrap();
                    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                        compute(10_000);
                    }
                });
            }
            let (used, clock, switches) = measured.join().unwrap();
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            // Two neighbours on its CPU: it waits for twice as long as it runs, and none of that is counted.
            assert!(switches > 5, "{switches} switches");
            assert!(used.abs_diff(clock) < clock / 10, "{used} of {clock}");
        });
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
