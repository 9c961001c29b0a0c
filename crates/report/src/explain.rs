//! Why a task changed its CPU, and what happened in a trial, as text.
//!
//! A migration is told with what decided it: who placed or pulled the task, what the scheduler said of it at that time, and how the
//! CPUs stood right before. All of it follows from the trial's events. What a load balancer computed on the way (group types,
//! imbalance, utilisation, thresholds) is in no event, and so not told.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};

use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{
    DecisionKind, DecisionValue, Event, EventKind, MigrationKind, PrevState, RunTables, Sink, SliceBuilder, SliceEnd,
    TaskId, TaskInfo,
};

use crate::units::duration;

/// A decision of the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// On which CPU.
    pub cpu: CpuId,
    /// What and why.
    pub what: String,
}

/// A migration with its decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Migration {
    /// When.
    pub time_ns: u64,
    /// Who.
    pub task: TaskId,
    /// Old CPU.
    pub from: CpuId,
    /// New CPU.
    pub to: CpuId,
    /// The CPU that decided.
    pub decided_on: CpuId,
    /// What that CPU ran at the time; idle if nothing.
    pub running_there: TaskId,
    /// Why.
    pub kind: MigrationKind,
    /// On which CPU the one who woke or created the task ran, where that is why.
    pub waker_cpu: Option<CpuId>,
    /// Runnable tasks, the moving one not counted: of the old CPU and of the new one.
    pub runnable: [u32; 2],
    /// CPUs with nothing runnable and all CPUs: under the new CPU's LLC, and on the machine.
    pub idle: [(u32, u32); 2],
    /// What the scheduler said about the task at this very time.
    pub told: Vec<Told>,
}

/// The longest time for which the last decisions are kept until their migration follows.
const MOST_TOLD: usize = 64;

/// Follows a trial's events and hands every migration on, with its decision.
pub struct Migrations<'a, F> {
    machine: &'a Machine,
    tables: &'a RunTables,
    found: F,
    /// By CPU: runnable tasks, and the one that runs.
    runnable: Vec<u32>,
    current: Vec<TaskId>,
    /// By task: the CPU whose queue it is in, and who woke it from where.
    queued_on: Vec<Option<CpuId>>,
    woken_from: Vec<Option<CpuId>>,
    /// The last decisions.
    told: VecDeque<(u64, TaskId, Told)>,
    /// Of the present time, because decisions may follow their migration.
    open: Vec<Migration>,
}

impl<'a, F: FnMut(&Migration)> Migrations<'a, F> {
    /// Hands migrations of a trial on this machine to `found`, in order of time.
    pub fn new(machine: &'a Machine, tables: &'a RunTables, found: F) -> Self {
        let cpus = machine.cpu_count();
        Self {
            machine,
            tables,
            found,
            runnable: vec![0; cpus],
            current: vec![TaskId::IDLE; cpus],
            queued_on: Vec::new(),
            woken_from: Vec::new(),
            told: VecDeque::new(),
            open: Vec::new(),
        }
    }

    /// Hands on what is left.
    pub fn finish(mut self) {
        self.close();
    }

    fn close(&mut self) {
        for mut migration in self.open.drain(..) {
            let own =
                self.told.iter().filter(|(time_ns, task, _)| (*time_ns, *task) == (migration.time_ns, migration.task));
            migration.told = own.map(|(.., told)| told.clone()).collect();
            (self.found)(&migration);
        }
    }

    fn place(&mut self, task: TaskId, cpu: Option<CpuId>) {
        if task.index() >= self.queued_on.len() {
            self.queued_on.resize(task.index() + 1, None);
        }
        let before = std::mem::replace(&mut self.queued_on[task.index()], cpu);
        if let Some(before) = before {
            self.runnable[before.index()] = self.runnable[before.index()].saturating_sub(1);
        }
        if let Some(cpu) = cpu {
            self.runnable[cpu.index()] += 1;
        }
    }

    fn queued(&self, task: TaskId) -> Option<CpuId> {
        self.queued_on.get(task.index()).copied().flatten()
    }

