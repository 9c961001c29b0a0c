//! The exact level: every cache line that a task touches, in set-associative caches with a coherence directory.
//!
//! Cores have an L1 and an L2, last-level caches have a domain of cores, lines have home nodes. Time is counted per
//! touch and per miss; memory and links slow down with load. The level is the yardstick of the analytic one, and can
//! be used alone: on tasks with profiles ([`Simulation`]) or on address traces ([`address_trace`], [`Replay`]), or under a
//! kernel whose tasks come and go ([`Live`]).
//!
//! Not simulated: instructions' order inside a core, prefetching (profiles say what it hides),
//! banks and queues of memory, limited directories, an L2 shared by several
//! cores, caches beyond the LLC. Waiting of one line transfer for another is not either.
//!
//! Source: `docs/spec/memory-model.md` section 3; deviations are listed in `docs/models/memory-exact.md`.

pub mod address_trace;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
mod build;
pub mod cache;
mod coherence;
mod counters;
mod domain;
mod error;
mod first_level;
mod history;
mod home;
#[cfg(test)]
mod invariants;
pub mod lanes;
mod links;
mod live;
mod load;
mod options;
pub mod page_table;
mod paging;
mod ports;
mod replay;
mod simulation;
mod space;
pub mod stream;
mod task;

pub use counters::{ClassCounters, NodeTraffic, TaskCounters};
pub use error::ExactError;
pub use history::{HistoryLevel, HistorySpec};
pub use live::{Done, Live, LiveSpec, Share};
pub use options::{L2Fill, LlcFill, Options, Protocol};
pub use paging::{LEAST_PAGE_BYTES, PagingSpec};
pub use replay::{DEFAULT_PAGE_BYTES, Replay, ThreadCounters};
pub use simulation::{FS_PER_NS, Simulation};
pub use space::TaskSpec;

#[cfg(test)]
mod tests;
