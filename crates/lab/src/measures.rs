//! What is compared: the trace crate's metrics, which follow from events alone, and a few that follow from the outcome
//! of a run. And which of them a verdict is about.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use warmcore_statistics::Better;
use warmcore_trace::metrics::{METRICS, Metrics};
use warmcore_trace::{Histogram, Outcome, TaskOutcome};
use warmcore_workload::{HACKBENCH_TIME, RecorderId, ResultStyle, Step, Workload, as_measure_name};

use crate::jobs::JOBS;
pub use crate::role_measures::is_of_role;
use crate::starvation::{tasks_left, weight_of_task};
use crate::trial::{Trial, TrialEnd};
use crate::{group_measures, host_measures, jobs, memory_measures, observe, placement_measures, role_measures};

/// Unit of a measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Nanoseconds of simulated time.
    Ns,
    /// A count or a fraction.
    One,
    /// Per second of simulated time.
    PerS,
    /// Tasks.
    Tasks,
    /// Joules.
    Joules,
}

impl Unit {
    /// The unit in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::One => "1",
            Self::PerS => "1/s",
            Self::Tasks => "tasks",
            Self::Joules => "J",
        }
    }

    fn from_name(name: &str) -> Self {
        match name {
            "ns" => Self::Ns,
            "tasks" => Self::Tasks,
            _ => Self::One,
        }
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Something measured in every trial.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measure {
    /// Name in files and on the command line.
    pub name: String,
    /// Name in sentences and headings.
    pub title: String,
    /// Unit.
    pub unit: Unit,
    /// Which direction is an improvement.
    pub better: Better,
    /// What it means.
    pub definition: String,
    /// Whether it is a time until something ends, which is infinite where that did not happen.
    #[serde(skip)]
    pub until_end: bool,
    /// Whether it needs the run's events.
    #[serde(skip)]
    pub from_events: bool,
    /// Whether only some runs have it, so that documents of trials of which none does leave it out.
    #[serde(skip)]
    pub optional: bool,
    /// Least value that can be told from zero: nothing is compared with less.
    #[serde(skip)]
    pub least: f64,
}

impl Measure {
    pub(crate) fn of_outcome(name: &str, title: &str, unit: Unit, better: Better, definition: &str) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            unit,
            better,
            definition: definition.into(),
            until_end: false,
            from_events: false,
            optional: false,
            least: least_of(unit),
        }
    }

    /// The value in a trial. A time until an end that has not come is infinite.
    pub fn value(&self, trial: &Trial) -> Option<f64> {
        trial.measure(&self.name).or(self.is_unended(trial).then_some(f64::INFINITY))
    }

    /// Why a run may have no value of it, as the end of a sentence.
    pub(crate) fn needs(&self) -> &'static str {
        match self.name.as_str() {
            ENERGY => ", which needs a governor (`eevdf:governor=schedutil`)",
            HACKBENCH => ", which begins at the start signal, before the warm-up's end",
            _ => "",
        }
    }

    /// Whether it is a time until an end that has not come in the trial.
    pub fn is_unended(&self, trial: &Trial) -> bool {
        // Where all has exited, hackbench's own time came to its end, too, but began in the warm-up.
        let is_cut = self.name == HACKBENCH && trial.end == TrialEnd::AllExited;
        self.until_end && !is_cut && trial.measures.get(&self.name) == Some(&None)
    }
}

/// Times below this are nearly zero: less than a context switch takes on any machine.
const LEAST_TIME_NS: f64 = 1e3;

/// Deviations from the weighted share below this are nearly zero.
const LEAST_DEVIATION: f64 = 1e-3;

fn least_of(unit: Unit) -> f64 {
    match unit {
        Unit::Ns => LEAST_TIME_NS,
        // Counts and fractions, of which only zero itself is nothing.
        Unit::One | Unit::PerS | Unit::Tasks | Unit::Joules => f64::MIN_POSITIVE,
    }
}

/// Name of the measure of energy.
pub(crate) const ENERGY: &str = "energy_j";

/// Only of runs with a governor on a machine with an energy model.
fn energy() -> Measure {
    let definition = "power of each core at its frequency while a hardware thread of it is busy, and of its idle state otherwise, over the run; \
                      without caches, memory and the rest of the package";
    Measure {
        optional: true,
        ..Measure::of_outcome(ENERGY, "energy of the cores", Unit::Joules, Better::Lower, definition)
    }
}

