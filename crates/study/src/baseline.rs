//! An earlier result of a study as the baseline of a new one: what a change of a scheduler did to every figure.
//!
//! Figures that say what is `better` are compared with the baseline's of the same name, trial by trial where the place pairs trials by
//! seed, and all of a study are corrected together (Holm). What is worse beyond the margin, or cannot be compared, counts against the study.
//! An unclear difference does not: more trials settle it. What leaves tasks waiting for ever that ran in the baseline counts too, and is never
//! better: no latency holds a wait that does not end.
//!
//! A baseline is refused before anything runs if another version of the program made it, or if it is of other cells or figures: then a
//! difference would not be the scheduler's. The scheduler itself may be another one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warmcore_lab::experiment::{Experiment, TOOL_VERSION};
use warmcore_lab::verdict::{Finding, ratio_with_interval, starves};
use warmcore_lab::{files, measures};
use warmcore_statistics::{Better, Comparison, Design, StatisticsError, compare_trials, judge};

use crate::document::{CellResult, ExpectationResult, StudyDocument, StudyResult, decimal};
use crate::figure::{Expression, NamedPart};
use crate::file::{BaselineFile, Expectation, FormError, Problem, Study};
use crate::judge::Judgement;
use crate::plan::{Plan, PlannedCell};

/// The baseline of a study.
#[derive(Clone, PartialEq, Debug)]
pub struct Baseline {
    /// The file, as the study names it.
    pub file: String,
    /// The earlier result; nothing if the file is not there yet.
    pub earlier: Option<StudyResult>,
}

/// The baseline, in a result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineResult {
    /// The file, as the study names it.
    pub file: String,
    /// Whether it was there.
    pub found: bool,
}

/// A figure against the baseline's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Against {
    /// What the baseline has; absent where that has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Differences up to this fraction do not matter.
    pub margin: f64,
    /// The ratio with its interval; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// What it means.
    pub finding: Finding,
}

impl Against {
    /// Whether it counts against the study.
    pub fn fails(&self) -> bool {
        !matches!(self.finding, Finding::Identical | Finding::Tied | Finding::Unclear | Finding::Better)
    }

    /// The ratio with its interval, and the verdict, in words.
    fn words(&self) -> (String, &'static str) {
        let ratio = self.comparison.as_ref().and_then(|of| Some((of.ratio?, of.interval)));
        let ratio = ratio.map_or_else(String::new, |(ratio, interval)| ratio_with_interval(ratio, interval));
        (ratio, self.finding.words())
    }
}

/// The baselines of a plan's studies.
///
/// # Errors
/// One that cannot be read, or that is of something else, with its place in the study.
pub fn read(plan: &Plan) -> Result<Vec<Option<Baseline>>, FormError> {
    let of_study = |(index, study): (usize, &Study)| {
        let Some(of) = &study.baseline else { return Ok(None) };
        let refused = |words: String| {
            study.error_at(of.at, Problem::Value(format!("the baseline {}: {words}", of.file.display())))
        };
        let earlier = earlier(study, of).and_then(|earlier| match earlier {
            Some(earlier) => check(plan, index, &earlier).map(|()| Some(earlier)),
            None => Ok(None),
        });
        Ok(Some(Baseline { file: of.file.display().to_string(), earlier: earlier.map_err(refused)? }))
    };
    plan.studies.iter().enumerate().map(of_study).collect()
}

/// The study's part of the file, if that is there.
fn earlier(study: &Study, of: &BaselineFile) -> Result<Option<StudyResult>, String> {
    let path = study.path.parent().map_or_else(|| of.file.clone(), |parent| parent.join(&of.file));
    let text = match files::text_of_file(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it cannot be read: {error}")),
    };
    let document =
        StudyDocument::from_json(&text).map_err(|reason| format!("it is not a result of a study: {reason}"))?;
    if document.tool_version != TOOL_VERSION {
        let made = document.tool_version;
        return Err(format!(
            "version {made} made it, and this is {TOOL_VERSION}: the simulator may differ, not the scheduler"
        ));
    }
    let names: Vec<String> = document.studies.iter().map(|study| format!("`{}`", study.name)).collect();
    let found = document.studies.into_iter().find(|earlier| earlier.name == study.name);
    found.map(Some).ok_or_else(|| format!("it is of {}, and this study is `{}`", names.join(", "), study.name))
}

/// Most names that an error shows.
const NAMES_SHOWN: usize = 8;

