//! The recorder's other back end: BPF programs at raw tracepoints.
//!
//! They and what loads them are a program of their own, `warmcore-recorder-bpf`, under another licence; it is started beside a recording and
//! writes records to a pipe. Here they become pages like the kernel's, so that a recording is the same file whichever way it was made.
//! System calls are not among what it records.
//!
//! Source: `bpf/programs/recorder.h` for records.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use super::probed::{PageMaker, RECORD_BYTES};
use crate::files::{find_program, unnamed};

/// The program.
pub const PROGRAM: &str = "warmcore-recorder-bpf";
const MAGIC: &[u8; 8] = b"WCSCHED1";

/// How much is read of it at a time.
const READ_BYTES: usize = 64 << 10;

/// Where the program is: beside this one, or where programs are looked for.
pub fn find() -> Option<PathBuf> {
    let found = find_program(PROGRAM);
    (found != Path::new(PROGRAM)).then_some(found)
}

/// The program at work. What it writes is kept in a file as it is: who takes it must be faster than the kernel makes it.
#[derive(Debug)]
pub(super) struct Probes {
    child: Child,
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<io::Result<File>>>,
    tells_interrupts: bool,
}

impl Probes {
    /// Starts it, and returns when it records. What it records is kept in a file in `directory`.
    ///
    /// # Errors
    /// Its own words; a directory in which no file can be made.
    pub(super) fn start(program: &Path, kib: u32, directory: &Path) -> Result<Self, String> {
        let mut file = unnamed(directory)
            .map_err(|error| format!("cannot keep what it records in {}: {error}", directory.display()))?;
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
            io::copy(&mut output, &mut file)?;
            file.rewind()?;
            Ok(file)
        }));
        Ok(probes)
    }

    /// Whether interrupts are told from threads.
    pub(super) fn tells_interrupts(&self) -> bool {
        self.tells_interrupts
    }

    /// Records no more, hands over what was recorded on so many CPUs, page by page, and returns how many records found no room; it does not
    /// know on which CPU.
    ///
    /// # Errors
    /// If it did not end as it should, and those of `keep`.
    pub(super) fn finish(
        mut self,
        cpus: usize,
        keep: impl FnMut(usize, &[u8]) -> Result<(), String>,
    ) -> Result<u64, String> {
        drop(self.input.take());
        let reader = self.reader.take().ok_or("it was not started")?;
        let kept = reader.join().map_err(|_| "its reader ended early".to_owned())?;
        let mut file = kept.map_err(|error| format!("cannot keep what {PROGRAM} records: {error}"))?;
        convert(&mut file, PageMaker::new(cpus), keep)
    }
}

/// Makes pages of all that the program wrote; returns how many records found no room.
fn convert(
    output: &mut impl Read,
    mut maker: PageMaker,
    mut keep: impl FnMut(usize, &[u8]) -> Result<(), String>,
) -> Result<u64, String> {
    let (mut bytes, mut filled) = (vec![0; READ_BYTES], 0);
    loop {
        let read = match output.read(&mut bytes[filled..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("cannot read what {PROGRAM} recorded: {error}")),
        };
        filled += read;
        let whole = filled - filled % RECORD_BYTES;
        for record in bytes[..whole].chunks_exact(RECORD_BYTES) {
            if let Some(lost) = maker.take(record, &mut keep)? {
                return Ok(lost);
            }
        }
        if read == 0 {
            return Err(format!("{PROGRAM} ended early: its last record is not there"));
        }
        bytes.copy_within(whole..filled, 0);
        filled -= whole;
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

#[cfg(test)]
mod tests {
    use super::super::kept_pages::KeptPages;
    use super::super::probed::END;
    use super::super::probed::SOFT_INTERRUPT;
    use super::super::recorder::Stopped;
    use super::*;
    use std::collections::BTreeMap;
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
        let mut pages = KeptPages::in_memory(2);
        let lost = convert(&mut &*all.concat(), PageMaker::new(2), |cpu, page| {
            pages.keep(cpu, page).map_err(|error| error.to_string())
        });
        assert_eq!(lost, Ok(5));
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
        let whats: Vec<What> = recording.in_order().map(|record| record.what).collect();
        let expected = [
            What::Fork { parent: 7, child: 8 },
            What::Waking { thread: 8, target_cpu: 1 },
            What::Switch { prev: 7, state: PrevState::Sleeping, next: 8, uninterruptible: false },
            What::Switch { prev: 8, state: PrevState::Dead, next: 0, uninterruptible: false },
            What::Hotplug { target_cpu: 1, target: 142, step: 237 },
        ];
        assert_eq!(whats, expected);
        assert_eq!(recording.in_order().nth(1).unwrap().context, Context::SoftInterrupt);
        assert_eq!((recording.threads[&8].process, recording.threads[&8].name.as_str()), (Some(7), "a name"));
    }

    #[test]
    fn a_stream_that_ends_early_or_names_what_is_not_there_is_refused() {
        let read = |bytes: &[u8], cpus: usize| convert(&mut &*bytes, PageMaker::new(cpus), |_, _| Ok(()));
        let one = record(30, 0, 7, 8, (1, 0), 0);
        assert!(read(&one, 2).unwrap_err().contains("ended early"));
        let end = record(0, END, 0, 0, (0, 0), 0);
        assert!(read(&[one, end.clone()].concat(), 1).unwrap_err().contains("CPU 1"));
        assert!(read(&[record(1, 9, 0, 0, (0, 0), 0), end].concat(), 2).unwrap_err().contains("kind 9"));
    }
}
