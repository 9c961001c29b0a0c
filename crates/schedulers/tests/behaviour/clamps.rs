//! Utilisation clamps, against calculations by hand (`docs/spec/linux-fair.md` section 4.10).

use warmcore_topology::{Machine, from_toml, resolve};
use warmcore_trace::MigrationKind;
use warmcore_workload::{Affinity, ClampPercent, GroupClamp, Policy, Step, TimerMode, UtilClamp};

use crate::support::random::Dice;
use crate::support::*;

const SCHEDUTIL: &str = "eevdf:governor=schedutil";

/// One core of 500 to 2000 MHz; times hold at 1000 MHz. What the kernel does takes no time.
fn machine() -> Machine {
    let text = "[topology]\nshape = \"1s1n1l1c1t\"\n[costs]\ncontext_switch_ns = 0\nwakeup_ns = 1\ntick_ns = 0\nidle_exit_ns = 0\n\
                exit_ns = 0\nsyscall_ns = 0\n[[core_kind]]\nreference_mhz = 1000\nmin_mhz = 500\nmax_mhz = 2000\n";
    from_toml(text).unwrap()
}

fn clamp(min: Option<i64>, max: Option<i64>) -> UtilClamp {
    UtilClamp::new(min, max).unwrap()
}

fn bounds(min: &str, max: &str) -> GroupClamp {
    let [min, max] = [min, max].map(|text| ClampPercent::parse(text).unwrap());
    GroupClamp::new(min, max).unwrap()
}

/// CPU time that a task needs for 100 ms of work, in ms.
fn time_of_work(scheduler: &str, request: UtilClamp, group: Option<GroupClamp>) -> f64 {
    let mut scene = Scene::new();
    let own = group.map(|clamp| {
        let group = scene.workload.add_group("/own");
        scene.workload.groups[group.index()].clamp = clamp;
        group
    });
    let task = scene.task("worker", once([run_for(100 * MS)]));
    (task.util_clamp, task.group) = (request, own);
    scene.try_run_on(&machine(), scheduler, 1).unwrap().cpu_time("worker") as f64 / MS as f64
}

/// By hand: at most 256 of 1024 is at most 500 of 2000 MHz, and 100 ms of work take 200 ms; 512 is 1000 MHz. At least 1024 is 2000 MHz from
/// the beginning. A group's bound holds for a task that asks for nothing, and for one that asks for more.
#[test]
fn a_task_runs_no_faster_and_no_slower_than_it_asks_for() {
    for (request, group, expected_ms) in [
        (clamp(None, Some(256)), None, 200.0),
        (clamp(None, Some(512)), None, 100.0),
        (clamp(Some(1024), None), None, 50.0),
        (UtilClamp::NONE, Some(bounds("0", "25")), 200.0),
        (UtilClamp::NONE, Some(bounds("100", "max")), 50.0),
        (clamp(Some(1024), None), Some(bounds("0", "50")), 100.0),
        (clamp(Some(100), Some(256)), Some(bounds("50", "50")), 100.0),
    ] {
        for scheduler in [SCHEDUTIL, "cfs:governor=schedutil", "cache-aware:governor=schedutil"] {
            let time_ms = time_of_work(scheduler, request, group);
            assert_near(&format!("{scheduler}: {request} in {group:?}"), time_ms, expected_ms, 0.005);
        }
    }
}

/// Without `schedutil` a frequency does not go by them; before Linux 5.3 there are none.
#[test]
fn other_governors_and_old_kernels_know_no_clamps() {
    for (scheduler, expected_ms) in [("eevdf", 100.0), ("eevdf:governor=performance", 50.0)] {
        assert_near(scheduler, time_of_work(scheduler, clamp(None, Some(256)), None), expected_ms, 0.005);
    }
    let old = "cfs:kernel=4.9,governor=schedutil";
    let [without, with] = [UtilClamp::NONE, clamp(None, Some(256))].map(|request| time_of_work(old, request, None));
    assert_near(old, with, without, 1e-9);
}

/// By hand: 50 ms of work at 500 MHz take 100 ms, 50 ms at 2000 MHz take 25 ms.
#[test]
fn a_task_may_ask_for_another_speed_as_it_goes() {
    let mut scene = Scene::new();
    let faster = Step::SetUtilClamp(clamp(Some(1024), Some(1024)));
    let task = scene.task("worker", once([run_for(50 * MS), faster, run_for(50 * MS)]));
    task.util_clamp = clamp(None, Some(256));
    let run = scene.try_run_on(&machine(), SCHEDUTIL, 1).unwrap();
    assert_near("both", run.cpu_time("worker") as f64, 125.0 * MS as f64, 0.005);
}

