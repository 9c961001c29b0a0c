//! What a sched_ext scheduler does in a run: how often each of its operations was called, by the kernel's own count, and, if asked for, which
//! functions of the kernel its programs called, by probes on their entries that note the stack.
//!
//! Source: `Documentation/admin-guide/sysctl/kernel.rst` (`bpf_stats_enabled`), `Documentation/trace/fprobetrace.rst`.

use std::fs::{self, File};

use warmcore_agent::files;
use warmcore_agent::report::Sample;
use warmcore_options::Observe;

use crate::bpf;

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const TRACEFS: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "/sys/kernel/tracing/instances/calls";
/// Probes are events of this system.
const SYSTEM: &str = "calls";
/// Functions whose calls are recorded begin so.
const LENT: [&str; 2] = ["scx_bpf_", "__scx_bpf_"];
/// Functions that call operations: a call of one ends what an operation called before on that CPU.
const CALLERS: [&str; 16] = [
    "select_task_rq_scx",
    "enqueue_task_scx",
    "dequeue_task_scx",
    "put_prev_task_scx",
    "set_next_task_scx",
    "balance_one",
    "task_tick_scx",
    "do_enqueue_task",
    "dispatch_to_local_dsq",
    "finish_dispatch",
    "scx_init_task",
    "__scx_init_task",
    "scx_enable_task",
    "scx_disable_task",
    "__scx_update_idle",
    "bpf_timer_cb",
];
/// Room for records, KiB per CPU.
const BUFFER_KIB: &str = "16384";
/// A line of a stack begins so.
const FRAME: &str = " => ";
/// A program's name in a stack begins so.
const PROGRAM: &str = "bpf_prog_";
/// Bytes of text in a frame.
const PART: usize = 4 << 20;

/// What was seen.
#[derive(Default)]
pub struct Seen {
    /// How often each program of a table of operations was called.
    pub operations: Vec<(String, u64)>,
    /// The records of calls.
    pub calls: Vec<Sample>,
}

/// An observation of a run.
pub struct Observer {
    what: Observe,
    before: Vec<(String, u64)>,
}

impl Observer {
    /// Begins. The scheduler is loaded.
    pub fn start(what: Observe) -> Result<Self, String> {
        let mut before = Vec::new();
        if what != Observe::Nothing {
            files::write(STATISTICS, "1")?;
            before = operations()?;
        }
        if what == Observe::Calls {
            probe()?;
        }
        Ok(Self { what, before })
    }

    /// Ends.
    pub fn stop(self) -> Result<Seen, String> {
        if self.what == Observe::Nothing {
            return Ok(Seen::default());
        }
        let calls = if self.what == Observe::Calls { calls()? } else { Vec::new() };
        let counted = operations()?.into_iter().map(|(name, count)| {
            let before = self.before.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
            (name, count.saturating_sub(before))
        });
        let operations = counted.collect();
        files::write(STATISTICS, "0")?;
        Ok(Seen { operations, calls })
    }
}

fn operations() -> Result<Vec<(String, u64)>, String> {
    bpf::operations().map_err(|error| format!("the programs that are loaded cannot be listed: {error}"))
}

/// Puts probes on what programs call and on who calls programs, and records from now on.
fn probe() -> Result<(), String> {
    let functions = files::read(&format!("{TRACEFS}/available_filter_functions"))?;
    let mut names: Vec<&str> = functions.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_unstable();
    names.dedup();
    fs::create_dir_all(INSTANCE).map_err(|error| format!("cannot make {INSTANCE}: {error}"))?;
    let mut probes = 0;
    for name in names {
        let lent = LENT.iter().any(|start| name.starts_with(start));
        if !lent && !CALLERS.contains(&name) {
            continue;
        }
        let definition = format!("f:{SYSTEM}/{name} {name}");
        // One that was inlined into all who call it, or cannot be probed, is told by its absence in the records.
        if files::write(&format!("{TRACEFS}/dynamic_events"), &definition).is_ok() {
            let event = format!("{INSTANCE}/events/{SYSTEM}/{name}");
            if lent {
                files::write(&format!("{event}/trigger"), "stacktrace")?;
            }
            files::write(&format!("{event}/enable"), "1")?;
            probes += 1;
        }
    }
    if probes == 0 {
        return Err("the kernel takes no probe on a function that it lends to programs".into());
    }
    files::write(&format!("{INSTANCE}/trace_clock"), "mono")?;
    files::write(&format!("{INSTANCE}/options/overwrite"), "0")?;
    files::write(&format!("{INSTANCE}/buffer_size_kb"), BUFFER_KIB)?;
    File::create(format!("{INSTANCE}/trace")).map_err(|error| format!("cannot empty {INSTANCE}: {error}"))?;
    files::write(&format!("{INSTANCE}/tracing_on"), "1")
}

/// The records as text, in parts, and the probes gone.
fn calls() -> Result<Vec<Sample>, String> {
    files::write(&format!("{INSTANCE}/tracing_on"), "0")?;
    let text = fs::read_to_string(format!("{INSTANCE}/trace")).map_err(|error| format!("{INSTANCE}/trace: {error}"))?;
    let mut parts: Vec<String> = vec![String::new()];
    // Of a stack programs are of interest, and what they may call.
    let is_kept = |line: &&str| !line.starts_with(FRAME) || line.contains(PROGRAM) || line.contains(LENT[0]);
    for line in text.lines().filter(is_kept) {
        if parts.last().is_some_and(|part| part.len() + line.len() > PART) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    files::write(&format!("{INSTANCE}/events/{SYSTEM}/enable"), "0")?;
    fs::remove_dir(INSTANCE).map_err(|error| format!("cannot remove {INSTANCE}: {error}"))?;
    for name in files::names(&format!("{TRACEFS}/events/{SYSTEM}")) {
        if name != "enable" && name != "filter" {
            files::write(&format!("{TRACEFS}/dynamic_events"), &format!("-:{SYSTEM}/{name}"))?;
        }
    }
    let sample = |text| Sample { time_ns: 0, texts: vec![(CALLS.to_owned(), text)] };
    Ok(parts.into_iter().map(sample).collect())
}

/// Name of the text in samples.
const CALLS: &str = warmcore_agent::report::CALLS;
