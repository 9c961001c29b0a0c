//! sysbench against a MySQL server: client threads that send transactions over sockets, one server thread for each
//! connection, locks that all of them need.
//!
//! A transaction is a number of statements. For each, the client sends a request and waits; the connection's thread parses and
//! executes it, passes through short critical sections that belong to the whole server, and replies. A writing transaction
//! then waits for the log to reach the disk. Client and server are two processes of one application, as on one host.
//!
//! The sequence follows sysbench 1.0's `oltp_*.lua` and the shape of InnoDB 8.0 (one thread per connection; latches of the
//! index, the undo segments, the transaction system, the lock system, the redo log and the binary log). Who finds a latch taken
//! looks now and then for a while, then sleeps; a release wakes all who sleep, as InnoDB's mutexes do (`os_event_set` is a
//! broadcast). What a latch guards moves to its new owner, 64 lines for a delete in all, as `docs/spec/memory-model.md`
//! section 6.2 has it. Durations are assumed: a point select is about 75 µs of one core in client and server together,
//! the others in proportion to what they do. What memory costs is the profiles' matter.
//!
//! With `--rate` transactions come by themselves: an event thread queues them at exponentially distributed intervals, idle clients wait
//! for them, and a latency counts from the queueing. As sysbench's, the thread keeps its schedule: who is woken late sleeps less the next
//! time. There, clients that find no event look again after half of `threads / rate` seconds, which adds to latencies at low load, intervals are
//! whole microseconds, and 100,000 queued events end the run; here clients are woken, in the order in which they came, and the queue grows.
//!
//! A warm-up is work that takes its time at nominal speed, in long statements that make few events. The real one ends at a time, and no connection
//! waits for another there; here each connection that is done waits for the last one.

use super::flags::{CPUS, FlagInfo, Flags, PROFILE};
use super::{GeneratorInfo, MAX_COUNT};
use crate::{
    BarrierId, BarrierWait, ChannelId, ChannelKind, Distribution, Drawn, GeneratorError, GeneratorProblem, Latch,
    LockId, ProcessId, Program, ProgramBuilder, RecorderId, ResultStyle, SemaphoreId, Step, Task, Workload,
    generate::channel_capacity,
};

const SECOND: u64 = 1_000_000_000;

/// Highest rate: times are whole nanoseconds.
const MOST_PER_SECOND: u64 = SECOND;

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "sysbench",
    summary: "sysbench and a MySQL server: connections, statements, latches, log writes",
    usage: "sysbench:[--test=NAME][,--threads=COUNT][,--time=SECONDS|,--events=COUNT][,--cost=PERCENT]\
            [,--rate=NUMBER|,--think=DURATION][,--start=DURATION][,--warmup-time=SECONDS][,-cCPUS][,--profile=NAME]",
    notes: "Tests: oltp_point_select (one statement), oltp_delete (one statement, one log write), oltp_read_write (18 \
            statements, one log write). Not modelled: disk reads (the tables are in memory), sockets of TCP, the server's \
            background threads. With --rate, idle threads do not look for work at intervals (they are woken), and a queue of \
            100,000 does not end the run (it grows).",
    flags: &[
        FlagInfo::new(None, "test", Some("NAME"), "which test (default oltp_point_select)"),
        FlagInfo::new(None, "threads", Some("COUNT"), "connections (default 1)"),
        FlagInfo::new(None, "time", Some("SECONDS"), "duration, in seconds or with a unit (default 10)"),
        FlagInfo::new(None, "events", Some("COUNT"), "end after so many transactions instead, over all threads"),
        FlagInfo::new(None, "cost", Some("PERCENT"), "scales the work of a transaction (default 100)"),
        FlagInfo::new(None, "think", Some("DURATION"), "sleep of a client between transactions (default 0ns)"),
        FlagInfo::new(
            None,
            "rate",
            Some("NUMBER"),
            "transactions per second over all threads, at exponentially distributed intervals; latency counts \
             from when one was queued (default: each thread begins the next when one is done)",
        ),
        FlagInfo::new(None, "start", Some("DURATION"), "when the clients begin (default 0ns)"),
        FlagInfo::new(
            None,
            "warmup-time",
            Some("SECONDS"),
            "a time before the one that counts, in which transactions are 100 times as long and not recorded: the load and its \
             placement with few events (default: none; the command decides what else does not count)",
        ),
        CPUS,
        PROFILE,
    ],
    make,
};

