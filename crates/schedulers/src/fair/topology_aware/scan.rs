//! The scan of the extension: demand, home and scope of a process (`docs/spec/linux-fair.md` sections 8.3 to 8.5).

use std::collections::BTreeSet;

use warmcore_kernel::Core;
use warmcore_topology::{CpuId, CpuSet, NodeId};
use warmcore_trace::TaskId;

use super::TopologyAware;
use super::sequence::Reach;
use crate::domains::Domains;
use crate::fair::cache_aware::{CacheAware, Seen};
use crate::fair::state::NONE;

/// An LLC as a scan found it; utilisations are 1024 per CPU of the biggest kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// Utilisation by the group: each CPU's times the group's share of its busy time.
    own: u64,
    /// Utilisation by all.
    util: u64,
    /// Utilisation at which it counts as full.
    limit: u64,
    /// Highest own utilisation of a CPU, and the CPU.
    most: (u64, u32),
}

/// Whether `best` takes over from `present`, given the factor in percent.
pub(super) fn takes_over(best: u64, present: u64, hysteresis_pct: u64) -> bool {
    best * 100 > present * hysteresis_pct
}

impl TopologyAware {
    /// Home LLC of a group whose home was `present` (or [`NONE`]): first the node, then the LLC in it. [`NONE`] if the group ran
    /// nowhere.
    fn home(&self, present: u32) -> u32 {
        let llcs = self.found.len() as u32;
        let own = |llc: u32| self.found[llc as usize].own;
        let of_node = |node: u32| -> u64 { (0..llcs).filter(|&llc| self.sequences.node(llc) == node).map(own).sum() };
        // The first of equals, as everywhere.
        let best_of = |candidates: &mut dyn Iterator<Item = (u64, u32)>| {
            candidates.fold((0, NONE), |best, candidate| if candidate.0 > best.0 { candidate } else { best })
        };
        let hysteresis = self.tunables.home_hyst;
        let (occupied, mut node) =
            best_of(&mut (0..llcs).map(|llc| (of_node(self.sequences.node(llc)), self.sequences.node(llc))));
        if present != NONE {
            let home_node = self.sequences.node(present);
            if !takes_over(occupied, of_node(home_node), hysteresis) {
                node = home_node;
            }
        }
        let home_node = (present != NONE).then(|| self.sequences.node(present));
        if let Some(with_memory) = self.node_with_most_memory(home_node) {
            node = with_memory;
        }
        if node == NONE {
            return present;
        }
        let in_node = |llc: &u32| self.sequences.node(*llc) == node;
        let (occupied, mut best) = best_of(&mut (0..llcs).filter(in_node).map(|llc| (own(llc), llc)));
        if best == NONE {
            // Nobody has run where the memory is.
            best = (0..llcs).find(in_node).unwrap_or(NONE);
        }
        let stays = present != NONE && in_node(&present) && !takes_over(occupied, own(present), hysteresis);
        if stays || best == NONE { present } else { best }
    }

    /// Fits a group's scope to its demand; returns the sizes before and after.
    fn fit_scope(&mut self, group: u32, home: u32, demand: u64) -> (u32, u32) {
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        let mut sum = 0;
        for &llc in self.order(group, home) {
            let found = &self.found[llc as usize];
            sum += found.limit.saturating_sub(found.util - found.own.min(found.util));
            room.push(sum);
        }
        self.room = room;
        let (sequences, ladder) = (&self.sequences, self.tunables.mode != 0);
        let rounded = |size| if ladder { sequences.rounded(home, size) } else { size };
        let less = |size| if ladder { sequences.one_step_less(home, size) } else { size - 1 };
        let scope = &mut self.scopes[group as usize];
        let old = scope.fit(demand, &self.room, self.patience, rounded, less);
        (old, scope.size)
    }

    /// CPUs that a scan looks at with N1 and N2: those of the nodes in view (8.8). `None`: all.
    pub(super) fn cpus_to_scan(&self, core: &Core<'_>, group: u32) -> Option<CpuSet> {
        let machine = core.machine();
        if machine.node_count() == 1 {
            return None;
        }
        let node_of = |task: TaskId| machine.node_of(core.task(task).cpu()).0;
        let mut cpus = CpuSet::new();
        for node in self.nodes_in_view(group, node_of) {
            cpus.union_with(machine.cpus_of_node(NodeId(node)));
        }
        Some(cpus)
    }

