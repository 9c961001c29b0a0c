//! Measures of what a scheduler's choices of places took: how many there were, what they looked at, and the kernel time charged for it.
//!
//! Only schedulers that count them have them (`fewest-tasks`, `random`, `dio`, `cdf`): where no trial has, they are left out of documents.

use std::collections::BTreeMap;

use warmcore_statistics::Better;
use warmcore_trace::{Outcome, PlacementEffort};

use crate::measures::{Measure, Unit};

const DECISIONS: &str = "placement_decisions";
const LOOKED_AT: &str = "placement_looked_at";
const COST: &str = "placement_cost_ns";
const COST_EACH: &str = "placement_decision_ns";

/// All of them.
pub(crate) fn all() -> Vec<Measure> {
    let measure = |name: &str, title: &str, unit, better, definition: &str| Measure {
        optional: true,
        least: f64::MIN_POSITIVE,
        ..Measure::of_outcome(name, title, unit, better, definition)
    };
    vec![
        measure(
            DECISIONS,
            "placements decided",
            Unit::One,
            Better::Neither,
            "how often the scheduler chose a place for a task, or dealt places to all of them, whether or not a task had to move",
        ),
        measure(
            LOOKED_AT,
            "things looked at for placements",
            Unit::One,
            Better::Lower,
            "queues, comparisons of tasks, and nodes of histograms that those decisions looked at",
        ),
        measure(
            COST,
            "cost of placements",
            Unit::Ns,
            Better::Lower,
            "kernel time charged for what those decisions looked at, readings of counters included; part of overhead_ns",
        ),
        measure(
            COST_EACH,
            "cost of a placement",
            Unit::Ns,
            Better::Lower,
            "placement_cost_ns over placement_decisions",
        ),
    ]
}

/// The values of a run whose scheduler counts them.
pub(crate) fn of_run(outcome: &Outcome) -> BTreeMap<String, Option<f64>> {
    let Some(PlacementEffort { decisions, looked_at, cost_ns }) = outcome.placement else { return BTreeMap::new() };
    let each = (decisions > 0).then(|| cost_ns as f64 / decisions as f64);
    [
        (DECISIONS, Some(decisions as f64)),
        (LOOKED_AT, Some(looked_at as f64)),
        (COST, Some(cost_ns as f64)),
        (COST_EACH, each),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// What a scheduler's decisions took, in words, by the medians of its measures.
pub fn in_words(median: impl Fn(&str) -> Option<f64>) -> Option<String> {
    let (decisions, looked_at, cost_ns) = (median(DECISIONS)?, median(LOOKED_AT)?, median(COST_EACH)?);
    (decisions > 0.0).then(|| {
        format!(
            "{decisions:.0} placements decided, each looked at {:.1} things and took {cost_ns:.0} ns",
            looked_at / decisions
        )
    })
}
