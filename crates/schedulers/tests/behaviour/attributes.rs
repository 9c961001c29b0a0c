//! Policies, nice values and slices, at the start and while running.

use warmcore_trace::EventKind;
use warmcore_workload::{Affinity, Policy, Step, TimerMode};

use crate::support::*;

/// Share of CPU 0 that a task had within a window.
fn share(run: &Run, name: &str, from_ns: u64, to_ns: u64) -> f64 {
    run.cpu_time_between(name, from_ns, to_ns) as f64 / (to_ns - from_ns) as f64
}

/// 3 against 1024. ± 10 %: the idle task runs one slice in nearly a second.
#[test]
fn an_idle_policy_task_gets_three_thousandths() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::lasting(62 * S);
        scene.task("normal", spin()).affinity = on_cpu(0);
        let idle = scene.task("idle", spin());
        (idle.policy, idle.affinity) = (Policy::Idle, on_cpu(0));
        let run = scene.run("1s1n1l8c1t", scheduler);
        assert_near(scheduler, share(&run, "idle", 2 * S, 62 * S), 3.0 / 1027.0, 0.1);
    }
}

/// Wakeup latencies of a task that sleeps 7 ms and works 1 ms beside a spinner.
fn latencies(scheduler: &str, sleeper: Policy, spinner: Policy) -> Vec<u64> {
    let mut scene = Scene::lasting(2 * S);
    let task = scene.task("spinner", spin());
    (task.affinity, task.policy) = (on_cpu(0), spinner);
    let task = scene.task("sleeper", forever([sleep(7 * MS), run_for(MS)]));
    (task.affinity, task.policy) = (on_cpu(0), sleeper);
    let wakeups = scene.run("1s1n1l8c1t", scheduler).wakeups("sleeper");
    assert!(wakeups.len() > 50);
    wakeups.iter().map(|wakeup| wakeup.latency_ns()).collect()
}

#[test]
fn a_batch_task_never_preempts_on_wakeup() {
    for scheduler in ["eevdf", "cfs"] {
        let normal = latencies(scheduler, Policy::Normal, Policy::Normal);
        let batch = latencies(scheduler, Policy::Batch, Policy::Normal);
        let at_once = |latencies: &[u64]| latencies.iter().filter(|&&latency| latency == WAKEUP_NS).count();
        println!(
            "{scheduler}: {} of {} at once, batch {} of {}",
            at_once(&normal),
            normal.len(),
            at_once(&batch),
            batch.len()
        );
        assert!(10 * at_once(&normal) > 7 * normal.len(), "{scheduler}");
        // One may come just when the spinner's slice is over anyway.
        assert!(50 * at_once(&batch) <= batch.len(), "{scheduler}");
    }
}

/// Without the feature EEVDF leaves a `SCHED_IDLE` task alone too; CFS, which asks for that policy first, does not.
#[test]
fn a_wakeup_preempts_an_idle_policy_task_where_features_let_it() {
    for (scheduler, preempts) in
        [("eevdf", true), ("eevdf:wakeup_preemption=0", false), ("cfs", true), ("cfs:wakeup_preemption=0", true)]
    {
        let latencies = latencies(scheduler, Policy::Normal, Policy::Idle);
        let at_once = latencies.iter().filter(|&&latency| latency == WAKEUP_NS).count();
        assert_eq!(2 * at_once > latencies.len(), preempts, "{scheduler}: {at_once} of {}", latencies.len());
    }
}

/// `normal_policy` of 7.2 is true for `SCHED_EXT` too: under the fair class such a task is one of `SCHED_NORMAL` in all.
#[test]
fn a_task_for_sched_ext_preempts_on_wakeup_as_a_normal_one_does() {
    for scheduler in ["eevdf", "cache-aware"] {
        let normal = latencies(scheduler, Policy::Normal, Policy::Normal);
        assert_eq!(latencies(scheduler, Policy::Ext, Policy::Normal), normal, "{scheduler}");
        assert_eq!(latencies(scheduler, Policy::Ext, Policy::Ext), normal, "{scheduler}");
    }
}

