//! What can be typed. The comments here are the help text, the manual pages and the completions.

mod documents;
mod host;
mod machine;
mod many;
mod recordings;
mod reports;
mod run;
mod study;
mod values;
mod vm;
mod workload;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use warmcore_topology::VirtualLlcSize;

use crate::console::ColorChoice;

pub use documents::SchemaName;
pub use host::{HostArguments, HostCommand, SetCpus, Switch};
pub use machine::{MachineCommand, MachineForm, MachineFormat};
pub use many::{ReproduceArguments, SweepArguments};
pub use recordings::{BackendName, GroupArguments, RecordArguments, RecordingArguments, ReplayArguments};
pub use reports::{EventsArguments, ExplainArguments, ReportArguments};
pub use run::{RunArguments, TableArguments};
pub use study::{StudyCommand, StudyRunArguments};
pub use vm::{ValidateArguments, ValidateProgramsArguments, VmArguments, VmCommand};
pub use workload::{ProfileFormat, WorkloadCommand};

use values::{directory, page, parse_factor, parse_level, parse_percent, parse_time};

/// Text under the help of the program.
const AFTER_HELP: &str = "\
Exit codes: 0 done; 1 the operation failed; 2 bad usage or input; 3 it ran and a requested check failed;
4 this machine cannot do it; 5 its state could not be put back; 130 and 143 interrupted and terminated, what had finished is valid.

First steps:
  warmcore machine list
  warmcore machine show gnr72
  warmcore compare --machine gnr72 --workload verilator:-t8,-C10000 --schedulers eevdf,cache-aware,ule";

/// Which CPU scheduler, with which settings, is best for a workload on a machine, and why
#[derive(Parser, Debug)]
#[command(name = "warmcore", version, max_term_width = 100, after_help = AFTER_HELP)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    /// What is said, and how
    #[command(flatten)]
    pub output: OutputArguments,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What is said, and how.
#[derive(Args, Debug)]
pub struct OutputArguments {
    /// Say nothing but results, warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more; twice for every detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = false)]
    pub color: ColorChoice,
}

/// The verbs.
#[derive(Subcommand, Debug)]
#[expect(clippy::large_enum_variant, reason = "one of them is made in a process")]
pub enum Command {
    /// Run a workload under several schedulers and say which is best
    Compare(CompareArguments),
    /// Run one simulation
    Sim(SimArguments),
    /// Compute the figures of a paper that has a program of its own (cdf-dio); other papers are studies
    Reproduce(ReproduceArguments),
    /// Show finished runs: a page, figures, tables
    Report(ReportArguments),
    /// Say why tasks changed their CPUs: every migration of a run's trial with its decision
    Explain(ExplainArguments),
    /// Print what ran when in a run's trial, a line for each slice and migration, as `perf sched timehist` does
    Events(EventsArguments),
    /// Say what this computer can do for experiments, and put its state back
    #[command(subcommand)]
    Host(HostCommand),
    /// Record the scheduling of a command or a process on this computer, as a run directory
    Record(RecordArguments),
    /// Make a workload of a recording: waits and orders follow from the schedule, not from the recording
    Replay(ReplayArguments),
    /// Say which threads of a recording belong together, and what gathering them would win
    Group(GroupArguments),
    /// Run many workloads on many machines under the same schedulers: one table of gains
    Sweep(SweepArguments),
    /// List, show, detect and convert machines
    #[command(subcommand)]
    Machine(MachineCommand),
    /// List, show, convert and really run workloads
    #[command(subcommand)]
    Workload(WorkloadCommand),
    /// Caches, coherence and memory in full detail
    #[command(subcommand)]
    Memory(crate::memory_args::MemoryCommand),
    /// List what is measured and can be compared
    #[command(subcommand)]
    Metrics(MetricsCommand),
    /// List and show schedulers with their tunables
    #[command(subcommand)]
    Schedulers(SchedulersCommand),
    /// Run many experiments from one file, and compare with what is expected of them
    #[command(subcommand)]
    Study(StudyCommand),
    /// Run experiments in two places and say how far apart they are
    Validate(ValidateArguments),
    /// Boot a real kernel in a virtual machine of any shape
    #[command(subcommand)]
    Vm(VmCommand),
    /// Print the JSON Schema of a document this program writes
    Schema {
        /// Which document
        name: SchemaName,
    },
    /// Print shell completions
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all of them to a directory
    Man {
        /// Directory for one page per command
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
        out: Option<PathBuf>,
    },
}

