//! Recording scheduling events: a tracefs instance of its own, so that nobody else's tracing is disturbed and loss is
//! our own.
//!
//! Events go to per-CPU ring buffers that are read only after the run: reading would need a thread that runs beside the
//! workload. A full buffer takes nothing more (`overwrite` off), and what it did not take is counted.

use std::fs::{self, File};
use std::io::Read;
use std::io::Write;

use warmcore_agent::report::{FrameKind, write_frame};
use warmcore_capture::EventFormats;

use crate::files;

const INSTANCE: &str = "/sys/kernel/tracing/instances/warmcore";

/// Events of the `sched` subsystem that are recorded. The last three depend on the kernel's configuration.
const EVENTS: [&str; 10] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
    "sched_process_exit",
    "sched_move_numa",
    "sched_swap_numa",
    "sched_stick_numa",
];
const REQUIRED: usize = 7;

/// Page of the ring buffer.
const PAGE_BYTES: usize = 4096;
/// Time stamp and commit counter at the head of a page.
const PAGE_HEAD: usize = 16;
/// Bits of the commit counter that are the length.
const COMMIT_LENGTH: u64 = 0xf_ffff;

/// Makes the instance and describes its events.
pub fn prepare() -> Result<EventFormats, String> {
    fs::create_dir_all(INSTANCE).map_err(|error| format!("cannot make a tracefs instance: {error}"))?;
    files::write(&file("trace_clock"), "mono")?;
    let overwrite = file("options/overwrite");
    files::write(&overwrite, "0")?;
    let mut formats =
        EventFormats { header_page: files::read("/sys/kernel/tracing/events/header_page")?, events: Vec::new() };
    for (position, name) in EVENTS.iter().enumerate() {
        match files::read(&file(&format!("events/sched/{name}/format"))) {
            Ok(format) => formats.events.push(((*name).to_owned(), format)),
            Err(reason) if position < REQUIRED => return Err(reason),
            Err(_) => {}
        }
    }
    files::write(&file("tracing_on"), "0")?;
    for (name, _) in &formats.events {
        files::write(&file(&format!("events/sched/{name}/enable")), "1")?;
    }
    Ok(formats)
}

/// Empties the buffers and records from now on.
pub fn start(buffer_kib: u32) -> Result<(), String> {
    files::write(&file("tracing_on"), "0")?;
    files::write(&file("buffer_size_kb"), &buffer_kib.to_string())?;
    // Opening it for writing empties the buffers.
    File::create(file("trace")).map_err(|error| format!("cannot empty the trace: {error}"))?;
    files::write(&file("tracing_on"), "1")
}

/// Records no more.
pub fn stop() -> Result<(), String> {
    files::write(&file("tracing_on"), "0")
}

/// What each CPU's buffer took and did not take, by CPU.
pub fn counts() -> Result<(Vec<u64>, Vec<u64>), String> {
    let (mut entries, mut lost) = (Vec::new(), Vec::new());
    for cpu in 0..cpus() {
        let stats = files::read(&file(&format!("per_cpu/cpu{cpu}/stats")))?;
        let count = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim_start_matches(':').trim().parse::<u64>().ok()).unwrap_or(0)
        };
        entries.push(count("entries"));
        lost.push(count("overrun") + count("commit overrun") + count("dropped events"));
    }
    Ok((entries, lost))
}

/// Sends the pages of all buffers.
pub fn send(channel: &mut impl Write) -> Result<(), String> {
    for cpu in 0..cpus() {
        let path = file(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let opened = rustix::fs::open(&path, flags, rustix::fs::Mode::empty());
        let mut pipe = File::from(opened.map_err(|error| format!("cannot open {path}: {error}"))?);
        let mut payload = vec![0; 4 + PAGE_BYTES];
        payload[..4].copy_from_slice(&(cpu as u32).to_le_bytes());
        loop {
            let length = match pipe.read(&mut payload[4..]) {
                Ok(0) => break,
                Ok(length) => length,
                // Nothing more is there and nobody writes.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("cannot read {path}: {error}")),
            };
            let used = used_bytes(&payload[4..4 + length]);
            write_frame(channel, FrameKind::TracePage, &payload[..4 + used])
                .map_err(|error| format!("cannot send a trace page: {error}"))?;
        }
    }
    Ok(())
}

/// How much of a page holds something.
fn used_bytes(page: &[u8]) -> usize {
    let commit = page.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    (PAGE_HEAD + (commit & COMMIT_LENGTH) as usize).min(page.len())
}

fn cpus() -> usize {
    files::names(&file("per_cpu")).len()
}

fn file(name: &str) -> String {
    format!("{INSTANCE}/{name}")
}
