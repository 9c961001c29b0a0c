//! NUMA balancing, seen from outside: who goes where, which pages follow, and what it leaves alone.

use warmcore_schedulers::{SchedulerSpec, decisions};
use warmcore_trace::{DecisionKind, EventKind, MigrationKind, OverheadKind};
use warmcore_workload::{DataGroupId, Step};

use crate::support::*;

/// Two nodes of four CPUs.
const TWO_NODES: &str = "2s1n1l4c1t";

/// Two nodes of 16 CPUs: small imbalances between nodes are allowed.
const TWO_BIG_NODES: &str = "2s1n1l16c1t";

const MIB: u64 = 1 << 20;

/// Pages of 64 MiB.
const PAGES: i64 = 64 * 256;

/// Time, task and value of the decisions whose name begins so.
fn decided(run: &Run, name: &str) -> Vec<(u64, u32, i64)> {
    let kinds = decisions(&SchedulerSpec::parse("eevdf").unwrap());
    let names: Vec<String> = kinds.iter().map(DecisionKind::name).collect();
    assert!(names.iter().any(|known| known.starts_with(name)), "there is no decision `{name}`");
    let of_name = |event: &warmcore_trace::Event| match event.kind {
        EventKind::Decision { decision, value, task } if names[decision as usize].starts_with(name) => {
            Some((event.time_ns, task.0, value))
        }
        _ => None,
    };
    run.events.iter().filter_map(of_name).collect()
}

/// Moves made by NUMA balancing.
fn numa_moves(run: &Run) -> Vec<Move> {
    run.moves().into_iter().filter(|a_move| a_move.kind == MigrationKind::Numa).collect()
}

/// CPU time spent on it.
fn overhead_ns(run: &Run) -> u64 {
    run.outcome.cpus.iter().map(|cpu| cpu.overhead_ns[OverheadKind::Numa as usize]).sum()
}

/// 64 MiB of data.
fn data(scene: &mut Scene, name: &str) -> DataGroupId {
    scene.workload.add_data_group(name, 64 * MIB)
}

/// Two processes of four spinners, each with data of its own, three on one node and one on the other, bound for half a second.
fn crossed() -> Scene {
    let mut scene = Scene::lasting(6 * S);
    let other = scene.application("other");
    let data = [data(&mut scene, "x"), data(&mut scene, "y")];
    for cpu in 0..8u32 {
        let owner = usize::from(cpu / 4 != 0) ^ usize::from(cpu % 4 == 3);
        let task = scene.task(&format!("{} on {cpu}", ["x", "y"][owner]), spin());
        (task.affinity, task.release_ns) = (on_cpu(cpu), Some(S / 2));
        task.data_groups = vec![data[owner]];
        if owner == 1 {
            task.process = other;
        }
    }
    scene
}

#[test]
fn two_tasks_on_each_others_nodes_change_places() {
    for seed in 1..=5 {
        let run = crossed().run_with_seed(TWO_NODES, "eevdf", seed);
        assert_eq!(decided(&run, "tasks swap").len(), 1, "seed {seed}");
        let moves = numa_moves(&run);
        let both = [("x on 7", 0), ("y on 3", 1)];
        assert_eq!(moves.len(), 2, "seed {seed}: {moves:?}");
        assert_eq!(moves[0].time_ns, moves[1].time_ns, "seed {seed}: at one instant");
        for (name, node) in both {
            assert_eq!(run.place(name, 5 * S) / 4, node, "seed {seed}: {name}");
        }
        // Nobody else had a reason to move, so each process is on one node now.
        assert!(run.moves().iter().all(|a_move| a_move.kind == MigrationKind::Numa), "seed {seed}");
    }
}

#[test]
fn crosswise_tasks_stay_where_they_are_without_numa_balancing() {
    let run = crossed().run(TWO_NODES, "eevdf:numa_balancing=0");
    assert_eq!((run.moves().len(), overhead_ns(&run)), (0, 0));
    assert!(!run.events.iter().any(|event| matches!(event.kind, EventKind::Decision { .. })));
}

/// A spinner that touches its data on the first node and is bound to the second after half a second.
fn displaced(mib: u64) -> Scene {
    let mut scene = Scene::lasting(20 * S);
    let data = scene.workload.add_data_group("data", mib * MIB);
    let program = once([run_for(S / 2), Step::SetAffinity(on_cpus(4..8)), run_for(3600 * S)]);
    let task = scene.task("displaced", program);
    (task.affinity, task.data_groups) = (on_cpus(0..4), vec![data]);
    scene
}

