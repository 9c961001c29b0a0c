//! `warmcore group`: which threads of a recording belong together, on what evidence, what gathering them would win, and how to.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use warmcore_capture::Call;
use warmcore_lab::experiment::{TOOL_VERSION, trial_seeds};
use warmcore_lab::session::pretty;
use warmcore_memory::library;
use warmcore_options::MemoryChoice;
use warmcore_places::place::BatchConduct;
use warmcore_replay::{Edge, Fidelity, Graph, Groups, ThreadGroup};
use warmcore_search::gathering::{GatheringError, GatheringGain, Members, Placing, gains, places};
use warmcore_statistics::Comparison;
use warmcore_topology::{CpuId, CpuSet, Machine};

use crate::args::GroupArguments;
use crate::commands::recording::Loaded;
use crate::commands::{recording, write_output};
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

mod advice;
mod watch;

/// Edges and threads that are shown of a group.
const MOST_SHOWN: usize = 6;

/// Below the table of gains: what its last column rests on.
const RELIABILITY: &str = "\nIn 20 measured mixes with all groups gathered, predicted changes of CPU time above 1 % had the right sign in 22 of 23 \
                           cases. For elapsed time, single groups and smaller changes it was no better than a random guess.\n";

#[derive(Serialize)]
struct GroupDocument<'a> {
    schema: &'static str,
    tool_version: &'static str,
    names: BTreeMap<i32, &'a str>,
    /// Whether the recording says who woke whom: without that it cannot tell who belongs together.
    wakers_known: bool,
    groups: &'a Groups,
    graph: &'a Graph,
    fidelity: &'a Fidelity,
    /// What the prediction rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    assumption: Option<String>,
    gains: &'a [GatheringGain],
}

/// Runs the verb.
pub fn run(arguments: &GroupArguments, console: &Console) -> Result<(), Failure> {
    if let Some(watched) = arguments.recording.recording.to_str().and_then(|text| text.strip_prefix("watch:")) {
        return watch::run(watched, arguments, console);
    }
    let loaded = recording::load(&arguments.recording, console)?;
    let graph = Graph::of(&loaded.recording, &loaded.chosen, &loaded.histories);
    recording::whole(loaded.recording.pages.as_ref())?;
    let groups = Groups::of(&graph);
    let mut made =
        warmcore_replay::workload::replay(&loaded.name, &loaded.histories, &loaded.recording, loaded.overheads);
    if let Some(profile) = &arguments.profile
        && library::find(profile).is_none()
    {
        return Err(Failure::usage("warmcore::recording", format!("there is no memory profile `{profile}`"))
            .help("`warmcore list profiles` lists them"));
    }
    made.keep_together(&groups, arguments.shared.saturating_mul(1024), arguments.profile.as_deref());
    if let Some(out) = &arguments.out {
        let text = warmcore_workload::to_rtapp(&made.workload)
            .map_err(|error| Failure::failed("warmcore::workload", error))?;
        write_output(Some(out), &text, console)?;
    }
    let mut assumption = None;
    let mut found = Vec::new();
    let span = loaded.histories.span_ns.max(1);
    let members: Vec<Members> = groups
        .groups
        .iter()
        .map(|group| Members {
            tasks: group.threads.iter().filter_map(|thread| made.tasks.get(thread).copied()).collect(),
            busy_cpus_milli: cpu_ns(&loaded, group).saturating_mul(1000) / span,
        })
        .collect();
    let machine = arguments.machine.as_deref().map(load::machine).transpose()?.map(|machine| machine.value);
    if let Some(machine) = machine.as_ref().filter(|_| !groups.groups.is_empty()) {
        let memory = if arguments.profile.is_some() { MemoryChoice::Analytic } else { MemoryChoice::None };
        let signals = Signals::listen()?;
        let conduct = BatchConduct { jobs: console.jobs(), stop: signals.stop.clone() };
        let seeds = trial_seeds(arguments.seed, arguments.trials);
        found =
            gains(machine, &made.workload, &members, &[Placing::Gathered, Placing::Spread], &seeds, memory, &conduct)
                .map_err(|error| match error {
                GatheringError::Place(error) => load::place_failure(error, Some(&signals)),
                other => Failure::failed("warmcore::recording", other),
            })?;
        assumption = Some(match &arguments.profile {
            Some(profile) => format!(
                "simulated under eevdf on {}, assuming that every thread of a group works like `{profile}` and that a group shares {} KiB: a \
                 scheduler's recording does not show what threads do to memory",
                machine.name(),
                arguments.shared
            ),
            None => format!(
                "simulated under eevdf on {} without memory: only what wakeups and queues cost is counted; `--profile` adds an assumption on \
                 memory",
                machine.name()
            ),
        });
    }
    if console.json() {
        let document = GroupDocument {
            schema: "warmcore-groups-1",
            tool_version: TOOL_VERSION,
            names: graph.threads.iter().map(|thread| (*thread, name(&loaded, *thread))).collect(),
            wakers_known: loaded.recording.has_wakers(),
            groups: &groups,
            graph: &graph,
            fidelity: &made.fidelity,
            assumption,
            gains: &found,
        };
        return Ok(console.out(&pretty(&document))?);
    }
    let mut text = in_words(&loaded, &graph, &groups);
    if let Some(assumption) = assumption {
        let _ = write!(
            text,
            "\nWhat placement would win, {assumption}:\n\n{}{RELIABILITY}",
            console.table(&gain_table(&found, made.fidelity.held.is_some()))
        );
    }
    let acted_on = machine.as_ref().or(loaded.machine.as_ref());
    let on = machine.as_ref().map(|machine| machine.name().to_owned());
    let on = on.or_else(|| loaded.machine.as_ref().map(|_| "the machine that it was recorded on".to_owned()));
    let lists = acted_on.map(|machine| cpu_lists(machine, &members)).unwrap_or_default();
    let on = on.as_deref().zip(acted_on.map(Machine::llc_count));
    text.push_str(&advice::how_to_act(&loaded, &groups, on, &lists));
    Ok(console.out_words(&text)?)
}

