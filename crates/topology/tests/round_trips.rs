//! Whatever a format can say of a machine is still there after writing and reading it.

use std::collections::BTreeSet;

use crate::support::{CacheDetail, difference, first_difference, irregular_machine, scratch, structure};
use proptest::prelude::*;
use warmcore_topology::{
    CpuId, CpuSet, Machine, Shape, ShortForm, SmtNumbering, format_cpu_list, from_hwloc_xml, from_synthetic,
    from_sysfs, from_toml, keep_cpus, parse_cpu_list, presets, resolve, synthetic_losses, to_hwloc_xml, to_synthetic,
    to_toml, write_sysfs_snapshot, write_sysfs_tree,
};

/// Reads a machine back from its own `/sys` tree.
fn through_sysfs(machine: &Machine) -> Machine {
    let directory = scratch();
    write_sysfs_tree(machine, directory.path()).unwrap();
    from_sysfs(directory.path()).unwrap()
}

#[test]
fn presets_survive_toml_and_xml() {
    for preset in presets() {
        let machine = resolve(&preset.name).unwrap();
        assert!(from_toml(&to_toml(&machine)).unwrap() == machine, "{}", preset.name);
        let read = from_hwloc_xml(&to_hwloc_xml(&machine).unwrap()).unwrap();
        assert_eq!(difference(&read, &machine, CacheDetail::Everything), None, "{}", preset.name);
        assert_eq!(read.name(), machine.name());
    }
}

#[test]
fn presets_survive_a_sysfs_tree() {
    // One of each kind: a large tree has ten thousand files.
    for name in ["opteron32", "i7-3770", "kunpeng64", "naples32"] {
        let machine = resolve(name).unwrap();
        let read = through_sysfs(&machine);
        assert_eq!(difference(&read, &machine, CacheDetail::Geometry), None, "{name}");
    }
}

/// Of the formats, only a machine file says why a reclaim distance is what it is, and only a `/sys` tree cannot say it at all.
#[test]
fn a_stated_reclaim_distance_survives_toml_and_xml() {
    let text =
        "base = \"genoa96\"\n[topology]\nreclaim_distance = 50\nreclaim_distance_origin = \"assumed: patched\"\n";
    let machine = from_toml(text).unwrap();
    assert_eq!(machine.reclaim_distance(), 50);
    assert!(from_toml(&to_toml(&machine)).unwrap() == machine);
    assert_eq!(from_hwloc_xml(&to_hwloc_xml(&machine).unwrap()).unwrap().reclaim_distance(), 50);
    // Where it is what the CPUs have anyway, it is not written.
    let zen = resolve("genoa96").unwrap();
    assert!(!to_toml(&zen).contains("reclaim_distance") && !to_hwloc_xml(&zen).unwrap().contains("Reclaim"));
    // Other CPUs take it away with them.
    let other = format!("{}\n[processor]\nvendor = \"intel\"\nfamily = 6\n", "base = \"genoa96\"");
    assert_eq!(from_toml(&other).unwrap().reclaim_distance(), 30);
}

#[test]
fn the_make_of_cpus_survives_a_sysfs_tree_and_its_snapshot() {
    for (name, distance) in [("2s1n1l2c1t@genoa96", 32), ("2s1n1l2c1t@spr32", 30), ("2s1n1l2c1t@grace144", 30)] {
        let machine = resolve(name).unwrap();
        let (tree, copy) = (scratch(), scratch());
        write_sysfs_tree(&machine, tree.path()).unwrap();
        write_sysfs_snapshot(tree.path(), copy.path()).unwrap();
        for root in [tree, copy] {
            let read = from_sysfs(root.path()).unwrap();
            assert_eq!((read.processor(), read.reclaim_distance()), (machine.processor(), distance), "{name}");
        }
    }
    let plain = through_sysfs(&resolve("2s1n1l2c1t").unwrap());
    assert_eq!((plain.processor(), plain.reclaim_distance()), (None, 30));
}

#[test]
fn variants_and_other_costs_survive_toml() {
    let machine = resolve("hygon384+naples").unwrap();
    let mut costs = machine.costs().clone();
    costs.tick_ns = 123;
    costs.ipi_ns.0[3] = 77;
    let changed = machine.with_costs(costs);
    assert!(from_toml(&to_toml(&changed)).unwrap() == changed);
}

