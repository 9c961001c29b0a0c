//! Which CPUs are big enough for a task, on machines whose CPUs have unequal capacities.
//!
//! Source: Linux 7.2 `kernel/sched/rt.c` (`rt_task_fits_capacity`), `deadline.c` (`dl_task_fits_capacity`), `cpudeadline.c` (`cpudl_find`);
//! `docs/spec/linux-rt.md` sections 2.2 and 3.

use std::cmp::Reverse;

use warmcore_kernel::{CAPACITY_SCALE, Core};
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::TaskId;

use super::Realtime;

impl Realtime {
    /// Whether decisions heed capacities (`sched_asym_cpucap_active`): they are unequal, and no core has several threads.
    pub(super) fn heeds_capacities(machine: &Machine) -> bool {
        machine.is_asymmetric() && machine.smt_width() == 1
    }

    /// Whether a CPU is big enough for a task. A deadline task needs the part of a CPU that is its runtime in its deadline; one of fixed priority
    /// the lower bound of its clamp, a whole CPU unless it asks for something (`sched_util_clamp_min_rt_default`).
    pub(super) fn fits(&self, core: &Core<'_>, task: TaskId, cpu: CpuId) -> bool {
        if !self.unequal {
            return true;
        }
        let capacity = core.capacity(cpu);
        match self.tasks[task.index()].reservation() {
            Some(reservation) => {
                let at_full_speed_ns = reservation.deadline_ns * u64::from(capacity) / u64::from(CAPACITY_SCALE);
                at_full_speed_ns >= reservation.runtime_ns
            }
            None if core.uses_clamps() => {
                let clamp = core.task_clamp(task);
                capacity >= clamp.min.min(clamp.max)
            }
            None => capacity >= CAPACITY_SCALE,
        }
    }

    /// Leaves those of the candidates that are big enough for a deadline task; where none is, the biggest, of equal ones its own.
    pub(super) fn leave_fitting(&mut self, core: &Core<'_>, task: TaskId, from: CpuId) {
        if !self.unequal {
            return;
        }
        let mut left = CpuSet::new();
        left.extend(self.candidates.iter().filter(|&cpu| self.fits(core, task, cpu)));
        if left.is_empty() {
            let biggest = self.candidates.iter().max_by_key(|&cpu| (core.capacity(cpu), cpu == from, Reverse(cpu)));
            left.extend(biggest);
        }
        self.candidates = left;
    }
}
