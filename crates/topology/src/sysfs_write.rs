//! Writing `/sys` trees: a snapshot of an existing one, or the tree that a machine would have.
//!
//! A snapshot holds the files that [`from_sysfs`](crate::from_sysfs) reads and nothing else, so it has no serial
//! numbers, no host name and no addresses. Of `meminfo` only the total is kept, of `/proc/cpuinfo` the model's name and make.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sysfs::{
    CACHE_CPU_FILES, CLUSTER_FILES, CORE_FILES, CORE_TYPE_FILES, CPU_INFO_KEYS, CpuInfo, HIGHEST_PERF_FILE,
    NODE_CPU_FILES, PACKAGE_FILES, SysTree,
};
use crate::sysfs_priorities::{ITMT_FILES, ITMT_SYSCTL};
use crate::{Cache, CacheKind, CpuSet, Error, Machine, Result, Vendor, Ways, format_cpu_list};

/// What the CPUs are, as seen from `sys/devices/system`.
const CPU_INFO: &str = "../../../proc/cpuinfo";

const CPU_LISTS: [&str; 3] = ["possible", "present", "online"];
const TOPOLOGY_FILES: [&str; 2] = ["physical_package_id", "core_id"];
const CACHE_FILES: [&str; 5] = ["level", "type", "size", "coherency_line_size", "ways_of_associativity"];

/// Copies what describes the machine from the `/sys` tree below `root` to a new tree below `out`, which must not
/// exist or be an empty directory. Returns the number of files written.
///
/// # Errors
/// [`Error::Read`] and [`Error::Write`] with the path.
pub fn write_sysfs_snapshot(root: &Path, out: &Path) -> Result<usize> {
    let tree = SysTree::open(root)?;
    let mut writer = SysfsWriter::new(out)?;
    for list in CPU_LISTS {
        writer.copy(&tree, &format!("cpu/{list}"))?;
    }
    for cpu in tree.numbered("cpu", "cpu")? {
        let sets = CORE_FILES.iter().chain(&PACKAGE_FILES).flatten().chain(&CLUSTER_FILES);
        for file in TOPOLOGY_FILES.iter().chain(sets) {
            writer.copy(&tree, &format!("cpu/cpu{cpu}/topology/{file}"))?;
        }
        writer.copy(&tree, &format!("cpu/cpu{cpu}/cpu_capacity"))?;
        writer.copy(&tree, &format!("cpu/cpu{cpu}/{HIGHEST_PERF_FILE}"))?;
        for index in tree.numbered(&format!("cpu/cpu{cpu}/cache"), "index")? {
            for file in CACHE_FILES.iter().chain(&CACHE_CPU_FILES) {
                writer.copy(&tree, &format!("cpu/cpu{cpu}/cache/index{index}/{file}"))?;
            }
        }
    }
    for (file, _) in CORE_TYPE_FILES {
        writer.copy(&tree, file)?;
    }
    writer.copy(&tree, "node/possible")?;
    writer.copy(&tree, "node/online")?;
    for node in tree.numbered("node", "node")? {
        for file in NODE_CPU_FILES {
            writer.copy(&tree, &format!("node/node{node}/{file}"))?;
        }
        writer.copy(&tree, &format!("node/node{node}/distance"))?;
        writer.copy_total_memory(&tree, node)?;
    }
    for (file, _) in ITMT_FILES {
        // One that only root may read is as one that is not there, as for the reader.
        if let Some(text) = tree.text(file).ok().flatten() {
            writer.write(file, &text)?;
        }
    }
    let cpu_info = CpuInfo::read(root);
    let lines = CPU_INFO_KEYS.iter().filter_map(|key| Some(format!("{key}\t: {}", cpu_info.value(key)?)));
    writer.write_cpu_info(lines.collect())?;
    Ok(writer.written)
}

