//! Recordings of real kernels as the project's trace events.
//!
//! What is recorded today is the kernel's own trace: pages of its ring buffers, decoded by the kernel's own description of
//! its events.
//!
//! - [`mod@format`]: that description, in the text of `events/*/format`. No offset is known beforehand.
//! - [`pages`]: records of a page.
//! - [`convert`]: records of all CPUs as the project's events.
//!
//! The crate is given bytes and texts; who recorded them, where, and how they travelled, it does not know.
//!
//! Sources: the kernel's `Documentation/trace/ring-buffer-map.rst`, `include/linux/ring_buffer.h` (types of records).

pub mod convert;
pub mod format;
pub mod pages;

use serde::{Deserialize, Serialize};

/// The kernel's description of the events that are recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EventFormats {
    /// `events/header_page`.
    pub header_page: String,
    /// Name and `format` of each event.
    pub events: Vec<(String, String)>,
}
