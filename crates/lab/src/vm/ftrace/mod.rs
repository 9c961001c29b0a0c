//! The kernel's trace: pages of its ring buffers, decoded by the kernel's own description of its events.
//!
//! - [`mod@format`]: that description, in the text of `events/*/format`. No offset is known beforehand.
//! - [`pages`]: records of a page.
//! - [`convert`]: records of all CPUs as the project's events.
//!
//! Sources: the kernel's `Documentation/trace/ring-buffer-map.rst`, `include/linux/ring_buffer.h` (types of records).

pub mod convert;
pub mod format;
pub mod pages;
