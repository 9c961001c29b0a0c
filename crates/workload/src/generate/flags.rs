//! Flags of generators, with the grammar of `getopt_long`: `-f20`, `-f,20`, `-Tp`, `--fds=20`, `--fds,20`, and long
//! names cut short where that is unambiguous. Commas stand for the spaces of a command line.

use super::GeneratorInfo;
use crate::error::{GeneratorError, GeneratorProblem};
use crate::nearest::suggestion;
use crate::{Affinity, BarrierWait, Options, Task, Workload, parse_duration};

/// A flag of a generator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlagInfo {
    /// Short name, without the dash.
    pub short: Option<char>,
    /// Long name, without the dashes.
    pub long: &'static str,
    /// What its value is, such as `COUNT`; `None` if it takes none.
    pub value: Option<&'static str>,
    /// What it does, and its default.
    pub help: &'static str,
}

impl FlagInfo {
    pub(super) const fn new(
        short: Option<char>,
        long: &'static str,
        value: Option<&'static str>,
        help: &'static str,
    ) -> Self {
        Self { short, long, value, help }
    }
}

/// `-c`: where all tasks may run, as `taskset -c` would say it.
pub(super) const CPUS: FlagInfo =
    FlagInfo::new(Some('c'), "cpus", Some("CPUS"), "CPUs the tasks may use, colons for commas: 0-7:16 (default all)");

/// Flag that the generators whose main thread starts others have in common.
pub(super) const SETUP: FlagInfo = FlagInfo::new(
    None,
    "setup",
    Some("DURATION"),
    "work of the main thread before all begin; the others look out for it for 2 ms, then sleep (default 0: each begins when it is there)",
);

/// How threads of these programs wait for their beginning: actively at first. Verilator's look 50,000 times before they sleep (`VL_LOCK_SPINS`), those of
/// GNU's OpenMP 300,000 times (`GOMP_SPINCOUNT`); a look takes tens of nanoseconds.
pub(super) const SETUP_WAIT: BarrierWait = BarrierWait::SpinThenBlock { spin_ns: 2_000_000 };

/// `--profile`: what the tasks do to memory.
pub(super) const PROFILE: FlagInfo =
    FlagInfo::new(None, "profile", Some("NAME"), "memory profile of the tasks (default: the program's own, or none)");

/// The flags a user gave to a generator. Where a flag is given twice, the last one counts.
pub(super) struct Flags<'a> {
    info: &'static GeneratorInfo,
    given: Vec<Given<'a>>,
    pub(super) options: Options<'a>,
}

struct Given<'a> {
    flag: &'static FlagInfo,
    typed: String,
    value: &'a str,
}

