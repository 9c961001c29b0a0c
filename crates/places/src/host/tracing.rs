//! The mount of tracefs that recordings share: the first one mounts it if it is not mounted, the last one takes it away.
//!
//! Of two that begin and end at one moment, the one that ends must not unmount what the other has found mounted and has no instance in yet. So
//! both steps, *mount and make an instance* and *remove the instance and unmount*, are taken by one process at a time: each holds a lock of a
//! directory that is on every computer, which the kernel takes back from whoever is killed.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::fs::FlockOperation;
use warmcore_agent::tracefs::Instance;

use super::leftovers::{own_name, unmount_needless};
use crate::place::{PlaceError, Trouble};

/// Where tracefs is, or may be mounted.
pub const TRACEFS: &str = "/sys/kernel/tracing";
/// The directory that is locked: that of the mount point, so that all who share it meet there.
const LOCKED: &str = "sys/kernel";

const CODE: &str = "warmcore::record";

/// The lock, until it is dropped. Without it (a computer without sysfs has no tracefs either) nothing is kept apart.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "the file is the lock")] Option<File>);

impl Turn {
    /// Waits until no other process is at one of the two steps.
    pub(crate) fn wait() -> Self {
        Self::of(Path::new("/"))
    }

    /// The same below a root.
    pub(super) fn of(root: &Path) -> Self {
        let lock = |file: &File| rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive));
        Self(File::open(root.join(LOCKED)).ok().filter(|file| lock(file).is_ok()))
    }
}

/// Mounts tracefs under this process's name unless it is mounted: whether it was not.
pub(crate) fn mount(_turn: &Turn) -> Result<bool, PlaceError> {
    if Path::new(TRACEFS).join("instances").is_dir() {
        return Ok(false);
    }
    let status = Command::new("mount").args(["-t", "tracefs", &own_name(), TRACEFS]).output();
    if status.is_ok_and(|output| output.status.success()) {
        return Ok(true);
    }
    let message = format!("tracefs is not mounted at {TRACEFS}, and cannot be");
    let advice = "as root: `mount -t tracefs tracefs /sys/kernel/tracing`";
    Err(PlaceError::new(Trouble::Unable, CODE, message, advice))
}

/// Unmounts tracefs if a recording mounted it and none needs it any more, after this process's instance was removed.
pub(crate) fn unmount(_turn: &Turn) -> Result<(), String> {
    unmount_needless(Path::new("/"))
}

/// An instance in a tracefs that is mounted as long as this lives.
#[derive(Debug)]
pub struct Mounted {
    /// The instance, which is to be made.
    pub instance: Instance,
}

impl Mounted {
    /// Mounts tracefs if it is not mounted, and makes this process's instance.
    ///
    /// # Errors
    /// When this computer, or this user, cannot.
    pub fn begin() -> Result<Self, PlaceError> {
        let turn = Turn::wait();
        mount(&turn)?;
        let mounted = Self { instance: Instance::at(TRACEFS, &own_name()) };
        match mounted.instance.prepare() {
            Ok(_) => Ok(mounted),
            Err(reason) => {
                // `Drop` takes the turn again.
                drop(turn);
                let advice = "as root, where the kernel has tracefs";
                Err(PlaceError::new(Trouble::Unable, CODE, reason, advice))
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let turn = Turn::wait();
        let _ = self.instance.remove();
        let _ = unmount(&turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn the_steps_of_two_are_taken_one_after_the_other() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(LOCKED)).unwrap();
        let first = Turn::of(root.path());
        let taken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _second = Turn::of(root.path());
                taken.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!taken.load(Ordering::SeqCst), "the first one has the turn");
            drop(first);
        });
        assert!(taken.load(Ordering::SeqCst));
    }
}
