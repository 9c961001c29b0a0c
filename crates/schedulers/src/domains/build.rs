//! Construction of the domains from a machine (`build_sched_domains`, `cpu_attach_domain`).

use std::collections::{BTreeMap, BTreeSet};

use warmcore_topology::{CAPACITY_SCALE, CpuId, CpuSet, Machine, NodeId, RECLAIM_DISTANCE};

use super::{CpuPosition, Domain, DomainParameters, Domains, Level, LlcShared, NO_DOMAIN, SchedGroup, flags};

/// `imbalance_pct` of cache-sharing levels, in every kernel since 2.6.
const IMBALANCE_PCT_SHARED_CACHE: u32 = 117;

/// Span of a CPU that is offline and alone in it.
const NO_SPAN: u32 = u32::MAX;

/// A level of the machine before any CPU's domains are built from it (`sched_domain_topology_level`).
struct TopologyLevel {
    level: Level,
    /// NUMA distance up to which nodes belong together; 0 below the NUMA levels.
    distance: u32,
    /// Index of each CPU's span.
    span_of: Vec<u32>,
}

/// A domain while the hierarchy is being built.
#[derive(Clone)]
struct Draft {
    /// Index of the topology level.
    level: usize,
    span: u32,
    flags: u32,
    imb_numa_nr: u32,
}

/// Sets of CPUs, each stored once.
#[derive(Default)]
struct Spans {
    index: BTreeMap<Vec<u32>, u32>,
    members: Vec<Vec<u32>>,
}

impl Spans {
    fn intern(&mut self, cpus: Vec<u32>) -> u32 {
        if let Some(&index) = self.index.get(&cpus) {
            return index;
        }
        let index = self.members.len() as u32;
        self.members.push(cpus.clone());
        self.index.insert(cpus, index);
        index
    }

    fn weight(&self, span: u32) -> u32 {
        self.members[span as usize].len() as u32
    }

    fn is_subset(&self, inner: u32, outer: u32) -> bool {
        let outer = &self.members[outer as usize];
        self.members[inner as usize].iter().all(|cpu| outer.binary_search(cpu).is_ok())
    }

    /// Span of each CPU when CPUs with equal keys belong together.
    fn by_key<K: Ord>(&mut self, machine: &Machine, active: &CpuSet, key: impl Fn(CpuId) -> K) -> Vec<u32> {
        let mut members: BTreeMap<K, Vec<u32>> = BTreeMap::new();
        for cpu in active.iter() {
            members.entry(key(cpu)).or_default().push(cpu.0);
        }
        let spans: BTreeMap<K, u32> = members.into_iter().map(|(key, cpus)| (key, self.intern(cpus))).collect();
        machine.cpus().map(|cpu| spans.get(&key(cpu)).copied().unwrap_or(NO_SPAN)).collect()
    }
}

impl Domains {
    /// Builds the domains of a machine. Nodes farther apart than its reclaim distance are not reached by placement at
    /// fork, exec and wakeup.
    pub fn build(machine: &Machine, parameters: &DomainParameters) -> Domains {
        Self::build_of(machine, machine.all_cpus(), parameters)
    }

