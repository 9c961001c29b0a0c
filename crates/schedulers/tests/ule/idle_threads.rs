//! Idle CPUs under `ule`: which ones are idle, and when they look for work.

use super::released;
use crate::support::*;
use warmcore_workload::Policy;

/// Threads that are released behind a running one at 4.1 s, beside CPUs that have been idle since the beginning. Those wake every half second and
/// look for work at some of the wakes (docs/spec/ule.md section 10): at 1, 2, 3, 4 and 5 s in FreeBSD 11; at 1.5, 2, 3.5, 4 and 5.5 s in 14; at
/// all with `always_steal`. The port's look at each tick.
#[test]
fn idle_cpus_look_again_at_the_wakes_of_their_idle_threads() {
    let scene = released(3, 4_100 * MS, 2 * S);
    for (spec, looks_ms) in
        [("", 5_000), ("profile=modern,", 5_500), ("always_steal=1,", 4_500), ("profile=paper-port,", 4_110)]
    {
        let run = scene.run("1s1n1l4c1t", &format!("ule:{spec}hz=127,balance=0"));
        let before_ms = if looks_ms == 4_110 { 4_099 } else { looks_ms - 20 };
        assert_eq!(run.tasks_per_cpu(before_ms * MS), [3, 0, 0, 0], "{spec}");
        let most = run.tasks_per_cpu((looks_ms + 20) * MS).into_iter().max();
        assert_eq!(most, Some(1), "{spec}");
    }
    let none = scene.run("1s1n1l4c1t", "ule:hz=127,balance=0,steal_idle=0");
    assert_eq!(none.tasks_per_cpu(6_000 * MS), [3, 0, 0, 0], "without steal_idle none looks");
}

/// A real-time task that keeps CPU 0 busy counts there in FreeBSD, which has one queue for all classes: a new thread avoids the CPU, and one that
/// waits behind is taken by the next CPU that runs out of threads. The port sees an idle CPU, the one that the thread was made on.
#[test]
fn a_real_time_task_that_runs_is_no_idle_cpu() {
    let used_ms = |profile: &str, bound: bool| {
        let mut scene = Scene::lasting(300 * MS);
        let above = scene.task("above", spin());
        (above.policy, above.affinity) = (Policy::Fifo { priority: 10 }, on_cpu(0));
        let late = scene.task("late", spin());
        (late.start_cpu, late.start_ns) = (Some(0), 10 * MS);
        if bound {
            (late.affinity, late.release_ns) = (on_cpu(0), Some(50 * MS));
            scene.task("sleeper", forever([run_for(MS), sleep(5 * MS)])).affinity = on_cpu(1);
        }
        let run = scene.run("1s1n1l2c1t", &format!("ule:profile={profile},balance=0"));
        run.cpu_time_between("late", 100 * MS, 300 * MS) / MS
    };
    for profile in ["freebsd11", "modern"] {
        assert!(used_ms(profile, false) >= 190, "{profile}: placed on the other CPU");
        assert!(used_ms(profile, true) >= 150, "{profile}: taken by the other CPU");
    }
    assert!(used_ms("paper-port", false) <= 60, "behind the real-time task");
}
