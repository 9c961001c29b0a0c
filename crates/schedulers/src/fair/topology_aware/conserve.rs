//! Work conservation inside a scope (\[O\], `conserve`): nobody waits while a CPU of his process's scope is idle.
//!
//! A scope is several LLCs, but wakeups search one, and balancing across LLCs is rare. So a wakeup whose own search finds no idle
//! CPU goes on through the scope, from home outwards; and a tick that finds tasks waiting sends them to idle CPUs of their
//! scope, so that nobody waits beside one for longer than a tick. Packing is for those that find room: what these two
//! spread, later passes pull back while it fits.
//!
//! Neither RFC does this, as far as is known; `conserve=0` leaves wakeups and ticks alone.

use warmcore_kernel::{Core, Dequeue, Enqueue, Scheduler, State, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{MigrationKind, OverheadKind, TaskId};

use crate::fair::cache_aware::CacheAware;
use crate::fair::cache_aware::decisions::Decision;
use crate::fair::state::NONE;
use crate::fair::{Fair, Policy};

impl CacheAware {
    /// LLCs of the scope of a task's group, from home outwards, if work is conserved inside it; none without a home.
    fn conserved_scope(&self, task: TaskId) -> &[u32] {
        let group = self.tasks[task.index()].group;
        let Some(topology) = self.topology.as_ref().filter(|topology| topology.tunables.conserve != 0) else {
            return &[];
        };
        if group == NONE {
            return &[];
        }
        match self.preferred_llc(group) {
            NONE => &[],
            home => &topology.order(group, home)[..topology.scopes[group as usize].size as usize],
        }
    }
}

impl<P: Policy> Fair<P> {
    /// An idle CPU of a task's scope, an idle core's if there is one.
    #[inline(never)]
    fn idle_cpu_of_scope(&self, core: &Core<'_>, task: TaskId) -> Option<CpuId> {
        let scope = self.cache_aware.as_ref()?.conserved_scope(task);
        let roomy = || scope.iter().copied().filter(|&llc| self.llc_idle_cpus[llc as usize] > 0);
        let usable = |&cpu: &CpuId| self.idle[cpu.index()] && core.may_run_on(task, cpu);
        let cpus_of = |llc: u32| self.domains.llc_cpus(llc).iter().map(|&number| CpuId(number)).filter(usable);
        if self.domains.smt_active() {
            let with_cores = roomy().filter(|&llc| self.domains.shared(llc).has_idle_cores);
            let found = with_cores.flat_map(cpus_of).find(|&cpu| self.is_core_idle(core, cpu));
            if found.is_some() {
                return found;
            }
        }
        roomy().flat_map(cpus_of).next()
    }

    /// Where a wakeup goes whose search ended at `found`: there if it is idle, else to an idle CPU of the task's scope.
    #[inline]
    pub(in crate::fair) fn conserving_target(&self, core: &mut Core<'_>, task: TaskId, found: CpuId) -> CpuId {
        if self.idle[found.index()] || self.cache_aware.is_none() {
            return found;
        }
        let Some(cpu) = self.idle_cpu_of_scope(core, task) else { return found };
        core.decide(Decision::WokenInScope as u32, task, i64::from(self.domains.sd_llc_id(cpu)));
        cpu
    }

    /// At the tick of a CPU: sends tasks that wait there to idle CPUs of their scope.
    #[inline]
    pub(in crate::fair) fn push_waiting(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        if self.queues[cpu.index()].h_nr_runnable > 1
            && self.cache_aware.as_ref().is_some_and(|cache_aware| cache_aware.topology.is_some())
        {
            self.push_to_scope(core, cpu);
        }
    }

    #[inline(never)]
    fn push_to_scope(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let mut entity = self.rqs[cpu.index()].list_tail;
        let mut pushed = 0;
        while entity != NONE && pushed < self.parameters.nr_migrate {
            let (index, task) = (entity, self.entity_task(entity));
            entity = self.entities[index as usize].list_prev;
            if self.entities[index as usize].delayed || core.task(task).state() == State::Running {
                continue;
            }
            let Some(dst) = self.idle_cpu_of_scope(core, task) else { continue };
            Scheduler::dequeue(self, core, cpu, task, Dequeue::Save);
            core.set_task_cpu(task, dst, MigrationKind::Balance);
            core.decide(Decision::PushedInScope as u32, task, i64::from(self.domains.sd_llc_id(dst)));
            Scheduler::enqueue(self, core, dst, task, Enqueue::Restore);
            Scheduler::check_preempt(self, core, dst, task, WakeFlags::default());
            pushed += 1;
        }
        if pushed > 0 {
            let cost_ns = core.machine().costs().balance_base_ns * u64::from(pushed);
            core.charge(cpu, cost_ns, OverheadKind::Balance);
        }
    }
}
