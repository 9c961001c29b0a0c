//! What somebody outside the workload does at given times of a run: binds tasks, sets a tunable of the scheduler, takes a CPU offline and
//! brings it online again.

use std::fmt;

use crate::{Affinity, Workload};

/// How often an action that depends on where tasks have been looks at them before its time, and how far apart the looks are. The first
/// look is the beginning of the window, so it is [`LOOKS`] times [`LOOK_NS`] long, or as long as the run was.
pub const LOOKS: u32 = 10;
/// Nanoseconds between two looks.
pub const LOOK_NS: u64 = 10_000_000;

/// Something done at a time, once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Action {
    /// When, counted from the start of the run.
    pub time_ns: u64,
    /// What.
    pub what: Deed,
}

/// What is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// The tasks of a template or a process that exist at the time may run on these CPUs only (`sched_setaffinity` of each, by another
    /// process).
    Bind {
        /// Name of the template or the process.
        tasks: String,
        /// Where they may run.
        to: Destination,
    },
    /// A tunable of the scheduler gets another value. Which tunables can change in a run is in the scheduler's row.
    Set {
        /// Its name.
        tunable: String,
        /// The value.
        value: u64,
    },
    /// A CPU goes offline or comes online again (a write to `/sys/devices/system/cpu/cpuN/online`).
    Hotplug {
        /// Its number in the operating system.
        cpu: u32,
        /// Whether it comes online.
        online: bool,
    },
}

/// A CPU that goes offline or comes online at a time of the workload's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hotplug {
    /// When, counted from the start of the run.
    pub time_ns: u64,
    /// Its number in the operating system.
    pub cpu: u32,
    /// Whether it comes online; else it goes offline.
    pub online: bool,
}

impl From<Hotplug> for Action {
    fn from(Hotplug { time_ns, cpu, online }: Hotplug) -> Self {
        Self { time_ns, what: Deed::Hotplug { cpu, online } }
    }
}

/// Where tasks are bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// These CPUs.
    Cpus(Affinity),
    /// The LLC in which a template's or a process's tasks used most CPU time in the window before ([`LOOKS`]).
    LlcOf(String),
    /// The NUMA node in which they did.
    NodeOf(String),
}

impl Action {
    /// Times at which tasks are looked at for it before its own time, in order.
    pub fn looks_ns(&self) -> impl Iterator<Item = u64> + use<> {
        let depends = matches!(&self.what, Deed::Bind { to: Destination::LlcOf(_) | Destination::NodeOf(_), .. });
        let time_ns = self.time_ns;
        let looks = if depends { LOOKS } else { 0 };
        (1..=looks).rev().filter_map(move |before| time_ns.checked_sub(u64::from(before) * LOOK_NS))
    }

    /// Names of templates or processes in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (tasks, home) = match &self.what {
            Deed::Bind { tasks, to: Destination::LlcOf(home) | Destination::NodeOf(home) } => (Some(tasks), Some(home)),
            Deed::Bind { tasks, to: Destination::Cpus(_) } => (Some(tasks), None),
            Deed::Set { .. } | Deed::Hotplug { .. } => (None, None),
        };
        tasks.into_iter().chain(home).map(String::as_str)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at {} ms: ", self.time_ns as f64 / 1e6)?;
        match &self.what {
            Deed::Bind { tasks, to: Destination::Cpus(affinity) } => write!(out, "bind `{tasks}` to {affinity}"),
            Deed::Bind { tasks, to: Destination::LlcOf(home) } => write!(out, "bind `{tasks}` to the LLC of `{home}`"),
            Deed::Bind { tasks, to: Destination::NodeOf(home) } => {
                write!(out, "bind `{tasks}` to the node of `{home}`")
            }
            Deed::Set { tunable, value } => write!(out, "set {tunable}={value}"),
            Deed::Hotplug { cpu, online: false } => write!(out, "take cpu{cpu} offline"),
            Deed::Hotplug { cpu, online: true } => write!(out, "bring cpu{cpu} online"),
        }
    }
}

impl Workload {
    /// Indices of the templates that a name stands for: those of this name, and those of a process of this name.
    pub fn templates_called(&self, name: &str) -> Vec<u32> {
        let called = |task: &crate::Task| task.name == name || self.processes[task.process.index()].name == name;
        (0..).zip(&self.tasks).filter(|(_, task)| called(task)).map(|(index, _)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_depends_on_tasks_looks_at_them_and_never_before_the_start() {
        let action =
            |time_ms: u64, to| Action { time_ns: time_ms * 1_000_000, what: Deed::Bind { tasks: "a".into(), to } };
        let looks = |action: Action| action.looks_ns().map(|at| at / 1_000_000).collect::<Vec<_>>();
        assert_eq!(looks(action(300, Destination::Cpus(Affinity::All))), [0; 0]);
        assert_eq!(looks(action(25, Destination::LlcOf("a".into()))), [5, 15]);
        assert_eq!(looks(action(300, Destination::NodeOf("a".into()))), (200..300).step_by(10).collect::<Vec<_>>());
    }
}
