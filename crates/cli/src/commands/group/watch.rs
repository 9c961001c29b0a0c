//! `warmcore group watch:PID`: a process that runs on this computer is recorded for some seconds again and again, and what became of its
//! groups is printed. Nothing is changed, and between two recordings nothing is traced.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use warmcore_lab::experiment::{Named, TOOL_VERSION};
use warmcore_places::host::recorder::descendants;
use warmcore_places::host::trial::Watched;
use warmcore_replay::followed::{Change, Followed, QUIET, Update};
use warmcore_replay::{Graph, Groups};

use super::MOST_SHOWN;
use crate::args::{GroupArguments, Watch, parse_watch};
use crate::commands::compare::{unix_seconds, utc_stamp};
use crate::commands::record;
use crate::console::Console;
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

/// Longest time without a look at whether a signal came, which another thread than this one may have taken.
const LOOK: Duration = Duration::from_secs(1);

/// Runs until the process ends or a signal comes.
pub(super) fn run(text: &str, arguments: &GroupArguments, console: &Console) -> Result<(), Failure> {
    let Watch { pid, every_ns, for_ns } = parse_watch(text).map_err(|reason| {
        Failure::usage("warmcore::usage", format!("watch:{text}: {reason}"))
            .help("such as watch:4711, or watch:4711,every=10s,for=2s")
    })?;
    let GroupArguments { recording, machine, profile, out, .. } = arguments;
    let is_of_recordings =
        !recording.only.is_empty() || recording.scheduler.is_some() || recording.recorded_on.is_some();
    if is_of_recordings || machine.is_some() || profile.is_some() || out.is_some() {
        return Err(Failure::usage("warmcore::usage", "watch:PID has no options: nothing is predicted or written")
            .help("`warmcore record --pid PID` makes a recording, which has all of them"));
    }
    let signals = Signals::listen()?;
    let gone = || Failure::usage("warmcore::record", format!("there is no process {pid}")).help("check the number");
    let process = Watched::new(pid).map_err(|_| gone())?;
    let machine = Named { source: "host".into(), value: load::machine("host")?.value };
    let mut followed = Followed::default();
    let mut names = BTreeMap::new();
    for reading in 0.. {
        let start = Instant::now();
        let (every, length) = (Duration::from_nanos(every_ns), Duration::from_nanos(for_ns));
        let loaded = record::of_process(pid, length, &machine, &signals);
        if signals.stop.load(Ordering::Relaxed) {
            return Err(signals.failure("interrupted"));
        }
        let ended = process.wait(Duration::ZERO);
        match loaded {
            Ok(loaded) => {
                let graph = Graph::of(&loaded.recording, &loaded.chosen, &loaded.histories);
                let groups = Groups::of(&graph);
                names.extend(loaded.histories.threads.iter().map(|(id, history)| (*id, history.name.clone())));
                let alive = descendants(pid);
                let update = followed.update(&groups, |thread| alive.contains_key(&thread));
                names.retain(|thread, _| alive.contains_key(thread) || is_told(&update, *thread));
                let is_first = reading == 0;
                if !console.json() {
                    console.out(&words(is_first, &update, &followed, (&graph, &groups), &names))?;
                } else if is_first || !update.changes.is_empty() {
                    let event = if is_first { "began" } else { "changed" };
                    console.out(&line(event, &update, &followed, groups.stability, &names))?;
                }
            }
            // What it did to its end may be nothing.
            Err(_) if ended => {}
            Err(error) => return Err(error),
        }
        let rest = || every.saturating_sub(start.elapsed());
        while !process.wait(rest().min(LOOK)) {
            if signals.stop.load(Ordering::Relaxed) {
                return Err(signals.failure("interrupted"));
            }
            if rest().is_zero() {
                break;
            }
        }
        if process.wait(Duration::ZERO) || !Path::new(&format!("/proc/{pid}")).exists() {
            let told = match console.json() {
                true => line("ended", &Update::default(), &followed, None, &names),
                false => format!("{} process {pid} ended\n", utc_stamp(unix_seconds())),
            };
            return Ok(console.out(&told)?);
        }
    }
    Ok(())
}

