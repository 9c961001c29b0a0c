//! Schedulers by name, with settings: `eevdf:base_slice_ns=3000000,hz=1000`.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use thiserror::Error;
use warmcore_kernel::{Governor, KernelParameters, Setup, SimulationError};
use warmcore_topology::nearest;
use warmcore_trace::{DecisionKind, DecisionTable, Outcome, RunTables, Sink};

use crate::circumstances::{Circumstances, SEPARATOR, WORDS};
use crate::fair::cfs::{LATENCY_NS, MIN_GRANULARITY_NS, WAKEUP_GRANULARITY_NS};
use crate::fair::eevdf::{BASE_SLICE_NS, scaling_factor};
use crate::kernel_tunables::KernelTunables;
use crate::registry::{Floor, SchedulerInfo, list};
use crate::scx_program::{self, ScxProgram, is_settings};
use crate::tunables::{Scale, TunableError, TunableSet};

/// A scheduler with its settings.
#[derive(Clone, Debug)]
pub struct SchedulerSpec {
    info: &'static SchedulerInfo,
    /// Values of its tunables, in the order of [`SchedulerInfo::tunables`].
    values: Vec<u64>,
    /// The program, if it is one.
    program: Option<ScxProgram>,
    circumstances: Circumstances,
}

/// A scheduler was not understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)] // messages have the fields
pub enum SpecError {
    /// No such scheduler.
    #[error("there is no scheduler `{name}`{}", hint(.nearest))]
    Unknown { name: String, nearest: Option<&'static str> },
    /// A setting is not `name=value`.
    #[error("`{setting}` in `{spec}` is not a setting of the form name=value")]
    Setting { setting: String, spec: String },
    /// A tunable is set more than once.
    #[error("`{name}` is set twice in `{spec}`: give it one value")]
    Twice { name: &'static str, spec: String },
    /// A tunable that another one leaves no room for.
    #[error(
        "`{name}={value}` does not go with `{of}` in `{spec}`: the least value is {least} there, which is the default"
    )]
    TooLittle {
        name: &'static str,
        /// Value that was asked for.
        value: u64,
        least: u64,
        /// The setting that leaves no room.
        of: String,
        spec: String,
    },
    /// What stands behind ` @ ` is none of the circumstances.
    #[error("`{word}` in `{spec}` is not a circumstance, or is there twice: there are {WORDS}")]
    Circumstance { word: String, spec: String },
    /// `scx:` without a program.
    #[error("`scx:` needs the path of a program, as in `scx:/usr/bin/scx_lavd --performance`")]
    NoProgram,
    /// A setting stands behind a program, which would take it for its own.
    #[error("`{setting}` in `{spec}` comes after the program: write `scx:{setting} {program}`")]
    Behind { setting: String, spec: String, program: String },
    /// A tunable could not be set.
    #[error(transparent)]
    Tunable(#[from] TunableError),
}

/// The scheduler of whose words, and "scheduling", a text is the initials: `cas` is cache-aware scheduling.
fn by_initials(text: &str) -> Option<&'static str> {
    let initials = |name: &str| name.split('-').filter_map(|word| word.chars().next()).collect::<String>() + "s";
    list()
        .iter()
        .map(|info| info.name)
        .filter(|name| name.contains('-'))
        .find(|name| initials(name) == text.to_lowercase())
}

fn hint(nearest: &Option<&'static str>) -> String {
    let known = list().iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
    match nearest {
        Some(name) => format!("; did you mean `{name}`? (there are {known})"),
        None => format!("; there are {known}"),
    }
}

impl SchedulerSpec {
    /// The scheduler with the settings it has by itself.
    #[must_use]
    pub fn new(info: &'static SchedulerInfo) -> Self {
        let values = info.tunables().map(|tunable| tunable.default).collect();
        Self { info, values, program: None, circumstances: Circumstances::default() }
    }

