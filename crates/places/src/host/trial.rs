//! A command, run once, and what else went on meanwhile.

use std::ffi::OsString;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use serde::Serialize;

/// Stops itself before it becomes the command, so that whatever has to be done about the process is done before its first instruction.
pub const STOPPED_START: &str = r#"kill -STOP $$; exec "$@""#;
/// The same, bound to the CPUs in the first argument.
const BOUND_START: &str = r#"cpus=$1; shift; kill -STOP $$; exec taskset -c "$cpus" "$@""#;

/// How often a command is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Ticks per second of `/proc/stat` (`USER_HZ`, the same on every architecture that Linux tells times to user space).
const USER_HZ: f64 = 100.0;

/// Waits until a process that was started with [`STOPPED_START`] has stopped.
///
/// # Errors
/// If it ended instead.
pub fn stopped(child: &Child) -> Result<Pid, String> {
    let pid = Pid::from_child(child);
    match waitpid(Some(pid), WaitOptions::UNTRACED) {
        Ok(Some((_, status))) if status.stopped() => Ok(pid),
        Ok(_) => Err("it ended at once".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Lets a stopped process go on.
///
/// # Errors
/// If it is gone.
pub fn go_on(pid: Pid) -> Result<(), String> {
    kill_process(pid, Signal::CONT).map_err(|error| error.to_string())
}

/// What a run of a command gave.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trial {
    /// From its first instruction to its end, s.
    pub elapsed_s: f64,
    /// CPU time of it and of what it waited for, s.
    pub cpu_s: f64,
    /// Exit code; that of a shell for a signal.
    pub exit_code: i32,
    /// What it printed.
    #[serde(skip)]
    pub output: String,
    /// What else went on.
    pub noise: Noise,
}

/// What else went on during a trial.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Noise {
    /// CPU time of everybody else, in CPUs.
    pub others_cpus: f64,
    /// Time that a hypervisor gave to others, in CPUs.
    pub steal_cpus: f64,
    /// Interrupts per second.
    pub interrupts_per_s: f64,
}

/// Why a trial is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrialError {
    /// It could not be started.
    #[error("cannot start the command: {0}")]
    Start(String),
    /// It did not end in time and was killed with all that it started.
    #[error("the command did not end within {0:?} and was killed")]
    Timeout(Duration),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The kernel's accounts cannot be read.
    #[error("cannot read {0}")]
    Accounts(String),
}

/// Runs a command to its end, in a process group of its own, on these CPUs if they are said.
///
/// # Errors
/// See [`TrialError`]; nothing that it started runs on afterwards unless it left its process group.
pub fn run(
    command: &[OsString],
    cpus: Option<&str>,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<Trial, TrialError> {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

    let start_failed = |error: String| TrialError::Start(error);
    let mut shell = Command::new("/bin/sh");
    match cpus {
        Some(cpus) => shell.args(["-c", BOUND_START, "sh", cpus]),
        None => shell.args(["-c", STOPPED_START, "sh"]),
    };
    let child = shell.args(command).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = Group(child.map_err(|error| start_failed(error.to_string()))?);
    let pid = stopped(&child.0).map_err(start_failed)?;
    let stdout = child.0.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is.
        let _ = stdout.map(|mut stdout| stdout.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let before = Accounts::now()?;
    let start = Instant::now();
    go_on(pid).map_err(start_failed)?;
    let status = loop {
        if let Some(status) = child.0.try_wait().map_err(|error| start_failed(error.to_string()))? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            return Err(TrialError::Interrupted);
        }
        if start.elapsed() > timeout {
            return Err(TrialError::Timeout(timeout));
        }
        std::thread::sleep(LOOK);
    };
    let elapsed_s = start.elapsed().as_secs_f64();
    let after = Accounts::now()?;
    drop(child);
    let cpu_s = (after.children - before.children) / USER_HZ;
    let noise = Noise {
        others_cpus: (((after.busy - before.busy) / USER_HZ - cpu_s) / elapsed_s).max(0.0),
        steal_cpus: (after.steal - before.steal) / USER_HZ / elapsed_s,
        interrupts_per_s: (after.interrupts - before.interrupts) / elapsed_s,
    };
    let exit_code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(Trial { elapsed_s, cpu_s, exit_code, output: reader.join().unwrap_or_default(), noise })
}

/// A process group; killed as a whole when it is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // What the command left behind in its group, or all of it.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Ticks and counts since the boot.
struct Accounts {
    busy: f64,
    steal: f64,
    interrupts: f64,
    /// Of processes that this one waited for.
    children: f64,
}

impl Accounts {
    fn now() -> Result<Self, TrialError> {
        let read = |path: &str| {
            std::fs::read_to_string(path).map_err(|error| TrialError::Accounts(format!("{path}: {error}")))
        };
        Self::parse(&read("/proc/stat")?, &read("/proc/self/stat")?)
            .ok_or_else(|| TrialError::Accounts("/proc/stat: it has another form".into()))
    }

    /// The first line of `/proc/stat` is user, nice, system, idle, iowait, irq, softirq, steal; fields 16 and 17 of `/proc/self/stat` are
    /// the times of children.
    fn parse(stat: &str, own: &str) -> Option<Self> {
        let ticks: Vec<f64> =
            stat.lines().next()?.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, steal, ..] = ticks[..] else { return None };
        let interrupts = stat.lines().find_map(|line| line.strip_prefix("intr "))?.split(' ').next()?.parse().ok()?;
        let own: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        let children = own.get(13)?.parse::<f64>().ok()? + own.get(14)?.parse::<f64>().ok()?;
        Some(Self { busy: user + nice + system + irq + softirq, steal, interrupts, children })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn go(text: &str, timeout_s: u64) -> Result<Trial, TrialError> {
        run(&words(text), None, Duration::from_secs(timeout_s), &AtomicBool::new(false))
    }

    #[test]
    fn a_command_is_run_and_what_it_prints_is_kept() {
        let trial = go("echo Time: 1.5", 60).unwrap();
        assert_eq!((trial.output.as_str(), trial.exit_code), ("Time: 1.5\n", 0));
        assert!(trial.elapsed_s > 0.0);
        assert_eq!(go("false", 60).unwrap().exit_code, 1);
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_what_it_started() {
        let marker = format!("{}.25", 4000 + std::process::id());
        let command = [OsString::from("sh"), "-c".into(), format!("sleep {marker} & sleep {marker}").into()];
        let error = run(&command, None, Duration::from_millis(200), &AtomicBool::new(false)).unwrap_err();
        assert_eq!(error, TrialError::Timeout(Duration::from_millis(200)));
        let left = Command::new("pgrep").args(["-f", &format!("^sleep {marker}")]).output();
        assert!(left.is_ok_and(|output| output.stdout.is_empty()), "nothing runs on");
        let stop = AtomicBool::new(true);
        let error = run(&words("sleep 3"), None, Duration::from_secs(60), &stop).unwrap_err();
        assert_eq!(error, TrialError::Interrupted);
    }

    #[test]
    fn accounts_are_the_kernels_fields() {
        let stat = "cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 1\nintr 99 1 2\n";
        let own = "7 (a b) c) S 1 7 7 0 -1 0 1 2 3 4 50 60 70 80 20 0 1 0";
        let accounts = Accounts::parse(stat, own).unwrap();
        assert_eq!((accounts.busy, accounts.steal, accounts.interrupts, accounts.children), (73.0, 8.0, 99.0, 150.0));
        assert!(Accounts::parse("cpu 1 2\n", own).is_none());
    }
}
