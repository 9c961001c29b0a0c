//! What the guest sends: frames of a kind, a length and a payload, in the order in which things happen.
//!
//! Documents are JSON; pages of the ring buffer are bytes. A guest that sends neither [`FrameKind::Done`] nor
//! [`FrameKind::Failed`] before its channel closes has died.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use warmcore_native::{Ended, NativeOutcome};
use warmcore_trace::GroupCounters;

/// Largest payload: far more than any frame needs, so that a broken stream is noticed and not allocated for.
pub(crate) const MAX_PAYLOAD: u32 = 16 << 20;

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum FrameKind {
    /// [`Hello`]: the first one.
    Hello = 0x5743_0001,
    /// [`EventFormats`](warmcore_capture::EventFormats).
    Formats = 0x5743_0002,
    /// [`RunBegin`].
    RunBegin = 0x5743_0003,
    /// [`Sample`].
    Sample = 0x5743_0004,
    /// Number of the CPU (4 bytes), then a page of its ring buffer without its unused end.
    TracePage = 0x5743_0005,
    /// [`RunEnd`].
    RunEnd = 0x5743_0006,
    /// [`Failed`]: nothing comes after it.
    Failed = 0x5743_0007,
    /// All is done; nothing comes after it.
    Done = 0x5743_0008,
    /// What came of some programs, in order ([`Came`](crate::programs::Came)).
    Came = 0x5743_0009,
    /// What a program printed on standard output.
    Output = 0x5743_000a,
    /// What it printed on standard error.
    Words = 0x5743_000b,
    /// A part of a file that it left: the length of its path (4 bytes), the path below the directory, and bytes that follow those that
    /// came of this file before.
    File = 0x5743_000c,
    /// How it ended ([`CommandEnd`]).
    CommandEnd = 0x5743_000d,
    /// [`Costs`].
    Costs = 0x5743_000e,
}

impl FrameKind {
    const ALL: [FrameKind; 14] = [
        FrameKind::Hello,
        FrameKind::Formats,
        FrameKind::RunBegin,
        FrameKind::Sample,
        FrameKind::TracePage,
        FrameKind::RunEnd,
        FrameKind::Failed,
        FrameKind::Done,
        FrameKind::Came,
        FrameKind::Output,
        FrameKind::Words,
        FrameKind::File,
        FrameKind::CommandEnd,
        FrameKind::Costs,
    ];
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What the payload is.
    pub kind: FrameKind,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Writes a frame.
///
/// # Errors
/// When the channel fails.
pub fn write_frame(channel: &mut impl Write, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
    let mut head = [0; 8];
    head[..4].copy_from_slice(&(kind as u32).to_le_bytes());
    head[4..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    channel.write_all(&head)?;
    channel.write_all(payload)
}

/// Writes a frame with a document.
///
/// # Errors
/// When the channel fails.
pub fn write_document(channel: &mut impl Write, kind: FrameKind, document: &impl Serialize) -> io::Result<()> {
    write_frame(channel, kind, &serde_json::to_vec(document).map_err(io::Error::other)?)
}

/// Reads the next frame; `None` at the end of the stream between two frames.
///
/// # Errors
/// When the channel fails, ends inside a frame, or carries something that is no frame.
pub fn read_frame(channel: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0; 8];
    if channel.read(&mut head[..1])? == 0 {
        return Ok(None);
    }
    channel.read_exact(&mut head[1..])?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let kind = FrameKind::ALL.into_iter().find(|kind| *kind as u32 == word(0));
    let kind = kind.ok_or_else(|| invalid(format!("{:#x} is not a kind of frame", word(0))))?;
    let length = word(4);
    if length > MAX_PAYLOAD {
        return Err(invalid(format!("a frame of {length} bytes is longer than any frame is")));
    }
    let mut payload = vec![0; length as usize];
    channel.read_exact(&mut payload)?;
    Ok(Some(Frame { kind, payload }))
}

/// What the guest found when it came up.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`](crate::PROTOCOL).
    pub protocol: u32,
    /// `uname -r`.
    pub release: String,
    /// `uname -m`.
    pub architecture: String,
    /// Guest time since the kernel started, ns.
    pub boot_ns: u64,
    /// The kernel's clock source.
    pub clocksource: String,
    /// The machine as its `/sys` describes it, in the machine format.
    pub machine: String,
    /// Names of CPU 0's scheduling domains with the number of CPUs in each, lowest first; from the kernel's log.
    pub domains: Vec<String>,
    /// Files of `/sys/kernel/debug/sched/llc_balancing` with their values.
    pub llc_balancing: Vec<(String, String)>,
    /// Other files of `/sys/kernel/debug/sched` with one value each, and `features`.
    pub sched: Vec<(String, String)>,
    /// Why sched_ext programs will not load; `None` when nothing speaks against it.
    pub scx_refusal: Option<String>,
    /// Threads that move running tasks between CPUs (`migration/N`).
    pub stoppers: Vec<i32>,
    /// Memory, bytes.
    pub memory_bytes: u64,
}

/// A run begins: its settings were applied.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunBegin {
    /// Which run of the plan.
    pub run: usize,
    /// Path and value of each setting, read back.
    pub settings: Vec<(String, String)>,
    /// The sched_ext scheduler as the kernel names it, when one is loaded.
    pub scx: Option<String>,
}

/// Texts of the kernel at an instant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The monotonic clock.
    pub time_ns: u64,
    /// Path and contents.
    pub texts: Vec<(String, String)>,
}

