//! The files that a loader reads of a machine: `/sys`, `/proc` and `/boot`, in a directory of their own.
//!
//! Which: `docs/spec/bpf-runtime.md` section 4.

use std::fs;
use std::io;
use std::path::Path;

use warmcore_topology::{CacheKind, Machine, format_cpu_list, write_sysfs_tree};

use crate::kernel::TargetKernel;

/// Lowest and highest frequency that CPUs are said to have, in kHz, where the machine has none.
const FREQUENCIES_KHZ: (u32, u32) = (1_500_000, 3_700_000);

/// Writes them below `root`, which is an empty directory.
pub(crate) fn write(machine: &Machine, kernel: &TargetKernel, root: &Path) -> io::Result<()> {
    write_sysfs_tree(machine, root).map_err(io::Error::other)?;
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, text)
    };
    let system = "sys/devices/system";
    let smt = machine.smt_width() > 1;
    write(&format!("{system}/cpu/smt/active"), if smt { "1\n" } else { "0\n" })?;
    write(&format!("{system}/cpu/smt/control"), if smt { "on\n" } else { "notsupported\n" })?;
    let nodes = format_cpu_list(machine.nodes().map(|node| machine.node_os_index(node)));
    write(&format!("{system}/node/possible"), &format!("{nodes}\n"))?;
    for cpu in machine.cpus() {
        let directory = format!("{system}/cpu/cpu{}", machine.os_index(cpu));
        let number = |path: &str, value: u64| write(&format!("{directory}/{path}"), &format!("{value}\n"));
        number("online", 1)?;
        number("topology/cluster_id", machine.cluster_of(cpu).index() as u64)?;
        let siblings =
            format_cpu_list(machine.cpus_of_core(machine.core_of(cpu)).iter().map(|cpu| machine.os_index(cpu)));
        write(&format!("{directory}/topology/thread_siblings_list"), &format!("{siblings}\n"))?;
        number("cpu_capacity", u64::from(machine.capacity(cpu)))?;
        number("cpufreq/scaling_min_freq", u64::from(FREQUENCIES_KHZ.0))?;
        number("cpufreq/scaling_max_freq", u64::from(FREQUENCIES_KHZ.1))?;
        number("cpufreq/cpuinfo_min_freq", u64::from(FREQUENCIES_KHZ.0))?;
        number("cpufreq/cpuinfo_max_freq", u64::from(FREQUENCIES_KHZ.1))?;
        number("power/pm_qos_resume_latency_us", 0)?;
        write_caches(machine, cpu, &root.join(&directory))?;
        let node = machine.node_os_index(machine.node_of(cpu));
        fs::create_dir_all(root.join(format!("{system}/node/node{node}/cpu{}", machine.os_index(cpu))))?;
    }
    for (name, value) in
        [("state", "disabled"), ("hotplug_seq", "0"), ("enable_seq", "0"), ("switch_all", "0"), ("nr_rejected", "0")]
    {
        write(&format!("sys/kernel/sched_ext/{name}"), &format!("{value}\n"))?;
    }
    fs::create_dir_all(root.join("sys/kernel/btf"))?;
    fs::write(root.join("sys/kernel/btf/vmlinux"), &kernel.types)?;
    for directory in ["sys/fs/cgroup", "sys/fs/bpf"] {
        fs::create_dir_all(root.join(directory))?;
    }
    write("sys/kernel/tracing/available_events", "")?;
    write("sys/kernel/tracing/available_tracers", "nop\n")?;
    write("proc/kallsyms", "")?;
    write("proc/schedstat", "version 17\n")?;
    write("proc/sys/kernel/ftrace_enabled", "1\n")?;
    write("proc/sys/kernel/pid_max", "4194304\n")?;
    write("proc/sys/kernel/osrelease", &format!("{}\n", kernel.release))?;
    write("proc/mounts", "tracefs /sys/kernel/tracing tracefs rw 0 0\n")?;
    write_cpu_times(root, &vec![(0, 0); machine.cpu_count()])?;
    write(&format!("boot/config-{}", kernel.release), &kernel.configuration)
}

/// Writes `/proc/stat` from how long each CPU has been busy and idle, in ns: its lines of CPU time, in hundredths of a second.
pub(crate) fn write_cpu_times(root: &Path, times: &[(u64, u64)]) -> io::Result<()> {
    const TICK_NS: u64 = 10_000_000;
    let line = |name: &str, (busy, idle): (u64, u64)| {
        format!("{name} {} 0 0 {} 0 0 0 0 0 0\n", busy / TICK_NS, idle / TICK_NS)
    };
    let all = times.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let mut text = line("cpu ", all);
    for (cpu, &one) in times.iter().enumerate() {
        text.push_str(&line(&format!("cpu{cpu}"), one));
    }
    text.push_str("intr 0\nctxt 0\nbtime 1700000000\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n");
    fs::write(root.join("proc/stat"), text)
}

/// Loaders take `index2` for the second level and `index3` for the third, whatever is written in them: the first level is two entries.
fn write_caches(machine: &Machine, cpu: warmcore_topology::CpuId, directory: &Path) -> io::Result<()> {
    let _ = fs::remove_dir_all(directory.join("cache"));
    let alone = machine.cpus_of_core(machine.core_of(cpu));
    let llc = machine.cpus_of_llc(machine.llc_of(cpu));
    let size = |level: u8, default: u64| machine.data_cache(cpu, level).map_or(default, |cache| cache.size_bytes);
    let levels = [
        (1, CacheKind::Data, size(1, 32 << 10), alone),
        (1, CacheKind::Instruction, 32 << 10, alone),
        (2, CacheKind::Unified, size(2, 1 << 20), machine.data_cache(cpu, 2).map_or(alone, |cache| &cache.cpus)),
        (3, CacheKind::Unified, size(3, 32 << 20), llc),
    ];
    for (index, (level, kind, bytes, cpus)) in levels.into_iter().enumerate() {
        let directory = directory.join(format!("cache/index{index}"));
        fs::create_dir_all(&directory)?;
        let list = format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu)));
        let first = cpus.first().map_or(0, |cpu| match level {
            3 => machine.llc_of(cpu).index(),
            _ => machine.core_of(cpu).index(),
        });
        let kind = match kind {
            CacheKind::Data => "Data",
            CacheKind::Instruction => "Instruction",
            CacheKind::Unified => "Unified",
        };
        let files = [
            ("level", level.to_string()),
            ("type", kind.to_owned()),
            ("size", format!("{}K", bytes / 1024)),
            ("id", first.to_string()),
            ("coherency_line_size", "64".to_owned()),
            ("shared_cpu_list", list),
        ];
        for (name, text) in files {
            fs::write(directory.join(name), format!("{text}\n"))?;
        }
    }
    Ok(())
}
