//! Studies: many experiments from one file, with what is expected of them.
//!
//! - [`file`](mod@file): the form of a study, and what is wrong with one. [`library`]: those that come with the program.
//!   [`choice`]: which of them, by name or file.
//! - [`figure`]: numbers that follow from measures of named cells, as expressions.
//! - [`plan`]: cells as experiments, equal ones once.
//! - [`run`](mod@run): one loop over all of them, which can be gone on with in a directory.
//! - [`chunk`]: the same elsewhere: trials as texts, and what comes back put together.
//! - [`judge`]: figures against what was published.
//! - [`baseline`]: figures against those of an earlier run.
//! - [`score`]: rows of a source, strictly: what counts once, what is scored, what is inside.
//! - [`sensitivity`]: what judgements rest on: the same with assumed costs changed.
//! - [`tune`]: settings that are best for many cells.
//! - [`document`]: the result: one document, one table. [`page`]: the same as a Markdown page.
//!
//! A study says in data what differs between a paper, a table of known answers and a gate. Nothing here simulates, and no benchmark,
//! machine or scheduler is known by name.

pub mod baseline;
pub mod choice;
pub mod chunk;
pub mod document;
pub mod figure;
pub mod file;
pub mod judge;
pub mod library;
pub mod page;
pub mod plan;
pub mod run;
pub mod score;
pub mod sensitivity;
pub mod tune;
