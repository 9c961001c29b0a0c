//! Where numbers are no answer, whatever their interval: what a scheduler acts on is not in the run, or tasks starved.
//!
//! - Cache-aware scheduling keeps threads together for what caches hold. Where memory has constant speed it pays for that with waiting and can win
//!   nothing, so neither a gain nor a loss of time says anything about it.
//! - A task that waits for ever ends no wait. Whatever improves by leaving tasks out is no improvement.

use warmcore_kernel::MemoryChoice;
use warmcore_places::place::Place;
use warmcore_schedulers::SchedulerSpec;

use super::{Finding, SchedulerResult};
use crate::experiment::ExperimentRecord;
use crate::measures::{Measure, NEVER_RAN_AGAIN, Unit};

/// Changes findings about the measure where the comparison with the baseline cannot answer.
pub(super) fn judge(
    record: &ExperimentRecord,
    place: &dyn Place,
    measure: &Measure,
    schedulers: &mut [SchedulerResult],
    baseline: usize,
) {
    let base_left = left_waiting(&schedulers[baseline]);
    let without_caches = record.memory == MemoryChoice::None && place.kind().simulated && is_of_time(measure);
    let base_gathers = gathers(&schedulers[baseline]);
    for scheduler in schedulers.iter_mut() {
        let left = left_waiting(scheduler);
        // In a short run some may not have had their first turn, under any scheduler.
        let starves = left > base_left && left >= 2.0 * base_left;
        let unanswered = without_caches && (base_gathers || gathers(scheduler));
        let Some(finding) = scheduler.measures.get_mut(&measure.name).and_then(|result| result.finding.as_mut()) else {
            continue;
        };
        if starves && *finding != Finding::Worse {
            *finding = Finding::Starves;
        } else if unanswered {
            *finding = Finding::NotAnswerable;
        }
    }
}

/// Tasks that were left waiting in the middle trial.
pub(super) fn left_waiting(scheduler: &SchedulerResult) -> f64 {
    scheduler.measures.get(NEVER_RAN_AGAIN).and_then(|result| result.summary.median).unwrap_or(0.0)
}

fn gathers(scheduler: &SchedulerResult) -> bool {
    SchedulerSpec::parse(&scheduler.label).is_ok_and(|spec| spec.info().is_cache_aware)
}

/// Whether a measure depends on how fast memory is: times, and rates of what programs do. Places and moves do not.
fn is_of_time(measure: &Measure) -> bool {
    measure.unit == Unit::Ns || measure.name.starts_with("recorder_")
}
