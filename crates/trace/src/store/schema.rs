//! The tables of a stored run: names, columns, versions. The only place that knows them; writer and reader follow it.

use crate::{MigrationKind, OverheadKind, PrevState, SearchStart, SearchStep, SliceEnd};

/// Version that writers of another meaning of the same columns raise; readers refuse what is newer.
pub const SCHEMA_MAJOR: u32 = 1;

/// Version that new tables and columns raise; readers ignore what they do not know. 1: scores, where they were sampled. 2: wakers.
/// 3: reasons of places. 4: threads beside the run's, where a recorder tells. 5: CPUs that go offline and come online. 6: tasks that
/// quotas (1) and reservations (2) keep from running. A store says the one that its tables need.
pub const SCHEMA_MINOR: u32 = 6;

/// The version of a store in which no quota keeps a task from running.
pub(crate) const SCHEMA_MINOR_WITHOUT_THROTTLE: u32 = 5;

/// The version of a store in which no CPU goes offline or comes online either.
pub(crate) const SCHEMA_MINOR_WITHOUT_HOTPLUG: u32 = 4;

/// The version of a store that has no threads beside the run's either.
pub(crate) const SCHEMA_MINOR_WITHOUT_FOREIGN: u32 = 3;

/// Key of the schema version in the metadata of every file.
pub(crate) const SCHEMA_KEY: &str = "warmcore.schema";

/// What a column holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Ascending 64-bit numbers: instants and sequence numbers.
    Ascending,
    /// 64-bit numbers.
    Int64,
    /// 64-bit numbers or nothing.
    OptionalInt64,
    /// Ids; −1 for no task (idle).
    Id,
    /// Ids or nothing.
    OptionalId,
    /// Ids or nothing, in a column that stores of an older minor version lack: nothing in all rows.
    LaterId,
    /// One of a few words.
    Word(&'static [&'static str]),
    /// One of a few words or nothing, in a column that stores of an older minor version lack: nothing in all rows.
    LaterWord(&'static [&'static str]),
    /// Any text.
    Text,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// Name; the file adds `.parquet`.
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

const SEQUENCE: Column = column("sequence", Kind::Ascending);
const TIME: Column = column("time_ns", Kind::Ascending);
const CPU: Column = column("cpu", Kind::Id);
const TASK: Column = column("task", Kind::Id);
const SEARCH_START: Column = column("search_start", Kind::LaterWord(SearchStart::WORDS));
const SEARCH_STEP: Column = column("search_step", Kind::LaterWord(SearchStep::WORDS));

/// Words of the column `event` of `fork_exit`.
pub(crate) const FORK: u8 = 0;
pub(crate) const EXIT: u8 = 1;
pub(crate) const AFFINITY: u8 = 2;

pub(crate) const SWITCH: Table = Table {
    name: "sched_switch",
    columns: &[
        SEQUENCE,
        TIME,
        CPU,
        column("prev", Kind::Id),
        column("prev_state", Kind::Word(&PrevState::WORDS)),
        column("next", Kind::Id),
    ],
};

pub(crate) const WAKING: Table = Table {
    name: "sched_waking",
    columns: &[SEQUENCE, TIME, CPU, TASK, column("target_cpu", Kind::Id), column("waker", Kind::LaterId)],
};

pub(crate) const WAKEUP: Table =
    Table { name: "sched_wakeup", columns: &[SEQUENCE, TIME, CPU, TASK, SEARCH_START, SEARCH_STEP] };

pub(crate) const MIGRATE: Table = Table {
    name: "sched_migrate",
    columns: &[
        SEQUENCE,
        TIME,
        CPU,
        TASK,
        column("from_cpu", Kind::Id),
        column("to_cpu", Kind::Id),
        column("kind", Kind::Word(&MigrationKind::WORDS)),
    ],
};

pub(crate) const FORK_EXIT: Table = Table {
    name: "fork_exit",
    columns: &[
        SEQUENCE,
        TIME,
        CPU,
        column("event", Kind::Word(&["fork", "exit", "affinity"])),
        TASK,
        column("parent", Kind::OptionalId),
        column("restriction", Kind::OptionalId),
    ],
};

