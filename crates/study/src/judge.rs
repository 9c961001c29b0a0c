//! Figures against what was published.
//!
//! A figure inside its band is *right*, unless the source claims an effect and the figure shows none: a change of less than a twentieth of the
//! published one. Outside it is *right in sign* if it lies on the published value's side of what is neutral (1 for ratios) by at least such a
//! twentieth, and *wrong* otherwise. Without a published number, or where that is neutral itself or nothing is, outside is wrong.
//!
//! The *size* is how large the change is in parts of the published one: by logarithms around a positive neutral value, as ratios are
//! compared, by difference around zero, by ratio where nothing is neutral. Twice and half are *of the size*.
//!
//! A figure with a [mark](crate::file::MarkKind), such as one to which a parameter was fitted, is shown and not scored. One that needs what this computer lacks is *not answerable here*.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use warmcore_lab::trial::{TaskRow, Trial};
use warmcore_lab::verdict;
use warmcore_memory::math::ln;
use warmcore_places::host;

use crate::figure::{self, EACH, Expression, Known, Lookup, NamedPart, Selection, Value, ValueError};
use crate::file::{Bar, Expectation, FormError, Mark, MarkKind, OutsideKind, Problem, Study};
use crate::plan::{CAUSE_PREFIX, CPU_TIME, Plan, SPEED, WORK};

warmcore_topology::worded! {
    /// What becomes of an expectation, from good to bad, and what is none of both.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Judgement: words {
        /// Inside the band.
        Right = "right",
        /// Outside, on the right side.
        RightInSign = "right in sign",
        /// It needs what this computer lacks.
        NotAnswerableHere = "not answerable here",
        /// Outside.
        Wrong = "wrong",
        /// A parameter was fitted to it.
        Fitted = "fitted, not scored",
        /// It has another mark.
        NotScored = "shown, not scored",
        /// This program cannot ask it.
        NotExpressible = "not expressible",
    }
}

/// A figure, judged.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// What it came to: of all trials, and the smallest and largest of a trial; or why it has no value.
    pub figure: Result<[f64; 3], ValueError>,
    /// What it came to in each trial.
    pub trials: Vec<f64>,
    /// How it is judged.
    pub judgement: Judgement,
    /// Whether the change has the published direction; nothing where the source claims none or there is no value.
    pub sign_right: Option<bool>,
    /// How large the change is in parts of the published one, where both have the same direction.
    pub size: Option<f64>,
    /// Whether it counts against the study: outside, or without a value, and not declared so; or declared and not so.
    pub unexpected: bool,
}

/// Trials by experiment and scheduler.
pub type Trials = [Vec<Vec<Trial>>];

/// A change of less than this part of the published one is none, inside a band and outside.
const LEAST_SIZE: f64 = 0.05;

/// Whether a figure shows no effect where one was published: no change in that direction, or hardly any.
pub(crate) fn is_none_of(figure: f64, published: f64, neutral: f64) -> bool {
    size(figure, published, Some(neutral)).is_none_or(|size| size < LEAST_SIZE)
}

/// Whether a size counts as the published one's.
pub(crate) fn is_of_the_size(size: f64) -> bool {
    (0.5..=2.0).contains(&size)
}

/// Judges an expectation of a study, under a wrong model if one is named.
pub fn judge(plan: &Plan, trials: &Trials, study: usize, wrong: Option<usize>, expectation: &Expectation) -> Judged {
    let lookup = InStudy { plan, trials, study, wrong, known: Known::default() };
    of_value(figure::evaluate(&expectation.figure, &lookup), expectation)
}

/// Of the cells that an expectation's figure names, how many tasks of one never ran again in the middle trial, at most.
pub(crate) fn tasks_left(plan: &Plan, trials: &Trials, study: usize, expectation: &Expectation) -> f64 {
    let lookup = InStudy { plan, trials, study, wrong: None, known: Known::default() };
    lookup.most(&expectation.figure, &verdict::tasks_left)
}

