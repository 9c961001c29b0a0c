//! The table of programs (`tests/programs/table.rs`) with real threads.

#[path = "../../../tests/programs/table.rs"]
mod table;

use table::{Case, End, Seen, SeenTask};
use warmcore_native::{Calibration, Ended, NativeOptions, run};

/// What came of a program. One that does not end is stopped after a minute, which no case allows.
fn seen(case: &Case) -> Seen {
    // A loop so slow that work takes next to no time.
    let calibration = Some(Calibration { iterations_per_ms: 1_000 });
    let options = NativeOptions { calibration, time_limit_ns: Some(60_000_000_000), ..NativeOptions::default() };
    let outcome = run(&case.workload, &options).unwrap_or_else(|error| panic!("{}: {error}", case.says));
    let end = match outcome.ended {
        Ended::AllExited => End::AllExited,
        Ended::Duration | Ended::StopStep => End::Stopped,
        other => panic!("{}: {other:?}", case.says),
    };
    let task = |task: &warmcore_native::TaskOutcome| SeenTask {
        role: case.workload.tasks[task.template.index()].role.clone(),
        completed: task.completed,
        cpu_ns: task.cpu_ns,
    };
    let recorded = outcome.samples.iter().map(|samples| (samples.len() as u64, samples.iter().min().copied()));
    Seen {
        end,
        elapsed_ns: outcome.elapsed_ns,
        tasks: outcome.tasks.iter().map(task).collect(),
        recorded: recorded.collect(),
    }
}

#[test]
fn real_threads_do_what_programs_say() {
    for case in table::cases() {
        // A hypervisor takes time that no clock of this computer tells apart, but not in every run.
        let mut short = Vec::new();
        let full = (0..10).any(|_| {
            let seen = seen(&case);
            case.check("real threads", &seen);
            short = case.short_of_cpu_time(&seen);
            short.is_empty()
        });
        assert!(full, "real threads: {}: had less CPU time in each of ten runs: {short:?}", case.says);
    }
}
