//! Threads of the kernel itself and launchers beside a workload, which are tasks to every policy; and interrupts, which are none.

use std::collections::BTreeSet;

use warmcore_schedulers::list;
use warmcore_topology::{Background, Basis, Interrupt, KernelThread, Machine, Origin, ThreadPlace, Wakes, resolve};
use warmcore_trace::End;
use warmcore_workload::{Policy, Step, TimerMode};

use crate::support::random::Dice;
use crate::support::*;

/// A thread that runs 50 µs every 10 ms.
fn thread(place: ThreadPlace) -> KernelThread {
    KernelThread {
        name: "kworker".into(),
        place,
        nice: 0,
        wakes: Wakes::Intervals(vec![10 * MS]),
        after_exit: false,
        at_tick: false,
        deferrable: false,
        run_ns: vec![50 * US],
        origin: Origin::new(Basis::Assumed, ""),
    }
}

/// An interrupt that keeps its CPU for 0.9 ms of each.
fn long_interrupt() -> Interrupt {
    Interrupt {
        name: "disk".into(),
        place: ThreadPlace::EachCpu,
        arrives: Wakes::Intervals(vec![MS]),
        run_ns: vec![900 * US],
        origin: Origin::new(Basis::Assumed, ""),
    }
}

fn machine(shape: &str, threads: Vec<KernelThread>) -> Machine {
    with(shape, Background { name: "test".into(), threads, ..Background::default() })
}

fn with(shape: &str, background: Background) -> Machine {
    resolve(shape).unwrap().with_background(background).unwrap()
}

fn hog() -> Scene {
    let mut scene = Scene::lasting(S);
    scene.task("hog", spin());
    scene
}

#[test]
fn every_scheduler_keeps_its_accounts_beside_kernel_threads_interrupts_and_launchers() {
    let busy = |place, nice| KernelThread {
        nice,
        wakes: Wakes::Random { mean_ns: 300 * US },
        run_ns: vec![5 * US, 20 * US, 150 * US],
        ..thread(place)
    };
    let threads =
        [busy(ThreadPlace::EachCpu, 0), busy(ThreadPlace::AnyCpu, -20), busy(ThreadPlace::Cpus([0].into()), 19)];
    for row in list().iter().filter(|row| row.name != "scx") {
        for (seed, shape) in ["1s1n1l1c1t", "1s1n2l2c1t", "2s2n1l2c2t"].into_iter().cycle().take(6).enumerate() {
            let (launchers, threads) = (seed % 2 == 1, threads.to_vec());
            let often = Interrupt {
                arrives: Wakes::Random { mean_ns: 70 * US },
                run_ns: vec![US, 30 * US],
                ..long_interrupt()
            };
            let machine =
                with(shape, Background { launchers, threads, interrupts: vec![often], ..Background::default() });
            let scene = Dice::new(seed as u64).scene(machine.cpu_count() as u32);
            let run = match scene.try_run_on(&machine, row.name, seed as u64) {
                Ok(run) => run,
                Err(error) => panic!("{} on {shape}, seed {seed}: {error}", row.name),
            };
            assert_eq!(run.outcome.end, End::AllExited, "{} on {shape}", row.name);
            assert!(run.outcome.background.iter().any(|thread| thread.cpu_time_ns > 0), "{} on {shape}", row.name);
        }
    }
}

/// By hand: nine of ten wakeups come while the CPU is in an interrupt, with 0.45 ms of it left on average; the tenth waits for nothing.
#[test]
fn a_wakeup_during_an_interrupt_runs_when_the_interrupt_is_over() {
    let mut scene = Scene::lasting(10 * S);
    scene.task("hog", spin()).policy = Policy::Idle;
    let timer = scene.workload.add_timer("grid");
    // Its instants go through all hundredths of a millisecond.
    let period = Step::Timer { timer, period_ns: 3_370 * US, mode: TimerMode::Absolute };
    scene.task("light", forever([run_for(10 * US), period]));
    let mean_ns = |interrupts| {
        let background = Background { name: "test".into(), interrupts, ..Background::default() };
        let run = scene.try_run_on(&with("1s1n1l1c1t", background), "eevdf", 1).unwrap();
        let wakeups = run.wakeups("light");
        assert!(wakeups.len() > 1500, "{}", wakeups.len());
        wakeups.iter().map(WakeupSpan::latency_ns).sum::<u64>() / wakeups.len() as u64
    };
    let (alone, beside) = (mean_ns(Vec::new()), mean_ns(vec![long_interrupt()]));
    assert!(alone < 5 * US, "{alone}");
    assert!((beside - alone).abs_diff(405 * US) < 40 * US, "{beside}");
}

