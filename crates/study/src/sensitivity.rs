//! What judgements rest on: studies again with every figure of their machines that nobody measured made smaller and larger, and with the
//! other core-to-core tables that machines come with.
//!
//! [`comparison`] asks the same of one comparison. A change is that of a cell's `assumed`, for all cells at once; what can be changed is
//! [`warmcore_topology::assumptions`]' matter. A machine that has no such figure stays as it is.

pub mod comparison;

use serde::Serialize;
use toml::Spanned;
use warmcore_lab::experiment::TOOL_VERSION;

use crate::document::{ExpectationResult, StudyResult};
use crate::file::{FormError, Problem};
use crate::judge::Judgement;
use crate::plan::{self, Plan, PlanError};

/// Version of the document.
pub const SCHEMA: &str = "warmcore-study-sensitivity-1";

/// Figures that are nearer to 1 than this are on no side of it.
const NO_SIDE: f64 = 0.02;

/// Every change of the machines of a plan, and of those that are impossible why.
pub fn changes(plan: &Plan, factors: &[f64]) -> (Vec<String>, Vec<String>) {
    let (mut found, mut impossible): (Vec<String>, Vec<String>) = Default::default();
    for planned in &plan.experiments {
        let machine = &planned.experiment.machine.value;
        for change in warmcore_topology::changes(machine, factors) {
            match warmcore_topology::changed(machine, &change) {
                Ok(_) if found.contains(&change) => {}
                Ok(_) => found.push(change),
                Err(reason) => impossible.push(format!("{} with {change}: {reason}", machine.name())),
            }
        }
    }
    impossible.sort();
    impossible.dedup();
    // What is impossible for one machine is left out for all: a study compares machines that changed alike.
    found.retain(|change| !impossible.iter().any(|reason| reason.contains(&format!(" with {change}: "))));
    (found, impossible)
}

/// The plan's studies, then all of them again under each change of the machines of all cells, as one plan.
///
/// # Errors
/// A cell that has a change already, or a place with costs of its own; and what can be known to fail before anything runs.
pub fn under(plan: &Plan, changes: &[String], note: &dyn Fn(&str)) -> Result<Plan, PlanError> {
    check(plan)?;
    let mut studies = plan.studies.clone();
    for change in changes {
        let first = studies.len();
        studies.extend_from_slice(&plan.studies);
        for cell in studies[first..].iter_mut().flat_map(|study| &mut study.cells) {
            cell.assumed = Some(Spanned::new(cell.machine.span(), change.clone()));
        }
    }
    // What this computer costs is measured, not assumed.
    plan::together(studies, &[], note)
}

fn check(plan: &Plan) -> Result<(), FormError> {
    for (study, cells) in plan.studies.iter().zip(&plan.cells) {
        let refused = |at: &Spanned<String>, words: String| Err(study.error_at(at.span().start, Problem::Value(words)));
        if let Some(own) = study.cells.iter().find_map(|cell| cell.assumed.as_ref()) {
            return refused(own, "this cell changes a cost itself, and a second change would replace it".to_owned());
        }
        for planned in cells {
            let Ok((experiment, _)) = planned.runs else { continue };
            let kind = plan.experiments[experiment].experiment.place.kind();
            if let Some(place) = study.cells[planned.cell].place.as_ref().filter(|_| !kind.simulated) {
                let words = format!("assumed costs are the simulator's, and `{}` does not simulate", kind.name);
                return refused(place, words);
            }
        }
    }
    Ok(())
}

/// Judgements under every change.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SensitivityDocument {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub tool_version: &'static str,
    /// What every assumed figure was multiplied by.
    pub factors: Vec<f64>,
    /// The expectations: study and name.
    pub expectations: Vec<String>,
    /// Figures without a change.
    pub values: Vec<Option<f64>>,
    /// Judgements without a change.
    pub judgements: Vec<Judgement>,
    /// One for each change.
    pub changes: Vec<ChangeResult>,
}

/// What one change does.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ChangeResult {
    /// The change.
    pub change: String,
    /// Figures with it.
    pub values: Vec<Option<f64>>,
    /// Judgements with it.
    pub judgements: Vec<Judgement>,
    /// How many judgements are others than without the change.
    pub judgements_changed: usize,
    /// How many ratios are on the other side of 1 than without the change; those within 2 % of it do not count.
    pub directions_changed: usize,
    /// Largest change of a figure, as a fraction of it.
    pub largest_change: Option<f64>,
}

impl SensitivityDocument {
    /// Compares the results of a plan's studies with those of them under each change, which follow in the order of [`under`].
    pub fn new(plan: &Plan, factors: &[f64], changes: &[String], results: &[StudyResult]) -> Self {
        let expectations = plan.studies.iter().flat_map(|study| &study.expectations);
        let ratios: Vec<bool> = expectations.map(|of| of.neutral == Some(1.0)).collect();
        let (unchanged, changed) = results.split_at(plan.studies.len());
        let named = unchanged
            .iter()
            .flat_map(|study| study.expectations.iter().map(|of| format!("{}: {}", study.name, of.name)));
        let changed = changes.iter().zip(changed.chunks(plan.studies.len().max(1)));
        Self {
            schema: SCHEMA,
            tool_version: TOOL_VERSION,
            factors: factors.to_vec(),
            expectations: named.collect(),
            values: all(unchanged).map(|of| of.value).collect(),
            judgements: all(unchanged).map(|of| of.judgement).collect(),
            changes: changed
                .map(|(change, results)| ChangeResult::new(change, &ratios, (unchanged, results)))
                .collect(),
        }
    }
}

fn all(studies: &[StudyResult]) -> impl Iterator<Item = &ExpectationResult> {
    studies.iter().flat_map(|study| &study.expectations)
}

impl ChangeResult {
    fn new(change: &str, ratios: &[bool], (unchanged, changed): (&[StudyResult], &[StudyResult])) -> Self {
        let pairs = || all(unchanged).zip(all(changed));
        let side = |figure: f64| i32::from(figure > 1.0 + NO_SIDE) - i32::from(figure < 1.0 - NO_SIDE);
        let turns = |((before, after), ratio): &((&ExpectationResult, &ExpectationResult), &bool)| {
            let sides = before.value.zip(after.value).map(|(before, after)| side(before) * side(after));
            **ratio && sides.is_some_and(|sides| sides < 0)
        };
        let part = |(before, after): (&ExpectationResult, &ExpectationResult)| {
            let (before, after) = (before.value.filter(|value| *value != 0.0)?, after.value?);
            Some((after / before - 1.0).abs())
        };
        Self {
            change: change.to_owned(),
            values: all(changed).map(|of| of.value).collect(),
            judgements: all(changed).map(|of| of.judgement).collect(),
            judgements_changed: pairs().filter(|(before, after)| before.judgement != after.judgement).count(),
            directions_changed: pairs().zip(ratios).filter(turns).count(),
            largest_change: pairs().filter_map(part).max_by(f64::total_cmp),
        }
    }
}
