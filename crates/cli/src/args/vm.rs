//! Arguments of the verbs that boot kernels.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use warmcore_places::vm::select::Choice;

use super::values::{directory, page};

/// How guests are made, as in every command that boots one.
#[derive(Args, Clone, Debug)]
pub struct GuestArguments {
    /// Settings of guests, separated by commas, as after `--on vm:`, such as
    /// kernel=FILE,virtual-time=3,boot-limit=40min
    #[arg(long, value_name = "SETTINGS", default_value = "", hide_default_value = true, value_parser = parse_guest, long_help = guest_help())]
    pub guest: Choice,
}

fn parse_guest(text: &str) -> Result<Choice, String> {
    if text.is_empty() { Ok(Choice::default()) } else { text.parse() }
}

fn guest_help() -> String {
    format!("How guests are made, with commas between settings: {}", warmcore_places::vm::select::HELP)
}

/// Arguments of `validate`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ValidateArguments {
    /// What to compare instead of the simulator and a real kernel.
    #[command(subcommand)]
    pub other: Option<crate::memory_args::ValidateCommand>,
    /// Experiments: files of the fidelity book, as in book/*.toml
    #[arg(required = true, value_name = "EXPERIMENT", value_hint = ValueHint::FilePath)]
    pub experiments: Vec<PathBuf>,
    /// Boots of each machine; every experiment runs once in each
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub boots: u16,
    /// Boot nothing: take the real kernel's results from the directory `results` next to each experiment
    #[arg(long, conflicts_with = "store")]
    pub stored: bool,
    /// Kernel threads and interrupts of the simulated counterpart, instead of those in each experiment's file: none,
    /// quiet, guest-7.2, host-6.18, launchers, or a file
    #[arg(long, value_name = "BACKGROUND")]
    pub background: Option<String>,
    /// New directory for the data of figures: threads per CPU and LLC over time, distributions, migrations, as CSV, and all
    /// values as JSON
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// With --stored, make again and keep: simulations (of sched_ext programs, `scx:PROGRAM`, whose results are
    /// otherwise read), or costs (of the kernel's own actions, measured in one boot of each machine; the simulated
    /// counterpart then has the same)
    #[arg(long, value_name = "WHAT", value_delimiter = ',', requires = "stored")]
    pub renew: Vec<Renewed>,
    /// Keep the real kernel's results there, replacing older ones
    #[arg(long)]
    pub store: bool,
    /// Write the comparison as a page, with a chapter for each experiment in the directory `pages` next to it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = page())]
    pub page: Option<PathBuf>,
    /// Exit with code 3 when a comparison is outside its bound or a control is not rejected
    #[arg(long)]
    pub fail: bool,
    /// How guests are made.
    #[command(flatten)]
    pub guest: GuestArguments,
}

/// Parts of stored results that are made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Renewed {
    /// Simulations of sched_ext programs
    Simulations,
    /// What the kernel's own actions cost
    Costs,
}

/// Arguments of `vm`.
#[derive(Args, Debug)]
pub struct VmArguments {
    /// Machine, as in `compare`; at most 255 CPUs
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: String,
    /// Program of this computer to run in the guest, with its arguments, after `--`; `warmcore` is this one. Without a
    /// program, list what the kernel offers on that machine
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<String>,
    /// A shell on the guest's console instead; Ctrl-A X ends it
    #[arg(long, conflicts_with_all = ["command", "file", "out"])]
    pub shell: bool,
    /// Programs to put into the guest with their libraries, by their names into /usr/bin, besides the usual small ones
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::FilePath)]
    pub program: Vec<PathBuf>,
    /// Files to put into the guest, where they are here
    #[arg(long, value_name = "FILE", requires = "command", value_hint = ValueHint::FilePath)]
    pub file: Vec<PathBuf>,
    /// Directory for the files that the command leaves in the directory that it runs in
    #[arg(short, long, value_name = "DIR", requires = "command", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// How the guest is made.
    #[command(flatten)]
    pub guest: GuestArguments,
    /// Make the guest fail in this way, to see the report
    #[arg(long, value_name = "FAULT", hide = true)]
    pub fault: Option<String>,
}