#[test]
fn any_task_preempts_an_idle_policy_task_at_once() {
    for scheduler in ["eevdf", "cfs"] {
        assert!(
            latencies(scheduler, Policy::Normal, Policy::Idle).iter().all(|&latency| latency == WAKEUP_NS),
            "{scheduler}"
        );
    }
}

#[test]
fn an_idle_policy_task_never_preempts() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::lasting(20 * S);
        scene.task("spinner", spin()).affinity = on_cpu(0);
        let task = scene.task("sleeper", forever([sleep(7 * MS), run_for(10 * US)]));
        (task.affinity, task.policy) = (on_cpu(0), Policy::Idle);
        let wakeups = scene.run("1s1n1l8c1t", scheduler).wakeups("sleeper");
        assert!(!wakeups.is_empty() && wakeups.iter().all(|wakeup| wakeup.latency_ns() > 0), "{scheduler}");
    }
}

/// CPUs that run nothing but idle-policy spinners are as good as idle for a waking task, which then never waits.
#[test]
fn cpus_of_idle_policy_tasks_count_as_idle_for_others() {
    let mut scene = Scene::lasting(S);
    let background = scene.task("background", spin());
    (background.instances, background.policy) = (8, Policy::Idle);
    scene.task("worker", forever([run_for(500 * US), sleep(MS)])).instances = 6;
    let run = scene.run("1s1n1l8c1t", "eevdf");
    for n in 0..6 {
        let wakeups = run.wakeups(&format!("worker-{n}"));
        assert!(wakeups.len() > 400);
        let late = wakeups.iter().filter(|wakeup| wakeup.latency_ns() > 10 * US).count();
        assert!(100 * late < wakeups.len(), "worker {n}: {late} of {} waited", wakeups.len());
    }
}

/// While idle-policy spinners sleep, their LLC is noted to have idle cores. A wakeup that then looks for a core finds none, and
/// takes a thread that only such a spinner has (`select_idle_core`).
#[test]
fn a_search_for_an_idle_core_takes_a_thread_of_an_idle_policy_task() {
    let mut scene = Scene::lasting(200 * MS);
    let semaphore = scene.workload.add_semaphore("semaphore", 0);
    let waker = scene.task("waker", once([run_for(100 * MS), Step::SemPost(semaphore), run_for(S)]));
    waker.affinity = on_cpu(0);
    scene.task("hog", once([run_for(S)])).affinity = on_cpu(2);
    let steps = [run_for(MS), Step::SetAffinity(Affinity::All), Step::SemWait(semaphore), run_for(10 * MS)];
    scene.task("wakee", once(steps)).affinity = on_cpu(2);
    for cpu in [1, 3, 4, 5, 6, 7] {
        let spinner = scene.task(&format!("background-{cpu}"), once([run_for(10 * MS), sleep(10 * MS), run_for(S)]));
        (spinner.affinity, spinner.policy) = (on_cpu(cpu), Policy::Idle);
    }
    let run = scene.run("1s1n1l4c2t", "eevdf:delay_dequeue=0,sis_util=0");
    let wakeups = run.wakeups("wakee");
    // The running spinner is asked to give way lazily, so until the next tick.
    assert!(wakeups[0].waking_ns > 90 * MS && wakeups[0].latency_ns() < 4 * MS, "{} ns", wakeups[0].latency_ns());
    assert!(![0, 2].contains(&wakeups[0].cpu), "{}", wakeups[0].cpu);
}

/// What a switch takes: the timer that ends a turn counts from its end.
const SWITCH_NS: u64 = 1_200;

