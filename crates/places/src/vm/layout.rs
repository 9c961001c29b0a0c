//! A machine as QEMU can build it, and whether what the guest sees is that machine.
//!
//! QEMU's sockets are the machine's LLCs: its CPUs share an L3 by socket. Several sockets in one NUMA node give a node of
//! several LLCs. QEMU numbers the threads of a core one after another, then cores, then sockets, so guest CPU numbers are
//! not the machine's where it numbers SMT siblings apart; [`Layout`] holds the map.
//!
//! From 10.0 on QEMU places caches freely (`-machine smp-cache…`, "Machine properties" of its manual), which is used for what
//! sockets cannot say: clusters, cores that share an L2 (QEMU's modules). Older ones build such a machine without them.
//!
//! A guest's CPU is of another make than the machine's, so its kernel may count other nodes as near ([`Machine::reclaim_distance`]). The
//! distances that it is told are changed where that matters, so that the same nodes are near and the order of distances stays.
//!
//! Not built: packages of several LLCs (the kernel's domains do not depend on packages), CPUs of different capacity, sizes of
//! caches.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_topology::{
    Basis, CpuId, CpuSet, LOCAL_DISTANCE, LlcId, MAX_DISTANCE, Machine, Origin, RECLAIM_DISTANCE, Relation,
};

use super::VmError;
use super::kernel::version_numbers;

/// CPUs that QEMU's emulation can number without x2APIC.
const MAX_GUEST_CPUS: usize = 255;

/// The largest reclaim distance of a guest's kernel: that of Zen, which the CPU of a guest with KVM may be.
const LARGEST_RECLAIM_DISTANCE: u32 = 32;

/// The first QEMU that places caches of x86 machines freely.
const PLACES_CACHES: [u32; 2] = [10, 0];

/// How a machine's CPUs are numbered in the guest, and what QEMU is told.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The machine's CPU for each guest CPU.
    cpus: Vec<CpuId>,
    sockets: usize,
    cores: usize,
    threads: usize,
    /// Clusters of each LLC, where cores share an L2 and QEMU can build that.
    modules: Option<usize>,
    /// First and last guest CPU of each node; nodes without CPUs have none.
    nodes: Vec<Option<(usize, usize)>>,
    /// Distances that the guest is told, by rows.
    distances: Vec<Vec<u32>>,
}

/// The machine as guests of this shape are: virtual CPUs of one core are threads of the host like any others and, emulated, take turns, so
/// that work is as fast beside a busy one as alone. What is simulated to be compared with a guest is simulated on this.
pub fn as_guest(machine: &Machine) -> Machine {
    let why = Origin::new(Basis::Given, "virtual CPUs of a guest do not slow each other");
    // Nothing is in range on every machine.
    machine.clone().with_smt_slowdown(0, why).unwrap_or_else(|_| machine.clone())
}

impl Layout {
    /// The layout of a machine for a QEMU of this version.
    ///
    /// # Errors
    /// Machines that QEMU cannot build, with the reason.
    pub fn new(machine: &Machine, qemu: &str) -> Result<Self, VmError> {
        let impossible = |reason: String| VmError::Machine { machine: machine.name().to_owned(), reason };
        if machine.cpu_count() > MAX_GUEST_CPUS {
            let count = machine.cpu_count();
            return Err(impossible(format!("it has {count} CPUs, and emulated ones are at most {MAX_GUEST_CPUS}")));
        }
        if machine.is_asymmetric() {
            return Err(impossible("its CPUs differ in capacity, and QEMU's do not".into()));
        }
        let threads = machine.smt_width();
        let mut cpus = Vec::new();
        let mut nodes = Vec::new();
        let mut cores_per_llc = None;
        for node in machine.nodes() {
            let first = cpus.len();
            for llc in machine.llcs_of_node(node) {
                let cores = cores_of(machine, *llc);
                if cores.iter().any(|core| core.len() != threads) {
                    return Err(impossible("its cores differ in their number of threads, and QEMU's do not".into()));
                }
                if *cores_per_llc.get_or_insert(cores.len()) != cores.len() {
                    return Err(impossible(
                        "its LLCs differ in their number of cores, and QEMU's sockets do not".into(),
                    ));
                }
                cpus.extend(cores.into_iter().flatten());
            }
            nodes.push((cpus.len() > first).then(|| (first, cpus.len() - 1)));
        }
        let told = told_distances(machine).map_err(impossible)?;
        let row = |from| machine.nodes().map(|to| told[&machine.node_distance(from, to)]).collect();
        let distances = machine.nodes().map(row).collect();
        let cores = cores_per_llc.unwrap_or(1);
        let places_caches = version_numbers(qemu).as_slice() >= PLACES_CACHES.as_slice();
        let modules = if places_caches { modules(machine, cores * threads) } else { None };
        Ok(Self { cpus, sockets: machine.llc_count(), cores, threads, modules, nodes, distances })
    }

