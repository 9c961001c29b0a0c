//! pingpong: pairs of tasks that hand a message back and forth, as `perf bench sched pipe` does, with work in between.

use super::channel::channel_capacity;
use super::flags::{FlagInfo, Flags};
use super::{GeneratorInfo, MAX_COUNT, add_tasks};
use crate::{ChannelKind, GeneratorError, GeneratorProblem, ProcessId, ProgramBuilder, Step, Task, Workload};

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "pingpong",
    summary: "pairs of tasks that hand a message back and forth",
    usage: "pingpong:[-nPAIRS][,-wDURATION][,-dDURATION|-lLOOPS][,-p|-s][,-bBYTES][,-T]",
    notes: "The recorder \"round trip\" holds the time from the first task's message to the answer.",
    flags: &[
        FlagInfo::new(Some('n'), "pairs", Some("COUNT"), "number of pairs (default 1)"),
        FlagInfo::new(Some('w'), "work", Some("DURATION"), "work of each task before it sends (default none)"),
        FlagInfo::new(Some('d'), "duration", Some("DURATION"), "how long (default 10s unless -l is given)"),
        FlagInfo::new(Some('l'), "loops", Some("COUNT"), "round trips of each pair instead of a duration"),
        FlagInfo::new(Some('p'), "pipe", None, "pipes (default)"),
        FlagInfo::new(Some('s'), "socket", None, "Unix sockets"),
        FlagInfo::new(Some('b'), "bytes", Some("COUNT"), "size of the message (default 4)"),
        FlagInfo::new(Some('T'), "threads", None, "threads of one process instead of a process for each task"),
    ],
    make,
};

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let conflict = |words: &str| Err(flags.error(GeneratorProblem::Conflict(words.to_owned())));
    if flags.is_set("pipe") && flags.is_set("socket") {
        return conflict("-p and -s exclude each other");
    }
    if flags.is_set("duration") && flags.is_set("loops") {
        return conflict("-d and -l exclude each other");
    }
    let pairs = flags.count("pairs", 1, MAX_COUNT / 2)?;
    let work_ns = flags.duration("work", 0)?;
    let bytes = flags.count("bytes", 4, 65_536)?;
    let kind = if flags.is_set("socket") { ChannelKind::Socket } else { ChannelKind::Pipe };
    let times = match flags.is_set("loops") {
        true => Some(flags.number("loops", 1, 1, u64::MAX)?),
        false => None,
    };

    let mut workload = Workload::empty("pingpong");
    if times.is_none() {
        workload.duration_ns = Some(flags.run_length("duration", 10_000_000_000)?);
    }
    let own_processes = !flags.is_set("threads");
    if !own_processes {
        workload.add_process("pingpong");
    }
    let round_trip = workload.add_recorder("round trip");
    let work = |body: ProgramBuilder| if work_ns > 0 { body.step(Step::Run { work_ns }) } else { body };
    let mut tasks = Vec::new();
    for pair in 0..pairs {
        let capacity = channel_capacity(kind, bytes);
        let there = workload.add_channel(format!("ping-{pair}"), kind, capacity);
        let back = workload.add_channel(format!("pong-{pair}"), kind, capacity);
        let ping = ProgramBuilder::new().repeat(times, |body| {
            work(body)
                .step(Step::StartClock { slot: 0 })
                .step(Step::Send { channel: there, bytes })
                .step(Step::Receive { channel: back, bytes })
                .step(Step::RecordClock { slot: 0, recorder: round_trip })
        });
        let pong = ProgramBuilder::new().repeat(times, |body| {
            work(body.step(Step::Receive { channel: there, bytes })).step(Step::Send { channel: back, bytes })
        });
        for (role, program) in [("ping", ping), ("pong", pong)] {
            let program = workload.add_program(program.finish());
            let task = Task::new(format!("{role}-{pair}"), ProcessId(0), program);
            tasks.push(Task { role: role.to_owned(), ..task });
        }
    }
    add_tasks(&mut workload, own_processes, tasks);
    Ok(workload)
}
