//! What a command left when it was killed: of its tracing an instance of the kernel's trace and a mount of it, and its temporary files.
//!
//! No journal tells of them, since who may record need not be allowed to keep one: all have the name of the process that made
//! them, with the time of its start, and are left behind when that process is gone. A mount serves all recordings that run: the last one to
//! end takes it away, whoever made it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use super::journal::{Undone, started};
use super::tracing::Turn;

/// Where tracefs is, or may be mounted, below the root.
const TRACEFS: &str = "sys/kernel/tracing";
/// The same file system where debugfs mounts it by itself.
const IN_DEBUGFS: &str = "sys/kernel/debug/tracing";
const MOUNTS: &str = "proc/self/mounts";
const PREFIX: &str = "warmcore-";

/// The name of what this process makes for its tracing.
pub(crate) fn own_name() -> String {
    let pid = std::process::id();
    let at = i32::try_from(pid).ok().and_then(|pid| started(Path::new("/"), pid)).unwrap_or(0);
    format!("{PREFIX}{pid}-{at}")
}

/// A path for temporary files that nothing else has, by which they are found if this process is killed.
pub fn temporary(what: &str) -> PathBuf {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("{}-{}-{number}-{what}", own_name(), own_processes()))
}

/// The number of the name space of processes that this process is in: in others its number is another process's. 0 if it is not known.
fn own_processes() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let number = link.to_str().and_then(|link| link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    number.unwrap_or(0)
}

/// Removes what killed commands of this user left in a directory for temporary files. With `dry_run` only tells what they left.
pub fn temporary_files(directory: &Path, root: &Path, dry_run: bool) -> Vec<Undone> {
    let user = std::fs::metadata("/proc/self").map(|own| own.uid()).ok();
    let is_left = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parts: Vec<&str> = name.splitn(6, '-').collect();
        let [prefix, pid, at, processes, number, _] = parts[..] else { return false };
        prefix == PREFIX.trim_end_matches('-')
            && number.parse::<u64>().is_ok()
            && processes.parse() == Ok(own_processes())
            && is_left(&format!("{PREFIX}{pid}-{at}"), root)
            && path.symlink_metadata().is_ok_and(|found| Some(found.uid()) == user)
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut left: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_left).collect();
    left.sort();
    let removed = |path: &Path| match path.symlink_metadata()?.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    };
    let undone = |path: PathBuf| {
        let what = format!("temporary files {}", path.display());
        let result = if dry_run { Ok(()) } else { removed(&path) };
        match result {
            Ok(()) => Undone::Restored(what),
            Err(error) => Undone::Failed { path: what, reason: error.to_string() },
        }
    };
    left.into_iter().map(undone).collect()
}

/// Removes what killed recordings left of their tracing below `root`. With `dry_run` only tells what they left.
pub fn tracing(root: &Path, dry_run: bool) -> Vec<Undone> {
    let done = |what: String, result: Result<(), String>| match result {
        Ok(()) => Undone::Restored(what),
        Err(reason) => Undone::Failed { path: what, reason },
    };
    // Of a recording that begins, the mount is there before its instance.
    let _turn = (!dry_run).then(|| Turn::of(root));
    let (left, remaining): (BTreeMap<_, _>, BTreeMap<_, _>) =
        instances(root).into_iter().partition(|(name, _)| is_left(name, root));
    let instances = left.into_iter().map(|(name, path)| {
        let result = if dry_run { Ok(()) } else { std::fs::remove_dir(&path).map_err(|error| error.to_string()) };
        done(format!("tracing instance {name}"), result)
    });
    let mut left: Vec<Undone> = instances.collect();
    if mounted_for(root).is_some_and(|name| is_left(&name, root)) {
        let result = match is_needless(remaining.keys()) {
            // A recording that runs takes it away.
            Ok(false) => return left,
            Ok(true) if !dry_run => unmount(&root.join(TRACEFS)),
            needless => needless.map(|_| ()),
        };
        left.push(done(format!("mount of {TRACEFS}"), result));
    }
    left
}

