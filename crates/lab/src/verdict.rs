//! The verdict: every measure of every scheduler with all its points, the ratio to the baseline with its interval, and
//! the primary measure's comparison in a sentence.
//!
//! P values are corrected (Holm) over the schedulers within each measure. The verdict in words is about the primary
//! measure alone, which is fixed by the workload before anything runs; the other measures explain it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Serialize, Serializer};
use serde_json::Value;
use warmcore_options::{MemoryChoice, TraceLevel};
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::bootstrap::MIN_TRIALS;
use warmcore_statistics::{
    Comparison, Design, Sample, StatisticsError, Summary, TrialsApart, compare_trials, judge, trials_needed,
};
use warmcore_workload::{Warning, Workload};

use crate::advice::Advice;
use crate::decisions::{self, DecisionCount};
use crate::experiment::{Experiment, ExperimentRecord, TOOL_VERSION};
use crate::headroom::Headroom;
use crate::host_measures;
use crate::measures::{self, Measure};
use crate::operations::{self, OperationTake};
use crate::sensitivity::Sensitivity;
use crate::time_split::{self, TimeSplit};
use crate::trial::{Trial, TrialEnd};

mod answerable;
mod carries;
mod conditions;
mod finding;
mod numbers;
mod words;

pub(crate) use answerable::gathered_without_profile;
pub use answerable::{starves, tasks_left};
pub use carries::{few_events, few_to_show};
pub(crate) use finding::within;
pub use finding::{DEFAULT_MARGIN, Finding};
use finding::{least_shown, spread};
pub use numbers::{decimal, decimals_of_small, interval_ends, ratio_and_ends, ratio_with_interval};
pub use words::trials_in_words;

/// Version of the document.
pub const SCHEMA: &str = "warmcore-comparison-2";

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum VerdictError {
    #[error("there is no metric `{name}` for this workload; {}", among(.similar, *.known))]
    NoSuchMetric {
        name: String,
        /// Those with a similar name, or some if none is similar, in order of name.
        similar: Vec<String>,
        known: usize,
    },
    /// The metric is a number in what a command prints, and does not say where.
    #[error("{0}")]
    Pattern(String),
    #[error("metric `{name}` follows from events, but nothing is recorded")]
    NotRecorded { name: String },
    /// A measure was not a number: a fault of this program.
    #[error("measure `{measure}` of {scheduler}: {source}")]
    Statistics { measure: String, scheduler: String, source: StatisticsError },
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
    /// Which of the settings help, where the columns are settings that nobody named. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
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
    /// Trials beyond the margin where the middle of all is inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<TrialsApart>,
    /// Of a percentile the fewest events that it is one of in a trial, and how many it takes to be shown, if there are fewer
    /// ([`few_to_show`]). Documents have its numbers all the same.
    #[serde(skip)]
    pub few: Option<(f64, f64)>,
}

impl MeasureResult {
    /// The median over the trials, where it is more than one of few events.
    pub fn shown(&self) -> Option<f64> {
        self.summary.median.filter(|_| self.few.is_none())
    }
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

/// What follows from the trials alone.
fn concluded(
    experiment: &Experiment,
    record: &ExperimentRecord,
    trials: &[Vec<Trial>],
) -> Result<ComparisonDocument, VerdictError> {
    let (workload, place) = (&experiment.workload.value, &*experiment.place);
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
        for ((scheduler, result), trials) in schedulers.iter_mut().zip(results).zip(trials) {
            let result = MeasureResult { few: few_to_show(measure, trials), ..result };
            scheduler.measures.insert(measure.name.clone(), result);
        }
    }
    let labels: Vec<String> = record.schedulers.iter().map(|scheduler| scheduler.label.clone()).collect();
    let candidates = carries::Candidates { workload, catalogue: &catalogue, schedulers: &schedulers, trials, baseline };
    let (primary, replaced) = candidates.choose(asked);
    let is_unkept = |(index, label): &(usize, &String)| {
        place.kind().simulated && experiment.workload_of(*index).value.has_quotas() && !answerable::keeps_quotas(label)
    };
    let unkept: Vec<String> = labels.iter().enumerate().filter(is_unkept).map(|(_, label)| label.clone()).collect();
    answerable::judge(experiment, record, &unkept, (&catalogue, primary), &mut schedulers, (baseline, trials));
    let unprofiled = |index: usize| {
        let of = gathered_without_profile(&experiment.workload_of(index).value, &trials[baseline])?;
        of.decides().then_some(of.process)
    };
    let basis = words::Basis {
        primary,
        replaced: replaced.as_ref(),
        unkept: &unkept,
        unprofiled: match record.options.memory {
            MemoryChoice::None => None,
            _ => (0..record.schedulers.len()).find_map(unprofiled),
        },
        margin: record.margin,
        design: record.design,
        trials: record.seeds.len(),
    };
    let verdict = words::conclusion(&basis, &schedulers, baseline);
    let of_primary: Vec<&MeasureResult> =
        schedulers.iter().filter_map(|scheduler| scheduler.measures.get(&primary.name)).collect();
    let time_split = time_split::explaining(&labels, baseline, trials, (primary, &of_primary, record.design));
    let lockstep = conditions::lockstep(&schedulers, primary);
    Ok(ComparisonDocument {
        schema: SCHEMA,
        tool_version: TOOL_VERSION,
        experiment: record.clone(),
        primary: primary.name.clone(),
        secondary: measures::secondary(workload).filter(|name| *name != primary.name),
        warnings: warnings(record, experiment, primary, &schedulers, trials),
        unmodelled: not_modelled(experiment).len(),
        measures: catalogue.clone(),
        time_split,
        replaced,
        conditions: conditions::of_record(experiment, record, (&schedulers, trials), primary),
        headroom: None,
        advice: None,
        sensitivity: None,
        verdict,
        schedulers,
        lockstep,
    })
}

