//! `warmcore host`: what this computer can do, experiments on it, and undoing what they left.

mod metric;
mod plan;

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::load::split_schedulers;
use warmcore_lab::session::pretty;
use warmcore_places::host::journal::{self, Journal, JournalError, Undone};
use warmcore_places::host::state::{Means, Scheduler, StateError, Wanted};
use warmcore_places::host::survey::{Finding, Presence, survey};
use warmcore_places::host::trial::{self, Trial, TrialError};
use warmcore_statistics::{Better, Comparison, Design, compare_trials, judge};
use warmcore_topology::{CpuSet, Machine};

use crate::args::{HostCommand, HostCompareArguments, SetCpus, Switch};
use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::load;
use crate::signals::Signals;
use metric::Metric;
use plan::{in_steps, plan};

/// Where the journal is: it must be there after a crash.
const JOURNAL: &str = "/var/lib/warmcore/host";
const ROOT: &str = "/";
/// The label of the baseline's second self.
const NULL: &str = "the baseline again";

/// Runs the verb.
pub fn run(command: HostCommand, console: &Console) -> Result<(), Failure> {
    match command {
        HostCommand::Doctor { json } => doctor(json, console),
        HostCommand::Restore { dry_run, json } => restore(dry_run, json, console),
        HostCommand::Compare(arguments) => compare(&arguments, console),
    }
}

#[derive(Serialize)]
struct Survey {
    schema: &'static str,
    tool_version: &'static str,
    interfaces: Vec<Finding>,
}

fn doctor(json: bool, console: &Console) -> Result<(), Failure> {
    let interfaces = survey(Path::new(ROOT));
    if json {
        let document = Survey { schema: "warmcore-host-survey-1", tool_version: TOOL_VERSION, interfaces };
        return Ok(console.out(&pretty(&document))?);
    }
    let mut table = Table::new(["interface", "here", "path", "without it"]);
    for finding in interfaces {
        let (here, without) = match finding.presence {
            Presence::Present => ("yes".to_owned(), ""),
            Presence::Absent => ("no".to_owned(), finding.without),
            Presence::Forbidden(reason) => (format!("forbidden: {reason}"), finding.without),
        };
        table.row([finding.purpose.to_owned(), here, finding.path.to_owned(), without.to_owned()]);
    }
    Ok(console.out(&console.table(&table))?)
}

#[derive(Serialize)]
struct Restored {
    schema: &'static str,
    tool_version: &'static str,
    dry_run: bool,
    changes: Vec<Undone>,
}

fn restore(dry_run: bool, json: bool, console: &Console) -> Result<(), Failure> {
    let changes = journal::restore(Path::new(JOURNAL), Path::new(ROOT), dry_run).map_err(journal_failure)?;
    let good = changes.iter().all(Undone::is_good);
    let text =
        if changes.is_empty() { "nothing is left of an experiment\n".to_owned() } else { lines(&changes, dry_run) };
    if json {
        let document = Restored { schema: "warmcore-host-restore-1", tool_version: TOOL_VERSION, dry_run, changes };
        console.out(&pretty(&document))?;
    } else {
        console.out(&text)?;
    }
    if good || dry_run { Ok(()) } else { Err(not_restored()) }
}

fn lines(changes: &[Undone], dry_run: bool) -> String {
    let line = |change: &Undone| match change {
        Undone::Restored(what) if dry_run => format!("would be restored: {what}\n"),
        Undone::Restored(what) => format!("restored: {what}\n"),
        Undone::Unchanged(what) => format!("as before already: {what}\n"),
        Undone::Left { path, present, old } => {
            format!("left: {path} is `{present}`, which somebody else set since; it was `{old}`\n")
        }
        Undone::Failed { path, reason } => format!("failed: {path}: {reason}\n"),
    };
    changes.iter().map(line).collect()
}

fn not_restored() -> Failure {
    Failure::new(Class::State, "warmcore::host", "this computer is not as it was; the journal is kept")
        .help("see above, and undo by hand what is left; `warmcore host restore` tries again")
}

fn journal_failure(error: JournalError) -> Failure {
    match &error {
        JournalError::Busy(_) => Failure::failed("warmcore::host", error).help("wait for its end"),
        JournalError::Unfinished(_) => Failure::new(Class::State, "warmcore::host", error),
        JournalError::Keep { .. } => Failure::unable("warmcore::host", error).help("changes of a computer need root"),
        _ => Failure::failed("warmcore::host", error),
    }
}

