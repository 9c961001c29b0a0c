//! The verdict: every measure of every scheduler with all its points, the ratio to the baseline with its interval, and
//! the primary measure's comparison in a sentence.
//!
//! P values are corrected (Holm) over the schedulers within each measure. The verdict in words is about the primary
//! measure alone, which is fixed by the workload before anything runs; the other measures explain it.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;
use warmcore_places::place::Place;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::bootstrap::MIN_TRIALS;
use warmcore_statistics::{Comparison, Design, Sample, StatisticsError, Summary, compare_trials, judge};
use warmcore_topology::Machine;
use warmcore_workload::{Warning, Workload};

use crate::decisions::{self, DecisionCount};
use crate::experiment::{Experiment, ExperimentRecord, TOOL_VERSION, TraceLevel};
use crate::headroom::Headroom;
use crate::host_measures;
use crate::measures::{self, Measure};
use crate::operations::{self, OperationTake};
use crate::sensitivity::Sensitivity;
use crate::time_split::{self, TimeSplit};
use crate::trial::{Trial, TrialEnd};
use crate::units::{duration, with_unit};

mod finding;
mod words;

use finding::spread;
pub(crate) use finding::within;
pub use finding::{DEFAULT_MARGIN, Finding};
pub use words::trials_in_words;

/// Version of the document.
pub const SCHEMA: &str = "warmcore-comparison-2";

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum VerdictError {
    /// The metric asked for is not one of this workload's.
    #[error("there is no metric `{name}` for this workload; {}", among(.similar, *.known))]
    NoSuchMetric {
        /// What was asked for.
        name: String,
        /// Those with a similar name, or some if none is similar, in order of name.
        similar: Vec<String>,
        /// Number of those there are.
        known: usize,
    },
    /// The metric is a number in what a command prints, and does not say where.
    #[error("{0}")]
    Pattern(String),
    /// The metric needs events, and none are recorded.
    #[error("metric `{name}` follows from events, but nothing is recorded")]
    NotRecorded {
        /// The metric.
        name: String,
    },
    /// A measure was not a number: a fault of this program.
    #[error("measure `{measure}` of {scheduler}: {source}")]
    Statistics {
        /// Name of the measure.
        measure: String,
        /// Label of the scheduler.
        scheduler: String,
        /// What is wrong with it.
        source: StatisticsError,
    },
}

/// The comparison as one document: `verdict.json`, `compare --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ComparisonDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub tool_version: &'static str,
    /// The experiment's record.
    pub experiment: ExperimentRecord,
    /// Name of the measure the verdict is about.
    pub primary: String,
    /// Why it is not the measure that was asked for, or the workload's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// Name of a second measure that belongs beside it in tables.
    #[serde(skip)]
    pub secondary: Option<String>,
    /// All measures.
    pub measures: Vec<Measure>,
    /// Results in the order of the experiment.
    pub schedulers: Vec<SchedulerResult>,
    /// Where the time went, and what explains the differences. Absent where trials do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_split: Option<TimeSplit>,
    /// How far the schedulers are from an oracle. Absent where nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
    /// Which assumed costs of the machine could turn the verdict. Absent where nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Sensitivity>,
    /// The verdict.
    pub verdict: Conclusion,
    /// What it holds for that neither the record's texts nor the schedulers' names say: what the place assumes of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Labels of the schedulers whose trials are in lockstep: the verdict's measure is the same in all of them, and so are the numbers
    /// of wakeups, slices, moves and switches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lockstep: Vec<String>,
    /// What to check before the verdict is trusted.
    pub warnings: Vec<String>,
    /// How many of these, the first ones, are about the workload's input.
    #[serde(skip)]
    pub unmodelled: usize,
}

/// A measure that no verdict can be about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Replaced {
    /// Its name.
    pub metric: String,
    /// Why, in words.
    pub reason: String,
}