    /// What is added to QEMU's machine: where its caches are.
    pub(crate) fn machine_options(&self) -> String {
        if self.modules.is_none() {
            return String::new();
        }
        let places = [("l1d", "core"), ("l1i", "core"), ("l2", "module"), ("l3", "die")];
        let option = |(number, (cache, place)): (usize, (&str, &str))| {
            format!(",smp-cache.{number}.cache={cache},smp-cache.{number}.topology={place}")
        };
        places.into_iter().enumerate().map(option).collect()
    }

    /// Number of CPUs.
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// The machine's CPU for a guest CPU number.
    pub(crate) fn machine_cpu(&self, guest: u32) -> Option<CpuId> {
        self.cpus.get(guest as usize).copied()
    }

    /// The guest's numbers of the machine's CPUs, ascending.
    pub(crate) fn guest_cpus(&self, set: &CpuSet) -> Vec<u32> {
        let guest = |(number, cpu): (usize, &CpuId)| set.contains(*cpu).then_some(number as u32);
        self.cpus.iter().enumerate().filter_map(guest).collect()
    }

    /// QEMU's options for CPUs, memory and nodes.
    pub fn arguments(&self, memory_mib: u64) -> Vec<String> {
        let (sockets, cores, threads) = (self.sockets, self.cores, self.threads);
        let cores = match self.modules {
            None => format!("cores={cores}"),
            Some(modules) => format!("modules={modules},cores={}", cores / modules),
        };
        let mut arguments = vec![
            "-smp".into(),
            format!("{},sockets={sockets},dies=1,{cores},threads={threads}", self.cpus.len()),
            "-m".into(),
            format!("{memory_mib}M"),
        ];
        let share = memory_mib / self.nodes.len() as u64;
        for (node, cpus) in self.nodes.iter().enumerate() {
            let size = if node == 0 { memory_mib - share * (self.nodes.len() as u64 - 1) } else { share };
            let cpus = cpus.map(|(first, last)| format!(",cpus={first}-{last}")).unwrap_or_default();
            arguments.extend(["-object".into(), format!("memory-backend-ram,id=m{node},size={size}M")]);
            arguments.extend(["-numa".into(), format!("node,nodeid={node}{cpus},memdev=m{node}")]);
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate().filter(|(to, _)| *to != from) {
                arguments.extend(["-numa".into(), format!("dist,src={from},dst={to},val={distance}")]);
            }
        }
        arguments
    }

    /// Compares the machine with what the guest's `/sys` describes.
    ///
    /// # Errors
    /// With the first difference.
    pub fn compare(&self, machine: &Machine, guest: &Machine) -> Result<(), VmError> {
        let differs = |what: String| Err(VmError::Topology { difference: what });
        if guest.cpu_count() != self.cpus.len() {
            return differs(format!("{} CPUs were asked for, the guest has {}", self.cpus.len(), guest.cpu_count()));
        }
        if guest.node_count() != machine.node_count() {
            return differs(format!(
                "{} nodes were asked for, the guest has {}",
                machine.node_count(),
                guest.node_count()
            ));
        }
        for (a, asked_a) in self.cpus.iter().enumerate() {
            for (b, asked_b) in self.cpus.iter().enumerate().take(a) {
                let (asked, found) =
                    (machine.relation(*asked_a, *asked_b), guest.relation(CpuId(a as u32), CpuId(b as u32)));
                let (asked, found) = (self.shared(asked), self.shared(found));
                if asked != found {
                    return differs(format!("guest CPUs {b} and {a} were to share {asked}, and share {found}"));
                }
                let nodes = (machine.node_of(*asked_a), machine.node_of(*asked_b));
                let found = (guest.node_of(CpuId(a as u32)), guest.node_of(CpuId(b as u32)));
                if (nodes.0 == nodes.1) != (found.0 == found.1) {
                    let together = if nodes.0 == nodes.1 { "one node" } else { "two nodes" };
                    return differs(format!("guest CPUs {b} and {a} were to be in {together}, and are not"));
                }
            }
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, asked) in row.iter().enumerate() {
                let (a, b) = (warmcore_topology::NodeId(from as u32), warmcore_topology::NodeId(to as u32));
                let found = guest.node_distance(a, b);
                if found != *asked {
                    return differs(format!("the distance of nodes {from} and {to} was to be {asked}, and is {found}"));
                }
            }
        }
        Ok(())
    }

    /// What two CPUs share, of what a guest can be asked for.
    fn shared(&self, relation: Relation) -> &'static str {
        match relation {
            Relation::SameCpu => "everything",
            Relation::SmtSibling => "a core",
            Relation::SameCluster if self.modules.is_some() => "a cluster",
            Relation::SameCluster | Relation::SameLlc => "an LLC",
            _ => "no cache",
        }
    }
}