pub(crate) const COUNTERS: Table = Table {
    name: "counters",
    columns: &[
        SEQUENCE,
        TIME,
        CPU,
        column("counter", Kind::Id),
        column("name", Kind::Text),
        TASK,
        column("value", Kind::Int64),
    ],
};

pub(crate) const PHASES: Table = Table {
    name: "phases",
    columns: &[SEQUENCE, TIME, CPU, TASK, column("phase", Kind::Id), column("name", Kind::Text)],
};

pub(crate) const DECISIONS: Table = Table {
    name: "decisions",
    columns: &[
        SEQUENCE,
        TIME,
        CPU,
        column("decision", Kind::Id),
        column("name", Kind::Text),
        TASK,
        column("value", Kind::Int64),
    ],
};

/// There only where scores were sampled.
pub(crate) const SCORES: Table = Table {
    name: "scores",
    columns: &[
        SEQUENCE,
        TIME,
        CPU,
        column("score", Kind::Id),
        column("name", Kind::Text),
        TASK,
        column("value", Kind::Int64),
    ],
};

/// There only where a recorder tells of threads beside the run's.
pub(crate) const FOREIGN: Table = Table {
    name: "foreign",
    columns: &[SEQUENCE, TIME, CPU, column("thread", Kind::OptionalId), column("name", Kind::Text)],
};

/// There only where CPUs go offline or come online.
pub(crate) const HOTPLUG: Table =
    Table { name: "hotplug", columns: &[SEQUENCE, TIME, CPU, column("online", Kind::Id)] };

/// There only where quotas keep tasks from running.
pub(crate) const THROTTLE: Table =
    Table { name: "throttle", columns: &[SEQUENCE, TIME, CPU, TASK, column("throttled", Kind::Id)] };

pub(crate) const OVERHEAD: Table = Table {
    name: "overhead",
    columns: &[
        SEQUENCE,
        TIME,
        CPU,
        column("kind", Kind::Word(&OverheadKind::WORDS)),
        column("duration_ns", Kind::Int64),
    ],
};

pub(crate) const SLICES: Table = Table {
    name: "slices",
    columns: &[
        TASK,
        CPU,
        column("start_ns", Kind::Ascending),
        column("end_ns", Kind::Ascending),
        column("end", Kind::Word(&SliceEnd::WORDS)),
        column("run_delay_ns", Kind::OptionalInt64),
        SEARCH_START,
        SEARCH_STEP,
    ],
};

pub(crate) const TOPOLOGY: Table = Table {
    name: "topology",
    columns: &[
        CPU,
        column("os_cpu", Kind::Id),
        column("core", Kind::Id),
        column("cluster", Kind::Id),
        column("llc", Kind::Id),
        column("node", Kind::Id),
        column("os_node", Kind::Id),
        column("socket", Kind::Id),
        column("os_socket", Kind::Id),
        column("capacity", Kind::Int64),
    ],
};

pub(crate) const TASKS: Table = Table {
    name: "tasks",
    columns: &[
        TASK,
        column("name", Kind::Text),
        column("role", Kind::Text),
        column("application", Kind::Id),
        column("application_name", Kind::Text),
        column("process", Kind::Int64),
    ],
};

pub(crate) const META: Table =
    Table { name: "meta", columns: &[column("key", Kind::Text), column("value", Kind::Text)] };

/// The tables that every store has and whose rows are events, each with a sequence number of its own: together they are the trace.
pub(crate) const EVENT_TABLES: [Table; 9] =
    [SWITCH, WAKING, WAKEUP, MIGRATE, FORK_EXIT, COUNTERS, PHASES, DECISIONS, OVERHEAD];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_table_begins_with_sequence_time_and_cpu() {
        for table in EVENT_TABLES.into_iter().chain([SCORES, FOREIGN, HOTPLUG, THROTTLE]) {
            let names: Vec<&str> = table.columns.iter().take(3).map(|column| column.name).collect();
            assert_eq!(names, ["sequence", "time_ns", "cpu"], "{}", table.name);
        }
    }
}
