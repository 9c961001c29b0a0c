//! Arguments of the verbs that boot kernels.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use warmcore_workload::parse_duration;

use super::SimArguments;
use super::values::{directory, page};

/// How guests are made, as in every command that boots one.
#[derive(Args, Clone, Debug, Default)]
pub struct VmArguments {
    /// Kernel image (bzImage) to boot instead of Debian's newest suitable one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kernel: Option<PathBuf>,
    /// Configuration of that kernel; by default the file `config` beside it, or /boot/config-RELEASE
    #[arg(long, value_name = "FILE", requires = "kernel", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Count instructions instead of time: each takes 2^SHIFT ns, all CPUs together, and idle time is skipped, so that
    /// results do not depend on the load of this computer. 1 without a number, as the fidelity book has it; the default where
    /// virtualisation does not work
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, require_equals = true,
          value_parser = clap::value_parser!(u8).range(0..=10))]
    pub virtual_time: Option<Option<u8>>,
    /// Real time even when the guest is emulated; for shells, not for measurements
    #[arg(long, conflicts_with = "virtual_time")]
    pub real_time: bool,
    /// Longest time of a boot with all its runs, by this computer's clock
    #[arg(long, value_name = "TIME", default_value = "15min", value_parser = parse_duration)]
    pub boot_limit: u64,
    /// Trace buffer of a run, MiB per CPU, some 15 000 events each; what it cannot take is counted as lost
    #[arg(long, value_name = "MIB", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub trace_buffer: u32,
}

/// Arguments of `validate programs`.
#[derive(Args, Debug)]
pub struct ValidateProgramsArguments {
    /// Programs drawn at random, besides one for each form of instruction
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub programs: u32,
    /// What programs are drawn from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// How the guest is made.
    #[command(flatten)]
    pub vm: VmArguments,
}

/// Arguments of `validate`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ValidateArguments {
    /// What to compare instead of the simulator and a real kernel.
    #[command(subcommand)]
    pub other: Option<crate::memory_args::ValidateCommand>,
    /// The two places
    #[arg(long, value_name = "PLACES", default_value = "sim,vm", value_parser = ["sim,vm", "vm,sim"])]
    pub between: String,
    /// Experiments: files of the fidelity book, as in book/*.toml
    #[arg(required = true, value_name = "EXPERIMENT", value_hint = ValueHint::FilePath)]
    pub experiments: Vec<PathBuf>,
    /// Boots of each machine; every experiment runs once in each
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub boots: u16,
    /// Boot nothing: take the real kernel's results from the directory `results` beside each experiment
    #[arg(long, conflicts_with = "store")]
    pub stored: bool,
    /// Threads of the kernel itself and interrupts in the simulated counterpart, instead of what each experiment's file says: none, one of
    /// those that come with the program (quiet, guest-7.2, host-6.18, launchers), or a file
    #[arg(long, value_name = "BACKGROUND")]
    pub background: Option<String>,
    /// New directory for the data of figures: threads per CPU and LLC over time, distributions, migrations, as CSV, and all
    /// values as JSON
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// Simulate sched_ext programs (`scx:PROGRAM`) again, and keep that; otherwise --stored takes what is stored of them
    #[arg(long, requires = "stored")]
    pub again: bool,
    /// Boot each machine once all the same, to measure what its kernel's own actions cost, and keep that with the stored results: what is
    /// simulated beside them then has the same costs
    #[arg(long, requires = "stored")]
    pub costs: bool,
    /// Keep the real kernel's results there, replacing older ones
    #[arg(long)]
    pub store: bool,
    /// Write the comparison as a page, with a chapter for each experiment in the directory `pages` beside it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = page())]
    pub page: Option<PathBuf>,
    /// Exit with code 3 when a comparison is outside its bound or a control is not rejected
    #[arg(long)]
    pub fail: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// How guests are made.
    #[command(flatten)]
    pub vm: VmArguments,
}

/// Verbs of `vm`.
#[derive(Subcommand, Debug)]
pub enum VmCommand {
    /// Say what this computer has for booting guests, and what is missing
    Doctor {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// List the kernels in the cache, or fetch one
    Kernels {
        /// Fetch the newest suitable kernel of the Debian archive, through this system's package manager
        #[arg(long)]
        fetch: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Boot a machine, compare it with what was asked for, and say what its kernel offers
    Boot {
        /// Machine, as in `compare`; at most 255 CPUs
        #[arg(short, long, value_name = "MACHINE")]
        machine: String,
        /// How the guest is made.
        #[command(flatten)]
        vm: VmArguments,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// Make the guest fail in this way, to see how that is reported
        #[arg(long, value_name = "FAULT", hide = true)]
        fault: Option<String>,
    },
    /// Run a workload once in a real kernel
    Run {
        /// The run.
        #[command(flatten)]
        run: Box<SimArguments>,
        /// How the guest is made.
        #[command(flatten)]
        vm: VmArguments,
    },
    /// Run a program of this computer in a guest, such as this one: `vm exec -m 2s1n2l4c1t -- warmcore compare --on host …`
    Exec {
        /// Machine, as in `compare`; at most 255 CPUs
        #[arg(short, long, value_name = "MACHINE")]
        machine: String,
        /// Programs to put into the guest with their libraries, by their names into /usr/bin, besides it and the usual small ones
        #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::FilePath)]
        program: Vec<PathBuf>,
        /// Files to put into the guest, where they are here
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Vec<PathBuf>,
        /// Directory for the files that it leaves in the directory that it runs in
        #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
        out: Option<PathBuf>,
        /// Program with its arguments, after `--`; `warmcore` is this one
        #[arg(value_name = "COMMAND", last = true, required = true)]
        command: Vec<String>,
        /// How the guest is made.
        #[command(flatten)]
        vm: VmArguments,
    },
    /// Boot a machine with a shell on its console; Ctrl-A X ends it
    Shell {
        /// Machine, as in `compare`; at most 255 CPUs
        #[arg(short, long, value_name = "MACHINE")]
        machine: String,
        /// Programs to put into the guest with their libraries, besides the usual small ones
        #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::FilePath)]
        program: Vec<PathBuf>,
        /// How the guest is made.
        #[command(flatten)]
        vm: VmArguments,
    },
}
