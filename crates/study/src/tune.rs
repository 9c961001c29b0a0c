//! Tuning: which values of a scheduler's settings are best for several workloads on several machines.
//!
//! - [`form`]: the file of a tuning, and what is wrong with one.
//! - [`search`](mod@search): candidates against the default under common seeds, races, and the confirmation under seeds and on workloads that
//!   the search never saw.
//! - [`document`]: what came of it, as a document and in words.
//!
//! A candidate's value is a ratio to the default, 1 where nothing changes and less where it is better. For each seed the ratios of all cells
//! become one: their largest or their geometric mean. What is confirmed is the one candidate that the search chose, so that the choice among
//! many does not flatter it. Where candidates come from ([`search::Sampler`]) and where trials run the caller says.

pub mod document;
pub mod form;
pub mod search;

#[cfg(test)]
mod tests;
