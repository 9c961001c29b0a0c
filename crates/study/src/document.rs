//! The result of studies: one document, and its table.
//!
//! A study is as good as the worst of its expectations that count. Nothing in the document differs between equal runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warmcore_lab::experiment::TOOL_VERSION;
use warmcore_lab::verdict::decimals_of_small;

use crate::baseline::{self, Against, Baseline, BaselineResult};
use crate::figure::{self, ValueError};
use crate::file::{Band, Cost, Expectation, Mark, MarkKind, Missing, NotAsked, Outside, Study};
use crate::judge::{self, Judged, Judgement, Trials, is_of_the_size};
use crate::plan::{Plan, PlannedCell};
use crate::score::Score;

/// Version of the document.
pub const SCHEMA: &str = "warmcore-study-1";

/// What came out of studies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub tool_version: String,
    /// The studies, in the order that was asked for.
    pub studies: Vec<StudyResult>,
    /// Studies by judgement.
    pub counts: BTreeMap<String, usize>,
    /// Of the studies that were judged, those whose every counted figure has the published direction and size, or lies in its band.
    pub of_the_size: usize,
    /// Expectations that are not what the files say, and wrong models that were not rejected.
    pub unexpected: usize,
}

/// A study.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyResult {
    /// Name.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// What somebody wants to know.
    pub question: String,
    /// Who measured the answer, and where.
    pub source: String,
    /// Whether tests run it.
    pub cost: Cost,
    /// What a reader should know besides.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The worst of what counts.
    pub judgement: Judgement,
    /// The earlier result with which figures are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineResult>,
    /// How its rows came out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Whether every figure that counts is in its band, or changes by half to twice what was published.
    pub of_the_size: bool,
    /// What this program lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_expressible: Option<Missing>,
    /// The expectations.
    pub expectations: Vec<ExpectationResult>,
    /// What was published and cannot be asked here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_asked: Vec<NotAsked>,
    /// The wrong models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrong_models: Vec<WrongModelResult>,
    /// What was run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellResult>,
}

/// An expectation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectationResult {
    /// What it is.
    pub name: String,
    /// How it was computed.
    pub figure: String,
    /// What was published, if that is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// What came out; absent where it has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Smallest and largest of a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// What came out in each trial; one number where the figure is one of all trials.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "warmcore_statistics::number::list")]
    pub trials: Vec<f64>,
    /// How many trials the value is of, where `trials` does not tell: of a figure of all trials, or of a value that was kept without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_count: Option<usize>,
    /// The same against the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    /// Of a figure that is compared with a baseline: tasks that never ran again in the middle trial of a cell that it names, the most of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub never_ran_again: f64,
    /// Why it has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_value: Option<String>,
    /// Lower end of the band.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the band.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Why the band is where it is.
    pub reason: String,
    /// How it is judged.
    pub judgement: Judgement,
    /// The change in parts of the published one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<f64>,
    /// Whether it decides.
    pub counted: bool,
    /// Why it is shown and not scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The parameter that was fitted to it, in documents of versions that knew no other mark.
    #[serde(default, skip_serializing)]
    fitted: Option<String>,
    /// Whether it has the published direction; absent where the source claims none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_right: Option<bool>,
    /// What is known of an answer outside of its band.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<Outside>,
    /// Whether it is not what the file says.
    pub unexpected: bool,
}

/// A model that must be rejected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrongModelResult {
    /// What is wrong.
    pub name: String,
    /// The expectations that reject it; none is an error.
    pub rejected_by: Vec<String>,
    /// Whether that could be tried on this computer.
    pub tried: bool,
}

/// What was run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// The cell with the values of its axes.
    pub name: String,
    /// Machine.
    pub machine: String,
    /// Workload.
    pub workload: String,
    /// Scheduler.
    pub scheduler: String,
    /// Place.
    pub place: String,
    /// Trials.
    pub trials: usize,
    /// A hash of what its runs depend on besides the scheduler; empty where it was not run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub setting: String,
    /// Why it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_here: Option<String>,
}

