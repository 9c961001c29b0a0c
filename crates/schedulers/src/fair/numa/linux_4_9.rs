//! NUMA balancing as Linux 4.9 had it, where it differs from [`place`](super::place) and [`scan`](super::scan)
//! (`docs/spec/linux-fair.md` section 7.7): a place is a move or a swap that leaves the loads of both nodes within a margin, no idle CPU is
//! claimed, and the sampling slows down when faults are local, whoever shares the pages.
//!
//! Differs from the kernel: a node that is looked at is compared at its own distance; there, at that of the node before it.

use warmcore_kernel::Core;
use warmcore_topology::{CpuId, NodeId};
use warmcore_trace::TaskId;

use super::nodes::Wiring;
use super::place::{Gain, Partner};
use super::{NO_NODE, NumaBalancing};
use crate::fair::gathering::Gathering;
use crate::fair::{Fair, Policy};

/// Part of its gain that a swap within a group loses.
const DISCOUNT: i64 = 16;

/// Capacity of a CPU that counts as one.
const CAPACITY_SCALE: u64 = 1024;

/// Sums over the CPUs of a node (`struct numa_stats` before 5.8).
#[derive(Clone, Copy, Debug, Default)]
struct NodeSums {
    load: u64,
    capacity: u64,
    nr_running: u64,
    cpus: u64,
}

impl NodeSums {
    /// Tasks that the node can serve: its cores, as far as their capacity goes.
    fn task_capacity(&self) -> u64 {
        let threads = (CAPACITY_SCALE * self.cpus).div_ceil(self.capacity.max(1)).max(1);
        (self.cpus / threads).min((self.capacity + CAPACITY_SCALE / 2) / CAPACITY_SCALE)
    }

    fn has_free_capacity(&self) -> bool {
        self.nr_running < self.task_capacity()
    }
}

/// Two nodes between which a task would change.
#[derive(Clone, Copy, Debug)]
struct Nodes {
    src: NodeSums,
    dst: NodeSums,
    imbalance_pct: u32,
}

impl Nodes {
    /// Whether the destination is looked at: it has room, or the source has none, and it is not the busier one by more than the margin
    /// (`numa_has_capacity`).
    fn may_give(&self) -> bool {
        let (src, dst) = (&self.src, &self.dst);
        if src.has_free_capacity() && !dst.has_free_capacity() {
            return false;
        }
        src.load * dst.capacity * u64::from(self.imbalance_pct) > dst.load * src.capacity * 100
    }

    /// Whether the busier of two loads exceeds the other by more than the margin, and by more than now, once so much has gone to the
    /// destination (`load_too_imbalanced` before 4.20).
    fn is_too_imbalanced(&self, moved: i64) -> bool {
        let beyond = |moved: i64| {
            let loads = [self.src.load as i64 - moved, self.dst.load as i64 + moved];
            let (less, more) = (loads[0].min(loads[1]), loads[0].max(loads[1]));
            i128::from(more) * i128::from(self.src.capacity) * 100
                - i128::from(less) * i128::from(self.dst.capacity) * i128::from(self.imbalance_pct)
        };
        beyond(moved) > 0 && beyond(moved) > beyond(0)
    }
}

/// What a swap brings both (`task_numa_compare` before 4.20).
fn gain_of_swap(gain: &Gain, partner: &Partner) -> i64 {
    if partner.same_group {
        let both = gain.task + partner.task_gain;
        if partner.grouped { both - both / DISCOUNT } else { both }
    } else {
        gain.of_move() + if partner.grouped { partner.group_gain } else { partner.task_gain }
    }
}

/// How much longer the next period of sampling is, in milliseconds, from counts of faults; `None` doubles it. Shorter periods are
/// shortened by less where most faults are shared (`update_task_scan_period` before 4.14).
pub(super) fn period_change_ms(period_ms: u64, [remote, local]: [i64; 2], [shared, private]: [i64; 2]) -> Option<i64> {
    const SLOTS: i64 = 10;
    const THRESHOLD: i64 = 7;
    if local + shared == 0 {
        return None;
    }
    let slot_ms = period_ms.div_ceil(SLOTS as u64) as i64;
    let ratio = local * SLOTS / (local + remote).max(1);
    Some(if ratio >= THRESHOLD {
        (ratio - THRESHOLD).max(1) * slot_ms
    } else {
        let own = (private * SLOTS + private + shared) / (private + shared + 1);
        -(THRESHOLD - ratio) * slot_ms * own / SLOTS
    })
}

