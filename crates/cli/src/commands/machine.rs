//! `warmcore machine` and `warmcore list machines`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use warmcore_agent::costs;
use warmcore_lab::experiment::Named;
use warmcore_places::host::tracing::Mounted;
use warmcore_topology::{Cache, CpuId, Interrupt, KernelThread, Machine, NodeId, Origin};

use crate::args::{MachineCommand, MachineFormat};
use crate::commands::{WrittenFile, as_document, print_written, write_result};
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::load;

/// What stands for this computer.
const THIS_COMPUTER: &str = "host";

/// A preset in the document of `list machines --json`.
#[derive(Serialize)]
struct PresetEntry {
    name: String,
    aliases: Vec<String>,
    summary: String,
    cpus: usize,
    cores: usize,
    llcs: usize,
    nodes: usize,
    sockets: usize,
}

/// The document of `machine show --json`.
#[derive(Serialize)]
struct MachineDocument {
    name: String,
    summary: String,
    /// In order of their dense numbers, which traces and tables have.
    cpus: Vec<CpuRow>,
    caches: Vec<CacheRow>,
    nodes: Vec<NodeRow>,
    /// What the values rest on, by name.
    origins: Vec<OriginRow>,
    notes: Vec<String>,
    /// Threads of the kernel itself and interrupts, where it was given some.
    #[serde(skip_serializing_if = "Option::is_none")]
    background: Option<BackgroundRow>,
    /// The whole machine, with every value, in the format that `--machine` reads.
    toml: String,
}

/// Threads of the kernel itself and interrupts, in it.
#[derive(Serialize)]
struct BackgroundRow {
    name: String,
    summary: String,
    launchers: bool,
    threads: Vec<ThreadRow>,
    interrupts: Vec<InterruptRow>,
}

/// One of them, or one for each CPU.
#[derive(Serialize)]
struct ThreadRow {
    name: String,
    /// `each-cpu`, `any`, or a list of CPUs in the operating system's numbers.
    on: String,
    nice: i8,
    mean_interval_ns: u64,
    after_exit: bool,
    at_tick: bool,
    deferrable: bool,
    mean_run_ns: u64,
    origin: String,
}

impl From<&KernelThread> for ThreadRow {
    fn from(thread: &KernelThread) -> Self {
        Self {
            name: thread.name.clone(),
            on: thread.place.to_string(),
            nice: thread.nice,
            mean_interval_ns: thread.wakes.mean_ns(),
            after_exit: thread.after_exit,
            at_tick: thread.at_tick,
            deferrable: thread.deferrable,
            mean_run_ns: thread.mean_run_ns(),
            origin: thread.origin.to_string(),
        }
    }
}

/// An interrupt, or one of each CPU.
#[derive(Serialize)]
struct InterruptRow {
    name: String,
    /// As of a thread.
    on: String,
    mean_interval_ns: u64,
    mean_run_ns: u64,
    origin: String,
}

impl From<&Interrupt> for InterruptRow {
    fn from(interrupt: &Interrupt) -> Self {
        Self {
            name: interrupt.name.clone(),
            on: interrupt.place.to_string(),
            mean_interval_ns: interrupt.arrives.mean_ns(),
            mean_run_ns: interrupt.mean_run_ns(),
            origin: interrupt.origin.to_string(),
        }
    }
}

/// One CPU in it: its own number, the operating system's, and what it belongs to.
#[derive(Serialize)]
struct CpuRow {
    cpu: u32,
    os_index: u32,
    core: u32,
    llc: u32,
    node: u32,
    socket: u32,
    capacity: u32,
    /// The higher, the sooner the CPU has a task (ITMT); left out where the machine has no priorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u32>,
}

/// One cache in it, with the CPUs under it.
#[derive(Serialize)]
struct CacheRow {
    name: String,
    /// 0 where it is not known.
    size_bytes: u64,
    cpus: Vec<u32>,
}

/// One NUMA node in it.
#[derive(Serialize)]
struct NodeRow {
    node: u32,
    os_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    /// To every node, as the firmware's table has it.
    distances: Vec<u32>,
}

