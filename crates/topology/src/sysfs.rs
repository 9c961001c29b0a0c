//! Reading a Linux `/sys` tree, live or a snapshot of it, below a root directory given by the caller.
//!
//! Source: the kernel's `Documentation/ABI/{stable,testing}/sysfs-devices-system-cpu` and `...-node`. Read are
//! `cpu/{possible,present,online}`, `cpu*/topology`, `cpu*/cache/index*`, `cpu*/cpu_capacity`, `cpu*/acpi_cppc/highest_perf`, whether tasks are packed by that (`sysfs_priorities`), and
//! `node*/{cpumap,cpulist,distance,meminfo}`, the kinds of hybrid cores (`../cpu_{core,atom,lowpower}/cpus`,
//! `...-bus-event_source-devices`), and the make of the CPUs in `/proc/cpuinfo` beside the tree; what a kernel does not provide is noted and replaced by the plainest
//! assumption.
//!
//! Sets of CPUs stand there twice, as a bit map and as a list. Old kernels give maps only, and trees that were made by
//! hand often have wrong lists: the map is read, and the list only where there is no map.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use crate::discovered::{Found, FoundCpu};
use crate::hwloc_bitmap::parse_bitmap;
use crate::sysfs_priorities::read_priorities;
use crate::{
    Cache, CacheDescription, CacheKind, CpuSet, Error, Inclusion, Location, MAX_CPUS, Machine, NodeDescription, Result,
    Vendor, Ways, parse_cpu_list,
};

pub(crate) const FORMAT: &str = "sysfs";

/// Where the CPUs of one core are listed, newest name first, each as a map and as a list.
pub(crate) const CORE_FILES: [[&str; 2]; 2] =
    [["core_cpus", "core_cpus_list"], ["thread_siblings", "thread_siblings_list"]];
/// The same for a package.
pub(crate) const PACKAGE_FILES: [[&str; 2]; 2] =
    [["package_cpus", "package_cpus_list"], ["core_siblings", "core_siblings_list"]];
/// The same for a cluster, a cache and a NUMA node.
pub(crate) const CLUSTER_FILES: [&str; 2] = ["cluster_cpus", "cluster_cpus_list"];
/// See [`CLUSTER_FILES`].
pub(crate) const CACHE_CPU_FILES: [&str; 2] = ["shared_cpu_map", "shared_cpu_list"];
/// See [`CLUSTER_FILES`].
pub(crate) const NODE_CPU_FILES: [&str; 2] = ["cpumap", "cpulist"];

/// Where the counters of each kind of a hybrid CPU's cores list their CPUs, as seen from `sys/devices/system`, and what the kind is called.
pub(crate) const CORE_TYPE_FILES: [(&str, &str); 3] = [
    ("../cpu_core/cpus", "of kind cpu_core"),
    ("../cpu_atom/cpus", "of kind cpu_atom"),
    ("../cpu_lowpower/cpus", "of kind cpu_lowpower"),
];

/// The highest performance of a CPU, in a unit of the firmware's, below the CPU's directory (`Documentation/admin-guide/acpi/cppc_sysfs.rst`).
pub(crate) const HIGHEST_PERF_FILE: &str = "acpi_cppc/highest_perf";
/// The last part of its name.
pub(crate) const HIGHEST_PERF: &str = "highest_perf";

