//! Real-time and deadline tasks above policies, against calculations by hand (`docs/spec/linux-rt.md`).

use warmcore_kernel::{Setup, SetupError};
use warmcore_trace::MigrationKind;
use warmcore_workload::{Affinity, Destination, Policy, Reservation, Step, TimerId, TimerMode, UtilClamp};

use super::quotas::metrics;
use crate::support::*;

/// Those below: two fair classes, one of another kernel, one without groups, a sched_ext program.
const BELOW: [&str; 5] = ["eevdf", "cfs", "ule", "rr", "scx-native"];

fn fifo(priority: u8) -> Policy {
    Policy::Fifo { priority }
}

fn deadline(runtime_ms: u64, deadline_ms: u64, period_ms: u64) -> Policy {
    let [runtime_ns, deadline_ns, period_ns] = [runtime_ms, deadline_ms, period_ms].map(|ms| ms * MS);
    Policy::Deadline(Reservation { runtime_ns, deadline_ns, period_ns })
}

/// Milliseconds of CPU time between two times in ms.
fn used_ms(run: &Run, task: &str, from_ms: u64, to_ms: u64) -> f64 {
    run.cpu_time_between(task, from_ms * MS, to_ms * MS) as f64 / MS as f64
}

/// When a task ended, in ms.
fn ended_ms(run: &Run, task: &str) -> f64 {
    run.outcome.tasks[run.id(task).index()].exited_ns.expect("it ends") as f64 / MS as f64
}

/// By hand: the server waits until its 50 ms are all that is left of the second, runs them, and from then on runs 50 ms of each second. It
/// ends with the tick after that, and pays for what it had too much.
#[test]
fn beside_a_real_time_hog_the_class_below_has_a_twentieth_of_the_cpu_in_one_piece() {
    for scheduler in BELOW {
        let mut scene = Scene::lasting(5 * S);
        scene.task("hog", spin()).policy = fifo(50);
        scene.task("fair", spin());
        let run = scene.run("1s1n1l1c1t", scheduler);
        assert_near(scheduler, used_ms(&run, "fair", 0, 5_000), 250.0, 0.04);
        let stays: Vec<Stay> = run.stays("fair").into_iter().filter(|stay| stay.length_ns() > MS).collect();
        assert_eq!(stays.len(), 5, "{scheduler}: {stays:?}");
        for (second, stay) in stays.iter().enumerate() {
            let from_ms = stay.start_ns / MS;
            let due_ms = 950 + 1_000 * second as u64;
            assert!(from_ms.abs_diff(due_ms) <= 6, "{scheduler}: {from_ms} ms instead of {due_ms}");
        }
    }
}

/// By hand: a task that sleeps for 1 ms after each 0.2 ms has a sixth of the time while its server has time left. Of the first second that is a sixth of
/// the last 50 ms, of each of the five others the server's 50 ms: 258 ms, give or take a tick for each second.
#[test]
fn a_server_that_has_begun_serves_a_task_that_sleeps_in_between() {
    for scheduler in BELOW {
        let mut scene = Scene::lasting(6 * S);
        scene.task("hog", spin()).policy = fifo(20);
        scene.task("naps", forever([run_for(200 * US), sleep(MS)]));
        let run = scene.run("1s1n1l1c1t", scheduler);
        let used = used_ms(&run, "naps", 0, 6_000);
        assert!((used - 258.3).abs() < 6.0 * 4.0, "{scheduler}: {used} ms");
    }
}

/// By hand: what is queued as the run begins starts a server that waits as any other, so the real-time task has its 60 ms at once.
#[test]
fn a_server_of_the_first_moment_waits_as_any_other() {
    for scheduler in BELOW {
        let mut scene = Scene::new();
        scene.task("fair", once([run_for(100 * MS)]));
        scene.task("urgent", once([run_for(60 * MS)])).policy = fifo(50);
        let run = scene.run("1s1n1l1c1t", scheduler);
        assert!((60.0..62.0).contains(&ended_ms(&run, "urgent")), "{scheduler}: {}", ended_ms(&run, "urgent"));
        assert!((160.0..163.0).contains(&ended_ms(&run, "fair")), "{scheduler}: {}", ended_ms(&run, "fair"));
    }
}

