//! What cache-aware scheduling changes in the load balancer, and the hooks of the fair class.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::{DecisionId, TaskId};

use super::CacheAware;
use super::permission::{Direction, Permission, Snapshot, can_migrate_llc};
use crate::domains::flags;
use crate::fair::balance::IdleType;
use crate::fair::balance::pass::Pass;
use crate::fair::balance::stats::{GroupStats, Migration};
use crate::fair::state::NONE;
use crate::fair::{Fair, Policy};

impl CacheAware {
    /// Whether something of utilisation `util` may move between two LLCs; no opinion where one has no domain.
    fn permission(&self, src: u32, dst: u32, util: u64, direction: Direction) -> Permission {
        let (src, dst) = (&self.llcs[src as usize], &self.llcs[dst as usize]);
        if !src.has_domain || !dst.has_domain {
            return Permission::Free;
        }
        can_migrate_llc(self.limits, src.snapshot.get(), dst.snapshot.get(), util, direction)
    }

    /// Whether a task may move between two CPUs (`can_migrate_llc_task`), and why not if not. Takes the preference of a
    /// group away that would be refused at the destination. `waits`: the task waits where no CPU of its LLC is idle, and the
    /// destination is; only the topology-aware extension asks.
    fn task_permission(
        &mut self,
        core: &mut Core<'_>,
        task: TaskId,
        (src, dst): (CpuId, CpuId),
        util: u64,
        waits: bool,
    ) -> (Permission, DecisionId) {
        const NO_OPINION: (Permission, DecisionId) = (Permission::Free, DecisionId::NONE);
        let (src, dst) = (self.llc_of[src.index()], self.llc_of[dst.index()]);
        let group = self.tasks[task.index()].group;
        if group == NONE || src == dst {
            return NO_OPINION;
        }
        let preferred = self.preferred_llc(group);
        if preferred == NONE {
            return NO_OPINION;
        }
        if let Some(refusal) = self.refusal(group, dst) {
            self.drop_preference(core, group, task, self.decisions.dropped(refusal));
            return NO_OPINION;
        }
        if let Some(topology) = &self.topology {
            return self.scope_permission(topology, group, (src, dst), util, waits);
        }
        let direction = if dst == preferred {
            Direction::Toward
        } else if src == preferred {
            Direction::Away
        } else {
            return NO_OPINION;
        };
        (self.permission(src, dst, util, direction), self.decisions.move_refused(direction))
    }

    /// Whether every runnable task of a CPU is on the LLC it prefers.
    fn all_on_preferred(&self, cpu: CpuId, h_nr_runnable: u32) -> bool {
        let on_preferred = self.cpus[cpu.index()].nr_pref_llc_running;
        on_preferred > 0 && on_preferred == h_nr_runnable
    }
}

impl<P: Policy> Fair<P> {
    /// The running task of a queue was charged.
    #[inline(never)]
    pub(in crate::fair) fn charge_llc(&mut self, core: &mut Core<'_>, queue: u32, index: u32, delta_ns: u64) {
        let task = self.entity_task(index);
        let cpu = CpuId(self.queues[queue as usize].cpu);
        let home_node = self.numa_preferred(task);
        let Some(cache_aware) = &mut self.cache_aware else { return };
        let state = &cache_aware.tasks[task.index()];
        if state.group == NONE {
            return;
        }
        let present = state.preferred_llc;
        let wanted = cache_aware.charge(core, cpu, task, delta_ns, home_node);
        let entity = &self.entities[index as usize];
        if wanted != present && entity.on_rq {
            cache_aware.prefer(cpu, task, wanted, entity.delayed);
        }
    }

    /// Whether a pass records the utilisation of its groups as that of their LLCs: those of the level above the LLC do
    /// unless they are new-idle.
    pub(in crate::fair) fn records_llc(&self, pass: &Pass) -> bool {
        let above_llc = || self.domains.sd_llc(pass.dst).is_some_and(|index| index + 1 == pass.domain);
        self.cache_aware.is_some() && pass.idle != IdleType::NewlyIdle && above_llc()
    }

    /// Records it (`record_sg_llc_stats`).
    pub(in crate::fair) fn record_llc(&self, stats: &GroupStats) {
        let Some(cache_aware) = &self.cache_aware else { return };
        let first = self.domains.group_cpus(self.domains.group(stats.group))[0];
        let llc = &cache_aware.llcs[cache_aware.llc_of[first as usize] as usize];
        llc.snapshot.set(Snapshot { util: stats.util, capacity: stats.capacity });
    }