/// By hand: 1 ms of work in each 10 ms is a utilisation far below half of the CPU, so it runs at the 1000 MHz that it asks for: 1 ms each time.
#[test]
fn a_small_task_runs_at_the_speed_that_it_asks_for() {
    let mut scene = Scene::lasting(S);
    let timer = scene.workload.add_timer("grid");
    let period = Step::Timer { timer, period_ns: 10 * MS, mode: TimerMode::Absolute };
    scene.task("small", forever([run_for(MS), period])).util_clamp = clamp(Some(512), Some(512));
    let run = scene.try_run_on(&machine(), SCHEDUTIL, 1).unwrap();
    assert_near("small", run.cpu_time("small") as f64, 100.0 * MS as f64, 0.011);
}

/// By hand: while the other one is runnable, which asks for 2000 MHz, 100 ms of work of the first take 50 ms although it may have 500 MHz only.
/// Asleep the other one does not count.
#[test]
fn tasks_that_share_a_cpu_get_the_largest_of_what_they_ask_for() {
    for (program, expected_ms) in [(spin(), 50.0), (then_forever([sleep(S)], [run_for(MS)]), 200.0)] {
        let mut scene = Scene::lasting(S);
        let capped = scene.task("capped", once([run_for(100 * MS)]));
        (capped.util_clamp, capped.start_ns) = (clamp(None, Some(256)), 10 * MS);
        scene.task("boosted", program).util_clamp = clamp(Some(1024), None);
        let run = scene.try_run_on(&machine(), SCHEDUTIL, 1).unwrap();
        assert_near("capped", run.cpu_time("capped") as f64, expected_ms * MS as f64, 0.02);
    }
}

/// By hand, of `uclamp_eff_get`: a real-time task wants 2000 MHz unless it says otherwise. With both bounds at 512 it has 1000 MHz.
#[test]
fn a_real_time_task_has_full_speed_unless_it_asks_for_less() {
    for (request, expected_ms) in [(UtilClamp::NONE, 50.0), (clamp(Some(512), Some(512)), 100.0)] {
        let mut scene = Scene::new();
        let task = scene.task("fifo", once([run_for(100 * MS)]));
        (task.policy, task.util_clamp) = (Policy::Fifo { priority: 5 }, request);
        // So that there are clamps in this run at all.
        let later = scene.task("later", once([run_for(MS)]));
        (later.util_clamp, later.start_ns) = (clamp(Some(1), None), 300 * MS);
        let run = scene.try_run_on(&machine(), SCHEDUTIL, 1).unwrap();
        assert_near("fifo", run.cpu_time("fifo") as f64, expected_ms * MS as f64, 0.005);
    }
}

/// `uclamp_validate` refuses it: it has asked for 600 at most.
#[test]
fn a_request_of_more_at_least_than_at_most_ends_the_run() {
    let mut scene = Scene::new();
    let task = scene.task("worker", once([run_for(MS), Step::SetUtilClamp(clamp(Some(700), None)), run_for(MS)]));
    task.util_clamp = clamp(None, Some(600));
    let error = scene.try_run_on(&machine(), "eevdf", 1).err().expect("refused").to_string();
    assert!(error.contains("worker") && error.contains("util_min 700 is above util_max 600"), "{error}");
}

/// As a kernel 7.2.13 does (`results/2026-11-28-2vcpu-uclamp/effective.txt`): a real-time task cannot ask for 300 at most without saying what it
/// needs at least, 1024 until then.
#[test]
fn a_real_time_task_names_its_lower_bound_with_the_upper_one() {
    for (request, refused) in [(clamp(None, Some(300)), true), (clamp(Some(0), Some(300)), false)] {
        let mut scene = Scene::new();
        let task = scene.task("fifo", once([run_for(MS), Step::SetUtilClamp(request), run_for(MS)]));
        task.policy = Policy::Fifo { priority: 5 };
        let error = scene.try_run_on(&machine(), SCHEDUTIL, 1).err().map(|error| error.to_string());
        let named = error.as_ref().is_some_and(|error| error.contains("util_min 1024 is above util_max 300"));
        assert_eq!((named, error.is_some()), (refused, refused), "{request}: {error:?}");
    }
}

