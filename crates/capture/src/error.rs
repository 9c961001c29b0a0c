//! Why a recording could not be read.

use std::fmt;

/// Where in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePosition {
    /// Byte, from 0.
    Byte(usize),
    /// Line, from 1.
    Line(usize),
}

impl fmt::Display for FilePosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(at) => write!(out, "byte {at}"),
            Self::Line(at) => write!(out, "line {at}"),
        }
    }
}

/// What is read.
const FORMATS: &str = "trace.dat of trace-cmd, perf.data of perf sched record, traces of Perfetto, collections of SchedViz, and text of trace, trace_pipe, trace-cmd report or perf script";

/// Why a recording could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum CaptureError {
    #[error("{format} is damaged at {place}: {reason}; copy the file again, or record again")]
    Damaged {
        /// Format of the file, such as `trace.dat`.
        format: &'static str,
        place: FilePosition,
        reason: String,
    },
    /// The file is whole, but says something that is not read.
    #[error("{format}, {place}: {what} cannot be read; {instead}")]
    Unsupported { format: &'static str, place: FilePosition, what: String, instead: &'static str },
    #[error("this is no recording that can be read: {begins}; read are {FORMATS}")]
    Unknown { begins: String },
    #[error("{format} has no event of the scheduler; record them: {command}")]
    NoSchedule {
        format: &'static str,
        /// A command that records what is needed.
        command: &'static str,
    },
}
