//! The state that an experiment wants of this computer, and how it is had: checked as a whole before anything is changed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use warmcore_agent::plan::Setting;
use warmcore_schedulers::ScxProgram;
use warmcore_topology::{CpuSet, Machine, format_cpu_list};

use super::displaced::{self, Displaced, ENABLE, LOOK};
use super::journal::{self, Journal, JournalError};
use crate::files::find_program;

/// Files, below the root.
const SCHED_EXT: &str = "sys/kernel/sched_ext/state";
const CGROUP: &str = "sys/fs/cgroup";
/// Control group of an experiment.
const GROUP: &str = "sys/fs/cgroup/warmcore";

/// How CPUs are kept from a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// The command and what it starts may run on them only. Everybody else runs anywhere, and nothing is changed.
    #[default]
    Affinity,
    /// The command has them for itself, as a partition of cpusets: scheduling domains end at its border, and everybody else has the others.
    Partition,
    /// All other CPUs are taken offline.
    Offline,
}

/// What an experiment wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// A sched_ext scheduler to load.
    pub program: Option<ScxProgram>,
    /// CPUs to run on; all if there is none.
    pub cpus: Option<CpuSet>,
    /// How.
    pub means: Means,
    /// Files of the kernel and their values, in the order of writing.
    pub settings: Vec<Setting>,
    /// End a sched_ext scheduler of somebody else, and start it again afterwards.
    pub replace: bool,
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
        // Under it the fair class would not be what is measured.
        if displaced::is_at_work(root) {
            if !self.replace {
                return unable(format!(
                    "a sched_ext scheduler is at work ({}), and is not displaced: end it first, or `--on host:replace` ends it for each trial and \
                     starts it again",
                    displaced::state(root).unwrap_or_default()
                ));
            }
            if let Err(reason) = Displaced::find(root) {
                return unable(format!("the sched_ext scheduler that is at work cannot be put back later: {reason}"));
            }
        }
        if let Some(scx) = &self.program {
            if displaced::state(root).is_none() {
                return unable(format!("this kernel has no sched_ext: /{SCHED_EXT} is not there"));
            }
            if !find_program(&scx.program).is_file() {
                return unable(format!("there is no program {}", scx.program));
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
            if self.partitioned(machine).is_some() {
                let controllers = std::fs::read_to_string(root.join(CGROUP).join("cgroup.controllers"));
                if !controllers.is_ok_and(|text| text.split_whitespace().any(|word| word == "cpuset")) {
                    return unable(format!(
                        "there are no cpusets of cgroup 2 below /{CGROUP}: use affinity or offline"
                    ));
                }
            }
        }
        self.settings.iter().try_for_each(|setting| check_governor(root, below(setting), &setting.value))?;
        let missing = self.settings.iter().find(|setting| setting.required && !root.join(below(setting)).exists());
        missing.map_or(Ok(()), |setting| unable(format!("this kernel has no {}", setting.path)))
    }

    /// Makes it so.
    ///
    /// # Errors
    /// What could not be changed.
    pub(crate) fn establish(
        &self,
        machine: &Machine,
        root: &Path,
        journal: &mut Journal,
    ) -> Result<Established, StateError> {
        if self.replace && displaced::is_at_work(root) {
            journal.displace(Displaced::find(root).map_err(StateError::Unable)?)?;
        }
        for cpu in self.offline(machine) {
            journal.set(&online_file(machine.os_index(cpu)), "0")?;
        }
        for setting in self.settings.iter().filter(|setting| root.join(below(setting)).exists()) {
            journal.set(below(setting), &setting.value)?;
        }
        let list = |cpus: &CpuSet| format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu)));
        let group = match self.partitioned(machine) {
            Some(cpus) => {
                journal.set(&format!("{CGROUP}/cgroup.subtree_control"), "+cpuset")?;
                let files = [("cpuset.cpus", list(cpus)), ("cpuset.cpus.partition", "root".to_owned())];
                journal.directory(GROUP, &files.each_ref().map(|(name, value)| (*name, value.as_str())))?;
                Some(root.join(GROUP))
            }
            None => None,
        };
        let program = self.program.as_ref().map(|scx| Loader::start(scx, root, journal)).transpose()?;
        let affinity = match (&self.cpus, self.means) {
            (Some(cpus), Means::Affinity) => cpus.iter().map(|cpu| machine.os_index(cpu)).collect(),
            _ => Vec::new(),
        };
        Ok(Established { bounds: Bounds { affinity, group }, program })
    }

    /// What would be changed of this computer as it is now, in words, a line each; and what would be left as it is.
    pub fn in_words(&self, machine: &Machine, root: &Path) -> Vec<String> {
        let list = |cpus: &mut dyn Iterator<Item = warmcore_topology::CpuId>| {
            format_cpu_list(cpus.map(|cpu| machine.os_index(cpu)))
        };
        let mut lines = Vec::new();
        if self.replace {
            lines.push(match displaced::is_at_work(root) {
                true => "the sched_ext scheduler that is at work is ended, and started again afterwards".to_owned(),
                false => "no sched_ext scheduler is at work, so none is ended".to_owned(),
            });
        }
        if let Some(cpus) = &self.cpus {
            lines.push(match self.means {
                Means::Affinity => format!("the command is bound to CPUs {}", list(&mut cpus.iter())),
                Means::Partition if self.partitioned(machine).is_none() => "all CPUs are not a partition".to_owned(),
                Means::Partition => format!("the command has CPUs {} for itself", list(&mut cpus.iter())),
                Means::Offline if self.offline(machine).next().is_none() => "no CPU is taken offline".to_owned(),
                Means::Offline => format!("CPUs {} are taken offline", list(&mut self.offline(machine))),
            });
        }
        for (position, setting) in self.settings.iter().enumerate() {
            let Setting { path, value, .. } = setting;
            let is_first = !self.settings[..position].iter().any(|before| before.path == *path);
            lines.push(match root.join(below(setting)).try_exists() {
                Ok(true) if is_first && journal::has(root, below(setting), value) => {
                    format!("{path} is {value} already")
                }
                Ok(true) => format!("{path} becomes {value}"),
                Ok(false) => format!("{path} is not there, and nothing is written"),
                Err(error) => format!("{path} is left as it is: {error}"),
            });
        }
        if self.partitioned(machine).is_some() {
            lines.push(format!("/{CGROUP}/cgroup.subtree_control becomes +cpuset, and /{GROUP} is made"));
        }
        lines.extend(self.program.iter().map(|scx| format!("{} is loaded", scx.program)));
        lines
    }

    /// CPUs that are to be offline.
    fn offline<'a>(&'a self, machine: &'a Machine) -> impl Iterator<Item = warmcore_topology::CpuId> + 'a {
        let cpus = self.cpus.as_ref().filter(|_| self.means == Means::Offline);
        machine.cpus().filter(move |cpu| cpus.is_some_and(|cpus| !cpus.contains(*cpu)))
    }

    /// CPUs of a partition. All CPUs are the root's own.
    fn partitioned(&self, machine: &Machine) -> Option<&CpuSet> {
        let cpus = self.cpus.as_ref().filter(|_| self.means == Means::Partition);
        cpus.filter(|cpus| cpus.len() < machine.cpu_count())
    }
}

