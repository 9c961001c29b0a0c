//! `cfs:kernel=4.9`: what that kernel's rules of load do on a running machine (`docs/spec/linux-fair.md` section 1.16).

mod support;

use support::*;
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
