//! Finding a task a place near its memory: an idle CPU, a move that evens out load, or a swap with a task that gains too
//! (`task_numa_migrate`, `task_numa_find_cpu`, `task_numa_compare`; `docs/spec/linux-fair.md` section 7.3).
//!
//! None of this looks at caches: the CPU chosen is the first that will do.

use warmcore_kernel::{Core, Dequeue, Enqueue, Scheduler, State, WakeFlags};
use warmcore_topology::CpuId;
use warmcore_trace::{MigrationKind, TaskId};

use super::groups::weight_difference;
use super::nodes::Wiring;
use super::{NO_NODE, NumaBalancing};
use crate::fair::gathering::Gathering;
use crate::fair::select::adjust_numa_imbalance;
use crate::fair::{Fair, Policy};

/// Gain in thousandths of the faults below which a swap is not worth it (`SMALLIMP`).
const SMALL_GAIN: i64 = 30;

/// Part of its gain that a swap loses, for hysteresis.
const DISCOUNT: i64 = 16;

/// Part by which a swap gains that brings the partner home.
const BONUS: i64 = 8;

/// A payload of the stopper with this bit is a task to be moved; others are CPUs to push a task to.
pub(in crate::fair) const STOPPER_MOVE: u32 = 1 << 31;

/// A move that waits for the stopper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub src: CpuId,
    pub dst: CpuId,
    /// The task to come back in exchange.
    pub partner: Option<TaskId>,
}

/// How a node stands (`enum numa_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeType {
    HasSpare,
    FullyBusy,
    Overloaded,
}

/// Sums over the CPUs of a node (`struct numa_stats`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeLoad {
    pub load: u64,
    pub runnable: u64,
    pub util: u64,
    pub capacity: u64,
    pub nr_running: u32,
    pub cpus: u32,
    /// CPU to take if nothing speaks against it.
    pub idle_cpu: Option<CpuId>,
}

impl NodeLoad {
    /// `numa_classify`.
    pub(crate) fn classify(&self, imbalance_pct: u32) -> NodeType {
        let pct = u64::from(imbalance_pct);
        let used = self.capacity * 100 < self.util * pct;
        let waiting = self.capacity * pct < self.runnable * 100;
        let spare = self.capacity * 100 > self.util * pct && self.capacity * pct > self.runnable * 100;
        if self.nr_running > self.cpus && (used || waiting) {
            NodeType::Overloaded
        } else if self.nr_running < self.cpus || spare {
            NodeType::HasSpare
        } else {
            NodeType::FullyBusy
        }
    }

    /// Whether moving so much load from here to another node makes their loads per capacity more different
    /// (`load_too_imbalanced`).
    pub(crate) fn is_worse_after(&self, dst: &NodeLoad, load: i64) -> bool {
        let difference = |moved: i64| {
            let here = i128::from(self.load as i64 - moved) * i128::from(dst.capacity);
            (i128::from(dst.load as i64 + moved) * i128::from(self.capacity) - here).abs()
        };
        difference(load) > difference(0)
    }
}

/// What is known about the task on a CPU, as a partner for a swap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partner {
    /// It is in the same group as the task, or neither is in one.
    pub same_group: bool,
    /// Both are in groups, different ones.
    pub both_grouped: bool,
    /// It is in a group.
    pub grouped: bool,
    /// Its gain from going to the source node, by its own faults and by its group's.
    pub task_gain: i64,
    pub group_gain: i64,
    /// Its preferred node is the destination, where it is; or the source, where it would go.
    pub is_home: bool,
    pub goes_home: bool,
}

/// Gain of the task itself from a node, in thousandths of faults: its own and its group's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gain {
    pub task: i64,
    pub group: i64,
    pub grouped: bool,
}

impl Gain {
    /// What a plain move brings.
    pub(crate) fn of_move(&self) -> i64 {
        if self.grouped { self.group } else { self.task }
    }

