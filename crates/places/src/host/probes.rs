//! The recorder's other back end: BPF programs at raw tracepoints.
//!
//! They and what loads them are a program of their own, `warmcore-recorder-bpf`, under another licence; it is started beside a recording and
//! writes records to a pipe. Here they become pages like the kernel's, so that a recording is the same file whichever way it was made.
//! System calls are not among what it records.
//!
//! Source: `bpf/programs/recorder.h` for records; `include/linux/preempt.h`, `include/linux/sched.h` of Linux 6.18 for masks and states.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use warmcore_capture::written::{Head, PageWriter, Value};

/// The program.
pub const PROGRAM: &str = "warmcore-recorder-bpf";
const MAGIC: &[u8; 8] = b"WCSCHED1";
const RECORD_BYTES: usize = 64;
const NAME: std::ops::Range<usize> = 48..64;
const END: u32 = u32::MAX;

/// In a counter of nested interrupts: `HARDIRQ_MASK` with `NMI_MASK`; `SOFTIRQ_OFFSET`, set while a softirq is served.
const HARD_INTERRUPT: u32 = 0x00ff_0000;
const SOFT_INTERRUPT: u32 = 0x0000_0100;
/// `CLONE_THREAD`.
const THREAD: i64 = 0x10000;

/// Where the program is: beside this one, or where programs are looked for.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let elsewhere = std::env::split_paths(&directories).map(|directory| directory.join(PROGRAM));
    beside.into_iter().chain(elsewhere).find(|path| path.is_file())
}

/// The program at work.
#[derive(Debug)]
pub(super) struct Probes {
    child: Child,
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<io::Result<Vec<u8>>>>,
    tells_interrupts: bool,
}

/// What it recorded.
#[derive(Debug, Default)]
pub(super) struct Probed {
    /// Pages by CPU.
    pub(super) pages: Vec<Vec<u8>>,
    /// Records that found no room; it does not know on which CPU.
    pub(super) lost: u64,
    /// Whether interrupts are told from threads.
    pub(super) tells_interrupts: bool,
}

impl Probes {
    /// Starts it, and returns when it records.
    ///
    /// # Errors
    /// Its own words.
    pub(super) fn start(program: &Path, kib: u32) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.arg(kib.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut probes = Self { child, input: None, reader: None, tells_interrupts: false };
        probes.input = probes.child.stdin.take();
        let mut output = probes.child.stdout.take().ok_or("its output is not there")?;
        let mut head = [0; 12];
        if output.read_exact(&mut head).is_err() || !head.starts_with(MAGIC) {
            let mut words = String::new();
            if let Some(mut errors) = probes.child.stderr.take() {
                let _ = errors.read_to_string(&mut words);
            }
            return Err(format!("{PROGRAM}: {}", words.trim()));
        }
        probes.tells_interrupts = head[8] != 0;
        probes.reader = Some(std::thread::spawn(move || {
            let mut bytes = Vec::new();
            output.read_to_end(&mut bytes).map(|_| bytes)
        }));
        Ok(probes)
    }

    /// Records no more, and gives what was recorded on so many CPUs.
    ///
    /// # Errors
    /// If it did not end as it should.
    pub(super) fn finish(mut self, cpus: usize) -> Result<Probed, String> {
        drop(self.input.take());
        let reader = self.reader.take().ok_or("it was not started")?;
        let bytes = reader.join().map_err(|_| "its reader ended early".to_owned())?;
        let bytes = bytes.map_err(|error| format!("cannot read from {PROGRAM}: {error}"))?;
        let mut probed = read(&bytes, cpus)?;
        probed.tells_interrupts = self.tells_interrupts;
        Ok(probed)
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends by itself when its input does, unless it was never well.
        if self.reader.is_some() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A record of the program.
#[derive(Clone, Copy, Debug)]
struct ProbeRecord<'a> {
    time_ns: u64,
    cpu: usize,
    kind: u32,
    by: i32,
    nesting: u32,
    thread: i64,
    other: i64,
    state: u64,
    number: u64,
    name: &'a str,
}

impl<'a> ProbeRecord<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let name = &bytes[NAME];
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Self {
            time_ns: long(0),
            cpu: word(8) as usize,
            kind: word(12),
            by: word(16) as i32,
            nesting: word(20),
            thread: i64::from(word(24) as i32),
            other: i64::from(word(28) as i32),
            state: long(32),
            number: long(40),
            // A name that is no text names nobody.
            name: std::str::from_utf8(&name[..end]).unwrap_or_default(),
        }
    }
}