/// By the rule of 7.3: a task that uses a hundredth is eligible whenever it wakes, so with a shorter request than three hogs it runs at once. Under 7.2 one
/// of these with an earlier deadline keeps it from that now and then.
#[test]
fn since_7_3_an_eligible_short_request_preempts_whoever_has_the_earliest_deadline() {
    let late = |kernel: &str| {
        let mut scene = Scene::lasting(3 * S);
        for name in ["one", "two", "three"] {
            scene.task(name, spin());
        }
        scene.task("short", forever([run_for(50 * US), sleep(5_130 * US)])).slice_ns = Some(300 * US);
        let run = scene.run("1s1n1l1c1t", &format!("eevdf:base_slice_ns=3000000,kernel={kernel}"));
        let wakeups = run.wakeups("short");
        assert!(wakeups.len() > 500, "{kernel}: {}", wakeups.len());
        wakeups[1..].iter().filter(|wakeup| wakeup.latency_ns() > 100 * US).count()
    };
    let [before, since] = ["7.2", "7.3"].map(late);
    assert!(before >= 3 && since == 0, "{before} waits under 7.2, {since} under 7.3");
}

/// Between 0.1 and 100 ms.
#[test]
fn slices_set_by_hand_are_clamped() {
    for (slice_ns, expected) in [(1, 100 * US), (20 * MS, 20 * MS), (S, 100 * MS)] {
        let mut scene = Scene::lasting(4 * S);
        for name in ["a", "b"] {
            let task = scene.task(name, spin());
            (task.affinity, task.slice_ns) = (on_cpu(0), Some(slice_ns));
        }
        let run = scene.run("1s1n1l8c1t", "eevdf");
        let lengths: Vec<u64> = run.stays_from("a", S).iter().map(|stay| stay.length_ns()).collect();
        assert!(
            !lengths.is_empty() && lengths.iter().all(|length| (expected..=expected + SWITCH_NS).contains(length)),
            "{slice_ns}: {:?}",
            lengths.first()
        );
    }
}

/// Beside a task of 10 ms requests: with an equal request its stays are exactly that and a switch, with the default one they end at the first
/// look after 2.8 ms.
#[test]
fn a_slice_can_be_set_while_running_and_taken_back() {
    let mut scene = Scene::lasting(5 * S);
    let other = scene.task("other", spin());
    (other.affinity, other.slice_ns) = (on_cpu(0), Some(10 * MS));
    let steps = [run_for(500 * MS), Step::SetSlice { slice_ns: 10 * MS }, run_for(S), Step::SetSlice { slice_ns: 0 }];
    scene.task("task", then_forever(steps, [run_for(S)])).affinity = on_cpu(0);
    let run = scene.run("1s1n1l8c1t", "eevdf");
    // It has half of the CPU: 0.5 s of work last until 1 s, the next second until 3 s.
    let lengths = |from_ns, to_ns| {
        let stays = run.stays_from("task", from_ns);
        stays.iter().filter(|stay| stay.end_ns < to_ns).map(|stay| stay.length_ns()).collect::<Vec<u64>>()
    };
    assert!(mean(lengths(100 * MS, 900 * MS)) < 6.0 * MS as f64);
    assert!(lengths(1_200 * MS, 2_800 * MS).iter().all(|length| (10 * MS..=10 * MS + SWITCH_NS).contains(length)));
    assert!(mean(lengths(3_200 * MS, 5 * S)) < 6.0 * MS as f64);
}

/// ± 2 %.
#[test]
fn renice_while_running_changes_the_share_and_costs_nothing() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::lasting(12 * S);
        scene.task("other", spin()).affinity = on_cpu(0);
        // 2 s of work take 4 s at an even share, then 3.06 : 1 against it.
        let steps = [run_for(2 * S), Step::SetNice(5)];
        scene.task("task", then_forever(steps, [run_for(S)])).affinity = on_cpu(0);
        let run = scene.run("1s1n1l8c1t", scheduler);
        assert_near(scheduler, share(&run, "task", 500 * MS, 3_500 * MS), 0.5, 0.02);
        assert_near(scheduler, share(&run, "task", 4_500 * MS, 11_500 * MS), 335.0 / 1359.0, 0.02);
    }
}

