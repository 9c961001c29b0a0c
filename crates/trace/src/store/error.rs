//! What can go wrong with a store, always with the file concerned.

use std::io;
use std::path::PathBuf;

use parquet::errors::ParquetError;

use super::schema::SCHEMA_MAJOR;
use crate::EventError;

/// A store could not be written or read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum StoreError {
    /// The operating system refused.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried: `create`, `rename`, `read`, ….
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot write {}: {source}; what was finished before stays readable", path.display())]
    Write { path: PathBuf, source: ParquetError },
    #[error("cannot read {}: {reason}; it is damaged or no Parquet file", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} exists already; stores are never overwritten, choose an empty directory", path.display())]
    Exists { path: PathBuf },
    #[error("{} was left unfinished by a run that was cut off; run it again", path.display())]
    Interrupted { path: PathBuf },
    #[error(
        "{} has schema version {found}, and this program reads up to {}; read it with the version that wrote it, or newer",
        path.display(), SCHEMA_MAJOR
    )]
    Version {
        path: PathBuf,
        /// Version in the file, `none` if it says none.
        found: String,
    },
    /// A column that must be there is not, or holds something else.
    #[error("{}: column {column} {problem}", path.display())]
    Column { path: PathBuf, column: &'static str, problem: String },
    #[error("{}: row {row} of column {column} holds {value}, which is no possible value there", path.display())]
    Value { path: PathBuf, column: &'static str, row: u64, value: String },
    #[error("{value} does not fit column {column} of {}", path.display())]
    TooLarge { path: PathBuf, column: &'static str, value: String },
    #[error("{}: event {missing} of {events} is in none of the tables; they do not belong together", path.display())]
    Gap {
        path: PathBuf,
        /// Sequence number of the first missing event.
        missing: u64,
        /// Number of events the store should hold.
        events: u64,
    },
    /// The description of the run is not as it should be.
    #[error("{}: {problem}", path.display())]
    Meta { path: PathBuf, problem: String },
    /// An event that cannot be.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl StoreError {
    /// The kind of the operating system's error behind it, where there is one.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            StoreError::Io { source, .. } => source.kind(),
            StoreError::Write { source: ParquetError::External(source), .. } => {
                source.downcast_ref::<io::Error>().map_or(io::ErrorKind::Other, io::Error::kind)
            }
            StoreError::Write { .. } => io::ErrorKind::Other,
            StoreError::Exists { .. } => io::ErrorKind::AlreadyExists,
            _ => io::ErrorKind::InvalidData,
        }
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        io::Error::new(error.kind(), error)
    }
}
