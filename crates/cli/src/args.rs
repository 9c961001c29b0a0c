//! What can be typed. The comments here are the help text, the manual pages and the completions.

mod documents;
mod listing;
mod machine;
mod many;
mod recordings;
mod reports;
mod run;
mod study;
mod values;
mod vm;
mod workload;

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum, ValueHint};
use warmcore_lab::experiment::MOST_TRIALS;
use warmcore_options::MemoryChoice;
use warmcore_places::choice::PlaceChoice;
use warmcore_topology::VirtualLlcSize;

use crate::console::ColorChoice;

pub use documents::SchemaName;
pub use listing::{DoctorOf, ListArguments, Listed, ReferenceArguments, ReferenceOf};
pub use machine::{MachineCommand, MachineFormat};
pub use many::SweepArguments;
pub use recordings::{
    BUFFER_KIB, BackendName, GroupArguments, Only, RecordArguments, RecordingArguments, ReplayArguments, Watch,
    parse_watch,
};
pub use reports::{ExplainArguments, FigureWanted, ReportArguments};
pub use run::RunArguments;
pub use study::{StudyCommand, StudyRunArguments, TuneArguments};
pub use vm::{Renewed, ValidateArguments, VmArguments};
pub use workload::{ProfileFormat, WorkloadCommand};

pub use values::Change;
pub(crate) use values::whole_number;
use values::{
    TraceWanted, directory, parse_change, parse_level, parse_percent, parse_seeds, parse_slowdown, parse_time,
    parse_trace,
};

/// Text under the help of the program.
const AFTER_HELP: &str = "\
Exit codes: 0 done; 1 the operation failed; 2 bad usage or input; 3 it ran and a requested check failed;
4 this machine cannot do it; 5 its state could not be put back; 130 and 143 interrupted and terminated, what had finished is valid.

First steps:
  warmcore list machines
  warmcore machine show gnr72
  warmcore compare --machine gnr72 --workload verilator:-t8,-C10000 --schedulers eevdf,cache-aware,ule";

/// The version, of which commit the program was built, and what it can do that builds may lack.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(version_of_build);
    &VERSION
}

fn version_of_build() -> String {
    let commit = option_env!("WARMCORE_COMMIT").filter(|commit| !commit.is_empty()).unwrap_or("not said");
    let guests = if warmcore_places::vm::agent::agent().is_ok() { "with" } else { "without" };
    let programs = if cfg!(feature = "machine-code") { "translates" } else { "interprets" };
    let build = if cfg!(debug_assertions) { "debug" } else { "optimised" };
    format!("{} (commit {commit}; {build}; {guests} guests; {programs} BPF programs)", env!("CARGO_PKG_VERSION"))
}

/// Which CPU scheduler, with which settings, is best for a workload on a machine, and why
#[derive(Parser, Debug)]
#[command(name = "warmcore", version = version(), max_term_width = 100, after_help = AFTER_HELP)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    /// Output
    #[command(flatten)]
    pub output: OutputArguments,
    /// Command to run
    #[command(subcommand)]
    pub command: Command,
}