/// A task that renices itself again and again must not gain or lose by it.
#[test]
fn renice_keeps_the_lag() {
    let mut scene = Scene::lasting(10 * S);
    for name in ["other", "another"] {
        scene.task(name, spin()).affinity = on_cpu(0);
    }
    let steps = [run_for(300 * US), Step::SetNice(10), Step::SetNice(0)];
    scene.task("task", forever(steps)).affinity = on_cpu(0);
    let run = scene.run("1s1n1l8c1t", "eevdf");
    assert_near("share", share(&run, "task", S, 10 * S), 1.0 / 3.0, 0.02);
}

/// A kernel protects a slice when a task is picked, and not anew when the running one is changed. Guests of 7.2 (`book/slice-changes-often.toml`):
/// stays of 1.5 ms of a task that asks for 8 and 12 ms by turns. (`book/group-changes-often.toml` has a task that changes its group.)
#[test]
fn a_running_task_that_changes_often_is_not_protected_anew() {
    let mut scene = Scene::lasting(4 * S);
    for name in ["other", "another"] {
        scene.task(name, spin()).affinity = on_cpu(0);
    }
    let slice_of = |slice_ms: u64| Step::SetSlice { slice_ns: slice_ms * MS };
    let steps = [slice_of(8), run_for(400 * US), slice_of(12), run_for(450 * US)];
    scene.task("changer", forever(steps)).affinity = on_cpu(0);
    let run = scene.run("1s1n1l2c1t", "eevdf");
    let stays = run.stays_from("changer", S);
    let mean_ns = stays.iter().map(|stay| stay.length_ns()).sum::<u64>() / stays.len() as u64;
    assert!((US..3 * MS).contains(&mean_ns), "{mean_ns}");
}

#[test]
fn a_task_can_change_its_policy_while_running() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::lasting(10 * S);
        scene.task("other", spin()).affinity = on_cpu(0);
        let steps = [run_for(S), Step::SetPolicy(Policy::Idle), run_for(10 * MS), Step::SetPolicy(Policy::Normal)];
        scene.task("task", then_forever(steps, [run_for(S)])).affinity = on_cpu(0);
        let run = scene.run("1s1n1l8c1t", scheduler);
        assert_near(scheduler, share(&run, "task", 200 * MS, 1_800 * MS), 0.5, 0.02);
        // 10 ms of work at 0.3 % take 3.4 s.
        assert!(share(&run, "task", 2_200 * MS, 4 * S) < 0.02, "{scheduler}");
        assert_near(scheduler, share(&run, "task", 7 * S, 10 * S), 0.5, 0.02);
    }
}

/// Three spinners of which one yields after each 100 µs: it forfeits the rest of its request again and again, so it gets
/// no more than the others and they lose nothing to it.
#[test]
fn yielding_forfeits_the_rest_of_the_request() {
    let mut scene = Scene::lasting(2 * S);
    for name in ["a", "b"] {
        scene.task(name, spin()).affinity = on_cpu(0);
    }
    scene.task("yields", forever([run_for(100 * US), Step::Yield])).affinity = on_cpu(0);
    let run = scene.run("1s1n1l8c1t", "eevdf");
    assert!(share(&run, "yields", 100 * MS, 2 * S) < 0.06);
    assert_near("the others' shares", share(&run, "a", 100 * MS, 2 * S), share(&run, "b", 100 * MS, 2 * S), 0.01);
}

#[test]
fn round_robin_takes_turns_of_a_quantum() {
    let mut scene = Scene::lasting(3 * S);
    for name in ["a", "b", "c"] {
        let task = scene.task(name, spin());
        (task.affinity, task.nice) = (on_cpu(0), 5);
    }
    let run = scene.run("1s1n1l8c1t", "rr:quantum_ns=20000000");
    for name in ["a", "b", "c"] {
        let stays = run.stays_from(name, 100 * MS);
        assert!(stays.len() > 40 && stays.iter().all(|stay| stay.length_ns() == 20 * MS));
        assert!(stays.windows(2).all(|pair| pair[1].start_ns - pair[0].end_ns == 40 * MS));
    }
}

