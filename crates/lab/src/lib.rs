//! Experiments: machine × workload × schedulers × trials, run, kept and judged.
//!
//! - [`load`]: texts that people type as machines, workloads and schedulers. [`builder`]: an experiment made of them.
//! - [`experiment`]: the experiment, resolved, and its record.
//! - [`making`]: trials made of the runs that a place hands over.
//! - [`runner`]: all trials, skipping those that are finished.
//! - [`trial`], [`measures`], [`results`]: what a trial holds; which of it is compared, in which direction; what the
//!   imitated program would have printed.
//! - [`gathering`]: how far a cache-aware scheduler gathers threads.
//! - [`scores`]: what schedulers rank tasks by, in words.
//! - [`time_split`]: where the time went, and what explains the difference between two schedulers.
//! - [`headroom`]: how far the schedulers are from the best static placement that is known.
//! - [`sensitivity`]: which assumed costs of the machine could turn the verdict.
//! - [`soak`]: stalls and lost tasks, over seeds.
//! - [`verdict`]: ratios, intervals, and the verdict in words.
//! - [`reading`]: a run directory read back to be shown.
//! - [`directory`], [`session`], [`table`], [`files`], [`environment`]: the run directory.
//!
//! This crate reads and writes files and the host's inventory. It prints nothing, and simulates nothing itself.

pub mod advice;
pub mod builder;
pub mod checksums;
pub mod column;
pub mod decisions;
pub mod directory;
pub mod environment;
pub mod experiment;
pub mod gathered;
pub mod gathering;
mod group_measures;
pub mod headroom;
mod host_measures;
mod jobs;
pub mod load;
pub mod making;
pub mod measures;
mod memory_measures;
mod observe;
pub mod operations;
pub mod placement_measures;
mod printed_number;
pub mod reading;
pub mod results;
mod role_measures;
pub mod runner;
pub mod scores;
pub mod sensitivity;
pub mod session;
pub mod soak;
mod starvation;
pub mod table;
pub mod time_split;
pub mod trial;
pub mod units;
pub mod verdict;
pub mod warm_up;

pub use warmcore_places::files;
