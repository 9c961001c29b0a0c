//! What ran when in a trial: an entry for each slice and each migration, in the columns of `perf sched timehist` or as a document.

use std::io::{self, Write};

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_topology::CpuId;
use warmcore_trace::{
    Event, EventKind, MigrationKind, PlaceReason, SearchStart, Sink, Slice, SliceBuilder, SliceEnd, TaskId, TaskInfo,
};

use crate::explain::{seconds, task_name};
use crate::units::duration;

/// How the history is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A line for each entry: when it ended, CPU, task, how long the task had waited for something, how long it had waited for a CPU,
    /// how long it ran, how it left, and, where a wakeup
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
}

/// Writes the history while events come.
pub struct TimeHistory<'a, W> {
    out: W,
    form: Form,
    tasks: &'a [TaskInfo],
    builder: SliceBuilder,
    /// When each task last left a CPU.
    left_ns: Vec<Option<u64>>,
    /// Entries written.
    entries: u64,
}

/// An entry of the document.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Entry<'a> {
    Slice {
        time_ns: u64,
        cpu: u32,
        task: &'a str,
        task_id: u32,
        start_ns: u64,
        /// Off the CPU and not runnable, since it ran last; absent for the first time.
        #[serde(skip_serializing_if = "Option::is_none")]
        waited_ns: Option<u64>,
        /// Runnable without a CPU; absent where the events do not tell.
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
                line(&mut out, &heading.map(str::to_owned))?;
                line(&mut out, &["(s)", "", "", "", "", "", "", ""].map(str::to_owned))?;
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
        Ok(Self { out, form, tasks: subject.tasks, builder: SliceBuilder::new(), left_ns: Vec::new(), entries: 0 })
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        if self.form == Form::Json {
            self.out.write_all(b"\n  ]\n}\n")?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        if let EventKind::Migrate { task, from, to, kind } = event.kind {
            self.migration(event, task, (from, to), kind)?;
        }
        let Some(slice) = self.builder.push(event)? else { return Ok(()) };
        let index = slice.task.index();
        if index >= self.left_ns.len() {
            self.left_ns.resize(index + 1, None);
        }
        let left = self.left_ns[index].replace(slice.end_ns);
        // Off the CPU and not runnable.
        let delay = slice.run_delay_ns.unwrap_or(0);
        let waited = left.map(|left| (slice.start_ns - left.min(slice.start_ns)).saturating_sub(delay));
        self.slice(&slice, waited)
    }

    fn slice(&mut self, slice: &Slice, waited: Option<u64>) -> io::Result<()> {
        let state = match slice.end {
            SliceEnd::Runnable => "R",
            SliceEnd::Sleeping => "S",
            SliceEnd::Dead => "X",
            SliceEnd::Open => "-",
        };
        if self.form == Form::Json {
            return self.entry(&Entry::Slice {
                time_ns: slice.end_ns,
                cpu: slice.cpu.0,
                task: name(self.tasks, slice.task),
                task_id: slice.task.0,
                start_ns: slice.start_ns,
                waited_ns: waited,
                run_delay_ns: slice.run_delay_ns,
                state,
                search_start: slice.placed.map(|placed| placed.start.name()),
                search_step: slice.placed.map(|placed| placed.step.name()),
            });
        }
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| duration(ns as f64));
        let cells = [
            seconds(slice.end_ns),
            slice.cpu.to_string(),
            task_name(self.tasks, slice.task),
            time(waited),
            time(slice.run_delay_ns),
            time(Some(slice.end_ns - slice.start_ns)),
            state.to_owned(),
            slice.placed.map_or_else(String::new, placed),
        ];
        line(&mut self.out, &cells)
    }

    fn migration(
        &mut self,
        event: &Event,
        task: TaskId,
        (from, to): (CpuId, CpuId),
        kind: MigrationKind,
    ) -> io::Result<()> {
        if self.form == Form::Json {
            return self.entry(&Entry::Migration {
                time_ns: event.time_ns,
                cpu: event.cpu.0,
                task: name(self.tasks, task),
                task_id: task.0,
                from: from.0,
                to: to.0,
                kind: kind.name(),
            });
        }
        let words = format!("migrated from {from} to {to} ({})", kind.name());
        let time = seconds(event.time_ns);
        writeln!(self.out, "{time:>16} {:<8} {:<24} {words}", event.cpu.to_string(), task_name(self.tasks, task))
    }

    fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let before = if self.entries == 0 { "\n    " } else { ",\n    " };
        self.entries += 1;
        write!(self.out, "{before}{}", serde_json::to_string(entry)?)
    }
}

impl<W: Write> Sink for TimeHistory<'_, W> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
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

fn line(out: &mut impl Write, [time, cpu, task, waited, delay, ran, state, placed]: &[String; 8]) -> io::Result<()> {
    let text = format!("{time:>16} {cpu:<8} {task:<24} {waited:>10} {delay:>10} {ran:>10} {state:<5} {placed}");
    writeln!(out, "{}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{events, tasks};

    fn history(form: Form) -> String {
        let tasks = tasks(2);
        let subject = Subject { scheduler: "eevdf", trial: 3, tasks: &tasks };
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
    fn the_document_has_the_same_entries_as_the_lines() {
        let document: serde_json::Value = serde_json::from_str(&history(Form::Json)).unwrap();
        assert_eq!((&document["scheduler"], &document["trial"]), (&"eevdf".into(), &3.into()));
        let entries = document["events"].as_array().unwrap();
        assert_eq!(entries.len(), history(Form::Lines).lines().count() - 2);
        assert_eq!(
            entries[0],
            serde_json::json!({ "event": "migration", "time_ns": 1000, "cpu": 2, "task": "worker-1", "task_id": 1, "from": 0, "to": 2,
                                "kind": "steal" })
        );
        assert_eq!(
            entries[1],
            serde_json::json!({ "event": "slice", "time_ns": 3000, "cpu": 2, "task": "worker-1", "task_id": 1, "start_ns": 1000,
                                "run_delay_ns": 995, "state": "S" })
        );
    }
}
