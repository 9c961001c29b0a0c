//! Numbers and texts of a file, one after the other; whatever is not there is an error with its place.

use crate::error::{CaptureError, FilePosition};

/// A place in a file of little-endian numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    format: &'static str,
    bytes: &'a [u8],
    at: usize,
    /// What is added to places in errors: where these bytes lie in the file.
    origin: usize,
}

impl<'a> Bytes<'a> {
    pub fn new(format: &'static str, bytes: &'a [u8]) -> Self {
        Self { format, bytes, at: 0, origin: 0 }
    }

    /// Bytes that lie, or lay before they were unpacked, at `origin` of the file.
    pub fn within(format: &'static str, bytes: &'a [u8], origin: usize) -> Self {
        Self { format, bytes, at: 0, origin }
    }

    /// The same file from another byte on.
    pub(crate) fn seek(self, at: u64) -> Result<Self, CaptureError> {
        match usize::try_from(at) {
            Ok(at) if at <= self.bytes.len() => Ok(Self { at, ..self }),
            _ => Err(self.damaged(format!("it points to byte {at}, and the file has {}", self.bytes.len()))),
        }
    }

    /// Where the next number lies in the file.
    pub fn place(&self) -> usize {
        self.origin + self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// All that is left.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub fn damaged(&self, reason: impl Into<String>) -> CaptureError {
        CaptureError::Damaged { format: self.format, place: FilePosition::Byte(self.place()), reason: reason.into() }
    }

    pub fn unsupported(&self, what: impl Into<String>, instead: &'static str) -> CaptureError {
        let (format, place) = (self.format, FilePosition::Byte(self.place()));
        CaptureError::Unsupported { format, place, what: what.into(), instead }
    }

    /// The next bytes.
    pub fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], CaptureError> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(found) => {
                self.at += found.len();
                Ok(found)
            }
            None => Err(self.damaged(format!("{what} takes {length} bytes, and {} are left of the file", rest.len()))),
        }
    }

    pub fn u8(&mut self, what: &str) -> Result<u8, CaptureError> {
        Ok(self.take(1, what)?[0])
    }

    pub fn u16(&mut self, what: &str) -> Result<u16, CaptureError> {
        Ok(u16::from_le_bytes(self.take(2, what)?.try_into().expect("two bytes")))
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, CaptureError> {
        Ok(u32::from_le_bytes(self.take(4, what)?.try_into().expect("four bytes")))
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, CaptureError> {
        Ok(u64::from_le_bytes(self.take(8, what)?.try_into().expect("eight bytes")))
    }

    /// A text that ends with a zero.
    pub fn text(&mut self, what: &str) -> Result<&'a str, CaptureError> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == 0) else {
            return Err(self.damaged(format!("{what} has no end")));
        };
        let Ok(text) = std::str::from_utf8(&rest[..end]) else {
            return Err(self.damaged(format!("{what} is not text")));
        };
        self.at += end + 1;
        Ok(text)
    }

    /// Bytes that must come next.
    pub fn expect(&mut self, expected: &[u8], what: &str) -> Result<(), CaptureError> {
        let here = *self;
        match self.take(expected.len() as u64, what)? {
            found if found == expected => Ok(()),
            _ => Err(here.damaged(format!("{what} should be here"))),
        }
    }
}

/// A text up to its first zero, where it has one; what is no UTF-8 is replaced.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
