//! The store: a run as Parquet tables in a directory, one file per table. The only part of the crate that does input and
//! output.
//!
//! | file | one row per | columns besides `sequence`, `time_ns`, `cpu` |
//! |---|---|---|
//! | `sched_switch` | context switch | `prev`, `prev_state` (`R`, `S`, `X`, `I`), `next`; −1 is idle |
//! | `sched_waking` | waking | `task`, `target_cpu` (where it last ran), `waker` (−1: an interrupt, or not known) |
//! | `sched_wakeup` | wakeup, on the CPU it is queued on | `task`, `search_start` and `search_step` (why there; nothing if nobody told) |
//! | `sched_migrate` | migration | `task`, `from_cpu`, `to_cpu`, `kind` |
//! | `fork_exit` | fork, exit, change of affinity | `event`, `task`, `parent`, `restriction` |
//! | `counters` | counter sample | `counter`, `name`, `task`, `value` |
//! | `phases` | begin of a phase | `task`, `phase`, `name` |
//! | `decisions` | decision of the scheduler | `decision`, `name` (subject and reason), `task`, `value` (meaning: `tables` in `meta`) |
//! | `scores` | sample of what the scheduler ranks a task by; only where scores were sampled | `score`, `name`, `task`, `value` |
//! | `foreign` | thread beside the run's, or nobody, that a CPU runs from now on; only where a recorder tells | `thread`, `name` |
//! | `hotplug` | CPU that goes offline or comes online; only where one does | `online` (0 or 1) |
//! | `overhead` | piece of kernel time | `kind`, `duration_ns` |
//!
//! `sequence` is the position of the event in the run, over all tables. Without these three columns:
//!
//! | file | one row per | columns |
//! |---|---|---|
//! | `slices` | stay on a CPU | `task`, `cpu`, `start_ns`, `end_ns`, `end`, `run_delay_ns`, `search_start` and `search_step` of the wakeup before it |
//! | `topology` | CPU | `cpu`, `core`, `cluster`, `llc`, `node`, `socket`, the operating system's numbers, `capacity` |
//! | `tasks` | task | `task`, `name`, `role`, `application`, `application_name`, `process` |
//! | `meta` | fact about the run | `key`, `value` |
//!
//! Times are nanoseconds as 64-bit integers. Rows are in order of time (slices: of their end), so row groups cover
//! consecutive stretches of time. Every file carries schema version, tool version, clock, host and run in its metadata.
//! Equal runs give equal bytes: nothing depends on the time or the place of writing.
//!
//! Three questions for DuckDB (`duckdb -c "…"` in the directory; Polars reads the same files):
//!
//! ```sql
//! -- Longest waits: who, where, when.
//! SELECT name, cpu, start_ns, run_delay_ns FROM 'slices.parquet' JOIN 'tasks.parquet' USING (task)
//!   ORDER BY run_delay_ns DESC NULLS LAST LIMIT 10;
//!
//! -- Run time of each role by LLC.
//! SELECT role, llc, sum(end_ns - start_ns) / 1e6 AS run_ms FROM 'slices.parquet'
//!   JOIN 'tasks.parquet' USING (task) JOIN 'topology.parquet' USING (cpu) GROUP BY ALL ORDER BY ALL;
//!
//! -- Migrations between LLCs by reason.
//! SELECT kind, count(*) FROM 'sched_migrate.parquet'
//!   JOIN 'topology.parquet' a ON from_cpu = a.cpu JOIN 'topology.parquet' b ON to_cpu = b.cpu
//!   WHERE a.llc <> b.llc GROUP BY kind;
//! ```

mod error;
mod read;
mod read_table;
mod schema;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub use error::StoreError;
pub use read::{EventReader, SliceReader, StoreReader};
pub use schema::{SCHEMA_MAJOR, SCHEMA_MINOR};
pub use write::{Store, StoreInfo, StoreOptions};
