//! A process of the workload: a child of process 1 with an address space and a session of its own.
//!
//! It reads its task ([`Order`]) from standard input, says `ready`, waits for the instant of the start, runs, and writes
//! its report to standard output. All processes of a workload start at the same instant.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};
use warmcore_agent::report::{ProcessReport, TaskReport};
use warmcore_native::{Calibration, Ended, NativeOutcome};
use warmcore_workload::{Options, from_rtapp};

/// The argument that makes this program a worker.
pub const ARGUMENT: &str = "worker";

/// What a worker is told.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// Its part of the workload, in rt-app's format.
    pub workload: String,
    /// Which processes of the workload it stands for.
    pub processes: Vec<u32>,
    /// Speed of the computing loop, measured once per boot.
    pub iterations_per_ms: u64,
    /// End of the run even if tasks still run.
    pub time_limit_ns: Option<u64>,
}

/// Does the order.
pub fn run() -> Result<(), String> {
    let mut lines = std::io::stdin().lock().lines();
    let mut next = || lines.next().and_then(Result::ok).ok_or("the order is missing");
    let order: Order = serde_json::from_str(&next()?).map_err(|error| format!("the order: {error}"))?;
    let workload = from_rtapp("workload", &order.workload, &Options::default())
        .map_err(|error| format!("the workload: {error}"))?;
    // A session of its own, as programs started from a terminal have: task groups of sessions (autogroup) follow it.
    let _ = rustix::process::setsid();
    say("ready")?;
    let start_ns: u64 = next()?.parse().map_err(|error| format!("the start: {error}"))?;
    let options = warmcore_native::Options {
        time_limit_ns: order.time_limit_ns,
        calibration: Some(Calibration { iterations_per_ms: order.iterations_per_ms }),
        // An emulated CPU has no speed of its own: it shares the emulator's with all others.
        work_is_cpu_time: true,
        start_at_ns: Some(start_ns),
        stop: None,
    };
    let outcome = warmcore_native::run(&workload, &options).map_err(|error| error.to_string())?;
    let report = serde_json::to_string(&report(order.processes, outcome)).map_err(|error| error.to_string())?;
    say(&report)
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| format!("cannot report: {error}"))
}

fn report(processes: Vec<u32>, outcome: NativeOutcome) -> ProcessReport {
    let ended = match outcome.ended {
        Ended::AllExited => "all_exited",
        Ended::Duration => "duration",
        Ended::StopStep => "stop_step",
        Ended::TimeLimit => "time_limit",
        Ended::Interrupted => "interrupted",
    };
    let task = |task: &warmcore_native::TaskOutcome| TaskReport {
        template: task.template.0,
        number: task.number,
        thread: task.thread,
        cpu_ns: task.cpu_ns,
        completed: task.completed,
    };
    ProcessReport {
        processes,
        launcher: std::process::id() as i32,
        ended: ended.into(),
        start_ns: outcome.start_ns,
        elapsed_ns: outcome.elapsed_ns,
        tasks: outcome.tasks.iter().map(task).collect(),
        samples: outcome.samples,
        warnings: outcome
            .warnings
            .into_iter()
            .map(|warning| (warning.what, warning.consequence, warning.count))
            .collect(),
        iterations_per_ms: outcome.calibration.iterations_per_ms,
    }
}
