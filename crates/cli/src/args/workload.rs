//! What can be typed about workloads.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum, ValueHint};

use super::values::parse_time;

/// Verbs of `workload`.
#[derive(Subcommand, Debug)]
pub enum WorkloadCommand {
    /// Show a workload: tasks, programs, objects, and the parts that are not modelled
    Show {
        /// File in rt-app's format, `-`, or a generator with its flags
        workload: String,
        /// File with memory profiles that the workload may name
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        profiles: Option<PathBuf>,
    },
    /// Write a workload in rt-app's format
    Convert {
        /// File in rt-app's format, `-`, or a generator with its flags
        workload: String,
        /// File with memory profiles that the workload may name; those it names are written with it
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        profiles: Option<PathBuf>,
        /// File to write; standard output if not given or `-`
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
    },
    /// Make a memory profile from counters: misses at several cache sizes, stalls, lines taken by other threads
    Fit {
        /// Counters (TOML); `docs/models/memory.md` shows the form
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        counters: PathBuf,
        /// TOML with the fitted points, or JSON for the key `warmcore` of a workload file; --profiles takes both
        #[arg(long, value_name = "FORMAT", default_value = "toml")]
        to: ProfileFormat,
        /// File to write; standard output if not given or `-`
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
    },
    /// Run a workload with real threads on this computer
    Run {
        /// File in rt-app's format, `-`, or a generator with its flags
        workload: String,
        /// End the run after this time, such as 5s
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        max_time: Option<u64>,
        /// Print what the place `host` reads
        #[arg(long, hide = true)]
        report: bool,
    },
}

/// Formats of memory profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ProfileFormat {
    /// With measured and fitted points as comments
    Toml,
    /// For a workload file
    Json,
}
