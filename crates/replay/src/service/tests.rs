//! Requests of recordings written by hand.

use warmcore_capture::files::Socket;
use warmcore_capture::{Context, Record, Recording, What};
use warmcore_trace::PrevState;
use warmcore_workload::{SemaphoreId, Step};

use super::*;
use crate::arrivals::Arrived;
use crate::history::{Action, Cause, Histories, histories};
use crate::overheads::Overheads;

const SERVER: i32 = 10;
const WORKER: i32 = 11;
const CLIENT: i32 = 20;

/// The server's end of a connection and the client's.
const CONNECTION: (u64, &str, u64, &str) = (4, "socket:[1]", 5, "socket:[2]");

fn record(time_us: u64, by: i32, what: What) -> Record {
    Record { time_ns: time_us * 1_000, cpu: by as u32, by, context: Context::Thread, what }
}

/// A thread begins a call. Each thread has a CPU of its own.
fn call(time_us: u64, by: i32, call: Call, object: u64) -> Record {
    record(time_us, by, What::Call { call, object })
}

fn sleeps(time_us: u64, thread: i32) -> Record {
    let (state, uninterruptible) = (PrevState::Sleeping, false);
    record(time_us, thread, What::Switch { prev: thread, state, next: 0, uninterruptible })
}

/// A thread is woken by another, or by a timer (0), and runs a microsecond later.
fn wakes(time_us: u64, by: i32, thread: i32) -> [Record; 2] {
    let context = if by == 0 { Context::HardInterrupt } else { Context::Thread };
    let waking = Record { context, ..record(time_us, by, What::Waking { thread, target_cpu: thread as u32 }) };
    let (state, uninterruptible) = (PrevState::Idle, false);
    let comes = What::Switch { prev: 0, state, next: thread, uninterruptible };
    [waking, Record { cpu: thread as u32, by: 0, ..record(time_us + 1, 0, comes) }]
}

/// Each thread of its number's tens is of one process.
fn recording(records: Vec<Record>, sockets: &[(&str, &str)]) -> Recording {
    let mut recording = Recording { records, ..Recording::default() };
    for (thread, process) in [(SERVER, 10), (WORKER, 10), (CLIENT, 20)] {
        recording.process(thread, process);
    }
    let (here, server, there, client) = CONNECTION;
    recording.files.saw(0, 10, here, server);
    recording.files.saw(0, 10, 7, "socket:[3]");
    recording.files.saw(0, 20, there, client);
    for (own, peer) in [(server, client), (client, server)] {
        let socket = Socket { peer: Some(peer.into()), ..Socket::default() };
        recording.files.sockets.insert(own.into(), socket);
    }
    for (socket, name) in sockets {
        recording.files.sockets.entry((*socket).into()).or_default().name = (*name).into();
    }
    recording.finished()
}

fn found(recording: &Recording) -> Histories {
    histories(recording, &BTreeSet::from([SERVER, WORKER, CLIENT]), None)
}

/// A client asks every 10 ms. The server works for 1 ms, sleeps for 2 ms, works for 84 us and answers, 3.088 ms after it was woken. The
/// client is woken 3.092 ms after it wrote.
fn asked_and_answered(times: u64) -> Vec<Record> {
    let mut records = vec![call(0, SERVER, Call::Read, 4), sleeps(1, SERVER)];
    records.extend([call(2, CLIENT, Call::SleepFor, 0), sleeps(3, CLIENT)]);
    for start in (1..=times).map(|number| 10_000 * number) {
        records.extend(wakes(start, 0, CLIENT));
        records.push(call(start + 10, CLIENT, Call::Write, 5));
        records.extend(wakes(start + 12, CLIENT, SERVER));
        records.extend([call(start + 20, CLIENT, Call::Read, 5), sleeps(start + 21, CLIENT)]);
        records.extend([call(start + 1_013, SERVER, Call::SleepFor, 0), sleeps(start + 1_014, SERVER)]);
        records.extend(wakes(start + 3_014, 0, SERVER));
        records.push(call(start + 3_100, SERVER, Call::Write, 4));
        records.extend(wakes(start + 3_102, SERVER, CLIENT));
        records.extend([call(start + 3_110, SERVER, Call::Read, 4), sleeps(start + 3_111, SERVER)]);
        records.extend([call(start + 3_150, CLIENT, Call::SleepFor, 0), sleeps(start + 3_151, CLIENT)]);
    }
    records
}