/// No file that is read here is longer: a distance row of 1024 nodes has 4 KiB, a list of 8192 CPUs at worst 40 KiB.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Builds the machine that the `/sys` tree below `root` describes. `root` is the directory that contains `sys` (the
/// live machine's is `/`), or `sys` itself.
///
/// # Errors
/// [`Error::Read`] when there is no such tree, [`Error::Invalid`] with the path for files with unexpected contents,
/// and
/// [`Error::Impossible`] for trees that contradict themselves.
pub fn from_sysfs(root: &Path) -> Result<Machine> {
    let tree = SysTree::open(root)?;
    let mut found = Found::default();
    let online = tree.online_cpus()?;
    if online.len() > MAX_CPUS {
        let reason = format!("{} CPUs online are more than the limit of {MAX_CPUS}", online.len());
        return Err(tree.invalid("cpu/online", reason));
    }
    let present = tree.list("cpu/present")?.unwrap_or_else(|| online.clone());
    found.offline = present.difference(&online).copied().collect();
    tree.read_nodes(&online, &mut found)?;
    let node_of = tree.nodes_of_cpus(&found)?;
    let unpackaged = tree.read_cpus(&online, &node_of, &mut found)?;
    house_the_homeless(&node_of, &mut found);
    assume_packages(&unpackaged, &mut found);
    tree.read_caches(&online, &mut found)?;
    for (file, kind) in CORE_TYPE_FILES {
        if let Some(cpus) = tree.list(file)? {
            found.core_types.insert(kind.to_owned(), cpus);
        }
    }
    read_priorities(&tree, &mut found);
    let cpu_info = CpuInfo::read(root);
    let (vendor, family, model) = cpu_info.make();
    found.read_processor(vendor, family, model);
    found.into_machine("detected", "read from a /sys tree", FORMAT)
}

/// Where kernels say what the CPUs are, beside the tree.
const CPU_INFO: &str = "proc/cpuinfo";

/// The name of the CPU model of the computer, or of the snapshot, whose `/sys` lies below `root`; `None` where nothing names it.
pub fn cpu_model(root: &Path) -> Option<String> {
    CpuInfo::read(root).value("model name").map(str::to_owned)
}

/// The text of `/proc/cpuinfo`; empty where there is none.
pub(crate) struct CpuInfo(String);

impl CpuInfo {
    pub(crate) fn read(root: &Path) -> Self {
        let mut text = String::new();
        let read =
            fs::File::open(root.join(CPU_INFO)).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
        Self(if read.is_ok() { text } else { String::new() })
    }

    /// What the first CPU's entry says under a key.
    pub(crate) fn value(&self, wanted: &str) -> Option<&str> {
        let mut entries = self.0.lines().filter_map(|line| line.split_once(':'));
        let found = entries.find(|(key, value)| key.trim() == wanted && !value.trim().is_empty());
        found.map(|(_, value)| value.trim())
    }

    /// Vendor, family and model: of x86 as CPUID has them, of other architectures their own name.
    fn make(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        if let Some(vendor) = self.value("vendor_id") {
            return (Some(vendor), self.value("cpu family"), self.value("model"));
        }
        let is_power = self.value("cpu").is_some_and(|cpu| cpu.starts_with(Vendor::Power.cpuid_name()));
        let vendor = match (self.value("CPU implementer"), is_power) {
            (Some(_), _) => Some(Vendor::Arm),
            (None, true) => Some(Vendor::Power),
            (None, false) => None,
        };
        (vendor.map(Vendor::cpuid_name), None, None)
    }
}

/// The keys of `/proc/cpuinfo` that are read here.
pub(crate) const CPU_INFO_KEYS: [&str; 6] =
    ["vendor_id", "cpu family", "model", "model name", "CPU implementer", "cpu"];

/// The directory `sys/devices/system`.
pub(crate) struct SysTree {
    pub(crate) system: PathBuf,
}

