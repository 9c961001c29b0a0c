//! mediawiki: pages of a wiki that PHP workers make, with queries to a database and gets from a cache.
//!
//! Imitates the benchmark `oss_performance_mediawiki` of DCPerf: siege's clients ask for page after page, HHVM's workers make them, and a
//! MariaDB server and memcached answer the workers, all on one computer. A page is a row of round trips with equal pieces of PHP between them.
//! Workers are threads of one process, so all share its code and cache of bytecode: that is the memory profile's matter.
//!
//! | value | from where |
//! |---|---|
//! | 200 clients, 200 workers, 8 threads of memcached | DCPerf, `packages/mediawiki/run.sh`: at least so many of each with up to 71 CPUs |
//! | no pause of a client between two pages | siege's benchmark mode; DCPerf's README expects CPUs that are 90 % busy or more |
//! | 60 s | `hhvm/oss-performance`, README: a minute is measured; DCPerf takes ten |
//! | 15 ms of a core for a page, all programs together | DCPerf's README: 14,566 pages a second on 380 hardware threads, assumed 95 % busy, are 24.8 ms each; alone on its core a thread does the same in 0.6 of the time (`docs/spec/memory-model.md`, siblings) |
//! | 19 queries a page | Wikimedia's task T347123: `SELECT`s for an article and a reader who is not logged in, caches warm |
//! | 158,806 bytes of a page | DCPerf's README, mean over 8.7 million |
//! | the worker that served last serves next | HHVM's default (`Server.ThreadRoundRobin` is off), so no more workers than clients ever serve |
//! | 60 µs of the server for a query | as the generator sysbench has for a point select; assumed |
//! | 20 gets a page, 8 µs of memcached for each, 200 µs of the client for a page | assumed; nobody published them |
//! | sizes of queries, rows and values | assumed |
//! | queries and gets in turns, equal work between them | assumed |
//! | the first pages of clients are spread over the time of one | assumed: threads of siege do not begin at one instant |
//!
//! Not modelled: nginx, whose work is in that of the workers; TCP; compilation of PHP, which the benchmark's warm-up ends; pages that differ.

use super::flags::{CPUS, FlagInfo, Flags, PROFILE};
use super::{GeneratorInfo, MAX_COUNT};
use crate::{
    ChannelId, ChannelKind, GeneratorError, ProcessId, ProgramBuilder, ProgramId, SemaphoreId, Step, Task, Workload,
    generate::channel_capacity,
};

const SECOND: u64 = 1_000_000_000;

/// Work for a page in all programs together.
const PAGE_NS: u64 = 15_000_000;
const QUERIES: u64 = 19;
const GETS: u64 = 20;
const QUERY_NS: u64 = 60_000;
const GET_NS: u64 = 8_000;
const CLIENT_NS: u64 = 200_000;
/// What is left for the worker, in one piece more than there are round trips.
const PIECE_NS: u64 = (PAGE_NS - CLIENT_NS - QUERIES * QUERY_NS - GETS * GET_NS) / (QUERIES + GETS + 1);

const QUERY_BYTES: u32 = 120;
const ROWS_BYTES: u32 = 400;
const VALUE_BYTES: u32 = 2_048;
const PAGE_BYTES: u32 = 158_806;

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "mediawiki",
    summary: "clients of a wiki, PHP workers that share code and caches, a database and memcached",
    usage: "mediawiki:[--client-threads=COUNT][,--server-threads=COUNT][,--memcached-threads=COUNT]\
            [,--siege-duration=DURATION|,--requests=COUNT][,-cCPUS][,--profile=NAME]",
    notes: "A page takes 15 ms of a core, 19 queries and 20 gets. Profiles: mediawiki, mysql-select for the database, \
            sysbench-client for clients and memcached. Not modelled: nginx apart from the workers, TCP, compilation, pages that \
            differ. Requests and gets wait in queues as with semaphores, without the cost of a socket.",
    flags: &[
        FlagInfo::new(None, "client-threads", Some("COUNT"), "clients that each wait for their page (default 200)"),
        FlagInfo::new(
            None,
            "server-threads",
            Some("COUNT"),
            "workers; those beyond the clients never run (default 200)",
        ),
        FlagInfo::new(None, "memcached-threads", Some("COUNT"), "threads of memcached (default 8)"),
        FlagInfo::new(None, "siege-duration", Some("DURATION"), "length of the run (default 60s)"),
        FlagInfo::new(None, "requests", Some("COUNT"), "end after so many pages instead, over all clients"),
        CPUS,
        PROFILE,
    ],
    make,
};

struct Settings {
    clients: u32,
    workers: u32,
    memcached_threads: u32,
    /// Pages of each client; for ever if `None`.
    pages: Option<u64>,
}

impl Settings {
    /// Clients whose gets a thread of memcached answers.
    fn clients_of(&self, thread: u32) -> u64 {
        u64::from(self.clients - thread).div_ceil(self.memcached_threads.into())
    }
}

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let clients = flags.count("client-threads", 200, MAX_COUNT / 4)?;
    let requests = flags.number("requests", 0, 1, u64::MAX >> 20)?;
    let runtime_ns = flags.run_length("siege-duration", 60 * SECOND)?;
    let settings = Settings {
        clients,
        workers: flags.count("server-threads", 200, MAX_COUNT / 4)?.min(clients),
        // A thread without clients has nothing to do.
        memcached_threads: flags.count("memcached-threads", 8, MAX_COUNT / 4)?.min(clients),
        pages: (requests > 0).then(|| requests.div_ceil(clients.into())),
    };
    let mut workload = build(&settings);
    flags.place_and_profile(&mut workload)?;
    workload.duration_ns = (requests == 0).then_some(runtime_ns);
    Ok(workload)
}