#[test]
fn a_client_whose_first_write_went_by_without_a_name_is_no_server() {
    let mut recording = recording(asked_and_answered(120), &[]);
    // Until after the first write its number is seen to be a file that the process had open before.
    let sockets = std::mem::take(&mut recording.files.sockets);
    recording.files = OpenFiles::default();
    recording.files.sockets = sockets;
    recording.files.saw(0, 10, 4, "socket:[1]");
    recording.files.saw(0, 20, 5, "/usr/share/perl/Socket.pm");
    recording.files.saw(10_015_000, 20, 5, "socket:[2]");
    let service = found(&recording).service;
    assert_eq!((service.requests.len(), service.connections), (120, 1));
    // Of the first request the client's write is not known.
    assert_eq!(service.clients_ns, [3_092_000; 119]);
}

#[test]
fn a_request_lasts_from_the_wakeup_by_its_arrival_to_the_call_that_answers_it() {
    let service = found(&recording(asked_and_answered(120), &[])).service;
    assert_eq!(service.requests[0], Request { arrived_ns: 10_012_000, answered_ns: 13_100_000 });
    assert_eq!(service.samples().iter().map(|(_, length)| *length).collect::<Vec<_>>(), [3_088_000; 120]);
    assert_eq!(service.clients_ns, [3_092_000; 120], "the client's view");
    let left_out = (service.connections, service.found_awake, service.unanswered, service.unnamed);
    assert_eq!(left_out, (1, 0, 0, 0));
    let served = Served::of(&service).unwrap();
    let within = |ns: Option<u64>| ns.is_some_and(|ns| (3_088_000..3_088_000 + 3_088_000 / 100).contains(&ns));
    assert!(within(served.latency.median_ns) && within(served.latency.p99_ns), "{served:?}");
    let few = Served::of(&found(&recording(asked_and_answered(99), &[])).service).unwrap();
    assert_eq!((few.latency.count, few.latency.p99_ns), (99, None));
    assert!(few.sentences()[0].contains("no p99 of fewer than 100"), "{:?}", few.sentences());
}

#[test]
fn a_replay_measures_what_its_task_takes_and_answers() {
    let recording = recording(asked_and_answered(3), &[]);
    let histories = found(&recording);
    let made = crate::workload::replay("service", &histories, &recording, Overheads::default());
    let server = &made.workload.programs[made.workload.tasks[made.tasks[&SERVER].index()].program.index()].steps;
    let (semaphore, recorder) = (SemaphoreId(0), warmcore_workload::RecorderId(0));
    let request = [
        Step::SemTake { semaphore, slot: 0 },
        Step::Run { work_ns: 1_001_000 },
        Step::Sleep { duration_ns: 2_000_000 },
        Step::Run { work_ns: 85_000 },
        Step::RecordClock { slot: 0, recorder },
    ];
    let begin = server.iter().position(|step| *step == request[0]).unwrap();
    assert_eq!(server[begin..begin + 5], request);
    assert_eq!((made.workload.recorders.len(), made.fidelity.service.unwrap().measured), (1, 3));
    // Of a client outside the request arrives at its time.
    let alone = crate::history::histories(&recording, &BTreeSet::from([SERVER]), None);
    let made = crate::workload::replay(
        "service",
        &alone,
        &recording,
        Overheads::of(warmcore_topology::resolve("1s1n1l1c1t").unwrap().costs()),
    );
    let arrivals = |step: &&Step| matches!(step, Step::Draw { .. });
    assert_eq!(made.workload.programs[0].steps.iter().filter(arrivals).count(), 3, "{:?}", made.workload.programs[0]);
    assert_eq!(made.fidelity.service.unwrap().measured, 3);
    let text = warmcore_workload::to_rtapp(&made.workload).unwrap();
    let read = warmcore_workload::resolve("r.json", &Default::default(), |_| Ok(text.clone())).unwrap();
    assert_eq!(read.programs, made.workload.programs, "a file holds all of it");
}

