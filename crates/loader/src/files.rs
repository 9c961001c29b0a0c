//! The files that a loader reads of a machine: `/sys`, `/proc` and `/boot`, in a directory of their own.
//!
//! Which: `docs/spec/bpf-runtime.md` section 4.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warmcore_bpf::btf::TypeKind;
use warmcore_scx::EventCounts;
use warmcore_scx::bytecode::{Object, Tracepoint};
use warmcore_topology::{CacheKind, Machine, format_cpu_list, write_sysfs_tree};

use crate::kernel::TargetKernel;

/// Lowest and highest frequency that CPUs are said to have, in kHz, where the machine has none.
const FREQUENCIES_KHZ: (u32, u32) = (1_500_000, 3_700_000);

/// Where they are kept, if there is such a place: in memory, as a disk takes longer for thousands of small files than everything else.
const IN_MEMORY: &str = "/dev/shm";

/// What the names of their directories begin with.
const PREFIX: &str = "warmcore-machine-";

/// Where the kernel says what is attached.
const SCHED_EXT: &str = "/sys/kernel/sched_ext/";

/// Stands for the directory of that which is there while a scheduler is attached.
const WHILE_ATTACHED: &str = "attached";

/// File of a directory that is locked as long as its owner lives.
const LOCK: &str = ".owner";

/// The files of a machine and a kernel, in a directory of their own that goes with this. What others have left who were ended before they could
/// remove it goes when the next is made.
#[derive(Debug)]
pub struct MachineFiles {
    path: PathBuf,
    _directory: tempfile::TempDir,
    _lock: File,
}

impl MachineFiles {
    /// Writes them.
    ///
    /// # Errors
    /// When there is no place for them.
    pub fn new(machine: &Machine, kernel: &TargetKernel) -> io::Result<Self> {
        remove_left(Path::new(IN_MEMORY));
        let builder = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix(PREFIX);
            builder
        };
        let directory = builder().tempdir_in(IN_MEMORY).or_else(|_| builder().tempdir())?;
        // It has its name when it is locked, as others would take it for one that was left.
        let [new, name] = ["new", LOCK].map(|name| directory.path().join(name));
        let lock = File::create(&new)?;
        try_lock(&lock)?;
        fs::rename(new, name)?;
        let path = directory.path().join("root");
        fs::create_dir(&path)?;
        write(machine, kernel, &path)?;
        Ok(Self { path, _directory: directory, _lock: lock })
    }

    /// Where they are.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn try_lock(file: &File) -> io::Result<()> {
    // SAFETY: a descriptor that is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes directories whose owner is gone. What cannot be removed stays.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let ours = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for path in ours.map(|entry| entry.path()) {
        // One without a lock is about to get it.
        if File::open(path.join(LOCK)).is_ok_and(|lock| try_lock(&lock).is_ok()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Writes them below `root`, which is an empty directory.
fn write(machine: &Machine, kernel: &TargetKernel, root: &Path) -> io::Result<()> {
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
    for name in ["state", "switch_all", "nr_rejected", "hotplug_seq", "enable_seq"] {
        let path = format!("{SCHED_EXT}{name}");
        write(&path[1..], &SchedExt::default().text(&path).expect("it is there without a scheduler"))?;
    }
    for name in ["ops", "events"] {
        write(&format!("{WHILE_ATTACHED}/{name}"), "")?;
    }
    fs::create_dir_all(root.join("sys/kernel/btf"))?;
    fs::write(root.join("sys/kernel/btf/vmlinux"), &kernel.types)?;
    for directory in ["sys/fs/cgroup", "sys/fs/bpf"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let name = |tracepoint: &Tracepoint| format!("{}:{}\n", tracepoint.system, tracepoint.name);
    let events: String = Tracepoint::all().iter().map(name).collect();
    write("sys/kernel/tracing/available_events", &events)?;
    for tracepoint in Tracepoint::all() {
        let directory = format!("sys/kernel/tracing/events/{}/{}", tracepoint.system, tracepoint.name);
        write(&format!("{directory}/id"), &format!("{}\n", tracepoint.number()))?;
        write(&format!("{directory}/format"), &tracepoint.format())?;
    }
    let tracers = if kernel.traces_functions() { "function nop\n" } else { "nop\n" };
    write("sys/kernel/tracing/available_tracers", tracers)?;
    write("proc/kallsyms", &symbols(kernel))?;
    write("proc/schedstat", "version 17\n")?;
    write("proc/sys/kernel/ftrace_enabled", "1\n")?;
    write("proc/sys/kernel/pid_max", "4194304\n")?;
    write("proc/sys/kernel/osrelease", &format!("{}\n", kernel.release))?;
    write("proc/mounts", "tracefs /sys/kernel/tracing tracefs rw 0 0\n")?;
    write(&format!("boot/config-{}", kernel.release), &kernel.configuration)
}

/// `/proc/kallsyms`: the functions that programs of tracing may be attached to. Addresses are hidden, as from users without privileges.
fn symbols(kernel: &TargetKernel) -> String {
    kernel.btf.names(TypeKind::Function).map(|name| format!("{:016x} T {name}\n", 0)).collect()
}

/// The class of sched_ext schedulers as its files say it is.
#[derive(Default)]
pub(crate) struct SchedExt {
    attached: Option<Arc<Object>>,
    /// How often one was attached (`scx_enable_seq`).
    enabled: u64,
    /// What the class has counted for it.
    events: EventCounts,
}

impl SchedExt {
    pub(crate) fn attach(&mut self, object: Arc<Object>) {
        self.attached = Some(object);
        self.enabled += 1;
        self.events = EventCounts::default();
    }

    /// The class has counted so much for what is attached.
    pub(crate) fn count(&mut self, events: EventCounts) {
        self.events = events;
    }

    /// Its loader detaches it, or it is ejected.
    pub(crate) fn end(&mut self) {
        self.attached = None;
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attached.is_some()
    }

    /// Whether one was attached, and none is.
    pub(crate) fn is_ended(&self) -> bool {
        self.enabled > 0 && !self.is_attached()
    }

    /// Text of a file of `/sys/kernel/sched_ext`; `None` for one that is not there. A task is rejected if it asks for the
    /// class by its policy, and no task has done so before a scheduler is attached.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let attached = self.attached.as_ref();
        let number = |value: u64| format!("{value}\n");
        Some(match path.strip_prefix(SCHED_EXT)? {
            "state" => if attached.is_some() { "enabled\n" } else { "disabled\n" }.into(),
            "switch_all" => number(attached.is_some_and(|object| !object.is_partial()).into()),
            "enable_seq" => number(self.enabled),
            "nr_rejected" | "hotplug_seq" => number(0),
            "root/ops" => format!("{}\n", attached?.name()),
            "root/events" => attached?.events_text(&self.events),
            _ => return None,
        })
    }

    /// Where the file of a path is below the machine's files, if not at that path: those of the attached scheduler are there only as long as it is.
    pub(crate) fn place(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(SCHED_EXT)?.strip_prefix("root")?;
        let is_there = self.is_attached() && (rest.is_empty() || rest.starts_with('/'));
        is_there.then(|| format!("/{WHILE_ATTACHED}{rest}"))
    }
}

/// `/proc/stat` by how long each CPU has been busy and idle, in ns: its lines of CPU time, in hundredths of a second.
pub(crate) fn cpu_times_text(times: &[(u64, u64)]) -> String {
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
    text
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
