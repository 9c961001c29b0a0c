//! `warmcore memory`: profiles and address traces on the exact level.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::Serialize;
use warmcore_memory::exact::address_trace::{TraceError, TraceReader};
use warmcore_memory::exact::{
    ClassCounters, DEFAULT_PAGE_BYTES, ExactError, FS_PER_NS, NodeTraffic, Options, PagingSpec, Replay, Simulation,
    TaskCounters, TaskSpec,
};
use warmcore_memory::{Profile, library};
use warmcore_topology::{CpuId, CpuSet, Machine, Relation, parse_cpu_list};
use warmcore_trace::TimeShare;

use crate::commands::as_document;
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::load;
use crate::memory_args::MemoryRunArguments;
use crate::units;

const CODE: &str = "warmcore::memory";

#[derive(Serialize)]
struct ProfileEntry {
    name: &'static str,
    summary: &'static str,
    origin: &'static str,
}

/// Prints the profiles.
pub fn profiles(console: &Console) -> Result<(), Failure> {
    let entry = |profile: &'static Profile| ProfileEntry {
        name: &profile.name,
        summary: &profile.summary,
        origin: &profile.origin,
    };
    let profiles: Vec<ProfileEntry> = library::profiles().iter().map(entry).collect();
    if console.json() {
        let content = BTreeMap::from([("profiles", profiles)]);
        return Ok(console.out(&as_document("warmcore-memory-profiles-1", &content))?);
    }
    let mut table = Table::new(["profile", "what it is", "origin"]);
    profiles.iter().for_each(|entry| table.row([entry.name, entry.summary, entry.origin].map(str::to_owned)));
    Ok(console.out(&console.table(&table))?)
}

/// The document of `memory --json`.
#[derive(Serialize)]
struct MemoryDocument {
    machine: String,
    seed: u64,
    sample: u64,
    simulated_ns: Option<u64>,
    rows: Vec<MemoryRow>,
    nodes: Vec<NodeCounts>,
    notes: Vec<String>,
}

/// What one task or thread did.
#[derive(Serialize)]
struct MemoryRow {
    name: String,
    cpu: u32,
    instructions: Option<f64>,
    cycles_per_instruction: Option<f64>,
    accesses: u64,
    split_accesses: Option<u64>,
    instruction_l1_misses: Option<u64>,
    touches: u64,
    l1_misses: u64,
    l2_hits: u64,
    llc_hits: u64,
    same_llc_transfers: u64,
    cross_llc_reads: u64,
    cross_llc_rfos: u64,
    transfers_by_relation: Vec<Transfers>,
    upgrades: u64,
    dram_local: u64,
    dram_remote: u64,
    /// What the time went to; not of a trace, which has none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    time_ns: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_tables: Option<TranslationCounts>,
}

/// What translating addresses took.
#[derive(Serialize)]
struct TranslationCounts {
    walks: u64,
    faults: u64,
    accesses: u64,
    l1_misses: u64,
    l2_hits: u64,
    llc_hits: u64,
    /// From memory, or from another LLC or core.
    beyond_llc: u64,
}

impl TranslationCounts {
    fn new(counters: &TaskCounters) -> Self {
        let tables = &counters.tables;
        Self {
            walks: counters.page_walks,
            faults: counters.page_faults,
            accesses: tables.touches,
            l1_misses: tables.l1_misses,
            l2_hits: tables.l2_hits,
            llc_hits: tables.llc_hits,
            beyond_llc: tables.l2_misses() - tables.llc_hits,
        }
    }
}

#[derive(Serialize)]
struct Transfers {
    relation: &'static str,
    reads: u64,
    rfos: u64,
}

#[derive(Serialize)]
struct NodeCounts {
    node: u32,
    lines_read: u64,
    lines_written: u64,
}

