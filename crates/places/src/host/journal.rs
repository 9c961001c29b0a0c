//! The journal of changes to a computer.
//!
//! A change is a file of the kernel that gets another value, a process that holds something (a sched_ext scheduler ends with its
//! loader), or a scheduler of somebody else that is ended. The old value is on disk, with fsync, before the first byte of the new one is written. Undoing goes backwards, and only
//! where the present value is still the one that was set: what somebody else changed since is reported and left.
//!
//! One experiment at a time: the lock is the kernel's, and gone with the process that holds it. After a restart of the computer the
//! kernel has forgotten its settings, so an older boot's journal has nothing to undo.
//!
//! Format: JSON lines; the first has the boot's id. A line that was cut off was never followed by its change.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::displaced::Displaced;
use crate::files;

/// The journal in its directory, and the lock beside it.
const JOURNAL: &str = "journal.jsonl";
const LOCK: &str = "lock";
/// File of a control group with the controllers that its children have.
const CONTROLLERS: &str = "cgroup.subtree_control";
/// How often, and how long in between, a control group is tried to be removed.
const GROUP_LOOKS: u32 = 500;
const GROUP_LOOK: std::time::Duration = std::time::Duration::from_millis(10);
/// The kernel's id of this boot, below the root.
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

/// Why a change was not made, or nothing can be changed at all.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum JournalError {
    #[error("another experiment is changing this computer: it holds {}", .0.display())]
    Busy(PathBuf),
    #[error("an earlier experiment left {0} changes of this computer; `warmcore doctor restore` undoes them")]
    Unfinished(usize),
    /// The journal cannot be kept, so nothing is changed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Keep { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot read {path}, so it could not be put back: {source}")]
    Read { path: String, source: io::Error },
    /// The kernel refuses the value.
    #[error("cannot write `{value}` to {path}: {source}")]
    Write { path: String, value: String, source: io::Error },
    #[error("the sched_ext scheduler at work ({scheduler}) does not end: {reason}")]
    Stays { scheduler: String, reason: String },
    #[error("{path} reads `{found}` after `{value}` was written to it")]
    ReadsBack { path: String, value: String, found: String },
}

/// A change, as it is written down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// First line: the boot whose state is changed.
    Boot(String),
    /// A file gets another value.
    Value {
        /// Path from the root, without a leading slash.
        path: String,
        /// What it held.
        old: String,
        /// What it is to hold.
        new: String,
    },
    /// A directory that is made, of control groups: whoever is in it is ended with it.
    Directory {
        /// Path from the root, without a leading slash.
        path: String,
    },
    /// A process that holds something until it ends.
    Process {
        /// Its number.
        pid: i32,
        /// When it was started, in ticks since the boot: numbers are used again.
        started: u64,
    },
    /// Somebody else's sched_ext scheduler that is ended, and is to be started again.
    Displaced(Displaced),
}

/// What became of a change when it was to be undone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Undone {
    /// As it was before.
    Restored(String),
    /// It had never been made, or was undone already.
    Unchanged(String),
    /// Somebody else changed it since: left alone.
    Left {
        /// What.
        path: String,
        /// Value now.
        present: String,
        /// Value before the experiment.
        old: String,
    },
    /// It could not be undone.
    Failed {
        /// What.
        path: String,
        /// Why.
        reason: String,
    },
}

impl Undone {
    /// Whether the state is as before.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Restored(_) | Self::Unchanged(_))
    }
}

/// Changes in progress. Dropping it undoes them; [`Journal::undo`] tells what became of each.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    root: PathBuf,
    file: Option<File>,
    entries: Vec<Entry>,
    /// Held until the end; none where nobody experiments and this user cannot keep a journal: then nothing can be changed.
    _lock: Option<ChangeRight>,
}