    /// Builds them of the CPUs that are active, the others offline: those have no domain, and count for their LLC's number but are none of
    /// its CPUs.
    pub fn build_of(machine: &Machine, active: &CpuSet, parameters: &DomainParameters) -> Domains {
        let reclaim_distance = match parameters.same_reclaim_distance {
            true => machine.reclaim_distance().min(RECLAIM_DISTANCE),
            false => machine.reclaim_distance(),
        };
        let mut spans = Spans::default();
        let levels = topology_levels(machine, active, &mut spans, parameters);
        let mut drafts: Vec<Vec<Draft>> = machine
            .cpus()
            .map(|cpu| match active.contains(cpu) {
                true => draft_domains(&levels, &spans, cpu, active.len() as u32, reclaim_distance),
                false => Vec::new(),
            })
            .collect();
        let smt_active = machine.smt_width() > 1
            && active.iter().any(|cpu| machine.cpus_of_core(machine.core_of(cpu)).intersection_len(active) > 1);
        let packs = packs_by_priority(machine, smt_active);
        for chain in &mut drafts {
            match packs {
                true => mark_packing(chain, &levels),
                false => mark_asymmetry(chain, &spans, machine, smt_active),
            }
            set_imb_numa_nr(chain, &levels, &spans);
        }
        let attached: Vec<Vec<Draft>> = drafts.iter().map(|chain| degenerate(chain, &spans)).collect();
        let capacity = |cpu| capacity(machine, cpu, parameters.smt_gain, packs);
        let capacities: Vec<u32> = machine.cpus().map(capacity).collect();
        let priorities: Vec<u32> = machine.cpus().filter(|_| packs).map(|cpu| machine.priority(cpu)).collect();
        let mut builder = GroupBuilder::new(machine, &spans, &drafts, &attached, &capacities, &priorities);
        let mut all = Vec::new();
        let mut first = Vec::with_capacity(machine.cpu_count() + 1);
        for cpu in machine.cpus() {
            first.push(all.len() as u32);
            for draft in &attached[cpu.index()] {
                let level = levels[draft.level].level;
                let mut domain = new_domain(draft, level, spans.weight(draft.span), parameters);
                let groups = match level {
                    Level::Numa if parameters.groups_from_first_cpu => builder.groups_of_4_9(cpu.0, draft.level),
                    _ => builder.groups_from(cpu.0, draft.level, level == Level::Numa),
                };
                (domain.ring_start, domain.ring_len, domain.ring_local) = builder.intern_ring(groups);
                all.push(domain);
            }
        }
        first.push(all.len() as u32);
        let GroupBuilder { groups, rings, cpu_lists, .. } = builder;
        let mut domains = Domains {
            all,
            crowded: vec![0; spans.members.len()],
            first,
            spans: spans.members.iter().map(|cpus| cpus.iter().map(|&cpu| CpuId(cpu)).collect::<CpuSet>()).collect(),
            groups,
            rings,
            cpu_lists,
            places: Vec::new(),
            capacities,
            priorities,
            llc_cpus: Vec::new(),
            llc_first: Vec::new(),
            shared: Vec::new(),
            clusters_active: false,
            smt_active,
        };
        domains.clusters_active = domains.all.iter().any(|domain| domain.has(flags::CLUSTER));
        domains.fill_places(machine, active, parameters);
        domains
    }

    /// The per-CPU shortcuts (`update_top_cache_domain`).
    fn fill_places(&mut self, machine: &Machine, active: &CpuSet, parameters: &DomainParameters) {
        let mut ids = BTreeMap::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        let capacities = capacities_of(machine, active);
        for cpu in machine.cpus() {
            let llc = *ids.entry(llc_key(machine, cpu, parameters)).or_insert(members.len());
            if llc == members.len() {
                members.push(Vec::new());
            }
            let lowest_with = |flag| self.range(cpu).find(|&index| self.all[index].has(flag));
            let sd_llc = self.range(cpu).take_while(|&index| self.all[index].has(flags::SHARE_LLC)).last();
            let sd_asym = lowest_with(flags::ASYM_CPUCAPACITY).and_then(|lowest| {
                let mut range = lowest..self.range(cpu).end;
                range.find(|&index| capacities_of(machine, self.span(&self.all[index])) == capacities)
            });
            let (sd_numa, cluster) = (lowest_with(flags::NUMA), lowest_with(flags::CLUSTER));
            let llc_first_cpu = members[llc].first().copied().unwrap_or(cpu.0);
            let share_id =
                cluster.and_then(|index| self.span(&self.all[index]).first()).map_or(llc_first_cpu, |first| first.0);
            self.places.push(CpuPosition {
                llc: llc as u32,
                position: members[llc].len() as u32,
                share_id,
                sd_llc: sd_llc.map_or(NO_DOMAIN, |index| index as u32),
                sd_numa: sd_numa.map_or(NO_DOMAIN, |index| index as u32),
                sd_asym: sd_asym.map_or(NO_DOMAIN, |index| index as u32),
            });
            if active.contains(cpu) {
                members[llc].push(cpu.0);
            }
        }
        for cpus in members {
            self.llc_first.push(self.llc_cpus.len() as u32);
            self.shared.push(LlcShared {
                has_idle_cores: true,
                nr_busy_cpus: cpus.len() as u32,
                nr_idle_scan: cpus.len() as u32,
            });
            self.llc_cpus.extend(cpus);
        }
        self.llc_first.push(self.llc_cpus.len() as u32);
    }
}

