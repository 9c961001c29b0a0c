//! A machine as QEMU can build it, and whether what the guest sees is that machine.
//!
//! QEMU's sockets are the machine's LLCs: its CPUs share an L3 by socket (QEMU 7.2; newer ones can place caches freely,
//! which is not used). Several sockets in one NUMA node give a node of several LLCs. QEMU numbers the threads of a core
//! one after another, then cores, then sockets, so guest CPU numbers are not the machine's where it numbers SMT siblings
//! apart; [`Layout`] holds the map.
//!
//! Not built: clusters, several LLCs per package as a package of its own (the kernel's domains do not depend on packages),
//! CPUs of different capacity, sizes of caches.

use warmcore_topology::{CpuId, CpuSet, LlcId, Machine, Relation};

use super::VmError;

/// CPUs that QEMU's emulation can number without x2APIC.
const MAX_GUEST_CPUS: usize = 255;

/// How a machine's CPUs are numbered in the guest, and what QEMU is told.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The machine's CPU for each guest CPU.
    cpus: Vec<CpuId>,
    sockets: usize,
    cores: usize,
    threads: usize,
    /// First and last guest CPU of each node; nodes without CPUs have none.
    nodes: Vec<Option<(usize, usize)>>,
    /// Distances by rows.
    distances: Vec<Vec<u32>>,
}

impl Layout {
    /// The layout of a machine.
    ///
    /// # Errors
    /// Machines that QEMU cannot build, with the reason.
    pub fn new(machine: &Machine) -> Result<Self, VmError> {
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
        let distances =
            machine.nodes().map(|from| machine.nodes().map(|to| machine.node_distance(from, to)).collect()).collect();
        Ok(Self { cpus, sockets: machine.llc_count(), cores: cores_per_llc.unwrap_or(1), threads, nodes, distances })
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// The machine's CPU for a guest CPU number.
    #[must_use]
    pub fn machine_cpu(&self, guest: u32) -> Option<CpuId> {
        self.cpus.get(guest as usize).copied()
    }

    /// The guest's numbers of the machine's CPUs, ascending.
    #[must_use]
    pub fn guest_cpus(&self, set: &CpuSet) -> Vec<u32> {
        let guest = |(number, cpu): (usize, &CpuId)| set.contains(*cpu).then_some(number as u32);
        self.cpus.iter().enumerate().filter_map(guest).collect()
    }

    /// QEMU's options for CPUs, memory and nodes.
    #[must_use]
    pub fn arguments(&self, memory_mib: u64) -> Vec<String> {
        let (sockets, cores, threads) = (self.sockets, self.cores, self.threads);
        let mut arguments = vec![
            "-smp".into(),
            format!("{},sockets={sockets},dies=1,cores={cores},threads={threads}", self.cpus.len()),
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
                if shared(asked) != shared(found) {
                    return differs(format!(
                        "guest CPUs {b} and {a} were to share {}, and share {}",
                        shared(asked),
                        shared(found)
                    ));
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
}

/// CPUs of each core of an LLC, cores by lowest CPU.
fn cores_of(machine: &Machine, llc: LlcId) -> Vec<Vec<CpuId>> {
    let mut cores: Vec<(warmcore_topology::CoreId, Vec<CpuId>)> = Vec::new();
    for cpu in machine.cpus_of_llc(llc).iter() {
        let core = machine.core_of(cpu);
        match cores.iter_mut().find(|(known, _)| *known == core) {
            Some((_, cpus)) => cpus.push(cpu),
            None => cores.push((core, vec![cpu])),
        }
    }
    cores.into_iter().map(|(_, cpus)| cpus).collect()
}

/// What two CPUs share, of what a guest can be asked for.
fn shared(relation: Relation) -> &'static str {
    match relation {
        Relation::SameCpu => "everything",
        Relation::SmtSibling => "a core",
        Relation::SameCluster | Relation::SameLlc => "an LLC",
        _ => "no cache",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::resolve;

    fn layout(text: &str) -> Layout {
        Layout::new(&resolve(text).unwrap()).unwrap()
    }

    #[test]
    fn sockets_of_qemu_are_llcs() {
        let arguments = layout("1s2n2l4c1t").arguments(1024).join(" ");
        assert!(arguments.contains("-smp 16,sockets=4,dies=1,cores=4,threads=1"), "{arguments}");
        assert!(arguments.contains("node,nodeid=1,cpus=8-15,memdev=m1"), "{arguments}");
        assert!(arguments.contains("dist,src=0,dst=1,val=12"), "{arguments}");
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
        let layout = Layout::new(&asked).unwrap();
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
        let refusal = |text: &str| Layout::new(&resolve(text).unwrap()).unwrap_err().to_string();
        assert!(refusal("syn1024").contains("255"));
        assert!(refusal("1s1n256l1c1t").contains("255"));
    }
}
