//! What the extension answers the fair class: the base's answer where nothing is said here.

use warmcore_kernel::{Core, Task};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{DecisionId, SearchStart, SearchStep, TaskId};

use super::by_memory::OwnSequence;
use super::permission::{LlcStanding, ScopeView};
use super::scope::Scope;
use super::{TopologyAware, group_llcs};
use crate::domains::Domains;
use crate::fair::cache_aware::Seen;
use crate::fair::decisions::FairDecisions;
use crate::fair::gathering::{Charge, Gathering, Move, Permission, Push, PushPermission};
use crate::fair::state::NONE;
use crate::fair::{Fair, Policy, cpu_util};

/// Time after a hint in which a task gets no other.
const HINT_INTERVAL_NS: u64 = 16_000_000;

/// `numa_mode` from which on the scope, not NUMA balancing, decides where a task runs.
const N1: u64 = 1;

impl TopologyAware {
    /// Whether an LLC is in a group's scope, given its home.
    pub(super) fn in_scope(&self, group: u32, home: u32, llc: u32) -> bool {
        self.position(group, home, llc) < self.scopes[group as usize].size
    }

    /// Whether a task of a group with a home may move between two LLCs, and why not.
    fn scope_permission(&self, group: u32, (src, dst): (u32, u32), wanted: &Move) -> (Permission, DecisionId) {
        let (base, util) = (&self.base, wanted.util);
        let home = base.preferred_llc(group);
        let size = self.scopes[group as usize].size;
        let place = |llc: u32| LlcStanding {
            llc: base.llcs[llc as usize].snapshot.get(),
            position: self.position(group, home, llc),
            distance: self.sequences.distance(home, llc),
        };
        let (from, to) = (place(src), place(dst));
        let leaves = from.position < size && to.position >= size;
        let fits = |&llc: &u32| {
            let snapshot = base.llcs[llc as usize].snapshot.get();
            base.limits.fits(snapshot.util + util, snapshot.capacity)
        };
        let view = ScopeView {
            limits: base.limits,
            size,
            pack: self.tunables.fill == 0,
            waits: self.heeds_waiting(wanted),
            has_room: leaves && self.order(group, home)[..size as usize].iter().any(fits),
        };
        let why = match (from.position < size, to.position < size) {
            (true, false) => self.decisions.move_leaves_scope,
            (false, true) => base.decisions.move_overfills,
            (true, true) if to.position < from.position => base.decisions.move_overfills,
            (true, true) => self.decisions.move_out_of_order,
            (false, false) => self.decisions.move_away_from_home,
        };
        (view.decide(from, to, util), why)
    }

    /// There may be more groups than before.
    fn follow_groups(&mut self) {
        let groups = self.base.groups.len();
        self.scopes.resize(groups, Scope::default());
        self.runnable.resize(groups, 0);
        self.members.resize(groups, Vec::new());
        self.own_sequences.resize(groups, OwnSequence::default());
    }

    /// A living task goes from a group, or none, to another, or none.
    pub(super) fn move_member(&mut self, task: TaskId, from: u32, to: u32) {
        if from != NONE {
            self.members[from as usize].retain(|known| *known != task);
        }
        if to != NONE {
            self.members[to as usize].push(task);
        }
    }

    /// Counts a task in or out of what its group has queued and awake.
    fn count_runnable(&mut self, task: TaskId, change: i32) {
        let group = self.base.tasks[task.index()].group;
        if group != NONE {
            let runnable = &mut self.runnable[group as usize];
            *runnable = runnable.wrapping_add_signed(change);
        }
    }

    /// Entry of `counts` for a task queued on a CPU, if it prefers an LLC.
    fn count_of(&mut self, cpu: CpuId, task: TaskId) -> Option<&mut u32> {
        let preferred = self.base.tasks[task.index()].preferred_llc;
        let llc = self.base.llc_of[cpu.index()] as usize;
        (preferred != NONE).then(|| &mut self.counts[llc * self.found.len() + preferred as usize])
    }
}

impl Gathering for TopologyAware {
    fn init(&mut self, told: &FairDecisions) {
        self.base.init(told);
        (self.decisions, self.home_told) = (told.topology_aware, told.home);
    }

    fn reads_resident_pages(&self) -> bool {
        self.base.reads_resident_pages()
    }

    fn domains_rebuilt(&mut self, machine: &Machine, domains: &Domains) {
        self.base.domains_rebuilt(machine, domains);
        self.group_llcs = group_llcs(domains);
    }

    fn unplugged(&mut self, cpu: CpuId) {
        self.base.unplugged(cpu);
    }

    fn task_created(&mut self, task: &Task) {
        let id = TaskId(self.base.tasks.len() as u32);
        self.base.task_created(task);
        self.follow_groups();
        self.hinted_ns.push(0);
        self.move_member(id, NONE, self.base.tasks[id.index()].group);
    }

    fn task_changed(&mut self, id: TaskId, task: &Task) {
        let before = self.base.tasks[id.index()].group;
        self.base.task_changed(id, task);
        self.follow_groups();
        let now = self.base.tasks[id.index()].group;
        if now != before {
            self.move_member(id, before, now);
        }
    }

