//! Waits of several roles in one number: a percentile over all tasks may be that of a role whose waits nobody asks about.

use std::collections::BTreeMap;

use warmcore_statistics::Sample;
use warmcore_trace::Histogram;
use warmcore_trace::metrics::Waits;

use crate::measures::{Measure, is_of_each};
use crate::role_measures::{label_of, of_one_role};
use crate::trial::{RoleRow, Trial};
use crate::units::duration;

/// The least part of the events that a role has where it can decide the 99th percentile of all.
const LEAST_SHARE: f64 = 0.01;
/// The fewest events in a trial that a role's value is of.
const FEWEST: u64 = 5;
/// Values that are so many times apart are of different things.
const APART: f64 = 2.0;

/// What the events of a role came to in all trials.
#[derive(Default)]
struct Events {
    waits: Waits,
    responses: u64,
    /// 99th percentiles, of trials that have it.
    p99s_ns: Vec<f64>,
}

/// Of a measure of wakeup latencies or response times, which roles' values differ by more than a factor of two in these trials, and what
/// judges one alone. A role's value is its 99th percentile where the measure is that and it has the events for it, or else its mean. Tasks
/// that never sleep, and wake once, are left out.
pub(super) fn together(measure: &Measure, scheduler: &str, trials: &[Trial]) -> Option<String> {
    let of: fn(&RoleRow) -> (Waits, Option<u64>) = match measure.name.split('_').next() {
        Some("wakeup") => |row| (row.wakeup, row.wakeup_p99_ns),
        Some("response") => |row| (row.response, row.response_p99_ns),
        _ => return None,
    };
    let mut roles: BTreeMap<String, Events> = BTreeMap::new();
    for (trial, row) in trials.iter().flat_map(|trial| trial.roles.iter().map(move |row| (trial, row))) {
        let events = roles.entry(label_of(row, &trial.applications)).or_default();
        let (waits, p99_ns) = of(row);
        events.waits.merge(&waits);
        events.responses += row.response.count;
        events.p99s_ns.extend(p99_ns.map(|ns| ns as f64));
    }
    let all: u64 = roles.values().map(|events| events.waits.count).sum();
    let count = trials.len() as u64;
    roles.retain(|_, events| {
        let fewest = events.waits.count.min(events.responses);
        fewest >= FEWEST * count && events.waits.count as f64 >= LEAST_SHARE * all as f64
    });
    let has_p99 = |events: &Events| {
        events.p99s_ns.len() == trials.len() && events.waits.count >= Histogram::fewest_for(0.99) * count
    };
    let of_p99 = measure.name.ends_with("_p99_ns") && roles.values().all(has_p99);
    let value = |events: &Events| match of_p99 {
        // Times are numbers.
        true => Sample::new(&events.p99s_ns).ok().and_then(|sample| sample.median()).unwrap_or(0.0),
        false => events.waits.sum_ns as f64 / events.waits.count as f64,
    };
    let mut values: Vec<(f64, u64, &String)> =
        roles.iter().map(|(role, events)| (value(events), events.waits.count / count, role)).collect();
    values.sort_by(|a, b| b.0.total_cmp(&a.0));
    let ([most, .., least], true) = (values.as_slice(), is_of_each(&measure.name)) else { return None };
    let in_words = |(value, events, role): &(f64, u64, &String)| format!("{} for {role} ({events})", duration(*value));
    let is_measured = |name: &String| trials.iter().any(|trial| trial.measures.contains_key(name));
    let alone = of_one_role(&measure.name, most.2).filter(is_measured);
    let alone = alone.map_or_else(
        || "a recorder in the workload judges one role alone (docs/workloads.md)".to_owned(),
        |name| format!("--metric {name} judges one role alone"),
    );
    (most.0 > APART * least.0 && most.0 >= measure.least).then(|| {
        format!(
            "{} is of {} roles together: under {scheduler} {} of a trial's events is {} and {}; {alone}",
            measure.title,
            values.len(),
            if of_p99 { "the p99" } else { "the mean" },
            in_words(most),
            in_words(least)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::Unit;
    use crate::trial::tests::trial;
    use warmcore_statistics::Better;

    fn waits(count: u64, each_ns: u64) -> Waits {
        Waits { count, sum_ns: count * each_ns, max_ns: each_ns }
    }

    fn row(role: &str, wakeup: Waits, response: Waits) -> RoleRow {
        RoleRow { role: role.into(), application: 0, wakeup, response, wakeup_p99_ns: None, response_p99_ns: None }
    }

    /// What is said of eight trials with these roles.
    fn said(measure: &str, rows: &[RoleRow]) -> Option<String> {
        let measure = Measure::of_outcome(measure, "response p99", Unit::Ns, Better::Lower, "");
        let of = |number| Trial { roles: rows.to_vec(), ..trial("eevdf", number, &[]) };
        together(&measure, "eevdf", &(0..8).map(of).collect::<Vec<_>>())
    }

    #[test]
    fn a_number_over_two_roles_names_both_with_their_means() {
        let timer = row("timer", waits(9000, 2000), waits(9000, 50_000));
        let client = row("client", waits(200, 2000), waits(200, 3_000_000));
        let expected = "response p99 is of 2 roles together: under eevdf the mean of a trial's events is 3 ms for client (200) and 50 us for timer \
                        (9000); a recorder in the workload judges one role alone (docs/workloads.md)";
        let both = [timer, client];
        assert_eq!(said("response_p99_ns", &both).as_deref(), Some(expected));
        assert_eq!(said("wakeup_p99_ns", &both), None, "they wait alike");
        assert_eq!(said("response_per_s", &both), None, "no time of one event among many");
        assert_eq!(said("elapsed_ns", &both), None);
    }

    /// Equal means, and one role whose hundredth response takes 100 times as long as the others.
    #[test]
    fn percentiles_are_compared_with_those_of_each_role() {
        let of = |role: &str, p99_ns| RoleRow {
            response_p99_ns: Some(p99_ns),
            wakeup_p99_ns: Some(7),
            ..row(role, waits(200, 2000), waits(200, 60_000))
        };
        let both = [of("timer", 60_000), of("client", 5_000_000)];
        let begins = "response p99 is of 2 roles together: under eevdf the p99 of a trial's events is 5 ms for client (200) and 60 us for timer";
        assert!(said("response_p99_ns", &both).unwrap().starts_with(begins));
        assert_eq!(said("response_mean_ns", &both), None, "the means are the same");
        let few = [of("timer", 60_000), RoleRow { response: waits(99, 60_000), ..of("client", 5_000_000) }];
        assert_eq!(
            said("response_p99_ns", &few),
            None,
            "99 events have no 99th percentile, and the means are the same"
        );
    }

    #[test]
    fn a_role_that_never_sleeps_or_has_few_events_decides_nothing() {
        let worker = row("worker", waits(2000, 2000), waits(2000, 50_000));
        let hog = row("hog", waits(40, 900_000), waits(0, 0));
        let rare = row("rare", waits(19, 900_000), waits(19, 900_000));
        let often = row("often", waits(40, 900_000), waits(40, 900_000));
        assert_eq!(said("wakeup_p99_ns", &[worker.clone(), hog, rare]), None);
        assert!(said("wakeup_p99_ns", &[worker, often]).is_some());
    }
}
