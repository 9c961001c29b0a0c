//! What a recording left of its tracing when it was killed: an instance of the kernel's trace, and a mount of it.
//!
//! No journal tells of them, since who may record need not be allowed to keep one: both have the name of the process that made
//! them, with the time of its start, and are left behind when that process is gone.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::journal::{Undone, started};

/// Where tracefs is, or may be mounted, below the root.
const TRACEFS: &str = "sys/kernel/tracing";
const MOUNTS: &str = "proc/self/mounts";
const PREFIX: &str = "warmcore-";

/// The name of what this process makes for its tracing.
#[must_use]
pub(crate) fn own_name() -> String {
    let pid = std::process::id();
    let at = i32::try_from(pid).ok().and_then(|pid| started(Path::new("/"), pid)).unwrap_or(0);
    format!("{PREFIX}{pid}-{at}")
}

/// Removes what killed recordings left of their tracing below `root`. With `dry_run` only tells what they left.
#[must_use]
pub fn tracing(root: &Path, dry_run: bool) -> Vec<Undone> {
    let done = |what: String, result: Result<(), String>| match result {
        Ok(()) => Undone::Restored(what),
        Err(reason) => Undone::Failed { path: what, reason },
    };
    let instances = instances(root).into_iter().map(|path| {
        let result = if dry_run { Ok(()) } else { std::fs::remove_dir(&path).map_err(|error| error.to_string()) };
        let name = path.file_name().unwrap_or_default().display().to_string();
        done(format!("tracing instance {name}"), result)
    });
    let mut left: Vec<Undone> = instances.collect();
    if is_left_mounted(root) {
        let result = if dry_run { Ok(()) } else { unmount(&root.join(TRACEFS)) };
        left.push(done(format!("mount of {TRACEFS}"), result));
    }
    left
}

fn instances(root: &Path) -> Vec<PathBuf> {
    let Ok(directory) = std::fs::read_dir(root.join(TRACEFS).join("instances")) else { return Vec::new() };
    let mut left: Vec<PathBuf> = directory
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| is_left(name, root)))
        .collect();
    left.sort();
    left
}

fn is_left_mounted(root: &Path) -> bool {
    let mounts = std::fs::read_to_string(root.join(MOUNTS)).unwrap_or_default();
    mounts.lines().any(|line| {
        let mut words = line.split(' ');
        let (source, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        target == format!("/{TRACEFS}") && is_left(source, root)
    })
}

fn unmount(path: &Path) -> Result<(), String> {
    let output = Command::new("umount").arg(path).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// Whether it is the name of a process's tracing that is gone.
fn is_left(name: &str, root: &Path) -> bool {
    let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let process = process.and_then(|(pid, at)| Some((pid.parse().ok()?, at.parse::<u64>().ok()?)));
    process.is_some_and(|(pid, at)| started(root, pid) != Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that lives, one whose number somebody else has now, one that is gone, and an instance of another program.
    #[test]
    fn tracing_of_processes_that_are_gone_is_found_and_removed_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let stat = |pid: u32, at: u32| {
            let directory = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            let fields = "0 ".repeat(18);
            std::fs::write(directory.join("stat"), format!("{pid} (warm) core) S {fields}{at} 0\n")).unwrap();
        };
        stat(10, 500);
        stat(11, 900);
        let instances = root.path().join(TRACEFS).join("instances");
        for name in ["warmcore-10-500", "warmcore-11-700", "warmcore-12-800", "warmcore-x", "trace-cmd"] {
            std::fs::create_dir_all(instances.join(name)).unwrap();
        }
        let left =
            ["warmcore-11-700", "warmcore-12-800"].map(|name| Undone::Restored(format!("tracing instance {name}")));
        assert_eq!(tracing(root.path(), true), left);
        assert_eq!(tracing(root.path(), false), left);
        assert_eq!(tracing(root.path(), false), []);
        assert_eq!(std::fs::read_dir(instances).unwrap().count(), 3);
        assert!(started(Path::new("/"), std::process::id() as i32).is_some());
        assert!(!is_left(&own_name(), Path::new("/")));
    }

    #[test]
    fn a_mount_is_left_when_its_process_is_gone() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let mounts = |source: &str| {
            std::fs::write(root.path().join(MOUNTS), format!("{source} /{TRACEFS} tracefs rw 0 0\n")).unwrap();
            is_left_mounted(root.path())
        };
        assert!(!mounts("tracefs"));
        assert!(mounts("warmcore-10-500"));
    }
}
