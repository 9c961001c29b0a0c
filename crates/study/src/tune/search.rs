//! The search: candidates against the default under common seeds, races, and the confirmation.
//!
//! **Races.** A candidate begins with [`FIRST`] seeds. It is dropped if the paired comparison with the best so far says there that it is worse
//! ([`DROPPED`]); else it gets all seeds. A wrong drop costs a chance, never a wrong claim.
//!
//! **Confirmation.** The best candidate runs under seeds that no candidate had, on the cells of the search and on those that were held out,
//! with the default beside it; and with each knob put back to its default, for what the knob does.
//!
//! **Starvation.** Under a seed under which a candidate leaves tasks waiting for ever that run under the default it is as bad as can be,
//! whatever its measure: a wait that does not end is in no latency. So it is where the measure has no value, such as a percentile of few events.

use std::collections::BTreeMap;

use warmcore_lab::column::Inputs;
use warmcore_lab::experiment::{Experiment, trial_seeds};
use warmcore_lab::measures::Measure;
use warmcore_lab::trial::Trial;
use warmcore_lab::verdict;
use warmcore_options::RunOptions;
use warmcore_places::place::PlaceOptions;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::{Better, Comparison, Design, Sample, compare_paired, compare_trials, geometric_mean, judge};

use super::document::{CandidateResult, CellResult, KnobResult, TuningDocument};
use super::form::{Cell, Objective, TuneError, Tuning};
use crate::plan::PlannedExperiment;

/// Seeds with which a candidate begins.
pub const FIRST: u32 = 4;
/// A candidate is dropped if it is worse than the best with a p value of at most this: with 4 seeds, if it is worse under each.
pub const DROPPED: f64 = 0.125;

/// Values of one candidate: a text for every knob, in their order.
pub type Values = Vec<String>;

/// Where candidates come from.
pub trait Sampler<E> {
    /// So many candidates, to be tried together.
    ///
    /// # Errors
    /// When there are none to be had.
    fn ask(&mut self, count: u32) -> Result<Vec<Values>, E>;

    /// What became of those that were asked for last, in their order: less is better.
    ///
    /// # Errors
    /// When that cannot be kept.
    fn tell(&mut self, values: &[f64]) -> Result<(), E>;
}

/// Trials of experiments, by scheduler.
pub type Trials = Vec<Vec<Vec<Trial>>>;

/// What the columns of a cell have of their own (`pin=`, `workload=`, `machine=`), by index of the scheduler.
pub type InputsOf<'a, E> = dyn Fn(&[SchedulerSpec], &Cell) -> Result<BTreeMap<usize, Inputs>, E> + 'a;

/// What a search needs besides.
pub struct Means<'a, E> {
    /// Makes inputs of schedulers.
    pub inputs: &'a InputsOf<'a, E>,
    /// Runs experiments.
    pub run: &'a mut dyn FnMut(&[PlannedExperiment]) -> Result<Trials, E>,
    /// Told how many candidates were tried, and the best value.
    pub progress: &'a mut dyn FnMut(u32, Option<f64>),
    /// What the sampler is.
    pub sampler: String,
}

/// A candidate that was tried.
#[derive(Clone)]
struct Tried {
    spec: SchedulerSpec,
    values: Values,
    /// The objective under each seed that it had.
    under: Vec<f64>,
}

impl Tried {
    fn value(&self) -> f64 {
        // Ratios are never NaN.
        Sample::new(&self.under).ok().and_then(|sample| sample.median()).unwrap_or(f64::INFINITY)
    }
}

/// What a trial came to.
#[derive(Clone, Copy, Debug)]
struct TrialPoint {
    /// The measure; nothing where a trial has none, or where it is a percentile of too few events.
    value: Option<f64>,
    /// If it is such a percentile: of how many events, and how many it takes.
    few: Option<(f64, f64)>,
    /// Tasks that were left waiting for ever.
    left: f64,
}

impl TrialPoint {
    fn new(measure: &Measure, trial: &Trial) -> Self {
        let alone = std::slice::from_ref(trial);
        let few = verdict::few_events(measure, alone);
        let value = measure.value(trial).filter(|_| few.is_none());
        Self { value, few, left: verdict::tasks_left(alone) }
    }

    fn starves_beside(&self, default: &Self) -> bool {
        verdict::starves(default.left, self.left)
    }

    /// The measure; nothing where that is as bad as can be, too, because tasks wait for ever that run under the default.
    fn beside(&self, default: &Self) -> Option<f64> {
        self.value.filter(|_| !self.starves_beside(default))
    }
}

/// What trials came to by cell, scheduler and seed.
type MeasuredTrials = Vec<Vec<Vec<TrialPoint>>>;