    /// Tasks of a group that would rather be in the destination's LLC, and whether that makes the group a source
    /// (`llc_balance`).
    pub(in crate::fair) fn llc_balance(&self, pass: &Pass, group: u32) -> (u32, bool) {
        let Some(cache_aware) = &self.cache_aware else { return (0, false) };
        let domain = self.domains.domain(pass.domain);
        if domain.has(flags::SHARE_LLC) {
            return (0, false);
        }
        let dst = cache_aware.llc_of[pass.dst.index()];
        let patient = domain.nr_balance_failed < domain.cache_nice_tries + 1;
        if let Some(topology) = &cache_aware.topology {
            return cache_aware.affinity_balance(topology, group, dst, patient);
        }
        // The group is judged by the LLC of its first CPU, whatever it spans.
        let cpus = self.domains.group_cpus(self.domains.group(group));
        let count = cache_aware.count_preferring(cpus, dst);
        let src = cache_aware.llc_of[cpus[0] as usize];
        let wanted = count > 0 && patient && cache_aware.permission(src, dst, 0, Direction::Toward) == Permission::Pull;
        (count, wanted)
    }

    /// Tasks queued on a CPU that prefer the destination's LLC, or what moving them there would gain.
    pub(in crate::fair) fn preferring_dst(&self, pass: &Pass, cpu: u32) -> u32 {
        let Some(cache_aware) = &self.cache_aware else { return 0 };
        let dst = cache_aware.llc_of[pass.dst.index()];
        match &cache_aware.topology {
            Some(topology) => cache_aware.queue_score(topology, cpu, dst),
            None => cache_aware.llc_count(cpu, dst),
        }
    }

    /// Whether a task prefers the destination's LLC, or gains by going there and may; if not, why.
    pub(in crate::fair) fn prefers_dst(
        &mut self,
        core: &mut Core<'_>,
        pass: &Pass,
        task: TaskId,
    ) -> Result<(), DecisionId> {
        let util = self.task_util(task) + pass.pulled_util;
        let waits = self.waits_in_vain(pass);
        let Some(cache_aware) = &mut self.cache_aware else { return Err(DecisionId::NONE) };
        let preferred = cache_aware.tasks[task.index()].preferred_llc;
        let (src, dst) = (cache_aware.llc_of[pass.src.index()], cache_aware.llc_of[pass.dst.index()]);
        let gains = match &cache_aware.topology {
            Some(topology) => preferred != NONE && topology.gain(src, dst, preferred) > 0,
            None if preferred == dst => return Ok(()),
            None => false,
        };
        if !gains {
            return Err(cache_aware.decisions.move_prefers_another);
        }
        match cache_aware.task_permission(core, task, (pass.src, pass.dst), util, waits) {
            (Permission::Pull, _) => Ok(()),
            (Permission::Free, _) if waits => Ok(()),
            // In the scope, and nearer to home, but too full.
            (_, why) => Err(why),
        }
    }

    /// Whether the tasks that a pass looks at wait where no CPU of the LLC is idle while the destination is.
    fn waits_in_vain(&self, pass: &Pass) -> bool {
        let llc = self.domains.sd_llc_id(pass.src);
        !pass.active && pass.idle != IdleType::NotIdle && self.llc_idle_cpus[llc as usize] == 0
    }

    /// Utilisation of a task (`task_util`).
    fn task_util(&self, task: TaskId) -> u64 {
        self.entities[self.task_entity(task) as usize].pelt.util as u64
    }

    /// How many tasks a pass moves to LLCs they prefer.
    pub(in crate::fair) fn llc_batch(&self) -> i64 {
        let topology = self.cache_aware.as_ref().and_then(|cache_aware| cache_aware.topology.as_ref());
        topology.map_or(1, |topology| topology.tunables.batch as i64)
    }

    /// Whether tasks are pulled to LLCs they prefer at every level, not only where siblings are to be filled evenly.
    pub(in crate::fair) fn llc_forced(&self) -> bool {
        self.cache_aware.as_ref().is_some_and(|cache_aware| cache_aware.topology.is_some())
    }