/// Of the cells that an expectation's figure names, the most trials of one.
pub(crate) fn trials_of(plan: &Plan, trials: &Trials, study: usize, expectation: &Expectation) -> usize {
    let lookup = InStudy { plan, trials, study, wrong: None, known: Known::default() };
    lookup.most(&expectation.figure, &|trials| trials.len() as f64) as usize
}

/// Percentiles that figures of a study name and that are ones of few events in a trial, as they are written: the fewest events, and how many it
/// takes to show one.
pub fn few_events(plan: &Plan, trials: &Trials, study: usize) -> BTreeMap<String, (f64, f64)> {
    let lookup = InStudy { plan, trials, study, wrong: None, known: Known::default() };
    let own = &plan.studies[study];
    let figures = own.figures.iter().map(|figure| &figure.of).chain(own.expectations.iter().map(|of| &of.figure));
    let mut found = BTreeMap::new();
    for figure in figures {
        figure.each_name(&mut |part, _| {
            if let NamedPart::Measure(selection) = part
                && let Ok((experiment, trials)) = lookup.trials(selection)
                && let Some(measure) = plan.measure(experiment, &selection.measure)
                && let Some(few) = verdict::few_to_show(&measure, trials)
            {
                found.insert(selection.to_string(), few);
            }
        });
    }
    found
}

/// What a bar of a study's chart comes to: of all trials, and the smallest and largest of a trial.
///
/// # Errors
/// Why it has no value.
pub fn length(plan: &Plan, trials: &Trials, study: usize, bar: &Bar) -> Result<[f64; 3], ValueError> {
    let lookup = InStudy { plan, trials, study, wrong: None, known: Known::default() };
    middle_and_ends(&figure::evaluate(&bar.figure, &lookup)?)
}

/// The middle of a value's trials, the smallest and the largest.
fn middle_and_ends(value: &Value) -> Result<[f64; 3], ValueError> {
    let middle = figure::middle(value)?;
    let of = |pick: fn(f64, f64) -> f64| value.numbers().iter().copied().fold(middle, pick);
    Ok([middle, of(f64::min), of(f64::max)])
}

/// Judges a value of an expectation, or why there is none.
pub(crate) fn of_value(value: Result<Value, ValueError>, expectation: &Expectation) -> Judged {
    let figure = value.clone().and_then(|value| middle_and_ends(&value));
    let trials = value.map_or_else(|_| Vec::new(), |value| value.numbers().to_vec());
    Judged { trials, ..of_figure(figure, expectation) }
}

fn of_figure(figure: Result<[f64; 3], ValueError>, expectation: &Expectation) -> Judged {
    let middle = match &figure {
        Ok([middle, ..]) => *middle,
        Err(error) => {
            let here = !matches!(error, ValueError::NotHere(_));
            let judgement = match &expectation.mark {
                _ if !here => Judgement::NotAnswerableHere,
                Some(mark) => of_marked(mark),
                None => Judgement::Wrong,
            };
            // An error of computation is never what was declared.
            let unexpected = here && expectation.counted;
            // What has no value has no direction, where the source claims one.
            let sign_right = expectation.claimed_side().filter(|_| here).map(|_| false);
            return Judged { figure, trials: Vec::new(), judgement, sign_right, size: None, unexpected };
        }
    };
    let size = expectation.published.and_then(|published| size(middle, published, expectation.neutral));
    let sign_right = expectation.claimed_side().map(|side| !expectation.is_no_effect(middle, side));
    let judgement = match &expectation.mark {
        Some(mark) => of_marked(mark),
        None if expectation.is_inside(middle) => Judgement::Right,
        None if sign_right == Some(true) && expectation.published.is_some() => Judgement::RightInSign,
        None => Judgement::Wrong,
    };
    let declared = match expectation.outside.as_ref().map(|outside| outside.verdict) {
        None => Some(Judgement::Right),
        Some(OutsideKind::RightInSign) => Some(Judgement::RightInSign),
        Some(OutsideKind::Wrong) => Some(Judgement::Wrong),
        Some(OutsideKind::Varies) => None,
    };
    let is_declared = declared.is_none_or(|declared| judgement == declared);
    let unexpected = expectation.counted && expectation.mark.is_none() && !is_declared;
    Judged { figure, trials: Vec::new(), judgement, sign_right, size, unexpected }
}

