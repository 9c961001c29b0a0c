//! Whether a server of several processes that take connections from one socket which listens is that in a replay too: with one of them
//! held up, connections go to the others. Recordings by hand: each of 40 connections takes 0.9 ms of work, they come every 1 ms, and four processes
//! take them in turn.

use warmcore_capture::{Call, Context, Record, Recording, What};
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{BatchConduct, Request, collect};
use warmcore_places::sim::Sim;
use warmcore_replay::history::{Histories, histories};
use warmcore_replay::workload::replay;
use warmcore_replay::{Overheads, Replay};
use warmcore_schedulers::SchedulerSpec;
use warmcore_trace::{Outcome, PrevState};
use warmcore_workload::{Affinity, Policy, ProgramBuilder, Step, Task};

const CLIENT: i32 = 5;
const WORKERS: [i32; 4] = [11, 12, 13, 14];
const REQUESTS: u64 = 40;
const MS: u64 = 1_000_000;
const WORK_NS: u64 = 900_000;
const LISTENER: u64 = 3;

/// How the processes wait.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    /// In `accept`.
    Accept,
    /// In `epoll_wait`, each with `EPOLLEXCLUSIVE`.
    Poll,
}

fn recorded(waits: Waits) -> Recording {
    let mut records = Vec::new();
    let record = |time_ns, cpu, by, what| Record { time_ns, cpu, by, context: Context::Thread, what };
    let switch = |prev, next| What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false };
    let call = |call, object| What::Call { call, object };
    let begin = if waits == Waits::Accept { call(Call::Accept, LISTENER) } else { call(Call::Poll, 0) };
    for (cpu, worker) in (1..).zip(WORKERS) {
        records.push(record(1, cpu, worker, begin));
        records.push(record(2, cpu, worker, switch(worker, 0)));
    }
    records.push(record(2, 0, CLIENT, switch(CLIENT, 0)));
    for number in 0..REQUESTS {
        let (now, place) = ((10 + number) * MS, number as usize % WORKERS.len());
        let (worker, cpu) = (WORKERS[place], place as u32 + 1);
        let timer = Record {
            context: Context::HardInterrupt,
            ..record(now, 0, 0, What::Waking { thread: CLIENT, target_cpu: 0 })
        };
        records.extend([timer, record(now, 0, 0, switch(0, CLIENT)), record(now, 0, CLIENT, call(Call::Connect, 9))]);
        let packet = What::Waking { thread: worker, target_cpu: cpu };
        records.push(Record { context: Context::SoftInterrupt, ..record(now + 5_000, 0, CLIENT, packet) });
        records.push(record(now + 10_000, 0, CLIENT, switch(CLIENT, 0)));
        records.push(record(now + 5_000, cpu, 0, switch(0, worker)));
        let done = now + 5_000 + WORK_NS;
        if waits == Waits::Poll {
            records.push(record(now + 6_000, cpu, worker, call(Call::Accept, LISTENER)));
        }
        records.extend([record(done, cpu, worker, begin), record(done, cpu, worker, switch(worker, 0))]);
    }
    let mut recording = Recording { records, ..Recording::default() };
    for thread in WORKERS.into_iter().chain([CLIENT]) {
        recording.process(thread, thread);
        recording.name(thread, if thread == CLIENT { "client" } else { "worker" });
    }
    WORKERS.iter().for_each(|worker| recording.files.saw(0, *worker, LISTENER, "socket:[77]"));
    recording.finished()
}

/// The replay on six CPUs, where a real-time task has the first worker's only CPU for the first 100 ms.
fn held_up(made: &Replay) -> Outcome {
    let machine = warmcore_topology::resolve("1s1n1l6c1t").unwrap();
    let mut workload = made.workload.clone();
    let only = Affinity::OsCpus(vec![5]);
    let worker = workload.tasks.iter_mut().find(|task| task.name.ends_with("-11")).unwrap();
    worker.affinity = only.clone();
    let program = workload.add_program(ProgramBuilder::new().step(Step::Run { work_ns: 100 * MS }).finish());
    let process = workload.add_process("hog");
    workload.add_task(Task {
        affinity: only,
        policy: Policy::Fifo { priority: 1 },
        ..Task::new("hog", process, program)
    });
    let scheduler = SchedulerSpec::parse("eevdf").unwrap();
    let options = RunOptions { memory: MemoryChoice::None, ..RunOptions::default() };
    let request = Request { options, ..Request::new(&machine, &workload, &scheduler, 5) };
    let conduct = BatchConduct { jobs: 1, stop: Default::default() };
    collect(&Sim, &[request], &conduct, &|_, run| Ok(run?.send(None)?.outcome)).unwrap().remove(0)
}

