//! The extension in the load balancer: permissions by scope, sources by affinity promotion, and the hint to wakeups.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::{DecisionId, TaskId};

use super::TopologyAware;
use super::permission::{Place, ScopeView};
use crate::domains::Domains;
use crate::fair::cache_aware::CacheAware;
use crate::fair::cache_aware::permission::Permission;
use crate::fair::state::NONE;

/// Time after a hint in which a task gets no other.
const HINT_INTERVAL_NS: u64 = 16_000_000;

impl TopologyAware {
    /// Whether an LLC is in a group's scope, given its home.
    fn in_scope(&self, group: u32, home: u32, llc: u32) -> bool {
        self.position(group, home, llc) < self.scopes[group as usize].size
    }

    /// What moving one task that prefers `home` gains.
    pub fn gain(&self, src: u32, dst: u32, home: u32) -> u64 {
        self.gain.of(&self.sequences, src, dst, home)
    }
}

impl CacheAware {
    /// Whether a task of a group with a home may move between two LLCs, and why not. `waits`: see [`ScopeView`].
    pub(in crate::fair) fn scope_permission(
        &self,
        topology: &TopologyAware,
        group: u32,
        (src, dst): (u32, u32),
        util: u64,
        waits: bool,
    ) -> (Permission, DecisionId) {
        let home = self.preferred_llc(group);
        let size = topology.scopes[group as usize].size;
        let sequences = &topology.sequences;
        let place = |llc: u32| Place {
            llc: self.llcs[llc as usize].snapshot.get(),
            position: topology.position(group, home, llc),
            distance: sequences.distance(home, llc),
        };
        let (from, to) = (place(src), place(dst));
        let leaves = from.position < size && to.position >= size;
        let fits = |&llc: &u32| {
            let snapshot = self.llcs[llc as usize].snapshot.get();
            self.limits.fits(snapshot.util + util, snapshot.capacity)
        };
        let view = ScopeView {
            limits: self.limits,
            size,
            pack: topology.tunables.fill == 0,
            waits,
            has_room: leaves && topology.order(group, home)[..size as usize].iter().any(fits),
        };
        let told = &topology.decisions;
        let why = match (from.position < size, to.position < size) {
            (true, false) => told.move_leaves_scope,
            (false, true) => self.decisions.move_overfills,
            (true, true) if to.position < from.position => self.decisions.move_overfills,
            (true, true) => told.move_out_of_order,
            (false, false) => told.move_away_from_home,
        };
        (view.decide(from, to, util), why)
    }

    /// Sum over a group of CPUs of what moving its queued tasks to an LLC would gain, and whether the group is a source.
    pub(in crate::fair) fn affinity_balance(
        &self,
        topology: &TopologyAware,
        domain_group: u32,
        dst: u32,
        patient: bool,
    ) -> (u32, bool) {
        let llcs = self.llcs.len();
        let (mut score, mut weighted) = (0, 0);
        for &src in topology.group_llcs[domain_group as usize].iter().filter(|&&src| src != dst) {
            let counts = &topology.counts[src as usize * llcs..][..llcs];
            let wanted = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            let gained: u64 =
                wanted.map(|(home, &count)| u64::from(count) * topology.gain(src, dst, home as u32)).sum();
            score += gained;
            weighted += gained * self.llcs[src as usize].snapshot.get().util;
        }
        if score == 0 {
            return (0, false);
        }
        let target = self.llcs[dst as usize].snapshot.get();
        let fits = self.limits.fits(target.util, target.capacity);
        let wanted = patient && target.capacity > 0 && (fits || !self.limits.greater(target.util, weighted / score));
        (u32::try_from(score).unwrap_or(u32::MAX), wanted)
    }

    /// What moving a CPU's queued tasks to an LLC would gain.
    pub(in crate::fair) fn queue_score(&self, topology: &TopologyAware, cpu: u32, dst: u32) -> u32 {
        let src = self.llc_of[cpu as usize];
        let homes = (0..self.llcs.len() as u32).filter(|&home| self.wanting[home as usize] > 0);
        let gains = homes.map(|home| u64::from(self.llc_count(cpu, home)) * topology.gain(src, dst, home));
        u32::try_from(gains.sum::<u64>()).unwrap_or(u32::MAX)
    }

    /// The CPU around which a wakeup should search, instead of `target` (\[O\], off by default): the previous one if only that is
    /// in scope, the home if neither is.
    pub(in crate::fair) fn wake_hint(
        &mut self,
        core: &mut Core<'_>,
        domains: &Domains,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
    ) -> CpuId {
        let Some(topology) = self.topology.as_ref().filter(|topology| topology.tunables.wake_hint != 0) else {
            return target;
        };
        let group = self.tasks[task.index()].group;
        if group == NONE {
            return target;
        }
        let home = self.preferred_llc(group);
        let in_scope = |cpu: CpuId| topology.in_scope(group, home, self.llc_of[cpu.index()]);
        if home == NONE || in_scope(target) {
            return target;
        }
        let has_room = |llc: u32| domains.shared(llc).nr_idle_scan > 0;
        let prev_llc = self.llc_of[prev.index()];
        if in_scope(prev) {
            if has_room(prev_llc) {
                core.decide(topology.decisions.hint_previous, task, i64::from(prev_llc));
                return prev;
            }
            return target;
        }
        let (now_ns, hint_home) = (core.now_ns(), topology.decisions.hint_home);
        let hinted_ns = self.tasks[task.index()].hinted_ns;
        let home_cpu = CpuId(self.groups[group as usize].cpu);
        if has_room(home) && now_ns > hinted_ns + HINT_INTERVAL_NS && core.may_run_on(task, home_cpu) {
            self.tasks[task.index()].hinted_ns = now_ns;
            core.decide(hint_home, task, i64::from(home));
            return home_cpu;
        }
        target
    }
}
