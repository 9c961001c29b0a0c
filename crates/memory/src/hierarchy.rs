//! What a memory model needs of a machine: shapes of caches, latencies, bandwidths; with impossible ones refused.
//!
//! Three levels are seen: L1 and a private (or cluster's) L2 in front of the last-level cache of the scheduling domains.
//! A machine whose LLC is its L2 has no middle level. What the machine's description leaves out is assumed, and
//! [`Hierarchy::assumed`] says so.

use std::collections::BTreeMap;

use thiserror::Error;
use warmcore_topology::{Bandwidth, Cache, CpuId, Inclusion, LlcId, Machine, NodeId, PerRelation, Relation, Ways};

use crate::dependent_load::{ASSUMED_L1, ASSUMED_L2, ASSUMED_LLC, ASSUMED_MEMORY_NS};

/// The dimensions of a cache.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CacheShape {
    /// Capacity in lines: sets times ways.
    pub lines: u64,
    /// Lines per set.
    pub ways: u32,
    /// Number of sets.
    pub sets: u64,
    /// Load-to-use latency.
    pub latency_ns: f64,
}

/// How lines get into the last-level cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// By eviction from the private caches: capacities add up (AMD Zen, Intel since Skylake-SP).
    Victim,
    /// Together with the private caches, which keep their lines when it evicts.
    FillBoth,
    /// Together with the private caches, which lose what it evicts.
    Inclusive,
}

/// A machine whose memory cannot be modelled.
#[derive(Clone, PartialEq, Debug, Error)]
#[error("{cache} of machine `{machine}`: {reason}")]
pub struct HierarchyError {
    /// The machine.
    pub machine: String,
    /// Which cache or figure.
    pub cache: String,
    /// What is impossible about it, and what to try.
    pub reason: String,
}

/// The memory side of a machine. Indices are the machine's dense ids.
#[derive(Clone, PartialEq, Debug)]
pub struct Hierarchy {
    /// Line size of all levels in bytes.
    pub line_bytes: u32,
    /// Clock of a CPU of capacity 1024 in cycles per nanosecond.
    pub frequency_ghz: f64,
    /// How much longer computing takes beside one busy hardware thread of the same core, as a fraction: kappa.
    pub smt_slowdown: f64,
    /// L1 data cache by core.
    pub l1: Vec<CacheShape>,
    /// L1 for instructions by core; empty where a core has none, since then none is modelled. Their latency is not used.
    pub l1i: Vec<CacheShape>,
    /// Private second-level caches.
    pub l2: Vec<CacheShape>,
    /// Index into `l2` by core; `None` where the LLC follows the L1 directly.
    pub l2_of_core: Vec<Option<u32>>,
    /// Last-level cache by [`LlcId`].
    pub llc: Vec<CacheShape>,
    /// How each LLC is filled.
    pub fill: Vec<Fill>,
    /// One-way hand-off of a modified line.
    pub transfer_ns: PerRelation<f64>,
    /// Idle latency of memory by the core's node, then the home node.
    pub memory_ns: Vec<Vec<f64>>,
    /// Shares of interleaved pages by node: equal ones of the nodes that have memory (`mpol_set_nodemask`).
    pub interleaved: Vec<f64>,
    /// Highest read bandwidth of each node in bytes per nanosecond; infinite if never the limit.
    pub node_bandwidth: Vec<f64>,
    /// The same with one line written back per line read.
    pub node_mixed_bandwidth: Vec<f64>,
    /// Bandwidth between two sockets per direction in bytes per nanosecond.
    pub socket_link: f64,
    /// The same between two nodes of one socket; infinite where none is stated.
    pub node_link: f64,
    /// Read bandwidth of the port of one LLC to memory in bytes per nanosecond.
    pub llc_port: f64,
    /// The same of one cluster of cores; infinite where none is stated.
    pub cluster_port: f64,
    /// The same of one core.
    pub core_port: f64,
    /// Cluster by core.
    pub cluster_of_core: Vec<u32>,
    /// Loaded latency curves by read share, most reads first: (read share, points of utilisation and latency factor).
    pub loaded_latency: Vec<(f64, Vec<(f64, f64)>)>,
    /// Figures that the machine's description does not state, with the value used.
    pub assumed: Vec<String>,
}

