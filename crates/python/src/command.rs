//! The command `warmcore` of the wheel: one copy of the code serves it and the package.

use std::io::Write as _;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Does what the program does with a command line, and gives its exit code. The first word is the path of the command, which starts again what
/// runs here; `python` is the interpreter. Python's lock is released, signals are the program's.
#[pyfunction]
pub fn program(py: Python<'_>, words: Vec<PathBuf>, python: PathBuf) -> u8 {
    py.detach(|| {
        let code = warmcore::run(words.into_iter().map(PathBuf::into_os_string).collect(), Some(python));
        // As a program does at its end, and a library does not.
        let _ = std::io::stdout().flush();
        code
    })
}
