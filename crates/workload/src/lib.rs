//! Workloads: what tasks do, as programs of steps that a simulated kernel and real threads both run.
//!
//! - [`program`]: the data model.
//! - [`Workload::check`]: refuses what cannot be run.
//!
//! The crate does no I/O, reads no clock and uses no random numbers: the same text gives the same workload.

mod build;
mod check;
mod duration;
mod error;
mod nearest;
pub mod program;
mod step;

pub use build::ProgramBuilder;
pub use check::{CheckError, CheckProblem, MAX_INSTANT_ITERATIONS, MAX_TASKS};
pub use duration::{DurationError, DurationProblem, MAX_DURATION_NS, format_duration, parse_duration};
pub use error::{DocumentError, DocumentProblem, GeneratorError, GeneratorProblem, SyntaxError, WorkloadError};
pub use nearest::nearest;
pub use program::*;
