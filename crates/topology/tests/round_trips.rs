//! Whatever a format can say of a machine is still there after writing and reading it.

use std::collections::BTreeSet;

use crate::support::{CacheDetail, difference, first_difference, irregular_machine, scratch, structure};
use proptest::prelude::*;
use warmcore_topology::{
    CpuId, CpuSet, Machine, Shape, ShortForm, SmtNumbering, format_cpu_list, from_hwloc_xml, from_synthetic,
    from_sysfs, from_toml, parse_cpu_list, presets, resolve, to_hwloc_xml, to_synthetic, to_toml, write_sysfs_snapshot,
    write_sysfs_tree,
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
        prop_assert_eq!(numbers(&left.union(&right)), &a | &b);
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
        let wrapped: Vec<u32> = left.iter_wrapping_from(CpuId(start)).map(|cpu| cpu.0).collect();
        let expected: Vec<u32> = a.range(start..).chain(a.range(..start)).copied().collect();
        prop_assert_eq!(wrapped, expected);
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
