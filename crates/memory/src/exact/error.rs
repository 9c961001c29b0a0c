//! What the exact level refuses.

use thiserror::Error;

use crate::hierarchy::HierarchyError;
use crate::profile::ProfileError;

/// Why a machine or a set of tasks cannot be simulated, or a task not be placed.
#[derive(Clone, PartialEq, Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ExactError {
    /// The machine's caches are impossible.
    #[error(transparent)]
    Hierarchy(#[from] HierarchyError),
    /// A profile is impossible.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A cache that exists but not here.
    #[error("{cache}: {reason}")]
    Cache {
        cache: String,
        /// What about it, and what to try.
        reason: String,
    },
    #[error("the machine has {0} last-level caches; the exact level simulates at most 64")]
    TooManyDomains(usize),
    #[error("the classes have {lines} lines in all, at most {most} can be distinguished; make them smaller or sample")]
    TooManyLines { lines: u64, most: u64 },
    #[error(
        "the tasks' memory has {lines} lines, whose directories would take {gib} GiB of the host's memory where {most_gib} are allowed; \
         give the tasks less memory, or run fewer of them, or use the analytic level"
    )]
    Room { lines: u64, gib: u64, most_gib: u64 },
    #[error(
        "pages of {page_bytes} bytes cannot be translated; write a power of two of at least {least}, which a table fills"
    )]
    TranslatedPage { page_bytes: u64, least: u64 },
    #[error(
        "a page of {page_bytes} bytes does not fit into the {memory_bytes} bytes of a node's memory; make pages smaller or memory larger"
    )]
    PageBeyondMemory { page_bytes: u64, memory_bytes: u64 },
    #[error(
        "a translation buffer of {entries} entries is impossible; write 0 for none, or a power of two up to {most}"
    )]
    TlbEntries { entries: u32, most: u32 },
    #[error(
        "addresses are translated only where all lines are simulated; simulate every line, or leave page tables out"
    )]
    PagedSample,
    #[error(
        "the memory of all {nodes} nodes is full: there is no frame of {page_bytes} bytes left; give the machine more memory or the tasks less"
    )]
    MemoryFull { nodes: usize, page_bytes: u64 },
    #[error("there are no tasks; name at least one")]
    NoTasks,
    #[error("shared class `{class}`: {reason}; all who share it must agree")]
    Group { class: String, reason: String },
    #[error("class `{class}` of task {task} belongs to a data group, but the task is in none")]
    NoGroup { class: String, task: usize },
    #[error("class `{class}` has home shares for {given} nodes, but the machine has {nodes}")]
    HomeNodes { class: String, given: usize, nodes: usize },
    #[error("task {task} moves to another core, but its private lines are not followed; set `follow_migrations`")]
    NotFollowed { task: usize },
    #[error("CPU {cpu} is taken by task {other}; task {task} cannot run there")]
    Occupied { cpu: u32, other: usize, task: usize },
    #[error("the machine has no CPU {cpu}; its {count} CPUs are numbered from 0")]
    NoCpu { cpu: u32, count: usize },
    #[error("the trace has a thread {thread}, but only {known} threads have a CPU")]
    NoThread { thread: usize, known: usize },
    #[error("pages of {page_bytes} bytes are impossible; write a power of two of at least {line_bytes}, a line")]
    PageSize { page_bytes: u64, line_bytes: u64 },
}