    /// Parses `name`, `name:tunable=value,tunable=value` or `scx:PROGRAM ARGUMENTS`, each with ` @ ` and circumstances behind it or not;
    /// settings stand before a program, as in `scx:hz=1000,loader=ended PROGRAM ARGUMENTS`. `scx:FILE.bpf.o` is an object, which `scx_load` loads.
    ///
    /// # Errors
    /// When the scheduler, a tunable or a circumstance is unknown, a tunable is set twice, or a value is out of range.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        // A program's path and arguments may have the sign in them.
        let sign = if text.trim_start().starts_with("scx:") { SEPARATOR } else { SEPARATOR.trim() };
        let Some((own, behind)) = text.split_once(sign) else { return Self::parse_scheduler(text) };
        let circumstances =
            Circumstances::parse(behind).map_err(|word| SpecError::Circumstance { word, spec: text.to_owned() })?;
        Ok(Self { circumstances, ..Self::parse_scheduler(own)? })
    }

    fn parse_scheduler(text: &str) -> Result<Self, SpecError> {
        if let Some(command) = text.trim().strip_prefix("scx:") {
            return Self::parse_program(command, text);
        }
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim();
        let Some(info) = list().iter().find(|info| info.name == name) else {
            let nearest = by_initials(name).or_else(|| nearest(name, list().iter().map(|info| info.name)));
            return Err(SpecError::Unknown { name: name.to_owned(), nearest });
        };
        let mut spec = Self::new(info);
        let mut seen = Vec::new();
        spec.set_each(settings, &mut seen, text)?;
        spec.check_floors(&seen, text)?;
        Ok(spec)
    }

    fn parse_program(command: &str, text: &str) -> Result<Self, SpecError> {
        let mut spec = Self::new(&scx_program::SCHEDULER);
        let mut words = command.split_whitespace().peekable();
        let mut seen = Vec::new();
        while let Some(settings) = words.next_if(|word| is_settings(word)) {
            spec.set_each(settings, &mut seen, text)?;
        }
        let first = words.next().ok_or(SpecError::NoProgram)?.to_owned();
        let program = ScxProgram::new(first, words.map(str::to_owned));
        if let Some((name, setting)) = program.setting_behind() {
            let (setting, program) = (setting.to_owned(), name.to_owned());
            return Err(SpecError::Behind { setting, spec: text.to_owned(), program });
        }
        // Alone it stands before circumstances, wherever a text is read again.
        if program.arguments.iter().any(|argument| argument == SEPARATOR.trim()) {
            return Err(SpecError::Circumstance { word: SEPARATOR.trim().to_owned(), spec: text.to_owned() });
        }
        Ok(Self { program: Some(program), ..spec })
    }

    /// Sets what stands between commas, each name once.
    fn set_each(&mut self, settings: &str, seen: &mut Vec<&'static str>, text: &str) -> Result<(), SpecError> {
        for setting in settings.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(SpecError::Setting { setting: setting.to_owned(), spec: text.to_owned() });
            };
            let name = self.set(key.trim(), value.trim())?;
            if seen.contains(&name) {
                return Err(SpecError::Twice { name, spec: text.to_owned() });
            }
            seen.push(name);
        }
        Ok(())
    }

    /// Checks the tunables that a text sets against the least that another setting allows.
    fn check_floors(&self, set: &[&'static str], text: &str) -> Result<(), SpecError> {
        let values = self.resolved();
        for floor in self.floors().filter(|floor| set.contains(&floor.name)) {
            let (name, least) = (floor.name, floor.least);
            if let Some(&(_, value)) = values.iter().find(|(other, value)| *other == name && *value < least) {
                let of = floor.setting(self.info);
                return Err(SpecError::TooLittle { name, value, least, of, spec: text.to_owned() });
            }
        }
        Ok(())
    }

    /// The least values that hold with the settings in force.
    fn floors(&self) -> impl Iterator<Item = &'static Floor> {
        let values = self.resolved();
        self.info.floors.iter().filter(move |floor| values.contains(&floor.when))
    }

    /// Sets a tunable and returns its name.
    ///
    /// # Errors
    /// When the scheduler has no such tunable or the value is out of range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<&'static str, TunableError> {
        let Some((position, tunable)) = self.info.tunables().enumerate().find(|(_, tunable)| tunable.name == name)
        else {
            return Err(self.unknown(name));
        };
        self.values[position] = tunable.parse(value)?;
        Ok(tunable.name)
    }

    /// Checks that a tunable can get this value while tasks run.
    ///
    /// # Errors
    /// When the scheduler has no such tunable, it is fixed when the kernel starts, or the value is out of range.
    pub fn check_change(&self, name: &str, value: u64) -> Result<(), TunableError> {
        let found = self.info.tunables().find(|tunable| tunable.name == name);
        let tunable = found.ok_or_else(|| self.unknown(name))?;
        let name = tunable.name;
        if !self.info.changeable.contains(&name) {
            return Err(TunableError::Fixed { scheduler: self.info.name, name, changeable: self.info.changeable });
        }
        let by_ratio = tunable.kind.numbers().is_some_and(|numbers| numbers.scale == Scale::Logarithmic);
        if value == 0 && tunable.default == 0 && by_ratio {
            return Err(TunableError::Automatic { name });
        }
        tunable.parse(&value.to_string()).map(|_| ())
    }

    fn unknown(&self, name: &str) -> TunableError {
        let has_it = |info: &&&SchedulerInfo| info.tunables().any(|tunable| tunable.name == name);
        TunableError::Unknown {
            scheduler: self.info.name,
            name: name.to_owned(),
            nearest: nearest(name, self.info.tunables().map(|tunable| tunable.name)),
            elsewhere: list().iter().filter(has_it).map(|info| info.name).collect(),
        }
    }

    /// What the scheduler is.
    #[must_use]
    pub fn info(&self) -> &'static SchedulerInfo {
        self.info
    }

    /// Name of the scheduler.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// The sched_ext program, if it is one.
    #[must_use]
    pub fn program(&self) -> Option<&ScxProgram> {
        self.program.as_ref()
    }

    /// Under which circumstances it runs.
    #[must_use]
    pub fn circumstances(&self) -> &Circumstances {
        &self.circumstances
    }

    /// The same scheduler under these circumstances.
    #[must_use]
    pub fn under(&self, circumstances: Circumstances) -> Self {
        Self { circumstances, ..self.clone() }
    }

    /// Whether the simulator can run it.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.info.simulate.is_some()
    }

    /// Values of all tunables, those that another setting gives a least value to raised to that.
    fn in_force(&self) -> Vec<u64> {
        let mut values = self.values.clone();
        for floor in self.floors() {
            let named = self.info.tunables().zip(&mut values).filter(|(tunable, _)| tunable.name == floor.name);
            named.for_each(|(_, value)| *value = floor.least.max(*value));
        }
        values
    }

    /// One of its sets of tunables, with the values in force; the defaults if the scheduler has no such set.
    #[must_use]
    pub fn tunables<T: TunableSet>(&self) -> T {
        let (mut start, values) = (0, self.in_force());
        for set in self.info.sets.iter().copied().chain([KernelTunables::TABLE]) {
            if set == T::TABLE {
                return T::from_values(values.get(start..start + set.len()).unwrap_or_default());
            }
            start += set.len();
        }
        T::from_values(&[])
    }

    /// Parameters of the kernel that it runs in.
    #[must_use]
    pub fn kernel(&self) -> KernelParameters {
        let tunables = self.tunables::<KernelTunables>();
        match tunables.preempt {
            0 => KernelParameters { preempt: self.info.preempt, ..tunables.into() },
            _ => tunables.into(),
        }
    }

    /// A setting that decides nothing beside the others, and the setting that it needs.
    #[must_use]
    pub fn without_effect(&self) -> Option<(&'static str, &'static str)> {
        let kernel = self.kernel();
        let idle = kernel.rate_limit_us > 0 && kernel.governor != Governor::Schedutil;
        idle.then_some(("rate_limit_us", "governor=schedutil"))
    }

    /// A setup in the kernel that the tunables say.
    ///
    /// # Errors
    /// When the machine has no frequencies that its governor could choose, or CPUs go offline that may not.
    pub fn in_its_kernel<'a>(&self, setup: &Setup<'a>) -> Result<Setup<'a>, SimulationError> {
        let kernel = self.kernel();
        if kernel.governor != Governor::Fixed && setup.machine().core_kinds().is_empty() {
            let (scheduler, machine) = (self.to_string(), setup.machine().name().to_owned());
            return Err(SimulationError::NoFrequencies { scheduler, machine });
        }
        if let Some(reason) = self.info.no_hotplug.filter(|_| setup.has_hotplug()) {
            return Err(SimulationError::NoHotplug { scheduler: self.to_string(), reason });
        }
        let mut setup = setup.clone();
        setup.kernel = kernel;
        Ok(setup)
    }

    /// All tunables with the values that the text gives them, or the defaults.
    #[must_use]
    pub fn resolved(&self) -> Vec<(&'static str, u64)> {
        self.info.tunables().map(|tunable| tunable.name).zip(self.values.iter().copied()).collect()
    }

    /// All tunables with the values that a kernel with so many CPUs gives them: 0 where the kernel chooses when it starts is what it
    /// chooses, and what another setting gives a least value to has that.
    #[must_use]
    pub fn effective(&self, cpus: usize) -> Vec<(&'static str, u64)> {
        let mut values: Vec<(&str, u64)> =
            self.info.tunables().map(|tunable| tunable.name).zip(self.in_force()).collect();
        let scaling = values.iter().find(|(name, _)| *name == "tunable_scaling").map_or(0, |(_, value)| *value);
        for (name, value) in values.iter_mut().filter(|(_, value)| *value == 0) {
            if let Some((_, base)) = AUTOMATIC.iter().find(|(automatic, _)| automatic == name) {
                *value = base * scaling_factor(scaling, cpus);
            }
        }
        values
    }

    /// Tunables that differ from their defaults.
    #[must_use]
    pub fn changed(&self) -> Vec<(&'static str, u64)> {
        let both = self.info.tunables().zip(self.values.iter().copied());
        both.filter(|(tunable, value)| tunable.default != *value)
            .map(|(tunable, value)| (tunable.name, value))
            .collect()
    }
}

