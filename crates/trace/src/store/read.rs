//! Reading a store back: the description of the run, its events in their original order, its slices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::read_table::TableReader;
use super::schema::{self, AFFINITY, EVENT_TABLES, FORK};
use super::write::StoreInfo;
use crate::{
    Event, EventKind, MigrationKind, OverheadKind, PlaceReason, PrevState, RunTables, SearchStart, SearchStep, Slice,
    SliceEnd, TaskId, TaskInfo, Throttler,
};

/// A finished store.
#[derive(Clone, Debug)]
pub struct StoreReader {
    directory: PathBuf,
    info: StoreInfo,
    machine_name: String,
    end_ns: u64,
    events: u64,
    tables: RunTables,
    tasks: Vec<TaskInfo>,
}

impl StoreReader {
    /// Opens the store in a directory.
    ///
    /// # Errors
    /// No store, one that was cut off, one of a newer version, one whose description is damaged.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let mut meta = TableReader::open(schema::META, directory)?;
        let mut facts = BTreeMap::new();
        while meta.advance()? {
            facts.insert(meta.text(0).to_owned(), meta.text(1).to_owned());
        }
        let problem = |problem: String| StoreError::Meta { path: meta.path().to_owned(), problem };
        let fact = |key: &str| facts.get(key).cloned().ok_or_else(|| problem(format!("{key} is missing")));
        let number = |key: &str| -> Result<u64, StoreError> {
            let text = fact(key)?;
            text.parse().map_err(|_| problem(format!("{key} is {text:?}, which is not a number")))
        };
        let tables = serde_json::from_str(&fact("tables")?).map_err(|error| problem(format!("tables: {error}")))?;
        let info = StoreInfo {
            tool_version: fact("tool_version")?,
            clock: fact("clock")?,
            host_id: fact("host_id")?,
            run_id: fact("run_id")?,
        };
        Ok(Self {
            info,
            machine_name: fact("machine")?,
            end_ns: number("end_ns")?,
            events: number("events")?,
            tables,
            tasks: read_tasks(directory)?,
            directory: directory.to_owned(),
        })
    }

    /// What made the run, where, and under which name.
    pub fn info(&self) -> &StoreInfo {
        &self.info
    }

    /// Name of the machine the run was made on.
    pub fn machine_name(&self) -> &str {
        &self.machine_name
    }

    /// End of the window.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Number of events.
    #[cfg(test)]
    pub(crate) fn event_count(&self) -> u64 {
        self.events
    }

    /// The tables that events refer to.
    pub fn tables(&self) -> &RunTables {
        &self.tables
    }

    /// The tasks of the run.
    pub fn tasks(&self) -> &[TaskInfo] {
        &self.tasks
    }

    /// All events, in the order in which they happened. A few thousand rows of each table are in memory at a time.
    ///
    /// # Errors
    /// Tables that cannot be opened.
    pub fn events(&self) -> Result<EventReader, StoreError> {
        let scores = (!self.tables.scores.is_empty()).then_some(schema::SCORES);
        let foreign = (!self.tables.foreign.is_empty()).then_some(schema::FOREIGN);
        let hotplug = self.tables.hotplug.then_some(schema::HOTPLUG);
        let throttle = self.tables.throttle.then_some(schema::THROTTLE);
        let mut opened = Vec::with_capacity(EVENT_TABLES.len() + 4);
        for table in EVENT_TABLES.into_iter().chain(scores).chain(foreign).chain(hotplug).chain(throttle) {
            let mut source = EventTable { reader: TableReader::open(table, &self.directory)?, sequence: None };
            source.advance()?;
            opened.push(source);
        }
        Ok(EventReader {
            directory: self.directory.clone(),
            sources: opened,
            next: 0,
            events: self.events,
            failed: false,
        })
    }

    /// All slices, in order of their end; those that did not end come last, in order of tasks.
    ///
    /// # Errors
    /// A table that cannot be opened.
    pub fn slices(&self) -> Result<SliceReader, StoreError> {
        Ok(SliceReader { reader: TableReader::open(schema::SLICES, &self.directory)?, failed: false })
    }
}

fn read_tasks(directory: &Path) -> Result<Vec<TaskInfo>, StoreError> {
    let mut reader = TableReader::open(schema::TASKS, directory)?;
    let mut tasks = Vec::new();
    while reader.advance()? {
        tasks.push(TaskInfo {
            id: TaskId(reader.id(0)?),
            name: reader.text(1).to_owned(),
            role: reader.text(2).to_owned(),
            application: reader.id(3)?,
            application_name: reader.text(4).to_owned(),
            process: reader.id(5)?,
        });
    }
    Ok(tasks)
}

/// One table of events and the sequence number of its present row.
struct EventTable {
    reader: TableReader,
    sequence: Option<u64>,
}

impl EventTable {
    fn advance(&mut self) -> Result<(), StoreError> {
        self.sequence = if self.reader.advance()? { Some(self.reader.count(0)?) } else { None };
        Ok(())
    }
}