/// What a test does.
struct Test {
    name: &'static str,
    /// Statements of a transaction.
    statements: u64,
    /// Work of the client for each.
    client_ns: u64,
    /// Work of the server for each, outside of critical sections.
    server_ns: u64,
    /// Critical sections of each.
    latches: &'static [Section],
    /// Time for the log to reach the disk at the end of the transaction.
    log_write_ns: u64,
    request_bytes: u32,
    reply_bytes: u32,
    profile: &'static str,
}

impl Test {
    /// Work of the server for a statement.
    fn statement_ns(&self) -> u64 {
        self.server_ns + self.latches.iter().map(|section| section.held_ns).sum::<u64>()
    }

    /// Time of a transaction that meets nobody and waits for no memory.
    fn transaction_ns(&self) -> u64 {
        self.statements * (self.client_ns + self.statement_ns()) + self.log_write_ns
    }
}

/// A critical section: the server's latch, how long it is held, and the lines of data written under it.
struct Section {
    latch: &'static str,
    held_ns: u64,
    lines: u32,
}

const fn section(latch: &'static str, held_ns: u64, lines: u32) -> Section {
    Section { latch, held_ns, lines }
}

/// Mean time between two looks of who waits actively for a latch: up to 6 delays (`innodb_spin_wait_delay`) of 50 `PAUSE` each,
/// 150 on average, at 7 ns (assumed; 16 cycles of 2.5 GHz, where measured processors take 3 to 140).
const LATCH_POLL_NS: u64 = 1_050;

/// How long it looks before it sleeps: `innodb_sync_spin_loops`, 30 times.
const LATCH_SPIN_NS: u64 = 30 * LATCH_POLL_NS;

/// The server's latches. Readers share most of them and are not modelled as excluding each other.
const TESTS: [Test; 3] = [
    Test {
        name: "oltp_point_select",
        statements: 1,
        client_ns: 15_000,
        server_ns: 60_000,
        latches: &[],
        log_write_ns: 0,
        request_bytes: 60,
        reply_bytes: 200,
        profile: "mysql-select",
    },
    Test {
        name: "oltp_delete",
        statements: 1,
        client_ns: 15_000,
        server_ns: 75_000,
        latches: &[
            section("index", 1_000, 12),
            section("undo", 800, 12),
            section("trx_sys", 500, 6),
            section("lock_sys", 800, 8),
            section("log", 700, 12),
            section("binlog", 1_500, 14),
        ],
        log_write_ns: 50_000,
        request_bytes: 60,
        reply_bytes: 20,
        profile: "mysql-delete",
    },
    Test {
        name: "oltp_read_write",
        statements: 18,
        client_ns: 15_000,
        server_ns: 85_000,
        latches: &[section("lock_sys", 300, 6), section("log", 300, 8)],
        log_write_ns: 50_000,
        request_bytes: 80,
        reply_bytes: 400,
        profile: "mysql-select",
    },
];

/// How much longer the transactions of a warm-up are.
const WARM_UP_FACTOR: u64 = 100;

/// Memory profile of the clients.
const CLIENT_PROFILE: &str = "sysbench-client";