#[test]
fn a_thread_of_the_hogs_cpu_interrupts_it_and_an_unbound_one_goes_where_nobody_is() {
    let stays = |place| {
        let run = hog().try_run_on(&machine("1s1n1l4c1t", vec![thread(place)]), "eevdf", 1).unwrap();
        run.stays("hog").len()
    };
    let bound = stays(ThreadPlace::EachCpu);
    assert!((95..=102).contains(&bound), "{bound}");
    // It may begin on the hog's CPU, and leaves that for good when it wakes.
    assert!(stays(ThreadPlace::AnyCpu) <= 2);
}

#[test]
fn what_kernel_threads_take_the_workload_lacks() {
    let heavy = KernelThread { run_ns: vec![MS], ..thread(ThreadPlace::EachCpu) };
    for scheduler in ["eevdf", "cfs", "cache-aware", "fifo", "ule"] {
        let run = hog().try_run_on(&machine("1s1n1l1c1t", vec![heavy.clone()]), scheduler, 1).unwrap();
        let (own, foreign) = (run.cpu_time("hog"), run.outcome.background[0].cpu_time_ns);
        assert!(run.outcome.elapsed_ns - own - foreign < MS, "{scheduler}: {own} and {foreign}");
        // What a thread could not do at once it does later.
        assert!(foreign > 50 * MS, "{scheduler}: {foreign}");
    }
}

#[test]
fn a_turn_whose_timer_counts_jiffies_begins_just_before_a_tick_of_some_cpu() {
    let phases = |at_tick| {
        let odd = Wakes::Intervals(vec![9_310_000, 10_170_000, 10_520_000]);
        let thread = KernelThread { at_tick, wakes: odd, ..thread(ThreadPlace::EachCpu) };
        let run = hog().try_run_on(&machine("1s1n1l4c1t", vec![thread]), "eevdf", 1).unwrap();
        let ends = run.stays("hog").into_iter().filter(|stay| stay.left.is_some()).map(|stay| stay.end_ns);
        let phases: Vec<u64> = ends.map(|end_ns| end_ns % (4 * MS) / US).collect();
        assert!(phases.len() > 90, "{}", phases.len());
        phases.into_iter().collect::<BTreeSet<_>>().len()
    };
    // Four CPUs have four ticks, near which a tick's own work may hold a wakeup up.
    assert!(phases(true) <= 12, "{}", phases(true));
    assert!(phases(false) > 40, "{}", phases(false));
}

/// A machine with the threads of a 7.2 guest.
fn guest(shape: &str) -> Machine {
    resolve(shape).unwrap().with_background(Background::named("guest-7.2").unwrap()).unwrap()
}

/// The largest share of a LLC of 4 CPUs in the tasks' CPU time between two times.
fn together(run: &Run, names: &[&str], from_ns: u64, to_ns: u64) -> f64 {
    let mut of_llc = [0; 4];
    for stay in names.iter().flat_map(|name| run.stays(name)) {
        let within_ns = stay.end_ns.min(to_ns).saturating_sub(stay.start_ns.max(from_ns));
        of_llc[stay.cpu as usize / 4] += within_ns;
    }
    let whole: u64 = of_llc.iter().sum();
    of_llc.into_iter().max().unwrap_or(0) as f64 / whole as f64
}

#[test]
fn spinners_one_on_each_llc_are_gathered_once_the_guests_threads_run_as_in_a_guest() {
    let names = ["a", "b", "c"];
    let mut scene = Scene::lasting(2 * S);
    for name in names {
        scene.task(name, spin());
    }
    let alone = resolve("1s1n3l4c1t").unwrap();
    let mut shown = Vec::new();
    for seed in 1..=4 {
        let apart = scene.try_run_on(&alone, "cache-aware", seed).unwrap();
        let beside = scene.try_run_on(&guest("1s1n3l4c1t"), "cache-aware", seed).unwrap();
        shown.push((together(&apart, &names, S, 2 * S), together(&beside, &names, S, 2 * S)));
    }
    // A 7.2 kernel has all three in one LLC within half a second in four of four boots (docs/models/cache-aware.md).
    assert!(shown.iter().all(|(apart, beside)| *apart < 0.34 && *beside > 0.9), "{shown:?}");
}

#[test]
fn half_asleep_threads_on_four_llcs_come_together_once_the_guests_threads_run_as_in_a_guest() {
    let names = ["a", "b", "c", "d"];
    let mut scene = Scene::lasting(1200 * MS);
    for name in names {
        scene.task(name, forever([run_for(5 * MS), sleep(5 * MS)]));
    }
    let shares = |machine: &Machine| -> Vec<f64> {
        let run = |seed| scene.try_run_on(machine, "cache-aware", seed).unwrap();
        (1..=8).map(|seed| together(&run(seed), &names, 240 * MS, 480 * MS)).collect()
    };
    let (alone, beside) = (shares(&resolve("1s1n4l4c1t").unwrap()), shares(&guest("1s1n4l4c1t")));
    assert!(alone.iter().all(|share| *share < 0.3), "{alone:?}");
    // Two of four boots of a 7.2 guest have them together by then (docs/models/background.md).
    assert!(beside.iter().filter(|share| **share > 0.9).count() >= 2, "{beside:?}");
}