impl StudyDocument {
    /// The document of a plan's trials; `baselines` are of those studies that are compared with one.
    pub fn new(plan: &Plan, trials: &Trials, baselines: &[Option<Baseline>]) -> Self {
        let of = |study| StudyResult::new(plan, trials, study, baselines.get(study).and_then(Option::as_ref));
        Self::of((0..plan.studies.len()).map(of).collect())
    }

    /// The document of studies and of what was computed elsewhere: the value of each expectation, or why it has none.
    pub fn of_values(
        studies: &[Study],
        value: &dyn Fn(&Study, &Expectation) -> Result<figure::Value, ValueError>,
    ) -> Self {
        Self::of(studies.iter().map(|study| StudyResult::of_values(study, value)).collect())
    }

    /// The document of results.
    pub fn of(studies: Vec<StudyResult>) -> Self {
        let mut counts = BTreeMap::new();
        for study in &studies {
            *counts.entry(study.judgement.words().to_owned()).or_insert(0) += 1;
        }
        let unaccepted = |study: &StudyResult| {
            let expectations = study.expectations.iter().filter(|expectation| expectation.unexpected).count();
            let models = study.wrong_models.iter().filter(|wrong| wrong.is_accepted()).count();
            expectations + models + usize::from(study.lacks_its_baseline())
        };
        Self {
            schema: SCHEMA.into(),
            tool_version: TOOL_VERSION.into(),
            counts,
            of_the_size: studies.iter().filter(|study| study.is_judged() && study.of_the_size).count(),
            unexpected: studies.iter().map(unaccepted).sum(),
            studies,
        }
    }

    /// The document in a text.
    ///
    /// # Errors
    /// When it is none of this version.
    pub fn from_json(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct AnyVersion {
            schema: String,
        }
        let AnyVersion { schema } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if schema != SCHEMA {
            return Err(format!("its schema is `{schema}`; this version reads {SCHEMA}"));
        }
        let mut document: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for of in document.studies.iter_mut().flat_map(|study| &mut study.expectations) {
            if let Some(why) = of.fitted.take() {
                of.mark = Some(Mark { kind: MarkKind::Fitted, why });
            }
        }
        Ok(document)
    }

    /// Studies that were judged.
    pub fn judged(&self) -> usize {
        self.studies.iter().filter(|study| study.is_judged()).count()
    }

    /// How the studies were judged, and how their figures that count, in sentences.
    pub fn conclusion(&self) -> String {
        const ORDER: [Judgement; 7] = [
            Judgement::Right,
            Judgement::RightInSign,
            Judgement::Wrong,
            Judgement::NotAnswerableHere,
            Judgement::Fitted,
            Judgement::NotScored,
            Judgement::NotExpressible,
        ];
        let said = |number: &dyn Fn(Judgement) -> usize| {
            let known = ORDER.into_iter().filter(|judgement| number(*judgement) > 0);
            known.map(|judgement| format!("{} {}", number(judgement), judgement.words())).collect::<Vec<_>>().join(", ")
        };
        let questions = if self.studies.len() == 1 { "question" } else { "questions" };
        let of_studies = |judgement: Judgement| self.counts.get(judgement.words()).copied().unwrap_or(0);
        let figures: Vec<Judgement> = self
            .studies
            .iter()
            .flat_map(|study| {
                let not_asked = study.not_asked.iter().map(|_| Judgement::NotExpressible);
                study.expectations.iter().filter(|of| of.counted).map(|of| of.judgement).chain(not_asked)
            })
            .collect();
        let of_figures = |judgement: Judgement| figures.iter().filter(|of| **of == judgement).count();
        let counted = said(&of_figures);
        let counted = if counted.is_empty() { counted } else { format!(" Their figures that count: {counted}.") };
        let (judged, of_the_size) = (self.judged(), self.of_the_size);
        format!(
            "{} {questions}: {}. {of_the_size} of the {judged} that were judged have the right sign, and are inside their band or within a factor of two in size.{counted}",
            self.studies.len(),
            said(&of_studies),
        )
    }