#[test]
fn with_a_second_cpu_the_class_below_is_on_the_other() {
    for scheduler in ["eevdf", "cfs", "cache-aware", "rr"] {
        let mut scene = Scene::lasting(2 * S);
        scene.task("hog", spin()).policy = fifo(50);
        scene.task("fair", spin());
        let run = scene.run("1s1n1l2c1t", scheduler);
        assert!(used_ms(&run, "hog", 0, 2_000) > 1_990.0, "{scheduler}");
        assert!(used_ms(&run, "fair", 100, 2_000) > 1_880.0, "{scheduler}: {}", used_ms(&run, "fair", 100, 2_000));
    }
}

/// A task that runs 6 ms of 10 above them leaves a fair one 40 % of its CPU; beside an idle CPU that is too little, whichever of the two is the other's.
#[test]
fn a_fair_task_leaves_a_cpu_of_reduced_capacity_for_an_idle_one() {
    for scheduler in ["eevdf", "cfs", "cache-aware", "topology-aware"] {
        for brief in 0..2 {
            let mut scene = Scene::lasting(3 * S);
            let periodic = scene.task("periodic", forever([run_for(6 * MS), sleep(4 * MS)]));
            (periodic.policy, periodic.affinity) = (fifo(50), on_cpu(0));
            for (number, name) in ["one", "other"].into_iter().enumerate() {
                scene.task(name, if number == brief { once([run_for(200 * MS)]) } else { spin() });
            }
            let run = scene.run("1s1n1l2c1t", scheduler);
            let stays = ["one", "other"][1 - brief];
            assert!(
                used_ms(&run, stays, 1_500, 3_000) > 1_490.0,
                "{scheduler}: {stays} {}",
                used_ms(&run, stays, 1_500, 3_000)
            );
        }
    }
}

/// A spinner that turns into a real-time task while it runs goes on without a switch. The two fair tasks then share the other CPU, also the one that was next
/// to it: nothing but its CPU's capacity and count of tasks says so, and the server's first 50 ms come later.
#[test]
fn fair_tasks_leave_a_task_that_turned_real_time_while_it_ran() {
    for scheduler in ["eevdf", "cfs"] {
        let mut scene = Scene::lasting(2 * S);
        let turns = then_forever([run_for(300 * MS), Step::SetPolicy(fifo(50))], [run_for(S)]);
        scene.task("turns", turns).affinity = on_cpu(0);
        scene.task("brief", once([run_for(300 * MS)])).affinity = on_cpu(1);
        scene.task("one", spin());
        scene.task("other", spin());
        let run = scene.run("1s1n1l2c1t", scheduler);
        let used = ["turns", "one", "other"].map(|task| used_ms(&run, task, 1_100, 1_400));
        assert!(used[0] > 295.0 && used[1].min(used[2]) > 100.0, "{scheduler}: {used:?}");
    }
}

/// By hand: where fair tasks get 50 ms in each second by themselves, the server has nothing to do, and the real-time task waits for nobody.
#[test]
fn a_server_that_is_not_needed_does_not_run() {
    let mut scene = Scene::lasting(5 * S);
    scene.task("periodic", forever([run_for(80 * MS), sleep(20 * MS)])).policy = fifo(50);
    scene.task("fair", spin());
    let run = scene.run("1s1n1l1c1t", "eevdf");
    let stays = run.stays("periodic");
    assert!(stays.len() >= 48 && stays[..48].iter().all(|stay| stay.length_ns() >= 79 * MS), "{stays:?}");
    assert_near("a fifth", used_ms(&run, "fair", 0, 5_000), 1_000.0, 0.02);
}

#[test]
fn two_round_robin_tasks_take_turns_of_100_ms_and_two_of_fifo_none() {
    for (policy, turns) in [(Policy::RoundRobin { priority: 5 }, 10), (fifo(5), 1)] {
        let mut scene = Scene::lasting(1_990 * MS);
        for name in ["a", "b"] {
            scene.task(name, spin()).policy = policy;
        }
        let run = scene.run("1s1n1l1c1t", "eevdf");
        let stays = run.stays("a");
        assert_eq!(stays.len(), turns, "{policy:?}: {stays:?}");
        if turns > 1 {
            // The first turn ends with the 25th tick, which comes up to a tick early.
            assert!(stays[1..9].iter().all(|stay| stay.length_ns().abs_diff(100 * MS) < 10 * US), "{stays:?}");
        }
    }
}

