//! What a verdict says of schedulers that keep threads together: whom they refused or left apart, where threads ran all the same, and what
//! scans may have cost.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::{LlcId, Machine};
use warmcore_workload::{ProcessId, Step};

use super::{MATTERS, differs};
use crate::decisions::DecisionCount;
use crate::experiment::Experiment;
use crate::gathering::GatheringRow;
use crate::trial::Trial;
use crate::units::duration;
use crate::verdict::{ComparisonDocument, SchedulerResult, percent};

/// Cache-aware scheduling that chose an LLC and could gather nobody there, by its own count: in half of the trials or more, scans found every
/// thread of the program that was elsewhere alone in its LLC, and none was ever pulled. Not where scans refused to gather as often: that is why.
pub(super) fn left_apart(scheduler: &SchedulerResult) -> Option<String> {
    let points = |what: &str| scheduler.decisions.iter().find(|decision| decision.what == what).map(|d| &d.points);
    let apart = points("threads left apart")?;
    let pulled = points("task pulled");
    let refused = |trial: usize| -> u64 {
        let is_refusal = |told: &&DecisionCount| told.what == "aggregation refused" && told.why != ONE_THREAD;
        let refusals = scheduler.decisions.iter().filter(is_refusal);
        refusals.map(|decision| decision.points[trial]).sum()
    };
    let held =
        |(trial, count): &(usize, &u64)| **count > refused(*trial) && pulled.is_none_or(|pulled| pulled[*trial] == 0);
    let trials: Vec<u64> = apart.iter().enumerate().filter(held).map(|(_, count)| *count).collect();
    (2 * trials.len() >= apart.len()).then(|| {
        format!(
            "{} chose a preferred LLC and no thread could be pulled there in {} of {} trials: at scans (up to {} in a trial) each \
             thread elsewhere ran alone in its LLC, from which balancing takes none (docs/models/cache-aware.md)",
            scheduler.label,
            trials.len(),
            apart.len(),
            trials.iter().max().copied().unwrap_or(0)
        )
    })
}

/// Whether masks may be why threads of a process stay apart: not all of them may run under the same LLCs, or one changes its mask.
pub(super) fn apart_by_masks(experiment: &Experiment, scheduler: usize) -> bool {
    let (machine, workload) = (&experiment.machine_of(scheduler).value, &experiment.workload_of(scheduler).value);
    let mut allowed: BTreeMap<ProcessId, BTreeSet<LlcId>> = BTreeMap::new();
    let differs = workload.tasks.iter().any(|task| {
        let own: BTreeSet<LlcId> = task.affinity.on(machine).iter().map(|cpu| machine.llc_of(cpu)).collect();
        *allowed.entry(task.process).or_insert_with(|| own.clone()) != own
    });
    let changes = |step: &Step| matches!(step, Step::SetAffinity(_));
    differs || workload.programs.iter().flat_map(|program| &program.steps).any(changes)
}

/// What cache-aware scheduling refuses, and why: reasons of its decision.
const REFUSALS: [(&str, &str); 3] = [
    ("aggr_tolerance is 0", "aggr_tolerance=0 allows no process"),
    ("more threads than cores", "more of its threads ran than aggr_tolerance allows for the cores of an LLC"),
    ("footprint exceeds the LLC", "its footprint is larger than aggr_tolerance allows for the size of an LLC"),
];

/// Cache-aware scheduling that refused to gather a process in half of the trials or more, by its own count.
pub(super) fn refused(scheduler: &SchedulerResult) -> Vec<String> {
    let of_reason = |(reason, meaning): (&str, &str)| {
        let mut decisions = scheduler.decisions.iter();
        let points = &decisions.find(|told| told.what == "aggregation refused" && told.why == reason)?.points;
        let refusing = points.iter().filter(|count| **count > 0).count();
        (2 * refusing >= points.len()).then(|| {
            format!(
                "{} refused to gather a process in {refusing} of {} trials, at scans (up to {} in a trial): {meaning} (docs/models/cache-aware.md)",
                scheduler.label,
                points.len(),
                points.iter().max().copied().unwrap_or(0)
            )
        })
    };
    REFUSALS.into_iter().filter_map(of_reason).collect()
}

/// Why a process of one thread is refused, which is no matter of what a user could set.
const ONE_THREAD: &str = "one thread";

/// Cache-aware scheduling that gathered no thread, as every process at whose scans it looked had one thread, in half of the trials or more.
pub(super) fn one_thread_each(scheduler: &SchedulerResult) -> Option<String> {
    let is_refusal = |told: &DecisionCount| told.what == "aggregation refused";
    let refused = scheduler.decisions.iter().find(|told| is_refusal(told) && told.why == ONE_THREAD)?;
    let of_several =
        |told: &&DecisionCount| told.what == "preferred LLC chosen" || (is_refusal(told) && told.why != ONE_THREAD);
    let looked_at_several =
        |trial: usize| scheduler.decisions.iter().filter(of_several).any(|told| told.points[trial] > 0);
    let of_one = refused.points.iter().enumerate().filter(|(trial, count)| **count > 0 && !looked_at_several(*trial));
    let trials = of_one.count();
    (2 * trials >= refused.points.len()).then(|| {
        format!(
            "{} gathered no thread in {trials} of {} trials: each process has one thread, and only threads of one process are gathered \
             (--aggregate can form groups)",
            scheduler.label,
            refused.points.len()
        )
    })
}

