//! This computer as a place for experiments: what it can do, and how its state is changed and put back.
//!
//! - [`place`]: all of it as a place.
//! - [`recorder`]: what its scheduler does while a command runs. [`counters`]: what threads count meanwhile. `peers`: what their files are;
//!   `homes`: where their pages are; `probes`: its back end with BPF.
//!
//! - [`journal`]: every change written down, with fsync, before it is made, and undone on every way out.
//! - [`leftovers`]: what a killed recording left of its tracing.
//! - [`displaced`]: a sched_ext scheduler of somebody else, ended and started again.
//! - [`survey`]: which of the kernel's interfaces are there.
//! - [`settings`]: how its trials are asked for.
//! - [`state`]: the changes that experiments make: CPUs offline, settings of the kernel, a sched_ext scheduler.
//! - [`trial`]: a command run once, and what else went on meanwhile.

pub mod counters;
pub mod displaced;
mod homes;
pub mod journal;
pub mod kept_pages;
pub mod leftovers;
mod outcome;
mod peers;
pub mod place;
mod probed;
mod probes;
pub mod recorder;
pub mod settings;
pub mod state;
pub mod survey;
pub mod tracing;
pub mod trial;
