//! Cpusets, CPUs to which task groups confine their tasks, and isolated CPUs, under any scheduler (`docs/workloads.md`).

use std::collections::BTreeSet;

use warmcore_workload::{GroupId, Step};

use crate::support::*;

const FOUR: &str = "1s1n1l4c1t";

/// Schedulers of different kinds: masks are the kernel's.
const SCHEDULERS: [&str; 6] = ["eevdf", "cfs", "cache-aware", "ule", "rr", "scx-native"];

/// A group with a list of CPUs.
fn confined(scene: &mut Scene, path: &str, cpus: &[u32]) -> GroupId {
    let group = scene.workload.add_group(path);
    scene.workload.groups[group.index()].cpus = Some(cpus.to_vec());
    group
}

/// CPUs on which a task ran from a time on, in order.
fn cpus_of(run: &Run, name: &str, from_ns: u64) -> Vec<u32> {
    let stays = run.stays(name);
    let mut cpus: Vec<u32> =
        stays.iter().filter(|stay| stay.end_ns > from_ns && stay.length_ns() > 0).map(|stay| stay.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Four spinners confined to CPUs 0 and 1 have half of one each, by hand; the two others have CPUs 2 and 3 for themselves once they are there.
#[test]
fn tasks_stay_on_the_cpus_of_their_group() {
    for scheduler in SCHEDULERS {
        let mut scene = Scene::lasting(4 * S);
        let pod = confined(&mut scene, "/pod", &[0, 1]);
        let task = scene.task("inside", spin());
        (task.group, task.instances) = (Some(pod), 4);
        scene.task("outside", spin()).instances = 2;
        let run = scene.run(FOUR, scheduler);
        for name in ["inside-0", "inside-1", "inside-2", "inside-3"] {
            let cpus = cpus_of(&run, name, 0);
            assert!(cpus.iter().all(|cpu| *cpu < 2), "{scheduler}: {name} on {cpus:?}");
        }
        if scheduler == "eevdf" {
            assert_near("inside", run.cpu_time_between("inside-0", 2 * S, 4 * S) as f64 / (2 * S) as f64, 0.5, 0.05);
            assert_near("outside", run.cpu_time_between("outside-1", 2 * S, 4 * S) as f64 / (2 * S) as f64, 1.0, 0.02);
        }
    }
}

/// A group within a group has what its list leaves of the outer one's, and the outer one's where that is nothing.
#[test]
fn a_list_holds_within_that_of_the_group_above() {
    let mut scene = Scene::lasting(400 * MS);
    confined(&mut scene, "/pod", &[0, 1, 2]);
    for (path, cpus) in [("/pod/part", &[2, 3][..]), ("/pod/apart", &[3][..]), ("/pod/plain", &[][..])] {
        let group = scene.workload.add_group(path);
        scene.workload.groups[group.index()].cpus = (!cpus.is_empty()).then(|| cpus.to_vec());
        let task = scene.task(path, spin());
        (task.group, task.instances) = (Some(group), 4);
    }
    let run = scene.run(FOUR, "eevdf");
    for n in 0..4 {
        assert_eq!(cpus_of(&run, &format!("/pod/part-{n}"), 0), [2]);
        for path in ["/pod/apart", "/pod/plain"] {
            let cpus = cpus_of(&run, &format!("{path}-{n}"), 0);
            assert!(cpus.iter().all(|cpu| *cpu < 3), "{path}: {cpus:?}");
        }
    }
}

/// `sched_setaffinity` leaves what the group has of the mask, and has no effect where that is nothing (`EINVAL`).
#[test]
fn a_mask_holds_within_the_group() {
    for scheduler in SCHEDULERS {
        let mut scene = Scene::lasting(400 * MS);
        let pod = confined(&mut scene, "/pod", &[0, 1]);
        let steps = [
            run_for(50 * MS),
            Step::SetAffinity(on_cpus([1, 3])),
            run_for(50 * MS),
            Step::SetAffinity(on_cpus([2, 3])),
        ];
        scene.task("task", then_forever(steps, [run_for(S)])).group = Some(pod);
        let run = scene.run(FOUR, scheduler);
        assert_eq!(cpus_of(&run, "task", 60 * MS), [1], "{scheduler}");
    }
}

/// Who joins a group leaves a CPU that the group does not have at once, and has its own mask again in another.
#[test]
fn a_task_that_joins_a_group_moves_to_its_cpus() {
    for scheduler in SCHEDULERS {
        let mut scene = Scene::lasting(2 * S);
        let pod = confined(&mut scene, "/pod", &[0, 1]);
        let free = scene.workload.add_group("/free");
        let steps = [run_for(100 * MS), Step::SetGroup(pod), run_for(100 * MS), Step::SetGroup(free)];
        let task = scene.task("task", then_forever(steps, [run_for(S)]));
        (task.affinity, task.start_cpu) = (on_cpus([0, 3]), Some(3));
        // Whoever else may be on CPU 0 from then on makes it leave again.
        let late = scene.task("late", spin());
        (late.affinity, late.start_ns) = (on_cpu(0), 250 * MS);
        let run = scene.run(FOUR, scheduler);
        assert_eq!(run.place("task", 150 * MS), 0, "{scheduler}");
        if scheduler == "eevdf" {
            assert_eq!(run.place("task", 1900 * MS), 3);
        }
    }
}

/// With 7.3's `max` a group's weight is times the CPUs of its cpuset: one spinner of a group of two CPUs beside one of no group has 2 of 3 parts, on all
/// four CPUs 4 of 5.
#[test]
fn the_weight_of_a_group_counts_the_cpus_of_its_cpuset() {
    for (cpus, expected) in [(&[0, 1][..], 2.0 / 3.0), (&[0, 1, 2, 3][..], 0.8)] {
        let mut scene = Scene::lasting(4 * S);
        let pod = confined(&mut scene, "/pod", cpus);
        scene.task("alone", spin()).affinity = on_cpu(0);
        let member = scene.task("member", spin());
        (member.affinity, member.group) = (on_cpu(0), Some(pod));
        let run = scene.run(FOUR, "eevdf:kernel=7.3,cgroup_mode=max,autogroup=0");
        let share = run.cpu_time_between("member", S, 4 * S) as f64 / (3 * S) as f64;
        assert_near("member", share, expected, 0.02);
    }
}

/// Six spinners that ask for no CPU share the two that are not isolated, a third of one each, by hand; of two that are not isolated and two that are, the latter
/// stay idle.
#[test]
fn nobody_comes_to_an_isolated_cpu_who_does_not_ask_for_it() {
    for scheduler in SCHEDULERS {
        let mut scene = Scene::lasting(2 * S);
        scene.workload.isolcpus = vec![2, 3];
        scene.task("spinner", spin()).instances = 6;
        let run = scene.run(FOUR, scheduler);
        for n in 0..6 {
            let cpus = cpus_of(&run, &format!("spinner-{n}"), 0);
            assert!(cpus.iter().all(|cpu| *cpu < 2), "{scheduler}: {cpus:?}");
            if scheduler == "eevdf" {
                assert_near(scheduler, run.cpu_time(&format!("spinner-{n}")) as f64 / (2 * S) as f64, 1.0 / 3.0, 0.1);
            }
        }
    }
}

/// Isolated CPUs are in no domain: of four threads of a program that is bound to two of them nobody leaves the CPU on which the program was, and each has a
/// quarter of it. Bound to two others they use both.
#[test]
fn nobody_is_balanced_between_isolated_cpus() {
    for scheduler in ["eevdf", "cfs", "cache-aware"] {
        for isolated in [true, false] {
            let mut scene = Scene::lasting(2 * S);
            scene.workload.isolcpus = if isolated { vec![2, 3] } else { Vec::new() };
            let task = scene.task("bound", spin());
            (task.instances, task.affinity) = (4, on_cpus([2, 3]));
            scene.task("beside", forever([run_for(3 * MS), sleep(2 * MS)])).instances = 3;
            let run = scene.run(FOUR, scheduler);
            let cpus: BTreeSet<u32> = (0..4).flat_map(|n| cpus_of(&run, &format!("bound-{n}"), S)).collect();
            assert_eq!(cpus.len(), if isolated { 1 } else { 2 }, "{scheduler}: {cpus:?}");
            if isolated {
                let share = run.cpu_time_between("bound-0", S, 2 * S) as f64 / S as f64;
                assert_near(scheduler, share, 0.25, 0.05);
            }
        }
    }
}

/// A thousand ticks a second of 1.5 us take 3 ms of two seconds. A spinner that is alone on a CPU of `nohz_full` does without them after the first, but for one a
/// second that another CPU makes; two have them.
#[test]
fn a_task_that_is_alone_has_no_ticks_where_the_kernel_needs_none() {
    let lost_us = |nohz_full: &[u32], instances| {
        let mut scene = Scene::lasting(2 * S);
        scene.workload.nohz_full = nohz_full.to_vec();
        let task = scene.task("spinner", spin());
        (task.affinity, task.instances) = (on_cpu(1), instances);
        let run = scene.run("1s1n1l2c1t", "eevdf:hz=1000");
        (2 * S - run.outcome.tasks.iter().map(|task| task.progress_ns).sum::<u64>()) / US
    };
    let lost = [lost_us(&[], 1), lost_us(&[1], 1), lost_us(&[1], 2)];
    assert!((2_900..3_300).contains(&lost[0]) && lost[1] < 200 && lost[2] > 2_900, "{lost:?} us");
}
