//! A command, run once, and what else went on meanwhile.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, kill_process_group, pidfd_open, waitpid};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;

use super::recorder::{BETWEEN_READINGS, Recorder, Stopped};
use super::state::Bounds;
use crate::files::MAX_TEXT_BYTES;
use crate::place::PlaceError;

/// Stops itself before it becomes the command, so that whatever has to be done about the process is done before its first instruction.
pub const STOPPED_START: &str = r#"kill -STOP $$; exec "$@""#;
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

/// A process whose end can be waited for.
#[derive(Debug)]
pub struct Watched(OwnedFd);

impl Watched {
    /// The process with this number.
    ///
    /// # Errors
    /// If there is none.
    pub fn new(process: i32) -> Result<Self, String> {
        let failed = |reason: &dyn std::fmt::Display| format!("cannot watch process {process}: {reason}");
        let pid = Pid::from_raw(process).ok_or_else(|| failed(&"it is not a process"))?;
        pidfd_open(pid, PidfdFlags::empty()).map(Self).map_err(|error| failed(&error))
    }

    /// Returns when it ends, when so much time is over, or when a signal comes: whether it has ended.
    pub fn wait(&self, most: Duration) -> bool {
        let time = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)).is_ok_and(|ready| ready > 0)
    }
}

/// Puts a process that has not begun yet where it is to run.
fn bind(pid: Pid, bounds: &Bounds) -> Result<(), String> {
    if let Some(group) = &bounds.group {
        let file = group.join("cgroup.procs");
        let number = pid.as_raw_nonzero().get().to_string();
        std::fs::write(&file, number).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    if bounds.affinity.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    let fits = |cpu: &u32| (*cpu as usize) < CpuSet::MAX_CPU;
    bounds.affinity.iter().filter(|cpu| fits(cpu)).for_each(|cpu| set.set(*cpu as usize));
    sched_setaffinity(Some(pid), &set).map_err(|error| format!("cannot be bound to its CPUs: {error}"))
}

/// What a run of a command gave.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trial {
    /// From its first instruction to its end, s.
    pub elapsed_s: f64,
    /// CPU time of it and of what it waited for, s.
    pub cpu_s: f64,
    /// Exit code; that of a shell for a signal; none if it was ended at the limit.
    pub exit_code: Option<i32>,
    /// When it began, on the monotonic clock, ns.
    #[serde(skip)]
    pub start_ns: u64,
    /// Its first process.
    #[serde(skip)]
    pub process: i32,
    /// What it printed.
    #[serde(skip)]
    pub output: String,
    /// What else went on.
    pub noise: Noise,
    /// Processes that it started and that run on, as they left its process group: name and number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<(String, i32)>,
}

/// What else went on during a trial.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Noise {
    /// CPU time of everybody else, in CPUs.
    pub others_cpus: f64,
    /// Time that a hypervisor gave to others, in CPUs.
    pub steal_cpus: f64,
    /// Interrupts per second.
    pub interrupts_per_s: f64,
    /// Frequency of each CPU at the end; empty where it cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frequencies_khz: Vec<u64>,
}

/// Why a trial is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum TrialError {
    #[error("cannot start the command: {0}")]
    Start(String),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The kernel's accounts cannot be read.
    #[error("cannot read {0}")]
    Accounts(String),
    /// It could not be recorded.
    #[error(transparent)]
    Record(#[from] PlaceError),
}

/// A command to be run once.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// It and its arguments.
    pub command: &'a [OsString],
    /// Where it may run.
    pub bounds: &'a Bounds,
    /// Longest time; then it is killed with all that it started.
    pub limit: Duration,
    /// Set by the caller to end it soon.
    pub stop: &'a AtomicBool,
    /// What records it, and with how much room, KiB per CPU.
    pub recorder: Option<(&'a Recorder, u32)>,
}

/// What a command prints, up to a length; what is beyond is read as well, so that the command does not wait, and is counted.
fn kept_output(mut stdout: impl Read, most: u64) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is what there is.
    let _ = stdout.by_ref().take(most).read_to_end(&mut bytes);
    let more = io::copy(&mut stdout, &mut io::sink()).unwrap_or(0);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if more > 0 {
        text.push_str(&format!("\n({more} more bytes were printed, and not kept)\n"));
    }
    text
}

