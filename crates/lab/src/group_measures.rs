//! Measures of task groups with a quota, as `cpu.stat` tells them: only where the scheduler or the kernel keeps it, so that a trial under
//! another has none.

use std::collections::BTreeMap;

use warmcore_statistics::Better;
use warmcore_trace::Outcome;
use warmcore_workload::{Workload, as_measure_name};

use crate::measures::{Measure, Unit};

const PERIODS: &str = "nr_periods";
const THROTTLED: &str = "nr_throttled";
const THROTTLED_NS: &str = "throttled_ns";

fn name(group: &str, what: &str) -> String {
    format!("group_{}_{what}", as_measure_name(group))
}

/// Those of a workload's groups.
pub(crate) fn of_workload(workload: &Workload) -> Vec<Measure> {
    let limited = workload.groups.iter().filter(|group| group.cpu_max.is_some()).map(|group| group.name.as_str());
    let measures = limited.map(|group| {
        [
            (
                PERIODS,
                "periods",
                Unit::One,
                Better::Neither,
                "periods of the group's quota that ended while one of its tasks ran",
            ),
            (
                THROTTLED,
                "throttled periods",
                Unit::One,
                Better::Lower,
                "of the group's periods those that ended with a CPU on which its quota was used up",
            ),
            (
                THROTTLED_NS,
                "throttled time",
                Unit::Ns,
                Better::Lower,
                "how long tasks waited because the group's quota was used up, for each CPU, all CPUs together",
            ),
        ]
        .map(|(what, title, unit, better, definition)| Measure {
            optional: true,
            ..Measure::of_outcome(&name(group, what), &format!("{title} of {group}"), unit, better, definition)
        })
    });
    measures.flatten().collect()
}

/// The values of a run.
pub(crate) fn of_run(outcome: &Outcome) -> BTreeMap<String, Option<f64>> {
    let of_group = |group: &warmcore_trace::GroupOutcome| {
        let counters = group.counters;
        [(PERIODS, counters.periods), (THROTTLED, counters.throttled_periods), (THROTTLED_NS, counters.throttled_ns)]
            .map(|(what, value)| (name(&group.name, what), Some(value as f64)))
    };
    outcome.groups.iter().flat_map(of_group).collect()
}
