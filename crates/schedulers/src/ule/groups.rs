//! The tree of CPU groups, and the search for the least and the most loaded CPU in it.
//!
//! Source: `docs/spec/ule.md` sections 9.1 and 9.2 (`struct cpu_group`, `cpu_search`). The port looks at all CPUs of
//! a group in one pass instead ([`SearchRules`]).

use warmcore_topology::{CpuId, CpuSet, Machine, SPLIT_MIX_STEP, split_mix};

use super::profile::SearchRules;

/// Value of one thread on a CPU.
const PER_THREAD: i32 = 256;

/// What the CPUs of a group share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GroupLevel {
    /// No cache.
    None,
    L3,
    L2,
    /// The core.
    L1,
}

impl GroupLevel {
    /// How many times the basic affinity a thread's data is taken to last.
    pub fn affinity(self) -> u64 {
        match self {
            Self::None => 0,
            Self::L3 => 3,
            Self::L2 => 2,
            Self::L1 => 1,
        }
    }
}

/// Index of a group in its [`Groups`].
pub(crate) type GroupId = u32;

#[derive(Clone, Debug)]
pub(crate) struct CpuGroup {
    pub parent: Option<GroupId>,
    children: Vec<GroupId>,
    /// Ascending.
    pub cpus: Vec<CpuId>,
    pub level: GroupLevel,
    /// Its CPUs are hardware threads of one core.
    pub smt: bool,
}

/// All groups of a machine; the first is the root.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    groups: Vec<CpuGroup>,
    /// Innermost group of each CPU.
    leaf_of: Vec<GroupId>,
}

/// The group of all CPUs.
pub(crate) const ROOT: GroupId = 0;

impl Groups {
    /// The machine: below the root NUMA nodes, if `nodes`, then LLCs, then cores that share an L2, then the hardware threads of cores. A
    /// group that would equal the one above it is left out, but for what its CPUs share.
    pub fn new(machine: &Machine, nodes: bool) -> Self {
        let all: Vec<CpuId> = machine.cpus().collect();
        let root = CpuGroup { parent: None, children: Vec::new(), cpus: all, level: GroupLevel::None, smt: false };
        let mut groups = Self { groups: vec![root], leaf_of: vec![ROOT; machine.cpu_count()] };
        if nodes {
            let nodes = machine.nodes().map(|node| machine.cpus_of_node(node).clone());
            let nodes: Vec<CpuSet> = nodes.filter(|cpus| !cpus.is_empty()).collect();
            groups.add_below(&nodes, GroupLevel::None, false);
        }
        let llcs: Vec<CpuSet> = machine.llcs().map(|llc| machine.cpus_of_llc(llc).clone()).collect();
        groups.add_below(&llcs, GroupLevel::L3, false);
        let clusters: Vec<CpuSet> =
            machine.cpus().map(|cpu| machine.cpus_of_cluster(machine.cluster_of(cpu)).clone()).collect();
        groups.add_below(&clusters, GroupLevel::L2, false);
        let cores: Vec<CpuSet> = machine.cpus().map(|cpu| machine.cpus_of_core(machine.core_of(cpu)).clone()).collect();
        groups.add_below(&cores, GroupLevel::L1, true);
        groups
    }

    /// Splits the innermost groups into these sets, some of which may be named several times. A set of one CPU is a group as well, but not
    /// where all of a group's are (`x86topo_add_sched_group`).
    fn add_below(&mut self, sets: &[CpuSet], level: GroupLevel, smt: bool) {
        let sets: Vec<Vec<CpuId>> = sets.iter().map(|set| set.iter().collect()).collect();
        let splits = |cpus: &&Vec<CpuId>| cpus.len() > 1 && **cpus != self.group(self.leaf(cpus[0])).cpus;
        let split: Vec<GroupId> = sets.iter().filter(splits).map(|cpus| self.leaf(cpus[0])).collect();
        for cpus in sets {
            let parent = self.leaf(cpus[0]);
            let above = &mut self.groups[parent as usize];
            if above.cpus == cpus {
                if cpus.len() > 1 {
                    above.level = above.level.max(level);
                    above.smt |= smt;
                }
                continue;
            }
            if !split.contains(&parent) {
                continue;
            }
            let group = self.groups.len() as GroupId;
            self.groups[parent as usize].children.push(group);
            cpus.iter().for_each(|cpu| self.leaf_of[cpu.index()] = group);
            let smt = smt && cpus.len() > 1;
            self.groups.push(CpuGroup { parent: Some(parent), children: Vec::new(), cpus, level, smt });
        }
    }

