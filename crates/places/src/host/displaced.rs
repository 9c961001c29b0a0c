//! A sched_ext scheduler that somebody else has loaded: found, ended, and started again.
//!
//! The kernel does not tell whose a scheduler is, but whoever loaded it holds a link of the type `struct_ops`, which
//! `/proc/PID/fdinfo` shows. A scheduler that is pinned, or that a service manager would start again, is not touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::journal::started;

/// The kernel's state of sched_ext, below the root.
const STATE: &str = "sys/kernel/sched_ext/state";
/// Longest time until a loader has ended that was asked to, until it has ended that was killed, and until one schedules: an
/// emulated verifier is slow.
const END: Duration = Duration::from_secs(10);
const KILLED: Duration = Duration::from_secs(30);
pub(super) const ENABLE: Duration = Duration::from_secs(180);
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// The loader of a scheduler, with what is needed to start it again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Displaced {
    /// Its number.
    pub pid: i32,
    /// When it was started, in ticks since the boot: numbers are used again.
    pub started: u64,
    /// Its program, as an absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it was started.
    pub directory: PathBuf,
}

/// What sched_ext does; `None` if the kernel has none.
pub(super) fn state(root: &Path) -> Option<String> {
    std::fs::read_to_string(root.join(STATE)).ok().map(|state| state.trim().to_owned())
}

/// Whether some scheduler is at work, in whatever state.
pub(super) fn is_at_work(root: &Path) -> bool {
    state(root).is_some_and(|state| state != "disabled")
}

impl Displaced {
    /// The loader of the scheduler that is at work.
    ///
    /// # Errors
    /// Why it cannot be told, or is not to be touched.
    pub fn find(root: &Path) -> Result<Self, String> {
        let listed = std::fs::read_dir(root.join("proc")).map_err(|error| format!("/proc cannot be read: {error}"))?;
        let numbers = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let mut holders: Vec<i32> = numbers.filter(|pid| holds_a_link(root, *pid)).collect();
        holders.sort_unstable();
        let &[pid] = holders.as_slice() else {
            return Err(match holders.as_slice() {
                [] => "no process holds it: it is pinned, or its loader is hidden from here".to_owned(),
                several => format!("several processes hold links of its kind: {several:?}"),
            });
        };
        let of = |name: &str| root.join(format!("proc/{pid}/{name}"));
        let groups = std::fs::read_to_string(of("cgroup")).unwrap_or_default();
        let service = groups.lines().filter_map(|line| line.rsplit('/').next()).find(|name| name.ends_with(".service"));
        if let Some(service) = service {
            return Err(format!("process {pid} is the service {service}, which would be started again: stop that"));
        }
        let read = |name: &str, error| format!("/proc/{pid}/{name} cannot be read: {error}");
        let program = std::fs::read_link(of("exe")).map_err(|error| read("exe", error))?;
        let directory = std::fs::read_link(of("cwd")).map_err(|error| read("cwd", error))?;
        let line = std::fs::read(of("cmdline")).map_err(|error| read("cmdline", error))?;
        let line = String::from_utf8(line).map_err(|_| format!("the arguments of process {pid} are not text"))?;
        let arguments = line.trim_end_matches('\0').split('\0').skip(1).map(str::to_owned).collect();
        let started = started(root, pid).ok_or_else(|| format!("process {pid} has ended"))?;
        Ok(Self { pid, started, program, arguments, directory })
    }

    /// Program and arguments, for people.
    pub fn in_words(&self) -> String {
        let program = self.program.display().to_string();
        std::iter::once(program).chain(self.arguments.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    /// Whether it is the same process still. One that has ended, and that nobody has waited for, is not.
    pub(super) fn is_alive(&self, root: &Path) -> bool {
        started(root, self.pid) == Some(self.started)
    }

    /// Asks it to end, kills it if it does not, and waits until nothing schedules any more.
    ///
    /// # Errors
    /// If the scheduler stays.
    pub fn end(&self, root: &Path) -> Result<(), String> {
        for (signal, patience) in [(Signal::TERM, END), (Signal::KILL, KILLED)] {
            if self.is_alive(root) {
                let pid = Pid::from_raw(self.pid).ok_or("it has no number")?;
                kill_process(pid, signal).map_err(|error| format!("process {pid:?} cannot be ended: {error}"))?;
            }
            if waits_for(patience, || !is_at_work(root)) {
                return Ok(());
            }
        }
        Err(format!("sched_ext is {} although process {} was killed", state(root).unwrap_or_default(), self.pid))
    }

    /// Starts it again as a process of its own, and waits until it schedules.
    ///
    /// # Errors
    /// If another scheduler is at work, or it does not come up.
    pub fn start(&self, root: &Path) -> Result<(), String> {
        // The scheduler of the experiment may be leaving just now.
        if !waits_for(KILLED, || !is_at_work(root)) {
            return Err("another sched_ext scheduler is at work".into());
        }
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // It is to outlive this process and whoever interrupts it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| format!("it cannot be started again: {error}"))?;
        let mut ended = None;
        let enabled = waits_for(ENABLE, || {
            ended = child.try_wait().ok().flatten();
            ended.is_some() || state(root).is_some_and(|state| state == "enabled")
        });
        match ended {
            Some(status) => Err(format!("it ended ({status}) before it was enabled again")),
            None if enabled => Ok(()),
            None => Err(format!("it was not enabled within {} s", ENABLE.as_secs())),
        }
    }

    /// Whether the scheduler at work was started like this one.
    pub(super) fn is_back(&self, root: &Path) -> bool {
        let like = |other: Self| other.program == self.program && other.arguments == self.arguments;
        is_at_work(root) && Self::find(root).is_ok_and(like)
    }
}

/// Whether a process has a descriptor of a link of the type `struct_ops`.
fn holds_a_link(root: &Path, pid: i32) -> bool {
    let Ok(files) = std::fs::read_dir(root.join(format!("proc/{pid}/fdinfo"))) else { return false };
    files.flatten().any(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("link_type:").is_some_and(|kind| kind.trim() == "struct_ops"))
    })
}

