//! Arguments of the verb that runs the same on many machines.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use warmcore_lab::experiment::MOST_TRIALS;

use super::values::directory;
use super::{MAX_SEED, MemoryOptions, ProfileArguments, RunArguments, parse_percent, whole_number};

/// Arguments of `sweep`.
#[derive(Args, Debug)]
pub struct SweepArguments {
    /// Machines, separated by commas; `several-llcs` means every preset with more than one LLC
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub machines: Vec<String>,
    /// A workload; may be repeated. @FILE means the lines of a file
    #[arg(short, long, value_name = "WORKLOAD", required = true)]
    pub workloads: Vec<String>,
    /// Memory profiles.
    #[command(flatten)]
    pub profiles: ProfileArguments,
    /// Schedulers, separated by commas, tunables as in `compare`; the first one is the baseline
    #[arg(short, long, value_name = "LIST", required = true)]
    pub schedulers: Vec<String>,
    /// Runs of each scheduler in each cell; from 8 on there are 95 % intervals
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_TRIALS)))]
    pub trials: u32,
    /// Largest difference that does not matter, in per cent, as in `compare`
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_percent)]
    pub margin: f64,
    /// How memory is modelled.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// Settings of each run.
    #[command(flatten)]
    pub run: RunArguments,
    /// Ask an oracle too, as in `compare`: columns for the possible gain of placement, and each scheduler's part of it
    #[arg(long)]
    pub headroom: bool,
    /// Seed from which the seeds of all simulations follow
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole_number::<u64, MAX_SEED>)]
    pub seed: u64,
    /// Directory for the result and a run directory of every experiment; finished experiments do not run again
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
}
