//! `warmcore compare`: the main job.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use warmcore_lab::builder::{Built, ExperimentBuilder, check_known};
use warmcore_lab::directory::{DirectoryError, ORACLE, RunDirectory, SENSITIVITY};
use warmcore_lab::experiment::{Experiment, Named, Observation, trial_seeds};
use warmcore_lab::files::Lock;
use warmcore_lab::headroom::{self, Headroom, OracleRun};
use warmcore_lab::runner::{Conduct, Finished, RunError};
use warmcore_lab::sensitivity::{self, AskedChanges, Sensitivity};
use warmcore_lab::session::{self, ResumeError, SessionError, pretty};
use warmcore_lab::verdict::{self, ComparisonDocument};
use warmcore_options::{MemoryChoice, TraceLevel};
use warmcore_search::advice;
use warmcore_search::oracle::{self, OracleError};
use warmcore_statistics::Design;
use warmcore_study::run::{self, Done};
use warmcore_study::sensitivity::comparison::{self as changed_costs, SensitivityError};
use warmcore_topology::Machine;
use warmcore_workload::Workload;

use crate::args::{Change, CompareArguments, Keep};
use crate::commands::{columns, host, load_levels, report, study, vm};
use crate::console::Console;
use crate::failure::{Class, Failure};
use crate::load;
use crate::signals::Signals;

/// The place that is this computer, and its machine.
const HOST: &str = "host";
/// Directory of run directories that were not given a name.
pub const RUNS: &str = "runs";

pub fn run(arguments: CompareArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    if !arguments.load.is_empty() {
        return load_levels::run(arguments, &signals, console);
    }
    if arguments.on.host.dry_run {
        let configurations = arguments.on.host.configurations(load::schedulers(&arguments.schedulers)?);
        return host::dry_run(&arguments.on.host, &configurations, &machine(&arguments)?.value, console);
    }
    // No other run writes there until this one has ended.
    let (experiment, begun) = match &arguments.resume {
        Some(path) => resume(path, console)?,
        None => begin(&arguments, console)?,
    };
    let (directory, _alone) = begun.unzip();
    load::warn_unmodelled(&experiment.workload.value, console);
    describe(&experiment, directory.as_ref(), console);
    let of_run = directory.clone();
    let done = study::with_means(experiment.trial_count(), None, &signals, console, |means, _| {
        run::one(&experiment, directory, means)
    });
    let done = done.map_err(|error| run_failure(error, of_run.as_ref(), &signals))?;
    let document = conclude(&arguments, &done, &signals, console)?;
    print(&document, console)?;
    leave(&arguments, of_run.as_ref().map(RunDirectory::path), &signals, console)
}

/// Judges an experiment that was run; its run directory is complete then, but for the page.
pub fn conclude(
    arguments: &CompareArguments,
    done: &Done<'_>,
    signals: &Signals,
    console: &Console,
) -> Result<ComparisonDocument, Failure> {
    let (experiment, directory, finished) = (done.experiment, done.directory.as_ref(), &done.finished);
    let mut document = verdict::conclude(experiment, &experiment.record(), &finished.trials)
        .map_err(|error| Failure::usage("warmcore::metric", error))?;
    let kept = directory.map_or(Ok(None), headroom::kept).unwrap_or_else(|reason| {
        console.warn(&format!("{ORACLE} is left out: {reason}"));
        None
    });
    let oracle = match (kept, arguments.headroom) {
        (None, true) => Some(ask_oracle(experiment, directory, signals, console)?),
        (kept, _) => kept,
    };
    if let Some(oracle) = &oracle {
        document.headroom = headroom_of(&document, oracle)?;
    }
    let kept = directory.map_or(Ok(None), sensitivity::kept).unwrap_or_else(|reason| {
        console.warn(&format!("{SENSITIVITY} is left out: {reason}"));
        None
    });
    let asked = asked_changes(&arguments.sensitivity);
    document.sensitivity = match kept {
        kept if arguments.sensitivity.is_empty() => kept,
        Some(kept) if kept.asked() == asked => Some(kept),
        _ => Some(ask_sensitivity(arguments, experiment, (finished, &document), &asked, signals, console)?),
    };
    if let (Some(directory), Some(found)) = (directory, &document.sensitivity) {
        directory.write(SENSITIVITY, pretty(found).as_bytes()).map_err(|error| session_failure(error.into()))?;
    }
    done.keep(Some((&document, &warmcore_report::verdict::plain(&document)))).map_err(session_failure)?;
    Ok(document)
}