/// A thread waits for several connections, and another one answers.
fn polled(polls: bool) -> Vec<Record> {
    let poll = |at: u64| polls.then(|| call(at, SERVER, Call::Poll, 0));
    let mut records = vec![record(0, SERVER, What::Fork { parent: SERVER, child: WORKER })];
    // Read until nothing is left, and then wait.
    records.extend([call(1, SERVER, Call::Read, 4), call(2, SERVER, Call::Read, 7)]);
    records.extend(poll(3));
    records.push(sleeps(4, SERVER));
    records.extend(wakes(100, CLIENT, SERVER));
    records.extend([call(110, SERVER, Call::Read, 4), call(150, WORKER, Call::Write, 4)]);
    // The other connection has had something to read for nobody knows how long.
    records.extend([call(160, SERVER, Call::Read, 7), call(170, SERVER, Call::Write, 7)]);
    records.push(call(180, SERVER, Call::Read, 7));
    records.extend(poll(190));
    records.push(sleeps(191, SERVER));
    records.extend(wakes(300, CLIENT, SERVER));
    records.extend([call(310, SERVER, Call::Read, 4), call(311, SERVER, Call::Read, 4)]);
    records
}

#[test]
fn a_wait_for_several_connections_is_for_the_one_that_is_read_then() {
    for polls in [true, false] {
        let histories = found(&recording(polled(polls), &[]));
        let service = &histories.service;
        assert_eq!(
            service.requests,
            [Request { arrived_ns: 100_000, answered_ns: 150_000 }],
            "polls recorded: {polls}"
        );
        assert_eq!((service.found_awake, service.unanswered, service.connections), (1, 1, 1));
        let answers = histories.threads.values().flat_map(|history| &history.actions);
        assert_eq!(
            answers.filter(|action| matches!(action, Action::Answer(Arrived::With(_)))).count(),
            0,
            "another thread did"
        );
    }
}

#[test]
fn who_listens_serves_also_where_the_recording_begins_in_the_middle() {
    // The server was in its read already: what comes first is its answer.
    let begun = || asked_and_answered(5).into_iter().filter(|record| record.time_ns >= 10_000_000).collect::<Vec<_>>();
    let names =
        ["tcp 127.0.0.1:80 to 127.0.0.1:999", "tcp 127.0.0.1:999 to 127.0.0.1:80", "tcp 0.0.0.0:80 to 0.0.0.0:0"];
    let named: Vec<_> = ["socket:[1]", "socket:[2]", "socket:[3]"].into_iter().zip(names).collect();
    let service = found(&recording(begun(), &named)).service;
    assert_eq!((service.requests.len(), service.clients_ns.len()), (4, 5), "the first wait was for an unknown call");
    let paths = [("socket:[1]", "unix /run/service"), ("socket:[2]", "unix")];
    assert_eq!(found(&recording(begun(), &paths)).service.requests.len(), 4);
    assert_eq!(found(&recording(begun(), &[])).service.requests.len(), 0, "who wrote first is taken for the client");
}

#[test]
fn timers_and_files_without_a_name_are_no_arrivals() {
    let timed = |number: u64, by: i32| {
        let mut records = vec![call(0, SERVER, Call::Read, number), sleeps(1, SERVER)];
        records.extend(wakes(100, by, SERVER));
        records.push(call(200, SERVER, Call::Write, number));
        found(&recording(records, &[])).service
    };
    assert_eq!(timed(4, CLIENT).requests.len(), 1);
    assert_eq!((timed(4, 0).requests.len(), timed(4, 0).found_awake), (0, 1), "it waited for a time");
    assert_eq!((timed(99, CLIENT).requests.len(), timed(99, CLIENT).unnamed), (0, 1));
}