impl MemoryRow {
    fn new(name: String, cpu: u32, events: &ClassCounters) -> Self {
        let transfers = |relation: Relation| Transfers {
            relation: relation.name(),
            reads: events.remote_reads[relation],
            rfos: events.remote_rfos[relation],
        };
        Self {
            name,
            cpu,
            instructions: None,
            cycles_per_instruction: None,
            accesses: events.touches,
            split_accesses: None,
            instruction_l1_misses: None,
            touches: events.touches,
            l1_misses: events.l1_misses,
            l2_hits: events.l2_hits,
            llc_hits: events.llc_hits,
            same_llc_transfers: events.same_llc_transfers,
            cross_llc_reads: events.cross_reads(),
            cross_llc_rfos: events.cross_rfos(),
            transfers_by_relation: Relation::ALL
                .into_iter()
                .map(transfers)
                .filter(|transfers| transfers.reads + transfers.rfos > 0)
                .collect(),
            upgrades: events.upgrades,
            dram_local: events.dram_local,
            dram_remote: events.dram_remote,
            time_ns: BTreeMap::new(),
            page_tables: None,
        }
    }
}

pub fn run(arguments: &MemoryRunArguments, console: &Console) -> Result<(), Failure> {
    let machine = load::machine(&arguments.machine)?.value;
    let options = options(arguments);
    let mut document = MemoryDocument {
        machine: machine.name().to_owned(),
        seed: arguments.seed,
        sample: 1 << options.sampling_shift,
        simulated_ns: None,
        rows: Vec::new(),
        nodes: Vec::new(),
        notes: Vec::new(),
    };
    match &arguments.trace {
        Some(path) => replay(arguments, path, &machine, &options, &mut document)?,
        None => simulate(arguments, (&machine, console.jobs()), options, &mut document)?,
    }
    document.notes.iter().for_each(|note| console.warn(note));
    let text = match console.json() {
        true => as_document("warmcore-memory-run-1", &document),
        false => text(&document, console),
    };
    Ok(console.out_words(&text)?)
}

fn options(arguments: &MemoryRunArguments) -> Options {
    Options {
        paging: arguments.pages.filter(|_| arguments.trace.is_none()),
        llc_fill: arguments.caches.fill,
        llc_replacement: arguments.caches.llc,
        private_replacement: arguments.caches.private,
        index: arguments.caches.sets,
        protocol: arguments.caches.protocol,
        sampling_shift: match arguments.sample.as_str() {
            "16" => 4,
            "64" => 6,
            _ => 0,
        },
        seed: arguments.seed,
        ..Options::default()
    }
}

fn failure(error: &ExactError) -> Failure {
    Failure::usage(CODE, error)
}

/// CPUs of a kernel list, by the operating system's numbers: a task or thread for each, so none twice.
fn cpus(list: &str, machine: &Machine) -> Result<Vec<CpuId>, Failure> {
    if let Some(twice) = named_twice(list) {
        return Err(Failure::usage(CODE, format!("`{list}` names CPU {twice} twice")).help("each CPU has one task"));
    }
    let set = CpuSet::parse_list(list).map_err(|error| Failure::usage(CODE, error))?;
    set.iter()
        .map(|cpu| {
            machine.cpu_by_os_index(cpu.0).ok_or_else(|| {
                let message = format!("machine `{}` has no CPU {}", machine.name(), cpu.0);
                Failure::usage(CODE, message).help("`warmcore machine show` draws it with its CPUs")
            })
        })
        .collect()
}

/// The first number that a kernel list has twice.
fn named_twice(list: &str) -> Option<u32> {
    let mut seen = BTreeSet::new();
    let parts = list.split(',').filter_map(|part| parse_cpu_list(part).ok());
    parts.flatten().find(|number| !seen.insert(*number))
}

