//! `scx:PROGRAM`: a sched_ext scheduler as a program with its arguments, and the kernel that it runs in.
//!
//! What a program does is its own. Settings stand before it: how its loader goes on, and those of the kernel, as under every scheduler.

use crate::registry::{LinuxScheduler, SchedulerInfo};
use crate::scx_native;
use crate::spec::SchedulerSpec;
use crate::tunables::{TunableSet, tunables};

/// The row behind `scx:PROGRAM`, which the simulator runs in a process of its own (crate `places`).
pub(crate) static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: "scx",
    summary: "a sched_ext program: scx:PROGRAM ARGUMENTS",
    source: "the program",
    sets: &[ScxTunables::TABLE],
    linux: Some(LinuxScheduler::Fair),
    no_hotplug: None,
    register_decisions: scx_native::SCHEDULER.register_decisions,
    ..SchedulerInfo::PLAIN
};

tunables! {
    /// Tunables of `scx:PROGRAM`.
    pub struct ScxTunables {
        /// Its loader goes on in simulated time with threads that take CPU time, is ended when its scheduler is attached, or goes on and takes none.
        loader: choice "live" of ["live", "ended", "free"],
    }
}

/// A sched_ext scheduler as a program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScxProgram {
    /// Path of the program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// How the name of an object that clang made ends. `scx:x.bpf.o` is short for its [`LOADER`] with it as an argument.
const OBJECT: &str = ".bpf.o";
/// The program that loads an object (`bpf/`).
const LOADER: &str = "scx_load";

impl ScxProgram {
    /// A program, or an object with the loader that it needs.
    pub(crate) fn new(first: String, rest: impl Iterator<Item = String>) -> Self {
        if first.ends_with(OBJECT) {
            return Self { program: LOADER.to_owned(), arguments: std::iter::once(first).chain(rest).collect() };
        }
        Self { program: first, arguments: rest.collect() }
    }

    /// What is typed for it, word by word.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        let is_object = self.program == LOADER && self.arguments.first().is_some_and(|first| first.ends_with(OBJECT));
        let loader = (!is_object).then_some(self.program.as_str());
        loader.into_iter().chain(self.arguments.iter().map(String::as_str))
    }

    /// The setting that stands right behind the program's name, where other schedulers have theirs: it would be a part of the name.
    pub(crate) fn setting_behind(&self) -> Option<(&str, &str)> {
        let word = self.words().next()?;
        let at = word.find([':', ','])?;
        let (name, setting) = (&word[..at], &word[at + 1..]);
        let tunable = setting.split_once('=')?.0;
        SCHEDULER.tunables().any(|known| known.name == tunable).then_some((name, setting))
    }
}

/// Whether a word before a program has settings. A program whose name looks so can be given with a slash.
pub(crate) fn is_settings(word: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

impl SchedulerSpec {
    /// Whether a program's loader is ended when its scheduler is attached.
    #[must_use]
    pub fn ends_loader(&self) -> bool {
        self.program().is_some() && self.tunables::<ScxTunables>().loader == 1
    }

    /// Whether a program's loader goes on and its threads are tasks of the run.
    #[must_use]
    pub fn runs_loader(&self) -> bool {
        self.program().is_some() && self.tunables::<ScxTunables>().loader == 0
    }
}

#[cfg(test)]
mod tests {
    use warmcore_kernel::{KernelParameters, Ticks};

    use super::*;
    use crate::spec::SpecError;
    use crate::tunables::TunableError;

    fn parsed(text: &str) -> SchedulerSpec {
        SchedulerSpec::parse(text).unwrap()
    }

    #[test]
    fn a_program_runs_in_the_kernel_that_the_settings_before_it_say() {
        let spec = parsed("scx:hz=1000,ticks=together bin/scx_own --slice 5");
        assert_eq!(spec.kernel(), KernelParameters { hz: 1000, ticks: Ticks::Together, ..KernelParameters::default() });
        let program = ScxProgram { program: "bin/scx_own".into(), arguments: vec!["--slice".into(), "5".into()] };
        assert_eq!((spec.program(), spec.ends_loader()), (Some(&program), false));
        let both = parsed("scx:hz=1000 loader=ended scx_own");
        assert_eq!((both.to_string().as_str(), both.ends_loader()), ("scx:loader=ended,hz=1000 scx_own", true));
        assert_eq!(parsed("scx:scx_own").kernel(), KernelParameters::default());
    }

    #[test]
    fn an_object_is_an_argument_of_its_loader() {
        let loader = ScxProgram { program: LOADER.into(), arguments: vec!["own/front.bpf.o".into()] };
        assert_eq!(parsed("scx:own/front.bpf.o").program(), Some(&loader));
    }

    #[test]
    fn settings_that_a_program_would_get_or_that_there_are_none_of_are_refused() {
        let error = |text: &str| SchedulerSpec::parse(text).unwrap_err();
        for text in ["scx:front:hz=1000", "scx:front,hz=1000", "scx:front.bpf.o:hz=1000 -v"] {
            assert!(error(text).to_string().contains("write `scx:hz=1000 front"), "{text}: {}", error(text));
        }
        assert!(matches!(error("scx:hz=1000,hz=250 front"), SpecError::Twice { name: "hz", .. }));
        assert!(matches!(error("scx:hz=1000 hz=250 front"), SpecError::Twice { name: "hz", .. }));
        assert!(matches!(error("scx:hertz=9 front"), SpecError::Tunable(TunableError::Unknown { .. })));
        assert!(matches!(error("scx:hz=9 front"), SpecError::Tunable(TunableError::Value { .. })));
        assert!(matches!(error("scx:hz=1000,x front"), SpecError::Setting { .. }));
        assert_eq!(error("scx:hz=1000"), SpecError::NoProgram);
        assert_eq!(parsed("scx:./a=b").program().unwrap().program, "./a=b", "a path is none");
    }
}