/// A packet makes a socket ready, in a softirq on the CPU of whoever runs there.
fn ready(time_us: u64, by: i32, socket: u64) -> Record {
    Record { context: Context::SoftInterrupt, ..record(time_us, by, What::Ready { socket }) }
}

fn received(time_us: u64, by: i32, socket: u64) -> Record {
    record(time_us, by, What::Received { socket, bytes: 9 })
}

/// Two requests of clients elsewhere: the first wakes the server, in the stead of a thread that only happens to run, the second comes 400 us
/// later, while the first has 1 ms of work.
fn two_at_a_time() -> Vec<Record> {
    let mut records = wakes(0, 0, WORKER).to_vec();
    records.extend([call(1, SERVER, Call::Poll, 0), sleeps(2, SERVER)]);
    let [waking, comes] = wakes(5_000, WORKER, SERVER);
    records.push(ready(5_000, WORKER, 0xa1));
    records.extend([Record { context: Context::SoftInterrupt, ..waking }, comes]);
    records.extend([call(5_010, SERVER, Call::Read, 4), received(5_011, SERVER, 0xa1)]);
    records.push(ready(5_400, 0, 0xa2));
    records.extend([call(6_001, SERVER, Call::Write, 4), call(6_002, SERVER, Call::Poll, 0)]);
    records.extend([call(6_003, SERVER, Call::Read, 7), received(6_004, SERVER, 0xa2)]);
    records.extend([call(7_000, SERVER, Call::Write, 7), call(7_001, SERVER, Call::Poll, 0), sleeps(7_002, SERVER)]);
    records
}

const ELSEWHERE: [(&str, &str); 2] =
    [("socket:[1]", "tcp 10.0.0.1:80 to 10.0.0.2:90"), ("socket:[3]", "tcp 10.0.0.1:80 to 10.0.0.2:91")];

fn of_elsewhere() -> Recording {
    let mut recording = recording(two_at_a_time(), &ELSEWHERE);
    recording.files.sockets.values_mut().for_each(|socket| socket.peer = None);
    recording
}

#[test]
fn a_request_that_was_there_before_arrived_when_the_kernel_said_so() {
    let histories = found(&of_elsewhere());
    let requests = [(5_000_000, 6_001_000), (5_400_000, 7_000_000)]
        .map(|(arrived_ns, answered_ns)| Request { arrived_ns, answered_ns });
    assert_eq!((&histories.service.requests[..], histories.service.found_awake), (&requests[..], 0));
    let actions = &histories.threads[&SERVER].actions;
    assert!(actions.contains(&Action::Arrive { at_ns: 5_400_000, keeps: true }), "{actions:?}");
    let answers = actions.iter().filter(|action| matches!(action, Action::Answer(Arrived::At(_))));
    assert_eq!(answers.count(), 2);
    // Without that event nobody knows.
    let mut silent = of_elsewhere();
    silent.records.retain(|record| !matches!(record.what, What::Ready { .. } | What::Received { .. }));
    let service = found(&silent).service;
    assert_eq!((&service.requests[..], service.found_awake), (&requests[..1], 1));
}