fn simulate(
    arguments: &MemoryRunArguments,
    (machine, jobs): (&Machine, usize),
    options: Options,
    document: &mut MemoryDocument,
) -> Result<(), Failure> {
    let own = load::profiles(arguments.profiles.as_deref())?;
    let (mut specs, mut places) = (Vec::new(), Vec::new());
    for (process, text) in arguments.task.iter().enumerate() {
        let Some((name, list)) = text.split_once('@') else {
            return Err(
                Failure::usage(CODE, format!("`{text}` is not PROFILE@CPUS")).help("write for example `perlbench@0-3`")
            );
        };
        let found = own.iter().chain(library::profiles()).find(|profile| profile.name == name);
        let profile = found.ok_or_else(|| {
            Failure::usage(CODE, format!("there is no memory profile `{name}`"))
                .help("`warmcore list profiles` lists those of this program; --profiles FILE adds others")
        })?;
        let cpus = cpus(list, machine)?;
        if cpus.is_empty() {
            return Err(Failure::usage(CODE, format!("`{text}` has no members: its list of CPUs is empty")));
        }
        for cpu in cpus {
            let data_group = Some(process.to_string());
            specs.push(TaskSpec { profile: profile.clone(), process: process as u32, data_group });
            places.push((name.to_owned(), cpu));
        }
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .build()
        .map_err(|error| Failure::failed(CODE, format!("cannot start threads: {error}")))?;
    let mut simulation = Simulation::new(machine, options, specs).map_err(|error| failure(&error))?;
    for (task, (_, cpu)) in places.iter().enumerate() {
        simulation.place(task, Some(*cpu)).map_err(|error| failure(&error))?;
    }
    let all = |simulation: &Simulation| -> Vec<TaskCounters> {
        (0..simulation.task_count()).map(|task| simulation.counters(task)).collect()
    };
    let failed = |simulation: &Simulation| simulation.exhausted().map(failure).map_or(Ok(()), Err);
    pool.install(|| simulation.run_for(arguments.warm_up));
    failed(&simulation)?;
    let (before, traffic_before) = (all(&simulation), simulation.node_traffic());
    pool.install(|| simulation.run_for(arguments.time));
    failed(&simulation)?;
    document.simulated_ns = Some(arguments.time);
    let frequency = simulation.hierarchy().frequency_ghz;
    for (task, (name, cpu)) in places.into_iter().enumerate() {
        let counters = simulation.counters(task).since(&before[task]);
        let row = MemoryRow::new(name, machine.os_index(cpu), &counters.total());
        let (instructions, cycles) = (counters.instructions, counters.cycles_per_instruction(frequency));
        let shares =
            TimeShare::ALL.map(|share| (share.name(), counters.share_fs[share as usize] as f64 / FS_PER_NS as f64));
        document.rows.push(MemoryRow {
            instructions: Some(instructions),
            cycles_per_instruction: Some(cycles),
            time_ns: shares.into_iter().filter(|(_, ns)| *ns > 0.0).collect(),
            page_tables: options.paging.map(|_| TranslationCounts::new(&counters)),
            ..row
        });
    }
    let traffic = simulation.node_traffic();
    let traffic = traffic
        .iter()
        .zip(&traffic_before)
        .map(|(now, before)| NodeTraffic { reads: now.reads - before.reads, writes: now.writes - before.writes });
    document.nodes = nodes(machine, traffic);
    document.notes.extend(simulation.hierarchy().assumed.iter().map(|assumed| format!("assumed {assumed}")));
    Ok(())
}

fn nodes(machine: &Machine, traffic: impl Iterator<Item = NodeTraffic>) -> Vec<NodeCounts> {
    let node = |(id, traffic): (warmcore_topology::NodeId, NodeTraffic)| NodeCounts {
        node: machine.node_os_index(id),
        lines_read: traffic.reads,
        lines_written: traffic.writes,
    };
    machine.nodes().zip(traffic).map(node).collect()
}

fn replay(
    arguments: &MemoryRunArguments,
    path: &Path,
    machine: &Machine,
    options: &Options,
    document: &mut MemoryDocument,
) -> Result<(), Failure> {
    let pages = arguments.pages.unwrap_or(PagingSpec { page_bytes: DEFAULT_PAGE_BYTES, ..PagingSpec::default() });
    if (PagingSpec { page_bytes: pages.page_bytes, ..PagingSpec::default() }) != pages {
        return Err(Failure::usage(
            CODE,
            "--pages: of a trace's addresses only page=SIZE is asked: they are not translated",
        )
        .help("leave out tlb and ram, or run tasks with --task"));
    }
    let page_bytes = pages.page_bytes;
    let cpus = cpus(&arguments.cpus, machine)?;
    let mut replay = Replay::new(machine, options, &cpus, page_bytes).map_err(|error| failure(&error))?;
    let bad_trace = |error: TraceError| {
        let failure = Failure::usage(CODE, format!("{}: {error}", path.display()));
        match error {
            TraceError::Record { reason, .. } if reason.contains("aligned") => {
                failure.help("--allow-unaligned accepts such accesses and touches every line they lie in")
            }
            TraceError::UnknownFormat => failure.help("docs/how-to/caches.md describes the formats"),
            _ => failure,
        }
    };
    let input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let file = warmcore_lab::files::open(path).map_err(|error| Failure::cannot_read(path, &error))?;
        Box::new(BufReader::with_capacity(1 << 18, file))
    };
    let mut reader = TraceReader::new(input, arguments.allow_unaligned).map_err(bad_trace)?;
    while let Some(record) = reader.next_record().map_err(bad_trace)? {
        replay.access(record).map_err(|error| {
            let failure = failure(&error);
            match error {
                ExactError::NoThread { .. } => failure.help("name a CPU for every thread with --cpus"),
                _ => failure,
            }
        })?;
    }
    let mut ignored = 0;
    for (thread, (counters, cpu)) in replay.counters().iter().zip(&cpus).enumerate() {
        ignored += counters.instructions_ignored;
        let row = MemoryRow::new(format!("thread {thread}"), machine.os_index(*cpu), &counters.events);
        document.rows.push(MemoryRow {
            accesses: counters.accesses + counters.instructions,
            split_accesses: Some(counters.split),
            instruction_l1_misses: (counters.instructions > 0).then_some(counters.instruction_misses),
            ..row
        });
    }
    document.nodes = nodes(machine, replay.node_traffic().into_iter());
    if ignored > 0 {
        let note = format!("{ignored} instruction fetches are left out: the machine describes no L1 for instructions");
        document.notes.push(note);
    }
    Ok(())
}

