//! What could turn the verdict: the same trials with every figure of the machine, and cost of a scheduler, that nobody measured made smaller and larger, and with one
//! task more, one less, or one core less (the comparison's *neighbours*).
//!
//! What is run is a matter of `warmcore_study::sensitivity::comparison`; here is what came of it, and what it means. A verdict turns when
//! its finding becomes another: better, worse, different, starving, no different (tied or identical) or open (unclear or not to be compared).

use serde::{Deserialize, Serialize};
use warmcore_places::place::{PlaceError, Request};
use warmcore_statistics::{Better, Comparison, Interval};

use crate::directory::{RunDirectory, SENSITIVITY as FILE};
use crate::experiment::Experiment;
use crate::making;
use crate::verdict::{ComparisonDocument, Finding, MeasureResult, decimal, within};

/// Version of [`Sensitivity`].
pub const SCHEMA: &str = "warmcore-assumptions-1";

/// Changes of a ratio below this are none.
const NOTICED: f64 = 0.0005;

/// What assumed costs do to a comparison: `sensitivity.json` of a run directory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sensitivity {
    /// [`SCHEMA`].
    pub schema: String,
    /// The measure that was judged.
    pub metric: String,
    /// What every assumed figure was multiplied by.
    pub factors: Vec<f64>,
    /// Whether the neighbours were tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub neighbours: bool,
    /// Every assumed figure with every factor, figures in the order of the machine's file.
    pub variations: Vec<Variation>,
    /// In words.
    pub sentence: String,
}

/// The comparison with one change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Variation {
    /// What was changed, for people: `migration`, `one task more`.
    pub cost: String,
    /// The values by their names in the machine's file, a scheduler's tunable as `ule:visit_ns`; empty of a neighbour.
    pub values: Vec<String>,
    /// What they were multiplied by; none of a neighbour.
    pub factor: Option<f64>,
    /// What came of it.
    pub outcome: VariationOutcome,
    /// The schedulers but the baseline, in the order of the experiment; empty unless the outcome is `compared`.
    pub schedulers: Vec<VariedScheduler>,
}

/// What came of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariationOutcome {
    /// The first trial under every scheduler was the same as without the change, so no more were run.
    NoEffect,
    /// There is no such machine or workload; why.
    Impossible(String),
    /// All trials were run and compared.
    Compared,
}

/// One scheduler with one change of the machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VariedScheduler {
    /// Its label.
    pub label: String,
    /// Ratio to the baseline; none where there is no such.
    pub ratio: Option<f64>,
    /// 95 % interval of that, from 8 trials on.
    pub interval: Option<Interval>,
    /// What the comparison means.
    pub finding: Option<Finding>,
    /// Whether the finding is another than without the change; tied and identical are one, and so are unclear and not to be compared.
    pub turns: bool,
}

/// What a reader acts on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DecisiveSide {
    Better,
    Worse,
    Different,
    Starves,
    /// As good as the baseline.
    Same,
    /// Nobody knows.
    Open,
}

impl DecisiveSide {
    fn of(result: &MeasureResult, margin: f64) -> Self {
        match result.finding {
            Some(Finding::Better) => Self::Better,
            Some(Finding::Worse) => Self::Worse,
            Some(Finding::Different) => Self::Different,
            Some(Finding::Starves) => Self::Starves,
            Some(Finding::Tied | Finding::Identical) => Self::Same,
            Some(Finding::Unclear | Finding::NotMeasurable | Finding::Null | Finding::NotAnswerable) | None => {
                Self::Open
            }
            // Too few trials for a verdict: the ratio itself is all there is.
            Some(Finding::TooFewTrials) => match &result.comparison {
                Some(Comparison { ratio: Some(ratio), .. }) if within(*ratio, margin) => Self::Same,
                Some(Comparison { ratio: Some(ratio), better, .. }) => {
                    match (*ratio < 1.0) == (*better == Better::Lower) {
                        true => Self::Better,
                        false => Self::Worse,
                    }
                }
                _ => Self::Open,
            },
        }
    }
}

/// What an earlier look found for a run directory, if there was one.
///
/// # Errors
/// What is wrong with the file.
pub fn kept(directory: &RunDirectory) -> Result<Option<Sensitivity>, String> {
    if !directory.path().join(FILE).is_file() {
        return Ok(None);
    }
    let text = directory.read(FILE).map_err(|error| error.to_string())?;
    let kept: Sensitivity = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if kept.schema == SCHEMA { Ok(Some(kept)) } else { Err(format!("it has the schema {}", kept.schema)) }
}

/// Checks that the place would run a changed experiment: one CPU less may be too few for what deadline tasks reserve.
///
/// # Errors
/// Why not.
pub fn check(changed: &Experiment) -> Result<(), PlaceError> {
    let requests: Vec<Request<'_>> =
        (0..changed.schedulers.len()).map(|scheduler| making::request(changed, scheduler, 0)).collect();
    changed.place.check(&requests)
}