/// One queue for all: as long as a task waits, no CPU is idle.
#[test]
fn round_robin_leaves_no_cpu_idle_while_a_task_waits() {
    let mut scene = Scene::lasting(S);
    scene.task("spinner", spin()).instances = 5;
    let run = scene.run("1s1n1l4c1t", "rr");
    let busy: u64 = run.outcome.cpus.iter().map(|cpu| cpu.busy_ns).sum();
    assert!(busy > 4 * S - MS);
    assert!(run.outcome.tasks.iter().all(|task| task.cpu_time_ns > 700 * MS && task.cpu_time_ns < 900 * MS));
}

/// All CPUs queue and pick under one lock, whose lines travel between them: on many CPUs that is the limit, on one it is nothing.
#[test]
fn round_robins_queue_serves_one_cpu_at_a_time() {
    let switches = |machine: &str, cpus: u32, scheduler: &str| {
        let mut scene = Scene::lasting(5 * MS);
        for cpu in 0..cpus {
            // Two that stay on a CPU, so that nothing but the lock connects CPUs.
            let task = scene.task(&format!("yielder {cpu}"), forever([run_for(US), Step::Yield]));
            (task.instances, task.affinity) = (2, on_cpu(cpu));
        }
        let run = scene.run(machine, scheduler);
        run.events.iter().filter(|event| matches!(event.kind, EventKind::Switch { .. })).count()
    };
    let both = |machine, cpus| (switches(machine, cpus, "rr"), switches(machine, cpus, "rr:global_lock=0"));
    let (locked, free) = both("2s1n4l8c1t", 64);
    assert!(free > 2 * locked, "64 CPUs: {locked} switches, {free} without the lock's cost");
    let (locked, free) = both("1s1n1l1c1t", 1);
    assert!(locked < free && 100 * locked > 95 * free, "1 CPU: {locked} switches, {free} without the lock's cost");
}

/// A period of 24 ms for up to 8 tasks, then 3 ms each (8 CPUs and more). The first tick at which a task has run for longer than
/// its part ends its stay; exactly as long is not longer.
#[test]
fn cfs_divides_a_period() {
    for (tasks, expected_ms) in [(2, 16), (3, 12), (6, 8), (12, 4)] {
        let mut scene = Scene::lasting(3 * S);
        let task = scene.task("spinner", spin());
        (task.instances, task.affinity) = (tasks, on_cpu(0));
        let run = scene.run("1s1n1l8c1t", "cfs");
        let lengths: Vec<u64> = run.stays_from("spinner-0", S).iter().map(|stay| stay.length_ns()).collect();
        assert!(lengths.len() > 20);
        assert!(lengths.iter().all(|&length| length == expected_ms * MS), "{tasks} spinners: {:?}", &lengths[..4]);
    }
}

/// The wakeup is the preempted task's last work: 0.7 µs, which at weight 3 are 0.24 ms of its virtual time. So it has had more than its
/// share while the other runs, and idle CPUs with room leave it where it is. A kernel moves 0 to 54 such tasks a second (experiment
/// `room-of-idle-policy` of the book, twelve boots); charged to the woken task instead, the wakeup let 250 go.
#[test]
fn a_wakeup_is_charged_to_the_task_that_it_preempts() {
    let mut scene = Scene::lasting(1200 * MS);
    let background = scene.task("background", spin());
    (background.policy, background.instances) = (Policy::Idle, 8);
    let timer = scene.workload.add_timer("unique");
    let period = Step::Timer { timer, period_ns: 10 * MS, mode: TimerMode::Relative };
    scene.task("periodic", forever([run_for(2 * MS), period])).instances = 4;
    let run = scene.run("1s1n2l4c1t", "eevdf");
    let moves = run.moves().iter().filter(|moved| moved.time_ns >= 200 * MS).count();
    println!("{moves} moves in a second");
    assert!(moves <= 60, "{moves} moves in a second");
}