struct Settings {
    test: &'static Test,
    threads: u32,
    /// Transactions of each thread; for ever if `None`.
    transactions: Option<u64>,
    cost_percent: u64,
    think_ns: u64,
    /// Mean time between transactions over all threads, where they come by themselves.
    interval_ns: Option<u64>,
    start_ns: u64,
    /// Transactions of each thread before those that count.
    warm_up: u64,
}

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let name = flags.text("test").unwrap_or(TESTS[0].name);
    let test = TESTS.iter().find(|test| test.name == name).ok_or_else(|| {
        let names: Vec<&str> = TESTS.iter().map(|test| test.name).collect();
        flags.bad_value("test", format!("one of {}", names.join(", ")))
    })?;
    let threads = flags.count("threads", 1, MAX_COUNT / 2)?;
    let events = flags.number("events", 0, 0, u64::MAX >> 20)?;
    let runtime_ns = flags.duration_or_number("time", 10 * SECOND, SECOND)?;
    if runtime_ns == 0 {
        return Err(flags.bad_value("time", "longer than 0"));
    }
    let cost_percent = flags.number("cost", 100, 1, 100_000)?;
    let rate = flags.number("rate", 0, 1, MOST_PER_SECOND)?;
    if rate > 0 && flags.is_set("think") {
        let words = "--think is a sleep between transactions, and with --rate they do not wait for each other";
        return Err(flags.error(GeneratorProblem::Conflict(words.to_owned())));
    }
    let warm_up_ns = flags.duration_or_number("warmup-time", 0, SECOND)?;
    let settings = Settings {
        test,
        threads,
        transactions: (events > 0).then(|| events.div_ceil(threads.into())),
        cost_percent,
        interval_ns: (rate > 0).then(|| (SECOND + rate / 2) / rate),
        think_ns: flags.duration("think", 0)?,
        start_ns: flags.duration("start", 0)?,
        warm_up: warm_up_ns / (test.transaction_ns() * cost_percent / 100 * WARM_UP_FACTOR).max(1),
    };
    let mut workload = build(&settings);
    flags.place_and_profile(&mut workload)?;
    let before_ns = settings.start_ns.saturating_add(warm_up_ns);
    workload.duration_ns = (events == 0).then(|| before_ns.saturating_add(runtime_ns));
    workload.warm_up_ns = flags.is_set("warmup-time").then_some(before_ns);
    Ok(workload)
}

fn build(settings: &Settings) -> Workload {
    let mut workload = Workload::empty("sysbench");
    let (client, server) = (workload.add_process("sysbench"), workload.add_process("mysqld"));
    let transaction = workload.add_recorder("transaction latency");
    // A warm-up is an amount of work, and takes each connection another time: all wait for the last one, so that what counts begins at one instant.
    let waiting = settings.threads + u32::from(settings.interval_ns.is_some());
    let warmed =
        (settings.warm_up > 0 && waiting > 1).then(|| workload.add_barrier("warmed up", waiting, BarrierWait::Block));
    let queue = settings.interval_ns.map(|mean_ns| add_events(&mut workload, settings, (client, mean_ns), warmed));
    let begin = match queue {
        Some(semaphore) => Step::SemTake { semaphore, slot: 0 },
        None => Step::StartClock { slot: 0 },
    };
    workload.style = ResultStyle::Sysbench { transaction };
    let latches: Vec<(LockId, u64)> = settings
        .test
        .latches
        .iter()
        .map(|section| {
            let latch = Latch {
                spin_ns: LATCH_SPIN_NS,
                poll_ns: LATCH_POLL_NS,
                wakes_all: true,
                lines: section.lines,
                ..Latch::default()
            };
            (workload.add_latch(section.latch, latch), scaled(settings, section.held_ns))
        })
        .collect();
    for index in 0..settings.threads {
        let mut channel = |what: &str, bytes| {
            let capacity = channel_capacity(ChannelKind::Socket, bytes);
            workload.add_channel(format!("{what}-{index}"), ChannelKind::Socket, capacity)
        };
        let channels = (channel("request", settings.test.request_bytes), channel("reply", settings.test.reply_bytes));
        let program = workload.add_program(client_program(settings, channels, &begin, (transaction, warmed)));
        let profile = settings.test.profile;
        let task = |name: String, role: &str, profile: &str, process, program| Task {
            role: role.to_owned(),
            profile: Some(profile.to_owned()),
            start_ns: settings.start_ns,
            ..Task::new(name, process, program)
        };
        workload.add_task(task(format!("client-{index}"), "client", CLIENT_PROFILE, client, program));
        let program = workload.add_program(server_program(settings, channels, &latches));
        workload.add_task(task(format!("connection-{index}"), "connection", profile, server, program));
    }
    workload
}

