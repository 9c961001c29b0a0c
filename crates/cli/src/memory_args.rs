//! What can be typed after `warmcore memory`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueHint};
use warmcore_memory::exact::{LlcFill, PagingSpec, Protocol};
use warmcore_memory::{Replacement, exact::cache::SetIndex};
use warmcore_topology::settings::{pairs, refusal, word};
use warmcore_workload::parse_duration;

use crate::args::whole_number;

/// Arguments of `memory`.
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
    /// How caches work, with commas between settings: fill=RULE, how lines get into the last-level cache (inclusive, fill-both, victim, exclusive; the machine's if
    /// not given), llc=RULE and private=RULE, replacement there and in the private caches (lru, tree-plru, srrip, random; lru if not given), sets=hashed or
    /// sets=address, which needs a power of two of sets, protocol=mesi (the default), moesi or mesif between last-level caches
    #[arg(long, value_name = "SETTINGS", default_value = "", hide_default_value = true)]
    pub caches: CacheRules,
    /// Pages: page=SIZE, such as page=2MiB, is the size. With a trace it is 4KiB if not given: neighbouring lines stay neighbours within a page.
    /// With tasks, page tables translate their addresses: each page that is touched has a frame, and walks go through the caches. Then tlb=ENTRIES
    /// sets the size of each core's translation buffer, a power of two (none if not given: every touch walks), and ram=SIZE the memory of each
    /// node, in place of the machine's
    #[arg(long, value_name = "SETTINGS")]
    pub pages: Option<PagingSpec>,
    /// Accept accesses of a trace that are not aligned to their size
    #[arg(long, requires = "trace")]
    pub allow_unaligned: bool,
    /// Seed of the tasks' touches
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole_number::<u64, { u64::MAX }>)]
    pub seed: u64,
}

/// What `validate` compares besides the two places.
#[derive(Subcommand, Debug)]
pub enum ValidateCommand {
    /// The two memory models against each other (experiments X1 to X14) and against measurements of hardware (P1, P2,
    /// P11), each demand with its bound
    Memory(ValidateMemoryArguments),
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
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole_number::<u64, { (1 << 20) - 1 }>)]
    pub seed: u64,
    /// Few scenarios, and short ones
    #[arg(long)]
    pub quick: bool,
    /// Write every value of both models to a file (CSV), which must not exist yet
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

/// How caches work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheRules {
    /// How lines get into the last-level cache; the machine's way if `None`.
    pub fill: Option<LlcFill>,
    /// Replacement in the last-level cache.
    pub llc: Replacement,
    /// Replacement in the private caches.
    pub private: Replacement,
    /// How lines are spread over sets.
    pub sets: SetIndex,
    /// Between last-level caches.
    pub protocol: Protocol,
}

const FILLS: [(&str, LlcFill); 4] = [
    ("inclusive", LlcFill::Inclusive),
    ("fill-both", LlcFill::FillBoth),
    ("victim", LlcFill::Victim),
    ("exclusive", LlcFill::Exclusive),
];
const REPLACEMENTS: [(&str, Replacement); 4] = [
    ("lru", Replacement::Lru),
    ("tree-plru", Replacement::TreePlru),
    ("srrip", Replacement::Srrip),
    ("random", Replacement::Random),
];
const SETS: [(&str, SetIndex); 2] = [("hashed", SetIndex::Hashed), ("address", SetIndex::LowBits)];
const PROTOCOLS: [(&str, Protocol); 3] =
    [("mesi", Protocol::Mesi), ("moesi", Protocol::Moesi), ("mesif", Protocol::Mesif)];

impl FromStr for CacheRules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Self {
            fill: None,
            llc: Replacement::Lru,
            private: Replacement::Lru,
            sets: SetIndex::Hashed,
            protocol: Protocol::Mesi,
        };
        if text.is_empty() {
            return Ok(rules);
        }
        for (key, value) in pairs(text, &[])? {
            match (key, value) {
                ("fill", Some(rule)) => rules.fill = Some(word(key, rule, &FILLS)?),
                ("llc", Some(rule)) => rules.llc = word(key, rule, &REPLACEMENTS)?,
                ("private", Some(rule)) => rules.private = word(key, rule, &REPLACEMENTS)?,
                ("sets", Some(rule)) => rules.sets = word(key, rule, &SETS)?,
                ("protocol", Some(rule)) => rules.protocol = word(key, rule, &PROTOCOLS)?,
                (key, value) => return Err(refusal("a cache", key, value, &KEYS)),
            }
        }
        Ok(rules)
    }
}

const KEYS: [&str; 5] = ["fill", "llc", "private", "sets", "protocol"];
