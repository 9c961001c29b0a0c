//! Figures of a machine that the memory model uses: caches, frequencies, latencies, bandwidths; and origins, which
//! say of any figure where it comes from.
//!
//! Times below a nanosecond matter for caches, so those are kept in picoseconds. Bandwidths are in MB/s, 10^6 bytes
//! per second. Everything is an integer, so that equal files give equal machines.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::{CpuSet, PerRelation};

/// What a cache holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// Associativity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ways {
    /// Not known.
    Unknown,
    /// Any line can be anywhere.
    Full,
    /// That many lines per set; at least 1.
    Count(u32),
}

/// Whether a cache holds what smaller caches hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// Not known.
    #[serde(skip)]
    Unknown,
    /// Everything in a smaller cache is also here.
    Inclusive,
    /// Nothing in a smaller cache is also here: a victim cache.
    Exclusive,
    /// Neither is guaranteed.
    NonInclusive,
}

/// One cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cache {
    /// 1, 2, 3 or 4.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Capacity in bytes; 0 when not known.
    pub size_bytes: u64,
    /// Line size in bytes; 0 when not known.
    pub line_bytes: u32,
    /// Associativity.
    pub ways: Ways,
    /// Inclusion of smaller caches.
    pub inclusion: Inclusion,
    /// Load-to-use latency in picoseconds, when known.
    pub latency_ps: Option<u64>,
    /// The CPUs that use it.
    pub cpus: CpuSet,
}

impl Cache {
    /// `L1d`, `L1i`, `L2`, `L3`.
    pub fn name(&self) -> String {
        let suffix = match self.kind {
            CacheKind::Data => "d",
            CacheKind::Instruction => "i",
            CacheKind::Unified => "",
        };
        format!("L{}{suffix}", self.level)
    }

    /// The smallest part by which a cache can grow: one set, or a line where the ways are not known. At least 1.
    pub(crate) fn set_bytes(&self) -> u64 {
        let ways = match self.ways {
            Ways::Count(ways) => u64::from(ways),
            Ways::Full | Ways::Unknown => 1,
        };
        (ways * u64::from(self.line_bytes)).max(1)
    }
}

/// What an origin rests on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Basis {
    /// Measured by the authors of the machine file.
    Measured,
    /// Published elsewhere; the text begins with the source's tag.
    Source,
    /// Common knowledge, not looked up.
    Recalled,
    /// A choice without evidence.
    Assumed,
    /// Computed from other values of the machine.
    Derived,
    /// Read from an operating system's description of a machine.
    Read,
    /// Given by the user without a reason.
    Given,
}

impl Basis {
    const NAMED: [(Basis, &'static str); 6] = [
        (Basis::Measured, "measured"),
        (Basis::Recalled, "recalled"),
        (Basis::Assumed, "assumed"),
        (Basis::Derived, "derived"),
        (Basis::Read, "read"),
        (Basis::Given, "given"),
    ];
}

/// Where a value comes from. Written `assumed`, `recalled: 46 cycles` or `S11: pointer chase`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// What it rests on.
    pub basis: Basis,
    /// For [`Basis::Source`] the tags, separated by commas; empty otherwise.
    pub tags: Vec<String>,
    /// Explanation; may be empty.
    pub note: String,
    /// Published spread of the value (lowest, highest) in the unit of the value's field.
    pub spread: Option<(u64, u64)>,
}

impl Origin {
    /// An origin without tags.
    pub fn new(basis: Basis, note: impl Into<String>) -> Self {
        Self { basis, tags: Vec::new(), note: note.into(), spread: None }
    }