/// Name of the measure of elapsed time.
pub(crate) const ELAPSED: &str = "elapsed_ns";
/// Name of the measure of hackbench's own time.
pub(crate) const HACKBENCH: &str = "hackbench_time_ns";
/// Name of the measure of work done.
pub const WORK: &str = "work_ns";
/// Name of the measure of tasks that were left waiting.
pub(crate) const NEVER_RAN_AGAIN: &str = "never_ran_again";
/// Name of the measure of fairness.
pub(crate) const DEVIATION: &str = "cpu_share_deviation";

/// Rates per second of simulated time: name, the metric that is counted, title.
const RATES: [(&str, &str, &str); 4] = [
    ("migrations_ran_per_s", "migrations_ran", "migrations (ran)"),
    ("cross_llc_ran_per_s", "cross_llc_ran", "migrations (ran) between LLCs"),
    ("cross_node_ran_per_s", "cross_node_ran", "migrations (ran) between NUMA nodes"),
    ("involuntary_switches_per_s", "involuntary_switches", "involuntary switches"),
];

/// Percentiles of a workload's own recorders.
pub(crate) const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), (RAREST, 0.999)];

/// The percentile that is told only of so many samples that ten lie above it.
const RAREST: &str = "p999";
const FEWEST_FOR_RAREST: u64 = 10_000;

/// Every measure of a workload, in the order of documents.
pub fn of_workload(workload: &Workload) -> Vec<Measure> {
    let mut measures = vec![
        Measure {
            until_end: true,
            ..Measure::of_outcome(
                ELAPSED,
                "elapsed time",
                Unit::Ns,
                Better::Lower,
                "simulated time from the start of the workload, or from the end of its warm-up, to its end",
            )
        },
        Measure::of_outcome(
            WORK,
            "work done",
            Unit::Ns,
            Better::Higher,
            "progress of the tasks' own programs: CPU time without interrupts, switches and cold caches",
        ),
        Measure {
            least: LEAST_DEVIATION,
            ..Measure::of_outcome(
                DEVIATION,
                "deviation from the weighted share",
                Unit::One,
                Better::Lower,
                "largest deviation of a task's CPU time from its share, over that share, in any role; each share of a role's CPU time is in proportion to the weight of the nice value, but at most the task's lifetime",
            )
        },
    ];
    measures.extend(jobs::measure(workload));
    if workload.applications.len() > 1 {
        measures.extend(workload.applications.iter().map(|name| Measure {
            until_end: true,
            ..Measure::of_outcome(
                &application_elapsed(name),
                &format!("elapsed time of {name}"),
                Unit::Ns,
                Better::Lower,
                "simulated time from the creation of the application's first task to the exit of its last",
            )
        }));
    }
    if workload.recorders.iter().any(|name| name == HACKBENCH_TIME) {
        let definition = "what hackbench prints as its time: from the start signal to the last exit";
        let measure = Measure::of_outcome(HACKBENCH, "hackbench time", Unit::Ns, Better::Lower, definition);
        measures.push(Measure { until_end: true, ..measure });
    }
    for name in workload.recorders.iter().filter(|name| *name != HACKBENCH_TIME) {
        measures.extend(PERCENTILES.iter().map(|(percentile, _)| {
            let title = format!("{name} {percentile}");
            let name = recorder_percentile(name, percentile);
            let definition = "percentile of what the workload itself records; an upper edge of a bucket";
            let measure = Measure::of_outcome(&name, &title, Unit::Ns, Better::Lower, definition);
            Measure { optional: *percentile == RAREST, ..measure }
        }));
        for (suffix, words, unit, better, definition) in [
            ("max_ns", "maximum", Unit::Ns, Better::Lower, "longest of what the workload itself records"),
            ("mean_ns", "mean", Unit::Ns, Better::Lower, "mean of what the workload itself records"),
            (
                "per_s",
                "samples per second",
                Unit::PerS,
                Better::Higher,
                "samples of what the workload itself records, over the measured window; over the time from the beginning of the first sample to the end of \
                 the run where the program's own warm-up ends later",
            ),
            ("samples", "samples", Unit::One, Better::Neither, "samples of what the workload itself records"),
        ] {
            let title = format!("{name} {words}");
            measures.push(Measure::of_outcome(&recorder_measure(name, suffix), &title, unit, better, definition));
        }
    }
    measures.extend(RATES.iter().map(|(name, counted, title)| {
        let title = format!("{title} per second");
        let definition = format!("{counted} per second of simulated time");
        Measure { from_events: true, ..Measure::of_outcome(name, &title, Unit::PerS, Better::Lower, &definition) }
    }));
    measures.extend(METRICS.iter().map(|metric| Measure {
        name: metric.name.into(),
        title: title_of(metric.name),
        unit: Unit::from_name(metric.unit),
        better: metric.better,
        definition: metric.definition.into(),
        until_end: false,
        from_events: true,
        optional: false,
        least: least_of(Unit::from_name(metric.unit)),
    }));
    measures.extend(memory_measures::of_workload(workload));
    measures.extend(placement_measures::all());
    measures.push(energy());
    measures.extend(group_measures::of_workload(workload));
    measures.extend(role_measures::of_workload(workload));
    measures.extend(host_measures::all());
    measures.extend(observe::virtual_llc_measures());
    measures
}

