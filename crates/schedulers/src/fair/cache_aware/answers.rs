//! What cache-aware scheduling answers the fair class.

use warmcore_kernel::{Core, Task};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{DecisionId, TaskId};

use super::permission::{Direction, Snapshot, can_migrate_llc};
use super::scan::Seen;
use super::{CacheAware, Llc, new_llc};
use crate::domains::Domains;
use crate::fair::decisions::FairDecisions;
use crate::fair::gathering::{Charge, Gathering, Move, Permission, Push, PushPermission};
use crate::fair::state::NONE;
use crate::fair::{Fair, Policy};
use crate::tunables::TunableSet as _;

impl CacheAware {
    /// Whether something of utilisation `util` may move between two LLCs; no opinion where one has no domain.
    fn llc_permission(&self, src: u32, dst: u32, util: u64, direction: Direction) -> Permission {
        let (src, dst) = (&self.llcs[src as usize], &self.llcs[dst as usize]);
        if !src.has_domain || !dst.has_domain {
            return Permission::Free;
        }
        can_migrate_llc(self.limits, src.snapshot.get(), dst.snapshot.get(), util, direction)
    }

    /// Whether something of utilisation `util` may not leave the LLC of the first CPU, which it prefers, for that of the second.
    fn forbids_leaving(&self, (src, dst): (CpuId, CpuId), util: u64) -> bool {
        let (src, dst) = (self.llc_of[src.index()], self.llc_of[dst.index()]);
        self.llc_permission(src, dst, util, Direction::Away) == Permission::Forbid
    }

    /// The group of a task that goes to another LLC, and the two LLCs, if the group has a preference to respect. Takes
    /// the preference of a group away that would be refused at the destination.
    pub(in crate::fair) fn crossing(&mut self, core: &mut Core<'_>, wanted: &Move) -> Option<(u32, u32, u32)> {
        let (src, dst) = (self.llc_of[wanted.src.index()], self.llc_of[wanted.dst.index()]);
        let group = self.tasks[wanted.task.index()].group;
        if group == NONE || src == dst || self.preferred_llc(group) == NONE {
            return None;
        }
        if let Some(refusal) = self.refusal(core, group, dst) {
            self.drop_preference(core, group, wanted.task, self.dropped(refusal));
            return None;
        }
        Some((group, src, dst))
    }

    /// Whether every runnable task of a CPU is on the LLC it prefers.
    pub(in crate::fair) fn all_on_preferred(&self, cpu: CpuId, h_nr_runnable: u32) -> bool {
        let on_preferred = self.cpus[cpu.index()].nr_pref_llc_running;
        on_preferred > 0 && on_preferred == h_nr_runnable
    }
}

impl Gathering for CacheAware {
    fn init(&mut self, told: &FairDecisions) {
        (self.decisions, self.apart, self.refusals) = (told.cache_aware, told.apart, told.refusals);
    }

    fn reads_resident_pages(&self) -> bool {
        self.tunables.counts_resident_pages()
    }

    fn set_tunable(&mut self, name: &str, value: u64) {
        if Self::CHANGEABLE.contains(&name) && self.tunables.set(name, value) {
            self.limits = self.tunables.limits(self.smt_width as usize);
            // 0, the kernel's own choice when it starts, does not come here.
            if name == "epoch_period" {
                self.epoch_jiffies = value.max(1);
            }
        }
    }

    fn domains_rebuilt(&mut self, machine: &Machine, domains: &Domains) {
        for (number, llc) in (0..).zip(&mut self.llcs) {
            let snapshot = llc.snapshot.take();
            *llc = match domains.llc_cpus(number) {
                // All its CPUs are offline.
                [] => Llc { size: 0, has_domain: false, ..llc.clone() },
                _ => new_llc(machine, domains, number),
            };
            llc.snapshot.set(snapshot);
        }
    }

    /// Who gathers around it has no preference any more: its LLC has no number for it (`sched_domains_free_llc_id`).
    fn unplugged(&mut self, cpu: CpuId) {
        for group in self.groups.iter_mut().filter(|group| group.cpu == cpu.0) {
            group.cpu = NONE;
        }
    }

    fn task_created(&mut self, task: &Task) {
        self.add_task(task);
    }

    fn task_changed(&mut self, id: TaskId, task: &Task) {
        self.regroup(id, task);
    }

    fn task_exited(&mut self, task: TaskId) {
        self.tasks[task.index()].scan_pending = false;
        self.leave(task);
    }

    fn enqueued(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        self.count_enqueued(cpu, task, delayed);
    }

    fn dequeued(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        self.count_dequeued(cpu, task, delayed);
    }

    fn delay_changed(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        self.count_delay_change(cpu, task, delayed);
    }

    fn charged(&mut self, core: &mut Core<'_>, charge: Charge) {
        if let Some((llc, delayed)) = self.charge(core, charge) {
            self.prefer(charge.cpu, charge.task, llc, delayed);
        }
    }

    fn tick(&mut self, cpu: CpuId, task: TaskId) -> bool {
        self.scan_is_due(cpu, task)
    }