#[test]
fn a_higher_priority_preempts_at_once_and_an_equal_or_lower_one_waits() {
    for (priority, waits) in [(51, false), (50, true), (49, true)] {
        let mut scene = Scene::new();
        scene.task("runs", once([run_for(30 * MS)])).policy = fifo(50);
        scene.task("wakes", once([sleep(10 * MS), run_for(MS)])).policy = fifo(priority);
        let run = scene.run("1s1n1l1c1t", "eevdf");
        let ended = ended_ms(&run, "wakes");
        // Both are created before the first runs; who is lower or later sleeps only when that is done.
        assert_eq!(ended > 29.0, waits, "{priority}: {ended} ms");
    }
}

/// By hand: the first CPU's task cannot move, the second one's is lower; so who wakes on the first is run on the second.
#[test]
fn who_cannot_run_at_once_goes_where_a_lower_priority_runs() {
    let mut scene = Scene::lasting(200 * MS);
    let task = scene.task("high", spin());
    (task.policy, task.affinity) = (fifo(90), on_cpu(0));
    let task = scene.task("low", spin());
    (task.policy, task.affinity) = (fifo(10), on_cpu(1));
    scene.task("middle", forever([run_for(2 * MS), sleep(3 * MS)])).policy = fifo(50);
    let run = scene.run("1s1n1l2c1t", "eevdf");
    let stays = run.stays("middle");
    assert!(stays.len() > 30 && stays.iter().all(|stay| stay.cpu == 1), "{stays:?}");
    assert!(stays.iter().all(|stay| stay.length_ns() < 3 * MS), "nobody preempts it: {stays:?}");
}

/// By hand, of `cpumask_any_and_distribute`: a CPU remembers one last choice. After a task has left CPU 3 for one of the others, a real-time task
/// that wakes there below another goes to the next one.
#[test]
fn choices_among_equal_cpus_go_on_from_the_last_one_whoever_it_was_for() {
    let mut scene = Scene::lasting(60 * MS);
    let leaves = then_forever([run_for(5 * MS), Step::SetAffinity(on_cpus([0, 1, 2]))], [run_for(S)]);
    scene.task("leaves", leaves).affinity = on_cpu(3);
    let woken = then_forever([run_for(MS), Step::SetAffinity(Affinity::All), sleep(20 * MS)], [run_for(S)]);
    let task = scene.task("woken", woken);
    (task.policy, task.affinity) = (fifo(50), on_cpu(3));
    let task = scene.task("above", then_forever([sleep(15 * MS)], [run_for(S)]));
    (task.policy, task.affinity) = (fifo(90), on_cpu(3));
    let run = scene.run("1s1n1l4c1t", "eevdf");
    assert_eq!(run.place("above", 40 * MS), 3);
    assert_eq!(run.place("woken", 40 * MS), (run.place("leaves", 12 * MS) + 1) % 3);
}

/// By hand: three equal tasks on two CPUs; one of the CPUs loses its task at 50 ms and asks for the one that waits on the other.
#[test]
fn a_cpu_that_runs_out_of_real_time_tasks_gets_one_that_waits_elsewhere() {
    let mut scene = Scene::new();
    scene.task("short", once([run_for(50 * MS)])).policy = fifo(50);
    scene.task("long", once([run_for(200 * MS)])).policy = fifo(50);
    scene.task("waits", once([run_for(100 * MS)])).policy = fifo(40);
    let run = scene.run("1s1n1l2c1t", "eevdf");
    let ended = ended_ms(&run, "waits");
    assert!((150.0..151.0).contains(&ended), "{ended} ms");
}