/// What a value rests on.
#[derive(Serialize)]
struct OriginRow {
    value: String,
    /// `measured`, `assumed` or another such word, or the tags of its sources.
    basis: String,
    note: String,
}

impl MachineDocument {
    fn of(machine: &Machine) -> Self {
        let cpu = |cpu: CpuId| CpuRow {
            cpu: cpu.0,
            os_index: machine.os_index(cpu),
            core: machine.core_of(cpu).0,
            llc: machine.llc_of(cpu).0,
            node: machine.node_of(cpu).0,
            socket: machine.socket_of(cpu).0,
            capacity: machine.capacity(cpu),
            priority: machine.has_priorities().then(|| machine.priority(cpu)),
        };
        let cache = |cache: &Cache| CacheRow {
            name: cache.name(),
            size_bytes: cache.size_bytes,
            cpus: cache.cpus.iter().map(|cpu| cpu.0).collect(),
        };
        let node = |node: NodeId| NodeRow {
            node: node.0,
            os_index: machine.node_os_index(node),
            memory_bytes: machine.node_memory_bytes(node),
            distances: machine.nodes().map(|other| machine.node_distance(node, other)).collect(),
        };
        let origin = |(value, origin): (&String, &Origin)| OriginRow {
            value: value.clone(),
            basis: origin.short(),
            note: origin.note.clone(),
        };
        Self {
            name: machine.name().to_owned(),
            summary: machine.summary().to_owned(),
            cpus: machine.cpus().map(cpu).collect(),
            caches: machine.caches().iter().map(cache).collect(),
            nodes: machine.nodes().map(node).collect(),
            origins: machine.origins().iter().map(origin).collect(),
            notes: machine.notes().to_vec(),
            background: (!machine.background().is_empty()).then(|| BackgroundRow {
                name: machine.background().name.clone(),
                summary: machine.background().summary.clone(),
                launchers: machine.background().launchers,
                threads: machine.background().threads.iter().map(ThreadRow::from).collect(),
                interrupts: machine.background().interrupts.iter().map(InterruptRow::from).collect(),
            }),
            toml: warmcore_topology::to_toml(machine),
        }
    }
}

pub fn run(command: MachineCommand, console: &Console) -> Result<(), Failure> {
    match command {
        MachineCommand::Show { machine, background, measure, toml } => {
            let mut value = read(&machine, console)?;
            if measure && machine != THIS_COMPUTER {
                let message = "--measure: costs are measured on this computer, and that is another machine";
                return Err(Failure::usage("warmcore::usage", message).help("show `host`, or leave out --measure"));
            }
            if measure {
                value = measured(value, console)?;
            }
            let machine = load::with_background(Named { value, source: machine }, background.as_deref())?;
            show(&machine.value, toml, console)
        }
        MachineCommand::Convert { machine, to, out } => {
            let text = match to {
                MachineFormat::Snapshot => return snapshot(&machine, out.as_deref(), console),
                MachineFormat::Toml => warmcore_topology::to_toml(&read(&machine, console)?),
                MachineFormat::Xml => {
                    warmcore_topology::to_hwloc_xml(&read(&machine, console)?).map_err(inexpressible)?
                }
                MachineFormat::Synthetic => synthetic(&read(&machine, console)?, console)?,
            };
            write_result(out.as_deref(), ("machine", &text), console)
        }
    }
}