/// CPU time of the first worker and of the others.
fn worked_ns(outcome: &Outcome) -> (u64, u64) {
    let of = |name: &str| outcome.tasks.iter().find(|task| task.name.ends_with(name)).unwrap().cpu_time_ns;
    (of("-11"), WORKERS[1..].iter().map(|worker| of(&format!("-{worker}"))).sum())
}

#[test]
fn connections_go_to_workers_that_are_free_whoever_asks_for_them() {
    let machine = warmcore_topology::resolve("1s1n1l6c1t").unwrap();
    for (waits, client) in [(Waits::Accept, true), (Waits::Accept, false), (Waits::Poll, true), (Waits::Poll, false)] {
        let recording = recorded(waits);
        let chosen = WORKERS.into_iter().chain(client.then_some(CLIENT)).collect();
        let found = histories(&recording, &chosen, Some(&machine));
        let replayed = |histories: &Histories| replay("server", histories, &recording, Overheads::of(machine.costs()));
        let made = replayed(&found);
        let [pool] = &made.fidelity.pools[..] else { panic!("{:?}", made.fidelity.pools) };
        assert_eq!((&pool.workers[..], pool.requests, pool.replayed), (&WORKERS[..], REQUESTS, true), "{pool:?}");
        assert!(made.fidelity.sentences().iter().any(|line| line.contains("they waited for socket:[77]")));
        let outcome = held_up(&made);
        let (first, others) = worked_ns(&outcome);
        let all_ns = (REQUESTS * WORK_NS) as f64;
        assert!(first < 50_000 && (others as f64 / all_ns - 1.0).abs() < 0.03, "{first} and {others} ns");
        let longest = outcome.recorders[0].quantile(1.0).unwrap();
        assert!((850_000..1_050_000).contains(&longest), "one of three is always free: {longest} ns");
        // Without the common queue ten connections wait until its CPU is free.
        let apart = replayed(&Histories { signals: Vec::new(), accepted: Vec::new(), ..found });
        let (first, _) = worked_ns(&held_up(&apart));
        assert!((first as f64 / (10 * WORK_NS) as f64 - 1.0).abs() < 0.05, "{first} ns");
    }
}

#[test]
fn a_herd_that_each_connection_wakes_is_no_pool() {
    let mut recording = recorded(Waits::Poll);
    let others = |record: &Record| match record.what {
        What::Waking { thread, .. } if thread != CLIENT => WORKERS
            .map(|other| Record {
                time_ns: record.time_ns + u64::from(other != thread) * 700,
                what: What::Waking { thread: other, target_cpu: 0 },
                ..*record
            })
            .to_vec(),
        _ => vec![*record],
    };
    // Those who come too late find nothing, and wait again.
    let mut records: Vec<Record> = recording.records.iter().flat_map(others).collect();
    let wakings: Vec<Record> =
        records.iter().filter(|record| record.context == Context::SoftInterrupt).copied().collect();
    for Record { time_ns, what, .. } in wakings {
        let What::Waking { thread, .. } = what else { continue };
        let cpu = 1 + (thread - WORKERS[0]) as u32;
        let switch = |prev, next| What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false };
        if recording.records.iter().any(|record| record.time_ns == time_ns && record.what == what) {
            continue;
        }
        let record = |time_ns, by, what| Record { time_ns, cpu, by, context: Context::Thread, what };
        let call = |call, object| What::Call { call, object };
        records.extend([
            record(time_ns + 500, 0, switch(0, thread)),
            record(time_ns + 600, thread, call(Call::Accept, LISTENER)),
            record(time_ns + 700, thread, call(Call::Poll, 0)),
            record(time_ns + 800, thread, switch(thread, 0)),
        ]);
    }
    recording.records = records;
    let recording = recording.finished();
    for client in [true, false] {
        let chosen = WORKERS.into_iter().chain(client.then_some(CLIENT)).collect();
        let found = histories(&recording, &chosen, None);
        let made = replay("server", &found, &recording, Overheads::default());
        assert!(made.fidelity.pools.iter().all(|pool| !pool.replayed), "{:?}", made.fidelity.pools);
    }
}