    /// Nodes that a group's scope has LLCs in, and those that its living threads are on or, asleep, were on last.
    fn nodes_in_view(&self, group: u32, node_of: impl Fn(TaskId) -> u32) -> BTreeSet<u32> {
        let home = self.base.preferred_llc(group);
        let scope: &[u32] = if home == NONE { &[] } else { self.scope(group, home) };
        let of_scope = scope.iter().map(|&llc| self.sequences.node(llc));
        let of_threads = self.members[group as usize].iter().map(|&task| node_of(task));
        of_scope.chain(of_threads).collect()
    }

    /// Looks at the LLCs that have some of these CPUs, or all. Of the others it is known what passes have recorded, and the group counts for
    /// nothing there. Returns the group's utilisation and the number of CPUs looked at.
    fn look_around(
        &mut self,
        jiffies: u64,
        domains: &Domains,
        group: u32,
        cpus: Option<&CpuSet>,
        util: impl Fn(u32) -> u64,
    ) -> (u64, u64) {
        let (mut raw, mut examined) = (0, 0);
        for llc in 0..self.found.len() {
            let of_llc = domains.llc_cpus(llc as u32);
            let capacity: u64 = of_llc.iter().map(|&cpu| u64::from(domains.capacity_of(CpuId(cpu)))).sum();
            let limit = capacity * self.base.limits.full_pct / 100;
            let mut found = Found { limit, most: (0, NONE), ..Found::default() };
            if cpus.is_some_and(|cpus| !of_llc.iter().any(|&cpu| cpus.contains(CpuId(cpu)))) {
                found.util = self.base.llcs[llc].snapshot.get().util;
                self.found[llc] = found;
                continue;
            }
            for &cpu in of_llc {
                let util = util(cpu);
                let own = (util * self.base.share(jiffies, group, cpu as usize)) >> 20;
                found.util += util;
                found.own += own;
                if own > found.most.0 {
                    found.most = (own, cpu);
                }
            }
            examined += of_llc.len() as u64;
            raw += found.own;
            self.found[llc] = found;
        }
        (raw, examined)
    }

    /// Chooses a group's home and scope, in a scan by one of its threads. `cpus` are those to look at, or all; `util` gives a CPU's utilisation.
    pub(super) fn scan_scope(
        &mut self,
        core: &mut Core<'_>,
        domains: &Domains,
        (group, task): (u32, TaskId),
        cpus: Option<&CpuSet>,
        util: impl Fn(u32) -> u64,
    ) {
        let (raw, examined) = self.look_around(core.jiffies(), domains, group, cpus, util);
        self.scopes[group as usize].observe(raw, u64::from(self.runnable[group as usize]));
        let demand = self.scopes[group as usize].demand(self.base.groups[group as usize].threads);
        let present = self.base.preferred_llc(group);
        let home = self.home(present);
        if home != NONE {
            if home != present {
                let ran_most = self.found[home as usize].most.1;
                let ran_most = Some(ran_most).filter(|&cpu| cpu != NONE);
                if let Some(cpu) = ran_most.or(domains.llc_cpus(home).first().copied()) {
                    self.base.choose(core, group, task, cpu, self.home_told.changed);
                }
            }
            self.order_by_memory(group, home);
            let (old, new) = self.fit_scope(group, home, demand);
            self.tell_scope(core, home, task, old, new);
        }
        CacheAware::pay_for_scan(core, task, examined);
    }

    /// Tells, as a scan of the base does, that every thread outside of the scope runs alone in its LLC. It changes nothing.
    pub(super) fn tell_apart(
        &self,
        core: &mut Core<'_>,
        domains: &Domains,
        group: u32,
        task: TaskId,
        seen: impl Fn(u32) -> Seen,
    ) {
        let home = self.base.preferred_llc(group);
        if home == NONE {
            return;
        }
        let outside = (0..domains.llc_count() as u32).filter(|&llc| !self.in_scope(group, home, llc));
        let mut apart = outside.filter_map(|llc| self.base.runs_alone(domains.llc_cpus(llc), group, &seen)).peekable();
        if apart.peek().is_some() && apart.all(|alone| alone) {
            self.base.tell_apart(core, group, task);
        }
    }