    fn task_exited(&mut self, task: TaskId) {
        self.base.task_exited(task);
        self.move_member(task, self.base.tasks[task.index()].group, NONE);
    }

    fn enqueued(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        self.count_runnable(task, i32::from(!delayed));
        if let Some(count) = self.count_of(cpu, task) {
            *count += 1;
        }
        self.base.enqueued(cpu, task, delayed);
    }

    fn dequeued(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        self.count_runnable(task, -i32::from(!delayed));
        if let Some(count) = self.count_of(cpu, task) {
            *count -= 1;
        }
        self.base.dequeued(cpu, task, delayed);
    }

    fn delay_changed(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        self.count_runnable(task, if delayed { -1 } else { 1 });
        self.base.delay_changed(cpu, task, delayed);
    }

    fn charged(&mut self, core: &mut Core<'_>, charge: Charge) {
        if let Some((llc, delayed)) = self.base.charge(core, charge) {
            self.dequeued(charge.cpu, charge.task, delayed);
            self.base.tasks[charge.task.index()].preferred_llc = llc;
            self.enqueued(charge.cpu, charge.task, delayed);
        }
    }

    fn tick(&mut self, cpu: CpuId, task: TaskId) -> bool {
        self.base.tick(cpu, task)
    }

    fn scan<P: Policy>(fair: &mut Fair<P, Self>, core: &mut Core<'_>, task: TaskId) {
        let by_numa = fair.numa_scan_cpus(core, task, fair.gathering.preferred_cpu(task));
        let Fair { gathering, domains, queues, rqs, numa, task_base, .. } = fair;
        let Some((group, _)) = gathering.base.begin_scan(core, task) else { return };
        gathering.count_memory(group, numa.as_deref());
        let cpus = if gathering.tunables.numa_mode < N1 { by_numa } else { gathering.cpus_to_scan(core, group) };
        let util = |cpu: u32| cpu_util(&queues[cpu as usize], &rqs[cpu as usize]);
        gathering.scan_scope(core, domains, (group, task), cpus.as_ref(), util);
        gathering.tell_apart(core, domains, group, task, |cpu| Seen::of(&rqs[cpu as usize], *task_base));
    }

    fn push_waiting<P: Policy>(fair: &mut Fair<P, Self>, core: &mut Core<'_>, cpu: CpuId) {
        if fair.has_waiting(core, cpu) {
            fair.push_to_scope(core, cpu);
        }
    }

    /// The CPU around which a wakeup should search, instead of `target` (\[O\], off by default): the previous one if only that is
    /// in scope, the home if neither is.
    fn wake_target(
        &mut self,
        core: &mut Core<'_>,
        domains: &Domains,
        task: TaskId,
        prev: CpuId,
        target: (CpuId, SearchStart),
    ) -> (CpuId, SearchStart) {
        let base = &self.base;
        let group = base.tasks[task.index()].group;
        if self.tunables.wake_hint == 0 || group == NONE {
            return target;
        }
        let home = base.preferred_llc(group);
        let in_scope = |cpu: CpuId| self.in_scope(group, home, base.llc_of[cpu.index()]);
        if home == NONE || in_scope(target.0) {
            return target;
        }
        let has_room = |llc: u32| domains.shared(llc).nr_idle_scan > 0;
        let prev_llc = base.llc_of[prev.index()];
        if in_scope(prev) {
            if has_room(prev_llc) {
                core.decide(self.decisions.hint_previous, task, i64::from(prev_llc));
                return (prev, SearchStart::HintPrevious);
            }
            return target;
        }
        let now_ns = core.now_ns();
        let home_cpu = CpuId(base.groups[group as usize].cpu);
        let hinted_ns = &mut self.hinted_ns[task.index()];
        if has_room(home) && now_ns > *hinted_ns + HINT_INTERVAL_NS && core.may_run_on(task, home_cpu) {
            *hinted_ns = now_ns;
            core.decide(self.decisions.hint_home, task, i64::from(home));
            return (home_cpu, SearchStart::HintHome);
        }
        target
    }

    #[inline]
    fn wake_found<P: Policy>(
        fair: &Fair<P, Self>,
        core: &mut Core<'_>,
        task: TaskId,
        found: (CpuId, SearchStep),
    ) -> (CpuId, SearchStep) {
        fair.conserving_target(core, task, found)
    }

    fn record_llc(&self, cpu: CpuId, util: u64, capacity: u64) {
        self.base.record_llc(cpu, util, capacity);
    }

    fn group_gain(
        &self,
        domains: &Domains,
        group: u32,
        dst: CpuId,
        patient: bool,
        left_out: impl Fn(u32) -> bool,
    ) -> (u32, bool) {
        let cpus = domains.group_cpus(domains.group(group)).iter().map(|&cpu| CpuId(cpu));
        self.group_score(group, self.base.llc_of[dst.index()], patient, cpus.filter(|cpu| left_out(cpu.0)))
    }

