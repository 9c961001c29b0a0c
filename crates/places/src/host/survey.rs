//! Which of the kernel's interfaces this computer has, and what is lost without each.
//!
//! Nothing is written. Source of the paths: `Documentation/admin-guide/cputopology.rst`, `Documentation/scheduler/`,
//! `Documentation/trace/ftrace.rst`, Linux 6.18 and 7.2.

use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;

/// What is known of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// There, and may be written where that matters.
    Present,
    /// The kernel, or its configuration, has none.
    Absent,
    /// There, but not for this user.
    Forbidden(String),
}

/// An interface of the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What it is for.
    pub purpose: &'static str,
    /// Its path.
    pub path: &'static str,
    /// Whether it is there.
    pub presence: Presence,
    /// What is lost without it.
    pub without: &'static str,
}

/// Purpose, path, whether it must be writable, and what is lost without it.
const INTERFACES: [(&str, &str, bool, &str); 16] = [
    (
        "recorder",
        "/sys/kernel/tracing/instances",
        true,
        "`record`; as root, `mount -t tracefs tracefs /sys/kernel/tracing` may give it",
    ),
    ("topology", "/sys/devices/system/cpu/cpu0/topology/core_id", false, "the machine cannot be described"),
    (
        "caches",
        "/sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
        false,
        "LLCs are unknown: all CPUs count as one",
    ),
    ("nodes", "/sys/devices/system/node/node0/cpulist", false, "NUMA nodes are unknown"),
    ("CPUs offline", "/sys/devices/system/cpu/cpu1/online", true, "`set-cpus=offline`"),
    ("SMT", "/sys/devices/system/cpu/smt/control", true, "SMT can be switched off only CPU by CPU"),
    (
        "governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        true,
        "frequencies are not ours to fix, nor to see",
    ),
    ("NUMA balancing", "/proc/sys/kernel/numa_balancing", true, "it cannot be switched"),
    ("schedstat", "/proc/schedstat", false, "the kernel's own accounts of balancing"),
    ("scheduler features", "/sys/kernel/debug/sched/features", true, "features cannot be switched; needs debugfs"),
    (
        "cache-aware scheduling",
        "/sys/kernel/debug/sched/llc_balancing",
        false,
        "scheduler `cache-aware`; Linux 7.2 with SCHED_CACHE",
    ),
    ("sched_ext", "/sys/kernel/sched_ext/state", false, "schedulers `scx:…`; Linux 6.12 with SCHED_CLASS_EXT"),
    ("BPF type information", "/sys/kernel/btf/vmlinux", false, "sched_ext loaders find no structures"),
    (
        "performance events",
        "/proc/sys/kernel/perf_event_paranoid",
        false,
        "`record --counters` reads the kernel's accounts every 50 ms instead",
    ),
    ("page homes", "/proc/self/numa_maps", false, "`record --page-homes` has nothing to report; CONFIG_NUMA"),
    (
        "hardware counters",
        "/sys/bus/event_source/devices/cpu/type",
        false,
        "cache misses per thread; a virtual machine often has none",
    ),
];

/// Looks at all of them, below `root`.
pub fn survey(root: &Path) -> Vec<Finding> {
    INTERFACES
        .iter()
        .map(|(purpose, path, written, without)| Finding {
            purpose,
            path,
            presence: presence(&root.join(path.trim_start_matches('/')), *written),
            without,
        })
        .collect()
}

fn presence(path: &Path, written: bool) -> Presence {
    let access = if written { rustix::fs::Access::WRITE_OK } else { rustix::fs::Access::READ_OK };
    match rustix::fs::access(path, access) {
        Ok(()) => Presence::Present,
        Err(error) => match std::io::Error::from(error).kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Presence::Absent,
            ErrorKind::PermissionDenied => Presence::Forbidden("it belongs to root".into()),
            ErrorKind::ReadOnlyFilesystem => Presence::Forbidden("it is mounted read-only, as in a container".into()),
            _ => Presence::Forbidden(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_computer_has_nothing_and_a_file_is_found() {
        let root = tempfile::tempdir().unwrap();
        assert!(survey(root.path()).iter().all(|finding| finding.presence == Presence::Absent));
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/schedstat"), "version 17\n").unwrap();
        let present: Vec<&str> = survey(root.path())
            .iter()
            .filter(|finding| finding.presence == Presence::Present)
            .map(|finding| finding.purpose)
            .collect();
        assert_eq!(present, ["schedstat"]);
    }
}
