use std::collections::BTreeSet;

use warmcore_topology::{
    CpuId, CpuSet, Machine, MachineDescription, Performance, Processor, ShortForm, Vendor, resolve,
};

use super::{DomainParameters, Domains, Level, flags};

fn build(machine: &Machine) -> Domains {
    Domains::build(machine, &DomainParameters::default())
}

/// A machine in short form, with cores grouped into clusters.
fn description(spec: &str, cores_per_cluster: u32) -> MachineDescription {
    let form: ShortForm = spec.parse().unwrap();
    MachineDescription {
        name: spec.to_owned(),
        summary: String::new(),
        cpus: form.shape.cpus(form.smt_numbering, cores_per_cluster),
        offline: Default::default(),
        nodes: form.shape.nodes(),
        distances: None,
        coregroups: Vec::new(),
        priorities: Default::default(),
        processor: None,
        reclaim_distance: None,
        caches: Vec::new(),
        performance: Performance::default(),
        costs: resolve(spec).unwrap().costs().clone(),
        origins: Default::default(),
        sources: Default::default(),
        notes: Vec::new(),
    }
}

fn with_distances(spec: &str, distances: Vec<Vec<u32>>) -> Machine {
    MachineDescription { distances: Some(distances), ..description(spec, 1) }.build().unwrap()
}

/// Levels of a CPU as `name span min-max imb_numa_nr`.
fn levels(domains: &Domains, cpu: u32) -> Vec<String> {
    let line = |domain: &super::Domain| {
        let (name, weight) = (domain.level.name(), domain.span_weight);
        format!("{name} {weight} {}-{} {}", domain.min_interval_ms, domain.max_interval_ms, domain.imb_numa_nr)
    };
    domains.of(CpuId(cpu)).iter().map(line).collect()
}

fn groups(domains: &Domains, cpu: u32, level: usize) -> Vec<String> {
    let domain = &domains.of(CpuId(cpu))[level];
    let list = |cpus: &[u32]| cpus.iter().map(|&cpu| CpuId(cpu)).collect::<CpuSet>().to_string();
    domains.groups(domain).map(|group| list(domains.group_cpus(domains.group(group)))).collect()
}

#[test]
fn one_node_with_two_llcs_has_mc_and_pkg() {
    let domains = build(&resolve("1s1n2l8c1t").unwrap());
    assert_eq!(levels(&domains, 3), ["MC 8 8-16 0", "PKG 16 16-32 2"]);
    assert_eq!(groups(&domains, 9, 1), ["8-15", "0-7"]);
    assert_eq!(groups(&domains, 2, 0), ["2", "3", "4", "5", "6", "7", "0", "1"]);
}

#[test]
fn hardware_threads_add_the_smt_level() {
    let domains = build(&resolve("1s1n2l4c2t").unwrap());
    assert_eq!(levels(&domains, 0), ["SMT 2 2-4 0", "MC 8 8-16 0", "PKG 16 16-32 2"]);
    let smt = &domains.of(CpuId(0))[0];
    assert_eq!((smt.imbalance_pct, smt.cache_nice_tries), (110, 0));
    let core = domains.group(domains.local_group(&domains.of(CpuId(0))[1]));
    assert_eq!((core.weight, core.cores), (2, 1));
    assert_ne!(core.flags & flags::SHARE_CPUCAPACITY, 0);
}

#[test]
fn two_sockets_of_six_nodes_have_five_levels() {
    let domains = build(&resolve("2s6n2l8c2t").unwrap());
    let expected = ["SMT 2 2-4 0", "MC 16 16-32 0", "NODE 32 32-64 2", "NUMA 192 192-384 2", "NUMA 384 384-768 4"];
    assert_eq!(levels(&domains, 0), expected);
    assert_eq!(domains.of(CpuId(0))[3].group_count(), 6);
    assert_eq!(domains.of(CpuId(0))[4].group_count(), 2);
    assert_eq!(domains.llc_count(), 24);
}