/// The event thread of `--rate`, and the queue into which it puts transactions.
fn add_events(
    workload: &mut Workload,
    settings: &Settings,
    (process, mean_ns): (ProcessId, u64),
    warmed: Option<BarrierId>,
) -> SemaphoreId {
    let queue = workload.add_semaphore("events", 0);
    let arrival = Step::Draw { what: Drawn::Arrival { slot: 0 }, from: Distribution::Exponential { mean_ns } };
    let begun = warmed.map_or(ProgramBuilder::new(), |barrier| ProgramBuilder::new().step(Step::Barrier(barrier)));
    let events = settings.transactions.map(|of_each| of_each * u64::from(settings.threads));
    let program = begun
        .step(Step::StartClock { slot: 0 })
        .repeat(events, |body| body.step(arrival).step(Step::SemPost(queue)))
        .finish();
    let program = workload.add_program(program);
    workload.add_task(Task {
        role: "events".to_owned(),
        profile: Some(CLIENT_PROFILE.to_owned()),
        start_ns: settings.start_ns,
        ..Task::new("events", process, program)
    });
    queue
}

fn scaled(settings: &Settings, ns: u64) -> u64 {
    ns * settings.cost_percent / 100
}

fn client_program(
    settings: &Settings,
    channels: (ChannelId, ChannelId),
    begin: &Step,
    (recorder, warmed): (RecorderId, Option<BarrierId>),
) -> Program {
    let test = settings.test;
    let statement_of = |body: ProgramBuilder, work_ns: u64| {
        body.step(Step::Run { work_ns })
            .step(Step::Send { channel: channels.0, bytes: test.request_bytes })
            .step(Step::Receive { channel: channels.1, bytes: test.reply_bytes })
    };
    let statement = |body| statement_of(body, scaled(settings, test.client_ns));
    let warm_up = warmed_up(settings, |body| statement_of(body, scaled(settings, test.client_ns) * WARM_UP_FACTOR));
    let begun = match warmed {
        Some(barrier) => warm_up.step(Step::Barrier(barrier)),
        None => warm_up,
    };
    begun
        .repeat(settings.transactions, |body| {
            let body = body.step(begin.clone()).repeat(Some(test.statements), statement);
            let body = body.step(Step::RecordClock { slot: 0, recorder });
            if settings.think_ns > 0 { body.step(Step::Sleep { duration_ns: settings.think_ns }) } else { body }
        })
        .finish()
}

/// The server's thread of a connection. The log is written with the last statement of a transaction.
fn server_program(settings: &Settings, channels: (ChannelId, ChannelId), latches: &[(LockId, u64)]) -> Program {
    let test = settings.test;
    let execute = |body: ProgramBuilder| {
        let pieces = latches.len() as u64 + 1;
        let piece = Step::Run { work_ns: (scaled(settings, test.server_ns) / pieces).max(1) };
        let body = body.step(Step::Receive { channel: channels.0, bytes: test.request_bytes }).step(piece.clone());
        latches.iter().fold(body, |body, &(lock, hold_ns)| {
            let held = Step::Run { work_ns: hold_ns.max(1) };
            body.step(Step::Lock(lock)).step(held).step(Step::Unlock(lock)).step(piece.clone())
        })
    };
    let reply = Step::Send { channel: channels.1, bytes: test.reply_bytes };
    let log_write = |body: ProgramBuilder, factor: u64| match test.log_write_ns * factor {
        0 => body,
        duration_ns => body.step(Step::Sleep { duration_ns }),
    };
    warmed_up(settings, |body| {
        let body = body.step(Step::Receive { channel: channels.0, bytes: test.request_bytes });
        let work_ns = scaled(settings, test.statement_ns()) * WARM_UP_FACTOR;
        log_write(body.step(Step::Run { work_ns }), WARM_UP_FACTOR).step(reply.clone())
    })
    .repeat(settings.transactions, |body| {
        let body = if test.statements > 1 {
            body.repeat(Some(test.statements - 1), |body| execute(body).step(reply.clone()))
        } else {
            body
        };
        log_write(execute(body), 1).step(reply.clone())
    })
    .finish()
}

/// A program that begins with the warm-up: its statements, without latches, as often as there are transactions in it.
fn warmed_up(settings: &Settings, statement: impl Fn(ProgramBuilder) -> ProgramBuilder) -> ProgramBuilder {
    match settings.warm_up {
        0 => ProgramBuilder::new(),
        times => ProgramBuilder::new().repeat(Some(times * settings.test.statements), statement),
    }
}