/// By distance what a guest is told, whose kernel counts nodes up to 30 or 32 as near: the distance itself unless it would then
/// be on the wrong side. Fails with a reason if there are too many distances to keep their order.
fn told_distances(machine: &Machine) -> Result<BTreeMap<u32, u32>, String> {
    let pairs = machine.nodes().flat_map(|from| machine.nodes().map(move |to| machine.node_distance(from, to)));
    let all: BTreeSet<u32> = pairs.collect();
    let mut told = BTreeMap::new();
    let (mut next, mut last) = (RECLAIM_DISTANCE, LARGEST_RECLAIM_DISTANCE);
    for &near in all.iter().rev().filter(|distance| **distance <= machine.reclaim_distance()) {
        told.insert(near, near.min(next));
        next = near.min(next).saturating_sub(1);
    }
    for &far in all.iter().filter(|distance| **distance > machine.reclaim_distance()) {
        last = far.max(last + 1);
        told.insert(far, last);
    }
    let moved_too_far = told.iter().any(|(distance, told)| {
        let is_local = |distance: u32| distance <= LOCAL_DISTANCE;
        is_local(*told) != is_local(*distance) || *told > MAX_DISTANCE
    });
    if moved_too_far {
        return Err(
            "it has more distances of nodes than a guest can be given on either side of its reclaim distance".into()
        );
    }
    Ok(told)
}

/// Clusters of each LLC, if cores share them and all are of one size and numbered one after another.
fn modules(machine: &Machine, cpus_per_llc: usize) -> Option<usize> {
    let mut sizes = machine.cpus().map(|cpu| machine.cpus_of_cluster(machine.cluster_of(cpu)).len());
    let size = sizes.next()?;
    let equal = sizes.all(|other| other == size) && cpus_per_llc.is_multiple_of(size);
    (equal && size > machine.smt_width() && size < cpus_per_llc).then(|| cpus_per_llc / size)
}

