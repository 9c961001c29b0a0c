//! What can be typed after `warmcore memory`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use warmcore_memory::exact::{LlcFill, Protocol};
use warmcore_memory::{Replacement, exact::cache::SetIndex};
use warmcore_workload::parse_duration;

/// Verbs of `memory`.
#[derive(Subcommand, Debug)]
pub enum MemoryCommand {
    /// Run memory profiles or an address trace through simulated caches, coherence and memory
    Run(Box<MemoryRunArguments>),
    /// List the memory profiles that come with this program
    Profiles {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `memory run`.
#[derive(Args, Debug)]
pub struct MemoryRunArguments {
    /// Machine: a preset, a file (TOML, hwloc XML), a /sys snapshot directory, a short form such as 2s1n2l8c2t, an
    /// hwloc synthetic string, or `host` for this computer
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: String,
    /// Tasks with a memory profile, one on each of the CPUs: perlbench@0,4-7. Tasks of one --task share what the
    /// profile shares; may be repeated
    #[arg(long, value_name = "PROFILE@CPUS", conflicts_with = "trace", required_unless_present = "trace")]
    pub task: Vec<String>,
    /// File with profiles, which go before those of this program
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profiles: Option<PathBuf>,
    /// Address trace: this program's text or binary format, or the output of
    /// `valgrind --tool=lackey --trace-mem=yes --log-file=FILE`; `-` for standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// CPUs of the trace's threads, in their order
    #[arg(long, value_name = "CPUS", requires = "trace", default_value = "0")]
    pub cpus: String,
    /// Simulated time that is counted
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5ms", conflicts_with = "trace")]
    pub time: u64,
    /// Simulated time before that, to warm the caches
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5ms", conflicts_with = "trace")]
    pub warm_up: u64,
    /// Simulate one line in this many: 1, 16 or 64
    #[arg(long, value_name = "COUNT", default_value = "1", conflicts_with = "trace", value_parser = ["1", "16", "64"])]
    pub sample: String,
    /// How lines get into the last-level cache; the machine's if not given
    #[arg(long, value_name = "RULE")]
    pub llc_fill: Option<FillChoice>,
    /// Replacement in the last-level cache
    #[arg(long, value_name = "RULE", default_value = "lru")]
    pub llc_replacement: ReplacementChoice,
    /// Replacement in the private caches
    #[arg(long, value_name = "RULE", default_value = "lru")]
    pub private_replacement: ReplacementChoice,
    /// How lines are spread over sets
    #[arg(long, value_name = "RULE", default_value = "hashed")]
    pub sets: SetsChoice,
    /// Coherence protocol between last-level caches
    #[arg(long, value_name = "NAME", default_value = "mesi")]
    pub protocol: ProtocolChoice,
    /// Size of a page, such as 4KiB or 2MiB. Of a trace, 4KiB if not given: neighbouring lines stay neighbours within a page. With tasks:
    /// translate their addresses by page tables, with a frame for each page that is touched and walks through the caches
    #[arg(long, value_name = "SIZE")]
    pub page_size: Option<String>,
    /// With tasks and --page-size: entries of each core's translation buffer, a power of two; 0 for none, so that every touch walks
    #[arg(long, value_name = "ENTRIES", default_value_t = 0, requires = "page_size", conflicts_with = "trace")]
    pub tlb: u32,
    /// With tasks and --page-size: memory of each node, such as 4GiB, instead of what the machine states
    #[arg(long, value_name = "SIZE", requires = "page_size", conflicts_with = "trace")]
    pub ram: Option<String>,
    /// Accept accesses of a trace that are not aligned to their size
    #[arg(long, requires = "trace")]
    pub allow_unaligned: bool,
    /// Seed of the tasks' touches
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Threads to simulate with. Does not change any result
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
}

/// What `validate` compares besides the two places.
#[derive(Subcommand, Debug)]
pub enum ValidateCommand {
    /// The two memory models against each other (experiments X1 to X14) and against measurements of hardware (P1, P2,
    /// P11), each demand with its bound
    Memory(ValidateMemoryArguments),
    /// BPF programs in a real kernel, by the definition of each instruction, and translated: they must do the same
    Programs(crate::args::ValidateProgramsArguments),
}

/// Arguments of `validate memory`.
#[derive(Args, Debug)]
pub struct ValidateMemoryArguments {
    /// Experiments, such as X5; all if none is named
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// Seeds of each experiment; every one must meet the demands
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: u16,
    /// The first seed; the others follow it
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 20))]
    pub seed: u64,
    /// Few scenarios, and short ones
    #[arg(long)]
    pub quick: bool,
    /// Write every value of both models to a file (CSV), which must not exist yet
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Threads to simulate with. Does not change any result
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Fill rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FillChoice {
    /// With the private caches, which lose what it evicts
    Inclusive,
    /// With the private caches, which keep what it evicts
    FillBoth,
    /// By what the private caches evict; a line fetched back stays
    Victim,
    /// By what the private caches evict; a line fetched back leaves
    Exclusive,
}

impl From<FillChoice> for LlcFill {
    fn from(choice: FillChoice) -> Self {
        match choice {
            FillChoice::Inclusive => Self::Inclusive,
            FillChoice::FillBoth => Self::FillBoth,
            FillChoice::Victim => Self::Victim,
            FillChoice::Exclusive => Self::Exclusive,
        }
    }
}

/// Replacement rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReplacementChoice {
    /// The least recently used line
    Lru,
    /// The line a tree of bits points to
    TreePlru,
    /// Re-reference interval prediction with two bits
    Srrip,
    /// Any line
    Random,
}

impl From<ReplacementChoice> for Replacement {
    fn from(choice: ReplacementChoice) -> Self {
        match choice {
            ReplacementChoice::Lru => Self::Lru,
            ReplacementChoice::TreePlru => Self::TreePlru,
            ReplacementChoice::Srrip => Self::Srrip,
            ReplacementChoice::Random => Self::Random,
        }
    }
}

/// Set indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SetsChoice {
    /// Independently of each other
    Hashed,
    /// By address bits; needs a power of two of sets
    Address,
}

impl From<SetsChoice> for SetIndex {
    fn from(choice: SetsChoice) -> Self {
        match choice {
            SetsChoice::Hashed => Self::Hashed,
            SetsChoice::Address => Self::LowBits,
        }
    }
}

/// Protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ProtocolChoice {
    /// Memory serves shared lines
    Mesi,
    /// A modified line's owner serves readers
    Moesi,
    /// The last reader serves clean lines
    Mesif,
}

impl From<ProtocolChoice> for Protocol {
    fn from(choice: ProtocolChoice) -> Self {
        match choice {
            ProtocolChoice::Mesi => Self::Mesi,
            ProtocolChoice::Moesi => Self::Moesi,
            ProtocolChoice::Mesif => Self::Mesif,
        }
    }
}