/// One scheduler's results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SchedulerResult {
    /// As it was typed.
    pub label: String,
    /// With every tunable.
    pub resolved: String,
    /// Whether the others are compared with it.
    pub is_baseline: bool,
    /// Whether it is a yardstick, not a kernel's scheduler.
    pub is_yardstick: bool,
    /// Number of trials that were ended by the largest time.
    pub unfinished: usize,
    /// By name of the measure.
    pub measures: BTreeMap<String, MeasureResult>,
    /// What it decided, and how often.
    pub decisions: Vec<DecisionCount>,
    /// What its operations took, if it is a sched_ext scheduler and they were counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationTake>,
}

/// One measure of one scheduler.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MeasureResult {
    /// One value per trial; `null` where a trial has none.
    #[serde(serialize_with = "points_with_infinities")]
    pub points: Vec<Option<f64>>,
    /// Over the trials that have a value.
    pub summary: Summary,
    /// With the baseline, over the trials in which both have a value. Absent for the baseline itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// What the comparison means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,
}

/// The verdict.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Conclusion {
    /// Label of the best scheduler that a kernel could have: better than the baseline, or the baseline if all others of these are worse.
    /// Yardsticks are not counted. Absent when the trials do not single one out.
    pub best: Option<String>,
    /// In words.
    pub sentence: String,
}

/// Makes the document from all trials, by scheduler and number; `place` says what is to be known of all results from there. Trials are
/// compared as the record's design demands.
///
/// # Errors
/// A metric that does not exist.
pub fn conclude(
    record: &ExperimentRecord,
    workload: &Workload,
    place: &dyn Place,
    trials: &[Vec<Trial>],
) -> Result<ComparisonDocument, VerdictError> {
    let asked = primary_measure(record.metric.as_deref(), workload)?;
    let catalogue = measures::of_trials(workload, trials, &asked.name);
    let catalogue = measures::with_metric(catalogue, record.metric.as_deref());
    let asked = primary_among(Some(&asked.name), workload, &catalogue)?;
    let baseline = record.baseline_index().unwrap_or(0);
    let null = record.schedulers.iter().position(|scheduler| is_null(&scheduler.label));
    let mut schedulers: Vec<SchedulerResult> = record
        .schedulers
        .iter()
        .enumerate()
        .map(|(index, scheduler)| SchedulerResult {
            label: scheduler.label.clone(),
            resolved: scheduler.resolved.clone(),
            is_baseline: index == baseline,
            is_yardstick: is_yardstick(&scheduler.label) || Some(index) == null,
            unfinished: trials[index].iter().filter(|trial| trial.end == TrialEnd::TimeLimit).count(),
            measures: BTreeMap::new(),
            decisions: decisions::of_trials(&trials[index]),
            operations: operations::of_trials(&trials[index]),
        })
        .collect();
    for measure in &catalogue {
        let points: Vec<Vec<Option<f64>>> =
            trials.iter().map(|trials| trials.iter().map(|trial| measure.value(trial)).collect()).collect();
        let results = compare_measure(measure, &points, (baseline, null), record).map_err(|(index, source)| {
            VerdictError::Statistics {
                measure: measure.name.clone(),
                scheduler: record.schedulers[index].label.clone(),
                source,
            }
        })?;
        for (scheduler, result) in schedulers.iter_mut().zip(results) {
            scheduler.measures.insert(measure.name.clone(), result);
        }
    }
    let labels: Vec<String> = record.schedulers.iter().map(|scheduler| scheduler.label.clone()).collect();
    let (primary, replaced) = measurable(asked, workload, &catalogue, &schedulers, baseline);
    let basis = words::Basis {
        primary,
        replaced: replaced.as_ref(),
        margin: record.margin,
        design: record.design,
        trials: record.seeds.len(),
    };
    let verdict = words::conclusion(&basis, &schedulers, baseline);
    let of_primary: Vec<&MeasureResult> =
        schedulers.iter().filter_map(|scheduler| scheduler.measures.get(&primary.name)).collect();
    let time_split = time_split::explaining(&labels, baseline, trials, (primary, &of_primary, record.design));
    let lockstep = lockstep(&schedulers, primary);
    Ok(ComparisonDocument {
        schema: SCHEMA,
        tool_version: TOOL_VERSION,
        experiment: record.clone(),
        primary: primary.name.clone(),
        secondary: measures::secondary(workload).filter(|name| *name != primary.name),
        warnings: warnings(record, workload, place, primary, &schedulers, trials),
        unmodelled: workload.warnings.len(),
        measures: catalogue.clone(),
        time_split,
        replaced,
        conditions: conditions(record).into_iter().chain(schedulers.iter().filter_map(left_apart)).collect(),
        headroom: None,
        sensitivity: None,
        verdict,
        schedulers,
        lockstep,
    })
}

