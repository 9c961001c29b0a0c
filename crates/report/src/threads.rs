//! What each thread of a trial did and waited for, a row each, and its single waits in words: who had the CPU meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use warmcore_topology::Machine;
use warmcore_trace::{RecordedThread, RunTables, TaskId, TaskInfo};

use crate::explain::seconds;
use crate::table::Table;
use crate::units::duration;
use crate::waits::{Occupant, TaskWaits, Wait};

/// A thread in a document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ThreadRecord {
    task: String,
    task_id: u32,
    /// The number that its kernel gave it, where it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<i32>,
    stays: u64,
    run_ns: u64,
    wakeups: u64,
    /// From wakings until it ran, and from preemptions until it ran again.
    wakeup_wait_ns: u64,
    preempt_wait_ns: u64,
    /// Runnable but kept from running by a quota or reservation, outside of these waits.
    #[serde(skip_serializing_if = "is_zero")]
    throttled_ns: u64,
    preemptions: u64,
    /// Who came instead, and how often; the most frequent ones, first the most frequent.
    preempted_by: Vec<Preemptor>,
    /// The longest wait after a waking, when it ended, and whether the trial ended before the thread ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_wakeup_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_wakeup_at_ns: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    worst_wakeup_open: bool,
    /// Who had the CPU while it waited, and how long; the longest ones, the longest first.
    waited_behind: Vec<Behind>,
    /// Who woke it from its sleeps, and how long these were; the longest ones, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocked_until_woken: Vec<Behind>,
    /// How the table names it.
    #[serde(skip)]
    label: String,
}

/// Others that a thread's record names.
const MOST_NAMED: usize = 8;

/// Who came instead of a thread that could have run on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Preemptor {
    who: String,
    times: u64,
}

/// Who had the CPU while a thread waited for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Behind {
    /// Name.
    pub who: String,
    /// For how long of the thread's waits, ns.
    pub ns: u64,
}

/// A wait in a document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WaitRecord {
    task: String,
    task_id: u32,
    from_ns: u64,
    to_ns: u64,
    after: &'static str,
    /// Whether the trial ended before it ran.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    open: bool,
    behind: Vec<PartRecord>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct PartRecord {
    cpu: u32,
    who: String,
    from_ns: u64,
    to_ns: u64,
}

/// The name of a task: as it was recorded, with its kernel's number, or its name and number in the run.
pub fn thread_name(tasks: &[TaskInfo], tables: &RunTables, task: TaskId) -> String {
    let Some(info) = tasks.get(task.index()) else { return "idle".into() };
    let recorded = tables.threads.get(task.index()).map(RecordedThread::label);
    recorded.filter(|label| *label == info.name).unwrap_or_else(|| format!("{}/{}", info.name, task.0))
}

/// What is counted for each, the most first, the first of equals before.
fn most_first<'a>(
    counts: &'a BTreeMap<Occupant, u64>,
    tasks: &'a [TaskInfo],
    tables: &'a RunTables,
) -> impl Iterator<Item = (String, u64)> + 'a {
    let mut all: Vec<(Occupant, u64)> = counts.iter().map(|(who, count)| (*who, *count)).collect();
    all.sort_by_key(|(who, count)| (Reverse(*count), *who));
    all.into_iter().map(|(who, count)| (who.name(tasks, tables), count))
}

/// Who had the CPU while a thread waited, the longest first.
pub fn behind<'a>(
    waits: &'a BTreeMap<Occupant, u64>,
    tasks: &'a [TaskInfo],
    tables: &'a RunTables,
) -> impl Iterator<Item = Behind> + 'a {
    most_first(waits, tasks, tables).map(|(who, ns)| Behind { who, ns })
}

fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

impl ThreadRecord {
    /// Every task of the run, in its order.
    pub fn of_all(waits: &[TaskWaits], tasks: &[TaskInfo], tables: &RunTables) -> Vec<Self> {
        let of = |(task, waits): (&TaskInfo, &TaskWaits)| Self {
            task: task.name.clone(),
            task_id: task.id.0,
            thread: tables.threads.get(task.id.index()).map(|known| known.thread),
            stays: waits.stays,
            run_ns: waits.run_ns,
            wakeups: waits.wakeups,
            wakeup_wait_ns: waits.wakeup_wait_ns,
            preempt_wait_ns: waits.preempt_wait_ns,
            throttled_ns: waits.throttled_ns,
            preemptions: waits.preemptions,
            preempted_by: most_first(&waits.preempted_by, tasks, tables)
                .take(MOST_NAMED)
                .map(|(who, times)| Preemptor { who, times })
                .collect(),
            worst_wakeup_ns: waits.worst_wakeup.map(|worst| worst.length_ns),
            worst_wakeup_at_ns: waits.worst_wakeup.map(|worst| worst.end_ns),
            worst_wakeup_open: waits.worst_wakeup.is_some_and(|worst| !worst.ran),
            waited_behind: behind(&waits.behind_ns, tasks, tables).take(MOST_NAMED).collect(),
            blocked_until_woken: behind(&waits.blocked_ns, tasks, tables).take(MOST_NAMED).collect(),
            label: thread_name(tasks, tables, task.id),
        };
        tasks.iter().zip(waits).map(of).collect()
    }