#[test]
fn figures_of_another_machine_survive_toml() {
    let detected = through_sysfs(&resolve("2s2l4c2t").unwrap());
    let machine = detected.with_figures_of(&resolve("genoa96").unwrap());
    assert_eq!(machine.costs().line_transfer_ns.0[3], 27);
    assert!(from_toml(&to_toml(&machine)).unwrap() == machine);
}

/// Itanium has two L2s per core, of which hwloc calls that for data `L2Cache`, with `cache_type="1"`.
#[test]
fn separate_l2_caches_survive_xml() {
    let cache = |kind: &str, size: &str| format!("[[cache]]\nlevel = 2\nkind = \"{kind}\"\nsize = \"{size}\"\n");
    let caches = cache("data", "256KiB") + &cache("instruction", "1MiB") + "[[cache]]\nlevel = 3\nsize = \"9MiB\"\n";
    let machine = from_toml(&format!("[topology]\nshape = \"2s1n2l1c1t\"\n{caches}")).unwrap();
    let read = from_hwloc_xml(&to_hwloc_xml(&machine).unwrap()).unwrap();
    assert_eq!(difference(&read, &machine, CacheDetail::Everything), None);
}

/// Such a description has groups and no clusters: those inside of an LLC are clusters, those around LLCs or NUMA nodes are not.
#[test]
fn clusters_that_share_no_l2_are_groups_in_a_synthetic_description() {
    let lost = |machine: &Machine| synthetic_losses(machine).contains(&"clusters of cores");
    for name in ["kunpeng64", "2s1n1l4c1t@kunpeng64", "2s2n2l8c1t@kunpeng64"] {
        let machine = resolve(name).unwrap();
        let text = to_synthetic(&machine).unwrap();
        let read = from_synthetic(&text).unwrap();
        let cluster = |of: &Machine, cpu| of.cpus_of_cluster(of.cluster_of(cpu)).to_string();
        for cpu in machine.cpus() {
            assert_eq!(cluster(&read, cpu), cluster(&machine, cpu), "{text}");
        }
        assert!(!lost(&machine) && cluster(&machine, CpuId(0)) == "0-3", "{name}");
    }
    // Unequal clusters cannot be said, and neither can those of a machine without caches.
    let uneven = resolve("1s1n2l6c1t@kunpeng64").unwrap();
    let bare = from_toml("[topology]\nshape = \"1s1n1l4c1t\"\ncores_per_cluster = 2\n").unwrap();
    for machine in [uneven, bare] {
        let text = to_synthetic(&machine).unwrap();
        assert!(!text.contains("Group") && lost(&machine), "{text}");
    }
    for name in ["altra80", "genoa96", "2s2n1l4c2t"] {
        assert!(!lost(&resolve(name).unwrap()), "{name}");
    }
    for text in [
        "Package:1 Group:2 L3Cache:1 Core:4 PU:1",
        "Package:1 L3Cache:1 Group:2 [NUMANode] Core:4 PU:1",
        "Package:1 L3Cache:1 NUMANode:2 Core:4 PU:1",
        "Package:1 Group:2 Core:4 PU:1",
    ] {
        assert_eq!(from_synthetic(text).unwrap().cluster_count(), 8, "{text}");
    }
}

