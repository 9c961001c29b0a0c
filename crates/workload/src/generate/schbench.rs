//! schbench: message threads that hand out requests, and workers that do them.
//!
//! Follows the program at github.com/masoncl/schbench (2023 and later). A worker puts itself on its message thread's
//! list, wakes the message thread and sleeps; the message thread wakes everybody on its list. A woken worker does one
//! request: it sleeps `-s` µs and multiplies matrices `-n` times. Latencies of wakeups and of requests are recorded.
//! With `-R` the message thread instead hands out its share of the requests at the beginning of every second, round
//! robin.
//!
//! Size of a matrix: three of them fill the footprint `-F`. Cost of each multiplication and addition: what
//! [`Options::multiply_add_ps`](crate::Options::multiply_add_ps) says, which is a simulated machine's own if it states one, and on this
//! computer was measured; otherwise 3 ns, from the calibration run in schbench's README (16 864 µs for `-F 256 -n 5`).

use std::num::NonZeroU64;

use super::flags::{FlagInfo, Flags};
use super::{GeneratorInfo, MAX_COUNT};
use crate::{
    Affinity, GeneratorError, GeneratorProblem, ListId, ProcessId, Program, ProgramBuilder, RecorderId, ResultStyle,
    Step, Task, TaskTemplateId, TimerMode, Workload,
};

const SECOND: u64 = 1_000_000_000;
const MULTIPLY_ADD_PS: u64 = 3_000;

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "schbench",
    summary: "message threads that wake workers; wakeup and request latencies",
    usage: "schbench:-tWORKERS[,-mMESSENGERS][,-rSECONDS][,-wSECONDS][,-nOPERATIONS][,-FKB][,-sUSEC][,-RRPS][,-L][,-C]",
    notes: "Without -L schbench holds a spinlock of its CPU while it works; that is not modelled (a warning). With -R \
            every second starts at the first worker. Requests in waiting are not limited to 128 per worker, and \
            wakeup latencies are not recorded. -w is honoured in every run; schbench itself ignores it below 30 s and with \
            -R. CPU lists of -M and -W have colons for commas.",
    flags: &[
        FlagInfo::new(Some('m'), "message-threads", Some("COUNT"), "message threads (default 1)"),
        FlagInfo::new(Some('t'), "threads", Some("COUNT"), "workers per message thread; must be given"),
        FlagInfo::new(Some('r'), "runtime", Some("SECONDS"), "duration, in seconds or with a unit (default 30)"),
        FlagInfo::new(Some('n'), "operations", Some("COUNT"), "matrix multiplications per request (default 5)"),
        FlagInfo::new(Some('F'), "cache_footprint", Some("KB"), "size of a worker's matrices (default 256)"),
        FlagInfo::new(
            Some('s'),
            "sleep_usec",
            Some("USEC"),
            "sleep in each request, in µs or with a unit (default 100)",
        ),
        FlagInfo::new(Some('R'), "rps", Some("COUNT"), "requests per second, over all message threads"),
        FlagInfo::new(Some('L'), "no-locking", None, "no spinlock around the work"),
        FlagInfo::new(Some('C'), "calibrate", None, "record requests without their sleep"),
        FlagInfo::new(Some('M'), "message-cpus", Some("CPUS"), "CPUs of message threads, one each in turn"),
        FlagInfo::new(Some('W'), "worker-cpus", Some("CPUS"), "CPUs of workers"),
        FlagInfo::new(
            Some('w'),
            "warmuptime",
            Some("SECONDS"),
            "part of the runtime that does not count, in seconds or with a unit (default: the command decides)",
        ),
        FlagInfo::new(Some('i'), "intervaltime", Some("SECONDS"), "accepted: one report at the end"),
        FlagInfo::new(Some('z'), "zerotime", Some("SECONDS"), "accepted: latencies are never zeroed"),
        FlagInfo::new(Some('j'), "json", Some("FILE"), "accepted: no JSON file is written"),
        FlagInfo::new(Some('J'), "jobname", Some("NAME"), "accepted: no JSON file is written"),
        FlagInfo::new(Some('A'), "auto-rps", Some("PERCENT"), "not supported"),
        FlagInfo::new(Some('p'), "pipe", Some("BYTES"), "not supported"),
    ],
    make,
};

/// Accepted flags without effect, and what that means.
const NO_EFFECT: [(&str, &str); 4] = [
    ("intervaltime", "there is one report, at the end"),
    ("zerotime", "latencies are never zeroed"),
    ("json", "no JSON file is written"),
    ("jobname", "no JSON file is written"),
];

