//! Reading and writing small files of the kernel, with errors that say which.

use std::fs;

/// The text of a file, without the line end at its end.
pub fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path)
        .map(|text| text.trim_end().to_owned())
        .map_err(|error| format!("cannot read {path}: {error}"))
}

/// Writes a file that is there already.
pub fn write(path: &str, text: &str) -> Result<(), String> {
    let file = fs::OpenOptions::new().write(true).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| format!("cannot write `{text}` to {path}: {error}"))
}

/// Names of a directory's entries in order; none if there is no such directory.
pub fn names(path: &str) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
