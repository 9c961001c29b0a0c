//! What was typed as machines, workloads and schedulers, with failures that the command line tells. The reading itself is the
//! library's ([`warmcore_lab::load`]).

use std::path::Path;

use warmcore_lab::builder::BuildError;
use warmcore_lab::experiment::Named;
use warmcore_lab::load::{self, LoadError};
use warmcore_lab::verdict::describe_warning;
use warmcore_memory::Profile;
use warmcore_options::MemoryChoice;
use warmcore_places::place::{PlaceError, Trouble};
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_workload::{Options, Workload};

use crate::args::ProfileArguments;
use crate::commands::recording;
use crate::console::Console;
use crate::failure::{Class, Failure};
use crate::signals::Signals;

/// A machine from whatever can be typed.
pub fn machine(text: &str) -> Result<Named<Machine>, Failure> {
    Ok(load::machine(text)?)
}

/// A machine with the kernel threads that `--background` names, if it is given.
pub fn with_background(machine: Named<Machine>, background: Option<&str>) -> Result<Named<Machine>, Failure> {
    match background {
        None => Ok(machine),
        Some(text) => Ok(load::background(machine, text)?),
    }
}

/// A workload from whatever can be typed.
pub fn workload(text: &str, strict: bool, profiles: &[Profile]) -> Result<Named<Workload>, Failure> {
    workload_with(text, &Options { strict, profiles, ..Options::default() })
}

/// The same for a machine, whose own costs count where a generator's work depends on them. A recording is its replay.
pub fn workload_for(
    machine: &Machine,
    text: &str,
    chosen: &ProfileArguments,
    console: &Console,
) -> Result<Named<Workload>, Failure> {
    let profiles = profiles(chosen.profiles.as_deref())?;
    let assume_profile = chosen.assume_profile.as_deref();
    let options = Options { strict: console.strict(), profiles: &profiles, assume_profile, ..Options::default() };
    if recording::is_one(text) {
        return recording::as_workload(text, &load::on(machine, &options), console);
    }
    Ok(load::workload_on(machine, text, &options)?)
}

/// Refuses a memory profile that is to be assumed where no memory is modelled.
pub fn check_profiles(chosen: &ProfileArguments, simulated: bool, memory: Option<MemoryChoice>) -> Result<(), Failure> {
    Ok(load::check_assumed(chosen.assume_profile.as_deref(), simulated, memory)?)
}

/// The memory profiles of a file given with `--profiles`; none if none is given.
pub fn profiles(path: Option<&Path>) -> Result<Vec<Profile>, Failure> {
    Ok(path.map(load::profiles).transpose()?.unwrap_or_default())
}

/// The same, read in a given way.
pub fn workload_with(text: &str, options: &Options<'_>) -> Result<Named<Workload>, Failure> {
    Ok(load::workload(text, options)?)
}

/// Makes choices of whom cache-aware schedulers keep together, as given with `--aggregate`.
pub fn aggregate(workload: &mut Named<Workload>, choices: &[String]) -> Result<(), Failure> {
    Ok(load::aggregate(workload, choices)?)
}

/// One scheduler with its tunables.
pub fn scheduler(text: &str) -> Result<SchedulerSpec, Failure> {
    Ok(load::scheduler(text)?)
}

/// The schedulers in the values of `--schedulers`.
pub fn schedulers(lists: &[String]) -> Result<Vec<SchedulerSpec>, Failure> {
    Ok(load::schedulers(lists)?)
}

/// Says what of a workload is not modelled.
pub fn warn_unmodelled(workload: &Workload, console: &Console) {
    for warning in &workload.warnings {
        console.warn(&describe_warning(warning));
    }
}

/// Says what the reader of a machine found odd.
pub fn warn_of_machine(machine: &Machine, console: &Console) {
    load::warnings_of_machine(machine).for_each(|note| console.warn(&note));
}

/// For the lines that say what is run.
pub fn memory_in_words(memory: MemoryChoice) -> &'static str {
    match memory {
        MemoryChoice::None => "memory of constant speed",
        MemoryChoice::Analytic => "analytic memory",
        MemoryChoice::Exact => "exact memory",
        MemoryChoice::ExactByAddress => "exact memory, sets by address",
        MemoryChoice::ExactPaged(_) => "exact memory with page tables",
        MemoryChoice::ExactPagedByAddress(_) => "exact memory with page tables, sets by address",
    }
}

/// The failure for a place that cannot do it.
pub fn place_failure(error: PlaceError, signals: Option<&Signals>) -> Failure {
    let class = match (error.trouble, signals) {
        (Trouble::Interrupted, Some(signals)) => return signals.failure(error),
        (Trouble::Interrupted, None) | (Trouble::Failed | Trouble::Scheduler, _) => Class::Failed,
        (Trouble::Unfit, _) => Class::Usage,
        (Trouble::Unable, _) => Class::Unable,
        (Trouble::State, _) => Class::State,
    };
    let (code, advice) = (error.code, error.advice);
    Failure::new(class, code, error).help(advice)
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let advice = error.advice();
        let (class, code) = match &error {
            LoadError::Read { .. } => (Class::Usage, "warmcore::input"),
            LoadError::Machine(_) | LoadError::System { live: false, .. } => (Class::Usage, "warmcore::machine"),
            LoadError::System { live: true, .. } => (Class::Unable, "warmcore::machine"),
            LoadError::Workload { .. } => (Class::Usage, "warmcore::workload"),
            LoadError::Background(_) => (Class::Usage, "warmcore::background"),
            LoadError::Aggregate(_) => (Class::Usage, "warmcore::aggregate"),
            LoadError::Scheduler(_) => (Class::Usage, "warmcore::scheduler"),
            LoadError::Profiles { .. } | LoadError::NoMemory(_) => (Class::Usage, "warmcore::profiles"),
        };
        let failure = Failure::new(class, code, error);
        advice.into_iter().fold(failure, Failure::help)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let advice = error.advice();
        let code = match error {
            BuildError::Place(error) => return place_failure(error, None),
            BuildError::Background(error) => return error.into(),
            BuildError::Experiment(_) | BuildError::Column(_) => "warmcore::experiment",
            BuildError::Baseline(_) => "warmcore::baseline",
            BuildError::Memory(_) | BuildError::ExactMemory(_) | BuildError::NoSets(_) => "warmcore::memory",
            BuildError::WarmUpTooLong { .. } | BuildError::WarmUpOfCommand => "warmcore::warm_up",
            BuildError::Endless { .. } | BuildError::Unknown { .. } => "warmcore::workload",
            BuildError::ScoresWithoutTables | BuildError::SmtElsewhere | BuildError::SmtSlowdown(_) => {
                "warmcore::usage"
            }
            BuildError::Metric(_) => "warmcore::metric",
        };
        let failure = Failure::usage(code, error);
        advice.into_iter().fold(failure, Failure::help)
    }
}
