//! `warmcore explain`: what each thread waited for, why a task changed its CPU, and what happened when, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use warmcore_places::recorded;
use warmcore_report::explain::{Migration, MigrationRecord, Migrations, in_words};
use warmcore_report::history::Form;
use warmcore_report::placement::{LastPlacement, Placement, PlacementRecord, last_place_in_words};
use warmcore_report::run::{ReportOptions, Run};
use warmcore_report::scene::Scene;
use warmcore_report::threads::{Behind, ThreadRecord, WaitRecord, behind, thread_table, wait_in_words};
use warmcore_report::units::duration;
use warmcore_report::waits::{Occupant, TaskWaits, Wait, Waits};
use warmcore_trace::{TaskId, TaskInfo, Tee};

use crate::args::ExplainArguments;
use crate::commands::as_document;
use crate::commands::recording::Imported;
use crate::commands::report::{history, report_failure};
use crate::console::Console;
use crate::failure::Failure;
use crate::signals::Signals;

mod schedstat;

/// The migrations of one scheduler's trial in the document.
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
    /// What every task did and waited for, or those that were asked for.
    threads: Vec<ThreadRecord>,
    /// Who had the CPU while the task that was asked for waited for one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waited_behind: Vec<Behind>,
    /// Single waits of the task that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<WaitRecord>,
}

/// Lines of a task's waits.
const MOST_BEHIND: usize = 8;
/// Lines of threads: those that waited longest.
const MOST_THREADS: usize = 20;

/// Who had the CPU while the tasks that were asked for waited, those with the most time first.
fn waited_behind(scene: &Scene, wanted: Option<&BTreeSet<TaskId>>, waits: &[TaskWaits]) -> Vec<Behind> {
    let mut sums: BTreeMap<Occupant, u64> = BTreeMap::new();
    for of_task in wanted.into_iter().flatten().filter_map(|task| waits.get(task.index())) {
        of_task.behind_ns.iter().for_each(|(who, ns)| *sums.entry(*who).or_default() += ns);
    }
    behind(&sums, &scene.tasks, &scene.tables).collect()
}

/// What the events of a trial tell.
struct TrialEvents {
    migrations: Vec<Migration>,
    /// Of a task at a time: where it was placed last.
    last: Option<Placement>,
    /// Of every task.
    threads: Vec<TaskWaits>,
    waits: Vec<Wait>,
}

/// The table of threads, those that waited longest first, and how many it leaves out.
fn threads_in_words(threads: &[ThreadRecord], console: &Console) -> String {
    let mut longest: Vec<&ThreadRecord> = threads.iter().collect();
    longest.sort_by_key(|thread| std::cmp::Reverse(thread.waited_ns()));
    let mut text = console.plain_table(&thread_table(longest.iter().copied().take(MOST_THREADS)));
    if longest.len() > MOST_THREADS {
        let more = longest.len() - MOST_THREADS;
        let _ = writeln!(text, "{more} more threads waited less; --events and --json have them too");
    }
    text
}

/// Runs `explain`.
pub fn explain(arguments: &ExplainArguments, console: &Console) -> Result<(), Failure> {
    if let Some(wanted) = arguments.run.to_str().and_then(|text| text.strip_prefix("schedstat:")) {
        return schedstat::run(wanted, arguments, console);
    }
    let signals = Signals::listen()?;
    let (run, _imported) = load(&arguments.run, &signals, console)?;
    run.notes.iter().for_each(|note| console.warn(note));
    let mut chosen: Vec<usize> = (0..run.scenes.len()).collect();
    if let Some(label) = &arguments.scheduler {
        chosen = vec![scheduler(&run, label)?];
    }
    let mut schedulers = Vec::new();
    // The scheduler of a recording is whichever its kernel had.
    let is_recorded = run.disk.experiment.place.kind().name == recorded::KIND.name;
    for index in chosen {
        let scene = &run.scenes[index];
        let machine = &run.disk.experiment.machine_of(index).value;
        let wanted = arguments.task.as_deref().map(|text| tasks_of(scene, text)).transpose()?;
        let bar = console.phase("reading the events");
        let found = found(&run, index, arguments, wanted.as_ref(), &signals);
        bar.finish_and_clear();
        let TrialEvents { migrations: found, last, threads, waits } = found?;
        let behind = waited_behind(scene, wanted.as_ref(), &threads);
        let mut threads = ThreadRecord::of_all(&threads, &scene.tasks, &scene.tables);
        threads.retain(|thread| wanted.as_ref().is_none_or(|wanted| wanted.contains(&thread.task())));
        let all = found.len();
        let shown = nearest(found, arguments.at, arguments.count);
        if console.json() {
            schedulers.push(SchedulerDocument {
                scheduler: if is_recorded { recorded::KIND.name.to_owned() } else { scene.scheduler.clone() },
                trial: scene.trial,
                count: all,
                migrations: shown
                    .iter()
                    .map(|migration| MigrationRecord::of(migration, machine, &scene.tasks))
                    .collect(),
                last_placement: last.and_then(|last| PlacementRecord::of(&last, machine, &scene.tasks)),
                threads,
                waited_behind: behind,
                waits: waits.iter().map(|wait| WaitRecord::of(wait, machine, &scene.tasks, &scene.tables)).collect(),
            });
            continue;
        }
        let under = if is_recorded { "as recorded".to_owned() } else { format!("under {}", scene.scheduler) };
        let mut text = format!("{under}: {} of {all} migrations", shown.len());
        if let Some(name) = &arguments.task {
            let _ = write!(text, " of {name}");
        }
        let _ = writeln!(text, ", trial {}", scene.trial);
        if let Some(place) = last.and_then(|last| last_place_in_words(&last, machine, &scene.tasks)) {
            let _ = writeln!(text, "last placement: {place}");
        }
        for behind in behind.iter().take(MOST_BEHIND) {
            let _ = writeln!(text, "waited {} for the CPU, held by {}", duration(behind.ns as f64), behind.who);
        }
        text.push_str(&threads_in_words(&threads, console));
        waits.iter().for_each(|wait| text.push_str(&wait_in_words(wait, machine, &scene.tasks, &scene.tables)));
        shown.iter().for_each(|migration| text.push_str(&in_words(migration, machine, &scene.tasks)));
        text.push('\n');
        console.out_words(&text)?;
    }
    if console.json() {
        console.out(&as_document("warmcore-explanation-1", &BTreeMap::from([("schedulers", schedulers)])))?;
    }
    Ok(())
}