/// CPUs of each core of an LLC, cores of one cluster together, by lowest CPU.
fn cores_of(machine: &Machine, llc: LlcId) -> Vec<Vec<CpuId>> {
    let mut cores: Vec<(warmcore_topology::CoreId, Vec<CpuId>)> = Vec::new();
    for cpu in machine.cpus_of_llc(llc).iter() {
        let core = machine.core_of(cpu);
        match cores.iter_mut().find(|(known, _)| *known == core) {
            Some((_, cpus)) => cpus.push(cpu),
            None => cores.push((core, vec![cpu])),
        }
    }
    cores.sort_by_key(|(_, cpus)| cpus.first().map(|cpu| (machine.cluster_of(*cpu), *cpu)));
    cores.into_iter().map(|(_, cpus)| cpus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::resolve;

    fn layout(text: &str) -> Layout {
        Layout::new(&resolve(text).unwrap(), "7.2.22").unwrap()
    }

    /// Four cores of two clusters in each of two LLCs.
    fn clustered() -> Machine {
        warmcore_topology::from_synthetic("Package:1 NUMANode:1 L3:2(size=8MB) L2:2(size=1MB) Core:2 PU:1").unwrap()
    }

    #[test]
    fn clusters_are_modules_where_qemu_places_caches() {
        let machine = clustered();
        let new = Layout::new(&machine, "10.1.2").unwrap();
        let arguments = new.arguments(512).join(" ");
        assert!(arguments.contains("-smp 8,sockets=2,dies=1,modules=2,cores=2,threads=1"), "{arguments}");
        assert_eq!(
            new.machine_options(),
            ",smp-cache.0.cache=l1d,smp-cache.0.topology=core,smp-cache.1.cache=l1i,smp-cache.1.topology=core,\
             smp-cache.2.cache=l2,smp-cache.2.topology=module,smp-cache.3.cache=l3,smp-cache.3.topology=die"
        );
        let error = new.compare(&machine, &resolve("1s1n2l4c1t").unwrap()).unwrap_err().to_string();
        assert!(error.contains("to share a cluster, and share an LLC"), "{error}");
        let old = Layout::new(&machine, "7.2.22").unwrap();
        assert!(old.arguments(512).join(" ").contains("-smp 8,sockets=2,dies=1,cores=4,threads=1"));
        assert_eq!(old.machine_options(), "");
        old.compare(&machine, &resolve("1s1n2l4c1t").unwrap()).unwrap();
        assert_eq!(Layout::new(&resolve("1s1n2l4c1t").unwrap(), "10.1.2").unwrap().machine_options(), "");
    }

    #[test]
    fn sockets_of_qemu_are_llcs() {
        let arguments = layout("1s2n2l4c1t").arguments(1024).join(" ");
        assert!(arguments.contains("-smp 16,sockets=4,dies=1,cores=4,threads=1"), "{arguments}");
        assert!(arguments.contains("node,nodeid=1,cpus=8-15,memdev=m1"), "{arguments}");
        assert!(arguments.contains("dist,src=0,dst=1,val=12"), "{arguments}");
    }

    /// EPYC's sockets are 32 apart, which a kernel on Zen counts as near, and one on the emulated CPU would not.
    #[test]
    fn a_guest_is_told_distances_that_mean_to_it_what_they_mean_on_the_machine() {
        let told = |machine: &str| -> Vec<(u32, u32)> {
            let machine = warmcore_topology::from_toml(machine).unwrap();
            let changed = told_distances(&machine).unwrap().into_iter().filter(|(distance, told)| distance != told);
            changed.collect()
        };
        let sockets = |base: &str, distance: u32| {
            format!(
                "base = \"{base}\"\n[topology]\nshape = \"2s2n1l2c1t\"\ndistance = {{ same_socket = 12, other_socket = {distance} }}"
            )
        };
        assert_eq!(told(&sockets("genoa96", 32)), [(32, 30)]);
        assert_eq!(told(&sockets("spr32", 32)), [(32, 33)]);
        for unchanged in [("genoa96", 28), ("spr32", 21), ("spr32", 40), ("genoa96", 33)] {
            assert_eq!(told(&sockets(unchanged.0, unchanged.1)), [], "{unchanged:?}");
        }
        let ring = "[processor]\nvendor = \"amd\"\nfamily = 23\n[topology]\nshape = \"3s1n1l1c1t\"\n\
                    distances = [[10, 30, 32], [30, 10, 31], [32, 31, 10]]";
        assert_eq!(told(ring), [(30, 28), (31, 29), (32, 30)], "in their order");
        let power = "[processor]\nvendor = \"power\"\n[topology]\nshape = \"2s2n1l1c1t\"\ndistance = { same_socket = 20, other_socket = 40 }";
        assert_eq!(told(power), [(20, 33)], "there no node is near");
        let layout = layout("2s1n1l2c1t@genoa96");
        assert!(layout.arguments(512).join(" ").contains("dist,src=0,dst=1,val=30"), "{:?}", layout.arguments(512));
    }

    #[test]
    fn siblings_that_a_machine_numbers_apart_are_neighbours_in_the_guest() {
        let layout = layout("1s1n2l2c2t");
        let cpus: Vec<u32> = (0..8).map(|guest| layout.machine_cpu(guest).unwrap().0).collect();
        assert_eq!(cpus, [0, 4, 1, 5, 2, 6, 3, 7]);
        let set: CpuSet = [CpuId(4), CpuId(5)].into_iter().collect();
        assert_eq!(layout.guest_cpus(&set), [1, 3]);
    }

    #[test]
    fn a_guest_that_differs_is_told_apart() {
        let asked = resolve("1s1n2l4c1t").unwrap();
        let layout = Layout::new(&asked, "7.2.22").unwrap();
        layout.compare(&asked, &asked).unwrap();
        for (other, part) in [
            ("1s1n1l8c1t", "share no cache"),
            ("1s1n2l2c1t", "8 CPUs"),
            ("1s2n1l4c1t", "nodes"),
            ("1s1n2l2c2t", "to share an LLC"),
        ] {
            let error = layout.compare(&asked, &resolve(other).unwrap()).unwrap_err().to_string();
            assert!(error.contains(part), "{other}: {error}");
        }
    }

    #[test]
    fn machines_that_qemu_cannot_build_are_refused_with_the_reason() {
        let refusal = |text: &str| Layout::new(&resolve(text).unwrap(), "7.2.22").unwrap_err().to_string();
        assert!(refusal("syn1024").contains("255"));
        assert!(refusal("1s1n256l1c1t").contains("255"));
    }
}
