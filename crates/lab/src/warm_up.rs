//! How long after its start nothing of a run counts, where nobody says.
//!
//! A run begins as no system in service does: one thread creates all the others, they crowd where they are created, and balancing takes
//! them apart. Workloads that do an amount of work and end have this beginning too, and their time includes it. Of a workload that runs for
//! a fixed time the beginning is a larger part the shorter it is asked to run, and waits in it are the longest of all: they decide its
//! percentiles. Measured in `results/2026-11-25-zen5-2vcpu-start/warm-up.csv`.
//!
//! A task that works and then ends by itself may be over within such a warm-up, so that nothing of it would count: a workload that has
//! one is measured from its start.
//!
//! Not here: what counts behind a warm-up ([`Counters::with_warm_up`](warmcore_trace::Counters::with_warm_up)).

use warmcore_workload::{Program, Step, Workload};

use crate::measures::{self, PERCENTILES};

/// Longest warm-up that nobody asked for.
pub const LONGEST_NS: u64 = 1_000_000_000;
/// Part of the duration that it takes at most.
const PART: u64 = 3;

/// The warm-up of an experiment whose verdict is about this metric, or about the workload's own: 1 s, but at most a third of the run, where
/// the workload runs for a fixed time, because some task of it never ends by itself, the metric is a percentile or the longest of times,
/// and no task that the metric is about ends by itself; none otherwise. The run is over after `max_time_ns`, if not before.
pub fn default_ns(workload: &Workload, max_time_ns: Option<u64>, metric: Option<&str>) -> u64 {
    let is_endless = workload.programs.iter().any(loops_for_ever);
    let Some(duration_ns) = workload.duration_ns.filter(|_| is_endless) else { return 0 };
    let run_ns = max_time_ns.map_or(duration_ns, |most| most.min(duration_ns));
    let own = measures::primary(workload);
    let metric = metric.unwrap_or(&own);
    if is_of_the_tail(metric) && !is_about_a_task_that_ends(workload, metric) {
        LONGEST_NS.min(run_ns / PART)
    } else {
        0
    }
}

/// Whether a task loops for ever: without one, the run may be over before its fixed time is.
fn loops_for_ever(program: &Program) -> bool {
    program.steps.iter().any(|step| matches!(step, Step::LoopStart { times: None, .. }))
}

/// Whether a task works, ends by itself, and counts in the metric: all tasks do, but for one of a recorder those that write to it. Tasks that
/// others create come again as long as those run, and end with them.
fn is_about_a_task_that_ends(workload: &Workload, metric: &str) -> bool {
    let of_the_tail = || PERCENTILES.iter().map(|(percentile, _)| *percentile).chain(["max"]);
    let is_of = |name: &String| of_the_tail().any(|of| measures::recorder_percentile(name, of) == metric);
    let recorder = workload.recorders.iter().position(is_of);
    let counts = |step: &Step| {
        recorder.is_none_or(|of| {
            matches!(step, Step::RecordClock { recorder, .. } | Step::RecordSince { recorder, .. } if recorder.index() == of)
        })
    };
    let mut to_look_at: Vec<usize> =
        (0..workload.tasks.len()).filter(|&task| workload.tasks[task].instances > 0).collect();
    let mut seen = vec![false; workload.tasks.len()];
    while let Some(task) = to_look_at.pop() {
        let program = &workload.programs[workload.tasks[task].program.index()];
        if std::mem::replace(&mut seen[task], true) || loops_for_ever(program) {
            continue;
        }
        if program.steps.iter().any(Step::works) && program.steps.iter().any(counts) {
            return true;
        }
        let forked = program.steps.iter().filter_map(|step| match step {
            Step::Fork(task) => Some(task.index()),
            _ => None,
        });
        to_look_at.extend(forked);
    }
    false
}

/// Whether a measure is decided by few of many times: `wakeup_p99_ns`, `recorder_request_latency_p90_ns`, `run_delay_max_ns`.
fn is_of_the_tail(measure: &str) -> bool {
    let Some(name) = measure.strip_suffix("_ns") else { return false };
    let last = name.rsplit('_').next().unwrap_or_default();
    last == "max" || last.strip_prefix('p').is_some_and(|digits| digits.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_of(workload: &str, metric: Option<&str>) -> u64 {
        default_ns(&warmcore_workload::from_generator(workload).unwrap(), None, metric)
    }

    #[test]
    fn percentiles_of_workloads_that_run_for_a_time_have_a_warm_up() {
        assert_eq!(default_of("schbench:-t2,-L,-r30", None), LONGEST_NS);
        assert_eq!(default_of("schbench:-t2,-L,-r300ms", None), 100_000_000);
        assert_eq!(default_of("periodic:-n2,-d3s", Some("run_delay_max_ns")), LONGEST_NS);
        let cut = warmcore_workload::from_generator("periodic:-n2,-d3s").unwrap();
        assert_eq!(default_ns(&cut, Some(6_000_000), Some("run_delay_max_ns")), 2_000_000, "a third of what is run");
    }

    #[test]
    fn means_rates_and_workloads_that_end_by_themselves_have_none() {
        assert_eq!(default_of("schbench:-t2,-L,-r30", Some("recorder_request_latency_mean_ns")), 0);
        assert_eq!(default_of("schbench:-t2,-L,-r30", Some("recorder_request_latency_per_s")), 0);
        assert_eq!(default_of("spin:-n2,-d3s", None), 0);
        assert_eq!(default_of("hackbench:-g1,-f2,-l10", Some("wakeup_p99_ns")), 0);
        let text = r#"{"tasks": {"a": {"loop": 9, "run": 5, "sleep": 5}}, "warmcore": {"duration_ns": 1000000000}}"#;
        let ends = warmcore_workload::from_rtapp("ends", text, &warmcore_workload::Options::default()).unwrap();
        assert_eq!(default_ns(&ends, None, Some("wakeup_p99_ns")), 0, "it may be over before");
    }

    #[test]
    fn nothing_is_cut_off_where_the_metric_is_about_a_task_that_ends_by_itself() {
        let text = r#"{"tasks": {"hog": {"loop": -1, "run": 1000},
            "a": {"loop": 50, "run": 1000, "timer": {"ref": "unique", "period": 10000}}}, "global": {"duration": 2}}"#;
        let beside = warmcore_workload::from_rtapp("beside", text, &warmcore_workload::Options::default()).unwrap();
        assert_eq!(default_ns(&beside, None, Some("wakeup_p99_ns")), 0, "`a` is over after half a second");
        assert_eq!(default_of("schbench:-t2,-L,-r3+hackbench:-g1,-f2,-l10", Some("wakeup_p99_ns")), 0);
        let requests = "recorder_request_latency_p99_ns";
        assert_eq!(default_of("schbench:-t2,-L,-r3", Some(requests)), LONGEST_NS);
        assert_eq!(
            default_of("schbench:-t2,-L,-r3+hackbench:-g1,-f2,-l10", Some(requests)),
            LONGEST_NS,
            "hackbench has none"
        );
    }
}
