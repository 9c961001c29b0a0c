//! Items 43, 44 and 50: cache-aware and topology-aware scheduling where NUMA balancing has a say.

use warmcore_schedulers::{SchedulerSpec, decisions};
use warmcore_trace::{DecisionKind, EventKind};

use crate::support::*;

/// Two nodes with an LLC of eight CPUs each.
const TWO_NODES: &str = "2s1n1l8c1t";

/// A machine of twelve nodes whose LLCs, of 16 CPUs, have 16 MiB.
const LLCS_OF_16_MB: &str = "hygon384";

const MIB: u64 = 1 << 20;

/// Times of the decisions whose name begins so.
fn decided(run: &Run, name: &str) -> Vec<u64> {
    let kinds = decisions(&SchedulerSpec::parse("cache-aware").unwrap());
    let names: Vec<String> = kinds.iter().map(DecisionKind::name).collect();
    assert!(names.iter().any(|known| known.starts_with(name)), "there is no decision `{name}`");
    let of_name = |event: &warmcore_trace::Event| match event.kind {
        EventKind::Decision { decision, .. } if names[decision as usize].starts_with(name) => Some(event.time_ns),
        _ => None,
    };
    run.events.iter().filter_map(of_name).collect()
}

/// One process whose threads have memory of their own, two on each node, where they are bound until NUMA balancing has seen it.
#[test]
fn item_43_threads_whose_memory_is_on_another_node_are_not_pulled() {
    const RELEASE_NS: u64 = 5 * S;
    let mut scene = Scene::lasting(8 * S);
    for n in 0..4u32 {
        let data = scene.workload.add_data_group(format!("data {n}"), MIB);
        let task = scene.task(&format!("thread {n}"), spin());
        (task.affinity, task.release_ns) = (on_cpu(n / 2 * 8 + n % 2), Some(RELEASE_NS));
        task.data_groups = vec![data];
    }
    for seed in 1..=5 {
        let pulls = |run: &Run| decided(run, "task pulled").into_iter().filter(|&time_ns| time_ns > RELEASE_NS).count();
        let run = scene.run_with_seed(TWO_NODES, "cache-aware", seed);
        assert_eq!(decided(&run, "preferred node chosen").len(), 4, "seed {seed}");
        assert_eq!((run.tasks_per_llc(8 * S), pulls(&run)), (vec![2, 2], 0), "seed {seed}");
        let run = scene.run_with_seed(TWO_NODES, "cache-aware:numa_balancing=0", seed);
        assert_eq!(run.tasks_per_llc(8 * S).into_iter().max(), Some(4), "seed {seed}");
        assert_eq!(pulls(&run), 2, "seed {seed}");
    }
}

/// 64 MiB on LLCs of 16 MiB: the footprint is not known before the first placements after a second's run time.
#[test]
fn item_44_a_process_bigger_than_its_llc_is_let_go_once_its_faults_are_counted() {
    let mut scene = Scene::lasting(10 * S);
    let data = scene.workload.add_data_group("data", 64 * MIB);
    let task = scene.task("thread", spin());
    (task.instances, task.data_groups) = (4, vec![data]);
    for seed in 1..=3 {
        let run = scene.run_with_seed(LLCS_OF_16_MB, "cache-aware", seed);
        let dropped = decided(&run, "preferred LLC dropped: footprint");
        assert!(dropped.first().is_some_and(|time_ns| (S..5 * S).contains(time_ns)), "seed {seed}: {dropped:?}");
        let chosen = decided(&run, "preferred LLC chosen");
        assert!(chosen[0] < 100 * MS && *chosen.last().unwrap() < dropped[0], "seed {seed}: {chosen:?} {dropped:?}");
        assert!(!decided(&run, "aggregation refused: footprint").is_empty(), "seed {seed}");

        let run = scene.run_with_seed(LLCS_OF_16_MB, "cache-aware:aggr_tolerance=2", seed);
        assert!(decided(&run, "preferred LLC dropped").is_empty(), "seed {seed}: 257 LLCs would be enough");
        // Without hint faults nothing is known of its size.
        let run = scene.run_with_seed(LLCS_OF_16_MB, "cache-aware:numa_balancing=0", seed);
        assert!(decided(&run, "preferred LLC dropped").is_empty(), "seed {seed}");
    }
}

