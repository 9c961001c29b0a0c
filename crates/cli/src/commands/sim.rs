//! `warmcore sim`: one run, simulated or elsewhere.

use std::sync::Arc;

use warmcore_lab::directory::RunDirectory;
use warmcore_lab::environment::Environment;
use warmcore_lab::experiment::Experiment;
use warmcore_lab::runner::{self, Conduct};
use warmcore_lab::session::{self, pretty};
use warmcore_lab::trial::{Trial, TrialEnd};
use warmcore_options::TraceLevel;
use warmcore_report::trial_text;
use warmcore_schedulers::SchedulerSpec;

use crate::args::SimArguments;
use crate::commands::compare::{directory_failure, run_failure, session_failure, unix_seconds};
use crate::commands::{columns, host, vm};
use crate::console::Console;
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

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
        .strict(console.strict())
        .build()?;
    built.warnings.iter().for_each(|warning| console.warn(warning));
    let experiment = built.experiment;
    let existing = console.existing();
    let begun = arguments.out.as_ref().map(|path| RunDirectory::create_alone(path, existing)).transpose();
    let (directory, _alone) = begun.map_err(directory_failure)?.unzip();
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

    let mut environment = Environment::at_start(console.words(), 1, started);
    let bar = console.phase(if experiment.place.kind().simulated { "simulating" } else { "running" });
    let conduct = Conduct { jobs: 1, stop: Arc::clone(&signals.stop), progress: &|_| {} };
    let finished = runner::run(&experiment, directory.as_ref(), &conduct);
    bar.finish_and_clear();
    let finished = finished.map_err(|error| run_failure(error, directory.as_ref(), &signals))?;
    environment.at_end(unix_seconds(), finished.run_now, finished.seconds);
    if let Some(directory) = &directory {
        session::finish(directory, &experiment, &finished.trials, None, &environment).map_err(session_failure)?;
    }
    for trial in finished.trials.iter().flatten() {
        print(trial, &experiment, console)?;
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

fn print(trial: &Trial, experiment: &Experiment, console: &Console) -> Result<(), Failure> {
    let workload = &experiment.workload_of(0).value;
    if trial.events_lost > 0 {
        console.warn(&format!("{} events were lost: counts are too low", trial.events_lost));
    }
    let unknown: Vec<(&SchedulerSpec, String)> = experiment.unknown().collect();
    for note in &trial.notes {
        match unknown.iter().find(|(_, what)| what == note) {
            Some((spec, what)) => console.warn(&format!("of {spec}, {what}")),
            None => console.warn(note),
        }
    }
    if trial.end == TrialEnd::TimeLimit {
        console.warn("the largest time was reached before the workload's end");
    }
    if console.json() {
        return Ok(console.out(&pretty(trial))?);
    }
    if !trial.result_lines.is_empty() {
        console.note("the lines that look like the imitated program's are simulated numbers");
    }
    Ok(console.out_words(&trial_text::text(trial, workload, console.is_verbose(), |table| console.table(table)))?)
}
