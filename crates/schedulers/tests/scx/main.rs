//! The ext class: the ten vectors of `docs/spec/sched-ext.md` section 15, and programs with a fault for each error of section 11.

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod program;
mod vectors;