/// How a figure with a mark is judged, whatever its value.
fn of_marked(mark: &Mark) -> Judgement {
    if mark.kind == MarkKind::Fitted { Judgement::Fitted } else { Judgement::NotScored }
}

/// The size of a change in parts of the published one; nothing where the directions differ or there is none.
fn size(figure: f64, published: f64, neutral: Option<f64>) -> Option<f64> {
    let (ours, theirs) = match neutral {
        None => (figure, published),
        Some(neutral) if neutral > 0.0 && figure > 0.0 && published > 0.0 => {
            (ln(figure / neutral), ln(published / neutral))
        }
        Some(neutral) => (figure - neutral, published - neutral),
    };
    let size = ours / theirs;
    (theirs != 0.0 && size.is_finite() && size > 0.0).then_some(size)
}

/// Names of a program's figures that a study's own figures and expectations are of.
///
/// # Errors
/// Where a figure stands that neither the program knows nor the study.
pub fn asked_of_program(study: &Study, known: &BTreeSet<String>) -> Result<BTreeSet<String>, FormError> {
    let own: BTreeSet<&str> = study.figures.iter().map(|figure| figure.name.as_str()).collect();
    let of_study = study.figures.iter().map(|figure| (&figure.of, figure.at));
    let mut asked = BTreeSet::new();
    for (expression, at) in of_study.chain(study.expectations.iter().map(|of| (&of.figure, of.at))) {
        let mut wrong = None;
        expression.each_name(&mut |name, within| {
            let (name, varied) = match name {
                NamedPart::Figure(name) if own.contains(name) => return,
                NamedPart::Figure(name) => (name, !study.axes.is_empty()),
                NamedPart::Measure(of) => (of.measure.as_str(), study.contention_of(of).is_none()),
            };
            if known.contains(name) && !varied {
                asked.insert(name.to_owned());
            } else {
                // The text begins after its quotation mark.
                wrong = wrong.or(Some((name, at + 1 + within)));
            }
        });
        if let Some((name, at)) = wrong {
            let problem = if known.contains(name) {
                let words = "is one for each value of the axes: NAME[contention, AXIS=VALUE], or `each = [\"AXIS\"]`";
                Problem::Value(format!("`{name}` {words}"))
            } else {
                let nearest = warmcore_topology::nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
                Problem::Unknown { kind: "figure", name: name.to_owned(), nearest }
            };
            return Err(study.error_at(at, problem));
        }
    }
    Ok(asked)
}

/// The value of an expectation of a study whose figures are those of a program, for each of [`Study::contentions`].
///
/// # Errors
/// Why it has none.
pub fn of_program(
    figures: &[BTreeMap<String, Vec<f64>>],
    study: &Study,
    expectation: &Expectation,
) -> Result<Value, ValueError> {
    figure::evaluate(&expectation.figure, &OfProgram { figures, study, known: Known::default() })
}

/// What figures name that a program computed, or that follows from such.
struct OfProgram<'a> {
    figures: &'a [BTreeMap<String, Vec<f64>>],
    study: &'a Study,
    known: Known,
}

impl Lookup for OfProgram<'_> {
    fn measure(&self, selection: &Selection) -> Result<Vec<f64>, ValueError> {
        let figures = self.study.contention_of(selection).and_then(|index| self.figures.get(index));
        let found = figures.and_then(|figures| figures.get(&selection.measure));
        found.cloned().ok_or_else(|| ValueError::Missing(selection.to_string()))
    }

    fn lists(&self, selection: &Selection) -> Result<Vec<Vec<f64>>, ValueError> {
        Err(ValueError::Missing(selection.to_string()))
    }

    fn figure(&self, name: &str) -> Result<Value, ValueError> {
        self.known.or(name, || match self.study.figures.iter().find(|figure| figure.name == name) {
            Some(own) => figure::evaluate(&own.of, self),
            None => {
                let found = self.figures.first().and_then(|figures| figures.get(name));
                found.cloned().map(Value::Trials).ok_or_else(|| ValueError::Missing(name.to_owned()))
            }
        })
    }
}

