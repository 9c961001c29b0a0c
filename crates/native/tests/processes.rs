//! Processes of a workload as processes: a program of its own, because its heap is shared and its children are forgotten.

use warmcore_native::{Ended, NativeOptions, NativeOutcome, SharedHeap, run};
use warmcore_workload::Workload;

#[global_allocator]
static HEAP: SharedHeap = SharedHeap::new();

fn outcome(workload: &Workload) -> NativeOutcome {
    let options = NativeOptions {
        processes: Some(&HEAP),
        time_limit_ns: Some(20_000_000_000),
        work_is_cpu_time: true,
        ..NativeOptions::default()
    };
    run(workload, &options).unwrap()
}

fn generated(text: &str) -> NativeOutcome {
    outcome(&warmcore_workload::from_generator(text).unwrap())
}

fn file(text: &str) -> NativeOutcome {
    outcome(&warmcore_workload::from_rtapp("processes", text, &warmcore_workload::Options::default()).unwrap())
}

/// A single test, because a run with processes is alone in its program.
#[test]
fn processes_wake_each_other_through_pipes_and_through_words_that_they_share() {
    // A process for each task: none is helped, and each task is the main thread of its process.
    let pairs = generated("pingpong:-n3,-l200,-p");
    assert_eq!((pairs.ended, pairs.tasks.len(), pairs.samples[0].len()), (Ended::AllExited, 6, 600));
    assert_eq!((pairs.warnings.len(), pairs.helpers.len()), (0, 0), "{:?}", pairs.warnings);
    assert!(pairs.tasks.iter().all(|task| task.completed && task.thread != std::process::id() as i32));

    // Children that a task begins as processes, and waits for.
    let messaging = generated("hackbench:-P,-p,-g1,-f2,-l100");
    assert_eq!((messaging.ended, messaging.tasks.len()), (Ended::AllExited, 5));
    assert!(messaging.warnings.is_empty(), "{:?}", messaging.warnings);

    // Two processes of two threads each that take one lock and meet at one barrier.
    let task = r#"{"instance": 2, "loop": 300, "lock": "m", "run": 20, "unlock": "m", "barrier": "b"}"#;
    let text = format!(
        r#"{{"tasks": {{"a": {task}, "b": {task}}},
            "warmcore": {{"processes": [{{"name": "p"}}, {{"name": "q"}}], "tasks": {{"b": {{"process": "q"}}}}}}}}"#
    );
    let meeting = file(&text);
    assert_eq!((meeting.ended, meeting.tasks.len(), meeting.helpers.len()), (Ended::AllExited, 4, 2));
    assert!(meeting.tasks.iter().all(|task| task.completed));
    // What a hypervisor takes meanwhile is missing here.
    let cpu_ns: Vec<u64> = meeting.tasks.iter().map(|task| task.cpu_ns).collect();
    assert!(cpu_ns.iter().any(|cpu_ns| *cpu_ns >= 300 * 20_000), "{cpu_ns:?}");

    // What never ends is ended in all processes.
    let mut endless = warmcore_workload::from_generator("pingpong:-n2,-l1,-p").unwrap();
    for step in endless.programs.iter_mut().flat_map(|program| &mut program.steps) {
        if let warmcore_workload::Step::LoopStart { times, .. } = step {
            *times = None;
        }
    }
    endless.duration_ns = Some(50_000_000);
    let stopped = outcome(&endless);
    assert_eq!((stopped.ended, stopped.tasks.len()), (Ended::Duration, 4));
}
