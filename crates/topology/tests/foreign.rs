//! What other tools and kernels write that ours does not: parts that are not allowed, packages without numbers.

use std::fs;

use crate::support::scratch;
use warmcore_topology::{
    CpuId, Machine, NodeId, from_hwloc_xml, from_sysfs, from_toml, resolve, to_hwloc_xml, write_sysfs_snapshot,
    write_sysfs_tree,
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

/// Two nodes of two clusters of two cores, each core with an L2 of its own under one L3.
const CLUSTERS: &str = "name = \"clusters\"\n[topology]\nshape = \"2s1n1l4c1t\"\ncores_per_cluster = 2\n\
    [[cache]]\nlevel = 2\nshared_by = \"core\"\nsize = \"1MiB\"\n[[cache]]\nlevel = 3\nsize = \"8MiB\"\n";

/// Groups of Linux's clusters, as hwloc writes them (`subtype="Cluster" kind="222"`), other groups, and clusters that hwloc leaves out because
/// an L2 has their CPUs.
#[test]
fn clusters_are_groups_of_a_kind_of_their_own_in_xml() {
    let machine = from_toml(CLUSTERS).unwrap();
    let xml = to_hwloc_xml(&machine).unwrap();
    assert_eq!(xml.matches("subtype=\"Cluster\" kind=\"222\"").count(), 4, "{xml}");
    assert_eq!(from_hwloc_xml(&xml).unwrap().cluster_count(), 4);
    for (from, to, clusters) in [("subtype=\"Cluster\" ", "", 4), ("kind=\"222\"", "kind=\"220\"", 4)] {
        assert_eq!(from_hwloc_xml(&xml.replace(from, to)).unwrap().cluster_count(), clusters, "{from}");
    }
    let of_the_user = xml.replace("subtype=\"Cluster\" kind=\"222\"", "kind=\"0\"");
    assert_eq!(from_hwloc_xml(&of_the_user).unwrap().cluster_count(), 8);
    // The first cluster's cores share an L2, the others have one each.
    let text = CLUSTERS.replace("shared_by = \"core\"\nsize", "shared_by = \"cluster\"\ncpus = \"0-1\"\nsize");
    let own = "[[cache]]\nlevel = 2\nshared_by = \"core\"\ncpus = \"2-7\"\nsize = \"1MiB\"\n";
    let mixed = from_toml(&(text + own)).unwrap();
    let xml = to_hwloc_xml(&mixed).unwrap();
    assert_eq!(xml.matches("subtype=\"Cluster\"").count(), 3);
    assert_eq!(from_hwloc_xml(&xml).unwrap().cluster_count(), 4);
}

/// hwloc leaves the memory of a node without any out; a file in which no node has memory says nothing about it.
#[test]
fn nodes_without_memory_stay_so_in_xml() {
    let nodes = |second: &str| {
        let list =
            format!("nodes = [{{ id = 0, cpus = \"0-1\", memory = \"8GiB\" }}, {{ id = 1, cpus = \"2-3\"{second} }}]");
        from_toml(&format!("[topology]\n{list}\n")).unwrap()
    };
    let (none, unknown) = (nodes(", memory = \"0B\""), nodes(""));
    let memory = |machine: &Machine| machine.node_memory_bytes(NodeId(1));
    let through_xml = |machine: &Machine| from_hwloc_xml(&to_hwloc_xml(machine).unwrap()).unwrap();
    assert_eq!((memory(&through_xml(&none)), memory(&through_xml(&unknown))), (Some(0), None));
    let of_hwloc = to_hwloc_xml(&none).unwrap().replace(" local_memory=\"0\"", "").replace("WarmcoreName", "Other");
    assert_eq!(memory(&from_hwloc_xml(&of_hwloc).unwrap()), Some(0));
    let of_none = of_hwloc.replace(" local_memory=\"8589934592\"", "");
    let read = from_hwloc_xml(&of_none).unwrap();
    assert_eq!((read.node_memory_bytes(NodeId(0)), memory(&read)), (None, None));
}

/// An Altra: the firmware's clusters are pairs of cores that share no cache. Linux takes them for LLCs, and for no clusters.
#[test]
fn clusters_that_are_larger_than_the_caches_in_them_stand_for_llcs() {
    let tree = |shape: &str, more: &str| {
        let caches = "[[cache]]\nlevel = 2\nshared_by = \"core\"\nsize = \"1MiB\"\n";
        let machine = from_toml(&format!("[topology]\nshape = \"{shape}\"\n{more}{caches}")).unwrap();
        let directory = scratch();
        write_sysfs_tree(&machine, directory.path()).unwrap();
        (machine, from_sysfs(directory.path()).unwrap())
    };
    let (altra, read) = tree("2s1n4l1c1t", "cores_per_coregroup = 2\n");
    for cpu in altra.cpus() {
        assert_eq!((read.coregroup(cpu), read.coregroup(cpu).len()), (altra.coregroup(cpu), 2));
        assert_eq!(
            (read.cpus_of_cluster(read.cluster_of(cpu)).len(), read.llc_cache(read.llc_of(cpu)).is_some()),
            (1, true)
        );
    }
    assert!(noted(&read, "scheduling domains take them for LLCs"), "{:?}", read.notes());
    let again = from_hwloc_xml(&to_hwloc_xml(&read).unwrap()).unwrap();
    assert_eq!(again.coregroup(CpuId(3)), read.coregroup(CpuId(3)));
    // Clusters inside of LLCs are clusters.
    let (_, inside) = tree("2s1n1l4c1t", "cores_per_cluster = 2\n[[cache]]\nlevel = 3\nsize = \"8MiB\"\n");
    assert!(!inside.has_coregroups() && inside.cluster_count() == 4 && inside.notes().is_empty());
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

/// What shows that CPUs are unequal, and not how much: a firmware's highest performance, hwloc's highest frequency and rank, caches of cores.
#[test]
fn cpus_that_differ_without_a_capacity_are_counted_as_equal_with_a_note() {
    let begin = "CPUs of unequal speed are counted as equal: ";
    let note = |machine: &Machine| {
        let told: Vec<String> =
            machine.notes().iter().filter_map(|note| note.strip_prefix(begin)).map(str::to_owned).collect();
        told.join("|")
    };
    let machine = resolve("1s1n1l4c1t").unwrap();
    let of_firmware = |machine: &Machine, highest: [&str; 4]| {
        let directory = scratch();
        let (tree, copy) = (directory.path().join("tree"), directory.path().join("copy"));
        write_sysfs_tree(machine, &tree).unwrap();
        for (cpu, highest) in highest.into_iter().enumerate() {
            let cppc = tree.join(format!("sys/devices/system/cpu/cpu{cpu}/acpi_cppc"));
            fs::create_dir(&cppc).unwrap();
            fs::write(cppc.join("highest_perf"), highest).unwrap();
        }
        let read = from_sysfs(&tree).unwrap();
        write_sysfs_snapshot(&tree, &copy).unwrap();
        assert!(from_sysfs(&copy).unwrap() == read, "a snapshot keeps what says it");
        note(&read)
    };
    let told = of_firmware(&machine, ["64\n", "67\n", "39\n", "38\n"]);
    assert!(told.starts_with("highest_perf of CPUs 2-3 is at most 39, of others up to 67; `capacities`"), "{told}");
    // Favoured cores of one kind, an unreadable value, and CPUs whose capacity is stated.
    assert_eq!(of_firmware(&machine, ["64\n", "67\n", "64\n", "64\n"]), "");
    assert_eq!(of_firmware(&machine, ["64\n", "64\n", "?\n", "0\n"]), "");
    let capacities = "[topology]\nshape = \"1s1n1l4c1t\"\ncapacities = [{ cpus = \"2-3\", capacity = 600 }]\n";
    assert_eq!(of_firmware(&from_toml(capacities).unwrap(), ["64\n", "67\n", "39\n", "39\n"]), "");

    let kind = |cpus: &str, mhz: u32| {
        format!(r#"<cpukind cpuset="{cpus}"><info name="FrequencyMaxMHz" value="{mhz}"/></cpukind>"#)
    };
    let of_hwloc = |slow: u32| {
        let kinds = kind("0x00000003", 4000) + &kind("0x0000000c", slow) + "</topology>";
        note(&from_hwloc_xml(&to_hwloc_xml(&machine).unwrap().replace("</topology>", &kinds)).unwrap())
    };
    let told = of_hwloc(2000);
    assert!(told.starts_with("FrequencyMaxMHz of CPUs 2-3 is at most 2000, of others up to 4000;"), "{told}");
    assert_eq!(of_hwloc(3900), "");
    let ranks =
        r#"<cpukind cpuset="0x3" forced_efficiency="1"/><cpukind cpuset="0xc" forced_efficiency="0"/></topology>"#;
    let ranked = from_hwloc_xml(&to_hwloc_xml(&machine).unwrap().replace("</topology>", ranks)).unwrap();
    assert!(note(&ranked).starts_with("forced_efficiency of CPUs 2-3 is at most 0, of others up to 1;"));

    let level = |level: u32, cpus: &str, size: &str| format!("[[cache]]\nlevel = {level}\n{cpus}size = \"{size}\"\n");
    let caches = level(1, "cpus = \"0-1\"\n", "48KiB") + &level(1, "cpus = \"2-3\"\n", "32KiB") + &level(3, "", "8MiB");
    let hybrid = from_toml(&format!("[topology]\nshape = \"1s1n1l4c1t\"\n{caches}")).unwrap();
    let directory = scratch();
    write_sysfs_tree(&hybrid, directory.path()).unwrap();
    for read in [from_sysfs(directory.path()).unwrap(), from_hwloc_xml(&to_hwloc_xml(&hybrid).unwrap()).unwrap()] {
        let told = note(&read);
        assert!(told.starts_with("the L1d has 32KiB on CPUs 2-3, 48KiB on CPUs 0-1;"), "{told}");
    }
}

/// The kernel's switch decides, else a driver that turns it on; the firmware's numbers are the priorities, and 255 is none.
#[test]
fn priorities_are_read_where_the_kernel_goes_by_them() {
    let directory = scratch();
    let (tree, copy) = (directory.path().join("tree"), directory.path().join("copy"));
    write_sysfs_tree(&resolve("1s1n1l4c1t").unwrap(), &tree).unwrap();
    let state = |file: &str, text: &str| {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let highest = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/acpi_cppc/highest_perf");
    let read = || {
        let machine = from_sysfs(&tree).unwrap();
        machine.cpus().map(|cpu| machine.priority(cpu)).collect::<Vec<u32>>()
    };
    for (cpu, perf) in (0..).zip(["67\n", "67\n", "40\n", "40\n"]) {
        state(&highest(cpu), perf);
    }
    let known = [67, 67, 40, 40];
    assert_eq!(read(), [0; 4], "nothing says that the kernel goes by them");
    for (word, priorities) in [("off\n", [0; 4]), ("passive\n", known), ("active\n", known)] {
        state("sys/devices/system/cpu/intel_pstate/status", word);
        assert_eq!(read(), priorities, "{word}");
    }
    state("proc/sys/kernel/sched_itmt_enabled", "0\n");
    assert_eq!(read(), [0; 4], "it is switched off");
    state("sys/kernel/debug/x86/sched_itmt_enabled", "Y\n");
    assert_eq!(read(), known);
    write_sysfs_snapshot(&tree, &copy).unwrap();
    assert!(from_sysfs(&copy).unwrap() == from_sysfs(&tree).unwrap(), "a snapshot keeps what says it");
    state(&highest(1), "255\n");
    let unknown = from_sysfs(&tree).unwrap();
    assert!(!unknown.has_priorities() && noted(&unknown, "high priority (ITMT)"), "{:?}", unknown.notes());
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