/// Takes the last core out of a machine, and compares where its other CPUs are.
fn check_without_its_last_core(machine: &Machine) {
    let last = machine.core_of(machine.cpus().next_back().unwrap());
    let kept: CpuSet = machine.cpus().filter(|cpu| machine.core_of(*cpu) != last).collect();
    let less = match keep_cpus(machine, &kept) {
        Ok(less) => less,
        Err(reason) => {
            let has_biggest = kept.iter().any(|cpu| machine.capacity(cpu) == 1024);
            assert!(!has_biggest, "{}: {reason}", machine.name());
            return;
        }
    };
    let numbers: BTreeSet<u32> = kept.iter().map(|cpu| machine.os_index(cpu)).collect();
    let places = |of: &Machine| -> Vec<String> {
        let list = |cpus: &CpuSet| {
            format_cpu_list(cpus.iter().map(|cpu| of.os_index(cpu)).filter(|number| numbers.contains(number)))
        };
        let place = |number: &u32| {
            let cpu = of.cpu_by_os_index(*number).unwrap();
            let sharing = [
                list(of.cpus_of_core(of.core_of(cpu))),
                list(of.cpus_of_cluster(of.cluster_of(cpu))),
                list(of.cpus_of_llc(of.llc_of(cpu))),
                list(of.coregroup(cpu)),
            ];
            let caches: Vec<(String, u64)> = (of.caches().iter().filter(|cache| cache.cpus.contains(cpu)))
                .map(|cache| (cache.name(), cache.size_bytes))
                .collect();
            let (node, socket) = (of.node_os_index(of.node_of(cpu)), of.socket_os_index(of.socket_of(cpu)));
            let kind = of.core_kind_of(cpu).map(|kind| of.core_kinds()[kind].name.clone());
            let powers = (of.capacity(cpu), of.priority(cpu));
            format!("CPU {number} {sharing:?} {caches:?} node {node} socket {socket} {powers:?} {kind:?}")
        };
        numbers.iter().map(place).collect()
    };
    assert_eq!(first_difference(&places(&less), &places(machine)), None, "{}", machine.name());
    let nodes = |of: &Machine| -> Vec<(u32, Option<u64>, Vec<u32>)> {
        let row = |from| of.nodes().map(|to| of.node_distance(from, to)).collect();
        of.nodes().map(|node| (of.node_os_index(node), of.node_memory_bytes(node), row(node))).collect()
    };
    assert_eq!(nodes(&less), nodes(machine), "{}", machine.name());
    assert_eq!(less.offline_cpus().len(), machine.offline_cpus().len() + machine.cpus_of_core(last).len());
    assert_eq!((less.costs(), less.performance()), (machine.costs(), machine.performance()), "{}", machine.name());
}

#[test]
fn a_preset_loses_its_last_core_and_nothing_else() {
    for preset in presets() {
        check_without_its_last_core(&resolve(&preset.name).unwrap());
    }
    for name in ["1s2n1l1c2t", "1s1n1l6c1t@altra80", "2s2n1l4c1t@kunpeng64"] {
        check_without_its_last_core(&resolve(name).unwrap());
    }
}

/// Priorities of CPUs that capacities do not tell apart, and the other way round; a synthetic description has no place for them.
#[test]
fn priorities_survive_toml_xml_and_a_sysfs_tree() {
    let text = "[topology]\nshape = \"1s1n1l4c1t\"\ncapacities = [{ cpus = \"2-3\", capacity = 600 }]\n\
                priorities = [{ cpus = \"0\", priority = 67 }, { cpus = \"1-2\", priority = 40 }]\n\
                priorities_origin = \"recalled: firmware of a laptop\"\n";
    let machine = from_toml(text).unwrap();
    assert!(from_toml(&to_toml(&machine)).unwrap() == machine, "{}", to_toml(&machine));
    let origin = machine.origin("topology.priorities").unwrap();
    assert_eq!(origin.to_string(), "recalled: firmware of a laptop");
    let kinds = |of: &Machine| of.cpus().map(|cpu| (of.priority(cpu), of.capacity(cpu))).collect::<Vec<_>>();
    assert_eq!(kinds(&machine), [(67, 1024), (40, 1024), (40, 600), (0, 600)]);
    assert_eq!(kinds(&from_hwloc_xml(&to_hwloc_xml(&machine).unwrap()).unwrap()), kinds(&machine));
    assert!(to_synthetic(&machine).unwrap_err().to_string().contains("CPUs differ in priority"));
    // In a tree every CPU has some: firmware does not say 0.
    let stated = from_toml(&text.replace("\"1-2\"", "\"1-3\"")).unwrap();
    assert_eq!(kinds(&through_sysfs(&stated)), kinds(&stated));
    let equal = from_toml(&text.replace("67", "40").replace("\"1-2\"", "\"1-3\"")).unwrap();
    assert!(!equal.has_priorities() && equal.origin("topology.priorities").is_none());
}

