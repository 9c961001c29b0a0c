//! `warmcore doctor host` and `warmcore doctor restore`: what this computer can do, and undoing what experiments left; what `compare --on host` would change.

use std::path::Path;

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::files;
use warmcore_lab::session::pretty;
use warmcore_places::host::journal::{self, JournalError, Undone};
use warmcore_places::host::leftovers;
use warmcore_places::host::place::{Host, JOURNAL, Manner, ROOT};
use warmcore_places::host::settings::Settings;
use warmcore_places::host::survey::{Finding, Presence, survey};
use warmcore_places::place::{Place as _, PlaceError};
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;

use crate::console::{Console, Table};
use crate::failure::{Class, Failure};
use crate::load;

#[derive(Serialize)]
struct SurveyDocument {
    schema: &'static str,
    tool_version: &'static str,
    interfaces: Vec<Finding>,
    /// What killed experiments and recordings left, which `doctor restore` undoes.
    left: Vec<Undone>,
}

/// Says which of the kernel's interfaces are here.
pub fn doctor(console: &Console) -> Result<(), Failure> {
    let interfaces = survey(Path::new(ROOT));
    // While somebody experiments, what is changed is not left behind.
    let left = match left(true) {
        Err(JournalError::Busy(_)) => unjournalled(true),
        left => left.map_err(|error| load::place_failure(error.into(), None))?,
    };
    if console.json() {
        let document =
            SurveyDocument { schema: "warmcore-host-survey-1", tool_version: TOOL_VERSION, interfaces, left };
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
    console.out(&console.table(&table))?;
    if !left.is_empty() {
        console.out_words(&format!(
            "\n{}`warmcore doctor restore` undoes what a killed experiment or recording left\n",
            lines(&left, true)
        ))?;
    }
    Ok(())
}

/// What killed experiments and recordings left; unless `dry_run` says so, it is undone.
fn left(dry_run: bool) -> Result<Vec<Undone>, JournalError> {
    let (directory, root) = (Path::new(JOURNAL), Path::new(ROOT));
    let mut changes = match directory.exists() {
        true => journal::restore(directory, root, dry_run)?,
        false => Vec::new(),
    };
    changes.extend(unjournalled(dry_run));
    Ok(changes)
}

/// What killed commands left that is in no journal.
fn unjournalled(dry_run: bool) -> Vec<Undone> {
    let mut left = leftovers::tracing(Path::new(ROOT), dry_run);
    left.extend(leftovers::temporary_files(&std::env::temp_dir(), Path::new(ROOT), dry_run));
    left
}

#[derive(Serialize)]
struct Restored {
    schema: &'static str,
    tool_version: &'static str,
    dry_run: bool,
    changes: Vec<Undone>,
}

/// Undoes what an experiment left that was killed.
pub fn restore(console: &Console) -> Result<(), Failure> {
    let changes = left(false).map_err(|error| load::place_failure(error.into(), None))?;
    let good = changes.iter().all(Undone::is_good);
    let text =
        if changes.is_empty() { "nothing is left of an experiment\n".to_owned() } else { lines(&changes, false) };
    if console.json() {
        let document =
            Restored { schema: "warmcore-host-restore-1", tool_version: TOOL_VERSION, dry_run: false, changes };
        console.out(&pretty(&document))?;
    } else {
        console.out_words(&text)?;
    }
    if good { Ok(()) } else { Err(not_restored()) }
}

fn lines(changes: &[Undone], dry_run: bool) -> String {
    let line = |change: &Undone| match change {
        Undone::Restored(what) if dry_run => format!("would be restored: {what}\n"),
        Undone::Restored(what) => format!("restored: {what}\n"),
        Undone::Unchanged(what) => format!("as before already: {what}\n"),
        Undone::Left { path, present, old } => {
            format!("left: {path} is `{present}`, which another program has set since; it was `{old}`\n")
        }
        Undone::Failed { path, reason } => format!("failed: {path}: {reason}\n"),
    };
    changes.iter().map(line).collect()
}

fn not_restored() -> Failure {
    Failure::new(Class::State, "warmcore::host", "this computer is not as it was; the journal is kept")
        .help("see above, and undo by hand what is left; `warmcore doctor restore` tries again")
}

/// What runs a workload's file with real threads: this program.
pub fn runner() -> Result<Vec<String>, Failure> {
    let own = files::own_program().map_err(|error| Failure::failed("warmcore::host", error))?;
    let own = own.into_os_string().into_string().map_err(|path| {
        Failure::usage("warmcore::host", format!("the path of this program is not text: {}", path.display()))
    })?;
    Ok([&own, "-q", "workload", "run", "--report"].map(str::to_owned).into())
}

/// Says what every configuration would change of this computer, and changes nothing.
pub fn dry_run(
    settings: &Settings,
    configurations: &[SchedulerSpec],
    machine: &Machine,
    console: &Console,
) -> Result<(), Failure> {
    let plan = HostPlan::of(configurations, settings.manner(runner()?), machine)
        .map_err(|error| load::place_failure(error, None))?;
    Ok(console.out(&if console.json() { pretty(&plan) } else { plan.in_words() })?)
}

/// The document of `compare` and `sim --on host:dry-run --json`.
#[derive(Serialize)]
struct HostPlan {
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

impl HostPlan {
    /// What every configuration would change.
    fn of(schedulers: &[SchedulerSpec], manner: Manner, machine: &Machine) -> Result<Self, PlaceError> {
        let host = Host::new(manner);
        let planned = |scheduler: &SchedulerSpec| {
            let wanted = host.wanted(machine, scheduler)?;
            wanted.check(machine, Path::new(ROOT))?;
            let changes = wanted.in_words(machine, Path::new(ROOT));
            Ok(PlannedChanges { configuration: scheduler.to_string(), changes })
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
    fn in_words(&self) -> String {
        let steps = |one: &PlannedChanges| {
            let changes: String = one.changes.iter().map(|change| format!("  {change}\n")).collect();
            format!("{}:\n{changes}", one.configuration)
        };
        format!("{}\n", self.place) + &self.configurations.iter().map(steps).collect::<String>()
    }
}