fn text(document: &MemoryDocument, console: &Console) -> String {
    let with_instructions = document.rows.iter().any(|row| row.instructions.is_some());
    let unit = if with_instructions { ">accesses/ki" } else { ">accesses" };
    let mut table = Table::new([
        "task",
        ">cpu",
        ">CPI",
        unit,
        ">L1 miss",
        ">L2 hit",
        ">LLC hit",
        ">same LLC",
        ">other LLC",
        ">RFO",
        ">local",
        ">remote",
    ]);
    for row in &document.rows {
        // Rates where there is an instruction count, numbers otherwise.
        let number = |events: u64| match row.instructions {
            Some(instructions) => units::three_digits(1e3 * events as f64 / instructions),
            None => events.to_string(),
        };
        table.row([
            row.name.clone(),
            row.cpu.to_string(),
            row.cycles_per_instruction.map_or_else(|| "-".to_owned(), units::three_digits),
            number(row.accesses),
            number(row.l1_misses),
            number(row.l2_hits),
            number(row.llc_hits),
            number(row.same_llc_transfers),
            number(row.cross_llc_reads),
            number(row.cross_llc_rfos),
            number(row.dram_local),
            number(row.dram_remote),
        ]);
    }
    let mut text = console.table(&table);
    let classes = Relation::ALL.into_iter().filter_map(|relation| {
        let of = |row: &MemoryRow| {
            let found = row.transfers_by_relation.iter().find(|transfers| transfers.relation == relation.name());
            found.map_or((0, 0), |transfers| (transfers.reads, transfers.rfos))
        };
        let sum = document.rows.iter().map(of).fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
        (sum != (0, 0)).then(|| format!("{relation}: {} read, {} taken to write", sum.0, sum.1))
    });
    let classes: Vec<String> = classes.collect();
    if !classes.is_empty() {
        text.push_str(&format!("\nlines from other LLCs: {}\n", classes.join("; ")));
    }
    for row in &document.rows {
        let Some(tables) = &row.page_tables else { continue };
        let spent_ns: f64 = row.time_ns.values().sum();
        let walking_ns = row.time_ns.get(TimeShare::PageWalks.name()).copied().unwrap_or(0.0);
        text.push_str(&format!(
            "page tables of {} on CPU {}: {} walks, {} faults, {} accesses of which {} missed the L1; {:.1} % of its time\n",
            row.name,
            row.cpu,
            tables.walks,
            tables.faults,
            tables.accesses,
            tables.l1_misses,
            100.0 * walking_ns / spent_ns.max(1.0)
        ));
    }
    let nodes = document.nodes.iter().filter(|node| node.lines_read + node.lines_written > 0);
    for node in nodes {
        text.push_str(&format!(
            "memory of node {}: {} lines read, {} written back\n",
            node.node, node.lines_read, node.lines_written
        ));
    }
    text
}