impl SysTree {
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let candidates = [root.join("sys/devices/system"), root.join("devices/system")];
        match candidates.iter().find(|system| system.join("cpu").is_dir()) {
            Some(system) => Ok(Self { system: system.clone() }),
            None => Err(Error::Read {
                path: candidates[0].join("cpu"),
                source: std::io::Error::new(
                    ErrorKind::NotFound,
                    "there is no sys/devices/system/cpu below the root directory",
                ),
            }),
        }
    }

    /// The trimmed text of a file; `None` when it does not exist. Copies of sysfs files made page by page are padded
    /// with zero bytes, which do not count.
    pub(crate) fn text(&self, file: &str) -> Result<Option<String>> {
        let path = self.system.join(file);
        let failed = |source| Error::Read { path: path.clone(), source };
        let invalid = |reason: &str| Error::invalid(Location::file(FORMAT, path.clone()), reason);
        let opened = match fs::File::open(&path) {
            Ok(opened) => opened,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(invalid("the file is longer than 1 MiB"));
        }
        let text = String::from_utf8(bytes).map_err(|_| invalid("the file is not text"))?;
        Ok(Some(text.trim_end_matches('\0').trim().to_owned()))
    }

    fn invalid(&self, file: &str, reason: impl Into<String>) -> Error {
        Error::invalid(Location::file(FORMAT, self.system.join(file)), reason)
    }

    /// A CPU or node list.
    pub(crate) fn list(&self, file: &str) -> Result<Option<BTreeSet<u32>>> {
        let text = self.text(file)?;
        text.map(|text| parse_cpu_list(&text).map_err(|error| self.invalid(file, error.to_string()))).transpose()
    }

    /// A set of CPUs that `directory` has as a map or as a list.
    fn cpus(&self, directory: &str, [map, list]: [&str; 2]) -> Result<Option<BTreeSet<u32>>> {
        let file = format!("{directory}/{map}");
        match self.text(&file)? {
            Some(text) => parse_bitmap(&text).map(Some).map_err(|reason| self.invalid(&file, reason)),
            None => self.list(&format!("{directory}/{list}")),
        }
    }

    fn number(&self, file: &str) -> Result<Option<i64>> {
        let text = self.text(file)?;
        text.map(|text| text.parse().map_err(|_| self.invalid(file, format!("`{}` is not a number", first(&text)))))
            .transpose()
    }

    /// Numbers of the directories `name0`, `name1`, ... in `directory`, ascending.
    pub(crate) fn numbered(&self, directory: &str, name: &str) -> Result<BTreeSet<u32>> {
        let path = self.system.join(directory);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(source) => return Err(Error::Read { path, source }),
        };
        let mut numbers = BTreeSet::new();
        for entry in entries {
            let entry = entry.map_err(|source| Error::Read { path: path.clone(), source })?;
            let file_name = entry.file_name();
            let digits = file_name.to_str().and_then(|text| text.strip_prefix(name));
            let number: Option<u32> = digits.and_then(|digits| digits.parse().ok());
            numbers.extend(number.filter(|number| *number <= crate::MAX_CPU_NUMBER));
        }
        Ok(numbers)
    }

    /// Online CPUs; without the list, all that have a topology.
    pub(crate) fn online_cpus(&self) -> Result<BTreeSet<u32>> {
        if let Some(online) = self.list("cpu/online")? {
            return Ok(online);
        }
        let numbers = self.numbered("cpu", "cpu")?;
        Ok(numbers.into_iter().filter(|cpu| self.system.join(format!("cpu/cpu{cpu}/topology")).is_dir()).collect())
    }

    fn read_nodes(&self, online: &BTreeSet<u32>, found: &mut Found) -> Result<()> {
        let numbers = match self.list("node/online")? {
            Some(numbers) => numbers,
            None => self.numbered("node", "node")?,
        };
        if numbers.is_empty() {
            found.nodes.push(NodeDescription { os_index: 0, memory_bytes: None });
            if !online.is_empty() {
                found.notes.push("no NUMA node is described: all CPUs are in node 0".to_owned());
            }
            return Ok(());
        }
        let mut rows = Vec::new();
        for &number in &numbers {
            let memory_bytes = self.text(&format!("node/node{number}/meminfo"))?.as_deref().and_then(total_memory);
            found.nodes.push(NodeDescription { os_index: number, memory_bytes });
            let file = format!("node/node{number}/distance");
            let Some(text) = self.text(&file)? else { continue };
            let row: Option<Vec<u32>> = text.split_whitespace().map(|distance| distance.parse().ok()).collect();
            rows.push(row.ok_or_else(|| self.invalid(&file, format!("`{}` are not distances", first(&text))))?);
        }
        self.keep_columns_of_online_nodes(&numbers, &mut rows, found)?;
        if rows.len() == numbers.len() {
            found.distances = Some(rows);
        } else {
            found.notes.push("node distances are missing and assumed".to_owned());
        }
        Ok(())
    }

    /// A kernel prints the distances to online nodes; other trees have a column for each possible node.
    fn keep_columns_of_online_nodes(
        &self,
        online: &BTreeSet<u32>,
        rows: &mut Vec<Vec<u32>>,
        found: &mut Found,
    ) -> Result<()> {
        if rows.iter().all(|row| row.len() == online.len()) {
            return Ok(());
        }
        let possible = self.list("node/possible")?.unwrap_or_default();
        if rows.iter().all(|row| row.len() == possible.len()) && online.is_subset(&possible) {
            for row in rows.iter_mut() {
                let columns = possible.iter().zip(&*row).filter(|(node, _)| online.contains(node));
                *row = columns.map(|(_, distance)| *distance).collect();
            }
            found.notes.push("distances to nodes that are offline are left out".to_owned());
        } else {
            rows.clear();
            let (nodes, one) = (online.len(), if online.len() == 1 { "" } else { "s" });
            found.notes.push(format!("node distances do not name the {nodes} online node{one}"));
        }
        Ok(())
    }

    /// The node of each CPU that a node lists.
    fn nodes_of_cpus(&self, found: &Found) -> Result<BTreeMap<u32, u32>> {
        let mut node_of: BTreeMap<u32, u32> = BTreeMap::new();
        for node in &found.nodes {
            let directory = format!("node/node{}", node.os_index);
            for cpu in self.cpus(&directory, NODE_CPU_FILES)?.unwrap_or_default() {
                if let Some(other) = node_of.insert(cpu, node.os_index) {
                    let reason = format!("CPU {cpu} is in node {} and in node {other}", node.os_index);
                    return Err(self.invalid(&directory, reason));
                }
            }
        }
        Ok(node_of)
    }

    /// The CPUs that the first of some files names which is there.
    fn first_of(&self, directory: &str, files: [[&str; 2]; 2]) -> Result<Option<BTreeSet<u32>>> {
        let newer = self.cpus(directory, files[0])?;
        if newer.is_some() { Ok(newer) } else { self.cpus(directory, files[1]) }
    }

    /// Reads the CPUs; returns those whose package has no number, each with the lowest CPU of it, or itself.
    fn read_cpus(
        &self,
        online: &BTreeSet<u32>,
        node_of: &BTreeMap<u32, u32>,
        found: &mut Found,
    ) -> Result<BTreeMap<u32, u32>> {
        let (mut alone, mut unpackaged) = (BTreeSet::new(), BTreeMap::new());
        for &cpu in online {
            let topology = format!("cpu/cpu{cpu}/topology");
            let core = self.first_of(&topology, CORE_FILES)?.and_then(|siblings| siblings.first().copied());
            if core.is_none() {
                alone.insert(cpu);
            }
            // Firmware that says nothing gives package -1.
            let package = self.number(&format!("{topology}/physical_package_id"))?;
            let package = package.and_then(|package| u32::try_from(package).ok());
            if package.is_none() {
                let package = self.first_of(&topology, PACKAGE_FILES)?.unwrap_or_default();
                unpackaged.insert(cpu, package.intersection(online).next().copied().unwrap_or(cpu));
            }
            let cluster = self.cpus(&topology, CLUSTER_FILES)?.and_then(|cluster| cluster.first().copied());
            found.clusters.extend(cluster.map(|lowest| (cpu, lowest)));
            let capacity = self.number(&format!("cpu/cpu{cpu}/cpu_capacity"))?;
            let found_cpu = FoundCpu {
                core: core.unwrap_or(cpu),
                socket: package.unwrap_or(0),
                node: node_of.get(&cpu).copied().unwrap_or(0),
                capacity: u32::try_from(capacity.unwrap_or(i64::from(crate::CAPACITY_SCALE))).unwrap_or(u32::MAX),
            };
            found.cpus.insert(cpu, found_cpu);
            // One that cannot be read is as one that is not there.
            let highest = self.number(&format!("cpu/cpu{cpu}/{HIGHEST_PERF_FILE}")).ok().flatten();
            if let Some(highest) = highest.and_then(|highest| u64::try_from(highest).ok()).filter(|perf| *perf > 0) {
                found.top_speeds.entry(HIGHEST_PERF).or_default().insert(cpu, highest);
            }
        }
        if !alone.is_empty() {
            found
                .notes
                .push(format!("{} not said to share a core: each counts as a core of its own", cpus_are(&alone)));
        }
        Ok(unpackaged)
    }

    fn read_caches(&self, online: &BTreeSet<u32>, found: &mut Found) -> Result<()> {
        let mut seen: BTreeSet<(u8, CacheKind, BTreeSet<u32>)> = BTreeSet::new();
        let mut unshared: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for &cpu in online {
            for index in self.numbered(&format!("cpu/cpu{cpu}/cache"), "index")? {
                let Some(mut description) = self.read_cache(cpu, index)? else { continue };
                if description.cpus.is_empty() {
                    // Some kernels print an empty map: no cache is smaller than a core.
                    let core = found.cpus[&cpu].core;
                    description.cpus = online.iter().copied().filter(|other| found.cpus[other].core == core).collect();
                    unshared.entry(description.cache.name()).or_default().insert(cpu);
                }
                description.cpus.insert(cpu);
                let key = (description.cache.level, description.cache.kind, description.cpus.clone());
                if seen.insert(key) {
                    found.caches.push(description);
                }
            }
        }
        found.notes.extend(unshared.iter().map(|(cache, cpus)| {
            let list = crate::format_cpu_list(cpus.iter().copied());
            format!("nothing says which CPUs share the {cache} of CPUs {list}: counted as one per core")
        }));
        Ok(())
    }

    /// One cache of one CPU, with the CPUs that the tree says share it; `None` for entries that are not caches.
    fn read_cache(&self, cpu: u32, index: u32) -> Result<Option<CacheDescription>> {
        let directory = format!("cpu/cpu{cpu}/cache/index{index}");
        let file = |name: &str| format!("{directory}/{name}");
        let kind = match self.text(&file("type"))?.as_deref() {
            Some("Data") => CacheKind::Data,
            Some("Instruction") => CacheKind::Instruction,
            Some("Unified") => CacheKind::Unified,
            _ => return Ok(None),
        };
        let Some(level) = self.number(&file("level"))? else { return Ok(None) };
        let level =
            u8::try_from(level).map_err(|_| self.invalid(&file("level"), format!("level {level} is not 1 to 5")))?;
        let size_bytes = match self.text(&file("size"))? {
            None => 0,
            Some(text) => {
                let unit = |text: &str| Some((text.strip_suffix('K')?.parse::<u64>().ok()?, 1 << 10));
                let mega = |text: &str| Some((text.strip_suffix('M')?.parse::<u64>().ok()?, 1 << 20));
                let size =
                    unit(&text).or_else(|| mega(&text)).and_then(|(number, unit): (u64, u64)| number.checked_mul(unit));
                size.filter(|size| *size < 1 << 60).ok_or_else(|| {
                    self.invalid(&file("size"), format!("`{}` is not a size such as 32K", first(&text)))
                })?
            }
        };
        let line_bytes =
            self.number(&file("coherency_line_size"))?.and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        if line_bytes != 0 && !line_bytes.is_power_of_two() {
            let words = format!("a line of {line_bytes} bytes is not a power of two");
            return Err(self.invalid(&file("coherency_line_size"), words));
        }
        if line_bytes != 0 && !size_bytes.is_multiple_of(u64::from(line_bytes)) {
            return Err(self.invalid(&file("size"), format!("{size_bytes} bytes are not whole lines of {line_bytes}")));
        }
        let ways = match self.number(&file("ways_of_associativity"))?.and_then(|ways| u32::try_from(ways).ok()) {
            None | Some(0) => Ways::Unknown,
            Some(ways) => Ways::Count(ways),
        };
        let cpus = self.cpus(&directory, CACHE_CPU_FILES)?.unwrap_or_default();
        let cache = Cache {
            level,
            kind,
            size_bytes,
            line_bytes,
            ways,
            inclusion: Inclusion::Unknown,
            latency_ps: None,
            cpus: CpuSet::new(),
        };
        Ok(Some(CacheDescription { cache, cpus }))
    }
}

