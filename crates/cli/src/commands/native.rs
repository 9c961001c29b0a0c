//! `warmcore workload run`: the programs of a workload, run by real threads on this computer.

use std::sync::Arc;

use serde::Serialize;
use warmcore_agent::report::ProcessReport;
use warmcore_lab::session::pretty;
use warmcore_lab::verdict::describe_warning;
use warmcore_native::{Ended, NativeError, NativeOptions, NativeOutcome};
use warmcore_workload::{Warning, Workload};

use crate::commands::as_document;
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::units;

/// The document of `workload run --json`.
#[derive(Serialize)]
struct NativeDocument<'a> {
    workload: &'a str,
    ended: &'static str,
    elapsed_ns: u64,
    loop_iterations_per_ms: u64,
    tasks: Vec<TaskEntry<'a>>,
    recorders: Vec<RecorderEntry<'a>>,
    result_lines: Vec<&'a str>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct TaskEntry<'a> {
    name: &'a str,
    number: u32,
    cpu_time_ns: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    steps: u64,
    completed: bool,
}

#[derive(Serialize)]
struct RecorderEntry<'a> {
    name: &'a str,
    samples_ns: &'a [u64],
}

/// Runs the workload and prints what came of it.
pub fn run(workload: &Workload, max_time: Option<u64>, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let options = options(max_time, &signals);
    console.note(&format!("{}: running with real threads on this computer", workload.name));
    let outcome = warmcore_native::run(workload, &options).map_err(failure)?;
    for warning in all_warnings(workload, &outcome) {
        console.warn(&describe_warning(warning));
    }
    if outcome.ended == Ended::TimeLimit {
        console.warn("the largest time was reached before the workload's end");
    }
    let text = match console.json() {
        true => as_document("warmcore-native-1", &document(workload, &outcome)),
        false => text(workload, &outcome, console),
    };
    console.out_words(&text)?;
    if outcome.ended == Ended::Interrupted {
        return Err(signals.failure("interrupted; what was printed is what had happened until then"));
    }
    Ok(())
}

/// Runs the workload and prints what the place `host` reads: threads by their numbers, and when they began.
pub fn report(workload: &Workload, max_time: Option<u64>, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let outcome = warmcore_native::run(workload, &options(max_time, &signals)).map_err(failure)?;
    let processes = (0..workload.processes.len() as u32).collect();
    Ok(console.out(&pretty(&ProcessReport::of_native(processes, outcome)))?)
}

fn options(max_time: Option<u64>, signals: &Signals) -> NativeOptions {
    NativeOptions {
        time_limit_ns: max_time,
        stop: Some(Arc::clone(&signals.stop)),
        work_is_cpu_time: is_emulated(),
        // That of a simulation's first trial.
        seed: 1,
        ..NativeOptions::default()
    }
}

/// Whether CPUs have no speed of their own, because they share that of their emulator.
fn is_emulated() -> bool {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpus.lines().any(|line| line.starts_with("model name") && line.contains("QEMU TCG"))
}

fn failure(error: NativeError) -> Failure {
    match &error {
        NativeError::Check(_) | NativeError::Command(_) | NativeError::Hotplug | NativeError::Isolated => {
            Failure::usage("warmcore::workload", error)
        }
        NativeError::LockOfKernel(_) => Failure::unable("warmcore::native", error)
            .help("simulate the workload (warmcore sim), or make the lock a latch"),
        NativeError::NoCpus { .. } => Failure::unable("warmcore::native", error)
            .help("this computer does not have the CPUs that the workload asks for; change its affinities"),
        NativeError::Policy { .. } => Failure::unable("warmcore::native", error)
            .help("run it as root, or simulate it (warmcore sim) or boot a guest for it (--on vm)"),
        NativeError::UtilClamp { .. } => Failure::unable("warmcore::native", error).help(
            "leave out \"util_min\" and \"util_max\", or simulate it (warmcore sim) or boot a guest for it (--on vm)",
        ),
        NativeError::Heap { .. }
        | NativeError::Thread { .. }
        | NativeError::Channel { .. }
        | NativeError::Barrier { .. } => {
            Failure::unable("warmcore::native", error).help("raise the limit, or make the workload smaller")
        }
        NativeError::Call { .. } | NativeError::Measuring { .. } | NativeError::Panic { .. } => {
            Failure::failed("warmcore::native", error)
        }
    }
}

fn document<'a>(workload: &'a Workload, outcome: &'a NativeOutcome) -> NativeDocument<'a> {
    let task = |task: &warmcore_native::TaskOutcome| TaskEntry {
        name: &workload.tasks[task.template.index()].name,
        number: task.number,
        cpu_time_ns: task.cpu_ns,
        voluntary_switches: task.voluntary_switches,
        involuntary_switches: task.involuntary_switches,
        steps: task.steps,
        completed: task.completed,
    };
    let recorders = workload.recorders.iter().zip(&outcome.samples);
    NativeDocument {
        workload: &workload.name,
        ended: match outcome.ended {
            Ended::AllExited => "all_exited",
            Ended::Duration | Ended::StopStep => "stopped",
            Ended::TimeLimit => "time_limit",
            Ended::Interrupted => "interrupted",
        },
        elapsed_ns: outcome.elapsed_ns,
        loop_iterations_per_ms: outcome.calibration.iterations_per_ms,
        tasks: outcome.tasks.iter().map(task).collect(),
        recorders: recorders.map(|(name, samples)| RecorderEntry { name, samples_ns: samples }).collect(),
        result_lines: outcome.lines.iter().flat_map(|lines| lines.lines()).collect(),
        warnings: all_warnings(workload, outcome).map(describe_warning).collect(),
    }
}

/// What the workload warns of, and what was not done as it asks.
fn all_warnings<'a>(workload: &'a Workload, outcome: &'a NativeOutcome) -> impl Iterator<Item = &'a Warning> {
    workload.warnings.iter().chain(&outcome.warnings)
}

fn text(workload: &Workload, outcome: &NativeOutcome, console: &Console) -> String {
    let mut text = outcome.lines.as_ref().map(|lines| format!("{lines}\n")).unwrap_or_default();
    let mut table = Table::new(["task", ">tasks", ">completed", ">CPU time", ">voluntary", ">involuntary"]);
    for (index, template) in workload.tasks.iter().enumerate() {
        let tasks: Vec<_> = outcome.tasks.iter().filter(|task| task.template.index() == index).collect();
        table.row([
            template.name.clone(),
            tasks.len().to_string(),
            tasks.iter().filter(|task| task.completed).count().to_string(),
            units::duration(tasks.iter().map(|task| task.cpu_ns).sum::<u64>() as f64),
            tasks.iter().map(|task| task.voluntary_switches).sum::<u64>().to_string(),
            tasks.iter().map(|task| task.involuntary_switches).sum::<u64>().to_string(),
        ]);
    }
    text.push_str(&format!("elapsed  {}\n\n{}", units::duration(outcome.elapsed_ns as f64), console.table(&table)));
    text
}