/// Latency factor by utilisation where a machine states no curve: Ice Lake's, in the middle of those measured
/// (`docs/spec/memory-model.md` section 4.7).
const TYPICAL_CURVE: [(f64, f64); 9] = [
    (0.0, 1.0),
    (0.25, 1.09),
    (0.5, 1.22),
    (0.6, 1.35),
    (0.7, 1.47),
    (0.8, 1.60),
    (0.9, 1.88),
    (0.95, 2.20),
    (1.0, 2.87),
];

impl Hierarchy {
    /// Reads the memory side of a machine.
    ///
    /// # Errors
    /// Caches that cannot exist: zero ways, a line size that is no power of two, or a size that is not nearly a whole number of sets.
    ///
    /// Sizes that were divided (an L3 over three nodes) are not whole: up to a thousandth of a size is cut off to make whole sets, and
    /// [`Hierarchy::assumed`] says so. More is taken to be a slip. Lines of one size are modelled: the shortest of the machine, that of
    /// the caches next to the cores; a cache with longer ones counts as one of its size with short ones.
    pub fn new(machine: &Machine) -> Result<Self, HierarchyError> {
        let mut reader = HierarchyReader { machine, line_bytes: line_bytes(machine)?, assumed: Vec::new() };
        let l1 = reader.l1()?;
        let l1i = reader.l1i()?;
        let (l2, l2_of_core) = reader.l2()?;
        let llc = reader.llc()?;
        let memory = &machine.performance().memory;
        let frequency = machine.performance().frequency;
        let mhz = frequency.nominal_mhz.or(frequency.base_mhz).or(frequency.max_mhz);
        let frequency_ghz = f64::from(reader.or_assume("nominal frequency in MHz", mhz, 2_500)) / 1e3;
        let memory_ns = reader.memory_ns();
        let fill = |llc: LlcId| match machine.llc_cache(llc).map_or(Inclusion::Unknown, |cache| cache.inclusion) {
            Inclusion::Inclusive => Fill::Inclusive,
            // Since Skylake-SP the L3 is filled by evictions although it is not strictly exclusive.
            Inclusion::Exclusive | Inclusion::NonInclusive | Inclusion::Unknown => Fill::Victim,
        };
        // A node without CPUs is farther than one with, by its distance, and has as much less bandwidth than a socket.
        let nodes_of = |node: NodeId| -> f64 {
            let socket = machine.cpus_of_node(node).first().map(|cpu| machine.socket_of(cpu));
            socket.map_or_else(|| distance_ratio(machine, node), |socket| machine.nodes_of_socket(socket).len() as f64)
        };
        let per_node = |figure: f64| machine.nodes().map(|node| figure / nodes_of(node)).collect::<Vec<f64>>();
        let read = memory.socket_read.map_or_else(
            || f64::from(reader.or_assume("memory bandwidth of a socket in GB/s", None, 200_u32)),
            bytes_per_ns,
        );
        let mixed = memory.socket_mixed.map_or(0.9 * read, bytes_per_ns);
        let loaded_latency = loaded_latency(machine);
        Ok(Self {
            line_bytes: reader.line_bytes,
            frequency_ghz,
            smt_slowdown: machine.costs().smt_slowdown(),
            l1,
            l1i,
            l2,
            l2_of_core,
            llc,
            fill: machine.llcs().map(fill).collect(),
            transfer_ns: PerRelation::from_fn(|relation| machine.costs().line_transfer_ns[relation] as f64),
            memory_ns,
            interleaved: interleaved(machine),
            node_bandwidth: per_node(read),
            node_mixed_bandwidth: per_node(mixed),
            socket_link: memory.socket_link.map_or(0.4 * read, bytes_per_ns),
            node_link: memory.node_link.map_or(f64::INFINITY, bytes_per_ns),
            llc_port: memory.llc_port.map_or(f64::INFINITY, bytes_per_ns),
            cluster_port: memory.cluster_port.map_or(f64::INFINITY, bytes_per_ns),
            core_port: memory.core_port.map_or(f64::INFINITY, bytes_per_ns),
            cluster_of_core: first_cpus_of_cores(machine).into_iter().map(|cpu| machine.cluster_of(cpu).0).collect(),
            loaded_latency,
            assumed: reader.assumed,
        })
    }
}