    /// The first word alone: `assumed`, `S8,S9`.
    pub fn short(&self) -> String {
        match Basis::NAMED.iter().find(|(basis, _)| *basis == self.basis) {
            Some((_, name)) => (*name).to_owned(),
            None => self.tags.join(","),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())?;
        if self.note.is_empty() { Ok(()) } else { write!(f, ": {}", self.note) }
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, note) = text.split_once(':').unwrap_or((text, ""));
        let (head, note) = (head.trim(), note.trim());
        if let Some((basis, _)) = Basis::NAMED.iter().find(|(_, name)| *name == head) {
            return Ok(Origin::new(*basis, note));
        }
        let tags: Vec<String> = head.split(',').map(|tag| tag.trim().to_owned()).collect();
        if tags.iter().any(|tag| tag.is_empty() || !tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')) {
            return Err(format!(
                "`{text}` is not an origin; write `measured`, `recalled`, `assumed`, `derived`, `read`, `given` or \
                 tags of [sources], then optionally a colon and a note"
            ));
        }
        Ok(Origin { basis: Basis::Source, tags, note: note.to_owned(), spread: None })
    }
}

/// Clock frequencies in MHz.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frequency {
    /// The guaranteed frequency.
    pub base_mhz: Option<u32>,
    /// The highest frequency of one core.
    pub max_mhz: Option<u32>,
    /// The frequency at which figures in nanoseconds were taken or shall be used.
    pub nominal_mhz: Option<u32>,
}

/// A bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bandwidth {
    /// Never the limit.
    Unlimited,
    /// In 10^6 bytes per second.
    MbPerS(u64),
}

/// Memory latencies and bandwidths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryFigures {
    /// Idle latency of a load from the CPU's own node.
    pub local_ns: Option<u64>,
    /// Idle latency from another node of the same socket.
    pub same_socket_ns: Option<u64>,
    /// Idle latency from another socket, one hop.
    pub other_socket_ns: Option<u64>,
    /// Idle latency from another socket, more hops.
    pub far_socket_ns: Option<u64>,
    /// Highest read bandwidth of one socket's memory.
    pub socket_read: Option<Bandwidth>,
    /// Highest bandwidth of one socket's memory when every line read is also written back (1:1).
    pub socket_mixed: Option<Bandwidth>,
    /// Bandwidth between two sockets, per direction.
    pub socket_link: Option<Bandwidth>,
    /// Bandwidth between two nodes of one socket, per direction.
    pub node_link: Option<Bandwidth>,
    /// Read bandwidth of the port that joins one LLC to the memory system.
    pub llc_port: Option<Bandwidth>,
    /// The same of one cluster of cores: what its cores together read from memory. Without it nothing below the LLC limits them.
    pub cluster_port: Option<Bandwidth>,
    /// The same of one core, with all of its hardware threads.
    pub core_port: Option<Bandwidth>,
    /// Bandwidth with which a single core reads its LLC.
    pub core_llc_read: Option<Bandwidth>,
    /// Bandwidth of a single thread reading local memory.
    pub thread_local_read: Option<Bandwidth>,
    /// Bandwidth of a single thread reading another socket's memory.
    pub thread_remote_read: Option<Bandwidth>,
    /// Loaded latency curves, most reads first.
    pub loaded_latency: Vec<LoadedLatencyCurve>,
}

/// How memory latency grows with load, from one measured platform at one share of reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedLatencyCurve {
    /// Name, unique in its file.
    pub name: String,
    /// Share of reads in percent.
    pub read_percent: u32,
    /// The highest bandwidth measured, in MB/s: utilisation 1000.
    pub max_mb_per_s: u64,
    /// Points (utilisation in 1/1000 of the highest bandwidth, latency in 1/1000 of the idle latency), ascending.
    pub points: Vec<(u32, u32)>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Everything a machine's file may say about speed apart from [`Costs`](crate::Costs).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Performance {
    /// Clock frequencies.
    pub frequency: Frequency,
    /// Memory.
    pub memory: MemoryFigures,
    /// One-way hand-off of a modified line between two CPUs; missing entries were neither measured nor assumed.
    pub core_to_core_ns: PerRelation<Option<u64>>,
    /// Further core-to-core tables of the same machine: other tools, or bounds for a sensitivity study.
    pub core_to_core_variants: Vec<CoreToCoreVariant>,
}

/// A second core-to-core table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreToCoreVariant {
    /// Name, unique in the machine.
    pub name: String,
    /// One-way hand-off of a modified line, as in [`Performance::core_to_core_ns`].
    pub latency_ns: PerRelation<Option<u64>>,
    /// Where it comes from.
    pub origin: Origin,
}