/// The tasks that a text names: by their whole name, by the number and name that a kernel gave them, or as explanations write them.
fn tasks_of(scene: &Scene, text: &str) -> Result<BTreeSet<TaskId>, Failure> {
    let recorded = |task: &TaskInfo| scene.tables.threads.get(task.id.index());
    let number = text.parse::<i64>().ok();
    let of_kernel = |task: &TaskInfo| {
        recorded(task).is_some_and(|known| Some(i64::from(known.thread)) == number || known.name == text)
    };
    let of_run = |task: &TaskInfo| {
        recorded(task).is_none() && Some(i64::from(task.id.0)) == number
            || text.strip_prefix(&task.name).is_some_and(|rest| rest == format!("/{}", task.id.0))
    };
    let rules: [&dyn Fn(&TaskInfo) -> bool; 3] = [&|task| task.name == text, &of_kernel, &of_run];
    let found = rules
        .iter()
        .map(|rule| scene.tasks.iter().filter(|task| rule(task)).map(|task| task.id).collect::<BTreeSet<TaskId>>());
    found.into_iter().find(|found| !found.is_empty()).ok_or_else(|| {
        let names: Vec<&str> = scene.tasks.iter().take(8).map(|task| task.name.as_str()).collect();
        Failure::usage("warmcore::explain", format!("the run has no task {text}")).help(format!(
            "its {} tasks are {}, …",
            scene.tasks.len(),
            names.join(", ")
        ))
    })
}

/// The migrations and waits that were asked for, of the trial of a scheduler; and of a task at a time where it was placed last.
fn found(
    run: &Run,
    index: usize,
    arguments: &ExplainArguments,
    wanted: Option<&BTreeSet<TaskId>>,
    signals: &Signals,
) -> Result<TrialEvents, Failure> {
    let scene = &run.scenes[index];
    let mut found: Vec<Migration> = Vec::new();
    let last = wanted.zip(arguments.at).map(|(wanted, at_ns)| LastPlacement::new(wanted, at_ns));
    let machine = &run.disk.experiment.machine_of(index).value;
    let migrations = Migrations::new(machine, &scene.tables, |migration: &Migration| {
        if wanted.is_none_or(|wanted| wanted.contains(&migration.task)) {
            found.push(migration.clone());
        }
    });
    let waits =
        Waits::new(machine.cpu_count()).keeping(wanted.cloned().unwrap_or_default(), arguments.at, arguments.count);
    let sink = run
        .explained_events_into(index, Tee::new(Tee::new(migrations, last), waits), &signals.stop)
        .map_err(|error| report_failure(&error, &arguments.run, signals))?;
    let (threads, waits) = sink.second.finish(scene.end_ns);
    sink.first.first.finish();
    let last = sink.first.second.and_then(|last| last.found);
    Ok(TrialEvents { migrations: found, last, threads, waits })
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
    history(&run, index, (form, console.columns()), &arguments.run, &signals)
}

/// The run of a directory, or of a file of another recorder, whose directory is there as long as the second value.
fn load(path: &Path, signals: &Signals, console: &Console) -> Result<(Run, Option<Imported>), Failure> {
    let is_file = path.exists() && !path.is_dir();
    let imported = if is_file { Some(Imported::new(path, 0, signals, console)?) } else { None };
    let path = imported.as_ref().map_or(path, Imported::path);
    let bar = console.phase("loading the run");
    let run = Run::load(path, &ReportOptions::default(), &signals.stop);
    bar.finish_and_clear();
    let run = run.map_err(|error| report_failure(&error, path, signals))?;
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
