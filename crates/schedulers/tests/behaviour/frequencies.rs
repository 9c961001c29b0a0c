//! Frequencies, turbo, idle states and energy, against calculations by hand (`docs/models/frequency.md`).

use warmcore_options::MemoryChoice;
use warmcore_topology::{Machine, from_toml};
use warmcore_trace::End;
use warmcore_workload::{Step, TimerMode};

use crate::support::random::{Asked, Dice};
use crate::support::*;

/// `cores` cores of one kind with frequencies of 500 to 2000 MHz; times hold at 1000 MHz. What the kernel does takes no time.
fn machine(cores: u32, rest: &str) -> Machine {
    let text = format!(
        "[topology]\nshape = \"1s1n1l{cores}c1t\"\n[costs]\ncontext_switch_ns = 0\nwakeup_ns = 1\ntick_ns = 0\nidle_exit_ns = 0\n\
         exit_ns = 0\nsyscall_ns = 0\n[[core_kind]]\nreference_mhz = 1000\nmin_mhz = 500\nmax_mhz = 2000\n{rest}"
    );
    from_toml(&text).unwrap()
}

const ENERGY: &str = "power_mw = [[500, 100.0], [2000, 1000.0]]\nidle = [{ name = \"WFI\", exit_us = 1, residency_us = 1, \
                      power_mw = 10 }, { name = \"deep\", exit_us = 100, residency_us = 1000, power_mw = 1 }]";

/// CPU time of a task with 100 ms of work.
fn time_of_work(machine: &Machine, scheduler: &str, tasks: u32) -> Vec<u64> {
    let mut scene = Scene::new();
    for cpu in 0..tasks {
        scene.task(&format!("worker{cpu}"), once([run_for(100 * MS)])).affinity = on_cpu(cpu);
    }
    let run = scene.try_run_on(machine, scheduler, 1).unwrap();
    assert_eq!(run.outcome.end, End::AllExited);
    for task in &run.outcome.tasks {
        // The kernel takes no time here: what is neither work nor its pace would be explained as the kernel's.
        let own_ns = task.progress_ns as i64 + task.pace_ns;
        assert_near(&format!("{scheduler}: own program"), own_ns as f64, task.cpu_time_ns as f64, 0.005);
    }
    (0..tasks).map(|cpu| run.cpu_time(&format!("worker{cpu}"))).collect()
}

/// By hand: at 500 of 1000 MHz work takes twice its time, at 2000 MHz half of it, without a governor just its time.
#[test]
fn work_takes_its_time_at_the_reference_and_as_much_more_as_the_frequency_is_less() {
    let machine = machine(1, "");
    for (governor, expected_ms) in [("fixed", 100.0), ("powersave", 200.0), ("performance", 50.0)] {
        for policy in ["eevdf", "cfs", "rr", "ule", "scx-native"] {
            let time = time_of_work(&machine, &format!("{policy}:governor={governor}"), 1)[0];
            assert_near(&format!("{policy} {governor}"), time as f64, expected_ms * MS as f64, 0.005);
        }
    }
}

/// By hand: a CPU of capacity 462 takes 1024 / 462 = 2.216 times the time of the biggest, also without a governor.
#[test]
fn a_slower_cpus_time_is_its_programs_own() {
    let mut scene = Scene::new();
    scene.task("worker", once([run_for(100 * MS)])).affinity = on_cpu(0);
    let run = scene.run("hikey960", "eevdf");
    assert_near("slower", run.outcome.tasks[0].pace_ns as f64, 121.6 * MS as f64, 0.002);
}

/// By hand: alone at 2000 MHz 50 ms; three cores are held to 1000 MHz, and each takes 100 ms.
#[test]
fn turbo_goes_by_the_active_cores() {
    let machine = machine(4, "turbo_mhz = [[1, 2000], [4, 1000]]");
    let alone = time_of_work(&machine, "eevdf:governor=performance", 1);
    assert_near("alone", alone[0] as f64, 50.0 * MS as f64, 0.005);
    for time in time_of_work(&machine, "eevdf:governor=performance", 3) {
        assert_near("of three", time as f64, 100.0 * MS as f64, 0.005);
    }
}

