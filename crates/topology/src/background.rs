//! What runs beside any workload: threads of the kernel's own and interrupts, how often, for how long and where they come; and the programs'
//! launchers.
//!
//! Data, not mechanism: the simulated kernel wakes such threads and charges what they take. Every thread and interrupt says what its numbers rest
//! on. Intervals and turns are given as values that are equally likely, which is how a measured distribution is carried over: bins of
//! equally many samples, each with its mean, so that the mean stays exact. Not here: threads of real-time classes (the stopper, the
//! watchdog), what a thread does to others when it has run, interrupts that machines have as costs (ticks, timers, requests to other CPUs).

use std::collections::BTreeSet;
use std::fmt;

use crate::nearest::nearest;
use crate::{Error, Machine, Origin, Result, format_cpu_list};

include!(concat!(env!("OUT_DIR"), "/background_files.rs"));

/// The name of a machine without kernel threads.
pub const NO_BACKGROUND: &str = "none";

/// Longest interval between two wakeups of a thread, or two interrupts.
pub(crate) const MAX_INTERVAL_NS: u64 = 3_600_000_000_000;
/// Longest turn of a thread, or time of an interrupt.
pub(crate) const MAX_RUN_NS: u64 = 1_000_000_000;

/// The threads and interrupts that a kernel has of its own; none by default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Background {
    /// Short name: that of a shipped file, or what a file says.
    pub name: String,
    /// One line for lists; may be empty.
    pub summary: String,
    /// Launchers, the main threads that create a workload's tasks, are tasks too, as in real programs. Without it tasks appear when it is their
    /// time.
    pub launchers: bool,
    /// The threads.
    pub threads: Vec<KernelThread>,
    /// The interrupts.
    pub interrupts: Vec<Interrupt>,
}

/// A thread of the kernel, or one for each CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelThread {
    /// Its name as the kernel gives it (`comm`). One of each CPU has the CPU's number behind a slash.
    pub name: String,
    /// Where it may run.
    pub place: ThreadPlace,
    /// Nice value, −20 to 19.
    pub nice: i8,
    /// When it is woken.
    pub wakes: Wakes,
    /// Woken because a task of the workload exited, instead of for ever: its intervals follow each other in their order, the first of them from the
    /// exit. One of each CPU is woken by exits there. An exit in the meantime has them follow once more.
    pub after_exit: bool,
    /// Woken at a tick, as by a timer that counts jiffies; otherwise at any time.
    pub at_tick: bool,
    /// Its timer does not bring a CPU out of idle (`TIMER_DEFERRABLE`): it waits for the first tick of a busy CPU.
    pub deferrable: bool,
    /// Time on its CPU after a wakeup, in ns: equally likely values.
    pub run_ns: Vec<u64>,
    /// What the numbers rest on.
    pub origin: Origin,
}

/// An interrupt that devices or other CPUs cause, or one for each CPU. It takes time from whatever runs there, and switches nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interrupt {
    /// Its name, as the kernel gives it (`/proc/interrupts`).
    pub name: String,
    /// Where it arrives. One that may arrive on several CPUs has one of them for a whole run, as a device's vector has.
    pub place: ThreadPlace,
    /// When it arrives.
    pub arrives: Wakes,
    /// From its handler's entry to the end of the softirqs on its return, in ns: equally likely values.
    pub run_ns: Vec<u64>,
    /// What the numbers rest on.
    pub origin: Origin,
}

/// Where a kernel thread may run, or an interrupt may arrive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThreadPlace {
    /// One on each CPU, bound to it.
    EachCpu,
    /// One, anywhere.
    AnyCpu,
    /// One, on these CPUs, in the operating system's numbers.
    Cpus(BTreeSet<u32>),
}

impl fmt::Display for ThreadPlace {
    /// As files have it: `each-cpu`, `any`, or a list of CPUs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EachCpu => f.write_str("each-cpu"),
            Self::AnyCpu => f.write_str("any"),
            Self::Cpus(cpus) => f.write_str(&format_cpu_list(cpus.iter().copied())),
        }
    }
}

/// When a kernel thread is woken or an interrupt arrives, counted from one time to the next. The first comes after a random part of an interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wakes {
    /// After intervals of these lengths in ns, equally likely; a single one is a period.
    Intervals(Vec<u64>),
    /// At random, so many ns apart on average (a Poisson process).
    Random {
        /// The mean interval.
        mean_ns: u64,
    },
}

impl Wakes {
    /// Mean interval in ns.
    pub fn mean_ns(&self) -> u64 {
        match self {
            Self::Intervals(values) => mean(values),
            Self::Random { mean_ns } => *mean_ns,
        }
    }
}

impl KernelThread {
    /// Mean time on a CPU after a wakeup, in ns.
    pub fn mean_run_ns(&self) -> u64 {
        mean(&self.run_ns)
    }
}

/// Of at least one value; sums of what files may hold fit.
fn mean(values: &[u64]) -> u64 {
    values.iter().sum::<u64>() / values.len().max(1) as u64
}

/// One line about a background that comes with the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackgroundSummary {
    /// Its name.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// Its file, as shipped.
    pub text: &'static str,
}

/// The backgrounds that come with the program, by name.
///
/// # Errors
/// When a shipped file cannot be read, which a test excludes.
pub fn backgrounds() -> Result<Vec<BackgroundSummary>> {
    let summary = |(name, text): &(&str, &'static str)| {
        let background = crate::background_from_toml(text).map_err(|error| error.in_file(file_of(name)))?;
        Ok(BackgroundSummary { name: (*name).to_owned(), summary: background.summary, text })
    };
    BACKGROUND_FILES.iter().map(summary).collect()
}

fn file_of(name: &str) -> String {
    format!("machines/background/{name}.toml")
}

