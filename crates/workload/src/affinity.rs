//! Where tasks may run, before it is known on which machine.

use std::fmt;

use warmcore_topology::{CpuSet, Machine, format_cpu_list};

/// Where a task may run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Affinity {
    /// Anywhere.
    #[default]
    All,
    /// CPUs by the operating system's numbers. Those the machine does not have are an error when none is left.
    OsCpus(Vec<u32>),
    /// CPUs by dense id.
    Cpus(CpuSet),
    /// CPUs of NUMA nodes, by the operating system's numbers.
    OsNodes(Vec<u32>),
}

impl Affinity {
    /// The CPUs of a machine that it allows; none if the machine has none of them.
    pub fn on(&self, machine: &Machine) -> CpuSet {
        match self {
            Self::All => machine.all_cpus().clone(),
            Self::Cpus(set) => set.intersection(machine.all_cpus()),
            Self::OsCpus(list) => list.iter().filter_map(|&os| machine.cpu_by_os_index(os)).collect(),
            Self::OsNodes(list) => {
                let mut set = CpuSet::new();
                for node in list.iter().filter_map(|&os| machine.node_by_os_index(os)) {
                    set.union_with(machine.cpus_of_node(node));
                }
                set
            }
        }
    }
}

impl fmt::Display for Affinity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => out.write_str("all CPUs"),
            Self::OsCpus(list) => write!(out, "CPUs {}", format_cpu_list(list.iter().copied())),
            Self::Cpus(set) => write!(out, "CPUs {set}"),
            Self::OsNodes(list) => write!(out, "nodes {}", format_cpu_list(list.iter().copied())),
        }
    }
}
