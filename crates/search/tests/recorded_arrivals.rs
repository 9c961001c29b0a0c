//! Requests that arrive by themselves: a server with one thread and 1 ms of work for each, whose clients are not recorded. How long each
//! request takes follows from the arrivals alone (Lindley's recursion): a replay must say the same, as recorded and with a slower server.

use warmcore_capture::files::Socket;
use warmcore_capture::{Call, Context, Record, Recording, What};
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{BatchConduct, Request, collect};
use warmcore_places::sim::Sim;
use warmcore_replay::history::histories;
use warmcore_replay::workload::replay;
use warmcore_replay::{Overheads, Replay};
use warmcore_schedulers::SchedulerSpec;
use warmcore_trace::{Histogram, PrevState};
use warmcore_workload::Step;

const SERVER: i32 = 10;
const MS: u64 = 1_000_000;
/// Work for a request as recorded: on top of it are the switch and the calls that the simulated kernel charges for again.
const WORK_NS: u64 = MS;

/// When the server is done with each request, if it takes them as they come.
fn done_ns(arrivals_ns: &[u64], work_ns: u64) -> Vec<u64> {
    let mut free_ns = 0;
    let done = arrivals_ns.iter().map(|arrival_ns| {
        free_ns = free_ns.max(*arrival_ns) + work_ns;
        free_ns
    });
    done.collect()
}

/// Latencies by hand.
fn latencies_ns(arrivals_ns: &[u64], work_ns: u64) -> Vec<u64> {
    done_ns(arrivals_ns, work_ns).iter().zip(arrivals_ns).map(|(done_ns, arrival_ns)| done_ns - arrival_ns).collect()
}

/// A server that waits for all connections, reads from the one that has a request, works, and answers. Each request comes on the connection
/// that had one longest ago.
fn recorded(arrivals_ns: &[u64], connections: usize) -> Recording {
    let mut records = Vec::new();
    let server = |time_ns, what| Record { time_ns, cpu: 1, by: SERVER, context: Context::Thread, what };
    let call = |time_ns, call, object| server(time_ns, What::Call { call, object });
    let switch = |prev, next| What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false };
    records.extend([call(1, Call::Poll, 0), server(2, switch(SERVER, 0))]);
    let mut free_ns = 2;
    for (number, (&arrival_ns, done_ns)) in arrivals_ns.iter().zip(done_ns(arrivals_ns, WORK_NS)).enumerate() {
        let (file, socket) = (100 + (number % connections) as u64, 0xffff_8000 + (number % connections) as u64);
        let network = |what| Record { time_ns: arrival_ns, cpu: 0, by: 0, context: Context::SoftInterrupt, what };
        records.push(network(What::Ready { socket }));
        if arrival_ns > free_ns {
            records.push(network(What::Waking { thread: SERVER, target_cpu: 1 }));
            records.push(Record { by: 0, ..server(arrival_ns, switch(0, SERVER)) });
        }
        let begun_ns = done_ns - WORK_NS;
        let bytes = 12;
        records.extend([call(begun_ns, Call::Read, file), server(begun_ns, What::Received { socket, bytes })]);
        records.extend([call(done_ns, Call::Write, file), call(done_ns, Call::Poll, 0)]);
        free_ns = done_ns;
        if arrivals_ns.get(number + 1).is_none_or(|next_ns| *next_ns > done_ns) {
            records.push(server(done_ns, switch(SERVER, 0)));
        }
    }
    let mut recording = Recording { records, ..Recording::default() };
    recording.process(SERVER, SERVER);
    let mut saw = |number: u64, name: String| {
        let socket = format!("socket:[{number}]");
        recording.files.saw(0, SERVER, number, &socket);
        recording.files.sockets.insert(socket, Socket { peer: None, name });
    };
    saw(3, "tcp 0.0.0.0:80 to 0.0.0.0:0".into());
    for number in 100..100 + connections as u64 {
        saw(number, format!("tcp 10.0.0.1:80 to 10.0.0.2:{}", 40_000 + number));
    }
    recording.finished()
}

