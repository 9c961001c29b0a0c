//! The CPUs of this host, for affinities.

use std::collections::BTreeMap;

use rustix::thread::{CpuSet, sched_getaffinity};
use warmcore_topology::parse_cpu_list;
use warmcore_workload::Affinity;

/// CPUs of this host that the process may use.
pub(crate) struct Host {
    /// CPUs the process may use.
    allowed: CpuSet,
    /// Those, and the CPUs that the kernel was told to leave to who asks for them (`isolcpus`), which no mask has by itself.
    askable: CpuSet,
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
        let mut askable = allowed;
        for cpu in read("/sys/devices/system/cpu/isolated").unwrap_or_default() {
            if (cpu as usize) < CpuSet::MAX_CPU && online.contains(&cpu) {
                askable.set(cpu as usize);
            }
        }
        Self { allowed, askable, online, nodes }
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
            if (cpu as usize) < CpuSet::MAX_CPU && self.askable.is_set(cpu as usize) {
                set.set(cpu as usize);
            }
        }
        if set.count() == 0 { Err(format!("{wanted}, this process may use {}", self.askable_list())) } else { Ok(set) }
    }

    fn askable_list(&self) -> String {
        let askable = (0..CpuSet::MAX_CPU as u32).filter(|&cpu| self.askable.is_set(cpu as usize));
        warmcore_topology::format_cpu_list(askable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four CPUs, two of which are isolated.
    #[test]
    fn isolated_cpus_are_for_those_who_ask_for_them() {
        let set = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|&cpu| set.set(cpu));
            set
        };
        let host = Host {
            allowed: set(&[0, 1]),
            askable: set(&[0, 1, 2, 3]),
            online: vec![0, 1, 2, 3],
            nodes: BTreeMap::from([(0, vec![0, 1, 2, 3])]),
        };
        assert_eq!(host.resolve(&Affinity::All), Ok(set(&[0, 1])));
        assert_eq!(host.resolve(&Affinity::OsCpus(vec![2, 3])), Ok(set(&[2, 3])));
        assert_eq!(host.resolve(&Affinity::OsCpus(vec![1, 2])), Ok(set(&[1, 2])));
        let refused = host.resolve(&Affinity::OsCpus(vec![7])).unwrap_err();
        assert_eq!(refused, "it asks for CPUs [7], this process may use 0-3");
    }
}
