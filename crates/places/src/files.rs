//! Files: written whole or not at all, read up to a length, and summed.
//!
//! Nothing is read without a bound: an endless file (a device, a pipe) is an error, not the end of memory.
//!
//! A file is written under a temporary name in its own directory, flushed to the disk and then renamed, so that a full
//! disk, a crash or Ctrl-C never leaves half a file under a name that others read.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use warmcore_capture::Source;

/// What was being done to a file when it failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {source}", path = path.display())]
pub struct FileError {
    /// The operation: `create`, `write`, `read`, …
    pub doing: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// What the system said.
    pub source: std::io::Error,
}

impl FileError {
    /// What a user can try, where the cause is a usual one.
    pub fn advice(&self) -> &'static str {
        use std::io::ErrorKind;
        match self.source.kind() {
            ErrorKind::NotFound => "check the path; directories above it must exist",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "choose a place this user may write to, with --out DIR"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "free some space; trials that finished are complete, `warmcore compare --resume DIR` goes on from there"
            }
            ErrorKind::ResourceBusy => "wait until it is free, or choose another place with --out DIR",
            _ => "see the system's message",
        }
    }
}

/// Attaches the operation and the path to an input or output error.
pub trait At<T> {
    /// The same result with an error that says what failed, and where.
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { doing, path: path.to_path_buf(), source })
    }
}

/// Writes `bytes` to `path`, whole or not at all.
///
/// # Errors
/// When the directory is missing, not writable or full. The temporary file is gone then, `path` is as it was.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".partial");
    let temporary = PathBuf::from(temporary);
    let written = (|| {
        let mut file = File::create(&temporary).at("create", &temporary)?;
        file.write_all(bytes).at("write", &temporary)?;
        file.sync_all().at("write", &temporary)?;
        fs::rename(&temporary, path).at("create", path)
    })();
    if written.is_err() {
        // The first error is the one to report; a leftover `.partial` file is never read by anyone.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Makes a directory, with those above it, if it is not there.
///
/// # Errors
/// When it cannot be made.
pub fn create_directory(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).at("create", path)
}

/// Keeps other runs out of a directory until it is dropped, if its file system has locks.
#[derive(Debug)]
pub struct Lock {
    _directory: File,
}

impl Lock {
    /// The lock of a directory.
    ///
    /// # Errors
    /// When it cannot be opened, or another run has it.
    pub fn of(path: &Path) -> Result<Self, FileError> {
        let directory = File::open(path).at("open", path)?;
        if let Err(TryLockError::WouldBlock) = directory.try_lock() {
            return Err(io::Error::new(ErrorKind::ResourceBusy, "another run is at work in it")).at("write to", path);
        }
        Ok(Self { _directory: directory })
    }
}

/// The SHA-256 of some bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// What [`own_program`] is where another program, such as Python, runs this code.
static OWN: OnceLock<PathBuf> = OnceLock::new();

/// Says which file starts this program again, where that is not the one that runs. The first word counts.
pub fn set_own_program(path: PathBuf) {
    let _ = OWN.set(path);
}

/// The file that starts this program again.
///
/// # Errors
/// When the system does not say which one it is.
pub fn own_program() -> io::Result<PathBuf> {
    OWN.get().map_or_else(std::env::current_exe, |path| Ok(path.clone()))
}