impl Journal {
    /// A new journal in `directory` for the computer whose files are below `root` (`/`, or a tree for tests). Who may not keep one gets
    /// one all the same, in which the first change fails.
    ///
    /// # Errors
    /// If somebody else is at work, an older journal is not undone yet, or it cannot be kept.
    pub fn begin(directory: &Path, root: &Path) -> Result<Self, JournalError> {
        let lock = lock_of_anybody(directory)?;
        let left = lines(directory)?;
        let changes = left.iter().filter(|line| !matches!(line, JournalLine::Entry(Entry::Boot(_)))).count();
        if changes > 0 && may_be_of_this_boot(&left, root) {
            return Err(JournalError::Unfinished(changes));
        }
        let path = directory.join(JOURNAL);
        let file = match File::create(&path) {
            // Without the right to make the directory it is not there.
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => None,
            file => Some(file.map_err(keep("make", &path))?),
        };
        let mut journal =
            Self { directory: directory.into(), root: root.into(), file, entries: Vec::new(), _lock: lock };
        if journal.file.is_none() {
            return Ok(journal);
        }
        journal.note(Entry::Boot(boot_id(root).unwrap_or_default()))?;
        sync_directory(directory)?;
        Ok(journal)
    }

    /// Gives a file another value, written down first, and reads it back.
    ///
    /// # Errors
    /// If it cannot be written down, read, written, or reads otherwise afterwards.
    pub fn set(&mut self, path: &str, value: &str) -> Result<(), JournalError> {
        let full = self.root.join(path);
        let old = current(&full, value).map_err(|source| JournalError::Read { path: path.into(), source })?;
        if is_same(&old, value) {
            return Ok(());
        }
        self.note(Entry::Value { path: path.into(), old: old.clone(), new: value.into() })?;
        let refused = |source| JournalError::Write { path: path.into(), value: value.into(), source };
        write_value(&full, value).map_err(refused)?;
        let found = current(&full, value).map_err(|source| JournalError::Read { path: path.into(), source })?;
        if found == value {
            return Ok(());
        }
        // The kernel writes it in another way, or holds another value: this is what is to be undone.
        self.note(Entry::Value { path: path.into(), old, new: found.clone() })?;
        if is_same(&found, value) {
            return Ok(());
        }
        Err(JournalError::ReadsBack { path: path.into(), value: value.into(), found })
    }

    /// Makes a control group and writes its files, in this order; all of it ends with the directory. The values are read back.
    ///
    /// # Errors
    /// If it cannot be written down or made, or a value does not take.
    pub fn directory(&mut self, path: &str, files: &[(&str, &str)]) -> Result<(), JournalError> {
        let full = self.root.join(path);
        let refused = |what: String, value: &str| {
            let value = value.to_owned();
            move |source| JournalError::Write { path: what, value, source }
        };
        if full.exists() {
            let there = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(refused(path.into(), "a new directory")(there));
        }
        self.note(Entry::Directory { path: path.into() })?;
        std::fs::create_dir(&full).map_err(refused(path.into(), "a new directory"))?;
        for (name, value) in files {
            let (file, path) = (full.join(name), format!("{path}/{name}"));
            write_value(&file, value).map_err(refused(path.clone(), value))?;
            let found = current(&file, value).map_err(|source| JournalError::Read { path: path.clone(), source })?;
            if !is_same(&found, value) {
                return Err(JournalError::ReadsBack { path, value: (*value).into(), found });
            }
        }
        Ok(())
    }

    /// Writes down a process that will hold something: it must not have begun to.
    ///
    /// # Errors
    /// If it cannot be written down.
    pub fn hold(&mut self, pid: i32) -> Result<(), JournalError> {
        let started = started(&self.root, pid).unwrap_or(0);
        self.note(Entry::Process { pid, started })
    }

    /// Ends the sched_ext scheduler that is at work, written down first.
    ///
    /// # Errors
    /// If it cannot be written down, or the scheduler stays.
    pub(crate) fn displace(&mut self, scheduler: Displaced) -> Result<(), JournalError> {
        self.note(Entry::Displaced(scheduler.clone()))?;
        scheduler.end(&self.root).map_err(|reason| JournalError::Stays { scheduler: scheduler.in_words(), reason })
    }