    /// Where a wakeup is to search for an idle CPU; see [`CacheAware::wake_hint`].
    #[inline]
    pub(in crate::fair) fn hinted_target(
        &mut self,
        core: &mut Core<'_>,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
    ) -> CpuId {
        match &mut self.cache_aware {
            Some(cache_aware) => cache_aware.wake_hint(core, &self.domains, task, prev, target),
            None => target,
        }
    }

    /// Whether a task has a reason to stay that the balancer respects as long as it has not failed too often
    /// (`migrate_degrades_llc`).
    pub(in crate::fair) fn migrate_degrades_llc(&mut self, core: &mut Core<'_>, pass: &mut Pass, task: TaskId) -> bool {
        if self.cache_aware.is_none() {
            return false;
        }
        let domain = self.domains.domain(pass.domain);
        if domain.nr_balance_failed > domain.cache_nice_tries {
            return false;
        }
        let for_llc = pass.migration == Migration::LlcTask;
        if for_llc && let Err(why) = self.prefers_dst(core, pass, task) {
            self.tell_refusal(core, pass, task, why);
            return true;
        }
        let (util, waits) = (self.task_util(task), self.waits_in_vain(pass));
        let Some(cache_aware) = &mut self.cache_aware else { return false };
        let (permission, why) = cache_aware.task_permission(core, task, (pass.src, pass.dst), util, waits);
        if permission != Permission::Forbid {
            return false;
        }
        pass.llc_pinned |= !for_llc;
        self.tell_refusal(core, pass, task, why);
        true
    }

    fn tell_refusal(&self, core: &mut Core<'_>, pass: &Pass, task: TaskId, why: DecisionId) {
        let Some(cache_aware) = &self.cache_aware else { return };
        core.decide(why, task, i64::from(cache_aware.llc_of[pass.dst.index()]));
    }

    /// Whether pushing the running task of the source would take tasks out of the LLC they prefer (`alb_break_llc`). A CPU
    /// with a single task is left alone whatever the imbalance.
    pub(in crate::fair) fn alb_break_llc(&mut self, core: &mut Core<'_>, pass: &Pass) -> bool {
        let Some(cache_aware) = &self.cache_aware else { return false };
        let src = pass.src;
        if cache_aware.llc_of[src.index()] == cache_aware.llc_of[pass.dst.index()] {
            return false;
        }
        let at_home = cache_aware.all_on_preferred(src, self.queues[src.index()].h_nr_runnable);
        let alone = self.rqs[src.index()].nr_running <= 1;
        let mut vetoed = at_home && alone;
        if cache_aware.topology.is_some() {
            // The extension lets a task leave a core it shares for one of its own, but no task that is in the scope for good.
            vetoed &= self.is_core_idle(src) || !self.is_core_idle(pass.dst);
        } else if !at_home {
            return false;
        }
        let curr = core.curr(src);
        if vetoed || curr.is_idle() {
            return vetoed;
        }
        let util = self.task_util(curr);
        let Some(cache_aware) = &mut self.cache_aware else { return false };
        cache_aware.task_permission(core, curr, (src, pass.dst), util, false).0 == Permission::Forbid
    }

    /// Tells the trace of a veto.
    pub(in crate::fair) fn tell_veto(&self, core: &mut Core<'_>, pass: &Pass) {
        let Some(cache_aware) = &self.cache_aware else { return };
        self.tell_refusal(core, pass, core.curr(pass.src), cache_aware.decisions.push_leaves);
    }

    /// A task was moved because it prefers the destination's LLC.
    pub(in crate::fair) fn tell_pull(&self, core: &mut Core<'_>, pass: &Pass, task: TaskId) {
        let Some(cache_aware) = &self.cache_aware else { return };
        self.tell_refusal(core, pass, task, cache_aware.decisions.pulled);
    }

    /// Whether the stopper of the source, now starting, takes only tasks that prefer the destination's LLC.
    pub(in crate::fair) fn note_push(&mut self, pass: &Pass) {
        if let Some(cache_aware) = &mut self.cache_aware {
            cache_aware.cpus[pass.src.index()].push_preferring = pass.migration == Migration::LlcTask;
        }
    }

    /// What the stopper of a CPU moves.
    pub(in crate::fair) fn noted_push(&self, src: CpuId) -> Migration {
        match &self.cache_aware {
            Some(cache_aware) if cache_aware.cpus[src.index()].push_preferring => Migration::LlcTask,
            _ => Migration::Load,
        }
    }
}
