//! Placement of new tasks: down the domains to the idlest group and the idlest CPU in it (`sched_balance_find_dst_cpu`;
//! `docs/spec/linux-fair.md` section 4.6).

use std::cmp::Ordering;

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_trace::SearchStep;

use super::Wakee;
use crate::domains::{Level, flags};
use crate::fair::gathering::Gathering;
use crate::fair::{Fair, Policy};

/// What a group of CPUs offers a new task. The order of the variants is the order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Room {
    HasSpare,
    FullyBusy,
    Overloaded,
}

/// Statistics of a group (`update_sg_wakeup_stats`).
#[derive(Clone, Copy, Debug)]
struct GroupOffer {
    group: u32,
    room: Room,
    avg_load: u64,
    util: u64,
    idle_cpus: u32,
    nr_running: u32,
    weight: u32,
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// `sched_balance_find_dst_cpu`, with the highest level at which another group was the idlest.
    pub(super) fn find_idlest_cpu(
        &self,
        core: &Core<'_>,
        highest: usize,
        wakee: Wakee,
        start: CpuId,
        balance_flag: u32,
    ) -> (CpuId, SearchStep) {
        let (mut cpu, mut step) = (start, SearchStep::NoneIdler);
        let mut domain = Some(highest);
        if !self.domains.span(self.domains.domain(highest)).intersects(core.allowed(wakee.task)) {
            return (start, step);
        }
        while let Some(index) = domain {
            let range = self.domains.range(cpu);
            let child = (index > range.start).then(|| index - 1);
            if self.domains.domain(index).flags & balance_flag == 0 {
                domain = child;
                continue;
            }
            let chosen = if self.parameters.rules_of_4_9 {
                let group = self.find_idlest_group_4_9(core, index, wakee);
                group.and_then(|group| self.find_idlest_group_cpu_4_9(core, group, wakee, cpu))
            } else {
                let group = self.find_idlest_group(core, (index, cpu), wakee);
                group.and_then(|group| self.find_idlest_group_cpu(core, group, wakee))
            };
            let chosen = chosen.filter(|&chosen| chosen != cpu);
            let Some(chosen) = chosen else {
                domain = child;
                continue;
            };
            let weight = self.domains.domain(index).span_weight;
            if cpu == start {
                step = idlest_at(self.domains.domain(index).level);
            }
            cpu = chosen;
            domain = self
                .domains
                .range(cpu)
                .take_while(|&lower| self.domains.domain(lower).span_weight < weight)
                .filter(|&lower| self.domains.domain(lower).flags & balance_flag != 0)
                .last();
        }
        (cpu, step)
    }

