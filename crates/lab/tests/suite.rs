//! The tests of this crate, in one binary: what they share is compiled and linked once. A file of this directory is a module here.

mod answerable;
mod arrivals;
mod conditions;
mod places;
mod time_split;
mod verdict;
mod wiki;
