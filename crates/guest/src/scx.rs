//! A sched_ext scheduler around a run: loaded before, checked after, unloaded; its state is the kernel's word for it.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use warmcore_guest::plan::ScxPlan;

use crate::facts::monotonic_ns;
use crate::files;

const STATE: &str = "/sys/kernel/sched_ext/state";
const SEQUENCE: &str = "/sys/kernel/sched_ext/enable_seq";
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
const LOG: &str = "/tmp/scx.log";
/// Time for a scheduler to unload.
const UNLOAD_NS: u64 = 60_000_000_000;

/// A loaded scheduler.
pub struct Scx {
    child: Child,
    name: String,
    /// How often a scheduler was enabled since boot: a change means that it was ejected and came back.
    sequence: String,
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
        let log = File::create(LOG).map_err(|error| format!("cannot make {LOG}: {error}"))?;
        let log_too = log.try_clone().map_err(|error| error.to_string())?;
        let spawned = Command::new(&plan.program)
            .args(&plan.arguments)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(log_too))
            .spawn();
        let child = spawned.map_err(|error| format!("cannot start {}: {error}", plan.program))?;
        let mut scx = Self { child, name: String::new(), sequence: String::new() };
        let end_ns = monotonic_ns() + plan.enable_ns;
        while files::read(STATE)? != "enabled" {
            if let Ok(Some(status)) = scx.child.try_wait() {
                return Err(format!("{} ended before it was enabled ({status}): {}", plan.program, last_words()));
            }
            if monotonic_ns() > end_ns {
                let _ = scx.child.kill();
                let seconds = plan.enable_ns / 1_000_000_000;
                return Err(format!("{} was not enabled within {seconds} s: {}", plan.program, last_words()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        scx.name = files::read(OPS).unwrap_or_default();
        scx.sequence = files::read(SEQUENCE)?;
        Ok(scx)
    }

    /// The scheduler's name in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it still schedules, and has done so without a break.
    pub fn check(&mut self) -> Result<(), String> {
        let (state, sequence, name) =
            (files::read(STATE)?, files::read(SEQUENCE)?, files::read(OPS).unwrap_or_default());
        if state == "enabled" && sequence == self.sequence && name == self.name {
            return Ok(());
        }
        Err(format!(
            "the scheduler {} was ejected during the run (state `{state}`, loaded {sequence} times, {} before): {}",
            self.name,
            self.sequence,
            last_words()
        ))
    }

    /// Ends it and waits until the kernel says so.
    pub fn unload(mut self) -> Result<(), String> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::INT).map_err(|error| format!("cannot interrupt the scheduler: {error}"))?;
        }
        let end_ns = monotonic_ns() + UNLOAD_NS;
        loop {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) && files::read(STATE)? == "disabled" {
                return Ok(());
            }
            if monotonic_ns() > end_ns {
                return Err(format!("the scheduler {} did not unload; state `{}`", self.name, files::read(STATE)?));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The last lines the scheduler printed.
fn last_words() -> String {
    let text = std::fs::read(LOG).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