/// A forked task has its parent's request: 100 ms of work of each take 200 ms.
#[test]
fn a_forked_task_has_its_parents_request() {
    let mut scene = Scene::new();
    let child = scene.template("child", once([run_for(100 * MS)]));
    scene.task("parent", once([Step::Fork(child), Step::Join { count: 1 }])).util_clamp = clamp(None, Some(256));
    let run = scene.try_run_on(&machine(), SCHEDUTIL, 1).unwrap();
    let total_ns: u64 = run.outcome.tasks.iter().map(|task| task.cpu_time_ns).sum();
    assert_near("child", total_ns as f64, 200.0 * MS as f64, 0.005);
}

/// Those with capacities, on a phone: CPUs 0 to 3 have one of 462, 4 to 7 of 1024.
const UNEQUAL: [&str; 3] = ["eevdf", "cfs", SCHEDUTIL];

/// By hand, of `util_fits_cpu`: a task that only computes fits a CPU of 462 if it may have no more than 462, and is left there.
#[test]
fn a_task_that_may_have_no_more_than_a_little_cpu_stays_on_it() {
    for scheduler in UNEQUAL {
        for (max, moves) in [(462, 0), (463, 1)] {
            let mut scene = Scene::lasting(S);
            let first = [run_for(45 * MS), Step::SetAffinity(Affinity::All)];
            let task = scene.task("hog", then_forever(first, [run_for(S)]));
            (task.affinity, task.util_clamp) = (on_cpu(0), clamp(None, Some(max)));
            let run = scene.try_run_on(&resolve("hikey960").unwrap(), scheduler, 1).unwrap();
            let active = run.moves_of("hog").iter().filter(|moved| moved.kind == MigrationKind::Active).count();
            assert_eq!(active, moves, "{scheduler}: {max}");
        }
    }
}

/// By hand: 0.5 ms of work in 16 ms fit a little CPU. A task that asks for 463 at least needs a big one, one that asks for 462 does not.
#[test]
fn a_small_task_wakes_on_a_big_cpu_for_the_speed_that_it_asks_for() {
    for scheduler in UNEQUAL {
        for (min, big) in [(462, false), (463, true)] {
            let mut scene = Scene::lasting(S);
            let first = [run_for(MS), Step::SetAffinity(Affinity::All), sleep(MS)];
            let task = scene.task("small", then_forever(first, [run_for(MS / 2), sleep(15_500 * US)]));
            (task.affinity, task.util_clamp) = (on_cpu(0), clamp(Some(min), None));
            let run = scene.try_run_on(&resolve("hikey960").unwrap(), scheduler, 1).unwrap();
            let stays = run.stays_from("small", 100 * MS);
            assert!(
                !stays.is_empty() && stays.iter().all(|stay| (stay.cpu >= 4) == big),
                "{scheduler} {min}: {stays:?}"
            );
        }
    }
}

/// No task is lost, a run is the same again, and one in which every request is what there is without one is the run without any.
#[test]
fn random_workloads_run_to_their_end_with_clamps() {
    for seed in 0..30 {
        let machine = resolve("hikey960").unwrap();
        let scheduler = ["eevdf", "cache-aware", "cfs"][seed as usize % 3].to_owned() + ":governor=schedutil";
        let run = |change: &dyn Fn(usize) -> UtilClamp| {
            let mut scene = Dice::new(seed).scene(8);
            scene.workload.tasks.iter_mut().enumerate().for_each(|(index, task)| task.util_clamp = change(index));
            match scene.try_run_on(&machine, &scheduler, seed) {
                Ok(run) => run,
                Err(error) => panic!("workload {seed} under {scheduler}: {error}"),
            }
        };
        let of_all_kinds = |index: usize| match index % 3 {
            0 => clamp(Some(index as i64 * 97 % 1025), Some(1024)),
            1 => clamp(Some(0), Some(index as i64 * 131 % 1025)),
            _ => UtilClamp::NONE,
        };
        let (first, second) = (run(&of_all_kinds), run(&of_all_kinds));
        assert_eq!(first.outcome.end, warmcore_trace::End::AllExited, "workload {seed}");
        assert_eq!(first.events, second.events, "workload {seed}");
        let (none, neutral) = (run(&|_| UtilClamp::NONE), run(&|_| clamp(Some(0), Some(1024))));
        assert_eq!(none.events, neutral.events, "workload {seed}");
    }
}