/// Makes the document from all trials, by scheduler and number. Trials are compared as the record's design demands; each scheduler's column is
/// judged by its own workload and machine.
///
/// # Errors
/// A metric that does not exist.
pub fn conclude(
    experiment: &Experiment,
    record: &ExperimentRecord,
    trials: &[Vec<Trial>],
) -> Result<ComparisonDocument, VerdictError> {
    let mut document = concluded(experiment, record, trials)?;
    if experiment.place.kind().simulated {
        let own = experiment.columns.values().filter_map(|column| column.machine.as_ref());
        let machines = std::iter::once(&experiment.machine).chain(own);
        document.warnings.extend(machines.filter_map(crate::load::generic_costs));
        conditions::of_simulations(experiment, &mut document);
    }
    document.conditions.extend(conditions::of_columns(experiment));
    document.advice = experiment.advised.then(|| Advice::of(experiment, &document, trials, Path::new("/")));
    Ok(document)
}

/// Checks, before anything runs, that the verdict's metric exists and will be measured.
///
/// # Errors
/// When it does not, or will not.
pub(crate) fn check_metric(metric: Option<&str>, trace: TraceLevel, workload: &Workload) -> Result<(), VerdictError> {
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
    // Each role has the same ones.
    names.sort_by_key(|name| (measures::is_of_role(name), name.clone()));
    names.truncate(NAMES_SHOWN);
    names.sort();
    names
}