/// What tells, beside the verdict's measure, that trials are the same sequence of events. One measure alone does not: percentiles are edges
/// of buckets, and a run of a set length has always the same elapsed time.
const SEQUENCE: [&str; 5] = ["wakeups", "slices", "migrations_ran", "voluntary_switches", "involuntary_switches"];

/// Schedulers of at least two trials that have the same value of the verdict's measure and as many wakeups, slices, moves and switches in
/// all of them. Nothing then varies but what a tick more or less takes: further trials are the same run again.
fn lockstep(schedulers: &[SchedulerResult], measure: &Measure) -> Vec<String> {
    let same = |scheduler: &SchedulerResult, name: &str| {
        let points = scheduler.measures.get(name).map_or(&[][..], |result| &result.points);
        points.len() > 1 && points[0].is_some() && points.iter().all(|point| *point == points[0])
    };
    let in_lockstep = |scheduler: &&SchedulerResult| {
        SEQUENCE.iter().chain([&measure.name.as_str()]).all(|name| same(scheduler, name))
    };
    schedulers.iter().filter(in_lockstep).map(|scheduler| scheduler.label.clone()).collect()
}

/// What follows from the experiment's record.
fn conditions(record: &ExperimentRecord) -> Vec<String> {
    let warm_up = |ns: u64| format!("the first {} of each run do not count (--warm-up)", duration(ns as f64));
    record.warm_up_ns.map(warm_up).into_iter().collect()
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
            "{} chose a preferred LLC and nobody could be pulled there in {} of {} trials: at up to {} scans of a trial each \
             thread elsewhere ran alone in its LLC, from which balancing takes nobody (docs/models/cache-aware.md)",
            scheduler.label,
            trials.len(),
            apart.len(),
            trials.iter().max().copied().unwrap_or(0)
        )
    })
}

/// [`conclude`] for an experiment, with what its machine's costs rest on.
///
/// # Errors
/// As [`conclude`].
pub fn conclude_experiment(
    experiment: &Experiment,
    record: &ExperimentRecord,
    trials: &[Vec<Trial>],
) -> Result<ComparisonDocument, VerdictError> {
    let mut document = conclude(record, &experiment.workload.value, &*experiment.place, trials)?;
    if experiment.place.kind().simulated {
        document.warnings.extend(crate::load::generic_costs(&experiment.machine.value));
        document.conditions.extend(shared_cores(&experiment.machine.value));
        document.conditions.extend(background(&experiment.machine.value));
        if !document.lockstep.is_empty() {
            document.conditions.push(format!(
                "the {} trials of {} are in lockstep, with the same {} and as many events: they say no more than one of \
                 them; times that vary (docs/workloads.md) would end it",
                record.seeds.len(),
                document.lockstep.join(", "),
                document.primary
            ));
        }
    }
    Ok(document)
}

/// Which threads of the kernel itself run beside the workload, if any do.
fn background(machine: &Machine) -> Option<String> {
    let background = machine.background();
    let said = format!(
        "threads of the kernel itself run beside the workload and count nowhere (--background {})",
        background.name
    );
    (!background.is_empty()).then_some(said)
}

