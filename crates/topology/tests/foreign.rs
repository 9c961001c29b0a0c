//! What other tools and kernels write that ours does not: parts that are not allowed, packages without numbers.

use std::fs;

use crate::support::scratch;
use warmcore_topology::{
    CpuId, Machine, from_hwloc_xml, from_sysfs, resolve, to_hwloc_xml, write_sysfs_snapshot, write_sysfs_tree,
};

fn noted(machine: &Machine, words: &str) -> bool {
    machine.notes().iter().any(|note| note.contains(words))
}

#[test]
fn cpus_and_nodes_that_are_not_allowed_are_left_out_with_a_note() {
    let whole = to_hwloc_xml(&resolve("2s1n1l2c1t").unwrap()).unwrap();
    let mut text = whole;
    for (set, allowed) in [("allowed_cpuset", "0x00000003"), ("allowed_nodeset", "0x00000001")] {
        let begin = text.find(&format!(" {set}=\"")).unwrap() + set.len() + 3;
        let end = begin + text[begin..].find('"').unwrap();
        text.replace_range(begin..end, allowed);
    }
    let machine = from_hwloc_xml(&text).unwrap();
    assert_eq!((machine.cpu_count(), machine.node_count(), machine.socket_count()), (2, 1, 1));
    assert!(noted(&machine, "CPUs 2-3 are not among the allowed ones"), "{:?}", machine.notes());
}

#[test]
fn packages_without_numbers_are_the_cpus_that_are_said_to_share_one() {
    let directory = scratch();
    let (tree, copy) = (directory.path().join("tree"), directory.path().join("copy"));
    write_sysfs_tree(&resolve("1s1n1l6c1t").unwrap(), &tree).unwrap();
    let lay_out = |siblings: &dyn Fn(u32) -> &'static str| {
        for cpu in 0..6 {
            let topology = tree.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            fs::write(topology.join("physical_package_id"), "-1\n").unwrap();
            fs::write(topology.join("core_siblings"), siblings(cpu)).unwrap();
        }
    };
    lay_out(&|cpu| if cpu < 2 { "00000000,00000003\n" } else { "00000000,0000003c\n" });
    let machine = from_sysfs(&tree).unwrap();
    assert_eq!(machine.socket_count(), 2);
    assert!(noted(&machine, "packages have no numbers"), "{:?}", machine.notes());
    write_sysfs_snapshot(&tree, &copy).unwrap();
    assert!(from_sysfs(&copy).unwrap() == machine, "a snapshot keeps what says it");
    // A kernel that knows no packages names every CPU alone.
    lay_out(&|cpu| ["1\n", "2\n", "4\n", "8\n", "10\n", "20\n"][cpu as usize]);
    assert_eq!(from_sysfs(&tree).unwrap().socket_count(), 1);
}

/// A hybrid CPU's kinds in both formats: what says no more than that is a machine with a warning.
#[test]
fn kinds_of_cores_without_a_capacity_are_noted_and_those_with_one_are_not() {
    let machine = resolve("1s1n1l4c1t").unwrap();
    let kinds = |capacity: &str| {
        format!(
            r#"<cpukind cpuset="0x00000003"><info name="CoreType" value="IntelCore"/></cpukind>
               <cpukind cpuset="0x0000000c"><info name="CoreType" value="IntelAtom"/>{capacity}</cpukind></topology>"#
        )
    };
    let xml = to_hwloc_xml(&machine).unwrap();
    let read = |capacity: &str| from_hwloc_xml(&xml.replace("</topology>", &kinds(capacity))).unwrap();
    let plain = read("");
    assert!(plain.notes()[0].starts_with("CPUs 2-3 are IntelAtom, CPUs 0-1 are IntelCore"), "{:?}", plain.notes());
    let known = read(r#"<info name="LinuxCapacity" value="600"/>"#);
    assert!(known.notes().is_empty() && known.capacity(CpuId(3)) == 600, "{:?}", known.notes());

    let directory = scratch();
    let (tree, copy) = (directory.path().join("tree"), directory.path().join("copy"));
    write_sysfs_tree(&machine, &tree).unwrap();
    for (kind, cpus) in [("cpu_core", "0-1\n"), ("cpu_atom", "2-3\n")] {
        let kind = tree.join("sys/devices").join(kind);
        std::fs::create_dir(&kind).unwrap();
        std::fs::write(kind.join("cpus"), cpus).unwrap();
    }
    write_sysfs_snapshot(&tree, &copy).unwrap();
    for root in [&tree, &copy] {
        let notes = from_sysfs(root).unwrap().notes().to_vec();
        let words = "CPUs 2-3 are of kind cpu_atom, CPUs 0-1 are of kind cpu_core";
        assert!(notes.iter().any(|note| note.starts_with(words)), "{notes:?}");
    }
}