/// By hand: at 1500 of 3700 MHz cycles take 2.47 times their time. A program of the core alone is so much slower, one that waits for memory
/// less, with either model of caches and memory.
#[test]
fn with_caches_and_memory_only_the_cycles_of_a_core_go_by_the_frequency() {
    let machine = warmcore_topology::resolve("genoa96").unwrap();
    let kind = &machine.core_kinds()[0];
    let slower = f64::from(kind.highest_mhz()) / f64::from(kind.lowest_mhz());
    for memory in [MemoryChoice::Analytic, MemoryChoice::Exact] {
        let [spin, canneal] = ["spin", "canneal"].map(|profile| {
            let mut scene = Scene::new();
            let task = scene.task("task", once([run_for(10 * MS)]));
            (task.profile, task.affinity) = (Some(profile.to_owned()), on_cpu(0));
            let time = |governor: &str| {
                let run = run_with_memory(&scene, &machine, &format!("eevdf:governor={governor}"), memory);
                run.cpu_time("task") as f64
            };
            time("powersave") / time("performance")
        });
        assert_near(&format!("spin, {memory:?}"), spin, slower, 0.01);
        assert!(canneal > 1.1 && canneal < 0.9 * slower, "{memory:?}: {canneal} of {slower}");
    }
}

/// Share of its time that a task needs which has so much work in each 10 ms, in the second half of 4 s.
fn busy_share(machine: &Machine, scheduler: &str, work_ns: u64) -> f64 {
    let mut scene = Scene::lasting(4 * S);
    let timer = scene.workload.add_timer("grid");
    let period = Step::Timer { timer, period_ns: 10 * MS, mode: TimerMode::Absolute };
    scene.task("periodic", forever([run_for(work_ns), period]));
    let run = scene.try_run_on(machine, scheduler, 1).unwrap();
    let task = &run.outcome.tasks[0];
    assert!(
        task.smt_ns < task.cpu_time_ns / 1000,
        "{} of {} ns beside a sibling, and there is none",
        task.smt_ns,
        task.cpu_time_ns
    );
    run.cpu_time_between("periodic", 2 * S, 4 * S) as f64 / (2.0 * S as f64)
}

/// By hand: work of 8 ms at 1000 MHz in 10 ms is 4 ms at 2000 MHz, a utilisation of 0.4; schedutil wants 1.25 · 0.4 · 2000 = 1000 MHz.
/// Utilisation swings about its mean within a period, and its estimate keeps the top of that, which makes 1000 to 1300 MHz: the task is
/// busy for 8 / 1.3 to 8 ms of 10.
#[test]
fn schedutil_settles_a_quarter_above_what_a_periodic_task_uses() {
    let machine = machine(1, "");
    let share = busy_share(&machine, "eevdf:governor=schedutil", 8 * MS);
    assert!((0.61..=0.81).contains(&share), "{share}");
    assert_near("full speed", busy_share(&machine, "eevdf:governor=performance", 8 * MS), 0.4, 0.01);
}

/// A spinner needs all there is: it comes to the highest frequency within some half-lives of its utilisation.
#[test]
fn schedutil_takes_a_busy_cpu_to_its_highest_frequency() {
    let mut scene = Scene::new();
    scene.task("worker", once([run_for(4 * S)]));
    let run = scene.try_run_on(&machine(1, ""), "eevdf:governor=schedutil", 1).unwrap();
    let elapsed_ms = run.outcome.elapsed_ns as f64 / MS as f64;
    assert!((2000.0..2300.0).contains(&elapsed_ms), "{elapsed_ms}");
}

/// By hand: 100 ms of work at 500 MHz take 200 ms at 100 mW; at 2000 MHz 50 ms at 1 W; the other core idles in the deep state at 1 mW.
#[test]
fn energy_is_power_by_time() {
    let machine = machine(2, ENERGY);
    for (governor, expected_uj) in [("powersave", 20_000.0 + 200.0), ("performance", 50_000.0 + 50.0)] {
        let mut scene = Scene::new();
        scene.task("worker", once([run_for(100 * MS)])).affinity = on_cpu(0);
        let run = scene.try_run_on(&machine, &format!("eevdf:governor={governor}"), 1).unwrap();
        assert_near(governor, run.outcome.energy_uj.unwrap() as f64, expected_uj, 0.01);
    }
    let mut scene = Scene::new();
    scene.task("worker", once([run_for(MS)]));
    assert_eq!(scene.try_run_on(&machine, "eevdf", 1).unwrap().outcome.energy_uj, None, "nothing governs");
}