/// By hand: 10 ms of each 100 however greedy it is, so ten periods end after 910 ms.
/// By hand: 2 ms of each 10 for the deadline task, by turns on both CPUs. Whom it preempts stays there (`set_next_task_dl` pushes no task of
/// fixed priority), so the two others lose a tenth each, and no CPU idles beside a task that waits.
#[test]
fn a_task_of_fixed_priority_that_a_deadline_task_preempts_stays() {
    for policy in [fifo(10), Policy::RoundRobin { priority: 10 }] {
        for beside in [false, true] {
            let mut scene = Scene::lasting(2 * S);
            scene.task("fixed", spin()).policy = policy;
            scene.task("deadline", spin()).policy = deadline(2, 10, 10);
            if beside {
                scene.task("fair", spin());
            }
            let run = scene.run("1s1n1l2c1t", "eevdf");
            assert_near("deadline", used_ms(&run, "deadline", 0, 2_000), 400.0, 0.01);
            assert_near("fixed", used_ms(&run, "fixed", 0, 2_000), 1_800.0, 0.01);
            if beside {
                assert_near("fair", used_ms(&run, "fair", 0, 2_000), 1_800.0, 0.01);
            }
        }
    }
}

#[test]
fn a_greedy_deadline_task_has_its_reservation_and_no_more() {
    for scheduler in BELOW {
        let mut scene = Scene::lasting(3 * S);
        scene.task("greedy", spin()).policy = deadline(10, 100, 100);
        scene.task("fair", spin());
        let run = scene.run("1s1n1l1c1t", scheduler);
        assert_near(scheduler, used_ms(&run, "greedy", 0, 3_000), 300.0, 0.02);
        assert_near(scheduler, used_ms(&run, "fair", 0, 3_000), 2_700.0, 0.02);
        let stays = run.stays("greedy");
        assert_eq!(stays.len(), 30, "{scheduler}");
        assert!(stays.iter().all(|stay| stay.length_ns().abs_diff(10 * MS) < 100 * US), "{scheduler}: {stays:?}");
    }
}

/// By hand: 30 ms each, due at 100, 60 and 80 ms: the two earliest begin, and when they end at 30 ms the third begins, on either CPU.
#[test]
fn of_three_deadline_tasks_on_two_cpus_the_two_earliest_run() {
    let mut scene = Scene::new();
    for (name, due_ms) in [("late", 100), ("early", 60), ("middle", 80)] {
        scene.task(name, once([run_for(30 * MS)])).policy = deadline(35, due_ms, 100);
    }
    let run = scene.run("1s1n1l2c1t", "eevdf");
    for (name, ends_ms) in [("early", 30), ("middle", 30), ("late", 60)] {
        let ended = ended_ms(&run, name);
        assert!((ended - f64::from(ends_ms)).abs() < 1.5, "{name}: {ended} ms");
    }
    assert!(run.moves().iter().all(|step| step.kind == MigrationKind::Balance), "{:?}", run.moves());
}

/// By hand: it runs from 0 to 1.9 ms, is woken at 8.9 and a little, past its deadline of 3 ms, and runs again when its next period begins at 50 ms
/// (`dl_check_constrained_dl`). From waking to running, as tracepoints have it, these are 41 ms, in which no CPU is to blame.
#[test]
fn a_deadline_task_that_is_woken_before_its_next_period_waits_from_its_waking() {
    for scheduler in BELOW {
        let mut scene = Scene::lasting(300 * MS);
        scene.task("task", forever([Step::RunTime { cpu_ns: 1_900 * US }, sleep(7 * MS)])).policy = deadline(2, 3, 50);
        let run = scene.run("1s1n1l1c1t", scheduler);
        let task = &metrics(&run).tasks[run.id("task").index()];
        let spans = run.wakeups("task");
        let longest_ns = spans.iter().map(WakeupSpan::latency_ns).max().unwrap();
        assert_near(scheduler, longest_ns as f64, 41.0 * MS as f64, 0.01);
        assert_eq!((task.wakeup_latency.max_ns, task.preempt_wait.count), (longest_ns, 0), "{scheduler}");
        assert!(
            task.throttled_wait_ns > 5 * 40 * MS && task.throttled_wait_ns <= task.throttled_ns,
            "{scheduler}: {task:?}"
        );
        assert_eq!(metrics(&run).totals.work_conservation_violation_ns, 0, "{scheduler}");
    }
}

