//! Many small random workloads that end by construction, under every scheduler: no task is lost, the work done is the work asked,
//! times add up.

use warmcore_trace::{End, Outcome};
use warmcore_workload::{Action, Deed};

use crate::support::random::{Asked, Dice};
use crate::support::{MS, Scene};

/// Workloads; each runs under one machine and all schedulers.
const WORKLOADS: u64 = 1000;

/// NUMA balancing that begins at once and samples a MiB at every tick: the workloads take milliseconds.
const HASTY: &str = "eevdf:scan_delay_ms=0,scan_period_min_ms=1,scan_size_mb=1";

const SCHEDULERS: [&str; 15] = [
    HASTY,
    "cache-aware:scan_delay_ms=0,scan_period_min_ms=1,scan_size_mb=1",
    "cache-aware",
    "cache-aware:aggr_tolerance=100,epoch_period=1",
    "topology-aware",
    "topology-aware:mode=ladder,fill=spread,hold=1,batch=4,gain=inverse,wake_hint=1,epoch_period=1",
    "eevdf",
    "eevdf:hrtick=0,hz=1000",
    "eevdf:preempt=full,delay_dequeue=0,autogroup=0",
    "eevdf:next_buddy=1,run_to_parity=0,place_lag=0",
    "eevdf:delay_zero=0,place_rel_deadline=0,sis_util=0,ttwu_queue=0",
    "cfs",
    "cfs:balance_by_load=1,imbalance_pct=125,busy_factor=32",
    "cfs:gentle_fair_sleepers=0,next_buddy=1,hz=1000,autogroup=0",
    "rr:quantum_ns=1000000",
];

const MACHINES: [(&str, u32); 6] =
    [("1s1n1l1c1t", 1), ("1s1n1l2c1t", 2), ("1s1n1l2c2t", 4), ("1s1n2l2c1t", 4), ("2s1n2l2c1t", 8), ("2s2n1l2c2t", 16)];

fn all_work_is_done(scene: &Scene, outcome: &Outcome, what: &str) {
    assert_eq!(outcome.end, End::AllExited, "{what}");
    for task in &outcome.tasks {
        let template = scene.workload.tasks.iter().find(|template| template.role == task.role).unwrap();
        let asked = Asked::by(&scene.workload.programs[template.program.index()]);
        assert!(asked.is_done_by(task), "{what}: work of {}: {asked:?}, {} ns", task.name, task.progress_ns);
    }
}

#[test]
fn random_workloads_end_with_all_work_done_under_every_scheduler() {
    for seed in 0..WORKLOADS {
        let mut dice = Dice::new(seed);
        let (machine, cpus) = MACHINES[dice.below(MACHINES.len() as u64) as usize];
        let scene = dice.scene(cpus);
        // All schedulers take turns; every one sees every kind of workload.
        for offset in [0, 4, 8] {
            let scheduler = SCHEDULERS[(seed as usize + offset) % SCHEDULERS.len()];
            let run = match scene.try_run(machine, scheduler, seed) {
                Ok(run) => run,
                Err(error) => panic!("workload {seed} on {machine} under {scheduler}: {error}"),
            };
            all_work_is_done(&scene, &run.outcome, &format!("workload {seed} under {scheduler}"));
        }
    }
}

/// CPUs that go and come at any moment of the first milliseconds, never the last one.
fn changes(seed: u64, cpus: u32) -> Vec<Action> {
    let mut dice = Dice::new(seed ^ 0x68_6f74_706c_7567);
    let mut online = vec![true; cpus as usize];
    let mut time_ns = 0;
    let mut actions = Vec::new();
    for _ in 0..1 + dice.below(8) {
        time_ns += dice.below(3 * MS);
        let cpu = dice.below(u64::from(cpus)) as u32;
        let comes = !online[cpu as usize];
        if comes || online.iter().filter(|online| **online).count() > 1 {
            online[cpu as usize] = comes;
            actions.push(Action { time_ns, what: Deed::Hotplug { cpu, online: comes } });
        }
    }
    actions
}

#[test]
fn random_workloads_end_with_all_work_done_while_cpus_come_and_go() {
    const MORE: [&str; 2] = ["fifo", "rr"];
    for seed in 0..WORKLOADS {
        let mut dice = Dice::new(seed);
        let (machine, cpus) = MACHINES[1 + dice.below(MACHINES.len() as u64 - 1) as usize];
        let mut scene = dice.scene(cpus);
        scene.actions = changes(seed, cpus);
        let all: Vec<&str> = SCHEDULERS.iter().chain(&MORE).copied().collect();
        let scheduler = all[seed as usize % all.len()];
        let run = match scene.try_run(machine, scheduler, seed) {
            Ok(run) => run,
            Err(error) => panic!("workload {seed} on {machine} under {scheduler}: {error}"),
        };
        all_work_is_done(&scene, &run.outcome, &format!("workload {seed} under {scheduler}"));
    }
}