    fn idle_among(&self, cpus: impl Iterator<Item = CpuId>) -> (u32, u32) {
        cpus.fold((0, 0), |(idle, all), cpu| (idle + u32::from(self.runnable[cpu.index()] == 0), all + 1))
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let (time_ns, cpu) = (event.time_ns, event.cpu);
        let cpus = self.runnable.len();
        let known = |cpu: CpuId| {
            let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("the machine has no {cpu}"));
            if cpu.index() < cpus { Ok(()) } else { Err(missing()) }
        };
        known(cpu)?;
        if self.open.first().is_some_and(|open| open.time_ns != time_ns) {
            self.close();
        }
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                if !prev.is_idle() && matches!(prev_state, PrevState::Sleeping | PrevState::Dead) {
                    self.place(prev, None);
                }
                if !next.is_idle() {
                    self.place(next, Some(cpu));
                }
                self.current[cpu.index()] = next;
            }
            EventKind::Waking { task, .. } | EventKind::Fork { child: task, .. } => {
                if task.index() >= self.woken_from.len() {
                    self.woken_from.resize(task.index() + 1, None);
                }
                self.woken_from[task.index()] = Some(cpu);
            }
            EventKind::Wakeup { task } if self.queued(task).is_none() => self.place(task, Some(cpu)),
            EventKind::Migrate { task, from, to, kind } => {
                known(from).and_then(|()| known(to))?;
                let queued = self.queued(task);
                let without = |cpu: CpuId| self.runnable[cpu.index()] - u32::from(queued == Some(cpu));
                let waker = matches!(kind, MigrationKind::Wakeup | MigrationKind::Fork);
                let llc = self.machine.llc_of(to);
                self.open.push(Migration {
                    time_ns,
                    task,
                    from,
                    to,
                    decided_on: cpu,
                    running_there: self.current[cpu.index()],
                    kind,
                    waker_cpu: waker.then(|| self.woken_from.get(task.index()).copied().flatten()).flatten(),
                    runnable: [without(from), without(to)],
                    idle: [self.idle_among(self.machine.cpus_of_llc(llc).iter()), self.idle_among(self.machine.cpus())],
                    told: Vec::new(),
                });
                if queued.is_some() {
                    self.place(task, Some(to));
                }
            }
            EventKind::Decision { decision, task, value } => {
                let what = self
                    .tables
                    .decisions
                    .get(decision as usize)
                    .map_or_else(|| "?".to_owned(), |kind| said(kind, value));
                self.told.push_back((time_ns, task, Told { cpu, what }));
                if self.told.len() > MOST_TOLD {
                    self.told.pop_front();
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl<F: FnMut(&Migration)> Sink for Migrations<'_, F> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        batch.iter().try_for_each(|event| self.event(event))
    }
}

/// A decision with its value.
fn said(kind: &DecisionKind, value: i64) -> String {
    match kind.value {
        DecisionValue::Count => format!("{} ({value})", kind.name()),
        other => format!("{} ({} {value})", kind.name(), other.in_words()),
    }
}

/// A migration as text: one fact a line.
#[must_use]
pub fn in_words(migration: &Migration, machine: &Machine, tasks: &[TaskInfo]) -> String {
    let Migration { task, from, to, decided_on, kind, .. } = *migration;
    let name = |task: TaskId| task_name(tasks, task);
    let place = |cpu: CpuId| {
        format!(
            "{cpu} (core {}, llc {}, node {})",
            machine.core_of(cpu).0,
            machine.llc_of(cpu).0,
            machine.node_of(cpu).0
        )
    };
    let mut text = format!(
        "{} {} moved from {} to {}: {}\n",
        seconds(migration.time_ns),
        name(task),
        place(from),
        place(to),
        machine.relation(from, to).description()
    );
    let _ = writeln!(text, "  decision: {}: {}", kind.name(), kind.reason());
    let _ = match migration.waker_cpu {
        Some(waker) => writeln!(text, "  by:       {decided_on}; who woke or created it ran on {waker}"),
        None if migration.running_there.is_idle() => writeln!(text, "  by:       {decided_on}, which was idle"),
        None => writeln!(text, "  by:       {decided_on}, which ran {}", name(migration.running_there)),
    };
    let [on_from, on_to] = migration.runnable;
    let _ = writeln!(text, "  runnable: {on_from} others on {from}, {on_to} on {to}");
    let [(llc_idle, llc_all), (idle, all)] = migration.idle;
    let _ = writeln!(
        text,
        "  idle:     {llc_idle} of {llc_all} CPUs under {}, {idle} of {all} on the machine",
        machine.llc_of(to)
    );
    for told in &migration.told {
        let _ = writeln!(text, "  told:     on {}: {}", told.cpu, told.what);
    }
    text
}

/// A time of a trial in seconds, to the nanosecond.
fn seconds(time_ns: u64) -> String {
    format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

fn task_name(tasks: &[TaskInfo], task: TaskId) -> String {
    tasks.get(task.index()).map_or_else(|| "idle".to_owned(), |info| format!("{}/{}", info.name, task.0))
}

/// Writes a line for each slice and each migration, in the columns of `perf sched timehist`: when it ended, CPU, task, how long the
/// task had waited for something, how long it had waited for a CPU, how long it ran.
pub struct TimeHistory<'a, W> {
    out: W,
    tasks: &'a [TaskInfo],
    builder: SliceBuilder,
    /// When each task last left a CPU.
    left_ns: Vec<Option<u64>>,
}