/// Unmounts tracefs if a recording mounted it and none that runs needs it any more.
///
/// # Errors
/// When it stays mounted although no recording needs it, with the reason.
pub(crate) fn unmount_needless(root: &Path) -> Result<(), String> {
    if mounted_for(root).is_none() {
        return Ok(());
    }
    let unmounted = match is_needless(instances(root).keys()) {
        Ok(true) => unmount(&root.join(TRACEFS)),
        needless => needless.map(|_| ()),
    };
    match unmounted {
        // Another recording that ends at this moment may have been first.
        Err(reason) if mounted_for(root).is_some() => Err(format!("tracefs stays mounted at /{TRACEFS}: {reason}")),
        _ => Ok(()),
    }
}

/// All instances, by name.
fn instances(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for place in [TRACEFS, IN_DEBUGFS] {
        let Ok(directory) = std::fs::read_dir(root.join(place).join("instances")) else { continue };
        for path in directory.filter_map(|entry| Some(entry.ok()?.path())) {
            if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                found.entry(name.to_owned()).or_insert(path);
            }
        }
    }
    found
}

/// Whether no recording needs the mount of tracefs, by the names of the instances that are there.
///
/// # Errors
/// When instances of other programs are there, of which nobody knows whether they are used.
fn is_needless<'a>(instances: impl Iterator<Item = &'a String>) -> Result<bool, String> {
    let (recordings, others): (Vec<&str>, Vec<&str>) =
        instances.map(String::as_str).partition(|name| process_of(name).is_some());
    match others.is_empty() {
        _ if !recordings.is_empty() => Ok(false),
        true => Ok(true),
        false => Err(format!("it has instances of other programs: {}", others.join(", "))),
    }
}

/// The name for which a recording mounted tracefs, if one did.
fn mounted_for(root: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string(root.join(MOUNTS)).unwrap_or_default();
    mounts.lines().find_map(|line| {
        let (source, rest) = line.split_once(' ')?;
        let is_there = rest.split(' ').next().is_some_and(|target| target.strip_prefix('/') == Some(TRACEFS));
        let is_meant = is_there && process_of(source).is_some();
        is_meant.then(|| source.to_owned())
    })
}