/// Runs a command to its end, in a process group of its own, and gives what was recorded of it.
///
/// # Errors
/// See [`TrialError`]; nothing that it started runs on afterwards unless it left its process group.
pub fn run(task: &Task<'_>) -> Result<(Trial, Option<Stopped>), TrialError> {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

    // Processes whose parents are gone become this one's children, so that they are known.
    let reaper = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    reaper.map_err(|error| TrialError::Start(error.to_string()))?;
    let children_before = children();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", STOPPED_START, "sh"]).args(task.command);
    let child = shell.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = ProcessGroup(child.map_err(|error| TrialError::Start(error.to_string()))?);
    let pid = stopped(&child.0).map_err(TrialError::Start)?;
    bind(pid, task.bounds).map_err(TrialError::Start)?;
    let process = pid.as_raw_nonzero().get();
    let watched = Watched::new(process).map_err(TrialError::Start)?;
    let stdout = child.0.stdout.take();
    let reader =
        std::thread::spawn(move || stdout.map_or_else(String::new, |stdout| kept_output(stdout, MAX_TEXT_BYTES)));
    let mut reading =
        task.recorder.map(|(recorder, buffer_kib)| recorder.start(buffer_kib, process, None)).transpose()?;
    let before = BootAccounts::now()?;
    let (start, start_ns) = (Instant::now(), monotonic_ns());
    go_on(pid).map_err(TrialError::Start)?;
    let status = loop {
        watched.wait(task.limit.saturating_sub(start.elapsed()).min(BETWEEN_READINGS));
        let elapsed = start.elapsed();
        if let Some(status) = child.0.try_wait().map_err(|error| TrialError::Start(error.to_string()))? {
            break Ok((status, elapsed));
        }
        if let Some(reading) = &mut reading {
            reading.take()?;
        }
        if task.stop.load(Ordering::Relaxed) {
            return Err(TrialError::Interrupted);
        }
        if elapsed >= task.limit {
            break Err(elapsed);
        }
    };
    let after = BootAccounts::now()?;
    let recorded = reading.map(|reading| reading.stop()).transpose()?;
    drop(child);
    let left_behind = children().into_iter().filter(|(_, pid)| !children_before.iter().any(|(_, own)| own == pid));
    let left_behind = left_behind.collect();
    let (exit_code, elapsed) = match status {
        Ok((status, elapsed)) => {
            (Some(status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)), elapsed)
        }
        Err(elapsed) => (None, elapsed),
    };
    let elapsed_s = elapsed.as_secs_f64();
    let cpu_s = after.children_s - before.children_s;
    let noise = Noise {
        others_cpus: (((after.busy - before.busy) / USER_HZ - cpu_s) / elapsed_s).max(0.0),
        steal_cpus: (after.steal - before.steal) / USER_HZ / elapsed_s,
        interrupts_per_s: (after.interrupts - before.interrupts) / elapsed_s,
        frequencies_khz: frequencies(),
    };
    let output = reader.join().unwrap_or_default();
    Ok((Trial { elapsed_s, cpu_s, exit_code, start_ns, process, output, noise, left_behind }, recorded))
}

/// Children of this process that run: name and number. Those that have ended and wait for their parent are left out.
fn children() -> Vec<(String, i32)> {
    let own = std::process::id().to_string();
    let mut children: Vec<(String, i32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            let mut fields = rest.split_whitespace();
            let is_zombie = fields.next()? == "Z";
            (fields.next()? == own && !is_zombie).then(|| (name.to_owned(), pid))
        })
        .collect();
    children.sort_by_key(|(_, pid)| *pid);
    children
}

/// The monotonic clock, which recordings have too.
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Frequencies of CPUs at the end, where they can be read, by CPU.
fn frequencies() -> Vec<u64> {
    let file = |cpu: usize| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    (0..CpuSet::MAX_CPU).map_while(|cpu| std::fs::read_to_string(file(cpu)).ok()?.trim().parse().ok()).collect()
}

/// A process group; killed as a whole when it is dropped.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // What the command left behind in its group, or all of it.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Ticks and counts since the boot.
struct BootAccounts {
    busy: f64,
    steal: f64,
    interrupts: f64,
    /// CPU time of processes that this one waited for, s.
    children_s: f64,
}

impl BootAccounts {
    fn now() -> Result<Self, TrialError> {
        let read = |path: &str| {
            std::fs::read_to_string(path).map_err(|error| TrialError::Accounts(format!("{path}: {error}")))
        };
        Self::parse(&read("/proc/stat")?, children_s()?)
            .ok_or_else(|| TrialError::Accounts("/proc/stat: it has another form".into()))
    }