/// The program of a name, as a shell finds it: a name with a slash is a path; another is looked for beside this program and then in the
/// directories of `PATH`. One that is nowhere is left as it is, so that the error of whoever opens it names it.
pub fn find_program(name: &str) -> PathBuf {
    if name.contains('/') {
        return name.into();
    }
    let beside = own_program().ok().and_then(|program| Some(program.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = beside.into_iter().chain(std::env::split_paths(&path));
    let found = directories.map(|directory| directory.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| name.into())
}

/// The file that an argument of a program names, if it is there: by itself, or behind a word and a sign (`f:layers.json`, `--config=FILE`).
pub fn file_of_argument(argument: &str) -> Option<&Path> {
    let behind = argument.match_indices(['=', ':']).map(|(at, _)| &argument[at + 1..]);
    std::iter::once(argument).chain(behind).map(Path::new).find(|path| path.is_file())
}

/// The SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// When it cannot be read or is no ordinary file, which may have no end.
pub fn sha256_of_file(path: &Path) -> Result<String, FileError> {
    let mut file = ordinary(path).at("read", path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer).at("read", path)?;
        if count == 0 {
            return Ok(hexadecimal(&digest.finalize()));
        }
        digest.update(&buffer[..count]);
    }
}

/// Opens a file that a user names. Devices and named pipes are refused: one has no end, the other waits for a writer who may never come.
/// What this process was given open, such as `/dev/stdin` or a shell's `<(…)`, is read as it is.
///
/// # Errors
/// When it cannot be opened, or is a device, a socket or a named pipe.
pub fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::FileTypeExt as _;

    let kind = fs::metadata(path)?.file_type();
    let given = ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|directory| path.starts_with(directory));
    let what = match kind {
        _ if given => None,
        kind if kind.is_fifo() => Some("a named pipe"),
        kind if kind.is_socket() => Some("a socket"),
        kind if kind.is_char_device() || kind.is_block_device() => Some("a device"),
        _ => None,
    };
    what.map_or_else(
        || File::open(path),
        |what| Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {what}, and no file"))),
    )
}

/// Opens an ordinary file. Others are not opened even for a moment: one end of a pipe waits for the other.
fn ordinary(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not an ordinary file")),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A document as indented JSON with a newline at its end.
pub fn pretty<T: Serialize>(document: &T) -> String {
    // Documents are made of strings, numbers and lists; those can always be written.
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

/// The longest text that is read: 64 MiB. A workload of a million tasks has about as much.
pub const MAX_TEXT_BYTES: u64 = 64 << 20;

/// The longest other file that is read whole, such as a kernel, a program or a recording: 4 GiB.
pub const MAX_FILE_BYTES: u64 = 4 << 30;

/// Reads a file.
///
/// # Errors
/// When it cannot be read or is longer than [`MAX_FILE_BYTES`].
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    open(path).and_then(|file| limited(file, MAX_FILE_BYTES)).at("read", path)
}

/// Reads an ordinary file of so many bytes at most.
///
/// # Errors
/// When it cannot be read, is no ordinary file or is longer.
pub(crate) fn read_bytes_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    ordinary(path).and_then(|file| limited(file, most))
}

/// A file that stays where it is.
#[derive(Debug)]
struct KeptFile {
    file: File,
    length: u64,
}

impl Source for KeptFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, bytes, at)
    }
}

/// A file without a name in a directory, which nothing else can open.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn unnamed(directory: &Path) -> io::Result<File> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("warmcore-{}-{}.tmp", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let path = directory.join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// A file that is open, to be read piece by piece.
///
/// # Errors
/// When nothing is known of it.
pub(crate) fn source_of(file: File) -> io::Result<Arc<dyn Source>> {
    let length = file.metadata()?.len();
    Ok(Arc::new(KeptFile { file, length }))
}

/// A recording's file, to be read piece by piece. What is no ordinary file is read whole.
///
/// # Errors
/// As of [`read_bytes`].
pub fn source(path: &Path) -> Result<Arc<dyn Source>, FileError> {
    let file = open(path).at("read", path)?;
    let kind = file.metadata().at("read", path)?;
    if !kind.is_file() || kind.len() > MAX_FILE_BYTES {
        return Ok(Arc::new(limited(file, MAX_FILE_BYTES).at("read", path)?));
    }
    Ok(Arc::new(KeptFile { file, length: kind.len() }))
}

/// Reads a text file.
///
/// # Errors
/// When it cannot be read, is not UTF-8 or longer than [`MAX_TEXT_BYTES`].
pub fn read_text(path: &Path) -> Result<String, FileError> {
    text_of_file(path).at("read", path)
}

