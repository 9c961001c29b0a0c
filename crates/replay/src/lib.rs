//! What recordings can be made into: workloads that answer to another machine or scheduler, and groups of threads that belong
//! together.
//!
//! - [`selection`]: which threads of a recording are meant.
//! - [`history`]: what each of them did: ran, woke others, slept and why, forked, exited. [`signals`]: whose waits it ended.
//! - [`workload`]: histories as programs. Waits and orders follow from the schedule, not from the recording (a closed loop).
//!   `sleeps`: which of their sleeps have a length, and which an end. `speeds`: how fast their work went.
//!   `overheads`: what of a thread's time the kernel took.
//!   `listening`: for what threads waited, and connections from outside that whoever is free takes.
//! - [`pools`]: which of them take requests of one queue.
//!   `requests`: what they did for each, as programs that whoever is free carries out.
//! - [`service`]: requests that came on connections, and how long each took. `arrivals`: which of them come from outside, at their own times.
//!   `measured`: which clocks of its task a request of a replay is measured with.
//! - [`drawn`]: histories as roles that draw their times from those recorded (an open loop).
//! - [`graph`]: who wakes whom, and what of that is more than chance. [`groups`]: which threads belong together.
//!   [`followed`]: how groups change from one recording to the next.
//! - [`events`]: a run of any place as a recording.
//!
//! The crate is given recordings and gives values: it reads no files and prints nothing. What a recording does not tell (affinities,
//! task groups, memory) is not invented; see `docs/replay.md`.

mod arrivals;
pub mod drawn;
pub mod events;
mod fidelity;
pub mod followed;
pub mod graph;
pub mod groups;
pub mod history;
mod listening;
mod measured;
mod occupied;
mod overheads;
mod policies;
pub mod pools;
mod requests;
pub mod selection;
pub mod service;
pub mod signals;
mod sleeps;
mod speeds;
pub mod workload;

pub use arrivals::Arrived;
pub use drawn::Roles;
pub use fidelity::Fidelity;
pub use graph::{Edge, Graph, Medium};
pub use groups::{Groups, ThreadGroup};
pub use history::{Action, Cause, Histories, History};
pub use listening::Accepted;
pub use occupied::Occupied;
pub use overheads::Overheads;
pub use policies::Realtime;
pub use pools::{Pool, Pools};
pub use selection::{Selection, SelectionError};
pub use sleeps::Sleeps;
pub use workload::Replay;