/// Gives CPUs that no node lists the node of another CPU of their package, or else the lowest node.
fn house_the_homeless(node_of: &BTreeMap<u32, u32>, found: &mut Found) {
    let lowest = found.nodes.iter().map(|node| node.os_index).min().unwrap_or(0);
    let mut node_of_package: BTreeMap<u32, u32> = BTreeMap::new();
    for (os_index, cpu) in &found.cpus {
        if let Some(node) = node_of.get(os_index) {
            node_of_package.entry(cpu.socket).or_insert(*node);
        }
    }
    let mut moved: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (os_index, cpu) in found.cpus.iter_mut().filter(|(os_index, _)| !node_of.contains_key(os_index)) {
        cpu.node = node_of_package.get(&cpu.socket).copied().unwrap_or(lowest);
        moved.entry(cpu.node).or_default().insert(*os_index);
    }
    if !node_of.is_empty() || found.nodes.len() > 1 {
        let note = |(node, cpus): (&u32, &BTreeSet<u32>)| {
            format!("{} in no NUMA node: counted in node {node}", cpus_are(cpus))
        };
        found.notes.extend(moved.iter().map(note));
    }
}

/// Where no CPU's package has a number, the CPUs that the kernel names together are one, as on s390; where it names none, as on POWER, every
/// NUMA node counts as a socket. Single CPUs without a package are in socket 0.
fn assume_packages(unpackaged: &BTreeMap<u32, u32>, found: &mut Found) {
    if unpackaged.len() < found.cpus.len() {
        if !unpackaged.is_empty() {
            let cpus = unpackaged.keys().copied().collect();
            found.notes.push(format!("{} in no package: counted in socket 0", cpus_are(&cpus)));
        }
        return;
    }
    // Kernels that know no packages name a CPU, or the CPUs of its core, alone (`topology_core_cpumask` of `include/linux/topology.h`).
    let names_packages = |(cpu, lowest): (&u32, &u32)| found.cpus[cpu].core != found.cpus[lowest].core;
    if unpackaged.iter().any(names_packages) {
        for (cpu, of) in &mut found.cpus {
            of.socket = unpackaged[cpu];
        }
        found.notes.push("packages have no numbers: CPUs reported to share one count as a socket".to_owned());
        return;
    }
    found.cpus.values_mut().for_each(|cpu| cpu.socket = cpu.node);
    if found.nodes.len() > 1 {
        found.notes.push("no package is described: each NUMA node counts as a socket".to_owned());
    }
}

/// `Node 0 MemTotal:  5466328 kB` of a node's `meminfo`.
fn total_memory(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("MemTotal:"))?;
    let kibibytes: u64 = line.split("MemTotal:").nth(1)?.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// `CPU 3 is` or `CPUs 0-2,5 are`.
fn cpus_are(cpus: &BTreeSet<u32>) -> String {
    let list = crate::format_cpu_list(cpus.iter().copied());
    if cpus.len() == 1 { format!("CPU {list} is") } else { format!("CPUs {list} are") }
}

/// The beginning of a text, for messages.
fn first(text: &str) -> String {
    text.chars().take(40).collect()
}
