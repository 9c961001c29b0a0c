//! What ran when in a trial: an entry for each slice and each migration, in the columns of `perf sched timehist` or as a document.

use std::io::{self, Write};

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{
    Event, EventKind, MigrationKind, PlaceReason, PrevState, RunTables, SearchStart, Sink, Slice, SliceBuilder,
    SliceEnd, TaskId, TaskInfo,
};

use crate::explain::{seconds, task_name};
use crate::threads::{ThreadRecord, thread_table};
use crate::units::duration;
use crate::waits::Waits;

/// How the history is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A line for each entry: when it ended, CPU, task, and with the meanings of `perf sched timehist` how long the task had been off the CPU
    /// (wait time), how long of that it had been awake after a wakeup (sch delay), how long it ran; how it left, and, where a wakeup
    /// brought it there and it is told why, where the search for its CPU began and how it ended.
    Lines,
    /// One JSON document, an entry a line.
    Json,
}

/// Which trial of which run it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject<'a> {
    /// Label of the scheduler.
    pub scheduler: &'a str,
    /// Number of the trial.
    pub trial: usize,
    /// Its tasks.
    pub tasks: &'a [TaskInfo],
    /// What its events refer to.
    pub tables: &'a RunTables,
    /// Its machine.
    pub machine: &'a Machine,
    /// Its end.
    pub end_ns: u64,
    /// Characters in a line of what its text is written to, if that is known: longer lines go on in the next one.
    pub columns: Option<usize>,
}

/// Writes the history while events come.
pub struct TimeHistory<'a, W> {
    out: W,
    form: Form,
    tasks: &'a [TaskInfo],
    builder: SliceBuilder,
    /// When each task last left a CPU, and how.
    left: Vec<Option<(u64, SliceEnd)>>,
    waits: Waits,
    tables: &'a RunTables,
    machine: &'a Machine,
    end_ns: u64,
    columns: Option<usize>,
    /// Entries written.
    entries: u64,
}

/// An entry of the document.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum HistoryEntry<'a> {
    Slice {
        time_ns: u64,
        cpu: u32,
        task: &'a str,
        task_id: u32,
        start_ns: u64,
        /// Off the CPU, asleep or not, since it ran last; absent for the first time.
        #[serde(skip_serializing_if = "Option::is_none")]
        wait_ns: Option<u64>,
        /// Of that, from its waking until it ran; absent after a preemption, and where the events do not tell.
        #[serde(skip_serializing_if = "Option::is_none")]
        sch_delay_ns: Option<u64>,
        /// Runnable without a CPU, after a waking or a preemption; absent where the events do not tell.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_delay_ns: Option<u64>,
        state: &'static str,
        /// Why the wakeup before it placed it there; absent where nobody told.
        #[serde(skip_serializing_if = "Option::is_none")]
        search_start: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        search_step: Option<&'static str>,
    },
    Migration {
        time_ns: u64,
        cpu: u32,
        task: &'a str,
        task_id: u32,
        from: u32,
        to: u32,
        kind: &'static str,
    },
}