    /// What a swap brings both; `None` if it would only help one at the cost of the other while there is room for both.
    pub(crate) fn of_swap(&self, partner: &Partner, has_spare: bool) -> Option<i64> {
        let mut gain = if partner.same_group {
            if has_spare {
                return None;
            }
            let gain = self.task + partner.task_gain;
            if partner.grouped { gain - gain / DISCOUNT } else { gain }
        } else {
            self.of_move() + if partner.both_grouped { partner.group_gain } else { partner.task_gain }
        };
        if partner.is_home {
            gain -= gain / DISCOUNT;
        }
        if partner.goes_home {
            gain += gain / BONUS;
        }
        Some(gain)
    }
}

/// Whether a swap's gain is worth it beside the best found so far.
pub(super) fn is_worth_it(gain: i64, best: i64) -> bool {
    gain >= SMALL_GAIN && gain > best + SMALL_GAIN / 2
}

/// A search for a better place (`struct task_numa_env`).
struct Search {
    task: TaskId,
    src: CpuId,
    src_node: u32,
    src_load: NodeLoad,
    dst_node: u32,
    dst_load: NodeLoad,
    /// Distance between the nodes that are compared.
    limit: u32,
    imbalance_pct: u32,
    imb_numa_nr: u32,
    best: Option<CpuId>,
    best_gain: i64,
    best_partner: Option<TaskId>,
    best_goes_home: bool,
}

impl Search {
    fn has_spare(&self) -> bool {
        self.dst_load.classify(self.imbalance_pct) == NodeType::HasSpare
    }
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Looks for a better place for a running task and asks the stopper to bring it there (`task_numa_migrate`).
    pub(super) fn look_for_place(&mut self, core: &mut Core<'_>, task: TaskId) {
        let Some(numa) = &self.numa else { return };
        let index = task.index();
        let (src, preferred) = (core.task(task).cpu(), numa.tasks[index].preferred);
        let src_node = numa.nodes.of(src);
        if numa.tasks[index].planned.is_some() || preferred == NO_NODE {
            return;
        }
        let preferred = self.gathering.node_to_search(task, preferred);
        if preferred == src_node {
            return;
        }
        if self.parameters.rules_of_4_9 {
            self.look_for_place_4_9(core, task, preferred);
            return;
        }
        let Some(domain) = self.domains.sd_numa(src).map(|index| self.domains.domain(index)) else { return };
        let mut search = Search {
            task,
            src,
            src_node,
            src_load: NodeLoad::default(),
            dst_node: preferred,
            dst_load: NodeLoad::default(),
            limit: numa.nodes.distance(src_node, preferred),
            imbalance_pct: 100 + (domain.imbalance_pct - 100) / 2,
            imb_numa_nr: domain.imb_numa_nr,
            best: None,
            best_gain: 0,
            best_partner: None,
            best_goes_home: false,
        };
        search.src_load = self.node_load(core, task, src_node);
        self.search_node(core, &mut search, preferred);
        let Some(numa) = &self.numa else { return };
        if search.best.is_none() || numa.statistics.active_nodes(index) > 1 {
            let first_limit = search.limit;
            for node in 0..numa.nodes.count() as u32 {
                self.consider_node(core, &mut search, (node, preferred), first_limit);
            }
        }
        self.conclude_search(core, &search, preferred);
    }

    /// Another node than the preferred one, if the task or its group gains there.
    fn consider_node(&mut self, core: &Core<'_>, search: &mut Search, (node, preferred): (u32, u32), first_limit: u32) {
        let Some(numa) = &self.numa else { return };
        if node == search.src_node || node == preferred || !numa.nodes.has_cpus(node) {
            return;
        }
        // On a backplane the groups that are compared depend on the distance.
        let distance = numa.nodes.distance(search.src_node, node);
        search.limit = if numa.nodes.wiring() == Wiring::Backplane { distance } else { first_limit };
        let gain = numa.gain(search.task, search.src_node, node, search.limit);
        if gain.task >= 0 || gain.group >= 0 {
            self.search_node(core, search, node);
        }
    }