fn measured<E: From<TuneError>>(
    tuning: &Tuning,
    cells: &[&Cell],
    specs: &[SchedulerSpec],
    seeds: &[u64],
    means: &mut Means<'_, E>,
) -> Result<MeasuredTrials, E> {
    let mut different: Vec<SchedulerSpec> = Vec::new();
    let of: Vec<usize> = specs
        .iter()
        .map(|spec| {
            different.iter().position(|known| known == spec).unwrap_or_else(|| {
                different.push(spec.clone());
                different.len() - 1
            })
        })
        .collect();
    let planned = |cell: &&Cell| -> Result<PlannedExperiment, E> {
        let inputs = (means.inputs)(&different, cell)?;
        Ok(experiment(tuning, cell, (&different, inputs), seeds)?)
    };
    let experiments = cells.iter().map(planned).collect::<Result<Vec<_>, _>>()?;
    let trials = (means.run)(&experiments)?;
    let of_cell = |(cell, trials): (&&Cell, &Vec<Vec<Trial>>)| {
        let of_spec =
            |index: &usize| trials[*index].iter().map(|trial| TrialPoint::new(&cell.measure, trial)).collect();
        of.iter().map(of_spec).collect()
    };
    Ok(cells.iter().zip(&trials).map(of_cell).collect())
}

fn experiment(
    tuning: &Tuning,
    cell: &Cell,
    (specs, inputs): (&[SchedulerSpec], BTreeMap<usize, Inputs>),
    seeds: &[u64],
) -> Result<PlannedExperiment, TuneError> {
    let failed =
        |source: warmcore_lab::builder::BuildError| TuneError::Build { cell: cell.name(), source: Box::new(source) };
    let options =
        PlaceOptions { schedulers: specs, guests: warmcore_places::vm::select::Choice::default(), host: None };
    let place = warmcore_places::open(warmcore_places::sim::KIND.name, &options, &|_| {});
    let built = Experiment::builder(cell.machine.clone(), cell.workload.clone())
        .schedulers(specs.to_vec())
        .inputs(inputs)
        .seeds(seeds.to_vec())
        .options(RunOptions { max_time_ns: tuning.max_time_ns, ..RunOptions::default() })
        .memory(tuning.memory)
        .metric(tuning.metric.clone())
        .background_chosen(true)
        .place(place.map_err(|error| failed(error.into()))?)
        .build()
        .map_err(failed)?;
    Ok(PlannedExperiment { experiment: built.experiment, study: tuning.name.clone(), directory: None })
}

/// The ratio of two values, below 1 where the first is better; what has no value is as bad as can be.
fn ratio(value: Option<f64>, default: f64, better: Better) -> f64 {
    let Some(value) = value else { return f64::INFINITY };
    let (value, default) = if better == Better::Higher { (default, value) } else { (value, default) };
    if value == default { 1.0 } else { value / default }
}

/// Why the default has no value that others could be compared with.
fn no_value(cell: &Cell, seed: u64, few: Option<(f64, f64)>) -> TuneError {
    let (cell, metric) = (cell.name(), cell.measure.name.clone());
    match few {
        Some((events, needed)) => TuneError::FewEvents { cell, metric, seed, events, needed },
        None => TuneError::NoValue { cell, metric, seed },
    }
}

/// The objective of each scheduler under each seed.
fn objectives(
    tuning: &Tuning,
    cells: &[&Cell],
    seeds: &[u64],
    default: &[Vec<TrialPoint>],
    of: &MeasuredTrials,
) -> Result<Vec<Vec<f64>>, TuneError> {
    let schedulers = of.first().map_or(0, Vec::len);
    let of_seed = |scheduler: usize, seed: usize| {
        let ratios = cells.iter().enumerate().map(|(index, cell)| {
            let beside = default[index][seed];
            let known = beside.value.ok_or_else(|| no_value(cell, seeds[seed], beside.few))?;
            Ok(ratio(of[index][scheduler][seed].beside(&beside), known, cell.measure.better))
        });
        let ratios = ratios.collect::<Result<Vec<f64>, TuneError>>()?;
        Ok(match tuning.objective {
            Objective::Worst => ratios.into_iter().fold(0.0, f64::max),
            // Nothing is nothing and infinite is nothing to be told from.
            Objective::GeometricMean => geometric_mean(&ratios).unwrap_or(f64::INFINITY),
        })
    };
    (0..schedulers).map(|scheduler| (0..seeds.len()).map(|seed| of_seed(scheduler, seed)).collect()).collect()
}

/// Whether a candidate is clearly worse than the best so far, under the seeds that it had.
fn is_worse(candidate: &[f64], best: &[f64]) -> Result<bool, TuneError> {
    let of = compare_paired(&best[..candidate.len()], candidate, Better::Lower)?;
    Ok(of.ratio.is_some_and(|ratio| ratio > 1.0) && of.p_value.is_some_and(|p| p <= DROPPED))
}

