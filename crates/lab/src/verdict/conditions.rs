//! What a verdict holds for beside what was asked: what a machine's description leaves open, memory, NUMA balancing, siblings, kernel threads, the warm-up, trials in lockstep.

use warmcore_memory::{Class, library};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_workload::{Drawn, ResultStyle, Step, Task, Workload};

use super::{ComparisonDocument, SchedulerResult, decimal};
use crate::experiment::{Experiment, ExperimentRecord};
use crate::headroom::{as_commands, bound_tasks};
use crate::measures::Measure;
use crate::units::duration;

/// Adds what simulations of an experiment assume.
pub(super) fn of_simulations(experiment: &Experiment, document: &mut ComparisonDocument) {
    let machine = &experiment.machine.value;
    document.conditions.extend(memory(experiment));
    document.conditions.extend(bounced_lines(experiment));
    document.conditions.extend(numa_balancing(experiment));
    document.conditions.extend(shared_cores(machine));
    document.conditions.extend(crate::load::warnings_of_machine(machine).cloned());
    document.conditions.extend(background(machine));
    document.conditions.extend(experiment.schedulers.iter().filter_map(without_effect));
    document.conditions.extend(classes_above(experiment));
    for (spec, note) in experiment.unknown() {
        let of_trials = format!("{spec}: {note} (");
        document.warnings.retain(|warning| !warning.starts_with(&of_trials));
        document.conditions.push(format!("of {spec}, {note}"));
    }
    if !document.lockstep.is_empty() {
        document.conditions.push(format!(
            "the {} trials of {} are in lockstep, with the same {} and as many events: they say no more than one of \
             them; times that vary (docs/workloads.md) would end it",
            experiment.seeds.len(),
            document.lockstep.join(", "),
            document.primary
        ));
    }
}

/// What tells, beside the verdict's measure, that trials are the same sequence of events. One measure alone does not: percentiles are edges
/// of buckets, and a run of a set length has always the same elapsed time.
const SEQUENCE: [&str; 5] = ["wakeups", "slices", "migrations_ran", "voluntary_switches", "involuntary_switches"];

/// Schedulers of at least two trials that have the same value of the verdict's measure and as many wakeups, slices, moves and switches in
/// all of them. Nothing then varies but what a tick more or less takes: further trials are the same run again.
pub(super) fn lockstep(schedulers: &[SchedulerResult], measure: &Measure) -> Vec<String> {
    let same = |scheduler: &SchedulerResult, name: &str| {
        let points = scheduler.measures.get(name).map_or(&[][..], |result| &result.points);
        points.len() > 1 && points[0].is_some() && points.iter().all(|point| *point == points[0])
    };
    let in_lockstep = |scheduler: &&SchedulerResult| {
        SEQUENCE.iter().chain([&measure.name.as_str()]).all(|name| same(scheduler, name))
    };
    schedulers.iter().filter(in_lockstep).map(|scheduler| scheduler.label.clone()).collect()
}

/// What follows from the experiment's record, from what the workload says of itself, and from what schedulers decided.
pub(super) fn of_record(
    record: &ExperimentRecord,
    workload: &Workload,
    schedulers: &[SchedulerResult],
    measure: &Measure,
) -> Vec<String> {
    let warm_up = |ns: u64| format!("the first {} of each run do not count (--warm-up)", duration(ns as f64));
    let of_schedulers =
        schedulers.iter().flat_map(|scheduler| left_apart(scheduler).into_iter().chain(unsettled(scheduler)));
    let of_workload = workload.notes.iter().cloned().chain(own_latency(measure)).chain(late_arrivals(workload));
    of_workload.chain(record.options.warm_up_ns.map(warm_up)).chain(of_schedulers).collect()
}

/// Two latencies of wakeups stand side by side: the workload's own, and the kernel's.
fn own_latency(measure: &Measure) -> Option<String> {
    (measure.name.starts_with("recorder_") && measure.title.starts_with("wakeup")).then(|| {
        format!(
            "{} is what the workload's threads record, with the call that wakes them; wake p99 is from each wakeup until the thread runs",
            measure.title
        )
    })
}