/// Makes pages of what the program wrote.
fn read(bytes: &[u8], cpus: usize) -> Result<Probed, String> {
    let mut records: Vec<ProbeRecord<'_>> = bytes.chunks_exact(RECORD_BYTES).map(ProbeRecord::read).collect();
    let lost = match records.pop() {
        Some(end) if end.kind == END => end.number,
        _ => return Err(format!("{PROGRAM} ended early: its last record is not there")),
    };
    // Records of one CPU may have come into the ring in another order than they were made.
    records.sort_by_key(|record| record.time_ns);
    let mut writers = vec![PageWriter::default(); cpus];
    let mut names: BTreeMap<i64, &str> = BTreeMap::new();
    for record in &records {
        let writer = writers.get_mut(record.cpu).ok_or_else(|| format!("a record is of CPU {}", record.cpu))?;
        write(writer, record, &mut names)?;
    }
    Ok(Probed { pages: writers.into_iter().map(PageWriter::finish).collect(), lost, tells_interrupts: false })
}

fn write<'a>(
    writer: &mut PageWriter,
    record: &ProbeRecord<'a>,
    names: &mut BTreeMap<i64, &'a str>,
) -> Result<(), String> {
    let head = Head {
        time_ns: record.time_ns,
        by: record.by,
        hard_interrupt: record.nesting & HARD_INTERRUPT != 0,
        soft_interrupt: record.nesting & SOFT_INTERRUPT != 0,
    };
    let (number, name) = (Value::Number, Value::Name);
    let (thread, other, last) = (number(record.thread), number(record.other), number(record.number as i64));
    let named = name(record.name);
    match record.kind {
        0 => {
            let prev = names.get(&record.thread).copied().unwrap_or_default();
            let state = number(reported(record.state, record.number != 0));
            names.insert(record.other, record.name);
            writer.add(head, "sched_switch", &[name(prev), thread, state, named, other])
        }
        1 => writer.add(head, "sched_waking", &[named, thread, last]),
        2 => writer.add(head, "sched_wakeup", &[named, thread, last]),
        3 => writer.add(head, "sched_wakeup_new", &[named, thread, last]),
        4 => writer.add(head, "sched_migrate_task", &[named, thread, last, other]),
        5 => {
            let flags = if record.number as i64 == record.thread { 0 } else { THREAD };
            writer.add(head, "task_newtask", &[thread, named, number(flags)])?;
            writer.add(head, "sched_process_fork", &[other, named, thread])
        }
        6 => writer.add(head, "sched_process_exec", &[thread, other]),
        7 => writer.add(head, "sched_process_exit", &[named, thread]),
        8 => writer.add(head, "cpuhp_enter", &[thread, other, last]),
        kind => Err(format!("a record is of kind {kind}, which is not known")),
    }
}