/// Equal shares of the nodes that have memory.
fn interleaved(machine: &Machine) -> Vec<f64> {
    let has: Vec<bool> = machine.nodes().map(|node| machine.node_has_memory(node)).collect();
    let share = 1.0 / has.iter().filter(|has| **has).count().max(1) as f64;
    has.into_iter().map(|has| if has { share } else { 0.0 }).collect()
}

/// How far a node is from the nearest one with CPUs, by the distances of the machine: 1 is local.
fn distance_ratio(machine: &Machine, node: NodeId) -> f64 {
    let with_cpus = machine.nodes().filter(|from| !machine.cpus_of_node(*from).is_empty());
    let nearest = with_cpus.map(|from| machine.node_distance(from, node)).min();
    nearest.map_or(1.0, |distance| f64::from(distance) / f64::from(LOCAL_DISTANCE))
}

/// The distance of a node from itself, in SLIT units.
const LOCAL_DISTANCE: u32 = 10;

/// Shortest line of the machine's data caches.
fn line_bytes(machine: &Machine) -> Result<u32, HierarchyError> {
    let mut shortest: Option<u32> = None;
    for cache in machine.caches().iter().filter(|cache| cache.kind != warmcore_topology::CacheKind::Instruction) {
        let line = cache.line_bytes;
        if line == 0 {
            continue;
        }
        if !line.is_power_of_two() || !(8..=4096).contains(&line) {
            let reason = format!("a line of {line} bytes is impossible; write a power of two from 8 to 4096");
            return Err(HierarchyError { machine: machine.name().to_owned(), cache: cache.name(), reason });
        }
        shortest = Some(shortest.map_or(line, |known| known.min(line)));
    }
    Ok(shortest.unwrap_or(64))
}

fn first_cpus_of_cores(machine: &Machine) -> Vec<CpuId> {
    let mut first: Vec<Option<CpuId>> = vec![None; machine.core_count()];
    for cpu in machine.cpus() {
        first[machine.core_of(cpu).index()].get_or_insert(cpu);
    }
    first.into_iter().flatten().collect()
}

fn bytes_per_ns(bandwidth: Bandwidth) -> f64 {
    match bandwidth {
        Bandwidth::Unlimited => f64::INFINITY,
        Bandwidth::MbPerS(mb_per_s) => mb_per_s as f64 / 1e3,
    }
}

fn loaded_latency(machine: &Machine) -> Vec<(f64, Vec<(f64, f64)>)> {
    let curves = &machine.performance().memory.loaded_latency;
    if curves.is_empty() {
        return vec![(1.0, TYPICAL_CURVE.to_vec())];
    }
    curves
        .iter()
        .map(|curve| {
            let measured = curve.points.iter().map(|&(load, factor)| (f64::from(load) / 1e3, f64::from(factor) / 1e3));
            let mut points: Vec<(f64, f64)> = measured.collect();
            if points.first().is_none_or(|first| first.0 > 0.0) {
                points.insert(0, (0.0, 1.0));
            }
            (f64::from(curve.read_percent) / 100.0, points)
        })
        .collect()
}

/// At most one part in so many of a stated size is cut off to make whole sets.
const MOST_CUT_OFF: u64 = 1_000;

struct HierarchyReader<'a> {
    machine: &'a Machine,
    line_bytes: u32,
    assumed: Vec<String>,
}