    /// What is not as the files say, one line each.
    pub fn surprises(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for study in &self.studies {
            if let Some(words) = study.against_the_baseline().filter(|_| study.lacks_its_baseline()) {
                lines.push(format!("{}: {words}", study.name));
            }
            for of in study.expectations.iter().filter(|of| of.unexpected) {
                if let Some(words) = of.against_words() {
                    lines.push(format!("{}: {}: {words}", study.name, of.name));
                    continue;
                }
                let declared = of.outside.as_ref().map_or("right", |outside| outside.verdict.words());
                let value = of.no_value.clone().unwrap_or_else(|| decimal(of.value));
                lines.push(format!(
                    "{}: {}: {} ({value}, band {}), and declared {declared}",
                    study.name,
                    of.name,
                    of.judgement.words(),
                    of.band()
                ));
            }
            for wrong in study.wrong_models.iter().filter(|wrong| wrong.is_accepted()) {
                lines.push(format!("{}: the wrong model `{}` is not rejected", study.name, wrong.name));
            }
        }
        lines
    }

    /// Headings of the table; a `>` before a name means that numbers are below it.
    pub const HEADINGS: [&'static str; 7] = ["study", "what", ">published", ">here", ">band", ">size", "judgement"];

    /// The table: a row for each expectation that is not compared with a baseline only, and for each study that has none.
    pub fn rows(&self) -> Vec<[String; 7]> {
        let mut rows = Vec::new();
        for study in &self.studies {
            let row = |what: String, judgement: &str| {
                let mut row: [String; 7] = Default::default();
                (row[0], row[1], row[6]) = (study.name.clone(), what, judgement.to_owned());
                row
            };
            if let Some(missing) = &study.not_expressible {
                rows.push(row(format!("{}: {}", study.title, missing.missing), study.judgement.words()));
            }
            let not_asked = study.not_asked.iter();
            rows.extend(
                not_asked
                    .map(|of| row(format!("{}: {}", of.name, of.missing.missing), Judgement::NotExpressible.words())),
            );
            for of in study.expectations.iter().filter(|of| !of.is_only_against()) {
                let judgement = match (of.unexpected, of.counted) {
                    (true, _) => format!("{} (!)", of.words()),
                    (false, true) => of.words(),
                    (false, false) => format!("{} (not counted)", of.words()),
                };
                rows.push([
                    study.name.clone(),
                    of.name.clone(),
                    decimal(of.published),
                    of.here(),
                    of.band(),
                    decimal(of.size),
                    judgement,
                ]);
            }
        }
        rows
    }
}

impl StudyResult {
    fn new(plan: &Plan, trials: &Trials, index: usize, baseline: Option<&Baseline>) -> Self {
        let study = &plan.studies[index];
        let result = |of: &Expectation| {
            let judged = judge::judge(plan, trials, index, None, of);
            let never_ran_again = of.against.map_or(0.0, |_| judge::tasks_left(plan, trials, index, of));
            // A figure of all trials is one number, whatever their number.
            let trial_count =
                Some(judge::trials_of(plan, trials, index, of)).filter(|count| judged.trials.len() == 1 && *count > 1);
            ExpectationResult { never_ran_again, trial_count, ..ExpectationResult::new(of, judged) }
        };
        let mut expectations: Vec<ExpectationResult> = study.expectations.iter().map(result).collect();
        let earlier = baseline.and_then(|baseline| baseline.earlier.as_ref());
        if let Some(earlier) = earlier {
            baseline::compare((plan, index), earlier, (&study.expectations, &mut expectations));
        } else if baseline.is_some() {
            // What is compared with nothing and has no band is not right.
            for (of, result) in study.expectations.iter().zip(&mut expectations) {
                if of.against.is_some() && of.band == Band::ANYWHERE {
                    result.judgement = Judgement::NotAnswerableHere;
                }
            }
        }
        let wrong_models = study.wrong.iter().enumerate().map(|(number, wrong)| {
            let under: Vec<(&Expectation, Judged)> = wrong
                .rejects
                .iter()
                .map(|of| &study.expectations[*of])
                .map(|of| (of, judge::judge(plan, trials, index, Some(number), of)))
                .collect();
            // Where the model breaks the figure, it says nothing of the band.
            let outside = |(of, judged): &&(&Expectation, Judged)| {
                matches!(judged.figure, Ok([middle, ..]) if !of.is_inside(middle))
            };
            WrongModelResult {
                name: wrong.name.clone(),
                rejected_by: under.iter().filter(outside).map(|(of, _)| of.name.clone()).collect(),
                tried: under.iter().any(|(_, judged)| judged.judgement != Judgement::NotAnswerableHere),
            }
        });
        Self {
            baseline: baseline.map(|of| BaselineResult { file: of.file.clone(), found: earlier.is_some() }),
            wrong_models: wrong_models.collect(),
            cells: plan.cells[index]
                .iter()
                .filter(|cell| cell.wrong.is_none())
                .map(|cell| CellResult::new(plan, study, cell))
                .collect(),
            ..Self::judged(study, expectations)
        }
    }