/// Every measure of a workload, and that of a metric which is a number in what a command prints (`after:TEXT`, `regex:PATTERN`).
pub fn with_metric(mut measures: Vec<Measure>, metric: Option<&str>) -> Vec<Measure> {
    // What is wrong with a metric is said before anything runs.
    measures.extend(metric.and_then(|metric| host_measures::asked(metric).ok().flatten()));
    measures
}

/// Every measure of a workload, without those that only some runs have, if none of the trials has them and nobody asked for them by name.
pub fn of_trials(workload: &Workload, trials: &[Vec<Trial>], asked: &str) -> Vec<Measure> {
    let mut measures = of_workload(workload);
    let has = |name: &str| trials.iter().flatten().any(|trial| trial.measures.contains_key(name));
    measures.retain(|measure| !measure.optional || measure.name == asked || has(&measure.name));
    measures
}

/// `wakeup_p99_ns` in words: `wakeup p99`.
fn title_of(name: &str) -> String {
    name.strip_suffix("_ns").unwrap_or(name).replace('_', " ")
}

fn application_elapsed(name: &str) -> String {
    format!("application_{}_elapsed_ns", as_measure_name(name))
}

pub(crate) fn recorder_percentile(name: &str, percentile: &str) -> String {
    recorder_measure(name, &format!("{percentile}_ns"))
}

fn recorder_measure(name: &str, what: &str) -> String {
    format!("recorder_{}_{what}", as_measure_name(name))
}

/// The measure that a verdict on this workload is about. It follows from the workload alone:
///
/// - schbench: the p99 of the wakeup latencies that it records itself; that of its requests where their rate is given;
/// - hackbench: the time it prints;
/// - sysbench: transactions per second; the p99 of their latencies where their rate is given;
/// - a file whose requests come by themselves and are recorded: the p99 of what is recorded;
/// - one that ends by itself: elapsed time;
/// - one in which some tasks end by themselves and others only compute for ever: the time until the former have ended;
/// - one that runs for a fixed time and sleeps in between: the p99 of wakeup latency; with a quota that of response time, since time that a
///   quota takes is no wakeup's;
/// - one that runs for a fixed time and only computes: the work done.
pub fn primary(workload: &Workload) -> String {
    match &workload.style {
        // With `-R` it records no wakeups.
        ResultStyle::Schbench { wakeup, request } => {
            let of = if workload.is_recorded(*wakeup) { wakeup } else { request };
            return recorder_p99(workload, *of);
        }
        ResultStyle::Hackbench { .. } if workload.recorders.iter().any(|name| name == HACKBENCH_TIME) => {
            return HACKBENCH.into();
        }
        ResultStyle::Sysbench { transaction } if workload.has_arrivals() => {
            return recorder_p99(workload, *transaction);
        }
        ResultStyle::Sysbench { transaction } => {
            return recorder_measure(recorder_name(workload, *transaction), "per_s");
        }
        // One recorder is what its requests are about; of several nobody says which.
        ResultStyle::Plain if workload.has_arrivals() && workload.recorders.len() == 1 => {
            return recorder_p99(workload, RecorderId(0));
        }
        ResultStyle::Hackbench { .. } | ResultStyle::Plain => {}
    }
    if workload.duration_ns.is_none() && !workload.programs.iter().flat_map(|program| &program.steps).any(stops) {
        return ELAPSED.into();
    }
    if !jobs::of(workload).is_empty() {
        return JOBS.into();
    }
    let sleeps = workload.programs.iter().flat_map(|program| &program.steps).any(Step::blocks);
    match (sleeps, workload.has_quotas()) {
        (true, true) => "response_p99_ns".into(),
        (true, false) => "wakeup_p99_ns".into(),
        (false, _) => WORK.into(),
    }
}

