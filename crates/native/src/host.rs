//! The CPUs of this host, for affinities.

use std::collections::BTreeMap;

use rustix::thread::{CpuSet, sched_getaffinity};
use warmcore_topology::parse_cpu_list;
use warmcore_workload::Affinity;

/// CPUs of this host that the process may use.
pub(crate) struct Host {
    /// CPUs the process may use.
    allowed: CpuSet,
    /// Operating system numbers of online CPUs, ascending: dense id `i` is the `i`-th.
    online: Vec<u32>,
    /// CPUs of each NUMA node.
    nodes: BTreeMap<u32, Vec<u32>>,
}

impl Host {
    /// Looks at this host. Without `/sys` the CPUs are those the process may use, and there are no nodes.
    pub(crate) fn detect() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(parse_cpu_list(text.trim()).ok()?.into_iter().collect::<Vec<u32>>())
        };
        let usable = (0..CpuSet::MAX_CPU as u32).filter(|&cpu| allowed.is_set(cpu as usize));
        let online = read("/sys/devices/system/cpu/online").unwrap_or_else(|| usable.collect());
        let mut nodes = BTreeMap::new();
        for node in read("/sys/devices/system/node/online").unwrap_or_default() {
            if let Some(cpus) = read(&format!("/sys/devices/system/node/node{node}/cpulist")) {
                nodes.insert(node, cpus);
            }
        }
        Self { allowed, online, nodes }
    }

    /// The affinity as a set of CPUs that the process may use.
    ///
    /// # Errors
    /// What the affinity asks for and what there is, if nothing is left.
    pub(crate) fn resolve(&self, affinity: &Affinity) -> Result<CpuSet, String> {
        let (asked, wanted): (Vec<u32>, String) = match affinity {
            Affinity::All => return Ok(self.allowed),
            Affinity::OsCpus(list) => (list.clone(), format!("it asks for CPUs {list:?}")),
            Affinity::OsNodes(list) => {
                let cpus = list.iter().filter_map(|node| self.nodes.get(node)).flatten().copied();
                (cpus.collect(), format!("it asks for nodes {list:?}"))
            }
            Affinity::Cpus(set) => {
                let cpus = set.iter().filter_map(|cpu| self.online.get(cpu.index())).copied();
                (cpus.collect(), format!("it asks for CPUs {set}"))
            }
        };
        let mut set = CpuSet::new();
        for cpu in asked {
            if (cpu as usize) < CpuSet::MAX_CPU && self.allowed.is_set(cpu as usize) {
                set.set(cpu as usize);
            }
        }
        if set.count() == 0 { Err(format!("{wanted}, this process may use {}", self.allowed_list())) } else { Ok(set) }
    }

    fn allowed_list(&self) -> String {
        let allowed = (0..CpuSet::MAX_CPU as u32).filter(|&cpu| self.allowed.is_set(cpu as usize));
        warmcore_topology::format_cpu_list(allowed)
    }
}
