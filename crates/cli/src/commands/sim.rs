//! `warmcore sim`: one run, simulated or elsewhere.

use std::sync::Arc;

use warmcore_lab::directory::RunDirectory;
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::Experiment;
use warmcore_lab::measures;
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::session::{self, pretty};
use warmcore_lab::time_split;
use warmcore_lab::trial::{Trial, TrialEnd};
use warmcore_lab::{decisions, operations};
use warmcore_options::TraceLevel;
use warmcore_schedulers::SchedulerSpec;
use warmcore_workload::Workload;

use crate::args::SimArguments;
use crate::commands::compare::{directory_failure, run_failure, session_failure, unix_seconds};
use crate::commands::verdict_table::{operations_table, time_table};
use crate::commands::{columns, host, vm};
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;
use crate::units::{self, with_unit};

/// Runs the verb.
pub fn run(arguments: SimArguments, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let started = unix_seconds();
    if arguments.trace.level == TraceLevel::Full && arguments.out.is_none() {
        return Err(Failure::usage("warmcore::usage", "--trace full needs a directory").help("name one with --out"));
    }
    let scheduler = configuration(&arguments)?;
    let kind = arguments.on.kind;
    let machine = load::machine(&arguments.subject.machine)?;
    let machine = load::with_background(machine, arguments.subject.background.as_deref())?;
    if arguments.on.host.dry_run {
        return host::dry_run(&arguments.on.host, &[scheduler], &machine.value, console);
    }
    let subject = &arguments.subject;
    let mut workload = load::workload_for(&machine.value, &subject.workload, &subject.profiles, console)?;
    load::check_profiles(&subject.profiles, kind.simulated, arguments.memory.memory)?;
    load::aggregate(&mut workload, &arguments.subject.aggregate)?;
    load::warn_unmodelled(&workload.value, console);
    let asked = |machine, workload| {
        Experiment::builder(machine, workload)
            .seeds(vec![arguments.seed])
            .memory(arguments.memory.memory)
            .smt_slowdown_percent(arguments.memory.smt_slowdown)
            .background_chosen(arguments.subject.background.is_some())
            .options(arguments.run.options(None))
            .metric(Some("elapsed_ns".into()))
    };
    let manner = columns::Manner {
        workload: Some(&subject.workload),
        profiles: &subject.profiles,
        aggregate: &subject.aggregate,
        background: subject.background.as_deref(),
    };
    let schedulers = std::slice::from_ref(&scheduler);
    let inputs = columns::inputs(schedulers, (&machine, &workload), &[], &manner, &asked, console)?;
    let built = asked(machine, workload)
        .place(vm::place(&arguments.on, schedulers, console)?)
        .schedulers(vec![scheduler])
        .inputs(inputs)
        .options(arguments.run.options(Some(arguments.trace)))
        .trace(Some(arguments.trace.level))
        .build()?;
    built.warnings.iter().for_each(|warning| console.warn(warning));
    let experiment = built.experiment;
    let existing = console.existing();
    let directory = arguments.out.as_ref().map(|path| RunDirectory::create(path, existing)).transpose();
    let directory = directory.map_err(directory_failure)?;
    if let Some(directory) = &directory {
        session::begin(directory, &experiment).map_err(session_failure)?;
    }
    console.note(&format!(
        "{} on {} under {}, seed {}, {}",
        experiment.workload_of(0).source,
        experiment.machine_of(0).source,
        experiment.schedulers[0],
        arguments.seed,
        match experiment.place.kind().simulated {
            true => load::memory_in_words(experiment.options.memory).to_owned(),
            false => experiment.place.identity(),
        }
    ));

    let mut environment = Environment::at_start(std::env::args().collect(), 1, started);
    let conduct = Conduct { jobs: 1, stop: Arc::clone(&signals.stop), progress: &|_| {} };
    let finished = runner::run(&experiment, directory.as_ref(), &conduct)
        .map_err(|error| run_failure(error, directory.as_ref(), &signals))?;
    environment.at_end(unix_seconds(), finished.run_now, finished.seconds);
    if let Some(directory) = &directory {
        session::finish(directory, &experiment, &finished.trials, None, &environment).map_err(session_failure)?;
    }
    for trial in finished.trials.iter().flatten() {
        print(trial, &experiment.workload_of(0).value, console)?;
    }
    if let Some(directory) = &directory {
        console.note(&format!("run directory: {}", directory.path().display()));
    }
    Ok(())
}