/// Says where the run is, and draws its pages.
pub fn leave(
    arguments: &CompareArguments,
    directory: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let Some(directory) = directory else { return Ok(()) };
    console.note(&format!("run directory: {}", directory.display()));
    if arguments.keep == Keep::Page {
        let page = report::into_run_directory(directory, signals, console)?;
        console.note(&format!("report: {}", page.display()));
    }
    Ok(())
}

/// The experiment that was asked for, and what to warn of.
pub fn experiment(arguments: &CompareArguments, console: &Console) -> Result<Built, Failure> {
    // Before the place is opened, which may boot a kernel.
    let kind = arguments.on.kind;
    if !arguments.sensitivity.is_empty() {
        changed_costs::check(kind).map_err(|error| {
            let advice = error.advice();
            Failure::usage("warmcore::sensitivity", error).help(advice)
        })?;
    }
    let machine = machine(arguments)?;
    let commands = columns::commands(&arguments.command)?;
    let mut workload = match commands[0].as_slice() {
        // Clap demands a workload unless there is a command or a run is resumed.
        [] => {
            let text = arguments.workload.as_deref().unwrap_or_default();
            load::workload_for(&machine.value, text, &arguments.profiles, console)?
        }
        words => Named { source: words.join(" "), value: Workload::of_command(words.to_vec()) },
    };
    load::check_profiles(&arguments.profiles, kind.simulated, arguments.memory.memory)?;
    load::aggregate(&mut workload, &arguments.aggregate)?;
    let named = match arguments.schedulers.as_slice() {
        [] if kind.simulated => {
            let caches = workload.value.has_profiles() && arguments.memory.memory != Some(MemoryChoice::None);
            advice::candidates(&machine.value, &workload.value, caches)?
        }
        [] => {
            return Err(Failure::usage("warmcore::usage", "there is no scheduler to compare")
                .help("name some with --schedulers; without, the simulator tries the settings that a kernel has"));
        }
        lists => load::schedulers(lists)?,
    };
    let schedulers = columns::with_commands(&arguments.on.host.configurations(named), &commands);
    columns::check(&schedulers, !arguments.load.is_empty(), arguments.headroom)?;
    let manner = columns::Manner {
        workload: arguments.workload.as_deref(),
        profiles: &arguments.profiles,
        aggregate: &arguments.aggregate,
        background: arguments.background.as_deref(),
    };
    let asked = |machine, workload| asked(arguments, machine, workload);
    let inputs = columns::inputs(&schedulers, (&machine, &workload), &commands, &manner, &asked, console)?;
    let baseline = arguments.baseline.as_deref().map(load::scheduler).transpose()?;
    let built = asked(machine, workload)
        .place(vm::place(&arguments.on, &schedulers, console)?)
        .schedulers(schedulers)
        .inputs(inputs)
        .baseline(baseline)
        .options(arguments.run.options(arguments.trace))
        .trace(arguments.trace.map(|trace| trace.level))
        .kept(arguments.keep != Keep::Nothing)
        .advised(arguments.schedulers.is_empty())
        .strict(console.strict())
        .margin(arguments.margin)
        .observations(arguments.virtual_llcs.map(|cores| Observation::VirtualLlcs { cores }).into_iter().collect())
        .build()?;
    if arguments.keep == Keep::Nothing && built.experiment.options.trace == TraceLevel::Full {
        return Err(Failure::usage("warmcore::usage", "--trace full needs a run directory; leave out --keep nothing"));
    }
    Ok(built)
}

/// An experiment with these, as far as every one that is asked for is like it.
fn asked(arguments: &CompareArguments, machine: Named<Machine>, workload: Named<Workload>) -> ExperimentBuilder {
    Experiment::builder(machine, workload)
        .seeds(trial_seeds(arguments.seed, arguments.trials))
        .memory(arguments.memory.memory)
        .smt_slowdown_percent(arguments.memory.smt_slowdown)
        .background_chosen(arguments.background.is_some())
        .options(arguments.run.options(None))
        .metric(arguments.metric.clone())
}

/// The machine that was asked for; on this computer it is this one.
fn machine(arguments: &CompareArguments) -> Result<Named<Machine>, Failure> {
    let machine = match &arguments.machine {
        Some(text) => load::machine(text),
        None if arguments.on.kind.name == HOST => load::machine(HOST),
        None => Err(Failure::usage("warmcore::usage", "there is no machine to compare on")
            .help("name one with --machine, such as 2s1n1l8c2t; or compare on this computer with --on host")),
    }?;
    load::with_background(machine, arguments.background.as_deref())
}

/// Name of a new run directory that was not given one.
pub fn new_id(experiment: &Experiment) -> String {
    format!("{}-{}", utc_stamp(unix_seconds()), experiment.record().short_hash())
}

