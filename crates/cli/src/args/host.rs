//! What can be typed about experiments on this computer.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};
use warmcore_workload::parse_duration;

/// What to do.
#[derive(Subcommand, Debug)]
pub enum HostCommand {
    /// Say which of the kernel's interfaces are here, and what is lost without the others
    Doctor {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Undo what an experiment left that was killed
    Restore {
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command under several schedulers and on several sets of CPUs, in random order, and compare
    Compare(Box<HostCompareArguments>),
}

/// How CPUs are kept from a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SetCpus {
    /// Bind the command: nothing of this computer is changed
    Affinity,
    /// Take the others offline: also for the kernel's own threads; what was bound to them alone loses its binding for good
    Offline,
}

/// Whether something is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// Arguments of `host compare`.
#[derive(Args, Debug)]
pub struct HostCompareArguments {
    /// Command with its arguments, after `--`
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "workload", conflicts_with = "workload")]
    pub command: Vec<OsString>,
    /// Workload to run with real threads instead of a command
    #[arg(short, long, value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Schedulers, with commas between them; may be repeated: eevdf, cache-aware or `scx:PROGRAM ARGUMENTS`. The first one is the baseline
    #[arg(short, long, value_name = "LIST", default_value = "eevdf")]
    pub schedulers: Vec<String>,
    /// CPUs: all, one-socket, smt-off (one CPU of each core) or a list such as 0-3,8; can be given several times
    #[arg(long, value_name = "CPUS", default_value = "all")]
    pub cpus: Vec<String>,
    /// How other CPUs are kept from it
    #[arg(long, value_name = "MEANS", default_value = "affinity")]
    pub set_cpus: SetCpus,
    /// Frequency governors, with commas between them: each with every scheduler on every set of CPUs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub governor: Vec<String>,
    /// NUMA balancing: on, off, or both with a comma between them: each with all of the above
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub numa_balancing: Vec<Switch>,
    /// File of the kernel to write before every trial, such as /proc/sys/kernel/numa_balancing=0; can be given several times
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub settings: Vec<String>,
    /// Trials of each configuration
    #[arg(short, long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Runs of each configuration before that, which do not count
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub warm_up: u32,
    /// What is compared: elapsed, cpu (CPU time), after:TEXT, the number that follows this text in what the command prints, or
    /// regex:PATTERN, what its group matches there
    #[arg(long, value_name = "METRIC", default_value = "elapsed")]
    pub metric: String,
    /// More is better
    #[arg(long)]
    pub higher: bool,
    /// Longest time of a trial
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = parse_duration)]
    pub timeout: u64,
    /// Seed of the order of trials
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=super::MAX_SEED))]
    pub seed: u64,
    /// Say what would be changed, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}
