//! Workloads: what tasks do, as programs of steps that a simulated kernel and real threads both run.
//!
//! - [`program`]: the data model.
//! - [`from_rtapp`], [`to_rtapp`]: rt-app JSON files, read and written.
//! - [`from_generator`], [`generators`]: look-alikes of benchmark programs, made from their own flags.
//! - [`library`]: workloads with names of their own, for published experiments.
//! - [`resolve`]: any of them, from what a user typed.
//! - [`Distribution`]: run and sleep times that vary.
//! - [`Workload::check`]: refuses what cannot be run.
//! - [`results`]: the lines the imitated programs print.
//!
//! The crate does no I/O and reads no clock. The same text gives the same workload; what a step draws at random while it runs, whoever
//! runs it draws from [`Draws`], which the run's seed decides.

mod action;
mod affinity;
mod aggregate;
mod build;
mod check;
mod cpu_max;
mod distribution;
mod duration;
mod error;
pub mod generate;
mod groups;
mod latch;
mod launch;
pub mod library;
mod nearest;
mod objects;
mod pace;
mod policy;
pub mod program;
mod resolve;
pub mod results;
pub mod rtapp;
mod scale;
mod step;
mod util_clamp;

pub use action::{Action, Deed, Destination, Hotplug, LOOK_NS, LOOKS};
pub use aggregate::{Aggregate, AggregateError, AggregateTarget, Aggregation};
pub use build::{ProgramBuilder, add_warning};
pub use check::{CheckError, CheckProblem, MAX_INSTANT_ITERATIONS, MAX_TASKS};
pub use cpu_max::{CpuMax, CpuMaxError};
pub use distribution::{Distribution, DistributionError, Draws, LONGEST_NS};
pub use duration::{DurationError, DurationProblem, MAX_DURATION_NS, format_duration, parse_duration};
pub use error::{DocumentError, DocumentProblem, GeneratorError, GeneratorProblem, SyntaxError, WorkloadError};
pub use generate::{
    FlagInfo, GeneratorInfo, HACKBENCH_TIME, LoadText, LoadTextError, from_generator, generators, is_generator,
    load_text,
};
pub use groups::MAX_GROUP_DEPTH;
pub use launch::Launch;
pub use policy::{Policy, PolicyError, Reservation};
pub use program::*;
pub use resolve::{resolve, workload_name};
pub use results::as_measure_name;
pub use rtapp::{
    Options, TEMPLATE, WriteError, from_rtapp, is_as_written, profiles_from_json, profiles_to_json, to_rtapp,
};
pub use util_clamp::{ClampPercent, ClampPercentError, GroupClamp, UtilClamp, UtilClampError};
