//! Compact CPU numbers (cids): CPUs of a core, an LLC, a node are next to each other. Schedulers whose table is `struct sched_ext_ops_cid` speak in them.
//!
//! Source: `docs/spec/sched-ext.md` section 2. The numbers are made when the machine is there, as a kernel makes them of its online CPUs.

use warmcore_bpf::HostFunction;
use warmcore_topology::{CpuId, CpuSet, Machine};

use crate::bytecode::helpers::{EINVAL, error, functions};
use crate::bytecode::host::Host;
use crate::queues::DsqId;

/// Highest capacity and speed of a CPU (`SCX_CPUPERF_ONE`).
const CPUPERF_ONE: u64 = 1024;

/// First cid and number of the core, the LLC and the node that a cid belongs to (`struct scx_cid_topo`); -1 where that is not known.
type Position = [i32; 6];

/// Compact numbers of a machine's CPUs.
#[derive(Clone, Debug)]
pub(super) struct Cids {
    of_cpu: Vec<u32>,
    cpu_of: Vec<u32>,
    places: Vec<Position>,
    /// The scheduler speaks in them.
    pub are_spoken: bool,
}

impl Cids {
    pub fn new(machine: &Machine) -> Self {
        let first = |set: &CpuSet| set.first().map_or(0, |cpu| cpu.0);
        let units = |cpu: CpuId| {
            let node = first(machine.cpus_of_node(machine.node_of(cpu)));
            let llc = first(machine.cpus_of_llc(machine.llc_of(cpu)));
            [first(machine.cpus_of_core(machine.core_of(cpu))), llc, node]
        };
        let mut cpus: Vec<CpuId> = machine.cpus().collect();
        cpus.sort_by_key(|&cpu| {
            let [core, llc, node] = units(cpu);
            (node, llc, core, cpu)
        });
        let mut of_cpu = vec![0; cpus.len()];
        let mut places: Vec<Position> = Vec::with_capacity(cpus.len());
        for (cid, &cpu) in cpus.iter().enumerate() {
            of_cpu[cpu.index()] = cid as u32;
            let before = cid.checked_sub(1).map(|before| (units(cpus[before]), places[before]));
            let unit_of = |level: usize| match before {
                None => [0, 0],
                Some((units_before, place)) if units_before[level..] == units(cpu)[level..] => {
                    [place[2 * level], place[2 * level + 1]]
                }
                Some((_, place)) => [cid as i32, place[2 * level + 1] + 1],
            };
            let [core, llc, node] = [0, 1, 2].map(unit_of);
            places.push([core[0], core[1], llc[0], llc[1], node[0], node[1]]);
        }
        Self { of_cpu, cpu_of: cpus.iter().map(|cpu| cpu.0).collect(), places, are_spoken: false }
    }

    pub fn of(&self, cpu: CpuId) -> u64 {
        self.of_cpu.get(cpu.index()).map_or(u64::MAX, |&cid| u64::from(cid))
    }

    pub fn cpu_of(&self, cid: u64) -> Option<CpuId> {
        self.cpu_of.get(cid as u32 as usize).map(|&cpu| CpuId(cpu))
    }

    /// A CPU as the scheduler says it.
    pub fn said(&self, cpu: CpuId) -> u64 {
        if self.are_spoken { self.of(cpu) } else { u64::from(cpu.0) }
    }

    /// The CPU that the scheduler said; one that is none stays one that is none.
    pub fn meant(&self, said: u64) -> CpuId {
        match self.cpu_of(said).filter(|_| self.are_spoken) {
            Some(cpu) => cpu,
            None => CpuId(said as u32),
        }
    }

    /// The queue that the scheduler said.
    pub fn queue(&self, dsq: u64) -> DsqId {
        match DsqId(dsq).named_cpu().filter(|_| self.are_spoken) {
            Some(cpu) => DsqId::local_on(self.meant(u64::from(cpu.0))),
            None => DsqId(dsq),
        }
    }
}

