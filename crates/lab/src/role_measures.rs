//! Measures of the tasks of one role alone, where a workload has several roles: a percentile over all tasks is that of whoever has the most
//! events.

use warmcore_statistics::Better;
use warmcore_workload::{Workload, as_measure_name};

use crate::measures::{Measure, Unit};
use crate::trial::{ApplicationRow, RoleRow};

/// Most roles that have measures of their own. Replays have one for each thread.
const MOST_ROLES: usize = 16;

/// Name and words of what is measured.
const WAKEUP: (&str, &str) = ("wakeup", "wakeup latencies");
const RESPONSE: (&str, &str) = ("response", "response times");

const P99: &str = "p99_ns";
const MEAN: &str = "mean_ns";
const SAMPLES: &str = "samples";

/// What names of measures of one role begin with.
const PREFIX: &str = "role_";

/// Name of the measure of a role: `role_client_wakeup_p99_ns`.
fn name(role: &str, what: &str) -> String {
    format!("{PREFIX}{}_{what}", as_measure_name(role))
}

/// Whether a measure is one of a role alone.
pub fn is_of_role(measure: &str) -> bool {
    measure.starts_with(PREFIX)
}

/// What a measure over all tasks is called of one role alone, where there is that: of `wakeup_p99_ns` `role_client_wakeup_p99_ns`.
pub(crate) fn of_one_role(measure: &str, role: &str) -> Option<String> {
    let (of, what) = measure.split_once('_')?;
    ([WAKEUP.0, RESPONSE.0].contains(&of) && [P99, MEAN].contains(&what)).then(|| name(role, measure))
}

/// A role's name, with its application's where there are several of these.
fn label(role: &str, application: Option<&str>, several: bool) -> String {
    match application {
        Some(application) if several && application != role => format!("{application}/{role}"),
        _ => role.to_owned(),
    }
}

/// The name of a trial's role.
pub(crate) fn label_of(row: &RoleRow, applications: &[ApplicationRow]) -> String {
    let application = applications.get(row.application as usize).map(|application| application.name.as_str());
    label(&row.role, application, applications.len() > 1)
}

/// The roles of a workload that have measures, in the order of their first tasks: none if it has one, or too many.
fn roles_of(workload: &Workload) -> Vec<String> {
    let mut roles: Vec<String> = Vec::new();
    for task in &workload.tasks {
        let process = workload.processes.get(task.process.index());
        let application = process.and_then(|process| workload.applications.get(process.application as usize));
        let role = if task.role.is_empty() { application.map_or("", String::as_str) } else { &task.role };
        let role = label(role, application.map(String::as_str), workload.applications.len() > 1);
        if !roles.contains(&role) {
            roles.push(role);
        }
        if roles.len() > MOST_ROLES {
            return Vec::new();
        }
    }
    if roles.len() > 1 { roles } else { Vec::new() }
}

/// Whether a workload has such measures.
pub(crate) fn are_of(workload: &Workload) -> bool {
    !roles_of(workload).is_empty()
}

pub(crate) fn of_workload(workload: &Workload) -> Vec<Measure> {
    let of_role = |role: String| {
        [WAKEUP, RESPONSE].into_iter().flat_map(move |(of, words)| {
            let measure = |what: &str, title: &str, unit: Unit, better: Better, definition: &str| Measure {
                optional: true,
                from_events: true,
                ..Measure::of_outcome(
                    &name(&role, &format!("{of}_{what}")),
                    &format!("{of} {title} of {role}"),
                    unit,
                    better,
                    &format!("{definition} {words} of the role {role}"),
                )
            };
            [
                measure(P99, "p99", Unit::Ns, Better::Lower, "99th percentile, an upper edge of a bucket, of the"),
                measure(MEAN, "mean", Unit::Ns, Better::Lower, "mean of the"),
                measure(SAMPLES, "samples", Unit::One, Better::Neither, "number of the"),
            ]
        })
    };
    roles_of(workload).into_iter().flat_map(of_role).collect()
}

/// The values of a trial's roles, of those whose percentiles are known.
pub(crate) fn of_rows(rows: &[RoleRow], applications: &[ApplicationRow]) -> Vec<(String, Option<f64>)> {
    let of_row = |row: &RoleRow| {
        let role = label_of(row, applications);
        let both = [(WAKEUP, row.wakeup, row.wakeup_p99_ns), (RESPONSE, row.response, row.response_p99_ns)];
        both.into_iter().flat_map(move |((of, _), waits, p99_ns)| {
            let mean = (waits.count > 0).then(|| waits.sum_ns as f64 / waits.count as f64);
            [(P99, p99_ns.map(|ns| ns as f64)), (MEAN, mean), (SAMPLES, Some(waits.count as f64))]
                .map(|(what, value)| (name(&role, &format!("{of}_{what}")), value))
        })
    };
    rows.iter().filter(|row| row.wakeup_p99_ns.is_some()).flat_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_trace::metrics::Waits;

    fn workload(text: &str) -> Workload {
        warmcore_workload::from_rtapp("w", text, &warmcore_workload::Options::default()).unwrap()
    }

    #[test]
    fn roles_have_measures_where_there_are_several_and_not_too_many() {
        let names = |count: usize| {
            let task = |number: usize| format!(r#""t{number}": {{"loop": 1, "run": 5, "sleep": 5}}"#);
            let tasks: Vec<String> = (0..count).map(task).collect();
            let measures = of_workload(&workload(&format!(r#"{{"tasks": {{{}}}}}"#, tasks.join(", "))));
            measures.into_iter().map(|measure| measure.name).collect::<Vec<_>>()
        };
        assert_eq!(names(1), Vec::<String>::new());
        assert_eq!(names(2).len(), 2 * 6);
        assert!(names(2).contains(&"role_t1_response_p99_ns".to_owned()), "{:?}", names(2));
        assert_eq!(names(MOST_ROLES + 1), Vec::<String>::new());
    }

    #[test]
    fn a_trials_roles_have_the_names_of_the_workloads() {
        let of = |name: &str| ApplicationRow { name: name.into(), elapsed_ns: 1, finished: true, cpu_time_ns: 1 };
        let waits = Waits { count: 4, sum_ns: 40, max_ns: 20 };
        let row = |application, p99_ns| RoleRow {
            role: "worker".into(),
            application,
            wakeup: waits,
            response: Waits::default(),
            wakeup_p99_ns: p99_ns,
            response_p99_ns: None,
        };
        let values = of_rows(&[row(0, None), row(1, Some(20))], &[of("a"), of("b")]);
        let expected = [
            ("role_b_worker_wakeup_p99_ns", Some(20.0)),
            ("role_b_worker_wakeup_mean_ns", Some(10.0)),
            ("role_b_worker_wakeup_samples", Some(4.0)),
            ("role_b_worker_response_p99_ns", None),
            ("role_b_worker_response_mean_ns", None),
            ("role_b_worker_response_samples", Some(0.0)),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)));
        let workload = warmcore_workload::from_generator("periodic:-n2,-d1s+pingpong:-n1,-l9,-p").unwrap();
        let names: Vec<String> = of_workload(&workload).into_iter().map(|measure| measure.name).collect();
        assert!(names.iter().any(|name| name.starts_with("role_pingpong_")), "with its application: {names:?}");
    }
}