    /// Acts on what was found.
    fn conclude_search(&mut self, core: &mut Core<'_>, search: &Search, preferred: u32) {
        let Some(numa) = &mut self.numa else { return };
        let task = search.task;
        let found = search.best.map_or(search.src_node, |cpu| numa.nodes.of(cpu));
        // A group that spans nodes settles where there is room.
        if numa.statistics.group_size(task.index()) > 0 && found != preferred {
            let queued = self.entities[(self.task_base + task.0) as usize].on_rq;
            numa.set_preferred(task, found, queued.then_some(search.src));
            core.decide(numa.decisions.preferred_settled, task, i64::from(found));
        }
        let Some(dst) = search.best else {
            core.decide(numa.decisions.move_refused, task, i64::from(preferred));
            return;
        };
        self.request_move(core, task, (search.src, dst), search.best_partner);
    }

    /// Asks the stopper to move a task, and its partner the other way.
    pub(super) fn request_move(
        &mut self,
        core: &mut Core<'_>,
        task: TaskId,
        (src, dst): (CpuId, CpuId),
        partner: Option<TaskId>,
    ) {
        let Some(numa) = &mut self.numa else { return };
        let why = match partner {
            Some(_) => numa.decisions.swapped,
            None if self.idle[dst.index()] => numa.decisions.moved_to_idle,
            None => numa.decisions.moved,
        };
        core.decide(why, task, i64::from(numa.nodes.of(dst)));
        numa.tasks[task.index()].planned = Some(Plan { src, dst, partner });
        match partner {
            None => core.queue_stopper(src, STOPPER_MOVE | task.0),
            Some(_) => core.queue_two_stoppers(src, dst, STOPPER_MOVE | task.0),
        }
    }

    /// Looks for a CPU of a node (`task_numa_find_cpu`).
    fn search_node(&mut self, core: &Core<'_>, search: &mut Search, node: u32) {
        let load = self.node_load(core, search.task, node);
        let Some(numa) = &self.numa else { return };
        let gain = numa.gain(search.task, search.src_node, node, search.limit);
        (search.dst_node, search.dst_load) = (node, load);
        let may_move = if search.has_spare() {
            let dst_running = load.nr_running + 1;
            let excess = (i64::from(dst_running) - (i64::from(search.src_load.nr_running) - 1)).max(0);
            let evenly = adjust_numa_imbalance(excess, dst_running, search.imb_numa_nr) == 0;
            if evenly && let Some(idle) = load.idle_cpu {
                self.assign(core, search, idle, None, 0);
                return;
            }
            evenly
        } else {
            !search.src_load.is_worse_after(&load, self.task_h_load(search.task) as i64)
        };
        for cpu in core.machine().cpus_of_node(warmcore_topology::NodeId(node)).iter() {
            let allowed =
                core.may_run_on(search.task, cpu) && self.gathering.rank_near_memory(search.task, cpu).is_some();
            if allowed && self.compare(core, search, cpu, gain, may_move) {
                break;
            }
        }
    }