/// From this part of the threads' time outside of preferred LLCs on, they are not gathered. Gathering that succeeds leaves less than a tenth,
/// in runs of seconds.
const HALF_GATHERED: f64 = 0.25;

/// Whether threads ran where their process preferred it all the same, as wakeups bring them together, in half of the trials or more.
pub(super) fn are_together(trials: &[Trial]) -> bool {
    let rows = trials.iter().filter_map(|trial| trial.gathering);
    2 * rows.filter(|row| row.outside() < HALF_GATHERED).count() >= trials.len()
}

/// Cache-aware scheduling that began to gather threads and had not ended, or stopped on the way, in half of the trials or more. Where
/// threads are pulled more than twice each they come and go, as they would in a longer run. `told`: another condition says that placement still
/// changed.
pub(super) fn half_gathered(scheduler: &SchedulerResult, trials: &[Trial], told: bool) -> Option<String> {
    let of_trial = |trial: &Trial| {
        let row = trial.gathering?;
        let all_ns: u64 = trial.tasks.iter().map(|task| task.cpu_time_ns).sum();
        // Most of the time there was an LLC to come to.
        let had_one = 2 * (row.inside_ns + row.outside_ns) >= all_ns;
        (had_one && row.outside() >= HALF_GATHERED && row.pulled <= 2 * row.threads).then_some(row)
    };
    let mut rows: Vec<GatheringRow> = trials.iter().filter_map(of_trial).collect();
    if rows.is_empty() || 2 * rows.len() < trials.len() {
        return None;
    }
    let goes_on = 2 * rows.iter().filter(|row| row.pulled_late > 0).count() > rows.len();
    rows.sort_by(|a, b| a.outside().total_cmp(&b.outside()));
    let ending = match goes_on {
        true if told => return None,
        true => "they were still being pulled there in the last quarter, and a longer run may say something else",
        false => "in the last quarter none was pulled there (docs/models/cache-aware.md)",
    };
    let has_scopes = scheduler.decisions.iter().any(|told| told.what == "scope expanded");
    let place = if has_scopes { "LLCs of their process's scope" } else { "LLC that their process preferred" };
    Some(format!(
        "in {} of {} trials of {} threads ran {} of their time outside of the {place}: {ending}",
        rows.len(),
        trials.len(),
        scheduler.label,
        percent(rows[rows.len() / 2].outside())
    ))
}

