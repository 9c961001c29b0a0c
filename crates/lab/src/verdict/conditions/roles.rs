//! Waits of several roles in one number: a percentile over all tasks may be that of a role whose waits nobody asks about.

use std::collections::BTreeMap;

use warmcore_trace::metrics::Waits;

use crate::measures::{Measure, is_of_each};
use crate::trial::{RoleRow, Trial};
use crate::units::duration;

/// The least part of the events that a role has where it can decide the 99th percentile of all.
const LEAST_SHARE: f64 = 0.01;
/// The fewest events in a trial that a role's mean is of.
const FEWEST: u64 = 5;
/// Means that are so many times apart are of different things.
const APART: f64 = 2.0;

/// Of a measure of wakeup latencies or response times, which roles' means differ by more than a factor of two in these trials, and what
/// judges one alone. Tasks that never sleep, and wake once, are left out.
pub(super) fn together(measure: &Measure, scheduler: &str, trials: &[Trial]) -> Option<String> {
    let of: fn(&RoleRow) -> Waits = match measure.name.split('_').next() {
        Some("wakeup") => |row| row.wakeup,
        Some("response") => |row| row.response,
        _ => return None,
    };
    let mut roles: BTreeMap<String, [Waits; 2]> = BTreeMap::new();
    for (trial, row) in trials.iter().flat_map(|trial| trial.roles.iter().map(move |row| (trial, row))) {
        let [waits, responses] = roles.entry(name(trial, row)).or_default();
        waits.merge(&of(row));
        responses.merge(&row.response);
    }
    let all: u64 = roles.values().map(|[waits, _]| waits.count).sum();
    let count = trials.len() as u64;
    let mut means: Vec<(f64, u64, String)> = roles
        .into_iter()
        .filter(|(_, [waits, responses])| {
            let fewest = waits.count.min(responses.count);
            fewest >= FEWEST * count && waits.count as f64 >= LEAST_SHARE * all as f64
        })
        .map(|(role, [waits, _])| (waits.sum_ns as f64 / waits.count as f64, waits.count / count, role))
        .collect();
    means.sort_by(|a, b| b.0.total_cmp(&a.0));
    let ([most, .., least], true) = (means.as_slice(), is_of_each(&measure.name)) else { return None };
    let in_words = |(mean, events, role): &(f64, u64, String)| format!("{} for {role} ({events})", duration(*mean));
    (most.0 > APART * least.0 && most.0 >= measure.least).then(|| {
        format!(
            "{} is of {} roles together: under {scheduler} the mean of a trial's events is {} and {}; a recorder in the workload judges one role \
             alone (docs/workloads.md)",
            measure.title,
            means.len(),
            in_words(most),
            in_words(least)
        )
    })
}

/// A role's name, with its application's where there are several.
fn name(trial: &Trial, row: &RoleRow) -> String {
    match trial.applications.get(row.application as usize) {
        Some(application) if trial.applications.len() > 1 && application.name != row.role => {
            format!("{}/{}", application.name, row.role)
        }
        _ => row.role.clone(),
    }
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
        RoleRow { role: role.into(), application: 0, wakeup, response }
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