/// The schedulers of a comparison with a changed machine beside those of the unchanged one.
pub fn varied(unchanged: &ComparisonDocument, changed: &ComparisonDocument) -> Vec<VariedScheduler> {
    let margin = unchanged.experiment.margin;
    let pairs = unchanged.schedulers.iter().zip(&changed.schedulers).filter(|(before, _)| !before.is_baseline);
    pairs
        .filter_map(|(before, after)| {
            // What is changed may be a setting of the scheduler, which its own label says.
            let label = before.label.clone();
            let (before, result) = (before.measures.get(&unchanged.primary)?, after.measures.get(&unchanged.primary)?);
            let comparison = result.comparison.as_ref();
            Some(VariedScheduler {
                label,
                ratio: comparison.and_then(|comparison| comparison.ratio),
                interval: comparison.and_then(|comparison| comparison.interval),
                finding: result.finding,
                turns: DecisiveSide::of(before, margin) != DecisiveSide::of(result, margin),
            })
        })
        .collect()
}

impl Sensitivity {
    /// What the variations mean for a comparison.
    pub fn new(unchanged: &ComparisonDocument, asked: &AskedChanges, variations: Vec<Variation>) -> Self {
        let mut sentences = Vec::new();
        if !asked.factors.is_empty() {
            sentences.push(costs_in_words(unchanged, &asked.factors, &variations));
        }
        if asked.neighbours {
            sentences.push(neighbours_in_words(unchanged, &variations));
        }
        let (schema, metric) = (SCHEMA.to_owned(), unchanged.primary.clone());
        let AskedChanges { factors, neighbours } = asked.clone();
        Self { schema, metric, factors, neighbours, variations, sentence: sentences.join(" ") }
    }

    /// What was asked for.
    pub fn asked(&self) -> AskedChanges {
        AskedChanges { factors: self.factors.clone(), neighbours: self.neighbours }
    }
}

impl Variation {
    /// Whether it turns the verdict on some scheduler.
    pub fn turns(&self) -> bool {
        self.schedulers.iter().any(|scheduler| scheduler.turns)
    }

    /// Whether it is a scheduler's cost that is changed.
    fn is_of_scheduler(&self) -> bool {
        self.values.first().is_some_and(|name| name.contains(':'))
    }

    /// The largest change of a ratio, as a fraction of what it was.
    pub fn largest_change(&self, unchanged: &ComparisonDocument) -> Option<f64> {
        let changes = self.schedulers.iter().filter_map(|scheduler| {
            let before = unchanged.schedulers.iter().find(|before| before.label == scheduler.label)?;
            let before = before.measures.get(&unchanged.primary)?.comparison.as_ref()?.ratio?;
            Some((scheduler.ratio? / before - 1.0).abs()).filter(|change| change.is_finite())
        });
        changes.max_by(f64::total_cmp)
    }

    /// The cost with its factor: `migration × 2`.
    pub fn title(&self) -> String {
        match self.factor {
            Some(factor) => format!("{} \u{d7} {}", self.cost, decimal(factor)),
            None => self.cost.clone(),
        }
    }
}

/// What is tried.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AskedChanges {
    /// What every assumed figure of the machine and of schedulers is multiplied by.
    pub factors: Vec<f64>,
    /// Whether the neighbours are tried.
    pub neighbours: bool,
}

fn neighbours_in_words(unchanged: &ComparisonDocument, variations: &[Variation]) -> String {
    let (mut turning, mut same, mut impossible) = (Vec::new(), Vec::new(), Vec::new());
    for variation in variations.iter().filter(|variation| variation.factor.is_none()) {
        match &variation.outcome {
            VariationOutcome::Impossible(reason) => {
                impossible.push(format!("{} was not tried: {reason}", variation.cost))
            }
            _ if variation.turns() => turning.push(turns_in_words(unchanged, variation)),
            _ => same.push(variation.cost.as_str()),
        }
    }
    let mut parts = Vec::new();
    if !turning.is_empty() {
        parts.push(format!("The verdict is on an edge: {}", turning.join("; ")));
    }
    if !same.is_empty() {
        parts.push(format!("the verdict is the same with {}", same.join(", ")));
    }
    let text = parts.into_iter().chain(impossible).collect::<Vec<_>>().join("; ");
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect::<String>() + ".")
}