    fn of_values(study: &Study, value: &dyn Fn(&Study, &Expectation) -> Result<figure::Value, ValueError>) -> Self {
        let judged = study.expectations.iter().map(|of| (of, judge::of_value(value(study, of), of)));
        Self::judged(study, judged.map(|(of, judged)| ExpectationResult::new(of, judged)).collect())
    }

    /// What a study comes to with these expectations, without what was run for them.
    fn judged(study: &Study, expectations: Vec<ExpectationResult>) -> Self {
        let counted = || expectations.iter().filter(|of| of.counted);
        let scored = counted().filter(|of| of.mark.is_none()).map(|of| of.judgement);
        let judgement = match (&study.not_expressible, scored.max()) {
            (Some(_), _) => Judgement::NotExpressible,
            (None, Some(worst)) => worst,
            (None, None) => counted().map(|of| of.judgement).max().unwrap_or(Judgement::NotScored),
        };
        // A band around the published value may be wider than a factor of two, one elsewhere says nothing of its size.
        let sized = |of: &ExpectationResult| {
            let around = of.published.is_none_or(|published| of.in_band(published));
            of.mark.is_some() || of.judgement == Judgement::Right && around || of.size.is_some_and(is_of_the_size)
        };
        Self {
            name: study.name.clone(),
            title: study.title.clone(),
            question: study.question.clone(),
            source: study.source.clone(),
            cost: study.cost,
            note: study.note.clone(),
            score: Some(Score::new(&expectations, study.not_asked.len())),
            of_the_size: judgement != Judgement::NotExpressible && counted().all(sized),
            judgement,
            baseline: None,
            not_expressible: study.not_expressible.clone(),
            wrong_models: Vec::new(),
            cells: Vec::new(),
            expectations,
            not_asked: study.not_asked.clone(),
        }
    }

    /// Whether its answer could be had, here and at all.
    pub(crate) fn is_judged(&self) -> bool {
        matches!(self.judgement, Judgement::Right | Judgement::RightInSign | Judgement::Wrong)
    }
}

impl WrongModelResult {
    /// Whether it was tried and nothing rejects it.
    pub(crate) fn is_accepted(&self) -> bool {
        self.tried && self.rejected_by.is_empty()
    }
}

impl ExpectationResult {
    /// Its value, as tables have it.
    pub(crate) fn here(&self) -> String {
        let is_infinite = self.value.is_none() && self.trials.iter().any(|of| of.is_infinite());
        if is_infinite { "infinite".to_owned() } else { decimal(self.value) }
    }

    fn new(of: &Expectation, judged: Judged) -> Self {
        let figure = judged.figure.as_ref();
        Self {
            name: of.name.clone(),
            figure: of.figure.to_string(),
            published: of.published,
            value: figure.ok().map(|[middle, ..]| *middle).filter(|value| value.is_finite()),
            range: figure
                .ok()
                .map(|[_, low, high]| [*low, *high])
                .filter(|range| range.iter().all(|end| end.is_finite())),
            no_value: match figure {
                Ok([middle, ..]) if middle.is_finite() => None,
                Ok(_) => Some("it is infinite: a run did not end".to_owned()),
                Err(error) => Some(error.to_string()),
            },
            trials: judged.trials,
            trial_count: None,
            against: None,
            never_ran_again: 0.0,
            low: Some(of.band.low).filter(|low| low.is_finite()),
            high: Some(of.band.high).filter(|high| high.is_finite()),
            reason: of.reason.clone(),
            judgement: judged.judgement,
            size: judged.size,
            counted: of.counted,
            mark: of.mark.clone(),
            fitted: None,
            sign_right: judged.sign_right,
            outside: of.outside.clone(),
            unexpected: judged.unexpected,
        }
    }