/// Machine and workload, as in every experiment.
#[derive(Args, Debug)]
pub struct SubjectArguments {
    /// Machine: a preset, a file (TOML, hwloc XML), a /sys snapshot directory, a short form such as 2s1n2l8c2t, an
    /// hwloc synthetic string, or `host` for this computer
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: String,
    /// Preset whose costs, latencies and bandwidths the machine has, as MACHINE@PRESET; by default those of the preset that fits the
    /// CPU model of a /sys tree or hwloc XML
    #[arg(long, value_name = "PRESET")]
    pub base: Option<String>,
    /// Threads of the kernel itself and interrupts beside the workload: none, one of those that come with the program (quiet, guest-7.2,
    /// host-6.18, launchers), or a file; in the simulator
    #[arg(long, value_name = "BACKGROUND")]
    pub background: Option<String>,
    /// Workload: a file in rt-app's format, or a generator with its flags, commas for spaces:
    /// hackbench:-T,-p,-f4,-g1,-l200
    #[arg(short, long, value_name = "WORKLOAD")]
    pub workload: String,
    /// Memory profiles.
    #[command(flatten)]
    pub profiles: ProfileArguments,
    /// Make input that is accepted but not modelled an error
    #[arg(long)]
    pub strict: bool,
    /// Whom cache-aware schedulers keep together: process:NAME, taskgroup:PATH or data:NAME, then =off, =process (the
    /// default) or =group:NAME; may be repeated
    #[arg(long, value_name = "CHOICE")]
    pub aggregate: Vec<String>,
}

/// Memory profiles beside those that the workload has.
#[derive(Args, Debug)]
pub struct ProfileArguments {
    /// File with memory profiles that the workload may name (`workload fit` writes one); they go before those of this program
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profiles: Option<PathBuf>,
    /// Memory profile of tasks that name none, such as canneal (`memory profiles` lists them): what caches decide is then in the run, as
    /// far as the tasks are like that
    #[arg(long, value_name = "PROFILE")]
    pub assume_profile: Option<String>,
}