fn costs_in_words(unchanged: &ComparisonDocument, factors: &[f64], all: &[Variation]) -> String {
    let variations: Vec<&Variation> = all.iter().filter(|variation| variation.factor.is_some()).collect();
    let costs = |wanted: &dyn Fn(&Variation) -> bool| {
        let mut names: Vec<&str> = Vec::new();
        variations.iter().copied().filter(|variation| wanted(variation)).for_each(|variation| {
            if !names.contains(&variation.cost.as_str()) {
                names.push(&variation.cost);
            }
        });
        names
    };
    let all = costs(&|_| true).len();
    if all == 0 {
        return "No cost of the machine is assumed, so none could turn the verdict.".into();
    }
    let of_schedulers = variations.iter().any(|variation| variation.is_of_scheduler());
    let whose = if of_schedulers { "the machine and its schedulers" } else { "the machine" };
    let by: Vec<String> = factors.iter().map(|factor| format!("\u{d7} {}", decimal(*factor))).collect();
    let by = by.join(" and ");
    let turning = costs(&Variation::turns);
    let told = variations.iter().filter(|variation| variation.turns());
    let told: Vec<String> = told.map(|variation| turns_in_words(unchanged, variation)).collect();
    let largest = variations
        .iter()
        .filter_map(|variation| Some((variation, variation.largest_change(unchanged)?)))
        .filter(|(_, change)| *change >= NOTICED)
        .max_by(|(_, a), (_, b)| a.total_cmp(b));
    let largest = largest.map_or_else(
        || "no ratio changes".to_owned(),
        |(variation, change)| {
            format!("the largest change of a ratio is {:.1} %, with {}", change * 100.0, variation.title())
        },
    );
    let idle = costs(&|variation| variation.outcome == VariationOutcome::NoEffect)
        .into_iter()
        .filter(|cost| {
            variations
                .iter()
                .filter(|variation| variation.cost == **cost)
                .all(|variation| variation.outcome == VariationOutcome::NoEffect)
        })
        .count();
    let idle = if idle == 0 { String::new() } else { format!("; {idle} of them have no effect here") };
    match turning.len() {
        0 => format!("None of {all} assumed costs of {whose}, each {by}, turns the verdict: {largest}{idle}."),
        turning => format!(
            "{turning} of {all} assumed costs of {whose}, each {by}, could turn the verdict: {}; {largest}{idle}.",
            told.join("; ")
        ),
    }
}

/// What a change turns.
fn turns_in_words(unchanged: &ComparisonDocument, variation: &Variation) -> String {
    let turned = variation.schedulers.iter().filter(|scheduler| scheduler.turns);
    let turned: Vec<String> = turned.map(|scheduler| turned_in_words(unchanged, scheduler)).collect();
    format!("with {}, {}", variation.title(), turned.join(" and "))
}

fn turned_in_words(unchanged: &ComparisonDocument, scheduler: &VariedScheduler) -> String {
    let before = unchanged.schedulers.iter().find(|before| before.label == scheduler.label);
    let before = before.and_then(|before| before.measures.get(&unchanged.primary));
    let words = |finding: Option<Finding>, ratio: Option<f64>| {
        let finding = finding.map_or("not compared", Finding::words);
        ratio.map_or_else(|| finding.to_owned(), |ratio| format!("{finding} at {}", decimal(ratio)))
    };
    let was =
        words(before.and_then(|before| before.finding), before.and_then(|before| before.comparison.as_ref()?.ratio));
    if scheduler.finding == Some(Finding::Starves) {
        return format!("{} starves tasks instead of being {was}", scheduler.label);
    }
    format!("{} is {} instead of {was}", scheduler.label, words(scheduler.finding, scheduler.ratio))
}

#[cfg(test)]
mod tests {
    use warmcore_statistics::{Sample, compare_paired};

    use super::*;

    fn side(finding: Finding, ratio: f64) -> DecisiveSide {
        let comparison = compare_paired(&[1e6], &[1e6 * ratio], Better::Lower).unwrap();
        let summary = Sample::new(&[1e6]).unwrap().summary();
        let finding = Some(finding);
        let comparison = Some(comparison);
        let result = MeasureResult { points: Vec::new(), summary, comparison, finding, apart: None, few: None };
        DecisiveSide::of(&result, 0.01)
    }

    #[test]
    fn a_tie_that_becomes_unclear_turns_the_verdict() {
        assert_ne!(side(Finding::Tied, 1.0), side(Finding::Unclear, 1.228));
        assert_ne!(side(Finding::Unclear, 1.03), side(Finding::Worse, 1.03));
        assert_ne!(side(Finding::Worse, 1.03), side(Finding::Starves, 1.03));
        assert_eq!(side(Finding::Tied, 1.001), side(Finding::Identical, 1.0), "both say as good");
        assert_eq!(side(Finding::Unclear, 1.03), side(Finding::NotMeasurable, 1.0), "both say nothing");
    }

    #[test]
    fn with_too_few_trials_the_ratio_is_all_there_is() {
        let sides = [0.9, 1.005, 1.1].map(|ratio| side(Finding::TooFewTrials, ratio));
        assert_eq!(sides, [DecisiveSide::Better, DecisiveSide::Same, DecisiveSide::Worse]);
    }
}