    /// Weighs a CPU and the task on it (`task_numa_compare`). Whether the search is over.
    fn compare(&mut self, core: &Core<'_>, search: &mut Search, cpu: CpuId, gain: Gain, may_move: bool) -> bool {
        let Some(numa) = &self.numa else { return true };
        if numa.cpus[cpu.index()].migrate_on {
            return false;
        }
        let curr = core.curr(cpu);
        if curr == search.task {
            return true;
        }
        let move_gain = gain.of_move();
        if curr.is_idle() {
            return may_move
                && move_gain >= search.best_gain
                && self.take(core, search, cpu, None, move_gain, may_move);
        }
        if !core.may_run_on(curr, search.src) || numa.tasks[curr.index()].planned.is_some() {
            return false;
        }
        let partner = numa.partner(search.task, curr, (search.src_node, search.dst_node), search.limit);
        if search.best_partner.is_some() && search.best_goes_home && !partner.goes_home {
            return false;
        }
        let Some(swap_gain) = gain.of_swap(&partner, search.has_spare()) else { return false };
        if may_move && move_gain > swap_gain && move_gain > search.best_gain {
            return self.take(core, search, cpu, None, move_gain, may_move);
        }
        let brings_home = search.best_partner.is_some() && partner.goes_home && !search.best_goes_home;
        if !brings_home {
            if !is_worth_it(swap_gain, search.best_gain) {
                return false;
            }
            let load = self.task_h_load(search.task) as i64 - self.task_h_load(curr) as i64;
            if load != 0 && search.src_load.is_worse_after(&search.dst_load, load) {
                return false;
            }
        }
        search.best_goes_home = partner.goes_home;
        self.take(core, search, cpu, Some(curr), swap_gain, may_move)
    }

    /// Notes a CPU as the best so far. Whether that is good enough to stop looking.
    fn take(
        &mut self,
        core: &Core<'_>,
        search: &mut Search,
        cpu: CpuId,
        partner: Option<TaskId>,
        gain: i64,
        may_move: bool,
    ) -> bool {
        let mut target = cpu;
        if partner.is_none() {
            target = search.dst_load.idle_cpu.unwrap_or(cpu);
            if let Some(best) = search.best
                && !self.is_idle_cpu(core, target)
                && self.is_idle_cpu(core, best)
            {
                target = best;
            }
        }
        self.assign(core, search, target, partner, gain);
        let best_is_idle = search.best.is_some_and(|best| self.is_idle_cpu(core, best));
        let move_to_idle = may_move && partner.is_none() && best_is_idle;
        let swap_home = !may_move && search.best_partner.is_some() && search.best_goes_home;
        move_to_idle || swap_home
    }

    /// Claims a CPU, or another idle one of its node if somebody else is on the way there (`task_numa_assign`).
    fn assign(&mut self, core: &Core<'_>, search: &mut Search, cpu: CpuId, partner: Option<TaskId>, gain: i64) {
        let Some(numa) = &self.numa else { return };
        let mut chosen = Some(cpu);
        if search.best != Some(cpu) && numa.cpus[cpu.index()].migrate_on {
            let cpus = core.machine().cpus_of_node(warmcore_topology::NodeId(search.dst_node));
            let after = cpus.iter().filter(|other| other.0 > cpu.0).chain(cpus.iter().filter(|other| other.0 <= cpu.0));
            let mut usable = after.filter(|&other| {
                search.best != Some(other)
                    && self.gathering.rank_near_memory(search.task, other).is_some()
                    && self.is_idle_cpu(core, other)
                    && core.may_run_on(search.task, other)
                    && !numa.cpus[other.index()].migrate_on
            });
            chosen = usable.next();
        }
        let Some(chosen) = chosen else { return };
        let Some(numa) = &mut self.numa else { return };
        if let Some(before) = search.best {
            numa.cpus[before.index()].migrate_on = false;
        }
        numa.cpus[chosen.index()].migrate_on = true;
        (search.best, search.best_partner, search.best_gain) = (Some(chosen), partner, gain);
    }

