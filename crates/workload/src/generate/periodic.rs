//! periodic: tasks that compute for a while and sleep for a while.

use super::flags::{CPUS, FlagInfo, Flags, PROFILE};
use super::{GeneratorInfo, MAX_COUNT, add_tasks};
use crate::{GeneratorError, GeneratorProblem, ProcessId, Program, ProgramBuilder, Step, Task, Workload};

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "periodic",
    summary: "tasks that compute and sleep in turn",
    usage: "periodic:[-nCOUNT][,-rDURATION][,-sDURATION][,-dDURATION][,-jPERCENT][,-o][,-P][,-cCPUS][,--profile=NAME]",
    notes: "Run and sleep are relative: a task that waits for a CPU starts its next period later. Jitter makes periods \
            differ between tasks, by a fixed sequence; the periods of one task are all equal.",
    flags: &[
        FlagInfo::new(Some('n'), "tasks", Some("COUNT"), "number of tasks (default 1)"),
        FlagInfo::new(Some('r'), "run", Some("DURATION"), "work in each period (default 400us)"),
        FlagInfo::new(Some('s'), "sleep", Some("DURATION"), "sleep in each period (default 1.6ms)"),
        FlagInfo::new(Some('d'), "duration", Some("DURATION"), "how long (default 10s)"),
        FlagInfo::new(
            Some('j'),
            "jitter",
            Some("PERCENT"),
            "largest difference of a task's period from the given one (default 0%)",
        ),
        FlagInfo::new(Some('o'), "offset", None, "spread the first starts over one period instead of all at 0"),
        FlagInfo::new(Some('P'), "processes", None, "a process for each task instead of threads of one process"),
        CPUS,
        PROFILE,
    ],
    make,
};

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let count = flags.count("tasks", 1, MAX_COUNT)?;
    let run_ns = flags.duration("run", 400_000)?;
    let sleep_ns = flags.duration("sleep", 1_600_000)?;
    if run_ns == 0 && sleep_ns == 0 {
        return Err(flags.error(GeneratorProblem::Conflict("-r and -s must not both be 0".to_owned())));
    }
    let jitter = flags.percent("jitter")?;
    if jitter == 100 {
        return Err(flags.bad_value("jitter", "a whole percentage below 100%: the first task would have no period"));
    }
    let offset = flags.is_set("offset");
    let own_processes = flags.is_set("processes");

    let mut workload = Workload::empty("periodic");
    workload.duration_ns = Some(flags.run_length("duration", 10_000_000_000)?);
    if !own_processes {
        workload.add_process("periodic");
    }
    let mut tasks = Vec::new();
    let task = |name: String, program| Task { role: "periodic".to_owned(), ..Task::new(name, ProcessId(0), program) };
    if jitter == 0 && !offset && !own_processes {
        let program = workload.add_program(periodic(run_ns, sleep_ns));
        tasks.push(Task { instances: count, ..task("periodic".to_owned(), program) });
    } else {
        for index in 0..count {
            let scaled = |ns| scale(ns, jitter, index);
            let program = workload.add_program(periodic(scaled(run_ns), scaled(sleep_ns)));
            let period_ns = u128::from(run_ns) + u128::from(sleep_ns);
            let start_ns = if offset { (period_ns * u128::from(index) / u128::from(count)) as u64 } else { 0 };
            tasks.push(Task { start_ns, ..task(format!("periodic-{index}"), program) });
        }
    }
    add_tasks(&mut workload, own_processes, tasks);
    flags.place_and_profile(&mut workload)?;
    Ok(workload)
}

fn periodic(run_ns: u64, sleep_ns: u64) -> Program {
    ProgramBuilder::new()
        .repeat(None, |mut body| {
            if run_ns > 0 {
                body = body.step(Step::Run { work_ns: run_ns });
            }
            if sleep_ns > 0 {
                body = body.step(Step::Sleep { duration_ns: sleep_ns });
            }
            body
        })
        .finish()
}

/// The duration times a factor between 1 − jitter and 1 + jitter. The factors of successive tasks are spread evenly:
/// multiples of the golden ratio modulo 1 (2^32 / φ as integer).
fn scale(ns: u64, jitter_percent: u64, index: u32) -> u64 {
    let position = i128::from(index.wrapping_mul(2_654_435_769)) - (1 << 31);
    let change = i128::from(ns) * i128::from(jitter_percent) * position / (100 << 31);
    (i128::from(ns) + change) as u64
}
