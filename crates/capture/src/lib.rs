//! Recordings of real kernels as the project's trace events.
//!
//! - [`mod@format`]: the kernel's own description of its events, in the text of `events/*/format`. No offset is known beforehand.
//! - [`pages`]: the records in a page of the kernel's ring buffers.
//! - [`mod@record`]: what the scheduler did, read by that description.
//! - [`paged`]: records that stay in the pages of a file.
//! - [`recording`]: the records of one recording, of whatever format, with its threads and what was lost.
//! - [`convert`]: records as the project's events. [`counters`]: what threads counted. [`files`]: what a file's number was, and whose.
//!   [`homes`]: where pages lived. [`kernel_threads`]: which threads are the kernel's.
//! - [`mod@read`]: any of the files below, found by its content.
//! - [`trace_dat`]: files of `trace-cmd`, read and written (with feature `files`, like the readers below).
//! - [`written`]: pages and descriptions like the kernel's, of records that came another way.
//! - [`perf_data`]: files of `perf sched record`.
//! - [`perfetto`]: Perfetto's traces.
//! - [`schedviz`]: collections of SchedViz.
//! - [`ftrace_text`]: text of tracefs, `trace-cmd report`, `perf script`.
//!
//! The crate is given bytes and texts; who recorded them, where, and how they travelled, it does not know.
//!
//! Sources: the kernel's `Documentation/trace/ring-buffer-map.rst`, `include/linux/ring_buffer.h` (types of records).

#[cfg(feature = "files")]
mod bytes;
pub mod convert;
pub mod counters;
#[cfg(feature = "files")]
pub mod error;
#[cfg(feature = "files")]
mod extras;
pub mod files;
pub mod format;
#[cfg(feature = "files")]
pub mod ftrace_text;
pub mod homes;
mod instants;
pub mod kernel_threads;
#[cfg(feature = "files")]
mod loss;
mod missing;
mod one_at_a_time;
pub mod paged;
pub mod pages;
#[cfg(feature = "files")]
pub mod perf_data;
#[cfg(feature = "files")]
pub mod perfetto;
#[cfg(feature = "files")]
mod priorities;
#[cfg(feature = "files")]
pub mod read;
pub mod record;
pub mod recording;
#[cfg(feature = "files")]
mod ring;
#[cfg(feature = "files")]
pub mod schedviz;
#[cfg(feature = "files")]
mod states;
#[cfg(feature = "files")]
pub mod trace_dat;
#[cfg(feature = "files")]
mod unpack;
#[cfg(feature = "files")]
pub mod written;

pub use counters::CounterLog;
#[cfg(feature = "files")]
pub use error::{CaptureError, FilePosition};
pub use files::OpenFiles;
pub use homes::PageHomes;
pub use paged::{PagedRecords, Source, Tally, Wanted};
#[cfg(feature = "files")]
pub use read::read;
pub use record::{Call, Context, Record, What};
pub use recording::{Loss, Recording, Thread};
use serde::{Deserialize, Serialize};

/// The kernel's description of the events that are recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EventFormats {
    /// `events/header_page`.
    pub header_page: String,
    /// Subsystem and name of each event, and its `format`.
    pub events: Vec<(String, String)>,
}
