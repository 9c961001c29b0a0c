//! The tests of this crate, in one binary: what they share is compiled and linked once. A file of this directory is a module here.

mod background;
mod behaviour;
mod drawn_times;
#[path = "support/events.rs"]
mod events;
#[path = "support/fifo.rs"]
mod fifo;
mod futexes;
mod launchers;
mod shared_cores;