fn state_failure(error: StateError) -> Failure {
    match error {
        StateError::Unable(reason) => {
            Failure::unable("warmcore::host", reason).help("`warmcore host doctor` says what is possible here")
        }
        StateError::Journal(error) => journal_failure(error),
        StateError::Ejected(reason) => Failure::failed("warmcore::host", reason),
    }
}

/// Files of the kernel, as paths from the root without a leading slash, and their values.
type Settings = Vec<(String, String)>;

/// A scheduler on a set of CPUs.
struct Configuration {
    label: String,
    wanted: Wanted,
}

#[derive(Serialize)]
struct Row {
    configuration: String,
    values: Vec<Option<f64>>,
    trials: Vec<Option<Trial>>,
    /// Against the first one; none for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
    /// In words.
    finding: &'static str,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    tool_version: &'static str,
    command: Vec<String>,
    metric: String,
    better: Better,
    seed: u64,
    /// What the baseline differs from itself by, as a ratio of at least 1.
    null: f64,
    rows: Vec<Row>,
}

fn compare(arguments: &HostCompareArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let machine = load::machine("host")?.value;
    let metric: Metric = arguments.metric.parse().map_err(|error: String| Failure::usage("warmcore::host", error))?;
    let command = command(arguments)?;
    let configurations = configurations(arguments, &machine)?;
    for configuration in &configurations {
        configuration.wanted.check(&machine, Path::new(ROOT)).map_err(state_failure)?;
    }
    if arguments.dry_run {
        let plan = plan(&configurations, &machine);
        return Ok(console.out(&if arguments.json { pretty(&plan) } else { in_steps(&plan) })?);
    }
    let mut labels: Vec<&str> = configurations.iter().map(|configuration| configuration.label.as_str()).collect();
    labels.insert(1, NULL);
    // The baseline's second self has the baseline's configuration.
    let of = |slot: usize| &configurations[slot.saturating_sub(1)];
    let mut trials: Vec<Vec<Option<Trial>>> = vec![Vec::new(); labels.len()];
    let mut random = arguments.seed;
    for round in 0..arguments.warm_up + arguments.trials {
        for slot in order(labels.len(), &mut random) {
            let result = one(&of(slot).wanted, &machine, &command, arguments, &signals);
            let trial = match result {
                Ok(trial) if trial.exit_code == 0 => Some(trial),
                Ok(trial) => {
                    console.warn(&format!("{}: the command ended with exit code {}", labels[slot], trial.exit_code));
                    None
                }
                Err(TrialFailure::Invalid(reason)) => {
                    console.warn(&format!("{}: {reason}; the trial does not count", labels[slot]));
                    None
                }
                Err(TrialFailure::End(failure)) => return Err(failure),
            };
            if round >= arguments.warm_up {
                trials[slot].push(trial);
            }
        }
        console.info(&format!("block {} of {} is done", round + 1, arguments.warm_up + arguments.trials));
    }
    let document = document(arguments, &metric, &command, &labels, trials)?;
    if arguments.json {
        return Ok(console.out(&pretty(&document))?);
    }
    console.out(&in_words(&document, console))?;
    Ok(())
}

/// The command, or this program running a workload.
fn command(arguments: &HostCompareArguments) -> Result<Vec<OsString>, Failure> {
    match &arguments.workload {
        None => Ok(arguments.command.clone()),
        Some(text) => {
            load::workload(text, false, &[])?;
            let own = std::env::current_exe().map_err(|error| Failure::failed("warmcore::host", error))?;
            Ok(vec![own.into(), "workload".into(), "run".into(), text.into()])
        }
    }
}

fn configurations(arguments: &HostCompareArguments, machine: &Machine) -> Result<Vec<Configuration>, Failure> {
    let usage = |message: String| Failure::usage("warmcore::host", message);
    let setting = |text: &String| {
        let (path, value) = text.split_once('=').ok_or_else(|| usage(format!("`{text}` is not PATH=VALUE")))?;
        let path = path.strip_prefix('/').ok_or_else(|| usage(format!("`{path}` is no path from the root")))?;
        let kernels = path.starts_with("sys/") || path.starts_with("proc/sys/");
        if kernels && !path.contains("..") {
            Ok((path.to_owned(), value.to_owned()))
        } else {
            Err(usage(format!("/{path} is no setting of the kernel: those are below /sys and /proc/sys")))
        }
    };
    let settings: Settings = arguments.settings.iter().map(setting).collect::<Result<_, _>>()?;
    let means = match arguments.set_cpus {
        SetCpus::Affinity => Means::Affinity,
        SetCpus::Offline => Means::Offline,
    };
    let mut found = Vec::new();
    for cpus in &arguments.cpus {
        let set = cpu_set(cpus, machine).map_err(usage)?;
        // A CPU that is offline has no governor.
        let governed = set.as_ref().filter(|_| means == Means::Offline).unwrap_or(machine.all_cpus());
        for (words, of_dimensions) in dimensions(arguments, machine, governed) {
            for text in arguments.schedulers.iter().flat_map(|list| split_schedulers(list)) {
                let scheduler = scheduler(&text).map_err(usage)?;
                let settings = settings.iter().chain(&of_dimensions).cloned().collect();
                let wanted = Wanted { scheduler, cpus: set.clone(), means, settings };
                found.push(Configuration { label: format!("{text} on {cpus}{words}"), wanted });
            }
        }
    }
    let doubles = found
        .iter()
        .enumerate()
        .find(|(position, one)| found[..*position].iter().any(|other| other.label == one.label));
    match doubles {
        Some((_, double)) => Err(usage(format!("{} is asked for twice", double.label))),
        None => Ok(found),
    }
}

