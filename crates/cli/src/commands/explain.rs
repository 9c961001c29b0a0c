//! `warmcore explain`: why a task changed its CPU, and what happened when, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::session::pretty;
use warmcore_report::explain::{Migration, MigrationRecord, Migrations, in_words};
use warmcore_report::history::Form;
use warmcore_report::placement::{LastPlacement, Placement, PlacementRecord, last_place_in_words};
use warmcore_report::run::{ReportOptions, Run};
use warmcore_report::scene::Scene;
use warmcore_report::units::duration;
use warmcore_report::waits::{Occupant, TaskWaits, Waits};
use warmcore_trace::{TaskInfo, Tee};

use crate::args::ExplainArguments;
use crate::commands::recording::Imported;
use crate::commands::report::{history, report_failure};
use crate::console::Console;
use crate::failure::Failure;
use crate::signals::Signals;

/// The document of `explain --json`.
#[derive(Serialize)]
struct ExplainDocument {
    schema: &'static str,
    tool_version: &'static str,
    schedulers: Vec<SchedulerDocument>,
}

/// The migrations of one scheduler's trial in it.
#[derive(Serialize)]
struct SchedulerDocument {
    scheduler: String,
    trial: usize,
    /// Migrations that there are, of which these are the ones asked for.
    count: usize,
    migrations: Vec<MigrationRecord>,
    /// Where the task was placed last up to the time, and why, if both were given and it is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_placement: Option<PlacementRecord>,
    /// Who had the CPU while the task that was asked for waited for one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waited_behind: Vec<Behind>,
}

/// Who had the CPU while a task waited for one, and for how long of all its waits.
#[derive(Serialize)]
struct Behind {
    who: String,
    ns: u64,
}

/// Lines of a task's waits.
const MOST_BEHIND: usize = 8;

/// Of the task that was asked for, those with the most time first.
fn waited_behind(scene: &Scene, arguments: &ExplainArguments, waits: &[TaskWaits]) -> Vec<Behind> {
    let mut sums: BTreeMap<Occupant, u64> = BTreeMap::new();
    let chosen = |info: &&TaskInfo| arguments.task.as_ref() == Some(&info.name);
    for of_task in scene.tasks.iter().filter(chosen).filter_map(|info| waits.get(info.id.index())) {
        of_task.behind_ns.iter().for_each(|(who, ns)| *sums.entry(*who).or_default() += ns);
    }
    let mut found: Vec<Behind> =
        sums.into_iter().map(|(who, ns)| Behind { who: who.name(&scene.tasks, &scene.tables), ns }).collect();
    found.sort_by_key(|behind| std::cmp::Reverse(behind.ns));
    found
}

/// What the events of a trial tell.
struct Found {
    migrations: Vec<Migration>,
    /// Of a task at a time: where it was placed last.
    last: Option<Placement>,
    waits: Vec<TaskWaits>,
}

/// Runs `explain`.
pub fn explain(arguments: &ExplainArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let (run, _imported) = load(&arguments.run, &signals, console)?;
    run.notes.iter().for_each(|note| console.warn(note));
    let mut chosen: Vec<usize> = (0..run.scenes.len()).collect();
    if let Some(label) = &arguments.scheduler {
        chosen = vec![scheduler(&run, label)?];
    }
    let mut document =
        ExplainDocument { schema: "warmcore-explanation-1", tool_version: TOOL_VERSION, schedulers: Vec::new() };
    for index in chosen {
        let scene = &run.scenes[index];
        let machine = &run.disk.experiment.machine_of(index).value;
        let Found { migrations: found, last, waits } = migrations(&run, index, arguments, &signals)?;
        let all = found.len();
        let shown = nearest(found, arguments.at, arguments.count);
        if console.json() {
            document.schedulers.push(SchedulerDocument {
                scheduler: scene.scheduler.clone(),
                trial: scene.trial,
                count: all,
                migrations: shown
                    .iter()
                    .map(|migration| MigrationRecord::of(migration, machine, &scene.tasks))
                    .collect(),
                last_placement: last.and_then(|last| PlacementRecord::of(&last, machine, &scene.tasks)),
                waited_behind: waited_behind(scene, arguments, &waits),
            });
            continue;
        }
        let mut text = format!("under {}: {} of {all} migrations", scene.scheduler, shown.len());
        if let Some(name) = &arguments.task {
            let _ = write!(text, " of {name}");
        }
        let _ = writeln!(text, ", trial {}", scene.trial);
        if let Some(place) = last.and_then(|last| last_place_in_words(&last, machine, &scene.tasks)) {
            let _ = writeln!(text, "last placement: {place}");
        }
        for behind in waited_behind(scene, arguments, &waits).iter().take(MOST_BEHIND) {
            let _ = writeln!(text, "waited {} for the CPU, held by {}", duration(behind.ns as f64), behind.who);
        }
        shown.iter().for_each(|migration| text.push_str(&in_words(migration, machine, &scene.tasks)));
        text.push('\n');
        console.out_words(&text)?;
    }
    if console.json() { Ok(console.out(&pretty(&document))?) } else { Ok(()) }
}