    /// Puts a change of the scope into the trace: its direction with the new number of LLCs, and the level it reaches if that changed.
    fn tell_scope(&self, core: &mut Core<'_>, home: u32, task: TaskId, old: u32, new: u32) {
        if old == new {
            return;
        }
        let told = &self.decisions;
        core.decide(if new > old { told.grew } else { told.shrank }, task, i64::from(new));
        let reach = self.sequences.reach(home, new);
        if old == 0 || reach != self.sequences.reach(home, old) {
            let level = match reach {
                Reach::Llc => told.reaches_llc,
                Reach::Node => told.reaches_node,
                Reach::Socket => told.reaches_socket,
                Reach::System => told.reaches_system,
            };
            core.decide(level, task, i64::from(new));
        }
    }
}

#[cfg(test)]
mod tests {
    use warmcore_kernel::Boot;
    use warmcore_topology::resolve;

    use super::*;
    use crate::domains::DomainParameters;
    use crate::fair::cache_aware::CacheAwareTunables;
    use crate::fair::gathering::Gathering;
    use crate::fair::topology_aware::TopologyAwareTunables;
    use crate::fair::topology_aware::by_memory::OwnSequence;
    use crate::fair::topology_aware::scope::Scope;

    /// Two nodes of two LLCs of two CPUs, and a group that had 90 % of CPU 0 and 10 % of CPU 4.
    fn two_nodes() -> (TopologyAware, Domains) {
        let machine = resolve("2s1n2l2c1t").unwrap();
        let domains = Domains::build(&machine, &DomainParameters::default());
        let tunables = (TopologyAwareTunables::default(), CacheAwareTunables::default());
        let mut state = TopologyAware::new(tunables.0, tunables.1, &Boot::new(&machine), &domains).unwrap();
        state.base.add_group_that_ran(&[900, 0, 0, 0, 100, 0, 0, 0]);
        state.scopes.push(Scope::default());
        state.own_sequences.push(OwnSequence::default());
        (state, domains)
    }

    const UTIL: [u64; 8] = [1000, 0, 200, 0, 400, 0, 0, 0];

    /// 1000 · 900/1001 and 400 · 100/1001, rounded down.
    #[test]
    fn a_scan_pays_for_the_llcs_it_looks_at_and_counts_no_others() {
        let (mut state, domains) = two_nodes();
        let first: CpuSet = (0..4).map(CpuId).collect();
        let mut look = |cpus| state.look_around(0, &domains, 0, cpus, |cpu| UTIL[cpu as usize]);
        assert_eq!([look(None), look(Some(&first))], [(899 + 39, 8), (899, 4)]);
    }

    /// An LLC is full at 75 % of 2048, 1536. Others than the group leave 1536 − 101 in the first, 1336 in the second, and by the
    /// recorded snapshot 836 in the third: 1435, 2771 and 3607.
    #[test]
    fn a_scope_grows_into_llcs_that_were_not_looked_at_by_what_passes_recorded() {
        let (mut state, domains) = two_nodes();
        state.base.record_llc(CpuId(4), 700, 2048);
        let first: CpuSet = (0..4).map(CpuId).collect();
        state.look_around(0, &domains, 0, Some(&first), |cpu| UTIL[cpu as usize]);
        let sizes = [1435, 1436, 2772, 3607, 3608].map(|demand| state.fit_scope(0, 0, demand).1);
        assert_eq!(sizes, [1, 2, 3, 3, 4]);
    }

    /// Half a CPU less is three quarters of that less room.
    #[test]
    fn an_llc_is_full_at_a_part_of_its_capacity() {
        let (mut state, mut domains) = two_nodes();
        domains.set_capacity(CpuId(1), 512);
        state.look_around(0, &domains, 0, None, |_| 0);
        assert_eq!([state.found[0].limit, state.found[1].limit], [1152, 1536]);
    }

    #[test]
    fn in_view_are_the_nodes_of_the_scope_and_of_living_threads() {
        let (mut state, _) = two_nodes();
        state.members.resize(2, Vec::new());
        // Task 0 is of the group, task 1 leaves it by its end, task 2 for another.
        for task in 0..3 {
            state.move_member(TaskId(task), NONE, 0);
        }
        state.move_member(TaskId(1), 0, NONE);
        state.move_member(TaskId(2), 0, 1);
        let node_of = |task: TaskId| [1, 0, 0][task.index()];
        assert_eq!(state.nodes_in_view(0, node_of), BTreeSet::from([1]));
        (state.base.groups[0].cpu, state.scopes[0].size) = (0, 1);
        assert_eq!(state.nodes_in_view(0, node_of), BTreeSet::from([0, 1]));
    }
}
