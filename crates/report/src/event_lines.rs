//! The events of a trial as text, one a line: to read, to search with `grep`, to compare with `diff`.
//!
//! A line is the time in nanoseconds since the start of the run, the CPU, the event's table of the store
//! (`sched_switch`, `sched_migrate`, …) and its columns as `name=value`; CPUs and nodes have the system's numbers. Tasks are their names with their ids, as
//! names need not differ. Words and columns are those of `trace::store`.

use std::fmt;
use std::io::{self, Write};

use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{
    DecisionKind, Event, EventKind, PlaceReason, RecordedThread, RunTables, Sink, TaskId, TaskInfo, Throttler,
};

/// Writes events as lines. [`EventLines::finish`] writes what is left.
pub struct EventLines<'a, W> {
    out: W,
    machine: &'a Machine,
    tables: RunTables,
    tasks: &'a [TaskInfo],
}

impl<'a, W: Write> EventLines<'a, W> {
    /// Begins the text of a run on this machine with these tables and tasks.
    pub fn new(out: W, machine: &'a Machine, tables: &RunTables, tasks: &'a [TaskInfo]) -> Self {
        Self { out, machine, tables: tables.clone(), tasks }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, event: &Event) -> io::Result<()> {
        fn named(names: &[String], index: u32) -> &str {
            names.get(index as usize).map_or("?", String::as_str)
        }
        let Self { out, machine, tables, tasks } = self;
        let number = |cpu: CpuId| machine.os_cpu(cpu).0;
        let task = |id: TaskId| TaskName { id, name: tasks.get(id.index()).map_or("", |task| &task.name) };
        write!(out, "{} {} ", event.time_ns, machine.os_cpu(event.cpu))?;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                let (prev, next) = (task(prev), task(next));
                writeln!(out, "sched_switch prev={prev} prev_state={} next={next}", prev_state.letter())
            }
            EventKind::Waking { task: woken, target_cpu, waker } => {
                let target = number(target_cpu);
                writeln!(out, "sched_waking task={} target_cpu={target} waker={}", task(woken), task(waker))
            }
            EventKind::Wakeup { task: woken, reason: None } => writeln!(out, "sched_wakeup task={}", task(woken)),
            EventKind::Wakeup { task: woken, reason: Some(PlaceReason { start, step }) } => {
                let (start, step) = (start.name(), step.name());
                writeln!(out, "sched_wakeup task={} search_start={start} search_step={step}", task(woken))
            }
            EventKind::Migrate { task: moved, from, to, kind } => {
                let (from, to, kind) = (number(from), number(to), kind.name());
                writeln!(out, "sched_migrate task={} from_cpu={from} to_cpu={to} kind={kind}", task(moved))
            }
            EventKind::Fork { parent, child } => {
                writeln!(out, "fork_exit event=fork task={} parent={}", task(child), task(parent))
            }
            EventKind::Exit { task: ended } => writeln!(out, "fork_exit event=exit task={}", task(ended)),
            EventKind::Affinity { task: bound, restriction } => {
                writeln!(out, "fork_exit event=affinity task={} restriction={restriction}", task(bound))
            }
            EventKind::Counter { counter, task: of, value } => {
                writeln!(out, "counters task={} value={value} name={}", task(of), named(&tables.counters, counter))
            }
            EventKind::Phase { task: of, phase } => {
                writeln!(out, "phases task={} name={}", task(of), named(&tables.phases, phase))
            }
            EventKind::Decision { decision, task: of, value } => {
                let kind = tables.decisions.get(decision as usize);
                let name = kind.map_or_else(|| "?".to_owned(), DecisionKind::name);
                let value = kind.map_or(value, |kind| kind.value.for_users(value, machine));
                writeln!(out, "decisions task={} value={value} name={name}", task(of))
            }
            EventKind::Score { score, task: of, value } => {
                writeln!(out, "scores task={} value={value} name={}", task(of), named(&tables.scores, score))
            }
            EventKind::BalanceDetail { detail, task: of, value } => {
                writeln!(out, "balance_details task={} value={value} name={}", task(of), detail.name())
            }
            EventKind::Foreign { thread } => {
                let label = thread.and_then(|thread| tables.foreign.get(thread as usize)).map(RecordedThread::label);
                writeln!(out, "foreign thread={}", label.as_deref().unwrap_or("idle"))
            }
            EventKind::Hotplug { online } => writeln!(out, "hotplug online={}", u8::from(online)),
            EventKind::Throttle { task: of, throttled } => {
                writeln!(out, "throttle task={} throttled={}", task(of), Throttler::number(throttled))
            }
            EventKind::Overhead { kind, duration_ns } => {
                writeln!(out, "overhead kind={} duration_ns={duration_ns}", kind.name())
            }
        }
    }
}

impl<W: Write> Sink for EventLines<'_, W> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        batch.iter().try_for_each(|event| self.line(event))
    }
}

/// A task as it is written: `name/id`, or `idle`.
struct TaskName<'a> {
    id: TaskId,
    name: &'a str,
}

impl fmt::Display for TaskName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.id.is_idle() { f.write_str("idle") } else { write!(f, "{}/{}", self.name, self.id.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_trace::{DecisionValue, MigrationKind, PrevState};

    #[test]
    fn a_line_holds_time_cpu_event_and_the_columns_by_name() {
        let info = |id: u32, name: &str| TaskInfo {
            id: TaskId(id),
            name: name.into(),
            role: "r".into(),
            application: 0,
            application_name: "app".into(),
            process: 0,
        };
        let tasks = [info(0, "ping"), info(1, "ping")];
        let yes = RecordedThread { thread: 123, name: "yes".into(), process: None };
        let kind = DecisionKind::new("task pulled", "it waits", DecisionValue::Llc);
        let tables = RunTables { decisions: vec![kind], foreign: vec![yes], ..RunTables::default() };
        let machine = warmcore_topology::resolve("1s1n1l4c1t").unwrap();
        let mut lines = EventLines::new(Vec::new(), &machine, &tables, &tasks);
        let (a, b) = (TaskId(0), TaskId(1));
        let kinds = [
            EventKind::Fork { parent: TaskId::IDLE, child: a },
            EventKind::Switch { prev: a, prev_state: PrevState::Sleeping, next: TaskId::IDLE },
            EventKind::Migrate { task: b, from: CpuId(0), to: CpuId(3), kind: MigrationKind::Steal },
            EventKind::Decision { decision: 0, task: b, value: -2 },
            EventKind::Foreign { thread: Some(0) },
            EventKind::Foreign { thread: None },
            EventKind::Hotplug { online: false },
        ];
        for (time_ns, kind) in (5..).zip(kinds) {
            lines.events(&[Event { time_ns, cpu: CpuId(3), kind }]).unwrap();
        }
        let text = String::from_utf8(lines.finish().unwrap()).unwrap();
        assert_eq!(
            text,
            "5 cpu3 fork_exit event=fork task=ping/0 parent=idle\n\
             6 cpu3 sched_switch prev=ping/0 prev_state=S next=idle\n\
             7 cpu3 sched_migrate task=ping/1 from_cpu=0 to_cpu=3 kind=steal\n\
             8 cpu3 decisions task=ping/1 value=-2 name=task pulled: it waits\n\
             9 cpu3 foreign thread=yes-123\n\
             10 cpu3 foreign thread=idle\n\
             11 cpu3 hotplug online=0\n"
        );
    }
}