/// Every combination of governor and NUMA balancing that is asked for: words for its label, and the files to write. One without either if
/// none is.
fn dimensions(arguments: &HostCompareArguments, machine: &Machine, governed: &CpuSet) -> Vec<(String, Settings)> {
    let mut all: Vec<(String, Settings)> = vec![(String::new(), Vec::new())];
    let mut cross = |values: Vec<(String, Settings)>| {
        if !values.is_empty() {
            let of = |(words, files): &(String, Settings)| {
                let both =
                    |(more, others): &(String, Settings)| (format!("{words}, {more}"), [&files[..], others].concat());
                values.iter().map(both).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(of).collect();
        }
    };
    let governor = |governor: &String| {
        let file = |cpu| format!("sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", machine.os_index(cpu));
        (governor.clone(), governed.iter().map(|cpu| (file(cpu), governor.clone())).collect())
    };
    cross(arguments.governor.iter().map(governor).collect());
    let balancing = |switch: &Switch| {
        let (word, value) = match switch {
            Switch::On => ("on", "1"),
            Switch::Off => ("off", "0"),
        };
        (format!("NUMA balancing {word}"), vec![("proc/sys/kernel/numa_balancing".to_owned(), value.to_owned())])
    };
    cross(arguments.numa_balancing.iter().map(balancing).collect());
    all
}

fn scheduler(text: &str) -> Result<Scheduler, String> {
    match text {
        "eevdf" => Ok(Scheduler::Fair),
        "cache-aware" => Ok(Scheduler::CacheAware),
        _ => {
            let program = text.strip_prefix("scx:").ok_or_else(|| {
                format!("`{text}` is none of eevdf (the fair class of the running kernel), cache-aware and scx:PROGRAM")
            })?;
            let mut words = program.split_whitespace().map(str::to_owned);
            let program = words.next().ok_or("scx: needs a program")?;
            Ok(Scheduler::Program(program, words.collect()))
        }
    }
}

fn cpu_set(text: &str, machine: &Machine) -> Result<Option<CpuSet>, String> {
    let first_of = |same: &dyn Fn(warmcore_topology::CpuId, warmcore_topology::CpuId) -> bool| {
        machine.cpus().filter(|cpu| machine.cpus().find(|other| same(*cpu, *other)) == Some(*cpu)).collect()
    };
    Ok(match text {
        "all" => None,
        "one-socket" => {
            let socket = machine.cpus().next().map(|cpu| machine.socket_of(cpu));
            Some(machine.cpus().filter(|cpu| Some(machine.socket_of(*cpu)) == socket).collect())
        }
        "smt-off" => Some(first_of(&|one, other| machine.core_of(one) == machine.core_of(other))),
        list => {
            let numbers = warmcore_topology::parse_cpu_list(list).map_err(|error| format!("--cpus {list}: {error}"))?;
            let cpu = |number: u32| {
                machine.cpu_by_os_index(number).ok_or_else(|| format!("--cpus {list}: there is no CPU {number} online"))
            };
            Some(numbers.into_iter().map(cpu).collect::<Result<_, _>>()?)
        }
    })
}

/// Numbers below `count` in an order by chance (Fisher-Yates, xorshift64*).
fn order(count: usize, state: &mut u64) -> Vec<usize> {
    let mut next = || {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    };
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, (next() % (last as u64 + 1)) as usize);
    }
    order
}

enum TrialFailure {
    /// The trial does not count.
    Invalid(String),
    /// Nothing more is run.
    End(Failure),
}