/// A kernel function about them, by name.
pub(super) fn kfunc(name: &str) -> Option<(HostFunction, u8)> {
    let find: fn(&str) -> Option<(HostFunction, u8)> = functions! {
        "scx_bpf_cid_to_cpu" => |host, cid| host.cpu_of_cid(cid).map_or(error(EINVAL), |cpu| u64::from(cpu.0));
        "scx_bpf_cpu_to_cid" => |host, cpu| {
            let is_cpu = (cpu as u32) < host.kept.cpus;
            if is_cpu { host.kept.cids.of(CpuId(cpu as u32)) } else { host.no_cpu("CPU", cpu); error(EINVAL) }
        };
        "scx_bpf_this_cid" => |host| host.kept.cids.of(CpuId(host.frame.cpu as u32));
        "scx_bpf_task_cid" => |host, task| {
            let cpu = host.task_of(task).and_then(|task| Some(host.kernel()?.task_cpu(task)));
            host.kept.cids.of(cpu.unwrap_or(CpuId(host.frame.cpu as u32)))
        };
        "scx_bpf_cid_curr" => |host, cid| {
            let curr = host.cpu_of_cid(cid).and_then(|cpu| Some(host.kernel()?.runs_on(cpu)));
            curr.map_or(0, |curr| host.task_address(curr))
        };
        "scx_bpf_kick_cid" => |host, cid, flags| host.cpu_of_cid(cid).map_or(0, |cpu| host.kick(u64::from(cpu.0), flags));
        "scx_bpf_nr_online_cids" => |host| u64::from(host.kept.cpus);
        "scx_bpf_cidperf_cap" => |host| CPUPERF_ONE;
        "scx_bpf_cidperf_cur" => |host, cid| {
            let cpu = host.cpu_of_cid(cid);
            cpu.and_then(|cpu| Some(host.kernel()?.cpuperf_cur(cpu))).map_or(CPUPERF_ONE, u64::from)
        };
        "scx_bpf_cidperf_set" => |host, cid, target| {
            let cpu = host.cpu_of_cid(cid);
            if let (Some(cpu), Some(kernel)) = (cpu, host.kernel()) { kernel.cpuperf_set(cpu, target as u32); }
            0
        };
        "scx_bpf_cid_topo" => |host, cid, to, bytes| host.place_of_cid(cid, to, bytes);
        "scx_bpf_cid_override" => |host, numbers, bytes| host.override_cids(numbers, bytes);
        // There are no schedulers below this one.
        "scx_bpf_sub_dispatch" => |host| 0;
    };
    find(name)
}

impl Host {
    /// The scheduler named something that is not there, which ends it.
    fn no_cpu(&self, what: &str, number: u64) {
        if let Some(kernel) = self.kernel() {
            kernel.fault(format!("invalid {what} {}", number as i32));
        }
    }

    fn cpu_of_cid(&self, cid: u64) -> Option<CpuId> {
        let cpu = self.kept.cids.cpu_of(cid);
        if cpu.is_none() {
            self.no_cpu("cid", cid);
        }
        cpu
    }

    fn place_of_cid(&mut self, cid: u64, to: u64, bytes: u64) -> u64 {
        let is_cid = self.cpu_of_cid(cid).is_some();
        let place = if is_cid { self.kept.cids.places[cid as u32 as usize] } else { [-1; 6] };
        for (at, number) in place.into_iter().enumerate().take(bytes as usize / 4) {
            self.store_u32(to + 4 * at as u64, number as u32);
        }
        0
    }

    /// A cid for each CPU, each once. The scheduler knows what they mean: nothing is told of them from then on.
    fn override_cids(&mut self, numbers: u64, bytes: u64) -> u64 {
        let count = self.kept.cpus;
        let given: Vec<u32> = (0..count).map(|cpu| self.maps.memory.load_u32(numbers + 4 * u64::from(cpu))).collect();
        let mut cpu_of = vec![None; count as usize];
        for (cpu, &cid) in given.iter().enumerate() {
            if let Some(place @ None) = cpu_of.get_mut(cid as usize) {
                *place = Some(cpu as u32);
            }
        }
        match cpu_of.into_iter().collect::<Option<Vec<u32>>>() {
            Some(cpu_of) if bytes == 4 * u64::from(count) => {
                let cids = &mut self.kept.cids;
                (cids.of_cpu, cids.cpu_of) = (given, cpu_of);
                cids.places.fill([-1; 6]);
            }
            _ => self.no_cpu("numbering of cids, of bytes", bytes),
        }
        0
    }

    /// Writes a set of CPUs as `struct scx_cmask`: first cid, cids, words, and the bits.
    pub(super) fn write_cmask(&mut self, at: u64, set: &CpuSet) {
        let words = u64::from(self.kept.cpus / 64 + 1);
        for (place, value) in [(0, 0), (4, self.kept.cpus), (8, words as u32), (12, 0)] {
            self.store_u32(at + place, value);
        }
        let mut bits = vec![0u64; words as usize];
        for cpu in set.iter() {
            let cid = self.kept.cids.of(cpu);
            if let Some(word) = bits.get_mut(cid as usize / 64) {
                *word |= 1 << (cid % 64);
            }
        }
        for (number, word) in bits.into_iter().enumerate() {
            self.store_u64(at + 16 + 8 * number as u64, word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cids_of_a_core_an_llc_and_a_node_are_next_to_each_other() {
        // Siblings are far apart in numbers of CPUs: those of the second threads come behind all first ones.
        let machine = warmcore_topology::resolve("2s1n2l2c2t").unwrap();
        let cids = Cids::new(&machine);
        for cid in 0..machine.cpu_count() as u64 {
            let cpu = cids.cpu_of(cid).unwrap();
            assert_eq!(cids.of(cpu), cid);
            let [core, core_number, llc, llc_number, node, node_number] = cids.places[cid as usize];
            let cid = cid as i32;
            assert_eq!((core, llc, node), (cid / 2 * 2, cid / 4 * 4, cid / 8 * 8), "{cpu}");
            assert_eq!((core_number, llc_number, node_number), (cid / 2, cid / 4, cid / 8), "{cpu}");
            let sibling = cids.cpu_of(core as u64 + u64::from(cid % 2 == 0)).unwrap();
            assert_eq!(machine.core_of(sibling), machine.core_of(cpu));
        }
        assert_eq!(cids.cpu_of(16), None);
    }
}
