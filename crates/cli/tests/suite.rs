//! The tests of the program, in one binary: each binary of its own would be linked with the whole workspace. A file of this directory is a module
//! here; `cargo test -p warmcore --test suite readme::` runs one.

mod advice;
mod arrows;
mod bad_input;
mod book_pages;
mod citations;
mod columns;
mod commands;
mod common;
mod documents;
mod explain;
mod foreign_input;
mod gate;
mod guests;
mod headroom;
mod licences;
mod loads;
mod manual;
mod memory;
mod papers;
mod programs_of_the_book;
mod random_experiments;
mod readme;
mod real_kernel;
mod recordings;
mod replayed_times;
mod report;
mod reproduce;
mod requests;
mod results_index;
mod run_directory;
mod sensitivity;
mod stories;
mod streams;
mod studies;
mod users;