/// A second measure that belongs beside the primary one: schbench's request latencies, or the kernel's wakeup latency beside those; sysbench's latencies, or whether a given rate was kept; how evenly CPU time was given to
/// tasks that only compute.
pub fn secondary(workload: &Workload) -> Option<String> {
    match &workload.style {
        ResultStyle::Schbench { wakeup, request } if workload.is_recorded(*wakeup) => {
            Some(recorder_p99(workload, *request))
        }
        ResultStyle::Schbench { .. } => Some("wakeup_p99_ns".into()),
        ResultStyle::Sysbench { transaction } if workload.has_arrivals() => {
            Some(recorder_measure(recorder_name(workload, *transaction), "per_s"))
        }
        ResultStyle::Sysbench { transaction } => Some(recorder_p99(workload, *transaction)),
        _ if primary(workload) == WORK => Some(DEVIATION.into()),
        _ => None,
    }
}

fn recorder_p99(workload: &Workload, recorder: RecorderId) -> String {
    recorder_percentile(recorder_name(workload, recorder), "p99")
}

fn recorder_name(workload: &Workload, recorder: RecorderId) -> &str {
    workload.recorders.get(recorder.index()).map_or("", String::as_str)
}

fn stops(step: &Step) -> bool {
    matches!(step, Step::Stop)
}

/// All measures of a run. `metrics` are absent when nothing was recorded.
pub fn of_run(
    workload: &Workload,
    outcome: &Outcome,
    end: TrialEnd,
    metrics: Option<&Metrics>,
) -> BTreeMap<String, Option<f64>> {
    let mut values = BTreeMap::new();
    let finished = end != TrialEnd::TimeLimit;
    values.insert(ELAPSED.into(), finished.then_some(outcome.window_ns() as f64));
    // Waiting actively for others is no work.
    let worked_ns = |task: &TaskOutcome| task.progress_ns.saturating_sub(task.spin_ns);
    values.insert(WORK.into(), Some(outcome.tasks.iter().map(worked_ns).sum::<u64>() as f64));
    values.insert(DEVIATION.into(), share_deviation(workload, outcome));
    if jobs::measure(workload).is_some() {
        values.insert(JOBS.into(), jobs::elapsed_ns(workload, outcome));
    }
    let cpu_time_ns = outcome.tasks.iter().map(|task| task.cpu_time_ns).sum::<u64>();
    values.insert(host_measures::CPU_TIME.into(), (!outcome.tasks.is_empty()).then_some(cpu_time_ns as f64));
    if workload.applications.len() > 1 {
        values.extend(outcome.applications.iter().map(|application| {
            let elapsed = application.finished.then_some(application.elapsed_ns as f64);
            (application_elapsed(&application.name), elapsed)
        }));
    }
    for (index, (name, histogram)) in workload.recorders.iter().zip(&outcome.recorders).enumerate() {
        if name == HACKBENCH_TIME {
            values.insert(HACKBENCH.into(), histogram.max().map(|time| time as f64));
            continue;
        }
        let told = |percentile: &str| percentile != RAREST || histogram.count() >= FEWEST_FOR_RAREST;
        values.extend(PERCENTILES.iter().filter(|(percentile, _)| told(percentile)).map(|(percentile, q)| {
            (recorder_percentile(name, percentile), histogram.quantile(*q).map(|value| value as f64))
        }));
        values.insert(recorder_measure(name, "max_ns"), histogram.max().map(|longest| longest as f64));
        values.insert(recorder_measure(name, "mean_ns"), histogram.mean());
        let (samples, seconds) = (histogram.count() as f64, outcome.recorder_window_ns(index) as f64 / 1e9);
        values.insert(recorder_measure(name, "samples"), Some(samples));
        // Without a sample no time is known in which there could have been one.
        let rate = if samples > 0.0 { samples / seconds } else { 0.0 };
        values.insert(recorder_measure(name, "per_s"), rate.is_finite().then_some(rate));
    }
    if let Some(metrics) = metrics {
        values.extend(METRICS.iter().map(|metric| (metric.name.to_owned(), (metric.value)(metrics))));
        values.insert(NEVER_RAN_AGAIN.into(), Some(tasks_left(workload, outcome, metrics) as f64));
        let seconds = metrics.window_ns as f64 / 1e9;
        for (name, counted, _) in RATES {
            let count = values.get(counted).copied().flatten();
            values.insert(name.into(), count.filter(|_| seconds > 0.0).map(|count| count / seconds));
        }
    }
    values.extend(memory_measures::of_run(outcome));
    values.extend(placement_measures::of_run(outcome));
    values.extend(outcome.energy_uj.map(|energy_uj| (ENERGY.to_owned(), Some(energy_uj as f64 / 1e6))));
    values.extend(group_measures::of_run(outcome));
    values
}