impl<'a, W: Write> TimeHistory<'a, W> {
    /// Begins the text of a trial with these tasks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut out: W, tasks: &'a [TaskInfo]) -> io::Result<Self> {
        let heading = ["time", "cpu", "task name", "wait time", "sch delay", "run time", "state"];
        line(&mut out, &heading.map(str::to_owned))?;
        line(&mut out, &["(s)", "", "", "", "", "", ""].map(str::to_owned))?;
        Ok(Self { out, tasks, builder: SliceBuilder::new(), left_ns: Vec::new() })
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        if let EventKind::Migrate { task, from, to, kind } = event.kind {
            let words = format!("migrated from {from} to {to} ({})", kind.name());
            let time = seconds(event.time_ns);
            writeln!(self.out, "{time:>16} {:<8} {:<24} {words}", event.cpu.to_string(), task_name(self.tasks, task))?;
        }
        let Some(slice) = self.builder.push(event)? else { return Ok(()) };
        let index = slice.task.index();
        if index >= self.left_ns.len() {
            self.left_ns.resize(index + 1, None);
        }
        let left = self.left_ns[index].replace(slice.end_ns);
        let delay = slice.run_delay_ns;
        // Off the CPU and not runnable.
        let waited = left.map(|left| (slice.start_ns - left.min(slice.start_ns)).saturating_sub(delay.unwrap_or(0)));
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| duration(ns as f64));
        let state = match slice.end {
            SliceEnd::Runnable => "R",
            SliceEnd::Sleeping => "S",
            SliceEnd::Dead => "X",
            SliceEnd::Open => "-",
        };
        let ran = Some(slice.end_ns - slice.start_ns);
        let cells = [
            seconds(slice.end_ns),
            slice.cpu.to_string(),
            task_name(self.tasks, slice.task),
            time(waited),
            time(delay),
            time(ran),
            state.to_owned(),
        ];
        line(&mut self.out, &cells)
    }
}

impl<W: Write> Sink for TimeHistory<'_, W> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        batch.iter().try_for_each(|event| self.event(event))
    }
}

fn line(out: &mut impl Write, [time, cpu, task, waited, delay, ran, state]: &[String; 7]) -> io::Result<()> {
    let text = format!("{time:>16} {cpu:<8} {task:<24} {waited:>10} {delay:>10} {ran:>10} {state}");
    writeln!(out, "{}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::resolve;

    fn tasks(count: u32) -> Vec<TaskInfo> {
        (0..count)
            .map(|id| TaskInfo {
                id: TaskId(id),
                name: format!("worker-{id}"),
                role: "worker".into(),
                application: 0,
                application_name: "app".into(),
                process: 0,
            })
            .collect()
    }

    /// Two tasks on CPU 0; the idle CPU 2, under the other LLC, takes the one that waits, and says why.
    fn events() -> Vec<Event> {
        let (a, b) = (TaskId(0), TaskId(1));
        let event = |time_ns, cpu, kind| Event { time_ns, cpu: CpuId(cpu), kind };
        let to = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
        vec![
            event(0, 0, EventKind::Fork { parent: TaskId::IDLE, child: a }),
            event(0, 0, EventKind::Wakeup { task: a }),
            event(0, 0, to(TaskId::IDLE, PrevState::Idle, a)),
            event(5, 0, EventKind::Fork { parent: a, child: b }),
            event(5, 0, EventKind::Wakeup { task: b }),
            event(1_000, 2, EventKind::Migrate { task: b, from: CpuId(0), to: CpuId(2), kind: MigrationKind::Steal }),
            event(1_000, 2, EventKind::Decision { decision: 0, task: b, value: 0 }),
            event(1_000, 2, to(TaskId::IDLE, PrevState::Idle, b)),
            event(3_000, 2, to(b, PrevState::Sleeping, TaskId::IDLE)),
        ]
    }

    #[test]
    fn a_migration_is_told_with_its_decision_and_how_the_cpus_stood() {
        let machine = resolve("1s1n2l2c1t").unwrap();
        let kind = DecisionKind::new("task pulled", "its queue is longer", DecisionValue::Cpu);
        let tables = RunTables { decisions: vec![kind], ..RunTables::default() };
        let mut found = Vec::new();
        let mut migrations = Migrations::new(&machine, &tables, |migration: &Migration| found.push(migration.clone()));
        migrations.events(&events()).unwrap();
        migrations.finish();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].runnable, found[0].idle), ([1, 0], [(2, 2), (3, 4)]));
        let text = in_words(&found[0], &machine, &tasks(2));
        assert_eq!(
            text,
            format!(
                "0.000001000 worker-1/1 moved from cpu0 (core 0, llc 0, node 0) to cpu2 (core 2, llc 1, node 0): {}\n  \
                 decision: steal: taken from a queue by a CPU that had nothing to do\n  \
                 by:       cpu2, which was idle\n  \
                 runnable: 1 others on cpu0, 0 on cpu2\n  \
                 idle:     2 of 2 CPUs under llc1, 3 of 4 on the machine\n  \
                 told:     on cpu2: task pulled: its queue is longer (CPU 0)\n",
                machine.relation(CpuId(0), CpuId(2)).description()
            )
        );
    }

    #[test]
    fn the_history_has_a_line_for_each_slice_and_each_migration() {
        let tasks = tasks(2);
        let mut history = TimeHistory::new(Vec::new(), &tasks).unwrap();
        history.events(&events()).unwrap();
        let text = String::from_utf8(history.finish().unwrap()).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..3], ["time", "cpu", "task"]);
        assert_eq!(
            lines[2],
            ["0.000001000", "cpu2", "worker-1/1", "migrated", "from", "cpu0", "to", "cpu2", "(steal)"]
        );
        assert_eq!(lines[3], ["0.000003000", "cpu2", "worker-1/1", "-", "995", "ns", "2", "us", "S"]);
    }
}