/// The scheduler in the circumstances that are asked for, which must be one.
fn configuration(arguments: &SimArguments) -> Result<SchedulerSpec, Failure> {
    let mut found = arguments.on.host.configurations(vec![load::scheduler(&arguments.scheduler)?]);
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (_, others) => {
            let message = format!("a run has one configuration, and --on host asks for {}", others + 1);
            Err(Failure::usage("warmcore::host", message).help("give each setting once; `compare` runs all of them"))
        }
    }
}

fn print(trial: &Trial, workload: &Workload, console: &Console) -> Result<(), Failure> {
    if trial.events_lost > 0 {
        console.warn(&format!("{} events were lost: counts are too low", trial.events_lost));
    }
    trial.notes.iter().for_each(|note| console.warn(note));
    if trial.end == TrialEnd::TimeLimit {
        console.warn("the largest time was reached before the workload's end");
    }
    if console.json() {
        return Ok(console.out(&pretty(trial))?);
    }
    let mut text = String::new();
    if !trial.result_lines.is_empty() {
        console.note("the lines that look like the imitated program's are simulated numbers");
        text.push_str(&trial.result_lines.join("\n"));
        text.push_str("\n\n");
    }
    text.push_str(&console.table(&measure_table(trial, workload, console.is_verbose())));
    text.push('\n');
    text.push_str(&console.table(&task_table(trial)));
    let labels = [trial.scheduler.clone()];
    if let Some(split) = time_split::of_trials(&labels, 0, &[vec![trial.clone()]]) {
        text.push('\n');
        text.push_str(&console.table(&time_table(&split)));
    }
    if !trial.background.is_empty() {
        text.push('\n');
        text.push_str(&console.table(&background_table(trial)));
    }
    let operations = operations::of_trials(std::slice::from_ref(trial));
    if !operations.is_empty() {
        text.push('\n');
        text.push_str(&console.table(&operations_table(&trial.scheduler, &operations)));
    }
    let decisions = decisions::of_trials(std::slice::from_ref(trial));
    if !decisions.is_empty() {
        text.push('\n');
        decisions.iter().for_each(|decision| text.push_str(&format!("{}\n", decision.in_words())));
    }
    Ok(console.out(&text)?)
}

/// Every measure that has a value other than 0, with its definition if that is asked for.
fn measure_table(trial: &Trial, workload: &Workload, definitions: bool) -> Table {
    let headings = ["metric", ">value", "definition"];
    let columns = if definitions { 3 } else { 2 };
    let mut table = Table::new(headings.into_iter().take(columns));
    for measure in measures::of_workload(workload) {
        if let Some(value) = measure.value(trial).filter(|value| *value != 0.0) {
            let row = [measure.name, with_unit(value, measure.unit), measure.definition];
            table.row(row.into_iter().take(columns));
        }
    }
    table
}

/// What threads of the kernel itself and interrupts took, those of one kind together.
fn background_table(trial: &Trial) -> Table {
    let mut table = Table::new(["kernel threads, interrupts", ">number", ">wakeups, arrivals", ">CPU time"]);
    for thread in &trial.background {
        let time = with_unit(thread.cpu_time_ns as f64, measures::Unit::Ns);
        table.row([thread.name.clone(), thread.threads.to_string(), thread.wakeups.to_string(), time]);
    }
    table
}

/// CPU time by application and role: tasks of one role are shown together.
fn task_table(trial: &Trial) -> Table {
    let mut table = Table::new(["application", "role", ">tasks", ">exited", ">CPU time", ">least", ">most"]);
    let mut groups: Vec<(u32, &str)> = Vec::new();
    for task in &trial.tasks {
        if !groups.contains(&(task.application, &task.role)) {
            groups.push((task.application, &task.role));
        }
    }
    for (application, role) in groups {
        let tasks: Vec<_> =
            trial.tasks.iter().filter(|task| (task.application, task.role.as_str()) == (application, role)).collect();
        let times = || tasks.iter().map(|task| task.cpu_time_ns);
        let name = trial.applications.get(application as usize).map_or("", |application| &application.name);
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| units::duration(ns as f64));
        table.row([
            name.to_owned(),
            role.to_owned(),
            tasks.len().to_string(),
            tasks.iter().filter(|task| task.exited_ns.is_some()).count().to_string(),
            time(Some(times().sum())),
            time(times().min()),
            time(times().max()),
        ]);
    }
    table
}