/// Requests that a task adds at drawn times, and so late as it waits for a CPU. Of sysbench that is so in the program, too.
fn late_arrivals(workload: &Workload) -> Option<String> {
    let adds = |step: &Step| matches!(step, Step::SemPost(_) | Step::Submit { .. });
    let arrives = |step: &Step| matches!(step, Step::Draw { what: Drawn::Arrival { .. }, .. });
    let is_late = |task: &&Task| {
        let steps = &workload.programs[task.program.index()].steps;
        !task.policy.is_realtime() && steps.iter().any(arrives) && steps.iter().any(adds)
    };
    let task = workload.tasks.iter().find(is_late).filter(|_| workload.style == ResultStyle::Plain)?;
    Some(format!(
        "{} adds its requests when it has a CPU: what it waits for one is in no request's time, and a real-time policy would end it",
        task.name
    ))
}

/// Whether tasks went from LLC to LLC at another rate at the end of runs than at their beginning, and still did: by twice as much, and by
/// more than three standard deviations of counts that are the same. A longer run would have another share of either.
fn unsettled(scheduler: &SchedulerResult) -> Option<String> {
    let median = |name: &str| scheduler.measures.get(name)?.summary.median;
    let (first, last) = (median("cross_llc_first_quarter")?, median("cross_llc_last_quarter")?);
    let (less, more) = (first.min(last), first.max(last));
    let differ = more >= 2.0 * less && more - less > 3.0 * (more + less).sqrt();
    (differ && last > 0.0).then(|| {
        format!(
            "placement still changed when runs of {} ended: {first:.0} moves between LLCs in the first quarter, {last:.0} in the last; a longer \
             run, or a --warm-up, may say something else",
            scheduler.label
        )
    })
}

/// Cache-aware scheduling that chose an LLC and could gather nobody there, by its own count: in half of the trials or more, scans found every
/// thread of the program that was elsewhere alone in its LLC, and none was ever pulled.
fn left_apart(scheduler: &SchedulerResult) -> Option<String> {
    let points = |what: &str| scheduler.decisions.iter().find(|decision| decision.what == what).map(|d| &d.points);
    let apart = points("threads left apart")?;
    let pulled = points("task pulled");
    let held = |(trial, count): &(usize, &u64)| **count > 0 && pulled.is_none_or(|pulled| pulled[*trial] == 0);
    let trials: Vec<u64> = apart.iter().enumerate().filter(held).map(|(_, count)| *count).collect();
    (2 * trials.len() >= apart.len()).then(|| {
        format!(
            "{} chose a preferred LLC and no thread could be pulled there in {} of {} trials: at up to {} scans of a trial each \
             thread elsewhere ran alone in its LLC, from which balancing takes none (docs/models/cache-aware.md)",
            scheduler.label,
            trials.len(),
            apart.len(),
            trials.iter().max().copied().unwrap_or(0)
        )
    })
}

/// Real-time and deadline tasks under schedulers that no present Linux kernel has: the classes above them are Linux's all the same.
fn classes_above(experiment: &Experiment) -> Option<String> {
    let is_foreign = |(number, spec): &(usize, &SchedulerSpec)| {
        spec.info().linux.is_none() && experiment.workload_of(*number).value.has_realtime()
    };
    let foreign = experiment.schedulers.iter().enumerate().filter(is_foreign);
    let names: Vec<String> = foreign.map(|(_, spec)| spec.to_string()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "real-time and deadline tasks run above {} in the classes of Linux 7.2, with their server, also where a scheduler's own kernel has \
             others (docs/models/realtime.md)",
            names.join(", ")
        )
    })
}

fn without_effect(spec: &SchedulerSpec) -> Option<String> {
    let (setting, needed) = spec.without_effect()?;
    Some(format!("of {spec}, {setting} decides nothing without {needed}"))
}

/// What columns have of their own: the sentence of each says what it differs in beside its scheduler.
pub(super) fn of_columns(experiment: &Experiment) -> impl Iterator<Item = String> + '_ {
    experiment.columns.iter().filter_map(move |(scheduler, own)| {
        let machine = own.machine.as_ref().map(|machine| {
            let value = &machine.value;
            let work = if experiment.options.memory == MemoryChoice::None {
                String::new()
            } else {
                format!(", and does the work that takes its time on {}", experiment.machine.source)
            };
            format!("runs on {}, of {} CPUs under {} LLCs{work}", machine.source, value.cpu_count(), value.llc_count())
        });
        let workload = own.workload.as_ref().filter(|own| own.source != experiment.workload.source);
        let workload = workload.map(|workload| format!("has the workload {}", workload.source));
        let words = experiment.schedulers[*scheduler].circumstances();
        let kept = (words.cpus.is_some() || words.smt_off) && !experiment.place.kind().keeps_to_cpus;
        let bound = match (&own.workload, words.pin.is_some()) {
            (Some(workload), true) => {
                Some(format!("has its threads bound: {}", as_commands(&bound_tasks(&workload.value))))
            }
            _ => kept.then(|| "has its tasks bound by affinity, as taskset binds them".to_owned()),
        };
        let all: Vec<String> = [machine, workload, bound].into_iter().flatten().collect();
        (!all.is_empty()).then(|| format!("`{}` {}", experiment.schedulers[*scheduler], all.join("; ")))
    })
}

