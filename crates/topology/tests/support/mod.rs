//! What several test files share: comparing machines, and a generator of irregular ones.
#![allow(dead_code, missing_docs, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use warmcore_topology::{
    Cache, CacheDescription, CacheKind, CpuDescription, CpuSet, Inclusion, Machine, MachineDescription,
    NodeDescription, Processor, Vendor, Ways,
};

/// A temporary directory, in memory where the system has one: trees have thousands of small files.
pub fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// What a format can say of a cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CacheDetail {
    /// Level, kind, size and CPUs.
    Size,
    /// Also lines and ways.
    Geometry,
    /// Also inclusion.
    Everything,
}

/// A machine's structure as comparable text, one line per thing.
pub fn structure(machine: &Machine, detail: CacheDetail) -> Vec<String> {
    let mut lines = Vec::new();
    let list = |cpus: &CpuSet| {
        warmcore_topology::format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu)).collect::<BTreeSet<u32>>())
    };
    for cpu in machine.cpus() {
        lines.push(format!(
            "cpu {} core {} cluster {} llc {} coregroup {} node {} socket {} capacity {}",
            machine.os_index(cpu),
            list(machine.cpus_of_core(machine.core_of(cpu))),
            list(machine.cpus_of_cluster(machine.cluster_of(cpu))),
            list(machine.cpus_of_llc(machine.llc_of(cpu))),
            list(machine.coregroup(cpu)),
            machine.node_os_index(machine.node_of(cpu)),
            machine.socket_os_index(machine.socket_of(cpu)),
            machine.capacity(cpu)
        ));
    }
    for node in machine.nodes() {
        let row: Vec<u32> = machine.nodes().map(|to| machine.node_distance(node, to)).collect();
        lines.push(format!("node {} {:?} {row:?}", machine.node_os_index(node), machine.node_memory_bytes(node)));
    }
    lines.push(format!("make {:?}, reclaim distance {}", machine.processor(), machine.reclaim_distance()));
    lines.push(format!("offline {:?}", machine.offline_cpus()));
    for cache in machine.caches() {
        let mut line = format!("{} {} bytes {}", cache.name(), list(&cache.cpus), cache.size_bytes);
        if detail != CacheDetail::Size {
            line += &format!(" line {} ways {:?}", cache.line_bytes, cache.ways);
        }
        if detail == CacheDetail::Everything {
            line += &format!(" {:?}", cache.inclusion);
        }
        lines.push(line);
    }
    lines
}

/// The first line in which two structures differ; short enough for a message, which thousands of CPUs are not.
pub fn difference(found: &Machine, expected: &Machine, detail: CacheDetail) -> Option<String> {
    let (found, expected) = (structure(found, detail), structure(expected, detail));
    first_difference(&found, &expected)
}

/// See [`difference`].
pub fn first_difference(found: &[String], expected: &[String]) -> Option<String> {
    let missing = "(nothing)".to_owned();
    let pairs = (0..found.len().max(expected.len()))
        .map(|line| (found.get(line).unwrap_or(&missing), expected.get(line).unwrap_or(&missing)));
    pairs.filter(|(found, expected)| found != expected).map(|(found, expected)| format!("{found} != {expected}")).next()
}

/// Choices for one LLC: cores per cluster of each cluster, threads of each core, cache size and ways.
#[derive(Clone, Debug)]
struct LlcPlan {
    clusters: Vec<Vec<u32>>,
    size_kib: u64,
    ways: Option<u32>,
    capacity: u32,
}

fn llc_plan() -> impl Strategy<Value = LlcPlan> {
    let cluster = prop::collection::vec(1_u32..=2, 1..=2);
    let clusters = prop::collection::vec(cluster, 1..=3);
    let capacity = prop_oneof![3 => Just(1024_u32), 1 => 100_u32..1024];
    (clusters, 1_u64..5000, prop::option::of(1_u32..32), capacity)
        .prop_map(|(clusters, size_kib, ways, capacity)| LlcPlan { clusters, size_kib, ways, capacity })
}

/// Sockets of nodes of LLCs.
fn plan() -> impl Strategy<Value = Vec<Vec<Vec<LlcPlan>>>> {
    let node = prop::collection::vec(llc_plan(), 1..=3);
    let socket = prop::collection::vec(node, 1..=2);
    prop::collection::vec(socket, 1..=3)
}