    /// Undoes everything, and removes the journal if that worked.
    pub fn undo(mut self) -> Vec<Undone> {
        self.undo_all()
    }

    fn note(&mut self, entry: Entry) -> Result<(), JournalError> {
        let path = self.directory.join(JOURNAL);
        let line = serde_json::to_string(&entry).map_err(io::Error::other).map_err(keep("write", &path))?;
        let file = self.file.as_mut().ok_or_else(|| keep("make", &path)(io::ErrorKind::PermissionDenied.into()))?;
        writeln!(file, "{line}").and_then(|()| file.sync_all()).map_err(keep("write", &path))?;
        self.entries.push(entry);
        Ok(())
    }

    fn undo_all(&mut self) -> Vec<Undone> {
        if self.file.take().is_none() {
            return Vec::new();
        }
        let undone = undo_entries(&self.entries, &self.root);
        if undone.iter().all(Undone::is_good) {
            let _ = std::fs::remove_file(self.directory.join(JOURNAL));
        }
        undone
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.undo_all();
    }
}

/// Whether a file below a root has a value, so that [`Journal::set`] would not write it.
pub(super) fn has(root: &Path, path: &str, value: &str) -> bool {
    current(&root.join(path), value).is_ok_and(|found| is_same(&found, value))
}

/// Undoes what an experiment left that did not come to its end. With `dry_run` only tells what it left.
///
/// # Errors
/// If an experiment is running, or the journal cannot be read.
pub fn restore(directory: &Path, root: &Path, dry_run: bool) -> Result<Vec<Undone>, JournalError> {
    let _lock = if dry_run { lock_of_anybody(directory)? } else { Some(lock(directory)?) };
    let left = lines(directory)?;
    let path = directory.join(JOURNAL);
    if !may_be_of_this_boot(&left, root) {
        // The kernel forgot all of it.
        if path.exists() && !dry_run {
            std::fs::remove_file(&path).map_err(keep("remove", &path))?;
        }
        return Ok(Vec::new());
    }
    if dry_run {
        return Ok(left.iter().rev().filter_map(|line| line.with(|entry| would(entry, root))).collect());
    }
    let undone: Vec<Undone> = left.iter().rev().filter_map(|line| line.with(|entry| undo(entry, root))).collect();
    if undone.iter().all(Undone::is_good) && path.exists() {
        std::fs::remove_file(&path).map_err(keep("remove", &path))?;
    }
    Ok(undone)
}

fn undo_entries(entries: &[Entry], root: &Path) -> Vec<Undone> {
    entries.iter().rev().filter_map(|entry| undo(entry, root)).collect()
}

fn undo(entry: &Entry, root: &Path) -> Option<Undone> {
    let undone = would(entry, root)?;
    let Undone::Restored(what) = undone else { return Some(undone) };
    Some(match entry {
        Entry::Value { path, old, .. } => match write_value(&root.join(path), old) {
            Ok(()) => match current(&root.join(path), old) {
                Ok(present) if present == *old => Undone::Restored(what),
                Ok(present) => {
                    Undone::Failed { path: what, reason: format!("it reads `{present}` after `{old}` was written") }
                }
                Err(error) => Undone::Failed { path: what, reason: error.to_string() },
            },
            Err(error) => Undone::Failed { path: what, reason: error.to_string() },
        },
        Entry::Directory { path } => match remove_group(&root.join(path)) {
            Ok(()) => Undone::Restored(what),
            Err(error) => Undone::Failed { path: what, reason: error.to_string() },
        },
        Entry::Process { pid, .. } => {
            let killed = Pid::from_raw(*pid).map(|pid| kill_process(pid, Signal::KILL));
            match killed {
                Some(Ok(()) | Err(rustix::io::Errno::SRCH)) | None => Undone::Restored(what),
                Some(Err(error)) => Undone::Failed { path: what, reason: error.to_string() },
            }
        }
        Entry::Displaced(scheduler) => match scheduler.start(root) {
            Ok(()) => Undone::Restored(what),
            Err(reason) => Undone::Failed { path: what, reason },
        },
        Entry::Boot(_) => return None,
    })
}