/// A line of `--json`.
#[derive(Serialize)]
struct WatchDocument<'a> {
    schema: &'static str,
    tool_version: &'static str,
    time: String,
    /// `began`, `changed` or `ended`.
    event: &'static str,
    /// Threads of each group by its number.
    groups: BTreeMap<u32, Vec<i32>>,
    names: &'a BTreeMap<i32, String>,
    appeared: &'a [u32],
    changes: &'a [Change],
    gone: &'a [u32],
    agreement: Option<f64>,
    stability: Option<f64>,
}

fn line(
    event: &'static str,
    update: &Update,
    followed: &Followed,
    stability: Option<f64>,
    names: &BTreeMap<i32, String>,
) -> String {
    let Update { appeared, changes, gone, agreement } = update;
    let document = WatchDocument {
        schema: "warmcore-group-watch-1",
        tool_version: TOOL_VERSION,
        time: utc_stamp(unix_seconds()),
        event,
        groups: followed.groups(),
        names,
        appeared,
        // Those of the beginning are its groups.
        changes: if event == "began" { &[] } else { changes },
        gone,
        agreement: *agreement,
        stability,
    };
    // Numbers, words and lists of them can always be written.
    serde_json::to_string(&document).unwrap_or_default() + "\n"
}

/// Whether a change names the thread.
fn is_told(update: &Update, wanted: i32) -> bool {
    update.changes.iter().any(|change| match *change {
        Change::Joined { thread, .. } | Change::Moved { thread, .. } | Change::Left { thread, .. } => thread == wanted,
    })
}

/// The groups of the first reading, what another one changed, or nothing.
fn words(
    is_first: bool,
    update: &Update,
    followed: &Followed,
    (graph, groups): (&Graph, &Groups),
    names: &BTreeMap<i32, String>,
) -> String {
    let name = |thread: &i32| format!("{} ({thread})", names.get(thread).map_or("thread", String::as_str));
    let halves = groups.stability.map_or_else(
        || "no thread is heard of in both halves of this reading".to_owned(),
        |stability| format!("the halves of this reading agree to {stability:.2}"),
    );
    let now = utc_stamp(unix_seconds());
    let mut text = String::new();
    if is_first {
        let (threads, alone) = (graph.threads.len(), groups.alone.len());
        let _ = writeln!(text, "{now} {threads} threads in {} groups, {alone} alone; {halves}", groups.groups.len());
        for (group, threads) in followed.groups() {
            let mut told: Vec<String> = threads.iter().take(MOST_SHOWN).map(&name).collect();
            if threads.len() > MOST_SHOWN {
                told.push(format!("{} more", threads.len() - MOST_SHOWN));
            }
            let _ = writeln!(text, "  group {group}: {}", told.join(", "));
        }
        return text;
    }
    if update.changes.is_empty() {
        return text;
    }
    let agreement = update.agreement.map_or_else(
        || "no thread of a group was in one before".to_owned(),
        |agreement| format!("groups agree with those before to {agreement:.2}"),
    );
    let _ = writeln!(text, "{now} {agreement} (adjusted Rand index); {halves}");
    update.appeared.iter().for_each(|group| text.push_str(&format!("  group {group} is new\n")));
    for change in &update.changes {
        let _ = match change {
            Change::Joined { thread, group } => writeln!(text, "  {} joined group {group}", name(thread)),
            Change::Moved { thread, from, to } => {
                writeln!(text, "  {} moved from group {from} to group {to}", name(thread))
            }
            Change::Left { thread, group, ended: true } => {
                writeln!(text, "  {} left group {group}: it ended", name(thread))
            }
            Change::Left { thread, group, ended: false } => {
                writeln!(text, "  {} left group {group}: {QUIET} readings show no evidence", name(thread))
            }
        };
    }
    update.gone.iter().for_each(|group| text.push_str(&format!("  group {group} is gone\n")));
    text
}