/// Irregular machines: sparse shuffled numbers, unequal LLCs, offline CPUs, nodes without CPUs, capacities.
pub fn irregular_machine() -> impl Strategy<Value = Machine> {
    let numbers = Just((0..200_u32).collect::<Vec<_>>()).prop_shuffle();
    let distances = prop::collection::vec(10_u32..=255, 64);
    let makes = [
        (Vendor::Amd, Some(25), None),
        (Vendor::Amd, Some(16), Some(9)),
        (Vendor::Intel, Some(6), Some(0xad)),
        (Vendor::Arm, None, None),
        (Vendor::Power, None, None),
    ];
    let make = prop::option::of(prop::sample::select(makes.to_vec()));
    (plan(), numbers, 0_usize..4, 0_usize..2, prop::option::of(distances), any::<bool>(), make).prop_map(
        |(plan, numbers, offline, memory_nodes, distances, with_memory, make)| {
            let mut description = describe(&plan, &numbers, with_memory);
            let of = |(vendor, family, model)| Processor::new(vendor, family).unwrap().with_model(model).unwrap();
            description.processor = make.map(of);
            description.offline = numbers.iter().rev().take(offline).copied().collect();
            let highest = description.nodes.iter().map(|node| node.os_index).max().unwrap();
            for extra in 1..=memory_nodes as u32 {
                // Accelerators have memory, and expanders that are not in use have none.
                let memory_bytes = with_memory.then_some(u64::from(numbers[0] % 2) << 32);
                description.nodes.push(NodeDescription { os_index: highest + 7 * extra, memory_bytes });
            }
            let count = description.nodes.len();
            description.distances = distances.map(|values| {
                let value = |a: usize, b: usize| if a == b { 10 } else { values[(a.min(b) * 8 + a.max(b)) % 64] };
                (0..count).map(|from| (0..count).map(|to| value(from, to)).collect()).collect()
            });
            description.build().unwrap()
        },
    )
}

fn describe(plan: &[Vec<Vec<LlcPlan>>], numbers: &[u32], with_memory: bool) -> MachineDescription {
    let mut description = MachineDescription::new("random <&\"machine\">");
    let mut numbers = numbers.iter().copied();
    let (mut core, mut cluster, mut llc, mut node) = (0, 0, 0, 0);
    let mut caches: BTreeMap<(u8, u32), (LlcPlan, BTreeSet<u32>)> = BTreeMap::new();
    for (socket, nodes) in plan.iter().enumerate() {
        for llcs in nodes {
            node += 3;
            description
                .nodes
                .push(NodeDescription { os_index: node, memory_bytes: with_memory.then_some(node as u64 * 4096) });
            for plan in llcs {
                for threads in plan.clusters.iter().flat_map(|cores| cores.iter().enumerate()) {
                    let (position, threads) = threads;
                    cluster += u32::from(position == 0);
                    core += 1;
                    for _ in 0..*threads {
                        let os_index = numbers.next().unwrap();
                        for (level, group) in [(1, core), (2, cluster), (3, llc)] {
                            let cache = caches.entry((level, group)).or_insert_with(|| (plan.clone(), BTreeSet::new()));
                            cache.1.insert(os_index);
                        }
                        let socket = socket as u32 * 2;
                        let capacity = plan.capacity;
                        description.cpus.push(CpuDescription { os_index, core, cluster, llc, node, socket, capacity });
                    }
                }
                llc += 1;
            }
        }
    }
    if description.cpus.iter().all(|cpu| cpu.capacity != 1024) {
        description.cpus.iter_mut().for_each(|cpu| cpu.capacity = 1024);
    }
    description.caches = caches.into_iter().map(|((level, _), (plan, cpus))| cache(level, &plan, cpus)).collect();
    description
}

fn cache(level: u8, plan: &LlcPlan, cpus: BTreeSet<u32>) -> CacheDescription {
    let cache = Cache {
        level,
        kind: if level == 1 { CacheKind::Data } else { CacheKind::Unified },
        size_bytes: if level == 3 { plan.size_kib << 10 } else { 32 << (10 + 5 * (level - 1)) },
        line_bytes: 64,
        ways: plan.ways.filter(|_| level == 3).map_or(Ways::Unknown, Ways::Count),
        inclusion: if level == 2 { Inclusion::Inclusive } else { Inclusion::Unknown },
        latency_ps: None,
        cpus: CpuSet::new(),
    };
    CacheDescription { cache, cpus }
}
