//! The sink that writes a run into a directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use parquet::data_type::ByteArray;
use serde::{Deserialize, Serialize};
use warmcore_topology::{CpuId, Machine};

use super::error::StoreError;
use super::schema::{
    self, SCHEMA_KEY, SCHEMA_MAJOR, SCHEMA_MINOR, SCHEMA_MINOR_WITHOUT_FOREIGN, SCHEMA_MINOR_WITHOUT_HOTPLUG,
    SCHEMA_MINOR_WITHOUT_THROTTLE, Table,
};
use super::table::{Cell, TableWriter};
use crate::{Event, EventKind, PlaceReason, RunTables, Sink, Slice, SliceBuilder, TaskInfo, Throttler};

/// What a store says about the run it holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Name and version of the program that made the run.
    pub tool_version: String,
    /// Clock of all times: `simulated`, or the name of a real one such as `mono`.
    pub clock: String,
    /// The computer the run was made on, in whatever form the caller wants it known; may be a placeholder.
    pub host_id: String,
    /// The run.
    pub run_id: String,
}

/// How a store is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    /// Rows per row group: how many rows of each table are held in memory before they are written. About 30 bytes each;
    /// 1,048,576 by default.
    pub row_group_rows: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { row_group_rows: 1 << 20 }
    }
}

/// Writes events as Parquet tables while they stream by. See the [module](crate::store) for the tables.
///
/// Files carry the ending `.partial` until [`Store::finish`] completes and renames them, so a run that was cut off cannot be
/// taken for a whole one. A run that fails can still call [`Store::finish`]: what was stored so far becomes a valid store.
pub struct Store {
    directory: PathBuf,
    switch: TableWriter,
    waking: TableWriter,
    wakeup: TableWriter,
    migrate: TableWriter,
    fork_exit: TableWriter,
    counters: TableWriter,
    phases: TableWriter,
    decisions: TableWriter,
    overhead: TableWriter,
    /// Where scores are sampled.
    scores: Option<TableWriter>,
    /// Where threads beside the run's are told.
    foreign: Option<TableWriter>,
    /// Where CPUs go offline or come online.
    hotplug: Option<TableWriter>,
    throttle: Option<TableWriter>,
    slices: TableWriter,
    topology: TableWriter,
    tasks: TableWriter,
    meta: TableWriter,
    builder: SliceBuilder,
    counter_names: Vec<ByteArray>,
    phase_names: Vec<ByteArray>,
    decision_names: Vec<ByteArray>,
    score_names: Vec<ByteArray>,
    foreign_names: Vec<ByteArray>,
    idle: ByteArray,
    tables: RunTables,
    machine: Machine,
    info: StoreInfo,
    events: u64,
}

impl Store {
    /// Begins a store in an existing directory that holds none yet, for a run on `machine` whose events refer to
    /// `tables`.
    ///
    /// # Errors
    /// Files that exist already, finished or not; whatever the operating system refuses.
    pub fn create(
        directory: &Path,
        machine: &Machine,
        tables: &RunTables,
        info: &StoreInfo,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let create = |table: Table| TableWriter::create(table, directory, options.row_group_rows);
        let names = |names: &[String]| names.iter().map(|name| ByteArray::from(name.as_str())).collect();
        Ok(Self {
            directory: directory.to_owned(),
            switch: create(schema::SWITCH)?,
            waking: create(schema::WAKING)?,
            wakeup: create(schema::WAKEUP)?,
            migrate: create(schema::MIGRATE)?,
            fork_exit: create(schema::FORK_EXIT)?,
            counters: create(schema::COUNTERS)?,
            phases: create(schema::PHASES)?,
            decisions: create(schema::DECISIONS)?,
            overhead: create(schema::OVERHEAD)?,
            scores: (!tables.scores.is_empty()).then(|| create(schema::SCORES)).transpose()?,
            foreign: (!tables.foreign.is_empty()).then(|| create(schema::FOREIGN)).transpose()?,
            hotplug: tables.hotplug.then(|| create(schema::HOTPLUG)).transpose()?,
            throttle: tables.throttle.then(|| create(schema::THROTTLE)).transpose()?,
            slices: create(schema::SLICES)?,
            topology: create(schema::TOPOLOGY)?,
            tasks: create(schema::TASKS)?,
            meta: create(schema::META)?,
            builder: SliceBuilder::new(),
            counter_names: names(&tables.counters),
            phase_names: names(&tables.phases),
            decision_names: tables.decisions.iter().map(|kind| ByteArray::from(kind.name().as_str())).collect(),
            score_names: names(&tables.scores),
            foreign_names: tables.foreign.iter().map(|thread| ByteArray::from(thread.label().as_str())).collect(),
            idle: ByteArray::from("idle"),
            tables: tables.clone(),
            machine: machine.clone(),
            info: info.clone(),
            events: 0,
        })
    }