/// Arguments of `compare`.
#[derive(Args, Debug)]
pub struct CompareArguments {
    /// Machine: a preset, a file (TOML, hwloc XML), a /sys snapshot directory, a short form such as 2s1n2l8c2t, an
    /// hwloc synthetic string, or `host` for this computer, which `--on host` has without it
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Preset whose costs, latencies and bandwidths the machine has, as MACHINE@PRESET; by default those of the preset that fits the
    /// CPU model of a /sys tree or hwloc XML
    #[arg(long, value_name = "PRESET", conflicts_with = "resume")]
    pub base: Option<String>,
    /// Threads of the kernel itself and interrupts beside the workload: none, one of those that come with the program (quiet, guest-7.2,
    /// host-6.18, launchers), or a file; in the simulator
    #[arg(long, value_name = "BACKGROUND", conflicts_with = "resume")]
    pub background: Option<String>,
    /// Workload: a file in rt-app's format, or a generator with its flags, commas for spaces:
    /// hackbench:-T,-p,-f4,-g1,-l200
    #[arg(short, long, value_name = "WORKLOAD", required_unless_present_any = ["resume", "command"])]
    pub workload: Option<String>,
    /// Instead of a workload a program of this computer with its arguments, after `--`; with `--on host`
    #[arg(value_name = "COMMAND", last = true, conflicts_with_all = ["workload", "resume"])]
    pub command: Vec<String>,
    /// Memory profiles.
    #[command(flatten)]
    pub profiles: ProfileArguments,
    /// Schedulers, with commas between them; may be repeated. Tunables follow a colon, themselves with commas between
    /// them: what looks like name=value belongs to the scheduler before it, as in cfs,eevdf:base_slice_ns=3000000,rr
    #[arg(short, long, value_name = "LIST", required_unless_present = "resume")]
    pub schedulers: Vec<String>,
    /// Scheduler the others are compared with, as written in --schedulers; the first one if not given
    #[arg(short, long, value_name = "SCHEDULER")]
    pub baseline: Option<String>,
    /// Runs of each scheduler. Run k of all schedulers has the same seed; from 8 on there are 95 % intervals
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub trials: u32,
    /// Seed that all trials' seeds are derived from
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    pub seed: u64,
    /// Metric the verdict is about, if not the workload's own. Of a command also after:TEXT, the number after this text in what it
    /// prints, or regex:PATTERN, what its group matches there
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Largest difference that does not matter, in per cent: schedulers whose interval lies inside are tied
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_percent)]
    pub margin: f64,
    /// How memory is modelled.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// What each run is asked for.
    #[command(flatten)]
    pub run: RunArguments,
    /// What to record of each trial; counters if not given, with `--on vm` full, because a boot cannot be repeated to draw
    /// its timeline, and with `--on host` none, because recording takes time from the trial
    #[arg(long, value_name = "LEVEL")]
    pub trace: Option<TraceChoice>,
    /// What else is in event tables.
    #[command(flatten)]
    pub tables: TableArguments,
    /// Divide each LLC into virtual ones of so many cores, as `scx_lavd --virt-llc` does: 4, or 2-8, of which the first number that divides
    /// the LLC's cores counts. Moves within and between them become measures and figures
    #[arg(long, value_name = "CORES", conflicts_with = "resume")]
    pub virtual_llcs: Option<VirtualLlcSize>,
    /// Run directory; by default a new one under runs/
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// Write no run directory
    #[arg(long, conflicts_with_all = ["out", "force", "resume"])]
    pub no_out: bool,
    /// Replace the run in the directory given with --out
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Continue the run in this directory: everything comes from there, trials that finished are not run again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          conflicts_with_all = ["profiles", "assume_profile", "machine", "workload", "schedulers", "baseline", "trials", "seed", "metric", "margin", "memory", "page_size", "tlb", "ram", "smt_slowdown", "RunArguments", "trace", "TableArguments", "out"])]
    pub resume: Option<PathBuf>,
    /// Trials to run at the same time; as many as this process has CPUs if not given. Does not change any result
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Make input that is accepted but not modelled an error
    #[arg(long)]
    pub strict: bool,
    /// Whom cache-aware schedulers keep together: process:NAME, taskgroup:PATH or data:NAME, then =off, =process (the
    /// default) or =group:NAME; may be repeated
    #[arg(long, value_name = "CHOICE", conflicts_with = "resume")]
    pub aggregate: Vec<String>,
    /// Where trials run: in the simulator, in a real kernel, each trial in a boot of its own, or on this computer
    #[arg(long, value_name = "PLACE", default_value = "sim", conflicts_with = "resume", value_parser = place_names())]
    pub on: String,
    /// How guests are made, with `--on vm`.
    #[command(flatten)]
    pub vm: VmArguments,
    /// How trials on this computer are made.
    #[command(flatten)]
    pub host: HostArguments,
    /// Compare at these loads, in per cent of the machine's CPU time that is busy under the baseline: 30,60,90. The workload gets
    /// as many tasks, threads or requests as that takes, a file as many instances of its tasks; one table and one verdict for each level
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_level, conflicts_with_all = ["resume", "lesson"])]
    pub load: Vec<f64>,
    /// Ask an oracle too: find the best static placement of the workload's long-lived threads, run it pinned, and say how far every
    /// scheduler is from it
    #[arg(long)]
    pub headroom: bool,
    /// Which assumed costs could turn the verdict: compare again with every cost of the machine that nobody measured times these
    /// factors, under the same seeds. 0.5,2 if none are given; others as --sensitivity=0.7,1.3
    #[arg(long, value_name = "FACTORS", num_args = 0..=1, require_equals = true, default_missing_value = "0.5,2",
          value_delimiter = ',', value_parser = parse_factor)]
    pub sensitivity: Vec<f64>,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Write no report.html into the run directory
    #[arg(long)]
    pub no_report: bool,
    /// Write a page for a class too, of an experiment with a few tasks: a Gantt chart for each scheduler, and who was chosen
    /// and why
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "no_out", value_parser = page())]
    pub lesson: Option<PathBuf>,
}

