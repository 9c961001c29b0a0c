//! How far the simulator can be trusted.
//!
//! - [`bytecode`]: programs of schedulers, run by a real kernel and here.
//! - [`validate`]: the fidelity book: the simulator against a real kernel.
//!
//! Experiments and their trials are crate `lab`'s; pages that people look at are `report`'s and the command line's.

pub mod bytecode;
pub mod validate;
