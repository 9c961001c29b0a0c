//! Reading and writing small files of the kernel, with errors that say which.

use std::fs;
use std::io::Read as _;

/// Some files of the kernel (`events/header_page`) answer one read only, so the first one is large.
const FIRST_READ: usize = 64 << 10;

/// The text of a file, without the line end at its end.
///
/// # Errors
/// When it cannot be read, with its path.
pub fn read(path: &str) -> Result<String, String> {
    let text = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let mut bytes = vec![0; FIRST_READ];
        let length = file.read(&mut bytes)?;
        bytes.truncate(length);
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = text().map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Writes a file that is there already.
///
/// # Errors
/// When it cannot be written, with its path.
pub fn write(path: &str, text: &str) -> Result<(), String> {
    let file = fs::OpenOptions::new().write(true).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| format!("cannot write `{text}` to {path}: {error}"))
}

/// Names of a directory's entries in order; none if there is no such directory.
#[must_use]
pub fn names(path: &str) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
