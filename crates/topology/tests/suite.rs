//! The tests of this crate, in one binary: what they share is compiled and linked once. A file of this directory is a module here.

mod corpus;
mod foreign;
mod hwloc_tools;
mod presets;
mod refusals;
mod robustness;
mod round_trips;
mod support;
