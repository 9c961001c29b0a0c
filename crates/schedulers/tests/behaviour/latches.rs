//! Active waits for a latch that are interrupted, or that end before its last owner sleeps: no release and no signal is lost, as a word is read
//! whenever its reader runs.

use warmcore_workload::{CpuMax, Latch, Policy, Step};

use crate::support::*;

/// Tasks that wait actively for up to 100 ms.
fn with_latch(wakes_all: bool) -> (Scene, [Step; 2]) {
    let mut scene = Scene::new();
    let latch = scene.workload.add_latch("latch", Latch { spin_ns: 100 * MS, wakes_all, ..Latch::default() });
    (scene, [Step::Lock(latch), Step::Unlock(latch)])
}

fn exit_ns(run: &Run, name: &str) -> u64 {
    run.outcome.tasks[run.id(name).index()].exited_ns.expect("it ends")
}

/// By hand: 40 ms of work, and polling in no more than the few turns in which the other one holds the latch for 10 ms.
#[test]
fn two_tasks_on_one_cpu_do_not_lose_a_latchs_release() {
    for scheduler in ["eevdf", "cfs", "cfs:kernel=4.9", "cache-aware", "rr", "fifo", "ule"] {
        for wakes_all in [false, true] {
            let (mut scene, [lock, unlock]) = with_latch(wakes_all);
            let steps = [lock, run_for(10 * MS), unlock, run_for(10 * MS)];
            scene.task("task", once(steps)).instances = 2;
            let run = scene.run("1s1n1l1c1t", scheduler);
            let end_ns = exit_ns(&run, "task-0").max(exit_ns(&run, "task-1"));
            assert!((40 * MS..55 * MS).contains(&end_ns), "{scheduler}, {wakes_all}: {end_ns}");
        }
    }
}

/// The owner gives the latch back while a real-time task has the poller's CPU from 5 to 30 ms.
#[test]
fn a_poller_that_a_real_time_task_has_preempted_sees_the_release_when_it_runs_again() {
    for wakes_all in [false, true] {
        let (mut scene, [lock, unlock]) = with_latch(wakes_all);
        scene.task("owner", once([lock.clone(), run_for(20 * MS), unlock])).affinity = on_cpu(0);
        let poller = scene.task("poller", once([run_for(MS), lock, run_for(MS)]));
        poller.affinity = on_cpu(1);
        let fifo = scene.task("fifo", once([run_for(25 * MS)]));
        (fifo.affinity, fifo.start_ns, fifo.policy) = (on_cpu(1), 5 * MS, Policy::Fifo { priority: 1 });
        let run = scene.run("1s1n1l2c1t", "eevdf");
        assert_near("poller's end", exit_ns(&run, "poller") as f64, 31.0 * MS as f64, 0.02);
    }
}

/// The poller's group has 5 ms of every 100, which are used up when the owner gives the latch back; the next period comes within 100 ms.
#[test]
fn a_poller_whose_group_is_throttled_sees_the_release_when_it_runs_again() {
    for wakes_all in [false, true] {
        let (mut scene, [lock, unlock]) = with_latch(wakes_all);
        scene.task("owner", once([lock.clone(), run_for(50 * MS), unlock])).affinity = on_cpu(0);
        let group = scene.workload.add_group("/pod");
        scene.workload.groups[group.index()].cpu_max = CpuMax::parse("5000 100000", 0).unwrap();
        let poller = scene.task("poller", once([run_for(MS), lock, run_for(MS)]));
        (poller.affinity, poller.group) = (on_cpu(1), Some(group));
        let run = scene.run("1s1n1l2c1t", "eevdf");
        let end_ns = exit_ns(&run, "poller");
        assert!((50 * MS..105 * MS).contains(&end_ns), "{wakes_all}: {end_ns}");
    }
}

/// Who polls for 15 ms has been preempted when the latch is given back, and its time is over right when it looks: the call that sleeps
/// compares the word. Whatever the spinner's patience is, nobody sleeps for ever.
#[test]
fn whatever_its_patience_is_no_poller_sleeps_beside_a_free_latch() {
    for spin_ns in (1..=60).map(|half_ms| half_ms * MS / 2) {
        let mut scene = Scene::new();
        let latch = scene.workload.add_latch("latch", Latch { spin_ns, ..Latch::default() });
        let steps = [Step::Lock(latch), run_for(10 * MS), Step::Unlock(latch), run_for(10 * MS)];
        scene.task("task", once(steps)).instances = 3;
        let run = scene.run("1s1n1l1c1t", "eevdf");
        let end_ns = (0..3).map(|index| exit_ns(&run, &format!("task-{index}"))).max().unwrap();
        assert!(end_ns < 100 * MS, "{spin_ns}: {end_ns}");
    }
}

/// The lock is given back before the call in which the waiter begins to sleep: who polls for it signals meanwhile, and the waiter never sleeps.
/// It signals in turn, and that one has slept by then.
#[test]
fn a_signal_that_comes_before_the_waiter_sleeps_is_not_lost() {
    for scheduler in ["eevdf", "cfs", "rr"] {
        let mut scene = Scene::new();
        let lock = scene.workload.add_latch("latch", Latch { spin_ns: 100 * MS, ..Latch::default() });
        let condition = scene.workload.add_condition("condition");
        let [take, give] = [Step::Lock(lock), Step::Unlock(lock)];
        let [wait, exchange] = [Step::Wait { condition, lock }, Step::SignalAndWait { condition, lock }];
        let signal = Step::Signal(condition);
        let waits = [take.clone(), run_for(5 * MS), wait, run_for(10 * US), signal, give.clone(), run_for(10 * US)];
        scene.task("waiter", once(waits)).affinity = on_cpu(0);
        let signals = [run_for(MS), take, exchange, give, run_for(10 * US)];
        scene.task("signaller", once(signals)).affinity = on_cpu(1);
        let run = scene.run("1s1n1l2c1t", scheduler);
        assert!(run.outcome.tasks.iter().all(|task| task.exited_ns.is_some()), "{scheduler}: both end");
        assert_eq!(["waiter", "signaller"].map(|name| run.wakeups(name).len()), [0, 1], "{scheduler}");
    }
}
