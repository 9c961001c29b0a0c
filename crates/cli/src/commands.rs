//! One module per verb, and what several of them do.

use std::path::Path;

use serde::Serialize;
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::session::pretty;

use crate::console::Console;
use crate::failure::Failure;

pub mod columns;
pub mod compare;
pub mod dask;
pub mod explain;
pub mod group;
pub mod host;
pub mod load_levels;
pub mod machine;
pub mod memory;
pub mod metrics;
pub mod native;
pub mod record;
pub mod recording;
pub mod reference;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod schedulers;
pub mod sim;
pub mod soak;
pub mod study;
pub mod study_drawings;
pub mod sweep;
pub mod tune;
pub mod validate;
pub mod validate_memory;
pub mod vm;
pub mod workload;

/// A file, or a directory of files, that a command made.
#[derive(Serialize)]
pub struct WrittenFile {
    /// What is in it, such as `page`.
    what: &'static str,
    path: String,
}

impl WrittenFile {
    /// What is in a file that was made.
    pub fn new(what: &'static str, path: &Path) -> Self {
        Self { what, path: path.display().to_string() }
    }
}

/// The document of a command with `--json`: its schema, the program's version, and what is in it.
pub fn as_document<T: Serialize>(schema: &'static str, content: &T) -> String {
    #[derive(Serialize)]
    struct Document<'a, T> {
        schema: &'static str,
        tool_version: &'static str,
        #[serde(flatten)]
        content: &'a T,
    }
    pretty(&Document { schema, tool_version: TOOL_VERSION, content })
}

/// The document of a command with `--json` whose result is a text or files.
#[derive(Serialize)]
struct WrittenDocument<'a> {
    files: &'a [WrittenFile],
    /// The text itself, where it went to no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// Prints what was written.
pub fn print_written(files: &[WrittenFile], text: Option<&str>, console: &Console) -> Result<(), Failure> {
    Ok(console.out(&as_document("warmcore-written-1", &WrittenDocument { files, text }))?)
}

/// Writes a text to a file that does not exist yet, or to standard output if there is none or it is `-`.
fn write_output(path: Option<&Path>, text: &str, console: &Console) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        return Ok(console.out(text)?);
    };
    write_new(path, text.as_bytes(), console.force())
}

/// Writes a file that is not there yet, unless `force`.
fn write_new(path: &Path, bytes: &[u8], force: bool) -> Result<(), Failure> {
    check_new(path, force)?;
    Ok(warmcore_lab::files::write_atomically(path, bytes)?)
}

/// Checks that a file is not there yet, unless `force`.
fn check_new(path: &Path, force: bool) -> Result<(), Failure> {
    match path.exists() && !force {
        false => Ok(()),
        true => Err(Failure::usage("warmcore::output", format!("{} exists already", path.display()))
            .help("name another one, or write over it with --force")),
    }
}

/// The same for a command whose whole result the text is; with `json` the document says what was written, and holds a text that went to
/// no file.
fn write_result(path: Option<&Path>, (what, text): (&'static str, &str), console: &Console) -> Result<(), Failure> {
    let json = console.json();
    match path.filter(|path| *path != Path::new("-")) {
        None if json => print_written(&[], Some(text), console),
        None => Ok(console.out(text)?),
        Some(path) => {
            write_output(Some(path), text, console)?;
            if json { print_written(&[WrittenFile::new(what, path)], None, console) } else { Ok(()) }
        }
    }
}