    /// A group.
    pub fn group(&self, group: GroupId) -> &CpuGroup {
        &self.groups[group as usize]
    }

    /// The innermost group of a CPU.
    pub fn leaf(&self, cpu: CpuId) -> GroupId {
        self.leaf_of[cpu.index()]
    }

    /// The other one of two groups that share their parent.
    pub fn sibling(&self, group: GroupId) -> Option<GroupId> {
        match self.group(self.group(group).parent?).children[..] {
            [one, other] => Some(if group == one { other } else { one }),
            _ => None,
        }
    }

    /// The group and those around it, to the root.
    pub fn outward(&self, from: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        std::iter::successors(Some(from), |&group| self.group(group).parent)
    }
}

/// Which of two searches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// The least loaded CPU.
    Least,
    /// The most loaded CPU.
    Most,
}

/// What a search found in a group.
#[derive(Clone, Copy, Debug)]
struct Found {
    cpu: CpuId,
    /// Its own value, lowered by chance.
    value: i32,
}

/// A search: how CPUs are loaded, who may be found, whether groups count.
pub(crate) struct Search<'a, Load, Admits> {
    pub groups: &'a Groups,
    /// Threads running and queued on a CPU.
    pub load: Load,
    /// Whether a CPU may be the result.
    pub admits: Admits,
    /// CPU that is preferred among equals.
    pub preferred: Option<CpuId>,
    /// Whether the thread that looks for a CPU runs on the preferred one, or waits there: a search for the least loaded.
    pub running: bool,
    pub wanted: Wanted,
    pub rules: SearchRules,
    /// CPUs looked at so far.
    pub visited: u32,
}

impl<Load: Fn(CpuId) -> u32, Admits: Fn(CpuId) -> bool> Search<'_, Load, Admits> {
    /// The CPU wanted of a group, if any is admitted.
    pub fn of(&mut self, group: GroupId, chance: &mut Chance) -> Option<CpuId> {
        self.look(group, chance).1.map(|found| found.cpu)
    }

    /// Sum of the values of all CPUs of a group, and the best of those admitted.
    fn look(&mut self, group: GroupId, chance: &mut Chance) -> (i32, Option<Found>) {
        let groups = self.groups;
        let this = groups.group(group);
        if this.children.is_empty() || !self.rules.by_group {
            return self.look_at_cpus(&this.cpus, chance);
        }
        let (mut sum, mut best): (i32, Option<(i32, Found)>) = (0, None);
        for &child in this.children.iter().rev() {
            let (mut child_sum, found) = self.look(child, chance);
            sum += child_sum;
            // The preferred CPU is half a thread less: a group of loaded hardware threads loses that.
            let half = PER_THREAD / 2;
            if self.discounts() && groups.group(child).smt && child_sum >= half && child_sum & half != 0 {
                child_sum += half;
            }
            let Some(found) = found else { continue };
            let better = best.is_none_or(|(best_sum, best)| {
                self.prefers(child_sum, best_sum) || child_sum == best_sum && self.prefers(found.value, best.value)
            });
            if better {
                best = Some((child_sum, found));
            }
        }
        (sum, best.map(|(_, found)| found))
    }

    fn look_at_cpus(&mut self, cpus: &[CpuId], chance: &mut Chance) -> (i32, Option<Found>) {
        let (mut sum, mut best): (i32, Option<(i32, Found)>) = (0, None);
        for &cpu in cpus {
            self.visited += 1;
            let (mut value, mut less) = (PER_THREAD * (self.load)(cpu) as i32, 0);
            if self.preferred == Some(cpu) {
                less = self.rules.preferred;
                value -= if self.discounts() { PER_THREAD } else { 0 };
            }
            sum += value - less;
            if !(self.admits)(cpu) {
                continue;
            }
            if self.discounts() && value > 0 {
                less = 0;
            }
            let lowered = chance.below(self.rules.chance[self.wanted as usize]) as i32;
            let in_ties = if self.rules.preferred_in_ties { value - less } else { value };
            let (value, found) = (value - less, Found { cpu, value: in_ties - lowered });
            let better = best.is_none_or(|(best_value, best)| {
                self.prefers(value, best_value) || value == best_value && self.prefers(found.value, best.value)
            });
            if better {
                best = Some((value, found));
            }
        }
        (sum, best.map(|(_, found)| found))
    }

    /// Whether the thread that looks for a CPU does not count on its own.
    fn discounts(&self) -> bool {
        self.running && self.rules.discounts_running
    }

    fn prefers(&self, one: i32, other: i32) -> bool {
        match self.wanted {
            Wanted::Least => one < other,
            Wanted::Most => one > other,
        }
    }
}