/// Searches, and confirms what was found.
///
/// # Errors
/// What makes no sense, and what running and asking say.
pub fn search<E: From<TuneError>>(
    tuning: &Tuning,
    sampler: &mut dyn Sampler<E>,
    means: &mut Means<'_, E>,
) -> Result<TuningDocument, E> {
    let cells: Vec<&Cell> = tuning.searched().collect();
    let all = trial_seeds(tuning.seed, tuning.trials.saturating_add(tuning.confirm_trials));
    let (seeds, unseen) = all.split_at(tuning.trials as usize);
    let default_spec = tuning.default()?;
    let of_default = measured(tuning, &cells, std::slice::from_ref(&default_spec), seeds, means)?;
    let default: Vec<Vec<TrialPoint>> = of_default.into_iter().map(|mut of| of.swap_remove(0)).collect();
    // A cell that cannot confirm is known before the search.
    let held_out: Vec<&Cell> = tuning.cells.iter().filter(|cell| cell.held_out).collect();
    if !held_out.is_empty() {
        let of = measured(tuning, &held_out, std::slice::from_ref(&default_spec), &unseen[..1], means)?;
        let default: Vec<Vec<TrialPoint>> = of.iter().map(|of| of[0].clone()).collect();
        objectives(tuning, &held_out, &unseen[..1], &default, &of)?;
    }
    let first = seeds.len().min(FIRST as usize);
    let part = |from: usize, to: usize| default.iter().map(|of| of[from..to].to_vec()).collect::<Vec<_>>();

    let mut best = Tried { spec: default_spec.clone(), values: Vec::new(), under: vec![1.0; seeds.len()] };
    let mut tried: Vec<Tried> = Vec::new();
    while (tried.len() as u32) < tuning.budget {
        let asked = sampler.ask(tuning.at_once.min(tuning.budget - tried.len() as u32))?;
        if asked.is_empty() {
            break;
        }
        let some = |values: &Values| values.iter().cloned().map(Some).collect::<Vec<_>>();
        let specs = asked.iter().map(|values| tuning.candidate(&some(values))).collect::<Result<Vec<_>, _>>()?;
        let of = measured(tuning, &cells, &specs, &seeds[..first], means)?;
        let mut under = objectives(tuning, &cells, &seeds[..first], &part(0, first), &of)?;
        let mut stays = Vec::new();
        for (index, of) in under.iter().enumerate() {
            if first < seeds.len() && !is_worse(of, &best.under)? {
                stays.push(index);
            }
        }
        if !stays.is_empty() {
            let left: Vec<SchedulerSpec> = stays.iter().map(|index| specs[*index].clone()).collect();
            let of = measured(tuning, &cells, &left, &seeds[first..], means)?;
            let more = objectives(tuning, &cells, &seeds[first..], &part(first, seeds.len()), &of)?;
            stays.iter().zip(more).for_each(|(index, more)| under[*index].extend(more));
        }
        let now = specs.into_iter().zip(asked).zip(under);
        let now: Vec<Tried> = now.map(|((spec, values), under)| Tried { spec, values, under }).collect();
        sampler.tell(&now.iter().map(Tried::value).collect::<Vec<_>>())?;
        for one in &now {
            if one.under.len() == seeds.len() && one.value() < best.value() {
                best = one.clone();
            }
        }
        tried.extend(now);
        (means.progress)(tried.len() as u32, Some(best.value()));
    }
    let candidates = tried.iter().map(|one| CandidateResult {
        scheduler: one.spec.to_string(),
        values: one.values.clone(),
        value: Some(one.value()).filter(|value| value.is_finite()),
        trials: one.under.len(),
        dropped: one.under.len() < seeds.len(),
    });
    let mut document =
        TuningDocument::new(tuning, &default_spec, candidates.collect(), std::mem::take(&mut means.sampler));
    if best.spec != default_spec {
        confirm(tuning, &best.values, unseen, means, &mut document)?;
    }
    document.conclude();
    Ok(document)
}

