//! What is done from outside at given times: binding in every state, binding to where others are, tunables.

use warmcore_kernel::{Setup, SetupError, SimulationError};
use warmcore_trace::MigrationKind;
use warmcore_workload::{Affinity, Destination, Step};

use crate::support::*;

const ALL: [&str; 5] = ["cache-aware", "cfs", "eevdf", "fifo", "rr"];

/// CPUs on which a task ran between two times.
fn cpus_between(run: &Run, name: &str, from_ns: u64, to_ns: u64) -> Vec<u32> {
    let within = |stay: &Stay| stay.end_ns > from_ns && stay.start_ns < to_ns && stay.length_ns() > 0;
    let mut cpus: Vec<u32> = run.stays(name).iter().filter(|stay| within(stay)).map(|stay| stay.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Bound to one pair of CPUs, then to another, then to none, while tasks run, wait, sleep, block, sleep in their queue and are dead. The
/// trace is checked for tasks that run where they may not.
#[test]
fn tasks_are_bound_again_and_again_in_every_state() {
    for scheduler in ALL {
        let mut scene = Scene::lasting(400 * MS);
        let never = scene.workload.add_semaphore("never", 0);
        let tasks = [
            ("spinner", spin()),
            ("other", spin()),
            ("third", spin()),
            ("sleeper", forever([sleep(3 * MS), run_for(2 * MS)])),
            ("blocked", once([Step::SemWait(never)])),
            ("light", forever([run_for(100 * US), sleep(MS)])),
            ("dead", once([run_for(MS)])),
        ];
        for (name, program) in tasks {
            scene.task(name, program);
        }
        scene.workload.tasks[5].nice = 19;
        scene.bind(50 * MS + 1, "process", Destination::Cpus(on_cpus([2, 3])));
        scene.bind(150 * MS + 333 * US, "process", Destination::Cpus(on_cpus([0, 1])));
        scene.bind(250 * MS, "process", Destination::Cpus(Affinity::All));
        let run = scene.run("1s1n1l4c1t", scheduler);
        // What was being switched to at the time takes a few microseconds to go.
        for name in ["spinner", "other", "third", "sleeper", "light"] {
            let bound = |from_ms: u64, to_ms: u64| cpus_between(&run, name, from_ms * MS, to_ms * MS);
            assert!(bound(51, 150).iter().all(|cpu| [2, 3].contains(cpu)), "{scheduler}: {name} {:?}", bound(51, 150));
            assert!(
                bound(151, 250).iter().all(|cpu| [0, 1].contains(cpu)),
                "{scheduler}: {name} {:?}",
                bound(151, 250)
            );
        }
        let forced = run.moves().iter().filter(|a_move| a_move.kind == MigrationKind::Affinity).count();
        assert!(forced >= 3, "{scheduler}: {forced} tasks had to go");
        let spinning = ["spinner", "other", "third"].map(|name| run.cpu_time_between(name, 300 * MS, 400 * MS));
        if scheduler != "fifo" {
            assert!(spinning.iter().all(|time| *time > 80 * MS), "{scheduler}: a CPU each again, {spinning:?}");
        }
    }
}

#[test]
fn a_name_may_be_one_template_of_several() {
    let mut scene = Scene::lasting(100 * MS);
    scene.task("bound", spin());
    scene.task("free", spin()).affinity = on_cpu(0);
    scene.bind(50 * MS, "bound", Destination::Cpus(on_cpu(3)));
    let run = scene.run("1s1n1l4c1t", "eevdf");
    assert_eq!(cpus_between(&run, "bound", 51 * MS, 100 * MS), [3]);
    assert_eq!(cpus_between(&run, "free", 51 * MS, 100 * MS), [0]);
}

#[test]
fn tasks_are_bound_to_the_llc_or_node_where_others_are_at_that_time() {
    let mut scene = Scene::lasting(600 * MS);
    let followed = scene.application("followed");
    for name in ["first", "second"] {
        scene.task(name, spin()).process = followed;
    }
    scene.task("follower", spin()).affinity = on_cpu(0);
    for (at_ms, cpus) in [(0, [4, 5]), (200, [12, 13]), (400, [0, 1])] {
        scene.bind(at_ms * MS + 2 * MS, "followed", Destination::Cpus(on_cpus(cpus)));
    }
    // At 390 ms they are still in the last LLC, and at 550 ms in the first for as long as the window is.
    scene.bind(150 * MS, "follower", Destination::LlcOf("followed".into()));
    scene.bind(320 * MS, "follower", Destination::LlcOf("first".into()));
    scene.bind(390 * MS, "follower", Destination::NodeOf("followed".into()));
    scene.bind(550 * MS, "follower", Destination::NodeOf("followed".into()));
    let run = scene.run("1s2n2l4c1t", "eevdf");
    let llcs = |from_ms: u64, to_ms: u64| -> Vec<u32> {
        let mut llcs: Vec<u32> =
            cpus_between(&run, "follower", from_ms * MS, to_ms * MS).iter().map(|cpu| cpu / 4).collect();
        llcs.dedup();
        llcs
    };
    assert_eq!(llcs(151, 320), [1]);
    assert_eq!(llcs(321, 390), [3]);
    assert!(llcs(391, 550).iter().all(|llc| *llc >= 2), "the second node: {:?}", llcs(391, 550));
    assert!(llcs(551, 600).iter().all(|llc| *llc < 2), "the first node: {:?}", llcs(551, 600));
}

#[test]
fn what_nobody_ran_for_is_an_error_that_names_the_action() {
    let mut scene = Scene::lasting(300 * MS);
    scene.task("asleep", forever([sleep(S)]));
    scene.task("follower", spin());
    scene.bind(200 * MS, "follower", Destination::LlcOf("asleep".into()));
    let Err(error) = scene.try_run("1s1n2l4c1t", "eevdf", 1) else { panic!("nobody can be followed") };
    assert!(matches!(error, SimulationError::NobodyRan { .. }));
    assert!(error.to_string().contains("at 200 ms: bind `follower` to the LLC of `asleep`"), "{error}");
}

#[test]
fn actions_about_nobody_or_no_cpu_are_refused_before_the_run() {
    let mut scene = Scene::lasting(MS);
    scene.task("task", spin());
    let machine = warmcore_topology::resolve("1s1n1l4c1t").unwrap();
    let mut refused = |tasks: &str, to: Destination| {
        scene.actions.clear();
        scene.bind(0, tasks, to);
        Setup::new(&machine, &scene.workload, 1).unwrap().set_actions(&scene.actions).unwrap_err()
    };
    let nobody = refused("nobody", Destination::Cpus(Affinity::All));
    assert!(matches!(&nobody, SetupError::NobodyCalled { name, .. } if name == "nobody"), "{nobody}");
    let nobody = refused("task", Destination::LlcOf("none".into()));
    assert!(matches!(&nobody, SetupError::NobodyCalled { name, .. } if name == "none"), "{nobody}");
    let nowhere = refused("task", Destination::Cpus(on_cpu(9)));
    assert!(matches!(nowhere, SetupError::NoAllowedCpu { .. }), "{nowhere}");
}

#[test]
fn a_longer_slice_holds_from_the_time_it_is_set() {
    for scheduler in ["eevdf:base_slice_ns=1000000", "cache-aware:base_slice_ns=1000000"] {
        let mut scene = Scene::lasting(2 * S);
        scene.task("first", spin());
        scene.task("second", spin());
        scene.set(S, "base_slice_ns", 20_000_000);
        let run = scene.run("1s1n1l1c1t", scheduler);
        let slice_ns = |from_ns: u64, to_ns: u64| {
            let stays = run.stays("first").into_iter().filter(|stay| stay.start_ns > from_ns && stay.end_ns < to_ns);
            mean(stays.map(|stay| stay.length_ns()))
        };
        let (before, after) = (slice_ns(0, S), slice_ns(S + 100 * MS, 2 * S));
        assert!(after > 3.0 * before, "{scheduler}: slices of {before} ns and then of {after} ns");
    }
}

/// Eight spinners are too many for an LLC of eight CPUs, unless the tolerance has no limit.
#[test]
fn a_process_gathers_once_its_tolerance_is_raised() {
    let mut scene = Scene::lasting(1500 * MS);
    scene.task("spinner", spin()).instances = 8;
    let fullest = |scene: &Scene, at_ms: u64| {
        let run = scene.run(TWO_LLCS_OF_8, "cache-aware");
        run.tasks_per_llc(at_ms * MS).into_iter().max()
    };
    scene.set(700 * MS, "aggr_tolerance", 100);
    assert_eq!(fullest(&scene, 690), Some(4));
    assert!(fullest(&scene, 1450) >= Some(6), "{:?}", fullest(&scene, 1450));
    scene.actions.clear();
    assert_eq!(fullest(&scene, 1450), Some(4), "not by itself");
}
