//! pipeline: stages that each work on an item and pass it on through a bounded channel.

use super::channel::channel_capacity;
use super::flags::{FlagInfo, Flags};
use super::{GeneratorInfo, MAX_COUNT, add_tasks};
use crate::{
    ChannelId, ChannelKind, GeneratorError, GeneratorProblem, ProcessId, ProgramBuilder, Step, Task, Workload,
};

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "pipeline",
    summary: "stages that work on items and pass them on through bounded channels",
    usage: "pipeline:[-sSTAGES][,-wDURATION][,-nITEMS][,-qDEPTH][,-bBYTES][,-cCOPIES][,-S][,-P]",
    notes: "A stage blocks while the channel after it is full. The workload ends when all items are through.",
    flags: &[
        FlagInfo::new(Some('s'), "stages", Some("COUNT"), "number of stages (default 4)"),
        FlagInfo::new(Some('w'), "work", Some("DURATION"), "work of a stage on an item (default 50us)"),
        FlagInfo::new(Some('n'), "items", Some("COUNT"), "items through each pipeline (default 10000)"),
        FlagInfo::new(
            Some('q'),
            "depth",
            Some("ITEMS"),
            "items a channel holds (default what the kernel's channel holds)",
        ),
        FlagInfo::new(Some('b'), "bytes", Some("COUNT"), "size of an item (default 64)"),
        FlagInfo::new(Some('c'), "copies", Some("COUNT"), "independent pipelines side by side (default 1)"),
        FlagInfo::new(Some('S'), "socket", None, "Unix sockets instead of pipes"),
        FlagInfo::new(Some('P'), "processes", None, "a process for each stage instead of threads of one process"),
    ],
    make,
};

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    let stages = flags.count("stages", 4, MAX_COUNT)?;
    let copies = flags.count("copies", 1, MAX_COUNT)?;
    if u64::from(stages) * u64::from(copies) > u64::from(MAX_COUNT) {
        let words = format!("more than {MAX_COUNT} stages in all are not possible");
        return Err(flags.error(GeneratorProblem::Conflict(words)));
    }
    let work_ns = flags.duration("work", 50_000)?;
    if work_ns == 0 && stages == 1 {
        return Err(
            flags.error(GeneratorProblem::Conflict("one stage without work does nothing; give it -w".to_owned()))
        );
    }
    let items = flags.number("items", 10_000, 1, u64::MAX)?;
    let bytes = flags.count("bytes", 64, 65_536)?;
    let kind = if flags.is_set("socket") { ChannelKind::Socket } else { ChannelKind::Pipe };
    let capacity = match flags.is_set("depth") {
        true => flags.number("depth", 1, 1, 1 << 20)? * u64::from(bytes),
        false => channel_capacity(kind, bytes),
    };
    let own_processes = flags.is_set("processes");

    let mut workload = Workload::empty("pipeline");
    if !own_processes {
        workload.add_process("pipeline");
    }
    let mut tasks = Vec::new();
    for copy in 0..copies {
        let mut input: Option<ChannelId> = None;
        for stage in 0..stages {
            let output =
                (stage + 1 < stages).then(|| workload.add_channel(format!("after-{copy}-{stage}"), kind, capacity));
            let program = ProgramBuilder::new().repeat(Some(items), |mut body| {
                if let Some(channel) = input {
                    body = body.step(Step::Receive { channel, bytes });
                }
                body = body.step(Step::Run { work_ns });
                match output {
                    Some(channel) => body.step(Step::Send { channel, bytes }),
                    None => body,
                }
            });
            let program = workload.add_program(program.finish());
            let task = Task::new(format!("stage-{copy}-{stage}"), ProcessId(0), program);
            tasks.push(Task { role: format!("stage {stage}"), ..task });
            input = output;
        }
    }
    add_tasks(&mut workload, own_processes, tasks);
    Ok(workload)
}