/// The different capacities of some CPUs.
fn capacities_of(machine: &Machine, cpus: &CpuSet) -> BTreeSet<u32> {
    cpus.iter().map(|cpu| machine.capacity(cpu)).collect()
}

/// Capacity of a CPU: its core's, or an equal part of what the core has with all of its hardware threads at work
/// (`arch_scale_cpu_capacity` before 5.0). A kernel that goes by priorities knows of no other.
fn capacity(machine: &Machine, cpu: CpuId, smt_gain: Option<u32>, packs: bool) -> u32 {
    let threads = machine.cpus_of_core(machine.core_of(cpu)).len() as u32;
    let own = if packs { CAPACITY_SCALE } else { machine.capacity(cpu) };
    match smt_gain {
        Some(gain) if threads > 1 => own * (gain / threads) / 1024,
        _ => own,
    }
}

/// Whether the kernel goes by priorities of CPUs (`sched_set_itmt_support`). Where no core has several threads it takes unequal capacities
/// instead (`hybrid_init_cpu_capacity_scaling`).
fn packs_by_priority(machine: &Machine, smt_active: bool) -> bool {
    machine.has_priorities() && (smt_active || !machine.is_asymmetric())
}

/// Levels between the hardware threads of a core and nodes prefer CPUs of high priority (`x86_sched_itmt_flags`).
fn mark_packing(chain: &mut [Draft], levels: &[TopologyLevel]) {
    for draft in chain {
        if matches!(levels[draft.level].level, Level::Cls | Level::Mc | Level::Pkg) {
            draft.flags |= flags::ASYM_PACKING;
        }
    }
}

/// What CPUs of one last-level cache have in common, in the order of their first CPUs; an LLC that spans nodes is split at the border. Of a
/// machine with groups that stand for LLCs, kernels without clusters see the caches alone, and none that is not on the CPUs' side.
fn llc_key(machine: &Machine, cpu: CpuId, parameters: &DomainParameters) -> (Option<CpuId>, NodeId) {
    let (llc, group) = (machine.cpus_of_llc(machine.llc_of(cpu)), machine.coregroup(cpu));
    let cpus = match (parameters.clusters, llc.is_subset(group)) {
        (true, _) => group,
        (false, true) => llc,
        (false, false) => machine.cpus_of_core(machine.core_of(cpu)),
    };
    (cpus.first(), machine.node_of(cpu))
}

/// What CPUs of one cluster have in common. A cluster that is no smaller than what stands for the LLC is none (`cpu_clustergroup_mask`).
fn cluster_key(machine: &Machine, cpu: CpuId) -> Option<CpuId> {
    let cluster = machine.cpus_of_cluster(machine.cluster_of(cpu));
    let is_none = machine.has_coregroups() && machine.coregroup(cpu).is_subset(cluster);
    if is_none { machine.cpus_of_core(machine.core_of(cpu)).first() } else { cluster.first() }
}

