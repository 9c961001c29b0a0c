//! NUMA balancing and the rest of the fair class: hooks at ticks and switches, and what the load balancer, the placement of new tasks
//! and cache-aware scheduling ask (`docs/spec/linux-fair.md` sections 4.6, 5.8, 6.2, 6.5, 6.6, 7.4).

use warmcore_kernel::Core;
use warmcore_topology::{CpuId, CpuSet, NodeId};
use warmcore_trace::TaskId;

use super::faults::Running;
use super::{NO_NODE, NumaBalancing};
use crate::domains::flags;
use crate::fair::balance::IdleType;
use crate::fair::balance::pass::Pass;
use crate::fair::gathering::Gathering;
use crate::fair::task_work::work;
use crate::fair::{Fair, Policy};

/// What tasks a queue or a group of CPUs would give away, in order of how little that costs (`enum fbq_type`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum NumaClass {
    /// Some without preferred node.
    Regular,
    /// Some that are not on their preferred node.
    Remote,
    /// Only tasks on their preferred node.
    All,
}

/// `fbq_classify_group`, `fbq_classify_rq`.
pub(super) fn classify(running: u32, with_node: u32, on_preferred: u32) -> NumaClass {
    if running > with_node {
        NumaClass::Regular
    } else if running > on_preferred {
        NumaClass::Remote
    } else {
        NumaClass::All
    }
}

/// Where a move between two nodes takes a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    pub from_preferred: bool,
    pub to_preferred: bool,
    /// The source queue has tasks that are not on their preferred node.
    pub others_could_go: bool,
    pub dst_idle: bool,
    /// How much more of the task's faults are on the source's node than on the destination's, in thousandths.
    pub loss: i64,
}

/// How much worse a task would be off: above 0 like a cache-hot task, below 0 like a cold one (`migrate_degrades_locality`).
pub(super) fn degradation(crossing: Crossing) -> i64 {
    if crossing.from_preferred {
        i64::from(crossing.others_could_go)
    } else if crossing.to_preferred {
        -1
    } else if crossing.dst_idle {
        0
    } else {
        crossing.loss
    }
}