    /// The directory it writes into.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn event(&mut self, event: &Event) -> Result<(), StoreError> {
        if let Some(slice) = self.builder.push(event)? {
            self.slice(&slice)?;
        }
        let sequence = Cell::count(self.events);
        let (time, cpu) = (Cell::count(event.time_ns), Cell::id(event.cpu.0));
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                let (prev, state, next) = (Cell::task(prev), Cell::Word(prev_state as u8), Cell::task(next));
                self.switch.push([sequence, time, cpu, prev, state, next])?;
            }
            EventKind::Waking { task, target_cpu, waker } => {
                let (task, target_cpu, waker) = (Cell::task(task), Cell::id(target_cpu.0), Cell::task(waker));
                self.waking.push([sequence, time, cpu, task, target_cpu, waker])?;
            }
            EventKind::Wakeup { task, reason } => {
                let [start, step] = reason_cells(reason);
                self.wakeup.push([sequence, time, cpu, Cell::task(task), start, step])?;
            }
            EventKind::Migrate { task, from, to, kind } => {
                let (from, to, kind) = (Cell::id(from.0), Cell::id(to.0), Cell::Word(kind as u8));
                self.migrate.push([sequence, time, cpu, Cell::task(task), from, to, kind])?;
            }
            EventKind::Fork { parent, child } => {
                let (word, child, parent) = (Cell::Word(schema::FORK), Cell::task(child), Cell::task(parent));
                self.fork_exit.push([sequence, time, cpu, word, child, parent, Cell::None])?;
            }
            EventKind::Exit { task } => {
                let (word, task) = (Cell::Word(schema::EXIT), Cell::task(task));
                self.fork_exit.push([sequence, time, cpu, word, task, Cell::None, Cell::None])?;
            }
            EventKind::Affinity { task, restriction } => {
                let (word, task) = (Cell::Word(schema::AFFINITY), Cell::task(task));
                self.fork_exit.push([sequence, time, cpu, word, task, Cell::None, Cell::id(restriction)])?;
            }
            EventKind::Counter { counter, task, value } => {
                let name = name(&self.counter_names, event, "counters", counter)?;
                let (index, task, value) = (Cell::id(counter), Cell::task(task), Cell::count(value));
                self.counters.push([sequence, time, cpu, index, name, task, value])?;
            }
            EventKind::Phase { task, phase } => {
                let name = name(&self.phase_names, event, "phases", phase)?;
                self.phases.push([sequence, time, cpu, Cell::task(task), Cell::id(phase), name])?;
            }
            EventKind::Decision { decision, task, value } => {
                let name = name(&self.decision_names, event, "decisions", decision)?;
                let (index, task) = (Cell::id(decision), Cell::task(task));
                self.decisions.push([sequence, time, cpu, index, name, task, Cell::Int(value)])?;
            }
            EventKind::Score { score, task, value } => {
                let name = name(&self.score_names, event, "scores", score)?;
                let (index, task) = (Cell::id(score), Cell::task(task));
                // Without names there is no such event: that was refused above.
                if let Some(scores) = &mut self.scores {
                    scores.push([sequence, time, cpu, index, name, task, Cell::Int(value)])?;
                }
            }
            EventKind::Foreign { thread } => {
                let (index, label) = match thread {
                    Some(thread) => (Cell::id(thread), name(&self.foreign_names, event, "foreign", thread)?),
                    None => (Cell::None, Cell::Text(&self.idle)),
                };
                // Without threads there is nothing to tell.
                if let Some(foreign) = &mut self.foreign {
                    foreign.push([sequence, time, cpu, index, label])?;
                } else {
                    return Ok(());
                }
            }
            EventKind::Hotplug { online } => {
                // Where the tables do not announce it, it is not told.
                let Some(hotplug) = &mut self.hotplug else { return Ok(()) };
                hotplug.push([sequence, time, cpu, Cell::id(u32::from(online))])?;
            }
            EventKind::Throttle { task, throttled } => {
                // As above.
                let Some(throttle) = &mut self.throttle else { return Ok(()) };
                throttle.push([
                    sequence,
                    time,
                    cpu,
                    Cell::task(task),
                    Cell::id(u32::from(Throttler::number(throttled))),
                ])?;
            }
            // No event of a trace: it is had again by simulating the run again, and takes no number.
            EventKind::BalanceDetail { .. } => return Ok(()),
            EventKind::Overhead { kind, duration_ns } => {
                self.overhead.push([sequence, time, cpu, Cell::Word(kind as u8), Cell::count(duration_ns)])?;
            }
        }
        self.events += 1;
        Ok(())
    }

    fn slice(&mut self, slice: &Slice) -> Result<(), StoreError> {
        let (start, end) = (Cell::count(slice.start_ns), Cell::count(slice.end_ns));
        let delay = slice.run_delay_ns.map_or(Cell::None, Cell::count);
        let (task, cpu, reason) = (Cell::task(slice.task), Cell::id(slice.cpu.0), Cell::Word(slice.end as u8));
        let [search_start, search_step] = reason_cells(slice.placed);
        self.slices.push([task, cpu, start, end, reason, delay, search_start, search_step])
    }

    /// Ends the store: the window closes at `end_ns` (or at the last event, if that is later), `tasks` are the tasks of the
    /// run. Afterwards all files have their final names.
    ///
    /// To be called for runs that failed, too. Every table is finished that can be; the first failure is returned. A table
    /// that failed while events were taken (which was reported then) keeps its temporary name.
    ///
    /// # Errors
    /// Whatever the operating system refuses.
    pub fn finish(mut self, end_ns: u64, tasks: &[TaskInfo]) -> Result<(), StoreError> {
        let described = self.describe(end_ns, tasks);
        let metadata = vec![
            (SCHEMA_KEY.to_owned(), self.version()),
            ("warmcore.tool_version".to_owned(), self.info.tool_version.clone()),
            ("warmcore.clock".to_owned(), self.info.clock.clone()),
            ("warmcore.host_id".to_owned(), self.info.host_id.clone()),
            ("warmcore.run_id".to_owned(), self.info.run_id.clone()),
        ];
        let writers = [
            self.switch,
            self.waking,
            self.wakeup,
            self.migrate,
            self.fork_exit,
            self.counters,
            self.phases,
            self.decisions,
            self.overhead,
            self.slices,
            self.topology,
            self.tasks,
        ];
        // Last: a store whose meta table has its final name is complete.
        writers
            .into_iter()
            .chain(self.scores)
            .chain(self.foreign)
            .chain(self.hotplug)
            .chain(self.throttle)
            .chain([self.meta])
            .map(|writer| writer.finish(&metadata))
            .fold(described, Result::and)
    }

    /// The schema that its tables need.
    fn version(&self) -> String {
        let minor = match (&self.throttle, &self.hotplug, &self.foreign) {
            (Some(_), ..) => SCHEMA_MINOR,
            (None, Some(_), _) => SCHEMA_MINOR_WITHOUT_THROTTLE,
            (None, None, Some(_)) => SCHEMA_MINOR_WITHOUT_HOTPLUG,
            (None, None, None) => SCHEMA_MINOR_WITHOUT_FOREIGN,
        };
        format!("{SCHEMA_MAJOR}.{minor}")
    }

    /// Fills the tables that are not events.
    fn describe(&mut self, end_ns: u64, tasks: &[TaskInfo]) -> Result<(), StoreError> {
        let open: Vec<Slice> = self.builder.open_slices(end_ns).collect();
        for slice in &open {
            self.slice(slice)?;
        }
        for cpu in self.machine.cpus() {
            self.topology.push(topology_row(&self.machine, cpu))?;
        }
        for task in tasks {
            let text = |text: &str| ByteArray::from(text);
            let (name, role, application) = (text(&task.name), text(&task.role), text(&task.application_name));
            self.tasks.push([
                Cell::task(task.id),
                Cell::Text(&name),
                Cell::Text(&role),
                Cell::id(task.application),
                Cell::Text(&application),
                Cell::id(task.process),
            ])?;
        }
        for (key, value) in self.meta_rows(end_ns)? {
            self.meta.push([Cell::Text(&ByteArray::from(key)), Cell::Text(&ByteArray::from(value.as_str()))])?;
        }
        Ok(())
    }

    /// The description of the run as keys and values, sorted by key.
    fn meta_rows(&self, end_ns: u64) -> Result<BTreeMap<&'static str, String>, StoreError> {
        let json = |value: serde_json::Result<String>| {
            value.map_err(|error| StoreError::Meta { path: self.meta.path().to_owned(), problem: error.to_string() })
        };
        Ok(BTreeMap::from([
            ("schema", self.version()),
            ("tool_version", self.info.tool_version.clone()),
            ("clock", self.info.clock.clone()),
            ("host_id", self.info.host_id.clone()),
            ("run_id", self.info.run_id.clone()),
            ("machine", self.machine.name().to_owned()),
            ("end_ns", end_ns.to_string()),
            ("events", self.events.to_string()),
            ("tables", json(serde_json::to_string(&self.tables))?),
        ]))
    }
}