/// The levels of the machine, bottom up (`build_sched_topology`, `sched_init_numa`).
fn topology_levels(
    machine: &Machine,
    active: &CpuSet,
    spans: &mut Spans,
    parameters: &DomainParameters,
) -> Vec<TopologyLevel> {
    let mut levels = Vec::new();
    let mut push = |level, distance, span_of| levels.push(TopologyLevel { level, distance, span_of });
    if machine.smt_width() > 1 {
        push(Level::Smt, 0, spans.by_key(machine, active, |cpu| machine.core_of(cpu)));
    }
    if parameters.clusters {
        push(Level::Cls, 0, spans.by_key(machine, active, |cpu| cluster_key(machine, cpu)));
    }
    push(Level::Mc, 0, spans.by_key(machine, active, |cpu| llc_key(machine, cpu, parameters)));
    let numa_in_package = machine.sockets().any(|socket| machine.nodes_of_socket(socket).len() > 1);
    if !numa_in_package {
        push(Level::Pkg, 0, spans.by_key(machine, active, |cpu| machine.node_of(cpu)));
    }

    let nodes: Vec<NodeId> = machine.nodes().filter(|&node| machine.cpus_of_node(node).intersects(active)).collect();
    let pairs = nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to)));
    let table = (!parameters.firmware_distances).then(|| machine.scheduling_distances());
    let distance = |from: NodeId, to: NodeId| match &table {
        Some(table) => table[from.index() * machine.node_count() + to.index()],
        None => machine.node_distance(from, to),
    };
    let distances: BTreeSet<u32> = pairs.map(|(from, to)| distance(from, to)).collect();
    // Nodes that are no farther from each other than from themselves are one to the scheduler.
    for (position, &reach) in distances.iter().enumerate() {
        let mut span_of_node = BTreeMap::new();
        for &node in &nodes {
            let near = nodes.iter().filter(|&&other| other == node || distance(node, other) <= reach);
            let mut cpus: Vec<u32> = near
                .flat_map(|&other| {
                    machine.cpus_of_node(other).intersection(active).iter().map(|cpu| cpu.0).collect::<Vec<_>>()
                })
                .collect();
            cpus.sort_unstable();
            span_of_node.insert(node, spans.intern(cpus));
        }
        let (level, reach) = if position == 0 { (Level::Node, 0) } else { (Level::Numa, reach) };
        let span_of = |cpu| span_of_node.get(&machine.node_of(cpu)).copied().unwrap_or(NO_SPAN);
        push(level, reach, machine.cpus().map(span_of).collect());
    }
    levels
}

/// Domains of one CPU before degeneration: level by level until one spans the machine (`build_sched_domains`).
fn draft_domains(levels: &[TopologyLevel], spans: &Spans, cpu: CpuId, cpus: u32, reclaim_distance: u32) -> Vec<Draft> {
    let mut chain = Vec::new();
    for (index, level) in levels.iter().enumerate() {
        let span = level.span_of[cpu.index()];
        chain.push(Draft { level: index, span, flags: level_flags(level, reclaim_distance), imb_numa_nr: 0 });
        if spans.weight(span) == cpus {
            break;
        }
    }
    chain
}

/// Flags of a level (`sd_init`).
fn level_flags(level: &TopologyLevel, reclaim_distance: u32) -> u32 {
    use flags::*;
    let placement = BALANCE_EXEC | BALANCE_FORK | WAKE_AFFINE;
    let usual = BALANCE_NEWIDLE | placement | PREFER_SIBLING;
    match level.level {
        Level::Smt => usual | SHARE_CPUCAPACITY | SHARE_LLC,
        Level::Cls => usual | CLUSTER | SHARE_LLC,
        Level::Mc => usual | SHARE_LLC,
        Level::Pkg | Level::Node => usual,
        Level::Numa => {
            let numa = (usual | NUMA | SERIALIZE) & !PREFER_SIBLING;
            if level.distance > reclaim_distance { numa & !placement } else { numa }
        }
    }
}

