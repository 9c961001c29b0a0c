//! The state that an experiment wants of this computer, and how it is had: checked as a whole before anything is changed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use warmcore_topology::{CpuSet, Machine, format_cpu_list};

use super::journal::{Journal, JournalError};

/// Files of schedulers, below the root.
const CACHE_AWARE: &str = "sys/kernel/debug/sched/llc_balancing/enabled";
const SCHED_EXT: &str = "sys/kernel/sched_ext/state";
/// Longest time for a sched_ext scheduler to be enabled, and to be gone.
const ENABLE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// A scheduler of this computer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scheduler {
    /// The kernel's fair class, without cache-aware scheduling if it can be switched off.
    Fair,
    /// The fair class with cache-aware scheduling.
    CacheAware,
    /// A sched_ext scheduler: its program and arguments.
    Program(String, Vec<String>),
}

/// How CPUs are kept from a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// The command and what it starts may run on them only. Everybody else runs anywhere, and nothing is changed.
    Affinity,
    /// All other CPUs are taken offline.
    Offline,
}

/// What an experiment wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// CPUs to run on; all if there is none.
    pub cpus: Option<CpuSet>,
    /// How.
    pub means: Means,
    /// Files of the kernel, as paths from the root without a leading slash, and their values.
    pub settings: Vec<(String, String)>,
}

/// Why it cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// This computer cannot: nothing was changed.
    #[error("{0}")]
    Unable(String),
    /// A change failed; those before it were undone.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The sched_ext scheduler did not come up, or ended.
    #[error("{0}")]
    Ejected(String),
}

impl Wanted {
    /// Whether this computer has what is wanted.
    ///
    /// # Errors
    /// What it lacks.
    pub fn check(&self, machine: &Machine, root: &Path) -> Result<(), StateError> {
        let unable = |reason: String| Err(StateError::Unable(reason));
        match &self.scheduler {
            Scheduler::Fair => {}
            Scheduler::CacheAware if !root.join(CACHE_AWARE).exists() => {
                return unable(format!("this kernel has no cache-aware scheduling: /{CACHE_AWARE} is not there"));
            }
            Scheduler::CacheAware => {}
            Scheduler::Program(program, _) => {
                let Ok(state) = std::fs::read_to_string(root.join(SCHED_EXT)) else {
                    return unable(format!("this kernel has no sched_ext: /{SCHED_EXT} is not there"));
                };
                if state.trim() != "disabled" {
                    return unable(format!(
                        "a sched_ext scheduler is at work ({}); it is not displaced: end it first",
                        state.trim()
                    ));
                }
                if !Path::new(program).is_file() {
                    return unable(format!("there is no program {program}"));
                }
            }
        }
        if let Some(cpus) = &self.cpus {
            if cpus.is_empty() {
                return unable("no CPU is left".into());
            }
            for cpu in self.offline(machine) {
                let os = machine.os_index(cpu);
                if !root.join(online_file(os)).exists() {
                    return unable(format!("CPU {os} cannot be taken offline"));
                }
            }
        }
        self.settings.iter().try_for_each(|(path, value)| check_governor(root, path, value))?;
        let missing = self.settings.iter().find(|(path, _)| !root.join(path).exists());
        missing.map_or(Ok(()), |(path, _)| unable(format!("there is no /{path}")))
    }

    /// Makes it so.
    ///
    /// # Errors
    /// What could not be changed.
    pub fn establish(&self, machine: &Machine, root: &Path, journal: &mut Journal) -> Result<Established, StateError> {
        for cpu in self.offline(machine) {
            journal.set(&online_file(machine.os_index(cpu)), "0")?;
        }
        for (path, value) in &self.settings {
            journal.set(path, value)?;
        }
        let cache_aware = root.join(CACHE_AWARE).exists();
        match &self.scheduler {
            Scheduler::Fair if cache_aware => journal.set(CACHE_AWARE, "0")?,
            Scheduler::CacheAware => journal.set(CACHE_AWARE, "1")?,
            Scheduler::Fair | Scheduler::Program(..) => {}
        }
        let program = match &self.scheduler {
            Scheduler::Program(program, arguments) => Some(Loader::start(program, arguments, root, journal)?),
            _ => None,
        };
        let affinity = match (&self.cpus, self.means) {
            (Some(cpus), Means::Affinity) => Some(format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu)))),
            _ => None,
        };
        Ok(Established { affinity, program })
    }

    /// CPUs that are to be offline.
    fn offline<'a>(&'a self, machine: &'a Machine) -> impl Iterator<Item = warmcore_topology::CpuId> + 'a {
        let cpus = self.cpus.as_ref().filter(|_| self.means == Means::Offline);
        machine.cpus().filter(move |cpu| cpus.is_some_and(|cpus| !cpus.contains(*cpu)))
    }
}

/// Whether a governor is one that this computer's driver has.
fn check_governor(root: &Path, path: &str, governor: &str) -> Result<(), StateError> {
    let Some(policy) = path.strip_suffix("scaling_governor") else { return Ok(()) };
    let Ok(available) = std::fs::read_to_string(root.join(policy).join("scaling_available_governors")) else {
        return Err(StateError::Unable(format!(
            "CPU frequencies are not this kernel's to govern: there is no /{path}"
        )));
    };
    if available.split_whitespace().any(|known| known == governor) {
        return Ok(());
    }
    Err(StateError::Unable(format!("there is no governor `{governor}` here: there are {}", available.trim())))
}

fn online_file(cpu: u32) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/online")
}

/// The state as it is now; a sched_ext scheduler ends with it.
#[derive(Debug)]
pub struct Established {
    /// CPUs to which commands are to be bound, as a list.
    pub affinity: Option<String>,
    program: Option<Loader>,
}

