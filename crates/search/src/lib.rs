//! Many experiments at once.
//!
//! - [`sweep`]: every machine with every workload, as one table of gains.

pub mod sweep;
