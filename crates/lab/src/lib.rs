//! Experiments: machine × workload × schedulers × trials, run, kept and judged.
//!
//! - [`experiment`]: the experiment, resolved, and its record.
//! - [`sim`]: one trial in the simulator. The seam for other places: a function of the same shape beside this one.
//! - [`runner`]: all trials, in parallel, skipping those that are finished.
//! - [`trial`], [`measures`], [`results`]: what a trial holds; which of it is compared, in which direction; what the
//!   imitated program would have printed.
//! - [`scores`]: what schedulers rank tasks by, in words.
//! - [`time_split`]: where the time went, and what explains the difference between two schedulers.
//! - [`verdict`]: ratios, intervals, and the verdict in words.
//! - [`reading`]: a run directory read back to be shown.
//! - [`directory`], [`session`], [`table`], [`files`], [`environment`]: the run directory.
//!
//! This crate reads and writes files and the host's inventory. It prints nothing, and simulates nothing itself.

pub mod decisions;
pub mod directory;
pub mod environment;
pub mod experiment;
pub mod measures;
mod memory_measures;
mod observe;
pub mod reading;
pub mod results;
pub mod runner;
pub mod scores;
pub mod session;
pub mod sim;
pub mod table;
pub mod time_split;
pub mod trial;
pub mod verdict;

pub use warmcore_places::files;
