//! The fidelity book: experiments that are run in the simulator and on a real kernel and compared, metric by metric.
//!
//! - [`book`]: an experiment as a file, with its bounds and its negative controls.
//! - [`profile`], [`metric`]: what is compared, from events alone.
//! - [`calls`]: what calls of sched_ext operations call.
//! - [`judge`]: errors and verdicts.
//! - [`costs`]: what the kernel's own actions cost in guests, and so in what is simulated beside them.
//! - [`run`]: both places. [`stored`]: the real kernel's results as small files.
//! - [`page`]: the book as a page.
//!
//! Bounds stand in an experiment's file before its results do. Not here: whether both places are right about hardware; no
//! place has caches.

pub mod book;
pub mod calls;
pub mod costs;
pub mod judge;
pub mod metric;
mod models;
pub mod page;
pub mod plots;
pub mod profile;
pub mod run;
pub mod stored;