fn among(similar: &[String], known: usize) -> String {
    format!("it has {known} metrics, among them {}", similar.join(", "))
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
    let judged = comparisons.len();
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
        let mut result = MeasureResult {
            points: own.clone(),
            summary: if index == baseline { base.clone() } else { summary(index)? },
            comparison: None,
            finding: None,
            apart: None,
            few: None,
        };
        if let Some(mut comparison) = if index == baseline { None } else { comparisons.next() } {
            let same = are_identical(record.design, &points[baseline], own);
            let found = find(&comparison, measure, (&base, &result.summary), record.margin, same);
            let points = [&points[baseline], own].map(Vec::as_slice);
            let told = [&base, &result.summary].iter().any(|of| of.max.is_some_and(|max| max >= measure.least));
            let least = least_shown(measure, record.margin);
            let (found, apart) = match told {
                true => found.with_apart(record.design, points, (record.margin.max(least - 1.0), judged)),
                false => (found, None),
            };
            result.apart = apart.filter(|_| Some(index) != null);
            result.finding = Some(match Some(index) == null {
                true => Finding::Null,
                false => found.beyond(&comparison, spread.max(least)),
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
    if base.n == 0 || own.n == 0 {
        // More trials would have none either.
        Finding::NotMeasurable
    } else if same && judged {
        Finding::Identical
    } else if judged && all_nothing(base) && all_nothing(own) {
        Finding::Tied
    } else if nothing(base) && !stands_out(own, measure) {
        if judged { Finding::NotMeasurable } else { Finding::TooFewTrials }
    } else {
        Finding::of(comparison, margin)
    }
}

/// Of the least value that can be told from zero, how many times as much is clearly not.
const CLEARLY: f64 = 10.0;

/// Whether a side is so far above zero that one of nearly zero is less, however much: whether the trials show it needs no ratio.
fn stands_out(summary: &Summary, measure: &Measure) -> bool {
    summary.median.is_some_and(|median| median >= CLEARLY * measure.least)
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

pub(crate) fn percent(value: f64) -> String {
    let percent = value * 100.0;
    if percent < 1.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// What to check before the verdict is trusted.
fn warnings(
    record: &ExperimentRecord,
    experiment: &Experiment,
    primary: &Measure,
    schedulers: &[SchedulerResult],
    trials: &[Vec<Trial>],
) -> Vec<String> {
    let mut warnings = not_modelled(experiment);
    let count = record.seeds.len();
    if count < MIN_TRIALS {
        let trials = if count == 1 { "1 trial gives" } else { &format!("{count} trials give") };
        warnings.push(format!("{trials} no intervals and no verdict; use at least {MIN_TRIALS}"));
    }
    let compared = schedulers.iter().filter_map(|scheduler| scheduler.measures.get(&primary.name)?.comparison.as_ref());
    let compared = compared.filter(|comparison| comparison.p_value.is_some()).count();
    let needed = trials_needed(record.design, compared);
    if (MIN_TRIALS..needed).contains(&count) {
        warnings.push(format!(
            "{count} trials cannot show a difference from the baseline for any of {compared}, however clear it is: use at least {needed}"
        ));
    }
    for (scheduler, trials) in schedulers.iter().zip(trials).filter(|(scheduler, _)| scheduler.unfinished > 0) {
        warnings.push(format!(
            "{} of {count} trial{} of {} reached the largest time before the workload's end; {}",
            scheduler.unfinished,
            if count == 1 { "" } else { "s" },
            scheduler.label,
            what_counts(primary, trials)
        ));
    }
    for (scheduler, trials) in schedulers.iter().zip(trials) {
        let cut = |trial: &&Trial| primary.is_unended(trial) && trial.end != TrialEnd::TimeLimit;
        let cut = trials.iter().filter(cut).count();
        if cut > 0 {
            warnings.push(format!(
                "{cut} of {count} trial{} of {} ended before the tasks whose end is measured: the workload's duration is too short; their time counts as infinite",
                if count == 1 { "" } else { "s" },
                scheduler.label
            ));
        }
    }
    warnings.extend(experiment.place.caveats());
    for (scheduler, trials) in schedulers.iter().zip(trials) {
        let lost: u64 = trials.iter().map(|trial| trial.events_lost).sum();
        if lost > 0 {
            warnings.push(format!(
                "{lost} events of {} were not recorded: its counts are lower bounds; a larger trace buffer (`--on vm:trace-buffer=MIB`) keeps more",
                scheduler.label
            ));
        }
        let mut notes: BTreeMap<&String, usize> = BTreeMap::new();
        trials.iter().flat_map(|trial| &trial.notes).for_each(|note| *notes.entry(note).or_default() += 1);
        warnings.extend(notes.iter().map(|(note, of)| format!("{}: {note} ({of} of {count} trials)", scheduler.label)));
    }
    warnings
}

/// What counts of the trials that reached the largest time. Time until the end of some tasks may be over before.
fn what_counts(primary: &Measure, trials: &[Trial]) -> String {
    let cut = || trials.iter().filter(|trial| trial.end == TrialEnd::TimeLimit);
    match (cut().filter(|trial| primary.is_unended(trial)).count(), cut().count()) {
        (0, _) if primary.until_end => "their time had ended before".to_owned(),
        (0, _) => "what they did until then counts".to_owned(),
        (unended, all) if unended == all => "their time counts as infinite".to_owned(),
        (unended, _) => {
            format!("the time of {unended} of them counts as infinite; the time of the others had ended before")
        }
    }
}

/// The warnings of all workloads, each once.
fn not_modelled(experiment: &Experiment) -> Vec<String> {
    let lines = experiment.workloads().flat_map(|workload| &workload.value.warnings).map(describe_warning);
    conditions::without_repeats(lines)
}

/// A warning of the workload as a line.
pub fn describe_warning(warning: &Warning) -> String {
    let times = if warning.count > 1 { format!(" ({} times)", warning.count) } else { String::new() };
    format!("{}{times} is not modelled: {}", warning.what, warning.consequence)
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