struct Settings {
    messengers: u32,
    workers: u32,
    operations: u64,
    multiply_add_ps: u64,
    footprint_bytes: u64,
    sleep_ns: u64,
    calibrate: bool,
    requests_per_second: u64,
    messenger_cpus: Vec<u32>,
    worker_cpus: Vec<u32>,
}

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let unsupported = [
        ("auto-rps", "-A", "the load cannot follow a measured utilisation; use -R"),
        ("pipe", "-p", "use the generator pingpong for transfers"),
    ];
    for (long, flag, why) in unsupported {
        if flags.is_set(long) {
            return Err(flags.error(GeneratorProblem::Unsupported { flag, why }));
        }
    }
    if !flags.is_set("threads") {
        let why = "schbench's own default is the number of CPUs, and a workload does not know its machine";
        return Err(flags.error(GeneratorProblem::MissingFlag { flag: "-t", why }));
    }
    let settings = Settings {
        messengers: flags.count("message-threads", 1, 10_000)?,
        workers: flags.count("threads", 1, 100_000)?,
        operations: flags.number("operations", 5, 0, 1_000_000)?,
        multiply_add_ps: flags.options.multiply_add_ps.map_or(MULTIPLY_ADD_PS, NonZeroU64::get),
        footprint_bytes: flags.number("cache_footprint", 256, 1, 1 << 20)? * 1024,
        sleep_ns: flags.duration_or_number("sleep_usec", 100_000, 1_000)?,
        calibrate: flags.is_set("calibrate"),
        requests_per_second: flags.number("rps", 0, 1, 1_000_000_000)?,
        messenger_cpus: flags.cpu_list("message-cpus")?,
        worker_cpus: flags.cpu_list("worker-cpus")?,
    };
    if u64::from(settings.messengers) * u64::from(settings.workers) > u64::from(MAX_COUNT) {
        let words = format!("more than {MAX_COUNT} workers are not possible");
        return Err(flags.error(GeneratorProblem::Conflict(words)));
    }
    let per_messenger = settings.requests_per_second / u64::from(settings.messengers);
    if flags.is_set("rps") && per_messenger == 0 {
        return Err(flags.bad_value("rps", "at least one request per second for each message thread"));
    }
    let runtime_ns = flags.duration_or_number("runtime", 30 * SECOND, SECOND)?;
    if runtime_ns == 0 {
        return Err(flags.bad_value("runtime", "longer than 0"));
    }
    let mut workload = build(&settings, per_messenger);
    workload.duration_ns = Some(runtime_ns);
    if flags.is_set("warmuptime") {
        let warm_up_ns = flags.duration_or_number("warmuptime", 0, SECOND)?;
        if warm_up_ns >= runtime_ns {
            return Err(flags.bad_value("warmuptime", "shorter than the runtime (-r), which includes it"));
        }
        workload.warm_up_ns = Some(warm_up_ns);
    }
    if !flags.is_set("no-locking") && !flags.is_set("calibrate") {
        workload.warn("schbench without -L", "no spinlock is held during the work, as if -L were given");
    }
    if per_messenger > 0 {
        workload.warn("flag \"--rps\"", "wakeup latencies are not recorded; use the run's wakeup latency");
    }
    for (long, consequence) in NO_EFFECT {
        if flags.is_set(long) {
            workload.warn(format!("flag \"--{long}\""), consequence);
        }
    }
    Ok(workload)
}

struct Shared<'a> {
    settings: &'a Settings,
    process: ProcessId,
    wakeup: RecorderId,
    request: RecorderId,
}

fn build(settings: &Settings, per_messenger: u64) -> Workload {
    let mut workload = Workload::empty("schbench");
    let process = workload.add_process("schbench");
    let (wakeup, request) = (workload.add_recorder("wakeup latency"), workload.add_recorder("request latency"));
    workload.style = ResultStyle::Schbench { wakeup, request };
    let shared = Shared { settings, process, wakeup, request };

    let main = workload.add_program(Program::default());
    workload.add_task(Task { role: "main".to_owned(), ..Task::new("main", process, main) });
    let mut main_program = ProgramBuilder::new();
    for index in 0..settings.messengers {
        let messenger = if per_messenger == 0 {
            closed_loop(&mut workload, &shared, index)
        } else {
            open_loop(&mut workload, &shared, index, per_messenger)
        };
        main_program = main_program.step(Step::Fork(messenger));
    }
    // The main thread looks at the statistics once a second until the time is over.
    let look = |body: ProgramBuilder| body.step(Step::Sleep { duration_ns: SECOND });
    workload.programs[main.index()] = main_program.repeat(None, look).finish();
    workload
}