fn build(settings: &Settings) -> Workload {
    let mut workload = Workload::empty("mediawiki");
    let [siege, hhvm, mysqld, memcached] =
        ["siege", "hhvm", "mysqld", "memcached"].map(|name| workload.add_process(name));
    let page = workload.add_recorder("page");
    let queue = workload.add_semaphore("requests", 0);
    let gets: Vec<SemaphoreId> =
        (0..settings.memcached_threads).map(|thread| workload.add_semaphore(format!("gets-{thread}"), 0)).collect();
    for index in 0..settings.clients {
        let mut channel = |what: &str, bytes| {
            let capacity = channel_capacity(ChannelKind::Socket, bytes);
            workload.add_channel(format!("{what}-{index}"), ChannelKind::Socket, capacity)
        };
        let (query, rows) = (channel("query", QUERY_BYTES), channel("rows", ROWS_BYTES));
        let (value, answer) = (channel("value", VALUE_BYTES), channel("page", PAGE_BYTES));
        let get = ProgramBuilder::new()
            .step(Step::Run { work_ns: GET_NS })
            .step(Step::Send { channel: value, bytes: VALUE_BYTES });
        let get = (gets[index as usize % gets.len()], workload.add_program(get.finish()));
        let request = request(&mut workload, (query, rows), (get, value), answer);

        let asking = ProgramBuilder::new().repeat(settings.pages, |body| {
            body.step(Step::StartClock { slot: 0 })
                .step(Step::Run { work_ns: CLIENT_NS })
                .step(Step::Submit { semaphore: queue, program: request })
                .step(Step::Receive { channel: answer, bytes: PAGE_BYTES })
                .step(Step::RecordClock { slot: 0, recorder: page })
        });
        let start_ns = PAGE_NS * u64::from(index) / u64::from(settings.clients);
        let name = format!("client-{index}");
        add(&mut workload, siege, Task { start_ns, ..threads(name, "client", "sysbench-client", 1) }, asking);

        let queries = settings.pages.map(|pages| pages * QUERIES);
        let answering = ProgramBuilder::new().repeat(queries, |body| {
            body.step(Step::Receive { channel: query, bytes: QUERY_BYTES })
                .step(Step::Run { work_ns: QUERY_NS })
                .step(Step::Send { channel: rows, bytes: ROWS_BYTES })
        });
        add(&mut workload, mysqld, threads(format!("connection-{index}"), "connection", "mysql-select", 1), answering);
    }
    let of = |clients: u64, of_page: u64| settings.pages.map_or(u64::MAX >> 1, |pages| pages * clients * of_page);
    let work = |semaphore, requests| ProgramBuilder::new().step(Step::Work { semaphore, requests, recorder: None });
    let serving = work(queue, of(settings.clients.into(), 1));
    add(&mut workload, hhvm, threads("worker".to_owned(), "worker", "mediawiki", settings.workers), serving);
    for (thread, semaphore) in (0..).zip(gets) {
        let getting = work(semaphore, of(settings.clients_of(thread), GETS));
        add(&mut workload, memcached, threads(format!("cache-{thread}"), "cache", "sysbench-client", 1), getting);
    }
    workload
}

/// What a worker does for a page of a client: its round trips on that client's connections, and the page.
fn request(
    workload: &mut Workload,
    (query, rows): (ChannelId, ChannelId),
    ((gets, get), value): ((SemaphoreId, ProgramId), ChannelId),
    answer: ChannelId,
) -> ProgramId {
    let piece = Step::Run { work_ns: PIECE_NS };
    let mut request = ProgramBuilder::new().step(piece.clone());
    for trip in 0..QUERIES + GETS {
        let is_query = (trip + 1) * QUERIES / (QUERIES + GETS) > trip * QUERIES / (QUERIES + GETS);
        request = if is_query {
            request
                .step(Step::Send { channel: query, bytes: QUERY_BYTES })
                .step(Step::Receive { channel: rows, bytes: ROWS_BYTES })
        } else {
            request
                .step(Step::Submit { semaphore: gets, program: get })
                .step(Step::Receive { channel: value, bytes: VALUE_BYTES })
        };
        request = request.step(piece.clone());
    }
    workload.add_program(request.step(Step::Send { channel: answer, bytes: PAGE_BYTES }).finish())
}

/// Threads without process and program yet.
fn threads(name: String, role: &str, profile: &str, instances: u32) -> Task {
    Task {
        role: role.to_owned(),
        profile: Some(profile.to_owned()),
        instances,
        ..Task::new(name, ProcessId(0), ProgramId(0))
    }
}

fn add(workload: &mut Workload, process: ProcessId, task: Task, program: ProgramBuilder) {
    let program = workload.add_program(program.finish());
    workload.add_task(Task { process, program, ..task });
}
