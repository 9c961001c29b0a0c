//! Files and standard input as text, of a limited length: an endless file is an error, not the end of memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest input that is read: 64 MiB. A workload of a million tasks has about as much.
pub const MAX_INPUT_BYTES: u64 = 64 << 20;

/// The text of a file.
///
/// # Errors
/// Those of reading it, text that is not UTF-8, and files longer than [`MAX_INPUT_BYTES`].
pub fn file(path: &Path) -> io::Result<String> {
    text(File::open(path)?, MAX_INPUT_BYTES)
}

/// The text of standard input; errors as [`file()`]'s.
pub fn standard_input() -> io::Result<String> {
    text(io::stdin().lock(), MAX_INPUT_BYTES)
}

fn text(source: impl Read, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let reason = format!("it is longer than {}, the most that is read", warmcore_topology::format_size(limit));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_up_to_the_limit_are_read_and_longer_ones_refused() {
        assert_eq!(text(&b"12345678"[..], 8).unwrap(), "12345678");
        let error = text(&b"123456789"[..], 8).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 8B, the most that is read");
        assert_eq!(text(io::repeat(0), 1 << 16).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn input_that_is_no_text_says_so() {
        assert_eq!(text(&[0xff][..], 8).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