/// Checks that an earlier result is of the cells and figures that are planned.
fn check(plan: &Plan, index: usize, earlier: &StudyResult) -> Result<(), String> {
    let study = &plan.studies[index];
    let mut other = Vec::new();
    for cell in plan.cells[index].iter().filter(|cell| cell.wrong.is_none()) {
        let (name, setting) = (cell.name(study), setting(plan, cell));
        let same_name: Vec<&CellResult> = earlier.cells.iter().filter(|of| of.name == name).collect();
        let Some(first) = same_name.first() else {
            other.push(format!("it lacks the cell `{name}`"));
            continue;
        };
        if setting.is_empty() {
            continue;
        }
        if same_name.iter().all(|of| of.setting != setting) {
            other.push(format!("its cell `{name}` ran something else"));
        } else if same_name.iter().all(|of| of.trials != cell.trials) {
            let (before, now) = (first.trials, cell.trials);
            other.push(format!("its cell `{name}` has {before} trials, and the study's has {now}"));
        }
    }
    let known: Vec<String> = plan.cells[index].iter().map(|cell| cell.name(study)).collect();
    let gone = earlier.cells.iter().filter(|of| !study.is_partial() && !known.contains(&of.name));
    other.extend(gone.map(|of| format!("its cell `{}` does not belong to the study", of.name)));
    for of in study.expectations.iter().filter(|of| of.against.is_some()) {
        match earlier.expectations.iter().find(|before| before.name == of.name) {
            None => other.push(format!("it lacks the figure `{}`", of.name)),
            Some(before) if before.figure != of.figure.to_string() => {
                other.push(format!("its `{}` is `{}`, and the study's is `{}`", of.name, before.figure, of.figure));
            }
            Some(_) => {}
        }
    }
    other.dedup();
    let more = other.len().saturating_sub(NAMES_SHOWN);
    other.truncate(NAMES_SHOWN);
    match (other.is_empty(), more) {
        (true, _) => Ok(()),
        (false, 0) => Err(other.join("; ")),
        (false, more) => Err(format!("{}; and {more} more", other.join("; "))),
    }
}

/// A hash of what each of a cell's runs depends on besides the scheduler; empty where it is not run.
pub(crate) fn setting(plan: &Plan, cell: &PlannedCell) -> String {
    let Ok((experiment, _)) = cell.runs else { return String::new() };
    let experiment: &Experiment = &plan.experiments[experiment].experiment;
    let record = experiment.record();
    // Numbers and names can always be written.
    let options = serde_json::to_string(&record.options).unwrap_or_default();
    let seed = record.seeds.first().map_or_else(String::new, u64::to_string);
    let parts = [&record.place, &record.machine.sha256, &record.workload.sha256, &options, &seed];
    let mut hash = files::sha256(parts.map(String::as_str).join("\n").as_bytes());
    hash.truncate(16);
    hash
}

/// Compares figures with the baseline's; what fails is wrong, and unexpected.
pub(crate) fn compare(
    (plan, index): (&Plan, usize),
    earlier: &StudyResult,
    (expected, results): (&[Expectation], &mut [ExpectationResult]),
) {
    let paired = plan.cells[index].iter().filter_map(|cell| cell.runs.as_ref().ok()).all(|(experiment, _)| {
        // A block's trials are close to each other in time, and those of two runs are not.
        plan.experiments[*experiment].experiment.place.design() == Design::Paired
    });
    let design = if paired { Design::Paired } else { Design::Unpaired };
    let before = |name: &str| earlier.expectations.iter().find(|of| of.name == name);
    let mut found: BTreeMap<usize, Comparison> = BTreeMap::new();
    for (number, (of, result)) in expected.iter().zip(&*results).enumerate() {
        if let (Some((better, _)), Some(before)) = (of.against, before(&of.name))
            && let Ok(comparison) = of_trials(design, &before.trials, &result.trials, better)
        {
            found.insert(number, comparison);
        }
    }
    let mut table: Vec<Comparison> = found.values().cloned().collect();
    judge(&mut table);
    let judged = table.len();
    found.values_mut().zip(table).for_each(|(of, judged)| *of = judged);
    for (number, (of, result)) in expected.iter().zip(results).enumerate() {
        let Some((_, margin)) = of.against else { continue };
        let before = before(&of.name);
        let comparison = found.remove(&number);
        let same = before.is_some_and(|before| before.trials == result.trials);
        let finding = match &comparison {
            Some(_) if same => Finding::Identical,
            Some(comparison) => {
                match finding_of(comparison, in_buckets(&of.figure, margin), (design, judged), [before, Some(result)]) {
                    Finding::Better | Finding::Tied | Finding::Unclear
                        if before.is_some_and(|before| starves(before.never_ran_again, result.never_ran_again)) =>
                    {
                        Finding::Starves
                    }
                    finding => finding,
                }
            }
            None => Finding::NotMeasurable,
        };
        let against = Against { value: before.and_then(|before| before.value), margin, comparison, finding };
        if against.fails() && of.counted {
            (result.judgement, result.unexpected) = (Judgement::Wrong, true);
        }
        result.against = Some(against);
    }
}

/// The margin beyond which a figure differs however a percentile that it names lies in its bucket, whose upper edge that is.
fn in_buckets(figure: &Expression, margin: f64) -> f64 {
    let mut resolution = 1.0_f64;
    figure.each_name(&mut |part, _| {
        if let NamedPart::Measure(selection) = part {
            resolution = resolution.max(measures::resolution(&selection.measure));
        }
    });
    margin.max((1.0 + margin) * resolution - 1.0)
}

