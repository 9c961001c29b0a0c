//! Which CPUs and cores are idle, and how many in each LLC.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use super::{Fair, Policy};
use crate::fair::gathering::Gathering;

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Whether the CPU runs nothing, has nothing queued, and no wakeup is on its way (`idle_cpu`).
    #[inline]
    pub(crate) fn is_idle_cpu(&self, _core: &Core<'_>, cpu: CpuId) -> bool {
        self.idle[cpu.index()]
    }

    /// Whether the CPU has nothing but `SCHED_IDLE` tasks (`sched_idle_cpu`).
    #[inline]
    pub(crate) fn sched_idle_cpu(&self, _core: &Core<'_>, cpu: CpuId) -> bool {
        let cfs = &self.queues[cpu.index()];
        cfs.h_nr_idle > 0 && cfs.h_nr_idle == self.nr_running(cpu)
    }

    /// Whether the other hardware threads of a CPU's core are idle (`is_core_idle`).
    #[inline]
    pub(crate) fn is_core_idle(&self, cpu: CpuId) -> bool {
        self.busy_threads[self.core_of[cpu.index()] as usize] == u32::from(!self.idle[cpu.index()])
    }

    pub(super) fn refresh_idle(&mut self, core: &Core<'_>, cpu: CpuId) {
        let idle = core.curr_is_idle(cpu) && self.rqs[cpu.index()].nr_running == 0 && !core.ttwu_pending(cpu);
        self.set_idle(cpu, idle);
    }

    /// Notes whether a CPU is idle.
    #[inline]
    pub(super) fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        let known = &mut self.idle[cpu.index()];
        if *known != idle {
            *known = idle;
            let llc = self.domains.sd_llc_id(cpu) as usize;
            let busy_threads = &mut self.busy_threads[self.core_of[cpu.index()] as usize];
            let [cpus, cores] = self.idle_counts[cpu.index()];
            if idle {
                self.llc_idle_cpus[llc] += cpus;
                *busy_threads -= 1;
                self.llc_idle_cores[llc] += cores * u32::from(*busy_threads == 0);
            } else {
                self.llc_idle_cpus[llc] -= cpus;
                self.llc_idle_cores[llc] -= cores * u32::from(*busy_threads == 0);
                *busy_threads += 1;
            }
        }
    }
}
