//! From a machine to empty caches and directories.

use warmcore_topology::{CpuId, LlcId, Machine, Relation};

use super::block::Scratch;
use super::cache::{Cache, MAX_WAYS, SetIndex, Shape};
use super::counters::NodeTraffic;
use super::domain::{Core, Domain, Entry};
use super::error::ExactError;
use super::first_level::FirstLevel;
use super::home::Home;
use super::options::{L2Fill, Options};
use super::simulation::FS_PER_NS;
use super::task::MemoryLatency;
use crate::curves::Replacement;
use crate::hierarchy::{CacheShape, Hierarchy};

/// Where a CPU is in the simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) domain: usize,
    pub(crate) core: usize,
    /// Speed relative to the fastest CPU.
    pub(crate) capacity: f64,
    /// Clock, 1 = the machine's nominal one.
    pub(crate) clock: f64,
}

/// Tell the hashes of the levels apart.
const SALTS: [u32; 3] = [0x51, 0xA3, 0xE7];
/// That of the L1 for instructions.
const INSTRUCTION_SALT: u32 = 0x1C;

/// Lines of all caches together that the exact level has room for: tags of some 4 GiB.
const MAX_CACHE_LINES: u64 = 1 << 30;

/// Ways of a translation buffer, or its entries if they are fewer.
const TLB_WAYS: u32 = 8;

/// Most domains: bits of a home entry.
const MAX_DOMAINS: usize = 64;

/// The domains of a machine, by LLC, and the seat of each CPU.
pub(crate) fn domains(
    machine: &Machine,
    hierarchy: &Hierarchy,
    options: &Options,
    coherent_lines: usize,
) -> Result<(Vec<Domain>, Vec<Seat>), ExactError> {
    if machine.llc_count() > MAX_DOMAINS {
        return Err(ExactError::TooManyDomains(machine.llc_count()));
    }
    for (index, l2) in hierarchy.l2_of_core.iter().enumerate() {
        if l2.is_some() && hierarchy.l2_of_core[..index].contains(l2) {
            let reason = "several cores share it, which the exact level does not simulate".to_owned();
            return Err(ExactError::Cache { cache: "L2".to_owned(), reason });
        }
    }
    let lines = hierarchy.llc.iter().chain(&hierarchy.l2).chain(&hierarchy.l1).map(|shape| shape.lines).sum::<u64>();
    if lines >> options.sampling_shift > MAX_CACHE_LINES {
        let room = (MAX_CACHE_LINES * u64::from(hierarchy.line_bytes)) >> 30;
        let reason = format!(
            "all caches have {lines} lines, and the exact level has room for {MAX_CACHE_LINES}, which is {room} GiB; state \
             smaller caches, or sample lines"
        );
        return Err(ExactError::Cache { cache: "caches".to_owned(), reason });
    }
    let transfer_fs = (hierarchy.transfer_ns[Relation::SameLlc] * FS_PER_NS as f64).round() as u64;
    let mut domains: Vec<Domain> = Vec::new();
    for llc in machine.llcs() {
        let shape = shape(&hierarchy.llc[llc.index()], "LLC", options.llc_replacement, options)?;
        domains.push(Domain {
            cores: Vec::new(),
            llc: Cache::new(shape, SALTS[2]),
            llc_fill: options.llc_fill(machine, llc),
            directory: vec![Entry::NONE; coherent_lines],
            sharer_shift: 0,
            tasks: Vec::new(),
            running: Vec::new(),
            requests: Vec::new(),
            traffic: vec![NodeTraffic::default(); machine.node_count()],
            memory: vec![MemoryLatency::default(); machine.node_count()],
            memory_row: 0,
            l1_ns: Vec::new(),
            l2_ns: Vec::new(),
            transfer_fs,
            node: machine.node_of_llc(llc).index(),
            scratch: Scratch::default(),
        });
    }
    let mut core_numbers: Vec<Option<usize>> = vec![None; machine.core_count()];
    let mut seats = Vec::new();
    for cpu in machine.cpus() {
        let (domain, global) = (machine.llc_of(cpu).index(), machine.core_of(cpu).index());
        let core = match core_numbers[global] {
            Some(core) => core,
            None => {
                let l2 = hierarchy.l2_of_core[global].map(|index| hierarchy.l2[index as usize]);
                let core = &mut domains[domain];
                let l2_fill = options.l2_fill(machine, cpu);
                core.cores.push(new_core(&hierarchy.l1[global], l2.as_ref(), l2_fill, options)?);
                core.running.push(Vec::new());
                core.l1_ns.push(hierarchy.l1[global].latency_ns);
                core.l2_ns.push(l2.map_or(0.0, |l2| l2.latency_ns));
                core_numbers[global] = Some(core.cores.len() - 1);
                core.cores.len() - 1
            }
        };
        seats.push(Seat { domain, core, capacity: f64::from(machine.capacity(cpu)) / 1024.0, clock: 1.0 });
    }
    for domain in &mut domains {
        domain.sharer_shift = domain.cores.len().div_ceil(64).next_power_of_two().trailing_zeros();
    }
    Ok((domains, seats))
}