/// The places that can be asked for, with what they are.
fn place_names() -> clap::builder::PossibleValuesParser {
    let values = warmcore_places::offered().map(|kind| clap::builder::PossibleValue::new(kind.name).help(kind.summary));
    values.collect::<Vec<_>>().into()
}

/// Largest seed: what TOML can hold.
pub const MAX_SEED: u64 = i64::MAX as u64;

/// How memory is modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MemoryModel {
    /// Constant speed, fixed costs per distance: the fastest
    None,
    /// Caches, coherence and DRAM in closed forms
    Analytic,
    /// Every line touched, in simulated caches: the yardstick of the other, some hundred times slower
    Exact,
    /// The same, with cache sets chosen by address bits; for caches of a power of two of sets
    ExactByAddress,
    /// Exact, with addresses translated by page tables: pages get a frame when they are touched first, and walks go through the caches
    ExactPaged,
    /// The same, with cache sets chosen by address bits, those of the frames
    ExactPagedByAddress,
}

/// Which memory, and how its addresses are translated.
#[derive(Args, Debug)]
pub struct MemoryOptions {
    /// How memory is modelled; analytic if the workload has memory profiles, none otherwise
    #[arg(long, value_name = "MODEL")]
    pub memory: Option<MemoryModel>,
    /// With exact-paged: size of a page, a power of two from 4KiB on, which is the size if none is given
    #[arg(long, value_name = "SIZE")]
    pub page_size: Option<String>,
    /// With exact-paged: entries of each core's translation buffer, a power of two; if not given there is none, and every touch walks
    #[arg(long, value_name = "ENTRIES")]
    pub tlb: Option<u32>,
    /// With exact-paged: memory of each node, such as 4GiB, instead of what the machine states
    #[arg(long, value_name = "SIZE")]
    pub ram: Option<String>,
    /// How much longer work takes beside a busy hardware thread of the same core, in per cent of its time alone, 0 to 1000; as the
    /// machine says if not given: 65, with which two threads do 1.21 times the work of one, unless its file states another
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=1000))]
    pub smt_slowdown: Option<u32>,
}

/// What a run records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TraceChoice {
    /// Nothing but how long it took: the fastest
    None,
    /// Counts and distributions, in constant memory
    Counters,
    /// Counters, and every event in Parquet tables (needs --out)
    Full,
}

/// Arguments of `sim`.
#[derive(Args, Debug)]
pub struct SimArguments {
    /// Machine and workload.
    #[command(flatten)]
    pub subject: SubjectArguments,
    /// Scheduler with its tunables, such as eevdf:base_slice_ns=3000000,hz=1000
    #[arg(short, long, value_name = "SCHEDULER")]
    pub scheduler: String,
    /// Seed of the run
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=MAX_SEED))]
    pub seed: u64,
    /// What to record
    #[arg(long, value_name = "LEVEL", default_value = "counters")]
    pub trace: TraceChoice,
    /// What else is in event tables.
    #[command(flatten)]
    pub tables: TableArguments,
    /// How memory is modelled.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// What each run is asked for.
    #[command(flatten)]
    pub run: RunArguments,
    /// Directory for the result and the trace
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, required_if_eq("trace", "full"), value_parser = directory())]
    pub out: Option<PathBuf>,
    /// Replace the run in the directory given with --out
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// Verbs of `metrics`.
#[derive(Subcommand, Debug)]
pub enum MetricsCommand {
    /// List every metric with unit, direction and meaning; --metric takes their names
    List {
        /// Workload whose own metrics are listed too: a file, or a generator with its flags
        workload: Option<String>,
        /// File with memory profiles that the workload may name
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        profiles: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// Verbs of `schedulers`.
#[derive(Subcommand, Debug)]
pub enum SchedulersCommand {
    /// List the schedulers
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Load a sched_ext scheduler of your own for a simulated machine: what it needs, what of that is missing, what its operations take
    Check {
        /// The scheduler: scx:PROGRAM ARGUMENTS
        scheduler: String,
        /// Machine that it is loaded for
        #[arg(short, long, default_value = "1s1n2l4c1t")]
        machine: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show a scheduler: source, and every tunable with default, unit and range
    Show {
        /// Scheduler, with or without tunables
        scheduler: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}
