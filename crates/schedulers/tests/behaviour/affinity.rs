//! Changes of affinity: by the task itself, and from outside in every state.

use warmcore_kernel::{Setup, SetupError};
use warmcore_trace::MigrationKind;
use warmcore_workload::{Affinity, Step};

use crate::support::*;

const ALL: [&str; 3] = ["eevdf", "cfs", "rr"];

#[test]
fn a_running_task_leaves_a_cpu_that_it_forbids_itself() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        scene.task("spinner", times(1, [run_for(100 * MS)])).affinity = on_cpu(2);
        let steps =
            [run_for(MS), Step::SetAffinity(on_cpu(2)), run_for(MS), Step::SetAffinity(on_cpus([1, 3])), run_for(MS)];
        scene.task("task", once(steps)).affinity = on_cpu(0);
        let run = scene.run("1s1n1l4c1t", scheduler);
        let stays = run.stays("task");
        let cpus: Vec<u32> = stays.iter().map(|stay| stay.cpu).collect();
        assert!(cpus[0] == 0 && [1, 3].contains(cpus.last().unwrap()), "{scheduler}: {stays:?}");
        assert!(cpus.contains(&2), "{scheduler}");
        let kinds: Vec<MigrationKind> = run.moves_of("task").iter().map(|a_move| a_move.kind).collect();
        assert_eq!(kinds, [MigrationKind::Affinity; 2], "{scheduler}");
    }
}

/// Who leaves CPU 0 for one of two CPUs goes to the one after that which the last one went to from there.
#[test]
fn a_task_that_forbids_itself_its_cpu_goes_to_the_allowed_ones_in_turn() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let turn = [Step::SetAffinity(on_cpus([2, 3])), run_for(MS), Step::SetAffinity(on_cpu(0)), run_for(MS)];
        scene.task("task", times(4, turn)).affinity = on_cpu(0);
        let run = scene.run("1s1n1l4c1t", scheduler);
        let far: Vec<u32> = run.stays("task").iter().map(|stay| stay.cpu).filter(|&cpu| cpu != 0).collect();
        // Where it begins the seed says.
        assert!(far == [2, 3, 2, 3] || far == [3, 2, 3, 2], "{scheduler}: {far:?}");
    }
}

#[test]
fn forbidding_other_cpus_than_its_own_moves_nobody() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let steps = [run_for(MS), Step::SetAffinity(on_cpus([0, 3])), run_for(MS)];
        scene.task("task", once(steps)).affinity = on_cpu(0);
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert_eq!(run.moves(), []);
        assert_eq!(run.stays("task").len(), 1);
    }
}

/// Tasks bound to CPU 0 are released while one runs, others wait, one sleeps, one blocks, one sleeps in its queue and one is dead.
#[test]
fn release_in_every_state_is_taken_up() {
    for scheduler in ALL {
        let mut scene = Scene::lasting(400 * MS);
        let never = scene.workload.add_semaphore("never", 0);
        let tasks = [
            ("spinner", spin()),
            ("other", spin()),
            ("sleeper", forever([sleep(30 * MS), run_for(5 * MS)])),
            ("blocked", once([Step::SemWait(never)])),
            ("light", forever([run_for(100 * US), sleep(MS)])),
            ("dead", once([run_for(MS)])),
        ];
        for (name, program) in tasks {
            let task = scene.task(name, program);
            (task.affinity, task.release_ns) = (on_cpu(0), Some(100 * MS + 333 * US));
        }
        scene.workload.tasks[4].nice = 19;
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert!(run.moves().iter().all(|a_move| a_move.time_ns > 100 * MS), "{scheduler}: bound until the release");
        let places = run.places(400 * MS);
        assert_ne!(places[&run.id("spinner")], places[&run.id("other")], "{scheduler}");
        assert!(run.cpu_time_between("spinner", 300 * MS, 400 * MS) > 90 * MS, "{scheduler}");
        assert!(run.cpu_time_between("other", 300 * MS, 400 * MS) > 90 * MS, "{scheduler}");
    }
}

#[test]
fn a_release_before_the_start_or_after_the_exit_does_no_harm() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let early = scene.task("released before it starts", once([run_for(MS)]));
        (early.affinity, early.release_ns, early.start_ns) = (on_cpu(0), Some(MS), 2 * MS);
        let late = scene.task("released after its exit", once([run_for(MS)]));
        (late.affinity, late.release_ns) = (on_cpu(0), Some(10 * MS));
        let run = scene.run("1s1n1l2c1t", scheduler);
        assert!(run.outcome.tasks.iter().all(|task| task.exited_ns.is_some()));
    }
}

/// A child of a restricted parent is restricted as well, unless its template says otherwise.
#[test]
fn children_inherit_affinity_and_nice() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        let plain = scene.template("plain", once([run_for(5 * MS)]));
        let own = scene.template("own", once([run_for(5 * MS)]));
        scene.workload.tasks[own.index()].affinity = on_cpu(3);
        let steps = [Step::Fork(plain), Step::Fork(own), run_for(5 * MS), Step::Join { count: 2 }];
        scene.task("parent", once(steps)).affinity = on_cpu(1);
        let run = scene.run("1s1n1l4c1t", scheduler);
        assert!(run.stays("plain-0").iter().all(|stay| stay.cpu == 1), "{scheduler}");
        assert!(run.stays("own-0").iter().all(|stay| stay.cpu == 3), "{scheduler}");
    }
}

/// 40 tasks that choose another set of CPUs after every step, also while others sleep, wait and run beside them.
#[test]
fn affinity_can_change_all_the_time() {
    for scheduler in ALL {
        let mut scene = Scene::new();
        for n in 0..40u32 {
            let set = |k: u32| Step::SetAffinity(on_cpus([(n + k) % 16, (n * 7 + k * 3) % 16]));
            let steps = [
                run_for(300 * US),
                set(1),
                sleep(200 * US),
                set(2),
                run_for(MS),
                set(3),
                Step::SetAffinity(Affinity::All),
            ];
            scene.task(&format!("task {n}"), times(20, steps));
        }
        let run = scene.run(TWO_LLCS_OF_8, scheduler);
        assert!(run.outcome.tasks.iter().all(|task| task.progress_ns == 20 * 1_300 * US), "{scheduler}");
    }
}

#[test]
fn cpus_the_machine_does_not_have_are_refused_with_their_names() {
    let machine = warmcore_topology::resolve("1s1n1l4c1t").unwrap();
    let mut scene = Scene::new();
    scene.task("task", spin()).affinity = Affinity::OsCpus(vec![17, 18]);
    let Err(SetupError::NoAllowedCpu { task, wanted, online }) = Setup::new(&machine, &scene.workload, 1) else {
        panic!("it should be refused");
    };
    assert_eq!(task, "task");
    assert!(wanted.contains("17") && online == "0-3", "{wanted} {online}");
}

/// All threads of a core of 300 are busy at a time, and then idle.
#[test]
fn a_core_may_have_more_threads_than_a_byte_counts() {
    let mut scene = Scene::new();
    scene.task("task", once([run_for(50 * MS)])).instances = 300;
    let run = scene.run("1s1n1l1c300t", "eevdf");
    assert!(run.outcome.cpus.iter().all(|cpu| cpu.busy_ns > 40 * MS));
}
