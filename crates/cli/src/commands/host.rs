//! `warmcore host`: what this computer can do, undoing what experiments left, and what `compare --on host` is asked for.

use std::path::Path;

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::session::pretty;
use warmcore_places::host::journal::{self, Undone};
use warmcore_places::host::place::{Host, JOURNAL, Manner, ROOT, release};
use warmcore_places::host::state::Means;
use warmcore_places::host::survey::{Finding, Presence, survey};
use warmcore_places::place::{Place as _, PlaceError};
use warmcore_schedulers::{Circumstances, SchedulerSpec};
use warmcore_topology::Machine;

use crate::args::{HostArguments, HostCommand, SetCpus, Switch};
use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::load;

/// Runs the verb.
pub fn run(command: HostCommand, console: &Console) -> Result<(), Failure> {
    match command {
        HostCommand::Doctor { json } => doctor(json, console),
        HostCommand::Restore { dry_run, json } => restore(dry_run, json, console),
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
    let changes = journal::restore(Path::new(JOURNAL), Path::new(ROOT), dry_run)
        .map_err(|error| load::place_failure(error.into(), None))?;
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

/// How trials on this computer are made.
pub fn manner(arguments: &HostArguments) -> Result<Manner, Failure> {
    let usage = |message: String| Failure::usage("warmcore::host", message);
    let setting = |text: &String| {
        let (path, value) = text.split_once('=').ok_or_else(|| usage(format!("`{text}` is not PATH=VALUE")))?;
        let kernels = path.starts_with("/sys/") || path.starts_with("/proc/sys/");
        if kernels && !path.contains("..") {
            Ok((path.to_owned(), value.to_owned()))
        } else {
            Err(usage(format!("{path} is no setting of the kernel: those are below /sys and /proc/sys")))
        }
    };
    let own = std::env::current_exe().map_err(|error| Failure::failed("warmcore::host", error))?;
    let own = own.into_os_string().into_string();
    let own = own.map_err(|path| usage(format!("the path of this program is no text: {}", path.display())))?;
    let runner = [&own, "-q", "workload", "run", "--report"].map(str::to_owned).into();
    Ok(Manner {
        release: release(),
        means: match arguments.set_cpus {
            SetCpus::Affinity => Means::Affinity,
            SetCpus::Partition => Means::Partition,
            SetCpus::Offline => Means::Offline,
        },
        warm_up_rounds: arguments.warm_up_rounds,
        runner,
        settings: arguments.settings.iter().map(setting).collect::<Result<_, _>>()?,
        replace: arguments.replace,
    })
}

/// Every scheduler under every combination of the circumstances that are asked for.
pub fn configurations(schedulers: Vec<SchedulerSpec>, arguments: &HostArguments) -> Vec<SchedulerSpec> {
    let mut all = vec![Circumstances::default()];
    if !arguments.cpus.is_empty() {
        let with = |cpus: &String| (cpus != "all").then(|| cpus.clone());
        all = cross(&all, &arguments.cpus, |cpus, circumstances| circumstances.cpus = with(cpus));
    }
    if !arguments.governor.is_empty() {
        all = cross(&all, &arguments.governor, |governor, circumstances| {
            circumstances.governor = Some(governor.clone());
        });
    }
    if !arguments.numa_balancing.is_empty() {
        all = cross(&all, &arguments.numa_balancing, |switch, circumstances| {
            circumstances.numa_balancing = Some(*switch == Switch::On);
        });
    }
    let of = |scheduler: &SchedulerSpec| all.iter().map(|one| scheduler.under(one.clone())).collect::<Vec<_>>();
    match arguments.has_none() {
        // A scheduler's own text may have circumstances.
        true => schedulers,
        false => schedulers.iter().flat_map(of).collect(),
    }
}

/// Each of the circumstances with each value.
fn cross<T>(all: &[Circumstances], values: &[T], set: impl Fn(&T, &mut Circumstances)) -> Vec<Circumstances> {
    let with = |one: &Circumstances, value: &T| {
        let mut one = one.clone();
        set(value, &mut one);
        one
    };
    all.iter().flat_map(|one| values.iter().map(|value| with(one, value)).collect::<Vec<_>>()).collect()
}

/// The document of `compare --on host --dry-run --json`.
#[derive(Serialize)]
pub struct Plan {
    schema: &'static str,
    tool_version: &'static str,
    /// What experiments on this computer are.
    place: String,
    configurations: Vec<PlannedChanges>,
}

/// What one configuration would change before each of its trials.
#[derive(Serialize)]
struct PlannedChanges {
    configuration: String,
    changes: Vec<String>,
}

impl Plan {
    /// What every configuration would change.
    pub fn of(schedulers: &[SchedulerSpec], manner: Manner, machine: &Machine) -> Result<Self, PlaceError> {
        let host = Host::new(manner);
        let planned = |scheduler: &SchedulerSpec| {
            let wanted = host.wanted(machine, scheduler)?;
            wanted.check(machine, Path::new(ROOT))?;
            Ok(PlannedChanges { configuration: scheduler.to_string(), changes: wanted.in_words(machine) })
        };
        let configurations = schedulers.iter().map(planned).collect::<Result<_, PlaceError>>()?;
        Ok(Self {
            schema: "warmcore-host-plan-1",
            tool_version: TOOL_VERSION,
            place: host.identity().to_string(),
            configurations,
        })
    }

    /// The same as text.
    pub fn in_words(&self) -> String {
        let steps = |one: &PlannedChanges| {
            let changes: String = one.changes.iter().map(|change| format!("  {change}\n")).collect();
            format!("{}:\n{changes}", one.configuration)
        };
        format!("{}\n", self.place) + &self.configurations.iter().map(steps).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_governor_is_combined_with_every_switch_of_numa_balancing_and_every_set_of_cpus() {
        let labels = |arguments: &HostArguments| {
            let found = configurations(vec![SchedulerSpec::parse("eevdf").unwrap()], arguments);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(labels(&HostArguments::default()), ["eevdf"]);
        let arguments = HostArguments {
            cpus: vec!["all".into(), "0-1".into()],
            governor: vec!["performance".into()],
            numa_balancing: vec![Switch::On, Switch::Off],
            ..HostArguments::default()
        };
        let expected = [
            "eevdf @ governor=performance numa_balancing=on",
            "eevdf @ governor=performance numa_balancing=off",
            "eevdf @ cpus=0-1 governor=performance numa_balancing=on",
            "eevdf @ cpus=0-1 governor=performance numa_balancing=off",
        ];
        assert_eq!(labels(&arguments), expected);
    }

    #[test]
    fn only_settings_of_the_kernel_are_written() {
        let of = |text: &str| manner(&HostArguments { settings: vec![text.to_owned()], ..HostArguments::default() });
        assert!(of("/etc/passwd=x").is_err() && of("/sys/../etc/passwd=x").is_err() && of("/proc/sys/vm/x").is_err());
        let expected = [("/proc/sys/vm/swappiness".to_owned(), "1".to_owned())];
        assert_eq!(of("/proc/sys/vm/swappiness=1").unwrap().settings, expected);
    }
}
