//! Utilisation clamps in the fair class: which tasks count, and what fits a CPU with them (`docs/spec/linux-fair.md` section 4.10).
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` (`util_fits_cpu`, `task_fits_cpu`), `kernel/sched/core.c` (`uclamp_rq_inc`, `uclamp_rq_dec`).
//!
//! Differs from the kernel: CFS of 5.5 to 6.5 follows 7.2. Before 5.5 there are no clamps; the kernel's tasks have them from 5.3 on.

use warmcore_kernel::{Clamp, Core};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::asymmetric::fits_capacity;
use super::{Fair, Policy};
use crate::fair::gathering::Gathering;

/// Capacity of the biggest CPU.
const WHOLE: u32 = 1024;

/// What a task, or the tasks of a CPU, need of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    /// Utilisation.
    pub util: u64,
    /// What it is taken to be at least and at most.
    pub clamp: Clamp,
}

/// How well a CPU serves a need. Better ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Fit {
    /// It does not (0 in the kernel).
    No,
    /// But for the speed that is asked for at least (−1).
    TooSlow,
    /// It does (1).
    Yes,
}

impl Need {
    /// Nothing.
    pub const NOTHING: Self = Self { util: 0, clamp: Clamp::NONE };

    /// How well a CPU serves it of whose whole capacity so much is left (`util_fits_cpu`). What may use no more than a CPU has fits it, however
    /// busy it is.
    pub fn fit(self, left: u32, whole: u32) -> Fit {
        let Clamp { min, max } = self.clamp;
        let limited = max <= whole && !(whole == WHOLE && max == WHOLE);
        if !fits_capacity(self.util, u64::from(left)) && !limited {
            return Fit::No;
        }
        let min = min.min(max);
        if self.util < u64::from(min) && min > whole { Fit::TooSlow } else { Fit::Yes }
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// A task is about to be queued.
    #[inline]
    pub(super) fn count_clamp(&self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        if core.uses_clamps() && !self.parameters.load_only_balance {
            core.clamp_queued(cpu, task);
        }
    }

    /// What a task needs of a CPU.
    pub(super) fn need_of(&self, core: &Core<'_>, task: TaskId) -> Need {
        Need { util: self.task_util_est(task), clamp: core.task_clamp(task) }
    }

    /// Whether a CPU serves a need: always where capacities are equal (`asym_fits_cpu`, `task_fits_cpu`).
    #[inline]
    pub(super) fn fits_cpu(&self, need: Need, cpu: CpuId) -> bool {
        !self.asymmetric || need.fit(self.domains.capacity_of(cpu), self.whole_capacity(cpu)) == Fit::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, of `util_fits_cpu`, for a little CPU of 462 and a big one of 1024: 369 is the most that fits the little one by itself.
    #[test]
    fn a_lower_bound_sends_to_a_bigger_cpu_and_an_upper_one_keeps_on_a_smaller_one() {
        let fit = |util, min, max| {
            [462, 1024].map(|capacity| Need { util, clamp: Clamp { min, max } }.fit(capacity, capacity))
        };
        assert_eq!(fit(369, 0, 1024), [Fit::Yes, Fit::Yes]);
        assert_eq!(fit(370, 0, 1024), [Fit::No, Fit::Yes]);
        assert_eq!(fit(900, 0, 1024), [Fit::No, Fit::No]);
        // Boosted: only as far as it does not use so much itself.
        assert_eq!(fit(100, 462, 1024), [Fit::Yes, Fit::Yes]);
        assert_eq!(fit(100, 463, 1024), [Fit::TooSlow, Fit::Yes]);
        assert_eq!(fit(600, 500, 1024), [Fit::No, Fit::Yes]);
        // Capped.
        assert_eq!(fit(900, 0, 462), [Fit::Yes, Fit::Yes]);
        assert_eq!(fit(900, 0, 463), [Fit::No, Fit::Yes]);
        // A lower bound above the upper one, as tasks of one CPU may make them, ends there.
        assert_eq!(fit(100, 800, 400), [Fit::Yes, Fit::Yes]);
    }

    #[test]
    fn fits_are_in_order() {
        assert!(Fit::No < Fit::TooSlow && Fit::TooSlow < Fit::Yes);
    }
}
