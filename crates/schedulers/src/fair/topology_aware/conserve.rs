//! Work conservation inside a scope (\[O\], `conserve`): nobody waits while a CPU of his process's scope is idle.
//!
//! A scope is several LLCs, but wakeups search one, and balancing across LLCs is rare. So a wakeup whose own search finds no idle
//! CPU goes on through the scope, from home outwards; with `conserve=2` also one that finds no more than the sibling of a busy
//! CPU, for an idle core, as long as the scope is within a socket. And a tick that finds tasks waiting sends them to idle CPUs of their
//! scope, so that nobody waits beside one for longer than a tick. Packing is for those that find room: what these two
//! spread, later passes pull back while it fits.
//!
//! Balancing heeds waiting, too ([`TopologyAware::heeds_waiting`]).
//!
//! Neither RFC does this, as far as is known; `conserve=0` leaves wakeups, ticks and balancing alone.

use warmcore_kernel::{Core, Dequeue, Enqueue, Scheduler, State, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{MigrationKind, OverheadKind, SearchStep, TaskId};

use crate::fair::gathering::Move;
use crate::fair::state::NONE;
use crate::fair::topology_aware::TopologyAware;
use crate::fair::topology_aware::sequence::Reach;
use crate::fair::{Fair, Policy};

impl TopologyAware {
    /// LLCs of the scope of a task's group, from home outwards, if `conserve` is so much at least; none without a home, or if it
    /// reaches farther than so far.
    fn conserved_scope(&self, task: TaskId, conserve: u64, farthest: Reach) -> &[u32] {
        let group = self.base.tasks[task.index()].group;
        if self.tunables.conserve < conserve || group == NONE {
            return &[];
        }
        match self.base.preferred_llc(group) {
            NONE => &[],
            home if self.sequences.reach(home, self.scopes[group as usize].size) > farthest => &[],
            home => self.scope(group, home),
        }
    }

    /// Whether balancing lets a task's waiting beside an idle CPU outweigh the order of its scope (8.6).
    pub(super) fn heeds_waiting(&self, wanted: &Move) -> bool {
        wanted.waits && self.tunables.conserve > 0
    }
}

impl<P: Policy> Fair<P, TopologyAware> {
    /// An idle CPU of an idle core, or any idle CPU, of these LLCs, on which the task's group has time left.
    fn idle_cpu_among(&self, core: &Core<'_>, task: TaskId, llcs: &[u32], whole_core: bool) -> Option<CpuId> {
        let usable =
            |&cpu: &CpuId| self.idle[cpu.index()] && core.may_run_on(task, cpu) && !self.is_throttled_on(task, cpu);
        let fits = |&cpu: &CpuId| !whole_core || self.is_core_idle(cpu);
        let rooms = if whole_core { &self.llc_idle_cores } else { &self.llc_idle_cpus };
        let roomy = llcs.iter().filter(|&&llc| rooms[llc as usize] > 0);
        let cpus = roomy.flat_map(|&llc| self.domains.llc_cpus(llc)).map(|&number| CpuId(number));
        cpus.filter(usable).find(fits)
    }

    /// An idle core's CPU in a task's scope, unless it crosses sockets, whose lines cost more than sharing a core.
    #[inline(never)]
    fn idle_core_of_scope(&self, core: &Core<'_>, task: TaskId) -> Option<CpuId> {
        self.idle_cpu_among(core, task, self.gathering.conserved_scope(task, 2, Reach::Socket), true)
    }

    /// An idle CPU of a task's scope, an idle core's if there is one.
    #[inline(never)]
    fn idle_cpu_of_scope(&self, core: &Core<'_>, task: TaskId) -> Option<CpuId> {
        let scope = self.gathering.conserved_scope(task, 1, Reach::System);
        let whole = if self.domains.smt_active() { self.idle_cpu_among(core, task, scope, true) } else { None };
        whole.or_else(|| self.idle_cpu_among(core, task, scope, false))
    }

    /// Where a wakeup goes whose search ended at `found`: there if it is idle, unless an idle core of the task's scope is preferred
    /// to a sibling; else to an idle CPU of the scope.
    #[inline]
    pub(super) fn conserving_target(
        &self,
        core: &mut Core<'_>,
        task: TaskId,
        found: (CpuId, SearchStep),
    ) -> (CpuId, SearchStep) {
        let (target, step) = if !self.idle[found.0.index()] {
            (self.idle_cpu_of_scope(core, task), SearchStep::ScopeCpuIdle)
        } else if self.domains.smt_active() && !self.is_core_idle(found.0) {
            (self.idle_core_of_scope(core, task), SearchStep::ScopeCoreIdle)
        } else {
            return found;
        };
        let Some(cpu) = target else { return found };
        core.decide(self.gathering.decisions.woken_in_scope, task, i64::from(self.domains.sd_llc_id(cpu)));
        (cpu, step)
    }

    /// Whether tasks wait on a CPU: more than the one that runs or, on an idle CPU, is about to. Beside a task of a higher class all of
    /// them do.
    pub(super) fn has_waiting(&self, core: &Core<'_>, cpu: CpuId) -> bool {
        let curr = self.rqs[cpu.index()].curr_task;
        let runs_one = core.curr_is_idle(cpu) || (curr != NONE && self.entities[curr as usize].on_rq);
        self.queues[cpu.index()].h_nr_runnable > u32::from(runs_one)
    }

    /// Sends tasks that wait on a CPU to idle CPUs of their scope.
    #[inline(never)]
    pub(super) fn push_to_scope(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let mut entity = self.rqs[cpu.index()].list_tail;
        let mut pushed = 0;
        while entity != NONE && pushed < self.parameters.nr_migrate {
            let (index, task) = (entity, self.entity_task(entity));
            entity = self.entities[index as usize].list_prev;
            if self.entities[index as usize].delayed || core.task(task).state() == State::Running {
                continue;
            }
            let Some(dst) = self.idle_cpu_of_scope(core, task) else { continue };
            Scheduler::dequeue(self, core, cpu, task, Dequeue::MIGRATING);
            core.set_task_cpu(task, dst, MigrationKind::Balance);
            core.decide(self.gathering.decisions.pushed_in_scope, task, i64::from(self.domains.sd_llc_id(dst)));
            Scheduler::enqueue(self, core, dst, task, Enqueue::MIGRATED);
            Scheduler::check_preempt(self, core, dst, task, WakeFlags::default());
            pushed += 1;
        }
        if pushed > 0 {
            let cost_ns = core.machine().costs().balance_base_ns * u64::from(pushed);
            core.charge(cpu, cost_ns, OverheadKind::Balance);
        }
    }
}
