//! The ext class: the ten vectors of `docs/spec/sched-ext.md` section 15, and a program for each fault that the contract calls an error.

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod program;
mod vectors;
