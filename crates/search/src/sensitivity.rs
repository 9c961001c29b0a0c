//! Which assumed costs of the machine could turn a verdict: the experiment again with each of them changed, under the same seeds.
//!
//! A cost that the first trial under every scheduler does not feel is not looked at further: it does not enter the workload at all.

use warmcore_lab::experiment::Experiment;
use warmcore_lab::runner::{self, Conduct, RunError};
use warmcore_lab::sensitivity::{Sensitivity, Variation, VariationOutcome, varied};
use warmcore_lab::trial::Trial;
use warmcore_lab::verdict::{ComparisonDocument, VerdictError, conclude};
use warmcore_places::place::PlaceKind;
use warmcore_topology::{Assumption, assumptions};

/// What every assumed cost is multiplied by where nobody says otherwise.
pub const FACTORS: [f64; 2] = [0.5, 2.0];

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SensitivityError {
    /// The place has costs of its own.
    #[error("assumed costs are the simulator's, and `{0}` does not simulate")]
    NotSimulated(&'static str),
    /// There is more than one machine.
    #[error("`{0}` has a machine of its own, and assumed costs are changed on one")]
    Machines(String),
    /// A changed run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A changed run has no verdict: a fault of this program.
    #[error(transparent)]
    Verdict(#[from] VerdictError),
}

impl SensitivityError {
    /// What a user can try.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NotSimulated(_) => "leave out --on, or --sensitivity",
            Self::Machines(_) => "compare on each machine by itself",
            Self::Run(_) | Self::Verdict(_) => "the run without --sensitivity may say more",
        }
    }
}

/// How many changed machines there are for an experiment and so many factors.
#[must_use]
pub fn variation_count(experiment: &Experiment, factors: usize) -> usize {
    assumptions(&experiment.machine.value).len() * factors
}

/// Compares again with every assumed cost of the machine times every factor. `trials` and `unchanged` are those of the experiment as it
/// is; `done` is called after each variation.
///
/// # Errors
/// [`SensitivityError`].
pub fn run(
    experiment: &Experiment,
    (trials, unchanged): (&[Vec<Trial>], &ComparisonDocument),
    factors: &[f64],
    conduct: &Conduct<'_>,
    done: &dyn Fn(),
) -> Result<Sensitivity, SensitivityError> {
    check(experiment.place.kind())?;
    if let Some((scheduler, _)) = experiment.columns.iter().find(|(_, own)| own.machine.is_some()) {
        return Err(SensitivityError::Machines(experiment.schedulers[*scheduler].to_string()));
    }
    let mut variations = Vec::new();
    for assumption in assumptions(&experiment.machine.value) {
        for factor in factors {
            variations.push(vary(experiment, (trials, unchanged), &assumption, *factor, conduct)?);
            done();
        }
    }
    Ok(Sensitivity::new(unchanged, factors, variations))
}

/// Checks, before anything runs, that the costs are those of a simulated machine.
///
/// # Errors
/// [`SensitivityError::NotSimulated`].
pub fn check(kind: &PlaceKind) -> Result<(), SensitivityError> {
    if kind.simulated { Ok(()) } else { Err(SensitivityError::NotSimulated(kind.name)) }
}

fn vary(
    experiment: &Experiment,
    (trials, unchanged): (&[Vec<Trial>], &ComparisonDocument),
    assumption: &Assumption,
    factor: f64,
    conduct: &Conduct<'_>,
) -> Result<Variation, SensitivityError> {
    let mut variation = Variation {
        cost: assumption.name.to_owned(),
        values: assumption.values.clone(),
        factor,
        outcome: VariationOutcome::NoEffect,
        schedulers: Vec::new(),
    };
    let mut changed = experiment.clone();
    match assumption.scaled(&experiment.machine.value, factor) {
        Ok(machine) => changed.machine.value = machine,
        Err(reason) => {
            variation.outcome = VariationOutcome::Impossible(reason);
            return Ok(variation);
        }
    }
    // Judged by the same measure, whatever it was that the unchanged machine could not measure. Events are not kept.
    changed.metric = Some(unchanged.primary.clone());
    changed.options = changed.options.without_tables();
    let mut first = changed.clone();
    first.seeds.truncate(1);
    let looked = runner::run(&first, None, conduct)?.trials;
    if trials.iter().zip(&looked).all(|(before, after)| are_alike(before.first(), after.first())) {
        return Ok(variation);
    }
    let all = if changed.seeds.len() > 1 { runner::run(&changed, None, conduct)?.trials } else { looked };
    let document = conclude(&changed.record(), &changed.workload.value, &*changed.place, &all)?;
    variation.outcome = VariationOutcome::Compared;
    variation.schedulers = varied(unchanged, &document);
    Ok(variation)
}

/// Whether two trials are the same run, whatever machine they belong to.
fn are_alike(before: Option<&Trial>, after: Option<&Trial>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return false };
    before.measures == after.measures && before.engine_events == after.engine_events && before.time_ns == after.time_ns
}