impl NumaBalancing {
    /// Nodes among which cache-aware scheduling looks for the LLC of a thread's process (6.6): those the thread prefers, its
    /// process's CPU is on, and it runs on. `None` without a preferred node: all.
    fn nodes_to_scan(&self, core: &Core<'_>, task: TaskId, home_cpu: Option<CpuId>) -> Option<CpuSet> {
        let preferred = self.preferred(task);
        if preferred == NO_NODE {
            return None;
        }
        let others = home_cpu.into_iter().chain([core.task(task).cpu()]).map(|cpu| self.nodes.of(cpu));
        let mut cpus = CpuSet::new();
        for node in others.chain([preferred]) {
            cpus.union_with(core.machine().cpus_of_node(NodeId(node)));
        }
        Some(cpus)
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Preferred node of a task as far as others have to respect it.
    pub(in crate::fair) fn numa_preferred(&self, task: TaskId) -> Option<u32> {
        let preferred = self.numa.as_ref()?.preferred(task);
        (preferred != NO_NODE && !self.gathering.overrides_numa(task)).then_some(preferred)
    }

    /// CPUs to which a thread's scan for its process's LLC is limited, if it is.
    pub(in crate::fair) fn numa_scan_cpus(
        &self,
        core: &Core<'_>,
        task: TaskId,
        home_cpu: Option<CpuId>,
    ) -> Option<CpuSet> {
        if self.gathering.overrides_numa(task) {
            return None;
        }
        self.numa.as_ref()?.nodes_to_scan(core, task, home_cpu)
    }

    /// A task exists.
    pub(in crate::fair) fn numa_task_created(&mut self, core: &Core<'_>, task: TaskId, parent: Option<TaskId>) {
        if let Some(numa) = &mut self.numa {
            numa.task_created(core, task, parent);
        }
    }

    /// A task is gone.
    pub(in crate::fair) fn numa_task_exited(&mut self, task: TaskId) {
        let Some(numa) = &mut self.numa else { return };
        let faults = numa.task_exited(task);
        self.change_footprint(task, -faults);
    }

    fn change_footprint(&mut self, task: TaskId, change: i64) {
        if change != 0 {
            self.gathering.change_footprint(task, change);
        }
    }

    /// Accounts for the memory that the running task of a CPU touched: at its tick, and when it stops running.
    #[inline]
    pub(in crate::fair) fn settle_numa(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        if self.numa.is_some() && core.may_fault(task) {
            self.settle_touches(core, cpu, task);
        }
    }

    #[inline(never)]
    fn settle_touches(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        let entity = &self.entities[self.task_entity(task) as usize];
        let (sum_exec_ns, load, queued) = (entity.sum_exec_ns, entity.pelt.load, entity.on_rq);
        let Some(numa) = &mut self.numa else { return };
        let settled = numa.settle(core, Running { task, cpu, sum_exec_ns, load, queued });
        let owes = core.owes_hint_faults(task);
        if settled.look {
            self.task_work.add(task, work::NUMA_PLACE);
        }
        if owes {
            self.task_work.add(task, work::NUMA_FAULTS);
        }
        self.change_footprint(task, settled.footprint_change);
    }

    /// Ordinary tick of a running task: whether it has something to do when it returns to user mode.
    pub(in crate::fair) fn tick_numa(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) -> bool {
        self.settle_numa(core, cpu, task);
        let sum_exec_ns = self.entities[self.task_entity(task) as usize].sum_exec_ns;
        let Some(numa) = &mut self.numa else { return false };
        if numa.scan_due(core, task, sum_exec_ns) {
            self.task_work.add(task, work::NUMA_SCAN);
        }
        self.task_work.has(task, work::NUMA_SCAN | work::NUMA_PLACE | work::NUMA_FAULTS)
    }

    /// The task returns to user mode with work for NUMA balancing.
    pub(in crate::fair) fn do_numa_work(&mut self, core: &mut Core<'_>, task: TaskId, pending: u8) {
        let Some(numa) = &mut self.numa else { return };
        if pending & work::NUMA_FAULTS != 0 {
            core.charge_hint_faults(task);
        }
        if pending & work::NUMA_SCAN != 0 {
            numa.scan(core, task);
        }
        let places = pending & work::NUMA_PLACE != 0;
        if places && (!self.gathering.overrides_numa(task) || self.gathering.is_far_from_memory(core, task)) {
            self.look_for_place(core, task);
        }
    }

    /// A task comes to another CPU's queue.
    pub(in crate::fair) fn numa_migrated(&mut self, core: &Core<'_>, task: TaskId, from: CpuId, to: CpuId) {
        if let Some(numa) = &mut self.numa {
            numa.migrated(core, task, from, to);
        }
    }

    /// How much worse off a task would be on the destination's node (7.4): 0 is no opinion.
    pub(in crate::fair) fn migrate_degrades_locality(&self, pass: &Pass, task: TaskId) -> i64 {
        let Some(numa) = &self.numa else { return 0 };
        let index = task.index();
        let (src, dst) = (numa.nodes.of(pass.src), numa.nodes.of(pass.dst));
        let across = self.domains.domain(pass.domain).has(flags::NUMA) && src != dst;
        if !across || !numa.has_faults(task) || self.gathering.overrides_numa(task) {
            return 0;
        }
        let others_could_go = self.rqs[pass.src.index()].nr_running > numa.cpus[pass.src.index()].nr_preferred_running;
        if self.parameters.rules_of_4_9 {
            return numa.degradation_4_9(index, (src, dst), others_could_go);
        }
        let limit = numa.nodes.distance(src, dst);
        let weight = |node| match numa.statistics.group_size(index) {
            0 => numa.statistics.task_weight(&numa.nodes, index, node, limit),
            _ => numa.statistics.group_weight(&numa.nodes, index, node, limit),
        };
        let preferred = numa.preferred(task);
        degradation(Crossing {
            from_preferred: src == preferred,
            to_preferred: dst == preferred,
            others_could_go,
            dst_idle: pass.idle == IdleType::Idle,
            loss: weight(src) - weight(dst),
        })
    }

    /// What a group of CPUs would give away at a NUMA level (5.8); everything elsewhere.
    pub(in crate::fair) fn numa_class_of_group(&self, pass: &Pass, group: u32) -> NumaClass {
        let Some(numa) = &self.numa else { return NumaClass::All };
        if !self.domains.domain(pass.domain).has(flags::NUMA) {
            return NumaClass::All;
        }
        let (mut running, mut with_node, mut on_preferred) = (0, 0, 0);
        for &cpu in self.domains.group_cpus(self.domains.group(group)) {
            if self.balance.is_excluded(cpu) {
                continue;
            }
            running += self.queues[cpu as usize].h_nr_runnable;
            with_node += numa.cpus[cpu as usize].nr_numa_running;
            on_preferred += numa.cpus[cpu as usize].nr_preferred_running;
        }
        classify(running, with_node, on_preferred)
    }

    /// Whether a queue has only tasks that are better left where they are, compared with others of its group.
    pub(in crate::fair) fn is_numa_protected(&self, pass: &Pass, cpu: u32) -> bool {
        let Some(numa) = &self.numa else { return false };
        let counts = numa.cpus[cpu as usize];
        let running = self.rqs[cpu as usize].nr_running;
        classify(running, counts.nr_numa_running, counts.nr_preferred_running) > pass.numa_class
    }

    /// Where a new task goes when both groups have room and one of them is its preferred node (4.6): `Some(true)` to the idlest group,
    /// `Some(false)` to the local one.
    pub(in crate::fair) fn numa_prefers_idlest(&self, task: TaskId, here: CpuId, idlest: u32) -> Option<bool> {
        let numa = self.numa.as_ref()?;
        let preferred = numa.preferred(task);
        if preferred == NO_NODE {
            return None;
        }
        let first = CpuId(self.domains.group_cpus(self.domains.group(idlest))[0]);
        if numa.nodes.of(here) == preferred { Some(false) } else { (numa.nodes.of(first) == preferred).then_some(true) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_give_away_tasks_without_a_node_before_remote_ones_before_local_ones() {
        assert_eq!(classify(3, 2, 2), NumaClass::Regular);
        assert_eq!(classify(3, 3, 2), NumaClass::Remote);
        assert_eq!(classify(3, 3, 3), NumaClass::All);
        assert!(NumaClass::Regular < NumaClass::Remote && NumaClass::Remote < NumaClass::All);
    }

    #[test]
    fn leaving_the_preferred_node_counts_as_hot_if_others_could_go_instead() {
        let leaving =
            Crossing { from_preferred: true, to_preferred: false, others_could_go: true, dst_idle: true, loss: -50 };
        assert_eq!(degradation(leaving), 1);
        assert_eq!(degradation(Crossing { others_could_go: false, ..leaving }), 0);
        let coming = Crossing { from_preferred: false, to_preferred: true, ..leaving };
        assert_eq!(degradation(coming), -1);
    }

    #[test]
    fn between_other_nodes_faults_decide_unless_the_destination_is_idle() {
        let crossing =
            Crossing { from_preferred: false, to_preferred: false, others_could_go: true, dst_idle: false, loss: 120 };
        assert_eq!(degradation(crossing), 120);
        assert_eq!(degradation(Crossing { loss: -7, ..crossing }), -7);
        assert_eq!(degradation(Crossing { dst_idle: true, ..crossing }), 0);
    }
}
