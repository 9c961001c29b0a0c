//! A sched_ext scheduler around a run: loaded before, watched during, checked after, unloaded; its state is the kernel's
//! word for it.
//!
//! The kernel counts how often a scheduler was enabled (`enable_seq`), after it says `enabled`: both are waited for, and
//! a count that changed later means that the scheduler was ejected and came back. Where CPUs go offline that is no fault: its program is asked to
//! start it again.

use std::fs::File;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use warmcore_agent::plan::ScxPlan;

use crate::facts::monotonic_ns;
use warmcore_agent::files;

const STATE: &str = "/sys/kernel/sched_ext/state";
const SEQUENCE: &str = "/sys/kernel/sched_ext/enable_seq";
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
const LOG: &str = "/tmp/scx.log";
/// Time for a scheduler to unload.
const UNLOAD_NS: u64 = 60_000_000_000;
/// Time for the kernel to finish an ejection; only then does it say why.
const EJECTION_NS: u64 = 10_000_000_000;
/// Lines of the kernel about sched_ext in an error: what happened, and with which task or call.
const KERNEL_LINES: usize = 2;
/// How often the kernel is asked during a run.
const WATCH: Duration = Duration::from_millis(100);
/// Lines of the scheduler's own words in an error, and bytes of each.
const LAST_LINES: usize = 6;
const LINE_BYTES: usize = 200;

/// A loaded scheduler.
pub struct Scx {
    child: Child,
    known: Known,
}

/// What the kernel said of the scheduler once it was enabled.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Known {
    /// Its name in the kernel.
    name: String,
    /// How often a scheduler was enabled since boot.
    sequence: String,
    /// It may be ended and come back.
    may_restart: bool,
}