/// Tunables whose 0 lets the kernel choose, and what it scales by its number of CPUs.
const AUTOMATIC: [(&str, u64); 4] = [
    ("base_slice_ns", BASE_SLICE_NS),
    ("sched_latency_ns", LATENCY_NS),
    ("sched_min_granularity_ns", MIN_GRANULARITY_NS),
    ("sched_wakeup_granularity_ns", WAKEUP_GRANULARITY_NS),
];

impl PartialEq for SchedulerSpec {
    fn eq(&self, other: &Self) -> bool {
        (self.name(), &self.values, &self.program, &self.circumstances)
            == (other.name(), &other.values, &other.program, &other.circumstances)
    }
}

impl Eq for SchedulerSpec {}

impl FromStr for SchedulerSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for SchedulerSpec {
    /// The name, the settings that differ from the defaults, the program, and the circumstances; [`SchedulerSpec::parse`] reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = self.info.tunables().zip(self.values.iter().copied());
        let changed = both.filter(|(tunable, value)| tunable.default != *value);
        let settings: Vec<String> =
            changed.map(|(tunable, value)| format!("{}={}", tunable.name, tunable.text(value))).collect();
        let settings = (!settings.is_empty()).then(|| settings.join(","));
        let words = self.program.iter().flat_map(ScxProgram::words);
        let behind: Vec<&str> = settings.as_deref().into_iter().chain(words).collect();
        f.write_str(self.name())?;
        if !behind.is_empty() {
            write!(f, ":{}", behind.join(" "))?;
        }
        if !self.circumstances.is_default() {
            write!(f, "{SEPARATOR}{}", self.circumstances)?;
        }
        Ok(())
    }
}