/// Reads a text file of a directory that this program wrote, in which there are ordinary files only. The workload of a long recording is longer
/// than any that is typed.
///
/// # Errors
/// When it cannot be read, is no ordinary file, is not UTF-8 or longer than [`MAX_FILE_BYTES`].
pub fn read_ordinary_text(path: &Path) -> Result<String, FileError> {
    ordinary(path).and_then(|file| text_up_to(file, MAX_FILE_BYTES)).at("read", path)
}

/// As [`read_text`], for callers whose errors name the path themselves.
///
/// # Errors
/// Those of [`read_text`].
pub fn text_of_file(path: &Path) -> io::Result<String> {
    text(open(path)?)
}

/// All of a text.
///
/// # Errors
/// As of [`read_text`].
pub fn text(source: impl Read) -> io::Result<String> {
    text_up_to(source, MAX_TEXT_BYTES)
}

fn text_up_to(source: impl Read, most: u64) -> io::Result<String> {
    let bytes = limited(source, most)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

fn limited(source: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let reason = format!("it is longer than {}, the most that is read", warmcore_topology::format_size(most));
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_neither_the_file_nor_a_partial_one() {
        let directory = tempfile::tempdir().unwrap();
        // A directory in the place of the file makes the rename fail after the write succeeded.
        let path = directory.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "x").unwrap();
        let error = write_atomically(&path, b"new").unwrap_err();
        assert_eq!(error.path, path);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the directory is left");
    }

    #[test]
    fn devices_and_named_pipes_are_refused_and_what_was_given_open_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let refusal = |path: &Path| text_of_file(path).unwrap_err().to_string();
        assert_eq!(refusal(&pipe), "it is a named pipe, and no file");
        assert_eq!(refusal(Path::new("/dev/zero")), "it is a device, and no file");
        assert_eq!(read_bytes(Path::new("/dev/zero")).unwrap_err().source.kind(), ErrorKind::InvalidInput);
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"given").unwrap();
        drop(writer);
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        assert_eq!(text_of_file(Path::new(&format!("/dev/fd/{number}"))).unwrap(), "given");
    }

    #[test]
    fn a_second_write_replaces_the_first_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write_atomically(&path, b"a longer first text").unwrap();
        write_atomically(&path, b"second").unwrap();
        assert_eq!(read_text(&path).unwrap(), "second");
    }

    #[test]
    fn files_up_to_the_limit_are_read_and_longer_ones_refused() {
        assert_eq!(limited(&b"12345678"[..], 8).unwrap(), b"12345678");
        let error = limited(&b"123456789"[..], 8).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 8B, the most that is read");
        assert_eq!(text(io::repeat(0)).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let endless = Path::new("/dev/zero");
        assert_eq!(sha256_of_file(endless).unwrap_err().source.kind(), ErrorKind::InvalidInput);
        assert_eq!(read_ordinary_text(endless).unwrap_err().source.kind(), ErrorKind::InvalidInput);
        assert_eq!(text(&[0xff][..]).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_text_of_a_run_directory_may_be_longer_than_one_that_is_typed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("workload.json");
        File::create(&path).unwrap().set_len(MAX_TEXT_BYTES + 1).unwrap();
        assert_eq!(read_text(&path).unwrap_err().source.kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_ordinary_text(&path).unwrap().len() as u64, MAX_TEXT_BYTES + 1);
    }

    #[test]
    fn sums_are_those_of_sha256sum() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("abc");
        fs::write(&path, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of_file(&path).unwrap(), expected);
        assert_eq!(sha256(b"abc"), expected);
    }

    #[test]
    fn a_program_is_found_by_its_name_beside_this_one_or_in_the_path() {
        let this = std::env::current_exe().unwrap();
        assert_eq!(find_program(this.file_name().unwrap().to_str().unwrap()), this);
        assert!(find_program("sh").is_absolute());
        for unchanged in ["./sh", "/nowhere/scx_lavd", "scx_of_nobody"] {
            assert_eq!(find_program(unchanged), Path::new(unchanged));
        }
    }
}