/// Scans of schedulers that keep threads together, whose cost nobody measured: a thread of each process spends that part of its time on looking at
/// CPUs, at the most. Told where it is a notable part of the difference.
pub(super) fn assumed_scans(machine: &Machine, document: &ComparisonDocument) -> Vec<String> {
    const BY_CPU: &str = "costs.balance_per_cpu_ns";
    let Some(base) = document.schedulers.iter().find(|scheduler| scheduler.is_baseline) else { return Vec::new() };
    let scan_ns = machine.costs().balance_per_cpu_ns as f64 * machine.cpu_count() as f64;
    let chose =
        |told: &DecisionCount| told.what == "preferred LLC chosen" && told.points.iter().any(|count| *count > 0);
    let said = |[own, other]: [&SchedulerResult; 2]| {
        let spec = SchedulerSpec::parse(&own.label).ok().filter(|_| own.decisions.iter().any(chose))?;
        let value = |name: &str| spec.resolved().into_iter().find(|(own, _)| *own == name).map(|(_, value)| value);
        let hz = value("hz")?.max(1);
        let jiffies = value("epoch_period")?;
        let epoch = if jiffies == 0 { (hz / 100).max(1) } else { jiffies };
        let epoch_ns = epoch as f64 * 1e9 / hz as f64;
        let median = |of: &SchedulerResult| of.measures.get(&document.primary)?.summary.median;
        let difference = (median(own)? / median(other)? - 1.0).abs();
        let origin = machine.origin(BY_CPU).map_or_else(|| "assumed".to_owned(), |origin| origin.short());
        (scan_ns / epoch_ns >= MATTERS * difference).then(|| {
            format!(
                "a scan of {} takes up to {} ({BY_CPU}, {origin}, times {} CPUs), from a thread of each process every {}: that may be a \
                 part of its difference from {}, and {BY_CPU} = 0 in the machine compares without it",
                own.label,
                duration(scan_ns),
                machine.cpu_count(),
                duration(epoch_ns),
                other.label
            )
        })
    };
    let pairs =
        document.schedulers.iter().filter(|own| differs(document, own)).flat_map(|own| [[own, base], [base, own]]);
    pairs.filter_map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::tests::trial;
    use crate::verdict::Finding;
    use crate::verdict::tests::{conclude, record};

    /// A scheduler that took these decisions so often in each of four trials.
    fn decided(told: &[(&str, &str, u64)]) -> SchedulerResult {
        let count = |&(what, why, count): &(&str, &str, u64)| {
            let (what, why) = (what.to_owned(), why.to_owned());
            DecisionCount { what, why, points: vec![count; 4], median: count as f64 }
        };
        SchedulerResult {
            label: "cache-aware".into(),
            resolved: "cache-aware".into(),
            is_baseline: false,
            is_yardstick: false,
            unfinished: 0,
            measures: BTreeMap::new(),
            decisions: told.iter().map(count).collect(),
            operations: Vec::new(),
        }
    }

    /// Processes of one thread are refused all the time, and say nothing of the others.
    #[test]
    fn threads_that_a_scheduler_refuses_to_gather_are_not_apart_because_each_is_alone() {
        let said = |why: &str, refused: u64, apart: u64| {
            left_apart(&decided(&[("aggregation refused", why, refused), ("threads left apart", "", apart)]))
        };
        assert_eq!(said("more threads than cores", 48, 4), None);
        for (why, refused) in [("more threads than cores", 3), (ONE_THREAD, 400)] {
            assert!(said(why, refused, 40).is_some_and(|said| said.contains("in 4 of 4 trials")), "{why}");
        }
    }

    #[test]
    fn processes_of_one_thread_are_told_only_where_there_are_no_others() {
        let refused = ("aggregation refused", ONE_THREAD, 7);
        let expected = "cache-aware gathered no thread in 4 of 4 trials: each process has one thread, and only threads of one process are \
                        gathered (--aggregate can form groups)";
        assert_eq!(one_thread_each(&decided(&[refused])).as_deref(), Some(expected));
        for other in [("preferred LLC chosen", "highest occupancy", 1), ("aggregation refused", "footprint", 1)] {
            assert_eq!(one_thread_each(&decided(&[refused, other])), None, "{other:?}");
        }
        assert_eq!(one_thread_each(&decided(&[])), None);
    }

    #[test]
    fn a_tolerance_of_nothing_is_told_as_that() {
        let said = refused(&decided(&[("aggregation refused", "aggr_tolerance is 0", 5)]));
        assert!(said[0].contains("up to 5 in a trial): aggr_tolerance=0 allows no process"), "{said:?}");
    }

    #[test]
    fn threads_outside_of_a_scope_are_told_of_that() {
        let row = GatheringRow { threads: 4, inside_ns: 60, outside_ns: 40, pulled: 3, pulled_late: 0 };
        let of = |number| Trial { gathering: Some(row), ..trial("cache-aware", number, &[]) };
        let trials: Vec<Trial> = (0..4).map(of).collect();
        let said = |told: &[(&str, &str, u64)]| half_gathered(&decided(told), &trials, false).unwrap();
        assert!(
            said(&[("scope expanded", "", 1)])
                .contains("40 % of their time outside of the LLCs of their process's scope")
        );
        assert!(said(&[]).contains("outside of the LLC that their process preferred"));
    }

    /// 1024 CPUs at 150 ns are 153.6 us of every 8 ms, 1.92 %: a tenth of a difference of 10 % and not one of 50 %.
    #[test]
    fn scans_are_told_where_they_may_be_a_tenth_of_the_difference() {
        let machine = warmcore_topology::resolve("2s4n8l8c2t").unwrap();
        let said = |own_ns: f64, subject: &str| {
            let side = |label: &str, value: f64, subject: &str| -> Vec<Trial> {
                let of = |number| {
                    let reasons = [("highest occupancy".to_owned(), 1)].into_iter().collect();
                    let decisions = [(subject.to_owned(), reasons)].into_iter().collect();
                    Trial { decisions, ..trial(label, number, &[("elapsed_ns", Some(value))]) }
                };
                (0..10).map(of).collect()
            };
            let trials = [side("eevdf", 1e9, "nothing"), side("topology-aware", own_ns, subject)];
            let mut document = conclude(&record(&["eevdf", "topology-aware"], 10), &trials).unwrap();
            // These tasks have no profiles, so their verdict would say so.
            document.schedulers[1].measures.get_mut("elapsed_ns").unwrap().finding = Some(Finding::Worse);
            assumed_scans(&machine, &document)
        };
        let told = said(1.1e9, "preferred LLC chosen");
        assert!(told.len() == 1 && told[0].starts_with("a scan of topology-aware takes up to 154 us"), "{told:?}");
        assert!(said(1.5e9, "preferred LLC chosen").is_empty(), "a small part of it");
        assert!(said(1.1e9, "aggregation refused").is_empty(), "no scan looked at a CPU");
    }
}