/// A domain that sees CPUs of different capacity says so if no core has several threads (`hybrid_init_cpu_capacity_scaling` has no capacities
/// then), and does not want its children filled evenly.
fn mark_asymmetry(chain: &mut [Draft], spans: &Spans, machine: &Machine, smt_active: bool) {
    if !machine.is_asymmetric() {
        return;
    }
    for level in 0..chain.len() {
        let members = &spans.members[chain[level].span as usize];
        if members.iter().any(|&cpu| machine.capacity(CpuId(cpu)) != machine.capacity(CpuId(members[0]))) {
            if !smt_active {
                chain[level].flags |= flags::ASYM_CPUCAPACITY;
            }
            if level > 0 {
                chain[level - 1].flags &= !flags::PREFER_SIBLING;
            }
        }
    }
}

/// Number of tasks up to which a NUMA imbalance is left alone (`docs/spec/linux-fair.md` section 3.5; in
/// `build_sched_domains`).
fn set_imb_numa_nr(chain: &mut [Draft], levels: &[TopologyLevel], spans: &Spans) {
    let mut imbalance = 0;
    let mut imbalance_span = 1;
    for index in 0..chain.len() {
        let weight = spans.weight(chain[index].span);
        let shares_llc = |draft: &Draft| draft.flags & flags::SHARE_LLC != 0;
        let above_llc = index > 0 && !shares_llc(&chain[index]) && shares_llc(&chain[index - 1]);
        if above_llc {
            let llcs = weight / spans.weight(chain[index - 1].span);
            imbalance = if llcs == 1 { weight / 8 } else { llcs }.max(1);
            let first_numa = chain[index + 1..].iter().find(|draft| levels[draft.level].level == Level::Numa);
            imbalance_span = first_numa.map_or(weight, |draft| spans.weight(draft.span));
            chain[index].imb_numa_nr = imbalance;
        } else {
            chain[index].imb_numa_nr = imbalance * (weight / imbalance_span).max(1);
        }
    }
}

/// Drops domains that add nothing (`cpu_attach_domain`, `sd_parent_degenerate`, `sd_degenerate`).
fn degenerate(chain: &[Draft], spans: &Spans) -> Vec<Draft> {
    let mut kept: Vec<Draft> = Vec::with_capacity(chain.len());
    for draft in chain {
        match kept.last_mut() {
            // With equal spans the parent has a single group, and no flag that needs groups counts.
            Some(child) if child.span == draft.span => child.flags |= draft.flags & flags::PREFER_SIBLING,
            _ => kept.push(draft.clone()),
        }
    }
    if kept.first().is_some_and(|draft| spans.weight(draft.span) == 1) {
        kept.remove(0);
    }
    kept
}

/// A domain in its initial state (`sd_init`).
fn new_domain(draft: &Draft, level: Level, weight: u32, parameters: &DomainParameters) -> Domain {
    let has = |flag| draft.flags & flag != 0;
    let (imbalance_pct, cache_nice_tries) = if level == Level::Smt {
        (parameters.imbalance_pct_smt, 0)
    } else if has(flags::SHARE_LLC) {
        (parameters.imbalance_pct.min(IMBALANCE_PCT_SHARED_CACHE), 1)
    } else if has(flags::NUMA) {
        (parameters.imbalance_pct, 2)
    } else {
        (parameters.imbalance_pct, 1)
    };
    Domain {
        flags: draft.flags,
        span_weight: weight,
        span: draft.span,
        ring_start: 0,
        ring_len: 0,
        ring_local: 0,
        level,
        imbalance_pct,
        cache_nice_tries,
        busy_factor: parameters.busy_factor,
        min_interval_ms: weight,
        max_interval_ms: 2 * weight,
        imb_numa_nr: draft.imb_numa_nr,
        balance_interval_ms: weight,
        nr_balance_failed: 0,
        newidle_call: 512,
        newidle_success: 256,
        newidle_ratio: 512,
        newidle_stamp_ns: 0,
        last_balance: 0,
        max_newidle_lb_cost_ns: 0,
        last_decay_max_lb_cost: 0,
    }
}