/// How fast memory is, and whose profile says what tasks do to it.
fn memory(experiment: &Experiment) -> Option<String> {
    let workload = &experiment.workload.value;
    if experiment.options.memory == MemoryChoice::None {
        return Some("memory has constant speed: what caches hold decides nothing (--memory, --assume-profile)".into());
    }
    let mut names: Vec<&str> = Vec::new();
    for task in &workload.tasks {
        for name in task.profile.iter().chain(task.phase_profiles.iter().map(|(_, name)| name)) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let level = if experiment.options.memory.is_exact() { "exact" } else { "analytic" };
    let named = if names.len() > 1 { "profiles" } else { "profile" };
    (!names.is_empty()).then(|| format!("{level} memory, with the {named} {}", names.join(", ")))
}

/// Few lines that several tasks write, where transfers of a line do not wait for each other: exact memory touches 32 lines in a row.
fn bounced_lines(experiment: &Experiment) -> Option<String> {
    let workload = &experiment.workload.value;
    // One task has nobody to share with; those that a step forks are several.
    let is_alone = workload.tasks.len() == 1 && workload.tasks[0].instances == 1;
    if !experiment.options.memory.is_exact() || is_alone {
        return None;
    }
    let tasks = workload.tasks.iter();
    let mut names = tasks.flat_map(|task| task.profile.iter().chain(task.phase_profiles.iter().map(|(_, name)| name)));
    let of_few = |name: &String| {
        let own = workload.profiles.iter().find(|profile| profile.name == *name).cloned();
        let profile = own.or_else(|| library::find(name).cloned())?;
        let bounced = |class: &&Class| class.is_shared() && class.write_fraction > 0.0 && class.bytes < BOUNCED_BYTES;
        let class = profile.classes.iter().find(bounced)?;
        Some(format!(
            "exact memory prices the {} bytes `{}` that several tasks of profile {name} write far too cheaply, as their transfers do not wait \
             for each other; --memory analytic has them wait (docs/models/memory-exact.md)",
            class.bytes, class.name
        ))
    };
    names.find_map(of_few)
}

/// Shared sets smaller than this, about 100 lines, cost too little under exact memory when they are written.
const BOUNCED_BYTES: u64 = 6400;

/// Under which schedulers pages follow tasks, on a machine of several memories.
fn numa_balancing(experiment: &Experiment) -> Option<String> {
    let machine = &experiment.machine.value;
    let on = |spec: &&SchedulerSpec| {
        spec.effective(machine.cpu_count()).iter().any(|(name, value)| *name == NUMA_BALANCING && *value != 0)
    };
    let names: Vec<String> = experiment.schedulers.iter().filter(on).map(ToString::to_string).collect();
    (machine.nodes().count() > 1 && experiment.options.memory != MemoryChoice::None && !names.is_empty())
        .then(|| format!("NUMA balancing is on under {} ({NUMA_BALANCING}=0 turns it off)", names.join(", ")))
}

/// The tunable of the fair class that lets pages follow tasks.
const NUMA_BALANCING: &str = "numa_balancing";

/// What runs beside the workload, if anything does.
fn background(machine: &Machine) -> Option<String> {
    let background = machine.background();
    let interrupts = if background.interrupts.is_empty() {
        ""
    } else {
        ", and interrupts take their time from the interrupted task"
    };
    let said = format!(
        "kernel threads run next to the workload, and no metric counts them{interrupts} (--background {})",
        background.name
    );
    (!background.is_empty()).then_some(said)
}

/// How far hardware threads of one core slow each other, where there are any.
fn shared_cores(machine: &Machine) -> Option<String> {
    let slowdown = machine.costs().smt_slowdown();
    let origin = machine.origin("costs.smt_slowdown_percent").map_or_else(String::new, |origin| origin.short() + "; ");
    (machine.smt_width() > 1).then(|| {
        format!("work next to a busy sibling takes {} times as long ({origin}--smt-slowdown)", decimal(1.0 + slowdown))
    })
}