/// By hand: CPU 1 runs for 2 us at 100 mW, is in the shallow state up to 0.5 ms because a timer is near, and offline in the deep one from then
/// on: 0.2 + 5 + 99.5 uJ. CPU 0 is in the deep state all the time, 100 uJ, but for 2 us at 100 mW, when the task whose CPU is offline wakes.
#[test]
fn a_cpu_offline_is_in_the_deepest_idle_state() {
    let mut scene = Scene::lasting(100 * MS);
    scene.task("late", once([run_for(1000), sleep(900_000), run_for(1000)])).affinity = on_cpu(1);
    scene.task("end", once([sleep(100 * MS)])).affinity = on_cpu(0);
    scene.unplug(500_000, 1);
    let run = scene.try_run_on(&machine(2, ENERGY), "eevdf:governor=powersave,timer_slack_ns=0", 1).unwrap();
    assert_near("energy", run.outcome.energy_uj.unwrap() as f64, 204.9, 0.01);
}

/// By hand: who sleeps 10 ms wakes from the deep state 100 us late, who sleeps 0.5 ms from the shallow one 1 us late.
#[test]
fn a_cpu_leaves_the_idle_state_that_its_next_timer_allows() {
    let machine = machine(1, ENERGY);
    for (sleep_ns, late_ns) in [(10 * MS, 100_000), (500_000, 1_000)] {
        let mut scene = Scene::lasting(S);
        scene.task("sleeper", forever([run_for(1000), sleep(sleep_ns)]));
        let run = scene.try_run_on(&machine, "eevdf:governor=performance,timer_slack_ns=0", 1).unwrap();
        let latencies = run.wakeups("sleeper").into_iter().skip(2).map(|wakeup| wakeup.latency_ns());
        assert_near(&format!("{sleep_ns}"), mean(latencies), late_ns as f64, 0.01);
    }
}

/// By hand: who sleeps 3 ms wakes from the deep state 100 us late, under every governor: neither a change of the frequency that takes effect
/// in the meantime nor a timer's interrupt shortens the way out of it.
#[test]
fn no_interrupt_shortens_the_way_out_of_an_idle_state() {
    let rest = format!("transition_us = 30\n{ENERGY}");
    let machine = machine(1, &rest);
    for policy in ["eevdf", "cfs", "scx-native"] {
        for governor in ["performance", "powersave", "schedutil"] {
            let mut scene = Scene::lasting(S);
            scene.task("sleeper", forever([run_for(2 * MS), sleep(3 * MS)]));
            let scheduler = format!("{policy}:governor={governor},timer_slack_ns=0");
            let run = scene.try_run_on(&machine, &scheduler, 1).unwrap();
            let wakeups = run.wakeups("sleeper");
            assert!(wakeups.len() > 100, "{scheduler}: {}", wakeups.len());
            for wakeup in wakeups.iter().skip(2) {
                assert_near(&scheduler, wakeup.latency_ns() as f64, 100_000.0, 0.01);
            }
        }
    }
}

#[test]
fn a_governor_without_frequencies_is_refused() {
    let mut scene = Scene::lasting(MS);
    scene.task("spinner", spin());
    let error = scene.try_run("1s1n1l2c1t", "eevdf:governor=schedutil", 1).err().unwrap().to_string();
    assert!(error.contains("1s1n1l2c1t") && error.contains("[[core_kind]]"), "{error}");
}

/// No task is lost, and the work done is the work asked, whatever the governor.
#[test]
fn random_workloads_end_with_all_work_done_under_every_governor() {
    let machines = [machine(1, ""), machine(4, "transition_us = 50\nturbo_mhz = [[1, 2000], [2, 1500], [4, 900]]")];
    let schedulers = ["eevdf", "cfs", "cache-aware", "scx-native", "rr"];
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let machine = &machines[seed as usize % 2];
        let scene = dice.scene(machine.cpu_count() as u32);
        let governor = ["performance", "powersave", "schedutil"][seed as usize % 3];
        let scheduler = format!("{}:governor={governor}", schedulers[seed as usize % schedulers.len()]);
        let run = match scene.try_run_on(machine, &scheduler, seed) {
            Ok(run) => run,
            Err(error) => panic!("workload {seed} under {scheduler}: {error}"),
        };
        assert_eq!(run.outcome.end, End::AllExited, "workload {seed} under {scheduler}");
        for task in &run.outcome.tasks {
            let template = scene.workload.tasks.iter().find(|template| template.role == task.role).unwrap();
            let asked = Asked::by(&scene.workload.programs[template.program.index()]);
            let done_ns = task.progress_ns;
            assert!(
                asked.is_done_by(task),
                "workload {seed} under {scheduler}: {} did {done_ns} of {asked:?}",
                task.name
            );
        }
    }
}