    /// The first line of `/proc/stat` is user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(stat: &str, children_s: f64) -> Option<Self> {
        let ticks: Vec<f64> =
            stat.lines().next()?.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, steal, ..] = ticks[..] else { return None };
        let interrupts = stat.lines().find_map(|line| line.strip_prefix("intr "))?.split(' ').next()?.parse().ok()?;
        Some(Self { busy: user + nice + system + irq + softirq, steal, interrupts, children_s })
    }
}

/// CPU time of the processes that this one waited for, s, to the microsecond: `/proc/self/stat` has it in ticks of 10 ms, more than a short
/// command takes.
fn children_s() -> Result<f64, TrialError> {
    // SAFETY: all its fields are numbers, for which zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is whole and lives until the call returns; the kernel only writes to it.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return Err(TrialError::Accounts(format!("getrusage: {}", std::io::Error::last_os_error())));
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_prints_is_kept_up_to_a_length_and_the_rest_counted() {
        assert_eq!(kept_output(&b"12345678"[..], 8), "12345678");
        assert_eq!(kept_output(&b"1234567890"[..], 8), "12345678\n(2 more bytes were printed, and not kept)\n");
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn go(command: &[OsString], limit: Duration) -> Result<Trial, TrialError> {
        let (bounds, stop) = (Bounds::default(), AtomicBool::new(false));
        let task = Task { command, bounds: &bounds, limit, stop: &stop, recorder: None };
        run(&task).map(|(trial, _)| trial)
    }

    #[test]
    fn a_command_is_run_and_what_it_prints_is_kept() {
        let trial = go(&words("echo Time: 1.5"), Duration::from_secs(60)).unwrap();
        assert_eq!((trial.output.as_str(), trial.exit_code), ("Time: 1.5\n", Some(0)));
        assert!(trial.elapsed_s > 0.0);
        assert_eq!(go(&words("false"), Duration::from_secs(60)).unwrap().exit_code, Some(1));
    }

    #[test]
    fn a_command_of_a_millisecond_has_its_cpu_time_and_not_a_whole_tick_or_none() {
        let times = [0; 3].map(|_| go(&words("true"), Duration::from_secs(60)).unwrap().cpu_s);
        assert!(times.iter().all(|cpu_s| *cpu_s > 0.0), "{times:?}");
        assert!(times.iter().any(|cpu_s| (cpu_s * USER_HZ).fract() != 0.0), "{times:?} are ticks");
    }

    #[test]
    fn a_command_is_bound_before_its_first_instruction() {
        let (command, stop) = (words("grep Cpus_allowed_list /proc/self/status"), AtomicBool::new(false));
        let bounds = Bounds { affinity: vec![0], group: None };
        let task =
            Task { command: &command, bounds: &bounds, limit: Duration::from_secs(60), stop: &stop, recorder: None };
        assert_eq!(run(&task).unwrap().0.output, "Cpus_allowed_list:\t0\n");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_what_it_started() {
        let marker = format!("{}.25", 4000 + std::process::id());
        let command = [OsString::from("sh"), "-c".into(), format!("sleep {marker} & sleep {marker}").into()];
        assert_eq!(go(&command, Duration::from_millis(200)).unwrap().exit_code, None);
        let left = Command::new("pgrep").args(["-f", &format!("^sleep {marker}")]).output();
        assert!(left.is_ok_and(|output| output.stdout.is_empty()), "nothing runs on");
        let (command, bounds, stop) = (words("sleep 3"), Bounds::default(), AtomicBool::new(true));
        let limit = Duration::from_secs(60);
        let task = Task { command: &command, bounds: &bounds, limit, stop: &stop, recorder: None };
        assert_eq!(run(&task).unwrap_err(), TrialError::Interrupted);
    }

    #[test]
    fn a_process_that_left_the_commands_group_is_named() {
        let command = [OsString::from("sh"), "-c".into(), "setsid sleep 41.25 >/dev/null & sleep 0.1".into()];
        let left = go(&command, Duration::from_secs(60)).unwrap().left_behind;
        let named: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
        // Commands of other tests are named, too, and live on.
        let is_own =
            |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x0041.25\0");
        for pid in left.iter().map(|(_, pid)| *pid).filter(is_own).filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        assert!(named.contains(&"sleep"), "{named:?}");
    }

    #[test]
    fn accounts_are_the_kernels_fields() {
        let stat = "cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 1\nintr 99 1 2\n";
        let accounts = BootAccounts::parse(stat, 1.5).unwrap();
        assert_eq!((accounts.busy, accounts.steal, accounts.interrupts, accounts.children_s), (73.0, 8.0, 99.0, 1.5));
        assert!(BootAccounts::parse("cpu 1 2\n", 1.5).is_none());
    }
}
