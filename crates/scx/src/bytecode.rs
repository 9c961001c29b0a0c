//! Programs in bytecode: an object that a loader has loaded, as [`Operations`](crate::Operations).
//!
//! [`Host`] is the kernel as programs see it: structures in memory at the offsets of a real kernel's type information, maps, helpers and
//! kfuncs. A loader's server makes one, loads programs into it and runs those that set things up; the moment it attaches the scheduler, an
//! [`Object`] keeps everything, and each run begins with a [`Bytecode`] made from it.
//!
//! Source: `docs/spec/bpf-runtime.md` sections 6 to 9. What is modelled and what is not: `docs/models/scx.md`.

mod callbacks;
mod cids;
mod collections;
mod counters;
mod cpumasks;
mod dynptrs;
mod groups;
mod helpers;
mod host;
mod iterators;
mod kfuncs;
mod layout;
mod listing;
mod live;
mod needs;
mod object;
mod operations;
mod prices;
mod samples;
mod sites;
mod strings;
#[cfg(test)]
mod tests;
mod text;
mod timers;
mod tracepoints;
mod user_space;

pub use counters::{Counted, CountedOf, CounterId, CounterReading, CounterSpec, name_of_event};
pub use host::{Host, LOADER_PID};
pub use layout::{Layout, LayoutError};
pub use needs::{Need, NeedKind};
pub use object::{Attached, Object, ObjectError, ProgramId, ProgramSource, Programs};
pub use operations::{Bytecode, Usage};
pub use samples::Sampling;
pub use sites::{AttachType, CalledWith, Site};
pub use tracepoints::Tracepoint;
pub use user_space::{ATTACHED_NS, Course, Moment, UserSpace};
pub use warmcore_bpf::MemoryError;