/// One trial, with this computer as it was before and afterwards.
fn one(
    wanted: &Wanted,
    machine: &Machine,
    command: &[OsString],
    arguments: &HostCompareArguments,
    signals: &Signals,
) -> Result<Trial, TrialFailure> {
    let end = TrialFailure::End;
    if signals.stop.load(Ordering::Relaxed) {
        return Err(end(signals.failure("interrupted")));
    }
    let timeout = Duration::from_nanos(arguments.timeout);
    let run = |affinity: Option<&str>| {
        trial::run(command, affinity, timeout, &signals.stop).map_err(|error| match error {
            TrialError::Timeout(_) => TrialFailure::Invalid(error.to_string()),
            TrialError::Interrupted => end(signals.failure("interrupted")),
            TrialError::Start(_) | TrialError::Accounts(_) => end(Failure::failed("warmcore::host", error)),
        })
    };
    let mut journal =
        Journal::begin(Path::new(JOURNAL), Path::new(ROOT)).map_err(|error| end(journal_failure(error)))?;
    let result = wanted.establish(machine, Path::new(ROOT), &mut journal).map_err(|error| match error {
        StateError::Ejected(reason) => TrialFailure::Invalid(reason),
        other => end(state_failure(other)),
    });
    let result = result.and_then(|mut established| {
        let trial = run(established.affinity.as_deref())?;
        established.check().map_err(|error| TrialFailure::Invalid(error.to_string()))?;
        Ok(trial)
    });
    // The scheduler's loader has ended with what was established.
    let undone = journal.undo();
    if !undone.iter().all(Undone::is_good) {
        let failure = Failure::new(Class::State, "warmcore::host", lines(&undone, false).trim_end().to_owned());
        return Err(end(failure.help("the journal is kept: `warmcore host restore` tries again")));
    }
    result
}

fn document(
    arguments: &HostCompareArguments,
    metric: &Metric,
    command: &[OsString],
    labels: &[&str],
    trials: Vec<Vec<Option<Trial>>>,
) -> Result<Document, Failure> {
    let better = if arguments.higher { Better::Higher } else { Better::Lower };
    let values: Vec<Vec<Option<f64>>> = trials
        .iter()
        .map(|trials| trials.iter().map(|trial| trial.as_ref().and_then(|trial| metric.value(trial))).collect())
        .collect();
    if values.iter().flatten().all(Option::is_none) {
        let failure = Failure::failed("warmcore::host", format!("no trial has a value of `{}`", arguments.metric));
        return Err(failure.help(metric.advice()));
    }
    let failed = |error: warmcore_statistics::StatisticsError| Failure::failed("warmcore::host", error);
    let mut comparisons: Vec<Comparison> = values[1..]
        .iter()
        .map(|own| compare_trials(Design::Blocked, &values[0], own, better))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    judge(&mut comparisons);
    let null = comparisons.first().map_or(1.0, spread);
    let mut rows = Vec::new();
    for (position, (values, trials)) in values.into_iter().zip(trials).enumerate() {
        let comparison = position.checked_sub(1).map(|position| comparisons[position].clone());
        let finding = match (&comparison, position) {
            (None, _) => "baseline",
            (_, 1) => "what counts as a difference",
            (Some(comparison), _) => finding(comparison, null, better),
        };
        rows.push(Row { configuration: labels[position].to_owned(), values, trials, comparison, finding });
    }
    let command = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(Document {
        schema: "warmcore-host-compare-1",
        tool_version: TOOL_VERSION,
        command,
        metric: arguments.metric.clone(),
        better,
        seed: arguments.seed,
        null,
        rows,
    })
}

/// How far from 1 a comparison may be, as a ratio of at least 1.
fn spread(comparison: &Comparison) -> f64 {
    let bounds =
        comparison.interval.map_or([comparison.ratio.unwrap_or(1.0); 2], |interval| [interval.low, interval.high]);
    bounds.into_iter().map(|bound| if bound < 1.0 { 1.0 / bound } else { bound }).fold(1.0, f64::max)
}

/// A difference counts if the interval excludes 1 and it is larger than what the baseline differs from itself by.
fn finding(comparison: &Comparison, null: f64, better: Better) -> &'static str {
    let Some((ratio, interval)) = comparison.ratio.zip(comparison.interval) else { return "too few trials" };
    let far = if ratio < 1.0 { 1.0 / ratio } else { ratio };
    if interval.low <= 1.0 && interval.high >= 1.0 || far <= null {
        return "not distinguishable";
    }
    if (ratio > 1.0) == (better == Better::Higher) { "better" } else { "worse" }
}