impl<'a, W: Write> TimeHistory<'a, W> {
    /// Begins the history of a trial.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut out: W, form: Form, subject: Subject<'a>) -> io::Result<Self> {
        match form {
            Form::Lines => {
                let heading = ["time", "cpu", "task name", "wait time", "sch delay", "run time", "state", "placed"];
                line(&mut out, &heading.map(str::to_owned), subject.columns)?;
                line(&mut out, &["(s)", "", "", "", "", "", "", ""].map(str::to_owned), subject.columns)?;
            }
            Form::Json => {
                let scheduler = serde_json::to_string(subject.scheduler)?;
                write!(
                    out,
                    "{{\n  \"schema\": \"warmcore-events-1\",\n  \"tool_version\": \"{TOOL_VERSION}\",\n  \"scheduler\": {scheduler},\n  \
                     \"trial\": {},\n  \"events\": [",
                    subject.trial
                )?;
            }
        }
        Ok(Self {
            out,
            form,
            tasks: subject.tasks,
            builder: SliceBuilder::new(),
            left: Vec::new(),
            waits: Waits::new(subject.machine.cpu_count()),
            tables: subject.tables,
            machine: subject.machine,
            end_ns: subject.end_ns,
            columns: subject.columns,
            entries: 0,
        })
    }

    /// Writes what is left: what runs when the trial ends, and the line of each thread.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let open: Vec<Slice> = self.builder.open_slices(self.end_ns).collect();
        for slice in &open {
            let left = self.left.get(slice.task.index()).copied().flatten();
            self.ran(slice, left)?;
        }
        let (waits, _) = std::mem::replace(&mut self.waits, Waits::new(0)).finish(self.end_ns);
        let threads = ThreadRecord::of_all(&waits, self.tasks, self.tables);
        match self.form {
            Form::Json => {
                let tasks = serde_json::to_string_pretty(&threads)?.replace('\n', "\n  ");
                write!(self.out, "\n  ],\n  \"tasks\": {tasks}\n}}\n")?;
            }
            Form::Lines => write!(self.out, "\n{}", thread_table(&threads).lay_out(false, false, self.columns))?,
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        if let EventKind::Migrate { task, from, to, kind } = event.kind {
            self.migration(event, task, (from, to), kind)?;
        }
        let slice = self.builder.push(event)?;
        let EventKind::Switch { prev, prev_state, .. } = event.kind else { return Ok(()) };
        if prev.is_idle() {
            return Ok(());
        }
        if prev.index() >= self.left.len() {
            self.left.resize(prev.index() + 1, None);
        }
        let end = match prev_state {
            PrevState::Runnable => SliceEnd::Runnable,
            PrevState::Dead => SliceEnd::Dead,
            PrevState::Sleeping | PrevState::Idle => SliceEnd::Sleeping,
        };
        // Also of a stay whose beginning was not recorded, so that it is no slice.
        let left = self.left[prev.index()].replace((event.time_ns, end));
        slice.map_or(Ok(()), |slice| self.ran(&slice, left))
    }

    /// Writes a slice of a task that left its CPU before as `left` says.
    fn ran(&mut self, slice: &Slice, left: Option<(u64, SliceEnd)>) -> io::Result<()> {
        let wait = left.map(|(left_ns, _)| slice.start_ns.saturating_sub(left_ns));
        // Who was preempted was not woken.
        let woken = left.is_none_or(|(_, end)| end != SliceEnd::Runnable);
        self.slice(slice, wait, slice.run_delay_ns.filter(|_| woken))
    }

    fn slice(&mut self, slice: &Slice, wait: Option<u64>, delay: Option<u64>) -> io::Result<()> {
        let state = match slice.end {
            SliceEnd::Runnable => "R",
            SliceEnd::Sleeping => "S",
            SliceEnd::Dead => "X",
            SliceEnd::Open => "-",
        };
        if self.form == Form::Json {
            return self.entry(&HistoryEntry::Slice {
                time_ns: slice.end_ns,
                cpu: self.machine.os_cpu(slice.cpu).0,
                task: name(self.tasks, slice.task),
                task_id: slice.task.0,
                start_ns: slice.start_ns,
                wait_ns: wait,
                sch_delay_ns: delay,
                run_delay_ns: slice.run_delay_ns,
                state,
                search_start: slice.placed.map(|placed| placed.start.name()),
                search_step: slice.placed.map(|placed| placed.step.name()),
            });
        }
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| duration(ns as f64));
        let cells = [
            seconds(slice.end_ns),
            self.machine.os_cpu(slice.cpu).to_string(),
            task_name(self.tasks, slice.task),
            time(wait),
            time(delay),
            time(Some(slice.end_ns - slice.start_ns)),
            state.to_owned(),
            slice.placed.map_or_else(String::new, placed),
        ];
        line(&mut self.out, &cells, self.columns)
    }

    fn migration(
        &mut self,
        event: &Event,
        task: TaskId,
        (from, to): (CpuId, CpuId),
        kind: MigrationKind,
    ) -> io::Result<()> {
        let [cpu, from, to] = [event.cpu, from, to].map(|cpu| self.machine.os_cpu(cpu));
        if self.form == Form::Json {
            return self.entry(&HistoryEntry::Migration {
                time_ns: event.time_ns,
                cpu: cpu.0,
                task: name(self.tasks, task),
                task_id: task.0,
                from: from.0,
                to: to.0,
                kind: kind.name(),
            });
        }
        let words = format!("migrated from {from} to {to} ({})", kind.name());
        let time = seconds(event.time_ns);
        let head = head(&time, &cpu.to_string(), &task_name(self.tasks, task), self.columns);
        ended(&mut self.out, &head, &words, self.columns)
    }

    fn entry(&mut self, entry: &HistoryEntry<'_>) -> io::Result<()> {
        let before = if self.entries == 0 { "\n    " } else { ",\n    " };
        self.entries += 1;
        write!(self.out, "{before}{}", serde_json::to_string(entry)?)
    }
}

impl<W: Write> Sink for TimeHistory<'_, W> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        self.waits.events(batch)?;
        batch.iter().try_for_each(|event| self.event(event))
    }
}

fn name(tasks: &[TaskInfo], task: TaskId) -> &str {
    tasks.get(task.index()).map_or("idle", |info| &info.name)
}

/// Start and step of a search, the step only where nothing was searched.
fn placed(reason: PlaceReason) -> String {
    match reason.start {
        SearchStart::Nowhere => reason.step.name().to_owned(),
        start => format!("{} > {}", start.name(), reason.step.name()),
    }
}