/// Threads whose memory is on two nodes: whoever decides, threads and memory end up together, but on two nodes or on one.
#[test]
fn item_50_numa_balancing_keeps_threads_apart_or_their_memory_follows_the_scope() {
    const RELEASE_NS: u64 = 5 * S;
    let mut scene = Scene::lasting(20 * S);
    for n in 0..4u32 {
        let data = scene.workload.add_data_group(format!("data {n}"), 4 * MIB);
        let task = scene.task(&format!("thread {n}"), spin());
        (task.affinity, task.release_ns) = (on_cpu(n / 2 * 8 + n % 2), Some(RELEASE_NS));
        task.data_groups = vec![data];
    }
    for seed in 1..=3 {
        let pages_moved =
            |run: &Run| decided(run, "scan moved pages").into_iter().filter(|time| *time > RELEASE_NS).count();
        let run = scene.run_with_seed(TWO_NODES, "topology-aware:numa_mode=N0", seed);
        assert_eq!((run.tasks_per_llc(20 * S), pages_moved(&run)), (vec![2, 2], 0), "seed {seed}");
        let run = scene.run_with_seed(TWO_NODES, "topology-aware:numa_mode=N1", seed);
        assert_eq!(run.tasks_per_llc(20 * S).into_iter().max(), Some(4), "seed {seed}");
        assert_eq!(pages_moved(&run), 2, "seed {seed}: those of the two threads that came over");
    }
}

/// Two threads with little memory on node 0, one with much on node 1 (8.8), more than an LLC has, so the tolerance is 100: the
/// scope begins where most threads run, or where the memory is.
#[test]
fn mode_n2_takes_a_process_to_its_memory_and_n1_its_memory_to_the_process() {
    const RELEASE_NS: u64 = 5 * S;
    let mut scene = Scene::lasting(20 * S);
    for (n, (cpu, mib)) in [(0, 1), (1, 1), (8, 64)].into_iter().enumerate() {
        let data = scene.workload.add_data_group(format!("data {n}"), mib * MIB);
        let task = scene.task(&format!("thread {n}"), spin());
        (task.affinity, task.release_ns) = (on_cpu(cpu), Some(RELEASE_NS));
        task.data_groups = vec![data];
    }
    for seed in 1..=3 {
        let moved = |run: &Run| decided(run, "scan moved pages").into_iter().filter(|time| *time > RELEASE_NS).count();
        let run = scene.run_with_seed(TWO_NODES, "topology-aware:aggr_tolerance=100,numa_mode=N1", seed);
        assert_eq!((run.tasks_per_llc(20 * S), moved(&run)), (vec![3, 0], 1), "seed {seed}: the one that came over");
        let run = scene.run_with_seed(TWO_NODES, "topology-aware:aggr_tolerance=100,numa_mode=N2", seed);
        assert_eq!((run.tasks_per_llc(20 * S), moved(&run)), (vec![0, 3], 2), "seed {seed}: the two that came over");
        // Without faults there is nothing to go by but where threads run.
        let run =
            scene.run_with_seed(TWO_NODES, "topology-aware:aggr_tolerance=100,numa_mode=N2,numa_balancing=0", seed);
        assert_eq!(run.tasks_per_llc(20 * S), [3, 0], "seed {seed}");
    }
}