/// A message thread with workers that ask for the next request when they have done one.
fn closed_loop(workload: &mut Workload, shared: &Shared<'_>, index: u32) -> TaskTemplateId {
    let list: ListId = workload.add_list(format!("queue-{index}"));
    let enlist = Step::Enlist { list, recorder: Some(shared.wakeup) };
    let program = ProgramBuilder::new().repeat(None, |body| request(body.step(enlist), shared)).finish();
    let worker = add_worker(workload, shared, format!("worker-{index}"), program);
    let program = ProgramBuilder::new()
        .repeat(Some(shared.settings.workers.into()), |body| body.step(Step::Fork(worker)))
        .repeat(None, |body| body.step(Step::Serve(list)))
        .finish();
    add_messenger(workload, shared, index, program)
}

/// A message thread that hands out so many requests at the beginning of every second.
fn open_loop(workload: &mut Workload, shared: &Shared<'_>, index: u32, per_second: u64) -> TaskTemplateId {
    let workers = shared.settings.workers;
    let mut program = ProgramBuilder::new();
    let mut posts = Vec::new();
    for worker in 0..workers {
        let semaphore = workload.add_semaphore(format!("requests-{index}-{worker}"), 0);
        let wait = Step::SemWait(semaphore);
        let work = ProgramBuilder::new().repeat(None, |body| request(body.step(wait), shared)).finish();
        let template = add_worker(workload, shared, format!("worker-{index}-{worker}"), work);
        program = program.step(Step::Fork(template));
        posts.push(Step::SemPost(semaphore));
    }
    let timer = workload.add_timer(format!("unique second {index}"));
    let (rounds, rest) = (per_second / u64::from(workers), (per_second % u64::from(workers)) as usize);
    let all = |body: ProgramBuilder, posts: &[Step]| posts.iter().fold(body, |body, post| body.step(post.clone()));
    let program = program
        .repeat(None, |body| {
            let body = if rounds > 0 { body.repeat(Some(rounds), |body| all(body, &posts)) } else { body };
            let body = all(body, &posts[..rest]);
            body.step(Step::Timer { timer, period_ns: SECOND, mode: TimerMode::Relative })
        })
        .finish();
    add_messenger(workload, shared, index, program)
}

/// One request: sleep and matrix multiplications.
fn request(body: ProgramBuilder, shared: &Shared<'_>) -> ProgramBuilder {
    let settings = shared.settings;
    let size = (settings.footprint_bytes / 3 / 8).isqrt();
    let start = Step::StartClock { slot: 0 };
    let sleep = Step::Sleep { duration_ns: settings.sleep_ns };
    let body = match (settings.sleep_ns > 0, settings.calibrate) {
        (false, _) => body.step(start),
        (true, false) => body.step(start).step(sleep),
        (true, true) => body.step(sleep).step(start),
    };
    // Each operation goes over the three matrices once; what it reads again comes from near caches.
    body.step(Step::Memory { bytes: settings.operations * 3 * 8 * size * size, region_bytes: settings.footprint_bytes })
        .step(Step::Run { work_ns: work_ns(settings.operations * size * size * size, settings.multiply_add_ps) })
        .step(Step::RecordClock { slot: 0, recorder: shared.request })
}

/// Nanoseconds of so many multiplications and additions.
fn work_ns(count: u64, multiply_add_ps: u64) -> u64 {
    (u128::from(count) * u128::from(multiply_add_ps) / 1_000).min(u64::MAX.into()) as u64
}

fn add_worker(workload: &mut Workload, shared: &Shared<'_>, name: String, program: Program) -> TaskTemplateId {
    let program = workload.add_program(program);
    let affinity = match shared.settings.worker_cpus.as_slice() {
        [] => Affinity::All,
        list => Affinity::OsCpus(list.to_vec()),
    };
    workload.add_task(Task {
        instances: 0,
        affinity,
        role: "worker".to_owned(),
        profile: Some("schbench".to_owned()),
        ..Task::new(name, shared.process, program)
    })
}

fn add_messenger(workload: &mut Workload, shared: &Shared<'_>, index: u32, program: Program) -> TaskTemplateId {
    let program = workload.add_program(program);
    let affinity = match shared.settings.messenger_cpus.as_slice() {
        [] => Affinity::All,
        list => Affinity::OsCpus(vec![list[index as usize % list.len()]]),
    };
    workload.add_task(Task {
        instances: 0,
        affinity,
        role: "messenger".to_owned(),
        profile: Some("schbench".to_owned()),
        ..Task::new(format!("messenger-{index}"), shared.process, program)
    })
}