    /// Sums up a node (`update_numa_stats`); `task` is who looks for an idle CPU there, an idle core if there is one.
    fn node_load(&self, core: &Core<'_>, task: TaskId, node: u32) -> NodeLoad {
        let mut sums = NodeLoad::default();
        let Some(numa) = &self.numa else { return sums };
        let (mut on_idle_core, mut earliest) = (None, u32::MAX);
        for cpu in core.machine().cpus_of_node(warmcore_topology::NodeId(node)).iter() {
            if !core.active().contains(cpu) {
                continue;
            }
            sums.load += self.cpu_load(cpu);
            sums.runnable += self.cpu_runnable(cpu);
            sums.util += self.cpu_util(cpu);
            sums.nr_running += self.queues[cpu.index()].h_nr_runnable;
            sums.capacity += u64::from(self.domains.capacity_of(cpu));
            sums.cpus += 1;
            let usable = self.is_idle_cpu(core, cpu) && !numa.cpus[cpu.index()].migrate_on;
            if !usable || !core.may_run_on(task, cpu) {
                continue;
            }
            // The earliest LLC of a scope before all, if there is one to respect.
            match self.gathering.rank_near_memory(task, cpu) {
                Some(place) if place < earliest => (earliest, on_idle_core, sums.idle_cpu) = (place, None, None),
                Some(place) if place == earliest && on_idle_core.is_none() => {}
                _ => continue,
            }
            sums.idle_cpu = sums.idle_cpu.or(Some(cpu));
            let llc = self.domains.sd_llc_id(cpu);
            if self.domains.smt_active() && self.domains.shared(llc).has_idle_cores && self.is_core_idle(cpu) {
                on_idle_core = Some(cpu);
            }
        }
        sums.idle_cpu = on_idle_core.or(sums.idle_cpu);
        sums
    }

    /// The stopper of a task's CPU, and of its partner's, has stopped them: they change places (`migration_cpu_stop`,
    /// `migrate_swap_stop`).
    pub(in crate::fair) fn planned_move_stopper(&mut self, core: &mut Core<'_>, task: TaskId) {
        let Some(numa) = &mut self.numa else { return };
        let Some(Plan { src, dst, partner }) = numa.tasks[task.index()].planned.take() else { return };
        numa.cpus[dst.index()].migrate_on = false;
        let node = i64::from(numa.nodes.of(dst));
        let in_place = |who: TaskId, cpu: CpuId| {
            let state = core.task(who);
            state.cpu() == cpu && !matches!(state.state(), State::Dead | State::Waking | State::New)
        };
        let both = in_place(task, src) && partner.is_none_or(|partner| in_place(partner, dst));
        let allowed = core.may_run_on(task, dst) && partner.is_none_or(|partner| core.may_run_on(partner, src));
        if !both || !allowed {
            core.decide(numa.decisions.move_late, task, node);
            return;
        }
        self.move_stopped(core, task, src, dst);
        if let Some(partner) = partner {
            self.move_stopped(core, partner, dst, src);
        }
    }

    /// Moves a task that does not run, queued or asleep.
    fn move_stopped(&mut self, core: &mut Core<'_>, task: TaskId, src: CpuId, dst: CpuId) {
        let queued = core.task(task).state() == State::Queued;
        let index = self.task_entity(task);
        // One that has left for its group's quota is queued too.
        if self.entities[index as usize].on_rq || self.in_limbo(index) {
            Scheduler::dequeue(self, core, src, task, Dequeue::MIGRATING);
        }
        core.set_task_cpu(task, dst, MigrationKind::Numa);
        if queued {
            Scheduler::enqueue(self, core, dst, task, Enqueue::MIGRATED);
            Scheduler::check_preempt(self, core, dst, task, WakeFlags::default());
        }
    }
}

impl NumaBalancing {
    pub(super) fn gain(&self, task: TaskId, from: u32, to: u32, limit: u32) -> Gain {
        let [task_gain, group_gain] = weight_difference(&self.statistics, &self.nodes, task.index(), (from, to), limit);
        Gain { task: task_gain, group: group_gain, grouped: self.statistics.group_size(task.index()) > 0 }
    }

