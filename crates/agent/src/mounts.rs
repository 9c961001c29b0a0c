//! File systems of the kernel.

use std::fs;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

/// Type, where to, and whether a guest without it can still run a workload.
const MOUNTS: [(&str, &str, bool); 8] = [
    ("proc", "/proc", true),
    ("sysfs", "/sys", true),
    ("devtmpfs", "/dev", true),
    ("tmpfs", "/run", true),
    ("debugfs", "/sys/kernel/debug", true),
    ("tracefs", "/sys/kernel/tracing", true),
    ("bpf", "/sys/fs/bpf", false),
    ("cgroup2", "/sys/fs/cgroup", false),
];

/// Mounts them all.
pub fn mount_all() -> Result<(), String> {
    for (kind, path, required) in MOUNTS {
        let made = fs::create_dir_all(path).map_err(|error| format!("cannot make {path}: {error}"));
        let mounted = made.and_then(|()| match mount(kind, path, kind, MountFlags::empty(), None) {
            // The kernel may mount it by itself (devtmpfs).
            Ok(()) | Err(Errno::BUSY) => Ok(()),
            Err(error) => Err(format!("cannot mount {kind} on {path}: {error}")),
        });
        match mounted {
            Err(reason) if required => return Err(reason),
            Err(reason) => println!("warmcore-agent: {reason}"),
            Ok(()) => {}
        }
    }
    Ok(())
}