/// Judges the candidate that was found under seeds that the search did not see, and each of its knobs.
fn confirm<E: From<TuneError>>(
    tuning: &Tuning,
    values: &[String],
    seeds: &[u64],
    means: &mut Means<'_, E>,
    document: &mut TuningDocument,
) -> Result<(), E> {
    let whole: Vec<Option<String>> = values.iter().cloned().map(Some).collect();
    let without = |knob: usize| {
        let values = whole.iter().enumerate().map(|(index, value)| value.clone().filter(|_| index != knob));
        tuning.candidate(&values.collect::<Vec<_>>())
    };
    let mut specs = vec![tuning.default()?, tuning.candidate(&whole)?];
    for knob in 0..values.len() {
        specs.push(without(knob)?);
    }
    let cells: Vec<&Cell> = tuning.cells.iter().collect();
    let of = measured(tuning, &cells, &specs, seeds, means)?;
    let searched = tuning.searched().count();
    let ones = vec![1.0; seeds.len()];
    let under = |from: usize, to: usize| {
        let default: Vec<Vec<TrialPoint>> = of[from..to].iter().map(|of| of[0].clone()).collect();
        objectives(tuning, &cells[from..to], seeds, &default, &of[from..to].to_vec())
    };
    let here = under(0, searched)?;
    let mut joint = vec![compare_paired(&ones, &here[1], Better::Lower).map_err(TuneError::from)?];
    if searched < cells.len() {
        joint.push(compare_paired(&ones, &under(searched, cells.len())?[1], Better::Lower).map_err(TuneError::from)?);
    }
    judge(&mut joint);
    let mut of_cells: Vec<Comparison> = Vec::new();
    for (cell, of) in cells.iter().zip(&of) {
        let better = cell.measure.better;
        let worst = if better == Better::Higher { 0.0 } else { f64::INFINITY };
        let default: Vec<Option<f64>> = of[0].iter().map(|point| point.value).collect();
        let found = of[1].iter().zip(&of[0]).map(|(found, default)| Some(found.beside(default).unwrap_or(worst)));
        let compared = compare_trials(Design::Paired, &default, &found.collect::<Vec<_>>(), better);
        of_cells.push(compared.map_err(TuneError::from)?);
    }
    judge(&mut of_cells);
    let mut of_knobs = Vec::new();
    for knob in 0..values.len() {
        of_knobs.push(compare_paired(&here[1], &here[2 + knob], Better::Lower).map_err(TuneError::from)?);
    }
    judge(&mut of_knobs);
    document.scheduler = Some(specs[1].to_string());
    document.commands = commands(tuning, &specs[..2], means)?;
    let mut joint = joint.into_iter();
    (document.searched, document.held_out) = (joint.next(), joint.next());
    document.cells = cells
        .iter()
        .zip(&of)
        .zip(of_cells)
        .map(|((cell, of), comparison)| CellResult {
            machine: cell.machine.source.clone(),
            workload: cell.workload.source.clone(),
            metric: cell.measure.name.clone(),
            held_out: cell.held_out,
            starved: of[1].iter().zip(&of[0]).filter(|(found, default)| found.starves_beside(default)).count(),
            comparison,
        })
        .collect();
    document.knobs.iter_mut().zip(values).zip(of_knobs).for_each(|((knob, value), without)| {
        *knob = KnobResult { found: Some(value.clone()), without: Some(without), ..knob.clone() };
    });
    Ok(())
}

/// What is typed for the second of these schedulers where the first one runs, by machine if that matters.
fn commands<E>(tuning: &Tuning, specs: &[SchedulerSpec], means: &Means<'_, E>) -> Result<Vec<String>, E> {
    let mut typed: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for cell in tuning.searched() {
        let inputs = (means.inputs)(specs, cell)?;
        let workload = inputs.get(&1).and_then(|own| own.workload.as_ref()).unwrap_or(&cell.workload);
        let lines = warmcore_lab::advice::typed((&specs[0], &specs[1]), &cell.machine.value, &workload.value);
        let machines = typed.entry(lines).or_default();
        if !machines.contains(&cell.machine.source) {
            machines.push(cell.machine.source.clone());
        }
    }
    if typed.len() == 1 {
        return Ok(typed.into_keys().next().unwrap_or_default());
    }
    let of = |(lines, machines): (Vec<String>, Vec<String>)| {
        std::iter::once(format!("# on {}", machines.join(", "))).chain(lines)
    };
    Ok(typed.into_iter().flat_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_tasks_waiting_that_run_under_the_default_is_as_bad_as_can_be() {
        let point = |value: f64, left: f64| TrialPoint { value: Some(value), few: None, left };
        let of = |found: TrialPoint, default: TrialPoint, better| ratio(found.beside(&default), 4.0, better);
        // A quarter of the default's latency, as long as no more are left, or not twice as many.
        for (left, default_left, expected) in
            [(0.0, 0.0, 0.25), (1.0, 0.0, f64::INFINITY), (2.0, 1.0, f64::INFINITY), (3.0, 2.0, 0.25), (0.0, 7.0, 0.25)]
        {
            assert_eq!(
                of(point(1.0, left), point(4.0, default_left), Better::Lower),
                expected,
                "{left} {default_left}"
            );
        }
        assert_eq!(of(point(8.0, 1.0), point(4.0, 0.0), Better::Higher), f64::INFINITY);
        assert_eq!(of(point(8.0, 0.0), point(4.0, 0.0), Better::Higher), 0.5);
    }
}