/// What undoing it would do.
fn would(entry: &Entry, root: &Path) -> Option<Undone> {
    match entry {
        Entry::Boot(_) => None,
        Entry::Value { path, old, new } => Some(match current(&root.join(path), new) {
            Ok(present) if is_same(&present, new) => Undone::Restored(path.clone()),
            Ok(present) if is_same(&present, old) => Undone::Unchanged(path.clone()),
            Ok(present) => Undone::Left { path: path.clone(), present, old: old.clone() },
            Err(error) => Undone::Failed { path: path.clone(), reason: error.to_string() },
        }),
        Entry::Directory { path } => {
            let what = path.clone();
            Some(if root.join(path).exists() { Undone::Restored(what) } else { Undone::Unchanged(what) })
        }
        Entry::Process { pid, started: at } => {
            let what = format!("process {pid}");
            Some(if started(root, *pid) == Some(*at) { Undone::Restored(what) } else { Undone::Unchanged(what) })
        }
        Entry::Displaced(scheduler) => {
            let what = format!("sched_ext scheduler {}", scheduler.in_words());
            let is_there = scheduler.is_alive(root) || scheduler.is_back(root);
            Some(if is_there { Undone::Unchanged(what) } else { Undone::Restored(what) })
        }
    }
}

/// The right to change this computer. It is given back in so many words: a process that another thread has forked and that has
/// not yet executed its program has a copy of the file, and closing this one alone would leave the kernel's lock with it.
#[derive(Debug)]
struct ChangeRight(File);