/// By hand: 4 ms every 20 ms with a reservation of 5 in 20: it is never throttled, and no fair or real-time task delays it.
#[test]
fn a_periodic_deadline_task_within_its_reservation_never_waits() {
    for scheduler in BELOW {
        let mut scene = Scene::lasting(2 * S);
        scene.workload.timers.push("tick".into());
        let timer = Step::Timer { timer: TimerId(0), period_ns: 20 * MS, mode: TimerMode::Absolute };
        scene.task("periodic", forever([run_for(4 * MS), timer])).policy = deadline(5, 20, 20);
        scene.task("hog", spin()).policy = fifo(99);
        scene.task("fair", spin()).instances = 3;
        let run = scene.run("1s1n1l1c1t", scheduler);
        let stays = run.stays("periodic");
        assert!(stays.len() >= 99, "{scheduler}: {}", stays.len());
        assert!(stays[1..99].iter().all(|stay| stay.length_ns().abs_diff(4 * MS) < 100 * US), "{scheduler}: {stays:?}");
    }
}

#[test]
fn a_task_that_changes_between_all_classes_is_never_lost() {
    for scheduler in BELOW {
        let mut scene = Scene::new();
        let program = [
            run_for(5 * MS),
            Step::SetPolicy(fifo(10)),
            run_for(5 * MS),
            Step::SetPolicy(deadline(5, 20, 20)),
            run_for(8 * MS),
            Step::SetPolicy(Policy::RoundRobin { priority: 20 }),
            run_for(5 * MS),
            sleep(MS),
            Step::SetPolicy(Policy::Normal),
            run_for(5 * MS),
        ];
        scene.task("changes", once(program)).instances = 4;
        scene.task("stays", times(50, [run_for(MS), sleep(200 * US)])).instances = 3;
        let run = scene.run("1s1n1l2c1t", scheduler);
        assert_eq!(run.outcome.end, warmcore_trace::End::AllExited, "{scheduler}");
    }
}

/// By hand: nine of ten CPUs' tenths fit into 0.95 of one CPU, ten do not; bound ones are refused whatever they reserve.
#[test]
fn more_deadline_bandwidth_than_there_is_and_bound_deadline_tasks_are_refused() {
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let two = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
    let mut scene = Scene::new();
    let task = scene.task("tenth", once([run_for(MS)]));
    (task.policy, task.instances) = (deadline(10, 100, 100), 9);
    assert!(Setup::new(&machine, &scene.workload, 1).is_ok());
    scene.workload.tasks[0].instances = 10;
    let refused = Setup::new(&machine, &scene.workload, 1).err().expect("ten tenths are too many");
    assert!(matches!(refused, SetupError::DeadlineBandwidth { .. }), "{refused}");
    assert!(refused.to_string().contains("reserve 0.99999 CPUs together, and 0.95000 can be"), "{refused}");
    assert!(Setup::new(&two, &scene.workload, 1).is_ok());
    scene.workload.tasks[0].affinity = on_cpu(1);
    let refused = Setup::new(&two, &scene.workload, 1).err().expect("bound");
    assert!(refused.to_string().contains("task `tenth` is of SCHED_DEADLINE and bound"), "{refused}");
    assert!(refused.to_string().contains("EPERM"), "{refused}");
    // It gets another error if it binds itself when it is one, or becomes one when it has bound itself.
    for (policy, steps, errno) in [
        (deadline(1, 10, 10), [Step::SetAffinity(on_cpu(1)), run_for(MS)], "EBUSY"),
        (Policy::Normal, [Step::SetAffinity(on_cpu(1)), Step::SetPolicy(deadline(1, 10, 10))], "EPERM"),
    ] {
        let mut scene = Scene::new();
        scene.task("binds", once(steps)).policy = policy;
        let refused = Setup::new(&two, &scene.workload, 1).err().expect("bound");
        assert!(matches!(&refused, SetupError::BoundDeadline { errno: found, .. } if *found == errno), "{refused}");
    }
    // Nor does anybody bind one later (`dl_task_check_affinity`), except to all CPUs.
    scene.workload.tasks[0].affinity = Affinity::All;
    let bind = |to: Affinity| {
        let mut scene = Scene { workload: scene.workload.clone(), actions: Vec::new() };
        scene.bind(MS, "tenth", Destination::Cpus(to));
        Setup::new(&two, &scene.workload, 1).unwrap().set_actions(&scene.actions)
    };
    assert!(matches!(bind(on_cpu(1)), Err(SetupError::BoundDeadline { errno: "EBUSY", .. })));
    assert!(bind(on_cpus([0, 1])).is_ok() && bind(Affinity::All).is_ok());
}