/// How far hardware threads of one core slow each other, where there are any.
fn shared_cores(machine: &Machine) -> Option<String> {
    let slowdown = machine.costs().smt_slowdown();
    let origin = machine.origin("costs.smt_slowdown_percent").map_or_else(String::new, |origin| origin.short() + "; ");
    (machine.smt_width() > 1).then(|| {
        format!(
            "beside a busy thread of its core work takes {} times as long ({origin}--smt-slowdown)",
            decimal(1.0 + slowdown)
        )
    })
}

/// Checks, before anything runs, that the verdict's metric exists and will be measured.
///
/// # Errors
/// When it does not, or will not.
pub fn check_metric(metric: Option<&str>, trace: TraceLevel, workload: &Workload) -> Result<(), VerdictError> {
    if let Some(metric) = metric {
        host_measures::asked(metric).map_err(VerdictError::Pattern)?;
    }
    let primary = primary_measure(metric, workload)?;
    if primary.from_events && trace == TraceLevel::None {
        return Err(VerdictError::NotRecorded { name: primary.name.clone() });
    }
    Ok(())
}

/// The measure that a verdict is about: the one asked for, or the workload's own.
///
/// # Errors
/// When there is none of that name.
pub fn primary_measure(metric: Option<&str>, workload: &Workload) -> Result<Measure, VerdictError> {
    primary_among(metric, workload, &measures::with_metric(measures::of_workload(workload), metric)).cloned()
}

fn primary_among<'a>(
    metric: Option<&str>,
    workload: &Workload,
    catalogue: &'a [Measure],
) -> Result<&'a Measure, VerdictError> {
    let name = metric.map_or_else(|| measures::primary(workload), str::to_owned);
    catalogue.iter().find(|measure| measure.name == name).ok_or_else(|| {
        let similar = similar(&name, catalogue);
        VerdictError::NoSuchMetric { name, similar, known: catalogue.len() }
    })
}

/// Most names that an error shows.
const NAMES_SHOWN: usize = 8;

/// The metrics whose name has a part in common with what was asked for, in order of name; some if there are none.
fn similar(asked: &str, catalogue: &[Measure]) -> Vec<String> {
    let asked = asked.to_lowercase();
    let parts: Vec<&str> =
        asked.split(|letter: char| !letter.is_alphanumeric()).filter(|part| part.len() > 1).collect();
    let common = |name: &str| parts.iter().filter(|part| name.contains(**part)).count();
    let most = catalogue.iter().map(|measure| common(&measure.name)).max().unwrap_or(0);
    let mut names: Vec<String> =
        catalogue.iter().map(|measure| measure.name.clone()).filter(|name| common(name) == most).collect();
    names.sort();
    names.truncate(NAMES_SHOWN);
    names
}

fn among(similar: &[String], known: usize) -> String {
    format!("it has {known} metrics, among them {}", similar.join(", "))
}

/// The measure asked for if the baseline's value can be told from zero, otherwise another one, and why.
fn measurable<'a>(
    asked: &'a Measure,
    workload: &Workload,
    catalogue: &'a [Measure],
    schedulers: &[SchedulerResult],
    baseline: usize,
) -> (&'a Measure, Option<Replaced>) {
    let median = |scheduler: &SchedulerResult, measure: &Measure| scheduler.measures.get(&measure.name)?.summary.median;
    let usable = |measure: &&Measure| median(&schedulers[baseline], measure).is_some_and(|m| m >= measure.least);
    let of_baseline = median(&schedulers[baseline], asked);
    let is_measured = schedulers.iter().any(|scheduler| median(scheduler, asked).is_some());
    if schedulers.len() < 2 || is_measured && of_baseline.is_none_or(|median| median >= asked.least) {
        return (asked, None);
    }
    let values: Vec<String> = schedulers
        .iter()
        .filter_map(|scheduler| {
            Some(format!("{} under {}", with_unit(median(scheduler, asked)?, asked.unit), scheduler.label))
        })
        .collect();
    let because = if is_measured {
        format!("it is nearly zero under {} ({})", schedulers[baseline].label, values.join(", "))
    } else {
        "no trial has a value of it".into()
    };
    let because = format!("{} is not measurable here: {because}", asked.title);
    let others = measures::instead(workload).into_iter().filter_map(|name| catalogue.iter().find(|m| m.name == name));
    match others.filter(|measure| measure.name != asked.name).find(usable) {
        Some(other) => {
            let reason = format!("{because}, so the verdict is about {}", other.title);
            (other, Some(Replaced { metric: asked.name.clone(), reason }))
        }
        None => (asked, None),
    }
}

