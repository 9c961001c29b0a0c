//! The scan of the extension: demand, home and scope of a process (`docs/spec/linux-fair.md` sections 8.3 to 8.5).

use warmcore_kernel::Core;
use warmcore_trace::TaskId;

use super::TopologyAware;
use super::sequence::Reach;
use crate::domains::Domains;
use crate::fair::cache_aware::{CacheAware, Seen};
use crate::fair::state::NONE;

/// An LLC as a scan found it; utilisations are 1024 per CPU.
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

    /// Chooses a group's home and scope. `util` gives a CPU's utilisation.
    pub(super) fn scan_scope(
        &mut self,
        core: &mut Core<'_>,
        domains: &Domains,
        group: u32,
        task: TaskId,
        util: impl Fn(u32) -> u64,
    ) {
        let jiffies = core.jiffies();
        let mut raw = 0;
        for llc in 0..self.found.len() {
            let cpus = domains.llc_cpus(llc as u32);
            let mut found = Found { most: (0, NONE), ..Found::default() };
            for &cpu in cpus {
                let util = util(cpu);
                let own = (util * self.base.share(jiffies, group, cpu as usize)) >> 20;
                found.util += util;
                found.own += own;
                if own > found.most.0 {
                    found.most = (own, cpu);
                }
            }
            found.limit = cpus.len() as u64 * 1024 * self.base.limits.full_pct / 100;
            raw += found.own;
            self.found[llc] = found;
        }
        self.scopes[group as usize].observe(raw, u64::from(self.runnable[group as usize]));
        let demand = self.scopes[group as usize].demand(self.base.groups[group as usize].threads);
        let present = self.base.preferred_llc(group);
        let home = self.home(present);
        if home != NONE {
            if home != present {
                let ran_most = self.found[home as usize].most.1;
                let ran_most = Some(ran_most).filter(|&cpu| cpu != NONE);
                if let Some(cpu) = ran_most.or(domains.llc_cpus(home).first().copied()) {
                    self.base.choose(core, group, task, cpu);
                }
            }
            self.order_by_memory(group, home);
            let (old, new) = self.fit_scope(group, home, demand);
            self.tell_scope(core, home, task, old, new);
        }
        CacheAware::pay_for_scan(core, task, self.base.llc_of.len() as u64);
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