/// A search for a better place.
struct Search {
    task: TaskId,
    src: CpuId,
    src_node: u32,
    dst_node: u32,
    limit: u32,
    nodes: Nodes,
    best: Option<CpuId>,
    best_gain: i64,
    best_partner: Option<TaskId>,
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Looks for a better place for a running task and asks the stopper to bring it there (`task_numa_migrate`).
    pub(super) fn look_for_place_4_9(&mut self, core: &mut Core<'_>, task: TaskId, preferred: u32) {
        let Some(numa) = &self.numa else { return };
        let src = core.task(task).cpu();
        let src_node = numa.nodes.of(src);
        let Some(domain) = self.domains.sd_numa(src).map(|index| self.domains.domain(index)) else { return };
        let first_limit = numa.nodes.distance(src_node, preferred);
        let nodes = Nodes {
            src: self.node_sums(core, src_node),
            dst: NodeSums::default(),
            imbalance_pct: 100 + (domain.imbalance_pct - 100) / 2,
        };
        let mut search = Search {
            task,
            src,
            src_node,
            dst_node: preferred,
            limit: first_limit,
            nodes,
            best: None,
            best_gain: 0,
            best_partner: None,
        };
        self.search_node_4_9(core, &mut search, preferred);
        if search.best.is_none() || numa.statistics.active_nodes(task.index()) > 1 {
            for node in (0..numa.nodes.count() as u32).filter(|&node| node != src_node && node != preferred) {
                if !numa.nodes.has_cpus(node) {
                    continue;
                }
                let distance = numa.nodes.distance(src_node, node);
                search.limit = if numa.nodes.wiring() == Wiring::Backplane { distance } else { first_limit };
                let gain = numa.gain(task, src_node, node, search.limit);
                if gain.task >= 0 || gain.group >= 0 {
                    self.search_node_4_9(core, &mut search, node);
                }
            }
        }
        self.conclude_search_4_9(core, &search, preferred);
    }

    /// Acts on what was found. A group that spans nodes settles on the node that was looked at last, if it uses that.
    fn conclude_search_4_9(&mut self, core: &mut Core<'_>, search: &Search, preferred: u32) {
        let Some(numa) = &mut self.numa else { return };
        let (task, index) = (search.task, search.task.index());
        let settles = numa.statistics.active_nodes(index) > 1 && numa.statistics.is_active(index, search.dst_node);
        if numa.statistics.group_size(index) > 0 && settles && search.dst_node != preferred {
            let queued = self.entities[(self.task_base + task.0) as usize].on_rq;
            numa.set_preferred(task, search.dst_node, queued.then_some(search.src));
            core.decide(numa.decisions.preferred_settled, task, i64::from(search.dst_node));
        }
        let Some(dst) = search.best else {
            core.decide(numa.decisions.move_refused, task, i64::from(preferred));
            return;
        };
        numa.tasks[index].scan_period_ms = numa.scan_min_ms(core, index);
        self.request_move(core, task, (search.src, dst), search.best_partner);
    }

    /// Looks for a CPU of a node (`task_numa_find_cpu`).
    fn search_node_4_9(&self, core: &Core<'_>, search: &mut Search, node: u32) {
        let Some(numa) = &self.numa else { return };
        (search.dst_node, search.nodes.dst) = (node, self.node_sums(core, node));
        if !search.nodes.may_give() {
            return;
        }
        let gain = numa.gain(search.task, search.src_node, node, search.limit);
        for cpu in core.machine().cpus_of_node(NodeId(node)).iter() {
            if core.may_run_on(search.task, cpu) {
                self.compare_4_9(core, search, cpu, &gain);
            }
        }
    }

    /// Weighs a CPU and the task on it (`task_numa_compare`).
    fn compare_4_9(&self, core: &Core<'_>, search: &mut Search, cpu: CpuId, gain: &Gain) {
        let Some(numa) = &self.numa else { return };
        let (curr, move_gain) = (core.curr(cpu), gain.of_move());
        let own_load = self.task_h_load(search.task) as i64;
        let nodes = search.nodes;
        let take = |search: &mut Search, partner: Option<TaskId>, gain: i64| {
            (search.best, search.best_partner, search.best_gain) = (Some(cpu), partner, gain);
        };
        if curr.is_idle() {
            let room = nodes.src.nr_running > nodes.src.task_capacity() || nodes.dst.has_free_capacity();
            if move_gain > search.best_gain && room && !nodes.is_too_imbalanced(own_load) {
                take(search, None, move_gain);
            }
            return;
        }
        if curr == search.task || !core.may_run_on(curr, search.src) {
            return;
        }
        let partner = numa.partner(search.task, curr, (search.src_node, search.dst_node), search.limit);
        let swap_gain = gain_of_swap(gain, &partner);
        let swaps = swap_gain > search.best_gain;
        if !swaps && move_gain <= search.best_gain {
            return;
        }
        let alone = |cpu: CpuId| self.rqs[cpu.index()].nr_running == 1;
        if swaps && alone(search.src) && alone(cpu) {
            take(search, Some(curr), swap_gain);
        } else if move_gain > swap_gain && move_gain > search.best_gain && !nodes.is_too_imbalanced(own_load) {
            // An idle CPU wins over this one.
            take(search, None, move_gain - 1);
        } else if swaps && !nodes.is_too_imbalanced(own_load - self.task_h_load(curr) as i64) {
            take(search, Some(curr), swap_gain);
        }
    }

