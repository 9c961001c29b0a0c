//! `schedutil`'s boost of CPUs to which tasks come back from I/O, so that a slow CPU does not keep a fast device waiting.
//!
//! Source: Linux 7.2 `kernel/sched/cpufreq_schedutil.c` (`sugov_iowait_boost`, `sugov_iowait_reset`, `sugov_iowait_apply`),
//! `kernel/sched/fair.c` (`enqueue_task_fair`, `cfs_rq_util_change`).
//!
//! Differs from the kernel: load tracking's periods, within which the fair class asks the governor only once, begin together on all CPUs.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::Step;

use crate::clocks::CAPACITY_SCALE;
use crate::core::Core;
use crate::engine::Engine;
use crate::memory::Memory;
use crate::scheduler::Scheduler;

/// `IOWAIT_BOOST_MIN`.
const LEAST: u32 = CAPACITY_SCALE / 8;

/// Length of a period of load tracking, as a power of two in ns.
const PERIOD_BITS: u32 = 20;

/// A CPU's boost (`struct sugov_cpu`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IoBoost {
    /// On the scale of capacities; 0 is none.
    boost: u32,
    /// It was raised, and no frequency has been chosen with it yet.
    pending: bool,
    /// When the governor was asked last for the CPU (`last_update`).
    asked_ns: u64,
    /// A task that was queued comes from I/O: the governor is to be asked for it.
    pub woken: bool,
}

impl IoBoost {
    /// Whether the fair class asks again for an ordinary reason, as a period has passed since it did.
    pub fn period_passed(&self, now_ns: u64) -> bool {
        now_ns >> PERIOD_BITS != self.asked_ns >> PERIOD_BITS
    }

    /// Forgets the boost of a CPU for which nothing was asked for longer than a tick; `woken`: it begins again.
    fn reset(&mut self, now_ns: u64, tick_ns: u64, woken: bool) -> bool {
        let idle = now_ns - self.asked_ns > tick_ns;
        if idle {
            (self.boost, self.pending) = (if woken { LEAST } else { 0 }, woken);
        }
        idle
    }

    /// The governor is asked for the CPU; `woken`: since a task comes from I/O.
    pub fn ask(&mut self, now_ns: u64, tick_ns: u64, woken: bool) {
        let reset = self.boost > 0 && self.reset(now_ns, tick_ns, woken);
        if woken && !reset && !self.pending {
            self.pending = true;
            self.boost = if self.boost > 0 { (2 * self.boost).min(CAPACITY_SCALE) } else { LEAST };
        }
        self.asked_ns = now_ns;
    }

    /// The utilisation that a frequency is chosen with at least. If no task came from I/O since the last time, the boost is halved first.
    pub fn apply(&mut self, now_ns: u64, tick_ns: u64, capacity: u64) -> u64 {
        if self.boost == 0 || self.reset(now_ns, tick_ns, false) {
            return 0;
        }
        if !self.pending {
            self.boost /= 2;
            if self.boost < LEAST {
                self.boost = 0;
            }
        }
        self.pending = false;
        self.present(capacity)
    }

    /// The same utilisation, as it is.
    pub fn present(&self, capacity: u64) -> u64 {
        u64::from(self.boost) * capacity / u64::from(CAPACITY_SCALE)
    }
}

impl Core<'_> {
    /// A task of the fair class was queued at its wakeup. If it comes from I/O, its CPU's frequency is boosted.
    #[inline]
    pub fn woke(&mut self, cpu: CpuId, task: TaskId) {
        if let Some(clocks) = &mut self.clocks
            && self.tasks[task.index()].in_iowait
        {
            clocks.boosts[cpu.index()].woken = true;
        }
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// The running task blocks in a step: for I/O if the step before says so.
    #[inline]
    pub(crate) fn note_io_wait(&mut self, id: TaskId) {
        if self.core.clocks.is_none() {
            return;
        }
        let task = &mut self.core.tasks[id.index()];
        let steps = self.workload.programs.get(task.program.index()).map_or(&[][..], |program| &program.steps);
        let before = (task.pc as usize).checked_sub(1).and_then(|before| steps.get(before));
        task.in_iowait = matches!(before, Some(Step::IoWait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = 4_000_000;

    /// By hand: 128, twice as much with each wakeup, half with each choice without one, nothing below 128.
    #[test]
    fn it_doubles_with_each_wakeup_and_halves_with_each_choice_without_one() {
        let mut boost = IoBoost::default();
        let mut now_ns = 10_000_000;
        let mut choose = |woken: bool| {
            now_ns += 1_000_000;
            boost.ask(now_ns, TICK_NS, woken);
            boost.apply(now_ns, TICK_NS, 512)
        };
        // On a CPU of half the capacity half of it.
        assert_eq!([true; 6].map(&mut choose), [64, 128, 256, 512, 512, 512]);
        assert_eq!([false; 5].map(&mut choose), [256, 128, 64, 0, 0]);
        assert_eq!([true, false, true].map(&mut choose), [64, 0, 64]);
    }

    #[test]
    fn it_doubles_once_until_a_frequency_is_chosen_with_it() {
        let mut boost = IoBoost::default();
        for now_ns in 1..=3 {
            boost.ask(now_ns, TICK_NS, true);
        }
        assert_eq!(boost.apply(3, TICK_NS, 1024), 128);
    }

    #[test]
    fn it_begins_again_after_a_tick_without_a_question() {
        let mut boost = IoBoost::default();
        for now_ns in [1, 2] {
            boost.ask(now_ns, TICK_NS, true);
            boost.apply(now_ns, TICK_NS, 1024);
        }
        let (mut other, mut same) = (boost, boost);
        boost.ask(3 + TICK_NS, TICK_NS, true);
        assert_eq!(boost.apply(3 + TICK_NS, TICK_NS, 1024), 128);
        other.ask(3 + TICK_NS, TICK_NS, false);
        assert_eq!(other.apply(3 + TICK_NS, TICK_NS, 1024), 0);
        same.ask(2 + TICK_NS, TICK_NS, true);
        assert_eq!(same.apply(2 + TICK_NS, TICK_NS, 1024), 512);
    }
}
