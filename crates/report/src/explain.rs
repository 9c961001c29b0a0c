//! Why a task changed its CPU, as text and as a document.
//!
//! A migration is told with what decided it: who placed or pulled the task, what the scheduler said of it at that time, how the
//! CPUs stood right before, and, of a load balancer in the simulator, the figures that the move rests on: types of groups, imbalance,
//! utilisation, thresholds. A real kernel does not tell these.

mod record;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;

use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{
    BalanceDetail, DecisionKind, DecisionValue, Event, EventKind, MigrationKind, PrevState, RecordedThread, RunTables,
    Sink, TaskId, TaskInfo,
};

use crate::others::Others;
use crate::placement::{Placement, Placements, place_in_words};
use crate::units::duration;

pub use record::MigrationRecord;

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
    /// What that CPU ran at the time, or until then if that could have run on; idle if nothing.
    pub running_there: TaskId,
    /// Name and number of the thread beside the run's tasks that it ran instead.
    pub other_there: Option<String>,
    /// Why.
    pub kind: MigrationKind,
    /// The old CPU was offline.
    pub left_offline: bool,
    /// On which CPU the one who woke or created the task ran, where that is why.
    pub waker_cpu: Option<CpuId>,
    /// Where the wakeup or creation that moved it ended, if one did.
    pub placement: Option<Placement>,
    /// Runnable tasks, the moving one not counted: of the old CPU and of the new one.
    pub runnable: [u32; 2],
    /// CPUs online with nothing to run and all that are online: under the new CPU's LLC, and on the machine.
    pub idle: [(u32, u32); 2],
    /// What the scheduler said about the task at this very time.
    pub told: Vec<Told>,
    /// The figures that the move rests on, where a load balancer told them.
    pub details: Vec<(BalanceDetail, i64)>,
}

