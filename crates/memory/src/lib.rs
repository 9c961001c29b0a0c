//! Caches, coherence and DRAM: what a workload's memory accesses cost on a machine, depending on who runs where.
//!
//! - [`Profile`]: what a task touches, as a mixture of line classes. One description drives every model.
//! - [`Curves`]: the profile's closed forms: footprint, misses per instruction, the inverse, set-associativity.
//! - [`Hierarchy`]: what a model needs of a machine: caches, latencies, bandwidths; refuses impossible caches.
//! - [`library`]: profiles by name.
//! - [`exact`]: every line touch in simulated caches, coherence and memory.
//! - [`validate`]: one level against the other.
//! - [`fit`]: profiles from counters.
//!
//! The crate knows machines but no kernel, no scheduler and no workload file. It does no I/O, reads no clock, and uses
//! one exponential function everywhere ([`math::exp`]), so that equal input gives equal bytes on every host.

pub mod analytic;
pub mod curves;
pub mod dependent_load;
pub mod exact;
pub mod fit;
pub mod hierarchy;
pub mod library;
pub mod math;
pub mod profile;
mod profile_toml;
pub mod tables;
pub mod validate;

pub use analytic::Analytic;
pub use curves::{Curves, Replacement};
pub use hierarchy::{CacheShape, Fill, Hierarchy, HierarchyError};
pub use profile::{
    Class, ClassKind, Home, NOMINAL_INSTRUCTIONS_PER_NS, Profile, ProfileError, ProfileProblem, Scope, Sharing,
};
pub use profile_toml::{ProfileFileError, profiles_from_toml, profiles_to_toml, touches_per_ki};
