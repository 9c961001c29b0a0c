//! Energy-aware placement, against calculations by hand (`docs/spec/linux-fair.md` section 4.8).

use warmcore_topology::{Machine, from_toml, resolve};
use warmcore_workload::{Affinity, Policy, Step, TimerMode};

use crate::support::random::Dice;
use crate::support::*;

const OFF: &str = "eevdf:governor=schedutil,sched_energy_aware=off";
const ON: &str = "eevdf:governor=schedutil";

/// CPUs 0 and 1 are little, at 500 or 1000 MHz with 50 or 150 mW; 2 and 3 are big, at 1000 or 2000 MHz with 400 or 1600 mW. Idle ones take
/// nothing, and so does what the kernel does.
fn machine(threads: u32, energy_model: bool) -> Machine {
    let idle = "idle = [{ name = \"WFI\", exit_us = 0, residency_us = 0, power_mw = 0 }]";
    let kind = |name: &str, cpus: &str, low: u32, high: u32, power: [u32; 2]| {
        let power = if energy_model {
            format!("power_mw = [[{low}, {}.0], [{high}, {}.0]]\n{idle}", power[0], power[1])
        } else {
            String::new()
        };
        format!(
            "[[core_kind]]\nname = \"{name}\"\ncpus = \"{cpus}\"\nclock_shared_by = \"llc\"\nreference_mhz = {high}\n\
             frequencies_mhz = [{low}, {high}]\n{power}\n"
        )
    };
    // The second threads of all cores come after the first ones.
    let [little, big] = if threads == 1 { ["0-1", "2-3"] } else { ["0-1,4-5", "2-3,6-7"] };
    let text = format!(
        "[topology]\nshape = \"1s1n2l2c{threads}t\"\ncapacities = [{{ cpus = \"{little}\", capacity = 512 }}]\n[costs]\n\
         context_switch_ns = 0\nwakeup_ns = 1\ntick_ns = 0\nidle_exit_ns = 0\nexit_ns = 0\nsyscall_ns = 0\ntimer_ns = 0\n{}{}",
        kind("little", little, 500, 1000, [50, 150]),
        kind("big", big, 1000, 2000, [400, 1600]),
    );
    from_toml(&text).unwrap()
}

/// A task with 1 ms of work in each 10 ms that is bound to big CPU 2 at first, then free.
fn scene(seconds: u64) -> Scene {
    let mut scene = Scene::lasting(seconds * S);
    let timer = scene.workload.add_timer("grid");
    let period = Step::Timer { timer, period_ns: 10 * MS, mode: TimerMode::Absolute };
    let body = [run_for(MS), period];
    scene.task("periodic", then_forever([run_for(MS), Step::SetAffinity(Affinity::All), sleep(MS)], body)).affinity =
        on_cpu(2);
    scene
}

