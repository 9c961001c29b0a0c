//! A run of any place as a recording: simulated, of a guest, or of this computer.
//!
//! Task 0 becomes thread 1000, and process 0 process 1000: thread 0 is the idle thread, and the numbers after it are the kernel's.

use std::collections::BTreeMap;

use warmcore_capture::{Context, Record, Recording, Thread, What};
use warmcore_trace::{Event, EventKind, TaskId, TaskInfo};

/// Thread id of the first task, process id of the first process.
const FIRST: i32 = 1000;

/// Makes a recording of a run's events, in order of time.
#[must_use]
pub fn recording(events: impl IntoIterator<Item = Event>, tasks: &[TaskInfo], events_lost: u64) -> Recording {
    let threads: BTreeMap<i32, Thread> = tasks
        .iter()
        .map(|task| {
            (
                thread(task.id),
                Thread { name: task.name.clone(), process: Some(FIRST.saturating_add(task.process as i32)) },
            )
        })
        .collect();
    let lost = warmcore_capture::Loss { cpu: None, before_ns: None, events: Some(events_lost) };
    Recording {
        source: "run".into(),
        threads,
        records: events.into_iter().filter_map(record).collect(),
        lost: (events_lost > 0).then_some(lost).into_iter().collect(),
        ..Recording::default()
    }
    .finished()
}

fn record(event: Event) -> Option<Record> {
    let mut by = 0;
    let mut context = Context::Thread;
    let what = match event.kind {
        EventKind::Switch { prev, prev_state, next } => {
            by = thread(prev);
            What::Switch { prev: by, state: prev_state, next: thread(next) }
        }
        EventKind::Waking { task, target_cpu, waker } => {
            by = thread(waker);
            if waker.is_idle() {
                context = Context::HardInterrupt;
            }
            What::Waking { thread: thread(task), target_cpu: target_cpu.0 }
        }
        EventKind::Wakeup { task, .. } => What::Wakeup { thread: thread(task), target_cpu: event.cpu.0 },
        EventKind::Migrate { task, from, to, .. } => What::Migrate { thread: thread(task), from: from.0, to: to.0 },
        EventKind::Fork { parent, child } => What::Fork { parent: thread(parent), child: thread(child) },
        EventKind::Exit { task } => What::Exit { thread: thread(task) },
        _ => return None,
    };
    Some(Record { time_ns: event.time_ns, cpu: event.cpu.0, by, context, what })
}

fn thread(task: TaskId) -> i32 {
    if task.is_idle() { 0 } else { FIRST.saturating_add(task.0 as i32) }
}
