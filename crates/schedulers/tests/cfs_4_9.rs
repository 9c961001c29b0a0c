//! `cfs:kernel=4.9`: what that kernel's rules of load do on a running machine (`docs/spec/linux-fair.md` section 1.16).

use crate::support::*;
use warmcore_trace::MigrationKind;
use warmcore_workload::{ChannelKind, Step};

const OLD: &str = "cfs:kernel=4.9";

/// The waker's CPU is taken if its load, with the woken task, is no more than that of the previous CPU. A waker that says it will
/// sleep (a pipe's) is not counted, so two tasks that talk through a pipe come into one LLC; one that wakes by a semaphore is
/// counted, so the task stays where it was.
#[test]
fn a_task_is_woken_where_its_waker_runs_if_that_is_no_more_loaded() {
    let llcs = |by_pipe: bool| {
        let mut scene = Scene::lasting(S);
        let pipe = scene.workload.add_channel("pipe", ChannelKind::Pipe, 65_536);
        let semaphore = scene.workload.add_semaphore("turn", 0);
        let (wakes, waits) = if by_pipe {
            (Step::Send { channel: pipe, bytes: 8 }, Step::Receive { channel: pipe, bytes: 8 })
        } else {
            (Step::SemPost(semaphore), Step::SemWait(semaphore))
        };
        scene.task("waker", forever([run_for(MS), wakes, sleep(5 * MS)])).affinity = on_cpu(0);
        let wakee = scene.task("wakee", forever([waits, run_for(MS)]));
        (wakee.affinity, wakee.release_ns) = (on_cpu(7), Some(100 * MS));
        scene.run("1s1n2l4c1t", OLD).place("wakee", 900 * MS) / 4
    };
    assert_eq!((llcs(true), llcs(false)), (0, 1));
}

/// Linux has domains of clusters since 5.16. Ten spinners on two clusters of four cores show it.
#[test]
fn there_are_no_domains_of_clusters() {
    let moves = |scheduler: &str| {
        let mut scene = Scene::lasting(S);
        scene.task("spinner", spin()).instances = 10;
        scene.run("pack:1 l3:1 l2:2 core:4 pu:1", scheduler).moves()
    };
    assert_eq!(moves(OLD), moves("cfs:kernel=4.9,sched_cluster=0"));
    assert_ne!(moves("cfs"), moves("cfs:sched_cluster=0"));
}

/// 512 spinners set free on CPU 0 of eight dies: most are gone after a fifth of a second, and it never gets even, since dies may
/// differ by a quarter.
#[test]
fn released_spinners_spread_fast_and_never_evenly() {
    let mut scene = Scene::lasting(6 * S);
    let spinner = scene.task("spinner", spin());
    (spinner.instances, spinner.affinity, spinner.release_ns) = (512, on_cpu(0), Some(200 * MS));
    let run = scene.run("opteron32", OLD);
    assert!(run.tasks_per_cpu(400 * MS)[0] < 512 - 380);
    let late = run.tasks_per_cpu(5_900 * MS);
    let dies: Vec<u32> = late.chunks(4).map(|die| die.iter().sum()).collect();
    let (least, most) = (dies.iter().min().unwrap(), dies.iter().max().unwrap());
    assert!(most > least && *most <= least * 125 / 100 * 125 / 100, "a quarter at each of two levels: {dies:?}");
}

#[test]
fn tasks_that_are_made_one_after_the_other_have_a_cpu_each() {
    let mut scene = Scene::lasting(300 * MS);
    scene.task("spinner", spin()).instances = 8;
    let run = scene.run("2s1n2l2c1t", OLD);
    assert_eq!(run.tasks_per_cpu(200 * MS), [1; 8]);
    assert!(run.moves().iter().filter(|a_move| a_move.kind == MigrationKind::Balance).count() < 8);
}

/// Moves of a balancer between 2 s and 10 s, of so many spinners that began on the first CPU of two.
fn moves_of_settled(machine: &str, spinners: u32) -> usize {
    let mut scene = Scene::lasting(10 * S);
    scene.task("spinner", spin()).instances = spinners;
    let run = scene.run(machine, OLD);
    let late = |a_move: &&Move| a_move.time_ns > 2 * S;
    run.moves().iter().filter(late).count()
}