/// What a comparison means, of `judged` that are judged together; a tie only where not many trials are apart.
fn finding_of(
    comparison: &Comparison,
    margin: f64,
    (design, judged): (Design, usize),
    sides: [Option<&ExpectationResult>; 2],
) -> Finding {
    let trials = |side: Option<&ExpectationResult>| -> Vec<Option<f64>> {
        side.map_or_else(Vec::new, |side| side.trials.iter().copied().map(Some).collect())
    };
    let [before, now] = sides.map(trials);
    Finding::of(comparison, margin).with_apart(design, [&before, &now], (margin, judged)).0
}

/// Compares the trials that both sides have; without any there is nothing to compare.
fn of_trials(design: Design, before: &[f64], now: &[f64], better: Better) -> Result<Comparison, StatisticsError> {
    if before.is_empty() || now.is_empty() {
        return Err(StatisticsError::UnequalLengths { baseline: before.len(), candidate: now.len() });
    }
    let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
    compare_trials(design, &some(before), &some(now), better)
}

impl StudyResult {
    /// Whether its baseline is not there.
    pub fn lacks_its_baseline(&self) -> bool {
        self.baseline.as_ref().is_some_and(|of| !of.found)
    }

    /// How its figures stand against the baseline, in a sentence; nothing without one.
    pub fn against_the_baseline(&self) -> Option<String> {
        let file = &self.baseline.as_ref()?.file;
        if self.lacks_its_baseline() {
            return Some(format!("There is no baseline {file} yet: nothing is compared."));
        }
        const ORDER: [Finding; 9] = [
            Finding::Worse,
            Finding::Starves,
            Finding::Different,
            Finding::NotMeasurable,
            Finding::TooFewTrials,
            Finding::Better,
            Finding::Unclear,
            Finding::Tied,
            Finding::Identical,
        ];
        let all: Vec<Finding> = self.expectations.iter().filter_map(|of| Some(of.against.as_ref()?.finding)).collect();
        let number = |finding: Finding| all.iter().filter(|of| **of == finding).count();
        let known = ORDER.into_iter().filter(|finding| number(*finding) > 0);
        let said: Vec<String> = known.map(|finding| format!("{} {}", number(finding), finding.words())).collect();
        let figures = if all.len() == 1 { "figure" } else { "figures" };
        Some(format!("{} {figures} against the baseline {file}: {}.", all.len(), said.join(", ")))
    }
}

impl ExpectationResult {
    /// Headings of the table of figures against the baseline; a `>` before a name means that numbers are below it.
    pub const AGAINST_HEADINGS: [&'static str; 6] =
        ["figure", ">baseline", ">here", ">ratio [95 %]", ">margin", "verdict"];

    /// Its row there, and whether it counts against the study; nothing if it is not compared.
    pub fn against_row(&self) -> Option<([String; 6], bool)> {
        let of = self.against.as_ref()?;
        let (ratio, verdict) = of.words();
        let margin = format!("{} %", decimal(Some(of.margin * 100.0)));
        let here = decimal(self.value);
        Some(([self.name.clone(), decimal(of.value), here, ratio, margin, verdict.to_owned()], self.unexpected))
    }

    /// What is wrong with it against the baseline, in words; nothing if that is not why it counts.
    pub(crate) fn against_words(&self) -> Option<String> {
        let of = self.against.as_ref().filter(|of| of.fails())?;
        let (ratio, verdict) = of.words();
        let why = match (&self.no_value, of.value, of.finding) {
            (Some(reason), ..) => format!(": here {reason}"),
            (None, None, _) => ": the baseline has no value".to_owned(),
            (.., Finding::TooFewTrials) => format!(
                ", ratio {ratio}: {} trials are too few to judge so many figures; give the cells more",
                self.trials.len()
            ),
            (.., Finding::Starves) => format!(
                ", ratio {ratio}: {} tasks of a cell never ran again in the middle trial, more than in the baseline",
                decimal(Some(self.never_ran_again))
            ),
            _ => format!(", ratio {ratio}, margin {} %", decimal(Some(of.margin * 100.0))),
        };
        Some(format!("{verdict}{why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::parse;

    #[test]
    fn a_percentile_differs_by_more_than_its_bucket_too() {
        let margin = |figure: &str| in_buckets(&parse(figure).unwrap(), 0.02);
        for figure in ["wakeup_p99_ns[a]", "wakeup_p99_ns[a] / 1000"] {
            assert!((margin(figure) - (1.02 * (1.0 + 1.0 / 64.0) - 1.0)).abs() < 1e-9, "{figure}");
        }
        assert!((margin("wakeup_mean_ns[a]") - 0.02).abs() < 1e-9);
        assert!((margin("2 * elapsed_ns[a]") - 0.02).abs() < 1e-9);
    }
}
