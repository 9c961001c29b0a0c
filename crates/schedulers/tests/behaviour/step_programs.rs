//! The table of programs (`tests/programs/table.rs`) in the simulated kernel, under every scheduler.

#[path = "../../../../tests/programs/table.rs"]
mod table;

use table::{Case, End, Seen, SeenTask};

use crate::support::{Run, Scene};

fn seen(case: &Case, scheduler: &str) -> Seen {
    let Run { outcome, .. } =
        Scene { workload: case.workload.clone(), actions: Vec::new() }.run("1s1n1l4c1t", scheduler);
    let end = match outcome.end {
        warmcore_trace::End::AllExited => End::AllExited,
        warmcore_trace::End::Stopped => End::Stopped,
        warmcore_trace::End::TimeLimit => panic!("{}: nothing limits its time", case.says),
    };
    let task = |task: &warmcore_trace::TaskOutcome| SeenTask {
        role: task.role.clone(),
        completed: task.exited_ns.is_some(),
        cpu_ns: task.cpu_time_ns,
    };
    Seen {
        end,
        elapsed_ns: outcome.elapsed_ns,
        tasks: outcome.tasks.iter().map(task).collect(),
        recorded: outcome.recorders.iter().map(|recorder| (recorder.count(), recorder.min())).collect(),
    }
}

#[test]
fn simulated_tasks_do_what_programs_say() {
    // With exact memory work takes longer than programs say.
    for scheduler in warmcore_schedulers::list().iter().filter(|row| !row.needs_sets) {
        for case in table::cases() {
            let seen = seen(&case, scheduler.name);
            case.check(scheduler.name, &seen);
            assert_eq!(case.short_of_cpu_time(&seen), [], "{}: {}", scheduler.name, case.says);
        }
    }
}