/// The path of a setting below a root.
fn below(setting: &Setting) -> &str {
    setting.path.trim_start_matches('/')
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

/// What a command is kept within.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// CPUs by the system's numbers; all if there is none.
    pub affinity: Vec<u32>,
    /// Control group.
    pub group: Option<PathBuf>,
}

/// The state as it is now; a sched_ext scheduler ends with it.
#[derive(Debug)]
pub struct Established {
    /// What commands are to be kept within.
    pub bounds: Bounds,
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
    fn start(scx: &ScxProgram, root: &Path, journal: &mut Journal) -> Result<Self, StateError> {
        let program = find_program(&scx.program);
        let ejected = |reason: String| StateError::Ejected(format!("{}: {reason}", scx.program));
        let child = Command::new("/bin/sh")
            .args(["-c", super::trial::STOPPED_START, "sh"])
            .arg(program)
            .args(&scx.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| ejected(error.to_string()))?;
        let mut loader = Self { child, state: root.join(SCHED_EXT), name: scx.program.clone() };
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
        Wanted { program: None, cpus, means, settings: Vec::new(), replace: false }
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
        assert_eq!((established.bounds, online().as_str()), (Bounds::default(), "1\n00"));
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
        assert_eq!(established.bounds, Bounds { affinity: vec![2, 3], group: None });
        assert!(journal.undo().is_empty());
    }

