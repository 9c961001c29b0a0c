//! The tests of this crate, in one binary: what they share is compiled and linked once. A file of this directory is a module here.

mod balance;
#[path = "behaviour/main.rs"]
mod behaviour;
mod cfs_4_9;
#[path = "checklist/main.rs"]
mod checklist;
#[path = "conformance/main.rs"]
mod conformance;
mod contention;
mod place_reasons;
mod scores;
#[path = "scx/main.rs"]
mod scx;
mod support;
mod ule;