    /// Whether a value lies in the band.
    fn in_band(&self, value: f64) -> bool {
        self.low.is_none_or(|low| low <= value) && self.high.is_none_or(|high| value <= high)
    }

    /// Whether its value lies in its band, of an expectation that has a value.
    pub fn is_inside(&self) -> bool {
        let Some(mark) = &self.mark else { return self.judgement == Judgement::Right };
        // No effect is not inside where the source claims one.
        self.value.is_some_and(|value| self.in_band(value))
            && (mark.kind == MarkKind::AllowsNoEffect || self.sign_right != Some(false))
    }

    /// How it is judged, in words, with its mark.
    pub fn words(&self) -> String {
        match &self.mark {
            Some(mark) if self.judgement == Judgement::NotScored => {
                let inside = if self.is_inside() { "inside" } else { "outside" };
                format!("{}, not scored ({inside})", mark.kind.words())
            }
            _ => self.judgement.words().to_owned(),
        }
    }

    /// Whether nothing but a baseline says what it should be.
    fn is_only_against(&self) -> bool {
        self.against.is_some() && self.low.is_none() && self.high.is_none()
    }

    /// The band in words.
    pub fn band(&self) -> String {
        match (self.low, self.high) {
            (Some(low), Some(high)) => format!("{} to {}", short(low), short(high)),
            (Some(low), None) => format!("from {}", short(low)),
            (None, Some(high)) => format!("to {}", short(high)),
            (None, None) => String::new(),
        }
    }
}

impl PlannedCell {
    /// The cell with the values of its axes.
    pub fn name(&self, study: &Study) -> String {
        let values = self.bindings.iter().filter(|(key, _)| *key != crate::file::SCHEDULER);
        let values: Vec<String> = values.map(|(key, value)| format!(", {key}={value}")).collect();
        format!("{}{}", study.cells[self.cell].name, values.concat())
    }
}

impl CellResult {
    fn new(plan: &Plan, study: &Study, planned: &PlannedCell) -> Self {
        Self {
            name: planned.name(study),
            setting: baseline::setting(plan, planned),
            machine: planned.machine.clone(),
            workload: planned.workload.clone(),
            scheduler: planned.scheduler.clone(),
            place: planned.place.clone(),
            trials: planned.trials,
            not_here: planned.runs.as_ref().err().cloned(),
        }
    }
}

/// A number in three digits that matter, or two of a small one; nothing for none.
pub fn decimal(number: Option<f64>) -> String {
    number.map(short).unwrap_or_default()
}

fn short(number: f64) -> String {
    let digits = match number.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.1.. => 3,
        0.001.. => 4,
        small => decimals_of_small(small),
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn is_zero(count: &f64) -> bool {
    *count == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let all = [0.0, 0.018, 0.5, 1.0, 3.614, 12.34, 50_868.4, -0.25, 0.000_035_2, -0.000_43, 0.0014];
        let said = ["0", "0.018", "0.5", "1", "3.61", "12.3", "50868", "-0.25", "0.000035", "-0.00043", "0.0014"];
        assert_eq!(all.map(short), said);
    }

    #[test]
    fn a_document_of_another_version_is_refused() {
        let error = StudyDocument::from_json(
            r#"{"schema":"warmcore-study-0","tool_version":"0","studies":[],"counts":{},"of_the_size":0,"unexpected":0}"#,
        );
        assert!(error.unwrap_err().contains("warmcore-study-0"));
        assert!(StudyDocument::from_json("{").is_err());
    }
}
