//! Threads of the kernel itself beside a workload: tasks to every policy.

use warmcore_schedulers::list;
use warmcore_topology::{Background, Basis, KernelThread, Machine, Origin, ThreadPlace, Wakes, resolve};
use warmcore_trace::End;

use crate::support::random::Dice;
use crate::support::*;

/// A thread that runs 50 µs every 10 ms.
fn thread(place: ThreadPlace) -> KernelThread {
    KernelThread {
        name: "kworker".into(),
        place,
        nice: 0,
        wakes: Wakes::Intervals(vec![10 * MS]),
        at_tick: false,
        deferrable: false,
        run_ns: vec![50 * US],
        origin: Origin::new(Basis::Assumed, ""),
    }
}

fn machine(shape: &str, threads: Vec<KernelThread>) -> Machine {
    let background = Background { name: "test".into(), summary: String::new(), threads };
    resolve(shape).unwrap().with_background(background).unwrap()
}

fn hog() -> Scene {
    let mut scene = Scene::lasting(S);
    scene.task("hog", spin());
    scene
}

#[test]
fn every_scheduler_keeps_its_accounts_beside_kernel_threads() {
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
            let machine = machine(shape, threads.to_vec());
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
