//! Many experiments at once, and searches.
//!
//! - [`advice`]: which settings of a kernel to try when nobody names schedulers.
//! - [`gathering`]: what gathering groups of threads would win.
//! - [`load`]: how much of a workload keeps a given share of a machine busy.
//! - [`sweep`]: every machine with every workload, as one table of gains.
//! - [`oracle`]: the best static placement that is known of a workload's threads, run pinned. [`placement`] is its search over the
//!   analytic memory model, [`threads`] says who is placed.
//! - [`columns`]: inputs of columns of their own. [`pins`]: placements by name, for such columns.
//! - [`replayed`]: what is to be known of a recording, and its replay, tried once.

pub mod advice;
pub mod columns;
pub mod gathering;
pub mod load;
pub mod oracle;
pub mod pins;
pub mod placement;
pub mod replayed;
pub mod sweep;
pub mod threads;
