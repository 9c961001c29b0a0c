//! transcode: encoders that split each piece of a film among threads which exist for that piece alone.
//!
//! The shape of DCPerf's video transcoding: some encoders run side by side, and over a run thousands of mostly short threads come
//! and go (2,824 in the characterisation paper's trace), while at most a few dozen are active. Each encoder creates its
//! threads for a piece, waits for all of them, and goes on to the next.

use super::flags::{CPUS, FlagInfo, Flags, PROFILE};
use super::{GeneratorInfo, MAX_COUNT};
use crate::{GeneratorError, Program, ProgramBuilder, Step, Task, Workload};

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "transcode",
    summary: "encoders that fork short threads for each piece and wait for them",
    usage: "transcode:[-jENCODERS][,-nTHREADS][,-iPIECES][,-wDURATION][,-cCPUS][,--profile=NAME]",
    notes: "The memory profile is \"video\" unless another is given. Threads of a piece have equal work.",
    flags: &[
        FlagInfo::new(Some('j'), "encoders", Some("COUNT"), "encoders side by side, a process each (default 4)"),
        FlagInfo::new(Some('n'), "threads", Some("COUNT"), "threads of an encoder for each piece (default 8)"),
        FlagInfo::new(Some('i'), "pieces", Some("COUNT"), "pieces of each encoder (default 88)"),
        FlagInfo::new(Some('w'), "work", Some("DURATION"), "work of a thread (default 20ms)"),
        CPUS,
        PROFILE,
    ],
    make,
};

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let encoders = flags.count("encoders", 4, 10_000)?;
    let threads = flags.count("threads", 8, MAX_COUNT / 10_000)?;
    let pieces = flags.number("pieces", 88, 1, 1_000_000)?;
    let work_ns = flags.duration("work", 20_000_000)?;
    if work_ns == 0 {
        return Err(flags.bad_value("work", "longer than 0"));
    }
    let mut workload = Workload::empty("transcode");
    for encoder in 0..encoders {
        let process = workload.add_process(format!("encoder-{encoder}"));
        let task = |name: String, role: &str, program| Task {
            role: role.to_owned(),
            profile: Some("video".to_owned()),
            ..Task::new(name, process, program)
        };
        let main = workload.add_program(Program::default());
        workload.add_task(task(format!("encoder-{encoder}"), "encoder", main));
        let program = workload.add_program(ProgramBuilder::new().step(Step::Run { work_ns }).finish());
        let worker = task(format!("worker-{encoder}"), "worker", program);
        let worker = workload.add_task(Task { instances: 0, ..worker });
        workload.programs[main.index()] = ProgramBuilder::new()
            .repeat(Some(pieces), |body| {
                body.repeat(Some(threads.into()), |body| body.step(Step::Fork(worker)))
                    .step(Step::Join { count: threads })
            })
            .finish();
    }
    flags.place_and_profile(&mut workload)?;
    Ok(workload)
}