/// Output of a command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Every command")]
pub struct OutputArguments {
    /// Print only results, warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more; twice for every detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = false)]
    pub color: ColorChoice,
    /// Print one JSON document instead of text; `warmcore reference schema` has its schema
    #[arg(long, global = true)]
    pub json: bool,
    /// Turn a part of a workload that is accepted but not modelled into an error
    #[arg(long, global = true)]
    pub strict: bool,
    /// Overwrite existing files, and a directory that holds a run; no other directory is overwritten
    #[arg(long, global = true)]
    pub force: bool,
    /// Simulations at the same time; by default one per CPU of this process. Does not change any result
    #[arg(short, long, global = true, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a workload under several schedulers and say which is best
    Compare(CompareArguments),
    /// Run once, in the simulator or elsewhere
    #[command(override_usage = "warmcore sim [OPTIONS] -m <MACHINE> -w <WORKLOAD> -s <SCHEDULER>")]
    Sim(SimArguments),
    /// Run many workloads on many machines under the same schedulers: one table of gains
    #[command(override_usage = "warmcore sweep [OPTIONS] -m <LIST> -w <WORKLOAD> -s <LIST>")]
    Sweep(SweepArguments),
    /// Run many experiments from one file, and compare them with expectations
    #[command(subcommand)]
    Study(StudyCommand),
    /// Find the settings of a scheduler that are best for several workloads and machines, and confirm them on unseen
    /// ones; the Python package looks for them
    Tune(TuneArguments),
    /// Show finished runs: a page, figures, tables
    Report(ReportArguments),
    /// Explain what each thread waited for and why tasks changed their CPUs: every migration of a trial with its decision;
    /// or print what ran when
    Explain(ExplainArguments),
    /// Record the scheduling of a command or a process on this computer, as a run directory
    Record(RecordArguments),
    /// Make a workload from a recording: tasks do what was recorded, and wait as the new schedule makes them wait
    Replay(ReplayArguments),
    /// Find the threads of a recording that belong together, and what gathering them would gain
    Group(GroupArguments),
    /// List machines, workloads, schedulers, metrics, memory profiles, studies or kernels
    List(ListArguments),
    /// Show and convert machines
    #[command(subcommand)]
    Machine(MachineCommand),
    /// Show, convert and run workloads with real threads, and fit memory profiles
    #[command(subcommand)]
    Workload(WorkloadCommand),
    /// Show a scheduler: source, and every tunable with default, unit and range. For a sched_ext program (scx:PROGRAM
    /// ARGUMENTS): its needs, the missing ones, and the cost of its operations
    Scheduler {
        /// Scheduler, with or without tunables
        scheduler: String,
        /// Machine that a sched_ext program is loaded for, or that is soaked; by default 1s1n2l4c1t
        #[arg(short, long)]
        machine: Option<String>,
        /// Look for stalls and lost tasks: random tasks that are bound, kept on their CPU and released run for 3 s with
        /// each of these seeds, by default 0-99. Exit code 3 if a run fails or a task waits too long
        #[arg(long, value_name = "SEEDS", num_args = 0..=1, require_equals = true, default_missing_value = "0-99", value_parser = parse_seeds)]
        soak: Option<RangeInclusive<u64>>,
    },
    /// Run memory profiles or an address trace through simulated caches, coherence and memory
    Memory(Box<crate::memory_args::MemoryRunArguments>),
    /// Run experiments in two places and measure how far apart they are
    Validate(ValidateArguments),
    /// Boot a real kernel in a virtual machine of any shape: list what it offers, or run a program or a shell there
    Vm(VmArguments),
    /// List what this computer has for experiments on it, or for guests, and what is missing; undo what a killed
    /// experiment left
    Doctor {
        /// Purpose
        #[arg(value_name = "PURPOSE")]
        of: DoctorOf,
        /// Fetch the newest suitable kernel of the Debian archive for guests, through this system's package manager
        #[arg(long)]
        fetch_kernel: bool,
    },
    /// Print descriptions of this program: JSON Schemas, completions, manual pages, a template of a workload file
    Reference(ReferenceArguments),
}

/// Machine and workload, as in every experiment.
#[derive(Args, Debug)]
pub struct SubjectArguments {
    /// Machine: a preset, a file (TOML, hwloc XML), a /sys snapshot directory, a short form such as 2s1n2l8c2t, an
    /// hwloc synthetic string, or `host` for this computer. MACHINE@PRESET takes costs, latencies and bandwidths from
    /// that preset; the default is the preset of the CPU model
    #[arg(help_heading = "What runs", short, long, value_name = "MACHINE")]
    pub machine: String,
    /// Kernel threads and interrupts that run next to the workload in the simulator: none, quiet, guest-7.2, host-6.18,
    /// launchers, or a file
    #[arg(help_heading = "What runs", long, value_name = "BACKGROUND")]
    pub background: Option<String>,
    /// Workload: a file in rt-app's format, or a generator with its flags, commas for spaces:
    /// hackbench:-T,-p,-f4,-g1,-l200
    #[arg(help_heading = "What runs", short, long, value_name = "WORKLOAD")]
    pub workload: String,
    /// Memory profiles.
    #[command(flatten)]
    pub profiles: ProfileArguments,
    /// What cache-aware schedulers keep together: process:NAME, taskgroup:PATH or data:NAME, then =off, =process (the
    /// default) or =group:NAME; may be repeated
    #[arg(help_heading = "What runs", long, value_name = "CHOICE")]
    pub aggregate: Vec<String>,
}