/// This computer with the costs that are measured on it now.
fn measured(machine: Machine, console: &Console) -> Result<Machine, Failure> {
    console.note("measuring this computer's costs: other work on it falsifies them");
    let mounted = Mounted::begin();
    let instance =
        mounted.as_ref().map(|mounted| &mounted.instance).map_err(|error| format!("{error} ({})", error.advice));
    let measured =
        costs::measure(&machine, instance, true).map_err(|reason| Failure::unable("warmcore::measure", reason))?;
    if let Some(reason) = measured.without_idle_exit {
        console.warn(&format!("costs.idle_exit_ns stays as it was, not measured: {reason}"));
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let note = format!("on this computer, Linux {}", release.trim());
    warmcore_topology::with_measured_values(machine, &measured.values, &note)
        .map_err(|error| Failure::failed("warmcore::measure", error))
}

/// A machine, with what is odd about it said on standard error.
fn read(text: &str, console: &Console) -> Result<Machine, Failure> {
    let machine = load::machine(text)?.value;
    load::warn_of_machine(&machine, console);
    Ok(machine)
}

/// Prints the presets.
pub fn list(console: &Console) -> Result<(), Failure> {
    let broken = |error| Failure::failed("warmcore::machine", error);
    let mut machines = Vec::new();
    for preset in warmcore_topology::presets() {
        let machine = warmcore_topology::resolve(&preset.name).map_err(broken)?;
        machines.push(PresetEntry {
            name: preset.name,
            aliases: preset.aliases,
            summary: preset.summary,
            cpus: machine.cpu_count(),
            cores: machine.core_count(),
            llcs: machine.llc_count(),
            nodes: machine.node_count(),
            sockets: machine.socket_count(),
        });
    }
    if console.json() {
        return Ok(console.out(&as_document("warmcore-machines-1", &BTreeMap::from([("machines", machines)])))?);
    }
    let mut table = Table::new(["machine", ">sockets", ">nodes", ">LLCs", ">cores", ">CPUs", "what it is"]);
    for entry in machines {
        table.row([
            entry.name,
            entry.sockets.to_string(),
            entry.nodes.to_string(),
            entry.llcs.to_string(),
            entry.cores.to_string(),
            entry.cpus.to_string(),
            entry.summary,
        ]);
    }
    Ok(console.out(&console.table(&table))?)
}

fn show(machine: &Machine, toml: bool, console: &Console) -> Result<(), Failure> {
    let text = match (console.json(), toml) {
        (true, _) => as_document("warmcore-machine-1", &MachineDocument::of(machine)),
        (_, true) => warmcore_topology::to_toml(machine),
        _ => match console.columns() {
            Some(columns) => warmcore_topology::render_within(machine, columns),
            None => warmcore_topology::render(machine),
        },
    };
    Ok(console.out(&text)?)
}

fn synthetic(machine: &Machine, console: &Console) -> Result<String, Failure> {
    let text = warmcore_topology::to_synthetic(machine).map_err(inexpressible)?;
    for loss in warmcore_topology::synthetic_losses(machine) {
        console.warn(&format!("a synthetic string does not keep {loss}"));
    }
    Ok(text + "\n")
}

fn inexpressible(error: warmcore_topology::Error) -> Failure {
    Failure::usage("warmcore::machine", error)
}

fn snapshot(machine: &str, out: Option<&Path>, console: &Console) -> Result<(), Failure> {
    let usage = |message: String| Failure::usage("warmcore::machine", message);
    let root = if machine == THIS_COMPUTER { Path::new("/") } else { Path::new(machine) };
    if !root.is_dir() {
        return Err(usage(format!("`{machine}` is not a tree of /sys that can be copied"))
            .help("snapshots are of `host`, or of a directory"));
    }
    let directory = out.filter(|path| *path != Path::new("-"));
    let directory = directory.ok_or_else(|| usage("a snapshot is a directory".into()).help("name one with --out"))?;
    if directory.exists() {
        return Err(Failure::usage("warmcore::directory", format!("{} exists already", directory.display()))
            .help("name a directory that does not exist yet"));
    }
    let files = warmcore_topology::write_sysfs_snapshot(root, directory).map_err(|error| match &error {
        warmcore_topology::Error::Read { .. } => Failure::unable("warmcore::machine", error),
        _ => Failure::failed("warmcore::machine", error),
    })?;
    console.note(&format!("{files} files written to {}", directory.display()));
    if console.json() { print_written(&[WrittenFile::new("snapshot", directory)], None, console) } else { Ok(()) }
}