impl Serialize for SchedulerSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Kinds of decisions that a scheduler puts into the trace, by number.
pub fn decisions(spec: &SchedulerSpec) -> Vec<DecisionKind> {
    let mut table = DecisionTable::default();
    (spec.info.register_decisions)(&mut table);
    table.into_kinds()
}

/// Names of what a scheduler ranks tasks by, with unit as suffix; empty for one that runs in a real kernel, which does not tell.
///
/// | name | scheduler | meaning |
/// |---|---|---|
/// | `vlag_ns` | EEVDF and those built on it | average virtual runtime of the task's queue minus the task's: what it is owed, in nanoseconds of a nice-0 task; eligible from 0 on |
/// | `deadline_ns` | the same | virtual deadline minus that average: of the eligible tasks the earliest runs |
/// | `vruntime_ns` | CFS | virtual runtime minus `min_vruntime` of its queue, below 0 after a sleep: the smallest runs |
/// | `position` | round robin | place in the global queue, the running task having 0 |
pub fn scores(spec: &SchedulerSpec) -> &'static [&'static str] {
    spec.info.scores
}

/// The tables that the events of a run under a scheduler refer to; names of scores only where they are sampled.
pub fn run_tables(spec: &SchedulerSpec, setup: &Setup<'_>) -> RunTables {
    let mut tables = setup.run_tables(decisions(spec));
    if setup.options.scores_every_ns.is_some() {
        tables.scores = scores(spec).iter().map(ToString::to_string).collect();
    }
    if spec.runs_loader() {
        tables.foreign.push(setup.scheduler_thread());
    }
    tables
}