/// Every list of a machine file, and a last core that is all of its cluster, LLC, node, socket, caches, kind, capacity and priority.
#[test]
fn a_machine_whose_lists_name_its_last_core_loses_it() {
    let text = r#"
        [topology]
        nodes = [{ id = 0, cpus = "0-5", memory = "16GiB" }, { id = 1, cpus = "7" }, { id = 2, memory = "64GiB" }]
        sockets = [{ id = 0, cpus = "0-5" }, { id = 3, cpus = "7" }]
        llcs = ["0-3", "4-5", "7"]
        clusters = ["0-1", "2-3", "4-5", "7"]
        coregroups = ["0-1", "2-3", "4-5", "7"]
        offline = "6"
        capacities = [{ cpus = "4-5", capacity = 600 }, { cpus = "7", capacity = 500 }]
        priorities = [{ cpus = "0-3", priority = 67 }, { cpus = "7", priority = 40 }]
        [[cache]]
        level = 1
        cpus = "0-5"
        size = "32KiB"
        [[cache]]
        level = 1
        cpus = "7"
        size = "64KiB"
        [[cache]]
        level = 3
        shared_by = "machine"
        size = "8MiB"
        [[core_kind]]
        name = "a"
        cpus = "0-5"
        min_mhz = 800
        max_mhz = 1000
        [[core_kind]]
        name = "b"
        cpus = "7"
        min_mhz = 800
        max_mhz = 900
        [background]
        name = "threads"
        [[background.thread]]
        name = "two"
        on = "5,7"
        interval_us = [1000]
        run_us = [10]
        [[background.thread]]
        name = "one"
        on = "7"
        interval_us = [1000]
        run_us = [10]
        [[background.thread]]
        name = "each"
        on = "each-cpu"
        interval_us = [1000]
        run_us = [10]
    "#;
    let machine = from_toml(text).unwrap();
    check_without_its_last_core(&machine);
    let kept: CpuSet = machine.cpus().filter(|cpu| machine.os_index(*cpu) != 7).collect();
    let less = keep_cpus(&machine, &kept).unwrap();
    let names: Vec<&str> = less.background().threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!((names, less.core_kinds().len(), less.socket_count()), (vec!["two", "each"], 1, 1));
    let none = keep_cpus(&machine, &CpuSet::new()).unwrap_err();
    assert!(none.contains("it has no online CPU"), "{none}");
}