/// Memory profiles in addition to the workload's own.
#[derive(Args, Debug)]
#[command(next_help_heading = "What runs")]
pub struct ProfileArguments {
    /// File with memory profiles that the workload may name (`workload fit` writes one); they override the built-in
    /// ones
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profiles: Option<PathBuf>,
    /// Memory profile for tasks without one, such as canneal (`list profiles` lists them), or for tasks of a role:
    /// worker=canneal,main=spin. The run then shows the effects of caches, as far as the tasks are like that
    #[arg(long, value_name = "PROFILE")]
    pub assume_profile: Option<String>,
}

/// Arguments of `compare`.
#[derive(Args, Debug)]
pub struct CompareArguments {
    /// Machine: a preset, a file (TOML, hwloc XML), a /sys snapshot directory, a short form such as 2s1n2l8c2t, an
    /// hwloc synthetic string, or `host` for this computer, the default of `--on host`. MACHINE@PRESET takes costs,
    /// latencies and bandwidths from that preset; the default is the preset of the CPU model
    #[arg(help_heading = "What runs", short, long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Kernel threads and interrupts that run next to the workload in the simulator: none, quiet, guest-7.2, host-6.18,
    /// launchers, or a file
    #[arg(help_heading = "What runs", long, value_name = "BACKGROUND", conflicts_with = "resume")]
    pub background: Option<String>,
    /// Workload: a file in rt-app's format, or a generator with its flags, commas for spaces:
    /// hackbench:-T,-p,-f4,-g1,-l200
    #[arg(help_heading = "What runs", short, long, value_name = "WORKLOAD", required_unless_present_any = ["resume", "command"])]
    pub workload: Option<String>,
    /// With `--on host`, instead of a workload: a program of this computer with its arguments, after `--`. A second
    /// program after --vs is compared with it
    #[arg(value_name = "COMMAND", last = true, conflicts_with_all = ["workload", "resume"])]
    pub command: Vec<String>,
    /// Memory profiles.
    #[command(flatten)]
    pub profiles: ProfileArguments,
    /// Schedulers, separated by commas; may be repeated. Tunables follow a colon, also separated by commas: name=value
    /// belongs to the scheduler before it, as in cfs,eevdf:base_slice_ns=3000000,rr. Words after @ apply to that column
    /// only: cpus=0-5 (or one-llc, one-node, one-socket), smt=off, pin=spread (gathered, oracle, FILE), workload=TEXT,
    /// machine=TEXT, set=PATH=VALUE (a file of a real kernel), as in eevdf,eevdf@cpus=one-llc. Without this option the settings of a Linux 7.2 kernel are tried,
    /// and the answer lists those that help with the commands for them
    #[arg(help_heading = "What runs", short, long, value_name = "LIST")]
    pub schedulers: Vec<String>,
    /// Scheduler that the others are compared with, as written in --schedulers; by default the first one
    #[arg(help_heading = "How it is judged", short, long, value_name = "SCHEDULER")]
    pub baseline: Option<String>,
    /// Runs of each scheduler. Run k of all schedulers has the same seed; from 8 on there are 95 % intervals
    #[arg(help_heading = "How it is judged", short = 'n', long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_TRIALS)))]
    pub trials: u32,
    /// Seed from which the seeds of all trials follow
    #[arg(help_heading = "How it is judged", long, value_name = "NUMBER", default_value_t = 1, value_parser = whole_number::<u64, MAX_SEED>)]
    pub seed: u64,
    /// Metric of the verdict; by default the workload's own. For a command also after:TEXT, the number that it prints
    /// after this text (in ns if it has a unit of time), or regex:PATTERN, the match of the group; higher: in front means
    /// that more is better
    #[arg(help_heading = "How it is judged", long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Largest difference that does not matter, in per cent. Schedulers whose interval lies inside are tied
    #[arg(help_heading = "How it is judged", long, value_name = "PERCENT", default_value = "1", value_parser = parse_percent)]
    pub margin: f64,
    /// How memory is modelled.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// Settings of each run.
    #[command(flatten)]
    pub run: RunArguments,
    /// What to record in each trial: none (elapsed time only), counters (counts and distributions) or full (also every
    /// event, in Parquet tables). full:TIME, such as full:1ms, also samples the scheduler's ranks (lag, virtual
    /// runtime), at most once in that time. The default is counters. With `--on vm` it is full, because a boot cannot be
    /// repeated to draw its timeline. With `--on host` it is none, because recording takes time from the trial
    #[arg(help_heading = "What is kept", long, value_name = "LEVEL", value_parser = parse_trace)]
    pub trace: Option<TraceWanted>,
    /// Divide each LLC into virtual ones of this many cores, like `scx_lavd --virt-llc`: 4, or 2-8, which takes the
    /// first number that divides the LLC's cores. Moves within and between them become measures and figures
    #[arg(help_heading = "What is kept", long, value_name = "CORES", conflicts_with = "resume")]
    pub virtual_llcs: Option<VirtualLlcSize>,
    /// Run directory; by default a new one under runs/
    #[arg(help_heading = "What is kept", short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// What to keep of the run: a directory with its page, a directory alone, or nothing
    #[arg(help_heading = "What is kept", long, value_name = "WHAT", default_value = "page", conflicts_with = "resume")]
    pub keep: Keep,
    /// Continue the run in this directory, with its settings; finished trials do not run again
    #[arg(help_heading = "What is kept", long, value_name = "DIR", value_hint = ValueHint::DirPath,
          conflicts_with_all = ["profiles", "assume_profile", "machine", "workload", "schedulers", "baseline", "trials", "seed", "metric", "margin", "memory", "smt_slowdown", "RunArguments", "trace", "out"])]
    pub resume: Option<PathBuf>,
    /// What cache-aware schedulers keep together: process:NAME, taskgroup:PATH or data:NAME, then =off, =process (the
    /// default) or =group:NAME; may be repeated
    #[arg(help_heading = "What runs", long, value_name = "CHOICE", conflicts_with = "resume")]
    pub aggregate: Vec<String>,
    /// Where trials run: in the simulator, in a real kernel with a boot for each trial, or on this computer. Settings
    /// follow a colon, as in vm:virtual-time=3 and host:cpus=one-socket,set-cpus=partition
    #[arg(help_heading = "Where and how", long, value_name = "PLACE", default_value = "sim", conflicts_with = "resume", long_help = on_help())]
    pub on: PlaceChoice,
    /// Compare at these loads, in per cent of the machine's CPU time that is busy under the baseline: 30,60,90. Each
    /// level scales the workload's tasks, threads, requests or instances, and has its own table and verdict
    #[arg(help_heading = "How it is judged", long, value_name = "LIST", value_delimiter = ',', value_parser = parse_level, conflicts_with = "resume")]
    pub load: Vec<f64>,
    /// Also find the best static placement of the workload's long-lived threads, run it pinned, and show how far every
    /// scheduler is from it
    #[arg(help_heading = "How it is judged", long)]
    pub headroom: bool,
    /// Find the assumed costs that could turn the verdict: compare again with each cost of the machine that was not
    /// measured times these factors, under the same seeds. The factors are 0.5,2, or others as in
    /// --sensitivity=0.7,1.3. =neighbours tries one task more, one less, and one core less
    #[arg(help_heading = "How it is judged", long, value_name = "FACTORS", num_args = 0..=1, require_equals = true, default_missing_value = "0.5,2",
          value_delimiter = ',', value_parser = parse_change)]
    pub sensitivity: Vec<Change>,
}

