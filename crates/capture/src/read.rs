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

/// Reads a recording of whatever format from a file that stays where it is. Of those that can, records are left in it
/// ([`trace_dat::open`]).
///
/// # Errors
/// As [`read`], and what the file cannot be read for.
pub fn open(source: Arc<dyn Source>) -> Result<Recording, CaptureError> {
    let unreadable = |error: std::io::Error| CaptureError::Unknown { begins: format!("it cannot be read: {error}") };
    let length = source.length();
    let mut magic = vec![0; (trace_dat::MAGIC.len() as u64).min(length) as usize];
    read_exactly(&*source, 0, &mut magic).map_err(unreadable)?;
    if magic == trace_dat::MAGIC {
        return trace_dat::open(source);
    }
    let mut bytes = vec![0; length as usize];
    read_exactly(&*source, 0, &mut bytes).map_err(unreadable)?;
    read(&bytes)
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