impl Scx {
    /// Starts the program and waits until the kernel says that it schedules.
    ///
    /// # Errors
    /// When it ends, is refused, or takes too long; with the last lines it printed.
    pub fn load(plan: &ScxPlan) -> Result<Self, String> {
        let state = files::read(STATE)?;
        if state != "disabled" {
            return Err(format!("{STATE} is `{state}` before a scheduler was loaded"));
        }
        let before = files::read(SEQUENCE)?;
        let log = File::create(LOG).map_err(|error| format!("cannot make {LOG}: {error}"))?;
        let log_too = log.try_clone().map_err(|error| error.to_string())?;
        let spawned = Command::new(&plan.program)
            .args(&plan.arguments)
            .env("RUST_BACKTRACE", "0")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(log_too))
            .spawn();
        let mut child = spawned.map_err(|error| format!("cannot start {}: {error}", plan.program))?;
        let end_ns = monotonic_ns() + plan.enable_ns;
        loop {
            if let Some(known) = enabled_since(&before, plan.may_restart)? {
                return Ok(Self { child, known });
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("{} ended before it was enabled ({status}): {}", plan.program, last_words()));
            }
            if monotonic_ns() > end_ns {
                let _ = child.kill();
                let seconds = plan.enable_ns / 1_000_000_000;
                return Err(format!("{} was not enabled within {seconds} s: {}", plan.program, last_words()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The scheduler's name in the kernel.
    pub fn name(&self) -> &str {
        &self.known.name
    }

    /// How often it was ended and started again so far.
    pub fn restarts(&self) -> Result<u32, String> {
        let number = |text: &str| text.parse::<u32>().map_err(|error| format!("{SEQUENCE}: {error}"));
        Ok(number(&files::read(SEQUENCE)?)?.saturating_sub(number(&self.known.sequence)?))
    }

    /// Whether it still schedules, and has done so without a break but one after which it may come back; its program must be there too.
    pub fn check(&mut self) -> Result<(), String> {
        let end_ns = monotonic_ns() + EJECTION_NS;
        while self.known.may_restart
            && files::read(STATE)? != "enabled"
            && self.child.try_wait().is_ok_and(|status| status.is_none())
            && monotonic_ns() < end_ns
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.known.still()?;
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(format!("the scheduler's program ended during the run ({status}): {}", last_words()))
            }
            Err(error) => Err(format!("waiting for the scheduler's program: {error}")),
        }
    }

    /// Asks the kernel again and again; calls `ejected` once if it no longer schedules.
    pub fn watch(&self, ejected: impl FnOnce() + Send + 'static) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let (known, flag) = (self.known.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut checks = 0;
            while !flag.load(Ordering::Relaxed) {
                std::thread::sleep(WATCH);
                checks += 1;
                // Whether it came back is asked at the end.
                if !known.may_restart && known.still().is_err() {
                    ejected();
                    break;
                }
            }
            checks
        });
        Watch { stop, thread }
    }

    /// Ends it and waits until the kernel says so.
    pub(crate) fn unload(mut self) -> Result<(), String> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::INT).map_err(|error| format!("cannot interrupt the scheduler: {error}"))?;
        }
        let end_ns = monotonic_ns() + UNLOAD_NS;
        loop {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) && files::read(STATE)? == "disabled" {
                return Ok(());
            }
            if monotonic_ns() > end_ns {
                return Err(format!(
                    "the scheduler {} did not unload; state `{}`",
                    self.known.name,
                    files::read(STATE)?
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A watch over a run.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u32>,
}

impl Watch {
    /// Ends it and says how often the kernel was asked.
    pub fn stop(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

/// What the kernel says of a scheduler that was enabled since the count was `before`.
fn enabled_since(before: &str, may_restart: bool) -> Result<Option<Known>, String> {
    let (state, sequence) = (files::read(STATE)?, files::read(SEQUENCE)?);
    if state != "enabled" || sequence == before {
        return Ok(None);
    }
    Ok(files::read(OPS).ok().map(|name| Known { name, sequence, may_restart }))
}

impl Known {
    /// Whether the kernel still says the same.
    fn still(&self) -> Result<(), String> {
        let (state, sequence, name) =
            (files::read(STATE)?, files::read(SEQUENCE)?, files::read(OPS).unwrap_or_default());
        let is_same = sequence == self.sequence || self.may_restart;
        if state == "enabled" && is_same && name == self.name {
            return Ok(());
        }
        let end_ns = monotonic_ns() + EJECTION_NS;
        while files::read(STATE)? == "disabling" && monotonic_ns() < end_ns {
            std::thread::sleep(Duration::from_millis(20));
        }
        let came_back = if sequence == self.sequence { "" } else { ", and a scheduler was enabled again" };
        Err(format!(
            "the scheduler {} was ejected during the run (state `{state}`{came_back}): {}",
            self.name,
            last_words()
        ))
    }
}

/// What the kernel said of sched_ext last, and the last lines the scheduler printed.
fn last_words() -> String {
    let text = std::fs::read(LOG).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    match kernel_words() {
        None => last_lines(&text),
        Some(kernel) => format!("{kernel}\n{}", last_lines(&text)),
    }
}

/// The last lines about sched_ext in the kernel's log.
fn kernel_words() -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let mut log = File::from(rustix::fs::open("/dev/kmsg", flags, Mode::empty()).ok()?);
    let mut record = [0; 8192];
    let mut last: Vec<String> = Vec::new();
    // Each read is one record, and there is an error after the last one.
    while let Ok(length) = log.read(&mut record) {
        let text = String::from_utf8_lossy(&record[..length]);
        let message = text.split_once(';').map_or("", |(_, message)| message);
        if let Some(line) = message.lines().next().filter(|line| line.contains("sched_ext:")) {
            if last.len() == KERNEL_LINES {
                last.remove(0);
            }
            last.push(line.to_owned());
        }
    }
    (!last.is_empty()).then(|| last.join("\n"))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.trim().is_empty()).collect();
    let first = lines.len().saturating_sub(LAST_LINES);
    // A dump of all queues may follow the reason, and be long.
    let reasons = lines[..first].iter().filter(|line| line.contains("EXIT:") || line.contains("Error:")).take(3);
    let said: Vec<&str> = reasons.chain(&lines[first..]).map(String::as_str).collect();
    if said.is_empty() { "it said nothing".into() } else { said.join("\n") }
}

/// A line without the terminal's control sequences, cut to a length that can be read.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&rest[..at]);
        let sequence = &rest[at + 1..];
        let end = sequence.find(|letter: char| letter.is_ascii_alphabetic()).map_or(sequence.len(), |end| end + 1);
        rest = &sequence[end..];
    }
    out.push_str(rest);
    out.retain(|letter| !letter.is_control());
    let end = (0..=LINE_BYTES.min(out.len())).rev().find(|end| out.is_char_boundary(*end)).unwrap_or(0);
    if end < out.len() {
        out.truncate(end);
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_have_no_control_sequences_and_keep_the_reason() {
        let dump: String = (0..40).map(|n| format!("\x1b[2m  R kworker/{n}\x1b[0m\n")).collect();
        let said = last_lines(&format!("started\n\nEXIT: runnable task stall\n{dump}"));
        assert!(said.starts_with("EXIT: runnable task stall\n  R kworker/34\n"), "{said}");
        assert_eq!(said.lines().count(), 1 + LAST_LINES);
        assert_eq!(last_lines(" \n"), "it said nothing");
        assert_eq!(plain(&"ä".repeat(400)).chars().count(), LINE_BYTES / 2 + 1);
    }
}