    /// Its task.
    pub fn task(&self) -> TaskId {
        TaskId(self.task_id)
    }

    /// Time in which it could have run and did not.
    pub fn waited_ns(&self) -> u64 {
        self.wakeup_wait_ns + self.preempt_wait_ns
    }
}

/// A line for each thread: how long it ran, and waited after wakeups and preemptions; who preempted it; its worst wakeup and when that ended;
/// who had the CPU longest while it waited, or, if it never did, who woke it from the longest sleeps.
pub fn thread_table<'a>(threads: impl IntoIterator<Item = &'a ThreadRecord>) -> Table {
    let threads: Vec<&ThreadRecord> = threads.into_iter().collect();
    // Where no quota stopped a thread there is no column for that.
    let throttled = threads.iter().any(|thread| thread.throttled_ns > 0);
    // A recording may have none of all wakeups.
    let has_wakeups = threads.iter().any(|thread| thread.wakeups > 0);
    let mut heads = vec!["thread", ">stays", ">run", ">wakeup wait", ">preempt wait"];
    heads.extend(throttled.then_some(">throttled"));
    heads.extend([">preempted", "most by", "worst wakeup, at", "waited most for"]);
    let mut table = Table::new(heads);
    for thread in threads {
        let time = |ns: u64| duration(ns as f64);
        let worst = thread.worst_wakeup_ns.zip(thread.worst_wakeup_at_ns).map(|(ns, at_ns)| {
            let open = if thread.worst_wakeup_open { ", not over" } else { "" };
            format!("{} at {} s{open}", time(ns), seconds(at_ns))
        });
        let by = thread.preempted_by.first().map(|by| format!("{} ({})", by.who, by.times));
        let behind = thread.waited_behind.first().map(|behind| format!("{}, {}", behind.who, time(behind.ns)));
        // Where it waited for no CPU, what kept it may have been a lock.
        let blocked = thread.blocked_until_woken.first();
        let behind =
            behind.or_else(|| blocked.map(|by| format!("no CPU; slept until {} woke it, {}", by.who, time(by.ns))));
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut row = vec![
            thread.label.clone(),
            thread.stays.to_string(),
            time(thread.run_ns),
            or_none(has_wakeups.then(|| time(thread.wakeup_wait_ns))),
            time(thread.preempt_wait_ns),
        ];
        row.extend(throttled.then(|| time(thread.throttled_ns)));
        row.extend([thread.preemptions.to_string(), or_none(by), or_none(worst), or_none(behind)]);
        table.row(row);
    }
    table
}

/// Parts of a wait that are told one by one.
const MOST_PARTS: usize = 12;

/// A wait in words: a line about it, then one for each thread that had the CPU meanwhile.
pub fn wait_in_words(wait: &Wait, machine: &Machine, tasks: &[TaskInfo], tables: &RunTables) -> String {
    let after = if wait.preempted { "its preemption" } else { "its wakeup" };
    let open = if wait.ran { "" } else { ", and has not run when the trial ends" };
    let length = |from_ns: u64, to_ns: u64| duration((to_ns - from_ns) as f64);
    let mut text = format!(
        "{} {} waited {} after {after}{open}\n",
        seconds(wait.from_ns),
        thread_name(tasks, tables, wait.task),
        length(wait.from_ns, wait.to_ns)
    );
    for part in wait.parts.iter().take(MOST_PARTS) {
        let (who, took) = (part.who.name(tasks, tables), length(part.from_ns, part.to_ns));
        let _ = writeln!(text, "  {} {} had {who} for {took}", seconds(part.from_ns), machine.os_cpu(part.cpu));
    }
    if let Some(first) = wait.parts.get(MOST_PARTS) {
        let (count, took) = (wait.parts.len() - MOST_PARTS, length(first.from_ns, wait.to_ns));
        let _ = writeln!(text, "  {} {count} more, in {took}", seconds(first.from_ns));
    }
    text
}

impl WaitRecord {
    /// The wait with its names.
    pub fn of(wait: &Wait, machine: &Machine, tasks: &[TaskInfo], tables: &RunTables) -> Self {
        Self {
            task: tasks.get(wait.task.index()).map(|info| info.name.clone()).unwrap_or_default(),
            task_id: wait.task.0,
            from_ns: wait.from_ns,
            to_ns: wait.to_ns,
            after: if wait.preempted { "preemption" } else { "wakeup" },
            open: !wait.ran,
            behind: wait
                .parts
                .iter()
                .map(|part| PartRecord {
                    cpu: machine.os_index(part.cpu),
                    who: part.who.name(tasks, tables),
                    from_ns: part.from_ns,
                    to_ns: part.to_ns,
                })
                .collect(),
        }
    }
}