#[test]
fn pages_follow_a_task_that_may_not_go_back_to_them() {
    for seed in 1..=3 {
        let run = displaced(64).run_with_seed(TWO_NODES, "eevdf", seed);
        let chosen = decided(&run, "preferred node chosen");
        assert_eq!(chosen.iter().map(|&(_, _, node)| node).collect::<Vec<_>>(), [1], "seed {seed}");
        let moved = decided(&run, "scan moved pages");
        // Its pages are its own: all move at their first fault, in the first pass, and none later.
        assert_eq!(moved.len(), 1, "seed {seed}: {moved:?}");
        assert!((moved[0].2 - PAGES).abs() <= 1, "seed {seed}: {moved:?}");
        // 4 µs for each, and 20 ns to mark and 1 µs to fault on it in every further pass.
        let passes = (overhead_ns(&run) as f64 - 4e3 * PAGES as f64) / (PAGES as f64 * 1.02e3);
        assert!((0.0..10.0).contains(&passes), "seed {seed}: {passes} more passes");
    }
}

/// A process of 1 GiB takes four scans of 256 MiB, which are a quarter of the shortest period apart.
#[test]
fn pages_move_no_faster_than_they_are_sampled() {
    let mut ends = Vec::new();
    for period_ms in [1000, 8000] {
        let run = displaced(1024).run(TWO_NODES, &format!("eevdf:scan_period_min_ms={period_ms}"));
        let mut sum = 0;
        for (time_ns, _, pages) in decided(&run, "scan moved pages") {
            sum += pages;
            let scans = 1 + time_ns.saturating_sub(S) / (period_ms * MS / 4);
            assert!(sum as u64 <= scans * 65_536, "{sum} pages after {scans} scans");
            ends.push(time_ns);
        }
        assert!((sum - 1024 * 256).abs() <= 8, "{sum}");
    }
    assert!(ends.is_sorted() && ends.last() > Some(&(8 * S)), "{ends:?}");
}

/// Two threads that share data, one per node, most of it on the first.
fn apart() -> Scene {
    let mut scene = Scene::lasting(8 * S);
    let data = data(&mut scene, "data");
    for (name, cpu, start_ns) in [("first", 0, 0), ("second", 16, S / 10)] {
        let task = scene.task(name, spin());
        (task.affinity, task.start_ns, task.release_ns) = (on_cpu(cpu), start_ns, Some(S / 2));
        task.data_groups = vec![data];
    }
    scene
}

#[test]
fn a_thread_goes_to_an_idle_cpu_near_its_groups_memory() {
    for seed in 1..=5 {
        let run = apart().run_with_seed(TWO_BIG_NODES, "eevdf", seed);
        let nodes = ["first", "second"].map(|name| run.place(name, 7 * S) / 16);
        assert_eq!(nodes[0], nodes[1], "seed {seed}");
        assert_eq!(decided(&run, "task moves: idle CPU").len(), 1, "seed {seed}");
        assert_eq!(numa_moves(&run).len(), 1, "seed {seed}");
    }
    let run = apart().run(TWO_BIG_NODES, "eevdf:numa_balancing=0");
    assert_eq!(run.place("second", 7 * S), 16, "off: the thread has no reason to move");
}

/// A process that settled on the second node forks: the first node is idler, but not preferred.
#[test]
fn new_threads_go_to_the_node_their_creator_prefers() {
    let place = |spec: &str| {
        let mut scene = Scene::lasting(6 * S);
        let data = data(&mut scene, "data");
        let child = scene.next_template();
        scene.template("child", spin());
        for n in 0..2 {
            let program = if n == 0 { once([run_for(4 * S), Step::Fork(child), run_for(3600 * S)]) } else { spin() };
            let task = scene.task(&format!("parent {n}"), program);
            (task.affinity, task.release_ns) = (on_cpu(16 + n), Some(3 * S + S / 2));
            task.data_groups = vec![data];
        }
        scene.run(TWO_BIG_NODES, spec).stays("child-0")[0].cpu / 16
    };
    assert_eq!((place("eevdf"), place("eevdf:numa_balancing=0")), (1, 0));
}

#[test]
fn a_machine_with_one_node_and_a_workload_without_memory_are_left_alone() {
    let same = |scene: &Scene, machine: &str| {
        let [on, off] = [1, 0].map(|on| scene.run(machine, &format!("eevdf:numa_balancing={on}")).events);
        assert!(on == off, "{machine}");
    };
    same(&crossed(), "1s1n2l4c1t");
    let mut without = crossed();
    without.workload.tasks.iter_mut().for_each(|task| task.data_groups.clear());
    without.workload.data_groups.clear();
    same(&without, TWO_NODES);
}

#[test]
fn runs_with_numa_balancing_repeat() {
    for scheduler in ["eevdf", "cfs", "cache-aware"] {
        let [first, second] = [(); 2].map(|()| crossed().run_with_seed(TWO_NODES, scheduler, 7).events);
        assert!(first == second, "{scheduler}");
        assert!(!decided(&crossed().run_with_seed(TWO_NODES, scheduler, 7), "preferred node chosen").is_empty());
    }
}