/// 100 times the greater load is compared with 110 times the smaller one between hardware threads, 117 times within an LLC, 125 times
/// between nodes. 7 and 6 are 1.167 apart, 6 and 5 1.2, 4 and 3 1.333: who is farther apart goes to and fro, the others stay.
#[test]
fn the_margin_depends_on_the_level() {
    let moves = |machine: &str| [13, 11, 7].map(|spinners| moves_of_settled(machine, spinners));
    let [siblings, llc, nodes] = ["1s1n1l1c2t", "1s1n1l2c1t", "2s1n1l1c1t"].map(moves);
    assert!(siblings.iter().all(|count| *count > 0), "siblings: {siblings:?}");
    assert!(llc[0] == 0 && llc[1] > 0 && llc[2] > 0, "one LLC: {llc:?}");
    assert!(nodes[0] == 0 && nodes[1] == 0 && nodes[2] > 0, "nodes: {nodes:?}");
}

/// Two tasks run on the hardware threads of one core, and another core is idle. Nobody waits, so nothing can be pulled: after some
/// failures the running one is pushed.
#[test]
fn a_running_task_is_pushed_when_pulling_has_failed_often() {
    let mut scene = Scene::lasting(4 * S);
    let spinner = scene.task("spinner", spin());
    // CPUs 0 and 2 are a core, 1 and 3 the other.
    (spinner.instances, spinner.affinity, spinner.release_ns) = (2, on_cpus([0, 2]), Some(S));
    let run = scene.run("1s1n1l2c2t", OLD);
    let after: Vec<Move> = run.moves().into_iter().filter(|a_move| a_move.time_ns > S).collect();
    assert_eq!(after.iter().map(|a_move| a_move.kind).collect::<Vec<_>>(), [MigrationKind::Active], "{after:?}");
    assert!(after[0].time_ns > S + 10 * MS, "not the first time");
}

/// A CPU that will be idle for less than a migration costs does not look for work: its sleeps of 0.3 ms are shorter than 0.5 ms.
#[test]
fn a_cpu_that_idles_for_less_than_a_migration_costs_pulls_nothing() {
    let pulls = |settings: &str| {
        let mut scene = Scene::lasting(2 * S);
        scene.task("sleeper", forever([run_for(100 * US), sleep(300 * US)])).affinity = on_cpu(1);
        let spinner = scene.task("spinner", spin());
        (spinner.instances, spinner.affinity, spinner.release_ns) = (3, on_cpu(0), Some(S));
        let run = scene.run("1s1n1l2c1t", &format!("{OLD}{settings}"));
        // New-idle balancing pulls at the moment at which the sleeper leaves.
        let left: Vec<u64> = run.stays("sleeper").iter().map(|stay| stay.end_ns).collect();
        run.moves().iter().filter(|a_move| a_move.to == 1 && left.contains(&a_move.time_ns)).count()
    };
    assert_eq!(pulls(""), 0);
    assert!(pulls(",migration_cost_ns=100000") > 0);
}

/// Eight hogs came to CPU 0 one after the other and have taken turns since; CPU 1 is kept busy until 1 s and then pulls. The numbers of the
/// hogs that go in its first pass, and of the one that ran then; nobody is cache-hot.
fn first_pass_of_eight(spec: &str, seed: u64) -> (Vec<u32>, u32) {
    let mut scene = Scene::lasting(2 * S);
    let free = scene.task("free", spin());
    (free.instances, free.affinity, free.release_ns) = (8, on_cpu(0), Some(S / 2));
    let keeper = scene.task("keeper", once([run_for(S)]));
    (keeper.affinity, keeper.nice) = (on_cpu(1), -20);
    let run = scene.run_with_seed("1s1n1l2c1t", &format!("{spec},migration_cost_ns=0,autogroup=0"), seed);
    let first = run.id("free-0").0;
    let pulls: Vec<Move> = run.moves().into_iter().filter(|a_move| a_move.to == 1 && a_move.task.0 >= first).collect();
    let at_once = |a_move: &&Move| a_move.time_ns == pulls[0].time_ns;
    let mut taken: Vec<u32> = pulls.iter().take_while(at_once).map(|a_move| a_move.task.0 - first).collect();
    taken.sort_unstable();
    let runs = |number: &u32| {
        let at = |stay: &Stay| stay.cpu == 0 && stay.start_ns <= pulls[0].time_ns && pulls[0].time_ns < stay.end_ns;
        run.stays(&format!("free-{number}")).iter().any(at)
    };
    (taken, (0..8).find(runs).expect("one of them runs"))
}