/// A run ended. Its trace pages were sent before.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    /// Which run of the plan.
    pub run: usize,
    /// Each process of the workload, by its index.
    pub processes: Vec<ProcessReport>,
    /// What each CPU's ring buffer did not take: dropped events and overruns.
    pub lost: Vec<u64>,
    /// Events each CPU's ring buffer took.
    pub entries: Vec<u64>,
    /// What was done from outside, in the order of the plan.
    pub actions: Vec<ActionReport>,
    /// How often the kernel was asked during the run whether the sched_ext scheduler still schedules; it always did.
    pub scx_checks: u32,
    /// How often it was ended and started again, where that may be.
    pub scx_restarts: u32,
    /// How often each program of it was called, by the name that the kernel has (15 bytes), if that was counted.
    pub operations: Vec<(String, u64)>,
    /// What came of the quota of each task group that has one, with its number.
    pub groups: Vec<(u32, GroupCounters)>,
}

/// Name of samples whose text is the records of what a scheduler's programs called.
pub const CALLS: &str = "calls";

/// Something that was done from outside the workload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActionReport {
    /// When, on the monotonic clock.
    pub time_ns: u64,
    /// Threads that were bound.
    pub threads: Vec<i32>,
    /// CPUs they were bound to, by the guest's numbers.
    pub cpus: Vec<u32>,
    /// The file that was written, and its value, read back.
    pub written: Option<(String, String)>,
}

/// What a process of the workload did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Which processes of the workload it stands for: one, or all when they cannot be told apart.
    pub processes: Vec<u32>,
    /// Its main thread, which creates the others and is no task of the workload.
    pub launcher: i32,
    /// Main threads of other processes that it began, which are no tasks either.
    #[serde(default)]
    pub helpers: Vec<i32>,
    /// Why it ended: `all_exited`, `duration`, `stop_step`, `time_limit`.
    pub ended: String,
    /// Start on the monotonic clock.
    pub start_ns: u64,
    /// Length of the run.
    pub elapsed_ns: u64,
    /// Tasks in the order of creation.
    pub tasks: Vec<TaskReport>,
    /// Samples of each recorder of the workload.
    pub samples: Vec<Vec<u64>>,
    /// What was not done as the workload asks, with its count.
    pub warnings: Vec<(String, String, u32)>,
    /// Speed of the computing loop.
    pub iterations_per_ms: u64,
}

impl ProcessReport {
    /// Of this process, which ran a workload's tasks.
    #[must_use]
    pub fn of_native(processes: Vec<u32>, outcome: NativeOutcome) -> Self {
        let ended = match outcome.ended {
            Ended::AllExited => "all_exited",
            Ended::Duration => "duration",
            Ended::StopStep => "stop_step",
            Ended::TimeLimit => "time_limit",
            Ended::Interrupted => "interrupted",
        };
        let task = |task: &warmcore_native::TaskOutcome| TaskReport {
            template: task.template.0,
            number: task.number,
            thread: task.thread,
            cpu_ns: task.cpu_ns,
            completed: task.completed,
        };
        Self {
            processes,
            launcher: std::process::id() as i32,
            helpers: outcome.helpers,
            ended: ended.into(),
            start_ns: outcome.start_ns,
            elapsed_ns: outcome.elapsed_ns,
            tasks: outcome.tasks.iter().map(task).collect(),
            samples: outcome.samples,
            warnings: outcome
                .warnings
                .into_iter()
                .map(|warning| (warning.what, warning.consequence, warning.count))
                .collect(),
            iterations_per_ms: outcome.calibration.iterations_per_ms,
        }
    }
}

/// A task of the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskReport {
    /// Index of its template.
    pub template: u32,
    /// Which of the template's tasks.
    pub number: u32,
    /// Its thread.
    pub thread: i32,
    /// CPU time.
    pub cpu_ns: u64,
    /// Whether it came to the end of its program.
    pub completed: bool,
}

/// What the kernel's own actions cost in the guest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Costs {
    /// Name in a machine's file; value, and what samples are seldom below and above.
    pub values: Vec<(String, u64, u64, u64)>,
    /// Why the way out of an idle state is not among them.
    pub without_idle_exit: Option<String>,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommandEnd {
    /// Its exit code; that of a shell for a signal.
    pub exit_code: i32,
}

/// The guest cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// Which run of the plan, if it was in one.
    pub run: Option<usize>,
    /// What, where and why.
    pub reason: String,
    /// Whether this run's result is invalid and no other run is concerned, as with an ejected scheduler.
    pub scheduler_ejected: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut stream = Vec::new();
        write_frame(&mut stream, FrameKind::TracePage, &[1, 2, 3]).unwrap();
        write_frame(&mut stream, FrameKind::Done, &[]).unwrap();
        let mut reader = stream.as_slice();
        let first = read_frame(&mut reader).unwrap().unwrap();
        assert_eq!((first.kind, first.payload), (FrameKind::TracePage, vec![1, 2, 3]));
        assert_eq!(read_frame(&mut reader).unwrap().unwrap().kind, FrameKind::Done);
        assert_eq!(read_frame(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_broken_stream_is_an_error_and_no_allocation() {
        let mut stream = Vec::new();
        write_frame(&mut stream, FrameKind::Sample, b"abc").unwrap();
        assert!(read_frame(&mut &stream[..stream.len() - 1]).is_err(), "it ends inside a frame");
        stream[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read_frame(&mut stream.as_slice()).unwrap_err().to_string().contains("longer"));
        assert!(read_frame(&mut &b"console text"[..]).unwrap_err().to_string().contains("not a kind"));
    }
}