    fn queue_gain(&self, src: CpuId, dst: CpuId) -> u32 {
        self.queue_score(src, self.base.llc_of[dst.index()])
    }

    fn batch(&self) -> i64 {
        self.tunables.batch as i64
    }

    fn pulls_at_every_level(&self) -> bool {
        true
    }

    fn prefers(&mut self, core: &mut Core<'_>, wanted: Move) -> Result<(), DecisionId> {
        let preferred = self.base.tasks[wanted.task.index()].preferred_llc;
        let (src, dst) = (self.base.llc_of[wanted.src.index()], self.base.llc_of[wanted.dst.index()]);
        if preferred == NONE || self.gain(src, dst, preferred) == 0 {
            return Err(self.base.decisions.move_prefers_another);
        }
        match self.permission(core, wanted) {
            (Permission::Pull, _) => Ok(()),
            (Permission::Free, _) if self.heeds_waiting(&wanted) => Ok(()),
            // In the scope, and nearer to home, but too full.
            (_, why) => Err(why),
        }
    }

    fn permission(&mut self, core: &mut Core<'_>, wanted: Move) -> (Permission, DecisionId) {
        match self.base.crossing(core, &wanted) {
            Some((group, src, dst)) => self.scope_permission(group, (src, dst), &wanted),
            None => (Permission::Free, self.base.decisions.move_overfills),
        }
    }

    /// A task may leave a core it shares for one of its own, but none leaves the scope for good.
    fn push_permission(&self, push: Push) -> PushPermission {
        let at_home = self.base.all_on_preferred(push.src, push.h_nr_runnable);
        if at_home && push.alone && !push.gains_core { PushPermission::Vetoed } else { PushPermission::AskTask }
    }

    fn tell_veto(&self, core: &mut Core<'_>, task: TaskId, llc: u32) {
        self.base.tell_veto(core, task, llc);
    }

    fn tell_pull(&self, core: &mut Core<'_>, task: TaskId, llc: u32) {
        if llc == self.base.tasks[task.index()].preferred_llc {
            self.base.tell_pull(core, task, llc);
        } else {
            core.decide(self.home_told.pulled, task, i64::from(llc));
        }
    }

    fn note_push(&mut self, src: CpuId, preferring: bool) {
        self.base.note_push(src, preferring);
    }

    fn pushes_preferring(&self, src: CpuId) -> bool {
        self.base.pushes_preferring(src)
    }

    fn preferred_cpu(&self, task: TaskId) -> Option<CpuId> {
        self.base.preferred_cpu(task)
    }

    fn change_footprint(&mut self, task: TaskId, pages: i64) {
        self.base.change_footprint(task, pages);
    }

    /// Pages follow all the same (8.8, modes N1 and N2).
    fn overrides_numa(&self, task: TaskId) -> bool {
        self.tunables.numa_mode >= N1 && self.preferred_cpu(task).is_some()
    }

    fn is_far_from_memory(&self, core: &Core<'_>, task: TaskId) -> bool {
        self.runs_outside(task, core.task(task).cpu())
    }

    fn rank_near_memory(&self, task: TaskId, cpu: CpuId) -> Option<u32> {
        self.place_near_memory(task, cpu)
    }

    fn node_to_search(&self, task: TaskId, preferred: u32) -> u32 {
        self.first_node(task, preferred)
    }
}

#[cfg(test)]
mod tests {
    use warmcore_kernel::Boot;
    use warmcore_topology::resolve;

    use super::*;
    use crate::domains::DomainParameters;
    use crate::fair::cache_aware::CacheAwareTunables;
    use crate::fair::topology_aware::TopologyAwareTunables;

    /// Two LLCs in a scope, full at 1536: the home has 300 and the other 100. A task of 100 that waits in the home may go on only where its
    /// waiting counts; by the order of the scope it stays.
    #[test]
    fn balancing_heeds_who_waits_only_with_conserve() {
        let machine = resolve("1s1n2l2c1t").unwrap();
        let domains = Domains::build(&machine, &DomainParameters::default());
        let permission = |conserve| {
            let tunables = TopologyAwareTunables { conserve, ..TopologyAwareTunables::default() };
            let boot = Boot::new(&machine);
            let mut state = TopologyAware::new(tunables, CacheAwareTunables::default(), &boot, &domains).unwrap();
            state.base.add_group_that_ran(&[0; 4]);
            state.base.groups[0].cpu = 0;
            state.follow_groups();
            state.scopes[0].size = 2;
            state.record_llc(CpuId(0), 300, 2048);
            state.record_llc(CpuId(2), 100, 2048);
            let wanted = Move { task: TaskId(0), src: CpuId(0), dst: CpuId(2), util: 100, waits: true };
            (state.heeds_waiting(&wanted), state.scope_permission(0, (0, 1), &wanted).0)
        };
        let expected = [(false, Permission::Forbid), (true, Permission::Pull), (true, Permission::Pull)];
        assert_eq!([0, 1, 2].map(permission), expected);
    }
}