/// Writes the `/sys` tree that Linux would show on a machine, as far as [`from_sysfs`](crate::from_sysfs) reads it,
/// below
/// `out`, which must not exist or be an empty directory. For tests that need a tree of a machine nobody has at hand.
/// Returns the number of files written.
///
/// # Errors
/// [`Error::Write`] with the path.
pub fn write_sysfs_tree(machine: &Machine, out: &Path) -> Result<usize> {
    let mut writer = SysfsWriter::new(out)?;
    let list = |cpus: &CpuSet| format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu)));
    let online: BTreeSet<u32> = machine.cpus().map(|cpu| machine.os_index(cpu)).collect();
    let present: BTreeSet<u32> = online.iter().chain(machine.offline_cpus()).copied().collect();
    writer.write("cpu/possible", &format_cpu_list(present.iter().copied()))?;
    writer.write("cpu/present", &format_cpu_list(present))?;
    writer.write("cpu/online", &format_cpu_list(online))?;
    for cpu in machine.cpus() {
        let directory = format!("cpu/cpu{}", machine.os_index(cpu));
        let siblings = list(machine.cpus_of_core(machine.core_of(cpu)));
        writer.write(&format!("{directory}/topology/core_cpus_list"), &siblings)?;
        writer.write(&format!("{directory}/topology/core_id"), &machine.core_of(cpu).0.to_string())?;
        // Firmware calls a group a cluster that is larger than the LLCs in it.
        let (llc, group) = (machine.cpus_of_llc(machine.llc_of(cpu)), machine.coregroup(cpu));
        let stands_for_llcs = group.len() > llc.len() && llc.is_subset(group);
        let own = machine.cpus_of_cluster(machine.cluster_of(cpu));
        let cluster = list(if stands_for_llcs { group } else { own });
        writer.write(&format!("{directory}/topology/cluster_cpus_list"), &cluster)?;
        let package = machine.socket_os_index(machine.socket_of(cpu));
        writer.write(&format!("{directory}/topology/physical_package_id"), &package.to_string())?;
        if machine.is_asymmetric() {
            writer.write(&format!("{directory}/cpu_capacity"), &machine.capacity(cpu).to_string())?;
        }
        if machine.has_priorities() {
            writer.write(&format!("{directory}/{HIGHEST_PERF_FILE}"), &machine.priority(cpu).to_string())?;
        }
        for (index, cache) in machine.caches().iter().filter(|cache| cache.cpus.contains(cpu)).enumerate() {
            writer.write_cache(&format!("{directory}/cache/index{index}"), cache, &list(&cache.cpus))?;
        }
    }
    if machine.has_priorities() {
        writer.write(ITMT_SYSCTL, "1")?;
    }
    let nodes = machine.nodes().map(|node| machine.node_os_index(node));
    writer.write("node/online", &format_cpu_list(nodes))?;
    for node in machine.nodes() {
        let directory = format!("node/node{}", machine.node_os_index(node));
        writer.write(&format!("{directory}/cpulist"), &list(machine.cpus_of_node(node)))?;
        let row: Vec<String> = machine.nodes().map(|to| machine.node_distance(node, to).to_string()).collect();
        writer.write(&format!("{directory}/distance"), &row.join(" "))?;
        if let Some(bytes) = machine.node_memory_bytes(node) {
            let line = format!("Node {} MemTotal:       {} kB", machine.node_os_index(node), bytes / 1024);
            writer.write(&format!("{directory}/meminfo"), &line)?;
        }
    }
    let lines = machine.processor().map_or(Vec::new(), |processor| match (processor.vendor(), processor.family()) {
        (Vendor::Arm, _) => vec!["CPU implementer\t: 0x41".to_owned()],
        (vendor @ Vendor::Power, _) => vec![format!("cpu\t: {}", vendor.cpuid_name())],
        (vendor, family) => {
            let family = family.map(|family| format!("cpu family\t: {family}"));
            let model = processor.model().map(|model| format!("model\t\t: {model}"));
            [format!("vendor_id\t: {}", vendor.cpuid_name())].into_iter().chain(family).chain(model).collect()
        }
    });
    writer.write_cpu_info(lines)?;
    Ok(writer.written)
}

struct SysfsWriter {
    system: PathBuf,
    written: usize,
}

impl SysfsWriter {
    fn new(out: &Path) -> Result<Self> {
        if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
            let source = std::io::Error::new(std::io::ErrorKind::AlreadyExists, "the directory is not empty");
            return Err(Error::Write { path: out.to_owned(), source });
        }
        Ok(Self { system: out.join("sys/devices/system"), written: 0 })
    }

    /// Copies a file if the tree has it. Files of offline CPUs may exist and refuse to be read; those are left out
    /// too.
    fn copy(&mut self, tree: &SysTree, file: &str) -> Result<()> {
        match tree.text(file) {
            Ok(Some(text)) => self.write(file, &text),
            Ok(None) => Ok(()),
            Err(Error::Read { .. }) if file.starts_with("cpu/cpu") => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn copy_total_memory(&mut self, tree: &SysTree, node: u32) -> Result<()> {
        let file = format!("node/node{node}/meminfo");
        let text = tree.text(&file)?.unwrap_or_default();
        match text.lines().find(|line| line.contains("MemTotal:")) {
            Some(line) => self.write(&file, line.trim()),
            None => Ok(()),
        }
    }

    /// Writes the lines of one CPU's entry, if there are any.
    fn write_cpu_info(&mut self, lines: Vec<String>) -> Result<()> {
        if lines.is_empty() { Ok(()) } else { self.write(CPU_INFO, &lines.join("\n")) }
    }

    fn write_cache(&mut self, directory: &str, cache: &Cache, cpus: &str) -> Result<()> {
        let kind = match cache.kind {
            CacheKind::Data => "Data",
            CacheKind::Instruction => "Instruction",
            CacheKind::Unified => "Unified",
        };
        let ways = match cache.ways {
            Ways::Count(ways) => ways,
            Ways::Unknown | Ways::Full => 0,
        };
        self.write(&format!("{directory}/level"), &cache.level.to_string())?;
        self.write(&format!("{directory}/type"), kind)?;
        self.write(&format!("{directory}/size"), &format!("{}K", cache.size_bytes / 1024))?;
        self.write(&format!("{directory}/coherency_line_size"), &cache.line_bytes.to_string())?;
        self.write(&format!("{directory}/ways_of_associativity"), &ways.to_string())?;
        self.write(&format!("{directory}/shared_cpu_list"), cpus)
    }

    fn write(&mut self, file: &str, text: &str) -> Result<()> {
        let path = self.system.join(file);
        let failed = |source| Error::Write { path: path.clone(), source };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        fs::write(&path, format!("{text}\n")).map_err(failed)?;
        self.written += 1;
        Ok(())
    }
}
