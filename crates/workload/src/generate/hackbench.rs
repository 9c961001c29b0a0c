//! hackbench: groups of senders that spray messages at receivers.
//!
//! Follows the program of rt-tests (`hackbench V 2.x`): for every group the parent creates one receiver for each of
//! `fds` channels, then `fds` senders; every child reports that it is ready and waits for the start; every sender then
//! writes `loops` rounds of one message to each receiver of its group; the parent reaps all children. Time counts from
//! the start to the last exit.

use super::channel::channel_capacity;
use super::flags::{FlagInfo, Flags};
use super::{GeneratorInfo, MAX_COUNT};
use crate::{
    BarrierWait, ChannelId, ChannelKind, GeneratorError, GeneratorProblem, ProcessId, Program, ProgramBuilder,
    ResultStyle, Step, Task, TaskTemplateId, Workload,
};

/// Name of the recorder whose one sample is hackbench's `Time:`.
pub const HACKBENCH_TIME: &str = "hackbench time";

pub(super) const INFO: GeneratorInfo = GeneratorInfo {
    name: "hackbench",
    summary: "groups of senders that spray messages at receivers through pipes or sockets",
    usage: "hackbench:[-T|-P][,-p][,-fFDS][,-gGROUPS][,-lLOOPS][,-sBYTES]",
    notes: "The start signal is a barrier that the parent reaches last; children poll a pipe. Not modelled: --inet, --fifo (a warning).",
    flags: &[
        FlagInfo::new(Some('T'), "threads", None, "children are threads"),
        FlagInfo::new(Some('P'), "processes", None, "children are processes (default)"),
        FlagInfo::new(Some('p'), "pipe", None, "pipes instead of Unix sockets"),
        FlagInfo::new(Some('f'), "fds", Some("COUNT"), "senders, and receivers, per group (default 20)"),
        FlagInfo::new(Some('g'), "groups", Some("COUNT"), "groups (default 10)"),
        FlagInfo::new(Some('l'), "loops", Some("COUNT"), "messages from each sender to each receiver (default 100)"),
        FlagInfo::new(Some('s'), "datasize", Some("BYTES"), "size of a message, up to 65536 (default 100)"),
        FlagInfo::new(Some('F'), "fifo", None, "accepted: the parent would be SCHED_FIFO"),
    ],
    make,
};

struct Settings {
    threads: bool,
    kind: ChannelKind,
    fds: u32,
    groups: u32,
    loops: u64,
    bytes: u32,
}

fn make(flags: &Flags<'_>) -> Result<Workload, GeneratorError> {
    if flags.is_set("threads") && flags.is_set("processes") {
        return Err(flags.error(GeneratorProblem::Conflict("-T and -P exclude each other".to_owned())));
    }
    let settings = Settings {
        threads: flags.is_set("threads"),
        kind: if flags.is_set("pipe") { ChannelKind::Pipe } else { ChannelKind::Socket },
        fds: flags.count("fds", 20, 10_000)?,
        groups: flags.count("groups", 10, MAX_COUNT)?,
        loops: flags.number("loops", 100, 1, u64::MAX >> 20)?,
        bytes: flags.count("datasize", 100, 65_536)?,
    };
    let children = 2 * u64::from(settings.fds) * u64::from(settings.groups);
    if children > u64::from(MAX_COUNT) {
        let words = format!("{children} tasks are too many; at most {MAX_COUNT} are possible");
        return Err(flags.error(GeneratorProblem::Conflict(words)));
    }
    let mut workload = build(&settings, children as u32);
    if flags.is_set("fifo") {
        workload.warn("flag \"--fifo\"", "the parent runs as SCHED_OTHER");
    }
    Ok(workload)
}

fn build(settings: &Settings, children: u32) -> Workload {
    let mut workload = Workload::empty("hackbench");
    let own_process = workload.add_process("hackbench");
    let ready = workload.add_channel("ready", settings.kind, channel_capacity(settings.kind, 1));
    let start = workload.add_barrier("start", children + 1, BarrierWait::Poll);
    let time = workload.add_recorder(HACKBENCH_TIME);
    workload.style = ResultStyle::Hackbench { header: header(settings, children) };

    let announce =
        |builder: ProgramBuilder| builder.step(Step::Send { channel: ready, bytes: 1 }).step(Step::Barrier(start));
    // The parent's program names the children's templates, which follow it in the table.
    let parent = workload.add_program(Program::default());
    workload.add_task(Task { role: "main".to_owned(), ..child("main", own_process, parent, 1) });
    let mut forks = ProgramBuilder::new();
    for group in 0..settings.groups {
        let channels: Vec<ChannelId> = (0..settings.fds)
            .map(|index| {
                let capacity = channel_capacity(settings.kind, settings.bytes);
                workload.add_channel(format!("data-{group}-{index}"), settings.kind, capacity)
            })
            .collect();
        for (index, &channel) in channels.iter().enumerate() {
            let packets = u64::from(settings.fds) * settings.loops;
            let receive = Step::Receive { channel, bytes: settings.bytes };
            let program = announce(ProgramBuilder::new()).repeat(Some(packets), |body| body.step(receive)).finish();
            let program = workload.add_program(program);
            let name = format!("receiver-{group}-{index}");
            forks = forks.step(Step::Fork(add_child(&mut workload, settings, own_process, &name, "receiver", program)));
        }
        let spray = |mut body: ProgramBuilder| {
            for &channel in &channels {
                body = body.step(Step::Send { channel, bytes: settings.bytes });
            }
            body
        };
        let program = announce(ProgramBuilder::new()).repeat(Some(settings.loops), spray).finish();
        let program = workload.add_program(program);
        if settings.threads {
            let name = format!("sender-{group}");
            let sender = add_child(&mut workload, settings, own_process, &name, "sender", program);
            forks = forks.repeat(Some(settings.fds.into()), |body| body.step(Step::Fork(sender)));
        } else {
            for index in 0..settings.fds {
                let name = format!("sender-{group}-{index}");
                forks =
                    forks.step(Step::Fork(add_child(&mut workload, settings, own_process, &name, "sender", program)));
            }
        }
    }
    workload.programs[parent.index()] = forks
        .repeat(Some(children.into()), |body| body.step(Step::Receive { channel: ready, bytes: 1 }))
        .step(Step::StartClock { slot: 0 })
        .step(Step::Barrier(start))
        .step(Step::Join { count: children })
        .step(Step::RecordClock { slot: 0, recorder: time })
        .finish();
    workload
}

fn add_child(
    workload: &mut Workload,
    settings: &Settings,
    own_process: ProcessId,
    name: &str,
    role: &str,
    program: crate::ProgramId,
) -> TaskTemplateId {
    let process = if settings.threads { own_process } else { workload.add_process(name) };
    workload.add_task(Task { role: role.to_owned(), ..child(name, process, program, 0) })
}

fn child(name: &str, process: ProcessId, program: crate::ProgramId, instances: u32) -> Task {
    Task { instances, profile: Some("hackbench".to_owned()), ..Task::new(name, process, program) }
}

fn header(settings: &Settings, children: u32) -> String {
    let mode = if settings.threads { "threaded" } else { "process" };
    format!(
        "Running in {mode} mode with {} groups using {} file descriptors each (== {children} tasks)\n\
         Each sender will pass {} messages of {} bytes",
        settings.groups,
        2 * settings.fds,
        settings.loops,
        settings.bytes
    )
}
