//! Whom cache-aware schedulers keep together when the workload says so.

use warmcore_workload::{DataGroupId, GroupId, Step};

use crate::support::*;

/// Tasks of that name per LLC at the end, most first.
fn split(run: &Run, name: &str) -> [usize; 2] {
    let places = run.places(run.outcome.elapsed_ns);
    let named = places.iter().filter(|(task, _)| run.outcome.tasks[task.index()].name.starts_with(name));
    let first = named.clone().filter(|(_, cpu)| **cpu < 8).count();
    let rest = named.count() - first;
    [first.max(rest), first.min(rest)]
}

const BOTH: [&str; 2] = ["cache-aware", "topology-aware"];

#[test]
fn a_process_that_opted_out_is_left_where_it_is() {
    let mut scene = Scene::lasting(S);
    scene.task("spinner", spin()).instances = 4;
    for scheduler in BOTH {
        assert_eq!(split(&scene.run(TWO_LLCS_OF_8, scheduler), "spinner"), [4, 0], "{scheduler}");
    }
    scene.workload.choose_aggregate("process:process=off").unwrap();
    for scheduler in BOTH {
        let run = scene.run(TWO_LLCS_OF_8, scheduler);
        assert_eq!(split(&run, "spinner"), [2, 2], "{scheduler}");
        assert_eq!(run.events, scene.run(TWO_LLCS_OF_8, "eevdf").events, "{scheduler}: as if it were not there");
    }
}

#[test]
fn processes_of_one_thread_gather_if_they_are_a_group() {
    let mut scene = Scene::lasting(S);
    for n in 0..4 {
        let process = scene.workload.add_process(format!("worker {n}"));
        scene.task(&format!("spinner {n}"), spin()).process = process;
    }
    for scheduler in BOTH {
        assert_eq!(split(&scene.run(TWO_LLCS_OF_8, scheduler), "spinner"), [2, 2], "{scheduler}");
    }
    for n in 0..4 {
        scene.workload.choose_aggregate(&format!("process:worker {n}=group:process")).unwrap();
    }
    for scheduler in BOTH {
        assert_eq!(split(&scene.run(TWO_LLCS_OF_8, scheduler), "spinner"), [4, 0], "{scheduler}");
    }
}

/// Twelve threads of one process are too many, the four that share data are not.
#[test]
fn only_the_threads_that_share_data_gather_if_that_is_the_choice() {
    let mut scene = Scene::lasting(S);
    scene.task("other", spin()).instances = 6;
    scene.workload.add_data_group("rows", 1 << 20);
    let sharing = scene.task("sharing", spin());
    (sharing.instances, sharing.data_groups) = (4, vec![DataGroupId(0)]);
    let run = scene.run(TWO_LLCS_OF_8, "cache-aware");
    assert_ne!(split(&run, "sharing"), [4, 0], "ten threads are refused as a whole");
    scene.workload.choose_aggregate("process:process=off").unwrap();
    scene.workload.choose_aggregate("data:rows=group:rows").unwrap();
    let run = scene.run(TWO_LLCS_OF_8, "cache-aware");
    assert_eq!(split(&run, "sharing"), [4, 0]);
}

/// The choice follows the task group a task is in, also when it changes.
#[test]
fn a_task_that_changes_its_task_group_changes_with_whom_it_is_kept() {
    let mut scene = Scene::lasting(2 * S);
    let [apart, together] = ["/apart", "/together"].map(|name| scene.workload.add_group(name));
    assert_eq!([apart, together], [GroupId(0), GroupId(1)]);
    let program = once([run_for(S), Step::SetGroup(together)]).step(run_for(10 * S));
    let spinners = scene.task("spinner", program);
    (spinners.instances, spinners.group) = (4, Some(apart));
    scene.workload.choose_aggregate("taskgroup:/apart=off").unwrap();
    scene.workload.choose_aggregate("taskgroup:/together=group:/together").unwrap();
    for scheduler in BOTH {
        let run = scene.run(TWO_LLCS_OF_8, scheduler);
        assert_eq!(run.tasks_per_llc(900 * MS), [2, 2], "{scheduler}: while it is off");
        assert_eq!(split(&run, "spinner"), [4, 0], "{scheduler}: in the other group");
    }
}

/// Threads that go to and fro between a group and none, so that scans are asked for in one and due in the other.
#[test]
fn a_thread_that_has_left_its_group_does_not_scan_for_it() {
    let mut scene = Scene::lasting(100 * MS);
    let [apart, together] = ["/apart", "/together"].map(|name| scene.workload.add_group(name));
    let turn = [Step::SetGroup(together), run_for(5 * US), Step::SetGroup(apart), run_for(5 * US)];
    let wanderers = scene.task("wanderer", forever(turn));
    (wanderers.instances, wanderers.group) = (4, Some(apart));
    scene.workload.choose_aggregate("taskgroup:/apart=off").unwrap();
    scene.workload.choose_aggregate("taskgroup:/together=group:/together").unwrap();
    for scheduler in BOTH {
        let run = scene.run(TWO_LLCS_OF_8, scheduler);
        assert_eq!(run.outcome.elapsed_ns, 100 * MS, "{scheduler}");
    }
}