/// The migrations that were asked for, of the trial of a scheduler; and of a task at a time where it was placed last.
fn migrations(run: &Run, index: usize, arguments: &ExplainArguments, signals: &Signals) -> Result<Found, Failure> {
    let scene = &run.scenes[index];
    if let Some(name) = &arguments.task
        && !scene.tasks.iter().any(|task| task.name == *name)
    {
        let names: Vec<&str> = scene.tasks.iter().take(8).map(|task| task.name.as_str()).collect();
        return Err(Failure::usage("warmcore::explain", format!("the run has no task {name}")).help(format!(
            "its {} tasks are {}, …",
            scene.tasks.len(),
            names.join(", ")
        )));
    }
    let wanted =
        |migration: &Migration| arguments.task.as_ref().is_none_or(|name| scene.task_name(migration.task) == name);
    let mut found: Vec<Migration> = Vec::new();
    let last = arguments.task.as_ref().zip(arguments.at);
    let last = last.map(|(name, at_ns)| LastPlacement::new(&scene.tasks, name, at_ns));
    let machine = &run.disk.experiment.machine_of(index).value;
    let migrations = Migrations::new(machine, &scene.tables, |migration: &Migration| {
        if wanted(migration) {
            found.push(migration.clone());
        }
    });
    let sink = run
        .explained_events_into(
            index,
            Tee::new(Tee::new(migrations, last), Waits::new(machine.cpu_count())),
            &signals.stop,
        )
        .map_err(|error| report_failure(&error, &arguments.run, signals))?;
    let waits = sink.second.finish();
    sink.first.first.finish();
    let last = sink.first.second.and_then(|last| last.found);
    Ok(Found { migrations: found, last, waits })
}

/// The migrations closest to a time, or the first ones, in order of time.
fn nearest(mut found: Vec<Migration>, at_ns: Option<u64>, count: usize) -> Vec<Migration> {
    if let Some(at_ns) = at_ns {
        // The sort is stable: of two that are as close the earlier one is first.
        found.sort_by_key(|migration| migration.time_ns.abs_diff(at_ns));
    }
    found.truncate(count);
    found.sort_by_key(|migration| migration.time_ns);
    found
}

/// Runs `events`.
pub fn events(arguments: &ExplainArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let (run, _imported) = load(&arguments.run, &signals, console)?;
    let index = match &arguments.scheduler {
        Some(label) => scheduler(&run, label)?,
        None => 0,
    };
    if arguments.scheduler.is_none() && run.scenes.len() > 1 {
        console.note(&format!("events under {}; --scheduler names another one", run.scenes[0].scheduler));
    }
    let form = if console.json() { Form::Json } else { Form::Lines };
    console.hands_over_output();
    history(&run, index, form, &arguments.run, &signals)
}

/// The run of a directory, or of a file of another recorder, whose directory is there as long as the second value.
fn load(path: &Path, signals: &Signals, console: &Console) -> Result<(Run, Option<Imported>), Failure> {
    let imported = if path.is_file() { Some(Imported::new(path, 0, signals, console)?) } else { None };
    let path = imported.as_ref().map_or(path, Imported::path);
    let run = Run::load(path, &ReportOptions::default(), &signals.stop)
        .map_err(|error| report_failure(&error, path, signals))?;
    scene(&run, path, None)?;
    Ok((run, imported))
}

/// The scene of that scheduler, or the first one: a run with events of a trial has one.
pub fn scene(run: &Run, path: &Path, label: Option<&str>) -> Result<usize, Failure> {
    if run.scenes.is_empty() {
        let message = format!("{}: there are no events of a trial", path.display());
        return Err(Failure::failed("warmcore::explain", message)
            .help("a run on a real kernel keeps its events with `--trace full`, the default of `compare --on vm`"));
    }
    label.map_or(Ok(0), |label| scheduler(run, label))
}

fn scheduler(run: &Run, label: &str) -> Result<usize, Failure> {
    run.scenes.iter().position(|scene| scene.scheduler == label).ok_or_else(|| {
        let labels: Vec<&str> = run.scenes.iter().map(|scene| scene.scheduler.as_str()).collect();
        Failure::usage("warmcore::explain", format!("the run has no scheduler {label}"))
            .help(format!("it has {}", labels.join(", ")))
    })
}