/// The state as `sched_switch` reports it: of a preempted thread `TASK_REPORT_MAX`, of a dead one `EXIT_DEAD`, of an idle kernel thread
/// `TASK_REPORT_IDLE`; of what is not reported by itself, such as waiting for a lock of a real-time kernel, uninterruptible sleep.
fn reported(state: u64, preempted: bool) -> i64 {
    const PREEMPTED: i64 = 0x100;
    const DEAD: (u64, i64) = (0x80, 0x10);
    const NO_LOAD: (u64, i64) = (0x400, 0x200);
    const REPORTED: u64 = 0x7f;
    const UNINTERRUPTIBLE: i64 = 2;
    match state {
        _ if preempted => PREEMPTED,
        0 => 0,
        _ if state & DEAD.0 != 0 => DEAD.1,
        _ if state & NO_LOAD.0 != 0 => NO_LOAD.1,
        _ if state & REPORTED != 0 => (state & REPORTED) as i64,
        _ => UNINTERRUPTIBLE,
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept_pages::KeptPages;
    use super::super::recorder::Stopped;
    use super::*;
    use warmcore_capture::written::{HEADER_EVENT, HEADER_PAGE, descriptions};
    use warmcore_capture::{Context, What, trace_dat};
    use warmcore_trace::PrevState;

    fn record(time_ns: u64, kind: u32, thread: i32, other: i32, (state, number): (u64, u64), nesting: u32) -> Vec<u8> {
        let mut bytes = time_ns.to_le_bytes().to_vec();
        [1, kind, 7, nesting, thread as u32, other as u32]
            .iter()
            .for_each(|word: &u32| bytes.extend(word.to_le_bytes()));
        bytes.extend(state.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(b"a name\0\0\0\0\0\0\0\0\0\0");
        bytes
    }

    #[test]
    fn records_become_the_events_of_any_recording() {
        let all = [
            record(30, 0, 7, 8, (1, 0), 0),
            record(10, 5, 8, 7, (0, 7), 0),
            record(20, 1, 8, 0, (0, 1), SOFT_INTERRUPT),
            record(40, 0, 8, 0, (0x80, 0), 0),
            record(50, 8, 1, 142, (0, 237), 0),
            record(0, END, 0, 0, (0, 5), 0),
        ];
        let probed = read(&all.concat(), 2).unwrap();
        assert_eq!(probed.lost, 5);
        let pages = KeptPages::Memory(probed.pages);
        let contents = trace_dat::Contents {
            header_page: HEADER_PAGE.into(),
            header_event: HEADER_EVENT.into(),
            events: descriptions(),
            clock: "mono".into(),
            processes: [(7, 7)].into(),
            ..trace_dat::Contents::default()
        };
        let recording =
            super::super::recorder::recording(&Stopped { contents, pages, accounts: BTreeMap::new() }).unwrap();
        let whats: Vec<What> = recording.records.iter().map(|record| record.what).collect();
        let expected = [
            What::Fork { parent: 7, child: 8 },
            What::Waking { thread: 8, target_cpu: 1 },
            What::Switch { prev: 7, state: PrevState::Sleeping, next: 8, uninterruptible: false },
            What::Switch { prev: 8, state: PrevState::Dead, next: 0, uninterruptible: false },
            What::Hotplug { target_cpu: 1, target: 142, step: 237 },
        ];
        assert_eq!(whats, expected);
        assert_eq!(recording.records[1].context, Context::SoftInterrupt);
        assert_eq!((recording.threads[&8].process, recording.threads[&8].name.as_str()), (Some(7), "a name"));
    }

    #[test]
    fn a_stream_that_ends_early_or_names_what_is_not_there_is_refused() {
        let one = record(30, 0, 7, 8, (1, 0), 0);
        assert!(read(&one, 2).unwrap_err().contains("ended early"));
        let end = record(0, END, 0, 0, (0, 0), 0);
        assert!(read(&[one, end.clone()].concat(), 1).unwrap_err().contains("CPU 1"));
        assert!(read(&[record(1, 9, 0, 0, (0, 0), 0), end].concat(), 2).unwrap_err().contains("kind 9"));
    }

    #[test]
    fn states_are_reported_as_the_kernels_event_does() {
        let states =
            [(0, true), (1, true), (0, false), (1, false), (2, false), (0x402, false), (0x80, false), (0x1000, false)];
        let reported: Vec<i64> = states.iter().map(|(state, preempted)| reported(*state, *preempted)).collect();
        assert_eq!(reported, [0x100, 0x100, 0, 1, 2, 0x200, 0x10, 2]);
    }
}