#[test]
fn a_packet_from_elsewhere_is_no_signal_of_the_thread_that_it_interrupts() {
    let histories = found(&of_elsewhere());
    assert_eq!(histories.signals, []);
    let wait = histories.threads[&SERVER].actions.iter().find(|action| matches!(action, Action::Block(_)));
    let outside = Cause::Outside {
        at_ns: 5_000_000,
        slept_ns: 4_998_000,
        interrupt: true,
        uninterruptible: false,
        asked: Some(Sleeps::Arrival),
    };
    assert_eq!(wait, Some(&Action::Block(outside)));
    let woke = |action: &Action| matches!(action, Action::Wake { .. });
    assert!(!histories.threads[&WORKER].actions.iter().any(woke), "{:?}", histories.threads[&WORKER]);
    // From a chosen process, over the loopback device, it is one.
    let mut local = of_elsewhere();
    local.files.sockets.get_mut("socket:[1]").unwrap().peer = Some("socket:[2]".into());
    let histories = found(&local);
    assert_eq!(histories.signals.len(), 1);
    assert!(histories.threads[&WORKER].actions.iter().any(woke));
}

#[test]
fn a_replay_measures_from_the_arrival_also_what_another_thread_answers() {
    let mut records = two_at_a_time();
    // The second request is answered by another thread, 100 us later.
    let answer = records.iter().position(|record| record.time_ns == 7_000_000).unwrap();
    records.remove(answer);
    records.push(call(7_100, WORKER, Call::Write, 7));
    let recording = Recording { records, ..of_elsewhere() }.finished();
    let histories = found(&recording);
    let made = crate::workload::replay("service", &histories, &recording, Overheads::default());
    let steps = |thread: i32| {
        let program = made.workload.tasks[made.tasks[&thread].index()].program;
        made.workload.programs[program.index()].steps.clone()
    };
    let recorder = warmcore_workload::RecorderId(0);
    let since = |since_ns| Step::RecordSince { since_ns, recorder };
    let until = |ns| Step::Draw {
        what: warmcore_workload::Drawn::Arrival { slot: crate::measured::REQUESTS },
        from: warmcore_workload::Distribution::Constant { ns },
    };
    let server = steps(SERVER);
    let position = |step: Step| server.iter().position(|other| *other == step).unwrap_or_else(|| panic!("{server:?}"));
    let order = [until(5_000_000), since(5_000_000), until(400_000)].map(position);
    assert!(order.is_sorted(), "{server:?}");
    assert!(steps(WORKER).contains(&since(5_400_000)), "{:?}", steps(WORKER));
    let service = made.fidelity.service.unwrap();
    assert_eq!((service.measured, service.open), (2, 2));
    let text = warmcore_workload::to_rtapp(&made.workload).unwrap();
    let read = warmcore_workload::resolve("r.json", &Default::default(), |_| Ok(text.clone())).unwrap();
    assert_eq!(read.programs, made.workload.programs, "a file holds all of it");
}

#[test]
fn a_client_elsewhere_that_waits_for_each_answer_is_slowed_down_by_its_server() {
    // It asks again 200 us after each answer, which takes 1 ms.
    let mut records = vec![call(0, SERVER, Call::Poll, 0), sleeps(1, SERVER)];
    for start in (1..=20).map(|number| 1_200 * number) {
        records.push(ready(start, 0, 0xa1));
        let [waking, comes] = wakes(start, 0, SERVER);
        records.extend([Record { context: Context::SoftInterrupt, ..waking }, comes]);
        records.extend([call(start + 2, SERVER, Call::Read, 4), received(start + 3, SERVER, 0xa1)]);
        records.extend([call(start + 1_000, SERVER, Call::Write, 4), call(start + 1_001, SERVER, Call::Poll, 0)]);
        records.push(sleeps(start + 1_002, SERVER));
    }
    let mut recording = recording(records, &ELSEWHERE);
    recording.files.sockets.values_mut().for_each(|socket| socket.peer = None);
    let histories = found(&recording);
    let asked = histories.threads[&SERVER].actions.iter().filter_map(|action| match action {
        Action::Block(Cause::Outside { asked, .. }) => Some(*asked),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [Some(Sleeps::For); 20]);
    let made = crate::workload::replay("service", &histories, &recording, Overheads::default());
    let service = made.fidelity.service.unwrap();
    assert_eq!((service.measured, service.open), (20, 0));
}