#[test]
fn two_sockets_of_one_node_have_one_numa_level() {
    let domains = build(&resolve("2s1n2l60c1t").unwrap());
    assert_eq!(levels(&domains, 239), ["MC 60 60-120 0", "PKG 120 120-240 2", "NUMA 240 240-480 2"]);
}

#[test]
fn the_numa_level_prefers_siblings_when_the_node_is_one_llc() {
    let domains = build(&resolve("2s1n1l8c1t").unwrap());
    assert_eq!(levels(&domains, 0), ["MC 8 8-16 0", "NUMA 16 16-32 1"]);
    let numa = &domains.of(CpuId(0))[1];
    assert!(numa.has(flags::NUMA | flags::SERIALIZE) && !numa.has(flags::PREFER_SIBLING));
    for group in domains.groups(numa) {
        let expected = flags::PREFER_SIBLING | flags::SHARE_LLC;
        assert_eq!(domains.group(group).flags & expected, expected);
    }
}

#[test]
fn placement_stops_at_the_reclaim_distance() {
    let placement = flags::BALANCE_EXEC | flags::BALANCE_FORK | flags::WAKE_AFFINE;
    let distances = vec![vec![10, 32], vec![32, 10]];
    let placed = |machine: &Machine, parameters| Domains::build(machine, &parameters).of(CpuId(0))[1].flags & placement;
    let unknown = with_distances("2s1n1l4c1t", distances.clone());
    assert_eq!(placed(&unknown, DomainParameters::default()), 0);
    let epyc = Processor::new(Vendor::Amd, Some(25)).unwrap();
    let zen = MachineDescription { distances: Some(distances), processor: Some(epyc), ..description("2s1n1l4c1t", 1) };
    let zen = zen.build().unwrap();
    assert_eq!(placed(&zen, DomainParameters::default()), placement);
    let before_5_4 = DomainParameters { same_reclaim_distance: true, ..DomainParameters::default() };
    assert_eq!(placed(&zen, before_5_4), 0, "kernels before 5.4 do not know Zen");
}

/// Levels of nodes are made of distances, the smallest of which is a node's own (`sched_init_numa`): nodes no farther than that are in
/// one ordinary domain, without the rules for nodes.
#[test]
fn nodes_that_are_as_near_as_themselves_share_an_ordinary_domain() {
    let distances = vec![vec![10, 10, 20], vec![10, 10, 20], vec![20, 20, 10]];
    let domains = build(&with_distances("1s3n1l2c1t", distances));
    assert_eq!(levels(&domains, 0), ["MC 2 2-4 0", "NODE 4 4-8 2", "NUMA 6 6-12 2"]);
    assert_eq!(levels(&domains, 5), ["MC 2 2-4 0", "NUMA 6 6-12 1"]);
    assert_eq!(groups(&domains, 2, 1), ["2-3", "0-1"]);
    assert!(!domains.of(CpuId(0))[1].has(flags::NUMA));
    let domains = build(&resolve("adl12").unwrap());
    assert_eq!(levels(&domains, 11), ["CLS 4 4-8 0", "NODE 12 12-24 3"]);
}

/// 1178 for the two threads of a core, half of it each; a core with one thread has 1024 (`arch_scale_cpu_capacity` before 5.0).
#[test]
fn hardware_threads_of_a_core_share_its_capacity_before_5_0() {
    let old = DomainParameters { smt_gain: Some(1178), ..DomainParameters::default() };
    let capacities = |machine: &str, parameters: &DomainParameters| {
        let domains = Domains::build(&resolve(machine).unwrap(), parameters);
        let core = domains.groups(&domains.of(CpuId(0))[1]).next().map(|group| domains.group(group).capacity);
        (domains.capacity_of(CpuId(0)), core.unwrap())
    };
    assert_eq!(capacities("1s1n1l4c2t", &old), (589, 1178));
    assert_eq!(capacities("1s1n2l4c4t", &old), (294, 1176));
    assert_eq!(capacities("2s1n2l4c1t", &old), (1024, 4096));
    assert_eq!(capacities("1s1n1l4c2t", &DomainParameters::default()), (1024, 2048));
}