impl<'a> Flags<'a> {
    /// Reads the words after the generator's name.
    pub(super) fn parse(
        info: &'static GeneratorInfo,
        text: &'a str,
        options: Options<'a>,
    ) -> Result<Self, GeneratorError> {
        let mut flags = Self { info, given: Vec::new(), options };
        let mut words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if let Some(long) = word.strip_prefix("--") {
                flags.long(long, &mut words)?;
            } else if let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.is_empty()) {
                flags.short(cluster, &mut words)?;
            } else {
                return Err(flags.error(GeneratorProblem::StrayWord { word: word.to_owned() }));
            }
        }
        Ok(flags)
    }

    fn long(&mut self, word: &'a str, words: &mut impl Iterator<Item = &'a str>) -> Result<(), GeneratorError> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let exact = self.info.flags.iter().find(|flag| flag.long == name);
        let mut begun = self.info.flags.iter().filter(|flag| !name.is_empty() && flag.long.starts_with(name));
        let flag = match (exact, begun.next(), begun.next()) {
            (Some(flag), _, _) | (None, Some(flag), None) => flag,
            _ => return Err(self.unknown(format!("--{name}"))),
        };
        let typed = format!("--{name}");
        let value = match (flag.value, value) {
            (None, Some(value)) => {
                return Err(self.error(GeneratorProblem::UnexpectedValue { flag: typed, value: value.to_owned() }));
            }
            (None, None) => "",
            (Some(_), Some(value)) => value,
            (Some(expected), None) => words.next().ok_or_else(|| self.no_value(&typed, expected))?,
        };
        self.given.push(Given { flag, typed, value });
        Ok(())
    }

    fn short(&mut self, cluster: &'a str, words: &mut impl Iterator<Item = &'a str>) -> Result<(), GeneratorError> {
        for (position, name) in cluster.char_indices() {
            let typed = format!("-{name}");
            let Some(flag) = self.info.flags.iter().find(|flag| flag.short == Some(name)) else {
                return Err(self.unknown(typed));
            };
            let Some(expected) = flag.value else {
                self.given.push(Given { flag, typed, value: "" });
                continue;
            };
            let rest = &cluster[position + name.len_utf8()..];
            let value = match rest {
                "" => words.next().ok_or_else(|| self.no_value(&typed, expected))?,
                _ => rest,
            };
            self.given.push(Given { flag, typed, value });
            break;
        }
        Ok(())
    }

    fn unknown(&self, flag: String) -> GeneratorError {
        let known: Vec<String> = self
            .info
            .flags
            .iter()
            .flat_map(|flag| {
                flag.short.map(|short| format!("-{short}")).into_iter().chain([format!("--{}", flag.long)])
            })
            .collect();
        let suggestion = suggestion(&flag, known.iter().map(String::as_str));
        self.error(GeneratorProblem::UnknownFlag { flag, suggestion })
    }

    fn no_value(&self, flag: &str, expected: &str) -> GeneratorError {
        self.error(GeneratorProblem::NoValue { flag: flag.to_owned(), expected: expected.to_owned() })
    }

    pub(super) fn error(&self, problem: GeneratorProblem) -> GeneratorError {
        GeneratorError { generator: self.info.name, problem, usage: self.info.usage }
    }

    fn last(&self, long: &str) -> Option<&Given<'a>> {
        self.given.iter().rev().find(|given| given.flag.long == long)
    }

    /// Whether the flag was given.
    pub(super) fn is_set(&self, long: &str) -> bool {
        self.last(long).is_some()
    }

    /// All flags but this one, each as a word of its own.
    pub(super) fn typed_without(&self, long: &str) -> Vec<String> {
        let word = |given: &Given<'_>| {
            let joint = if given.flag.value.is_some() && given.typed.starts_with("--") { "=" } else { "" };
            format!("{}{joint}{}", given.typed, given.value)
        };
        self.given.iter().filter(|given| given.flag.long != long).map(word).collect()
    }

    /// The value of a flag as typed.
    pub(super) fn text(&self, long: &str) -> Option<&'a str> {
        self.last(long).map(|given| given.value)
    }

    /// An error about the value of a flag.
    pub(super) fn bad_value(&self, long: &str, expected: impl Into<String>) -> GeneratorError {
        let (flag, value) = match self.last(long) {
            Some(given) => (given.typed.clone(), given.value.to_owned()),
            None => (format!("--{long}"), String::new()),
        };
        self.error(GeneratorProblem::BadValue { flag, value, expected: expected.into() })
    }

    /// A whole number in a range, or the default.
    pub(super) fn number(&self, long: &str, default: u64, least: u64, most: u64) -> Result<u64, GeneratorError> {
        let Some(given) = self.last(long) else { return Ok(default) };
        match given.value.parse::<u64>() {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            _ => Err(self.bad_value(long, format!("a whole number {least} to {most}"))),
        }
    }

    /// A number of tasks, pairs, stages or the like: at least 1, at most `most`.
    pub(super) fn count(&self, long: &str, default: u32, most: u32) -> Result<u32, GeneratorError> {
        Ok(self.number(long, default.into(), 1, most.into())? as u32)
    }

    /// A duration with its unit, or the default.
    pub(super) fn duration(&self, long: &str, default_ns: u64) -> Result<u64, GeneratorError> {
        let Some(given) = self.last(long) else { return Ok(default_ns) };
        parse_duration(given.value)
            .map_err(|error| self.error(GeneratorProblem::BadDuration { flag: given.typed.clone(), error }))
    }

    /// How long the run is: a duration longer than 0 with its unit, or the default.
    pub(super) fn run_length(&self, long: &str, default_ns: u64) -> Result<u64, GeneratorError> {
        match self.duration(long, default_ns)? {
            0 => Err(self.bad_value(long, "longer than 0")),
            length => Ok(length),
        }
    }

    /// A duration as the imitated program takes it, a bare number of `unit_ns`; or with a unit.
    pub(super) fn duration_or_number(&self, long: &str, default_ns: u64, unit_ns: u64) -> Result<u64, GeneratorError> {
        let Some(given) = self.last(long) else { return Ok(default_ns) };
        match given.value.parse::<u64>() {
            Ok(value) if value <= crate::MAX_DURATION_NS / unit_ns => Ok(value * unit_ns),
            Ok(_) => Err(self.bad_value(long, "shorter than 36 years")),
            Err(_) => self.duration(long, default_ns),
        }
    }

    /// A list of CPUs with colons for commas, `0-3:8`; empty if the flag was not given.
    pub(super) fn cpu_list(&self, long: &str) -> Result<Vec<u32>, GeneratorError> {
        let Some(text) = self.text(long) else { return Ok(Vec::new()) };
        let list = warmcore_topology::parse_cpu_list(&text.replace(':', ",")).unwrap_or_default();
        let list: Vec<u32> = list.into_iter().collect();
        if list.is_empty() {
            return Err(self.bad_value(long, "a list of CPUs, such as 0-3:8"));
        }
        Ok(list)
    }

    /// Gives all tasks the CPUs of [`CPUS`] and the profile of [`PROFILE`].
    pub(super) fn place_and_profile(&self, workload: &mut Workload) -> Result<(), GeneratorError> {
        let cpus = self.cpu_list(CPUS.long)?;
        let adjust = |task: &mut Task| {
            if !cpus.is_empty() {
                task.affinity = Affinity::OsCpus(cpus.clone());
            }
            if let Some(profile) = self.text(PROFILE.long) {
                task.profile = Some(profile.to_owned());
            }
        };
        workload.tasks.iter_mut().for_each(adjust);
        Ok(())
    }

    /// A percentage 0 to 100, with or without the sign.
    pub(super) fn percent(&self, long: &str) -> Result<u64, GeneratorError> {
        let Some(given) = self.last(long) else { return Ok(0) };
        match given.value.strip_suffix('%').unwrap_or(given.value).parse::<u64>() {
            Ok(value) if value <= 100 => Ok(value),
            _ => Err(self.bad_value(long, "a whole percentage, 0% to 100%")),
        }
    }
}
