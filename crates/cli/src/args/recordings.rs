//! What can be typed about recordings.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::values::directory;

/// Which recording, and which of its threads.
#[derive(Args, Debug)]
pub struct RecordingArguments {
    /// Recording: a run directory with events of a trial, or a file of another recorder
    #[arg(value_name = "RECORDING", value_hint = ValueHint::AnyPath)]
    pub recording: PathBuf,
    /// Only some threads: process:PID, those of a process; descendants-of:PID, those of it and of what descends from it, as far as the recording saw
    /// it; thread:NAME, those of that name. Several times: what each of them keeps
    #[arg(long, value_name = "WHICH", value_parser = parse_only)]
    pub only: Vec<Only>,
    /// Of a run directory: the scheduler under which it was recorded; the first one if not given
    #[arg(short, long, value_name = "SCHEDULER")]
    pub scheduler: Option<String>,
    /// Machine that it was recorded on: what its kernel's own work costs is taken off. A run directory's own machine, or one with
    /// generic costs, if not given
    #[arg(long, value_name = "MACHINE")]
    pub recorded_on: Option<String>,
}

/// Threads of a recording that are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Only {
    /// Those of a process.
    Process(i32),
    /// Those of a process and of what descends from it.
    DescendantsOf(i32),
    /// Those of a name.
    Thread(String),
}

fn parse_only(text: &str) -> Result<Only, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no process id"));
    match text.split_once(':') {
        Some(("process", pid)) => number(pid).map(Only::Process),
        Some(("descendants-of", pid)) => number(pid).map(Only::DescendantsOf),
        Some(("thread", name)) if !name.is_empty() => Ok(Only::Thread(name.to_owned())),
        _ => Err("it is process:PID, descendants-of:PID or thread:NAME".into()),
    }
}

/// Arguments of `replay`.
#[derive(Args, Debug)]
pub struct ReplayArguments {
    /// What was recorded
    #[command(flatten)]
    pub recording: RecordingArguments,
    /// File for the workload; standard output if not given
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Draw each thread's work and sleeps from those recorded of its role instead of replaying them: lasts as long as is wanted and varies with the
    /// seed, but nobody waits for another
    #[arg(long)]
    pub drawn: bool,
}

/// Arguments of `group`.
#[derive(Args, Debug)]
pub struct GroupArguments {
    /// What was recorded
    #[command(flatten)]
    pub recording: RecordingArguments,
    /// Machine to predict on what gathering each group would win; nothing is predicted if not given
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Memory profile that the threads of groups are assumed to have, such as canneal; without one, memory is left out of the
    /// prediction and what wakeups cost is all that counts
    #[arg(long, value_name = "PROFILE", requires = "machine")]
    pub profile: Option<String>,
    /// Data that the threads of a group are assumed to share, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 1024)]
    pub shared: u64,
    /// Trials of each placement
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Seed that the trials' seeds are derived from
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=super::MAX_SEED))]
    pub seed: u64,
    /// File for a workload that replays the recording with its groups, for cache-aware schedulers to keep together
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

/// Where a recording's events come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum BackendName {
    /// What can be had
    Auto,
    /// The kernel's own trace
    Tracefs,
    /// BPF programs at raw tracepoints
    Bpf,
}

/// Arguments of `record`.
#[derive(Args, Debug)]
pub struct RecordArguments {
    /// Command to record, with its arguments, after `--`
    #[arg(value_name = "COMMAND", last = true, conflicts_with = "pid")]
    pub command: Vec<std::ffi::OsString>,
    /// Record a process that runs already, and what descends from it
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<i32>,
    /// End of the recording, such as 10s; the end of the command or the process if that comes first
    #[arg(short, long, value_name = "TIME", value_parser = super::parse_time)]
    pub duration: Option<u64>,
    /// Run directory to make; recording-N in this directory if not given
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// Room for events that wait to be read, KiB per CPU
    #[arg(long, value_name = "KIB", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(64..=4_194_304))]
    pub buffer: u32,
    /// Record through what threads wake each other, too: futexes with their addresses, pipes and sockets that are written or read; costs more.
    /// `warmcore group DIR/recording.dat` tells it
    #[arg(long)]
    pub calls: bool,
    /// Where events come from: the kernel's own trace (`tracefs`), BPF programs (`bpf`), or `auto`: the former where it can be had
    #[arg(long, value_name = "NAME", value_enum, default_value = "auto")]
    pub backend: BackendName,
    /// Record what threads count in each stay on a CPU: names with commas between them, or `all` (if nothing is given) or `software`. What
    /// this computer cannot count is named
    #[arg(long, value_name = "NAMES", num_args = 0..=1, require_equals = true, default_missing_value = "all", value_parser = warmcore_places::host::counters::Wanted::parse)]
    pub counters: Option<warmcore_places::host::counters::Wanted>,
    /// Record on which memory node the pages of each process are, every half second
    #[arg(long)]
    pub page_homes: bool,
    /// Run the command so many times more without recording, in turn with as many recorded ones, and say what recording costs
    #[arg(long, value_name = "PAIRS", default_value_t = 0, requires = "command")]
    pub overhead: u32,
}