impl Established {
    /// Whether the scheduler still schedules.
    ///
    /// # Errors
    /// If it was ejected or its loader ended.
    pub fn check(&mut self) -> Result<(), StateError> {
        self.program.as_mut().map_or(Ok(()), Loader::check)
    }
}

/// The loader of a sched_ext scheduler.
#[derive(Debug)]
struct Loader {
    child: Child,
    state: PathBuf,
    name: String,
}

impl Loader {
    /// Starts it stopped, so that it is written down before it changes anything.
    fn start(program: &str, arguments: &[String], root: &Path, journal: &mut Journal) -> Result<Self, StateError> {
        let ejected = |reason: String| StateError::Ejected(format!("{program}: {reason}"));
        let child = Command::new("/bin/sh")
            .args(["-c", super::trial::STOPPED_START, "sh", program])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| ejected(error.to_string()))?;
        let mut loader = Self { child, state: root.join(SCHED_EXT), name: program.to_owned() };
        let pid = super::trial::stopped(&loader.child).map_err(ejected)?;
        journal.hold(pid.as_raw_nonzero().get())?;
        super::trial::go_on(pid).map_err(ejected)?;
        let start = Instant::now();
        while loader.state() != "enabled" {
            if let Ok(Some(status)) = loader.child.try_wait() {
                return Err(ejected(format!("it ended ({status}) before it was enabled")));
            }
            if start.elapsed() > ENABLE {
                return Err(ejected(format!("it was not enabled within {} s", ENABLE.as_secs())));
            }
            std::thread::sleep(LOOK);
        }
        Ok(loader)
    }

    fn state(&self) -> String {
        std::fs::read_to_string(&self.state).unwrap_or_default().trim().to_owned()
    }

    fn check(&mut self) -> Result<(), StateError> {
        let state = self.state();
        if state == "enabled" && matches!(self.child.try_wait(), Ok(None)) {
            return Ok(());
        }
        Err(StateError::Ejected(format!("{} schedules no more: sched_ext is {state}", self.name)))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let start = Instant::now();
        while self.state() != "disabled" && start.elapsed() < ENABLE {
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn computer() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for cpu in 1..4 {
            let path = root.path().join(online_file(cpu));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "1\n").unwrap();
        }
        root
    }

    fn wanted(cpus: Option<&[u32]>, means: Means) -> Wanted {
        let cpus = cpus.map(|cpus| cpus.iter().map(|cpu| warmcore_topology::CpuId(*cpu)).collect());
        Wanted { scheduler: Scheduler::Fair, cpus, means, settings: Vec::new() }
    }

    #[test]
    fn other_cpus_are_taken_offline_and_come_back() {
        let (root, kept) = (computer(), tempfile::tempdir().unwrap());
        let machine = warmcore_topology::resolve("1s1n2l2c1t").unwrap();
        let wanted = wanted(Some(&[0, 1]), Means::Offline);
        wanted.check(&machine, root.path()).unwrap();
        let online =
            || (1..4).map(|cpu| fs::read_to_string(root.path().join(online_file(cpu))).unwrap()).collect::<String>();
        let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
        let established = wanted.establish(&machine, root.path(), &mut journal).unwrap();
        assert_eq!((established.affinity.as_deref(), online().as_str()), (None, "1\n00"));
        drop(journal);
        assert_eq!(online(), "1\n11");
    }

    #[test]
    fn an_affinity_changes_nothing_of_the_computer() {
        let (root, kept) = (computer(), tempfile::tempdir().unwrap());
        let machine = warmcore_topology::resolve("1s1n2l2c1t").unwrap();
        let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
        let wanted = wanted(Some(&[2, 3]), Means::Affinity);
        let established = wanted.establish(&machine, root.path(), &mut journal).unwrap();
        assert_eq!(established.affinity.as_deref(), Some("2-3"));
        assert!(journal.undo().is_empty());
    }

    #[test]
    fn what_this_computer_lacks_is_said_before_anything_is_changed() {
        let root = computer();
        let machine = warmcore_topology::resolve("1s1n2l2c1t").unwrap();
        let lacks = |wanted: Wanted| wanted.check(&machine, root.path()).unwrap_err().to_string();
        let fair = || wanted(None, Means::Affinity);
        assert!(lacks(Wanted { scheduler: Scheduler::CacheAware, ..fair() }).contains("no cache-aware scheduling"));
        let program = || Scheduler::Program("/nonexistent/scx".into(), Vec::new());
        assert!(lacks(Wanted { scheduler: program(), ..fair() }).contains("no sched_ext"));
        fs::create_dir_all(root.path().join("sys/kernel/sched_ext")).unwrap();
        fs::write(root.path().join(SCHED_EXT), "enabled\n").unwrap();
        assert!(lacks(Wanted { scheduler: program(), ..fair() }).contains("is not displaced"));
        assert!(lacks(wanted(Some(&[1, 2, 3]), Means::Offline)).contains("CPU 0 cannot be taken offline"));
        let policy = root.path().join("sys/cpufreq");
        fs::create_dir_all(&policy).unwrap();
        let governor = || vec![("sys/cpufreq/scaling_governor".to_owned(), "fastest".to_owned())];
        assert!(lacks(Wanted { settings: governor(), ..fair() }).contains("not this kernel's to govern"));
        fs::write(policy.join("scaling_available_governors"), "performance powersave\n").unwrap();
        assert!(lacks(Wanted { settings: governor(), ..fair() }).contains("there are performance powersave"));
        let settings = vec![("sys/no/such".to_owned(), "1".to_owned())];
        assert!(lacks(Wanted { settings, ..fair() }).contains("there is no /sys/no/such"));
    }
}