fn topology_row(machine: &Machine, cpu: CpuId) -> [Cell<'static>; 10] {
    let (node, socket) = (machine.node_of(cpu), machine.socket_of(cpu));
    [
        Cell::id(cpu.0),
        Cell::id(machine.os_index(cpu)),
        Cell::id(machine.core_of(cpu).0),
        Cell::id(machine.cluster_of(cpu).0),
        Cell::id(machine.llc_of(cpu).0),
        Cell::id(node.0),
        Cell::id(machine.node_os_index(node)),
        Cell::id(socket.0),
        Cell::id(machine.socket_os_index(socket)),
        Cell::id(machine.capacity(cpu)),
    ]
}

fn reason_cells(reason: Option<PlaceReason>) -> [Cell<'static>; 2] {
    reason.map_or([Cell::None; 2], |PlaceReason { start, step }| [Cell::Word(start as u8), Cell::Word(step as u8)])
}

/// The name that an index of one of the run's tables stands for.
fn name<'a>(names: &'a [ByteArray], event: &Event, table: &'static str, index: u32) -> Result<Cell<'a>, StoreError> {
    let entry = names.get(index as usize).map(Cell::Text);
    entry.ok_or_else(|| crate::EventError::UnknownEntry { event: *event, table, index, length: names.len() }.into())
}

impl Sink for Store {
    /// # Errors
    /// A [`StoreError`] inside the [`io::Error`], whose kind is that of the operating system's error if there was one.
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        for event in batch {
            self.event(event)?;
        }
        Ok(())
    }
}
