//! Places where an experiment can run.
//!
//! - [`vm`]: real kernels in virtual machines.
//! - [`files`]: files that are written whole or not at all, and their sums.
//!
//! What comes out of a place does not say what is made of it: trials, verdicts and pages are crate `lab`'s and above.

pub mod files;
pub mod vm;