/// The replay, what its requests took as recorded, and what they take where work takes `times` as long.
fn replayed(recording: &Recording, times: u64) -> (Replay, Vec<u64>, Histogram) {
    let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
    let found = histories(recording, &[SERVER].into(), Some(&machine));
    let mut made = replay("service", &found, recording, Overheads::of(machine.costs()));
    for step in made.workload.programs.iter_mut().flat_map(|program| &mut program.steps) {
        if let Step::Run { work_ns } = step {
            *work_ns *= times;
        }
    }
    let scheduler = SchedulerSpec::parse("eevdf").unwrap();
    let options = RunOptions { memory: MemoryChoice::None, ..RunOptions::default() };
    let request = Request { options, ..Request::new(&machine, &made.workload, &scheduler, 5) };
    let conduct = BatchConduct { jobs: 1, stop: Default::default() };
    let mut outcome = collect(&Sim, &[request], &conduct, &|_, run| Ok(run?.send(None)?.outcome)).unwrap().remove(0);
    let recorded_ns = found.service.samples().into_iter().map(|(_, latency_ns)| latency_ns).collect();
    (made, recorded_ns, outcome.recorders.remove(0))
}

/// Times between arrivals of a Poisson process.
fn poisson(mean_ns: f64, count: usize) -> Vec<u64> {
    let (mut state, mut now_ns) = (0x2545_f491_4f6c_dd1d_u64, 10 * MS);
    let arrival = |_| {
        // Knuth's linear congruential generator (MMIX).
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((state >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        now_ns += (-uniform.ln() * mean_ns) as u64;
        now_ns
    };
    (0..count).map(arrival).collect()
}

fn close(found: f64, expected: f64, share: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < share, "{what}: {found}, by hand {expected}");
}

#[test]
fn ten_requests_at_once_take_one_to_ten_times_as_long_as_one() {
    let recording = recorded(&[20 * MS; 10], 10);
    for times in [1, 2] {
        let (made, recorded_ns, latencies) = replayed(&recording, times);
        assert_eq!(recorded_ns, (1..=10).map(|number| number * MS).collect::<Vec<_>>(), "as recorded");
        let served = made.fidelity.service.unwrap();
        assert_eq!((served.latency.count, served.found_awake, served.measured, served.open), (10, 0, 10, 10));
        assert_eq!(latencies.count(), 10);
        for number in 1..=10 {
            let found = latencies.quantile(f64::from(number) / 10.0).unwrap() as f64;
            close(found, f64::from(number) * (times * MS) as f64, 0.02, "the latencies in order");
        }
    }
}

/// Half of the time the server is busy where it is half as fast: a request waits for ρ / (2 (1 − ρ)) = 0.5 of the work for one, on average
/// (M/D/1, Pollaczek and Khinchine).
#[test]
fn poisson_arrivals_at_a_server_half_as_fast_queue_as_theory_has_it() {
    let arrivals_ns = poisson(4.0 * MS as f64, 8_000);
    let recording = recorded(&arrivals_ns, 50);
    for times in [1, 2] {
        let (made, recorded_ns, latencies) = replayed(&recording, times);
        assert_eq!(recorded_ns, latencies_ns(&arrivals_ns, WORK_NS), "as recorded");
        assert_eq!(made.fidelity.service.unwrap().open, 8_000);
        let mut by_hand = latencies_ns(&arrivals_ns, times * WORK_NS);
        by_hand.sort_unstable();
        let mean = by_hand.iter().sum::<u64>() as f64 / by_hand.len() as f64;
        assert_eq!(latencies.count(), 8_000);
        close(latencies.mean().unwrap(), mean, 0.01, "the mean");
        for quantile in [0.5, 0.9, 0.99] {
            let expected = by_hand[(quantile * 8_000.0) as usize] as f64;
            close(latencies.quantile(quantile).unwrap() as f64, expected, 0.03, "a quantile");
        }
        let busy = times as f64 / 4.0;
        let theory = (times * WORK_NS) as f64 * (1.0 + busy / (2.0 * (1.0 - busy)));
        close(latencies.mean().unwrap(), theory, 0.05, "Pollaczek and Khinchine");
    }
}
