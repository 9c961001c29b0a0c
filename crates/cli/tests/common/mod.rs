//! What the tests of the program share: a scratch directory, and the program run in it.

#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A small experiment that takes milliseconds.
pub const MACHINE: &str = "2s1n1l2c1t";
/// Its workload.
pub const WORKLOAD: &str = "hackbench:-T,-p,-f2,-g2,-l20";

/// Whether experiments can keep their journal, or what is lacking.
pub fn is_root() -> Result<(), &'static str> {
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    root.then_some(()).ok_or("the journal of changes needs root")
}

/// Whether recording is possible here, or what is lacking.
pub fn can_record() -> Result<(), &'static str> {
    // The kernel makes the directory; the program mounts what belongs there.
    let traces = ["/sys/kernel/tracing", "/sys/kernel/debug"].iter().any(|path| Path::new(path).is_dir());
    (is_root().is_ok() && traces).then_some(()).ok_or("recording needs root and the kernel's tracing (tracefs)")
}

/// A file of the project must be what was made; with UPDATE_PAGES=1 it is made so.
pub fn expect_file(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if fs::read_to_string(&path).is_ok_and(|text| text == made) {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_PAGES").is_some(),
        "{name} is not what is made of it; UPDATE_PAGES=1 makes it again"
    );
    fs::write(&path, made).expect("a file of the project can be written");
}

/// One experiment at a time changes this computer, and another is refused: tests that make one wait for each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory that is gone after the test, in which the program runs.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new one.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a scratch directory can be made"))
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in it.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a scratch file can be written");
    }

    /// The program with these words, separated by spaces; not started yet.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warmcore"));
        command.args(words.split_whitespace()).current_dir(self.0.path()).env("TERM", "xterm");
        // The columns of whoever runs the tests are not those of the texts that they expect.
        command.env_remove("NO_COLOR").env_remove("COLUMNS");
        command
    }

    /// Runs the program with these words.
    pub fn run(&self, words: &str) -> Ran {
        let output = self.command(words).output().expect("the program can be started");
        Ran::new(words, output)
    }

    /// Runs the program with these words and these before them as they are.
    pub fn run_with(&self, first: &[&str], words: &str) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warmcore"));
        command.args(first).args(words.split_whitespace()).current_dir(self.0.path());
        Ran::new(words, command.output().expect("the program can be started"))
    }

    /// Runs the program with these words and this one after them as it is.
    pub fn run_with_last(&self, words: &str, last: &str) -> Ran {
        Ran::new(words, self.command(words).arg(last).output().expect("the program can be started"))
    }

    /// Runs the program with these words where programs are looked for in `path`.
    pub fn run_in_path(&self, path: &str, words: &str) -> Ran {
        Ran::new(words, self.command(words).env("PATH", path).output().expect("the program can be started"))
    }

    /// The names of all files under a directory of it, sorted.
    pub fn files(&self, directory: &str) -> Vec<String> {
        let mut found = Vec::new();
        list(&self.path(directory), "", &mut found);
        found.sort();
        found
    }
}

fn list(directory: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("the directory can be read") {
        let entry = entry.expect("the entry can be read");
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            list(&entry.path(), &format!("{name}/"), found);
        } else {
            found.push(name);
        }
    }
}

/// What a run of the program left.
pub struct Ran {
    what: String,
    /// Exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub error: String,
}

impl Ran {
    /// What is left of a program that has ended.
    pub fn new(what: &str, output: Output) -> Self {
        Self {
            what: what.to_owned(),
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            error: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "warmcore {}\n--- out\n{}\n--- error\n{}", self.what, self.out, self.error);
        self
    }

    /// Checks that standard error holds a text; line breaks and the frame of the message do not matter.
    #[track_caller]
    pub fn complains(self, text: &str) -> Self {
        let words = |text: &str| text.split(|c: char| c.is_whitespace() || c == '│').collect::<Vec<_>>().concat();
        let found = words(&self.error).contains(&words(text));
        assert!(found, "warmcore {}\n--- wanted\n{text}\n--- error\n{}", self.what, self.error);
        self
    }

    /// Checks that the program did not panic.
    #[track_caller]
    pub fn did_not_panic(self) -> Self {
        assert!(!self.error.contains("panicked"), "warmcore {}\n{}", self.what, self.error);
        self
    }
}

/// The commands of a page that are shown with their output, and that output.
pub fn samples(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("    $ warmcore ") else { continue };
        let of_it = |line: &&str| line.is_empty() || line.starts_with("    ") && !line.starts_with("    $ ");
        let mut output = String::new();
        while let Some(line) = lines.next_if(of_it) {
            output.push_str(line.strip_prefix("    ").unwrap_or_default());
            output.push('\n');
        }
        found.push((command.to_owned(), output));
    }
    found
}

/// Runs a page's samples one after the other. A line `…` in an output stands for any lines. A command that prints nothing is shown with what
/// it reports on standard error, or with nothing.
pub fn print_what_the_page_shows(scratch: &Scratch, page: &str) {
    for (command, output) in samples(page) {
        let ran = scratch.run(&command).exits_with(0);
        let printed = if ran.out.is_empty() { &ran.error } else { &ran.out };
        let parts: Vec<&str> = output.split("…\n").map(str::trim).filter(|part| !part.is_empty()).collect();
        if !output.contains("…\n") && !output.trim().is_empty() {
            assert_eq!(output.trim_end(), printed.trim_end(), "warmcore {command}");
        }
        let mut rest = printed.as_str();
        for part in parts {
            let at = rest
                .find(part)
                .unwrap_or_else(|| panic!("warmcore {command}\n--- shown\n{part}\n--- printed\n{printed}"));
            rest = &rest[at + part.len()..];
        }
    }
}