/// What a verdict is about where the measure asked for is nearly zero, the first that is not: the time that a workload takes which ends
/// by itself, the work done by any other.
pub fn instead(workload: &Workload) -> [&'static str; 2] {
    if workload.duration_ns.is_none() { [ELAPSED, WORK] } else { [WORK, ELAPSED] }
}

/// Latencies that a verdict on a workload is about whose elapsed time, or whose work, its arrivals fix: those that it records itself, then from waking to sleep, then
/// to the first run.
pub fn latencies(workload: &Workload) -> Vec<String> {
    let recorders = workload.recorders.iter().filter(|name| *name != HACKBENCH_TIME);
    let own = recorders.flat_map(|name| [recorder_percentile(name, "p99"), recorder_measure(name, "mean_ns")]);
    own.chain(["response_p99_ns", "response_mean_ns", "wakeup_p99_ns", "wakeup_mean_ns"].map(str::to_owned)).collect()
}

/// A measure that is a percentile: what it is one of, and the part of it that lies below: of `wakeup_p999_ns` `wakeup` and 0.999.
fn percentile(measure: &str) -> Option<(&str, f64)> {
    let (of, percentile) = measure.strip_suffix("_ns")?.rsplit_once('_')?;
    let digits = percentile.strip_prefix('p')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    Some((of, format!("0.{digits}").parse::<f64>().ok().filter(|_| is_number)?))
}

/// By how much, as a ratio, a measure's value may be too large: a percentile is the upper edge of a bucket. 1 for measures that are exact.
pub fn resolution(measure: &str) -> f64 {
    percentile(measure).map_or(1.0, |_| 1.0 + Histogram::RELATIVE_ERROR)
}

/// The least percentile that is a high one: few of the events lie above it.
const HIGH: f64 = 0.9;

/// Name of the mean of what a measure is any percentile of.
pub(crate) fn mean_of_percentile(measure: &str) -> Option<String> {
    percentile(measure).map(|(of, _)| format!("{of}_mean_ns"))
}

/// Whether a measure is a time of one event among many: a percentile, a mean, the longest.
pub(crate) fn is_of_each(measure: &str) -> bool {
    mean_of_percentile(measure).is_some() || ["_mean_ns", "_max_ns"].iter().any(|ending| measure.ends_with(ending))
}

/// Name of the mean of what a measure is a high percentile of; nothing for other measures.
pub fn mean_beside(measure: &str) -> Option<String> {
    percentile(measure).filter(|(_, q)| *q >= HIGH).map(|(of, _)| format!("{of}_mean_ns"))
}

/// Events that a percentile must be one of: as many as have one beyond it ([`Histogram::fewest_for`]), of a high one at least `fewest`.
/// Nothing for other measures.
pub(crate) fn events_needed(measure: &str, fewest: f64) -> Option<f64> {
    let (_, q) = percentile(measure)?;
    let needed = Histogram::fewest_for(q) as f64;
    Some(if q >= HIGH { needed.max(fewest) } else { needed })
}