/// Reads the events of a store in order. Ends after the first error.
pub struct EventReader {
    directory: PathBuf,
    sources: Vec<EventTable>,
    next: u64,
    events: u64,
    failed: bool,
}

impl EventReader {
    fn read(&mut self) -> Result<Event, StoreError> {
        let position = self.sources.iter().position(|source| source.sequence == Some(self.next));
        let gap = || StoreError::Gap { path: self.directory.clone(), missing: self.next, events: self.events };
        let source = &mut self.sources[position.ok_or_else(gap)?];
        let event = event(&source.reader)?;
        source.advance()?;
        self.next += 1;
        Ok(event)
    }
}

impl Iterator for EventReader {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.next == self.events {
            return None;
        }
        let event = self.read();
        self.failed = event.is_err();
        Some(event)
    }
}

/// The event in the present row of one of the tables of events. Columns 0 to 2 are sequence, time and CPU.
fn event(row: &TableReader) -> Result<Event, StoreError> {
    let kind = match row.table_name() {
        "sched_switch" => EventKind::Switch {
            prev: row.task(3)?,
            prev_state: PrevState::ALL[usize::from(row.word(4))],
            next: row.task(5)?,
        },
        "sched_waking" => {
            EventKind::Waking { task: row.task(3)?, target_cpu: row.cpu(4)?, waker: row.optional_task(5)? }
        }
        "sched_wakeup" => EventKind::Wakeup { task: row.task(3)?, reason: place_reason(row, 4) },
        "sched_migrate" => EventKind::Migrate {
            task: row.task(3)?,
            from: row.cpu(4)?,
            to: row.cpu(5)?,
            kind: MigrationKind::ALL[usize::from(row.word(6))],
        },
        "fork_exit" => fork_exit(row)?,
        "counters" => EventKind::Counter { counter: row.id(3)?, task: row.task(5)?, value: row.count(6)? },
        "phases" => EventKind::Phase { task: row.task(3)?, phase: row.id(4)? },
        "decisions" => EventKind::Decision { decision: row.id(3)?, task: row.task(5)?, value: row.int(6) },
        "hotplug" => EventKind::Hotplug { online: row.id(3)? == 1 },
        "throttle" => EventKind::Throttle { task: row.task(3)?, throttled: Throttler::of_number(row.id(4)? as usize) },
        "foreign" => {
            let index = |value: i64| u32::try_from(value).map_err(|_| row.bad_value(3, value.to_string()));
            EventKind::Foreign { thread: row.optional(3).map(index).transpose()? }
        }
        "scores" => EventKind::Score { score: row.id(3)?, task: row.task(5)?, value: row.int(6) },
        _ => EventKind::Overhead { kind: OverheadKind::ALL[usize::from(row.word(3))], duration_ns: row.count(4)? },
    };
    Ok(Event { time_ns: row.count(1)?, cpu: row.cpu(2)?, kind })
}

/// The reason whose two words begin in that column.
fn place_reason(row: &TableReader, column: usize) -> Option<PlaceReason> {
    Some(PlaceReason {
        start: SearchStart::ALL[usize::from(row.optional_word(column)?)],
        step: SearchStep::ALL[usize::from(row.optional_word(column + 1)?)],
    })
}

fn fork_exit(row: &TableReader) -> Result<EventKind, StoreError> {
    let task = row.task(4)?;
    let required = |column: usize| row.optional(column).ok_or_else(|| row.bad_value(column, "nothing".to_owned()));
    let id = |column: usize, value: i64| u32::try_from(value).map_err(|_| row.bad_value(column, value.to_string()));
    Ok(match row.word(3) {
        FORK => {
            let parent = match required(5)? {
                -1 => TaskId::IDLE,
                parent => TaskId(id(5, parent)?),
            };
            EventKind::Fork { parent, child: task }
        }
        AFFINITY => EventKind::Affinity { task, restriction: id(6, required(6)?)? },
        _ => EventKind::Exit { task },
    })
}

/// Reads the slices of a store. Ends after the first error.
pub struct SliceReader {
    reader: TableReader,
    failed: bool,
}

impl SliceReader {
    fn read(&mut self) -> Result<Option<Slice>, StoreError> {
        let row = &mut self.reader;
        if !row.advance()? {
            return Ok(None);
        }
        let delay = |value: i64| u64::try_from(value).map_err(|_| row.bad_value(5, value.to_string()));
        let slice = Slice {
            task: row.task(0)?,
            cpu: row.cpu(1)?,
            start_ns: row.count(2)?,
            end_ns: row.count(3)?,
            end: SliceEnd::ALL[usize::from(row.word(4))],
            run_delay_ns: row.optional(5).map(delay).transpose()?,
            placed: place_reason(row, 6),
        };
        Ok(Some(slice))
    }
}

impl Iterator for SliceReader {
    type Item = Result<Slice, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let slice = self.read();
        self.failed = !matches!(slice, Ok(Some(_)));
        slice.transpose()
    }
}