fn new_core(l1: &CacheShape, l2: Option<&CacheShape>, l2_fill: L2Fill, options: &Options) -> Result<Core, ExactError> {
    let l1 = Cache::new(shape(l1, "L1d", options.private_replacement, options)?, SALTS[0]);
    let l2 = l2.map(|l2| shape(l2, "L2", options.private_replacement, options)).transpose()?;
    let tlb = options.paging.map_or(0, |paging| paging.tlb_entries);
    let tlb = (tlb > 0).then(|| {
        let ways = tlb.min(TLB_WAYS);
        Shape { sets: tlb / ways, ways, replacement: Replacement::Lru, index: SetIndex::LowBits }
    });
    Ok(Core {
        l1: FirstLevel { data: l1, code: None },
        l2: l2.map(|shape| Cache::new(shape, SALTS[1])),
        l2_fill,
        tlb: tlb.map(|shape| Cache::new(shape, 0)),
    })
}

/// Gives every core its L1 for instructions, for tasks that have code.
pub(crate) fn add_instruction_caches(
    machine: &Machine,
    hierarchy: &Hierarchy,
    options: &Options,
    seats: &[Seat],
    domains: &mut [Domain],
) -> Result<(), ExactError> {
    for (cpu, seat) in machine.cpus().zip(seats) {
        let Some(l1i) = hierarchy.l1i.get(machine.core_of(cpu).index()) else { continue };
        let shape = shape(l1i, "L1i", options.private_replacement, options)?;
        domains[seat.domain].cores[seat.core].l1.code = Some(Cache::new(shape, INSTRUCTION_SALT));
    }
    Ok(())
}

/// The simulated shape of a cache; with sampling it has as many sets less.
pub(crate) fn shape(
    cache: &CacheShape,
    name: &str,
    replacement: Replacement,
    options: &Options,
) -> Result<Shape, ExactError> {
    let fail = |reason: String| Err(ExactError::Cache { cache: name.to_owned(), reason });
    if cache.ways > MAX_WAYS {
        return fail(format!("{} ways; the exact level simulates at most {MAX_WAYS}", cache.ways));
    }
    let sets = (cache.sets >> options.sampling_shift).max(1);
    if options.index == SetIndex::LowBits && !sets.is_power_of_two() {
        return fail(format!("{sets} sets cannot be chosen by address bits; use hashed sets"));
    }
    let Ok(sets) = u32::try_from(sets) else { return fail(format!("{sets} sets are too many")) };
    Ok(Shape { sets, ways: cache.ways, replacement, index: options.index })
}

/// The home directory, without lines.
pub(crate) fn home(machine: &Machine, hierarchy: &Hierarchy, options: &Options) -> Home {
    let first = |llc: LlcId| machine.cpus_of_llc(llc).first().unwrap_or(CpuId(0));
    let pairs = || machine.llcs().flat_map(|a| machine.llcs().map(move |b| (a, b)));
    let relations: Vec<Relation> = pairs().map(|(a, b)| machine.relation(first(a), first(b))).collect();
    let ns = |relation: &Relation| (hierarchy.transfer_ns[*relation] * FS_PER_NS as f64).round() as u64;
    let transfer_fs = relations.iter().map(ns).collect();
    Home::new(options.protocol, relations, transfer_fs)
}
