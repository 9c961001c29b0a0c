//! What a verdict holds for beside what was asked: what a machine's description leaves open, memory, NUMA balancing, siblings, kernel threads,
//! the warm-up, waits of several roles in one number, trials in lockstep, and threads that a cache-aware scheduler refused to gather or left apart.

use warmcore_memory::{Class, library};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::Sample;
use warmcore_topology::Machine;
use warmcore_workload::{Drawn, ResultStyle, Step, Task, Workload};

use super::answerable::small_part_without_profile;
use super::{ComparisonDocument, Finding, SchedulerResult, decimal, within};
use crate::column::Column;
use crate::experiment::{Experiment, ExperimentRecord, Named};
use crate::headroom::{as_commands, bound_tasks};
use crate::measures::{ELAPSED, ENERGY, Measure, Unit, WORK, is_of_each};
use crate::trial::Trial;
use crate::units::duration;

mod gathering;
mod roles;

/// Adds what simulations of an experiment assume.
pub(super) fn of_simulations(experiment: &Experiment, document: &mut ComparisonDocument) {
    let machine = &experiment.machine.value;
    document.conditions.extend(memory(experiment));
    document.conditions.extend(bounced_lines(experiment));
    document.conditions.extend(numa_balancing(experiment));
    document.conditions.extend(of_machines(experiment, shared_cores));
    document.conditions.extend(asymmetric_packing(experiment));
    let machines = std::iter::once(machine).chain(own_machines(experiment).map(|own| &own.value));
    document.conditions.extend(without_repeats(machines.flat_map(crate::load::warnings_of_machine)));
    document.conditions.extend(of_machines(experiment, background));
    document.conditions.extend(experiment.schedulers.iter().filter_map(without_effect));
    document.conditions.extend(without_frequencies(experiment));
    document.conditions.extend(energy_of_other_work(document));
    document.conditions.extend(assumed_searches(document));
    document.conditions.extend(gathering::assumed_scans(machine, document));
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
    experiment: &Experiment,
    record: &ExperimentRecord,
    (schedulers, trials): (&[SchedulerResult], &[Vec<Trial>]),
    measure: &Measure,
) -> Vec<String> {
    let of_schedulers = schedulers.iter().zip(trials).enumerate().flat_map(|(index, (scheduler, trials))| {
        let by_masks = gathering::apart_by_masks(experiment, index);
        let apart = if by_masks || gathering::are_together(trials) { None } else { gathering::left_apart(scheduler) };
        let unsettled = unsettled(scheduler, trials, measure);
        let half = match apart {
            None if !by_masks => gathering::half_gathered(scheduler, trials, unsettled.is_some()),
            _ => None,
        };
        gathering::refused(scheduler)
            .into_iter()
            .chain(gathering::one_thread_each(scheduler))
            .chain(apart)
            .chain(half)
            .chain(unsettled)
            .chain(first_turns(scheduler, measure))
            .collect::<Vec<_>>()
    });
    let notes = without_repeats(experiment.workloads().flat_map(|workload| workload.value.notes.iter().cloned()));
    let late = experiment.workloads().find_map(|workload| late_arrivals(&workload.value));
    let of_workload = notes.into_iter().chain(own_latency(measure)).chain(late);
    let of_workload = of_workload.chain(small_part_without_profile(experiment, record, schedulers, trials));
    let mut columns = schedulers.iter().zip(trials);
    let mixed = columns.find_map(|(scheduler, trials)| roles::together(measure, &scheduler.label, trials));
    of_workload.chain(warm_ups(experiment, record)).chain(mixed).chain(of_schedulers).collect()
}

/// Tasks left waiting while those before them had their first turn: no run says whether their turn comes.
fn first_turns(scheduler: &SchedulerResult, measure: &Measure) -> Option<String> {
    let starves = scheduler.measures.get(&measure.name)?.finding == Some(Finding::Starves);
    let turns = scheduler.measures.get("slices")?.summary.max?;
    (starves && turns == 0.0).then(|| {
        let label = &scheduler.label;
        format!("no turn had ended under {label} when its runs did: longer runs say whether tasks that waited starve")
    })
}

