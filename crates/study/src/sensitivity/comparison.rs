//! What could turn a comparison's verdict: the experiment again with each assumed cost of the machine or of a scheduler changed, or with one task or core more
//! or less, under the same seeds.
//!
//! A cost that the first trial under every scheduler does not feel is not looked at further: it does not enter the workload at all.

use warmcore_lab::column::bind;
use warmcore_lab::experiment::{Experiment, Named};
use warmcore_lab::sensitivity::{
    AskedChanges, Sensitivity, Variation, VariationOutcome, check as check_changed, varied,
};
use warmcore_lab::trial::Trial;
use warmcore_lab::verdict::{ComparisonDocument, VerdictError, conclude};
use warmcore_places::place::PlaceKind;
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::{assumptions, keep_cpus};
use warmcore_workload::{Affinity, Workload, load_text};

use crate::plan::PlannedExperiment;
use crate::run::{self, Means, StudyError};

/// What every assumed cost is multiplied by where nobody says otherwise.
pub const FACTORS: [f64; 2] = [0.5, 2.0];

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum SensitivityError {
    #[error("assumed costs are the simulator's, and `{0}` does not simulate")]
    NotSimulated(&'static str),
    #[error("`{0}` has a machine of its own, and assumed costs are changed on one")]
    Machines(String),
    /// A changed run failed.
    #[error(transparent)]
    Run(#[from] StudyError),
    /// A changed run has no verdict: a fault of this program.
    #[error(transparent)]
    Verdict(#[from] VerdictError),
}

impl SensitivityError {
    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NotSimulated(_) => "leave out --on, or --sensitivity",
            Self::Machines(_) => "compare on each machine separately",
            Self::Run(_) | Self::Verdict(_) => "the run without --sensitivity may say more",
        }
    }
}

/// How many simulations there are at most: less are made where a cost has no effect.
pub fn most_simulations(experiment: &Experiment, asked: &AskedChanges) -> usize {
    let all = assumptions(&experiment.machine.value).len() + assumed_of_schedulers(experiment).len();
    let costs = if asked.factors.is_empty() { 0 } else { all };
    let changes = costs * asked.factors.len() + if asked.neighbours { NEIGHBOURS } else { 0 };
    changes * (experiment.trial_count() + experiment.schedulers.len())
}

/// Compares again with every assumed cost of the machine and of schedulers times every factor, and with the neighbours, as far as they are asked for. `trials`
/// and `unchanged` are those of the experiment as it is; `read` makes a workload of a text as the experiment's own was made.
///
/// # Errors
/// [`SensitivityError`].
pub fn run(
    experiment: &Experiment,
    (trials, unchanged): (&[Vec<Trial>], &ComparisonDocument),
    asked: &AskedChanges,
    read: Read<'_>,
    means: &Means<'_>,
) -> Result<Sensitivity, SensitivityError> {
    check(experiment.place.kind())?;
    if let Some((scheduler, _)) = experiment.columns.iter().find(|(_, own)| own.machine.is_some()) {
        return Err(SensitivityError::Machines(experiment.schedulers[*scheduler].to_string()));
    }
    let mut variations: Vec<Variation> = Vec::new();
    let mut planned: Vec<(usize, PlannedExperiment)> = Vec::new();
    for (mut variation, changed) in changes(experiment, asked, read) {
        match changed {
            Ok(changed) => planned.push((variations.len(), judged_alike(changed, &variation, unchanged))),
            Err(reason) => variation.outcome = VariationOutcome::Impossible(reason),
        }
        variations.push(variation);
    }
    let mut firsts: Vec<PlannedExperiment> = planned.iter().map(|(_, one)| one.clone()).collect();
    firsts.iter_mut().for_each(|one| one.experiment.seeds.truncate(1));
    let felt: Vec<bool> = run::each(&firsts, means, &mut |done| {
        let mut pairs = trials.iter().zip(&done.finished.trials);
        Ok::<_, StudyError>(!pairs.all(|(before, after)| are_alike(before.first(), after.first())))
    })?;
    let mut kept = felt.into_iter();
    planned.retain(|_| kept.next().unwrap_or(true));
    let (places, planned): (Vec<usize>, Vec<PlannedExperiment>) = planned.into_iter().unzip();
    let documents = run::each(&planned, means, &mut |done| {
        let (changed, trials) = (done.experiment, &done.finished.trials);
        let document = conclude(changed, &changed.record(), trials)?;
        Ok::<_, SensitivityError>(varied(unchanged, &document))
    })?;
    for (place, schedulers) in places.into_iter().zip(documents) {
        variations[place].outcome = VariationOutcome::Compared;
        variations[place].schedulers = schedulers;
    }
    Ok(Sensitivity::new(unchanged, asked, variations))
}

/// Every change that is asked for, and the experiment with it, or why there is none.
fn changes(
    experiment: &Experiment,
    asked: &AskedChanges,
    read: Read<'_>,
) -> Vec<(Variation, Result<Experiment, String>)> {
    let mut changes: Vec<(Variation, Result<Experiment, String>)> = Vec::new();
    for assumption in assumptions(&experiment.machine.value).iter().filter(|_| !asked.factors.is_empty()) {
        for factor in &asked.factors {
            let variation = variation(assumption.name, assumption.values.clone(), Some(*factor));
            let machine = assumption.scaled(&experiment.machine.value, *factor);
            let changed = machine.map(|machine| {
                let mut changed = experiment.clone();
                changed.machine.value = machine;
                changed
            });
            changes.push((variation, changed));
        }
    }
    for (scheduler, tunable) in assumed_of_schedulers(experiment) {
        let name = format!("{scheduler}:{tunable}");
        changes.extend(asked.factors.iter().map(|factor| {
            let variation = variation(&name, vec![name.clone()], Some(*factor));
            (variation, with_scaled(experiment, (scheduler, tunable), *factor))
        }));
    }
    if asked.neighbours {
        let refused = |changed: &Experiment| check_changed(changed).map_err(|error| format!("refused, {error}"));
        let admitted = |changed: Experiment| refused(&changed).map(|()| changed);
        let neighbours = neighbours(experiment, read).map(|(name, changed)| (name, changed.and_then(admitted)));
        changes.extend(neighbours.into_iter().map(|(name, changed)| (variation(name, Vec::new(), None), changed)));
    }
    changes
}

/// Costs of schedulers that nobody measured: scheduler and tunable, each once.
fn assumed_of_schedulers(experiment: &Experiment) -> Vec<(&'static str, &'static str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for spec in &experiment.schedulers {
        let own = spec.assumed().into_iter().map(|(tunable, _)| (spec.name(), tunable));
        found.extend(own.filter(|one| !found.contains(one)).collect::<Vec<_>>());
    }
    found
}

/// The experiment with a scheduler's cost times a factor, in all columns in which that cost is assumed.
fn with_scaled(experiment: &Experiment, (scheduler, tunable): (&str, &str), factor: f64) -> Result<Experiment, String> {
    let mut changed = experiment.clone();
    let of_columns = changed.columns.values_mut().map(|own| &mut own.scheduler);
    let is_assumed = |spec: &SchedulerSpec| spec.assumed().iter().any(|(name, _)| *name == tunable);
    for spec in changed.schedulers.iter_mut().chain(of_columns) {
        if spec.name() == scheduler && is_assumed(spec) {
            *spec = spec.scaled(tunable, factor).map_err(|error| error.to_string())?;
        }
    }
    Ok(changed)
}

/// A changed experiment, which is judged by the measure of the unchanged one, whatever it was that the unchanged machine could not measure.
/// Its events are not kept.
fn judged_alike(
    mut experiment: Experiment,
    variation: &Variation,
    unchanged: &ComparisonDocument,
) -> PlannedExperiment {
    experiment.metric = Some(unchanged.primary.clone());
    experiment.options = experiment.options.without_tables();
    PlannedExperiment { experiment, study: variation.cost.clone(), directory: None }
}

fn variation(cost: &str, values: Vec<String>, factor: Option<f64>) -> Variation {
    let (outcome, schedulers) = (VariationOutcome::NoEffect, Vec::new());
    Variation { cost: cost.to_owned(), values, factor, outcome, schedulers }
}

/// Makes a workload of a text.
pub type Read<'a> = &'a dyn Fn(&str) -> Result<Workload, String>;

/// How many neighbours an experiment has.
const NEIGHBOURS: usize = 3;

/// The experiment with one task more, one less, and one core less: what a verdict that stands on an edge falls off from.
fn neighbours(experiment: &Experiment, read: Read<'_>) -> [(&'static str, Result<Experiment, String>); NEIGHBOURS] {
    let changed = |workload: Workload| {
        let mut changed = experiment.clone();
        changed.workload.value = workload;
        changed.workload.value.warm_up_ns = experiment.workload.value.warm_up_ns;
        changed
    };
    let task = |more: bool| {
        if experiment.columns.values().any(|own| own.workload.is_some()) {
            return Err("columns have workloads of their own".to_owned());
        }
        let Named { source, value } = &experiment.workload;
        if let Some(text) = load_text(source).ok().and_then(|text| text.beside(more)) {
            return read(&text).map(changed);
        }
        let beside = value.clone().with_one(more).map_err(|error| error.to_string())?;
        beside.map(changed).ok_or_else(|| "there would be none left".to_owned())
    };
    [("one task more", task(true)), ("one task less", task(false)), ("one core less", one_core_less(experiment))]
}