fn line(
    out: &mut impl Write,
    [time, cpu, task, waited, delay, ran, state, placed]: &[String; 8],
    columns: Option<usize>,
) -> io::Result<()> {
    let head = head(time, cpu, task, columns);
    let times = match is_narrow(columns) {
        true => format!("{waited:>9} {delay:>9} {ran:>9}"),
        false => format!("{waited:>10} {delay:>10} {ran:>10}"),
    };
    ended(out, &format!("{head} {times} {state:<5}"), placed, columns)
}

/// Least characters in a line for columns as wide as those of `perf sched timehist`.
const WIDE: usize = 110;

fn is_narrow(columns: Option<usize>) -> bool {
    columns.is_some_and(|columns| columns < WIDE)
}

/// The first columns of an entry.
fn head(time: &str, cpu: &str, task: &str, columns: Option<usize>) -> String {
    match is_narrow(columns) {
        true => format!("{time:>16} {cpu:<6} {task:<14}"),
        false => format!("{time:>16} {cpu:<8} {task:<24}"),
    }
}

/// Writes an entry; its last words follow below where they leave no room.
fn ended(out: &mut impl Write, entry: &str, last: &str, columns: Option<usize>) -> io::Result<()> {
    let text = format!("{entry} {last}");
    let text = text.trim_end();
    if columns.is_none_or(|columns| text.chars().count() <= columns) {
        return writeln!(out, "{text}");
    }
    writeln!(out, "{}", entry.trim_end())?;
    if last.is_empty() { Ok(()) } else { writeln!(out, "{:24}{last}", "") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{events, tasks};

    /// A task is preempted, comes back unrecorded, sleeps, and is woken.
    #[test]
    fn the_wait_after_a_stay_without_a_beginning_is_that_since_its_end() {
        let (tasks, tables, task, idle) = (tasks(1), RunTables::default(), TaskId(0), TaskId::IDLE);
        let switch = |time_ns, prev, prev_state, next| Event {
            time_ns,
            cpu: CpuId(0),
            kind: EventKind::Switch { prev, prev_state, next },
        };
        let waking = EventKind::Waking { task, target_cpu: CpuId(0), waker: idle };
        let events = [
            switch(0, idle, PrevState::Idle, task),
            switch(10, task, PrevState::Runnable, idle),
            switch(30, task, PrevState::Sleeping, idle),
            Event { time_ns: 40, cpu: CpuId(0), kind: waking },
            switch(55, idle, PrevState::Idle, task),
            switch(60, task, PrevState::Sleeping, idle),
        ];
        let machine = &warmcore_topology::resolve("1s1n1l1c1t").unwrap();
        let subject = Subject {
            scheduler: "eevdf",
            trial: 0,
            tasks: &tasks,
            tables: &tables,
            machine,
            end_ns: 60,
            columns: None,
        };
        let mut history = TimeHistory::new(Vec::new(), Form::Json, subject).unwrap();
        history.events(&events).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&history.finish().unwrap()).unwrap();
        let slice = &document["events"][1];
        assert_eq!((&slice["wait_ns"], &slice["sch_delay_ns"]), (&25.into(), &15.into()), "{document}");
    }

    fn history(form: Form) -> String {
        let tasks = tasks(2);
        let tables = RunTables::default();
        let machine = warmcore_topology::resolve("1s1n1l4c1t").unwrap();
        let (tables, machine) = (&tables, &machine);
        let subject =
            Subject { scheduler: "eevdf", trial: 3, tasks: &tasks, tables, machine, end_ns: 3000, columns: None };
        let mut history = TimeHistory::new(Vec::new(), form, subject).unwrap();
        history.events(&events()).unwrap();
        String::from_utf8(history.finish().unwrap()).unwrap()
    }

    #[test]
    fn the_history_has_a_line_for_each_slice_and_each_migration() {
        let text = history(Form::Lines);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..3], ["time", "cpu", "task"]);
        assert_eq!(
            lines[2],
            ["0.000001000", "cpu2", "worker-1/1", "migrated", "from", "cpu0", "to", "cpu2", "(steal)"]
        );
        assert_eq!(lines[3], ["0.000003000", "cpu2", "worker-1/1", "-", "995", "ns", "2", "us", "S"]);
    }

    #[test]
    fn no_entry_is_wider_than_the_terminal() {
        let tasks = tasks(2);
        let (tables, machine) = (RunTables::default(), warmcore_topology::resolve("1s1n1l4c1t").unwrap());
        for columns in [80, 120] {
            let subject = Subject {
                scheduler: "eevdf",
                trial: 3,
                tasks: &tasks,
                tables: &tables,
                machine: &machine,
                end_ns: 3000,
                columns: Some(columns),
            };
            let mut history = TimeHistory::new(Vec::new(), Form::Lines, subject).unwrap();
            history.events(&events()).unwrap();
            let text = String::from_utf8(history.finish().unwrap()).unwrap();
            assert!(text.contains("migrated from cpu0 to cpu2 (steal)"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns} columns:\n{text}");
        }
    }

    #[test]
    fn what_runs_when_the_trial_ends_has_a_line_up_to_its_end() {
        let tasks = tasks(1);
        let tables = RunTables::default();
        let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
        let (tables, machine) = (&tables, &machine);
        let subject =
            Subject { scheduler: "eevdf", trial: 0, tasks: &tasks, tables, machine, end_ns: 3000, columns: None };
        let mut history = TimeHistory::new(Vec::new(), Form::Lines, subject).unwrap();
        let kind = EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Idle, next: TaskId(0) };
        history.events(&[Event { time_ns: 1000, cpu: CpuId(0), kind }]).unwrap();
        let text = String::from_utf8(history.finish().unwrap()).unwrap();
        let line: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(line, ["0.000003000", "cpu0", "worker-0/0", "-", "-", "2", "us", "-"]);
    }

    #[test]
    fn the_document_has_the_same_entries_as_the_lines() {
        let document: serde_json::Value = serde_json::from_str(&history(Form::Json)).unwrap();
        assert_eq!((&document["scheduler"], &document["trial"]), (&"eevdf".into(), &3.into()));
        let entries = document["events"].as_array().unwrap();
        assert_eq!(entries.len(), history(Form::Lines).lines().take_while(|line| !line.is_empty()).count() - 2);
        assert_eq!(
            entries[0],
            serde_json::json!({ "event": "migration", "time_ns": 1000, "cpu": 2, "task": "worker-1", "task_id": 1, "from": 0, "to": 2,
                                "kind": "steal" })
        );
        assert_eq!(
            entries[1],
            serde_json::json!({ "event": "slice", "time_ns": 3000, "cpu": 2, "task": "worker-1", "task_id": 1, "start_ns": 1000,
                                "sch_delay_ns": 995, "run_delay_ns": 995, "state": "S" })
        );
    }

    #[test]
    fn columns_mean_what_timehist_means_by_them_and_each_thread_has_a_line() {
        let tasks = tasks(2);
        let tables = RunTables::default();
        let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
        let (tables, machine) = (&tables, &machine);
        let subject =
            Subject { scheduler: "eevdf", trial: 0, tasks: &tasks, tables, machine, end_ns: 300, columns: None };
        let mut history = TimeHistory::new(Vec::new(), Form::Lines, subject).unwrap();
        let (a, b) = (TaskId(0), TaskId(1));
        let event = |time_ns, kind| Event { time_ns, cpu: CpuId(0), kind };
        let switch = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
        let events = [
            event(0, switch(TaskId::IDLE, PrevState::Idle, a)),
            event(100, EventKind::Waking { task: b, target_cpu: CpuId(0), waker: TaskId::IDLE }),
            event(100, EventKind::Wakeup { task: b, reason: None }),
            event(130, switch(a, PrevState::Runnable, b)),
            event(180, switch(b, PrevState::Sleeping, a)),
            event(200, switch(a, PrevState::Sleeping, TaskId::IDLE)),
            event(240, EventKind::Waking { task: b, target_cpu: CpuId(0), waker: TaskId::IDLE }),
            event(240, EventKind::Wakeup { task: b, reason: None }),
            event(250, switch(TaskId::IDLE, PrevState::Idle, b)),
            event(300, switch(b, PrevState::Sleeping, TaskId::IDLE)),
        ];
        history.events(&events).unwrap();
        let text = String::from_utf8(history.finish().unwrap()).unwrap();
        let of = |end: &str| text.lines().find(|line| line.trim_start().starts_with(end)).unwrap().to_owned();
        // It was preempted: off the CPU for 50 ns, and not woken.
        let line = of("0.000000200");
        assert_eq!(
            line.split_whitespace().skip(2).collect::<Vec<_>>(),
            ["worker-0/0", "50", "ns", "-", "20", "ns", "S"]
        );
        // Off the CPU for 70 ns, of which 10 after its wakeup.
        let line = of("0.000000300");
        assert_eq!(
            line.split_whitespace().skip(2).collect::<Vec<_>>(),
            ["worker-1/1", "70", "ns", "10", "ns", "50", "ns", "S"]
        );
        let line = of("worker-1/1");
        assert!(line.contains("30 ns at 0.000000130 s") && line.ends_with("worker-0/0, 30 ns"), "{line}");
        assert!(of("worker-0/0").contains("1  worker-1/1 (1)"), "{text}");
    }
}