fn in_words(document: &Document, console: &Console) -> String {
    let mut table =
        Table::new(["configuration", ">median", ">ratio", "95 % interval", "finding", ">others' CPUs", ">steal"]);
    for row in &document.rows {
        let mut values: Vec<f64> = row.values.iter().copied().flatten().collect();
        values.sort_by(f64::total_cmp);
        let median = values.get(values.len() / 2).map_or("-".to_owned(), |median| format!("{median:.4}"));
        let ratio = row.comparison.as_ref().and_then(|comparison| comparison.ratio);
        let interval = row.comparison.as_ref().and_then(|comparison| comparison.interval);
        let mean = |of: &dyn Fn(&Trial) -> f64| {
            let all: Vec<f64> = row.trials.iter().flatten().map(of).collect();
            if all.is_empty() { "-".to_owned() } else { format!("{:.2}", all.iter().sum::<f64>() / all.len() as f64) }
        };
        table.row([
            row.configuration.clone(),
            median,
            ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
            interval.map_or("-".into(), |interval| format!("{:.3} to {:.3}", interval.low, interval.high)),
            row.finding.to_owned(),
            mean(&|trial| trial.noise.others_cpus),
            mean(&|trial| trial.noise.steal_cpus),
        ]);
    }
    let unit = if matches!(document.metric.as_str(), "elapsed" | "cpu") { ", in seconds" } else { "" };
    format!(
        "{}{unit}, {} is better; the baseline differs from itself by up to {:.1} %, and less counts as no difference\n\n{}",
        document.metric,
        if document.better == Better::Higher { "more" } else { "less" },
        100.0 * (document.null - 1.0),
        console.table(&table)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_runs_everything_once_in_orders_that_differ() {
        let mut state = 1;
        let orders: Vec<Vec<usize>> = (0..6).map(|_| order(4, &mut state)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
    }

    #[test]
    fn every_governor_is_combined_with_every_switch_of_numa_balancing() {
        use clap::Parser as _;

        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: HostCompareArguments,
        }
        let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
        let labels = |line: &str| {
            let words = ["warmcore"].into_iter().chain(line.split_whitespace()).chain(["--", "true"]);
            let found = configurations(&Line::parse_from(words).arguments, &machine);
            found
                .map(|found| found.iter().map(|one| (one.label.clone(), one.wanted.settings.len())).collect::<Vec<_>>())
        };
        assert_eq!(labels("").unwrap(), [("eevdf on all".to_owned(), 0)]);
        let found = labels("--governor performance,schedutil --numa-balancing on,off --set /proc/sys/vm/swappiness=1");
        let expected = [
            "eevdf on all, performance, NUMA balancing on",
            "eevdf on all, performance, NUMA balancing off",
            "eevdf on all, schedutil, NUMA balancing on",
            "eevdf on all, schedutil, NUMA balancing off",
        ];
        assert_eq!(found.unwrap(), expected.map(|label| (label.to_owned(), 4)));
        assert!(labels("--governor performance,performance").is_err(), "asked for twice");
        let offline = labels("--governor performance --cpus 0 --set-cpus offline").unwrap();
        assert_eq!(offline, [("eevdf on 0, performance".to_owned(), 1)], "who is offline has no governor");
    }

    #[test]
    fn sets_of_cpus_are_those_of_the_machine() {
        let machine = warmcore_topology::resolve("2s1n1l2c2t").unwrap();
        let cpus = |text: &str| cpu_set(text, &machine).map(|set| set.map(|set| set.to_string()));
        assert_eq!(cpus("all").unwrap(), None);
        assert_eq!(cpu_set("one-socket", &machine).unwrap().unwrap().len(), 4);
        assert_eq!(cpu_set("smt-off", &machine).unwrap().unwrap().len(), 4);
        assert!(cpus("99").unwrap_err().contains("there is no CPU 99"));
        assert!(cpus("a-b").is_err());
    }

    #[test]
    fn a_difference_smaller_than_the_baselines_own_is_none() {
        let trials = |factor: f64| -> Vec<Option<f64>> {
            (0..12).map(|k| Some(factor * (1.0 + 0.001 * f64::from(k % 3)))).collect()
        };
        let comparison = compare_trials(Design::Blocked, &trials(1.0), &trials(1.03), Better::Lower).unwrap();
        assert_eq!(finding(&comparison, 1.05, Better::Lower), "not distinguishable");
        assert_eq!(finding(&comparison, 1.01, Better::Lower), "worse");
        assert_eq!(finding(&comparison, 1.01, Better::Higher), "better");
    }
}