/// One CPU of 500 to 2000 MHz; times hold at 1000 MHz. What the kernel does takes no time.
fn with_frequencies() -> warmcore_topology::Machine {
    let text = "[topology]\nshape = \"1s1n1l1c1t\"\n[costs]\ncontext_switch_ns = 0\nwakeup_ns = 1\ntick_ns = 0\nidle_exit_ns = 0\n\
                exit_ns = 0\nsyscall_ns = 0\n[[core_kind]]\nreference_mhz = 1000\nmin_mhz = 500\nmax_mhz = 2000";
    warmcore_topology::from_toml(text).unwrap()
}

/// CPU time for each job, in us, of a task with 1 ms of work every 10 ms, in the second of two seconds.
fn job_us(policy: Policy, scheduler: &str) -> f64 {
    let mut scene = Scene::lasting(2 * S);
    let timer = scene.workload.add_timer("grid");
    let period = Step::Timer { timer, period_ns: 10 * MS, mode: TimerMode::Absolute };
    scene.task("job", forever([run_for(MS), period])).policy = policy;
    let run = scene.try_run_on(&with_frequencies(), scheduler, 1).unwrap();
    run.cpu_time_between("job", S, 2 * S) as f64 / US as f64 / 100.0
}

/// By hand: 1 ms at 1000 MHz is a tenth of 2000 MHz or less, which 500 MHz suffice for. A task of fixed priority has 2000 MHz, one with a
/// reservation of a half or three quarters that part of it: 1000 and 1500 MHz.
#[test]
fn schedutil_runs_a_deadline_task_as_fast_as_it_has_reserved_and_one_of_fixed_priority_at_full_speed() {
    let jobs = [(fifo(5), 500.0), (deadline(5, 10, 10), 1000.0), (deadline(15, 20, 20), 667.0)];
    for (policy, expected_us) in jobs {
        for below in ["eevdf:governor=schedutil", "cfs:governor=schedutil"] {
            assert_near(&format!("{policy:?} {below}"), job_us(policy, below), expected_us, 0.02);
        }
    }
}

/// By hand: 2 ms at full speed are 8 ms at a quarter of it, in each 20 ms.
#[test]
fn a_reservation_is_of_a_cpu_at_full_speed() {
    for (governor, expected_ms) in [("performance", 200.0), ("powersave", 800.0)] {
        let mut scene = Scene::lasting(2 * S);
        scene.task("greedy", spin()).policy = deadline(2, 20, 20);
        let run = scene.try_run_on(&with_frequencies(), &format!("eevdf:governor={governor}"), 1).unwrap();
        assert_near(governor, used_ms(&run, "greedy", 0, 2_000), expected_ms, 0.03);
    }
}

/// Of a phone: CPUs 0 to 3 have a capacity of 462, 4 to 7 one of 1024.
fn phone(scene: &Scene, scheduler: &str) -> Run {
    scene.try_run_on(&warmcore_topology::resolve("hikey960").unwrap(), scheduler, 1).unwrap()
}