/// What figures of a study name, in its trials.
struct InStudy<'a> {
    plan: &'a Plan,
    trials: &'a Trials,
    study: usize,
    wrong: Option<usize>,
    known: Known,
}

impl InStudy<'_> {
    /// The experiment that a selection is of, and the trials that count.
    fn trials(&self, selection: &Selection) -> Result<(usize, &[Trial]), ValueError> {
        let cell = self.plan.cell(self.study, self.wrong, selection).map_err(ValueError::Missing)?;
        let (experiment, scheduler) = cell.runs.clone().map_err(ValueError::NotHere)?;
        let missing = || ValueError::Missing(selection.to_string());
        let trials = self.trials.get(experiment).and_then(|of| of.get(scheduler)).ok_or_else(missing)?;
        Ok((experiment, &trials[..trials.len().min(cell.trials)]))
    }
}

impl InStudy<'_> {
    /// The most that the trials of a cell come to which the expression names; one that was not run comes to nothing.
    fn most(&self, of: &Expression, count: &dyn Fn(&[Trial]) -> f64) -> f64 {
        let mut most = 0.0_f64;
        self.plan.studies[self.study].each_measure(of, &mut |selection| {
            most = most.max(self.trials(selection).map_or(0.0, |(_, trials)| count(trials)));
        });
        most
    }
}

impl Lookup for InStudy<'_> {
    fn measure(&self, selection: &Selection) -> Result<Vec<f64>, ValueError> {
        let (experiment, trials) = self.trials(selection)?;
        let place = self.plan.experiments[experiment].experiment.place.kind();
        // This computer may lack a recorder or a counter, which is no fault of the study.
        let missing = || match place.name == host::place::KIND.name {
            true => ValueError::NotHere(format!("{selection} was not measured; {}", place.needs)),
            false => ValueError::Missing(selection.to_string()),
        };
        let measure = self.plan.measure(experiment, &selection.measure);
        let chosen = selection.choices.iter().find(|(key, _)| key == "task" || key == "application");
        let value = |trial: &Trial| match (chosen, selection.measure.strip_prefix(CAUSE_PREFIX)) {
            (Some((key, name)), _) => Some(cpu_time(trial, key, name)),
            (None, Some(cause)) => trial.time_of(cause),
            (None, None) if selection.measure == SPEED => speed(trial, self.plan.duration_ns(experiment)),
            (None, None) => match &measure {
                Some(measure) => measure.value(trial),
                // Measures of observations have names that say when.
                None => trial.measure(&selection.measure),
            }
            .or_else(|| (selection.measure == CPU_TIME).then(|| cpu_time(trial, "", ""))),
        };
        trials.iter().map(|trial| value(trial).ok_or_else(missing)).collect()
    }

    fn lists(&self, selection: &Selection) -> Result<Vec<Vec<f64>>, ValueError> {
        let (_, trials) = self.trials(selection)?;
        let name = selection.choices.iter().find(|(key, _)| key == EACH).map_or("", |(_, name)| name);
        let list = |trial: &Trial| rows_of(trial, name).map(|row| row.cpu_time_ns as f64).collect();
        Ok(trials.iter().map(list).collect())
    }

    fn figure(&self, name: &str) -> Result<Value, ValueError> {
        let study = &self.plan.studies[self.study];
        let own = study.figures.iter().find(|figure| figure.name == name);
        self.known.or(name, || match (own, &study.program) {
            (Some(own), _) => figure::evaluate(&own.of, self),
            (None, Some(program)) => Err(ValueError::NotHere(format!("it is computed by the program `{program}`"))),
            (None, None) => Err(ValueError::Missing(name.to_owned())),
        })
    }
}