/// Builds groups and rings, each stored once.
struct GroupBuilder<'a> {
    machine: &'a Machine,
    spans: &'a Spans,
    /// Domains before and after degeneration: groups come from the former, their flags from the latter.
    drafts: &'a [Vec<Draft>],
    attached: &'a [Vec<Draft>],
    /// By CPU.
    capacities: &'a [u32],
    /// By CPU; empty where they do not count.
    priorities: &'a [u32],
    groups: Vec<SchedGroup>,
    /// Groups by level, CPUs (a span, or the complement of a CPU's number for a lone CPU) and depth of the domain
    /// they were taken from.
    group_index: BTreeMap<(usize, u32, usize), u32>,
    rings: Vec<u32>,
    /// Where the ring with these groups, lowest first, begins.
    ring_index: BTreeMap<Vec<u32>, u32>,
    cpu_lists: Vec<u32>,
}

impl<'a> GroupBuilder<'a> {
    fn new(
        machine: &'a Machine,
        spans: &'a Spans,
        drafts: &'a [Vec<Draft>],
        attached: &'a [Vec<Draft>],
        capacities: &'a [u32],
        priorities: &'a [u32],
    ) -> Self {
        Self {
            machine,
            spans,
            drafts,
            attached,
            capacities,
            priorities,
            groups: Vec::new(),
            group_index: BTreeMap::new(),
            rings: Vec::new(),
            ring_index: BTreeMap::new(),
            cpu_lists: Vec::new(),
        }
    }

    /// Groups of a CPU's domain at a level, the local one first, then in CPU order (`build_sched_groups`;
    /// `build_overlap_sched_groups` for NUMA levels, where groups may overlap).
    fn groups_from(&mut self, owner: u32, level: usize, numa: bool) -> Vec<u32> {
        let span = self.drafts[owner as usize][level].span;
        let members = &self.spans.members[span as usize];
        let start = members.partition_point(|&cpu| cpu < owner);
        let mut covered = vec![false; self.machine.cpu_count()];
        let mut groups = Vec::new();
        for &cpu in members[start..].iter().chain(&members[..start]) {
            // On uneven machines some CPUs have no domain at this level.
            if covered[cpu as usize] || self.drafts[cpu as usize].len() <= level {
                continue;
            }
            let depth = if numa { self.descended_sibling(cpu, level, span) } else { level };
            let group = self.intern_group(cpu, level, depth);
            groups.push(group);
            let list = &self.groups[group as usize];
            for &member in &self.cpu_lists[list.cpus_start as usize..(list.cpus_start + list.weight) as usize] {
                covered[member as usize] = true;
            }
        }
        groups
    }

    /// Groups of a CPU's domain of nodes before 4.13: the lower domains of the span's first CPU, of the first one outside of that, and
    /// so on, wherever they reach. The local one is the one that begins with the CPU, else the first that it is in; it comes first.
    fn groups_of_4_9(&mut self, owner: u32, level: usize) -> Vec<u32> {
        let span = self.drafts[owner as usize][level].span;
        let mut covered = vec![false; self.machine.cpu_count()];
        let (mut groups, mut local) = (Vec::new(), None);
        for &cpu in &self.spans.members[span as usize] {
            if covered[cpu as usize] || self.drafts[cpu as usize].len() <= level {
                continue;
            }
            let group = self.intern_group(cpu, level, level);
            // Any of its CPUs may balance for it, whatever group that one has itself.
            let list = &mut self.groups[group as usize];
            (list.balance_start, list.balance_len) = (list.cpus_start, list.weight);
            let cpus = &self.cpu_lists[list.cpus_start as usize..(list.cpus_start + list.weight) as usize];
            if cpus[0] == owner || local.is_none() && cpus.contains(&owner) {
                local = Some(groups.len());
            }
            cpus.iter().for_each(|&member| covered[member as usize] = true);
            groups.push(group);
        }
        groups.rotate_left(local.unwrap_or(0));
        groups
    }

