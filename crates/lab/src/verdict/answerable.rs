//! Where numbers are no answer, whatever their interval: what a scheduler acts on is not in the run, tasks starved, or a percentile is one of
//! few events.
//!
//! - Cache-aware scheduling keeps threads together for what caches hold. Where memory has constant speed it pays for that with waiting and can win
//!   nothing, so neither a gain nor a loss of time says anything about it. Where threads are, and what the kernel does, is answered, and on a
//!   machine with one LLC, where it is off, everything is.
//! - A task that waits for ever ends no wait. Whatever improves by leaving tasks out is no improvement.
//! - A scheduler that keeps no quota does the work that the others may not.
//! - The 99th percentile of twenty waits is the longest of them.
//!
//! The verdict's own measure is never of few events: see [`carries`](super::carries).

use warmcore_options::MemoryChoice;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::Sample;

use super::carries::few_events;
use super::{Finding, SchedulerResult};
use crate::experiment::{Experiment, ExperimentRecord};
use crate::measures::{self, Measure, NEVER_RAN_AGAIN, Unit};
use crate::trial::Trial;

/// Changes findings where a comparison with the baseline cannot answer; `primary` is the verdict's measure, `unkept` are the labels of
/// schedulers under which quotas of their workload do not hold.
pub(super) fn judge(
    experiment: &Experiment,
    record: &ExperimentRecord,
    unkept: &[String],
    (catalogue, primary): (&[Measure], &Measure),
    schedulers: &mut [SchedulerResult],
    (baseline, trials): (usize, &[Vec<Trial>]),
) {
    let base_left = left_waiting(&schedulers[baseline]);
    let without_caches = record.options.memory == MemoryChoice::None && experiment.place.kind().simulated;
    let acts_on_caches = |index: usize, scheduler: &SchedulerResult| {
        gathers(scheduler) && experiment.machine_of(index).value.llc_count() > 1
    };
    let base_gathers = acts_on_caches(baseline, &schedulers[baseline]);
    let base_unlimited = unkept.contains(&schedulers[baseline].label);
    for (index, scheduler) in schedulers.iter_mut().enumerate() {
        let differs = unkept.contains(&scheduler.label) != base_unlimited;
        let left = left_waiting(scheduler);
        let starves = starves(base_left, left);
        let unanswered = without_caches && (base_gathers || acts_on_caches(index, scheduler));
        // Percentiles are edges of buckets: equal ones are of equal runs only if the means are equal too.
        let means_differ: Vec<bool> = catalogue
            .iter()
            .map(|measure| {
                let mean = measures::mean_of_percentile(&measure.name).and_then(|mean| scheduler.measures.get(&mean));
                mean.is_some_and(|mean| mean.finding != Some(Finding::Identical))
            })
            .collect();
        for (measure, means_differ) in catalogue.iter().zip(means_differ) {
            let Some(result) = scheduler.measures.get_mut(&measure.name) else { continue };
            let Some(finding) = &mut result.finding else { continue };
            if *finding == Finding::Identical && means_differ {
                *finding = Finding::Tied;
            }
            let is_primary = measure.name == primary.name;
            let unended =
                || [baseline, index].iter().all(|of| trials[*of].iter().any(|trial| measure.is_unended(trial)));
            let few = || [baseline, index].iter().any(|of| few_events(measure, &trials[*of]).is_some());
            if starves && (*finding == Finding::Better || is_primary && *finding != Finding::Worse) {
                *finding = Finding::Starves;
            } else if differs || unanswered && is_of_time(measure) {
                *finding = Finding::NotAnswerable;
            } else if few() || *finding == Finding::Identical && unended() {
                *finding = Finding::NotMeasurable;
            }
            // No number stands where it is no answer.
            if let Some(comparison) = &mut result.comparison
                && matches!(finding, Finding::NotAnswerable | Finding::NotMeasurable)
            {
                (comparison.ratio, comparison.interval, comparison.smallest_effect) = (None, None, None);
            }
        }
    }
}

/// Whether a scheduler starves: whether it left more tasks waiting for ever than the baseline, and at least twice as many. In a short run some
/// may not have had their first turn, under any scheduler.
#[must_use]
pub fn starves(base_left: f64, left: f64) -> bool {
    left > base_left && left >= 2.0 * base_left
}

/// Tasks that were left waiting for ever, in the middle of these trials; 0 where no trial says.
#[must_use]
pub fn tasks_left(trials: &[Trial]) -> f64 {
    let of_trials: Vec<f64> = trials.iter().filter_map(|trial| trial.measure(NEVER_RAN_AGAIN)).collect();
    // Counts are numbers.
    Sample::new(&of_trials).ok().and_then(|sample| sample.median()).unwrap_or(0.0)
}

/// Whether a simulated scheduler keeps quotas of task groups. Programs of sched_ext keep none in a kernel either.
pub(super) fn keeps_quotas(label: &str) -> bool {
    SchedulerSpec::parse(label).is_ok_and(|spec| spec.info().knows_groups || spec.program().is_some())
}

/// Tasks that were left waiting in the middle trial.
pub(super) fn left_waiting(scheduler: &SchedulerResult) -> f64 {
    scheduler.measures.get(NEVER_RAN_AGAIN).and_then(|result| result.summary.median).unwrap_or(0.0)
}

fn gathers(scheduler: &SchedulerResult) -> bool {
    SchedulerSpec::parse(&scheduler.label).is_ok_and(|spec| spec.info().is_cache_aware)
}

/// What measures begin with that are times of the kernel's, or of CPUs.
const NOT_OF_TASKS: [&str; 4] = ["overhead_", "violation_", "idle_", "placement_"];

/// Whether a measure depends on how fast memory is: times of tasks, and rates of what programs do.
fn is_of_time(measure: &Measure) -> bool {
    let is_of_tasks = !NOT_OF_TASKS.iter().any(|prefix| measure.name.starts_with(prefix));
    measure.unit == Unit::Ns && is_of_tasks || measure.name.starts_with("recorder_") && measure.unit == Unit::PerS
}