/// A new experiment and its directory.
fn begin(
    arguments: &CompareArguments,
    console: &Console,
) -> Result<(Experiment, Option<(RunDirectory, Lock)>), Failure> {
    let built = experiment(arguments, console)?;
    built.warnings.iter().for_each(|warning| console.warn(warning));
    let experiment = built.experiment;
    if arguments.keep == Keep::Nothing {
        return Ok((experiment, None));
    }
    let begun = match &arguments.out {
        Some(path) => RunDirectory::create_alone(path, console.existing()),
        None => RunDirectory::create_numbered(&PathBuf::from(RUNS), &new_id(&experiment)),
    };
    let (directory, alone) = begun.map_err(directory_failure)?;
    session::begin(&directory, &experiment).map_err(session_failure)?;
    Ok((experiment, Some((directory, alone))))
}

fn resume(path: &Path, console: &Console) -> Result<(Experiment, Option<(RunDirectory, Lock)>), Failure> {
    let (directory, alone) = RunDirectory::open_alone(path).map_err(directory_failure)?;
    let mut experiment = session::experiment_of(&directory).map_err(resume_failure)?;
    if console.strict() {
        if experiment.workloads().any(|workload| !workload.value.warnings.is_empty()) {
            return Err(Failure::usage("warmcore::workload", "the workload has parts that are not modelled")
                .help("without --strict these are warnings"));
        }
        check_known(&experiment)?;
    }
    experiment.place = experiment.place.reopen().map_err(|error| load::place_failure(error, None))?;
    for missing in session::reopen(&directory, &experiment).map_err(resume_failure)? {
        console.warn(&format!("{} is missing: its trial is made again", missing.display()));
    }
    experiment.workloads().skip(1).for_each(|own| load::warn_unmodelled(&own.value, console));
    Ok((experiment, Some((directory, alone))))
}

/// The failure for a run that cannot go on.
pub fn resume_failure(error: ResumeError) -> Failure {
    let help = match &error {
        ResumeError::File(error) => error.advice(),
        ResumeError::Directory(error) => error.advice(),
        ResumeError::Program { .. } => {
            "each trial starts it: put back what it was, or start the experiment again in another directory"
        }
        _ => "start the experiment again in another directory",
    };
    Failure::usage("warmcore::resume", error).help(help)
}

/// The best static placement that is known, and what it reaches; kept in the run directory.
fn ask_oracle(
    experiment: &Experiment,
    directory: Option<&RunDirectory>,
    signals: &Signals,
    console: &Console,
) -> Result<OracleRun, Failure> {
    console.note("looking for the best static placement");
    let conduct = Conduct { jobs: console.jobs(), stop: Arc::clone(&signals.stop), progress: &|_| {} };
    let bar = console.phase("looking for the best static placement");
    let found = oracle::run(experiment, &conduct);
    bar.finish_and_clear();
    let oracle = found.map_err(|error| oracle_failure(error, directory, signals))?;
    if let Some(directory) = directory {
        directory.write(ORACLE, pretty(&oracle).as_bytes()).map_err(|error| session_failure(error.into()))?;
    }
    Ok(oracle)
}

fn asked_changes(changes: &[Change]) -> AskedChanges {
    let factor = |change: &Change| match change {
        Change::Factor(factor) => Some(*factor),
        Change::Neighbours => None,
    };
    let factors = changes.iter().filter_map(factor).collect();
    AskedChanges { factors, neighbours: changes.contains(&Change::Neighbours) }
}

/// What could turn the verdict.
fn ask_sensitivity(
    arguments: &CompareArguments,
    experiment: &Experiment,
    (finished, document): (&Finished, &ComparisonDocument),
    asked: &AskedChanges,
    signals: &Signals,
    console: &Console,
) -> Result<Sensitivity, Failure> {
    console.note("comparing again with changes that could turn the verdict");
    let machine = &experiment.machine.value;
    let read = |text: &str| {
        let read = load::workload_for(machine, text, &arguments.profiles, console);
        read.map(|workload| workload.value).map_err(|failure| failure.to_string())
    };
    let found =
        study::with_means(changed_costs::most_simulations(experiment, asked), None, signals, console, |means, _| {
            changed_costs::run(experiment, (&finished.trials, document), asked, &read, means)
        });
    found.map_err(|error| sensitivity_failure(error, signals))
}

/// The failure for a comparison that has no answer to it.
fn sensitivity_failure(error: SensitivityError, signals: &Signals) -> Failure {
    let advice = error.advice();
    match error {
        SensitivityError::Run(error) => study::study_failure(error, None, signals),
        error => Failure::usage("warmcore::sensitivity", error).help(advice),
    }
}