impl Drop for ChangeRight {
    fn drop(&mut self) {
        // Nothing is lost if this fails: closing the file does the same.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn lock(directory: &Path) -> Result<ChangeRight, JournalError> {
    std::fs::create_dir_all(directory).map_err(keep("make", directory))?;
    let path = directory.join(LOCK);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(keep("open", &path))?;
    locked(lock, path)
}

/// The lock, also of who cannot keep a journal.
fn lock_of_anybody(directory: &Path) -> Result<Option<ChangeRight>, JournalError> {
    match lock(directory) {
        Err(JournalError::Keep { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            lock_of_another_user(directory)
        }
        lock => lock.map(Some),
    }
}

/// The lock of who cannot keep a journal, so that experiments do not disturb each other: there is none if nobody ever had one.
fn lock_of_another_user(directory: &Path) -> Result<Option<ChangeRight>, JournalError> {
    let path = directory.join(LOCK);
    match File::open(&path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(None),
        lock => locked(lock.map_err(keep("open", &path))?, path).map(Some),
    }
}

fn locked(lock: File, path: PathBuf) -> Result<ChangeRight, JournalError> {
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(ChangeRight(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(JournalError::Busy(path)),
        Err(error) => Err(keep("lock", &path)(error.into())),
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum JournalLine {
    Entry(Entry),
    /// It tells no change that can be undone: its number, and what is wrong with it.
    Damaged(usize, String),
}

impl JournalLine {
    /// What becomes of its change; a damaged one cannot be undone, and the journal that says so is kept.
    fn with(&self, undo: impl FnOnce(&Entry) -> Option<Undone>) -> Option<Undone> {
        match self {
            Self::Entry(entry) => undo(entry),
            Self::Damaged(number, reason) => {
                let path = format!("line {number} of {JOURNAL}");
                Some(Undone::Failed { path, reason: format!("it is damaged, so its change is not known: {reason}") })
            }
        }
    }
}

/// Lines of a journal. The change of one that was being written at its end was not made yet.
fn lines(directory: &Path) -> Result<Vec<JournalLine>, JournalError> {
    let path = directory.join(JOURNAL);
    match files::text_of_file(&path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(keep("read", &path)(error)),
    }
}

fn parse(text: &str) -> Vec<JournalLine> {
    let last = text.lines().count();
    let line = |(index, line): (usize, &str)| match serde_json::from_str(line) {
        Ok(Entry::Value { path, .. } | Entry::Directory { path }) if !is_below_root(&path) => {
            Some(JournalLine::Damaged(index + 1, format!("`{path}` is not a path below the root")))
        }
        Ok(entry) => Some(JournalLine::Entry(entry)),
        Err(_) if index + 1 == last && !text.ends_with('\n') => None,
        Err(error) => Some(JournalLine::Damaged(index + 1, error.to_string())),
    };
    text.lines().enumerate().filter_map(line).collect()
}

fn is_below_root(path: &str) -> bool {
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a journal is of this boot, or does not say clearly of which: then it is better undone than forgotten.
fn may_be_of_this_boot(lines: &[JournalLine], root: &Path) -> bool {
    match (lines.first(), boot_id(root)) {
        (Some(JournalLine::Entry(Entry::Boot(id))), Some(boot)) => *id == boot,
        (first, _) => first.is_some(),
    }
}

fn boot_id(root: &Path) -> Option<String> {
    std::fs::read_to_string(root.join(BOOT_ID)).ok().map(|text| text.trim().to_owned())
}

/// When a process was started, in ticks since the boot; `None` if it is gone, which one is too that has ended (state `Z` or `X`) and that its
/// parent has not waited for. A process whose first thread alone has ended is there.
///
/// Fields 3 (state), 20 (threads) and 22 (start) of its `stat`, after the name in parentheses (`proc_pid_stat(5)`).
pub(super) fn started(root: &Path, pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(root.join(format!("proc/{pid}/stat"))).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let has_ended = matches!(*fields.first()?, "Z" | "X") && fields.get(17)?.parse::<u64>().ok()? <= 1;
    if has_ended { None } else { fields.get(19)?.parse().ok() }
}

/// Ends whoever is in a control group, and removes it: the kernel does so only when they are gone.
fn remove_group(path: &Path) -> io::Result<()> {
    let kill = path.join("cgroup.kill");
    if kill.exists() {
        write_value(&kill, "1")?;
    }
    for _ in 0..GROUP_LOOKS {
        match std::fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(GROUP_LOOK),
            done => return done,
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// The value of a file, as it is to be compared with what was or will be written: of a list of switches such as
/// `sched/features` the one that is meant, of a list of choices the one in brackets, of a list of controllers `+` and the one that is meant
/// or `-` and it.
fn current(path: &Path, meant: &str) -> io::Result<String> {
    let text = files::text_of_file(path)?;
    let text = text.trim_end();
    if path.ends_with(CONTROLLERS) {
        let controller = meant.trim_start_matches(['+', '-']);
        let sign = if text.split_whitespace().any(|word| word == controller) { '+' } else { '-' };
        return Ok(format!("{sign}{controller}"));
    }
    if let Some(chosen) = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        return Ok(chosen.0.to_owned());
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = meant.strip_prefix("NO_").unwrap_or(meant);
    let switch = words.iter().find(|word| word.strip_prefix("NO_").unwrap_or(word) == plain);
    Ok(match switch {
        Some(switch) if words.len() > 1 => (*switch).to_owned(),
        _ => text.to_owned(),
    })
}

/// Whether two texts are one value to the kernel: it reads numbers in hexadecimal and octal too, with space around them, and shows
/// them in decimal (`kstrtoull` of base 0, `lib/kstrtox.c`).
fn is_same(one: &str, other: &str) -> bool {
    let numbers = |text: &str| text.split_whitespace().map(number).collect::<Option<Vec<i128>>>();
    one == other || numbers(one).is_some_and(|one| Some(one) == numbers(other))
}

fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text.strip_prefix('+').unwrap_or(text)), |rest| (-1, rest));
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let value = match hexadecimal {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    value.ok().map(|value| sign * i128::from(value))
}

fn write_value(path: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(value.as_bytes())
}

fn sync_directory(directory: &Path) -> Result<(), JournalError> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(keep("sync", directory))
}

fn keep(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Keep { operation, path, source }
}

#[cfg(test)]
mod tests;