/// What does not count of the runs, and of those of columns with another warm-up.
fn warm_ups(experiment: &Experiment, record: &ExperimentRecord) -> Vec<String> {
    let of_all = record.options.warm_up_ns;
    let said = of_all.map(|ns| format!("the first {} of each run do not count (--warm-up)", duration(ns as f64)));
    let of_column = |(index, own): (&usize, &Column)| {
        let warm_up_ns = own.workload.as_ref()?.value.warm_up_ns.unwrap_or(0);
        let spec = &experiment.schedulers[*index];
        (warm_up_ns != of_all.unwrap_or(0)).then(|| match warm_up_ns {
            0 => format!("of `{spec}` all of each run counts"),
            ns => format!("of `{spec}` the first {} of each run do not count", duration(ns as f64)),
        })
    };
    said.into_iter().chain(experiment.columns.iter().filter_map(of_column)).collect()
}

/// Texts in their order, each once.
pub(super) fn without_repeats(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for text in texts {
        if !once.contains(&text) {
            once.push(text);
        }
    }
    once
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
fn unsettled(scheduler: &SchedulerResult, trials: &[Trial], measure: &Measure) -> Option<String> {
    let [first, last] = quarters(scheduler, trials, measure)?;
    let (less, more) = (first.min(last), first.max(last));
    let differ = more >= 2.0 * less && more - less > 3.0 * (more + less).sqrt();
    (differ && last > 0.0).then(|| {
        format!(
            "placement was still changing when runs of {} ended (migrations between LLCs: {first:.0} in the first quarter, {last:.0} in the last); a \
             longer run, or a --warm-up, may give another answer",
            scheduler.label
        )
    })
}

/// Moves between LLCs in the first and in the last quarter of what is measured, in the middle trial: of the window, but where what is measured
/// begins well after its beginning, at a start signal, of the time from then on.
fn quarters(scheduler: &SchedulerResult, trials: &[Trial], measure: &Measure) -> Option<[f64; 2]> {
    let begins_later = |trial: &Trial| {
        let before_ns = trial.measured_from_ns(&measure.name) - trial.warm_up_ns.min(trial.elapsed_ns);
        before_ns > trial.window_ns() / 10
    };
    if trials.iter().any(begins_later) {
        let counts = trials.iter().map(|trial| trial.cross_llc_quarters).collect::<Option<Vec<[u64; 2]>>>()?;
        let median = |quarter: usize| {
            let counts: Vec<f64> = counts.iter().map(|count| count[quarter] as f64).collect();
            Sample::new(&counts).ok()?.median()
        };
        return Some([median(0)?, median(1)?]);
    }
    let median = |name: &str| scheduler.measures.get(name)?.summary.median;
    Some([median("cross_llc_first_quarter")?, median("cross_llc_last_quarter")?])
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

/// Kernel time of choosing CPUs that is so many times the other side's is no chance.
const SEARCHES_MORE: f64 = 1.1;

/// Of the verdict's difference, the part that one of kernel time must be to have to do with it.
const MATTERS: f64 = 0.1;

/// Whether kernel time that one side spends more, of each wakeup and of all, ns, is enough to be a part of the verdict's difference. Of what is
/// no time and no rate nobody can say.
fn matters(measure: &Measure, [own, other]: [&SchedulerResult; 2], [of_each, of_all]: [f64; 2]) -> bool {
    let median = |of: &SchedulerResult, name: &str| of.measures.get(name)?.summary.median;
    let Some((value, other)) = median(own, &measure.name).zip(median(other, &measure.name)) else { return true };
    match (measure.unit, median(own, ELAPSED)) {
        (Unit::Ns, _) if is_of_each(&measure.name) => of_each >= MATTERS * (value - other).abs(),
        (Unit::Ns, _) => of_all >= MATTERS * (value - other).abs(),
        (Unit::PerS, Some(elapsed_ns)) => of_all / elapsed_ns >= MATTERS * (value / other - 1.0).abs(),
        _ => true,
    }
}

/// Costs of a scheduler that nobody measured, where it differs from the baseline, and one of the two spends so much more kernel time on choosing
/// CPUs that this may be why.
fn assumed_searches(document: &ComparisonDocument) -> Vec<String> {
    let Some(base) = document.schedulers.iter().find(|scheduler| scheduler.is_baseline) else { return Vec::new() };
    let spent_ns = |scheduler: &SchedulerResult| {
        let median = |name: &str| scheduler.measures.get(name)?.summary.median;
        let wakeups = median("wakeups").filter(|wakeups| *wakeups > 0.0)?;
        Some([median("overhead_wakeup_ns")? / wakeups, median("overhead_balance_ns")? / wakeups])
    };
    let all_ns = |scheduler: &SchedulerResult| {
        let median = |name: &str| scheduler.measures.get(name)?.summary.median;
        Some(median("overhead_wakeup_ns")? + median("overhead_balance_ns")?)
    };
    let measure = document.measures.iter().find(|measure| measure.name == document.primary);
    let said = |[own, other]: [&SchedulerResult; 2]| {
        let (own_ns, other_ns) = (spent_ns(own)?, spent_ns(other)?);
        let more = |own: f64, other: f64| own >= SEARCHES_MORE * other;
        let is_more = more(own_ns[0], other_ns[0]) || more(own_ns.iter().sum(), other_ns.iter().sum());
        // A wakeup may search more and balancing less, or the other way round.
        let of_each = (own_ns[0] - other_ns[0]).max(own_ns.iter().sum::<f64>() - other_ns.iter().sum::<f64>());
        let differences = [of_each, all_ns(own)? - all_ns(other)?];
        let is_more = is_more && measure.is_none_or(|measure| matters(measure, [own, other], differences));
        let (name, value) = SchedulerSpec::parse(&own.label).ok()?.assumed().into_iter().next().filter(|_| is_more)?;
        Some(format!(
            "the time that {} takes to search is assumed ({name}={value} for each look): the kernel's part of a wakeup is {} under it and {} \
             under {}, and balancing takes {} and {}; {name}=0 compares without it",
            own.label,
            duration(own_ns[0]),
            duration(other_ns[0]),
            other.label,
            duration(own_ns[1]),
            duration(other_ns[1])
        ))
    };
    let pairs =
        document.schedulers.iter().filter(|own| differs(document, own)).flat_map(|own| [[own, base], [base, own]]);
    pairs.filter_map(said).collect()
}

/// Whether a scheduler is shown to differ from the baseline.
fn differs(document: &ComparisonDocument, scheduler: &SchedulerResult) -> bool {
    let finding = scheduler.measures.get(&document.primary).and_then(|result| result.finding);
    matches!(finding, Some(Finding::Better | Finding::Worse | Finding::Different))
}

/// Columns whose kernel has no governor next to such whose kernel has one: only the latter have frequencies and idle states.
fn without_frequencies(experiment: &Experiment) -> Option<String> {
    let is_fixed =
        |spec: &&SchedulerSpec| spec.resolved().iter().all(|(name, value)| *name != "governor" || *value == 0);
    let (fixed, governed): (Vec<&SchedulerSpec>, Vec<&SchedulerSpec>) =
        experiment.schedulers.iter().partition(is_fixed);
    let listed = |specs: &[&SchedulerSpec]| specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    (!fixed.is_empty() && !governed.is_empty()).then(|| {
        format!(
            "no frequencies and idle states are simulated under {}, whose CPUs run at the reference frequency, as they are under {}: of a \
             difference between them that is a part (governor=performance has both; docs/models/frequency.md)",
            listed(&fixed),
            listed(&governed)
        )
    })
}

/// Energy over runs in which one scheduler's tasks did another amount of work than the baseline's.
fn energy_of_other_work(document: &ComparisonDocument) -> Vec<String> {
    if document.primary != ENERGY {
        return Vec::new();
    }
    let base = document.schedulers.iter().find(|scheduler| scheduler.is_baseline);
    let base = base.map_or("", |base| base.label.as_str());
    let of = |scheduler: &SchedulerResult| {
        let ratio = |name: &str| scheduler.measures.get(name)?.comparison.as_ref()?.ratio;
        let work = ratio(WORK).filter(|work| !within(*work, document.experiment.margin))?;
        Some(format!(
            "{} does {} times the work of {base}: its energy per work is {} times as much",
            scheduler.label,
            decimal(work),
            decimal(ratio(ENERGY)? / work)
        ))
    };
    document.schedulers.iter().filter_map(of).collect()
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
            let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
            let (cpus, llcs) = (counted(value.cpu_count(), "CPU"), counted(value.llc_count(), "LLC"));
            format!("runs on {}, of {cpus} under {llcs}{work}", machine.source)
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
    if experiment.options.memory == MemoryChoice::None {
        return Some("memory has constant speed: what caches hold decides nothing (--memory, --assume-profile)".into());
    }
    let (mut names, mut without): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for workload in (0..experiment.schedulers.len()).map(|index| &experiment.workload_of(index).value) {
        for task in &workload.tasks {
            let mut own = task.profile.iter().chain(task.phase_profiles.iter().map(|(_, name)| name)).peekable();
            let works = || workload.programs[task.program.index()].steps.iter().any(Step::works);
            if own.peek().is_none() && works() {
                add(&mut without, &task.name);
            }
            own.for_each(|name| add(&mut names, name));
        }
    }
    let level = if experiment.options.memory.is_exact() { "exact" } else { "analytic" };
    if names.is_empty() {
        return Some(format!(
            "{level} memory, but no task has a memory profile: it has constant speed for all (--assume-profile)"
        ));
    }
    let named = if names.len() > 1 { "profiles" } else { "profile" };
    let (first, others) = without.split_at(without.len().min(MOST_NAMED));
    let constant = match (first, others.len()) {
        ([], _) => String::new(),
        (first, 0) => format!("; constant speed for tasks without one: {}", first.join(", ")),
        (first, more) => format!("; constant speed for tasks without one: {} and {more} more", first.join(", ")),
    };
    Some(format!("{level} memory, with the {named} {}{constant}", names.join(", ")))
}

/// Most tasks that a condition names.
const MOST_NAMED: usize = 3;

/// Adds a name that is not there yet.
fn add<'a>(names: &mut Vec<&'a str>, name: &'a str) {
    if !names.contains(&name) {
        names.push(name);
    }
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

/// Machines that columns have of their own.
fn own_machines(experiment: &Experiment) -> impl Iterator<Item = &Named<Machine>> {
    experiment.columns.values().filter_map(|column| column.machine.as_ref())
}

/// What is said of the experiment's machine, and where it is something else, of columns' own machines, with their names.
fn of_machines(experiment: &Experiment, said: fn(&Machine) -> Option<String>) -> Vec<String> {
    let of_all = said(&experiment.machine.value);
    let others = own_machines(experiment).filter_map(|own| {
        let other = said(&own.value).filter(|text| Some(text) != of_all.as_ref())?;
        Some(format!("on {}, {other}", own.source))
    });
    without_repeats(of_all.clone().into_iter().chain(others))
}

/// Under which schedulers pages follow tasks, on machines of several memories.
fn numa_balancing(experiment: &Experiment) -> Option<String> {
    let on = |(index, spec): &(usize, &SchedulerSpec)| {
        let machine = &experiment.machine_of(*index).value;
        let effective = spec.effective(machine.cpu_count());
        machine.nodes().count() > 1 && effective.iter().any(|(name, value)| *name == NUMA_BALANCING && *value != 0)
    };
    let specs = experiment.schedulers.iter().enumerate().filter(on);
    let names: Vec<String> = specs.map(|(_, spec)| spec.to_string()).collect();
    (experiment.options.memory != MemoryChoice::None && !names.is_empty())
        .then(|| format!("NUMA balancing is on under {} ({NUMA_BALANCING}=0 turns it off)", names.join(", ")))
}

/// What a machine notes whose CPUs differ although no capacities are stated.
const COUNTED_AS_EQUAL: &str = "CPUs of unequal speed are counted as equal";

/// Hybrid processors of Intel with several threads per core: Linux prefers their fast CPUs by priorities (ITMT), which a machine may not state.
fn asymmetric_packing(experiment: &Experiment) -> Option<String> {
    let tasks_go = |(index, spec): (usize, &SchedulerSpec)| {
        let machine = &experiment.machine_of(index).value;
        let is_fair = spec.effective(machine.cpu_count()).iter().any(|(name, _)| *name == NUMA_BALANCING);
        let where_to = where_tasks_go(machine.is_asymmetric(), machine.notes())?;
        (is_fair && machine.smt_width() > 1 && !machine.has_priorities()).then(|| (where_to, spec.to_string()))
    };
    let found: Vec<(&str, String)> = experiment.schedulers.iter().enumerate().filter_map(tasks_go).collect();
    let (where_to, _) = found.first()?;
    let names: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
    Some(format!(
        "tasks under {} {where_to}: with several threads per core Linux prefers fast CPUs by ITMT priorities (SD_ASYM_PACKING), which \
         this machine does not state (docs/limitations.md)",
        names.join(", ")
    ))
}

/// What tasks do without such priorities, on a machine with these notes whose CPUs differ by what it states or not; none if nothing says that
/// they differ.
fn where_tasks_go(is_asymmetric: bool, notes: &[String]) -> Option<&'static str> {
    if is_asymmetric {
        return Some("may stay on slow CPUs while fast ones are idle");
    }
    let counted_as_equal = notes.iter().any(|note| note.contains(COUNTED_AS_EQUAL));
    counted_as_equal.then_some("go to any CPU, as all count as equally fast")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::tests::trial;
    use crate::verdict::tests::{conclude, record};

    /// 2 us more of kernel time for each of 1000 wakeups, 2 ms in all, of what is asked about.
    #[test]
    fn an_assumed_search_is_told_where_it_may_be_a_tenth_of_the_difference() {
        let said = |metric: &str, [base, own]: [f64; 2]| {
            let side = |label: &str, value: f64, kernel_ns: f64| -> Vec<Trial> {
                let kernel = [("overhead_wakeup_ns", Some(kernel_ns)), ("overhead_balance_ns", Some(0.0))];
                let measures = [("wakeups", Some(1e3)), kernel[0], kernel[1], (metric, Some(value))];
                (0..10).map(|number| trial(label, number, &measures)).collect()
            };
            let record = ExperimentRecord { metric: Some(metric.into()), ..record(&["eevdf", "ule"], 10) };
            let document = conclude(&record, &[side("eevdf", base, 1e6), side("ule", own, 3e6)]).unwrap();
            assert_eq!(document.primary, metric);
            !assumed_searches(&document).is_empty()
        };
        assert!(said("elapsed_ns", [1e9, 1.015e9]) && !said("elapsed_ns", [1e9, 1.1e9]));
        assert!(said("wakeup_mean_ns", [1e4, 2.5e4]) && !said("wakeup_mean_ns", [1e4, 1e6]));
    }

    #[test]
    fn cpus_that_differ_are_told_from_capacities_or_from_what_the_machine_notes() {
        let notes = ["CPUs of unequal speed are counted as equal: no capacities are stated".to_owned()];
        assert!(where_tasks_go(true, &[]).is_some_and(|said| said.contains("while fast ones are idle")));
        assert!(where_tasks_go(false, &notes).is_some_and(|said| said.contains("all count as equally fast")));
        assert_eq!(where_tasks_go(false, &[]), None);
    }
}