fn name(loaded: &Loaded, thread: i32) -> &str {
    loaded.histories.threads.get(&thread).map_or("", |history| &history.name)
}

fn cpu_ns(loaded: &Loaded, group: &ThreadGroup) -> u64 {
    group.threads.iter().filter_map(|thread| loaded.histories.threads.get(thread)).map(|history| history.cpu_ns).sum()
}

fn in_words(loaded: &Loaded, graph: &Graph, groups: &Groups) -> String {
    if !loaded.recording.has_wakers() {
        return format!(
            "{} threads. This recording does not show which of them belong together: it has no wakers (sched_waking).\n",
            graph.threads.len()
        );
    }
    let wakes: u64 = graph.edges.iter().map(Edge::wakes).sum();
    let mut text = format!(
        "{} threads in {} groups, {} alone. {wakes} wakeups between threads are evidence, {} are too few or chance, {} came from outside. \
         {}\n",
        graph.threads.len(),
        groups.groups.len(),
        groups.alone.len(),
        graph.discarded,
        graph.from_outside,
        groups.stability.map_or("No thread is heard of in both halves.".to_owned(), |stability| format!(
            "The groups of the first half are those of the second to {stability:.2} (adjusted Rand index)."
        ))
    );
    // Numbers of tasks of a simulated run are nothing that a user has seen.
    let whole = |thread: i32| match loaded.numbered {
        false => name(loaded, thread).to_owned(),
        true => format!("{} ({thread})", name(loaded, thread)),
    };
    for (number, group) in (1..).zip(&groups.groups) {
        let percent = |share: &Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0}", share * 100.0));
        let shares: Vec<String> = group.inside.iter().map(percent).collect();
        let _ = writeln!(
            text,
            "\nGroup {number}: {} threads, {:.2} CPUs busy, {} wakeups inside and {} across ({} % inside, by quarter of the time)",
            group.threads.len(),
            cpu_ns(loaded, group) as f64 / loaded.histories.span_ns.max(1) as f64,
            group.wakes_inside,
            group.wakes_across,
            shares.join(", ")
        );
        let mut threads: Vec<String> = group.threads.iter().take(MOST_SHOWN).map(|thread| whole(*thread)).collect();
        if group.threads.len() > MOST_SHOWN {
            threads.push(format!("{} more", group.threads.len() - MOST_SHOWN));
        }
        let _ = writeln!(text, "  {}", threads.join(", "));
        let has = |thread: i32| group.threads.binary_search(&thread).is_ok();
        let mut edges: Vec<&Edge> = graph.edges.iter().filter(|edge| has(edge.a) && has(edge.b)).collect();
        edges.sort_by_key(|edge| (std::cmp::Reverse(edge.wakes()), edge.a, edge.b));
        for edge in edges.iter().take(MOST_SHOWN) {
            let softirq =
                if edge.by_softirq > 0 { format!(", {} by softirqs", edge.by_softirq) } else { String::new() };
            let _ = writeln!(
                text,
                "  {} woke {} {} times and was woken {} times{softirq}",
                whole(edge.a),
                whole(edge.b),
                edge.a_wakes_b,
                edge.b_wakes_a
            );
        }
        let mut media: Vec<_> = graph.media.iter().filter(|medium| has(medium.waker) && has(medium.woken)).collect();
        media.sort_by_key(|medium| (std::cmp::Reverse(medium.wakes), medium.waker, medium.woken));
        for medium in media.iter().take(MOST_SHOWN) {
            let through = match medium.call {
                Call::FutexWake | Call::FutexWait => format!("the futex at {:#x}", medium.object),
                Call::Write | Call::Read | Call::Accept | Call::Connect => match &medium.file {
                    Some(file) if medium.shared => format!("{file}, which both have open,"),
                    Some(file) => format!("{file}, its file {},", medium.object),
                    None => format!("its file {}", medium.object),
                },
                // No wakeup goes through these.
                Call::SleepFor | Call::SleepUntil | Call::TimerFor | Call::TimerUntil | Call::Poll => continue,
            };
            let _ = writeln!(
                text,
                "  {} woke {} through {through} {} times",
                whole(medium.waker),
                whole(medium.woken),
                medium.wakes
            );
        }
    }
    text
}