/// Settings of each place.
fn on_help() -> String {
    let kinds = warmcore_places::offered().map(|kind| format!("{}: {}", kind.name, kind.summary));
    let (guests, host) = (warmcore_places::vm::select::HELP, warmcore_places::host::settings::HELP);
    let kinds = kinds.collect::<Vec<_>>().join("; ");
    format!(
        "Where trials run. {kinds}.\n\nSettings follow a colon, with commas between them. Of vm: {guests}.\n\nOf host: {host}."
    )
}

impl Arguments {
    /// Reads a command line, the program's name first. A number below 0 after an option is its value, which its parser refuses with the
    /// range; else it would be an option that there is not.
    ///
    /// # Errors
    /// What is refused of it.
    pub fn read(words: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        fn taking_numbers(command: clap::Command) -> clap::Command {
            let of = |argument: clap::Arg| {
                let takes = !argument.is_positional() && argument.get_action().takes_values();
                argument.allow_negative_numbers(takes)
            };
            command.mut_args(of).mut_subcommands(taking_numbers)
        }
        let mut command = taking_numbers(Self::command());
        let mut matches = command.try_get_matches_from_mut(words)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

/// Largest seed: what TOML can hold.
pub const MAX_SEED: u64 = i64::MAX as u64;

/// How memory is modelled, and what a busy sibling costs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Where and how")]
pub struct MemoryOptions {
    /// Memory model. none: constant speed, fixed costs per distance. analytic, the default for workloads with memory
    /// profiles: caches, coherence and DRAM in closed forms. exact: every touched line in simulated caches, about a
    /// hundred times slower. exact-by-address: cache sets chosen by address bits. exact-paged, exact-paged-by-address:
    /// addresses translated by page tables; exact-paged:page=4KiB,tlb=64,ram=4GiB sets the page size, the entries of
    /// each core's translation buffer (by default every touch walks) and the memory of each node
    #[arg(long, value_name = "MODEL")]
    pub memory: Option<MemoryChoice>,
    /// How much longer work takes next to a busy hardware thread of the same core, in per cent of its time alone, 0 to
    /// 1000. The default is the machine's: 65 unless its file states another, with which two threads do 1.21 times the
    /// work of one
    #[arg(long, value_name = "PERCENT", value_parser = parse_slowdown)]
    pub smt_slowdown: Option<u32>,
}

/// What to keep of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Keep {
    /// A run directory, and its page
    Page,
    /// A run directory
    Run,
    /// Nothing but the output
    Nothing,
}

/// Arguments of `sim`.
#[derive(Args, Debug)]
pub struct SimArguments {
    /// Machine and workload.
    #[command(flatten)]
    pub subject: SubjectArguments,
    /// Scheduler with its tunables, such as eevdf:base_slice_ns=3000000,hz=1000
    #[arg(help_heading = "What runs", short, long, value_name = "SCHEDULER")]
    pub scheduler: String,
    /// Where it runs, as in `compare`
    #[arg(help_heading = "Where and how", long, value_name = "PLACE", default_value = "sim", long_help = on_help())]
    pub on: PlaceChoice,
    /// Seed of the run
    #[arg(help_heading = "How it is judged", long, value_name = "NUMBER", default_value_t = 1, value_parser = whole_number::<u64, MAX_SEED>)]
    pub seed: u64,
    /// What to record: none, counters, full or full:TIME, as in `compare`
    #[arg(help_heading = "What is kept", long, value_name = "LEVEL", default_value = "counters", value_parser = parse_trace)]
    pub trace: TraceWanted,
    /// How memory is modelled.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// Settings of each run.
    #[command(flatten)]
    pub run: RunArguments,
    /// Directory for the result and the trace
    #[arg(help_heading = "What is kept", short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    /// Every command that does something by itself, and how many options it has that not every command has.
    fn leaves(command: &Command, before: &str, found: &mut Vec<(String, usize)>) {
        let name = format!("{before}{}", command.get_name());
        if !command.is_subcommand_required_set() {
            let own = |argument: &&clap::Arg| {
                argument.get_long().is_some() && !argument.is_global_set() && !argument.is_hide_set()
            };
            found.push((name.clone(), command.get_arguments().filter(own).count()));
        }
        command.get_subcommands().for_each(|inner| leaves(inner, &format!("{name} "), found));
    }

    /// What is refused of a command line.
    fn refused(words: &str) -> String {
        Arguments::read(words.split(' ').map(Into::into)).unwrap_err().to_string()
    }

    #[test]
    fn a_number_below_0_is_a_value_of_its_option_and_is_refused_with_the_range() {
        for (words, range) in [
            ("warmcore compare --margin -5", "a percentage of 0 to 50"),
            ("warmcore sim --seed -1", "a whole number of 0 to 9223372036854775807"),
            ("warmcore compare --trials -3", "1..=10000"),
            ("warmcore explain run --count -2", "a whole number of 0 to 4294967295"),
            ("warmcore sim --jobs -1", "1..=1024"),
        ] {
            let message = refused(words);
            assert!(message.contains(range) && !message.contains("-- -"), "{words}: {message}");
        }
    }

    /// What somebody who looks for an option reads through. More must take the place of something.
    #[test]
    fn there_are_at_most_25_commands_and_150_options() {
        let mut found = Vec::new();
        leaves(&Arguments::command(), "", &mut found);
        let options: usize = found.iter().map(|(_, options)| options).sum();
        assert!(found.len() <= 25 && options <= 150, "{} commands, {options} options: {found:?}", found.len());
    }
}
