//! What every reader produces: a machine in the operating system's numbers, not yet checked.
//!
//! [`MachineDescription::build`] (in `build.rs`) checks it and gives out dense ids. Group keys (core, cluster, LLC)
//! are arbitrary numbers, equal exactly for CPUs of one group.

use std::collections::{BTreeMap, BTreeSet};

use crate::figures::default_costs;
use crate::{Cache, Costs, Origin, Performance, Processor};

/// One online CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuDescription {
    /// The operating system's number.
    pub os_index: u32,
    /// Key of the core.
    pub core: u32,
    /// Key of the cluster (shared L2).
    pub cluster: u32,
    /// Key of the last-level cache.
    pub llc: u32,
    /// The operating system's number of the NUMA node.
    pub node: u32,
    /// The operating system's number of the socket.
    pub socket: u32,
    /// Relative computing power, 1024 for the biggest CPU.
    pub capacity: u32,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDescription {
    /// The operating system's number.
    pub os_index: u32,
    /// Memory size, when known.
    pub memory_bytes: Option<u64>,
}

/// One cache in the operating system's CPU numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDescription {
    /// Everything but the CPUs.
    pub cache: Cache,
    /// The online CPUs that use it.
    pub cpus: BTreeSet<u32>,
}

/// A machine as a reader found it.
#[derive(Clone, Debug)]
pub struct MachineDescription {
    /// Short name.
    pub name: String,
    /// One line for lists.
    pub summary: String,
    /// Online CPUs in any order.
    pub cpus: Vec<CpuDescription>,
    /// Offline CPUs: the operating system's numbers.
    pub offline: BTreeSet<u32>,
    /// NUMA nodes in any order. Nodes without CPUs are legal.
    pub nodes: Vec<NodeDescription>,
    /// Node distances in SLIT units, rows and columns in the order of `nodes`; `None` fills in 10 for local, 12
    /// inside a socket and 20 between sockets.
    pub distances: Option<Vec<Vec<u32>>>,
    /// The CPUs of each group that stands for a last-level cache in scheduling domains (`cpu_coregroup_mask`); empty where the LLCs do.
    pub coregroups: Vec<BTreeSet<u32>>,
    /// Priorities of CPUs by the operating system's numbers, 0 to [`MAX_PRIORITY`](crate::MAX_PRIORITY); a CPU without one has 0. Empty, or all
    /// equal, where the kernel does not go by them.
    pub priorities: BTreeMap<u32, u32>,
    /// The make of the CPUs, when known.
    pub processor: Option<Processor>,
    /// The distance up to which the kernel counts nodes as near; `None` leaves it to the make of the CPUs.
    pub reclaim_distance: Option<u32>,
    /// Caches in any order; may be empty.
    pub caches: Vec<CacheDescription>,
    /// Latencies, bandwidths and frequencies.
    pub performance: Performance,
    /// Costs of kernel actions.
    pub costs: Costs,
    /// Where values come from, by the value's name in the TOML format (`costs.tick_ns`). Values without an entry
    /// count as given by the user.
    pub origins: BTreeMap<String, Origin>,
    /// What the origins' tags stand for.
    pub sources: BTreeMap<String, String>,
    /// What the reader found odd and how it understood it.
    pub notes: Vec<String>,
}

impl MachineDescription {
    /// A machine without CPUs and nodes, with typical costs and no figures: what a new reader starts from.
    pub fn new(name: impl Into<String>) -> Self {
        let performance = Performance::default();
        let (costs, origins) = default_costs(&performance);
        Self {
            name: name.into(),
            summary: String::new(),
            cpus: Vec::new(),
            offline: BTreeSet::new(),
            nodes: Vec::new(),
            distances: None,
            coregroups: Vec::new(),
            priorities: BTreeMap::new(),
            processor: None,
            reclaim_distance: None,
            caches: Vec::new(),
            performance,
            costs,
            origins,
            sources: BTreeMap::new(),
            notes: Vec::new(),
        }
    }
}
