//! A run of any place as a recording: simulated, of a guest, or of this computer.
//!
//! Threads of a recorded run have the numbers that they had, and those beside its tasks are in the recording. Of a simulated run task 0
//! becomes thread 1000, and process 0 process 1000: thread 0 is the idle thread, and the numbers after it are the kernel's.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_capture::{Context, Record, Recording, Thread, What};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{Event, EventKind, PrevState, RecordedThread, RunTables, TaskId, TaskInfo};

/// Thread id of the first task, process id of the first process.
const FIRST: i32 = 1000;

/// Makes a recording of a run's events, in order of time, and says which of its threads were the run's tasks. `tables` are those that the
/// events refer to, `machine` is the run's, whose CPUs a recording names by the operating system's numbers, and `end_ns` is the run's end:
/// what ran at the last event ran until then.
pub fn recording(
    events: impl IntoIterator<Item = Event>,
    tables: &RunTables,
    tasks: &[TaskInfo],
    machine: &Machine,
    (events_lost, end_ns): (u64, u64),
) -> (Recording, BTreeSet<i32>) {
    let mut threads: BTreeMap<i32, Thread> = BTreeMap::new();
    for task in tasks {
        let process = Some(FIRST.saturating_add(task.process as i32));
        let simulated = || (FIRST.saturating_add(task.id.0 as i32), Thread { name: task.name.clone(), process });
        let (id, thread) = tables.threads.get(task.id.index()).map_or_else(simulated, known);
        threads.insert(id, thread);
    }
    let own = threads.keys().copied().collect();
    for (id, thread) in tables.foreign.iter().map(known) {
        threads.entry(id).or_insert(thread);
    }
    let mut reader = RunReader { tables, machine, on: BTreeMap::new(), records: Vec::new() };
    events.into_iter().for_each(|event| reader.take(event));
    let lost = warmcore_capture::Loss { cpu: None, before_ns: None, events: Some(events_lost) };
    let recording = Recording {
        source: "run".into(),
        threads,
        records: reader.records,
        end_ns: Some(end_ns),
        lost: (events_lost > 0).then_some(lost).into_iter().collect(),
        ..Recording::default()
    }
    .finished();
    (recording, own)
}

fn known(thread: &RecordedThread) -> (i32, Thread) {
    (thread.thread, Thread { name: thread.name.clone(), process: thread.process })
}

struct RunReader<'a> {
    tables: &'a RunTables,
    machine: &'a Machine,
    /// By CPU: the thread beside the run's tasks that has it.
    on: BTreeMap<CpuId, i32>,
    records: Vec<Record>,
}

impl RunReader<'_> {
    fn take(&mut self, event: Event) {
        let mut by = self.on.get(&event.cpu).copied().unwrap_or(0);
        let mut context = Context::Thread;
        let cpu = self.machine.os_index(event.cpu);
        let what = match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                // A thread beside the run's leaves for a task; how, is not told.
                let other = self.on.remove(&event.cpu);
                by = other.unwrap_or_else(|| self.thread(prev));
                let state = if other.is_some() { PrevState::Sleeping } else { prev_state };
                What::Switch { prev: by, state, next: self.thread(next), uninterruptible: false }
            }
            EventKind::Foreign { thread } => {
                let next = thread.and_then(|thread| self.tables.foreign.get(thread as usize)).map(|known| known.thread);
                let prev = match next {
                    Some(next) => self.on.insert(event.cpu, next),
                    None => self.on.remove(&event.cpu),
                };
                if self.comes_instead(event, next) {
                    return;
                }
                let state = if prev.is_some() { PrevState::Sleeping } else { PrevState::Idle };
                What::Switch { prev: prev.unwrap_or(0), state, next: next.unwrap_or(0), uninterruptible: false }
            }
            EventKind::Waking { task, target_cpu, waker } => {
                by = self.thread(waker);
                if waker.is_idle() {
                    context = Context::HardInterrupt;
                }
                What::Waking { thread: self.thread(task), target_cpu: self.machine.os_index(target_cpu) }
            }
            EventKind::Wakeup { task, .. } => What::Wakeup { thread: self.thread(task), target_cpu: cpu },
            EventKind::Migrate { task, from, to, .. } => What::Migrate {
                thread: self.thread(task),
                from: self.machine.os_index(from),
                to: self.machine.os_index(to),
            },
            EventKind::Fork { parent, child } => What::Fork { parent: self.thread(parent), child: self.thread(child) },
            EventKind::Exit { task } => What::Exit { thread: self.thread(task) },
            _ => return,
        };
        self.records.push(Record { time_ns: event.time_ns, cpu, by, context, what });
    }

    /// Whether a task left the CPU right before, for this thread: then that switch names it.
    fn comes_instead(&mut self, event: Event, thread: Option<i32>) -> bool {
        let Some(last) = self
            .records
            .last_mut()
            .filter(|last| (last.time_ns, last.cpu) == (event.time_ns, self.machine.os_index(event.cpu)))
        else {
            return false;
        };
        match (&mut last.what, thread) {
            (What::Switch { next, .. }, Some(thread)) if *next == 0 => {
                *next = thread;
                true
            }
            _ => false,
        }
    }

    fn thread(&self, task: TaskId) -> i32 {
        let simulated = || FIRST.saturating_add(task.0 as i32);
        if task.is_idle() {
            0
        } else {
            self.tables.threads.get(task.index()).map_or_else(simulated, |known| known.thread)
        }
    }
}
