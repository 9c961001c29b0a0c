//! What can go wrong with a machine description: where, why, and what to try.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a machine could not be read, built or written.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // messages have the fields
pub enum Error {
    /// A file or directory could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A file or directory could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A file was read, but its text is not what the format asks for.
    #[error("{place}: {reason}{}", Hint(hint))]
    Invalid { place: Location, reason: String, hint: String },
    /// The description is well formed, but no machine can look like that.
    #[error("machine `{machine}` is impossible: {reason}{}", Hint(hint))]
    Impossible { machine: String, reason: String, hint: String },
    /// No preset has that name, and the text is no other kind of machine specification either.
    #[error("unknown machine `{spec}`{}", Hint(hint))]
    Unknown { spec: String, hint: String },
    /// No background that comes with the program has that name.
    #[error("unknown background `{name}`{}", Hint(hint))]
    UnknownBackground { name: String, hint: String },
    /// The machine exists, but the target format has no words for it.
    #[error("{format} cannot describe machine `{machine}`: {}{}", reasons.join("; "), Hint(hint))]
    Inexpressible { format: &'static str, machine: String, reasons: Vec<String>, hint: String },
}

impl Error {
    /// An [`Error::Invalid`] without hint.
    pub(crate) fn invalid(place: Location, reason: impl Into<String>) -> Self {
        Error::Invalid { place, reason: reason.into(), hint: String::new() }
    }

    /// An [`Error::Invalid`] with a hint.
    pub(crate) fn invalid_with_hint(place: Location, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Invalid { place, reason: reason.into(), hint: hint.into() }
    }

    /// The same error, placed in the file `path` when it was found in text whose origin the reader did not know.
    #[must_use]
    pub fn in_file(self, path: impl Into<PathBuf>) -> Self {
        match self {
            Error::Invalid { place, reason, hint } => {
                Error::Invalid { place: Location { path: place.path.or(Some(path.into())), ..place }, reason, hint }
            }
            other => other,
        }
    }
}

/// Where in the input something was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The format being read: `machine TOML`, `hwloc XML`.
    pub format: &'static str,
    /// The file, when there is one.
    pub path: Option<PathBuf>,
    /// The line, counted from 1, when it is known.
    pub line: Option<usize>,
}

impl Location {
    /// A place of which only the format is known.
    pub(crate) fn format(format: &'static str) -> Self {
        Self { format, path: None, line: None }
    }

    /// A line of a text.
    pub(crate) fn line(format: &'static str, line: usize) -> Self {
        Self { format, path: None, line: Some(line) }
    }

    /// A whole file.
    pub(crate) fn file(format: &'static str, path: impl Into<PathBuf>) -> Self {
        Self { format, path: Some(path.into()), line: None }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.line) {
            (None, None) => f.write_str(self.format),
            (None, Some(line)) => write!(f, "{}, line {line}", self.format),
            (Some(path), None) => write!(f, "{} ({})", path.display(), self.format),
            (Some(path), Some(line)) => write!(f, "{}:{line} ({})", path.display(), self.format),
        }
    }
}

/// Prints a hint after a message, or nothing.
struct Hint<'a>(&'a str);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; {}", self.0) }
    }
}