/// Results of one measure for all schedulers, judged together.
fn compare_measure(
    measure: &Measure,
    points: &[Vec<Option<f64>>],
    (baseline, null): (usize, Option<usize>),
    record: &ExperimentRecord,
) -> Result<Vec<MeasureResult>, (usize, StatisticsError)> {
    let compare = |index: usize| {
        compare_trials(record.design, &points[baseline], &points[index], measure.better).map_err(|error| (index, error))
    };
    let others = (0..points.len()).filter(|index| *index != baseline && Some(*index) != null);
    let mut comparisons: Vec<Comparison> = others.map(compare).collect::<Result<_, _>>()?;
    judge(&mut comparisons);
    let spread = match null {
        Some(null) => {
            let mut itself = [compare(null)?];
            judge(&mut itself);
            let spread = spread(&itself[0]);
            let before = (0..null).filter(|index| *index != baseline).count();
            comparisons.splice(before..before, itself);
            spread
        }
        None => 1.0,
    };
    let summary = |index: usize| {
        let values: Vec<f64> = points[index].iter().copied().flatten().collect();
        Ok(Sample::new(&values).map_err(|error| (index, error))?.summary())
    };
    let base = summary(baseline)?;
    let mut comparisons = comparisons.into_iter();
    let mut results = Vec::with_capacity(points.len());
    for (index, own) in points.iter().enumerate() {
        let mut result =
            MeasureResult { points: own.clone(), summary: summary(index)?, comparison: None, finding: None };
        if let Some(mut comparison) = if index == baseline { None } else { comparisons.next() } {
            let same = are_identical(record.design, &points[baseline], own);
            let found = find(&comparison, measure, (&base, &result.summary), record.margin, same);
            result.finding = Some(match Some(index) == null {
                true => Finding::Null,
                false => found.beyond(&comparison, spread),
            });
            without_false_ratio(&mut comparison, measure, (&base, &result.summary));
            result.comparison = Some(comparison);
        }
        results.push(result);
    }
    Ok(results)
}

/// Whether trials that belong together have the same values; without pairs, whether there is one value on both sides.
fn are_identical(design: Design, base: &[Option<f64>], own: &[Option<f64>]) -> bool {
    match design {
        Design::Paired | Design::Blocked => base == own,
        Design::Unpaired => {
            let mut values = base.iter().chain(own).flatten();
            values.next().is_some_and(|first| values.all(|value| value == first))
        }
    }
}

/// What a comparison of two summaries means.
fn find(
    comparison: &Comparison,
    measure: &Measure,
    (base, own): (&Summary, &Summary),
    margin: f64,
    same: bool,
) -> Finding {
    let judged = comparison.interval.is_some();
    let nothing = |summary: &Summary| summary.median.is_some_and(|median| median < measure.least);
    let all_nothing = |summary: &Summary| summary.max.is_some_and(|max| max < measure.least);
    if same && judged {
        Finding::Identical
    } else if judged && all_nothing(base) && all_nothing(own) {
        Finding::Tied
    } else if nothing(base) {
        if judged { Finding::NotMeasurable } else { Finding::TooFewTrials }
    } else {
        Finding::of(comparison, margin)
    }
}

/// A ratio below this, to a value that can be told from zero, is one of nearly zero if the value cannot.
const NEXT_TO_NOTHING: f64 = 0.01;

