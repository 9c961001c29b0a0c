//! Finds the format of a file by its content.

use std::sync::Arc;

use crate::error::CaptureError;
use crate::paged::{Source, read_exactly};
use crate::recording::Recording;
use crate::{ftrace_text, perf_data, perfetto, schedviz, trace_dat};

/// Reads a recording of whatever format.
///
/// # Errors
/// A file of no format that is read, or any error of its reader.
pub fn read(bytes: &[u8]) -> Result<Recording, CaptureError> {
    if bytes.starts_with(trace_dat::MAGIC) {
        return trace_dat::read(bytes);
    }
    if perf_data::MAGIC.iter().any(|magic| bytes.starts_with(magic)) {
        return perf_data::read(bytes);
    }
    let is_text = !bytes.contains(&0);
    // Names of threads may be any bytes; a text with some that are no UTF-8 is a text still.
    let text = String::from_utf8_lossy(bytes);
    if is_text && ftrace_text::looks_like(&text) {
        return ftrace_text::read(&text);
    }
    if schedviz::looks_like(bytes) {
        return schedviz::read(bytes);
    }
    if perfetto::looks_like(bytes) {
        return perfetto::read(bytes);
    }
    Err(CaptureError::Unknown { begins: beginning(bytes) })
}

/// Bytes from which a format is found, enough for the first lines of a text.
const HEAD: u64 = 1 << 18;

/// Reads a recording of whatever format from a file that stays where it is. Of those that can, records are left in it
/// ([`trace_dat::open`]); of texts no more than some lines are in memory.
///
/// # Errors
/// As [`read`], and what the file cannot be read for.
pub fn open(source: Arc<dyn Source>) -> Result<Recording, CaptureError> {
    let length = source.length();
    let mut head = vec![0; HEAD.min(length) as usize];
    read_exactly(&*source, 0, &mut head).map_err(unreadable)?;
    if head.starts_with(trace_dat::MAGIC) {
        return trace_dat::open(source);
    }
    if !head.contains(&0) && ftrace_text::looks_like(&String::from_utf8_lossy(&head)) {
        return ftrace_text::open(&*source);
    }
    // Perfetto's traces begin with a packet, collections are packed by gzip.
    let is_perf = perf_data::MAGIC.iter().any(|magic| head.starts_with(magic));
    if !is_perf && !matches!(head[..], [PACKET, ..] | [0x1f, 0x8b, ..]) {
        return Err(CaptureError::Unknown { begins: beginning(&head) });
    }
    let mut bytes = vec![0; length as usize];
    read_exactly(&*source, 0, &mut bytes).map_err(unreadable)?;
    read(&bytes)
}

/// What begins a packet of Perfetto's: field 1, a length and so many bytes.
const PACKET: u8 = 1 << 3 | 2;

/// That a file cannot be read.
pub(crate) fn unreadable(error: std::io::Error) -> CaptureError {
    CaptureError::Unknown { begins: format!("it cannot be read: {error}") }
}

/// How the file begins, to recognise it by.
fn beginning(bytes: &[u8]) -> String {
    const SHOWN: usize = 24;
    match bytes {
        [] => "it is empty".into(),
        [0x1f, 0x8b, ..] => "it is packed by gzip: unpack it first".into(),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is packed by zstd: unpack it first".into(),
        _ if bytes.get(257..262) == Some(b"ustar") => "it is an archive of tar: unpack it first".into(),
        _ => format!("it begins with \"{}\"", bytes[..bytes.len().min(SHOWN)].escape_ascii()),
    }
}