impl HierarchyReader<'_> {
    fn or_assume(&mut self, what: &str, value: Option<u32>, assumed: u32) -> u32 {
        value.unwrap_or_else(|| {
            self.assume(format!("{what}: {assumed}"));
            assumed
        })
    }

    fn assume(&mut self, text: String) {
        if !self.assumed.contains(&text) {
            self.assumed.push(text);
        }
    }

    /// The shape of a cache, or of an assumed one.
    fn shape(
        &mut self,
        cache: Option<&Cache>,
        name: &str,
        (kib, ps): (u32, u32),
    ) -> Result<CacheShape, HierarchyError> {
        let bytes = cache.map(|cache| cache.size_bytes).filter(|bytes| *bytes > 0);
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => u64::from(self.or_assume(&format!("size of {name} in KiB"), None, kib)) << 10,
        };
        if let Some(stated) = cache.map(|cache| cache.line_bytes).filter(|stated| *stated > self.line_bytes) {
            self.assume(format!("lines of {name}: {} bytes, as next to the cores (stated {stated})", self.line_bytes));
        }
        let latency = cache.and_then(|cache| cache.latency_ps).map(|ps| ps as u32);
        let latency_ns = f64::from(self.or_assume(&format!("latency of {name} in ps"), latency, ps)) / 1e3;
        let line = u64::from(self.line_bytes);
        let ways = match cache.map_or(Ways::Unknown, |cache| cache.ways) {
            Ways::Count(ways) => u64::from(ways),
            Ways::Full => bytes / line,
            Ways::Unknown => {
                let lines = bytes / line;
                let divides = |ways: &u64| lines.is_multiple_of(*ways);
                let assumed = (1..=16).rev().find(divides).unwrap_or(1);
                u64::from(self.or_assume(&format!("ways of {name}"), None, assumed as u32))
            }
        };
        let fail = |reason: String| {
            Err(HierarchyError { machine: self.machine.name().to_owned(), cache: name.to_owned(), reason })
        };
        if ways == 0 {
            return fail("it has no ways; state at least 1".to_owned());
        }
        let set = ways * line;
        let whole = (bytes / set).max(1) * set;
        if whole > bytes || (bytes - whole) * MOST_CUT_OFF > bytes {
            return fail(format!(
                "{bytes} bytes are not a whole number of sets of {ways} lines of {line} bytes; {whole} bytes would be"
            ));
        }
        if whole < bytes {
            self.assume(format!("size of {name}: {whole} bytes, whole sets of {ways} lines (stated {bytes})"));
        }
        let sets = whole / set;
        Ok(CacheShape { lines: sets * ways, ways: ways as u32, sets, latency_ns })
    }

    fn l1(&mut self) -> Result<Vec<CacheShape>, HierarchyError> {
        let cpus = first_cpus_of_cores(self.machine);
        cpus.into_iter().map(|cpu| self.shape(self.machine.data_cache(cpu, 1), "L1d", ASSUMED_L1)).collect()
    }

    fn l1i(&mut self) -> Result<Vec<CacheShape>, HierarchyError> {
        let cpus = first_cpus_of_cores(self.machine);
        let cache = |cpu| self.machine.instruction_cache(cpu).filter(|cache| cache.size_bytes > 0).cloned();
        let Some(caches) = cpus.into_iter().map(cache).collect::<Option<Vec<Cache>>>() else { return Ok(Vec::new()) };
        // A hit takes no time of its own, so no latency need be stated.
        let shape = |cache| self.shape(Some(&Cache { latency_ps: Some(0), ..cache }), "L1i", ASSUMED_L1);
        caches.into_iter().map(shape).collect()
    }

    fn l2(&mut self) -> Result<(Vec<CacheShape>, Vec<Option<u32>>), HierarchyError> {
        let mut shapes = Vec::new();
        // Keyed by the lowest CPU: caches of one level do not overlap.
        let mut known: BTreeMap<CpuId, u32> = BTreeMap::new();
        let mut of_core = Vec::new();
        for cpu in first_cpus_of_cores(self.machine) {
            let cache = self.machine.data_cache(cpu, 2);
            let llc = self.machine.llc_cache(self.machine.llc_of(cpu));
            let key = match cache {
                Some(cache) if llc.is_some_and(|llc| llc.level == 2) || cache.cpus.is_empty() => {
                    of_core.push(None);
                    continue;
                }
                Some(cache) => cache.cpus.first().unwrap_or(cpu),
                None => cpu,
            };
            let index = match known.get(&key) {
                Some(index) => *index,
                None => {
                    let index = shapes.len() as u32;
                    shapes.push(self.shape(cache, "L2", ASSUMED_L2)?);
                    known.insert(key, index);
                    index
                }
            };
            of_core.push(Some(index));
        }
        Ok((shapes, of_core))
    }

    fn llc(&mut self) -> Result<Vec<CacheShape>, HierarchyError> {
        let machine = self.machine;
        machine.llcs().map(|llc| self.shape(machine.llc_cache(llc), "LLC", ASSUMED_LLC)).collect()
    }

    fn memory_ns(&mut self) -> Vec<Vec<f64>> {
        let figures = &self.machine.performance().memory;
        let ns = |value: Option<u64>| value.map(|ns| ns as u32);
        let local = self.or_assume("local memory latency in ns", ns(figures.local_ns), ASSUMED_MEMORY_NS);
        let same_socket = ns(figures.same_socket_ns).unwrap_or(local + local / 8);
        let other_socket = if self.machine.socket_count() > 1 {
            self.or_assume("latency of another socket's memory in ns", ns(figures.other_socket_ns), local + 80)
        } else {
            local
        };
        let far = ns(figures.far_socket_ns).unwrap_or(other_socket + other_socket / 3);
        let machine = self.machine;
        for node in machine.nodes().filter(|node| machine.cpus_of_node(*node).is_empty()) {
            if machine.node_has_memory(node) {
                let ratio = distance_ratio(machine, node);
                self.assumed.push(format!("memory of node{}, which has no CPUs: {ratio} times the local latency by its distance, and as much less bandwidth than a socket's", machine.node_os_index(node)));
            }
        }
        let of = |from: NodeId, to: NodeId| {
            if from == to {
                return local;
            }
            let cpus = (machine.cpus_of_node(from).first(), machine.cpus_of_node(to).first());
            let (Some(from), Some(to)) = cpus else {
                return local * machine.node_distance(from, to) / LOCAL_DISTANCE;
            };
            match machine.relation(from, to) {
                Relation::OtherSocket => other_socket,
                Relation::FarSocket => far,
                _ => same_socket,
            }
        };
        machine.nodes().map(|from| machine.nodes().map(|to| f64::from(of(from, to))).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::{presets, resolve};

    #[test]
    fn every_preset_has_a_hierarchy() {
        for preset in presets() {
            let machine = resolve(&preset.name).unwrap();
            let hierarchy = Hierarchy::new(&machine).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(hierarchy.llc.len(), machine.llc_count(), "{}", preset.name);
            assert!(hierarchy.memory_ns.iter().flatten().all(|ns| *ns > 10.0), "{}", preset.name);
        }
    }

    fn with_nodes(llcs: &str, nodes: &str) -> Machine {
        let text = format!(
            "name = \"m\"\nbase = \"xeon60\"\n[topology]\nllcs = [{llcs}]\nnodes = [{nodes}]\ndistances = [[10, 14], [14, 10]]\n"
        );
        warmcore_topology::from_toml(&text).unwrap()
    }

    /// By its distance of 14 a line comes in 1.4 times the time, and 1/1.4 of them in the same time.
    #[test]
    fn a_node_without_cpus_is_as_far_as_its_distance_says() {
        let local = Hierarchy::new(&resolve("xeon60").unwrap()).unwrap();
        let with = "{ id = 0, cpus = \"0-59\" }, { id = 4, memory = \"256GiB\" }";
        let hierarchy = Hierarchy::new(&with_nodes("\"0-59\"", with)).unwrap();
        let ratio = |a: f64, b: f64| (a / b * 100.0).round();
        assert_eq!(ratio(hierarchy.memory_ns[0][1], local.memory_ns[0][0]), 140.0);
        assert_eq!(ratio(hierarchy.node_bandwidth[0], hierarchy.node_bandwidth[1]), 140.0);
        assert!(
            hierarchy.assumed.iter().any(|said| said.contains("node4, which has no CPUs")),
            "{:?}",
            hierarchy.assumed
        );
        assert_eq!(hierarchy.interleaved, [0.5, 0.5]);
    }

    #[test]
    fn a_node_without_memory_has_no_interleaved_pages() {
        let nodes = "{ id = 0, cpus = \"0-29\", memory = \"8GiB\" }, { id = 1, cpus = \"30-59\", memory = \"0B\" }";
        let machine = with_nodes("\"0-29\", \"30-59\"", nodes);
        assert_eq!(Hierarchy::new(&machine).unwrap().interleaved, [1.0, 0.0]);
        assert_eq!(machine.allocation_node(NodeId(1)), NodeId(0));
        let none = with_nodes("\"0-29\", \"30-59\"", &nodes.replace("8GiB", "0B"));
        assert_eq!(Hierarchy::new(&none).unwrap().interleaved, [0.5, 0.5], "it says nothing of where memory is");
        assert_eq!(none.allocation_node(NodeId(1)), NodeId(1));
    }

    fn with_llc(cache: &str) -> Result<Hierarchy, HierarchyError> {
        let text = format!(
            "name = \"m\"\n[topology]\norigin = \"given\"\nshape = \"1s1n1l2c1t\"\n\
             [[cache]]\nlevel = 3\norigin = \"given\"\n{cache}\n"
        );
        Hierarchy::new(&warmcore_topology::from_toml(&text).unwrap())
    }

    #[test]
    fn a_size_that_is_not_nearly_a_whole_number_of_sets_is_refused_with_one_that_is() {
        let error = with_llc("size = \"32000B\"\nways = 15").unwrap_err().to_string();
        let expected = "32000 bytes are not a whole number of sets of 15 lines of 64 bytes; 31680 bytes would be";
        assert!(error.contains(expected), "{error}");
        assert!(with_llc("size = \"1KiB\"\nways = 32").unwrap_err().to_string().contains("2048 bytes would be"));
        // 61,440 sets: whole, though no power of two, as in sliced caches.
        assert_eq!(with_llc("size = \"56.25MiB\"\nways = 15").unwrap().llc[0].sets, 61_440);
    }

    #[test]
    fn a_size_that_was_divided_is_cut_to_whole_sets() {
        // A third of 32 MiB, and 512 MiB over three.
        for (stated, ways, whole) in
            [(11_184_768, 16, 11_184_128), (178_956_928, 16, 178_956_288), (58_720_256, 15, 58_719_360)]
        {
            let hierarchy = with_llc(&format!("size = \"{stated}B\"\nways = {ways}")).unwrap();
            assert_eq!(hierarchy.llc[0].lines * 64, whole);
            let said = format!("size of LLC: {whole} bytes, whole sets of {ways} lines (stated {stated})");
            assert!(hierarchy.assumed.contains(&said), "{:?}", hierarchy.assumed);
        }
        assert_eq!(with_llc("size = \"11184768B\"").unwrap().llc[0].lines, 174_762);
    }

    #[test]
    fn an_l3_with_longer_lines_counts_with_those_of_the_caches_next_to_the_cores() {
        let text = "name = \"m\"\n[topology]\norigin = \"given\"\nshape = \"1s1n1l2c1t\"\n\
                    [[cache]]\nlevel = 1\norigin = \"given\"\nsize = \"64KiB\"\nways = 4\nline = 64\n\
                    [[cache]]\nlevel = 3\norigin = \"given\"\nsize = \"32MiB\"\nways = 16\nline = 128\n";
        let hierarchy = Hierarchy::new(&warmcore_topology::from_toml(text).unwrap()).unwrap();
        assert_eq!((hierarchy.line_bytes, hierarchy.llc[0].lines, hierarchy.llc[0].ways), (64, 524_288, 16));
        let said = "lines of LLC: 64 bytes, as next to the cores (stated 128)".to_owned();
        assert!(hierarchy.assumed.contains(&said), "{:?}", hierarchy.assumed);
    }

    #[test]
    fn ways_that_are_not_stated_are_assumed_so_that_sets_are_whole() {
        let hierarchy = with_llc("size = \"33MiB\"").unwrap();
        assert_eq!((hierarchy.llc[0].ways, hierarchy.llc[0].lines), (16, 540_672));
        let hierarchy = with_llc("size = \"1088B\"").unwrap();
        assert_eq!((hierarchy.llc[0].ways, hierarchy.llc[0].sets), (1, 17));
        assert!(hierarchy.assumed.contains(&"ways of LLC: 1".to_owned()), "{:?}", hierarchy.assumed);
    }

    #[test]
    fn figures_of_a_preset_arrive_unchanged() {
        let hierarchy = Hierarchy::new(&resolve("spr32").unwrap()).unwrap();
        assert_eq!((hierarchy.l1[0].lines, hierarchy.l1[0].ways), (768, 12));
        assert_eq!((hierarchy.l2[0].lines, hierarchy.l2.len()), (32_768, 64));
        assert_eq!((hierarchy.llc[1].lines, hierarchy.llc[1].sets), (983_040, 65_536));
        assert_eq!(hierarchy.memory_ns, [[105.0, 175.0], [175.0, 105.0]]);
        assert_eq!(hierarchy.fill, [Fill::Victim; 2]);
        assert_eq!(hierarchy.node_bandwidth, [255.0, 255.0]);
        assert!(hierarchy.assumed.is_empty(), "{:?}", hierarchy.assumed);
    }
}