/// Four nodes in a ring: 20 to the neighbours, 30 across.
#[test]
fn numa_groups_overlap_when_distances_form_three_levels() {
    let distances = vec![vec![10, 20, 30, 20], vec![20, 10, 20, 30], vec![30, 20, 10, 20], vec![20, 30, 20, 10]];
    let domains = build(&with_distances("4s1n1l2c1t", distances));
    assert_eq!(levels(&domains, 0), ["MC 2 2-4 0", "NUMA 6 6-12 1", "NUMA 8 8-16 1"]);
    assert_eq!(groups(&domains, 0, 1), ["0-1", "2-3", "6-7"]);
    // The local group is the whole lower level; the node left over brings its own neighbours.
    assert_eq!(groups(&domains, 0, 2), ["0-3,6-7", "2-7"]);
    let top = &domains.of(CpuId(0))[2];
    let masks: Vec<_> = domains.groups(top).map(|group| domains.balance_mask(domains.group(group)).to_vec()).collect();
    assert_eq!(masks, [vec![0, 1], vec![4, 5]]);
}

/// The same ring of nodes before 4.13: all have the groups that begin with the first CPU, so node 1's own neighbourhood, nodes 0 to 2,
/// is no group of it.
#[test]
fn numa_groups_of_4_9_are_the_same_for_all_cpus() {
    let distances = vec![vec![10, 20, 30, 20], vec![20, 10, 20, 30], vec![30, 20, 10, 20], vec![20, 30, 20, 10]];
    let machine = with_distances("4s1n1l2c1t", distances);
    let parameters = DomainParameters { groups_from_first_cpu: true, ..DomainParameters::default() };
    let domains = Domains::build(&machine, &parameters);
    let top = domains.of(CpuId(2)).len() - 1;
    assert_eq!(groups(&build(&machine), 2, top), ["0-5", "0-1,4-7"], "since 4.13");
    for cpu in [0, 3, 6] {
        assert_eq!(groups(&domains, cpu, top), ["0-3,6-7", "2-7"], "CPU {cpu}");
    }
    for cpu in [4, 2] {
        assert_eq!(groups(&domains, cpu, top)[0], "2-7", "CPU {cpu}: in no other, or the first of it");
    }
}

#[test]
fn shortcuts_lead_to_llc_and_numa_domains() {
    let domains = build(&resolve("2s1n2l4c2t").unwrap());
    let last = CpuId(domains.first.len() as u32 - 2);
    assert_eq!(domains.sd_llc_id(last), 3);
    assert_eq!(domains.sd_llc_size(last), 8);
    assert_eq!(domains.domain(domains.sd_llc(last).unwrap()).level, Level::Mc);
    assert_eq!(domains.domain(domains.sd_numa(last).unwrap()).level, Level::Numa);
    let (llc, position) = (domains.sd_llc_id(last), domains.llc_position(last));
    assert_eq!(domains.llc_cpus(llc)[position as usize], last.0);
    assert!(!domains.clusters_active() && domains.smt_active());
    assert_eq!(domains.sd_share_id(last), domains.llc_cpus(llc)[0]);
}

#[test]
fn a_single_cpu_has_no_domain() {
    let domains = build(&resolve("1s1n1l1c1t").unwrap());
    assert!(domains.of(CpuId(0)).is_empty());
    assert_eq!((domains.sd_llc(CpuId(0)), domains.sd_llc_size(CpuId(0))), (None, 1));
}

#[test]
fn an_llc_of_one_core_has_its_smt_domain_as_llc_domain() {
    let domains = build(&resolve("1s1n4l1c2t").unwrap());
    assert_eq!(levels(&domains, 0), ["SMT 2 2-4 0", "PKG 8 8-16 4"]);
    assert_eq!(domains.domain(domains.sd_llc(CpuId(0)).unwrap()).level, Level::Smt);
}

#[test]
fn clusters_stand_between_core_and_llc() {
    let domains = build(&description("1s1n1l8c1t", 4).build().unwrap());
    assert_eq!(levels(&domains, 0), ["CLS 4 4-8 0", "MC 8 8-16 0"]);
    assert!(domains.clusters_active());
    assert_eq!(domains.sd_share_id(CpuId(7)), 4);
}