fn shape() -> impl Strategy<Value = Shape> {
    (1_u32..4, 1_u32..4, 1_u32..4, 1_u32..5, 1_u32..4).prop_map(
        |(sockets, nodes_per_socket, llcs_per_node, cores_per_llc, threads_per_core)| Shape {
            sockets,
            nodes_per_socket,
            llcs_per_node,
            cores_per_llc,
            threads_per_core,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn short_forms_are_read_as_printed(shape in shape()) {
        let form: ShortForm = shape.to_string().parse().unwrap();
        prop_assert_eq!(form.shape, shape);
        prop_assert_eq!(form.smt_numbering, SmtNumbering::Split);
        let machine = resolve(&shape.to_string()).unwrap();
        let known = Shape::of(&machine).unwrap();
        prop_assert_eq!(known.0, shape);
    }

    #[test]
    fn regular_machines_survive_synthetic_descriptions(shape in shape()) {
        let machine = resolve(&shape.to_string()).unwrap();
        let text = to_synthetic(&machine).unwrap();
        let read = from_synthetic(&text).unwrap();
        let lines = |machine: &Machine| {
            let lines = structure(machine, CacheDetail::Size);
            lines.into_iter().filter(|line| !line.starts_with("node") && !line.starts_with("make")).collect::<Vec<_>>()
        };
        prop_assert_eq!(first_difference(&lines(&read), &lines(&machine)), None, "{}", text);
        prop_assert_eq!(read.node_count(), machine.node_count());
    }

    #[test]
    fn irregular_machines_survive_toml(machine in irregular_machine()) {
        let text = to_toml(&machine);
        prop_assert!(from_toml(&text).unwrap() == machine, "{}", text);
    }

    #[test]
    fn irregular_machines_lose_their_last_core_and_nothing_else(machine in irregular_machine()) {
        check_without_its_last_core(&machine);
    }

    #[test]
    fn irregular_machines_survive_hwloc_xml(machine in irregular_machine()) {
        let text = to_hwloc_xml(&machine).unwrap();
        let read = from_hwloc_xml(&text).unwrap();
        prop_assert_eq!(difference(&read, &machine, CacheDetail::Everything), None, "{}", text);
    }

    #[test]
    fn what_a_synthetic_description_says_is_what_is_read(machine in irregular_machine()) {
        // Most of these cannot be said; those that can must come back whole.
        if let Ok(text) = to_synthetic(&machine) {
            let read = from_synthetic(&text).unwrap();
            let lines = |machine: &Machine| {
                let lines = structure(machine, CacheDetail::Size).into_iter();
                lines.filter(|line| !line.starts_with("node") && !line.starts_with("make")).collect::<Vec<_>>()
            };
            prop_assert_eq!(first_difference(&lines(&read), &lines(&machine)), None, "{}", text);
        }
    }

    #[test]
    fn cpu_lists_are_read_as_printed(numbers in prop::collection::btree_set(0_u32..3000, 0..200)) {
        let text = format_cpu_list(numbers.iter().copied());
        prop_assert_eq!(parse_cpu_list(&text).unwrap(), numbers.clone());
        let set: CpuSet = numbers.iter().copied().map(CpuId).collect();
        prop_assert_eq!(set.to_string(), text.clone());
        prop_assert_eq!(CpuSet::parse_list(&text).unwrap(), set);
    }

    #[test]
    fn set_algebra_is_that_of_ordered_sets(
        a in prop::collection::btree_set(0_u32..200, 0..60),
        b in prop::collection::btree_set(0_u32..200, 0..60),
        start in 0_u32..250,
    ) {
        let set = |numbers: &BTreeSet<u32>| numbers.iter().copied().map(CpuId).collect::<CpuSet>();
        let numbers = |set: &CpuSet| set.iter().map(|cpu| cpu.0).collect::<BTreeSet<u32>>();
        let (left, right) = (set(&a), set(&b));
        let mut either = left.clone();
        either.union_with(&right);
        prop_assert_eq!(numbers(&either), &a | &b);
        prop_assert_eq!(numbers(&left.intersection(&right)), &a & &b);
        prop_assert_eq!(numbers(&left.difference(&right)), &a - &b);
        prop_assert_eq!(left.intersects(&right), !a.is_disjoint(&b));
        prop_assert_eq!(left.is_subset(&right), a.is_subset(&b));
        prop_assert_eq!(left == right, a == b);
        prop_assert_eq!(left.len(), a.len());
        prop_assert_eq!(left.is_empty(), a.is_empty());
        prop_assert_eq!(left.first().map(|cpu| cpu.0), a.first().copied());
        prop_assert_eq!(left.last().map(|cpu| cpu.0), a.last().copied());
        prop_assert_eq!(left.intersection_len(&right), (&a & &b).len());
        prop_assert_eq!(left.next_from(CpuId(start)).map(|cpu| cpu.0), a.range(start..).next().copied());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn irregular_machines_survive_sysfs_trees_and_snapshots(machine in irregular_machine()) {
        let read = through_sysfs(&machine);
        prop_assert_eq!(difference(&read, &machine, CacheDetail::Geometry), None);

        let (tree, copy) = (scratch(), scratch());
        let written = write_sysfs_tree(&machine, tree.path()).unwrap();
        let copied = write_sysfs_snapshot(tree.path(), copy.path()).unwrap();
        prop_assert_eq!(written, copied);
        prop_assert!(from_sysfs(copy.path()).unwrap() == read);
    }
}

#[test]
fn core_kinds_are_read_as_written() {
    let phone = resolve("hikey960").unwrap();
    let [little, big] = phone.core_kinds() else { panic!("{:?}", phone.core_kinds()) };
    assert_eq!((little.reference_mhz, big.resolve_mhz(1422), big.resolve_mhz(9999)), (1844, 1805, 2362));
    assert_eq!((big.busy_power_uw(1421), big.busy_power_uw(1613)), (500_192, 652_160), "halfway, half the difference");
    assert_eq!(phone.clock_of(CpuId(4)), phone.clock_of(CpuId(7)));
    assert_ne!(phone.clock_of(CpuId(3)), phone.clock_of(CpuId(4)));
    assert!(phone.has_energy_model());

    let server = resolve("2s4c2t@spr32").unwrap();
    let [kind] = server.core_kinds() else { panic!("{:?}", server.core_kinds()) };
    assert_eq!([1, 2, 3, 32, 33].map(|cores| kind.limit_mhz(cores)), [4100, 4100, 3600, 3600, 3600]);
    assert_eq!((kind.frequencies_mhz.len(), kind.idle.len(), server.has_energy_model()), (34, 3, false));
    assert_eq!(server.clock_of(CpuId(0)), server.clock_of(CpuId(8)), "threads of a core have one clock");
}