/// One and a half times as much as the LLC has, without NUMA balancing: that the pages are resident lets the process go, that no faults are
/// counted keeps it. 16 MiB are 4096 pages.
#[test]
fn item_44_a_process_whose_resident_pages_exceed_its_llc_is_let_go_without_numa_balancing() {
    const RESIDENT: &str = "cache-aware:numa_balancing=0,footprint=resident-pages";
    /// Whether a preferred LLC was chosen, and whether that was refused.
    const GATHERED: (bool, bool) = (true, false);
    const REFUSED: (bool, bool) = (false, true);
    let of_four_threads = |bytes| {
        let mut scene = Scene::lasting(S / 2);
        let data = scene.workload.add_data_group("data", bytes);
        let task = scene.task("thread", spin());
        (task.instances, task.data_groups) = (4, vec![data]);
        scene
    };
    let told = |bytes: u64, scheduler: &str| {
        let run = of_four_threads(bytes).run(LLCS_OF_16_MB, scheduler);
        let any = |name| !decided(&run, name).is_empty();
        (any("preferred LLC chosen"), any("aggregation refused: footprint"))
    };
    assert_eq!(told(24 * MIB, RESIDENT), REFUSED);
    assert_eq!(told(24 * MIB, "cache-aware:numa_balancing=0"), GATHERED);
    assert_eq!(told(24 * MIB, &format!("{RESIDENT},aggr_tolerance=2")), GATHERED, "257 LLCs are enough");
    assert_eq!(told(8 * MIB, RESIDENT), GATHERED);
    // Sixteen CPUs and 16 MiB as well, and one node.
    let on_one_node = |bytes| {
        let machine = warmcore_topology::from_toml("base = \"hygon384\"\n[topology]\nshape = \"1s1n2l8c2t\"").unwrap();
        let run = of_four_threads(bytes).try_run_on(&machine, RESIDENT, 1).unwrap();
        let any = |name| !decided(&run, name).is_empty();
        (any("preferred LLC chosen"), any("aggregation refused: footprint"))
    };
    assert_eq!([24, 8].map(|mib| on_one_node(mib * MIB)), [REFUSED, GATHERED]);
    assert_eq!(told(12 * MIB, RESIDENT), GATHERED, "once, not 48 MiB with each thread that shares them");
    assert_eq!(told(16 * MIB, RESIDENT), GATHERED, "4096 pages");
    assert_eq!(told(16 * MIB + 1, RESIDENT), REFUSED, "4097 pages");

    let mut scene = Scene::lasting(S / 2);
    for n in 0..4 {
        let data = scene.workload.add_data_group(format!("data {n}"), 5 * MIB);
        scene.task(&format!("thread {n}"), spin()).data_groups = vec![data];
    }
    let run = scene.run(LLCS_OF_16_MB, RESIDENT);
    assert!(!decided(&run, "aggregation refused: footprint").is_empty(), "20 MiB, 5 of each thread's own");
}

/// Two threads with 8 MiB are kept together until a third has run, with 16 more. The other process says nothing of its memory.
#[test]
fn resident_pages_count_when_they_are_touched_and_a_process_without_a_profile_has_none() {
    const TOUCHED_NS: u64 = 300 * MS;
    let mut scene = Scene::lasting(S / 2);
    let other = scene.application("other");
    let [small, large] = [8, 16].map(|mib| scene.workload.add_data_group(format!("{mib} MiB"), mib * MIB));
    for n in 0..2 {
        scene.task(&format!("small {n}"), spin()).data_groups = vec![small];
        scene.task(&format!("other {n}"), spin()).process = other;
    }
    let task = scene.task("large", spin());
    (task.start_ns, task.data_groups) = (TOUCHED_NS, vec![large]);
    let run = scene.run(LLCS_OF_16_MB, "cache-aware:numa_balancing=0,footprint=resident-pages");
    let dropped = decided(&run, "preferred LLC dropped: footprint");
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    assert!((TOUCHED_NS..TOUCHED_NS + 5 * MS).contains(&dropped[0]), "within a tick: {dropped:?}");
    let chosen = decided(&run, "preferred LLC chosen");
    assert_eq!(chosen.len(), 2, "once for each process: {chosen:?}");
    assert!(chosen.iter().all(|time_ns| *time_ns < 100 * MS), "{chosen:?}");
    assert!(!decided(&run, "aggregation refused: footprint").is_empty());
}