/// A two-socket Altra, as the commit says that extended `cpu_coregroup_mask`: pairs of cores that share no cache on their side. Before that
/// one, and without clusters, there is no such level.
#[test]
fn groups_that_stand_for_llcs_are_the_lowest_level_above_the_core() {
    let pairs: Vec<BTreeSet<u32>> = (0..8).map(|pair| BTreeSet::from([2 * pair, 2 * pair + 1])).collect();
    let [own_caches, one_cache] = ["2s1n8l1c1t", "2s1n1l8c1t"]
        .map(|spec| MachineDescription { coregroups: pairs.clone(), ..description(spec, 1) }.build().unwrap());
    for machine in [&own_caches, &one_cache, &resolve("altra80").unwrap()] {
        let domains = build(machine);
        let node = machine.cpu_count() as u32 / 2;
        let names: Vec<_> = domains.of(CpuId(3)).iter().map(|domain| (domain.level, domain.span_weight)).collect();
        assert_eq!(names, [(Level::Mc, 2), (Level::Pkg, node), (Level::Numa, 2 * node)]);
        assert_eq!((domains.llc_count(), domains.sd_llc_size(CpuId(3))), (node as usize, 2));
        assert!(domains.cpus_share_cache(CpuId(2), CpuId(3)) && !domains.cpus_share_cache(CpuId(1), CpuId(2)));
        assert_eq!(domains.llc_cpus(domains.sd_llc_id(CpuId(3))), [2, 3]);
        let without = Domains::build(machine, &DomainParameters { clusters: false, ..DomainParameters::default() });
        let names: Vec<_> = without.of(CpuId(3)).iter().map(|domain| domain.level).collect();
        assert_eq!((names, without.sd_llc_size(CpuId(3))), (vec![Level::Pkg, Level::Numa], 1));
    }
    // A cluster of the firmware's that is the whole group is no level of its own.
    let clustered = MachineDescription { coregroups: pairs, ..description("2s1n1l8c1t", 2) }.build().unwrap();
    assert_eq!(build(&clustered).of(CpuId(0))[0].level, Level::Mc);
}

/// Granite Rapids with three nodes per package: the distances between packages are one, where the firmware has five.
#[test]
fn packages_of_three_nodes_are_one_level_apart_on_granite_rapids() {
    let rows = [[10, 15, 17, 21, 28, 26], [15, 10, 15, 28, 26, 23], [17, 15, 10, 26, 23, 21]];
    let mirrored = [[21, 28, 26, 10, 15, 17], [28, 26, 23, 15, 10, 15], [26, 23, 21, 17, 15, 10]];
    let distances: Vec<Vec<u32>> = rows.iter().chain(&mirrored).map(|row| row.to_vec()).collect();
    let spans = |model: Option<u32>, parameters: DomainParameters| {
        let processor = Processor::new(Vendor::Intel, Some(6)).and_then(|intel| intel.with_model(model)).unwrap();
        let description = description("2s3n1l2c1t", 1);
        let machine =
            MachineDescription { distances: Some(distances.clone()), processor: Some(processor), ..description };
        let domains = Domains::build(&machine.build().unwrap(), &parameters);
        [0, 2, 8].map(|cpu| domains.of(CpuId(cpu)).iter().map(|domain| domain.span_weight).collect::<Vec<_>>())
    };
    let averaged = spans(Some(0xad), DomainParameters::default());
    assert_eq!(averaged, [vec![2, 4, 6, 12], vec![2, 6, 12], vec![2, 6, 12]]);
    let before = DomainParameters { firmware_distances: true, ..DomainParameters::default() };
    for stated in [spans(Some(0xad), before), spans(Some(0x8f), DomainParameters::default())] {
        assert!(stated[0].len() > averaged[0].len(), "{stated:?}");
    }
}

