//! What can be typed about recordings.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use warmcore_topology::settings::{pairs, refusal};

use super::values::directory;

/// Room for events that wait to be read, KiB per CPU.
pub const BUFFER_KIB: u32 = 16_384;

/// Which recording, and which of its threads.
#[derive(Args, Debug)]
pub struct RecordingArguments {
    /// Recording: a run directory with events of a trial, or a file of another recorder
    #[arg(value_name = "RECORDING", value_hint = ValueHint::AnyPath)]
    pub recording: PathBuf,
    /// Only some threads: process:PID, descendants-of:PID (that process and its recorded descendants) or thread:NAME.
    /// May be repeated; a thread is kept if any of them keeps it
    #[arg(long, value_name = "WHICH", value_parser = parse_only)]
    pub only: Vec<Only>,
    /// Scheduler of a run directory whose events are taken; by default the first one
    #[arg(short, long, value_name = "SCHEDULER")]
    pub scheduler: Option<String>,
    /// Machine that it was recorded on; the cost of its kernel's own work is subtracted. The default is a run
    /// directory's own machine, or one with generic costs
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
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a process id"));
    match text.split_once(':') {
        Some(("process", pid)) => number(pid).map(Only::Process),
        Some(("descendants-of", pid)) => number(pid).map(Only::DescendantsOf),
        Some(("thread", name)) if !name.is_empty() => Ok(Only::Thread(name.to_owned())),
        _ => Err("it is process:PID, descendants-of:PID or thread:NAME".into()),
    }
}

/// A process whose groups are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The process.
    pub pid: i32,
    /// From the beginning of a reading to the beginning of the next one, ns.
    pub every_ns: u64,
    /// Length of a reading, ns.
    pub for_ns: u64,
}

/// What `group` takes besides recordings.
const OF_GROUP: &str = "Recording: a run directory with events of a trial, or a file of another recorder. Or watch:PID: record this process and \
                        what descends from it for 5 s of every minute, and print what changed about its groups, until it ends; \
                        watch:PID,every=TIME,for=TIME has other times. Nothing is changed";

/// Reads the text after `watch:`.
pub fn parse_watch(text: &str) -> Result<Watch, String> {
    let (pid, settings) = text.split_once(',').map_or((text, None), |(pid, settings)| (pid, Some(settings)));
    let pid = pid.parse().ok().filter(|pid| *pid > 0).ok_or_else(|| format!("`{pid}` is not a process id"))?;
    let mut watch = Watch { pid, every_ns: 60_000_000_000, for_ns: 5_000_000_000 };
    for (key, value) in settings.map_or(Ok(Vec::new()), |settings| pairs(settings, &[]))? {
        let time = match (key, value) {
            ("every", Some(_)) => &mut watch.every_ns,
            ("for", Some(_)) => &mut watch.for_ns,
            (key, value) => return Err(refusal("a watched process", key, value, &["every", "for"])),
        };
        *time = super::parse_time(value.unwrap_or_default())?;
    }
    match watch.for_ns > 0 && watch.for_ns <= watch.every_ns {
        true => Ok(watch),
        false => Err("`for` is longer than 0 and at most as long as `every`".into()),
    }
}

/// Arguments of `replay`.
#[derive(Args, Debug)]
pub struct ReplayArguments {
    /// The recording
    #[command(flatten)]
    pub recording: RecordingArguments,
    /// File for the workload; by default standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Draw each thread's work and sleeps from those recorded of its role instead of replaying them. Such a workload
    /// can have any length and varies with the seed, but no thread waits for another
    #[arg(long)]
    pub drawn: bool,
    /// Let each thread wait for the requests that it took, also where threads take requests of a common queue
    #[arg(long, conflicts_with = "drawn")]
    pub no_pools: bool,
}

/// Arguments of `group`.
#[derive(Args, Debug)]
#[command(mut_arg("recording", |recording| recording.help(OF_GROUP)))]
pub struct GroupArguments {
    /// The recording
    #[command(flatten)]
    pub recording: RecordingArguments,
    /// Machine on which to predict the gain of gathering each group; without it nothing is predicted
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Memory profile assumed for the threads of groups, such as canneal; without one, the prediction leaves memory out
    /// and counts only the cost of wakeups
    #[arg(long, value_name = "PROFILE", requires = "machine")]
    pub profile: Option<String>,
    /// Data that the threads of a group are assumed to share, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = super::whole_number::<u64, { u64::MAX }>)]
    pub shared: u64,
    /// Trials of each placement
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Seed from which the seeds of all trials follow
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = super::whole_number::<u64, { super::MAX_SEED }>)]
    pub seed: u64,
    /// File for a workload that replays the recording with its groups, for cache-aware schedulers to keep together
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

/// Where a recording's events come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum BackendName {
    /// Whichever works
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
    /// Length of the recording, such as 10s, after which a command that still runs is killed (SIGKILL) and a process goes on;
    /// the end of the command or the process ends it earlier
    #[arg(short, long, value_name = "TIME", value_parser = super::parse_time)]
    pub duration: Option<u64>,
    /// Run directory to make; by default recording-N in this directory
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = directory())]
    pub out: Option<PathBuf>,
    /// Room for events that wait to be read, KiB per CPU
    #[arg(long, value_name = "KIB", default_value_t = BUFFER_KIB, value_parser = clap::value_parser!(u32).range(64..=4_194_304))]
    pub buffer: u32,
    /// Also record the objects through which threads wake each other (futexes with their addresses, pipes and sockets), and
    /// which sleeps have a length and which an end; costs more. `warmcore group DIR/recording.dat` shows the objects
    #[arg(long)]
    pub calls: bool,
    /// Source of events: the kernel's own trace (`tracefs`), BPF programs (`bpf`), or `auto`: tracefs if it works
    #[arg(long, value_name = "NAME", value_enum, default_value = "auto")]
    pub backend: BackendName,
    /// Record counters of threads in each stay on a CPU: names separated by commas, `all` (the default) or `software`.
    /// The program names the counters that this computer lacks
    #[arg(long, value_name = "NAMES", num_args = 0..=1, require_equals = true, default_missing_value = "all", value_parser = warmcore_places::host::counters::Wanted::parse)]
    pub counters: Option<warmcore_places::host::counters::Wanted>,
    /// Record on which memory node the pages of each process are, every half second
    #[arg(long)]
    pub page_homes: bool,
    /// Run the command this many times without recording, in turn with as many recorded runs, and print what recording
    /// costs
    #[arg(long, value_name = "PAIRS", default_value_t = 0, requires = "command")]
    pub overhead: u32,
}