/// CPU time of a task, or of all instances of one, or of an application; of all tasks where nothing is chosen.
fn cpu_time(trial: &Trial, key: &str, name: &str) -> f64 {
    if key == "application" {
        let rows = trial.applications.iter().filter(|row| row.name == name);
        return rows.map(|row| row.cpu_time_ns as f64).sum();
    }
    if key.is_empty() {
        return trial.tasks.iter().map(|row| row.cpu_time_ns as f64).sum();
    }
    rows_of(trial, name).map(|row| row.cpu_time_ns as f64).sum()
}

/// The task of this name; where there is none, those that are called `NAME-2`: its instances.
fn rows_of<'a>(trial: &'a Trial, name: &'a str) -> impl Iterator<Item = &'a TaskRow> {
    let is_one = trial.tasks.iter().any(|row| row.name == name);
    trial.tasks.iter().filter(move |row| if is_one { row.name == name } else { is_instance(&row.name, name) })
}

/// Whether a task is an instance of this name, `NAME-2`.
fn is_instance(task: &str, name: &str) -> bool {
    let rest = task.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// [`SPEED`] of a trial of a workload with this duration, if it has one.
fn speed(trial: &Trial, duration_ns: Option<u64>) -> Option<f64> {
    let elapsed_ns = trial.elapsed_ns as f64;
    Some(match trial.applications.first() {
        Some(first) if first.finished => 1.0 / first.elapsed_ns as f64,
        _ if duration_ns != Some(trial.elapsed_ns) => 1.0 / elapsed_ns,
        _ => trial.measure(WORK)? / elapsed_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::parse;
    use crate::file::{Band, Mark, Outside};

    fn expectation(published: f64, low: f64, high: f64) -> Expectation {
        Expectation::for_tests(parse("1").unwrap(), Some(published), Band { low, high })
    }

    fn judged(figure: f64, expectation: &Expectation) -> (Judgement, bool) {
        let judged = of_figure(Ok([figure; 3]), expectation);
        (judged.judgement, judged.unexpected)
    }

    #[test]
    fn inside_is_right_and_outside_the_side_of_neutral_decides() {
        let gain = expectation(1.3, 1.2, 1.4);
        assert_eq!(judged(1.2, &gain), (Judgement::Right, false));
        assert_eq!(judged(1.05, &gain), (Judgement::RightInSign, true));
        assert_eq!(judged(1.0, &gain), (Judgement::Wrong, true));
        assert_eq!(judged(1.01, &gain), (Judgement::Wrong, true), "a thirtieth of the change is none");
        assert_eq!(judged(0.9, &gain), (Judgement::Wrong, true));
        let none = expectation(1.0, 0.97, 1.03);
        assert_eq!(judged(1.05, &none), (Judgement::Wrong, true), "no change was published, so there is no side");
        let quantity = Expectation { neutral: None, ..expectation(480.0, 400.0, 500.0) };
        assert_eq!(judged(390.0, &quantity), (Judgement::Wrong, true));
    }

    #[test]
    fn what_is_declared_stays_listed_and_its_change_is_an_error() {
        let outside = |verdict| Some(Outside { verdict, why: "x".into(), settle: "y".into() });
        let wrong = Expectation { outside: outside(OutsideKind::Wrong), ..expectation(1.3, 1.2, 1.4) };
        assert_eq!(judged(0.9, &wrong), (Judgement::Wrong, false));
        assert_eq!(judged(1.1, &wrong), (Judgement::RightInSign, true));
        assert_eq!(judged(1.3, &wrong), (Judgement::Right, true));
        let varies = Expectation { outside: outside(OutsideKind::Varies), ..expectation(1.3, 1.2, 1.4) };
        assert_eq!([1.3, 0.9].map(|of| judged(of, &varies)), [(Judgement::Right, false), (Judgement::Wrong, false)]);
        let nothing = of_figure(Err(ValueError::DividesByZero("x".into())), &varies);
        assert!(nothing.unexpected, "no value is never what was declared");
        let uncounted = Expectation { counted: false, ..expectation(1.3, 1.2, 1.4) };
        assert_eq!(judged(0.9, &uncounted), (Judgement::Wrong, false));
        let marked = |kind| {
            let mark = Some(Mark { kind, why: "p".into() });
            judged(0.9, &Expectation { mark, ..expectation(1.3, 1.2, 1.4) })
        };
        assert_eq!(marked(MarkKind::Fitted), (Judgement::Fitted, false));
        assert_eq!(marked(MarkKind::Protocol), (Judgement::NotScored, false));
    }

    #[test]
    fn no_effect_is_outside_where_the_source_claims_one_and_sign_and_size_are_told_apart() {
        let sign = |figure: f64, of: &Expectation| of_figure(Ok([figure; 3]), of).sign_right;
        let to_neutral = expectation(0.978, 0.9, 1.0);
        assert_eq!(judged(1.0, &to_neutral), (Judgement::Wrong, true));
        assert_eq!(judged(0.9985, &to_neutral), (Judgement::Right, false));
        assert_eq!(
            judged(0.9995, &to_neutral),
            (Judgement::Wrong, true),
            "a fiftieth of the change is none inside too"
        );
        let signs = [1.0, 0.9995, 0.9985].map(|figure| sign(figure, &to_neutral));
        assert_eq!(signs, [Some(false), Some(false), Some(true)]);
        let alike = expectation(1.0, 0.97, 1.03);
        assert_eq!((judged(1.0, &alike), sign(1.0, &alike)), ((Judgement::Right, false), None));
        let large = expectation(1.3, 1.2, 1.4);
        assert_eq!((sign(1.05, &large), sign(1.9, &large), sign(0.9, &large)), (Some(true), Some(true), Some(false)));
        let words = Expectation { published: None, ..expectation(1.0, 1.1, f64::INFINITY) };
        assert_eq!((sign(1.05, &words), sign(0.9, &words)), (Some(true), Some(false)), "the side of its band");
    }

    #[test]
    fn a_figure_without_a_value_counts_against_the_study_unless_this_computer_lacks_it() {
        let of = |error| of_figure(Err(error), &expectation(1.3, 1.2, 1.4));
        let here = of(ValueError::DividesByZero("x".into()));
        assert_eq!((here.judgement, here.unexpected, here.sign_right), (Judgement::Wrong, true, Some(false)));
        let there = of(ValueError::NotHere("no program".into()));
        assert_eq!((there.judgement, there.unexpected, there.sign_right), (Judgement::NotAnswerableHere, false, None));
        // One with a mark is not scored, and an error all the same.
        let mark = Some(Mark { kind: MarkKind::NotInSource, why: "asked here".into() });
        let marked = Expectation { mark, ..expectation(1.3, 1.2, 1.4) };
        let error = of_figure(Err(ValueError::DividesByZero("x".into())), &marked);
        assert_eq!((error.judgement, error.unexpected), (Judgement::NotScored, true));
    }

    #[test]
    fn sizes_compare_changes_and_not_figures() {
        let near = |left: Option<f64>, right: f64| assert!((left.unwrap() - right).abs() < 1e-12, "{left:?} {right}");
        // Twice as fast against four times: half the way. 1.0 against 1.3 is no change at all.
        near(size(2.0, 4.0, Some(1.0)), 0.5);
        near(size(0.5, 0.25, Some(1.0)), 0.5);
        assert_eq!(size(1.0, 1.3, Some(1.0)), None);
        assert_eq!(size(0.9, 1.3, Some(1.0)), None);
        near(size(30.0, 60.0, Some(0.0)), 0.5);
        near(size(30.0, 60.0, None), 0.5);
        assert!(is_of_the_size(0.5) && is_of_the_size(2.0) && !is_of_the_size(0.49));
    }
}