/// Numbers by chance, from the run's seed.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// A generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below a limit that is not zero (splitmix64, its upper half scaled).
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(SPLIT_MIX_STEP);
        (((split_mix(self.0) >> 32) * u64::from(limit)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::{Model, Reading};
    use super::*;

    fn groups(text: &str) -> Groups {
        Groups::new(&warmcore_topology::resolve(text).unwrap(), false)
    }

    fn shape(groups: &Groups) -> Vec<(GroupLevel, bool, usize)> {
        groups.groups.iter().map(|group| (group.level, group.smt, group.cpus.len())).collect()
    }

    #[test]
    fn groups_follow_the_caches() {
        let two_llcs = groups("1s1n2l4c1t");
        assert_eq!(
            shape(&two_llcs),
            [(GroupLevel::None, false, 8), (GroupLevel::L3, false, 4), (GroupLevel::L3, false, 4)]
        );
        let one_core = groups("1s1n1l1c2t");
        assert_eq!(shape(&one_core), [(GroupLevel::L1, true, 2)], "all in one");
        let smt = groups("1s1n2l2c2t");
        let outward: Vec<usize> = smt.outward(smt.leaf(CpuId(0))).map(|group| smt.group(group).cpus.len()).collect();
        assert_eq!(outward, [2, 4, 8]);
        assert!(smt.group(smt.leaf(CpuId(0))).smt);
    }

    /// `docs/spec/ule.md` section 16. Each of eight dies, which are nodes, has two LLCs of four cores: FreeBSD 14 looks at the die of 16 CPUs before
    /// it looks everywhere, FreeBSD 11 has the 16 LLCs below the root. Nodes that are LLCs, or all, add nothing.
    #[test]
    fn nodes_are_groups_in_freebsd_14() {
        let naples = warmcore_topology::resolve("naples32").unwrap();
        let outward = |nodes: bool| {
            let groups = Groups::new(&naples, nodes);
            let sizes = groups.outward(groups.leaf(CpuId(0))).map(|group| groups.group(group).cpus.len());
            (sizes.collect::<Vec<_>>(), groups.group(ROOT).children.len())
        };
        assert_eq!(outward(false), (vec![2, 8, 128], 16));
        assert_eq!(outward(true), (vec![2, 8, 16, 128], 8));
        for machine in ["1s1n2l4c2t", "2s1n1l4c2t"] {
            let machine = warmcore_topology::resolve(machine).unwrap();
            assert_eq!(shape(&Groups::new(&machine, true)), shape(&Groups::new(&machine, false)));
        }
    }

    /// Two nodes of two LLCs of two CPUs. CPU 6 is idle, but its node has more threads than the other.
    #[test]
    fn a_search_descends_by_node() {
        let machine = warmcore_topology::resolve("2s1n2l2c1t").unwrap();
        let loads = [1, 1, 1, 1, 3, 3, 0, 1];
        let found = |nodes: bool| search(&Groups::new(&machine, nodes), &loads, Wanted::Least, true, None);
        assert_eq!(found(false), [6], "the LLC of CPUs 6 and 7 has a load of 1, the least");
        assert_eq!(found(true), [0, 1, 2, 3], "the first node has 4, the second 7");
    }

    /// CPUs in LLCs, all in one node.
    fn unequal(llcs: &str) -> Groups {
        let last = llcs.rsplit(['"', '-', ',']).find(|part| !part.is_empty()).unwrap();
        let text = format!("[topology]\nnodes = [{{ id = 0, cpus = \"0-{last}\" }}]\nllcs = [{llcs}]\n");
        Groups::new(&warmcore_topology::from_toml(&text).unwrap(), false)
    }

    /// FreeBSD leaves groups of one CPU out only where there are no others (`x86topo_add_sched_group`): a search looks at children alone.
    #[test]
    fn a_cpu_alone_in_its_llc_is_a_group_next_to_larger_ones() {
        let (llc, one) = ((GroupLevel::L3, false), CpuId(4));
        let four_and_one = unequal(r#""0-3", "4""#);
        let root = (GroupLevel::None, false, 5);
        assert_eq!(shape(&four_and_one), [root, (llc.0, llc.1, 4), (llc.0, llc.1, 1)]);
        assert_eq!(four_and_one.sibling(four_and_one.leaf(one)), Some(four_and_one.leaf(CpuId(0))));
        assert_eq!(search(&four_and_one, &[2, 2, 2, 2, 0], Wanted::Least, true, None), [4]);
        assert_eq!(search(&four_and_one, &[1, 1, 1, 1, 8], Wanted::Most, true, None), [4]);
        let sizes = |groups: &Groups| groups.groups.iter().map(|group| group.cpus.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&unequal(r#""0", "1", "2-3""#)), [4, 1, 1, 2]);
        assert_eq!(sizes(&unequal(r#""0", "1-2", "3-4""#)), [5, 1, 2, 2]);
        assert_eq!(sizes(&unequal(r#""0", "1", "2""#)), [3], "all alone: no groups");
    }

    /// CPU 2's other hardware thread is offline.
    #[test]
    fn a_core_of_one_hardware_thread_is_a_group_next_to_larger_ones() {
        let text = "[topology]\nnodes = [{ id = 0, cpus = \"0-2\" }]\nllcs = [\"0-2\"]\ncores = [\"0-1\", \"2\"]\n";
        let cores = Groups::new(&warmcore_topology::from_toml(text).unwrap(), false);
        let smt: Vec<(usize, bool)> = cores.groups.iter().map(|group| (group.cpus.len(), group.smt)).collect();
        assert_eq!(smt, [(3, false), (2, true), (1, false)]);
        assert_eq!(search(&cores, &[1, 1, 0], Wanted::Least, true, None), [2]);
    }

    fn search(groups: &Groups, loads: &[u32], wanted: Wanted, by_group: bool, preferred: Option<u32>) -> Vec<u32> {
        let mut chance = Chance::new(1);
        let mut found: Vec<u32> = (0..200)
            .filter_map(|_| {
                let preferred = preferred.map(CpuId);
                let load = |cpu: CpuId| loads[cpu.index()];
                let admits = |cpu: CpuId| loads[cpu.index()] < 9;
                let rules = SearchRules { by_group, ..Model::new(Reading::Freebsd11, 127).search };
                Search { groups, load, admits, preferred, running: false, wanted, rules, visited: 0 }
                    .of(ROOT, &mut chance)
            })
            .map(|cpu| cpu.0)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn ule_17_6_equal_cpus_are_chosen_by_chance_and_the_preferred_one_surely() {
        let groups = groups("1s1n1l4c1t");
        assert_eq!(search(&groups, &[1, 0, 0, 1], Wanted::Least, true, None), [1, 2]);
        assert_eq!(search(&groups, &[1, 0, 0, 1], Wanted::Least, true, Some(2)), [2]);
        assert_eq!(search(&groups, &[2, 0, 0, 2], Wanted::Most, true, None), [0, 3]);
        assert_eq!(search(&groups, &[9, 9, 9, 9], Wanted::Least, true, None), [0; 0], "nobody is admitted");
    }

    #[test]
    fn the_least_loaded_cpu_is_that_of_the_least_loaded_path() {
        let groups = groups("1s1n2l2c1t");
        // CPU 0 is the least loaded of all, but its LLC is not.
        assert_eq!(search(&groups, &[0, 5, 1, 2], Wanted::Least, true, None), [2]);
        assert_eq!(search(&groups, &[0, 5, 1, 2], Wanted::Least, false, None), [0], "in one pass");
        // Who is not admitted still counts in its group's sum.
        assert_eq!(search(&groups, &[0, 9, 1, 2], Wanted::Least, true, None), [2]);
    }

    #[test]
    fn of_equal_groups_the_one_with_the_better_cpu_is_taken() {
        let groups = groups("1s1n2l2c1t");
        assert_eq!(search(&groups, &[2, 2, 1, 3], Wanted::Least, true, None), [2]);
        assert_eq!(search(&groups, &[1, 3, 2, 2], Wanted::Least, true, None), [0]);
    }

    /// What a thread that runs on a CPU and looks for another finds, with the rules of FreeBSD 14.
    fn looks_from(machine: &str, loads: &[u32], cpu: u32) -> Vec<u32> {
        let groups = groups(machine);
        let rules = Model::new(Reading::Modern, 127).search;
        let (load, preferred) = (|cpu: CpuId| loads[cpu.index()], Some(CpuId(cpu)));
        let mut chance = Chance::new(1);
        let wanted = Wanted::Least;
        let mut search =
            Search { groups: &groups, load, admits: |_| true, preferred, running: true, wanted, rules, visited: 0 };
        let mut found: Vec<u32> = (0..100).filter_map(|_| search.of(ROOT, &mut chance)).map(|cpu| cpu.0).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// `docs/spec/ule.md` section 16. Its own thread counts nothing: alone it stays. Beside another in one LLC it goes to an empty one; on a
    /// core whose other hardware thread is busy it prefers its own no more.
    #[test]
    fn a_running_thread_leaves_for_a_group_that_is_empty_without_it() {
        assert_eq!(looks_from("1s1n2l2c1t", &[1, 0, 0, 0], 0), [0]);
        assert_eq!(looks_from("1s1n2l2c1t", &[1, 1, 0, 0], 0), [2, 3]);
        assert_eq!(looks_from("1s1n2l2c1t", &[1, 1, 1, 0], 0), [0], "half a thread of preference: 128 against 256");
        // CPUs 0 and 2 are a core, 1 and 3 the other.
        assert_eq!(looks_from("1s1n1l2c2t", &[1, 1, 1, 0], 0), [0, 3], "as full, and none is preferred");
        assert_eq!(looks_from("1s1n1l2c2t", &[1, 0, 1, 0], 0), [1, 3]);
        assert_eq!(looks_from("1s1n1l2c1t", &[2, 1], 0), [0, 1], "a CPU with others is not preferred either");
    }

    #[test]
    fn of_two_groups_each_is_the_others_sibling() {
        let two = groups("1s1n2l2c1t");
        let (one, other) = (two.leaf(CpuId(0)), two.leaf(CpuId(2)));
        assert_eq!((two.sibling(one), two.sibling(other), two.sibling(ROOT)), (Some(other), Some(one), None));
        let three = groups("1s1n3l2c1t");
        assert_eq!(three.sibling(three.leaf(CpuId(0))), None);
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed_and_covers_its_range() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..500).map(|_| chance.below(8)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!((0..8).all(|number| draw(3).contains(&number)));
    }
}