    pub(super) fn partner(&self, task: TaskId, other: TaskId, (src, dst): (u32, u32), limit: u32) -> Partner {
        let (own, theirs) = (self.statistics.group_of(task.index()), self.statistics.group_of(other.index()));
        let [task_gain, group_gain] =
            weight_difference(&self.statistics, &self.nodes, other.index(), (dst, src), limit);
        let preferred = self.tasks[other.index()].preferred;
        Partner {
            same_group: own == theirs,
            both_grouped: own != NO_NODE && theirs != NO_NODE,
            grouped: theirs != NO_NODE,
            task_gain,
            group_gain,
            is_home: preferred == dst,
            goes_home: preferred == src,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of the imbalance percentage of NUMA levels, 100 + (117 − 100) / 2.
    const PCT: u32 = 108;

    fn node(nr_running: u32, util: u64, runnable: u64) -> NodeLoad {
        NodeLoad { load: runnable, runnable, util, capacity: 4 * 1024, nr_running, cpus: 4, idle_cpu: None }
    }

    #[test]
    fn nodes_are_classified_at_108_percent() {
        assert_eq!(node(3, 4096, 9000).classify(PCT), NodeType::HasSpare);
        // 4096 / 1.08 = 3792.6 of utilisation, 4096 × 1.08 = 4423.7 of waiting.
        assert_eq!(node(4, 3792, 4423).classify(PCT), NodeType::HasSpare);
        assert_eq!(node(4, 3793, 4423).classify(PCT), NodeType::FullyBusy);
        assert_eq!(node(5, 3793, 4096).classify(PCT), NodeType::Overloaded);
        assert_eq!(node(5, 3000, 4424).classify(PCT), NodeType::Overloaded);
        assert_eq!(node(5, 3000, 4000).classify(PCT), NodeType::HasSpare);
    }

    #[test]
    fn a_move_must_not_make_loads_more_different() {
        let (four, two) = (node(4, 4096, 4096), node(2, 2048, 2048));
        assert!(!four.is_worse_after(&two, 1024) && !four.is_worse_after(&two, 2048));
        assert!(four.is_worse_after(&two, 2049) && two.is_worse_after(&four, 1));
        // A node of half the capacity is full with half the load.
        let small = NodeLoad { capacity: 2048, ..two };
        assert!(four.is_worse_after(&small, 1024));
    }

    const STRANGER: Partner = Partner {
        same_group: false,
        both_grouped: false,
        grouped: false,
        task_gain: 100,
        group_gain: 60,
        is_home: false,
        goes_home: false,
    };

    #[test]
    fn a_swap_weighs_both_tasks() {
        let gain = Gain { task: 200, group: 320, grouped: true };
        // A partner without group counts with its own faults, one with a group with its group's.
        assert_eq!(gain.of_swap(&STRANGER, true), Some(320 + 100));
        assert_eq!(gain.of_swap(&Partner { both_grouped: true, grouped: true, ..STRANGER }, true), Some(320 + 60));
        // Within a group only the tasks' own count, less a sixteenth, and only where there is no room.
        let friend = Partner { same_group: true, grouped: true, ..STRANGER };
        assert_eq!(gain.of_swap(&friend, false), Some(300 - 18));
        assert_eq!(gain.of_swap(&friend, true), None);
        let loners = Partner { same_group: true, ..STRANGER };
        assert_eq!(Gain { grouped: false, ..gain }.of_swap(&loners, false), Some(300));
    }

    #[test]
    fn a_partner_at_home_costs_a_sixteenth_and_one_that_goes_home_brings_an_eighth() {
        let gain = Gain { task: 60, group: 0, grouped: false };
        assert_eq!(gain.of_swap(&Partner { is_home: true, ..STRANGER }, true), Some(160 - 10));
        assert_eq!(gain.of_swap(&Partner { goes_home: true, ..STRANGER }, true), Some(160 + 20));
    }

    #[test]
    fn a_swap_needs_30_thousandths_and_15_more_than_the_best_so_far() {
        assert!(is_worth_it(30, 0) && !is_worth_it(29, 0));
        assert!(is_worth_it(116, 100) && !is_worth_it(115, 100));
    }
}