/// Energy in uJ from the first to the third second, and the CPUs on which the task ran in that time.
fn steady(machine: &Machine, scheduler: &str) -> (f64, Vec<u32>) {
    let run = |seconds| scene(seconds).try_run_on(machine, scheduler, 1).unwrap();
    let (one, three) = (run(1), run(3));
    let mut cpus: Vec<u32> = three.stays_from("periodic", S).iter().map(|stay| stay.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    (three.outcome.energy_uj.unwrap() as f64 - one.outcome.energy_uj.unwrap() as f64, cpus)
}

/// By hand: a utilisation of 102, a quarter more 128 and some more at the top of a period, is served by either cluster's lowest frequency. A
/// little CPU offers 256 of 1024 there and is busy for 4 ms of 10, at 50 mW: 200 uJ. A big one offers 512 and is busy for 2 ms at 400 mW:
/// 800 uJ. Two seconds have 200 periods.
#[test]
fn a_small_task_leaves_a_big_cpu_and_takes_a_quarter_of_the_energy() {
    let machine = machine(1, true);
    let (energy_uj, cpus) = steady(&machine, OFF);
    assert_eq!(cpus, [2]);
    assert_near("without", energy_uj, 160_000.0, 0.01);
    let (energy_uj, cpus) = steady(&machine, ON);
    assert!(cpus.iter().all(|cpu| *cpu < 2), "{cpus:?}");
    assert_near("with", energy_uj, 40_000.0, 0.01);
}

/// Where the task runs from the first second on.
fn cpus(machine: &Machine, scheduler: &str) -> Vec<u32> {
    let run = scene(2).try_run_on(machine, scheduler, 1).unwrap();
    let mut cpus: Vec<u32> = run.stays_from("periodic", S).iter().map(|stay| stay.cpu).collect();
    cpus.dedup();
    cpus
}

/// `sched_is_eas_possible`: each condition alone is enough to refuse.
#[test]
fn without_schedutil_an_energy_model_or_single_threads_a_task_stays_where_it_is() {
    for governor in ["powersave", "performance", "fixed"] {
        assert_eq!(cpus(&machine(1, true), &format!("eevdf:governor={governor}")), [2], "{governor}");
    }
    assert_eq!(cpus(&machine(1, false), ON), [2], "no energy model");
    assert_eq!(cpus(&machine(2, true), ON), [2], "several hardware threads");
    for older in ["cfs:governor=schedutil", "rr:governor=schedutil"] {
        assert_eq!(cpus(&machine(1, true), older), [2], "{older}");
    }
}

/// While a busy task uses more than 80 % of its CPU, energy decides nothing; a fifth of a second after it is gone it does.
#[test]
fn an_overutilized_cpu_switches_it_off_for_the_whole_machine() {
    let mut scene = scene(3);
    let busy = scene.task("busy", then_forever([run_for(2 * S)], [sleep(100 * MS), run_for(1000)]));
    busy.affinity = on_cpu(3);
    let run = scene.try_run_on(&machine(1, true), ON, 1).unwrap();
    let reasons = |from_ns: u64, to_ns: u64| {
        let placed = run.placed("periodic", from_ns).into_iter().filter(|placed| placed.time_ns < to_ns);
        let mut reasons: Vec<&str> = placed.map(|placed| placed.words().0).collect();
        reasons.dedup();
        reasons
    };
    let during = reasons(200 * MS, S);
    assert!(!during.is_empty() && !during.contains(&"energy"), "{during:?}");
    assert_eq!(reasons(2 * S + 500 * MS, 3 * S), ["energy"]);
}

/// By hand: two real-time tasks use 84 % of the little CPUs' time, which leaves 82 of 512, and the periodic task's 102 need more. Energy alone
/// would have it go there. So it is before a CPU goes offline and afterwards, when all domains are new.
#[test]
fn a_small_task_stays_on_a_big_cpu_where_real_time_tasks_leave_too_little_of_the_others() {
    let mut scene = scene(3);
    for cpu in [0, 1] {
        let task = scene.task(&format!("above{cpu}"), forever([run_for(4 * MS), sleep(1_500 * US)]));
        (task.policy, task.affinity) = (Policy::Fifo { priority: 50 }, on_cpu(cpu));
    }
    scene.unplug(S, 3);
    scene.plug_in(1_500 * MS, 3);
    let run = scene.try_run_on(&machine(1, true), ON, 1).unwrap();
    let placed = run.placed("periodic", 500 * MS);
    assert!(placed.len() > 200 && placed.iter().all(|placed| placed.words().0 == "energy"), "{placed:?}");
    let stays = run.stays_from("periodic", 500 * MS);
    assert!(stays.iter().all(|stay| stay.cpu >= 2), "{stays:?}");
}

/// A task on each CPU of a phone with 0.5 ms of work in each 16 ms, four bound to its big cores for the first 0.1 s.
#[test]
fn small_tasks_stay_on_a_phones_little_cores_and_save_energy() {
    let machine = resolve("hikey960").unwrap();
    let run = |scheduler: &str| {
        let mut scene = Scene::lasting(2 * S);
        let timer = scene.workload.add_timer("grid");
        let period = Step::Timer { timer, period_ns: 16 * MS, mode: TimerMode::Absolute };
        for cpu in 4..8 {
            let free = Step::SetAffinity(Affinity::All);
            let program =
                then_forever([run_for(MS), sleep(100 * MS), free, sleep(MS)], [run_for(MS / 2), period.clone()]);
            scene.task(&format!("small{cpu}"), program).affinity = on_cpu(cpu);
        }
        scene.try_run_on(&machine, scheduler, 1).unwrap()
    };
    let (with, without) = (run(ON), run(OFF));
    for cpu in 4..8 {
        let stays = with.stays_from(&format!("small{cpu}"), S);
        assert!(!stays.is_empty() && stays.iter().all(|stay| stay.cpu < 4), "{stays:?}");
    }
    let (with, without) = (with.outcome.energy_uj.unwrap(), without.outcome.energy_uj.unwrap());
    assert!(with * 3 < without * 2, "{with} uJ and {without} uJ");
}

/// New tasks begin anywhere, with half of the capacity as their utilisation. Half a second later all are known to be small, although
/// their CPUs take longer to leave the deep idle state than they run.
#[test]
fn small_tasks_find_a_phones_little_cores_wherever_they_began() {
    for seed in 1..=4 {
        let mut scene = Scene::lasting(S);
        let names = ["a", "b", "c", "d"];
        for name in names {
            scene.task(name, forever([run_for(MS / 2), sleep(15_500 * US)]));
        }
        let run = scene.try_run_on(&resolve("hikey960").unwrap(), ON, seed).unwrap();
        for name in names {
            let stays = run.stays_from(name, 500 * MS);
            assert!(!stays.is_empty() && stays.iter().all(|stay| stay.cpu < 4), "seed {seed}: {stays:?}");
        }
    }
}

/// No task is lost, and a run is the same again.
#[test]
fn random_workloads_run_to_their_end_by_energy_also_with_cpus_that_go_offline() {
    let machines = [machine(1, true), resolve("hikey960").unwrap()];
    for seed in 0..30 {
        let machine = &machines[seed as usize % 2];
        let mut scene = Dice::new(seed).scene(machine.cpu_count() as u32);
        if seed % 3 == 0 {
            scene.unplug(2 * MS, 1);
            scene.plug_in(9 * MS, 1);
        }
        let scheduler = ["eevdf", "cache-aware"][seed as usize % 2].to_owned() + ":governor=schedutil";
        let run = || match scene.try_run_on(machine, &scheduler, seed) {
            Ok(run) => run,
            Err(error) => panic!("workload {seed} under {scheduler}: {error}"),
        };
        let (first, second) = (run(), run());
        assert_eq!(first.outcome.end, warmcore_trace::End::AllExited, "workload {seed}");
        assert_eq!(first.events, second.events, "workload {seed}");
    }
}