/// How many events a percentile of a trial is one of, where that is known.
pub(crate) fn events_behind(measure: &str, trial: &Trial) -> Option<f64> {
    let (of, _) = percentile(measure)?;
    let count = |name: &str| trial.measure(name);
    match of {
        "wakeup" => count("wakeups"),
        "response" => count("responses"),
        "preempt_wait" => count("involuntary_switches"),
        "slice" => count("slices"),
        "run_delay" => Some(count("wakeups")? + count("involuntary_switches")?),
        _ => count(&format!("{of}_samples")),
    }
}

/// How many samples of a recorder a rate of a trial is of; nothing for other measures.
pub(crate) fn samples_of_rate(measure: &str, trial: &Trial) -> Option<f64> {
    let recorder = measure.strip_suffix("_per_s").filter(|recorder| recorder.starts_with("recorder_"))?;
    trial.measure(&format!("{recorder}_samples"))
}

/// A task that has a share of CPU time.
struct Sharer {
    weight: f64,
    /// CPU time that it got.
    got: f64,
    /// Most that it could have got.
    lifetime: f64,
}

/// How far CPU time is from being shared by weight: the largest |got - share| / share of all tasks of roles with two tasks or more.
/// `None` where there is no such role. Weights are those of the nice values and policies that tasks begin with.
fn share_deviation(workload: &Workload, outcome: &Outcome) -> Option<f64> {
    let mut roles: BTreeMap<(u32, &str), Vec<Sharer>> = BTreeMap::new();
    for task in &outcome.tasks {
        let weight = weight_of_task(workload, task);
        let lifetime = outcome.lifetime_ns(task);
        let (got, lifetime) = (task.cpu_time_ns as f64, lifetime as f64);
        roles.entry((task.application, &task.role)).or_default().push(Sharer {
            weight: f64::from(weight),
            got,
            lifetime,
        });
    }
    let of_role = |sharers: Vec<Sharer>| if sharers.len() > 1 { deviation_of(sharers) } else { None };
    roles.into_values().filter_map(of_role).max_by(f64::total_cmp)
}

/// The largest deviation among tasks that share what they got. Shares are filled up like water: who would get more than its lifetime
/// gets its lifetime, and the others share what is left.
fn deviation_of(mut sharers: Vec<Sharer>) -> Option<f64> {
    sharers.sort_by(|a, b| (a.lifetime / a.weight).total_cmp(&(b.lifetime / b.weight)));
    let mut left: f64 = sharers.iter().map(|sharer| sharer.got).sum();
    let mut weights: f64 = sharers.iter().map(|sharer| sharer.weight).sum();
    let mut largest: Option<f64> = None;
    for sharer in sharers {
        let share = (left * sharer.weight / weights).min(sharer.lifetime);
        left -= share;
        weights -= sharer.weight;
        if share > 0.0 {
            let deviation = (sharer.got - share).abs() / share;
            largest = Some(largest.map_or(deviation, |largest| largest.max(deviation)));
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharer(weight: f64, got: f64) -> Sharer {
        Sharer { weight, got, lifetime: 100.0 }
    }

    #[test]
    fn shares_by_weight_do_not_deviate() {
        let fair = deviation_of(vec![sharer(3.0, 60.0), sharer(1.0, 20.0), sharer(1.0, 20.0)]).unwrap();
        assert!(fair < 1e-12, "{fair}");
        let equal = deviation_of(vec![sharer(3.0, 30.0), sharer(1.0, 30.0)]).unwrap();
        assert!((equal - 1.0).abs() < 1e-12, "the light one got 30 for its share of 15: {equal}");
    }

    #[test]
    fn nobody_is_owed_more_than_its_lifetime() {
        // By weight alone the heavy one would have 180 of 200, but it cannot run on two CPUs.
        let whole = deviation_of(vec![sharer(9.0, 100.0), sharer(1.0, 100.0)]).unwrap();
        assert!(whole < 1e-12, "{whole}");
    }

    #[test]
    fn tasks_that_never_ran_have_no_shares_to_deviate_from() {
        assert_eq!(deviation_of(vec![sharer(1.0, 0.0), sharer(1.0, 0.0)]), None);
    }
}
