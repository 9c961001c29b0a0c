//! What ends the program, and with which exit code: the one place where errors become codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; a closed pipe on standard output counts as done |
//! | 1 | the operation failed |
//! | 2 | bad usage or configuration |
//! | 3 | it ran, and a requested check failed |
//! | 4 | this machine or kernel cannot do it; nothing was changed |
//! | 5 | the state of this computer could not be put back; the journal is kept |
//! | 130, 143 | interrupted, terminated; what was finished is valid |

use std::fmt;
use std::io;
use std::path::Path;

use miette::Diagnostic;
use serde::Serialize;
use warmcore_lab::files::FileError;
use warmcore_report::printable::printable;

use crate::commands::as_document;

/// Class of a failure, which decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The operation failed.
    Failed,
    /// Bad usage, input or configuration.
    Usage,
    /// It ran, and a requested check failed.
    Check,
    /// This machine or kernel cannot do it.
    Unable,
    /// The state of this computer could not be put back.
    State,
    /// Ended by the signal with this number.
    Signal(i32),
}

/// A failure as it is told to the user: what, why, and what to try.
#[derive(Debug)]
pub struct Failure {
    class: Class,
    /// Stable name, such as `warmcore::workload`.
    code: &'static str,
    message: String,
    help: Option<String>,
    /// Standard output was closed by its reader.
    closed_pipe: bool,
}

impl Failure {
    /// Bad usage, input or configuration.
    pub fn usage(code: &'static str, message: impl fmt::Display) -> Self {
        Self::new(Class::Usage, code, message)
    }

    /// The operation failed.
    pub fn failed(code: &'static str, message: impl fmt::Display) -> Self {
        Self::new(Class::Failed, code, message)
    }

    /// This machine or kernel cannot do it.
    pub fn unable(code: &'static str, message: impl fmt::Display) -> Self {
        Self::new(Class::Unable, code, message)
    }

    /// Any class.
    pub fn new(class: Class, code: &'static str, message: impl fmt::Display) -> Self {
        let message = shortened(printable(&message.to_string()).into_owned());
        Self { class, code, message, help: None, closed_pipe: false }
    }

    /// A file that is an input could not be read.
    pub fn cannot_read(path: &Path, error: &io::Error) -> Self {
        let failure = Self::usage("warmcore::input", format!("cannot read {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::NotFound => failure.help("check the path"),
            io::ErrorKind::InvalidData => failure.help("the file is not UTF-8 text"),
            _ => failure,
        }
    }

    /// What to try.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(printable(&help.into()).into_owned());
        self
    }

    /// The program's exit code.
    pub fn exit_code(&self) -> u8 {
        if self.closed_pipe {
            return 0;
        }
        match self.class {
            Class::Failed => 1,
            Class::Usage => 2,
            Class::Check => 3,
            Class::Unable => 4,
            Class::State => 5,
            Class::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
        }
    }

    /// The failure as the JSON document of a command with `--json`.
    pub fn document(&self) -> String {
        let (code, message, help) = (self.code, self.message.as_str(), self.help.as_deref());
        as_document("warmcore-error-1", &ErrorDocument { code, message, help, exit_code: self.exit_code() })
    }

    /// Whether there is nobody to tell.
    pub fn is_quiet(&self) -> bool {
        self.closed_pipe
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Diagnostic for Failure {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display + 'a>)
    }
}

/// Bytes of a message that are shown from its beginning, and as many from its end. A name in a file may be as long as the file.
const SHOWN: usize = 4096;

/// A message without its middle if it is very long.
fn shortened(message: String) -> String {
    if message.len() <= 2 * SHOWN {
        return message;
    }
    let is_boundary = |at: &usize| message.is_char_boundary(*at);
    let beginning = (0..=SHOWN).rev().find(is_boundary).unwrap_or(0);
    let end = (message.len() - SHOWN..message.len()).find(is_boundary).unwrap_or(message.len());
    format!("{} […{} bytes left out…] {}", &message[..beginning], end - beginning, &message[end..])
}

/// What a failed command with `--json` prints.
#[derive(Serialize)]
struct ErrorDocument<'a> {
    code: &'a str,
    message: &'a str,
    help: Option<&'a str>,
    exit_code: u8,
}

/// The document for a command line that cannot be understood.
pub fn usage_document(message: &str) -> String {
    Failure::usage("warmcore::usage", message.trim_end()).document()
}

/// Files that cannot be read or written.
impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::failed("warmcore::files", &error).help(error.advice())
    }
}

/// Errors of standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let closed_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        let failure = Self::failed("warmcore::output", format!("cannot write to standard output: {error}"));
        Self { closed_pipe, ..failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_the_class() {
        assert_eq!(Failure::failed("x", "").exit_code(), 1);
        assert_eq!(Failure::usage("x", "").exit_code(), 2);
        assert_eq!(Failure::new(Class::Check, "x", "").exit_code(), 3);
        assert_eq!(Failure::unable("x", "").exit_code(), 4);
        assert_eq!(Failure::new(Class::Signal(2), "x", "").exit_code(), 130);
        assert_eq!(Failure::new(Class::Signal(15), "x", "").exit_code(), 143);
    }

    #[test]
    fn a_message_as_long_as_a_file_is_shown_without_its_middle() {
        let failure = Failure::usage("x", format!("there is no `{}`, but `ä`", "ä".repeat(200_000)));
        let message = failure.to_string();
        assert!(
            message.len() < 9000 && message.starts_with("there is no `ä") && message.ends_with("ä`, but `ä`"),
            "{message}"
        );
        assert!(message.contains("bytes left out"));
        assert_eq!(Failure::usage("x", "as it is").to_string(), "as it is");
    }

    #[test]
    fn a_closed_pipe_is_a_quiet_success_and_a_full_disk_is_not() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((closed.exit_code(), closed.is_quiet()), (0, true));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!((full.exit_code(), full.is_quiet()), (1, false));
    }
}