/// CPUs that a task is on after 20 ms, in order.
fn cpus_of(run: &Run, task: &str) -> Vec<u32> {
    let mut cpus: Vec<u32> = run.stays_from(task, 20 * MS).into_iter().map(|stay| stay.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Begins on little CPU 1, and is free from its first sleep on.
fn freed_on_a_little_cpu(scene: &mut Scene, policy: Policy, request: UtilClamp) {
    let first = [run_for(MS), Step::SetAffinity(Affinity::All)];
    let task = scene.task("wakes", then_forever(first, [sleep(7 * MS), run_for(MS)]));
    (task.policy, task.affinity, task.util_clamp) = (policy, on_cpu(1), request);
}

/// By hand (`rt_task_fits_capacity`): a task of fixed priority needs the lower bound of its clamp, 1024 if it asks for nothing, so its wakeups
/// go to a big CPU; 400 fit into 462, where nobody disturbs it, 500 do not.
#[test]
fn a_task_of_fixed_priority_wakes_on_a_cpu_as_big_as_its_clamp_asks_for() {
    let asks = |least| UtilClamp::new(Some(least), None).unwrap();
    for (request, is_big) in [(UtilClamp::NONE, true), (asks(500), true), (asks(400), false)] {
        for scheduler in ["eevdf", "rr"] {
            let mut scene = Scene::lasting(300 * MS);
            freed_on_a_little_cpu(&mut scene, fifo(20), request);
            let cpus = cpus_of(&phone(&scene, scheduler), "wakes");
            let expected = if is_big { cpus.iter().all(|cpu| *cpu >= 4) } else { cpus == [1] };
            assert!(!cpus.is_empty() && expected, "{scheduler}, {request}: {cpus:?}");
        }
    }
}

/// By hand (`cpupri_find_fitness`, `select_task_rq_rt`): no big CPU runs anything lower, so it stays where it can run at once; where it cannot,
/// as a higher one has that CPU, it takes another little one.
#[test]
fn where_no_big_cpu_is_to_be_had_a_task_of_fixed_priority_takes_a_little_one() {
    for (busy, expected) in [(4..8, &[1][..]), (1..8, &[0][..])] {
        let mut scene = Scene::lasting(300 * MS);
        freed_on_a_little_cpu(&mut scene, fifo(20), UtilClamp::NONE);
        for cpu in busy {
            let task = scene.task(&format!("hog{cpu}"), spin());
            (task.policy, task.affinity, task.start_ns) = (fifo(50), on_cpu(cpu), 4 * MS);
        }
        assert_eq!(cpus_of(&phone(&scene, "eevdf"), "wakes"), expected);
    }
}

/// By hand (`dl_task_fits_capacity`): 6 ms in 10 are 614 of 1024 and fit big CPUs only. Wherever it begins, it does its 5 ms of work in 5 ms and
/// is never throttled, as it would be on a little CPU, where they take 11 ms.
#[test]
fn a_deadline_task_is_on_a_cpu_that_its_reservation_fits() {
    for seed in 1..=4 {
        let mut scene = Scene::lasting(300 * MS);
        let timer = scene.workload.add_timer("grid");
        let period = Step::Timer { timer, period_ns: 10 * MS, mode: TimerMode::Absolute };
        scene.task("large", forever([run_for(5 * MS), period])).policy = deadline(6, 10, 10);
        let run = scene.try_run_on(&warmcore_topology::resolve("hikey960").unwrap(), "eevdf", seed).unwrap();
        let stays = run.stays_from("large", 20 * MS);
        assert!(stays.len() >= 27 && stays.iter().all(|stay| stay.cpu >= 4), "{seed}: {stays:?}");
        assert_near("jobs", run.cpu_time_between("large", 100 * MS, 200 * MS) as f64, 50.0 * MS as f64, 0.02);
        assert_eq!(metrics(&run).tasks[run.id("large").index()].throttled_ns, 0, "{seed}");
    }
}

/// By hand (`cpudl_find`): half a CPU fits the biggest of three alone. When that goes offline none fits, and it wakes on the bigger one of the
/// two that are left.
#[test]
fn a_deadline_task_that_fits_no_cpu_is_on_the_biggest() {
    let text = "[topology]\nshape = \"1s1n1l3c1t\"\ncapacities = [{ cpus = \"0\", capacity = 300 }, { cpus = \"1\", capacity = 500 }]";
    let machine = warmcore_topology::from_toml(text).unwrap();
    let mut scene = Scene::lasting(400 * MS);
    scene.task("half", forever([run_for(MS), sleep(19 * MS)])).policy = deadline(10, 20, 20);
    scene.unplug(200 * MS, 2);
    let run = scene.try_run_on(&machine, "eevdf", 1).unwrap();
    let on = |from_ms: u64, to_ms: u64| -> Vec<u32> {
        let all = run.stays_from("half", from_ms * MS).into_iter().filter(|stay| stay.start_ns < to_ms * MS);
        all.map(|stay| stay.cpu).collect()
    };
    let (before, after) = (on(40, 190), on(260, 400));
    assert!(before.len() >= 5 && before.iter().all(|cpu| *cpu == 2), "{before:?}");
    assert!(after.len() >= 5 && after.iter().all(|cpu| *cpu == 1), "{after:?}");
}