    fn scan<P: Policy>(fair: &mut Fair<P, Self>, core: &mut Core<'_>, task: TaskId) {
        let nodes = fair.numa_scan_cpus(core, task, fair.gathering.preferred_cpu(task));
        let Fair { gathering, domains, rqs, task_base, .. } = fair;
        let seen = |cpu: u32| Seen::of(&rqs[cpu as usize], *task_base);
        gathering.scan_llcs(core, domains, task, seen, nodes.as_ref());
    }

    fn record_llc(&self, cpu: CpuId, util: u64, capacity: u64) {
        self.llcs[self.llc_of[cpu.index()] as usize].snapshot.set(Snapshot { util, capacity });
    }

    /// The group is judged by the LLC of its first CPU, whatever it spans.
    fn group_gain(
        &self,
        domains: &Domains,
        group: u32,
        dst: CpuId,
        patient: bool,
        left_out: impl Fn(u32) -> bool,
    ) -> (u32, bool) {
        let cpus = domains.group_cpus(domains.group(group));
        let dst = self.llc_of[dst.index()];
        let count = self.count_preferring(cpus, dst, left_out);
        let src = self.llc_of[cpus[0] as usize];
        let wanted = count > 0 && patient && self.llc_permission(src, dst, 0, Direction::Toward) == Permission::Pull;
        (count, wanted)
    }

    fn queue_gain(&self, src: CpuId, dst: CpuId) -> u32 {
        self.llc_count(src.0, self.llc_of[dst.index()])
    }

    fn prefers(&mut self, _core: &mut Core<'_>, wanted: Move) -> Result<(), DecisionId> {
        let preferred = self.tasks[wanted.task.index()].preferred_llc;
        let prefers = preferred == self.llc_of[wanted.dst.index()];
        prefers.then_some(()).ok_or(self.decisions.move_prefers_another)
    }

    fn permission(&mut self, core: &mut Core<'_>, wanted: Move) -> (Permission, DecisionId) {
        const NO_OPINION: (Permission, DecisionId) = (Permission::Free, DecisionId::NONE);
        let Some((group, src, dst)) = self.crossing(core, &wanted) else { return NO_OPINION };
        let preferred = self.preferred_llc(group);
        let direction = if dst == preferred {
            Direction::Toward
        } else if src == preferred {
            Direction::Away
        } else {
            return NO_OPINION;
        };
        (self.llc_permission(src, dst, wanted.util, direction), self.decisions.move_refused(direction))
    }

    fn push_permission(&self, push: Push) -> PushPermission {
        match self.all_on_preferred(push.src, push.h_nr_runnable) {
            false => PushPermission::Free,
            true if push.alone => PushPermission::Vetoed,
            true => PushPermission::AskTask,
        }
    }

    /// The task leaves the LLC that all tasks of its CPU prefer, whatever its group prefers by now; no group is refused here.
    fn forbids_push(&mut self, _core: &mut Core<'_>, wanted: Move) -> bool {
        self.forbids_leaving((wanted.src, wanted.dst), wanted.util)
    }

    fn tell_veto(&self, core: &mut Core<'_>, task: TaskId, llc: u32) {
        core.decide(self.decisions.push_leaves, task, i64::from(llc));
    }

    fn tell_pull(&self, core: &mut Core<'_>, task: TaskId, llc: u32) {
        core.decide(self.decisions.pulled, task, i64::from(llc));
    }

    fn note_push(&mut self, src: CpuId, preferring: bool) {
        self.cpus[src.index()].push_preferring = preferring;
    }

    fn pushes_preferring(&self, src: CpuId) -> bool {
        self.cpus[src.index()].push_preferring
    }

    fn preferred_cpu(&self, task: TaskId) -> Option<CpuId> {
        let group = self.groups.get(self.tasks[task.index()].group as usize)?;
        (group.cpu != NONE).then_some(CpuId(group.cpu))
    }

    fn change_footprint(&mut self, task: TaskId, pages: i64) {
        if let Some(group) = self.groups.get_mut(self.tasks[task.index()].group as usize) {
            group.footprint_pages = (group.footprint_pages + pages).max(0);
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

    /// LLCs of two CPUs without SMT are full at 75 % of 2048, 1536. With a task of 100: 1600 leave 1500, which fit; 1700 leave 1600, which
    /// do not and are more than 1.2 times 1100, but not more than 1.2 times 1400. No group has a say, as none is there.
    #[test]
    fn a_push_is_judged_as_a_move_out_of_the_preferred_llc_whatever_the_group() {
        let machine = resolve("1s1n2l2c1t").unwrap();
        let domains = Domains::build(&machine, &DomainParameters::default());
        let state = CacheAware::new(CacheAwareTunables::default(), &Boot::new(&machine), &domains).unwrap();
        for (src, dst, forbidden) in [(1600, 1000, true), (1700, 1000, false), (1700, 1300, true)] {
            state.record_llc(CpuId(0), src, 2048);
            state.record_llc(CpuId(2), dst, 2048);
            assert_eq!(state.forbids_leaving((CpuId(1), CpuId(3)), 100), forbidden, "from {src} to {dst}");
        }
    }
}