fn unmount(path: &Path) -> Result<(), String> {
    let output = Command::new("umount").arg(path).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// The process that has this name for its tracing, and when it was started; `None` for other names.
fn process_of(name: &str) -> Option<(i32, u64)> {
    let (pid, at) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((pid.parse().ok()?, at.parse().ok()?))
}

/// Whether it is the name of a process's tracing that is gone.
fn is_left(name: &str, root: &Path) -> bool {
    process_of(name).is_some_and(|(pid, at)| started(root, pid) != Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(root: &Path, pid: u32, state: char, threads: u32, at: u32) {
        let directory = root.join(format!("proc/{pid}"));
        std::fs::create_dir_all(&directory).unwrap();
        let fields = "0 ".repeat(16);
        let stat = format!("{pid} (warm) core) {state} {fields}{threads} 0 {at} 0\n");
        std::fs::write(directory.join("stat"), stat).unwrap();
    }

    fn mounted(root: &Path, source: &str) {
        std::fs::create_dir_all(root.join("proc/self")).unwrap();
        std::fs::write(root.join(MOUNTS), format!("{source} /{TRACEFS} tracefs rw 0 0\n")).unwrap();
    }

    fn instance(name: &str) -> Undone {
        Undone::Restored(format!("tracing instance {name}"))
    }

    /// A process that lives, one whose number somebody else has now, one that is gone, one that has ended and that nobody has waited for, one
    /// whose first thread alone has ended, and an instance of another program.
    #[test]
    fn tracing_of_processes_that_are_gone_is_found_and_removed_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 10, 'S', 1, 500);
        process(root.path(), 11, 'S', 1, 900);
        process(root.path(), 13, 'Z', 1, 950);
        process(root.path(), 14, 'Z', 2, 960);
        let instances = root.path().join(TRACEFS).join("instances");
        let of_others = ["warmcore-10-500", "warmcore-14-960", "warmcore-x", "trace-cmd"];
        let of_dead = ["warmcore-11-700", "warmcore-12-800", "warmcore-13-950"];
        for name in of_others.into_iter().chain(of_dead) {
            std::fs::create_dir_all(instances.join(name)).unwrap();
        }
        let left = of_dead.map(instance);
        assert_eq!(tracing(root.path(), true), left);
        assert_eq!(tracing(root.path(), false), left);
        assert_eq!(tracing(root.path(), false), []);
        assert_eq!(std::fs::read_dir(instances).unwrap().count(), of_others.len());
        assert!(started(Path::new("/"), std::process::id() as i32).is_some());
        assert!(!is_left(&own_name(), Path::new("/")));
    }

    /// Files of a process that lives and of one that is gone, one of another name space of processes, and others' files.
    #[test]
    fn temporary_files_of_processes_that_are_gone_are_found_and_removed_and_no_others() {
        let (root, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        process(root.path(), 10, 'S', 1, 500);
        let own = own_processes();
        let [import, workload] = [format!("warmcore-12-800-{own}-0-import"), format!("warmcore-12-800-{own}-1-w.json")];
        std::fs::create_dir_all(files.path().join(&import).join("trials")).unwrap();
        std::fs::write(files.path().join(&workload), "{}").unwrap();
        let kept = [
            format!("warmcore-10-500-{own}-0-import"),
            format!("warmcore-12-800-{}-0-import", own + 1),
            "warmcore-12-800".to_owned(),
            format!("warmcore-12-800-{own}-x-import"),
            format!("other-12-800-{own}-0-import"),
        ];
        kept.iter().for_each(|name| std::fs::write(files.path().join(name), "").unwrap());
        let left: Vec<Undone> = [import, workload]
            .iter()
            .map(|name| Undone::Restored(format!("temporary files {}", files.path().join(name).display())))
            .collect();
        assert_eq!(temporary_files(files.path(), root.path(), true), left);
        assert_eq!(temporary_files(files.path(), root.path(), false), left);
        assert_eq!(temporary_files(files.path(), root.path(), false), []);
        assert_eq!(std::fs::read_dir(files.path()).unwrap().count(), kept.len());
        let (one, other) = (temporary("x"), temporary("x"));
        assert!(one != other && one.parent() == Some(std::env::temp_dir().as_path()), "{}", one.display());
        std::fs::write(&one, "").unwrap();
        let mine = |left: &Undone| matches!(left, Undone::Restored(what) if what.ends_with(&one.display().to_string()));
        assert!(!temporary_files(&std::env::temp_dir(), Path::new("/"), true).iter().any(mine), "this process lives");
        std::fs::remove_file(&one).unwrap();
    }

    #[test]
    fn instances_are_also_found_where_debugfs_shows_tracefs() {
        let root = tempfile::tempdir().unwrap();
        let [here, there] = [TRACEFS, IN_DEBUGFS].map(|place| root.path().join(place).join("instances"));
        for path in [here.join("warmcore-12-800"), there.join("warmcore-12-800"), there.join("warmcore-13-900")] {
            std::fs::create_dir_all(path).unwrap();
        }
        assert_eq!(tracing(root.path(), true), ["warmcore-12-800", "warmcore-13-900"].map(instance));
    }

    #[test]
    fn a_mount_is_left_when_no_recording_needs_it_whoever_made_it() {
        let root = tempfile::tempdir().unwrap();
        mounted(root.path(), "warmcore-10-500");
        process(root.path(), 11, 'S', 1, 900);
        let other = root.path().join(TRACEFS).join("instances/warmcore-11-900");
        std::fs::create_dir_all(&other).unwrap();
        assert_eq!(tracing(root.path(), true), [], "the recording that runs takes it away");
        assert_eq!(unmount_needless(root.path()), Ok(()), "and nobody else does");
        let mount = format!("mount of {TRACEFS}");
        process(root.path(), 11, 'Z', 1, 900);
        assert_eq!(tracing(root.path(), true), [instance("warmcore-11-900"), Undone::Restored(mount.clone())]);
        std::fs::rename(&other, other.with_file_name("trace-cmd")).unwrap();
        let reason = "it has instances of other programs: trace-cmd".to_owned();
        let error = unmount_needless(root.path()).unwrap_err();
        assert_eq!(error, format!("tracefs stays mounted at /{TRACEFS}: {reason}"));
        assert_eq!(tracing(root.path(), false), [Undone::Failed { path: mount, reason }]);
    }

    #[test]
    fn a_mount_is_left_when_its_process_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let left = |source: &str| {
            mounted(root.path(), source);
            tracing(root.path(), true)
        };
        assert_eq!(left("tracefs"), []);
        assert_eq!(left("warmcore-10-500"), [Undone::Restored(format!("mount of {TRACEFS}"))]);
        process(root.path(), 10, 'R', 1, 500);
        assert_eq!(left("warmcore-10-500"), []);
    }
}
