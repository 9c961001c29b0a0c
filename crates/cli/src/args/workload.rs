//! What can be typed about workloads.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum, ValueHint};

use super::values::parse_time;

/// Verbs of `workload`.
#[derive(Subcommand, Debug)]
pub enum WorkloadCommand {
    /// List the generators with their flags
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show a workload: tasks, programs, objects, and what is not modelled
    Show {
        /// File in rt-app's format, `-`, or a generator with its flags
        workload: String,
        /// File with memory profiles that the workload may name
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        profiles: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
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
        /// Make input that is accepted but not modelled an error
        #[arg(long)]
        strict: bool,
        /// Print one JSON document: the file that was written, or the text
        #[arg(long)]
        json: bool,
    },
    /// Print an annotated workload file to begin with
    New {
        /// File to write; standard output if not given or `-`
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
        /// Print one JSON document: the file that was written, or the text
        #[arg(long)]
        json: bool,
    },
    /// Make a memory profile from counters: misses at several cache sizes, stalls, lines taken by other threads
    Fit {
        /// Counters (TOML); `docs/models/memory.md` shows the form
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        counters: PathBuf,
        /// TOML, with the points it was fitted to, or the JSON that stands under `warmcore` in a workload file; --profiles takes both
        #[arg(long, value_name = "FORMAT", default_value = "toml")]
        to: ProfileFormat,
        /// File to write; standard output if not given or `-`
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
        /// Print one JSON document: how the points were met, the notes, and the file that was written or the profile's text
        #[arg(long)]
        json: bool,
    },
    /// Run a workload with real threads on this computer
    Run {
        /// File in rt-app's format, `-`, or a generator with its flags
        workload: String,
        /// End the run after this time, such as 5s
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        max_time: Option<u64>,
        /// Make input that is accepted but not modelled an error
        #[arg(long)]
        strict: bool,
        /// Print one JSON document instead of text
        #[arg(long)]
        json: bool,
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