    /// Depth at which a CPU's child domain lies inside `span` (`find_descended_sibling`).
    fn descended_sibling(&self, cpu: u32, level: usize, span: u32) -> usize {
        let chain = &self.drafts[cpu as usize];
        if level == 0 || self.spans.is_subset(chain[level - 1].span, span) {
            return level;
        }
        let mut depth = level;
        while depth > 0 && !self.spans.is_subset(chain[depth - 1].span, span) {
            depth -= 1;
        }
        while depth > 0 && chain[depth - 1].span == chain[depth].span {
            depth -= 1;
        }
        depth
    }

    /// The group that is the child span of a CPU's domain at `depth`, as used at `level`.
    fn intern_group(&mut self, cpu: u32, level: usize, depth: usize) -> u32 {
        let child = depth.checked_sub(1).map(|below| self.drafts[cpu as usize][below].span);
        let key = (level, child.unwrap_or(!cpu), depth);
        if let Some(&group) = self.group_index.get(&key) {
            return group;
        }
        let lone = [cpu];
        let cpus = child.map_or(&lone[..], |span| &self.spans.members[span as usize]);
        let mut mask: Vec<u32> =
            cpus.iter().copied().filter(|&member| self.may_balance(member, depth, child)).collect();
        if mask.is_empty() {
            mask = cpus.to_vec();
        }
        let cores: BTreeSet<_> = cpus.iter().map(|&member| self.machine.core_of(CpuId(member))).collect();
        let child_domain = self.attached[cpu as usize].iter().find(|draft| Some(draft.span) == child);
        let cpus_start = self.cpu_lists.len() as u32;
        self.cpu_lists.extend_from_slice(cpus);
        let balance_start = if mask == cpus { cpus_start } else { self.cpu_lists.len() as u32 };
        if balance_start != cpus_start {
            self.cpu_lists.extend_from_slice(&mask);
        }
        self.groups.push(SchedGroup {
            cpus_start,
            balance_start,
            balance_len: mask.len() as u32,
            weight: cpus.len() as u32,
            cores: cores.len() as u32,
            flags: child_domain.map_or(0, |draft| draft.flags),
            capacity: cpus.iter().map(|&member| self.capacities[member as usize]).sum(),
            priority: cpus
                .iter()
                .filter_map(|&member| self.priorities.get(member as usize).copied())
                .max()
                .unwrap_or(0),
            imbalance: false,
        });
        let group = self.groups.len() as u32 - 1;
        self.group_index.insert(key, group);
        group
    }

    /// Whether a CPU's own child domain is the group (`build_balance_mask`).
    fn may_balance(&self, cpu: u32, depth: usize, group: Option<u32>) -> bool {
        let chain = &self.drafts[cpu as usize];
        depth < chain.len() && depth.checked_sub(1).map(|below| chain[below].span) == group
    }

    /// Stores a ring of groups unless an equal one exists; gives its start, length, and the position of `groups[0]`.
    fn intern_ring(&mut self, groups: Vec<u32>) -> (u32, u32, u32) {
        let len = groups.len();
        let lowest = (0..len).min_by_key(|&position| groups[position]).unwrap_or(0);
        let mut canonical = groups;
        canonical.rotate_left(lowest);
        let local = (len - lowest) % len.max(1);
        let start = match self.ring_index.get(&canonical) {
            Some(&start) => start,
            None => {
                let start = self.rings.len() as u32;
                self.rings.extend_from_slice(&canonical);
                self.ring_index.insert(canonical, start);
                start
            }
        };
        (start, len as u32, local as u32)
    }
}
