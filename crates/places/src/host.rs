//! This computer as a place for experiments: what it can do, and how its state is changed and put back.
//!
//! - [`place`]: all of it as a place.
//! - [`recorder`]: what its scheduler does while a command runs.
//!
//! - [`journal`]: every change written down, with fsync, before it is made, and undone on every way out.
//! - [`displaced`]: a sched_ext scheduler of somebody else, ended and started again.
//! - [`survey`]: which of the kernel's interfaces are there.
//! - [`state`]: the changes that experiments make: CPUs offline, settings of the kernel, a sched_ext scheduler.
//! - [`trial`]: a command run once, and what else went on meanwhile.

pub mod displaced;
pub mod journal;
mod outcome;
pub mod place;
pub mod recorder;
pub mod state;
pub mod survey;
pub mod trial;