/// Where arrivals hold the elapsed time, response time says what placement changes.
fn gain_table(gains: &[GatheringGain], held: bool) -> Table {
    let time = if held { ">response" } else { ">elapsed" };
    let mut table = Table::new(["group", "placement", time, "95 % interval", ">CPU time", "95 % interval", "tells"]);
    let ratio = |comparison: &Comparison| comparison.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
    let interval = |comparison: &Comparison| {
        comparison.interval.map_or("-".into(), |interval| format!("{:.3} to {:.3}", interval.low, interval.high))
    };
    for gain in gains {
        table.row([
            gain.group.map_or("all".into(), |group| (group + 1).to_string()),
            gain.placement.name().to_owned(),
            ratio(if held { &gain.response } else { &gain.elapsed }),
            interval(if held { &gain.response } else { &gain.elapsed }),
            ratio(&gain.cpu_time),
            interval(&gain.cpu_time),
            gain.tells.words().to_owned(),
        ]);
    }
    table
}

/// The CPUs of each group where each is gathered, as lists of the operating system's numbers.
fn cpu_lists(machine: &Machine, members: &[Members]) -> BTreeMap<usize, String> {
    let numbers = |cpus: CpuSet| cpus.iter().map(|cpu| CpuId(machine.os_index(cpu))).collect::<CpuSet>().to_string();
    places(machine, members).into_iter().map(|(group, cpus)| (group, numbers(cpus))).collect()
}