fn waits_for(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if done() {
            return true;
        }
        if start.elapsed() > patience {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A computer with a scheduler at work, whose loader is process 4000000, which no real one is.
    pub(in super::super) fn computer(program: &str, arguments: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/4000000");
        fs::create_dir_all(process.join("fdinfo")).unwrap();
        fs::create_dir_all(root.path().join("sys/kernel/sched_ext")).unwrap();
        fs::write(root.path().join(STATE), "enabled\n").unwrap();
        fs::write(process.join("fdinfo/3"), "pos:\t0\nlink_type:\tstruct_ops\nlink_id:\t7\nmap_id:\t9\n").unwrap();
        fs::write(process.join("cgroup"), "0::/user.slice\n").unwrap();
        fs::write(process.join("stat"), format!("4000000 (a (b) c) S {} 77 0", ["0"; 18].join(" "))).unwrap();
        let line: String =
            std::iter::once(program).chain(arguments.iter().copied()).map(|word| format!("{word}\0")).collect();
        fs::write(process.join("cmdline"), line).unwrap();
        symlink(program, process.join("exe")).unwrap();
        symlink(root.path(), process.join("cwd")).unwrap();
        root
    }

    #[test]
    fn the_loader_is_who_holds_the_link() {
        let root = computer("/opt/scx_own", &["--slice", "5 ms"]);
        fs::create_dir_all(root.path().join("proc/17/fdinfo")).unwrap();
        fs::write(root.path().join("proc/17/fdinfo/0"), "link_type:\ttracing\n").unwrap();
        let found = Displaced::find(root.path()).unwrap();
        assert_eq!((found.pid, found.started), (4_000_000, 77));
        assert_eq!(found.in_words(), "/opt/scx_own --slice 5 ms");
        assert_eq!(found.arguments, ["--slice", "5 ms"]);
        assert!(found.is_back(root.path()) && found.is_alive(root.path()));
        let stat = root.path().join("proc/4000000/stat");
        fs::write(&stat, fs::read_to_string(&stat).unwrap().replace(" S ", " Z ")).unwrap();
        assert!(!found.is_alive(root.path()), "ended, and its parent has not waited for it");
    }

    #[test]
    fn what_cannot_be_started_again_is_not_touched() {
        let refused = |root: &tempfile::TempDir| Displaced::find(root.path()).unwrap_err();
        let root = computer("/opt/scx_own", &[]);
        fs::write(root.path().join("proc/4000000/cgroup"), "0::/system.slice/scx.service\n").unwrap();
        assert!(refused(&root).contains("scx.service"), "{}", refused(&root));
        fs::remove_file(root.path().join("proc/4000000/fdinfo/3")).unwrap();
        assert!(refused(&root).contains("pinned"), "{}", refused(&root));
        for pid in [5, 6] {
            fs::create_dir_all(root.path().join(format!("proc/{pid}/fdinfo"))).unwrap();
            fs::write(root.path().join(format!("proc/{pid}/fdinfo/0")), "link_type:\tstruct_ops\n").unwrap();
        }
        assert!(refused(&root).contains("[5, 6]"), "{}", refused(&root));
    }

    #[test]
    fn it_is_started_as_it_was_and_must_schedule() {
        // It lives as long as the directory does, however long it takes to be looked at.
        let script = "echo enabled > sys/kernel/sched_ext/state; while [ -e sys ]; do sleep 0.2; done";
        let root = computer("/bin/sh", &["-c", script]);
        let found = Displaced::find(root.path()).unwrap();
        fs::write(root.path().join(STATE), "disabled\n").unwrap();
        found.start(root.path()).unwrap();
        assert_eq!(state(root.path()).unwrap(), "enabled");

        fs::write(root.path().join(STATE), "disabled\n").unwrap();
        let broken = Displaced { arguments: vec!["-c".into(), "exit 3".into()], ..found };
        assert!(broken.start(root.path()).unwrap_err().contains("before it was enabled"));
    }
}