/// The experiment on the machine without its last core. Tasks that are bound keep to what is left of their CPUs.
fn one_core_less(experiment: &Experiment) -> Result<Experiment, String> {
    let machine = &experiment.machine.value;
    let last = machine.cpus().last().ok_or_else(|| "the machine has no CPU".to_owned())?;
    let mut cpus = machine.all_cpus().clone();
    machine.cpus_of_core(machine.core_of(last)).iter().for_each(|cpu| _ = cpus.remove(cpu));
    if cpus.is_empty() {
        return Err("it has one core".to_owned());
    }
    let mut changed = experiment.clone();
    let own = changed.columns.values_mut().filter_map(|own| own.workload.as_mut());
    for workload in std::iter::once(&mut changed.workload).chain(own).map(|named| &mut named.value) {
        if !workload.hotplug.is_empty() {
            return Err("the workload takes CPUs offline itself".to_owned());
        }
        if !workload.isolcpus.is_empty() || !workload.nohz_full.is_empty() {
            return Err("the workload isolates CPUs".to_owned());
        }
        let free: Vec<usize> =
            (0..workload.tasks.len()).filter(|task| workload.tasks[*task].affinity == Affinity::All).collect();
        bind(workload, machine, &cpus)?;
        free.into_iter().for_each(|task| workload.tasks[task].affinity = Affinity::All);
    }
    changed.machine.value = keep_cpus(machine, &cpus)?;
    Ok(changed)
}

/// Checks, before anything runs, that the costs are those of a simulated machine.
///
/// # Errors
/// [`SensitivityError::NotSimulated`].
pub fn check(kind: &PlaceKind) -> Result<(), SensitivityError> {
    if kind.simulated { Ok(()) } else { Err(SensitivityError::NotSimulated(kind.name)) }
}

/// Whether two trials are the same run, whatever machine they belong to.
fn are_alike(before: Option<&Trial>, after: Option<&Trial>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return false };
    before.measures == after.measures && before.engine_events == after.engine_events && before.time_ns == after.time_ns
}