impl Background {
    /// The same with launchers beside it.
    #[must_use]
    pub fn with_launchers(mut self) -> Self {
        if !self.launchers {
            self.name.push_str(" with launchers");
            self.launchers = true;
        }
        self
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.interrupts.is_empty() && !self.launchers
    }

    /// One that comes with the program, by its name; [`NO_BACKGROUND`] for none.
    ///
    /// # Errors
    /// [`Error::UnknownBackground`] with the nearest name.
    pub fn named(name: &str) -> Result<Self> {
        if name == NO_BACKGROUND {
            return Ok(Self::default());
        }
        if let Some((_, text)) = BACKGROUND_FILES.iter().find(|(known, _)| *known == name) {
            return crate::background_from_toml(text).map_err(|error| error.in_file(file_of(name)));
        }
        let names = || BACKGROUND_FILES.iter().map(|(name, _)| *name).chain([NO_BACKGROUND]);
        let hint = match nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}, or a file such as ./mine.toml", names().collect::<Vec<_>>().join(", ")),
        };
        Err(Error::UnknownBackground { name: name.to_owned(), hint })
    }

    /// Checks what each thread and each interrupt says of itself.
    ///
    /// # Errors
    /// The first that cannot be, threads before interrupts, with the reason.
    pub(crate) fn check(&self) -> Result<(), (usize, String)> {
        let threads = self
            .threads
            .iter()
            .map(|thread| thread.check().map_err(|reason| format!("thread `{}`: {reason}", thread.name)));
        let interrupts = self
            .interrupts
            .iter()
            .map(|interrupt| interrupt.check().map_err(|reason| format!("interrupt `{}`: {reason}", interrupt.name)));
        threads.chain(interrupts).enumerate().try_for_each(|(index, checked)| checked.map_err(|reason| (index, reason)))
    }

    /// Name and place of all that is in it.
    fn places(&self) -> impl Iterator<Item = (&'static str, &str, &ThreadPlace)> {
        let threads = self.threads.iter().map(|thread| ("thread", thread.name.as_str(), &thread.place));
        threads.chain(self.interrupts.iter().map(|own| ("interrupt", own.name.as_str(), &own.place)))
    }
}

impl KernelThread {
    fn check(&self) -> Result<(), String> {
        check_name(&self.name, 15)?;
        if !(-20..=19).contains(&self.nice) {
            return Err(format!("nice {} is not -20 to 19", self.nice));
        }
        if self.after_exit && !matches!(self.wakes, Wakes::Intervals(_)) {
            return Err(
                "`after_exit` needs `interval_us`: the times from an exit to a wakeup, and on to the next".to_owned()
            );
        }
        check_load(&self.place, &self.wakes, &self.run_ns)
    }
}

impl Interrupt {
    /// Mean time that one takes, in ns.
    pub fn mean_run_ns(&self) -> u64 {
        mean(&self.run_ns)
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name, 63)?;
        check_load(&self.place, &self.arrives, &self.run_ns)
    }
}

/// A name that fits where the kernel keeps it.
fn check_name(name: &str, most: usize) -> Result<(), String> {
    if name.is_empty() || name.len() > most || name.chars().any(char::is_control) {
        return Err(format!("a name has 1 to {most} bytes and no control characters, as the kernel keeps it"));
    }
    Ok(())
}

/// Times that can be, and a CPU that has time for something else.
fn check_load(place: &ThreadPlace, wakes: &Wakes, run_ns: &[u64]) -> Result<(), String> {
    let intervals = match wakes {
        Wakes::Intervals(values) => values.as_slice(),
        Wakes::Random { mean_ns } => std::slice::from_ref(mean_ns),
    };
    for (values, what, most) in [(intervals, "interval", MAX_INTERVAL_NS), (run_ns, "run", MAX_RUN_NS)] {
        if values.is_empty() {
            return Err(format!("its list of {what}s is empty"));
        }
        if let Some(value) = values.iter().find(|value| **value == 0 || **value > most) {
            let article = if what == "run" { "a" } else { "an" };
            return Err(format!("{article} {what} of {value} ns is not 1 to {most} ns"));
        }
    }
    if matches!(place, ThreadPlace::Cpus(cpus) if cpus.is_empty()) {
        return Err("its list of CPUs is empty".to_owned());
    }
    let (run, interval) = (mean(run_ns), wakes.mean_ns());
    if run >= interval {
        return Err(format!("it runs {run} ns every {interval} ns on average, so it would never be done"));
    }
    Ok(())
}

impl Machine {
    /// The kernel threads and interrupts that take time on it beside any workload; none unless it was given some.
    pub fn background(&self) -> &Background {
        &self.background
    }

    /// The same machine with this background instead of the one that it had.
    ///
    /// # Errors
    /// [`Error::Impossible`] for a thread or interrupt that cannot be, and for CPUs that the machine does not have.
    pub fn with_background(mut self, background: Background) -> Result<Self> {
        let impossible = |reason: String, hint: String| Error::Impossible { machine: self.name.clone(), reason, hint };
        background.check().map_err(|(_, reason)| impossible(reason, String::new()))?;
        for (what, name, place) in background.places() {
            let ThreadPlace::Cpus(cpus) = place else { continue };
            if let Some(missing) = cpus.iter().find(|cpu| self.cpu_by_os_index(**cpu).is_none()) {
                let online = crate::format_cpu_list(self.cpus().map(|cpu| self.os_index(cpu)));
                return Err(impossible(
                    format!("background {what} `{name}` is to run on CPU {missing}, which is not there"),
                    format!("its online CPUs are {online}; `on = \"each-cpu\"` or \"any\" fits every machine"),
                ));
            }
        }
        self.background = background;
        Ok(self)
    }
}
