//! File systems of the kernel.

use std::ffi::CStr;
use std::fs;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

/// Type, where to, and whether a guest without it can still run a workload.
const MOUNTS: [(&str, &str, bool); 7] = [
    ("proc", "/proc", true),
    ("sysfs", "/sys", true),
    ("devtmpfs", "/dev", true),
    ("tmpfs", "/run", true),
    ("debugfs", "/sys/kernel/debug", true),
    ("tracefs", "/sys/kernel/tracing", true),
    ("bpf", "/sys/fs/bpf", false),
];

/// What cgroups are mounted with where the kernel knows it (from Linux 6.0 on): a thread that joins a group waits for no grace period of RCU,
/// some 7 ms by which a workload's threads would begin later, each for itself (`Documentation/admin-guide/cgroup-v2.rst`, "Mounting").
const JOIN_AT_ONCE: &CStr = c"favordynmods";

/// Mounts them all.
pub fn mount_all() -> Result<(), String> {
    for (kind, path, required) in MOUNTS {
        match mount_one(kind, path, None) {
            Err(reason) if required => return Err(reason),
            Err(reason) => println!("warmcore-agent: {reason}"),
            Ok(()) => {}
        }
    }
    let cgroups = |options| mount_one("cgroup2", "/sys/fs/cgroup", options);
    if let Err(reason) = cgroups(Some(JOIN_AT_ONCE)).or_else(|_| cgroups(None)) {
        println!("warmcore-agent: {reason}");
    }
    Ok(())
}

fn mount_one(kind: &str, path: &str, options: Option<&CStr>) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("cannot make {path}: {error}"))?;
    match mount(kind, path, kind, MountFlags::empty(), options) {
        // The kernel may mount it by itself (devtmpfs).
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(format!("cannot mount {kind} on {path}: {error}")),
    }
}