/// Runs a workload on a machine under a scheduler, in the kernel that [`SchedulerSpec::kernel`] says, sending the events to `sink` if there
/// is one.
///
/// # Errors
/// See [`SimulationError`].
pub fn simulate(
    spec: &SchedulerSpec,
    setup: &Setup<'_>,
    sink: Option<&mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let Some(simulate) = spec.info.simulate else {
        return Err(SimulationError::NotSimulated { scheduler: spec.to_string() });
    };
    let setup = spec.in_its_kernel(setup)?;
    match sink {
        Some(sink) => simulate(spec, &setup, Some(sink)),
        None => simulate(spec, &setup, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::cache_aware::CacheAwareTunables;
    use crate::fair::eevdf::EevdfTunables;
    use crate::fair::numa::NumaTunables;
    use crate::fair::topology_aware::TopologyAwareTunables;
    use crate::tunables::TunableKind;

    #[test]
    fn a_spec_prints_as_it_is_read() {
        for text in [
            "cache-aware:aggr_tolerance=90,hz=1000",
            "cfs",
            "eevdf",
            "rr",
            "eevdf:base_slice_ns=3000000,hz=1000",
            "cfs:balance_by_load=1",
            "scx:loader=ended /opt/scx_lavd --performance",
            "scx:own/front.bpf.o",
            "scx:loader=ended,hz=1000 front.bpf.o @ cpus=0-1",
        ] {
            assert_eq!(SchedulerSpec::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn times_may_have_units_and_automatic_values_are_what_the_kernel_chooses() {
        assert_eq!(SchedulerSpec::parse("eevdf:base_slice_ns=3ms").unwrap().to_string(), "eevdf:base_slice_ns=3000000");
        assert!(SchedulerSpec::parse("eevdf:hz=3ms").is_err(), "a rate is no time");
        assert!(SchedulerSpec::parse("eevdf:base_slice_ns=3s").unwrap_err().to_string().contains("such as 3ms"));
        let of = |text: &str, cpus: usize, name: &str| {
            let values = SchedulerSpec::parse(text).unwrap().effective(cpus);
            values.into_iter().find(|(known, _)| *known == name).unwrap().1
        };
        assert_eq!(of("eevdf", 1, "base_slice_ns"), 700_000);
        assert_eq!(of("eevdf", 64, "base_slice_ns"), 2_800_000);
        assert_eq!(of("eevdf:tunable_scaling=none", 64, "base_slice_ns"), 700_000);
        assert_eq!(of("eevdf:base_slice_ns=5ms", 64, "base_slice_ns"), 5_000_000);
        assert_eq!(of("cfs", 4, "sched_latency_ns"), 18_000_000);
    }

    #[test]
    fn every_default_is_read_back_and_every_time_may_have_a_unit() {
        for tunable in list().iter().flat_map(|info| info.tunables()) {
            assert_eq!(tunable.parse(&tunable.text(tunable.default)), Ok(tunable.default), "{}", tunable.name);
            if let TunableKind::Time(numbers) = tunable.kind {
                let most = format!("{}{}", numbers.high, numbers.unit);
                assert_eq!(tunable.parse(&most), Ok(numbers.high), "{}", tunable.name);
            }
        }
    }

    #[test]
    fn mistakes_are_named_with_the_nearest_right_word() {
        let message = |text: &str| SchedulerSpec::parse(text).unwrap_err().to_string();
        assert!(message("eevfd").contains("did you mean `eevdf`"));
        assert!(message("eevdf:base_slice=1").contains("did you mean `base_slice_ns`"));
        assert!(message("EEVDF").contains("did you mean `eevdf`"));
        assert!(message("eevdf:HZ=250").contains("did you mean `hz`"));
        assert!(message("eevdf:hz=5").contains("100 to 1000"));
        assert!(message("cdf:tol=1.5").contains("0 to 1"));
        assert!(message("cdf:percentiles=75/25").contains("25/50/75"));
        assert!(message("cdf:window=0").contains("1 to 100000"));
        assert!(message("cas").contains("did you mean `cache-aware`?"));
        assert!(message("CDF").contains("did you mean `cdf`?"));
        assert!(message("eevdf:hz").contains("name=value"));
        assert!(message("cache-aware:aggr_tolerence=1").contains("`cache-aware` has no tunable"));
        assert!(message("cache-aware:aggr_tolerence=1").contains("did you mean `aggr_tolerance`"));
        assert!(message("cache-aware:base_slice=1").contains("did you mean `base_slice_ns`"));
        assert!(message("cache-aware:aggr_tolerance=101").contains("0 to 100"));
    }

    #[test]
    fn a_tunable_of_another_scheduler_is_named_with_it() {
        let message = |text: &str| SchedulerSpec::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("eevdf:aggr_tolerance=1"),
            "`eevdf` has no tunable `aggr_tolerance`; it is one of `cache-aware` and `topology-aware`"
        );
        assert_eq!(message("eevdf:quantum_ns=1"), "`eevdf` has no tunable `quantum_ns`; it is one of `rr`");
    }

    #[test]
    fn a_tunable_set_twice_is_refused_by_name() {
        let error = SchedulerSpec::parse("eevdf:hz=100,hz=1000").unwrap_err();
        assert_eq!(error, SpecError::Twice { name: "hz", spec: "eevdf:hz=100,hz=1000".into() });
        assert!(error.to_string().contains("`hz` is set twice"));
    }

    #[test]
    fn a_value_that_a_kernel_does_not_have_is_refused_not_raised() {
        for (bad, least) in
            [("imbalance_pct=110", "is 125 there"), ("imbalance_pct=117", "125"), ("busy_factor=8", "is 32 there")]
        {
            let message = SchedulerSpec::parse(&format!("cfs:{bad},kernel=4.9")).unwrap_err().to_string();
            assert!(message.contains(&format!("`{bad}` does not go with `kernel=4.9`")), "{message}");
            assert!(message.contains(least), "{message}");
        }
        let of_4_9 = SchedulerSpec::parse("cfs:kernel=4.9").unwrap().effective(4);
        assert!(of_4_9.contains(&("imbalance_pct", 125)) && of_4_9.contains(&("busy_factor", 32)), "{of_4_9:?}");
        for good in
            ["cfs:kernel=4.9", "cfs:kernel=4.9,imbalance_pct=140,busy_factor=32", "cfs:imbalance_pct=110,busy_factor=8"]
        {
            assert!(SchedulerSpec::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn sets_have_the_values_of_the_text() {
        let spec = SchedulerSpec::parse("topology-aware:mode=ladder,scan_size_mb=64,hz=1000").unwrap();
        assert_eq!(spec.tunables::<TopologyAwareTunables>().mode, 1);
        assert_eq!(spec.tunables::<NumaTunables>().scan_size_mb, 64);
        assert_eq!(spec.tunables::<EevdfTunables>(), EevdfTunables::default());
        assert_eq!(spec.kernel(), KernelParameters { hz: 1000, ..KernelParameters::default() });
    }

    /// Names and defaults of `/sys/kernel/debug/sched/llc_balancing/`, to which `footprint` is added. The period's 0 is hz / 100: 2 jiffies
    /// at 250 Hz.
    #[test]
    fn item_30_cache_aware_tunables_are_the_kernels() {
        let files = CacheAwareTunables::TABLE.iter().filter(|tunable| tunable.name != "footprint");
        let set: Vec<_> = files.map(|tunable| (tunable.name, tunable.default)).collect();
        let kernels = [
            ("enabled", 1),
            ("aggr_tolerance", 1),
            ("epoch_period", 0),
            ("epoch_affinity_timeout", 5),
            ("overaggr_pct", 50),
            ("imb_pct", 20),
        ];
        assert_eq!(set, kernels);
        let periods = [100, 250, 300, 1000].map(|hz| CacheAwareTunables::default().epoch_jiffies(hz));
        assert_eq!(periods, [1, 2, 3, 10]);
        let footprint = |text: &str| SchedulerSpec::parse(text).unwrap().tunables::<CacheAwareTunables>().footprint;
        let texts = ["cache-aware", "cache-aware:footprint=numa-faults", "cache-aware:footprint=resident-pages"];
        assert_eq!(texts.map(footprint), [0, 0, 1]);
    }
}