/// Two sockets of a fast core with two threads and two slow cores in a cluster.
#[test]
fn levels_between_hardware_threads_and_nodes_pack_by_priority() {
    let file = |keys: &str| {
        let text = format!(
            "[topology]\nnodes = [{{ id = 0, cpus = \"0-3\" }}, {{ id = 1, cpus = \"4-7\" }}]\n\
             sockets = [{{ id = 0, cpus = \"0-3\" }}, {{ id = 1, cpus = \"4-7\" }}]\nclusters = [\"0-1\", \"2-3\", \"4-5\", \"6-7\"]\n\
             {keys}\n"
        );
        warmcore_topology::from_toml(&text).unwrap()
    };
    let cores = "cores = [\"0-1\", \"2\", \"3\", \"4-5\", \"6\", \"7\"]";
    let stated = "priorities = [{ cpus = \"0-1,4-5\", priority = 67 }, { cpus = \"2-3,6-7\", priority = 40 }]\n\
                  capacities = [{ cpus = \"2-3,6-7\", capacity = 600 }]";
    let marked = |domains: &Domains, cpu| {
        let levels = domains.of(CpuId(cpu)).iter();
        levels.map(|domain| (domain.level, domain.has(flags::ASYM_PACKING))).collect::<Vec<_>>()
    };
    let hybrid = build(&file(&format!("{cores}\n{stated}")));
    assert_eq!(marked(&hybrid, 0), [(Level::Smt, false), (Level::Mc, true), (Level::Numa, false)]);
    assert_eq!(marked(&hybrid, 2), [(Level::Cls, true), (Level::Mc, true), (Level::Numa, false)]);
    let priorities = |domains: &Domains, cpu, level: usize| {
        let groups = domains.groups(&domains.of(CpuId(cpu))[level]);
        groups.map(|group| domains.group(group).priority).collect::<Vec<_>>()
    };
    assert_eq!((priorities(&hybrid, 0, 1), priorities(&hybrid, 2, 1)), (vec![67, 40], vec![40, 67]));
    assert_eq!(hybrid.sd_asym_packing(CpuId(0)), Some(hybrid.range(CpuId(0)).start + 1));
    // The kernel knows of no capacities then; without hardware threads it has those instead, and without priorities nothing of the kind.
    assert!(hybrid.capacities().iter().all(|capacity| *capacity == 1024) && !hybrid.is_asymmetric());
    let cores_of_one = build(&file(stated));
    assert!(!cores_of_one.packs() && cores_of_one.is_asymmetric() && cores_of_one.capacities().contains(&600));
    let plain = build(&file(cores));
    assert!(!plain.packs() && plain.sd_asym_packing(CpuId(0)).is_none() && priorities(&plain, 0, 1) == [0, 0]);
}

#[test]
fn a_kernel_built_without_clusters_sees_the_llc_alone() {
    let machine = description("1s1n1l8c1t", 4).build().unwrap();
    let domains = Domains::build(&machine, &DomainParameters { clusters: false, ..DomainParameters::default() });
    let flat = build(&description("1s1n1l8c1t", 1).build().unwrap());
    assert_eq!((levels(&domains, 0), levels(&domains, 7)), (levels(&flat, 0), levels(&flat, 7)));
    assert!(!domains.clusters_active());
    assert_eq!(domains.sd_share_id(CpuId(7)), 0);
}

#[test]
fn span_and_ring_of_a_thousand_cpus_are_shared() {
    let domains = build(&resolve("4s4n4l8c2t").unwrap());
    assert_eq!(domains.first.len(), 1025);
    assert!(domains.rings.len() < 4096, "{}", domains.rings.len());
    assert!(domains.spans.len() < 1024, "{}", domains.spans.len());
    for cpu in (0..1024).map(CpuId) {
        for domain in domains.of(cpu) {
            assert!(domains.span_contains(domain, cpu));
            let local = domains.group(domains.local_group(domain));
            assert!(domains.group_cpus(local).contains(&cpu.0));
            let covered: u32 = domains.groups(domain).map(|group| domains.group(group).weight).sum();
            assert_eq!(covered, domain.span_weight);
        }
    }
}