    /// Sums up a node (`update_numa_stats` before 5.8).
    fn node_sums(&self, core: &Core<'_>, node: u32) -> NodeSums {
        let mut sums = NodeSums::default();
        for cpu in core.machine().cpus_of_node(NodeId(node)).iter() {
            sums.load += self.balance_load(cpu);
            sums.capacity += u64::from(self.domains.capacity_of(cpu));
            sums.nr_running += u64::from(self.rqs[cpu.index()].nr_running);
            sums.cpus += 1;
        }
        sums
    }
}

impl NumaBalancing {
    /// How much worse off a task would be on another node, as [`degradation`](super::balancing::degradation) but by faults alone, even if
    /// the destination is idle (`migrate_degrades_locality` before 4.18).
    pub(super) fn degradation_4_9(&self, task: usize, (src, dst): (u32, u32), others_could_go: bool) -> i64 {
        let preferred = self.tasks[task].preferred;
        if src == preferred && src != NO_NODE {
            return i64::from(others_could_go);
        }
        let worse = dst != preferred && self.statistics.deciding(task, dst) < self.statistics.deciding(task, src);
        if worse { 1 } else { -1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(nr_running: u64, load: u64) -> NodeSums {
        NodeSums { load, capacity: 4 * 1024, nr_running, cpus: 4 }
    }

    fn between(src: NodeSums, dst: NodeSums) -> Nodes {
        Nodes { src, dst, imbalance_pct: 112 }
    }

    #[test]
    fn a_node_serves_as_many_tasks_as_it_has_cores() {
        assert_eq!(sums(0, 0).task_capacity(), 4);
        // Four hardware threads of 589 are two cores.
        assert_eq!(NodeSums { capacity: 4 * 589, ..sums(0, 0) }.task_capacity(), 2);
        assert!(sums(3, 0).has_free_capacity() && !sums(4, 0).has_free_capacity());
    }

    #[test]
    fn a_node_is_looked_at_unless_it_is_the_busier_one_by_more_than_the_margin() {
        assert!(between(sums(4, 4096), sums(4, 4096)).may_give());
        assert!(between(sums(5, 4096), sums(5, 4587)).may_give() && !between(sums(5, 4096), sums(5, 4588)).may_give());
        // It is full and the source is not.
        assert!(!between(sums(3, 3072), sums(4, 3072)).may_give());
    }

    #[test]
    fn loads_may_differ_by_the_margin_or_by_what_they_differ_now() {
        let even = between(sums(4, 4096), sums(4, 4096));
        assert!(!even.is_too_imbalanced(200) && even.is_too_imbalanced(300));
        let uneven = between(sums(8, 8192), sums(4, 4096));
        assert!(!uneven.is_too_imbalanced(1024) && uneven.is_too_imbalanced(5000));
    }

    #[test]
    fn a_swap_counts_groups_of_partners_and_a_discount_within_one() {
        let gain = Gain { task: 200, group: 320, grouped: true };
        let stranger = Partner {
            same_group: false,
            both_grouped: false,
            grouped: false,
            task_gain: 100,
            group_gain: 60,
            is_home: true,
            goes_home: true,
        };
        assert_eq!(gain_of_swap(&gain, &stranger), 420);
        assert_eq!(gain_of_swap(&gain, &Partner { grouped: true, both_grouped: true, ..stranger }), 380);
        assert_eq!(gain_of_swap(&gain, &Partner { grouped: true, same_group: true, ..stranger }), 300 - 18);
    }

    #[test]
    fn local_faults_lengthen_the_period_and_shared_ones_shorten_it_less() {
        let change = |locality, kinds| period_change_ms(1000, locality, kinds);
        assert_eq!(change([0, 0], [0, 0]), None);
        assert_eq!(change([0, 100], [100, 0]), Some(300));
        // Private faults on other nodes do not lengthen it, as they do since 4.14.
        assert_eq!(change([90, 10], [0, 100]), Some(-600));
        assert_eq!(change([90, 10], [50, 50]), Some(-300));
        assert_eq!(change([100, 0], [100, 0]), Some(0));
    }
}