/// 4.9 looks at tasks from the last that came to the first, whoever has run since; the one that runs cannot go. Kernels since 4.15 take
/// whoever has not run for longest, which may be any.
#[test]
fn tasks_that_came_last_are_taken_first() {
    let of = |spec: &str| (1..=8).map(|seed| first_pass_of_eight(spec, seed)).collect::<Vec<_>>();
    let by_arrival = |(taken, runs): &(Vec<u32>, u32)| {
        let mut last: Vec<u32> = (0..8).rev().filter(|number| number != runs).take(taken.len()).collect();
        last.reverse();
        !taken.is_empty() && *taken == last
    };
    let (old, newer) = (of(OLD), of("cfs:balance_by_load=1,imbalance_pct=125,busy_factor=32"));
    assert!(old.iter().all(by_arrival), "{old:?}");
    assert!(!newer.iter().all(by_arrival), "{newer:?}");
}

/// A pass looks at `nr_migrate` tasks at most. Those that may not move go to the end, so the one that may, which came first, is found by
/// a later pass.
#[test]
fn a_pass_ends_after_so_many_tasks() {
    let found_ns = |nr_migrate: u32| {
        let mut scene = Scene::lasting(20 * S);
        scene.task("free", spin()).start_cpu = Some(0);
        scene.task("hog", spin()).affinity = on_cpu(1);
        let bound = scene.task("bound", spin());
        (bound.instances, bound.affinity, bound.start_ns) = (200, on_cpu(0), 100 * MS);
        let run = scene.run("1s1n1l2c1t", &format!("{OLD},nr_migrate={nr_migrate}"));
        let free = run.id("free");
        run.moves().iter().find(|a_move| a_move.task == free && a_move.time_ns > 100 * MS).map(|a_move| a_move.time_ns)
    };
    let [all, default, few] = [256, 32, 8].map(|nr_migrate| found_ns(nr_migrate).expect("it is found"));
    assert!(all < default && default < few, "one pass, seven, and 26: {all}, {default}, {few}");
}

/// One application of one thread and another of seven on two CPUs: both have the same share, so the one thread weighs as much as the
/// seven together and has a CPU of its own.
#[test]
fn applications_weigh_the_same_however_many_threads_they_have() {
    let alone = |settings: &str| {
        let mut scene = Scene::lasting(6 * S);
        scene.task("one", spin());
        let process = scene.application("many");
        let many = scene.task("many", spin());
        (many.instances, many.process) = (7, process);
        scene.run("1s1n1l2c1t", &format!("{OLD}{settings}")).cpu_time_between("one", 2 * S, 6 * S) as f64 / 4e9
    };
    assert!(alone("") > 0.95, "{}", alone(""));
    assert!(alone(",autogroup=0") < 0.35, "{}", alone(",autogroup=0"));
}

/// Two processes of four hogs, each with data of its own: one of each begins on the other's node, and no CPU is idle. The two change
/// places, and nobody else moves.
#[test]
fn tasks_on_each_others_nodes_change_places() {
    let moves = |settings: &str| {
        let mut scene = Scene::lasting(6 * S);
        let other = scene.application("other");
        let data = ["x", "y"].map(|name| scene.workload.add_data_group(name, 64 << 20));
        for cpu in 0..8u32 {
            let owner = usize::from(cpu / 4 != 0) ^ usize::from(cpu % 4 == 3);
            let task = scene.task(&format!("{} on {cpu}", ["x", "y"][owner]), spin());
            (task.affinity, task.release_ns, task.data_groups) = (on_cpu(cpu), Some(S / 2), vec![data[owner]]);
            if owner == 1 {
                task.process = other;
            }
        }
        let run = scene.run("2s1n1l4c1t", &format!("{OLD}{settings}"));
        let kinds: Vec<_> = run.moves().iter().map(|a_move| a_move.kind).collect();
        (kinds, ["x on 7", "y on 3"].map(|name| run.place(name, 5 * S) / 4))
    };
    assert_eq!(moves(""), (vec![MigrationKind::Numa; 2], [0, 1]));
    assert_eq!(moves(",numa_balancing=0"), (vec![], [1, 0]));
}