/// Takes away what is no ratio: over or of nearly zero, or with an end that did not come.
fn without_false_ratio(comparison: &mut Comparison, measure: &Measure, (base, own): (&Summary, &Summary)) {
    let real = |summary: &Summary| summary.median.is_some_and(|median| median >= measure.least && median.is_finite());
    let is_ratio = |ratio: f64| ratio.is_finite() && (real(own) || ratio > NEXT_TO_NOTHING);
    if !real(base) || !comparison.ratio.is_some_and(is_ratio) {
        (comparison.ratio, comparison.interval, comparison.smallest_effect) = (None, None, None);
    }
    comparison.interval = comparison.interval.filter(|interval| interval.low.is_finite() && interval.high.is_finite());
    comparison.smallest_effect = comparison.smallest_effect.filter(|effect| effect.is_finite());
}

/// Whether a label is that of a yardstick.
fn is_yardstick(label: &str) -> bool {
    SchedulerSpec::parse(label).is_ok_and(|spec| spec.info().is_yardstick)
}

/// Whether a label is that of the baseline's second self.
fn is_null(label: &str) -> bool {
    SchedulerSpec::parse(label).is_ok_and(|spec| spec.circumstances().again)
}

/// JSON has no infinities; they are written as the statistics crate writes them.
fn points_with_infinities<S: Serializer>(points: &[Option<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(points.iter().map(|point| match point {
        Some(value) if value.is_infinite() => Value::from(if *value > 0.0 { "infinity" } else { "-infinity" }),
        other => Value::from(*other),
    }))
}

/// A ratio with three significant digits or so: `0.834`, `1.2`, `12.5`; a dash where there is none, as over a baseline of zero.
#[must_use]
pub fn decimal(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        3
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

pub(crate) fn percent(value: f64) -> String {
    let percent = value * 100.0;
    if percent < 1.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// What to check before the verdict is trusted.
fn warnings(
    record: &ExperimentRecord,
    workload: &Workload,
    place: &dyn Place,
    primary: &Measure,
    schedulers: &[SchedulerResult],
    trials: &[Vec<Trial>],
) -> Vec<String> {
    let mut warnings: Vec<String> = workload.warnings.iter().map(describe_warning).collect();
    let count = record.seeds.len();
    if count < MIN_TRIALS {
        let trials = if count == 1 { "1 trial gives" } else { &format!("{count} trials give") };
        warnings.push(format!("{trials} no intervals and no verdict; use at least {MIN_TRIALS}"));
    }
    let counts = if primary.until_end { "their time counts as infinite" } else { "what they did until then counts" };
    for scheduler in schedulers.iter().filter(|scheduler| scheduler.unfinished > 0) {
        warnings.push(format!(
            "{} of {count} trial{} of {} reached the largest time before the workload's end; {counts}",
            scheduler.unfinished,
            if count == 1 { "" } else { "s" },
            scheduler.label
        ));
    }
    warnings.extend(place.caveats());
    for (scheduler, trials) in schedulers.iter().zip(trials) {
        let lost: u64 = trials.iter().map(|trial| trial.events_lost).sum();
        if lost > 0 {
            warnings.push(format!(
                "{lost} events of {} were not recorded: its counts are lower bounds; a larger --trace-buffer keeps more",
                scheduler.label
            ));
        }
        let mut notes: BTreeMap<&String, usize> = BTreeMap::new();
        trials.iter().flat_map(|trial| &trial.notes).for_each(|note| *notes.entry(note).or_default() += 1);
        warnings.extend(notes.iter().map(|(note, of)| format!("{}: {note} ({of} of {count} trials)", scheduler.label)));
    }
    warnings
}

/// A warning of the workload as a line.
#[must_use]
pub fn describe_warning(warning: &Warning) -> String {
    let times = if warning.count > 1 { format!(" ({} times)", warning.count) } else { String::new() };
    format!("{}{times} is not modelled: {}", warning.what, warning.consequence)
}

#[cfg(test)]
mod tests;
