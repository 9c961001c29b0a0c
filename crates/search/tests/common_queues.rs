//! Whether the replay of a pool is the pool on other machines too: a service with a common queue is recorded on one CPU, replayed on two
//! and on four, and simulated there itself.

mod mixes;

use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{BatchConduct, Request, collect};
use warmcore_places::sim::Sim;
use warmcore_replay::history::{Histories, histories};
use warmcore_replay::workload::replay;
use warmcore_replay::{Overheads, Replay};
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_workload::{ProgramBuilder, Step, Task, Workload};

const WORKERS: u32 = 4;
const REQUESTS: u64 = 400;

/// A client keeps three requests under way, each of its own length, and four threads take them.
fn service() -> Workload {
    let mut workload = Workload::empty("service");
    let process = workload.add_process("server");
    let (queue, answers) = (workload.add_semaphore("requests", 0), workload.add_semaphore("answers", 0));
    let worker = ProgramBuilder::new().step(Step::Run { work_ns: 5_000 }).step(Step::Work {
        semaphore: queue,
        requests: REQUESTS,
        recorder: None,
    });
    let worker = workload.add_program(worker.finish());
    let submit = |workload: &mut Workload, number: u64| {
        // Work of 0.2 to 3.2 ms around a wait for a disk of 1 to 6 ms.
        let work = Step::Run { work_ns: 100_000 + number * number % 31 * 50_000 };
        let disk = Step::Sleep { duration_ns: 1_000_000 + number * number % 37 * 140_000 };
        let steps = [work.clone(), disk, work, Step::SemPost(answers)];
        let program =
            workload.add_program(steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step).finish());
        Step::Submit { semaphore: queue, program }
    };
    let mut client = ProgramBuilder::new().step(Step::Sleep { duration_ns: 1_000_000 });
    for number in 0..REQUESTS {
        if number >= 3 {
            client = client.step(Step::SemWait(answers));
        }
        client = client.step(Step::Run { work_ns: 4_000 }).step(submit(&mut workload, number));
    }
    let client = workload.add_program(client.finish());
    workload.add_task(Task::new("client", process, client));
    for number in 0..WORKERS {
        workload.add_task(Task::new(format!("worker-{number}"), process, worker));
    }
    workload.check().unwrap();
    workload
}

/// Elapsed time, and CPU time of each worker as a share of theirs, the busiest first.
fn run(workload: &Workload, machine: &Machine, is_worker: impl Fn(&str) -> bool) -> (f64, Vec<f64>) {
    let scheduler = SchedulerSpec::parse("eevdf").unwrap();
    let options = RunOptions { memory: MemoryChoice::None, ..RunOptions::default() };
    let request = Request { options, ..Request::new(machine, workload, &scheduler, 5) };
    let conduct = BatchConduct { jobs: 1, stop: Default::default() };
    let outcome = collect(&Sim, &[request], &conduct, &|_, run| Ok(run?.send(None)?.outcome)).unwrap().remove(0);
    let mut shares: Vec<f64> =
        outcome.tasks.iter().filter(|task| is_worker(&task.name)).map(|task| task.cpu_time_ns as f64).collect();
    let all: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= all);
    shares.sort_by(|a, b| b.total_cmp(a));
    (outcome.elapsed_ns as f64, shares)
}

fn recorded() -> (Histories, impl Fn(&Histories) -> Replay) {
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let (recording, chosen) = mixes::recorded(&service(), &machine, 7, MemoryChoice::None);
    let found = histories(&recording, &chosen, Some(&machine));
    (found, move |histories: &Histories| replay("replay", histories, &recording, Overheads::of(machine.costs())))
}

/// Elapsed time within 3 %, and half the differences of shares within 5 %.
#[test]
fn a_pool_recorded_on_one_cpu_is_the_same_pool_on_two_and_four() {
    let (histories, replayed) = recorded();
    let pooled = replayed(&histories);
    let [pool] = &pooled.fidelity.pools[..] else { panic!("{:?}", pooled.fidelity.pools) };
    assert_eq!((pool.workers.len(), pool.replayed), (WORKERS as usize, true), "{pool:?}");
    assert!(pool.requests > REQUESTS * 9 / 10, "few requests find nobody waiting: {pool:?}");
    let apart = replayed(&Histories { signals: Vec::new(), ..histories });
    let is_worker = |name: &str| name.starts_with("worker");
    for name in ["1s1n1l1c1t", "1s1n1l2c1t", "1s1n1l4c1t"] {
        let machine = warmcore_topology::resolve(name).unwrap();
        let (truth, true_shares) = run(&service(), &machine, is_worker);
        let (elapsed, shares) = run(&pooled.workload, &machine, is_worker);
        let apart = run(&apart.workload, &machine, is_worker).0;
        let differences: f64 = true_shares.iter().zip(&shares).map(|(truth, share)| (truth - share).abs() / 2.0).sum();
        assert!((elapsed / truth - 1.0).abs() < 0.03, "{name}: {elapsed} ns, {truth} in truth");
        assert!(differences < 0.05, "{name}: {shares:?}, {true_shares:?} in truth");
        let error = |elapsed: f64| (elapsed / truth - 1.0).abs();
        assert!(error(elapsed) < error(apart), "{name}: threads that wait for their recorded requests are further off");
    }
}

#[test]
fn a_file_holds_a_pools_replay() {
    let (histories, replayed) = recorded();
    let made = replayed(&histories).workload;
    let text = warmcore_workload::to_rtapp(&made).unwrap();
    assert_eq!(warmcore_workload::from_rtapp("replay", &text, &Default::default()).unwrap(), made);
}