/// The schedulers against the oracle.
pub fn headroom_of(document: &ComparisonDocument, oracle: &OracleRun) -> Result<Option<Headroom>, Failure> {
    Headroom::of(document, oracle).map_err(|error| Failure::failed("warmcore::headroom", error))
}

/// The failure for an oracle that has no answer.
pub fn oracle_failure(error: OracleError, directory: Option<&RunDirectory>, signals: &Signals) -> Failure {
    match error {
        OracleError::Run(error) => run_failure(error, directory, signals),
        error => {
            let advice = error.advice();
            Failure::usage("warmcore::headroom", error).help(advice)
        }
    }
}

/// The failure for what stopped the trials.
pub fn run_failure(error: RunError, directory: Option<&RunDirectory>, signals: &Signals) -> Failure {
    match error {
        RunError::Interrupted { .. } => {
            let failure = signals.failure(&error);
            match directory {
                Some(directory) => {
                    failure.help(format!("go on with: warmcore compare --resume {}", directory.path().display()))
                }
                None => failure,
            }
        }
        RunError::Trial { ref source, .. } => {
            let advice = source.advice();
            let class = if source.leaves_state() { Class::State } else { Class::Failed };
            Failure::new(class, "warmcore::simulation", &error).help(advice)
        }
        RunError::Directory(error) => directory_failure(error),
        RunError::File(error) => error.into(),
        RunError::Place(error) => load::place_failure(error, Some(signals)),
    }
}

/// The failure for a run directory that cannot be used.
pub fn directory_failure(error: DirectoryError) -> Failure {
    let advice = error.advice();
    let failure = match &error {
        DirectoryError::Exists(_) | DirectoryError::NotARun(_) => Failure::usage("warmcore::directory", &error),
        _ => Failure::failed("warmcore::directory", &error),
    };
    failure.help(advice)
}

/// The failure for files of a run that cannot be written.
pub fn session_failure(error: SessionError) -> Failure {
    let advice = match &error {
        SessionError::File(error) => error.advice(),
        SessionError::Express { .. } => "run without a directory (--keep nothing)",
    };
    Failure::failed("warmcore::files", error).help(advice)
}

/// One line about what is going to run.
fn describe(experiment: &Experiment, directory: Option<&RunDirectory>, console: &Console) {
    let record = experiment.record();
    let memory = if experiment.place.kind().simulated {
        format!(", {}", load::memory_in_words(record.options.memory))
    } else {
        String::new()
    };
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let columns = experiment.schedulers.iter().any(|scheduler| !scheduler.circumstances().is_default());
    let at_a_time = match experiment.place.design() {
        // Trials beside each other would share the computer that they measure.
        Design::Blocked => "one at a time".to_owned(),
        // Emulated guests use one CPU each, and much memory.
        Design::Paired | Design::Unpaired => format!("{} at a time", console.jobs()),
    };
    console.note(&format!(
        "{} on {}: {}, {} each, {at_a_time}{memory}",
        record.workload.source,
        record.machine.source,
        counted(record.schedulers.len(), if columns { "column" } else { "scheduler" }),
        counted(record.seeds.len(), "trial")
    ));
    if let Some(directory) = directory {
        console.info(&format!("writing to {}", directory.path().display()));
    }
    for scheduler in &record.schedulers {
        console.info(&format!("scheduler {}", scheduler.resolved));
    }
}

/// Says what to check before the verdict is trusted.
pub fn warn(document: &ComparisonDocument, console: &Console) {
    // The workload's own warnings were shown before the run.
    for warning in &document.warnings[document.unmodelled..] {
        console.warn(warning);
    }
}

fn print(document: &ComparisonDocument, console: &Console) -> Result<(), Failure> {
    warn(document, console);
    match (console.json(), &document.advice) {
        (true, _) => console.out(&pretty(document))?,
        // What is to be typed stays in one piece.
        (false, Some(_)) => console.out(&console.comparison(document))?,
        (false, None) => console.out_words(&console.comparison(document))?,
    }
    Ok(())
}

/// Seconds since 1970, UTC.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `20261120T115926Z`: sorts by time, and is a file name everywhere.
pub fn utc_stamp(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Howard Hinnant's days-to-civil algorithm, for days since 1970 (all non-negative here): the year begins in March,
    // so that the leap day is its last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_dates() {
        assert_eq!(utc_stamp(0), "19700101T000000Z");
        assert_eq!(utc_stamp(951_827_696), "20000229T123456Z");
        assert_eq!(utc_stamp(4_102_444_799), "20991231T235959Z");
    }
}