impl Migration {
    /// Who decided such a move, and why, in words.
    fn reason(&self) -> &'static str {
        match (self.kind, self.left_offline) {
            (MigrationKind::Affinity, true) => "its old CPU went offline (hotplug)",
            (MigrationKind::Affinity, false) => "its affinity no longer allowed the old CPU",
            _ => self.kind.reason(),
        }
    }
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
    /// By CPU: who left it last although it could have run on, and when.
    left: Vec<(u64, TaskId)>,
    others: Others,
    /// By task: the CPU whose queue it is in.
    queued_on: Vec<Option<CpuId>>,
    placements: Placements,
    /// The last decisions.
    told: VecDeque<(u64, TaskId, Told)>,
    /// Of the present time, because decisions may follow their migration.
    open: Vec<Migration>,
    /// Of earlier times, the first of which has not been placed yet: another CPU may have to queue it.
    unplaced: VecDeque<Migration>,
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
            left: vec![(0, TaskId::IDLE); cpus],
            others: Others::new(cpus),
            queued_on: Vec::new(),
            placements: Placements::default(),
            told: VecDeque::new(),
            open: Vec::new(),
            unplaced: VecDeque::new(),
        }
    }

    /// Hands on what is left.
    pub fn finish(mut self) {
        self.close();
        self.unplaced.iter().for_each(&mut self.found);
    }

    fn close(&mut self) {
        for mut migration in self.open.drain(..) {
            let own =
                self.told.iter().filter(|(time_ns, task, _)| (*time_ns, *task) == (migration.time_ns, migration.task));
            migration.told = own.map(|(.., told)| told.clone()).collect();
            self.unplaced.push_back(migration);
        }
        self.hand_on();
    }

    /// Hands on what is known whole, in order of time.
    fn hand_on(&mut self) {
        let waits = |migration: &Migration| {
            migration.waker_cpu.is_some()
                && migration.placement.is_none()
                && self.placements.waker_cpu(migration.task).is_some()
        };
        let known = self.unplaced.iter().position(waits).unwrap_or(self.unplaced.len());
        self.unplaced.drain(..known).for_each(|migration| (self.found)(&migration));
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

    /// What runs on a CPU, or ran there until now and could have run on.
    fn running_on(&self, cpu: CpuId, time_ns: u64) -> TaskId {
        let (left_ns, left) = self.left[cpu.index()];
        let current = self.current[cpu.index()];
        if current.is_idle() && left_ns == time_ns { left } else { current }
    }

    fn other_on(&self, cpu: CpuId) -> Option<String> {
        self.tables.foreign.get(self.others.thread_on(cpu)? as usize).map(RecordedThread::label)
    }

    fn idle_among(&self, cpus: impl Iterator<Item = CpuId>) -> (u32, u32) {
        let idles = |cpu: CpuId| self.runnable[cpu.index()] == 0 && self.others.on(cpu).is_none();
        let online = cpus.filter(|cpu| !self.others.is_offline(*cpu));
        online.fold((0, 0), |(idle, all), cpu| (idle + u32::from(idles(cpu)), all + 1))
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
        if let Some(placed) = self.placements.event(event) {
            let mut moves = self.open.iter_mut().rev().chain(self.unplaced.iter_mut().rev());
            let moved = moves.find(|moved| moved.task == placed.task && moved.waker_cpu.is_some());
            if let Some(moved) = moved.filter(|moved| moved.placement.is_none()) {
                moved.placement = Some(placed);
            }
        }
        self.others.push(event);
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                if !prev.is_idle() && matches!(prev_state, PrevState::Sleeping | PrevState::Dead) {
                    self.place(prev, None);
                }
                if !next.is_idle() {
                    self.place(next, Some(cpu));
                }
                self.current[cpu.index()] = next;
                if prev_state == PrevState::Runnable {
                    self.left[cpu.index()] = (time_ns, prev);
                }
            }
            EventKind::Wakeup { task, .. } if self.queued(task).is_none() => self.place(task, Some(cpu)),
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
                    running_there: self.running_on(cpu, time_ns),
                    other_there: self.other_on(cpu),
                    kind,
                    left_offline: self.others.is_offline(from),
                    waker_cpu: if waker { self.placements.waker_cpu(task) } else { None },
                    placement: None,
                    runnable: [without(from), without(to)],
                    idle: [self.idle_among(self.machine.cpus_of_llc(llc).iter()), self.idle_among(self.machine.cpus())],
                    told: Vec::new(),
                    details: Vec::new(),
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
                    .map_or_else(|| "?".to_owned(), |kind| said(kind, value, self.machine));
                self.told.push_back((time_ns, task, Told { cpu, what }));
                if self.told.len() > MOST_TOLD {
                    self.told.pop_front();
                }
            }
            // Right after the move, at the same time.
            EventKind::BalanceDetail { detail, task, value } => {
                if let Some(moved) = self.open.iter_mut().rev().find(|migration| migration.task == task) {
                    moved.details.push((detail, value));
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

fn said(kind: &DecisionKind, value: i64, machine: &Machine) -> String {
    let value = kind.value.for_users(value, machine);
    match kind.value {
        DecisionValue::Count => format!("{} ({value})", kind.name()),
        other => format!("{} ({} {value})", kind.name(), other.in_words()),
    }
}

/// A migration as text: one fact a line.
pub fn in_words(migration: &Migration, machine: &Machine, tasks: &[TaskInfo]) -> String {
    let Migration { task, from, to, decided_on, kind, .. } = *migration;
    let name = |task: TaskId| task_name(tasks, task);
    let place = |cpu: CpuId| {
        format!(
            "{} (core {}, llc {}, node {})",
            machine.os_cpu(cpu),
            machine.core_of(cpu).0,
            machine.llc_of(cpu).0,
            machine.node_os_index(machine.node_of(cpu))
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
    let _ = writeln!(text, "  decision: {}: {}", kind.name(), migration.reason());
    let decided_on = machine.os_cpu(decided_on);
    let _ = match migration.waker_cpu.map(|cpu| machine.os_cpu(cpu)) {
        Some(waker) => writeln!(text, "  by:       {decided_on}; who woke or created it ran on {waker}"),
        None if let Some(other) = &migration.other_there => {
            writeln!(text, "  by:       {decided_on}, which ran {other}")
        }
        None if migration.running_there.is_idle() => writeln!(text, "  by:       {decided_on}, which was idle"),
        None => writeln!(text, "  by:       {decided_on}, which ran {}", name(migration.running_there)),
    };
    if let Some(place) = migration.placement.and_then(|placement| place_in_words(&placement, machine, tasks)) {
        let _ = writeln!(text, "  place:    {place}");
    }
    let [on_from, on_to] = migration.runnable;
    let (old, new) = (machine.os_cpu(from), machine.os_cpu(to));
    let _ = writeln!(text, "  runnable: {on_from} others on {old}, {on_to} on {new}");
    let [(llc_idle, llc_all), (idle, all)] = migration.idle;
    let _ = writeln!(
        text,
        "  idle:     {llc_idle} of {llc_all} CPUs under {}, {idle} of {all} on the machine",
        machine.llc_of(to)
    );
    for told in &migration.told {
        let _ = writeln!(text, "  reported: on {}: {}", machine.os_cpu(told.cpu), told.what);
    }
    text.push_str(&details_in_words(&migration.details));
    text
}

/// What a balancer's move rests on, in lines; nothing where nothing was told.
fn details_in_words(details: &[(BalanceDetail, i64)]) -> String {
    use BalanceDetail as Detail;
    let value = |wanted: Detail| details.iter().find(|(detail, _)| *detail == wanted).map(|(_, value)| *value);
    let mut text = String::new();
    let sides = [
        (
            "gives",
            [Detail::BusiestGroup, Detail::BusiestRunning, Detail::BusiestUtilisation, Detail::BusiestLoad],
            Detail::BusiestCapacity,
        ),
        (
            "receives",
            [Detail::LocalGroup, Detail::LocalRunning, Detail::LocalUtilisation, Detail::LocalLoad],
            Detail::LocalCapacity,
        ),
    ];
    for (what, [group, running, utilisation, load], capacity) in sides {
        let numbers = [running, utilisation, capacity, load].map(value);
        if let (Some(group), [Some(running), Some(utilisation), Some(capacity), Some(load)]) = (value(group), numbers) {
            let word = Detail::LocalGroup.word(group).unwrap_or("?");
            let _ = writeln!(
                text,
                "  {:<10}{word}: {running} tasks, utilisation {utilisation} of {capacity}, load {load}",
                format!("{what}:")
            );
        }
    }
    if let (Some(imbalance), Some(kind)) = (value(Detail::Imbalance), value(Detail::MigrationType)) {
        let kind = Detail::MigrationType.word(kind).unwrap_or("?");
        let share =
            value(Detail::TaskShare).map_or_else(String::new, |share| format!(", of which the task is {share}"));
        let _ = writeln!(text, "  imbalance: {imbalance} in {kind}{share}");
    }
    if let (Some(cpus), Some(percent)) = (value(Detail::DomainCpus), value(Detail::ImbalancePercent)) {
        let _ = write!(text, "  domain:   {cpus} CPUs, imbalance_pct {percent}");
        if let (Some(failed), Some(tries)) = (value(Detail::FailedPasses), value(Detail::CacheNiceTries)) {
            let _ = write!(text, ", {failed} passes before it moved nothing (cache_nice_tries {tries})");
        }
        text.push('\n');
    }
    if let Some(utilisation) = value(Detail::TaskUtilisation) {
        let _ = write!(text, "  task:     utilisation {utilisation}");
        if let (Some(since), Some(cost)) = (value(Detail::SinceRanNs), value(Detail::MigrationCostNs)) {
            let since = duration(since as f64);
            let _ = write!(text, ", ran {since} before; its caches count as warm up to {}", duration(cost as f64));
        }
        text.push('\n');
    }
    text
}

/// A time of a trial in seconds, to the nanosecond.
pub(crate) fn seconds(time_ns: u64) -> String {
    format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

pub(crate) fn task_name(tasks: &[TaskInfo], task: TaskId) -> String {
    tasks.get(task.index()).map_or_else(|| "idle".to_owned(), |info| format!("{}/{}", info.name, task.0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use warmcore_topology::resolve;
    use warmcore_trace::{PlaceReason, SearchStart, SearchStep};

    pub(crate) fn tasks(count: u32) -> Vec<TaskInfo> {
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
    pub(crate) fn events() -> Vec<Event> {
        let (a, b) = (TaskId(0), TaskId(1));
        let event = |time_ns, cpu, kind| Event { time_ns, cpu: CpuId(cpu), kind };
        let to = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
        vec![
            event(0, 0, EventKind::Fork { parent: TaskId::IDLE, child: a }),
            event(0, 0, EventKind::Wakeup { task: a, reason: None }),
            event(0, 0, to(TaskId::IDLE, PrevState::Idle, a)),
            event(5, 0, EventKind::Fork { parent: a, child: b }),
            event(5, 0, EventKind::Wakeup { task: b, reason: None }),
            event(1_000, 2, EventKind::Migrate { task: b, from: CpuId(0), to: CpuId(2), kind: MigrationKind::Steal }),
            event(1_000, 2, EventKind::Decision { decision: 0, task: b, value: 0 }),
            event(1_000, 2, to(TaskId::IDLE, PrevState::Idle, b)),
            event(3_000, 2, to(b, PrevState::Sleeping, TaskId::IDLE)),
        ]
    }

    /// A task that sleeps on CPU 2 is woken on CPU 0 and queued on CPU 1, by an interrupt, 300 ns later.
    fn woken() -> Vec<Event> {
        let event = |time_ns, cpu, kind| Event { time_ns, cpu: CpuId(cpu), kind };
        let (waker, task) = (TaskId(0), TaskId(1));
        let reason = PlaceReason { start: SearchStart::WakerSync, step: SearchStep::CpuIdle };
        vec![
            event(1_000, 0, EventKind::Waking { task, target_cpu: CpuId(2), waker }),
            event(1_000, 0, EventKind::Migrate { task, from: CpuId(2), to: CpuId(1), kind: MigrationKind::Wakeup }),
            event(
                1_200,
                3,
                EventKind::Migrate { task: waker, from: CpuId(0), to: CpuId(3), kind: MigrationKind::Steal },
            ),
            event(1_300, 1, EventKind::Wakeup { task, reason: Some(reason) }),
            event(1_400, 1, EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Idle, next: task }),
        ]
    }

    #[test]
    fn a_wakeup_that_moved_a_task_is_told_with_who_woke_it_and_the_rule_that_placed_it() {
        let machine = resolve("1s1n2l2c1t").unwrap();
        let tables = RunTables::default();
        let mut found = Vec::new();
        let mut migrations = Migrations::new(&machine, &tables, |migration: &Migration| found.push(migration.clone()));
        migrations.events(&woken()).unwrap();
        migrations.finish();
        assert_eq!(found.iter().map(|migration| migration.time_ns).collect::<Vec<_>>(), [1_000, 1_200]);
        let text = in_words(&found[0], &machine, &tasks(2));
        let place = text.lines().find(|line| line.starts_with("  place:")).unwrap();
        assert_eq!(
            place,
            "  place:    woken by worker-0/0 on cpu0: wake_affine chose the waker's CPU, since the waker is about to sleep and runs \
             alone there; the search found the first idle CPU in that LLC: cpu1 of llc0"
        );
        let record = serde_json::to_value(MigrationRecord::of(&found[0], &machine, &tasks(2))).unwrap();
        assert_eq!(record["placement"]["search_start"], "waker_sync");
        assert_eq!(record["placement"]["search_step"], "cpu_idle");
        assert!(!in_words(&found[1], &machine, &tasks(2)).contains("place:"), "nobody was woken");
        assert_eq!(
            serde_json::to_value(MigrationRecord::of(&found[1], &machine, &tasks(2))).unwrap().get("placement"),
            None
        );
    }

    /// CPU 0 goes offline at 1 us, where it runs a task while another one waits, after that has been bound elsewhere and back.
    #[test]
    fn who_leaves_a_cpu_that_goes_offline_is_told_so_and_what_the_cpu_ran_until_then() {
        let (a, b) = (TaskId(0), TaskId(1));
        let moved = |task, from, to| EventKind::Migrate {
            task,
            from: CpuId(from),
            to: CpuId(to),
            kind: MigrationKind::Affinity,
        };
        let on_0 = |time_ns, kind| Event { time_ns, cpu: CpuId(0), kind };
        let mut events = events();
        events.truncate(5);
        events.extend([
            on_0(500, moved(b, 0, 1)),
            on_0(600, moved(b, 1, 0)),
            on_0(1_000, EventKind::Hotplug { online: false }),
            on_0(1_000, EventKind::Switch { prev: a, prev_state: PrevState::Runnable, next: TaskId::IDLE }),
            on_0(1_000, moved(a, 0, 2)),
            on_0(1_000, moved(b, 0, 3)),
        ]);
        let machine = resolve("1s1n2l2c1t").unwrap();
        let tables = RunTables::default();
        let mut texts = Vec::new();
        let mut migrations = Migrations::new(&machine, &tables, |migration: &Migration| {
            texts.push(in_words(migration, &machine, &tasks(2)));
        });
        migrations.events(&events).unwrap();
        migrations.finish();
        let lines = |text: &String| text.lines().skip(1).take(2).map(str::trim).collect::<Vec<_>>().join("; ");
        let bound =
            "decision: affinity: its affinity no longer allowed the old CPU; by:       cpu0, which ran worker-0/0";
        let offline = "decision: affinity: its old CPU went offline (hotplug); by:       cpu0, which ran worker-0/0";
        assert_eq!(texts.iter().map(lines).collect::<Vec<_>>(), [bound, bound, offline, offline]);
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
                 reported: on cpu2: task pulled: its queue is longer (CPU 0)\n",
                machine.relation(CpuId(0), CpuId(2)).description()
            )
        );
    }
}