    #[test]
    fn a_dry_run_lists_what_would_be_written_and_names_what_is_not_there() {
        let (root, kept) = (computer(), tempfile::tempdir().unwrap());
        let machine = warmcore_topology::resolve("1s1n2l2c1t").unwrap();
        let value = |name: &str| fs::read_to_string(root.path().join("proc").join(name)).unwrap().trim().to_owned();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        for name in ["numa_balancing", "swappiness"] {
            fs::write(root.path().join("proc").join(name), "1\n").unwrap();
        }
        let setting = |path: &str, value: &str| Setting { path: path.into(), value: value.into(), required: false };
        let settings = vec![
            setting("/sys/llc_balancing/enabled", "0"),
            setting("/proc/numa_balancing", "1"),
            setting("/proc/swappiness", "10"),
            setting("/proc/swappiness", "1"),
        ];
        let wanted_of = |cpus: &[u32], means| Wanted { settings: settings.clone(), ..wanted(Some(cpus), means) };
        let lines = |cpus: &[u32], means| wanted_of(cpus, means).in_words(&machine, root.path());
        let files = [
            "/sys/llc_balancing/enabled is not there, and nothing is written",
            "/proc/numa_balancing is 1 already",
            "/proc/swappiness becomes 10",
            "/proc/swappiness becomes 1",
        ];
        assert_eq!(lines(&[0], Means::Affinity)[1..], files);
        assert_eq!(lines(&[0, 1], Means::Offline)[0], "CPUs 2-3 are taken offline");
        assert_eq!(lines(&[0, 1, 2, 3], Means::Offline)[0], "no CPU is taken offline");
        let partition = "/sys/fs/cgroup/cgroup.subtree_control becomes +cpuset, and /sys/fs/cgroup/warmcore is made";
        assert_eq!(lines(&[0, 1], Means::Partition).last().unwrap(), partition);
        assert_eq!(lines(&[0, 1, 2, 3], Means::Partition)[1..], files, "all CPUs are the root's own");
        let replace = Wanted { replace: true, ..wanted(None, Means::Affinity) };
        assert_eq!(replace.in_words(&machine, root.path()), ["no sched_ext scheduler is at work, so none is ended"]);
        // As it is done.
        let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
        wanted_of(&[0], Means::Affinity).establish(&machine, root.path(), &mut journal).unwrap();
        assert_eq!((value("numa_balancing"), value("swappiness")), ("1".to_owned(), "1".to_owned()));
        let changed: Vec<String> = journal.undo().iter().map(|change| format!("{change:?}")).collect();
        assert!(!changed.is_empty() && changed.iter().all(|change| change.contains("swappiness")), "{changed:?}");
    }

    #[test]
    fn what_this_computer_lacks_is_said_before_anything_is_changed() {
        let root = computer();
        let machine = warmcore_topology::resolve("1s1n2l2c1t").unwrap();
        let lacks = |wanted: Wanted| wanted.check(&machine, root.path()).unwrap_err().to_string();
        let fair = || wanted(None, Means::Affinity);
        let program = || Some(ScxProgram { program: "/nonexistent/scx".into(), arguments: Vec::new() });
        assert!(lacks(Wanted { program: program(), ..fair() }).contains("no sched_ext"));
        fs::create_dir_all(root.path().join("sys/kernel/sched_ext")).unwrap();
        fs::write(root.path().join(SCHED_EXT), "enabled\n").unwrap();
        assert!(lacks(Wanted { program: program(), ..fair() }).contains("is not displaced"));
        assert!(lacks(fair()).contains("is not displaced"), "the fair class is not what schedules");
        assert!(lacks(Wanted { replace: true, ..fair() }).contains("cannot be put back"));
        fs::write(root.path().join(SCHED_EXT), "disabled\n").unwrap();
        assert!(lacks(wanted(Some(&[1, 2, 3]), Means::Offline)).contains("CPU 0 cannot be taken offline"));
        let policy = root.path().join("sys/cpufreq");
        fs::create_dir_all(&policy).unwrap();
        let setting =
            |path: &str, value: &str| vec![Setting { path: path.into(), value: value.into(), required: true }];
        let governor = || setting("/sys/cpufreq/scaling_governor", "fastest");
        assert!(lacks(Wanted { settings: governor(), ..fair() }).contains("not this kernel's to govern"));
        fs::write(policy.join("scaling_available_governors"), "performance powersave\n").unwrap();
        assert!(lacks(Wanted { settings: governor(), ..fair() }).contains("there are performance powersave"));
        let settings = setting("/sys/no/such", "1");
        assert!(lacks(Wanted { settings, ..fair() }).contains("this kernel has no /sys/no/such"));
        assert!(lacks(wanted(Some(&[1, 2]), Means::Partition)).contains("no cpusets of cgroup 2"));
    }
}