    /// `sched_balance_find_dst_group`: a group better than the local one, if there is any.
    fn find_idlest_group(&self, core: &Core<'_>, (index, cpu): (usize, CpuId), wakee: Wakee) -> Option<u32> {
        let domain = self.domains.domain(index);
        let local_group = self.domains.local_group(domain);
        let mut local = None;
        let mut idlest: Option<GroupOffer> = None;
        for group in self.domains.groups(domain) {
            let cpus = self.domains.group_cpus(self.domains.group(group));
            if !cpus.iter().any(|&cpu| core.may_run_on(wakee.task, CpuId(cpu))) {
                continue;
            }
            let offer = self.group_offer(core, group, domain.imbalance_pct);
            if group == local_group {
                local = Some(offer);
            } else if idlest.is_none_or(|best| is_idler(&offer, &best)) {
                idlest = Some(offer);
            }
        }
        let idlest = idlest?;
        let Some(local) = local else {
            return Some(idlest.group);
        };
        let go = match local.room.cmp(&idlest.room) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal if local.room == Room::HasSpare => {
                self.spare_prefers_idlest(core, (index, cpu), wakee, &local, &idlest)
            }
            Ordering::Equal => load_prefers_idlest(domain.imbalance_pct, domain.has(flags::NUMA), &local, &idlest),
        };
        go.then_some(idlest.group)
    }

    fn spare_prefers_idlest(
        &self,
        core: &Core<'_>,
        (index, cpu): (usize, CpuId),
        wakee: Wakee,
        local: &GroupOffer,
        idlest: &GroupOffer,
    ) -> bool {
        let domain = self.domains.domain(index);
        if domain.has(flags::NUMA) {
            if let Some(go) = self.numa_prefers_idlest(wakee.task, cpu, idlest.group) {
                return go;
            }
            let mut limit = domain.imb_numa_nr;
            if core.is_restricted(wakee.task) {
                let cpus = self.domains.group_cpus(self.domains.group(local.group));
                let allowed = cpus.iter().filter(|&&cpu| core.may_run_on(wakee.task, CpuId(cpu))).count() as u32;
                limit = limit.min(allowed);
            }
            let imbalance = i64::from(local.idle_cpus.abs_diff(idlest.idle_cpus));
            if adjust_numa_imbalance(imbalance, local.nr_running + 1, limit) == 0 {
                return false;
            }
        }
        local.idle_cpus < idlest.idle_cpus
    }

    fn group_offer(&self, core: &Core<'_>, group: u32, imbalance_pct: u32) -> GroupOffer {
        let description = self.domains.group(group);
        let (mut load, mut util, mut runnable) = (0u64, 0u64, 0u64);
        let (mut nr_running, mut idle_cpus) = (0, 0);
        for &cpu in self.domains.group_cpus(description) {
            let cpu = CpuId(cpu);
            load += self.cpu_load(cpu);
            util += self.cpu_util(cpu);
            runnable += self.cpu_runnable(cpu);
            nr_running += self.nr_running(cpu) + u32::from(core.launcher() == Some(cpu));
            idle_cpus += u32::from(self.idle[cpu.index()]);
        }
        let (capacity, pct) = (u64::from(description.capacity), u64::from(imbalance_pct));
        let crowded = capacity * pct < runnable * 100;
        let room = if nr_running > description.weight && (capacity * 100 < util * pct || crowded) {
            Room::Overloaded
        } else if nr_running < description.weight || (!crowded && capacity * 100 > util * pct) {
            Room::HasSpare
        } else {
            Room::FullyBusy
        };
        let avg_load = if room == Room::HasSpare { 0 } else { load * 1024 / capacity };
        GroupOffer { group, room, avg_load, util, idle_cpus, nr_running, weight: description.weight }
    }

    /// `sched_balance_find_dst_group_cpu`: an idle CPU, the one that idled last; otherwise the least loaded.
    fn find_idlest_group_cpu(&self, core: &Core<'_>, group: u32, wakee: Wakee) -> Option<CpuId> {
        let description = self.domains.group(group);
        let mut newest_idle: Option<((u64, u32), CpuId)> = None;
        let mut least_loaded: Option<(u64, CpuId)> = None;
        for &cpu in self.domains.group_cpus(description) {
            let cpu = CpuId(cpu);
            if !core.may_run_on(wakee.task, cpu) {
                continue;
            }
            if !wakee.idle_policy && self.sched_idle_cpu(core, cpu) {
                return Some(cpu);
            }
            if self.idle[cpu.index()] {
                let rq = &self.rqs[cpu.index()];
                let since = (rq.idle_entered_ns, rq.idle_rank);
                if newest_idle.is_none_or(|(best, _)| since > best) {
                    newest_idle = Some((since, cpu));
                }
            } else {
                let load = self.cpu_load(cpu);
                if least_loaded.is_none_or(|(best, _)| load < best) {
                    least_loaded = Some((load, cpu));
                }
            }
        }
        newest_idle.map(|(_, cpu)| cpu).or(least_loaded.map(|(_, cpu)| cpu))
    }
}

/// Another group is the idlest at this level.
const fn idlest_at(level: Level) -> SearchStep {
    match level {
        Level::Smt => SearchStep::IdlestThread,
        Level::Cls => SearchStep::IdlestCore,
        Level::Mc => SearchStep::IdlestPart,
        Level::Pkg => SearchStep::IdlestLlc,
        Level::Node => SearchStep::IdlestGroup,
        Level::Numa => SearchStep::IdlestNode,
    }
}

/// `update_pick_idlest`.
fn is_idler(offer: &GroupOffer, best: &GroupOffer) -> bool {
    debug_assert!(offer.weight > 0);
    match offer.room.cmp(&best.room) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal if offer.room == Room::HasSpare => {
            offer.idle_cpus > best.idle_cpus || (offer.idle_cpus == best.idle_cpus && offer.util < best.util)
        }
        Ordering::Equal => offer.avg_load < best.avg_load,
    }
}

/// Two groups without room: by load, with a margin.
fn load_prefers_idlest(imbalance_pct: u32, numa: bool, local: &GroupOffer, idlest: &GroupOffer) -> bool {
    let margin = 1024 * u64::from(imbalance_pct - 100) / 100;
    if numa && idlest.avg_load + margin >= local.avg_load {
        return false;
    }
    if idlest.avg_load >= local.avg_load + margin {
        return false;
    }
    100 * local.avg_load > u64::from(imbalance_pct) * idlest.avg_load
}

/// Lets a small imbalance between NUMA nodes be, so that tasks that talk stay together (`adjust_numa_imbalance`).
/// `dst_running` counts the destination's tasks with the one that would come.
pub(crate) fn adjust_numa_imbalance(imbalance: i64, dst_running: u32, imb_numa_nr: u32) -> i64 {
    /// `NUMA_IMBALANCE_MIN`.
    const SMALL: i64 = 2;
    if dst_running <= imb_numa_nr && imbalance <= SMALL { 0 } else { imbalance }
}
